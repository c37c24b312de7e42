# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nats_repair: each cure on a fault that was made for real, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
from support.module_runs import Runner, form, gate_restarting_silent
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses

WORKER = "APP/ORDERS/worker"


async def _publish(cluster: NatsProcesses, count: int, take: int) -> None:
    living = [cluster.url(name) for name in cluster.processes]
    client = await nats.connect(living, user=APP_USER, password=APP_PASSWORD)
    stream = client.jetstream(timeout=10)
    for number in range(count):
        await stream.publish("ORDERS.new", str(number).encode())
    if take:
        taken = await stream.pull_subscribe_bind("worker", "ORDERS")
        for message in await taken.fetch(take, timeout=10):
            await message.ack_sync()
    await client.close()


async def _sequences(cluster: NatsProcesses, count: int) -> list[int]:
    """Return the sequences of the next messages that the worker gets."""
    client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
    taken = await client.jetstream(timeout=10).pull_subscribe_bind("worker", "ORDERS")
    got = [message.metadata.sequence.stream for message in await taken.fetch(count, timeout=10)]
    await client.close()
    return got


def repair_of(cluster: NatsProcesses, run_module: Runner, records: Path) -> Callable[..., dict[str, Any]]:
    """Return the module on this cluster."""
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
    """Let no server be able to make the worker that the meta group's log assigns to it (as nats-server#8123 leaves one behind):
    files stand where they would keep it. Return them once the servers have settled."""
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
    repair = repair_of(cluster, run_module, tmp_path)
    whole = repair()
    assert (whole["changed"], whole["lines"]) == (False, ["Nothing to repair."])
    in_the_way = make_ghost(cluster, run_module)

    (unknown,) = repair(check_mode=True)["steps"]
    assert (unknown["finding"], unknown["asset"], unknown["risk"]) == ("consumer_ghost", WORKER, "position_lost")
    assert "its position is not known" in unknown["refused"]
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
    assert "was not asked for" in repair(cures=["reset"], floors={WORKER: 12})["refused"][0]

    cured = repair(floors={WORKER: 12})
    if cluster.version.startswith("2.10."):
        # The file stays in the way: the worker is deleted, cannot be made, and is not forgotten.
        assert cured["failure"]["err_code"] == 10012, cured
        (record,) = tmp_path.glob("repair-*.json")
        assert str(record) in cured["msg"]
        assert json.loads(record.read_text())["config"]["max_ack_pending"] == 77
        for path in in_the_way:
            path.unlink(missing_ok=True)
        cured = repair()
        assert [step["finding"] for step in cured["steps"]] == ["consumer_missing"]
    assert not cured.get("failed"), cured
    assert cured["done"][0]["seen"].startswith("recreated; it delivers after 12")
    assert list(tmp_path.glob("repair-*.json")) == []
    info = cluster.app_request("$JS.API.CONSUMER.INFO.ORDERS.worker", members=3)
    assert info["config"]["max_ack_pending"] == 77
    assert asyncio.run(_sequences(cluster, 8)) == list(range(13, 21))
    again = repair()
    assert (again["changed"], again["steps"]) == (False, [])
