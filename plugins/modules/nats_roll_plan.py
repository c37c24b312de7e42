#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_roll_plan
short_description: Plan in which batches NATS servers can be restarted without a group losing its quorum
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the whole (super)cluster and returns the order and the batches in which the servers can be restarted, so that at every
    moment the meta group and every stream and consumer keep their quorum. The same state gives the same plan.
  - It only plans. Ask M(natsops.jetstream.nats_cluster_health) with C(stop_servers) right before each batch, because the state
    may have changed since.
  - Servers that are down come first and together, then the canaries, and the meta leader is in the last batch.
  - Needs a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  server_names:
    description:
      - Servers to restart, matched exactly.
    type: list
    elements: str
    required: true
  expected_servers:
    description:
      - Names of all servers of the (super)cluster. They are waited for, and those that do not answer count as down.
    type: list
    elements: str
  max_parallel:
    description:
      - Most servers in one batch; V(0) for as many as the quorums allow.
    type: int
    default: 1
  members_down:
    description:
      - Most members of any stream or consumer group that may be down together. The group keeps its quorum in any case.
    type: int
    default: 1
  meta_spare:
    description:
      - Members that the meta group must have beyond its quorum while a batch of several servers is down.
    type: int
    default: 1
  canary:
    description:
      - Servers that go first, one by one. Those that lead the fewest groups are taken.
    type: int
    default: 0
  few_replicas:
    description:
      - What to do about streams and consumers of one or two replicas, which are away while a member restarts. V(fail) makes
        them an error in RV(problems), V(accept) a warning.
    type: str
    choices: [accept, fail]
    default: accept
  zone_tag_prefix:
    description:
      - Servers with a tag that begins so stand in the zone that its rest names. The servers of a batch that belong to the same
        cluster stand in one zone.
    type: str
    default: 'az:'
seealso:
  - module: natsops.jetstream.nats_cluster_health
"""

EXAMPLES = r"""
- name: Plan a restart of all servers in as few batches as the quorums allow
  natsops.jetstream.nats_roll_plan:
    server_names: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1]
    expected_servers: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1]
    max_parallel: 0
    context: c1-sys
  register: plan

- name: Show it
  ansible.builtin.debug:
    msg: "{{ plan.batches | length }} batches (at least {{ plan.lower_bound }}): {{ plan.batches }}"
"""

RETURN = r"""
batches:
  description: The batches in their order, each with the names of the servers that restart together.
  returned: success
  type: list
  elements: list
  sample: [[n2-c1], [n3-c1], [n4-c1], [n5-c1], [n1-c1]]
lower_bound:
  description: No plan under these rules has fewer batches.
  returned: success
  type: int
  sample: 5
meta_leader:
  description: The meta leader, null when there is none.
  returned: success
  type: str
  sample: n1-c1
problems:
  description: What speaks against the plan, or what it costs, as in M(natsops.jetstream.nats_cluster_health).
  returned: success
  type: list
  elements: dict
  sample:
    - code: roll_few_replicas
      severity: warning
      subject: stream APP/EVENTS
      message: "stream APP/EVENTS (R1) is away while n2-c1 restart(s): 1 of 1 replicas make its quorum"
      servers: [n2-c1]
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils._client import Client, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils._model import Server
from ansible_collections.natsops.jetstream.plugins.module_utils._module import make_module, run
from ansible_collections.natsops.jetstream.plugins.module_utils._rolling import RollRules, plan_roll

_RULES = ("max_parallel", "members_down", "meta_spare", "canary", "few_replicas")


def zones_of(servers: Iterable[Server], prefix: str) -> dict[str, str]:
    """Return server → zone from the servers' tags; nats-server may keep them in lower case."""
    found = {}
    for server in servers:
        zones = sorted(tag[len(prefix) :] for tag in server.tags if tag.lower().startswith(prefix.lower()))
        if zones:
            found[server.name] = zones[0]
    return found


def plan(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure server_missing for a server that nobody has heard of."""
    for option in ("max_parallel", "members_down", "meta_spare", "canary"):
        least = 1 if option == "members_down" else 0
        if params[option] < least:
            raise NatsFailure("invalid_option", f"{option}: must be at least {least}, not {params[option]}")
    wanted, expected = params["server_names"], params["expected_servers"] or ()
    cluster = SystemApi(client).read_cluster(awaited=expected, known_names={*wanted, *expected})
    heard_of = {*cluster.names, *expected, *(cluster.meta.group.members if cluster.meta else ())}
    strangers = sorted(set(wanted) - heard_of)
    if strangers:
        raise NatsFailure(
            "server_missing",
            f"server_names: nobody has heard of {', '.join(strangers)}; there are: {', '.join(sorted(cluster.names))}",
            server=strangers[0],
        )
    rules = RollRules(**{name: params[name] for name in _RULES})
    made = plan_roll(cluster, wanted, zones_of(cluster.servers, params["zone_tag_prefix"]), rules)
    return {
        "changed": False,
        "batches": [list(batch) for batch in made.batches],
        "lower_bound": made.lower_bound,
        "meta_leader": cluster.meta.group.leader if cluster.meta else None,
        "problems": [problem.as_dict() for problem in made.problems],
    }


def main() -> None:
    module = make_module(
        {
            "server_names": {"type": "list", "elements": "str", "required": True},
            "expected_servers": {"type": "list", "elements": "str"},
            "max_parallel": {"type": "int", "default": 1},
            "members_down": {"type": "int", "default": 1},
            "meta_spare": {"type": "int", "default": 1},
            "canary": {"type": "int", "default": 0},
            "few_replicas": {"type": "str", "choices": ["accept", "fail"], "default": "accept"},
            "zone_tag_prefix": {"type": "str", "default": "az:"},
        }
    )
    run(module, lambda client: plan(client, module.params))


if __name__ == "__main__":
    main()
