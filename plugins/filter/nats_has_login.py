# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_has_login
short_description: Check whether the modules can log in to the servers of the role nats_server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the role P(natsops.jetstream.nats_server#role) needs this filter; its input may change in any
    release.
  - Returns whether the inventory or the environment of the controller contains credentials.
positional: _input
options:
  _input:
    description: The input of P(natsops.jetstream.nats_connection#filter).
    type: dict
    required: true
seealso:
  - plugin: natsops.jetstream.nats_connection
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show whether the modules can log in
  ansible.builtin.debug:
    msg: "{{ {'user': 'sys', 'password': system_password} | natsops.jetstream.nats_has_login }}"
"""

RETURN = r"""
_value:
  description: Whether there are credentials.
  type: bool
"""

import os
from collections.abc import Mapping
from typing import Any

from ..module_utils.server_config.connection import has_login
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_has_login(options: Mapping[str, Any]) -> bool:
    """Return whether there are credentials; see DOCUMENTATION."""
    return has_login(options, os.environ)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_has_login": nats_has_login}
