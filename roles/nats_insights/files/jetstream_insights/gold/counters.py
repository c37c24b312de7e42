# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Increases of server counters: between the snapshots of an hour, and from one hour to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold.common import GoldSettings, whole_hour
from jetstream_insights.gold.tables import Col
from jetstream_insights.times import seconds


@dataclass(frozen=True)
class Counters:
    """Counters with at most one value for each `series` in a snapshot. Two snapshots are comparable if `start` is equal, the time
    between them is not too long, and no counter decreased. `shown`: further columns of a snapshot to keep, by type."""

    names: tuple[str, ...]
    series: tuple[str, ...]
    start: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Col, ...]:
        """The hourly columns next to the series."""
        types = {"taken": "timestamp", "server_id": "string", "start": "timestamp"}
        fields = ",".join(f"{name}:{types.get(name, 'bigint')}" for name in self._snapshot_figures)
        return (
            Col("first", f"struct<{fields}>", "values in the first snapshot"),
            Col("last", f"struct<{fields}>", "values in the last snapshot"),
            Col("possible", "double", "seconds between its snapshots"),
            Col("observed", "double", "seconds between comparable snapshots"),
            Col("gaps", "bigint", "pairs of snapshots that are not comparable"),
            *(Col(name, "bigint", "rise in the observed time") for name in self.names),
        )

    @property
    def _snapshot_figures(self) -> tuple[str, ...]:
        return ("taken", *self.start, *self.names, *self.shown)

    @property
    def _sums(self) -> tuple[str, ...]:
        return ("possible", "observed", "gaps", *self.names)

    def hourly_sums(self, rows: DataFrame, settings: GoldSettings) -> DataFrame:
        """Return the increases of each series in an hour. The step from the previous hour is computed with the day."""
        key = [*self.series, "whole_hour"]
        before = F.lag("of").over(Window.partitionBy(*key).orderBy("taken"))
        snapshot_rows = rows.withColumns({"whole_hour": whole_hour(), "of": F.struct(*self._snapshot_figures)})
        steps = snapshot_rows.withColumn("step", self._step(before, F.col("of"), settings))
        return steps.groupBy(*key).agg(
            F.max("taken").alias("taken"),
            F.min_by("of", "taken").alias("first"),
            F.max_by("of", "taken").alias("last"),
            *(F.sum(F.col("step")[name]).alias(name) for name in self._sums),
        )

    def daily_sums(self, hourly_rows: DataFrame, before: DataFrame, settings: GoldSettings) -> DataFrame:
        """Return the hours with the steps that lead to them; `before`: the last hour before the day."""
        every = hourly_rows.withColumn("today", F.lit(True)).unionByName(before.withColumn("today", F.lit(False)))
        old = F.lag("last").over(Window.partitionBy(*self.series).orderBy("taken"))
        stepped = every.withColumn("step", self._step(old, F.col("first"), settings)).where("today")
        sums = {name: (F.col(name), F.col("step")[name]) for name in self._sums}
        return stepped.withColumns({name: F.coalesce(own + step, own, step) for name, (own, step) in sums.items()})

    def _step(self, old: Column, new: Column, settings: GoldSettings) -> Column:
        """Return the step between two snapshots, with nulls if the previous one is missing."""
        elapsed = seconds(old["taken"], new["taken"])
        rises = {name: new[name] - old[name] for name in self.names}
        conditions = (
            elapsed <= F.lit(settings.longest_gap),
            *(old[name].eqNullSafe(new[name]) for name in self.start),
            *(F.coalesce(rise, F.lit(0)) >= 0 for rise in rises.values()),
        )
        whole = F.coalesce(_all(conditions), F.lit(False))
        return F.struct(
            elapsed.alias("possible"),
            F.when(whole, elapsed).alias("observed"),
            F.when(elapsed.isNotNull(), (~whole).cast("bigint")).alias("gaps"),
            *(F.when(whole, rise).alias(name) for name, rise in rises.items()),
        )


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(Column.__and__, conditions)
