# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts that are JWTs of an operator: endpoints name them by public key or by name, and two of them share a name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import StopPolicy, stop_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.credentials import Operator, make_operator
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

NAMES = ["n1", "n2", "n3"]
#: The modules that limit their result to an account, and the place of the account's data in the result.
WITH_ACCOUNT = [
    ("nats_cluster_info", "streams"),
    ("nats_stream_info", "streams"),
    ("nats_consumer_info", "consumers"),
    ("nats_account_info", "accounts"),
    ("nats_connection_info", "connections"),
]


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    tags = {"TWIN1": "TWIN", "TWIN2": "TWIN"}
    return make_operator(tmp_path_factory.mktemp("operator"), "APP", "TWIN1", "TWIN2", tags=tags)


@pytest.fixture(scope="module")
def cluster(
    version: str, operator: Operator, tmp_path_factory: pytest.TempPathFactory, run_module: Runner
) -> Iterator[NatsProcesses]:
    servers = NatsProcesses(version, tmp_path_factory.mktemp("c1"), NAMES, operator=operator)
    servers.start()
    try:
        form(servers, run_module)
        for account in servers.accounts:
            servers.add_stream("ORDERS", 3, account)
            servers.add_consumer("ORDERS", "worker", account)
        yield form(servers, run_module)
    finally:
        servers.kill()


def gate(cluster: NatsProcesses, run_module: Runner, **options: Any) -> dict[str, Any]:
    given = {"expected_servers": NAMES, "samples": 1, "span": 0, "interval": 0.3, "wait_timeout": 5, **options}
    return run_module("nats_cluster_health", {**cluster.sys_connection(), "timeout": 2}, **given)


def test_accounts_of_one_name_are_kept_apart(cluster: NatsProcesses, operator: Operator, run_module: Runner) -> None:
    info = run_module("nats_cluster_info", cluster.sys_connection(), expected_servers=NAMES)
    assert info["problems"] == []
    shown = {stream["account"]: stream["account_name"] for stream in info["streams"]}
    twins = {operator.keys[name]: operator.keys[name] for name in ("TWIN1", "TWIN2")}
    assert shown == {operator.keys["APP"]: "APP", **twins}
    assert [len(stream["leaders"]) for stream in info["streams"]] == [1, 1, 1]
    assert gate(cluster, run_module)["healthy"]


@pytest.mark.parametrize(("module", "part"), WITH_ACCOUNT)
def test_an_account_is_specified_by_name_or_key(
    cluster: NatsProcesses, operator: Operator, run_module: Runner, module: str, part: str
) -> None:
    system = cluster.sys_connection()
    by_name, by_key = (run_module(module, system, account=text)[part] for text in ("APP", operator.keys["APP"]))
    assert {row["account"] for row in by_name} <= {operator.keys["APP"]}
    assert [row["name"] for row in by_name] == [row["name"] for row in by_key]
    assert by_name or part == "connections"
    ambiguous = run_module(module, system, account="TWIN")
    assert ambiguous["failure"]["code"] == "account_ambiguous"
    assert operator.keys["TWIN1"] in ambiguous["msg"] and operator.keys["TWIN2"] in ambiguous["msg"]


@pytest.mark.parametrize("account_form", ["name", "key"])
def test_account_users_are_specified_by_name_or_key(
    cluster: NatsProcesses, operator: Operator, run_module: Runner, account_form: str
) -> None:
    users = [
        {**user, "account": operator.keys[user["account"]] if account_form == "key" else user["account"].rstrip("12")}
        for user in cluster.account_users()
    ]
    system = {**cluster.sys_connection(), "account_users": users}
    shown = operator.keys["APP"] if account_form == "key" else "APP"
    leader = cluster.app_request("$JS.API.STREAM.INFO.ORDERS")["cluster"]["leader"]
    evacuated = run_module("nats_server_evacuate", system, True, server_name=leader)
    assert not evacuated.get("failed"), evacuated
    for account in ("APP", operator.keys["APP"]):
        step_down = run_module(
            "nats_stream_stepdown", system, account=account, stream="ORDERS", away_from=[leader], check_mode=True
        )
        assert (step_down["results"][0]["account"], step_down["changed"]) == (operator.keys["APP"], True)
        move = run_module("nats_stream_peer", system, True, account=account, stream="ORDERS", server_name=leader)
        assert f"stream {shown}/ORDERS" in move["msg"], move
    both = run_module("nats_stream_info", system, account="TWIN")
    if account_form == "name":
        assert both["failure"]["code"] == "account_ambiguous"
        assert operator.keys["TWIN1"] in both["msg"] and operator.keys["TWIN2"] in both["msg"]
    rows = run_module("nats_stream_info", system)["streams"]
    assert {row["account"] for row in rows} == {operator.keys[name] for name in cluster.accounts}


def test_a_user_of_another_account_is_refused(cluster: NatsProcesses, operator: Operator, run_module: Runner) -> None:
    user = {"account": operator.keys["TWIN1"], "credentials": str(operator.creds["APP"])}
    refused = run_module("nats_stream_info", {**cluster.sys_connection(), "account_users": [user]})
    assert f"is in account {operator.keys['APP']}, not in {operator.keys['TWIN1']}" in refused["msg"]


def test_a_replica_that_its_server_rejects_counts_against_a_stop(
    cluster: NatsProcesses, operator: Operator, run_module: Runner, tmp_path: Path
) -> None:
    leader = cluster.app_request("$JS.API.STREAM.INFO.ORDERS")["cluster"]["leader"]
    broken, other = (name for name in NAMES if name != leader)
    cluster.stop(broken)
    # HEALTHZ has the account's public key, JSZ its name.
    store = cluster.directory / broken / "jetstream" / operator.keys["APP"] / "streams" / "ORDERS"
    store.rename(tmp_path / "ORDERS")
    store.write_text("in the way")
    cluster.start(broken)
    options = ConnectionOptions(servers=tuple(cluster.urls), credentials=str(operator.creds["SYS"]))
    with Client(options) as client:

        def judged() -> tuple[set[str], set[str], set[str]]:
            """Return three lists: all streams, the streams that HEALTHZ names, and those that stopping the other server
            would affect."""
            found = SystemApi(client).read_cluster(awaited=NAMES)
            reported = {error.subject for one in found.servers if one.health for error in one.health.asset_errors}
            harmed = {problem.subject for problem in stop_problems(found, [other], StopPolicy())}
            return {group.subject for group in found.groups()}, reported, harmed

        held, reported, harmed = wait_until(judged, lambda seen: "stream APP/ORDERS" in seen[1], 60, 0.3).value
    assert reported <= held
    assert "stream APP/ORDERS" in harmed
    refused = gate(cluster, run_module, stop_servers=[other])
    assert not refused.get("healthy"), refused
    assert all(problem["code"] != "stream_ghost" for problem in refused["problems"] + refused["warnings_found"])
