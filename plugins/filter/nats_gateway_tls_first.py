# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_gateway_tls_first
short_description: Make the configuration that gives a running gateway TLS by a reload
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns what the server has loaded, with nothing added but the TLS of its gateway, and that of its routes if it is new, too.
    Empty where no TLS is added to a gateway.
  - nats-server takes this by a reload. It keeps the connections that there are; each new one has TLS. Once all servers of all
    clusters loaded it, they can be restarted one after another, and no two clusters are cut off from each other.
positional: _input, new
options:
  _input:
    description: The configuration that the running process has loaded.
    type: dict
    required: true
  new:
    description: The configuration that it shall have.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Make the configuration to reload before the restarts
  ansible.builtin.set_fact:
    first: "{{ loaded | natsops.jetstream.nats_gateway_tls_first(wanted) }}"
"""

RETURN = r"""
_value:
  description: The configuration to reload first.
  type: dict
  sample:
    gateway:
      name: east
      port: 7222
      authorization: {timeout: 2}
      tls: {cert_file: /etc/nats/tls/server.crt, key_file: /etc/nats/tls/server.key, ca_file: /etc/nats/tls/ca.crt}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._config_rules import gateway_tls_first
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_gateway_tls_first(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The configuration to reload first; see DOCUMENTATION."""
    return gateway_tls_first(old, new)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_gateway_tls_first": nats_gateway_tls_first}
