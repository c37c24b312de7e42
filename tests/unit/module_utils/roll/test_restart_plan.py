# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the batches of a rolling restart: the invariant on random superclusters, and the cases with only one correct
result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import ClusterContext
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import refusal
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, Consumer, Peer, Stream
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, WARNING, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.restart_plan import (
    BatchEffect,
    RollPlan,
    RollRules,
    batch_effects,
    disk_problems,
    free_bytes,
    plan_lines,
    plan_roll,
    unreadable_refusal,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import MAX_FAIL_LINES
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import (
    cluster,
    consumer,
    meta,
    server,
    stream,
)

PARALLEL = RollRules(max_parallel=0)


def supercluster(
    clusters: int, servers: int, streams: int, replicas: tuple[int, ...] = (3,)
) -> tuple[Cluster, dict[str, str]]:
    """Return clusters with servers in three zones; their streams are spread over the servers in turn, with one replica
    in each zone if possible."""
    members = [[f"n{number}-c{index}" for number in range(servers)] for index in range(clusters)]
    names = [name for group in members for name in group]
    made = tuple(
        stream(
            f"S{index}-{number}",
            [names_in[(number + step) % servers] for step in range(replicas[number % len(replicas)])],
        )
        for index, names_in in enumerate(members)
        for number in range(streams)
    )
    found = tuple(server(name, cluster=name.rpartition("-")[2]) for name in sorted(names))
    zones = {name: f"z{number % 3}" for group in members for number, name in enumerate(group)}
    return Cluster(found, meta(names), made), zones


def names_in(plan: RollPlan) -> list[str]:
    return [name for batch in plan.batches for name in batch]


def broken(state: Cluster, batch: tuple[str, ...], zones: Mapping[str, str], rules: RollRules) -> list[str]:
    """Return a batch's violations of the invariant, computed only from the wording of the invariant."""
    down = set(batch)
    found = []
    for group in state.groups():
        gone = len(down & set(group.members))
        if group.size > 1 and gone > (max(rules.max_unavailable_replicas, 1) if group.size > 2 else 1):
            found.append(f"{group.subject}: {gone} members down")
        if group.size > 2 and group.size - gone < group.quorum:
            found.append(f"{group.subject}: no quorum")
    assert state.meta is not None
    gone = len(down & set(state.meta.group.members))
    if gone > 1 and state.meta.group.size - gone < state.meta.quorum + rules.meta_headroom:
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
        max_unavailable_replicas=draw(st.integers(1, 2)),
        meta_headroom=draw(st.integers(0, 2)),
        canary=draw(st.integers(0, 2)),
    )
    return state, zones, wanted, rules


def fewest_batches(state: Cluster, names: Sequence[str], zones: Mapping[str, str], rules: RollRules) -> int:
    """Return the minimum number of batches that the rules allow, by trying all combinations."""
    allowed = {
        frozenset(batch)
        for size in range(1, min(len(names), rules.max_parallel or len(names)) + 1)
        for batch in combinations(names, size)
        if not broken(state, batch, zones, rules)
    }

    @cache
    def fewest(left: frozenset[str]) -> int:
        if not left:
            return 0
        one = min(left)
        return 1 + min(fewest(left - batch) for batch in allowed if one in batch and batch <= left)

    return fewest(frozenset(names))


@settings(max_examples=400, deadline=None)
@given(fleets())
def test_no_plan_breaks_the_invariant(fleet: tuple[Cluster, dict[str, str], list[str], RollRules]) -> None:
    state, zones, wanted, rules = fleet
    plan = plan_roll(state, wanted, zones, rules)
    assert sorted(names_in(plan)) == sorted(wanted)
    for batch in plan.batches:
        assert broken(state, batch, zones, rules) == []
        assert not rules.max_parallel or len(batch) <= rules.max_parallel
    assert plan.lower_bound <= len(plan.batches)
    assert all(len(batch) == 1 for batch in plan.batches[: rules.canary])
    rest = [name for batch in plan.batches[rules.canary :] for name in batch]
    if len(rest) <= 7:
        # The colouring is greedy, so it may need one batch more than the optimum.
        assert len(plan.batches[rules.canary :]) <= fewest_batches(state, rest, zones, rules) + 1
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
    # With fewer streams than pairs of servers, two servers of a zone that share no stream are restarted together.
    state, zones = supercluster(clusters=9, servers=6, streams=0)
    assert len(plan_roll(state, [item.name for item in state.servers], zones, PARALLEL).batches) == 3


def test_five_replicas_may_miss_two_on_request() -> None:
    names = [f"n{number}" for number in range(5)]
    state = cluster(names, stream("A", names))
    rules = replace(PARALLEL, meta_headroom=0)
    assert len(plan_roll(state, names, {}, rules).batches) == 5
    assert len(plan_roll(state, names, {}, replace(rules, max_unavailable_replicas=2)).batches) == 3
    spare_in_meta = plan_roll(state, names, {}, replace(PARALLEL, max_unavailable_replicas=2))
    assert len(spare_in_meta.batches) == 5, "the meta group has no headroom"


def test_dead_servers_come_first_and_together() -> None:
    state = cluster(["n1", "n2", "n3", "n4", "n5"], stream("A", ["n1", "n2", "n3"]))
    alive = replace(state, servers=tuple(item for item in state.servers if item.name not in ("n2", "n3")))
    plan = plan_roll(alive, ["n1", "n2", "n3", "n4"], {}, RollRules())
    assert plan.batches == (("n2", "n3"), ("n4",), ("n1",))


def test_raft_silent_servers_come_first_and_one_by_one() -> None:
    names = ["n1", "n2", "n3", "n4", "n5"]
    state = cluster(names, stream("A", ["n1", "n2", "n3"]), stream("ONE", ["n4"]))
    assert state.meta is not None
    peers = tuple(Peer(name, current=True, active=60 if name in ("n4", "n5") else 0.5) for name in names[1:])
    quiet = replace(
        state,
        servers=tuple(replace(item, uptime=100.0) for item in state.servers if item.name != "n2"),
        meta=replace(state.meta, group=replace(state.meta.group, peers=peers)),
    )
    plan = plan_roll(quiet, ["n1", "n2", "n3", "n4", "n5"], {}, replace(PARALLEL, canary=1, r1_policy="fail"))
    assert plan.batches == (("n4",), ("n5",), ("n2",), ("n3",), ("n1",))
    assert plan.reasons[:2] == ("is raft-silent: no quorum depends on it",) * 2
    assert "is down and starts first" in plan.reasons[2]
    assert "canary" in plan.reasons[3]
    assert plan.lower_bound == 5
    assert plan.problems == (), "the gate decides about replicas on a raft-silent server"
    assert plan_roll(quiet, ["n3"], {}, RollRules()).batches == (("n3",),)


def test_the_plan_for_people() -> None:
    effects = [BatchEffect(leaders=0, groups=2), BatchEffect(leaders=1, groups=3)]
    why = {"a": ["x changed", "y changed"], "b": []}
    assert plan_lines([["a"], ["b", "c"]], why, ("is raft-silent", ""), effects) == [
        "batch 1 of 2: a (x changed; y changed)",
        "batch 1 takes 2 streams and consumers to reduced redundancy; 0 need a new leader; it is raft-silent",
        "batch 2 of 2: b",
        "batch 2 of 2: c",
        "batch 2 takes 3 streams and consumers to reduced redundancy; 1 need a new leader",
    ]
    assert plan_lines([["a"]], why) == ["batch 1 of 1: a (x changed; y changed)"]
    down = ("is down and starts first: this reduces no redundancy",)
    assert plan_lines([["b"]], why, down, [BatchEffect(leaders=0, groups=0)])[1] == f"batch 1 {down[0]}"
    assert plan_lines([], {}) == []


def test_refusals() -> None:
    errors = [
        Problem("roll_few_replicas", ERROR, "stream APP/ONE", "one", ("n1",)),
        Problem("roll_api_level", ERROR, "", "two"),
    ]
    assert (
        refusal("The restart is refused.", [Problem("roll_meta_quorum", WARNING, "", "costs")], ClusterContext()) == ""
    )
    found = [*errors, Problem("roll_meta_quorum", WARNING, "", "costs")]
    assert refusal("The restart is refused.", found, ClusterContext()).splitlines() == [
        "The restart is refused.",
        "1. stream APP/ONE cannot keep a quorum while n1 restarts",
        "   - one",
        "   $ ansible-playbook natsops.jetstream.restart -e nats_cluster_gate_r1_policy=move  # moves them first",
        "2. two",
    ]
    single = [Problem("roll_few_replicas", ERROR, f"stream APP/S{number}", "away", ("n1",)) for number in range(5000)]
    assert (
        refusal("The restart is refused.", single, ClusterContext()).splitlines()[1]
        == "1. 5000 streams cannot keep a quorum while n1 restarts"
    )
    assert len(refusal("The restart is refused.", single, ClusterContext()).splitlines()) <= MAX_FAIL_LINES
    cause, touched, _what_to_do = unreadable_refusal(["a", "b"], {"a": ["x changed"]}, "no answer").splitlines()
    assert cause == "The health gate cannot read the cluster: no answer"
    assert touched == "No server was touched. To be restarted: a (x changed), b."
    assert "system_password" in unreadable_refusal(["a"], {}, "no answer", "timeout")
    tls = unreadable_refusal(["a"], {}, "this server does not offer TLS", "tls")
    assert "system_password" not in tls and "TLS for the clients of a running cluster" in tls


def test_servers_of_one_name_are_not_rolled() -> None:
    live = cluster(["n1", "n2", "n3"])
    plan = plan_roll(replace(live, servers=(*live.servers, server("n3", id="NX"))), ["n1"], {}, RollRules())
    assert [(problem.code, problem.severity) for problem in plan.problems] == [("server_duplicate", ERROR)]


def test_the_canary_leads_the_least() -> None:
    state = cluster(["n1", "n2", "n3"], stream("A", ["n2", "n3", "n1"]))
    plan = plan_roll(state, ["n1", "n2", "n3"], {}, RollRules(canary=1))
    assert plan.batches == (("n3",), ("n2",), ("n1",))


@pytest.mark.parametrize(("policy", "severity"), [("accept", "warning"), ("fail", "error")])
def test_groups_without_a_spare_replica_are_named(policy: str, severity: str) -> None:
    state = cluster(
        ["n1", "n2", "n3"], stream("ONE", ["n2"]), stream("TWO", ["n1", "n3"]), stream("THREE", ["n1", "n2", "n3"])
    )
    plan = plan_roll(state, ["n2", "n3"], {}, RollRules(r1_policy=policy))
    assert [(problem.subject, problem.severity) for problem in plan.problems] == [
        ("stream APP/ONE", severity),
        ("stream APP/TWO", severity),
    ]
    assert "its quorum is 2 of 2 replicas" in plan.problems[1].message


def test_a_group_that_lost_a_member_for_good_cannot_spare_another() -> None:
    names = ["n1", "n2", "n3", "n4", "n5"]

    def removed(one: Stream) -> Stream:
        group = one.group
        return replace(one, group=replace(group, peers=group.peers[:-1], members=group.members[:-1]))

    three, five = removed(stream("THREE", names[:3])), removed(stream("FIVE", names))
    for policy in ("accept", "fail"):
        problems = plan_roll(cluster(names, three, five), names, {}, RollRules(r1_policy=policy)).problems
        assert [(one.code, one.severity, one.subject) for one in problems] == [
            ("roll_missing_member", ERROR, "stream APP/THREE")
        ]
    assert "has 2 of 3 members and would lose its quorum while n1 restarts: run repair first" in problems[0].message
    assert plan_roll(cluster(names, three), ["n3", "n4"], {}, RollRules()).problems == ()
    # Four members are left, and only one of them can be stopped.
    wide = RollRules(max_parallel=0, max_unavailable_replicas=2, meta_headroom=0)
    assert all(
        len({*batch} & {*five.group.members}) == 1 for batch in plan_roll(cluster(names, five), names, {}, wide).batches
    )


def test_a_consumer_in_memory_loses_its_position() -> None:
    def reader(name: str, members: list[str], **config: bool) -> Consumer:
        made = consumer("S", name, members)
        return replace(made, ack_floor=4, info={"config": config, "delivered": {"consumer_seq": 6}})

    readers = (
        reader("forgetful", ["n2"], mem_storage=True),
        reader("durable", ["n2"]),
        reader("three", ["n1", "n2", "n3"], mem_storage=True),
        replace(reader("fresh", ["n2"], mem_storage=True), info={"config": {"mem_storage": True}}),
    )
    state = cluster(["n1", "n2", "n3"], replace(stream("S", ["n1", "n2", "n3"]), storage="file", consumers=readers))

    def lost(rules: RollRules, names: Sequence[str] = ("n1", "n2", "n3")) -> list[tuple[str, str]]:
        problems = plan_roll(state, names, {}, rules).problems
        return [(one.severity, one.subject) for one in problems if one.code == "roll_memory_lost"]

    assert lost(RollRules()) == [(ERROR, "consumer APP/S/forgetful")]
    assert lost(RollRules(accept_loss=frozenset({"APP/S/forgetful"}))) == [(WARNING, "consumer APP/S/forgetful")]
    assert lost(RollRules(r1_policy="move")) == lost(RollRules(), ["n1", "n3"]) == []


def test_a_raft_silent_server_loses_its_memory_streams() -> None:
    state = cluster(["n1", "n2", "n3"], replace(stream("CACHE", ["n2"]), storage="memory", messages=20))
    assert state.meta is not None
    peers = (Peer("n2", current=True, active=60), Peer("n3", current=True, active=0.5))
    quiet = replace(
        state,
        servers=tuple(replace(item, uptime=100.0) for item in state.servers),
        meta=replace(state.meta, group=replace(state.meta.group, peers=peers)),
    )
    plan = plan_roll(quiet, ["n2"], {}, RollRules())
    assert plan.reasons == ("is raft-silent: no quorum depends on it",)
    assert [one.code for one in plan.problems] == ["roll_memory_lost"]


def test_messages_that_end_with_the_restart_are_an_error_unless_accepted() -> None:
    cached = replace(stream("CACHE", ["n2"]), storage="memory", messages=20)
    harmless = [
        replace(stream("EMPTY", ["n2"]), storage="memory"),
        replace(stream("FILE", ["n2"]), storage="file", messages=20),
        replace(stream("THREE", ["n1", "n2", "n3"]), storage="memory", messages=20),
    ]
    state = cluster(["n1", "n2", "n3"], cached, *harmless)

    def lost(rules: RollRules, names: Sequence[str] = ("n1", "n2", "n3")) -> list[tuple[str, str]]:
        problems = plan_roll(state, names, {}, rules).problems
        return [(one.severity, one.subject) for one in problems if one.code == "roll_memory_lost"]

    assert lost(RollRules()) == [(ERROR, "stream APP/CACHE")]
    assert lost(RollRules(r1_policy="fail")) == [(ERROR, "stream APP/CACHE")]
    assert lost(RollRules(accept_loss=frozenset({"APP/CACHE"}))) == [(WARNING, "stream APP/CACHE")]
    assert lost(RollRules(accept_loss=frozenset({"APP/OTHER"}))) == [(ERROR, "stream APP/CACHE")]
    # The single replicas are moved beforehand.
    assert lost(RollRules(r1_policy="move")) == []
    assert lost(RollRules(), ["n1", "n3"]) == []
    dead = replace(state, servers=tuple(one for one in state.servers if one.name != "n2"))
    assert [
        one.code for one in plan_roll(dead, ["n2"], {}, RollRules()).problems if one.code == "roll_memory_lost"
    ] == []
    message = next(one.message for one in plan_roll(state, ["n2"], {}, RollRules()).problems if one.severity == ERROR)
    assert "exists only in the memory of n2: its 20 message(s) are lost in the restart" in message


@pytest.mark.parametrize(
    ("version", "starts", "first", "config", "found"),
    [
        ("2.10.27", "", 1000, {"first_seq": 1000}, ERROR),
        ("2.10.27", "2.10.27", 1000, {"first_seq": 1000}, ERROR),
        ("2.11.1", "", 1000, {"first_seq": 1000}, ERROR),
        # The version that will start the server determines whether messages are lost.
        ("2.10.27", "2.15.1", 1000, {"first_seq": 1000}, ""),
        ("2.15.1", "", 1000, {"first_seq": 1000}, ""),
        ("2.15.1", "2.10.27", 1000, {"first_seq": 1000}, ERROR),
        # The stream's first message is not the one at first_seq, or first_seq is not set.
        ("2.10.27", "", 1001, {"first_seq": 1000}, ""),
        ("2.10.27", "", 1, {}, ""),
    ],
)
def test_streams_that_a_defect_of_the_server_would_empty(
    version: str, starts: str, first: int, config: dict[str, int], found: str
) -> None:
    counted = replace(
        stream("FS", ["n1", "n2", "n3"]), storage="file", messages=9, first_seq=first, info={"config": config}
    )
    state = cluster(["n1", "n2", "n3"], counted)
    state = replace(state, servers=tuple(replace(one, version=version) for one in state.servers))
    rules = RollRules(starts=dict.fromkeys(("n1", "n2", "n3"), starts))
    problems = [one for one in plan_roll(state, ["n1", "n2", "n3"], {}, rules).problems if one.code == "roll_first_seq"]
    assert [one.severity for one in problems] == ([found] if found else [])
    if found:
        assert "delete message 1000 first" in problems[0].message
        accepted = plan_roll(state, ["n1"], {}, replace(rules, accept_loss=frozenset({"APP/FS"}))).problems
        assert [one.severity for one in accepted if one.code == "roll_first_seq"] == [WARNING]


def test_a_meta_group_of_two_is_named() -> None:
    plan = plan_roll(cluster(["n1", "n2"]), ["n1"], {}, RollRules())
    assert [problem.code for problem in plan.problems] == ["roll_meta_quorum"]


def test_reasons_and_effects_go_with_the_batches() -> None:
    state = cluster(["n1", "n2", "n3", "n4"], stream("A", ["n2", "n3", "n1"]), stream("B", ["n2", "n3", "n4"]))
    state = replace(state, servers=tuple(item for item in state.servers if item.name != "n4"))
    plan = plan_roll(state, ["n1", "n2", "n3", "n4"], {}, RollRules(canary=1))
    assert plan.batches == (("n4",), ("n3",), ("n2",), ("n1",))
    assert [reason.partition(":")[0] for reason in plan.reasons] == [
        "is down and starts first",
        "is a canary",
        "",
        "has the meta leader, so it comes last",
    ]
    found = [(effect.leaders, effect.groups) for effect in batch_effects(state, plan.batches)]
    assert found == [(0, 0), (0, 2), (2, 2), (0, 1)]


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 12), st.booleans())
def test_every_leader_is_counted_once(clusters: int, servers: int, streams: int, parallel: bool) -> None:
    state, zones = supercluster(clusters, max(3, servers), streams)
    plan = plan_roll(state, sorted(state.names), zones, PARALLEL if parallel else RollRules())
    effects = batch_effects(state, plan.batches)
    assert len(plan.reasons) == len(plan.batches) == len(effects)
    assert sum(effect.leaders for effect in effects) == len(list(state.groups()))
    assert sum(effect.groups for effect in effects) == sum(len(group.members) for group in state.groups())


def test_a_server_on_a_full_disk_is_not_restarted() -> None:
    problems = disk_problems({"n1": 10 * 1024**3, "n2": 4096, "n3": None})
    assert refusal("The restart is refused.", problems, ClusterContext(frozenset({"n1", "n2", "n3"}))).splitlines()[
        1:3
    ] == [
        "1. the disk is full (n2)",
        "   - n2 would not start again: its store has 4.0 KiB free but needs 64.0 MiB",
    ]
    assert refusal("The restart is refused.", disk_problems({"n1": 64 * 1024**2}), ClusterContext()) == ""


@pytest.mark.parametrize("value, expected", [(4096, 4096), ("4096", 4096), (None, None), ("", None), ("None", None)])
def test_free_bytes_may_be_text(value: object, expected: int | None) -> None:
    assert free_bytes(value) == expected
