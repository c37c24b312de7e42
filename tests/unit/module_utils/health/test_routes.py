# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which routes and gateway connections are reported as missing."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.routes import (
    Mesh,
    compression_notes,
    expected_routes,
    gateway_problems,
    mesh_problems,
    route_problems,
)


def varz(version: str = "2.10.27", pool_size: int | None = None) -> dict[str, Any]:
    return {"version": version, "cluster": {"pool_size": pool_size} if pool_size else {}}


@pytest.mark.parametrize(
    "one, other, routes",
    [
        (varz(), varz(), 4),
        (varz(pool_size=5), varz(pool_size=5), 6),
        (varz(pool_size=5), varz(pool_size=3), 4),
        (varz(pool_size=-1), varz(), 1),
        (varz("2.9.10"), varz(), 1),
    ],
)
def test_expected_routes(one: dict[str, Any], other: dict[str, Any], routes: int) -> None:
    assert [expected_routes(*pair) for pair in permutations([one, other])] == [routes, routes]


@pytest.mark.parametrize(
    ("configured", "now", "as_configured"),
    [
        ("accept", "off", True),
        ("accept", "s2_fast", False),
        (False, "off", True),
        ("on", "s2_fast", True),
        ("S2_Better", "s2_better", True),
        ("fast", "s2_fast", True),
        ("s2_fast", "off", False),
        ("s2_best", "s2_fast", False),
        ({"mode": "s2_auto", "rtt_thresholds": ["10ms"]}, "s2_uncompressed", True),
        ({"mode": "s2_auto"}, "off", False),
        ({}, "off", True),
        # The state of routes is unknown before 2.10, or without a configuration.
        ("s2_fast", "", True),
        (None, "s2_best", True),
    ],
)
def test_compression_is_compared_with_the_configuration(configured: Any, now: str, as_configured: bool) -> None:
    routes = [{"server": one, "name": other, "compression": now} for one, other in (("n2", "n1"), ("n1", "n2"))]
    notes = compression_notes(routes, configured)
    assert (notes == []) == as_configured
    assert len(notes) <= 1 and all(note.startswith(f"Routes between n1 and n2: compression {now}") for note in notes)


def server(name: str, routes: dict[str, int], cluster: str = "C1") -> dict[str, Any]:
    rows = [
        {"remote_name": remote, "remote_id": "ID" + remote}
        for remote, count in routes.items()
        for dummy in range(count)
    ]
    return {"name": name, "id": "ID" + name, "cluster": cluster, "varz": varz(), "routez": {"routes": rows}}


def test_a_full_mesh_has_no_problems() -> None:
    assert route_problems([server("n1", {"n2": 4}), server("n2", {"n1": 4}), server("e1", {}, cluster="C2")]) == []


def test_each_pair_without_all_its_routes_is_named() -> None:
    assert route_problems([server("n1", {"n2": 3}), server("n2", {"n1": 4})]) == ["n1 has 3 of 4 routes to n2"]
    both = [server("n1", {"n2": 4}), server("n2", {"n1": 4})]
    assert len(route_problems(both, ["APP"])) == 2


def remote(name: str, cluster: str, outbound: dict[str, int], configured: tuple[str, ...] = ()) -> dict[str, Any]:
    gateways = {to: {"connection": {"cid": cid} if cid else None} for to, cid in outbound.items()}
    return {
        "name": name,
        "cluster": cluster,
        "varz": {"gateway": {"gateways": [{"name": one} for one in configured]}},
        "gatewayz": {"name": cluster, "outbound_gateways": gateways},
    }


def test_gateways_to_all_other_clusters_are_not_a_problem() -> None:
    servers = [remote("n1", "east", {"west": 7}, ("east", "west")), remote("n2", "west", {"east": 8})]
    assert gateway_problems(servers, ["east", "west"]) == []


def test_each_cluster_without_a_gateway_connection_is_named() -> None:
    assert gateway_problems([remote("n1", "east", {"west": 0}, ("north",))], ["east", "west"]) == [
        "n1 has no gateway connection to north",
        "n1 has no gateway connection to west",
    ]
    plain: dict[str, Any] = {"name": "n3", "cluster": "south", "varz": {}, "gatewayz": None}
    assert gateway_problems([plain]) == []
    assert gateway_problems([plain], ["east"]) == ["n3 has no gateway connection to east"]


def test_a_connection_that_is_older_than_tls_is_named() -> None:
    n1 = remote("n1", "east", {"west": 7, "north": 8})
    n1["varz"]["gateway"]["tls_required"] = True
    n1["gatewayz"]["outbound_gateways"]["north"]["connection"]["tls_version"] = "1.3"
    assert gateway_problems([n1]) == ["n1 has a gateway connection to west from before its gateway had TLS: restart n1"]


def test_mesh_lists_missing_connections_unreadable_servers_and_servers_without_jetstream() -> None:
    servers: list[dict[str, Any]] = [
        {
            "name": name,
            "id": name,
            "cluster": "C1",
            "jetstream": name == "n1",
            "varz": varz(),
            "routez": {},
            "gatewayz": {},
        }
        for name in ("n1", "n2")
    ]
    failure = {"description": "no reply within 5 s"}
    incomplete = [{"server": "n3", "endpoint": name, "failure": failure} for name in ("routez", "healthz")]
    unread = {"name": "n3", "id": "n3", "cluster": "C1", "jetstream": True, "varz": {}}
    mesh = Mesh(clusters=["C1", "west"], jetstream_servers=["n1", "n2", "n3"])
    assert mesh_problems([*servers, unread], ["n4"], incomplete, mesh) == [
        "n4 did not answer",
        "n3 did not return routez: no reply within 5 s",
        "n1 has 0 of 4 routes to n2",
        "n2 has 0 of 4 routes to n1",
        "n1 has no gateway connection to west",
        "n2 has no gateway connection to west",
        "JetStream is not enabled on n2",
    ]
    assert mesh_problems(servers[:1], [], [], Mesh()) == []
