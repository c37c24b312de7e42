# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports of a server that its host's firewall opens, and the sources that may connect to each port. Pure: names are
not resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from .listeners import bound, is_loopback
from .topology import Topology, members

#: The listeners that `allow` can open to additional sources.
LISTENERS = ("client", "cluster", "gateway", "leafnodes", "websocket", "mqtt", "monitoring")
_HUB_GROUP = "nats_server_leafnode_hub_group"


class Rule(TypedDict):
    """A filtered port. `sources` are the allowed addresses, networks and host names; all others are rejected."""

    listener: str
    port: int
    sources: list[str]


def firewall_rules(
    config: Mapping[str, Any],
    topology: Topology,
    leaving: Sequence[Mapping[str, Any]] = (),
    leaves: Sequence[Mapping[str, Any]] = (),
    allow: Mapping[str, Sequence[str]] | None = None,
    ports: Mapping[Any, Sequence[str]] | None = None,
) -> list[Rule]:
    """Return one rule for each listener that other hosts can reach, and for each of `ports`, by port.

    Routes come from the servers of the cluster, gateways from those of the other clusters, leafnodes from `leaves` (the
    servers that use this one as their hub), and clients also from all servers of the meta group, where timers and
    backups run. Servers that are `leaving` count until they are no longer in the inventory. `allow` adds sources by
    listener; if `websocket` and `mqtt` have no sources, those of `client` apply. Raises ValueError for an unknown
    listener, and for a port that is not a number or already belongs to a listener.
    """
    opened: dict[str, list[str]] = {name: list(sources or ()) for name, sources in (allow or {}).items()}
    if unknown := sorted(set(opened) - set(LISTENERS)):
        raise ValueError(
            f"nats_server_firewall_allow has {', '.join(unknown)}, which is not a listener: "
            f"use {', '.join(LISTENERS)}, or nats_server_firewall_ports for a port of another program"
        )
    own = {server["host"] for server in topology["servers"]}
    derived = {
        "client": _addresses([*topology["supercluster"], *leaving]),
        "cluster": _addresses([*topology["servers"], *leaving]),
        "gateway": _addresses([*(one for one in topology["supercluster"] if one["host"] not in own), *leaving]),
        "leafnodes": _addresses(leaves),
    }
    rules: dict[int, Rule] = {}
    for listener, host, port in bound(dict(config)):
        if not is_loopback(host):
            more = opened.get(listener) or (opened.get("client", []) if listener in ("websocket", "mqtt") else [])
            sources = _unique([*derived.get(listener, []), *more])
            rules[port] = {"listener": listener, "port": port, "sources": sources}
    for name, others in (ports or {}).items():
        port = _port(name)
        if port in rules:
            raise ValueError(
                f"nats_server_firewall_ports lists {port}, the port of the listener {rules[port]['listener']}: "
                "use nats_server_firewall_allow for it"
            )
        rules[port] = {"listener": "other", "port": port, "sources": _unique(others or ())}
    return [rules[port] for port in sorted(rules)]


def related_servers(
    hostvars: Mapping[str, Any], host: str, leaving: Sequence[str], groups: Sequence[str], own: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the servers that are leaving, and those that connect to this `host` as leafnodes: their
    `nats_server_leafnode_hub_group` is one of this host's `groups`. `own`: the servers of the meta group, which do not
    count as leafnodes. Raises ValueError as `members` does."""
    leaves = [
        name
        for name in hostvars
        if name not in own and name not in leaving and hostvars[name].get(_HUB_GROUP) in groups
    ]
    known = [name for name in leaving if name in hostvars]
    return members(known, hostvars, host, {}), members(leaves, hostvars, host, {})


def _addresses(servers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return all addresses of servers, because a host with several addresses may connect from any of them."""
    return _unique(server[key] for server in servers for key in ("route_address", "gateway_address", "address"))


def _unique(values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values))


def _port(value: Any) -> int:
    try:
        port = int(value)
    except (TypeError, ValueError):
        port = 0
    if not 0 < port < 65536:
        raise ValueError(f"nats_server_firewall_ports: {value!r} is not a port")
    return port
