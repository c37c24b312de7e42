# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a running server is not part of its cluster, from its VARZ and that of a member. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..times import certificate_ends, parse_time

#: Settings that must be equal at both ends of a route (route.go processRouteConnect), and their configuration keys.
_ALIKE = (
    ("name", "cluster.name"),
    ("pool_size", "cluster.pool_size"),
    ("tls_required", "TLS of cluster"),
    ("tls_verify", "cluster.tls.verify"),
)


def isolation_reason(own: Mapping[str, Any], other: Mapping[str, Any], routes: Sequence[str]) -> str:
    """Return why the server with the VARZ `own` has no routes to the server with the VARZ `other`. `routes`: the
    servers to which it has routes."""
    mine, theirs = own.get("cluster") or {}, other.get("cluster") or {}
    name = other.get("server_name", "the others")
    for key, option in _ALIKE:
        if mine.get(key) != theirs.get(key):
            return f"{option} is {mine.get(key, 'not set')} there, and {theirs.get(key, 'not set')} on {name}"
    end = certificate_ends(own).get("cluster")
    if end and own.get("now") and parse_time(end) < parse_time(str(own["now"])):
        return f"its certificate for routes has expired ({end})"
    if routes:
        return f"it has routes only to {', '.join(sorted(set(routes)))}: check its log for refused routes"
    return "it has no routes: its log has the reason for the refusals (route password, TLS, firewall)"
