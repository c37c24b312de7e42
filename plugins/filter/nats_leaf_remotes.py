# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_leaf_remotes
short_description: Make the remotes of a leafnode
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the list for C(leafnodes.remotes), in which each remote has the URLs of all servers of the hub.
positional: _input, hub, tls
options:
  _input:
    description: >-
      Remotes with nats-server's own keys, such as C(account) and C(credentials), and C(user) and C(password), which are
      percent-encoded into each URL. One with C(url) or C(urls) keeps them.
    type: list
    elements: dict
    required: true
  hub:
    description: The servers of the hub, as P(natsops.jetstream.nats_members#filter) returns them.
    type: list
    elements: dict
    required: true
  tls:
    description: C(tls) of remotes that do not say otherwise.
    type: dict
"""

EXAMPLES = r"""
- name: Make the remotes of a site
  ansible.builtin.debug:
    msg: "{{ [{'account': 'APP', 'user': 'site1', 'password': 'secret'}] | natsops.jetstream.nats_leaf_remotes(hub) }}"
  vars:
    hub: "{{ groups.nats | natsops.jetstream.nats_members(hostvars, host=inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: One dictionary for each remote.
  type: list
  elements: dict
  sample:
    - {account: APP, urls: ["nats-leaf://site1:secret@10.0.0.1:7422", "nats-leaf://site1:secret@10.0.0.2:7422"]}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._members import leaf_remotes
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_leaf_remotes(
    remotes: list[dict[str, Any]], hub: list[dict[str, Any]], tls: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The remotes; see DOCUMENTATION."""
    return leaf_remotes(hub, remotes, tls)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_leaf_remotes": nats_leaf_remotes}
