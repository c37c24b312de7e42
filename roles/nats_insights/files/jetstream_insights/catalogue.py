# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that describes the lake's tables to other tools.

It writes four files from the declarations of the tables: `catalogue.sql` registers the Delta tables in a metastore,
`sources.yml` makes them sources of dbt, `contract.odcs.yaml` is a data contract (Open Data Contract Standard 3), and
`insights.ipynb` is a notebook. The job `delta` writes the tables' logs, with the same descriptions; a table without a log, such
as one without rows, is not registered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from jetstream_insights import silver
from jetstream_insights.findings import lifetime
from jetstream_insights.gold import TABLES
from jetstream_insights.gold.tables import Col
from jetstream_insights.notebook import notebook

if TYPE_CHECKING:  # The documentation is generated without the libraries of the lake.
    from jetstream_insights.lake import Lake

#: Prefix of the schemas of the layers.
SCHEMA = "nats_insights"
#: The column by which all tables are partitioned.
PARTITION = Col("date", "date", "the day in UTC, the partition")

#: Columns of silver and findings that have the same meaning in every table.
_MEANINGS = {
    "fleet": "the fleet",
    "snapshot": "name of the snapshot",
    "taken": "start of the snapshot, by the collector's clock",
    "received": "time of the server's reply, by the collector's clock",
    "domain": "JetStream domain; empty for none",
    "server_id": "id of the server's process, which changes at each start",
    "account": "the account; its public key in operator mode",
}
#: The rows of the silver tables that are not made from a single bronze table.
_ROWS = {
    "snapshots": "snapshot",
    "failures": "missing answer",
    "quarantine": "unreadable file or line",
    "advisories": "captured advisory",
}
_LOGICAL_TYPES = {
    **dict.fromkeys(("int", "bigint"), "integer"),
    **dict.fromkeys(("double", "float"), "number"),
    **dict.fromkeys(("map", "struct"), "object"),
    **{name: name for name in ("string", "boolean", "date", "timestamp", "array")},
}


@dataclass(frozen=True)
class DeclaredTable:
    """A table of a layer with its description and all columns that other engines can read: VARIANT exists only in Spark."""

    layer: str
    name: str
    description: str
    columns: tuple[Col, ...]


@cache
def declared_tables() -> tuple[DeclaredTable, ...]:
    """Return the tables of silver, gold and findings."""
    silver_rows = _ROWS | {name: table.row for name, table in silver.TABLES.items()}
    return (
        *(
            _table("silver", name, f"A row for each {silver_rows[name]}.", _columns(text))
            for name, text in silver.COLUMNS.items()
        ),
        *(_table("gold", name, f"A row for each {one.row}.", one.columns) for name, one in TABLES.items()),
        *(_table("findings", name, lifetime.ROWS[name], _columns(text)) for name, text in lifetime.COLUMNS.items()),
    )


def write_catalogue(lake: Lake, folder: Path) -> dict[str, Any]:
    """Write the files about a lake, and return the numbers of declared and registered tables and of columns. Raises OSError and
    LakeError."""
    tables, lake_uri = declared_tables(), lake.uri
    logged = [table for table in tables if lake.files.exists(f"{table.layer}/{table.name}/_delta_log")]
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "catalogue.sql": "\n".join(_statements(lake_uri, logged)),
        "sources.yml": yaml.safe_dump(_dbt_sources(tables), sort_keys=False, width=120),
        "contract.odcs.yaml": yaml.safe_dump(_contract(lake_uri, tables), sort_keys=False, width=120),
        "insights.ipynb": json.dumps(notebook(lake_uri, tables), indent=1),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {
        "folder": str(folder),
        "tables": len(tables),
        "registered": len(logged),
        "columns": sum(len(table.columns) for table in tables),
    }


def split_columns(schema: str) -> list[tuple[str, str]]:
    """Return the names and types of the columns of a Spark SQL schema."""
    found, depth = [""], 0
    for character in schema:
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    parts = (column.strip().partition(" ") for column in found)
    return [(name, kind) for name, _space, kind in parts]


def _table(layer: str, name: str, description: str, columns: Sequence[Col]) -> DeclaredTable:
    readable = tuple(column for column in columns if "variant" not in column.type)
    return DeclaredTable(layer, name, description.replace("`", ""), (*readable, PARTITION))


def _columns(schema: str) -> list[Col]:
    return [Col(name, kind, _MEANINGS.get(name, "")) for name, kind in split_columns(schema)]


def _statements(lake_uri: str, tables: Sequence[DeclaredTable]) -> Iterator[str]:
    """Yield SQL for Spark with Delta Lake. Schemas and descriptions are in the logs of the tables."""
    for layer in dict.fromkeys(table.layer for table in tables):
        yield f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}_{layer};"
    for table in tables:
        location = _literal(f"{lake_uri.rstrip('/')}/{table.layer}/{table.name}")
        yield f"CREATE TABLE IF NOT EXISTS {SCHEMA}_{table.layer}.{table.name} USING DELTA LOCATION {location};"
    yield ""


def _literal(text: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"


def _dbt_sources(tables: Sequence[DeclaredTable]) -> dict[str, Any]:
    """Return sources of dbt: one for each layer."""
    layers = dict.fromkeys(table.layer for table in tables)
    return {
        "version": 2,
        "sources": [
            {
                "name": f"{SCHEMA}_{layer}",
                "schema": f"{SCHEMA}_{layer}",
                "tables": [
                    {
                        "name": table.name,
                        "description": table.description,
                        "columns": [
                            _filled(name=column.name, data_type=column.type, description=_plain(column.meaning))
                            for column in table.columns
                        ],
                    }
                    for table in tables
                    if table.layer == layer
                ],
            }
            for layer in layers
        ],
    }


def _contract(lake_uri: str, tables: Sequence[DeclaredTable]) -> dict[str, Any]:
    """Return a data contract."""
    return {
        "kind": "DataContract",
        "apiVersion": "v3.0.2",
        "id": "nats-insights",
        "name": "NATS JetStream fleet insights",
        "version": "1",
        "status": "active",
        "servers": [{"server": "lake", "type": "custom", "location": lake_uri, "format": "delta"}],
        "schema": [
            {
                "name": f"{table.layer}_{table.name}",
                "physicalName": f"{table.layer}/{table.name}",
                "physicalType": "table",
                "logicalType": "object",
                "description": table.description,
                "properties": [
                    _filled(
                        name=column.name,
                        logicalType=_LOGICAL_TYPES[re.split(r"\W", column.type)[0]],
                        physicalType=column.type,
                        description=_plain(column.meaning),
                        partitioned=True if column == PARTITION else None,
                    )
                    for column in table.columns
                ],
            }
            for table in tables
        ],
    }


def _filled(**members: Any) -> dict[str, Any]:
    """Return the members with a value."""
    return {name: value for name, value in members.items() if value}


def _plain(meaning: str) -> str:
    return meaning.replace("`", "")
