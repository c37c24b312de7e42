# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the playbooks as a new user would: the demo, and an inventory whose group has a different name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.clean_output import clean
from support.nats_processes import ROOT, binary

pytestmark = pytest.mark.playbook

VERSION = "2.15.1"


@dataclass(frozen=True)
class Controller:
    """The controller on which Ansible runs: a prefix for each command, and the environment variables."""

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def call(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, str(Path(sys.executable).with_name(tool)), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment, timeout=600)
        clean(done.stdout + done.stderr)
        return done

    def playbook(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook of the collection."""
        return self.call("ansible-playbook", f"natsops.jetstream.{name}", *arguments)


HERE = Controller()


@pytest.fixture
def without_network() -> Iterator[tuple[str, ...]]:
    """Yield a prefix that restricts a command to the loopback network; without root privileges, the prefix is empty."""
    if os.geteuid() != 0:
        yield ()
        return
    hold = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo && exec cat"]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline()
        yield ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--")


@pytest.fixture
def empty_controller(tmp_path: Path, without_network: tuple[str, ...]) -> Controller:
    """The controller of a user whose home directory contains only the installed artifact, and who has no network."""
    artifacts = list(ROOT.glob(".cache/dist/*.tar.gz"))
    if not artifacts:
        pytest.skip("there is no artifact: make build")
    home = tmp_path / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8"}
    # This only saves time, see tests/lab/python.
    environment.update({name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ})
    controller = Controller(without_network, environment)
    done = controller.call("ansible-galaxy", "collection", "install", "--offline", str(artifacts[0]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (home / ".ansible/collections/ansible_collections/natsops/jetstream/MANIFEST.json").is_file()
    return controller


def servers_under(folder: Path) -> list[str]:
    """Return the command lines of the processes that run from a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if line.startswith(f"{folder}/"):
            found.append(line)
    return found


@contextmanager
def demo(name: str, folder: Path, controller: Controller = HERE, **variables: str) -> Iterator[str]:
    """The report of a running demo; its removal afterwards must not leave a server running."""
    where = [argument for variable, value in variables.items() for argument in ("-e", f"{variable}={value}")]
    where += ["-e", f"demo_dir={folder}/demo"]
    try:
        run = controller.playbook(name, *where, "-e", f"demo_binary={binary(VERSION)}", "-e", f"demo_version={VERSION}")
        assert run.returncode == 0, run.stdout
        yield (folder / "demo/report.txt").read_text()
    finally:
        run = controller.playbook("demo_remove", *where)
    assert run.returncode == 0, run.stdout
    assert servers_under(folder) == []


def test_the_demo_runs_from_the_artifact_alone_and_leaves_nothing(empty_controller: Controller, tmp_path: Path) -> None:
    with demo("demo", tmp_path, empty_controller) as report:
        for words in ("n3-c1", "2 of 3 make a quorum", "No problems found.", "1000 read back and equal"):
            assert words in report
        assert len(servers_under(tmp_path)) == 3
        (context,) = tmp_path.rglob("C1-sys.json")
        live = tmp_path / "live.nats_cluster.yml"
        live.write_text(f"plugin: natsops.jetstream.nats_cluster\ncontext: {context}\n")
        listed = empty_controller.call("ansible-inventory", "-i", str(live), "--list")
        assert sorted(json.loads(listed.stdout)["_meta"]["hostvars"]) == ["n1-c1", "n2-c1", "n3-c1"], listed.stderr
        inventory = ["-i", f"{tmp_path}/demo/inventory.yml"]
        diagnosis = empty_controller.playbook("diagnose", *inventory)
        assert diagnosis.returncode == 0 and "Root causes" not in diagnosis.stdout, diagnosis.stdout
        assert not empty_controller.prefix or HERE.playbook("diagnose", *inventory).returncode != 0


def test_the_supercluster_of_nats_by_example(tmp_path: Path) -> None:
    with demo("demo_supercluster", tmp_path, demo_topology="supercluster") as report:
        for words in ("2 of 3 make a quorum", "No problems found.", "n3 in west, answered in east", "hello from east"):
            assert words in report
        for cluster in ("east", "central", "west"):
            assert re.search(rf"│ {cluster} +│ +1 │ +2 │ +2 │", report)


def test_the_demo_refuses_servers_of_an_inventory(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    for hosts in ("{production: {}}", "{}"):
        inventory.write_text(f"nats: {{hosts: {hosts}, vars: {{nats_server_tls_source: ca}}}}\n")
        run = HERE.playbook("demo", "-i", str(inventory), "-e", f"demo_dir={tmp_path}/demo")
        assert run.returncode != 0
        assert "Run it without an inventory" in run.stdout
    assert not (tmp_path / "demo").exists()


def test_an_inventory_without_servers_is_refused(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    inventory.write_text("messaging: {hosts: {n1: {}}}\n")
    run = HERE.playbook("deploy", "-i", str(inventory))
    assert run.returncode != 0
    # Before 2.19, ansible-core prints the message as JSON.
    assert 'no host that matches "nats"' in run.stdout.replace('\\"', '"')
