# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas of a stream that do not hold what their leader holds.

Servers answer one after the other. Tolerated is what was written between their answers (by `received`), and what
expired, was acknowledged or purged meanwhile at the leader's own rate, last_seq − messages. Compared is what is
missing in the middle: the difference of messages less that of last_seq.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.tables import Table, not_negative, ratio, seconds
from jetstream_insights.keys import STREAM

#: Compared snapshots in a row that make it more than a moment.
_IN_A_ROW = 3

#: Seconds by which two answers may be further apart than their times of arrival tell, and messages that may be on their way.
_SLACK_SECONDS, _SLACK_MESSAGES = 1.0, 10

_STREAM = ("fleet", *STREAM)
_KEY = (*_STREAM, "server", "created")
_FIGURES = ("messages", "bytes", "first_seq", "last_seq")


def pairs(stream_replicas: DataFrame) -> DataFrame:
    """Return each replica of a stream beside its sole leader in each snapshot; `leader_reported` is null where there is none."""
    rank = F.when(F.col("is_backed"), 0).when(F.col("is_leader"), 1).otherwise(2)
    one = F.struct(
        rank.alias("rank"),
        "server",
        "created",
        "received",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in _FIGURES),
    )
    grouped = stream_replicas.groupBy(*_STREAM, "snapshot", "taken").agg(F.array_sort(F.collect_list(one)).alias("all"))
    # Sorted by rank: the first is the leader when nobody else has its rank.
    best, next_ = F.col("all")[0], F.try_element_at("all", F.lit(2))
    sole = (best["rank"] < 2) & (next_.isNull() | (next_["rank"] > best["rank"]))
    led = grouped.withColumn("leads", F.when(sole, best))
    others = F.filter("all", lambda replica: F.coalesce(replica["server"] != F.col("leads.server"), F.lit(True)))
    return led.withColumn("replica", F.explode(others)).select(
        *_STREAM, "taken", F.col("replica.server").alias("server"), F.col("replica.created").alias("created"),
        F.col("leads.server").alias("leader"),
        F.abs(seconds(F.col("leads.received"), F.col("replica.received"))).alias("apart"),
        *(F.col(f"replica.{name}").alias(name) for name in _FIGURES),
        *(F.col(f"leads.{name}").alias(f"leader_{name}") for name in _FIGURES),
    )  # fmt: skip


def divergence(stream_replicas: DataFrame, past: DataFrame) -> DataFrame:
    """Return of each replica whether it differs from its leader, or lags behind it, for longer than a moment.

    Answers come at different times: what was written and what went in between is tolerated. A leader may differ from the one
    before it, so that what is the matter is of the pair. `past`: the same of the day before, so that what was the matter at its
    end goes on until a snapshot shows that it is over. A stream that was made again has other replicas.
    """
    of_replica = Window.partitionBy(*_STREAM, "server")
    in_order = of_replica.orderBy("taken")
    newest = F.last("created").over(in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    old = {name: F.lag(f"leader_{name}").over(in_order) for name in ("messages", "last_seq")}
    elapsed = seconds(F.lag("taken").over(in_order), F.col("taken"))
    written = F.col("leader_last_seq") - F.col("old_last_seq")
    gone = written - (F.col("leader_messages") - F.col("old_messages"))
    window = F.coalesce("apart", F.lit(0.0)) + F.lit(_SLACK_SECONDS)
    of_newest = pairs(stream_replicas).withColumn("newest", newest).where(F.col("created").eqNullSafe(F.col("newest")))
    compared = of_newest.withColumns({**{f"old_{name}": value for name, value in old.items()}, "elapsed": elapsed})
    rated = compared.withColumns(
        {
            # Of the first pair nothing is known yet: the day's own mean stands in.
            "write_rate": not_negative(ratio(written, F.col("elapsed"))),
            "trim_rate": not_negative(ratio(gone, F.col("elapsed"))),
        }
    )
    tolerant = rated.withColumns(
        {
            "tolerance": F.coalesce("write_rate", F.avg("write_rate").over(of_replica), F.lit(0.0)) * window
            + F.lit(_SLACK_MESSAGES),
            "trimmed": F.coalesce("trim_rate", F.avg("trim_rate").over(of_replica), F.lit(0.0)) * window,
        }
    )
    both = F.col("leader").isNotNull()
    far = F.abs(F.col("leader_last_seq") - F.col("last_seq")) > F.col("tolerance")
    # What is only on its way is missing at the end too.
    missing = F.abs((F.col("leader_messages") - F.col("messages")) - (F.col("leader_last_seq") - F.col("last_seq")))
    same_end = F.col("leader_last_seq") == F.col("last_seq")
    other = (F.col("leader_bytes") != F.col("bytes")) | (F.col("leader_first_seq") != F.col("first_seq"))
    # Where any go, the next one may go between two answers, however seldom that is.
    whole = F.when(F.max("trim_rate").over(of_replica) > 0, 1).otherwise(0)
    differs = (missing > F.col("trimmed") + whole) | (same_end & other & (F.col("trimmed") == 0))
    judged = tolerant.withColumns({"lags": both & far, "differs": both & ~far & differs}).withColumns(
        {
            "alike_at": F.max(F.when(both & ~far & ~F.col("differs"), F.col("taken"))).over(of_replica),
            "near_at": F.max(F.when(both & ~F.col("lags"), F.col("taken"))).over(of_replica),
        }
    )
    # A snapshot in which it lags says nothing of whether it is alike.
    still_differs = F.col("differs") & (F.col("alike_at").isNull() | (F.col("taken") > F.col("alike_at")))
    still_lags = F.col("lags") & (F.col("near_at").isNull() | (F.col("taken") > F.col("near_at")))
    last = F.max_by(
        F.struct("leader", "tolerance", *_FIGURES, *(f"leader_{name}" for name in _FIGURES)),
        F.when(both, F.col("taken")),
    )
    grouped = judged.groupBy(*_KEY, F.to_date("taken").alias("day")).agg(
        F.count_if(both).alias("compared"),
        F.count_if("differs").alias("differing"),
        F.count_if("lags").alias("lagging"),
        F.min(F.when(still_differs | still_lags, F.col("taken"))).alias("began"),
        F.max(F.when(both, F.col("taken"))).alias("end"),
        F.count_if(still_differs).alias("differs"),
        F.count_if(still_lags).alias("lags"),
        F.max("alike_at").alias("alike_at"),
        F.max("near_at").alias("near_at"),
        last.alias("of"),
    )
    before = past.select(
        *_KEY, F.col("begin").alias("past_begin"), F.col("differs_in_a_row").alias("past_differs"),
        (F.col("in_a_row") - F.col("differs_in_a_row")).alias("past_lags"),
    )  # fmt: skip
    none = F.lit(0)
    # What was alike was near, too: where it still differs, it began to before it lagged.
    carried = grouped.join(before, on=list(_KEY), how="left").withColumns(
        {
            "past_differs": F.when(F.col("alike_at").isNull(), F.coalesce("past_differs", none)).otherwise(none),
            "past_lags": F.when(F.col("near_at").isNull(), F.coalesce("past_lags", none)).otherwise(none),
        }
    )
    goes_on = F.col("past_differs") + F.col("past_lags") > 0
    differs, lags = F.col("differs") + F.col("past_differs"), F.col("lags") + F.col("past_lags")
    share = ratio(F.abs(F.col("leader_messages") - F.col("messages")), F.col("leader_messages"))
    return carried.select("*", "of.*").withColumns(
        {
            "begin": F.when(goes_on, F.col("past_begin")).otherwise(F.col("began")),
            "in_a_row": differs + lags,
            "differs_in_a_row": differs,
            "diverged": differs >= _IN_A_ROW,
            "behind": lags >= _IN_A_ROW,
            "share": share,
        }
    )


TABLES = (
    Table(
        "divergence",
        "replica of a stream that does not lead it",
        columns.DIVERGENCE,
        ("silver.stream_replicas", "past.divergence:1"),
        divergence,
    ),
)
