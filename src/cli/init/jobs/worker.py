"""Worker that claims jobs, sends heartbeats and reports results. It uses only the Python standard library.

    ORLOG_TOKEN_FILE=data/session-token python3 workers/python/worker.py
"""
import json, os, signal, socket, sys, threading, urllib.request

URL = os.environ.get("ORLOG_URL", "http://127.0.0.1:7070")
TOKEN_FILE = os.environ.get("ORLOG_TOKEN_FILE", "")
stopping = threading.Event()


class Failed(Exception):
    """Final failure: the job is not repeated, and the saga is compensated."""

    def __init__(self, code, message):
        self.code, self.message = code, message


def probe(job, log):
    if not job["source"].endswith(".mp4"):
        raise Failed("unsupported_format", f"{job['source']} is not an MP4 file")
    return {"seconds": 90}


def transcode(job, log):
    for percent in (0, 50, 100):
        log(f"{job['source']}: {percent} %")
    return {"file": f"{job['source']}.{job['format']}"}


# Jobs by effect. A job can be delivered again, also to another worker: `job["job"]` is its idempotency key.
JOBS = {"video.probe": probe, "video.transcode": transcode, "video.delete": lambda job, log: {}}


def post(path, body):
    headers = {"content-type": "application/json"}
    if TOKEN_FILE:
        headers["authorization"] = "Bearer " + open(TOKEN_FILE).read().strip()
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=40) as response:
        return json.loads(response.read() or b"null")


def run(job):
    path, claim, ended = f"/v1/work/jobs/{job['job']}", {"claim": job["claim"]}, threading.Event()

    def send_heartbeats():
        while not ended.wait(job["heartbeat_interval_seconds"]):
            post(path + "/heartbeat", claim)

    threading.Thread(target=send_heartbeats, daemon=True).start()
    try:
        payload = JOBS[job["effect"]](job["payload"], lambda line: post(path + "/logs", {**claim, "log": [line]}))
        result = {"result": "succeeded", "payload": payload}
    except Failed as failed:
        result = {"result": "failed", "code": failed.code, "message": failed.message}
    except Exception as error:  # any other error: the job is repeated
        result = {"result": "retry", "code": "python", "message": repr(error)}
    finally:
        ended.set()
    print(f"{job['effect']} {job['saga']}/{job['correlation']}: {json.dumps(result)}", flush=True)
    post(path + "/result", {**claim, **result})


def main():
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    claim = {"effects": list(JOBS), "worker": f"{socket.gethostname()}-{os.getpid()}"}
    while not stopping.is_set():
        try:
            for job in post("/v1/work/claim", claim)["jobs"]:
                run(job)
        except OSError as error:  # the node is not reachable, or it rejected the request
            print(f"worker: {error}", file=sys.stderr, flush=True)
            stopping.wait(1)


if __name__ == "__main__":
    main()
