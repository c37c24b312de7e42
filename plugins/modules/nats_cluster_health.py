#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_cluster_health
short_description: Wait until a NATS JetStream cluster is healthy, or fail with every reason
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - This module is the health gate before and after any operation that stops a server. Needs a user of the system
    account.
  - The module checks the servers by name, the meta group (a single leader on which all servers agree, its size, every
    member in step), and each server's own health. The module also checks every stream and consumer as reported by its
    leader (a single leader, all replicas present and in step).
  - The module finds faults that the servers' own /healthz misses, such as a stream that has no leader because it has no
    quorum.
  - The cluster counts as healthy after O(samples) good samples in a row that span at least O(span) seconds. A single
    good sample is not enough, because a server takes up to ten seconds to notice that it has lost its peers.
  - While a server does not answer, the streams whose replicas are all on such servers are found only in the accounts
    in O(account_users), and consumers of this kind are not found. Set O(expected_servers) to have such servers reported
    as missing.
  - With O(mesh), connections that are still missing ten seconds after the cluster has become healthy make the task fail
    with the code V(mesh_incomplete), even if O(tolerate) contains this code.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.health
  - natsops.jetstream.mesh
  - natsops.jetstream.progress
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  inventory:
    description:
      - Sources of the inventory that the printed commands name. The default of Ansible is left out.
    type: list
    elements: str
    default: []
  wait:
    description:
      - Whether to wait for a healthy cluster. With V(false), one sample is taken and evaluated.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds after which the task fails if the cluster is still not healthy. Must be more than O(span).
    type: float
    default: 120
  stall_timeout:
    description:
      - The task fails before O(wait_timeout) if the problems have not changed for this many seconds. Use this option
        for operations that may take a long time but make progress. A replica that is fewer entries behind than before
        counts as a change; a server that remains silent does not.
      - The failure has the code V(stalled) instead of V(unhealthy). By default, only O(wait_timeout) ends the wait.
    type: float
  stuck_timeout:
    description:
      - The task fails before O(wait_timeout) if the problems have not changed for this many seconds and at least one of
        the root causes cannot be resolved by waiting. Examples are an expected server that does not answer, JetStream
        that is off for lack of storage, and a raft-silent server. Use this option for a gate before a stop, where an
        early refusal costs nothing.
      - The failure has the code V(stuck) instead of V(unhealthy). By default, only O(wait_timeout) ends the wait.
    type: float
  interval:
    description:
      - Seconds from the start of one sample to the start of the next.
    type: float
    default: 2
  samples:
    description:
      - Number of good samples in a row that are required.
    type: int
    default: 4
  span:
    description:
      - Seconds that the good samples must span.
    type: float
    default: 10
  stop_servers:
    description:
      - Names of servers that are about to be stopped together. Every group that would lose its quorum is reported as
        a problem.
    type: list
    elements: str
    default: []
  stop_policy:
    description:
      - The reaction if the only remaining problems are those caused by stopping O(stop_servers). With V(fail), the task
        fails. With V(report), the task waits for these problems to clear and, if they do not, returns them with
        RV(healthy=false). Use V(report) for a gate after one batch that also checks the next batch.
    type: str
    choices: [fail, report]
    default: fail
  r1_policy:
    description:
      - Whether streams and consumers with a single replica on one of O(stop_servers), which are unavailable while
        their server is stopped, are a problem (V(fail)) or only a warning (V(accept)). Ephemeral consumers are always
        only a warning.
    type: str
    choices: [accept, fail]
    default: accept
  previous:
    description:
      - Allows this gate to rely on the gate after the previous batch, O(previous_result). If that gate also verified
        everything that this task has to verify, this task returns without reading the cluster, with RV(covered=true).
        Use this option only if another gate follows right before the stop of O(stop_servers).
      - The previous gate covers this one if it passed, was at least as strict, evaluated the stop of O(stop_servers),
        and if no step in between changes the cluster. M(natsops.jetstream.nats_roll_plan) returns this option in
        C(gates.before.previous) of each batch.
    type: dict
    suboptions:
      versions:
        description: The versions of O(stop_servers) according to the plan. A server without a version here, or whose
          version differs from that in the last sample of the previous gate, requires a new gate.
        type: dict
        required: true
      steps:
        description: The steps between both gates.
        type: dict
        required: true
        suboptions:
          drain:
            description: Whether leaders are moved off O(stop_servers) after this gate, followed by another sample.
            type: bool
            required: true
          move_single_replicas:
            description: Whether single replicas are moved.
            type: bool
            required: true
          restore_leaders:
            description: Whether leaders are restored to the servers that were restarted.
            type: bool
            required: true
          hooks:
            description: Whether tasks or commands of the operator run.
            type: bool
            required: true
  previous_result:
    description:
      - The value of RV(gate) of the previous gate. Empty if there was none, or if it did not pass.
    type: dict
    default: {}
  maintenance:
    description:
      - The servers in maintenance, each in the form of C(maintenance) of M(natsops.jetstream.nats_server_host_info).
        Problems that only these servers cause are returned in RV(tolerated). RV(warnings_found) lists each server with
        the code V(maintenance), or V(maintenance_overdue) after its end time. When the module checks the effect of
        stopping O(stop_servers), these servers count as down.
    type: list
    elements: dict
    default: []
  problems:
    description:
      - Whether RV(problems), RV(warnings_found) and RV(tolerated) contain all problems or only the first five each.
        RV(problem_codes) always counts all of them. If the result does not contain all problems, they are written to
        RV(problems_file).
      - By default, a task that fails prints the root causes and the commands to run, and returns little more than
        C(msg), C(failure) and RV(problems_file), so its output fits on one screen with every callback plugin. With
        V(first), V(all) or C(-v), or if C(failed_when) is set, it also returns everything else.
    type: str
    choices: [first, all]
  problems_dir:
    description:
      - Directory for RV(problems_file) on the machine where the module runs. Defaults to V(natsops) in Ansible's home
        (C(~/.ansible)).
    type: path
  tolerate:
    description:
      - Codes of acceptable problems, names of servers that may be missing or behind, and streams and consumers whose
        state is acceptable, named as C(subject) in RV(problems), such as V(consumer APP/ORDERS/worker). The account
        may also be its public key.
      - Problems caused by stopping O(stop_servers) can only be tolerated by their code.
      - A server's name covers the problems that only this server causes, but never a group without a leader or without
        a quorum. When the module checks the effect of stopping O(stop_servers), a tolerated server counts as down.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_cluster_info
"""

EXAMPLES = r"""
- name: Wait until all three servers, their meta group, streams and consumers are healthy
  natsops.jetstream.nats_cluster_health:
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    expected_servers: [n1-c1, n2-c1, n3-c1]

- name: Check whether n2-c1 can be stopped now, without waiting
  natsops.jetstream.nats_cluster_health:
    expected_servers: [n1-c1, n2-c1, n3-c1]
    stop_servers: [n2-c1]
    r1_policy: fail
    wait: false
    context: c1-sys

- name: Wait until three clusters and their common meta group are healthy
  natsops.jetstream.nats_cluster_health:
    expected_servers: [n1, n2, n3]
    expected_clusters: {n1: east, n2: central, n3: west}
    context: east-sys

- name: Wait until a new server holds its replicas, while it makes progress
  natsops.jetstream.nats_cluster_health:
    expected_servers: [n1-c1, n2-c1, n3-c1, n4-c1]
    wait_timeout: 3600
    stall_timeout: 300
    context: c1-sys

- name: Wait for the rest while n3-c1 is being repaired
  natsops.jetstream.nats_cluster_health:
    expected_servers: [n1-c1, n2-c1, n3-c1]
    tolerate: [n3-c1]
    context: c1-sys
"""

RETURN = r"""
problems:
  description:
    - The problems of the last sample, except those that O(tolerate) covers. Empty on success. See O(problems).
    - Codes of servers are V(unreachable), V(cluster_missing), V(server_missing), V(server_unexpected),
      V(server_wrong_cluster), V(server_duplicate), V(server_isolated) (it answers only at its own address; the
      message contains the reason), V(server_silent), V(server_unhealthy) and V(jetstream_disabled).
    - V(gateway_missing) means that a server has no gateway connection to another cluster of its supercluster,
      although a server of that cluster answered.
    - Codes of the meta group are V(meta_no_leader), V(meta_leader_disputed), V(meta_no_quorum), V(meta_size),
      V(meta_peer_missing), V(meta_peer_unexpected), V(meta_replica_behind), V(meta_pending), V(meta_outsider) (a
      server whose own store does not list it as a member, for example after it was renamed), V(meta_group_foreign)
      (servers of a different meta group answer) and V(meta_leader_changed) (the leader differs from that of the
      previous sample).
    - Codes of streams are V(stream_no_leader), V(stream_leader_disputed), V(stream_no_quorum), V(stream_replica_count),
      V(stream_replica_behind), V(stream_moving), V(stream_unhealthy) (a server reports that its replica is unhealthy),
      V(stream_api_level) (a member's version lacks a feature that the stream uses) and V(stream_leader_changed) (the
      leader differs from that of the previous sample). Codes of consumers begin with C(consumer) instead of C(stream).
      V(stream_replica_differs) means that a replica lacks messages and receives none, although its leader relies on it.
    - Codes of O(stop_servers) are V(stop_breaks_quorum), V(stop_r1) and V(stop_unknown_server).
    - C(absent) lists the unavailable members of the group, which explain the problem.
  returned: always
  type: list
  elements: dict
  sample:
    - code: stream_no_leader
      severity: error
      subject: stream APP/ORDERS
      message: >-
        stream APP/ORDERS (R3, S-R3F-vJPJ0ZU5) has no leader: 2 of 3 members must be up, 1 answered (n1-c1);
        members: n1-c1, n2-c1, n3-c1
      servers: []
      absent: [n2-c1, n3-c1]
problem_count:
  description: Number of problems.
  returned: always
  type: int
  sample: 1403
problem_codes:
  description: Number of problems of each code.
  returned: always
  type: dict
  sample: {server_missing: 2, stream_no_leader: 411, consumer_no_leader: 402, stream_replica_behind: 588}
problems_file:
  description: JSON file with mode 0600 that contains all problems, warnings and causes. Null if RV(problems) contains
    all problems.
  returned: always
  type: str
  sample: /home/ops/.ansible/natsops/health-C1.json
causes:
  description:
    - The root causes of RV(problems) and RV(warnings_found), at most ten. Causes with errors come before causes with
      only warnings, and more fundamental causes come before others. Each problem belongs to one cause.
    - Kinds are V(cluster_unreachable), V(site_down), V(servers_down), V(maintenance), V(storage), V(version_defect),
      V(routes_cut), V(meta_group), V(server_fault), V(asset_fault) (single streams and consumers are at fault, but no
      server is), V(catching_up), V(membership) (inventory and cluster differ), V(request) (only stopping
      O(stop_servers) is a problem) and V(unknown).
  returned: always
  type: list
  elements: dict
  sample:
    - kind: servers_down
      severity: error
      title: "n4-c1 and n5-c1 do not answer: 411 streams and 402 consumers have no quorum, 588 miss a replica"
      servers: [n4-c1, n5-c1]
      assets: []
      counts: {server_missing: 2, stream_no_leader: 411, consumer_no_leader: 402, stream_replica_behind: 588}
      age: 725.2
      evidence: [expected server n4-c1 did not answer, expected server n5-c1 did not answer]
      commands:
        - "systemctl status nats-server; journalctl -u nats-server -n 50  # on n4-c1 and n5-c1"
warnings_found:
  description:
    - Findings that do not make the task fail, in the same form as RV(problems). V(stream_ghost) and V(consumer_ghost)
      mean that an asset exists in the meta group's log but on no server, which makes every member's /healthz fail.
  returned: always
  type: list
  elements: dict
  sample: []
tolerated:
  description: Problems that O(tolerate) covers, in the same form as RV(problems).
  returned: always
  type: list
  elements: dict
  sample: []
healthy:
  description: Whether the cluster is healthy.
  returned: always
  type: bool
  sample: true
covered:
  description: Whether the gate O(previous) covers this gate, so the cluster was not read.
  returned: success
  type: bool
  sample: false
coverage:
  description: Why the gate O(previous) covers this gate or does not. Empty without O(previous).
  returned: success
  type: str
  sample: a hook runs between the gates
mesh_checked:
  description: Whether O(mesh) was checked, and found to be complete.
  returned: success
  type: bool
  sample: false
gate:
  description: The requirements that this gate verified, for O(previous_result) of the next gate. Empty if the cluster
    is not healthy.
  returned: success
  type: dict
  sample:
    stop_servers: [n2-c1]
    expected_servers: [n1-c1, n2-c1, n3-c1]
    tolerate: []
    maintenance: []
    r1_policy: accept
    max_lag: 200
    samples: 4
    span: 5.0
    versions: {n1-c1: 2.15.1, n2-c1: 2.15.1, n3-c1: 2.15.1}
samples:
  description: Number of samples taken.
  returned: always
  type: int
  sample: 6
waited:
  description: Seconds waited.
  returned: always
  type: float
  sample: 10.4
servers:
  description: Names of the servers that answered the last sample.
  returned: always
  type: list
  elements: str
  sample: [n1-c1, n2-c1, n3-c1]
meta_leader:
  description: Name of the meta leader. Null if there is none.
  returned: always
  type: str
  sample: n2-c1
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.health.cause import CATCHING_UP
from ..module_utils.health.causes import cause_lines
from ..module_utils.health.problem_file import write_problem_file
from ..module_utils.health.routes import MESH_OPTION, Mesh
from ..module_utils.health.rules import entries_behind
from ..module_utils.health.run_mesh import mesh_failure, wait_for_mesh
from ..module_utils.health.sampling import SAMPLE_SPEC, Sample, make_sampler
from ..module_utils.maintenance import parse_marks
from ..module_utils.module import ACCOUNT_USERS_SPEC, ClientAndAccounts, fail, make_module, with_client_and_accounts
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.progress import PROGRESS_SPEC, Progress, clock_time
from ..module_utils.roll.gates import Coverage, Gate, Steps, gate_covers, parse_gate
from ..module_utils.screen import MAX_LINES, printable
from ..module_utils.units import counted, human_bytes
from ..module_utils.waiting import positive

#: Maximum number of problems in each list of the result, unless all are requested.
HELD = 5
#: Maximum number of root causes in the result.
MAX_CAUSES = 10


@dataclass(frozen=True)
class GateDecision:
    """The gate's decision: the last sample, the number of samples, and the seconds that the wait took. `stalled`: the
    seconds without any change that ended the wait, None if it ended otherwise; `stuck`: the seconds without any change
    that ended it because waiting cannot resolve a root cause."""

    healthy: bool
    last: Sample
    samples: int
    waited: float
    stalled: float | None = None
    stuck: float | None = None

    @property
    def code(self) -> str:
        """Return the code of the failure."""
        return "stuck" if self.stuck is not None else "stalled" if self.stalled is not None else "unhealthy"

    @property
    def only_stop(self) -> bool:
        """Return whether every error is a consequence of stopping the servers."""
        return bool(self.last.errors) and all(problem.code.startswith("stop_") for problem in self.last.errors)

    @property
    def headline(self) -> str:
        """Return the first line of the refusal: how long the gate waited and how many problems remain."""
        after = f"after {self.waited:.0f} s and {self.samples} sample(s)"
        if not self.last.errors:
            return f"the cluster was not healthy for long enough {after}; the last sample was good"
        if self.stalled is not None:
            after += f", and nothing has changed for {self.stalled:.0f} s"
        count = len(self.last.errors)
        return f"the cluster is not healthy {after}: {counted(count, 'problem')}"

    @property
    def description(self) -> str:
        """Return the refusal in a few words."""
        count = len(self.last.errors)
        return f"the cluster is not healthy: {counted(count, 'problem')}" if count else self.headline

    def as_dict(self, most: int | None = None) -> dict[str, Any]:
        """Return the outcome for the module's result, with at most `most` problems of each kind."""
        cluster = self.last.cluster
        meta = cluster.meta if cluster else None
        return {
            "healthy": self.healthy,
            "problems": [problem.as_dict() for problem in self.last.errors[:most]],
            "problem_count": len(self.last.errors),
            "problem_codes": dict(Counter(problem.code for problem in self.last.errors)),
            "causes": [cause.as_dict() for cause in self.last.causes[:MAX_CAUSES]],
            "warnings_found": [problem.as_dict() for problem in self.last.warnings[:most]],
            "tolerated": [problem.as_dict() for problem in self.last.tolerated[:most]],
            "samples": self.samples,
            "waited": round(self.waited, 3),
            "servers": sorted(cluster.names) if cluster else [],
            "meta_leader": meta.group.leader if meta else None,
        }


class HealthWindow:
    """Records for how many samples and how long the cluster has been healthy, and for how long its problems have not
    changed, up to the last sample.

    `started`: when the wait began, in seconds of a monotonic clock.
    """

    def __init__(self, started: float) -> None:
        self.taken = self.good = self.most_errors = 0
        self.good_for: float | None = None
        self.unchanged_for = 0.0
        self._good_since = self._unchanged_since = started
        self._state: frozenset[object] | None = None
        self._lacks = (0, 0)
        self._most_lacking = 0
        self._lacking_since = self._at = started

    def add(self, sample: Sample, begun: float) -> None:
        """Add a sample; `begun`: when its reading started."""
        self.taken += 1
        self.most_errors = max(self.most_errors, len(sample.errors))
        self._good_since = begun if self.good == 0 else self._good_since
        self.good = 0 if sample.errors else self.good + 1
        self.good_for = begun - self._good_since if self.good else None
        self._unchanged_since = begun if sample.state != self._state else self._unchanged_since
        self._state = sample.state
        self.unchanged_for = begun - self._unchanged_since
        self._at = begun
        self._lacks = entries_behind(sample.cluster) if sample.errors and sample.cluster else (0, 0)
        # The estimate restarts when a server returns, or when messages arrive faster than they are copied.
        if self._lacks[0] >= self._most_lacking or not self._lacks[0]:
            self._most_lacking, self._lacking_since = self._lacks[0], begun

    def lacking(self) -> str:
        """Return how far the replicas are behind and the estimated time to catch up; empty when they are in step."""
        entries, size = self._lacks
        if not entries:
            return ""
        text = f"{entries} entries{f', about {human_bytes(size)},' if size else ''} to catch up"
        done, elapsed = self._most_lacking - entries, self._at - self._lacking_since
        return f"{text}; about {clock_time(entries * elapsed / done)} left" if done > 0 and elapsed > 0 else text

    def passed(self, samples: int, span: float) -> bool:
        """Return whether enough good samples in a row span enough time."""
        return self.good >= samples and self.good_for is not None and self.good_for >= span

    def unchanged(self, limit: float | None) -> float | None:
        """Return how long nothing has changed, or None if that is less than the limit or there is no limit."""
        return None if limit is None or self.unchanged_for < limit else self.unchanged_for


def wait_for_health(sample: Callable[[], Sample], params: Mapping[str, Any]) -> GateDecision:
    """Take samples until enough good ones in a row span enough time or the wait ends without success, and return the
    outcome. The wait ends at its timeout, when nothing has changed for `stall_timeout`, or when nothing has changed for
    `stuck_timeout` and waiting cannot resolve a root cause."""
    started = time.monotonic()
    window = HealthWindow(started)
    progress = Progress(params.get("progress"), params["wait_timeout"])
    while True:
        begun = time.monotonic()
        last = sample()
        window.add(last, begun)
        outcome = GateDecision(False, last, window.taken, time.monotonic() - started)
        if not params["wait"]:
            return replace(outcome, healthy=not last.errors)
        if window.passed(params["samples"], params["span"]):
            return replace(outcome, healthy=True)
        stalled, stuck = (window.unchanged(params.get(name)) for name in ("stall_timeout", "stuck_timeout"))
        if last.errors and stalled is not None:
            return replace(outcome, stalled=stalled)
        if last.errors and stuck is not None and any(cause.stuck for cause in last.causes):
            return replace(outcome, stuck=stuck)
        progress.report(partial(_missing, last, window))
        following = max(begun + params["interval"], time.monotonic())
        if following - started > params["wait_timeout"]:
            return outcome
        time.sleep(max(0.0, following - time.monotonic()))


def _missing(last: Sample, window: HealthWindow) -> str:
    """Return why the gate is still closed."""
    if window.good_for is not None:
        return f"healthy for {window.good_for:.0f} s, not yet long enough"
    count, most, first = len(last.errors), window.most_errors, next(iter(last.causes))
    of = f"{count} of " if most > count else ""
    lacking = window.lacking() if first.kind == CATCHING_UP else ""
    return f"{of}{counted(most, 'problem')} left{f' ({lacking})' if lacking else ''}: {first.title}"


def message(outcome: GateDecision, file: str | None = None) -> str:
    """Return the failure message, limited to one screen: the refusal, the root causes in order with commands to run,
    and the path of the file with all problems."""
    notes = []
    if outcome.stuck is not None:
        notes.append(f"Nothing has changed for {outcome.stuck:.0f} s, and waiting alone will not fix it.")
    if outcome.stalled is not None:
        notes.append("Operations in progress continue on the servers; run the same command again to wait for them")
    if file:
        notes.append(file)
    lines = cause_lines(outcome.last.causes, MAX_LINES - len(notes)) if outcome.last.errors else []
    return "\n".join([outcome.headline, *lines, *notes])


def check_options(params: Mapping[str, Any]) -> None:
    """Raise NatsFailure invalid_option for values that can never be satisfied."""
    for name in ("wait_timeout", "interval", "max_active"):
        positive(params[name], name)
    for name in ("stall_timeout", "stuck_timeout"):
        if params[name] is not None:
            positive(params[name], name)
    if params["samples"] < 1:
        raise NatsFailure("invalid_option", f"samples: must be at least 1, not {params['samples']}")
    if params["wait"] and params["span"] >= params["wait_timeout"]:
        raise NatsFailure(
            "invalid_option",
            f"span ({params['span']:g} s) must be less than wait_timeout ({params['wait_timeout']:g} s)",
        )


def _write_all(outcome: GateDecision, params: Mapping[str, Any]) -> tuple[str | None, str]:
    """Write every problem to a file. Returns the path, None if the file could not be written, and a sentence about
    either outcome."""
    cluster = outcome.last.cluster
    names = {server.cluster for server in cluster.servers} if cluster else set()
    name = params["cluster"] or (names.pop() if len(names) == 1 else "supercluster" if names else "cluster")
    everything = {
        "made": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
        **outcome.as_dict(),
        "causes": [cause.as_dict() for cause in outcome.last.causes],
    }
    try:
        path = write_problem_file(params["problems_dir"], f"health-{name}", everything)
    except OSError as error:
        return None, f"The list of all problems could not be written: {error}; option problems=all returns it"
    return path, f"All {len(outcome.last.errors)} problems: {path}"


def requested_gate(params: Mapping[str, Any], versions: Mapping[str, str]) -> Gate:
    """Return the gate that the module's options require. `versions`: server → its version."""
    return Gate(
        stop_servers=frozenset(params["stop_servers"]),
        expected_servers=frozenset(params["expected_servers"] or ()),
        tolerate=frozenset(params["tolerate"]),
        maintenance=frozenset(parse_marks(params["maintenance"])),
        r1_policy=params["r1_policy"],
        max_lag=params["max_lag"],
        samples=params["samples"],
        span=params["span"],
        versions=versions,
    )


def coverage(params: Mapping[str, Any]) -> Coverage:
    """Return whether the gate of the option `previous` covers this gate. Raises NatsFailure invalid_option."""
    previous = params["previous"]
    if not previous:
        return Coverage(False, "")
    try:
        passed = parse_gate(params["previous_result"]) if params["previous_result"] else None
    except (KeyError, TypeError, ValueError) as error:
        raise NatsFailure("invalid_option", f"previous_result is not the value of gate: {error}") from error
    return gate_covers(passed, requested_gate(params, previous["versions"]), Steps(**previous["steps"]))


def covered_result(params: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the result of a gate that the previous gate covers."""
    return {
        "changed": False,
        "healthy": True,
        "covered": True,
        "coverage": reason,
        "mesh_checked": False,
        "gate": params["previous_result"],
        "problems": [],
        "problem_count": 0,
        "problem_codes": {},
        "problems_file": None,
        "causes": [],
        "warnings_found": [],
        "tolerated": [],
        "samples": 0,
        "waited": 0.0,
        "servers": sorted(params["previous_result"]["versions"]),
        "meta_leader": None,
    }


def check_mesh(api: SystemApi, outcome: GateDecision, params: Mapping[str, Any]) -> None:
    """Raise NatsFailure mesh_incomplete if connections between the servers of the option `mesh` are missing."""
    names = params["mesh"]["server_names"]
    servers = outcome.last.cluster.servers if outcome.last.cluster else ()
    failure = mesh_failure(wait_for_mesh(api, servers, names, Mesh.of(params["mesh"])))
    if failure:
        raise failure


def read(connected: ClientAndAccounts, module: AnsibleModule, uncovered: str) -> dict[str, Any]:
    """Return the module's result. Ends the module with a failure when the cluster is not healthy. `uncovered`: why the
    previous gate does not cover this one."""
    check_options(module.params)
    api = SystemApi(connected.client)
    sample = make_sampler(api, module.params, elections=True, accounts=connected.accounts)
    outcome = wait_for_health(sample, module.params)
    if outcome.healthy and module.params["mesh"]:
        check_mesh(api, outcome, module.params)
    most = None if module.params["problems"] == "all" else HELD
    file, note = None, None
    if most is not None and len(outcome.last.errors) > most:
        file, note = _write_all(outcome, module.params)
    if outcome.healthy or (module.params["stop_policy"] == "report" and outcome.only_stop):
        servers = outcome.last.cluster.servers if outcome.last.cluster else ()
        versions = {server.name: server.version for server in servers}
        passed = requested_gate(module.params, versions).as_dict() if outcome.healthy else {}
        return {
            "changed": False,
            **outcome.as_dict(most),
            "problems_file": file,
            "covered": False,
            "coverage": uncovered,
            "mesh_checked": outcome.healthy and bool(module.params["mesh"]),
            "gate": passed,
        }
    # Ansible prints the description next to the message, so it is a single line of YAML and does not repeat the
    # message.
    failure = NatsFailure(outcome.code, outcome.description).as_dict()
    module.fail_json(
        msg=printable(message(outcome, note)), failure=failure, **outcome.as_dict(most), problems_file=file
    )
    return {}


def main() -> None:
    module: AnsibleModule = make_module(
        {
            **SAMPLE_SPEC,
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "float", "default": 120},
            "stall_timeout": {"type": "float"},
            "stuck_timeout": {"type": "float"},
            "interval": {"type": "float", "default": 2},
            "samples": {"type": "int", "default": 4},
            "span": {"type": "float", "default": 10},
            "stop_servers": {"type": "list", "elements": "str", "default": []},
            "stop_policy": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
            "r1_policy": {"type": "str", "choices": ["accept", "fail"], "default": "accept"},
            "maintenance": {"type": "list", "elements": "dict", "default": []},
            "mesh": MESH_OPTION,
            "previous": {
                "type": "dict",
                "options": {
                    "versions": {"type": "dict", "required": True},
                    "steps": {
                        "type": "dict",
                        "required": True,
                        "options": {field.name: {"type": "bool", "required": True} for field in fields(Steps)},
                    },
                },
            },
            "previous_result": {"type": "dict", "default": {}},
            "problems": {"type": "str", "choices": ["first", "all"]},
            "problems_dir": {"type": "path"},
            "inventory": {"type": "list", "elements": "str", "default": []},
            **ACCOUNT_USERS_SPEC,
            **PROGRESS_SPEC,
        }
    )
    try:
        found = coverage(module.params)
    except NatsFailure as failure:
        fail(module, failure)
    if found.covered:
        module.exit_json(**covered_result(module.params, found.reason))
    run(module, with_client_and_accounts, lambda connected: read(connected, module, found.reason))


if __name__ == "__main__":
    main()
