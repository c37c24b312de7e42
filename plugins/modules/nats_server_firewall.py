# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_firewall
short_description: Restrict the ports of nats-server to listed hosts and networks
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Applies O(rules) with nftables or firewalld, both in the running kernel and for the next boot.
  - With nftables, the module uses a separate table, which filters only new connections to these ports. Other tables are
    not changed. If another table drops packets by default, that table must accept the ports as well.
  - With firewalld, the module adds one ipset and one rich rule for each port and address family to a zone, and reloads
    firewalld.
  - Nothing is changed if Ansible connects from an address that O(required_ports) would reject.
  - Runs on the managed host and needs no connection to NATS.
options:
  backend:
    description: The program that filters the connections. V(none) removes the rules of an earlier run.
    type: str
    choices: [nftables, firewalld, none]
    required: true
  rules:
    description: The filtered ports.
    type: list
    elements: dict
    default: []
    suboptions:
      listener:
        description: Name of the listener, for the comment of the rule.
        type: str
        required: true
      port:
        description: TCP port.
        type: int
        required: true
      sources:
        description: Addresses, networks, and names that the host can resolve. Connections from all other addresses are
          rejected.
        type: list
        elements: str
        required: true
  required_ports:
    description: Ports that must accept connections from the address from which Ansible is connected over SSH.
    type: list
    elements: int
    default: []
  zone:
    description: Zone of firewalld. Defaults to firewalld's default zone.
    type: str
  service:
    description: Name of the service. The table, the files and the sets are named after it.
    type: str
    default: nats-server
  record:
    description: File that records which backend contains rules of this module.
    type: path
    default: /etc/nats-server/firewall.json
attributes:
  check_mode:
    description: Can run in check mode and predicts the changes.
    support: full
  diff_mode:
    description: Shows the rules before and after the change.
    support: full
"""

EXAMPLES = r"""
- name: Let only the cluster connect to the cluster port
  natsops.jetstream.nats_server_firewall:
    backend: nftables
    rules:
      - {listener: client, port: 4222, sources: [10.0.0.0/16]}
      - {listener: cluster, port: 6222, sources: [10.0.0.1, 10.0.0.2, 10.0.0.3]}
  become: true
"""

RETURN = r"""
warnings:
  description: Other tables that drop packets by default.
  type: list
  elements: str
  returned: if there are any
"""

import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.files import Directory, FilesError, ManagedFile, diff, replace_all
from ..module_utils.host.firewall import (
    Firewalld,
    PortRule,
    current_rules,
    desired_firewalld,
    dropping_chains,
    firewalld_commands,
    nft_mark,
    nft_ruleset,
    nft_unit,
    own_set,
    port_rules,
    rejected_ports,
    table_name,
)

NFT_DIRECTORY = "/etc/nftables.d"


class FirewallError(Exception):
    """The rules cannot be set; the message contains the cause and the remedy."""


def resolve(name: str) -> list[str]:
    """Return the addresses of a name. Raises FirewallError."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        raise FirewallError(f"{name} cannot be resolved: {error}. Use its address in the inventory.") from error


def connecting_address() -> str:
    """Return the address from which Ansible is connected over SSH; empty if there is none. sudo removes the environment
    variable, but the shell that started sudo still has it."""
    pid = os.getpid()
    while pid > 1:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:
            return ""
        for entry in environment.split(b"\0"):
            if entry.startswith(b"SSH_CONNECTION="):
                return entry.partition(b"=")[2].split()[0].decode()
    return ""


class Firewall:
    """The common part of the backends: commands and files of the host."""

    def __init__(self, module: CollectionModule) -> None:
        self.module = module
        self.service: str = module.params["service"]
        self.record: str = module.params["record"]
        self.diffs: list[dict[str, Any]] = []
        self.changed = False

    def run(self, *command: str, data: str | None = None) -> str:
        """Run a command and return its output. Raises FirewallError."""
        status, out, err = self.module.run_command(list(command), data=data)
        if status:
            raise FirewallError(f"{' '.join(command[:4])} failed: {(err or out).strip()}")
        return str(out)

    def succeeds(self, *command: str) -> bool:
        """Return whether a read-only command exits with 0."""
        return int(self.module.run_command(list(command))[0]) == 0

    def program(self, name: str) -> str:
        """Return the path of a program. Raises FirewallError."""
        found = self.module.get_bin_path(name, opt_dirs=["/usr/sbin", "/sbin"])
        if not found:
            raise FirewallError(
                f"This host has no {name}. Install it, or set nats_server_firewall to the firewall that the host has."
            )
        return str(found)

    def write(self, files: list[ManagedFile]) -> list[str]:
        """Bring files to the desired state, and return the paths of those that differ. Raises FilesError."""
        differing = [file for file in files if file.differs()]
        self.diffs += diff(differing, {file.path: file.before() for file in differing})
        self.changed = self.changed or bool(differing)
        if not self.module.check_mode:
            for file in differing:
                folder = Directory(os.path.dirname(file.path), 0o755)
                if file.content is not None and folder.missing():
                    folder.make()
            replace_all(differing)
        return [file.path for file in differing]


class Nftables(Firewall):
    """The module's table in nftables."""

    @property
    def rules_file(self) -> str:
        return f"{NFT_DIRECTORY}/{self.service}.nft"

    @property
    def unit(self) -> str:
        return f"{self.service}-firewall.service"

    def apply(self, rules: list[PortRule]) -> None:
        """Load the rules, now and at each boot. Raises FirewallError and FilesError."""
        nft = self.program("nft")
        if self.succeeds("systemctl", "is-active", "--quiet", "firewalld.service"):
            raise FirewallError(
                "firewalld is running on this host and would reject the ports: set nats_server_firewall=firewalld."
            )
        ruleset = nft_ruleset(self.service, rules)
        self.run(nft, "--check", "--file", "-", data=ruleset)
        self._warn_of_others(nft, rules)
        unit_path = f"/etc/systemd/system/{self.unit}"
        written = self.write(
            [
                record_file(self.record, "nftables"),
                ManagedFile(self.rules_file, 0o644, "root", "root", ruleset.encode()),
                ManagedFile(unit_path, 0o644, "root", "root", nft_unit(self.service, self.rules_file, nft).encode()),
            ]
        )
        enabled = self.succeeds("systemctl", "is-enabled", "--quiet", self.unit)
        active = self.succeeds("systemctl", "is-active", "--quiet", self.unit)
        mark = nft_mark(self.service, rules)
        loaded = self.succeeds(nft, "list", "chain", "inet", table_name(self.service), mark)
        self.changed = self.changed or not (enabled and active and loaded)
        if self.module.check_mode or not self.changed:
            return
        if unit_path in written:
            self.run("systemctl", "daemon-reload")
        self.run("systemctl", "enable", "--quiet", self.unit)
        # A restart would remove the table for a moment.
        self.run("systemctl", "reload" if active else "start", self.unit)

    def remove(self) -> None:
        """Remove table, unit and file. Raises FirewallError and FilesError."""
        unit_path = f"/etc/systemd/system/{self.unit}"
        if os.path.exists(unit_path) and not self.module.check_mode:
            self.run("systemctl", "disable", "--now", "--quiet", self.unit)
        removed = self.write([ManagedFile(path, 0o644, content=None) for path in (unit_path, self.rules_file)])
        if removed and not self.module.check_mode:
            self.run("systemctl", "daemon-reload")

    def _warn_of_others(self, nft: str, rules: list[PortRule]) -> None:
        chains = json.loads(self.run(nft, "--json", "list", "chains"))
        ports = ", ".join(str(rule.port) for rule in rules)
        for table in dropping_chains(chains, self.service):
            self.module.warn(f"the table {table} drops packets by default: it must also accept the ports {ports}")


class FirewalldService(Firewall):
    """The module's settings in firewalld."""

    def apply(self, rules: list[PortRule]) -> None:
        """Bring firewalld's settings to these rules. Raises FirewallError."""
        program = self.program("firewall-cmd")
        if not self.succeeds(program, "--state"):
            raise FirewallError(
                "firewalld is not running on this host: start it, or set nats_server_firewall=nftables."
            )
        zone = self.module.params["zone"] or (self.run(program, "--get-default-zone").strip() if rules else "")
        desired = desired_firewalld(self.service, zone, rules)
        self.write([record_file(self.record, "firewalld")])
        self._change(program, desired)

    def remove(self) -> None:
        """Remove the module's settings. Raises FirewallError."""
        program = self.module.get_bin_path("firewall-cmd")
        if program and self.succeeds(program, "--state"):
            self._change(program, Firewalld())

    def _change(self, program: str, desired: Firewalld) -> None:
        names = self.run(program, "--permanent", "--get-ipsets").split()
        sets = {
            name: self.run(program, "--permanent", f"--ipset={name}", "--get-entries").split()
            for name in names
            if own_set(self.service, name)
        }
        rules = current_rules(self.service, self.run(program, "--permanent", "--list-all-zones"))
        current = Firewalld(sets, rules)
        commands = firewalld_commands(current, desired)
        if not commands:
            return
        self.changed = True
        self.diffs.append({"before": current.text(), "after": desired.text()})
        if not self.module.check_mode:
            for command in commands:
                self.run(program, "--permanent", *command)
            self.run(program, "--reload")


BACKENDS: dict[str, type[Nftables] | type[FirewalldService]] = {"nftables": Nftables, "firewalld": FirewalldService}


def read_record(path: str) -> str:
    """Return the backend that has rules; empty if none has. Raises FilesError."""
    try:
        return str(json.loads(Path(path).read_text(encoding="utf-8"))["backend"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FilesError(f"{path}, which names the firewall, cannot be read: {error!r}") from error


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises FirewallError, FilesError and ValueError."""
    given = module.params
    backend = given["backend"]
    before = read_record(given["record"])
    rules = port_rules(given["rules"], resolve)
    changes: list[Firewall] = []
    if backend != "none":
        require_access(rules, given["required_ports"], connecting_address())
        one = BACKENDS[backend](module)
        changes.append(one)
        one.apply(rules)
    if before in BACKENDS and before != backend:
        other = BACKENDS[before](module)
        changes.append(other)
        other.remove()
        if backend == "none":
            other.write([record_file(given["record"], "")])
    return {
        "changed": any(one.changed for one in changes),
        "diff": [entry for one in changes for entry in one.diffs],
    }


def record_file(path: str, backend: str) -> ManagedFile:
    """Return the desired file of the record."""
    return ManagedFile(
        path, 0o644, "root", "root", (json.dumps({"backend": backend}) + "\n").encode() if backend else None
    )


def require_access(rules: Iterable[PortRule], ports: Iterable[int], address: str) -> None:
    """Raise FirewallError if the controller could not connect to the server any more."""
    rejected = rejected_ports(rules, ports, address) if address else []
    if rejected:
        raise FirewallError(
            f"Ansible connects from {address}, which could no longer connect to port {', '.join(map(str, rejected))}: the"
            " checks of the cluster would fail. Nothing was changed. Add the address or its network to"
            " nats_server_firewall_allow.client."
        )


def main() -> None:
    """Run the module."""
    rule = {
        "listener": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
        "sources": {"type": "list", "elements": "str", "required": True},
    }
    module = CollectionModule(
        argument_spec={
            "backend": {"type": "str", "choices": ["nftables", "firewalld", "none"], "required": True},
            "rules": {"type": "list", "elements": "dict", "options": rule, "default": []},
            "required_ports": {"type": "list", "elements": "int", "default": []},
            "zone": {"type": "str"},
            "service": {"type": "str", "default": "nats-server"},
            "record": {"type": "path", "default": "/etc/nats-server/firewall.json"},
        },
        supports_check_mode=True,
    )
    run(module, failing_on(FirewallError, FilesError, ValueError), ensure)


if __name__ == "__main__":
    main()
