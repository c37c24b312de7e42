# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders the configuration files of every host of a scenario: a molecule scenario, a topology of the demo, or the cluster of the
lab tests. Each scenario has its own inventory and fixed ports, addresses and passwords."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import yaml
from support.controller import Controller
from support.lab_cluster import Cluster
from support.role_rendering import COLLECTIONS, make_role, play

_CHECKOUT = Path(__file__).resolve().parents[2]
MOLECULE = _CHECKOUT / "extensions/molecule"
DEMO_TOPOLOGIES = ("cluster", "supercluster")
#: Replaces the folder of a run in the rendered files.
_FOLDER = "/scenario"

# The role's own variables compose the configuration, hash its passwords and list its files; the lookup of the role renders
# the files. A hash is kept from the previous files, as on a host, because a new one would have another salt.
_TASKS = """
- name: Describe the host
  ansible.builtin.set_fact:
    nats_server__host:
      secrets: "{{ (lookup('ansible.builtin.file', folder ~ '/previous.json') | from_json)[inventory_hostname] | default('') }}"
      process: {running: false}
      record: {}
      loaded: {}
      service_manager: systemd
- name: Compose the configuration
  ansible.builtin.set_fact:
    nats_server__config: "{{ nats_server__config_hashed }}"
- name: Render the files
  ansible.builtin.set_fact:
    rendered: >-
      {{ query('natsops.jetstream.nats_rendered_files', *nats_server__layout.files + nats_server__layout.secret_files) }}
- name: Write the files of all hosts
  ansible.builtin.copy:
    content: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'rendered'))) | to_json }}"
    dest: "{{ folder }}/rendered.json"
    mode: "0600"
  run_once: true
"""
# Writes the inventory of a lab, whose hosts have addresses of their own.
_LAB_DRIVER = """
- name: Describe the hosts
  hosts: localhost
  gather_facts: false
  vars_files: ["COLLECTIONS/ansible_collections/natsops/jetstream/playbooks/molecule/vars/hosts.yml"]
  tasks:
    - name: Create the folder
      ansible.builtin.file:
        path: "{{ molecule__folder }}"
        state: directory
        mode: "0755"
    - name: Write the inventory
      ansible.builtin.copy:
        content: |
          nats:
            hosts:
          {% for name in molecule__names %}
              {{ name }}: {ansible_host: 10.77.0.{{ 10 + loop.index }}}
          {% endfor %}
        dest: "{{ molecule__folder }}/inventory.yml"
        mode: "0644"
""".replace("COLLECTIONS", COLLECTIONS)
#: Dummies of the JWTs and public keys of the scenario operator.
_OPERATOR = {"jwt": "eyJ.operator", "system_account": "ASYS", "accounts": {"ASYS": "eyJ.sys", "AAPP": "eyJ.app"}}
_PLAY = [{"name": "Render", "hosts": "nats", "gather_facts": False, "roles": [{"role": "rendering"}]}]


def scenarios() -> list[str]:
    """Return the names of all scenarios."""
    molecule = [f"molecule-{path.parent.name}" for path in sorted(MOLECULE.glob("*/molecule.yml"))]
    return [*molecule, *(f"demo-{topology}" for topology in DEMO_TOPOLOGIES), "lab"]


def render_scenario(folder: Path, scenario: str, previous: str = "") -> str:
    """Return the configuration files of all hosts as one text. `previous`: the text of an earlier call, from which the
    hashes of unchanged passwords are kept."""
    kind, _dash, name = scenario.partition("-")
    run = _Run(folder)
    secrets = {host: content for host, path, content in _split(previous) if path.endswith("secrets.conf")}
    (folder / "previous.json").write_text(json.dumps(secrets))
    return run.render({"molecule": run.prepare_molecule, "demo": run.prepare_demo, "lab": run.prepare_lab}[kind](name))


class _Run:
    """Runs playbooks in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plays: list[dict[str, Any]] = []
        self.variables: dict[str, Any] = {"folder": str(folder)}
        make_role(folder, _TASKS)

    def render(self, sources: list[Path]) -> str:
        """Return the files of the hosts in these inventories."""
        (self.folder / "play.yml").write_text(yaml.safe_dump([*self.plays, *_PLAY]))
        self.playbook("play.yml", sources, ansible_connection="local")
        hosts = json.loads((self.folder / "rendered.json").read_text())
        return "".join(
            f"==> {host}: {file['path']}\n{file['content']}" for host, files in hosts.items() for file in files
        ).replace(str(self.folder), _FOLDER)

    def playbook(self, name: str, sources: list[Path], **variables: Any) -> None:
        """Run a playbook with these inventories and extra variables."""
        done = play(
            self.folder,
            name,
            sources,
            "--extra-vars",
            json.dumps({**self.variables, **variables}),
            ANSIBLE_INVENTORY_UNPARSED_WARNING="false",
            MOLECULE_EPHEMERAL_DIRECTORY=str(self.folder),
            MOLECULE_SCENARIO_NAME="rendering",
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def prepare_molecule(self, name: str) -> list[Path]:
        """Create the inventory of the hosts as the driver of the scenario does, and return all its inventories in order."""
        settings = [
            yaml.safe_load(path.read_text()) for path in (MOLECULE / name / "molecule.yml", MOLECULE / "config.yml")
        ]
        arguments = next(
            one["ansible"]["executor"]["args"]["ansible_playbook"]
            for one in settings
            if "executor" in one.get("ansible", {})
        )
        places = {"EPHEMERAL": str(self.folder), "SCENARIO": str(MOLECULE / name)}
        sources = [
            Path(re.sub(r"\$\{MOLECULE_(\w+)_DIRECTORY\}", lambda found: places[found[1]], one.partition("=")[2]))
            for one in arguments
        ]
        (own,) = (source for source in sources if self.folder not in source.parents)
        if yaml.safe_load(own.read_text())["all"]["vars"].get("molecule_driver") == "lab":
            (self.folder / "driver.yml").write_text(_LAB_DRIVER)
            self.playbook("driver.yml", [own])
        else:
            ports = list(range(20222, 20222 + 5 * 10))
            self.playbook(
                "natsops.jetstream.molecule.create",
                [own],
                molecule_driver="process",
                # The ports that the playbook would find, and no download.
                molecule__found_ports={"stdout": json.dumps(ports)},
                molecule_nats_server_install_method="release",
            )
        operator = self.folder / "natsops/operator/operator.json"
        operator.parent.mkdir()
        operator.write_text(json.dumps(_OPERATOR))
        return sources

    def prepare_demo(self, topology: str) -> list[Path]:
        """Let the playbook of the demo describe its servers in the same run."""
        (self.folder / "ports.json").write_text(json.dumps(list(range(20222, 20222 + 12))))
        for user in ("system", "app"):
            (self.folder / f"{user}.password").write_text(f"{user} of the demo\n")
        self.plays = [{"import_playbook": "natsops.jetstream.demo_servers"}]
        self.variables |= {"demo_dir": str(self.folder), "demo_topology": topology}
        return []

    def prepare_lab(self, _name: str) -> list[Path]:
        """Write the inventory of the lab tests."""
        with patch("support.lab_cluster.file_install", lambda version: {"nats_server_version": version}):
            cluster = Cluster(cast(Controller, None))
        hosts = {
            name: {"ansible_host": f"10.77.0.{number}", **cluster.host_variables[name]}
            for number, name in enumerate(cluster.hosts, start=11)
        }
        path = self.folder / "inventory.json"
        path.write_text(json.dumps({"nats": {"hosts": hosts, "vars": cluster.variables}}))
        return [path]


def _split(text: str) -> Iterator[tuple[str, str, str]]:
    """Return the host, the path and the content of each file in a text of `render_scenario`."""
    _start, *parts = re.split(r"^==> (\S+): (\S+)\n", text, flags=re.MULTILINE)
    return zip(parts[::3], parts[1::3], parts[2::3], strict=True)
