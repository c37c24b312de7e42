# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mark of a host in maintenance: who took it out of service, why, and for which period.

The mark is a small JSON file on the host itself. An empty file next to it, the hold, prevents the server from being
started.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .problem import WARNING, Problem

#: Placeholder for an unknown name.
UNKNOWN = "?"

#: Codes for the state of servers in maintenance.
IN_MAINTENANCE, OVERDUE = "maintenance", "maintenance_overdue"


@dataclass(frozen=True)
class Mark:
    """A server in maintenance. `since`, `until`: seconds since 1970. `held`: whether the server cannot be started until
    it leaves maintenance."""

    server: str
    by: str = UNKNOWN
    since: float = 0.0
    until: float = 0.0
    reason: str = ""
    held: bool = True

    def overdue(self, now: float) -> bool:
        """Return whether the server should have left maintenance by now."""
        return self.until <= now

    def text(self, now: float) -> str:
        """Return the mark as text for operators, such as "n3-c1 is in maintenance since … by ops@ctl until … (new
        disk)"."""
        reason = f" ({self.reason})" if self.reason else ""
        line = f"{self.server} is in maintenance since {utc(self.since)} by {self.by} until {utc(self.until)}{reason}"
        return f"{line}, which has expired" if self.overdue(now) else line

    def as_dict(self) -> dict[str, Any]:
        """Return the mark as the modules return it."""
        return asdict(self)


def parse_mark(record: Mapping[str, Any], server: str = "") -> Mark:
    """Return the mark in a record. Missing or invalid values become the worst case: an unknown person, and overdue.
    `server`: the server's name, used if the record has none."""
    return Mark(
        server=str(record.get("server") or server or UNKNOWN),
        by=str(record.get("by") or UNKNOWN),
        since=_seconds(record.get("since")),
        until=_seconds(record.get("until")),
        reason=str(record.get("reason") or ""),
        held=bool(record.get("held", True)),
    )


def parse_marks(records: Iterable[Mapping[str, Any]]) -> dict[str, Mark]:
    """Return server → mark. If several records concern the same server, the last one counts."""
    marks = [parse_mark(record) for record in records]
    return {mark.server: mark for mark in marks}


def mark_texts(marks: Mapping[str, Mark], now: float) -> dict[str, str]:
    """Return server → description of its maintenance, for operators."""
    return {name: mark.text(now) for name, mark in marks.items()}


def utc(seconds: float) -> str:
    """Return a time readable by operators and programs, such as 2026-11-24T14:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _seconds(value: Any) -> float:
    """Return the seconds, or 0 if the value is not a valid time."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return 0.0
    return seconds if math.isfinite(seconds) and 0 <= seconds < 2**40 else 0.0


def known_problems(marks: Iterable[Mark], now: float, answered: Collection[str] = ()) -> list[Problem]:
    """Return a warning for each server in maintenance: it is still in maintenance, or was forgotten there. `answered`:
    the servers that responded."""
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
