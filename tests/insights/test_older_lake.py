# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lake that an earlier version wrote is read, or refused with the command that rebuilds its tables."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.cli import DONE, FAILED, main
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.registry import CheckSettings
from jetstream_insights.findings_job import make_findings
from jetstream_insights.gold_job import make_gold
from jetstream_insights.lake import SILVER_FORMAT, Lake
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.lakes import (
    DAY,
    HOURS,
    SPAN,
    SYNTHETIC,
    Golden,
    comparable,
    few_gold_tables,
    few_silver_tables,
    published_rows,
    write_continued,
)


def quiet(_text: str) -> None:
    """Discard the message."""


#: Columns that the earlier version did not write. Apart from their readers, all later tables are functions of equal rows.
LATER = {"accounts": {"account_name"}, "snapshots": {"sequence"}}
#: The readers of these columns: gold tables, and the views of checks.
READING_GOLD = ("states", "changes")
READING_VIEWS = {"stream_periods", "consumer_periods"}


def shared_rows(lake: Path, layer: str, when: date) -> dict[str, list[dict[str, Any]]]:
    """Return the published rows about the fleet of the earlier lake."""
    tables = published_rows(lake, layer, when)
    return {name: [row for row in rows if row["fleet"] == SYNTHETIC] for name, rows in tables.items()}


def ordered(rows: Iterable[dict[str, Any]], without: Collection[str] = ()) -> list[Any]:
    return sorted(comparable({name: value for name, value in row.items() if name not in without}) for row in rows)


def test_lake_of_an_earlier_version_is_read_or_refused_with_a_command(
    spark: SparkSession,
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "lake"
    write_continued(path, tables=True)
    lake = Lake(spark, str(path), little=True)
    # The present version continues the lake. It made the golden lake from the same snapshots without older tables.
    made = make_silver(lake, HOURS, quiet)
    assert (made.made, made.fresh) == (1, 2)
    for hour in HOURS[:2]:
        old, new = (shared_rows(where, "silver", hour) for where in (path, golden.path))
        assert set(old) == {name for name, rows in new.items() if rows}
        for name, rows in old.items():
            later = LATER.get(name, set())
            assert {column for row in new[name] for column in row} - {column for row in rows for column in row} == later
            assert ordered(rows) == ordered(new[name], later), (hour, name)
    few = few_gold_tables(*READING_GOLD)
    assert make_gold(lake, [DAY], quiet, wanted=few).made == 1
    by_older, by_present = (shared_rows(where, "gold", DAY) for where in (path, golden.path))
    assert set(by_older) == set(few.tables)
    assert {name: ordered(rows) for name, rows in by_older.items()} == {
        name: ordered(by_present[name]) for name in few.tables
    }
    reading = {code for code, check in REGISTRY.checks.items() if check.view in READING_VIEWS}
    settings = CheckSettings(skip=frozenset(REGISTRY.checks.keys() - reading))
    assert make_findings(lake, [DAY], quiet, False, settings, None).made == 1
    by_older, by_present = (shared_rows(where, "findings", DAY) for where in (path, golden.path))
    assert {row["check"] for row in by_older["findings_summary"]} >= {"STREAM_202", "CONSUMER_205"}
    for name in ("findings", "findings_summary"):
        assert ordered(by_older[name]) == ordered(row for row in by_present[name] if row["check"] in reading), name
    # A newer version may need another format.
    for pointer in (path / "silver" / "_published").rglob("hour=*.json"):
        pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "format": SILVER_FORMAT - 1}))
        pointer.with_name(f".{pointer.name}.crc").unlink(missing_ok=True)
    assert main(["gold", "--lake", str(path), *SPAN, "--force"]) == FAILED
    refusal = capsys.readouterr().err
    command = re.search(r"of an older version\. Run `(silver --from \S+ --to \S+)`", refusal)
    assert command, refusal
    few_silver_tables(monkeypatch, "servers")
    assert main([*command[1].split(), "--lake", str(path)]) == DONE
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["made"] == 3
