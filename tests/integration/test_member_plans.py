# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the modules that plan departures, moves and replica counts, on five servers with uneven loads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses
from support.recorded import write_report

Plan = Callable[..., dict[str, Any]]
Placed = dict[str, set[str]]


@pytest.fixture
def placed(five: NatsProcesses) -> Iterator[Placed]:
    """Two or more R3 streams that have no replica on one server, which the meta leader therefore prefers, and one R1
    stream SINGLE."""
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


def test_leaving_servers_are_checked(five: NatsProcesses, placed: Placed, plan: Plan) -> None:
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

    steps = [(step["action"], step["servers"]) for step in found["batches"]]
    assert steps == [("decommission", [leaving[0]]), ("decommission", [leaving[1]]), ("deploy", [])]
    assert [step["gates"]["before"]["stop_servers"] for step in found["batches"][:2]] == [[name] for name in leaving]

    few = plan(
        "nats_membership_plan", operation="scale_in", leaving=five.names[:3], account_users=users, r1_policy="move"
    )
    assert {problem["code"] for problem in few["problems"]} == {"scale_in_too_few", "scale_in_no_room"}
    assert few["batches"] == []
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


def test_replicas_move_by_a_plan(five: NatsProcesses, placed: Placed, plan: Plan, tmp_path: Path) -> None:
    """For a cluster with unevenly distributed bytes, a plan is made, refused once the cluster has changed, and carried
    out step by step, after which the cluster is balanced."""
    streams = [name for name in placed if name != "SINGLE"]
    for name in streams:
        for _message in range(4):
            five.app_request(f"{name}.filling", {"filling": "x" * 60_000})
    options: dict[str, Any] = {"cluster": "C1", "sample": 0, "tolerance": 2}
    file = tmp_path / "plan.json"

    def spread(carried: dict[str, dict[str, int]]) -> int:
        held = [load["bytes"] for load in carried.values()]
        return max(held) - min(held)

    def homes() -> Placed:
        now = (five.app_request(f"$JS.API.STREAM.INFO.{name}", members=3)["cluster"] for name in streams)
        return {
            name: {found["leader"], *(peer["name"] for peer in found["replicas"])} for name, found in zip(streams, now)
        }

    def move(moves: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return plan("nats_replica_moves", moves=moves, account_users=five.account_users(), wait_timeout=120, **more)

    assert plan("nats_rebalance_plan", plan_file=str(file), check_mode=True, **options)["changed"]
    assert not file.exists()
    found = plan("nats_rebalance_plan", plan_file=str(file), max_concurrent=2, **options)
    assert found["changed"] and not found["reused"] and found["left"] == {"single replica": ["stream APP/SINGLE"]}
    moves = found["moves"]
    for item in moves[:1]:
        assert item["from"] in placed[item["stream"]] and item["to"] not in placed[item["stream"]]
        assert found["before"][item["to"]]["bytes"] == min(load["bytes"] for load in found["before"].values())
    assert spread(found["after"]) < spread(found["before"])
    assert found["bytes_moved"] == sum(item["bytes"] for item in moves) >= found["least_bytes"]
    assert [item for batch in found["batches"] for item in batch["moves"]] == moves

    # Test limits, and servers that do not exist.
    one = plan("nats_rebalance_plan", max_bytes_moved=str(moves[0]["bytes"]), **options)
    assert 0 < one["bytes_moved"] <= moves[0]["bytes"]
    assert plan("nats_rebalance_plan", max_bytes_moved="100KB", **options)["moves"] == []
    none = plan("nats_rebalance_plan", max_moves=0, **options)
    assert none["after"] == found["before"] and none["lines"][0].startswith("The limits of the plan")
    target = moves[0]["to"]
    assert {item["to"] for item in plan("nats_rebalance_plan", onto=[target], **options)["moves"]} == {target}
    assert plan("nats_rebalance_plan", cluster="C9")["failure"]["code"] == "cluster_missing"
    assert plan("nats_rebalance_plan", onto=["n9"], **options)["failure"]["code"] == "server_missing"
    for option, value, said in (
        ("spare", 100, "must be less than 100 percent, not 100"),
        ("max_moves", -1, "must be at least 0, not -1"),
        ("throughput", "0", "must be more than 0 bytes per second"),
        ("max_bytes_moved", "much", "max_bytes_moved: "),
        ("max_bytes_moved", "-1", "max_bytes_moved: must not be negative"),
    ):
        refused = plan("nats_rebalance_plan", **{**options, option: value})
        assert refused["failure"]["code"] == "invalid_option" and said in refused["msg"], refused
    for content, said in (
        ("[]", "does not contain a plan"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("{}", "not a rebalance plan"),
    ):
        (tmp_path / "other.json").write_text(content)
        refused = plan("nats_rebalance_plan", plan_file=str(tmp_path / "other.json"), **options)
        assert refused["failure"]["code"] == "plan_invalid" and said in refused["msg"], refused
    nowhere = plan("nats_rebalance_plan", plan_file=str(file / "none"), **options)
    assert nowhere["failure"]["code"] == "write_failed", nowhere
    assert "moves[0]: to is missing" in move([{"account": "APP", "stream": "X", "from": "n1"}])["msg"]
    assert "concurrency: must be at least 1, not 0" in move([], concurrency=0)["msg"]
    gone = move([{"account": "APP", "stream": "GONE", "from": "n1", "to": "n2"}])
    assert "stream not found: APP/GONE" in gone["msg"], gone

    # The plan in the file is executed, unless it was made for a different cluster.
    kept = plan("nats_rebalance_plan", plan_file=str(file), **options)
    assert (kept["changed"], kept["reused"], kept["moves"]) == (False, True, moves)
    assert plan("nats_rebalance_plan", plan=kept["plan"], **options)["moves"] == moves
    five.add_stream("NEW", 3)
    try:
        refused = plan("nats_rebalance_plan", plan_file=str(file), **options)
        assert refused["failure"]["code"] == "plan_outdated" and "for a different state of cluster C1" in refused["msg"]
    finally:
        five.app_request("$JS.API.STREAM.DELETE.NEW")

    assert move(moves, check_mode=True)["changed"]
    assert homes() == {name: placed[name] for name in streams}
    first = move(moves[:1])
    assert first["changed"] and [item["bytes"] for item in first["moved"]] == [moves[0]["bytes"]]
    assert homes()[moves[0]["stream"]] == placed[moves[0]["stream"]] - {moves[0]["from"]} | {target}
    left = plan("nats_rebalance_plan", plan_file=str(file), **options)
    assert left["moves"] == moves[1:]
    rest = move(moves, concurrency=2)
    assert len(rest["moved"]) == len(moves) - 1, rest
    again = move(moves)
    assert (again["changed"], again["moved"]) == (False, [])
    done = plan("nats_rebalance_plan", plan_file=str(file), **options)
    assert (done["changed"], done["moves"], done["before"]) == (False, [], done["after"])
    assert {name: load["bytes"] for name, load in done["before"].items()} == {
        name: load["bytes"] for name, load in found["after"].items()
    }
    renewed = plan("nats_rebalance_plan", plan_file=str(file), renew=True, **options)
    assert (renewed["reused"], renewed["moves"]) == (False, []), "nothing is left to win"
    wrong = {**moves[0], "from": moves[0]["to"], "to": next(iter(homes()[moves[0]["stream"]] - {moves[0]["to"]}))}
    assert move([wrong])["failure"]["code"] == "not_a_member"


def test_recorded_write_rates_take_precedence(five: NatsProcesses, placed: Placed, plan: Plan, tmp_path: Path) -> None:
    """No messages are written during the sample: only the report shows that the streams' write rates differ."""
    rates = {name: 1000.0 * number for number, name in enumerate(sorted(placed.keys() - {"SINGLE"}), 1)}
    report = tmp_path / "report.json"
    day = write_report(report, {**{("lab", name): rate for name, rate in rates.items()}, ("other", "SINGLE"): 5.0})

    def carried(found: dict[str, Any]) -> dict[str, int]:
        return {name: load["bytes_per_second"] for name, load in found["before"].items()}

    options: dict[str, Any] = {"cluster": "C1", "sample": 0}
    recorded = {**options, "rates_file": str(report), "rates_fleet": "lab"}
    unknown = plan("nats_rebalance_plan", **options)
    assert set(carried(unknown).values()) == {0}
    assert "write bytes" not in {move["goal"] for move in unknown["moves"]}
    known = plan("nats_rebalance_plan", **recorded)
    assert carried(known) == {
        server: sum(rate for name, rate in rates.items() if server in placed[name]) for server in five.names
    }
    assert "write bytes" in {move["goal"] for move in known["moves"]}
    assert known["lines"][-1].startswith(f"write rates: {len(rates)} streams from the report of {day}, ")

    leaders = plan("nats_leader_rebalance", check_mode=True, account_users=five.account_users(), **recorded)
    assert sum(carried(leaders).values()) == sum(rates.values())
    assert leaders["lines"][-1] == known["lines"][-1]

    several = plan("nats_rebalance_plan", **options, rates_file=str(report))
    assert "rates_file: " in several["msg"] and "none was selected: lab, other" in several["msg"]
    assert "which is missing" in plan("nats_rebalance_plan", **options, rates_fleet="lab")["msg"]
    assert "No such file" in plan("nats_rebalance_plan", **options, rates_file=str(tmp_path / "none"))["msg"]


def test_replica_count_is_changed(five: NatsProcesses, placed: Placed, plan: Plan) -> None:
    stream = next(iter(placed))
    five.add_consumer(stream, "own", num_replicas=3)
    form(five)

    def wish(name: str, replicas: int, **more: Any) -> dict[str, Any]:
        return {"account": "APP", "stream": name, "num_replicas": replicas, **more}

    more = plan("nats_replica_count_plan", streams=[wish(stream, 5), wish("SINGLE", 1), wish("NONE*", 3)])
    assert more["unmatched"] == ["APP/NONE*"]
    (change,) = more["changes"]
    assert (change["stream"], change["before"], change["after"]) == (stream, 3, 5)
    assert set(change["gains"]) == set(five.names) - placed[stream], change
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
    assert bound["refused"].startswith("1 more server(s) must take a replica, but 0 can (none): ")
    assert "n2 does not have the tag node:n1" in bound["refused"]
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
