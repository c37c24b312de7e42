# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_account_admins
short_description: Add a user who may manage the streams to each JetStream account
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - A server accepts requests for streams and consumers only from users of the owning account. This filter adds one user
    to each account with JetStream in a structured nats-server configuration, and returns the accounts and a list of
    these users.
  - Such a user may publish to the JetStream API of its account (C($JS.API.>), C($JS.SNAPSHOT.>)) and subscribe to its replies
    (C(_INBOX.natsops.>)). With this API, the user can read, capture and delete every message of the account.
  - Other users of the account can read the requests and replies of this user unless they are denied these subjects; see
    docs/security.md.
positional: _input
options:
  _input:
    description: The accounts by name, with nats-server's own keys, as in C(nats_server_accounts).
    type: dict
    required: true
  password:
    description: Password of these users. Without a password, no user is added.
    type: str
    required: true
  prefix:
    description: Prefix of the user names, before the name of the account.
    type: str
    default: operator-
  without:
    description: Accounts to which no user is added, such as the system account and accounts with a user of your own.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: List the streams of all accounts as the users that the role nats_server created
  natsops.jetstream.nats_stream_info:
    account_users: "{{ (nats_server_accounts | natsops.jetstream.nats_account_admins(password=admin_password)).users }}"
"""

RETURN = r"""
_value:
  description:
    - C(accounts), including the users, and C(users), each with C(account), C(user) and C(password), in the form of the
      modules' option C(account_users). C(clients) contains, in the same form, the accounts' existing users with a
      plaintext password.
  type: dict
  sample:
    accounts:
      APP:
        jetstream: true
        users:
          - user: operator-APP
            password: s3cret
            permissions: {"publish": {"allow": ["$JS.API.>", "$JS.SNAPSHOT.>"]}, "subscribe": {"allow": ["_INBOX.natsops.>"]}}
    users:
      - {"account": "APP", "user": "operator-APP", "password": "s3cret"}
    clients: []
"""

from collections.abc import Collection, Mapping
from typing import Any

from ..module_utils.server_config.account_admins import PREFIX, clients, operators, with_operators


def nats_account_admins(
    accounts: Mapping[str, Mapping[str, Any]],
    password: str | None,
    prefix: str = PREFIX,
    without: str | Collection[str] = (),
) -> dict[str, Any]:
    """Return the accounts and the users; see DOCUMENTATION."""
    without = [without] if isinstance(without, str) else without
    return {
        "accounts": with_operators(accounts, password, prefix, without),
        "users": operators(accounts, password, prefix, without),
        "clients": clients(accounts, without),
    }


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_account_admins": nats_account_admins}
