#!/usr/bin/env bash
# Installs the pinned restate-server into .tools/restate if it is missing (npm, by hash).
set -euo pipefail
cd "$(dirname "$0")/.."

into=.tools/restate
if ! cmp -s tools/restate/package-lock.json "$into/package-lock.json" || [ ! -x "$into/restate-server" ]; then
    echo "restate: installing restate-server into $into"
    rm -rf "$into"
    mkdir -p "$into"
    cp tools/restate/package.json tools/restate/package-lock.json "$into/"
    (cd "$into" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    # npm installs the package of this platform only.
    servers=("$into"/node_modules/@restatedev/restate-server-*/bin/restate-server)
    if [ ! -x "${servers[0]}" ]; then
        rm -rf "$into"
        echo "restate: no restate-server for $(uname -sm); it exists for Linux and macOS, x64 and arm64" >&2
        exit 1
    fi
    ln -s "${servers[0]#"$into"/}" "$into/restate-server"
    "$into/restate-server" --version
fi
