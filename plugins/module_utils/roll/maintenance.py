# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for taking servers out of service, the effects of doing so, and the state of servers in maintenance. Pure.

A server in maintenance is neither a fault nor healthy: its absence is excused, reports list it, and it counts in no
quorum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..batch import Batch, BatchGate, number_batches
from ..health.rules import StopPolicy, stop_problems
from ..maintenance import Mark, known_problems, parse_mark, utc
from ..nats.model import Cluster
from ..problem import ERROR, Problem
from ..screen import listing, some_names
from ..table import table_page
from .restart_plan import RollRules, batch_effects, lost_messages, unchecked_losses, ungated_losses


@dataclass(frozen=True)
class MaintenanceOptions:
    """The options of a maintenance. `until`: seconds since 1970. `renew`: whether `until` also replaces the end of a
    maintenance that is already in progress. `r1`: whether streams and consumers with a single replica are accepted, are
    an error, or are moved. `accept_loss`: streams (ACCOUNT/STREAM) whose messages may be lost."""

    by: str
    until: float
    reason: str = ""
    renew: bool = False
    r1: str = "accept"
    accept_loss: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EntryPlan:
    """`marks`: the future mark of each server. `entering`: servers still to be taken out of service. `problems`:
    refusals (errors) and effects (warnings)."""

    marks: tuple[Mark, ...]
    entering: tuple[str, ...]
    problems: tuple[Problem, ...]
    lines: tuple[str, ...]


def plan_entry(
    cluster: Cluster | None,
    servers: Mapping[str, bool],
    marks: Mapping[str, Mark],
    request: MaintenanceOptions,
    now: float,
    gated: bool = True,
    unread: str = "",
) -> EntryPlan:
    """Return the plan for taking these servers out of service, with its refusals.

    `cluster`: the current state, None if it could not be read; `unread`: the reason. `gated`: whether a health gate
    monitors the stop; without a gate, only lost messages are errors. `servers`: server → whether its process is
    running. `marks`: the marks of all servers in maintenance, including others. A server that is already out of service
    keeps its mark. A server that is already stopped costs no further redundancy."""
    after = []
    for name in servers:
        mark = marks.get(name) or Mark(name, request.by, int(now), request.until, request.reason)
        after.append(replace(mark, held=True, until=request.until if request.renew else mark.until))
    answered = cluster.names if cluster else frozenset()
    stopping = [name for name, runs in servers.items() if runs or name in answered]
    entering = [name for name in servers if name in stopping or name not in marks or not marks[name].held]
    rules = RollRules(r1_policy=request.r1, accept_loss=request.accept_loss)
    ending = [name for name in entering if name in stopping]
    if cluster is None:
        problems = unchecked_losses(unread) if ending else []
    elif gated:
        problems = stop_problems(cluster, stopping, StopPolicy("fail" if request.r1 == "fail" else "accept"))
        problems += lost_messages(cluster, ending, rules)
    else:
        problems = ungated_losses(cluster, ending, rules)
    others = known_problems([mark for name, mark in marks.items() if name not in servers], now, answered)
    verb = "would go" if any(problem.severity == ERROR for problem in (*problems, *others)) else "goes"
    lines = [
        *_lines(cluster, after, set(entering), servers, now, request, verb),
        *(problem.message for problem in problems if cluster is None),
        *(problem.message for problem in others),
    ]
    return EntryPlan(tuple(after), tuple(entering), (*problems, *others), tuple(lines))


def _lines(
    cluster: Cluster | None,
    after: Sequence[Mark],
    entering: Collection[str],
    servers: Mapping[str, bool],
    now: float,
    request: MaintenanceOptions,
    verb: str,
) -> list[str]:
    lines = []
    for mark in after:
        name = mark.server
        if name not in entering:
            lines.append(mark.text(now))
            continue
        reason = f": {mark.reason}" if mark.reason else ""
        lines.append(f"{name} {verb} out of service until {utc(mark.until)} (by {mark.by}{reason})")
        if not servers[name]:
            lines.append(f"{name} is not running and will be prevented from starting")
        if cluster is None or name not in cluster.names:
            continue
        effect = batch_effects(cluster, [[name]])[0]
        lines.append(
            f"while {name} is stopped: {effect.groups} streams and consumers have reduced redundancy, {effect.leaders} "
            "need a new leader"
        )
        alone = [
            group.subject
            for group in cluster.groups()
            if group.size == 1 and name in group.members and not group.ephemeral
        ]
        if alone:
            fate = {"move": "moved first", "fail": "blocking"}.get(request.r1, "unavailable during maintenance")
            lines.append(f"{fate}, because {name} has their only replica: {some_names(alone)}")
    return lines


def plan_return(servers: Mapping[str, str], gate: BatchGate | None) -> list[dict[str, Any]]:
    """Return the batch of the hosts that come back, whether or not their servers are running; it has no hosts if there
    are none. They come back together, because starting them reduces no redundancy.

    `servers`: host → the name of its server. `gate`: the gate that waits for their replicas, None without a gate."""
    return number_batches(
        [
            Batch(
                title=f"the return of {', '.join(servers)}",
                hosts=list(servers),
                servers=list(servers.values()),
                gates={"after": gate} if gate else {},
            )
        ]
    )


def roll_problems(
    cluster: Cluster, batches: Iterable[Iterable[str]], marks: Mapping[str, Mark], now: float
) -> list[Problem]:
    """Return the effects of servers in maintenance on a rolling restart: their absence, and each batch that would lose
    a quorum because of it."""
    if not marks:
        return []
    problems = known_problems(marks.values(), now, cluster.names)
    for batch in batches:
        running = [name for name in batch if name in cluster.names]
        problems += [
            problem
            for problem in stop_problems(cluster, running, StopPolicy())
            if problem.severity == ERROR and marks.keys() & set(problem.absent)
        ]
    return problems


# --- the table of all hosts -------------------------------------------------------------------------------------------

#: The states of a host, and their consequences.
STATES = {
    "in_service": "in service",
    "in_maintenance": "in maintenance",
    "overdue": "in maintenance, overdue",
    "running": "marked, but its server runs: run maintenance_enter or maintenance_leave again",
    "stopped": "not in maintenance, but its server is not running",
    "unknown": "its host could not be read",
}
#: The states that need attention.
FINDINGS = ("overdue", "running", "stopped", "unknown")


def host_state(found: Mapping[str, Any], now: float) -> str:
    """Return the state of a host, one of STATES. `found`: `process`, which is missing if it could not be read, and
    `maintenance` (a mark or None)."""
    if not found.get("process"):
        return "unknown"
    running, mark = found["process"]["running"], found.get("maintenance")
    if not mark:
        return "in_service" if running else "stopped"
    if running:
        return "running"
    return "overdue" if parse_mark(mark).overdue(now) else "in_maintenance"


def status(
    hosts: Mapping[str, Mapping[str, Any]],
    server_names: Mapping[str, str],
    now: float,
    locks: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the state of each host, the states as a table for operators, and the hosts that need attention.

    `hosts`: host → the result of nats_server_host_info, see `host_state`. `server_names`: host → the name of its
    server. `locks`: the operations that hold the lock, as text."""
    rows: list[dict[str, Any]] = []
    cells = []
    for host, found in hosts.items():
        state, name = host_state(found, now), server_names.get(host, host)
        mark = parse_mark(found["maintenance"], name) if found.get("maintenance") else None
        rows.append(
            {"host": host, "server_name": name, "state": state, "maintenance": mark.as_dict() if mark else None}
        )
        known = (utc(mark.since), utc(mark.until), mark.by, mark.reason) if mark else ("", "", "", "")
        cells.append((host, name, STATES[state].partition(":")[0], *known))
    findings = [f"{row['host']}: {STATES[row['state']]}" for row in rows if row["state"] in FINDINGS]
    columns = ("Host", "Server", "State", "Since", "Until", "By", "Reason")
    # Hosts out of service are listed first, because they matter most.
    worst = {place for place, row in enumerate(rows) if row["state"] != "in_service"}
    page = table_page("Maintenance", columns, cells, worst=worst) + listing(findings, what="finding")
    return {"hosts": rows, "findings": findings, "locks": list(locks), **(page + listing(locks)).as_dict()}
