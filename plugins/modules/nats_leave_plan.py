#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_leave_plan
short_description: Tell whether NATS servers can leave their cluster for good
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Judges servers that shall leave together, before the first of them is touched. The meta group must keep enough members and
    one to spare, every replica must find another server by the rules of the meta leader, and nothing may be lost unasked.
  - For a server that is down it asks each account for streams and consumers that nobody leads, of which that server may have the
    only replica. An election that its death began is waited for, up to 15 seconds.
  - It only plans. M(natsops.jetstream.nats_server_evacuate) moves, and M(natsops.jetstream.nats_meta_peer) removes.
  - The connection must be that of a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  server_names:
    description:
      - Names of the servers that leave, in this order, matched exactly. One that nobody has heard of has left already.
    type: list
    elements: str
    required: true
  min_servers:
    description:
      - Fewest members that the meta group must keep.
    type: int
    default: 3
  single_replicas:
    description:
      - What to do about streams with a single replica on a server that runs, before nats-server 2.15. V(fail) makes them an
        error in RV(problems); with V(move) they are to be moved, and may lose messages that are published meanwhile.
    type: str
    choices: [fail, move]
    default: fail
  accept_loss:
    description:
      - What may be lost with a server that is down, each as C(ACCOUNT/STREAM) or C(ACCOUNT/STREAM/CONSUMER), as RV(lost)
        names it.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_server_evacuate
  - module: natsops.jetstream.nats_meta_peer
"""

EXAMPLES = r"""
- name: Ask whether n4-c1 and n5-c1 can leave
  natsops.jetstream.nats_leave_plan:
    server_names: [n4-c1, n5-c1]
    account_users: "{{ nats_account_users }}"
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
  register: plan
  failed_when: plan is failed or plan.problems | selectattr('severity', 'equalto', 'error') | list | length > 0
"""

RETURN = r"""
servers:
  description: >-
    Each of the servers, with whether it answers, whether it is a member of the meta group, and the groups that it is a member of.
    One with none of these has left.
  returned: success
  type: list
  elements: dict
  sample: [{name: n5-c1, answers: true, meta_member: true, groups: [stream APP/ORDERS]}]
moves:
  description: The streams that leave each server, and who would take their replicas by the meta leader's preference.
  returned: success
  type: list
  elements: dict
  sample: [{stream: APP/ORDERS, from: n5-c1, to: n2-c1}]
lost:
  description: Streams and consumers that nobody leads, when one of the servers is down.
  returned: success
  type: list
  elements: str
  sample: []
meta:
  description: Members of the meta group now and afterwards, and how many must be up then.
  returned: success
  type: dict
  sample: {members: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1], size_after: 4, quorum_after: 3}
names:
  description: Names of all servers that answer.
  returned: success
  type: list
  elements: str
  sample: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1]
problems:
  description:
    - What speaks against it, or what it costs, as in M(natsops.jetstream.nats_cluster_health).
    - Codes are V(meta_no_leader), V(leave_too_few), V(leave_no_spare), V(leave_even), V(leave_no_room), V(leave_single_replica),
      V(leave_lost) and V(leave_unread_account).
  returned: success
  type: list
  elements: dict
  sample:
    - code: leave_too_few
      severity: error
      subject: meta group
      message: >-
        without n3-c1 the meta group has 2 member(s) (n1-c1, n2-c1), and it shall keep at least 3. Add servers first
      servers: []
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._assets import read_assets
from ansible_collections.natsops.jetstream.plugins.module_utils._leave import LeaveRules, meta_members, plan_leave
from ansible_collections.natsops.jetstream.plugins.module_utils._model import CONSUMER, STREAM
from ansible_collections.natsops.jetstream.plugins.module_utils._module import (
    ACCOUNT_USERS_SPEC,
    Connections,
    make_module,
    run_connected,
    wait_until,
)
from ansible_collections.natsops.jetstream.plugins.module_utils._replicas import ELECTION_SECONDS, Mover, Wish


def unled(connections: Connections, accepted: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return the assets that nobody leads, as ACCOUNT/STREAM or ACCOUNT/STREAM/CONSUMER, and the accounts without a user.

    The groups that a server led when it died elect another leader soon, which is waited for unless their loss is accepted.
    """
    return wait_until(
        lambda: _unled_now(connections), lambda told: accepted.issuperset(told[0]), ELECTION_SECONDS, interval=1
    ).value


def _unled_now(connections: Connections) -> tuple[list[str], list[str]]:
    everything = {"account": None, "stream": None, "consumer": None}
    if not connections.accounts:
        return [], ["(all)"]
    streams = read_assets(connections, everything, STREAM)
    consumers = read_assets(connections, everything, CONSUMER)
    gone = [(item.account, item.stream) for item in streams.unknown]
    labels = [f"{account}/{stream}" for account, stream in gone]
    labels += [
        f"{item.account}/{item.stream}/{item.consumer}" for item in consumers.unknown if (item.account, item.stream) not in gone
    ]
    return sorted(labels), streams.unread_accounts or []


def plan(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    leaving = params["server_names"]
    # The mover waits for an election of the meta leader, and knows the settings by which it chooses.
    cluster = Mover(connections, Wish(""), known=leaving).read_cluster()
    members = meta_members(cluster)
    dead = [name for name in leaving if name in members and name not in cluster.names]
    rules = LeaveRules(params["min_servers"], params["single_replicas"], frozenset(params["accept_loss"]))
    lost, unread = unled(connections, rules.accept_loss) if dead else ([], [])
    made = plan_leave(cluster, leaving, rules, lost, unread)
    return {
        "changed": False,
        "servers": [
            {
                "name": name,
                "answers": name in cluster.names,
                "meta_member": name in members,
                "groups": sorted(group.subject for group in cluster.groups() if name in group.members),
            }
            for name in leaving
        ],
        "moves": [{"stream": move.stream, "from": move.source, "to": move.target} for move in made.moves],
        "lost": lost,
        "meta": {"members": sorted(members), "size_after": made.meta_after, "quorum_after": made.meta_after // 2 + 1},
        "names": sorted(cluster.names),
        "problems": [problem.as_dict() for problem in made.problems],
    }


def main() -> None:
    module = make_module(
        {
            "server_names": {"type": "list", "elements": "str", "required": True},
            "min_servers": {"type": "int", "default": 3},
            "single_replicas": {"type": "str", "choices": ["fail", "move"], "default": "fail"},
            "accept_loss": {"type": "list", "elements": "str", "default": []},
            **ACCOUNT_USERS_SPEC,
        }
    )
    run_connected(module, lambda connections: plan(connections, module.params))


if __name__ == "__main__":
    main()
