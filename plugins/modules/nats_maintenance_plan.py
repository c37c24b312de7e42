#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_maintenance_plan
short_description: Plan how NATS servers are taken out of service for maintenance
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the complete (super)cluster and returns the effects of stopping these servers together, in addition to those
    already in maintenance. The plan is refused if a stream, a consumer or the meta group would lose its quorum.
  - Returns the mark of each host, which records who took it out of service, since when, until when and why. A server
    that is already out of service keeps its mark.
  - The module only plans. Run M(natsops.jetstream.nats_cluster_health) with C(stop_servers) right before each stop,
    because the state may have changed since.
  - Needs a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.rolling
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  hosts:
    description: Inventory hosts to take out of service, each with the name of its server.
    type: dict
    required: true
  running:
    description: The hosts in O(hosts) that report a running server.
    type: list
    elements: str
    required: true
  maintenance:
    description: The servers in maintenance, each in the form of C(maintenance) of
      M(natsops.jetstream.nats_server_host_info).
    type: list
    elements: dict
    default: []
  by:
    description: Who takes the servers out of service. Defaults to the user and the machine that run the module.
    type: str
  reason:
    description: Reason for the maintenance.
    type: str
    default: ''
  until:
    description:
      - When the servers should be back, such as V(2026-12-01T04:00:00Z). This time also replaces the end time of a
        server that is already in maintenance.
    type: str
  duration:
    description: How long the maintenance may take, if O(until) is not set.
    type: str
    default: 4h
  gate:
    description:
      - Whether the servers belong to a cluster with a health gate. Without a health gate, only streams that would
        lose messages are an error, and a cluster that cannot be read is only a warning.
    type: bool
    default: true
  expected_servers:
    description: Names of all servers of the (super)cluster. The module waits for these servers, and those that do not
      answer count as down.
    type: list
    elements: str
  r1_policy:
    description:
      - How to treat streams and consumers with a single replica on these servers. V(fail) refuses the plan, V(accept)
        reports that these assets will be unavailable, and V(move) reports that they will be moved first.
    type: str
    choices: [accept, fail, move]
    default: accept
  accept_loss:
    description:
      - Streams (C(ACCOUNT/STREAM)) that may lose their messages, because their only replica is in the memory of one
        of these servers or because the server would empty them when it starts (nats-server#6753). The plan is refused
        if any other stream would lose messages in this way.
      - The list can also contain consumers (C(ACCOUNT/STREAM/CONSUMER)) whose position exists only in the memory of
        one of these servers.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_cluster_health
  - module: natsops.jetstream.nats_server_evacuate
"""

EXAMPLES = r"""
- name: Check whether n3-c1 can be taken out of service until the evening
  natsops.jetstream.nats_maintenance_plan:
    hosts: {n3-c1: n3-c1}
    running: [n3-c1]
    until: 2099-11-24T20:00:00Z
    reason: new disk
    expected_servers: [n1-c1, n2-c1, n3-c1]
    context: c1-sys
  register: plan

- name: Show it
  ansible.builtin.debug:
    msg: "{{ plan.lines if plan.ok else plan.refusal.splitlines() }}"
"""

RETURN = r"""
marks:
  description: The marks of the hosts after they have been taken out of service.
  returned: success
  type: dict
  sample:
    n3-c1: {server: n3-c1, by: ops@ctl-1, since: 1795529600.0, until: 1795544000.0, reason: new disk, held: true}
entering:
  description: The hosts in O(hosts) that still have to be taken out of service. The other hosts in O(hosts) are
    already out of service.
  returned: success
  type: list
  elements: str
  sample: [n3-c1]
batches:
  description: The servers to take out of service one after another, each as in RV(ignore:batches) of
    M(natsops.jetstream.nats_roll_plan).
  returned: success
  type: list
  elements: dict
  sample:
    - number: 1
      hosts: [n3-c1]
      servers: [n3-c1]
      title: batch 1 of 1 (n3-c1)
      remaining: []
lines:
  description: The plan as readable text.
  returned: success
  type: list
  elements: str
  sample:
    - "n3-c1 goes out of service until 2026-11-24T20:00:00Z (by ops@ctl-1: new disk)"
    - "while n3-c1 is stopped: 31 streams and consumers have reduced redundancy, 12 need a new leader"
result:
  description: The state of the servers after the maintenance has begun, as readable text.
  returned: success
  type: list
  elements: str
  sample: ["n3-c1 is out of service until 2026-11-24T20:00:00Z; `maintenance_leave --limit n3` ends it."]
ok:
  description: Whether the maintenance may begin.
  returned: success
  type: bool
  sample: true
refusal:
  description: The reasons against the maintenance, which are the errors in RV(problems) summarised by root cause. Empty
    if nothing prevents the maintenance.
  returned: success
  type: str
  sample: ""
causes:
  description: The root causes of RV(problems), in the same form as those of M(natsops.jetstream.nats_cluster_health).
  returned: success
  type: list
  elements: dict
  sample: []
problems:
  description:
    - The obstacles (severity V(error)) and the costs (V(warning)), as in M(natsops.jetstream.nats_cluster_health).
    - Codes are V(stop_breaks_quorum), V(stop_r1), V(stop_unknown_server), V(roll_memory_lost), V(roll_first_seq),
      V(roll_unchecked), V(maintenance) and V(maintenance_overdue).
  returned: success
  type: list
  elements: dict
  sample: []
"""

import getpass
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.health.cause import build_context
from ..module_utils.health.causes import refusal, root_causes
from ..module_utils.maintenance import mark_texts, parse_marks, utc
from ..module_utils.module import make_module, read_if_possible, with_options
from ..module_utils.nats.client import Client, ConnectionOptions, NatsFailure
from ..module_utils.nats.model import Cluster
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.problem import ERROR
from ..module_utils.roll.batches import ROLLING_SPEC, Rolling, batch_documents
from ..module_utils.roll.maintenance import MaintenanceOptions, plan_entry
from ..module_utils.times import parse_time
from ..module_utils.units import parse_duration

#: The longest maintenance in seconds: a hundred years.
LONGEST = 100 * 366 * 86400


def parse_request(params: Mapping[str, Any], now: float) -> MaintenanceOptions:
    """Return the requested maintenance. Raises NatsFailure invalid_option for an invalid time or duration, or for a
    time in the past."""
    option = "until" if params["until"] else "duration"
    given = params[option]
    try:
        # YAML may have converted the text to a time, which has a space instead of the T.
        until = (
            parse_time(params["until"].replace(" ", "T")).timestamp()
            if params["until"]
            else int(now + parse_duration(params["duration"]))
        )
    except (ValueError, OverflowError) as error:
        example = "a time such as 2026-11-23T02:00:00Z" if params["until"] else "a duration such as 4h"
        raise NatsFailure("invalid_option", f"{option}: {given!r} is not {example}") from error
    if until > now + LONGEST:
        raise NatsFailure("invalid_option", f"{option}: {given} is more than a hundred years in the future")
    if until <= now:
        raise NatsFailure(
            "invalid_option", f"{option}: {utc(until)} is in the past: set how long the maintenance may take"
        )
    return MaintenanceOptions(
        params["by"] or _me(),
        until,
        params["reason"],
        bool(params["until"]),
        params["r1_policy"],
        frozenset(params["accept_loss"]),
    )


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # The user of a container may have no name.
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


def planned(cluster: Cluster | None, params: Mapping[str, Any], unread: str = "") -> dict[str, Any]:
    """Return the module's result. `cluster`: the current state, None if it could not be read; `unread`: the reason.
    Raises NatsFailure invalid_option."""
    now = time.time()
    marks = parse_marks(params["maintenance"])
    servers_by_host = params["hosts"]
    running = [servers_by_host[host] for host in params["running"] if host in servers_by_host]
    servers = {name: name in running for name in servers_by_host.values()}
    made = plan_entry(cluster, servers, marks, parse_request(params, now), now, params["gate"], unread)
    context = build_context(cluster, {}, made.entering, mark_texts(marks, now))
    hosts = [host for host, server in servers_by_host.items() if server in made.entering]
    if hosts:
        enter = "ansible-playbook natsops.jetstream.maintenance_enter --limit"
        context = replace(
            context,
            in_steps=f"{enter} {hosts[0]}  # one host at a time; maintenance_patch handles all hosts one by one",
            moving_first=f"{enter} {','.join(hosts)} -e nats_cluster_gate_r1_policy=move  # moves them first",
        )
    rolling = Rolling(params["rolling"], params["r1_policy"], int(now), params["gate"], stays_down=True)
    hosts_by_server = {server: host for host, server in servers_by_host.items()}
    by_server = {mark.server: mark.as_dict() for mark in made.marks}
    return {
        "changed": False,
        "marks": {host: by_server[server] for host, server in servers_by_host.items()},
        "entering": hosts,
        # Each stop is evaluated against the state after the previous stop.
        "batches": batch_documents([[servers_by_host[host]] for host in hosts], hosts_by_server, rolling),
        "lines": list(made.lines),
        "result": [
            f"{mark.server} is out of service until {utc(mark.until)}; "
            f"`maintenance_leave --limit {hosts_by_server[mark.server]}` ends it."
            for mark in made.marks
        ],
        "ok": not any(problem.severity == ERROR for problem in made.problems),
        "refusal": refusal("Maintenance is refused; no server was touched.", made.problems, context),
        "causes": [cause.as_dict() for cause in root_causes(made.problems, context)],
        "problems": [problem.as_dict() for problem in made.problems],
    }


def read_cluster(client: Client, params: Mapping[str, Any]) -> Cluster:
    """Return the cluster. Raises NatsFailure."""
    expected = set(params["expected_servers"] or ())
    names = expected | set(params["hosts"].values())
    return SystemApi(client).read_cluster(
        awaited=expected - parse_marks(params["maintenance"]).keys(), known_names=names
    )


def plan(options: ConnectionOptions, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure for an invalid option, and for an unreadable cluster if there is a
    gate."""
    if params["gate"]:
        with Client(options) as client:
            return planned(read_cluster(client, params), params)
    cluster, unread = read_if_possible(options, lambda client: read_cluster(client, params))
    return planned(cluster, params, unread)


def main() -> None:
    module = make_module(
        {
            "hosts": {"type": "dict", "required": True},
            "running": {"type": "list", "elements": "str", "required": True},
            "maintenance": {"type": "list", "elements": "dict", "default": []},
            "by": {"type": "str"},
            "reason": {"type": "str", "default": ""},
            "until": {"type": "str"},
            "duration": {"type": "str", "default": "4h"},
            "gate": {"type": "bool", "default": True},
            "expected_servers": {"type": "list", "elements": "str"},
            "r1_policy": {"type": "str", "choices": ["accept", "fail", "move"], "default": "accept"},
            "accept_loss": {"type": "list", "elements": "str", "default": []},
            **ROLLING_SPEC,
        }
    )
    run(module, with_options, lambda options: plan(options, module.params))


if __name__ == "__main__":
    main()
