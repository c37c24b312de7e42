# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The route mesh of a cluster: which routes must exist between its servers, and which are missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..nats.account_names import SYSTEM_ACCOUNT
from ..versions import reported_version

DEFAULT_POOL_SIZE = 3
#: Modes in which the routes between two servers are uncompressed, and names of s2_fast (server/opts.go
#: validateAndNormalizeCompressionOption).
_UNCOMPRESSED = ("accept", "off", "disabled", "false")
_FAST = ("on", "enabled", "true")


#: Endpoints from which the connections between servers are evaluated.
MESH_ENDPOINTS = ("varz", "routez", "gatewayz")


@dataclass(frozen=True)
class Mesh:
    """The required connections of a cluster's servers. `clusters`: names of expected clusters in addition to those in the
    servers' configurations; `pinned_accounts`: accounts of `cluster.accounts`, which VARZ does not show;
    `jetstream_servers`: names of servers that must have JetStream enabled."""

    clusters: Sequence[str] = ()
    pinned_accounts: Sequence[str] = ()
    jetstream_servers: Sequence[str] = ()

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Mesh:
        """Return the mesh of a module's option `mesh`."""
        return cls(**{name: params[name] for name in MESH_SPEC})


#: A Mesh as suboptions of a module.
MESH_SPEC: dict[str, dict[str, Any]] = {
    one.name: {"type": "list", "elements": "str", "default": []} for one in fields(Mesh)
}
#: The option `mesh` of a module: a Mesh and the names of its servers.
MESH_OPTION: dict[str, Any] = {
    "type": "dict",
    "options": {"server_names": {"type": "list", "elements": "str", "required": True}, **MESH_SPEC},
}


def mesh_problems(
    servers: Sequence[dict[str, Any]], missing: Sequence[str], incomplete: Sequence[Mapping[str, Any]], mesh: Mesh
) -> list[str]:
    """Return a sentence for each missing route or gateway connection, for each server whose connections are unknown, and
    one for the servers without JetStream.

    `servers`, `missing`, `incomplete`: results of nats_server_info with the endpoints of MESH_ENDPOINTS.
    """
    needed = [item for item in incomplete if item["endpoint"] in MESH_ENDPOINTS]
    known = [server for server in servers if set(MESH_ENDPOINTS) <= server.keys()]
    enabled = {server["name"] for server in servers if server.get("jetstream")}
    without = [name for name in mesh.jetstream_servers if name not in enabled]
    return [
        *unread(missing, needed),
        *route_problems(known, list(mesh.pinned_accounts)),
        *gateway_problems(known, mesh.clusters),
        *([f"JetStream is not enabled on {', '.join(without)}"] if without else []),
    ]


def unread(missing: Iterable[str], incomplete: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each server, or endpoint of a server, that could not be read."""
    return [f"{name} did not answer" for name in missing] + [
        f"{item['server']} did not return {item['endpoint']}: {item['failure']['description']}" for item in incomplete
    ]


def expected_routes(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Return how many route connections two servers keep between them.

    Since 2.10, the number is the pool size plus one for each pinned account, always including $SYS (docs: v2 routes).
    Without pooling (`pool_size: -1`), or towards a server before 2.10, there is one connection. If the pool sizes
    differ, which servers from 2.11.2 on accept, the smaller one counts.

    `one`: VARZ data of one server.
    `other`: VARZ data of the other.
    """
    if min(reported_version(one.get("version", "")), reported_version(other.get("version", ""))) < (2, 10):
        return 1
    pools = [(server.get("cluster") or {}).get("pool_size") or DEFAULT_POOL_SIZE for server in (one, other)]
    if min(pools) < 0:
        return 1
    return min(pools) + len({SYSTEM_ACCOUNT} | set(_pinned(one)) & set(_pinned(other)))


def _pinned(server: dict[str, Any]) -> list[str]:
    return list((server.get("cluster") or {}).get("accounts") or [])


def route_problems(servers: list[dict[str, Any]], pinned_accounts: list[str] | None = None) -> list[str]:
    """Return one sentence for each pair of servers of one cluster that lacks routes, as reported by the first server of
    the pair.

    `servers`: entries of nats_server_info with endpoints varz and routez.
    `pinned_accounts`: accounts of `cluster.accounts`, which VARZ does not show.
    """
    problems = []
    for one in servers:
        varz = dict(one["varz"], cluster=dict(one["varz"].get("cluster") or {}, accounts=pinned_accounts or []))
        routes = (one.get("routez") or {}).get("routes") or []
        for other in servers:
            if other["name"] == one["name"] or other.get("cluster") != one.get("cluster"):
                continue
            there = dict(
                other["varz"], cluster=dict(other["varz"].get("cluster") or {}, accounts=pinned_accounts or [])
            )
            have = sum(
                1
                for route in routes
                if route.get("remote_name") == other["name"] or route.get("remote_id") == other["id"]
            )
            want = expected_routes(varz, there)
            if have < want:
                problems.append(f"{one['name']} has {have} of {want} routes to {other['name']}")
    return problems


def compression_notes(routes: Iterable[Mapping[str, Any]], configured: str | Mapping[str, Any] | None) -> list[str]:
    """Return one sentence for each pair of servers whose routes are not compressed as configured for all servers.

    Both ends negotiate the mode when a route is established: the route is not compressed if one of them runs a version
    before 2.10 or an older configuration (server/route.go selectCompressionMode).

    `routes`: rows with server, name (of the other server) and compression, which is empty before 2.10. `configured`:
    `cluster.compression`, a mode or a block with a mode; None disables the check.
    """
    if configured is None:
        return []
    mode = str(configured.get("mode") or "accept" if isinstance(configured, Mapping) else configured).lower()
    found = sorted(
        {
            (*sorted((str(route["server"]), str(route["name"]))), str(route["compression"]))
            for route in routes
            if route["compression"] and not _is_compressed(str(route["compression"]), mode)
        }
    )
    return [
        f"Routes between {one} and {other}: compression {now}, but {mode} is configured." for one, other, now in found
    ]


def _is_compressed(now: str, mode: str) -> bool:
    """Return whether the compression that ROUTEZ reports for a route is the expected one if both ends have this mode."""
    if mode in _UNCOMPRESSED:
        return now == "off"
    if mode in ("auto", "s2_auto", "s2auto"):
        return now.startswith("s2_")
    return now == ("s2_fast" if mode in _FAST else "s2_" + mode.removeprefix("s2").removeprefix("_"))


def gateway_problems(servers: list[dict[str, Any]], clusters: Iterable[str] = ()) -> list[str]:
    """Return one sentence for each server that lacks a gateway connection to another cluster, or has a connection
    without the TLS that its gateway is configured with.

    A server keeps one outbound connection to some server of each other cluster (docs: gateways), so inbound connections
    prove nothing. A server without a gateway is checked only if other clusters are expected. If a reload adds TLS to a
    gateway, existing connections continue without TLS.

    `servers`: entries of nats_server_info with endpoints varz and gatewayz. `clusters`: names of expected clusters in
    addition to those in the servers' configurations.
    """
    problems = []
    for server in servers:
        reported = server.get("gatewayz") or {}
        configured = ((server.get("varz") or {}).get("gateway") or {}).get("gateways") or ()
        wanted = {*clusters, *(one.get("name", "") for one in configured)} - {
            server.get("cluster"),
            reported.get("name"),
            "",
        }
        connected = {
            name
            for name, one in (reported.get("outbound_gateways") or {}).items()
            if (one.get("connection") or {}).get("cid")
        }
        problems += [f"{server['name']} has no gateway connection to {name}" for name in sorted(wanted - connected)]
        if ((server.get("varz") or {}).get("gateway") or {}).get("tls_required"):
            problems += [
                f"{server['name']} has a gateway connection to {name} from before its gateway had TLS: "
                f"restart {server['name']}"
                for name in sorted(connected)
                if not reported["outbound_gateways"][name]["connection"].get("tls_version")
            ]
    return problems
