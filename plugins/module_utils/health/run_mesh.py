# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the connections between servers for the rules in `routes`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..nats.client import NatsFailure
from ..nats.model import Server
from ..nats.system_api import SystemApi
from ..waiting import wait_until
from .routes import MESH_ENDPOINTS, Mesh, mesh_problems

#: Seconds within which servers connect to each other: they retry a lost route or gateway every second.
CONNECTED_WITHIN = 10.0


def wait_for_mesh(api: SystemApi, servers: Sequence[Server], names: Collection[str], mesh: Mesh) -> list[str]:
    """Return the problems that remain after CONNECTED_WITHIN seconds; an empty list as soon as there are none.

    `servers`: the servers that responded. `names`: the servers of the mesh; it is a problem if one did not respond.
    """
    return wait_until(
        lambda: read_mesh(api, servers, names, mesh), lambda found: not found, CONNECTED_WITHIN, interval=1
    ).value


def read_mesh(api: SystemApi, servers: Sequence[Server], names: Collection[str], mesh: Mesh) -> list[str]:
    """Return the current problems of the mesh. Arguments as for `wait_for_mesh`."""
    chosen = [server for server in servers if server.name in names]
    missing = sorted(set(names) - {server.name for server in chosen})
    rows: dict[str, dict[str, Any]] = {
        server.id: {
            "name": server.name,
            "id": server.id,
            "cluster": server.cluster,
            "jetstream": server.jetstream,
        }
        for server in chosen
    }
    incomplete = []
    for endpoint in MESH_ENDPOINTS:
        for server_id, answer in api.ask(chosen, endpoint.upper()).items():
            if isinstance(answer, NatsFailure):
                row = {"server": rows[server_id]["name"], "endpoint": endpoint, "failure": answer.as_dict()}
                incomplete.append(row)
            else:
                rows[server_id][endpoint] = answer
    return mesh_problems(list(rows.values()), missing, incomplete, mesh)


def mesh_failure(problems: Sequence[str]) -> NatsFailure | None:
    """Return the failure for these problems of the mesh, None if there are none."""
    return NatsFailure("mesh_incomplete", f"the cluster is incomplete: {'; '.join(problems)}") if problems else None
