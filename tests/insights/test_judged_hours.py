# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hourly part of findings is evaluated once, and findings computed hour by hour equal those of a complete day."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.cli import DONE, journal_windows, main, maintenance_window
from jetstream_insights.compaction import Maintained, RetentionTimes, maintain
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.lifetime import COLUMNS
from jetstream_insights.findings.over_time import KEPT
from jetstream_insights.findings.registry import CheckSettings
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.findings_job import Samples, hourly_samples, make_findings
from jetstream_insights.gold import TABLES
from jetstream_insights.gold.common import GoldSettings as Planned
from jetstream_insights.gold_job import EVERYTHING, make_gold
from jetstream_insights.lake import FACTS, JUDGED, JUDGED_FORMAT, Lake, day_hours
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.fleet import START
from support.lakes import DAY, FLEET, Golden, comparable, few_gold_tables, few_silver_tables, published_rows
from support.snapshots import HOUR, recorded, write_snapshot
from support.truth import judged, planted, table

#: These checks use single snapshots, except FLEET_201, which covers the complete day.
CHECKS = {"HOST_102", "FLEET_103", "FLEET_104", "FLEET_201"}
ALL = CheckSettings()
#: A time long after all runs of this test.
LATER = datetime(2100, 1, 1, tzinfo=timezone.utc)
FEW = CheckSettings(skip=frozenset(set(REGISTRY.checks) - CHECKS))


def quiet(_text: str) -> None:
    pass


class Made:
    """A lake and the findings of a day."""

    def __init__(self, spark: SparkSession, path: Path, day: date, little: bool = False) -> None:
        self.path, self.day, self.lake = path, day, Lake(spark, str(path), little)

    def silver(self) -> None:
        make_silver(self.lake, day_hours(self.day), quiet)

    def findings(self, wanted: CheckSettings = ALL, force: bool = False) -> None:
        assert make_findings(self.lake, [self.day], quiet, force, wanted, None).made == 1

    def runs(self, layer: str = JUDGED) -> dict[int, str]:
        """Return, for each evaluated or aggregated hour, the run that made its rows."""
        pointers = {hour.hour: self.lake.pointer(layer, hour) for hour in day_hours(self.day)}
        return {hour: pointer["run"] for hour, pointer in pointers.items() if pointer}

    def tables(self) -> dict[str, list[str]]:
        found = published_rows(self.path, "findings", self.day)
        assert set(found) == set(COLUMNS)
        return {name: sorted(map(str, rows)) for name, rows in found.items()}

    def gold(self) -> dict[str, list[Any]]:
        found = published_rows(self.path, "gold", self.day)
        return {name: sorted(map(comparable, rows)) for name, rows in found.items()}

    def rows(self, table: str) -> list[dict[str, Any]]:
        return published_rows(self.path, "findings", self.day)[table]


def test_exactly_the_planted_faults_are_found_hour_by_hour_and_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """In a fleet whose true state is completely known, no finding is false and none is missing."""
    whole = planted(servers=20, snapshots=15)
    hours = sorted({int(at // 3600) for at in whole.moments})
    first = [at for at in whole.moments if at // 3600 == hours[0]]
    made = Made(spark, tmp_path / "lake", START.date())
    # The last snapshot of the second hour is late, and no later hour exists yet.
    second = [at for at in whole.moments if at // 3600 == hours[1]]
    replace(whole, moments=(*first, *second[:-1])).write(made.path)
    made.silver()
    # The first table of the day requires all hourly aggregates.
    moments = replace(EVERYTHING, tables=few_gold_tables("moments").tables)
    assert make_gold(made.lake, [made.day], quiet, wanted=moments).made == 1
    aggregated = made.runs(FACTS)
    # The evaluation of the hours does not depend on the checks of the day.
    made.findings(
        CheckSettings(skip=frozenset(code for code, check in REGISTRY.checks.items() if VIEWS[check.view].period))
    )
    before = made.runs()
    assert set(before) == set(aggregated) == set(hours[:2])
    replace(whole, moments=tuple(at for at in whole.moments if at >= second[-1])).write(made.path)
    made.silver()
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(f"{line}\n" for line in whole.journal()))
    day = ("--from", f"{made.day}", "--to", f"{made.day + timedelta(days=1)}", "--journal", str(journal))
    assert main(["gold", "--lake", str(made.path), *day]) == DONE
    made.findings()
    assert len(hours) > 2
    for old, new in ((before, made.runs()), (aggregated, made.runs(FACTS))):
        assert set(new) == set(hours)
        assert new[hours[0]] == old[hours[0]]
        assert {new[hour] for hour in hours[1:]}.isdisjoint(old.values())
    found = judged(whole, made.rows("findings"))
    print("\n".join(table(found.scores)))
    assert not found.missed
    assert [(row["check"], row["severity"], row["text"]) for row in found.false] == []
    # A small lake stores neither hourly aggregates nor evaluated hours: all hours are computed at once.
    little = Made(spark, tmp_path / "little", START.date(), little=True)
    shutil.copytree(made.path / "silver", little.path / "silver")
    planned = Planned(maintenance=tuple(map(maintenance_window, journal_windows(journal))))
    assert make_gold(little.lake, [little.day], quiet, settings=planned).made == 1
    little.findings()
    assert little.runs() == little.runs(FACTS) == {}
    assert made.tables() == little.tables()
    gold = made.gold()
    assert set(gold) == set(TABLES) and gold == little.gold()
    states = {(row["state"], row["result"]) for row in made.rows("findings")}
    assert states == {("open", "fail"), (None, "unknown"), ("fixed", "fail")}


def test_critical_failure_is_a_warning_until_the_previous_snapshot_shows_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "streams", "hosts")
    made = Made(spark, tmp_path / "lake", HOUR.date())
    for fleet, first in (("new", 0), ("lasting", 1)):
        for minutes, passwords in ((0, first), (30, 1)):
            replies = {**recorded("2.15.1"), "more": {"hosts": {"plaintext_passwords": passwords}}}
            write_snapshot(made.path, replies, HOUR + timedelta(minutes=minutes), fleet)
    made.silver()
    made.findings(CheckSettings(skip=frozenset(set(REGISTRY.checks) - {"HOST_103"})))
    failed = [row for row in made.rows("findings") if row["result"] == "fail"]
    found = {(row["fleet"], row["severity"], row["text"].endswith("; not in the snapshot before")) for row in failed}
    assert found == {("new", "warning", True), ("lasting", "critical", False)}


def test_changed_columns_of_hours_require_a_new_format() -> None:
    digest = hashlib.sha256(repr(sorted(KEPT.items())).encode()).hexdigest()[:12]
    assert (JUDGED_FORMAT, digest) == (5, "e45a206bcc22"), "raise JUDGED_FORMAT, then pin both here"


def test_hours_are_evaluated_again_after_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "streams", "hosts")
    made = Made(spark, tmp_path / "lake", HOUR.date())
    start = HOUR.hour
    replies = recorded("2.15.1")
    for hour in (0, 1):
        write_snapshot(made.path, replies, HOUR + timedelta(hours=hour))
    made.silver()
    made.findings(FEW)
    first = made.runs()
    assert set(first) == {start, start + 1} and len({*first.values()}) == 1
    # A changed threshold affects the hours only if its check evaluates single snapshots, not if it evaluates the day.
    made.findings(replace(FEW, thresholds={"fleet_201_times": 9.0}))
    assert made.runs() == first
    stricter = replace(FEW, thresholds={"host_102_files": 99.0})
    assert "host_102_files" in REGISTRY.thresholds() and not VIEWS[REGISTRY.checks["HOST_102"].view].period
    made.findings(stricter)
    second = made.runs()
    assert {*second.values()}.isdisjoint(first.values())
    # For an hour with a single snapshot, the previous snapshot is in another hour; if that hour changes, both are
    # evaluated again.
    write_snapshot(made.path, replies, HOUR + timedelta(minutes=30))
    made.silver()
    made.findings(stricter)
    third = made.runs()
    assert {*third.values()}.isdisjoint(second.values())
    # A snapshot that follows another one in the same hour does not depend on the previous hour.
    write_snapshot(made.path, replies, HOUR + timedelta(hours=1, minutes=30))
    made.silver()
    made.findings(stricter)
    fourth = made.runs()
    assert (fourth[start], fourth[start + 1] == third[start + 1]) == (third[start], False)
    # If one hour contains hosts, the hosts that other hours lack are not reported for those hours.
    assert {row["text"] for row in made.rows("findings") if row["check"] == "HOST_102"} == {
        "no host was read (docs/insights.md)"
    }
    tell = {**replies, "more": {"hosts": {"open_files": 100}}}
    write_snapshot(made.path, tell, HOUR + timedelta(hours=2))
    made.silver()
    made.findings(stricter)
    assert {*made.runs().values()}.isdisjoint(fourth.values())
    by_hours, last = made.tables(), made.runs()
    made.findings(stricter, force=True)
    assert made.tables() == by_hours and {*made.runs().values()}.isdisjoint(last.values())


def test_a_gap_between_snapshots_may_contain_midnight(
    spark: SparkSession, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "streams", "hosts")
    made = Made(spark, tmp_path / "lake", DAY + timedelta(days=1))
    shutil.copytree(golden.path, made.path)
    for minute in range(180, 210, 10):
        FLEET.write(made.path, timedelta(days=1, minutes=minute).total_seconds())
    made.silver()
    made.findings(replace(FEW, skip=FEW.skip | (CHECKS - {"FLEET_201"})))
    (gap,) = [row for row in made.rows("findings") if row["check"] == "FLEET_201"]
    # The interval runs from 02:00 of the previous day, the last moment of the golden lake, to 03:00.
    assert (gap["result"], gap["value"]) == ("fail", 25 * 3600.0), gap


def test_days_without_snapshots_end_no_finding(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "streams", "hosts")
    first, last = (Made(spark, tmp_path / "lake", HOUR.date() + timedelta(days=days)) for days in (0, 3))
    replies = recorded("2.15.1")
    write_snapshot(first.path, {**replies, "more": {"hosts": {"open_files": 100}}}, HOUR)
    write_snapshot(last.path, replies, HOUR + timedelta(days=3))
    for made in (first, last):
        made.silver()
        made.findings(FEW)

    def still_open() -> set[Any]:
        rows = [row for row in last.rows("findings") if (row["check"], row["result"]) == ("HOST_102", "fail")]
        return {(row["fleet"], row["state"], row["since"]) for row in rows}

    ((fleet, state, since),) = still_open()
    assert (state, since) == ("open", HOUR.replace(tzinfo=None))
    assert make_findings(last.lake, [last.day], quiet, False, FEW, None, [fleet]).made == 1
    assert still_open() == set()


def test_hours_without_silver_keep_their_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "streams", "hosts")
    made = Made(spark, tmp_path / "lake", HOUR.date())
    replies = {**recorded("2.15.1"), "more": {"hosts": {"open_files": 100}}}
    for hour in (0, 1):
        write_snapshot(made.path, replies, HOUR + timedelta(hours=hour))
    made.silver()
    made.findings(FEW)
    first = made.runs()
    keep = RetentionTimes(silver=1, unused=timedelta(0))
    maintain(made.lake, HOUR + timedelta(days=1, hours=1), keep, quiet)
    assert not made.lake.pointer("silver", HOUR) and made.lake.pointer("silver", HOUR + timedelta(hours=1))
    # The day does not contain checks that are no longer requested, although the hour does.
    fewer = CheckSettings(skip=FEW.skip | {"FLEET_104"})
    made.findings(fewer)
    second = made.runs()
    assert second[HOUR.hour] == first[HOUR.hour] and second[HOUR.hour + 1] != first[HOUR.hour + 1]
    summary = made.rows("findings_summary")
    looks = {(row["check"], row["taken"].hour) for row in summary if row["check"] != "FLEET_201"}
    assert looks == {(check, HOUR.hour + hour) for check in CHECKS - {"FLEET_104", "FLEET_201"} for hour in (0, 1)}
    lasts = {row["since"].hour for row in made.rows("findings") if row["check"] == "HOST_102"}
    assert lasts == {HOUR.hour}
    # Replaced runs are deleted and current ones kept, until the day can no longer be computed.
    while maintain(made.lake, LATER, RetentionTimes(unused=timedelta(0)), quiet) != Maintained():
        pass
    kept = {
        str(path.relative_to(made.path / JUDGED / "summary")) for path in made.path.glob(f"{JUDGED}/summary/*/*/hour=*")
    }
    assert kept == {f"run={run}/date={HOUR:%Y-%m-%d}/hour={hour}" for hour, run in second.items()}
    found = made.tables()
    while maintain(made.lake, LATER, keep, quiet) != Maintained():
        pass
    assert made.runs() == {} and not [*made.path.glob(f"{JUDGED}/*/run=*")]
    assert made.tables() == found


def test_last_snapshot_of_each_fleet_and_hour_is_sampled() -> None:
    first = [("A", 3, "a3", 2), ("A", 1, "a1", 0), ("A", 4, "a4", 2)]
    others = [("C", 9, "c9", 6), ("B", 2, "b2", 2), ("B", 5, "b5", 4)]
    assert hourly_samples([*others, *first]) == {
        0: Samples(["a1"], set()),
        2: Samples(["a4", "b2"], {2}),
        4: Samples(["b5"], {2}),
        6: Samples(["c9"], set()),
    }
    assert hourly_samples(()) == {}
