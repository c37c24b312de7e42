# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Framed tables. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Callable, TypeVar

from .screen import MAX_ROWS, Page, hidden_rest, shown_rows

Item = TypeVar("Item")


def _as_they_are(rows: Sequence[Any]) -> Sequence[Sequence[Any]]:
    return rows


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], totals: Sequence[Sequence[Any]] = ()
) -> str:
    """Return a framed table under a centred title. Columns that contain only numbers or sizes are aligned to the right.

    `totals`: the last rows, below a line; empty for none.
    """
    body = [[_cell(value) for value in row] for row in rows]
    foot = [[_cell(value) for value in row] for row in totals]
    widths = [max(len(line[index]) for line in [list(columns), *body, *foot]) for index in range(len(columns))]
    # If the title is wider than the columns, the last column is widened.
    widths[-1] += max(0, len(title) - (sum(widths) + 3 * (len(widths) - 1)))
    right = [all(_numeric(row[index]) for row in rows) and bool(rows) for index in range(len(columns))]

    def rule(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(cells, widths, right)
        )
        return "│ " + " │ ".join(aligned) + " │"

    inner = sum(widths) + 3 * (len(widths) - 1)
    lines = [
        rule("╭", "─", "╮"),
        "│ " + title.center(inner) + " │",
        rule("├", "┬", "┤"),
        line(columns),
        rule("├", "┼", "┤"),
    ]
    lines += [line(cells) for cells in body]
    if foot:
        lines += [rule("├", "┼", "┤"), *(line(cells) for cells in foot)]
    return "\n".join([*lines, rule("╰", "┴", "╯")])


def table_page(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Item],
    totals: Sequence[Sequence[Any]] = (),
    worst: Collection[int] = (),
    cells: Callable[[Sequence[Item]], Sequence[Sequence[Any]]] = _as_they_are,
    most: int = MAX_ROWS,
) -> Page:
    """Return a table. A screen shows the `worst` rows, given by their positions, then the first rows, and the totals.

    `cells`: formats the rows that are shown.
    """
    whole = tuple(table(title, columns, cells(rows), totals).splitlines())
    shown = shown_rows(len(rows), worst, most)
    if len(shown) == len(rows):
        return Page(whole, whole)
    brief = table(title, columns, cells([rows[place] for place in shown]), totals).splitlines()
    return Page(whole, (*brief, *hidden_rest(len(rows), shown, worst, "row")))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _numeric(value: Any) -> bool:
    text = _cell(value)
    return not isinstance(value, bool) and (text == "" or (text[0].isdigit() and text.count(".") <= 1))
