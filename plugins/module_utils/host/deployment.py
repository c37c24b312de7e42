# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a host on which a deployment is based."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..server_config.listeners import monitor_url
from . import tunings
from .certificate import read_certificate
from .install import binary_path, is_installed, source_digest
from .loaded import config_flags, file_flags, read_loaded, store_path
from .observation import (
    HostCommands,
    ObservedServer,
    newest,
    read_drop_ins,
    read_record,
    read_text,
    read_varz,
    version_change,
)
from .observed_files import ObservedFiles, observe_files, text_digest
from .process import executable_version, read_instance
from .store import store_owner
from .system import account, filesystems, has_systemd, memory_mb, selinux_mode
from .trial import reported_digest, run_trial, trial_environment


def read_deployment(params: Mapping[str, Any], server: ObservedServer, commands: HostCommands) -> dict[str, Any]:
    """Return the values of the subset `deployment`, as documented by nats_server_host_info, without `process` and
    `maintenance`. Raises ProcessError, OSError and ValueError."""
    process = server.process
    record = read_record(params["record"])
    loaded = {} if record or not process["running"] else _proven(process, commands)
    known = record or loaded
    url = monitor_url(known.get("config") or params["monitoring"])
    stopped_version = "" if process["running"] else executable_version(params["binary"] or "")
    store = store_owner(params["store_dir"]).as_dict() if params["store_dir"] else None
    files = params["certificate_files"]
    return {
        "monitor_url": url,
        "varz": read_varz(url) if process["running"] else {},
        "record": record,
        "loaded": loaded,
        # The file may be newer than the configuration that the process loaded, and reading it takes time.
        "feature_flags": config_flags(known["config"]) if "config" in known else file_flags(params["config"]),
        "secrets": read_text(params["secrets"]),
        "tls_changed": newest(params["tls_files"]),
        "certificate": read_certificate(files, params["user"]) if files else None,
        "installed": is_installed(params["install_dir"], params["version"]),
        "stopped_version": stopped_version,
        "version_change": {
            "name": params["server_name"],
            "jetstream": params["jetstream"],
            **version_change(process, stopped_version, params["version"], store or {}),
        },
        "installed_from": source_digest(params["install_dir"], params["version"]),
        "smoke_test_due": bool(params["smoke_test"]) and os.path.exists(params["smoke_test"]),
        "service_manager": "systemd" if has_systemd() else "",
        "unit_enabled": server.properties.get("UnitFileState") == "enabled",
        "drop_ins": read_drop_ins(server.properties),
        "daemon_reload_needed": server.properties.get("NeedDaemonReload") == "yes",
        "architecture": os.uname().machine,
        "memory_mb": memory_mb(),
        **account(params["user"], params["group"]),
        "filesystems": filesystems(params["paths"]),
        "store": store,
        "loaded_store": _other_store(known.get("config") or {}, params["store_dir"]),
        "selinux": _read_selinux(params["install_dir"], params["version"], commands),
        "managed": _read_managed(params, process, commands),
        "firewall": bool(params["firewall"]) and os.path.exists(params["firewall"]),
        "tunings": tunings.read(params["tunings"], params["tuned_path"], params["sysctls"], commands.run),
    }


def _proven(process: Mapping[str, Any], commands: HostCommands) -> dict[str, Any]:
    """Return the loaded configuration as a record; empty if the files do not prove it."""
    server = read_instance(process["instance"])
    if not server:
        return {}
    found = read_loaded(server, process["version"], commands.run)
    if not found.proof:
        return {}
    return {"instance": process["instance"], "config_changed": process["config_changed"], "config": found.config}


def _other_store(config: dict[str, Any], store_dir: str | None) -> dict[str, Any] | None:
    """Return the content of the store directory of a loaded configuration, None if that directory is `store_dir`.
    Raises OSError."""
    path = store_path(config)
    if not path or (store_dir and os.path.realpath(path) == os.path.realpath(store_dir)):
        return None
    return {"path": path, **store_owner(path).as_dict()}


def _read_selinux(install_dir: str, version: str, commands: HostCommands) -> dict[str, str]:
    """Return the mode of SELinux, and the type that its policy gives to the executable, which need not exist."""
    found = {"mode": selinux_mode(), "binary_type": "", "install_dir": install_dir}
    if found["mode"]:
        context = commands.default_context(str(binary_path(install_dir, version)))
        found["binary_type"] = context[2] if context and len(context) > 2 else ""
    return found


def _read_managed(
    params: Mapping[str, Any], process: Mapping[str, Any], commands: HostCommands
) -> ObservedFiles | None:
    """Return the state of the managed files. Raises ValueError if the environment is invalid, OSError."""
    managed = params["managed"]
    if not managed:
        return None
    trial = None
    if process["running"]:
        desired = binary_path(params["install_dir"], params["version"])
        binary = str(desired) if managed["take_over"] else f"/proc/{process['pid']}/exe"
        environment = trial_environment(managed["environment"], "managed.environment")
        try:
            accepted, output = run_trial(commands.run, binary, params["config"], environment)
        except OSError:
            accepted, output = False, ""
        if accepted:
            trial = {
                "binary": binary,
                "config": params["config"],
                "environment_sha256": text_digest(managed["environment"]),
                "digest": reported_digest(output),
            }
    return observe_files(managed["paths"], trial)
