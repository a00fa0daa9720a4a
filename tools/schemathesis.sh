#!/usr/bin/env bash
# Installs the pinned schemathesis into .tools/schemathesis if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=.tools/schemathesis
if cmp -s tools/schemathesis.txt "$tools/schemathesis.txt"; then
    exit 0
fi
echo "schemathesis: installing into $tools"
rm -rf "$tools"
python3 -m pip install -q --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check --target "$tools" -r tools/schemathesis.txt
cp tools/schemathesis.txt "$tools/"
