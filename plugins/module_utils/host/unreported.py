# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Properties of a nats-server and its host that checks need but servers do not report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..server_config.passwords import is_hash
from ..server_config.syntax import leaves
from .loaded import LoadedConfig, file_digest, read_loaded
from .observation import RunCommand
from .process import RunningServer, parse_environment, read_servers, running_version
from .system import sizes

_OPEN_FILES = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)


def unreported(config: str, run_command: RunCommand) -> tuple[dict[str, Any] | None, str]:
    """Return C(host) and C(problem) as documented by nats_server_host_info. `config`: selects a server by its
    file; empty if only one server is running."""
    found = read_servers(config)
    outside = [one for one in found if not one.contained]
    problem = _problem(outside, len(found) - len(outside), config)
    return (None if problem else _properties(outside[0], run_command)), problem


def _problem(outside: Sequence[RunningServer], contained: int, config: str) -> str:
    """Return why none of these servers is read, empty for a single server. `contained`: how many run in containers."""
    which = f"running with {config}" if config else "running on this host"
    if not outside and contained:
        return f"the nats-server {which} is in a container, where its files have different paths"
    if not outside:
        return f"no nats-server is {which}"
    if len(outside) > 1:
        files = ", ".join(sorted(one.config or f"pid {one.process.pid}" for one in outside))
        return f"{len(outside)} nats-servers are {which} ({files}): select one with its configuration file"
    return ""


def _properties(server: RunningServer, run_command: RunCommand) -> dict[str, Any]:
    pid = server.process.pid
    loaded = read_loaded(server, running_version(server.process), run_command)
    limit = _OPEN_FILES.search(Path(f"/proc/{pid}/limits").read_text(encoding="utf-8"))
    store = loaded.store_path or loaded.store_reported
    return {
        "server": str(loaded.varz.get("server_name") or loaded.config.get("server_name") or ""),
        "config_digest": (server.config and file_digest(server, run_command)) or None,
        "open_files": int(limit[1]) if limit else None,
        "plaintext_passwords": _plaintext(loaded, parse_environment(pid)) if loaded.config else None,
        "disk_free": sizes(f"/proc/{pid}/root{store}")["size_available"] if store else None,
    }


def _plaintext(loaded: LoadedConfig, environment: Mapping[str, str]) -> int:
    """Return the number of passwords that should be hashed but are not. Passwords that a file takes from the
    environment do not count."""
    elsewhere = {environment.get(name) for name in loaded.environment}
    return sum(
        leaf.key is not None
        and leaf.key.bcrypt
        and isinstance(leaf.value, str)
        and not is_hash(leaf.value)
        and leaf.value not in elsewhere
        for leaf in leaves(loaded.config)
    )
