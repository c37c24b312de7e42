# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_listeners
short_description: List the listeners of a server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns every listener of a structured nats-server configuration with an address to which the host itself can
    connect.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The configuration, with nats-server's own keys.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the listeners
  ansible.builtin.debug:
    msg: "{{ {'port': 4222, 'http': '0.0.0.0:8222'} | natsops.jetstream.nats_listeners }}"
"""

RETURN = r"""
_value:
  description: The listeners, each with C(name), C(host) and C(port).
  type: list
  elements: dict
  sample: [{"name": "client", "host": "127.0.0.1", "port": 4222}]
"""

from typing import Any

from ..module_utils.server_config.listeners import listeners
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_listeners(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the listeners; see DOCUMENTATION."""
    return listeners(config)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_listeners": nats_listeners}
