# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One sample of the cluster's health, read once and evaluated by the rules, for the health gate and for event sources."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable

from ..maintenance import known_problems, mark_texts, parse_marks
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.model import Cluster
from ..nats.system_api import SystemApi
from ..problem import ERROR, Problem
from ..thresholds import MAX_ACTIVE, MAX_LAG
from .cause import ClusterContext, RootCause, build_context
from .causes import root_causes
from .rules import (
    Expectations,
    Limits,
    StopPolicy,
    difference_problems,
    election_problems,
    health_problems,
    split_tolerated,
    stop_problems,
)
from .run_isolation import Isolation
from .run_unreported import with_unreported_streams

#: Failures that a restart in progress explains; waiting does not help with any other failure.
TRANSIENT = ("unreachable", "timeout", "connection_lost", "bad_reply")

#: Seconds without progress after which a replica counts as permanently lacking messages.
DIFFERENCE_AFTER = 2.0

#: Options for evaluating one sample, except the servers to stop.
SAMPLE_SPEC: dict[str, dict[str, Any]] = {
    "expected_servers": {"type": "list", "elements": "str"},
    "expected_jetstream_servers": {"type": "list", "elements": "str"},
    "expected_clusters": {"type": "dict", "default": {}},
    "cluster": {"type": "str"},
    "assets": {"type": "bool", "default": True},
    "max_lag": {"type": "int", "default": MAX_LAG},
    "max_active": {"type": "float", "default": MAX_ACTIVE},
    "tolerate": {"type": "list", "elements": "str", "default": []},
}


@dataclass(frozen=True)
class Sample:
    """One sample of the cluster. `cluster` is None if the cluster could not be reached at all. `context`: the data for
    explaining the problems."""

    cluster: Cluster | None
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    tolerated: tuple[Problem, ...]
    context: ClusterContext = field(default_factory=ClusterContext)

    @property
    def state(self) -> frozenset[object]:
        """Return the errors in a format that can be compared between samples."""
        return frozenset(problem.state for problem in self.errors)

    @property
    def causes(self) -> list[RootCause]:
        """Return the root causes of the errors and warnings."""
        return root_causes([*self.errors, *self.warnings], self.context)


def evaluate(
    cluster: Cluster,
    params: Mapping[str, Any],
    last: Cluster | None = None,
    older: Cluster | None = None,
    unlisted: Sequence[Problem] = (),
) -> Sample:
    """Return the sample for a cluster that was read. `last`: an earlier sample, whose leaders are compared; `older`: a
    sample that is some seconds old, whose replicas are compared. `unlisted`: problems that occurred during reading."""
    limits = Limits(params["max_lag"], params["max_active"])
    servers = params["expected_servers"]
    jetstream_servers = params["expected_jetstream_servers"]
    if jetstream_servers is None:
        jetstream_servers = servers
    problems = health_problems(
        cluster,
        Expectations(
            servers=None if servers is None else frozenset(servers),
            jetstream_servers=None if jetstream_servers is None else frozenset(jetstream_servers),
            cluster=params["cluster"],
            limits=limits,
            clusters=params["expected_clusters"],
            assets=params["assets"],
        ),
    )
    only = partial(Cluster.only, cluster=params["cluster"])
    if last is not None:
        problems += election_problems(only(last), only(cluster))
    if older is not None:
        problems += difference_problems(only(older), only(cluster), limits)
    problems += unlisted
    problems += stop_problems(cluster, params["stop_servers"], StopPolicy(params["r1_policy"], limits))
    return sorted_sample(cluster, problems, params)


def sorted_sample(cluster: Cluster | None, problems: list[Problem], params: Mapping[str, Any]) -> Sample:
    """Return the sample with its problems split into errors, warnings and tolerated problems.

    Problems caused only by servers in maintenance are tolerated; the maintenance itself is a warning.
    """
    marks, now = parse_marks(params.get("maintenance") or ()), time.time()
    shown = map(cluster.displayed, params["tolerate"]) if cluster else ()
    remaining, tolerated = split_tolerated(problems, [*params["tolerate"], *shown, *marks])
    remaining += known_problems(marks.values(), now, cluster.names if cluster else ())
    return Sample(
        cluster,
        tuple(problem for problem in remaining if problem.severity == ERROR),
        tuple(problem for problem in remaining if problem.severity != ERROR),
        tuple(tolerated),
        build_context(
            cluster,
            params["expected_clusters"],
            params["stop_servers"],
            mark_texts(marks, now),
            params.get("inventory") or (),
        ),
    )


class Earlier:
    """Keeps a sample of the cluster until it is old enough for its replicas to be compared with a new one."""

    def __init__(self) -> None:
        self._kept: tuple[float, Cluster] | None = None

    def swap(self, cluster: Cluster) -> Cluster | None:
        """Return the kept sample and keep this one instead, or return None if the kept sample is not old enough yet."""
        now = time.monotonic()
        kept = self._kept
        if kept is not None and now - kept[0] < DIFFERENCE_AFTER:
            return None
        self._kept = (now, cluster)
        return kept[1] if kept else None


def make_sampler(
    api: SystemApi,
    params: Mapping[str, Any],
    elections: bool = False,
    accounts: Callable[[], Connections] | None = None,
) -> Callable[[], Sample]:
    """Return a function that reads and evaluates the cluster once, and compares it with its previous call. `elections`:
    whether a leader that changed since then is a problem. `accounts`: returns the connections with which streams are
    found whose servers are all down.

    Expected servers that do not respond are queried at their own addresses; if more of them form a cluster there, that
    cluster is evaluated. An unreachable cluster is a problem. Rejected credentials are a failure unless they worked
    before: in that case, the server that rejects them is shutting down.
    """
    known = {
        *(params["expected_servers"] or ()),
        *(params["expected_jetstream_servers"] or ()),
        *params["stop_servers"],
    }
    awaited = known - {*params["tolerate"], *parse_marks(params.get("maintenance") or ())}
    isolation = Isolation(api.client)
    worked = False
    last: Cluster | None = None
    earlier = Earlier()

    def read() -> Cluster:
        return api.read_cluster(awaited=awaited, known_names=known, assets=params["assets"])

    def sample() -> Sample:
        nonlocal worked, last
        try:
            cluster = isolation.read(read, awaited.intersection(params["expected_servers"] or ()))
        except NatsFailure as failure:
            if not worked and failure.code not in TRANSIENT:
                raise
            return sorted_sample(None, [Problem("unreachable", ERROR, "cluster", failure.description)], params)
        worked = True
        unlisted: list[Problem] = []
        if accounts is not None and params["assets"]:
            cluster, unlisted = with_unreported_streams(cluster, accounts, known)
        seen = evaluate(cluster, params, last, earlier.swap(cluster), unlisted)
        last = cluster if elections else None
        return seen

    return sample
