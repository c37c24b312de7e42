# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters whose modules log in without a password are deployed, restarted, upgraded, backed up and restored, with all
checks enabled."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from support.controller import Controller, file_install
from support.credentials import make_operator, new_user
from support.load import patiently
from support.role_cluster import SMOKE_TEST

HOSTS = ["n1-c1", "n2-c1", "n3-c1"]


def by_nkey(root: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the variables of a cluster whose system user has an nkey, the login of its application, and the
    application's account."""
    user = new_user()
    seed = root / "sys.nk"
    seed.write_text(user.seed)
    variables = {
        "nats_server_api_nkey": str(seed),
        "nats_server_account_operator_password": "operators",
        "nats_server_accounts": {
            "$SYS": {"users": [{"nkey": user.public}]},
            "APP": {"jetstream": True, "users": [{"user": "app", "password": "app-pass"}]},
        },
    }
    return variables, {"user": "app", "password": "app-pass"}, "APP"


def by_operator(root: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the same for a cluster in operator mode, with two accounts that share a name."""
    operator = make_operator(root, "APP", "TWIN1", "TWIN2", tags={"TWIN1": "TWIN", "TWIN2": "TWIN"})
    variables = {
        "nats_server_operator": operator.jwt,
        "nats_server_system_account": operator.system_account,
        "nats_server_config": {
            "resolver": {"type": "full", "dir": "/nats/storage/jwt", "allow_delete": False, "interval": "2m"},
            "resolver_preload": operator.accounts,
        },
        "nats_server_api_credentials": str(operator.creds["SYS"]),
        "nats_cluster_account_users": [
            {"account": account, "credentials": str(operator.creds[name])}
            for name, account in (("APP", "APP"), ("TWIN1", "TWIN"), ("TWIN2", "TWIN"))
        ],
    }
    return variables, {"user_credentials": str(operator.creds["APP"])}, operator.keys["APP"]


@pytest.mark.chaos
@pytest.mark.hosts(len(HOSTS))
@pytest.mark.parametrize("login", [by_nkey, by_operator])
def test_every_operation_without_a_password(controller: Controller, tmp_path: Path, login: Any) -> None:
    given, application, account = login(tmp_path)
    variables: dict[str, Any] = {
        **file_install("2.10.27"),
        "nats_server_cluster_name": "C1",
        "nats_server_jetstream_store_dir": "/nats/storage",
        "nats_server_bcrypt_cost": 4,
        "nats_cluster_gate_span": 3,
        "nats_cluster_backup_directory": str(tmp_path / "backups"),
        **given,
    }

    def play(playbook: str, **extra: Any) -> str:
        run = controller.playbook(playbook, hosts=HOSTS, group_vars=variables, extra_vars=extra)
        assert run.status == 0, run.output
        return run.output

    def pids() -> list[str]:
        return [controller.ssh(host, "systemctl show -P MainPID nats-server").stdout for host in HOSTS]

    async def application_does(work: str) -> int:
        urls = [f"nats://{controller.address(host)}:4222" for host in HOSTS]
        client = await nats.connect(urls, **application)
        jetstream = client.jetstream(timeout=10)
        try:
            if work == "fill":
                await patiently(partial(jetstream.add_stream, name="ORDERS", subjects=["ORDERS.>"], num_replicas=3))
                for number in range(50):
                    await jetstream.publish("ORDERS.new", str(number).encode())
            elif work == "delete":
                await jetstream.delete_stream("ORDERS")
                return 0
            return (await patiently(partial(jetstream.stream_info, "ORDERS"))).state.messages
        finally:
            await client.close()

    assert SMOKE_TEST in play("deploy")
    assert controller.playbook("deploy", hosts=HOSTS, group_vars=variables).changed == []
    assert controller.run(application_does("fill")) == 50
    for operation, wanted in (("restart", {}), ("upgrade", file_install("2.15.1"))):
        before = pids()
        variables.update(wanted)
        skips = {"nats_server_allow_skipped_minors": True} if wanted else {}
        output = play(operation, **skips)
        assert "batch 3 of 3" in output
        assert "nats_server : Wait for contact between the server and the meta leader" in output
        assert all(new != old for new, old in zip(pids(), before))
    play("backup")
    catalogue = json.loads((tmp_path / "backups" / "catalogue.json").read_text())
    assert list(catalogue["streams"]) == [f"{account}/ORDERS"]
    controller.run(application_does("delete"))
    play("restore", nats_cluster_restore_streams=["APP/ORDERS"])
    assert controller.run(application_does("count")) == 50
