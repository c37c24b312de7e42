# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the guard of a move from static accounts to operator mode against accounts that differ between the two kinds of
servers (nats_account_parity_info). test_migration.py refuses names that are not public keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.credentials import Operator, make_jwt, make_operator
from support.module_runs import Runner
from support.role_cluster import SYSTEM_PASSWORD, RoleCluster, words

pytestmark = pytest.mark.playbook

NAMES = ["n1", "n2", "n3"]


def static(operator: Operator, account: str) -> dict[str, Any]:
    users = [{"user": "app", "password": "app-pass"}]
    return {
        "nats_server_system_account": operator.system_account,
        "nats_server_account_operator_password": None,
        "nats_server_api_credentials": str(operator.creds["SYS"]),
        "nats_server_accounts": {account: {"jetstream": True, "users": users}},
    }


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return make_operator(tmp_path, "APP")


@pytest.fixture
def cluster(tmp_path: Path, operator: Operator) -> Iterator[RoleCluster]:
    """Servers with static accounts, whose next deployment enters operator mode."""
    made = RoleCluster(tmp_path, NAMES, "2.15.1")
    made.variables.update(static(operator, operator.keys["APP"]))
    with made.deployed():
        yield made


def enter_operator_mode(cluster: RoleCluster, operator: Operator) -> None:
    cluster.variables.update(
        nats_server_accounts={},
        nats_server_operator=operator.jwt,
        nats_server_config={"resolver_preload": operator.accounts},
    )
    for name, own in cluster.hosts.items():
        own["nats_server_config_host"] = {"resolver": {"type": "full", "dir": str(jwt_directory(cluster, name))}}


def jwt_directory(cluster: RoleCluster, name: str) -> Path:
    return cluster.root / name / "jwt"


def test_roll_stops_when_a_server_in_operator_mode_has_different_exports(
    cluster: RoleCluster, operator: Operator, run_module: Runner
) -> None:
    """The directory of each full resolver already has newer claims than resolver_preload, and servers keep the newer
    ones."""
    account = operator.keys["APP"]
    free = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
    storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    exports = [{"name": "pay", "subject": "pay", "type": "service"}]
    claims = {"type": "account", "limits": {**free, **storage}, "exports": exports}
    newer = make_jwt(operator.signing_key, account, "APP", claims, top={"iat": int(time.time()) + 1})
    for name in NAMES:
        jwt_directory(cluster, name).mkdir(parents=True)
        (jwt_directory(cluster, name) / f"{account}.jwt").write_text(newer)
    made = run_module(
        "nats_stream",
        {"servers": cluster.urls, "user": "app", "password": "app-pass"},
        stream="ORDERS",
        subjects=["ORDERS.>"],
        num_replicas=3,
    )
    assert made.get("changed"), made
    pids = cluster.pids()
    enter_operator_mode(cluster, operator)
    output = words(cluster.playbook("deploy", fails=True).output)
    assert "1 user can no longer log in without a JWT: app" in output
    assert "The accounts differ between servers with and without an operator" in output
    assert f"account {account}: exports differs between" in output
    assert sum(cluster.pid(name) != pid for name, pid in pids.items()) == 1
    both = {
        "servers": cluster.urls,
        "credentials": str(operator.creds["SYS"]),
        "user": "sys",
        "password": SYSTEM_PASSWORD,
    }
    found = run_module("nats_account_parity_info", both, expected_servers=[*NAMES, "n4"])
    assert (len(found["operator_servers"]), len(found["static_servers"])) == (1, 2)
    assert found["compared"] == [account]
    assert "server n4 did not answer, so its accounts are unknown" in found["problems"]
