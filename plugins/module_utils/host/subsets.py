# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subsets of nats_server_host_info with their options. Pure.

Ansible's own rules for options, such as `required_if`, compare an option with one value, so they cannot express which
options an entry of a list requires."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Subset:
    """The options of a subset. `key`: a key that its result always has. `has_secrets`: whether its result may contain
    secrets, so Ansible must not print it."""

    key: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    has_secrets: bool = False


SUBSETS: Mapping[str, Subset] = {
    "process": Subset(
        "process",
        required=("config",),
        optional=("unit", "files", "maintenance", "includes", "ports", "timeout", "members", "server_name"),
    ),
    "deployment": Subset(
        "process",
        required=("config", "secrets", "record", "install_dir", "version", "user", "group"),
        optional=(
            "unit",
            "files",
            "maintenance",
            "server_name",
            "tls_files",
            "certificate_files",
            "monitoring",
            "binary",
            "jetstream",
            "src",
            "paths",
            "store_dir",
            "tunings",
            "tuned_path",
            "sysctls",
            "firewall",
            "smoke_test",
            "managed",
        ),
        has_secrets=True,
    ),
    "adoption": Subset("adoption", optional=("config",), has_secrets=True),
    "rescue": Subset("rescue", required=("config", "store_dir"), optional=("unit", "maintenance", "copy")),
    "diagnosis": Subset(
        "diagnosis",
        required=("config", "log_since"),
        optional=("unit", "store_dir", "log_file", "output_file", "log_utc"),
    ),
    "log": Subset("log", optional=("unit", "log_file", "output_file")),
    "unreported": Subset("unreported", optional=("config",)),
    "backup_files": Subset("backup_files", required=("config",), optional=("prefix",)),
}

#: The subset that is read by default: the fastest one, without secrets.
DEFAULT = "process"


def requested_subsets(value: Any) -> list[str]:
    """Return the subsets in the option `gather_subset`, which Ansible may not have converted to a list yet."""
    if value is None:
        return [DEFAULT]
    entries = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [str(entry).strip() for entry in entries]


def given_options(params: Mapping[str, Any], spec: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the options that differ from their defaults. `spec`: the argument spec of the module."""
    return [name for name, option in spec.items() if params.get(name) != option.get("default")]


def option_problems(requested: Collection[str], given: Collection[str]) -> list[str]:
    """Return the missing and the superfluous options as text for operators. `given`: the options that are set, without
    `gather_subset`."""
    if not requested:
        return [f"gather_subset is empty: list at least one of {', '.join(SUBSETS)}"]
    subsets = [name for name in SUBSETS if name in requested]
    problems = [
        f"{name} in gather_subset requires {option}: set {option}, or remove {name} from gather_subset"
        for name in subsets
        for option in SUBSETS[name].required
        if option not in given
    ]
    used = {option for name in subsets for option in (*SUBSETS[name].required, *SUBSETS[name].optional)}
    for option in given:
        users = [name for name, one in SUBSETS.items() if option in (*one.required, *one.optional)]
        if option not in used:
            problems.append(
                f"{option} has no effect without {' or '.join(users)} in gather_subset: add it, or remove {option}"
            )
    return problems
