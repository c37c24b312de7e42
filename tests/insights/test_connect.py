# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the jobs on another Spark, through Spark Connect on a standalone master and its worker. The tables are the same
as on one core of this machine, and those of a day that is computed by the hour the same as those of a day at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jetstream_insights.files import ArrowFiles, Files, HadoopFiles, LakeError
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.lifetime import COLUMNS
from jetstream_insights.findings.registry import CheckSettings
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.findings_job import make_findings
from jetstream_insights.gold import TABLES
from jetstream_insights.gold_job import EVERYTHING, make_gold
from jetstream_insights.lake import FACTS, JUDGED, Lake
from jetstream_insights.session import FOR_LITTLE
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.fleet import START
from support.lakes import (
    DAY,
    HOURS,
    JOBS,
    PLANTED,
    SPAN,
    Golden,
    comparable,
    few_gold_tables,
    file_rows,
    published_files,
)
from support.nats_processes import free_ports
from support.spark_cluster import daemon, end, standalone, wait

#: The last snapshot of the hour before the golden lake's last hour.
LATE = START + timedelta(seconds=[at for at in PLANTED.moments if at // 3600 == HOURS[-2].hour][-1])


def quiet(_text: str) -> None:
    """Discard the message."""


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a Spark Connect server, whose driver uses the only worker of a standalone master."""
    (port,) = free_ports(1)
    log = tmp_path / "connect.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        **FOR_LITTLE,
        "spark.ui.enabled": "false",
        "spark.buffer.pageSize": "1m",
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = "org.apache.spark.deploy.SparkSubmit"
    with ExitStack() as running:
        master = running.enter_context(standalone(tmp_path, workers=1, memory="1g"))
        command = [submit, "--master", master, "--executor-memory", "1g", *options, "--class", name, "spark-internal"]
        running.enter_context(daemon(log, *command, memory="1g"))
        wait(lambda: "Spark Connect server started" in log.read_text(), log)
        yield f"sc://127.0.0.1:{port}"


def elsewhere(wheel: Path, lake: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run jobs in a process without a session, with the command that pip installed, without Ansible and without the role.
    On a busy machine this may take long, but each step is logged."""
    command = [str(wheel / "bin/jetstream-insights"), *arguments, "--lake", str(lake), *SPAN]
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    output = [lake.parent / f"jobs.{name}" for name in ("out", "err")]
    with output[0].open("w") as out, output[1].open("w") as err:
        process = subprocess.Popen(
            command, env=environment, cwd=lake.parent, stdout=out, stderr=err, start_new_session=True
        )
    try:
        told, since = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.1)
            if (size := output[1].stat().st_size) > told:
                told, since = size, time.monotonic()
            assert time.monotonic() < since + 300, output[1].read_text()[-3000:]
    finally:
        if process.poll() is None:
            end(process, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, *(path.read_text() for path in output))


def rows(files: list[Path]) -> tuple[set[str], list[Any]]:
    """Return the columns and the sorted rows of a table."""
    columns = {f"{column.name} {column.type}" for file in files for column in pq.read_schema(file)}
    return columns, sorted(map(comparable, file_rows(files)))


def runs(lake: Lake, layer: str) -> dict[int, str]:
    """Return, for each evaluated or aggregated hour, the run that made its rows."""
    return {hour.hour: run for hour in HOURS if (run := lake.pointer(layer, hour).get("run"))}


def begin_golden(spark: SparkSession, golden: Golden, path: Path) -> dict[str, dict[int, str]]:
    """Run the jobs in a copy of the golden lake that lacks the last snapshot of its second last hour, which is late, and all
    later snapshots. Return the runs of the hours."""
    (late,) = [
        name for name in Lake(spark, str(golden.path)).snapshots(HOURS[-2]) if name.startswith(f"{LATE:%Y%m%dT%H%M}")
    ]
    shutil.copytree(
        golden.path / "bronze",
        path / "bronze",
        ignore=lambda _folder, names: [name for name in names if name[:1] == "2" and name >= late],
    )
    lake = Lake(spark, str(path))
    make_silver(lake, HOURS, quiet)
    # The first table of the day requires all hourly aggregates.
    moments = replace(EVERYTHING, tables=few_gold_tables("moments").tables)
    assert make_gold(lake, [DAY], quiet, wanted=moments).made == 1
    # The evaluation of the hours does not depend on the checks of the day.
    daily_checks = frozenset(code for code, check in REGISTRY.checks.items() if VIEWS[check.view].period)
    assert make_findings(lake, [DAY], quiet, False, CheckSettings(skip=daily_checks), None).made == 1
    return {layer: runs(lake, layer) for layer in (FACTS, JUDGED)}


def test_day_by_the_hour_on_spark_connect_equals_a_day_at_once(
    spark: SparkSession, connect: str, wheel: Path, golden: Golden, tmp_path: Path
) -> None:
    """The session of the tests begins the day, and Spark Connect continues it. The golden lake was made at once, in the
    session of a test process."""
    path = tmp_path / "lake"
    before = begin_golden(spark, golden, path)
    shutil.copytree(golden.path / "bronze", path / "bronze", dirs_exist_ok=True)
    options = ("--journal", str(golden.journal), "--output", str(tmp_path / "report"))
    done = elsewhere(wheel, path, *JOBS, "--master", connect, *options)
    assert done.returncode == 0, done.stderr[-3000:]
    printed, expected = ([json.loads(line) for line in text.splitlines()] for text in (done.stdout, golden.printed))
    assert [line["job"] for line in printed] == list(JOBS)
    assert json.dumps(printed[-1]) == json.dumps(expected[-1]).replace(str(golden.path.parent), str(tmp_path))

    *whole, late, last = [hour.hour for hour in HOURS]
    for layer, old in before.items():
        new = runs(Lake(spark, str(path)), layer)
        assert (set(old), set(new)) == ({*whole, late}, {*whole, late, last})
        assert {hour: new[hour] for hour in whole} == {hour: old[hour] for hour in whole}
        assert {new[late], new[last]}.isdisjoint(old.values())
        assert runs(Lake(spark, str(golden.path)), layer) == {}

    compared = set()
    for layer, times in (("silver", HOURS), ("gold", [DAY]), ("findings", [DAY])):
        for when in times:
            at_once, by_hour = (published_files(lake, layer, when) for lake in (golden.path, path))
            assert set(at_once) == set(by_hour)
            for table in sorted(at_once):
                assert rows(at_once[table]) == rows(by_hour[table]), (layer, when, table)
            compared |= {f"{layer}/{table}" for table in at_once}
    assert compared >= {f"gold/{table}" for table in TABLES} | {f"findings/{table}" for table in COLUMNS} | {
        "silver/streams"
    }


def test_unusable_connect_server_is_reported_at_once(wheel: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    refused = elsewhere(wheel, tmp_path / "lake", "silver", "--master", f"sc://127.0.0.1:{port}")
    assert refused.returncode == 1
    assert (
        refused.stderr.splitlines()[-1] == f"FAILED: silver: sc://127.0.0.1:{port} does not answer: Connection refused"
    )
    example = Path(__file__).parents[2] / "docs/examples/insights_checks.yml"
    checks = elsewhere(
        wheel, tmp_path / "lake", "findings", "--checks", str(example), "--master", f"sc://127.0.0.1:{port}"
    )
    assert (checks.returncode, checks.stderr.splitlines()[-1]) == (
        1,
        f"FAILED: no job was started: sc://127.0.0.1:{port} does not answer: Connection refused",
    )
    memory = elsewhere(wheel, tmp_path / "lake", "silver", "--master", f"sc://127.0.0.1:{port}", "--memory", "1g")
    assert memory.returncode == 2 and "--memory is set when a Spark Connect server starts" in memory.stderr
    with pytest.raises(LakeError, match="run the jobs with spark-submit"):
        ArrowFiles("hdfs://name/insights")


def test_hadoop_and_arrow_list_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop and Arrow read each other's files, and leave the same files behind."""
    pairs: list[tuple[Files, Files]] = [
        (HadoopFiles(spark, str(tmp_path)), ArrowFiles(str(tmp_path))),
        (ArrowFiles(f"file://{tmp_path}"), HadoopFiles(spark, f"file://{tmp_path}")),
    ]
    for number, (write, read) in enumerate(pairs):
        place = f"date=2026-11-0{number + 1}"
        write.replace_text(f"{place}/a.json", "one")
        write.replace_text(f"{place}/a.json", "öne")
        write.replace_text(f"{place}/below/b", "two")
        assert read.names(place) == ["a.json", "below"] and read.names("nothing") == []
        assert read.read_text(f"{place}/a.json") == "öne"
        assert read.size(place) == write.size(place) == (2, 7)
        assert write.concatenate([f"{place}/a.json", f"{place}/below/b"], f"{place}/new/c") == 7
        assert read.read_text(f"{place}/new/c") == "önetwo" and read.size(f"{place}/new/c") == (1, 7)
        write.move(f"{place}/below", f"{place}/moved/there")
        write.move(f"{place}/nothing", f"{place}/moved/here")
        assert not read.exists(f"{place}/below") and read.names(f"{place}/moved") == ["there"]
        # Each of them reads files that both have written.
        read.replace_text(f"{place}/a.json", "three")
        write.replace_text(f"{place}/a.json", "four")
        assert read.read_text(f"{place}/a.json") == write.read_text(f"{place}/a.json") == "four"
        write.delete(f"{place}/moved")
        write.delete(f"{place}/moved")
        write.delete(f"{place}/a.json")
        assert read.names(place) == ["new"]
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"c", ".c.crc"}


@pytest.mark.parametrize("by_arrow", [False, True])
def test_readers_always_find_a_pointer_that_is_being_replaced(
    spark: SparkSession, tmp_path: Path, by_arrow: bool
) -> None:
    """A reader that finds no pointer treats the hour as empty; a pointer with the checksum of different content is an
    error."""
    hadoop = HadoopFiles(spark, str(tmp_path))
    # Pointers of earlier versions have a checksum.
    (tmp_path / "earlier").write_text("0")
    hadoop.concatenate(["earlier"], "pointers/hour.json")
    assert (tmp_path / "pointers" / ".hour.json.crc").exists()
    write: Files = ArrowFiles(str(tmp_path)) if by_arrow else hadoop
    replaced, missing = threading.Event(), Counter[bool]()

    def look() -> None:
        while not replaced.is_set():
            missing[not (tmp_path / "pointers" / "hour.json").exists()] += 1

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for number in range(100):
            write.replace_text("pointers/hour.json", f"{number}")
            assert hadoop.read_text("pointers/hour.json") == f"{number}"
    finally:
        replaced.set()
        looking.join()
    assert missing[False] > 100 and not missing[True], missing
    assert [path.name for path in (tmp_path / "pointers").iterdir()] == ["hour.json"]
