# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_lock_share
short_description: Return the hosts of a cluster that a host of the play locks
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - The lock of a cluster requires more than half of its hosts, even if the play contains only some of them. Each host of
    the play locks itself and an equal share of the hosts outside the play.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, host, play_hosts, active
options:
  _input:
    description: The hosts of the cluster.
    type: list
    elements: str
    required: true
  host:
    description: The host that locks its share.
    type: str
    required: true
  play_hosts:
    description: All hosts of the play.
    type: list
    elements: str
    required: true
  active:
    description: The hosts of the play that have not failed. The others take no share.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Lock this host and its share of the others
  natsops.jetstream.nats_host_lock:
    path: /etc/nats-server/operation.lock
    purpose: restart
  delegate_to: "{{ item }}"
  loop: >-
    {{ ['n1', 'n2', 'n3'] | natsops.jetstream.nats_lock_share(inventory_hostname, ansible_play_hosts_all,
                                                              ansible_play_batch) }}
"""

RETURN = r"""
_value:
  description: The hosts, beginning with O(host).
  type: list
  elements: str
  sample: [n1, n3]
"""

from collections.abc import Sequence
from typing import Any

from ..module_utils.roll.lock_rules import lock_share
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_lock_share(members: Sequence[str], host: str, play_hosts: Sequence[str], active: Sequence[str]) -> list[str]:
    """Return the hosts; see DOCUMENTATION."""
    return lock_share(host, list(members), list(play_hosts), list(active))


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_lock_share": nats_lock_share}
