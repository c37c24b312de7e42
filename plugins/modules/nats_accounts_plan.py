#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_accounts_plan
short_description: Compare an accounts document with the account JWTs of all servers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Compares the accounts that a document declares with every server's copy of their JWTs. Returns the changes and,
    for each change, the connections that servers would close, the streams that would become inaccessible, and the
    limits that are below the current usage. The module changes nothing. The module needs a user of the system account,
    but no seed.
  - The document is described in C(docs/accounts.md).
  - The playbook C(natsops.jetstream.accounts_plan) shows the plan and writes it to a file.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
requirements:
  - nkeys
  - PyYAML, for a document that is a text
options:
  document:
    description:
      - The accounts document, as YAML text or as a mapping. Text that a lookup returns is not templated, so subjects
        with double braces are safe. All errors are reported at once, each with the path of its key.
    type: raw
    required: true
  expected_servers:
    description:
      - Names of servers that must answer. C(problems) in RV(plan) lists servers that do not answer.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_account_claims_info
"""

EXAMPLES = r"""
- name: Plan the accounts
  natsops.jetstream.nats_accounts_plan:
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
    expected_servers: [n1-c1, n2-c1, n3-c1]
    document: "{{ lookup('ansible.builtin.file', 'accounts.yml') }}"
  register: accounts

- name: Show the plan
  natsops.jetstream.nats_show:
    name: accounts_plan
    lines: "{{ accounts.lines }}"
    screen: "{{ accounts.screen }}"
"""

RETURN = r"""
plan:
  description:
    - The plan. C(fingerprint) changes whenever the document, any server's copy of a JWT, or an operator changes.
    - C(state) of an account is V(create), V(change), V(same), V(delete), V(absent), V(not in document), V(servers
      disagree), V(unknown signer) or V(unreadable). A new JWT signed by the operator resolves V(servers disagree) and
      V(unknown signer).
    - C(changes) lists the changes in the terms of the document. C(from) is null for an addition, and C(to) is null
      for a removal.
    - C(closes) counts the connections that servers would close; each connection is counted once.
    - C(operator) lists the differences between the operator in the document and that of the servers. Changing the
      operator requires a restart of every server.
    - C(problems) lists the reasons why the plan cannot be carried out. C(incomplete) lists the servers that did not
      report their connections, so it is unknown which connections to these servers would be closed.
  returned: success
  type: dict
  sample:
    version: 1
    fingerprint: 7d1f0c2a9b3e4f55667788990a1b2c3d4e5f60718293a4b5c6d7e8f901234567
    operator: []
    accounts:
      - name: ORDERS
        account: ACD6RSYQSFDB3BN7QGHKUDESMOUH3NIYFWBOH5V6WIC4YNLSRBANTXFW
        state: change
        changes: [{path: limits.connections, from: unlimited, to: 500}]
        closes: [{reason: more connections than the new limit of 500, count: 12}]
        streams: {count: 0, bytes: 0, names: []}
        warnings: []
        problems: []
    problems: []
    incomplete: []
summary:
  description: The plan in one line.
  returned: success
  type: str
  sample: 1 change, 4 same; closes 12 connections
lines:
  description: The plan as readable text.
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

import time
from collections.abc import Mapping
from typing import Any

from ..module_utils.accounts.plan import make_plan, plan_page, summary
from ..module_utils.accounts.run_claims import desired_document, read_accounts
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client
from ..module_utils.nats.system_api import SystemApi


def plan(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    document = desired_document(params["document"])
    state = read_accounts(SystemApi(client), params["expected_servers"], time.time())
    found = make_plan(document, state.evaluations, state.trust, state.live, state.unread)
    return {"changed": False, "plan": found, "summary": summary(found), **plan_page(found).as_dict()}


def main() -> None:
    module = make_module(
        {
            "document": {"type": "raw", "required": True},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
        }
    )
    run(module, with_client, lambda client: plan(client, module.params))


if __name__ == "__main__":
    main()
