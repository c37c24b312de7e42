# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that makes the gold tables, a day at a time, of what it needs of each hour: what they are made from, whether they are
up to date, and when they count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import FACTS as FACTS_OF_HOURS
from jetstream_insights.gold import TABLES, made_before
from jetstream_insights.gold.changes import edits
from jetstream_insights.gold.common import DEFAULTS, Maintenance, Settings, last_of_day
from jetstream_insights.gold.tables import Table, days_before
from jetstream_insights.jobs import Outcome, Say, silver_of
from jetstream_insights.lake import FACTS, FACTS_FORMAT, GOLD_FORMAT, Lake, hours, new_run
from jetstream_insights.side_by_side import each, make_all
from jetstream_insights.times import seconds

#: Days with snapshots that show how often a fleet usually takes one, also if it takes one a day.
_RECENT = 8


def newest_snapshots(lake: Lake, before: date | None = None) -> DataFrame | None:
    """Return `fleet` and `taken` of the newest snapshot of every fleet in the lake; if given in the recent days with snapshots
    `before` a day. None without any."""
    published = lake.published_days("gold", before, None if before is None else _RECENT)
    fleets = lake.read_days("gold", "report_fleet", published)
    return None if fleets is None else fleets.groupBy("fleet").agg(F.max("taken").alias("taken"))


def usual_intervals(lake: Lake) -> dict[str, float]:
    """Return the median of the seconds between the recent snapshots of each fleet that has several."""
    recent = lake.read_days("gold", "moments", lake.published_days("gold", most=_RECENT))
    if recent is None:
        return {}
    before = F.lag("taken").over(Window.partitionBy("fleet").orderBy("taken"))
    intervals = recent.select("fleet", seconds(before, F.col("taken")).alias("interval"))
    found = intervals.groupBy("fleet").agg(F.median("interval").alias("usual")).where("usual IS NOT NULL")
    return {row["fleet"]: row["usual"] for row in found.collect()}


def days(start: datetime, end: datetime) -> Iterator[date]:
    """Yield the days that have a moment from `start` up to and without `end`."""
    day = start.date()
    while datetime.combine(day, time(), timezone.utc) < end:
        yield day
        day += timedelta(days=1)


def hours_of(day: date) -> list[datetime]:
    """Return the hours of a day."""
    start = datetime.combine(day, time(), timezone.utc)
    return list(hours(start, start + timedelta(days=1)))


def inputs_of(lake: Lake, day: date, *layers: str) -> list[str]:
    """Return the hours of a day in layers of silver, each with the run that made it."""
    return [
        f"{hour:%H}:{run}"
        for layer in layers
        for hour in hours_of(day)
        if (run := lake.pointer(layer, hour).get("run"))
    ]


def up_to_date(known: Mapping[str, Any], format_: int, basis: str, inputs: Iterable[str]) -> bool:
    """Return whether what is published of a day is of this format, made from this basis and from these inputs. Silver hours that
    are no longer kept do not make wrong what was made from them."""
    return known.get("format") == format_ and known["basis"] == basis and set(inputs) <= set(known["inputs"])


#: The days before that a day may be made from.
HISTORY = max(back for table in TABLES.values() for source in table.of for back in days_before(source))


@dataclass(frozen=True)
class Wanted:
    """The tables that are made of a day, each after those that it is made from, and the facts that are kept of its hours."""

    tables: Mapping[str, Table]
    facts: Mapping[str, Table]


EVERYTHING = Wanted(TABLES, FACTS_OF_HOURS)


def make_gold(
    lake: Lake,
    of_days: Iterable[date],
    say: Say,
    force: bool = False,
    settings: Settings = DEFAULTS,
    wanted: Wanted = EVERYTHING,
) -> Outcome:
    """Make the gold tables of the days that have silver rows, and whose silver tables, earlier days or settings are not those
    that they were made from."""
    outcome = Outcome()
    for day in of_days:
        inputs = inputs_of(lake, day, "silver", "silver/advisories")
        mine = replace(settings, maintenance=tuple(window for window in settings.maintenance if touches(window, day)))
        basis = _basis(lake, day, mine)
        known = lake.pointer("gold", day)
        if not inputs or (up_to_date(known, GOLD_FORMAT, basis, inputs) and not force):
            outcome.fresh += bool(known)
            outcome.empty += not known
            continue
        # To write them takes longer than to make little again.
        kept = not lake.little or any(lake.pointer(FACTS, hour) for hour in hours_of(day))
        if kept:
            _make_facts(lake, day, say, force, settings, wanted.facts)
        run = new_run()
        try:
            _Day(lake, day, run, mine, say, kept).make(wanted.tables)
        except Exception:
            lake.delete_run("gold", run)
            raise
        lake.repoint("gold", day, {"format": GOLD_FORMAT, "run": run, "inputs": inputs, "basis": basis})
        outcome.made += 1
    return outcome


def hour_before(lake: Lake, day: date) -> list[datetime]:
    """Return the last hour of the day before that has silver rows, as the only one."""
    return [hour for hour in hours_of(day - timedelta(days=1)) if lake.pointer("silver", hour)][-1:]


def _make_facts(lake: Lake, day: date, say: Say, force: bool, settings: Settings, tables: Mapping[str, Table]) -> None:
    """Make the facts of the hours that a day is made of whose silver rows or settings are not those that they were made from.
    Hours without silver rows keep those that they have."""
    basis = _hash(repr(_of_facts(settings)))
    runs = {hour: lake.pointer("silver", hour).get("run") for hour in [*hour_before(lake, day), *hours_of(day)]}
    stale = [
        hour
        for hour, made in runs.items()
        if made and (force or not up_to_date(lake.pointer(FACTS, hour), FACTS_FORMAT, basis, [made]))
    ]
    if not stale:
        return
    run = new_run()

    def make(name: str) -> None:
        say(f"{day}  {len(stale)} hours: {name}")
        lake.write(FACTS, name, run, _facts(lake, name, settings, stale))

    try:
        each(tables, make, lake.at_once)
    except Exception:
        lake.delete_run(FACTS, run)
        raise
    for hour in stale:
        lake.repoint(FACTS, hour, {"format": FACTS_FORMAT, "run": run, "inputs": [runs[hour]], "basis": basis})


def _facts(lake: Lake, name: str, settings: Settings, of_hours: Sequence[datetime]) -> DataFrame:
    """Return the facts of some hours, from silver."""
    table = FACTS_OF_HOURS[name]
    given = (
        _of_facts(settings) if source == "settings" else silver_of(lake, source.partition(".")[2], of_hours)
        for source in table.of
    )
    return table.rows(table.make(*given))


def _of_facts(settings: Settings) -> Settings:
    """Return the settings that facts depend on: what was meant is judged of days."""
    return replace(settings, maintenance=())


def touches(window: Maintenance, day: date) -> bool:
    """Return whether a day's tables may depend on a window; they compare with the last snapshot of the day before."""
    return window.begin.date() <= day + timedelta(days=1) and window.end.date() >= day - timedelta(days=1)


def _basis(lake: Lake, day: date, settings: Settings) -> str:
    """Return what a day depends on besides its own silver tables, as a hash: settings, and what earlier days were made from, also
    by other settings."""
    pointers = (lake.pointer("gold", day - timedelta(days=back)) for back in range(1, HISTORY + 1))
    before = [(pointer.get("inputs"), pointer.get("basis")) for pointer in pointers]
    return _hash(json.dumps([before, repr(settings)]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Day:
    """A day that is made: its inputs, each read once, and what of it is written. `kept`: whether the facts of its hours are."""

    def __init__(self, lake: Lake, day: date, run: str, settings: Settings, say: Say, kept: bool) -> None:
        self._lake, self._day, self._run, self._settings, self._say = lake, day, run, settings, say
        self._kept = kept
        self._frames: dict[str, DataFrame] = {}
        self._snapshots: dict[str, list[tuple[Any, ...]]] = {}

    def make(self, tables: Mapping[str, Table]) -> None:
        """Write tables of the day."""
        make_all({name: made_before(table) for name, table in tables.items()}, self._make, self._lake.at_once)

    def _make(self, name: str) -> None:
        self._say(f"{self._day}  {name}")
        table = TABLES[name]
        frame = table.rows(table.make(*(self._input(source) for source in table.of)))
        self._frames[f"gold.{name}"] = self._lake.write_day("gold", name, self._run, self._day, frame)

    def _input(self, source: str) -> Any:
        if source == "day":
            return F.lit(self._day)
        if source == "settings":
            return self._settings
        if source not in self._frames:
            self._frames[source] = self._read(source)
        return self._frames[source]

    def _read(self, source: str) -> DataFrame:
        layer, _dot, name = source.partition(".")
        if layer == "silver":
            return silver_of(self._lake, name, hours_of(self._day))
        if layer in ("last", "edited"):
            wanted = self._wanted(layer, name)
            rows = silver_of(self._lake, name, sorted(set(wanted.values())))
            # Named one by one, so that Parquet's statistics tell what need not be read.
            return rows.where(F.col("snapshot").isin(list(wanted)))
        if layer in ("hours", "before"):
            return self._of_hours(name, hours_of(self._day) if layer == "hours" else hour_before(self._lake, self._day))
        table = name.partition(":")[0]
        past = [self._day - timedelta(days=back) for back in days_before(source)]
        found = self._lake.read_days("gold", table, past)
        return self._lake.nothing(TABLES[table].schema) if found is None else found

    def _of_hours(self, name: str, of_hours: Sequence[datetime]) -> DataFrame:
        """Return the facts of some hours, made where they are not kept."""
        if not self._kept:
            return _facts(self._lake, name, self._settings, of_hours)
        found = self._lake.read(FACTS, name, self._lake.kept_hours(FACTS, of_hours))
        return self._lake.nothing(FACTS_OF_HOURS[name].schema) if found is None else found

    def _wanted(self, layer: str, name: str) -> dict[str, datetime]:
        """Return the snapshots that are wanted of a table of silver, with their hours: each fleet's last one, or those beside an
        edit of what the table is of."""
        if layer not in self._snapshots:
            found = (
                last_of_day(self._frames["gold.moments"]).withColumn("table", F.lit(None).cast("string"))
                if layer == "last"
                else edits(self._frames["gold.states"], F.lit(self._day))
            )
            hour = F.date_format("taken", "yyyy-MM-dd'T'HH:00:00'+00:00'")
            self._snapshots[layer] = [tuple(row) for row in found.select("table", "snapshot", hour).collect()]
        return {
            snapshot: datetime.fromisoformat(hour)
            for table, snapshot, hour in self._snapshots[layer]
            if table in (None, name)
        }
