"""A worker for Orlog, with the standard library alone: claims jobs, keeps them alive, brings results.

    ORLOG_URL=http://127.0.0.1:7070 ORLOG_TENANT=acme python3 worker.py media.cut
"""
import json, os, signal, socket, sys, threading, urllib.error, urllib.request

URL = os.environ.get("ORLOG_URL", "http://127.0.0.1:7070")
TENANT = os.environ.get("ORLOG_TENANT", "")
HEARTBEAT = float(os.environ.get("WORKER_HEARTBEAT_SECONDS", "30"))
stopping = threading.Event()


def ask(path, body):
    headers = {"content-type": "application/json", **({"x-tenant-id": TENANT} if TENANT else {})}
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=40) as answer:
        return json.loads(answer.read() or b"null")


def perform(job, write):
    """The work itself. `job["job"]` is the idempotency key: the same job may come again, to another worker too."""
    write(f"{job['effect']} for {job['saga']}/{job['correlation']}")
    return {"seen": job["payload"]}


def keep(job, over):
    while not over.wait(HEARTBEAT):
        ask(f"/v1/work/jobs/{job['job']}/heartbeat", {"claim": job["claim"]})


def see_through(job):
    path, claim, over = f"/v1/work/jobs/{job['job']}", {"claim": job["claim"]}, threading.Event()
    threading.Thread(target=keep, args=(job, over), daemon=True).start()
    try:
        payload = perform(job, lambda line: ask(path + "/lines", {**claim, "lines": [line]}))
        result = {"result": "succeeded", "payload": payload}
    except Exception as error:  # whatever it is, somebody else may have more luck
        result = {"result": "retry", "code": "python", "message": repr(error)}
    finally:
        over.set()
    ask(path + "/result", {**claim, **result})


def main(effects):
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    claim = {"effects": effects, "worker": f"{socket.gethostname()}-{os.getpid()}"}
    while not stopping.is_set():
        try:
            for job in ask("/v1/work/claim", claim)["jobs"]:
                see_through(job)
        except (urllib.error.URLError, OSError) as error:
            print(f"worker: {error}", file=sys.stderr)
            stopping.wait(1)


if __name__ == "__main__":
    main(sys.argv[1:])
