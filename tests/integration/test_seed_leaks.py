# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the playbooks and modules of accounts with `-vvv --diff`, and searches everything that they leave for seeds."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nkeys
import pytest
import yaml
from support.credentials import Operator, make_operator, new_key
from support.nats_processes import VERSIONS
from support.role_cluster import RoleCluster, words
from support.seed_watch import SEED, Watch, disclosed, files_with_seeds

pytestmark = pytest.mark.playbook

ROLE = {"app": {"allow": {"pub": ["orders.{{tag(team)}}"], "sub": ["_INBOX.>"]}}}


@dataclass
class Controller:
    """A controller with a server in operator mode. `secrets`: the only directory that may contain seeds."""

    hosts: RoleCluster
    operator: Operator
    root: Path
    outputs: list[str] = field(default_factory=list)

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def seeds(self) -> set[str]:
        """Return all seeds of the test."""
        files = (path for path in self.secrets.rglob("*") if path.is_file())
        stored = {match.decode() for path in files for match in SEED.findall(path.read_bytes())}
        return stored | {self.operator.key.seed, self.operator.signing_key.seed}

    def document(self, **shop: Any) -> None:
        document = {"accounts": {"SHOP": {"signing_keys": ROLE, **shop}}}
        (self.work / "accounts.yml").write_text(yaml.safe_dump(document))

    def run(self, playbook: str, *arguments: str, fails: bool = False) -> str:
        command, environment = self.hosts.controller()
        environment |= {
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_PIPELINING": "false",
            "ANSIBLE_LOCAL_TEMP": str(self.work / "tmp"),
            "ANSIBLE_REMOTE_TEMP": str(self.work / "tmp"),
            "ANSIBLE_LOG_PATH": str(self.work / "ansible.log"),
            "ANSIBLE_CACHE_PLUGIN": "jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(self.work / "facts"),
            "ANSIBLE_SHOW_CUSTOM_STATS": "true",
            "ANSIBLE_VAULT_PASSWORD_FILE": str(self.root / "vault-password"),
            "PWD": str(self.work),
        }
        name = playbook if "/" in playbook else f"natsops.jetstream.{playbook}"
        options = ["-i", str(self.hosts.inventory()), "-vvv", "--diff", *arguments]
        found = subprocess.run(
            [*command, name, *options],
            cwd=self.work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        self.outputs.append(found.stdout)
        assert (found.returncode != 0) == fails, found.stdout[-4000:]
        return found.stdout

    def plan_and_apply(self, *arguments: str, fails: bool = False) -> str:
        document = ["-e", "nats_cluster_accounts_document=accounts.yml"]
        self.run("accounts_plan", *document)
        keys = f"nats_cluster_accounts_key_directory={self.secrets / 'keys'}"
        quick = "nats_cluster_accounts_sync_interval=0"
        return self.run("accounts_apply", *document, "-e", keys, "-e", quick, *arguments, fails=fails)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    for name in ("secrets", "work"):
        (tmp_path / name).mkdir(mode=0o700)
    operator = make_operator(tmp_path / "secrets", "APP", strict=True)
    (tmp_path / "hosts").mkdir()
    hosts = RoleCluster(tmp_path / "hosts", ["n1"], VERSIONS[-1])
    hosts.use_operator(operator, interval="1s")
    hosts.variables["nats_cluster_account_users"] = [{"account": "APP", "credentials": str(operator.creds["APP"])}]
    (tmp_path / "vault-password").write_text("password of the vault")
    try:
        hosts.playbook("deploy")
        yield Controller(hosts, operator, tmp_path)
    finally:
        hosts.kill()


def modules(controller: Controller) -> str:
    """Write a playbook that issues credentials and rotates the key of the role app, and return its path."""
    connection = {
        "servers": controller.hosts.urls,
        "credentials": str(controller.operator.creds["SYS"]),
        "key_directory": str(controller.secrets / "keys"),
        "account": "SHOP",
    }
    user = {**connection, "name": "till", "tags": ["team:berlin"]}
    rotation = {**connection, "role": "app", "signing_seed": "{{ seed }}", "sync_interval": 0}
    reissued = {**user, "role": "{{ added.new_key }}"}
    tasks: list[dict[str, Any]] = [
        {
            "natsops.jetstream.nats_user_credentials": {
                **user,
                "role": "app",
                "dest": str(controller.secrets / "a.creds"),
            }
        },
        {
            "natsops.jetstream.nats_user_credentials": {**user, "role": "app"},
            "register": "till",
            "no_log": True,
        },
        {
            "ansible.builtin.copy": {
                "content": "{{ till.credentials }}",
                "dest": str(controller.secrets / "b.creds"),
                "mode": "0600",
            },
            "no_log": True,
        },
        {"natsops.jetstream.nats_signing_key_rotation": {**rotation, "phase": "add"}, "register": "added"},
        {
            "natsops.jetstream.nats_user_credentials": {**reissued, "dest": str(controller.secrets / "a.creds")},
        },
        {
            "natsops.jetstream.nats_signing_key_rotation": {
                **rotation,
                "phase": "drop",
                "key": "{{ added['keys'] | difference([added.new_key]) | first }}",
            },
        },
        {
            "natsops.jetstream.nats_snapshot": {
                "servers": controller.hosts.urls,
                "credentials": str(controller.operator.creds["SYS"]),
                "lake": str(controller.work / "snapshots"),
            }
        },
    ]
    path = controller.work / "modules.yml"
    path.write_text(yaml.safe_dump([{"hosts": "localhost", "tasks": tasks}]))
    return str(path)


def test_no_seed_leaves_the_files_meant_for_seeds(controller: Controller) -> None:
    seed = controller.operator.signing_key.seed
    seed_file = controller.secrets / "operator-signing.nk"
    seed_file.write_text(seed)
    variables = controller.secrets / "seed.yml"
    variables.write_text(json.dumps({"nats_cluster_accounts_seed": seed, "seed": seed}))
    vault = controller.work / "vault.yml"
    vault.write_text(variables.read_text())
    program = Path(sys.executable).with_name("ansible-vault")
    environment = {**os.environ, "ANSIBLE_VAULT_PASSWORD_FILE": str(controller.root / "vault-password")}
    subprocess.run([program, "encrypt", vault], env=environment, check=True, capture_output=True)
    stranger = controller.secrets / "stranger.yml"
    stranger.write_text(json.dumps({"nats_cluster_accounts_seed": new_key(nkeys.PREFIX_BYTE_OPERATOR).seed}))

    with Watch(controller.work / "tmp").running() as watch:
        controller.document()
        controller.plan_and_apply("-e", f"nats_cluster_accounts_seed_file={seed_file}")
        controller.document(limits={"connections": 50})
        refused = controller.plan_and_apply("-e", f"@{stranger}", fails=True)
        controller.plan_and_apply("-e", f"@{vault}")
        controller.document(limits={"connections": 60})
        controller.plan_and_apply("-e", f"@{variables}")
        controller.run(modules(controller), "-e", f"@{variables}")
        controller.run("bundle", "-e", f"nats_cluster_bundle_directory={controller.work / 'bundles'}")
    assert "not a key of the servers' operator" in words(refused), refused[-3000:]
    assert sum("CUSTOM STATS" in output for output in controller.outputs) >= 4
    assert list((controller.work / "facts").iterdir())

    seeds = controller.seeds()
    assert {one[:2] for one in seeds} == {"SO", "SA", "SU"} and len(seeds) >= 9
    assert [disclosed(output.encode(), seeds) for output in controller.outputs] == [
        [] for _output in controller.outputs
    ]
    assert files_with_seeds(controller.work, seeds, ()) == []
    assert files_with_seeds(controller.root / "hosts", seeds, ()) == []
    assert {name for name, content in watch.processes.items() if disclosed(content, seeds)} == set()
    assert [path for path, content in watch.readable.items() if disclosed(content, seeds)] == []
    # Ansible writes the arguments of modules to private temporary files, so the watch must have found seeds there.
    assert watch.private > 0 and watch.samples > 100
    assert (controller.work / "ansible.log").stat().st_size > 10_000
    assert list((controller.work / "snapshots").rglob("*")) and list((controller.work / "bundles").rglob("*"))


def test_search_finds_a_seed_in_each_form(tmp_path: Path) -> None:
    seed = new_key(nkeys.PREFIX_BYTE_ACCOUNT).seed
    for text in (seed, f"a{seed}", seed[4:], seed[:-4]):
        assert disclosed(text.encode(), [seed]) == ["SA"]
    for prefix in ("", "a", "ab"):
        assert disclosed(base64.b64encode(f"{prefix}{seed}\n".encode()), [seed]) == ["SA"]
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "x").write_text(seed)
    (tmp_path / "tmp" / "x").chmod(0o644)
    with Watch(tmp_path / "tmp").running() as watch, subprocess.Popen(["sleep", "60"], env={"X": seed}) as process:
        try:
            while not (watch.processes and watch.readable):
                assert process.poll() is None
        finally:
            process.kill()
    assert f"{process.pid} environ" in watch.processes
    assert files_with_seeds(tmp_path, [seed], ()) == ["tmp/x: SA"]
    assert files_with_seeds(tmp_path, [seed], [tmp_path / "tmp"]) == []
