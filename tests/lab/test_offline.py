# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows docs/installation.md on minimal hosts that reach only each other: the controller installs everything from an
offline bundle, then deploys three servers and installs a program on one of them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import binaries
import lab as labs
import pytest
import rootfs
import yaml
from support.controller import Controller
from support.documents import CHECKOUT, Document

VERSION = "2.15.1"
CONTROLLER = "controller"
HOSTS = ("n1-c1", "n2-c1", "n3-c1")
NAME = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"]
BUNDLE = f"natsops-jetstream-{NAME}-offline-linux-amd64"
EXAMPLE = next(block for block in Document("README.md").blocks if block.file == "inventory.yml")
COMMANDS = [
    command.text
    for block in Document("docs/installation.md").blocks
    if block.heading == "Without a network" and block.language == "sh"
    for command in block.commands
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An offline bundle with nats-server from Debian's package."""
    package = binaries.nats_server(VERSION).with_name("nats-server.deb")
    checksum = next(sum for (name, _machine), sum in binaries.SHA256.items() if name.startswith(f"{VERSION}-"))
    folder = tmp_path_factory.mktemp("offline")
    (artifact,) = CHECKOUT.glob(".cache/dist/*.tar.gz")
    command = [str(CHECKOUT / ".cache/venv-release/bin/python"), str(CHECKOUT / "tools/offline/build.py"), str(folder)]
    subprocess.run([*command, str(artifact), f"--server={VERSION}={package}@{checksum}"], check=True)
    return folder / f"{BUNDLE}.tar.gz"


class Login:
    """A shell of the user on the controller's host, in which environment variables and the directory persist."""

    def __init__(self, lab: labs.Lab) -> None:
        ssh = lab.ssh_command(CONTROLLER)
        self._ssh = [*ssh[:-1], "-l", rootfs.USER, ssh[-1]]
        self._state = "touch .state; . ./.state; set -e"
        self._keep = '{ export -p; printf "cd %s\\n" "$PWD"; } > ~/.state'

    def type(self, text: str) -> str:
        """Run the text; return its output. Fails if any command fails."""
        script = f"{self._state}\n{text}\n{self._keep}\n"
        done = subprocess.run(
            [*self._ssh, f"bash -c {shlex.quote(script)} 2>&1"], capture_output=True, text=True, check=False
        )
        print(text, done.stdout, done.stderr, sep="\n")
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def put(self, source: Path, name: str) -> None:
        """Copy a file to the user's home directory."""
        with source.open("rb") as content:
            subprocess.run([*self._ssh, f"umask 077; cat > {name}"], stdin=content, check=True)


def test_bare_host_deploys_three_others_from_the_bundle(
    offline_controller: Controller, bundle: Path, tmp_path: Path
) -> None:
    lab, login = offline_controller.lab, Login(offline_controller.lab)
    example = iter(re.findall(r"ansible_host: ([\d.]+)", EXAMPLE.text))
    addresses = {next(example): offline_controller.address(host) for host in HOSTS}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(re.sub(r"(?<=ansible_host: )[\d.]+", lambda found: addresses[found[0]], EXAMPLE.text))
    (tmp_path / "sudo").write_text(rootfs.PASSWORD)
    login.type("mkdir -p .ssh")
    key, known = (lab.inventory.with_name(name) for name in ("id_ed25519", "known_hosts"))
    files = {key: ".ssh/id_ed25519", known: ".ssh/known_hosts", tmp_path / "sudo": "sudo"}
    for source, name in {**files, bundle: bundle.name, inventory: "inventory.yml"}.items():
        login.put(source, name)
    login.type("export ANSIBLE_BECOME_PASSWORD_FILE=~/sudo LC_ALL=C.UTF-8")
    assert any("install.sh" in text for text in COMMANDS)
    deployed = [login.type(text) for text in COMMANDS][-1]
    assert re.search(r"changed=[1-9]", deployed)
    again = login.type("ansible-playbook natsops.jetstream.deploy -i inventory.yml")
    assert set(re.findall(r"changed=(\d+)", again)) == {"0"}, again
    assert VERSION in login.type("ansible-playbook natsops.jetstream.report -i inventory.yml")

    # Python packages reach a host that has neither a package index nor ensurepip.
    program = "-e nats_insights_exporter_host=n2-c1"
    login.type(f"ansible-playbook natsops.jetstream.exporter -i inventory.yml {program}")
    assert offline_controller.ssh("n2-c1", "python3 -c 'import ensurepip'", check=False).returncode
    assert offline_controller.ssh("n2-c1", "systemctl is-active nats-exporter").stdout.strip() == "active"
    assert "changed=0" in login.type(f"ansible-playbook natsops.jetstream.exporter -i inventory.yml {program}")

    # A bundle that was damaged on the way is refused before anything is installed.
    login.type(f"echo '# damaged' >> {BUNDLE}/controller.txt")
    with pytest.raises(AssertionError, match=r"controller\.txt: FAILED(.|\n)*damaged or missing"):
        login.type(f"{BUNDLE}/install.sh ~/other")
    login.type("test ! -e ~/other")
