# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that responds to clients but not to its Raft peers; some versions occasionally start in this state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

# With this configuration, a server sends no Raft messages to its peers until its process ends.
SILENT = 'permissions { export { deny: ["$NRG.>"] } }'


def until(read: Callable[[], dict[str, Any]], good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + 60
    while not good(found := read()):
        assert time.monotonic() < end, found
        time.sleep(1)
    return found


def test_a_raft_silent_server_is_found_and_goes_first(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    login = cluster.sys_connection()

    def peer(name: str, **options: Any) -> dict[str, Any]:
        return run_module("nats_meta_peer_info", login, server_name=name, **options)

    for name in cluster.names:
        joined = peer(name, in_step=True)
        assert (joined["joined"], joined["raft_silent"], joined["reason"], joined["changed"]) == (
            True,
            False,
            "",
            False,
        )
    leader = run_module("nats_cluster_info", login, detail="servers")
    assert leader["raft_silent"] == []
    victim = next(name for name in cluster.names if name != leader["meta"]["leader"])

    cluster.stop(victim)
    gone = peer(victim, wait_timeout=0)
    assert (gone["joined"], gone["raft_silent"], gone["reason"]) == (False, False, f"{victim} does not answer")
    cluster.write_config(victim)
    config = cluster.config_file(victim)
    config.write_text(config.read_text().replace("cluster {", f"cluster {{ {SILENT},", 1))
    cluster.start(victim)
    silent = until(lambda: peer(victim, wait_timeout=3), lambda found: bool(found["raft_silent"]))
    assert "has received nothing from it since its start" in silent["reason"] and silent["waited"] >= 3

    info = until(
        lambda: run_module("nats_cluster_info", login, detail="servers"), lambda found: bool(found["raft_silent"])
    )
    assert info["raft_silent"] == [victim]
    hosts = {f"host-{name}": name for name in cluster.names}
    plan = run_module(
        "nats_roll_plan", login, hosts=hosts, reasons={"host-n1": ["requested"]}, expected_servers=cluster.names
    )
    assert plan["raft_silent"] == [victim] and plan["refusal"] == ""
    assert plan["batches"][0]["hosts"] == [f"host-{victim}"]
    assert sorted(host for batch in plan["batches"] for host in batch["hosts"]) == sorted(hosts)
    assert plan["lines"][1] == "batch 1 is raft-silent: no quorum depends on it"

    cluster.stop(victim)
    cluster.write_config(victim)
    cluster.start(victim)
    assert peer(victim, in_step=True)["joined"]


def test_a_cluster_that_cannot_be_read_is_a_reason_to_wait_and_to_refuse(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    cluster = make_cluster(["n1"], cluster="")
    login = {**cluster.sys_connection(), "password": "wrong"}
    unread = run_module("nats_meta_peer_info", login, server_name="n1", wait_timeout=0)
    assert not unread["joined"] and not unread["raft_silent"]
    assert "uthorization" in unread["reason"]
    negative = run_module("nats_meta_peer_info", login, server_name="n1", wait_timeout=-1)
    assert negative["failure"]["code"] == "invalid_option"

    options: dict[str, Any] = {"hosts": {"a": "n1", "b": "n2"}, "reasons": {"b": ["requested"]}}
    refused = run_module("nats_roll_plan", login, **options)
    assert refused["failed"] and refused["failure"]["code"] == "authorization"
    assert refused["msg"].startswith("The health gate cannot read the cluster: ")
    assert "No server was touched. To be restarted: a, b (requested)." in refused["msg"]
    ungated = run_module("nats_roll_plan", login, **options, gate=False)
    assert [(batch["hosts"], batch["gates"]) for batch in ungated["batches"]] == [(["a"], {}), (["b"], {})]
    assert (ungated["lower_bound"], ungated["ok"]) == (2, True)
    assert ungated["lines"] == ["batch 1 of 2: a", "batch 2 of 2: b (requested)"]
    (unchecked,) = ungated["causes"]
    assert "could not check whether streams in memory would lose their messages: " in unchecked["title"]
    both = run_module("nats_roll_plan", login, server_names=["n1"], hosts={"a": "n1"})
    assert "mutually exclusive" in both["msg"]
