# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state recorded in the journal of operations (docs/roll-journal.md): the current roll, the servers in maintenance,
and the times of planned outages. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ..maintenance import Mark, parse_mark
from ..times import parse_time

#: The version of the journal's schema that this module supports.
VERSION = 1
_DONE, _FAILED = "run_done", "run_failed"


@dataclass(frozen=True)
class Run:
    """A run of an operation. Times are seconds since 1970. `batch`: the number of the batch that began last, 0 before
    the first; `batches`: the total number of batches. `took`: the duration in seconds of each completed batch."""

    name: str
    started: float
    last: float
    batch: int = 0
    batches: int = 0
    began: float = 0.0
    took: tuple[float, ...] = ()
    state: str = "running"

    @property
    def running(self) -> bool:
        """Return whether the run has not ended. A killed run counts as not ended; its last event is old."""
        return self.state == "running"

    def seconds_left(self, now: float) -> Optional[float]:
        """Return the estimated remaining seconds, from the average duration of a batch; None until the first batch is
        done."""
        if not self.running or not self.took:
            return None
        mean = sum(self.took) / len(self.took)
        return max(0.0, (self.batches - len(self.took)) * mean - (now - self.began))


@dataclass(frozen=True)
class Journal:
    """`runs`: the last run of each cluster. `marks`: server → mark, for the servers that entered maintenance and have
    not left it."""

    runs: Mapping[str, Run] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)


def read_journal(lines: Iterable[str]) -> Journal:
    """Return the state after these lines, oldest first. Lines that do not match the schema are skipped, because a crash
    may truncate a line."""
    runs: dict[str, Run] = {}
    marks: dict[str, Mark] = {}
    for line in lines:
        event = _event(line)
        if event is None:
            continue
        data = event.get("data")
        if event["event"] == "maintenance_entered" and isinstance(data, dict):
            mark = parse_mark(data)
            marks[mark.server] = mark
        elif event["event"] == "maintenance_left" and isinstance(data, dict):
            marks.pop(parse_mark(data).server, None)
        elif event["event"] == "run_started":
            runs[event["cluster"]] = Run(event["run"], event["time"], event["time"], batches=event.get("of", 0))
        elif event["cluster"] in runs and runs[event["cluster"]].name == event["run"]:
            runs[event["cluster"]] = _after(runs[event["cluster"]], event)
    return Journal(runs, marks)


@dataclass(frozen=True)
class Window:
    """A period of planned outage of servers, in seconds since 1970, with the reason for operators."""

    servers: tuple[str, ...]
    begin: float
    end: float
    why: str


def windows(lines: Iterable[str]) -> tuple[Window, ...]:
    """Return when servers were in maintenance or restarted in batches, from these lines, oldest first.

    Maintenance ends at the announced time at the latest, so a forgotten server is reported. The batch of a killed run
    ends with the run's last event.
    """
    found: list[Window] = []
    kept: dict[str, Window] = {}
    batches: dict[str, Window] = {}
    for event in filter(None, map(_event, lines)):
        kind, time, data = event["event"], event["time"], event.get("data")
        details = data if isinstance(data, dict) else {}
        if kind == "maintenance_entered":
            mark = parse_mark(details)
            reason = f" ({mark.reason})" if mark.reason else ""
            kept[mark.server] = Window((mark.server,), time, mark.until, f"in maintenance by {mark.by}{reason}")
        elif kind == "maintenance_left" and (window := kept.pop(parse_mark(details).server, None)):
            found.append(replace(window, end=min(time, window.end)))
        elif kind == "batch_started":
            found.extend(_ended(batches, event))
            servers = details.get("servers") or event.get("hosts")
            if isinstance(servers, list):
                why = f"in batch {event.get('batch', '?')} of run {event['run']}"
                batches[event["run"]] = Window(tuple(map(str, servers)), time, time, why)
        elif kind in ("batch_done", "batch_failed", _DONE, _FAILED):
            found.extend(_ended(batches, event))
        elif event["run"] in batches:
            batches[event["run"]] = replace(batches[event["run"]], end=time)
    return tuple(window for window in (*found, *kept.values(), *batches.values()) if window.end >= window.begin)


def _ended(batches: dict[str, Window], event: Mapping[str, Any]) -> Iterator[Window]:
    window = batches.pop(event["run"], None)
    if window:
        yield replace(window, end=event["time"])


def _event(line: str) -> Optional[dict[str, Any]]:
    try:
        event = json.loads(line)
        if not isinstance(event, dict) or event["version"] != VERSION:
            return None
        event["time"] = parse_time(str(event["time"])).timestamp()
        known = all(isinstance(event[key], str) for key in ("run", "cluster", "event"))
        numbers = all(isinstance(event.get(key, 0), int) for key in ("batch", "of"))
    except (KeyError, ValueError):
        return None
    return event if known and numbers else None


def _after(run: Run, event: Mapping[str, Any]) -> Run:
    """Return the run after one of its events. For moves of replicas, no event marks the beginning of a batch."""
    time, kind = event["time"], event["event"]
    run = replace(run, last=time, batch=event.get("batch", run.batch), batches=event.get("of", run.batches))
    if kind == "batch_started":
        return replace(run, began=time)
    if kind == "batch_done":
        return replace(run, took=(*run.took, time - (run.began or run.started)), began=time)
    if kind in (_DONE, _FAILED):
        return replace(run, state="done" if kind == _DONE else "failed")
    return run
