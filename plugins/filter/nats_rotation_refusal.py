# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_refusal
short_description: Return why a rotation of credentials must not continue
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares reports of the servers with the plan of a rotation. Only the role C(natsops.jetstream.nats_cluster) needs
    this filter; its input may change in any release.
positional: _input, reports
options:
  _input:
    description:
      - For V(logins), the logins of a server, as returned by M(natsops.jetstream.nats_login_info).
      - For V(connections), results of M(natsops.jetstream.nats_connection_info) for the users to be removed.
    type: list
    elements: dict
    required: true
  reports:
    description: The kind of reports.
    type: str
    choices: [logins, connections]
    required: true
  expected:
    description: For V(logins), the expected logins of the host and the step in the plan.
    type: dict
  server:
    description: For V(logins), the name of the server, for the message.
    type: str
    default: ""
  disconnect_clients:
    description: For V(connections), whether clients with old credentials may be disconnected.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check that no client would be disconnected
  ansible.builtin.fail:
    msg: "{{ refusal }}"
  when: refusal | length > 0
  vars:
    refusal: "{{ connected.results | natsops.jetstream.nats_rotation_refusal('connections') }}"
"""

RETURN = r"""
_value:
  description: The cause and the remedy; empty if the rotation may continue.
  type: str
  sample: "Connections are unknown: n2 did not list all connections. No user was removed."
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.server_config.credential_rotation import login_refusal, removal_refusal
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_rotation_refusal(
    found: Sequence[Mapping[str, Any]],
    reports: str,
    expected: Mapping[str, Any] | None = None,
    server: str = "",
    disconnect_clients: Any = False,
) -> str:
    """Return the refusal; see DOCUMENTATION."""
    if reports == "logins":
        if expected is None:
            raise ValueError("expected: required for logins")
        return login_refusal(found, expected, server)
    if reports == "connections":
        return removal_refusal(found, boolean(disconnect_clients))
    raise ValueError(f"reports: must be logins or connections, not {reports!r}")


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_refusal": nats_rotation_refusal}
