#!/bin/sh
# Guess: of several sessions that run CREATE TABLE IF NOT EXISTS for one name at once, one creates
# the table, and the others get the notice "already exists, skipping".
#
# Seen with PostgreSQL 16.2 (pgserver 0.1.4 from PyPI) and psycopg 3.2.13: IF NOT EXISTS looks for the
# table before it locks the name. Six sessions, 300 tables: of 1,800 statements 65 failed with 23505
# (unique_violation, in an index of pg_type or pg_class) and 3 with 42710 (duplicate_object: the row
# type of the table). heap.c has a third way out, 42P07 (duplicate_table). A program that takes only
# 23505 for "another session created it" fails now and then.
#
# Fails if no session is rejected in 300 rounds, or if one is rejected with another state.
set -eu

dir=$(mktemp -d)
cleanup() {
    [ -f "$dir/data/postmaster.pid" ] && kill -INT "$(head -1 "$dir/data/postmaster.pid")" && sleep 1
    rm -rf "$dir"
}
trap cleanup EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check \
    pgserver==0.1.4 'psycopg[binary]==3.2.13'
bin=$(dirname "$(find "$dir/venv" -path '*/pginstall/bin/initdb')")

# The server does not run as root.
as=''
chmod 755 "$dir"
mkdir "$dir/data"
if [ "$(id -u)" = 0 ]; then
    chown 65534 "$dir/data"
    as='setpriv --reuid=65534 --clear-groups'
fi
$as "$bin/initdb" -D "$dir/data" -U tester -A trust -N >/dev/null
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
$as "$bin/postgres" -D "$dir/data" -h 127.0.0.1 -p "$port" -F -k '' >"$dir/log" 2>&1 &

"$dir/venv/bin/python" - "$port" <<'PYTHON'
import collections
import sys
import threading
import time

import psycopg

SESSIONS = 6
ROUNDS = 300
EXPECTED = {"42710", "42P07", "23505"}

url = f"postgresql://tester@127.0.0.1:{sys.argv[1]}/postgres"


def connect():
    deadline = time.monotonic() + 30
    while True:
        try:
            return psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


sessions = [connect() for _ in range(SESSIONS)]
states = collections.Counter()
start = threading.Barrier(SESSIONS)


def create(session):
    for number in range(ROUNDS):
        start.wait()
        try:
            session.execute(f"CREATE TABLE IF NOT EXISTS t{number} (id uuid PRIMARY KEY, answer text)")
            states["created or skipped"] += 1
        except psycopg.Error as error:
            states[error.sqlstate] += 1


threads = [threading.Thread(target=create, args=[session]) for session in sessions]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

version = sessions[0].execute("SHOW server_version").fetchone()[0]
print(f"PostgreSQL {version}: {dict(states)}")
rejected = set(states) - {"created or skipped"}
sys.exit(0 if rejected and rejected <= EXPECTED else 1)
PYTHON
