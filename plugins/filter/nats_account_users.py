# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_account_users
short_description: List the operators that the role made in the JetStream accounts
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the value of the modules' option C(account_users) for the users that the role P(natsops.jetstream.nats_server#role)
    makes in each account with JetStream when C(nats_server_account_operator_password) is set.
positional: _input
options:
  _input:
    description: The accounts, as in C(nats_server_accounts).
    type: dict
    required: true
  password:
    description: C(nats_server_account_operator_password). Without it there are no operators.
    type: str
    required: true
  prefix:
    description: C(nats_server_account_operator_prefix).
    type: str
    default: operator-
  without:
    description: An account that gets none, such as the system account.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: Show the operators
  ansible.builtin.debug:
    msg: "{{ {'APP': {'jetstream': true}, 'CORE': {}} | natsops.jetstream.nats_account_users(password='s3cret') }}"
"""

RETURN = r"""
_value:
  description: Users with C(account), C(user) and C(password).
  type: list
  elements: dict
  sample: [{"account": "APP", "user": "operator-APP", "password": "s3cret"}]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._account_operators import operators


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_account_users": operators}
