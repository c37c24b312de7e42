# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of clusters as described by the inventory, and the routes, gateways and leafnodes between them. Pure: no
I/O.

The variables of other hosts come from the inventory (`hostvars`), which includes neither the role's defaults nor
variables of a play or a role call. So the defaults are repeated here, and this host's own values show whether the
defaults are in force.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict
from urllib.parse import quote, urlsplit

CLIENT_PORT = 4222
CLUSTER_PORT = 6222
GATEWAY_PORT = 7222
LEAFNODE_PORT = 7422
ZONE_TAG_PREFIX = "az:"

_PREFIX = "nats_server_"
# Fields that a value in a play or role call sets equally for all hosts.
_SHARED = {
    "cluster_port": "cluster_port",
    "client_port": "port",
    "jetstream": "jetstream",
    "pool_size": "cluster_pool_size",
    "gateway_port": "gateway_port",
    "monitoring": "http",
}
_OWN = {
    "server_name": "name",
    "address": "address",
    "route_address": "cluster_route_address",
    "gateway_address": "gateway_address",
    "arbiter": "arbiter",
    "zone": "zone",
}


class InventoryCluster(TypedDict):
    """An inventory group that is a cluster of a supercluster, and its servers."""

    group: str
    servers: list[dict[str, Any]]


class Topology(TypedDict):
    """The servers that concern a host, as `members` returns them. Contains no secret.

    `servers`: the servers of its cluster. `supercluster`: the servers of all clusters in the same meta group.
    `clusters`: the same servers by cluster, empty if there is no supercluster. `hub`: the servers to which it connects
    as a leafnode. `client_urls`: the URLs of all servers, those of its own cluster first.
    """

    servers: list[dict[str, Any]]
    supercluster: list[dict[str, Any]]
    clusters: list[InventoryCluster]
    hub: list[dict[str, Any]]
    client_urls: list[str]


@dataclass(frozen=True)
class Around:
    """The surroundings of a cluster: the hosts of its `supercluster`, and the same hosts by inventory group in
    `groups`; the hosts that are `leaving`; the hosts of the `hub` and the default name of the hub's cluster; and the
    `client_scheme` of all."""

    supercluster: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    leaving: Sequence[str] = ()
    hub: Sequence[str] = ()
    hub_name: str = ""
    client_scheme: str = "nats"


def topology(
    names: Sequence[str], hostvars: Mapping[str, Any], host: str, seen: Mapping[str, Any], around: Around
) -> Topology:
    """Return the servers to which `host` connects; `names` are the hosts of its cluster. Raises ValueError as `members`
    does.

    A server that leaves keeps its gateways, because no reload can change them; the others omit a cluster whose servers
    all leave.
    """
    known = _Once(hostvars)
    servers = members(names, known, host, seen)
    alone = list(around.supercluster or names) == list(names)
    supercluster = servers if alone else members(around.supercluster, known, host, seen)
    clusters: list[InventoryCluster] = []
    for group, hosts in around.groups.items():
        staying = [name for name in hosts if name == host or name not in around.leaving]
        if staying or not hosts:
            chosen = hosts if host in around.leaving else staying
            named = {**seen, "cluster": group, "supercluster_groups": []}
            clusters.append({"group": group, "servers": members(chosen, known, host, named)})
    own = {server["host"] for server in servers}
    others = [server for server in supercluster if server["host"] not in own] if around.groups else []
    return {
        "servers": servers,
        "supercluster": supercluster,
        "clusters": clusters,
        # Only the hosts' own variables count, because those of this host's play do not apply to a different cluster.
        "hub": members(around.hub, known, host, {"cluster": around.hub_name}),
        "client_urls": [
            f"{around.client_scheme}://{address_and_port(server['address'], server['client_port'])}"
            for server in (*servers, *others)
        ],
    }


def supercluster_hosts(membership: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the hosts of all clusters that share one meta group, without those that leave.

    `membership`: the variables `supercluster_groups`, `cluster_members` (the hosts of the own cluster, which are all
    hosts if there is no supercluster) and `cluster_leaving`; `groups`: the hosts of each group of the inventory. Raises
    ValueError for a group that the inventory does not have.
    """
    names = name_list(membership["supercluster_groups"], "supercluster_groups")
    if missing := [name for name in names if name not in groups]:
        raise ValueError(f"{_PREFIX}supercluster_groups lists {', '.join(missing)}, which the inventory does not have")
    leaving = name_list(membership["cluster_leaving"], "cluster_leaving")
    hosts = list(dict.fromkeys(host for name in names for host in groups[name] if host not in leaving))
    return hosts or name_list(membership["cluster_members"], "cluster_members")


def name_list(value: Any, variable: str) -> list[str]:
    """Return a list of names. Raises ValueError for a string, in which `in` would find parts of other names."""
    # Older versions of Ansible convert a null to an empty text.
    if isinstance(value, str) and value:
        wanted = json.dumps({f"{_PREFIX}{variable}": [name.strip() for name in value.split(",") if name.strip()]})
        raise ValueError(f"{_PREFIX}{variable} is a string, not a list: -e '{wanted}'")
    return list(value or ())


class _Once(Mapping[str, Any]):
    """Caches Ansible's hostvars, because each lookup collects all variables of a host."""

    def __init__(self, hostvars: Mapping[str, Any]) -> None:
        self._hostvars = hostvars
        self._found: dict[str, Any] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._found or name in self._hostvars

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = self._hostvars[name]
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hostvars)

    def __len__(self) -> int:
        return len(self._hostvars)


def members(
    names: Sequence[str], hostvars: Mapping[str, Any], host: str, seen: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the members in the order of `names`.

    Each is `{host, server_name, cluster, address, route_address, cluster_port, gateway_address, gateway_port,
    leafnode_address, leafnode_port, client_port, monitoring, jetstream, domain, arbiter, zone, unique_tag, pool_size}`. `seen`
    contains the same fields with the values that this `host` has for itself, and `supercluster_groups`, the inventory
    groups that are clusters. Raises ValueError for a member that is not in the inventory, a variable that cannot be
    resolved, and a name or address of this host that the other hosts would not see.
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
                f"nats_server_cluster_members lists {name}, which is not in the inventory: "
                "run with the complete inventory, or correct the list"
            )
        found.append(
            _member(_Variables(hostvars[name], name), name, {**shared, "cluster": _home(hostvars[name], seen)})
        )
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
                f"{name} of {self._host} cannot be resolved on another host: {value!r}. Set it in the inventory "
                "without variables of a play or of the role's defaults"
            )
        return default if value is None or value == "" else value


def _home(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Any:
    """Return the default cluster name of a host: its inventory group in a supercluster, otherwise the cluster of this
    host."""
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
        "monitoring": _monitoring(variables, shared.get("monitoring", "")),
        "jetstream": boolean(variables.get("jetstream", shared.get("jetstream", True))),
        "domain": variables.get("jetstream_domain"),
        "arbiter": boolean(variables.get("arbiter", False)),
        "zone": None if zone is None else str(zone),
        "unique_tag": variables.get("jetstream_unique_tag", None if zone is None else prefix),
        "pool_size": None if pool_size in (None, "") else int(pool_size),
    }


def _monitoring(variables: _Variables, default: Any) -> str:
    """Return the address of the monitoring listener, an empty text if other hosts cannot resolve it."""
    try:
        return str(variables.get("http", default) or "")
    except ValueError:
        return ""


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


def boolean(value: Any) -> bool:
    """Return a variable as a boolean; a template or the command line may have made it a text."""
    return value if isinstance(value, bool) else str(value).strip().lower() in ("true", "yes", "on", "1")


def _require_same(member: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
    for field, variable in _OWN.items():
        own = seen.get(field, member[field])
        if (own or None) != (member[field] or None) and str(own) != str(member[field]):
            raise ValueError(
                f"{_PREFIX}{variable} of {member['host']} is {own!r} here, but {member[field]!r} for the other hosts: "
                "set it in the inventory (host_vars or group_vars), not in the play"
            )


def routes(
    members: list[dict[str, Any]],
    style: str = "all",
    seeds: list[str] | None = None,
    authorization: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return the URLs of `cluster.routes`; credentials of `authorization` are percent-encoded into each.

    `all` lists every member, including this host: nats-server ignores a route to itself, but at the first start, the
    size of the meta group is the number of routes (raft.go, bootstrap). `seeds` lists only the given servers: inventory
    names of members, `host`, `host:port` or complete URLs. Raises ValueError.
    """
    if style == "all":
        targets = [address_and_port(member["route_address"], member["cluster_port"]) for member in members]
    elif style == "seeds":
        if not seeds:
            raise ValueError("nats_server_cluster_route_style is seeds, but nats_server_cluster_seeds is empty")
        by_host = {member["host"]: member for member in members}
        targets = [_seed(str(seed), by_host.get(seed)) for seed in seeds]
    else:
        raise ValueError(f"nats_server_cluster_route_style must be all or seeds, not {style!r}")
    credentials = _credentials(authorization)
    return [target if "://" in target else f"nats-route://{credentials}{target}" for target in targets]


def gateways(
    clusters: Sequence[InventoryCluster], authorization: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the `gateway.gateways` of a supercluster: `{name, urls}` for each cluster, including the host's own.

    The name of a cluster is that of its group unless its hosts override it (`nats_server_cluster_name`); credentials of
    `authorization` are percent-encoded into each URL. Every cluster gets the same list, including its own entry, which
    nats-server needs for its settings and to detect a wrong name; `reject_unknown_cluster` rejects all others. Raises
    ValueError for two clusters with the same name, a cluster with two names or no hosts, and a host or a server name in
    two clusters.
    """
    credentials = _credentials(authorization)
    found = []
    groups: dict[str, str] = {}
    homes: dict[str, str] = {}
    for cluster in clusters:
        group, servers = cluster["group"], cluster["servers"]
        name = _cluster_name(group, servers)
        if groups.setdefault(name, group) != group:
            raise ValueError(
                f"the groups {groups[name]} and {group} both form the cluster {name}: set nats_server_cluster_name"
            )
        for one in (alike for server in servers for alike in (server["host"], server["server_name"])):
            if homes.setdefault(one, group) != group:
                raise ValueError(
                    f"{one} is in both groups {homes[one]} and {group}: names are unique in a supercluster"
                )
        targets = [address_and_port(server["gateway_address"], server["gateway_port"]) for server in servers]
        found.append({"name": name, "urls": [f"nats://{credentials}{target}" for target in targets]})
    return found


def leaf_remotes(
    hub: Sequence[Mapping[str, Any]], remotes: Sequence[Mapping[str, Any]], tls: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the `leafnodes.remotes` of a server; each contains the URLs of all servers of the hub, unless it already
    has URLs.

    `hub`: the hub's servers, as `members` returns them. `user` and `password` of a remote are percent-encoded into each
    URL, where nats-server expects them; all other keys are passed on (`account`, `credentials`, …). `tls` is the
    default for remotes that have no such key. Raises ValueError if the hub has no servers.
    """
    found = []
    for remote in remotes:
        block = {key: value for key, value in remote.items() if key not in ("user", "password") and value is not None}
        if "url" not in block and "urls" not in block:
            if not hub:
                raise ValueError(
                    "nats_server_leafnode_hub_group is a group without hosts: there is nothing to connect to"
                )
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
        names = "; ".join(f"{name!r} on {', '.join(where)}" for name, where in called.items())
        raise ValueError(f"nats_server_cluster_name differs within the group {group}: {names}")
    return next(iter(called))


def _credentials(authorization: Mapping[str, Any] | None) -> str:
    """Return credentials for a URL; empty if there are none, or if the user has no password because a certificate
    identifies the user (`verify_and_map`)."""
    if not authorization or not authorization.get("user") or not authorization.get("password"):
        return ""
    user, password = str(authorization["user"]), str(authorization["password"])
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
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if _is_bare_ipv6(address) else f"{address}:{port}"
