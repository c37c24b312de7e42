# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_membership_problems
short_description: Compare the hosts of a run, the inventory and the live cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Finds a run that would start a new cluster in parts, and an inventory that lists fewer servers than the cluster has.
positional: _input
options:
  _input:
    description: >-
      C(cluster) (name), C(hosts) of the run, C(members) of the inventory, C(running), C(live) servers and C(live_error).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what does not fit
  ansible.builtin.debug:
    msg: >-
      {{ {'cluster': 'C1', 'hosts': ['n1'], 'members': [{'host': 'n1', 'server_name': 'n1'}], 'running': false, 'live': []}
         | natsops.jetstream.nats_membership_problems }}
"""

RETURN = r"""
_value:
  description: Problems with C(severity), C(option) and C(message).
  type: list
  elements: dict
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._membership import membership_problems


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_membership_problems": membership_problems}
