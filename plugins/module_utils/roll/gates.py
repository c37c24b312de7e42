# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health gates of a roll: when each is required, and whether a passed gate covers the next one. Pure.

A batch has up to three gates: `before` it is drained, `drained` right before the stop, and `after` the restart. The gate
after a batch may also evaluate the stop of the next batch. If it passed, the next batch needs no gate before it, because
its servers are drained right away and the gate `drained` takes a new sample immediately before the stop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds without a change after which a gate before a stop ends early. Only before a stop, because an early refusal is
#: harmless there.
STUCK_TIMEOUT = 15


@dataclass(frozen=True)
class Steps:
    """The steps of a roll between the gate after a batch and the stop of the next one."""

    #: Whether leaders are moved off the servers before their stop, which is followed by the gate `drained`.
    drain: bool = True
    #: Whether single replicas are moved off the servers before their stop and back after their start.
    move_single_replicas: bool = False
    #: Whether leaders are restored to the servers after their restart.
    restore_leaders: bool = False
    #: Whether the operator's tasks or commands run before or after a batch.
    hooks: bool = False

    def separation(self) -> str:
        """Return why the gate after a batch cannot serve the next batch; empty if it can."""
        if not self.drain:
            return "without draining, no sample is taken right before the stop"
        if self.move_single_replicas:
            return "single replicas move between the gates"
        if self.restore_leaders:
            return "leaders are restored between the gates"
        return "a hook runs between the gates" if self.hooks else ""


@dataclass(frozen=True)
class Gate:
    """The requirements that a gate verifies."""

    #: Names of the servers about to be stopped.
    stop_servers: frozenset[str] = frozenset()
    #: Names of all servers of the (super)cluster.
    expected_servers: frozenset[str] = frozenset()
    #: Accepted problem codes, servers and assets.
    tolerate: frozenset[str] = frozenset()
    #: Names of the servers in maintenance.
    maintenance: frozenset[str] = frozenset()
    #: Whether unavailable single replicas are accepted (accept) or a problem (fail).
    r1_policy: str = "accept"
    #: Number of entries that a replica may be behind.
    max_lag: int = 0
    #: Number of good samples in a row.
    samples: int = 1
    #: Seconds that the good samples span.
    span: float = 0
    #: Server → its version: for a passed gate, in its last sample; for the next gate, in the plan.
    versions: Mapping[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the gate for the result of a module."""
        return {
            "stop_servers": sorted(self.stop_servers),
            "expected_servers": sorted(self.expected_servers),
            "tolerate": sorted(self.tolerate),
            "maintenance": sorted(self.maintenance),
            "r1_policy": self.r1_policy,
            "max_lag": self.max_lag,
            "samples": self.samples,
            "span": self.span,
            "versions": dict(self.versions or {}),
        }


@dataclass(frozen=True)
class Coverage:
    """Whether a passed gate covers the next one, and why."""

    covered: bool
    reason: str


def parse_gate(document: Mapping[str, Any]) -> Gate:
    """Return the gate of `Gate.as_dict`. Templates may have turned numbers into text."""
    names = ("stop_servers", "expected_servers", "tolerate", "maintenance")
    return Gate(
        **{name: frozenset(document[name]) for name in names},
        r1_policy=document["r1_policy"],
        max_lag=int(document["max_lag"]),
        samples=int(document["samples"]),
        span=float(document["span"]),
        versions=document["versions"],
    )


def gate_covers(previous: Gate | None, following: Gate, steps: Steps) -> Coverage:
    """Return whether the gate `previous` also verified the requirements of `following`. `previous`: the gate after the
    batch before, None if it did not pass; `steps`: the steps between both gates.

    The previous gate must have been at least as strict, and the servers about to be stopped must still run the versions
    of the plan: a server that was not running then, or was replaced since, needs a gate of its own."""
    separation = steps.separation()
    if separation:
        return Coverage(False, separation)
    if previous is None:
        return Coverage(False, "no gate has passed since the last batch")
    laxity = _laxity(previous, following)
    if laxity:
        return Coverage(False, f"the gate after the last batch {laxity}")
    return Coverage(True, "the gate after the last batch also evaluated this stop, and nothing has changed since")


def _laxity(previous: Gate, following: Gate) -> str:
    """Return the first requirement that the previous gate did not verify; empty if it verified all."""
    missing = following.stop_servers - previous.stop_servers
    if missing or not following.stop_servers:
        return f"did not evaluate the stop of {_listed(missing)}"
    if following.expected_servers - previous.expected_servers:
        return f"did not expect {_listed(following.expected_servers - previous.expected_servers)}"
    if previous.maintenance != following.maintenance:
        return f"saw different servers in maintenance: {_listed(previous.maintenance ^ following.maintenance)}"
    if previous.tolerate - following.tolerate:
        return f"tolerated {_listed(previous.tolerate - following.tolerate)}"
    if following.r1_policy == "fail" and previous.r1_policy != "fail":
        return "accepted unavailable single replicas"
    if previous.max_lag > following.max_lag:
        return f"accepted replicas that are {previous.max_lag} entries behind"
    if previous.samples < following.samples or previous.span < following.span:
        return f"took {previous.samples} sample(s) in {previous.span:g} s"
    before, now = previous.versions or {}, following.versions or {}
    changed = {name for name in following.stop_servers if not now.get(name) or before.get(name) != now[name]}
    return f"sampled another version than the plan, or none, on {_listed(changed)}" if changed else ""


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "no server"
