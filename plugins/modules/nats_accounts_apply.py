#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_accounts_apply
short_description: Carry out an approved plan of accounts in operator mode
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Carries out the plan that M(natsops.jetstream.nats_accounts_plan) made from the same document. The plan is refused
    if the document, an account or the operator has changed since, or if a change now closes connections for a reason
    that the plan does not list.
  - All accounts first get new exports, new keys and higher limits, then new imports, then changed roles one after
    another, and last all that is removed or lowered. Accounts are deleted at the end.
  - Each step is signed, pushed to all servers and verified as M(natsops.jetstream.nats_account_claims) does. Then a
    user who exists for at most a minute logs in with each role whose seed is in O(key_directory), subscribes to an
    allowed subject, and publishes to a denied one. If a step fails, the module restores the previous claims of its
    account, and stops.
  - The module needs a user of the system account, and servers with the resolver type V(full).
  - The playbook C(natsops.jetstream.accounts_apply) reads the plan from a file.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.signing
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Returns the same steps. New keys are created, and roles are tested, only in a real run.
  diff_mode:
    support: none
    details:
      - RV(steps) contains each change.
  idempotent:
    support: full
requirements:
  - nkeys
  - PyYAML, for a document that is a text
options:
  document:
    description:
      - The accounts document, as YAML text or as a mapping, see C(docs/accounts.md).
    type: raw
    required: true
  plan:
    description:
      - The approved plan, RV(natsops.jetstream.nats_accounts_plan#module:plan).
    type: dict
    required: true
  confirm_delete:
    description:
      - Names of the accounts that the plan may delete. An account with streams is not deleted.
    type: list
    elements: str
    default: []
  key_directory:
    description:
      - Directory for the seeds of accounts and their signing keys, in the layout of the key store of nsc. The module
        stores the seeds of new keys in this directory, and reads from it the seeds that sign activations and the users
        who test the roles.
    type: path
  expected_servers:
    description:
      - Names of all servers, which must answer. A server that misses a deletion restores the account on all servers
        when it returns.
    type: list
    elements: str
    default: []
  sync_interval:
    description:
      - Seconds after the last step until all accounts are read once more. The default is longer than the resolvers'
        default C(interval) of one minute. V(0) skips this check.
    type: float
    default: 65
notes:
  - "Failures before anything is done have the codes V(stale), V(unconfirmed_deletion), V(obstacle), V(incomplete),
    V(operator), V(untrusted_signer) and V(unsupported_resolver). V(not_applied) means that a step failed; the message
    lists the steps that were done before."
seealso:
  - module: natsops.jetstream.nats_accounts_plan
  - module: natsops.jetstream.nats_account_claims
"""

EXAMPLES = r"""
- name: Carry out the approved plan
  natsops.jetstream.nats_accounts_apply:
    document: "{{ lookup('ansible.builtin.file', 'accounts.yml') }}"
    plan: "{{ lookup('ansible.builtin.file', 'accounts_plan-C1.json') | from_json }}"
    confirm_delete: [OLD]
    signing_seed: "{{ vault_operator_signing_seed }}"
    key_directory: ~/nats-keys
    expected_servers: [n1-c1, n2-c1, n3-c1]
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
"""

RETURN = r"""
steps:
  description: The steps in their order, each with the changed claims in the terms of the document.
  returned: success
  type: list
  elements: dict
  sample:
    - name: ORDERS
      step: exports, keys and higher limits
      changes: [{path: limits.connections, from: 500, to: 1000}]
roles:
  description:
    - The last test of each role of a changed account. C(allowed) is the subject that was subscribed to, and C(denied)
      the one that the server rejected; null if the role denies no subject. C(skipped) is the reason why a role was not
      tested.
  returned: success
  type: list
  elements: dict
  sample: [{account: ORDERS, role: app, skipped: "", allowed: _INBOX.natsops-probe, denied: natsops-probe}]
new_keys:
  description: Public keys whose seeds the module created and stored in O(key_directory). Empty in check mode.
  returned: success
  type: list
  elements: str
  sample: []
lines:
  description: The steps as readable text.
  returned: success
  type: list
  elements: str
  sample: []
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.accounts.apply import AccountsApproval, Tools, apply_document
from ..module_utils.accounts.run_claims import SIGNING_RULES, SIGNING_SPEC, desired_document, signing_means
from ..module_utils.accounts.steps import steps_page
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client
from ..module_utils.nats.system_api import SystemApi


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    document = desired_document(params["document"])
    tools = Tools(*signing_means(params), client.options)
    approval = AccountsApproval(params["plan"], params["confirm_delete"])
    result = apply_document(SystemApi(client), document, approval, tools, check_mode)
    return {**result, **steps_page(result["steps"], result["roles"]).as_dict()}


def main() -> None:
    module = make_module(
        {
            "document": {"type": "raw", "required": True},
            "plan": {"type": "dict", "required": True},
            "confirm_delete": {"type": "list", "elements": "str", "default": []},
            **SIGNING_SPEC,
        },
        **SIGNING_RULES,
    )
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
