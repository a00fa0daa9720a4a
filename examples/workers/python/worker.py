"""Orlog worker that uses only the Python standard library: claims jobs, sends heartbeats and reports results.

    ORLOG_URL=http://127.0.0.1:7070 ORLOG_TENANT=acme python3 worker.py media.cut

With ORLOG_KEY_FILE, it signs its requests with the key of an actor, and requires the package `cryptography`.
ORLOG_NODE is the name of the node, if a proxy or a container maps the address to it.
"""
import base64, hashlib, json, os, secrets, signal, socket, sys, threading, time, urllib.error, urllib.parse, urllib.request

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
