# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that publishes tables for other engines: it adds to each table a Delta Lake log that lists its published files.

The job copies no files and changes no data. A Delta reader (DuckDB, Polars, pandas, Trino, Databricks, …) opens
`silver/streams` or `gold/capacity` and gets the rows of the published runs, with `date` as the partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructField, StructType, VariantType

from jetstream_insights.catalogue import PARTITION, declared_tables
from jetstream_insights.compaction import used_days, used_hours
from jetstream_insights.files import LakeError, store_uri
from jetstream_insights.lake import APART, COLUMNS, Lake, columns
from jetstream_insights.silver_job import Say


@dataclass
class Described:
    """The result: the number of changed logs, the files that they list, and the days that were left unchanged."""

    changed: int = 0
    files: int = 0
    left: list[str] = field(default_factory=list)


def describe(lake: Lake, say: Say) -> Described:
    """Bring the log of each table up to date with the published files. Raises LakeError without the package deltalake, or if
    deltalake cannot write to the lake."""
    try:
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise LakeError("the job delta needs a package: pip install deltalake") from error
    done = Described()
    for layer, tables, published in _published(lake):
        days = _by_day(published)
        mixed = {day for day, folders in days.items() if len(folders) > 1 and any("/hour=" not in f for f in folders)}
        for table in tables:
            try:
                _update_log(lake, f"{layer}/{table}", columns(layer, table), days, mixed, done)
            except (DeltaError, OSError) as error:
                raise LakeError(f"{lake.uri}/{layer}/{table}: {error}") from error
        done.left += [f"{layer} {day}" for day in sorted(mixed)]
    if done.left:
        say(f"Left unchanged until the job maintain has joined their hours again: {', '.join(done.left)}")
    return done


def _published(lake: Lake) -> Iterator[tuple[str, list[str], set[str]]]:
    """Yield layers with the tables that are published together, and the folders of the published runs."""
    yield "silver", lake.silver_tables(), used_hours(lake, "silver")
    for table in APART:
        yield "silver", [table], used_hours(lake, f"silver/{table}")
    for layer in ("gold", "findings"):
        yield layer, [name for name in lake.files.names(layer) if not name.startswith("_")], used_days(lake, layer)


def _by_day(folders: set[str]) -> dict[str, set[str]]:
    """Return the folders `run=…/date=…` and `run=…/date=…/hour=…`, grouped by date."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        found.setdefault(folder.split("/")[1].removeprefix("date="), set()).add(folder)
    return found


def _update_log(
    lake: Lake, name: str, read: StructType, days: dict[str, set[str]], mixed: set[str], done: Described
) -> None:
    """Update a table's log to list the files in these folders. On a mixed day, part of the data was replaced after its hours
    were joined, so its files have both old and new rows: the log keeps its present entries for that day."""
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

    uri = store_uri(f"{lake.uri}/{name}")
    declared = next(table for table in declared_tables() if f"{table.layer}/{table.name}" == name)
    comments = {column.name: column.meaning for column in declared.columns}
    schema = Schema.from_json(StructType([_commented(one, comments) for one in _plain(read)]).json())
    log = DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None
    before = {} if log is None else _named(log)
    wanted = {folder for day, folders in days.items() if day not in mixed for folder in folders}
    files = {path: size for path, size in before.items() if _folder(path) in wanted or _date(path) in mixed}
    for folder in sorted(wanted.difference(map(_folder, before))):
        for file in lake.files.names(f"{name}/{folder}"):
            if file.endswith(COLUMNS):
                files[f"{folder}/{file}"] = lake.files.size(f"{name}/{folder}/{file}")[1]
    now = int(time.time() * 1000)

    def add(path: str) -> AddAction:
        return AddAction(path, files[path], {PARTITION.name: _date(path)}, now, True, "{}")

    done.files += len(files)
    if log is not None and log.schema() == schema:
        actions: list[AddAction | RemoveAction] = [add(path) for path in files if path not in before]
        actions += [
            RemoveAction(path, True, now, size, {PARTITION.name: _date(path)})
            for path, size in before.items()
            if path not in files
        ]
        if actions:
            log.create_write_transaction(actions, "append", schema, [PARTITION.name])
            done.changed += 1
    elif files or log is not None:
        present = [add(path) for path in files]
        create_table_with_add_actions(
            uri, schema, present, "overwrite", [PARTITION.name], description=declared.description
        )
        done.changed += 1


def _named(log: Any) -> dict[str, int]:
    """Return the files in a log, with their sizes."""
    actions = log.get_add_actions()
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _date(path: str) -> str:
    return path.split("/")[1].removeprefix("date=")


def _plain(read: StructType) -> list[StructField]:
    """Return the columns with types that Delta readers support, and the partition; VARIANT exists only in Spark."""

    def has_variant(kind: DataType) -> bool:
        if isinstance(kind, StructType):
            return any(has_variant(one.dataType) for one in kind)
        if isinstance(kind, ArrayType):
            return has_variant(kind.elementType)
        return isinstance(kind, VariantType) or (isinstance(kind, MapType) and has_variant(kind.valueType))

    return [*(one for one in read if not has_variant(one.dataType)), StructField(PARTITION.name, DateType())]


def _commented(one: StructField, comments: Mapping[str, str]) -> StructField:
    """Return the column with its meaning as the comment that engines show."""
    comment = comments.get(one.name)
    return StructField(one.name, one.dataType, one.nullable, {"comment": comment} if comment else None)
