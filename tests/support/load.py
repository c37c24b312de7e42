# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A load that records its acknowledgements: each acknowledged message must be stored once, in order, on every replica.

Producers publish with message ids and retry until they get an acknowledgement. Durable consumers acknowledge their
messages, a key is incremented by compare-and-set, and requests are answered. The load continues while servers restart;
`verify` then lists every discrepancy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, KeyValueConfig, PubAck, StreamConfig
from nats.js.kv import KeyValue

BUCKET, COUNTER = "LOAD_KV", "counter"
ECHO = "load.echo"
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LoadPlan:
    """`streams`: name → replicas. `rate`: messages a second of each producer; `timeout`: seconds until it retries."""

    streams: dict[str, int] = field(default_factory=lambda: {"LOAD3": 3})
    producers: int = 2
    rate: float = 50
    timeout: float = 0.25
    replicas: int = 3


@dataclass
class Ledger:
    """One producer's record: the acknowledged ids in order, and the time of each acknowledgement."""

    stream: str
    subject: str
    acknowledged: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    retries: int = 0

    def longest_gap(self) -> float:
        """Return the longest time in seconds without an acknowledgement."""
        return max((after - before for before, after in zip(self.times, self.times[1:], strict=False)), default=0.0)


@dataclass(frozen=True)
class LoadReport:
    """The results of the load. `longest_gap` is in seconds, over all producers."""

    acknowledged: int
    retries: int
    longest_gap: float
    consumed: int
    counted: int
    answered: int
    unanswered: int


async def patiently(ask: Callable[[], Awaitable[Answer]], *answers: type[Exception]) -> Answer:
    """Repeat a request until a reply arrives; the given errors count as replies. Electing a leader can take up to 9
    s."""
    end = time.monotonic() + 30
    while True:
        try:
            return await ask()
        except answers:
            raise
        except (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError):
            if time.monotonic() > end:
                raise
        await asyncio.sleep(0.1)


async def publish_stored(jetstream: JetStreamContext, subject: str, payload: bytes, ident: str) -> PubAck:
    """Publish a message with this id and return the acknowledgement: the message is stored.

    Raises nats.errors.TimeoutError if there is no acknowledgement. Before 2.11, a reply with the sequence 0 is not an
    acknowledgement: a leader sends it for a repeated id while the message is only proposed (jetstream_cluster.go,
    processClusteredInboundMsg), and the next leader may never receive the proposal.
    """
    ack = await jetstream.publish(subject, payload, headers={"Nats-Msg-Id": ident})
    if ack.seq == 0:
        raise nats.errors.TimeoutError
    return ack


async def acknowledge(message: Msg) -> None:
    """Acknowledge a message until a server confirms it: an election of the consumer's leader loses the request or its
    reply, and a server confirms an acknowledgement that it has already stored."""
    await patiently(partial(message.ack_sync, timeout=2))


async def fetch(subscription: JetStreamContext.PullSubscription, count: int) -> list[Msg]:
    """Fetch this many messages. Without a responder, or with only some messages, try again: a server may just have
    received the consumer."""
    found: list[Msg] = []
    while len(found) < count:
        found += await patiently(partial(subscription.fetch, count - len(found), timeout=10))
    return found


def compare(ledger: Ledger, stored: Sequence[str]) -> list[str]:
    """Return the problems of a producer's stored ids: lost, duplicate, or out of order.

    The producer's last message may be stored although its acknowledgement was lost.
    """
    problems = []
    wanted = ledger.acknowledged
    found = set(stored)
    lost = [name for name in wanted if name not in found]
    if lost:
        problems.append(
            f"{ledger.subject}: {len(lost)} of {len(wanted)} acknowledged messages are lost, such as {lost[0]}"
        )
    if len(found) != len(stored):
        problems.append(f"{ledger.subject}: {len(stored) - len(found)} messages are there more than once")
    numbers = [int(name.rpartition("-")[2]) for name in stored]
    if numbers != sorted(numbers):
        problems.append(f"{ledger.subject}: the messages are out of order")
    extra = found.difference(wanted)
    if len(extra) > 1:
        problems.append(f"{ledger.subject}: {len(extra)} unexpected messages, neither sent nor acknowledged")
    return problems


class Load:
    """The load on one account of a cluster; `urls` are the client addresses of its servers, `login` has additional
    arguments for nats.connect."""

    def __init__(
        self, urls: Sequence[str], user: str, password: str, plan: LoadPlan | None = None, **login: Any
    ) -> None:
        self.plan = plan or LoadPlan()
        self._login: dict[str, Any] = {"servers": list(urls), "user": user, "password": password, **login}
        self.ledgers = [
            Ledger(stream, f"{stream.lower()}.p{number}")
            for stream in self.plan.streams
            for number in range(self.plan.producers)
        ]
        self._consumed: dict[str, set[str]] = {stream: set() for stream in self.plan.streams}
        self._counted = 0
        self._answered = 0
        self._unanswered = 0
        # This is part of each message's id, because an earlier load may have used the same streams.
        self._began = time.monotonic_ns()
        # For each stream, the first sequence that `verify` reads.
        self._first: dict[str, int] = {}
        self._stop = asyncio.Event()

    async def prepare(self) -> None:
        """Create the streams, their durable consumers and the bucket, or reuse those of an earlier load."""
        async with self._client() as client:
            jetstream = client.jetstream(timeout=5)
            for stream, replicas in self.plan.streams.items():
                config = StreamConfig(name=stream, subjects=[f"{stream.lower()}.>"], num_replicas=replicas)
                made = await patiently(partial(jetstream.add_stream, config))
                self._first[stream] = made.state.last_seq + 1
                reader = ConsumerConfig(durable_name="reader", ack_policy=AckPolicy.EXPLICIT, ack_wait=5)
                await patiently(partial(jetstream.add_consumer, stream, reader))
            bucket = await patiently(partial(self._bucket, jetstream))
            await patiently(partial(bucket.put, COUNTER, b"0"))

    async def run(self) -> None:
        """Produce, consume, count and send requests until `stop`."""
        try:
            await asyncio.gather(
                *(self._produce(ledger) for ledger in self.ledgers),
                *(self._consume(stream) for stream in self.plan.streams),
                self._count(),
                self._answer(),
                self._ask(),
            )
        finally:
            # A failing test cancels the loops only once, and asyncio.wait_for ignores a cancellation that arrives
            # together with a reply (bpo-37658, up to Python 3.11): such a loop would never end.
            self._stop.set()

    def stop(self) -> None:
        """End `run`, from any thread that runs the event loop's callbacks."""
        self._stop.set()

    def report(self) -> LoadReport:
        """Return the figures."""
        return LoadReport(
            acknowledged=sum(len(ledger.acknowledged) for ledger in self.ledgers),
            retries=sum(ledger.retries for ledger in self.ledgers),
            longest_gap=max(ledger.longest_gap() for ledger in self.ledgers),
            consumed=sum(len(names) for names in self._consumed.values()),
            counted=self._counted,
            answered=self._answered,
            unanswered=self._unanswered,
        )

    async def verify(self) -> list[str]:
        """Return all discrepancies after `run` has ended. Each replica of each stream becomes the leader once, and
        its stored messages are compared with the acknowledgements."""
        problems: list[str] = []
        async with self._client() as client:
            for stream, replicas in self.plan.streams.items():
                leaders: set[str] = set()
                async for leader in self._each_leader(client, stream, replicas):
                    leaders.add(leader)
                    stored = await patiently(partial(self._stored, client, stream))
                    for ledger in self.ledgers:
                        if ledger.stream == stream:
                            found = compare(ledger, stored.get(ledger.subject, []))
                            problems += [f"{stream} led by {leader}: {problem}" for problem in found]
                if len(leaders) < replicas:
                    state = await self._cluster(client, stream)
                    problems.append(f"{stream}: only {sorted(leaders)} of {replicas} replicas could be read: {state}")
                problems += await self._unread(client, stream)
            value = await patiently(lambda: self._counter(client))
            if value < self._counted:
                problems.append(f"{BUCKET}: {COUNTER} is {value}, {self._counted} steps were acknowledged")
        return problems

    async def _bucket(self, jetstream: JetStreamContext) -> KeyValue:
        """Return the bucket. On a later version, a bucket from 2.10 cannot be created again, because nats-py expects
        different settings."""
        try:
            return await jetstream.key_value(BUCKET)
        except nats.js.errors.BucketNotFoundError:
            return await jetstream.create_key_value(KeyValueConfig(bucket=BUCKET, replicas=self.plan.replicas))

    # --- under way ----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        async def ignore(_error: Exception) -> None:
            """Ignore errors while servers restart: only the acknowledgements matter."""

        options: dict[str, Any] = {
            "connect_timeout": 1,
            "reconnect_time_wait": 0.05,
            "max_reconnect_attempts": -1,
            "ping_interval": 2,
            "max_outstanding_pings": 2,
            "error_cb": ignore,
        }
        client = await nats.connect(**{**options, **self._login})
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(), 2)

    async def _produce(self, ledger: Ledger) -> None:
        number = 0
        async with self._client() as client:
            jetstream = client.jetstream(timeout=self.plan.timeout)
            while not self._stop.is_set():
                name = f"{ledger.subject}-{self._began}-{number}"
                try:
                    await publish_stored(jetstream, ledger.subject, name.encode(), name)
                except (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError, OSError):
                    ledger.retries += 1
                    await asyncio.sleep(0.01)
                    continue
                ledger.acknowledged.append(name)
                ledger.times.append(time.monotonic())
                number += 1
                await asyncio.sleep(1 / self.plan.rate)

    async def _consume(self, stream: str) -> None:
        async with self._client() as client:
            reader = None
            while not self._stop.is_set():
                try:
                    if reader is None:
                        reader = await client.jetstream(timeout=1).pull_subscribe_bind("reader", stream)
                    for message in await reader.fetch(100, timeout=1):
                        self._consumed[stream].add(
                            message.data.decode()
                        )  # recorded first: the ack may take effect although its reply is lost
                        await message.ack_sync(timeout=1)
                except (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError, OSError):
                    await asyncio.sleep(0.05)

    async def _count(self) -> None:
        """Increment a key by compare-and-set; a step whose reply was lost shows in the value that is read next."""
        async with self._client() as client:
            while not self._stop.is_set():
                try:
                    bucket = await client.jetstream(timeout=1).key_value(BUCKET)
                    entry = await bucket.get(COUNTER)
                    value = int(entry.value or b"0")
                    await bucket.update(COUNTER, str(value + 1).encode(), last=entry.revision)
                    self._counted = value + 1
                except (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError, OSError):
                    pass
                await asyncio.sleep(0.05)

    async def _answer(self) -> None:
        async def reply(message: Msg) -> None:
            with contextlib.suppress(nats.errors.Error):
                await message.respond(message.data)

        async with self._client() as client:
            await client.subscribe(ECHO, cb=reply)
            await self._stop.wait()

    async def _ask(self) -> None:
        async with self._client() as client:
            while not self._stop.is_set():
                try:
                    await client.request(ECHO, b"?", timeout=1)
                    self._answered += 1
                except (nats.errors.Error, asyncio.TimeoutError, OSError):
                    self._unanswered += 1
                await asyncio.sleep(0.05)

    # --- afterwards ---------------------------------------------------------------------------------------------------

    async def _each_leader(self, client: Client, stream: str, replicas: int) -> AsyncIterator[str]:
        """Yield each replica's server once, while it leads the stream. The caller's work does not count as waiting."""
        seen: set[str] = set()
        patience = 20 * replicas
        end = time.monotonic() + patience
        while time.monotonic() < end:
            cluster = await self._cluster(client, stream)
            leader = cluster.get("leader")
            if leader and leader not in seen:
                seen.add(leader)
                yield leader
                end = time.monotonic() + patience
            if len(seen) == replicas:
                return
            wish = [replica["name"] for replica in cluster.get("replicas") or () if self._may_lead(replica, seen)][:1]
            if not wish:
                await asyncio.sleep(0.1)
                continue
            body = json.dumps({"placement": {"preferred": wish[0]}}).encode()
            with contextlib.suppress(nats.errors.Error):
                reply = await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", body, timeout=2)
                if "error" in json.loads(reply.data):
                    await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", timeout=2)
            elected = time.monotonic() + 5
            while await self._leader(client, stream) in (None, leader) and time.monotonic() < elected:
                await asyncio.sleep(0.05)

    @staticmethod
    def _may_lead(replica: dict[str, Any], seen: set[str]) -> bool:
        """A leader steps down only in favour of a peer that contacted it within 3 s (raft.go, StepDown), so a new
        leader may have no such peer."""
        return (
            replica["name"] not in seen
            and replica["current"]
            and not replica.get("offline")
            and replica["active"] < 3e9
        )

    async def _cluster(self, client: Client, stream: str) -> dict[str, Any]:
        try:
            reply = await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=2)
        except (nats.errors.Error, asyncio.TimeoutError):
            return {}
        return dict(json.loads(reply.data).get("cluster") or {})

    async def _leader(self, client: Client, stream: str) -> str | None:
        return (await self._cluster(client, stream)).get("leader") or None

    async def _stored(self, client: Client, stream: str) -> dict[str, list[str]]:
        """Return the ids that this load stored for each subject, read from the leader."""
        jetstream = client.jetstream(timeout=5)
        first = self._first[stream]
        last = (await jetstream.stream_info(stream)).state.last_seq
        begin = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first)
        reader = await jetstream.subscribe(f"{stream.lower()}.>", ordered_consumer=True, config=begin)
        found: dict[str, list[str]] = {}
        try:
            for _number in range(first, last + 1):
                message = await reader.next_msg(timeout=5)
                name = message.data.decode()
                if f"-{self._began}-" in name:
                    found.setdefault(message.subject, []).append(name)
        finally:
            await reader.unsubscribe()
        return found

    async def _counter(self, client: Client) -> int:
        bucket = await client.jetstream(timeout=5).key_value(BUCKET)
        return int((await bucket.get(COUNTER)).value or b"-1")

    async def _unread(self, client: Client, stream: str) -> list[str]:
        """Return the acknowledged messages that the durable consumer has not received and will not receive."""
        wanted = {name for ledger in self.ledgers if ledger.stream == stream for name in ledger.acknowledged}
        reader = await patiently(lambda: client.jetstream(timeout=5).pull_subscribe_bind("reader", stream))
        end = time.monotonic() + 30
        while wanted - self._consumed[stream] and time.monotonic() < end:
            try:
                for message in await reader.fetch(256, timeout=1):
                    await message.ack()
                    self._consumed[stream].add(message.data.decode())
            except (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError):
                await asyncio.sleep(0.1)  # the election of its leader may still be in progress
        missed = sorted(wanted - self._consumed[stream])
        return [f"{stream}: the consumer never got {len(missed)} messages, such as {missed[0]}"] if missed else []
