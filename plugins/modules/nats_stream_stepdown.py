#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream_stepdown
short_description: Move the leadership of streams or consumers to other servers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Makes the leaders of streams step down unless they already run on suitable servers, and waits until a suitable
    server leads each stream. If only O(away_from) is set, the module moves the leaders of all streams off these
    servers, for example before the servers are stopped.
  - With O(consumer), O(consumers) or O(all_consumers), the module moves the leaders of consumers instead. A consumer may
    have fewer replicas than its stream, and is led by one of its own replicas. An ephemeral consumer often has a single
    replica.
  - No acknowledged message is lost. While a stream elects its leader, publishers wait for their acknowledgement, or
    receive none and must publish again (with the same message id).
  - While the replicas of a consumer elect a leader, no messages are delivered. Messages may be delivered again if
    their acknowledgement was in transit.
  - Needs a user of the owning account, or a user of the system account together with O(account_users) and either
    O(account) or O(all_accounts).
  - All selected streams or consumers are checked first. If any of them has no leader, no other replica in step, or no
    suitable replica, no leader is moved.
  - From nats-server 2.11 on, the new leaders are spread across the suitable servers.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.stepdown
  - natsops.jetstream.stepdown.streams_and_consumers
options:
  stream:
    description:
      - Name of the stream, or of the stream of the consumers.
    type: str
  streams:
    description:
      - Names of several streams.
      - If no option names or selects a stream or consumer, the module moves the leaders of all streams whose leader is
        one of O(away_from).
    type: list
    elements: str
  consumer:
    description:
      - Name of a consumer of O(stream).
    type: str
  consumers:
    description:
      - Names of several consumers of O(stream).
    type: list
    elements: str
  all_consumers:
    description:
      - Whether to move the leaders of all consumers whose leader is one of O(away_from). If O(stream) is set, only its
        consumers are selected.
      - Excludes O(streams), O(consumer) and O(consumers).
    type: bool
    default: false
seealso:
  - module: natsops.jetstream.nats_meta_stepdown
"""

EXAMPLES = r"""
- name: Make n2-c1 the leader of the stream ORDERS
  natsops.jetstream.nats_stream_stepdown:
    stream: ORDERS
    preferred: n2-c1
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Move the leader of the consumer worker to another server
  natsops.jetstream.nats_stream_stepdown:
    stream: ORDERS
    consumer: worker
    force: true
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Move all streams of all accounts off n1-c1
  natsops.jetstream.nats_stream_stepdown:
    away_from: [n1-c1]
    all_accounts: true
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: Move all consumers of the account APP off n1-c1
  natsops.jetstream.nats_stream_stepdown:
    away_from: [n1-c1]
    all_consumers: true
    account: APP
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
"""

RETURN = r"""
results:
  description:
    - The result for each selected stream or consumer, in the order of the names.
  returned: success, and on failures that concern one of them
  type: list
  elements: dict
  contains:
    account:
      description: Identity of the account, which is its public key in operator mode. V(null) for the account of the
        task's own user.
      type: str
      sample: APP
    account_name:
      description: Display name of the account.
      type: str
      sample: APP
    stream:
      description: Name of the stream.
      type: str
      sample: ORDERS
    consumer:
      description: Name of the consumer.
      returned: if consumers are selected
      type: str
      sample: worker
    changed:
      description: Whether the leader stepped down or, in check mode, would step down.
      type: bool
      sample: true
    before:
      description: The leader before the step-down.
      type: dict
      sample: {leader: n1-c1}
    after:
      description: The leader after the step-down. In check mode, the predicted leader; V(null) means that any of
        C(candidates) may be elected.
      type: dict
      sample: {leader: n2-c1}
    candidates:
      description: The members that were able and allowed to lead next. Empty if nothing had to be done.
      type: list
      elements: str
      sample: [n2-c1, n3-c1]
    attempts:
      description: Number of step-downs.
      type: int
      sample: 1
    waited:
      description: Seconds from the first request until the new leader was observed.
      type: float
      sample: 0.3
    skipped:
      description: Why the stream or consumer was skipped, with O(r1=skip).
      type: str
      sample: null
    refused:
      description: Why the leader must not be moved. In that case, no other leader is moved either.
      type: str
      sample: null
    failed:
      description: The observed state, if no suitable leader took over.
      type: str
      sample: null
totals:
  description: Number of selected streams or consumers, and number of those with each result.
  returned: success, and on failures that concern one of them
  type: dict
  sample: {groups: 3, changed: 2, skipped: 1, refused: 0, failed: 0}
waited:
  description: Seconds that the slowest step-down took.
  returned: success, and on failures that concern one of them
  type: float
  sample: 0.5
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.roll.step_down_assets import ASSET_SPEC, step_down_assets


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    return step_down_assets(module, connections)


def main() -> None:
    module = make_module(
        ASSET_SPEC,
        mutually_exclusive=[("stream", "streams"), ("consumer", "consumers")],
        required_by={"consumer": ["stream"], "consumers": ["stream"]},
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
