# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_monitor_url
short_description: Return the base URL of a server's monitoring endpoint
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the URL under which the host itself reaches the monitoring endpoint, or an empty string when it is off.
positional: _input
options:
  _input:
    description: The configuration, with nats-server's own keys.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the URL
  ansible.builtin.debug:
    msg: "{{ {'http': '0.0.0.0:8222'} | natsops.jetstream.nats_monitor_url }}"
"""

RETURN = r"""
_value:
  description: The URL without a trailing slash.
  type: str
  sample: http://127.0.0.1:8222
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._listeners import monitor_url


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_monitor_url": monitor_url}
