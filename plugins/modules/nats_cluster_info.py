#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_cluster_info
short_description: Read the state of a NATS cluster or supercluster
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns the servers with their figures, each server's JetStream summary, the meta group, and every stream and
    consumer with its replicas as reported by its leader, in the same form for all server versions.
  - Needs a user of the system account.
  - Faults in the cluster never make the task fail. These faults are returned in RV(problems), with the codes of
    M(natsops.jetstream.nats_cluster_health). Use that module to wait for a healthy cluster.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.cluster_info
  - natsops.jetstream.mesh
  - natsops.jetstream.accounts
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
seealso:
  - module: natsops.jetstream.nats_cluster_facts
  - module: natsops.jetstream.nats_cluster_health
  - module: natsops.jetstream.nats_server_info
"""

EXAMPLES = r"""
- name: Read the complete cluster
  natsops.jetstream.nats_cluster_info:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
  register: cluster

- name: Show who leads the meta group
  ansible.builtin.debug:
    msg: "{{ cluster.meta.leader }} leads {{ cluster.meta.size }} servers"

- name: Read only the servers, and list the missing ones
  natsops.jetstream.nats_cluster_info:
    detail: servers
    expected_servers: [n1-c1, n2-c1, n3-c1]
    context: c1-sys

- name: Read the streams of one account in one cluster
  natsops.jetstream.nats_cluster_info:
    cluster: C1
    account: APP
    context: c1-sys
"""

RETURN = r"""
servers:
  description:
    - The servers that answered, sorted by name. C(mem) is in bytes, C(cpu) in percent of one core, C(uptime) and
      C(rtt) in seconds.
    - C(clock_offset) is the number of seconds by which the server's clock is ahead of the controller's, plus or minus
      half of C(rtt).
    - C(js) is the JetStream summary (sizes in bytes, counts of this server's replicas), and is null if JetStream is
      not running.
    - C(health) is the server's own health report, or null if the server sent none.
    - C(gateways) counts the outbound gateway connections, and C(reaches) names the clusters at their other ends.
  returned: success
  type: list
  elements: dict
  sample:
    - name: n1-c1
      id: NDHDGLW5VJ2JR3G5R5JJ6NGWSJ4XC3BIBVDIBAM6ROGHRGQQVHZQCL5O
      cluster: C1
      host: 10.0.0.11
      version: 2.10.27
      domain: ""
      tags: ["az:a"]
      jetstream: true
      connections: 1
      subscriptions: 85
      routes: 8
      gateways: 0
      inbound_gateways: 0
      reaches: []
      leafnodes: 0
      mem: 21725184
      cpu: 0.5
      cores: 2
      slow_consumers: 0
      uptime: 3600.2
      rtt: 0.0012
      clock_offset: 0.0001
      js: {streams: 2, consumers: 1, messages: 10, bytes: 420, memory: 0, storage: 420, reserved_memory: 0, reserved_storage: 0,
           max_memory: 67108864, max_storage: 268435456, api_total: 12, api_errors: 0, api_level: 0, ha_assets: 3,
           max_ha_assets: 0, unique_tag: "", pending: 0}
      health: {status: ok, status_code: 200, errors: []}
meta:
  description:
    - The meta group. C(replicas) includes the leader. C(active) is the number of seconds since the leader last
      received data from the replica, C(lag) is in Raft entries. C(leader) is null if no server, or more than one,
      claims to lead. RV(meta) is null if there is no JetStream cluster.
  returned: success
  type: dict
  sample:
    raft_group: ""
    leader: n2-c1
    leaders: [n2-c1]
    size: 3
    quorum: 2
    pending: 0
    members: [n1-c1, n2-c1, n3-c1]
    replicas:
      - {name: n1-c1, id: fjFyEjc1, leader: false, current: true, online: true, active: 0.35, lag: 0}
      - {name: n2-c1, id: 44jzkV9D, leader: true, current: true, online: true, active: 0.0, lag: 0}
      - {name: n3-c1, id: xeKPO8o9, leader: false, current: true, online: true, active: 0.35, lag: 0}
clusters:
  description: The clusters, with the names of their servers.
  returned: success
  type: list
  elements: dict
  sample: [{name: C1, servers: [n1-c1, n2-c1, n3-c1]}]
streams:
  description:
    - Every stream with its consumers. The keys that describe the Raft group are the same as in RV(meta). Empty with
      O(detail=servers).
    - A stream that no responding server has is included if O(account_users) has a user of its account. Its C(members)
      are then the absent servers, and a C(size) of 0 means that the number of replicas is unknown.
  returned: success
  type: list
  elements: dict
  sample:
    - account: APP
      account_name: APP
      name: ORDERS
      storage: file
      retention: limits
      num_replicas: 3
      messages: 10
      bytes: 420
      first_seq: 1
      last_seq: 10
      num_deleted: 0
      lost_messages: 0
      lost_bytes: 0
      placement: {}
      api_level: 0
      raft_group: S-R3F-vJPJ0ZU5
      cluster: C1
      leader: n2-c1
      leaders: [n2-c1]
      size: 3
      quorum: 2
      members: [n1-c1, n2-c1, n3-c1]
      replicas:
        - {name: n2-c1, id: 44jzkV9D, leader: true, current: true, online: true, active: 0.0, lag: 0}
      consumers:
        - {name: worker, durable: true, pull: true, ack_policy: explicit, ack_wait: 30.0, num_pending: 10, num_ack_pending: 0,
           max_ack_pending: 1000, num_waiting: 1, paused: false,
           num_redelivered: 0, ack_floor: 0, api_level: 0, raft_group: C-R3F-BDkClPak, cluster: C1,
           leader: n2-c1, leaders: [n2-c1], size: 3, quorum: 2, members: [n1-c1, n2-c1, n3-c1], replicas: []}
nameless:
  description:
    - Raft ids of group members whose names are known neither to any server nor from the options. The groups list
      these ids instead of names.
  returned: success
  type: list
  elements: str
  sample: []
raft_silent:
  description:
    - Names of servers that have been running for 15 s and answer requests, although the meta leader has received
      nothing from them for more than 10 s. With O(detail=assets), servers that are silent towards the leader of a
      stream or consumer are included. Only a restart fixes this state; see docs/health-gate.md.
  returned: success
  type: list
  elements: str
  sample: []
common_flags:
  description:
    - Feature flags for Raft entries that most servers with JetStream have on. All servers that answered can read these
      entries.
  returned: success
  type: list
  elements: str
  sample: [js_raft_delete_range]
healthy:
  description:
    - Whether RV(problems) has no errors. Null unless the complete cluster and its connections were read, that is, with
      O(detail=assets) and O(mesh), and without O(account) and O(stream).
  returned: success
  type: bool
  sample: true
missing:
  description: Servers in O(expected_servers) that did not answer.
  returned: success
  type: list
  elements: str
  sample: []
jwts:
  description:
    - The JWTs that expire in operator mode, the earliest first, with the effect. Users of one role of an account
      are one row. C(severity) is empty while the expiry is far away. C(unknown) names the parts that cannot be read.
  returned: with O(jwts=true)
  type: dict
  sample:
    operator_mode: true
    unknown: []
    expiring:
      - {kind: user, account: ADLW5Q2H6YQO, account_name: ORDERS, role: app, subject: UDXB2VGZ, name: shop,
         expires: 1800000000, expires_at: "2027-01-15T08:00:00Z", connections: 12, severity: warning,
         text: "account ORDERS: 12 connections of role app will be closed; logins with the same credentials fail"}
problems:
  description:
    - The problems that M(natsops.jetstream.nats_cluster_health) would report with its default limits. With O(mesh), they
      include each missing connection.
  returned: success
  type: list
  elements: dict
  sample:
    - {code: server_missing, severity: error, subject: n3-c1, message: expected server n3-c1 did not answer, servers: [n3-c1]}
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, ClientAndAccounts, make_module, with_client_and_accounts
from ..module_utils.reporting.cluster_info import CLUSTER_INFO_SPEC, read_cluster_info


def read(connected: ClientAndAccounts, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    return {"changed": False, **read_cluster_info(connected.client, params, connected.accounts)}


def main() -> None:
    module = make_module({**CLUSTER_INFO_SPEC, **ACCOUNT_USERS_SPEC})
    run(module, with_client_and_accounts, lambda connected: read(connected, module.params))


if __name__ == "__main__":
    main()
