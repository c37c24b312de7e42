# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which parts of a cluster remain without its majority, and every refusal."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    META,
    STREAM,
    Cluster,
    Health,
    MetaGroup,
    Peer,
    RaftGroup,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.rescue_plan import (
    applied_problems,
    going_on,
    is_settled,
    plan,
    removal_refusals,
    unsteady,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.rescue_state import (
    Fate,
    RescueHost,
    RescueOptions,
    RescuePlan,
    Sight,
    Stored,
    host_state,
)
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import consumer, server

FIVE = ["n1", "n2", "n3", "n4", "n5"]
DEAD = frozenset(["n3", "n4", "n5"])
#: The hosts that were destroyed.
GONE = {name: RescueHost(name) for name in DEAD}


def held(name: str, size: int, members: list[str], hosts: list[str], **changes: Any) -> Stream:
    """Return a stream with these members; only the members on the hosts respond."""
    leaders = (hosts[0],) if len(hosts) >= size // 2 + 1 else ()
    group = RaftGroup(STREAM, f"stream APP/{name}", size, leaders, (), tuple(members), tuple(hosts), cluster="C1")
    return Stream("APP", name, group, **changes)


ORDERS = held("ORDERS", 3, ["n1", "n3", "n4"], ["n1"])
EVENTS = held("EVENTS", 5, FIVE, ["n1", "n2"])
SAFE = held("SAFE", 3, ["n1", "n2", "n3"], ["n1", "n2"])


def broken(*streams: Stream, answer: list[str] | None = None, leader: str = "", **changes: Any) -> Cluster:
    """Return a meta group of five as the responding servers see it; healthz reports everything as healthy."""
    answering = ["n1", "n2"] if answer is None else answer
    values: dict[str, Any] = {
        "sizes": dict.fromkeys(answering, 5),
        "views": dict.fromkeys(answering, leader),
        **changes,
    }
    group = RaftGroup(META, "meta group", 5, (leader,) if leader else (), (), tuple(FIVE), tuple(answering))
    servers = tuple(server(name, version="2.15.1", health=Health("ok")) for name in answering)
    return Cluster(servers, MetaGroup(group, **values), streams or (ORDERS, EVENTS, SAFE))


def make_sight(cluster: Cluster, **known: Any) -> Sight:
    holdings = {
        (item.account, item.name): {
            name: Stored(20 - number, 20 - number) for number, name in enumerate(item.group.hosts)
        }
        for item in cluster.streams
    }
    return Sight(cluster, **{"held": holdings, "hosts": GONE, **known})


def planned(cluster: Cluster | None = None, *, request: RescueOptions | None = None, **known: Any) -> RescuePlan:
    return plan(make_sight(broken() if cluster is None else cluster, **known), request or RescueOptions(DEAD))


def test_three_of_five_are_destroyed() -> None:
    made = planned()
    assert made.refusals == () and made.due
    assert (made.size, made.quorum, made.survivors, made.removals) == (5, 3, ("n1", "n2"), ("n3", "n4", "n5"))
    assert [(step.kind, *step.servers) for step in made.steps] == [
        ("rescue", "n1", "n2"),
        ("remove", "n3"),
        ("remove", "n4"),
        ("remove", "n5"),
        ("wait", "n1", "n2"),
    ]
    # healthz reports everything as healthy.
    assert [(fate.label, fate.stalled, fate.last_seq) for fate in made.fates] == [
        ("APP/ORDERS", True, 20),
        ("APP/EVENTS", True, 20),
        ("APP/SAFE", False, 20),
    ]
    assert made.page.lines[0] == "Meta group: 5 members, 3 of them must be up; 2 answer (n1, n2)"
    assert "  n3: answers neither over NATS nor over SSH" in made.page.lines
    assert (
        "  stream APP/EVENTS (R5) has lost its majority (n3, n4, n5); held by n1 up to 20, n2 up to 19: comes back up to 20 with "
        "2 of 5 replicas"
    ) in made.page.lines
    assert "  1 stream with a majority" in made.page.lines
    assert "with 2 of 5 votes instead of 3" in made.steps[0].does


def test_a_removed_server_that_has_returned_is_not_a_member() -> None:
    """The leader counts two members, and the third reports a different view."""
    names = ("n1", "n2", "n3")
    group = RaftGroup(META, "meta group", 2, ("n1",), (Peer("n2"),), names, names)
    servers = tuple(server(name, version="2.15.1", health=Health("ok")) for name in names)
    meta = MetaGroup(group, dict.fromkeys(names, "n1"), sizes=dict.fromkeys(names, 2))
    stream = held("SAFE", 3, list(names), list(names))
    made = planned(Cluster(servers, meta, (stream,)), request=RescueOptions(frozenset()))
    assert (made.refusals, made.survivors, made.size) == ((), ("n1", "n2"), 2)
    assert made.page.lines[0] == "Meta group: 2 members, 2 of them must be up; 2 answer (n1, n2)"
    assert "Not a member of the meta group: n3" in made.page.lines
    stalled = held("GONE", 3, ["n4", "n5", "n3"], ["n3"])
    text = str(planned(Cluster(servers, meta, (stream, stalled)), request=RescueOptions(frozenset())))
    assert "3 of 2" not in text


def test_a_disk_that_can_still_be_read_is_shown() -> None:
    disk = {
        ("APP", "SCRATCH"): Stored(None, 50),
        ("APP", "ORDERS"): Stored(None, 7),
        ("APP", "SECRET"): Stored(None, None),
    }
    hosts = {**GONE, "n3": RescueHost("n3", reached=True, fenced="its unit nats-server is masked", streams=disk)}
    made = planned(hosts=hosts)
    assert made.lost == ("APP/SCRATCH", "APP/SECRET")
    assert (
        "  n3: answers over SSH only, cannot start (its unit nats-server is masked); its disk holds APP/ORDERS up to 7, "
        "APP/SCRATCH up to 50, APP/SECRET of unknown length"
    ) in made.page.lines
    assert "only dead servers had APP/SCRATCH, APP/SECRET: removing the dead servers recreates" in made.refusals[0]
    assert planned(hosts=hosts, request=RescueOptions(DEAD, ["APP/S*"])).refusals == ()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (RescueHost("n3", reached=True), "n3 is listed as dead but answers over SSH, and its server could start"),
        (
            RescueHost("n3", reached=True, running=True),
            "its server is running, cut off from those that answer: it may form a majority",
        ),
        (
            RescueHost("n3", listening=("10.0.0.3:6222",)),
            "10.0.0.3:6222 accepts connections: it is running and may form a majority",
        ),
        (
            RescueHost("n3", reached=True, failure="no permission"),
            "answers over SSH, but its host cannot be read: no permission",
        ),
    ],
)
def test_a_dead_server_that_may_come_back_or_run(host: RescueHost, reason: str) -> None:
    made = planned(hosts={**GONE, "n3": host})
    (refusal,) = made.refusals
    assert reason in refusal
    assert not made.due
    assert made.page.lines[-1] == f"Refused: {refusal}."


def test_a_dead_server_that_answers() -> None:
    (refusal,) = planned(broken(answer=["n1", "n2"]), request=RescueOptions(DEAD | {"n2"})).refusals
    assert refusal == "n2 is listed as dead but answers"


def test_counted_members_must_answer_or_be_listed() -> None:
    (refusal,) = planned(request=RescueOptions(DEAD - {"n5"})).refusals
    assert refusal.startswith(
        "n5 counts for the meta group and does not answer, but is not listed as dead: bring it back"
    )
    hosts = {**GONE, "n5": RescueHost("n5", reached=True)}
    (refusal,) = planned(hosts=hosts, request=RescueOptions(DEAD - {"n5"})).refusals
    assert "its host answers over SSH: start it" in refusal
    (refusal,) = planned(request=RescueOptions(DEAD | {"n9"})).refusals
    assert refusal == "n9 is listed as dead but is not a member of the meta group (n1, n2, n3, n4, n5)"
    nameless = broken(sizes={"n1": 6, "n2": 6})
    assert nameless.meta is not None
    nameless = replace(nameless, meta=replace(nameless.meta, group=replace(nameless.meta.group, size=6)))
    (refusal,) = planned(nameless).refusals
    assert refusal.startswith("1 member of the meta group is unknown to all answering servers")


def test_servers_that_may_not_hear_each_other() -> None:
    (refusal,) = planned(broken(sizes={"n1": 5, "n2": 4})).refusals
    assert "count different members (n1 5, n2 4)" in refusal
    assert is_settled(make_sight(broken()), RescueOptions(DEAD))
    outdated = broken(views={"n1": "n3", "n2": ""})
    (refusal,) = planned(outdated).refusals
    assert refusal.startswith("n3 leads the meta group according to some servers, but does not answer")
    assert not is_settled(make_sight(outdated), RescueOptions(DEAD))
    leading = broken(leader="n1", quorum_needed=3)
    (refusal,) = planned(leading).refusals
    assert refusal.startswith("n1 still leads the meta group, which needs 3 members, but only 2 answer")
    assert not is_settled(make_sight(leading), RescueOptions(DEAD))
    assert planned(broken(leader="n1", quorum_needed=2)).refusals == ()
    disputed = broken()
    assert disputed.meta is not None
    group = replace(disputed.meta.group, leaders=("n1", "n2"))
    (refusal,) = planned(replace(disputed, meta=replace(disputed.meta, group=group))).refusals
    assert refusal == "n1, n2 both lead the meta group: they cannot reach each other"


def test_a_leader_that_changes_between_two_samples() -> None:
    none, n1, n2 = (make_sight(broken(leader=name)) for name in ("", "n1", "n2"))
    assert unsteady(none, n1) == "the meta leader has just changed from none to n1"
    assert unsteady(n1, n2) == "the meta leader has just changed from n1 to n2"
    assert unsteady(n1, none) == "the meta leader has just changed from n1 to none"
    assert unsteady(none, none) == unsteady(n1, n1) == ""


def test_nothing_is_removed_once_the_cluster_is_another_one_than_the_plans() -> None:
    approved, request = planned(), RescueOptions(DEAD, begun=DEAD)
    elected = broken(leader="n1", quorum_needed=2)
    known = frozenset(["APP/ORDERS", "APP/EVENTS", "APP/SAFE"])
    assert removal_refusals(make_sight(elected, assigned=known), request, approved) == []
    silent = removal_refusals(make_sight(elected), request, approved)
    assert silent == ["the meta leader does not report the former streams"]
    (lost,) = removal_refusals(make_sight(elected, assigned=known | {"APP/GONE"}), request, approved)
    assert lost.startswith("only dead servers had APP/GONE")
    alone = broken(answer=["n1"], leader="n1", quorum_needed=1)
    assert "n1 answer now; n1, n2 answered before" in removal_refusals(
        make_sight(alone, assigned=known), request, approved
    )


def test_unknown_is_not_healthy() -> None:
    blind = broken()
    blind = replace(blind, servers=(blind.servers[0], replace(blind.servers[1], summary=None)))
    (refusal,) = planned(blind).refusals
    assert refusal == "n2 answers but does not report its streams"
    assert "there is nothing to rescue" in planned(Cluster()).refusals[0]


def test_a_majority_that_is_there() -> None:
    three = ["n1", "n2", "n3"]
    (refusal,) = planned(
        broken(SAFE, answer=three, leader="n1"), request=RescueOptions(frozenset(["n4", "n5"]))
    ).refusals
    assert "no majority is lost: 3 of 5 members of the meta group answer" in refusal
    # Only the stream has lost its majority.
    made = planned(
        broken(held("ORDERS", 3, ["n1", "n4", "n5"], ["n1"]), answer=three, leader="n1"),
        request=RescueOptions(frozenset(["n4", "n5"])),
    )
    assert [(step.kind, *step.servers) for step in made.steps] == [
        ("remove", "n4"),
        ("remove", "n5"),
        ("wait", *made.survivors),
    ]
    assert made.refusals == ()


def test_nothing_to_rescue() -> None:
    whole = broken(held("ORDERS", 3, ["n1", "n2", "n3"], ["n1", "n2", "n3"]), answer=FIVE, leader="n1")
    made = planned(whole, request=RescueOptions(frozenset(["n9"])))
    assert (made.steps, made.refusals, made.page.lines[-1]) == ((), (), "Nothing to rescue.")
    (refusal,) = planned(whole, request=RescueOptions(frozenset(["n3"]))).refusals
    assert refusal == "n3 is listed as dead but answers"
    (refusal,) = planned(broken(ORDERS, answer=FIVE, leader="n1"), request=RescueOptions(frozenset(["n9"]))).refusals[
        1:
    ]
    assert refusal.startswith("APP/ORDERS is stalled, but no dead server counts for the meta group")


# --- before 2.15 ----------------------------------------------------------------------------------------------------------


def left(name: str, **changes: Any) -> RescueHost:
    """Return a remaining host, as read over SSH."""
    return RescueHost(name, **{"reached": True, "running": True, "unit": "nats-server", **changes})


LEFT = {"n1": left("n1"), "n2": left("n2", host="host2", store_dir="/data/nats")}


def old(cluster: Cluster | None = None, version: str = "2.10.27") -> Cluster:
    made = broken() if cluster is None else cluster
    return replace(made, servers=tuple(replace(item, version=version) for item in made.servers))


def test_data_of_older_servers_moves_to_a_fresh_cluster() -> None:
    made = planned(old(), hosts={**GONE, **LEFT}, request=RescueOptions(DEAD, copies="/srv/a b"))
    assert made.refusals == () and made.due and made.fresh
    assert [step.kind for step in made.steps] == ["stop", "copy", "bring", "save", "start", "restore_streams"]
    commands = [command for step in made.steps for command in step.commands]
    assert commands[0] == (
        "ansible n1,host2 -b -m ansible.builtin.systemd_service "
        """-a '{"name": "nats-server", "state": "stopped", "enabled": false}'"""
    )
    # The hosts' stores are in different directories.
    copying = [command for command in commands if "nats_store_copy" in command]
    assert [command.split()[1] for command in copying] == ["n1", "host2"] and '"store_dir": "/data/nats"' in copying[1]
    assert "rsync -a --mkpath host2:/var/lib/nats-rescue/ '/srv/a b/n2/'" in commands
    assert '"copies": {"n1": "/srv/a b/n1", "n2": "/srv/a b/n2"}, "directory": "/srv/a b/backup"' in str(commands)
    assert '"argv": ["mv", "-T", "/data/nats/jetstream", "/data/nats/jetstream.rescued"]' in str(commands)
    deploy, restore = [json.loads(shlex.split(command)[-1]) for command in commands[-2:]]
    assert deploy == {"nats_server_cluster_leaving": ["n3", "n4", "n5"]}
    assert restore["nats_cluster_restore_max_replicas"] == 2
    lines = "\n".join(made.page.lines)
    assert "but n1 2.10.27, n2 2.10.27 are running: their data moves to a fresh cluster" in lines
    assert "held by n1 up to 20: comes back up to 20 with 2 of 3 replicas" in lines
    assert "is lost; its extent is unknown" in lines
    assert all(f"   $ {command}" in made.page.lines for command in commands)
    # A single older server is enough.
    (first, second) = old(version="2.15.1").servers
    mixed = replace(broken(), servers=(first, replace(second, version="2.14.5")))
    assert planned(mixed, hosts={**GONE, **LEFT}).fresh
    assert not planned(hosts={**GONE, **LEFT}).fresh
    by_hand = planned(old(), hosts={**GONE, **LEFT, "n1": left("n1", unit="")}).steps[0].commands
    assert [command.split()[4] for command in by_hand] == [
        "natsops.jetstream.nats_server_process",
        "ansible.builtin.systemd_service",
    ]


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        (
            {"n3": RescueHost("n3", reached=True)},
            "n3 is listed as dead but answers over SSH, and its server could start",
        ),
        ({"n3": RescueHost("n3", listening=("10.0.0.3:6222",))}, "10.0.0.3:6222 accepts connections"),
        (
            {"n1": left("n1", reached=False)},
            "n1 answers over NATS, but its host cannot be read over SSH: it is unreachable",
        ),
        ({"n1": left("n1", failure="no permission")}, "its host cannot be read over SSH: no permission"),
        ({"n1": left("n1", copied=True)}, "n1 is running, but its store has already been copied"),
        ({"n1": left("n1", streams={("APP", "X"): Stored(None, None, True)})}, "n1 has APP/X encrypted"),
        (
            {"n6": left("n6")},
            "n6 is not known as a member of the meta group: if it was a member, bring it back",
        ),
    ],
)
def test_hosts_with_which_no_fresh_cluster_is_made(hosts: dict[str, RescueHost], reason: str) -> None:
    made = planned(old(), hosts={**GONE, **LEFT, **hosts})
    (refusal,) = made.refusals
    assert reason in refusal
    assert not made.due


def leaderless(counted: int) -> Cluster:
    """Return the view of two older servers of five without a leader: the servers report the group's size, and only
    their own names."""
    cluster = old(broken(sizes={"n1": counted, "n2": counted}))
    assert cluster.meta is not None
    group = replace(cluster.meta.group, size=counted, members=("n1", "n2"))
    return replace(cluster, meta=replace(cluster.meta, group=group))


@pytest.mark.parametrize("counted", [5, 4])
def test_older_servers_without_a_leader_may_count_too_few(counted: int) -> None:
    hosts = {**GONE, **LEFT}
    made = planned(leaderless(counted), hosts=hosts)
    assert made.refusals == () and made.due and made.removals == ("n3", "n4", "n5")
    refusals = " ".join(planned(leaderless(counted), hosts=hosts, request=RescueOptions(DEAD - {"n5"})).refusals)
    assert (
        "n5 is not known as a member of the meta group: if it was a member, bring it back or list it as dead"
        in refusals
    )


def test_more_named_dead_than_older_servers_count() -> None:
    # A group of three instead of five has a different quorum.
    (first, *_rest) = planned(leaderless(3), hosts={**GONE, **LEFT}).refusals
    assert "n3 is listed as dead but is not a member of the meta group" in first


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ({"unreachable": True, "msg": "timed out"}, {"reached": False}),
        ({"failed": True, "msg": "no such file"}, {"failure": "no such file"}),
        ({"failed": True}, {"failure": "the module that reads it ended without a message"}),
        ({"rescue": {"streams": [], "running": True}}, {"running": True}),
        (
            {"rescue": {"streams": [{"name": "S"}], "fenced": "masked"}},
            {"fenced": "masked", "streams": [{"name": "S"}]},
        ),
        ({"rescue": {"streams": [], "copied": True, "aside": True}, "msg": ""}, {"copied": True, "aside": True}),
    ],
)
def test_only_a_host_that_was_read_or_is_unreachable_has_no_failure(
    found: dict[str, Any], state: dict[str, Any]
) -> None:
    unread = {"running": False, "fenced": "", "failure": "", "streams": [], "copied": False, "aside": False}
    assert host_state(found) == {"reached": True, **unread, **state}


def test_fresh_cluster_needs_transfers_and_its_replicas_do_not_return_automatically() -> None:
    fresh = planned(old(), hosts={**GONE, **LEFT})
    (bring,) = [batch for batch in fresh.batches if batch["action"] == "bring"]
    assert bring["commands"] and all("/srv/nats-rescue" in command for command in bring["commands"])
    assert "raise the replicas of the streams with replica_count" in fresh.next_step
    in_place = planned(hosts={**GONE, **LEFT})
    assert not any(batch["commands"] for batch in in_place.batches)
    assert "gets its missing replicas automatically" in in_place.next_step


def test_limits_of_a_fresh_cluster() -> None:
    hosts = {**GONE, **LEFT}
    (refusal,) = planned(old(), hosts=hosts, request=RescueOptions(DEAD - {"n5"})).refusals
    assert refusal.startswith("n5 counts for the meta group and does not answer, but is not listed as dead")
    memory = old(broken(ORDERS, held("CACHE", 3, ["n1", "n3", "n4"], ["n1"], storage="memory")))
    (refusal,) = planned(memory, hosts=hosts).refusals
    assert refusal == "APP/CACHE is in memory and is lost when its servers stop: list it as lost"
    named = planned(memory, hosts=hosts, request=RescueOptions(DEAD, ["APP/CACHE"]))
    assert named.due and "held by n1 up to 20: is lost with them, because it is in memory" in "\n".join(
        named.page.lines
    )
    disk = RescueHost("n3", True, fenced="masked", streams={("APP", "SCRATCH"): Stored(5, 5)})
    (refusal,) = planned(old(), hosts={**hosts, "n3": disk}).refusals
    assert refusal.startswith("only dead servers had APP/SCRATCH: a fresh cluster does not have it")
    alone = old(broken(answer=["n1"]))
    (refusal,) = planned(alone, hosts={**GONE, "n1": LEFT["n1"]}, request=RescueOptions(DEAD | {"n2"})).refusals
    assert refusal.startswith("n1 alone cannot elect a meta leader of a fresh cluster")
    both = old()
    both = replace(both, servers=(both.servers[0], replace(both.servers[1], cluster="C2")))
    (refusal,) = planned(both, hosts=hosts).refusals
    assert refusal.startswith("servers of several clusters are left")
    three = old(broken(held("ORDERS", 3, ["n1", "n4", "n5"], ["n1"]), answer=["n1", "n2", "n3"], leader="n1"))
    everywhere = {**hosts, "n3": left("n3")}
    (refusal,) = planned(three, hosts=everywhere, request=RescueOptions(frozenset(["n4", "n5"]))).refusals
    assert refusal.startswith("the meta group has its majority, and before nats-server 2.15")


STOPPED = {name: replace(host, running=False) for name, host in LEFT.items()}
COPIED = {name: replace(host, copied=True) for name, host in STOPPED.items()}
ASIDE = {name: replace(host, aside=True) for name, host in COPIED.items()}


def goes_on(hosts: dict[str, RescueHost]) -> RescuePlan | None:
    return going_on({**GONE, **hosts}, frozenset(FIVE), RescueOptions(DEAD))


def test_an_interrupted_fresh_cluster_resumes() -> None:
    assert goes_on(LEFT) is None
    assert going_on(LEFT, frozenset(), RescueOptions(DEAD)) is None
    # The reason of n2's silence is unknown.
    assert goes_on({**STOPPED, "n2": RescueHost("n2")}) is None
    every = ["stop", "copy", "bring", "save", "start", "restore_streams"]
    for hosts, kinds in (
        ({**STOPPED, "n1": COPIED["n1"]}, every),
        (COPIED, every),
        ({**COPIED, "n1": ASIDE["n1"]}, every),
        (ASIDE, every[2:]),
        ({**ASIDE, "n1": replace(ASIDE["n1"], running=True)}, every[2:]),
    ):
        made = goes_on(hosts)
        assert made is not None and made.due and made.fresh
        assert (made.survivors, [step.kind for step in made.steps]) == (("n1", "n2"), kinds)
        # A renamed store belongs to the fresh cluster, so its server is neither stopped nor copied again.
        used = [host.address for host in (hosts["n1"], hosts["n2"]) if not host.aside]
        for batch in made.batches:
            assert batch["hosts"] == (used if batch["action"] in ("stop", "copy") else ["n1", "host2"]), batch
    made = goes_on({**COPIED, "n1": ASIDE["n1"]})
    assert made is not None
    assert made.page.lines[0] == "n1: is stopped; its store is copied and renamed"


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        (STOPPED, "no server runs on the hosts of n1, n2: start them"),
        (
            {**COPIED, "n3": RescueHost("n3", reached=True)},
            "n3 is listed as dead but answers over SSH, and its server could start",
        ),
        (
            {**COPIED, "n3": RescueHost("n3", reached=True, running=True)},
            "n3 is listed as dead, but its server is running",
        ),
        ({**COPIED, "n2": RescueHost("n2")}, "the host of n2 cannot be read over SSH: it is unreachable"),
        ({**COPIED, "n2": replace(COPIED["n2"], running=True)}, "n2 is running, but its store has already been copied"),
        ({**COPIED, "n2": LEFT["n2"]}, "n2 runs while others are stopped and copied: stop it"),
        (
            {**ASIDE, "n2": STOPPED["n2"]},
            "the store of n2 has not been copied, but an earlier rescue",
        ),
    ],
)
def test_refusals_to_resume_a_fresh_cluster(hosts: dict[str, RescueHost], reason: str) -> None:
    made = goes_on(hosts)
    assert made is not None and not made.due
    (refusal,) = made.refusals
    assert reason in refusal
    assert made.page.lines[-1] == f"Refused: {refusal}."


# --- losses
# ---------------------------------------------------------------------------------------------------------------


def test_loss_is_known_from_the_meta_leader() -> None:
    worker = consumer("SAFE", "worker", ["n1", "n2"])
    cluster = broken(ORDERS, replace(SAFE, consumers=(worker,)), leader="n1")
    assigned = frozenset(
        ["APP/ORDERS", "APP/SAFE", "APP/SAFE/worker", "APP/SAFE/single", "APP/SCRATCH", "APP/SCRATCH/worker"]
    )
    made = planned(cluster, assigned=assigned)
    # If a stream is lost, its consumers are lost too.
    assert made.lost == ("APP/SAFE/single", "APP/SCRATCH")
    assert "only dead servers had APP/SAFE/single, APP/SCRATCH" in made.refusals[0]
    assert (
        planned(cluster, assigned=assigned, request=RescueOptions(DEAD, ["APP/SCRATCH", "APP/*/single"])).refusals == ()
    )
    (refusal,) = planned(cluster, assigned=assigned, request=RescueOptions(DEAD, ["APP/SCRATCH"])).refusals
    assert "only dead servers had APP/SAFE/single:" in refusal


def test_an_account_without_a_user() -> None:
    (refusal,) = planned(unasked=frozenset(["OTHER"])).refusals
    assert "account OTHER has no user here, so it is unknown which of its streams only dead servers had" in refusal
    assert planned(unasked=frozenset(["OTHER"]), request=RescueOptions(DEAD, ["OTHER/*"])).refusals == ()


def test_a_dead_disk_that_goes_further() -> None:
    hosts = {**GONE, "n3": RescueHost("n3", True, fenced="masked", streams={("APP", "ORDERS"): Stored(None, 21)})}
    (refusal,) = planned(hosts=hosts).refusals
    assert "the disk of n3 has APP/ORDERS up to 21, the answering servers up to 20: copy it first" in refusal
    assert refusal.endswith("; its server crashed, so messages deleted just before may reappear")
    hosts["n3"] = replace(hosts["n3"], streams={("APP", "ORDERS"): Stored(21, 21)})
    assert planned(hosts=hosts).refusals[0].endswith("then list the stream as lost")
    assert planned(hosts=hosts, request=RescueOptions(DEAD, ["APP/ORDERS"])).refusals == ()


def test_survivors_that_differ_in_deleted_messages() -> None:
    """A server that crashed and restarted may have lost its last deletions."""
    differ = {("APP", "EVENTS"): {"n1": Stored(20, 20), "n2": Stored(5, 20), "n3": Stored(1, 19)}}
    (line,) = [line for line in planned(held=differ).page.lines if "APP/EVENTS" in line]
    assert line.endswith(
        "; up to there they have different numbers of messages (n1 20, n2 5), so deleted messages may reappear"
    )


def test_an_interrupted_rescue_resumes() -> None:
    begun = RescueOptions(DEAD, begun=DEAD)
    cluster = broken(answer=["n1", "n2"], leader="n1")
    assert cluster.meta is not None
    group = replace(cluster.meta.group, members=("n1", "n2", "n5"), size=3)
    two_left = replace(cluster, meta=replace(cluster.meta, group=group, sizes={"n1": 3, "n2": 3}))
    made = planned(two_left, request=begun)
    assert made.refusals == ()
    assert [(step.kind, *step.servers) for step in made.steps] == [("remove", "n5"), ("wait", *made.survivors)]
    none_left = replace(
        two_left,
        meta=replace(cluster.meta, sizes={"n1": 2, "n2": 2}, group=replace(group, members=("n1", "n2"), size=2)),
    )
    assert [step.kind for step in planned(none_left, request=begun).steps] == ["wait"]


def test_the_order_cannot_be_addressed_and_so_the_replies_are_judged() -> None:
    took = [{"server": name, "new_quorum": 2} for name in ("n1", "n2")]
    assert applied_problems(took, ["n1", "n2"], 2) == []
    assert applied_problems([*took, {"server": "n7", "new_quorum": 2}], ["n1", "n2"], 2) == [
        "n7 also carried out the request, but did not answer before"
    ]
    assert applied_problems(took[:1], ["n1", "n2"], 2) == ["n2 did not carry it out"]
    refused = {"server": "n2", "error": {"description": "leader is known"}}
    assert applied_problems([took[0], refused], ["n1", "n2"], 2) == [
        "n2 refused: leader is known",
        "n2 did not carry it out",
    ]
    assert applied_problems([took[0], {"server": "n2", "new_quorum": 1}], ["n1", "n2"], 2) == [
        "n2 decides with fewer than 2 votes"
    ]


def test_long_lists_are_cut() -> None:
    streams = [held(f"S{number}", 3, ["n1", "n3", "n4"], ["n1"]) for number in range(40)]
    assert "… and 30 more stalled streams" in planned(broken(*streams)).page.screen


@given(
    answer=st.sets(st.sampled_from(FIVE), min_size=1),
    dead=st.sets(st.sampled_from(FIVE)),
    alive=st.sets(st.sampled_from(FIVE)),
)
def test_no_rescue_while_anybody_who_counts_is_missing_or_may_come_back(
    answer: set[str], dead: set[str], alive: set[str]
) -> None:
    """In every plan, each silent server is named as dead, and no server named as dead responds or has a reachable host."""
    hosts = {name: RescueHost(name, reached=name in alive) for name in FIVE}
    stream = held("ORDERS", 3, ["n1", "n3", "n4"], sorted(answer & {"n1", "n3", "n4"}))
    made = planned(broken(stream, answer=sorted(answer)), hosts=hosts, request=RescueOptions(frozenset(dead)))
    if made.due:
        assert set(FIVE) - answer <= dead
        assert not dead & (answer | alive)
        assert set(made.removals) == dead
        assert len(answer) < 3 or any(fate.stalled for fate in made.fates)


def test_a_fate_without_holders_ends_at_nothing() -> None:
    assert Fate("APP", "ORDERS", 3, {}, {}, (), True).last_seq == 0
