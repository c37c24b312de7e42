# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the pure functions of the connection modules: the fields of a connection, the sort order, and the connections
that a balance closes."""

from __future__ import annotations

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.assets.connections import describe
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Server
from ansible_collections.natsops.jetstream.plugins.modules.nats_connection_info import sort_rows
from ansible_collections.natsops.jetstream.plugins.modules.nats_connection_kick import shares, surplus
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-11-20T10:00:10Z"


def told(**changes: Any) -> dict[str, Any]:
    connection = {
        "cid": 7,
        "kind": "Client",
        "start": "2026-11-20T10:00:00Z",
        "last_activity": "2026-11-20T10:00:08.5Z",
        "rtt": "1.5ms",
        "authorized_user": "s3cr3t-token",
        "jwt": "eyJ0",
    }
    return {**connection, **changes}


def test_durations_are_seconds_and_secrets_are_left_out() -> None:
    row = describe(Server("n1", "N1", version="2.15.1"), told(account="APP"), NOW)
    assert (row["uptime"], row["idle"], row["rtt"], row["user"], row["account"]) == (
        10,
        1.5,
        0.0015,
        "s3cr3t-token",
        "APP",
    )
    assert "eyJ0" not in str(row)
    closed = describe(Server("n1", "N1", version="2.15.1"), told(stop="2026-11-20T10:00:09Z", rtt=""), NOW)
    assert (closed["uptime"], closed["idle"], closed["rtt"], closed["state"]) == (9, 0.5, None, "closed")


def test_a_token_in_place_of_the_user_is_hidden() -> None:
    shown = {"2.10.27": "(hidden)", "2.11.3": "(hidden)", "2.11.4": "s3cr3t-token", "2.15.1": "s3cr3t-token"}
    for version, user in shown.items():
        row = describe(Server("n1", "N1", version=version), told(), NOW)
        assert (row["account"], row["user"]) == ("$G", user)
    assert describe(Server("n1", "N1", version="2.10.27"), told(account="APP"), NOW)["user"] == "s3cr3t-token"


def test_order() -> None:
    rows = [{"server": "n1", "cid": cid, "rtt": rtt} for cid, rtt in ((2, 0.1), (1, None), (3, 0.3), (4, 0.1))]
    assert [row["cid"] for row in sort_rows(rows, "rtt")] == [3, 2, 4, 1]
    assert [row["cid"] for row in sort_rows(rows, "cid")] == [1, 2, 3, 4]


def row(server: str, cid: int, pending: int = 0, idle: float = 0.0) -> dict[str, Any]:
    return {"server_id": server, "cluster": "C1", "cid": cid, "pending_bytes": pending, "idle": idle}


def test_the_longest_idle_with_nothing_waiting_goes_first() -> None:
    rows = [row("a", 1, idle=5), row("a", 2, idle=9), row("a", 3, pending=8, idle=99), row("a", 4)]
    assert [item["cid"] for item in surplus(rows, {"a": 2, "b": 2})] == [2, 1]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_balance_leaves_no_server_above_the_share_with_minimal_moves(counts: list[int]) -> None:
    servers = [Server(f"n{number}", f"N{number}", cluster="C1") for number in range(len(counts))]
    rows = [row(server.id, cid) for server, count in zip(servers, counts) for cid in range(count)]
    even = shares(rows, servers)
    share = even["N0"]
    assert set(even.values()) == {share}
    assert len(counts) * share >= sum(counts) > len(counts) * (share - 1)
    closed = surplus(rows, even)
    assert len(closed) == sum(max(count - share, 0) for count in counts)
    assert surplus([item for item in rows if item not in closed], even) == []


def test_each_cluster_has_a_share_of_its_own() -> None:
    servers = [Server("a", "A", cluster="C1"), Server("b", "B", cluster="C1"), Server("c", "C", cluster="C2")]
    rows = [row("A", 1), row("A", 2), {**row("C", 1), "cluster": "C2"}, {**row("C", 2), "cluster": "C2"}]
    assert shares(rows, servers) == {"A": 1, "B": 1, "C": 2}
