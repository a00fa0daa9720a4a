#!/usr/bin/env bash
# Installs the pinned Python programs with these names, or those of the tests, into .tools if they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- check-jsonschema schemathesis oidc-provider syft nodejs openapi-python-client
for name in "$@"; do
    packages=.tools/$name
    if cmp -s "tools/$name.txt" "$packages/$name.txt"; then
        continue
    fi
    echo "$name: installing into $packages"
    rm -rf "$packages"
    python3 -m pip install -q --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check \
        --target "$packages" -r "tools/$name.txt"
    cp "tools/$name.txt" "$packages/"
done
