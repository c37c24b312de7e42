#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_account_claims_info
short_description: Read and compare every server's copy of the account JWTs in operator mode
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the JWT of each account from every server, verifies its signature, decodes its claims, and compares the
    copies. The module needs a user of the system account, but no seed.
  - For each account, the module returns the limits, keys, exports and imports in words and units. The module also
    returns whether all servers have the same JWT, whether their operator signed the JWT, when the JWT expires, and
    which claims of the JWT servers reject or ignore.
  - A server stores every JWT that it receives and does not check who signed it. A server that does not trust the signer
    continues to use the previous JWT until its next restart. The module therefore reads both the stored copies and
    those in force.
  - The JWTs themselves are not returned. C(copies) in RV(accounts) identifies each copy by a digest.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
requirements:
  - nkeys
options:
  account:
    description:
      - Read only this account, by name or public key. If several accounts share the name, the module fails and lists
        their keys. The result is empty if the account does not exist.
    type: str
  expected_servers:
    description:
      - Names of servers that must answer. Servers that do not answer are listed in RV(missing), and their copies are
        unknown.
    type: list
    elements: str
    default: []
notes:
  - Servers with a full resolver return their stored copies; servers with a cache resolver return only the keys of the
    accounts that they store. With the resolvers MEMORY and URL, a server reports only the accounts that have been
    used since it started.
  - Replies that contain stored copies do not name the server that sent them, so the module only counts the servers
    that store each copy. For the copies in force, the module returns the names of the servers.
seealso:
  - module: natsops.jetstream.nats_account_info
"""

EXAMPLES = r"""
- name: Read the claims of all accounts from every server
  natsops.jetstream.nats_account_claims_info:
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
    expected_servers: [n1-c1, n2-c1, n3-c1]
  register: claims

- name: Refuse to continue with a problem in any of them
  ansible.builtin.assert:
    that: claims.problems | length == 0 and claims.missing | length == 0
    fail_msg: "{{ claims.problems | join('\n') }}"

- name: Show the accounts that may store data
  ansible.builtin.debug:
    msg: "{{ item.name }}: {{ item.claims.limits.jetstream }}"
  loop: "{{ claims.accounts | selectattr('claims') | rejectattr('claims.limits.jetstream', 'equalto', 'none') | list }}"
  loop_control:
    label: "{{ item.name }}"
"""

RETURN = r"""
operators:
  description:
    - The operators in the servers' configuration, each with the names of its servers. Empty if the servers are not in
      operator mode.
    - Settings with default values are omitted.
  returned: success
  type: list
  elements: dict
  sample:
    - name: ACME
      id: OCGDSY6P5UEB4RIVFHYVGYQ4DHVNVWDYHGGRAKOG4FUL3BQNJBMIAQNW
      system_account: ADF6ISPAT2X7VEYMYBOV75RNJOWNVUTHH6ZZHKAAZHTNV4DR7XO36UKN
      strict_signing_keys: true
      signing_keys: [OBYHXMZVPKKU7EZN2WBW5IN2HOSRHQ6LKJ7FE7IKZSCBDUQHA3CASMMM]
      servers: [n1-c1, n2-c1, n3-c1]
accounts:
  description:
    - The accounts, sorted by public key. C(claims) contains the claims of the trusted copy that most servers have, in
      the terms of the accounts document. Every limit is included; other default values are omitted. C(claims),
      C(name), C(issuer) and C(issued) are null if no copy can be read.
    - C(agree) is true if all servers have the same copy, both stored and in force. C(trusted) is true if the copy was
      signed with a key of the servers' operator.
    - C(stored) is the number of servers with a full resolver that store the copy; C(in_force) lists the servers that
      use the copy.
    - C(activations) lists the permissions for private imports.
  returned: success
  type: list
  elements: dict
  sample:
    - account: ACD6RSYQSFDB3BN7QGHKUDESMOUH3NIYFWBOH5V6WIC4YNLSRBANTXFW
      name: ORDERS
      agree: true
      trusted: true
      issuer: OBYHXMZVPKKU7EZN2WBW5IN2HOSRHQ6LKJ7FE7IKZSCBDUQHA3CASMMM
      issued: "2026-11-20T10:00:00Z"
      expires: null
      claims:
        limits:
          connections: 500
          leaf: none
          subscriptions: unlimited
          payload: 1MiB
          data: unlimited
          imports: unlimited
          exports: unlimited
          jetstream:
            R3: {disk: 100GiB, memory: none, streams: 20, consumers: unlimited, max_ack_pending: unlimited,
                 disk_max_stream_bytes: unlimited, memory_max_stream_bytes: unlimited, require_max_bytes: true}
        exports: [{subject: orders.events.>, type: stream}]
      activations: []
      copies:
        - digest: 4f2c0a9be1d37a55
          issued: "2026-11-20T10:00:00Z"
          issuer: OBYHXMZVPKKU7EZN2WBW5IN2HOSRHQ6LKJ7FE7IKZSCBDUQHA3CASMMM
          stored: 3
          in_force: [n1-c1, n2-c1, n3-c1]
      problems: []
problems:
  description: The problems of the operators and of all accounts, as readable text.
  returned: success
  type: list
  elements: str
  sample: ["account ORDERS: servers disagree: the account is not stored on n3-c1"]
stores:
  description: Names of the servers that store account JWTs in a directory (full and cache resolvers).
  returned: success
  type: list
  elements: str
  sample: [n1-c1, n2-c1, n3-c1]
missing:
  description: Servers in O(expected_servers) that did not answer.
  returned: success
  type: list
  elements: str
  sample: []
incomplete:
  description: Servers that did not answer a request. The copies on these servers are unknown.
  returned: success
  type: list
  elements: dict
  sample: []
"""

import time
from collections.abc import Mapping
from typing import Any

from ..module_utils.accounts.copies import account_row
from ..module_utils.accounts.run_copies import read_copies
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.account_names import is_account_key, one_account
from ..module_utils.nats.client import Client
from ..module_utils.nats.system_api import SystemApi


def read(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    wanted = params["account"]
    key = wanted if wanted and is_account_key(wanted) else None
    reading = read_copies(SystemApi(client), params["expected_servers"], key)
    trust, evaluations = reading.evaluated(time.time())
    rows = [account_row(one) for one in evaluations]
    if wanted:
        one = one_account({row["account"]: row["name"] or "" for row in rows}, wanted)
        rows = [row for row in rows if row["account"] == one]
    return {
        "changed": False,
        "operators": trust.as_rows(),
        "accounts": rows,
        "problems": [
            *trust.problems,
            *(f"account {row['name'] or row['account']}: {problem}" for row in rows for problem in row["problems"]),
        ],
        "stores": list(reading.stores),
        "missing": list(reading.missing),
        "incomplete": list(reading.incomplete),
    }


def main() -> None:
    module = make_module(
        {
            "account": {"type": "str"},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
        }
    )
    run(module, with_client, lambda client: read(client, module.params))


if __name__ == "__main__":
    main()
