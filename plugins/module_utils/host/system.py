# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The properties of a host: its memory, service manager, users, the file systems of a path and their disks."""

from __future__ import annotations

import grp
import os
import posixpath
import pwd
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_SYS = Path("/sys")
#: Name prefixes of virtual disks: virtio and Xen.
_VIRTUAL = ("vd", "xvd")


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo."""

    target: str
    fstype: str
    source: str
    options: tuple[str, ...]
    device: str


def selinux_mode(sys: Path = _SYS) -> str:
    """Return `enforcing`, `permissive`, or an empty string if SELinux is off or the kernel has none."""
    try:
        return "enforcing" if (sys / "fs/selinux/enforce").read_text().strip() == "1" else "permissive"
    except OSError:
        return ""


def memory_mb(proc: Path = _PROC) -> int:
    """Return the host's memory in MiB, rounded down."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE)
    return int(found.group(1)) // 1024 if found else 0


def has_systemd() -> bool:
    """Return whether systemd is the host's service manager (sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")


def user_name(number: int) -> str:
    """Return the name of a user, or the number without a name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    """Return the name of a group, or the number without a name."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def account(user: str, group: str) -> dict[str, Any]:
    """Return whether the group exists, and the user's entry, which is empty if the user does not exist."""
    try:
        entry = pwd.getpwnam(user)
        own = grp.getgrgid(entry.pw_gid).gr_name
        found = {"group": own, "comment": entry.pw_gecos, "home": entry.pw_dir, "shell": entry.pw_shell}
    except KeyError:
        found = {}
    try:
        grp.getgrnam(group)
        return {"user": found, "group_exists": True}
    except KeyError:
        return {"user": found, "group_exists": False}


def mounts(mountinfo: str) -> list[Mount]:
    """Return the mounts in a text such as /proc/self/mountinfo (proc(5)), in order."""
    found = []
    for line in mountinfo.splitlines():
        fields = line.split()
        end = fields.index("-")
        options = dict.fromkeys((*fields[5].split(","), *fields[end + 3].split(",")))
        target, source = (_unescaped(text) for text in (fields[4], fields[end + 2]))
        found.append(Mount(target, fields[end + 1], source, tuple(options), fields[2]))
    return found


def find_mount(path: str, every: Sequence[Mount]) -> Mount | None:
    """Return the mount that contains a path: the longest mount point above it, or the last one if several are stacked
    there."""
    inside = posixpath.normpath(path) + "/"
    above = [one for one in every if inside.startswith(one.target.rstrip("/") + "/")]
    return max(reversed(above), key=lambda one: len(one.target.rstrip("/")), default=None)


def filesystems(paths: Sequence[str], proc: Path = _PROC) -> list[dict[str, Any]]:
    """Return the file systems of these paths, which do not have to exist yet."""
    every = mounts((proc / "self" / "mountinfo").read_text())
    found = {mount.target: mount for mount in (find_mount(path, every) for path in paths) if mount}
    return [
        {"mount": target, "fstype": mount.fstype, "rotating_disks": rotating_disks(mount), **sizes(target)}
        for target, mount in sorted(found.items())
    ]


def disks_under(mount: Mount, sysfs: Path = _SYS) -> list[str]:
    """Return the names of the physical disks below a mount, through partitions, RAID, LVM and encryption."""
    number = mount.device
    if mount.source.startswith("/dev/"):
        try:
            device = os.stat(mount.source).st_rdev
            number = f"{os.major(device)}:{os.minor(device)}"
        except OSError:
            pass
    node = sysfs / "dev" / "block" / number
    return sorted(set(_disks(node.resolve()))) if node.exists() else []


def is_ssd(disk: str, sysfs: Path = _SYS) -> bool:
    """Return whether a disk has no moving heads."""
    return _text(sysfs / "block" / disk / "queue" / "rotational") == "0"


def rotating_disks(mount: Mount, sysfs: Path = _SYS) -> list[str]:
    """Return the names of the rotating disks below a mount. Virtual disks are excluded, because the kernel always
    reports them as rotating."""
    return [disk for disk in disks_under(mount, sysfs) if not is_ssd(disk, sysfs) and not disk.startswith(_VIRTUAL)]


def _disks(node: Path) -> list[str]:
    if (node / "partition").exists():
        return _disks(node.parent)
    below = sorted((node / "slaves").iterdir()) if (node / "slaves").is_dir() else []
    if below:
        return [disk for slave in below for disk in _disks(slave.resolve())]
    return [] if re.match(r"(loop|ram|zram|sr|dm-|md)\d", node.name) else [node.name]


def sizes(target: str) -> dict[str, int | None]:
    """Return the size of a file system and its free space for users other than root, in bytes."""
    try:
        found = os.statvfs(target)
    except OSError:
        return {"size_total": 0, "size_available": None}
    total = found.f_blocks * found.f_frsize
    # Pseudo file systems, as below /proc, have no blocks.
    return {"size_total": total, "size_available": found.f_bavail * found.f_frsize if total else None}


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
