# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_installation
short_description: Determine whether a host needs the user or the desired version of nats-server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the role P(natsops.jetstream.nats_server#role) needs this filter; its input may change in any release.
positional: _input, host
options:
  _input:
    description: The role's variables, as returned by P(natsops.jetstream.nats_role_options#lookup) for C(install).
    type: dict
    required: true
  host:
    description: The result of M(natsops.jetstream.nats_server_host_info).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show whether the desired version is installed
  ansible.builtin.debug:
    msg: "{{ (lookup('natsops.jetstream.nats_role_options', 'install')
             | natsops.jetstream.nats_installation(host)).installed }}"
  vars:
    host:
      installed: true
      installed_from: ""
      group_exists: true
      user: {group: nats, comment: NATS server, home: /nonexistent, shell: /usr/sbin/nologin}
      process: {running: true}
"""

RETURN = r"""
_value:
  description: Whether the installation is C(due), whether the version is C(installed), whether C(user_differs), the
    C(accepted_sums) of a file, and the attributes of the C(user).
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.host.installation import Installation, InstallOptions, installation
from ..plugin_utils._filters import reports_problems, typed


@reports_problems
def nats_installation(options: Mapping[str, Any], host: Mapping[str, Any]) -> Installation:
    """Return the needs of the host; see DOCUMENTATION."""
    return installation(typed(InstallOptions, options), host)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_installation": nats_installation}
