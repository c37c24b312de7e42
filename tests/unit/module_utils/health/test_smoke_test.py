# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stream of a smoke test is always deleted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.smoke_test import try_stream
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    ConnectionOptions,
    NatsFailure,
    Reply,
)

NAME = "SMOKE_TEST_1"
GOOD = base64.b64encode(f"a message of {NAME}".encode()).decode()
LOST = NatsFailure("timeout", "no reply within 5 s")
REFUSED = NatsFailure("permission", "the server refused the request")
Answer = Callable[[Call], Any]


def error(err_code: int, description: str = "no") -> dict[str, Any]:
    return {"error": {"err_code": err_code, "description": description}}


CREATED = {"config": {"name": NAME, "num_replicas": 3, "subjects": []}, "created": "2026-01-01T00:00:00Z", "state": {}}


class Server:
    """A client whose server has a reply for each operation: CREATE, GET, DELETE, and WRITE for the message."""

    options = ConnectionOptions(("nats://127.0.0.1:4222",))

    def __init__(self, **answers: Any) -> None:
        done = {"CREATE": CREATED, "WRITE": {"seq": 1}, "GET": {"message": {"data": GOOD}}, "DELETE": {}}
        self.answers = {**done, **answers}
        self.asked: list[str] = []
        self.configs: list[dict[str, Any]] = []

    def _reply(self, call: Call) -> Reply | NatsFailure:
        words = ("CREATE", "GET", "DELETE")
        kind = next((word for word in words if f".{word}." in call.subject), "WRITE")
        self.asked.append(kind)
        if kind == "CREATE":
            self.configs.append(json.loads(call.payload))
        answer = self.answers[kind]
        if isinstance(answer, list):
            answer = answer.pop(0)
        return answer if isinstance(answer, NatsFailure) else Reply(call.subject, json.dumps(answer).encode(), 0.0)

    def request_many(self, calls: Sequence[Call], timeout: float | None = None) -> list[Reply | NatsFailure]:
        return [self._reply(call) for call in calls]

    def request(self, call: Call, timeout: float | None = None) -> Reply:
        reply = self._reply(call)
        if isinstance(reply, NatsFailure):
            raise reply
        return reply


def attempt(server: Server, wait: float = 0.01) -> tuple[int, str]:
    # The module's clients also have these methods.
    found = try_stream(server, server, "APP", NAME, "s.stream", 3, wait)  # type: ignore[arg-type]
    return found.replicas, found.reason


def test_a_stream_is_created_written_read_and_deleted() -> None:
    server = Server()
    assert attempt(server) == (3, "")
    assert server.asked == ["CREATE", "WRITE", "GET", "DELETE"]


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"WRITE": LOST}, (3, "it cannot be written: no reply within 5 s")),
        ({"WRITE": error(10077, "full")}, (3, "it cannot be written: full")),
        ({"WRITE": {"seq": 0, "duplicate": True}}, (3, "it cannot be written: no leader has stored it yet")),
        ({"WRITE": REFUSED}, (0, "it cannot be written: the server refused the request")),
        ({"GET": error(10037, "no message found")}, (3, "it cannot be read: no message found (JetStream error 10037)")),
        ({"GET": {"message": {"data": "eA=="}}}, (3, "it returned a different message from the written one")),
        ({"CREATE": [LOST, CREATED]}, (3, "")),
    ],
)
def test_it_is_deleted_after_any_failure(answers: dict[str, Any], found: tuple[int, str]) -> None:
    server = Server(**answers)
    assert attempt(server, wait=60 if isinstance(answers.get("CREATE"), list) else 0.01) == found
    assert server.asked[-1] == "DELETE"


def test_a_stream_that_stays_is_named() -> None:
    replicas, reason = attempt(Server(DELETE=error(10052, "delete failed")))
    assert replicas == 3
    assert reason.startswith(f"{NAME} could not be deleted, delete it by hand: delete failed")
    assert attempt(Server(DELETE=error(10059))) == (3, "")


def test_a_creation_without_a_reply_may_have_left_a_stream() -> None:
    lost = Server(CREATE=LOST, DELETE=error(10059))
    replicas, reason = attempt(lost)
    assert (replicas, lost.asked[-1]) == (3, "DELETE")
    assert reason.startswith("it cannot be created: no reply within 5 s") and "by hand" not in reason
    assert "by hand" in attempt(Server(CREATE=LOST, DELETE=LOST))[1]


@pytest.mark.parametrize("refusal", [REFUSED, error(10039), error(10027), error(10023), error(10047)])
def test_missing_permission_of_the_account_is_not_a_failure(refusal: Any) -> None:
    server = Server(CREATE=refusal)
    assert attempt(server)[0] == 0
    assert server.asked == ["CREATE"]


def test_fewer_servers_make_fewer_replicas() -> None:
    server = Server(CREATE=[error(10005), CREATED])
    assert attempt(server) == (1, "")
    assert [config["num_replicas"] for config in server.configs] == [3, 1]
    alone = Server(CREATE=error(10005, "no suitable peers"))
    assert attempt(alone) == (3, "it cannot be created: no suitable peers (JetStream error 10005)")
