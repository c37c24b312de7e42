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
  - Brings a stream to the desired configuration, then reads the configuration back to verify that the servers have
    applied it and that all replicas exist and are in step. Supports every key of the server's own stream configuration
    up to nats-server 2.15.
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
  - An omitted option remains unchanged on an existing stream, and gets the server's default on a new one. An empty
    value (an empty string, list or dictionary, V(0), and V(-1) for limits) resets an option to the server's default. A
    dictionary or list replaces the old value completely.
  - Changes that are impossible for an existing stream, such as a change of its storage, are refused before anything is
    done. The message contains the old and new values.
  - Changes that could lose messages, reduce the number of replicas or cut off consumers are refused before anything is
    done, unless O(allow) permits them.
  - An option that the servers do not support is refused before anything is done. The message contains the version that
    the option needs.
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
      - Shows which settings differ, with the names and units that the server uses.
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
      - V(purged) removes messages of the existing stream (see O(purge)), and needs V(data_loss) in O(allow).
      - With V(absent) and V(purged), all configuration options except O(metadata) are ignored. O(metadata) may show
        that the task owns the stream.
    type: str
    choices: [present, absent, purged]
    default: present
  purge:
    description:
      - Which messages O(state=purged) removes; refused with another O(state). By default, all messages are removed.
    type: dict
    suboptions:
      filter:
        description: Remove only messages of this subject, which may contain wildcards.
        type: str
      seq:
        description: Remove only messages before this sequence.
        type: int
      keep:
        description: Number of newest messages to keep; all others are removed. Cannot be combined with O(purge.seq).
        type: int
      sequences:
        description:
          - Remove only the messages with these sequences, and overwrite their data on the disk. Each message must match
            O(purge.filter), which is required, so a mistyped sequence is refused.
          - Cannot be combined with O(purge.seq) and O(purge.keep).
        type: list
        elements: int
      expected:
        description:
          - Number of messages that you expect to remove. The task fails with the code V(conflict) if a different number
            matches. Messages stored later are not removed.
          - Cannot be verified with both O(purge.filter) and O(purge.seq).
        type: int
  description:
    description: Purpose of the stream.
    type: str
  subjects:
    description:
      - Subjects whose messages are stored. The order of the subjects is irrelevant.
      - Defaults to the stream's name on a new stream, and to none for mirrors and streams with sources.
    type: list
    elements: str
  retention:
    description:
      - How long messages are kept. V(limits) can be changed to V(interest) and vice versa; V(workqueue) is permanent.
    type: str
    choices: [limits, interest, workqueue]
  max_consumers:
    description: Maximum number of consumers; V(-1) for no limit. This option can be changed only on 2.12.15, 2.14 and
      later.
    type: int
  max_msgs:
    description: Maximum number of messages; V(-1) for no limit.
    type: int
  max_bytes:
    description:
      - Maximum total size of all messages, such as V(10GiB) or V(512MB); V(-1) for no limit. A bare number is in bytes.
      - As in nats-server's configuration, C(KB), C(MB), C(GB), C(KiB), C(MiB) and C(GiB) are powers of 1024, and C(K),
        C(M) and C(G) are powers of 1000.
    type: str
  max_age:
    description:
      - Maximum age of a message, such as V(90s), V(24h), V(1d), V(2w) or V(1y); V(0) for no limit. A bare number is in
        seconds.
    type: str
  max_msgs_per_subject:
    description: Maximum number of messages of each subject; V(-1) for no limit.
    type: int
  max_msg_size:
    description: Maximum size of a message, in the units of O(max_bytes); V(-1) for no limit.
    type: str
  discard:
    description: Whether a full stream removes its oldest messages or rejects new ones.
    type: str
    choices: [old, new]
  discard_new_per_subject:
    description: With O(discard=new), whether new messages are also rejected when O(max_msgs_per_subject) is reached.
    type: bool
  storage:
    description: Where messages are stored. The storage of an existing stream cannot be changed.
    type: str
    choices: [file, memory]
  num_replicas:
    description:
      - Number of replicas, 1 to 5. After a change, the module waits until every replica is in step.
      - A change is refused while the group has no leader, is being moved, or has replicas that are behind.
    type: int
  no_ack:
    description: Whether published messages are stored without an acknowledgement.
    type: bool
  duplicate_window:
    description:
      - How long the id of a message is remembered to detect duplicates, in the units of O(max_age).
      - Defaults to V(2m), or to O(max_age) if that is shorter. If O(max_age) is reduced below the window, the window is
        also reduced.
    type: str
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
  mirror:
    description:
      - The stream that this stream mirrors. The mirrored stream cannot be changed; from 2.12 on, an empty dictionary
        ends the mirroring.
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
        description: Copy only messages of this subject.
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
            description: Subject under which to store the message. Required.
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
        description: An existing durable consumer of the origin stream, through which its messages are copied (2.14 and
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
      - The streams whose messages are copied into this stream. The order of the sources is irrelevant.
    type: list
    elements: dict
    suboptions: *source
  compression:
    description: How stored messages are compressed.
    type: str
    choices: [none, s2]
  first_seq:
    description:
      - Sequence of the first message. Allowed only for a new stream. For an existing stream, a server would accept this
        option and remove all older messages at its next start.
    type: int
  subject_transform:
    description: Subject under which messages are stored.
    type: dict
    suboptions:
      src:
        description: Subjects to change. By default, all subjects.
        type: str
      dest:
        description: The new subject. Required.
        type: str
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
  allow_direct:
    description: Whether every replica responds to direct reads.
    type: bool
  mirror_direct:
    description: Whether a mirror responds to direct reads of its origin. Defaults to the O(allow_direct) of the origin,
      if known.
    type: bool
  sealed:
    description: Whether the stream is closed permanently. A new stream cannot be sealed. Sealing an existing stream
      needs V(irreversible) in O(allow).
    type: bool
  deny_delete:
    description: Whether deleting single messages is forbidden. Once enabled, this option cannot be disabled.
    type: bool
  deny_purge:
    description: Whether purging the stream is forbidden. Once enabled, this option cannot be disabled.
    type: bool
  allow_rollup_hdrs:
    description: Whether a message with the header C(Nats-Rollup) replaces all older messages.
    type: bool
  consumer_limits:
    description: Defaults and upper limits for consumers.
    type: dict
    suboptions:
      inactive_threshold:
        description: Time after which an unused consumer is removed, in the units of O(max_age).
        type: str
      max_ack_pending:
        description: Maximum number of delivered messages that have not been acknowledged.
        type: int
  allow_msg_ttl:
    description: Whether messages may have their own time to live (2.11 and later). Once enabled, this option cannot be
      disabled.
    type: bool
  subject_delete_marker_ttl:
    description:
      - How long delete markers are kept for subjects whose last message has expired (2.11 and later), in the units of
        O(max_age). This option also turns on O(allow_msg_ttl) and O(allow_rollup_hdrs).
    type: str
  allow_msg_counter:
    description: Whether the stream contains counters (2.12 and later). Can be set only for a new stream.
    type: bool
  allow_atomic:
    description: Whether batches of messages may be published atomically (2.12 and later).
    type: bool
  allow_msg_schedules:
    description: Whether messages may be scheduled (2.12 and later). This option also turns on O(allow_rollup_hdrs).
      Once enabled, scheduling cannot be disabled.
    type: bool
  persist_mode:
    description:
      - Whether a message may be acknowledged before it is written to disk (V(async), 2.12 and later). Can be set only
        for a new stream.
    type: str
    choices: [default, async]
  allow_batched:
    description: Whether fast batch publishing to the stream is allowed (2.14 and later).
    type: bool
  metadata:
    description:
      - Your own keys and values. Keys that begin with C(_nats.) are reserved for the server and remain unchanged.
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

- name: Delete one message, if it belongs to Berlin
  natsops.jetstream.nats_stream:
    stream: ORDERS
    state: purged
    purge:
      sequences: [17]
      filter: orders.berlin.>
      expected: 1
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
  description: The configuration before the change, with nats-server's own keys. Null if the stream did not exist.
  returned: success
  type: dict
  sample: {name: ORDERS, subjects: ["orders.>"], max_age: 86400000000000, num_replicas: 1}
after:
  description: The configuration after the change, as read from the servers; in check mode, as planned. Null if the
    stream does not exist.
  returned: success
  type: dict
  sample: {name: ORDERS, subjects: ["orders.>"], max_age: 86400000000000, num_replicas: 3}
dangers:
  description: Dangers of the change that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: "max_msgs: 10 removes 990 of 1000 messages"}]
purged:
  description: Number of messages removed; in check mode, the number that would be removed, or null if they cannot be
    counted.
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

from ..module_utils.assets.config import STREAM_FIELDS, argument_spec
from ..module_utils.assets.run_purge import ensure_purged, selected
from ..module_utils.assets.state import (
    COMMON_SPEC,
    RunOptions,
    StreamAsset,
    desired_config,
    ensure_absent,
    ensure_present,
    require_state,
)
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.jetstream_api import require_name


def ensure(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    require_state(params, purge="purged")
    name = require_name("stream", params["stream"])
    run_options = RunOptions.of(params, check_mode)
    desired = desired_config(STREAM_FIELDS, params)
    asset = StreamAsset(connections.account(params["account"]), name)
    if params["state"] == "absent":
        return ensure_absent(asset, desired, run_options)
    if params["state"] == "purged":
        expected = (params["purge"] or {}).get("expected")
        return ensure_purged(asset, selected(params["purge"]), desired, run_options, expected)
    return ensure_present(asset, desired, run_options)


def main() -> None:
    module = make_module(
        {
            "stream": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "purged"], "default": "present"},
            "purge": {
                "type": "dict",
                "options": {
                    "filter": {"type": "str"},
                    "seq": {"type": "int"},
                    "keep": {"type": "int"},
                    "sequences": {"type": "list", "elements": "int"},
                    "expected": {"type": "int"},
                },
                "mutually_exclusive": [("seq", "keep", "sequences")],
                "required_by": {"sequences": "filter"},
            },
            **argument_spec(STREAM_FIELDS),
            **COMMON_SPEC,
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
