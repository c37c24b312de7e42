# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action that makes a host's process run the desired configuration: none, start, reload or restart.

Pure. The action is determined by comparing the observed state of the host (process, /varz, file times, all by the
host's own clock) with the desired state, so if a run was interrupted between writing a file and applying it, the next
run completes it."""

from __future__ import annotations

import time
from typing import Any

from ..maintenance import parse_mark
from ..times import parse_time
from .reload_rules import config_change, gateway_tls_first


def epoch(timestamp: str) -> float:
    """Return the seconds since 1970 for a time in nats-server's notation. Raises ValueError."""
    return parse_time(timestamp.strip()).timestamp()


def required_action(
    running: dict[str, Any],
    varz: dict[str, Any],
    recorded: dict[str, Any],
    desired: dict[str, Any],
) -> dict[str, Any]:
    """Return `{action, reasons, keys}`; the action is one of none, start, reload, restart.

    `running`: facts of the process: running, instance, started (epoch seconds), binary, unit_changed_after_start,
        raft_silent (responds to requests but has no contact to the meta leader), maintenance (the mark of a host in
        maintenance).
    `varz`: the server's own VARZ data, empty if it could not be read.
    `recorded`: running.json: instance of a process and the structured config that it loaded; may be empty.
    `desired`: version, binary, config (structured), digest (of `nats-server -t`, empty before 2.11),
        config_changed_at and tls_changed_at (epoch seconds of the newest file, 0 when unknown),
        config_differs (a rendered file differs from the one on the host).
    """
    if not running.get("running"):
        mark = parse_mark(running["maintenance"]) if running.get("maintenance") else None
        if mark and mark.held:
            return {"action": "none", "reasons": [mark.text(time.time())], "keys": []}
        return {"action": "start", "reasons": ["no nats-server process is running"], "keys": []}

    reasons: list[str] = []
    version = varz.get("version") or running.get("version")
    if version and desired.get("version") and version != desired["version"]:
        reasons.append(f"runs version {version}, expected {desired['version']}")
    elif desired.get("binary") and running.get("binary") and running["binary"] != desired["binary"]:
        reasons.append(f"runs {running['binary']}, desired {desired['binary']}")
    if running.get("unit_changed_after_start"):
        reasons.append("the service definition is newer than the process")
    if running.get("raft_silent"):
        reasons.append("answers requests, but takes no part in Raft: the meta leader receives nothing from it")
    restart = bool(reasons)

    keys: list[str] = []
    reload = False
    if not _loaded(running, varz, recorded, desired):
        if not recorded.get("config"):
            restart = True
            reasons.append(
                "the configuration differs, and the configuration that the process has loaded was not recorded"
            )
        else:
            change = config_change(recorded["config"], desired["config"], str(version or desired.get("version") or ""))
            keys = change["keys"]
            reasons += change["reasons"] or ["the configuration file is newer than the loaded configuration"]
            restart = restart or change["action"] == "restart"
            reload = True
    elif _loaded_at(running, varz) < float(desired.get("tls_changed_at") or 0):
        reasons.append("a certificate, key or .creds file is newer than the loaded one")
        reload = True

    action = "restart" if restart else "reload" if reload else "none"
    return {"action": action, "reasons": reasons, "keys": keys}


def config_to_reload_first(
    running: dict[str, Any], recorded: dict[str, Any], desired: dict[str, Any]
) -> dict[str, Any]:
    """Return the configuration to reload before a restart, so the gateway already has TLS during the restart.

    Empty if no TLS is added, or if the loaded configuration is unknown. Arguments as for `required_action`. Raises
    ConfigError."""
    known = recorded.get("config") and recorded.get("instance") == running.get("instance")
    if not (running.get("running") and known and desired.get("config")):
        return {}
    return gateway_tls_first(recorded["config"], desired["config"])


def serves(running: dict[str, Any], desired: dict[str, Any]) -> bool:
    """Return whether the process runs the desired version and listens on all of its ports.

    `running`: version and ports of the process; `desired`: version and ports; without them, any is right."""
    missing = set(map(int, desired.get("ports") or ())) - set(map(int, running.get("ports") or ()))
    return not missing and desired.get("version", running.get("version")) == running.get("version")


def _loaded_at(running: dict[str, Any], varz: dict[str, Any]) -> float:
    """Return when the process last read its files: VARZ.config_load_time, or else its start (monitor.go, `ConfigLoadTime`)."""
    if varz.get("config_load_time"):
        return epoch(varz["config_load_time"])
    return float(running.get("started") or 0)


def _loaded(running: dict[str, Any], varz: dict[str, Any], recorded: dict[str, Any], desired: dict[str, Any]) -> bool:
    """Return whether the process runs the desired configuration."""
    if varz.get("config_digest") and desired.get("digest"):
        return bool(varz["config_digest"] == desired["digest"])
    if desired.get("config_differs"):
        return False
    if varz.get("config_load_time"):
        return _loaded_at(running, varz) >= float(desired.get("config_changed_at") or 0)
    same_process = recorded.get("instance") == running.get("instance")
    return bool(same_process and recorded.get("config") == desired.get("config"))
