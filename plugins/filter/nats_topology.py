# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_topology
short_description: List the servers of a cluster and of the clusters connected to it, from the inventory
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Computes the servers from the names of their hosts and their inventory variables, even if only some of the hosts are
    in the play.
  - The variables are those of the role P(natsops.jetstream.nats_server#role). The filter applies the defaults of the
    role, because the variables of other hosts do not contain them.
  - Reading the variables of many hosts takes a while, so store the result.
    P(natsops.jetstream.nats_composed_config#filter) creates routes, gateways and leafnode remotes from the result.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, hostvars
options:
  _input:
    description: Inventory names of the cluster's hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: Ansible's C(hostvars).
    type: dict
    required: true
  host:
    description: The inventory name of this host.
    type: str
    required: true
  seen:
    description:
      - The values of this host in the play, by the names of the returned fields. A port or C(jetstream) that is not in
        this host's inventory variables comes from the play and applies to every member. It is an error if a name or an
        address differs from the value that the other hosts compute for this host.
    type: dict
    default: {}
  supercluster:
    description: Inventory names of the hosts of all clusters that share one meta group. Defaults to the hosts of the
      cluster.
    type: list
    elements: str
    default: []
  groups:
    description: Ansible's C(groups). Needed for the clusters in C(supercluster_groups) of O(seen), and for O(hub_name).
    type: dict
    default: {}
  leaving:
    description: Hosts that are leaving the supercluster.
    type: list
    elements: str
    default: []
  hub_name:
    description: The inventory group of the servers to which this host connects as a leafnode, and the name of their
      cluster, unless their variables set a different name.
    type: str
    default: ""
  client_scheme:
    description: How clients connect, V(nats) or V(tls).
    type: str
    default: nats
seealso:
  - plugin: natsops.jetstream.nats_composed_config
    plugin_type: filter
"""

EXAMPLES = r"""
- name: List the members
  ansible.builtin.debug:
    msg: "{{ (groups['nats'] | natsops.jetstream.nats_topology(hostvars, host=inventory_hostname)).servers }}"
"""

RETURN = r"""
_value:
  description:
    - C(servers), one dictionary for each server of the cluster in the order of the names; C(supercluster), in the same
      form for all clusters of the supercluster; C(clusters), each with its C(group) and its C(servers); C(hub), the
      hub's servers; and the C(client_urls) of all servers, starting with the host's own cluster.
    - The result contains no secrets.
  type: dict
  sample:
    servers: &servers
      - host: n1
        server_name: n1-c1
        cluster: C1
        address: 10.0.0.1
        route_address: 10.0.0.1
        cluster_port: 6222
        gateway_address: 10.0.0.1
        gateway_port: 7222
        leafnode_address: 10.0.0.1
        leafnode_port: 7422
        monitoring: 127.0.0.1:8222
        client_port: 4222
        jetstream: true
        domain: null
        arbiter: false
        zone: a
        unique_tag: "az:"
        pool_size: null
    supercluster: *servers
    clusters: []
    hub: []
    client_urls: ["nats://10.0.0.1:4222"]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.server_config.topology import Around, Topology, name_list, topology
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_topology(
    names: Sequence[str],
    hostvars: Any,
    host: str,
    seen: Mapping[str, Any] | None = None,
    supercluster: Sequence[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
    leaving: Sequence[str] = (),
    hub_name: str | None = None,
    client_scheme: str = "nats",
) -> Topology:
    """Return the servers; see DOCUMENTATION."""
    clusters = name_list((seen or {}).get("supercluster_groups"), "supercluster_groups")
    around = Around(
        supercluster=list(supercluster),
        groups={name: list(groups.get(name, ())) for name in clusters} if groups else {},
        leaving=name_list(leaving, "cluster_leaving"),
        hub=list((groups or {}).get(hub_name or "", ())),
        hub_name=hub_name or "",
        client_scheme=client_scheme,
    )
    return topology(name_list(names, "cluster_members"), hostvars, host, seen or {}, around)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_topology": nats_topology}
