# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hourly aggregates are computed once, and days from hourly aggregates equal days from all hours at once."""

from __future__ import annotations

import hashlib
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.compaction import Maintained, RetentionTimes, maintain
from jetstream_insights.gold import FACTS as FACTS_OF_HOURS
from jetstream_insights.gold.common import GoldSettings
from jetstream_insights.gold_job import EVERYTHING, TablesRequest, make_gold
from jetstream_insights.lake import FACTS, FACTS_FORMAT, Lake, day_hours
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.fleet import START, Fleet, Outage
from support.lakes import comparable, few_gold_tables, few_silver_tables, published_rows

DAY = START.date()
#: n2 is down across the end of an hour, n3 during an hour without snapshots.
FLEET = Fleet(
    3, 12, 129, outages=(Outage(1, 20.8 * 3600, 21.3 * 3600), Outage(2, 21.9 * 3600, 23.2 * 3600, version="2.15.2"))
)
STEP = 600


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def write(lake: Path, number: int, *steps: int) -> None:
    """Write snapshots of an hour, ten minutes apart."""
    for step in steps or range(6):
        FLEET.write(lake, number * 3600.0 + step * STEP)


def quiet(_text: str) -> None:
    pass


class Made:
    """A lake, and the jobs that make gold in it."""

    def __init__(self, spark: SparkSession, path: Path, little: bool = False) -> None:
        self.path, self.lake = path, Lake(spark, str(path), little)

    def gold(self, force: bool = False, wanted: TablesRequest = EVERYTHING) -> None:
        make_silver(self.lake, day_hours(DAY), quiet)
        assert make_gold(self.lake, [DAY], quiet, force, wanted=wanted).made == 1

    def runs(self) -> dict[int, str]:
        """Return, for each hour with hourly aggregates, the run that made them."""
        pointers = {one.hour: self.lake.pointer(FACTS, one) for one in day_hours(DAY)}
        return {number: pointer["run"] for number, pointer in pointers.items() if pointer}

    def tables(self) -> dict[str, list[Any]]:
        return {name: sorted(map(comparable, found)) for name, found in self._published().items()}

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self._published()[table]

    def _published(self) -> dict[str, list[dict[str, Any]]]:
        return published_rows(self.path, "gold", DAY)


def test_new_hour_and_late_snapshot_recompute_only_their_hours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """test_judged_hours.py compares all tables of a day that was made by the hour with those made at once."""
    made = Made(spark, tmp_path)
    few_silver_tables(monkeypatch, "servers", "server_names", "meta_peers", "streams", "accounts")
    few = few_gold_tables("server_availability", "usage")
    write(tmp_path, 20)
    write(tmp_path, 21, 0, 1, 2, 4, 5)
    made.gold(wanted=few)
    first = made.runs()
    assert set(first) == {20, 21}
    # 22:00 has no snapshot; the snapshot of 21:30 is late.
    write(tmp_path, 23)
    write(tmp_path, 21, 3)
    made.gold(wanted=few)
    second = made.runs()
    assert (second[20], set(second)) == (first[20], {20, 21, 23})
    assert second[21] == second[23] != first[21]
    by_hours = made.tables()
    assert len(few.tables) == 4 and set(by_hours) == set(few.tables) and all(by_hours.values())
    # The hourly aggregates of a small lake are not stored.
    shutil.copytree(tmp_path / "silver", tmp_path / "little/silver")
    little = Made(spark, tmp_path / "little", little=True)
    assert make_gold(little.lake, [DAY], quiet, wanted=few).made == 1
    assert little.tables() == by_hours and little.runs() == {}
    made.gold(force=True, wanted=few)
    assert set(made.runs()) == set(second)
    assert set(made.runs().values()).isdisjoint(second.values())
    assert len(set(made.runs().values())) == 1  # all hours at once
    assert made.tables() == by_hours


def test_day_uses_the_last_hour_of_the_previous_day(spark: SparkSession, tmp_path: Path) -> None:
    """The previous day need not have been computed."""
    lake, day = Made(spark, tmp_path).lake, DAY + timedelta(days=1)
    few = few_gold_tables("activity", "account_usage")
    write(tmp_path, 23, 5)
    write(tmp_path, 24, 0)
    make_silver(lake, [hour(23), hour(24)], quiet)
    assert make_gold(lake, [day], quiet, wanted=few).made == 1
    assert all(lake.pointer(FACTS, hour(number)) for number in (23, 24))
    made = published_rows(tmp_path, "gold", day)
    # Each server has one snapshot in the day, so its counters cover the step from the previous snapshot to this one.
    assert [row["measured"] for row in made["activity"]] == [3]
    assert {row["observed"] for row in made["account_usage"]} == {3.0 * STEP}


def test_changed_columns_require_a_new_format() -> None:
    digest = hashlib.sha256(repr([(name, table.schema) for name, table in FACTS_OF_HOURS.items()]).encode())
    assert (FACTS_FORMAT, digest.hexdigest()[:12]) == (6, "25ea44091590"), "raise FACTS_FORMAT, then pin both here"


def test_hours_without_silver_keep_their_facts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(spark, tmp_path)
    few_silver_tables(monkeypatch, "servers", "server_names", "meta_peers", "streams", "accounts")
    few = few_gold_tables("server_availability", "usage")
    for number in (20, 21):
        write(tmp_path, number, 0, 3)
    made.gold(wanted=few)
    first, before = made.runs(), {name: made.rows(name) for name in ("usage", "moments", "server_availability")}
    keep = RetentionTimes(silver=1, unused=timedelta(0))
    maintain(made.lake, hour(21) + timedelta(days=1), keep, quiet)
    assert not made.lake.pointer("silver", hour(20))
    write(tmp_path, 21, 5)
    # Changed settings cause a new computation if silver still exists.
    make_silver(made.lake, [hour(21)], quiet)
    assert make_gold(made.lake, [DAY], quiet, settings=GoldSettings(longest_gap=300.0), wanted=few).made == 1
    second = made.runs()
    assert second[20] == first[20] and second[21] != first[21]
    for name, when in (("usage", "hour"), ("moments", "taken")):
        old, new = (
            sorted(comparable(list(row.values())) for row in rows if getattr(row[when], "hour", row[when]) == 20)
            for rows in (before[name], made.rows(name))
        )
        assert old == new != []
    answered = {row["server"]: row["answered"] for row in before["server_availability"]}
    assert {row["server"]: row["answered"] - 1 for row in made.rows("server_availability")} == answered
    # Replaced runs are deleted, current ones stay.
    while maintain(made.lake, hour(21) + timedelta(days=1), keep, quiet) != Maintained():
        pass
    assert {path.name for path in (tmp_path / FACTS / "usage").iterdir()} == {f"run={run}" for run in second.values()}
    # A day without silver cannot be computed again, so even its current runs are deleted once they are old enough.
    while maintain(made.lake, hour(24) + timedelta(days=36525), keep, quiet) != Maintained():
        pass
    assert made.runs() == {} and not list((tmp_path / FACTS / "usage").glob("run=*"))
