# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of a nats-server on its host: in the journal, in its log file, or in the output of a server without a unit."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .observation import RunCommand

#: The most recent warnings and errors that are returned, and the part of a log file that is searched, counted from its
#: end.
SEVERE_LINES, SEARCHED = 1000, 64 << 20
#: The lines that show why a server ended, and those from which they are chosen.
LAST_LINES, CHOSEN_FROM = 8, 2000
#: Seconds for journalctl: a journal on a broken disk must not prevent the other data from being returned.
_JOURNAL_TIMEOUT = "30"
_SEVERE = re.compile(r"\[(WRN|ERR|FTL)\]")
_INFORMATIONAL = re.compile(r"\[(INF|DBG|TRC)\]")
#: The reason of a crash, which Go writes before the stack traces of all goroutines, and a line of the server's own.
_CRASH = re.compile(r"(panic|fatal error|SIG[A-Z]+): ")
_OWN = re.compile(r"\[[0-9]+\] ")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class LogOptions:
    """The log to read. `unit`: empty if systemd does not run the server. `file`: the log file of the configuration;
    `output`: the output of a server without unit. `utc`: whether the file has times in UTC."""

    unit: str
    file: str
    output: str
    utc: bool = False


def journal(unit: str, *options: str) -> list[str]:
    """Return the command that prints the journal of a unit."""
    return ["journalctl", f"--unit={unit}.service", *options, "--no-pager"]


def severe_lines(log: LogOptions, since: int, run_command: RunCommand) -> list[str] | None:
    """Return the last warnings and errors, not older than `since` seconds; None if the log cannot be read."""
    path = log.file or ("" if log.unit else log.output)
    if not path:
        return _severe_in_journal(log.unit, since, run_command) if log.unit else None
    clock = time.gmtime if log.utc else time.localtime
    try:
        return recent_lines(_end_of_file(path), time.strftime("%Y/%m/%d %H:%M:%S", clock(time.time() - since)))
    except OSError:
        return None


def recent_lines(lines: Iterable[str], since: str) -> list[str]:
    """Return the last warnings and errors of nats-server that are not older than `since` (`2026/11/30 11:00:00`)."""
    found: deque[str] = deque(maxlen=SEVERE_LINES)
    for line in lines:
        if _SEVERE.search(line):
            # [pid] date time [level] message
            _pid, _space, rest = line.partition(" ")
            if rest[: len(since)] >= since:
                found.append(line)
    return list(found)


def _severe_in_journal(unit: str, since: int, run_command: RunCommand) -> list[str] | None:
    options = [f"--since=-{since}s", rf"--grep={_SEVERE.pattern}", f"--lines={SEVERE_LINES}", "--output=cat"]
    lines = _read_journal(unit, options, run_command)
    return None if lines is None else [line for line in lines if _SEVERE.search(line)]


def last_lines(log: LogOptions, run_command: RunCommand) -> list[str]:
    """Return the last lines of the journal, or of the output without a unit, and of the log file, as `ending` chooses
    them. A log that cannot be read has no lines."""
    lines: list[str] = []
    if log.unit:
        lines += _read_journal(log.unit, [f"--lines={CHOSEN_FROM}", "--output=cat"], run_command) or []
    for path in filter(None, ("" if log.unit else log.output, log.file)):
        with suppress(OSError):
            lines += deque(_end_of_file(path), CHOSEN_FROM)
    return ending(lines)


def ending(lines: Sequence[str]) -> list[str]:
    """Return the lines that show why a server ended: for a crash its reason instead of the stack traces, and no
    informational lines if there are others. Names of streams may contain control characters, which are replaced."""
    cleaned = [_CONTROL.sub("?", line) for line in lines if line]
    if any(map(_CRASH.match, cleaned)):
        cleaned = [line for line in cleaned if _CRASH.match(line) or _OWN.match(line)]
    return ([line for line in cleaned if not _INFORMATIONAL.search(line)] or cleaned)[-LAST_LINES:]


def _read_journal(unit: str, options: Sequence[str], run_command: RunCommand) -> list[str] | None:
    """Return the lines of the journal; None if it cannot be read."""
    try:
        status, out, err = run_command(["timeout", _JOURNAL_TIMEOUT, *journal(unit, *options)], handle_exceptions=False)
    except OSError:
        return None
    # journalctl exits with 1 if no line matches, and then reports only files that it may not read.
    if status and (status != 1 or err):
        return None
    return out.splitlines()


def _end_of_file(path: str) -> Iterator[str]:
    """Yield the lines in the last part of a file. Raises OSError."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED))
        yield from (line.decode("utf-8", "replace").rstrip("\n") for line in file)
