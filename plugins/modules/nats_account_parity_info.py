#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_account_parity_info
short_description: Compare accounts between servers with static accounts and servers in operator mode
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - While a cluster moves between static accounts and operator mode, reads the accounts in force on every server, and
    compares JetStream, exports, imports and mappings of each account between the two kinds of servers.
  - The playbook C(natsops.jetstream.deploy) runs this module after each batch of such a move and stops at the first
    difference.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  expected_servers:
    description:
      - Names of servers that must answer.
    type: list
    elements: str
    default: []
notes:
  - A server in operator mode loads an account when the account is first used. Accounts that only one kind of server has
    loaded are listed in RV(not_compared).
seealso:
  - module: natsops.jetstream.nats_account_claims_info
"""

EXAMPLES = r"""
- name: Compare the accounts of both kinds of servers
  natsops.jetstream.nats_account_parity_info:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    credentials: ~/sys.creds
"""

RETURN = r"""
operator_servers:
  description: Names of the servers in operator mode.
  returned: success
  type: list
  elements: str
  sample: [n1-c1]
static_servers:
  description: Names of the servers with static accounts.
  returned: success
  type: list
  elements: str
  sample: [n2-c1, n3-c1]
compared:
  description: Public keys of the accounts that both kinds of servers have loaded.
  returned: success
  type: list
  elements: str
  sample: [AB32YC7KEJXX5ASDRB522JC5PKXCWIKT6P76XMNDA6O2AO4J4NDN4JS4]
not_compared:
  description: Public keys of the accounts that only one kind of server has loaded.
  returned: success
  type: list
  elements: str
  sample: []
problems:
  description: The differences, and the servers that did not answer.
  returned: success
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.accounts.migration import first_of_each_kind, unequal_accounts
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.account_names import is_account_key
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi


def read(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    api = SystemApi(client)
    discovery = api.discover(params["expected_servers"])
    names = {server.id: server.name for server in discovery.servers}
    problems = [f"server {name} did not answer, so its accounts are unknown" for name in discovery.missing]
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for key, answer in api.ask(discovery.servers, "VARZ").items():
        if isinstance(answer, NatsFailure):
            problems.append(f"{names[key]}: VARZ: {answer.description}")
        else:
            kinds[bool(answer.get("trusted_operators_jwt"))].append(names[key])
    replies: dict[str, dict[str, Any]] = {}
    for key, answer in api.ask(discovery.servers, "ACCOUNTZ").items():
        if isinstance(answer, NatsFailure):
            problems.append(f"{names[key]}: ACCOUNTZ: {answer.description}")
            continue
        for account in filter(is_account_key, map(str, answer.get("accounts") or ())):
            if account != answer.get("system_account"):
                replies.setdefault(account, {})[key] = None
    details: dict[str, dict[str, Any]] = {}
    for account, loaded in replies.items():
        servers = [server for server in discovery.servers if server.id in loaded]
        for key, answer in api.ask(servers, "ACCOUNTZ", {"account": account}).items():
            if isinstance(answer, NatsFailure):
                problems.append(f"{names[key]}: ACCOUNTZ of {account}: {answer.description}")
            else:
                details.setdefault(account, {})[names[key]] = answer.get("account_detail") or {}
    compared = sorted(account for account, found in details.items() if len(first_of_each_kind(found)) == 2)
    return {
        "changed": False,
        "operator_servers": sorted(kinds[True]),
        "static_servers": sorted(kinds[False]),
        "compared": compared,
        "not_compared": sorted(set(details) - set(compared)),
        "problems": [*problems, *unequal_accounts(details)],
    }


def main() -> None:
    module = make_module({"expected_servers": {"type": "list", "elements": "str", "default": []}})
    run(module, with_client, lambda client: read(client, module.params))


if __name__ == "__main__":
    main()
