#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_membership_plan
short_description: Plan how NATS servers join a cluster, leave it for good or are replaced
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Compares the intended members with those of the live cluster. Returns the servers that join, those that leave and
    their order, and every reason against the operation, before anything is changed.
  - Servers that leave are checked together. The meta group must keep enough members and one to spare, every replica
    must find a new server according to the rules of the meta leader, and nothing may be lost without consent.
  - If a server is down, every account is queried for streams and consumers without a leader, because that server may
    have had their only replica. The module waits up to 15 seconds for elections that the failure of the server
    started.
  - The module only plans. M(natsops.jetstream.nats_server_evacuate) moves replicas, and
    M(natsops.jetstream.nats_meta_peer) removes members.
  - Connect as a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  operation:
    description:
      - The operation to plan. With V(scale_out), the servers of O(members) that are not in the cluster yet join. With
        V(scale_in), the servers of O(leaving) leave. With V(replace), the host O(replace) never returns. V(keep)
        changes no members, and requires all of them to run.
    type: str
    choices: [scale_out, scale_in, replace, keep]
    required: true
  members:
    description:
      - The servers that should be in the cluster afterwards, each with C(host) and C(server_name), and with
        C(cluster) and C(jetstream) if known, in the form of C(servers) of P(natsops.jetstream.nats_topology#filter).
    type: list
    elements: dict
    default: []
  leaving:
    description:
      - The servers that leave, in this order, except that servers that are down leave first. Each is the inventory
        name of a host in O(leaving_members), or the name of a server. A server that the cluster does not list has
        already left.
    type: list
    elements: str
    default: []
  leaving_members:
    description:
      - Inventory data of the hosts of O(leaving), in the form of O(members).
    type: list
    elements: dict
    default: []
  reachable_hosts:
    description:
      - The reachable hosts of O(leaving). A leaving server that runs on a host not listed here cannot be stopped, so
        the plan is refused. By default, all hosts are considered reachable.
    type: list
    elements: str
  replace:
    description:
      - The host that never returns, for O(operation=replace).
    type: str
    default: ''
  replacement:
    description:
      - The host that replaces the host in O(replace) under a different server name. By default, the server comes back
        under its own name.
    type: str
    default: ''
  replaced_has_data:
    description:
      - Whether the server comes back with its old data, so nothing is lost.
    type: bool
    default: false
  cluster:
    description:
      - Cluster of the servers in O(leaving) that are no longer in the inventory.
    type: str
    default: ''
  cluster_label:
    description:
      - Name of the cluster or supercluster in messages.
    type: str
    default: the cluster
  cluster_size:
    description:
      - Size of the cluster according to the inventory. By default, the size is not compared.
    type: int
  cluster_hosts:
    description:
      - Hosts that the run must include, because the run changes the entire cluster.
    type: list
    elements: str
  run_hosts:
    description:
      - Hosts included in the run, compared with O(cluster_hosts). By default, these hosts are not compared.
    type: list
    elements: str
  seeds:
    description:
      - Seed hosts in the routes of the other servers. These hosts cannot leave.
    type: list
    elements: str
    default: []
  min_servers:
    description:
      - Minimum number of members that the meta group must keep.
    type: int
    default: 3
  r1_policy:
    description:
      - How to treat streams with a single replica on a running server that leaves, if nats-server is older than 2.15.
        V(fail) refuses the plan. With V(move), these streams are moved and may lose messages published during the move.
    type: str
    choices: [fail, move]
    default: fail
  accept_loss:
    description:
      - Assets that may be lost with a server that is down, as C(ACCOUNT/STREAM) or C(ACCOUNT/STREAM/CONSUMER), named
        as in RV(lost).
    type: list
    elements: str
    default: []
  tolerate:
    description: Problem codes, servers and assets that every gate accepts, for RV(gate) and RV(batches).
    type: list
    elements: str
    default: []
  rebalance:
    description: With V(scale_out), whether the last step rebalances replicas and leaders.
    type: bool
    default: false
  wait_timeout:
    description: Seconds within which the servers that join must have their replicas, for RV(batches).
    type: float
    default: 3600
  stall_timeout:
    description: Seconds without progress after which the wait for these replicas fails, for RV(batches).
    type: float
    default: 300
seealso:
  - module: natsops.jetstream.nats_server_evacuate
  - module: natsops.jetstream.nats_meta_peer
  - module: natsops.jetstream.nats_rebalance_plan
  - module: natsops.jetstream.nats_replica_count_plan
"""

EXAMPLES = r"""
- name: Check whether n4-c1 and n5-c1 can leave
  natsops.jetstream.nats_membership_plan:
    operation: scale_in
    leaving: [n4-c1, n5-c1]
    account_users: "{{ nats_account_users }}"
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
  register: plan
  failed_when: plan is failed or plan.refusals | length > 0
"""

RETURN = r"""
refusals:
  description: Every reason against the operation, with its remedy. Empty if the operation may begin.
  returned: success
  type: list
  elements: str
  sample:
    - without n3-c1 the meta group has 2 member(s) (n1-c1, n2-c1), fewer than the required 3. Add servers first
refusal:
  description: RV(refusals) as readable text, limited to one screen.
  returned: success
  type: str
  sample: without n3-c1 the meta group has 2 member(s) (n1-c1, n2-c1), fewer than the required 3. Add servers first
lines:
  description: The plan as readable text.
  returned: success
  type: list
  elements: str
  sample: ['Leave: n5-c1', APP/ORDERS moves from n5-c1 to n2-c1 or another that fits]
warnings_found:
  description: Costs of the operation that are not reasons against it.
  returned: success
  type: list
  elements: str
  sample: ['without n5-c1 the meta group has 4 members, which survive no more failures than 3 would']
joining:
  description: Hosts on which servers will be installed and started.
  returned: success
  type: list
  elements: str
  sample: []
running:
  description: The servers in O(members) that answer.
  returned: success
  type: list
  elements: dict
  sample: [{host: n1, server_name: n1-c1, cluster: C1, jetstream: true}]
leaving:
  description: >-
    The servers that leave, in order. Each entry shows whether the server answers, whether it is a member of the meta
    group, whether it is on a reachable host, and its Raft groups. A server that neither answers nor is a member has
    already left.
  returned: success
  type: list
  elements: dict
  sample:
    - {host: n5, server_name: n5-c1, cluster: C1, jetstream: true, answers: true, meta_member: true, reachable: true,
       groups: [stream APP/ORDERS]}
gate:
  description: The health gate before the first change, in the form of C(gates) of RV(batches). C(expected) are its
    servers, and C(tolerate) the accepted problems.
  returned: success
  type: dict
  sample:
    expected: [{host: n1, server_name: n1-c1, cluster: C1, jetstream: true}]
    tolerate: []
    stop_servers: []
batches:
  description:
    - The steps of the operation in order, each in the form of C(batches) of M(natsops.jetstream.nats_roll_plan). Empty
      if the operation is refused.
    - C(action) is the step (V(join), V(decommission), V(deploy) or V(rebalance)), and C(hosts) are the reachable hosts
      that take part in it.
    - The step V(join) has the gate C(after), which waits for the replicas of the new servers. The step V(decommission)
      has the gate C(before) the stop of the server, if it is running, and the gate C(after) its removal, if it has
      not left yet.
    - With C(drain.replicas), leaders and replicas are moved off the server before its stop; C(drain.accept_loss) is
      whether single replicas may be lost. C(exclude_first) is whether the server must first be excluded from new
      replicas.
  returned: success
  type: list
  elements: dict
  sample:
    - number: 1
      action: decommission
      hosts: [n5]
      servers: [n5-c1]
      title: "step 1 of 2: decommission n5-c1"
      remaining: [n1, n2, n3, n4]
      gates:
        before:
          expected: [{host: n1, server_name: n1-c1, cluster: C1, jetstream: true}]
          stop_servers: [n5-c1]
          tolerate: [n5-c1]
        after:
          expected: [{host: n1, server_name: n1-c1, cluster: C1, jetstream: true}]
          tolerate: []
      drain: {leaders: true, clients: false, replicas: true, accept_loss: false, r1_policy: accept, avoid_servers: []}
      exclude_first: true
      progress: {title: "step 1 of 2: decommission n5-c1", step: 1, steps: 2, began: 1795254003}
next_operation:
  description: The value of O(operation) with which to plan again after the steps; empty if they complete the operation.
    A dead machine is removed only after the machine with a different name that replaces it has joined.
  returned: success
  type: str
  sample: ""
result:
  description: The result of a completed replacement, as readable text. Empty without O(replace).
  returned: success
  type: list
  elements: str
  sample: []
leaving_down:
  description: Names of the servers that leave, do not answer, and are still members of the meta group.
  returned: success
  type: list
  elements: str
  sample: []
returning:
  description: Name of the server that is replaced under the same name.
  returned: success
  type: list
  elements: str
  sample: []
remaining:
  description: Names of the servers in O(members).
  returned: success
  type: list
  elements: str
  sample: [n1-c1, n2-c1, n3-c1, n4-c1]
moves:
  description: The replicas that leave each server, each with the server that the meta leader would choose for it.
  returned: success
  type: list
  elements: dict
  sample: [{stream: APP/ORDERS, from: n5-c1, to: n2-c1}]
lost:
  description: Streams and consumers without a leader, if one of the servers is down.
  returned: success
  type: list
  elements: str
  sample: []
meta:
  description: Members of the meta group now and afterwards, and how many of them must be up afterwards.
  returned: success
  type: dict
  sample: {members: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1], size_after: 4, quorum_after: 3}
problems:
  description:
    - Obstacles to the removal and its costs, in the form of M(natsops.jetstream.nats_cluster_health).
    - Codes are V(meta_no_leader), V(scale_in_too_few), V(scale_in_no_spare), V(scale_in_even), V(scale_in_no_room),
      V(scale_in_single_replica), V(scale_in_loss) and V(scale_in_unread_account).
  returned: success
  type: list
  elements: dict
  sample:
    - code: scale_in_too_few
      severity: error
      subject: meta group
      message: >-
        without n3-c1 the meta group has 2 member(s) (n1-c1, n2-c1), fewer than the required 3. Add servers first
      servers: []
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.assets.listing import read_assets
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.model import CONSUMER, STREAM, Cluster
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.placement.cluster_reader import read_led_cluster
from ..module_utils.placement.membership_plan import (
    OPERATIONS,
    InventoryServer,
    Leaver,
    MembershipOptions,
    plan_membership,
)
from ..module_utils.placement.membership_steps import (
    StepOptions,
    first_gate,
    next_operation,
    result_lines,
    step_documents,
)
from ..module_utils.placement.scale_in import ScaleInRules
from ..module_utils.screen import listed
from ..module_utils.waiting import ELECTION_SECONDS, wait_until


def leaderless(connections: Connections, accepted: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return the assets without a leader, as ACCOUNT/STREAM or ACCOUNT/STREAM/CONSUMER, and the accounts without a user.

    The groups that a dead server led soon elect a new leader; the function waits for these elections unless the loss of
    the groups is accepted.
    """
    return wait_until(
        lambda: _leaderless_now(connections), lambda found: accepted.issuperset(found[0]), ELECTION_SECONDS, interval=1
    ).value


def _leaderless_now(connections: Connections) -> tuple[list[str], list[str]]:
    everything = {"account": None, "stream": None, "consumer": None}
    if not connections.accounts:
        return [], ["(all)"]
    streams = read_assets(connections, everything, STREAM)
    consumers = read_assets(connections, everything, CONSUMER)
    gone = [(item.account, item.stream) for item in streams.unknown]
    labels = [item.label for item in streams.unknown]
    labels += [item.label for item in consumers.unknown if (item.account, item.stream) not in gone]
    return sorted(labels), streams.unread_accounts or []


def make_request(params: Mapping[str, Any]) -> MembershipOptions:
    """Return the request that the options describe. Raises NatsFailure invalid_option."""
    known = {member.host: member for member in _members(params["leaving_members"], "leaving_members")}
    return MembershipOptions(
        operation=params["operation"],
        label=params["cluster_label"],
        members=_members(params["members"], "members"),
        leaving=tuple(
            known.get(name) or InventoryServer("", name, params["cluster"]) for name in dict.fromkeys(params["leaving"])
        ),
        replace=params["replace"],
        replacement=params["replacement"],
        has_data=params["replaced_has_data"],
        reachable_hosts=None if params["reachable_hosts"] is None else frozenset(params["reachable_hosts"]),
        cluster_size=params["cluster_size"],
        cluster_hosts=_tuple(params["cluster_hosts"]),
        run_hosts=_tuple(params["run_hosts"]),
        seeds=tuple(params["seeds"]),
    )


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _members(entries: Sequence[Mapping[str, Any]], option: str) -> tuple[InventoryServer, ...]:
    try:
        return tuple(
            InventoryServer(entry["host"], entry["server_name"], entry.get("cluster", ""), entry.get("jetstream", True))
            for entry in entries
        )
    except KeyError as error:
        raise NatsFailure("invalid_option", f"{option}: an entry has no {error.args[0]}") from error


def plan(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_option."""
    request = make_request(params)
    judged = [member.server_name for member in request.judged]
    known = [member.server_name for member in (*request.members, *request.leaving)]
    cluster = read_led_cluster(SystemApi(connections.own), known_names=known)
    members = cluster.meta_members
    accepted = frozenset([*params["accept_loss"], *map(connections.displayed, params["accept_loss"])])
    rules = ScaleInRules(params["min_servers"], params["r1_policy"], accepted)
    dead = [name for name in judged if name in members and name not in cluster.names]
    lost, unread = leaderless(connections, rules.accept_loss) if dead else ([], [])
    made = plan_membership(cluster, request, rules, lost, unread)
    options = StepOptions(
        **{name: params[name] for name in ("tolerate", "rebalance", "wait_timeout", "stall_timeout")},
        began=int(time.time()),
    )
    return {
        "changed": False,
        "refusals": list(made.refusals),
        "refusal": listed(made.refusals),
        "lines": list(made.lines),
        "warnings_found": list(made.warnings),
        "joining": list(made.joining),
        "running": [member.as_dict() for member in made.running],
        "gate": first_gate(made, request, options).as_dict(),
        "batches": step_documents(made, request, rules, options),
        "next_operation": next_operation(request),
        "result": result_lines(request, params["accept_loss"]),
        "leaving": [_leaver(item, cluster) for item in made.leaving],
        "leaving_down": list(made.leaving_down),
        "returning": list(made.returning),
        "remaining": list(made.remaining),
        "moves": [{"stream": move.stream, "from": move.source, "to": move.target} for move in made.scale_in.moves],
        "lost": lost,
        "meta": {
            "members": sorted(members),
            "size_after": made.scale_in.meta_after,
            "quorum_after": made.scale_in.meta_after // 2 + 1,
        },
        "problems": [problem.as_dict() for problem in made.scale_in.problems],
    }


def _leaver(item: Leaver, cluster: Cluster) -> dict[str, Any]:
    name = item.member.server_name
    return {
        **item.member.as_dict(),
        "answers": item.answers,
        "meta_member": item.meta_member,
        "reachable": item.reachable,
        "groups": sorted(group.subject for group in cluster.groups() if name in group.members),
    }


def main() -> None:
    module = make_module(
        {
            "operation": {"type": "str", "choices": list(OPERATIONS), "required": True},
            "members": {"type": "list", "elements": "dict", "default": []},
            "leaving": {"type": "list", "elements": "str", "default": []},
            "leaving_members": {"type": "list", "elements": "dict", "default": []},
            "reachable_hosts": {"type": "list", "elements": "str"},
            "replace": {"type": "str", "default": ""},
            "replacement": {"type": "str", "default": ""},
            "replaced_has_data": {"type": "bool", "default": False},
            "cluster": {"type": "str", "default": ""},
            "cluster_label": {"type": "str", "default": "the cluster"},
            "cluster_size": {"type": "int"},
            "cluster_hosts": {"type": "list", "elements": "str"},
            "run_hosts": {"type": "list", "elements": "str"},
            "seeds": {"type": "list", "elements": "str", "default": []},
            "min_servers": {"type": "int", "default": 3},
            "r1_policy": {"type": "str", "choices": ["fail", "move"], "default": "fail"},
            "accept_loss": {"type": "list", "elements": "str", "default": []},
            "tolerate": {"type": "list", "elements": "str", "default": []},
            "rebalance": {"type": "bool", "default": False},
            "wait_timeout": {"type": "float", "default": 3600},
            "stall_timeout": {"type": "float", "default": 300},
            **ACCOUNT_USERS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: plan(connections, module.params))


if __name__ == "__main__":
    main()
