# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_certificate_steps
short_description: Tell which steps are left in a change of the authority
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Takes the states of all hosts and returns the steps that are left.
positional: _input
options:
  _input:
    description: What P(natsops.jetstream.nats_rotation_certificates#filter) returned for each host.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the steps
  ansible.builtin.debug:
    msg: "{{ states | natsops.jetstream.nats_rotation_certificate_steps }}"
"""

RETURN = r"""
_value:
  description: V(trust), V(leaves) and V(drop), or those of them that are left.
  type: list
  elements: str
  sample: [leaves, drop]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._rotation import certificate_steps


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_certificate_steps": certificate_steps}
