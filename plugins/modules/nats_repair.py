#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_repair
short_description: Find and fix broken streams and consumers, one at a time
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Samples all streams and consumers twice, and reports the faults that both samples contain and that do not clear by
    themselves. The module finds consumers that are in the meta group's log but on no server (V(consumer_ghost)), that
    have no leader although a majority of their members responds (V(consumer_leaderless)), or that wait for messages
    beyond the end of their stream (V(consumer_ahead)). The module finds replicas that do not catch up
    (V(replica_behind)), are missing on their servers (V(replica_missing)) or are on servers that will never come back
    (V(replica_gone)). The module finds streams that are short of replicas (V(group_short)) or have no leader
    (V(stream_leaderless)), moves without progress (V(move_stuck)), and servers on which a failed write has stopped
    replicas (V(write_error)) or JetStream (V(jetstream_disabled)).
  - In check mode, the module returns the planned fixes with their risks, and the refused fixes with the reasons.
    Otherwise, the module applies the fixes one at a time, checks the cluster state immediately before each fix, and
    verifies the result before the next fix. The module stops at the first failure.
  - A consumer is recreated with its configuration, at its ack floor. Messages above the floor that were delivered but
    not acknowledged are delivered again. The consumer is saved in a file until it has been recreated, so a later run
    can complete an interrupted fix.
  - The module changes nothing unless the meta group has a leader and a quorum. The module never changes streams whose
    state no server reports, consumers of streams without a quorum, consumers whose deletion could drop messages
    (retention C(interest)), and replicas while another replica of the group is missing or behind.
  - Faults that need manual work are listed in RV(refused), with the commands to run.
  - Needs a user of the system account, and O(account_users) with a user of each account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
options:
  assets:
    description:
      - Assets to check, as C(ACCOUNT/STREAM) or C(ACCOUNT/STREAM/CONSUMER), where V(*) matches any characters and V(?)
        exactly one. The pattern of a stream also selects its consumers. By default, all assets are checked.
    type: list
    elements: str
    default: []
  fixes:
    description:
      - Fixes that may be applied. V(recreate), V(reset) (nats-server 2.14 and newer) and V(delete) (not for durable
        consumers) apply to consumers. V(replace_replica), V(refill) and V(cancel_move) apply to streams.
    type: list
    elements: str
    choices: [recreate, reset, delete, replace_replica, refill, cancel_move]
    default: [recreate, reset, delete, replace_replica, refill, cancel_move]
  allow:
    description:
      - Accepted risks. With V(position_lost), a consumer whose position is unknown is recreated, and all messages of
        its stream are delivered to it again.
    type: list
    elements: str
    choices: [position_lost]
    default: []
  floors:
    description:
      - Ack floors of consumers (stream sequences) from another source, such as the last report or snapshot, by
        C(ACCOUNT/STREAM/CONSUMER).
    type: dict
    default: {}
  dead_servers:
    description:
      - Names of servers that will never come back. Other servers take over their replicas. A listed server that
        responds is left unchanged.
    type: list
    elements: str
    default: []
  expected_servers:
    description:
      - Servers that should respond. The module waits for these servers, up to O(timeout).
    type: list
    elements: str
    default: []
  expected_jetstream_servers:
    description:
      - Servers on which JetStream should run. By default, this is not checked for any server.
    type: list
    elements: str
    default: []
  observe:
    description:
      - Seconds between the two samples. Increase this time if replicas catch up slowly.
    type: float
    default: 10
  wait_timeout:
    description:
      - Seconds within which each fix must take effect.
    type: float
    default: 60
  records_dir:
    description:
      - Directory for the files in which a consumer is saved while it is recreated. Defaults to the directory C(natsops)
        in Ansible's home directory.
    type: path
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
seealso:
  - module: natsops.jetstream.nats_cluster_health
  - module: natsops.jetstream.nats_stream_peer
  - module: natsops.jetstream.nats_consumer
"""

EXAMPLES = r"""
- name: Recreate a missing consumer at the ack floor from the last report
  natsops.jetstream.nats_repair:
    assets: [APP/ORDERS/worker]
    fixes: [recreate]
    floors: {APP/ORDERS/worker: 1200}
    account_users:
      - {account: APP, user: ops, password: "{{ app_ops_password }}"}
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
"""

RETURN = r"""
lines:
  description: The findings and the fix for each, as human-readable lines.
  returned: success, and when a fix fails
  type: list
  elements: str
  sample:
    - "stream APP/ORDERS: has 2 of 3 replicas: n1-c1, n2-c1 → set num_replicas to the number of existing members and back,
      which makes the meta leader choose the missing members (refill, risk: none)"
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success, and when a fix fails
  type: list
  elements: str
steps:
  description: The findings and fixes in machine-readable form. C(refused) is the reason why a fix is refused; empty if
    the fix is not refused.
  returned: success, and when a fix fails
  type: list
  elements: dict
  sample:
    - finding: consumer_ghost
      asset: APP/ORDERS/worker
      server: ''
      message: consumer APP/ORDERS/worker is in the meta group's log, but not on any server
      fix: recreate
      risk: redelivery
      does: recreate it with its configuration at its ack floor 1200
      refused: ''
      floor: 1200
refused:
  description: The faults that are not fixed, with the reasons.
  returned: success, and when a fix fails
  type: list
  elements: str
  sample: []
refusal:
  description: The content of RV(refused) as human-readable text, limited to one screen.
  returned: success, and when a fix fails
  type: str
  sample: ""
subjects:
  description: All faults found, named as in the health gate
    (O(natsops.jetstream.nats_cluster_health#module:tolerate)).
  returned: success, and when a fix fails
  type: list
  elements: str
  sample: [consumer APP/ORDERS/worker]
left:
  description: The faults in RV(subjects) that are not fixed.
  returned: success, and when a fix fails
  type: list
  elements: str
  sample: []
done:
  description: The completed steps, with their observed results (C(seen)). Empty in check mode.
  returned: success, and when a fix fails
  type: list
  elements: dict
  sample:
    - {asset: APP/ORDERS/worker, fix: recreate, seen: recreated; it delivers after 1200, changed: true}
"""

from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.health.rules import Expectations
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.rescue.repair_plan import FIXES, POSITION_LOST, RepairOptions, RepairStep, repair_page
from ..module_utils.rescue.run_repair import Repair, RepairSettings, carry_out_all
from ..module_utils.screen import listed
from ..module_utils.waiting import positive


def parse_floors(value: dict[str, Any]) -> dict[str, int]:
    """Return the floors as numbers. Raises NatsFailure invalid_option."""
    floors = {}
    for name, floor in value.items():
        if name.count("/") < 2 or not str(floor).isdecimal():
            raise NatsFailure(
                "invalid_option", f"floors: {name}: {floor!r} is not ACCOUNT/STREAM/CONSUMER: SEQUENCE, such as 1200"
            )
        floors[name] = int(floor)
    return floors


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result once every fix is confirmed. The result of a failure lists the completed steps."""
    params = module.params
    request = RepairOptions(
        params["assets"],
        params["fixes"],
        params["allow"],
        parse_floors(params["floors"]),
        frozenset(params["dead_servers"]),
    )
    expected = Expectations(
        servers=frozenset(params["expected_servers"]) or None,
        jetstream_servers=frozenset(params["expected_jetstream_servers"]) or None,
    )
    settings = RepairSettings(
        expected, params["observe"], positive(params["wait_timeout"], "wait_timeout"), params["records_dir"]
    )
    positive(settings.observe, "observe")
    repair = Repair(connections, request, settings)
    steps = repair.plan()
    result = step_results(steps)
    if module.check_mode:
        return result
    done, failure = carry_out_all(repair, steps)
    result.update(done=done, changed=any(step["changed"] for step in done))
    if failure is not None:
        # The failed step may already have changed something.
        fail(module, failure, **{**result, "changed": True})
    return result


def step_results(steps: Sequence[RepairStep]) -> dict[str, Any]:
    """Return the part of the result that every run returns; in check mode, it is the complete result."""
    due = [step for step in steps if not step.refused]
    refused = [f"{step.finding.subject}: {step.refused}" for step in steps if step.refused]
    return {
        "changed": bool(due),
        **repair_page(steps).as_dict(),
        "steps": [step.as_dict() for step in steps],
        "refused": refused,
        "refusal": listed(refused),
        "subjects": sorted({subject for step in steps for subject in step.subjects}),
        "left": sorted({subject for step in steps if step.refused for subject in step.subjects}),
        "done": [],
        "diff": {
            "before": {step.finding.subject: step.finding.code for step in due},
            "after": {step.finding.subject: step.fix for step in due},
        },
    }


def main() -> None:
    module = make_module(
        {
            "assets": {"type": "list", "elements": "str", "default": []},
            "fixes": {"type": "list", "elements": "str", "choices": list(FIXES), "default": list(FIXES)},
            "allow": {"type": "list", "elements": "str", "choices": [POSITION_LOST], "default": []},
            "floors": {"type": "dict", "default": {}},
            "dead_servers": {"type": "list", "elements": "str", "default": []},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
            "expected_jetstream_servers": {"type": "list", "elements": "str", "default": []},
            "observe": {"type": "float", "default": 10},
            "wait_timeout": {"type": "float", "default": 60},
            "records_dir": {"type": "path"},
            **ACCOUNT_USERS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
