#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_kv_entry
short_description: Write and delete an entry of a key-value bucket
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Gives a key of a key-value bucket the desired value, or deletes it. An unchanged value is not written again, because
    each write costs a value of the history.
  - The write is conditional on the revision that the module has read, so it never overwrites a concurrent change of a
    different client.
  - Needs a user of the owning account that may publish to C($KV.<bucket>.<key>), or a user of the system account
    together with O(account) and O(account_users). The role C(natsops) of a signing key does not permit this.
  - Do not manage keys that an application writes.
  - The diff contains fingerprints instead of values, because values may be secret. Set C(no_log) on the task if the
    value must not appear in the log of the task's arguments.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.assets
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows fingerprints (SHA-256) of the values.
  idempotent:
    support: full
options:
  bucket:
    description: Name of the bucket, which must exist.
    type: str
    required: true
  key:
    description: The key. Wildcards are not allowed.
    type: str
    required: true
  state:
    description:
      - V(present) writes O(value). V(absent) writes a delete marker, so the bucket keeps earlier values if its history is
        longer than one.
      - V(purged) deletes the key and its history, and leaves only a delete marker.
      - V(purged), and V(absent) in a bucket without history, need V(data_loss) in O(allow).
    type: str
    choices: [present, absent, purged]
    default: present
  value:
    description: The value. Required if O(state=present) and O(value_base64) is not set.
    type: str
  value_base64:
    description: The value in base64, for values that are not text.
    type: str
  overwrite:
    description: Whether an existing value is replaced. V(false) only creates the key if it has no value.
    type: bool
    default: true
  expected_revision:
    description: The revision that you have seen; V(0) if the key did not exist. The task fails with the code V(conflict)
      if a change is needed and the key has a different revision.
    type: int
  ttl:
    description:
      - How long the value or the delete marker is kept, such as V(90s) or V(1d). A bare number is in seconds.
      - Needs nats-server 2.11 and a bucket with O(natsops.jetstream.nats_kv_bucket#module:limit_marker_ttl). The TTL of an
        unchanged value is not renewed.
    type: str
seealso:
  - module: natsops.jetstream.nats_kv_entry_info
  - module: natsops.jetstream.nats_kv_bucket
"""

EXAMPLES = r"""
- name: Set the rate limit
  natsops.jetstream.nats_kv_entry:
    bucket: settings
    key: limits.rate
    value: "10"
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Set a first value that the application may change later
  natsops.jetstream.nats_kv_entry:
    bucket: settings
    key: mode
    value: normal
    overwrite: false
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Delete the rate limit and its history
  natsops.jetstream.nats_kv_entry:
    bucket: settings
    key: limits.rate
    state: purged
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
before:
  description: The entry before the change, with a fingerprint of its value. Null if the key never existed.
  returned: success
  type: dict
  sample: {revision: 7, operation: put, value: "sha256:4a44dc15364204a8"}
after:
  description: The entry after the change; in check mode, its revision is null.
  returned: success
  type: dict
  sample: {revision: 9, operation: put, value: "sha256:2b4c342f5433ebe5"}
revision:
  description: The revision of the key, 0 if it never existed. Null in check mode if the entry would change.
  returned: success
  type: int
  sample: 9
dangers:
  description: Dangers of the change that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: the value of limits.rate is deleted and no history is kept}]
waited:
  description: Seconds that the run took.
  returned: success
  type: float
  sample: 0.1
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.run_entries import Bucket, EntryRequest, ensure_entry
from ..module_utils.assets.state import COMMON_SPEC, RunOptions
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.units import parse_duration


def ensure(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    run_options = RunOptions.of(params, check_mode)
    try:
        ttl = parse_duration(params["ttl"]) if params["ttl"] else 0
        encoded = params["value_base64"]
        value = base64.b64decode(encoded, validate=True) if encoded is not None else (params["value"] or "").encode()
    except binascii.Error as error:
        raise NatsFailure("invalid_option", f"value_base64: {error}") from error
    except ValueError as error:
        raise NatsFailure("invalid_option", f"ttl: {error}") from error
    if ttl != int(ttl):
        raise NatsFailure("invalid_option", f"ttl: {params['ttl']} must be an integer number of seconds")
    request = EntryRequest(
        params["key"],
        value if params["state"] == "present" else None,
        params["state"] == "purged",
        params["overwrite"],
        params["expected_revision"],
        int(ttl),
    )
    return ensure_entry(Bucket(connections.account(params["account"]), params["bucket"]), request, run_options)


def main() -> None:
    module = make_module(
        {
            "bucket": {"type": "str", "required": True},
            "key": {"type": "str", "required": True, "no_log": False},
            "state": {"type": "str", "choices": ["present", "absent", "purged"], "default": "present"},
            "value": {"type": "str"},
            "value_base64": {"type": "str"},
            "overwrite": {"type": "bool", "default": True},
            "expected_revision": {"type": "int"},
            "ttl": {"type": "str"},
            **COMMON_SPEC,
            **ACCOUNT_SPEC,
        },
        mutually_exclusive=[("value", "value_base64")],
        required_if=[("state", "present", ("value", "value_base64"), True)],
    )
    run(module, with_accounts, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
