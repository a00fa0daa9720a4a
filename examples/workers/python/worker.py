"""Orlog worker that uses only the Python standard library: claims jobs, sends heartbeats and reports results.

    ORLOG_URL=http://127.0.0.1:7070 ORLOG_TENANT=acme python3 worker.py media.cut
"""
import json, os, signal, socket, sys, threading, urllib.error, urllib.request

URL = os.environ.get("ORLOG_URL", "http://127.0.0.1:7070")
TENANT = os.environ.get("ORLOG_TENANT", "")
TOKEN_FILE = os.environ.get("ORLOG_TOKEN_FILE", "")
TOKEN = os.environ.get("ORLOG_TOKEN", "")
stopping = threading.Event()


def post(path, body):
    headers = {"content-type": "application/json", **({"x-tenant-id": TENANT} if TENANT else {})}
    token = open(TOKEN_FILE).read().strip() if TOKEN_FILE else TOKEN
    if token:
        headers["authorization"] = "Bearer " + token
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=40) as response:
        return json.loads(response.read() or b"null")


def execute(job, log):
    """Executes a job. `job["job"]` is the idempotency key, because a job can be delivered again, also to another worker."""
    log(f"{job['effect']} for {job['saga']}/{job['correlation']}")
    return {"seen": job["payload"]}


def send_heartbeats(job, ended):
    while not ended.wait(job["heartbeat_interval_seconds"]):
        post(f"/v1/work/jobs/{job['job']}/heartbeat", {"claim": job["claim"]})


def run(job):
    path, claim, ended = f"/v1/work/jobs/{job['job']}", {"claim": job["claim"]}, threading.Event()
    threading.Thread(target=send_heartbeats, args=(job, ended), daemon=True).start()
    try:
        payload = execute(job, lambda line: post(path + "/logs", {**claim, "log": [line]}))
        result = {"result": "succeeded", "payload": payload}
    except Exception as error:  # any error: the job is retried
        result = {"result": "retry", "code": "python", "message": repr(error)}
    finally:
        ended.set()
    post(path + "/result", {**claim, **result})


def main(effects):
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    claim = {"effects": effects, "worker": f"{socket.gethostname()}-{os.getpid()}"}
    while not stopping.is_set():
        try:
            for job in post("/v1/work/claim", claim)["jobs"]:
                run(job)
        except (urllib.error.URLError, OSError) as error:
            print(f"worker: {error}", file=sys.stderr)
            stopping.wait(1)


if __name__ == "__main__":
    main(sys.argv[1:])
