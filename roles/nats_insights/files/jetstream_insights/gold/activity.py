# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Activity of a fleet, hour by hour.

Rates are differences of the servers' counters between two snapshots of the same start, at most two hours apart, divided by
the time between them. They count messages that servers receive from clients and from each other. A server without such a pair
contributes to no rate; `measured` is the number of servers that do.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import GoldSettings, whole_hour, with_hour
from jetstream_insights.gold.tables import GoldTable

_COUNTERS = columns.SERVER_COUNTERS.names


def activity(
    hourly_rows: DataFrame,
    waiting_rows: DataFrame,
    leader_changes: DataFrame,
    before: DataFrame,
    settings: GoldSettings,
) -> DataFrame:
    """Return the activity of each fleet in each hour that has a snapshot."""
    key = ("fleet", "day", "hour")
    server_sums = (
        with_hour(columns.SERVER_COUNTERS.daily_sums(hourly_rows, before, settings))
        .groupBy(*key, "server")
        .agg(
            F.sum("observed").alias("elapsed"),
            *(F.sum(name).alias(name) for name in _COUNTERS),
        )
    )
    busy = server_sums.groupBy(*key).agg(
        F.count("elapsed").alias("measured"),
        *(
            F.sum(F.try_divide(F.col(name), F.col("elapsed"))).alias(made)
            for name, made in zip(_COUNTERS, ("in_msgs", "in_bytes", "api_requests"))
        ),
        F.sum("js_api_errors").alias("api_errors"),
    )
    clients = with_hour(_last_of_hour(hourly_rows.select("fleet", "last.*"), "connections")).drop("taken")
    consumers = with_hour(waiting_rows).drop("taken")
    elections = leader_changes.groupBy("fleet", "day", F.hour("taken").alias("hour")).agg(
        F.count(F.lit(1)).alias("elections")
    )
    return (
        busy.join(clients, on=list(key), how="left")
        .join(consumers, on=list(key), how="left")
        .join(elections, on=list(key), how="left")
        .withColumn("elections", F.coalesce("elections", F.lit(0)))
    )


def counters(servers: DataFrame, settings: GoldSettings) -> DataFrame:
    """Return the counters of each start of a server in an hour."""
    return columns.SERVER_COUNTERS.hourly_sums(servers, settings)


def waiting(consumers: DataFrame) -> DataFrame:
    """Return the consumers' pending messages and pending acknowledgements in a fleet, in the hour's last snapshot."""
    return _last_of_hour(consumers.where(F.col("leader").isNotNull()), "num_pending", "num_ack_pending")


def _last_of_hour(frame: DataFrame, *names: str) -> DataFrame:
    """Return the sums over a fleet in each hour's last snapshot."""
    moments = frame.groupBy("fleet", "taken").agg(*(F.sum(name).alias(name) for name in names))
    latest = (F.max("taken").alias("taken"), *(F.max_by(name, "taken").alias(name) for name in names))
    return moments.groupBy("fleet", whole_hour()).agg(*latest).drop("whole_hour")


FACTS = (
    GoldTable("waiting", "fleet", columns.WAITING, ("silver.consumers",), waiting),
    GoldTable("counters", "start of a server", columns.COUNTERS, ("silver.servers", "settings"), counters),
)
TABLES = (
    GoldTable(
        "activity",
        "hour",
        columns.ACTIVITY,
        ("hours.counters", "hours.waiting", "gold.leader_changes", "before.counters", "settings"),
        activity,
    ),
)
