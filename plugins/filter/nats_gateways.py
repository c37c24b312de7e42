# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_gateways
short_description: Make the gateways of a supercluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the list for C(gateway.gateways) from the inventory groups that are the clusters. It is the same for every server,
    with its own cluster in it.
positional: _input, hostvars
options:
  _input:
    description: The inventory names of the hosts of each group, by the groups' names.
    type: dict
    required: true
  hostvars:
    description: Ansible's C(hostvars).
    type: dict
    required: true
  host:
    description: The inventory name of this host.
    type: str
    required: true
  seen:
    description: As for P(natsops.jetstream.nats_members#filter).
    type: dict
    default: {}
  authorization:
    description: C(user) and C(password), which are percent-encoded into each URL.
    type: dict
"""

EXAMPLES = r"""
- name: Make the gateways of two clusters
  ansible.builtin.debug:
    msg: "{{ {'east': groups.east, 'west': groups.west} | natsops.jetstream.nats_gateways(hostvars, host=inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: One dictionary for each cluster.
  type: list
  elements: dict
  sample:
    - {name: east, urls: ["nats://10.0.0.1:7222", "nats://10.0.0.2:7222"]}
    - {name: west, urls: ["nats://10.1.0.1:7222"]}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._members import gateways
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_gateways(
    clusters: dict[str, list[str]],
    hostvars: Any,
    host: str,
    seen: dict[str, Any] | None = None,
    authorization: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The clusters; see DOCUMENTATION."""
    return gateways({group: list(hosts) for group, hosts in clusters.items()}, hostvars, host, seen or {}, authorization)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_gateways": nats_gateways}
