# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection of a reader of messages, without Spark: the only module of the package that uses NATS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client as NatsPyClient
from nats.aio.client import RawCredentials

T = TypeVar("T")

#: Errors of the API: no such stream, no such message, account without JetStream (server/errors.json).
NO_STREAM, NO_MESSAGE, NO_JETSTREAM = 10059, 10037, 10039


class SourceError(Exception):
    """An error that the user must fix: retrying does not help."""


class TransientError(Exception):
    """A transient error: a lost connection, no answer, no leader."""


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
                    found.append(b"" if headers is not None and header_status(headers) == "503" else data)
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
        reported = "; ".join(f"{bare_address(server)}: {reason}" for server, reason in zip(self.login.servers, reasons))
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


def bare_address(server: str) -> str:
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


def header_status(headers: bytes) -> str:
    """Return the status of a message that the server itself sent, such as 404; empty for others."""
    return headers[9:12].decode() if headers[8:9] == b" " else ""
