# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How busy a fleet is, hour by hour.

Rates are differences of the servers' counters between two snapshots of the same start, at most two hours apart, over the
time between them. They count what servers receive from clients and from each other. A server without such a pair is in no rate;
`measured` is how many are.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import Settings, whole_hour, with_hour
from jetstream_insights.gold.tables import Table, seconds

_COUNTERS = ("in_msgs", "in_bytes", "js_api_total", "js_api_errors")


def activity(
    servers: DataFrame, of_waiting: DataFrame, leader_changes: DataFrame, before: DataFrame, settings: Settings
) -> DataFrame:
    """Return what each fleet did in each hour that has a snapshot."""
    wanted = ("fleet", "taken", "server", "server_id", "start", *_COUNTERS)
    today = servers.select(*wanted, F.lit(True).alias("today"))
    rows = today.unionByName(before.select(*wanted, F.lit(False).alias("today")))
    series = Window.partitionBy("fleet", "server_id", "start").orderBy("taken")
    rises = {name: F.col(name) - F.lag(name).over(series) for name in _COUNTERS}
    steps = rows.withColumns({**rises, "elapsed": seconds(F.lag("taken").over(series), F.col("taken"))}).where("today")
    whole = F.col("elapsed") <= settings.longest_gap
    for name in _COUNTERS:
        whole = whole & (F.coalesce(F.col(name), F.lit(0)) >= 0)
    key = ("fleet", "day", "hour")
    of_server = (
        with_hour(steps)
        .groupBy(*key, "server")
        .agg(
            F.sum(F.when(whole, F.col("elapsed"))).alias("elapsed"),
            *(F.sum(F.when(whole, F.col(name))).alias(name) for name in _COUNTERS),
        )
    )
    busy = of_server.groupBy(*key).agg(
        F.count("elapsed").alias("measured"),
        *(
            F.sum(F.try_divide(F.col(name), F.col("elapsed"))).alias(made)
            for name, made in zip(_COUNTERS, ("in_msgs", "in_bytes", "api_requests"))
        ),
        F.sum("js_api_errors").alias("api_errors"),
    )
    clients = with_hour(_last_of_hour(servers, "connections")).drop("taken")
    consumers = with_hour(of_waiting).drop("taken")
    elections = leader_changes.groupBy("fleet", "day", F.hour("taken").alias("hour")).agg(
        F.count(F.lit(1)).alias("elections")
    )
    return (
        busy.join(clients, on=list(key), how="left")
        .join(consumers, on=list(key), how="left")
        .join(elections, on=list(key), how="left")
        .withColumn("elections", F.coalesce("elections", F.lit(0)))
    )


def waiting(consumers: DataFrame) -> DataFrame:
    """Return what consumers of a fleet have not delivered, and what is not acknowledged, in the hour's last snapshot."""
    return _last_of_hour(consumers.where(F.col("leader").isNotNull()), "num_pending", "num_ack_pending")


def _last_of_hour(frame: DataFrame, *names: str) -> DataFrame:
    """Return the sums over a fleet in each hour's last snapshot."""
    moments = frame.groupBy("fleet", "taken").agg(*(F.sum(name).alias(name) for name in names))
    latest = (F.max("taken").alias("taken"), *(F.max_by(name, "taken").alias(name) for name in names))
    return moments.groupBy("fleet", whole_hour()).agg(*latest).drop("whole_hour")


FACTS = (Table("waiting", "fleet", columns.WAITING, ("silver.consumers",), waiting),)
TABLES = (
    Table(
        "activity",
        "hour",
        columns.ACTIVITY,
        ("silver.servers", "hours.waiting", "gold.leader_changes", "before.servers", "settings"),
        activity,
    ),
)
