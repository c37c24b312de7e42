#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_signing_key_rotation
short_description: Replace the signing key of a role in operator mode
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Adds a second signing key to a role of an account, or drops the old one after all users have credentials of the new
    key. Between the two phases, M(natsops.jetstream.nats_user_credentials) issues the credentials.
  - Adding a key disconnects no user. Dropping a key disconnects its users, and is refused while such users are
    connected.
  - The claims are signed, pushed to all servers and verified as M(natsops.jetstream.nats_account_claims) does.
  - The module needs a user of the system account, and servers with the resolver type V(full).
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.signing
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - The new key is created only in a real run.
  diff_mode:
    support: full
    details:
      - Shows the account's claims in the terms of the accounts document.
  idempotent:
    support: full
requirements:
  - nkeys
options:
  account:
    description:
      - Name or public key of the account.
    type: str
    required: true
  role:
    description:
      - Name of the role.
    type: str
    required: true
  phase:
    description:
      - V(add) creates a second key, unless the role already has one. V(drop) removes O(key), unless the key has already
        been removed.
    type: str
    choices: [add, drop]
    required: true
  key:
    description:
      - Public key to replace. Required for O(phase=drop). With O(phase=add), no key is created if the role no longer
        has O(key), so a finished rotation is not repeated.
    type: str
  key_directory:
    description:
      - Directory for the seed of the new key, in the layout of the key store of nsc. Required for O(phase=add).
    type: path
  disconnect_users:
    description:
      - Whether to drop the key although its users are connected. These users cannot log in again without new
        credentials.
    type: bool
    default: false
  expected_servers:
    description:
      - Names of all servers, which must answer.
    type: list
    elements: str
    default: []
  sync_interval:
    description:
      - Seconds after which the servers' copies are read once more. V(0) skips this check.
    type: float
    default: 65
seealso:
  - module: natsops.jetstream.nats_user_credentials
  - module: natsops.jetstream.nats_account_claims
"""

EXAMPLES = r"""
- name: Give the role app a second key
  natsops.jetstream.nats_signing_key_rotation:
    account: ORDERS
    role: app
    phase: add
    signing_seed: "{{ vault_operator_signing_seed }}"
    key_directory: ~/nats-keys
    expected_servers: [n1-c1, n2-c1, n3-c1]
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds

- name: Drop the old key
  natsops.jetstream.nats_signing_key_rotation:
    account: ORDERS
    role: app
    phase: drop
    key: AB32YC7KEJXX5ASDRB522JC5PKXCWIKT6P76XMNDA6O2AO4J4NDN4JS4
    signing_seed: "{{ vault_operator_signing_seed }}"
    expected_servers: [n1-c1, n2-c1, n3-c1]
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
"""

RETURN = r"""
keys:
  description: The keys of the role before the change, each with the number of connections of its users.
  returned: success
  type: list
  elements: dict
  sample: [{key: AB32YC7KEJXX5ASDRB522JC5PKXCWIKT6P76XMNDA6O2AO4J4NDN4JS4, connections: 12}]
new_key:
  description: Public key that the module created. Null if the module created no key, and in check mode.
  returned: success
  type: str
  sample: ACAFPY2JNUMB7UNLXL27EJJUSC3NICBLUHFNLSF6S7ZGTWZLIUEREZTI
predicted:
  description: Whether the change was only predicted in check mode.
  returned: success
  type: bool
  sample: false
"""

import time
from collections.abc import Mapping
from typing import Any

from ..module_utils.accounts.change import DROP_KEY, AccountChange, compared_change
from ..module_utils.accounts.claims import Claims
from ..module_utils.accounts.key_rotation import NoRotation, key_users, role_keys, with_second_key, without_key
from ..module_utils.accounts.run_claims import (
    SIGNING_RULES,
    SIGNING_SPEC,
    AccountsState,
    apply_change,
    read_accounts,
    require_no_obstacles,
    require_writable,
    signing_means,
)
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.account_names import one_account
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.screen import printable


def planned(state: AccountsState, params: Mapping[str, Any]) -> tuple[AccountChange, Claims]:
    """Return the change of the account, and its claims before the change. Raises NatsFailure no_account,
    invalid_option, obstacle or users_connected."""
    found = {one.copies.account: one for one in state.evaluations}
    before = found.get(one_account({key: one.name or "" for key, one in found.items()}, params["account"]))
    if before is None or before.claims is None:
        raise NatsFailure("no_account", f"account {params['account']}: no server returned its claims")
    try:
        if params["phase"] == "add":
            is_replaced = params["key"] and params["key"] not in role_keys(before.claims, params["role"])
            desired = before.claims if is_replaced else with_second_key(before.claims, params["role"])
        else:
            desired = without_key(before.claims, params["role"], params["key"])
    except NoRotation as error:
        raise NatsFailure("invalid_option", printable(str(error))) from error
    change = compared_change(before.label, before, desired, state.evaluations, state.trust, state.live, time.time())
    if change.is_needed:
        require_no_obstacles(change)
    connected = [one.message for one in change.dangers if one.kind == DROP_KEY]
    if connected and not params["disconnect_users"]:
        raise NatsFailure(
            "users_connected",
            f"account {change.name}: {'; '.join(connected)}. Give these users credentials of the new key first, or set "
            "disconnect_users",
        )
    return change, before.claims


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    signer, directory, confirmation = signing_means(params)
    api = SystemApi(client)
    state = read_accounts(api, params["expected_servers"], time.time())
    require_writable(state, signer.public)
    change, before = planned(state, params)
    users = key_users(role_keys(before, params["role"]), before, state.live)
    created: list[str] = []
    if change.is_needed and not check_mode:
        created = apply_change(api, state, change, signer, directory, confirmation)["new_keys"]
    return {
        "changed": change.is_needed,
        "keys": [{"key": key, "connections": count} for key, count in users.items()],
        "new_key": created[0] if created else None,
        "predicted": change.is_needed and check_mode,
        "diff": change.difference(),
    }


def main() -> None:
    module = make_module(
        {
            "account": {"type": "str", "required": True},
            "role": {"type": "str", "required": True},
            "phase": {"type": "str", "choices": ["add", "drop"], "required": True},
            "key": {"type": "str", "no_log": False},
            "disconnect_users": {"type": "bool", "default": False},
            **SIGNING_SPEC,
        },
        **SIGNING_RULES,
        required_if=[("phase", "add", ["key_directory"]), ("phase", "drop", ["key"])],
    )
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
