"""Service with the operations of operations.py. It uses only the Python standard library.

    python3 services/python/server.py [--listen 127.0.0.1:7171] [--fail PERCENT]

Orlog sends each call with an idempotency key and repeats it until it receives a result. The service stores the result of each key, so
that a repeated call has no second effect. A real service stores it in its database, in the transaction of the operation.
"""
import argparse, json, random, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from operations import OPERATIONS, Declined

results, lock = {}, threading.Lock()


def respond(path, key, arguments):
    """Returns the status and the body of a response."""
    operation = OPERATIONS.get(path)
    if operation is None:
        return 404, {"code": "unknown_operation", "message": f"no operation has the path {path}"}
    with lock:
        if key not in results:
            try:
                results[key] = 200, operation(arguments)
            except Declined as declined:
                results[key] = 422, {"code": declined.code, "message": declined.message}
        return results[key]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if random.random() * 100 < options.fail:
            status, response = 503, {"code": "unavailable", "message": "the service is restarting"}
        else:
            status, response = respond(self.path, self.headers["idempotency-key"], json.loads(body or b"{}"))
        print(f"{self.path} {body.decode()} -> {status} {json.dumps(response)}", flush=True)
        content = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Replaced by the line of `do_POST`."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Service of the saga")
    parser.add_argument("--listen", default="127.0.0.1:7171", help="address, HOST:PORT")
    parser.add_argument("--fail", type=float, default=0, help="percentage of calls that fail with status 503")
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    print(f"listening on {options.listen}", flush=True)
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
