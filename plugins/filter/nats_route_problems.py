# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_route_problems
short_description: List the routes that are missing between servers of a cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Every pair of servers of a cluster keeps a pool of route connections and one for each pinned account.
  - Returns a sentence for each pair that has fewer.
positional: _input, pinned_accounts
options:
  _input:
    description: The C(servers) of M(natsops.jetstream.nats_server_info) with the endpoints C(varz) and C(routez).
    type: list
    elements: dict
    required: true
  pinned_accounts:
    description: Accounts with a route of their own (C(cluster.accounts)).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the routes
  natsops.jetstream.nats_server_info:
    endpoints: [varz, routez]
  register: info

- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ info.servers | natsops.jetstream.nats_route_problems }}"
"""

RETURN = r"""
_value:
  description: One sentence for each pair of servers that lacks routes.
  type: list
  elements: str
  sample: ["n1-c1 has 2 of 4 routes to n2-c1"]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._mesh import route_problems


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_route_problems": route_problems}
