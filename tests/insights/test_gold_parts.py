# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases that do not occur on an ordinary day of a fleet: growth over weeks, counters that go back, servers with the
same name, and the formulas."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import PEERS
from jetstream_insights import silver
from jetstream_insights.findings import REGISTRY
from jetstream_insights.gold import FACTS, TABLES, columns
from jetstream_insights.gold.accounts import account_usage, flows, stocks
from jetstream_insights.gold.activity import activity, counters, waiting
from jetstream_insights.gold.balance import gini
from jetstream_insights.gold.capacity import capacity, growth, summed_usage
from jetstream_insights.gold.changes import changes, suspects
from jetstream_insights.gold.common import DEFAULTS, group_state, middle, pair_slopes
from jetstream_insights.gold.consumers import consumer_lag, lags
from jetstream_insights.gold.divergence import divergence, followers
from jetstream_insights.gold.forecast import LONG, backtests, forecasts
from jetstream_insights.gold.health import answers, incidents, restarts
from jetstream_insights.gold.leadership import flap, leader_changes, runs, timeline
from jetstream_insights.gold.report import looks, moments
from jetstream_insights.gold.tables import schema
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from support.forecasting import Days, all_series, usage

LAST = date(2026, 11, 21)
NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)

#: The daily growth, the limit, and the events of an asset in the DAYS until LAST, in MB.
DAYS = 29
ASSETS: dict[str, dict[str, Any]] = {
    "steady": {"slope": 10.0, "limit": 1000.0},
    "purged": {"slope": 10.0, "limit": 1000.0, "purge": 24},
    "noisy": {"slope": 10.0, "limit": 1000.0, "noise": 0.03},
    "doubled": {"slope": 10.0, "limit": 1000.0, "doubles": 21},
    "falling": {"slope": -3.0, "limit": 1000.0},
    "endless": {"slope": 10.0, "limit": None},
    "trimmed": {"slope": 0.0, "limit": 1000.0, "trimmed": True},
    "full": {"slope": 0.0, "limit": 500.0},
}


def used(name: str, day: int, hour: int) -> float:
    """Return an asset's size at an hour; the size grows from day to day, and varies over the day."""
    asset = ASSETS[name]
    at = day + hour / 24
    value = 500.0 + asset["slope"] * at + (0 if name in ("full", "trimmed") else 40 * abs(12 - hour) / 12)
    value += asset["slope"] * max(at - asset.get("doubles", at), 0.0)
    if at >= asset.get("purge", 1e9):
        value -= 100
    dice = random.Random(f"{name}:{day}:{hour}")
    if dice.random() < asset.get("noise", 0.0):  # a faulty measurement
        value = 0.0
    return value * 1e6


@pytest.fixture(scope="module")
def forecast(spark: SparkSession) -> dict[str, Row]:
    """Return the capacity of the last day, with backtests of the day itself."""
    names = [column.name for column in columns.USAGE]
    rows = []
    for name, asset in ASSETS.items():
        for day in range(DAYS):
            for hour in range(0, 24, 4):
                limit = asset["limit"] * 1e6 if asset["limit"] else None
                first = 1 + day * 24 + hour if asset.get("trimmed") else 1
                values = (
                    "fleet",
                    LAST - timedelta(days=DAYS - 1 - day),
                    hour,
                    "stream",
                    "file",
                    name,
                    "",
                    "C1",
                    used(name, day, hour),
                    0.0,
                    limit,
                    first,
                )
                assert len(values) == len(names)
                rows.append(values)
    hourly_usage = spark.createDataFrame(rows, schema(columns.USAGE)).cache()
    grown = growth(hourly_usage, hourly_usage).select(*(column.name for column in columns.GROWTH)).cache()

    nothing = spark.createDataFrame([], schema(columns.BACKTESTS))

    def made(day: date) -> DataFrame:
        literal = F.lit(day)
        past = grown.where(F.col("day").between(day - timedelta(days=LONG - 1), day - timedelta(days=1)))
        return forecasts(grown.where(F.col("day") == literal), past, nothing, nothing, literal).select(
            *(column.name for column in columns.FORECASTS)
        )

    reported = made(LAST - timedelta(days=7)).unionByName(made(LAST - timedelta(days=1)))
    came = backtests(grown.where(F.col("day") == F.lit(LAST)), reported, F.lit(LAST)).select(
        *(c.name for c in columns.BACKTESTS)
    )
    return {row["name"]: row for row in capacity(made(LAST), came, nothing, *no_streams(spark)).collect()}


def no_streams(spark: SparkSession) -> Iterator[DataFrame]:
    """Yield empty streams, replicas and servers of a last snapshot, for forecasts without the limits of streams."""
    moment = "fleet string, snapshot string, domain string, cluster string, server string"
    stream = "account string, stream string, storage string, num_replicas int, max_bytes bigint"
    yield spark.createDataFrame([], f"{moment}, {stream}, retention string, discard string")
    yield spark.createDataFrame([], f"{moment}, {stream}")
    yield spark.createDataFrame(
        [], f"{moment}, zone string, answered boolean, jetstream boolean, reserved_storage bigint"
    )


def test_growth_excludes_daily_swings(forecast: dict[str, Row]) -> None:
    for name in ("steady", "purged", "noisy", "endless"):
        assert forecast[name]["slope"] == pytest.approx(10e6), name
        assert (forecast[name]["basis"], forecast[name]["changed"], forecast[name]["days"]) == ("long", False, LONG)
    assert forecast["falling"]["slope"] == pytest.approx(-3e6)
    # In the last week the slope has doubled; the long window only just contains the change.
    assert (forecast["doubled"]["basis"], forecast["doubled"]["changed"]) == ("short", True)
    assert forecast["doubled"]["slope"] == pytest.approx(20e6, rel=0.05)


def test_capacity_states_and_days_to_full(forecast: dict[str, Row]) -> None:
    states = {name: row["state"] for name, row in forecast.items()}
    assert states == {
        "steady": "growing", "purged": "growing", "noisy": "growing", "doubled": "growing", "falling": "shrinking",
        "endless": "unlimited", "trimmed": "plateau", "full": "full",
    }  # fmt: skip
    row = forecast["steady"]
    assert row["full_p50"] == pytest.approx((1000e6 - used("steady", DAYS - 1, 20)) / 10e6)
    assert row["used_ratio"] == pytest.approx(used("steady", DAYS - 1, 20) / 1000e6)
    assert forecast["purged"]["full_p10"] <= forecast["purged"]["full_p50"] <= (forecast["purged"]["full_p90"] or 1e9)
    assert forecast["full"]["full_p50"] == 0.0
    for name in ("falling", "endless", "trimmed"):
        assert forecast[name]["full_p50"] is None


def test_forecast_has_the_error_of_earlier_forecasts(forecast: dict[str, Row]) -> None:
    for name, row in forecast.items():
        assert (row["horizon"], row["backtests"]) == (7, 1), name
    assert forecast["steady"]["error_p50"] == pytest.approx(0.0, abs=1e-9)
    assert forecast["steady"]["naive_p50"] == pytest.approx(70e6 / used("steady", DAYS - 1, 20))
    assert forecast["steady"]["coverage"] == 1.0
    # On day 21 it was not possible to predict that the asset would double that day and be purged on day 24.
    assert forecast["doubled"]["coverage"] == 0.0
    assert forecast["purged"]["error_p50"] == pytest.approx(100e6 / used("purged", DAYS - 1, 20))


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> dict[str, list[Row]]:
    """Return the backtests of calibrated forecasts that were made on each weekday, by scenario."""
    days = Days(usage(spark, all_series(["noisy", "weekly", "sawtooth"], 12, 130)))
    found: dict[str, list[Row]] = {}
    for row in days.judged(days.calibrated(range(88, 88 + 12, 2))).collect():
        found.setdefault(row["fleet"], []).append(row)
    return found


@pytest.mark.parametrize("scenario", ["noisy", "weekly", "sawtooth"])
def test_four_of_five_actual_values_are_in_the_band(judged: dict[str, list[Row]], scenario: str) -> None:
    """Over 30 days, twelve assets have hardly more than twelve independent errors, so the bench judges the 30-day
    forecasts."""
    for days in (1, 7):
        covered = [row["covered"] for row in judged[scenario] if row["horizon"] == days]
        assert len(covered) == 12 * 6
        assert sum(covered) / len(covered) == pytest.approx(0.8, abs=0.15), (days, scenario)


def test_a_forecast_does_not_depend_on_the_weekday(judged: dict[str, list[Row]]) -> None:
    """Nothing is written at weekends: the days before a Wednesday overestimate the growth, the days before a Monday
    underestimate it."""
    for days in (7, 30):
        by_weekday: dict[int, list[Row]] = {}
        for row in judged["weekly"]:
            if row["horizon"] == days:
                by_weekday.setdefault(row["origin"].weekday(), []).append(row)
        assert len(by_weekday) == 6
        for weekday, rows in by_weekday.items():
            grown = sum(-row["naive_error"] * row["actual"] for row in rows)
            wrong = sum(row["forecast_p50"] - row["actual"] for row in rows)
            allowed = 0.05 if days == 7 else 0.08  # 30 days begin and end on different weekdays
            assert abs(wrong / grown) < allowed, (days, weekday)


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession) -> dict[str, dict[tuple[str, str], list[bool]]]:
    """Return the results of each capacity check for each asset on 24 days in turn, while it fills."""
    held = {key: series.held for key, series in all_series(["steady", "weekly"], 6, 112).items()}
    # The limit is the size that the asset reaches 28 days after the first of these days.
    limits = [(*key, ((of[83] or 0.0) + ((of[83] or 0.0) - (of[55] or 0.0))) * 1e6) for key, of in held.items()]
    hourly_usage = usage(spark, all_series(["steady", "weekly"], 6, 112)).drop("limit")
    limited = hourly_usage.join(
        spark.createDataFrame(limits, "fleet string, name string, limit double"), ["fleet", "name"]
    )
    days = Days(limited.select(*(column.name for column in columns.USAGE)))
    nothing = spark.createDataFrame([], schema(columns.BACKTESTS))
    made = capacity(days.calibrated(range(84, 108)), nothing, nothing, *no_streams(spark))
    found: dict[str, dict[tuple[str, str], list[bool]]] = {}
    for code in ("CAPACITY_201", "CAPACITY_202"):
        check = REGISTRY.checks[code]
        fails = check.fails
        for threshold in check.thresholds:
            fails = fails.replace(f":{threshold.key}", str(threshold.default))
        shown = made.select("fleet", "name", F.expr(fails).alias("fails")).orderBy("day")
        for row in shown.collect():
            found.setdefault(code, {}).setdefault((row["fleet"], row["name"]), []).append(bool(row["fails"]))
    return found


def test_capacity_state_does_not_flap(verdicts: dict[str, dict[tuple[str, str], list[bool]]]) -> None:
    """For assets that grow evenly, or only on weekdays, the checks fail from one day on without interruption, and the
    growth never counts as changed."""
    for asset, said in verdicts["CAPACITY_201"].items():
        assert len(said) == 24
        assert not said[0], asset
        assert said[-1], asset
        assert said == sorted(said), asset
    for asset, said in verdicts["CAPACITY_202"].items():
        assert not any(said), asset


def test_repeatedly_purged_assets_do_not_grow(judged: dict[str, list[Row]]) -> None:
    rows = [row for row in judged["sawtooth"] if row["horizon"] == 30]
    wrong = sum(row["forecast_p50"] - row["actual"] for row in rows)
    assert abs(wrong) < 0.05 * sum(row["actual"] for row in rows)


def test_formulas(spark: SparkSession) -> None:
    points = "array<struct<at:double,value:double>>"
    line = [(float(at), 3.0 * at) for at in range(9)]
    spoiled = [*line[:4], (4.0, 1000.0), *line[5:]]
    frame = spark.createDataFrame(
        [("line", line), ("spoiled", spoiled), ("one", line[:1]), ("none", [])], f"name string, points {points}"
    )
    slopes = {
        row["name"]: row["slope"]
        for row in frame.select("name", middle(pair_slopes(F.col("points"))).alias("slope")).collect()
    }
    assert slopes == {"line": pytest.approx(3.0), "spoiled": pytest.approx(3.0), "one": None, "none": None}
    shares = [([1.0, 1.0, 1.0, 1.0], 0.0), ([0.0, 0.0, 0.0, 8.0], 0.75), ([1.0, 2.0, 3.0], 2 / 9), ([0.0, 0.0], None)]
    values = spark.createDataFrame(
        [([{"value": value} for value in found],) for found, _share in shares], "sorted array<struct<value:double>>"
    )
    found = [row[0] for row in values.select(gini(F.col("sorted"))).collect()]
    assert found == [None if share is None else pytest.approx(share) for _values, share in shares]
    one_peer = [("n2", "n2", True, False, 0, 0, 0)]
    groups = spark.createDataFrame(
        [("n1", one_peer, 2, 2, []), ("n1", one_peer, None, None, []), ("n1", one_peer, None, None, ["n2"])],
        f"leader string, peers {PEERS}, num_replicas int, quorum bigint, behind array<string>",
    )
    assert [row[0] for row in groups.select(group_state()).collect()] == ["ok", "unknown", "not_redundant"]
    times = spark.createDataFrame([([0.0, 1800.0, 3600.0],), ([0.0, 100000.0],)], "times array<double>")
    peaks = [row[0] for row in times.select(flap(F.col("times"))).collect()]
    assert (peaks[0]["peak"], peaks[0]["at"], peaks[1]["at"]) == (1.75, 3600.0, 0.0)


def _server(minute: int, name: str, identity: str, start: int) -> tuple[Any, ...]:
    taken, nothing = NOON + timedelta(minutes=minute), (None, None, None)
    return "fleet", f"s{minute}", taken, name, identity, "C1", "2.15.1", NOON + timedelta(minutes=start), *nothing


def test_name_of_two_servers_does_not_identify_a_server(spark: SparkSession) -> None:
    rows = [
        _server(minute, name, name + end, 0)
        for minute in range(3)
        for name, end in (("twin", "1"), ("twin", "2"), ("n1", "a"))
    ]
    rows += [_server(3, "n1", "b", 2)]
    form = (
        "fleet string, snapshot string, taken timestamp, server string, server_id string, cluster string, version string, "
        "start timestamp, uptime double, health string, clock_offset double"
    )
    nothing = spark.createDataFrame([], schema(columns.SERVER_AVAILABILITY))
    (row,) = restarts(answers(spark.createDataFrame(rows, form)), nothing, DEFAULTS).collect()
    assert (row["server"], row["before"].timestamp(), row["down"]) == (
        "n1",
        (NOON + timedelta(minutes=2)).timestamp(),
        0.0,
    )


def test_counter_resets_are_gaps(spark: SparkSession) -> None:
    """The counter reads, at ten-minute intervals: 100 and 150, after a restart 5 and 25, then 10 without a restart."""
    reported = [(0, "a", 100), (10, "a", 150), (20, "b", 5), (30, "b", 25), (40, "b", 10)]
    key = "fleet string, snapshot string, taken timestamp, server_id string"
    counters = ("sent_msgs", "sent_bytes", "received_msgs", "received_bytes", "slow_consumers")
    gauges = (
        "connections", "leafnodes", "num_subscriptions", "js_storage", "js_memory", "js_reserved_storage", "js_reserved_memory",
        "js_ha_assets",
    )  # fmt: skip
    form = f"{key}, server string, domain string, account string, {', '.join(f'{name} bigint' for name in (*counters, *gauges))}"
    rows = [
        ("fleet", f"s{minute}", NOON + timedelta(minutes=minute), identity, "n1", "", "APP", *([value] * 5), *([7] * 8))
        for minute, identity, value in reported
    ]
    accounts = spark.createDataFrame(rows, form)
    servers = spark.createDataFrame(
        [(*row[:4], NOON - timedelta(hours=1) if row[3] == "a" else NOON + timedelta(minutes=15)) for row in rows],
        f"{key}, start timestamp",
    )
    hourly_flows = flows(accounts, servers, DEFAULTS)
    (row,) = account_usage(hourly_flows, stocks(accounts), hourly_flows.limit(0), DEFAULTS).collect()
    assert (row["sent_msgs"], row["gaps"], row["observed"], row["coverage"]) == (50 + 20, 2, 1200.0, 0.5)
    assert (row["connections"], row["storage_max"], row["byte_hours"]) == (7.0, 7, pytest.approx(7 * 40 / 60))


_REPLICAS = (
    "fleet string, snapshot string, taken timestamp, domain string, account string, stream string, server string, "
    "created timestamp, received timestamp, is_backed boolean, is_leader boolean, messages bigint, bytes bigint, "
    "first_seq bigint, last_seq bigint"
)


def _replica(
    minute: int, server: str, seconds: float, messages: int, last: int, leader: str | None = "n1", created: int = 0
) -> tuple[Any, ...]:
    """Return a row of stream_replicas; `created` is in minutes before noon."""
    taken, leads = NOON + timedelta(minutes=minute), server == leader
    times = (NOON - timedelta(minutes=created), taken + timedelta(seconds=seconds))
    figures = (messages, messages * 10, last - messages + 1, last)
    return ("fleet", f"s{minute}", taken, "", "A", "S", server, *times, leads, leads, *figures)


def _diverging(spark: SparkSession, rows: list[tuple[Any, ...]], past: DataFrame | None = None) -> DataFrame:
    """Return gold's rows of diverging replicas for a day."""
    table = TABLES["divergence"]
    before = spark.createDataFrame([], table.schema) if past is None else past
    hourly_followers = FACTS["followers"].rows(followers(spark.createDataFrame(rows, _REPLICAS)))
    return table.rows(divergence(hourly_followers, before))


#: Minutes between two snapshots; an hour may have only one.
_STEPS = (1, 25, 60)


def _set_fleet(fleet: object, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows of a fleet of this name, as one of several cases in a frame."""
    return ((str(fleet), *row[1:]) for row in rows)


def test_replica_may_lack_messages_written_between_answers(spark: SparkSession) -> None:
    """The rate is 100 messages a second. n2 responds half a second later than the leader; n3 lacks the messages of
    several minutes."""
    rows = [
        row
        for step in _STEPS
        for minute in range(0, 4 * step, step)
        for server, seconds, behind in (("n1", 0.0, 0), ("n2", 0.5, -50), ("n3", 0.0, 9000))
        for held in [100_000 + minute * 6000 - behind]
        for row in _set_fleet(step, [_replica(minute, server, seconds, held, held)])
    ]
    found = {
        (row["fleet"], row["server"]): (row["behind"], row["diverged"], row["lagging"], row["in_a_row"], row["begin"])
        for row in _diverging(spark, rows).collect()
    }
    assert set(found) == {(str(step), server) for step in _STEPS for server in ("n2", "n3")}
    for (step, server), (behind, diverged, lagging, in_a_row, begin) in found.items():
        if server == "n2":
            assert (behind, diverged, lagging, begin) == (False, False, 0, None), step
        else:
            assert (behind, diverged, in_a_row) == (True, False, 4), step


def test_single_removed_message_is_tolerated(spark: SparkSession) -> None:
    """The last 101 messages are kept, and one expires every ten seconds. n2 responds three seconds later, each time
    after the next expiry. n3 lacks five messages."""
    rows = [
        row
        for step in _STEPS
        for minute in range(0, 4 * step, step)
        for server, seconds, messages, more in (("n1", 0.0, 101, 0), ("n2", 3.0, 101, 1), ("n3", 0.0, 96, 0))
        for row in _set_fleet(step, [_replica(minute, server, seconds, messages, 1000 + minute * 6 + more)])
    ]
    found = {(row["fleet"], row["server"]): row for row in _diverging(spark, rows).collect()}
    assert {key: (row["diverged"], row["behind"]) for key, row in found.items()} == {
        (str(step), server): (server == "n3", False) for step in _STEPS for server in ("n2", "n3")
    }


#: The messages of a replica whose leader has the messages 1 to 2000.
_ALIKE, _DIFFERS, _LAGS = (2000, 2000), (1800, 2000), (1500, 1500)
_MIDNIGHT = 12 * 60


def _day(minutes: range, replica: tuple[int, int], server: str = "n2", **other: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a replica and its leader, at these minutes after noon."""
    return [
        _replica(minute, who, 0.0, *held, **other)
        for minute in minutes
        for who, held in ((other.get("leader", "n1") or "n3", _ALIKE), (server, replica))
    ]


_BEFORE, _AFTER = range(_MIDNIGHT - 2, _MIDNIGHT), range(_MIDNIGHT, _MIDNIGHT + 1)


#: The rows of two days, then the state of n2 on the second: the start of its difference from the leader, the number of
#: consecutive snapshots with it, how many of these differ, and whether it has diverged or is behind.
_OVER_MIDNIGHT: dict[
    str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], tuple[int | None, int, int, bool, bool]]
] = {
    "differs": (_day(_BEFORE, _DIFFERS), _day(_AFTER, _DIFFERS), (_BEFORE[0], 3, 3, True, False)),
    "lags": (_day(_BEFORE, _LAGS), _day(_AFTER, _LAGS), (_BEFORE[0], 3, 0, False, True)),
    "differs, then lags": (_day(_BEFORE, _DIFFERS), _day(_AFTER, _LAGS), (_BEFORE[0], 3, 2, False, False)),
    "lags, then differs": (_day(_BEFORE, _LAGS), _day(_AFTER, _DIFFERS), (_AFTER[0], 1, 1, False, False)),
    "over": (_day(_BEFORE, _DIFFERS), _day(_AFTER, _ALIKE), (None, 0, 0, False, False)),
    "over and again": (
        _day(_BEFORE, _DIFFERS),
        [*_day(_AFTER, _ALIKE), *_day(range(_MIDNIGHT + 1, _MIDNIGHT + 2), _DIFFERS)],
        (_MIDNIGHT + 1, 1, 1, False, False),
    ),
    "other leader": (_day(_BEFORE, _DIFFERS), _day(_AFTER, _DIFFERS, leader="n3"), (_BEFORE[0], 3, 3, True, False)),
    "leaderless": (_day(_BEFORE, _DIFFERS), _day(_AFTER, _ALIKE, leader=None), (_BEFORE[0], 2, 2, False, False)),
    "recreated": (_day(_BEFORE, _DIFFERS, created=9), _day(_AFTER, _DIFFERS), (_AFTER[0], 1, 1, False, False)),
    "recreated in the day": (
        [],
        [*_day(_BEFORE, _DIFFERS, created=9), *_day(_AFTER, _DIFFERS)],
        (_AFTER[0], 1, 1, False, False),
    ),
}


def test_divergence_continues_over_midnight(spark: SparkSession) -> None:
    """Two snapshots before midnight and one after it show the difference. A difference in three snapshots is no longer
    momentary."""
    first = [row for name, (day, _next, _found) in _OVER_MIDNIGHT.items() for row in _set_fleet(name, day)]
    second = [row for name, (_day, day, _found) in _OVER_MIDNIGHT.items() for row in _set_fleet(name, day)]
    found = {
        row["fleet"]: (row["begin"], row["in_a_row"], row["differs_in_a_row"], row["diverged"], row["behind"])
        for row in _diverging(spark, second, _diverging(spark, first)).collect()
        if row["server"] == "n2"
    }
    assert set(found) == set(_OVER_MIDNIGHT)
    for name, (_first, _second, (minute, *expected)) in _OVER_MIDNIGHT.items():
        begin, *known = found[name]
        began = begin and begin.astimezone(timezone.utc)
        assert began == (None if minute is None else NOON + timedelta(minutes=minute)), name
        assert known == expected, name


def test_sums_need_all_expected_servers(spark: SparkSession) -> None:
    """n3 is removed from the cluster after hour 0; n2 is down in hour 2, but still expected."""
    expected = {0: ["n1", "n2", "n3"], 1: ["n1", "n2"], 2: ["n1", "n2"], 3: ["n1", "n2"]}
    form = (
        "fleet string, day date, hour int, domain string, cluster string, server string, zone string, resource string, "
        "used double, reserved double, `limit` double, first_seq bigint"
    )
    rows = [
        ("fleet", LAST, hour, "", "C1", server, "a", "file", 10.0, 0.0, 100.0, None)
        for hour, servers in expected.items()
        for server in servers
        if (hour, server) != (2, "n2")
    ]
    wanted = [("fleet", LAST, hour, server) for hour, servers in expected.items() for server in servers]
    found = summed_usage(
        spark.createDataFrame(rows, form),
        spark.createDataFrame(wanted, "fleet string, day date, hour int, server string"),
        "cluster",
        F.col("cluster"),
    )
    assert sorted((row["name"], row["hour"], row["used"]) for row in found.collect()) == [
        ("C1", 0, 30.0), ("C1", 1, 20.0), ("C1", 3, 20.0),
    ]  # fmt: skip


def test_recreated_asset_had_no_election(spark: SparkSession) -> None:
    """There are three streams with three leaders each. One was recreated before each change of leader; for another, the
    servers report creation times some milliseconds apart."""
    rows = []
    apart = {"KEPT": timedelta(), "TEST": timedelta(minutes=10), "OLD": timedelta(milliseconds=9)}
    for stream, between in apart.items():
        for number, leader in enumerate(("n1", "n2", "n3")):
            begin = NOON + timedelta(minutes=10 * number)
            rows.append(
                {
                    "fleet": "fleet", "day": LAST, "domain": "", "kind": "stream", "account": "A", "stream": stream,
                    "consumer": "", "cluster": "C1", "raft_group": f"S-{stream}", "created": NOON + number * between,
                    "run": number + 1, "begin": begin, "end": begin + timedelta(minutes=9), "snapshots": 10, "leader": leader,
                    "leader_since": begin, "state": "ok", "num_replicas": 3,
                }
            )  # fmt: skip
    form = schema(columns.TIMELINE)
    changes = leader_changes(
        spark.createDataFrame(rows, form),
        spark.createDataFrame([], form),
        spark.createDataFrame([], "fleet string, taken timestamp, absent array<string>"),
        spark.createDataFrame([], "fleet string, server string, taken timestamp"),
        DEFAULTS,
    )
    assert sorted((row["stream"], row["old_leader"], row["new_leader"]) for row in changes.collect()) == [
        (stream, *servers) for stream in ("KEPT", "OLD") for servers in (("n1", "n2"), ("n2", "n3"))
    ]  # fmt: skip


def test_a_consumer_with_a_filter_is_measured_in_its_own_messages(spark: SparkSession) -> None:
    """The filter selects one message per second from 1,000 in the stream, and the client acknowledges every second
    message."""
    shown: dict[str, Any] = {"fleet": "F", "domain": "", "account": "A", "stream": "S", "consumer": "c", "leader": "n1"}
    rows = []
    for number in range(8):
        at = 600 * number
        rows.append(
            {
                **shown, "snapshot": f"{number}", "taken": NOON + timedelta(seconds=at), "delivered_stream_seq": 1000 * at,
                "ack_floor_stream_seq": 500 * at, "delivered_consumer_seq": at, "ack_floor_consumer_seq": at // 2,
                "num_pending": 0, "num_ack_pending": at // 2, "created": NOON - timedelta(days=1, microseconds=900 * number),
            }
        )  # fmt: skip
    columns_ = [part.strip() for part in silver.COLUMNS["consumers"].split(",")]
    form = ", ".join(part for part in columns_ if part.partition(" ")[0] in {*rows[0], "durable", "paused"})
    frame = spark.createDataFrame(rows, form)
    rest = {name: F.lit(None).cast(type_) for name, type_ in columns.CONSUMER_NOW.items() if name not in frame.columns}
    nothing = spark.createDataFrame([], schema(columns.CONSUMER_LAG))
    missing = {name: value for name, value in rest.items() if name != "work"}
    (row,) = consumer_lag(lags(frame.withColumns(missing)), nothing, F.lit(LAST), DEFAULTS).collect()
    assert (row["snapshots"], row["ack_rate"], row["ingest_rate"]) == (8, 0.5, 1.0)


def test_renamed_domains_and_upgrades_remove_and_add_nothing(spark: SparkSession) -> None:
    """Between two snapshots n1 gets a JetStream domain, a zone, and a version that writes more configuration fields and
    reports different creation times. An account is renamed, and one consumer is recreated."""
    second = NOON + timedelta(minutes=10)
    old, new = (
        '{"name":"S","max_msgs":-1}',
        '{"name":"S","max_msgs":5,"allow_msg_ttl":false,"metadata":{"_nats.ver":"2.15.1"}}',
    )
    seen: list[tuple[str, str, str, str, datetime | None, list[dict[str, str] | None]]] = [
        ("server", "", "", "", None, [{"domain": "", "tags": '["az:a"]'}, {"domain": "hub", "tags": '["az:b"]'}]),
        ("account", "edge", "", "", None, [{"name": "OLD"}, {"name": "NEW"}]),
        ("stream", "", "S", "", NOON - timedelta(days=1), [{"config": "1"}, None]),
        ("account", "", "", "", None, [{"name": "A"}, None]),
        ("account", "hub", "", "", None, [None, {"name": "A"}]),
        ("stream", "edge", "S", "", NOON, [{"config": "1"}, {"config": "2"}]),
        # The hash from an older program also covered fields that have no effect.
        ("stream", "edge", "SAME", "", NOON, [{"config": "3"}, {"config": "4"}]),
        ("consumer", "edge", "S", "upgraded", NOON, [{"config": "1"}, {"config": "1"}]),
        ("consumer", "edge", "S", "again", NOON, [{"config": "1"}, {"config": "1"}]),
    ]
    rows, streams = [], []
    for kind, domain, stream, consumer, created, states in seen:
        for number, state in enumerate(states, 1):
            later = {"upgraded": timedelta(milliseconds=9), "again": timedelta(seconds=2)}.get(consumer, timedelta())
            if state is not None:
                rows.append(
                    {
                        "fleet": "F", "day": LAST, "snapshot": f"s{number}", "taken": (NOON, second)[number - 1], "object": kind,
                        "server": "n1" if kind == "server" else "", "domain": domain, "stream": stream, "consumer": consumer,
                        "account": "" if kind == "server" else "A", "number": number, "hosts": ["n1"], "state": state,
                        "created": created and created + (number - 1) * later, "previous": NOON if number == 2 else None,
                        "previous_silent": [], "following": second if number == 1 else None, "following_silent": [],
                    }
                )  # fmt: skip
    for snapshot, config in (("s1", old), ("s2", new)):
        streams.append(("F", snapshot, "edge", "A", "S", config))
        streams.append(("F", snapshot, "edge", "A", "SAME", config.replace('"max_msgs":5', '"max_msgs":-1')))
    key = "fleet string, snapshot string, domain string, account string, stream string"
    found = changes(
        spark.createDataFrame(rows, schema(columns.STATES)),
        spark.createDataFrame(streams, f"{key}, config string"),
        spark.createDataFrame([], f"{key}, consumer string, config string"),
        F.lit(LAST),
    )
    shown = found.select("object", "server", "consumer", "what", "field").collect()
    assert sorted(tuple(row) for row in shown) == [
        ("account", "", "", "config", "name"),
        ("consumer", "", "again", "recreated", "created"),
        ("server", "n1", "", "config", "tags"),
        ("server", "n1", "", "domain", "domain"),
        ("stream", "", "", "config", "max_msgs"),
    ]


#: The second reply of n3, the only server of a stream: whether it responds, returns JSZ, has JetStream disabled, and
#: whether a page of JSZ failed. Then the lists that name n3, and the state of the stream.
UNREPORTED: dict[str, tuple[tuple[bool, bool, bool | None, bool], set[str], str | None]] = {
    "no answer": ((False, False, None, False), {"absent", "silent"}, "no_leader"),
    "JetStream disabled": ((True, True, True, False), {"disabled", "silent"}, "no_leader"),
    "no JSZ": ((True, False, None, False), {"silent"}, "unknown"),
    "an incomplete JSZ": ((True, True, None, True), {"silent"}, "unknown"),
    "JSZ without the stream": ((True, True, False, False), set(), None),
}


def test_streams_are_unavailable_if_their_only_server_cannot_serve_them(spark: SparkSession) -> None:
    servers, failures = [], []
    snapshots = [(case, number, NOON + timedelta(minutes=int(number)), True) for case in UNREPORTED for number in "01"]
    for case, ((answers_, jsz, disabled, failed), _lists, _state) in UNREPORTED.items():
        servers += [(case, "0", "n3", True, False)] + ([(case, "1", "n3", jsz or None, disabled)] if answers_ else [])
        failures += [(case, "1", "n3", "jsz")] if failed else []
    seen = looks(
        spark.createDataFrame(
            [(*row, ["n3"]) for row in snapshots],
            "fleet string, snapshot string, taken timestamp, complete boolean, missing array<string>",
        ),
        spark.createDataFrame(
            servers, "fleet string, snapshot string, server string, jsz_reported boolean, js_disabled boolean"
        ),
        spark.createDataFrame([], "fleet string, snapshot string, peer string"),
        spark.createDataFrame(failures, "fleet string, snapshot string, server string, endpoint string"),
    )
    numbered = moments(seen).cache()
    lists = {
        row["fleet"]: {name for name in ("absent", "disabled", "silent") if row[name]}
        for row in numbered.collect()
        if row["snapshot"] == "1"
    }
    assert lists == {case: wanted for case, (_answer, wanted, _state) in UNREPORTED.items()}
    reported = {
        "domain": "", "kind": "stream", "account": "A", "stream": "S", "consumer": "", "cluster": "C1", "created": NOON,
        "taken": NOON, "begin": NOON, "end": NOON, "snapshots": 1, "leader": "n3", "state": "ok", "behind": [],
        "members": ["n3"], "hosts": ["n3"], "num_replicas": 1, "alike": 1, "first_snapshot": "0", "last_snapshot": "0",
    }  # fmt: skip
    hourly_rows = spark.createDataFrame([{"fleet": case, **reported} for case in UNREPORTED], schema(columns.RUNS))
    past = spark.createDataFrame([], schema(columns.TIMELINE))
    states = dict.fromkeys(UNREPORTED) | {
        row["fleet"]: row["state"]
        for row in timeline(numbered, hourly_rows, past, F.lit(LAST), DEFAULTS).collect()
        if row["run"] == 2
    }
    assert states == {case: state for case, (_answer, _lists, state) in UNREPORTED.items()}


def test_snapshot_without_jsz_has_no_suspects(spark: SparkSession) -> None:
    """If a snapshot without JSZ had suspects, every stream of the day would be compared in all snapshots, and
    written."""
    minutes = range(1, 21)
    moments: list[tuple[Any, ...]] = []
    things: list[tuple[Any, ...]] = []
    silent: dict[int, list[str]] = {1: ["n1", "n2", "n3"], 3: ["n1", "n2", "n3"], 9: ["n1"], 10: ["n2", "n3"]}
    for number in minutes:
        taken = NOON + timedelta(minutes=number)
        moments.append(("F", str(number), number, taken, silent.get(number)))
        told = {"many": ["n1", "n2", "n3"], "single": ["n1"], "gone": ["n2"], "changed": ["n1", "n2"], "new": ["n1"]}
        for name, hosts in told.items():
            created = NOON + timedelta(minutes=1) if name == "new" else NOON - timedelta(days=1)
            there = sorted(set(hosts) - set(silent.get(number) or ()))
            if there and not (name == "gone" and number > 15):
                things.append(
                    (
                        "F",
                        str(number),
                        "stream",
                        "",
                        "A",
                        name,
                        "",
                        there,
                        created,
                        int(name == "changed" and number > 9),
                    )
                )
        # The server's own state comes from a different endpoint.
        things += [("F", str(number), "server", name, "", "", "", [name], None, 0) for name in ("n1", "n2")]
        if number != 9:
            things.append(("F", str(number), "server", "n3", "", "", "", ["n3"], None, 0))
    moment_columns = "fleet string, snapshot string, number int, taken timestamp, silent array<string>"
    thing_columns = (
        "fleet string, snapshot string, object string, server string, account string, stream string, consumer string, "
        "hosts array<string>, created timestamp, alike bigint"
    )
    all_things = spark.createDataFrame(things, thing_columns).withColumns({"domain": F.lit(""), "bits": F.lit(1)})
    found = suspects(all_things, spark.createDataFrame(moments, moment_columns))
    assert {(row["server"], row["stream"]) for row in found.collect()} == {
        ("", "gone"), ("", "changed"), ("", "new"), ("n3", "")
    }  # fmt: skip


def test_intervals_span_several_blocks_of_an_hour(spark: SparkSession) -> None:
    """There is a snapshot every 20 s; one does not contain the stream, one gap is too long, and the leader changes
    several times."""
    moments = [NOON + timedelta(seconds=20 * number + (300 if number > 70 else 0)) for number in range(230)]
    leaders = {number: "n1" if number < 62 or 64 <= number < 120 else "n2" for number in range(230) if number != 100}
    snapshot_rows = [("F", f"{number:03}", moment) for number, moment in enumerate(moments)]
    stream_rows = [
        (*snapshot_rows[number], "", "A", "S", "C", "G", NOON, None, 1, leader, ["n1", "n2"], ["n1", "n2"], None, 1)
        for number, leader in leaders.items()
    ]
    expected: list[list[Any]] = []
    for number, leader in leaders.items():
        moment = moments[number]
        if (
            expected
            and expected[-1][1:3] == [leader, number - 1]
            and (moment - moments[number - 1]).total_seconds() <= 120
            and moment.hour == moments[number - 1].hour
        ):
            expected[-1][2:] = [number, expected[-1][3] + 1]
        else:
            expected.append([number, leader, number, 1])
    assert [one[0] for one in expected] == [0, 62, 64, 71, 101, 120, 165]
    servers, peers, consumers = (
        spark.createDataFrame([], silver.COLUMNS[name]) for name in ("servers", "meta_peers", "consumers")
    )
    snapshots = spark.createDataFrame(snapshot_rows, "fleet string, snapshot string, taken timestamp").withColumns(
        {"missing": F.array().cast("array<string>"), "complete": F.lit(True)}
    )
    streams = spark.createDataFrame(
        stream_rows,
        "fleet string, snapshot string, taken timestamp, domain string, account string, stream string, cluster string, "
        "raft_group string, created timestamp, leader_since timestamp, num_replicas int, leader string, members array<string>, "
        f"hosts array<string>, peers {PEERS}, quorum bigint",
    )
    found = runs(snapshots, servers, peers, streams, consumers, replace(DEFAULTS, longest_gap=120.0)).orderBy("begin")
    ends = (F.unix_seconds(name).alias(name) for name in ("begin", "end"))
    rows = found.select("first_snapshot", "leader", "last_snapshot", "snapshots", *ends).collect()
    shown = [(row["first_snapshot"], row["leader"], row["last_snapshot"], row["snapshots"]) for row in rows]
    assert shown == [(f"{first:03}", leader, f"{last:03}", many) for first, leader, last, many in expected]
    assert [(row["begin"], row["end"]) for row in rows] == [
        (int(moments[first].timestamp()), int(moments[last].timestamp())) for first, _leader, last, _many in expected
    ]


def most_joined(frame: DataFrame) -> int:
    """Return the number of rows from the largest join of a frame that has been collected."""

    def joined(plan: Any) -> int:
        rows = plan.metrics().get("numOutputRows")
        own = rows.get().value() if "Join" in plan.nodeName() and rows.isDefined() else 0
        children = plan.children()
        return max([own, *(joined(children.apply(number)) for number in range(children.size()))])

    return joined(frame._jdf.queryExecution().executedPlan())


def test_a_storm_of_log_lines_is_not_multiplied_by_the_groups(spark: SparkSession) -> None:
    """50 groups on three servers; one has lost power, and messages about it fill the logs of the others."""
    groups, lines, snapshots = 50, 1000, 20

    def minute(number: float) -> datetime:
        return NOON + timedelta(minutes=number)

    def frame(rows: list[tuple[Any, ...]], names: str) -> DataFrame:
        return spark.createDataFrame(rows, names)

    def runs(stream: str) -> list[tuple[Any, ...]]:
        group_members: tuple[Any, ...] = ([], ["n1", "n2", "n3"])
        ok = ("F", "stream", "A", stream, "", 1, "ok", None, minute(1), minute(5), 5, *group_members)
        bad = ("F", "stream", "A", stream, "", 2, "no_leader", minute(5), minute(6), minute(15), 10, *group_members)
        return [
            ok,
            bad,
            ("F", "stream", "A", stream, "", 3, "ok", minute(15), minute(16), minute(20), 5, *group_members),
        ]

    numbers = range(1, snapshots + 1)
    timeline_rows = frame(
        [run for number in range(groups) for run in runs(f"S{number}")],
        "fleet string, kind string, account string, stream string, consumer string, run int, state string, before timestamp, "
        "begin timestamp, end timestamp, snapshots int, behind array<string>, members array<string>",
    ).withColumn("domain", F.lit(""))
    moment_rows = frame(
        [("F", str(number), number, minute(number), []) for number in numbers],
        "fleet string, snapshot string, number int, taken timestamp, absent array<string>",
    )
    well = ("C", "2.15.1", "ok", NOON, 1.0, 0.0)
    servers = frame(
        [("F", str(number), minute(number), name, name, *well) for number in numbers for name in ("n1", "n2", "n3")],
        "fleet string, snapshot string, taken timestamp, server string, server_id string, cluster string, version string, "
        "health string, start timestamp, uptime double, clock_offset double",
    )
    failures = frame(
        [("F", str(number), "n3", minute(number), "connz", "deadline") for number in numbers],
        "fleet string, snapshot string, server string, taken timestamp, endpoint string, code string",
    )
    # Only the lines from minute 4 to minute 15 count, and one line is exactly at each of these limits.
    step = (minute(20) - minute(3.5)) / lines
    times = [*(minute(3.5) + number * step for number in range(lines)), minute(4), minute(15)]
    counted = sum(minute(4) <= time <= minute(15) for time in times)
    server_events = frame(
        [("F", "1", "n1", time, "route", str(number)) for number, time in enumerate(times)],
        "fleet string, snapshot string, server string, time timestamp, kind string, text string",
    )
    advisories = frame(
        [],
        "fleet string, domain string, account string, stream string, consumer string, time timestamp, kind string, "
        "taken timestamp",
    )
    found = incidents(
        timeline_rows,
        moment_rows,
        answers(servers),
        failures,
        advisories,
        server_events,
        spark.createDataFrame([], schema(columns.RESTARTS)),
        spark.createDataFrame([], schema(columns.INCIDENTS)),
        F.lit(LAST),
        DEFAULTS,
    )
    adaptive = "spark.sql.adaptive.enabled"
    before = str(spark.conf.get(adaptive))
    spark.conf.set(adaptive, "false")  # adaptive execution changes the plan in the end
    try:
        rows = found.collect()
    finally:
        spark.conf.set(adaptive, before)
    assert len(rows) == groups
    for row in rows:
        causes = [
            (cause["cause"], cause["server"], cause["at"].astimezone(timezone.utc), cause["detail"])
            for cause in row["causes"]
        ]
        assert causes == [
            ("log", "n1", minute(4), f"{counted} × route"),
            ("no_answer", "n3", minute(5), "connz: deadline"),
        ]
    assert most_joined(found) <= groups * 3 + lines


def test_activity_uses_only_comparable_counters(spark: SparkSession) -> None:
    """n1 counts 600 messages in ten minutes, then restarts; n2 appears only once. Only a leader's pending messages
    count."""
    counted = [
        (0, "n1", 0, 100, 1),
        (10, "n1", 0, 700, 3),
        (20, "n1", 15, 50, 0),
        (30, "n1", 15, 350, 0),
        (30, "n2", 0, 9000, 9),
    ]
    servers = spark.createDataFrame(
        [
            (
                "fleet",
                NOON + timedelta(minutes=minute),
                name,
                name,
                NOON + timedelta(minutes=start),
                msgs,
                0,
                msgs,
                errors,
                5,
            )
            for minute, name, start, msgs, errors in counted
        ],
        "fleet string, taken timestamp, server string, server_id string, start timestamp, in_msgs bigint, in_bytes bigint, "
        "js_api_total bigint, js_api_errors bigint, connections bigint",
    )
    consumers = spark.createDataFrame(
        [
            ("fleet", NOON + timedelta(minutes=minute), leader, pending, 1)
            for minute, leader, pending in ((10, "n1", 70), (30, "n1", 40), (30, None, 5000))
        ],
        "fleet string, taken timestamp, leader string, num_pending bigint, num_ack_pending bigint",
    )
    changes = spark.createDataFrame(
        [("fleet", LAST, NOON + timedelta(minutes=minute)) for minute in (10, 20)],
        "fleet string, day date, taken timestamp",
    )
    hourly_counters = counters(servers, DEFAULTS)
    (row,) = activity(hourly_counters, waiting(consumers), changes, hourly_counters.limit(0), DEFAULTS).collect()
    # There are 600 messages in 600 seconds, and 300 in 600 seconds after the restart; the time in between is unknown.
    assert (row["hour"], row["measured"], row["in_msgs"]) == (12, 1, pytest.approx(900 / 1200))
    assert (row["api_errors"], row["connections"]) == (2, 10)
    assert (row["num_pending"], row["num_ack_pending"], row["elections"]) == (40, 1, 2)
