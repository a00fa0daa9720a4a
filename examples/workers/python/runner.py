"""Orlog runner in Python: registers itself, claims jobs of script types and executes them as processes, without a sandbox.
Usage: ORLOG_URL=http://127.0.0.1:7070 python3 runner.py python=python3 sh=sh
ORLOG_KEY_FILE, ORLOG_TOKEN_FILE and ORLOG_TENANT have the meaning that worker.py documents."""
import json, os, signal, socket, subprocess, sys, tempfile, threading

from worker import post, stopping

NAME = f"{socket.gethostname()}-{os.getpid()}"
INTERPRETERS = dict(argument.split("=", 1) for argument in sys.argv[1:])

def repeat(action):
    while not stopping.is_set():
        try:
            action()
        except OSError as error:  # the node is unavailable, or the claim is lost
            print(f"runner: {error}", file=sys.stderr)
            stopping.wait(1)

def register():
    stopping.wait(post("/v1/runners", {"name": NAME, "types": list(INTERPRETERS)})["heartbeat_interval_seconds"])

def work():
    for job in post("/v1/work/claim", {"worker": NAME, "effects": [f"job.{kind}" for kind in INTERPRETERS]})["jobs"]:
        report = lambda action, **body: post(f"/v1/work/jobs/{job['job']}/{action}", {"claim": job["claim"], **body})
        report("result", **execute(job, job["payload"], report))

def execute(job, payload, report):
    """Executes a job. ORLOG_ID is its idempotency key: a job can be delivered again, also to another runner."""
    script, given, output, log = (tempfile.NamedTemporaryFile("w+") for _ in range(4))
    print(payload["script"], file=script, flush=True)
    print(json.dumps({name: payload[name] for name in ("job", "type", "args", "results")}), file=given, flush=True)
    env = {**os.environ, **{name: str(value) for name, value in payload["env"].items()}, "ORLOG_ID": job["job"]}
    command, lines = [*INTERPRETERS[payload["type"]].split(), script.name], open(log.name)
    process = subprocess.Popen(command, stdin=open(given.name), stdout=output, stderr=log, env=env)
    try:
        while process.returncode is None:
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                report("heartbeat")
            if written := lines.read().splitlines():
                report("logs", log=written)
    finally:
        process.kill()
    text = open(output.name).read().strip()
    if process.returncode != 0:
        return {"result": "retry", "code": f"exit_{process.returncode}", "message": text}
    try:
        return {"result": "succeeded", "payload": json.loads(text or "null")}
    except ValueError:
        return {"result": "succeeded", "payload": {"text": text}}

signal.signal(signal.SIGTERM, lambda *_: stopping.set())
threading.Thread(target=repeat, args=[register], daemon=True).start()
repeat(work)
