# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_account_operators
short_description: Add an operator to each JetStream account
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the accounts of a structured nats-server configuration with one more user in each that has JetStream. The user may
    manage the account's streams and consumers (C($JS.API.>)) and nothing else.
positional: _input
options:
  _input:
    description: The accounts by name, with nats-server's own keys.
    type: dict
    required: true
  password:
    description: Password of these users. Without it no user is added.
    type: str
    required: true
  prefix:
    description: What a user's name has before the name of its account.
    type: str
    default: operator-
  without:
    description: An account that gets none, such as the system account.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: Show the accounts
  ansible.builtin.debug:
    msg: "{{ {'APP': {'jetstream': true}} | natsops.jetstream.nats_account_operators(password='s3cret') }}"
"""

RETURN = r"""
_value:
  description: The accounts.
  type: dict
  sample:
    APP:
      jetstream: true
      users:
        - user: operator-APP
          password: s3cret
          permissions: {"publish": {"allow": ["$JS.API.>"]}, "subscribe": {"allow": ["_INBOX.>"]}}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._account_operators import with_operators


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_account_operators": with_operators}
