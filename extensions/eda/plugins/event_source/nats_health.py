# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source natsops.jetstream.nats_health; see DOCUMENTATION."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_health
short_description: Create events from problems of NATS clusters that last for some time
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Every O(interval) seconds, the source checks the cluster in the same way as
    M(natsops.jetstream.nats_cluster_health), and the certificates of the servers. The source therefore also reports
    problems that a server cannot report itself, such as its own failure.
  - A problem creates an event once it has lasted O(min_duration) seconds, another event every O(repeat) seconds, and an
    event whose RV(nats.state) is V(solved) when the problem is gone.
  - The duration of a problem is measured from the first time that this source detects it, also after a restart of
    ansible-rulebook.
  - Each event contains the root cause of its problem in RV(nats.cause), so a rule can act once for a dead server
    instead of once for each affected stream. M(natsops.jetstream.nats_cluster_health) lists the kinds of root causes.
  - While no server is reachable, this is the only problem (code V(unreachable)), and no other problem counts as solved.
  - Needs a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.event_source
  - natsops.jetstream.health
options:
  interval:
    description:
      - Seconds from the start of one check to the start of the next.
    type: float
    default: 30
  min_duration:
    description:
      - Seconds that a problem must last before it creates an event.
    type: float
    default: 0
  repeat:
    description:
      - Seconds after which an ongoing problem creates another event; with V(0), it creates only one.
    type: float
    default: 0
  certificate_days:
    description:
      - A certificate that expires within this many days is a problem (code V(certificate_expiring)). A certificate
        whose expiry is not reported, because the server is older than 2.11.12 or 2.12.4, is also a problem
        (V(certificate_unknown)).
      - V(0) disables the check.
    type: float
    default: 0
  jwt_days:
    description:
      - In operator mode, a JWT of an operator, an account, an activation or a connected user that expires within this
        many days, or within a fifth of its lifetime if that is shorter, is a problem (code V(jwt_expiring)), and so is
        a JWT that cannot be read (V(jwt_unknown)). Users that are valid for less than a day are disregarded.
      - This check reads the connections of all servers. V(0) disables the check.
    type: float
    default: 0
  drift:
    description:
      - File that the playbook C(natsops.jetstream.assets_drift) writes on this host. A document whose assets differ is a
        problem (code V(drift)), as is a missing, unreadable or too old file (V(drift_unknown)). Omit it for no check.
    type: path
  drift_max_age:
    description:
      - Seconds after which the file is too old. The default suits a comparison every night.
    type: float
    default: 93600
  tolerate:
    description:
      - Codes of problems that create no events, and names of servers that may be missing or behind.
    type: list
    elements: str
    default: []
  feedback:
    description:
      - Whether to wait until ansible-rulebook has confirmed each event. ansible-rulebook confirms events if it runs
        with a C(--persistence-id).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: servers that are gone for ten minutes
  natsops.jetstream.nats_health:
    context: c1-sys
    expected_servers: [n1-c1, n2-c1, n3-c1]
    assets: false
    min_duration: 600
"""

RETURN = r"""
id:
  description: Id of the event, which is different for each event.
  type: str
type:
  description: V(problem).
  type: str
state:
  description: V(present), or V(solved) when the problem is gone.
  type: str
code:
  description: Code of the problem, as in C(problems) of M(natsops.jetstream.nats_cluster_health), or
    V(certificate_expiring), V(certificate_unknown), V(jwt_expiring), V(jwt_unknown), V(drift) or V(drift_unknown). The
    severity, subject, message and servers are also those in C(problems).
  type: str
severity:
  description: Severity of the problem.
  type: str
subject:
  description: Subject of the problem.
  type: str
message:
  description: Description of the problem.
  type: str
servers:
  description: Servers affected by the problem.
  type: list
  elements: str
server:
  description: The server at fault, if there is exactly one.
  type: str
since:
  description: When this source first detected the problem.
  type: str
seconds:
  description: Seconds since the problem was first detected.
  type: int
absent:
  description: The members of the group that are not available.
  type: list
  elements: str
cause:
  description: "Root cause of the problem, with C(kind), C(title) and C(servers), as in C(causes) of
    M(natsops.jetstream.nats_cluster_health). With C(group_by_attributes: [event.nats.cause.kind]), a rule acts once for
    a dead server."
  type: dict
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable

# ansible-rulebook runs this file by its path and does not support collections. If the package `ansible` is installed,
# it contains a different ansible_collections.
_ROOT = os.path.abspath(__file__).rpartition(f"{os.sep}ansible_collections{os.sep}")[0]
sys.path.append(_ROOT)
import ansible_collections

ansible_collections.__path__ = [os.path.join(_ROOT, "ansible_collections"), *ansible_collections.__path__]

from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.expiry import due, evaluate
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.run_expiry import read_logins
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.drift import drift_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import RootCause
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import root_causes
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import split_tolerated
from ansible_collections.natsops.jetstream.plugins.module_utils.health.sampling import (
    SAMPLE_SPEC,
    make_sampler,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Server
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, WARNING, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.thresholds import COMPARED_HOURS
from ansible_collections.natsops.jetstream.plugins.module_utils.times import certificate_days, certificate_ends
from ansible_collections.natsops.jetstream.plugins.plugin_utils._event_source import (
    EventEmitter,
    checked_with_connection,
    keep_trying,
)

LOGGER = logging.getLogger("natsops.jetstream.nats_health")

SPEC: dict[str, dict[str, Any]] = {
    **SAMPLE_SPEC,
    "interval": {"type": "float", "default": 30},
    "min_duration": {"type": "float", "default": 0},
    "repeat": {"type": "float", "default": 0},
    "certificate_days": {"type": "float", "default": 0},
    "jwt_days": {"type": "float", "default": 0},
    "drift": {"type": "path"},
    "drift_max_age": {"type": "float", "default": COMPARED_HOURS * 3600.0},
}


async def main(queue: Any, args: dict[str, Any]) -> None:
    """Put an event on the queue for each lasting problem, until cancelled. Raises ArgumentError if the arguments are
    invalid."""
    params, options = checked_with_connection(args, SPEC)
    emitter, tracker = EventEmitter(queue, args), ProblemTracker(params["min_duration"], params["repeat"])

    async def watch(connected: Callable[[], None]) -> None:
        # The modules' code is synchronous, and only one thread may use a client.
        thread, client = ThreadPoolExecutor(1), Client(options)
        api = SystemApi(client)
        sample = make_sampler(api, {**params, "stop_servers": [], "r1_policy": "accept"})

        def look() -> tuple[list[Problem], list[RootCause]]:
            seen = sample()
            found = [*seen.errors, *seen.warnings]
            if params["drift"]:
                drift = file_drift(params["drift"], params["drift_max_age"])
                found += split_tolerated(drift, params["tolerate"])[0]
            if seen.cluster is not None and params["certificate_days"]:
                servers = seen.cluster.only(cluster=params["cluster"]).servers
                certificates = certificate_problems(api, servers, params["certificate_days"])
                found += split_tolerated(certificates, params["tolerate"])[0]
            if seen.cluster is not None and params["jwt_days"]:
                servers = seen.cluster.only(cluster=params["cluster"]).servers
                files = [options.credentials] if options.credentials else []
                jwts = jwt_problems(api, servers, params["jwt_days"], files)
                found += split_tolerated(jwts, params["tolerate"])[0]
            return found, root_causes(found, seen.context)

        try:
            while True:
                begun = time.monotonic()
                problems, causes = await asyncio.get_running_loop().run_in_executor(thread, look)
                if not _unreachable(problems):
                    connected()
                for content in tracker.due_events(problems, time.monotonic(), causes):
                    await emitter.put(content.pop("id"), content)
                await asyncio.sleep(begun + params["interval"] - time.monotonic())
        finally:
            thread.submit(client.close)
            thread.shutdown(wait=False)

    await keep_trying(LOGGER, watch)


@dataclass
class OngoingProblem:
    """A problem with its first occurrence (by the monotonic clock and by the calendar), the number and the last time of
    its events, and its root cause in the last sample."""

    problem: Problem
    begun: float
    since: str
    cause: RootCause | None = None
    events: int = 0
    reported_at: float = 0.0


class ProblemTracker:
    """The ongoing problems, and the time of their next events. Depends only on the samples and the calendar."""

    def __init__(self, min_duration: float, repeat: float) -> None:
        self._min_duration = min_duration
        self._repeat = repeat
        self._known: dict[tuple[Any, ...], OngoingProblem] = {}

    def due_events(
        self, problems: Sequence[Problem], now: float, causes: Sequence[RootCause] = ()
    ) -> list[dict[str, Any]]:
        """Return the contents of the events for the problems of one sample. `now`: seconds of a monotonic clock."""
        causes_by_problem = {id(problem): cause for cause in causes for problem in cause.problems}
        today = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        seen = {(problem.code, problem.subject, problem.servers): problem for problem in problems}
        for key, problem in seen.items():
            ongoing = self._known.setdefault(key, OngoingProblem(problem, now, today))
            ongoing.problem, ongoing.cause = problem, causes_by_problem.get(id(problem))
        events = []
        for key, ongoing in list(self._known.items()):
            if key in seen:
                due = (
                    ongoing.reported_at + self._repeat <= now if ongoing.events and self._repeat else not ongoing.events
                )
                if due and now - ongoing.begun >= self._min_duration:
                    ongoing.events, ongoing.reported_at = ongoing.events + 1, now
                    events.append(_content(ongoing, "present", now))
            elif not _unreachable(problems):
                del self._known[key]
                if ongoing.events:
                    events.append(_content(ongoing, "solved", now))
        return events


def _unreachable(problems: Sequence[Problem]) -> bool:
    """Return whether no server could be queried, according to the sampler."""
    return any(problem.code == "unreachable" for problem in problems)


def _content(ongoing: OngoingProblem, state: str, now: float) -> dict[str, Any]:
    details = ongoing.problem.as_dict()
    return {
        "id": "/".join(
            [details["code"], details["subject"], *details["servers"], ongoing.since, state, str(ongoing.events)]
        ),
        "type": "problem",
        "state": state,
        **details,
        "server": details["servers"][0] if len(details["servers"]) == 1 else None,
        "since": ongoing.since,
        "seconds": round(now - ongoing.begun),
        "cause": {"kind": ongoing.cause.kind, "title": ongoing.cause.title, "servers": list(ongoing.cause.servers)}
        if ongoing.cause
        else None,
    }


def certificate_problems(api: SystemApi, servers: Sequence[Server], days: float) -> list[Problem]:
    """Return the certificates that expire within this many days, by each server's own clock, and those without a
    reported expiry."""
    found = []
    for server, varz in api.pages(servers, "VARZ"):
        if isinstance(varz, NatsFailure):
            continue  # the check of the cluster reports a server that does not respond
        ends = certificate_ends(varz)
        for part, left in certificate_days(varz).items():
            end = ends[part]
            if left <= days:
                how = f"ends in {left:.1f} days" if left > 0 else "has expired"
                message = f"the certificate of {server.name} ({part}) {how} ({end})"
                severity = WARNING if left > 0 else ERROR
                found.append(
                    Problem("certificate_expiring", severity, f"{server.name} {part}", message, (server.name,))
                )
        if not ends and _has_tls(varz):
            message = f"{server.name} ({varz.get('version')}) does not report when its certificates expire; 2.11.12 and 2.12.4 do"
            found.append(Problem("certificate_unknown", WARNING, server.name, message, (server.name,)))
    return found


def jwt_problems(api: SystemApi, servers: Sequence[Server], days: float, files: Sequence[str]) -> list[Problem]:
    """Return the JWTs that expire within this many days, and those that cannot be read; none unless the servers are in
    operator mode."""
    try:
        logins = read_logins(api, servers, files)
    except NatsFailure as failure:
        return [Problem("jwt_unknown", WARNING, "JWTs", f"the JWTs in use cannot be read: {failure.description}")]
    if logins is None:
        return []
    found = [row.problem() for row in due(evaluate(logins, time.time(), warning=days))]
    if logins.unknown:
        message = f"not all JWTs in use can be read: {'; '.join(logins.unknown[:5])}"
        found.append(Problem("jwt_unknown", WARNING, "JWTs", message))
    return found


def file_drift(path: str, max_age: float) -> list[Problem]:
    """Return the problems of the file of assets_drift. `max_age`: in seconds."""
    try:
        source = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        source = None
    return drift_problems(source, path, datetime.now(timezone.utc), max_age)


def _has_tls(varz: Mapping[str, Any]) -> bool:
    parts = [varz, *(varz.get(part) or {} for part in ("cluster", "gateway", "leaf"))]
    return any(part.get("tls_required") or part.get("tls_verify") for part in parts)
