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
  - Brings a stream to the desired configuration, and sees by reading again that the servers have it and that its group is
    whole and in step. Knows every key of the server's own stream configuration up to nats-server 2.15.
  - Needs a user of the owning account, or one of the system account together with O(account) and O(account_users).
  - An option that is not given stays as it is on an existing stream, and gets the server's default on a new one. An empty value
    (an empty string, list or dictionary, V(0), and V(-1) for limits) sets an option back to the server's default.
    A dictionary or list replaces the whole old value.
  - What a stream cannot change, such as its storage, is refused with the old and new values, before anything is done.
  - What could lose messages, protection or readers is refused unless O(allow) names it, before anything is done.
  - An option that the servers do not know yet is refused with the version that it needs, before anything is done.
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
      - The servers' own validation of what can be combined, and of free servers and limits, happens only in a real run.
  diff_mode:
    support: full
    details:
      - Shows the keys that differ, in the server's words and units.
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
      - For V(absent) and V(purged) no other option of the configuration counts than O(metadata), which may tell that the
        stream is the task's own.
    type: str
    choices: [present, absent, purged]
    default: present
  purge:
    description:
      - Which messages O(state=purged) removes; without it, all.
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
    description: What the stream is for.
    type: str
  subjects:
    description:
      - Subjects whose messages are stored. Their order has no meaning.
      - Default on a new stream is the stream's name, and nothing for mirrors and streams with sources.
    type: list
    elements: str
  retention:
    description:
      - Until when messages are kept. V(limits) and V(interest) can be changed into each other, V(workqueue) is for ever.
    type: str
    choices: [limits, interest, workqueue]
  max_consumers:
    description: Greatest number of consumers, V(-1) for any. Can be changed from 2.12.15 and 2.14.
    type: int
  max_msgs:
    description: Greatest number of messages, V(-1) for any.
    type: int
  max_bytes:
    description:
      - Greatest size of all messages, V(-1) for any. Such as V(10GiB) or V(512MB). A bare number is bytes.
      - As in nats-server's configuration C(KB), C(MB), C(GB) and C(KiB), C(MiB), C(GiB) are powers of 1024, and C(K), C(M), C(G)
        powers of 1000.
    type: str
  max_age:
    description:
      - Greatest age of a message, V(0) for any. Such as V(90s), V(24h), V(1d), V(2w) or V(1y). A bare number is seconds.
    type: str
  max_msgs_per_subject:
    description: Greatest number of messages of each subject, V(-1) for any.
    type: int
  max_msg_size:
    description: Greatest size of one message, V(-1) for any; units as in O(max_bytes).
    type: str
  discard:
    description: Whether a full stream removes its oldest messages or refuses new ones.
    type: str
    choices: [old, new]
  discard_new_per_subject:
    description: With O(discard=new), whether O(max_msgs_per_subject) refuses new messages too.
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
    description: Whether publishers get no acknowledgement.
    type: bool
  duplicate_window:
    description:
      - How long a message's id is remembered; units as in O(max_age).
      - The server's default is V(2m), or O(max_age) where that is shorter. Where O(max_age) becomes shorter than the window, the
        window follows.
    type: str
  placement:
    description:
      - Where the replicas are. A change moves them, and waits until every replica is in step.
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
      - The stream that this one is a copy of. Cannot be changed, and from 2.12 be ended with an empty dictionary.
    type: dict
    suboptions: &source
      name:
        description: Name of the origin stream. Must be given.
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
        description: Copy messages of these subjects only, and store them under others.
        type: list
        elements: dict
        suboptions:
          src:
            description: Subject to copy.
            type: str
          dest:
            description: Subject to store it under. Must be given.
            type: str
      external:
        description: How to reach an origin in another account or domain.
        type: dict
        suboptions:
          api:
            description: Prefix of the origin's API, such as V($JS.hub.API) for the domain C(hub). Must be given.
            type: str
          deliver:
            description: Prefix of the subjects that messages are delivered on.
            type: str
      consumer:
        description: A durable consumer of the origin, made before, to copy by (2.14).
        type: dict
        suboptions:
          name:
            description: Name of the consumer. Must be given.
            type: str
          deliver_subject:
            description: Its deliver subject. Must be given.
            type: str
  sources:
    description:
      - The streams whose messages are copied into this one. Their order has no meaning.
    type: list
    elements: dict
    suboptions: *source
  compression:
    description: How stored messages are compressed.
    type: str
    choices: [none, s2]
  first_seq:
    description:
      - Sequence of the first message. Only for a new stream; a server would take it later too, and remove all older messages when
        it starts the next time.
    type: int
  subject_transform:
    description: Under which subject messages are stored.
    type: dict
    suboptions:
      src:
        description: Subjects to change, all of them without it.
        type: str
      dest:
        description: The new subject. Must be given.
        type: str
  republish:
    description: Under which subject stored messages are published again.
    type: dict
    suboptions:
      src:
        description: Subjects to publish again, all of them without it.
        type: str
      dest:
        description: The subject to publish under. Must be given.
        type: str
      headers_only:
        description: Whether messages are published without their data.
        type: bool
  allow_direct:
    description: Whether every replica answers direct reads.
    type: bool
  mirror_direct:
    description: Whether a mirror answers direct reads for its origin. Follows the origin's O(allow_direct) where that is known.
    type: bool
  sealed:
    description: Whether the stream is closed for ever. Not for a new stream; needs V(irreversible) in O(allow).
    type: bool
  deny_delete:
    description: Whether single messages cannot be deleted. Cannot be taken back.
    type: bool
  deny_purge:
    description: Whether the stream cannot be purged. Cannot be taken back.
    type: bool
  allow_rollup_hdrs:
    description: Whether a message with the header C(Nats-Rollup) replaces all older ones.
    type: bool
  consumer_limits:
    description: What consumers get that do not say otherwise, and may not exceed.
    type: dict
    suboptions:
      inactive_threshold:
        description: After how long an unused consumer is removed; units as in O(max_age).
        type: str
      max_ack_pending:
        description: Greatest number of messages that are delivered and not acknowledged.
        type: int
  allow_msg_ttl:
    description: Whether messages may have a time to live of their own (2.11). Cannot be taken back.
    type: bool
  subject_delete_marker_ttl:
    description:
      - How long a marker tells that a subject's last message went away by its age (2.11); units as in O(max_age).
        Turns on O(allow_msg_ttl) and O(allow_rollup_hdrs).
    type: str
  allow_msg_counter:
    description: Whether the stream holds counters (2.12). Only for a new stream.
    type: bool
  allow_atomic:
    description: Whether batches may be published whole or not at all (2.12).
    type: bool
  allow_msg_schedules:
    description: Whether messages may be scheduled (2.12). Turns on O(allow_rollup_hdrs). Cannot be taken back.
    type: bool
  persist_mode:
    description:
      - Whether an acknowledgement may come before the message is written to disk (V(async), 2.12). Only for a new stream.
    type: str
    choices: [default, async]
  allow_batched:
    description: Whether batches may be published fast (2.14).
    type: bool
  metadata:
    description:
      - Keys and values of your own. Keys that begin with C(_nats.) are the server's, and left alone.
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
- name: Orders are kept for a day, on three servers
  natsops.jetstream.nats_stream:
    stream: ORDERS
    subjects: [orders.>]
    max_age: 1d
    max_bytes: 64MiB
    num_replicas: 3
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: A copy of the orders of one shop, by a user of the system account
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

- name: Keep only an hour of orders, and accept that older ones go away at once
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
  description: The configuration before, in the server's words; null when there was no such stream.
  returned: success
  type: dict
  sample: {name: ORDERS, subjects: ["orders.>"], max_age: 86400000000000, num_replicas: 1}
after:
  description: The configuration afterwards, as read again; in check mode as it would be. Null when there is no such stream.
  returned: success
  type: dict
  sample: {name: ORDERS, subjects: ["orders.>"], max_age: 86400000000000, num_replicas: 3}
dangers:
  description: What was dangerous about the change, and was allowed.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: "max_msgs: 10 removes 990 of 1000 messages"}]
purged:
  description: How many messages were removed; null in check mode.
  returned: O(state=purged)
  type: int
  sample: 990
waited:
  description: Seconds that the run took, with the wait until its success was seen.
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
