# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which repair each finding gets, and every refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import Expectations
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    Cluster,
    Consumer,
    Health,
    JetStreamSummary,
    MetaGroup,
    Peer,
    ReplicaState,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue import repair_plan as rules
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.repair_plan import (
    FaultEvidence,
    RepairFinding,
    RepairOptions,
    RepairStep,
    find,
    plan,
    repair_page,
)
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, consumer, server, stream

THREE, FOUR = ["n1", "n2", "n3"], ["n1", "n2", "n3", "n4"]
WHERE = ("APP", "ORDERS", "worker")
DURABLE = {"durable_name": "worker", "name": "worker", "deliver_policy": "all"}


def orders(*consumers: Consumer, members: list[str] | None = None, **changes: Any) -> Stream:
    return replace(stream("ORDERS", members or THREE), consumers=consumers, first_seq=1, last_seq=20, **changes)


def with_peer(item: Stream, **changes: Any) -> Stream:
    """Return the stream with a different state of its last replica."""
    *others, last = item.group.peers
    return replace(item, group=replace(item.group, peers=(*others, replace(last, **changes))))


def found(early: Cluster, late: Cluster | None = None, **request: Any) -> list[tuple[str, str, str]]:
    expected = Expectations(jetstream_servers=frozenset(THREE))
    return [finding.key for finding in find(early, late or early, RepairOptions(**request), expected)]


def planned_step(
    code: str,
    known: FaultEvidence,
    among: Cluster | None = None,
    server_name: str = "",
    worker: bool = True,
    **options: Any,
) -> RepairStep:
    account, stream_name, consumer_name = WHERE if worker else (*WHERE[:2], "")
    finding = RepairFinding(code, "message", account, stream_name, consumer_name, server=server_name)
    (step,) = plan(among or cluster(THREE, orders()), [finding], {finding.key: known}, RepairOptions(**options))
    return step


def level(among: Cluster, api_level: int) -> Cluster:
    summary = JetStreamSummary(api_level=api_level)
    return replace(among, servers=tuple(replace(item, summary=summary) for item in among.servers))


# --- findings --------------------------------------------------------------------------------------------------------


def test_a_complete_cluster_has_no_findings() -> None:
    assert found(cluster(THREE, orders(consumer("ORDERS", "worker", THREE)))) == []
    assert repair_page([]).lines == ("Nothing to repair.",)


def test_a_ghost_consumer() -> None:
    health = Health("unavailable", 503, ("JetStream consumer 'APP > ORDERS > worker' consumer not found",))
    servers = tuple(server(name, health=health, uptime=60.0) for name in THREE)
    ghost = replace(cluster(THREE, orders()), servers=servers)
    assert found(ghost) == [("consumer_ghost", "APP/ORDERS/worker", "")]
    early = replace(ghost, servers=tuple(replace(item, uptime=3.0) for item in servers))
    assert found(early) == [], "a server that has just started may still make it"


def test_a_replica_that_lacks_messages_although_its_leader_counts_on_it() -> None:
    """nats-server 2.10 reports a replica as current even if its writes fail."""

    def stored(**last: int) -> Cluster:
        return cluster(THREE, orders(stored={name: ReplicaState(end, 1, end) for name, end in last.items()}))

    early, late = stored(n1=20, n2=20, n3=9), stored(n1=25, n2=25, n3=9)
    assert found(early, late) == [("replica_behind", "APP/ORDERS", "n3")]
    (finding,) = find(early, late, RepairOptions(), Expectations(jetstream_servers=frozenset(THREE)))
    assert "n3 is stuck at message 9" in finding.message
    assert found(early, stored(n1=25, n2=25, n3=10)) == [], "it progresses"
    assert found(stored(n1=9, n2=9, n3=9), stored(n1=25, n2=25, n3=9)) == [], "it may just be about to"


def test_no_leader_in_both_samples_although_a_majority_answers() -> None:
    worker = consumer("ORDERS", "worker", THREE)
    leaderless = replace(worker, group=replace(worker.group, leaders=(), peers=()))
    good, bad = cluster(THREE, orders(worker)), cluster(THREE, orders(leaderless))
    assert found(bad) == [("consumer_leaderless", "APP/ORDERS/worker", "")]
    assert found(good, bad) == found(bad, good) == [], "an election passes"
    alone = replace(leaderless, group=replace(leaderless.group, hosts=("n1",)))
    assert found(cluster(THREE, orders(alone))) == [], "one of three elects no leader"
    assert found(cluster(THREE, stream("ORDERS", THREE, led=False))) == [("stream_leaderless", "APP/ORDERS", "")]


def test_a_consumer_beyond_the_end_of_its_stream() -> None:
    worker = consumer("ORDERS", "worker", THREE)
    ahead = replace(worker, info={"delivered": {"stream_seq": 998}, "config": {"deliver_policy": "all"}})
    assert found(cluster(THREE, orders(ahead))) == [("consumer_ahead", "APP/ORDERS/worker", "")]
    level_with_it = replace(worker, info={"delivered": {"stream_seq": 20}})
    assert found(cluster(THREE, orders(level_with_it))) == []
    young = cluster(THREE, orders(replace(worker, info={"delivered": {"stream_seq": 25}})))
    grown = cluster(THREE, replace(orders(replace(worker, info={"delivered": {"stream_seq": 25}})), last_seq=25))
    assert found(young, grown) == [], "the stream was read before"
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": 999}
    asked_for = replace(worker, info={"delivered": {"stream_seq": 998}, "config": config})
    assert found(cluster(THREE, orders(asked_for))) == []


def test_replicas_that_do_not_catch_up_or_are_gone() -> None:
    behind = with_peer(orders(members=FOUR[:3]), current=False, lag=900, active=0.1)
    stays, nearer = cluster(FOUR, behind), cluster(FOUR, with_peer(behind, lag=400))
    assert found(stays) == [("replica_behind", "APP/ORDERS", "n3")]
    assert found(stays, nearer) == [], "it catches up"
    silent = cluster(FOUR, with_peer(behind, active=90.0))
    assert found(silent) == [("replica_behind", "APP/ORDERS", "n3")], "the meta leader receives from its server"
    mute = replace(silent, meta=_without(silent, "n3"))
    assert found(mute) == [], "the server is silent, not the replica"
    without = replace(stays, servers=tuple(item for item in stays.servers if item.name != "n3"))
    assert found(without) == [], "it may come back"
    assert found(without, dead=frozenset(["n3"])) == [("replica_gone", "APP/ORDERS", "n3")]
    assert found(cluster(FOUR, orders()), dead=frozenset(["n3"])) == [], "it answers"


def test_a_replica_that_its_server_does_not_hold_although_the_leader_lists_it() -> None:
    item = orders(members=FOUR[:3])
    lacking = replace(item, group=replace(item.group, hosts=("n1", "n2")))
    missing, good = cluster(FOUR, lacking), cluster(FOUR, item)
    assert found(missing) == [("replica_missing", "APP/ORDERS", "n3")]
    assert found(good, missing) == found(missing, good) == [], "it was there once"
    silent = tuple(replace(one, summary=None) if one.name == "n3" else one for one in missing.servers)
    assert found(replace(missing, servers=silent)) == [], "it did not report its replicas"
    assert found(replace(missing, meta=_without(missing, "n3"))) == [], "it receives nothing from the meta leader"

    known = FaultEvidence()
    step = planned_step("replica_missing", known, missing, "n3", worker=False)
    assert (step.fix, step.refused) == ("replace_replica", "")
    alone = cluster(FOUR, replace(item, group=replace(item.group, hosts=("n1",))))
    for code in ("replica_behind", "replica_missing", "replica_gone"):
        assert "n2 does not have its replica" in planned_step(code, known, alone, "n3", worker=False).refused
    assert planned_step("move_stuck", known, alone, worker=False).refused == ""


def test_a_server_that_has_stopped_writing() -> None:
    error = "JetStream {} is not current: {}: no space left on device".format
    errors = (
        error("stream 'APP > ORDERS'", "stream write error"),
        error("consumer 'APP > ORDERS > worker'", "node write error"),
        "JetStream stream 'APP > OTHER' is not current: group node missing",
    )
    good = cluster(FOUR, with_peer(orders(members=FOUR[:3]), current=False, lag=900))
    servers = tuple(
        replace(one, health=Health("error", 503, errors)) if one.name == "n3" else one for one in good.servers
    )
    bad = replace(good, servers=servers)
    assert found(bad) == [("write_error", "n3", "n3")], "its replica is not behind on its own account"
    assert found(good, bad) == [], "it may be the passing one"
    (finding,) = find(bad, bad, RepairOptions(), Expectations())
    assert "n3 has stopped writing consumer APP/ORDERS/worker, stream APP/ORDERS:" in finding.message
    assert found(bad, assets=["APP/ORDERS"]) == found(bad, assets=["*/worker"]) == found(bad)
    assert found(bad, assets=["APP/OTHER"]) == []
    (step,) = plan(bad, [finding], {finding.key: FaultEvidence()}, RepairOptions())
    assert step.fix == "by_hand" and "natsops.jetstream.restart --limit HOST" in step.refused


def _without(among: Cluster, name: str) -> MetaGroup:
    """Return the meta group whose leader has no contact with one server."""
    assert among.meta is not None
    peers = tuple(replace(peer, active=90.0) if peer.name == name else peer for peer in among.meta.group.peers)
    return replace(among.meta, group=replace(among.meta.group, peers=peers))


def test_short_groups_and_moves_without_progress() -> None:
    short = orders()
    short = replace(
        short, group=replace(short.group, members=("n1", "n2"), hosts=("n1", "n2"), peers=(Peer("n2", current=True),))
    )
    assert found(cluster(THREE, short)) == [("group_short", "APP/ORDERS", "")]
    assert found(cluster(THREE, orders()), cluster(THREE, short)) == []
    moving = orders(members=FOUR)
    moving = with_peer(replace(moving, group=replace(moving.group, size=3)), current=False, lag=50)
    assert found(cluster(FOUR, moving)) == [("move_stuck", "APP/ORDERS", "")]
    assert found(cluster(FOUR, moving), cluster(FOUR, with_peer(moving, lag=40))) == []
    left = orders(members=THREE)
    left = replace(left, group=replace(left.group, members=tuple(FOUR), hosts=tuple(FOUR)))
    assert found(cluster(FOUR, left)) == [], "a member that left still names itself"


def test_only_matching_assets_and_a_server_without_jetstream() -> None:
    off = cluster(THREE, stream("ORDERS", THREE, led=False), stream("EVENTS", THREE, led=False))
    assert [label for _code, label, _server in found(off, assets=["APP/EV*"])] == ["APP/EVENTS"]
    off = replace(off, servers=(replace(off.servers[0], jetstream=False), *off.servers[1:]))
    assert ("jetstream_disabled", "n1", "n1") in found(off)
    assert rules.matches(RepairFinding("x", "", *WHERE), ["APP/ORDERS"])
    assert not rules.matches(RepairFinding("x", "", *WHERE), ["APP/ORDERS/other"])


# --- repairs
# -------------------------------------------------------------------------------------------------------------


def test_a_consumer_is_recreated_at_its_floor() -> None:
    step = planned_step("consumer_leaderless", FaultEvidence(DURABLE, "limits", 1, 20, floor=12, delivered=15))
    assert (step.fix, step.risk, step.floor, step.refused) == ("recreate", "redelivery", 12, "")
    assert "at its ack floor 12; redelivered: up to 3 messages after it (pending rolled back" in step.does
    told = planned_step("consumer_ghost", FaultEvidence(DURABLE, "limits", 1, 20), floors={"APP/ORDERS/worker": 7})
    assert (told.floor, told.refused) == (7, "")
    queue = planned_step("consumer_ghost", FaultEvidence(DURABLE, "workqueue", 1, 20))
    assert (queue.risk, queue.refused) == ("redelivery", ""), "acknowledgements are lost"
    client = planned_step("consumer_ghost", FaultEvidence({"name": "x"}, "limits", 1, 20))
    assert (client.fix, client.refused) == ("delete", "")


def test_a_consumer_that_is_ahead_is_reset_if_the_server_supports_it() -> None:
    known = FaultEvidence(DURABLE, "limits", 1, 20, floor=998, delivered=998)
    new, old = level(cluster(THREE, orders()), 4), level(cluster(THREE, orders()), 3)
    floors = {"APP/ORDERS/worker": 12}
    assert planned_step("consumer_ahead", known, new, floors=floors).fix == "reset"
    assert planned_step("consumer_ahead", known, old, floors=floors).fix == "recreate"
    other = replace(known, config={**DURABLE, "deliver_policy": "new"})
    assert planned_step("consumer_ahead", other, new, floors=floors).fix == "recreate", "10204"
    assert "position is unknown" in planned_step("consumer_ahead", known, new).refused, "its own floor is the fault"


@pytest.mark.parametrize(
    ("code", "known", "options", "reason"),
    [
        ("consumer_ghost", FaultEvidence(DURABLE, "limits", 1, 20), {}, "its position is unknown"),
        (
            "consumer_ghost",
            FaultEvidence(DURABLE, "limits", 1, 20),
            {"floors": {"APP/ORDERS/worker": 21}},
            "beyond the end",
        ),
        ("consumer_leaderless", FaultEvidence(DURABLE, "interest", 1, 20, 12), {}, "retention interest, which drops"),
        ("consumer_ghost", FaultEvidence(failure="no user for account APP"), {}, "no user for account APP"),
        ("consumer_ghost", FaultEvidence(last_seq=20), {}, "no server reports its configuration"),
        ("consumer_leaderless", FaultEvidence(DURABLE, "limits", 1, 20, 12), {"fixes": ["reset"]}, "was not requested"),
    ],
)
def test_refusals(code: str, known: FaultEvidence, options: dict[str, Any], reason: str) -> None:
    step = planned_step(code, known, **options)
    assert reason in step.refused
    assert reason in repair_page([step]).lines[0]


def test_a_lost_position_must_be_allowed_and_lists_redeliveries() -> None:
    step = planned_step("consumer_ghost", FaultEvidence(DURABLE, "limits", 5, 20), allow=["position_lost"])
    assert (step.refused, step.floor) == ("", None)
    assert "deliver everything again: 16 messages from 5 to 20" in step.does


def test_nothing_is_done_in_a_state_that_is_not_safe() -> None:
    known = FaultEvidence(DURABLE, "limits", 1, 20, floor=12)
    whole = cluster(THREE, orders())
    assert whole.meta is not None
    leaderless = replace(whole, meta=replace(whole.meta, group=replace(whole.meta.group, leaders=(), peers=())))
    assert "no meta leader" in planned_step("consumer_leaderless", known, leaderless).refused
    peers = tuple(replace(peer, current=False, lag=0) for peer in whole.meta.group.peers)
    weak = replace(whole, meta=replace(whole.meta, group=replace(whole.meta.group, peers=peers)))
    assert "are needed" in planned_step("consumer_leaderless", known, weak).refused
    assert "no server reports the state" in planned_step("consumer_leaderless", known, cluster(THREE)).refused
    broken = cluster(THREE, stream("ORDERS", THREE, behind=("n2", "n3")))
    assert "its stream must be repaired first" in planned_step("consumer_leaderless", known, broken).refused


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        ("replica_behind", "replace_replica"),
        ("replica_gone", "replace_replica"),
        ("group_short", "refill"),
        ("move_stuck", "cancel_move"),
    ],
)
def test_each_stream_finding_has_its_fix(code: str, fix: str) -> None:
    among = cluster(THREE, orders(consumer("ORDERS", "worker", THREE)))
    step = planned_step(code, FaultEvidence(), among, "n3", worker=False)
    assert (step.fix, step.risk, step.refused) == (fix, "none", "")
    assert step.subjects == ("stream APP/ORDERS", "consumer APP/ORDERS/worker")
    assert (
        planned_step(code, FaultEvidence(refused="no other server"), among, "n3", worker=False).refused
        == "no other server"
    )


def test_manual_steps_are_refused_with_the_commands() -> None:
    assert "playbook restart" in planned_step("stream_leaderless", FaultEvidence(), worker=False).refused
    finding = RepairFinding("jetstream_disabled", "n1 answers", server="n1")
    (step,) = plan(cluster(THREE), [finding], {}, RepairOptions())
    assert "df -h" in step.refused and "natsops.jetstream.restart --limit" in step.refused
    assert step.subjects == ("n1",)


@given(clusters(), clusters(), st.booleans())
def test_no_fix_without_evidence_and_no_finding_twice(early: Cluster, late: Cluster, same: bool) -> None:
    request = RepairOptions(dead=frozenset(["n1"]))
    findings = find(late if same else early, late, request, Expectations())
    assert len({finding.key for finding in findings}) == len(findings)
    for step in plan(late, findings, {}, request):
        assert step.refused, "its state is unknown"
    known = {finding.key: FaultEvidence() for finding in findings}
    for step in plan(late, findings, known, request):
        item = next(one for one in late.streams if one.name == step.finding.stream)
        assert step.refused or (item.group.leader and late.meta and late.meta.group.leader)
