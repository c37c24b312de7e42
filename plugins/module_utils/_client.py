# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A synchronous NATS connection. PRIVATE to the collection.

The only file that imports nats-py: it connects with every kind of credentials, sends requests, gathers the replies
of many servers under one deadline, and turns every way in which that can fail into a NatsFailure.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import ssl
import time
import traceback
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any, Callable, Optional, TypeVar, Union
from urllib.parse import unquote, urlsplit

try:
    import nats.errors
    from nats.aio.client import Client as NatsPyClient

    NATS_IMPORT_ERROR: Optional[str] = None
except ImportError:
    NatsPyClient = object  # type: ignore[assignment,misc]
    NATS_IMPORT_ERROR = traceback.format_exc()

try:
    import_module("nkeys")  # nats-py imports it only when it signs

    NKEYS_IMPORT_ERROR: Optional[str] = None
except ImportError:
    NKEYS_IMPORT_ERROR = traceback.format_exc()

T = TypeVar("T")

#: Seconds that a pull waits in the server for a message.
PULL_EXPIRES = 20.0

#: Seconds without a further reply after which a gathering of unknown size counts as complete.
QUIET = 1.0

_SECURE_SCHEMES = ("tls", "wss")


class NatsFailure(Exception):
    """Something that NATS, or the way to it, refused. `code` is stable and for programs, `description` is for people.

    `err_code` is the JetStream API's own number (server/errors.json) when the server gave one.
    """

    def __init__(
        self,
        code: str,
        description: str,
        *,
        subject: str | None = None,
        server: str | None = None,
        account: str | None = None,
        err_code: int | None = None,
    ) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.subject = subject
        self.server = server
        self.account = account
        self.err_code = err_code

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the failure as the modules return it: code, description, subject, server, account, err_code."""
        return {
            "code": self.code,
            "description": self.description,
            "subject": self.subject,
            "server": self.server,
            "account": self.account,
            "err_code": self.err_code,
        }


class MissingLibrary(Exception):
    """A Python library that this connection needs is not installed; `trace` is the import's own error."""

    def __init__(self, library: str, trace: str) -> None:
        super().__init__(library)
        self.library = library
        self.trace = trace


@dataclass(frozen=True)
class ConnectionOptions:
    """Where to connect and as whom. At most one kind of credentials is used: the first one set in the order
    credentials, nkey_seed, user, token. `timeout` is in seconds and bounds each connection attempt and each request.
    `jetstream_domain`: whose streams are meant, where leafnodes connect several."""

    servers: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey_seed: str | None = field(default=None, repr=False)
    credentials: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_server_name: str | None = None
    validate_certs: bool = True
    tls_first: bool = False
    timeout: float = 5.0
    inbox_prefix: str = "_INBOX"
    jetstream_domain: str | None = None

    @property
    def wants_tls(self) -> bool:
        """Return whether a connection in the clear must be refused."""
        secure_url = any(urlsplit(server).scheme in _SECURE_SCHEMES for server in self.servers)
        return secure_url or self.tls_first or bool(self.tls_ca_file or self.tls_cert_file or self.tls_server_name)


@dataclass(frozen=True)
class Call:
    """One request to send: subject, payload, headers."""

    subject: str
    payload: bytes = b""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Reply:
    """One reply: the decompressed body, the seconds between the request and its arrival, and its headers."""

    subject: str
    body: bytes
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Latency:
    """Seconds that it took to connect, to ping the server, and to get a message to oneself back."""

    connect: float
    rtt: float
    round_trip: float


@dataclass(frozen=True)
class Observed:
    """One message that was seen: where it went, whether it asks for a reply, and the bytes of its payload."""

    subject: str
    wants_reply: bool
    size: int


@dataclass(frozen=True)
class Message:
    """One message that came. Out of a stream also its `sequence` there, when it was `stored`, and its `deliveries` so far."""

    subject: str
    body: bytes
    sequence: int | None = None
    stored: datetime | None = None
    deliveries: int = 1


#: What a gathering does after a reply: True stops, False waits for more until the deadline, None until it is quiet.
Progress = Optional[bool]
Outcome = Union[Reply, NatsFailure]


class _Connection(NatsPyClient):
    """nats-py's client, made to insist on TLS when the caller asked for TLS.

    nats-py upgrades to TLS only when the server says that it requires TLS, and would otherwise send the password in
    the clear. A server with `allow_non_tls` only says that TLS is available.
    """

    wants_tls = False
    server_id = ""
    addresses = 0

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        self.server_id = info.get("server_id", self.server_id)
        if initial_connection:
            self.addresses = len(info.get("connect_urls") or ())
        if self.wants_tls and initial_connection and not self.options["tls_handshake_first"]:
            if not info.get("tls_required") and not info.get("tls_available"):
                raise NatsFailure("tls", "TLS was asked for, but this server does not offer it")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


class _Session:
    """One connection at a time, for the event loop that awaits it. It never connects again by itself."""

    #: Seconds between two pings; a server that leaves three of them without an answer is gone.
    _ping_interval = 120
    _closed: asyncio.Future[None]

    def __init__(self, options: ConnectionOptions) -> None:
        if NATS_IMPORT_ERROR is not None:
            raise MissingLibrary("nats-py", NATS_IMPORT_ERROR)
        if (options.credentials or options.nkey_seed) and NKEYS_IMPORT_ERROR is not None:
            raise MissingLibrary("nkeys", NKEYS_IMPORT_ERROR)
        self.options = options
        self._connection: _Connection | None = None
        self._refusal: str | None = None

    @property
    def url(self) -> str | None:
        """Return the address of the connected server without credentials, or None while not connected."""
        if self._connection is None or self._connection.connected_url is None:
            return None
        return self._connection.connected_url.geturl()

    async def _connect(self) -> _Connection:
        return await self._connect_to_first(self._ssl_context())

    async def _connect_to_first(self, context: ssl.SSLContext) -> _Connection:
        reasons: list[NatsFailure] = []
        for server in self.options.servers:
            try:
                return await self._connect_to(server, context)
            except NatsFailure as reason:
                reasons.append(reason)
        raise _nobody_let_us_in(reasons)

    async def _connect_to(self, server: str, context: ssl.SSLContext) -> _Connection:
        url, user, password = _split_url(server)
        connection = _Connection()
        connection.wants_tls = self.options.wants_tls
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connecting = True

        async def on_error(error: Exception) -> None:
            if connecting:
                # nats-py would go on trying the same server; one attempt and its reason is what the caller needs.
                raise error
            self._refusal = str(error)

        async def on_closed() -> None:
            if not closed.done():
                closed.set_result(None)

        arguments: dict[str, Any] = {
            "servers": [url],
            "error_cb": on_error,
            "closed_cb": on_closed,
            "name": "natsops.jetstream",
            "allow_reconnect": False,
            "connect_timeout": self.options.timeout,
            "ping_interval": self._ping_interval,
            "tls": context,
            "tls_handshake_first": self.options.tls_first,
            "inbox_prefix": self.options.inbox_prefix,
            **self._credentials(user, password),
        }
        if self.options.tls_server_name:
            arguments["tls_hostname"] = self.options.tls_server_name
        try:
            await asyncio.wait_for(connection.connect(**arguments), self.options.timeout)
            if not connection.is_connected:
                raise ConnectionError("the server closed the connection during the login")
        except Exception as error:  # pylint: disable=broad-except  # nats-py raises bare exceptions for broken files too
            await self._discard(connection)
            raise _connect_failure(url, error, self.options) from error
        connecting = False
        self._closed = closed
        self._refusal = None
        return connection

    def _credentials(self, url_user: str | None, url_password: str | None) -> dict[str, Any]:
        options = self.options
        if options.credentials:
            return {"user_credentials": options.credentials}
        if options.nkey_seed:
            return {"nkeys_seed_str": options.nkey_seed}
        if options.user is not None:
            return {"user": options.user, "password": options.password or ""}
        if options.token is not None:
            return {"token": options.token}
        if url_user is not None and url_password is None:
            return {"token": url_user}
        if url_user is not None:
            return {"user": url_user, "password": url_password}
        return {}

    def _ssl_context(self) -> ssl.SSLContext:
        options = self.options
        _require_readable(options)
        try:
            context = ssl.create_default_context(cafile=options.tls_ca_file)
            if options.tls_cert_file:
                context.load_cert_chain(options.tls_cert_file, options.tls_key_file)
        except (ssl.SSLError, OSError) as error:
            raise NatsFailure("tls", f"the TLS files cannot be used: {error}") from error
        if not options.validate_certs:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._discard(self._connection)
            self._connection = None

    async def _discard(self, connection: _Connection) -> None:
        try:
            await asyncio.wait_for(connection.close(), 1)
        except Exception:  # pylint: disable=broad-except  # it is given up in any case
            pass

    async def _unless_closed(self, work: Awaitable[T], timeout: float | None) -> T:
        """Return the result of `work`. Raises connection_lost as soon as the connection closes, which nats-py's own
        waiting does not notice, and asyncio.TimeoutError after `timeout` seconds, if given."""
        task = asyncio.ensure_future(work)
        both: set[asyncio.Future[Any]] = {task, self._closed}
        await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.add_done_callback(lambda given_up: given_up.cancelled() or given_up.exception())  # nobody else asks for it
        task.cancel()
        if self._closed.done():
            raise NatsFailure("connection_lost", f"the connection to {self.url or 'the server'} was closed")
        raise asyncio.TimeoutError

    def _silence(self, call: Call, timeout: float) -> NatsFailure:
        """Return why a request stayed without a reply, as far as that can be known."""
        if self._refusal and call.subject in self._refusal:
            return NatsFailure("permission", f"the server refused the request: {self._refusal}", subject=call.subject)
        return NatsFailure("timeout", f"no reply within {timeout:g} s", subject=call.subject)


class Client(_Session):
    """A connection to NATS for synchronous code, used as a context manager.

    Connects on first use and again when the connection was lost between two calls, so that a long wait survives
    the restart of the server that it was connected to. A call that was under way when the connection broke fails
    with code `connection_lost`: only the caller knows whether it may be repeated.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        super().__init__(options)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def identity(self) -> tuple[str, int | None]:
        """Return the id of the connected server and the connection's own id (cid) there, ("", None) while not connected."""
        if self._connection is None:
            return "", None
        return self._connection.server_id, self._connection.client_id

    @property
    def addresses(self) -> int:
        """Return how many client addresses of its cluster the server told at the login: its own, and those of the servers
        that have a route to it (INFO connect_urls; none with no_advertise)."""
        return 0 if self._connection is None else self._connection.addresses

    def close(self) -> None:
        """Close the connection; the client cannot be used afterwards."""
        if self._loop.is_closed():
            return
        self._loop.run_until_complete(self._disconnect())
        self._loop.close()

    def connect(self) -> None:
        """Connect and log in, unless that has been done. Raises NatsFailure (authorization, tls, unreachable, ...)."""
        self._run(self._connected())

    def request_many(self, calls: Sequence[Call], timeout: float | None = None) -> list[Outcome]:
        """Send all requests at once and return, in the same order, each one's reply or the failure it met.

        Raises NatsFailure only when there is no connection to send them over.
        """
        return self._run(self._request_many(calls, timeout or self.options.timeout))

    def request(self, call: Call, timeout: float | None = None) -> Reply:
        """Send one request and return its reply. Raises NatsFailure (no_responders, timeout, connection_lost, ...)."""
        outcome = self.request_many([call], timeout)[0]
        if isinstance(outcome, NatsFailure):
            raise outcome
        return outcome

    def gather(
        self, call: Call, on_reply: Callable[[Reply], Progress], timeout: float | None = None, quiet: float = QUIET
    ) -> None:
        """Send one request that many servers answer and hand each reply to `on_reply`, whose result says when to stop.

        Returns when told to stop, at the deadline (`timeout` seconds), or after `quiet` seconds without a reply. Raises
        NatsFailure with code no_responders when nobody listens, and timeout when not even one reply came.
        """
        self._run(self._gather(call, on_reply, timeout or self.options.timeout, quiet))

    def publish(self, calls: Sequence[Call]) -> list[NatsFailure | None]:
        """Send messages that nobody answers and return, in the same order, None for each that the server took, or its failure.

        Raises NatsFailure only when there is no connection to send them over.
        """
        return self._run(self._publish(calls))

    def observe(self, subjects: Sequence[str], seconds: float, on_message: Callable[[Observed], bool]) -> float:
        """Hand every message on these subjects to `on_message` for `seconds`, or until it returns True; none is kept.

        Returns the seconds that it took. Raises NatsFailure permission when the user may not subscribe, and connection_lost,
        also when the server gave this connection up because it could not keep up.
        """
        return self._run(self._observe(subjects, seconds, on_message))

    def latency(self) -> Latency:
        """Connect anew and return how long that, a ping and a message to oneself took. Raises NatsFailure."""
        return self._run(self._latency(self.options.timeout))

    def _run(self, work: Awaitable[T]) -> T:
        return self._loop.run_until_complete(work)

    # --- connecting -----------------------------------------------------------------------------------------------

    async def _connected(self) -> _Connection:
        """Return a connection that has just answered a ping, connecting first when there is none."""
        if self._connection is not None:
            try:
                await self._unless_closed(self._connection.flush(math.ceil(self.options.timeout)), self.options.timeout)
                return self._connection
            except (NatsFailure, nats.errors.Error, asyncio.TimeoutError, OSError):
                await self._disconnect()
        self._connection = await self._connect()
        return self._connection

    async def _discard(self, connection: _Connection) -> None:
        await super()._discard(connection)
        for task in asyncio.all_tasks(self._loop):
            if task is not asyncio.current_task(self._loop):
                task.cancel()

    # --- asking ---------------------------------------------------------------------------------------------------

    async def _request_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome]:
        connection = await self._connected()
        return list(await asyncio.gather(*(self._request_one(connection, call, timeout) for call in calls)))

    async def _request_one(self, connection: _Connection, call: Call, timeout: float) -> Outcome:
        started = time.monotonic()
        try:
            message = await self._unless_closed(
                connection.request(call.subject, call.payload, timeout=timeout, headers=_headers(call)), timeout + 1
            )
            seconds = time.monotonic() - started
            return Reply(call.subject, _body(message, call), seconds, dict(message.headers or {}))
        except NatsFailure as failure:
            failure.subject = call.subject
            return failure
        except nats.errors.NoRespondersError:
            return _no_responders(call)
        except (asyncio.TimeoutError, nats.errors.TimeoutError):
            return self._silence(call, timeout)
        except nats.errors.Error as error:
            return NatsFailure("connection_lost", str(error), subject=call.subject)

    async def _latency(self, timeout: float) -> Latency:
        await self._disconnect()
        context = self._ssl_context()  # reading the system's authorities takes longer than connecting
        started = time.monotonic()
        connection = self._connection = await self._connect_to_first(context)
        connected = time.monotonic()
        call = Call(connection.new_inbox())
        try:
            await self._unless_closed(connection.flush(math.ceil(timeout)), timeout)
            pinged = time.monotonic()
            subscription = await connection.subscribe(call.subject)
            sent = time.monotonic()
            await connection.publish(call.subject)
            await self._unless_closed(subscription.next_msg(timeout=timeout), timeout + 1)
            returned = time.monotonic()
            await subscription.unsubscribe()
        except (asyncio.TimeoutError, nats.errors.TimeoutError):
            raise self._silence(call, timeout) from None
        except nats.errors.Error as error:
            raise NatsFailure("connection_lost", str(error), subject=call.subject) from error
        return Latency(connected - started, pinged - connected, returned - sent)

    async def _gather(self, call: Call, on_reply: Callable[[Reply], Progress], timeout: float, quiet: float) -> None:
        connection = await self._connected()
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox, pending_bytes_limit=0)
        started = time.monotonic()
        deadline = started + timeout
        wait_until = deadline
        answered = False
        try:
            await connection.publish(call.subject, call.payload, reply=inbox, headers=_headers(call))
            while True:
                remaining = wait_until - time.monotonic()
                if remaining <= 0:
                    break
                try:
                    message = await self._unless_closed(subscription.next_msg(timeout=remaining), remaining + 1)
                except (asyncio.TimeoutError, nats.errors.TimeoutError):
                    break
                arrived = time.monotonic()
                if _status(message) == "503":
                    raise _no_responders(call)
                answered = True
                progress = on_reply(Reply(call.subject, _body(message, call), arrived - started))
                if progress is True:
                    break
                wait_until = deadline if progress is False else min(deadline, arrived + quiet)
        finally:
            if connection.is_connected:
                await subscription.unsubscribe()
        if not answered:
            raise self._silence(call, timeout)

    async def _publish(self, calls: Sequence[Call]) -> list[NatsFailure | None]:
        connection = await self._connected()
        return [await self._publish_one(connection, call) for call in calls]

    async def _publish_one(self, connection: _Connection, call: Call) -> NatsFailure | None:
        timeout = self.options.timeout
        self._refusal = None
        try:
            await connection.publish(call.subject, call.payload, headers=_headers(call))
            await self._unless_closed(connection.flush(math.ceil(timeout)), timeout)
        except NatsFailure as failure:
            failure.subject = call.subject
            return failure
        except asyncio.TimeoutError:
            return NatsFailure("timeout", f"the server did not take it within {timeout:g} s", subject=call.subject)
        except nats.errors.Error as error:
            return NatsFailure("connection_lost", str(error), subject=call.subject)
        if self._refusal:
            return NatsFailure("permission", f"the server refused the message: {self._refusal}", subject=call.subject)
        return None

    async def _observe(self, subjects: Sequence[str], seconds: float, on_message: Callable[[Observed], bool]) -> float:
        connection = await self._connected()
        self._refusal = None
        enough = asyncio.Event()

        async def on_one(message: Any) -> None:
            if not enough.is_set() and on_message(Observed(message.subject, bool(message.reply), len(message.data))):
                enough.set()

        subscriptions = [
            await connection.subscribe(subject, cb=on_one, pending_msgs_limit=0, pending_bytes_limit=0)
            for subject in subjects
        ]
        try:
            await self._unless_closed(connection.flush(math.ceil(self.options.timeout)), self.options.timeout)
            started = time.monotonic()
            try:
                await self._unless_closed(enough.wait(), seconds)
            except asyncio.TimeoutError:
                pass
            took = time.monotonic() - started
        finally:
            if connection.is_connected:
                for subscription in subscriptions:
                    await subscription.unsubscribe()
        if self._refusal and "ermission" in self._refusal:
            raise NatsFailure("permission", f"the server refused the subscription: {self._refusal}")
        return took


class Listener(_Session):
    """A connection for asynchronous code that hands on what comes, until it is lost. Used as an asynchronous context manager."""

    # A server that vanished is missed within half a minute.
    _ping_interval = 10

    async def __aenter__(self) -> Listener:
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._connection = await self._connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._disconnect()

    async def subscribe(self, subjects: Sequence[str]) -> None:
        """Let what comes on these subjects wait in memory for `deliver`. Raises NatsFailure permission when the user may not."""
        connection = self._alive()
        for subject in subjects:
            await connection.subscribe(subject, cb=self._waiting.put, pending_msgs_limit=0, pending_bytes_limit=0)
        await self._unless_closed(connection.flush(math.ceil(self.options.timeout)), self.options.timeout)
        if self._refusal and "ermission" in self._refusal:
            raise NatsFailure("permission", f"the server refused the subscription: {self._refusal}")

    async def deliver(self, on_message: Callable[[Message], Awaitable[None]]) -> None:
        """Hand each message of the subscriptions to `on_message`, one at a time, until NatsFailure connection_lost."""
        while True:
            message = await self._unless_closed(self._waiting.get(), None)
            await on_message(Message(message.subject, message.data))

    async def pull(
        self, stream: str, consumer: str, ack_wait: float, on_message: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Hand each message of a pull consumer to `on_message`, one at a time, and acknowledge it once that has returned.

        As long as that takes, the server is kept from delivering the message again, which it does after `ack_wait` seconds.
        Ends only by NatsFailure: connection_lost, timeout, no_responders when the consumer has no leader or is not there, and
        api_error for anything else that the server says in place of a message. An exception of `on_message` leaves the message
        without an acknowledgement.
        """
        connection = self._alive()
        domain = f"{self.options.jetstream_domain}." if self.options.jetstream_domain else ""
        subject = f"$JS.{domain}API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        request = json.dumps({"batch": 1, "expires": int(PULL_EXPIRES * 1e9)}).encode()
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        patience = PULL_EXPIRES + self.options.timeout
        try:
            while True:
                await connection.publish(subject, request, reply=inbox)
                message = await self._unless_closed(subscription.next_msg(timeout=patience), patience + 1)
                status = _status(message)
                if status is None:
                    await self._work_on(message, ack_wait, on_message)
                elif status not in ("404", "408"):  # no message within the time
                    code = "no_responders" if status == "503" else "api_error"
                    reason = (message.headers or {}).get("Description") or "nobody leads the consumer, or it is gone"
                    raise NatsFailure(code, f"consumer {consumer} of stream {stream}: {reason}", subject=subject)
        except (asyncio.TimeoutError, nats.errors.TimeoutError):
            if self._refusal and "ermission" in self._refusal:
                raise NatsFailure("permission", f"the server refused: {self._refusal}", subject=subject) from None
            raise self._silence(Call(subject), patience) from None
        except nats.errors.Error as error:
            raise NatsFailure("connection_lost", str(error), subject=subject) from error

    async def _work_on(
        self, message: Any, ack_wait: float, on_message: Callable[[Message], Awaitable[None]]
    ) -> None:
        told = message.metadata
        work = asyncio.ensure_future(
            on_message(Message(message.subject, message.data, told.sequence.stream, told.timestamp, told.num_delivered))
        )
        try:
            while not (await asyncio.wait({work}, timeout=ack_wait / 3))[0]:
                await message.in_progress()
            work.result()
        finally:
            work.cancel()
        await self._unless_closed(message.ack_sync(self.options.timeout), self.options.timeout + 1)

    def _alive(self) -> _Connection:
        if self._connection is None:
            raise NatsFailure("connection_lost", "not connected")
        return self._connection


def _require_readable(options: ConnectionOptions) -> None:
    """Raise NatsFailure invalid_option for a file that cannot be read, before any server is asked."""
    for name in ("credentials", "tls_ca_file", "tls_cert_file", "tls_key_file"):
        path = getattr(options, name)
        try:
            if path:
                with open(path, "rb"):
                    pass
        except OSError as error:
            raise NatsFailure("invalid_option", f"{name}: cannot read {path}: {error.strerror}") from error


def _headers(call: Call) -> dict[str, str] | None:
    return dict(call.headers) if call.headers else None


def _status(message: Any) -> str | None:
    return (message.headers or {}).get("Status")


def _body(message: Any, call: Call) -> bytes:
    """Return the reply's body, decompressed when the server compressed it (`Accept-Encoding`, server/events.go)."""
    encoding = {name.lower(): value for name, value in (message.headers or {}).items()}.get("content-encoding")
    if encoding != "gzip":
        return message.data
    try:
        return gzip.decompress(message.data)
    except (OSError, EOFError) as error:
        raise NatsFailure("bad_reply", f"the compressed reply cannot be read: {error}", subject=call.subject) from error


def _no_responders(call: Call) -> NatsFailure:
    return NatsFailure("no_responders", "nobody answers this subject in this account", subject=call.subject)


def _split_url(server: str) -> tuple[str, str | None, str | None]:
    """Return the URL without its credentials, its user, its password (percent-encoding undone)."""
    full = server if "://" in server else f"nats://{server}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError as error:
        raise NatsFailure("invalid_option", f"servers: not a NATS URL ({error})") from error
    if not parts.hostname:
        raise NatsFailure("invalid_option", "servers: an address without a host name; write nats://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None else f"{host}:{port}"
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    return parts._replace(netloc=netloc).geturl(), user, password


def _connect_failure(url: str, error: Exception, options: ConnectionOptions) -> NatsFailure:
    if isinstance(error, NatsFailure):
        error.server = url
        return error
    if isinstance(error, ConnectionRefusedError):
        return NatsFailure("unreachable", "connection refused: nothing listens there", server=url)
    text = str(error).replace("nats: ", "", 1).strip("' ") or type(error).__name__
    lowered = text.lower()
    if "authorization violation" in lowered or "authentication" in lowered:
        who = f"user {options.user!r}" if options.user else "these credentials"
        return NatsFailure("authorization", f"the server does not accept {who} ({text})", server=url)
    if isinstance(error, ssl.SSLError) or "ssl" in lowered or "certificate" in lowered:
        return NatsFailure("tls", f"TLS failed: {text}", server=url)
    if isinstance(error, (asyncio.TimeoutError, nats.errors.TimeoutError)):
        return NatsFailure("unreachable", f"no answer within {options.timeout:g} s", server=url)
    if isinstance(error, (OSError, nats.errors.Error)):
        return NatsFailure("unreachable", text, server=url)
    return NatsFailure("invalid_option", f"the credentials cannot be used: {type(error).__name__}: {text}", server=url)


def _nobody_let_us_in(reasons: Sequence[NatsFailure]) -> NatsFailure:
    """Return one failure for all servers that were tried; its code is the most telling one of theirs."""
    if len(reasons) == 1:
        only = reasons[0]
        where = f"{only.server}: " if only.server else ""
        return NatsFailure(only.code, f"cannot connect: {where}{only.description}", server=only.server)
    order = ("invalid_option", "authorization", "tls", "unreachable")
    first = min(reasons, key=lambda reason: order.index(reason.code))
    lines = "; ".join(f"{reason.server}: {reason.description}" for reason in reasons)
    return NatsFailure(first.code, f"cannot connect to any server: {lines}", server=first.server)
