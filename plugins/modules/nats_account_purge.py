#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_account_purge
short_description: Delete all streams of an account
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Deletes all streams and consumers of an account with their messages, as a user of the system account. A user of the
    account itself is not needed, so the module also removes the remains of a deleted account.
  - O(streams) must contain exactly the names of the account's streams, and every server must report its streams;
    otherwise the module deletes nothing.
  - The role C(natsops) of a signing key does not permit this request. Use a different user of the system account.
  - Create a backup with M(natsops.jetstream.nats_backup) first if the messages may be needed.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the names of the streams.
  idempotent:
    support: partial
    details:
      - With O(unlisted), the module reports a change in each run.
options:
  account:
    description: The account, given by name or, in operator mode, by public key.
    type: str
    required: true
  streams:
    description: The names of all streams of the account, as confirmation.
    type: list
    elements: str
    required: true
  unlisted:
    description:
      - Whether the request is sent although no server reports a stream of the account. After an account was deleted, its
        streams stay on the disks, and the health checks of the servers fail after a restart.
    type: bool
    default: false
  allow:
    description: The dangers that are accepted. The purge needs V(data_loss).
    type: list
    elements: str
    choices: [data_loss]
    default: []
  wait_timeout:
    description: Seconds to wait until no server reports a stream of the account.
    type: float
    default: 300
seealso:
  - module: natsops.jetstream.nats_stream
  - module: natsops.jetstream.nats_stream_info
"""

EXAMPLES = r"""
- name: Delete the two streams of the old shop
  natsops.jetstream.nats_account_purge:
    account: OLD_SHOP
    streams: [ORDERS, INVOICES]
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
"""

RETURN = r"""
before:
  description: The number of messages of each stream before the purge.
  returned: success
  type: dict
  sample: {ORDERS: 310, INVOICES: 12}
after:
  description: The streams after the purge, which is empty.
  returned: success
  type: dict
  sample: {}
dangers:
  description: The dangers that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: 2 streams with 322 messages are deleted}]
waited:
  description: Seconds that the run took, including the verification.
  returned: success
  type: float
  sample: 1.2
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.change_rules import DATA_LOSS
from ..module_utils.assets.run_account_purge import AccountPurge, ensure_account_purged
from ..module_utils.assets.state import RunOptions
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    run_options = RunOptions.of(params, check_mode)
    purge = AccountPurge(client, params["account"])
    return ensure_account_purged(purge, params["streams"], params["unlisted"], run_options)


def main() -> None:
    module = make_module(
        {
            "account": {"type": "str", "required": True},
            "streams": {"type": "list", "elements": "str", "required": True},
            "unlisted": {"type": "bool", "default": False},
            "allow": {"type": "list", "elements": "str", "choices": [DATA_LOSS], "default": []},
            "wait_timeout": {"type": "float", "default": 300},
        }
    )
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
