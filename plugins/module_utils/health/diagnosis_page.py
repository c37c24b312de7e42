# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The diagnosis as text for the screen. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..screen import MAX_ROWS, Page, blocks, fitting, hidden_rest, listing, page, paragraphs
from ..table import table, table_page
from ..units import human_bytes, human_seconds
from .diagnosis import FOUND, SKIPPED
from .log_kinds import log_text
from .verdict import NOTE, OK

#: Number of kinds of log lines per server in the complete diagnosis, and on a screen.
_LINES_SHOWN = 10
_LINES_ON_SCREEN = 3


def diagnosis_page(data: Mapping[str, Any]) -> Page:
    """Return one page: causes with evidence and commands, findings, checks, servers, log lines, next steps, the verdict last."""
    return fitting(lambda most: _diagnosis_page(data, most))


def _diagnosis_page(data: Mapping[str, Any], most: int) -> Page:
    parts = []
    if data["causes"]:
        causes = [_cause_lines(number, cause) for number, cause in enumerate(data["causes"], 1)]
        parts.append(page("Root causes:") + blocks(causes, what="cause", most=2 * most))
    if data["findings"]:
        found = [f"  {one['severity']}: {one['message']}" for one in data["findings"]]
        parts.append(page("Findings:") + listing(found, what="finding", most=most))
    parts.append(_checks_page(data["checks"], brief=most < MAX_ROWS))
    if data["servers"]:
        parts.append(_servers_page(data["servers"], most))
    logs = {name: kinds for name, kinds in data["logs"].items() if kinds}
    if logs:
        parts.append(_logs_page(logs, most))
    steps = list(dict.fromkeys(one["next"] for one in data["findings"] if one["next"] and one["severity"] != NOTE))
    if steps:
        parts.append(page("Next steps for the findings:") + listing([f"  - {step}" for step in steps], most=most))
    return paragraphs([*parts, page(data["verdict"]["text"])])


def _checks_page(checks: Sequence[Mapping[str, Any]], brief: bool) -> Page:
    """Return the checks as a table; `brief`: for a screen, which lists checks without findings by name only."""
    marks = {OK: "ok", FOUND: "FOUND", SKIPPED: "skipped"}

    def written(chosen: Sequence[Mapping[str, Any]]) -> list[str]:
        cells = [(check["check"], marks[check["status"]], check["summary"]) for check in chosen]
        return table("Checks", ("Check", "Result", "Summary"), cells).splitlines()

    every = tuple(written(checks))
    if not brief:
        return page(*every)
    # The date is of interest before it is a finding.
    fine = [
        f"certificates ({check['summary']})" if check["check"] == "certificates" else check["check"]
        for check in checks
        if check["status"] == OK
    ]
    return Page(every, (*written([check for check in checks if check["status"] != OK]), f"ok: {', '.join(fine)}"))


def _logs_page(logs: Mapping[str, Sequence[Mapping[str, Any]]], most: int) -> Page:
    def lines(shown: int) -> list[list[str]]:
        return [
            [
                f"Warnings and errors of {name} since its last start:",
                *(f"  {log_text(kind)}" for kind in kinds[:shown]),
                *hidden_rest(len(kinds), range(min(shown, len(kinds))), what="kind"),
            ]
            for name, kinds in logs.items()
        ]

    return Page(
        paragraphs([page(*one) for one in lines(_LINES_SHOWN)]).lines,
        blocks(lines(_LINES_ON_SCREEN), what="server", most=2 * most).screen,
    )


def _cause_lines(number: int, cause: Mapping[str, Any]) -> list[str]:
    """Return a cause as lines for operators: severity, title, age, evidence, commands."""
    age = "" if cause["age"] is None else f" (for {human_seconds(cause['age'])})"
    return [
        f"  {number}. {cause['severity']}: {cause['title']}{age}",
        *(f"       {line}" for line in cause["evidence"] if line != cause["title"]),
        *(f"     $ {command}" for command in cause["commands"]),
    ]


def _servers_page(servers: Sequence[Mapping[str, Any]], most: int) -> Page:
    columns = ("Name", "Cluster", "Version", "Uptime", "RTT", "Clock", "CPU %", "Mem", "Conns", "Slow", "Health")
    rows = [
        (
            one["name"],
            one["cluster"],
            one["version"],
            human_seconds(one["uptime"]),
            human_seconds(one["rtt"]),
            f"{one['clock_offset'] * 1000:+.0f}ms",
            f"{one['cpu']:.0f}",
            human_bytes(one["mem"]),
            one["connections"],
            one["slow_consumers"],
            one["health"],
        )
        for one in servers
    ]
    worst = {place for place, one in enumerate(servers) if one["health"] != "ok"}
    return table_page("Servers", columns, rows, worst=worst, most=most)
