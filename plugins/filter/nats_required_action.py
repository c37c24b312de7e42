# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_required_action
short_description: Determine which action makes a host run the desired configuration
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares the observed state of a host with the desired one, and returns the action that brings the host to the
    desired state.
  - The decision never depends on whether an earlier task changed a file, so the next run completes an interrupted run.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description:
      - Facts of the process, with C(running), C(instance), C(started), C(version), C(binary), C(ports),
        C(unit_changed_after_start), C(raft_silent) and C(maintenance). No action is needed for a server that is kept
        stopped for maintenance.
    type: dict
    required: true
  varz:
    description: The server's own C(/varz), or an empty dictionary if it could not be read.
    type: dict
    default: {}
  recorded:
    description: The record of the loaded configuration, with the C(instance) of the process and C(config).
    type: dict
    default: {}
  desired:
    description:
      - The desired state, with C(version), C(binary), C(config), C(digest), C(record), C(ports), C(config_differs),
        C(config_changed_at) and C(tls_changed_at).
    type: dict
    required: true
  reload_first:
    description: Whether to return C(reload_first), which contains secrets.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Decide which action this host needs
  ansible.builtin.debug:
    msg: "{{ {'running': false} | natsops.jetstream.nats_required_action(desired={'version': '2.10.27'}) }}"
"""

RETURN = r"""
_value:
  description:
    - C(required_action), with the C(action) (V(none), V(start), V(reload) or V(restart)), its C(reasons), and the configuration
      C(keys) that differ.
    - C(untouched) is whether no action is needed and, if the process is running, C(record) matches the configuration
      that it has loaded, its version is the desired one, and it listens on all C(ports).
    - C(gateway_tls_first) is whether a running server must reload TLS for its gateway before it restarts.
      C(reload_first), with O(reload_first=true), is the configuration to reload. This configuration adds only the TLS
      that the desired configuration adds to the gateway, and is empty if there is none.
  type: dict
  sample:
    required_action: {"action": "reload", "reasons": ["max_connections changed"], "keys": ["max_connections"]}
    untouched: false
    gateway_tls_first: false
"""

from typing import Any

from ..module_utils.server_config.required_action import config_to_reload_first, required_action, serves
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_required_action(
    running: dict[str, Any],
    varz: dict[str, Any] | None = None,
    recorded: dict[str, Any] | None = None,
    desired: dict[str, Any] | None = None,
    reload_first: bool = False,
) -> dict[str, Any]:
    """Return the action, and on request the configuration to reload first; see DOCUMENTATION."""
    recorded, desired = recorded or {}, desired or {}
    first = config_to_reload_first(running, recorded, desired)
    action = required_action(running, varz or {}, recorded, desired)
    return {
        "required_action": action,
        "untouched": action["action"] == "none"
        and (not running.get("running") or (recorded == desired.get("record", recorded) and serves(running, desired))),
        "gateway_tls_first": bool(first),
        **({"reload_first": first} if reload_first else {}),
    }


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_required_action": nats_required_action}
