# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared parts of the gold tables: settings, the snapshots of a day, zones, and the live modules' rules as expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.keys import SAME
from jetstream_insights.times import seconds

SNAPSHOT_KEY = ["fleet", "snapshot"]


@dataclass(frozen=True)
class Maintenance:
    """A window whose events are treated as planned. `servers`: only events of these; empty for all."""

    begin: datetime
    end: datetime
    servers: tuple[str, ...] = ()


@dataclass(frozen=True)
class GoldSettings:
    """Thresholds of the gold tables.

    `longest_gap`: seconds between two snapshots beyond which the state in between is unknown. `max_lag`, `max_active`: as in
    nats_cluster_health (health/rules Limits). `storm_groups`: groups that must leave a server at once. `slo`: the objective for
    the time with quorum. `recent`: the last seconds over which the rates of consumers are computed. `stuck_after`: seconds
    without progress, or three times ack_wait, after which a consumer is stuck. `fill`: the part of a server's storage that may
    be used after another server has failed.
    """

    maintenance: tuple[Maintenance, ...] = ()
    longest_gap: float = 7200.0
    max_lag: int = 200
    max_active: float = 5.0
    storm_groups: int = 5
    slo: float = 0.999
    recent: float = 3 * 3600.0
    stuck_after: float = 900.0
    fill: float = 0.8


DEFAULTS = GoldSettings()


def in_maintenance(settings: GoldSettings, begin: Column, end: Column, servers: Column | None = None) -> Column:
    """Return whether a time overlaps a maintenance window; a window for some servers counts only if one of them is given."""
    found = F.lit(False)
    for window in settings.maintenance:
        inside = (end >= F.lit(window.begin)) & (begin <= F.lit(window.end))
        if window.servers and servers is not None:
            inside = inside & F.coalesce(F.arrays_overlap(servers, F.array(*map(F.lit, window.servers))), F.lit(False))
        found = found | inside
    return found


def another_life(created: Column, before: Column) -> Column:
    """Return whether an asset was recreated since `before`. Servers report the same creation up to a second apart; an unknown
    time counts as the same creation."""
    apart = F.abs(F.unix_micros(created) - F.unix_micros(before))
    return F.coalesce(apart > F.lit(SAME), F.lit(False))


def last_of_day(moment_rows: DataFrame) -> DataFrame:
    """Return the last snapshot of each fleet."""
    latest = moment_rows.groupBy("fleet").agg(F.max_by("snapshot", F.struct("taken", "snapshot")).alias("snapshot"))
    return moment_rows.join(F.broadcast(latest), on=SNAPSHOT_KEY, how="left_semi")


def at(frame: DataFrame, moment: DataFrame) -> DataFrame:
    """Return the rows of these snapshots."""
    return frame.join(F.broadcast(moment.select(*SNAPSHOT_KEY)), on=SNAPSHOT_KEY, how="left_semi")


def with_day(frame: DataFrame) -> DataFrame:
    """Add the day of `taken`."""
    return frame.withColumn("day", F.to_date("taken"))


def with_hour(frame: DataFrame) -> DataFrame:
    """Add the day and the hour of `taken`."""
    return with_day(frame).withColumn("hour", F.hour("taken"))


def whole_hour() -> Column:
    """Return the start of the hour of `taken`."""
    return F.date_trunc("hour", "taken").alias("whole_hour")


#: Snapshots of an hour in a block, each a bit of a non-negative integer.
_BLOCK_SIZE = 63
#: Identifies a block of a fleet's snapshots.
BLOCK = ("whole_hour", "block")


def in_blocks(snapshots: DataFrame, longest_gap: float = math.inf) -> DataFrame:
    """Add `whole_hour`, the `block` of a snapshot within it, and its `place` in the block. Consecutive snapshots of a block are
    at most `longest_gap` seconds apart."""
    hour_window = Window.partitionBy("fleet", "whole_hour").orderBy("taken", "snapshot")
    apart = seconds(F.lag("taken").over(hour_window), F.col("taken")) > F.lit(longest_gap)
    numbered = snapshots.withColumn("whole_hour", whole_hour()).withColumns(
        {"of_hour": F.row_number().over(hour_window) - 1, "apart": F.when(apart, 1).otherwise(0)}
    )
    block = F.floor(F.col("of_hour") / _BLOCK_SIZE) + F.sum("apart").over(hour_window)
    placed = numbered.withColumns({"block": block.cast("int"), "place": F.col("of_hour") % _BLOCK_SIZE})
    return placed.drop("of_hour", "apart")


def bit() -> Column:
    """Return the bit of the snapshot at `place`."""
    return F.call_function("shiftleft", F.lit(1).cast("bigint"), F.col("place"))


def spans(bits: Column) -> Column:
    """Return the `first` and the `last` place of each sequence of set bits, in order."""

    def places(of: Column) -> Column:
        return F.filter(F.sequence(F.lit(0), F.lit(_BLOCK_SIZE - 1)), lambda place: F.getbit(of, place) == 1)

    first = bits.bitwiseAND(F.bitwise_not(F.shiftleft(bits, 1)))
    last = bits.bitwiseAND(F.bitwise_not(F.shiftright(bits, 1)))
    return F.arrays_zip(places(first).alias("first"), places(last).alias("last"))


def zone() -> Column:
    """Return a server's zone: its first tag with the prefix, which is removed. The prefix is unique_tag, else az: or zone:."""
    tags = F.coalesce(F.col("tags"), F.array().cast("array<string>"))

    def found(prefix: Column) -> Column:
        tag = F.get(F.filter(tags, lambda tag: F.lower(tag).startswith(F.lower(prefix))), F.lit(0))
        return F.substr(tag, F.length(prefix) + 1)

    unique = F.when(F.length("js_unique_tag") > 0, F.col("js_unique_tag"))
    return F.when(unique.isNotNull(), found(unique)).otherwise(F.coalesce(found(F.lit("az:")), found(F.lit("zone:"))))


def in_step(peer: Column, settings: GoldSettings) -> Column:
    """Return whether a replica is in step by its leader's report (health/rules Limits.in_step)."""
    lag = F.coalesce(peer["lag"], F.lit(0))
    silent = F.coalesce(peer["active"], F.lit(0)) > F.lit(settings.max_active * 1e9)
    away = F.coalesce(peer["offline"], F.lit(False)) | silent | (lag > F.lit(settings.max_lag))
    return ~away & (F.coalesce(peer["current"], F.lit(False)) | (lag > F.lit(0)))


def behind(settings: GoldSettings) -> Column:
    """Return the names of the peers that are out of step; `absent` must be a column (health/rules members_in_step)."""

    def out(peer: Column) -> Column:
        absent = F.array_contains("absent", peer["name"])
        return ~in_step(peer, settings) | F.coalesce(absent, F.lit(False))

    names = F.transform(F.filter("peers", out), lambda peer: peer["name"])
    return F.when(F.exists("peers", out), F.array_sort(names)).otherwise(F.array().cast("array<string>"))


def group_state() -> Column:
    """Return a group's state from `leader`, `peers`, `num_replicas`, `quorum` and `behind` (health/rules _group_problems)."""
    others = F.coalesce(F.size("peers"), F.lit(0))
    counted = F.lit(1) + others - F.size("behind")
    return (
        F.when(F.col("leader").isNull(), "no_leader")
        .when(counted < F.col("quorum"), "no_quorum")
        .when((F.size("behind") > 0) | (others != F.col("num_replicas") - 1), "not_redundant")
        .when(F.col("num_replicas").isNull(), "unknown")
        .otherwise("ok")
    )


def pair_slopes(points: Column) -> Column:
    """Return the sorted slopes of all pairs from an array of points (at, value); their median is the Theil–Sen slope. All pairs
    are in memory, and their number is the square of the number of points."""
    pairs = F.flatten(
        F.transform(
            points,
            lambda first: F.transform(
                F.filter(points, lambda second: second["at"] > first["at"]),
                lambda second: (second["value"] - first["value"]) / (second["at"] - first["at"]),
            ),
        )
    )
    return F.array_sort(pairs)


def middle(values: Column) -> Column:
    """Return the median of a sorted array, null if it is empty."""
    size = F.size(values)
    low, high = F.get(values, F.floor((size - 1) / 2).cast("int")), F.get(values, F.floor(size / 2).cast("int"))
    return (low + high) / 2


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames, by column name."""
    first, *others = frames
    for frame in others:
        first = first.unionByName(frame)
    return first
