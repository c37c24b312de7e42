# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests root causes: each fault is listed with its symptoms, each problem belongs to exactly one cause, and the output
always fits one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import (
    KINDS,
    ClusterContext,
    RootCause,
    build_context,
    scene_of_info,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import (
    cause_lines,
    parse_problem,
    root_causes,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import (
    Expectations,
    StopPolicy,
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
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, WARNING, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import MAX_LINES, MAX_WIDTH
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, consumer, meta, server, stream

FIVE = ["n1", "n2", "n3", "n4", "n5"]
NAMES = FIVE[:3]


def judge(
    live: Cluster, names: list[str], stop: tuple[str, ...] = (), expected_clusters: dict[str, str] | None = None
) -> list[RootCause]:
    """Return the causes that the gate would name, after checking that each problem belongs to exactly one cause."""
    expected = Expectations(frozenset(names), frozenset(names), clusters=expected_clusters or {})
    problems = [*health_problems(live, expected), *stop_problems(live, stop, StopPolicy())]
    found = root_causes(problems, build_context(live, expected_clusters or {}, stop))
    assert Counter(problem for cause in found for problem in cause.problems) == Counter(problems)
    return found


def kinds(found: list[RootCause]) -> list[str]:
    return [cause.kind for cause in found]


def without(live: Cluster, *dead: str) -> Cluster:
    """Return the cluster as the other servers see it if these servers died a minute ago."""

    def seen(item: Stream) -> Stream:
        group = item.group
        left = tuple(name for name in group.members if name not in dead)
        peers = tuple(
            replace(peer, current=peer.name not in dead, active=60.0 * (peer.name in dead)) for peer in group.peers
        )
        led = len(left) >= group.quorum
        leaders = left[:1] if led else ()
        peers = tuple(
            Peer(name, current=name not in dead, active=60.0 * (name in dead))
            for name in group.members
            if name not in leaders
        )
        return replace(item, group=replace(group, leaders=leaders, peers=peers if led else (), hosts=left))

    group = live.meta.group if live.meta else None
    assert group is not None and live.meta is not None
    peers = tuple(
        replace(peer, current=peer.name not in dead, active=60.0 * (peer.name in dead)) for peer in group.peers
    )
    return Cluster(
        tuple(one for one in live.servers if one.name not in dead),
        replace(
            live.meta, group=replace(group, peers=peers), views={name: "n1" for name in live.names if name not in dead}
        ),
        tuple(item for item in map(seen, live.streams) if item.group.hosts),
    )


def thousand(count: int = 1000) -> list[Stream]:
    """Return R3 streams on every combination of three out of five servers."""
    trios = [
        [FIVE[number], FIVE[(number + step) % 5], FIVE[(number + 2 * step) % 5]]
        for number in range(5)
        for step in (1, 2)
    ]
    return [stream(f"S{number}", trios[number % len(trios)]) for number in range(count)]


def test_two_dead_servers_are_one_cause_with_a_thousand_symptoms() -> None:
    live = without(cluster(FIVE, *thousand()), "n4", "n5")
    (cause,) = judge(live, FIVE)
    assert (cause.kind, cause.servers, cause.stuck) == ("servers_down", ("n4", "n5"), True)
    lost = sum(problem.code == "stream_no_leader" for problem in cause.problems)
    missed = len({problem.subject for problem in cause.problems if problem.code.endswith("_replica_behind")})
    assert (lost, missed) == (300, 601)
    assert cause.title == "n4 and n5 do not answer: 300 streams have no quorum, 601 miss a replica"
    assert cause.age == 60
    assert "on n4 and n5" in cause.commands[0]


def test_a_stop_on_top_of_a_dead_server_is_its_symptom() -> None:
    live = without(cluster(NAMES, stream("ORDERS", NAMES)), "n3")
    (cause,) = judge(live, NAMES, ("n2",))
    assert cause.kind == "servers_down"
    assert cause.title == (
        "n3 does not answer: the meta group and stream APP/ORDERS miss a replica, "
        "the stop would take the quorum of the meta group and stream APP/ORDERS"
    )


def test_a_healthy_cluster_whose_quorum_the_stop_would_take() -> None:
    (cause,) = judge(cluster(NAMES, stream("ORDERS", NAMES)), NAMES, ("n2", "n3"))
    assert (cause.kind, cause.servers) == ("request", ("n2", "n3"))
    assert cause.title == "stopping n2 and n3 now would take the quorum of the meta group and stream APP/ORDERS"
    assert not cause.stuck


def test_single_replicas_are_named_by_their_number() -> None:
    streams = [stream(f"S{number}", ["n1"]) for number in range(7)]
    (cause,) = judge(cluster(NAMES, *streams), NAMES, ("n1",))
    assert (cause.severity, cause.title) == (
        WARNING,
        "7 streams have a single replica and are unavailable while n1 is stopped",
    )


def test_a_meta_group_that_lost_its_quorum_to_dead_servers() -> None:
    sick = Health("error", 503, ("JetStream has not established contact with a meta leader",))
    lost = replace(
        cluster(NAMES, stream("ORDERS", NAMES)),
        servers=(server("n1", health=sick),),
        meta=replace(meta(NAMES), views={"n1": ""}),
    )
    (cause,) = judge(lost, NAMES)
    assert cause.kind == "servers_down"
    assert cause.title.startswith("n2 and n3 do not answer: the meta group")
    assert {problem.code for problem in cause.problems} >= {"server_missing", "meta_no_leader", "server_unhealthy"}


def test_a_meta_group_without_a_leader_while_every_server_answers() -> None:
    live = cluster(NAMES)
    (cause,) = judge(replace(live, meta=replace(meta(NAMES), views=dict.fromkeys(NAMES, ""))), NAMES)
    assert cause.kind == "meta_group"
    assert cause.title.startswith("no meta leader: 2 of 3")


def test_a_site_of_a_supercluster_that_is_gone() -> None:
    sites = {"n1": "east", "n2": "east", "n3": "central", "n4": "west", "n5": "west"}
    live = without(cluster(FIVE, stream("ORDERS", ["n3", "n4", "n5"])), "n4", "n5")
    live = replace(
        live, servers=tuple(replace(one, cluster=sites[one.name], reaches=("east", "central")) for one in live.servers)
    )
    (cause,) = judge(live, FIVE, expected_clusters=sites)
    assert (cause.kind, cause.servers) == ("site_down", ("n4", "n5"))
    assert cause.title.startswith(
        "no server of west answers (n4 and n5): the site is down or unreachable: stream APP/ORDERS"
    )


def test_gateways_that_are_cut() -> None:
    found = root_causes(
        [Problem("gateway_missing", ERROR, name, f"{name} of east has no gateway", (name,)) for name in NAMES],
        ClusterContext(),
    )
    assert [(cause.kind, cause.title) for cause in found] == [
        ("routes_cut", "3 servers (n1, n2 and n3) miss a gateway connection to another cluster")
    ]


@pytest.mark.parametrize(
    ("version", "kind"), [("2.10.27", "version_defect"), ("2.11.9", "routes_cut"), ("2.10.22", "routes_cut")]
)
def test_a_server_that_answers_and_is_not_heard(version: str, kind: str) -> None:
    live = cluster(NAMES, stream("ORDERS", NAMES))
    assert live.meta is not None
    silent = tuple(
        replace(peer, current=False, active=40.0 if peer.name == "n3" else 0.5) for peer in live.meta.group.peers
    )
    silent = tuple(replace(peer, current=peer.name != "n3") for peer in silent)
    live = replace(
        live,
        servers=tuple(replace(one, version=version, uptime=300.0) for one in live.servers),
        meta=replace(live.meta, group=replace(live.meta.group, peers=silent)),
    )
    (cause,) = judge(live, NAMES)
    assert (cause.kind, cause.servers, cause.age) == (kind, ("n3",), 40)
    assert cause.stuck == (kind == "version_defect")
    assert ("raft-silent, a defect of nats-server 2.10.27 (fixed in 2.11.0)" in cause.title) == (
        kind == "version_defect"
    )


def test_raft_silent_server_of_a_first_start_gets_a_restart() -> None:
    live = cluster(NAMES)
    assert live.meta is not None
    group = replace(live.meta.group, members=("n1", "n2"), peers=live.meta.group.peers[:1], size=2)
    live = replace(
        live,
        servers=tuple(replace(one, version="2.10.27", uptime=300.0) for one in live.servers),
        meta=replace(live.meta, group=group),
    )
    (cause,) = judge(live, NAMES)
    assert (cause.kind, cause.servers) == ("version_defect", ("n3",))
    assert cause.commands[0] == "systemctl restart nats-server  # on n3"


def test_a_full_disk_is_the_cause_of_its_servers_missing_replicas() -> None:
    live = cluster(NAMES, stream("ORDERS", NAMES, behind=("n3",)))
    full = (*live.servers[:2], server("n3", jetstream=False))
    problems = health_problems(replace(live, servers=full), Expectations(frozenset(NAMES), frozenset(NAMES)))
    (cause,) = root_causes(problems, ClusterContext(frozenset(NAMES), disks={"n1": 40, "n3": 100}))
    assert (cause.kind, cause.servers, cause.stuck) == ("storage", ("n3",), True)
    assert cause.title == "the disk is full (n3 100 %): stream APP/ORDERS misses a replica"
    (guess,) = judge(replace(live, servers=full), NAMES)
    assert guess.title.startswith("JetStream is not running on n3 (out of storage, or disabled)")


def test_a_replica_that_catches_up_is_not_stuck() -> None:
    (cause,) = judge(cluster(NAMES, stream("ORDERS", NAMES, behind=("n3",))), NAMES, ("n2",))
    assert (cause.kind, cause.servers, cause.stuck) == ("catching_up", ("n3",), False)
    assert cause.title == (
        "replicas on n3 catch up or move: stream APP/ORDERS misses a replica, the stop would take the quorum of stream APP/ORDERS"
    )


def test_a_stream_without_a_leader_whose_members_all_answer_is_its_own_fault() -> None:
    (cause,) = judge(cluster(FIVE, stream("ORDERS", NAMES, led=False)), FIVE, ("n1",))
    assert (cause.kind, cause.assets) == ("asset_fault", ("stream APP/ORDERS",))
    assert cause.title == "stream APP/ORDERS has no leader although all members answer"
    assert cause.commands[0] == "nats stream info ORDERS  # as a user of account APP"
    # A shell must not execute parts of a name that is pasted with the command.
    (cause,) = judge(cluster(FIVE, stream("A;reboot", NAMES, led=False)), FIVE, ("n1",))
    assert cause.commands[0] == "nats stream info 'A;reboot'  # as a user of account APP"


def test_servers_and_inventory_differ() -> None:
    found = judge(cluster(["n1", "n2", "n9"]), ["n1", "n2"])
    assert kinds(found) == ["membership"]
    assert found[0].title == "the inventory and the cluster differ: n9"


def test_unexplained_problems_are_kept() -> None:
    (cause,) = root_causes(
        [Problem("new_code", ERROR, "x", "something"), Problem("new_code", ERROR, "y", "else")], ClusterContext()
    )
    assert (cause.kind, cause.title, len(cause.problems)) == ("unknown", "something (and 1 more of this kind)", 2)


def test_the_most_fundamental_comes_first_and_warnings_last() -> None:
    live = without(cluster(FIVE, stream("ORDERS", ["n1", "n2", "n3"], behind=("n3",))), "n5")
    live = replace(live, streams=(stream("ORDERS", ["n1", "n2", "n3"], behind=("n3",)), stream("ONE", ["n1"])))
    assert kinds(judge(live, FIVE, ("n1",))) == ["servers_down", "catching_up", "request"]
    assert list(KINDS).index("servers_down") < list(KINDS).index("catching_up")


# --- an asset's fault -------------------------------------------------------------------------------------------------

GHOST = "JetStream consumer 'APP > ORDERS > worker' is not current: consumer not found"


def haunted(
    error: str = GHOST, names: Sequence[str] = tuple(NAMES), uptime: float = 100.0, sick: list[str] | None = None
) -> Cluster:
    names = list(names)
    live = cluster(names, stream("ORDERS", names[:3]))
    server_health = {name: Health("error", 503, (error,)) for name in (names[:3] if sick is None else sick)}
    return replace(
        live,
        servers=tuple(
            replace(one, uptime=uptime, health=server_health.get(one.name, one.health)) for one in live.servers
        ),
    )


def test_a_ghost_consumer_is_named_and_blocks_no_server() -> None:
    live = haunted()
    (problem,) = health_problems(live, Expectations(frozenset(NAMES), frozenset(NAMES)))
    assert (problem.code, problem.severity, problem.subject) == (
        "consumer_ghost",
        WARNING,
        "consumer APP/ORDERS/worker",
    )
    assert stop_problems(live, ["n1"], StopPolicy()) == []
    (cause,) = judge(live, NAMES, ("n1",))
    assert (cause.kind, cause.severity, cause.assets) == ("asset_fault", WARNING, ("consumer APP/ORDERS/worker",))
    assert cause.commands[1].startswith("nats consumer rm ORDERS worker")
    assert lasting_asset_faults(live) == ["consumer APP/ORDERS/worker"]


@pytest.mark.parametrize(
    ("live", "assets"),
    [
        (haunted(uptime=5), True),
        (haunted(), False),
        (haunted("JetStream stream 'APP > ORDERS' is not current: stream catching up"), True),
        (haunted("JetStream stream 'APP > ORDERS' is not current: cluster node skew detected", sick=["n3"]), True),
        (haunted("JetStream stream 'APP > ORDERS' is not current"), True),
    ],
)
def test_existing_or_pending_assets_count(live: Cluster, assets: bool) -> None:
    (problem,) = health_problems(live, Expectations(frozenset(NAMES), frozenset(NAMES), assets=assets))
    assert (problem.code.rpartition("_")[2], problem.severity) == ("unhealthy", ERROR)


def test_a_replica_that_its_own_server_calls_unhealthy_is_not_counted_for_a_stop() -> None:
    skew = "JetStream stream 'APP > ORDERS' is not current: cluster node skew detected"
    live = haunted(skew, names=FIVE, sick=["n3"])
    refused = stop_problems(live, ["n2"], StopPolicy())
    assert [(problem.code, problem.subject, problem.absent) for problem in refused] == [
        ("stop_breaks_quorum", "stream APP/ORDERS", ("n3",))
    ]
    assert stop_problems(live, ["n4"], StopPolicy()) == stop_problems(live, ["n3"], StopPolicy()) == []
    assert lasting_asset_faults(live) == ["stream APP/ORDERS"]
    # Naming the stream as tolerated excuses its state, but not the effect of stopping a server.
    problems = [*health_problems(live, Expectations()), *refused]
    remaining, tolerated = split_tolerated(problems, ["stream APP/ORDERS"])
    assert [problem.code for problem in remaining] == ["stop_breaks_quorum"]
    assert [problem.code for problem in tolerated] == ["stream_unhealthy"]


@pytest.mark.parametrize(
    ("version", "defect"), [("2.10.27", True), ("2.11.5", True), ("2.11.6", False), ("2.15.1", False)]
)
def test_a_restored_stream_is_judged_by_its_leader_where_healthz_is_wrong(version: str, defect: bool) -> None:
    said = "JetStream stream 'APP > ORDERS' is not current: monitor goroutine not running"
    live = haunted(said, names=FIVE, sick=["n3"])
    live = replace(live, servers=tuple(replace(one, version=version) for one in live.servers))
    (problem,) = health_problems(live, Expectations(frozenset(FIVE), frozenset(FIVE)))
    assert (problem.code, problem.severity) == (("stream_restored", WARNING) if defect else ("stream_unhealthy", ERROR))
    assert bool(stop_problems(live, ["n2"], StopPolicy())) is not defect
    assert lasting_asset_faults(live) == ([] if defect else ["stream APP/ORDERS"])
    (cause,) = judge(live, FIVE)
    assert cause.kind == ("version_defect" if defect else "asset_fault")
    assert ("fixed in 2.11.6" in cause.title) is defect


def test_server_fault_is_not_hidden_by_an_asset_fault() -> None:
    live = haunted()
    both = Health("error", 503, (GHOST, "JetStream is not current with the meta leader"))
    live = replace(live, servers=(replace(live.servers[0], health=both), *live.servers[1:]))
    found = health_problems(live, Expectations(frozenset(NAMES), frozenset(NAMES)))
    assert [problem.code for problem in found] == ["server_unhealthy", "consumer_ghost"]
    assert found[0].message == "n1 reports error: JetStream is not current with the meta leader"
    assert lasting_asset_faults(haunted("JetStream stream 'APP > ORDERS' is not current: stream catching up")) == []


# --- always one screen ------------------------------------------------------------------------------------------------

CODES = [
    *("server_missing", "server_unhealthy", "server_silent", "server_unexpected", "jetstream_disabled", "unreachable"),
    *(f"meta_{state}" for state in ("no_leader", "no_quorum", "pending", "size", "peer_missing", "leader_disputed")),
    *(
        f"{kind}_{state}"
        for kind in ("stream", "consumer")
        for state in ("no_leader", "no_quorum", "replica_behind", "replica_count", "moving", "unhealthy", "ghost")
    ),
    *("stop_breaks_quorum", "stop_r1", "stop_unknown_server", "gateway_missing", "roll_few_replicas", "other"),
]


@st.composite
def problem_lists(draw: st.DrawFn) -> list[Problem]:
    names = st.lists(st.sampled_from([*FIVE, "a-very-long-server-name." + "x" * 60]), max_size=2, unique=True).map(
        tuple
    )
    subjects = st.sampled_from(["meta group", *FIVE, "stream A/S", "consumer A/S/C", "stream $G/KV_" + "x" * 200])
    made = st.builds(
        Problem,
        code=st.sampled_from(CODES),
        severity=st.sampled_from([ERROR, WARNING]),
        subject=subjects,
        message=st.text("ab \n", min_size=1, max_size=300),
        servers=names,
        absent=names,
    )
    return draw(st.lists(made, max_size=40))


@given(problem_lists(), st.sets(st.sampled_from(FIVE)), st.sets(st.sampled_from(FIVE)))
def test_each_problem_is_in_exactly_one_cause_and_all_fits_a_screen(
    problems: list[Problem], answered: set[str], silent: set[str]
) -> None:
    context = ClusterContext(
        frozenset(answered), dict.fromkeys(FIVE, "C1"), raft_silent=frozenset(silent), disks={"n1": 99}
    )
    found = root_causes(problems, context)
    assert Counter(problem for cause in found for problem in cause.problems) == Counter(problems)
    assert all(cause.problems and cause.title and cause.kind in KINDS for cause in found)
    assert [cause.severity != ERROR for cause in found] == sorted(cause.severity != ERROR for cause in found)
    lines = cause_lines(found)
    assert len(lines) <= MAX_LINES and bool(lines) == bool(problems)
    assert all(len(line) <= MAX_WIDTH and "\n" not in line for line in lines)
    assert [cause.as_dict() for cause in found] == [cause.as_dict() for cause in root_causes(problems, context)]


@given(clusters(), st.sets(st.sampled_from(FIVE), max_size=2))
def test_any_cluster_is_explained(live: Cluster, stop: set[str]) -> None:
    found = judge(live, sorted(live.names | {"n9"}), tuple(stop))
    assert any("n9" in cause.servers for cause in found)


def test_a_server_that_recovers_is_neither_raft_silent_nor_cut_off() -> None:
    """A leader's lack of contact with a server that has just started is not a defect, and waiting resolves it."""
    orders = stream("ORDERS", NAMES)
    peers = tuple(
        replace(peer, active=314.0 if peer.name == "n3" else 0.1, current=peer.name != "n3")
        for peer in orders.group.peers
    )
    orders = replace(orders, group=replace(orders.group, peers=peers))
    live = cluster(NAMES, orders)
    ill = Health("error", errors=("JetStream is still recovering meta layer",))
    for version in ("2.10.27", "2.15.1"):
        servers = tuple(
            replace(one, version=version, health=ill if one.name == "n3" else one.health) for one in live.servers
        )
        (cause,) = judge(replace(live, servers=servers), NAMES)
        assert (cause.kind, cause.servers, cause.stuck) == ("catching_up", ("n3",), False)
        assert cause.title == "n3 recovers its streams after a start: stream APP/ORDERS misses a replica"


def test_a_server_that_runs_apart_is_not_called_down() -> None:
    live = replace(
        without(cluster(NAMES, stream("ORDERS", NAMES)), "n3"), apart={"n3": "cluster.name is C9 there, and C1 on n1"}
    )
    (cause,) = judge(live, NAMES)
    assert (cause.kind, cause.servers, cause.stuck) == ("routes_cut", ("n3",), True)
    assert cause.title.startswith(
        "n3 runs, but is isolated from the other servers: cluster.name is C9 there, and C1 on n1"
    )
    assert not any("scale_in" in command or "systemctl" in command for command in cause.commands)


def test_a_member_without_a_name_is_not_a_host() -> None:
    live = without(cluster([*NAMES[:2], "BXScrY9i"], stream("ORDERS", [*NAMES[:2], "BXScrY9i"])), "BXScrY9i")
    assert live.meta is not None
    nameless = frozenset(["BXScrY9i"])
    orders = replace(live.streams[0], group=replace(live.streams[0].group, nameless=nameless))
    meta_group = replace(live.meta, group=replace(live.meta.group, nameless=nameless))
    live = replace(live, streams=(orders,), meta=meta_group)
    problems = health_problems(live, Expectations(frozenset(NAMES[:2])))
    (cause,) = root_causes(problems, build_context(live, {}))
    assert (cause.kind, cause.servers) == ("servers_down", ())
    assert cause.title.startswith("1 member without a known name (id BXScrY9i)")
    assert not any("scale_in" in command or "systemctl" in command for command in cause.commands)


def test_servers_of_another_cluster_are_to_be_separated() -> None:
    both = [*NAMES, "b1", "b2", "b3"]
    disputed = stream("ORDERS", NAMES)
    disputed = replace(disputed, group=replace(disputed.group, leaders=("b1", "n1"), peers=()))
    live = cluster(both, disputed)
    (cause,) = judge(live, NAMES)
    assert (cause.kind, cause.servers, cause.stuck) == ("meta_group", ("b1", "b2", "b3"), True)
    assert cause.title.startswith("two clusters were connected: b1, b2 and b3 have a different meta group")
    assert live.meta is not None
    apart = replace(cluster(NAMES), servers=live.servers)
    assert apart.meta is not None
    apart = replace(apart, meta=replace(apart.meta, foreign=(frozenset(["b1", "b2", "b3"]),)))
    (cause,) = judge(apart, NAMES)
    assert cause.title == "two clusters were connected: b1, b2 and b3 have a different meta group"


def test_a_replica_silent_for_its_own_write_error_is_not_a_cut_route() -> None:
    orders = stream("ORDERS", NAMES)
    peers = tuple(
        replace(peer, current=peer.name != "n3", active=60.0 * (peer.name == "n3")) for peer in orders.group.peers
    )
    orders = replace(orders, group=replace(orders.group, peers=peers))
    ill = Health("unavailable", 503, ("JetStream stream 'APP > ORDERS' is not current: stream write error: no space",))
    live = cluster(NAMES, orders)
    servers = tuple(replace(one, uptime=300.0, health=ill if one.name == "n3" else one.health) for one in live.servers)
    (cause,) = judge(replace(live, servers=servers), NAMES)
    assert (cause.kind, cause.servers) == ("storage", ("n3",))


def test_streams_on_servers_at_their_limit_are_for_want_of_storage() -> None:
    full = JetStreamSummary(storage=13_000_988, max_storage=12_582_912)
    for led in (False, True):
        orders = stream("ORDERS", NAMES, behind=("n2", "n3"), led=led)
        live = cluster(NAMES, orders)
        servers = tuple(replace(one, summary=full) for one in live.servers)
        live = replace(live, servers=servers)
        (cause,) = judge(live, NAMES)
        assert (cause.kind, cause.stuck) == ("storage", True)
        assert "n1, n2 and n3 have reached a limit of JetStream (12.4 MiB of 12.0 MiB file storage)" in cause.title
        told = scene_of_info(live.as_dict())
        assert (told.limits, told.confined) == (build_context(live, {}).limits, frozenset(["stream APP/ORDERS"]))
    one_full = (replace(live.servers[0], summary=full), *cluster(NAMES).servers[1:])
    assert build_context(replace(live, servers=one_full), {}).confined == frozenset()


def test_a_group_without_a_member_to_come_is_not_waited_for() -> None:
    orders = stream("ORDERS", NAMES)
    orders = replace(orders, group=replace(orders.group, peers=orders.group.peers[:1], members=("n1", "n2")))
    (cause,) = judge(cluster(NAMES, orders), NAMES)
    assert (cause.kind, cause.stuck, cause.assets) == ("asset_fault", True, ("stream APP/ORDERS",))
    assert "repair" in cause.commands[0]


def test_gate_does_not_wait_for_inventory_errors() -> None:
    (cause,) = judge(cluster([*NAMES, "n9"]), NAMES)
    assert (cause.kind, cause.servers, cause.stuck) == ("membership", ("n9",), True)


def test_leaders_that_change_are_one_cause() -> None:
    before = cluster(NAMES, stream("A", NAMES), stream("B", NAMES))
    after = cluster(NAMES, stream("A", ["n2", "n1", "n3"]), stream("B", ["n3", "n1", "n2"]))
    (cause,) = root_causes(election_problems(before, after), build_context(after, {}))
    assert cause.title == "stream APP/A and stream APP/B have changed leaders since the last sample"


def test_a_few_problems_are_all_shown() -> None:
    problems = [Problem("other", ERROR, name, f"{name} is odd") for name in NAMES]
    assert cause_lines(root_causes(problems, ClusterContext())) == [
        "1. n1 is odd (and 2 more of this kind)",
        "   - n1 is odd",
        "   - n2 is odd",
        "   - n3 is odd",
        "   $ ansible-playbook natsops.jetstream.diagnose",
    ]


def test_more_causes_than_a_screen_holds_are_counted() -> None:
    found = root_causes(
        [Problem(f"other_{number}", ERROR, "x", f"odd {number}") for number in range(30)], ClusterContext()
    )
    lines = cause_lines(found)
    assert len(lines) <= MAX_LINES
    assert lines[-1].startswith("and 27 more causes: odd 3; odd 4")


def test_a_problem_of_a_result_is_the_same_problem() -> None:
    problem = Problem("stream_no_leader", ERROR, "stream APP/ORDERS", "m", ("n1",), absent=("n2",))
    assert parse_problem(problem.as_dict()) == problem


def test_the_scene_of_a_result_is_that_of_the_cluster() -> None:
    live = without(cluster(NAMES, stream("ORDERS", NAMES)), "n3")
    orders = replace(live.streams[0], consumers=(consumer("ORDERS", "worker", NAMES),))
    live = replace(live, streams=(orders,))
    told = {**live.as_dict(), "raft_silent": []}
    assert scene_of_info(told, hosts={"n3": "x"}).silence["n3"] == build_context(live, {}).silence["n3"] == 60
    assert scene_of_info(told).answered == live.names
