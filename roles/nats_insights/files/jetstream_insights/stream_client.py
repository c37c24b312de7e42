# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to the messages of a stream by sequence, without Spark: the only module of the package that uses NATS.

Any replica may answer, and it may be behind. So the end of a range is accepted only after a message at or beyond it has arrived,
or after the stream's leader reports that there is none. See docs/spark-source.md.
"""

from __future__ import annotations

import asyncio
import base64
import calendar
import contextlib
import itertools
import json
import os
import secrets
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client as NatsPyClient
from nats.aio.client import RawCredentials

T = TypeVar("T")

#: Messages and bytes of one request: enough to keep the overhead low, even over a slow network, and few enough to hold in memory.
#: Only a single larger message exceeds the bytes.
BATCH_MESSAGES, BATCH_BYTES = 16384, 8 * 1024 * 1024

#: Maximum number of requests for single messages before the reader returns the messages it has.
ONE_BY_ONE = 256

#: Seconds that a pull waits in the server for messages, and after which the server removes a consumer without pulls.
PULL_EXPIRES, CONSUMER_THRESHOLD = 2.0, 60.0

#: Errors of the API: no such stream, no such message, account without JetStream (server/errors.json).
NO_STREAM, NO_MESSAGE, NO_JETSTREAM = 10059, 10037, 10039

#: The ways to read messages, see `reading_way`.
BATCHES, CONSUMER, SINGLE = "batches of direct get", "an ephemeral consumer", "one message at a time"

_ACK = b"$JS.ACK."

#: Statuses that end a pull normally: no message, no more within its time, the next message exceeds the remaining bytes, or all
#: messages were delivered and bytes remain (server/consumer.go).
_PULL_ENDS = ("404", "408", "409 Message Size Exceeds MaxBytes", "409 Batch Completed")


class SourceError(Exception):
    """An error that the user must fix: retrying does not help."""


class TransientError(Exception):
    """A transient error: a lost connection, no answer, no leader."""


# --- connecting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Login:
    """The servers and credentials. It has the contents of files, not their names, because executors may not have the files.

    `timeout`: seconds for one attempt. `patience`: seconds without progress after which retries end.
    """

    servers: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credentials: str | None = field(default=None, repr=False)
    nkey_seed: str | None = field(default=None, repr=False)
    tls_ca: str | None = field(default=None, repr=False)
    tls_cert: str | None = field(default=None, repr=False)
    tls_key: str | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    tls_first: bool = False
    api_prefix: str = "$JS.API"
    inbox_prefix: str = "_INBOX.natsops"
    timeout: float = 5.0
    patience: float = 30.0

    @property
    def requires_tls(self) -> bool:
        """Return whether an unencrypted connection must be refused."""
        secure = any(urlsplit(server).scheme in ("tls", "wss") for server in self.servers)
        return secure or self.tls_first or bool(self.tls_ca or self.tls_cert or self.tls_server_name)

    def nats_credentials(self) -> dict[str, Any]:
        """Return the credentials as arguments of nats-py, which reads those in a URL itself."""
        if self.credentials is not None:
            return {"user_credentials": RawCredentials(self.credentials)}
        if self.nkey_seed is not None:
            return {"nkeys_seed_str": self.nkey_seed}
        if self.user is not None:
            return {"user": self.user, "password": self.password or ""}
        return {"token": self.token} if self.token is not None else {}

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings. Raises SourceError if certificate or key are invalid."""
        try:
            context = ssl.create_default_context(cadata=self.tls_ca)
            if self.tls_cert is not None:
                with tempfile.TemporaryDirectory() as folder:  # ssl reads these from files only; the folder is 0700
                    for name, content in (("cert", self.tls_cert), ("key", self.tls_key or self.tls_cert)):
                        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                            file.write(content)
                    context.load_cert_chain(os.path.join(folder, "cert"), os.path.join(folder, "key"))
        except (ssl.SSLError, ValueError) as error:
            raise SourceError(f"the TLS files cannot be used: {error}") from error
        return context


#: Takes subject, reply subject, payload and raw headers of a message, and returns whether it was the last one.
Take = Callable[[bytes, bytes, bytes, "bytes | None"], bool]


class _Client(NatsPyClient):
    """nats-py's client with mandatory TLS, which passes on messages unchanged.

    nats-py converts headers into a dictionary, which loses repeated ones, and creates an object, a queue entry and a task switch
    for each message, which costs more than everything else here.
    """

    requires_tls = False
    tap: Callable[[bytes, bytes, bytes, bytes | None], None]

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self.requires_tls and initial_connection and not self.options["tls_handshake_first"]:
            if not info.get("tls_required") and not info.get("tls_available"):
                raise SourceError("TLS is required, but this server does not offer it")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        del sid  # there is only one subscription
        self.tap(subject, reply, data, headers)


class StreamConnection:
    """A connection for one request at a time, to be used as a context manager. It connects on first use, and again when lost."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self._loop = asyncio.new_event_loop()
        self._client: _Client | None = None
        self._inbox = ""
        self._numbers = itertools.count()
        self._take: Take | None = None
        self._done: asyncio.Future[None] | None = None
        self._received = 0
        self._refusal: SourceError | None = None

    def __enter__(self) -> StreamConnection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._disconnect())
            self._loop.close()

    @property
    def version(self) -> tuple[int, int]:
        """Return the major and minor version of the connected server."""
        found = self._client.connected_server_version if self._client is not None else None
        return (found.major, found.minor) if found is not None else (0, 0)

    def collect(
        self, subject: str, payload: dict[str, Any], take: Callable[[bytes], Take], wait: float | None = None
    ) -> None:
        """Send a request and pass each reply to the function that `take` returns for its reply subject, until that function
        reports the last one.

        Raises SourceError if the server refuses, TransientError after `wait` seconds (by default `timeout`) without a reply.
        """
        try:
            self._run(self._collect(subject, payload, take, wait or self.login.timeout))
        except (TransientError, SourceError):
            self._run(self._disconnect())  # late replies must not be taken for the next answer
            raise

    def request(self, subject: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the JetStream API, including any error. Raises like `collect`."""
        found: list[bytes] = []

        def take_from(inbox: bytes) -> Take:
            def take(to: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> bool:
                if to == inbox:
                    found.append(b"" if headers is not None and _status(headers) == "503" else data)
                return to == inbox

            return take

        self.collect(f"{self.login.api_prefix}.{subject}", payload, take_from)
        if not found[0]:
            raise TransientError(
                f"no responders on {self.login.api_prefix}.{subject}: is JetStream enabled in this account and domain?"
            )
        answer: dict[str, Any] = json.loads(found[0])
        error = answer.get("error", {})
        if error.get("code", 0) >= 500 and error.get("err_code") != NO_JETSTREAM:
            raise TransientError(error.get("description", "the JetStream API is not available"))
        return answer

    def with_retries(self, work: Callable[[], T], patience: float | None = None) -> T:
        """Return the result of `work`, retried on TransientError. Raises SourceError when the retry time is over."""
        limit = self.login.patience if patience is None else patience
        deadline = time.monotonic() + limit
        pauses = itertools.chain((0.05, 0.1, 0.2, 0.5), itertools.repeat(1.0))
        while True:
            try:
                return work()
            except TransientError as error:
                if time.monotonic() > deadline:
                    raise SourceError(f"{error} (tried for {limit:g} s)") from error
                time.sleep(next(pauses))

    def _run(self, work: Awaitable[T]) -> T:
        return self._loop.run_until_complete(work)

    async def _collect(self, subject: str, payload: dict[str, Any], take: Callable[[bytes], Take], wait: float) -> None:
        client = await self._connected()
        inbox = f"{self._inbox}.{next(self._numbers)}"
        self._take, self._done = take(inbox.encode()), self._loop.create_future()
        try:
            await client.publish(subject, json.dumps(payload).encode(), reply=inbox)
            received = -1
            while not self._done.done():
                if self._received == received:
                    raise self._refusal or TransientError(f"no answer to {subject} within {wait:g} s")
                received = self._received
                await asyncio.wait({self._done}, timeout=wait)
            self._done.result()
        except nats.errors.Error as error:
            raise TransientError(f"the connection was lost: {error}") from error
        finally:
            self._take = self._done = None

    def _tapped(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self._received += 1
        if self._take is not None and self._take(subject, reply, data, headers):
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            if error is None:
                self._done.set_result(None)
            else:
                self._done.set_exception(error)

    async def _connected(self) -> _Client:
        if self._client is not None and self._client.is_connected:
            return self._client
        await self._disconnect()
        context = self.login.context()
        reasons = []
        for server in self.login.servers:
            try:
                self._client = await self._connect(server, context)
                return self._client
            except (SourceError, TransientError) as reason:
                reasons.append(reason)
        reported = "; ".join(f"{_bare(server)}: {reason}" for server, reason in zip(self.login.servers, reasons))
        final = all(isinstance(reason, SourceError) for reason in reasons)
        raise (SourceError if final else TransientError)(f"cannot connect to any server: {reported}")

    async def _connect(self, server: str, context: ssl.SSLContext) -> _Client:
        login, client, self._refusal = self.login, _Client(), None
        client.requires_tls, client.tap = login.requires_tls, self._tapped
        connecting = True

        async def on_error(error: Exception) -> None:
            if connecting:
                raise error  # nats-py would retry the same server forever
            if "permissions violation" in str(error).lower():
                self._refusal = SourceError(f"no permission: {error}")
                self._end(self._refusal)

        async def on_closed() -> None:
            self._end(TransientError("the connection was lost"))

        arguments = {
            "servers": [server],
            "error_cb": on_error,
            "closed_cb": on_closed,
            "name": "jetstream_insights",
            "allow_reconnect": False,
            "connect_timeout": login.timeout,
            "tls": context,
            "tls_handshake_first": login.tls_first,
            "inbox_prefix": login.inbox_prefix,
            **({"tls_hostname": login.tls_server_name} if login.tls_server_name else {}),
            **login.nats_credentials(),
        }
        try:
            await asyncio.wait_for(client.connect(**arguments), login.timeout)
            if not client.is_connected:
                raise ConnectionError("the server closed the connection during the login")
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*")
        except Exception as error:
            await _discard(client)
            raise _reason(error, login) from error
        connecting = False
        return client

    async def _disconnect(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await _discard(client)


async def _discard(client: _Client) -> None:
    with contextlib.suppress(Exception):  # the connection is abandoned in any case
        await asyncio.wait_for(client.close(), 1)
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()


def _bare(server: str) -> str:
    """Return a server's address without credentials."""
    scheme, separator, rest = server.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _reason(error: Exception, login: Login) -> Exception:
    """Return the error for a failed connection: TransientError if a retry may succeed."""
    text = str(error).replace("nats: ", "", 1).strip("' ") or type(error).__name__
    lowered = text.lower()
    if isinstance(error, SourceError):
        return error
    if "authorization violation" in lowered or "authentication" in lowered:
        who = f"user {login.user!r}" if login.user else "these credentials"
        return SourceError(f"the server does not accept {who} ({text})")
    if isinstance(error, ssl.SSLError) or "certificate" in lowered or "ssl" in lowered:
        return SourceError(f"TLS failed: {text}")
    if isinstance(error, TimeoutError):
        return TransientError(f"no answer within {login.timeout:g} s")
    if isinstance(error, ConnectionRefusedError):
        return TransientError("connection refused: nothing listens there")
    if isinstance(error, (OSError, nats.errors.Error)):
        return TransientError(text)
    return SourceError(f"the credentials cannot be used: {type(error).__name__}: {text}")


def _status(headers: bytes) -> str:
    """Return the status of a message that the server itself sent, such as 404; empty for others."""
    return headers[9:12].decode() if headers[8:9] == b" " else ""


# --- streams --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamSelection:
    """A stream and the subjects of the messages to read; all messages without subjects."""

    name: str
    subjects: tuple[str, ...] = ()

    @property
    def filter(self) -> str:
        """Return the filter for servers: the only subject, or all, which the reader then matches itself. Direct get supports one
        subject, and a consumer with several (2.10.27) skips the first message of a stream that has lost its first ones."""
        return self.subjects[0] if len(self.subjects) == 1 else ">"


@dataclass(frozen=True)
class LeaderState:
    """A stream's state from its leader: creation time, first and last sequence, and the way to read it."""

    created: str
    first: int
    last: int
    bytes: int
    way: str

    @property
    def bytes_per_sequence(self) -> float:
        """Return the mean number of bytes of a sequence; a removed message counts with none."""
        return self.bytes / max(1, self.last - self.first + 1)


def stream_state(connection: StreamConnection, stream: StreamSelection) -> LeaderState:
    """Return the state of a stream. Raises SourceError and TransientError."""
    answer = connection.request(f"STREAM.INFO.{stream.name}", {})
    if "error" in answer:
        servers = ", ".join(_bare(server) for server in connection.login.servers)
        if answer["error"].get("err_code") == NO_STREAM:
            raise SourceError(f"there is no stream {stream.name} in this account (of {servers})")
        raise SourceError(f"stream {stream.name} of {servers}: {answer['error'].get('description')}")
    config, state = answer["config"], answer["state"]
    return LeaderState(
        created=answer["created"],
        first=max(1, state["first_seq"]),
        last=state["last_seq"],
        bytes=state["bytes"],
        way=reading_way(config, connection.version),
    )


def reading_way(config: dict[str, Any], version: tuple[int, int]) -> str:
    """Return the way to read a stream.

    Batches of direct get (2.11) leave nothing behind and affect no other client, but the stream must allow them. A consumer has
    no side effects only if acknowledgements do not remove messages (limits).
    """
    if config.get("allow_direct") and version >= (2, 11):
        return BATCHES
    return CONSUMER if config.get("retention", "limits") == "limits" else SINGLE


def next_message(connection: StreamConnection, stream: StreamSelection, first: int) -> dict[str, Any] | None:
    """Return the first message of the stream from `first` on, as stored by the leader (seq, subject, hdrs, data, time); None if
    there is none. Raises SourceError and TransientError."""
    answer = connection.request(f"STREAM.MSG.GET.{stream.name}", {"seq": first, "next_by_subj": stream.filter})
    error = answer.get("error")
    if error is None:
        message: dict[str, Any] = answer["message"]
        return message
    if error.get("err_code") != NO_MESSAGE:
        raise SourceError(f"stream {stream.name}: {error.get('description')}")
    return None


def sequence_at(connection: StreamConnection, stream: StreamSelection, state: LeaderState, nanoseconds: int) -> int:
    """Return the sequence that separates the messages stored before that time from those at that time or later."""
    low, high = state.first, state.last + 1
    every = StreamSelection(stream.name)
    while low < high:
        middle = (low + high) // 2
        message = connection.with_retries(lambda seq=middle: next_message(connection, every, seq))  # type: ignore[misc]
        if message is None or message["seq"] >= high or _nanoseconds(message["time"]) >= nanoseconds:
            high = middle
        else:
            low = message["seq"] + 1
    return low


def _nanoseconds(text: str) -> int:
    """Return the nanoseconds since 1970 of a time in the servers' format: UTC, with up to nine digits of the second."""
    whole, _dot, fraction = text.rstrip("Z").partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0"))


# --- reading ----------------------------------------------------------------------------------------------------------------


@dataclass
class Rows:
    """Messages in the order of their sequences. `times`: nanoseconds since 1970, or the server's text; `headers`: as stored, with
    the line of the protocol version."""

    subjects: list[bytes] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    times: list[int] | list[bytes] = field(default_factory=list)
    headers: list[bytes | None] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)

    def keep(self, indexes: Sequence[int]) -> Rows:
        """Return some of the messages."""
        columns: list[Any] = [self.subjects, self.sequences, self.times, self.headers, self.data]
        return Rows(*([column[index] for index in indexes] for column in columns))


class Reader(Protocol):
    """A way to read a stream."""

    def fetch(self, first: int, count: int) -> Rows:
        """Return up to `count` messages from `first` on, without gaps other than those of the answering replica; none if it has
        none. Raises SourceError and TransientError."""

    def close(self) -> None:
        """Remove everything that the reader has created."""


class _Batches:
    """Direct get of many messages at once. Each message names its predecessor, so losses in transit are detected."""

    def __init__(self, connection: StreamConnection, stream: StreamSelection) -> None:
        self._connection = connection
        self._stream = stream
        self._subject = f"{connection.login.api_prefix}.DIRECT.GET.{stream.name}"

    def fetch(self, first: int, count: int) -> Rows:
        reported: list[tuple[bytes, bytes]] = []
        ended: list[str] = []

        def take_from(inbox: bytes) -> Take:
            def take(to: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> bool:
                if to != inbox or headers is None:
                    return False
                status = _status(headers)
                if status and b"\r\nNats-Sequence: " not in headers:  # a publisher's message may have a status, too
                    ended.append(status)
                    return True
                reported.append((headers, data))
                return b"\r\nNats-Num-Pending: " not in headers  # an older server sends one message

            return take

        # The server ends a batch after the message that reaches the bytes.
        question = {"seq": first, "batch": count, "max_bytes": BATCH_BYTES, "next_by_subj": self._stream.filter}
        self._connection.collect(self._subject, question, take_from)
        if ended and ended[0] not in ("204", "404"):
            raise TransientError(f"{self._stream.name} returns no batch now (status {ended[0]})")
        return self._rows(reported)

    def _rows(self, reported: Sequence[tuple[bytes, bytes]]) -> Rows:
        rows, before = Rows(), 0
        times: list[bytes] = []
        for headers, data in reported:
            # The server's own headers are the last ones, in this order (stream.go getDirectRequest).
            lines = headers.rsplit(b"\r\n", 8)
            if lines[5].startswith(b"Nats-Num-Pending: "):
                stored, _stream, subject, sequence, moment, _pending, previous = lines[:7]
                if int(previous[20:]) != before:
                    raise TransientError(f"messages of {self._stream.name} were lost in transit")
            else:
                stored, _stream, subject, sequence, moment = headers.rsplit(b"\r\n", 6)[:5]
            before = int(sequence[15:])
            rows.subjects.append(subject[14:])
            rows.sequences.append(before)
            times.append(moment[17:])
            rows.headers.append(stored if len(stored) > 8 else None)
            rows.data.append(data)
        rows.times = times
        return rows

    def close(self) -> None:
        """Do nothing: direct get creates nothing."""


class _Pulls:
    """An ephemeral consumer without acknowledgements. The server counts its deliveries, so losses in transit are detected."""

    def __init__(self, connection: StreamConnection, stream: StreamSelection) -> None:
        self._connection = connection
        self._stream = stream
        self._name = ""
        self._next = 0
        self._delivered = 0

    def fetch(self, first: int, count: int) -> Rows:
        try:
            if (not self._name or first != self._next) and not self._create(first):
                return Rows()
            rows = self._pull(count, BATCH_BYTES)
            if rows is None:  # the next message alone is larger
                rows = self._pull(1, None)
            return rows or Rows()
        except TransientError:
            self.close()
            raise

    def _create(self, first: int) -> int:
        """Create a consumer that begins at a sequence; return the number of its messages."""
        self.close()
        self._name, self._next, self._delivered = f"spark-{secrets.token_hex(8)}", first, 0
        config: dict[str, Any] = {
            "name": self._name,
            "description": "reads a range of sequences for Spark",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "ack_policy": "none",
            "inactive_threshold": int(CONSUMER_THRESHOLD * 1e9),
            "num_replicas": 1,
            "mem_storage": True,
        }
        if self._stream.filter != ">":
            config["filter_subjects"] = [self._stream.filter]
        request = {"stream_name": self._stream.name, "action": "create", "config": config}
        answer = self._connection.request(f"CONSUMER.CREATE.{self._stream.name}.{self._name}", request)
        if "error" in answer:
            self._name = ""
            raise SourceError(f"stream {self._stream.name} cannot be read: {answer['error'].get('description')}")
        return int(answer.get("num_pending", 0))

    def _pull(self, count: int, most_bytes: int | None) -> Rows | None:
        """Return the messages of one pull, within the limits of messages and bytes; None if the next message has more bytes."""
        reported: list[tuple[bytes, list[bytes], bytes, bytes | None]] = []
        ended: list[str] = []
        size = 0

        def take_from(inbox: bytes) -> Take:
            def take(to: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
                nonlocal size
                if reply.startswith(_ACK):
                    tokens = reply.split(b".")
                    # $JS.ACK.stream.consumer.…, or with domain and account before the stream and a token at the end (ADR-15).
                    reported.append((to, tokens[2:9] if len(tokens) == 9 else tokens[4:11], data, headers))
                    # The server counts these bytes (server/consumer.go). It sends no status if a message fills them exactly.
                    size += len(to) + len(reply) + len(headers or b"") + len(data)
                    return len(reported) == count or reported[-1][1][6] == b"0" or size == most_bytes
                if to == inbox and headers is not None:
                    ended.append(headers.partition(b"\r\n")[0][9:].decode("utf-8", "replace"))
                    return True
                return False

            return take

        request = {"batch": count, "expires": int(PULL_EXPIRES * 1e9), "max_bytes": most_bytes or 0}
        subject = f"{self._connection.login.api_prefix}.CONSUMER.MSG.NEXT.{self._stream.name}.{self._name}"
        self._connection.collect(subject, request, take_from, PULL_EXPIRES + self._connection.login.timeout)
        if ended and not ended[0].startswith(_PULL_ENDS):
            raise TransientError(f"the consumer of {self._stream.name} cannot be read now (status {ended[0]})")
        if not reported and ended and ended[0].startswith("409"):
            return None
        rows = Rows()
        times: list[int] = []
        for to, (_stream, consumer, _times, sequence, number, moment, _pending), data, headers in reported:
            self._delivered += 1
            if int(number) != self._delivered or consumer.decode() != self._name:
                raise TransientError(f"messages of {self._stream.name} were lost in transit")
            rows.subjects.append(to)
            rows.sequences.append(int(sequence))
            times.append(int(moment))
            rows.headers.append(headers)
            rows.data.append(data)
        rows.times = times
        if rows.sequences:
            self._next = rows.sequences[-1] + 1
        return rows

    def close(self) -> None:
        name, self._name = self._name, ""
        if name:
            with contextlib.suppress(TransientError, SourceError):  # the server removes it after the threshold
                self._connection.request(f"CONSUMER.DELETE.{self._stream.name}.{name}", {})


class _Singles:
    """The leader's messages one by one: slow, but always possible."""

    def __init__(self, connection: StreamConnection, stream: StreamSelection) -> None:
        self._connection = connection
        self._stream = stream

    def fetch(self, first: int, count: int) -> Rows:
        rows = Rows()
        times: list[bytes] = []
        size = 0
        for _message in range(min(count, ONE_BY_ONE)):
            message = next_message(self._connection, self._stream, first) if size < BATCH_BYTES else None
            if message is None:
                break
            first = message["seq"] + 1
            rows.subjects.append(message["subject"].encode())
            rows.sequences.append(message["seq"])
            times.append(message["time"].encode())
            stored = base64.b64decode(message.get("hdrs") or "")
            rows.headers.append(stored or None)
            rows.data.append(base64.b64decode(message.get("data") or ""))
            size += len(stored) + len(rows.data[-1])
        rows.times = times
        return rows

    def close(self) -> None:
        """Do nothing: single requests create nothing."""


_WAYS: dict[str, type[_Batches] | type[_Pulls] | type[_Singles]] = {
    BATCHES: _Batches,
    CONSUMER: _Pulls,
    SINGLE: _Singles,
}


@dataclass(frozen=True)
class Range:
    """Sequences from `first` to `last`, both included, of a stream that was created at `created`."""

    first: int
    last: int
    created: str = ""
    way: str = BATCHES


def read_range(login: Login, stream: StreamSelection, wanted: Range, fail_on_data_loss: bool) -> Iterator[Rows]:
    """Yield the messages of a range in order. Raises SourceError, also if the stream has been recreated, and with
    `fail_on_data_loss` if messages were removed before they were read."""
    if wanted.first > wanted.last:
        return
    with StreamConnection(login) as connection:
        reader: Reader = _WAYS[wanted.way](connection, stream)
        try:
            yield from _read(connection, reader, stream, wanted, fail_on_data_loss)
        finally:
            reader.close()


def _read(
    connection: StreamConnection, reader: Reader, stream: StreamSelection, wanted: Range, fail_on_data_loss: bool
) -> Iterator[Rows]:
    position = wanted.first

    def fetch() -> Rows:
        rows = reader.fetch(position, min(BATCH_MESSAGES, wanted.last - position + 1))
        if not rows.sequences:
            message = next_message(connection, stream, position)
            if message is not None and message["seq"] <= wanted.last:
                raise TransientError(
                    f"no replica of {stream.name} returns message {message['seq']}, which its leader has"
                )
        return rows

    while position <= wanted.last:
        rows = connection.with_retries(fetch)
        sequences = rows.sequences
        if fail_on_data_loss and (not sequences or sequences[-1] - position + 1 > len(sequences)):
            _refuse_loss(connection, stream, wanted, _first_gap(position, sequences))
        if not sequences:
            break
        position = sequences[-1] + 1
        indexes = _wanted(rows, stream, wanted.last)
        yield rows if len(indexes) == len(sequences) else rows.keep(indexes)
    state = connection.with_retries(lambda: stream_state(connection, stream))
    if state.created != wanted.created:
        raise SourceError(recreated(stream, wanted.created, state.created))


def _first_gap(position: int, sequences: Sequence[int]) -> int:
    for sequence in sequences:
        if sequence != position:
            break
        position += 1
    return position


def _refuse_loss(connection: StreamConnection, stream: StreamSelection, wanted: Range, gap: int) -> None:
    state = connection.with_retries(lambda: stream_state(connection, stream))
    if gap <= wanted.last and state.created == wanted.created and state.first > gap:
        raise SourceError(lost(stream, gap, min(state.first, wanted.last + 1)))


def _wanted(rows: Rows, stream: StreamSelection, last: int) -> Sequence[int]:
    """Return the indexes of the messages that are in the range and match the subjects."""
    within = (
        range(len(rows.sequences))
        if rows.sequences[-1] <= last
        else [index for index, sequence in enumerate(rows.sequences) if sequence <= last]
    )
    if len(stream.subjects) < 2:
        return within
    return [index for index in within if any(matches(rows.subjects[index].decode(), one) for one in stream.subjects)]


def matches(subject: str, pattern: str) -> bool:
    """Return whether a subject matches a pattern with the wildcards * and >."""
    have, want = subject.split("."), pattern.split(".")
    if want[-1] == ">":
        return len(have) >= len(want) and all(w in ("*", h) for h, w in zip(have, want[:-1]))
    return len(have) == len(want) and all(w in ("*", h) for h, w in zip(have, want))


def lost(stream: StreamSelection, expected: int, first: int) -> str:
    """Return the error message for removed messages."""
    return (
        f"stream {stream.name} now begins at sequence {first}, but {expected} is the next to read: up to {first - expected} "
        "messages were removed before they were read, by limits, a purge or consumers. Set fail_on_data_loss to false to "
        "continue without them"
    )


def recreated(stream: StreamSelection, then: str, now: str) -> str:
    """Return the error message for a stream that was recreated under the same name."""
    return (
        f"stream {stream.name} was deleted and recreated: it was created at {now}, but the messages read so far are from the one "
        f"created at {then}. Set fail_on_data_loss to false to read the new one from its first message"
    )


def shortened(stream: StreamSelection, last: int, read: int) -> str:
    """Return the error message for a stream that ends before the last sequence that was read."""
    return (
        f"stream {stream.name} ends at sequence {last}, but {read} was already read: it lost its end, or was restored from an "
        "older backup. Set fail_on_data_loss to false to read it from its first message again"
    )
