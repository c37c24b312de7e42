# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the playbook natsops.jetstream.diagnose on a cluster with small faults, on a cluster whose majority is dead, and
on a dead cluster."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import form, run_in_process
from support.nats_processes import APP_PASSWORD, APP_USER, SYS_PASSWORD, NatsProcesses, run_playbook

pytestmark = pytest.mark.playbook


class PlacedProcesses(NatsProcesses):
    """Servers whose files are at the role's paths, with one directory for each server."""

    def config_file(self, name: str) -> Path:
        folder = self.directory / "etc" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "nats-server.conf"


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[PlacedProcesses]:
    """Three servers; n3 has a different max_payload. Only 2.11 and later report the loaded configuration."""
    cluster = PlacedProcesses("2.15.1", tmp_path, ["n1", "n2", "n3"])
    for name in cluster.names:
        extra = f'log_file: "{tmp_path}/{name}.txt"\n' + ("max_payload: 2MB" if name == "n3" else "")
        cluster.write_config(name, extra)
    cluster.start()
    try:
        cluster.add_stream("ORDERS", 3)
        form(cluster)
        yield cluster
    finally:
        cluster.kill()


def inventory(cluster: PlacedProcesses) -> str:
    hosts: dict[str, Any] = {
        name: {
            "nats_server_port": port,
            "nats_server_cluster_port": cluster.route_ports[name],
            "nats_server_config_dir": str(cluster.config_file(name).parent),
        }
        for name, port in cluster.ports.items()
    }
    # Nothing listens on this port. A closed port is a finding only for a running server, such as n3.
    hosts["n3"]["nats_server_cluster_port"] = 1
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
        "nats_server_accounts": {"APP": {"jetstream": True, "users": [{"user": APP_USER, "password": APP_PASSWORD}]}},
    }
    path = cluster.directory / "inventory.yml"
    path.write_text(json.dumps({"nats": {"hosts": hosts, "vars": variables}}))
    return str(path)


def diagnose(cluster: PlacedProcesses, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Return the output and the file of a diagnosis, after checking that its exit status matches its verdict."""
    target = cluster.directory / "diagnosis.json"
    result = run_playbook("diagnose", "-e", f"diagnose_json={target}", *arguments)
    assert target.exists(), result.stdout + result.stderr
    broken = json.loads(target.read_text())["verdict"]["status"] == "critical"
    assert (result.returncode == 2) if broken else (result.returncode == 0), result.stdout + result.stderr
    assert SYS_PASSWORD not in result.stdout
    return result.stdout, json.loads(target.read_text())


def checks(data: dict[str, Any]) -> dict[str, str]:
    return {check["check"]: check["status"] for check in data["checks"]}


def messages(data: dict[str, Any], code: str) -> list[str]:
    return [finding["message"] for finding in data["findings"] if finding["code"] == code]


def causes(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cause["kind"]: cause for cause in data["causes"]}


def test_faults_are_named_with_their_next_step_and_nothing_stops_the_diagnosis(faulty: PlacedProcesses) -> None:
    hosts = inventory(faulty)
    # The file of n2 differs from its running configuration.
    config = faulty.config_file("n2")
    config.write_text(config.read_text() + "\nping_interval: 30s\n")
    log = faulty.directory / "n1.txt"
    now = time.strftime("%Y/%m/%d %H:%M:%S.000000")
    log.write_text(f"[1] {now} [ERR] of an earlier process\n{log.read_text()}")
    text, data = diagnose(faulty, "-i", hosts)
    found = checks(data)
    assert data["verdict"]["status"] == "critical"
    down = data["causes"][0]
    assert (down["kind"], down["servers"]) == ("servers_down", ["n4"])
    assert down["title"].startswith("n4 does not answer (its host is also unreachable)")
    assert down["evidence"][0] == "expected server n4 did not answer"
    # Log lines are counted by kind; lines of an earlier process do not count.
    kinds = data["logs"]["n1"]
    assert sum(kind["count"] for kind in kinds) >= len(kinds) > 0
    assert not any("of an earlier process" in kind["text"] for kind in kinds)
    assert "Warnings and errors of n1 since its last start:" in text
    assert any(
        "max_payload is 1048576 on n1, n2; 2097152 on n3" in message for message in messages(data, "config_differs")
    )
    assert messages(data, "config_not_loaded") == ["n2 is not running the content of its configuration file"]
    closed = "cannot reach the cluster port of n3 (127.0.0.1:1): Connection refused"
    assert messages(data, "port_closed") == [f"n1, n2 {closed}"]
    assert found["logs"] in ("ok", "found")
    for check in ("ping", "health", "routes", "gateways", "versions", "clocks", "slow consumers", "storage", "disks"):
        assert found[check] in ("ok", "found"), check
    assert found["routes"] == found["clocks"] == found["versions"] == "ok"
    assert "natsops.jetstream.deploy" in text

    # The only server of a stream dies. The application's user of the inventory suffices to find the stream.
    faulty.add_stream("LONE", 1)
    (lone,) = run_in_process("nats_stream_info", faulty.sys_connection(), stream="LONE")["streams"]
    faulty.kill(lone["leader"])
    left = {**faulty.sys_connection(), "servers": [faulty.url(name) for name in faulty.names if name != lone["leader"]]}
    deadline = time.monotonic() + 60
    while not run_in_process("nats_cluster_info", left)["meta"]["leader"]:
        assert time.monotonic() < deadline
    text, data = diagnose(faulty, "-i", hosts)
    told = [
        line
        for line in data["causes"][0]["evidence"]
        if "stream APP/LONE has no leader: its replicas are only on" in line
    ]
    assert told and lone["leader"] in told[0], data["causes"]
    faulty.start(lone["leader"])
    form(faulty)

    # Two of the three servers die; the third keeps running without a meta leader.
    faulty.kill("n1", "n2")
    connection = {"nats_connection": faulty.sys_connection(), "nats_expected_servers": faulty.names}
    text, data = diagnose(faulty, "-e", json.dumps(connection))
    assert data["verdict"]["status"] == "critical"
    down = data["causes"][0]
    assert (down["kind"], down["servers"]) == ("servers_down", ["n1", "n2"])
    assert down["counts"]["server_missing"] == 2
    assert down["evidence"][0] == "expected server n1 did not answer"
    assert "on n1 and n2" in down["commands"][0]
    assert "BROKEN" in text
    calm = run_playbook("diagnose", "-e", json.dumps({**connection, "diagnose_fail_on": "never"}))
    assert calm.returncode == 0, calm.stdout + calm.stderr

    faulty.kill("n3")
    text, data = diagnose(faulty, "-i", hosts)
    assert data["verdict"]["status"] == "critical"
    unreachable = causes(data)["cluster_unreachable"]
    assert "n1: its host is up, but nats-server is not running there" in unreachable["evidence"]
    assert "n4: its host is also unreachable" in unreachable["evidence"]


@pytest.mark.parametrize("since", ["1 hour' ; touch INJECTED ; echo '$(touch INJECTED)", "0"])
def test_a_time_that_is_not_a_duration_is_refused_before_anything_is_read(tmp_path: Path, since: str) -> None:
    """The value may come from a survey in AWX: it must not reach a shell."""
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "nats_server_become": False,
        "nats_server_service_backend": "process",
        "nats_server_cluster_name": "C1",
        "nats_server_jetstream_store_dir": str(tmp_path),
        "nats_server_log_file": str(tmp_path / "server.log"),
        "nats_server_system_password": SYS_PASSWORD,
    }
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(json.dumps({"nats": {"hosts": {"n1": host}}}))
    injected = tmp_path / "injected"
    extra = json.dumps({"diagnose_since": since.replace("INJECTED", str(injected))})
    result = run_playbook("diagnose", "-i", str(inventory), "-e", extra)
    assert result.returncode == 2
    assert re.search("is not a duration such as|diagnose_since must be longer than 0s", result.stdout + result.stderr)
    assert "Read the host" not in result.stdout
    assert not injected.exists()


def test_a_healthy_cluster_without_managed_hosts(healthy: NatsProcesses, tmp_path: Path) -> None:
    target = tmp_path / "diagnosis.json"
    connection = {"nats_connection": healthy.sys_connection(), "nats_expected_servers": healthy.names}
    result = run_playbook("diagnose", "-e", json.dumps({**connection, "diagnose_json": str(target)}), "--check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        "HEALTHY: no problems found. Not checked: maintenance, ports, logs, configuration loaded, disks, certificates, JWTs."
        in result.stdout
    )
    assert "24 of 24 routes of a full mesh" in result.stdout
    assert not target.exists()
