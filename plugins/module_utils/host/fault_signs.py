# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of a host that a diagnosis needs: the server's recent warnings and errors, the digest of its configuration
file, and the usage of its disk."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .loaded import file_digest
from .observation import RunCommand
from .process import read_instance
from .system import find_mount, mounts

#: The most recent lines that are returned, and the part of a log file that is searched, counted from its end.
LINES, SEARCHED = 1000, 64 << 20
#: Seconds for journalctl: a journal on a broken disk must not prevent the other data from being returned.
_PATIENCE = "30"
_SEVERE = re.compile(r"\[(WRN|ERR|FTL)\]")


@dataclass(frozen=True)
class LogOptions:
    """The log to read. `unit`: empty if systemd does not run the server. `file`: the log file of the configuration;
    `output`: the output of a server without unit. `since`: seconds back from now. `utc`: whether the file has times in
    UTC."""

    unit: str
    file: str
    output: str
    since: int
    utc: bool


def read_fault_signs(instance: str, store_dir: str | None, log: LogOptions, run_command: RunCommand) -> dict[str, Any]:
    """Return the value of `diagnosis`, as documented by nats_server_host_info. `instance`: the process, empty if none
    is running."""
    server = read_instance(instance) if instance else None
    return {
        "digest": file_digest(server, run_command) if server else "",
        "log_lines": _log_lines(log, run_command),
        **disk_usage(store_dir),
    }


def disk_usage(path: str | None) -> dict[str, Any]:
    """Return the used share of a path's file system in percent, rounded up as by df, and where it is mounted; None and
    an empty text if the file system cannot be read."""
    try:
        found = os.statvfs(path or "")
        mount = find_mount(path or "", mounts(Path("/proc/self/mountinfo").read_text()))
    except OSError:
        return {"disk_percent": None, "disk_mount": ""}
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    if not usable or mount is None:
        return {"disk_percent": None, "disk_mount": ""}
    return {"disk_percent": -(-100 * used // usable), "disk_mount": mount.target}


def _log_lines(log: LogOptions, run_command: RunCommand) -> list[str] | None:
    """Return the last warnings and errors; None if the log cannot be read."""
    path = log.file or ("" if log.unit else log.output)
    if not path:
        return _journal_lines(log.unit, log.since, run_command) if log.unit else None
    clock = time.gmtime if log.utc else time.localtime
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED))
            texts = (line.decode("utf-8", "replace").rstrip("\n") for line in file)
            return recent_lines(texts, time.strftime("%Y/%m/%d %H:%M:%S", clock(time.time() - log.since)))
    except OSError:
        return None


def recent_lines(lines: Iterable[str], since: str) -> list[str]:
    """Return the last warnings and errors of nats-server that are not older than `since` (`2026/11/30 11:00:00`)."""
    found: deque[str] = deque(maxlen=LINES)
    for line in lines:
        if _SEVERE.search(line):
            # [pid] date time [level] message
            _pid, _space, rest = line.partition(" ")
            if rest[: len(since)] >= since:
                found.append(line)
    return list(found)


def _journal_lines(unit: str, since: int, run_command: RunCommand) -> list[str] | None:
    command = ["timeout", _PATIENCE, "journalctl", f"--unit={unit}.service", f"--since=-{since}s"]
    command += [rf"--grep={_SEVERE.pattern}", f"--lines={LINES}", "--no-pager", "--output=cat"]
    try:
        status, out, err = run_command(command, handle_exceptions=False)
    except OSError:
        return None
    # journalctl exits with 1 if no line matches, and then reports only files that it may not read.
    if status and (status != 1 or err):
        return None
    return [line for line in out.splitlines() if _SEVERE.search(line)]
