# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gold reports the truth of a synthetic fleet: two days with a restart, and an upgrade over midnight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.gold.common import DEFAULTS, GoldSettings
from jetstream_insights.gold.health import logged
from jetstream_insights.gold_job import make_gold
from jetstream_insights.lake import Lake, day_hours
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.fleet import ACCOUNT_LIMIT, RESIZED, START, VERSION, Fleet, Stream
from support.lakes import few_gold_tables, published_rows
from support.two_days import BOTH, DAY, FLEET, HOUR, MOMENTS, NEWER, ONE_CLUSTER, STEP

FIRST = [at for at in MOMENTS if at < DAY]
SECOND = [at for at in MOMENTS if at >= DAY]


@dataclass(frozen=True)
class Gold:
    """The gold tables of the two days."""

    days: list[dict[str, list[dict[str, Any]]]]

    def rows(self, table: str, day: int = 0, **wanted: Any) -> list[dict[str, Any]]:
        wanted["fleet"] = ONE_CLUSTER
        return [row for row in self.days[day][table] if all(row[name] == value for name, value in wanted.items())]


@pytest.fixture(scope="module")
def gold(two_days: Lake) -> Gold:
    return Gold([published_rows(Path(two_days.uri), "gold", day) for day in BOTH])


def at(moment: datetime) -> float:
    """Return a moment in seconds after the fleet's start."""
    return moment.timestamp() - START.timestamp()


def state(stream: Stream, moment: float) -> str:
    if FLEET.leader(stream, moment) is None:
        return "no_leader"
    return "not_redundant" if any(FLEET.down(server, moment) for server in stream.replicas) else "ok"


@dataclass(frozen=True)
class Change:
    stream: Stream
    taken: float
    before: float
    old: int
    new: int


def elections(moments: list[float]) -> Iterator[Change]:
    """Yield the changes of streams' leaders that snapshots at these moments can see."""
    for stream in FLEET.assets:
        led: tuple[float, int] | None = None
        lost = False
        for moment in moments:
            leader = FLEET.leader(stream, moment)
            if leader is None:
                lost = True
                continue
            if led is not None and (led[1] != leader or (lost and len(stream.replicas) > 1)):
                yield Change(stream, moment, led[0], led[1], leader)
            led, lost = (moment, leader), False


def faulty(fault: str) -> list[Stream]:
    found = [stream for stream in FLEET.assets if getattr(stream, fault)]
    assert found, f"the fleet has no stream that is {fault}: take another seed"
    return found


def rate(stream: Stream) -> float:
    """Return how many messages per second the snapshots of the first day show."""
    seen = [one for one in FIRST if FLEET.leader(stream, one) is not None]
    return (FLEET.written(stream, seen[-1]) - FLEET.written(stream, seen[0])) / (seen[-1] - seen[0])


def test_load_and_balance(gold: Gold) -> None:
    moment = FIRST[-1]
    living = [server for server in range(5) if not FLEET.down(server, moment)]
    leaders = Counter(FLEET.leader(stream, moment) for stream in FLEET.assets)
    load = {row["server"]: row for row in gold.rows("load")}
    assert set(load) == {FLEET.name(server) for server in living}
    for server in living:
        row = load[FLEET.name(server)]
        mine = [stream for stream in FLEET.assets if server in stream.replicas]
        assert (row["stream_leaders"], row["consumer_leaders"]) == (leaders[server], leaders[server])
        assert (row["replicas"], row["zone"]) == (len(mine), "abc"[server % 3])
        assert row["bytes"] == sum(FLEET.detail(stream, server, moment)["state"]["bytes"] for stream in mine)
        wanted = 0.0
        for stream in mine:
            if FLEET.leader(stream, moment) == server:
                wanted += rate(stream)
        assert row["write_msgs"] == pytest.approx(wanted)
    rates = {stream.name: rate(stream) for stream in FLEET.assets}
    for row in gold.rows("report_streams"):
        if row["messages"]:
            assert row["write_bytes"] == pytest.approx(rates[row["stream"]] * row["bytes"] / row["messages"])
    (row,) = gold.rows("balance", scope="server", measure="stream_leaders")
    counts = sorted(leaders[server] for server in living)
    total = sum(counts)
    assert (row["members"], row["total"], row["max"], row["min"]) == (4, total, counts[-1], counts[0])
    optimum = -(-total // 4)
    assert (row["optimum"], row["excess"], row["distance"]) == (
        optimum,
        counts[-1] - optimum,
        (counts[-1] - optimum) / optimum,
    )
    assert row["max_to_mean"] == pytest.approx(counts[-1] / (total / 4))
    assert row["gini"] == pytest.approx(sum((2 * i - 4 - 1) * x for i, x in enumerate(counts, 1)) / (4 * total))
    assert leaders[int(row["max_name"][1:]) - 1] == counts[-1]
    (zones,) = gold.rows("balance", scope="zone", measure="replicas")
    assert zones["members"] == len({server % 3 for server in living})


def test_availability_is_the_time_between_samples(gold: Gold) -> None:
    found = {row["stream"]: row for row in gold.rows("availability", kind="stream")}
    assert set(found) == {stream.name for stream in FLEET.assets}
    for stream in FLEET.assets:
        states = [state(stream, moment) for moment in FIRST]

        def spent(*wanted: str, states: list[str] = states) -> float:
            return sum(STEP * ((old in wanted) + (new in wanted)) / 2 for old, new in zip(states, states[1:]))

        row = found[stream.name]
        assert (row["seconds"], row["unknown"]) == (pytest.approx(FIRST[-1] - FIRST[0]), 0.0)
        assert row["with_leader"] == row["with_quorum"] == pytest.approx(spent("ok", "not_redundant")), stream
        assert row["redundant"] == pytest.approx(spent("ok"))
        assert row["met"] == (row["quorum_ratio"] >= 0.999)
    # An interval that spans midnight belongs to the day in which it ends.
    (row,) = gold.rows("availability", 1, kind="meta")
    assert row["seconds"] == pytest.approx(SECOND[-1] - FIRST[-1])
    servers = {row["server"]: row for row in gold.rows("server_availability")}
    away = {server: sum(FLEET.down(server, moment) for moment in FIRST) for server in range(5)}
    assert {name: row["answered"] for name, row in servers.items()} == {
        FLEET.name(server): len(FIRST) - away[server] for server in range(5)
    }


def test_restarts_over_midnight_are_found(gold: Gold) -> None:
    (row,) = gold.rows("restarts")
    assert (row["server"], at(row["start"]), row["upgraded"]) == ("n2", 21.5 * HOUR + 300, False)
    assert (at(row["before"]), row["down"]) == (21 * HOUR, 2100.0)
    (row,) = gold.rows("restarts", 1)
    assert (row["server"], at(row["start"]), row["old_version"], row["version"]) == ("n3", 24.4 * HOUR, VERSION, NEWER)
    assert (row["upgraded"], row["maintenance"], at(row["before"])) == (True, True, 23 * HOUR + 40 * 60)


def test_elections_and_storms(gold: Gold) -> None:
    expected = list(elections(FIRST))
    found = {
        (row["stream"], at(row["taken"]), at(row["before"]), row["old_leader"], row["new_leader"]): row
        for row in gold.rows("leader_changes", kind="stream")
    }
    named = {
        (change.stream.name, change.taken, change.before, FLEET.name(change.old), FLEET.name(change.new)): change
        for change in expected
    }
    assert set(found) == set(named)
    # The fleet's consumers are led by the same servers as their streams.
    assert len(gold.rows("leader_changes", kind="consumer")) == len(expected)
    storms = {row["storm"]: row for row in gold.rows("storms")}
    (restart,) = [row for row in storms.values() if row["server"] == "n2" and at(row["end"]) == 21 * HOUR + 600]
    left = [change for change in expected if change.old == 1 and change.taken == 21 * HOUR + 600 and change.new != 1]
    assert (restart["cause"], restart["streams"], restart["consumers"]) == ("restart", len(left), len(left))
    assert (restart["groups"], restart["maintenance"]) == (2 * len(left), False)
    (upgrade,) = [row for row in storms.values() if row["server"] == "n3" and at(row["end"]) == 23 * HOUR + 50 * 60]
    # Only the next day shows that this is an upgrade.
    assert (upgrade["cause"], upgrade["maintenance"]) == ("missing", True)
    assert all(found[key]["old_leader_left"] for key, change in named.items() if change in left)
    flapping = {row["stream"]: row for row in gold.rows("leadership", kind="stream")}
    for stream in FLEET.assets:
        mine = [row for row in found.values() if row["stream"] == stream.name]
        counted = sorted(at(row["taken"]) for row in mine if row["storm"] is None and not row["maintenance"])
        score, peak, last = 0.0, 0.0, 0.0
        for moment in counted:
            score = score * 0.5 ** ((moment - last) / 1800) + 1
            peak, last = max(peak, score), moment
        row = flapping[stream.name]
        assert (row["elections"], row["counted"]) == (len(mine), len(counted)), stream
        assert row["flap"] == pytest.approx(peak)
    worst = max(flapping.values(), key=lambda row: row["flap"])
    assert worst["stream"] in {stream.name for stream in faulty("flaps")}
    assert worst["most_in_10m"] >= 1


def test_incidents_have_a_begin_an_end_and_causes(gold: Gold) -> None:
    (row,) = gold.rows("incidents", incident="server_missing", server="n2")
    assert (at(row["before"]), at(row["begin"]), at(row["end"])) == (21 * HOUR, 21 * HOUR + 600, 21 * HOUR + 2400)
    assert (row["snapshots"], row["seconds"], row["continues"], row["maintenance"]) == (3, 1800.0, False, False)
    assert [(cause["cause"], cause["detail"]) for cause in row["causes"][:2]] == [
        ("log", "1 × no_space"),
        ("restart", ""),
    ]
    assert at(row["causes"][0]["at"]) == 21 * HOUR + 299
    (row,) = gold.rows("incidents", incident="server_missing", server="n3")
    assert (row["continues"], row["end"], row["maintenance"]) == (True, None, True)
    (row,) = gold.rows("incidents", 1, incident="server_missing", server="n3")
    assert (row["began_before"], at(row["end"]), row["causes"][0]["cause"]) == (True, 24.5 * HOUR, "upgrade")
    lost = {stream.name for stream in FLEET.assets if any(state(stream, moment) == "no_leader" for moment in FIRST)}
    found = gold.rows("incidents", incident="no_leader", kind="stream")
    assert {row["stream"] for row in found} == lost
    for row in found:
        first = next(iter(row["causes"]))
        assert (first["cause"], first["server"]) in {("log", "n2"), ("server_missing", "n3")}, row
    second = gold.rows("incidents", 1, incident="no_leader", kind="stream")
    assert {row["stream"] for row in second} == {
        stream.name for stream in FLEET.assets if any(state(stream, moment) == "no_leader" for moment in SECOND)
    }
    assert all(row["began_before"] for row in second)


def test_log_events_have_the_collectors_time(spark: SparkSession) -> None:
    """The server's clock is ahead by a minute and a half. Lines without a cause are omitted, and a line that appears in
    two hours is one row."""
    time = START + timedelta(seconds=90)
    reported = [
        ("f", snapshot, "n1", time, kind, "line") for snapshot in ("s1", "s2") for kind in ("route", "leader", None)
    ]
    lines = spark.createDataFrame(
        reported, "fleet string, snapshot string, server string, time timestamp, kind string, text string"
    )
    clocks = spark.createDataFrame(
        [("f", "s1", "n1", 90.0)], "fleet string, snapshot string, server string, ahead double"
    )
    (row,) = logged(lines, clocks).collect()
    assert (row["member"], row["kind"], row["rank"], at(row["at"])) == ("n1", "route", 3, 0.0)


def test_stuck_redelivering_and_growing_consumers_are_found(gold: Gold) -> None:
    end = FIRST[-1]
    found = {row["stream"]: row for row in gold.rows("consumer_lag")}
    by_state = {
        name: {row["stream"] for row in found.values() if row["state"] == name}
        for name in ("stuck", "redelivering", "growing")
    }

    def since(stream: Stream, begin: float) -> Callable[[float], bool]:
        return lambda moment: begin <= moment and FLEET.written(stream, moment) > FLEET.written(stream, begin)

    seen = {
        stream.name: [moment for moment in FIRST if FLEET.leader(stream, moment) is not None] for stream in FLEET.assets
    }
    for stream in faulty("stuck"):
        behind = [moment for moment in seen[stream.name] if since(stream, stream.stuck)(moment)]
        if behind and seen[stream.name][-1] - behind[0] >= 2 * 900:
            assert stream.name in by_state["stuck"], found[stream.name]
    assert by_state["stuck"] <= {stream.name for stream in faulty("stuck")}
    looping = {stream.name for stream in faulty("looping") if stream.looping <= seen[stream.name][-1] - 2 * 900}
    assert looping <= by_state["redelivering"] <= {stream.name for stream in faulty("looping")}
    assert all(found[name]["redeliveries"] > 0 for name in by_state["redelivering"])
    slow = {stream.name for stream in faulty("slow") if stream.rate * STEP > 4}
    assert slow <= by_state["growing"]
    assert all(found[name]["trend"] == pytest.approx(1.0) and found[name]["catch_up"] is None for name in slow)
    well = [stream for stream in FLEET.assets if not (stream.stuck or stream.looping or stream.slow)]
    assert all(found[stream.name]["state"] == "current" and found[stream.name]["catch_up"] == 0 for stream in well)
    # A lag that had stalled at midnight continues.
    second = {row["stream"]: row for row in gold.rows("consumer_lag", 1)}
    for name in by_state["stuck"] & {row["stream"] for row in second.values() if row["state"] == "stuck"}:
        assert second[name]["stuck_since"] == found[name]["stuck_since"]
    assert end == max(at(row["end"]) for row in found.values())


def test_day_is_recomputed_after_the_previous_day_changed_settings(spark: SparkSession, tmp_path: Path) -> None:
    """Changed settings may change the state at the end of the previous day. One table suffices to show which days are
    computed."""
    small = Fleet(3, 1)
    for moment in (23 * HOUR, DAY):
        small.write(tmp_path, moment)
    lake = Lake(spark, str(tmp_path), little=True)
    first, second = START.date(), (START + timedelta(days=1)).date()
    make_silver(lake, [hour for day in (first, second) for hour in day_hours(day)], lambda _text: None)
    wanted = few_gold_tables("consumer_lag")

    def made(*gold_days: date, max_lag: int = DEFAULTS.max_lag) -> int:
        return make_gold(
            lake, gold_days, lambda _text: None, settings=GoldSettings(max_lag=max_lag), wanted=wanted
        ).made

    assert made(first, max_lag=1) == made(second) == 1
    assert made(first, second) == 2
    assert made(first, second) == 0


def test_replicas_that_differ(gold: Gold) -> None:
    truth = {
        (stream.name, FLEET.name(stream.replicas[-1]))
        for stream in faulty("diverged")
        if FLEET.detail(stream, stream.replicas[-1], FIRST[0])["state"]["messages"] != FLEET.written(stream, FIRST[0])
    }
    found = {(row["stream"], row["server"]): row for row in gold.rows("divergence")}
    assert {key for key, row in found.items() if row["diverged"]} == truth
    assert not any(row["behind"] or row["lagging"] for row in found.values())
    assert all(found[key]["share"] == pytest.approx(0.1, rel=0.2) for key in truth)
    assert len(found) >= sum(len(stream.replicas) - 1 for stream in FLEET.assets)
    second = {(row["stream"], row["server"]): row for row in gold.rows("divergence", 1)}
    assert truth <= set(second)
    for key in truth:
        assert second[key]["begin"] == found[key]["begin"]
        assert second[key]["in_a_row"] == found[key]["in_a_row"] + second[key]["compared"]


def test_changes(gold: Gold) -> None:
    def what(day: int) -> set[tuple[str, ...]]:
        return {
            (row["object"], row["server"] or row["stream"], row["what"], row["field"], row["old"], row["new"])
            for row in gold.rows("changes", day)
        }

    resized = {
        stream.name
        for stream in faulty("resized")
        if MOMENTS[0] < stream.resized <= FIRST[-1] and FLEET.leader(stream, FIRST[-1]) is not None
    }
    assert resized
    assert what(0) == {("stream", name, "config", "max_bytes", "-1", str(RESIZED)) for name in resized}
    assert ("server", "n3", "version", "version", VERSION, NEWER) in what(1)
    assert not {row["what"] for row in gold.rows("changes", 1)} & {"added", "removed", "recreated"}


def test_accounts(gold: Gold) -> None:
    whole = sum(
        STEP
        for server in range(5)
        for old, new in zip(FIRST, FIRST[1:])
        if not FLEET.down(server, old) and not FLEET.down(server, new)
    )
    for row in gold.rows("account_usage"):
        assert row["received_msgs"] == row["sent_msgs"] == whole * 2
        assert row["received_bytes"] == whole * 200
        assert (row["observed"], row["gaps"], row["snapshots"]) == (whole, 1, len(FIRST))
        assert row["coverage"] == pytest.approx(whole / (whole + 2400))
        assert row["connections_max"] == 10
        assert row["storage_max"] == max(FLEET.held(at)[row["account"]] for at in FIRST)
    usage = gold.rows("usage", scope="account", resource="file", name="A0")
    assert {row["limit"] for row in usage} == {ACCOUNT_LIMIT}
    assert usage and {row["used"] for row in usage} <= {FLEET.held(at)["A0"] for at in FIRST}
    assert {row["account"] for row in gold.rows("account_usage")} == {"A0", "A1"}
    # The first interval of a day begins on the previous day.
    (row,) = gold.rows("account_usage", 1, account="A0")
    steps = list(zip([FIRST[-1], *SECOND], SECOND))
    assert row["received_msgs"] == 2 * sum(
        STEP for server in range(5) for old, new in steps if not FLEET.down(server, old) and not FLEET.down(server, new)
    )


def test_headroom(gold: Gold) -> None:
    moment = FIRST[-1]
    found = {row["name"]: row for row in gold.rows("headroom", scope="server")}
    assert set(found) == {FLEET.name(server) for server in range(5) if not FLEET.down(server, moment)}
    for name, row in found.items():
        server = int(name[1:]) - 1
        mine = [stream for stream in FLEET.assets if server in stream.replicas]
        sizes = {
            stream.name: max(
                FLEET.detail(stream, server, moment)["state"]["bytes"], RESIZED * (0 < stream.resized <= moment)
            )
            for stream in mine
        }
        copies = {stream.name: sum(not FLEET.down(one, moment) for one in stream.replicas) for stream in mine}
        assert row["need"] == sum(size for stream, size in sizes.items() if copies[stream] > 1)
        assert row["lost"] == sum(size for stream, size in sizes.items() if copies[stream] == 1)
        assert (row["servers_left"], row["fits"]) == (3, True)
        assert row["after"] == row["free"] - row["need"] > 0
    # Half a day does not show growth.
    assert {row["state"] for row in gold.rows("capacity")} <= {"unlimited", "unknown", "full"}
