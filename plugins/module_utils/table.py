# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Framed tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], totals: Sequence[Sequence[Any]] = ()
) -> str:
    """Return a framed table under a centred title. Columns whose cells are all numbers or sizes stand on the right.

    `totals`: the last rows, below a line; empty for none
    """
    body = [[_cell(value) for value in row] for row in rows]
    foot = [[_cell(value) for value in row] for row in totals]
    widths = [max(len(line[index]) for line in [list(columns), *body, *foot]) for index in range(len(columns))]
    # A title that is wider than its columns widens the last of them.
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


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _numeric(value: Any) -> bool:
    text = _cell(value)
    return not isinstance(value, bool) and (text == "" or (text[0].isdigit() and text.count(".") <= 1))
