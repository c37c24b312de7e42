# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other engines read the package's tables through the Delta logs: Arrow's dataset and DataFusion, which deltalake
includes."""

from __future__ import annotations

import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from jetstream_insights.cli import DONE, main
from jetstream_insights.compaction import RetentionTimes, maintain
from jetstream_insights.delta import Described, describe
from jetstream_insights.files import LakeError, absolute_uri
from jetstream_insights.lake import Lake, columns
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from support.fleet import START, Fleet
from support.lakes import DAY, HOURS, SPAN, Golden, few_silver_tables, published_files

FLEET = Fleet(3, 3)
KEY = ["snapshot", "account", "stream"]


def say(_text: str) -> None:
    """Discard the message."""


def described(lake: Lake) -> Described:
    done = describe(lake, say)
    assert describe(lake, say) == Described(0, done.files, done.left), "nothing has changed since"
    return done


def spark_rows(lake: Lake) -> list[Any]:
    frame = lake.read("silver", "streams", HOURS)
    assert frame is not None
    return sorted(tuple(row) for row in frame.select(*KEY, "last_seq", "taken").collect())


def check_comments(lake: Lake) -> None:
    """The log has the descriptions that the catalogue has."""
    log = DeltaTable(f"{lake.uri}/silver/streams")
    assert "A row for each" in (log.metadata().description or "")
    comments = {field.name: field.metadata.get("comment") for field in log.schema().fields}
    assert (comments["taken"], comments["last_seq"]) == ("start of the snapshot, by the collector's clock", None)


def delta_rows(lake: Lake, version: int | None = None) -> list[Any]:
    table = DeltaTable(f"{lake.uri}/silver/streams", version=version)
    by_arrow = table.to_pyarrow_table(columns=[*KEY, "last_seq", "taken"]).to_pylist()
    check_comments(lake)
    found = sorted((*list(row.values())[:-1], row["taken"].replace(tzinfo=None)) for row in by_arrow)
    names = ", ".join((*KEY, "last_seq"))
    by_datafusion = QueryBuilder().register("streams", table).execute(f"SELECT {names} FROM streams").read_all()
    assert by_datafusion.num_rows == len(found)
    return found


def test_every_published_row_is_read(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "lake"
    shutil.copytree(golden.path, path)
    lake = Lake(spark, str(path))
    assert described(lake).left == []
    seen = 0
    for layer, times in (("silver", HOURS), ("gold", [DAY]), ("findings", [DAY])):
        published = [published_files(path, layer, when) for when in times]
        for table in {name for tables in published for name in tables}:
            files = [file for tables in published for file in tables.get(table, ())]
            dataset = DeltaTable(f"{path}/{layer}/{table}").to_pyarrow_dataset()
            assert dataset.count_rows() == sum(pq.read_metadata(file).num_rows for file in files), table
            seen += 1
    assert seen > 30
    assert delta_rows(lake) == spark_rows(lake)
    dates = QueryBuilder().register("streams", DeltaTable(f"{path}/silver/streams"))
    assert dates.execute(f"SELECT * FROM streams WHERE date > '{DAY}'").read_all().num_rows == 0


def test_a_relative_path_is_the_same_lake(
    spark: SparkSession, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(golden.path, tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    # `main` opens the lake in the same way for all jobs.
    for job in ("silver", "maintain", "delta"):
        assert main([job, "--lake", "lake", *SPAN]) == DONE, job
    assert DeltaTable(f"{tmp_path}/lake/silver/streams").to_pyarrow_table().num_rows == len(
        spark_rows(Lake(spark, "lake"))
    )
    with monkeypatch.context() as patch:
        patch.setattr("jetstream_insights.files.is_remote", lambda: True)
        assert absolute_uri(spark, "lake") == f"{tmp_path}/lake"


def test_a_relative_path_belongs_to_the_default_file_system(spark: SparkSession) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.defaultFS", "hdfs://127.0.0.1:9")
    try:
        assert absolute_uri(spark, "lake").startswith("hdfs://127.0.0.1:9/user/")
        assert absolute_uri(spark, "/lake") == "/lake"
    finally:
        hadoop.unset("fs.defaultFS")


def test_delta_log_follows_publication(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_silver_tables(monkeypatch, "streams")
    lake = Lake(spark, str(tmp_path))
    FLEET.write(tmp_path, 0.0)
    FLEET.write(tmp_path, 3600.0)
    make_silver(lake, HOURS, say)
    described(lake)
    first = delta_rows(lake)

    FLEET.write(tmp_path, 60.0)  # a late snapshot
    make_silver(lake, HOURS, say)
    assert delta_rows(lake) == first, "readers see the new hour completely, after the log lists it"
    described(lake)
    assert delta_rows(lake) == spark_rows(lake) != first
    assert delta_rows(lake, version=0) == first, "replaced files are still there"

    keep = RetentionTimes(unused=timedelta(0))
    tomorrow = START + timedelta(days=1)
    assert maintain(lake, tomorrow, keep, say).compacted == 1
    described(lake)
    joined = delta_rows(lake)
    assert joined == spark_rows(lake)
    FLEET.write(tmp_path, 120.0)
    make_silver(lake, HOURS, say)
    assert described(lake).left == [f"silver {DAY}"]
    assert delta_rows(lake) == joined, "the file of the day also has the rows that were replaced"
    assert maintain(lake, tomorrow, keep, say).compacted == 1
    assert described(lake).left == []
    assert delta_rows(lake) == spark_rows(lake) != joined


def test_delta_log_gets_added_columns(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_silver_tables(monkeypatch, "streams")
    lake = Lake(spark, str(tmp_path))
    FLEET.write(tmp_path, 0.0)
    make_silver(lake, HOURS, say)

    def older(layer: str, table: str) -> StructType:
        return StructType([one for one in columns(layer, table) if one.name != "last_seq"])

    with monkeypatch.context() as patched:
        patched.setattr("jetstream_insights.delta.columns", older)
        described(lake)
        assert "last_seq" not in DeltaTable(f"{lake.uri}/silver/streams").to_pyarrow_dataset().schema.names
    described(lake)
    assert delta_rows(lake) == spark_rows(lake)


def test_delta_job_without_its_package_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake.exceptions", None)
    with pytest.raises(LakeError, match="pip install deltalake"):
        describe(Lake(spark, str(tmp_path)), say)
