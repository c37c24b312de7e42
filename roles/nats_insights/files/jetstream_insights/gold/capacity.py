# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill level and growth of servers, zones, clusters, accounts and streams, the accuracy of earlier forecasts, and whether the
remaining servers could take the data of a failed one.

Growth of a day is the median over its hours of used(h) − used(h − 24 h): it removes daily swings, and a purge distorts only
one day.

The forecast is used + days × slope. The slope covers four weeks: it is the mean of the seven weekdays' means, so it is the
same on every day of the week and tolerates missing days. A single day with a change of more than six times the median daily
change is left out as an exception; two or more such days (a purge every week) are expected to recur, and count. If the last
week differs from the three before by more than their noise, only the last week counts. A slope below its own standard error
is 0. With fewer than seven weekdays the slope is the median of the daily slopes.

The band is that of split conformal prediction: the 10th and 90th percentile of the errors that forecasts of this class
(a scope and a resource of the fleet) had over 1, 7 and 30 days, for target days in the last four weeks. Errors are
pooled as multiples of each asset's own spread, because an asset has only one error over 30 days in 30 days. Until there are
enough, a normal distribution of errors is assumed. The spread comes from sums over seven days, times (days / 7) to the power
by which the asset's own spread grew from one day to seven, and times √(1 + days / days of the slope) for the slope's error.

Forecasts whose target day has passed are compared with the actual value (`backtests`); `capacity` shows their error next to
each forecast, and the error of a forecast of no change. With fewer than 3 days with a slope the state is `unknown`. A band is
`tested` once 7 backtests over the same number of days show its error; until then it may be too narrow.

A server, zone, cluster or account whose streams all have max_bytes cannot exceed the sum of these limits, however fast it
grows: if the sum is below its own limit, its state is `limited` and it has no days until full.

Headroom considers space, and the number of servers that a stream's replicas need: `fill` of a server's limit may be used
after the failure (0.8, a setting). Tags, unique_tag and max_ha_assets are left to the planner. A replica takes the larger of
its size and its max_bytes, so only streams without max_bytes reduce the remaining space as they grow: `days` divides it by
their growth.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import union, whole_hour, with_hour, zone
from jetstream_insights.gold.forecast import ENOUGH, HORIZONS, JUDGED, KEY, LONG, SHOWN, WEEKS, backtests, forecasts
from jetstream_insights.gold.headroom import headroom
from jetstream_insights.gold.tables import GoldTable, not_negative, ratio
from jetstream_insights.keys import ACCOUNT, CLUSTER, DOMAIN, SNAPSHOT, STREAM

_ASSET = tuple(column.name for column in columns.ASSET)
_FIGURES = ("used", "reserved", "limit", "first_seq")

#: Hours of a day that must be comparable with the previous day.
_HOURS = 3

#: The part of the limit that counts as full; the daily growth, as a part of the used space, that counts as none; the part of the
#: larger slope beyond which growth has changed.
_FULL, _FLAT, _CHANGED = 0.99, 0.001, 1 / 3

#: Backtests over the same number of days after which a band is `tested`: those of a week.
TESTED = 7


def hourly_usage(servers: DataFrame, streams: DataFrame, accounts: DataFrame) -> DataFrame:
    """Return the usage of every server, account and stream in the hour's last snapshot that reported it."""
    reported = servers.where("jsz_reported AND NOT coalesce(js_disabled, false)")
    server_rows = _last_of_hour(reported, "server").withColumn("zone", zone())
    resources = F.array(
        *(
            F.struct(
                F.lit(resource).alias("resource"),
                F.col(used).cast("double").alias("used"),
                reserved.cast("double").alias("reserved"),
                F.when(F.col(limit) > 0, F.col(limit)).cast("double").alias("limit"),
            )
            for resource, used, reserved, limit in (
                ("file", "js_storage", F.col("js_reserved_storage"), "js_max_storage"),
                ("memory", "js_memory", F.col("js_reserved_memory"), "js_max_memory"),
                ("ha_assets", "js_ha_assets", F.lit(None), "js_max_ha_assets"),
            )
        )
    )
    by_server = (
        server_rows.withColumn("of", F.explode(resources))
        .select(
            "fleet", "taken", F.lit("server").alias("scope"), F.col("server").alias("name"), *CLUSTER, "zone", "of.*",
            F.lit(None).cast("bigint").alias("first_seq"),
        )
        .where(F.col("used").isNotNull())
    )  # fmt: skip
    no_zone = F.lit(None).cast("string")
    return union([
        by_server,
        *(frame.withColumn("zone", no_zone) for frame in (_measure_accounts(accounts), _measure_streams(streams))),
    ])  # fmt: skip


def expected(names: DataFrame) -> DataFrame:
    """Return the servers that were expected in an hour."""
    return names.select("fleet", "taken", "server")


def usage(hourly_rows: DataFrame, expected_rows: DataFrame) -> DataFrame:
    """Return the usage of every asset in each hour, zones and clusters included."""
    each, wanted = with_hour(hourly_rows), with_hour(expected_rows)
    stored = each.where("scope = 'server' AND resource <> 'ha_assets'").withColumn("server", F.col("name"))
    sums = [
        summed_usage(stored.where(F.col(name).isNotNull()), wanted, scope, F.col(name))
        for scope, name in (("zone", "zone"), ("cluster", "cluster"))
    ]
    return union([each.select("fleet", "day", "hour", *_ASSET, *_FIGURES), *sums])


def _last_of_hour(frame: DataFrame, *name: str) -> DataFrame:
    """Return the rows of the last snapshot in each hour that reported an asset."""
    thing = Window.partitionBy("fleet", whole_hour(), *name)
    return (
        frame.withColumn("latest", F.max("taken").over(thing)).where(F.col("taken") == F.col("latest")).drop("latest")
    )


def summed_usage(server_rows: DataFrame, wanted: DataFrame, scope: str, name: Column) -> DataFrame:
    """Return the sums over the servers of a zone or a cluster, for the hours in which all expected servers reported. The
    frame `wanted` lists the expected servers of each hour, without those removed from service."""
    key = ("fleet", "day", "hour", "name", *CLUSTER)
    named = server_rows.withColumns({"name": name, "cluster": F.coalesce("cluster", F.lit(""))})
    summed = named.groupBy(*key, F.lit(scope).alias("scope"), "resource").agg(
        F.sum("used").alias("used"),
        F.sum("reserved").alias("reserved"),
        # A sum without one of them would be too small.
        F.when(F.count("limit") == F.count(F.lit(1)), F.sum("limit")).alias("limit"),
        F.lit(None).cast("bigint").alias("first_seq"),
        F.count(F.lit(1)).alias("many"),
    )
    members = named.select("fleet", "day", "name", *CLUSTER, "server").distinct()
    expected = (
        wanted.join(members, on=["fleet", "day", "server"]).groupBy(*key).agg(F.count_distinct("server").alias("most"))
    )
    return (
        summed.join(expected, on=list(key))
        .where(F.col("many") >= F.col("most"))
        .select("fleet", "day", "hour", *_ASSET, *_FIGURES)
    )


def _measure_accounts(accounts: DataFrame) -> DataFrame:
    """Return the usage of each account on all servers, in each hour's last snapshot that has it. Each server reports the total
    over all servers (jetstream.go storageTotals), and the account's limit as reserved (monitor.go accountDetail)."""
    held = (
        accounts.where(F.col("js_storage").isNotNull())
        .groupBy(*SNAPSHOT, *ACCOUNT)
        .agg(
            *(
                F.max(name).cast("double").alias(name)
                for name in ("js_storage", "js_memory", "js_reserved_storage", "js_reserved_memory")
            )
        )
    )
    resources = F.array(
        *(
            F.struct(
                F.lit(name).alias("resource"),
                F.col(used).alias("used"),
                F.when(F.col(limit) > 0, F.col(limit)).alias("limit"),
            )
            for name, used, limit in (
                ("file", "js_storage", "js_reserved_storage"),
                ("memory", "js_memory", "js_reserved_memory"),
            )
        )
    )
    return _last_of_hour(held, *ACCOUNT).withColumn("of", F.explode(resources)).select(
        "fleet", "taken", F.lit("account").alias("scope"), F.col("of.resource").alias("resource"),
        F.col("account").alias("name"), *DOMAIN,
        F.lit("").alias("cluster"), "of.used", F.lit(None).cast("double").alias("reserved"), "of.limit",
        F.lit(None).cast("bigint").alias("first_seq"),
    )  # fmt: skip


def _measure_streams(streams: DataFrame) -> DataFrame:
    """Return the usage of one replica of each stream, in bytes, and in messages if they are limited."""
    limit = F.when(F.col("max_bytes") > 0, F.col("max_bytes")).cast("double")
    in_bytes = F.struct(
        F.coalesce("storage", F.lit("file")).alias("resource"),
        F.col("bytes").cast("double").alias("used"),
        F.coalesce(limit, F.lit(0.0)).alias("reserved"),
        limit.alias("limit"),
    )
    in_messages = F.struct(
        F.lit("messages").alias("resource"),
        F.col("messages").cast("double").alias("used"),
        F.lit(None).cast("double").alias("reserved"),
        F.col("max_msgs").cast("double").alias("limit"),
    )
    hourly = _last_of_hour(streams.where(F.col("leader").isNotNull()), *STREAM)
    resources = F.array_compact(F.array(in_bytes, F.when(F.col("max_msgs") > 0, in_messages)))
    return hourly.withColumn("of", F.explode(resources)).select(
        "fleet", "taken", F.lit("stream").alias("scope"), "of.resource",
        F.concat_ws("/", "account", "stream").alias("name"), *CLUSTER, "of.used", "of.reserved", "of.limit", "first_seq",
    )  # fmt: skip


def growth(usage_rows: DataFrame, past: DataFrame) -> DataFrame:
    """Return the growth of each asset in the day. `past`: the usage of the previous day."""
    old = past.select(*KEY, "hour", F.col("used").alias("old_used"), F.date_add("day", 1).alias("day"))
    joined = usage_rows.join(old, on=[*KEY, "day", "hour"], how="left")
    rise = F.col("used") - F.col("old_used")
    last = {name: F.max_by(name, "hour").alias(name) for name in ("used", "reserved", "limit")}
    return joined.groupBy(*KEY, "day").agg(
        *last.values(),
        F.min("used").alias("least"),
        F.max("used").alias("most"),
        (F.max_by("first_seq", "hour") > F.min_by("first_seq", "hour")).alias("trimmed"),
        F.max("hour").alias("last_hour"),
        F.count(rise).alias("hours"),
        F.when(F.count(rise) >= _HOURS, F.percentile(rise, 0.5)).alias("slope"),
    )


def capacity(
    forecast_rows: DataFrame,
    backtest_rows: DataFrame,
    past: DataFrame,
    streams: DataFrame,
    replicas: DataFrame,
    servers: DataFrame,
) -> DataFrame:
    """Return the fill level of each asset, when it will be full, and the error of such forecasts. `past`: earlier backtests;
    `streams`, `replicas`, `servers`: those of the day's last snapshot."""
    limits = stream_limits(streams, replicas, servers)
    short = F.col("basis") == "short"
    larger = F.greatest(F.abs("slope_short"), F.abs("slope_before"))
    known = (
        forecast_rows.join(_accuracy(backtest_rows.unionByName(past)), on=list(KEY), how="left")
        .join(limits, on=list(KEY), how="left")
        .withColumns(
            {
                "days": F.when(short, F.col("days_short")).otherwise(F.col("days_long")),
                "changed": F.when(
                    F.col("days_long") >= WEEKS,
                    short & (F.abs(F.col("slope_short") - F.col("slope_before")) > larger * _CHANGED),
                ),
                "free": not_negative(F.col("limit") - F.greatest("used", "reserved")),
                "used_ratio": ratio(F.col("used"), F.col("limit")),
                "reserved_ratio": ratio(F.col("reserved"), F.col("limit")),
                "backtests": F.coalesce("backtests", F.lit(0)),
            }
        )
    )
    left = not_negative(F.col("limit") - F.col("used"))

    def full(*changes: tuple[int, Column]) -> Column:
        """Return when the usage reaches the limit, on a line through these changes after these days."""
        lines = zip(((0, F.lit(0.0)), *changes), changes)
        reached = [
            F.when(later >= left, F.lit(begin) + (left - before) / (later - before) * (end - begin))
            for (begin, before), (end, later) in lines
        ]
        last, change = changes[-1]
        beyond = F.when(change > 0, left * last / change)
        known = F.when(F.col("days_long") >= ENOUGH, F.coalesce(*reached, beyond))
        return F.when(F.col("state") == "full", 0.0).when(~F.col("state").isin("plateau", "limited"), known)

    def band(percentile: str) -> Column:
        return full(*((days, F.col(f"change_{days}_{percentile}")) for days in HORIZONS))

    forecast = F.when(
        F.col("days_long") >= ENOUGH, F.when(F.col("backtests") >= TESTED, "tested").otherwise("untested")
    )
    return known.withColumn("state", _state()).withColumns(
        {
            "full_p10": band("p90"),
            "full_p50": full((1, F.col("slope"))),
            "full_p90": band("p10"),
            "confidence": forecast,
        }
    )


def _state() -> Column:
    """Return the state of an asset's usage: `unlimited`, `full`, `limited` (by the limits of its streams), `unknown`,
    `plateau`, `growing` or `shrinking`."""
    flat = (F.col("slope") == 0) | (F.col("trimmed") & (F.abs("slope") <= F.col("used") * _FLAT))
    return (
        F.when(F.col("limit").isNull(), "unlimited")
        .when(F.col("used") >= F.col("limit") * _FULL, "full")
        .when(F.col("stream_limits") <= F.col("limit"), "limited")
        .when(F.col("days_long") < ENOUGH, "unknown")
        .when(flat, "plateau")
        .when(F.col("slope") > 0, "growing")
        .otherwise("shrinking")
    )


def _accuracy(due: DataFrame) -> DataFrame:
    """Return the error of each asset's forecasts: over the longest time for which enough are due, else for which any are."""
    judged = (
        due.where(F.col("horizon") <= SHOWN)
        .groupBy(*KEY, "horizon")
        .agg(
            F.count(F.lit(1)).alias("backtests"),
            F.percentile(F.abs("error"), 0.5).alias("error_p50"),
            F.percentile(F.abs("error"), 0.9).alias("error_p90"),
            F.percentile(F.abs("naive_error"), 0.5).alias("naive_p50"),
            F.avg(F.col("covered").cast("double")).alias("coverage"),
        )
    )
    shown = ("horizon", "backtests", "error_p50", "error_p90", "naive_p50", "coverage")
    rank = F.struct(F.col("backtests") >= TESTED, F.col("horizon"))
    return judged.groupBy(*KEY).agg(F.max_by(F.struct(*shown), rank).alias("of")).select(*KEY, "of.*")


def stream_limits(streams: DataFrame, replicas: DataFrame, servers: DataFrame) -> DataFrame:
    """Return for each server, zone, cluster and account, in the day's last snapshot, the bytes that its streams may take at most:
    the sum of their max_bytes over all replicas, null if one has none; and for each stream its behavior at the limit.

    Without the streams of a server that did not report, a sum would be too small, so zones, clusters and accounts have none."""
    fleet = ["fleet", "snapshot"]
    reports = F.col("answered") & (~F.coalesce("jetstream", F.lit(False)) | F.col("reserved_storage").isNotNull())
    complete = servers.groupBy(*fleet).agg(F.bool_and(reports).alias("complete"))
    zones = servers.where("answered").select(*fleet, "server", "zone")
    size = F.when(F.col("max_bytes") > 0, F.col("max_bytes")).cast("double")
    held = replicas.join(F.broadcast(zones), on=[*fleet, "server"], how="left").withColumn("size", size)
    all_sizes = F.greatest("num_replicas", F.lit(1)) * size
    configured = streams.withColumns({"size": all_sizes, "server": F.lit(None), "zone": F.lit(None)})

    def limits(rows: DataFrame, scope: str, name: str, whole: bool) -> DataFrame:
        """Return the sums of a scope; `whole`: whether they need the reports of all servers."""
        place = F.lit("") if scope == "account" else F.coalesce("cluster", F.lit(""))
        named = rows.where(F.col(name).isNotNull()).withColumns({"name": F.col(name), "cluster": place})
        sums = named.groupBy(
            *fleet,
            F.lit(scope).alias("scope"),
            F.coalesce("storage", F.lit("file")).alias("resource"),
            "name",
            *CLUSTER,
        ).agg(F.when(F.count("size") == F.count(F.lit(1)), F.sum("size")).alias("stream_limits"))
        return sums if not whole else sums.join(F.broadcast(complete.where("complete")), on=fleet, how="left_semi")

    at_limit = streams.select(
        "fleet", F.lit("stream").alias("scope"),
        F.explode(F.array(F.coalesce("storage", F.lit("file")), F.lit("messages"))).alias("resource"),
        F.concat_ws("/", "account", "stream").alias("name"), *DOMAIN, F.coalesce("cluster", F.lit("")).alias("cluster"),
        F.lit(None).cast("double").alias("stream_limits"),
        F.when((F.coalesce("retention", F.lit("limits")) == "limits") & (F.coalesce("discard", F.lit("old")) == "old"), "removes")
        .when(F.coalesce("discard", F.lit("old")) == "old", "loses").otherwise("rejects").alias("at_limit"),
    )  # fmt: skip
    sums = [
        limits(held, "server", "server", whole=False),
        limits(held, "zone", "zone", whole=True),
        limits(configured, "cluster", "cluster", whole=True),
        limits(configured, "account", "account", whole=True),
    ]
    named = (*KEY, "stream_limits")
    return union([*(frame.select(*named, F.lit(None).cast("string").alias("at_limit")) for frame in sums), at_limit])


FACTS = (
    GoldTable(
        "usage",
        "server, account and stream",
        columns.HOURLY_USAGE,
        ("silver.servers", "silver.streams", "silver.accounts"),
        hourly_usage,
    ),
    GoldTable("expected", "expected server", columns.EXPECTED, ("silver.server_names",), expected),
)
TABLES = (
    GoldTable("usage", "hour and asset", columns.USAGE, ("hours.usage", "hours.expected"), usage),
    GoldTable("growth", "asset", columns.GROWTH, ("gold.usage", "past.usage:1"), growth),
    GoldTable(
        "backtests",
        "forecast that came due",
        columns.BACKTESTS,
        ("gold.growth", f"past.forecasts:{','.join(map(str, HORIZONS))}", "day"),
        backtests,
    ),
    GoldTable(
        "forecasts",
        "asset",
        columns.FORECASTS,
        ("gold.growth", f"past.growth:{LONG - 1}", "gold.backtests", f"past.backtests:{JUDGED - 1}", "day"),
        forecasts,
    ),
    GoldTable(
        "capacity",
        "asset",
        columns.CAPACITY,
        (
            *("gold.forecasts", "gold.backtests", f"past.backtests:{JUDGED - 1}"),
            *("last.streams", "last.stream_replicas", "gold.report_servers"),
        ),
        capacity,
    ),
    GoldTable(
        "headroom",
        "server or zone that may fail",
        columns.HEADROOM,
        ("gold.report_servers", "last.stream_replicas", "gold.forecasts", "settings"),
        headroom,
    ),
)
