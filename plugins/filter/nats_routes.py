# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_routes
short_description: Make the route URLs of a cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the URLs for C(cluster.routes) from the list that P(natsops.jetstream.nats_members#filter) returns.
positional: _input
options:
  _input:
    description: The members.
    type: list
    elements: dict
    required: true
  style:
    description:
      - V(all) lists every member, this server included. A server ignores a route to itself, and the number of routes tells
        the meta group how many servers to expect at its first start.
      - V(seeds) lists only O(seeds), and the servers learn of each other by gossip.
    type: str
    choices: [all, seeds]
    default: all
  seeds:
    description: Inventory names of members, C(host), C(host:port) or whole URLs.
    type: list
    elements: str
    default: []
  authorization:
    description: C(user) and C(password), which are percent-encoded into each URL.
    type: dict
"""

EXAMPLES = r"""
- name: Make the routes
  ansible.builtin.debug:
    msg: "{{ members | natsops.jetstream.nats_routes(style='all') }}"
"""

RETURN = r"""
_value:
  description: The URLs.
  type: list
  elements: str
  sample: ["nats-route://10.0.0.1:6222", "nats-route://[fd00::2]:6222"]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._members import routes
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_routes(
    members: list[dict[str, Any]],
    style: str = "all",
    seeds: list[str] | None = None,
    authorization: dict[str, Any] | None = None,
) -> list[str]:
    """The URLs; see DOCUMENTATION."""
    return routes(members, style, seeds, authorization)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_routes": nats_routes}
