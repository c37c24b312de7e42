# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the configuration of a drill's temporary copy, and whether the drill's result proves that a failover would
succeed."""

from __future__ import annotations

import base64
import random
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.drill import (
    MARK,
    Counted,
    another,
    drill_config,
    drill_method,
    is_left,
    isolated,
    isolated_consumer,
    miscounted,
    no_room,
    sample,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.failover import (
    END_MIRROR,
    END_SOURCES,
    TAKE_OVER,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.record import (
    Checkpoint,
    Drill,
    drill_in,
    next_drill,
    with_record,
    without_failover,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.status import (
    Protected,
    RecoveryLimits,
    SideReading,
    judge,
    status_page,
)

ORDERS = Protected("APP", "ORDERS", "ORDERS")
NOW = "2026-11-24T12:00:10Z"
COPY: dict[str, Any] = {
    "name": "ORDERS",
    "mirror": {"name": "ORDERS", "external": {"api": "$JS.east.API"}},
    "mirror_direct": True,
    "republish": {"src": ">", "dest": "again.>"},
    "subject_transform": {"src": ">", "dest": "x.>"},
    "max_age": 5,
    "max_bytes": 100,
    "num_replicas": 3,
    "storage": "file",
    "placement": {"cluster": "west"},
    "metadata": {"owner": "me"},
}
DRILL = Drill(NOW, True, "", END_MIRROR, 90, 90, 2, 1.5, 0.4)


def site() -> SideReading:
    state = {"last_seq": 90, "first_seq": 1, "messages": 90, "last_ts": NOW}
    mirror = {"name": "ORDERS", "lag": 0, "active": 1}
    return SideReading(info={"config": COPY, "state": state, "ts": NOW, "mirror": mirror}, position=90)


def origin() -> SideReading:
    state = {"last_seq": 90, "first_seq": 1, "messages": 90, "last_ts": NOW}
    return SideReading(info={"config": {"name": "ORDERS", "subjects": ["orders.>"]}, "state": state, "ts": NOW})


def test_nothing_of_a_throw_away_copy_reaches_clients_or_removes_messages() -> None:
    config = drill_config(COPY, "ORDERS", END_MIRROR, 1)
    assert config["mirror"] == {"name": "ORDERS"} and config["name"] == "NATS_DR_DRILL_ORDERS"
    assert {key: config.get(key) for key in ("num_replicas", "placement", "max_bytes")} == {
        "num_replicas": 3,
        "placement": {"cluster": "west"},
        "max_bytes": 100,
    }
    assert not {"republish", "subject_transform", "subjects", "max_age", "mirror_direct"} & set(config)
    assert is_left(config, "ORDERS") and not is_left(config, "OTHER") and not is_left(COPY, "ORDERS")
    assert config["metadata"] == {MARK: "ORDERS"}
    taken = drill_config(COPY, "ORDERS", TAKE_OVER, 7)
    assert (taken["sources"], taken["first_seq"]) == ([{"name": "ORDERS"}], 7) and "mirror" not in taken
    given = {"republish": {"src": ">"}, "allow_rollup_hdrs": True, "allow_msg_ttl": True, "duplicate_window": 5}
    assert isolated(given) == {"allow_rollup_hdrs": True, "duplicate_window": 5}
    pushed = isolated_consumer({"name": "worker", "deliver_subject": "to.clients", "deliver_group": "all"}, "ORDERS")
    assert pushed["deliver_subject"] == "nats_dr.drill.ORDERS.deliver.worker" and pushed["deliver_group"] == "all"
    assert isolated_consumer({"name": "worker"}, "ORDERS") == {"name": "worker"}


def test_it_is_promoted_as_the_copy_would_be() -> None:
    sources = {"name": "ORDERS", "sources": [{"name": "ORDERS"}]}
    assert [drill_method(COPY, "ORDERS", release) for release in ((2, 10), (2, 11), (2, 12), (2, 15))] == [
        *(TAKE_OVER, TAKE_OVER),
        *(END_MIRROR, END_MIRROR),
    ]
    assert [drill_method(sources, "ORDERS", release) for release in ((2, 11), (2, 15))] == [TAKE_OVER, END_SOURCES]


@pytest.mark.parametrize(
    ("account", "replicas", "size", "refused"),
    [
        ({"storage": 50, "limits": {"max_storage": -1}}, 3, 1 << 40, False),
        ({"storage": 50, "limits": {"max_storage": 350}}, 3, 100, False),
        ({"storage": 51, "limits": {"max_storage": 350}}, 3, 100, True),
        ({"tiers": {"R3": {"storage": 10, "limits": {"max_storage": 110}}}}, 3, 100, False),
        ({"tiers": {"R3": {"storage": 11, "limits": {"max_storage": 110}}}}, 3, 100, True),
        ({"storage": 0, "limits": {}}, 1, 100, False),
    ],
)
def test_an_account_without_room_is_refused(account: dict[str, Any], replicas: int, size: int, refused: bool) -> None:
    assert bool(no_room(account, {"num_replicas": replicas}, size)) is refused
    memory = {"memory": 5, "limits": {"max_memory": 104, "max_storage": -1}}
    assert "memory" in no_room(memory, {"storage": "memory"}, 100)


def test_samples_are_spread_and_have_both_ends() -> None:
    chance = random.Random(5)
    for _round in range(500):
        first = chance.randint(1, 50)
        last = first + chance.randint(0, 200)
        count = chance.randint(0, 60)
        found = sample(first, last, count)
        assert (
            found == sorted(set(found)) and len(found) <= max(count, 0) and all(first <= one <= last for one in found)
        )
        if count > 1:
            assert (found[0], found[-1]) == (first, last) and len(found) == min(count, last - first + 1)


def test_a_growing_copy_bounds_the_number_of_messages() -> None:
    assert miscounted(30, Counted(30, 30)) == "" == miscounted(31, Counted(33, 29))
    assert "has 29 messages, but the site's copy has 30 up to the same sequence" in miscounted(29, Counted(30, 30))
    assert "had at most 30" in miscounted(31, Counted(30, 30))


def test_messages_differ_if_clients_see_a_difference() -> None:
    def headers(*lines: str) -> str:
        return base64.b64encode("\r\n".join(["NATS/1.0", *lines, "", ""]).encode()).decode()

    message = {"subject": "orders.1", "data": "eA==", "hdrs": headers("trace: 7"), "seq": 3}
    assert another(message, {**message, "seq": 9}) == ""
    assert another(message, {**message, "hdrs": headers("trace: 7", "Nats-Stream-Source: ORDERS 3 > >")}) == ""
    assert another({"subject": "a"}, {"subject": "a", "hdrs": headers("Nats-Stream-Source: ORDERS 3 > >")}) == ""
    assert another(message, {**message, "data": "eQ=="}) == "data"
    assert another(message, {**message, "subject": "orders.2"}) == "subject"
    assert another(message, {**message, "hdrs": headers("trace: 8")}) == "headers"


def test_the_last_drill_is_kept_with_when_one_succeeded() -> None:
    kept = next_drill(None, DRILL)
    assert kept.proven == NOW
    failed = next_drill(kept, replace(DRILL, time="2026-11-25T00:00:00Z", ok=False, reason="x" * 5000))
    assert failed.proven == NOW and len(failed.reason) == 300
    assert next_drill(None, replace(DRILL, ok=False)).proven == ""
    metadata = with_record({}, "ORDERS", failed)
    assert drill_in(without_failover(metadata, "ORDERS"), "ORDERS") == failed and drill_in(metadata, "OTHER") is None


def test_the_status_reports_the_last_drill() -> None:
    saved = Checkpoint(NOW, 90, 90, {"subjects": ["orders.>"]}, ())
    limits = RecoveryLimits(drill=3600.0)
    never = judge(ORDERS, origin(), site(), saved, None, limits)
    assert never.problems == ("no failover drill has succeeded yet",) and not never.in_order
    assert judge(ORDERS, origin(), site(), saved).in_order
    kept = next_drill(None, replace(DRILL, time="2026-11-24T11:30:10Z"))
    fresh = judge(ORDERS, origin(), site(), saved, None, limits, kept)
    assert (
        fresh.in_order
        and fresh.drill_age == 1800.0
        and "30m ago" in "".join(status_page("east", "west", [fresh]).lines)
    )
    (problem,) = judge(ORDERS, origin(), site(), saved, None, RecoveryLimits(drill=60.0), kept).problems
    assert problem.startswith("the last drill was 30m")
    ahead = next_drill(None, replace(DRILL, time="2026-11-25T12:00:10Z"))
    (problem,) = judge(ORDERS, origin(), site(), saved, None, limits, ahead).problems
    assert problem.startswith("the last drill is dated in the future (2026-11-25T12:00:10Z): check the clocks")
    failed = judge(
        ORDERS, origin(), site(), saved, None, limits, next_drill(kept, replace(DRILL, ok=False, reason="no room"))
    )
    assert failed.problems == ("the last drill of a failover failed: no room",)
    assert "failed" in "".join(status_page("east", "west", [failed]).lines)
