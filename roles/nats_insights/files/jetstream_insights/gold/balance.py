# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Distribution of leaders, replicas, bytes and writes over servers and zones, and the best possible distribution.

The JetStream servers of a cluster that answered in the day's last snapshot are compared, and their zones. Set thresholds
on `max_to_mean` (leaders 1.5, bytes 2); with few servers it is more telling than `cov`. `distance` shows whether an
improvement is possible: 4 leaders on 3 servers cannot be spread better than with a maximum of 2. The optimum ignores which
servers have replicas.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import SNAPSHOT_KEY, at, whole_hour
from jetstream_insights.gold.tables import MOMENT, GoldTable, ratio
from jetstream_insights.keys import CLUSTER, DOMAIN, STREAM
from jetstream_insights.times import seconds

COUNTS = ("stream_leaders", "consumer_leaders", "replicas", "consumer_replicas")
AMOUNTS = ("bytes", "led_bytes", "write_msgs", "write_bytes")


def writes(streams: DataFrame) -> DataFrame:
    """Return the first and the last sequence of each stream in an hour."""
    reported = streams.where(F.col("leader").isNotNull() & F.col("last_seq").isNotNull())
    return reported.groupBy("fleet", *STREAM, "created", whole_hour()).agg(
        F.min("taken").alias("begin"),
        F.max("taken").alias("taken"),
        F.min_by("last_seq", "taken").alias("first"),
        F.max_by("last_seq", "taken").alias("last"),
    )


def write_rates(write_rows: DataFrame) -> DataFrame:
    """Return the messages per second written to each stream over the hours: the rise of last_seq, which neither a purge nor
    limits lower. A recreated stream starts over."""
    grouped = write_rows.groupBy("fleet", *STREAM, "created").agg(
        F.min("begin").alias("begin"),
        F.max("taken").alias("end"),
        F.min_by("first", "begin").alias("first"),
        F.max_by("last", "taken").alias("last"),
    )
    latest = grouped.groupBy("fleet", *STREAM).agg(
        F.max_by(F.struct("begin", "end", "first", "last"), "end").alias("of")
    )
    rise = F.greatest(F.col("of.last") - F.col("of.first"), F.lit(0))
    rate = ratio(rise, seconds(F.col("of.begin"), F.col("of.end")))
    return latest.select("fleet", *STREAM, rate.alias("write_msgs"))


def load(
    report_servers: DataFrame,
    stream_replicas: DataFrame,
    streams: DataFrame,
    consumer_replicas: DataFrame,
    write_rows: DataFrame,
) -> DataFrame:
    """Return the load of each JetStream server in the last snapshot, and its writes over the day."""
    servers = report_servers.where("answered AND jetstream").select(
        *(column.name for column in MOMENT), "server", *CLUSTER, "zone", "stream_leaders", "consumer_leaders"
    )
    moment = servers.select(*SNAPSHOT_KEY).distinct()
    mean_size = F.coalesce(ratio(F.col("bytes"), F.col("messages")), F.lit(0.0))
    led = F.col("leader") == F.col("server")
    asset = ["fleet", *STREAM]
    holder = [*SNAPSHOT_KEY, *DOMAIN, "server"]
    leaders = at(streams, moment).select("fleet", *STREAM, "leader")
    held = (
        at(stream_replicas, moment)
        .select(*SNAPSHOT_KEY, "server", *STREAM, F.coalesce("bytes", F.lit(0)).alias("bytes"), "messages")
        .join(leaders, on=asset, how="left")
        .join(write_rates(write_rows), on=asset, how="left")
        .groupBy(*holder)
        .agg(
            F.count(F.lit(1)).alias("replicas"),
            F.sum("bytes").alias("bytes"),
            F.sum(F.when(led, F.col("bytes"))).alias("led_bytes"),
            F.sum(F.when(led, F.col("write_msgs"))).alias("write_msgs"),
            F.sum(F.col("write_msgs") * mean_size).alias("write_bytes"),
        )
    )
    consumer_counts = at(consumer_replicas, moment).groupBy(*holder).agg(F.count(F.lit(1)).alias("consumer_replicas"))
    # With a single snapshot of the day the rate is unknown, which is not a rate of zero.
    rated = F.max(F.col("write_msgs").isNotNull())
    known = held.groupBy(*SNAPSHOT_KEY).agg(rated.alias("rated"))
    joined = (
        servers.join(held, on=holder, how="left")
        .join(consumer_counts, on=holder, how="left")
        .join(F.broadcast(known), on=SNAPSHOT_KEY, how="left")
    )
    zero = ("replicas", "consumer_replicas", "bytes", "led_bytes")
    rates = ("write_msgs", "write_bytes")
    return joined.withColumns(
        {
            **{name: F.coalesce(F.col(name), F.lit(0)) for name in zero},
            **{name: F.when(F.col("rated"), F.coalesce(F.col(name), F.lit(0.0))) for name in rates},
        }
    )


def balance(load_rows: DataFrame) -> DataFrame:
    """Return the distribution of each measure over the servers, and over the zones, of each cluster."""
    names = (*COUNTS, *AMOUNTS)
    long = load_rows.unpivot(
        [*(column.name for column in MOMENT), *CLUSTER, "server", "zone"],
        [F.col(name).cast("double").alias(name) for name in names],
        "measure",
        "value",
    ).where(F.col("value").isNotNull())
    key = [*(column.name for column in MOMENT), *CLUSTER, "measure"]
    by_server = long.select(*key, F.lit("server").alias("scope"), F.col("server").alias("name"), "value")
    by_zone = (
        long.where(F.col("zone").isNotNull())
        .groupBy(*key, F.lit("zone").alias("scope"), F.col("zone").alias("name"))
        .agg(F.sum("value").alias("value"))
    )
    grouped = (
        by_server.unionByName(by_zone)
        .groupBy(*key, "scope")
        .agg(
            F.array_sort(F.collect_list(F.struct("value", "name"))).alias("sorted"),
            F.count(F.lit(1)).alias("members"),
            F.sum("value").alias("total"),
            F.avg("value").alias("mean"),
            F.stddev_pop("value").alias("deviation"),
            F.max("value").alias("max"),
            F.min_by("name", F.struct(-F.col("value"), F.col("name"))).alias("max_name"),
            F.min("value").alias("min"),
            F.min_by("name", F.struct("value", "name")).alias("min_name"),
        )
    )
    counted = F.col("measure").isin(*COUNTS)
    return grouped.withColumns(
        {
            "gini": gini(F.col("sorted")),
            "optimum": F.when(counted, F.ceil(F.col("total") / F.col("members")).cast("double")).otherwise(
                F.col("mean")
            ),
        }
    ).withColumns(
        {
            "max_to_mean": ratio(F.col("max"), F.col("mean")),
            "cov": ratio(F.col("deviation"), F.col("mean")),
            "excess": F.col("max") - F.col("optimum"),
            "distance": ratio(F.col("max") - F.col("optimum"), F.col("optimum")),
        }
    )


def gini(points: Column) -> Column:
    """Return the Gini coefficient of the `value` in sorted structs: Σ(2i − n − 1)·xᵢ / (n·Σx); null for a sum of 0."""
    size = F.size(points)
    weighted = F.transform(points, lambda point, index: (2 * (index + 1) - size - 1) * point["value"])
    whole = F.transform(points, lambda point: point["value"])

    def total(values: Column) -> Column:
        return F.aggregate(values, F.lit(0.0), lambda sum_, value: sum_ + value)

    return ratio(total(weighted), size * total(whole))


FACTS = (GoldTable("writes", "stream that a leader reported", columns.WRITES, ("silver.streams",), writes),)
TABLES = (
    GoldTable(
        "load",
        "JetStream server",
        columns.LOAD,
        ("gold.report_servers", "last.stream_replicas", "last.streams", "last.consumer_replicas", "hours.writes"),
        load,
    ),
    GoldTable(
        "balance", "measure, for the servers and for the zones of a cluster", columns.BALANCE, ("gold.load",), balance
    ),
)
