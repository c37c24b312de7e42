# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule playbooks with the driver lab: the role deploys the host that they create. `make test-matrix` runs the
complete scenario on each Debian release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import lab as labs

BIN = Path(sys.executable).parent
SERVER = {
    "nats_server_clustered": False,
    "nats_server_jetstream_store_dir": "/nats/storage",
    "nats_server_system_password": "sys-pass",
    "nats_server_bcrypt_cost": 4,
}


def test_created_host_is_deployed_and_destroyed(lab: labs.Lab, tmp_path: Path) -> None:
    name = f"{lab.name}-m"
    inventory = tmp_path / "natsops/inventory.yml"
    variables = {"molecule_driver": "lab", "molecule_lab": name, "molecule_hosts": ["n1-c1@bookworm"], **SERVER}
    environment = {
        **os.environ,
        "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path),
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
    }

    def play(playbook: str) -> str:
        command = [str(BIN / "ansible-playbook"), f"natsops.jetstream.{playbook}", f"--inventory={inventory}"]
        done = subprocess.run(
            [*command, "-e", json.dumps(variables)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        play("molecule.create")
        assert "unreachable=0" in play("deploy")
        created = labs.get(name)
        state = created.ssh("n1-c1", "systemctl is-active nats-server; nats-server --version").stdout
        assert state.split()[0] == "active" and "v2.15.1" in state
        play("molecule.destroy")
        assert name not in labs.labs() and not inventory.exists()
    finally:
        labs.down(name)
