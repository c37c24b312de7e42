# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which assets remain on a server, and how many leaders are its share."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.natsops.jetstream.plugins.modules.nats_server_evacuate import (
    Scope,
    holds,
    leaders_stuck,
    to_take_over,
)
from support.clusters import cluster, consumer, stream

NAMES = ["n1", "n2", "n3"]


def test_remaining_assets_on_a_server() -> None:
    orders = replace(stream("ORDERS", ["n2", "n1", "n3"]), consumers=(consumer("ORDERS", "w", ["n1", "n2", "n3"]),))
    among = cluster(NAMES, orders, stream("ALONE", ["n1"]), stream("ELSEWHERE", ["n2"]))
    assert holds(among, "n1") == {
        "meta_leader": True,
        "leaders": ["consumer APP/ORDERS/w", "stream APP/ALONE"],
        "replicas": ["consumer APP/ORDERS/w", "stream APP/ALONE", "stream APP/ORDERS"],
    }
    leaders = ["meta group (leader)", "consumer APP/ORDERS/w (leader)"]
    assert Scope("n1", False, "accept").left(among, []) == leaders
    assert Scope("n1", False, "move").left(among, []) == [*leaders, "stream APP/ALONE (replica)"]
    assert Scope("n1", True, "accept").left(among, leaders) == [
        "stream APP/ORDERS (replica)",
        "consumer APP/ORDERS/w (replica)",
        "stream APP/ALONE (replica)",
    ]
    assert Scope("n3", False, "accept").left(among, []) == []


def test_leaders_without_a_possible_successor() -> None:
    behind = stream("ORDERS", NAMES, behind=("n2", "n3"))
    stuck, transient = leaders_stuck(
        cluster(["n2", "n1", "n3"], behind, stream("ALONE", ["n1"])), Scope("n1", False, "fail")
    )
    assert set(stuck) == {"stream APP/ORDERS (leader)", "stream APP/ALONE (replica)"}
    assert transient


def test_the_share_is_rounded_down_and_taken_from_those_with_most() -> None:
    streams = [stream(f"S{number}", ["n1", "n2", "n3"]) for number in range(5)]
    assert [asset.stream for asset, _group in to_take_over(cluster(NAMES, *streams), "n2")] == ["S0"]
    assert to_take_over(cluster(NAMES, *streams), "n1") == []
    assert to_take_over(cluster(NAMES, *streams[:2]), "n2") == []
    mixed = [stream("A", ["n3", "n2", "n1"]), *streams]
    assert [asset.stream for asset, _group in to_take_over(cluster(NAMES, *mixed), "n2")] == ["S0", "S1"]
