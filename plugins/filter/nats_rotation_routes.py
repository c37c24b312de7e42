# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_routes
short_description: Plan the change of the credentials of routes
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares C(cluster.authorization) and the credentials in C(cluster.routes) that a server has loaded with those of the
    inventory, and returns the configurations of the steps in between. The result holds secrets.
positional: _input, loaded
options:
  _input:
    description: The structured configuration of the inventory.
    type: dict
    required: true
  loaded:
    description: The structured configuration that the server has loaded.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Plan
  ansible.builtin.set_fact:
    plan: "{{ settled | natsops.jetstream.nats_rotation_routes(loaded) }}"
  no_log: true
"""

RETURN = r"""
_value:
  description:
    - C(credentials) (V(same), V(open) or V(other)), C(urls) (V(same) or V(other)), C(unknown_routes), and the configurations
      C(open), C(urls_new) and C(close).
  type: dict
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._conf import normalise
from ansible_collections.natsops.jetstream.plugins.module_utils._rotation import route_plan
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_rotation_routes(wanted: dict[str, Any], loaded: dict[str, Any]) -> dict[str, Any]:
    """The plan of one server; see DOCUMENTATION."""
    return route_plan(normalise(loaded), normalise(wanted))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_routes": nats_rotation_routes}
