# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule playbooks with a program that takes the name of Docker or Podman and records its command lines. No container
starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.nats_processes import collections_path

BIN = Path(sys.executable).parent
ENGINE = """\
#!/bin/sh
printf '%s\\n' "$*" >> "$ENGINE_LOG"
[ "$1" != exec ] || echo degraded
"""


class Scenario:
    """A scenario whose hosts are containers of the stand-in."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.log = folder / "log"
        self.inventory = folder / "ephemeral/natsops/inventory.yml"
        self.inventory.parent.parent.mkdir()
        engine = folder / "bin" / driver
        engine.parent.mkdir()
        engine.write_text(ENGINE)
        engine.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{engine.parent}:{os.environ['PATH']}",
            "ENGINE_LOG": str(self.log),
            "MOLECULE_EPHEMERAL_DIRECTORY": str(self.inventory.parent.parent),
            "MOLECULE_SCENARIO_NAME": "default",
            "MOLECULE_NATS_DRIVER": driver,
            "MOLECULE_NATS_INSTALL_METHOD": "release",
            "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def play(self, name: str, *options: str) -> list[str]:
        """Run a playbook; return the engine's command lines."""
        self.log.write_text("")
        self.run("ansible-playbook", f"natsops.jetstream.molecule.{name}", *options)
        return self.log.read_text().splitlines()


@pytest.mark.parametrize(
    ("driver", "connection", "option"),
    [
        ("docker", "community.docker.docker", "--privileged --cgroupns=host --volume=/sys/fs/cgroup:/sys/fs/cgroup:rw"),
        ("podman", "containers.podman.podman", "--systemd=always"),
    ],
)
def test_engine_builds_the_image_and_runs_a_container_for_each_host(
    tmp_path: Path, driver: str, connection: str, option: str
) -> None:
    scenario = Scenario(tmp_path, driver)
    built, *started = scenario.play("create", "-e", '{"molecule_hosts": ["n1", "n2"]}')
    image = "natsops-molecule-systemd:debian-12"
    verb, _tag, tag, context = built.split()
    assert (verb, tag) == ("build", image)
    containerfile = (Path(context) / "Containerfile").read_text()
    assert 'CMD ["/lib/systemd/systemd"]' in containerfile
    network = "--network host --tmpfs /run --tmpfs /tmp"
    assert started == [
        *(
            f"run --detach --name molecule-default-{name} --hostname {name} {network} {option} {image}"
            for name in ("n1", "n2")
        ),
        *(f"exec molecule-default-{name} systemctl is-system-running --wait" for name in ("n1", "n2")),
    ]
    listed: dict[str, Any] = json.loads(
        scenario.run("ansible-inventory", f"--inventory={scenario.inventory}", "--list")
    )
    hosts = listed["_meta"]["hostvars"]
    assert {name: values["ansible_host"] for name, values in hosts.items()} == {
        "n1": "molecule-default-n1",
        "n2": "molecule-default-n2",
    }
    assert {values["ansible_connection"] for values in hosts.values()} == {connection}
    ports = [values[f"nats_server_{name}"] for values in hosts.values() for name in ("port", "cluster_port", "http")]
    assert len(set(ports)) == 6
    assert not any(name.startswith("nats_server_become") for name in hosts["n1"])
    assert scenario.play("destroy", "-e", '{"molecule_hosts": ["n1", "n2"]}') == [
        "rm --force molecule-default-n1",
        "rm --force molecule-default-n2",
    ]
    assert not scenario.inventory.exists()


def test_unknown_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="molecule_driver is process, lab, docker or podman, not vagrant"):
        Scenario(tmp_path, "vagrant").play("create")
