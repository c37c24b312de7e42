# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_server_info, nats_cluster_info, nats_cluster_facts and the code that reads their data, on a healthy
cluster of three servers."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.module_runs import Runner
from support.nats_processes import SYS_PASSWORD, NatsProcesses

EVERY_ENDPOINT = [
    "varz",
    "connz",
    "routez",
    "gatewayz",
    "leafz",
    "subsz",
    "jsz",
    "accountz",
    "healthz",
    "statsz",
    "idz",
]


def test_every_endpoint_of_every_server(healthy: NatsProcesses, version: str, run_module: Runner) -> None:
    result = run_module(
        "nats_server_info", healthy.sys_connection(), endpoints=EVERY_ENDPOINT, options={"healthz": {"details": True}}
    )
    assert [server["name"] for server in result["servers"]] == ["n1", "n10", "n2"]
    assert (result["missing"], result["incomplete"], result["changed"]) == ([], [], False)
    for server in result["servers"]:
        assert server["version"] == server["varz"]["version"] == version
        assert server["idz"]["id"] == server["id"]
        assert {route["remote_name"] for route in server["routez"]["routes"]} == {"n1", "n2", "n10"} - {server["name"]}
        assert server["healthz"]["status"] == "ok"
        assert server["accountz"]["system_account"] == "$SYS"
        assert server["jsz"]["meta_cluster"]["cluster_size"] == 3


def test_info_modules_return_diagnostic_values(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module(
        "nats_server_info",
        healthy.sys_connection(),
        server_names=["n1"],
        endpoints=["raftz", "ipqueuesz", "expvarz", "profilez"],
        options={
            "raftz": {"account": "APP"},
            "ipqueuesz": {"all": True},
            "profilez": {"name": "goroutine", "debug": 1},
        },
    )
    (server,) = result["servers"]
    assert result["incomplete"] == []
    assert set(server["raftz"]) == {"APP"} and server["raftz"]["APP"]
    assert server["ipqueuesz"]
    assert server["expvarz"]["memstats"]["NumGC"] >= 0
    assert b"goroutine profile: total" in base64.b64decode(server["profilez"]["profile"])
    options = {"profilez": {"name": "nothing"}}
    result = run_module("nats_server_info", healthy.sys_connection(), endpoints=["profilez"], options=options)
    assert {row["failure"]["description"] for row in result["incomplete"]} == {'Profile "nothing" not found'}


def test_names_match_exactly(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_server_info", healthy.sys_connection(), server_names=["n1"])
    assert [server["name"] for server in result["servers"]] == ["n1"]


def test_a_missing_server_is_a_finding(healthy: NatsProcesses, run_module: Runner) -> None:
    asked = {"server_names": ["n1", "n3"], "timeout": 1}
    result = run_module("nats_server_info", healthy.sys_connection(), **asked)
    assert ([server["name"] for server in result["servers"]], result["missing"]) == (["n1"], ["n3"])
    refused = run_module("nats_server_info", healthy.sys_connection(), **asked, fail_on_missing=True)
    assert refused["failed"]
    assert refused["failure"]["code"] == "server_missing"
    assert "n3" in refused["msg"]


def test_servers_outside_the_named_cluster_are_missing(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_server_info", healthy.sys_connection(), cluster="C", expected_servers=["n1"])
    assert (result["servers"], result["missing"]) == ([], ["n1"])


def test_endpoint_options_reach_the_server_also_as_text(healthy: NatsProcesses, run_module: Runner) -> None:
    """ansible-core 2.16 passes templated booleans as text."""
    options = {"jsz": {"account": "APP", "consumers": "true", "leader_only": "yes"}, "connz": {"auth": "true"}}

    def read() -> dict[str, Any]:
        return run_module("nats_server_info", healthy.sys_connection(), endpoints=["jsz", "connz"], options=options)

    def alone(result: dict[str, Any]) -> bool:
        """Return whether the servers have noticed that all other connections are closed."""
        return sum(len(server["connz"]["connections"]) for server in result["servers"]) == 1

    result = wait_until(read, alone, 30).value
    with_jsz = [server for server in result["servers"] if "jsz" in server]
    assert len(with_jsz) == 1
    assert with_jsz[0]["jsz"]["meta_cluster"]["leader"] == with_jsz[0]["name"]
    accounts = with_jsz[0]["jsz"]["account_details"]
    assert [account["name"] for account in accounts] == ["APP"]
    orders = next(stream for stream in accounts[0]["stream_detail"] if stream["name"] == "ORDERS")
    assert [consumer["name"] for consumer in orders["consumer_detail"]] == ["worker"]
    users = [connection.get("account") for server in result["servers"] for connection in server["connz"]["connections"]]
    assert users == ["$SYS"]


def test_unknown_endpoint_options_are_refused(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_server_info", healthy.sys_connection(), options={"jsz": {"acounts": True}})
    assert result["failed"]
    assert "acounts" in result["msg"]


def _streams(accounts: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(item["name"], sorted(stream["name"] for stream in item.get("stream_detail") or ())) for item in accounts]


def test_pages_are_put_together(healthy: NatsProcesses) -> None:
    options = ConnectionOptions(servers=tuple(healthy.urls), user="sys", password=SYS_PASSWORD)
    with Client(options) as client:
        whole, paged = SystemApi(client), SystemApi(client, page_size=2)
        servers = whole.discover().servers
        asked = {"accounts": True, "streams": True}
        for _attempt in range(5):  # 2.10 sends the first page in random order
            for server in servers:
                expected = whole.ask_one(server, "JSZ", asked)["account_details"]
                found = paged.ask_one(server, "JSZ", asked)["account_details"]
                assert len(expected) == 5
                assert sorted(_streams(found)) == sorted(_streams(expected))
        subscriptions = paged.ask_one(servers[0], "SUBSZ", {"subscriptions": True, "account": "$SYS"})
        assert len(subscriptions["subscriptions_list"]) == subscriptions["total"] > 10


def test_cluster_info(healthy: NatsProcesses, version: str, run_module: Runner) -> None:
    result = run_module("nats_cluster_info", healthy.sys_connection(), expected_servers=healthy.names)
    assert (result["problems"], result["missing"]) == ([], [])
    assert result["clusters"] == [{"name": "C1", "servers": ["n1", "n10", "n2"]}]
    assert {server["version"] for server in result["servers"]} == {version}
    for server in result["servers"]:
        assert server["health"]["status"] == "ok"
        assert server["routes"] > 0
        assert 0 < server["rtt"] < 5
        assert server["uptime"] > 0
        assert server["mem"] > 1_000_000
        assert server["js"]["max_storage"] == 256 * 1024 * 1024
    meta = result["meta"]
    assert (meta["size"], meta["quorum"]) == (3, 2)
    assert [(peer["name"], peer["current"], peer["online"]) for peer in meta["replicas"]] == [
        (name, True, True) for name in ("n1", "n10", "n2")
    ]
    assert [peer["name"] for peer in meta["replicas"] if peer["leader"]] == [meta["leader"]]
    streams = {(stream["account"], stream["name"]): stream for stream in result["streams"]}
    assert len(streams) == 6
    orders = streams["APP", "ORDERS"]
    assert (orders["size"], len(orders["replicas"]), orders["cluster"]) == (3, 3, "C1")
    assert orders["raft_group"].startswith("S-R3F-")
    (worker,) = orders["consumers"]
    assert (worker["name"], worker["durable"], worker["size"], len(worker["replicas"])) == ("worker", True, 3, 3)
    assert worker["raft_group"].startswith("C-R3F-")
    assert len(streams["APP", "EVENTS"]["replicas"]) == 1


def test_cluster_is_healthy_only_if_it_was_read_completely(healthy: NatsProcesses, run_module: Runner) -> None:
    mesh = {"server_names": healthy.names, "jetstream_servers": healthy.names}
    read = partial(run_module, "nats_cluster_info", healthy.sys_connection(), expected_servers=healthy.names)
    assert read(mesh=mesh)["healthy"] is True
    for partly in ({}, {"mesh": mesh, "detail": "servers"}, {"mesh": mesh, "account": "APP"}):
        assert read(**partly)["healthy"] is None
    for fault in ({"clusters": ["west"]}, {"server_names": [*healthy.names, "n3"]}, {"pinned_accounts": ["APP"]}):
        result = read(mesh={**mesh, **fault})
        assert result["healthy"] is False
        assert {(problem["code"], problem["severity"]) for problem in result["problems"]} == {
            ("mesh_incomplete", "error")
        }
    without = read(mesh={**mesh, "jetstream_servers": [*healthy.names, "n3"]})
    assert "JetStream is not enabled on n3" in [problem["message"] for problem in without["problems"]]


def test_cluster_info_filters(healthy: NatsProcesses, run_module: Runner) -> None:
    def streams(**filters: str) -> list[str]:
        result = run_module("nats_cluster_info", healthy.sys_connection(), **filters)
        assert result["problems"] == []
        return [stream["name"] for stream in result["streams"]]

    assert streams(account="APP") == ["EVENTS", "ORDERS"]
    assert streams(stream="LOG1") == ["LOG1"]
    assert streams(account="APP", stream="LOG1") == []
    assert streams(account="NONE") == []
    assert streams(detail="servers") == []


def test_an_unknown_cluster_is_a_problem(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_cluster_info", healthy.sys_connection(), cluster="C")
    assert (result["servers"], result["streams"]) == ([], [])
    assert [problem["code"] for problem in result["problems"]] == ["cluster_missing"]


def test_cluster_facts_returns_nothing_but_facts(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_cluster_facts", healthy.sys_connection(), check_mode=True)
    assert set(result) == {"ansible_facts", "invocation"}
    assert set(result["ansible_facts"]) == {"nats_cluster"}
    assert result["ansible_facts"]["nats_cluster"]["meta"]["size"] == 3
