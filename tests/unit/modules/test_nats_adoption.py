# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how Ansible reads the files that nats_adoption writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import page
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.adoption import (
    AdoptedServer,
    Adoption,
    Secret,
)
from ansible_collections.natsops.jetstream.plugins.modules.nats_adoption import content_text, inventory_files

VALUES = {"vault_nats_x": "{{ lookup('pipe', 'id') }} {% raw %}", "vault_nats_y": "plain: #", "vault_nats_z": "1e5"}


def read_by_ansible(folder: Path) -> dict[str, Any]:
    """Return the variables of host h1 in that folder's inventory, after Ansible has resolved them."""
    play = folder / "play.yml"
    wanted = "{{ {'x': nats_server_x, 'deep': nats_server_deep, 'z': vault_nats_z} | to_json }}"
    copy = {"content": wanted, "dest": str(folder / "out.json"), "mode": "0600"}
    play.write_text(json.dumps([{"hosts": "nats", "gather_facts": False, "tasks": [{"ansible.builtin.copy": copy}]}]))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(folder / "inventory.yml"), str(play)]
    environment = {**os.environ, "ANSIBLE_HOME": str(folder / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


def test_secrets_are_references_and_no_value_is_a_template(tmp_path: Path) -> None:
    group = {
        "nats_server_x": Secret("vault_nats_x"),
        "nats_server_deep": {"users": [{"user": "{{ undefined }}", "password": Secret("vault_nats_y")}], "none": None},
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
    }
    server = AdoptedServer("h1", {}, {}, [], [], [], "reload", [], [])
    adoption = Adoption(
        servers=[server], group=group, hosts={"h1": {}}, group_vault=dict(VALUES), host_vaults={"h1": {}}
    )
    adoption.page = page("a report")
    files = inventory_files(adoption, str(tmp_path))
    for file in files:
        Path(file.path).parent.mkdir(parents=True, exist_ok=True)
        Path(file.path).write_bytes(file.content or b"")
    # Only the report may be read by other users, and only the vault contains secrets.
    assert {Path(file.path).name: file.mode for file in files} == {
        "inventory.yml": 0o600,
        "vars.yml": 0o600,
        "vault.yml": 0o600,
        "report.txt": 0o644,
    }
    assert "lookup" not in (tmp_path / "group_vars/nats/vars.yml").read_text()
    assert read_by_ansible(tmp_path) == {
        "x": VALUES["vault_nats_x"],
        "deep": {"users": [{"user": "{{ undefined }}", "password": "plain: #"}], "none": None},
        "z": "1e5",
    }


def test_clusters_share_a_directory(tmp_path: Path) -> None:
    for group, host in (("eu", "h1"), ("us", "h2")):
        adoption = Adoption(
            servers=[AdoptedServer(host, {}, {}, [], [], [], "reload", [], [])],
            group={"nats_server_x": Secret("vault_nats_x")},
            hosts={host: {}},
            group_vault={"vault_nats_x": group},
            host_vaults={host: {}},
        )
        adoption.page = page("a report")
        for file in inventory_files(adoption, str(tmp_path), group):
            Path(file.path).parent.mkdir(parents=True, exist_ok=True)
            assert not Path(file.path).exists()
            Path(file.path).write_bytes(file.content or b"")
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(tmp_path), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    assert sorted(listed["nats"]["children"]) == ["eu", "us"]
    variables = listed["_meta"]["hostvars"]
    assert [(found["nats_server_cluster_group"], found["vault_nats_x"]) for found in variables.values()] == [
        ("eu", "eu"),
        ("us", "us"),
    ]


@pytest.mark.parametrize("value", [*VALUES.values(), "null", "yes", "a\nb", "é\u2028", "'", '"', "{#"])
def test_text_is_kept_unchanged(value: str) -> None:
    text = content_text({"a": value}, "title").decode().replace("a: !unsafe ", "a: ")
    assert yaml.safe_load(text) == {"a": value}
