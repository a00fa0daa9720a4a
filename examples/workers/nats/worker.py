"""Orlog worker over NATS (pip install nats-py): fetches commands, extends their ack wait and publishes one result for each.

    NATS_URL=nats://127.0.0.1:4222 python3 worker.py media.cut

If the nodes sign messages, ORLOG_SIGNING_KEY is the key of the effect (docs/nats.md).
"""
import asyncio, datetime, hmac, json, os, signal, sys

import nats
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NotFoundError

EFFECT = sys.argv[1]
ACK_WAIT = float(os.environ.get("WORKER_ACK_WAIT_SECONDS", "30"))
TOKEN = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "".join(f"%{b:02X}" for b in c.encode()) for c in EFFECT)

KEY = os.environ.get("ORLOG_SIGNING_KEY", "").encode()


def signature(subject, headers, body):
    """Returns the signature of a message: HMAC-SHA256 over its parts, each of which is preceded by its length."""
    interpreted = lambda name: name.startswith("ce-") or name in ("content-type", "traceparent")
    headers = sorted((name.lower(), value.strip()) for name, value in headers.items() if interpreted(name.lower()))
    texts = ["v1", subject, str(len(headers)), *(text for header in headers for text in header)]
    parts = [text.encode() for text in texts] + [body]
    return "v1=" + hmac.new(KEY, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256").hexdigest()


def is_authentic(message):
    headers = message.headers or {}
    found = headers.get("orlog-signature", "")
    return not KEY or hmac.compare_digest(found, signature(message.subject, headers, message.data))


def execute(command):
    """Executes a command. The idempotency key is equal for all deliveries, also to other workers."""
    print("executing", command["metadata"]["idempotency_key"], flush=True)
    return {"seen": command["payload"]}


async def extend_ack_wait(message):
    while True:
        await asyncio.sleep(ACK_WAIT / 3)
        await message.in_progress()


async def handle(js, message):
    if not is_authentic(message):
        return await message.term()
    command = json.loads(message.data)
    subject = message.subject.replace("effect.", "effect_result.", 1)
    last = 0
    try:  # Only the first authentic result counts: skip the command if it exists.
        found = await js.get_last_msg("WORKFLOW_EVENTS", subject)
        if is_authentic(found):
            return await message.ack()
        last = found.seq
    except NotFoundError:
        pass
    heartbeat = asyncio.create_task(extend_ack_wait(message))
    try:
        payload = await asyncio.to_thread(execute, command)
        result = {k: command[k] for k in ("tenant_id", "command_id", "effect_name")}
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        result |= {"result_type": "Succeeded", "payload": payload, "timestamp": now}
        try:
            body = json.dumps(result).encode()
            headers = {"Nats-Expected-Last-Subject-Sequence": str(last)}
            if KEY:
                headers["orlog-signature"] = signature(subject, headers, body)
            await js.publish(subject, body, headers=headers)
        except APIError as error:  # 10071: another worker published first. Other errors: the command is redelivered.
            if error.err_code != 10071:
                raise
        await message.ack()
    finally:
        heartbeat.cancel()


async def main():
    js = (client := await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))).jetstream()
    filters = [f"tenant.*.effect.{TOKEN}.*", f"effect.{TOKEN}.*"]
    config = ConsumerConfig(durable_name=f"effect-{TOKEN}", filter_subjects=filters, ack_policy=AckPolicy.EXPLICIT,
                            ack_wait=ACK_WAIT, max_deliver=-1, max_ack_pending=65536)
    await js.add_consumer("WORKFLOW_COMMANDS", config)
    jobs = await js.pull_subscribe_bind(f"effect-{TOKEN}", "WORKFLOW_COMMANDS")
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    while not stopping.is_set():
        try:
            for message in await jobs.fetch(1, timeout=1):
                await handle(js, message)
        except nats.errors.TimeoutError:
            pass  # No command arrived.
    await client.drain()


asyncio.run(main())
