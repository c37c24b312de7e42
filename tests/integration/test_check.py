# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nats_check against real servers, with OK, WARNING, CRITICAL and UNKNOWN results."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    Reply,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

Check = Callable[..., dict[str, Any]]


def checker(cluster: NatsProcesses, run_module: Runner) -> Check:
    """Return a function that runs checks as the system user, with a user of each account, without failing the task."""

    def check(*checks: dict[str, Any], **options: Any) -> dict[str, Any]:
        given = {"fail_on": "never", "account_users": cluster.account_users(), **options}
        result = run_module("nats_check", cluster.sys_connection(), checks=list(checks), **given)
        assert not result.get("changed")
        return result

    return check


@pytest.fixture
def check(healthy: NatsProcesses, run_module: Runner) -> Check:
    return checker(healthy, run_module)


def app_client(cluster: NatsProcesses) -> Client:
    app = cluster.app_connection()
    return Client(ConnectionOptions(tuple(app["servers"]), app["user"], app["password"]))


@pytest.fixture
def api(healthy: NatsProcesses) -> Iterator[JetStreamApi]:
    """Return the API of account APP; streams that a test creates are deleted afterwards."""
    with app_client(healthy) as client:
        api = JetStreamApi(client)
        before = set(api.stream_names())
        yield api
        for name in set(api.stream_names()) - before:
            api.delete_stream(name)


def publish(api: JetStreamApi, subject: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
    """Store a message only once. Retry, because the interest of a new stream may not have reached all servers."""
    call = Call(subject, body, {**(headers or {}), "Nats-Msg-Id": uuid.uuid4().hex})
    stored = wait_until(lambda: json.loads(api._client.request(call).body), lambda reply: "seq" in reply, 60)
    assert stored.done, stored.value


def fetch(api: JetStreamApi, stream: str, consumer: str) -> None:
    """Fetch a message with a pull consumer without acknowledging it."""
    taken: list[bytes] = []

    def take(reply: Reply) -> bool:
        taken.append(reply.body)
        return True

    api._client.gather(Call(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b'{"batch": 1}'), take)
    assert taken == [b"1"]


def statuses(result: dict[str, Any]) -> list[str]:
    return [item["status"] for item in result["results"]]


def figures(item: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in item["perfdata"]}


def test_a_healthy_cluster(check: Check, version: str) -> None:
    result = check(
        {"connection": {"connect_warn": "4s", "connect_critical": "5s"}},
        {"connection": {"account": "APP", "req_warn": "4s", "req_critical": "5s"}},
        {"meta": {"expect": 3}},
        {"jetstream": {"account": "APP"}},
        {"stream": {"account": "APP", "stream": "ORDERS", "peer_expect": 3}},
        {"stream": {"account": "APP", "stream": "EVENTS", "peer_expect": 1}},
        {"consumer": {"account": "APP", "stream": "ORDERS", "consumer": "worker", "unprocessed_critical": 1}},
        {"server": {"server_name": "n1", "js_required": True, "auth_required": True, "uptime_critical": "1ms"}},
        {"request": {"account": "APP", "subject": "$JS.API.INFO", "match_payload": '"type":"io.nats.jetstream.api'}},
    )
    assert (result["status"], set(statuses(result))) == ("OK", {"OK"}), result
    connection, _app, meta, account, orders, events, _consumer, server, _request = result["results"]
    assert set(figures(connection)) == {"connect_time", "rtt", "request_time"}
    assert all(0 < value < 5 for value in figures(connection).values())
    assert figures(meta)["peers"] == 3
    assert meta["nagios"].startswith("OK JetStream Meta Cluster OK:3 peers led by n")
    assert (figures(account)["streams"], figures(account)["replicas_ok"]) == (2, 2)
    assert (figures(orders)["peers"], figures(events)["peers"]) == (3, 1)
    seen = figures(server)
    assert seen["connections"] >= 1 and seen["mem"] > 1_000_000 and seen["uptime"] > 0
    assert [item["account"] for item in result["results"][:3]] == [None, "APP", None]


def test_bad_servers_and_groups(check: Check, version: str) -> None:
    result = check(
        {"connection": {"connect_warn": "1us", "connect_critical": "10s"}},
        {"meta": {"expect": 5}},
        {"stream": {"account": "APP", "stream": "ORDERS", "peer_expect": 5}},
        {"server": {"server_name": "n1", "tls_required": True, "mem_critical": "1MB", "conn_warn": 1}},
        {"server": {"server_name": "n1", "tls_cert_warn": "1d"}},
        {"server": {"server_name": "n"}},
        {"request": {"subject": "no.subscriber"}},
        timeout=1,
    )
    certificates = "UNKNOWN" if version == "2.10.27" else "CRITICAL"
    assert statuses(result) == ["WARNING", "CRITICAL", "CRITICAL", "CRITICAL", certificates, "CRITICAL", "CRITICAL"]
    reasons = [item["reasons"]["critical"] for item in result["results"]]
    assert reasons[1] == ["3 peers of expected 5"]
    assert reasons[3][0] == "TLS not required" and reasons[3][1].startswith("Memory ")
    assert reasons[5] == ["no server named n answered; there are: n1, n10, n2"]
    assert reasons[6] == ["no responders on this subject in this account"]


def test_messages_buckets_and_replies(check: Check, api: JetStreamApi) -> None:
    base = {"num_replicas": 1, "storage": "memory", "retention": "limits", "discard": "old"}
    api.create_stream(
        {**base, "name": "KV_CONF", "subjects": ["$KV.CONF.>"], "allow_direct": True, "max_msgs_per_subject": 1}
    )
    for key in ("kept", "gone"):
        publish(api, f"$KV.CONF.{key}", b"value")
    publish(api, "$KV.CONF.gone", headers={"KV-Operation": "DEL"})
    publish(api, "$KV.CONF.clock", str(int(time.time()) - 100).encode())
    bucket = {"account": "APP", "bucket": "CONF"}
    message = {"account": "APP", "stream": "KV_CONF"}
    clock = {**message, "subject": "$KV.CONF.clock"}
    reply = {"account": "APP", "subject": "$JS.API.DIRECT.GET.KV_CONF.$KV.CONF.kept"}
    wanted = {
        "OK": [
            {"kv": {**bucket, "key": "kept"}},
            {"kv": {**bucket, "values_warn": 4, "values_critical": 5}},
            {"last_message": {**message, "age_warn": "30s"}},
            {"last_message": {**message, "subject": "$KV.CONF.kept", "content": "^val"}},
            {"request": {**reply, "match_payload": "^value$", "match_headers": {"Nats-Stream": "KV_CONF"}}},
        ],
        "WARNING": [
            {"kv": {**bucket, "values_warn": 3}},
            {"last_message": {**message, "age_warn": "1us"}},
            {"last_message": {**clock, "body_timestamp": True, "age_warn": "99s", "age_critical": "10m"}},
            {"request": {**reply, "response_warn": "1us"}},
        ],
        "CRITICAL": [
            {"kv": {**bucket, "key": "gone"}},
            {"kv": {**bucket, "key": "never"}},
            {"kv": {**bucket, "values_warn": 9, "values_critical": 3}},
            {"kv": {"account": "APP", "bucket": "NOTHERE"}},
            {"last_message": {**message, "subject": "$KV.CONF.never"}},
            {"last_message": {**message, "content": "^nothing like it"}},
            {"request": {**reply, "match_headers": {"Nats-Stream": "OTHER"}}},
        ],
    }
    for status, checks in wanted.items():
        result = check(*checks)
        assert statuses(result) == [status] * len(checks), result["results"]


def test_an_assets_own_thresholds(check: Check, api: JetStreamApi) -> None:
    metadata = {"io.nats.monitor.msgs-critical": "1", "io.nats.monitor.peer-seen-critical": "often"}
    base = {"num_replicas": 1, "storage": "memory", "retention": "limits", "discard": "old"}
    api.create_stream({**base, "name": "OWN", "subjects": ["OWN"], "metadata": metadata})
    stream = {"account": "APP", "stream": "OWN"}
    result = check({"stream": stream}, {"stream": {**stream, "metadata": False}})
    assert statuses(result) == ["CRITICAL", "OK"]
    reasons = result["results"][0]["reasons"]
    assert reasons["critical"] == ["0 messages"]
    assert reasons["unknown"][0].startswith("metadata io.nats.monitor.peer-seen-critical: 'often' is not a duration")


def test_a_mirror_of_nothing(check: Check, api: JetStreamApi) -> None:
    """The origin does not exist, so its server reports that the mirror was never active. The mirror must not be
    reported as recently active."""
    base = {"num_replicas": 1, "storage": "memory", "retention": "limits", "discard": "old"}
    api.create_stream({**base, "name": "COPY", "mirror": {"name": "NOTHERE"}})
    result = check({"stream": {"account": "APP", "stream": "COPY", "seen_critical": "1h"}})
    assert result["status"] == "CRITICAL", result
    assert "Mirror never seen" in result["results"][0]["reasons"]["critical"]


def test_a_consumers_work(check: Check, api: JetStreamApi) -> None:
    base = {"num_replicas": 3, "storage": "memory", "retention": "limits", "discard": "old"}
    api.create_stream({**base, "name": "WORK", "subjects": ["WORK"]})
    config = {"durable_name": "w", "ack_policy": "explicit", "metadata": {"io.nats.monitor.last-ack-critical": "1h"}}
    api.call("CONSUMER.DURABLE.CREATE.WORK.w", {"stream_name": "WORK", "config": config})
    consumer = {"account": "APP", "stream": "WORK", "consumer": "w", "last_delivery_critical": "1h"}
    # The stream's replicas are not in step immediately.
    seen = wait_until(
        lambda: check({"consumer": consumer})["results"][0]["reasons"]["critical"],
        lambda reasons: reasons == ["No deliveries", "No acks"],
        20,
    )
    assert seen.done, seen.value

    publish(api, "WORK", b"1")
    fetch(api, "WORK", "w")
    result = check({"consumer": {**consumer, "outstanding_ack_critical": 1}})
    assert result["results"][0]["reasons"]["critical"] == ["Ack Pending: 1", "No acks"]
    assert figures(result["results"][0])["last_delivery"] < 60
    assert check({"consumer": {**consumer, "metadata": False}})["status"] == "OK"


def test_unknown_states_are_reported_as_unknown(check: Check, healthy: NatsProcesses, run_module: Runner) -> None:
    result = check({"stream": {"stream": "ORDERS"}}, {"stream": {"account": "APP", "stream": "NOTHERE"}})
    assert statuses(result) == ["UNKNOWN", "CRITICAL"], (
        "the system account has no streams; a missing one is known to be"
    )
    app = run_module(
        "nats_check", healthy.app_connection(), checks=[{"meta": {"expect": 3}}, {"stream": {"stream": "ORDERS"}}]
    )
    assert app["failed"] and statuses(app) == ["UNKNOWN", "OK"]
    assert "system account" in app["results"][0]["reasons"]["unknown"][0]

    nowhere = {**healthy.sys_connection(), "servers": ["nats://127.0.0.1:1"]}
    dead = run_module("nats_check", nowhere, fail_on="never", checks=[{"meta": {"expect": 3}}, {"connection": {}}])
    assert statuses(dead) == ["UNKNOWN", "CRITICAL"]
    assert "connection refused" in dead["results"][0]["reasons"]["unknown"][0]


@pytest.mark.parametrize(
    ("fail_on", "bad", "fails"),
    [
        ("warning", "WARNING", True),
        ("unknown", "WARNING", False),
        ("unknown", "UNKNOWN", True),
        ("critical", "UNKNOWN", False),
        ("critical", "CRITICAL", True),
        ("never", "CRITICAL", False),
    ],
)
def test_when_the_task_fails(check: Check, fail_on: str, bad: str, fails: bool) -> None:
    checks: dict[str, dict[str, Any]] = {
        "WARNING": {"server": {"server_name": "n1", "conn_warn": 1}},
        "UNKNOWN": {"stream": {"stream": "ORDERS"}},
        "CRITICAL": {"meta": {"expect": 4}},
    }
    one = checks[bad]
    result = check(one, {"meta": {"expect": 3}}, fail_on=fail_on)
    assert (result["status"], result.get("failed", False)) == (bad, fails)
    if fails:
        assert result["failure"]["code"] == "check_failed"
        assert result["msg"].startswith(f"1 of 2 checks failed:\n- {next(iter(one))}: {bad} ")


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ([], "checks: the list is empty"),
        ([{}], "one of the following is required"),
        ([{"meta": {"expect": 3}, "connection": {}}], "mutually exclusive"),
        ([{"meta": {}}], "missing required arguments: expect"),
        ([{"meta": {"expect": 3, "stream": "S"}}], "Unsupported parameters"),
        (
            [{"connection": {}}, {"stream": {"stream": "A.*"}}],
            r"checks\[1\].stream.stream: 'A.\*' is not the name of one asset",
        ),
        (
            [{"connection": {"rtt_warn": "2s"}}],
            r"checks\[0\].connection.rtt_warn, rtt_critical: critical .1. is reached before",
        ),
        ([{"connection": {}}, {"jetstream": {"account": "ABSENT"}}], "no user for account ABSENT"),
    ],
)
def test_invalid_checks_always_fail(check: Check, checks: list[dict[str, Any]], message: str) -> None:
    result = check(*checks)
    assert result["failed"]
    assert re.search(message, result["msg"]), result["msg"]


def test_a_credential_needs_no_connection(run_module: Runner, tmp_path: Path) -> None:
    def write(name: str, **claims: float) -> dict[str, Any]:
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        (tmp_path / name).write_text(f"-----BEGIN NATS USER JWT-----\ne30.{body}.c2ln\n------END NATS USER JWT------\n")
        return {"credential": {"credential": str(tmp_path / name), "validity_warn": "1d"}}

    now = time.time()
    checks = [write("ok", exp=now + 1e6), write("soon", exp=now + 3600), write("old", exp=now - 5), write("eternal")]
    checks.append({"credential": {"credential": str(tmp_path / "missing")}})
    nowhere = {"servers": ["nats://127.0.0.1:1"]}
    result = run_module("nats_check", nowhere, fail_on="never", checks=checks)
    assert statuses(result) == ["OK", "WARNING", "CRITICAL", "CRITICAL", "CRITICAL"]
    assert result["results"][4]["reasons"]["critical"] == ["credential not accessible: No such file or directory"]


def test_a_cluster_that_loses_its_servers(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    cluster.add_stream("ORDERS", 3)
    cluster.add_consumer("ORDERS", "worker")
    cluster.add_stream("SOLO", 1)
    cluster.add_consumer("SOLO", "single")
    lost = cluster.app_request("$JS.API.STREAM.INFO.SOLO")["cluster"]["leader"]
    with app_client(cluster) as client:
        publish(JetStreamApi(client), "SOLO.1", b"1")
        fetch(JetStreamApi(client), "SOLO", "single")
    check = checker(cluster, run_module)
    single = {"account": "APP", "stream": "SOLO", "consumer": "single", "last_delivery_critical": "1h"}
    checks: list[dict[str, Any]] = [
        {"meta": {"expect": 3}},
        {"jetstream": {"account": "APP"}},
        {"stream": {"account": "APP", "stream": "ORDERS"}},
        {"consumer": {"account": "APP", "stream": "ORDERS", "consumer": "worker"}},
        {"stream": {"account": "APP", "stream": "SOLO"}},
        {"consumer": single},
    ]

    def look() -> dict[str, Any]:
        return check(*checks, timeout=1)

    good = wait_until(look, lambda result: result["status"] == "OK", 20)
    assert good.done, good.value

    cluster.stop(lost)
    seen = wait_until(look, lambda result: set(statuses(result)) == {"CRITICAL"}, 20)
    assert seen.done, seen.value["results"]
    results = seen.value["results"]
    for item in results[:4]:
        assert any(lost in reason for reason in item["reasons"]["critical"]), item
    assert "SOLO" in results[1]["reasons"]["critical"][0]
    assert figures(results[1])["replicas_ok"] == 0
    assert figures(results[2])["peer_offline"] == 1

    cluster.start(lost)
    form(cluster, run_module)
    seen = wait_until(look, lambda result: statuses(result) == ["OK"] * 5 + ["UNKNOWN"], 30)
    assert seen.done, seen.value["results"]
    assert "its leader started later" in seen.value["results"][5]["reasons"]["unknown"][0]

    leader = cluster.app_request("$JS.API.STREAM.INFO.ORDERS")["cluster"]["leader"]
    cluster.kill(leader, next(name for name in cluster.names if name != leader))
    seen = wait_until(
        look,
        lambda result: "No leader" in str(result["results"][2]["reasons"]) and statuses(result)[:2] == ["CRITICAL"] * 2,
        40,
    )
    assert seen.done, seen.value["results"]
    assert "OK" not in statuses(seen.value)[:4]
