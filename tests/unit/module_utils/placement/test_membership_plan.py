# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which servers join and leave: every refusal with a case in which it fires and one in which it does not; also
whether run, inventory and cluster agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, JetStreamSummary, Stream
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.membership_plan import (
    KEEP,
    REPLACE,
    SCALE_IN,
    SCALE_OUT,
    InventoryServer,
    MembershipOptions,
    MembershipPlan,
    foreign_store_problems,
    membership_problems,
    plan_membership,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.scale_in import ScaleInRules
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ConfigProblem
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, meta, server, stream

FIVE = ["n1", "n2", "n3", "n4", "n5"]
RULES = ScaleInRules()
ROOM = JetStreamSummary(max_storage=1000, max_memory=100)


def live(names: list[str], *streams: Stream, known: list[str] | None = None) -> Cluster:
    """Return a cluster of servers that respond; `known` are the members of its meta group, by default the same
    servers."""
    made = cluster(names, *streams)
    return replace(made, servers=tuple(server(name, summary=ROOM) for name in names), meta=meta(known or names))


def hosts(names: list[str]) -> tuple[InventoryServer, ...]:
    return tuple(InventoryServer(name, name, "C1") for name in names)


def plan(
    operation: str,
    among: Cluster,
    members: list[str],
    leaving: list[str] | None = None,
    rules: ScaleInRules = RULES,
    lost: list[str] | None = None,
    unread: list[str] | None = None,
    **options: Any,
) -> MembershipPlan:
    request = MembershipOptions(operation, "the cluster C1", hosts(members), hosts(leaving or []), **options)
    return plan_membership(among, request, rules, lost or [], unread or [])


def only(found: MembershipPlan) -> str:
    """Return the only refusal."""
    (refusal,) = found.refusals
    return refusal


# --- The run and the cluster
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [SCALE_OUT, SCALE_IN, REPLACE, KEEP])
def test_a_run_with_a_part_of_the_cluster(operation: str) -> None:
    among = live(FIVE[:3])
    part = plan(operation, among, FIVE[:3], cluster_hosts=tuple(FIVE[:3]), run_hosts=("n1",))
    assert "the run excludes n2, n3: run it without --limit" in only(part)


def test_a_run_with_hosts_of_another_cluster() -> None:
    among = live(FIVE[:3])
    more = plan(SCALE_OUT, among, FIVE[:3], cluster_hosts=tuple(FIVE[:3]), run_hosts=(*FIVE[:3], "m1", "m2"))
    assert "The run also includes m1, m2, which do not belong to the cluster C1" in only(more)
    whole = plan(SCALE_OUT, among, FIVE[:3], cluster_hosts=tuple(FIVE[:3]), run_hosts=tuple(FIVE[:3]))
    assert whole.refusals == ()
    left = plan(SCALE_OUT, among, FIVE[:3], ["n4"], cluster_hosts=tuple(FIVE[:3]), run_hosts=tuple(FIVE[:4]))
    assert left.refusals == (), "a host that leaves is not a host of another cluster"


def test_a_server_that_stays_and_leaves() -> None:
    among = live(FIVE)
    named: tuple[dict[str, Any], ...] = ({"cluster_hosts": ("n5",), "run_hosts": ("n5",)}, {"seeds": ("n5",)})
    for both in named:
        assert "n5 is to leave (nats_server_cluster_leaving), but is still listed" in only(
            plan(SCALE_IN, among, FIVE[:4], ["n5"], **both)
        )
    assert "n5 is to leave" in only(plan(SCALE_IN, among, FIVE, ["n5"]))
    assert plan(SCALE_IN, among, FIVE[:4], ["n5"], seeds=("n1",)).refusals == ()


@pytest.mark.parametrize("operation", [SCALE_OUT, SCALE_IN, REPLACE, KEEP])
def test_a_cluster_without_a_leader(operation: str) -> None:
    for without in (
        replace(live(["n1"]), meta=None),
        replace(live(["n1"]), meta=replace(meta(FIVE[:3]), group=leaderless())),
    ):
        refusal = only(plan(operation, without, FIVE[:3]))
        assert "The meta group of the cluster C1 has no leader" in refusal
        assert "n1 answered: start the others" in refusal


@pytest.mark.parametrize("operation", [SCALE_OUT, REPLACE, KEEP])
def test_a_server_without_a_cluster_is_not_to_be_joined(operation: str) -> None:
    """If the playbook `deploy` started the others, they would form a cluster that deletes this server's streams."""
    single = replace(live(["n1"]), servers=(server("n1", cluster="", summary=ROOM),), meta=None)
    refusal = only(plan(operation, single, FIVE[:3]))
    assert "n1 runs without a cluster" in refusal and "One server becomes a cluster" in refusal
    assert "deploy" not in refusal
    leaf = replace(live(["n1"]), servers=(server("leaf", cluster=""), server("n1", summary=ROOM)), meta=None)
    assert "has no leader" in only(plan(operation, leaf, FIVE[:3]))


def leaderless() -> Any:
    return replace(meta(FIVE[:3]).group, leaders=())


# --- Servers that join ----------------------------------------------------------------------------------------------------


def test_new_servers_join() -> None:
    found = plan(SCALE_OUT, live(FIVE[:3]), FIVE)
    assert (found.refusals, found.joining, found.lines) == ((), ("n4", "n5"), ("New in the cluster C1: n4, n5",))
    assert [member.host for member in found.running] == FIVE[:3]
    assert found.remaining == tuple(FIVE)
    assert plan(SCALE_OUT, live(FIVE), FIVE).lines == ("No new host in the cluster C1",)


def test_no_server_joins_while_another_is_down() -> None:
    down = live(FIVE[:2], known=FIVE[:3])
    assert "n3 belongs to the cluster but does not answer: start it with deploy" in only(
        plan(SCALE_OUT, down, FIVE[:4])
    )
    two = plan(SCALE_OUT, live(FIVE[:3], known=FIVE), FIVE)
    assert "n4, n5 belong to the cluster but do not answer" in only(two)


def test_no_server_joins_while_another_is_to_leave() -> None:
    runs, dead = live(FIVE[:4]), live(FIVE[:3], known=FIVE[:4])
    for among in (runs, dead):
        waits = only(plan(SCALE_OUT, among, FIVE[:3], ["n4"]))
        assert "n4 is to leave (nats_server_cluster_leaving): run scale_in first" in waits
    assert plan(SCALE_OUT, live(FIVE[:3]), FIVE[:3], ["n4"]).refusals == (), "it has left"


def test_fewer_servers_join_than_run() -> None:
    new = ["m1", "m2", "m3", "m4"]
    assert "Add at most 3 at once" in only(plan(SCALE_OUT, live(FIVE[:3]), [*FIVE[:3], *new]))
    assert plan(SCALE_OUT, live(FIVE[:3]), [*FIVE[:3], *new[:3]]).refusals == ()


# --- Servers that leave ---------------------------------------------------------------------------------------------------


def test_servers_leave_those_that_are_down_first() -> None:
    among = live(["n1", "n2", "n3", "n4"], stream("A", ["n1", "n2", "n4"]), known=FIVE)
    found = plan(SCALE_IN, among, FIVE[:3], ["n4", "n5"])
    assert found.refusals == ()
    assert [(item.member.host, item.answers, item.meta_member) for item in found.leaving] == [
        ("n5", False, True),
        ("n4", True, True),
    ]
    assert found.leaving_down == ("n5",)
    assert found.lines == ("Leave: n5, n4", "APP/A moves from n4 to n3 or another suitable server")


def test_nothing_leaves() -> None:
    assert "nats_server_cluster_leaving names no host" in only(plan(SCALE_IN, live(FIVE), FIVE))


def test_a_name_that_is_unknown() -> None:
    lost = MembershipOptions(SCALE_IN, "the cluster C1", hosts(FIVE[:4]), (InventoryServer("", "n9"),))
    refusal = only(plan_membership(live(FIVE[:4]), lost, ScaleInRules()))
    assert refusal.startswith("n9 is unknown to the inventory and the cluster")
    assert "Servers that answer: n1, n2, n3, n4." in refusal
    dead = live(FIVE[:4], known=[*FIVE[:4], "n9"])
    assert plan_membership(dead, lost, ScaleInRules()).refusals == ()
    assert plan(SCALE_IN, live(FIVE[:3]), FIVE[:3], ["n4"]).refusals == (), (
        "it is in the inventory: it has left already"
    )


def test_a_server_that_cannot_be_stopped() -> None:
    refusal = only(plan(SCALE_IN, live(FIVE), FIVE[:4], ["n5"], reachable_hosts=frozenset()))
    assert refusal.startswith("n5 runs on a host that is unreachable")
    assert plan(SCALE_IN, live(FIVE), FIVE[:4], ["n5"], reachable_hosts=frozenset(["n5"])).refusals == ()
    down = live(FIVE[:4], known=FIVE)
    assert plan(SCALE_IN, down, FIVE[:4], ["n5"], reachable_hosts=frozenset()).refusals == (), "it does not run"


def test_a_member_that_stays_must_run() -> None:
    six = [*FIVE, "n6"]
    down = live([*FIVE[:4], "n6"], known=six)
    assert only(plan(SCALE_IN, down, FIVE, ["n6"])).startswith("n5 belongs to the cluster but does not answer")
    new = live([*FIVE[:3], "n5"])
    assert only(plan(SCALE_IN, new, FIVE[:4], ["n5"])).startswith("n4 is not in the cluster yet: run scale_out first")


def test_the_cluster_size_of_the_inventory() -> None:
    assert only(plan(SCALE_IN, live(FIVE), FIVE[:4], ["n5"], cluster_size=5)).startswith(
        "nats_server_cluster_size is 5, but 4"
    )
    assert plan(SCALE_IN, live(FIVE), FIVE[:4], ["n5"], cluster_size=4).refusals == ()


def test_required_servers_cannot_leave() -> None:
    few = plan(SCALE_IN, live(FIVE[:3]), FIVE[:2], ["n3"])
    assert "fewer than the required 3" in only(few)
    needed = plan(SCALE_IN, live(FIVE, stream("A", FIVE)), FIVE[:4], ["n5"])
    assert "no other server can take the replica of stream APP/A on n5" in only(needed)
    assert needed.warnings == needed.lines[1:2], "its costs are shown"


def test_losses_are_named_with_how_to_accept_them() -> None:
    among = live(FIVE[:4], known=FIVE)
    lost = ["APP/A", "APP/B"]
    hint, first = plan(SCALE_IN, among, FIVE[:4], ["n5"], ScaleInRules(accept_loss=frozenset(["APP/A"])), lost).refusals
    assert first.startswith("APP/B has no leader: n5, which does not answer, may have its only replica")
    assert '{"nats_cluster_accept_loss": ["APP/A", "APP/B"]}' in hint, "accepted losses stay accepted"
    accepted = plan(SCALE_IN, among, FIVE[:4], ["n5"], ScaleInRules(accept_loss=frozenset(lost)), lost)
    assert accepted.refusals == ()
    assert len([line for line in accepted.lines if "It is lost, as was accepted" in line]) == 2
    assert "there is no user for account APP" in only(plan(SCALE_IN, among, FIVE[:4], ["n5"], unread=["APP"]))


# --- Servers that are replaced --------------------------------------------------------------------------------------------


def test_a_server_comes_back_under_its_name() -> None:
    dead = live(FIVE[:2], known=FIVE[:3])
    found = plan(REPLACE, dead, FIVE[:3], replace="n3")
    assert (found.refusals, found.joining, found.returning) == ((), ("n3",), ("n3",))
    assert (found.leaving, found.leaving_down) == ((), ())
    assert found.lines == ("n3 comes back with the data of the other servers",)
    runs = plan(REPLACE, live(FIVE[:3]), FIVE[:3], replace="n3")
    assert (runs.refusals, runs.joining, runs.lines) == ((), (), ("n3 is running: it is only brought up to date",))


def test_a_host_of_another_name_takes_the_place() -> None:
    dead = live(FIVE[:2], known=FIVE[:3])
    found = plan(REPLACE, dead, ["n1", "n2", "n4"], ["n3"], replace="n3", replacement="n4")
    assert (found.refusals, found.joining, found.returning, found.leaving_down) == ((), ("n4",), (), ("n3",))
    assert found.lines == ("n4 takes the place of n3",)


def test_replaced_server_must_be_named_and_known() -> None:
    among = live(FIVE[:3])
    assert only(plan(REPLACE, among, FIVE[:3])) == "nats_cluster_replace names no host."
    assert only(plan(REPLACE, among, FIVE[:3], replace="n9")).startswith(
        "n9 is not a host of the cluster in the inventory"
    )
    request = MembershipOptions(
        REPLACE, "the cluster C1", hosts(FIVE[:3]), (InventoryServer("", "n9"),), replace="n9", replacement="n8"
    )
    place, unknown = plan_membership(among, request, ScaleInRules()).refusals
    assert place.startswith("n8, which is to take its place, is not a host of the cluster")
    assert unknown.startswith("n9 is unknown to the inventory and the cluster")


def test_only_a_dead_server_is_replaced() -> None:
    runs = plan(REPLACE, live(FIVE[:3]), ["n1", "n2", "n4"], ["n3"], replace="n3", replacement="n4")
    assert only(runs).startswith("n3 answers, so it is not dead. Scale out by n4")


def test_others_leave_first() -> None:
    dead = live(FIVE[:2], known=FIVE[:3])
    more = plan(REPLACE, dead, ["n1", "n4"], ["n2", "n3"], replace="n3", replacement="n4")
    assert only(more).startswith("nats_server_cluster_leaving lists n2, n3: first let them leave with scale_in")


def test_only_one_server_is_replaced_at_a_time() -> None:
    two = live(FIVE[:3], known=FIVE)
    assert only(plan(REPLACE, two, FIVE, replace="n5")).startswith(
        "n4 belongs to the cluster but does not answer, either"
    )
    new = live(FIVE[:3], known=FIVE[:4])
    assert only(plan(REPLACE, new, FIVE, replace="n4")).startswith("n5 is not in the cluster yet")


@pytest.mark.parametrize(
    "members, leaving, options",
    [(FIVE[:3], [], {"replace": "n3"}), (["n1", "n2", "n4"], ["n3"], {"replace": "n3", "replacement": "n4"})],
)
def test_loss_with_the_dead_server(members: list[str], leaving: list[str], options: dict[str, Any]) -> None:
    dead = live(FIVE[:2], known=FIVE[:3])
    hint, first = plan(REPLACE, dead, members, leaving, lost=["APP/A"], **options).refusals
    assert first.startswith("APP/A has no leader")
    assert '["APP/A"]' in hint
    assert "no user for account OTHER" in only(plan(REPLACE, dead, members, leaving, unread=["OTHER"], **options))
    assert plan(REPLACE, dead, members, leaving, lost=["APP/A"], has_data=True, **options).refusals == ()
    accepted = plan(
        REPLACE, dead, members, leaving, ScaleInRules(accept_loss=frozenset(["APP/A"])), ["APP/A"], **options
    )
    assert (accepted.refusals, len(accepted.warnings)) == ((), 1)


# --- Numbers of replicas --------------------------------------------------------------------------------------------------


def test_all_members_run_when_numbers_of_replicas_change() -> None:
    assert plan(KEEP, live(FIVE), FIVE).refusals == ()
    down = plan(KEEP, live(FIVE[:4], known=FIVE), FIVE)
    assert only(down).startswith("n5 belongs to the cluster but does not answer")
    assert plan(KEEP, live(FIVE[:4]), FIVE).refusals == (), "a host that never joined holds nothing"


# --- Guarantees of a plan
# -------------------------------------------------------------------------------------------------


@given(clusters(), st.data())
def test_no_plan_stops_a_server_that_a_quorum_needs(among: Cluster, data: st.DataObject) -> None:
    """The servers leave one after another. Each time, the remaining members that are in step must be a majority of the
    meta group, and of every stream that had a server to which it could move."""
    among = replace(among, servers=tuple(replace(item, summary=ROOM) for item in among.servers))
    everybody = sorted(among.meta_members)
    leaving = data.draw(st.lists(st.sampled_from(everybody), unique=True, max_size=3))
    staying = [name for name in everybody if name not in leaving]
    found = plan(SCALE_IN, among, staying, leaving, ScaleInRules(min_servers=1, r1_policy="move"))
    if found.refusals:
        return
    assert among.meta is not None
    behind = {peer.name for peer in among.meta.group.peers if not peer.current or peer.name not in among.names}
    # The gate checks whether a leaving server is in step when it is stopped.
    if behind & {item.member.server_name for item in found.leaving if item.answers}:
        return
    members = set(everybody)
    groups = {item.name: set(item.group.members) for item in among.streams}
    for item in found.leaving:
        name = item.member.server_name
        for move in found.scale_in.moves:
            if move.source == name:
                groups[move.stream.partition("/")[2]] ^= {name, move.target}
        assert not any(name in group for group in groups.values()), "it is emptied before it is stopped"
        in_step = members - behind - {name}
        # A dead server is not stopped: it does not vote, but counts as a member until it is removed.
        if item.answers:
            assert len(in_step) >= len(members) // 2 + 1
        members.discard(name)
    assert len(members - behind) > len(members) // 2
    assert all(len(groups[item.name]) == len(item.group.members) for item in among.streams)
    assert not any(group & set(leaving) for group in groups.values())


# --- Whether the run, the inventory and the live cluster name the same servers ----------------------------------------------

MEMBERS = [{"host": f"h{n}", "server_name": f"n{n}"} for n in (1, 2, 3)]


def membership(**facts: Any) -> list[ConfigProblem]:
    return membership_problems(
        {"cluster": "C1", "hosts": ["h1", "h2", "h3"], "members": MEMBERS, "running": False, "live": [], **facts}
    )


def running(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "cluster": "C1"} for name in names]


def test_a_new_cluster_started_completely_is_fine() -> None:
    assert membership() == []


def stores(*streams: int | None) -> list[dict[str, Any]]:
    """Return the servers of a run with this many streams in their stores; None means an empty store."""
    return [
        {
            "name": f"n{number}",
            "version": "",
            "target": "",
            "running": False,
            "jetstream": True,
            "streams": held or 0,
            "in_meta_group": held is not None,
        }
        for number, held in enumerate(streams, 1)
    ]


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        (stores(None, None, None), []),
        (stores(2, 0, 2), []),
        # No stream can be lost.
        (stores(None, 0, None), []),
        # A server that ran standalone is judged separately.
        ([*stores(None, None), {**stores(2)[0], "in_meta_group": False}], []),
        (
            stores(None, None, 2),
            [("error", "the stores of n1, n2 are empty, but n3 has up to 2 streams of a stopped cluster")],
        ),
        (
            stores(1, 2, None),
            [("warning", "the stores of n3 are empty, but n1, n2 have up to 2 streams of a stopped cluster")],
        ),
    ],
)
def test_servers_without_their_votes_elect_no_leader(
    servers: list[dict[str, Any]], found: list[tuple[str, str]]
) -> None:
    problems = membership(versions=servers)
    assert [(one["severity"], one["message"].split(":")[0]) for one in problems] == found
    assert membership(versions=servers, live=running("n1", "n2", "n3")) == []


def test_a_new_cluster_started_in_parts_is_refused() -> None:
    problem = membership(hosts=["h1"])[0]
    assert problem["severity"] == "error"
    assert "n2, n3" in problem["message"]


def test_an_unchecked_version_change_is_refused() -> None:
    members = [{**member, "jetstream": True} for member in MEMBERS]
    server = {"name": "n1", "version": "2.15.1", "target": "2.10.27", "running": True}
    change = {"members": members, "running": True, "versions": [server]}
    (refused,) = membership(**change)
    assert (refused["severity"], refused["option"]) == ("error", "nats_server_version")
    assert "the change from 2.15.1 to 2.10.27 could not be checked against the streams: no login" in refused["message"]
    (wrong,) = membership(**change, login=True, live_error="n1 does not accept user sys (Authorization Violation)")
    assert "Authorization Violation" in wrong["message"]
    (silent,) = membership(**change, login=True)
    assert "no server answered" in silent["message"]
    (unknown,) = membership(**{**change, "versions": [{**server, "version": ""}]})
    assert "the change from an unknown version to 2.10.27" in unknown["message"]
    (isolated,) = membership(**change, login=True, live=running("n2", "n3"))
    assert "n1 did not answer" in isolated["message"]
    # Nothing is refused if all servers can be checked, the version does not change, no server runs, or nothing is stored.
    assert membership(**change, live=running("n1", "n2", "n3")) == []
    assert membership(**{**change, "versions": [{**server, "version": "2.10.27"}]}) == []
    assert membership(**{**change, "versions": []}) == []
    assert membership(**{**change, "members": MEMBERS}) == []


def test_a_version_change_of_stopped_servers_needs_another_one_that_runs() -> None:
    members = [{**member, "jetstream": True} for member in MEMBERS]
    server = {"name": "n1", "version": "2.15.1", "target": "2.10.27", "running": False}
    stopped = {"members": members, "login": True, "versions": [server]}
    (refused,) = membership(**stopped)
    assert "could not be checked against the streams: the servers are stopped" in refused["message"]
    assert "deploy -e nats_server_version=2.15.1" in refused["message"]
    two = [server, {**server, "version": "2.14.7"}]
    (refused,) = membership(**{**stopped, "versions": two})
    assert "from 2.14.7, 2.15.1 to 2.10.27" in refused["message"]
    assert "each host with its previous nats_server_version" in refused["message"]
    # The plan compares the version with those of the other servers of the cluster; a new server has no version.
    assert membership(**stopped, live=running("n2", "n3")) == []
    assert membership(**{**stopped, "versions": [{**server, "version": ""}]}) == []


def test_a_new_jetstream_cluster_is_not_started_from_seeds() -> None:
    members = [{**member, "jetstream": True} for member in MEMBERS]
    assert "two leaders" in membership(members=members, route_style="seeds")[0]["message"]
    assert membership(members=members, route_style="seeds", running=True) == []
    assert membership(members=MEMBERS, route_style="seeds") == []


def test_one_host_of_a_running_cluster_is_fine() -> None:
    assert membership(hosts=["h1"], live=running("n2", "n3")) == []
    assert membership(hosts=["h1"], running=True) == []


def test_a_cut_inventory_is_refused() -> None:
    problem = membership(members=MEMBERS[:1], hosts=["h1"], running=True, live=running("n1", "n2", "n3"))[0]
    assert "n2, n3" in problem["message"]
    other_cluster = [{"name": "e1", "cluster": "EAST"}]
    assert membership(live=running("n1") + other_cluster) == []


@pytest.mark.parametrize(
    ("server", "stored", "refused"),
    [
        ("n3", ["S-R3F-gone", "S-R3F-lBXd4rn6"], False),
        ("n3", [], False),
        ("n3", ["S-R3F-other"], True),
        # A server without replicas in the cluster may have only streams that have since been deleted.
        ("n4", ["S-R3F-other"], False),
    ],
)
def test_a_store_of_a_namesake_is_refused(server: str, stored: list[str], refused: bool) -> None:
    orders = stream("ORDERS", ["n1", "n2", "n3"])
    named = replace(orders, group=replace(orders.group, raft_name="S-R3F-lBXd4rn6"))
    found = list(foreign_store_problems(cluster(["n1", "n2", "n3"], named), {server: stored}))
    assert [(one.code, one.servers) for one in found] == [("roll_foreign_store", ("n3",))] * refused
    # Servers older than 2.10 do not report the names of the members.
    assert not list(foreign_store_problems(cluster(["n1", "n2", "n3"], orders), {server: stored}))
