# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recreated consumers have their previous positions, no matter which replica their leader has."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.consumer_places import place_consumers
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import Listing

CONFIG = {"name": "c", "deliver_policy": "by_start_sequence", "opt_start_seq": 61}


class Api:
    """A stream of 100 messages. Each time, the consumer is created on the next of these replicas, which are given by
    their numbers of messages."""

    def __init__(self, replicas: list[int], delivered: int = 0, fail: int = 0) -> None:
        self.replicas = replicas
        self.consumer: dict[str, Any] | None = None
        self.fail = fail
        self._delivered = delivered
        self.calls: list[str] = []
        self.save_consumer("S", CONFIG, "create")

    def save_consumer(self, _stream: str, config: dict[str, Any], _action: str) -> None:
        self.calls.append("create")
        if self.fail and len(self.calls) > 1:
            self.fail -= 1
            raise NatsFailure("timeout", "no answer")
        held = self.replicas.pop(0) if len(self.replicas) > 1 else self.replicas[0]
        begin = min(config["opt_start_seq"], held + 1)
        position = {"stream_seq": begin - 1 + self._delivered, "consumer_seq": self._delivered}
        self.consumer = {"name": "c", "config": config, "delivered": position, "num_pending": held - begin + 1}

    def delete_consumer(self, _stream: str, _name: str) -> None:
        self.calls.append("delete")
        self.consumer = None

    def consumers(self, _stream: str) -> Listing:
        return Listing((self.consumer,) if self.consumer else (), {})


def placed(api: Api, retention: str = "limits") -> list[str]:
    return place_consumers(api, "S", {"c": CONFIG}, 100, retention, 0.3)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)


def test_a_consumer_on_a_replica_that_is_being_copied_is_created_again() -> None:
    api = Api([0, 9, 75])
    assert placed(api) == []
    assert api.calls == ["create", "delete", "create", "delete", "create"]
    # The replica receives its remaining messages while the consumer has its position.
    assert api.consumer is not None and api.consumer["delivered"]["stream_seq"] == 60


def test_one_that_is_where_it_was_is_left_alone() -> None:
    api = Api([100])
    assert placed(api) == [] and api.calls == ["create"]


def test_one_whose_deletion_was_the_last_that_worked_is_created() -> None:
    api = Api([0, 100], fail=2)
    assert placed(api) == []
    assert api.consumer is not None and api.calls == ["create", "delete", "create", "create", "create"]


def test_one_that_has_delivered_or_whose_deletion_may_remove_messages_is_reported() -> None:
    for api, retention in ((Api([9], delivered=3), "limits"), (Api([9]), "interest"), (Api([9]), "workqueue")):
        assert placed(api, retention) == ["consumer c would start before its position"]
        assert api.calls == ["create"]


def test_a_replica_that_stays_behind_is_reported() -> None:
    assert placed(Api([9])) == ["consumer c would start before its position"]
