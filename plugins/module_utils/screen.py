# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of a failure fits on a screen, whatever prints it. Pure.

From 2.19 on ansible-core prints the message of a failed task twice (as an error with the task's place, and in the result), and
the result format yaml gives each key a line or more, so that 17 of 25 lines are gone before anything is said. Therefore a
failure says everything in lines of its own, once, and its result is short (`plugin_utils.waiting`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: How many lines a failure may say beside its first one, which is the message.
MAX_LINES = 8
#: How many lines the message of a task `ansible.builtin.fail` may have in all, which is printed twice.
MAX_FAIL_LINES = 7
#: Characters of a line.
MAX_WIDTH = 160
#: Characters of the message: two lines in the result format yaml.
MAX_MESSAGE = 140

#: What each failed task returns. Not `invocation`, with a line for each option, which some callbacks print.
_ALWAYS = frozenset(("changed", "deprecations", "diff", "exception", "failed", "failure", "msg", "warnings"))

#: Characters that a terminal acts on instead of showing them: controls, and marks that reverse or hide text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text as a terminal can show it. A stream may have any name, and a server may answer anything: a control
    character in them would move the cursor, or begin a line that looks like another message. Line breaks and tabs stay."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(line: str, width: int = MAX_WIDTH) -> str:
    """Return the text as one printable line that is not longer."""
    flat = printable(" ".join(line.split()) if "\n" in line else line)
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def one_line(text: str) -> str:
    """Return the first two lines of a failure as one: what was refused, and the first reason."""
    head, *rest = text.splitlines() or [""]
    reason = rest[0].strip().removeprefix("1. ").removeprefix("- ") if rest else ""
    space = " " if head.endswith((":", ".")) else "; "
    return cut(f"{head}{space}{reason}" if reason else head, MAX_MESSAGE)


def further_lines(text: str) -> list[str]:
    """Return what a failure says after its first line, as much of it as fits."""
    lines = [cut(line) for line in text.splitlines()[1:]]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1} more lines, with -v all of them"]
    return lines


def listed(reasons: Sequence[str]) -> str:
    """Return the reasons of a refusal, a line for each, as many as a task `ansible.builtin.fail` may say beside its first line.
    None is cut, since it may end with what to do."""
    if len(reasons) < MAX_FAIL_LINES:
        return "\n".join(reasons)
    shown = reasons[: MAX_FAIL_LINES - 2]
    return "\n".join([*shown, f"and {len(reasons) - len(shown)} more, with -v all of them"])


def brief(result: Mapping[str, Any], kept: Iterable[str] = ()) -> dict[str, Any]:
    """Return a failed result with what every failed task returns and what is `kept`, without what is not known of `failure`."""
    names = _ALWAYS.union(kept)
    short = {key: value for key, value in result.items() if key in names or key.startswith("_ansible_")}
    if isinstance(short.get("failure"), Mapping):
        short["failure"] = {key: value for key, value in short["failure"].items() if value is not None}
    return short
