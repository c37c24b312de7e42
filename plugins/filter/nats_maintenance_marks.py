# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_maintenance_marks
short_description: Return the marks of all hosts in maintenance
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Reads the marks of the hosts in the play from their facts, and the marks of the others from the lock. Only the role
    C(natsops.jetstream.nats_cluster) needs this filter; its input may change in any release.
positional: _input, hostvars
options:
  _input:
    description: All hosts of the play.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, C(hostvars) in templates.
    type: dict
    required: true
  locks:
    description: The results of M(natsops.jetstream.nats_host_lock) on all hosts, each with its C(item).
    type: list
    elements: dict
    default: []
  returning:
    description: Names of the servers that come back in this run. Their marks are omitted.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the servers in maintenance
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts_all | natsops.jetstream.nats_maintenance_marks(hostvars) | map(attribute='server') }}"
"""

RETURN = r"""
_value:
  description: The marks.
  type: list
  elements: dict
  sample: [{server: n2, by: alice, since: 1764500000, until: null, reason: disk, held: false}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.roll.roll_hosts import maintenance_marks
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_maintenance_marks(
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    locks: Sequence[Mapping[str, Any]] = (),
    returning: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the marks; see DOCUMENTATION."""
    return maintenance_marks({host: hostvars[host].get("nats_server_state") or {} for host in hosts}, locks, returning)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_maintenance_marks": nats_maintenance_marks}
