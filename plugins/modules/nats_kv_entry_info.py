#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_kv_entry_info
short_description: Read entries of a key-value bucket with their values and history
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns the last entry of each key that matches, or all entries that the bucket still keeps.
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
  - Values may be secret; set C(no_log) on the task if they must not appear in the log.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  bucket:
    description: Name of the bucket.
    type: str
    required: true
  keys:
    description: Keys to read; the wildcards C(*) and C(>) are allowed. At most 10,000 keys are read.
    type: str
    default: ">"
  history:
    description: Whether all entries that the bucket keeps of each key are read, instead of only the last one.
    type: bool
    default: false
seealso:
  - module: natsops.jetstream.nats_kv_entry
"""

EXAMPLES = r"""
- name: Read one entry
  natsops.jetstream.nats_kv_entry_info:
    bucket: settings
    keys: limits.rate
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
  register: rate

- name: Read all limits with their history
  natsops.jetstream.nats_kv_entry_info:
    bucket: settings
    keys: limits.>
    history: true
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
entries:
  description:
    - The entries, sorted by key and revision. C(operation) is V(put) for a value, and V(delete), V(purge) or V(expired)
      for a delete marker. C(value) is null if the value is not text; C(value_base64) then contains it.
  returned: success
  type: list
  elements: dict
  sample:
    - key: limits.rate
      revision: 7
      operation: put
      created: "2026-11-20T10:00:02Z"
      value: "10"
      value_base64: null
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.run_entries import Bucket, read_entries
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    bucket = Bucket(connections.account(params["account"]), params["bucket"])
    return {"changed": False, "entries": read_entries(bucket, params["keys"], params["history"])}


def main() -> None:
    module = make_module(
        {
            "bucket": {"type": "str", "required": True},
            "keys": {"type": "str", "default": ">", "no_log": False},
            "history": {"type": "bool", "default": False},
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
