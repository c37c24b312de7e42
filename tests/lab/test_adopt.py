# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters that others set up on real hosts are adopted under load without a restart, then taken over one server at a
time."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import binaries
import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.server_versions import RAFT_SILENT
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import hash_password
from support.controller import Controller, Run
from support.lab_cluster import SYSTEM_PASSWORD, TUNINGS, Cluster

HOSTS = ["n1-c1", "n2-c1", "n3-c1"]
pytestmark = pytest.mark.hosts(len(HOSTS))
USER, PASSWORD = "number", "app-pass"
SYSTEM_HASH, APP_HASH = hash_password(SYSTEM_PASSWORD, 4), hash_password(PASSWORD, 4)


class Foreign(Cluster):
    """Three hosts with a cluster that the collection did not set up. The inventory has only the hosts' connection
    variables."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.host_variables = {host: {} for host in HOSTS}
        self.variables = {**dict.fromkeys(TUNINGS, "off"), "nats_cluster_gate_span": 3}

    def put(self, host: str, path: str, content: str | bytes, mode: str = "0644") -> None:
        """Write a file on a host."""
        data = content.encode() if isinstance(content, str) else content
        folder, quoted = shlex.quote(str(Path(path).parent)), shlex.quote(path)
        command = f"mkdir -p {folder} && cat > {quoted} && chmod {mode} {quoted}"
        subprocess.run(self.controller.lab.ssh_command(host, command), input=data, check=True)

    def routes(self, scheme: str = "nats") -> list[str]:
        return [f"{scheme}://{self.controller.address(host)}:6222" for host in HOSTS]

    def wait_for_gate(self, version: str, user: str, servers: Mapping[str, str], unit: str) -> None:
        """Wait until the servers, which are given by host, form a healthy cluster; `user` belongs to the system
        account.

        A server that started raft-silent, as some versions do on a busy machine, is restarted, at most three times.
        """
        expected = f"expected_servers={','.join(servers.values())}"
        login = (f"user={user}", f"password={SYSTEM_PASSWORD}")
        restarts = 3 if RAFT_SILENT.affects(version) else 0
        while (run := self.health(*login, expected, "wait=true", "wait_timeout=60", "samples=1", "span=0")).status:
            assert restarts, run.output
            restarts -= 1
            silent = re.findall(r"replica (\S+) [^\n]*although it answers", "\n".join(run.errors))
            # If two of three servers are silent, no leader can identify them.
            for host in [host for host, server in servers.items() if server in silent] or servers:
                self.controller.ssh(host, f"systemctl restart {unit}")

    def processes(self) -> dict[str, str]:
        """Return, for each host, the process id of the server and when the process started."""
        ask = "ps -C nats-server -o pid=,lstart="
        return {host: self.controller.ssh(host, ask).stdout.strip() for host in HOSTS}

    def adopt(self, directory: Path) -> Run:
        run = self.play("adopt", extra_vars={"nats_cluster_adopt_directory": str(directory)})
        assert run.status == 0, run.output
        return run

    def use(self, directory: Path) -> None:
        """From now on, deploy with the written inventory and with the one password that could not be read."""
        group = self._variables(directory / "group_vars/nats")
        assert group["vault_nats_system_password"] == ""
        self.variables.update({**group, "vault_nats_system_password": SYSTEM_PASSWORD})
        self.host_variables = {host: self._variables(directory / "host_vars" / host) for host in HOSTS}

    def _variables(self, folder: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for file in sorted(folder.glob("*.yml")):
            found.update(yaml.safe_load(file.read_text()))
        return found


def debian(cluster: Foreign) -> str:
    """Install Debian's package, with its own unit and its configuration file edited."""
    package = binaries.nats_server("2.10.27").with_name("nats-server.deb").read_bytes()
    for number, host in enumerate(HOSTS, start=1):
        cluster.put(host, "/root/nats-server.deb", package)
        ssh = cluster.controller.ssh
        # The minimal hosts have no adduser, which the package's script calls.
        ssh(host, "useradd --system --home /nonexistent --shell /usr/sbin/nologin nats; "
            "printf '#!/bin/sh\\n' > /usr/sbin/adduser; chmod +x /usr/sbin/adduser; "
            "dpkg --force-depends -i /root/nats-server.deb && mkdir -p /srv/nats && chown nats:nats /srv/nats")  # fmt: skip
        cluster.put(
            host,
            "/etc/nats-server.conf",
            f"""\
host: 0.0.0.0
port: 4222
server_name: deb{number}
http_port: 8222
jetstream {{ store_dir: "/srv/nats", max_file: 256MB }}
accounts {{
  $SYS {{ users: [ {{ user: admin, password: "{SYSTEM_HASH}" }} ] }}
  APP {{ jetstream: enabled, users: [ {{ user: {USER}, password: "{APP_HASH}" }} ] }}
}}
cluster {{ name: DEB, port: 6222, routes: [ {", ".join(cluster.routes())} ] }}
""",
        )
        ssh(host, "systemctl restart nats-server")
    cluster.wait_for_gate(
        "2.10.27", "admin", {host: f"deb{number}" for number, host in enumerate(HOSTS, 1)}, "nats-server"
    )
    return "2.10.27"


def tarball(cluster: Foreign) -> str:
    """Install a release's binary, a unit that was written by hand, and a configuration in several files with variables.

    The second host has its environment in a file. On the third, the unit is where packages put theirs, and the server
    runs as root.
    """
    program = binaries.nats_server("2.15.1").read_bytes()
    unit = """\
[Unit]
Description=our nats
[Service]
%s
RuntimeDirectory=nats
Nice=3
ExecStartPre=/bin/true
ExecStart=/usr/local/bin/nats-server -c /opt/nats/etc/nats.conf -P /run/nats/nats.pid
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
LimitNOFILE=65536
[Install]
WantedBy=multi-user.target
"""
    for host in HOSTS:
        ssh = cluster.controller.ssh
        ssh(host, "useradd --system --user-group natsd; mkdir -p /data/js && chown natsd:natsd /data/js")
        cluster.put(host, "/usr/local/bin/nats-server", program, "0755")
        routes = "\n".join(f"  {url}" for url in cluster.routes("nats-route"))
        cluster.put(
            host,
            "/opt/nats/etc/nats.conf",
            f"""\
# {host}
server_name: $NAME
listen: "0.0.0.0:4222"
http: 127.0.0.1:8222
include ./conf.d/jetstream.conf
include ./conf.d/accounts.conf
cluster {{ name: TAR, listen: 0.0.0.0:6222, routes = [
{routes}
] }}
""",
        )
        cluster.put(
            host,
            "/opt/nats/etc/conf.d/jetstream.conf",
            "SIZE: 256MB\njetstream: {\n  store_dir: /data/js\n  max_file_store: $SIZE\n}\nserver_tags: [disk:ssd]\n",
        )
        cluster.put(
            host,
            "/opt/nats/etc/conf.d/accounts.conf",
            f"accounts {{ APP {{ jetstream: true, users: [{{user: {USER}, password: '{APP_HASH}'}}] }}\n"
            f"  OPS {{ users: [{{user: root, password: '{SYSTEM_HASH}'}}] }} }}\nsystem_account: OPS\n",
        )
        folder, settings = "/etc/systemd/system", ["User=natsd", "Group=natsd"]
        environment = [f"NAME=tar-{host}", "SITE_TOKEN=hunter-22", "GOGC=150"]
        if host == HOSTS[1]:
            cluster.put(host, "/opt/nats/etc/environment", "\n".join(environment) + "\n", "0600")
            settings.append("EnvironmentFile=/opt/nats/etc/environment")
        else:
            settings += [f"Environment={' '.join(environment[:2])}", f"Environment={environment[2]}"]
        if host == HOSTS[2]:
            folder, settings = "/usr/lib/systemd/system", settings[2:]
        cluster.put(host, f"{folder}/nats.service", unit % "\n".join(settings))
        ssh(host, "systemctl daemon-reload && systemctl enable --now nats")
    return "2.15.1"


def helm(cluster: Foreign) -> str:
    """Install a configuration as the Helm chart renders it, moved to hosts with a unit."""
    program = binaries.nats_server("2.15.1").read_bytes()
    config = {
        "accounts": {
            "$SYS": {"users": [{"password": SYSTEM_HASH, "user": "sys"}]},
            "APP": {"jetstream": True, "users": [{"password": APP_HASH, "user": USER}]},
        },
        "cluster": {"name": "nats", "no_advertise": True, "port": 6222, "routes": cluster.routes()},
        "http_port": 8222,
        "jetstream": {"max_file_store": "<< 1Gi >>", "max_memory_store": 0, "store_dir": "/data"},
        "lame_duck_duration": "30s",
        "lame_duck_grace_period": "10s",
        "pid_file": "/var/run/nats/nats.pid",
        "port": 4222,
        "server_name": "<< $SERVER_NAME >>",
    }
    text = json.dumps(config, indent=2).replace('"<< ', "").replace(' >>"', "")
    for number, host in enumerate(HOSTS):
        cluster.put(host, "/opt/natsbin/nats-server", program, "0755")
        cluster.put(host, "/etc/nats-config/nats.conf", text)
        cluster.put(host, "/etc/nats-config/env", f"SERVER_NAME=nats-{number}\n")
        cluster.put(
            host,
            "/etc/systemd/system/nats-pod.service",
            "[Service]\nEnvironmentFile=/etc/nats-config/env\nRuntimeDirectory=nats\n"
            "ExecStart=/opt/natsbin/nats-server --config /etc/nats-config/nats.conf\n[Install]\nWantedBy=multi-user.target\n",
        )
        cluster.controller.ssh(host, "systemctl daemon-reload && systemctl enable --now nats-pod")
    return "2.15.1"


def adopted(cluster: Foreign, directory: Path) -> str:
    """Adopt the cluster, use the written files from then on, and return the output."""
    shown = cluster.adopt(directory).output
    assert "The first deploy: 0 restarts, 3 reloads, 0 units, 0 binaries." in shown
    assert APP_HASH not in shown and "hunter-22" not in shown
    cluster.use(directory)
    return " ".join(shown.split())


def deployed(cluster: Foreign, **options: Any) -> None:
    """Deploy, and check that no server was restarted."""
    before = cluster.processes()
    run = cluster.deploy(**options)
    assert run.status == 0, run.output
    assert cluster.processes() == before


def taken_over(cluster: Foreign, version: str) -> None:
    """Make the role's unit and binary run each server; check that nothing changes afterwards."""
    before = cluster.processes()
    run = cluster.deploy(nats_server_take_over=True)
    assert run.status == 0, run.output
    assert "hunter-22" not in run.output
    after = cluster.processes()
    ssh = cluster.controller.ssh
    for host in HOSTS:
        assert after[host] and after[host] != before[host]
        program = ssh(host, "readlink /proc/$(pidof nats-server)/exe").stdout.strip()
        assert program == f"/opt/nats-server/{version}/bin/nats-server"
        unit = cluster.variables["nats_server_service_name"]
        path = ssh(host, f"systemctl show -P FragmentPath {unit}").stdout.strip()
        assert path == f"/etc/systemd/system/{unit}.service"
        assert "KillSignal=SIGUSR2" in ssh(host, f"cat {path}").stdout
    cluster.deploy_unchanged(nats_server_take_over=True)


# The hosts of the next test cover the differences between these units and those of the tarball.
@pytest.mark.chaos
@pytest.mark.parametrize("setup", [debian, helm], ids=["debian", "helm"])
def test_adopted_without_a_restart_and_taken_over_without_a_loss(
    controller: Controller, tmp_path: Path, setup: Callable[[Foreign], str]
) -> None:
    cluster = Foreign(controller)
    version = setup(cluster)
    with cluster.load(password=PASSWORD):
        adopted(cluster, tmp_path / "adopted")
        deployed(cluster)
        taken_over(cluster, version)


def test_a_restart_waits_for_the_take_over_and_the_unit_keeps_the_old_settings(
    controller: Controller, tmp_path: Path
) -> None:
    cluster = Foreign(controller)
    version = tarball(cluster)
    with cluster.load(password=PASSWORD):
        shown = adopted(cluster, tmp_path / "adopted")
        assert "nats.service sets ExecStartPre, which the role's unit does not have" in shown
        assert cluster.variables["nats_server_service_overrides"] == {"Service": {"Nice": "3"}}
        deployed(cluster, check=True)
        # tests/integration/test_adopt.py repeats this run.
        deployed(cluster)

        before = cluster.processes()
        refused = cluster.deploy(nats_server_max_connections=1000, nats_server_config={"max_pending": "32MB"})
        assert refused.status != 0
        assert any("but nats_server_take_over is false" in text for text in refused.errors), refused.output
        assert any("nats_server_take_over is false" in text for text in cluster.play("restart").errors)
        assert cluster.processes() == before

        taken_over(cluster, version)
        for host in HOSTS:
            seen = controller.ssh(
                host, "ps -C nats-server -o ni=; tr '\\0' '\\n' < /proc/$(pidof nats-server)/environ"
            ).stdout
            nice, *environment = seen.split()
            assert nice == "3"
            assert {"GOGC=150", "SITE_TOKEN=hunter-22"} <= set(environment)
            # By now, this is a value of the configuration.
            assert not any(one.startswith("NAME=") for one in environment)


def test_a_store_in_a_private_directory_cannot_be_adopted(controller: Controller, tmp_path: Path) -> None:
    cluster = Foreign(controller)
    debian(cluster)
    for host in HOSTS:
        controller.ssh(host, "sed -i 's,store_dir: \"/srv/nats\"; *,,; s,store_dir: \"/srv/nats\"\\, ,,' /etc/nats-server.conf "
                       "&& systemctl restart nats-server")  # fmt: skip
    run = cluster.play("adopt", extra_vars={"nats_cluster_adopt_directory": str(tmp_path / "adopted")})
    assert run.status != 0
    said = " ".join(run.errors)
    assert "n1-c1: its store would be moved: jetstream.store_dir is not set, so the streams are in /tmp" in said
    assert not (tmp_path / "adopted").exists()
