# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of clusters as the inventory intends them, and the routes, gateways and leafnodes between them. Pure: no I/O.

Another host's variables come from its inventory (``hostvars``), which knows neither the role's defaults nor what a play
or a role call sets; so the defaults are repeated here, and what this host sees for itself tells whether they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

CLIENT_PORT = 4222
CLUSTER_PORT = 6222
GATEWAY_PORT = 7222
LEAFNODE_PORT = 7422
ZONE_TAG_PREFIX = "az:"

_PREFIX = "nats_server_"
# Fields that one value in a play or role call sets for every host alike.
_SHARED = {
    "cluster_port": "cluster_port",
    "client_port": "port",
    "jetstream": "jetstream",
    "pool_size": "cluster_pool_size",
    "gateway_port": "gateway_port",
}
_OWN = {
    "server_name": "name",
    "address": "address",
    "route_address": "cluster_route_address",
    "gateway_address": "gateway_address",
    "arbiter": "arbiter",
    "zone": "zone",
}


def members(names: list[str], hostvars: Mapping[str, Any], host: str, seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The members in the order of ``names``.

    Each is ``{host, server_name, cluster, address, route_address, cluster_port, gateway_address, gateway_port,
    leafnode_address, leafnode_port, client_port, jetstream, domain, arbiter, zone, unique_tag, pool_size}``. ``seen`` holds the
    same fields as this ``host`` sees them for itself, and ``supercluster_groups``, the inventory groups that are clusters. Raises
    ValueError for a member that the inventory does not have, a variable that it cannot resolve, and a name or address of this
    host that the other hosts would not see.
    """
    inventory = _Variables(hostvars[host], host) if host in hostvars else None
    shared = {
        field: seen[field]
        for field, variable in _SHARED.items()
        if field in seen and not (inventory and inventory.has(variable))
    }
    found = []
    for name in names:
        if name not in hostvars:
            raise ValueError(
                f"nats_server_cluster_members lists {name}, which the inventory does not have: "
                "run with the whole inventory, or correct the list"
            )
        found.append(_member(_Variables(hostvars[name], name), name, {**shared, "cluster": _home(hostvars[name], seen)}))
    for member in found:
        if member["host"] == host:
            _require_same(member, seen)
    return found


class _Variables:
    """The inventory's variables of one host."""

    def __init__(self, values: Mapping[str, Any], host: str) -> None:
        self._values = values
        self._host = host

    def has(self, variable: str) -> bool:
        return _PREFIX + variable in self._values

    def get(self, variable: str, default: Any = None, prefix: str = _PREFIX) -> Any:
        name = prefix + variable
        value = self._values.get(name)
        if isinstance(value, str) and "{{" in value:
            raise ValueError(
                f"{name} of {self._host} cannot be resolved from another host: {value!r}. Set it in the inventory "
                "without variables of a play or of the role's defaults"
            )
        return default if value is None or value == "" else value


def _home(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Any:
    """What a host's cluster is called by default: as its group of a supercluster, or as this host's cluster."""
    groups = seen.get("supercluster_groups") or []
    return next((group for group in groups if group in values.get("group_names", ())), seen.get("cluster"))


def _member(variables: _Variables, host: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    address = str(variables.get("address", variables.get("ansible_host", host, prefix="")))
    zone = variables.get("zone")
    prefix = variables.get("zone_tag_prefix", ZONE_TAG_PREFIX)
    pool_size = variables.get("cluster_pool_size", shared.get("pool_size"))
    return {
        "host": host,
        "server_name": str(variables.get("name", host)),
        "cluster": variables.get("cluster_name", shared.get("cluster")),
        "address": address,
        "route_address": str(variables.get("cluster_route_address", address)),
        "cluster_port": _port(variables, "cluster_listen", "cluster_port", shared.get("cluster_port", CLUSTER_PORT)),
        "gateway_address": str(variables.get("gateway_address", address)),
        "gateway_port": _number(variables, "gateway_port", shared.get("gateway_port", GATEWAY_PORT)),
        "leafnode_address": str(variables.get("leafnode_address", address)),
        "leafnode_port": _leafnode_port(variables),
        "client_port": _port(variables, "listen", "port", shared.get("client_port", CLIENT_PORT)),
        "jetstream": _boolean(variables.get("jetstream", shared.get("jetstream", True))),
        "domain": variables.get("jetstream_domain"),
        "arbiter": _boolean(variables.get("arbiter", False)),
        "zone": None if zone is None else str(zone),
        "unique_tag": variables.get("jetstream_unique_tag", None if zone is None else prefix),
        "pool_size": None if pool_size in (None, "") else int(pool_size),
    }


def _port(variables: _Variables, listen: str, port: str, default: Any) -> int:
    address = variables.get(listen)
    if address is None:
        return _number(variables, port, default)
    return _as_port(str(address).rpartition(":")[2], listen)


def _leafnode_port(variables: _Variables) -> int:
    block = variables.get("leafnodes") or {}
    value = str(block.get("listen") or "").rpartition(":")[2] or block.get("port") or LEAFNODE_PORT
    return _as_port(value, "leafnodes")


def _number(variables: _Variables, port: str, default: Any) -> int:
    return _as_port(variables.get(port, default), port)


def _as_port(value: Any, variable: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{_PREFIX}{variable}: {value!r} is not a port") from None


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in ("true", "yes", "on", "1")


def _require_same(member: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
    for field, variable in _OWN.items():
        own = seen.get(field, member[field])
        if (own or None) != (member[field] or None) and str(own) != str(member[field]):
            raise ValueError(
                f"{_PREFIX}{variable} of {member['host']} is {own!r} here, but the other hosts see {member[field]!r}: "
                "set it in the inventory (host_vars or group_vars), not in the play"
            )


def routes(
    members: list[dict[str, Any]],
    style: str = "all",
    seeds: list[str] | None = None,
    authorization: Mapping[str, Any] | None = None,
) -> list[str]:
    """The URLs of ``cluster.routes``; credentials of ``authorization`` are percent-encoded into each.

    ``all`` lists every member, this host's own URL included: nats-server ignores a route to itself, but the number of
    routes is what the meta group takes for its size at its first start (raft.go, bootstrap). ``seeds`` lists only the
    given ones: inventory names of members, ``host``, ``host:port`` or whole URLs. Raises ValueError.
    """
    if style == "all":
        targets = [address_and_port(member["route_address"], member["cluster_port"]) for member in members]
    elif style == "seeds":
        if not seeds:
            raise ValueError("nats_server_cluster_route_style is seeds, but nats_server_cluster_seeds is empty")
        by_host = {member["host"]: member for member in members}
        targets = [_seed(str(seed), by_host.get(seed)) for seed in seeds]
    else:
        raise ValueError(f"nats_server_cluster_route_style is all or seeds, not {style!r}")
    credentials = _credentials(authorization)
    return [target if "://" in target else f"nats-route://{credentials}{target}" for target in targets]


def gateways(
    clusters: Mapping[str, list[str]],
    hostvars: Mapping[str, Any],
    host: str,
    seen: Mapping[str, Any],
    authorization: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The ``gateway.gateways`` of a supercluster: ``{name, urls}`` for each cluster, the host's own included.

    ``clusters``: the hosts of each inventory group, in the order of the result. A cluster is called as its group unless its
    hosts say otherwise (``nats_server_cluster_name``); credentials of ``authorization`` are percent-encoded into each URL.
    Every cluster gets the same list, with its own, which nats-server needs for its settings and to tell a wrong name; what
    is left out is refused by ``reject_unknown_cluster``. Raises ValueError for clusters that are called alike, a cluster
    that is called in two ways or has no hosts, and a host or a server name that is in two clusters.
    """
    credentials = _credentials(authorization)
    found = []
    groups: dict[str, str] = {}
    homes: dict[str, str] = {}
    for group, hosts in clusters.items():
        servers = members(hosts, hostvars, host, {**seen, "cluster": group, "supercluster_groups": []})
        name = _cluster_name(group, servers)
        if groups.setdefault(name, group) != group:
            raise ValueError(f"the groups {groups[name]} and {group} are both the cluster {name}: set nats_server_cluster_name")
        for one in (alike for server in servers for alike in (server["host"], server["server_name"])):
            if homes.setdefault(one, group) != group:
                raise ValueError(f"{one} is in both the groups {homes[one]} and {group}: names are unique in a supercluster")
        targets = [address_and_port(server["gateway_address"], server["gateway_port"]) for server in servers]
        found.append({"name": name, "urls": [f"nats://{credentials}{target}" for target in targets]})
    return found


def leaf_remotes(
    hub: Sequence[Mapping[str, Any]], remotes: Sequence[Mapping[str, Any]], tls: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The ``leafnodes.remotes`` of a server: each with the URLs of all servers of the hub, unless it has URLs of its own.

    ``hub``: its servers, as ``members`` returns them. ``user`` and ``password`` of a remote are percent-encoded into each URL,
    which is where nats-server wants them; all other keys are its own (``account``, ``credentials``, …). ``tls`` is that of
    remotes that do not say otherwise. Raises ValueError for a hub without servers.
    """
    found = []
    for remote in remotes:
        block = {key: value for key, value in remote.items() if key not in ("user", "password") and value is not None}
        if "url" not in block and "urls" not in block:
            if not hub:
                raise ValueError("nats_server_leafnode_hub_group names a group without hosts: there is nothing to connect to")
            login = _credentials(remote)
            targets = [address_and_port(server["leafnode_address"], server["leafnode_port"]) for server in hub]
            block["urls"] = [f"nats-leaf://{login}{target}" for target in targets]
        found.append({"tls": dict(tls), **block} if tls else block)
    return found


def _cluster_name(group: str, servers: Sequence[Mapping[str, Any]]) -> str:
    called: dict[str, list[str]] = {}
    for server in servers:
        called.setdefault(str(server["cluster"]), []).append(server["host"])
    if not called:
        raise ValueError(f"the group {group} of nats_server_supercluster_groups has no hosts")
    if len(called) > 1:
        told = "; ".join(f"{name!r} on {', '.join(where)}" for name, where in called.items())
        raise ValueError(f"nats_server_cluster_name differs within the group {group}: {told}")
    return next(iter(called))


def _credentials(authorization: Mapping[str, Any] | None) -> str:
    """Credentials as they stand in a URL; empty for none."""
    if not authorization or not authorization.get("user"):
        return ""
    user, password = str(authorization["user"]), str(authorization.get("password") or "")
    return f"{quote(user, safe='')}:{quote(password, safe='')}@"


def _seed(seed: str, member: dict[str, Any] | None) -> str:
    if member:
        return address_and_port(member["route_address"], member["cluster_port"])
    if "://" in seed:
        return seed
    split = urlsplit(f"//{seed}") if not _is_bare_ipv6(seed) else None
    if split is None or split.port is None:
        return address_and_port(seed, CLUSTER_PORT)
    return seed


def _is_bare_ipv6(text: str) -> bool:
    return text.count(":") > 1 and not text.startswith("[")


def address_and_port(address: str, port: int) -> str:
    """``host:port``, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if _is_bare_ipv6(address) else f"{address}:{port}"
