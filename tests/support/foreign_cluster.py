# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster on loopback that was set up by hand, for the playbook adopt."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import find_server
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import hash_password
from support.credentials import make_certificates
from support.nats_processes import binary, free_ports
from support.role_cluster import APP_PASSWORD, APP_USER, SYSTEM_PASSWORD, TUNINGS, RoleCluster, words

NAMES = ("f1", "f2", "f3")


class Foreign(RoleCluster):
    """Three servers that were started by hand, each with its own binary and files. The inventory contains only the
    hosts' connection variables until `adopted` adds the files that the playbook adopt wrote."""

    #: All servers that were started by hand.
    names: tuple[str, ...] = NAMES
    monitoring = "http"
    trust: ssl.SSLContext | None = None

    def __init__(self, root: Path, version: str) -> None:
        super().__init__(root, [], version)
        self.version = version
        self.adopted: list[str] = []
        # Ports of clients, routes, monitoring, gateways and leafnodes.
        self.ports = {name: free_ports(5) for name in self.names}
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

    def files(self, name: str) -> dict[str, str]:
        """Return the files of a server: its configuration, which includes another file and uses variables of the file
        and the environment."""
        client, route, monitor, *_others = self.ports[name]
        routes = ", ".join(f"nats://hand:made@127.0.0.1:{self.ports[other][1]}" for other in NAMES)
        main = f"""\
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
        return {"nats.conf": main, "parts/accounts.conf": self.accounts()}

    @staticmethod
    def accounts(more: str = "") -> str:
        """Return the accounts, with password hashes only."""
        return f"""\
accounts: {{
  $SYS: {{ users: [ {{ user: boss, password: "{hash_password(SYSTEM_PASSWORD, 4)}" }} ] }}
  APP: {{ jetstream: enabled, users: [ {{ user: {APP_USER}, password: "{hash_password(APP_PASSWORD, 4)}" }} ] }}
  {more}
}}
"""

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment variables that a server's configuration uses."""
        return {"WHO": f"hand-{name}"}

    def start(self, name: str, *flags: str) -> None:
        """Start a server; write its files unless they exist."""
        folder = self.root / name
        if not (folder / "conf").exists():
            for path, text in self.files(name).items():
                (folder / "conf" / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / "conf" / path).write_text(text)
        (folder / "bin").mkdir(exist_ok=True)
        program = folder / "bin" / "nats-server"
        shutil.copy(binary(self.version), program)
        with (folder / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [program, "-c", "conf/nats.conf", *flags],
                cwd=folder,
                env={**os.environ, **self.environment(name)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextlib.contextmanager
    def by_hand(self) -> Iterator[Self]:
        """Start all servers, and kill them at the end."""
        try:
            for name in self.names:
                self.start(name)
            for name in NAMES:
                self.healthy(name)
            yield self
        finally:
            self.kill()
            for process in self.processes.values():
                process.wait()

    def healthy(self, name: str) -> None:
        """Wait until the server reports that it is healthy."""
        deadline = time.monotonic() + 60
        # Immediately after the start, /proc does not show the command line yet.
        while time.monotonic() < deadline and self.processes[name].poll() is None:
            with contextlib.suppress(OSError):
                self.monitored(name, "healthz")
                return
            time.sleep(0.2)
        raise AssertionError((self.root / name / "log").read_text())

    def monitored(self, name: str, endpoint: str) -> Any:
        """Return the reply of a monitoring endpoint. Raises OSError if there is none."""
        url = f"{self.monitoring}://127.0.0.1:{self.ports[name][2]}/{endpoint}"
        with urllib.request.urlopen(url, timeout=5, context=self.trust) as reply:
            return json.load(reply)

    def url(self, name: str) -> str:
        return f"nats://127.0.0.1:{self.ports[name][0]}"

    def pid(self, name: str) -> int:
        found = find_server(str(self.root / name / "conf/nats.conf"))
        return found.pid if found else 0

    def kill(self, *names: str) -> None:
        for name in names or self.names:
            if pid := self.pid(name):
                os.kill(pid, signal.SIGKILL)

    def controller(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super().controller()
        return [*command, *self.adopted], environment

    def adopt(self, **extra: Any) -> str:
        """Adopt the cluster, use the written files from then on, and return the report."""
        directory = self.root / "adopted"
        shown = self.playbook("adopt", nats_cluster_adopt_directory=str(directory), **extra).output
        vault = directory / "group_vars/nats/vault.yml"
        secrets = yaml.safe_load(vault.read_text())
        assert secrets["vault_nats_system_password"] == ""
        vault.write_text(yaml.safe_dump({**secrets, "vault_nats_system_password": SYSTEM_PASSWORD}))
        self.adopted = ["-i", str(directory / "inventory.yml")]
        return words(shown)


#: Secrets that the files of linked servers contain in clear text or take from the environment.
LINK_SECRETS = {
    "route": "ro-ute:1",
    "gateway": "gate way%2",
    "bridge": "bri:dge@3",
    "edge": "ed/ge?4",
    "store": "store-key-of-32-characters-ab5",
}
_ROUTE, _GATEWAY, _BRIDGE, _EDGE = (quote(LINK_SECRETS[of], safe="") for of in ("route", "gateway", "bridge", "edge"))


class Linked(Foreign):
    """A foreign cluster with mutual TLS everywhere, a gateway to the cluster FAR, a leafnode remote to a hub, and an
    edge server that is connected to the first server as a leafnode. The inventory does not contain these neighbours.
    The stores are encrypted."""

    names = (*NAMES, "far", "hub", "edge")
    monitoring = "https"

    def __init__(self, root: Path, version: str) -> None:
        super().__init__(root, version)
        made = make_certificates(root)
        self.tls = f'tls {{ cert_file: "{made.cert}", key_file: "{made.key}", ca_file: "{made.ca}", verify: true, timeout: 3 }}\n'
        self.trust = ssl.create_default_context(cafile=str(made.ca))
        self.trust.load_cert_chain(made.cert, made.key)
        self.variables |= {
            "nats_server_api_tls_ca_file": str(made.ca),
            "nats_server_api_tls_cert_file": str(made.cert),
            "nats_server_api_tls_key_file": str(made.key),
        }

    def url(self, name: str) -> str:
        return super().url(name).replace("nats:", "tls:")

    def environment(self, name: str) -> dict[str, str]:
        return {**super().environment(name), "STORE_KEY": LINK_SECRETS["store"]}

    def files(self, name: str) -> dict[str, str]:
        main = getattr(self, f"_{name}", self._member)
        return {**main(name), "parts/tls.conf": self.tls}

    def _member(self, name: str) -> dict[str, str]:
        client, route, monitor, gateway, leaf = self.ports[name]
        routes = ", ".join(f"nats-route://hand:{_ROUTE}@127.0.0.1:{self.ports[other][1]}" for other in NAMES)
        gateways = ", ".join(f'"nats://gw:{_GATEWAY}@127.0.0.1:{self.ports[other][3]}"' for other in NAMES)
        main = f"""\
MONITOR = {monitor}
EDGE_PASSWORD = "{LINK_SECRETS["edge"]}"
server_name: $WHO
listen: 127.0.0.1:{client}
https_port: $MONITOR
include ./parts/tls.conf
jetstream {{ store_dir: {self.root / name / "data"}, max_file: 256MB, max_mem 64mb, cipher: aes, key: $STORE_KEY }}
include ./parts/accounts.conf
system_account: "$SYS"
cluster {{
  name: HAND
  listen = 127.0.0.1:{route}
  include ./parts/tls.conf
  authorization {{ user: hand, password: "{LINK_SECRETS["route"]}", timeout: 2 }}
  routes = [ {routes} ]
  compression: s2_fast
}}
gateway {{ include ./parts/gateway.conf }}
leafnodes {{
  host: 127.0.0.1
  port: {leaf}
  include ./parts/tls.conf
  authorization {{ user: edge, password: $EDGE_PASSWORD, account: EDGE }}
  remotes [
    {{
      url: "tls://bridge:{_BRIDGE}@127.0.0.1:{self.ports["hub"][4]}"
      account: BRIDGE
      deny_exports: ["private.>"]
      include ./parts/tls.conf
    }}
  ]
}}
write_deadline: "8s"
"""
        to_others = f"""\
name: HAND
listen: 127.0.0.1:{gateway}
include ./tls.conf
authorization {{ user: gw, password: "{LINK_SECRETS["gateway"]}", timeout: 2 }}
gateways: [
  {{ name: HAND, urls: [ {gateways} ] }}
  {{ name: FAR, url: "nats://gw:{_GATEWAY}@127.0.0.1:{self.ports["far"][3]}" }}
]
"""
        accounts = self.accounts("BRIDGE: { }\n  EDGE: { }")
        return {
            "nats.conf": main,
            "parts/accounts.conf": accounts,
            "parts/gateway.conf": to_others,
        }

    def _far(self, name: str) -> dict[str, str]:
        gateways = ", ".join(f'"nats://gw:{_GATEWAY}@127.0.0.1:{self.ports[other][3]}"' for other in NAMES)
        main = f"""\
server_name: far
listen: 127.0.0.1:{self.ports[name][0]}
gateway {{
  name: FAR
  listen: 127.0.0.1:{self.ports[name][3]}
  include ./parts/tls.conf
  authorization {{ user: gw, password: "{LINK_SECRETS["gateway"]}" }}
  gateways [ {{ name: HAND, urls: [ {gateways} ] }} ]
}}
"""
        return {"nats.conf": main}

    def _hub(self, name: str) -> dict[str, str]:
        main = f"""\
server_name: hub
listen: 127.0.0.1:{self.ports[name][0]}
accounts: {{ LEAVES: {{ }} }}
leafnodes {{
  listen: 127.0.0.1:{self.ports[name][4]}
  include ./parts/tls.conf
  authorization {{ user: bridge, password: "{LINK_SECRETS["bridge"]}", account: LEAVES }}
}}
"""
        return {"nats.conf": main}

    def _edge(self, name: str) -> dict[str, str]:
        main = f"""\
server_name: edge
listen: 127.0.0.1:{self.ports[name][0]}
leafnodes {{
  remotes [ {{ url: "tls://edge:{_EDGE}@127.0.0.1:{self.ports["f1"][4]}", include ./parts/tls.conf }} ]
}}
"""
        return {"nats.conf": main}

    def links(self) -> dict[str, list[Any]]:
        """Return the gateway and leafnode connections of each server, with the number and start time of each."""
        found = {}
        for name in NAMES:
            gateways = self.monitored(name, "gatewayz")
            inbound = [one for several in gateways["inbound_gateways"].values() for one in several]
            made = [one["connection"] for one in (*gateways["outbound_gateways"].values(), *inbound)]
            leaves = self.monitored(name, "leafz")["leafs"] or []
            routes = self.monitored(name, "routez")["routes"]
            found[name] = sorted(
                [("gateway", one["cid"], one["start"]) for one in made]
                + [("leaf", one.get("id", one["port"]), one["account"]) for one in leaves]
                + [("route", one["rid"], one["start"]) for one in routes]
            )
        return found
