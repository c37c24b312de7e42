# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the tables are: manifests, published runs, quarantine. Any URI that Spark reads is a lake."""

from __future__ import annotations

import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jetstream_insights import gold, silver
from jetstream_insights.fields import Bronze
from jetstream_insights.files import LakeError, files_of
from jetstream_insights.findings import lifetime, over_time

#: Of manifests and of pointers. A column more is none: it is null in older files. See docs/internals/lake.md.
BRONZE_FORMATS = (1, 2)
SILVER_FORMAT = 4
GOLD_FORMAT = 3
#: Facts are kept, and read beside those of other hours: a new one for whatever they hold otherwise, columns or rows.
FACTS_FORMAT = 6
FINDINGS_FORMAT = 4
JUDGED_FORMAT = 3
ADVISORIES_FORMAT = 3
#: The layer of what gold needs of an hour. Readers of gold pass over it.
FACTS = "gold/_hours"
#: That of what findings need of an hour.
JUDGED = "findings/_hours"
_FORMATS = {
    "silver": SILVER_FORMAT,
    "silver/advisories": ADVISORIES_FORMAT,
    "gold": GOLD_FORMAT,
    FACTS: FACTS_FORMAT,
    "findings": FINDINGS_FORMAT,
    JUDGED: JUDGED_FORMAT,
}

#: How the name of a bronze file ends that has typed columns; others are lines of JSON.
COLUMNS = ".parquet"
#: How the name of a pack ends: many snapshots of an hour in few files.
PACK = ".jsonl"

#: Whether Hadoop marks what it wrote as whole, which pointers tell of all that is published. On this machine's disk each file is
#: a process `chmod`, and one more for its checksum.
_MARKED = "mapreduce.fileoutputcommitter.marksuccessfuljobs"

#: Tables of silver that are not made from snapshots, and have pointers of their own, below their own folder.
APART = ("advisories",)

#: The columns of all tables, by layers.
_COLUMNS = {
    "silver": silver.COLUMNS,
    "gold": {name: table.schema for name, table in gold.TABLES.items()},
    FACTS: {name: table.schema for name, table in gold.FACTS.items()},
    "findings": lifetime.COLUMNS,
    JUDGED: {**lifetime.OF_HOURS, **over_time.KEPT},
}
_HOUR = timedelta(hours=1)
_HOURS = 24


def columns(layer: str, table: str) -> StructType:
    """Return what a table is read with."""
    found = StructType.fromDDL(_COLUMNS[layer][table])
    assert isinstance(found, StructType)
    return found


def place(when: date) -> str:
    """Return the directories of an hour, or of a day when it is no more than a date."""
    return f"date={when:%Y-%m-%d}" + (f"/hour={when:%H}" if isinstance(when, datetime) else "")


def _day(when: date) -> date:
    return when.date() if isinstance(when, datetime) else when


def home_of(hour: datetime, pointer: Mapping[str, Any], compacted: Mapping[str, Any]) -> str:
    """Return the folder of an hour's rows below each table's: that of its day, where its day was compacted with them."""
    if compacted.get("of", {}).get(f"{hour:%H}") == pointer["run"]:
        return f"run={compacted['run']}/{place(hour.date())}"
    return f"run={pointer['run']}/{place(hour)}"


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
    return F.try_to_timestamp(found, F.lit("yyyy-MM-dd HH"))


#: How many tables of a lake that holds little are made at the same time. Of others one takes all cores, and all memory.
AT_ONCE = 2
#: What a lake may hold of some days for being little, and what may be new in it for its jobs to be over soon: bytes and files.
LITTLE = (4 << 20, 5000)
SOON = (128 << 20, 50_000)


def is_little(uri: str, of_days: Iterable[date], most: tuple[int, int] = LITTLE, since: float = 0.0) -> bool:
    """Return whether a lake on this machine's disk holds little of these days and of the day before them that is newer than
    `since`, without Spark, which is started accordingly. Others are never little."""
    root = _on_this_disk(uri)
    if root is None:
        return False
    wanted = _with_day_before(of_days)
    left, files = most
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith("date=") or name in wanted]
        for name in names:
            try:
                found = os.stat(f"{folder}/{name}")
            except OSError:
                continue  # removed meanwhile
            if found.st_mtime > since:
                left -= found.st_size
                files -= 1
        if left < 0 or files < 0:
            return False
    return True


def last_published(uri: str, layers: Iterable[str], of_days: Iterable[date]) -> float:
    """Return when each of these layers had been published last, of these days and the day before them, by the clock of files;
    0 where one has not been, or the lake is not on this machine's disk."""
    root, wanted = _on_this_disk(uri), _with_day_before(of_days)

    def of(layer: str) -> float:
        pointers = Path(root or "", layer, "_published")
        last = 0.0
        for path in (
            path for day in wanted for form in (f"{day}.json", f"{day}/*.json") for path in pointers.glob(form)
        ):
            with suppress(OSError):  # removed meanwhile
                last = max(last, path.stat().st_mtime)
        return last

    return 0.0 if root is None else min(map(of, layers), default=0.0)


def _on_this_disk(uri: str) -> str | None:
    """Return the folder of a lake. A path may also be one of Hadoop's default file system."""
    parts = urlsplit(uri)
    root = unquote(parts.path) if parts.scheme else uri
    return root if parts.scheme in ("", "file") and os.path.isdir(root) else None


def _with_day_before(of_days: Iterable[date]) -> set[str]:
    listed = sorted(of_days)
    return {place(day) for day in [*listed, *(day - timedelta(days=1) for day in listed[:1])]}


class Lake:
    """A lake at a URI or path. `little`: whether it holds so little that planning takes longer than reading; then so many tables
    that do not need each other are made `at_once`, and nothing is kept that only saves reading."""

    def __init__(self, spark: SparkSession, uri: str, little: bool = False) -> None:
        self.spark = spark
        self.little = little
        self.at_once = AT_ONCE if little else 1
        self.uri = uri.rstrip("/")
        self.files = files_of(spark, self.uri)

    def nothing(self, columns: str) -> DataFrame:
        """Return a table without rows, which plans know of: what would be joined with it costs nothing."""
        return self.spark.createDataFrame([], columns).limit(0)

    # --- folders ------------------------------------------------------------------------------------------------------

    def days(self, folder: str) -> list[datetime]:
        """Return the days that a folder holds."""
        names = (name.partition("=") for name in self.files.names(folder))
        return [
            datetime.fromisoformat(text).replace(tzinfo=timezone.utc) for key, _equals, text in names if key == "date"
        ]

    def join_columns(self, sources: Sequence[str], target: str, columns: StructType, draft: str) -> None:
        """Write the rows of Parquet files into a new one; `draft`: a folder for that."""
        read = self.spark.read.schema(columns).parquet(*(f"{self.uri}/{name}" for name in sources))
        read.coalesce(1).write.mode("overwrite").parquet(f"{self.uri}/{draft}")
        (part,) = (name for name in self.files.names(draft) if name.endswith(COLUMNS))
        self.files.move(f"{draft}/{part}", target)
        self.files.delete(draft)

    def delete_run(self, layer: str, run: str) -> None:
        """Remove what a run wrote into a layer, for a job that failed."""
        for table in self.files.names(layer):
            self.files.delete(f"{layer}/{table}/run={run}")

    # --- bronze -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise LakeError when there are no snapshots to read."""
        if not self.files.exists("bronze/manifest"):
            raise LakeError(
                f"{self.uri} is no lake: there is no bronze/manifest, or it may not be read. Take a snapshot first."
            )

    def snapshots(self, hour: datetime) -> list[str]:
        """Return the names of the snapshots that an hour has."""
        return sorted(self.manifests(hour))

    def manifests(self, hour: datetime) -> dict[str, str]:
        """Return the manifests of an hour, by their snapshots: the text where a pack holds them."""
        return {snapshot: packed for snapshot, (_file, packed) in self.manifest_files(hour).items()}

    def manifest_files(self, hour: datetime) -> dict[str, tuple[str, str]]:
        """Return in which file the manifest of each snapshot of an hour is, and its text where that is a pack. What the last pack
        holds counts, not what it was made of. A pack that cannot be read is a snapshot itself, by its file's name."""
        folder = f"bronze/manifest/{place(hour)}"
        names = self.files.names(folder)
        found = {name[: -len(".json")]: (name, "") for name in names if name.endswith(".json")}
        for name in names:
            if name.endswith(PACK):
                for line in self.files.read_text(f"{folder}/{name}").splitlines():
                    try:
                        found[str(json.loads(line)["snapshot"])] = name, line
                    except (KeyError, TypeError, ValueError):
                        found[name] = name, line
        return found

    def manifest(self, hour: datetime, snapshot: str, packed: str = "") -> dict[str, Any]:
        """Return a snapshot's manifest, which a pack may hold. Raises ValueError when it is none, or of a format that is not
        known."""
        text = packed or self.files.read_text(f"bronze/manifest/{place(hour)}/{snapshot}.json")
        content = json.loads(text)
        if (
            not isinstance(content, dict)
            or content.get("format") not in BRONZE_FORMATS
            or content.get("snapshot") != snapshot
        ):
            formats = " or ".join(map(str, BRONZE_FORMATS))
            raise ValueError(f"it is not of format {formats}, or not of the snapshot that it is named after")
        if not snapshot.startswith(f"{hour:%Y%m%dT%H}"):
            raise ValueError("it is in the folder of another hour")
        return content

    def bronze(self, paths: Sequence[str], columns: StructType) -> Bronze:
        """Return what those of the bronze files that are there hold; `columns`: what is read of those that have any."""
        typed = [path for path in paths if path.endswith(COLUMNS)]
        lines = self.lines([path for path in paths if not path.endswith(COLUMNS)]) if len(typed) < len(paths) else None
        roots = self._roots(typed)
        if not roots:
            return Bronze(self.lines([]) if lines is None else lines)
        read = self.spark.read.option("ignoreCorruptFiles", "true").schema(columns)
        frame = read.parquet(*(f"{self.uri}/{root}" for root in roots))
        return Bronze(lines, frame.select(F.col("_metadata.file_path").alias("file"), "*"))

    def lines(self, paths: Sequence[str]) -> DataFrame:
        """Return what those of the bronze files that are there hold: `file`, and the `value` of each line as it stands there."""
        roots = self._roots(paths)
        if not roots:
            return self.spark.range(0).select(F.lit("").alias("file"), F.lit("").alias("value"))
        # What is missing from a file is found by its manifest, and named; it must not end the job.
        text = self.spark.read.option("ignoreCorruptFiles", "true").text([f"{self.uri}/{root}" for root in roots])
        return text.select(F.col("_metadata.file_path").alias("file"), "value")

    def _roots(self, paths: Sequence[str]) -> list[str]:
        """Return what Spark has to open for the files that are there: the folder where they are all that it holds, since Spark
        lists each path that it is given."""
        wanted: dict[str, set[str]] = {}
        for path in paths:
            folder, _slash, name = path.rpartition("/")
            wanted.setdefault(f"bronze/{folder}", set()).add(name)
        roots = []
        for folder, names in wanted.items():
            there = set(self.files.names(folder))
            roots += [folder] if there and there <= names else [f"{folder}/{name}" for name in sorted(there & names)]
        return roots

    # --- published tables -----------------------------------------------------------------------------------------------

    def pointer(self, layer: str, when: date) -> dict[str, Any]:
        """Return what is published of an hour (silver) or a day (gold, findings): format, run, inputs and more; empty for
        nothing. Raises LakeError when it cannot be read, or is of a newer format than this program knows."""
        name, known = f"{layer}/_published/{place(when)}.json", _FORMATS[layer]
        if not self.files.exists(name):
            return {}
        try:
            found = dict(json.loads(self.files.read_text(name)))
            newer = int(found["format"]) > known
        except (KeyError, TypeError, ValueError) as error:
            what = f"{self.uri}/{name} cannot be read: {error}. Remove it, and what it points to is made again."
            raise LakeError(what) from error
        if newer:
            what = f"format {found['format']} of {self.uri}/{name} is newer than {known}, which this program knows"
            raise LakeError(f"{what}. Use the newer program, or another lake.")
        return found

    def published_days(self, layer: str, before: date | None = None, most: int | None = None) -> list[date]:
        """Return the days of gold or findings that are published in the present format, the oldest first; if given only those
        `before` a day, and the last `most` of them, so that no other pointer is read."""
        names = self.files.names(f"{layer}/_published")
        days = (date.fromisoformat(name[len("date=") : -len(".json")]) for name in names if name.endswith(".json"))
        newest_first = sorted((day for day in days if before is None or day < before), reverse=True)
        published = (day for day in newest_first if self.pointer(layer, day).get("format") == _FORMATS[layer])
        return [*islice(published, most)][::-1]

    def publish(
        self,
        layer: str,
        hour: datetime,
        run: str,
        inputs: Sequence[str],
        quarantined: int,
        incomplete: Sequence[str] = (),
    ) -> None:
        """Make a run's tables those of the hour. `incomplete`: the bronze files that could not be read completely."""
        pointer = {"format": _FORMATS[layer], "run": run, "inputs": list(inputs), "quarantined": quarantined}
        self.repoint(layer, hour, pointer | ({"incomplete": list(incomplete)} if incomplete else {}))

    def repoint(self, layer: str, when: date, pointer: Mapping[str, Any]) -> None:
        self.files.replace_text(f"{layer}/_published/{place(when)}.json", json.dumps(pointer))

    def compacted(self, day: date) -> dict[str, Any]:
        """Return which run holds tables of silver of a whole day, and the runs that it took the hours' rows from, as `of`; empty
        for none. It counts for hours whose pointers name these runs still: so whoever makes an hour again need not know of it."""
        name = f"silver/_compacted/{place(_day(day))}.json"
        return dict(json.loads(self.files.read_text(name))) if self.files.exists(name) else {}

    def repoint_day(self, day: date, run: str, of: Mapping[str, str]) -> None:
        self.files.replace_text(f"silver/_compacted/{place(_day(day))}.json", json.dumps({"run": run, "of": of}))

    def silver_tables(self) -> list[str]:
        """Return the tables of silver that the hours' own pointers are of."""
        return [name for name in self.files.names("silver") if not name.startswith("_") and name not in APART]

    def write(
        self, layer: str, table: str, run: str, frame: DataFrame, mode: str = "error", marked: bool = False
    ) -> DataFrame:
        """Write a table of a run, in a directory for each hour, and return it as it was written. The hour is that of `taken`.
        `marked`: with an empty file _SUCCESS when all of it is there."""
        path = f"{self.uri}/{layer}/{table}/run={run}"
        dated = frame.withColumn("date", F.date_format("taken", "yyyy-MM-dd")).withColumn(
            "hour", F.date_format("taken", "HH")
        )
        dated.write.partitionBy("date", "hour").mode(mode).option(_MARKED, marked).parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path).select(*frame.columns)

    def write_whole_day(self, table: str, run: str, day: datetime, frame: DataFrame, file_size: int) -> None:
        """Write the rows of a silver table of a whole day into as few files as their size allows."""
        path = f"{self.uri}/silver/{table}/run={run}/date={day:%Y-%m-%d}"
        sources = (unquote(file).rpartition("/silver/")[2] for file in frame.inputFiles())
        size = sum(self.files.size(f"silver/{source}")[1] for source in sources)
        frame.coalesce(max(1, size // file_size)).write.mode("error").parquet(path)

    def write_day(self, layer: str, table: str, run: str, day: date, frame: DataFrame) -> DataFrame:
        """Write a table of a day, in gold or findings, and return it as it was written."""
        path = f"{self.uri}/{layer}/{table}/run={run}/{place(day)}"
        frame.write.mode("error").option(_MARKED, False).parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def read_days(self, layer: str, table: str, of_days: Iterable[date]) -> DataFrame | None:
        """Return the published rows of a table of gold or findings in these days, None when there are none. Raises LakeError when
        a day is published in an older format."""
        paths = []
        for day in of_days:
            pointer = self.pointer(layer, day)
            if pointer and pointer["format"] < _FORMATS[layer]:
                raise LakeError(f"{layer} of {day} is of the older format {pointer['format']}: make it again")
            if pointer and self.files.exists(name := f"{layer}/{table}/run={pointer['run']}/{place(day)}"):
                paths.append(f"{self.uri}/{name}")
        return self._rows(layer, table, *paths) if paths else None

    def _rows(self, layer: str, table: str, *paths: str, as_written: bool = False) -> DataFrame:
        if as_written:
            return self.spark.read.option("mergeSchema", "true").parquet(*paths)
        return self.spark.read.schema(_COLUMNS[layer][table]).parquet(*paths)

    def kept_hours(self, layer: str, of_hours: Iterable[datetime]) -> list[datetime]:
        """Return the hours of which something is kept in a layer, in its present format: without silver what is of an older one
        cannot be made again."""
        return [hour for hour in of_hours if self.pointer(layer, hour).get("format") == _FORMATS[layer]]

    def read(self, layer: str, table: str, of_hours: Iterable[datetime], as_written: bool = False) -> DataFrame | None:
        """Return the published rows of a table in these hours, None when there are none; `as_written` also with columns that only
        a newer program knows. Raises LakeError when hours are published in an older format."""
        paths, days = [], defaultdict[str, list[datetime]](list)
        published = f"{layer}/{table}" if table in APART else layer
        compacted: dict[date, dict[str, Any]] = {}
        for hour in of_hours:
            pointer = self.pointer(published, hour)
            if pointer and pointer["format"] < _FORMATS[published]:
                raise LakeError(
                    f"{layer} of {hour:%Y-%m-%d %H}:00 is of the older format {pointer['format']}: make it again"
                )
            if published == "silver" and hour.date() not in compacted:
                compacted[hour.date()] = self.compacted(hour)
            home = home_of(hour, pointer, compacted.get(hour.date(), {})) if pointer else ""
            if home.endswith(place(hour.date())):
                days[f"{layer}/{table}/{home}"].append(hour)
            elif pointer and self.files.exists(name := f"{layer}/{table}/{home}"):
                paths.append(f"{self.uri}/{name}")
        frames = [self._rows(layer, table, *paths, as_written=as_written)] if paths else []
        for name, wanted in days.items():
            if self.files.exists(name):
                frame = self._rows(layer, table, f"{self.uri}/{name}", as_written=as_written)
                frames.append(frame if len(wanted) == _HOURS else frame.where(_within(wanted)))
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames) if frames else None


def _within(of_hours: Sequence[datetime]) -> Column:
    """Return whether `taken` is in one of the hours, as ranges that Parquet's statistics decide on."""
    spans: list[tuple[datetime, datetime]] = []
    for hour in of_hours:
        joins = spans and spans[-1][1] == hour
        spans[-1:] = [*spans[-1:], (hour, hour + _HOUR)] if not joins else [(spans[-1][0], hour + _HOUR)]
    return reduce(Column.__or__, ((F.col("taken") >= start) & (F.col("taken") < end) for start, end in spans))
