# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All jobs compute the same tables with the oldest supported PySpark, which `make test-oldest-spark` installs."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fleet import START, Fleet
from support.lakes import comparable, published_rows

OLDEST = os.environ.get("OLDEST_SPARK_PYTHON", "")
JOBS = ("silver", "gold", "findings", "report")

pytestmark = pytest.mark.skipif(not OLDEST, reason="make test-oldest-spark runs it")


def write_lake(folder: Path) -> None:
    """Write the snapshots of two hours, one of them with undeclared keys, which only `extra` contains."""
    fleet = Fleet(3, 2)
    for hour in range(2):
        fleet.write(folder, hour * 3600.0)
    file = next((folder / "bronze/jsz_streams").rglob("*.jsonl.gz"))
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    for line in lines:
        line["data"] |= {"new_key": {"a": [1, 2.5, None]}}
        line["data"]["state"] |= {"messages": "many", "newer": "é"}
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    file.write_bytes(gzip.compress(text.encode()))


def run_jobs(python: str, lake: Path) -> list[dict[str, Any]]:
    """Run the jobs and return their results."""
    command = [python, "-m", "jetstream_insights", *JOBS, "--lake", str(lake), "--master", "local[1]"]
    span = [f"--from={START:%Y-%m-%dT%H}", f"--to={START:%Y-%m-%dT}02", f"--output={lake / 'report'}"]
    done = subprocess.run([*command, *span], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def tables(lake: Path) -> dict[str, list[Any]]:
    """Return the rows of all published tables, without the order of rows and files."""
    found: dict[str, list[Any]] = {}
    for layer in ("silver", "gold", "findings"):
        for moment in [START.replace(hour=hour) for hour in range(2)] if layer == "silver" else [START.date()]:
            for name, rows in published_rows(lake, layer, moment).items():
                found[f"{layer}/{name} {moment}"] = sorted(comparable(list(row.items())) for row in rows)
    return found


def test_oldest_spark_refuses_streaming_queries() -> None:
    program = (
        "from jetstream_insights.source import JetStreamSource, SCHEMA\n"
        "from pyspark.sql.types import StructType\n"
        "source = JetStreamSource({'servers': 'nats://127.0.0.1:4222', 'stream': 'ORDERS'})\n"
        "source.streamReader(StructType())"
    )
    done = subprocess.run([OLDEST, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "SourceError: streaming queries need PySpark 4.2 or later; this is 4.1" in done.stderr


def test_oldest_spark_computes_the_same_tables(tmp_path: Path) -> None:
    results, found = [], []
    for name, python in (("newest", sys.executable), ("oldest", OLDEST)):
        lake = tmp_path / name
        write_lake(lake)
        results.append(run_jobs(python, lake))
        found.append(tables(lake))
    newest, oldest = found
    assert results[0][0]["unknown_keys"] == results[1][0]["unknown_keys"] != {}
    assert {name: len(rows) for name, rows in oldest.items()} == {name: len(rows) for name, rows in newest.items()}
    assert [name for name in newest if newest[name] != oldest[name]] == []
    assert any(newest.values())
