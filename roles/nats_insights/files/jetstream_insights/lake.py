# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the tables are: manifests, published runs, quarantine. The only file that touches a file system.

Any URI that Hadoop knows is a lake. Files are listed, read and replaced through Hadoop's own client, so that the same code
serves a laptop's disk and an object store.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

#: Of manifests and of pointers; see docs/insights.md.
BRONZE_FORMAT = 1
SILVER_FORMAT = 1


def place(hour: datetime) -> str:
    """Return the directories of an hour."""
    return f"date={hour:%Y-%m-%d}/hour={hour:%H}"


def hours(start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the hours that have a moment from `start` up to and without `end`."""
    hour = start.replace(minute=0, second=0, microsecond=0)
    while hour < end:
        yield hour
        hour += timedelta(hours=1)


def new_run() -> str:
    """Return the name of a run that begins now."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def relative(path: str) -> str:
    """Return a bronze file's path as its manifest tells it, from the URI that Spark tells."""
    return unquote(path).rpartition("/bronze/")[2]


def hour_of(file: Column) -> Column:
    """Return the hour of a file, which its directories tell."""
    plain = F.replace(file, F.lit("%3D"), F.lit("="))
    found = F.concat_ws(" ", F.regexp_extract(plain, r"date=([^/]+)", 1), F.regexp_extract(plain, r"hour=([^/]+)", 1))
    return F.to_timestamp(found, "yyyy-MM-dd HH")


class Lake:
    """A lake at a URI or path."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self.spark = spark
        self.uri = uri.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    # --- files --------------------------------------------------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        """Return the names of what a folder holds, sorted; nothing for a folder that is not there."""
        path = self._path(folder)
        files = path.getFileSystem(self._conf)
        if not files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in files.listStatus(path))

    def exists(self, name: str) -> bool:
        path = self._path(name)
        return bool(path.getFileSystem(self._conf).exists(path))

    def read_text(self, name: str) -> str:
        path = self._path(name)
        stream = path.getFileSystem(self._conf).open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def replace_text(self, name: str, text: str) -> None:
        """Write a file at once: readers find the old content or the new one."""
        target, draft = self._path(name), self._path(f"{name}.{secrets.token_hex(4)}.tmp")
        stream = draft.getFileSystem(self._conf).create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        overwrite = self.spark.sparkContext._gateway.new_array(rename, 1)  # type: ignore[union-attr]
        overwrite[0] = rename.OVERWRITE
        self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(draft.toUri(), self._conf).rename(draft, target, overwrite)

    def delete(self, name: str) -> None:
        """Remove a file or a folder with all that it holds."""
        path = self._path(name)
        path.getFileSystem(self._conf).delete(path, True)

    def _path(self, name: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}")
        return path.getFileSystem(self._conf).makeQualified(path)

    # --- bronze -------------------------------------------------------------------------------------------------------

    def snapshots(self, hour: datetime) -> list[str]:
        """Return the names of the snapshots that an hour has."""
        suffix = ".json"
        found = self.names(f"bronze/manifest/{place(hour)}")
        return [name[: -len(suffix)] for name in found if name.endswith(suffix)]

    def manifest(self, hour: datetime, snapshot: str) -> dict[str, Any]:
        """Return a snapshot's manifest. Raises ValueError when it is none, or of a format that is not known."""
        content = json.loads(self.read_text(f"bronze/manifest/{place(hour)}/{snapshot}.json"))
        if not isinstance(content, dict) or content.get("format") != BRONZE_FORMAT or content.get("snapshot") != snapshot:
            raise ValueError(f"it is not of format {BRONZE_FORMAT} or not of the snapshot that it is named after")
        return content

    def lines(self, paths: Sequence[str]) -> DataFrame:
        """Return what those of the bronze files that are there hold: `file`, the `value` as it stands there, and as a VARIANT
        `line`, null when it is no line of the file's snapshot."""
        roots = self._roots(paths)
        if not roots:
            empty = self.spark.range(0)
            return empty.select(F.lit("").alias("file"), F.lit("").alias("value"), F.parse_json(F.lit("{}")).alias("line"))
        # What is missing from a file is found by its manifest, and named; it must not end the job.
        text = self.spark.read.option("ignoreCorruptFiles", "true").text([f"{self.uri}/{root}" for root in roots])
        line = F.try_parse_json("value")
        told = text.select(F.col("_metadata.file_path").alias("file"), "value", line.alias("line"))
        snapshot = F.substring_index(F.substring_index("file", "/", -1), "-", 2)
        mine = F.try_variant_get("line", "$.snapshot", "string") == snapshot
        return told.select("file", "value", F.when(mine, F.col("line")).alias("line"))

    def _roots(self, paths: Sequence[str]) -> list[str]:
        """Return what Spark has to open for the files that are there: the folder where they are all that it holds, since Spark
        lists each path that it is given."""
        wanted: dict[str, set[str]] = {}
        for path in paths:
            folder, _slash, name = path.rpartition("/")
            wanted.setdefault(f"bronze/{folder}", set()).add(name)
        roots = []
        for folder, names in wanted.items():
            there = set(self.names(folder))
            roots += [folder] if there and there <= names else [f"{folder}/{name}" for name in sorted(there & names)]
        return roots

    # --- published tables -----------------------------------------------------------------------------------------------

    def pointer(self, layer: str, hour: datetime) -> dict[str, Any]:
        """Return what is published of an hour: run, inputs, format, quarantined; empty for nothing."""
        name = f"{layer}/_published/{place(hour)}.json"
        return dict(json.loads(self.read_text(name))) if self.exists(name) else {}

    def publish(self, layer: str, hour: datetime, run: str, inputs: Sequence[str], quarantined: int) -> None:
        """Make a run's tables those of the hour."""
        content = {"format": SILVER_FORMAT, "run": run, "inputs": list(inputs), "quarantined": quarantined}
        self.replace_text(f"{layer}/_published/{place(hour)}.json", json.dumps(content))

    def write(self, layer: str, table: str, run: str, frame: DataFrame) -> DataFrame:
        """Write a table of a run, in a directory for each hour, and return it as it was written. The hour is that of `taken`."""
        path = f"{self.uri}/{layer}/{table}/run={run}"
        dated = frame.withColumn("date", F.date_format("taken", "yyyy-MM-dd")).withColumn("hour", F.date_format("taken", "HH"))
        dated.write.partitionBy("date", "hour").mode("errorifexists").parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path).select(*frame.columns)

    def read(self, layer: str, table: str, of_hours: Iterable[datetime]) -> DataFrame | None:
        """Return the published rows of a table in these hours, None when there are none."""
        paths = []
        for hour in of_hours:
            run = self.pointer(layer, hour).get("run")
            name = f"{layer}/{table}/run={run}/{place(hour)}"
            if run and self.exists(name):
                paths.append(f"{self.uri}/{name}")
        return self.spark.read.parquet(*paths) if paths else None
