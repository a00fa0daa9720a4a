#!/usr/bin/env python3
"""Measures what a tenant notices of its neighbors: latency of its starts, and of /health, alone and beside load of others.

Usage: python3 benches/neighbors.py --orlog target/release/orlog [--seconds 10] [--rounds 3] [--only NAME ...]

Each scenario runs on a fresh node in a temporary directory. The load comes from other processes of this script, bounded
in time; it uses another tenant than the measured starts. Only loopback addresses are used. The output is a Markdown
table with all rounds: medians of the rounds, and the ratio of p99 to the scenario `alone`.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

# About 0.9 of the cost limit of one expression.
HEAVY = "lists.range(30000).all(i, i >= 0)"
VICTIM = "victim"
NOISY = "noisy"

VICTIM_SAGA = """\
saga: victim
version: 1
correlate: id
start: VictimStarted
vars: { id: =event.id }
steps:
  - { id: done, do: { event: VictimDone } }
"""

HEAVY_SAGA = """\
saga: heavy
version: 1
correlate: id
start: HeavyStarted
vars: { id: =event.id }
steps:
""" + "".join(
    f"  - {{ id: step{n}, when: '={HEAVY} && false', do: {{ event: Never{n} }} }}\n" for n in range(10)
) + """\
  - { id: wait, do: { event: HeavyDone } }
"""

MAIL_SAGA = """\
saga: letter
version: 1
correlate: id
start: LetterAsked
vars: { html: =event.html }
steps:
  - id: send
    do:
      effect: mail.send
      data: { to: [a@example.com], subject: Report, sanitize: true, html: =vars.html }
"""

WORK_SAGA = """\
saga: work
version: 1
correlate: id
start: WorkAsked
vars: { rows: =event.rows }
steps:
  - { id: job, do: { effect: jobs.run, data: { rows: =vars.rows } } }
"""

AWAY_SAGA = """\
saga: away
version: 1
correlate: id
start: AwayAsked
vars: { id: =event.id }
steps:
  - { id: call, do: { effect: away.call, data: { id: =vars.id } } }
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    """One node with all definitions and upstreams of the scenarios, on a free port, in a temporary directory."""

    def __init__(self, orlog):
        self.dir = Path(tempfile.mkdtemp(prefix="orlog-neighbors-"))
        self.port = free_port()
        self.mail_port = free_port()
        self.write_files()
        self.log = open(self.dir / "log", "wb")
        command = [orlog, "run", "--config", str(self.dir / "orlog.toml")]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def write_files(self):
        definitions = self.dir / "definitions"
        upstreams = self.dir / "upstreams"
        definitions.mkdir()
        upstreams.mkdir()

        sagas = {
            "victim": VICTIM_SAGA,
            "heavy": HEAVY_SAGA,
            "letter": MAIL_SAGA,
            "work": WORK_SAGA,
            "away": AWAY_SAGA,
        }
        for name, text in sagas.items():
            (definitions / f"{name}.saga.yaml").write_text(text)

        (upstreams / "mail.toml").write_text(
            f'kind = "smtp"\nhost = "127.0.0.1"\nport = {self.mail_port}\ntls = "none"\n'
            'from = "Shop <shop@example.com>"\n[effects."mail.send"]\n'
        )
        (upstreams / "jobs.toml").write_text('kind = "worker"\neffects = ["jobs.run"]\n')
        (upstreams / "away.toml").write_text(
            f'base_url = "http://127.0.0.1:{free_port()}"\n'
            '[effects."away.call"]\nmethod = "POST"\npath = "/call"\n'
        )
        (self.dir / "orlog.toml").write_text(
            f'node_name = "neighbors"\ndata_dir = "{self.dir}/data"\nlisten = "127.0.0.1:{self.port}"\n'
            f'definitions_dir = "{definitions}"\nupstreams_dir = "{upstreams}"\n'
        )

    def wait_until_ready(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if Client(self.port, NOISY).request("GET", "/ready").status == 200:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"the node does not become ready:\n{(self.dir / 'log').read_text()}")

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class Response:
    def __init__(self, status, body):
        self.status = status
        self.body = body

    def json(self):
        return json.loads(self.body)


class Client:
    """HTTP client of one tenant with one connection."""

    def __init__(self, port, tenant):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.tenant = tenant

    def request(self, method, path, body=None):
        headers = {"x-tenant-id": self.tenant, "content-type": "application/json"}
        data = None if body is None else json.dumps(body)
        try:
            self.connection.request(method, path, data, headers)
            response = self.connection.getresponse()
            return Response(response.status, response.read())
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise

    def post(self, path, body):
        response = self.request("POST", path, body)
        if response.status >= 300:
            raise RuntimeError(f"{path}: {response.status} {response.body[:300]!r}")
        return response.json()

    def start(self, saga, data):
        self.post(f"/v1/sagas/{saga}", data)


# ---- Load. Each function runs in a process of its own until it is terminated.


def heavy_transitions(port, _mail_port):
    client = Client(port, NOISY)
    for number in range(8):
        event = {"specversion": "1.0", "id": f"h{number}", "source": "urn:n", "type": "HeavyStarted",
                 "data": {"id": f"h{number}"}}
        client.post("/v1/events", event)


def heavy_flows(port, _mail_port):
    client = Client(port, NOISY)
    arguments = {f"a{n}": "=" + HEAVY for n in range(10)}
    jobs = [{"id": f"j{n}", "type": "none", "script": "true", "args": arguments} for n in range(12)]
    for _ in range(3):
        client.post("/v1/flows", {"name": "heavy", "jobs": jobs})


def nested_mail(port, mail_port):
    sink = threading.Thread(target=accept_mail, args=[mail_port], daemon=True)
    sink.start()
    client = Client(port, NOISY)
    html = "<b>" * 70_000
    for number in range(4):
        client.start("letter", {"id": f"m{number}", "html": html})
    sink.join()


def accept_mail(port):
    """Accepts each message, and keeps none."""
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=accept_message, args=[connection], daemon=True).start()


def accept_message(connection):
    stream = connection.makefile("rwb")
    stream.write(b"220 sink\r\n")
    stream.flush()
    in_data = False
    for line in stream:
        if in_data and line != b".\r\n":
            continue
        if line.upper().startswith(b"DATA"):
            in_data = True
            stream.write(b"354 go on\r\n")
        else:
            in_data = False
            stream.write(b"250 ok\r\n")
        stream.flush()


def line_followers(port, _mail_port):
    client = Client(port, NOISY)
    jobs = [{"id": f"j{n}", "type": "none", "script": "x" * 2000} for n in range(40)]
    ids = [client.post("/v1/flows", {"name": "f", "jobs": jobs})["id"] for _ in range(3)]
    sockets = []
    for number in range(60):
        follower = socket.create_connection(("127.0.0.1", port))
        follower.sendall(
            f"GET /v1/flows/{ids[number % 3]}/lines HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"x-tenant-id: {NOISY}\r\naccept: text/event-stream\r\n\r\n".encode()
        )
        sockets.append(follower)
    time.sleep(3600)


def viewers(port, _mail_port):
    client = Client(port, NOISY)
    rows = ["x" * 100] * 2000
    for number in range(100):
        client.start("work", {"id": f"w{number}", "rows": rows})
    threads = [threading.Thread(target=view, args=[port]) for _ in range(6)]
    for thread in threads:
        thread.start()


def view(port):
    client = Client(port, NOISY)
    while True:
        for path in ["/v1/work", "/v1/inspect/saga", "/v1/sagas?limit=1000"]:
            client.request("GET", path)


def large_dead_letters(port, _mail_port):
    client = Client(port, NOISY)
    text = "x" * 900_000
    for number in range(80):
        event = {"specversion": "1.0", "id": f"d{number}", "source": "urn:n", "type": "HeavyStarted",
                 "data": {"text": text}}
        client.post("/v1/events", event)


def upstream_away(port, _mail_port):
    client = Client(port, NOISY)
    for number in range(2000):
        client.start("away", {"id": f"a{number}"})


SCENARIOS = {
    "alone": None,
    "heavy transitions": heavy_transitions,
    "heavy flows": heavy_flows,
    "nested mail": nested_mail,
    "line followers": line_followers,
    "viewers": viewers,
    "large dead letters": large_dead_letters,
    "upstream away": upstream_away,
}


# ---- Measurement.


class Latencies:
    """Latencies of one kind of request, in milliseconds."""

    def __init__(self):
        self.values = []

    def sample(self, action, until):
        """Repeats `action` 20 times a second. A request that is due while another one waits counts from its due time."""
        due = time.monotonic()
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            action()
            self.values.append((time.monotonic() - due) * 1000)
            due += 0.05

    def percentile(self, share):
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Round:
    def __init__(self, starts, health):
        self.p50 = starts.percentile(0.5)
        self.p99 = starts.percentile(0.99)
        self.health = max(health.values)


def measure(orlog, load, seconds):
    node = Node(orlog)
    try:
        node.wait_until_ready()
        process = None
        if load is not None:
            process = multiprocessing.Process(target=load, args=[node.port, node.mail_port], daemon=True)
            process.start()
            time.sleep(0.3)
        try:
            return sample(node.port, seconds)
        finally:
            if process is not None:
                process.kill()
                process.join()
    finally:
        node.stop()


def sample(port, seconds):
    client = Client(port, VICTIM)
    checker = Client(port, VICTIM)
    started = 0

    def start():
        nonlocal started
        started += 1
        client.start("victim", {"id": f"v{started}"})

    def check():
        checker.request("GET", "/health")

    starts = Latencies()
    health = Latencies()
    until = time.monotonic() + seconds
    thread = threading.Thread(target=health.sample, args=[check, until])
    thread.start()
    starts.sample(start, until)
    thread.join()
    return Round(starts, health)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orlog", required=True)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    options = parser.parse_args()
    orlog = os.path.abspath(options.orlog)

    # Rounds in turn: the speed of a shared machine changes within minutes.
    rounds = {name: [] for name in options.only}
    for _ in range(options.rounds):
        for name in options.only:
            rounds[name].append(measure(orlog, SCENARIOS[name], options.seconds))

    print("| beside | start p50 ms | start p99 ms | p99 / alone | slowest /health ms | p99 of each round |")
    print("|---|---:|---:|---:|---:|---|")
    base = None
    for name, results in rounds.items():
        p50 = statistics.median(result.p50 for result in results)
        p99 = statistics.median(result.p99 for result in results)
        health = statistics.median(result.health for result in results)
        base = base or p99
        each = ", ".join(f"{result.p99:.1f}" for result in results)
        print(f"| {name} | {p50:.1f} | {p99:.1f} | {p99 / base:.1f} | {health:.1f} | {each} |")


if __name__ == "__main__":
    main()
