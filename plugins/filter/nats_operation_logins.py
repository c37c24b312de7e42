# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_operation_logins
short_description: Return the users with which an operation logs in to the accounts
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns a list for the modules' option C(account_users). Only the role C(natsops.jetstream.nats_cluster) needs this
    filter; its options may change in any release.
positional: _input, purpose
options:
  _input:
    description: The users of the operator, C(nats_cluster_account_users).
    type: list
    elements: dict
    required: true
  purpose:
    description:
      - V(all) returns all users. V(smoke_test) also returns the applications' users with a known password, and
        V(each_account) one of them for each account that has no other user. V(host) returns only users without a signing
        key, for programs that run without the controller.
    type: str
    choices: [all, smoke_test, each_account, host]
    required: true
  accounts:
    description: The accounts by name, with nats-server's own keys.
    type: dict
    required: true
  password:
    description: Password of the account operators. Without a password, there are none.
    type: str
  prefix:
    description: Prefix of the account operators' names.
    type: str
    default: operator-
  system_account:
    description: The system account.
    type: str
    default: $SYS
  key_directory:
    description: Directory with signing keys, from which modules mint users. Empty without one.
    type: str
    default: ""
  runs_on:
    description: The hosts on which modules run. If one of them is not the controller, a signing key is refused.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: List the streams of all accounts
  natsops.jetstream.nats_stream_info:
    account_users: >-
      {{ [] | natsops.jetstream.nats_operation_logins('all', nats_server_accounts, password=admin_password) }}
"""

RETURN = r"""
_value:
  description: The users, each with its C(account) and credentials.
  type: list
  elements: dict
  sample: [{account: APP, user: operator-APP, password: s3cret}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.nats.account_names import SYSTEM_ACCOUNT
from ..module_utils.server_config.account_admins import PREFIX, OperatorLogins, operation_logins
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_operation_logins(
    users: Sequence[Mapping[str, Any]],
    purpose: str,
    accounts: Mapping[str, Mapping[str, Any]],
    password: str | None = None,
    prefix: str = PREFIX,
    system_account: str = SYSTEM_ACCOUNT,
    key_directory: str = "",
    runs_on: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the users; see DOCUMENTATION."""
    given = OperatorLogins(users, accounts, password, prefix, system_account, key_directory, runs_on)
    return operation_logins(given, purpose)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_operation_logins": nats_operation_logins}
