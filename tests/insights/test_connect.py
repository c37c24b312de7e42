# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the jobs on another Spark, through Spark Connect on a standalone master and its worker. The tables are the same
as on one core of this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jetstream_insights.files import ArrowFiles, Files, HadoopFiles, LakeError
from jetstream_insights.session import FOR_LITTLE
from pyspark.sql import SparkSession
from support.lakes import JOBS, SPAN, Golden, comparable, file_rows, write_golden
from support.nats_processes import free_ports
from support.spark_cluster import daemon, end, standalone, wait


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


def elsewhere(lake: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run jobs in a process without a session. On a busy machine this may take long, but each step is logged."""
    command = [sys.executable, "-m", "jetstream_insights", *arguments, "--lake", str(lake), *SPAN]
    output = [lake.parent / f"jobs.{name}" for name in ("out", "err")]
    with output[0].open("w") as out, output[1].open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
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


def rows(table: Path) -> tuple[set[str], list[Any]]:
    """Return the columns and the sorted rows of a table."""
    files = sorted(table.rglob("*.parquet"))
    columns = {f"{column.name} {column.type}" for file in files for column in pq.read_schema(file)}
    return columns, sorted(map(comparable, file_rows(files)))


def test_spark_connect_writes_the_same_tables(connect: str, golden: Golden, tmp_path: Path) -> None:
    # The session of the tests made the golden lake, on one core of this machine.
    here, there = golden.path, tmp_path / "lake"
    write_golden(there)
    done = elsewhere(there, *JOBS, "--master", connect, "--output", str(tmp_path / "report"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == golden.printed.replace(str(here.parent), str(tmp_path))
    assert [json.loads(line)["job"] for line in done.stdout.splitlines()] == list(JOBS)
    tables = {
        lake: {f"{path.parent.name}/{path.name}" for path in lake.glob("[sgf]*/[!_]*")} - {"silver/quarantine"}
        for lake in (here, there)
    }
    assert tables[here] == tables[there] >= {"silver/streams", "gold/availability", "findings/findings"}
    for table in sorted(tables[here]):
        assert rows(here / table) == rows(there / table), table


def test_unusable_connect_server_is_reported_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    refused = elsewhere(tmp_path / "lake", "silver", "--master", f"sc://127.0.0.1:{port}")
    assert refused.returncode == 1
    assert (
        refused.stderr.splitlines()[-1] == f"FAILED: silver: sc://127.0.0.1:{port} does not answer: Connection refused"
    )
    example = Path(__file__).parents[2] / "docs/examples/insights_checks.yml"
    checks = elsewhere(tmp_path / "lake", "findings", "--checks", str(example), "--master", f"sc://127.0.0.1:{port}")
    assert (checks.returncode, checks.stderr.splitlines()[-1]) == (
        1,
        f"FAILED: no job was started: sc://127.0.0.1:{port} does not answer: Connection refused",
    )
    memory = elsewhere(tmp_path / "lake", "silver", "--master", f"sc://127.0.0.1:{port}", "--memory", "1g")
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
