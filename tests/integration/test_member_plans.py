# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that plan who leaves, what moves and how many replicas there are, on five servers with uneven loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import pytest
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

Plan = Callable[..., dict[str, Any]]
Placed = dict[str, set[str]]


@pytest.fixture
def placed(five: NatsProcesses) -> Iterator[Placed]:
    """Two or more R3 streams of which one server, that the meta leader then prefers, has no replica; and one R1 stream SINGLE."""
    made: Placed = {}

    def add(name: str, replicas: int) -> None:
        cluster = five.add_stream(name, replicas)["cluster"]
        made[name] = {cluster["leader"], *(peer["name"] for peer in cluster.get("replicas") or ())}

    def delete(name: str) -> None:
        five.app_request(f"$JS.API.STREAM.DELETE.{name}")
        del made[name]

    try:
        for number in range(6):
            add(f"MP{number}", 3)
        spare = min(five.names, key=lambda name: sum(name in hosts for hosts in made.values()))
        for name in [name for name, hosts in made.items() if spare in hosts]:
            delete(name)
        assert len(made) >= 2
        add("SINGLE", 1)
        form(five)
        yield made
    finally:
        for name in list(made):
            delete(name)


@pytest.fixture
def plan(five: NatsProcesses, run_module: Runner) -> Plan:
    return lambda name, **options: run_module(name, {**five.sys_connection(), "timeout": 2}, **options)


def test_who_can_leave(five: NatsProcesses, placed: Placed, plan: Plan) -> None:
    users = five.account_users()
    (home,) = placed["SINGLE"]
    leaving = [home, next(name for name in five.names if name != home)]
    found = plan("nats_membership_plan", operation="scale_in", leaving=leaving, account_users=users, r1_policy="move")
    assert [problem["code"] for problem in found["problems"]] == []
    assert found["meta"] == {"members": five.names, "size_after": 3, "quorum_after": 2}
    hosted = {(f"APP/{stream}", server) for stream, hosts in placed.items() for server in hosts & set(leaving)}
    assert {(move["stream"], move["from"]) for move in found["moves"]} == hosted
    assert not {move["to"] for move in found["moves"]} & set(leaving)
    assert [(server["server_name"], server["answers"], server["meta_member"]) for server in found["leaving"]] == [
        (name, True, True) for name in leaving
    ]

    few = plan(
        "nats_membership_plan", operation="scale_in", leaving=five.names[:3], account_users=users, r1_policy="move"
    )
    assert {problem["code"] for problem in few["problems"]} == {"scale_in_too_few", "scale_in_no_room"}
    kept = plan("nats_membership_plan", operation="scale_in", leaving=[home], account_users=users)
    refused = {"scale_in_single_replica"} if five.version.startswith("2.10.") else set()
    assert {problem["code"] for problem in kept["problems"] if problem["severity"] == "error"} == refused
    gone = plan("nats_membership_plan", operation="scale_in", leaving=["n9"], account_users=users)
    (server,) = gone["leaving"]
    assert (server["server_name"], server["answers"], server["meta_member"], server["groups"]) == (
        "n9",
        False,
        False,
        [],
    )
    assert (gone["moves"], gone["problems"]) == ([], [])


def test_what_moves_to_a_server_with_less(five: NatsProcesses, placed: Placed, plan: Plan) -> None:
    found = plan("nats_rebalance_plan", cluster="C1")
    assert found["moves"]
    for move in found["moves"]:
        assert move["from"] in placed[move["stream"]]
        assert move["to"] not in placed[move["stream"]]
    spread = {when: max(found[when].values()) - min(found[when].values()) for when in ("before", "after")}
    assert spread["after"] < spread["before"]
    target = found["moves"][0]["to"]
    without = set(found["before"]) - placed[found["moves"][0]["stream"]]
    assert target == min(without, key=lambda name: (found["before"][name], name))
    alone = plan("nats_rebalance_plan", cluster="C1", onto=[target], max_moves=1)
    assert [move["to"] for move in alone["moves"]] == [target]
    assert plan("nats_rebalance_plan", cluster="C1", max_moves=0)["after"] == found["before"]
    assert plan("nats_rebalance_plan", cluster="C9")["failure"]["code"] == "cluster_missing"
    assert plan("nats_rebalance_plan", cluster="C1", onto=["n9"])["failure"]["code"] == "server_missing"


def test_how_many_replicas(five: NatsProcesses, placed: Placed, plan: Plan) -> None:
    stream = next(iter(placed))
    five.add_consumer(stream, "own", num_replicas=3)

    def wish(name: str, replicas: int, **more: Any) -> dict[str, Any]:
        return {"account": "APP", "stream": name, "num_replicas": replicas, **more}

    more = plan("nats_replica_count_plan", streams=[wish(stream, 5), wish("SINGLE", 1), wish("NONE*", 3)])
    assert more["unmatched"] == ["APP/NONE*"]
    (change,) = more["changes"]
    assert (change["stream"], change["before"], change["after"]) == (stream, 3, 5)
    assert set(change["gains"]) == set(five.names) - placed[stream]
    assert (change["consumers"], change["refused"]) == ({}, "")

    both = plan("nats_replica_count_plan", streams=[wish("SINGLE", 3), wish(stream, 1), wish("MP?", 3)])
    assert [(item["stream"], item["after"], item["consumers"]) for item in both["changes"]] == [
        (stream, 1, {"own": 1}),
        ("SINGLE", 3, {}),
    ]
    follow = plan("nats_replica_count_plan", streams=[wish(stream, 3, consumers="follow")])["changes"]
    assert [(item["before"], item["after"], item["consumers"]) for item in follow] == [(3, 3, {"own": 0})]
    five.add_stream("BOUND", 1, placement={"tags": ["node:n1"]})
    placed["BOUND"] = {"n1"}
    (bound,) = plan("nats_replica_count_plan", streams=[wish("BOUND", 2)])["changes"]
    assert bound["refused"].startswith("1 more server(s) must take a replica, 0 can (none): ")
    assert "n2 has not the tag node:n1" in bound["refused"]
    assert plan("nats_replica_count_plan", streams=[wish(stream, 6)])["failure"]["code"] == "invalid_option"


def test_an_election_that_a_death_began_is_waited_for(five: NatsProcesses, plan: Plan, run_module: Runner) -> None:
    leader = five.add_stream("LED", 3)["cluster"]["leader"]
    try:
        five.kill(leader)
        found = plan("nats_membership_plan", operation="scale_in", leaving=[leader], account_users=five.account_users())
        assert found["lost"] == []
        assert found["leaving"][0]["answers"] is False
    finally:
        five.start(leader)
        form(five, run_module)
        five.app_request("$JS.API.STREAM.DELETE.LED")
