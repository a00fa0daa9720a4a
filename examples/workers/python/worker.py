"""Orlog worker that uses only the Python standard library: claims jobs, sends heartbeats and reports results.

    ORLOG_URL=http://127.0.0.1:7070 ORLOG_TENANT=acme python3 worker.py media.cut

With ORLOG_KEY_FILE, it signs its requests with the key of an actor, and requires the package `cryptography`.
ORLOG_NODE is the name of the node, if a proxy or a container maps the address to it.
"""
import base64, hashlib, itertools, json, os, secrets, signal, socket, sys, threading, time, urllib.error, urllib.parse, urllib.request

URL = os.environ.get("ORLOG_URL", "http://127.0.0.1:7070")
TENANT = os.environ.get("ORLOG_TENANT", "")
TOKEN_FILE = os.environ.get("ORLOG_TOKEN_FILE", "")
TOKEN = os.environ.get("ORLOG_TOKEN", "")
KEY_FILE = os.environ.get("ORLOG_KEY_FILE", "")
NODE = os.environ.get("ORLOG_NODE", "")
stopping = threading.Event()


def signature(method, path, headers, body):
    """Returns the headers that sign a request (docs/authentication.md#signed-requests)."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(open(KEY_FILE, "rb").read(), None)
    raw, url = serialization.Encoding.Raw, lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    public = url(key.public_key().public_bytes(raw, serialization.PublicFormat.Raw))
    thumbprint = hashlib.sha256(b'{"crv":"Ed25519","kty":"OKP","x":"%s"}' % public.encode()).digest()
    digest = f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
    parts = {"@method": method, "@authority": urllib.parse.urlsplit(URL).netloc, "@path": path, "@query": "?"}
    parts |= {**headers, "content-digest": digest}
    now = int(time.time())
    names = " ".join(f'"{name}"' for name in parts)
    params = f'({names});created={now};expires={now + 60};nonce="{secrets.token_urlsafe(16)}"'
    params += f';keyid="{url(thumbprint)}";alg="ed25519";tag="orlog"'
    base = "".join(f'"{name}": {value}\n' for name, value in parts.items()) + f'"@signature-params": {params}'
    signed = base64.b64encode(key.sign(base.encode())).decode()
    return {"content-digest": digest, "signature-input": f"orlog={params}", "signature": f"orlog=:{signed}:"}


def post(path, body):
    body = json.dumps(body).encode()
    headers = {"content-type": "application/json", **({"x-tenant-id": TENANT} if TENANT else {})}
    token = open(TOKEN_FILE).read().strip() if TOKEN_FILE else TOKEN
    if NODE:
        headers["x-orlog-node"] = NODE
    if KEY_FILE:
        headers |= signature("POST", path, headers, body)
    elif token:
        headers["authorization"] = "Bearer " + token
    request = urllib.request.Request(URL + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=40) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        # The problem in the body has the reason and the remedy.
        error.msg = error.read(2000).decode(errors="replace") or error.msg
        raise


class Failed(Exception):
    """Final failure: the job is not repeated, and the saga is compensated."""

    def __init__(self, code, message):
        self.code, self.message = code, message


class ClaimLost(Exception):
    """Another worker has the job, or the saga does not await it any more."""


def execute(job, log):
    """Executes a job. `job["job"]` is the idempotency key, because a job can be delivered again, also to another worker.

    `log` raises `ClaimLost` when the job must stop. Raise `Failed` for a failure that a repetition does not change."""
    log(f"{job['effect']} for {job['saga']}/{job['correlation']}")
    return {"seen": job["payload"]}


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
            print(f"worker: {request}: {error}", file=sys.stderr)
        except OSError as error:
            print(f"worker: {request}: {error}", file=sys.stderr)

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
                print(f"worker: result: {error}", file=sys.stderr)
                if error.code < 500 and error.code != 429:
                    return None
            except OSError as error:
                print(f"worker: result: {error}", file=sys.stderr)
            if stopping.is_set() and attempt >= 20:
                print("worker: stops before the result is stored; the job is repeated", file=sys.stderr)
                return None
            time.sleep(1)


def run(job):
    claim = Claim(job)
    threading.Thread(target=claim.send_heartbeats, daemon=True).start()
    try:
        result = {"result": "succeeded", "payload": execute(job, claim.log)}
    except ClaimLost:
        return
    except Failed as failed:
        result = {"result": "failed", "code": failed.code, "message": failed.message}
    except Exception as error:  # any other error: the job is retried
        result = {"result": "retry", "code": "python", "message": repr(error)}
    finally:
        claim.ended.set()
    claim.report(result)


def main(effects):
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    # A short wait, so that an idle worker stops soon after a signal.
    claim = {"effects": effects, "worker": f"{socket.gethostname()}-{os.getpid()}", "wait_seconds": 5}
    while not stopping.is_set():
        try:
            for job in post("/v1/work/claim", claim)["jobs"]:
                run(job)
        except OSError as error:  # the node is not reachable, or it rejected the request
            print(f"worker: {error}", file=sys.stderr)
            stopping.wait(1)


if __name__ == "__main__":
    main(sys.argv[1:])
