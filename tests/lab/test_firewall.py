# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""With nftables, only the cluster's members and the named clients can reach its ports, even while hosts boot, join and
leave the inventory."""

from __future__ import annotations

import json

import pytest
from support.controller import Controller, file_install
from support.lab_cluster import Cluster

MEMBERS = ["n1-c1", "n2-c1", "n3-c1"]
NEW, STRANGER = "n4-c1", "n5-c1"
PORTS = (22, 4222, 6222)
CONNECT = "import socket, sys; sys.exit(socket.socket().connect_ex((sys.argv[1], int(sys.argv[2]))) != 0)"


def reached(controller: Controller, source: str, target: str) -> set[int]:
    """Return the ports of a host that another host can connect to."""
    command = f"python3 -c '{CONNECT}' {controller.address(target)} "
    return {port for port in PORTS if controller.ssh(source, f"{command}{port}", check=False).returncode == 0}


@pytest.mark.chaos
def test_only_members_and_named_clients_reach_the_ports(controller: Controller) -> None:
    cluster = Cluster(controller)
    cluster.host_variables = {host: {} for host in MEMBERS}
    cluster.variables |= {**file_install("2.15.1"), "nats_server_firewall": "nftables"}
    controller.ssh("n1-c1", "nft add table inet foreign")

    # The cluster's checks would fail, so nothing is changed.
    refused = cluster.deploy()
    assert any(
        "Ansible connects from 10.77.0.1, which could no longer connect to port 4222" in e for e in refused.errors
    )
    assert (
        controller.ssh("n1-c1", "nft list tables; ls -d /opt/nats-server", check=False).stdout == "table inet foreign\n"
    )

    cluster.variables["nats_server_firewall_allow"] = {"client": ["10.77.0.1"]}
    run = cluster.deploy()
    assert run.status == 0, run.output
    assert reached(controller, STRANGER, "n1-c1") == {22}
    assert reached(controller, "n2-c1", "n1-c1") == {22, 4222, 6222}
    cluster.deploy_unchanged()

    # The rules are in force after a boot and after a restart of nftables, which flushes all tables.
    controller.lab.reboot("n2-c1")
    cluster.wait_after_start("n2-c1")
    controller.ssh("n1-c1", "systemctl restart nftables")
    controller.ssh("n3-c1", "nft flush ruleset")
    for host, open_ports in (("n1-c1", {22}), ("n2-c1", {22}), ("n3-c1", {22, 4222, 6222})):
        assert reached(controller, STRANGER, host) == open_ports
    assert [host for host, task in cluster.deploy(check=True).changed] == ["n3-c1"]

    # The old members accept the new one before it connects.
    cluster.host_variables[NEW] = {}
    run = cluster.play("scale_out")
    assert run.status == 0, run.output
    cluster.wait_until_healthy()
    assert reached(controller, NEW, "n3-c1") == reached(controller, "n1-c1", NEW) == {22, 4222, 6222}
    assert reached(controller, STRANGER, "n3-c1") == {22}

    cluster.variables["nats_server_firewall"] = "none"
    run = cluster.deploy()
    assert run.status == 0, run.output
    assert reached(controller, STRANGER, "n3-c1") == {22, 4222, 6222}
    left = "nft --json list tables; find /etc/nftables.d /etc/systemd/system /etc/nats-server -name '*fire*' -o -name '*.nft'"
    tables, *files = controller.ssh(NEW, left, check=False).stdout.splitlines()
    assert [item for item in json.loads(tables)["nftables"] if "table" in item] == []
    assert files == []
    cluster.deploy_unchanged()
