# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State of consumers: keeping up, falling behind, stuck, or redelivering the same messages.

Trends use the Theil–Sen slope (the median of the slopes between all pairs of points) and Kendall's τ ((rising − falling
pairs) / pairs): `growing` needs τ ≥ 0.6, 6 points and 10 messages, `catching_up` τ ≤ −0.6. `stuck` and `redelivering`
need 15 minutes without progress, or three times ack_wait if that is longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import GoldSettings, another_life, middle, pair_slopes, whole_hour
from jetstream_insights.gold.tables import GoldTable, not_negative, ratio
from jetstream_insights.keys import CONSUMER
from jetstream_insights.times import seconds

#: Maximum number of points of the trend, the minimum for a result, and the |τ| of a trend.
_POINTS, _ENOUGH, _TREND = 24, 6, 0.6

#: Messages by which num_pending must have risen to count as growing.
_RISE = 10

#: A message may be acknowledged up to ack_wait after its delivery: a consumer without progress for this many ack_waits is stuck.
_WAITS = 3

_KEY = ("fleet", *CONSUMER, "created")

_NUMBERS = ("num_pending", "num_ack_pending", "num_redelivered", "delivered_consumer_seq", "ack_floor_consumer_seq")

#: Sequences that rise when a consumer makes progress.
_FLOORS = ("ack_floor_stream_seq", "delivered_stream_seq")


def lags(consumers: DataFrame) -> DataFrame:
    """Return the state of each consumer in an hour, as its leader reported. Progress between the previous hour and the first
    snapshot is computed with the day."""
    work = (F.col("num_pending") > 0) | (F.col("num_ack_pending") > 0)
    reported = consumers.where(F.col("leader").isNotNull()).withColumns({
        name: F.coalesce(F.col(name), F.lit(0))
        for name in (*_NUMBERS, *_FLOORS)
    }).withColumns({"work": work, "whole_hour": whole_hour()})  # fmt: skip
    one = Window.partitionBy("fleet", *CONSUMER, "whole_hour").orderBy("taken")
    reported = _with_one_creation(reported, one)
    moved = _progress({name: F.lag(name).over(one) for name in _FLOORS})
    moved_at = F.when(F.col("moved"), F.col("taken"))
    return (
        reported.withColumn("moved", moved)
        .groupBy(*_KEY, "whole_hour")
        .agg(
            F.max("taken").alias("taken"),
            F.min("taken").alias("begin"),
            F.count(F.lit(1)).cast("int").alias("snapshots"),
            F.min("num_pending").alias("pending_min"),
            F.max("num_pending").alias("pending_max"),
            F.min_by(F.struct(*columns.CONSUMER_NOW), "taken").alias("first"),
            F.max_by(F.struct(*columns.CONSUMER_NOW), "taken").alias("now"),
            F.max(moved_at).alias("moved_at"),
            F.max_by("delivered_consumer_seq", moved_at).alias("moved_delivered"),
            F.array_sort(F.collect_list(F.struct(*columns.CONSUMER_POINT))).alias("points"),
        )
    )


def _with_one_creation(frame: DataFrame, one: WindowSpec) -> DataFrame:
    """Add whether a consumer `begins`, and set `created` to the first report of that creation. `one`: the rows of a consumer in
    order."""
    begins = F.lag("taken").over(one).isNull() | another_life(F.col("created"), F.lag("created").over(one))
    first = F.last(F.when(F.col("begins"), F.struct("created")), ignorenulls=True)
    until = one.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return frame.withColumn("begins", begins).withColumn("created", first.over(until)["created"])


def _progress(before: Mapping[str, Column], of: str = "") -> Column:
    """Return whether the consumer has no work, or did more than `before`, unless it begins."""
    more = (~F.col("begins") & (F.col(f"{of}{name}") > before[name]) for name in _FLOORS)
    return F.coalesce(reduce(Column.__or__, more, ~F.col(f"{of}work")), F.lit(False))


def _aggregate_day(hourly_rows: DataFrame, settings: GoldSettings) -> DataFrame:
    """Return a row for each consumer and creation, with its first and last figures of the day and the points of the recent
    period."""
    one = Window.partitionBy("fleet", *CONSUMER).orderBy("taken")
    hourly_rows = _with_one_creation(hourly_rows, one)
    every = Window.partitionBy(*_KEY)
    began = _progress({name: F.lag(f"now.{name}").over(one) for name in _FLOORS}, "first.")
    marked = hourly_rows.withColumns({"end": F.max("taken").over(every), "began": began}).withColumns(
        {
            "moved_delivered": F.coalesce(
                "moved_delivered", F.when(F.col("began"), F.col("first.delivered_consumer_seq"))
            ),
            "moved_at": F.coalesce("moved_at", F.when(F.col("began"), F.col("begin"))),
            # The trend does not use hours that ended before the recent period.
            "points": F.when(seconds(F.col("taken"), F.col("end")) <= F.lit(settings.recent), F.col("points")),
        }
    )
    return marked.groupBy(*_KEY, "end").agg(
        F.min("begin").alias("begin"),
        F.sum("snapshots").cast("int").alias("snapshots"),
        F.max_by("now", "taken").alias("now"),
        F.min("pending_min").alias("pending_min"),
        F.max("pending_max").alias("pending_max"),
        F.max("moved_at").alias("moved_at"),
        F.max_by("moved_delivered", "moved_at").alias("moved_delivered"),
        F.min_by("first.delivered_consumer_seq", "begin").alias("first_delivered"),
        F.array_sort(F.flatten(F.collect_list("points"))).alias("points"),
    )


def _with_recent_points(grouped: DataFrame, settings: GoldSettings) -> DataFrame:
    """Add the first recent point and those that show the trend: the last one of each part of the recent period. Also add since
    when the consumer has not moved."""
    recent = F.filter("points", lambda point: seconds(point["taken"], F.col("end")) <= F.lit(settings.recent))

    def bin_(point: Column) -> Column:
        return F.floor(seconds(point["taken"], F.col("end")) / F.lit(settings.recent / _POINTS))

    def last_of_bin(point: Column, index: Column) -> Column:
        following = F.get("points", index + 1)
        return following.isNull() | (bin_(following) != bin_(point))

    return grouped.withColumn("points", recent).withColumns(
        {
            "then": F.get("points", F.lit(0)),
            "trend_points": F.transform(
                F.filter("points", last_of_bin),
                lambda point: F.struct(
                    (F.unix_micros(point["taken"]) / F.lit(1e6)).alias("at"),
                    point["num_pending"].cast("double").alias("value"),
                ),
            ),
            "still_since": F.coalesce("moved_at", "begin"),
            "still_delivered": F.when(F.col("moved_at").isNotNull(), F.col("moved_delivered")).otherwise(
                F.col("first_delivered")
            ),
        }
    )


def _with_rates(joined: DataFrame, rose: Column, day: Column) -> DataFrame:
    """Add the rates of the recent period, its trend, and since when the consumer is stuck. `rose`: by how many messages the
    number of pending ones rose."""
    elapsed = seconds(F.col("then.taken"), F.col("end"))
    sum_of_signs = F.aggregate("pairs", F.lit(0.0), lambda total, slope: total + F.signum(slope))
    delivered = F.col("delivered_consumer_seq") - F.col("then.delivered_consumer_seq")
    # Nothing moved in the entire day, and not at the end of the previous one.
    goes_on = (
        F.col("moved_at").isNull()
        & F.col("past_since").isNotNull()
        & ~another_life(F.col("created"), F.col("past_created"))
        & (F.col("past_floor") == F.col("ack_floor_stream_seq"))
    )
    stands = F.col("work") & (F.col("still_since") < F.col("end"))
    return joined.withColumns({
        "deliver_rate": ratio(delivered, elapsed),
        # In messages of the consumer, like ingest_rate: its filter skips the other messages of the stream.
        "ack_rate": not_negative(
            ratio(F.col("ack_floor_consumer_seq") - F.col("then.ack_floor_consumer_seq"), elapsed)
        ),
        "ingest_rate": not_negative(ratio(delivered + rose, elapsed)),
        "pending_slope": middle(F.col("pairs")),
        "trend": ratio(sum_of_signs, F.size("pairs")),
        "points": F.size("trend_points"),
        "stuck_since": F.when(stands, F.when(goes_on, F.col("past_since")).otherwise(F.col("still_since"))),
        "redeliveries": F.when(
            stands,
            F.col("delivered_consumer_seq") - F.col("still_delivered")
            + F.when(goes_on, F.coalesce("past_redeliveries", F.lit(0))).otherwise(0),
        ),
        "ack_floor": F.col("ack_floor_stream_seq"),
        "day": day,
    }).withColumn("stuck_seconds", seconds(F.col("stuck_since"), F.col("end")))  # fmt: skip


def consumer_lag(hourly_rows: DataFrame, past: DataFrame, day: Column, settings: GoldSettings) -> DataFrame:
    """Return the state of each consumer over the day, as its leader reported. `past`: the same table of the previous day, so a
    consumer that was stuck at its end remains stuck."""
    grouped = _with_recent_points(_aggregate_day(hourly_rows, settings), settings)
    latest = Window.partitionBy("fleet", *CONSUMER)
    newest = grouped.withColumn("newest", F.max("end").over(latest)).where(F.col("end") == F.col("newest"))
    before = past.select(
        "fleet", *CONSUMER, F.col("created").alias("past_created"), F.col("stuck_since").alias("past_since"),
        F.col("ack_floor").alias("past_floor"), F.col("redeliveries").alias("past_redeliveries"),
    )  # fmt: skip
    joined = (
        newest.select("*", "now.*")
        .withColumn("pairs", pair_slopes(F.col("trend_points")))
        .join(before, on=["fleet", *CONSUMER], how="left")
    )
    rose = F.col("num_pending") - F.col("then.num_pending")
    known = _with_rates(joined, rose, day)
    limit = F.greatest(F.lit(settings.stuck_after), F.coalesce("ack_wait", F.lit(0.0)) * _WAITS)
    still_long = F.coalesce(F.col("stuck_seconds") >= limit, F.lit(False))
    trending = F.col("points") >= _ENOUGH
    falls = F.col("pending_slope") < 0
    return known.withColumns(
        {
            "catch_up": F.when(F.col("num_pending") == 0, 0.0).when(
                falls, F.col("num_pending") / -F.col("pending_slope")
            ),
            "state": F.when(F.col("snapshots") < 3, "unknown")
            .when(F.col("paused"), "paused")
            .when(still_long & (F.col("redeliveries") > 0), "redelivering")
            .when(still_long, "stuck")
            .when(trending & (F.col("pending_slope") > 0) & (F.col("trend") >= _TREND) & (rose >= _RISE), "growing")
            .when(trending & falls & (F.col("trend") <= -_TREND), "catching_up")
            .when(F.col("num_pending") > 0, "behind")
            .otherwise("current"),
        }
    )


FACTS = (GoldTable("lags", "consumer", columns.LAGS, ("silver.consumers",), lags),)
TABLES = (
    GoldTable(
        "consumer_lag",
        "consumer",
        columns.CONSUMER_LAG,
        ("hours.lags", "past.consumer_lag:1", "day", "settings"),
        consumer_lag,
    ),
)
