# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests step-downs until a suitable server leads.

The three step-down modules share this code. The server replies to a step-down before the election, and hands over to a
different member if the preferred one is not healthy (raft.go StepDown), so only reading the leader again shows the
result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, Union

from ansible.module_utils.basic import AnsibleModule

from ..module import fail
from ..nats.client import NatsFailure
from ..nats.model import RaftGroup, Server
from ..progress import Progress
from ..units import counted
from ..waiting import is_transient
from .leadership import FITS, REFUSED, SINGLE, STEP_DOWN, LeaderConstraints, LeadershipPlan, plan_group, unknown_names

CONSTRAINTS_SPEC: dict[str, dict[str, Any]] = {
    "away_from": {"type": "list", "elements": "str", "default": []},
    "preferred": {"type": "str"},
    "placement": {
        "type": "dict",
        "options": {"cluster": {"type": "str"}, "tags": {"type": "list", "elements": "str"}},
        "required_one_of": [("cluster", "tags")],
    },
    "force": {"type": "bool", "default": False},
    "wait_timeout": {"type": "float", "default": 60},
}

#: Seconds for which a group may be leaderless, or its members not current, before the step-down is refused: an election
#: after a crash takes up to 9 s (raft.go maxElectionTimeout), and a new leader has not received replies from its
#: followers yet.
SETTLE_SECONDS = 10.0

#: Seconds after which the request is repeated if the same server still leads.
REPEAT_SECONDS = 2.0

POLL_SECONDS = 0.1

#: Maximum number of step-down requests: with a preferred successor, and, if the successor is random, for each other
#: member. With four members, the chance that one of them is never chosen is then 1 in 100,000.
MOST_HANDOVERS, MOST_ATTEMPTS_PER_MEMBER = 3, 10

#: The server no longer leads, or has no successor now, so the leader is read again.
_NO_LONGER_LEADER_ERRORS = (10005, 10041)

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
Reading = Union[RaftGroup, NatsFailure]


class Groups(Protocol[K_contra]):
    """Access to the groups: reads their leaders, and requests step-downs. Failures of individual groups are returned,
    not raised."""

    def read(self, keys: Sequence[K_contra]) -> list[Reading]:
        """Return each group as its leader reports it."""

    def ask(self, requests: Sequence[tuple[K_contra, Mapping[str, Any]]]) -> list[NatsFailure | None]:
        """Send a step-down request to the leader of each group, with the body of the request."""


@dataclass
class StepDownJob(Generic[K]):
    """A group whose leader should step down, and the result. `attempts`: the number of step-downs that a leader
    accepted. `waited`: seconds from the first request until a suitable leader was observed."""

    key: K
    plan: LeadershipPlan
    attempts: int = 0
    waited: float = 0.0
    done: bool = False
    failed: str | None = None
    _now: LeadershipPlan | None = None
    _trouble: str = ""
    _asked: str | None = None
    _asked_at: float = 0.0
    _started: float = 0.0
    _tried: Counter[str] = field(default_factory=Counter)

    @property
    def leader(self) -> str | None:
        """Return the last observed leader, or None if there was none."""
        return self._now.before if self._now is not None else None

    @property
    def over(self) -> bool:
        return self.done or self.failed is not None

    @property
    def due(self) -> LeadershipPlan | None:
        """Return the last reading if the current leader is due for a request, otherwise None."""
        now = self._now
        if self.over or now is None or now.action != STEP_DOWN:
            return None
        return now if now.before != self._asked or time.monotonic() - self._asked_at >= REPEAT_SECONDS else None

    def see(self, reading: Reading, servers: Mapping[str, Server]) -> None:
        """Evaluate a new reading of the group and its current leader."""
        self._now = None
        if isinstance(reading, NatsFailure):
            self._trouble = reading.description
            if not is_transient(reading):
                self.failed = reading.description
            return
        self._now = now = plan_group(reading, self.plan.constraints, servers)
        if now.action == FITS:
            self.done = True
            self.waited = round(time.monotonic() - self._started, 3) if self.attempts else 0.0
        elif now.action == SINGLE or (now.action == REFUSED and not now.transient):
            self.failed = now.reason
        elif now.action == REFUSED:
            self._trouble = now.reason

    def request(self, now: LeadershipPlan, supporting: Container[str | None]) -> Mapping[str, Any] | None:
        """Return the body of the next request, or None if the attempts are used up, in which case the job has failed."""
        tells = now.before in supporting
        most = MOST_HANDOVERS if tells else MOST_ATTEMPTS_PER_MEMBER * (now.group.size - 1)
        if (sum(self._tried.values()) if tells else self.attempts) >= most:
            self.failed = f"{now.before} leads after {counted(self.attempts, 'step-down')}{self._because()}"
            return None
        if not self._started:
            self._started = time.monotonic()
        self._asked, self._asked_at = now.before, time.monotonic()
        if not tells:
            return {}
        target = min(now.candidates, key=lambda name: (self._tried[name], name != self.plan.target, name))
        self._tried[target] += 1
        return {"placement": {"preferred": target}}

    def answered(self, failure: NatsFailure | None) -> None:
        """Record the reply to a request. A request without a reply may have been carried out, so it counts as an
        attempt."""
        if failure is None or is_transient(failure):
            self.attempts += 1
        if failure is not None:
            self._trouble = failure.description
            if not is_transient(failure) and failure.err_code not in _NO_LONGER_LEADER_ERRORS:
                self.failed = failure.description

    def give_up(self, wait_timeout: float) -> None:
        """Mark the job as failed because its time is over."""
        if not self._asked and not self._trouble:
            self.failed = f"was not reached within {wait_timeout:g} s"
        else:
            seen = f"{self.leader} leads" if self.leader else "it has no leader"
            self.failed = f"{seen} {wait_timeout:g} s and {counted(self.attempts, 'step-down')} later{self._because()}"

    def _because(self) -> str:
        return f" (last trouble: {self._trouble})" if self._trouble else ""


def step_down(
    groups: Groups[K],
    jobs: Sequence[StepDownJob[K]],
    servers: Mapping[str, Server],
    supporting: Container[str | None],
    wait_timeout: float,
    concurrency: int = 1,
    lines: Progress | None = None,
) -> None:
    """Complete every job: a suitable server leads, or the job has failed.

    `servers`: those that responded, by name; `supporting`: the leaders that honour a preferred successor (2.11 and
    later).

    At most `concurrency` groups may be without a leader at once. Each group is read immediately before the request, so
    a leader that another operator has changed in the meantime is checked against the constraints, not against the plan.
    """
    deadline = time.monotonic() + wait_timeout
    waiting = list(jobs)
    active: list[StepDownJob[K]] = []
    while waiting or active:
        free = max(0, concurrency - len(active))
        active, waiting = active + waiting[:free], waiting[free:]
        for job, reading in zip(active, _read(groups, active)):
            job.see(reading, servers)
        active = [job for job in active if not job.over]
        if time.monotonic() >= deadline:
            break
        requests = []
        for job in active:
            due = job.due
            body = job.request(due, supporting) if due is not None else None
            if body is not None:
                requests.append((job, body))
        for (job, _body), answer in zip(requests, _ask(groups, requests)):
            job.answered(answer)
        active = [job for job in active if not job.over]
        if lines is not None:
            lines.report(partial(_elections_line, len(jobs), len(active) + len(waiting), len(active)))
        if active:
            time.sleep(POLL_SECONDS)
    for job in [*active, *waiting]:
        job.give_up(wait_timeout)


def _elections_line(count: int, left: int, under_way: int) -> str:
    return f"{count - left} of {count} leaders have changed, {counted(under_way, 'election')} under way"


def _read(groups: Groups[K], jobs: Sequence[StepDownJob[K]]) -> list[Reading]:
    try:
        return groups.read([job.key for job in jobs])
    except NatsFailure as failure:
        return [failure for _job in jobs]


def _ask(groups: Groups[K], requests: Sequence[tuple[StepDownJob[K], Mapping[str, Any]]]) -> list[NatsFailure | None]:
    try:
        return groups.ask([(job.key, body) for job, body in requests]) if requests else []
    except NatsFailure as failure:
        return [failure for _request in requests]


def requested_constraints(params: Mapping[str, Any]) -> LeaderConstraints:
    """Return the requested constraints of CONSTRAINTS_SPEC. Raises NatsFailure invalid_option if they contradict
    each other."""
    where = params["placement"] or {}
    constraints = LeaderConstraints(
        preferred=params["preferred"],
        away_from=frozenset(params["away_from"]),
        cluster=where.get("cluster"),
        tags=tuple(where.get("tags") or ()),
        force=params["force"],
    )
    if constraints == LeaderConstraints():
        raise NatsFailure(
            "invalid_option", "nothing is requested: set away_from, preferred or placement, or force: true"
        )
    if constraints.preferred in constraints.away_from:
        raise NatsFailure("invalid_option", f"preferred: {constraints.preferred} is also in away_from")
    return constraints


def require_known(constraints: LeaderConstraints, servers: Iterable[Server], groups: Iterable[RaftGroup]) -> None:
    """Raise NatsFailure unknown_name if a name, cluster or tag of the constraints matches no server."""
    problems = unknown_names(constraints, servers, {name for group in groups for name in group.members})
    if problems:
        raise NatsFailure("unknown_name", "; ".join(problems))


def outcome(plan: LeadershipPlan, job: StepDownJob[Any] | None, predict: bool) -> dict[str, Any]:
    """Return a module's result for one group: after its job, or as predicted if `predict` is set, or unchanged."""
    if job is not None:
        changed, after = job.attempts > 0, job.leader
    elif predict:
        changed, after = plan.action == STEP_DOWN, plan.expected
    else:
        changed, after = False, plan.before
    return {
        "changed": changed,
        "before": {"leader": plan.before},
        "after": {"leader": after},
        "candidates": list(plan.candidates),
        "attempts": job.attempts if job else 0,
        "waited": job.waited if job else 0.0,
    }


def leader_text(result: Mapping[str, Any], when: str) -> str:
    """Return the leader as text for a diff; in check mode the next leader may be undetermined, and a failed run may not
    have observed one."""
    leader = result[when]["leader"]
    if leader:
        return str(leader)
    return "not seen" if result["attempts"] else "one of " + ", ".join(result["candidates"])


def refuse(module: AnsibleModule, reasons: Sequence[str], result: Mapping[str, Any]) -> None:
    """Exit the module because some groups must not be changed; nothing was done."""
    fail(
        module,
        NatsFailure("step_down_refused", "nothing was done: " + "; ".join(reasons)),
        **{**result, "changed": False},
    )
