#!/usr/bin/env bash
# Installs the pinned npm packages of the tests into .tools/<name> if they are missing (npm, by hash).
set -euo pipefail
cd "$(dirname "$0")/.."

for name in lezer-logql openapi-typescript; do
    into=.tools/$name
    if cmp -s "tools/$name/package-lock.json" "$into/package-lock.json" && [ -d "$into/node_modules" ]; then
        continue
    fi
    echo "$name: installing into $into"
    rm -rf "$into"
    mkdir -p "$into"
    cp "tools/$name/package.json" "tools/$name/package-lock.json" "$into/"
    (cd "$into" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
done
