# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nats_stream_info, nats_consumer_info and nats_account_info as every kind of user, and with replicas that are
down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

GROUP_KEYS = {"raft_group", "cluster", "leader", "leader_since", "replicas", "size", "quorum", "members", "problems"}


@pytest.fixture(scope="module")
def orders(healthy: NatsProcesses) -> Iterator[NatsProcesses]:
    """Cluster C1, with durations that must be converted in a stream and a consumer of account APP."""
    second = 1_000_000_000
    healthy.add_stream("TIMED", 3, max_age=3600 * second, duplicate_window=60 * second, max_bytes=1_000_000)
    healthy.add_consumer("TIMED", "slow", ack_wait=45 * second, max_deliver=4, backoff=[second, 45 * second])
    for number in range(7):
        healthy.app_request("TIMED.x", {"number": number})
    yield form(healthy)
    healthy.app_request("$JS.API.STREAM.DELETE.TIMED")


def both_views(cluster: NatsProcesses) -> list[dict[str, Any]]:
    """Return the connections that can read APP's assets: as APP's user, as the system user with APP's user, and as the
    system user alone."""
    own, system = cluster.app_connection(), {**cluster.sys_connection(), "account": "APP"}
    return [own, {**system, "account_users": cluster.account_users()}, system]


def test_every_fact_of_a_stream_in_both_views(orders: NatsProcesses, version: str, run_module: Runner) -> None:
    views = []
    for connection in both_views(orders):
        result = run_module("nats_stream_info", connection, stream="TIMED")
        assert (result["changed"], result["problems"], result["unknown"]) == (False, [], [])
        views.append(result["view"])
        (stream,) = result["streams"]
        assert (stream["account"], stream["name"], stream["cluster"]) == ("APP", "TIMED", "C1")
        config = stream["config"]
        assert (config["max_age"], config["duplicate_window"], config["max_bytes"]) == (3600.0, 60.0, 1_000_000)
        assert (config["subjects"], config["num_replicas"], config["storage"]) == (["TIMED.>"], 3, "file")
        state = stream["state"]
        assert (state["messages"], state["first_seq"], state["last_seq"], state["consumer_count"]) == (7, 1, 7, 1)
        assert state["bytes"] > 7
        assert stream["raft_group"].startswith("S-R3F-")
        assert (stream["size"], stream["quorum"], stream["members"]) == (3, 2, ["n1", "n10", "n2"])
        assert [replica["name"] for replica in stream["replicas"] if replica["leader"]] == [stream["leader"]]
        for replica in stream["replicas"]:
            assert replica["current"] and replica["online"]
            assert 0 <= replica["active"] < 5
            assert replica["lag"] == 0
        assert (stream["leader_since"] is None) == version.startswith("2.10")
        assert stream.keys() >= GROUP_KEYS
    assert views == ["account", "account", "system"]


def test_every_fact_of_a_consumer_in_both_views(orders: NatsProcesses, run_module: Runner) -> None:
    for connection in both_views(orders):
        result = run_module("nats_consumer_info", connection, stream="TIMED", consumer="slow")
        assert (result["problems"], result["unknown"]) == ([], [])
        (consumer,) = result["consumers"]
        assert (consumer["account"], consumer["stream"], consumer["name"]) == ("APP", "TIMED", "slow")
        assert (consumer["config"]["ack_wait"], consumer["config"]["backoff"]) == (1.0, [1.0, 45.0])
        assert (consumer["num_pending"], consumer["num_ack_pending"], consumer["num_waiting"]) == (7, 0, 0)
        assert (consumer["delivered"]["stream_seq"], consumer["ack_floor"]["stream_seq"]) == (0, 0)
        assert (consumer["size"], len(consumer["replicas"]), consumer["cluster"]) == (3, 3, "C1")
        assert consumer["raft_group"].startswith("C-R3F-")
        assert consumer.keys() >= GROUP_KEYS


def test_all_accounts_and_all_streams(orders: NatsProcesses, run_module: Runner) -> None:
    every = [("APP", name) for name in ("EVENTS", "ORDERS", "TIMED")]
    every += [(f"EXTRA{number}", f"LOG{number}") for number in range(4)]
    users = orders.account_users()
    for options in ({}, {"account_users": users}):
        result = run_module("nats_stream_info", orders.sys_connection(), **options)
        assert [(stream["account"], stream["name"]) for stream in result["streams"]] == every
        consumers = run_module("nats_consumer_info", orders.sys_connection(), **options)["consumers"]
        assert [(item["stream"], item["name"]) for item in consumers] == [("ORDERS", "worker"), ("TIMED", "slow")]
        assert result["unread_accounts"] == ([] if options else None)
    some = run_module("nats_stream_info", orders.sys_connection(), account_users=users[:2])
    assert some["unread_accounts"] == ["EXTRA1", "EXTRA2", "EXTRA3"]
    assert {stream["account"] for stream in some["streams"]} == {"APP", "EXTRA0"}


def test_filters_match_exactly_in_both_views(orders: NatsProcesses, run_module: Runner) -> None:
    def names(module: str, connection: dict[str, Any], **options: Any) -> list[str]:
        kind = "streams" if module == "nats_stream_info" else "consumers"
        result = run_module(module, connection, **options)
        assert result["problems"] == []
        return [item["name"] for item in result[kind]]

    for connection in both_views(orders):
        assert names("nats_stream_info", connection, stream="TIME") == []
        assert names("nats_stream_info", connection, subject="TIMED.a.b") == ["TIMED"]
        assert names("nats_stream_info", connection, subject="*.a") == ["EVENTS", "ORDERS", "TIMED"]
        assert names("nats_stream_info", connection, subject="TIMED") == []
        assert names("nats_stream_info", connection, subject="TIMED.a", stream="ORDERS") == []
        assert names("nats_consumer_info", connection, stream="TIMED") == ["slow"]
        assert names("nats_consumer_info", connection, stream="TIMED", consumer="slo") == []
        assert names("nats_consumer_info", connection, stream="NOTHERE") == []


def test_wrong_credentials_and_names_are_explained(orders: NatsProcesses, run_module: Runner) -> None:
    other = run_module("nats_stream_info", orders.app_connection(), account="EXTRA0")
    assert other["failure"]["code"] == "wrong_account"
    assert "in account APP, not in EXTRA0" in other["msg"]
    nobody = run_module("nats_stream_info", orders.sys_connection(), account="X", account_users=orders.account_users())
    assert "no user for account X" in nobody["msg"]
    assert run_module("nats_stream_info", orders.app_connection(), stream="T*")["failure"]["code"] == "invalid_option"
    assert "stream" in run_module("nats_consumer_info", orders.app_connection(), consumer="slow")["msg"]


def test_accounts_as_the_system_sees_them(orders: NatsProcesses, run_module: Runner) -> None:
    def read() -> dict[str, Any]:
        return run_module("nats_account_info", orders.sys_connection())

    def alone(result: dict[str, Any]) -> bool:
        """Return whether the servers have noticed that all other connections are closed."""
        return [one["network"]["connections"] for one in result["accounts"] if one["name"] == "$SYS"] == [1]

    result = wait_until(read, alone, 30).value
    assert (result["view"], result["incomplete"], result["changed"]) == ("system", [], False)
    accounts = {account["name"]: account for account in result["accounts"]}
    assert set(accounts) == {"APP", "$SYS", "$G", *(f"EXTRA{number}" for number in range(4))}
    assert [name for name, account in accounts.items() if account["system"]] == ["$SYS"]
    assert accounts["$SYS"]["network"]["connections"] == 1
    assert accounts["$SYS"]["jetstream"] is None
    app = accounts["APP"]
    assert app["network"]["in_msgs"] >= 7
    assert app["network"]["subscriptions"] > 0
    jetstream = app["jetstream"]
    assert (jetstream["streams"], jetstream["consumers"], jetstream["messages"]) == (3, 2, 7)
    assert jetstream["usage"]["once"]["storage"] > 0
    assert jetstream["usage"]["replicas"]["storage"] == 3 * jetstream["usage"]["once"]["storage"]
    assert jetstream["reserved"] == {
        "once": {"memory": 0, "storage": 1_000_000},
        "replicas": {"memory": 0, "storage": 3_000_000},
    }
    assert jetstream["limits"]["max_storage"] == -1
    one = run_module("nats_account_info", orders.sys_connection(), account="EXTRA1")
    assert [account["name"] for account in one["accounts"]] == ["EXTRA1"]
    assert one["accounts"][0]["jetstream"]["streams"] == 1


def test_an_account_as_its_user_sees_it(orders: NatsProcesses, version: str, run_module: Runner) -> None:
    result = run_module("nats_account_info", orders.app_connection())
    assert result["view"] == "account"
    (app,) = result["accounts"]
    assert (app["name"], app["system"], app["network"]) == ("APP", False, None)
    jetstream = app["jetstream"]
    assert (jetstream["streams"], jetstream["consumers"], jetstream["tiers"]) == (3, 2, {})
    assert jetstream["limits"]["max_streams"] == -1
    assert jetstream["usage"]["once"] is None
    assert (jetstream["api_level"] == 0) == version.startswith("2.10")
    users = run_module("nats_account_info", orders.sys_connection(), account_users=orders.account_users())
    assert [account["name"] for account in users["accounts"]] == ["APP", *(f"EXTRA{number}" for number in range(4))]
    refused = run_module("nats_account_info", orders.app_connection(), account="EXTRA0")
    assert refused["failure"]["code"] == "wrong_account"


def test_accounts_of_a_server_without_a_cluster(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    """A single server has no groups, and its streams have no problems. An account without JetStream is not an error."""
    cluster = make_cluster(["n1"], cluster="", accounts={"APP": "app"}, plain_accounts={"PLAIN": "plain"})
    cluster.add_stream("ALONE", 1)
    for connection in both_views(cluster):
        result = run_module("nats_stream_info", connection)
        assert [item["name"] for item in result["streams"]] == ["ALONE"]
        assert (result["problems"], result["unknown"]) == ([], [])
    plain = {**cluster.app_connection(), "user": "plain"}
    (account,) = run_module("nats_account_info", plain)["accounts"]
    assert (account["name"], account["jetstream"]) == ("PLAIN", None)
    refused = run_module("nats_stream_info", plain)
    assert refused["failure"]["err_code"] == 10039
    assert "A user of the system account can list all accounts" in refused["msg"]


def test_replicas_that_are_down_are_reported(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3", "n4", "n5"]), run_module)
    placed = cluster.add_stream("HALF", 3)["cluster"]
    members = [placed["leader"], *(peer["name"] for peer in placed["replicas"])]
    # The first server to stop leads neither of the two groups.
    leader = cluster.add_consumer("HALF", "worker")["cluster"]["leader"]
    members[1:] = sorted(members[1:], key=lambda name: name == leader)
    cluster.kill(members[1])
    own, system = cluster.app_connection(), cluster.sys_connection()
    own["servers"] = system["servers"] = [cluster.url(name) for name in cluster.processes]

    def wait_for(module: str, connection: dict[str, Any], *codes: str) -> dict[str, Any]:
        """Return the result once one of the problems is reported; without a meta leader, the JetStream API does not
        respond for a while."""
        deadline = time.monotonic() + 30
        while True:
            result = run_module(module, connection, timeout=6)
            if {problem["code"] for problem in result.get("problems", ())}.intersection(codes):
                return result
            assert time.monotonic() < deadline, result

    for module, kind in (("nats_stream_info", "stream"), ("nats_consumer_info", "consumer")):
        (problem,) = wait_for(module, system, f"{kind}_replica_behind")["problems"]
        assert (problem["code"], problem["servers"]) == (f"{kind}_replica_behind", [members[1]])
    cluster.kill(members[0])
    own["servers"] = system["servers"] = [cluster.url(name) for name in cluster.processes]
    seen = wait_for("nats_stream_info", system, "stream_no_leader")
    assert [(stream["name"], stream["leader"]) for stream in seen["streams"]] == [("HALF", None)]
    assert seen["streams"][0]["config"]["num_replicas"] == 3
    assert [item["stream"] for item in seen["unknown"]] == ["HALF"]
    wait_for("nats_consumer_info", system, "consumer_no_leader")
    for options in ({}, {"stream": "HALF"}):
        told = wait_for("nats_stream_info", {**own, **options}, "stream_unknown", "stream_no_leader")
        assert [item["stream"] for item in told["unknown"]] == ["HALF"]
        assert all(stream["leader"] is None for stream in told["streams"])
    consumers = wait_for("nats_consumer_info", {**own, "stream": "HALF"}, "consumer_unknown", "consumer_no_leader")
    assert [(item["stream"], item["consumer"]) for item in consumers["unknown"]] == [("HALF", "worker")]
    assert len(consumers["problems"]) == 1


def test_a_duplicate_window_that_outlasts_the_messages_is_refused(healthy: NatsProcesses) -> None:
    """Servers refuse such a window, so no check is needed for this setting."""
    config = {"name": "LONG", "subjects": ["long"], "max_age": 60 * 10**9, "duplicate_window": 61 * 10**9}
    with pytest.raises(AssertionError, match="duplicates window can not be larger then max age"):
        healthy.app_request("$JS.API.STREAM.CREATE.LONG", config, seconds=5)
