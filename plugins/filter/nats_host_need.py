# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_host_need
short_description: Tell what a host needs to run the wanted configuration
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares what was observed on a host with what is wanted and returns what has to happen.
  - The decision never rests on whether an earlier task changed a file, so that an interrupted run is finished by the next.
positional: _input
options:
  _input:
    description: Facts of the process, with C(running), C(instance), C(started), C(binary) and C(unit_changed_after_start).
    type: dict
    required: true
  varz:
    description: The server's own C(/varz), or an empty dictionary when it could not be read.
    type: dict
    default: {}
  recorded:
    description: The record of what the process loaded, with the C(instance) of that process and C(config).
    type: dict
    default: {}
  wanted:
    description: >-
      What is wanted, with C(version), C(binary), C(config), C(digest), C(config_differs), C(config_changed_at) and
      C(tls_changed_at).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Decide what this host needs
  ansible.builtin.debug:
    msg: "{{ {'running': false} | natsops.jetstream.nats_host_need(wanted={'version': '2.10.27'}) }}"
"""

RETURN = r"""
_value:
  description: The action (C(none), C(start), C(reload) or C(restart)), its reasons, and the configuration keys that differ.
  type: dict
  sample: {"action": "reload", "reasons": ["max_connections changed"], "keys": ["max_connections"]}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._need import host_need


def nats_host_need(
    running: dict[str, Any],
    varz: dict[str, Any] | None = None,
    recorded: dict[str, Any] | None = None,
    wanted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Filter form of :func:`host_need`."""
    return host_need(running, varz or {}, recorded or {}, wanted or {})


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_host_need": nats_host_need}
