# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of an existing systemd unit that the role replaces with its own unit. Pure.

The role determines how the server is started and stopped, its user and its permissions. Limits, resource shares, logs
and dependencies belong to the host, so they are carried over unchanged. All other options are reported, because they
would be lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

#: Options that the role's unit sets (roles/nats_server/templates/nats-server.service.j2), or that its service type
#: ignores.
DECIDED = frozenset(
    {
        "Description", "Documentation", "WantedBy", "Type", "User", "Group", "DynamicUser", "EnvironmentFile", "Environment",
        "ExecStart", "ExecReload", "ExecStop", "KillSignal", "KillMode", "FinalKillSignal", "SendSIGKILL", "SendSIGHUP",
        "TimeoutSec", "TimeoutStartSec", "TimeoutStopSec", "Restart", "RestartSec", "SuccessExitStatus", "PIDFile",
        "GuessMainPID", "NotifyAccess", "RemainAfterExit", "WorkingDirectory", "UMask", "ProtectSystem", "ReadWritePaths",
        "ReadWriteDirectories", "RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve", "StateDirectory",
        "StateDirectoryMode", "LogsDirectory", "LogsDirectoryMode", "ConfigurationDirectory", "PermissionsStartOnly",
        "InaccessiblePaths", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProcSubset", "ProtectProc", "RemoveIPC",
        "AmbientCapabilities", "CapabilityBoundingSet", "PrivateUsers", "NoNewPrivileges", "LockPersonality",
        "MemoryDenyWriteExecute", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs",
        "ProtectKernelModules", "ProtectKernelTunables", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime",
        "RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter", "SystemCallErrorNumber",
    }
)  # fmt: skip
#: Lists in the section Unit that the role's unit extends, with the values that it already contains or that add nothing.
_ADDED = {
    "After": {"network.target", "network-online.target", "time-sync.target"},
    "Wants": {"network.target", "network-online.target"},
    "RequiresMountsFor": set[str](),
}
_CARRIED = re.compile(
    # Section Unit
    r"Requires|Requisite|BindsTo|PartOf|Upholds|Before|Conflicts|OnFailure|OnSuccess|WantsMountsFor"
    r"|(StartLimit|Condition|Assert)[A-Z]\w*"
    # Resources
    r"|Limit[A-Z]+|(Startup)?(CPU|IO|Memory|Allowed|Default)[A-Z]\w*|(Tasks|NUMA|OOM|ManagedOOM)[A-Z]\w*|Nice|Slice"
    r"|TimerSlackNSec|IPAddress(Allow|Deny)|IPAccounting|SupplementaryGroups"
    # Logs
    r"|StandardOutput|StandardError|Syslog\w+|Log(Level|RateLimit|Namespace|ExtraFields)\w*"
)
#: The default of nats_server_service_limit_nofile.
FILES = 800000

Values = Union[str, list[str]]


@dataclass(frozen=True)
class Carried:
    """The options to carry over. `overrides`: by section, for nats_server_service_overrides. `files`: for
    nats_server_service_limit_nofile, None for its default. `lost`: options that the role's unit does not have."""

    overrides: dict[str, dict[str, Values]] = field(default_factory=dict)
    files: Optional[int] = None
    lost: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Return the options in `overrides`."""
        return [name for section in self.overrides.values() for name in section]


def carry_over(settings: Sequence[Mapping[str, str]]) -> Carried:
    """Return the options of a unit's own file that are carried over, and those that are lost. `settings`: the
    `section`, `option` and `value` of each option, in the order of the file."""
    overrides: dict[str, dict[str, Values]] = {}
    files: Optional[int] = None
    lost = []
    for section, option, values in _effective(settings):
        if option in _ADDED:
            added = [value for value in " ".join(values).split() if value not in _ADDED[option]]
            if added:
                overrides.setdefault(section, {})[option] = " ".join(added)
        elif option == "LimitNOFILE" and values[-1].isdigit():
            files = int(values[-1]) if int(values[-1]) > FILES else None
        elif option not in DECIDED and _CARRIED.fullmatch(option):
            overrides.setdefault(section, {})[option] = values[0] if len(values) == 1 else values
        elif option not in DECIDED:
            lost.append(option)
    return Carried(overrides, files, tuple(lost))


def _effective(settings: Sequence[Mapping[str, str]]) -> list[tuple[str, str, list[str]]]:
    """Return the options that have a value; an empty value resets the values before it."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in settings:
        key = (one["section"], one["option"])
        found[key] = [*found.get(key, []), one["value"]] if one["value"] else []
    return [(section, option, values) for (section, option), values in found.items() if values]


def may_be_secret(name: str) -> bool:
    """Return whether a variable of the environment may contain a secret: all variables except those of the Go runtime."""
    return not re.fullmatch(r"GO[A-Z]+", name)


def notes(unit: Mapping[str, Any], carried: Carried) -> list[str]:
    """Return the tasks that the operator must complete before the role takes over the unit."""
    found = []
    if carried.lost:
        found.append(
            f"{unit['fragment']} sets {', '.join(carried.lost)}, which the role's unit does not have: before taking "
            "the server over, add the needed options to nats_server_service_overrides"
        )
    if not unit["enabled"]:
        found.append(
            f"{unit['name']} is not enabled, so a boot does not start it: set nats_server_service_enabled if it should"
        )
    return found
