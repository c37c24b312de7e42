# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hourly part of findings is evaluated once, and only again if its input or its settings change."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights import findings_job
from jetstream_insights.compaction import Maintained, RetentionTimes, maintain
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.lifetime import COLUMNS
from jetstream_insights.findings.over_time import KEPT
from jetstream_insights.findings.registry import CheckSettings
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.findings_job import WRITTEN_AT_ONCE, Samples, hourly_samples, make_findings, united
from jetstream_insights.lake import JUDGED, JUDGED_FORMAT, Lake, day_hours
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.lakes import DAY, FLEET, PLANTED, SYNTHETIC, Golden, few_silver_tables, published_rows
from support.snapshots import HOUR, recorded, write_snapshot
from support.truth import judged, table

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

    def runs(self) -> dict[int, str]:
        """Return, for each evaluated hour, the run that made its rows."""
        pointers = {hour.hour: self.lake.pointer(JUDGED, hour) for hour in day_hours(self.day)}
        return {hour: pointer["run"] for hour, pointer in pointers.items() if pointer}

    def tables(self) -> dict[str, list[str]]:
        found = published_rows(self.path, "findings", self.day)
        assert set(found) == set(COLUMNS)
        return {name: sorted(map(str, rows)) for name, rows in found.items()}

    def rows(self, table: str) -> list[dict[str, Any]]:
        return published_rows(self.path, "findings", self.day)[table]


def test_exactly_the_planted_faults_are_found(golden: Golden) -> None:
    """In fleets whose true state is completely known, no finding is false and none is missing. test_connect.py compares the
    findings with those of the same day by the hour."""
    rows = [row for row in published_rows(golden.path, "findings", DAY)["findings"] if row["fleet"] != SYNTHETIC]
    found = judged(PLANTED, rows)
    print("\n".join(table(found.scores)))
    assert not found.missed
    assert [(row["check"], row["severity"], row["text"]) for row in found.false] == []
    states = {(row["state"], row["result"]) for row in rows}
    assert states == {("open", "fail"), (None, "unknown"), ("fixed", "fail")}


@pytest.mark.parametrize("little", [False, True])
def test_critical_failure_is_a_warning_until_the_previous_snapshot_shows_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little: bool
) -> None:
    few_silver_tables(monkeypatch, "servers", "hosts")
    made = Made(spark, tmp_path / "lake", HOUR.date(), little)
    for fleet, first in (("new", 0), ("lasting", 1)):
        for minutes, passwords in ((0, first), (30, 1)):
            replies = {**recorded("2.15.1"), "more": {"hosts": {"plaintext_passwords": passwords}}}
            write_snapshot(made.path, replies, HOUR + timedelta(minutes=minutes), fleet)
    made.silver()
    made.findings(CheckSettings(skip=frozenset(set(REGISTRY.checks) - {"HOST_103"})))
    failed = [row for row in made.rows("findings") if row["result"] == "fail"]
    found = {(row["fleet"], row["severity"], row["text"].endswith("; not in the snapshot before")) for row in failed}
    assert found == {("new", "warning", True), ("lasting", "critical", False)}


def test_small_lakes_write_several_frames_at_once(spark: SparkSession) -> None:
    one, two = "SELECT 1 AS a, 'one' AS b", "SELECT 'two' AS b, 2 AS a"
    frames = [spark.sql(query) for query in [one, two] * WRITTEN_AT_ONCE][: WRITTEN_AT_ONCE + 1]
    assert [*united(frames, little=False)] == frames
    first, second = united(frames, little=True)
    half = WRITTEN_AT_ONCE // 2
    assert sorted(map(tuple, first.collect())) == [(1, "one")] * half + [(2, "two")] * half
    assert second.collect() == frames[-1].collect()
    assert [*united([], little=True)] == []


def test_changed_columns_of_hours_require_a_new_format() -> None:
    digest = hashlib.sha256(repr(sorted(KEPT.items())).encode()).hexdigest()[:12]
    assert (JUDGED_FORMAT, digest) == (6, "e45a206bcc22"), "raise JUDGED_FORMAT, then pin both here"


def test_hours_are_evaluated_again_after_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "hosts")
    made = Made(spark, tmp_path / "lake", HOUR.date())
    start = HOUR.hour
    replies = recorded("2.15.1")

    def evaluated_again(wanted: CheckSettings, *minutes: int) -> set[int]:
        """Write snapshots this long after the first hour began, run the jobs, and return the evaluated hours, counted from
        the first one."""
        before = made.runs()
        for minute in minutes:
            write_snapshot(made.path, replies, HOUR + timedelta(minutes=minute))
        if minutes:
            made.silver()
        made.findings(wanted)
        after = made.runs()
        new = {hour for hour, run in after.items() if run != before.get(hour)}
        assert len({after[hour] for hour in new}) <= 1, "one run evaluates all of them"
        return {hour - start for hour in new}

    # Only the decision which hours to evaluate is under test, until their results are read.
    with monkeypatch.context() as patch:
        for name in ("judge_moments", "judge_time"):
            patch.setattr(findings_job, name, lambda *_arguments: iter(()))
        patch.setattr(findings_job, "STORED_TABLES", {})
        assert evaluated_again(FEW, 0, 60) == {0, 1}
        # A changed threshold affects the hours only if its check evaluates single snapshots, not if it evaluates the day.
        assert evaluated_again(replace(FEW, thresholds={"fleet_201_times": 9.0})) == set()
        stricter = replace(FEW, thresholds={"host_102_files": 99.0})
        assert "host_102_files" in REGISTRY.thresholds() and not VIEWS[REGISTRY.checks["HOST_102"].view].period
        assert evaluated_again(stricter) == {0, 1}
        # For an hour with a single snapshot, the previous snapshot is in another hour; if that hour changes, both are
        # evaluated again.
        assert evaluated_again(stricter, 30) == {0, 1}
        # A snapshot that follows another one in the same hour does not depend on the previous hour.
        assert evaluated_again(stricter, 90) == {1}
        # An hour stores the passes that may close a finding of an earlier hour.
        assert evaluated_again(stricter, 45) == {0, 1}
    made.findings(stricter, force=True)
    # If one hour contains hosts, the hosts that other hours lack are not reported for those hours.
    assert {row["text"] for row in made.rows("findings") if row["check"] == "HOST_102"} == {
        "no host was read (docs/insights.md)"
    }
    replies = {**replies, "more": {"hosts": {"open_files": 100}}}
    assert evaluated_again(stricter, 120) == {0, 1, 2}
    by_hours, last = made.tables(), made.runs()
    made.findings(stricter, force=True)
    assert made.tables() == by_hours and {*made.runs().values()}.isdisjoint(last.values())


def test_late_failure_is_closed_by_the_pass_of_a_later_hour(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "hosts")
    made = Made(spark, tmp_path / "lake", HOUR.date())
    only = CheckSettings(skip=frozenset(set(REGISTRY.checks) - {"HOST_103"}))

    def continued(passwords: dict[int, int]) -> set[tuple[str, datetime]]:
        """Write snapshots this many minutes after the first hour began, run the jobs, and return the findings."""
        for minutes, number in passwords.items():
            replies = {**recorded("2.15.1"), "more": {"hosts": {"plaintext_passwords": number}}}
            write_snapshot(made.path, replies, HOUR + timedelta(minutes=minutes))
        made.silver()
        made.findings(only)
        return {(row["state"], row["since"]) for row in made.rows("findings")}

    def passes() -> set[int]:
        """Return the hours that store a pass, counted from the first one."""
        stored = made.lake.read(JUDGED, "passes", day_hours(made.day))
        return {row["taken"].hour - HOUR.hour for row in stored.select("taken").collect()} if stored else set()

    assert continued({0: 0, 60: 0}) == set() and passes() == set()
    last = ("open", HOUR.replace(tzinfo=None) + timedelta(hours=2))
    assert continued({120: 1}) == {last} and passes() == set()
    # The finding would begin in the first hour if the second hour did not show that it was over.
    assert continued({30: 1}) == {last} and passes() == {1}


def test_a_gap_between_snapshots_may_contain_midnight(
    spark: SparkSession, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "hosts")
    made = Made(spark, tmp_path / "lake", DAY + timedelta(days=1))
    shutil.copytree(golden.path, made.path)
    for minute in range(180, 210, 10):
        FLEET.write(made.path, timedelta(days=1, minutes=minute).total_seconds())
    made.silver()
    made.findings(replace(FEW, skip=FEW.skip | (CHECKS - {"FLEET_201"})))
    (gap,) = [row for row in made.rows("findings") if (row["fleet"], row["check"]) == (SYNTHETIC, "FLEET_201")]
    # The interval runs from 02:00 of the previous day, the fleet's last moment in the golden lake, to 03:00.
    assert (gap["result"], gap["value"]) == ("fail", 25 * 3600.0), gap


def test_days_without_snapshots_end_no_finding(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "hosts")
    first, last = (Made(spark, tmp_path / "lake", HOUR.date() + timedelta(days=days), True) for days in (0, 3))
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
    few_silver_tables(monkeypatch, "servers", "hosts")
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
