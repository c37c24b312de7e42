# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of 1,000 servers with every table full is smaller than 10 MB, a real browser displays it quickly, and
other files contain the omitted rows."""

from __future__ import annotations

import base64
import gzip
import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.report.causes import with_causes
from jetstream_insights.report.content import _filled, _thinned
from jetstream_insights.report.page import packed, page
from jetstream_insights.report.plain import csv_text
from jetstream_insights.report.shape import BY_NAME, FORMAT, TABLES, ColumnShape, TableShape, dicts, filled
from pyspark.sql import SparkSession
from support.browsing import seen

SERVERS = 1000
BYTES = 10_000_000
#: A page with one row per table takes 0.4 s of CPU time, the full page 1.4 s. The ratio of these times is the same on a
#: slower machine.
TIMES = 5
#: Builds all tabs; otherwise the page builds each tab when it is first shown.
EVERY_TAB = "for (const tab of [...document.querySelectorAll('[role=tab]')].reverse()) tab.click();"
BEGIN = datetime(2026, 11, 21, tzinfo=timezone.utc)
CHANCE = random.Random(1)
#: Columns in which many rows have the same value, with the number of different values.
FEW = {"fleet": 30, "domain": 2, "cluster": 200, "zone": 6, "version": 3, "state": 4, "kind": 3, "account": 300}
FEW |= {"storage": 2, "resource": 2, "scope": 3, "measure": 7, "incident": 5, "what": 6, "field": 40, "check": 190}
SERVER_NAMES = ("server", "leader", "peer", "meta_leader", "max_name")


def name(column: str) -> str:
    return f"nats-{CHANCE.randrange(SERVERS):04}-eu-central-1{column[:1]}"


def value(column: ColumnShape) -> Any:
    """Return a value like those that a fleet reports: names of the usual length, figures with all their digits."""
    if column.kind == "severity":
        return CHANCE.choice(("critical", "warning", "info"))
    if column.kind == "time":
        return f"{BEGIN + timedelta(seconds=60 * CHANCE.randrange(1440)):%Y-%m-%dT%H:%M:%SZ}"
    if column.kind == "flag":
        return CHANCE.random() < 0.5
    if column.kind == "list":
        return [f"candidate {name('c')} since {CHANCE.randrange(10**6)}" for _number in range(3)]
    if column.kind in ("bytes", "count"):
        return CHANCE.randrange(10**12 if column.kind == "bytes" else 10**7)
    if column.kind != "text":
        return CHANCE.random() * 1e12 if column.kind in ("amount", "number") else CHANCE.random()
    if column.name in FEW:
        return f"{column.name}-{CHANCE.randrange(FEW[column.name])}"
    if column.name in SERVER_NAMES:
        return name(column.name)
    if column.name in ("text", "title", "remedy", "old", "new"):
        behind = f"{CHANCE.randrange(10**9)} messages behind, at {CHANCE.randrange(10**12)}"
        return f"{behind}; see {name('t')}, its disk, its routes, and others of its zone"
    return f"{column.name.upper()}-{CHANCE.randrange(50_000):05}"


def hourly(table: TableShape) -> list[dict[str, Any]]:
    """Return the hours of two weeks for as many assets, or fleets, as the table has room for."""
    return [
        {
            "fleet": f"fleet-{asset % 30}",
            "day": f"2026-11-{8 + hour // 24:02}",
            "hour": hour % 24,
            "name": f"nats-{asset:04}",
        }
        for asset in range(table.most // 336 + 1)
        for hour in range(336)
    ][: table.most]


def content(most: int | None = None) -> dict[str, Any]:
    """Return the content of a report in which each table has the maximum number of rows, but at most `most`."""
    tables = {}
    for table in TABLES:
        if table.source:
            known = hourly(table) if table.days else [{} for _number in range(table.most)]
            known = known[:most]
            rows = [[row.get(column.name, value(column)) for column in table.columns] for row in known]
            tables[table.name] = filled(table, rows, 10 * len(rows))
    about = {"format": FORMAT, "title": "1,000 servers", "day": "2026-11-21", "generated": "now", "notes": []}
    return {**about, "tables": with_causes(tables, dicts({"tables": tables}, "findings"))}


def test_a_full_report_of_a_thousand_servers_is_small_and_quick(tmp_path: Path) -> None:
    text = page(content())
    assert len(text.encode()) < BYTES
    found = seen(
        tmp_path,
        text,
        f"""
        {EVERY_TAB}
        for (const panel of document.querySelectorAll("[role=tabpanel]")) panel.hidden = false;
        seen.height = document.body.offsetHeight;
        seen.sections = [...document.querySelectorAll("section")].map((section) => section.id);
        seen.left = document.querySelector("#findings .count").textContent;
        """,
    )
    assert {table.name for table in TABLES if table.name != "muted"} <= set(found["sections"])
    assert found["height"] > 5_000
    assert found["left"] == "5,000 of 5,000 rows; 45,000 more are in findings.csv"
    (tmp_path / "one").mkdir()
    assert found["cpu"] < TIMES * seen(tmp_path / "one", page(content(most=1)), EVERY_TAB)["cpu"]


def test_no_critical_finding_is_lost(spark: SparkSession) -> None:
    """Rows beyond the page's limit are in report.json and findings.csv, and are included in the causes."""
    table, more = BY_NAME["findings"], 30
    given = {"severity": "IF(id % 2 = 0, 'critical', 'info')", "check": "'STREAM_101'"}
    columns = [f"{given.get(column.name, 'CAST(NULL AS STRING)')} AS {column.name}" for column in table.columns]
    fleet = spark.range(table.most + more).selectExpr("'open' AS state", "'fail' AS result", *columns)
    made = _filled(table, fleet)
    assert len(made["rows"]) == made["total"] == table.most + more
    assert csv_text(made).count("critical") == (table.most + more) / 2
    shown = json.loads(gzip.decompress(base64.b64decode(packed({"tables": {"findings": made}}))))["tables"]["findings"]
    assert (len(shown["rows"]), shown["total"], shown["beyond"]) == (table.most, table.most + more, "findings.csv")
    severities = [
        row["severity"] for row in dicts({"tables": {"findings": {**made, "rows": shown["rows"]}}}, "findings")
    ]
    assert severities == sorted(severities)


@pytest.mark.parametrize(("hours", "kept"), [(24, 24), (25, 12), (24 * 3 + 1, 6)])
def test_long_charts_are_thinned(spark: SparkSession, hours: int, kept: int) -> None:
    day = spark.range(hours).selectExpr("CAST(id % 24 AS INT) AS hour", "id DIV 24 AS asset")
    frame, every = _thinned(day, 24)
    points = [row["hour"] for row in frame.where("asset = 0").collect()]
    assert (len(points), every) == (kept, 24 // kept)
    assert points[-1] == 23
