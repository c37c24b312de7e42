# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows docs/getting-started.md to the letter, as a new user would: its files and commands, in order, in an empty
home directory."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import binaries
import pytest
from support.controller import Controller
from support.documents import CHECKOUT, Document, Terminal

STEPS = [block for block in Document("docs/getting-started.md").blocks if block.heading[0].isdigit()]
HOSTS = ("n1-c1", "n2-c1", "n3-c1")


def put_release(folder: Path) -> None:
    """Put a copy of GitHub's download into the folder: an archive with the binary in a subfolder."""
    name = "nats-server-v2.15.1-linux-amd64"
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        binary = binaries.nats_server("2.15.1").read_bytes()
        info = tarfile.TarInfo(f"{name}/nats-server")
        info.size, info.mode = len(binary), 0o755
        archive.addfile(info, io.BytesIO(binary))


# The first run of the README (test_readme.py) deploys the same cluster with the same playbooks.
@pytest.mark.chaos
@pytest.mark.hosts(len(HOSTS))
def test_the_guide_leads_from_the_checkout_to_a_message_on_a_healthy_cluster(
    controller: Controller, home: Path, tmp_path: Path
) -> None:
    lab = controller.lab
    example = re.findall(r"ansible_host: ([\d.]+)", "".join(step.text for step in STEPS))
    assert len(example) == len(HOSTS)
    addresses = dict(zip(example, (controller.address(host) for host in HOSTS), strict=True))
    checkout = tmp_path / "checkout"
    if (settings := Path("~/.config/pip").expanduser()).is_dir():
        shutil.copytree(settings, home / ".config/pip")
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(".cache", ".git", ".demo", "__pycache__"))
    ssh = {**controller.login(tmp_path), "ANSIBLE_PIPELINING": "true"}
    terminal = Terminal(home, checkout, ssh)
    printed: dict[str, str] = {}
    for step in STEPS:
        if step.file:
            text = re.sub(r"(?<=ansible_host: )[\d.]+", lambda found: addresses[found[0]], step.text)
            (terminal.folder / step.file).write_text(text)
            if step.file.endswith("install.yml"):
                put_release(terminal.folder)
            continue
        assert step.language == "sh", step.where
        # The hosts' network cannot reach the package index, which only the preparation of the controller needs.
        inside = [] if step.heading.startswith("1.") else lab.inside([])
        for command in step.commands:
            printed[command.where] = terminal.type(command.text, inside)
            print(command.text, printed[command.where], sep="\n")
    report, diagnosis, _stream, hello = list(printed.values())[-4:]
    assert all(host in report for host in HOSTS)
    assert "read hello" in hello
    assert not re.search(r"vault_nats|\b[0-9a-f]{32}\b", "".join(printed.values()))
    again = terminal.type("ansible-playbook natsops.jetstream.deploy -i inventory.yml", lab.inside([]))
    assert set(re.findall(r"changed=(\d+)", again)) == {"0"}, again

    # The modes are those that docs/security.md lists for the files of such a cluster.
    told = dict(re.findall(r"^\| `(/etc/[^`]+)` \| 0(\d+) \|", Document("docs/security.md").text, re.MULTILINE))
    found = controller.ssh("n1-c1", f"stat -c '%n %a' {' '.join(told)}", check=False).stdout.split()
    modes = dict(zip(found[::2], found[1::2], strict=True))
    assert len(modes) >= 3 and modes.items() <= told.items()
    assert {path.stat().st_mode & 0o777 for path in (home / ".config/nats/context").iterdir()} == {0o600}

    context = json.loads((home / ".config/nats/context/C1-sys.json").read_text())
    health = controller.module(
        "nats_cluster_health",
        {
            "servers": context["url"].split(","),
            "user": context["user"],
            "password": context["password"],
            "expected_servers": list(HOSTS),
            "wait": False,
        },
    )
    assert health.status == 0, health.output
    assert "ok" in diagnosis.lower()
