# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_tls_use
short_description: Determine the connections that use the TLS files of the role nats_server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the role P(natsops.jetstream.nats_server#role) needs this filter; its input may change in any release.
positional: _input
options:
  _input:
    description: The role's variables, as returned by P(natsops.jetstream.nats_role_options#lookup) for C(tls_use).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: List the names that the certificate needs
  ansible.builtin.debug:
    msg: "{{ (lookup('natsops.jetstream.nats_role_options', 'tls_use') | natsops.jetstream.nats_tls_use).names }}"
"""

RETURN = r"""
_value:
  description: The C(names) of the server in these connections, whether the files are used C(between_servers), and the
    C(listeners) that show the certificate.
  type: dict
  sample: {names: [n1.example.com], between_servers: false, listeners: [{host: n1.example.com, port: 4222}]}
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.server_config.tls_use import TlsUse, tls_use
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_tls_use(options: Mapping[str, Any]) -> TlsUse:
    """Return the use of the files; see DOCUMENTATION."""
    return tls_use(options)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_tls_use": nats_tls_use}
