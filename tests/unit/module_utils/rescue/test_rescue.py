# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests rescues that must not continue or have no visible effect: their result, and the state that they leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils import waiting
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    META,
    Cluster,
    MetaGroup,
    RaftGroup,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.rescue_state import (
    RescueHost,
    RescueOptions,
    Sight,
    Stored,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.run_rescue import (
    Rescue,
    RescueFailed,
    RescueSettings,
)
from support.clusters import server, stream

FIVE = ["n1", "n2", "n3", "n4", "n5"]
LEFT = FIVE[:2]
DEAD = frozenset(FIVE[2:])
ORDERS = stream("ORDERS", LEFT)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    return made


class Clock:
    """A clock that advances only during waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Accounts(Connections):
    def __init__(self) -> None:
        super().__init__(ConnectionOptions(servers=("nats://a",)), {})

    @property
    def own(self) -> Any:
        """The system account's connection receives no requests."""
        return None


class Meta:
    """A fake meta group: elects a leader on request unless `stuck`, and removes servers unless `keeps` is set."""

    def __init__(self, *, stuck: bool = False, keeps: bool = False) -> None:
        self.stuck, self.keeps = stuck, keeps
        self.leader = ""
        self.members = list(FIVE)
        self.removals: list[str] = []

    def rescue(self, quorum: int, servers: int) -> list[dict[str, Any]]:
        self.leader = "" if self.stuck else "n1"
        return [{"server": name, "applied": True, "quorum": quorum} for name in LEFT[:servers]]

    def remove_server(self, name: str, _peer: str = "") -> None:
        self.removals.append(name)
        if not self.keeps:
            self.members.remove(name)

    def cluster(self, *streams: Stream) -> Cluster:
        leaders = (self.leader,) if self.leader else ()
        group = RaftGroup(META, "meta group", len(self.members), leaders, (), tuple(self.members), tuple(LEFT))
        views = dict.fromkeys(LEFT, self.leader)
        meta = MetaGroup(group, views=views, sizes=dict.fromkeys(LEFT, len(self.members)), quorum_needed=2)
        return Cluster(tuple(server(name, version="2.15.1") for name in LEFT), meta, streams)


class Told(Rescue):
    """A rescue of a cluster of five servers that lost three. `assigned`: the streams in the meta leader's list after
    its election; `after`: the stream after the dead servers have been removed."""

    def __init__(self, directory: Path, meta: Meta, assigned: set[str], after: Stream | None = ORDERS) -> None:
        hosts = {name: RescueHost(name) for name in DEAD}
        settings = RescueSettings(frozenset(FIVE), observe=0, timeout=4.0, directory=str(directory))
        super().__init__(Accounts(), RescueOptions(DEAD), hosts, settings)
        self._told, self._hosts_told, self._assigned_told, self._after = meta, hosts, assigned, after
        self._meta = meta  # type: ignore[assignment]

    def _cluster(self) -> Cluster:
        return self._told.cluster()

    def look(self) -> Sight:
        now = ORDERS if DEAD.intersection(self._told.members) else self._after
        held = {("APP", "ORDERS"): dict.fromkeys(LEFT, Stored(20, 20))} if now else {}
        assigned = frozenset(self._assigned_told) if self._told.leader else None
        return Sight(self._told.cluster(*([now] if now else [])), held, self._hosts_told, assigned)


def caught_failure(rescue: Rescue) -> RescueFailed:
    plan = rescue.plan()
    assert plan.due and plan.removals == ("n3", "n4", "n5"), plan
    with pytest.raises(RescueFailed) as raised:
        rescue.carry_out(plan)
    return raised.value


def test_without_a_leader_nothing_is_removed(tmp_path: Path) -> None:
    meta = Meta(stuck=True)
    failure = caught_failure(Told(tmp_path, meta, {"APP/ORDERS"}))
    assert (failure.code, failure.done, meta.removals) == ("rescue_not_seen", [], [])
    assert failure.description.startswith("no meta leader was elected within 4 s")
    assert failure.description.endswith("Nothing was removed.")


def test_unaccepted_loss_is_refused_once_a_leader_reports_it(tmp_path: Path) -> None:
    meta = Meta()
    failure = caught_failure(Told(tmp_path, meta, {"APP/ORDERS", "APP/SCRATCH"}))
    assert (failure.code, failure.done, meta.removals) == ("rescue_refused", [], [])
    assert failure.description.startswith(
        "Nothing was removed, and the meta group loses its leader again in five minutes"
    )
    assert "only dead servers had APP/SCRATCH" in failure.description
    assert len(list(tmp_path.glob("rescue-*.json"))) == 1, "the next run resumes from the saved state"


def test_a_server_that_is_not_forgotten_ends_the_rescue(tmp_path: Path) -> None:
    meta = Meta(keeps=True)
    failure = caught_failure(Told(tmp_path, meta, {"APP/ORDERS"}))
    assert (failure.code, failure.server, meta.removals) == ("removal_not_seen", "n3", ["n3"] * 9)
    assert [step["action"] for step in failure.done] == ["rescue"]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (None, "stream APP/ORDERS does not exist"),
        (replace(ORDERS, group=replace(ORDERS.group, leaders=())), "stream APP/ORDERS has no leader"),
    ],
)
def test_stream_that_does_not_come_back_is_a_failure(after: Stream | None, reason: str, tmp_path: Path) -> None:
    meta = Meta()
    failure = caught_failure(Told(tmp_path, meta, {"APP/ORDERS"}, after))
    assert (failure.code, failure.description) == ("rescue_not_seen", f"after 4 s: {reason}")
    assert meta.removals == ["n3", "n4", "n5"]
    assert [step["action"] for step in failure.done] == ["rescue", "remove", "remove", "remove"]


def test_a_rescue_that_is_seen_leaves_no_record(tmp_path: Path) -> None:
    meta = Meta()
    rescue = Told(tmp_path, meta, {"APP/ORDERS"})
    done = rescue.carry_out(rescue.plan())
    assert done[-1]["seen"] == "the meta group and 1 stream have leaders, with all messages of the servers"
    assert list(tmp_path.iterdir()) == []
