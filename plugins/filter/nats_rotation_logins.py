# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_logins
short_description: Choose the user with which a rotation of credentials logs in
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - The rotation may include the user of the modules. Only the role C(natsops.jetstream.nats_cluster) needs this filter;
    its input may change in any release.
positional: _input
options:
  _input:
    description: The role's variables, as returned by P(natsops.jetstream.nats_role_options#lookup) for
      C(system_logins).
    type: dict
    required: true
  attempts:
    description: The results of M(natsops.jetstream.nats_login_info) for the candidates. The user that every server
      accepted is chosen.
    type: list
    elements: dict
    default: []
  removed:
    description: The names of the users that the rotation is about to remove. If the user of the modules is one of
      them, the desired system user is chosen.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the users with which a rotation may log in
  ansible.builtin.debug:
    msg: >-
      {{ (lookup('natsops.jetstream.nats_role_options', 'system_logins')
          | natsops.jetstream.nats_rotation_logins).candidates | map(attribute='user') }}
"""

RETURN = r"""
_value:
  description: The C(candidates) in order of preference, and the chosen C(login), which is empty if the modules keep
    their user. Contains passwords.
  type: dict
  sample: {candidates: [{user: sys, password: s3cret}], login: {}}
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.server_config.connection import SystemLogins
from ..plugin_utils._filters import reports_problems, typed


@reports_problems
def nats_rotation_logins(
    options: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]] = (), removed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the candidates and the chosen login; see DOCUMENTATION."""
    logins = typed(SystemLogins, options)
    return {"candidates": logins.candidates(), "login": logins.accepted(attempts) or logins.remaining(removed) or {}}


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_logins": nats_rotation_logins}
