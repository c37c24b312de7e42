# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A synchronous NATS connection: requests, replies from many servers under one deadline, messages, and reconnection.

Every failure is raised as NatsFailure. connection.py implements connecting; the names in it that callers need are also
exported here.
"""

from __future__ import annotations

import asyncio
import math
import time
import zlib
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional, TypeVar, Union

from ..units import human_bytes
from .connection import (
    TRANSFER_SECONDS,
    Call,
    Connection,
    ConnectionOptions,
    LoginReply,
    MintedLogin,
    Session,
    no_responders,
    reply_status,
)
from .credentials_file import FileContent
from .failures import MissingLibrary, NatsFailure

__all__ = [
    "QUIET",
    "Call",
    "Client",
    "ConnectionOptions",
    "Download",
    "FileContent",
    "Latency",
    "LoginReply",
    "MintedLogin",
    "MissingLibrary",
    "NatsFailure",
    "Observed",
    "Progress",
    "RawReply",
    "Reply",
    "RequestOutcome",
    "Upload",
]

T = TypeVar("T")

#: Seconds after a reply during which the connection is assumed to work.
_RECENT = 0.2
#: Seconds between two attempts to reconnect.
_RECONNECT_INTERVAL = 0.2
#: Maximum bytes of a decompressed reply. The JSZ of 50,000 streams with their consumers takes about a fifth of it.
LARGEST_REPLY = 512 << 20
#: A parameter for zlib: the data has the header and checksum of gzip.
_GZIP = 16 + zlib.MAX_WBITS

#: Maximum number of restarts of a transfer because the sender did not see the receiver yet.
_ATTEMPTS = 5

#: Seconds without a further reply after which a gathering of unknown size counts as complete.
QUIET = 1.0


@dataclass(frozen=True)
class Reply:
    """One reply: the decompressed body, the seconds from the request to its arrival, and its headers."""

    subject: str
    body: bytes
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Latency:
    """Seconds that connecting, a ping, and a message from the client to itself take."""

    connect: float
    rtt: float
    round_trip: float


@dataclass(frozen=True)
class Observed:
    """An observed message: its subject, whether it is a request, and the size of its payload in bytes."""

    subject: str
    wants_reply: bool
    size: int


@dataclass(frozen=True)
class Download:
    """A transfer to this client. `request`: the request, which names the inbox of the chunks; its reply, due within
    `timeout` seconds, is passed to `on_reply`. `idle`: maximum seconds between two chunks. `rate`: bytes per second,
    None for no limit."""

    request: Callable[[str], Call]
    on_reply: Callable[[Reply], None]
    on_chunk: Callable[[bytes], None]
    timeout: float
    idle: float
    rate: float | None = None


@dataclass(frozen=True)
class Upload:
    """A transfer from this client. `on_reply` receives the reply to each chunk and raises its error. `window`: maximum
    number of chunks in transfer. `idle`: maximum seconds until a chunk is acknowledged; `finish`: the same for the
    final empty chunk. `rate`: bytes per second, None for no limit."""

    on_reply: Callable[[Reply], None]
    idle: float
    finish: float
    window: int = 8
    rate: float | None = None


class _Pace:
    """Limits the rate of a transfer."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._next = time.monotonic()

    async def wait(self, size: int) -> None:
        """Wait until this many more bytes may be sent."""
        if not self._rate:
            return
        now = time.monotonic()
        if self._next > now:
            await asyncio.sleep(self._next - now)
        self._next = max(self._next, now) + size / self._rate


def refuse_constant(text: str) -> Any:
    """Raise ValueError for NaN and Infinity, which Python would accept although they are not JSON (`parse_constant` of
    json)."""
    raise ValueError(f"{text} is not JSON")


#: The next step after a reply: True stops, False waits for more replies until the deadline, None waits until no more
#: arrive.
Progress = Optional[bool]
#: Receives a reply of `Client.tap`, and returns whether it was the last one.
RawReply = Callable[[bytes, bytes, bytes, Optional[bytes]], bool]
RequestOutcome = Union[Reply, NatsFailure]


class Client(Session):
    """A connection to NATS for synchronous code, used as a context manager.

    The client connects on first use, and reconnects if the connection was lost between two calls, so a long wait
    survives a restart of the connected server. If the connection is lost during a call, an idempotent request is sent
    again over a new connection within its timeout. All other calls fail with code `connection_lost`: only the caller
    can determine whether to repeat them."""

    def __init__(self, options: ConnectionOptions) -> None:
        super().__init__(options)
        self._loop = asyncio.new_event_loop()
        self._heard = -math.inf

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def identity(self) -> tuple[str, int | None]:
        """Return the ID of the connected server and the connection's ID (cid) on it, or ("", None) while not connected."""
        return ("", None) if self._connection is None else self._connection.identity

    @property
    def server_version(self) -> str:
        """Return the version of the connected server, or an empty text while not connected."""
        return "" if self._connection is None else self._connection.version

    @property
    def cluster(self) -> str:
        """Return the cluster of the connected server, or its own name if it is in no cluster; an empty text while not
        connected."""
        info = {} if self._connection is None else self._connection.info
        return str(info.get("cluster") or info.get("server_name") or "")

    @property
    def max_payload(self) -> int:
        """Return the connected server's maximum message size in bytes, or 0 while not connected."""
        return 0 if self._connection is None else self._connection.max_payload

    @property
    def addresses(self) -> int:
        """Return how many client addresses of its cluster the server announced at login: its own address and those of
        the servers that have a route to it (INFO connect_urls; none with no_advertise)."""
        return 0 if self._connection is None else self._connection.addresses

    def close(self) -> None:
        """Close the connection; the client cannot be used afterwards."""
        if self._loop.is_closed():
            return
        self._loop.run_until_complete(self._disconnect())
        self._loop.close()

    def connect(self) -> None:
        """Connect and log in, unless already connected. Raises NatsFailure (authorization, tls, unreachable, ...)."""
        self._run(self._connected())

    def announcements(self, timeout: float) -> list[LoginReply]:
        """Log in at all addresses at the same time, and return the reply of each, within `timeout` seconds. Raises
        NatsFailure for invalid connection options."""
        return self._run(self._announcements(timeout))

    def prefer(self, address: str) -> None:
        """From now on, try this address first."""
        self._preferred = address
        self._run(self._disconnect())

    def request_many(self, calls: Sequence[Call], timeout: float | None = None) -> list[RequestOutcome]:
        """Send all requests at once and return, in the same order, the reply or the failure of each.

        Raises NatsFailure only if there is no connection to send them."""
        return self._run(self._request_many(calls, timeout or self.options.timeout))

    def request(self, call: Call, timeout: float | None = None) -> Reply:
        """Send one request and return its reply. Raises NatsFailure (no_responders, timeout, connection_lost, ...)."""
        outcome = self.request_many([call], timeout)[0]
        if isinstance(outcome, NatsFailure):
            raise outcome
        return outcome

    def gather(
        self,
        call: Call,
        on_reply: Callable[[Reply], Progress],
        timeout: float | None = None,
        quiet: float = QUIET,
        on_repeat: Callable[[], None] | None = None,
    ) -> None:
        """Send one request to many servers and pass each reply to `on_reply`, whose return value determines when to
        stop.

        Returns when `on_reply` requests it, at the deadline (`timeout` seconds), or after `quiet` seconds without a
        reply. Before an idempotent request is sent again over a new connection, `on_repeat` is called, because all
        servers then reply once more. Raises NatsFailure with code no_responders if there is no receiver, timeout if
        there is no reply, or connection_lost."""
        self._run(self._gather(call, on_reply, timeout or self.options.timeout, quiet, on_repeat))

    def tap(self, call: Call, on_reply: RawReply, quiet: float | None = None) -> None:
        """Send one request and pass each reply to `on_reply` as it arrived, until that returns True; its parameters are
        those of RawReceiver. A reply takes a fraction of the time that `gather` needs, and repeated headers are kept.
        The caller must repeat an idempotent request if the connection is lost.

        Raises NatsFailure: `timeout` after `quiet` seconds (by default the timeout) without a reply, permission,
        connection_lost."""
        self._run(self._tap(call, on_reply, quiet or self.options.timeout))

    def publish(self, calls: Sequence[Call]) -> list[NatsFailure | None]:
        """Send messages without replies and return, in the same order, None for each message that the server received,
        otherwise the failure.

        Raises NatsFailure only if there is no connection to send them."""
        return self._run(self._publish(calls))

    def observe(self, subjects: Sequence[str], seconds: float, on_message: Callable[[Observed], bool]) -> float:
        """Pass every message on these subjects to `on_message` for `seconds`, or until it returns True; no message is
        stored. Return how many seconds it took. Raises NatsFailure permission if the user may not subscribe, and
        connection_lost, also if the server closed this connection because it could not keep up."""
        return self._run(self._observe(subjects, seconds, on_message))

    def download(self, transfer: Download) -> None:
        """Send a request whose response is one reply and many chunks, and pass all of them on.

        Each chunk is acknowledged before it is passed on, so a slow disk is not mistaken for a silent receiver; at most
        the sender's window is in transfer. Raises NatsFailure: `idle` if nothing arrived for `idle` seconds, and
        `interrupted` if the sender sent a message instead of the last chunk."""
        self._run(self._download(transfer))

    def upload(self, subject: str, chunks: Iterable[bytes], transfer: Upload) -> Reply:
        """Send chunks, each acknowledged by an empty reply, then an empty chunk, and return the reply to that chunk.
        Raises NatsFailure: `idle` if no reply came in time, `interrupted` if the server no longer accepts chunks."""
        return self._run(self._upload(subject, chunks, transfer))

    def latency(self) -> Latency:
        """Reconnect, and return how long connecting, a ping and a message to oneself took. Raises NatsFailure."""
        return self._run(self._latency(self.options.timeout))

    def _run(self, work: Awaitable[T]) -> T:
        return self._loop.run_until_complete(work)

    # --- connecting -----------------------------------------------------------------------------------------------

    async def _connected(self, repeatable: bool = False) -> Connection:
        """Return a connection on which a ping was just answered, connecting first if there is none. `repeatable`: the
        calls are sent again if the connection is lost, so any recent reply is sufficient."""
        await self._renew_login()
        if self._connection is not None:
            if repeatable and not self._connection.lost and time.monotonic() - self._heard < _RECENT:
                return self._connection
            try:
                await self._connection.ping(self.options.timeout)
                return self._connection
            except NatsFailure:
                await self._disconnect()
        self._connection = await self._connect()
        return self._connection

    async def _connect_again(self, lost: Collection[NatsFailure], deadline: float) -> Connection | None:
        """Return a connection that replaces the lost one, or None if none can be established before the deadline; the
        failures of the calls on the lost connection then contain the reason."""
        await self._disconnect()
        reason = ""
        while time.monotonic() < deadline:
            try:
                self._connection = await self._connect(deadline)
                return self._connection
            except NatsFailure as failure:
                if not reason or time.monotonic() < deadline:  # an attempt that the deadline cut short proves nothing
                    reason = f"; {failure.description}"
            await asyncio.sleep(max(0.0, min(_RECONNECT_INTERVAL, deadline - time.monotonic())))
        for call_failure in lost:
            call_failure.description += reason
        return None

    async def _discard(self, connection: Connection) -> None:
        await super()._discard(connection)
        others = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1)

    # --- requests -------------------------------------------------------------------------------------------------

    async def _request_many(self, calls: Sequence[Call], timeout: float) -> list[RequestOutcome]:
        connection = await self._connected(all(call.idempotent for call in calls))
        deadline = time.monotonic() + timeout
        if len(calls) == 1:  # a task would only add to the time
            outcomes = [await self._request_one(connection, calls[0], timeout)]
        else:
            outcomes = list(await asyncio.gather(*(self._request_one(connection, call, timeout) for call in calls)))
        while True:
            lost = {
                index: outcome
                for index, outcome in enumerate(outcomes)
                if isinstance(outcome, NatsFailure) and outcome.code == "connection_lost" and calls[index].idempotent
            }
            if not lost:
                return outcomes
            again = await self._connect_again(lost.values(), deadline)
            if again is None:
                return outcomes
            remaining = deadline - time.monotonic()
            repeated = await asyncio.gather(*(self._request_one(again, calls[index], remaining) for index in lost))
            for index, outcome in zip(lost, repeated):
                outcomes[index] = outcome

    async def _request_one(self, connection: Connection, call: Call, timeout: float) -> RequestOutcome:
        started = time.monotonic()
        try:
            message = await connection.request(call, timeout)
            self._heard = time.monotonic()
            seconds = time.monotonic() - started
            return Reply(call.subject, _body(message, call), seconds, dict(message.headers or {}))
        except NatsFailure as failure:
            if failure.code == "connection_lost" and not call.idempotent:
                failure.description += "; the request may have been carried out"
            return failure

    async def _gather(
        self,
        call: Call,
        on_reply: Callable[[Reply], Progress],
        timeout: float,
        quiet: float,
        on_repeat: Callable[[], None] | None,
    ) -> None:
        connection = await self._connected()
        deadline = time.monotonic() + timeout
        while True:
            try:
                await self._gather_once(connection, call, on_reply, deadline, quiet)
                return
            except NatsFailure as failure:
                if failure.code != "connection_lost" or not call.idempotent:
                    raise
                again = await self._connect_again([failure], deadline)
                if again is None:
                    raise
            connection = again
            if on_repeat is not None:
                on_repeat()

    async def _gather_once(
        self, connection: Connection, call: Call, on_reply: Callable[[Reply], Progress], deadline: float, quiet: float
    ) -> None:
        since = connection.denials.count
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        started = time.monotonic()
        wait_until = deadline
        answered = False
        try:
            if call.inbox_header:
                await connection.publish(replace(call, headers={**(call.headers or {}), call.inbox_header: inbox}))
            else:
                await connection.publish(call, reply=inbox)
            while True:
                try:
                    remaining = wait_until - time.monotonic()
                    # The trace of a denied message still arrives.
                    known = None if call.inbox_header else since
                    message = await connection.receive(subscription, call.subject, remaining, known)
                except NatsFailure as failure:
                    if answered and failure.code == "timeout":
                        return
                    # The server publishes the replies with the permissions of the user.
                    denial = connection.denials.find([inbox], since) if call.inbox_header else None
                    if denial:
                        raise denial from failure
                    raise
                arrived = time.monotonic()
                if reply_status(message) == "503":
                    raise no_responders(call.subject)
                answered = True
                headers = dict(message.headers or {})
                progress = on_reply(Reply(call.subject, _body(message, call), arrived - started, headers))
                if progress is True:
                    return
                wait_until = deadline if progress is False else min(deadline, arrived + quiet)
        finally:
            await connection.unsubscribe(subscription)

    async def _tap(self, call: Call, on_reply: RawReply, quiet: float) -> None:
        connection = await self._connected(call.idempotent)
        since = connection.denials.count
        ended = asyncio.Event()
        arrived = 0

        def receive(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            nonlocal arrived
            arrived += 1
            if on_reply(subject, reply, data, headers):
                ended.set()

        inbox = connection.new_inbox()
        subscription = await connection.tap(inbox, receive)
        try:
            await connection.publish(call, reply=inbox)
            while not ended.is_set():
                before = arrived
                try:
                    await connection.complete(ended.wait(), call.subject, quiet, since=since)
                except NatsFailure as failure:
                    if failure.code != "timeout" or arrived == before:
                        raise
            self._heard = time.monotonic()
        finally:
            await connection.unsubscribe(subscription)

    async def _latency(self, timeout: float) -> Latency:
        await self._disconnect()
        make_context = self._context_maker()
        make_context()  # not counted as connection time
        started = time.monotonic()
        connection = self._connection = await self._connect_to_first(make_context)
        connected = time.monotonic()
        call = Call(connection.new_inbox())
        await connection.ping(timeout)
        pinged = time.monotonic()
        subscription = await connection.subscribe(call.subject)
        sent = time.monotonic()
        await connection.publish(call)
        await connection.receive(subscription, call.subject, timeout)
        returned = time.monotonic()
        await connection.unsubscribe(subscription)
        return Latency(connected - started, pinged - connected, returned - sent)

    # --- transfers ------------------------------------------------------------------------------------------------

    async def _download(self, transfer: Download) -> None:
        await self._renew_login(TRANSFER_SECONDS)
        connection = await self._connected()
        for attempt in range(_ATTEMPTS):
            try:
                await self._download_once(connection, transfer)
                return
            except _NoInterest as failure:
                if failure.began or attempt == _ATTEMPTS - 1:
                    raise
            await asyncio.sleep(_RECONNECT_INTERVAL)

    async def _download_once(self, connection: Connection, transfer: Download) -> None:
        since = connection.denials.count
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        try:
            call = transfer.request(inbox)
            outcome = await self._request_one(connection, call, transfer.timeout)
            denial = connection.denials.find([inbox], since)
            if denial:
                raise denial
            if isinstance(outcome, NatsFailure):
                raise outcome
            transfer.on_reply(outcome)
            pace = _Pace(transfer.rate)
            began = False
            while True:
                message = await _before_idle(
                    connection.receive(subscription, call.subject, transfer.idle), transfer.idle, call.subject
                )
                if not message.data:
                    _require_ended(message, call.subject, began)
                    return
                await pace.wait(len(message.data))
                if message.reply:
                    await connection.publish(Call(message.reply))
                transfer.on_chunk(message.data)
                began = True
        finally:
            await connection.unsubscribe(subscription)

    async def _upload(self, subject: str, chunks: Iterable[bytes], transfer: Upload) -> Reply:
        await self._renew_login(TRANSFER_SECONDS)
        connection = await self._connected()
        since = connection.denials.count
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        pace = _Pace(transfer.rate)
        deadline = time.monotonic() + transfer.idle
        sent = answered = 0

        async def send(chunk: bytes) -> None:
            await connection.publish(Call(subject, chunk), reply=inbox)

        async def reply(seconds: float) -> Any:
            return await _before_idle(connection.receive(subscription, subject, seconds, since), seconds, subject)

        async def taken(chunk: bytes | None = None) -> None:
            """Wait until one more chunk is acknowledged. `chunk`: the first chunk, which is sent again while other
            servers do not have the receiver's subscription yet."""
            message = await reply(transfer.idle)
            while reply_status(message) == "503" and chunk is not None and time.monotonic() < deadline:
                await asyncio.sleep(_RECONNECT_INTERVAL)
                await send(chunk)
                message = await reply(transfer.idle)
            if reply_status(message) == "503":
                raise NatsFailure("interrupted", "the server no longer accepts the chunks", subject=subject)
            transfer.on_reply(Reply(subject, message.data, 0.0))

        try:
            for chunk in chunks:
                for start in range(0, len(chunk), connection.max_payload):
                    part = chunk[start : start + connection.max_payload]
                    await pace.wait(len(part))
                    await send(part)
                    sent += 1
                    if sent == 1:
                        await taken(part)
                        answered = 1
                    elif sent - answered == transfer.window:
                        await taken()
                        answered += 1
            for _chunk in range(sent - answered):
                await taken()
            started = time.monotonic()
            await send(b"")
            message = await reply(transfer.finish)
            if reply_status(message) == "503":
                raise NatsFailure("interrupted", "the server has aborted the transfer", subject=subject)
            return Reply(subject, message.data, time.monotonic() - started)
        finally:
            await connection.unsubscribe(subscription)

    # --- messages without a reply ---------------------------------------------------------------------------------

    async def _publish(self, calls: Sequence[Call]) -> list[NatsFailure | None]:
        connection = await self._connected()
        return [await self._publish_one(connection, call) for call in calls]

    async def _observe(self, subjects: Sequence[str], seconds: float, on_message: Callable[[Observed], bool]) -> float:
        connection = await self._connected()
        since = connection.denials.count
        names = ", ".join(subjects)
        enough = asyncio.Event()

        async def on_one(message: Any) -> None:
            if not enough.is_set() and on_message(Observed(message.subject, bool(message.reply), len(message.data))):
                enough.set()

        subscriptions = [await connection.subscribe(subject, on_one) for subject in subjects]
        try:
            await connection.ping(self.options.timeout, names)
            started = time.monotonic()
            try:
                await connection.complete(enough.wait(), names, seconds)
            except NatsFailure as failure:
                if failure.code not in ("timeout", "permission"):
                    raise
            took = time.monotonic() - started
        finally:
            await connection.unsubscribe(*subscriptions)
        denial = connection.denials.find(subjects, since)
        if denial:
            raise denial
        return took


class _NoInterest(NatsFailure):
    """The sender of a transfer saw no receiver. `began`: whether any data had arrived. A subscription and the request
    after it may reach a server over different routes, and therefore in reverse order."""

    began = False


def _require_ended(message: Any, subject: str, began: bool) -> None:
    """Raise NatsFailure interrupted if the message that should end a transfer announces more data."""
    status = reply_status(message) or "204"
    if status == "204":
        return
    description = (message.headers or {}).get("Description") or ""
    kind = _NoInterest if description == "No Interest" else NatsFailure
    failure = kind(
        "interrupted", f"the server ended the transfer early: {status} {description}".rstrip(), subject=subject
    )
    if isinstance(failure, _NoInterest):
        failure.began = began
    raise failure


async def _before_idle(work: Awaitable[T], seconds: float, subject: str) -> T:
    """Return the result of `work`. Raises NatsFailure; a timeout is raised as `idle`."""
    try:
        return await work
    except NatsFailure as failure:
        if failure.code != "timeout":
            raise
        raise NatsFailure("idle", f"the server sent nothing for {seconds:.3g} s", subject=subject) from failure


def _body(message: Any, call: Call) -> bytes:
    """Return the reply's body, decompressed if the server compressed it (`Accept-Encoding`, server/events.go)."""
    encoding = {name.lower(): value for name, value in (message.headers or {}).items()}.get("content-encoding")
    if encoding != "gzip":
        return message.data
    reader = zlib.decompressobj(wbits=_GZIP)
    try:
        body = reader.decompress(message.data, LARGEST_REPLY)
    except zlib.error as error:
        raise NatsFailure(
            "bad_reply", f"the compressed reply cannot be decompressed: {error}", subject=call.subject
        ) from error
    if reader.unconsumed_tail:
        raise NatsFailure("bad_reply", f"the reply is larger than {human_bytes(LARGEST_REPLY)}", subject=call.subject)
    if not reader.eof:
        raise NatsFailure("bad_reply", "the compressed reply is truncated", subject=call.subject)
    return body
