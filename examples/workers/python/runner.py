"""Orlog runner in Python: registers itself, claims jobs of script types and executes them as processes, without a sandbox.

    ORLOG_URL=http://127.0.0.1:7070 python3 runner.py python=python3 sh=sh
"""
import json, os, signal, socket, subprocess, sys, tempfile, threading, time, urllib.request

URL, TENANT = os.environ.get("ORLOG_URL", "http://127.0.0.1:7070"), os.environ.get("ORLOG_TENANT", "")
TOKEN_FILE, NAME = os.environ.get("ORLOG_TOKEN_FILE", ""), f"{socket.gethostname()}-{os.getpid()}"
INTERPRETERS = dict(argument.split("=", 1) for argument in sys.argv[1:])
stopping = threading.Event()


def post(path, body):
    headers = {"content-type": "application/json", **({"x-tenant-id": TENANT} if TENANT else {})}
    if TOKEN_FILE:
        headers["authorization"] = "Bearer " + open(TOKEN_FILE).read().strip()
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=40) as response:
        return json.loads(response.read() or b"null")


def register():
    while not stopping.is_set():
        try:
            stopping.wait(post("/v1/runners", {"name": NAME, "types": list(INTERPRETERS)})["heartbeat_interval_seconds"])
        except OSError:
            stopping.wait(1)


def execute(job, source, report):
    """Executes a job. ORLOG_ID is its idempotency key: a job can be delivered again, also to another runner."""
    payload, lines, output, beat = job["payload"], [], [], time.monotonic()
    env = {**os.environ, **{name: str(value) for name, value in payload["env"].items()}, "ORLOG_ID": job["job"]}
    command, pipe = [*INTERPRETERS[payload["type"]].split(), source], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)
    process.stdin.write(json.dumps({name: payload[name] for name in ("job", "type", "args", "results")}))
    process.stdin.close()
    threads = [threading.Thread(target=lambda: lines.extend(line.rstrip() for line in process.stderr)),
               threading.Thread(target=lambda: output.append(process.stdout.read().strip()))]
    [thread.start() for thread in threads]
    while any(thread.is_alive() for thread in threads) or lines:
        threads[0].join(0.2)
        if lines:
            report("logs", log=[lines.pop(0) for _ in range(len(lines))])
        if time.monotonic() - beat > job["heartbeat_interval_seconds"]:
            report("heartbeat")
            beat = time.monotonic()
    if process.wait() != 0:
        return {"result": "retry", "code": f"exit_{process.returncode}", "message": output[0]}
    try:
        return {"result": "succeeded", "payload": json.loads(output[0] or "null")}
    except ValueError:
        return {"result": "succeeded", "payload": {"text": output[0]}}


[signal.signal(name, lambda *_: stopping.set()) for name in (signal.SIGTERM, signal.SIGINT)]
threading.Thread(target=register, daemon=True).start()
while not stopping.is_set():
    try:
        claim = {"effects": [f"job.{kind}" for kind in INTERPRETERS], "worker": NAME}
        for job in post("/v1/work/claim", claim)["jobs"]:
            report = lambda action, **body: post(f"/v1/work/jobs/{job['job']}/{action}", {"claim": job["claim"], **body})
            with tempfile.NamedTemporaryFile("w", suffix=".script") as source:
                source.write(job["payload"]["script"])
                source.flush()
                report("result", **execute(job, source.name, report))
    except OSError as error:  # the node is unavailable, or the claim is lost
        print(f"runner: {error}", file=sys.stderr)
        stopping.wait(1)
