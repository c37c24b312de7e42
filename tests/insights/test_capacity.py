# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits that bound a forecast, the confidence in it, and the servers that remain after a failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timezone
from typing import Any

import pytest
from jetstream_insights.gold import columns
from jetstream_insights.gold.capacity import TESTED, capacity
from jetstream_insights.gold.common import DEFAULTS
from jetstream_insights.gold.headroom import headroom
from jetstream_insights.gold.tables import schema
from pyspark.sql import DataFrame, Row, SparkSession

DAY, TAKEN = date(2026, 11, 21), datetime(2026, 11, 21, 23, tzinfo=timezone.utc)
GB = 1e9
SERVERS = (
    "fleet string, day date, snapshot string, taken timestamp, domain string, cluster string, server string, zone string, "
    "answered boolean, jetstream boolean, max_storage bigint, storage bigint, reserved_storage bigint"
)
STREAMS = (
    "fleet string, snapshot string, domain string, account string, stream string, cluster string, storage string, "
    "num_replicas int, max_bytes bigint, discard string, retention string"
)
REPLICAS = f"{STREAMS}, server string, bytes bigint"


def frame(spark: SparkSession, form: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return rows of these columns; a column that a row does not name has a common value or is null."""
    names = [column.split()[0].strip("`") for column in form.split(", ")]
    common = {
        "fleet": "fleet", "day": DAY, "snapshot": "s", "taken": TAKEN, "domain": "", "cluster": "C1", "account": "A",
        "storage": "file", "resource": "file", "num_replicas": 3, "discard": "old", "retention": "limits",
    }  # fmt: skip
    return spark.createDataFrame([tuple({**common, **row}.get(name) for name in names) for row in rows], form)


def servers(spark: SparkSession, names: str, **more: Any) -> DataFrame:
    """Return servers with a limit of 100 GB, each in its own zone."""
    given = {"answered": True, "jetstream": True, "max_storage": 100 * GB, "storage": 0, "reserved_storage": 0, **more}
    whole = {key: int(value) if isinstance(value, float) else value for key, value in given.items()}
    return frame(spark, SERVERS, [{"server": name, "zone": f"z{name}", **whole} for name in names.split()])


def replicas(spark: SparkSession, streams: Mapping[str, tuple[str, float, float]]) -> DataFrame:
    """Return the replicas of streams, each given as its servers, its bytes and its max_bytes."""
    return frame(
        spark,
        REPLICAS,
        [
            {
                "stream": stream, "server": server, "bytes": int(size), "max_bytes": int(limit),
                "num_replicas": len(on.split()),
            }
            for stream, (on, size, limit) in streams.items()
            for server in on.split()
        ],
    )  # fmt: skip


def forecasts(spark: SparkSession, slopes: Mapping[str, float | None], scope: str = "stream", **more: Any) -> DataFrame:
    rows = (
        {
            "scope": scope, "name": name, "days_long": 0 if slope is None else 28, "days_short": 7, "basis": "long",
            "slope": slope, "trimmed": False, "used": 10 * GB, "reserved": 0.0,
            **{f"change_{days}_{percentile}": days * (slope or 0.0) for days in (1, 7, 30) for percentile in ("p10", "p90")},
            **more,
        }
        for name, slope in slopes.items()
    )  # fmt: skip
    return frame(spark, schema(columns.FORECASTS), rows)


def failing(
    spark: SparkSession,
    names: str,
    streams: Mapping[str, tuple[str, float, float]],
    slopes: Mapping[str, float | None] | None = None,
) -> dict[str, Row]:
    """Return the headroom if each of the servers fails."""
    forecast_rows = forecasts(spark, slopes or {})
    found = headroom(servers(spark, names), replicas(spark, streams), forecast_rows, DEFAULTS)
    return {row["name"]: row for row in found.where("scope = 'server'").collect()}


def test_replica_of_a_stream_on_all_servers_cannot_be_placed_after_a_failure(spark: SparkSession) -> None:
    three = failing(spark, "n1 n2 n3", {"ORDERS": ("n1 n2 n3", GB, 2 * GB), "LOGS": ("n1 n2", GB, -1)})
    assert {name: (row["servers_left"], row["replicas"], row["unplaced"]) for name, row in three.items()} == {
        "n1": (2, 2, 1), "n2": (2, 2, 1), "n3": (2, 1, 1),
    }  # fmt: skip
    assert [(row["has_space"], row["fits"]) for row in three.values()] == [(True, False)] * 3
    # Only the replica that finds a server takes space.
    assert (three["n1"]["need"], three["n3"]["need"], three["n3"]["largest"]) == (GB, 0.0, None)
    four = failing(spark, "n1 n2 n3 n4", {"ORDERS": ("n1 n2 n3", GB, 2 * GB)})
    assert [(row["unplaced"], row["fits"]) for row in four.values()] == [(0, True)] * 4
    assert four["n1"]["need"] == 2 * GB


def test_growth_within_max_bytes_does_not_reduce_headroom(spark: SparkSession) -> None:
    on = "n1 n2 n3"
    limited = failing(spark, "n1 n2 n3 n4", {"ORDERS": (on, GB, 2 * GB)}, {"A/ORDERS": 4 * GB})
    assert {(row["slope"], row["days"]) for row in limited.values()} == {(0.0, None)}
    both = failing(
        spark,
        "n1 n2 n3 n4",
        {"ORDERS": (on, GB, 2 * GB), "LOGS": (on, 3 * GB, -1), "LOCAL": ("n4", GB, -1)},
        {"A/ORDERS": 4 * GB, "A/LOGS": 0.5 * GB, "A/LOCAL": GB},
    )
    # n1: 80 GB each, with ORDERS (2) and LOGS (3) on two, LOCAL (1) on the third, and 5 GB to rebuild.
    row = both["n1"]
    assert (row["free"], row["need"], row["after"]) == (3 * 80 * GB - 11 * GB, 5 * GB, 224 * GB)
    assert (row["slope"], row["days"]) == (2.5 * GB, pytest.approx(224 / 2.5))
    # LOCAL is lost with n4, and grows no more.
    assert (both["n4"]["lost"], both["n4"]["need"], both["n4"]["slope"]) == (GB, 0.0, 1.5 * GB)


def test_headroom_has_no_days_without_the_growth_of_most_bytes(spark: SparkSession) -> None:
    on = "n1 n2 n3"
    one = failing(spark, "n1 n2 n3 n4", {"LOGS": (on, GB, -1)}, {"A/LOGS": None})
    assert {(row["fits"], row["slope"], row["days"]) for row in one.values()} == {(True, None, None)}
    streams = {"LOGS": (on, 50 * GB, -1), "NEW": (on, GB, -1)}
    some = failing(spark, "n1 n2 n3 n4", streams, {"A/LOGS": GB})
    assert {row["slope"] for row in some.values()} == {3 * GB}


def fill(
    spark: SparkSession, forecast_rows: DataFrame, streams: DataFrame, held: DataFrame, there: DataFrame
) -> dict[str, Row]:
    due = frame(spark, schema(columns.BACKTESTS), [])
    return {row["name"]: row for row in capacity(forecast_rows, due, due, streams, held, there).collect()}


def test_assets_whose_streams_are_all_limited_are_never_full(spark: SparkSession) -> None:
    """The streams of n1 have max_bytes and fit; those of n2 do not fit; n3 has a stream without max_bytes."""
    held = {"ORDERS": ("n1 n2", GB, 40 * GB), "EVENTS": ("n2", GB, 70 * GB), "LOGS": ("n3", GB, -1)}
    rows = replicas(spark, held)
    there = servers(spark, "n1 n2 n3")
    forecast_rows = forecasts(spark, dict.fromkeys(("n1", "n2", "n3"), GB), "server", limit=100 * GB)
    found = fill(spark, forecast_rows, rows.where("server <> 'n1'").drop("server", "bytes"), rows, there)
    assert {name: (row["state"], row["stream_limits"], row["full_p50"]) for name, row in found.items()} == {
        "n1": ("limited", 40 * GB, None), "n2": ("growing", 110 * GB, 90.0), "n3": ("growing", None, 90.0),
    }  # fmt: skip


def test_limits_of_wider_scopes_need_the_reports_of_all_servers(spark: SparkSession) -> None:
    held = replicas(spark, {"ORDERS": ("n1 n2 n3", GB, 10 * GB)})
    streams = held.where("server = 'n1'").drop("server", "bytes")
    there = servers(spark, "n1 n2 n3")
    of = {"cluster": "C1", "account": "A", "zone": "zn1"}
    for complete in (True, False):
        answered = (
            there if complete else there.where("server <> 'n3'").unionByName(servers(spark, "n3", answered=False))
        )
        for scope, name in of.items():
            cluster = "" if scope == "account" else "C1"
            rows = forecasts(spark, {name: GB}, scope, limit=100 * GB, cluster=cluster)
            (row,) = fill(spark, rows, streams, held, answered).values()
            limits = (10 if scope == "zone" else 30) * GB if complete else None
            assert (row["stream_limits"], row["state"]) == (limits, "limited" if complete else "growing"), scope


def test_stream_removes_loses_or_rejects_messages_at_its_limit(spark: SparkSession) -> None:
    configured = {"RING": ("old", "limits"), "WORK": ("old", "workqueue"), "STRICT": ("new", "limits")}
    streams = frame(
        spark,
        STREAMS,
        [
            {"stream": stream, "max_bytes": int(50 * GB), "discard": discard, "retention": retention}
            for stream, (discard, retention) in configured.items()
        ],
    )
    rows = forecasts(spark, {f"A/{stream}": GB for stream in [*configured, "GONE"]}, limit=50 * GB)
    found = fill(spark, rows, streams, replicas(spark, {}), servers(spark, "n1"))
    assert {name: (row["state"], row["at_limit"]) for name, row in found.items()} == {
        "A/RING": ("growing", "removes"), "A/WORK": ("growing", "loses"), "A/STRICT": ("growing", "rejects"),
        "A/GONE": ("growing", None),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("daily", "weekly", "shown"),
    [
        (TESTED - 1, 0, (1, TESTED - 1, "untested")),
        (TESTED, 1, (1, TESTED, "tested")),
        (20, TESTED, (7, TESTED, "tested")),
        (3, 1, (7, 1, "untested")),
    ],
)
def test_forecast_is_tested_after_enough_backtests(
    spark: SparkSession, daily: int, weekly: int, shown: tuple[int, int, str]
) -> None:
    rows = [
        {"scope": "server", "name": "n1", "horizon": horizon, "error": 0.0, "naive_error": 0.1, "covered": True}
        for horizon, many in ((1, daily), (7, weekly))
        for _number in range(many)
    ]
    due = frame(spark, schema(columns.BACKTESTS), rows)
    there, held = servers(spark, "n1"), replicas(spark, {})
    streams = held.drop("server", "bytes")
    forecast_rows = forecasts(spark, {"n1": GB}, "server", limit=100 * GB)
    (row,) = capacity(forecast_rows, due, due.limit(0), streams, held, there).collect()
    assert (row["horizon"], row["backtests"], row["confidence"]) == shown
