# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The declaration of a gold table: its columns with types and meanings, its sources, and the function that computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Col:
    """A column: its name, its Spark SQL type, and its meaning with unit and formula."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class GoldTable:
    """A gold table of one day. `of`: the arguments of `make`, in order:

    - `hours.NAME`: the facts of the day's hours, see `gold.FACTS`; `before.NAME`: those of the previous day's last hour that has
      any;
    - `silver.NAME`: the silver rows of the day; `last.NAME`: those of the day's last snapshot of each fleet; `edited.NAME`: those
      of the snapshots with a configuration before or after a change, from `gold.states`;
    - `gold.NAME`: a gold table of the day that is computed earlier; `past.NAME:DAYS`: the published rows of this many previous
      days, or of the listed ones, such as `1,7,30`;
    - `day`: the day as a column; `settings`: the Settings.
    """

    name: str
    row: str
    columns: tuple[Col, ...]
    of: tuple[str, ...]
    make: Callable[..., DataFrame]

    @property
    def schema(self) -> str:
        return schema(self.columns)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the columns as they are declared, and no others."""
        return frame.select(*(F.col(column.name).cast(column.type).alias(column.name) for column in self.columns))


def days_before(source: str) -> list[int]:
    """Return how many days ago each day of a `past` source is; empty for any other source."""
    _table, _colon, days = source.partition(":")
    if "," in days:
        return [int(day) for day in days.split(",")]
    return list(range(1, int(days or 0) + 1))


def schema(columns: Sequence[Col]) -> str:
    """Return columns as a Spark SQL schema."""
    return ", ".join(f"{column.name} {column.type}" for column in columns)


#: Columns of every table.
DAY = (Col("fleet", "string", "the fleet"), Col("day", "date", "the day in UTC"))

#: Columns of tables that show one moment.
MOMENT = (
    *DAY,
    Col("snapshot", "string", "the day's last snapshot of the fleet, the source of the row"),
    Col("taken", "timestamp", "start of the snapshot"),
)

DOMAIN = Col("domain", "string", "JetStream domain; empty for none")

#: Columns of tables with a row for each Raft group; names that do not apply are empty.
GROUP = (
    DOMAIN,
    Col("kind", "string", "`meta`, `stream` or `consumer`"),
    Col("account", "string", "account; empty for the meta group"),
    Col("stream", "string", "stream; empty for the meta group"),
    Col("consumer", "string", "consumer; empty for the meta group and for streams"),
)
GROUP_KEY = tuple(column.name for column in GROUP)


def ratio(part: Column, whole: Column) -> Column:
    """Return a quotient, null for a divisor of 0."""
    return F.when(whole != 0, part / whole)


def not_negative(value: Column) -> Column:
    """Return a value, at least 0; null for null, which greatest() would turn into 0."""
    return F.when(value.isNotNull(), F.greatest(value, F.lit(0.0)))
