# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_cluster
short_description: Inventory of the servers of a live NATS cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Lists the servers of a running cluster or supercluster. Needs a user of the system account.
  - The name of the inventory file must end in C(nats_cluster.yml) or C(nats_cluster.yaml).
  - Every server is a host of the group C(nats_servers). Further groups are C(nats_cluster_<name>),
    C(nats_version_<version>), C(nats_tag_<tag>), C(nats_domain_<domain>), C(nats_jetstream), C(nats_core) (servers
    without JetStream), C(nats_meta_leader), and C(nats_unhealthy). Characters that are not allowed in a group name
    become underscores.
  - Members of the meta group and O(expected_servers) that do not respond are also hosts, in the groups
    C(nats_unhealthy) and C(nats_missing). A server without JetStream that does not respond is found only if it is
    listed in O(expected_servers).
  - Host variables are C(ansible_host), C(nats_name), C(nats_id), C(nats_cluster), C(nats_domain), C(nats_version),
    C(nats_tags), C(nats_host) (where the server listens), C(nats_answers), C(nats_jetstream), C(nats_meta_leader),
    C(nats_healthy) and C(nats_health_errors). Neither these variables nor the cache contain the credentials of the
    connection.
  - The plugin refuses two servers with the same name, and a server with the name of a group or of this machine
    (V(localhost)). If a server has the same name as a host from another inventory source, it overrides that host's
    C(ansible_host), so do not combine this inventory with hosts that are not NATS servers.
  - If the cluster cannot be reached, Ansible treats the inventory file as unparsed and continues without its hosts,
    unless E(ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED) is set.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - constructed
  - inventory_cache
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [natsops.jetstream.nats_cluster]
  expected_servers:
    description: Names of the expected servers. Servers that do not respond are hosts of the group C(nats_missing).
    type: list
    elements: str
    default: []
  host_map:
    description:
      - The C(ansible_host) of each server, by the name of the server.
      - Defaults to the address on which the server listens. If the server listens on all addresses, the default is the
        address at which the other servers of its cluster reach it, if any.
    type: dict
    default: {}
"""

EXAMPLES = r"""
# fmt: code
# c1.nats_cluster.yml, with the password from the environment (NATS_PASSWORD)
plugin: natsops.jetstream.nats_cluster
servers: [nats://n1.example.com:4222]
user: sys

---
# The connection from a context of the nats command, the answer cached for five minutes, and custom groups
plugin: natsops.jetstream.nats_cluster
context: c1-sys
expected_servers: [n1-c1, n2-c1, n3-c1]
host_map:
  n1-c1: 10.0.0.11
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /var/cache/ansible
cache_timeout: 300
groups:
  old: nats_version is version('2.11', '<')
keyed_groups:
  - key: nats_tags | select('match', 'az:') | map('regex_replace', '^az:', '') | list
    prefix: zone
compose:
  ansible_user: "'root'"
"""

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.module_utils.basic import missing_required_lib
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

from ..module_utils.module import CONNECTION_SPEC, resolve_connection
from ..module_utils.nats.client import Client, MissingLibrary, NatsFailure
from ..module_utils.nats.model import Cluster, Server
from ..module_utils.nats.system_api import SystemApi

#: Listen addresses that stand for all addresses of a host.
_EVERY_ADDRESS = ("", "0.0.0.0", "::", "0")


def read_hosts(client: Client, expected: Iterable[str]) -> list[dict[str, Any]]:
    """Return the servers, including those that do not respond, as plain data without secrets."""
    api = SystemApi(client)
    expected = frozenset(expected)
    cluster = api.read_cluster(awaited=expected, known_names=expected, assets=False)
    routez = api.ask(cluster.servers, "ROUTEZ")
    seen: dict[str, str] = {}
    for answer in routez.values():
        if not isinstance(answer, NatsFailure):
            for route in answer.get("routes") or ():
                seen.setdefault(route.get("remote_name", ""), route.get("ip", ""))
    hosts = [describe(server, cluster, seen.get(server.name, "")) for server in cluster.servers]
    members = set(cluster.meta.group.members) if cluster.meta else set()
    hosts += [
        {"name": name, "answers": False, "healthy": False} for name in sorted((members | expected) - cluster.names)
    ]
    return hosts


def describe(server: Server, cluster: Cluster, seen: str) -> dict[str, Any]:
    """Return a server that responded; `seen`: the address that the other servers of its cluster have for it."""
    group = cluster.meta.group if cluster.meta else None
    behind = [
        peer
        for peer in (group.peers if group else ())
        if peer.name == server.name and (peer.offline or not peer.current)
    ]
    errors = list(server.health.errors) if server.health else ["the server did not report its health"]
    if behind:
        errors.append("not current in the meta group")
    address = seen if server.host in _EVERY_ADDRESS else server.host
    return {
        "name": server.name,
        "id": server.id,
        "cluster": server.cluster,
        "domain": server.domain,
        "version": server.version,
        "tags": list(server.tags),
        "host": server.host,
        "address": address,
        "answers": True,
        "jetstream": server.jetstream,
        "meta_leader": group is not None and group.leader == server.name,
        "healthy": bool(server.health and server.health.ok and not behind),
        "health_errors": errors,
    }


def host_groups(host: Mapping[str, Any]) -> list[str]:
    """Return the names of a host's groups, before unsafe characters are replaced."""
    found = ["nats_servers"]
    if not host["healthy"]:
        found.append("nats_unhealthy")
    if not host["answers"]:
        return [*found, "nats_missing"]
    found.append("nats_jetstream" if host["jetstream"] else "nats_core")
    if host["meta_leader"]:
        found.append("nats_meta_leader")
    named = [("cluster", host["cluster"]), ("version", host["version"]), ("domain", host["domain"])]
    return found + [f"nats_{kind}_{name}" for kind, name in [*named, *(("tag", tag) for tag in host["tags"])] if name]


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved, because it means this machine or resembles a command-line option."""
    return name.lower() in ("localhost", "all", "ungrouped", "::1") or name.startswith(("127.", "-"))


def name_problem(hosts: Iterable[Mapping[str, Any]], groups: Collection[str]) -> str | None:
    """Return why the names of the servers cannot be used as host names; None if they can. A server with the name of
    another host would receive the tasks and passwords of that host."""
    addresses: dict[str, list[str]] = {}
    for host in hosts:
        addresses.setdefault(host["name"], []).append(host.get("address") or "no address")
    for name, reported in addresses.items():
        if is_reserved(name) or name in groups:
            return (
                f"a server is named {name!r}, which Ansible interprets differently: tasks for that host or group would "
                "run on the address that the server reports. Rename the server, or check for an intruder"
            )
        if len(reported) > 1:
            return (
                f"{len(reported)} servers are named {name!r} ({', '.join(reported)}): tasks for that host could run on "
                "any of them. Give each server a unique name, or check for an intruder"
            )
    return None


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """The inventory plugin; see DOCUMENTATION."""

    NAME = "natsops.jetstream.nats_cluster"

    def verify_file(self, path: str) -> bool:
        """Return whether the file name selects this plugin."""
        return super().verify_file(path) and path.endswith(("nats_cluster.yml", "nats_cluster.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory. Raises AnsibleParserError if the cluster cannot be queried, or if a server's name cannot
        be used as a host name."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        key = self.get_cache_key(path)
        use_cache = self.get_option("cache")
        hosts = self._cached(key) if use_cache and cache else None
        if hosts is None:
            hosts = self._ask(path)
            if use_cache:
                self._cache[key] = hosts
        groups = {self._sanitize_group_name(group) for host in hosts for group in host_groups(host)}
        problem = name_problem(hosts, {*inventory.groups, *groups})
        if problem:
            raise AnsibleParserError(f"{path}: {problem}")
        for host in hosts:
            self._add(host)

    def _cached(self, key: str) -> list[dict[str, Any]] | None:
        try:
            return list(self._cache[key])
        except KeyError:
            return None

    def _ask(self, path: str) -> list[dict[str, Any]]:
        params = {name: self._option(name) for name in CONNECTION_SPEC}
        try:
            with Client(resolve_connection(params, os.environ)) as client:
                return read_hosts(client, self._option("expected_servers"))
        except MissingLibrary as missing:
            raise AnsibleParserError(f"{path}: {missing_required_lib(missing.library)}") from missing
        except NatsFailure as failure:
            raise AnsibleParserError(f"{path}: the cluster cannot be queried: {failure.description}") from failure

    def _option(self, name: str) -> Any:
        return self.templar.template(self.get_option(name))

    def _add(self, host: Mapping[str, Any]) -> None:
        name = host["name"]
        self.inventory.add_host(name)
        for group in host_groups(host):
            self.inventory.add_child(self.inventory.add_group(self._sanitize_group_name(group)), name)
        values = {f"nats_{key}": value for key, value in host.items() if key != "address"}
        address = self.get_option("host_map").get(name) or host.get("address")
        if address:
            values["ansible_host"] = address
        # Values from servers are never treated as templates.
        for key, value in values.items():
            self.inventory.set_variable(name, key, wrap_var(value))
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), values, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), values, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), values, name, strict=strict)
