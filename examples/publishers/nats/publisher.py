"""Publishes a signed event to NATS (pip install nats-py cryptography), for contexts that require signed events.

    NATS_URL=nats://127.0.0.1:4222 ORLOG_KEY_FILE=laptop.pem python3 publisher.py acme OrderPlaced o-1 '{"orderId":"o-1"}'

The key is that of `orlog key new`, or of `openssl genpkey -algorithm ed25519` (docs/authentication.md#signed-events).
"""
import asyncio, base64, hashlib, os, sys, time

import nats
from cryptography.hazmat.primitives import serialization

KEY = serialization.load_pem_private_key(open(os.environ["ORLOG_KEY_FILE"], "rb").read(), None)


def url64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signature(subject, headers, body, lifetime=60):
    """Returns the value of the header ce-orlogsignature: Ed25519 over the SHA-256 of all parts, each preceded by its length."""
    raw = KEY.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    key = url64(hashlib.sha256(b'{"crv":"Ed25519","kty":"OKP","x":"%s"}' % url64(raw).encode()).digest())
    created = int(time.time())
    expires = created + lifetime
    ignored = ("ce-orlogsignature", "ce-orloguser")
    covered = lambda name: name.startswith("ce-") and name not in ignored or name in ("content-type", "traceparent")
    signed = sorted((name.lower(), value.strip()) for name, value in headers.items() if covered(name.lower()))
    texts = [key, str(created), str(expires), subject, str(len(signed)), *(text for header in signed for text in header)]
    parts = [text.encode() for text in texts] + [body]
    digest = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()
    return f"v1.{key}.{created}.{expires}.{url64(KEY.sign(b'orlog.event.v1' + digest))}"


async def main(tenant, kind, event_id, data):
    subject = f"tenant.{tenant}.workflow_event.event.{event_id}"
    headers = {"ce-specversion": "1.0", "ce-id": event_id, "ce-type": kind, "ce-source": "urn:example:publisher",
               "content-type": "application/json"}
    body = data.encode()
    headers["ce-orlogsignature"] = signature(subject, headers, body)
    headers["Nats-Msg-Id"] = f"{tenant}:{event_id}"
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    ack = await client.jetstream().publish(subject, body, headers=headers)
    print(f"stored as {ack.seq} in {ack.stream}")
    await client.drain()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
