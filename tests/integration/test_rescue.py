# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_rescue and nats_server_host_info after three of five servers have been permanently destroyed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.store import stored_streams
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.load import acknowledge, fetch
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, free_ports

FIVE = ["n1", "n2", "n3", "n4", "n5"]
LEFT, DEAD = FIVE[:2], FIVE[2:]
#: The servers with each stream's replicas. Some streams have a majority, some have none, and some have replicas on dead
#: servers only.
PLACED = {
    "SAFE": ["n1", "n2", "n3"],
    "ORDERS": ["n1", "n3", "n4"],
    "EVENTS": FIVE,
    "SINGLE": ["n2"],
    "SCRATCH": ["n5"],
    "GONE": DEAD,
}
MESSAGES = 20

Rescue = Callable[..., dict[str, Any]]


@pytest.fixture
def cluster(version: str, tmp_path: Path, run_module: Runner) -> Iterator[NatsProcesses]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    made = NatsProcesses(version, directory, list(FIVE))
    for name in FIVE:
        made.write_config(name, f'server_tags: ["node:{name}"]')
    made.start()
    try:
        yield form(made, run_module)
    finally:
        made.kill()


def fill(cluster: NatsProcesses) -> None:
    """Create the streams on the intended servers, and store messages in each; the consumers have acknowledged
    twelve."""
    for name, members in PLACED.items():
        tags = [f"!node:{other}" for other in FIVE if other not in members]
        made = cluster.add_stream(name, len(members), placement={"tags": tags})
        if name == "SCRATCH":
            # This stream may be placed elsewhere, but GONE may not.
            config = {key: value for key, value in made["config"].items() if key != "placement"}
            assert cluster.app_request(f"$JS.API.STREAM.UPDATE.{name}", config)["cluster"]["leader"] == members[0]
    for stream in ("ORDERS", "EVENTS"):
        cluster.add_consumer(stream, "worker")

    async def publish() -> None:
        client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
        context = client.jetstream(timeout=10)
        for number in range(MESSAGES):
            for name in PLACED:
                await context.publish(f"{name}.new", str(number).encode())
        for stream in ("ORDERS", "EVENTS"):
            taken = await context.pull_subscribe_bind("worker", stream)
            for message in await fetch(taken, 12):
                await acknowledge(message)
        await client.close()

    asyncio.run(publish())
    # A follower stores a message a moment after its leader acknowledged it.
    for name, members in PLACED.items():
        for server in members:
            assert wait_until(partial(last_stored, cluster, server, name), lambda last: last == MESSAGES, 30).done, (
                server
            )


def last_stored(cluster: NatsProcesses, server: str, stream: str) -> int | None:
    """Return the last sequence of a stream in the files of a running server."""
    found = {item.name: item.last_seq for item in stored_streams(str(cluster.directory / server))}
    return found.get(stream)


def read_host(cluster: NatsProcesses, run_module: Runner, name: str) -> dict[str, Any]:
    """Return the information from a server's host, as read over SSH."""
    options = {"config": str(cluster.config_file(name)), "store_dir": str(cluster.directory / name)}
    said = run_module("nats_server_host_info", {}, gather_subset=["rescue"], **options)["rescue"]
    return {"server": name, "reached": True, **{key: said[key] for key in ("running", "fenced", "streams")}}


def destroy(cluster: NatsProcesses, *names: str) -> None:
    """Destroy these servers with their disks."""
    cluster.kill(*names)
    for name in names:
        shutil.rmtree(cluster.directory / name)


def make_rescue(cluster: NatsProcesses, run_module: Runner, records: Path) -> Rescue:
    options = {
        "account_users": cluster.account_users(),
        "expected_servers": FIVE,
        "dead_servers": DEAD,
        "observe": 1,
        "wait_timeout": 60,
        "records_dir": str(records),
    }

    def run(check_mode: bool = False, **asked: Any) -> dict[str, Any]:
        return run_module("nats_rescue", {**cluster.sys_connection(), "timeout": 2}, check_mode, **{**options, **asked})

    return run


def without_leader(rescue: Rescue) -> dict[str, Any]:
    """Return the result of a check run once the survivors report no leader."""

    def waits(said: dict[str, Any]) -> bool:
        return not any("leads the meta group" in one or "leader has just changed" in one for one in said["refused"])

    seen = wait_until(lambda: rescue(check_mode=True), waits, 60)
    assert seen.done, seen.value
    return seen.value


async def everything(cluster: NatsProcesses, stream: str) -> list[str]:
    """Return the body of each message in a stream."""
    living = [cluster.url(name) for name in cluster.processes]
    client = await nats.connect(living, user=APP_USER, password=APP_PASSWORD)
    context = client.jetstream(timeout=10)
    bodies = [((await context.get_msg(stream, seq)).data or b"").decode() for seq in range(1, MESSAGES + 1)]
    await client.close()
    return bodies


def member_names(cluster: NatsProcesses, stream: str) -> list[str]:
    view = cluster.app_request(f"$JS.API.STREAM.INFO.{stream}")["cluster"]
    return sorted([view["leader"], *(peer["name"] for peer in view.get("replicas") or ())])


def missing_members(cluster: NatsProcesses, stream: str) -> int:
    """Return how many replicas a stream lacks."""
    return len(PLACED[stream]) - len(member_names(cluster, stream))


@pytest.mark.parametrize("version", ["2.15.1"], scope="session")
def test_three_of_five_are_destroyed(cluster: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    rescue = make_rescue(cluster, run_module, tmp_path / "records")
    fill(cluster)
    whole = rescue(dead_servers=[])
    assert (whole["refused"], whole["lines"][-1]) == ([], "Nothing to rescue.")
    assert read_host(cluster, run_module, "n5")["running"]
    cluster.kill(*DEAD)

    planned = without_leader(rescue)
    assert (planned["refused"], planned["survivors"], planned["changed"]) == ([], LEFT, True)
    assert {item["stream"]: (item["stalled"], item["last_seq"]) for item in planned["streams"]} == {
        "SAFE": (False, MESSAGES),
        "ORDERS": (True, MESSAGES),
        "EVENTS": (True, MESSAGES),
        "SINGLE": (False, MESSAGES),
    }
    assert [step["action"] for step in planned["batches"]] == ["rescue", "remove", "remove", "remove", "wait"]

    unnamed = rescue(dead_servers=DEAD[:2])
    assert "n5 counts for the meta group and does not answer, but is not listed as dead" in unnamed["msg"]
    startable = rescue(hosts=[read_host(cluster, run_module, "n5")])
    assert "n5 is listed as dead but answers over SSH, and its server could start" in startable["msg"]
    cluster.config_file("n5").unlink()
    disk = rescue(hosts=[read_host(cluster, run_module, "n5")])
    assert "cannot start (it has no configuration file); its disk holds APP/EVENTS up to 20, APP/GONE up to 20" in str(
        disk["lines"]
    )
    assert disk["lost"] == ["APP/GONE", "APP/SCRATCH"]
    for name in DEAD:
        shutil.rmtree(cluster.directory / name)
    mistyped = rescue(dead_servers=[*DEAD, "n.*", "n9"])
    assert mistyped["failure"]["code"] == "invalid_option", mistyped
    assert "dead_servers: 'n.*', 'n9' are not servers of the cluster, which has n1, n2" in mistyped["msg"]
    nowhere = rescue(hosts=[{"server": "n5", "addresses": ["n5"]}])
    assert nowhere["failure"]["code"] == "invalid_option" and "'n5' is not ADDRESS:PORT" in nowhere["msg"]
    listens = rescue(hosts=[{"server": "n5", "addresses": [f"127.0.0.1:{cluster.ports['n1']}"]}])
    assert "accepts connections: it is running and may form a majority with others" in listens["msg"]
    # Without a leader, the losses are unknown, and nothing is removed.
    lost = rescue()
    assert "only dead servers had APP/GONE, APP/SCRATCH: removing the dead servers recreates" in lost["msg"], lost
    assert "Nothing was removed" in lost["msg"]

    done = rescue(lost=["APP/GONE", "APP/SCRATCH"])
    assert not done.get("failed"), done
    assert [step["action"] for step in done["done"]] == ["rescue", "remove", "remove", "remove", "wait"]
    meta = run_module("nats_cluster_info", cluster.sys_connection())["meta"]
    assert (meta["members"], meta["size"]) == (LEFT, 2)
    for stream in ("SAFE", "ORDERS", "EVENTS", "SINGLE"):
        assert asyncio.run(everything(cluster, stream)) == [str(number) for number in range(MESSAGES)], stream
    for stream in ("ORDERS", "EVENTS"):
        assert cluster.app_request(f"$JS.API.CONSUMER.INFO.{stream}.worker")["ack_floor"]["stream_seq"] == 12
    # The streams named as lost exist again but are empty.
    assert cluster.app_request("$JS.API.STREAM.INFO.SCRATCH")["state"]["messages"] == 0
    assert cluster.app_request("ORDERS.new", {})["seq"] == MESSAGES + 1
    assert not list((tmp_path / "records").glob("*"))
    again = rescue()
    assert (again["changed"], again["lines"][-1]) == (False, "Nothing to rescue.")


@pytest.mark.chaos
@pytest.mark.parametrize("version", ["2.15.1"], scope="session")
def test_killed_rescue_resumes_and_new_servers_fill_every_stream(
    cluster: NatsProcesses, run_module: Runner, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    rescue = make_rescue(cluster, run_module, records)
    fill(cluster)
    destroy(cluster, *DEAD)
    without_leader(rescue)
    options = {
        **cluster.sys_connection(),
        "account_users": cluster.account_users(),
        "expected_servers": FIVE,
        "dead_servers": DEAD,
        "lost": ["APP/*"],
        "observe": 1,
        "records_dir": str(records),
    }
    command = [str(Path(sys.executable).with_name("ansible")), "localhost", "-m", "natsops.jetstream.nats_rescue"]
    process = subprocess.Popen(
        [*command, "-a", json.dumps(options)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    seen = wait_until(
        lambda: run_module("nats_cluster_info", cluster.sys_connection())["meta"]["size"],
        lambda size: size < 5,
        60,
        0.05,
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    assert seen.done and list(records.glob("rescue-*.json")), seen
    done = rescue(lost=["APP/*"])
    assert not done.get("failed"), done
    assert not list(records.glob("*"))

    living = [*LEFT, "n6", "n7", "n8"]
    cluster.names[:] = living
    for name in living[2:]:
        cluster.ports[name], cluster.route_ports[name] = free_ports(2)
    for name in living[2:]:
        cluster.write_config(name, f'server_tags: ["node:{name}"]')
    cluster.start(*living[2:])
    for stream in ("SAFE", "ORDERS", "EVENTS", "SINGLE"):
        full = wait_until(partial(missing_members, cluster, stream), lambda missing: missing == 0, 60)
        assert full.done and set(member_names(cluster, stream)) <= set(living), (stream, full.value)
        assert asyncio.run(everything(cluster, stream)) == [str(number) for number in range(MESSAGES)], stream
    form(cluster, run_module)


@pytest.mark.chaos
@pytest.mark.parametrize("version", ["2.15.1"], scope="session")
def test_a_stream_has_lost_its_majority_and_the_meta_group_has_not(
    cluster: NatsProcesses, run_module: Runner, tmp_path: Path
) -> None:
    rescue = partial(make_rescue(cluster, run_module, tmp_path / "records"), dead_servers=["n3", "n4"])
    fill(cluster)
    whole = rescue(dead_servers=["n3"])
    assert "n3 is listed as dead but answers" in whole["msg"]
    destroy(cluster, "n4")
    seen = wait_until(
        lambda: rescue(check_mode=True, dead_servers=["n4"]), lambda said: said["survivors"] == [*FIVE[:3], "n5"], 60
    )
    assert seen.done and "no majority is lost" in seen.value["refused"][-1], seen.value
    destroy(cluster, "n3")
    seen = wait_until(lambda: rescue(check_mode=True), lambda said: not said["refused"], 60)
    assert [step["action"] for step in seen.value["batches"]] == ["remove", "remove", "wait"], seen.value
    done = rescue()
    assert not done.get("failed"), done
    for stream in PLACED:
        assert asyncio.run(everything(cluster, stream)) == [str(number) for number in range(MESSAGES)], stream
        assert not set(member_names(cluster, stream)) & {"n3", "n4"}, stream


@pytest.mark.parametrize("version", ["2.10.27"], scope="session")
def test_older_servers_are_not_rescued_in_place(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    """The remaining data is reported, with the steps to a fresh cluster, which the module does not perform."""
    names = ["n1", "n2", "n3"]
    cluster = form(make_cluster(names), run_module)
    cluster.add_stream("ORDERS", 3)
    cluster.app_request("ORDERS.new", {})
    destroy(cluster, "n2", "n3")
    rescue = partial(make_rescue(cluster, run_module, tmp_path), dead_servers=["n2", "n3"], expected_servers=names)
    planned = without_leader(rescue)
    assert planned["fresh"] and "but n1 2.10.27" in str(planned["lines"])
    assert planned["copies"] == {"n1": "/srv/nats-rescue/n1"}
    assert [step["action"] for step in planned["batches"]] == [
        "stop",
        "copy",
        "bring",
        "save",
        "start",
        "restore_streams",
    ]
    assert any(one.startswith("n1 alone cannot elect a meta leader of a fresh cluster") for one in planned["refused"])
    assert any("its host cannot be read over SSH: it is unreachable" in one for one in planned["refused"])
    assert [(item["stream"], item["stalled"], item["last_seq"]) for item in planned["streams"]] == [("ORDERS", True, 1)]
    refused = rescue()
    assert refused["failed"] and not refused["changed"], refused
    assert "by the playbook rescue, or by the listed commands; nothing was changed" in refused["msg"]
