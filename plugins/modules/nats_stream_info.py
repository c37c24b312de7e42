#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream_info
short_description: Find streams, and read their configuration, state, gaps, subjects and placement
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns one stream or all of them, each with its configuration, its state, its cluster, Raft group, leader and
    replicas, and its problems (no leader, a replica that is behind, fewer replicas than configured).
  - Works with a user of the account, and with a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.asset_info
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  subject:
    description:
      - Read only the streams that store messages of this subject, which may contain wildcards.
    type: str
  idle:
    description:
      - Read only the streams that have stored no message for this time, such as V(90s), V(24h) or V(7d). A bare number
        is in seconds. A stream that never stored a message is idle since its creation.
      - The time is measured with the clock of the host on which the module runs.
    type: str
  empty:
    description: Read only the streams without messages (V(true)) or with messages (V(false)).
    type: bool
  unused:
    description: Read only the streams without consumers (V(true)) or with consumers (V(false)).
    type: bool
  leaderless:
    description: Read only the streams without a leader (V(true)) or with a leader (V(false)). If not
      even a replica of a leaderless stream reported its state, only RV(unknown) contains the stream.
    type: bool
  replicas:
    description: Read only the streams with this configured number of replicas.
    type: int
  details:
    description:
      - Also read the gaps between the messages (V(gaps)) or the number of messages of each subject (V(subjects)) of the
        streams found. With O(subject), only the subjects that match it are counted.
      - Needs a user of the owning account, because servers do not report the details to the system account.
    type: list
    elements: str
    choices: [gaps, subjects]
    default: []
seealso:
  - module: natsops.jetstream.nats_consumer_info
  - module: natsops.jetstream.nats_cluster_info
"""

EXAMPLES = r"""
- name: Read one stream
  natsops.jetstream.nats_stream_info:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    stream: ORDERS
  register: orders

- name: Show where it is
  ansible.builtin.debug:
    msg: "{{ orders.streams[0].leader }} leads {{ orders.streams[0].replicas | map(attribute='name') | join(', ') }}"

- name: Find the streams that have stored nothing for a month and have no consumers
  natsops.jetstream.nats_stream_info:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    idle: 30d
    unused: true
  register: abandoned

- name: Count the orders of each shop in Berlin, and list deleted messages
  natsops.jetstream.nats_stream_info:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    stream: ORDERS
    subject: orders.berlin.>
    details: [subjects, gaps]
  register: berlin

- name: Read every stream of every account from the system account, and fail if any has a problem
  natsops.jetstream.nats_stream_info:
    context: c1-sys
  register: all_streams
  failed_when: all_streams.problems | length > 0
"""

RETURN = r"""
streams:
  description:
    - The streams by account and name. C(config) and C(state) are returned as reported by the server. C(account) is the
      identity of the account, which is its public key in operator mode, and null if a server before 2.10 did not report
      it. C(account_name) is the display name of the account.
    - C(replicas) includes the leader. C(active) is the number of seconds since the leader last received data from the
      replica, and C(lag) the number of Raft entries by which the replica is behind. C(leader) is null if no server, or
      more than one server, claims to lead. C(leader_since) is reported by 2.11 and later.
    - C(mirror) and C(sources) exist only for streams that have a mirror or sources. In C(mirror) and C(sources),
      C(active) is the number of seconds since data was last received from the origin; null if no data was ever
      received.
    - With O(details), C(gaps) contains the first and last sequence of each gap between the first and the last message;
      null if more than 100,000 messages are missing. C(subject_counts) contains the number of messages of each subject;
      null if the stream has more than 200,000 subjects.
  returned: success
  type: list
  elements: dict
  sample:
    - account: APP
      account_name: APP
      name: ORDERS
      config: {name: ORDERS, subjects: [orders.>], retention: limits, storage: file, num_replicas: 3, max_age: 86400.0,
               max_bytes: -1, duplicate_window: 120.0}
      created: "2026-11-20T10:00:00Z"
      state: {messages: 10, bytes: 420, first_seq: 1, last_seq: 10, first_ts: "2026-11-20T10:00:02Z",
              last_ts: "2026-11-20T10:00:05Z", consumer_count: 1}
      raft_group: S-R3F-vJPJ0ZU5
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
      gaps: [[4, 4], [7, 9]]
      subject_counts: {orders.berlin.1: 6, orders.berlin.2: 4}
view:
  description: The view in which the assets were read, V(account) or V(system).
  returned: success
  type: str
  sample: account
unknown:
  description:
    - Assets whose state no leader reported, such as those without a leader, each with the reason. If a replica of such
      an asset reported its own state, RV(streams) contains that state.
  returned: success
  type: list
  elements: dict
  sample:
    - {account: APP, stream: LOST, consumer: null, reason: no leader reported its state}
problems:
  description:
    - The problems of the streams, with the codes of M(natsops.jetstream.nats_cluster_health), and V(stream_unknown) for
      a stream that not even a replica reported.
  returned: success
  type: list
  elements: dict
  sample:
    - code: stream_replica_behind
      severity: error
      subject: stream APP/ORDERS
      message: "stream APP/ORDERS (R3, S-R3F-vJPJ0ZU5): replica n3-c1 is offline (leader n2-c1)"
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

from ..module_utils.assets.finding import SELECTION_SPEC
from ..module_utils.assets.run_find import GAPS, SUBJECTS, find_streams
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    return find_streams(connections, params)


def main() -> None:
    module = make_module(
        {
            **ACCOUNT_SPEC,
            "stream": {"type": "str"},
            "subject": {"type": "str"},
            **SELECTION_SPEC,
            "details": {"type": "list", "elements": "str", "choices": [GAPS, SUBJECTS], "default": []},
        }
    )
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
