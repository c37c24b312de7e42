#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_rebalance_plan
short_description: Plan a small number of replica moves that balance the load of NATS servers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Compares the load of the servers of a cluster, and returns replica moves that bring each server near its share, for
    example after servers were added. The plan balances, in this order, stored bytes (relative to the servers'
    C(max_file_store)), bytes written per second, and replicated assets (streams and consumers with replicas). Among
    equal servers, the one with the fewest connections receives the replica. Moves for a later goal never take a server
    out of the O(tolerance) of an earlier goal.
  - Each move complies with the meta leader's placement rules (cluster, tags, C(unique_tag), C(max_ha_assets), room) and
    keeps O(spare) storage free, and no stream is in fewer zones afterwards. Room freed by a move is not used by a later
    move of the same plan, so all moves may run at the same time.
  - Unless an option limits the size of the plan, these rules allow no further single move that would bring a server
    closer to its share. Two servers of equal size therefore differ by at most the smallest replica that may move from
    one to the other, or both are within the tolerance.
  - The plan does not move streams that have a single replica, are not fully replicated or are already being moved, nor
    replicas on servers that are being drained (tag C(!jetstream)).
  - The same cluster state always results in the same plan. M(natsops.jetstream.nats_replica_moves) carries out the
    plan.
  - Connect as a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.write_rates
  - natsops.jetstream.attributes
options:
  cluster:
    description:
      - Name of the cluster, matched exactly.
    type: str
    required: true
  onto:
    description:
      - The only servers that may receive replicas. By default, all servers may.
    type: list
    elements: str
    default: []
  tolerance:
    description:
      - Percentage by which a server may be above or below its share before a replica is moved.
    type: float
    default: 5
  spare:
    description:
      - Percentage of its storage limit that must stay free on a server that receives a replica.
    type: float
    default: 10
  max_moves:
    description:
      - Maximum number of moves to plan.
    type: int
    default: 20
  max_bytes_moved:
    description:
      - Maximum number of bytes to move, such as V(500GB). Streams that exceed the remaining bytes are skipped.
    type: str
  max_concurrent:
    description:
      - Number of moves in each of RV(batches). These moves run at the same time, each of a different stream.
    type: int
    default: 1
  together:
    description:
      - Whether RV(batches) has a single batch with all moves, so a run in check mode evaluates each move on the state
        after the previous one.
    type: bool
    default: false
  throughput:
    description:
      - Bytes per second that a move copies, to estimate the time. M(natsops.jetstream.nats_replica_moves) returns the
        observed value.
    type: str
    default: 50MiB
  zone_tag_prefix:
    description:
      - A server that has a tag with this prefix is in the zone named by the rest of the tag.
    type: str
    default: "az:"
  plan_file:
    description:
      - JSON file of the plan, on the host where the module runs. The directory of the file must exist.
      - If the file does not exist, the plan is written to it. If the file exists, its plan is returned without the
        completed moves; the task fails if the cluster has changed in any other way since the plan was made.
    type: path
  renew:
    description:
      - Whether a new plan replaces the one in O(plan_file).
    type: bool
    default: false
  plan:
    description:
      - A plan in the form of RV(plan), for example one that has been approved. The plan is treated like a plan in
        O(plan_file).
    type: dict
attributes:
  check_mode:
    support: full
    details:
      - O(plan_file) is not written.
  diff_mode:
    support: none
    details:
      - The module changes nothing except O(plan_file).
  idempotent:
    support: full
seealso:
  - module: natsops.jetstream.nats_replica_moves
  - module: natsops.jetstream.nats_leader_rebalance
  - module: natsops.jetstream.nats_server_evacuate
"""

EXAMPLES = r"""
- name: Plan moves to the new servers, at most 500 GB
  natsops.jetstream.nats_rebalance_plan:
    cluster: C1
    onto: [n4-c1, n5-c1]
    max_bytes_moved: 500GB
    context: c1-sys
  register: plan

- name: Carry it out
  natsops.jetstream.nats_replica_moves:
    moves: "{{ plan.moves }}"
    account_users: "{{ nats_account_users }}"
    context: c1-sys
"""

RETURN = r"""
began:
  description: When the moves were planned, in epoch seconds.
  returned: success
  type: int
  sample: 1795254003
lines:
  description: The plan as human-readable lines.
  returned: success
  type: list
  elements: str
  sample:
    - 1 replicas move, 410.2 KiB in about 3s; this result needs at least 410.2 KiB
    - APP/ORDERS moves from n1-c1 to n4-c1 (410.2 KiB, about 3s, for bytes)
    - n1-c1 carries 820.4 KiB, 2 HA assets; afterwards 410.2 KiB, 1 HA assets, 12 connections
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
moves:
  description: The moves in order; each one makes the load more even. C(bytes) is the size of the stream, C(seconds) is
    the estimated time, and C(goal) is the purpose of the move.
  returned: success
  type: list
  elements: dict
  sample: [{account: APP, stream: ORDERS, from: n1-c1, to: n4-c1, bytes: 420000, seconds: 3.0, goal: bytes}]
batches:
  description: The content of RV(moves), grouped into the C(moves) that run at the same time, in the form of
    C(batches) of M(natsops.jetstream.nats_roll_plan). C(moves_left) are the moves of this batch and all later
    ones.
  returned: success
  type: list
  elements: dict
  sample:
    - number: 1
      title: "wave 1 of 1: APP/ORDERS"
      servers: [n1-c1, n4-c1]
      moves: [{account: APP, stream: ORDERS, from: n1-c1, to: n4-c1, bytes: 420000, seconds: 3.0, goal: bytes}]
      moves_left: [{account: APP, stream: ORDERS, from: n1-c1, to: n4-c1, bytes: 420000, seconds: 3.0, goal: bytes}]
      progress: {title: "wave 1 of 1: APP/ORDERS", step: 1, steps: 1, began: 1795254003}
bytes_moved:
  description: Total bytes copied by all moves.
  returned: success
  type: int
  sample: 420000
least_bytes:
  description: Lower bound of the bytes that a plan with the same final bytes on each server must copy.
  returned: success
  type: int
  sample: 420000
seconds:
  description: Estimated time of the moves.
  returned: success
  type: float
  sample: 3.0
before:
  description: The current load of each server.
  returned: success
  type: dict
  sample: {n1-c1: {bytes: 840000, bytes_per_second: 0, ha_assets: 2, connections: 12}}
after:
  description: The load of each server after all moves.
  returned: success
  type: dict
  sample: {n1-c1: {bytes: 420000, bytes_per_second: 0, ha_assets: 1, connections: 12}}
left:
  description: Streams that the plan does not move, by reason.
  returned: success
  type: dict
  sample: {single replica: [stream APP/AUDIT]}
plan:
  description: The plan in the format of O(plan_file), with its schema, version and the fingerprint of the cluster.
  returned: success
  type: dict
  sample:
    schema: natsops.jetstream.rebalance_plan
    version: 1
    cluster: C1
    made: '2026-11-24T15:00:00Z'
    fingerprint: 8c0f4a1e7d
    moves:
      - {account: APP, stream: ORDERS, from: n1-c1, to: n4-c1, bytes: 420000, seconds: 3.0, goal: bytes,
         members: [n1-c1, n2-c1, n3-c1]}
reused:
  description: Whether the plan comes from O(plan_file) or O(plan).
  returned: success
  type: bool
  sample: false
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.store import utc_now
from ..module_utils.collection_module import run
from ..module_utils.health.problem_file import write_json
from ..module_utils.module import make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.model import Cluster
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.placement.cluster_reader import RATE_OPTIONS, read_with_rates
from ..module_utils.placement.rebalance import (
    RebalanceOptions,
    RebalancePlan,
    move_batches,
    plan_of_moves,
    plan_rebalance,
    rebalance_page,
    total_seconds,
)
from ..module_utils.placement.rebalance_plan import PlanRefused, plan_document, remaining_moves
from ..module_utils.placement.rules import server_zones
from ..module_utils.screen import page
from ..module_utils.units import size_bytes


def plan(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure if the cluster or a server does not exist, or if the plan was made
    for a different state."""
    params = module.params
    options = _options(params)
    given = _given_plan(params)
    cluster, rates, source = read_with_rates(SystemApi(connections.own), params)
    there = {server.name for server in cluster.servers if server.cluster == params["cluster"]}
    unknown_servers = sorted(set(params["onto"]) - there)
    if unknown_servers:
        raise NatsFailure(
            "server_missing", f"onto: {', '.join(unknown_servers)} did not answer", server=unknown_servers[0]
        )
    if given is not None:
        made = _remaining(given, cluster, params["cluster"], rates)
        document = dict(given)
    else:
        zones = server_zones(cluster.servers, params["zone_tag_prefix"])
        made = plan_rebalance(cluster, params["cluster"], replace(options, zones=zones), rates)
        document = plan_document(cluster, params["cluster"], made, utc_now())
    written = given is None and params["plan_file"] is not None
    if written and not module.check_mode:
        _write(params["plan_file"], document)
    began = int(time.time())
    return {
        "changed": written,
        "began": began,
        "reused": given is not None,
        "plan": document,
        "batches": move_batches(made.moves, params["max_concurrent"], params["together"], began),
        **_result(made, params["max_concurrent"], source),
    }


def _options(params: Mapping[str, Any]) -> RebalanceOptions:
    for option, least in (("max_moves", 0), ("max_concurrent", 1), ("tolerance", 0), ("spare", 0), ("sample", 0)):
        if params[option] < least:
            raise NatsFailure("invalid_option", f"{option}: must be at least {least}, not {params[option]:g}")
    if params["spare"] >= 100:
        raise NatsFailure("invalid_option", f"spare: must be less than 100 percent, not {params['spare']:g}")
    throughput = _size(params, "throughput")
    if not throughput:
        raise NatsFailure("invalid_option", "throughput: must be more than 0 bytes per second")
    return RebalanceOptions(
        onto=params["onto"],
        tolerance=params["tolerance"] / 100,
        spare=params["spare"] / 100,
        max_moves=params["max_moves"],
        max_bytes=_size(params, "max_bytes_moved"),
        throughput=throughput or 1,
    )


def _size(params: Mapping[str, Any], option: str) -> int | None:
    if params[option] is None or params[option] == "":
        return None
    try:
        size = size_bytes(params[option])
    except ValueError as error:
        raise NatsFailure("invalid_option", f"{option}: {error}") from error
    if size < 0:
        raise NatsFailure("invalid_option", f"{option}: must not be negative")
    return size


def _given_plan(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the plan to run, or None if a new plan must be made. Raises NatsFailure if the file cannot be read."""
    if params["plan"]:
        return dict(params["plan"])
    path = params["plan_file"]
    if path is None or params["renew"] or not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise NatsFailure("plan_invalid", f"plan_file: {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise NatsFailure("plan_invalid", f"plan_file: {path} does not contain a plan")
    return found


def _remaining(
    given: Mapping[str, Any], cluster: Cluster, name: str, rates: Mapping[tuple[str, str], float]
) -> RebalancePlan:
    try:
        return plan_of_moves(cluster, name, remaining_moves(given, cluster, name), rates)
    except PlanRefused as refused:
        raise NatsFailure(refused.code, f"{refused}. Nothing was changed.") from refused


def _write(path: str, document: Mapping[str, Any]) -> None:
    try:
        write_json(os.path.abspath(path), document)
    except OSError as error:
        raise NatsFailure("write_failed", f"plan_file: {path} cannot be written: {error}") from error


def _result(made: RebalancePlan, concurrent: int, source: str) -> dict[str, Any]:
    return {
        **(rebalance_page(made, concurrent) + page(*filter(None, [source]))).as_dict(),
        "moves": [move.as_dict() for move in made.moves],
        "bytes_moved": made.bytes_moved,
        "least_bytes": made.least_bytes,
        "seconds": round(total_seconds(made.moves, concurrent), 1),
        "before": {name: load.as_dict() for name, load in made.before.items()},
        "after": {name: load.as_dict() for name, load in made.after.items()},
        "left": made.left,
    }


def main() -> None:
    module = make_module(
        {
            "cluster": {"type": "str", "required": True},
            "onto": {"type": "list", "elements": "str", "default": []},
            "tolerance": {"type": "float", "default": 5},
            "spare": {"type": "float", "default": 10},
            "max_moves": {"type": "int", "default": 20},
            "max_bytes_moved": {"type": "str"},
            "max_concurrent": {"type": "int", "default": 1},
            "together": {"type": "bool", "default": False},
            "throughput": {"type": "str", "default": "50MiB"},
            "zone_tag_prefix": {"type": "str", "default": "az:"},
            **RATE_OPTIONS,
            "plan_file": {"type": "path"},
            "renew": {"type": "bool", "default": False},
            "plan": {"type": "dict"},
        }
    )
    run(module, with_accounts, lambda connections: plan(module, connections))


if __name__ == "__main__":
    main()
