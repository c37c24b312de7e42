# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gold job: it makes the tables of a day from hourly facts, decides whether they are up to date, and publishes them when they
are complete.
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
from jetstream_insights.gold.common import DEFAULTS, GoldSettings, Maintenance, last_of_day
from jetstream_insights.gold.tables import GoldTable, days_before
from jetstream_insights.lake import FACTS, FACTS_FORMAT, GOLD_FORMAT, Lake, day_hours, new_run
from jetstream_insights.parallel import each, make_all
from jetstream_insights.silver_job import JobResult, Say, silver_rows
from jetstream_insights.times import seconds

#: Days with snapshots that show a fleet's usual interval, even if it takes one snapshot a day.
_RECENT = 8


def newest_snapshots(lake: Lake, before: date | None = None) -> DataFrame | None:
    """Return `fleet` and `taken` of the newest snapshot of every fleet in the lake; if given in the recent days with snapshots
    `before` a day. None if there are no snapshots."""
    published = lake.published_days("gold", before, None if before is None else _RECENT)
    fleets = lake.find_days("gold", "report_fleet", published)
    return None if fleets is None else fleets.groupBy("fleet").agg(F.max("taken").alias("taken"))


def usual_intervals(lake: Lake) -> dict[str, float]:
    """Return the median of the seconds between the recent snapshots of each fleet that has several."""
    recent = lake.find_days("gold", "moments", lake.published_days("gold", most=_RECENT))
    if recent is None:
        return {}
    before = F.lag("taken").over(Window.partitionBy("fleet").orderBy("taken"))
    intervals = recent.select("fleet", seconds(before, F.col("taken")).alias("interval"))
    found = intervals.groupBy("fleet").agg(F.median("interval").alias("usual")).where("usual IS NOT NULL")
    return {row["fleet"]: row["usual"] for row in found.collect()}


def days(start: datetime, end: datetime) -> Iterator[date]:
    """Yield the days that overlap the time from `start` up to and without `end`."""
    day = start.date()
    while datetime.combine(day, time(), timezone.utc) < end:
        yield day
        day += timedelta(days=1)


def silver_inputs(lake: Lake, day: date, *layers: str) -> list[str]:
    """Return the hours of a day in layers of silver, each with its run."""
    return [
        f"{hour:%H}:{run}"
        for layer in layers
        for hour in day_hours(day)
        if (run := lake.pointer(layer, hour).get("run"))
    ]


def up_to_date(known: Mapping[str, Any], format_: int, fingerprint: str, inputs: Iterable[str]) -> bool:
    """Return whether the published tables of a day have this format, this fingerprint and these inputs. Tables remain valid when
    the silver hours of their inputs have been deleted."""
    return (
        known.get("format") == format_
        and known.get("fingerprint") == fingerprint
        and set(inputs) <= set(known["inputs"])
    )


#: The number of previous days that a day may use.
HISTORY = max(back for table in TABLES.values() for source in table.of for back in days_before(source))


@dataclass(frozen=True)
class TablesRequest:
    """The tables of a day, each after its inputs, and the facts of its hours that are stored."""

    tables: Mapping[str, GoldTable]
    facts: Mapping[str, GoldTable]


EVERYTHING = TablesRequest(TABLES, FACTS_OF_HOURS)


def make_gold(
    lake: Lake,
    selected_days: Iterable[date],
    say: Say,
    force: bool = False,
    settings: GoldSettings = DEFAULTS,
    wanted: TablesRequest = EVERYTHING,
) -> JobResult:
    """Make the gold tables of the days that have silver rows, if their silver tables, earlier days or settings differ from those
    that the tables were made from."""
    outcome = JobResult()
    for day in selected_days:
        inputs = silver_inputs(lake, day, "silver", "silver/advisories")
        mine = replace(settings, maintenance=tuple(window for window in settings.maintenance if touches(window, day)))
        fingerprint = _fingerprint(lake, day, mine)
        known = lake.pointer("gold", day)
        if not inputs or (up_to_date(known, GOLD_FORMAT, fingerprint, inputs) and not force):
            outcome.fresh += bool(known)
            outcome.empty += not known
            continue
        # In a small lake, writing the facts takes longer than computing them again.
        kept = not lake.little or any(lake.pointer(FACTS, hour) for hour in day_hours(day))
        if kept:
            _make_facts(lake, day, say, force, settings, wanted.facts)
        run = new_run()
        try:
            _GoldDay(lake, day, run, mine, say, kept).make(wanted.tables)
        except Exception:
            lake.delete_run("gold", run)
            raise
        lake.repoint("gold", day, {"format": GOLD_FORMAT, "run": run, "inputs": inputs, "fingerprint": fingerprint})
        outcome.made += 1
    return outcome


def hour_before(lake: Lake, day: date) -> list[datetime]:
    """Return the last hour of the previous day that has silver rows, in a list of at most one."""
    return [hour for hour in day_hours(day - timedelta(days=1)) if lake.pointer("silver", hour)][-1:]


def _make_facts(
    lake: Lake, day: date, say: Say, force: bool, settings: GoldSettings, tables: Mapping[str, GoldTable]
) -> None:
    """Make the facts of a day's hours whose silver rows or settings differ from those that the facts were made from. Hours
    without silver rows keep their facts."""
    fingerprint = _hash(repr(_select_settings(settings)))
    runs = {hour: lake.pointer("silver", hour).get("run") for hour in [*hour_before(lake, day), *day_hours(day)]}
    stale = [
        hour
        for hour, made in runs.items()
        if made and (force or not up_to_date(lake.pointer(FACTS, hour), FACTS_FORMAT, fingerprint, [made]))
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
        lake.repoint(
            FACTS, hour, {"format": FACTS_FORMAT, "run": run, "inputs": [runs[hour]], "fingerprint": fingerprint}
        )


def _facts(lake: Lake, name: str, settings: GoldSettings, selected_hours: Sequence[datetime]) -> DataFrame:
    """Return the facts of some hours, computed from silver."""
    table = FACTS_OF_HOURS[name]
    given = (
        _select_settings(settings)
        if source == "settings"
        else silver_rows(lake, source.partition(".")[2], selected_hours)
        for source in table.of
    )
    return table.rows(table.make(*given))


def _select_settings(settings: GoldSettings) -> GoldSettings:
    """Return the settings that facts depend on; maintenance windows are applied to days."""
    return replace(settings, maintenance=())


def touches(window: Maintenance, day: date) -> bool:
    """Return whether a day's tables may depend on a window; they compare with the last snapshot of the previous day."""
    return window.begin.date() <= day + timedelta(days=1) and window.end.date() >= day - timedelta(days=1)


def _fingerprint(lake: Lake, day: date, settings: GoldSettings) -> str:
    """Return a hash of everything a day depends on apart from its own silver tables: settings, and the inputs of earlier days,
    with their settings."""
    pointers = (lake.pointer("gold", day - timedelta(days=back)) for back in range(1, HISTORY + 1))
    before = [(pointer.get("inputs"), pointer.get("fingerprint")) for pointer in pointers]
    return _hash(json.dumps([before, repr(settings)]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _GoldDay:
    """A day to be made: its inputs, each read once, and its written tables. `kept`: whether the facts of its hours are stored."""

    def __init__(self, lake: Lake, day: date, run: str, settings: GoldSettings, say: Say, kept: bool) -> None:
        self._lake, self._day, self._run, self._settings, self._say = lake, day, run, settings, say
        self._kept = kept
        self._frames: dict[str, DataFrame] = {}
        self._snapshots: dict[str, list[tuple[Any, ...]]] = {}

    def make(self, tables: Mapping[str, GoldTable]) -> None:
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
            return silver_rows(self._lake, name, day_hours(self._day))
        if layer in ("last", "edited"):
            wanted = self._wanted(layer, name)
            rows = silver_rows(self._lake, name, sorted(set(wanted.values())))
            # Named one by one, so Parquet's statistics exclude row groups.
            return rows.where(F.col("snapshot").isin(list(wanted)))
        if layer in ("hours", "before"):
            return self._read_hours(
                name, day_hours(self._day) if layer == "hours" else hour_before(self._lake, self._day)
            )
        table = name.partition(":")[0]
        past = [self._day - timedelta(days=back) for back in days_before(source)]
        found = self._lake.find_days("gold", table, past)
        return self._lake.nothing(TABLES[table].schema) if found is None else found

    def _read_hours(self, name: str, selected_hours: Sequence[datetime]) -> DataFrame:
        """Return the facts of some hours; if they are not stored, compute them."""
        if not self._kept:
            return _facts(self._lake, name, self._settings, selected_hours)
        found = self._lake.read(FACTS, name, self._lake.kept_hours(FACTS, selected_hours))
        return self._lake.nothing(FACTS_OF_HOURS[name].schema) if found is None else found

    def _wanted(self, layer: str, name: str) -> dict[str, datetime]:
        """Return the snapshots to read from a silver table, with their hours: each fleet's last one, or those before and after an
        edit of the table's objects."""
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
