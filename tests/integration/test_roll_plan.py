# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests restart plans for a real cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from support.load import acknowledge, fetch
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, binary


def test_batches_of_five_servers(five: NatsProcesses, run_module: Runner) -> None:
    five.add_stream("ROLL", 3)
    five.add_stream("SINGLE", 1)
    try:
        form(five)
        options = {"server_names": five.names, "expected_servers": five.names}
        one_by_one = run_module("nats_roll_plan", five.sys_connection(), **options)
        assert [len(batch["servers"]) for batch in one_by_one["batches"]] == [1] * 5
        last = one_by_one["batches"][-1]
        assert last["servers"] == last["hosts"] == [one_by_one["meta_leader"]]
        # Every server answered, so the gate after a batch is expected to cover the next batch.
        shared = [batch["gates"]["before"]["shared"] for batch in one_by_one["batches"]]
        assert shared == [False, *[True] * 4]
        assert [problem["code"] for problem in one_by_one["problems"]] == ["roll_few_replicas"]
        assert "SINGLE" in one_by_one["problems"][0]["subject"]

        info = run_module("nats_cluster_info", five.sys_connection())
        members = next(set(item["members"]) for item in info["streams"] if item["name"] == "ROLL")
        wide = run_module("nats_roll_plan", five.sys_connection(), **options, max_parallel=0, meta_headroom=0)
        assert wide["lower_bound"] == len(wide["batches"]) == 3
        assert all(len(members.intersection(batch["servers"])) == 1 for batch in wide["batches"])
        assert len(run_module("nats_roll_plan", five.sys_connection(), **options, max_parallel=0)["batches"]) == 5
    finally:
        for name in ("ROLL", "SINGLE"):
            five.app_request(f"$JS.API.STREAM.DELETE.{name}")


def test_maintenance_plan_checks_quorums(healthy: NatsProcesses, run_module: Runner) -> None:
    options: dict[str, Any] = {"expected_servers": healthy.names, "reason": "new disk", "by": "ops"}
    one = {"hosts": {"host-1": "n1"}, "running": ["host-1"]}
    plan = run_module("nats_maintenance_plan", healthy.sys_connection(), **options, **one, until="2099-01-01 00:00:00Z")
    assert (plan["changed"], plan["ok"], plan["refusal"], plan["entering"]) == (False, True, "", ["host-1"])
    (batch,) = plan["batches"]
    assert (batch["hosts"], batch["servers"], batch["gates"]["before"]["stop_servers"]) == (["host-1"], ["n1"], ["n1"])
    mark = plan["marks"]["host-1"]
    assert (mark["server"], mark["by"], mark["reason"], mark["until"]) == ("n1", "ops", "new disk", 4070908800.0)
    assert plan["lines"][0] == "n1 goes out of service until 2099-01-01T00:00:00Z (by ops: new disk)"

    both = {"hosts": {"host-1": "n1", "host-2": "n2"}, "running": ["host-1", "host-2"]}
    refused = run_module("nats_maintenance_plan", healthy.sys_connection(), **options, **both)
    assert not refused["ok"]
    assert "Maintenance is refused; no server was touched." in refused["refusal"]
    assert "the meta group with 1 of 3 members in step (n10)" in refused["problems"][0]["message"]
    # Servers that were not named are not restarted, and no text claims that a step has been done.
    assert "maintenance_enter --limit host-1" in refused["refusal"] and "restart" not in refused["refusal"]
    assert "n2 would go out of service until" in "\n".join(refused["lines"])
    for wrong in ({"until": "soon"}, {"until": "2001-01-01T00:00:00Z"}, {"duration": "long"}, {"duration": "0"}):
        failed = run_module("nats_maintenance_plan", healthy.sys_connection(), **options, **one, **wrong)
        assert failed["failure"]["code"] == "invalid_option"
        assert failed["msg"].startswith(next(iter(wrong)))
    alone = run_module(
        "nats_maintenance_plan", {}, **options, **one, gate=False, maintenance=[{**mark, "server": "n2"}]
    )
    assert alone["ok"]
    assert "could not check whether streams in memory would lose their messages: cannot connect" in alone["lines"][-2]
    assert alone["lines"][-1].startswith("n2 is in maintenance since ")


def test_impossible_plans_are_refused(healthy: NatsProcesses, run_module: Runner) -> None:
    unknown = run_module("nats_roll_plan", healthy.sys_connection(), server_names=["n1", "n3"])
    assert unknown["failure"]["code"] == "server_missing"
    assert "no server or member of the meta group is named n3; there are: n1, n10, n2" in unknown["msg"]
    wrong = run_module("nats_roll_plan", healthy.sys_connection(), server_names=["n1"], max_unavailable_replicas=0)
    assert wrong["failure"]["code"] == "invalid_option"
    version = run_module("nats_roll_plan", healthy.sys_connection(), server_names=["n1"], target_version="newest")
    assert version["msg"].startswith(
        "target_version: 'newest' is not a nats-server version: write it as the server reports it"
    )


def test_a_stream_that_a_restart_would_empty(tmp_path: Path, run_module: Runner) -> None:
    """nats-server#6753: 2.10.27 loads a stream with first_seq as empty. The plan predicts this loss, and the loss
    occurs."""
    cluster = NatsProcesses("2.10.27", tmp_path, ["n1", "n2", "n3"])

    def codes(**options: Any) -> dict[str, str]:
        names = {"server_names": cluster.names, "expected_servers": cluster.names}
        return severities(run_module("nats_roll_plan", cluster.sys_connection(), **names, **options))

    try:
        cluster.start()
        form(cluster, run_module)
        cluster.add_stream("COUNTED", 3, first_seq=500)
        for number in range(3):
            cluster.app_request("COUNTED.x", {"number": number})
        form(cluster, run_module)
        assert codes()["roll_first_seq"] == "error"
        assert codes(accept_loss=["APP/COUNTED"])["roll_first_seq"] == "warning"
        assert "roll_first_seq" not in codes(starts=dict.fromkeys(cluster.names, "2.10.28"))
        # The version after the upgrade is the one that loads the stream.
        assert "roll_first_seq" not in codes(target_version="2.10.29")
        for name in cluster.names:
            cluster.stop(name)
            cluster.start(name)
            form(cluster, run_module)
        state = cluster.app_request("$JS.API.STREAM.INFO.COUNTED")["state"]
        assert state["messages"] == 0
        assert "roll_first_seq" not in codes()
    finally:
        cluster.kill()


def test_messages_that_end_without_a_gate(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, version: str
) -> None:
    """On a single server, or in a cluster whose gate is disabled, a restart would delete the same messages, so the plan
    refuses the restart."""
    server = make_cluster(["n1"], cluster="")
    server.add_stream("MEMORY", 1, storage="memory")
    server.add_stream("COUNTED", 1, first_seq=500)
    server.add_stream("FILE", 1)
    server.add_consumer("FILE", "forgetful", mem_storage=True)
    for name in ("MEMORY", "COUNTED", "FILE"):
        server.app_request(f"{name}.x", {"number": 1})
    asyncio.run(acknowledge_one(server, "FILE", "forgetful"))
    roll: dict[str, Any] = {"hosts": {"host-1": "n1"}, "expected_servers": ["n1"], "gate": False}
    maintenance = {**roll, "running": ["host-1"], "until": "2099-01-01 00:00:00Z"}
    expected = dict.fromkeys(("stream APP/MEMORY", "consumer APP/FILE/forgetful"), "roll_memory_lost")
    if version == "2.10.27":
        expected["stream APP/COUNTED"] = "roll_first_seq"
    for module, options in (("nats_roll_plan", roll), ("nats_maintenance_plan", maintenance)):
        # Without a gate, no replica is moved.
        for policy in ("accept", "move"):
            refused = run_module(module, server.sys_connection(), **options, r1_policy=policy)
            assert not refused["ok"] and "no server was touched" in refused["refusal"]
            assert {one["subject"]: one["code"] for one in refused["problems"]} == expected
        accepted = run_module(
            module, server.sys_connection(), **options, accept_loss=["APP/MEMORY", "APP/COUNTED", "APP/FILE/forgetful"]
        )
        assert accepted["ok"] and accepted["refusal"] == ""
    server.stop("n1")
    server.start("n1")

    def count(name: str) -> int:
        return int(server.app_request(f"$JS.API.STREAM.INFO.{name}")["state"]["messages"])

    # Without a cluster, even the stream is deleted.
    assert sorted(server.app_request("$JS.API.STREAM.NAMES")["streams"]) == ["COUNTED", "FILE"]
    assert count("FILE") == 1
    assert "forgetful" not in server.app_request("$JS.API.CONSUMER.NAMES.FILE")["consumers"]
    assert count("COUNTED") == (0 if version == "2.10.27" else 1)


def severities(result: dict[str, Any]) -> dict[str, str]:
    return {
        problem["code"]: problem["severity"] for problem in result["problems"] if problem["code"] != "roll_few_replicas"
    }


@pytest.fixture
def features(healthy: NatsProcesses, version: str) -> Iterator[NatsProcesses]:
    """Create assets in the healthy cluster that use features of its version, which older versions lack."""
    newer: dict[str, dict[str, Any]] = {
        "2.10.27": {"PACKED": {"compression": "s2"}},
        "2.15.1": {"EXPIRING": {"allow_msg_ttl": True}, "COUNTER": {"allow_msg_counter": True, "allow_direct": True}},
    }
    for name, config in newer[version].items():
        healthy.add_stream(name, 3, **config)
    picky: dict[str, Any] = {"filter_subjects": ["ORDERS.a", "ORDERS.b"]}
    if version == "2.15.1":
        picky.update({"priority_groups": ["one"], "priority_policy": "overflow"})
    healthy.add_consumer("ORDERS", "picky", **picky)
    yield form(healthy)
    healthy.app_request("$JS.API.CONSUMER.DELETE.ORDERS.picky")
    for name in newer[version]:
        healthy.app_request(f"$JS.API.STREAM.DELETE.{name}")


def test_version_obstacles_are_reported(features: NatsProcesses, run_module: Runner, version: str) -> None:
    def plan(**options: Any) -> dict[str, Any]:
        names = {"server_names": features.names, "expected_servers": features.names}
        result = run_module("nats_roll_plan", features.sys_connection(), **names, **options)
        assert result["ok"] == (not result["errors"])
        return result

    same = plan(target_version=version)
    assert same["ok"] and severities(same) == {}
    assert same["versions"] == {version: ["n1", "n10", "n2"]}
    assert same["batches"][-1]["reason"] == "has the meta leader, so it comes last"
    assert sum(batch["leaders"] for batch in same["batches"]) > 5
    if version == "2.10.27":
        jump = plan(target_version="2.15.1")
        assert not jump["ok"]
        assert severities(jump) == {
            "roll_skipped_minor": "error",
            "roll_best_start": "warning",
            "roll_unreadable_entries": "warning",
        }
        assert "minor releases must be installed one by one: 2.11, 2.12, 2.14 first" in jump["errors"][0]
        accepted = plan(target_version="2.15.1", allow_skipped_minors=True)
        assert accepted["ok"] and severities(accepted)["roll_skipped_minor"] == "warning"
        old = plan(target_version="2.9.10", allow_downgrade=True)
        assert severities(old) == {
            "roll_downgrade": "warning",
            "roll_downgrade_floor": "error",
            "roll_state_rebuild": "warning",
            "roll_unknown_option": "error",
        }
        lost = {problem["subject"] for problem in old["problems"] if problem["code"] == "roll_unknown_option"}
        assert lost == {"stream APP/PACKED", "consumer APP/ORDERS/picky"}
    else:
        back = plan(target_version="2.10.27", allow_downgrade=True, allow_skipped_minors=True)
        assert not back["ok"]
        stand = {
            problem["subject"]: problem["message"]
            for problem in back["problems"]
            if problem["code"] == "roll_api_level"
        }
        assert set(stand) == {"stream APP/EXPIRING", "stream APP/COUNTER", "consumer APP/ORDERS/picky"}
        assert "API level 2 (allow_msg_counter), that is nats-server 2.12.0 or later" in stand["stream APP/COUNTER"]
        assert "API level 1 (priority_policy, priority_groups)" in stand["consumer APP/ORDERS/picky"]
        assert severities(back)["roll_downgrade_floor"] == "error"
        near = plan(target_version="2.12.15", allow_downgrade=True, allow_skipped_minors=True)
        assert near["ok"], near["errors"]
        assert set(severities(near)) == {
            "roll_skipped_minor",
            "roll_downgrade",
            "roll_state_rebuild",
            "roll_unreadable_entries",
        }


def test_an_upgrade_resumes_from_a_mixed_cluster(tmp_path: Path, run_module: Runner) -> None:
    names = ["n1", "n2", "n3"]
    cluster = NatsProcesses("2.9.10", tmp_path, names)
    cluster.start()
    try:
        form(cluster, run_module)
        options = {"server_names": names, "expected_servers": names, "target_version": "2.10.27"}
        before = run_module("nats_roll_plan", cluster.sys_connection(), **options)
        assert before["ok"] and before["problems"] == []
        cluster.stop("n2")
        down = run_module("nats_roll_plan", cluster.sys_connection(), **options, timeout=1)
        assert down["ok"] and severities(down) == {"roll_version_unknown": "warning"}
        assert down["batches"][0]["servers"] == ["n2"] and "is down and starts first" in down["batches"][0]["reason"]
        stopped = {"server_names": [], "stopped_versions": {"n2": "2.9.10", "n4": ""}, "starts": {"n2": "2.15.1"}}
        skips = run_module("nats_roll_plan", cluster.sys_connection(), **{**options, **stopped}, timeout=1)
        assert skips["batches"] == [] and "n2: 2.9.10 to 2.15.1 skips" in skips["errors"][0]
        assert "n4: " not in str(skips["errors"])

        cluster.version, cluster._binary = "2.10.27", binary("2.10.27")
        cluster.start("n2")
        form(cluster, run_module)
        mixed = run_module("nats_roll_plan", cluster.sys_connection(), **options)
        assert mixed["ok"] and severities(mixed) == {}
        assert mixed["versions"] == {"2.9.10": ["n1", "n3"], "2.10.27": ["n2"]}
        part = run_module("nats_roll_plan", cluster.sys_connection(), **{**options, "server_names": ["n1"]})
        assert part["problems"][0]["code"] == "roll_mixed_versions" and part["problems"][0]["servers"] == ["n3"]
        back = run_module("nats_roll_plan", cluster.sys_connection(), **{**options, "target_version": "2.9.10"})
        assert severities(back) == {
            "roll_downgrade": "error",
            "roll_downgrade_floor": "error",
            "roll_state_rebuild": "warning",
        }
        assert all(problem["servers"] == ["n2"] for problem in back["problems"])
    finally:
        cluster.kill()


async def acknowledge_one(server: NatsProcesses, stream: str, consumer: str) -> None:
    async with await nats.connect(server.urls, user=APP_USER, password=APP_PASSWORD) as client:
        subscription = await client.jetstream().pull_subscribe_bind(consumer, stream)
        for message in await fetch(subscription, 1):
            await acknowledge(message)


def overwrite_messages(cluster: NatsProcesses) -> None:
    """Publish messages that replace one another faster than a mirror reads them, so it has gaps."""

    async def publish() -> None:
        user = {"user": APP_USER, "password": APP_PASSWORD}
        async with await nats.connect(cluster.url("n1"), **user) as client:
            for number in range(4000):
                await client.publish("ORIGIN.same" if number % 50 else f"ORIGIN.{number}", b"x" * 100)
            await client.flush(30)

    asyncio.run(publish())


def test_old_servers_are_kept_from_entries_that_make_them_panic(tmp_path: Path, run_module: Runner) -> None:
    """nats-server#8520: for replicated mirrors, 2.15 writes Raft entries that make servers before 2.14 panic at every
    start."""
    cluster = NatsProcesses("2.10.27", tmp_path, ["n1", "n2", "n3"])
    upgrade = {
        "server_names": cluster.names,
        "expected_servers": cluster.names,
        "target_version": "2.15.1",
        "allow_skipped_minors": True,
    }

    def plan(**options: Any) -> dict[str, Any]:
        return run_module("nats_roll_plan", cluster.sys_connection(), **{**upgrade, **options})

    def run_n1_with(extra: str) -> None:
        cluster.stop("n1")
        cluster.write_config("n1", extra)
        cluster.version, cluster._binary = "2.15.1", binary("2.15.1")
        cluster.start("n1")
        form(cluster, run_module)
        assert not run_module("nats_stream_stepdown", cluster.app_connection(), stream="M", preferred="n1").get(
            "failed"
        )
        overwrite_messages(cluster)

    try:
        cluster.start()
        form(cluster, run_module)
        cluster.add_stream("ORIGIN", 1, max_msgs_per_subject=1)
        cluster.add_stream("M", 3, mirror={"name": "ORIGIN"}, subjects=None)
        refused = plan()
        assert severities(refused)["roll_unreadable_entries"] == "error"
        assert "{feature_flags: {js_raft_delete_range: false}}" in refused["refusal"]
        assert "at risk: n1, n2, n3 by APP/M" in "".join(refused["errors"])
        assert severities(plan(server_names=["n1"]))["roll_unreadable_entries"] == "error"
        off = {"js_raft_delete_range": "false"}
        assert "roll_unreadable_entries" not in severities(plan(feature_flags=off))
        assert plan(feature_flags={"js_raft_delete_range": "maybe"})["failure"]["code"] == "invalid_option"

        run_n1_with("feature_flags { js_raft_delete_range: false }")
        form(cluster, run_module)
        assert [name for name, process in cluster.processes.items() if process.poll() is not None] == []
        rest = plan(server_names=["n2", "n3"], feature_flags=off)
        assert "roll_unreadable_entries" not in severities(rest)

        # The others serve the newer server's stream without the features that they do not support.
        leads = run_module("nats_meta_stepdown", cluster.sys_connection(), preferred="n1")
        assert not leads.get("failed"), leads
        cluster.add_stream("CNT", 3, allow_msg_counter=True)
        health = run_module("nats_cluster_health", cluster.sys_connection(), expected_servers=cluster.names, wait=False)
        found = {(one["code"], one["subject"], *one["servers"]) for one in health["problems"]}
        assert found >= {("stream_api_level", "stream APP/CNT", name) for name in ("n2", "n3")}, health
        assert "stream APP/CNT" in plan(server_names=["n2", "n3"], feature_flags=off)["asset_faults"]
        cluster.app_request("$JS.API.STREAM.DELETE.CNT")

        run_n1_with("")
        deadline = time.monotonic() + 60
        while None in [cluster.processes[name].poll() for name in ("n2", "n3")]:
            assert time.monotonic() < deadline, "n2 or n3 is still alive"
            time.sleep(0.1)
        assert "Unknown group entry op type" in cluster.log("n2")
        health = run_module("nats_cluster_health", cluster.sys_connection(), expected_servers=cluster.names, wait=False)
        commands = [command for cause in health["causes"] for command in cause["commands"]]
        assert [command for command in commands if "natsops.jetstream.upgrade  # if their log has" in command], commands
    finally:
        cluster.kill()
