# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lake with little data is recognized, its tables are made in parallel, and they are the same as if made in any other
way."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bench.insights.pipeline import measure
from jetstream_insights.lake import is_little, last_published
from jetstream_insights.parallel import each, make_all
from jetstream_insights.session import is_local
from support.fleet import START, Fleet, Outage

#: The prerequisites of each item; the order is valid if they run one at a time.
NEEDS = {"a": [], "b": ["a", "elsewhere"], "c": ["a"], "d": ["b", "c"]}
DAY = START.date()


def in_pairs(made: list[str]) -> Callable[[str], None]:
    """Return a function that records a name; b and c wait for each other."""
    both = threading.Barrier(2)

    def make(name: str) -> None:
        if name in ("b", "c"):
            both.wait(60)
        made.append(name)

    return make


def test_independent_tables_are_made_at_the_same_time() -> None:
    made: list[str] = []
    make_all(NEEDS, in_pairs(made), 2)
    assert (made[0], sorted(made[1:3]), made[3]) == ("a", ["b", "c"], "d")
    made.clear()
    each(iter("bc"), in_pairs(made), 2)
    assert sorted(made) == ["b", "c"]


def test_serial_execution_is_in_order_and_in_the_callers_thread() -> None:
    made: list[tuple[str, int]] = []

    def make(name: str) -> None:
        made.append((name, threading.get_ident()))

    make_all(NEEDS, make, 1)
    each(NEEDS, make, 1)
    assert made == [(name, threading.get_ident()) for name in (*NEEDS, *NEEDS)]


@pytest.mark.parametrize("at_once", [1, 2])
def test_dependents_of_a_failed_task_do_not_start_and_running_ones_end(at_once: int) -> None:
    made: list[str] = []

    def make(name: str) -> None:
        if name == "b":
            raise OSError("no space left")
        made.append(name)

    with pytest.raises(OSError, match="no space left"):
        make_all(NEEDS, make, at_once)
    assert made[0] == "a"
    assert "d" not in made
    with pytest.raises(OSError, match="no space left"):
        each(iter(["b"]), make, at_once)


def test_is_little_ignores_other_days(tmp_path: Path) -> None:
    Fleet(3, 3).write(tmp_path, 0)
    assert is_little(str(tmp_path), [DAY])
    assert is_little(tmp_path.as_uri(), [DAY])
    far = tmp_path / "silver/streams/run=r/date=2026-10-01/hour=00"
    far.mkdir(parents=True)
    (far / "a.parquet").write_bytes(bytes(5 << 20))
    assert is_little(str(tmp_path), [DAY])
    for there in ("bronze/varz/date=2026-10-31/hour=00", f"gold/usage/run=r/date={DAY}"):
        folder = tmp_path / there
        folder.mkdir(parents=True)
        (folder / "a").write_bytes(bytes(5 << 20))
        assert not is_little(str(tmp_path), [DAY]), there
        (folder / "a").unlink()
    assert is_little(str(tmp_path), [DAY])


def test_only_new_data_counts_if_the_rest_is_published(tmp_path: Path) -> None:
    """The last publication is the earlier of those of silver and gold; the previous day also counts."""
    assert last_published(str(tmp_path), ["silver"], [DAY]) == 0.0
    for name, when in (
        (f"silver/_published/date={DAY}/hour=00.json", 100),
        (f"silver/_published/date={DAY}/hour=01.json", 300),
        ("silver/_published/date=2026-09-30/hour=01.json", 900),
        ("gold/_published/date=2026-10-31.json", 200),
        (f"bronze/varz/date={DAY}/hour=00/old", 250),
        (f"bronze/varz/date={DAY}/hour=01/new", 350),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(1000))
        os.utime(file, (when, when))
    for layers, since in ((["silver"], 300.0), (["silver", "gold"], 200.0), (["silver", "gold", "findings"], 0.0)):
        assert last_published(tmp_path.as_uri(), layers, [DAY]) == since
    assert not is_little(str(tmp_path), [DAY], (1500, 9), 200.0)
    assert is_little(str(tmp_path), [DAY], (1500, 9), 300.0)
    assert not is_little(str(tmp_path), [DAY], (9000, 1), 200.0)


def test_remote_lake_is_not_little(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_little("hdfs://name/insights", [date(2026, 11, 1)])
    assert not is_little("/of/the/default/file/system", [date(2026, 11, 1)])
    assert last_published("hdfs://name/insights", ["silver"], [DAY]) == 0.0
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert [is_local(master) for master in (None, "yarn", "local[2]")] == [False, False, True]
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    assert is_local(None)


#: Runs the jobs as for a lake of any size.
FOR_MUCH = (
    "import sys; from jetstream_insights import cli; cli.is_little = lambda *_: False; sys.exit(cli.main(sys.argv[1:]))"
)


def canonical(value: Any) -> Any:
    """Return a value without digits that depend on the order of a sum."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return {name: canonical(item) for name, item in value.items()}
    return [canonical(item) for item in value] if isinstance(value, list) else value


def tables(lake: Path) -> dict[str, list[str]]:
    """Return the rows of all tables that were made, as text and sorted."""
    found: dict[str, list[str]] = {}
    for layer in ("silver", "gold", "findings"):
        for folder in sorted((lake / layer).glob("[!_]*")):
            files = sorted(folder.rglob("*.parquet"))
            rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
            found[f"{layer}.{folder.name}"] = sorted(repr(canonical(row)) for row in rows)
    return found


@pytest.mark.chaos
def test_the_tables_are_those_of_a_session_for_much_and_cost_less(tmp_path: Path) -> None:
    lakes = {"little": ["-m", "jetstream_insights"], "much": ["-c", FOR_MUCH]}
    fleet = Fleet(3, 5, outages=(Outage(1, 240, 420),))
    spent: dict[str, float] = {}
    reports: dict[str, Any] = {}
    for name, start in lakes.items():
        lake = tmp_path / name
        for minute in range(15):
            fleet.write(lake, minute * 60.0)
        span = ["--from", f"{START:%Y-%m-%d}", "--to", f"{START:%Y-%m-%dT01}", "--master", "local[2]"]
        jobs = ["silver", "gold", "findings", "report", "--output", str(lake / "report")]
        spent[name] = measure([sys.executable, *start, *jobs, "--lake", str(lake), *span]).cpu
        reports[name] = json.loads((lake / "report/report.json").read_text())
        del reports[name]["generated"]
    made = {name: tables(tmp_path / name) for name in lakes}
    assert made["little"].keys() == made["much"].keys()
    assert len(made["much"]["gold.report_servers"]) == 3
    assert len(made["much"]["findings.findings"]) > 10
    for table, rows in made["much"].items():
        assert made["little"][table] == rows, table
    assert canonical(reports["little"]) == canonical(reports["much"])
    assert spent["little"] < 0.8 * spent["much"], spent
