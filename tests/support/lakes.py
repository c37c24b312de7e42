# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lakes for tests: runs jobs on only a few tables, and reads rows without Spark.

Spark needs half a second of CPU time to plan or read a table, however few rows it has.
"""

from __future__ import annotations

import fcntl
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest
from jetstream_insights import silver
from jetstream_insights.cli import DONE, main
from jetstream_insights.gold import FACTS, TABLES, made_before
from jetstream_insights.gold_job import TablesRequest
from jetstream_insights.lake import place
from support.fleet import START, Fleet
from support.truth import planted

T = TypeVar("T")

#: A lake that commit be24713d of 27 November 2026 wrote with support/fleet.py: three servers with four streams at 00:00, 00:10
#: and 01:00, and the tables of its jobs silver, gold and findings.
OLDER = Path(__file__).parent / "lake_2026-11-27.tar.xz"
#: The present version continues it at 02:00.
FLEET, LAST, SYNTHETIC = Fleet(3, 4), 7200.0, "synthetic"
#: Further fleets of the golden lake, from 06:00 to 08:20, whose true state is completely known.
PLANTED = planted(servers=20, snapshots=15)
HOURS = [START + timedelta(hours=hour) for hour in (0, 1, 2, 6, 7, 8)]
DAY = START.date()
SPAN = ("--from", f"{START:%Y-%m-%dT%H}", "--to", f"{START:%Y-%m-%d}T09")
JOBS = ("silver", "gold", "findings", "report")


@dataclass(frozen=True)
class Golden:
    """A lake with all tables of the continued older lake and of the fleets with planted faults, made at once on one core,
    the output of the jobs, and the journal of operations that they read. Tests that write use copies of it."""

    path: Path
    printed: str
    journal: Path


def write_continued(lake: Path, tables: bool = False) -> None:
    """Write the snapshots of the older lake and one of the present version. `tables`: whether to add the tables that the
    older version made of its snapshots."""
    with tarfile.open(OLDER) as archive:
        wanted = [member for member in archive if tables or member.name.startswith("./bronze/")]
        archive.extractall(lake, wanted, filter="data")
    FLEET.write(lake, LAST)


def shared_golden(folder: Path) -> Golden:
    """Return the golden lake of all processes that run tests. The first process that needs it makes it, with the commands of
    the command line and in the session of its tests."""
    golden, printed, journal = folder / "golden", folder / "golden.txt", folder / "golden.jsonl"
    with (folder / "golden.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            output = io.StringIO()
            write_continued(golden / "lake")
            PLANTED.write(golden / "lake")
            journal.write_text("".join(f"{line}\n" for line in PLANTED.journal()))
            options = (*SPAN, "--journal", str(journal), "--output", str(golden / "report"))
            with redirect_stdout(output):
                assert main([*JOBS, "--lake", str(golden / "lake"), *options]) == DONE
            printed.write_text(output.getvalue())
    return Golden(golden / "lake", printed.read_text(), journal)


def _closure(names: Iterable[str], needs: Mapping[str, Iterable[str]]) -> set[str]:
    """Return these table names and those of all tables on which they depend."""
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs[name]
    return found


def _only(tables: Mapping[str, T], names: set[str]) -> dict[str, T]:
    """Return the tables with these names, in their original order."""
    return {name: table for name, table in tables.items() if name in names}


def few_silver_tables(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the silver job write only these tables and those from which they are computed."""
    needs = {name: table.silver for name, table in silver.TABLES.items()}
    patch.setattr(silver, "TABLES", _only(silver.TABLES, _closure(names, needs)))


def few_gold_tables(*names: str) -> TablesRequest:
    """Return these gold tables with those from which they are computed, and the hourly aggregates that these need."""
    tables = _only(TABLES, _closure(names, {name: made_before(table) for name, table in TABLES.items()}))
    sources = [source.partition(".") for table in tables.values() for source in table.of]
    return TablesRequest(tables, _only(FACTS, {name for layer, _dot, name in sources if layer in ("hours", "before")}))


def published_files(lake: Path, layer: str, when: date) -> dict[str, list[Path]]:
    """Return the Parquet files of each table that a layer publishes for a day, or for an hour of silver that has not
    been compacted."""
    run = json.loads((lake / layer / "_published" / f"{place(when)}.json").read_text())["run"]
    folders = {table.name: table / f"run={run}" / place(when) for table in (lake / layer).glob("[!_]*")}
    return {name: sorted(folder.rglob("*.parquet")) for name, folder in folders.items() if folder.is_dir()}


def published_rows(lake: Path, layer: str, when: date) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each published table. Times have a time zone, and a map is a list of pairs."""
    return {table: file_rows(files) for table, files in published_files(lake, layer, when).items()}


def file_rows(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the rows of Parquet files."""
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def comparable(value: Any) -> Any:
    """Return a row's value in a form that can be sorted, without the last digits, which depend on the order of a sum."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return [comparable(item) for item in value.values()]
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    return str(value)
