# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas of a stream with other contents than their leader.

Servers answer one after the other. The tolerance covers messages written between their answers (by `received`), and messages
that expired, were acknowledged or purged in that time, at the leader's own rate, last_seq − messages. The comparison finds
messages missing in the middle: the difference of messages minus the difference of last_seq.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import whole_hour
from jetstream_insights.gold.tables import GoldTable, not_negative, ratio
from jetstream_insights.keys import STREAM
from jetstream_insights.times import seconds

#: Consecutive compared snapshots after which a difference counts as more than temporary.
_IN_A_ROW = 3

#: Seconds by which two answers may be further apart than their arrival times, and messages that may be in flight.
_SLACK_SECONDS, _SLACK_MESSAGES = 1.0, 10

_STREAM = ("fleet", *STREAM)
_KEY = (*_STREAM, "server", "created")


class Compared(NamedTuple):
    """The comparison of a replica and its leader, null without a leader: the tolerance in messages, whether the two are within
    it, whether the replica lags, and whether it differs. A pair that is not within the tolerance need not lag: a burst may lie
    between the two answers."""

    tolerance: Column
    near: Column
    lags: Column
    differs: Column


def pairs(stream_replicas: DataFrame) -> DataFrame:
    """Return each replica of a stream with its sole leader in each snapshot; `leader` is null if there is none."""
    rank = F.when(F.col("is_backed"), 0).when(F.col("is_leader"), 1).otherwise(2)
    one = F.struct(
        rank.alias("rank"),
        "server",
        "created",
        "received",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in columns.HELD),
    )
    # Other computations over a stream's rows can use the same partitioning.
    together = stream_replicas.repartition(*_STREAM)
    grouped = together.groupBy(*_STREAM, "snapshot", "taken").agg(F.array_sort(F.collect_list(one)).alias("all"))
    # Sorted by rank: the first is the leader if no other replica has its rank.
    best, next_ = F.col("all")[0], F.try_element_at("all", F.lit(2))
    sole = (best["rank"] < 2) & (next_.isNull() | (next_["rank"] > best["rank"]))
    led = grouped.withColumn("leads", F.when(sole, best))
    others = F.filter("all", lambda replica: F.coalesce(replica["server"] != F.col("leads.server"), F.lit(True)))
    return led.withColumn("replica", F.explode(others)).select(
        *_STREAM, "taken", F.col("replica.server").alias("server"), F.col("replica.created").alias("created"),
        F.col("leads.server").alias("leader"),
        # Positive if the leader's answer came later.
        seconds(F.col("replica.received"), F.col("leads.received")).alias("apart"),
        *(F.col(f"replica.{name}").alias(name) for name in columns.HELD),
        *(F.col(f"leads.{name}").alias(f"leader_{name}") for name in columns.HELD),
    )  # fmt: skip


def _rates(old: Column, new: Column) -> dict[str, Column]:
    """Return the messages per second that the leader wrote between two pairs, and those that were removed."""
    elapsed = seconds(old["taken"], new["taken"])
    written = new["leader_last_seq"] - old["leader_last_seq"]
    gone = written - (new["leader_messages"] - old["leader_messages"])
    return {"write": not_negative(ratio(written, elapsed)), "trim": not_negative(ratio(gone, elapsed))}


def _compared(pair: Column, before: Column, write: Column, trim: Column, trims: Column) -> Compared:
    """Compare a pair at these rates. `before`: the previous pair. `trims`: whether messages are removed at all."""
    apart = F.coalesce(pair["apart"], F.lit(0.0))
    window = F.abs(apart) + F.lit(_SLACK_SECONDS)
    tolerance = F.coalesce(write, F.lit(0.0)) * window + F.lit(_SLACK_MESSAGES)
    trimmed = F.coalesce(trim, F.lit(0.0)) * window
    behind = pair["leader_last_seq"] - pair["last_seq"]
    # Messages in flight are missing from last_seq as well.
    missing = F.abs((pair["leader_messages"] - pair["messages"]) - behind)
    other = (pair["leader_bytes"] != pair["bytes"]) | (pair["leader_first_seq"] != pair["first_seq"])
    # If messages are removed, however rarely, one may be removed between the two answers.
    whole = F.when(trims, 1).otherwise(0)
    near = F.abs(behind) <= tolerance
    # A burst may lie between the answers if the one with more messages came later. Even then, the other one must have the
    # messages that it had a snapshot earlier.
    came_later = F.when(behind > 0, apart).otherwise(-apart) > 0
    earlier = F.when(behind > 0, before["leader_last_seq"]).otherwise(before["last_seq"]) - F.lit(_SLACK_MESSAGES)
    stuck = F.coalesce(F.least(pair["leader_last_seq"], pair["last_seq"]) < earlier, F.lit(True))
    lags = ~near & (~came_later | stuck)
    differs = near & ((missing > trimmed + whole) | ((behind == 0) & other & (trimmed == 0)))
    return Compared(tolerance, near, lags, differs)


def _select_newest(frame: DataFrame, *replica_key: str) -> DataFrame:
    """Return the rows of the latest stream: a recreated stream has other replicas."""
    in_order = Window.partitionBy(*replica_key).orderBy("taken")
    whole = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return frame.withColumn("newest", F.last("created").over(whole)).where(F.col("created").eqNullSafe(F.col("newest")))


def followers(stream_replicas: DataFrame) -> DataFrame:
    """Return the hourly aggregate of each replica: its first and last pair, and a summary of those after the first. The step from
    the previous hour is computed with the day."""
    hourly_key = (*_STREAM, "server", "whole_hour")
    group = Window.partitionBy(*hourly_key)
    stepped = (
        _select_newest(pairs(stream_replicas).withColumn("whole_hour", whole_hour()), *hourly_key)
        .withColumn("pair", F.struct(*columns.PAIR))
        .withColumn("before", F.lag("pair").over(group.orderBy("taken")))
        .withColumns(_rates(F.col("before"), F.col("pair")))
    )
    mean = {name: F.coalesce(name, F.avg(name).over(group)) for name in ("write", "trim")}
    found = _compared(F.col("pair"), F.col("before"), mean["write"], mean["trim"], F.max("trim").over(group) > 0)
    later = F.col("before").isNotNull() & F.col("leader").isNotNull()
    compared = stepped.withColumns(
        {
            "tolerance": found.tolerance,
            "near": later & found.near,
            "lags": later & found.lags,
            "differs": later & found.differs,
            "both": later,
        }
    )
    # A snapshot in which a replica is not near its leader does not show whether it differs.
    ended = compared.withColumns(
        {
            "alike_at": F.max(F.when(F.col("near") & ~F.col("differs"), F.col("taken"))).over(group),
            "near_at": F.max(F.when(F.col("near"), F.col("taken"))).over(group),
        }
    )
    still = {name: F.when(F.col(name) & _after("taken", end), F.col("taken")) for name, end in _ENDS.items()}
    return ended.groupBy(*_KEY, "whole_hour").agg(
        F.min("taken").alias("taken"),
        F.min_by("pair", "taken").alias("first"),
        F.max_by("pair", "taken").alias("last"),
        *(
            F.struct(F.sum(name).alias("sum"), F.count(name).alias("count"), F.max(name).alias("max")).alias(name)
            for name in mean
        ),
        F.count_if("both").alias("compared"),
        F.count_if("differs").alias("differing"),
        F.count_if("lags").alias("lagging"),
        F.max("alike_at").alias("alike_at"),
        F.max("near_at").alias("near_at"),
        *(F.count(since).alias(f"still_{name}") for name, since in still.items()),
        *(F.min(since).alias(f"{name}_since") for name, since in still.items()),
        F.max_by(F.struct("pair.*", "tolerance"), F.when(F.col("both"), F.col("taken"))).alias("shown"),
    )


#: The time that ends each condition.
_ENDS = {"differs": "alike_at", "lags": "near_at"}


def _after(moment: str, end: str) -> Column:
    return F.col(end).isNull() | (F.col(moment) > F.col(end))


def _with_steps(hourly_rows: DataFrame) -> DataFrame:
    """Return the hours of a day in two parts: the first pair, with the step from the previous hour, and the later pairs."""
    replica_key = (*_STREAM, "server")
    group = Window.partitionBy(*replica_key)
    stepped = _select_newest(hourly_rows, *replica_key).withColumn("before", F.lag("last").over(group.orderBy("taken")))
    rates = _rates(F.col("before"), F.col("first"))
    stepped = stepped.withColumns({f"{name}_step": step for name, step in rates.items()})

    def rate(name: str) -> Column:
        # The first pair of all has no rate yet: the day's own mean replaces it.
        step, hour = F.col(f"{name}_step"), F.col(name)
        whole = F.coalesce(F.sum(hour["sum"]).over(group), F.lit(0.0)) + F.coalesce(F.sum(step).over(group), F.lit(0.0))
        return F.coalesce(step, ratio(whole, F.sum(hour["count"]).over(group) + F.count(step).over(group)))

    trims = F.max(F.greatest(F.col("trim")["max"], F.col("trim_step"))).over(group) > 0
    found = _compared(F.col("first"), F.col("before"), rate("write"), rate("trim"), trims)
    both = F.col("first.leader").isNotNull()
    judged = stepped.withColumns(
        {
            "both": both,
            "tolerance": found.tolerance,
            "first_near": both & found.near,
            "first_lags": both & found.lags,
            "first_differs": both & found.differs,
        }
    )
    near, lags, differs = (F.col(f"first_{name}") for name in ("near", "lags", "differs"))
    taken = F.col("first.taken")
    first_columns = {
        "compared": F.col("both").cast("bigint"),
        "differing": differs.cast("bigint"),
        "lagging": lags.cast("bigint"),
        "alike_at": F.when(near & ~differs, taken),
        "near_at": F.when(near, taken),
        "still_differs": differs.cast("bigint"),
        "still_lags": lags.cast("bigint"),
        "differs_since": F.when(differs, taken),
        "lags_since": F.when(lags, taken),
        "shown": F.when(F.col("both"), F.struct("first.*", "tolerance")),
    }
    one = F.struct(*(value.alias(name) for name, value in first_columns.items()))
    return judged.select(*_KEY, "taken", F.inline(F.array(one, F.struct(*first_columns))))


def divergence(hourly_rows: DataFrame, past: DataFrame) -> DataFrame:
    """Return whether each replica differs from its leader, or lags behind it, for more than a moment.

    Answers arrive at different times: messages written or removed in between are tolerated. A new leader may differ from the
    previous one, so the result is a property of the pair. `past`: the same table of the previous day, so a condition present at
    its end continues until a snapshot shows that it is over.
    """
    replica_key = Window.partitionBy(*_STREAM, "server")
    parts = _with_steps(hourly_rows).withColumns({end: F.max(end).over(replica_key) for end in _ENDS.values()})
    # A condition that began in one part continues unless a later part has ended it.
    goes_on = {name: _after(f"{name}_since", end) for name, end in _ENDS.items()}
    since = [F.min(F.when(is_so, F.col(f"{name}_since"))) for name, is_so in goes_on.items()]
    grouped = parts.groupBy(*_KEY, F.to_date("taken").alias("day")).agg(
        *(F.sum(name).alias(name) for name in ("compared", "differing", "lagging")),
        F.least(*since).alias("began"),
        *(F.sum(F.when(is_so, F.col(f"still_{name}")).otherwise(0)).alias(name) for name, is_so in goes_on.items()),
        F.max("alike_at").alias("alike_at"),
        F.max("near_at").alias("near_at"),
        F.max_by("shown", "shown.taken").alias("of"),
    )
    before = past.select(
        *_KEY, F.col("begin").alias("past_begin"), F.col("differs_in_a_row").alias("past_differs"),
        (F.col("in_a_row") - F.col("differs_in_a_row")).alias("past_lags"),
    )  # fmt: skip
    none = F.lit(0)
    # A snapshot that counts for alike_at counts for near_at, too: a difference that continues began before any lag.
    carried = grouped.join(before, on=list(_KEY), how="left").withColumns(
        {
            "past_differs": F.when(F.col("alike_at").isNull(), F.coalesce("past_differs", none)).otherwise(none),
            "past_lags": F.when(F.col("near_at").isNull(), F.coalesce("past_lags", none)).otherwise(none),
        }
    )
    began_before = F.col("past_differs") + F.col("past_lags") > 0
    differs, lags = F.col("differs") + F.col("past_differs"), F.col("lags") + F.col("past_lags")
    share = ratio(F.abs(F.col("leader_messages") - F.col("messages")), F.col("leader_messages"))
    return carried.select("*", *(F.col(f"of.{name}") for name in columns.SHOWN if name != "taken")).withColumns(
        {
            "end": F.col("of.taken"),
            "begin": F.when(began_before, F.col("past_begin")).otherwise(F.col("began")),
            "in_a_row": differs + lags,
            "differs_in_a_row": differs,
            "diverged": differs >= _IN_A_ROW,
            "behind": lags >= _IN_A_ROW,
            "share": share,
        }
    )


TABLES = (
    GoldTable(
        "divergence",
        "replica of a stream that does not lead it",
        columns.DIVERGENCE,
        ("hours.followers", "past.divergence:1"),
        divergence,
    ),
)
FACTS = (
    GoldTable(
        "followers",
        "replica of a stream that does not lead it",
        columns.FOLLOWERS,
        ("silver.stream_replicas",),
        followers,
    ),
)
