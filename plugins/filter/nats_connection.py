# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_connection
short_description: Determine how the modules log in to the servers of the role nats_server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the role P(natsops.jetstream.nats_server#role) needs this filter.
  - Returns the connection options of the modules. An option without a value is omitted, so environment variables and
    contexts of the C(nats) command still apply.
positional: _input, client_urls, sources
options:
  _input:
    description:
      - The connection options from the inventory, with the names of the modules' options, and these keys.
      - C(delegate_to) is the host on which the modules run; an account's seed must not leave the controller.
      - C(uses_tls) is true if clients use TLS with the role's files, and C(shows_certificate) is true if the servers
        require a certificate from the role's authority.
      - C(metrics_user), C(metrics_password) and C(operator) determine the login of O(only_reads).
    type: dict
    required: true
  client_urls:
    description: The addresses of all servers, which are used unless O(_input) has C(servers).
    type: list
    elements: str
    required: true
  sources:
    description: The TLS files on the controller, as returned by P(natsops.jetstream.nats_tls_sources#filter).
    type: dict
    required: true
  only_reads:
    description: Whether to log in as the user of metrics, if it has a password and accounts are not JWTs.
    type: bool
    default: false
seealso:
  - plugin: natsops.jetstream.nats_topology
    plugin_type: filter
  - plugin: natsops.jetstream.nats_tls_sources
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Log in with a password
  ansible.builtin.debug:
    msg: "{{ login | natsops.jetstream.nats_connection(['nats://n1:4222'], tls_files) }}"
  vars:
    login: {user: sys, password: "{{ system_password }}"}
    tls_files: "{{ {} | natsops.jetstream.nats_tls_sources(inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The options, for C(module_defaults). They contain secrets.
  type: dict
  sample: {servers: ["nats://n1:4222"], timeout: 5, user: sys, password: secret}
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.server_config.connection import connection
from ..module_utils.server_config.topology import boolean
from ..plugin_utils._filters import reports_problems

#: Keys that older versions of Ansible may turn into text.
_SWITCHES = ("tls_first", "uses_tls", "shows_certificate")


@reports_problems
def nats_connection(
    options: Mapping[str, Any], client_urls: Sequence[str], sources: Mapping[str, Any], only_reads: bool = False
) -> dict[str, Any]:
    """Return the options; see DOCUMENTATION."""
    switches = {name: boolean(options.get(name, False)) for name in _SWITCHES}
    return connection({**options, **switches}, client_urls, sources, os.path.exists, only_reads)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_connection": nats_connection}
