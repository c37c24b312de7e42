# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the operations that no other test runs on systemd hosts, as the user of `--lab-user`, on minimal hosts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import binaries
import nats
import pytest
from support.controller import Controller, file_install
from support.load import patiently

VERSION = "2.15.1"
HOSTS = ["n1-c1", "n2-c1", "n3-c1"]


@pytest.mark.chaos
def test_rotations_replacement_and_rescue(minimal_controller: Controller, tmp_path: Path) -> None:
    controller, lab = minimal_controller, minimal_controller.lab
    app: dict[str, Any] = {"jetstream": True, "users": [{"user": "app", "password": "app-pass"}]}
    variables: dict[str, Any] = {
        **file_install(VERSION),
        "nats_server_cluster_name": "C1",
        "nats_server_jetstream_store_dir": "/nats/storage",
        "nats_server_system_password": "sys-pass",
        "nats_server_account_operator_password": "operators",
        "nats_server_accounts": {"APP": app},
        "nats_server_bcrypt_cost": 4,
        "nats_server_tls_source": "ca",
        "nats_server_tls_ca_dir": str(tmp_path / "ca"),
        "nats_server_tls_for_clients": False,
        "nats_cluster_gate_span": 3,
        "nats_cluster_backup_directory": str(tmp_path / "backups"),
        "nats_cluster_backup_drill_binary": str(binaries.nats_server(VERSION)),
    }

    def play(playbook: str, **extra: Any) -> str:
        run = controller.playbook(playbook, hosts=HOSTS, group_vars=variables, extra_vars=extra)
        assert run.status == 0, run.output
        return run.output

    async def application(user: str, publish: int = 0) -> int:
        client = await nats.connect(f"nats://{controller.address('n1-c1')}:4222", user=user, password=f"{user}-pass")
        jetstream = client.jetstream(timeout=10)
        try:
            if publish:
                await patiently(partial(jetstream.add_stream, name="ORDERS", subjects=["ORDERS.>"], num_replicas=3))
            for number in range(publish):
                await jetstream.publish("ORDERS.new", str(number).encode())
            return (await patiently(partial(jetstream.stream_info, "ORDERS"))).state.messages
        finally:
            await client.close()

    play("deploy")
    assert controller.run(application("app", 50)) == 50
    for replicas in (1, 3):
        play("replica_count", nats_cluster_streams=[{"account": "APP", "stream": "ORDERS", "num_replicas": replicas}])
    play("reload")
    play("repair")
    play("bundle", nats_cluster_bundle_directory=str(tmp_path))
    assert list(tmp_path.glob("*bundle*"))

    variables["nats_server_tls_new_ca_dir"] = str(tmp_path / "new-ca")
    play("rotate_certificates")
    variables["nats_server_tls_ca_dir"] = variables.pop("nats_server_tls_new_ca_dir")
    app["users"] = [{"user": "app2", "password": "app2-pass"}]
    for phase in ("add", "remove"):
        play("rotate_credentials", nats_cluster_rotate_phase=phase)
    assert controller.run(application("app2")) == 50

    play("backup")
    assert "is proven" in play("backup_drill")

    lab.renew("n3-c1")
    play("replace", nats_cluster_replace="n3-c1")
    assert controller.run(application("app2")) == 50

    for host in HOSTS[1:]:
        lab.kill(host)
    play("rescue", nats_cluster_rescue_dead=HOSTS[1:])
    assert controller.run(application("app2")) == 50
