"""Orlog worker that uses only the Python standard library: one WebSocket carries jobs down, and results and heartbeats up.

    ORLOG_URL=http://127.0.0.1:7070 ORLOG_TENANT=acme python3 stream.py media.cut
"""
import base64, json, os, socket, struct, sys, threading, time, urllib.parse

URL = urllib.parse.urlsplit(os.environ.get("ORLOG_URL", "http://127.0.0.1:7070"))
TOKEN_FILE = os.environ.get("ORLOG_TOKEN_FILE", "")
TOKEN = os.environ.get("ORLOG_TOKEN", "")
CREDIT = 4  # jobs at the same time


class Stream:
    """WebSocket client (RFC 6455) over HTTP."""

    def __init__(self):
        self.socket = socket.create_connection((URL.hostname, URL.port or 80))
        self.file, self.lock = self.socket.makefile("rb"), threading.Lock()
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /v1/work/exchange HTTP/1.1\r\nHost: {URL.netloc}\r\nX-Tenant-Id: {os.environ.get('ORLOG_TENANT', '')}\r\n"
        head += f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        token = open(TOKEN_FILE).read().strip() if TOKEN_FILE else TOKEN
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        self.socket.sendall(f"{head}\r\n".encode())
        status = self.file.readline().decode().strip()
        while self.file.readline().strip():  # headers
            pass
        if " 101 " not in status:
            raise ConnectionError(f"no stream: {status}")

    def send(self, data, kind=1):  # 1: text
        size, mask = len(data), os.urandom(4)
        length = struct.pack("!BH", 254, size) if 126 <= size < 65536 else struct.pack("!BQ", 255, size)
        frame = bytes([128 | kind]) + (bytes([128 | size]) if size < 126 else length) + mask
        with self.lock:
            self.socket.sendall(frame + bytes(byte ^ mask[index % 4] for index, byte in enumerate(data)))

    def receive(self):
        while True:
            kind, size = self.read(2)
            if size > 125:
                size = int.from_bytes(self.read(2 if size == 126 else 8), "big")
            data = self.read(size)
            if kind & 15 == 9:  # ping
                self.send(data, 10)
            elif kind & 15 == 8:
                raise ConnectionError(data[2:].decode() or "the node closed the stream")
            elif kind & 15 == 1:
                return json.loads(data)

    def read(self, size):
        data = self.file.read(size)
        if len(data) < size:
            raise ConnectionError("the connection is lost")
        return data


def execute(job):
    """Executes a job. `job["job"]` is the idempotency key, because a job can be delivered again, also to another worker."""
    return {"seen": job["payload"]}


def run(stream, job):
    claim, ended = {"job": job["job"], "claim": job["claim"]}, threading.Event()

    def send_heartbeats():
        while not ended.wait(job["heartbeat_interval_seconds"]):
            stream.send(json.dumps({"heartbeats": [claim]}).encode())

    threading.Thread(target=send_heartbeats, daemon=True).start()
    try:
        result = {"result": "succeeded", "payload": execute(job)}
    except Exception as error:  # any error: the job is retried
        result = {"result": "retry", "code": "python", "message": repr(error)}
    ended.set()
    stream.send(json.dumps({"results": [{**claim, **result}], "credit": 1}).encode())


def main(effects):
    hello = {"effects": effects, "worker": f"{socket.gethostname()}-{os.getpid()}", "credit": CREDIT}
    while True:
        try:
            stream = Stream()
            stream.send(json.dumps(hello).encode())
            while True:
                message = stream.receive()
                for ack in message.get("results", []):
                    if ack["status"] != "accepted":
                        print(f"worker: {ack}", file=sys.stderr)
                for job in message.get("jobs", []):
                    threading.Thread(target=run, args=(stream, job), daemon=True).start()
        except OSError as error:
            print(f"worker: {error}", file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1:])
