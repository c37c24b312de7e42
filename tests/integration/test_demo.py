# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks as a new user meets them: the demo, and an inventory that names its group otherwise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nats_processes import binary

VERSION = "2.10.27"


def playbook(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook of the collection."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), f"natsops.jetstream.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=600)


def servers_under(folder: Path) -> list[str]:
    """Command lines of the processes that run from a folder."""
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
def demo(name: str, folder: Path, **variables: str) -> Iterator[str]:
    """The report of a demo that runs; afterwards its removal must leave no server."""
    where = [argument for variable, value in variables.items() for argument in ("-e", f"{variable}={value}")]
    where += ["-e", f"demo_dir={folder}/demo"]
    try:
        run = playbook(name, *where, "-e", f"demo_binary={binary(VERSION)}", "-e", f"demo_version={VERSION}")
        assert run.returncode == 0, run.stdout
        yield (folder / "demo/report.txt").read_text()
    finally:
        run = playbook("demo_remove", *where)
    assert run.returncode == 0, run.stdout
    assert servers_under(folder) == []


def test_the_demo_runs_and_leaves_nothing(tmp_path: Path) -> None:
    with demo("demo", tmp_path) as report:
        for words in ("n3-c1", "2 of 3 make a quorum", "No problems found.", "1000 read back and equal"):
            assert words in report
        assert len(servers_under(tmp_path)) == 3


def test_the_supercluster_of_nats_by_example(tmp_path: Path) -> None:
    with demo("demo_supercluster", tmp_path, demo_topology="supercluster") as report:
        for words in ("2 of 3 make a quorum", "No problems found.", "n3 in west, answered in east", "hello from east"):
            assert words in report
        for cluster in ("east", "central", "west"):
            assert re.search(rf"│ {cluster} +│ +1 │ +2 │ +2 │", report)


def test_an_inventory_without_servers_is_refused(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    inventory.write_text("messaging: {hosts: {n1: {}}}\n")
    run = playbook("deploy", "-i", str(inventory))
    assert run.returncode != 0
    assert 'no host that matches "nats"' in run.stdout
