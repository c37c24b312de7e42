# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that makes the gold tables, a day at a time: what a day is made from, whether it is up to date, and when it counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights.gold import TABLES, made_before
from jetstream_insights.gold.common import DEFAULTS, Maintenance, Settings
from jetstream_insights.gold.tables import days_before
from jetstream_insights.jobs import Outcome, Say, empty
from jetstream_insights.lake import GOLD_FORMAT, Lake, hours, new_run
from jetstream_insights.side_by_side import make_all


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


def make_gold(
    lake: Lake, of_days: Iterable[date], say: Say, force: bool = False, settings: Settings = DEFAULTS
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
        run = new_run()
        try:
            _Day(lake, day, run, mine, say).make()
        except Exception:
            lake.delete_run("gold", run)
            raise
        lake.repoint("gold", day, {"format": GOLD_FORMAT, "run": run, "inputs": inputs, "basis": basis})
        outcome.made += 1
    return outcome


def touches(window: Maintenance, day: date) -> bool:
    """Return whether a day's tables may depend on a window; they compare with the last snapshot of the day before."""
    return window.begin.date() <= day + timedelta(days=1) and window.end.date() >= day - timedelta(days=1)


def _basis(lake: Lake, day: date, settings: Settings) -> str:
    """Return what a day depends on besides its own silver tables, as a hash: settings, and what earlier days were made from."""
    before = [lake.pointer("gold", day - timedelta(days=back)).get("inputs") for back in range(1, HISTORY + 1)]
    return hashlib.sha256(json.dumps([before, repr(settings)]).encode()).hexdigest()


class _Day:
    """A day that is made: its inputs, each read once, and what of it is written."""

    def __init__(self, lake: Lake, day: date, run: str, settings: Settings, say: Say) -> None:
        self._lake, self._day, self._run, self._settings, self._say = lake, day, run, settings, say
        self._frames: dict[str, DataFrame] = {}

    def make(self) -> None:
        """Write all tables of the day."""
        make_all({name: made_before(table) for name, table in TABLES.items()}, self._make, self._lake.at_once)

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
            return self._silver(name, hours_of(self._day))
        if layer == "before":
            known = [hour for hour in hours_of(self._day - timedelta(days=1)) if self._lake.pointer("silver", hour)]
            return self._silver(name, known[-1:])
        table = name.partition(":")[0]
        past = [self._day - timedelta(days=back) for back in days_before(source)]
        found = self._lake.read_days("gold", table, past)
        return found if found is not None else self._lake.spark.createDataFrame([], TABLES[table].schema)

    def _silver(self, name: str, of_hours: Iterable[datetime]) -> DataFrame:
        found = self._lake.read("silver", name, of_hours)
        return empty(self._lake, name) if found is None else found
