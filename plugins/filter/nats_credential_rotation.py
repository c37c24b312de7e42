# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_credential_rotation
short_description: Plan the rotation of users and route credentials
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares the users and route credentials that the servers of a cluster have loaded with those of the inventory, and
    returns the steps from one to the other, the configuration of each server after each step, and every reason not to begin.
  - A server knows one password for each name, so a password is replaced without a refused login by a second user of the same
    account. The result holds secrets.
positional: _input
extends_documentation_fragment:
  - natsops.jetstream.rotation
options:
  _input:
    description:
      - The servers by host name. Each has C(running), C(loaded) (the structured configuration that the process has loaded,
        empty when that is not known), C(wanted) (that of the inventory, with hashed passwords), C(given) (the same with the
        passwords as they were given) and C(restart_pending) (the service definition is newer than the process).
    type: dict
    required: true
  phase:
    description: Whether to add new users, remove old ones, or both.
    type: str
    choices: [auto, add, remove]
    default: auto
  window:
    description: How long both users are accepted within one run, such as V(15m).
    type: str
    default: ""
  remove_users:
    description: Names of users to remove although the inventory still has them.
    type: list
    elements: str
    default: []
  disconnect_clients:
    description: Whether clients with old credentials may be disconnected.
    type: bool
    default: false
  routes:
    description: How route credentials are changed, as the variable C(nats_cluster_rotate_routes) of the role says.
    type: str
    choices: [guarded, open, at_once]
    default: guarded
  explicit_routes:
    description: Whether each server has a URL for every other one, so that no route comes from gossip.
    type: bool
    default: true
requirements:
  - libpass, or passlib, or bcrypt on the controller
"""

EXAMPLES = r"""
- name: Plan the rotation
  ansible.builtin.set_fact:
    plan: "{{ hosts | natsops.jetstream.nats_credential_rotation(phase='add') }}"
  no_log: true
"""

RETURN = r"""
_value:
  description:
    - C(refusals), C(steps), C(lines) (the steps for people), C(remaining) (what is left afterwards, for people),
      C(removed) users, C(wait_seconds), and C(hosts) with the C(configurations) and the expected C(logins) of each host by step.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.credential_rotation import (
    CredentialOptions,
    HostCredentials,
    credential_rotation,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import is_hash, verify_password
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import normalise
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems, typed


def _same_password(password: str, hashed: str) -> bool:
    return is_hash(hashed) and not is_hash(password) and verify_password(password, hashed)


def _host(raw: Mapping[str, Any]) -> HostCredentials:
    return HostCredentials(
        running=boolean(raw["running"]),
        loaded=normalise(raw["loaded"]) if raw.get("loaded") else None,
        wanted=normalise(raw["wanted"]),
        given=normalise(raw["given"]),
        restart_pending=boolean(raw.get("restart_pending", False)),
    )


@reports_problems
def nats_credential_rotation(hosts: Mapping[str, Mapping[str, Any]], **options: Any) -> dict[str, Any]:
    """Return the plan of a cluster; see DOCUMENTATION."""
    read = {str(name): _host(raw) for name, raw in hosts.items()}
    return credential_rotation(read, typed(CredentialOptions, options), _same_password)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_credential_rotation": nats_credential_rotation}
