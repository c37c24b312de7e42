# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all tables, docs/reference/insights_tables.md, generated from their declarations. It starts no Spark session."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence

from jetstream_insights import silver
from jetstream_insights.catalogue import split_columns
from jetstream_insights.findings import lifetime
from jetstream_insights.gold import THEMES
from jetstream_insights.gold.tables import GoldTable

_FINDINGS = """
## Findings

To list the present problems, filter `state = 'open'`. Root causes are not a table: the job `report` derives them
from these findings, and writes them to `causes.csv` and `report.json`."""
_HEAD = """# Tables of the fleet insights

How to read them is in [Fleet insights](../insights.md#read).

## Silver

Each row has `fleet`, `snapshot` and `taken` (start of the snapshot), and, if a server reported it, `server_id`, `server`,
`cluster`, `version`, `received` and the JetStream `domain` (empty for none). The job `silver` also writes `snapshots`, `failures`
(missing answers) and `quarantine` (unreadable files and lines), and the job `advisories` a table of that name.
"""


def page() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _table(
        ("table", "a row for each", "further key", "made from"),
        [(f"`{name}`", one.row, one.key, ", ".join(one.bronze + one.silver)) for name, one in silver.TABLES.items()],
    )
    yield from ("", "### Kinds of events", "", "`server_events.kind`, by the text of the line; null for any other:", "")
    yield from _table(("kind", "regular expression"), [(kind, f"`{text}`") for kind, text in silver.EVENTS.items()])
    yield from ("", "### Columns")
    for name, schema in silver.COLUMNS.items():
        yield from _columns(name, schema)
    yield from ("", "## Gold", "", "Each row has `fleet` and `day`. Null is unknown, which is not zero.")
    for theme, tables in THEMES.items():
        explained = inspect.getdoc(sys.modules[tables[0].make.__module__])
        assert explained is not None
        yield from ("", f"### {theme}", "", explained)
        for table in tables:
            yield from _gold(table)
    yield from (_FINDINGS, "", "### Tables")
    for name, schema in lifetime.COLUMNS.items():
        yield from _columns(name, schema, lifetime.ROWS[name])


def _columns(name: str, schema: str, *text: str) -> Iterator[str]:
    yield from ("", f"#### `{name}`", "", *(part for one in text for part in (one, "")))
    yield from _table(("column", "type"), [(column, f"`{kind}`") for column, kind in split_columns(schema)])


def _gold(table: GoldTable) -> Iterator[str]:
    yield from ("", f"#### `{table.name}`", "", f"A row for each {table.row}.", "")
    columns = [(column.name, f"`{column.type}`", column.meaning) for column in table.columns]
    yield from _table(("column", "type", "meaning"), columns)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
