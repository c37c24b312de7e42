# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_supercluster_hosts
short_description: List the hosts of a supercluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the role P(natsops.jetstream.nats_server#role) needs this filter; its input may change in any release.
  - Returns the hosts of all clusters that share one meta group, which are those of one cluster if there is no
    supercluster.
positional: _input, groups
options:
  _input:
    description: The role's variables C(supercluster_groups), C(cluster_members) and C(cluster_leaving), without their
      prefix.
    type: dict
    required: true
  groups:
    description: Ansible's C(groups).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: List the hosts of two clusters
  ansible.builtin.debug:
    msg: "{{ {'supercluster_groups': ['east', 'west'], 'cluster_members': ['n1'], 'cluster_leaving': []}
             | natsops.jetstream.nats_supercluster_hosts(groups) }}"
"""

RETURN = r"""
_value:
  description: The hosts in the order of the groups, without those that leave.
  type: list
  elements: str
  sample: [n1, n2]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.server_config.topology import supercluster_hosts
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_supercluster_hosts(membership: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the hosts; see DOCUMENTATION."""
    return supercluster_hosts(membership, groups)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_supercluster_hosts": nats_supercluster_hosts}
