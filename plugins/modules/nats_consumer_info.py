#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_consumer_info
short_description: Read consumers with their configuration, progress and place in the cluster
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns one consumer or all of them, each with its configuration, its progress, its cluster, Raft group, leader
    and replicas, and its problems (no leader, a replica that is behind, fewer replicas than configured).
  - Works with a user of the account or a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.asset_info
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  consumer:
    description:
      - Name of one consumer of O(stream). If it does not exist, the result is empty and the task does not fail.
    type: str
seealso:
  - module: natsops.jetstream.nats_stream_info
"""

EXAMPLES = r"""
- name: Read the consumers of one stream
  natsops.jetstream.nats_consumer_info:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    stream: ORDERS

- name: Read one consumer of an account, connected as the system's user
  natsops.jetstream.nats_consumer_info:
    context: c1-sys
    account: APP
    account_users:
      - {account: APP, user: ops, password: "{{ nats_app_password }}"}
    stream: ORDERS
    consumer: worker
"""

RETURN = r"""
consumers:
  description:
    - The consumers, sorted by account, stream and name. C(config), C(delivered) and C(ack_floor) have the server's
      own keys. C(account) is the identity of the account, which is its public key in operator mode, and null if a
      server before 2.10 did not report it. C(account_name) is the display name of the account.
    - The keys that describe the Raft group are the same as for the streams of M(natsops.jetstream.nats_stream_info).
      C(size) is the desired number of replicas, which may be inherited from the stream.
  returned: success
  type: list
  elements: dict
  sample:
    - account: APP
      account_name: APP
      stream: ORDERS
      name: worker
      config: {durable_name: worker, name: worker, deliver_policy: all, ack_policy: explicit, ack_wait: 30.0, max_deliver: -1,
               replay_policy: instant, num_replicas: 0}
      created: "2026-11-20T10:00:00Z"
      delivered: {consumer_seq: 7, stream_seq: 7, last_active: "2026-11-20T10:00:09Z"}
      ack_floor: {consumer_seq: 5, stream_seq: 5, last_active: "2026-11-20T10:00:09Z"}
      num_ack_pending: 2
      num_redelivered: 0
      num_waiting: 1
      num_pending: 3
      raft_group: C-R3F-BDkClPak
      cluster: C1
      leader: n2-c1
      leader_since: "2026-11-20T10:00:01.5Z"
      leaders: [n2-c1]
      size: 3
      quorum: 2
      members: [n1-c1, n2-c1, n3-c1]
      replicas:
        - {name: n1-c1, id: fjFyEjc1, leader: false, current: true, online: true, active: 0.35, lag: 0}
        - {name: n2-c1, id: 44jzkV9D, leader: true, current: true, online: true, active: 0.0, lag: 0}
        - {name: n3-c1, id: xeKPO8o9, leader: false, current: true, online: true, active: 0.35, lag: 0}
      problems: []
view:
  description: The view in which the assets were read, V(account) or V(system).
  returned: success
  type: str
  sample: account
unknown:
  description:
    - Assets whose state no leader reported, such as those without a leader, each with the reason. If a replica of
      such an asset reported its own state, RV(consumers) contains that state.
  returned: success
  type: list
  elements: dict
  sample:
    - {account: APP, stream: LOST, consumer: worker, reason: no leader reported its state}
problems:
  description:
    - The problems of the consumers, with the codes of M(natsops.jetstream.nats_cluster_health), and
      V(consumer_unknown) for a consumer that not even a replica reported.
  returned: success
  type: list
  elements: dict
  sample:
    - code: consumer_replica_behind
      severity: error
      subject: consumer APP/ORDERS/worker
      message: "consumer APP/ORDERS/worker (R3, C-R3F-BDkClPak): replica n3-c1 is offline (leader n2-c1)"
      servers: [n3-c1]
unread_accounts:
  description:
    - Accounts with JetStream that were not read, because O(account_users) has no user for them.
    - Null if O(account_users) is not set, if O(account) is set, or if the task's own user does not belong to the system
      account.
  returned: success
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.listing import read_assets
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.model import CONSUMER


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    return read_assets(connections, params, CONSUMER).result(CONSUMER)


def main() -> None:
    module = make_module(
        {**ACCOUNT_SPEC, "stream": {"type": "str"}, "consumer": {"type": "str"}},
        required_by={"consumer": ["stream"]},
    )
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
