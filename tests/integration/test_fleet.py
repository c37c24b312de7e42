# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five clusters in one inventory: the playbook fleet (nats_fleet_run) finishes the intact clusters although
others are broken."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nats_processes import free_ports, run_playbook
from support.role_cluster import RoleCluster, words

pytestmark = pytest.mark.playbook

#: The clusters that the test breaks have three servers each: one broken host must stop the other two.
LARGE = ["c1", "c2", "c3"]
NAMES = [f"c{number}" for number in range(1, 6)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[RoleCluster]:
    """The hosts of five clusters, without servers."""
    made = RoleCluster(tmp_path, [], "2.15.1")
    del made.variables["nats_server_cluster_name"]
    for name in NAMES:
        made.groups[name] = [f"{name}-n{number}" for number in (1, 2, 3)] if name in LARGE else [f"{name}-n1"]
        for host in made.groups[name]:
            made.add(host)
            made.hosts[host].update(nats_server_cluster_group=name, nats_server_clustered=name in LARGE)
    try:
        yield made
    finally:
        made.kill()


def deploy(fleet: RoleCluster, failing: list[str], *arguments: str) -> tuple[dict[str, str], str]:
    """Deploy the fleet, in which these clusters must fail. Returns the outcome of each cluster, and the output."""
    run = fleet.playbook(
        "fleet",
        *arguments,
        fails=bool(failing),
        nats_fleet_playbook="deploy",
        nats_fleet_parallel=3,
        nats_fleet_directory=str(fleet.root / "logs"),
    )
    logs = {name: (fleet.root / "logs" / f"fleet-deploy-{name}.txt").read_text() for name in NAMES}
    assert [name for name in NAMES if f": {name} failed after" in run.output] == failing, run.output
    assert [name for name in NAMES if f": {name} succeeded after" in run.output] == [
        name for name in NAMES if name not in failing
    ], run.output
    return logs, words(run.output)


def running(fleet: RoleCluster) -> list[str]:
    """Return the clusters with at least one running server."""
    return [name for name, hosts in fleet.groups.items() if any(map(fleet.pid, hosts))]


def test_broken_clusters_do_not_stop_the_others(fleet: RoleCluster) -> None:
    # A configuration with an invalid value, and a host that does not respond.
    fleet.hosts["c2-n2"]["nats_server_config_host"] = {"max_payload": "1XB"}
    fleet.hosts["c3-n3"].update(ansible_connection="ssh", ansible_port=free_ports(1)[0])
    _logs, output = deploy(fleet, ["c2", "c3"])
    assert "2 of 5 clusters failed: c2, c3; 3 finished." in output
    assert "c2-n2: " in output and "c3-n3: " in output
    assert running(fleet) == [name for name in NAMES if name not in ("c2", "c3")]

    del fleet.hosts["c2-n2"]["nats_server_config_host"]
    for option in ("ansible_connection", "ansible_port"):
        del fleet.hosts["c3-n3"][option]
    for host in fleet.groups["c1"]:
        fleet.hosts[host]["nats_server_api_password"] = "s3cret-other"
    before = fleet.pids()
    logs, output = deploy(fleet, ["c1"])
    assert "1 of 5 clusters failed: c1; 4 finished." in output
    assert running(fleet) == NAMES
    after = fleet.pids()
    assert [host for host, pid in before.items() if pid and after[host] != pid] == []
    assert not [name for name, log in logs.items() if "s3cret-other" in log]


def test_new_clusters_share_an_inventory(tmp_path: Path) -> None:
    """docs/fleet.md: the files of a second cluster keep those of the first."""
    folder = tmp_path / "inventories"

    def add(cluster: str, hosts: str) -> str:
        settings = {"nats_new_cluster": cluster, "nats_new_hosts": hosts, "nats_new_directory": str(folder)}
        done = run_playbook("natsops.jetstream.clusters.new", "-e", json.dumps(settings))
        return words(done.stdout + done.stderr)

    add("orders_eu", "10.0.0.1, 10.0.0.2,10.0.0.3")
    vault = folder / "group_vars/orders_eu/vault.yml"
    first = vault.read_text()
    assert vault.stat().st_mode & 0o777 == 0o600
    add("orders_us", "10.0.1.1")
    assert "changed=0" in add("orders_eu", "10.0.0.1") and vault.read_text() == first
    assert "Set nats_new_cluster to a group name" in add("Orders-EU", "10.0.0.1")

    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(folder), "--list"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert listed["orders_eu"]["hosts"] == ["orders-eu-n1", "orders-eu-n2", "orders-eu-n3"]
    variables = listed["_meta"]["hostvars"]
    assert variables["orders-eu-n3"]["ansible_host"] == "10.0.0.3"
    assert [found["nats_server_cluster_group"] for found in variables.values()] == ["orders_eu"] * 3 + ["orders_us"]
    passwords = {found["vault_nats_system_password"] for found in variables.values()}
    assert len(passwords) == 2 and all(len(password) == 24 for password in passwords)


CHECK = """
- hosts: "{{ nats_server_hosts }}"
  gather_facts: false
  tasks:
    - ansible.builtin.assert:
        that:
          - shared_secret == 'from the vault'
          - sudo_file is file and lookup('ansible.builtin.file', sudo_file) == 'sudo secret'
      vars:
        sudo_file: >-
          {{ lookup('ansible.builtin.pipe', 'tr "\\0" "\\n" < /proc/$PPID/cmdline').splitlines()
             | map('regex_replace', '^--become-password-file$', 'next') | join(' ')
             | regex_search('next (\\S+)', '\\1') | first }}
"""


def typed(command: list[str], answers: list[str]) -> tuple[int, str]:
    """Run a command in a terminal, and type the answers to its prompts. Returns exit status and output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    output, left = "", list(answers)
    with contextlib.suppress(OSError):  # the end of the child closes the terminal
        while data := os.read(terminal, 65536):
            output += data.decode(errors="replace")
            if left and re.search(r"assword[^\n]*: $", output):
                os.write(terminal, f"{left.pop(0)}\n".encode())
                output += "\n"
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output


def test_passwords_of_prompts_reach_the_runs_of_the_clusters(tmp_path: Path) -> None:
    """AWX enters the passwords of its credentials at these prompts."""
    password = tmp_path / "password"
    password.write_text("open sesame")
    encrypted = subprocess.run(
        [
            "ansible-vault",
            "encrypt_string",
            "--vault-id",
            f"prod@{password}",
            "from the vault",
            "--name",
            "shared_secret",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    hosts = {
        name: {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "nats_server_cluster_group": name,
        }
        for name in ("east", "west")
    }
    groups = "\n".join(f"{name}: {{hosts: {{{name}: {json.dumps(hosts[name])}}}}}" for name in hosts)
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(f"nats: {{children: {{east: , west: }}}}\n{groups}\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "nats.yml").write_text(encrypted)
    (tmp_path / "check.yml").write_text(CHECK)
    command = ["ansible-playbook", "natsops.jetstream.fleet", "-i", str(inventory)]
    command += ["-e", f"nats_fleet_playbook={tmp_path}/check.yml", "-e", f"nats_fleet_directory={tmp_path}/logs"]
    status, output = typed([*command, "--vault-id", "prod@prompt", "--ask-become-pass"], ["sudo secret", "open sesame"])
    logs = "".join(path.read_text() for path in (tmp_path / "logs").glob("*"))
    assert status == 0 and "2 of 2:" in output, output + logs
    assert "sudo secret" not in output + logs and "open sesame" not in logs
    assert not list(Path(tempfile.gettempdir()).glob("natsops-fleet-*"))
