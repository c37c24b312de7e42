# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The oldest server that the collection deploys: no config_digest, no reload over NATS, one route between two servers."""

from __future__ import annotations

from typing import Any

import pytest
from support.controller import Controller, file_install

HOSTS = ["n1-c1", "n2-c1", "n3-c1"]


@pytest.mark.chaos
@pytest.mark.hosts(len(HOSTS))
def test_2_9_is_deployed_and_changed(controller: Controller) -> None:
    variables: dict[str, Any] = {
        **file_install("2.9.10"),
        "nats_server_cluster_name": "C1",
        "nats_server_jetstream_store_dir": "/nats/storage",
        "nats_server_system_password": "system",
        "nats_server_bcrypt_cost": 4,
        "nats_cluster_gate_span": 3,
        "nats_server_lame_duck_duration": "30s",
        "nats_server_lame_duck_grace_period": "1s",
    }

    def pids() -> list[str]:
        return [controller.ssh(host, "systemctl show -P MainPID nats-server").stdout for host in HOSTS]

    run = controller.playbook("deploy", hosts=HOSTS, group_vars=variables)
    assert run.status == 0, run.output
    before = pids()
    variables["nats_server_max_connections"] = 100
    run = controller.playbook("deploy", hosts=HOSTS, group_vars=variables)
    assert run.status == 0, run.output
    assert all(new != old for new, old in zip(pids(), before))
    assert controller.playbook("deploy", hosts=HOSTS, group_vars=variables).changed == []
