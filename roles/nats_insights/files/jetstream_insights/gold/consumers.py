# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which consumers keep up, fall behind, stand still, or deliver the same messages again and again.

Trends are Theil–Sen's (the median of the slopes between all pairs of points) and Kendall's τ ((rising − falling
pairs) / pairs): `growing` needs τ ≥ 0.6, 6 points and 10 messages, `catching_up` τ ≤ −0.6. `stuck` and `redelivering`
need 15 minutes without progress, or three times ack_wait when that is more.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import Settings, middle, pair_slopes
from jetstream_insights.gold.tables import Table, not_negative, ratio, seconds
from jetstream_insights.keys import CONSUMER

#: Points of the trend at most, and at least for a judgement; and what |τ| makes a trend.
_POINTS, _ENOUGH, _TREND = 24, 6, 0.6

#: Messages that num_pending must have risen by to count as growing.
_RISE = 10

#: Acknowledgements may take as long as ack_wait: so many of them without progress is standing still.
_WAITS = 3

_KEY = ("fleet", *CONSUMER, "created")


def consumer_lag(consumers: DataFrame, past: DataFrame, day: Column, settings: Settings) -> DataFrame:
    """Return how each consumer does, as its leader reported over the day. `past`: the same of the day before, so that one that
    stood still at its end goes on doing so."""
    reported = consumers.where(F.col("leader").isNotNull()).withColumns({
        name: F.coalesce(F.col(name), F.lit(0))
        for name in (
            "num_pending", "num_ack_pending", "num_redelivered", "ack_floor_stream_seq", "delivered_stream_seq",
            "delivered_consumer_seq",
        )
    })  # fmt: skip
    every = Window.partitionBy(*_KEY)
    one = every.orderBy("taken")
    bin_ = F.floor(seconds(F.col("taken"), F.col("end")) / F.lit(settings.recent / _POINTS))
    work = (F.col("num_pending") > 0) | (F.col("num_ack_pending") > 0)
    progress = (
        ~work
        | (F.col("ack_floor_stream_seq") > F.lag("ack_floor_stream_seq").over(one))
        | (F.col("delivered_stream_seq") > F.lag("delivered_stream_seq").over(one))
    )
    marked = (
        reported.withColumns({"end": F.max("taken").over(every), "begin": F.min("taken").over(every)})
        .withColumns(
            {
                "recent": seconds(F.col("taken"), F.col("end")) <= F.lit(settings.recent),
                "bin": bin_,
                "progress": F.coalesce(progress, F.lit(False)),
                "work": work,
            }
        )
        .withColumns(
            {
                "point": F.col("recent") & (F.coalesce(F.lead("bin").over(one), F.lit(-1)) != F.col("bin")),
                "moved_at": F.max(F.when(F.col("progress"), F.col("taken"))).over(every),
            }
        )
    )
    now = (
        "leader", "durable", "paused", "ack_wait", "num_pending", "num_ack_pending", "num_redelivered", "max_ack_pending",
        "ack_floor_stream_seq", "delivered_stream_seq", "delivered_consumer_seq", "work",
    )  # fmt: skip
    at_first = F.struct("taken", "delivered_consumer_seq", "ack_floor_stream_seq", "num_pending")
    point = F.struct(
        (F.unix_micros("taken") / F.lit(1e6)).alias("at"), F.col("num_pending").cast("double").alias("value")
    )
    still = F.col("moved_at").isNull() | (F.col("taken") >= F.col("moved_at"))
    grouped = marked.groupBy(*_KEY, "begin", "end", "moved_at").agg(
        F.count(F.lit(1)).cast("int").alias("snapshots"),
        F.max_by(F.struct(*now), "taken").alias("now"),
        F.min_by(at_first, F.when(F.col("recent"), F.col("taken"))).alias("then"),
        F.min("num_pending").alias("pending_min"),
        F.max("num_pending").alias("pending_max"),
        F.array_sort(F.collect_list(F.when(F.col("point"), point))).alias("trend_points"),
        F.min(F.when(still, F.col("taken"))).alias("still_since"),
        F.min_by("delivered_consumer_seq", F.when(still, F.col("taken"))).alias("still_delivered"),
    )
    latest = Window.partitionBy("fleet", *CONSUMER)
    newest = grouped.withColumn("newest", F.max("end").over(latest)).where(F.col("end") == F.col("newest"))
    elapsed = seconds(F.col("then.taken"), F.col("end"))
    before = past.select(
        *_KEY, F.col("stuck_since").alias("past_since"),
        F.col("ack_floor").alias("past_floor"), F.col("redeliveries").alias("past_redeliveries"),
    )  # fmt: skip
    joined = (
        newest.select("*", "now.*")
        .withColumn("pairs", pair_slopes(F.col("trend_points")))
        .join(before, on=list(_KEY), how="left")
    )
    sum_of_signs = F.aggregate("pairs", F.lit(0.0), lambda total, slope: total + F.signum(slope))
    delivered = F.col("delivered_consumer_seq") - F.col("then.delivered_consumer_seq")
    rose = F.col("num_pending") - F.col("then.num_pending")
    # Nothing moved in the whole day, and not at the end of the one before.
    goes_on = (
        F.col("moved_at").isNull()
        & F.col("past_since").isNotNull()
        & (F.col("past_floor") == F.col("ack_floor_stream_seq"))
    )
    stands = F.col("work") & (F.col("still_since") < F.col("end"))
    known = joined.withColumns({
        "deliver_rate": ratio(delivered, elapsed),
        "ack_rate": ratio(F.col("ack_floor_stream_seq") - F.col("then.ack_floor_stream_seq"), elapsed),
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
    patience = F.greatest(F.lit(settings.stuck_after), F.coalesce("ack_wait", F.lit(0.0)) * _WAITS)
    still_long = F.coalesce(F.col("stuck_seconds") >= patience, F.lit(False))
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


TABLES = (
    Table(
        "consumer_lag",
        "consumer",
        columns.CONSUMER_LAG,
        ("silver.consumers", "past.consumer_lag:1", "day", "settings"),
        consumer_lag,
    ),
)
