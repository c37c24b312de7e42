# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_secrets
short_description: Define the variables that nats_conf refers to
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns one line C(SECRET_...) for each secret of a configuration, for a file of its own that the main file includes.
  - Secrets are passwords, tokens, encryption keys, seeds and whole URLs that carry credentials.
positional: _input
options:
  _input:
    description: The whole configuration, with nats-server's own keys.
    type: dict
    required: true
seealso:
  - plugin: natsops.jetstream.nats_conf
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write the secrets
  ansible.builtin.copy:
    content: "{{ config | natsops.jetstream.nats_secrets }}"
    dest: /etc/nats-server/secrets.conf
    mode: "0640"
  diff: false
  no_log: true
"""

RETURN = r"""
_value:
  description: The lines, without a final newline; empty when there is no secret.
  type: str
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._conf import write_secrets
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_secrets(config: dict[str, Any]) -> str:
    """The lines that define the secrets; see DOCUMENTATION."""
    return write_secrets(config)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_secrets": nats_secrets}
