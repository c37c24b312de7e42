# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook natsops.jetstream.diagnose: a cluster with small faults, half dead, and dead."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats_processes import SYS_PASSWORD, NatsProcesses, run_playbook


class PlacedProcesses(NatsProcesses):
    """Servers whose files are where the role would look for them: one directory for each."""

    def config_file(self, name: str) -> Path:
        folder = self.directory / "etc" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "nats-server.conf"


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[PlacedProcesses]:
    """Three servers, of which n3 has another max_payload. Only since 2.11 do servers tell what they loaded."""
    cluster = PlacedProcesses("2.15.1", tmp_path, ["n1", "n2", "n3"])
    for name in cluster.names:
        extra = f'log_file: "{tmp_path}/{name}.txt"\n' + ("max_payload: 2MB" if name == "n3" else "")
        cluster.write_config(name, extra)
    cluster.start()
    try:
        cluster.add_stream("ORDERS", 3)
        yield cluster
    finally:
        cluster.kill()


def inventory(cluster: PlacedProcesses) -> str:
    hosts: dict[str, Any] = {
        name: {"nats_server_port": port, "nats_server_config_dir": str(cluster.config_file(name).parent)}
        for name, port in cluster.ports.items()
    }
    # Nobody is there.
    hosts["n4"] = {"ansible_connection": "ssh", "ansible_port": 1, "nats_server_port": 1}
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "nats_server_become": False,
        "nats_server_service_backend": "process",
        "nats_server_cluster_name": "C1",
        "nats_server_jetstream_store_dir": str(cluster.directory),
        "nats_server_log_file": f"{cluster.directory}/{{{{ inventory_hostname }}}}.txt",
        "nats_server_system_password": SYS_PASSWORD,
    }
    path = cluster.directory / "inventory.yml"
    path.write_text(json.dumps({"nats": {"hosts": hosts, "vars": variables}}))
    return str(path)


def diagnose(cluster: PlacedProcesses, *arguments: str) -> tuple[str, dict[str, Any]]:
    target = cluster.directory / "diagnosis.json"
    result = run_playbook("diagnose", "-e", f"diagnose_json={target}", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    assert SYS_PASSWORD not in result.stdout
    return result.stdout, json.loads(target.read_text())


def checks(data: dict[str, Any]) -> dict[str, str]:
    return {check["check"]: check["status"] for check in data["checks"]}


def messages(data: dict[str, Any], code: str) -> list[str]:
    return [finding["message"] for finding in data["findings"] if finding["code"] == code]


def test_faults_are_named_with_their_next_step_and_nothing_stops_the_diagnosis(faulty: PlacedProcesses) -> None:
    hosts = inventory(faulty)
    # What n2 would load next is not what it runs.
    config = faulty.config_file("n2")
    config.write_text(config.read_text() + "\nping_interval: 30s\n")
    text, data = diagnose(faulty, "-i", hosts)
    found = checks(data)
    assert data["verdict"]["status"] == "critical"
    assert messages(data, "server_missing") == ["expected server n4 did not answer (its host cannot be reached either)"]
    assert any("max_payload is 1048576 on n1, n2; 2097152 on n3" in message for message in messages(data, "config_differs"))
    assert messages(data, "config_not_loaded") == ["n2 does not run what its configuration file holds"]
    assert found["logs"] in ("ok", "found")
    for check in ("ping", "health", "routes", "gateways", "versions", "clocks", "slow consumers", "storage", "disks"):
        assert found[check] in ("ok", "found"), check
    assert found["routes"] == found["clocks"] == found["versions"] == "ok"
    assert "natsops.jetstream.deploy" in text

    # Two of the three die while the third holds on, without a meta leader.
    faulty.kill("n1", "n2")
    connection = {"nats_connection": faulty.sys_connection(), "nats_expected_servers": faulty.names}
    text, data = diagnose(faulty, "-e", json.dumps(connection))
    assert data["verdict"]["status"] == "critical"
    assert messages(data, "server_missing") == [f"expected server {name} did not answer" for name in ("n1", "n2")]
    assert "BROKEN" in text

    faulty.kill("n3")
    text, data = diagnose(faulty, "-i", hosts)
    assert data["verdict"]["status"] == "critical"
    assert messages(data, "unreachable")
    assert "n1: its host is up, nats-server does not run there" in messages(data, "unreachable_host")
    assert "n4: its host cannot be reached either" in messages(data, "unreachable_host")


def test_a_healthy_cluster_without_managed_hosts(healthy: NatsProcesses, tmp_path: Path) -> None:
    target = tmp_path / "diagnosis.json"
    connection = {"nats_connection": healthy.sys_connection(), "nats_expected_servers": healthy.names}
    result = run_playbook("diagnose", "-e", json.dumps({**connection, "diagnose_json": str(target)}), "--check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "HEALTHY: nothing wrong was found. Not looked at: logs, configuration loaded, disks, certificates." in result.stdout
    assert "24 of 24 for a full mesh" in result.stdout
    assert not target.exists()
