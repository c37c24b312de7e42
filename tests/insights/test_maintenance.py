# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lake returns the same rows as before its maintenance, even if the maintenance is killed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights import compaction, silver_job
from jetstream_insights.compaction import Maintained, RetentionTimes, maintain
from jetstream_insights.files import HadoopFiles
from jetstream_insights.lake import Lake, place
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.fleet import START, Fleet
from support.lakes import few_silver_tables

HOURS = [START, START + timedelta(hours=1)]
FLEET = Fleet(3, 3)
KEEP = RetentionTimes(unused=timedelta(0))
SOON = START + timedelta(days=1)


@pytest.fixture(autouse=True)
def _few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables are maintained in the same way, so the tests use only these tables, those from which they are made,
    and the snapshots."""
    few_silver_tables(monkeypatch, "streams")


class Killed(Exception):
    """Simulates the death of the process."""


def files(lake: Lake, layer: str) -> list[str]:
    root = Path(lake.uri)
    found = (path for path in (root / layer).rglob("*") if path.is_file() and path.name[0] not in "._")
    return sorted(str(path.relative_to(root)) for path in found)


def rows(lake: Lake, hours: list[datetime]) -> list[Any]:
    frame = lake.read("silver", "streams", hours)
    return sorted(frame.select("snapshot", "stream", "leader", "last_seq").collect()) if frame is not None else []


def make(lake: Lake, force: bool = False) -> tuple[int, int]:
    outcome = make_silver(lake, HOURS, lambda _text: None, force)
    return outcome.made, outcome.quarantined


def kept(lake: Lake, now: datetime = SOON, keep: RetentionTimes = KEEP) -> Maintained:
    return maintain(lake, now, keep, lambda _text: None)


def settled(lake: Lake, now: datetime = SOON, keep: RetentionTimes = KEEP) -> Maintained:
    """Carry out the maintenance that is due, and remove the files that it replaced; return the result of the first
    run."""
    first = kept(lake, now, keep)
    while kept(lake, now, keep) != Maintained():
        pass
    return first


def killed_at(
    monkeypatch: pytest.MonkeyPatch, method_name: str, when: Callable[[str], bool], work: Callable[[], Any]
) -> None:
    """Do the work, and kill it in the method `method_name` of the lake or its files, once `when` accepts the method's first
    argument."""
    owner = Lake if hasattr(Lake, method_name) else HadoopFiles
    method = getattr(owner, method_name)

    def dying(self: Lake | HadoopFiles, name: str, *more: Any) -> Any:
        if when(name):
            raise Killed
        return method(self, name, *more)

    with monkeypatch.context() as patched:
        patched.setattr(owner, method_name, dying)
        with pytest.raises(Killed):
            work()


def test_small_files_are_joined_and_old_ones_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count()
    for module in (silver_job, compaction):  # as if the jobs ran at START
        monkeypatch.setattr(
            module, "new_run", lambda: f"{START + timedelta(seconds=next(numbers)):%Y%m%dT%H%M%SZ}-{0:06}"
        )
    lake = Lake(spark, str(tmp_path))
    for minute in (0, 1, 60, 61):
        FLEET.write(tmp_path, minute * 60.0)
    (tmp_path / "bronze" / "_incoming" / "20261101T000000.000000Z-dead").mkdir(parents=True)
    assert kept(lake) == Maintained(unused=1)  # no hour has silver yet
    assert make(lake) == (2, 0)
    before = rows(lake, HOURS)
    assert len(before) == 4 * FLEET.streams
    assert kept(lake, HOURS[0] + timedelta(minutes=59)) == Maintained()  # nothing is old enough

    # Maintenance packs bronze, and is killed before the packs are used.
    written = files(lake, "bronze")
    killed_at(monkeypatch, "replace_text", lambda name: name.endswith(".jsonl"), lambda: kept(lake))
    assert [len(lake.snapshots(hour)) for hour in HOURS] == [2, 2]
    assert make(lake) == (0, 0)
    assert rows(lake, HOURS) == before
    # Compaction of silver is killed before its files are used. The call that replaces files does not remove the old
    # files.
    killed_at(monkeypatch, "replace_text", lambda name: "_compacted" in name, lambda: kept(lake))
    assert lake.compacted(START) == {}
    assert rows(lake, HOURS) == before
    assert set(written) < set(files(lake, "bronze"))
    # Maintenance is killed while it removes the snapshots that a pack contains.
    killed_at(monkeypatch, "delete", lambda name: name.endswith(".json"), lambda: kept(lake))
    assert [len(lake.snapshots(hour)) for hour in HOURS] == [2, 2]
    assert make(lake) == (0, 0)
    apart = files(lake, "silver")
    done = kept(lake)
    assert (done.packed, done.compacted) == (0, 1)
    assert rows(lake, HOURS) == before
    assert [name for name in apart if place(HOURS[1]) in name and name not in files(lake, "silver")] == []
    assert settled(lake).unused > 0
    assert rows(lake, HOURS) == before
    assert len(rows(lake, HOURS[1:])) == 2 * FLEET.streams
    assert make(lake) == (0, 0)
    tables = {name.split("/")[1] for name in written}
    assert len(files(lake, "bronze")) == len(tables) * 2 < len(written)
    assert len([name for name in files(lake, "silver") if name.startswith("silver/streams/")]) == 1
    assert kept(lake) == Maintained()

    # A late snapshot causes its hour to be recomputed from a pack and this single snapshot, and the next compaction
    # includes it.
    FLEET.write(tmp_path, 62 * 60.0)
    assert make(lake) == (1, 0)
    late = rows(lake, HOURS)
    assert len(late) == 5 * FLEET.streams
    assert rows(lake, HOURS[:1]) == rows(lake, HOURS)[: 2 * FLEET.streams]
    done = settled(lake)
    assert (done.packed, done.compacted) == (1, 1)
    assert rows(lake, HOURS) == late
    assert make(lake, force=True) == (2, 0)
    assert rows(lake, HOURS) == late

    # Retention removes bronze once silver contains it, and silver once it is too old.
    FLEET.write(tmp_path, 63 * 60.0)
    done = kept(lake, SOON + timedelta(days=9), RetentionTimes(bronze=7, unused=timedelta(0)))
    assert (done.bronze_days, done.unmade) == (0, 1)
    assert make(lake) == (1, 0)
    last = rows(lake, HOURS)
    assert settled(lake, SOON + timedelta(days=9), RetentionTimes(bronze=7, unused=timedelta(0))).bronze_days == 1
    assert files(lake, "bronze") == []
    assert make(lake, force=True) == (0, 0)
    assert rows(lake, HOURS) == last
    done = settled(lake, SOON + timedelta(days=99), RetentionTimes(silver=90, unused=timedelta(0)))
    assert done.silver_hours == 2
    assert rows(lake, HOURS) == files(lake, "silver") == []


def test_replaced_runs_are_removed_and_used_ones_kept(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    day, hour = f"date={START:%Y-%m-%d}", place(START)
    used = [f"silver/streams/run=20261101T000000Z-used/{hour}", f"gold/balance/run=20261101T000000Z-used/{day}"]
    replaced = [
        f"silver/streams/run=20261101T000000Z-old/{hour}",
        f"gold/balance/run=20261101T000000Z-old/{day}",
        f"silver/streams/run=20261101T000000Z-used/{place(HOURS[1])}",
    ]
    new = ["silver/streams/run=20261101T235959Z-busy/_temporary"]
    for name in (*used, *replaced, *new):
        (tmp_path / name).mkdir(parents=True)
    lake.publish("silver", START, "20261101T000000Z-used", [], 0)
    lake.files.replace_text(f"gold/_published/{day}.json", '{"run": "20261101T000000Z-used"}')
    (tmp_path / "bronze" / "_incoming" / "20261101T000000.000000Z-dead").mkdir(parents=True)
    keep = RetentionTimes(unused=timedelta(hours=1))
    assert kept(lake, SOON, keep) == Maintained(unused=1)
    assert kept(lake, SOON + timedelta(minutes=59), keep) == Maintained()
    assert kept(lake, SOON + timedelta(hours=1), keep) == Maintained(unused=3)
    assert [name for name in (*used, *replaced, *new) if (tmp_path / name).exists()] == [*used, *new]


def test_files_of_killed_uploads_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    """A kill leaves files of tables without a manifest: next to other snapshots, in another hour, or on another day."""
    lake = Lake(spark, str(tmp_path))
    FLEET.write(tmp_path, 0.0)
    before = files(lake, "bronze")
    uploaded = [START, HOURS[1], START - timedelta(days=1)]
    for hour in uploaded:
        lake.files.replace_text(f"bronze/varz/{place(hour)}/{hour:%Y%m%dT%H%M%S.%fZ}-dead-0.jsonl.gz", "")
    keep = RetentionTimes(unused=timedelta(hours=1))
    # The uploads of this day may be in progress, so they are not recorded as unused yet.
    assert kept(lake, HOURS[1], keep) == Maintained()
    assert kept(lake, SOON, keep) == Maintained(unused=1)
    assert len(files(lake, "bronze")) == len(before) + 2
    assert kept(lake, SOON + timedelta(hours=1), keep) == Maintained(unused=2)
    assert files(lake, "bronze") == before


def test_expired_days_of_gold_and_findings_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    days = [START + timedelta(days=number) for number in range(3)]
    folders = []
    for layer, table in (("gold", "balance"), ("findings", "findings")):
        for day in days:
            lake.files.replace_text(f"{layer}/_published/date={day:%Y-%m-%d}.json", '{"run": "20261101T000000Z-used"}')
            folders.append(tmp_path / layer / table / "run=20261101T000000Z-used" / f"date={day:%Y-%m-%d}")
            folders[-1].mkdir(parents=True)
    keep = RetentionTimes(gold=31, unused=timedelta(0))
    assert settled(lake, days[1] + timedelta(days=32, minutes=-1), keep) == Maintained(gold_days=1)
    assert [folder.exists() for folder in folders] == [False, True, True] * 2
    # Without its tables, the day's snapshots still count as read.
    (tmp_path / "bronze/manifest" / f"date={START:%Y-%m-%d}" / "hour=00").mkdir(parents=True)
    assert lake.unread_days(days[2].date()) == []
    assert settled(lake, days[1] + timedelta(days=32), RetentionTimes(unused=timedelta(0))) == Maintained()
    assert lake.files.names("findings/_published") == [f"date={day:%Y-%m-%d}.json" for day in days[1:]]


def test_snapshots_that_expire_soon_are_not_packed(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    for minute in (0, 1):
        FLEET.write(tmp_path, minute * 60.0)
    make(lake)
    assert kept(lake, SOON, RetentionTimes(bronze=7, unused=timedelta(0))).packed == 0
    assert kept(lake, SOON, RetentionTimes(bronze=8, unused=timedelta(0))).packed == 1


def test_replaced_runs_are_kept_for_their_readers(spark: SparkSession, tmp_path: Path) -> None:
    """A replaced run is kept however old it is, because a reader may have begun just before the replacement."""
    lake = Lake(spark, str(tmp_path))
    hour, keep = START - timedelta(days=3), RetentionTimes(unused=timedelta(hours=24))
    old, new = (f"{made:%Y%m%dT%H%M%SZ}-{made:%f}" for made in (hour + timedelta(hours=1), START))
    read = tmp_path / f"silver/streams/run={old}/{place(hour)}"
    read.mkdir(parents=True)
    lake.publish("silver", hour, old, [], 0)
    assert kept(lake, START - timedelta(minutes=1), keep) == Maintained()
    lake.publish("silver", hour, new, [], 0)  # a late snapshot
    for minutes in (1, 60, 24 * 60):
        assert kept(lake, START + timedelta(minutes=minutes), keep) == Maintained()
        assert read.exists()
    # A lost record of unused runs only keeps them longer.
    lake.files.replace_text("_unused.json", "{}")
    assert kept(lake, START + timedelta(hours=26), keep) == Maintained()
    assert kept(lake, START + timedelta(hours=50), keep) == Maintained(unused=1)
    assert not read.exists()


def test_packs_and_expiry_leave_bronze_to_its_readers(spark: SparkSession, tmp_path: Path) -> None:
    lake, keep = Lake(spark, str(tmp_path)), RetentionTimes(bronze=8, unused=timedelta(hours=24))
    for minute in (0, 1):
        FLEET.write(tmp_path, minute * 60.0)
    lake.publish("silver", START, "run", lake.snapshots(START), 0)
    opened = files(lake, "bronze")
    assert kept(lake, START + timedelta(hours=25), keep).packed == 1
    assert kept(lake, START + timedelta(hours=48), keep) == Maintained()  # the run is only recorded as unused
    assert set(opened) < set(files(lake, "bronze"))
    assert kept(lake, START + timedelta(hours=72), keep) == Maintained(unused=len(opened))
    packed = files(lake, "bronze")
    assert set(packed).isdisjoint(opened)
    assert kept(lake, START + timedelta(days=9), keep).bronze_days == 1
    assert lake.snapshots(START) == []
    assert kept(lake, START + timedelta(days=10), keep) == Maintained()
    assert files(lake, "bronze") == [name for name in packed if "/manifest/" not in name]
    assert kept(lake, START + timedelta(days=11), keep).unused > 0
    assert files(lake, "bronze") == []


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, method_name: str, when: Callable[[str], bool], work: Callable[[], Any]
) -> None:
    """Do the work once, just before the lake calls the method that makes its changes visible to other jobs."""
    method = getattr(HadoopFiles, method_name)

    def late(self: HadoopFiles, name: str, *more: Any) -> Any:
        if when(name):
            monkeypatch.setattr(HadoopFiles, method_name, method)
            work()
        return method(self, name, *more)

    monkeypatch.setattr(HadoopFiles, method_name, late)


def test_hour_recomputed_during_compaction_keeps_its_new_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, str(tmp_path))
    for minute in (0, 60):
        FLEET.write(tmp_path, minute * 60.0)
    assert make(lake) == (2, 0)
    runs = []

    def make_again() -> None:
        assert make(lake, force=True) == (2, 0)
        runs.append(lake.pointer("silver", START)["run"])

    made = rows(lake, HOURS)
    meanwhile(monkeypatch, "replace_text", lambda name: name.startswith("silver/"), make_again)
    assert kept(lake).compacted == 1
    assert [lake.pointer("silver", hour)["run"] for hour in HOURS] == runs * 2
    frame = lake.read("silver", "streams", HOURS)
    assert frame is not None
    assert {name.partition("/run=")[2].partition("/")[0] for name in frame.inputFiles()} == set(runs)
    assert rows(lake, HOURS) == made
    # The next compaction includes the new rows.
    assert kept(lake).compacted == 1
    assert rows(lake, HOURS) == made


def test_snapshot_that_arrives_while_its_day_expires_is_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, str(tmp_path))
    FLEET.write(tmp_path, 0)
    assert make(lake) == (1, 0)
    first, now = rows(lake, HOURS), START + timedelta(days=3)
    meanwhile(monkeypatch, "move", lambda name: "manifest" in name, lambda: FLEET.write(tmp_path, 60.0))
    assert kept(lake, now, RetentionTimes(bronze=1)).bronze_days == 1
    assert len(lake.snapshots(START)) == 1
    assert make(lake) == (1, 0)
    assert len(rows(lake, HOURS)) == 2 * len(first)


def test_hour_that_lost_snapshots_is_left_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """Files were removed by hand, or retention was killed on storage that cannot rename folders atomically."""
    lake = Lake(spark, str(tmp_path))
    FLEET.write(tmp_path, 0)
    lake.publish("silver", HOURS[0], "run", [*lake.snapshots(HOURS[0]), "another"], 0)
    assert make(lake) == make(lake, force=True) == (0, 0)
    assert lake.pointer("silver", HOURS[0])["run"] == "run"
    assert not (tmp_path / "silver" / "_published" / place(HOURS[1])).exists()


def test_late_archive_is_added_to_a_day_without_bronze(spark: SparkSession, tmp_path: Path) -> None:
    lake, keep = Lake(spark, str(tmp_path)), RetentionTimes(bronze=1)
    FLEET.write(tmp_path, 0)
    assert make(lake) == (1, 0)
    first, now = rows(lake, HOURS), START + timedelta(days=3)
    assert kept(lake, now, keep).bronze_days == 1
    FLEET.write(tmp_path, 60.0)
    assert kept(lake, now, keep).unmade == 1
    assert make(lake) == (1, 0)
    both = rows(lake, HOURS)
    assert (both[: len(first)], len(both)) == (first, 2 * len(first))
    assert kept(lake, now, keep).bronze_days == 1
    assert make(lake) == make(lake, force=True) == (0, 0)
    assert rows(lake, HOURS) == both
    # Unreadable rows are kept next to the hour, and reported.
    lake.repoint("silver", START, {**lake.pointer("silver", START), "format": 1})
    FLEET.write(tmp_path, 120.0)
    heard: list[str] = []
    assert make_silver(lake, HOURS[:1], heard.append).fresh == 1
    assert "cannot be added to tables of the older format 1" in heard[0]
    assert kept(lake, now, keep).unmade == 1
