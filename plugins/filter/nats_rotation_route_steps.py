# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_route_steps
short_description: Tell which steps are left in a change of the credentials of routes
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Takes the plans of all servers and returns the steps that are left.
positional: _input
options:
  _input:
    description: What P(natsops.jetstream.nats_rotation_routes#filter) returned for each server of the cluster.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the steps
  ansible.builtin.debug:
    msg: "{{ plans | natsops.jetstream.nats_rotation_route_steps }}"
"""

RETURN = r"""
_value:
  description: V(open), V(urls) and V(close), or those of them that are left.
  type: list
  elements: str
  sample: [open, urls, close]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._rotation import route_steps


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_route_steps": route_steps}
