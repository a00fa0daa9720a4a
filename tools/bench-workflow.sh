#!/usr/bin/env bash
# Runs a program with the URLs of a new PostgreSQL and a new NATS server, and stops both when it ends.
# The arguments are the program and its arguments; `--postgres`, `--nats` and `--dir` are appended.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/orlog-bench-XXXXXX")
pids=()
stop() {
    for pid in "${pids[@]}"; do
        kill -INT "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf -- "$dir"
}
trap stop EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Debian does not add the server to PATH.
PATH=$PATH:$(compgen -G '/usr/lib/postgresql/*/bin' | tail -n 1)
# PostgreSQL does not run as root.
as_other=()
mkdir "$dir/postgres" "$dir/embedded"
if [ "$(id -u)" -eq 0 ]; then
    chmod 711 "$dir"
    chown 65534 "$dir/postgres"
    as_other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
fi
postgres_port=$(free_port) nats_port=$(free_port)

# The default durability: fsync and synchronous_commit are on.
"${as_other[@]}" initdb -D "$dir/postgres/data" -U orlog -A trust -E UTF8 --locale=C >/dev/null
"${as_other[@]}" postgres -D "$dir/postgres/data" -h 127.0.0.1 -p "$postgres_port" -c unix_socket_directories= -c max_connections=200 \
    2>"$dir/postgres.log" &
pids+=($!)
printf 'listen: 127.0.0.1:%s\njetstream { store_dir: "%s" }\n' "$nats_port" "$dir/nats" >"$dir/nats.conf"
.tools/nats/bin/nats-server -c "$dir/nats.conf" 2>"$dir/nats.log" &
pids+=($!)

for _ in $(seq 300); do
    if grep -q 'ready to accept connections' "$dir/postgres.log" && grep -q 'Server is ready' "$dir/nats.log"; then
        "$@" --postgres "postgres://orlog@127.0.0.1:$postgres_port/postgres" --nats "nats://127.0.0.1:$nats_port" --dir "$dir/embedded"
        exit
    fi
    sleep 0.1
done
cat "$dir/postgres.log" "$dir/nats.log" >&2
echo "bench-workflow: the servers did not start in 30s" >&2
exit 1
