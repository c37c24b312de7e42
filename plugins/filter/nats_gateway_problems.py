# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_gateway_problems
short_description: List the gateway connections that are missing between clusters
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Every server of a supercluster keeps a gateway connection to a server of each other cluster.
  - Returns a sentence for each that is missing.
positional: _input, clusters
options:
  _input:
    description: The C(servers) of M(natsops.jetstream.nats_server_info) with the endpoints C(varz) and C(gatewayz).
    type: list
    elements: dict
    required: true
  clusters:
    description: Names of the clusters that there shall be, beside those that the servers are configured with.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the gateways
  natsops.jetstream.nats_server_info:
    endpoints: [varz, gatewayz]
  register: info

- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ info.servers | natsops.jetstream.nats_gateway_problems(['east', 'west']) }}"
"""

RETURN = r"""
_value:
  description: One sentence for each server and cluster that are not connected.
  type: list
  elements: str
  sample: ["n1 has no gateway connection to west"]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._mesh import gateway_problems


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_gateway_problems": gateway_problems}
