# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders the files of role nats_server with a real ansible-playbook, from variables alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from support.nats_processes import run_playbook

COLLECTIONS = next(
    os.path.abspath(entry)
    for entry in sys.path
    if (Path(entry) / "ansible_collections/natsops/jetstream/plugins").is_dir()
)
ROLE = Path(COLLECTIONS) / "ansible_collections/natsops/jetstream/roles/nats_server"

PLAY = """
- name: Render
  hosts: nats
  gather_facts: false
  roles:
    - role: rendering
"""
TASKS = """
- name: Settle
  ansible.builtin.set_fact:
    nats_server__config: "{{ nats_server__config_wanted | natsops.jetstream.nats_hash_passwords(cost=4) }}"
- name: Write
  ansible.builtin.template:
    src: "{{ item }}.j2"
    dest: "{{ output }}/{{ inventory_hostname }}.{{ item }}"
    mode: "0600"
  loop: [nats-server.conf, secrets.conf]
- name: Record the configuration problems
  ansible.builtin.copy:
    content: "{{ nats_server__config_wanted | natsops.jetstream.nats_config_problems(nats_server__context) | to_json }}"
    dest: "{{ output }}/{{ inventory_hostname }}.problems"
    mode: "0600"
- name: Keep where clients and modules connect to
  ansible.builtin.copy:
    content: "{{ [near, nats_server_connection.servers] | to_json }}"
    dest: "{{ output }}/{{ inventory_hostname }}.servers"
    mode: "0600"
  vars:
    near: "{{ nats_server__topology.client_urls[:nats_server__topology.servers | length] }}"
"""


def make_role(directory: Path, tasks: str) -> None:
    """Create the role `rendering` with these tasks and everything else of the role nats_server."""
    role = directory / "roles" / "rendering"
    (role / "tasks").mkdir(parents=True)
    for part in ("defaults", "vars", "templates", "meta"):
        (role / part).symlink_to(ROLE / part)
    (role / "tasks" / "main.yml").write_text(tasks)


def render(
    directory: Path, group: dict[str, Any], hosts: dict[str, dict[str, Any]], **clusters: list[str]
) -> subprocess.CompletedProcess[str]:
    """Render the files of the hosts of group nats, which may have child groups."""
    make_role(directory, TASKS)
    (directory / "play.yml").write_text(PLAY)
    everywhere = {
        "ansible_connection": "local",
        "output": str(directory),
        "nats_server_service_backend": "systemd",
        **group,
    }
    children = {name: {"hosts": dict.fromkeys(members)} for name, members in clusters.items()}
    (directory / "inventory.yml").write_text(
        yaml.safe_dump({"nats": {"vars": everywhere, "hosts": hosts, "children": children}})
    )
    return play(directory, "play.yml", [directory / "inventory.yml"])


def play(
    directory: Path, name: str, inventories: Iterable[Path], *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a playbook of the directory, or of the collection, with a home in the directory."""
    found = directory / name
    return run_playbook(
        str(found) if found.exists() else name,
        *(f"--inventory={path}" for path in inventories),
        *arguments,
        **{"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "ANSIBLE_HOME": str(directory / "home"), **environment},
    )


def rendered(
    directory: Path, group: dict[str, Any], hosts: dict[str, dict[str, Any]], **clusters: list[str]
) -> dict[str, str]:
    done = render(directory, group, hosts, **clusters)
    assert done.returncode == 0, done.stdout + done.stderr
    return {host: (directory / f"{host}.nats-server.conf").read_text() for host in hosts}
