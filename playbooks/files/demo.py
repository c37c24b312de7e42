# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo's client: finds free ports, publishes to a replicated stream and reads the messages back (once or for a
while), and sends a request to a service in another cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import time

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, PubAck, StreamConfig

#: Seconds within which a connection is established and messages are acknowledged, even while a leader is elected.
TIMEOUT = 60
FAILURES = (asyncio.TimeoutError, nats.errors.Error, nats.js.errors.Error)


def free_ports(count: int, start: int) -> list[int]:
    """Return free ports on loopback, below the range from which the kernel takes ports for connections."""
    found: list[int] = []
    for port in range(start, 32768):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    sys.exit(f"no {count} free ports between {start} and 32768 on 127.0.0.1")


async def connect(servers: str | list[str], user: str, password: str, **options: int) -> Client:
    """Connect to the servers, with a time limit, because nats-py waits forever after a failed TLS handshake."""
    connection = nats.connect(servers, user=user, password=password, connect_timeout=5, **options)
    return await asyncio.wait_for(connection, TIMEOUT)


async def publish(jetstream: JetStreamContext, subject: str, payload: bytes, end: float) -> tuple[PubAck | None, int]:
    """Publish a message repeatedly until it is acknowledged, or until `end`; return the acknowledgement and the number
    of failed attempts."""
    headers = {"Nats-Msg-Id": f"{os.getpid()}-{time.time_ns()}"}
    failed = 0
    while True:
        try:
            ack = await jetstream.publish(subject, payload, headers=headers)
        except FAILURES:
            failed += 1
        else:
            # Before 2.11, a leader returns the sequence 0 for a repeated message ID that it has not stored yet.
            if ack.seq:
                return ack, failed
        if time.monotonic() >= end:
            return None, failed
        await asyncio.sleep(0.1)


async def messages(servers: list[str], user: str, password: str, stream: str, count: int) -> dict[str, object]:
    """Publish ``count`` acknowledged messages to an R3 stream, read them back and compare.

    :raises SystemExit: if the messages read differ from the acknowledged ones
    """
    client = await connect(servers, user, password)
    try:
        jetstream = client.jetstream(timeout=10)
        # Use a subject unique to this run: a load generator may be writing to the stream.
        subject = f"{stream.lower()}.run-{os.getpid()}"
        config = StreamConfig(name=stream, subjects=[f"{stream.lower()}.>"], num_replicas=3, max_bytes=64 * 1024 * 1024)
        try:
            info = await jetstream.add_stream(config)
        except nats.js.errors.BadRequestError:
            info = await jetstream.update_stream(config)

        sent = [f"order {number} of run {os.getpid()}".encode() for number in range(count)]
        end = time.monotonic() + TIMEOUT
        acks: list[PubAck] = []
        for payload in sent:
            ack, _failed = await publish(jetstream, subject, payload, end)
            if ack is None:
                raise SystemExit(f"message {len(acks) + 1} of {count} was not acknowledged within {TIMEOUT} s")
            acks.append(ack)

        first = acks[0].seq
        reader = await jetstream.pull_subscribe(
            subject,
            stream=stream,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=first,
                ack_policy=AckPolicy.EXPLICIT,
                inactive_threshold=30,
            ),
        )
        read: list[bytes] = []
        while len(read) < count:
            try:
                fetched = await reader.fetch(min(100, count - len(read)), timeout=10)
            except FAILURES:
                # The client's server learns of the consumer only a moment after the creation of the consumer is
                # acknowledged.
                if time.monotonic() >= end:
                    raise SystemExit(f"{len(read)} of {count} messages could be read within {TIMEOUT} s") from None
                await asyncio.sleep(0.1)
                continue
            for message in fetched:
                await message.ack()
                read.append(message.data)
        if read != sent:
            sys.exit(f"read back {len(read)} messages that are not the {len(sent)} acknowledged ones")
        info = await jetstream.stream_info(stream)
        return {
            "stream": stream,
            "published": len(acks),
            "read": len(read),
            "replicas": info.config.num_replicas,
            "leader": info.cluster.leader if info.cluster else None,
            "messages": info.state.messages,
        }
    finally:
        await client.close()


async def greet(service: str, client: str, user: str, password: str, reply: str) -> dict[str, object]:
    """Reply to requests to ``greet`` at one server and send a request at another; return the reply and how many seconds
    it took."""
    there = await connect(service, user, password)
    here = await connect(client, user, password)

    async def answer(message: Msg) -> None:
        await message.respond(reply.encode())

    try:
        await there.subscribe("greet", cb=answer)
        await there.flush()
        # The responder's interest spreads to another cluster over the gateways, which takes a moment.
        for more in reversed(range(50)):
            began = time.monotonic()
            try:
                response = await here.request("greet", b"", timeout=10)
                return {"reply": response.data.decode(), "seconds": round(time.monotonic() - began, 6)}
            except nats.errors.NoRespondersError:
                if not more:
                    raise
                await asyncio.sleep(0.1)
    finally:
        await here.close()
        await there.close()


async def use(
    servers: list[str], user: str, password: str, stream: str, seconds: float, stop: str
) -> dict[str, object]:
    """Publish to a stream until the file `stop` exists or the time is over; each message is repeated until it is
    acknowledged. One consumer keeps up with the messages, and another one acknowledges none."""
    client = await connect(servers, user, password, max_reconnect_attempts=-1)
    end = time.monotonic() + seconds
    sent = again = 0

    def over() -> bool:
        return time.monotonic() >= end or bool(stop and os.path.exists(stop))

    async def read(durable: str, acknowledges: bool) -> int:
        reader = await client.jetstream(timeout=10).pull_subscribe(
            f"{stream.lower()}.>", durable=durable, stream=stream
        )
        many = 0
        while not over():
            try:
                for message in await reader.fetch(50, timeout=2):
                    many += 1
                    if acknowledges:
                        await message.ack()
            except FAILURES:
                await asyncio.sleep(0.2)
        return many

    readers = [asyncio.create_task(read("shipping", True)), asyncio.create_task(read("forgotten", False))]
    jetstream = client.jetstream(timeout=2)
    try:
        while not over():
            ack, failed = await publish(jetstream, f"{stream.lower()}.new", b"x" * 1000, end)
            sent += ack is not None
            again += failed
            await asyncio.sleep(0.02)
        return {"published": sent, "tried_again": again, "read": [await reader for reader in readers]}
    finally:
        await client.close()


def main() -> None:
    """Print the outcome as JSON. The password comes from the environment, so no process list shows it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    ports = commands.add_parser("ports")
    ports.add_argument("count", type=int)
    ports.add_argument("--start", type=int, default=14222)
    user = argparse.ArgumentParser(add_help=False)
    user.add_argument("--user", required=True)
    client = argparse.ArgumentParser(add_help=False, parents=[user])
    client.add_argument("--server", dest="servers", action="append", required=True)
    client.add_argument("--stream", default="ORDERS")
    commands.add_parser("messages", parents=[client]).add_argument("--count", type=int, default=1000)
    load = commands.add_parser("use", parents=[client])
    load.add_argument("--seconds", type=float, default=120)
    load.add_argument("--stop", metavar="FILE", default="", help="end as soon as it is there")
    service = commands.add_parser("greet", parents=[user])
    service.add_argument("--service", required=True, help="URL of the server that the service connects to")
    service.add_argument("--client", required=True, help="URL of the server that the client connects to")
    service.add_argument("--reply", required=True)
    given = vars(parser.parse_args())
    command = given.pop("command")
    if command == "ports":
        print(json.dumps(free_ports(**given)))
        return
    work = {"messages": messages, "use": use, "greet": greet}[command]
    print(json.dumps(asyncio.run(work(**given, password=os.environ["DEMO_PASSWORD"]))))


if __name__ == "__main__":
    main()
