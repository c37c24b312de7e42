# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_traffic_info, and the code with which it observes messages, while real replicas replicate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    NatsFailure,
    Observed,
)
from support.module_runs import Runner
from support.nats_processes import APP_PASSWORD, NatsProcesses


def test_replication_is_seen_by_kind_and_by_server(healthy: NatsProcesses, version: str, run_module: Runner) -> None:
    stop = threading.Event()

    def publish() -> None:
        with Client(ConnectionOptions(tuple(healthy.urls), "app", APP_PASSWORD)) as client:
            while not stop.is_set():
                client.request_many([Call("ORDERS.traffic", b"x" * 1000)] * 20)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        result = run_module("nats_traffic_info", healthy.sys_connection(), duration=2)
    finally:
        stop.set()
        publisher.join()
        healthy.app_request("$JS.API.STREAM.PURGE.ORDERS")
    kinds: dict[str, dict[str, Any]] = {row["kind"]: row for row in result["kinds"]}
    append, reply = kinds["raft_append"], kinds["raft_reply"]
    assert append["bytes"] > 20 * 1000
    assert reply["msgs"] > 20
    assert append["msgs_per_second"] == pytest.approx(append["msgs"] / result["observed"]["seconds"], rel=0.01)
    assert kinds["client"]["msgs"] == 0
    observed = result["observed"]
    assert (observed["complete"], observed["server"] in healthy.names) == (True, True)
    assert 2 <= observed["seconds"] < 4
    assert observed["msgs"] == sum(row["msgs"] for row in result["kinds"])
    assert [server["name"] for server in result["servers"]] == ["n1", "n10", "n2"]
    for server in result["servers"]:
        assert server["in_bytes_per_second"] > 1000
        assert (server["in_client_msgs_per_second"] is None) == version.startswith("2.10")
    assert result["incomplete"] == []


def test_it_stops_when_it_has_seen_enough(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_traffic_info", healthy.sys_connection(), duration=30, max_messages=2)
    assert (result["observed"]["msgs"], result["observed"]["complete"]) == (2, False)
    assert result["observed"]["seconds"] < 20


def test_bounds_and_the_wrong_account(healthy: NatsProcesses, run_module: Runner) -> None:
    for options in ({"duration": 61}, {"duration": 0.5}, {"max_messages": 0}):
        assert (
            run_module("nats_traffic_info", healthy.sys_connection(), **options)["failure"]["code"] == "invalid_option"
        )
    assert run_module("nats_traffic_info", healthy.app_connection(), duration=1)["failure"]["code"] == "wrong_account"


def test_observing_needs_the_permission_and_ends_with_the_connection(
    make_cluster: Callable[..., NatsProcesses],
) -> None:
    mute = 'mute, permissions: { subscribe: { deny: "secret.>" } }'
    cluster = make_cluster(["n1"], cluster="", plain_accounts={"MUTE": mute})

    def enough(_message: Observed) -> bool:
        return True

    with Client(ConnectionOptions(tuple(cluster.urls), "mute", APP_PASSWORD)) as client:
        deadline = time.monotonic() + 10
        while True:
            try:
                took = client.observe(["open.>"], 0.1, enough)
                break
            except NatsFailure as starting:
                assert (starting.code, time.monotonic() < deadline) == ("unreachable", True)
        assert took == pytest.approx(0.1, abs=0.3)
        with pytest.raises(NatsFailure) as refused:
            client.observe(["secret.>"], 0.2, enough)
        assert refused.value.code == "permission"
        assert "secret" in refused.value.description
        killer = threading.Timer(0.5, cluster.kill)
        killer.start()
        with pytest.raises(NatsFailure) as lost:
            client.observe(["open.>"], 20, enough)
        killer.join()
        assert lost.value.code == "connection_lost"
