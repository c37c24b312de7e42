# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which leaders step down, which stay and why, and the operator's report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, Server
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.leader_rebalance import (
    CONSUMERS,
    STREAMS,
    LeaderPlan,
    leader_page,
    plan_leaders,
    write_rates,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rules import DRAIN_TAG
from hypothesis import given
from support.clusters import cluster, clusters, consumer, server, stream

THREE = ["n1", "n2", "n3"]
BOTH = (STREAMS, CONSUMERS)


def planned(
    among: Cluster,
    most: int = 0,
    accounts: tuple[str, ...] = ("APP",),
    kinds: tuple[str, ...] = BOTH,
    rates: Mapping[tuple[str, str], float] | None = None,
) -> LeaderPlan:
    return plan_leaders(among, "C1", kinds, {}, rates or {}, accounts, most)


def with_server(among: Cluster, changed: Server) -> Cluster:
    others = [item for item in among.servers if item.name != changed.name]
    return replace(among, servers=tuple(sorted([*others, changed], key=lambda item: item.name)))


SIX = cluster(THREE, *(stream(f"S{number}", THREE) for number in range(6)))


def test_a_plan_for_people() -> None:
    plan = planned(SIX)
    assert [(move.source, move.target) for move in plan.moves] == [("n1", "n3"), ("n1", "n2")] * 2
    assert list(leader_page(plan).lines) == [
        "4 leaders step down (4 streams)",
        "n1 leads 6 streams, 0 consumers; afterwards 2 streams, 0 consumers",
        "n2 leads 0 streams, 0 consumers; afterwards 2 streams, 0 consumers",
        "n3 leads 0 streams, 0 consumers; afterwards 2 streams, 0 consumers",
    ]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_any_first_part_of_the_plan_helps(most: int) -> None:
    plan = planned(SIX, most)
    assert [move.stream for move in plan.moves] == [move.stream for move in planned(SIX).moves][:most]
    assert plan.after["n1"].streams == 6 - most


def test_streams_and_consumers_count_apart() -> None:
    held = stream("S", THREE)
    held = replace(held, consumers=tuple(consumer("S", f"C{number}", THREE) for number in range(3)))
    plan = planned(cluster(THREE, held))
    assert [(move.stream, move.consumer is None) for move in plan.moves] == [("S", False)] * 2
    assert planned(cluster(THREE, held), kinds=(STREAMS,)).moves == ()


def test_unmoved_leaders_are_listed_with_the_reason() -> None:
    among = cluster(THREE, stream("A", THREE, ("n2", "n3")), stream("B", THREE), stream("C", THREE))
    plan = planned(among)
    assert [move.stream for move in plan.moves] == ["C", "B"] or [move.stream for move in plan.moves] == ["B", "C"]
    assert list(plan.left.values()) == [["stream APP/A"]]
    assert leader_page(plan).lines[-1].startswith("unchanged: stream APP/A: ")
    unknown = planned(among, accounts=())
    assert unknown.moves == ()
    assert unknown.left["no user of account APP is configured"] == ["stream APP/B", "stream APP/C"]
    assert leader_page(unknown).lines[0] == "The leaders are distributed as evenly as their groups allow"


def test_a_server_that_is_drained_gets_none() -> None:
    plan = planned(with_server(SIX, server("n3", tags=(DRAIN_TAG,))))
    assert {move.target for move in plan.moves} == {"n2"}
    assert "n3" not in plan.after


def test_the_write_rates_of_led_groups_change_too() -> None:
    rates = {("APP", f"S{number}"): 100.0 if number < 3 else 0.0 for number in range(6)}
    plan = planned(SIX, rates=rates)
    assert {name: leads.rate for name, leads in plan.before.items()} == {"n1": 300.0, "n2": 0.0, "n3": 0.0}
    assert {name: leads.rate for name, leads in plan.after.items()} == {"n1": 100.0, "n2": 100.0, "n3": 100.0}
    assert (
        "n1 leads 6 streams, 0 consumers, 300 B/s; afterwards 2 streams, 0 consumers, 100 B/s"
        in leader_page(plan).lines
    )


def test_a_rate_counts_the_messages_between_two_samples() -> None:
    was, now = (replace(stream("A", THREE), last_seq=last, size=1000, messages=10) for last in (10, 30))
    emptied, new = replace(stream("B", THREE), last_seq=5), stream("NEW", THREE)
    rates = write_rates(cluster(THREE, was, emptied), cluster(THREE, now, emptied, new), 4.0)
    assert rates == {("APP", "A"): 500.0}


@given(clusters())
def test_no_move_needs_an_absent_server(among: Cluster) -> None:
    plan = planned(among)
    answering = {item.name for item in among.servers}
    for move in plan.moves:
        assert move.group.leader == move.source
        assert move.target in set(move.group.members) & answering
    for leads in ("streams", "consumers"):
        before, after = (
            sorted(getattr(item, leads) for item in figures.values()) for figures in (plan.before, plan.after)
        )
        assert sum(before) == sum(after)
        assert sum(number**2 for number in after) <= sum(number**2 for number in before)
