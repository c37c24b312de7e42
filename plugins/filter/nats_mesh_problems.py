# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_mesh_problems
short_description: List the routes and gateway connections that are missing between servers
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Every pair of servers of a cluster keeps a pool of route connections and one for each pinned account. Every server of a
    supercluster keeps a gateway connection to a server of each other cluster.
  - Returns a sentence for each pair that has fewer routes, and for each server and cluster that are not connected.
positional: _input
options:
  _input:
    description: The C(servers) of M(natsops.jetstream.nats_server_info) with the endpoints C(varz), C(routez) and C(gatewayz).
    type: list
    elements: dict
    required: true
  pinned_accounts:
    description: Accounts with a route of their own (C(cluster.accounts)).
    type: list
    elements: str
    default: []
  clusters:
    description: Names of the clusters that there shall be, beside those that the servers are configured with.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read routes and gateways
  natsops.jetstream.nats_server_info:
    endpoints: [varz, routez, gatewayz]
  register: info

- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ info.servers | natsops.jetstream.nats_mesh_problems(clusters=['east', 'west']) }}"
"""

RETURN = r"""
_value:
  description: The sentences, those about routes first.
  type: list
  elements: str
  sample: ["n1-c1 has 2 of 4 routes to n2-c1", "n1-c1 has no gateway connection to west"]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.routes import gateway_problems, route_problems


def nats_mesh_problems(
    servers: list[dict[str, Any]], pinned_accounts: list[str] | None = None, clusters: list[str] | None = None
) -> list[str]:
    """Return the sentences; see DOCUMENTATION."""
    return [*route_problems(servers, pinned_accounts), *gateway_problems(servers, clusters or ())]


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_mesh_problems": nats_mesh_problems}
