# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An existing nats-server that the role does not manage: its process, unit, configuration, store and TLS files, read
from the host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..server_config.syntax import leaves, show
from .loaded import LoadedConfig, read_loaded
from .observation import RunCommand, read_drop_ins, read_endpoint, read_settings, unit_properties
from .process import RunningServer, parse_environment, read_servers, running_version
from .system import group_name, has_systemd, user_name

_PROC = Path("/proc")
_UNIT = re.compile(r"/([^/]+)\.service$", re.MULTILINE)
#: Environment variables that systemd sets itself.
_SYSTEMD_VARIABLES = re.compile(
    r"LANG|LANGUAGE|PATH|HOME|USER|LOGNAME|SHELL|PWD|TERM|INVOCATION_ID|JOURNAL_STREAM|MAINPID|NOTIFY_SOCKET|MANAGERPID\w*"
    r"|(LC|SYSTEMD|LISTEN|WATCHDOG|MEMORY_PRESSURE)_\w+|(RUNTIME|STATE|CACHE|LOGS|CONFIGURATION|CREDENTIALS)_DIRECTORY"
)
_VARZ = ("server_name", "server_id", "version", "start", "config_load_time", "config_digest", "connect_urls")


def discover(config: str, run_command: RunCommand) -> dict[str, Any]:
    """Return C(adoption) as documented by nats_server_host_info. `config`: the configuration file that selects a
    server; empty if only one server is running."""
    meant = read_servers(config)
    own = [one for one in meant if not one.contained]
    contained = [one.process.pid for one in meant if one.contained]
    if len(own) != 1:
        return {"found": False, "problem": _none(config, own, contained), "contained": contained}
    server = own[0]
    version = running_version(server.process)
    loaded = read_loaded(server, version, run_command)
    return {
        "found": True,
        "problem": "",
        "contained": contained,
        "process": {
            "pid": server.process.pid,
            "binary": server.process.binary,
            "version": version,
            "started": server.process.started,
            "instance": server.process.instance,
            **_owner(server.process.pid),
        },
        "unit": _unit(server.process.pid, loaded.environment, run_command) if has_systemd() else {},
        "config_path": server.config,
        "loaded": {name: value for name, value in asdict(loaded).items() if name not in ("varz", "config")},
        "config": loaded.config,
        "varz": _varz(loaded),
        "routes": _routes(loaded),
        "store": _store(server, loaded),
        "tls_files": _tls_files(server, loaded.config),
        "binary_link_free": _free("/usr/local/bin/nats-server"),
    }


def _none(config: str, own: Sequence[RunningServer], contained: Sequence[int]) -> str:
    if own:
        running = ", ".join(f"{one.process.pid} with {one.config or 'no file'}" for one in own)
        return (
            f"several nats-servers run here ({running}): select one with nats_cluster_adopt_config, or stop all but one"
        )
    if contained:
        return (
            f"nats-server runs in a container (process {contained[0]}): a container is never adopted in place. Deploy "
            "new servers with new names into the same cluster, and remove the old ones"
        )
    which = f" with {config}" if config else " here"
    return f"no nats-server is running{which}: start it, because the loaded configuration is read from the process"


def _owner(pid: int) -> dict[str, str]:
    status = (_PROC / str(pid) / "status").read_text()
    numbers = dict(re.findall(r"^(Uid|Gid):\s+\d+\s+(\d+)", status, re.MULTILINE))
    return {"user": user_name(int(numbers["Uid"])), "group": group_name(int(numbers["Gid"]))}


def _unit(pid: int, read: Sequence[str], run_command: RunCommand) -> dict[str, Any]:
    """Return the unit of the process; empty if it was started manually. `read`: the environment variables that the
    configuration uses."""
    found = _UNIT.search((_PROC / str(pid) / "cgroup").read_text())
    if not found or found[1].startswith(("user@", "session-")):
        return {}
    name = found[1]
    values = unit_properties(run_command, name)
    return {
        "name": name,
        "fragment": values.get("FragmentPath", ""),
        "drop_ins": read_drop_ins(values),
        "settings": read_settings(values.get("FragmentPath", "")),
        "environment": own_environment(parse_environment(pid), read),
        "enabled": values.get("UnitFileState") == "enabled",
    }


def own_environment(environment: Mapping[str, str], read: Sequence[str]) -> dict[str, str]:
    """Return the variables that a unit adds to the environment of its process, except those `read` by the
    configuration, whose values are in the inventory."""
    return {
        name: value
        for name, value in environment.items()
        if name not in read and not _SYSTEMD_VARIABLES.fullmatch(name)
    }


def _varz(loaded: LoadedConfig) -> dict[str, Any]:
    found = {key: loaded.varz[key] for key in _VARZ if key in loaded.varz}
    return {**found, "store_dir": loaded.store_reported} if loaded.store_reported else found


def _routes(loaded: LoadedConfig) -> list[str] | None:
    """Return the names of the servers at the other ends of the routes; None if the monitoring port does not respond."""
    found = read_endpoint(loaded.monitor_url, "routez")
    if not found:
        return None
    return sorted({str(route["remote_name"]) for route in found.get("routes") or [] if route.get("remote_name")})


def _store(server: RunningServer, loaded: LoadedConfig) -> dict[str, Any]:
    """Return the configured location of the store, and whether the host sees the same directory as the process."""
    seen = loaded.store_path or loaded.store_reported
    return {
        "path": loaded.store_path,
        "reported": loaded.store_reported,
        "same": not seen or _same(f"/proc/{server.process.pid}/root{seen}", seen),
    }


def _same(inside: str, outside: str) -> bool:
    try:
        return os.path.samefile(inside, outside)
    except OSError:
        return False


def _tls_files(server: RunningServer, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the certificates and keys that the configuration names. Relative paths are resolved from the process's
    directory."""
    found = []
    for leaf in leaves(config):
        if leaf.path[-1] in ("cert_file", "key_file", "ca_file") and isinstance(leaf.value, str):
            exists = os.path.exists(os.path.join(server.directory, leaf.value))
            found.append({"option": show(leaf.path), "path": leaf.value, "exists": exists})
    return found


def _free(path: str) -> bool:
    """Return whether the path can become the role's link: it does not exist, or is already a link."""
    return os.path.islink(path) or not os.path.exists(path)
