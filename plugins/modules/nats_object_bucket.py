#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_object_bucket
short_description: Create, change, purge and delete an object bucket
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Brings an object bucket to the desired configuration, then reads the configuration back to verify that the servers
    have applied it and that all replicas exist and are in step. The bucket is a stream like those that NATS clients
    create (ADR-20), so clients can use it immediately.
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
  - An omitted option remains unchanged on an existing bucket, and gets the default on a new one.
  - An empty value (an empty string, list or dictionary, V(0), and V(-1) for limits) resets an option to the default.
    A dictionary or list replaces the old value completely.
  - A change is refused before anything is done if it is impossible, if it is dangerous and O(allow) does not permit it,
    or if the servers do not support it yet.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.assets
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - The servers validate the combination of options, the available servers and the limits only in a real run.
  diff_mode:
    support: full
    details:
      - Shows which settings of the bucket's stream differ, with the names and units that the server uses.
  idempotent:
    support: full
options:
  bucket:
    description: Name of the bucket, which may contain letters, digits, C(_) and C(-).
    type: str
    required: true
  state:
    description:
      - V(present) creates or changes the bucket, V(absent) deletes it with everything in it.
      - V(purged) removes all objects, and needs V(data_loss) in O(allow). Clients that watch the bucket are not notified.
      - With V(absent) and V(purged), all configuration options except O(metadata) are ignored. O(metadata) may show
        that the task owns the bucket.
    type: str
    choices: [present, absent, purged]
    default: present
  description:
    description: Purpose of the bucket.
    type: str
  ttl:
    description:
      - How long an object is kept, such as V(90s), V(24h), V(1d), V(2w) or V(1y); V(0) for no limit. A bare number is
        in seconds.
    type: str
  max_bytes:
    description:
      - Maximum size of the bucket, such as V(10GiB) or V(512MB); V(-1) for no limit. A bare number is in bytes.
      - As in nats-server's configuration, C(KB), C(MB), C(GB), C(KiB), C(MiB) and C(GiB) are powers of 1024, and C(K),
        C(M) and C(G) are powers of 1000.
    type: str
  storage:
    description: Where messages are stored. The storage of an existing bucket cannot be changed.
    type: str
    choices: [file, memory]
  num_replicas:
    description:
      - Number of replicas, 1 to 5. After a change, the module waits until every replica is in step.
      - A change is refused while the group has no leader, is being moved, or has replicas that are behind.
    type: int
  placement:
    description:
      - Where the replicas are placed. A change moves the replicas, and the module waits until all of them are in step.
    type: dict
    suboptions:
      cluster:
        description: Name of the cluster.
        type: str
      tags:
        description: Tags that every server must have.
        type: list
        elements: str
  compression:
    description: How stored messages are compressed.
    type: str
    choices: [none, s2]
  sealed:
    description:
      - Whether the bucket is closed permanently. A new bucket cannot be sealed. Sealing an existing bucket needs
        V(irreversible) in O(allow).
    type: bool
  metadata:
    description:
      - Your own keys and values. Keys that begin with C(_nats.) are reserved for the server and remain unchanged.
    type: dict
seealso:
  - module: natsops.jetstream.nats_stream
  - module: natsops.jetstream.nats_kv_bucket
  - name: Object store
    description: The server's documentation.
    link: https://docs.nats.io/nats-concepts/jetstream/obj_store
"""

EXAMPLES = r"""
- name: Keep reports for a year, on three servers
  natsops.jetstream.nats_object_bucket:
    bucket: reports
    ttl: 1y
    max_bytes: 32MiB
    num_replicas: 3
    compression: s2
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Close the archive permanently
  natsops.jetstream.nats_object_bucket:
    bucket: reports
    ttl: "0"
    sealed: true
    allow: [irreversible]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Delete the bucket with everything in it
  natsops.jetstream.nats_object_bucket:
    bucket: reports
    state: absent
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
before:
  description: The configuration of the bucket's stream before the change, with nats-server's own keys. Null if the
    bucket did not exist.
  returned: success
  type: dict
  sample: {name: OBJ_reports, subjects: ["$O.reports.C.>", "$O.reports.M.>"], num_replicas: 1}
after:
  description: The configuration of the bucket's stream after the change, as read from the servers; in check mode, as
    planned. Null if the bucket does not exist.
  returned: success
  type: dict
  sample: {name: OBJ_reports, subjects: ["$O.reports.C.>", "$O.reports.M.>"], num_replicas: 3}
dangers:
  description: Dangers of the change that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: it holds 12 messages}]
purged:
  description: Number of messages removed; in check mode, the number that would be removed, or null if they cannot be
    counted.
  returned: O(state=purged)
  type: int
  sample: 12
waited:
  description: Seconds that the run took, including the verification.
  returned: success
  type: float
  sample: 0.9
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.buckets import OBJECT_FIELDS, is_object, object_defaults, object_desired, object_stream
from ..module_utils.assets.config import argument_spec
from ..module_utils.assets.run_buckets import ensure_bucket
from ..module_utils.assets.state import COMMON_SPEC
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections


def ensure(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    bucket = params["bucket"]
    return ensure_bucket(
        connections.account(params["account"]),
        params,
        check_mode,
        fields=OBJECT_FIELDS,
        stream=object_stream(bucket),
        label=f"object bucket {bucket}",
        make_desired=object_desired,
        make_defaults=lambda desired: object_defaults(bucket),
        fits=lambda config: is_object(bucket, config),
        select=dict,
    )


def main() -> None:
    module = make_module(
        {
            "bucket": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "purged"], "default": "present"},
            **argument_spec(OBJECT_FIELDS),
            **COMMON_SPEC,
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
