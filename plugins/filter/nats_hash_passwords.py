# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_hash_passwords
short_description: Hash the passwords of a nats-server configuration with bcrypt
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the configuration with canonical keys and a bcrypt hash for each plaintext password or token that the server
    compares. These are the passwords and tokens of users and of C(authorization) at the top level, of leafnodes, of
    WebSocket and of MQTT.
  - Credentials that a server must send stay plaintext, because a hash cannot be used to log in. These are the
    C(authorization) of C(cluster) and C(gateway), and route, gateway and leafnode URLs.
  - Existing hashes are kept. A password of more than 72 bytes or with a NUL byte is an error, because bcrypt would
    cut it off.
  - Every client connection requires one comparison. On one core of a current server, a comparison takes about 2 ms at
    cost 4, 16 ms at cost 8, 120 ms at cost 11, and one second at cost 14.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
requirements:
  - libpass, or passlib, or bcrypt on the controller
positional: _input
options:
  _input:
    description: The complete configuration, with nats-server's own keys.
    type: dict
    required: true
  previous:
    description: >-
      The text of the secrets file on the host. The hashes in this file are kept if they match the passwords and have
      the requested cost, so a second run changes nothing.
    type: str
    default: ""
  cost:
    description: The bcrypt cost, from 4 to 31. Each increment doubles the work.
    type: int
    default: 11
  reloadable:
    description: >-
      The version of a server that must not be restarted, such as an adopted one. A password stays plaintext if this
      server would need a restart to accept a hash, as for C(leafnodes.authorization).
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Settle the configuration
  ansible.builtin.set_fact:
    settled: "{{ config | natsops.jetstream.nats_hash_passwords(previous=old_secrets, cost=11) }}"
  no_log: true
"""

RETURN = r"""
_value:
  description: The configuration with hashes.
  type: dict
"""

from typing import Any

from ..module_utils.server_config.passwords import hash_passwords
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_hash_passwords(
    config: dict[str, Any], previous: str = "", cost: int = 11, reloadable: str = ""
) -> dict[str, Any]:
    """Return the configuration with hashes; see DOCUMENTATION."""
    return hash_passwords(config, str(previous or ""), int(cost), str(reloadable or ""))


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_hash_passwords": nats_hash_passwords}
