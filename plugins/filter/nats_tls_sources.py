# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_tls_sources
short_description: Return the TLS files of a host on the controller
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the paths of the files that the role C(natsops.jetstream.nats_server) copies to a host or creates for it. Only this
    role needs the filter; its input may change in any release.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, host
options:
  _input:
    description: The role's variables C(nats_server_tls_NAME) by name.
    type: dict
    required: true
  host:
    description: Name of the host in the inventory.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the certificate of this host
  ansible.builtin.debug:
    msg: "{{ ({'source': 'ca', 'ca_dir': '/ca'} | natsops.jetstream.nats_tls_sources(inventory_hostname)).current }}"
"""

RETURN = r"""
_value:
  description:
    - The files of the C(current) and of the C(new) authority, those of the inventory after a rotation (C(given)), and
      directory and key of the private C(authority) and of the C(issuer) during a rotation. C(installed) is whether the role
      copies files, C(rotating) is whether the authority is replaced, and C(complete) is whether the operator supplies all
      files.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.server_config.tls_sources import TlsSourceOptions, tls_sources
from ..plugin_utils._filters import reports_problems, typed


@reports_problems
def nats_tls_sources(options: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return the paths; see DOCUMENTATION."""
    return tls_sources(typed(TlsSourceOptions, options), host)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_tls_sources": nats_tls_sources}
