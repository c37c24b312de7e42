# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which servers may leave a cluster, where their replicas are moved, and the reasons for refusals."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, JetStreamSummary, Stream
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.scale_in import (
    ScaleInPlan,
    ScaleInRules,
    plan_scale_in,
)
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, meta, server, stream

FIVE = ["n1", "n2", "n3", "n4", "n5"]
ROOM = JetStreamSummary(max_storage=1000, max_memory=100)


def there(names: list[str], *streams: Stream, api_level: int = 0) -> Cluster:
    room = replace(ROOM, api_level=api_level)
    return replace(cluster(names, *streams), servers=tuple(server(name, summary=room) for name in names))


def codes(plan: ScaleInPlan, severity: str = "error") -> list[str]:
    return [problem.code for problem in plan.problems if problem.severity == severity]


def test_leaving_server_is_not_a_candidate() -> None:
    among = there(FIVE, stream("A", ["n1", "n4", "n5"]), stream("B", ["n5", "n2", "n3"]))
    plan = plan_scale_in(among, ["n4", "n5"], ScaleInRules())
    assert plan.problems == ()
    assert {(move.stream, move.source, move.target) for move in plan.moves} <= {
        (name, source, target)
        for name in ("APP/A", "APP/B")
        for source in ("n4", "n5")
        for target in ("n1", "n2", "n3")
    }
    assert [move.source for move in plan.moves] == ["n4", "n5", "n5"]
    assert plan.meta_after == 3


def test_too_many_replicas_for_those_that_stay() -> None:
    plan = plan_scale_in(there(FIVE, stream("A", FIVE)), ["n5"], ScaleInRules())
    assert codes(plan) == ["scale_in_no_room"]
    assert "R5" in plan.problems[-1].message
    assert codes(plan, "warning") == ["scale_in_even"]


def test_the_meta_group_keeps_its_members_and_one_to_spare() -> None:
    assert codes(plan_scale_in(there(["n1", "n2", "n3"]), ["n3"], ScaleInRules())) == ["scale_in_too_few"]
    assert codes(plan_scale_in(there(["n1", "n2", "n3", "n4"]), ["n4"], ScaleInRules())) == []
    behind = replace(there(["n1", "n2", "n3", "n4"]), meta=meta(["n1", "n2", "n3", "n4"], ("n2",)))
    assert codes(plan_scale_in(behind, ["n4"], ScaleInRules())) == ["scale_in_no_spare"]
    silent = replace(there(["n1", "n2", "n4"]), meta=meta(["n1", "n2", "n3", "n4"]))
    assert codes(plan_scale_in(silent, ["n4"], ScaleInRules())) == ["scale_in_no_spare"]
    assert codes(plan_scale_in(replace(silent, meta=None), ["n4"], ScaleInRules())) == ["meta_no_leader"]


def test_a_server_that_left_is_not_an_obstacle() -> None:
    assert plan_scale_in(there(["n1", "n2", "n3"]), ["n4"], ScaleInRules()) == ScaleInPlan(order=("n4",), meta_after=3)


def test_single_replicas_of_a_running_server_move_only_where_that_is_safe() -> None:
    rules = ScaleInRules(r1_policy="move")
    old, new = there(FIVE[:4], stream("A", ["n4"])), there(FIVE[:4], stream("A", ["n4"]), api_level=5)
    assert codes(plan_scale_in(old, ["n4"], ScaleInRules())) == ["scale_in_single_replica"]
    assert codes(plan_scale_in(old, ["n4"], rules)) == codes(plan_scale_in(new, ["n4"], ScaleInRules())) == []


def test_possible_loss_with_a_dead_server_is_reported() -> None:
    among = replace(there(["n1", "n2", "n3"]), meta=meta(["n1", "n2", "n3", "n4"]))
    plan = plan_scale_in(among, ["n4"], ScaleInRules(), ["APP/A", "APP/B/one"], ["OTHER"])
    assert codes(plan) == ["scale_in_loss", "scale_in_loss", "scale_in_unread_account"]
    assert "APP/B/one" in plan.problems[1].message and "OTHER" in plan.problems[2].message
    plan = plan_scale_in(among, ["n4"], ScaleInRules(accept_loss=frozenset(["APP/A"])), ["APP/A"])
    assert codes(plan) == [] and codes(plan, "warning") == ["scale_in_loss"]
    assert codes(plan_scale_in(there(FIVE), ["n4"], ScaleInRules(), ["APP/A"], ["OTHER"])) == [], (
        "a running server loses nothing"
    )


def test_servers_that_are_down_leave_first() -> None:
    among = replace(there(["n1", "n2", "n3", "n4"]), meta=meta(["n1", "n2", "n3", "n4", "n5", "n6"]))
    assert plan_scale_in(among, ["n4", "n6", "n5"], ScaleInRules()).order == ("n6", "n5", "n4")


@given(clusters(), st.data())
def test_no_plan_without_errors_breaks_a_quorum_or_a_group(among: Cluster, data: st.DataObject) -> None:
    among = replace(among, servers=tuple(replace(item, summary=ROOM) for item in among.servers))
    leaving = data.draw(st.lists(st.sampled_from(sorted(among.names)), unique=True, max_size=3))
    plan = plan_scale_in(among, leaving, ScaleInRules(min_servers=1))
    if codes(plan):
        return
    moves = {(move.stream, move.source) for move in plan.moves}
    for item in among.streams:
        members = set(item.group.members)
        gone = members & set(leaving)
        assert {(f"APP/{item.name}", name) for name in gone} <= moves
        targets = [move.target for move in plan.moves if move.stream == f"APP/{item.name}"]
        after = (members - gone) | set(targets)
        assert len(after) == len(members) and not after & set(leaving)
