# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which servers may be taken out of service, what that does, and what is known of those that are. Pure.

A server in maintenance is no fault and not healthy either: its absence is excused, it is named, and no quorum counts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.causes import (
    MAX_LINES,
    Scene,
    cause_lines,
    root_causes,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.health import StopPolicy, stop_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.restart_plan import batch_effects
from ansible_collections.natsops.jetstream.plugins.module_utils.maintenance import Mark, mark_of, utc
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, WARNING, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.table import table

#: Codes of what is known of servers in maintenance.
IN_MAINTENANCE, OVERDUE = "maintenance", "maintenance_overdue"
_NONE = Mark("", held=False)
#: How many streams and consumers a line names.
_NAMED = 8


@dataclass(frozen=True)
class Request:
    """What is asked for. `until`: seconds since 1970; None for `duration` seconds from now, or what a mark says already.
    `r1`: accept, fail or move: what becomes of streams and consumers with a single replica."""

    by: str
    reason: str = ""
    until: float | None = None
    duration: float = 4 * 3600
    r1: str = "accept"


@dataclass(frozen=True)
class EntryPlan:
    """`marks`: of each server afterwards. `entering`: those that are still to be taken out of service. `problems`: what speaks
    against it (errors), and what it costs (warnings)."""

    marks: tuple[Mark, ...]
    entering: tuple[str, ...]
    problems: tuple[Problem, ...]
    lines: tuple[str, ...]


def known_problems(marks: Iterable[Mark], now: float, answered: Collection[str] = ()) -> list[Problem]:
    """Return a warning for each server in maintenance: that it is, or was forgotten there. `answered`: those that run."""
    return [
        Problem(
            OVERDUE if mark.overdue(now) else IN_MAINTENANCE,
            WARNING,
            mark.server,
            f"{mark.text(now)}{'; its server runs' if mark.server in answered else ''}",
            (mark.server,),
        )
        for mark in sorted(marks, key=lambda one: one.server)
    ]


def plan_entry(
    cluster: Cluster | None, servers: Mapping[str, bool], marks: Mapping[str, Mark], request: Request, now: float
) -> EntryPlan:
    """Return how these servers are taken out of service, and what speaks against it.

    `cluster`: as it is now, None where no gate can ask. `servers`: whether the process of each runs. `marks`: of all servers that
    are in maintenance, also others than these. A server that is out of service already keeps its mark, but for an `until` that
    was asked for. One that does not run takes nothing away.
    """
    until = int(now + request.duration) if request.until is None else request.until
    problems: list[Problem] = []
    if until <= now:
        message = f"{utc(until)} is over: say how long the maintenance may take"
        problems.append(Problem("maintenance_no_time", ERROR, "maintenance", message))
    kept = {
        name: replace(marks[name], held=True, until=marks[name].until if request.until is None else until)
        for name in servers
        if name in marks
    }
    after = [kept.get(name) or Mark(name, request.by, int(now), until, request.reason) for name in servers]
    answered = cluster.names if cluster else frozenset()
    entering = [name for name, runs in servers.items() if runs or name in answered or not marks.get(name, _NONE).held]
    if cluster:
        stopping = [name for name in entering if servers[name] or name in answered]
        problems += stop_problems(cluster, stopping, StopPolicy("fail" if request.r1 == "fail" else "accept"))
    others = known_problems([mark for name, mark in marks.items() if name not in servers], now, answered)
    lines = [*_lines(cluster, after, set(entering), servers, now, request), *(problem.message for problem in others)]
    return EntryPlan(tuple(after), tuple(entering), (*problems, *others), tuple(lines))


def _lines(
    cluster: Cluster | None,
    after: Sequence[Mark],
    entering: Collection[str],
    servers: Mapping[str, bool],
    now: float,
    request: Request,
) -> list[str]:
    lines = []
    for mark in after:
        name = mark.server
        if name not in entering:
            lines.append(mark.text(now))
            continue
        reason = f": {mark.reason}" if mark.reason else ""
        lines.append(f"{name} goes out of service until {utc(mark.until)} (by {mark.by}{reason})")
        if not servers[name]:
            lines.append(f"{name} does not run: only its start is prevented")
        if cluster is None or name not in cluster.names:
            continue
        effect = batch_effects(cluster, [[name]])[0]
        lines.append(
            f"while {name} is away: streams and consumers that miss a replica: {effect.groups}, that need another leader: "
            f"{effect.leaders}"
        )
        alone = [
            group.subject
            for group in cluster.groups()
            if group.size == 1 and name in group.members and not group.ephemeral
        ]
        if alone:
            fate = {"move": "moved off first", "fail": "in the way"}.get(request.r1, "away meanwhile")
            more = f" and {len(alone) - _NAMED} more" if len(alone) > _NAMED else ""
            lines.append(f"{fate}, for {name} has their only replica: {', '.join(alone[:_NAMED])}{more}")
    return lines


def refusal(problems: Iterable[Problem], scene: Scene) -> str:
    """Return why the servers stay in service, the root causes of the errors on one screen; empty when nothing speaks against
    it."""
    errors = [problem for problem in problems if problem.severity == ERROR]
    if not errors:
        return ""
    lines = cause_lines(root_causes(errors, scene), MAX_LINES - 1)
    return "\n".join(["Maintenance is refused; no server was touched.", *lines])


def roll_problems(
    cluster: Cluster, batches: Iterable[Iterable[str]], marks: Mapping[str, Mark], now: float
) -> list[Problem]:
    """Return what servers in maintenance mean for a rolling restart: that they are, and each batch that would take a quorum which
    they would have kept."""
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

#: States of a host, and what follows from them.
STATES = {
    "in_service": "in service",
    "in_maintenance": "in maintenance",
    "overdue": "in maintenance, overdue",
    "running": "marked, but its server runs: run maintenance_enter or maintenance_leave again",
    "stopped": "not in maintenance, and its server does not run",
    "unknown": "its host could not be read",
}
#: Those that somebody has to look at.
FINDINGS = ("overdue", "running", "stopped", "unknown")


def host_state(host: Mapping[str, Any], now: float) -> str:
    """Return the state of a host, one of STATES. `host`: `running` (None: it could not be read) and `maintenance` (a record or
    None)."""
    if host.get("running") is None:
        return "unknown"
    if not host.get("maintenance"):
        return "in_service" if host["running"] else "stopped"
    mark = mark_of(host["maintenance"])
    if host["running"]:
        return "running"
    return "overdue" if mark.overdue(now) else "in_maintenance"


def status(hosts: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any]:
    """Return the state of each host, the same as a table for people, and what somebody has to look at.

    `hosts`: each with host, server_name, running and maintenance, as of `host_state`.
    """
    rows = []
    for host in hosts:
        mark = mark_of(host["maintenance"], host["server_name"]) if host.get("maintenance") else None
        row = {"host": host["host"], "server_name": host["server_name"], "state": host_state(host, now)}
        rows.append({**row, "maintenance": mark.as_dict() if mark else None})
    findings = [f"{row['host']}: {STATES[row['state']]}" for row in rows if row["state"] in FINDINGS]
    cells = [
        (
            row["host"],
            row["server_name"],
            STATES[row["state"]].partition(":")[0],
            *(
                (utc(mark["since"]), utc(mark["until"]), mark["by"], mark["reason"])
                if (mark := row["maintenance"])
                else ("", "", "", "")
            ),
        )
        for row in rows
    ]
    text = table("Maintenance", ("Host", "Server", "State", "Since", "Until", "By", "Reason"), cells)
    return {"hosts": rows, "findings": findings, "lines": [*text.splitlines(), *findings]}
