# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_client_contexts
short_description: Determine the contexts of the nats command for a cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the role P(natsops.jetstream.nats_server#role) needs this filter; its input may change in any release.
  - Returns a context for the system user and for each user of an account whose password is known.
positional: _input, directory, topology, client_tls
options:
  _input:
    description: The role's variables, as returned by P(natsops.jetstream.nats_role_options#lookup) for C(contexts).
    type: dict
    required: true
  directory:
    description: The directory of the contexts.
    type: str
    required: true
  topology:
    description: The servers, as returned by P(natsops.jetstream.nats_topology#filter).
    type: dict
    required: true
  client_tls:
    description: Whether clients use TLS with the role's files (C(uses_tls)), and whether they start TLS first
      (C(tls_first)).
    type: dict
    required: true
  connection:
    description: The login of the modules, if the contexts are for the controller.
    type: dict
seealso:
  - plugin: natsops.jetstream.nats_role_options
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: List the names of the contexts
  ansible.builtin.debug:
    msg: "{{ (options | natsops.jetstream.nats_client_contexts('/root/.config/nats/context', topology,
               {'uses_tls': false, 'tls_first': false})).contexts | map(attribute='name') }}"
  vars:
    options: "{{ lookup('natsops.jetstream.nats_role_options', 'contexts') }}"
    topology: "{{ groups['nats'] | natsops.jetstream.nats_topology(hostvars, host=inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The C(contexts), each with its C(name) and C(settings), and the file C(key) with the login of the system
    user. They contain secrets.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.server_config.client_contexts import ClientContexts, client_contexts
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_client_contexts(
    options: Mapping[str, Any],
    directory: str,
    topology: Mapping[str, Any],
    client_tls: Mapping[str, Any],
    connection: Mapping[str, Any] | None = None,
) -> ClientContexts:
    """Return the contexts; see DOCUMENTATION."""
    return client_contexts(options, directory, topology, client_tls, connection)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_client_contexts": nats_client_contexts}
