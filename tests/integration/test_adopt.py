# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters that somebody else set up, on real servers: adopted under load without a restart, then taken over one by one. By the
playbook adopt, and so by nats_server_discovery_info and nats_adoption."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import find_server
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import hash_password
from support.nats_processes import binary, free_ports
from support.role_cluster import APP_PASSWORD, APP_USER, SYSTEM_PASSWORD, TUNINGS, RoleCluster, load, words

pytestmark = pytest.mark.playbook
NAMES = ["f1", "f2", "f3"]


class Foreign(RoleCluster):
    """Three servers that were started by hand, each with a binary and files of its own. The inventory knows only how to reach the
    hosts; `adopted` adds what the playbook adopt wrote."""

    def __init__(self, root: Path, version: str) -> None:
        super().__init__(root, [], version)
        self.version = version
        self.adopted: list[str] = []
        self.ports = {name: free_ports(3) for name in NAMES}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.variables = {
            "ansible_connection": "local",
            "ansible_host": "127.0.0.1",
            "ansible_python_interpreter": sys.executable,
            "nats_server_become": False,
            "nats_server_service_backend": "process",
            "nats_cluster_gate_span": 2,
            **{f"nats_server_tuning_{part}": "off" for part in TUNINGS},
        }
        for name in NAMES:
            folder = root / name
            self.hosts[name] = {
                "nats_cluster_adopt_config": str(folder / "conf" / "nats.conf"),
                "nats_server_config_dir": str(folder / "etc"),
                "nats_server_install_dir": str(folder / "opt"),
                "nats_server_binary_link": str(folder / "nats-server"),
                "nats_server_run_dir": str(folder / "run"),
            }

    def write(self, name: str) -> None:
        """Write the files of a server: one that includes another, with variables of the file and of the environment."""
        conf = self.root / name / "conf"
        (conf / "parts").mkdir(parents=True)
        client, route, monitor = self.ports[name]
        routes = ", ".join(f"nats://hand:made@127.0.0.1:{self.ports[other][1]}" for other in NAMES)
        (conf / "nats.conf").write_text(
            f"""\
# made by hand
MONITOR = {monitor}
server_name: $WHO
listen: 127.0.0.1:{client}
http_port: $MONITOR
jetstream {{ store_dir: {self.root / name / "data"}, max_file: 256MB; max_mem 64mb }}
include ./parts/accounts.conf
cluster {{
  name: HAND
  listen = 127.0.0.1:{route}
  authorization {{ user: hand, password: made, timeout: 2 }}
  routes = [ {routes} ]
}}
server_tags: [ "ssd", "rack:{name}" ]
max_subscriptions: 100k
write_deadline: "8s"
"""
        )
        (conf / "parts" / "accounts.conf").write_text(
            f"""\
accounts: {{
  $SYS: {{ users: [ {{ user: boss, password: "{hash_password(SYSTEM_PASSWORD, 4)}" }} ] }}
  APP: {{ jetstream: enabled, users: [ {{ user: {APP_USER}, password: "{hash_password(APP_PASSWORD, 4)}" }} ] }}
}}
"""
        )

    def start(self, name: str, *flags: str) -> None:
        folder = self.root / name
        (folder / "bin").mkdir(exist_ok=True)
        program = folder / "bin" / "nats-server"
        shutil.copy(binary(self.version), program)
        with (folder / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [program, "-c", "conf/nats.conf", *flags],
                cwd=folder,
                env={**os.environ, "WHO": f"hand-{name}"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextlib.contextmanager
    def by_hand(self) -> Iterator[Foreign]:
        try:
            for name in NAMES:
                self.write(name)
                self.start(name)
            for name in NAMES:
                self.healthy(name)
            yield self
        finally:
            self.kill()
            for process in self.processes.values():
                process.wait()

    def healthy(self, name: str) -> None:
        """Wait until the server says so."""
        deadline = time.monotonic() + 60
        # Right after its start /proc has no command line of it yet.
        while time.monotonic() < deadline and self.processes[name].poll() is None:
            url = f"http://127.0.0.1:{self.ports[name][2]}/healthz"
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
                return
            time.sleep(0.2)
        raise AssertionError((self.root / name / "log").read_text())

    def url(self, name: str) -> str:
        return f"nats://127.0.0.1:{self.ports[name][0]}"

    def pid(self, name: str) -> int:
        found = find_server(str(self.root / name / "conf/nats.conf"))
        return found.pid if found else 0

    def kill(self, *names: str) -> None:
        for name in names or NAMES:
            if pid := self.pid(name):
                os.kill(pid, signal.SIGKILL)

    def controller(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super().controller()
        return [*command, *self.adopted], environment

    def adopt(self, **extra: Any) -> str:
        """Adopt the cluster and use what was written from then on; return what was shown."""
        directory = self.root / "adopted"
        shown = self.playbook("adopt", nats_cluster_adopt_directory=str(directory), **extra).output
        vault = directory / "group_vars/nats/vault.yml"
        secrets = yaml.safe_load(vault.read_text())
        assert secrets["vault_nats_system_password"] == ""
        vault.write_text(yaml.safe_dump({**secrets, "vault_nats_system_password": SYSTEM_PASSWORD}))
        self.adopted = ["-i", str(directory / "inventory.yml")]
        return words(shown)


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.15.1"])
def test_adopted_without_a_restart_and_taken_over_without_a_loss(tmp_path: Path, version: str) -> None:
    cluster = Foreign(tmp_path, version)
    with cluster.by_hand(), load(cluster, streams={"LOAD3": 3}):
        pids = cluster.pids()
        shown = cluster.adopt()
        assert "The first deploy: 0 restarts, 3 reloads, 0 units, 0 binaries." in shown
        assert "made@" not in shown and SYSTEM_PASSWORD not in shown
        originals = {name: (tmp_path / name / "conf/nats.conf").read_text() for name in NAMES}

        predicted = cluster.playbook("deploy", "--check", "--diff").output
        assert "hand:made" not in predicted and "$2b$" not in predicted
        assert cluster.pids() == pids
        assert len(re.findall(r'"reload"', predicted)) == 3, predicted

        cluster.playbook("deploy")
        assert cluster.pids() == pids
        for name in NAMES:
            assert (tmp_path / name / "conf/nats.conf.before_adoption").read_text() == originals[name]
        cluster.deploy_changes_nothing()

        cluster.playbook("deploy", nats_server_take_over=True)
        taken = cluster.pids()
        assert all(taken.values()) and not set(taken.values()) & set(pids.values())
        for name in NAMES:
            program = os.readlink(f"/proc/{taken[name]}/exe")
            assert program == str(tmp_path / name / "opt" / version / "nats-server")
        output = cluster.playbook("deploy", nats_server_take_over=True).output
        assert set(re.findall(r"changed=(\d+)", output)) == {"0"}, output
        assert cluster.pids() == taken


def test_adopted_twice_changes_nothing_and_spares_what_was_edited(tmp_path: Path) -> None:
    cluster = Foreign(tmp_path, "2.15.1")
    with cluster.by_hand():
        cluster.adopt()
        cluster.adopted = []
        refused = words(
            cluster.playbook("adopt", fails=True, nats_cluster_adopt_directory=str(tmp_path / "adopted")).output
        )
        assert "vault.yml would be overwritten: nothing was written" in refused
        cluster.playbook("adopt", nats_cluster_adopt_directory=str(tmp_path / "adopted"), nats_cluster_adopt_force=True)
        again = cluster.playbook("adopt", nats_cluster_adopt_directory=str(tmp_path / "adopted")).output
        assert set(re.findall(r"changed=(\d+)", again)) == {"0"}


def test_what_cannot_be_adopted_says_why_and_nothing_is_written(tmp_path: Path) -> None:
    cluster = Foreign(tmp_path, "2.15.1")
    with cluster.by_hand():
        (tmp_path / "f1/conf/parts/accounts.conf").write_text("max_connections: 7\n")
        cluster.kill("f2")
        cluster.processes["f2"].wait()
        cluster.start("f2", "--connect_retries", "3")
        cluster.healthy("f2")
        del cluster.hosts["f3"]
        said = words(
            cluster.playbook("adopt", fails=True, nats_cluster_adopt_directory=str(tmp_path / "adopted")).output
        )
        assert "f1: " in said and "say something else than what the process has loaded" in said
        assert "f2: it runs with -connect_retries, which a configuration file has to say instead" in said
        assert "the cluster has servers that are not in the inventory: hand-f3" in said
        assert not (tmp_path / "adopted").exists()
