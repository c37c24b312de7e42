# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Host settings that affect a store on SSDs: possible improvements, and whether the role can make them.

Each part returns `findings` (texts for operators, empty if there are none), `settable`, and the values for
`host.tuning_plan`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from .observation import RunCommand
from .system import Mount, disks_under, find_mount, is_ssd, mounts

PARTS = ("mount_options", "scheduler", "sysctl", "transparent_hugepages", "time_sync")
CLOCK_SERVICES = ("chrony", "chronyd", "systemd-timesyncd", "ntpd", "ntpsec")
_ATIME_FILESYSTEMS = ("ext3", "ext4", "xfs", "btrfs", "f2fs")
_SHARED = ("/", "/var", "/home", "/usr", "/opt", "/srv", "/tmp")
ELSEWHERE = "; the role cannot set it"
HUGE_PAGES = "kernel/mm/transparent_hugepage/enabled"


def store_mount(store: str, proc: Path) -> Mount | None:
    """Return the mount of the store."""
    return find_mount(store, mounts(_text(proc / "self" / "mountinfo")))


def mount_options(mount: Mount | None) -> dict[str, Any]:
    """Check the mount of the store: without noatime, each read of a message block may write its inode."""
    if not mount or mount.fstype not in _ATIME_FILESYSTEMS or "noatime" in mount.options:
        return {"findings": [], "settable": False, "mount": ""}
    dedicated = mount.target not in _SHARED
    text = f"mount options: {mount.target} is mounted without noatime"
    text += "" if dedicated else "; it is shared with the system and not changed"
    return {"findings": [text], "settable": dedicated, "mount": mount.target}


def scheduler(mount: Mount | None, sysfs: Path) -> dict[str, Any]:
    """Check the I/O schedulers below the store: SSDs gain nothing from the reordering that bfq does for disks with
    heads."""
    disks = [disk for disk in (disks_under(mount, sysfs) if mount else []) if is_ssd(disk, sysfs)]
    paths = {disk: sysfs / "block" / disk / "queue" / "scheduler" for disk in disks}
    known = {disk: _text(path) for disk, path in paths.items()}
    wrong = [disk for disk, text in known.items() if text and not re.search(r"\[(none|mq-deadline)]", text)]
    settable = all(os.access(paths[disk], os.W_OK) for disk in wrong)
    text = f"scheduler: {', '.join(wrong)}: neither none nor mq-deadline, which are suitable for SSDs"
    return {
        "findings": [text + ("" if settable else ELSEWHERE)] if wrong else [],
        "settable": settable,
        "disks": disks,
        "wrong": wrong,
    }


def sysctl(wanted: Mapping[str, Any], proc: Path) -> dict[str, Any]:
    """Compare kernel parameters with their desired values."""
    wrong = []
    for name, value in wanted.items():
        now = _text(proc / "sys" / name.replace(".", "/"))
        if now.split() != str(value).split():
            finding = f"sysctl: {name} is {now or 'unknown to this kernel'}, expected {value}"
            wrong.append({"name": name, "value": str(value), "finding": finding})
    return {"findings": [one["finding"] for one in wrong], "settable": True, "wrong": wrong}


def transparent_hugepages(sysfs: Path) -> dict[str, Any]:
    """Check transparent huge pages: with always, the kernel stalls the server while it collects pages that Go did not
    request."""
    path = sysfs / HUGE_PAGES
    known = _text(path)
    wrong, settable = "[always]" in known, os.access(path, os.W_OK)
    text = "transparent huge pages: always; madvise or never avoids stalls" + ("" if settable else ELSEWHERE)
    return {"findings": [text] if wrong else [], "settable": bool(known) and settable, "wrong": wrong}


def time_sync(run_command: RunCommand) -> dict[str, Any]:
    """Check the clock, which determines message times, MaxAge, duplicate windows and the validity of certificates."""
    if _said(run_command, "timedatectl", "show", "--property=NTPSynchronized", "--value") == "yes":
        return {"findings": [], "settable": False}
    # systemctl prints one word for each unit, in order.
    words = _said(run_command, "systemctl", "is-active", *CLOCK_SERVICES).split()
    running = [name for name, word in zip(CLOCK_SERVICES, words) if word == "active"]
    remedy = (
        f"{', '.join(running)} is running, but has no source yet" if running else "set up chrony or systemd-timesyncd"
    )
    text = f"time: it is unknown whether the clock is synchronised; {remedy}"
    return {"findings": [text], "settable": not running}


def read(
    parts: list[str], store: str, sysctls: Mapping[str, Any], run_command: RunCommand
) -> dict[str, dict[str, Any]]:
    """Return the findings of each part on this host."""
    proc, sysfs = Path("/proc"), Path("/sys")
    mount = store_mount(store, proc)
    judges: dict[str, Callable[[], dict[str, Any]]] = {
        "mount_options": lambda: mount_options(mount),
        "scheduler": lambda: scheduler(mount, sysfs),
        "sysctl": lambda: sysctl(sysctls, proc),
        "transparent_hugepages": lambda: transparent_hugepages(sysfs),
        "time_sync": lambda: time_sync(run_command),
    }
    return {part: judges[part]() for part in parts}


def _said(run_command: RunCommand, *command: str) -> str:
    try:
        return run_command(list(command), handle_exceptions=False)[1].strip()
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
