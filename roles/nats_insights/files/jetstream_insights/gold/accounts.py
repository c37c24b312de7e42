# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each account used in a day: connections, traffic, storage.

Counters are differences of ACCOUNT STATZ between two snapshots of the same server and start, at most two hours apart;
`coverage` says of how much of the time. Nothing is extrapolated. Storage counts every replica, as it has to be
bought; `report_streams` has each stream once. Each server reports it for all servers (jetstream.go `storageTotals`),
as it does the limits, `reserved` (monitor.go `accountDetail`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import Settings
from jetstream_insights.gold.tables import Table, ratio, seconds
from jetstream_insights.keys import ACCOUNT

_COUNTERS = ("sent_msgs", "sent_bytes", "received_msgs", "received_bytes", "slow_consumers")
_SERVER = ("fleet", "snapshot", "server_id")


def steps(rows: DataFrame, settings: Settings) -> DataFrame:
    """Return what each account did between two snapshots of a server, with null counts where they cannot be compared.

    A server that started again begins a new series: its counters began at zero. One that went down within a series is a gap. The
    step belongs to the day of its second snapshot.
    """
    by_name = Window.partitionBy("fleet", *ACCOUNT, "server").orderBy("taken")
    rises = {name: F.col(name) - F.lag(name).over(by_name) for name in _COUNTERS}
    elapsed = seconds(F.lag("taken").over(by_name), F.col("taken"))
    same = (F.lag("server_id").over(by_name) == F.col("server_id")) & F.lag("start").over(by_name).eqNullSafe(
        F.col("start")
    )
    measured = rows.withColumns(
        {**{f"rise_{name}": value for name, value in rises.items()}, "elapsed": elapsed, "same": same}
    )
    whole = F.col("same") & (F.col("elapsed") <= F.lit(settings.longest_gap))
    for name in _COUNTERS:
        whole = whole & (F.coalesce(F.col(f"rise_{name}"), F.lit(0)) >= 0)
    return measured.withColumn("whole", whole).where(F.col("elapsed").isNotNull())


def account_usage(
    accounts: DataFrame, servers: DataFrame, accounts_before: DataFrame, servers_before: DataFrame, settings: Settings
) -> DataFrame:
    """Return what each account used, over all servers of a domain. Nothing is extrapolated over gaps: `coverage` tells of how
    much of the time the counts are."""
    today = accounts.join(servers.select(*_SERVER, "start"), on=list(_SERVER), how="left").withColumn(
        "today", F.lit(True)
    )
    last = accounts_before.join(servers_before.select(*_SERVER, "start"), on=list(_SERVER), how="left")
    latest = Window.partitionBy("fleet", *ACCOUNT, "server")
    before = (
        last.withColumn("latest", F.max("taken").over(latest)).where(F.col("taken") == F.col("latest")).drop("latest")
    )
    key = ["fleet", "day", *ACCOUNT]
    rows = today.unionByName(before.withColumn("today", F.lit(False))).withColumn("day", F.to_date("taken"))
    flow = (
        steps(rows, settings)
        .where("today")
        .groupBy(*key)
        .agg(
            *(F.sum(F.when(F.col("whole"), F.col(f"rise_{name}"))).alias(name) for name in _COUNTERS),
            F.coalesce(F.sum(F.when(F.col("whole"), F.col("elapsed"))), F.lit(0.0)).alias("observed"),
            F.count_if(~F.coalesce("whole", F.lit(False))).alias("gaps"),
            F.sum("elapsed").alias("possible"),
        )
    )
    sums = ("connections", "leafnodes", "num_subscriptions", "js_ha_assets")
    # Each server tells what the account has on all of them (jetstream.go storageTotals), and its limits.
    reported_by_each = ("js_storage", "js_memory", "js_reserved_storage", "js_reserved_memory")
    moments = (
        rows.where("today")
        .groupBy(*key, "snapshot", "taken")
        .agg(
            *(F.sum(name).alias(name) for name in sums),
            *(F.max(name).alias(name) for name in reported_by_each),
        )
    )
    stock = moments.groupBy(*key).agg(
        F.count(F.lit(1)).alias("snapshots"),
        F.avg("connections").alias("connections"),
        F.max("connections").alias("connections_max"),
        F.max("leafnodes").alias("leafnodes_max"),
        F.max("num_subscriptions").alias("subscriptions_max"),
        F.avg("js_storage").alias("storage"),
        F.max("js_storage").alias("storage_max"),
        F.avg("js_memory").alias("memory"),
        F.max("js_memory").alias("memory_max"),
        F.max_by("js_reserved_storage", "taken").alias("reserved_storage"),
        F.max_by("js_reserved_memory", "taken").alias("reserved_memory"),
        F.max_by("js_ha_assets", "taken").alias("ha_assets"),
        (seconds(F.min("taken"), F.max("taken")) / 3600).alias("hours"),
    )
    return stock.join(flow, on=key, how="left").withColumns(
        {
            "observed": F.coalesce("observed", F.lit(0.0)),
            "gaps": F.coalesce("gaps", F.lit(0)),
            "coverage": ratio(F.col("observed"), F.col("possible")),
            "byte_hours": F.col("storage") * F.col("hours"),
        }
    )


TABLES = (
    Table(
        "account_usage",
        "account, in each domain",
        columns.ACCOUNT_USAGE,
        ("silver.accounts", "silver.servers", "before.accounts", "before.servers", "settings"),
        account_usage,
    ),
)
