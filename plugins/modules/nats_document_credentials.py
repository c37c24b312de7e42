#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_document_credentials
short_description: Issue and renew the credentials of all users of a document of accounts
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Compares the current credentials of the document's users with the accounts on the servers, and issues new
    credentials to users whose credentials are missing, differ, or expire soon. A renewal keeps the user's key.
  - The playbook C(natsops.jetstream.user_credentials) collects the current credentials from the hosts, and delivers the
    new ones.
  - The module reads the seeds of signing keys, so run it on the controller. It needs a user of the system account, and
    changes nothing on the servers.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Returns the same plan. No credentials are issued, so the result contains no secret.
  diff_mode:
    support: none
    details:
      - RV(users) contains each change.
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
  current:
    description:
      - The current content of the users' files, by C(ACCOUNT/NAME).
    type: dict
    default: {}
  key_directory:
    description:
      - Directory with the seeds of the accounts' signing keys, in the layout of the key store of nsc.
    type: path
    required: true
  replaced_keys:
    description:
      - Public signing keys that are being replaced. Users with credentials of these keys get new ones.
    type: list
    elements: str
    default: []
  expected_servers:
    description:
      - Names of servers that must answer.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_user_credentials
  - module: natsops.jetstream.nats_credential_files
"""

EXAMPLES = r"""
- name: Issue the credentials that are due
  natsops.jetstream.nats_document_credentials:
    document: "{{ lookup('ansible.builtin.file', 'accounts.yml') }}"
    current:
      ORDERS/shop: "{{ vault_shop_credentials }}"
    key_directory: ~/nats-keys
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
  delegate_to: localhost
  register: credentials
  no_log: true
"""

RETURN = r"""
users:
  description:
    - The users of the document. C(state) is V(same), V(issue), V(renew), V(revoked), V(cannot), or V(elsewhere) if the
      document does not name a file.
  returned: success
  type: list
  elements: dict
  sample:
    - user: ORDERS/shop
      state: renew
      reasons: ["they expire at 2026-12-02T12:00:00Z"]
      public_key: UB7UDGJH7ZYKWWNSXXSRJN2I5ETPSXLQ6H7QYRVWEULWHPY3AFICK4NF
      expires: "2026-12-02T12:00:00Z"
      host: localhost
      file: shop.creds
problems:
  description: The users whose credentials cannot be issued, with the reasons.
  returned: success
  type: list
  elements: str
  sample: []
credentials:
  description: The new content of files, by C(ACCOUNT/NAME). Secret. Empty in check mode.
  returned: success
  type: dict
  sample: {}
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

from ..module_utils.accounts.credentials import issue_credentials
from ..module_utils.accounts.key_directory import KeyDirectory
from ..module_utils.accounts.keys import USER
from ..module_utils.accounts.run_claims import desired_document
from ..module_utils.accounts.run_copies import read_copies
from ..module_utils.accounts.seeds import new_key
from ..module_utils.accounts.token import InvalidToken
from ..module_utils.accounts.user_plan import CANNOT, UserPlan, UserState, plan_users, users_page
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.screen import printable


def issued(plan: UserPlan, directory: KeyDirectory, is_strict: bool, now: float) -> str:
    """Return the new .creds file of a user. Raises NatsFailure refused_claims."""
    signer = directory.find(plan.signer)
    if plan.account is None or signer is None:
        raise ValueError(f"{plan.user.label}: the plan has no key")
    key = plan.current.key if plan.current is not None else new_key(USER)
    try:
        return issue_credentials(plan.desired, plan.account, signer, key, is_strict, now).text
    except InvalidToken as error:
        raise NatsFailure("refused_claims", f"{plan.user.label}: servers would refuse the user: {error}") from error


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    document, directory, now = desired_document(params["document"]), KeyDirectory(params["key_directory"]), time.time()
    reading = read_copies(SystemApi(client), params["expected_servers"])
    trust, evaluations = reading.evaluated(now)
    plans = plan_users(
        document,
        UserState(
            evaluations,
            trust.is_strict,
            {str(user): str(text) for user, text in params["current"].items()},
            lambda public: directory.find(public) is not None,
            params["replaced_keys"],
        ),
        now,
    )
    due = [one for one in plans if one.is_due]
    new = {} if check_mode else {one.user.label: issued(one, directory, trust.is_strict, now) for one in due}
    return {
        "changed": bool(due),
        "users": [one.row() for one in plans],
        "problems": [printable(f"{one.user.label}: {'; '.join(one.reasons)}") for one in plans if one.state == CANNOT],
        "credentials": new,
        **users_page(plans).as_dict(),
    }


def main() -> None:
    module = make_module(
        {
            "document": {"type": "raw", "required": True},
            "current": {"type": "dict", "default": {}, "no_log": True},
            "key_directory": {"type": "path", "required": True, "no_log": False},
            "replaced_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
        },
    )
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
