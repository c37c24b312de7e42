# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of this run of Ansible, and whether a different run on this controller has ended, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


def run_identity(pid: int, user: str, name: str = "", proc: Path = _PROC) -> dict[str, Any]:
    """Return the identity of a run of Ansible, the process `pid` of this controller.

    Process IDs repeat in every container and after every boot, so the identity includes the PID namespace and the boot;
    `started` (clock ticks since the boot) distinguishes it from an earlier process with the same id. `name` is the name
    of the scheduler that starts runs. Values that cannot be read, for example without /proc, are empty.
    """
    return {
        "name": name,
        "user": user,
        "controller": os.uname().nodename,
        "boot": _boot(proc),
        "pid_namespace": _pid_namespace(proc),
        "pid": pid,
        "started": _started(proc / str(pid)) or 0 if _boot(proc) else 0,
    }


def run_is_alive(owner: Mapping[str, Any] | str, proc: Path = _PROC) -> bool | None:
    """Return whether the run with this identity is still running; None if this controller cannot determine it."""
    if isinstance(owner, str) or not owner.get("boot") or not owner.get("pid_namespace"):
        return None
    if (owner["boot"], owner["pid_namespace"]) != (_boot(proc), _pid_namespace(proc)):
        return None
    pid, started = owner.get("pid"), owner.get("started")
    if not isinstance(pid, int) or pid < 1 or not started:
        return None
    try:
        return _started(proc / str(pid)) == started
    except PermissionError:
        return True


def _boot(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace(proc: Path) -> str:
    try:
        return os.readlink(proc / "self/ns/pid")
    except OSError:
        return ""


def _started(process: Path) -> int | None:
    """Return when a process began, in clock ticks since the boot; None if it has ended or is a zombie (proc(5): stat,
    fields 3 and 22). Raises PermissionError if the file may not be read."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        # With hidepid=2, /proc hides the processes of other users; sending signal 0 still detects them.
        try:
            os.kill(int(process.name), 0)
        except ProcessLookupError:
            return None
        raise PermissionError(f"{process} is hidden") from None
    return None if fields[0] in "ZX" else int(fields[19])
