# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how many replicas each stream gets, on which servers, and which streams must not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    Cluster,
    Consumer,
    JetStreamSummary,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.replica_count import (
    FOLLOW,
    ReplicaCount,
    ReplicaCountChange,
    plan_replica_count,
    replica_count_lines,
    replica_count_refusals,
    unmatched,
)
from support.clusters import cluster, consumer, server, stream

FIVE = ["n1", "n2", "n3", "n4", "n5"]


def there(*streams: Stream, room: int = 1000) -> Cluster:
    summary = JetStreamSummary(max_storage=room)
    return replace(cluster(FIVE, *streams), servers=tuple(server(name, summary=summary) for name in FIVE))


def own(owner: str, name: str, members: list[str]) -> Consumer:
    return replace(consumer(owner, name, members), info={"config": {"num_replicas": len(members)}})


def one(among: Cluster, num_replicas: int, **options: Any) -> ReplicaCountChange:
    (found,) = plan_replica_count(among, [ReplicaCount("APP", "A", num_replicas, **options)])
    return found


def test_patterns_choose_and_the_first_entry_counts() -> None:
    among = there(stream("A1", ["n1"]), stream("A2", ["n1", "n2", "n3"]), stream("B", ["n2"]))
    asked = [("APP", "A1", 5), ("APP", "A*", 3), ("OTHER", "*", 3), ("APP", "C?", 3)]
    wanted = [ReplicaCount(account, name, num_replicas) for account, name, num_replicas in asked]
    found = plan_replica_count(among, wanted)
    assert [(change.stream, change.before, change.after, len(change.gains)) for change in found] == [("A1", 1, 5, 4)]
    assert unmatched(among, wanted) == ["OTHER/*", "APP/C?"]


def test_each_change_takes_its_room_from_the_next() -> None:
    streams = [replace(stream(name, ["n1"]), max_bytes=600) for name in ("A", "B", "C")]
    found = plan_replica_count(there(*streams), [ReplicaCount("APP", "*", 3)])
    assert [len(change.gains) for change in found] == [2, 2, 0]
    assert "has 400 bytes of file storage free" in found[2].refused and "0 can (none)" in found[2].refused


def test_reductions_come_first() -> None:
    found = plan_replica_count(
        there(stream("A", ["n1"]), stream("B", ["n1", "n2", "n3"])),
        [ReplicaCount("APP", "A", 3), ReplicaCount("APP", "B", 1)],
    )
    assert [change.stream for change in found] == ["B", "A"]


def test_a_stream_that_is_not_in_step_is_refused() -> None:
    assert "n3" in one(there(stream("A", ["n1", "n2", "n3"], behind=("n3",))), 1).refused
    assert "leader" in one(there(stream("A", ["n1", "n2", "n3"], led=False)), 1).refused
    assert one(there(stream("A", ["n1", "n2", "n3"])), 1).refused == ""


def test_consumers_with_a_number_of_their_own() -> None:
    members = ["n1", "n2", "n3"]
    consumers = (own("A", "three", members), own("A", "one", ["n1"]), consumer("A", "follower", members))
    among = there(replace(stream("A", members), consumers=consumers))
    assert one(among, 1).consumers == (("three", 1),)
    assert one(among, 5).consumers == ()
    assert one(among, 5, consumers=FOLLOW).consumers == (("three", 0), ("one", 0))
    assert one(among, 3, consumers=FOLLOW).before == 3, "only consumers change"
    assert plan_replica_count(among, [ReplicaCount("APP", "A", 3)]) == []


def refusals(among: Cluster, *wanted: ReplicaCount, accounts: list[str] | None = None) -> list[str]:
    return replica_count_refusals(among, wanted, plan_replica_count(among, wanted), accounts)


def test_every_refusal_fires_where_it_should() -> None:
    among = there(stream("A", ["n1", "n2", "n3"]))
    assert refusals(among) == ["nats_cluster_streams names no stream."]
    assert refusals(among, ReplicaCount("APP", "A", 5), ReplicaCount("APP", "B*", 3)) == ["No stream matches APP/B*."]
    (full,) = refusals(there(replace(stream("A", ["n1"]), max_bytes=600), room=500), ReplicaCount("APP", "A", 3))
    assert full.startswith("APP/A cannot have 3 replica(s): 2 more server(s) must take a replica")
    (closed,) = refusals(among, ReplicaCount("APP", "A", 1), accounts=["OTHER"])
    assert closed.startswith("No user may change streams in account APP")


def test_feasible_changes_are_not_refused() -> None:
    among = there(stream("A", ["n1", "n2", "n3"]))
    assert refusals(among, ReplicaCount("APP", "A", 5), accounts=["APP"]) == []
    assert refusals(among, ReplicaCount("APP", "A", 5)) == []
    assert refusals(among, ReplicaCount("APP", "A", 3), accounts=[]) == [], "nothing is changed in the account"


def test_the_changes_for_people() -> None:
    with_consumer = replace(stream("A", ["n1", "n2", "n3"]), consumers=(own("A", "c", ["n1", "n2", "n3"]),))
    among = there(with_consumer, stream("B", ["n1"]))
    changes = plan_replica_count(among, [ReplicaCount("APP", "A", 1), ReplicaCount("APP", "B", 2)])
    fewer, more = replica_count_lines(changes)
    assert fewer == "APP/A: R3 to R1, consumers with a different number: {'c': 1}"
    assert more.startswith("APP/B: R1 to R2 on n")
    assert replica_count_lines([]) == ["Every stream has the desired number of replicas"]
