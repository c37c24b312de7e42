#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_leader_rebalance
short_description: Balance the leaders of streams and consumers across the servers of a cluster
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Spreads the leaders of streams and of consumers evenly over the servers of a cluster, as far as replica placement
    allows, with as few step-downs as possible. The result is the optimum, not an approximation. If the leaders cannot
    be spread evenly over the servers, they are spread evenly over the zones.
  - The streams that change their leaders are chosen by their write rates. If the leaders on a server still receive 10
    % more data than the average, pairs of leaders are swapped.
  - No data moves. While a group elects a leader, publishers of the stream wait for their acknowledgement, or get none
    and must publish again (with the same message id).
  - Skips groups without a leader or without another replica in step, groups that are being moved, and servers that
    are being drained (tag C(!jetstream)).
  - Before nats-server 2.11, the next leader is random. The leader of a group then steps down repeatedly until the
    desired server leads the group.
  - Needs a user of the system account, and users of the accounts in O(account_users).
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.write_rates
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
options:
  cluster:
    description:
      - Name of the cluster, matched exactly.
    type: str
    required: true
  groups:
    description:
      - The groups whose leaders are spread.
    type: list
    elements: str
    choices: [streams, consumers]
    default: [streams, consumers]
  zone_tag_prefix:
    description:
      - A server that has a tag with this prefix is in the zone named by the rest of the tag.
    type: str
    default: "az:"
  max_step_downs:
    description:
      - Maximum number of leaders that step down in one run, starting with the most effective step-downs. V(0) means
        no limit.
    type: int
    default: 0
  concurrency:
    description:
      - Maximum number of groups without a leader at the same time.
    type: int
    default: 8
  wait_timeout:
    description:
      - Seconds within which all step-downs must be completed and verified.
    type: float
    default: 300
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details:
      - Servers restart and write rates change, so the optimum may change.
seealso:
  - module: natsops.jetstream.nats_rebalance_plan
  - module: natsops.jetstream.nats_stream_stepdown
"""

EXAMPLES = r"""
- name: Balance the leaders after restarts
  natsops.jetstream.nats_leader_rebalance:
    cluster: C1
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
"""

RETURN = r"""
lines:
  description: The plan as readable text.
  returned: success, and on failures of a step-down
  type: list
  elements: str
  sample:
    - 24 leaders step down (24 streams)
    - n1-c1 leads 48 streams, 0 consumers; afterwards 24 streams, 0 consumers
    - n2-c1 leads 0 streams, 0 consumers; afterwards 24 streams, 0 consumers
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success, and on failures of a step-down
  type: list
  elements: str
moves:
  description: The leaders that step down. C(consumer) is V(null) for a stream.
  returned: success, and on failures of a step-down
  type: list
  elements: dict
  sample: [{account: APP, account_name: APP, stream: ORDERS, consumer: null, from: n1-c1, to: n2-c1, bytes_per_second: 4000}]
before:
  description: The number of groups that each server leads, and the bytes per second that are written to the streams
    that it leads.
  returned: success, and on failures of a step-down
  type: dict
  sample: {n1-c1: {streams: 48, consumers: 0, bytes_per_second: 8000}, n2-c1: {streams: 0, consumers: 0, bytes_per_second: 0}}
after:
  description: The number of groups that each server leads, and their bytes per second, after all leaders in RV(moves)
    have stepped down.
  returned: success, and on failures of a step-down
  type: dict
  sample: {n1-c1: {streams: 24, consumers: 0, bytes_per_second: 4000}, n2-c1: {streams: 24, consumers: 0, bytes_per_second: 4000}}
left:
  description: Streams and consumers that were skipped, grouped by reason.
  returned: success, and on failures of a step-down
  type: dict
  sample: {no user of account LOGS is known: [stream LOGS/AUDIT]}
missed:
  description: Groups with a leader other than the planned one, and the observed state.
  returned: failures of a step-down
  type: dict
  sample: {stream ORDERS (account APP): "n1-c1 leads after 3 step-downs"}
waited:
  description: Seconds from the first request until the last new leader was observed.
  returned: success, and on failures of a step-down
  type: float
  sample: 2.5
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.placement.cluster_reader import RATE_OPTIONS, read_with_rates
from ..module_utils.placement.leader_rebalance import (
    CONSUMERS,
    STREAMS,
    LeaderMove,
    LeaderPlan,
    leader_page,
    plan_leaders,
)
from ..module_utils.placement.rules import server_zones
from ..module_utils.roll.leadership import STEP_DOWN, LeaderConstraints, LeadershipPlan
from ..module_utils.roll.step_down import StepDownJob, step_down
from ..module_utils.roll.step_down_assets import AssetGroups, StepDownAsset
from ..module_utils.screen import page
from ..module_utils.waiting import positive


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result after every planned leader has been observed."""
    params = module.params
    timeout = positive(params["wait_timeout"], "wait_timeout")
    for option, least in (("sample", 0), ("max_step_downs", 0), ("concurrency", 1)):
        if params[option] < least:
            raise NatsFailure("invalid_option", f"{option}: must be at least {least}, not {params[option]:g}")
    cluster, rates, source = read_with_rates(SystemApi(connections.own), params)
    zones = server_zones(cluster.servers, params["zone_tag_prefix"])
    accounts = [account for account in connections.accounts if account is not None]
    plan = plan_leaders(cluster, params["cluster"], params["groups"], zones, rates, accounts, params["max_step_downs"])
    jobs = [] if module.check_mode else [StepDownJob(_asset(move), _plan_step_down(move)) for move in plan.moves]
    if jobs:
        groups = AssetGroups(connections, cluster.servers)
        step_down(groups, jobs, groups.servers, groups.supporting, timeout, params["concurrency"])
    done = bool(plan.moves) if module.check_mode else any(job.attempts for job in jobs)
    result = {**_result(plan, source), "changed": done, "waited": max((job.waited for job in jobs), default=0.0)}
    if module._diff and done:
        result["diff"] = _diff(plan)
    failed = {job.key.label: job.failed for job in jobs if job.failed is not None}
    if failed:
        first = "; ".join(f"{label}: {reason}" for label, reason in list(failed.items())[:3])
        message = f"{len(failed)} of {len(jobs)} leaders differ from the plan, such as {first}. Run it again"
        fail(module, NatsFailure("step_down_failed", message), **result, missed=failed)
    return result


def _asset(move: LeaderMove) -> StepDownAsset:
    return StepDownAsset(move.account, move.stream, move.consumer, move.account_name)


def _plan_step_down(move: LeaderMove) -> LeadershipPlan:
    wanted = LeaderConstraints(preferred=move.target)
    return LeadershipPlan(STEP_DOWN, wanted, move.group, candidates=(move.target,), target=move.target)


def _result(plan: LeaderPlan, source: str) -> dict[str, Any]:
    return {
        **(leader_page(plan) + page(*filter(None, [source]))).as_dict(),
        "moves": [
            {
                "account": move.account,
                "account_name": move.account_name or move.account,
                "stream": move.stream,
                "consumer": move.consumer,
                "from": move.source,
                "to": move.target,
                "bytes_per_second": round(move.rate),
            }
            for move in plan.moves
        ],
        "before": {name: leads.as_dict() for name, leads in plan.before.items()},
        "after": {name: leads.as_dict() for name, leads in plan.after.items()},
        "left": plan.left,
    }


def _diff(plan: LeaderPlan) -> dict[str, Any]:
    return {
        "before": {_asset(move).label: move.source for move in plan.moves},
        "after": {_asset(move).label: move.target for move in plan.moves},
    }


def main() -> None:
    module = make_module(
        {
            **ACCOUNT_USERS_SPEC,
            "cluster": {"type": "str", "required": True},
            "groups": {
                "type": "list",
                "elements": "str",
                "choices": [STREAMS, CONSUMERS],
                "default": [STREAMS, CONSUMERS],
            },
            **RATE_OPTIONS,
            "zone_tag_prefix": {"type": "str", "default": "az:"},
            "max_step_downs": {"type": "int", "default": 0},
            "concurrency": {"type": "int", "default": 8},
            "wait_timeout": {"type": "float", "default": 300},
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
