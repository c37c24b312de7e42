#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_rebalance_plan
short_description: Plan few moves of replicas that even out what NATS servers carry
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Compares what the servers of a cluster carry, in number of replicas and in their bytes, and returns the moves that help most,
    such as after servers were added. Each is one that the meta leader would allow (cluster, tags, unique_tag, room).
  - Streams with a single replica, and those that are not fully replicated or are being moved, stay where they are. So do replicas
    on servers that are being drained (tag C(!jetstream)).
  - It only plans, and the same state gives the same plan. M(natsops.jetstream.nats_stream_peer) with C(state=moved) carries a
    move out.
  - The connection must be that of a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  cluster:
    description:
      - Name of the cluster, matched exactly.
    type: str
    required: true
  onto:
    description:
      - Servers that alone may receive replicas. By default all may.
    type: list
    elements: str
    default: []
  max_moves:
    description:
      - Most moves to plan.
    type: int
    default: 20
seealso:
  - module: natsops.jetstream.nats_stream_peer
  - module: natsops.jetstream.nats_server_evacuate
"""

EXAMPLES = r"""
- name: Plan what goes to the new servers
  natsops.jetstream.nats_rebalance_plan:
    cluster: C1
    onto: [n4-c1, n5-c1]
    context: c1-sys
  register: plan

- name: Carry it out
  natsops.jetstream.nats_stream_peer:
    state: moved
    account: "{{ item.account }}"
    stream: "{{ item.stream }}"
    from: "{{ item.from }}"
    to: "{{ item.to }}"
    account_users: "{{ nats_account_users }}"
    context: c1-sys
  loop: "{{ plan.moves }}"
"""

RETURN = r"""
lines:
  description: The plan for people.
  returned: success
  type: list
  elements: str
  sample:
    - APP/ORDERS moves from n1-c1 to n4-c1 (420000 bytes)
    - 'load of n1-c1: 2.60, afterwards 2.00'
moves:
  description: The moves in their order. C(bytes) is the size of the stream.
  returned: success
  type: list
  elements: dict
  sample: [{account: APP, stream: ORDERS, from: n1-c1, to: n4-c1, bytes: 420000}]
before:
  description: The load of each server now, which is its part of the replicas plus its part of their bytes; 2 is average.
  returned: success
  type: dict
  sample: {n1-c1: 2.6, n2-c1: 2.7, n3-c1: 2.7, n4-c1: 0.0}
after:
  description: The same after all moves.
  returned: success
  type: dict
  sample: {n1-c1: 2.0, n2-c1: 2.0, n3-c1: 2.0, n4-c1: 2.0}
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.rebalance import plan_rebalance, rebalance_lines
from ansible_collections.natsops.jetstream.plugins.module_utils.module import make_module, run_connected
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.cluster_reader import read_led_cluster


def plan(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure for a cluster or server that is not there."""
    if params["max_moves"] < 0:
        raise NatsFailure("invalid_option", f"max_moves: must be at least 0, not {params['max_moves']}")
    cluster = read_led_cluster(SystemApi(connections.own))
    there = {server.name for server in cluster.servers if server.cluster == params["cluster"]}
    if not there:
        names = ", ".join(sorted({server.cluster for server in cluster.servers}))
        raise NatsFailure("cluster_missing", f"cluster: no server of {params['cluster']} answered; there are: {names}")
    unknown_servers = sorted(set(params["onto"]) - there)
    if unknown_servers:
        raise NatsFailure(
            "server_missing", f"onto: {', '.join(unknown_servers)} did not answer", server=unknown_servers[0]
        )
    made = plan_rebalance(cluster, params["cluster"], params["max_moves"], params["onto"])
    return {
        "changed": False,
        "lines": rebalance_lines(made),
        "moves": [
            {"account": move.account, "stream": move.stream, "from": move.source, "to": move.target, "bytes": move.size}
            for move in made.moves
        ],
        "before": {name: round(load, 2) for name, load in made.before.items()},
        "after": {name: round(load, 2) for name, load in made.after.items()},
    }


def main() -> None:
    module = make_module(
        {
            "cluster": {"type": "str", "required": True},
            "onto": {"type": "list", "elements": "str", "default": []},
            "max_moves": {"type": "int", "default": 20},
        }
    )
    run_connected(module, lambda connections: plan(connections, module.params))


if __name__ == "__main__":
    main()
