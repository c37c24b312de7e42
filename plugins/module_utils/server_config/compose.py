# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Composes the configuration of a nats-server from the public variables of the role nats_server. Pure: no I/O.

The configuration has nats-server's own keys. A null, or the empty string into which older versions of Ansible convert
it, means that the key is absent; `nats_conf` drops it. The variables `config` and `config_host` are not applied: they
take precedence over the result."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..nats.account_names import SYSTEM_ACCOUNT
from .account_admins import with_operators
from .metrics_user import with_metrics_user
from .topology import boolean, gateways, leaf_remotes, routes

Config = dict[str, Any]

#: Options that become a key of the same name.
PLAIN = (
    "client_advertise", "logtime_utc", "log_file", "syslog", "remote_syslog", "max_connections", "max_payload",
    "lame_duck_duration", "lame_duck_grace_period",
)  # fmt: skip
JETSTREAM = (
    "store_dir", "domain", "max_memory_store", "max_file_store", "sync_interval", "unique_tag", "encryption_key",
    "prev_encryption_key", "limits", "max_outstanding_catchup",
)  # fmt: skip
#: The keys of the block, in their order in the file; `extension_hint` has no variable.
_JETSTREAM_BLOCK = (*JETSTREAM[:7], "extension_hint", *JETSTREAM[7:])
CLUSTER = ("advertise", "authorization", "tls", "routes", "pool_size", "accounts")

#: The public variables from which the configuration is composed, without their prefix.
OPTIONS = (
    "name", "tags", "zone", "zone_tag_prefix", "arbiter", "take_over", "listen", "host", "port", "http", "https", "tls",
    "pid_file", *PLAIN,
    "tls_source", "tls_cert_file", "tls_key_file", "tls_ca_file", "tls_for_clients", "tls_for_cluster",
    "tls_for_monitoring", "tls_verify_clients",
    "jetstream", *(f"jetstream_{name}" for name in JETSTREAM),
    "clustered", "cluster_name", "cluster_listen", "cluster_host", "cluster_port", "cluster_route_style",
    "cluster_seeds", *(f"cluster_{name}" for name in CLUSTER),
    "supercluster_groups", "gateway", "gateway_port", "gateway_authorization",
    "leafnodes", "leafnode_hub_group", "leafnode_remotes",
    "operator", "accounts", "system_account", "system_user", "system_password", "system_previous_user",
    "system_previous_password", "metrics_user", "metrics_password", "account_operator_password", "account_operator_prefix",
    "account_operator_previous_password", "account_operator_previous_prefix",
)  # fmt: skip

#: Feature flags that the role turns off for servers in a cluster with older versions.
KEPT_OFF = ("js_raft_delete_range",)
#: The stores of an arbiter, which carries no streams.
_ARBITER_STORES = {"max_memory_store": "256MB", "max_file_store": "1GB"}
#: The ports that servers use without a configuration; next to a listen address, they are omitted.
_CLIENT_PORT, _CLUSTER_PORT = 4222, 6222


@dataclass(frozen=True)
class HostInputs:
    """Inputs besides the variables. `leaving`: whether the server is about to leave its cluster. `pid_file`: path of the
    role's own unit. `loaded_flags`: the feature flags that the server has loaded; `common_flags`: the flags that most
    servers of the cluster have on; `changes_version`: whether this run changes the server's version."""

    leaving: bool = False
    pid_file: str | None = None
    loaded_flags: Mapping[str, Any] = field(default_factory=dict)
    common_flags: Collection[str] = ()
    changes_version: bool = False

    @property
    def flags_off(self) -> dict[str, bool]:
        """Return the feature flags that stay off.

        A flag that the role turned off stays off until the next change of the version, because no reload changes it. A
        server that differs from most of the others follows them."""
        kept = () if self.changes_version else KEPT_OFF
        return {name: False for name in kept if self.loaded_flags.get(name) is False and name not in self.common_flags}


def compose(options: Mapping[str, Any], topology: Mapping[str, Any], host: HostInputs) -> Config:
    """Return the configuration. `options`: the values of OPTIONS by name; a missing one is absent. `topology`: as
    returned by `topology.topology`. Raises ValueError for an invalid seed or remote."""
    return _Composer(
        {name: value for name, value in options.items() if value not in (None, "")}, topology, host
    ).config()


class _Composer:
    """One server's configuration, block by block."""

    def __init__(self, options: Mapping[str, Any], topology: Mapping[str, Any], host: HostInputs) -> None:
        self._get = options.get
        self._topology = topology
        self._host = host
        has_tls = self._get("tls_source", "none") != "none"
        files = {name: self._get(f"tls_{name}") for name in ("cert_file", "key_file", "ca_file")}
        verify = {"verify": self._is("tls_verify_clients")}
        self._client_tls = {**files, **verify} if has_tls and self._is("tls_for_clients") else None
        #: Applies to routes, gateways and leafnodes that have no TLS settings of their own.
        self._mutual_tls = {**files, "verify": True} if has_tls and self._is("tls_for_cluster") else None
        self._monitoring_tls = has_tls and self._is("tls_for_monitoring")
        self._remotes = leaf_remotes(
            topology.get("hub") or [],
            (self._get("leafnode_remotes") or []) if self._get("leafnode_hub_group") else [],
            self._mutual_tls,
        )

    def _is(self, name: str) -> bool:
        return boolean(self._get(name, False))

    def config(self) -> Config:
        get = self._get
        https = get("https") or (get("http") if self._monitoring_tls else None)
        return {
            "server_name": get("name"),
            "server_tags": self._tags() or None,
            "listen": get("listen"),
            "host": get("host"),
            "port": self._port("", _CLIENT_PORT),
            "tls": _with_own(self._client_tls, get("tls")),
            "http": None if https else get("http"),
            "https": https,
            "pid_file": self._host.pid_file if self._is("take_over") else get("pid_file"),
            **{name: get(name) for name in PLAIN},
            "jetstream": self._jetstream() if self._is("jetstream") else None,
            "cluster": self._cluster() if self._is("clustered") else None,
            "gateway": self._gateway(),
            "leafnodes": self._leafnodes(),
            "system_account": get("system_account"),
            "accounts": self._accounts() or None,
            "operator": get("operator"),
            "feature_flags": self._host.flags_off or None,
        }

    def _port(self, prefix: str, default: int) -> Any:
        """Return a port. Next to a listen address, the default would contradict it; another port stays, and preflight
        reports the conflict."""
        port = self._get(f"{prefix}port")
        return None if self._get(f"{prefix}listen") is not None and str(port) == str(default) else port

    def _tags(self) -> list[str]:
        tags = list(self._get("tags") or [])
        node = f"node:{self._get('name')}"
        zone = self._get("zone")
        return [
            *tags,
            *([f"{self._get('zone_tag_prefix', '')}{zone}"] if zone else []),
            *([node] if self._is("take_over") and node not in tags else []),
            *(["!jetstream"] if self._is("arbiter") or self._host.leaving else []),
        ]

    def _jetstream(self) -> Config:
        block = {name: self._get(f"jetstream_{name}") for name in _JETSTREAM_BLOCK}
        if self._is("arbiter"):
            block.update({name: size for name, size in _ARBITER_STORES.items() if block[name] is None})
        # A cluster that binds the system account to its hub would wait for the hub as an observer before it elects a
        # meta leader. With a separate domain, which preflight requires, it never joins the hub's meta group.
        system = (SYSTEM_ACCOUNT, self._get("system_account"))
        if any(remote.get("account", "") in system for remote in self._remotes):
            block["extension_hint"] = "no_extend"
        return block

    def _cluster(self) -> Config:
        block = {
            "name": self._get("cluster_name"),
            "listen": self._get("cluster_listen"),
            "host": self._get("cluster_host"),
            "port": self._port("cluster_", _CLUSTER_PORT),
            **{name: self._get(f"cluster_{name}") for name in CLUSTER},
        }
        block["tls"] = _with_own(self._mutual_tls, block["tls"])
        if block["routes"] is None:
            block["routes"] = self._routes()
        return block

    def _routes(self) -> list[str]:
        """Return the routes of the inventory. The argument specification refuses an unknown style."""
        style = str(self._get("cluster_route_style", "all"))
        if style not in ("all", "seeds"):
            return []
        seeds = list(self._get("cluster_seeds") or ())
        return routes(self._topology.get("servers") or [], style, seeds, self._get("cluster_authorization"))

    def _gateway(self) -> Config | None:
        """Return the gateway. It has the name of the cluster, because nats-server rejects another one."""
        own = self._get("gateway")
        if not self._get("supercluster_groups") and not isinstance(own, Mapping):
            return None
        block = {"name": self._get("cluster_name")}
        if self._get("supercluster_groups"):
            block.update(
                {
                    "port": self._get("gateway_port"),
                    "authorization": self._get("gateway_authorization"),
                    "tls": self._mutual_tls,
                    "gateways": gateways(self._topology.get("clusters") or [], self._get("gateway_authorization")),
                }
            )
        return merged(block, own or {})

    def _leafnodes(self) -> Config | None:
        own = self._get("leafnodes")
        if not isinstance(own, Mapping) and not self._remotes:
            return None
        own = own or {}
        block: Config = {}
        if self._mutual_tls and ("port" in own or "listen" in own):
            block["tls"] = self._mutual_tls
        if self._remotes:
            block["remotes"] = self._remotes
        return {**block, **own}

    def _accounts(self) -> Mapping[str, Any]:
        """Return the accounts. The system account gets the users of the modules next to its own users, the user of
        metrics an account, and each account with JetStream an operator. Users that are being replaced are kept. In
        operator mode, JWTs define the accounts."""
        accounts: Mapping[str, Any] = self._get("accounts") or {}
        if self._get("operator") is not None:
            return accounts
        system = str(self._get("system_account", SYSTEM_ACCOUNT))
        accounts = self._with_system_users(accounts, system)
        if self._get("metrics_password"):
            metrics = str(self._get("metrics_user")), str(self._get("metrics_password"))
            accounts = with_metrics_user(accounts, system, *metrics)
        for part in ("", "previous_"):
            accounts = with_operators(
                accounts,
                self._get(f"account_operator_{part}password"),
                self._get(f"account_operator_{part}prefix", ""),
                without=[system],
            )
        return accounts

    def _with_system_users(self, accounts: Mapping[str, Any], system: str) -> Mapping[str, Any]:
        block = accounts.get(system) or {}
        configured = block.get("users") or []
        names = {user.get("user") or user.get("username") for user in configured if isinstance(user, Mapping)}
        added = [user for user in self._system_users() if user["user"] not in names]
        if not added:
            return accounts
        block = {**block, "users": [*configured, *added]}
        others = {name: account for name, account in accounts.items() if name != system}
        return {**accounts, system: block} if configured else {system: block, **others}

    def _system_users(self) -> list[dict[str, Any]]:
        users = []
        if self._get("system_password"):
            users.append({"user": self._get("system_user"), "password": self._get("system_password")})
            if self._get("system_previous_user"):
                previous = self._get("system_previous_password")
                users.append({"user": self._get("system_previous_user"), "password": previous})
        return users


def _with_own(derived: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> Config | None:
    """Return the keys that the role derives, with those of a configured block in preference to them."""
    return None if derived is None and own is None else {**(derived or {}), **(own or {})}


def merged(made: Mapping[str, Any], patch: Mapping[str, Any]) -> Config:
    """Return the result of Ansible's recursive `combine`."""
    found = dict(made)
    for name, value in patch.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found
