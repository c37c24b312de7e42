#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_consumer
short_description: Create, change, pause, reset, unpin and delete a durable consumer
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Brings a durable pull or push consumer of a stream to the desired configuration, then reads the configuration back
    to verify that the servers have applied it and that all replicas exist and are in step. Supports the keys of the
    server's consumer configuration up to nats-server 2.15, except those of the servers' own consumers (C(direct),
    C(sourcing)).
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
  - An omitted option remains unchanged on an existing consumer, and gets the server's default on a new one. Only
    O(ack_policy) defaults to V(explicit) on a new consumer, as in every client.
  - An empty value (an empty string, list or dictionary, V(0), and V(-1) for limits) resets an option to the server's
    default. A dictionary or list replaces the old value completely.
  - Changes that are impossible for an existing consumer, such as a change of its starting point, are refused before
    anything is done. The message contains the old and new values.
  - Dangerous changes are refused before anything is done, unless O(allow) permits them. An option that the servers do
    not support is also refused before anything is done, and the message contains the version that the option needs.
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
      - The servers validate the combination of options only in a real run.
  diff_mode:
    support: full
    details:
      - Shows which settings differ, with the names and units that the server uses.
  idempotent:
    support: full
options:
  stream:
    description: Name of the stream.
    type: str
    required: true
  consumer:
    description: Name of the consumer, also used as its durable name.
    type: str
    required: true
  state:
    description:
      - V(present) creates or changes the consumer, V(absent) deletes it with its position in the stream.
      - V(reset) changes the position of the existing consumer (see O(reset)) and needs nats-server 2.14. The task
        changes nothing if the consumer has not delivered anything since.
      - V(unpinned) unpins the clients of the priority groups (see O(unpin)), so the consumer pins the next client that
        requests messages. Needs V(in_use) in O(allow), and nats-server 2.11.
      - With all states except V(present), all configuration options except O(metadata) are ignored. O(metadata) may
        show that the task owns the consumer.
    type: str
    choices: [present, absent, reset, unpinned]
    default: present
  reset:
    description:
      - The new position with O(state=reset); refused with another O(state). By default, the consumer returns to its ack
        floor and delivers the unacknowledged messages again.
    type: dict
    suboptions:
      seq:
        description:
          - Sequence of the first message to deliver. A sequence beyond unacknowledged messages skips these messages,
            which needs V(data_loss) in O(allow).
          - Needs O(deliver_policy) V(all), V(by_start_sequence) or V(by_start_time), and must not precede the
            consumer's start.
        type: int
      expected_delivered:
        description: The last delivered sequence that you have seen. The task fails if the consumer has a different one.
        type: int
  unpin:
    description: Clients that O(state=unpinned) unpins; refused with another O(state). By default, every pinned client.
    type: dict
    suboptions:
      group:
        description: Unpin only the client of this priority group.
        type: str
      client:
        description: Unpin only this client, given by its pin ID (C(pinned_client_id) in
          M(natsops.jetstream.nats_consumer_info)). The second run then changes nothing.
        type: str
  description:
    description: Purpose of the consumer.
    type: str
  deliver_policy:
    description: Where the consumer starts. This setting of an existing consumer cannot be changed.
    type: str
    choices: [all, last, new, by_start_sequence, by_start_time, last_per_subject]
  opt_start_seq:
    description: Sequence of the first message to deliver, with O(deliver_policy=by_start_sequence). Cannot be
      changed.
    type: int
  opt_start_time:
    description: Time (RFC 3339) of the first message to deliver, with O(deliver_policy=by_start_time). Cannot be
      changed.
    type: str
  ack_policy:
    description: Which messages must be acknowledged. V(flow_control) needs 2.14. The policy of an existing consumer
      cannot be changed.
    type: str
    choices: [none, all, explicit, flow_control]
  ack_wait:
    description:
      - Time to wait for an acknowledgement, such as V(30s), V(2m) or V(1h). A bare number is in seconds.
      - If O(backoff) is set, the server uses the first value of O(backoff) instead.
    type: str
  max_deliver:
    description: Maximum number of deliveries of a message; V(-1) for no limit.
    type: int
  backoff:
    description: Time to wait for an acknowledgement after the first, second and each further delivery, in the units of
      O(ack_wait).
    type: list
    elements: str
  filter_subjects:
    description: Deliver only messages on these subjects. The order of the subjects is irrelevant.
    type: list
    elements: str
    aliases: [filter_subject]
  replay_policy:
    description: Whether messages are delivered as fast as possible, or at the pace at which they were stored. Cannot
      be changed.
    type: str
    choices: [instant, original]
  rate_limit_bps:
    description: Maximum rate of a push consumer in bits per second; V(0) for no limit.
    type: int
  sample_freq:
    description: Share of acknowledgements that are sampled, in percent.
    type: str
  max_waiting:
    description: Maximum number of waiting pull requests. Cannot be changed.
    type: int
  max_ack_pending:
    description:
      - Maximum number of delivered messages that have not been acknowledged; V(-1) for no limit, V(0) for the server's
        default.
    type: int
  flow_control:
    description: Whether a push consumer stops delivering while its subscriber cannot keep up; requires
      O(idle_heartbeat). Cannot be changed.
    type: bool
  headers_only:
    description: Whether messages are delivered without their data.
    type: bool
  max_batch:
    description: Maximum number of messages in one pull request; V(0) for no limit.
    type: int
  max_expires:
    description: Maximum time that one pull request may wait, in the units of O(ack_wait); V(0) for no limit.
    type: str
  max_bytes:
    description:
      - Maximum total size of the messages of one pull request, such as V(512KB) or V(1MiB); V(0) for no limit. A bare
        number is in bytes.
      - As in nats-server's configuration, C(KB), C(MB), C(KiB) and C(MiB) are powers of 1024.
    type: str
  deliver_subject:
    description: Subject to which a push consumer delivers. A consumer without a deliver subject is a pull consumer,
      and cannot be changed into a push consumer or back.
    type: str
  deliver_group:
    description: Queue group of a push consumer's subscribers.
    type: str
  idle_heartbeat:
    description:
      - Time without messages after which a push consumer sends a heartbeat, in the units of O(ack_wait). Cannot be
        changed.
    type: str
  inactive_threshold:
    description: Time after which an unused consumer is removed, in the units of O(ack_wait); V(0) for never.
    type: str
  num_replicas:
    description: Number of replicas; V(0) for as many as the stream has.
    type: int
  mem_storage:
    description: Whether the consumer's state is kept in memory. Cannot be changed.
    type: bool
  pause_until:
    description:
      - Time (RFC 3339) until which nothing is delivered (2.11 and later). An empty string or a time in the past ends a
        pause.
    type: str
  priority_groups:
    description: Names of the consumer's priority groups (2.11 and later).
    type: list
    elements: str
  priority_policy:
    description: How messages are distributed to the clients of a priority group (2.11 and later; V(prioritized) needs
      2.12).
    type: str
    choices: [none, overflow, pinned_client, prioritized]
  priority_timeout:
    description: Time after which a pinned client that sends no more requests is replaced (2.11 and later), in the units
      of O(ack_wait).
    type: str
  metadata:
    description:
      - Your own keys and values. Keys that begin with C(_nats.) are reserved for the server and remain unchanged.
    type: dict
seealso:
  - module: natsops.jetstream.nats_stream
  - name: Consumers
    description: The server's documentation.
    link: https://docs.nats.io/nats-concepts/jetstream/consumers
"""

EXAMPLES = r"""
- name: Let workers process orders, and retry a failed order at growing intervals
  natsops.jetstream.nats_consumer:
    stream: ORDERS
    consumer: worker
    filter_subjects: [orders.new]
    backoff: [10s, 1m, 10m]
    max_deliver: 5
    max_ack_pending: 200
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Deliver nothing until the maintenance is over (needs nats-server 2.11)
  natsops.jetstream.nats_consumer:
    stream: ORDERS
    consumer: worker
    pause_until: "2030-01-31T06:00:00Z"
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Resume delivery now
  natsops.jetstream.nats_consumer:
    stream: ORDERS
    consumer: worker
    pause_until: ""
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Deliver the orders again from sequence 1 (needs nats-server 2.14)
  natsops.jetstream.nats_consumer:
    stream: ORDERS
    consumer: worker
    state: reset
    reset:
      seq: 1
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Replace a pinned client that does not make progress (needs nats-server 2.11)
  natsops.jetstream.nats_consumer:
    stream: ORDERS
    consumer: pinned
    state: unpinned
    unpin:
      group: workers
    allow: [in_use]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Delete the consumer, which must be unused
  natsops.jetstream.nats_consumer:
    stream: ORDERS
    consumer: worker
    state: absent
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
before:
  description: The configuration before the change, with nats-server's own keys. Null if the consumer did not exist.
  returned: success
  type: dict
  sample: {name: worker, durable_name: worker, ack_policy: explicit, ack_wait: 30000000000, max_ack_pending: 1000}
after:
  description: The configuration after the change, as read from the servers or, in check mode, as planned. Null if the
    consumer does not exist.
  returned: success
  type: dict
  sample: {name: worker, durable_name: worker, ack_policy: explicit, ack_wait: 30000000000, max_ack_pending: 200}
reset_seq:
  description: Sequence of the first message that the consumer delivers next.
  returned: O(state=reset)
  type: int
  sample: 1
unpinned:
  description: The pin ID of each unpinned client by priority group; in check mode, those that would be unpinned.
  returned: O(state=unpinned)
  type: dict
  sample: {workers: NIkv5ZqNQ4jnJDJpdR0bOT}
dangers:
  description: Dangers of the change that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: in_use, message: 3 waiting pull requests}]
waited:
  description: Seconds that the run took, including the verification.
  returned: success
  type: float
  sample: 0.3
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.config import CONSUMER_FIELDS, argument_spec
from ..module_utils.assets.run_positions import ensure_reset, ensure_unpinned
from ..module_utils.assets.state import (
    COMMON_SPEC,
    ConsumerAsset,
    RunOptions,
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
    require_state(params, reset="reset", unpin="unpinned")
    stream, name = require_name("stream", params["stream"]), require_name("consumer", params["consumer"])
    run_options = RunOptions.of(params, check_mode)
    desired = desired_config(CONSUMER_FIELDS, params)
    asset = ConsumerAsset(connections.account(params["account"]), stream, name)
    if params["state"] == "absent":
        return ensure_absent(asset, desired, run_options)
    if params["state"] == "reset":
        return ensure_reset(asset, params["reset"] or {}, desired, run_options)
    if params["state"] == "unpinned":
        return ensure_unpinned(asset, params["unpin"] or {}, desired, run_options)
    return ensure_present(asset, desired, run_options)


def main() -> None:
    module = make_module(
        {
            "stream": {"type": "str", "required": True},
            "consumer": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "reset", "unpinned"], "default": "present"},
            "reset": {"type": "dict", "options": {"seq": {"type": "int"}, "expected_delivered": {"type": "int"}}},
            "unpin": {"type": "dict", "options": {"group": {"type": "str"}, "client": {"type": "str"}}},
            **argument_spec(CONSUMER_FIELDS),
            **COMMON_SPEC,
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
