#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream
short_description: Create, change, purge and delete a stream
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Brings a stream to the desired configuration, then reads it again to verify that the servers have it and that its
    group is complete and in step. Supports every key of the server's own stream configuration up to nats-server 2.15.
  - Needs a user of the owning account, or one of the system account together with O(account) and O(account_users).
  - An omitted option is left unchanged on an existing stream, and gets the server's default on a new one. An empty
    value (an empty string, list or dictionary, V(0), and V(-1) for limits) resets an option to the server's default.
    A dictionary or list replaces the old value completely.
  - Changes that a stream does not allow, such as of its storage, are refused with the old and new values before
    anything is done.
  - Changes that could lose messages, protection or readers are refused before anything is done, unless O(allow) names
    them.
  - An option that the servers do not support is refused with the version that it needs, before anything is done.
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
      - The servers check the combination of options, available servers and limits only in a real run.
  diff_mode:
    support: full
    details:
      - Shows the keys that differ, with the server's names and units.
  idempotent:
    support: full
options:
  stream:
    description:
      - Name of the stream.
    type: str
    required: true
  state:
    description:
      - V(present) creates or changes the stream, V(absent) deletes it with its messages and consumers.
      - V(purged) removes messages of the existing stream, see O(purge), and needs V(data_loss) in O(allow).
      - With V(absent) and V(purged), the only other configuration option that counts is O(metadata), which may show
        that the task owns the stream.
    type: str
    choices: [present, absent, purged]
    default: present
  purge:
    description:
      - Which messages O(state=purged) removes. By default all.
    type: dict
    suboptions:
      filter:
        description: Only messages of this subject, which may have wildcards.
        type: str
      seq:
        description: Only messages before this sequence.
        type: int
      keep:
        description: All but this many of the newest messages. Not together with O(purge.seq).
        type: int
  description:
    description: Purpose of the stream.
    type: str
  subjects:
    description:
      - Subjects whose messages are stored. Their order is irrelevant.
      - Defaults to the stream's name on a new stream, and to none for mirrors and streams with sources.
    type: list
    elements: str
  retention:
    description:
      - How long messages are kept. V(limits) and V(interest) can be changed into each other, V(workqueue) is
        permanent.
    type: str
    choices: [limits, interest, workqueue]
  max_consumers:
    description: Maximum number of consumers, V(-1) for no limit. Can only be changed on 2.12.15, 2.14 and later.
    type: int
  max_msgs:
    description: Maximum number of messages, V(-1) for no limit.
    type: int
  max_bytes:
    description:
      - Maximum size of all messages, V(-1) for no limit, such as V(10GiB) or V(512MB). A bare number is bytes.
      - As in nats-server's configuration C(KB), C(MB), C(GB) and C(KiB), C(MiB), C(GiB) are powers of 1024, and C(K), C(M), C(G)
        powers of 1000.
    type: str
  max_age:
    description:
      - Maximum age of a message, V(0) for no limit, such as V(90s), V(24h), V(1d), V(2w) or V(1y). A bare number is
        seconds.
    type: str
  max_msgs_per_subject:
    description: Maximum number of messages of each subject, V(-1) for no limit.
    type: int
  max_msg_size:
    description: Maximum size of one message, V(-1) for no limit; units as in O(max_bytes).
    type: str
  discard:
    description: Whether a full stream removes its oldest messages or rejects new ones.
    type: str
    choices: [old, new]
  discard_new_per_subject:
    description: With O(discard=new), whether O(max_msgs_per_subject) rejects new messages too.
    type: bool
  storage:
    description: Where messages are kept. Cannot be changed.
    type: str
    choices: [file, memory]
  num_replicas:
    description:
      - Number of replicas, 1 to 5. A change waits until every replica is in step.
      - It is refused while the group has no leader, is being moved, or has replicas that are behind.
    type: int
  no_ack:
    description: Whether publishers get no acknowledgements.
    type: bool
  duplicate_window:
    description:
      - How long a message's id is remembered; units as in O(max_age).
      - Defaults to V(2m), or to O(max_age) if that is shorter. If O(max_age) is reduced below the window, the window
        is reduced too.
    type: str
  placement:
    description:
      - Where the replicas are placed. A change moves them, and waits until every replica is in step.
    type: dict
    suboptions:
      cluster:
        description: Name of the cluster.
        type: str
      tags:
        description: Tags that every server must have.
        type: list
        elements: str
  mirror:
    description:
      - The stream that this one mirrors. It cannot be changed; from 2.12 on, an empty dictionary ends the mirroring.
    type: dict
    suboptions: &source
      name:
        description: Name of the origin stream. Required.
        type: str
      opt_start_seq:
        description: First sequence to copy.
        type: int
      opt_start_time:
        description: Time (RFC 3339) of the first message to copy.
        type: str
      filter_subject:
        description: Copy messages of this subject only.
        type: str
      subject_transforms:
        description: Copy only messages of these subjects, and store them under different ones.
        type: list
        elements: dict
        suboptions:
          src:
            description: Subject to copy.
            type: str
          dest:
            description: Subject to store it under. Required.
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
        description: An existing durable consumer of the origin through which to copy (2.14).
        type: dict
        suboptions:
          name:
            description: Name of the consumer. Required.
            type: str
          deliver_subject:
            description: Its deliver subject. Required.
            type: str
  sources:
    description:
      - The streams whose messages are copied into this one. Their order is irrelevant.
    type: list
    elements: dict
    suboptions: *source
  compression:
    description: How stored messages are compressed.
    type: str
    choices: [none, s2]
  first_seq:
    description:
      - Sequence of the first message. Only for a new stream. A server would accept it later too, and remove all older
        messages at its next start.
    type: int
  subject_transform:
    description: Subject under which messages are stored.
    type: dict
    suboptions:
      src:
        description: Subjects to change. By default all.
        type: str
      dest:
        description: The new subject. Required.
        type: str
  republish:
    description: Subject under which stored messages are published again.
    type: dict
    suboptions:
      src:
        description: Subjects to publish again. By default all.
        type: str
      dest:
        description: The subject to publish under. Required.
        type: str
      headers_only:
        description: Whether messages are published without their data.
        type: bool
  allow_direct:
    description: Whether every replica answers direct reads.
    type: bool
  mirror_direct:
    description: Whether a mirror answers direct reads for its origin. Defaults to the origin's O(allow_direct), if
      that is known.
    type: bool
  sealed:
    description: Whether the stream is closed permanently. Not for a new stream; needs V(irreversible) in O(allow).
    type: bool
  deny_delete:
    description: Whether deleting single messages is forbidden. Cannot be reverted.
    type: bool
  deny_purge:
    description: Whether purging the stream is forbidden. Cannot be reverted.
    type: bool
  allow_rollup_hdrs:
    description: Whether a message with the header C(Nats-Rollup) replaces all older ones.
    type: bool
  consumer_limits:
    description: Defaults and upper limits for consumers.
    type: dict
    suboptions:
      inactive_threshold:
        description: Time after which an unused consumer is removed; units as in O(max_age).
        type: str
      max_ack_pending:
        description: Maximum number of delivered messages without an acknowledgement.
        type: int
  allow_msg_ttl:
    description: Whether messages may have their own time to live (2.11). Cannot be reverted.
    type: bool
  subject_delete_marker_ttl:
    description:
      - How long delete markers are kept for subjects whose last message expired (2.11); units as in O(max_age). Turns
        on O(allow_msg_ttl) and O(allow_rollup_hdrs).
    type: str
  allow_msg_counter:
    description: Whether the stream holds counters (2.12). Only for a new stream.
    type: bool
  allow_atomic:
    description: Whether batches may be published atomically (2.12).
    type: bool
  allow_msg_schedules:
    description: Whether messages may be scheduled (2.12). Turns on O(allow_rollup_hdrs). Cannot be reverted.
    type: bool
  persist_mode:
    description:
      - Whether a message may be acknowledged before it is written to disk (V(async), 2.12). Only for a new stream.
    type: str
    choices: [default, async]
  allow_batched:
    description: Whether batches may be published fast (2.14).
    type: bool
  metadata:
    description:
      - Your own keys and values. Keys that begin with C(_nats.) belong to the server and are left alone.
    type: dict
seealso:
  - module: natsops.jetstream.nats_consumer
  - module: natsops.jetstream.nats_kv_bucket
  - module: natsops.jetstream.nats_object_bucket
  - name: Streams
    description: The server's documentation.
    link: https://docs.nats.io/nats-concepts/jetstream/streams
"""

EXAMPLES = r"""
- name: Keep orders for a day, on three servers
  natsops.jetstream.nats_stream:
    stream: ORDERS
    subjects: [orders.>]
    max_age: 1d
    max_bytes: 64MiB
    num_replicas: 3
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Mirror the orders of one shop, as a user of the system account
  natsops.jetstream.nats_stream:
    stream: ORDERS_BERLIN
    mirror:
      name: ORDERS
      filter_subject: orders.berlin.>
    account: APP
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: Keep only an hour of orders, and accept that older ones are removed at once
  natsops.jetstream.nats_stream:
    stream: ORDERS
    max_age: 1h
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Remove all but the newest ten orders of Berlin
  natsops.jetstream.nats_stream:
    stream: ORDERS
    state: purged
    purge:
      filter: orders.berlin.>
      keep: 10
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Delete the stream, which must be empty and unused
  natsops.jetstream.nats_stream:
    stream: ORDERS_BERLIN
    state: absent
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
before:
  description: The configuration before the change, with the server's names. Null if the stream did not exist.
  returned: success
  type: dict
  sample: {name: ORDERS, subjects: ["orders.>"], max_age: 86400000000000, num_replicas: 1}
after:
  description: The configuration afterwards, as read from the servers; in check mode, as planned. Null if the
    stream does not exist.
  returned: success
  type: dict
  sample: {name: ORDERS, subjects: ["orders.>"], max_age: 86400000000000, num_replicas: 3}
dangers:
  description: Dangers of the change that were allowed.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: "max_msgs: 10 removes 990 of 1000 messages"}]
purged:
  description: Number of messages removed. Null in check mode.
  returned: O(state=purged)
  type: int
  sample: 990
waited:
  description: Seconds that the run took, including the verification.
  returned: success
  type: float
  sample: 1.4
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import STREAM_FIELDS, argument_spec
from ansible_collections.natsops.jetstream.plugins.module_utils.module import ACCOUNT_SPEC, make_module, run_connected
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import require_name
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.asset_state import (
    COMMON_SPEC,
    RunOptions,
    StreamAsset,
    desired_config,
    ensure_absent,
    ensure_present,
    ensure_purged,
    selected,
)


def ensure(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    name = require_name("stream", params["stream"])
    run_options = RunOptions.of(params, check_mode)
    desired = desired_config(STREAM_FIELDS, params)
    asset = StreamAsset(connections.account(params["account"]), name)
    if params["state"] == "absent":
        return ensure_absent(asset, desired, run_options)
    if params["state"] == "purged":
        return ensure_purged(asset, selected(params["purge"]), desired, run_options)
    return ensure_present(asset, desired, run_options)


def main() -> None:
    module = make_module(
        {
            "stream": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "purged"], "default": "present"},
            "purge": {
                "type": "dict",
                "options": {"filter": {"type": "str"}, "seq": {"type": "int"}, "keep": {"type": "int"}},
                "mutually_exclusive": [("seq", "keep")],
            },
            **argument_spec(STREAM_FIELDS),
            **COMMON_SPEC,
            **ACCOUNT_SPEC,
        }
    )
    run_connected(module, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
