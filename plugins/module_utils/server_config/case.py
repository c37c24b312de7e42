# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired configuration of a server and the facts about its host, as the rules of validation read them. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..nats.account_names import SYSTEM_ACCOUNT
from ..problem import ConfigProblem
from ..units import duration_seconds, size_bytes
from ..versions import parse_version
from .syntax import Note, examine
from .topology import boolean

LISTENERS = ("cluster", "gateway", "leafnodes", "websocket", "mqtt")


@dataclass(frozen=True)
class Case:
    """A normalised configuration and its context; see the filter nats_config_problems for the fields."""

    config: dict[str, Any]
    version: str
    members: list[dict[str, Any]]
    filesystems: list[dict[str, Any]]
    memtotal: int
    running: dict[str, Any]
    store: dict[str, Any]
    loaded_store: dict[str, Any]
    live_members: list[str]
    take_over: bool
    process_runs: bool
    config_file: str
    cluster_size: int | None
    require_mount: bool
    service_backend: str
    drop_ins: list[dict[str, Any]]
    has_gateway: bool
    supercluster: list[dict[str, Any]]
    hub: list[dict[str, Any]]
    loaded: dict[str, Any]
    own_users: dict[str, Any]
    extra_files: list[str]
    role_files: list[str]
    selinux: dict[str, Any]

    def block(self, name: str) -> dict[str, Any] | None:
        """Return a top-level block, or None if it is absent or not a mapping."""
        return get_block(self.config, name)

    @property
    def jetstream(self) -> dict[str, Any] | None:
        """Return the jetstream block (empty for a bare `jetstream: true`), or None if JetStream is off."""
        return get_jetstream(self.config)

    @property
    def cluster_name(self) -> str | None:
        """Return the name of the cluster."""
        return get_cluster_name(self.config)

    @property
    def accounts(self) -> dict[str, Any]:
        """Return the accounts with their blocks."""
        return {name: block for name, block in (self.block("accounts") or {}).items() if isinstance(block, dict)}

    @property
    def system_account(self) -> str:
        """Return the name of the system account."""
        return str(self.config.get("system_account") or SYSTEM_ACCOUNT)

    @property
    def jetstream_members(self) -> list[dict[str, Any]]:
        """Return the members that run JetStream."""
        return [member for member in self.members if member.get("jetstream")]

    @property
    def meta_members(self) -> list[dict[str, Any]]:
        """Return the servers of the meta group: all servers of all clusters that run JetStream."""
        return [member for member in self.supercluster if member.get("jetstream")] or self.jetstream_members


def get_block(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a top-level block of a normalised configuration, or None if it is absent or not a mapping."""
    value = config.get(name)
    return value if isinstance(value, dict) else None


def get_jetstream(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the jetstream block (empty for a bare `jetstream: true`), or None if JetStream is off."""
    block = get_block(config, "jetstream")
    if block is not None:
        return None if block.get("enabled") is False or block.get("disabled") is True else block
    value = config.get("jetstream")
    return {} if value is True or str(value).lower() in ("enabled", "enable") else None


def get_cluster_name(config: Mapping[str, Any]) -> str | None:
    """Return the name of the cluster or, if it has none, that of the gateway, as nats-server does."""
    return (get_block(config, "cluster") or {}).get("name") or (get_block(config, "gateway") or {}).get("name")


def make_case(config: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[Case, list[Note]]:
    """Return the case for the rules, and the notes from converting the values to their types."""
    normal, notes = examine(config)
    size = context.get("cluster_size")
    case = Case(
        config=normal,
        version=valid_version(context.get("version")),
        members=list(context.get("members") or []),
        filesystems=list(context.get("filesystems") or []),
        memtotal=int(context.get("memtotal") or 0),
        running=dict(context.get("running") or {}),
        store=dict(context.get("store") or {}),
        loaded_store=dict(context.get("loaded_store") or {}),
        live_members=[str(name) for name in context.get("live_members") or []],
        take_over=boolean(context.get("take_over", True)),
        process_runs=boolean(context.get("process_runs", True)),
        config_file=str(context.get("config_file") or "its configuration file"),
        cluster_size=None if size in (None, "") else int(str(size)),
        require_mount=boolean(context.get("require_mount", False)),
        service_backend=str(context.get("service_backend") or "auto"),
        drop_ins=list(context.get("drop_ins") or []),
        has_gateway=bool(context.get("gateway")),
        supercluster=list(context.get("supercluster") or []),
        hub=list(context.get("hub") or []),
        loaded=examine(context.get("loaded") or {})[0],
        own_users=dict(context.get("own_users") or {}),
        extra_files=list(context.get("extra_files") or []),
        selinux=dict(context.get("selinux") or {}),
        role_files=list(context.get("role_files") or []),
    )
    return case, notes


def error(option: str, message: str) -> ConfigProblem:
    """Return a problem that must be solved before a deployment."""
    return {"severity": "error", "option": option, "message": message}


def warning(option: str, message: str) -> ConfigProblem:
    """Return a problem that does not prevent a deployment but deserves attention."""
    return {"severity": "warning", "option": option, "message": message}


def valid_version(value: Any) -> str:
    """Return the version if it is valid (not `latest` or the like), otherwise None."""
    try:
        parse_version(str(value or ""))
    except ValueError:
        return ""
    return str(value)


def seconds_or(value: Any, default: float) -> float:
    return default if value is None else duration_seconds(value)


def bytes_or(value: Any, default: int) -> int:
    return default if value is None else size_bytes(value)


def blocks(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def listed_users(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    places = [("authorization", case.block("authorization") or {})]
    places += [(f"accounts.{name}", block) for name, block in case.accounts.items()]
    for where, block in places:
        for index, user in enumerate(blocks(block.get("users"))):
            yield f"{where}.users[{user.get('user') or user.get('nkey') or index}]", user


def other_accounts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the accounts of a normalised configuration, except the system account."""
    system = str(config.get("system_account") or SYSTEM_ACCOUNT)
    return {name: block for name, block in (get_block(config, "accounts") or {}).items() if name != system}


def has_users(config: Mapping[str, Any]) -> bool:
    """Return whether a normalised configuration has users outside the system account. Only those lock out clients that
    log in without a user."""
    authorization = get_block(config, "authorization") or {}
    if any(authorization.get(key) for key in ("users", "user", "token", "auth_callout")):
        return True
    return any(isinstance(block, dict) and block.get("users") for block in other_accounts(config).values())
