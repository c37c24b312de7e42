# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to the JetStream API of an account or of the meta group: replies are checked, and failures name their cause."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Union

from ..screen import printable
from ..shapes import Shape, misshapen
from .client import Call, Client, NatsFailure, Reply, refuse_constant
from .error_codes import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND

Answer = Union[dict[str, Any], NatsFailure]
Members = Mapping[str, Shape]
#: Maximum number of simultaneous requests: the meta leader drops requests that exceed its queue (jetstream_api.go,
#: JSDefaultRequestQueueLimit).
CONCURRENT_CALLS = 64
#: Read-only requests, which may be sent again if the connection is lost before the reply.
_READS = re.compile(r"(INFO|(STREAM|CONSUMER)\.(NAMES|LIST|INFO|MSG\.GET)(\..+)?)$")
#: Hints after some errors of JetStream.
_NO_ROOM = ": max_bytes of all streams on a server count in full; natsops.jetstream.report shows the reservations"
_HINTS = {10023: _NO_ROOM, 10047: _NO_ROOM}
#: How 2.15 reports a restore in which it could not store an earlier message (observed on 2.15.1 with full disks).
_NOT_STORED, _DISK_HINT = "expected sequence does not match store", ": an earlier write failed; a disk may be full"
#: The names in the subject of a request: that of the stream and that of the consumer.
_NAMED = re.compile(r"\.(?:STREAM|CONSUMER)\.(?:(?:MSG|PEER|LEADER|DURABLE)\.)?[A-Z]+\.([^.]+)(?:\.([^.]+))?")


class ApiRequests:
    """Sends requests under `$JS.API.` and raises the servers' errors as NatsFailure `api_error` with their `err_code`."""

    silence = ""
    _prefix = "$JS.API"

    def __init__(self, client: Client, account: str | None = None, label: str | None = None) -> None:
        self._client = client
        self.account = account
        self.label = label or account or ""

    def call(self, subject: str, body: Mapping[str, Any] | None = None, timeout: float | None = None) -> dict[str, Any]:
        """Return the reply to one request; `subject` is without `$JS.API.`. Raises NatsFailure."""
        answer = self._answer(self._client.request_many([self._call(subject, body)], timeout)[0])
        if isinstance(answer, NatsFailure):
            raise answer
        return answer

    def call_many(
        self, requests: Sequence[tuple[str, Mapping[str, Any] | None]], timeout: float | None = None
    ) -> list[Answer]:
        """Return, in the same order, each request's reply or failure, with at most CONCURRENT_CALLS in progress."""
        answers: list[Answer] = []
        for start in range(0, len(requests), CONCURRENT_CALLS):
            calls = [self._call(subject, body) for subject, body in requests[start : start + CONCURRENT_CALLS]]
            answers += [self._answer(outcome) for outcome in self._client.request_many(calls, timeout)]
        return answers

    def _call_for(
        self, subject: str, members: Members, body: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return the reply to one request. Raises NatsFailure; bad_reply if the reply lacks these members."""
        answer = self.call(subject, body, timeout)
        self._require_members(answer, members, f"{self._prefix}.{subject}")
        return answer

    def _require_members(self, answer: Mapping[str, Any], members: Members, subject: str) -> None:
        wrong = misshapen(answer, members)
        if wrong:
            reason = f"the reply has no valid {', '.join(wrong)}; a client of the account may have sent it"
            raise NatsFailure("bad_reply", reason, subject=subject, account=self.account)

    def _call(self, subject: str, body: Mapping[str, Any] | None) -> Call:
        payload = json.dumps(body).encode() if body else b""
        return Call(f"{self._prefix}.{subject}", payload, idempotent=bool(_READS.match(subject)))

    def _answer(self, outcome: Reply | NatsFailure) -> Answer:
        if isinstance(outcome, NatsFailure):
            outcome.account = self.account
            if outcome.code in ("timeout", "no_responders"):
                outcome.description = f"{outcome.description}: {self.silence}"
            return outcome
        try:
            document = json.loads(outcome.body, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as broken:
            return self._bad_reply(outcome, f"the reply is not complete JSON: {broken}")
        if not isinstance(document, dict):
            return self._bad_reply(outcome, "the reply is not a JSON object")
        error = document.get("error")
        if not error:
            return document
        if not isinstance(error, dict):
            return self._bad_reply(outcome, "the reply has an error that is not a JSON object")
        code = error.get("err_code") if isinstance(error.get("err_code"), int) else None
        # Any client of the account may have sent the reply.
        description = " ".join(str(error.get("description", "no description")).split())
        if code in (STREAM_NOT_FOUND, CONSUMER_NOT_FOUND):
            description += self._named(outcome.subject, code)
        hint = _HINTS.get(code or 0, _DISK_HINT if _NOT_STORED in description else "")
        return NatsFailure(
            "api_error",
            f"{printable(description)} (JetStream error {code}){hint}",
            subject=outcome.subject,
            account=self.account,
            err_code=code,
        )

    def _named(self, subject: str, code: int) -> str:
        """Return the stream or consumer of a request as the end of a message, because servers do not name missing
        assets."""
        found = _NAMED.search(subject)
        if not found:
            return ""
        names = [self.label, found[1], found[2] if code == CONSUMER_NOT_FOUND else ""]
        return f": {'/'.join(name for name in names if name)}"

    def _bad_reply(self, reply: Reply, description: str) -> NatsFailure:
        return NatsFailure("bad_reply", description, subject=reply.subject, account=self.account)
