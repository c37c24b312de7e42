# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which messages are missing at a second site, its checkpoint, and the conditions for a failover."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.dr import failover as dr_failover
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.failback import (
    returned_config,
    returning_config,
    returning_floor,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.failover import (
    DEAD,
    END_MIRROR,
    END_SOURCES,
    PERMISSIONS,
    SEALED,
    SUBJECTS,
    TAKE_OVER,
    FailoverOptions,
    FailoverPlan,
    FailoverRefusal,
    again,
    floor_at,
    plan_failover,
    plan_lines,
    promoted_config,
    promotion,
    require_still,
    take_over_config,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.record import (
    DONE,
    MAX_BYTES,
    Checkpoint,
    Failover,
    RecordError,
    checkpoint_in,
    failover_in,
    fenced_subject,
    record_config,
    record_stream,
    saved_consumer,
    with_record,
    without_failover,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.run_failover import last_at_or_before
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.status import (
    BEHIND,
    DISCONNECTED,
    DIVERGED,
    FOLLOWING,
    MISSING,
    ORIGIN_SILENT,
    PROMOTED,
    SITE_SILENT,
    UNRELATED,
    Protected,
    RecoveryLimits,
    SideReading,
    judge,
    status_page,
)

ORDERS = Protected("APP", "ORDERS", "ORDERS")
NOW = "2026-11-24T12:00:10Z"
SILENT = SideReading(problem="no reply within 5 s")


def consumer(name: str, floor: int, delivered: int = 0, durable: bool = True, **config: Any) -> dict[str, Any]:
    own = {"durable_name": name} if durable else {}
    reached = {"stream_seq": max(floor, delivered), "consumer_seq": max(floor, delivered)}
    return {"name": name, "config": {**own, **config}, "ack_floor": {"stream_seq": floor}, "delivered": reached}


def origin(
    last: int, oldest: str | None = None, consumers: tuple[dict[str, Any], ...] = (), **config: Any
) -> SideReading:
    state = {"last_seq": last, "first_seq": 1, "messages": last, "last_ts": "2026-11-24T12:00:09Z"}
    info = {"config": {"name": "ORDERS", "subjects": ["orders.>"], **config}, "state": state, "ts": NOW}
    return SideReading(info=info, consumers={row["name"]: row for row in consumers}, oldest=oldest)


def site(last: int, active: float = 0.5, lag: int = 0, error: str = "", **config: Any) -> SideReading:
    state = {"last_seq": last, "first_seq": 1, "messages": last, "last_ts": "2026-11-24T12:00:05.123456789Z"}
    mirror: dict[str, Any] = {"name": "ORDERS", "lag": lag, "active": int(active * 1e9)}
    if error:
        mirror["error"] = {"description": error}
    config = {"name": "ORDERS", "mirror": {"name": "ORDERS"}, **config}
    return SideReading(info={"config": config, "state": state, "ts": NOW, "mirror": mirror}, position=last)


def checkpoint(last: int = 95, consumers: tuple[dict[str, Any], ...] = (), taken: str = NOW) -> Checkpoint:
    config = {"name": "ORDERS", "subjects": ["orders.>"], "duplicate_window": 120_000_000_000}
    return Checkpoint(taken, last, last, config, tuple(saved_consumer(row) for row in consumers))


FAILOVER = Failover(
    phase=DONE,
    started=NOW,
    fence=SUBJECTS,
    method=END_MIRROR,
    target="ORDERS",
    subjects=("orders.>",),
    promised={"messages": 0},
    position=90,
    last_copied=90,
    consumers=(),
    origin_config={},
    finished=NOW,
)


# --- status -------------------------------------------------------------------------------------------------------------


def test_loss_is_known_while_both_sides_answer() -> None:
    row = judge(ORDERS, origin(100), site(100))
    assert (row.state, row.behind, row.loss.known, row.loss.text) == (FOLLOWING, 0, True, "nothing")
    row = judge(ORDERS, origin(100, oldest="2026-11-24T12:00:06Z"), site(90))
    assert (row.state, row.behind, row.seconds_behind) == (BEHIND, 10, 4.0)
    assert row.loss.text == "at most 10 messages, from the last 4s"
    # Messages that were deleted at the end of the origin's stream do not count as missing at the site.
    assert judge(ORDERS, origin(100), site(90)).behind == 0


@pytest.mark.parametrize("lag", [0, 7])
def test_the_lag_of_a_dead_origin_is_unknown(lag: int) -> None:
    row = judge(ORDERS, SILENT, site(90, active=3600, lag=lag), checkpoint(95))
    assert (row.state, row.behind, row.loss.known) == (ORIGIN_SILENT, None, False)
    assert row.loss.messages == max(lag, 5)
    assert "unknown, at least" in row.loss.text and "after sequence 90 of 2026-11-24T12:00:05Z" in row.loss.text
    assert "last contact 1h ago" in row.loss.text and not row.in_order
    (line,) = [line for line in status_page("east", "west", [row]).lines if "lost is unknown" in line]
    assert line.startswith("APP/ORDERS: ")


@pytest.mark.parametrize(
    ("at_origin", "at_site", "state"),
    [
        (origin(100, oldest=NOW), site(90, active=60), DISCONNECTED),
        (origin(100), site(100, active=-1e-9), DISCONNECTED),
        (origin(100), site(100, error="no permission"), DISCONNECTED),
        (origin(80), site(90), DIVERGED),
        (SideReading(), site(90), DIVERGED),
        (origin(100), SideReading(), MISSING),
        (origin(100), SILENT, SITE_SILENT),
        (origin(100), replace(site(90, mirror={"name": "OTHER"}), position=None), UNRELATED),
    ],
)
def test_obstacles_to_a_failover_are_reported(at_origin: SideReading, at_site: SideReading, state: str) -> None:
    row = judge(ORDERS, at_origin, at_site, checkpoint())
    assert row.state == state and row.problems and not row.in_order
    assert any(state in line for line in status_page("east", "west", [row]).lines)


def test_limits_are_problems() -> None:
    late = judge(
        ORDERS, origin(100, oldest="2026-11-24T12:00:00Z"), site(90), checkpoint(), None, RecoveryLimits(5, 5.0)
    )
    assert late.problems == (
        "RPO exceeded: 10 messages, the limit is 5",
        "RPO exceeded: 10s, the limit is 5s",
    )
    assert judge(ORDERS, origin(100, oldest=NOW), site(90), checkpoint(), None, RecoveryLimits(10, 5.0)).in_order
    silent = judge(ORDERS, SILENT, site(90, active=-1e-9), checkpoint(), None, RecoveryLimits(seconds=5.0))
    assert "RPO exceeded: unknown, the limit is 5s" in silent.problems
    old = checkpoint(taken="2026-11-24T11:00:00Z")
    (problem,) = judge(ORDERS, origin(90), site(90), old, None, RecoveryLimits(checkpoint=60)).problems
    assert problem.startswith("the checkpoint is 1h")
    # The clock of the origin was ahead by a day; a difference of up to a minute is tolerated.
    (problem,) = judge(ORDERS, origin(90), site(90), checkpoint(taken="2026-11-25T12:00:00Z")).problems
    assert problem.startswith("the checkpoint is dated in the future (2026-11-25T12:00:00Z): check the clocks")
    near = checkpoint(taken="2026-11-24T12:01:00Z")
    assert judge(ORDERS, origin(90), site(90), near, None, RecoveryLimits(checkpoint=60)).in_order


def test_floors_of_consumers_are_those_of_both() -> None:
    worker = consumer("worker", 50)
    row = judge(ORDERS, origin(90, consumers=(worker, consumer("fresh", 10))), site(90), checkpoint(90, (worker,)))
    assert [(one.name, one.origin, one.saved) for one in row.consumers] == [("fresh", 10, None), ("worker", 50, 50)]
    assert "2, 1 ahead of the checkpoint" in "\n".join(status_page("east", "west", [row]).lines)
    row = judge(ORDERS, SILENT, site(90), checkpoint(90, (worker,)))
    assert [(one.name, one.origin, one.saved) for one in row.consumers] == [("worker", None, 50)]
    assert "no checkpoint" in judge(ORDERS, origin(90, consumers=(worker,)), site(90)).problems[0]


def test_an_origin_that_accepts_messages_beside_a_promoted_stream_is_a_split_brain() -> None:
    """The origin returned after it was declared dead, or its own configuration restored its subjects."""
    row = judge(ORDERS, origin(140), SideReading(info=origin(120).info), checkpoint(), FAILOVER)
    assert (row.state, row.in_order) == (PROMOTED, False)
    (problem,) = row.problems
    assert problem.startswith("split brain: the origin accepts messages for stream ORDERS again")
    assert "50 messages of the origin did not reach the site" in problem
    assert "0 messages" in judge(ORDERS, origin(3), SideReading(info=origin(120).info), None, FAILOVER).problems[0]


def test_an_unfinished_failback_is_not_a_split_brain() -> None:
    promoted = SideReading(info=origin(120).info)
    (problem,) = judge(ORDERS, origin(140), promoted, checkpoint(), FAILOVER, fenced=True).problems
    assert problem == "the failback of stream ORDERS is unfinished, and the origin accepts messages: run it again"
    (problem,) = judge(ORDERS, SILENT, promoted, checkpoint(), FAILOVER, fenced=True).problems
    assert problem == "the failback of stream ORDERS is unfinished, and the origin does not answer: run it again"


def test_an_unfinished_failover_is_never_in_order() -> None:
    """One failover was killed after the origin was fenced, another after the promotion; the origin of the second has
    since returned."""
    unfinished = "the failover of stream ORDERS is unfinished, and"
    begun, fenced = replace(FAILOVER, phase="promote"), origin(90, subjects=[fenced_subject("ORDERS")])
    row = judge(ORDERS, fenced, site(90), checkpoint(), begun)
    assert (row.state, row.in_order) == (FOLLOWING, False)
    assert row.problems == (f"{unfinished} neither side accepts messages: run it again",)
    promoted = SideReading(info=origin(90).info)
    row = judge(ORDERS, fenced, promoted, checkpoint(), begun, serving=True)
    assert row.state == PROMOTED and row.problems == (f"{unfinished} the site accepts messages: run it again",)
    split, last = judge(ORDERS, origin(95), promoted, checkpoint(), begun, serving=True).problems
    assert "split brain" in split and last == f"{unfinished} both sides accept messages: run it again"
    (problem,) = judge(ORDERS, origin(90), site(90), checkpoint(), replace(FAILOVER, phase="fence")).problems
    assert problem == f"{unfinished} the origin accepts messages: run it again"


def test_a_promoted_stream_is_in_order() -> None:
    row = judge(ORDERS, SILENT, SideReading(info=origin(120).info), checkpoint(), FAILOVER)
    assert (row.state, row.in_order, row.loss.messages) == (PROMOTED, True, 0)
    for closed in ({"subjects": [fenced_subject("ORDERS")]}, {"sealed": True}):
        assert judge(ORDERS, origin(95, **closed), SideReading(info=origin(120).info), checkpoint(), FAILOVER).in_order
    assert judge(ORDERS, SILENT, site(90), None, replace(FAILOVER, phase="promote")).state == ORIGIN_SILENT


# --- records ------------------------------------------------------------------------------------------------------------


def test_records_come_back_and_do_not_mix() -> None:
    saved = checkpoint(95, (consumer("worker", 50, 60),))
    metadata = with_record({"owner": "me"}, "ORDERS", saved)
    metadata = with_record(with_record(metadata, "ORDERS", FAILOVER), "OTHER", checkpoint(1))
    assert checkpoint_in(metadata, "ORDERS") == saved and checkpoint_in(metadata, "OTHER") == checkpoint(1)
    assert failover_in(metadata, "ORDERS") == FAILOVER and failover_in(metadata, "OTHER") is None
    assert failover_in(without_failover(metadata, "ORDERS"), "ORDERS") is None
    assert metadata["owner"] == "me" and checkpoint_in({}, "ORDERS") is None


def test_records_that_cannot_be_kept_or_read_are_refused() -> None:
    many = tuple(consumer(f"{random.random()}-{number}", number) for number in range(20_000))
    with pytest.raises(RecordError, match=f"the servers accept {MAX_BYTES}"):
        with_record({}, "ORDERS", checkpoint(1, many))
    hundreds = tuple(consumer(f"worker-{number}", number, filter_subject=f"orders.{number}") for number in range(2000))
    with_record({}, "ORDERS", checkpoint(1, hundreds))
    for broken in ("no base64", "bm8gemxpYg=="):
        with pytest.raises(RecordError, match="cannot be parsed"):
            checkpoint_in({"checkpoint.ORDERS": broken}, "ORDERS")
    with pytest.raises(RecordError, match="not the name of a site"):
        record_stream("west.eu")
    config = record_config("west", {"num_replicas": 3, "placement": {"cluster": "west"}}, {})
    assert config["name"] == "NATS_DR_west" and config["num_replicas"] == 3 and config["subjects"] == ["nats_dr.west"]


def test_a_consumer_that_delivered_nothing_is_where_it_begins() -> None:
    row = {"name": "fresh", "config": {"deliver_policy": "new"}, "ack_floor": {"consumer_seq": 0, "stream_seq": 0}}
    begun = {**row, "delivered": {"consumer_seq": 0, "stream_seq": 30}}
    assert saved_consumer(begun)["ack_floor"] == {"stream_seq": 30}
    delivered = {**row, "delivered": {"consumer_seq": 2, "stream_seq": 30}}
    assert saved_consumer(delivered)["ack_floor"] == {"stream_seq": 0}


# --- failover -----------------------------------------------------------------------------------------------------------


def plan(
    at_origin: SideReading,
    at_site: SideReading,
    wanted: FailoverOptions,
    saved: Checkpoint | None = None,
    release: tuple[int, int] = (2, 15),
    protected: Protected = ORDERS,
) -> FailoverPlan:
    status = judge(protected, at_origin, at_site, saved)
    return plan_failover(status, at_origin, at_site, saved, release, "east", wanted)


@pytest.mark.parametrize(
    ("at_origin", "at_site", "options", "code"),
    [
        (origin(100), site(100), FailoverOptions(DEAD, "east"), "origin_answers"),
        (SILENT, site(100), FailoverOptions(DEAD, "west"), "not_fenced"),
        (SILENT, site(100), FailoverOptions(DEAD), "not_fenced"),
        (SILENT, site(100), FailoverOptions(SUBJECTS), "origin_silent"),
        (SILENT, site(100), FailoverOptions(PERMISSIONS), "origin_silent"),
        (SILENT, site(100), FailoverOptions(SEALED), "origin_silent"),
        (origin(100), site(100), FailoverOptions(SEALED), "not_fenced"),
        (origin(100), SideReading(), FailoverOptions(SUBJECTS), "no_copy"),
        (origin(100), SILENT, FailoverOptions(SUBJECTS), "no_copy"),
        (origin(80), site(100), FailoverOptions(SUBJECTS), "no_copy"),
        (SideReading(), site(100), FailoverOptions(SUBJECTS), "no_copy"),
        (SILENT, site(50), FailoverOptions(DEAD, "east", max_loss=10), "loss"),
        (origin(100, subjects=[]), site(100), FailoverOptions(SUBJECTS), "no_subjects"),
        (replace(origin(100), unknown={"worker": "no leader"}), site(100), FailoverOptions(SUBJECTS), "leaderless"),
    ],
)
def test_nothing_is_promoted_while_the_origin_may_take_messages(
    at_origin: SideReading, at_site: SideReading, options: FailoverOptions, code: str
) -> None:
    with pytest.raises(FailoverRefusal) as refused:
        plan(at_origin, at_site, options, checkpoint())
    assert refused.value.code == code


def test_without_a_checkpoint_a_dead_origin_needs_subjects() -> None:
    for protected, wanted in (
        (ORDERS, FailoverOptions(DEAD, "east", consumers=False)),
        (replace(ORDERS, subjects=("orders.>",)), FailoverOptions(DEAD, "east")),
    ):
        with pytest.raises(FailoverRefusal) as refused:
            plan(SILENT, site(90), wanted, protected=protected)
        assert refused.value.code == "no_checkpoint"
    given = replace(ORDERS, subjects=("orders.>",))
    assert plan(SILENT, site(90), FailoverOptions(DEAD, "east", consumers=False), protected=given).consumers == ()


def test_a_fenced_origin_has_the_subjects_of_its_checkpoint() -> None:
    fenced = origin(90, subjects=[fenced_subject("ORDERS")])
    assert plan(fenced, site(90), FailoverOptions(SUBJECTS), checkpoint()).subjects == ("orders.>",)
    with pytest.raises(FailoverRefusal) as refused:
        plan(fenced, site(90), FailoverOptions(SUBJECTS))
    assert refused.value.code == "no_checkpoint"


def test_a_mirror_is_promoted_by_its_release() -> None:
    mirror, sources = {"mirror": {"name": "ORDERS"}}, {"sources": [{"name": "ORDERS"}]}
    assert [promotion(mirror, "ORDERS", release) for release in ((2, 10), (2, 11), (2, 12), (2, 15))] == [
        *(TAKE_OVER, TAKE_OVER),
        *(END_MIRROR, END_MIRROR),
    ]
    assert promotion(sources, "ORDERS", (2, 10)) == END_SOURCES
    with pytest.raises(FailoverRefusal) as refused:
        plan(origin(90), site(90), FailoverOptions(SUBJECTS), release=(2, 10))
    assert refused.value.code == "needs_name"
    named = replace(ORDERS, promoted="SERVING")
    assert plan(origin(90), site(90), FailoverOptions(SUBJECTS), release=(2, 11), protected=named).target == "SERVING"
    config = take_over_config({"name": "ORDERS", "mirror": {"name": "ORDERS"}, "mirror_direct": True}, "SERVING", 5)
    assert config == {
        "name": "SERVING",
        "sources": [{"name": "ORDERS"}],
        "duplicate_window": dr_failover.SHORTEST_WINDOW,
        "first_seq": 5,
    }


def test_a_promoted_stream_has_subjects_and_the_settings_clients_rely_on() -> None:
    made = plan(origin(90, allow_rollup_hdrs=True, duplicate_window=5), site(90), FailoverOptions(SUBJECTS))
    config = promoted_config(
        {"name": "ORDERS", "mirror": {"name": "ORDERS"}, "mirror_direct": True, "max_age": 7}, made
    )
    assert config == {
        "name": "ORDERS",
        "max_age": 7,
        "subjects": ["orders.>"],
        "allow_rollup_hdrs": True,
        "duplicate_window": 5,
    }


def test_floors_are_never_above_the_last_message_of_the_site() -> None:
    for floor in range(12):
        for position in range(12):
            entry = consumer("worker", floor, floor + 3)
            assert floor_at(entry, position) <= position and floor_at(entry, position) <= floor
            assert 0 <= again(entry, position) <= 3
    assert again(consumer("worker", 8, 12), 30) == 4


def test_the_plan_names_the_consumers_that_are_not_kept() -> None:
    consumers = (consumer("worker", 5), consumer("temporary", 5, durable=False))
    made = plan(SILENT, site(90), FailoverOptions(DEAD, "east"), checkpoint(90, consumers))
    lines = "\n".join(plan_lines(made, "east", "west"))
    assert "may be stored again" in lines and "recreated by their clients: temporary" in lines
    assert "consumers resume at their checkpoint positions" in lines and "consumers: worker" in lines
    queue = plan(origin(90, retention="workqueue"), site(90), FailoverOptions(SUBJECTS))
    assert any("retention workqueue" in caveat for caveat in queue.caveats)


def test_an_origin_that_is_watched_must_not_take_a_message() -> None:
    require_still(7, 7, ORDERS, 10)
    with pytest.raises(FailoverRefusal, match="received 2 messages"):
        require_still(7, 9, ORDERS, 10)


def first_from(ours: dict[int, int], number: int) -> tuple[int, int] | None:
    """Return the first sequence at the site that is not below `number`, and that message's sequence at the origin."""
    return next(((seq, ours[seq]) for seq in sorted(ours) if seq >= number), None)


def test_sequences_are_mapped_where_messages_are_missing() -> None:
    chance = random.Random(7)
    for _round in range(200):
        sources = sorted(chance.sample(range(1, 60), chance.randint(0, 20)))
        first = chance.randint(1, 5)
        ours = dict(enumerate(sources, first))

        find_source = partial(first_from, ours)

        last = first + len(sources) - 1
        for wanted in range(61):
            expected = max([seq for seq, source in ours.items() if source <= wanted], default=first - 1)
            assert last_at_or_before(find_source, first, last, wanted) == expected


# --- failback -----------------------------------------------------------------------------------------------------------


def test_the_origin_gets_only_messages_written_at_the_site() -> None:
    config = returning_config({"name": "ORDERS", "subjects": ["orders.>"], "max_age": 7}, "ORDERS", FAILOVER, "west")
    assert config["sources"] == [
        {"name": "ORDERS", "opt_start_seq": 91, "external": {"api": "$JS.west.API", "deliver": ""}}
    ]
    assert (
        config["subjects"] == [fenced_subject("ORDERS")] and config["duplicate_window"] == dr_failover.SHORTEST_WINDOW
    )
    assert "external" not in returning_config({}, "ORDERS", FAILOVER, None)["sources"][0]
    failover = replace(FAILOVER, origin_config={"subjects": ["orders.>"], "duplicate_window": 5})
    assert returned_config(config, failover) == {
        "name": "ORDERS",
        "subjects": ["orders.>"],
        "max_age": 7,
        "duplicate_window": 5,
    }


def test_no_consumer_skips_a_message_when_it_goes_back() -> None:
    """The origin has the messages 1 to `last`, and the site has those up to `position`; its later messages were written
    at the site."""
    chance = random.Random(3)
    for _round in range(2000):
        position = chance.randint(0, 9)
        last = position + chance.choice([0, chance.randint(0, 5)])
        written = chance.randint(0, 6)
        failover = replace(FAILOVER, position=position, last_copied=position)
        at_origin = chance.randint(0, last)
        at_site = chance.randint(min(at_origin, position), position + written)
        found = returning_floor(at_origin, at_site, failover, last, lambda seq: seq, lambda seq: last + seq - position)  # noqa: B023
        processed = {*range(1, at_origin + 1), *range(1, min(at_site, position) + 1)}
        processed |= {last + number for number in range(1, at_site - position + 1)}
        assert set(range(1, found.floor + 1)) <= processed
        repeated = {seq for seq in processed if seq > max(found.floor, last)}
        assert found.again >= len(repeated)
