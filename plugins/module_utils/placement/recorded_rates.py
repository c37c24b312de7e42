# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The write rates of streams over a day, as recorded by the insights in report.json. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from typing import Any

#: The format version of report.json that this module supports (jetstream_insights/report/shape.py).
_FORMAT = 1
#: Maximum age of a report: older write rates are not representative.
MOST_DAYS = 7


class ReportRefused(ValueError):
    """Why the write rates of a report are not used."""


def recorded_rates(report: Any, fleet: str | None, now: float) -> tuple[str, dict[tuple[str, str], float]]:
    """Return the day of a report, and (account, stream) → bytes per second for those streams of the fleet whose rate is
    known.

    `fleet`: the name of the fleet, None if the report has only one. `now`: seconds since 1970. Raises ReportRefused.
    """
    try:
        if report["format"] != _FORMAT:
            raise ReportRefused(f"its format is {report['format']}, but only {_FORMAT} is supported")
        table = report["tables"]["streams"]
        names = [column[0] for column in table["columns"]]
        rows: list[Mapping[str, Any]] = [dict(zip(names, row)) for row in table["rows"]]
        day = date.fromisoformat(report["day"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ReportRefused):
            raise
        raise ReportRefused(f"it is not a report.json with a table of streams: {error!r}") from error
    if "write_bytes" not in names:
        raise ReportRefused("its streams have no write_bytes: it was created by an older release")
    age = (datetime.fromtimestamp(now, timezone.utc).date() - day).days
    if age > MOST_DAYS:
        raise ReportRefused(f"it dates from {day}, {age} days ago: rates are only valid for {MOST_DAYS} days")
    fleets = sorted({str(row["fleet"]) for row in rows})
    if fleet is None and len(fleets) > 1:
        raise ReportRefused(f"it has {len(fleets)} fleets, but none was selected: {', '.join(fleets)}")
    if fleet is not None and fleet not in fleets:
        raise ReportRefused(f"it has no streams of fleet {fleet}; its fleets are: {', '.join(fleets) or 'none'}")
    return str(day), {
        (str(row["account"]), str(row["stream"])): float(row["write_bytes"])
        for row in rows
        if row["write_bytes"] is not None and fleet in (None, row["fleet"])
    }
