# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the refusals of a repair between its plan and its action, and a repair without a visible effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import Expectations
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import Listing
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.repair_plan import RepairOptions, RepairStep
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.run_repair import (
    Repair,
    RepairSettings,
    carry_out_all,
)
from support.clusters import cluster, consumer, stream

THREE = ["n1", "n2", "n3"]
CONFIG = {"durable_name": "worker", "name": "worker", "deliver_policy": "all", "ack_policy": "explicit"}


class Account:
    """The stream ORDERS of one account. `leaderless`: its worker elects no leader, even after being recreated;
    `deaf`: the worker is not deleted either; `early`: how often a recreated worker begins before its position."""

    def __init__(self, *, leaderless: bool = False, deaf: bool = False, early: int = 0) -> None:
        self.leaderless, self.deaf, self.early = leaderless, deaf, early
        self.config: Mapping[str, Any] = CONFIG
        self.begins = 12
        self.changes: list[str] = []
        self.there = True

    def stream(self, name: str) -> dict[str, Any]:
        config = {"name": name, "num_replicas": 3, "retention": "limits"}
        return {"config": config, "state": {"first_seq": 1, "last_seq": 20}}

    def consumer(self, stream: str, name: str) -> dict[str, Any]:
        peers = [{"name": peer, "current": True, "active": 1} for peer in THREE[1:]]
        view = {"name": "C1", "leader": "" if self.leaderless else "n1", "replicas": peers}
        floor = {"ack_floor": {"stream_seq": 12}, "delivered": {"stream_seq": self.begins}}
        return {"stream_name": stream, "name": name, "config": self.config, "cluster": view, **floor}

    def consumers(self, stream: str) -> Listing:
        return Listing((self.consumer(stream, "worker"),), {})

    def consumer_names(self, _stream: str) -> list[str]:
        return ["worker"] if self.there else []

    def delete_consumer(self, _stream: str, name: str) -> None:
        self.changes.append(f"delete {name}")
        self.there = self.deaf

    def save_consumer(self, _stream: str, config: Mapping[str, Any], action: str) -> dict[str, Any]:
        self.changes.append(f"{action} {config['name']}")
        self.there, self.config, self.begins = True, config, 3 if self.early else 12
        self.early = max(0, self.early - 1)
        return {"config": CONFIG}


class Accounts(Connections):
    def __init__(self, account: Account) -> None:
        super().__init__(ConnectionOptions(servers=("nats://a",)), {})
        self._account = account

    @property
    def own(self) -> Any:
        """The system account's connection receives no requests."""
        return None

    def account(self, account: str | None) -> Any:
        return self._account


class Seen(Repair):
    """Returns these clusters in order, then repeats the last one. The worker's ack floor is 12."""

    def __init__(self, directory: Path, account: Account, *looks: Cluster) -> None:
        settings = RepairSettings(Expectations(), observe=0, timeout=0.1, directory=str(directory))
        super().__init__(Accounts(account), RepairOptions(), settings)
        self._looks = list(looks)

    def look(self) -> Cluster:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def _replicas(self, finding: Any, cluster: Cluster) -> list[Mapping[str, Any]]:
        return [{"config": CONFIG, "ack_floor": {"stream_seq": 12}, "delivered": {"stream_seq": 15}}]


def broken() -> Cluster:
    """Return a cluster whose worker has no leader although all of its members respond."""
    worker = consumer("ORDERS", "worker", THREE)
    worker = replace(worker, group=replace(worker.group, leaders=(), peers=()))
    return cluster(THREE, replace(stream("ORDERS", THREE), consumers=(worker,), first_seq=1, last_seq=20))


def without_meta_leader(one: Cluster) -> Cluster:
    assert one.meta is not None
    return replace(one, meta=replace(one.meta, group=replace(one.meta.group, leaders=(), peers=())))


def planned(repair: Repair) -> list[RepairStep]:
    steps = repair.plan()
    assert [(step.finding.label, step.fix, step.refused) for step in steps] == [("APP/ORDERS/worker", "recreate", "")]
    return steps


def caught_failure(repair: Repair) -> NatsFailure:
    done, failure = carry_out_all(repair, planned(repair))
    assert done == [] and failure is not None
    return failure


def test_repairs_that_became_unsafe_are_refused(tmp_path: Path) -> None:
    account = Account()
    failure = caught_failure(Seen(tmp_path, account, broken(), broken(), without_meta_leader(broken())))
    assert failure.code == "repair_refused"
    assert failure.description == (
        "consumer APP/ORDERS/worker: there is no meta leader to carry it out. Nothing was changed."
    )
    assert account.changes == [] and list(tmp_path.iterdir()) == []


def test_solved_findings_are_left_alone(tmp_path: Path) -> None:
    account = Account()
    healed = cluster(THREE, stream("ORDERS", THREE))
    repair = Seen(tmp_path, account, broken(), broken(), healed)
    done, failure = carry_out_all(repair, planned(repair))
    assert failure is None and account.changes == []
    assert [(step["changed"], step["seen"]) for step in done] == [(False, "it no longer exists")]


@pytest.mark.parametrize(
    ("account", "reason", "changes"),
    [
        (Account(deaf=True), "it still exists after", {"delete worker"}),
        (
            Account(leaderless=True),
            "it was recreated, but: consumer APP/ORDERS/worker",
            {"delete worker", "create worker"},
        ),
    ],
)
def test_repair_without_effect_fails_and_its_record_stays(
    account: Account, reason: str, changes: set[str], tmp_path: Path
) -> None:
    failure = caught_failure(Seen(tmp_path, account, broken()))
    assert failure.code == "repair_not_seen"
    assert reason in failure.description
    assert set(account.changes) == changes
    assert len(list(tmp_path.glob("repair-*.json"))) == 1


@pytest.mark.parametrize(("early", "creations"), [(0, 1), (1, 2)])
def test_a_consumer_that_begins_before_its_floor_is_created_again(tmp_path: Path, early: int, creations: int) -> None:
    account = Account(early=early)
    caught_failure(Seen(tmp_path, account, broken()))
    assert account.changes == ["delete worker", "create worker"] * creations and account.begins == 12


def test_complete_consumer_that_is_still_reported_fails(tmp_path: Path) -> None:
    failure = caught_failure(Seen(tmp_path, Account(), broken()))
    assert failure.code == "repair_not_seen"
    assert "it was fixed, but the servers still report it" in failure.description
