# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A few moves balance the servers' load, the meta leader would refuse none of them, and the plan is written as a
document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, JetStreamSummary, Stream
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rebalance import (
    RebalanceOptions,
    RebalancePlan,
    ReplicaMove,
    move_batches,
    plan_of_moves,
    plan_rebalance,
    rebalance_page,
    total_seconds,
    waves,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rebalance_plan import (
    PlanRefused,
    plan_document,
    remaining_moves,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rules import (
    evaluate_candidates,
    own_tag,
    replica_requirements,
    server_zones,
    simulate_move,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import cluster, clusters, consumer, server, stream

OLD, ALL = ["n1", "n2", "n3"], ["n1", "n2", "n3", "n4", "n5"]
ROOM = JetStreamSummary(max_storage=10**9, max_memory=10**6)
EXACT = RebalanceOptions(tolerance=0.0)


def sized(name: str, members: list[str], size: int = 100) -> Stream:
    return replace(stream(name, members), size=size, storage="file")


def tagged(among: Cluster, **tags: tuple[str, ...]) -> Cluster:
    """Return the cluster with free space and a unique tag on each server, as the role configures it."""
    servers = (
        replace(item, summary=ROOM, tags=(f"node:{item.name}", *tags.get(item.name, ()))) for item in among.servers
    )
    return replace(among, servers=tuple(servers))


def with_leader_summary(among: Cluster, **changes: Any) -> Cluster:
    """Return the cluster with different settings of its meta leader."""
    leader = among.meta.group.leader if among.meta else None
    return replace(
        among,
        servers=tuple(
            replace(item, summary=replace(item.summary or ROOM, **changes)) if item.name == leader else item
            for item in among.servers
        ),
    )


def targets(plan: RebalancePlan) -> set[str]:
    return {move.target for move in plan.moves}


def after(among: Cluster, moves: list[ReplicaMove]) -> Cluster:
    for move in moves:
        (moved,) = (item for item in among.streams if (item.account, item.name) == (move.account, move.stream))
        among = simulate_move(among, moved, move.source, move.target)
    return among


def test_new_servers_get_their_share_in_few_moves() -> None:
    among = tagged(cluster(ALL, *(sized(f"S{number}", OLD) for number in range(10))))
    found = plan_rebalance(among, "C1", EXACT)
    assert len(found.moves) == 12, "30 replicas on 5 servers are 6 on each"
    assert {load.bytes for load in found.after.values()} == {600}
    assert found.bytes_moved == found.least_bytes == 1200
    assert targets(found) == {"n4", "n5"}
    assert plan_rebalance(among, "C1", EXACT) == found
    assert plan_rebalance(among, "C1", replace(EXACT, max_moves=3)).moves == found.moves[:3]
    assert plan_rebalance(among, "C1", replace(EXACT, max_bytes=350)).moves == found.moves[:3]
    assert targets(plan_rebalance(among, "C1", replace(EXACT, onto=["n5"]))) == {"n5"}
    assert plan_of_moves(among, "C1", found.moves) == found
    assert plan_rebalance(after(among, list(found.moves)), "C1", EXACT).moves == ()


def test_a_large_stream_goes_first_and_an_even_cluster_stays() -> None:
    among = tagged(cluster([*OLD, "n4"], sized("BIG", OLD, 10_000), *(sized(f"S{number}", OLD) for number in range(4))))
    few = plan_rebalance(among, "C1", EXACT).moves
    assert few and "BIG" not in {move.stream for move in few}, "n4 would only become as uneven as another server was"
    two = tagged(cluster([*OLD, "n4"], *(sized(f"B{number}", OLD, 10_000) for number in range(4)), sized("S", OLD)))
    assert plan_rebalance(two, "C1", EXACT).moves[0].size == 10_000
    assert plan_rebalance(tagged(cluster(OLD, sized("A", OLD))), "C1", EXACT).moves == ()
    assert plan_rebalance(tagged(cluster(OLD)), "C1", EXACT).moves == ()


def test_immovable_replicas_stay() -> None:
    streams = [sized(f"S{number}", OLD) for number in range(10)]
    drained = tagged(cluster(ALL, *streams), n4=("!jetstream",))
    assert targets(plan_rebalance(drained, "C1", EXACT)) == {"n5"}
    single = tagged(cluster(ALL, *(sized(f"S{number}", ["n1"]) for number in range(10))))
    assert plan_rebalance(single, "C1", EXACT).moves == ()
    assert list(plan_rebalance(single, "C1", EXACT).left) == ["single replica"]
    for half in (
        [stream(f"S{number}", OLD, led=False) for number in range(10)],
        [stream(f"S{number}", OLD, behind=("n2",)) for number in range(10)],
        [replace(sized(f"S{number}", OLD), consumers=(broken(f"S{number}"),)) for number in range(10)],
    ):
        plan = plan_rebalance(tagged(cluster(ALL, *half)), "C1", EXACT)
        assert (plan.moves, {reason: len(left) for reason, left in plan.left.items()}) == (
            (),
            {"not fully replicated": 10},
        )
    moving = [replace(item, group=replace(item.group, moving=True)) for item in streams]
    assert plan_rebalance(tagged(cluster(ALL, *moving)), "C1", EXACT).left.keys() == {"it is being moved"}
    without_tags = replace(drained, servers=tuple(server(name, summary=ROOM) for name in ALL))
    assert plan_rebalance(without_tags, "C1", EXACT).moves == (), "nothing distinguishes n4 from n5"


def broken(owner: str) -> Any:
    found = consumer(owner, "worker", OLD)
    return replace(found, group=replace(found.group, leaders=(), peers=()))


def test_zones_and_limits_of_the_servers_are_kept() -> None:
    streams = [sized(f"S{number}", OLD) for number in range(10)]
    zones = {"n1": ("az:a",), "n2": ("az:b",), "n3": ("az:c",), "n4": ("az:c",), "n5": ("az:c",)}
    zoned = tagged(cluster(ALL, *streams), **zones)
    by_unique_tag = plan_rebalance(with_leader_summary(zoned, unique_tag="az:"), "C1", EXACT)
    by_zones = plan_rebalance(zoned, "C1", replace(EXACT, zones=server_zones(zoned.servers, "az:")))
    assert {move.source for move in by_unique_tag.moves} == {move.source for move in by_zones.moves} == {"n3"}
    assert targets(by_zones) == {"n4", "n5"}
    bound = [replace(item, placement_tags=("az:c",)) for item in streams]
    assert plan_rebalance(tagged(cluster(ALL, *bound), n5=("az:c",)), "C1", EXACT).moves[0].target == "n5"

    def short(**changes: Any) -> Cluster:
        among = tagged(cluster(ALL, *streams))
        return replace(
            among,
            servers=tuple(
                replace(item, summary=replace(ROOM, **changes)) if item.name in ("n4", "n5") else item
                for item in among.servers
            ),
        )

    full = short(storage=9 * 10**8)
    assert plan_rebalance(full, "C1", EXACT).moves == (), "a tenth has to stay free"
    assert targets(plan_rebalance(full, "C1", replace(EXACT, spare=0.05))) == {"n4", "n5"}
    # n4 and n5 have room for two more of their 5 assets, because the meta group does not count.
    busy = with_leader_summary(short(ha_assets=4), max_ha_assets=5)
    assert [len([move for move in plan_rebalance(busy, "C1", EXACT).moves if move.target == name]) for name in ALL] == [
        0,
        0,
        0,
        2,
        2,
    ]


def test_waves_and_their_limits() -> None:
    moves = [
        ReplicaMove("APP", name, "n1", "n4", 100, seconds) for name, seconds in (("A", 5), ("B", 7), ("B", 2), ("C", 1))
    ]
    assert [[move.stream for move in wave] for wave in waves(moves, 3)] == [["A", "B"], ["B", "C"]]
    assert [len(wave) for wave in waves(moves, 1)] == [1, 1, 1, 1]
    assert (total_seconds(moves, 3), total_seconds(moves, 1)) == (9, 15)


def test_each_batch_of_moves_lists_the_moves_that_are_left() -> None:
    moves = [ReplicaMove("APP", name, "n1", target, 100, 1) for name, target in (("A", "n4"), ("B", "n5"), ("B", "n4"))]
    first, last = move_batches(moves, 3, began=1795254003)
    assert [[move["stream"] for move in batch["moves"]] for batch in (first, last)] == [["A", "B"], ["B"]]
    assert first["moves_left"] == first["moves"] + last["moves"] and last["moves_left"] == last["moves"]
    assert (first["title"], first["servers"]) == ("wave 1 of 2: APP/A, APP/B", ["n1", "n4", "n5"])
    assert last["progress"] == {"title": "wave 2 of 2: APP/B", "step": 2, "steps": 2, "began": 1795254003}
    (together,) = move_batches(moves, 1, together=True)
    assert [move["to"] for move in together["moves"]] == ["n4", "n5", "n4"]
    assert move_batches([], 1, together=True) == move_batches([], 1) == []


def test_the_lines_list_the_costs_and_the_streams_that_stay() -> None:
    among = tagged(cluster(ALL, *(sized(f"S{number}", OLD, 2**20) for number in range(5)), sized("ONE", ["n1"])))
    found = plan_rebalance(among, "C1", replace(EXACT, max_moves=2, throughput=2**20))
    lines = rebalance_page(found, 2).lines
    assert lines[0] == "2 replicas move, 2.0 MiB in about 8s; this result needs at least 2.0 MiB"
    assert "APP/S4 moves from n1 to n4 (1.0 MiB, about 4s, goal: bytes)" in lines
    assert "n5 carries 0 B, 0 HA assets; afterwards 1.0 MiB, 1 HA assets, 0 connections" in lines
    assert "1 are not moved, such as stream APP/ONE: single replica" in lines
    assert rebalance_page(plan_rebalance(tagged(cluster(OLD)), "C1", EXACT)).lines[0].startswith("No move would")


@pytest.mark.parametrize(("most", "size"), [(0, None), (None, 0), (None, 2**20 - 1)])
def test_a_plan_without_moves_gives_the_reason(most: int | None, size: int | None) -> None:
    among = tagged(cluster(ALL, *(sized(f"S{number}", OLD, 2**20) for number in range(5))))
    limited = replace(EXACT, max_moves=most, max_bytes=size)
    assert rebalance_page(plan_rebalance(among, "C1", limited)).lines[0].startswith("The limits of the plan")
    even = after(among, list(plan_rebalance(among, "C1", EXACT).moves))
    assert rebalance_page(plan_rebalance(even, "C1", limited)).lines[0].startswith("No move would")
    assert rebalance_page(plan_of_moves(even, "C1", [])).lines[0] == "All moves of the plan are done"


# --- The plan as a document ---------------------------------------------------------------------------------------------


def planned() -> tuple[Cluster, RebalancePlan, dict[str, Any]]:
    among = tagged(cluster(ALL, *(sized(f"S{number}", OLD) for number in range(3)), sized("ONE", ["n1"], 1)))
    found = plan_rebalance(among, "C1", EXACT)
    assert len(found.moves) > len({move.stream for move in found.moves}), "a stream moves twice"
    return among, found, json.loads(json.dumps(plan_document(among, "C1", found, "2026-11-24T15:00:00Z")))


def test_a_plan_resumes_after_any_of_its_moves() -> None:
    among, found, document = planned()
    for done in range(len(found.moves) + 1):
        now = after(among, list(found.moves[:done]))
        left = remaining_moves(document, now, "C1")
        assert [(move.stream, move.source, move.target) for move in left] == [
            (move.stream, move.source, move.target) for move in found.moves[done:]
        ]
        if left:
            (moving,) = (item for item in now.streams if item.name == left[0].stream)
            both = replace(moving.group, members=(*moving.group.members, left[0].target), moving=True)
            under_way = tuple(replace(item, group=both) if item is moving else item for item in now.streams)
            assert remaining_moves(document, replace(now, streams=under_way), "C1") == left


def test_sizes_and_single_replicas_change_freely() -> None:
    among, found, document = planned()
    grown = tuple(replace(item, size=item.size * 9, messages=7) for item in among.streams if item.name != "ONE")
    assert len(remaining_moves(document, replace(among, streams=grown), "C1")) == len(found.moves)


def test_a_plan_for_another_state_is_refused() -> None:
    among, found, document = planned()
    first = found.moves[0]
    elsewhere = tuple(
        replace(item, group=replace(item.group, members=("n1", "n4", "n5"))) if item.name == first.stream else item
        for item in among.streams
    )
    retagged = tuple(replace(item, tags=(*item.tags, "new")) if item.name == "n5" else item for item in among.servers)
    cases = [
        (
            replace(among, streams=elsewhere),
            f"stream APP/{first.stream} is on n1, n4, n5, but the plan expects it on n1, n2, n3",
        ),
        (replace(among, streams=tuple(i for i in among.streams if i.name != first.stream)), "is gone"),
        (replace(among, streams=(*among.streams, sized("NEW", OLD))), "for a different state of cluster C1"),
        (replace(among, servers=among.servers[:-1]), "for a different state of cluster C1"),
        (replace(among, servers=retagged), "for a different state of cluster C1"),
        (with_leader_summary(among, unique_tag="az:"), "for a different state of cluster C1"),
    ]
    for now, reason in cases:
        with pytest.raises(PlanRefused, match=reason) as refused:
            remaining_moves(document, now, "C1")
        assert refused.value.code == "plan_outdated"
    for wrong, reason in (
        ({**document, "schema": "other"}, "not a rebalance plan"),
        ({**document, "version": 2}, "has version 2"),
        ({**document, "cluster": "C2"}, "for cluster C2, not for C1"),
        ({**document, "moves": [{"account": "APP"}]}, "cannot be read"),
    ):
        with pytest.raises(PlanRefused, match=reason) as refused:
            remaining_moves(wrong, among, "C1")
        assert refused.value.code == "plan_invalid"


# --- All clusters -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(clusters(), st.integers(0, 20), st.data())
def test_every_move_is_allowed_when_its_turn_comes(among: Cluster, most: int, data: st.DataObject) -> None:
    sizes = st.sampled_from([0, 1, 100, 10_000])
    among = tagged(replace(among, streams=tuple(replace(item, size=data.draw(sizes)) for item in among.streams)))
    found = plan_rebalance(among, "C1", replace(EXACT, max_moves=most))
    assert len(found.moves) <= most
    for move in found.moves:
        (moved,) = (item for item in among.streams if item.name == move.stream)
        judged = evaluate_candidates(among, replica_requirements(moved), moved.group.members, [move.source])
        assert move.target in judged.candidates
        assert len(judged.candidates) == 1 or own_tag(among, move.target, judged.candidates)
        among = after(among, [move])
        (moved,) = (item for item in among.streams if item.name == move.stream)
        assert len(set(moved.group.members)) == moved.group.size
