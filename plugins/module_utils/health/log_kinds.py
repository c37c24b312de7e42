# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of warnings and errors in a server's log: equal lines apart from their numbers, counted. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..times import parse_time


def log_text(kind: Mapping[str, Any]) -> str:
    times = f"{kind['count']} times, last at" if kind["count"] > 1 else "at"
    return f"[{kind['level']}] {kind['text']} ({times} {kind['last']})"


def log_kinds(lines: Iterable[str], pid: int | None = None) -> list[dict[str, Any]]:
    """Return the kinds of warnings and errors that a server has logged since its last start, the worst and most
    frequent first: level, count, text of the last one, and times of the first and the last.

    `pid`: the running process; if no process is running, the lines of the last process count. Lines that differ only in
    numbers and ids belong to the same kind, except failed connections to different addresses. journalctl prints the
    newest line first if it limits matching lines, so the lines are sorted by their times. A server that starts before
    the others logs failed routes; these lines are left out if they end soon after the process's first line.
    """
    parsed = sorted((found for found in map(_LOG_LINE.match, lines) if found), key=lambda found: found["time"])
    last_pid = str(pid) if pid else parsed[-1]["pid"] if parsed else ""
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    own = [found for found in parsed if found["pid"] == last_pid]
    for found in own:
        key = (found["level"], _VARIABLE.sub(_without_ids, found["text"]))
        kind = kinds.setdefault(key, {"level": found["level"], "count": 0, "first": found["time"]})
        kind.update(count=kind["count"] + 1, text=found["text"], last=found["time"])
    starting = _START_SECONDS + _seconds(own[0]["time"]) if own else 0.0
    left = [kind for kind in kinds.values() if not _START.match(kind["text"]) or _seconds(kind["last"]) > starting]
    return sorted(left, key=lambda kind: ("FTL ERR WRN".index(kind["level"]), -kind["count"], kind["first"]))


def _seconds(time: str) -> float:
    """Return a time of a log, without a time zone, as seconds that can be compared with each other; a log without times
    of day has only one."""
    return parse_time(time.replace("/", "-")).timestamp() if " " in time else 0.0


def _without_ids(variable: re.Match[str]) -> str:
    return variable["target"] or "…"


#: Lines of a server that does not reach the others yet, and seconds in which they are normal after a start.
_START = re.compile(r"Waiting for routing to be established|Error trying to connect to route ")
_START_SECONDS = 60.0
#: A line of nats-server's log, and the parts that differ between occurrences of an event: numbers, addresses, ids;
#: not the address to which a connection failed.
_LOG_LINE = re.compile(r"\[(?P<pid>\d+)\] (?P<time>[\d/]+(?: [\d:.]+)?) \[(?P<level>WRN|ERR|FTL)\] (?P<text>.*)")
_VARIABLE = re.compile(r"(?P<target>\bdial tcp \S+)|\b(?=\w*\d)\w+\b")
