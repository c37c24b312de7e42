# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_links
short_description: Create the routes, gateways and leafnode remotes of a server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the values of C(cluster.routes), C(gateway.gateways) and C(leafnodes.remotes) from the servers listed by
    P(natsops.jetstream.nats_topology#filter). The gateways are the same for every server and include the server's own
    cluster.
  - Credentials are percent-encoded into each URL.
positional: _input
options:
  _input:
    description: The servers, as returned by P(natsops.jetstream.nats_topology#filter). No URLs are created for a
      missing key.
    type: dict
    required: true
  route_style:
    description:
      - V(all) lists every member, including this server. A server ignores a route to itself. When the meta group first
        starts, the number of routes determines how many servers it expects.
      - V(seeds) lists only O(seeds), and the servers discover each other by gossip.
      - V(none) creates no routes.
    type: str
    choices: [all, seeds, none]
    default: all
  seeds:
    description: Inventory names of members, C(host), C(host:port) or complete URLs.
    type: list
    elements: str
    default: []
  route_authorization:
    description: The C(user) and C(password) of routes.
    type: dict
  gateway_authorization:
    description: The C(user) and C(password) of gateways.
    type: dict
  remotes:
    description:
      - Leafnode remotes with nats-server's own keys, such as C(account) and C(credentials), and C(user) and
        C(password). Each remote gets the URLs of all servers of the hub, unless it has C(url) or C(urls).
    type: list
    elements: dict
    default: []
  tls:
    description: The C(tls) of remotes that do not have their own.
    type: dict
seealso:
  - plugin: natsops.jetstream.nats_topology
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Make the routes
  ansible.builtin.debug:
    msg: "{{ (topology | natsops.jetstream.nats_links).routes }}"
  vars:
    topology: "{{ groups['nats'] | natsops.jetstream.nats_topology(hostvars, host=inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The lists C(routes), C(gateways) and C(remotes), which contain secrets.
  type: dict
  sample:
    routes: ["nats-route://10.0.0.1:6222", "nats-route://[fd00::2]:6222"]
    gateways:
      - {name: east, urls: ["nats://10.0.0.1:7222", "nats://10.0.0.2:7222"]}
      - {name: west, urls: ["nats://10.1.0.1:7222"]}
    remotes:
      - {account: APP, urls: ["nats-leaf://site1:secret@10.2.0.1:7422", "nats-leaf://site1:secret@10.2.0.2:7422"]}
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.topology import (
    gateways,
    leaf_remotes,
    routes,
)
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_links(
    topology: Mapping[str, Any],
    route_style: str = "all",
    seeds: Sequence[str] | None = None,
    route_authorization: Mapping[str, Any] | None = None,
    gateway_authorization: Mapping[str, Any] | None = None,
    remotes: Sequence[Mapping[str, Any]] = (),
    tls: Mapping[str, Any] | None = None,
) -> dict[str, list[Any]]:
    """Return routes, gateways and remotes; see DOCUMENTATION."""
    servers = topology.get("servers") or []
    return {
        "routes": [] if route_style == "none" else routes(servers, route_style, list(seeds or ()), route_authorization),
        "gateways": gateways(topology.get("clusters") or [], gateway_authorization),
        "remotes": leaf_remotes(topology.get("hub") or [], remotes, tls),
    }


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_links": nats_links}
