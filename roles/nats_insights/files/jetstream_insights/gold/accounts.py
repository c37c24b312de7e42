# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Usage of each account in a day: connections, traffic, storage.

Counts are differences of ACCOUNT STATZ between two snapshots of the same server and start, at most two hours apart;
`coverage` is the share of the time that they cover. Counts are not extrapolated. Storage counts every replica, because each
takes space; `report_streams` counts each stream once. Each server reports storage for all servers (jetstream.go
`storageTotals`), and also the limits, `reserved` (monitor.go `accountDetail`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import GoldSettings, whole_hour, with_day
from jetstream_insights.gold.tables import GoldTable, ratio
from jetstream_insights.keys import ACCOUNT, SNAPSHOT
from jetstream_insights.times import seconds

_COUNTERS = columns.ACCOUNT_COUNTERS.names
#: Columns that are averaged.
_MEANS = ("connections", "js_storage", "js_memory")
#: Columns for which the last value is used.
_LAST = ("js_reserved_storage", "js_reserved_memory", "js_ha_assets")


def flows(accounts: DataFrame, servers: DataFrame, settings: GoldSettings) -> DataFrame:
    """Return the counters of each account on each server in an hour.

    The counters of a restarted server begin at zero. Counters that decrease within a start are a gap.
    """
    starts = servers.select("fleet", "snapshot", "server_id", "start")
    started = accounts.join(starts, on=["fleet", "snapshot", "server_id"], how="left")
    return columns.ACCOUNT_COUNTERS.hourly_sums(started, settings)


def stocks(accounts: DataFrame) -> DataFrame:
    """Return the holdings of each account in an hour, over all servers of a domain."""
    sums = ("connections", "leafnodes", "num_subscriptions", "js_ha_assets")
    # Each server reports the account's total over all servers (jetstream.go storageTotals), and its limits.
    reported_by_each = ("js_storage", "js_memory", "js_reserved_storage", "js_reserved_memory")
    moments = accounts.groupBy(*SNAPSHOT, *ACCOUNT).agg(
        *(F.sum(name).alias(name) for name in sums),
        *(F.max(name).alias(name) for name in reported_by_each),
    )
    return moments.groupBy("fleet", *ACCOUNT, whole_hour()).agg(
        F.min("taken").alias("begin"),
        F.max("taken").alias("taken"),
        F.count(F.lit(1)).alias("snapshots"),
        *(
            F.struct(F.sum(F.col(name).cast("double")).alias("sum"), F.count(name).alias("count")).alias(name)
            for name in _MEANS
        ),
        *(F.max(name).alias(f"{name}_max") for name in (*_MEANS, "leafnodes", "num_subscriptions")),
        *(F.max_by(name, "taken").alias(name) for name in _LAST),
    )


def account_usage(
    flow_rows: DataFrame, stock_rows: DataFrame, flows_before: DataFrame, settings: GoldSettings
) -> DataFrame:
    """Return the usage of each account, over all servers of a domain. Counts are not extrapolated over gaps: `coverage` is the
    share of the time that they cover."""
    key = ["fleet", "day", *ACCOUNT]
    flow = (
        with_day(columns.ACCOUNT_COUNTERS.daily_sums(flow_rows, flows_before, settings))
        .groupBy(*key)
        .agg(*(F.sum(name).alias(name) for name in (*_COUNTERS, "observed", "gaps", "possible")))
    )
    mean = {name: ratio(F.sum(f"{name}.sum"), F.sum(f"{name}.count")) for name in _MEANS}
    stock = (
        with_day(stock_rows)
        .groupBy(*key)
        .agg(
            F.sum("snapshots").alias("snapshots"),
            mean["connections"].alias("connections"),
            F.max("connections_max").alias("connections_max"),
            F.max("leafnodes_max").alias("leafnodes_max"),
            F.max("num_subscriptions_max").alias("subscriptions_max"),
            mean["js_storage"].alias("storage"),
            F.max("js_storage_max").alias("storage_max"),
            mean["js_memory"].alias("memory"),
            F.max("js_memory_max").alias("memory_max"),
            *(F.max_by(name, "taken").alias(name.removeprefix("js_")) for name in _LAST),
            (seconds(F.min("begin"), F.max("taken")) / 3600).alias("hours"),
        )
    )
    return stock.join(flow, on=key, how="left").withColumns(
        {
            "observed": F.coalesce("observed", F.lit(0.0)),
            "gaps": F.coalesce("gaps", F.lit(0)),
            "coverage": ratio(F.col("observed"), F.col("possible")),
            "byte_hours": F.col("storage") * F.col("hours"),
        }
    )


FACTS = (
    GoldTable(
        "flows",
        "account on a server",
        columns.FLOWS,
        ("silver.accounts", "silver.servers", "settings"),
        flows,
    ),
    GoldTable("stocks", "account, in each domain", columns.STOCKS, ("silver.accounts",), stocks),
)
TABLES = (
    GoldTable(
        "account_usage",
        "account, in each domain",
        columns.ACCOUNT_USAGE,
        ("hours.flows", "hours.stocks", "before.flows", "settings"),
        account_usage,
    ),
)
