# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rows are in a report: read from the published tables of a day, sorted, cut to a size that a page holds, and counted."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.times import parse_time
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from jetstream_insights.findings.checks_file import Mute
from jetstream_insights.gold_job import newest_snapshots, usual_intervals
from jetstream_insights.lake import Lake, day_hours
from jetstream_insights.parallel import each
from jetstream_insights.report.causes import STOPPED, Newest, with_causes
from jetstream_insights.report.muted import with_muted
from jetstream_insights.report.page import page
from jetstream_insights.report.plain import csv_files, markdown
from jetstream_insights.report.shape import (
    FORMAT,
    TABLES,
    Content,
    TableShape,
    dicts,
    filled,
    verdict,
    with_account_names,
    without_single_domain,
)
from jetstream_insights.report.webhook import post

Say = Callable[[str], None]
#: Hours from one point of a line to the next.
_EVERY = (1, 2, 3, 4, 6, 12)


#: The time that a report covers, without its end.
Span = tuple[datetime, datetime]


@dataclass(frozen=True)
class Present:
    """Options of a report of the present, which requires a fresh snapshot of every fleet except the `retired` ones. `notes`: for
    its readers."""

    retired: Collection[str] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LastReport:
    """The report that was in the folder before: when it was generated, and the last snapshot of each fleet in it."""

    generated: str | None = None
    taken: Mapping[str, str] = field(default_factory=dict)


def make_report(
    lake: Lake,
    day: date,
    folder: Path,
    title: str,
    say: Say,
    meant: Sequence[Any] = (),
    webhook: Path | None = None,
    present: Present | None = None,
    mutes: Sequence[Mute] = (),
    span: Span | None = None,
) -> dict[str, Any]:
    """Write report.html, report.json, report.md and a CSV file for each table into a folder, and return the verdict. `webhook`:
    the file with the address to which the summary is posted; `present`: None for a report of the past; `span`: the time of
    the events in it, by default the day."""
    content = read_content(lake, day, title, say, meant, present, mutes, span, last_report(folder))
    shown = with_account_names(content)
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "report.html": page(shown),
        "report.json": json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n",
        "report.md": markdown(shown),
        **csv_files(content),
    }
    for name, text in files.items():
        draft = folder / f"{name}.tmp"
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / name)
    return {"day": str(day), "folder": str(folder), **verdict(content), **_posted(webhook, shown, say)}


def _posted(webhook: Path | None, content: Content, say: Say) -> dict[str, Any]:
    """Return whether the summary was accepted. The report is there in any case."""
    if webhook is None:
        return {}
    problem = post(webhook, content)
    if problem:
        say(f"The webhook was not reached, the report is complete: {problem}")
    return {"webhook": problem or "accepted"}


def read_content(
    lake: Lake,
    day: date,
    title: str,
    say: Say,
    meant: Sequence[Any] = (),
    present: Present | None = None,
    mutes: Sequence[Mute] = (),
    span: Span | None = None,
    before: LastReport | None = None,
) -> dict[str, Any]:
    """Return the content of a report. Its notes list missing input. `meant`: windows of the journal; `before`: the report that
    this one replaces."""
    before = before or LastReport()
    now = datetime.now(timezone.utc)
    start = datetime.combine(day, time(), timezone.utc)
    begin, end = span or (start, start + timedelta(days=1))
    notes = [*present.notes] if present else []
    notes += [
        f"There is no {layer} of {day}: run the job {layer} first."
        for layer in ("gold", "findings")
        if not lake.pointer(layer, day)
    ]
    known = {table.name: table for table in TABLES if table.source}
    read: dict[str, dict[str, Any]] = {}

    def fill(name: str) -> None:
        say(f"{day}  {name}")
        frame = _read_rows(lake, known[name], day, begin)
        if frame is not None:
            read[name] = _filled(known[name], frame, begin)

    each(known, fill, lake.at_once)
    tables = {name: read[name] for name in known if name in read}
    if "incidents" in tables:
        tables["incidents"] = with_joined_incidents(tables["incidents"])
    names = account_names(_account_limits(lake, begin.date(), day))
    tables = with_muted(tables, mutes, names, now)
    if "findings" in tables:
        failing = dicts({"tables": tables}, "findings")
        newest = newest_snapshots(lake) if present else None
        rows = newest.select("fleet", F.unix_seconds("taken").alias("taken")).collect() if newest is not None else []
        late = any(now.timestamp() - row["taken"] > STOPPED for row in rows)
        usual = usual_intervals(lake) if late else {}
        expected = {
            row["fleet"]: Newest(datetime.fromtimestamp(row["taken"], timezone.utc), usual.get(row["fleet"], 0.0))
            for row in rows
            if present and row["fleet"] not in present.retired
        }
        tables = with_causes(tables, failing, meant, now if present else None, expected, before.taken)
    return {
        "format": FORMAT,
        "title": title,
        "day": str(day),
        "begin": f"{begin:%Y-%m-%dT%H:%M:%SZ}",
        "end": f"{min(end, now):%Y-%m-%dT%H:%M:%SZ}",
        "last_report": before.generated,
        "generated": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "notes": notes,
        "account_names": names,
        "tables": without_single_domain(tables),
    }


def _account_limits(lake: Lake, first: date, last: date) -> DataFrame | None:
    """Return the limits of accounts in these days, of the hours whose silver is stored in the present format."""
    days = (first + timedelta(days=number) for number in range((last - first).days + 1))
    return lake.read(
        "silver", "account_limits", lake.kept_hours("silver", [hour for day in days for hour in day_hours(day)])
    )


def account_names(limits: DataFrame | None) -> dict[str, str]:
    """Return the names of JWT accounts by public key, their identity, without those that several accounts of a fleet have.
    `limits`: of a period."""
    if limits is None:
        return {}
    named = limits.where("name_tag <> '' AND name_tag <> account").groupBy("fleet", "account")
    rows = named.agg(F.max_by("name_tag", "taken").alias("name")).collect()
    count = Counter((row["fleet"], row["name"]) for row in rows)
    return {row["account"]: row["name"] for row in rows if count[row["fleet"], row["name"]] == 1}


def with_joined_incidents(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of incidents, in which one that lasted over midnight is one row: gold has a row of each for each day."""
    names = [name for name, _title, _kind in table["columns"]]
    merged = ("begin", "end", "last", "seconds", "continues", "began_before")
    at = {name: names.index(name) for name in merged}
    key = [index for index, name in enumerate(names) if name not in at and name not in ("maintenance", "causes")]
    open_rows: dict[str, list[Any]] = {}
    rows: list[list[Any]] = []
    for row in sorted(table["rows"], key=lambda row: str(row[at["begin"]])):
        same = json.dumps([row[index] for index in key])
        one = open_rows.pop(same, None) if row[at["began_before"]] else None
        if one is None:
            one = list(row)
            rows.append(one)
        else:
            times = (one[at["begin"]], row[at["end"]] or row[at["last"]])
            begin, until = (parse_time(text) for text in times)
            one[at["seconds"]] = (until - begin).total_seconds()
            for name in ("end", "last", "continues"):
                one[at[name]] = row[at[name]]
        if row[at["continues"]]:
            open_rows[same] = one
    rows.sort(key=lambda row: -(row[at["seconds"]] or 0))
    return {**table, "rows": rows, "total": table["total"] - (len(table["rows"]) - len(rows))}


def last_report(folder: Path) -> LastReport:
    """Return when the report in a folder was generated, and the last snapshot of each fleet in it; nothing without a report that
    can be read."""
    try:
        content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        taken = {row["fleet"]: row["taken"] for row in dicts(content, "fleets") if row["taken"]}
        return LastReport(content["generated"], taken)
    except (OSError, ValueError, KeyError, TypeError):
        return LastReport()


def _read_rows(lake: Lake, table: TableShape, day: date, begin: datetime) -> DataFrame | None:
    layer, _dot, name = table.source.partition(".")
    back = (day - begin.date()).days + 1 if table.since or table.daily else table.days
    frame = lake.find_days(layer, name, [day - timedelta(days=number) for number in range(max(back, 1))])
    return _trend(frame) if frame is not None and table.name == "trend" else frame


def _trend(counted: DataFrame) -> DataFrame:
    """Return how many checks' failures there were in the last snapshot of each day, by severity."""
    day = F.date_format("taken", "yyyy-MM-dd").alias("day")
    last = (F.max_by(name, "taken").alias(name) for name in ("failed", "critical", "severity"))
    by_check = counted.groupBy("fleet", day, "check").agg(*last)
    less = F.col("failed") - F.col("critical")
    return by_check.groupBy("fleet", "day").agg(
        F.sum("critical").alias("critical"),
        F.sum(F.when(F.col("severity") != "info", less).otherwise(0)).alias("warning"),
        F.sum(F.when(F.col("severity") == "info", less).otherwise(0)).alias("info"),
    )


def _filled(table: TableShape, frame: DataFrame, begin: datetime | None = None) -> dict[str, Any]:
    wanted = frame.where(table.only) if table.only else frame
    if table.since and begin is not None:
        wanted = wanted.where(F.expr(table.since) >= F.timestamp_micros(F.lit(int(begin.timestamp()) * 1_000_000)))
    about = table.about
    if table.thinned:
        wanted, every = _thinned(wanted, table.most)
        about = about if every == 1 else f"Every {every} hours."
    names = [column.name for column in table.columns]
    # The shown columns break ties, so the same lake gives the same report.
    chosen = _sorted(wanted, (*table.order, *(f"`{name}`" for name in names))).select(*names)
    # One more row than is shown: only a longer table has to be counted.
    rows = (chosen if table.whole else chosen.limit(table.most + 1)).collect()
    kept = rows if table.whole else rows[: table.most]
    total = wanted.count() if len(rows) > len(kept) else len(rows)
    return {**filled(table, [[plain(value) for value in row] for row in kept], total), "about": about}


def _thinned(frame: DataFrame, most: int) -> tuple[DataFrame, int]:
    """Return the rows of every so many hours of the day, the fewest that leave no more than `most`, and how many those are."""
    total = frame.count()
    every = next((hours for hours in _EVERY if total <= most * hours), _EVERY[-1])
    return frame.where(F.col("hour") % every == every - 1), every


def _sorted(frame: DataFrame, order: Sequence[str]) -> DataFrame:
    """Return the rows in an order given as in SQL."""
    columns = []
    for part in order:
        words = part.removesuffix(" NULLS LAST").removesuffix(" DESC")
        column = F.expr(words)
        columns.append(column.desc_nulls_last() if part != words else column.asc_nulls_last())
    return frame.orderBy(*columns)


def plain(value: Any) -> Any:
    """Return a value that JSON supports: times in UTC, NaN and infinity as null, causes and other structures as a line."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone(timezone.utc)
        return f"{moment.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%S}Z"
    if isinstance(value, date):
        return str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Row):
        return " ".join(str(plain(item)) for item in value if item not in (None, ""))
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
