# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as Markdown for tickets and chats, and its tables as CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jetstream_insights.collection import module_util
from jetstream_insights.report.shape import BY_NAME, Content, dicts, first_steps, step_title, verdict

#: Rows of a table in the Markdown summary.
_MOST = 20
#: The tables and columns of the summary.
_SUMMARY = {
    "fleets": ("fleet", "taken", "servers", "missing", "streams", "consumers", "messages", "bytes", "meta_leader"),
    "causes": ("severity", "new", "title", "impact", "since", "findings", "commands"),
    "findings": ("severity", "check", "text", "domain", "server", "account", "stream", "consumer"),
    "fixed": ("severity", "check", "text", "domain", "server", "account", "stream", "consumer", "since", "taken"),
    "muted": ("severity", "check", "text", "server", "account", "stream", "consumer", "reason", "until"),
    "unknown": ("text", "findings"),
    "incidents": (
        "incident",
        "domain",
        "kind",
        "account",
        "stream",
        "consumer",
        "server",
        "begin",
        "seconds",
        "continues",
        "causes",
    ),
    "leadership": ("domain", "kind", "account", "stream", "consumer", "leader", "leaders", "elections", "flap"),
    "storms": ("server", "begin", "end", "groups", "cause"),
    "restarts": ("server", "start", "down", "old_version", "version"),
    "capacity": (
        "domain",
        "scope",
        "name",
        "resource",
        "state",
        "used_ratio",
        "full_p10",
        "full_p50",
        "full_p90",
        "confidence",
    ),
    "balance": ("domain", "cluster", "scope", "measure", "max", "max_name", "mean", "distance"),
    "consumer_lag": ("domain", "account", "stream", "consumer", "state", "num_pending", "stuck_seconds"),
}
_BYTES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
_SECONDS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 0.001))
#: A command and its comment, which some interactive shells do not accept.
_COMMAND = re.compile(r"(.*?)(\s{2,}#\s.*)?", re.DOTALL)
#: Characters with a meaning in Markdown or HTML.
_MARKS = re.compile(r"([\\`*_{}\[\]<>|#~!&])")


def _scaled(value: float, steps: Iterable[tuple[str, float]]) -> str:
    found = list(steps)
    unit, factor = next(((unit, factor) for unit, factor in found if abs(value) >= factor), found[-1])
    return f"{value / factor:.3g} {unit}" if abs(value / factor) < 1000 else f"{value / factor:.0f} {unit}"


_SHOW: Mapping[str, Callable[[Any], str]] = {
    "list": lambda value: ", ".join(map(str, value)),
    "count": lambda value: f"{value:,.0f}",
    "number": lambda value: f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}",
    "amount": lambda value: f"{value:,.0f}",
    "bytes": lambda value: _scaled(value, _BYTES),
    "seconds": lambda value: _scaled(value, _SECONDS),
    "percent": lambda value: f"{100 * value:.1f} %",
    "flag": lambda value: "yes" if value else "no",
}


def show(value: Any, kind: str) -> str:
    """Return a value in readable form."""
    return "–" if value is None or value in ("", []) else _SHOW.get(kind, str)(value)


def quoted(text: str) -> str:
    """Return text that Markdown shows unchanged, in a cell of a table."""
    return _MARKS.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return text as a code span of Markdown, which shows it unchanged."""
    line = re.sub(r"[\r\n]+", " ", text)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if "`" in (line[:1], line[-1:]) else ""
    return f"{fence}{space}{line}{space}{fence}"


def _remedy(text: str, shell: bool, cell: bool = False) -> str:
    """Return a remedy. A command of the `shell` is code that can be copied, without its comment. In the cell of a table, a
    vertical bar needs a backslash even in code."""
    found = _COMMAND.fullmatch(text) if shell else None
    if not found:
        return quoted(text)
    span = code(found[1]).replace("|", "\\|") if cell else code(found[1])
    return f"{span} {quoted(found[2])}" if found[2] else span


def markdown(content: Content) -> str:
    """Return the summary: the problems, and the first rows of the most important tables."""
    return "\n".join(_lines(content)).rstrip() + "\n"


def _lines(content: Content) -> Iterator[str]:
    said, counted = verdict(content), module_util("units").counted
    reasons = sum(1 for _row in dicts(content, "unknown"))
    yield f"# {quoted(content['title'])}"
    yield ""
    yield f"{content['day']}, made {content['generated']}."
    yield ""
    yield (
        f"**Root causes: {said['critical']} critical, {said['warning']} warning, {said['info']} info, for "
        f"{counted(said['findings'], 'finding')}. {counted(said['unknown'], 'unknown result')} for {counted(reasons, 'reason')}. "
        f"{counted(said['fixed'], 'fixed finding')}.**"
    )
    steps = first_steps(content)
    if steps:
        yield from ("", "## Do now", "")
    for number, step in enumerate(steps, 1):
        yield f"{number}. {quoted(step_title(content, step))}"
        if step["impact"]:
            yield f"   {quoted(step['impact'])}"
        yield from (f"   - {_remedy(command, step['shell'])}" for command in step["commands"])
    for note in content["notes"]:
        yield from ("", quoted(note))
    for name, wanted in _SUMMARY.items():
        table = content["tables"].get(name)
        if not table or not table["rows"]:
            continue
        columns = [(index, title, kind) for index, (key, title, kind) in enumerate(table["columns"]) if key in wanted]
        yield from ("", f"## {table['title']}", "", "| " + " | ".join(title for _index, title, _kind in columns) + " |")
        yield "|" + " --- |" * len(columns)
        at = {key: index for index, (key, _title, _kind) in enumerate(table["columns"])}
        for row in table["rows"][:_MOST]:
            cells = (
                (" " if row[at["shell"]] else "; ").join(_remedy(text, row[at["shell"]], True) for text in row[index])
                if index == at.get("commands")
                else quoted(show(row[index], kind))
                for index, _title, kind in columns
            )
            yield f"| {' | '.join(cells)} |"
        if table["total"] > _MOST:
            yield from ("", f"… and {table['total'] - _MOST:,} more.")


def csv_text(table: Mapping[str, Any]) -> str:
    """Return a table as CSV with raw values. Text that a spreadsheet would treat as a formula begins with an apostrophe."""
    written = io.StringIO()
    out = csv.writer(written, lineterminator="\n")
    names = [name for name, _title, _kind in table["columns"]]
    out.writerow(names)
    for row in table["rows"]:
        # A line for each command.
        out.writerow([_plain(value, "\n" if name == "commands" else "; ") for name, value in zip(names, row)])
    return written.getvalue()


def _plain(value: Any, between: str = "; ") -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = between.join(map(str, value))
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def csv_files(content: Content) -> dict[str, str]:
    """Return the tables as CSV by the names of their files."""
    return {f"{name}.csv": csv_text(table) for name, table in content["tables"].items() if name in BY_NAME}
