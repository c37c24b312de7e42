# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code that nats_cluster_info and nats_cluster_facts share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Callable

from ..accounts.expiry import evaluate
from ..accounts.run_expiry import read_logins
from ..health.raft_features import common_flags
from ..health.raft_silence import raft_silent_servers
from ..health.routes import MESH_OPTION, Mesh
from ..health.rules import Expectations, Limits, difference_problems, health_problems
from ..health.run_isolation import Isolation
from ..health.run_mesh import read_mesh
from ..health.run_unreported import with_unreported_streams
from ..health.sampling import DIFFERENCE_AFTER
from ..nats.accounts import Connections
from ..nats.client import Client
from ..nats.model import Cluster
from ..nats.system_api import SystemApi
from ..problem import ERROR, Problem

CLUSTER_INFO_SPEC: dict[str, dict[str, Any]] = {
    "detail": {"type": "str", "choices": ["servers", "assets"], "default": "assets"},
    "expected_servers": {"type": "list", "elements": "str"},
    "mesh": MESH_OPTION,
    "cluster": {"type": "str"},
    "account": {"type": "str"},
    "stream": {"type": "str"},
    "jwts": {"type": "bool", "default": False},
}


def read_cluster_info(
    client: Client, params: Mapping[str, Any], accounts: Callable[[], Connections] | None = None
) -> dict[str, Any]:
    """Return the filtered model of the cluster with its problems: servers, meta, clusters, streams, raft_silent,
    common_flags, nameless, missing, problems, healthy, and jwts if they are requested. `accounts`: as in `make_sampler`.

    Raises NatsFailure if the cluster cannot be queried."""
    names = params["expected_servers"]
    expected = None if names is None else frozenset(names)
    api = SystemApi(client)
    cluster = api.read_cluster(
        awaited=expected or (),
        known_names=expected or (),
        assets=params["detail"] == "assets",
        account=params["account"],
    )
    if expected:
        cluster = Isolation(client).completed(cluster, expected)
    unlisted: list[Problem] = []
    if accounts is not None and params["detail"] == "assets":
        cluster, unlisted = with_unreported_streams(cluster, accounts, expected or ())
        wanted_account = params["account"] and cluster.find_account(params["account"])
        cluster = cluster.only(account=wanted_account)
    selected = cluster.only(stream=params["stream"])
    whole = params["detail"] == "assets" and params["account"] is None and params["stream"] is None
    mesh = params["mesh"]
    wanted = Expectations(
        servers=expected,
        jetstream_servers=frozenset(mesh["jetstream_servers"]) if mesh else None,
        cluster=params["cluster"],
        assets=whole,
    )
    problems = [*health_problems(selected, wanted), *unlisted]
    if whole:
        problems += _differences(api, cluster.only(cluster=params["cluster"]), wanted.limits)
    if mesh:
        problems += _mesh_problems(api, cluster, mesh)
    shown = selected.only(cluster=params["cluster"])
    return {
        **shown.as_dict(),
        "raft_silent": raft_silent_servers(shown),
        "common_flags": common_flags(shown),
        "nameless": sorted(shown.nameless),
        "missing": sorted((expected or frozenset()) - shown.names),
        "problems": [problem.as_dict() for problem in problems],
        "healthy": not any(problem.severity == ERROR for problem in problems) if whole and mesh else None,
        **({"jwts": _jwts(client, cluster.only(cluster=params["cluster"]))} if params["jwts"] else {}),
    }


def _jwts(client: Client, cluster: Cluster) -> dict[str, Any]:
    """Return the JWTs that expire, including that of the module's own .creds file."""
    own = client.options.credentials
    logins = read_logins(SystemApi(client), cluster.servers, [own] if own else [])
    if logins is None:
        return {"operator_mode": False, "expiring": [], "unknown": []}
    expiring = [row.as_dict() for row in evaluate(logins, time.time())]
    return {"operator_mode": True, "expiring": expiring, "unknown": logins.unknown}


def _differences(api: SystemApi, cluster: Cluster, limits: Limits) -> list[Problem]:
    """Return the replicas that lack messages and are not receiving them. The cluster is read a second time if any
    replica lacks messages."""
    if not difference_problems(cluster, cluster, limits):
        return []
    time.sleep(DIFFERENCE_AFTER)
    return difference_problems(cluster, api.read_cluster(health=False), limits)


def _mesh_problems(api: SystemApi, cluster: Cluster, mesh: Mapping[str, Any]) -> list[Problem]:
    """Return the missing connections between the servers of the option `mesh`."""
    missing = read_mesh(api, cluster.servers, mesh["server_names"], Mesh.of(mesh))
    return [Problem("mesh_incomplete", ERROR, "cluster", sentence) for sentence in missing]
