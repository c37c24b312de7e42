# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of a host that a diagnosis needs: the server's recent warnings and errors, the digest of its configuration
file, and the usage of its disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .loaded import file_digest
from .observation import RunCommand
from .process import read_instance
from .system import find_mount, mounts


def read_fault_signs(
    instance: str, store_dir: str | None, log_lines: list[str] | None, run_command: RunCommand
) -> dict[str, Any]:
    """Return the value of `diagnosis`, as documented by nats_server_host_info. `instance`: the process, empty if none
    is running. `log_lines`: its recent warnings and errors."""
    server = read_instance(instance) if instance else None
    return {
        "digest": file_digest(server, run_command) if server else "",
        "log_lines": log_lines,
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
