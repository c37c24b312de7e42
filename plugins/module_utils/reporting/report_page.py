# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports as text for the screen. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..screen import Page, blocks, cut, fitting, names_line, page, paragraphs
from ..table import table_page
from ..units import human_bytes, human_seconds

_BAR_WIDTH = 30


def report_page(data: Mapping[str, Any]) -> Page:
    """Return the tables of `report_data` and all problems as text for operators."""
    return fitting(lambda most: _report_page(data, most))


def _report_page(data: Mapping[str, Any], most: int) -> Page:
    parts = [_table_page(one, most) for one in data["tables"]]
    if data["not_answering"]:
        parts.append(names_line("NOT ANSWERING: ", data["not_answering"]))
    return paragraphs([*parts, _causes_page(data)])


def _causes_page(data: Mapping[str, Any]) -> Page:
    """Return the root causes of the problems as text, or a single line if there are none."""
    if not data["problems"]:
        return page("No problems found.")
    counts = Counter(one["severity"] for one in data["problems"])
    count = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in sorted(counts.items()))
    lines = [_cause_lines(number, cause, cause["evidence"]) for number, cause in enumerate(data["causes"], 1)]
    brief = [_cause_lines(number, cause, cause["evidence"][:1]) for number, cause in enumerate(data["causes"], 1)]
    causes = Page(blocks(lines, what="cause").lines, blocks(brief, what="cause").screen)
    return page(f"Problems ({count}), by root cause:") + causes


def _cause_lines(number: int, cause: Mapping[str, Any], evidence: Sequence[str]) -> list[str]:
    return [
        f"  {number}. {cause['severity']}: {cause['title']}",
        *(f"       {message}" for message in evidence if message != cause["title"]),
        *(f"     $ {command}" for command in cause["commands"]),
    ]


def _table_page(data: Mapping[str, Any], most: int) -> Page:
    columns, rows, notes = data["columns"], data["rows"], data["notes"]
    if not rows and notes:
        return _notes_page(notes, page(data["title"]))
    # The largest value sets the length of a bar. For CPU, the maximum is at least 100 %, otherwise an idle cluster
    # would appear busy.
    scale = {
        column["key"]: max(
            [100.0 if column["key"] == "cpu" else 0.0, *(float(row.get(column["key"]) or 0) for row in rows)]
        )
        for column in columns
        if column["unit"] == "bar"
    }
    headings = [column["title"] for column in columns]
    totals = [[_written(column, row, {}) for column in columns] for row in data["totals"]]
    bad = {place for place, row in enumerate(rows) if _is_bad(row)}
    found = table_page(data["title"], headings, rows, totals, bad, lambda chosen: _cells(columns, chosen, scale), most)
    if data["name"] == "clusters" and len(rows) == 1:
        # The totals of the servers already contain these values.
        found = Page(found.lines)
    if data["name"] == "health" and not bad:
        found = Page(found.lines, (f"{data['title']}: {data['totals'][0]['status']}",))
    if data["name"] == "meta" and not bad and not notes:
        leader = next((row["name"] for row in rows if row["leader"]), "no server")
        found = Page(found.lines, (f"{data['title']}: {leader} leads, all {len(rows)} are online and current",))
    return _notes_page(notes, found)


def _notes_page(notes: Sequence[str], above: Page) -> Page:
    return above + Page(tuple(notes), tuple(cut(note) for note in notes))


def _is_bad(row: Mapping[str, Any]) -> bool:
    """Return whether a row needs attention; a screen shows such rows before the others."""
    if False in (row.get("answers"), row.get("online"), row.get("current")):
        return True
    if "replicas" in row and (row["leader"] is None or "!" in row["replicas"]):
        return True
    return bool(row.get("lost") or row.get("error") or row.get("problem"))


def _cells(
    columns: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], scale: Mapping[str, float]
) -> list[list[Any]]:
    body: list[list[Any]] = []
    above: Mapping[str, Any] = {}
    for row in rows:
        cells = [_written(column, row, scale) for column in columns]
        if row.get("answers") is False:
            cells[1] = "NO ANSWER"
        for index, column in enumerate(columns):
            if not column["grouped"] or row.get(column["key"]) != above.get(column["key"]):
                break
            cells[index] = ""
        above = row
        body.append(cells)
    return body


def _written(column: Mapping[str, Any], row: Mapping[str, Any], scale: Mapping[str, float]) -> Any:
    value, unit = row.get(column["key"]), column["unit"]
    if unit == "bar":
        most = scale.get(column["key"], 0)
        return "█" * round(_BAR_WIDTH * float(value or 0) / most) if most else ""
    if column["key"] in ("name", "server") and row.get("meta_leader"):
        return f"{value}*"
    if isinstance(value, (str, bool)) or value is None:
        return value
    if unit == "bytes":
        return human_bytes(value)
    if unit == "seconds":
        return human_seconds(value)
    return f"{value:.0f}" if unit == "percent" else f"{value:,}" if isinstance(value, int) else str(value)
