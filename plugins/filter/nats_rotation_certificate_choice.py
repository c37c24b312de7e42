# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_certificate_choice
short_description: Tell which files a host has after a step in a change of the authority
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns which authorities a host trusts and which certificate it presents after a step.
positional: _input, states, step
options:
  _input:
    description: What P(natsops.jetstream.nats_rotation_certificates#filter) returned for the host.
    type: dict
    required: true
  states:
    description: The same of all hosts.
    type: list
    elements: dict
    required: true
  step:
    description: The step. V(keep) leaves the host where it is.
    type: str
    choices: [keep, trust, leaves, drop]
    required: true
"""

EXAMPLES = r"""
- name: Show the choice
  ansible.builtin.debug:
    msg: "{{ state | natsops.jetstream.nats_rotation_certificate_choice(states, 'trust') }}"
"""

RETURN = r"""
_value:
  description: C(bundle) is V(old), V(both) or V(new); C(leaf) is V(old) or V(new).
  type: dict
  sample: {"bundle": "both", "leaf": "old"}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._rotation import certificate_choice


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_certificate_choice": certificate_choice}
