# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection of a reader of messages, without Spark: the collection's client, with errors that distinguish those that a retry
may resolve."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    MissingLibrary,
    NatsFailure,
    RawReply,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import reported_version

T = TypeVar("T")

#: Errors of the API: no such stream, no such message, account without JetStream (server/errors.json).
NO_STREAM, NO_MESSAGE, NO_JETSTREAM = 10059, 10037, 10039

#: Failures that the user must fix.
_PERMANENT = ("authorization", "invalid_option", "permission", "tls")


class SourceError(Exception):
    """An error that the user must fix: retrying does not help."""


class TransientError(Exception):
    """A transient error: a lost connection, no answer, no leader."""


@dataclass(frozen=True)
class Login(ConnectionOptions):
    """The servers and credentials. Files are FileContent, because executors may not have them.

    `patience`: seconds without progress after which retries end.
    """

    name: str = "jetstream_insights"
    api_prefix: str = "$JS.API"
    patience: float = 30.0


class StreamConnection:
    """A connection for one request at a time, to be used as a context manager. It connects on first use, and again when lost."""

    def __init__(self, login: Login) -> None:
        self.login = login
        try:
            self._client = Client(login)
        except MissingLibrary as missing:
            raise SourceError(f"the Python library {missing.library} is not installed on this host") from missing

    def __enter__(self) -> StreamConnection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    @property
    def version(self) -> tuple[int, int]:
        """Return the major and minor version of the connected server."""
        return reported_version(self._client.server_version)[:2]

    def collect(self, subject: str, payload: dict[str, Any], take: RawReply, wait: float | None = None) -> None:
        """Send a request and pass each reply to `take`, until that reports the last one.

        Raises SourceError if the server refuses, TransientError after `wait` seconds (by default `timeout`) without a reply.
        """
        call = Call(subject, json.dumps(payload).encode(), idempotent=True)
        try:
            self._client.tap(call, take, wait)
        except NatsFailure as failure:
            raise _error(failure) from failure

    def request(self, subject: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the JetStream API, including any error. Raises like `collect`."""
        # Repeated requests that create or delete the same consumer change nothing.
        call = Call(f"{self.login.api_prefix}.{subject}", json.dumps(payload).encode(), idempotent=True)
        try:
            answer: dict[str, Any] = json.loads(self._client.request(call).body)
        except NatsFailure as failure:
            raise _error(failure) from failure
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


def _error(failure: NatsFailure) -> Exception:
    """Return the error for a failure: TransientError if a retry may succeed. If only some servers refuse the login, one of the
    others may accept it later."""
    if all(reason.code in _PERMANENT for reason in failure.reasons or (failure,)):
        return SourceError(failure.description)
    if failure.code == "no_responders":
        return TransientError(f"no responders on {failure.subject}: is JetStream enabled in this account and domain?")
    if failure.code == "timeout":
        return TransientError(f"{failure.subject}: {failure.description}")
    return TransientError(failure.description)


def bare_address(server: str) -> str:
    """Return a server's address without credentials."""
    scheme, separator, rest = server.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def header_status(headers: bytes) -> str:
    """Return the status of a message that the server itself sent, such as 404; empty for others."""
    return headers[9:12].decode() if headers[8:9] == b" " else ""
