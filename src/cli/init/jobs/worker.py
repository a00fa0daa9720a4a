"""Worker that claims jobs, sends heartbeats and reports results. It uses only the Python standard library.

    ORLOG_TOKEN_FILE=data/session-token python3 workers/python/worker.py
"""
import itertools, json, os, signal, socket, sys, threading, time, urllib.error, urllib.request

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
    try:
        with urllib.request.urlopen(request, timeout=40) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        # The problem in the body has the reason and the remedy.
        error.msg = error.read(2000).decode(errors="replace") or error.msg
        raise


class ClaimLost(Exception):
    """Another worker has the job, or the saga does not await it any more."""


class Claim:
    """Claim of a job, which heartbeats extend until the job has ended."""

    def __init__(self, job):
        self.path = f"/v1/work/jobs/{job['job']}"
        self.id = {"claim": job["claim"]}
        self.interval = job["heartbeat_interval_seconds"]
        self.ended, self.lost = threading.Event(), threading.Event()

    def send(self, request, body):
        """Sends a request about the job. A network error is only printed: the node may be restarting."""
        try:
            post(self.path + request, {**self.id, **body})
        except urllib.error.HTTPError as error:
            if error.code == 409:
                self.lost.set()
            print(f"worker: {request}: {error}", file=sys.stderr, flush=True)
        except OSError as error:
            print(f"worker: {request}: {error}", file=sys.stderr, flush=True)

    def send_heartbeats(self):
        while not self.lost.is_set() and not self.ended.wait(self.interval):
            self.send("/heartbeat", {})

    def log(self, line):
        self.send("/logs", {"log": [line]})
        if self.lost.is_set():
            raise ClaimLost

    def report(self, result):
        """Sends the result until the node has stored it: the work is done, and must not be repeated."""
        for attempt in itertools.count():
            try:
                return post(self.path + "/result", {**self.id, **result})
            except urllib.error.HTTPError as error:
                print(f"worker: result: {error}", file=sys.stderr, flush=True)
                if error.code < 500 and error.code != 429:
                    return None
            except OSError as error:
                print(f"worker: result: {error}", file=sys.stderr, flush=True)
            if stopping.is_set() and attempt >= 20:
                print("worker: stops before the result is stored; the job is repeated", file=sys.stderr, flush=True)
                return None
            time.sleep(1)


def run(job):
    claim = Claim(job)
    threading.Thread(target=claim.send_heartbeats, daemon=True).start()
    try:
        result = {"result": "succeeded", "payload": JOBS[job["effect"]](job["payload"], claim.log)}
    except ClaimLost:
        return
    except Failed as failed:
        result = {"result": "failed", "code": failed.code, "message": failed.message}
    except Exception as error:  # any other error: the job is repeated
        result = {"result": "retry", "code": "python", "message": repr(error)}
    finally:
        claim.ended.set()
    print(f"{job['effect']} {job['saga']}/{job['correlation']}: {json.dumps(result)}", flush=True)
    claim.report(result)


def main():
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    # A short wait, so that an idle worker stops soon after a signal.
    claim = {"effects": list(JOBS), "worker": f"{socket.gethostname()}-{os.getpid()}", "wait_seconds": 5}
    while not stopping.is_set():
        try:
            for job in post("/v1/work/claim", claim)["jobs"]:
                run(job)
        except OSError as error:  # the node is not reachable, or it rejected the request
            print(f"worker: {error}", file=sys.stderr, flush=True)
            stopping.wait(1)


if __name__ == "__main__":
    main()
