# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests where the meta leader would place a replica, and where it would not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    Cluster,
    JetStreamSummary,
    Server,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.replies import parse_summary
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rules import (
    PlacementResult,
    ReplicaRequirements,
    evaluate_candidates,
    own_tag,
    replica_requirements,
    simulate_move,
)
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, consumer, server, stream

NAMES = ["n1", "n2", "n3", "n4", "n5"]
ROOM = JetStreamSummary(max_storage=1000, max_memory=100, api_level=5)
NEED = ReplicaRequirements("stream APP/ORDERS", "C1", 3)


def five(leader: JetStreamSummary = ROOM, **changed: Server) -> Cluster:
    """Return five servers with free space; n1 leads the meta group and has these settings."""
    servers = {name: server(name, summary=leader if name == "n1" else ROOM) for name in NAMES}
    return replace(cluster(NAMES), servers=tuple({**servers, **changed}.values()))


def judged(
    among: Cluster, need: ReplicaRequirements = NEED, members: tuple[str, ...] = ("n1", "n2", "n3")
) -> PlacementResult:
    return evaluate_candidates(among, need, members, [members[-1]])


def test_members_and_the_leaving_server_are_not_candidates() -> None:
    found = judged(five())
    assert set(found.candidates) == {"n4", "n5"}
    assert found.refused == {}
    full = evaluate_candidates(cluster(["n1", "n2", "n3"]), NEED, ["n1", "n2", "n3"], ["n3"])
    assert full == PlacementResult((), {})
    assert full.reasons() == "there is no other server"


@pytest.mark.parametrize(
    ("changed", "need", "reason"),
    [
        (server("n4", summary=ROOM, cluster="C2"), NEED, "is in cluster C2, not in C1"),
        (server("n4", summary=None, jetstream=False), NEED, "runs without JetStream"),
        (server("n4", summary=None), NEED, "did not report its free storage"),
        (server("n4", summary=ROOM, tags=("!JetStream",)), NEED, "accepts no new replicas (tag !jetstream)"),
        (
            server("n4", summary=ROOM, tags=("ssd",)),
            replace(NEED, tags=("ssd", "eu")),
            "does not have the tag eu, which the stream's placement requires",
        ),
        (
            server("n4", summary=ROOM, tags=("SSD",)),
            replace(NEED, tags=("!ssd",)),
            "has the tag ssd, which the stream's placement excludes",
        ),
        (
            server("n4", summary=replace(ROOM, reserved_storage=700, storage=100)),
            replace(NEED, max_bytes=400),
            "has 300 bytes of file storage free, but max_bytes is 400",
        ),
        (
            server("n4", summary=replace(ROOM, reserved_storage=100, storage=700)),
            replace(NEED, size=400),
            "has 300 bytes of file storage free, but the stream's size is 400",
        ),
        (
            server("n4", summary=replace(ROOM, memory=90)),
            replace(NEED, storage="memory", max_bytes=11),
            "has 10 bytes of memory storage free, but max_bytes is 11",
        ),
    ],
)
def test_why_a_server_may_not_take_a_replica(changed: Server, need: ReplicaRequirements, reason: str) -> None:
    assert judged(five(n4=changed), need).refused["n4"] == reason


def test_room_that_is_just_enough() -> None:
    full = server("n4", summary=replace(ROOM, reserved_storage=600))
    assert "n4" in judged(five(n4=full), replace(NEED, max_bytes=400)).candidates
    assert "n4" not in judged(five(n4=full), replace(NEED, max_bytes=401)).candidates


def test_the_meta_leaders_limit_of_replicated_assets_counts_without_the_meta_group() -> None:
    busy = {name: server(name, summary=replace(ROOM, ha_assets=count)) for name, count in (("n4", 10), ("n5", 11))}
    found = judged(five(leader=replace(ROOM, max_ha_assets=10), **busy))
    assert found.candidates == ("n4",)
    assert found.refused["n5"] == "has 11 replicated assets, the limit is 10 (max_ha_assets)"
    own_limit = {"n5": server("n5", summary=replace(ROOM, ha_assets=11, max_ha_assets=5))}
    assert "n5" in judged(five(ROOM, **own_limit)).candidates


class TestUniqueTag:
    def racks(self, **tags: str) -> Cluster:
        among = five(leader=replace(ROOM, unique_tag="az:"))
        servers = tuple(replace(item, tags=(tags[item.name],) if item.name in tags else ()) for item in among.servers)
        return replace(among, servers=servers)

    def test_a_rack_is_used_once(self) -> None:
        found = judged(self.racks(n1="az:a", n2="az:b", n3="az:c", n4="az:C", n5="az:B"))
        assert found.candidates == ("n4",)
        assert found.refused == {"n5": "has the tag az:b, as has n2 (unique_tag)"}

    def test_a_server_without_such_a_tag_is_refused(self) -> None:
        found = judged(self.racks(n1="az:a", n2="az:b", n3="az:c", n4="ssd"))
        assert set(found.refused.values()) == {"has no tag that starts with az: (unique_tag)"}

    def test_switched_off_by_naming_such_a_tag(self) -> None:
        everywhere = self.racks(**dict.fromkeys(NAMES, "az:a"))
        assert judged(everywhere).candidates == ()
        assert judged(everywhere, replace(NEED, tags=("az:a",))).candidates == ("n4", "n5")
        assert judged(everywhere, replace(NEED, tags=("!az:b",))).candidates == ("n4", "n5")


def test_excluding_tags_are_plain_tags_before_2_12() -> None:
    among = five(leader=replace(ROOM, api_level=1), n4=server("n4", summary=ROOM, tags=("!old",)))
    found = judged(among, replace(NEED, tags=("!old",)))
    assert found.candidates == ("n4",)
    assert "does not have the tag !old" in found.refused["n5"]


def test_a_server_that_left_the_meta_group_or_does_not_answer() -> None:
    among = five()
    assert among.meta is not None
    peers = tuple(peer for peer in among.meta.group.peers if peer.name != "n4")
    without = replace(among, meta=replace(among.meta, group=replace(among.meta.group, peers=peers)))
    assert judged(without).refused == {"n4": "is not a member of the meta group"}
    silent = replace(among, servers=tuple(item for item in among.servers if item.name != "n5"))
    assert judged(silent).refused == {"n5": "did not answer"}


def test_no_candidates_without_a_meta_leader() -> None:
    among = replace(five(), meta=None)
    assert judged(among).candidates == ()
    assert set(judged(among).refused) == {"n4", "n5"}


def test_the_order_is_the_meta_leaders() -> None:
    roomy = server("n4", summary=replace(ROOM, max_storage=2000))
    assert judged(five(n4=roomy)).candidates == ("n4", "n5")
    crowded = replace(five(n4=roomy), streams=(stream("OTHER", ["n4", "n1", "n2"]),))
    assert judged(crowded).candidates == ("n5", "n4")
    assert judged(crowded, replace(NEED, replicas=1)).candidates == ("n4", "n5")


def test_requirements_of_a_stream() -> None:
    orders = replace(stream("ORDERS", NAMES[:3]), max_bytes=5, size=9, placement_tags=("ssd",), storage="memory")
    orders = replace(orders, consumers=(consumer("ORDERS", "w", NAMES[:3]), consumer("ORDERS", "e", ["n1"])))
    assert replica_requirements(orders) == ReplicaRequirements(
        "stream APP/ORDERS", "C1", 3, ("ssd",), "memory", 9, 5, 2
    )
    assert replica_requirements(orders).bytes == 9


def test_moves_take_the_room_from_each_other() -> None:
    streams = [replace(stream(f"S{number}", ["n1", "n2", "n3"]), max_bytes=600) for number in range(3)]
    among = replace(five(), streams=tuple(streams))
    targets = []
    for item in streams[:2]:
        targets.append(evaluate_candidates(among, replica_requirements(item), item.group.members, ["n3"]).candidates[0])
        among = simulate_move(among, item, "n3", targets[-1])
    assert sorted(targets) == ["n4", "n5"]
    last = evaluate_candidates(among, replica_requirements(streams[2]), streams[2].group.members, ["n3"])
    assert (last.candidates, set(last.refused)) == ((), {"n4", "n5"})


def test_a_tag_of_the_target_alone() -> None:
    tags = {"n4": ("ssd", "rack:a", "node:n4"), "n5": ("ssd", "rack:a"), "n1": ("rack:a",)}
    among = five(ROOM, **{name: server(name, summary=ROOM, tags=found) for name, found in tags.items()})
    assert own_tag(among, "n4", ["n4", "n5"]) == "node:n4"
    assert own_tag(among, "n5", ["n4", "n5"]) is None
    assert own_tag(among, "n5", ["n5"]) == "rack:a"
    assert own_tag(among, "n2", ["n2"]) is None


def test_the_settings_are_read_from_jsz() -> None:
    summary = parse_summary({"config": {"unique_tag": "az:"}, "limits": {"max_ha_assets": 7}, "reserved_storage": 3})
    assert summary is not None
    assert (summary.unique_tag, summary.max_ha_assets, summary.reserved_storage) == ("az:", 7, 3)


@given(clusters(), st.data())
def test_chosen_server_is_always_allowed(among: Cluster, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(sorted(among.names)))
    for item in (found for found in among.streams if source in found.group.members):
        result = evaluate_candidates(among, replica_requirements(item), item.group.members, [source])
        assert set(result.candidates) <= among.names - set(item.group.members)
        if not result.candidates:
            assert set(result.refused) == {peer for peer in _everyone(among) if peer not in item.group.members}


def _everyone(among: Cluster) -> set[str]:
    assert among.meta is not None
    return {*among.names, *among.meta.group.leaders, *(peer.name for peer in among.meta.group.peers)}


@given(clusters(), st.integers(0, 2000), st.integers(0, 2000))
def test_less_room_never_makes_a_candidate(among: Cluster, reserved: int, size: int) -> None:
    def loaded(used: int) -> Cluster:
        summary = replace(ROOM, reserved_storage=used)
        return replace(among, servers=tuple(replace(item, summary=summary) for item in among.servers))

    need = replace(NEED, size=size)
    more, less = (
        evaluate_candidates(loaded(reserved), need, ["n1"], ["n1"]),
        evaluate_candidates(loaded(reserved + 1), need, ["n1"], ["n1"]),
    )
    assert set(less.candidates) <= set(more.candidates)
    if more.candidates:
        item: Stream = replace(stream("S", ["n1"]), max_bytes=size)
        after = simulate_move(loaded(reserved), item, "n1", more.candidates[0])
        assert set(evaluate_candidates(after, need, ["n1"], ["n1"]).candidates) <= set(more.candidates)
