# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits for failures and results shown on a screen, for all callers. Pure.

A list that grows with the cluster is a `Page`: all of its lines, and those that a screen shows. The action nats_show
prints the lines for the screen and writes all lines to a file.

From 2.19 on, ansible-core prints the message of a failed task twice (as an error with the location of the task, and in
the result), and the result format yaml gives each key at least one line, which uses 17 of 25 lines before the message.
Therefore, a failure is printed once, on separate lines, and its result is short (`plugin_utils.waiting`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

#: Maximum lines of a failure in addition to its first line, the message.
MAX_LINES = 8
#: Maximum number of lines of the message of an `ansible.builtin.fail` task, which is printed twice.
MAX_FAIL_LINES = 7
#: Maximum characters of a line.
MAX_WIDTH = 160
#: Maximum characters of the message: two lines in the result format yaml.
MAX_MESSAGE = 140

#: Rows of a table or a list that a screen shows.
MAX_ROWS = 10
#: Maximum lines of a result with several tables; each table shows fewer rows to stay within it.
MAX_SCREEN = 50
#: Maximum number of names in a line.
MAX_NAMES = 5

#: The keys that each failed task returns. `invocation` is left out, because it has a line for each option, which some
#: callbacks print.
_ALWAYS = frozenset(("changed", "deprecations", "diff", "exception", "failed", "failure", "msg", "warnings"))

#: Characters on which a terminal acts instead of showing them: controls, and marks that reverse or hide text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text in a form that is safe for a terminal. A stream may have any name, and a server may send any
    reply: control characters in such a text could move the cursor, or begin a line that resembles another message. Line
    breaks and tabs are kept."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(line: str, width: int = MAX_WIDTH) -> str:
    """Return the text as one printable line with at most this width."""
    flat = printable(" ".join(line.split()) if "\n" in line else line)
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def one_line(text: str) -> str:
    """Return the first two lines of a failure as one line: the refusal, and the first reason."""
    head, *rest = text.splitlines() or [""]
    reason = rest[0].strip().removeprefix("1. ").removeprefix("- ") if rest else ""
    space = " " if head.endswith((":", ".")) else "; "
    return cut(f"{head}{space}{reason}" if reason else head, MAX_MESSAGE)


def further_lines(text: str) -> list[str]:
    """Return the lines after a failure's first line, up to the limit of a screen."""
    lines = [cut(line) for line in text.splitlines()[1:]]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1} more lines; use -v to see all of them"]
    return lines


def listed(reasons: Sequence[str]) -> str:
    """Return the reasons of a refusal, one line for each, as many as fit below the first line of an
    `ansible.builtin.fail` task. No reason is cut, because it may end with the remedy."""
    if len(reasons) < MAX_FAIL_LINES:
        return printable("\n".join(reasons))
    shown = reasons[: MAX_FAIL_LINES - 2]
    return printable("\n".join([*shown, f"and {len(reasons) - len(shown)} more; use -v to see all of them"]))


def brief(result: Mapping[str, Any], kept: Iterable[str] = ()) -> dict[str, Any]:
    """Return a failed result with the common keys and the `kept` ones, without the values of `failure` that are
    unknown."""
    names = _ALWAYS.union(kept)
    short = {key: value for key, value in result.items() if key in names or key.startswith("_ansible_")}
    if isinstance(short.get("failure"), Mapping):
        short["failure"] = {key: value for key, value in short["failure"].items() if value is not None}
    return short


@dataclass(frozen=True)
class Page:
    """Lines for operators: all of them, and as many as fit on a screen."""

    lines: tuple[str, ...] = ()
    screen: tuple[str, ...] = ()

    def __add__(self, other: Page) -> Page:
        return Page(self.lines + other.lines, self.screen + other.screen)

    @property
    def text(self) -> str:
        """Return all lines as one text."""
        return "\n".join(self.lines)

    def as_dict(self) -> dict[str, list[str]]:
        """Return both kinds of lines for the result of a module."""
        return {"lines": list(self.lines), "screen": list(self.screen)}


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def page(*lines: str) -> Page:
    """Return a page of lines that a screen always shows completely."""
    return Page(lines, lines)


def shown_rows(count: int, worst: Collection[int] = (), most: int = MAX_ROWS) -> list[int]:
    """Return the positions of the rows that a screen shows: all if there are at most `most` + 1, otherwise `most` rows,
    the `worst` first."""
    if count <= most + 1:
        return list(range(count))
    return [*sorted(worst), *(place for place in range(count) if place not in worst)][:most]


def hidden_rest(count: int, shown: Sequence[int], worst: Collection[int] = (), what: str = "line") -> list[str]:
    """Return the line that follows rows if a screen does not show all of them; nothing if all are shown."""
    hidden = count - len(shown)
    bad = len(set(worst).difference(shown))
    return (
        [f"… and {_counted(hidden, f'more {what}')}{f', {bad:,} of them with problems' if bad else ''}"]
        if hidden
        else []
    )


def listing(rows: Sequence[str], worst: Collection[int] = (), what: str = "line", most: int = MAX_ROWS) -> Page:
    """Return a list. The screen shows the `worst` rows, given by their positions, and then the first ones."""
    shown = shown_rows(len(rows), worst, most)
    return Page(tuple(rows), (*(rows[place] for place in shown), *hidden_rest(len(rows), shown, worst, what)))


def flat(lines: Sequence[str]) -> Page:
    """Return lines without a structure. The screen shows all of them, or only the first."""
    return page(*lines) if len(lines) <= 2 * MAX_ROWS else listing(lines)


def blocks(
    found: Sequence[Sequence[str]], worst: Collection[int] = (), what: str = "stream", most: int = 2 * MAX_ROWS
) -> Page:
    """Return several lines for each item. The screen shows the `worst` items and then the first ones, as many as fit,
    and the total number."""
    lines = tuple(line for one in found for line in one)
    if len(lines) <= most:
        return page(*lines)
    shown: list[int] = []
    screen: list[str] = []
    for place in shown_rows(len(found), worst):
        if shown and len(screen) + len(found[place]) > most:
            break
        shown.append(place)
        screen += found[place]
    count = f"{_counted(len(found), what)}{f', {len(worst):,} of them with problems' if worst else ''}:"
    return Page(lines, (count, *screen, *hidden_rest(len(found), shown, worst, what)))


def paragraphs(pages: Sequence[Page]) -> Page:
    """Return the pages with an empty line between them."""
    found = Page()
    for one in pages:
        found += Page(("",) if found.lines and one.lines else (), ("",) if found.screen and one.screen else ()) + one
    return found


def fitting(make: Callable[[int], Page]) -> Page:
    """Return the page with the most rows per table (at most ten) that fits on a screen; if none fits, the page with ten
    rows.

    `make`: returns the page for a number of rows.
    """
    pages = [make(most) for most in (MAX_ROWS, MAX_ROWS // 2, 3)]
    return next((one for one in pages if len(one.screen) <= MAX_SCREEN), pages[0])


def first_items(pages: Sequence[Page], what: str) -> Page:
    """Return the lines of many items. The screen shows those of the first items."""
    shown = shown_rows(len(pages))
    screen = [line for place in shown for line in pages[place].screen]
    return Page(
        tuple(line for one in pages for line in one.lines), (*screen, *hidden_rest(len(pages), shown, what=what))
    )


def names_line(head: str, names: Sequence[str]) -> Page:
    """Return a line that ends with names; the screen shows only the first names. If there are no names, there is no
    line."""
    if not names:
        return Page()
    return Page((f"{head}{', '.join(names)}",), (f"{head}{some_names(names)}",))


def some_names(names: Sequence[str], most: int = MAX_NAMES, separator: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    if len(names) <= most + 1:
        return separator.join(names)
    return f"{separator.join(names[:most])} and {len(names) - most:,} more"


def problem_lines(failed: Sequence[Mapping[str, Any]], where: str = "") -> list[str]:
    """Return the problems of the first eight rows, and how many more there are. `failed`: rows with label and problem;
    `where`: the place where the rest can be found."""
    lines = [f"{row['label']}: {row['problem']}" for row in failed[:8]]
    return lines + ([f"and {len(failed) - 8} more{where}"] if len(failed) > 8 else [])


def counted_warnings(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return one warning for each distinct text instead of one for each stream that it concerns; of the distinct texts,
    as many as fit.

    `found`: name and text.
    """
    by_text: dict[str, list[str]] = {}
    for name, text in found:
        by_text.setdefault(text, []).append(name)
    warnings = [
        printable(f"{'stream' if len(names) == 1 else f'{len(names):,} streams'} {some_names(names)}: {text}")
        for text, names in by_text.items()
    ]
    if len(warnings) > MAX_ROWS + 1:
        warnings = [
            *warnings[:MAX_ROWS],
            f"{len(warnings) - MAX_ROWS:,} more warnings: -v shows the result with all of them",
        ]
    return warnings
