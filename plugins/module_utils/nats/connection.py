# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to NATS: servers, credentials, TLS, and nats-py's errors as a NatsFailure.

This is the only file that imports nats-py. The requests of synchronous code are in client.py, the subscriptions of
asynchronous code in listener.py."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import os
import ssl
import tempfile
import time
import traceback
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any, Callable, Optional, TypeVar
from urllib.parse import unquote, urlsplit

from .credentials_file import FileContent, read_user_claims
from .denials import Denials
from .failures import MissingLibrary, NatsFailure
from .inboxes import inboxes_of_claims

try:
    import nats.errors
    from nats.aio.client import Client as NatsPyClient
    from nats.aio.client import RawCredentials

    NATS_IMPORT_ERROR: Optional[str] = None
except ImportError:
    NatsPyClient = object  # type: ignore[assignment,misc]
    NATS_IMPORT_ERROR = traceback.format_exc()

from .model import CLIENT_NAME, INBOX_PREFIX

T = TypeVar("T")

_SECURE_SCHEMES = ("tls", "wss")

#: Receives a message as it arrived: subject, reply subject (empty without), payload, and headers with their first line
#: (None without).
RawReceiver = Callable[[bytes, bytes, bytes, Optional[bytes]], None]

#: Seconds after which a short-lived login expires: that of a connection for requests, which is renewed while the
#: connection is in use, and that of a connection for transfers, during which it cannot be renewed.
LOGIN_SECONDS, TRANSFER_SECONDS = 900.0, 86400.0


@dataclass(frozen=True)
class MintedLogin:
    """A user whose JWT and key exist only in memory. `label`: the display name of the user. `token`: returns a JWT that
    expires after this number of seconds. `sign`: signs with the user's key."""

    label: str
    token: Callable[[float], str] = field(repr=False)
    sign: Callable[[bytes], bytes] = field(repr=False)


@dataclass(frozen=True)
class ConnectionOptions:
    """The servers and the login. At most one kind of credentials is used: the first one set in the order minted,
    credentials, nkey_seed, user, token; next to `credentials`, `user` is used for servers without an operator.
    `credentials` and the TLS files are paths, or the content of a file as a FileContent.
    `timeout`: the limit for each connection attempt and each request, in seconds.
    `inbox_prefix`: None selects one that the JWT of `credentials` permits.
    `jetstream_domain`: the domain of the streams, if leafnodes connect several.
    `name`: the name of the connection in the servers' lists. A rotation of credentials ignores CLIENT_NAME."""

    servers: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey_seed: str | None = field(default=None, repr=False)
    credentials: str | None = None
    minted: MintedLogin | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_server_name: str | None = None
    validate_certs: bool = True
    tls_first: bool = False
    timeout: float = 5.0
    inbox_prefix: str | None = None
    jetstream_domain: str | None = None
    name: str = CLIENT_NAME

    @property
    def inboxes(self) -> str:
        """Return the prefix of the subjects for replies."""
        if self.inbox_prefix or not self.credentials or self.minted:
            return self.inbox_prefix or INBOX_PREFIX
        return inboxes_of_claims(read_user_claims(self.credentials))

    @property
    def wants_tls(self) -> bool:
        """Return whether an unencrypted connection must be refused."""
        secure_url = any(urlsplit(server).scheme in _SECURE_SCHEMES for server in self.servers)
        return secure_url or self.tls_first or bool(self.tls_ca_file or self.tls_cert_file or self.tls_server_name)


@dataclass(frozen=True)
class Call:
    """One request: subject, payload, headers. An `idempotent` request is sent again over a new connection if the first
    one is lost before the reply. `inbox_header`: the header that contains the inbox of the replies, which are otherwise
    sent to the reply subject of the message."""

    subject: str
    payload: bytes = b""
    headers: Mapping[str, str] | None = None
    idempotent: bool = False
    inbox_header: str = ""


@dataclass(frozen=True)
class LoginReply:
    """The reply of an address to a login: the name of its server, empty if it sent no announcement; and the reason of a
    failed login, otherwise None."""

    address: str
    server_name: str
    failure: NatsFailure | None


class _NatsPy(NatsPyClient):
    """nats-py's client, changed to insist on TLS if the caller requested TLS, and to report a lost connection.

    nats-py upgrades to TLS only if the server requires TLS, and otherwise sends the password in plain text. A server
    with `allow_non_tls` only reports that TLS is available."""

    def __init__(self, wants_tls: bool, make_context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self.wants_tls = wants_tls
        self._make_context = make_context
        self.server_id = ""
        self.addresses = 0
        self.greeted = False
        self.info: dict[str, Any] = {}
        self.taps: dict[int, RawReceiver] = {}
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Return the context for a server that requires TLS."""
        return self._make_context()

    @property
    def cause(self) -> Exception | None:
        """Return why a connection was lost: the socket's error, which a writer may see only as "Connection lost"."""
        reader = getattr(self._transport, "_io_reader", None)
        return (reader.exception() if reader else None) or self.last_error

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        self.server_id = info.get("server_id", self.server_id)
        self.info.update(info)
        if initial_connection:
            self.addresses = len(info.get("connect_urls") or ())
        if self.wants_tls and initial_connection and not self.options["tls_handshake_first"]:
            if not info.get("tls_required") and not info.get("tls_available"):
                raise NatsFailure("tls", "TLS was requested, but this server does not offer it")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
        self.greeted = True

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        """Pass on a message of a tap unchanged. nats-py makes a dictionary of the headers, which loses repeated ones,
        and an object, a queue entry and a task switch for each message, which takes most of a reader's time."""
        receive = self.taps.get(sid)
        if receive is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            receive(subject, reply, data, headers)

    def _connect_command(self) -> bytes:
        """Return the login. nats-py sends either a signature or a password. A server with nkey users but without an
        operator sends a nonce and ignores JWTs, so the login with a creds file also contains the password."""
        command: bytes = super()._connect_command()
        user, password = self.options["user"], self.options["password"]
        operation, _space, text = command.partition(b" ")
        login = json.loads(text)
        if "jwt" not in login or user is None:
            return command
        return operation + b" " + json.dumps({**login, "user": user, "pass": password}).encode() + b"\r\n"

    async def _read_loop(self) -> None:
        """Read until the connection ends. nats-py does not call its callback for a lost connection if closing fails, as
        after a reset."""
        try:
            await super()._read_loop()
        except Exception as error:  # pylint: disable=broad-except  # nothing awaits this task
            self._err = self._err or error
        finally:
            if not self.lost.done():
                self.lost.set_result(None)


class Connection:
    """One connection, used until it is lost. This is the only class that awaits nats-py: all errors of nats-py,
    asyncio, TLS or the socket are raised as NatsFailure (`complete`)."""

    def __init__(self, server: str, address: str, wants_tls: bool, make_context: Callable[[], ssl.SSLContext]) -> None:
        self.server = server
        self.address = address
        self.denials = Denials()
        self._denied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inbox_prefix = INBOX_PREFIX
        self._library = _NatsPy(wants_tls, make_context)

    @property
    def identity(self) -> tuple[str, int | None]:
        """Return the server's ID and the connection's ID on that server."""
        return self._library.server_id, self._library.client_id

    @property
    def addresses(self) -> int:
        return self._library.addresses

    @property
    def version(self) -> str:
        """Return the version that the server reported at login."""
        return str(self._library.info.get("version", ""))

    @property
    def max_payload(self) -> int:
        """Return the server's maximum message size in bytes."""
        return self._library.max_payload

    @property
    def info(self) -> Mapping[str, Any]:
        """Return the server's last announcement: server_name, host, port, cluster, connect_urls, ... (INFO)."""
        return self._library.info

    @property
    def lost(self) -> bool:
        return self._library.lost.done()

    async def connect(self, timeout: float, arguments: Mapping[str, Any]) -> None:
        """Connect and log in. Raises NatsFailure (authorization, tls, unreachable, invalid_option)."""
        self._inbox_prefix = arguments.get("inbox_prefix", INBOX_PREFIX)
        try:
            await asyncio.wait_for(self._library.connect(error_cb=self._on_error, **arguments), timeout)
            if not self._library.is_connected:
                raise ConnectionError("the server closed the connection during the login")
            if self._library.connected_url is not None:
                self.address = self._library.connected_url.geturl()
        except Exception as error:  # pylint: disable=broad-except  # nats-py raises bare exceptions for broken files too
            # The credentials are read before the connection is opened, and used once the server has announced itself.
            awaits_greeting = self._library._transport is not None and not self._library.greeted
            raise _connect_failure(self.address, error, arguments.get("user"), timeout, awaits_greeting) from error

    async def close(self) -> None:
        """Close the connection in any state."""
        try:
            await asyncio.wait_for(self._library.close(), 1)
        except Exception:  # pylint: disable=broad-except  # the connection is abandoned in any case
            pass
        finally:
            if self._library._transport is not None:  # nats-py leaves it open when its own closing fails
                self._library._transport.close()  # type: ignore[no-untyped-call]

    def new_inbox(self) -> str:
        return self._library.new_inbox()

    async def request(self, call: Call, timeout: float) -> Any:
        """Return the reply. Raises NatsFailure."""
        # The library's own timeout only has to be longer than this one.
        work = self._library.request(call.subject, call.payload, timeout=timeout + 1, headers=_headers(call))
        return await self.complete(work, call.subject, timeout, since=self.denials.count)

    async def publish(self, call: Call, reply: str = "") -> None:
        """Send a message; with `ping`, wait until the server has received it. Raises NatsFailure."""
        work = self._library.publish(call.subject, call.payload, reply=reply, headers=_headers(call))
        await self.complete(work, call.subject, None)

    async def subscribe(self, subject: str, on_message: Callable[[Any], Awaitable[None]] | None = None) -> Any:
        """Return a subscription for `receive`, or one that passes its messages to `on_message`. Raises NatsFailure."""
        work = self._library.subscribe(subject, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0)
        return await self.complete(work, subject, None)

    async def tap(self, subject: str, receive: RawReceiver) -> Any:
        """Return a subscription whose messages are passed to `receive` as they arrived. Raises NatsFailure."""
        subscription = await self.subscribe(subject)
        self._library.taps[subscription._id] = receive
        return subscription

    async def receive(self, subscription: Any, subject: str, timeout: float, since: int | None = None) -> Any:
        """Return the next message of a subscription. Raises NatsFailure that names `subject`. `since`: see
        `complete`."""
        work = subscription.next_msg(timeout=max(timeout, 0) + 1)
        return await self.complete(work, subject, timeout, since=since)

    async def unsubscribe(self, *subscriptions: Any) -> None:
        """End subscriptions; if the connection was lost, they have ended already."""
        for subscription in subscriptions:
            self._library.taps.pop(subscription._id, None)
            try:
                await self.complete(subscription.unsubscribe(), None, None)
            except NatsFailure:
                return

    async def ping(self, timeout: float, subject: str | None = None) -> None:
        """Return once the server has handled everything that was sent. Raises NatsFailure that names `subject`."""
        await self.complete(self._library.flush(math.ceil(timeout) + 1), subject, timeout, "no reply to a ping")

    async def complete(
        self,
        work: Awaitable[T],
        subject: str | None,
        timeout: float | None,
        silence: str = "no reply",
        since: int | None = None,
    ) -> T:
        """Return the result of `work`, a call of nats-py or a wait for it.

        Raises NatsFailure: connection_lost as soon as the connection is lost, which nats-py does not notice while it
        waits; timeout after `timeout` seconds, if set; or permission if the server has denied the subject. For a
        request, whose work may be abandoned, `since` is the number of denials before the request was sent: permission
        is then raised as soon as the server denies the subject or the inbox."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda given_up: given_up.cancelled() or given_up.exception())  # marks it as retrieved
        denial: NatsFailure | None = None
        try:
            if not self.lost:
                denial = await self._wait(task, subject, timeout, since)
        finally:
            given_up = task.cancel()
        if not given_up:
            try:
                return task.result()
            except (Exception, asyncio.CancelledError) as error:  # pylint: disable=broad-except
                raise _call_failure(error, subject, self.address, self._library.cause) from error
        if self.lost:
            raise _connection_lost(subject, self.address, self._library.cause)
        denial = denial or (self.denials.find([subject]) if subject else None)
        raise denial or NatsFailure("timeout", f"{silence} within {timeout:.3g} s", subject=subject)

    async def _wait(
        self, task: asyncio.Future[T], subject: str | None, timeout: float | None, since: int | None
    ) -> NatsFailure | None:
        """Wait until the task is done, the connection is lost, or the time is over; or, if `since` is set, until the
        server has denied the subject or the inbox, and return this denial."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            until: set[asyncio.Future[Any]] = {task, self._library.lost}
            if since is not None:
                denial = self.denials.find([subject] if subject else (), since)
                denial = denial or self.denials.inbox_denial(self._inbox_prefix, subject)
                if denial:
                    return denial
                until.add(self._denied)
            denied = {self._denied}
            limit = None if timeout is None else max(end - time.monotonic(), 0)
            done, _waiting = await asyncio.wait(until, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if done != denied:
                return None

    async def _on_error(self, error: Exception) -> None:
        if not self._library.is_connected and not self._library.is_closed:
            # nats-py would keep trying the same server, but the caller needs one attempt and the reason of its failure.
            raise error
        if self.denials.add(str(error)):
            denied, self._denied = self._denied, asyncio.get_running_loop().create_future()
            denied.set_result(None)


class Session:
    """Keeps at most one connection at a time, for the event loop that awaits it."""

    #: Seconds between two pings; a server that does not respond to three pings is considered lost.
    _ping_interval = 120

    def __init__(self, options: ConnectionOptions) -> None:
        if NATS_IMPORT_ERROR is not None:
            raise MissingLibrary("nats-py", NATS_IMPORT_ERROR)
        if options.credentials or options.nkey_seed:
            try:
                import_module("nkeys")  # nats-py imports it only when it signs
            except ImportError as error:
                raise MissingLibrary("nkeys", traceback.format_exc()) from error
        self.options = options
        self._connection: Connection | None = None
        self._lost_server: str | None = None
        self._login_seconds = LOGIN_SECONDS
        self._login_end = math.inf
        self._preferred: str | None = None

    @property
    def url(self) -> str | None:
        """Return the address of the connected server without credentials, or None while not connected."""
        return None if self._connection is None or self._connection.lost else self._connection.address

    async def _connect(self, deadline: float = math.inf) -> Connection:
        return await self._connect_to_first(self._context_maker(), deadline)

    async def _connect_to_first(
        self, make_context: Callable[[], ssl.SSLContext], deadline: float = math.inf
    ) -> Connection:
        """Return a connection to the first server that accepts one; the server of a lost connection is tried last."""
        reasons: list[NatsFailure] = []
        for server in sorted(
            self.options.servers, key=lambda server: (server != self._preferred, server == self._lost_server)
        ):
            timeout = min(self.options.timeout, deadline - time.monotonic())
            if timeout <= 0 and reasons:
                break
            try:
                return await self._connect_to(server, make_context, max(timeout, 0))
            except NatsFailure as reason:
                reasons.append(reason)
        raise _joint_connect_failure(reasons)

    async def _connect_to(self, server: str, make_context: Callable[[], ssl.SSLContext], timeout: float) -> Connection:
        connection, arguments = self._prepared(server, make_context, timeout)
        connected = False
        try:
            await connection.connect(timeout, arguments)
            connected = True
        except NatsFailure as failure:
            if failure.code == "authorization" and self.options.minted:
                failure.description += (
                    f"; they are those of {self.options.minted.label}. Check that the account has this signing key and "
                    "has not revoked its users, and that the clock of this host is right"
                )
            raise
        finally:
            if not connected:
                await self._discard(connection)
        return connection

    def _prepared(
        self, server: str, make_context: Callable[[], ssl.SSLContext], timeout: float
    ) -> tuple[Connection, dict[str, Any]]:
        """Return a connection that is not open yet, and the arguments for opening it."""
        url, user, password = _split_url(server)
        arguments: dict[str, Any] = {
            "servers": [url],
            "name": self.options.name,
            "allow_reconnect": False,
            "connect_timeout": timeout,
            "ping_interval": self._ping_interval,
            "tls_handshake_first": self.options.tls_first,
            "inbox_prefix": self.options.inboxes,
            **self._credentials(user, password),
        }
        if self.options.tls_server_name:
            arguments["tls_hostname"] = self.options.tls_server_name
        return Connection(server, url, self.options.wants_tls, make_context), arguments

    async def _announcements(self, timeout: float) -> list[LoginReply]:
        make_context = self._context_maker()

        async def announcement(server: str) -> LoginReply:
            connection, arguments = self._prepared(server, make_context, timeout)
            failure = None
            try:
                await connection.connect(timeout, arguments)
            except NatsFailure as reason:
                failure = reason
            finally:
                await connection.close()
            return LoginReply(server, str(connection.info.get("server_name", "")), failure)

        return list(await asyncio.gather(*map(announcement, self.options.servers)))

    def _credentials(self, url_user: str | None, url_password: str | None) -> dict[str, Any]:
        options = self.options
        if options.minted:
            token, sign = options.minted.token(self._login_seconds), options.minted.sign
            self._login_end = time.monotonic() + self._login_seconds
            return {
                "user_jwt_cb": token.encode,
                "signature_cb": lambda nonce: base64.b64encode(sign(nonce.encode())),
            }
        if options.credentials:
            own: dict[str, Any] = {"user_credentials": options.credentials}
            if isinstance(options.credentials, FileContent):
                own["user_credentials"] = RawCredentials(options.credentials)
            if options.user is not None:
                # Servers without an operator ignore the JWT, and servers with one ignore the password.
                own.update(user=options.user, password=options.password or "")
            return own
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

    async def _renew_login(self, seconds: float = 0) -> None:
        """Disconnect if a short-lived login expires soon, or was not issued for this many seconds; the next connection
        gets a new login."""
        if self.options.minted is None or self._connection is None:
            self._login_seconds = max(self._login_seconds, seconds)
            return
        if seconds > self._login_seconds or time.monotonic() > self._login_end - self._login_seconds / 3:
            self._login_seconds = max(self._login_seconds, seconds)
            await self._discard(self._connection)
            self._connection = None

    def _context_maker(self) -> Callable[[], ssl.SSLContext]:
        """Return a function that creates the TLS context only once: reading the system's CA certificates takes longer
        than connecting without TLS.

        Raises NatsFailure for unusable files, if TLS is requested."""
        _require_readable(self.options)
        make_context = cache(partial(_ssl_context, self.options))
        if self.options.wants_tls:
            make_context()
        return make_context

    async def _disconnect(self) -> None:
        if self._connection is not None:
            self._lost_server = self._connection.server
            await self._discard(self._connection)
            self._connection = None

    async def _discard(self, connection: Connection) -> None:
        await connection.close()

    async def _publish_one(self, connection: Connection, call: Call) -> NatsFailure | None:
        """Return None once the server has received the message, otherwise the failure."""
        since = connection.denials.count
        try:
            await connection.publish(call)
            await connection.ping(self.options.timeout, call.subject)
        except NatsFailure as failure:
            if failure.code == "connection_lost":
                failure.description += "; the message may have been published"
            if failure.code != "permission":
                return failure
        return connection.denials.find([call.subject], since)


def _ssl_context(options: ConnectionOptions) -> ssl.SSLContext:
    try:
        authorities = options.tls_ca_file
        if isinstance(authorities, FileContent):
            # Only comments have other characters, which ssl refuses.
            context = ssl.create_default_context(cadata=authorities.encode("ascii", "replace").decode())
        else:
            context = ssl.create_default_context(cafile=authorities)
        if options.tls_cert_file:
            _load_certificate(context, options.tls_cert_file, options.tls_key_file)
    except (ssl.SSLError, OSError) as error:
        raise NatsFailure("tls", f"the TLS files cannot be used: {error}") from error
    if not options.validate_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Load a certificate and its key, which may be in the same file. ssl reads them only from files: during the call,
    contents are in a folder that only this user can read."""
    with contextlib.ExitStack() as files:

        def path(file: str) -> str:
            if not isinstance(file, FileContent):
                return file
            found = os.path.join(files.enter_context(tempfile.TemporaryDirectory()), "content.pem")
            with open(found, "w", encoding="utf-8") as content:
                content.write(file)
            return found

        context.load_cert_chain(path(certificate), path(key) if key else None)


def _require_readable(options: ConnectionOptions) -> None:
    """Raise NatsFailure invalid_option for an unreadable file before any connection is made."""
    for name in ("credentials", "tls_ca_file", "tls_cert_file", "tls_key_file"):
        path = getattr(options, name)
        try:
            if path and not isinstance(path, FileContent):
                with open(path, "rb"):
                    pass
        except OSError as error:
            raise NatsFailure("invalid_option", f"{name}: cannot read {path}: {error.strerror}") from error


def _headers(call: Call) -> dict[str, str] | None:
    return dict(call.headers) if call.headers else None


def reply_status(message: Any) -> str | None:
    """Return the status that a server sends instead of a reply, such as 503 if the subject has no responders."""
    return (message.headers or {}).get("Status")


def no_responders(subject: str | None) -> NatsFailure:
    """Return the failure of a request without responders."""
    return NatsFailure("no_responders", "no responders on this subject in this account", subject=subject)


def _reason(error: BaseException) -> str:
    return str(error).replace("nats: ", "", 1).strip("' ") or type(error).__name__


def _connection_lost(subject: str | None, address: str, cause: BaseException | None) -> NatsFailure:
    """Return the failure of a call whose connection was lost. `cause`: the reason, if known."""
    during = f" during {subject}" if subject else ""
    reason = _reason(cause) if cause else "the reader has stopped"
    return NatsFailure(
        "connection_lost", f"lost the connection to {address}{during}: {reason}", subject=subject, server=address
    )


def _call_failure(
    error: BaseException, subject: str | None, address: str, connection_error: BaseException | None
) -> NatsFailure:
    """Return the failure for an error of nats-py. `connection_error`: the reason why the connection was closed, if it
    was."""
    if isinstance(error, nats.errors.NoRespondersError):
        return no_responders(subject)
    # The exception is matched by name, because older releases of nats-py do not have it.
    invalid = type(error).__name__ == "BadHeaderError"
    if invalid or isinstance(error, (nats.errors.BadSubjectError, nats.errors.MaxPayloadError, ValueError)):
        return NatsFailure("invalid_option", f"cannot be sent: {_reason(error)}", subject=subject)
    if isinstance(error, (nats.errors.TimeoutError, asyncio.TimeoutError)) and not getattr(error, "errno", None):
        return NatsFailure("timeout", f"no reply: {_reason(error)}", subject=subject)
    # A waiting call is only notified that the connection is closed, or is cancelled.
    only_closed = isinstance(error, (nats.errors.ConnectionClosedError, asyncio.CancelledError)) and connection_error
    return _connection_lost(subject, address, connection_error if only_closed else error)


def _split_url(server: str) -> tuple[str, str | None, str | None]:
    """Return the URL without its credentials, the user, and the password (with percent-encoding undone)."""
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


def _connect_failure(
    url: str, error: Exception, user: str | None, timeout: float, awaits_greeting: bool = False
) -> NatsFailure:
    if isinstance(error, NatsFailure):
        error.server = url
        return error
    if isinstance(error, ConnectionRefusedError):
        return NatsFailure("unreachable", "connection refused: no process is listening there", server=url)
    text = _reason(error)
    lowered = text.lower()
    if "authorization violation" in lowered or "authentication" in lowered:
        who = f"user {user!r}" if user else "these credentials"
        return NatsFailure("authorization", f"the server does not accept {who} ({text})", server=url)
    if isinstance(error, ssl.SSLError) or "ssl" in lowered or "certificate" in lowered:
        return NatsFailure("tls", f"TLS failed: {text}", server=url)
    if isinstance(error, (asyncio.TimeoutError, nats.errors.TimeoutError)):
        return NatsFailure("unreachable", f"no answer within {timeout:.3g} s", server=url)
    if isinstance(error, (OSError, nats.errors.Error)):
        return NatsFailure("unreachable", text, server=url)
    if awaits_greeting:
        return NatsFailure("unreachable", f"the peer is not a NATS server: {text}", server=url)
    return NatsFailure("invalid_option", f"the credentials cannot be used: {type(error).__name__}: {text}", server=url)


def _joint_connect_failure(reasons: Sequence[NatsFailure]) -> NatsFailure:
    """Return one failure for all servers that were tried; its code is the most informative of their codes."""
    if len(reasons) == 1:
        only = reasons[0]
        where = f"{only.server}: " if only.server else ""
        return NatsFailure(only.code, f"cannot connect: {where}{only.description}", server=only.server)
    order = ("invalid_option", "authorization", "tls", "unreachable")
    first = min(reasons, key=lambda reason: order.index(reason.code))
    lines = "; ".join(f"{reason.server}: {reason.description}" for reason in reasons)
    return NatsFailure(
        first.code, f"cannot connect to any server: {lines}", server=first.server, reasons=tuple(reasons)
    )
