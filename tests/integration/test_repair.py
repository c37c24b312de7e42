# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_repair: each repair on a real fault, and its refusals."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.load import acknowledge, fetch
from support.module_runs import Runner, form, gate_restarting_silent
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses

WORKER = "APP/ORDERS/worker"


async def _publish(cluster: NatsProcesses, count: int, take: int, size: int = 0) -> None:
    client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
    stream = client.jetstream(timeout=10)
    for number in range(count):
        await stream.publish("ORDERS.new", str(number).encode().ljust(size))
    if take:
        taken = await stream.pull_subscribe_bind("worker", "ORDERS")
        for message in await fetch(taken, take):
            await acknowledge(message)
    await client.close()


async def _sequences(cluster: NatsProcesses, count: int) -> list[int]:
    """Return the sequences of the next messages that the worker receives and acknowledges."""
    living = [cluster.url(name) for name in cluster.processes]
    client = await nats.connect(living, user=APP_USER, password=APP_PASSWORD)
    taken = await client.jetstream(timeout=10).pull_subscribe_bind("worker", "ORDERS")
    got = []
    for message in await fetch(taken, count):
        got.append(message.metadata.sequence.stream)
        await acknowledge(message)
    await client.close()
    return got


def make_repair(cluster: NatsProcesses, run_module: Runner, records: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that runs the module on this cluster."""
    options = {
        "account_users": cluster.account_users(),
        "expected_servers": cluster.names,
        "observe": 1,
        "records_dir": str(records),
    }

    def run(check_mode: bool = False, **asked: Any) -> dict[str, Any]:
        return run_module("nats_repair", {**cluster.sys_connection(), "timeout": 2}, check_mode, **{**options, **asked})

    return run


def make_ghost(cluster: NatsProcesses, run_module: Runner) -> list[Path]:
    """Block the directory of the worker on every server with a file, so no server can create the worker that the meta
    group's log assigns to it (as nats-server#8123 does). Return the blocking files once the servers have settled."""
    in_the_way = []
    for name in cluster.names:
        cluster.stop(name)
        store = cluster.directory / name / "jetstream" / "APP" / "streams" / "ORDERS" / "obs" / "worker"
        shutil.rmtree(store)
        store.write_text("in the way")
        in_the_way.append(store)
    cluster.start()
    asked = {"expected_servers": cluster.names, "samples": 1, "span": 0, "interval": 0.5, "wait_timeout": 90}
    gate = gate_restarting_silent(cluster, {**cluster.sys_connection(), "timeout": 1}, asked, run_module)
    assert [one["code"] for one in gate["warnings_found"]] == ["consumer_ghost"], gate
    return in_the_way


def test_a_ghost_consumer_is_recreated_at_its_floor(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    cluster.add_stream("ORDERS", 3)
    cluster.add_consumer("ORDERS", "worker", max_ack_pending=77)
    asyncio.run(_publish(cluster, 20, take=12))
    repair = make_repair(cluster, run_module, tmp_path)
    whole = repair()
    assert (whole["changed"], whole["lines"]) == (False, ["Nothing to repair."])
    in_the_way = make_ghost(cluster, run_module)

    (unknown,) = repair(check_mode=True)["steps"]
    assert (unknown["finding"], unknown["asset"], unknown["risk"]) == ("consumer_ghost", WORKER, "position_lost")
    assert "its position is unknown" in unknown["refused"]
    everything = repair(check_mode=True, allow=["position_lost"])
    assert (everything["changed"], everything["refused"]) == (True, [])
    assert "deliver everything again: 20 messages from 1 to 20" in everything["lines"][0]
    beyond = repair(floors={WORKER: 999})
    assert (beyond["changed"], beyond["done"]) == (False, [])
    assert "the floor 999 is beyond the end of its stream (20)" in beyond["refused"][0]
    nobody = repair(account_users=[], floors={WORKER: 12})
    assert "no user for account APP" in nobody["refused"][0]
    other = repair(assets=["APP/EVENTS"])
    assert other["steps"] == []
    assert "is not ACCOUNT/STREAM/CONSUMER: SEQUENCE" in repair(floors={"worker": 12})["msg"]
    assert "was not requested" in repair(fixes=["reset"], floors={WORKER: 12})["refused"][0]

    repaired = repair(floors={WORKER: 12})
    if cluster.version.startswith("2.10."):
        # The file remains in place: the worker is deleted, but it cannot be created and is not removed from the log.
        assert repaired["failure"]["err_code"] == 10012, repaired
        (record,) = tmp_path.glob("repair-*.json")
        assert str(record) in repaired["msg"]
        assert json.loads(record.read_text())["config"]["max_ack_pending"] == 77
        for path in in_the_way:
            path.unlink(missing_ok=True)
        repaired = repair()
        assert [step["finding"] for step in repaired["steps"]] == ["consumer_missing"]
    assert not repaired.get("failed"), repaired
    assert repaired["done"][0]["seen"].startswith("recreated; it delivers after 12")
    assert list(tmp_path.glob("repair-*.json")) == []
    info = cluster.app_request("$JS.API.CONSUMER.INFO.ORDERS.worker", members=3)
    assert info["config"]["max_ack_pending"] == 77
    assert asyncio.run(_sequences(cluster, 8)) == list(range(13, 21))
    again = repair()
    assert (again["changed"], again["steps"]) == (False, [])


def raft_groups(cluster: NatsProcesses, run_module: Runner) -> dict[str, str]:
    """Return the names of the Raft groups of streams and consumers, by the asset's own name."""
    found = {}
    for stream in run_module("nats_cluster_info", cluster.sys_connection())["streams"]:
        found[stream["name"]] = stream["raft_group"]
        found.update({f"{stream['name']}/{one['name']}": one["raft_group"] for one in stream["consumers"]})
    return found


def let_no_member_win(cluster: NatsProcesses, groups: list[str]) -> None:
    """Write the highest possible term to every member of these groups. A candidate overflows the term to 0, for which
    no member votes, so all servers run but none leads."""
    for name in cluster.names:
        cluster.stop(name)
        for group in groups:
            state = cluster.directory / name / "jetstream" / "$SYS" / "_js_" / group / "tav.idx"
            # Servers write the file a moment after they receive the term. A server that stops before that leaves no
            # file, so there is no vote to keep.
            vote = state.read_bytes()[8:] if state.exists() else b""
            state.write_bytes(struct.pack("<Q", 2**64 - 1) + vote)
    cluster.start()


def codes(result: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((step["finding"], step["asset"]) for step in result["steps"])


def wait_for(repair: Callable[..., dict[str, Any]], wanted: list[tuple[str, str]], **asked: Any) -> dict[str, Any]:
    """Return the result of the first check run with these findings."""
    seen = wait_until(lambda: repair(check_mode=True, **asked), lambda said: codes(said) == wanted, 60)
    assert seen.done, seen.value
    return seen.value


def repair_result(repair: Callable[..., dict[str, Any]], **asked: Any) -> dict[str, Any]:
    """Return the result of the run that repaired the fault. The module does nothing while another replica is briefly
    out of step."""
    seen = wait_until(lambda: repair(**asked), lambda said: said.get("failed") or said["done"], 60)
    assert seen.value.get("done") and not seen.value.get("failed"), seen.value
    return seen.value


# The fault consists of terms that are written to the disks of stopped servers, and depends on Raft's files at that
# time.
@pytest.mark.chaos
def test_a_leaderless_consumer_is_recreated_at_its_floor_and_one_beyond_the_end_is_reset(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    cluster.add_stream("ORDERS", 3)
    cluster.add_stream("INTEREST", 3, retention="interest")
    cluster.add_stream("OTHER", 3)
    cluster.add_consumer("ORDERS", "worker", max_ack_pending=77)
    cluster.add_consumer("INTEREST", "only")
    asyncio.run(_publish(cluster, 20, take=12))
    groups = raft_groups(form(cluster, run_module), run_module)
    repair = make_repair(cluster, run_module, tmp_path)
    let_no_member_win(cluster, [groups[name] for name in ("ORDERS/worker", "INTEREST/only", "OTHER")])
    leaderless = [("consumer_leaderless", WORKER), ("consumer_leaderless", "APP/INTEREST/only")]
    wait_for(repair, [*leaderless, ("stream_leaderless", "APP/OTHER")])

    repaired = repair()
    assert not repaired.get("failed"), repaired
    assert [(step["asset"], step["fix"], step["floor"]) for step in repaired["done"]] == [(WORKER, "recreate", 12)]
    assert "pending rolled back to the floor" in repaired["done"][0]["does"]
    assert repaired["left"] == ["consumer APP/INTEREST/only", "stream APP/OTHER"]
    assert "retention interest, which drops the messages" in repaired["refused"][1]
    assert "Restart its members (n1, n2, n3)" in repaired["refused"][0]
    info = cluster.app_request("$JS.API.CONSUMER.INFO.ORDERS.worker", members=3)
    assert info["config"]["max_ack_pending"] == 77
    assert asyncio.run(_sequences(cluster, 8)) == list(range(13, 21))

    if cluster.version.startswith("2.10."):
        return
    cluster.app_request("$JS.API.CONSUMER.DELETE.ORDERS.worker")
    cluster.add_consumer("ORDERS", "worker")
    cluster.app_request("$JS.API.CONSUMER.RESET.ORDERS.worker", {"seq": 999})
    ahead = {"assets": ["APP/ORDERS"]}
    wait_for(repair, [("consumer_ahead", WORKER)], **ahead)
    unknown, beyond = repair(**ahead), repair(**ahead, floors={WORKER: 21})
    assert "its position is unknown" in unknown["refused"][0]
    assert "the floor 21 is beyond the end of its stream (20)" in beyond["refused"][0]
    reset = repair(**ahead, floors={WORKER: 15})
    assert not reset.get("failed"), reset
    assert [(step["fix"], step["seen"]) for step in reset["done"]] == [("reset", "reset; it delivers from 16")]
    assert asyncio.run(_sequences(cluster, 5)) == list(range(16, 21))
    assert repair(**ahead)["steps"] == []


def member_names(cluster: NatsProcesses, stream: str) -> list[str]:
    """Return the members of a stream's group, its leader first."""
    view = cluster.app_request(f"$JS.API.STREAM.INFO.{stream}")["cluster"]
    return [view["leader"], *sorted(peer["name"] for peer in view.get("replicas") or ())]


def test_replicas_are_completed(make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path) -> None:
    """There are three cases: a replica that its server cannot create, a group that lost a member although its removal
    was rejected, and a server that never returns.

    The server that cannot create the replica must not be the meta leader: a restarted 2.15.1 meta leader succeeds at
    its second attempt.
    """
    names = ["n1", "n2", "n3", "n4"]
    cluster = form(make_cluster(names), run_module)
    cluster.add_stream("ALL", 4)
    cluster.add_stream("ORDERS", 3)
    cluster.add_consumer("ORDERS", "worker")
    meta = run_module("nats_cluster_info", cluster.sys_connection())["meta"]["leader"]
    leader, *followers = member_names(cluster, "ORDERS")
    broken, other = sorted(followers, key=lambda name: name == meta)
    (spare,) = set(names) - {leader, *followers}
    asyncio.run(_publish(cluster, 20, take=12))
    repair = make_repair(cluster, run_module, tmp_path)

    cluster.stop(broken)
    store = cluster.directory / broken / "jetstream" / "APP" / "streams" / "ORDERS"
    shutil.rmtree(store)
    store.write_text("in the way")
    cluster.start(broken)
    orders = {"assets": ["APP/ORDERS"]}
    wait_for(repair, [("replica_missing", "APP/ORDERS")], **orders)
    repaired = repair_result(repair, **orders)
    assert (repaired["done"][0]["fix"], repaired["done"][0]["server"]) == ("replace_replica", broken)
    assert set(member_names(cluster, "ORDERS")) == {leader, other, spare}
    assert asyncio.run(_sequences(cluster, 4)) == list(range(13, 17))
    store.unlink(missing_ok=True)

    if cluster.version.startswith("2.10."):
        # 2.10 replies that there is no spare server (10075) but removes the member anyway; 2.15 does not remove it.
        with pytest.raises(AssertionError, match="peer"):
            cluster.app_request("$JS.API.STREAM.PEER.REMOVE.ALL", {"peer": member_names(cluster, "ALL")[1]}, seconds=5)
        wait_for(repair, [("group_short", "APP/ALL")])
        repaired = repair_result(repair)
        assert (repaired["done"][0]["fix"], len(member_names(cluster, "ALL"))) == ("refill", 4)

    gone = member_names(cluster, "ORDERS")[1]
    cluster.kill(gone)
    shutil.rmtree(cluster.directory / gone)
    dead = {"dead_servers": [gone]}
    mistyped = repair(dead_servers=[f"{gone}x"])
    assert f"dead_servers: '{gone}x' is not a server of the cluster, which has " in mistyped["msg"], mistyped
    # The server may come back, so there is nothing to repair once other members lead.
    wait_for(repair, [], **orders)
    repaired = repair_result(repair, **dead)
    assert [(step["asset"], step["fix"]) for step in repaired["done"]] == [("APP/ORDERS", "replace_replica")]
    assert gone not in member_names(cluster, "ORDERS")
    assert repaired["left"] == ["stream APP/ALL"]
    assert "no other server can take" in repaired["refused"][0]
    assert asyncio.run(_sequences(cluster, 4)) == list(range(17, 21))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system that fills up takes the right to mount one")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_writing_that_a_full_disk_has_ended(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path, small_disk: Path
) -> None:
    """The report names the fault and its remedy. On 2.15.1, either all of JetStream or only the replica has
    stopped."""
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    cluster.add_stream("ORDERS", 3)
    repair = partial(make_repair(cluster, run_module, tmp_path), expected_jetstream_servers=cluster.names)
    cluster.stop("n3")
    shutil.move(cluster.directory / "n3", small_disk / "n3")
    (cluster.directory / "n3").symlink_to(small_disk / "n3")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 2**20))
    cluster.start("n3")
    form(cluster, run_module)
    asyncio.run(_publish(cluster, 20, take=0, size=2**18))

    ended = [[("jetstream_disabled", "n3")], [("write_error", "n3")]]
    seen = wait_until(lambda: repair(check_mode=True), lambda said: codes(said) in ended, 60)
    found = seen.value
    assert seen.done and (cluster.version == "2.15.1" or codes(found) == ended[0]), found
    assert "free space, then restart only its host: ansible-playbook natsops.jetstream.restart" in found["refused"][0]
    assert (repair()["changed"], found["left"]) == (False, ["n3"])
    ballast.unlink()
    cluster.stop("n3")
    cluster.start("n3")
    wait_for(repair, [])
    form(cluster, run_module)
    assert cluster.app_request("$JS.API.STREAM.INFO.ORDERS", members=3)["state"]["messages"] == 20
    if cluster.version == "2.10.27":
        return  # The replica may lack a message that could not be written, see docs/operations.md.
    led = run_module("nats_stream_stepdown", cluster.app_connection(), stream="ORDERS", preferred="n3")
    assert not led.get("failed"), led
    info = partial(cluster.app_request, "$JS.API.STREAM.INFO.ORDERS", members=3)
    # A new leader applies its log a moment after its election.
    seen = wait_until(info, lambda found: found["state"]["messages"] == 20, 30)
    assert seen.done and seen.value["cluster"]["leader"] == "n3", seen.value


# Only in this tested version does a move wait for more than a majority of its new members.
@pytest.mark.parametrize("version", ["2.15.1"], scope="session")
def test_a_move_without_progress_is_cancelled(version: str, run_module: Runner, tmp_path: Path) -> None:
    """Two of the new members hang, so the old ones are exactly a majority."""
    names = [f"n{number}" for number in range(1, 6)]
    cluster = NatsProcesses(version, tmp_path, names)
    for name in names:
        cluster.write_config(name, f'server_tags: ["node:{name}"]')
    cluster.start()
    try:
        form(cluster, run_module)
        # The meta leader then has heartbeats from every server, so any of them can be chosen.
        cluster.add_stream("EVERYWHERE", len(names))
        cluster.app_request("$JS.API.STREAM.DELETE.EVERYWHERE")
        meta = run_module("nats_cluster_info", cluster.sys_connection())["meta"]["leader"]
        hung = [name for name in names if name != meta][:2]
        created = cluster.add_stream("ORDERS", 3, placement=_without(hung))
        before = member_names(cluster, "ORDERS")
        for name in hung:
            cluster.processes[name].send_signal(signal.SIGSTOP)
        living = [name for name in names if name not in hung]
        asked = {"servers": [cluster.url(name) for name in living], "expected_servers": [], "timeout": 2}
        moved = wait_until(
            lambda: asyncio.run(_update(cluster, living, {**created["config"], "placement": _without(before[1:])})),
            lambda reply: "config" in reply,
            60,
        )
        assert moved.done, moved.value
        repair = make_repair(cluster, run_module, tmp_path)
        wait_for(repair, [("move_stuck", "APP/ORDERS")], **asked)
        repaired = repair_result(repair, **asked)
        assert repaired["done"][0]["fix"] == "cancel_move"
        assert repaired["done"][0]["seen"].removeprefix("its members are ").split(", ") == sorted(before)
    finally:
        cluster.kill()


def _without(names: list[str]) -> dict[str, Any]:
    return {"tags": [f"!node:{name}" for name in names]}


async def _update(cluster: NatsProcesses, over: list[str], config: dict[str, Any]) -> dict[str, Any]:
    client = await nats.connect([cluster.url(name) for name in over], user=APP_USER, password=APP_PASSWORD)
    try:
        message = await client.request("$JS.API.STREAM.UPDATE.ORDERS", json.dumps(config).encode(), timeout=3)
        return dict(json.loads(message.data))
    except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
        return {}
    finally:
        await client.close()
