#!/usr/bin/env bash
# Installs the pinned nats-py into .tools/nats-py if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

pinned=$(sed -n 's/^nats-py==\([^ ]*\).*/\1/p' tools/nats-py.txt)
if [ -d ".tools/nats-py/nats_py-$pinned.dist-info" ]; then
    exit 0
fi
echo "nats-py: installing $pinned into .tools/nats-py"
rm -rf .tools/nats-py
python3 -m pip install -q --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check --target .tools/nats-py -r tools/nats-py.txt
