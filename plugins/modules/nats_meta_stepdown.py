#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_meta_stepdown
short_description: Move the leadership of the JetStream meta group to another server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Makes the leader of the meta group step down unless it is already suitable, and waits until a majority of the meta
    group's servers report the same new and suitable leader.
  - While the meta group elects a leader, streams and consumers continue to work, but none can be created, changed or
    deleted.
  - Needs a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.stepdown
seealso:
  - module: natsops.jetstream.nats_stream_stepdown
  - module: natsops.jetstream.nats_cluster_health
"""

EXAMPLES = r"""
- name: Keep the meta leader off the server that is restarted next
  natsops.jetstream.nats_meta_stepdown:
    away_from: [n1-c1]
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: Have a server with a certain tag lead
  natsops.jetstream.nats_meta_stepdown:
    placement:
      tags: [az:2]

- name: Elect a different leader once
  natsops.jetstream.nats_meta_stepdown:
    force: true
"""

RETURN = r"""
before:
  description: The leader before the step-down.
  returned: success
  type: dict
  sample: {leader: n1-c1}
after:
  description: The leader after the step-down. In check mode, the predicted leader; V(null) means that any of
    RV(candidates) may be elected.
  returned: success
  type: dict
  sample: {leader: n2-c1}
candidates:
  description: The members that were able and allowed to lead next. Empty if nothing had to be done.
  returned: success
  type: list
  elements: str
  sample: [n2-c1, n3-c1]
attempts:
  description: Number of step-downs.
  returned: success
  type: int
  sample: 1
waited:
  description: Seconds from the first request until the new leader was observed.
  returned: success
  type: float
  sample: 0.3
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import fail, make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.model import Server
from ..module_utils.roll.leadership import (
    REFUSED,
    SINGLE,
    STEP_DOWN,
    LeadershipPlan,
    plan_group,
    supports_placement,
    with_targets,
)
from ..module_utils.roll.step_down import (
    CONSTRAINTS_SPEC,
    SETTLE_SECONDS,
    StepDownJob,
    leader_text,
    outcome,
    refuse,
    requested_constraints,
    require_known,
    step_down,
)
from ..module_utils.roll.step_down_meta import MetaGroups
from ..module_utils.waiting import positive, wait_until


def ensure(module: AnsibleModule, client: Client) -> dict[str, Any]:
    """Return the module's result once the leader is a server that meets the constraints."""
    params = module.params
    timeout = positive(params["wait_timeout"], "wait_timeout")
    constraints = requested_constraints(params)
    groups = MetaGroups(client)

    def plan() -> tuple[dict[str, Server], LeadershipPlan]:
        there, group = groups.state()
        require_known(constraints, there, [group])
        servers = {server.name: server for server in there}
        return servers, with_targets([plan_group(group, constraints, servers)], supports_placement(there), ())[0]

    seen = wait_until(plan, lambda found: not found[1].transient, min(timeout, SETTLE_SECONDS))
    servers, planned = seen.value
    if planned.action in (REFUSED, SINGLE):
        refuse(module, [f"the meta group: {planned.reason}"], {"before": {"leader": planned.before}})
    job = None
    if planned.action == STEP_DOWN and not module.check_mode:
        job = StepDownJob("meta", planned)
        step_down(groups, [job], servers, supports_placement(servers.values()), timeout - seen.waited)
    result = outcome(planned, job, module.check_mode)
    if module._diff:
        result["diff"] = {when: {"meta leader": leader_text(result, when)} for when in ("before", "after")}
    if job is not None and job.failed is not None:
        fail(module, NatsFailure("step_down_failed", f"the meta group has no suitable leader: {job.failed}"), **result)
    return result


def main() -> None:
    module = make_module(CONSTRAINTS_SPEC)
    run(module, with_client, lambda client: ensure(module, client))


if __name__ == "__main__":
    main()
