# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_account_admins
short_description: Add a user to each JetStream account that may manage its streams
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - A server lets only users of the owning account ask for its streams and consumers. Returns the accounts of a structured
    nats-server configuration with one more user in each that has JetStream, and a list of these users.
  - Such a user may manage the account's streams and consumers (C($JS.API.>)) and nothing else.
positional: _input
options:
  _input:
    description: The accounts by name, with nats-server's own keys, as in C(nats_server_accounts).
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
- name: List the streams of all accounts as the users that the role nats_server made
  natsops.jetstream.nats_stream_info:
    account_users: "{{ (nats_server_accounts | natsops.jetstream.nats_account_admins(password=admin_password)).users }}"
"""

RETURN = r"""
_value:
  description:
    - C(accounts), with the users, and C(users), each with C(account), C(user) and C(password), which is what the modules' option
      C(account_users) takes. In the same form C(clients), the accounts' own users whose password is there and is no hash.
  type: dict
  sample:
    accounts:
      APP:
        jetstream: true
        users:
          - user: operator-APP
            password: s3cret
            permissions: {"publish": {"allow": ["$JS.API.>"]}, "subscribe": {"allow": ["_INBOX.natsops.>"]}}
    users:
      - {"account": "APP", "user": "operator-APP", "password": "s3cret"}
    clients: []
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.account_admins import (
    PREFIX,
    clients,
    operators,
    with_operators,
)


def nats_account_admins(
    accounts: Mapping[str, Mapping[str, Any]], password: str | None, prefix: str = PREFIX, without: str = ""
) -> dict[str, Any]:
    """Return the accounts and the users; see DOCUMENTATION."""
    return {
        "accounts": with_operators(accounts, password, prefix, without),
        "users": operators(accounts, password, prefix, without),
        "clients": clients(accounts, without),
    }


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_account_admins": nats_account_admins}
