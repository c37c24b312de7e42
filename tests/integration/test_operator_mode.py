# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose accounts are JWTs of an operator, with the full resolver of nats-server, deployed and restarted by the role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.credentials import Operator, make_operator
from support.module_runs import Runner
from support.role_cluster import RoleCluster

pytestmark = pytest.mark.playbook


@dataclass(frozen=True)
class Deployed:
    """The hosts and who may log in."""

    hosts: RoleCluster
    operator: Operator

    def as_user(self, account: str) -> dict[str, Any]:
        return {"servers": self.hosts.urls, "credentials": str(self.operator.creds[account])}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    root = tmp_path_factory.mktemp("operator")
    operator = make_operator(root, "APP")
    hosts = RoleCluster(root, ["n1", "n2", "n3"], "2.15.1")
    for unwanted in ("nats_server_accounts", "nats_server_system_password", "nats_server_account_operator_password"):
        del hosts.variables[unwanted]
    hosts.variables.update(
        nats_server_operator=operator.jwt,
        nats_server_system_account=operator.system_account,
        nats_server_config={"resolver_preload": operator.accounts},
        nats_server_api_credentials=str(operator.creds["SYS"]),
    )
    for name, own in hosts.hosts.items():
        resolver = {"type": "full", "dir": str(root / name / "jwt"), "allow_delete": False, "interval": "2m"}
        own["nats_server_config_host"] = {"resolver": resolver}
    with hosts.deployed():
        yield Deployed(hosts, operator)


def test_both_accounts_are_there_and_a_stream_has_three_replicas(deployed: Deployed, run_module: Runner) -> None:
    assert run_module("nats_stream", deployed.as_user("APP"), stream="ORDERS", num_replicas=3).get("changed")
    info = run_module("nats_cluster_info", deployed.as_user("SYS"), expected_servers=["n1", "n2", "n3"])
    assert info["problems"] == []
    assert info["meta"]["size"] == 3


def test_a_second_deployment_changes_nothing(deployed: Deployed) -> None:
    deployed.hosts.deploy_changes_nothing()


def test_a_restart_is_gated_with_the_credentials_of_the_system_account(deployed: Deployed) -> None:
    pids = deployed.hosts.pids()
    output = deployed.hosts.playbook("restart").output
    assert "batch 3 of 3" in output
    assert all(deployed.hosts.pid(name) not in (0, pid) for name, pid in pids.items())
