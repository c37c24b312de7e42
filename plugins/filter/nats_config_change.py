# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_config_change
short_description: Tell whether a changed configuration needs a reload or a restart
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares two structured configurations key by key, by what a reload of that server version accepts.
  - A reload is all or nothing. One key that a reload does not take makes it a restart. So does an unknown key, and so do
    the keys whose refused reload would print a secret.
positional: _input, new, version
options:
  _input:
    description: The configuration that the running process has loaded.
    type: dict
    required: true
  new:
    description: The configuration that it shall have.
    type: dict
    required: true
  version:
    description: The version of the running server.
    type: str
    required: true
  new_version:
    description: The version that shall run. Another one than O(version) needs a restart.
    type: str
"""

EXAMPLES = r"""
- name: Tell what the change needs
  ansible.builtin.debug:
    msg: "{{ {'port': 4222} | natsops.jetstream.nats_config_change({'port': 4222, 'debug': true}, '2.10.27') }}"
"""

RETURN = r"""
_value:
  description: C(action) (V(none), V(reload) or V(restart)), the C(keys) that differ, and C(reasons), which hold no values.
  type: dict
  sample: {"action": "reload", "keys": ["debug"], "reasons": ["debug is added"]}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._config_rules import config_change
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_config_change(
    old: dict[str, Any], new: dict[str, Any], version: str, new_version: str | None = None
) -> dict[str, Any]:
    """What the change needs; see DOCUMENTATION."""
    return config_change(old, new, version, new_version or None)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_config_change": nats_config_change}
