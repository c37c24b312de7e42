# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage of the tables: manifests, published runs, quarantine. A lake is any URI that Spark can read."""

from __future__ import annotations

import json
import os
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from difflib import get_close_matches
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jetstream_insights import gold, silver
from jetstream_insights.fields import Bronze
from jetstream_insights.files import LakeError, absolute_uri, lake_files
from jetstream_insights.findings import lifetime, over_time

_Date = TypeVar("_Date", bound=date)

#: Formats of manifests and pointers. An added column needs no new format: it is null in older files. See docs/internals/lake.md.
BRONZE_FORMATS = (1, 2)
SILVER_FORMAT = 4
GOLD_FORMAT = 3
#: The tables of hours remain stored, and are read together with those of other hours: any change of their columns or rows needs a
#: new format.
FACTS_FORMAT = 6
FINDINGS_FORMAT = 4
JUDGED_FORMAT = 6
ADVISORIES_FORMAT = 3
#: The layer of the hourly aggregates for gold. Readers of gold skip it.
FACTS = "gold/_hours"
#: The layer of the hourly results for findings.
JUDGED = "findings/_hours"
_FORMATS = {
    "silver": SILVER_FORMAT,
    "silver/advisories": ADVISORIES_FORMAT,
    "gold": GOLD_FORMAT,
    FACTS: FACTS_FORMAT,
    "findings": FINDINGS_FORMAT,
    JUDGED: JUDGED_FORMAT,
}

#: Suffix of a bronze file with typed columns; others are lines of JSON.
COLUMNS = ".parquet"
#: Suffix of a pack: many snapshots of an hour in few files.
PACK = ".jsonl"
#: The file with the last day whose histories have expired.
_EXPIRED = "_expired"

#: Whether Hadoop marks a complete write with a file; pointers already show that for all published tables. On a local disk each
#: such file starts a process `chmod`, and another for its checksum.
_MARKED = "mapreduce.fileoutputcommitter.marksuccessfuljobs"

#: Silver tables that are not made from snapshots, and have their own pointers, below their own folder.
APART = ("advisories",)

#: The columns of all tables, by layer.
_COLUMNS = {
    "silver": silver.COLUMNS,
    "gold": {name: table.schema for name, table in gold.TABLES.items()},
    FACTS: {name: table.schema for name, table in gold.FACTS.items()},
    "findings": lifetime.COLUMNS,
    JUDGED: {**lifetime.HOURLY_COLUMNS, **over_time.KEPT},
}
#: The layers whose tables docs/reference/insights_tables.md describes.
LAYERS = ("silver", "gold", "findings")
_HOUR = timedelta(hours=1)
_HOURS = 24


def columns(layer: str, table: str) -> StructType:
    """Return the schema with which a table is read."""
    found = StructType.fromDDL(_COLUMNS[layer][table])
    assert isinstance(found, StructType)
    return found


def _unknown_table(layer: str, table: str) -> str:
    """Return the error for a name that is not in the reference."""
    where = [name for name in LAYERS if table in _COLUMNS[name]]
    if layer not in LAYERS:
        return f"the layer {layer} does not exist. Known: {', '.join(LAYERS)}"
    similar = [f"{name}.{table}" for name in where] or get_close_matches(table, _COLUMNS[layer], 3)
    hint = f" (similar: {', '.join(similar)})" if similar else ""
    return f"{layer} has no table {table}{hint}: see docs/reference/insights_tables.md"


def place(when: date) -> str:
    """Return the directories of an hour, or of a day for a plain date."""
    return f"date={when:%Y-%m-%d}" + (f"/hour={when:%H}" if isinstance(when, datetime) else "")


def _day(when: date) -> date:
    return when.date() if isinstance(when, datetime) else when


def home_folder(hour: datetime, pointer: Mapping[str, Any], compacted: Mapping[str, Any]) -> str:
    """Return the folder of an hour's rows below each table's: that of its day if the day was compacted with these rows."""
    if compacted.get("of", {}).get(f"{hour:%H}") == pointer["run"]:
        return f"run={compacted['run']}/{place(hour.date())}"
    return f"run={pointer['run']}/{place(hour)}"


def hours(start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the hours that overlap the time from `start` up to and without `end`."""
    hour = start.replace(minute=0, second=0, microsecond=0)
    while hour < end:
        yield hour
        hour += timedelta(hours=1)


def day_hours(day: date) -> list[datetime]:
    """Return the hours of a day."""
    start = datetime.combine(day, time(), timezone.utc)
    return list(hours(start, start + timedelta(days=1)))


def new_run() -> str:
    """Return the name of a new run that begins now."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def relative(path: str) -> str:
    """Return a bronze file's path as in its manifest, from Spark's URI."""
    return unquote(path).rpartition("/bronze/")[2]


def file_hour(file: Column) -> Column:
    """Return the hour of a file, from its directories."""
    plain = F.replace(file, F.lit("%3D"), F.lit("="))
    found = F.concat_ws(" ", F.regexp_extract(plain, r"date=([^/]+)", 1), F.regexp_extract(plain, r"hour=([^/]+)", 1))
    return F.try_to_timestamp(found, F.lit("yyyy-MM-dd HH"))


#: Number of tables of a small lake that are computed in parallel. In other lakes one table uses all cores and all memory.
AT_ONCE = 2
#: Upper limits, in bytes and files, of the relevant days in a small lake, and of the new data for which jobs end soon.
LITTLE = (4 << 20, 5000)
SOON = (128 << 20, 50_000)


def is_little(uri: str, selected_days: Iterable[date], most: tuple[int, int] = LITTLE, since: float = 0.0) -> bool:
    """Return whether a lake on a local disk has little data of these days and the day before them that is newer than `since`.
    Works without Spark, which is started accordingly. Other lakes are never small."""
    root = _on_this_disk(uri)
    if root is None:
        return False
    wanted = _with_day_before(selected_days)
    left, files = most
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith("date=") or name in wanted]
        for name in names:
            try:
                found = os.stat(f"{folder}/{name}")
            except OSError:
                continue  # removed in the meantime
            if found.st_mtime > since:
                left -= found.st_size
                files -= 1
        if left < 0 or files < 0:
            return False
    return True


def last_published(uri: str, layers: Iterable[str], selected_days: Iterable[date]) -> float:
    """Return when each of these layers was last published, for these days and the day before them, by the clock of files; 0 if
    one never was, or the lake is not on a local disk."""
    root, wanted = _on_this_disk(uri), _with_day_before(selected_days)

    def of(layer: str) -> float:
        pointers = Path(root or "", layer, "_published")
        last = 0.0
        for path in (
            path for day in wanted for form in (f"{day}.json", f"{day}/*.json") for path in pointers.glob(form)
        ):
            with suppress(OSError):  # removed in the meantime
                last = max(last, path.stat().st_mtime)
        return last

    return 0.0 if root is None else min(map(of, layers), default=0.0)


def _on_this_disk(uri: str) -> str | None:
    """Return the folder of a lake on a local disk. A path may also belong to Hadoop's default file system."""
    parts = urlsplit(uri)
    root = unquote(parts.path) if parts.scheme else uri
    return root if parts.scheme in ("", "file") and os.path.isdir(root) else None


def _with_day_before(selected_days: Iterable[date]) -> set[str]:
    listed = sorted(selected_days)
    return {place(day) for day in [*listed, *(day - timedelta(days=1) for day in listed[:1])]}


class Lake:
    """A lake at a URI or path. `little`: whether it is so small that planning takes longer than reading; then independent tables
    are computed in parallel (`at_once`), and caches that only save reading are not written."""

    def __init__(self, spark: SparkSession, uri: str, little: bool = False) -> None:
        self.spark = spark
        self.little = little
        self.at_once = AT_ONCE if little else 1
        self.uri = absolute_uri(spark, uri.rstrip("/"))
        self.files = lake_files(spark, self.uri)

    def nothing(self, columns: str) -> DataFrame:
        """Return a table without rows that the planner recognizes as empty: a join with it costs nothing."""
        return self.spark.createDataFrame([], columns).limit(0)

    # --- folders ------------------------------------------------------------------------------------------------------

    def days(self, folder: str) -> list[datetime]:
        """Return the days in a folder."""
        names = (name.partition("=") for name in self.files.names(folder))
        return [
            datetime.fromisoformat(text).replace(tzinfo=timezone.utc) for key, _equals, text in names if key == "date"
        ]

    def unread_days(self, before: date) -> list[date]:
        """Return the days with snapshots before a day that no job has read, the oldest first."""
        published = [*self.files.names("silver/_published"), *self.files.names("gold/_published")]
        read = {name.removesuffix(".json") for name in published}
        expired = self._last_expired()
        with_snapshots = sorted(day.date() for day in self.days("bronze/manifest"))
        return [day for day in with_snapshots if expired < day < before and place(day) not in read]

    def record_read(self, day: date) -> None:
        """Record a day whose tables expire; its snapshots must not appear as unread."""
        if day > self._last_expired():
            self.files.replace_text(_EXPIRED, day.isoformat())

    def _last_expired(self) -> date:
        """Return the last day whose tables have expired."""
        return date.fromisoformat(self.files.read_text(_EXPIRED)) if self.files.exists(_EXPIRED) else date.min

    def join_columns(self, sources: Sequence[str], target: str, columns: StructType, draft: str) -> None:
        """Write the rows of Parquet files into a new one; `draft`: a temporary folder."""
        read = self.spark.read.schema(columns).parquet(*(f"{self.uri}/{name}" for name in sources))
        read.coalesce(1).write.mode("overwrite").parquet(f"{self.uri}/{draft}")
        (part,) = (name for name in self.files.names(draft) if name.endswith(COLUMNS))
        self.files.move(f"{draft}/{part}", target)
        self.files.delete(draft)

    def delete_run(self, layer: str, run: str) -> None:
        """Remove the files that a failed job wrote into a layer."""
        for table in self.files.names(layer):
            self.files.delete(f"{layer}/{table}/run={run}")

    # --- bronze -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise LakeError if there are no snapshots to read."""
        if not self.files.exists("bronze/manifest"):
            raise LakeError(
                f"{self.uri} is not a lake: bronze/manifest is missing or unreadable. Take a snapshot first."
            )

    def snapshots(self, hour: datetime) -> list[str]:
        """Return the names of the snapshots of an hour."""
        return sorted(self.manifests(hour))

    def manifests(self, hour: datetime) -> dict[str, str]:
        """Return the manifests of an hour, by snapshot: the text if a pack has it, otherwise empty."""
        return {snapshot: packed for snapshot, (_file, packed) in self.manifest_files(hour).items()}

    def manifest_files(self, hour: datetime) -> dict[str, tuple[str, str]]:
        """Return the file with the manifest of each snapshot of an hour, and its text if the file is a pack. The last pack wins
        over its sources. An unreadable pack counts as a snapshot named after its file."""
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
        """Return a snapshot's manifest, possibly from a pack. Raises ValueError if it is invalid or has an unknown format."""
        text = packed or self.files.read_text(f"bronze/manifest/{place(hour)}/{snapshot}.json")
        content = json.loads(text)
        if (
            not isinstance(content, dict)
            or content.get("format") not in BRONZE_FORMATS
            or content.get("snapshot") != snapshot
        ):
            formats = " or ".join(map(str, BRONZE_FORMATS))
            raise ValueError(f"it does not have format {formats}, or its snapshot differs from its name")
        if not snapshot.startswith(f"{hour:%Y%m%dT%H}"):
            raise ValueError("it is in the folder of another hour")
        return content

    def bronze(self, paths: Sequence[str], columns: StructType) -> Bronze:
        """Return the content of the existing bronze files; `columns`: the columns to read from typed files."""
        typed = [path for path in paths if path.endswith(COLUMNS)]
        lines = self.lines([path for path in paths if not path.endswith(COLUMNS)]) if len(typed) < len(paths) else None
        roots = self._roots(typed)
        if not roots:
            return Bronze(self.lines([]) if lines is None else lines)
        read = self.spark.read.option("ignoreCorruptFiles", "true").schema(columns)
        frame = read.parquet(*(f"{self.uri}/{root}" for root in roots))
        return Bronze(lines, frame.select(F.col("_metadata.file_path").alias("file"), "*"))

    def lines(self, paths: Sequence[str]) -> DataFrame:
        """Return the content of the existing bronze files: `file`, and the `value` of each line unchanged."""
        roots = self._roots(paths)
        if not roots:
            return self.spark.range(0).select(F.lit("").alias("file"), F.lit("").alias("value"))
        # Missing lines are detected and reported by comparison with the manifest; they must not end the job.
        text = self.spark.read.option("ignoreCorruptFiles", "true").text([f"{self.uri}/{root}" for root in roots])
        return text.select(F.col("_metadata.file_path").alias("file"), "value")

    def _roots(self, paths: Sequence[str]) -> list[str]:
        """Return the paths to open for the existing files: a folder if they are its only files, because Spark lists each path
        that it is given."""
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
        """Return the pointer of an hour (silver) or a day (gold, findings): format, run, inputs and more; empty for none.
        Raises LakeError if it is unreadable or has a newer format."""
        name, known = f"{layer}/_published/{place(when)}.json", _FORMATS[layer]
        if not self.files.exists(name):
            return {}
        try:
            found = dict(json.loads(self.files.read_text(name)))
            newer = int(found["format"]) > known
        except (KeyError, TypeError, ValueError) as error:
            what = f"{self.uri}/{name} cannot be read: {error}. Remove it and run the job again."
            raise LakeError(what) from error
        if newer:
            what = f"{self.uri}/{name} has format {found['format']}; this program supports formats up to {known}"
            raise LakeError(f"{what}. Use the newer program, or another lake.")
        return found

    def published_days(self, layer: str, before: date | None = None, most: int | None = None) -> list[date]:
        """Return the days of a layer that are published in the present format, the oldest first; if given only those `before` a
        day, and the last `most` of them, so no other pointer is read. A day of silver has at least one such hour."""
        names = (name.removesuffix(".json") for name in self.files.names(f"{layer}/_published"))
        days = (date.fromisoformat(name[len("date=") :]) for name in names if name.startswith("date="))
        newest_first = sorted((day for day in days if before is None or day < before), reverse=True)
        pointers = day_hours if layer == "silver" else lambda day: [day]
        published = (day for day in newest_first if self.kept_hours(layer, pointers(day)))
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
        """Return the run with silver tables of an entire day, and as `of` the runs of its hours; empty for none. It is valid for
        hours whose pointers still name these runs, so a job that recomputes an hour can ignore it."""
        name = f"silver/_compacted/{place(_day(day))}.json"
        return dict(json.loads(self.files.read_text(name))) if self.files.exists(name) else {}

    def repoint_day(self, day: date, run: str, of: Mapping[str, str]) -> None:
        self.files.replace_text(f"silver/_compacted/{place(_day(day))}.json", json.dumps({"run": run, "of": of}))

    def silver_tables(self) -> list[str]:
        """Return the silver tables that the hours' own pointers cover."""
        return [name for name in self.files.names("silver") if not name.startswith("_") and name not in APART]

    def write(
        self, layer: str, table: str, run: str, frame: DataFrame, mode: str = "error", marked: bool = False
    ) -> DataFrame:
        """Write a table of a run, in a directory for each hour of `taken`, and return it as it was written. `marked`: add an
        empty file _SUCCESS when the table is complete."""
        path = f"{self.uri}/{layer}/{table}/run={run}"
        dated = frame.withColumn("date", F.date_format("taken", "yyyy-MM-dd")).withColumn(
            "hour", F.date_format("taken", "HH")
        )
        dated.write.partitionBy("date", "hour").mode(mode).option(_MARKED, marked).parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path).select(*frame.columns)

    def write_whole_day(self, table: str, run: str, day: datetime, frame: DataFrame, file_size: int) -> None:
        """Write an entire day's rows of a silver table into as few files as their size allows."""
        path = f"{self.uri}/silver/{table}/run={run}/date={day:%Y-%m-%d}"
        sources = (unquote(file).rpartition("/silver/")[2] for file in frame.inputFiles())
        size = sum(self.files.size(f"silver/{source}")[1] for source in sources)
        frame.coalesce(max(1, size // file_size)).write.mode("error").parquet(path)

    def write_day(self, layer: str, table: str, run: str, day: date, frame: DataFrame) -> DataFrame:
        """Write a table of a day, in gold or findings, and return it as it was written."""
        path = f"{self.uri}/{layer}/{table}/run={run}/{place(day)}"
        frame.write.mode("error").option(_MARKED, False).parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def write_draft(self, name: str, frame: DataFrame) -> str:
        """Write rows that only the running job reads into a new folder below `name`, and return its URI."""
        path = f"{self.uri}/{name}/{new_run()}"
        frame.write.option(_MARKED, False).parquet(path)
        return path

    def read_days(self, layer: str, table: str, selected_days: Iterable[date]) -> DataFrame:
        """Return the published rows of a table in these days; without any, an empty table with the same columns. Days that are
        not in published_days have no rows. Raises LakeError for an unknown table, or if a day is published in an older format."""
        if layer not in LAYERS or table not in _COLUMNS[layer]:
            raise LakeError(_unknown_table(layer, table))
        found = self.find_days(layer, table, selected_days)
        return self.nothing(_COLUMNS[layer][table]) if found is None else found

    def find_days(self, layer: str, table: str, selected_days: Iterable[date]) -> DataFrame | None:
        """Return the published rows of a table in these days, None if there are none, so callers skip the plans of missing
        tables. Raises LakeError if a day is published in an older format."""
        if layer == "silver":
            return self.read(layer, table, [hour for day in selected_days for hour in day_hours(day)])
        paths = []
        for day in selected_days:
            pointer = self.pointer(layer, day)
            if pointer and pointer["format"] < _FORMATS[layer]:
                raise self._older(layer, day, pointer)
            if pointer and self.files.exists(name := f"{layer}/{table}/run={pointer['run']}/{place(day)}"):
                paths.append(f"{self.uri}/{name}")
        return self._rows(layer, table, *paths) if paths else None

    def _older(self, layer: str, when: date, pointer: Mapping[str, Any]) -> LakeError:
        """Return the refusal of tables that an older version wrote, with the command that replaces them."""
        job = [part for part in layer.split("/") if not part.startswith("_")][-1]
        moment = f"{when:%Y-%m-%d %H}:00" if isinstance(when, datetime) else f"{when}"
        day = _day(when)
        return LakeError(
            f"the tables of {layer} of {moment} have the format {pointer['format']} of an older version. Run `{job} --from {day} "
            f"--to {day + timedelta(days=1)}`; if their source has expired, remove "
            f"{self.uri}/{layer}/_published/{place(when)}.json"
        )

    def _rows(self, layer: str, table: str, *paths: str, as_written: bool = False) -> DataFrame:
        if as_written:
            return self.spark.read.option("mergeSchema", "true").parquet(*paths)
        return self.spark.read.schema(_COLUMNS[layer][table]).parquet(*paths)

    def kept_hours(self, layer: str, selected_hours: Iterable[_Date]) -> list[_Date]:
        """Return the hours with stored rows in a layer, or its days, in its present format: without silver, rows of an older
        format cannot be computed again."""
        return [hour for hour in selected_hours if self.pointer(layer, hour).get("format") == _FORMATS[layer]]

    def read(
        self, layer: str, table: str, selected_hours: Iterable[datetime], as_written: bool = False
    ) -> DataFrame | None:
        """Return the published rows of a table in these hours, None if there are none; `as_written` also with columns that only a
        newer program has. Raises LakeError if hours are published in an older format."""
        homes = self._homes(_pointers(layer, table), selected_hours)
        return self._rows_of_hours(layer, table, homes, as_written)

    def read_tables(
        self, layer: str, tables: Iterable[str], selected_hours: Collection[datetime]
    ) -> dict[str, DataFrame]:
        """Return the published rows of several tables in these hours, without the tables that have none. The pointers of the
        hours are read once for all tables. Raises LakeError if hours are published in an older format."""
        homes: dict[str, dict[datetime, str]] = {}
        found = {}
        for table in tables:
            published = _pointers(layer, table)
            if published not in homes:
                homes[published] = self._homes(published, selected_hours)
            if (rows := self._rows_of_hours(layer, table, homes[published])) is not None:
                found[table] = rows
        return found

    def _homes(self, published: str, selected_hours: Iterable[datetime]) -> dict[datetime, str]:
        """Return the folder, below that of a table, with the rows of each hour that has a pointer in the layer `published`.
        Raises LakeError if hours are published in an older format."""
        homes = {}
        compacted: dict[date, dict[str, Any]] = {}
        for hour in selected_hours:
            pointer = self.pointer(published, hour)
            if pointer and pointer["format"] < _FORMATS[published]:
                raise self._older(published, hour, pointer)
            if published == "silver" and hour.date() not in compacted:
                compacted[hour.date()] = self.compacted(hour)
            if pointer:
                homes[hour] = home_folder(hour, pointer, compacted.get(hour.date(), {}))
        return homes

    def _rows_of_hours(
        self, layer: str, table: str, homes: Mapping[datetime, str], as_written: bool = False
    ) -> DataFrame | None:
        """Return the rows of a table in the hours with these folders, None if there are none."""
        paths, days = [], defaultdict[str, list[datetime]](list)
        for hour, home in homes.items():
            if home.endswith(place(hour.date())):
                days[f"{layer}/{table}/{home}"].append(hour)
            elif self.files.exists(name := f"{layer}/{table}/{home}"):
                paths.append(f"{self.uri}/{name}")
        frames = [self._rows(layer, table, *paths, as_written=as_written)] if paths else []
        for name, wanted in days.items():
            if self.files.exists(name):
                frame = self._rows(layer, table, f"{self.uri}/{name}", as_written=as_written)
                frames.append(frame if len(wanted) == _HOURS else frame.where(_within(wanted)))
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames) if frames else None


def _pointers(layer: str, table: str) -> str:
    """Return the layer whose pointers cover a table."""
    return f"{layer}/{table}" if table in APART else layer


def _within(selected_hours: Sequence[datetime]) -> Column:
    """Return whether `taken` is in one of the hours, as ranges for which Parquet's statistics can be used."""
    spans: list[tuple[datetime, datetime]] = []
    for hour in selected_hours:
        joins = spans and spans[-1][1] == hour
        spans[-1:] = [*spans[-1:], (hour, hour + _HOUR)] if not joins else [(spans[-1][0], hour + _HOUR)]
    return reduce(Column.__or__, ((F.col("taken") >= start) & (F.col("taken") < end) for start, end in spans))
