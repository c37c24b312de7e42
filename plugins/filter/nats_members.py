# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_members
short_description: List the servers of a cluster as the inventory intends them
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns a cluster's servers from the names of its hosts and their inventory variables, whichever hosts are in the play.
  - The variables are those of the role P(natsops.jetstream.nats_server#role). Its defaults, which other hosts' variables do
    not show, are known here.
positional: _input, hostvars
options:
  _input:
    description: Inventory names of the hosts.
    type: list
    elements: str
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
    description: >-
      What this host sees for itself, by the names of the returned fields. A port or C(jetstream) that is not in this
      host's inventory variables comes from the play and holds for every member. A name or an address that the other
      hosts would see otherwise is an error.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: List the members
  ansible.builtin.debug:
    msg: "{{ groups['nats'] | natsops.jetstream.nats_members(hostvars, host=inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: One dictionary for each server, in the order of the names.
  type: list
  elements: dict
  sample:
    - host: n1
      server_name: n1-c1
      address: 10.0.0.1
      route_address: 10.0.0.1
      cluster_port: 6222
      client_port: 4222
      jetstream: true
      zone: a
      unique_tag: "az:"
      pool_size: null
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._members import members
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_members(
    names: list[str], hostvars: Any, host: str, seen: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The cluster's servers; see DOCUMENTATION."""
    return members(list(names), hostvars, host, seen or {})


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_members": nats_members}
