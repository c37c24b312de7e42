#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_roll_plan
short_description: Plan batches in which NATS servers can restart while every group keeps its quorum
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the complete (super)cluster and returns the order and the batches in which the servers can be restarted, while
    the meta group and every stream and consumer keep their quorum. The same cluster state always results in the same
    plan.
  - This module only plans. Run M(natsops.jetstream.nats_cluster_health) with C(stop_servers) right before each batch,
    because the state may have changed in the meantime.
  - Raft-silent servers come first, one at a time, then servers that are down, all together, and then the canaries, one
    at a time. The meta leader is in the last batch.
  - With O(target_version), the module also checks the upgrade path from the running versions to that version, and lists
    the streams and consumers that prevent a downgrade.
  - Needs a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.rolling
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  server_names:
    description:
      - Names of the servers to restart, matched exactly.
      - Either O(server_names) or O(hosts) is required.
    type: list
    elements: str
  hosts:
    description:
      - Inventory hosts to restart, each with the name of its server.
    type: dict
  reasons:
    description:
      - The reasons to restart each host, as a list of phrases for RV(lines).
    type: dict
    default: {}
  disk_free:
    description:
      - Free bytes in the file system of each host's store, if known. A server with a full disk does not come back
        from a restart.
    type: dict
    default: {}
  gate:
    description:
      - Whether a health gate watches the restart. Without a gate, each of RV(batches) contains a single host,
        only streams that would lose messages are an error, and a cluster that cannot be read is only a warning.
      - With a gate, the task fails if the cluster cannot be read.
    type: bool
    default: true
  expected_servers:
    description:
      - Names of all servers of the (super)cluster. The module waits for these servers; those that do not respond count
        as down.
    type: list
    elements: str
  max_parallel:
    description:
      - Maximum number of servers in one batch; V(0) for as many as the quorums allow.
    type: int
    default: 1
  max_unavailable_replicas:
    description:
      - Maximum number of members of any stream or consumer group that may be down together. The group always keeps
        its quorum.
    type: int
    default: 1
  meta_headroom:
    description:
      - Number of members that the meta group must have in addition to its quorum while a batch of several servers is
        down.
    type: int
    default: 1
  canary:
    description:
      - Number of servers to restart first, one by one. The module chooses the servers that lead the fewest groups.
    type: int
    default: 0
  r1_policy:
    description:
      - How to treat streams and consumers of one or two replicas, which are unavailable while a member restarts.
        V(fail) makes them an error in RV(problems); V(accept) and V(move) make them a warning. With V(move), the caller
        moves single replicas to another server before the batch, so memory streams keep their messages.
    type: str
    choices: [accept, fail, move]
    default: accept
  accept_loss:
    description:
      - Streams, each as C(ACCOUNT/STREAM), that may lose messages in the restart, either because their only replica is
        in memory or because of a defect of the server. Any other stream that would lose messages in this way is an
        error.
      - The list may also contain consumers whose position is only in the memory of a single server, each as
        C(ACCOUNT/STREAM/CONSUMER).
    type: list
    elements: str
    default: []
  starts:
    description:
      - The version of nats-server with which each server of O(server_names), or host of O(hosts), starts. Defaults to
        O(target_version), or else to the running version.
    type: dict
    default: {}
  stopped_versions:
    description:
      - The installed version of each server that is not running, by the name of the server; empty for a new server.
        With O(target_version), the module also checks the start of such a server, with its version in O(starts) or, if
        it has none there, with O(target_version). A downgrade of such a server is refused, because its streams and
        consumers are unknown while it is not running.
    type: dict
    default: {}
  leaving:
    description:
      - Names of the servers that leave the cluster. While such a server does not answer, its unknown version turns off
        no flag in RV(feature_flags).
    type: list
    elements: str
    default: []
  stored_groups:
    description:
      - Some of the Raft groups in the store of each server that is not running, by the name of the server, as returned
        in C(groups) by M(natsops.jetstream.nats_server_host_info). A server with the store of a different cluster is
        refused.
    type: dict
    default: {}
  maintenance:
    description:
      - The servers in maintenance, each as returned in C(maintenance) by M(natsops.jetstream.nats_server_host_info).
        These servers count as down. A batch that would break a quorum is refused, even if it would not while these
        servers are up.
    type: list
    elements: dict
    default: []
  zone_tag_prefix:
    description:
      - A server that has a tag with this prefix is in the zone named by the rest of the tag. Servers of the same
        cluster in one batch are all in the same zone.
    type: str
    default: 'az:'
  target_version:
    description:
      - The version of nats-server that the servers should run afterwards, such as V(2.10.27). Versions are not checked
        without this option, or if all servers already run that version.
    type: str
  allow_skipped_minors:
    description:
      - Whether O(target_version) may skip minor releases, which should be installed one by one. With V(true), a skip is
        only a warning.
    type: bool
    default: false
  allow_downgrade:
    description:
      - Whether O(target_version) may be older than a running version. With V(true), a downgrade is only a warning, but
        it remains an error if the older version cannot read the files or does not support a feature that a stream or
        consumer uses.
    type: bool
    default: false
  feature_flags:
    description:
      - The C(feature_flags) in the configuration with which O(target_version) starts. C(js_raft_delete_range), which is
        on by default since nats-server 2.15, makes servers before 2.14 panic if a replicated mirror exists.
    type: dict
    default: {}
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
    msg: >-
      {{ plan.batches | length }} batches (at least {{ plan.lower_bound }}):
      {{ plan.batches | map(attribute='servers') | list }}

- name: Check whether the cluster can go back to 2.11.17, and which streams and consumers prevent it
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
began:
  description: When the plan was made, in epoch seconds. When a run is resumed, servers that started after this time
    need no restart.
  returned: success
  type: int
  sample: 1795254003
batches:
  description: The batches in order, each with everything that its tasks need.
  returned: success
  type: list
  elements: dict
  sample:
    - number: 2
      hosts: [n1]
      servers: [n1-c1]
      title: batch 2 of 2 (n1)
      reason: has the meta leader, so it comes last
      leaders: 9
      groups: 28
      remaining: []
      gates:
        before:
          stop_servers: [n1-c1]
          stop_policy: fail
          stuck_timeout: 15
          samples: 4
          span: 5.0
          r1_policy: accept
          tolerate: [n1-c1]
          shared: true
          reason: the gate after the last batch also evaluated this stop, and nothing has changed since
      drain: {leaders: true, clients: true, replicas: false, accept_loss: false, r1_policy: accept, avoid_servers: []}
      progress: {title: batch 2 of 2 (n1), step: 2, steps: 2, began: 1795254003}
  contains:
    number:
      description: Number of the batch, from 1.
      returned: always
      type: int
    action:
      description: The step of the batch, in plans with different steps. Empty here.
      returned: always
      type: str
    hosts:
      description: The hosts that restart together. Without O(hosts), the names of their servers.
      returned: always
      type: list
      elements: str
    servers:
      description: The names of their servers.
      returned: always
      type: list
      elements: str
    title:
      description: The batch in messages.
      returned: always
      type: str
    reason:
      description: Why the batch has its position. Empty if the batch has this position only because of the order of the
        names.
      returned: always
      type: str
    leaders:
      description: Number of streams and consumers that need a new leader, because one of these servers leads them. Null
        without O(gate).
      returned: always
      type: int
    groups:
      description: Number of streams and consumers that are missing a member during the batch. Null without O(gate).
      returned: always
      type: int
    remaining:
      description: The hosts of later batches.
      returned: always
      type: list
      elements: str
    gates:
      description:
        - The options of M(natsops.jetstream.nats_cluster_health) for the gates C(before) the batch is drained,
          C(drained) right before the stop, and C(after) the restart. Empty without O(gate).
        - Also, in C(before), whether the gate after the previous batch covers this gate if it passes (C(shared)), why
          (C(reason)), and the first host of that batch (C(previous_host)).
      returned: always
      type: dict
    drain:
      description: Whether leaders and clients are moved off the servers before their stop (C(leaders), C(clients)), how
        single replicas are treated (C(r1_policy)), and the servers that should not receive leaders
        (C(avoid_servers)). In plans that remove servers, also whether all replicas are moved (C(replicas)) and whether
        single replicas may be lost (C(accept_loss)).
      returned: always
      type: dict
    progress:
      description: The option C(progress) of waiting modules.
      returned: always
      type: dict
lines:
  description: The plan as human-readable lines.
  returned: success
  type: list
  elements: str
  sample:
    - "batch 1 of 3: n2 (max_payload changed)"
    - "batch 1 takes 31 streams and consumers to reduced redundancy; 12 need a new leader"
refusal:
  description: The reasons against the restart, which are RV(errors) summarised by root cause. Empty if nothing prevents
    the restart.
  returned: success
  type: str
  sample: ""
causes:
  description: The root causes of RV(problems), in the same form as those of M(natsops.jetstream.nats_cluster_health).
  returned: success
  type: list
  elements: dict
  sample: []
asset_faults:
  description:
    - Streams and consumers (such as C(consumer APP/ORDERS/worker)) for which a server has been reporting a fault for a
      long time; catching up does not count as a fault. Such a fault is not caused by a restart, so the gates of a roll
      need not wait for these assets.
  returned: success
  type: list
  elements: str
  sample: []
raft_silent:
  description: Names of the raft-silent servers, as defined by M(natsops.jetstream.nats_cluster_info).
  returned: success
  type: list
  elements: str
  sample: []
lower_bound:
  description: Minimum number of batches under these rules.
  returned: success
  type: int
  sample: 5
meta_leader:
  description: The meta leader. Null if there is none.
  returned: success
  type: str
  sample: n1-c1
ok:
  description: Whether the plan may be carried out, which is the case if none of RV(problems) has the severity V(error).
  returned: success
  type: bool
  sample: true
errors:
  description: The messages of the RV(problems) with the severity V(error).
  returned: success
  type: list
  elements: str
  sample: []
feature_flags:
  description: >-
    With O(target_version), the feature flags that each server must turn off in its configuration before it starts,
    because an older member of the cluster cannot read its entries. Servers without such flags are omitted.
  returned: success and O(gate)
  type: dict
  sample: {n1-c1: {js_raft_delete_range: false}}
versions:
  description: The running versions, each with the names of its servers.
  returned: success
  type: dict
  sample: {2.10.27: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1]}
version_warnings:
  description: Known defects of the running versions and of O(target_version), one line each, with the fix.
  returned: success
  type: list
  elements: str
  sample:
    - "nats-server 2.12.15: end-of-life since 2026-09; upstream maintains 2.15 and 2.14"
problems:
  description:
    - The obstacles to the plan (severity V(error)) and its costs (V(warning)), as in
      M(natsops.jetstream.nats_cluster_health).
    - The codes for batches are V(roll_few_replicas), V(roll_missing_member), V(roll_memory_lost), V(roll_first_seq),
      V(roll_meta_quorum) and V(disk_full). Without O(gate), there is also V(roll_unchecked). With O(maintenance), there
      are also V(maintenance), V(maintenance_overdue) and V(stop_breaks_quorum).
    - The codes for O(target_version) are V(roll_skipped_minor), V(roll_downgrade), V(roll_downgrade_floor) (the version
      cannot read the files or load the assets safely), V(roll_api_level) and V(roll_unknown_option) (a stream or
      consumer uses an option that the version does not support), V(roll_unreadable_entries) (some members would write
      Raft entries that other members cannot read), V(roll_state_rebuild) (the first start is slow), V(roll_best_start),
      V(roll_mixed_versions) and V(roll_version_unknown).
    - V(roll_foreign_store) means that a server in O(stored_groups) has the store of a different cluster.
  returned: success
  type: list
  elements: dict
  sample:
    - code: roll_few_replicas
      severity: warning
      subject: stream APP/EVENTS
      message: "stream APP/EVENTS (R1) is unavailable while n2-c1 restart(s): its quorum is 1 of 1 replicas"
      servers: [n2-c1]
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.collection_module import run
from ..module_utils.health.cause import ClusterContext, build_context
from ..module_utils.health.causes import refusal, root_causes
from ..module_utils.health.raft_silence import raft_silent_servers
from ..module_utils.health.rules import lasting_asset_faults
from ..module_utils.maintenance import mark_texts, parse_marks
from ..module_utils.module import make_module, read_if_possible, with_options
from ..module_utils.nats.client import Client, ConnectionOptions, NatsFailure
from ..module_utils.nats.model import Cluster
from ..module_utils.nats.server_versions import version_warnings
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.placement.membership_plan import foreign_store_problems
from ..module_utils.placement.rules import server_zones
from ..module_utils.problem import ERROR, Problem
from ..module_utils.roll.batches import ROLLING_SPEC, Rolling, batch_documents
from ..module_utils.roll.maintenance import roll_problems
from ..module_utils.roll.restart_plan import (
    BatchEffect,
    RollPlan,
    RollRules,
    batch_effects,
    disk_problems,
    free_bytes,
    plan_lines,
    plan_roll,
    plan_ungated,
    unreadable_refusal,
)
from ..module_utils.roll.version_rules import VersionRules, flags_to_turn_off, parse, version_problems

_RULES = ("max_parallel", "max_unavailable_replicas", "meta_headroom", "canary", "r1_policy")


def requested_target(params: Mapping[str, Any]) -> VersionRules | None:
    """Return the target version and accepted deviations; None without a target. Raises NatsFailure invalid_option."""
    if not params["target_version"]:
        return None
    try:
        parse(params["target_version"])
    except ValueError as error:
        raise NatsFailure("invalid_option", f"target_version: {error}") from error
    try:
        flags = {str(name): boolean(value) for name, value in params["feature_flags"].items()}
    except TypeError as error:
        raise NatsFailure("invalid_option", f"feature_flags: {error}") from error
    return VersionRules(params["target_version"], params["allow_skipped_minors"], params["allow_downgrade"], flags)


def host_names(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of each server's host. A server that was specified without a host keeps its own name."""
    hosts = {server: host for host, server in (params["hosts"] or {}).items()}
    return hosts or {name: name for name in params["server_names"] or ()}


def restart_rules(params: Mapping[str, Any]) -> RollRules:
    """Return the limits of the batches and the accepted losses."""
    return RollRules(
        **{name: params[name] for name in _RULES},
        accept_loss=frozenset(params["accept_loss"]),
        starts={
            server: str(params["starts"].get(host) or params["target_version"] or "")
            for server, host in host_names(params).items()
        },
    )


def read_cluster(client: Client, params: Mapping[str, Any], servers: Collection[str]) -> Cluster:
    """Return the cluster. Raises NatsFailure if the cluster cannot be read (the message lists the reasons for the
    restart if `hosts` is set), and NatsFailure server_missing for unknown servers."""
    expected = params["expected_servers"] or ()
    awaited = set(expected) - parse_marks(params["maintenance"]).keys()
    try:
        cluster = SystemApi(client).read_cluster(awaited=awaited, known_names={*servers, *expected})
    except NatsFailure as failure:
        if params["hosts"]:
            failure.description = unreadable_refusal(
                params["hosts"], params["reasons"], failure.description, failure.code
            )
        raise
    members = cluster.meta.group.members if cluster.meta else ()
    unknown = sorted(set(servers) - {*cluster.names, *expected, *members})
    if unknown:
        there = ", ".join(sorted(cluster.names))
        message = f"no server or member of the meta group is named {', '.join(unknown)}; there are: {there}"
        raise NatsFailure("server_missing", message, server=unknown[0])
    return cluster


def judge_versions(
    cluster: Cluster, hosts: Mapping[str, str], params: Mapping[str, Any], rules: VersionRules
) -> tuple[list[Problem], dict[str, dict[str, bool]]]:
    """Return the problems of the versions with which the servers start, and the feature flags that each server must
    set. Most runs have one version for all servers. Raises NatsFailure invalid_option."""
    stopped = {name: str(version or "") for name, version in params["stopped_versions"].items()}
    by_target: dict[str, list[str]] = {}
    for server, host in {**{name: name for name in stopped}, **hosts}.items():
        by_target.setdefault(str(params["starts"].get(host) or rules.target), []).append(server)
    problems: list[Problem] = []
    flags = {}
    for version, servers in by_target.items():
        try:
            problems += version_problems(cluster, servers, replace(rules, target=version), stopped)
            for server in servers:
                if off := flags_to_turn_off(cluster, server, version, stopped, params["leaving"]):
                    flags[server] = dict.fromkeys(off, False)
        except ValueError as error:
            raise NatsFailure("invalid_option", f"starts: {error}") from error
    return problems, flags


def gated_plan(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure like `read_cluster`, and invalid_option if no plan can meet the
    rules."""
    for option in ("max_parallel", "max_unavailable_replicas", "meta_headroom", "canary"):
        least = 1 if option == "max_unavailable_replicas" else 0
        if params[option] < least:
            raise NatsFailure("invalid_option", f"{option}: must be at least {least}, not {params[option]}")
    target = requested_target(params)
    hosts = host_names(params)
    cluster = read_cluster(client, params, hosts)
    rules = restart_rules(params)
    made = plan_roll(cluster, hosts, server_zones(cluster.servers, params["zone_tag_prefix"]), rules)
    effects = batch_effects(cluster, made.batches)
    free = {server: free_bytes(params["disk_free"].get(host)) for server, host in hosts.items()}
    marks, now = parse_marks(params["maintenance"]), time.time()
    version_findings, flags = judge_versions(cluster, hosts, params, target) if target else ([], {})
    problems = [
        *disk_problems(free),
        *made.problems,
        *roll_problems(cluster, made.batches, marks, now),
        *version_findings,
        *foreign_store_problems(cluster, params["stored_groups"]),
    ]
    context = build_context(cluster, {}, maintenance=mark_texts(marks, now))
    found = result(cluster, replace(made, problems=tuple(problems)), params, effects, context)
    return {**found, "feature_flags": flags}


def ungated_plan(options: ConnectionOptions, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result without a gate: the hosts one after another, in the given order."""
    hosts = host_names(params)
    awaited = set(params["expected_servers"] or ()) - parse_marks(params["maintenance"]).keys()
    cluster, unread = read_if_possible(
        options,
        lambda client: SystemApi(client).read_cluster(awaited=awaited, known_names={*hosts, *awaited}, health=False),
    )
    made = plan_ungated(cluster, list(hosts), restart_rules(params), unread)
    return result(Cluster(), made, params)


def result(
    cluster: Cluster,
    made: RollPlan,
    params: Mapping[str, Any],
    effects: Sequence[BatchEffect] = (),
    context: ClusterContext | None = None,
) -> dict[str, Any]:
    """Return the module's result for a plan."""
    versions: dict[str, list[str]] = {}
    for server in cluster.servers:
        versions.setdefault(server.version, []).append(server.name)
    errors = [problem.message for problem in made.problems if problem.severity == ERROR]
    context = context or build_context(cluster, {})
    hosts = host_names(params)
    rolling = Rolling(
        options=params["rolling"],
        r1_policy=params["r1_policy"],
        began=int(time.time()),
        gated=params["gate"],
        versions={server.name: server.version for server in cluster.servers},
        silent=raft_silent_servers(cluster),
        asset_faults=lasting_asset_faults(cluster),
    )
    return {
        "changed": False,
        "began": rolling.began,
        "batches": batch_documents(made.batches, hosts, rolling, made.reasons, effects),
        "lines": plan_lines(
            [[hosts[name] for name in batch] for batch in made.batches], params["reasons"], made.reasons, effects
        ),
        "refusal": refusal("The restart is refused; no server was touched.", made.problems, context),
        "causes": [cause.as_dict() for cause in root_causes(made.problems, context)],
        "raft_silent": rolling.silent,
        "asset_faults": rolling.asset_faults,
        "ok": not errors,
        "errors": errors,
        "versions": versions,
        "version_warnings": version_warnings([*versions, params["target_version"] or ""]),
        "lower_bound": made.lower_bound,
        "meta_leader": cluster.meta.group.leader if cluster.meta else None,
        "problems": [problem.as_dict() for problem in made.problems],
    }


def plan(options: ConnectionOptions, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure for an invalid option, and for an unreadable cluster if there is a
    gate."""
    if not params["gate"]:
        return ungated_plan(options, params)
    with Client(options) as client:
        return gated_plan(client, params)


def main() -> None:
    module = make_module(
        {
            "server_names": {"type": "list", "elements": "str"},
            "hosts": {"type": "dict"},
            "reasons": {"type": "dict", "default": {}},
            "disk_free": {"type": "dict", "default": {}},
            "gate": {"type": "bool", "default": True},
            "expected_servers": {"type": "list", "elements": "str"},
            "max_parallel": {"type": "int", "default": 1},
            "max_unavailable_replicas": {"type": "int", "default": 1},
            "meta_headroom": {"type": "int", "default": 1},
            "canary": {"type": "int", "default": 0},
            "r1_policy": {"type": "str", "choices": ["accept", "fail", "move"], "default": "accept"},
            "accept_loss": {"type": "list", "elements": "str", "default": []},
            "starts": {"type": "dict", "default": {}},
            "stopped_versions": {"type": "dict", "default": {}},
            "leaving": {"type": "list", "elements": "str", "default": []},
            "stored_groups": {"type": "dict", "default": {}},
            "maintenance": {"type": "list", "elements": "dict", "default": []},
            "zone_tag_prefix": {"type": "str", "default": "az:"},
            "target_version": {"type": "str"},
            "allow_skipped_minors": {"type": "bool", "default": False},
            "allow_downgrade": {"type": "bool", "default": False},
            "feature_flags": {"type": "dict", "default": {}},
            **ROLLING_SPEC,
        },
        required_one_of=[("server_names", "hosts")],
        mutually_exclusive=[("server_names", "hosts")],
    )
    run(module, with_options, lambda options: plan(options, module.params))


if __name__ == "__main__":
    main()
