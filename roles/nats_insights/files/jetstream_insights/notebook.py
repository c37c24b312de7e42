# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Jupyter notebook about a lake: questions with their answers in code, and a cell for each table of gold and findings.

The format is version 4.5 of nbformat. The notebook has no outputs, and needs the package and a lake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetstream_insights.catalogue import DeclaredTable

#: The cell that opens the lake.
_OPEN = """\
from jetstream_insights.lake import Lake
from jetstream_insights.session import session

lake = Lake(session(), {uri!r})
days = lake.published_days("gold")[-7:]"""


@dataclass(frozen=True)
class Question:
    """A question about a lake, and the code that prints the answer with `lake` and `days`, its last seven days."""

    text: str
    code: str


QUESTIONS = (
    Question(
        "Which problems are open, and since when?",
        'lake.read_days("findings", "findings", days[-1:]).where("state = \'open\'").select(\n'
        '    "severity", "check", "since", "server", "account", "stream", "consumer", "text"\n'
        ').orderBy("severity", "check", "since").show(50, truncate=80)',
    ),
    Question(
        "How many bytes does one replica of each stream have, by day?",
        'lake.read_days("gold", "report_streams", days).groupBy("account", "stream").pivot("day").sum("bytes").orderBy(\n'
        '    "account", "stream"\n'
        ").show()",
    ),
    Question(
        "Which assets become full first? Days until the limit: late, expected and early.",
        'lake.read_days("gold", "capacity", days[-1:]).where("full_p50 IS NOT NULL").orderBy("full_p50").select(\n'
        '    "scope", "resource", "name", "used", "limit", "full_p90", "full_p50", "full_p10"\n'
        ").show()",
    ),
    Question(
        "When is a disk full, with the expected growth? Only snapshots of the playbook contain hosts.",
        'hosts = lake.read_days("silver", "hosts", days[-1:]).groupBy("fleet", "server").agg({"disk_free": "min"})\n'
        'growth = lake.read_days("gold", "capacity", days[-1:])\n'
        "growth = growth.where(\"scope = 'server' AND resource = 'file' AND slope > 0\")\n"
        'disks = growth.withColumnRenamed("name", "server").join(hosts, ["fleet", "server"])\n'
        'disks.selectExpr("server", "`min(disk_free)` / slope AS days_until_full").show()',
    ),
    Question(
        "Which servers lost leaders, and to which servers?",
        'lake.read_days("gold", "leader_changes", days).groupBy("old_leader", "new_leader").count().show()',
    ),
    Question(
        "Which servers restarted, and how long were they down?",
        'lake.read_days("gold", "restarts", days).select("server", "old_start", "start", "down", "version").show()',
    ),
    Question(
        "Which consumers are behind?",
        'lake.read_days("gold", "consumer_lag", days).orderBy("pending_max", ascending=False).select(\n'
        '    "day", "account", "stream", "consumer", "pending_max"\n'
        ").show()",
    ),
    Question(
        "What was changed?",
        'lake.read_days("gold", "changes", days).orderBy("taken").drop("day", "before").show(\n    50, truncate=40\n)',
    ),
)


def notebook(lake_uri: str, tables: Sequence[DeclaredTable]) -> dict[str, Any]:
    """Return the notebook of a lake as JSON values. `tables`: the tables of all layers; those of silver have no cell."""
    cells: list[dict[str, Any]] = [
        {"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for number, (kind, text) in enumerate(_cells(lake_uri, tables))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def _cells(lake_uri: str, tables: Sequence[DeclaredTable]) -> Iterator[tuple[str, str]]:
    """Yield the type and the text of each cell."""
    yield "markdown", "# NATS JetStream insights\n\nNull is unknown, never zero and never healthy."
    yield "code", _OPEN.format(uri=lake_uri)
    yield "markdown", "## Questions"
    for question in QUESTIONS:
        yield "markdown", question.text
        yield "code", question.code
    for layer in ("findings", "gold"):
        yield "markdown", f"## Tables of {layer}"
        for table in tables:
            if table.layer == layer:
                yield "markdown", _described(table)
                yield "code", f'lake.read_days("{layer}", "{table.name}", days[-1:]).show()'


def _described(table: DeclaredTable) -> str:
    """Return the description of a table and of its columns."""
    meanings = [f"- `{column.name}`: {column.meaning}" for column in table.columns if column.meaning]
    return "\n".join([f"### {table.name}", "", table.description, "", *meanings]).rstrip()
