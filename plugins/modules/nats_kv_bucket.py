#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_kv_bucket
short_description: Create, change, purge, compact and delete a key-value bucket
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Brings a key-value bucket to the desired configuration, then reads the configuration back to verify that the servers
    have applied it and that all replicas exist and are in step. The bucket is the same stream that NATS clients would
    create (ADR-8), so clients can use it immediately.
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
      - V(purged) removes the keys in O(keys) with their history, and needs V(data_loss) in O(allow). Clients that watch
        the bucket are not notified.
      - V(compacted) removes the history of deleted keys, and their delete markers if they are older than
        O(compact_older_than). Needs V(data_loss) in O(allow).
      - With V(absent), V(purged) and V(compacted), all configuration options except O(metadata) are ignored. O(metadata)
        may show that the task owns the bucket.
    type: str
    choices: [present, absent, purged, compacted]
    default: present
  compact_older_than:
    description: Age from which O(state=compacted) also removes delete markers, in the units of O(ttl). Clients that were
      disconnected for longer do not receive these deletions.
    type: str
    default: 30m
  keys:
    description: Keys that O(state=purged) removes; the wildcards C(*) and C(>) are allowed.
    type: str
    default: ">"
  description:
    description: Purpose of the bucket.
    type: str
  history:
    description: Number of values kept for each key, 1 to 64. Defaults to V(1) on a new bucket.
    type: int
  ttl:
    description:
      - How long a value is kept, such as V(90s), V(24h), V(1d), V(2w) or V(1y); V(0) for no limit. A bare number is in
        seconds.
    type: str
  limit_marker_ttl:
    description:
      - How long delete markers for expired keys are kept (2.11 and later), in the units of O(ttl). Setting this option
        also allows keys with their own time to live.
    type: str
  max_value_size:
    description: Maximum size of one value, in the units of O(max_bytes); V(-1) for no limit.
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
  republish:
    description: Subject under which stored messages are republished.
    type: dict
    suboptions:
      src:
        description: Subjects to republish. By default, all subjects.
        type: str
      dest:
        description: The subject under which to republish. Required.
        type: str
      headers_only:
        description: Whether messages are republished without their data.
        type: bool
  mirror:
    description:
      - The bucket that this bucket mirrors as a read-only copy. The mirrored bucket cannot be changed; from 2.12 on, an
        empty dictionary ends the mirroring.
    type: dict
    suboptions: &source
      name:
        description: Name of the origin bucket. Required.
        type: str
      opt_start_seq:
        description: First sequence to copy.
        type: int
      opt_start_time:
        description: Time (RFC 3339) of the first message to copy.
        type: str
      filter_subject:
        description: Copy only messages on this subject.
        type: str
      subject_transforms:
        description: Copy only messages on these subjects, and store them under different subjects.
        type: list
        elements: dict
        suboptions:
          src:
            description: Subject to copy.
            type: str
          dest:
            description: Subject under which the copied messages are stored. Required.
            type: str
      external:
        description: How to reach an origin in another account or domain.
        type: dict
        suboptions:
          api:
            description: Prefix of the origin's API, such as V($JS.hub.API) for the domain C(hub). Required.
            type: str
          deliver:
            description: Prefix of the subjects on which messages are delivered.
            type: str
      consumer:
        description: An existing durable consumer of the origin bucket, through which its messages are copied (2.14 and
          later).
        type: dict
        suboptions:
          name:
            description: Name of the consumer. Required.
            type: str
          deliver_subject:
            description: Deliver subject of the consumer. Required.
            type: str
  sources:
    description:
      - The buckets whose keys are copied into this one. The order of the buckets is irrelevant.
      - Without C(subject_transforms) and C(filter_subject), the keys of the origin become keys of this bucket.
    type: list
    elements: dict
    suboptions: *source
  metadata:
    description:
      - Your own keys and values. Keys that begin with C(_nats.) are reserved for the server and remain unchanged.
    type: dict
seealso:
  - module: natsops.jetstream.nats_stream
  - module: natsops.jetstream.nats_object_bucket
  - name: Key/value store
    description: The server's documentation.
    link: https://docs.nats.io/nats-concepts/jetstream/key-value-store
"""

EXAMPLES = r"""
- name: Keep settings with the last five values of each key, on three servers
  natsops.jetstream.nats_kv_bucket:
    bucket: settings
    history: 5
    max_value_size: 64KB
    max_bytes: 16MiB
    num_replicas: 3
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Remove every session
  natsops.jetstream.nats_kv_bucket:
    bucket: settings
    state: purged
    keys: session.>
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Remove the remains of keys that were deleted more than a day ago
  natsops.jetstream.nats_kv_bucket:
    bucket: settings
    state: compacted
    compact_older_than: 1d
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Delete the bucket with everything in it
  natsops.jetstream.nats_kv_bucket:
    bucket: settings
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
  sample: {name: KV_settings, subjects: ["$KV.settings.>"], num_replicas: 1}
after:
  description: The configuration of the bucket's stream after the change, as read from the servers or, in check mode,
    as planned. Null if the bucket does not exist.
  returned: success
  type: dict
  sample: {name: KV_settings, subjects: ["$KV.settings.>"], num_replicas: 3}
dangers:
  description: Dangers of the change that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: it holds 12 messages}]
purged:
  description: Number of messages removed; in check mode, the number that would be removed, or null if they cannot be
    counted.
  returned: O(state=purged) or O(state=compacted)
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

from ..module_utils.assets.buckets import KV_FIELDS, is_kv, kv_defaults, kv_desired, kv_selection, kv_stream
from ..module_utils.assets.config import argument_spec
from ..module_utils.assets.run_buckets import ensure_bucket
from ..module_utils.assets.run_entries import Bucket, ensure_compacted
from ..module_utils.assets.state import COMMON_SPEC, RunOptions, desired_config
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections


def ensure(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    bucket, api = params["bucket"], connections.account(params["account"])
    if params["state"] == "compacted":
        desired = desired_config(KV_FIELDS, params)
        return ensure_compacted(
            Bucket(api, bucket), params["compact_older_than"], desired, RunOptions.of(params, check_mode)
        )
    return ensure_bucket(
        api,
        params,
        check_mode,
        fields=KV_FIELDS,
        stream=kv_stream(bucket),
        label=f"key-value bucket {bucket}",
        make_desired=lambda given: kv_desired(bucket, given),
        make_defaults=lambda desired: kv_defaults(bucket, desired),
        fits=lambda config: is_kv(bucket, config),
        select=lambda: kv_selection(bucket, params["keys"]),
    )


def main() -> None:
    module = make_module(
        {
            "bucket": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "purged", "compacted"], "default": "present"},
            "compact_older_than": {"type": "str", "default": "30m"},
            "keys": {"type": "str", "default": ">", "no_log": False},
            **argument_spec(KV_FIELDS),
            **COMMON_SPEC,
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
