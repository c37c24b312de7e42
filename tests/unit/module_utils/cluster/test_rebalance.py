# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Few moves that make the servers carry alike, and none that the meta leader would refuse."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.placement import (
    evaluate_candidates,
    requirements_of,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.rebalance import loads, plan_rebalance
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, JetStreamSummary, Stream
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, server, stream

OLD, ALL = ["n1", "n2", "n3"], ["n1", "n2", "n3", "n4", "n5"]
ROOM = JetStreamSummary(max_storage=10**9, max_memory=10**6)


def sized(name: str, members: list[str], size: int = 100) -> Stream:
    return replace(stream(name, members), size=size)


def tagged(among: Cluster, **tags: tuple[str, ...]) -> Cluster:
    """Return the cluster with room on each server and a tag of its own, as the role gives it."""
    servers = (
        replace(item, summary=ROOM, tags=(f"node:{item.name}", *tags.get(item.name, ()))) for item in among.servers
    )
    return replace(among, servers=tuple(servers))


def spread(carried: dict[str, float]) -> float:
    return sum(load * load for load in carried.values())


def test_new_servers_get_their_share_in_few_moves() -> None:
    among = tagged(cluster(ALL, *(sized(f"S{number}", OLD) for number in range(10))))
    found = plan_rebalance(among, "C1", 100)
    assert len(found.moves) == 12, "30 replicas on 5 servers are 6 on each"
    assert all(abs(load - 2) < 0.01 for load in found.after.values())
    assert {move.target for move in found.moves} == {"n4", "n5"}
    assert plan_rebalance(among, "C1", 100) == found
    assert plan_rebalance(among, "C1", 3).moves == found.moves[:3]
    assert {move.target for move in plan_rebalance(among, "C1", 100, ["n5"]).moves} == {"n5"}


def test_a_large_stream_goes_first_and_an_even_cluster_stays() -> None:
    among = tagged(cluster([*OLD, "n4"], sized("BIG", OLD, 10_000), *(sized(f"S{number}", OLD) for number in range(4))))
    assert plan_rebalance(among, "C1", 1).moves[0].stream == "BIG"
    assert plan_rebalance(tagged(cluster(OLD, sized("A", OLD))), "C1", 10).moves == ()
    assert plan_rebalance(tagged(cluster(OLD)), "C1", 10).moves == ()


def test_what_may_not_move_stays() -> None:
    streams = [sized(f"S{number}", OLD) for number in range(10)]
    drained = tagged(cluster(ALL, *streams), n4=("!jetstream",))
    assert {move.target for move in plan_rebalance(drained, "C1", 100).moves} == {"n5"}
    single = tagged(cluster(ALL, *(sized(f"S{number}", ["n1"]) for number in range(10))))
    assert plan_rebalance(single, "C1", 100).moves == ()
    leaderless = tagged(cluster(ALL, *(stream(f"S{number}", OLD, led=False) for number in range(10))))
    assert plan_rebalance(leaderless, "C1", 100).moves == ()
    zones = {"n1": ("az:a",), "n2": ("az:b",), "n3": ("az:c",), "n4": ("az:c",), "n5": ("az:c",)}
    zoned = tagged(cluster(ALL, *streams), **zones)
    first = replace(zoned.servers[0], summary=replace(ROOM, unique_tag="az:"))
    zoned = replace(zoned, servers=(first, *zoned.servers[1:]))
    assert {move.source for move in plan_rebalance(zoned, "C1", 100).moves} == {"n3"}
    without_tags = replace(drained, servers=tuple(server(name, summary=ROOM) for name in ALL))
    assert plan_rebalance(without_tags, "C1", 100).moves == (), "nothing tells n4 from n5"


@given(clusters(), st.integers(0, 20))
def test_every_move_is_allowed_and_helps(among: Cluster, most: int) -> None:
    among = tagged(among)
    found = plan_rebalance(among, "C1", most)
    assert len(found.moves) <= most
    before = spread(loads(among, "C1"))
    assert spread(found.after) < before or not found.moves
    members = {item.name: list(item.group.members) for item in among.streams}
    streams = {item.name: item for item in among.streams}
    for move in found.moves:
        assert (
            move.target
            in evaluate_candidates(
                among, requirements_of(streams[move.stream]), members[move.stream], [move.source]
            ).candidates
        )
        members[move.stream].remove(move.source)
        members[move.stream].append(move.target)
        assert len(set(members[move.stream])) == len(streams[move.stream].group.members)
