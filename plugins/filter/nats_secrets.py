# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_secrets
short_description: Return the secrets among variables
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the values whose key ends in C(password), C(pass), C(token), C(secret), C(seed), C(jwt), C(key) or C(ek), at any
    depth, and the passwords, or tokens, of URLs. What M(natsops.jetstream.nats_bundle) keeps out of a bundle.
positional: _input
options:
  _input:
    description: Variables by their names, or a configuration.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Write what the servers tell
  natsops.jetstream.nats_bundle:
    path: /home/ops/incident.zip
    secrets: "{{ {'accounts': nats_server_accounts} | natsops.jetstream.nats_secrets }}"
"""

RETURN = r"""
_value:
  description: The secrets, each once.
  type: list
  elements: str
  sample: [app-pass]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.redaction import secrets_in


def nats_secrets(values: Any) -> list[str]:
    """Return the secrets; see DOCUMENTATION."""
    return sorted(secrets_in(values))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_secrets": nats_secrets}
