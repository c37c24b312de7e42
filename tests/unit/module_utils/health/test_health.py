# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import (
    Expectations,
    Limits,
    StopPolicy,
    difference_problems,
    duplicate_problems,
    election_problems,
    health_problems,
    lasting_asset_faults,
    split_tolerated,
    stop_problems,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    Cluster,
    Health,
    JetStreamSummary,
    Peer,
    ReplicaState,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import Problem
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, consumer, group, meta, server, stream

NAMES = ["n1", "n2", "n3"]
ACCEPT, FAIL = StopPolicy("accept"), StopPolicy("fail")


def expect(names: list[str], **changes: object) -> Expectations:
    values = {"servers": frozenset(names), "jetstream_servers": frozenset(names)}
    return Expectations(**{**values, **changes})  # type: ignore[arg-type]


def codes(problems: list[Problem]) -> list[str]:
    return [problem.code for problem in problems]


def with_peer(item: Stream, peer: Peer) -> Stream:
    peers = tuple(peer if old.name == peer.name else old for old in item.group.peers)
    return replace(item, group=replace(item.group, peers=peers))


class TestTwoLooks:
    @staticmethod
    def held(lasts: dict[str, int], lag: int = 0) -> Cluster:
        orders = stream("ORDERS", NAMES)
        peers = tuple(replace(peer, lag=lag) for peer in orders.group.peers)
        stored = {name: ReplicaState(last, 1, last) for name, last in lasts.items()}
        return cluster(NAMES, replace(orders, group=replace(orders.group, peers=peers), stored=stored))

    def test_a_replica_that_its_leader_calls_current_and_that_lacks_messages(self) -> None:
        looks = self.held({"n1": 80, "n2": 16, "n3": 80}), self.held({"n1": 90, "n2": 16, "n3": 90})
        (problem,) = difference_problems(*looks, Limits())
        assert (problem.code, problem.servers) == ("stream_replica_differs", ("n2",))
        assert "n2 is stuck at message 16 while n1 is at 90, and n1 counts it as current" in problem.message

    @pytest.mark.parametrize(
        ("early", "late", "lag"),
        [
            ({"n1": 80, "n2": 70, "n3": 80}, {"n1": 90, "n2": 85, "n3": 90}, 0),
            ({"n1": 80, "n2": 80, "n3": 80}, {"n1": 90, "n2": 80, "n3": 90}, 0),
            ({"n1": 80, "n2": 16, "n3": 80}, {"n1": 80, "n2": 16, "n3": 80}, 201),
            ({"n1": 80, "n3": 80}, {"n1": 80, "n2": 16, "n3": 80}, 0),
        ],
    )
    def test_messages_in_flight_are_not_a_difference(
        self, early: dict[str, int], late: dict[str, int], lag: int
    ) -> None:
        assert difference_problems(self.held(early, lag), self.held(late, lag), Limits()) == []

    def test_an_election_between_two_samples(self) -> None:
        before = cluster(NAMES, stream("ORDERS", NAMES), stream("EVENTS", NAMES))
        after = cluster(NAMES, stream("ORDERS", ["n2", "n1", "n3"]), stream("EVENTS", NAMES), stream("NEW", ["n2"]))
        (problem,) = election_problems(before, after)
        assert (problem.code, problem.subject) == ("stream_leader_changed", "stream APP/ORDERS")
        assert "n2, previously n1" in problem.message
        assert election_problems(before, before) == election_problems(Cluster(), after) == []
        first, second = (
            cluster(NAMES, replace(orders, group=replace(orders.group, leader_since=f"2026-11-28T08:00:0{second}Z")))
            for second in (1, 2)
            for orders in [stream("ORDERS", NAMES)]
        )
        (problem,) = election_problems(first, second)
        assert "elected n1 again since the last sample" in problem.message
        assert election_problems(first, first) == election_problems(before, first) == []
        lost = cluster(NAMES, stream("ORDERS", NAMES, led=False))
        assert election_problems(before, lost) == election_problems(lost, after) == []


class TestHealth:
    def test_healthy(self) -> None:
        orders = replace(stream("ORDERS", NAMES), consumers=(consumer("ORDERS", "worker", NAMES),))
        assert health_problems(cluster(NAMES, orders, stream("EVENTS", ["n2"])), expect(NAMES)) == []

    def test_missing_and_unexpected(self) -> None:
        problems = health_problems(cluster(["n1", "n10", "n3"]), expect(NAMES))
        assert [(problem.code, problem.servers) for problem in problems] == [
            ("server_missing", ("n2",)),
            ("server_unexpected", ("n10",)),
            ("meta_peer_missing", ("n2",)),
            ("meta_peer_unexpected", ("n10",)),
        ]

    def test_two_servers_of_one_name(self) -> None:
        twins = replace(cluster(NAMES), servers=(server("n1"), server("n1", id="NX"), server("n2"), server("n3")))
        (problem,) = health_problems(twins, expect(NAMES))
        assert (problem.code, problem.servers) == ("server_duplicate", ())

    def test_newest_server_of_a_duplicate_name_comes_first(self) -> None:
        old, new = (
            server("n1", id="NOLD0123456", host="10.0.0.1", uptime=7200.0),
            server("n1", id="NNEW0123456", uptime=60.0),
        )
        (problem,) = duplicate_problems(Cluster((old, new, server("n2"))))
        assert problem.message == "2 servers are named n1:  up for 1m (id NNEW0123…), 10.0.0.1 up for 2h (id NOLD0123…)"

    def test_a_server_that_runs_apart_is_named_with_its_reason(self) -> None:
        alone = replace(cluster(NAMES), servers=cluster(NAMES).servers[:2], apart={"n3": "cluster.name is C9 there"})
        problem = health_problems(alone, expect(NAMES))[0]
        assert (problem.code, problem.servers) == ("server_isolated", ("n3",))
        assert "cluster.name is C9 there" in problem.message

    def test_a_server_that_is_too_old_for_a_stream(self) -> None:
        counters = replace(stream("CNT", NAMES), api_level=2)
        levels = dict(zip(NAMES, (5, 5, 0)))
        servers = tuple(server(name, summary=JetStreamSummary(api_level=level)) for name, level in levels.items())
        live = replace(cluster(NAMES, counters, stream("OLD", NAMES)), servers=servers)
        (problem,) = health_problems(live, expect(NAMES))
        assert (problem.code, problem.subject, problem.servers) == ("stream_api_level", "stream APP/CNT", ("n3",))
        assert "needs API level 2" in problem.message and "n3 () has level 0" in problem.message
        assert lasting_asset_faults(live) == ["stream APP/CNT"], "the roll that ends it must not wait for it"

    def test_expected_server_in_another_cluster(self) -> None:
        moved = replace(cluster(NAMES), servers=(server("n1"), server("n2"), server("n3", cluster="C2")))
        problems = health_problems(moved, expect(NAMES, cluster="C1"))
        assert codes(problems) == ["server_wrong_cluster"]
        assert "'C2'" in problems[0].message

    def test_each_server_is_expected_in_its_own_cluster(self) -> None:
        sites = replace(
            cluster(NAMES),
            servers=(
                server("n1", cluster="C2", reaches=("C1",)),
                *(server(name, reaches=("C2",)) for name in NAMES[1:]),
            ),
        )
        assert health_problems(sites, expect(NAMES, clusters={"n1": "C2", "n2": "C1"})) == []
        (problem,) = health_problems(sites, expect(NAMES, clusters={"n1": "C2", "n2": "C3"}))
        assert (problem.code, problem.servers) == ("server_wrong_cluster", ("n2",))

    def test_each_server_reaches_each_other_cluster_of_which_a_server_answers(self) -> None:
        names = {"n1": "C1", "n2": "C2", "n3": "C3", "n4": "C4"}
        reaches = {"n1": ("C2", "C3"), "n2": ("C1",), "n3": ("C1", "C2")}
        servers = tuple(server(name, cluster=names[name], reaches=there) for name, there in reaches.items())
        sites = replace(cluster(NAMES), servers=servers)
        for expected in (expect(NAMES, clusters=names), expect(NAMES), Expectations()):
            (problem,) = health_problems(sites, expected)
            assert (problem.code, problem.servers) == ("gateway_missing", ("n2",))
            assert "n2 of C2 has no gateway connection to C3" in problem.message
        assert health_problems(sites, expect(NAMES[:1], cluster="C1", clusters=names)) == []

    def test_a_server_that_lost_all_its_gateways_is_known_by_its_expected_cluster(self) -> None:
        sites = replace(cluster(NAMES), servers=(server("n1", cluster="C2"), server("n2"), server("n3")))
        problems = health_problems(sites, expect(NAMES, clusters={"n1": "C2", "n2": "C1", "n3": "C1"}))
        assert [problem.servers for problem in problems] == [("n1",), ("n2",), ("n3",)]
        assert health_problems(sites, expect(NAMES)) == []

    def test_servers_behind_leafnodes_need_no_gateways(self) -> None:
        hub = (server("n1", reaches=("C2",)), server("n2", cluster="C2", reaches=("C1",)))
        sites = replace(cluster(NAMES), servers=(*hub, server("n3", cluster="LEAF", domain="leaf")))
        assert health_problems(sites, expect(NAMES)) == []

    def test_other_clusters_are_not_judged(self) -> None:
        names = [*NAMES, "m1", "m2", "m3"]
        both = replace(
            cluster(names),
            servers=tuple(server(name, cluster="C1" if name[0] == "n" else "C2") for name in names),
            streams=(stream("ORDERS", ["m1", "m2", "m3"], behind=("m2",)),),
        )
        both = replace(both, streams=(replace(both.streams[0], group=replace(both.streams[0].group, cluster="C2")),))
        assert health_problems(both, expect(NAMES, cluster="C1")) == []
        assert codes(health_problems(both, expect(names))) == ["stream_replica_behind"]

    def test_an_unknown_cluster_is_reported(self) -> None:
        assert codes(health_problems(cluster(NAMES), Expectations(cluster="C9"))) == ["cluster_missing"]

    def test_no_meta_group_where_one_is_expected(self) -> None:
        assert codes(health_problems(replace(cluster(NAMES), meta=None), expect(NAMES))) == ["meta_no_leader"]
        alone = Cluster((server("n1"),))
        assert health_problems(alone, expect(["n1"])) == []

    def test_meta_without_leader(self) -> None:
        lost = cluster(NAMES)
        assert lost.meta is not None
        lost = replace(
            lost,
            meta=replace(
                lost.meta, group=replace(lost.meta.group, leaders=(), peers=()), views=dict.fromkeys(NAMES, "")
            ),
        )
        assert codes(health_problems(lost, expect(NAMES))) == ["meta_no_leader"]

    def test_meta_leader_that_does_not_answer(self) -> None:
        """For some seconds after a crash, the other servers still name the dead leader."""
        lost = cluster(NAMES)
        assert lost.meta is not None
        dead = replace(lost.meta, group=replace(lost.meta.group, leaders=(), peers=()), views={"n2": "n1", "n3": "n1"})
        problems = health_problems(replace(lost, servers=lost.servers[1:], meta=dead), expect(NAMES))
        assert codes(problems) == ["server_missing", "meta_no_leader"]
        assert "n1" in problems[1].message

    @pytest.mark.parametrize("view", ["n2", ""])
    def test_meta_leader_not_agreed_by_all(self, view: str) -> None:
        split = cluster(NAMES)
        assert split.meta is not None
        split = replace(split, meta=replace(split.meta, views={"n1": "n1", "n2": view, "n3": "n1"}))
        assert codes(health_problems(split, expect(NAMES))) == ["meta_leader_disputed"]

    def test_meta_group_larger_than_its_known_members(self) -> None:
        grown = cluster(NAMES)
        assert grown.meta is not None
        grown = replace(grown, meta=replace(grown.meta, group=replace(grown.meta.group, size=4)))
        assert codes(health_problems(grown, expect(NAMES))) == ["meta_size"]

    @pytest.mark.parametrize(
        ("members", "counted", "found"), [(3, 2, []), (5, 4, []), (4, 3, ["meta_size"]), (5, 2, ["meta_size"])]
    )
    def test_a_leader_that_counts_too_few_members(self, members: int, counted: int, found: list[str]) -> None:
        """A leader that counts too few members is harmless if the quorum has the same size for both numbers."""
        names = [f"n{number}" for number in range(members)]
        wrong = cluster(names)
        assert wrong.meta is not None
        wrong = replace(wrong, meta=replace(wrong.meta, group=replace(wrong.meta.group, size=counted)))
        assert codes(health_problems(wrong, expect(names))) == found

    def test_a_server_that_is_unknown_to_the_meta_leader(self) -> None:
        """The fault occurs on 2.10.27 when five servers start together: one follows the leader, which counts only four
        members."""
        live = cluster(["n1", "n2", "n3", "n4"])
        assert live.meta is not None
        group = replace(live.meta.group, members=("n1", "n2", "n3", "n4", "n5"))
        live = replace(
            live,
            servers=(*live.servers, server("n5")),
            meta=replace(live.meta, group=group, views={**live.meta.views, "n5": "n1"}),
        )
        problems = health_problems(live, expect(["n1", "n2", "n3", "n4", "n5"]))
        assert [(problem.code, problem.servers) for problem in problems] == [("meta_peer_missing", ("n5",))]

    def test_meta_leader_with_too_many_requests(self) -> None:
        busy = cluster(NAMES)
        assert busy.meta is not None
        busy = replace(busy, meta=replace(busy.meta, pending=5000))
        assert codes(health_problems(busy, expect(NAMES))) == ["meta_pending"]

    def test_own_faults_of_servers(self) -> None:
        sick = Health("unavailable", 503, ("JetStream is not current with the meta leader",))
        servers = (
            server("n1", health=sick),
            server("n2", jetstream=False, summary=None),
            server("n3", health=None, summary=None),
        )
        problems = health_problems(replace(cluster(NAMES), servers=servers), expect(NAMES))
        assert codes(problems) == ["server_unhealthy", "jetstream_disabled", "server_silent", "server_silent"]
        assert "not current" in problems[0].message

    @pytest.mark.parametrize(
        ("peer", "healthy"),
        [
            (Peer("n2", current=True), True),
            (Peer("n2", current=True, active=5, lag=200), True),
            (Peer("n2", current=False, lag=3, active=0.2), True),
            (Peer("n2", current=False), False),
            (Peer("n2", current=False, lag=3), False),
            (Peer("n2", current=True, offline=True), False),
            (Peer("n2", current=True, active=5.1), False),
            (Peer("n2", current=True, lag=201), False),
            (Peer("n2", current=False, active=9.2e9), False),
        ],
    )
    def test_when_a_replica_is_in_step(self, peer: Peer, healthy: bool) -> None:
        problems = health_problems(cluster(NAMES, with_peer(stream("ORDERS", NAMES), peer)), expect(NAMES))
        assert codes(problems) == ([] if healthy else ["stream_replica_behind"])
        assert healthy or problems[0].servers == ("n2",)

    def test_no_lag_at_all(self) -> None:
        strict = expect(NAMES, limits=Limits(max_lag=0))
        lagging = with_peer(stream("ORDERS", NAMES), Peer("n2", current=True, lag=1))
        assert codes(health_problems(cluster(NAMES, lagging), strict)) == ["stream_replica_behind"]

    def test_a_leaderless_group_names_itself_and_its_members(self) -> None:
        lost = stream("ORDERS", NAMES, led=False)
        lost = replace(lost, group=replace(lost.group, raft_name="S-R3F-abc", hosts=("n1",)))
        (problem,) = health_problems(cluster(NAMES, lost), expect(NAMES))
        assert (problem.code, problem.subject) == ("stream_no_leader", "stream APP/ORDERS")
        for part in ("S-R3F-abc", "n1, n2, n3", "2 of 3", "1 answered (n1)"):
            assert part in problem.message

    def test_incomplete_groups(self) -> None:
        whole = stream("ORDERS", NAMES)
        disputed = replace(whole, group=replace(whole.group, leaders=("n1", "n2"), peers=()))
        shrunk = replace(whole, group=replace(whole.group, peers=whole.group.peers[:1]))
        moving = replace(whole, group=replace(whole.group, moving=True))
        for item, code in (
            (disputed, "stream_leader_disputed"),
            (shrunk, "stream_replica_count"),
            (moving, "stream_moving"),
        ):
            assert codes(health_problems(cluster(NAMES, item), expect(NAMES))) == [code]

    def test_a_quorum_lost_a_moment_ago(self) -> None:
        """The leader still leads, but the other replicas are unavailable; naming the stream as tolerated does not
        excuse the lost quorum."""
        live = replace(
            cluster(["n1", "n2", "n3", "n4", "n5"], stream("ORDERS", NAMES)),
            servers=(server("n1"), server("n4"), server("n5")),
        )
        remaining, _tolerated = split_tolerated(health_problems(live, Expectations()), ["n2", "n3"])
        assert [(problem.code, problem.subject) for problem in remaining] == [("stream_no_quorum", "stream APP/ORDERS")]
        assert "1 of 3" in remaining[0].message

    def test_consumers_are_judged_too(self) -> None:
        item = consumer("ORDERS", "worker", NAMES)
        orders = replace(stream("ORDERS", NAMES), consumers=(replace(item, group=replace(item.group, leaders=())),))
        assert codes(health_problems(cluster(NAMES, orders), expect(NAMES))) == ["consumer_no_leader"]

    @given(clusters(), st.data())
    def test_each_replica_out_of_step_and_each_lost_leader_is_reported(
        self, live: Cluster, data: st.DataObject
    ) -> None:
        problems = health_problems(live, Expectations())
        found = {(problem.code, problem.subject, problem.servers) for problem in problems}
        for item in live.streams:
            if not item.group.leaders:
                assert ("stream_no_leader", item.group.subject, ()) in found
            for peer in item.group.peers:
                expected = ("stream_replica_behind", item.group.subject, (peer.name,))
                assert (expected in found) is (not peer.current or peer.name not in live.names)


class TestStop:
    def test_one_of_three_can_be_spared(self) -> None:
        live = cluster(NAMES, stream("ORDERS", NAMES))
        assert stop_problems(live, ["n2"], ACCEPT) == []
        assert codes(stop_problems(live, ["n1", "n2"], ACCEPT)) == ["stop_breaks_quorum", "stop_breaks_quorum"]

    def test_a_replica_out_of_step_does_not_count(self) -> None:
        (problem,) = stop_problems(cluster(NAMES, stream("ORDERS", NAMES, behind=("n3",))), ["n2"], ACCEPT)
        assert problem.subject == "stream APP/ORDERS"
        for part in ("n2", "1 of 3", "n3 out of step", "2 are needed"):
            assert part in problem.message

    def test_a_replica_that_did_not_answer_does_not_count(self) -> None:
        """For some seconds after a crash, the leader still reports the replica as current."""
        live = replace(cluster(NAMES, stream("ORDERS", NAMES)), servers=(server("n1"), server("n2")))
        assert codes(stop_problems(live, ["n2"], ACCEPT)) == ["stop_breaks_quorum", "stop_breaks_quorum"]
        assert [(problem.code, problem.servers) for problem in health_problems(live, Expectations())] == [
            ("meta_replica_behind", ("n3",)),
            ("stream_replica_behind", ("n3",)),
        ]

    def test_groups_elsewhere_do_not_matter(self) -> None:
        names = ["n1", "n2", "n3", "n4", "n5"]
        live = cluster(names, stream("ORDERS", ["n1", "n2", "n3"], behind=("n2", "n3")))
        assert stop_problems(live, ["n4"], ACCEPT) == []

    def test_a_group_without_leader_is_a_reason(self) -> None:
        live = cluster(NAMES, stream("ORDERS", NAMES, led=False))
        assert codes(stop_problems(live, ["n1"], ACCEPT)) == ["stop_breaks_quorum"]

    def test_single_replicas(self) -> None:
        live = cluster(NAMES, stream("EVENTS", ["n1"]))
        assert [problem.severity for problem in stop_problems(live, ["n1"], ACCEPT)] == ["warning"]
        assert [problem.severity for problem in stop_problems(live, ["n1"], FAIL)] == ["error"]
        assert stop_problems(live, ["n2"], FAIL) == []

    def test_ephemeral_consumers_are_never_in_the_way(self) -> None:
        item = consumer("ORDERS", "fleeting", ["n1"])
        item = replace(item, group=replace(item.group, ephemeral=True))
        live = cluster(NAMES, replace(stream("ORDERS", NAMES), consumers=(item,)))
        assert [(problem.code, problem.severity) for problem in stop_problems(live, ["n1"], FAIL)] == [
            ("stop_r1", "warning")
        ]

    def test_unknown_name(self) -> None:
        assert codes(stop_problems(cluster(NAMES), ["n11"], ACCEPT)) == ["stop_unknown_server"]

    def test_a_dead_server_known_to_a_group_can_be_stopped(self) -> None:
        live = replace(cluster(NAMES), servers=(server("n1"), server("n2")), meta=meta(NAMES, behind=("n3",)))
        assert stop_problems(live, ["n3"], ACCEPT) == []

    def test_the_servers_own_higher_quorum_counts(self) -> None:
        live = cluster(NAMES)
        assert live.meta is not None
        live = replace(live, meta=replace(live.meta, quorum_needed=3))
        assert codes(stop_problems(live, ["n2"], ACCEPT)) == ["stop_breaks_quorum"]

    @given(clusters(), st.data())
    def test_allowed_exactly_when_every_touched_group_keeps_its_quorum(
        self, live: Cluster, data: st.DataObject
    ) -> None:
        stopping = data.draw(st.sets(st.sampled_from(sorted(live.names))))
        assert live.meta is not None
        groups = [live.meta.group, *live.groups()]
        broken = set()
        for item in groups:
            if item.size == 1 or not stopping.intersection(item.members):
                continue
            standing = [peer.name for peer in item.peers if peer.current and peer.name in live.names]
            standing += item.leaders
            if len([name for name in standing if name not in stopping]) * 2 <= item.size:
                broken.add(item.subject)
        errors = [problem for problem in stop_problems(live, stopping, ACCEPT) if problem.severity == "error"]
        assert {problem.subject for problem in errors} == broken

    @given(clusters(), st.data())
    def test_stopping_fewer_servers_is_never_worse(self, live: Cluster, data: st.DataObject) -> None:
        more = data.draw(st.sets(st.sampled_from(sorted(live.names))))
        fewer = data.draw(st.sets(st.sampled_from(sorted(more)))) if more else set()

        def subjects(names: set[str]) -> set[tuple[str, str]]:
            return {(problem.code, problem.subject) for problem in stop_problems(live, names, FAIL)}

        assert subjects(fewer) <= subjects(more)
        assert subjects(set()) == set()


def test_changes_of_a_problem() -> None:
    """A running replica that catches up with entries changes the problem; the growing time and lag of a silent or
    offline replica do not."""

    def state(**peer: object) -> object:
        item = with_peer(stream("ORDERS", NAMES), Peer("n3", **peer))  # type: ignore[arg-type]
        (problem,) = health_problems(cluster(NAMES, item), expect(NAMES))
        return problem.state

    assert state(current=False, lag=900) != state(current=False, lag=500)
    assert state(current=False, active=10.0, lag=900) == state(current=False, active=600.0, lag=5000)
    assert state(current=False, offline=True, lag=900) == state(current=False, offline=True, lag=5000)
    assert state(current=False, offline=True) != state(current=False, active=10.0) != state(current=False)


def test_tolerance_by_code_and_by_server() -> None:
    lost = replace(stream("ORDERS", NAMES), group=group("stream", "stream APP/ORDERS", NAMES, led=False))
    live = replace(cluster(NAMES, lost, stream("EVENTS", NAMES, behind=("n3",))), servers=(server("n1"), server("n2")))
    problems = health_problems(live, expect(NAMES))
    behind = ["meta_replica_behind", "stream_no_leader", "stream_replica_behind"]
    assert codes(problems) == ["server_missing", *behind]
    remaining, tolerated = split_tolerated(problems, ["n3"])
    assert codes(remaining) == ["stream_no_leader"]
    assert codes(tolerated) == ["server_missing", "meta_replica_behind", "stream_replica_behind"]
    remaining, tolerated = split_tolerated(problems, ["server_missing", "stream_no_leader", "n1"])
    assert codes(remaining) == ["meta_replica_behind", "stream_replica_behind"]


def test_stream_only_on_a_stopped_server_has_no_leader_and_never_delays_its_start() -> None:
    lost = stream("EVENTS", ["n9"], led=False)
    lost = replace(lost, group=replace(lost.group, hosts=(), unreported=True))
    broken = cluster(NAMES, lost)
    (found,) = [one for one in health_problems(broken, Expectations()) if one.code == "stream_no_leader"]
    assert (found.servers, found.absent) == (("n9",), ("n9",))
    assert found.message == "stream APP/EVENTS has no leader: its replicas are only on n9"
    assert split_tolerated([found], ["n9"]) == ([], [found])
    assert not [one for one in stop_problems(broken, ["n9"], StopPolicy("fail")) if one.code == "stop_r1"]
