# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows and columns that views of single snapshots and views of a period use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jetstream_insights.keys import ACCOUNT
from jetstream_insights.times import seconds

Tables = Mapping[str, DataFrame]

MOMENT = ("fleet", "snapshot")


def now(frame: DataFrame) -> DataFrame:
    """Return the rows of single snapshots with the column that all views have."""
    return frame.withColumn("since", F.col("taken"))


def period_aggregates(*more: Column) -> tuple[Column, ...]:
    """Return the aggregates that every view of a period has. `seconds`: between its first and its last snapshot."""
    return (
        F.count(F.lit(1)).alias("samples"),
        seconds(F.min("taken"), F.max("taken")).alias("seconds"),
        *more,
    )


def first(name: str) -> Column:
    return F.min_by(name, "taken").alias(f"{name}_first")


def last(name: str) -> Column:
    return F.max_by(name, "taken").alias(f"{name}_last")


def unix_hours() -> Column:
    return F.unix_micros("taken") / F.lit(3.6e9)


def named_servers(servers: DataFrame) -> DataFrame:
    """Return the servers with their zone tag, whether JetStream is running, and their version as a number."""
    zone = (
        "CASE WHEN js_unique_tag <> '' THEN "
        "try_element_at(filter(tags, tag -> startswith(lower(tag), lower(js_unique_tag))), 1) END"
    )
    number = "regexp_extract_all(version, '(\\\\d+)', 1)"
    return servers.selectExpr(
        "*",
        "CASE WHEN jsz_reported THEN NOT coalesce(js_disabled, false) ELSE jetstream END AS js_on",
        f"{zone} AS zone",
        f"aggregate(transform(slice({number}, 1, 3), part -> CAST(part AS BIGINT)), 0L, "
        "(total, part) -> total * 1000 + part) AS version_number",
    )


def with_assets(groups: DataFrame, streams: DataFrame, consumers: DataFrame, of: Sequence[str]) -> DataFrame:
    """Add the `name` of each Raft group: the stream or consumer in these rows, otherwise its id. `of`: the columns that
    the rows share besides account and group."""
    key = [*of, *ACCOUNT, "raft_group"]
    assets = (
        rows.select(*key, F.concat(F.lit(f"{kind} "), F.concat_ws("/", *names)).alias("asset"))
        for rows, kind, *names in ((streams, "stream", "stream"), (consumers, "consumer", "stream", "consumer"))
    )
    named = reduce(DataFrame.unionByName, assets).groupBy(*key).agg(F.min("asset").alias("asset"))
    return groups.join(named, key, "left").withColumn("name", F.coalesce("asset", "raft_group"))


def last_rows(tables: Tables, *names: str) -> list[DataFrame]:
    """Return the rows of some tables in the last snapshot of each fleet."""
    last = F.broadcast(tables["snapshots"].groupBy("fleet").agg(F.max("snapshot").alias("snapshot")))
    return [tables[name].join(last, [*MOMENT], "left_semi") for name in names]
