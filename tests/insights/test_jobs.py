# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that fail report the reason, leave the published tables unchanged, and exit with a non-zero status."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.cli import DONE, FAILED, main
from jetstream_insights.files import LakeError
from jetstream_insights.lake import GOLD_FORMAT, SILVER_FORMAT, Lake, columns, day_hours
from pyspark.sql import SparkSession
from support.fleet import START, Fleet
from support.lakes import DAY, Golden, few_silver_tables
from support.snapshots import HOUR, recorded, write_snapshot

Output = pytest.CaptureFixture[str]


def silver(lake: Path, *more: str) -> int:
    span = ["--from", f"{HOUR:%Y-%m-%dT%H}", "--to", f"{HOUR + timedelta(hours=2):%Y-%m-%dT%H}"]
    return main(["silver", "--lake", str(lake), *span, "--master", "local[1]", *more])


@pytest.mark.parametrize("pointer", ["", "[]", '{"run": "r"}', '{"format": 99, "run": "r"}'])
def test_lake_of_a_different_program_is_not_changed(
    spark: SparkSession, tmp_path: Path, capsys: Output, pointer: str
) -> None:
    write_snapshot(tmp_path, recorded("2.15.1"))
    published = tmp_path / "silver" / "_published" / "date=2026-11-21" / "hour=18.json"
    published.parent.mkdir(parents=True)
    published.write_text(pointer)
    assert silver(tmp_path) == FAILED
    assert str(published.relative_to(tmp_path)) in capsys.readouterr().err
    assert published.read_text() == pointer
    assert [path.name for path in (tmp_path / "silver").iterdir()] == ["_published"]


def test_tables_of_an_older_format_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    lake.repoint("silver", HOUR, {"format": 0, "run": "r", "inputs": []})
    with pytest.raises(LakeError, match=r"of silver of 2026-11-21 18:00.*`silver --from 2026-11-21 --to 2026-11-22`"):
        lake.read("silver", "streams", [HOUR])
    lake.repoint("gold", HOUR.date(), {"format": 0, "run": "r", "inputs": []})
    with pytest.raises(LakeError, match=r"of gold of 2026-11-21 have.*`gold --from .*_published/date=2026-11-21.json"):
        lake.read_days("gold", "capacity", [HOUR.date()])


def test_days_without_data_are_empty_and_unknown_tables_are_errors(spark: SparkSession, golden: Golden) -> None:
    lake = Lake(spark, str(golden.path))
    before = DAY - timedelta(days=1)
    for layer, table in (("silver", "streams"), ("gold", "capacity"), ("findings", "findings")):
        assert lake.published_days(layer) == [DAY]
        nothing, some = lake.read_days(layer, table, [before]), lake.read_days(layer, table, [before, DAY])
        assert nothing.isEmpty() and not some.isEmpty()
        assert nothing.schema == some.schema == columns(layer, table)
    similar = (
        ("gold", "capacty", r"gold has no table capacty \(similar: capacity"),
        ("gold", "streams", r"gold has no table streams \(similar: silver.streams\)"),
        ("gold/_hours", "streams", "the layer gold/_hours does not exist. Known: silver, gold, findings"),
    )
    for layer, table, message in similar:
        with pytest.raises(LakeError, match=message):
            lake.read_days(layer, table, [DAY])


def test_pointers_of_old_days_are_not_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, str(tmp_path))
    days = [HOUR.date() - timedelta(days=back) for back in range(30, 0, -1)]
    for day in days:
        lake.repoint("gold", day, {"format": GOLD_FORMAT - (day == days[28]), "run": "1"})
    read: list[date] = []
    pointer = lake.pointer

    def counted(layer: str, day: date) -> dict[str, Any]:
        read.append(day)
        return pointer(layer, day)

    monkeypatch.setattr(lake, "pointer", counted)
    assert lake.published_days("gold", days[-1], 3) == days[25:28]
    assert read == days[25:29][::-1]
    assert lake.published_days("gold") == [day for day in days if day != days[28]]


def test_pointers_of_hours_are_read_once_for_all_tables(
    spark: SparkSession, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, str(golden.path))
    read: list[tuple[str, date]] = []
    pointer = lake.pointer

    def counted(layer: str, when: date) -> dict[str, Any]:
        read.append((layer, when))
        return pointer(layer, when)

    monkeypatch.setattr(lake, "pointer", counted)
    hours = day_hours(DAY)
    found = lake.read_tables("silver", ["servers", "streams", "gateways", "advisories"], hours)
    assert set(found) == {"servers", "streams"}, "the golden lake has no gateways and no advisories"
    assert sorted(read) == [(layer, hour) for layer in ("silver", "silver/advisories") for hour in hours]
    alone = lake.read("silver", "streams", hours)
    assert alone is not None and alone.inputFiles() == found["streams"].inputFiles()


def test_missing_lake_and_file_system_are_reported(spark: SparkSession, tmp_path: Path, capsys: Output) -> None:
    assert silver(tmp_path) == FAILED
    assert "is not a lake" in capsys.readouterr().err
    assert main(["silver", "--lake", "nosuch://host/lake", "--master", "local[1]"]) == FAILED
    assert "nosuch" in capsys.readouterr().err
    # This environment does not have Hadoop's connector for object storage.
    assert main(["silver", "--lake", "s3a://bucket/lake", "--master", "local[1]"]) == FAILED
    assert "add hadoop-aws to spark.jars.packages, see docs/insights.md" in capsys.readouterr().err


def test_jobs_run_in_order_until_one_fails(spark: SparkSession, tmp_path: Path, capsys: Output) -> None:
    Fleet(3, 3).write(tmp_path, 0)
    span = ["--from", f"{START:%Y-%m-%d}", "--to", f"{START:%Y-%m-%d}T02"]
    jobs = ["maintain", "report", "silver"]
    assert (
        main([*jobs, "--lake", str(tmp_path), *span, "--master", "local[1]", "--output", str(tmp_path / "out")])
        == FAILED
    )
    output = capsys.readouterr()
    assert [json.loads(line)["job"] for line in output.out.splitlines()] == ["maintain"]
    assert (
        "FAILED: report: there is nothing to report for 2026-11-01T00:00Z to 2026-11-01T02:00Z. If there" in output.err
    )
    assert Lake(spark, str(tmp_path)).pointer("silver", START) == {}


def test_invalid_arguments_are_rejected(capsys: Output) -> None:
    for wrong in (
        ["--from", "2026-11-22", "--to", "2026-11-21"],
        ["--from", "yesterday"],
        ["--maintenance", "2026-11-22/2026-11-21"],
        *(["--slo", text] for text in ("nan", "0", "-1", "1.01", "most")),
        *([option, "-1"] for option in ("--keep-bronze", "--keep-silver", "--keep-gold", "--unused")),
        *(["--unused", text] for text in ("nan", "inf")),
        ["--keep-gold", "30"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["silver", "--lake", "/nowhere", *wrong])
        assert ended.value.code == 2


def test_hours_without_snapshots_and_fast_clocks_are_reported(
    spark: SparkSession, tmp_path: Path, capsys: Output
) -> None:
    ahead = datetime.now(timezone.utc) + timedelta(days=400)
    Fleet(1, 0).write(tmp_path, (ahead - START).total_seconds())
    assert silver(tmp_path) == DONE
    said = capsys.readouterr()
    assert f"{ahead:%Y-%m-%d}" in said.err
    assert json.loads(said.out) == {
        "job": "silver",
        "made": 0,
        "fresh": 0,
        "empty": 2,
        "quarantined": 0,
        "unknown_keys": {},
        "later_days": [f"{ahead:%Y-%m-%d}"],
        "earlier_days": [],
    }


def test_days_that_no_job_has_read_are_reported(spark: SparkSession, tmp_path: Path, capsys: Output) -> None:
    """Without its day, a fleet that has stopped would be in no table and in no message."""
    days = [HOUR - timedelta(days=back) for back in (40, 2, 1)]
    for day in days:
        Fleet(1, 0).write(tmp_path, (day - START).total_seconds())
    lake = Lake(spark, str(tmp_path))
    lake.repoint("gold", days[0].date(), {"format": GOLD_FORMAT, "run": "1"})
    assert silver(tmp_path) == DONE
    output = capsys.readouterr()
    assert json.loads(output.out)["earlier_days"] == [f"{day:%Y-%m-%d}" for day in days[1:]]
    assert "2 days before --from" in output.err and f"add: --from {days[1]:%Y-%m-%d}" in output.err
    assert silver(tmp_path, "--from", f"{days[1]:%Y-%m-%d}") == DONE
    assert json.loads(capsys.readouterr().out)["earlier_days"] == []
    assert silver(tmp_path) == DONE
    assert json.loads(capsys.readouterr().out)["earlier_days"] == []


def test_first_day_is_read_from_its_start(spark: SparkSession, tmp_path: Path, capsys: Output) -> None:
    Fleet(1, 0).write(tmp_path, (HOUR - START).total_seconds())
    end = f"{HOUR + timedelta(hours=25):%Y-%m-%dT%H}"
    assert main(["silver", "--lake", str(tmp_path), "--to", end, "--master", "local[1]"]) == DONE
    assert json.loads(capsys.readouterr().out)["made"] == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 3 MiB with a lake; skip the test if the machine cannot mount one."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.decode().strip()}")
    write_snapshot(place, recorded("2.15.1"))
    yield place
    # Spark may not have closed its failed file yet.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def published_before(lake: Lake) -> dict[str, Any]:
    lake.repoint("silver", HOUR, {"format": SILVER_FORMAT, "run": "before", "inputs": [], "quarantined": 0})
    return lake.pointer("silver", HOUR)


def test_full_disk_is_reported(
    spark: SparkSession, small_disk: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "streams")
    lake = Lake(spark, str(small_disk))
    before = published_before(lake)
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space left"):
        while True:
            ballast.write(bytes(4096))
    assert silver(small_disk) == FAILED
    assert "No space left" in capsys.readouterr().err
    (small_disk / "ballast").unlink()
    assert lake.pointer("silver", HOUR) == before
    assert not list((small_disk / "silver").rglob("*.parquet"))


def test_read_only_disk_is_reported(spark: SparkSession, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_silver_tables(monkeypatch, "streams")
    lake = Lake(spark, str(small_disk))
    before = published_before(lake)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert silver(small_disk) == FAILED
    assert lake.pointer("silver", HOUR) == before
