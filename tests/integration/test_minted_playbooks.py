# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks work in operator mode with nothing but a directory of keys on the controller, and no seed leaves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.credentials import make_operator
from support.minted_site import NATSOPS, Minted
from support.module_runs import Runner
from support.role_cluster import SMOKE_TEST, RoleCluster, words

pytestmark = pytest.mark.playbook


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[tuple[RoleCluster, Minted]]:
    root = tmp_path_factory.mktemp("minted")
    operator = make_operator(root, "APP")
    found = RoleCluster(root, ["n1"], "2.10.27")
    found.use_operator(operator, allow_delete=False, interval="2m")
    found.variables["nats_cluster_backup_directory"] = str(root / "backups")
    try:
        found.playbook("deploy", nats_cluster_smoke_test="never")
        minted = Minted(operator, found.urls, root / "keys", run_module)
        for account in ("SYS", "APP"):
            minted.declare(account, NATSOPS)
        made = run_module("nats_stream", minted.connection(), account="APP", stream="ORDERS", subjects=["o.>"])
        assert made.get("changed"), made
        found.variables.update(
            nats_server_api_credentials=None,
            nats_server_api_account_seed=str(minted.seeds["SYS"]),
            nats_cluster_key_directory=str(minted.keys),
        )
        yield found, minted
    finally:
        found.kill()


def test_server_is_operated_with_minted_users(site: tuple[RoleCluster, Minted], run_module: Runner) -> None:
    hosts, minted = site
    assert SMOKE_TEST in hosts.playbook("deploy", nats_cluster_smoke_test="always").output
    assert "ORDERS" in hosts.playbook("backup").output
    hosts.playbook("restart")
    deleted = run_module("nats_stream", minted.connection(), account="APP", stream="ORDERS", state="absent")
    assert deleted.get("changed"), deleted
    assert "ORDERS" in hosts.playbook("restore", nats_cluster_restore_streams=["APP/ORDERS"]).output


def test_no_seed_leaves_the_controller(site: tuple[RoleCluster, Minted]) -> None:
    hosts, _minted = site
    away = hosts.playbook("backup", fails=True, nats_server_api_delegate_to="n1").output
    assert "no seed may leave the controller" in words(away)
    by_login = hosts.playbook("repair", "--check", fails=True, nats_server_api_delegate_to="n1").output
    assert "nats_server_api_account_seed: the modules would run on n1" in words(by_login)
    timer = hosts.playbook("backup_timer", fails=True).output
    assert "runs without the controller, and no seed of a signing key may reach a host" in words(timer)
