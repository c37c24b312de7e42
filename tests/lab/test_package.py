# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs the binary from Debian's own package, on a single server without a cluster. The hosts have no access to the
outside, so each host gets its own repository with the two packages."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import binaries
import pytest
from support.controller import Controller

HOST = "n1-c1"


def repository(folder: Path, *versions: str) -> None:
    """Create a flat apt repository of nats-server packages."""
    entries = []
    for version in versions:
        package = binaries.nats_server(version).with_name("nats-server.deb")
        (folder / f"{version}.deb").write_bytes(package.read_bytes())
        control = subprocess.run(
            ["dpkg-deb", "--field", str(package)], capture_output=True, text=True, check=True
        ).stdout
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        entries.append(f"{control}Filename: ./{version}.deb\nSize: {package.stat().st_size}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(entries))


@pytest.mark.hosts(1)
def test_the_package_brings_the_binary_and_starts_nothing(controller: Controller, tmp_path: Path) -> None:
    files = tmp_path / "repo"
    files.mkdir()
    repository(files, "2.9.10", "2.10.27")
    play = tmp_path / "repository.yml"
    play.write_text(
        json.dumps(
            [
                {
                    "hosts": "nats",
                    "gather_facts": False,
                    "become": True,
                    "tasks": [
                        # Like many container images, the slim root file system has no such directory.
                        {
                            "ansible.builtin.file": {
                                "path": "/var/lib/apt/lists/partial",
                                "state": "directory",
                                "mode": "0755",
                            }
                        },
                        {"ansible.builtin.copy": {"src": f"{files}/", "dest": "/srv/repo/", "mode": "0644"}},
                        {
                            "ansible.builtin.copy": {
                                "content": "deb [trusted=yes] file:/srv/repo ./\n",
                                "mode": "0644",
                                "dest": "/etc/apt/sources.list",
                            }
                        },
                    ],
                }
            ]
        )
    )
    run = controller.playbook(play, hosts=[HOST])
    assert run.status == 0, run.output
    variables: dict[str, Any] = {
        "nats_server_install_method": "package",
        "nats_server_package_version": "2.9.10*",
        "nats_server_service_name": "jetstream",
        "nats_server_version": "2.9.10",
        "nats_server_jetstream_store_dir": "/nats/storage",
        "nats_server_system_password": "system",
        "nats_server_bcrypt_cost": 4,
    }
    run = controller.playbook("deploy", hosts=[HOST], group_vars=variables)
    assert run.status == 0, run.output
    assert controller.playbook("deploy", hosts=[HOST], group_vars=variables).changed == []
    # If the package's script had started a unit, it would be in the journal, even if it had been stopped again.
    units = controller.ssh(
        HOST, 'journalctl -o json --no-pager | grep -o \'"UNIT":"[a-z-]*.service"\' | sort -u'
    ).stdout
    assert "jetstream.service" in units
    assert "nats-server.service" not in units
    assert controller.ssh(HOST, "systemctl is-enabled nats-server", check=False).stdout.strip() == "disabled"

    # Only the change to nats_server_version was checked.
    variables["nats_server_package_version"] = "2.10.27*"
    other = {"nats_server_version": "2.15.1", "nats_server_allow_skipped_minors": True}
    run = controller.playbook("deploy", hosts=[HOST], group_vars={**variables, **other})
    assert run.status and "is nats-server 2.10.27, but nats_server_version" in run.output
    variables["nats_server_version"] = "2.10.27"
    run = controller.playbook("deploy", hosts=[HOST], group_vars=variables)
    assert run.status == 0, run.output
    versions = controller.ssh(
        HOST, "ls /opt/nats-server; readlink /proc/$(systemctl show -P MainPID jetstream)/exe"
    ).stdout
    assert versions.split() == ["2.10.27", "2.9.10", "/opt/nats-server/2.10.27/bin/nats-server"]
