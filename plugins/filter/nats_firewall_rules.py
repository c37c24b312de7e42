# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_firewall_rules
short_description: List which hosts may connect to the ports of a server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the O(natsops.jetstream.nats_server_firewall#module:rules) for a structured nats-server configuration and
    the servers listed by P(natsops.jetstream.nats_topology#filter).
  - Listeners on loopback addresses need no rule.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The configuration, with nats-server's own keys.
    type: dict
    required: true
  topology:
    description: The servers, as returned by P(natsops.jetstream.nats_topology#filter).
    type: dict
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
  host:
    description: Inventory name of the host.
    type: str
    required: true
  groups:
    description: The inventory groups of the host. Hosts whose hub is one of these groups may connect as leafnodes.
    type: list
    elements: str
    default: []
  leaving:
    description: Hosts that are leaving the cluster.
    type: list
    elements: str
    default: []
  allow:
    description: Further sources that may connect, by listener.
    type: dict
    default: {}
  ports:
    description: Sources that may connect to ports of other programs, by port.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show who may connect
  ansible.builtin.debug:
    msg: >-
      {{ {'cluster': {'port': 6222}} | natsops.jetstream.nats_firewall_rules(topology=topology, hostvars=hostvars,
         host=inventory_hostname) }}
"""

RETURN = r"""
_value:
  description: One rule for each port, with C(listener), C(port) and C(sources).
  type: list
  elements: dict
  sample: [{"listener": "cluster", "port": 6222, "sources": ["10.0.0.1", "10.0.0.2"]}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.server_config.firewall import Rule, firewall_rules, related_servers
from ..module_utils.server_config.topology import Topology, name_list
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_firewall_rules(
    config: Mapping[str, Any],
    topology: Topology,
    hostvars: Any,
    host: str,
    groups: Sequence[str] = (),
    leaving: Sequence[str] = (),
    allow: Mapping[str, Sequence[str]] | None = None,
    ports: Mapping[Any, Sequence[str]] | None = None,
) -> list[Rule]:
    """Return the rules; see DOCUMENTATION."""
    own = [server["host"] for server in topology["supercluster"]]
    left, leaves = related_servers(hostvars, host, name_list(leaving, "cluster_leaving"), groups, own)
    return firewall_rules(config, topology, left, leaves, allow, ports)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_firewall_rules": nats_firewall_rules}
