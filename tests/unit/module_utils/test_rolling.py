# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches of a rolling restart: the invariant on random superclusters, and the cases that have one right answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils._model import Cluster, Stream
from ansible_collections.natsops.jetstream.plugins.module_utils._rolling import (
    RollPlan,
    RollRules,
    batch_effects,
    plan_roll,
)
from clusters import (  # type: ignore[import-not-found, unused-ignore]
    cluster,
    consumer,
    meta,
    server,
    stream,
)
from hypothesis import given, settings
from hypothesis import strategies as st

PARALLEL = RollRules(max_parallel=0)


def supercluster(clusters: int, servers: int, streams: int, replicas: tuple[int, ...] = (3,)) -> tuple[Cluster, dict[str, str]]:
    """Return clusters with servers in three zones; their streams go round the servers, one replica a zone where possible."""
    members = [[f"n{number}-c{index}" for number in range(servers)] for index in range(clusters)]
    names = [name for group in members for name in group]
    made = tuple(
        stream(f"S{index}-{number}", [names_of[(number + step) % servers] for step in range(replicas[number % len(replicas)])])
        for index, names_of in enumerate(members)
        for number in range(streams)
    )
    found = tuple(server(name, cluster=name.rpartition("-")[2]) for name in sorted(names))
    zones = {name: f"z{number % 3}" for group in members for number, name in enumerate(group)}
    return Cluster(found, meta(names), made), zones


def names_of(plan: RollPlan) -> list[str]:
    return [name for batch in plan.batches for name in batch]


def broken(state: Cluster, batch: tuple[str, ...], zones: dict[str, str], rules: RollRules) -> list[str]:
    """Return what a batch breaks of the invariant, computed from nothing but the words of the invariant."""
    down = set(batch)
    found = []
    for group in state.groups():
        gone = len(down & set(group.members))
        if group.size > 1 and gone > max(rules.members_down, 1):
            found.append(f"{group.subject}: {gone} members down")
        if group.size > 2 and group.size - gone < group.quorum:
            found.append(f"{group.subject}: no quorum")
    assert state.meta is not None
    gone = len(down & set(state.meta.group.members))
    if gone > 1 and state.meta.group.size - gone < state.meta.quorum + rules.meta_spare:
        found.append("meta group: no spare")
    for name in {item.cluster for item in state.servers}:
        mine = [item.name for item in state.servers if item.cluster == name and item.name in down]
        whole = sum(item.cluster == name for item in state.servers)
        if len(mine) > 1 and 2 * len(mine) >= whole:
            found.append(f"{name}: {len(mine)} of {whole} servers down")
        if len({zones.get(one) for one in mine}) > 1:
            found.append(f"{name}: more than one zone")
    return found


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Cluster, dict[str, str], list[str], RollRules]:
    names: list[str] = []
    streams: list[Stream] = []
    for index in range(draw(st.integers(1, 4))):
        mine = [f"n{number}-c{index}" for number in range(draw(st.integers(1, 7)))]
        names += mine
        for number in range(draw(st.integers(0, 12))):
            size = draw(st.sampled_from([size for size in (1, 2, 3, 5) if size <= len(mine)]))
            chosen = draw(st.permutations(mine))[:size]
            made = stream(f"S{index}-{number}", chosen)
            streams.append(replace(made, consumers=(consumer(made.name, "c", chosen[:1] if size == 1 else chosen),)))
    state = Cluster(
        tuple(server(name, cluster=name.rpartition("-")[2]) for name in sorted(names)), meta(names), tuple(streams)
    )
    zoned = draw(st.booleans())
    zones = {name: f"z{draw(st.integers(0, 2))}" for name in names} if zoned else {}
    wanted = draw(st.lists(st.sampled_from(names), unique=True))
    rules = RollRules(
        max_parallel=draw(st.integers(0, 4)),
        members_down=draw(st.integers(1, 2)),
        meta_spare=draw(st.integers(0, 2)),
        canary=draw(st.integers(0, 2)),
    )
    return state, zones, wanted, rules


@settings(max_examples=400, deadline=None)
@given(fleets())
def test_no_plan_breaks_the_invariant(fleet: tuple[Cluster, dict[str, str], list[str], RollRules]) -> None:
    state, zones, wanted, rules = fleet
    plan = plan_roll(state, wanted, zones, rules)
    assert sorted(names_of(plan)) == sorted(wanted)
    for batch in plan.batches:
        assert broken(state, batch, zones, rules) == []
        assert not rules.max_parallel or len(batch) <= rules.max_parallel
    assert plan.lower_bound <= len(plan.batches) <= plan.lower_bound + 1
    assert all(len(batch) == 1 for batch in plan.batches[: rules.canary])
    assert state.meta is not None
    if state.meta.group.leader in wanted:
        assert state.meta.group.leader in plan.batches[-1]
    assert plan_roll(state, list(reversed(wanted)), zones, rules) == plan


def test_one_after_another_with_the_meta_leader_last() -> None:
    plan = plan_roll(cluster(["n1", "n2", "n3"]), ["n1", "n2", "n3"], {}, RollRules())
    assert plan.batches == (("n2",), ("n3",), ("n1",))


def test_a_supercluster_rolls_in_a_few_waves() -> None:
    state, zones = supercluster(clusters=9, servers=5, streams=40)
    plan = plan_roll(state, [item.name for item in state.servers], zones, PARALLEL)
    assert len(plan.batches) == plan.lower_bound == 5
    # With fewer streams than pairs of servers, two servers of a zone that share no stream go together.
    state, zones = supercluster(clusters=9, servers=6, streams=0)
    assert len(plan_roll(state, [item.name for item in state.servers], zones, PARALLEL).batches) == 3


def test_five_replicas_may_miss_two_when_asked() -> None:
    names = [f"n{number}" for number in range(5)]
    state = cluster(names, stream("A", names))
    rules = replace(PARALLEL, meta_spare=0)
    assert len(plan_roll(state, names, {}, rules).batches) == 5
    assert len(plan_roll(state, names, {}, replace(rules, members_down=2)).batches) == 3
    assert len(plan_roll(state, names, {}, replace(PARALLEL, members_down=2)).batches) == 5, "the meta group has no spare"


def test_dead_servers_come_first_and_together() -> None:
    state = cluster(["n1", "n2", "n3", "n4", "n5"], stream("A", ["n1", "n2", "n3"]))
    alive = replace(state, servers=tuple(item for item in state.servers if item.name not in ("n2", "n3")))
    plan = plan_roll(alive, ["n1", "n2", "n3", "n4"], {}, RollRules())
    assert plan.batches == (("n2", "n3"), ("n4",), ("n1",))


def test_the_canary_leads_the_least() -> None:
    state = cluster(["n1", "n2", "n3"], stream("A", ["n2", "n3", "n1"]))
    plan = plan_roll(state, ["n1", "n2", "n3"], {}, RollRules(canary=1))
    assert plan.batches == (("n3",), ("n2",), ("n1",))


@pytest.mark.parametrize(("policy", "severity"), [("accept", "warning"), ("fail", "error")])
def test_groups_without_a_spare_replica_are_named(policy: str, severity: str) -> None:
    state = cluster(["n1", "n2", "n3"], stream("ONE", ["n2"]), stream("TWO", ["n1", "n3"]), stream("THREE", ["n1", "n2", "n3"]))
    plan = plan_roll(state, ["n2", "n3"], {}, RollRules(few_replicas=policy))
    assert [(problem.subject, problem.severity) for problem in plan.problems] == [
        ("stream APP/ONE", severity),
        ("stream APP/TWO", severity),
    ]
    assert "2 of 2 replicas make its quorum" in plan.problems[1].message


def test_a_meta_group_of_two_is_named() -> None:
    plan = plan_roll(cluster(["n1", "n2"]), ["n1"], {}, RollRules())
    assert [problem.code for problem in plan.problems] == ["roll_meta_quorum"]


def test_reasons_and_effects_go_with_the_batches() -> None:
    state = cluster(["n1", "n2", "n3", "n4"], stream("A", ["n2", "n3", "n1"]), stream("B", ["n2", "n3", "n4"]))
    state = replace(state, servers=tuple(item for item in state.servers if item.name != "n4"))
    plan = plan_roll(state, ["n1", "n2", "n3", "n4"], {}, RollRules(canary=1))
    assert plan.batches == (("n4",), ("n3",), ("n2",), ("n1",))
    assert [reason.partition(":")[0] for reason in plan.reasons] == [
        "did not answer", "canary", "", "has the meta leader, so it comes last"
    ]
    found = [(effect.leaders, effect.groups) for effect in batch_effects(state, plan.batches)]
    assert found == [(0, 1), (0, 2), (2, 2), (0, 1)]


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 12), st.booleans())
def test_every_leader_is_counted_once(clusters: int, servers: int, streams: int, parallel: bool) -> None:
    state, zones = supercluster(clusters, max(3, servers), streams)
    plan = plan_roll(state, sorted(state.names), zones, PARALLEL if parallel else RollRules())
    effects = batch_effects(state, plan.batches)
    assert len(plan.reasons) == len(plan.batches) == len(effects)
    assert sum(effect.leaders for effect in effects) == len(list(state.groups()))
    assert sum(effect.groups for effect in effects) == sum(len(group.members) for group in state.groups())
