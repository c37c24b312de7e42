#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_account_claims
short_description: Create, change and delete an account in operator mode
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Gives an account on every server the claims that an accounts document declares. The module signs the claims with a
    key of the operator, checks them as a server would, and pushes them to all servers. The module then verifies that
    every server stores the new JWT and that no server still uses a different one, and verifies this again after a
    synchronization interval of the resolvers.
  - If a server refuses the JWT or does not apply it, the module signs the previous claims again, restores them, and
    fails.
  - Changes that close connections or set limits below the current usage are refused before anything is done, unless
    O(allow) permits them. A change that would make streams inaccessible is always refused.
  - The module needs a user of the system account, and servers with the resolver type V(full).
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.signing
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - The seeds of new keys are created only in a real run.
  diff_mode:
    support: full
    details:
      - Shows the claims in the terms of the accounts document. A new signing key appears by its name in the document.
  idempotent:
    support: full
requirements:
  - nkeys
  - PyYAML, for a document that is a text
options:
  account:
    description:
      - Name of the account in O(document). With O(state=absent), the name in the account's JWT or its public key.
    type: str
    required: true
  state:
    description:
      - V(present) creates or changes the account. V(absent) deletes it from all servers, which must permit this
        (C(allow_delete) of the resolver). An account with streams is not deleted.
    type: str
    choices: [present, absent]
    default: present
  document:
    description:
      - The accounts document, as YAML text or as a mapping, see C(docs/accounts.md). Required for O(state=present).
        Only O(account) is changed; its imports and the defaults refer to the other accounts and keys of the document.
    type: raw
  key_directory:
    description:
      - Directory for the seeds of accounts and their signing keys, in the layout of the key store of nsc
        (C(keys/A/BC/ABC….nk)). The module stores the seeds of new keys in this directory, and reads from it the seed of
        an account whose private export is imported.
      - Not needed if the document has the public keys of the account and of its signing keys.
    type: path
  allow:
    description:
      - Accepted dangers. A change with a danger that is not listed fails with the code V(dangerous), and nothing is
        changed.
      - V(drop_key) accepts that users of a dropped signing key are disconnected. These users cannot log in again.
      - V(close_connections) accepts that other connections are closed. Users of a changed role reconnect.
      - V(limits_below_use) accepts JetStream limits below the current usage. Servers then reject new streams and
        messages.
      - V(lost_imports) accepts that another account imports an export that the change removes.
      - V(system_account) accepts a change of the system account.
      - V(unknown_claims) accepts the loss of claims that this collection does not support.
    type: list
    elements: str
    choices: [drop_key, close_connections, limits_below_use, lost_imports, system_account, unknown_claims]
    default: []
  expected_servers:
    description:
      - Names of all servers, which must answer. A server that misses a deletion restores the account on all servers
        when it returns.
    type: list
    elements: str
    default: []
  sync_interval:
    description:
      - Seconds after which the servers' copies are read once more. The default is longer than the resolvers' default
        C(interval) of one minute. V(0) skips this check.
    type: float
    default: 65
notes:
  - "Failures before anything is done have the codes V(incomplete), V(operator), V(untrusted_signer),
    V(unsupported_resolver), V(refused_claims), V(obstacle) and V(dangerous). V(not_applied) means that the change
    failed on a server; the message contains whether the previous claims were restored."
seealso:
  - module: natsops.jetstream.nats_accounts_plan
  - module: natsops.jetstream.nats_account_claims_info
"""

EXAMPLES = r"""
- name: Give the account ORDERS the declared claims
  natsops.jetstream.nats_account_claims:
    account: ORDERS
    document: "{{ lookup('ansible.builtin.file', 'accounts.yml') }}"
    signing_seed: "{{ vault_operator_signing_seed }}"
    key_directory: ~/nats-keys
    expected_servers: [n1-c1, n2-c1, n3-c1]
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds

- name: Delete an account without streams
  natsops.jetstream.nats_account_claims:
    account: OLD
    state: absent
    signing_seed_file: ~/operator-signing.nk
    expected_servers: [n1-c1, n2-c1, n3-c1]
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
"""

RETURN = r"""
account:
  description: Public key of the account. Null if the account does not exist, or does not exist yet in check mode.
  returned: success
  type: str
  sample: ACD6RSYQSFDB3BN7QGHKUDESMOUH3NIYFWBOH5V6WIC4YNLSRBANTXFW
changes:
  description: The changed claims in the terms of the document. C(from) is null for an addition, and C(to) is null for a
    removal. Empty for a new or deleted account.
  returned: success
  type: list
  elements: dict
  sample: [{path: limits.connections, from: unlimited, to: 500}]
closes:
  description: The numbers of connections that the servers close because of the change.
  returned: success
  type: list
  elements: dict
  sample: [{reason: "role app changes; its users reconnect", count: 12}]
dangers:
  description: Dangers of the change that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: close_connections, message: "role app changes; its users reconnect: closes 12 connections"}]
new_keys:
  description: Public keys whose seeds the module created and stored in O(key_directory). Empty in check mode.
  returned: success
  type: list
  elements: str
  sample: []
servers:
  description: Names of the servers that have the account's claims, or that no longer store the account.
  returned: success
  type: list
  elements: str
  sample: [n1-c1, n2-c1, n3-c1]
"""

import time
from collections.abc import Mapping
from typing import Any

from ..module_utils.accounts.change import (
    DANGERS,
    AccountChange,
    absent_change,
    missing_exporters,
    present_change,
)
from ..module_utils.accounts.plan import closing_rows
from ..module_utils.accounts.run_claims import (
    SIGNING_RULES,
    SIGNING_SPEC,
    AccountsState,
    apply_change,
    desired_document,
    read_accounts,
    require_no_obstacles,
    require_writable,
    signing_means,
)
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.problem import refused_dangers


def planned(state: AccountsState, params: Mapping[str, Any]) -> AccountChange:
    """Return the change that the options describe. Raises NatsFailure invalid_option, obstacle or dangerous."""
    name = params["account"]
    if params["state"] == "absent":
        change = absent_change(name, state.evaluations, state.trust, state.live)
    else:
        document = desired_document(params["document"])
        account = document.accounts.get(name)
        if account is None or not account.is_present:
            reason = "is not in the document" if account is None else "is absent in the document; use state: absent"
            raise NatsFailure("invalid_option", f"account: {name} {reason}")
        absent = missing_exporters(name, document, state.evaluations)
        if absent:
            reason = f"imports: accounts that do not exist yet: {', '.join(absent)}; create them first"
            raise NatsFailure("obstacle", f"account {name}: {reason}", account=name)
        change = present_change(name, document, state.evaluations, state.trust, state.live, time.time())
    if change.is_needed:
        require_no_obstacles(change)
        refused = refused_dangers(change.dangers, params["allow"])
        if refused:
            raise NatsFailure("dangerous", f"account {name}: {refused}", account=name)
    return change


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    signer, directory, confirmation = signing_means(params)
    if params["state"] == "present":
        desired_document(params["document"])
    api = SystemApi(client)
    state = read_accounts(api, params["expected_servers"], time.time())
    require_writable(state, signer.public)
    change = planned(state, params)
    done: dict[str, Any] = {"account": change.account or None, "new_keys": []}
    if change.is_needed and not check_mode:
        done = apply_change(api, state, change, signer, directory, confirmation)
    return {
        "changed": change.is_needed,
        **done,
        "changes": list(change.changes),
        "closes": closing_rows(change.closes),
        "dangers": [{"kind": one.kind, "message": one.message} for one in change.dangers],
        "servers": [server.name for server in state.servers],
        "diff": change.difference(),
    }


def main() -> None:
    module = make_module(
        {
            "account": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "document": {"type": "raw"},
            "allow": {"type": "list", "elements": "str", "choices": list(DANGERS), "default": []},
            **SIGNING_SPEC,
        },
        **SIGNING_RULES,
        required_if=[("state", "present", ["document"])],
    )
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
