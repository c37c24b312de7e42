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
  - With O(target_version) it also judges the way from the versions that run to the one that is wanted, and names the streams and
    consumers that stand in the way of a downgrade.
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
  target_version:
    description:
      - The version of nats-server that the servers are to run afterwards, such as V(2.10.27). Without it, or when they all run
        it, versions are not judged.
    type: str
  allow_skipped_minors:
    description:
      - Whether O(target_version) may skip minor releases, which are meant to be taken one by one. A skip is then a warning.
    type: bool
    default: false
  allow_downgrade:
    description:
      - Whether O(target_version) may be older than what runs. A downgrade is then a warning. One to a version that cannot read
        the files, or that does not know what a stream or consumer uses, stays an error.
    type: bool
    default: false
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

- name: Ask whether the cluster can go back to 2.11.17, and which streams and consumers stand in the way
  natsops.jetstream.nats_roll_plan:
    server_names: [n1-c1, n2-c1, n3-c1]
    expected_servers: [n1-c1, n2-c1, n3-c1]
    target_version: 2.11.17
    allow_downgrade: true
    context: c1-sys
  register: plan
  failed_when: not plan.ok
"""

RETURN = r"""
batches:
  description: The batches in their order, each with the names of the servers that restart together.
  returned: success
  type: list
  elements: list
  sample: [[n2-c1], [n3-c1], [n4-c1], [n5-c1], [n1-c1]]
effects:
  description: What is known of each of RV(batches), in their order.
  returned: success
  type: list
  elements: dict
  sample:
    - {reason: "", leaders: 12, groups: 31}
    - {reason: "has the meta leader, so it comes last", leaders: 9, groups: 28}
  contains:
    reason:
      description: Why the batch is where it is, empty where only names decide.
      returned: always
      type: str
    leaders:
      description: How many streams and consumers are led from its servers and need another leader.
      returned: always
      type: int
    groups:
      description: How many streams and consumers miss a member meanwhile.
      returned: always
      type: int
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
ok:
  description: Whether nothing speaks against the plan, that is, none of RV(problems) has the severity V(error).
  returned: success
  type: bool
  sample: true
errors:
  description: The messages of the RV(problems) with the severity V(error).
  returned: success
  type: list
  elements: str
  sample: []
versions:
  description: The versions that run, each with the names of its servers.
  returned: success
  type: dict
  sample: {2.10.27: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1]}
problems:
  description:
    - What speaks against the plan (severity V(error)), or what it costs (V(warning)), as in
      M(natsops.jetstream.nats_cluster_health).
    - Codes of the batches are V(roll_few_replicas) and V(roll_meta_quorum).
    - Codes of O(target_version) are V(roll_skipped_minor), V(roll_downgrade), V(roll_downgrade_floor) (the version cannot read
      the files or load the assets safely), V(roll_api_level) and V(roll_unknown_option) (a stream or consumer uses what the
      version does not know), V(roll_state_rebuild) (the first start is slow), V(roll_best_start), V(roll_mixed_versions) and
      V(roll_version_unknown).
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
from ansible_collections.natsops.jetstream.plugins.module_utils._quorum import ERROR
from ansible_collections.natsops.jetstream.plugins.module_utils._rolling import RollRules, batch_effects, plan_roll
from ansible_collections.natsops.jetstream.plugins.module_utils._versions import VersionRules, parse, version_problems

_RULES = ("max_parallel", "members_down", "meta_spare", "canary", "few_replicas")


def zones_of(servers: Iterable[Server], prefix: str) -> dict[str, str]:
    """Return server → zone from the servers' tags; nats-server may keep them in lower case."""
    found = {}
    for server in servers:
        zones = sorted(tag[len(prefix) :] for tag in server.tags if tag.lower().startswith(prefix.lower()))
        if zones:
            found[server.name] = zones[0]
    return found


def target_of(params: Mapping[str, Any]) -> VersionRules | None:
    """Return the wanted version and what is accepted, None when versions are not judged. Raises NatsFailure invalid_option."""
    if not params["target_version"]:
        return None
    try:
        parse(params["target_version"])
    except ValueError as error:
        raise NatsFailure("invalid_option", f"target_version: {error}") from error
    return VersionRules(params["target_version"], params["allow_skipped_minors"], params["allow_downgrade"])


def plan(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure server_missing for a server that nobody has heard of."""
    for option in ("max_parallel", "members_down", "meta_spare", "canary"):
        least = 1 if option == "members_down" else 0
        if params[option] < least:
            raise NatsFailure("invalid_option", f"{option}: must be at least {least}, not {params[option]}")
    target = target_of(params)
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
    problems = list(made.problems)
    if target is not None:
        problems += version_problems(cluster, wanted, target)
    versions: dict[str, list[str]] = {}
    for server in cluster.servers:
        versions.setdefault(server.version, []).append(server.name)
    errors = [problem.message for problem in problems if problem.severity == ERROR]
    effects = zip(made.reasons, batch_effects(cluster, made.batches))
    return {
        "changed": False,
        "batches": [list(batch) for batch in made.batches],
        "effects": [{"reason": reason, **effect.__dict__} for reason, effect in effects],
        "ok": not errors,
        "errors": errors,
        "versions": versions,
        "lower_bound": made.lower_bound,
        "meta_leader": cluster.meta.group.leader if cluster.meta else None,
        "problems": [problem.as_dict() for problem in problems],
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
            "target_version": {"type": "str"},
            "allow_skipped_minors": {"type": "bool", "default": False},
            "allow_downgrade": {"type": "bool", "default": False},
        }
    )
    run(module, lambda client: plan(client, module.params))


if __name__ == "__main__":
    main()
