# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The silver job: it reads bronze, writes the tables of hours and publishes them when they are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import reduce
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import TABLES, Reported
from ansible_collections.natsops.jetstream.plugins.module_utils.times import parse_time
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jetstream_insights import silver
from jetstream_insights.fields import bronze_schema, is_line
from jetstream_insights.files import LakeError
from jetstream_insights.lake import SILVER_FORMAT, Lake, file_hour, new_run, place, relative
from jetstream_insights.parallel import make_all

#: Hours in a run: enough to make the fixed cost of each table small, few enough to lose little if the run is killed.
HOURS_AT_ONCE = 24

#: Maximum number of times that the tables of a run are written while a second reading finds more lines.
_ATTEMPTS = 3

#: The part of a table's lines with unknown keys beyond which the job reports them: such lines take many times as long.
_MANY = 0.1

Say = Callable[[str], None]

#: A table with nothing but the common columns of bronze.
NOTHING = Reported((), ())
_QUARANTINE = "file string, reason string, value string"
#: Prefix of the names of manifests in quarantine.
_MANIFEST = "manifest/"


@dataclass
class JobResult:
    """The result of a job: hours or days that were made, that were up to date, that have no snapshots; lines and files in
    quarantine."""

    made: int = 0
    fresh: int = 0
    empty: int = 0
    quarantined: int = 0


@dataclass
class Silver(JobResult):
    """`unknown_keys`: by bronze table, the number of lines with keys for which there is no column."""

    unknown_keys: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Hour:
    """An hour to be made from these snapshots: their manifests, if a pack has them. `before`: the pointer to earlier rows
    that are kept as well, because their snapshots are gone."""

    start: datetime
    snapshots: dict[str, str]
    before: dict[str, Any] = field(default_factory=dict)


@dataclass
class BronzeSource:
    """A bronze table according to the manifests: the number of lines in each of its files, and of each snapshot, and whether any
    line reports a failure."""

    files: Counter[str] = field(default_factory=Counter)
    snapshots: Counter[str] = field(default_factory=Counter)
    failing: bool = False


@dataclass
class LineCounts:
    """The lines of a bronze table that are in silver: of each snapshot, and the number of all lines with unknown keys."""

    of: Counter[str] = field(default_factory=Counter)
    unknown: int = 0


@dataclass(frozen=True)
class Reread:
    """A second reading of the bronze tables with lines that silver may lack: these tables, and the number of lines and of torn
    lines in each file."""

    sources: list[str]
    files: dict[str, tuple[int, int]]


@dataclass
class Inputs:
    """The input of a run: rows of the table of snapshots, the bronze tables, and the invalid manifests with the reason.
    `domains`: whether all lines have a JetStream domain."""

    snapshots: list[tuple[Any, ...]] = field(default_factory=list)
    sources: dict[str, BronzeSource] = field(default_factory=dict)
    broken: list[tuple[str, str]] = field(default_factory=list)
    domains: bool = True

    def files(self, *sources: str) -> list[str]:
        """Return the files of some bronze tables."""
        return [path for source in sources if source in self.sources for path in self.sources[source].files]


def make_silver(lake: Lake, hours: Iterable[datetime], say: Say, force: bool = False) -> Silver:
    """Make the silver tables of the hours with other snapshots than those that the tables were made from."""
    outcome = Silver()
    stale = list(_stale(lake, hours, outcome, force, say))
    whole, late = ([hour for hour in stale if bool(hour.before) == added] for added in (False, True))
    for some in (
        of[start : start + HOURS_AT_ONCE] for of in (whole, late) for start in range(0, len(of), HOURS_AT_ONCE)
    ):
        outcome.quarantined += _run(lake, some, say, outcome.unknown_keys)
        outcome.made += len(some)
        say(f"{outcome.made} of {len(stale)} hours made, {outcome.quarantined} lines or files in quarantine")
    return outcome


def _stale(lake: Lake, hours: Iterable[datetime], outcome: JobResult, force: bool, say: Say) -> Iterator[Hour]:
    for hour in hours:
        snapshots = lake.manifests(hour)
        pointer = lake.pointer("silver", hour)
        known = set(pointer.get("inputs", ()))
        late = {name: packed for name, packed in snapshots.items() if name not in known}
        # Rows remain valid when their snapshots have been deleted.
        if (
            snapshots
            and known <= snapshots.keys()
            and (force or late or _older(pointer) or _recovered(lake, Hour(hour, snapshots), pointer))
        ):
            yield Hour(hour, snapshots)
        elif late and not _older(pointer):
            yield Hour(hour, late, pointer)
        elif pointer:
            if late:
                what = f"{len(late)} snapshots cannot be added to tables of the older format {pointer['format']}"
                say(f"{hour:%Y-%m-%d %H}:00: {what}, which cannot be recomputed because their snapshots are gone")
            outcome.fresh += 1
            outcome.quarantined += int(pointer.get("quarantined", 0))
        else:
            outcome.empty += 1


def _older(pointer: Mapping[str, Any]) -> bool:
    return int(pointer.get("format", 0)) < SILVER_FORMAT


def _recovered(lake: Lake, hour: Hour, pointer: Mapping[str, Any]) -> bool:
    """Return whether a file that was incomplete when the tables of an hour were made can be read completely now."""
    incomplete = set(pointer.get("incomplete", ()))
    if not incomplete:
        return False
    inputs = read_manifests(lake, [hour])
    unreadable = {name for name, _reason in inputs.broken}
    if any(name.startswith(_MANIFEST) and name not in unreadable for name in incomplete):
        return True
    wanted = {path: rows for source in inputs.sources.values() for path, rows in source.files.items()}
    there = [path for path in wanted.keys() & incomplete if lake.files.exists(f"bronze/{path}")]
    return bool(there) and any(lines == wanted[path] for path, (lines, _torn) in _count_lines(lake, there).items())


def _run(lake: Lake, hours: Sequence[Hour], say: Say, unknown_keys: dict[str, int]) -> int:
    """Make and publish the tables of some hours, which all have earlier rows or all have none; return the number of lines and
    files in quarantine, and count the lines with `unknown_keys`."""
    run = new_run()
    inputs = read_manifests(lake, hours)
    earlier = [hour.start for hour in hours if hour.before]
    try:
        written, arrived, reread = _write_completely(
            lake, run, inputs, lambda text: say(f"{hours[0].start:%Y-%m-%d %H}:00 … {text}")
        )
        found, incomplete = _quarantine(lake, run, inputs, reread)
        _count_unknown(written, arrived, unknown_keys, say)
        if earlier:
            _add_rows(lake, run, earlier)
    except Exception:
        lake.delete_run("silver", run)
        raise
    total = 0
    for hour in hours:
        quarantined = found.get(place(hour.start), 0) + int(hour.before.get("quarantined", 0))
        names = sorted({*hour.snapshots, *hour.before.get("inputs", ())})
        lacks = [path for path in incomplete if f"/{place(hour.start)}/" in path]
        lake.publish("silver", hour.start, run, names, quarantined, lacks)
        total += quarantined
    return total


def _write_completely(
    lake: Lake, run: str, inputs: Inputs, say: Say
) -> tuple[dict[str, DataFrame], dict[str, LineCounts], Reread]:
    """Write the tables of a run, and repeat this while they lack lines that a second reading finds: after a read error Spark
    skips the rest of a file, and a transient error leaves no other trace. A constant difference is not a read error. Raises
    LakeError if the attempts still differ at the end."""
    before: dict[str, tuple[int, int]] = {}
    for attempt in range(1, _ATTEMPTS + 1):
        written = _write(lake, run, inputs, say)
        arrived = _lines(written)
        reread = _read_again(lake, inputs, arrived)
        lacking = _lacking(inputs, arrived, reread)
        if not lacking or (attempt == _ATTEMPTS and lacking == before):
            return written, arrived, reread
        before = lacking
        for name, (rows, lines) in lacking.items():
            say(f"attempt {attempt} of {_ATTEMPTS}: {rows} lines of {name} were read, then {lines}")
        lake.delete_run("silver", run)
    (name, (rows, lines)), *_others = before.items()
    raise LakeError(
        f"{lake.uri}/bronze/{name} cannot be read reliably: {_ATTEMPTS} attempts differ, the last one read {rows} lines, then "
        f"{lines}. Nothing of these hours was published. Check the disk or object store, then run the job again."
    )


def _lacking(inputs: Inputs, arrived: Mapping[str, LineCounts], reread: Reread) -> dict[str, tuple[int, int]]:
    """Return the bronze tables for which silver has another number of lines than the second reading, with both numbers."""
    found = {}
    for name in set(reread.sources) & silver.counted():
        each = (reread.files.get(path, (0, 0)) for path in inputs.sources[name].files)
        lines = sum(lines - torn for lines, torn in each)
        rows = arrived.get(name, LineCounts()).of.total()
        if lines != rows:
            found[name] = rows, lines
    return found


def _add_rows(lake: Lake, run: str, hours: Sequence[datetime]) -> None:
    """Add the published rows of these hours to a run. Tables with one row an hour, instead of a snapshot, then have two."""
    for table in lake.silver_tables():
        before = lake.read("silver", table, hours, as_written=True)
        if before is not None:
            lake.write("silver", table, run, before, "append")


def _write(lake: Lake, run: str, inputs: Inputs, begin: Say) -> dict[str, DataFrame]:
    """Write the tables of a run, and return them as they were written."""
    written: dict[str, DataFrame] = {}

    def make(name: str) -> None:
        table = silver.TABLES[name]
        if not inputs.files(*table.bronze[:1]) and (table.bronze or table.silver[0] not in written):
            return  # no server reported anything for it
        begin(name)
        reported = [lake.bronze(inputs.files(source), bronze_schema(TABLES[source])) for source in table.bronze]
        made = [written[source] if source in written else empty(lake, source) for source in table.silver]
        written[name] = lake.write("silver", name, run, with_domains(table.make(*reported, *made)))

    def with_domains(frame: DataFrame) -> DataFrame:
        asked = not inputs.domains and "servers" in written and {"server_id", "domain"} <= {*frame.columns}
        return silver.with_domains(frame, written["servers"]) if asked else frame

    servers = () if inputs.domains else ("servers",)
    needs = {
        name: table.silver if "servers" in table.bronze else (*table.silver, *servers)
        for name, table in silver.TABLES.items()
    }
    make_all(needs, make, lake.at_once)
    if inputs.snapshots:
        lake.write(
            "silver", "snapshots", run, lake.spark.createDataFrame(inputs.snapshots, silver.COLUMNS["snapshots"])
        )
    failing = inputs.files(*(name for name, source in inputs.sources.items() if source.failing))
    if failing:
        failed = with_domains(silver.failures(lake.bronze(failing, bronze_schema(NOTHING))))
        written["failures"] = lake.write("silver", "failures", run, failed)
    return written


def empty(lake: Lake, name: str) -> DataFrame:
    """Return a silver table without rows."""
    return lake.nothing(silver.COLUMNS[name])


def silver_rows(lake: Lake, name: str, selected_hours: Sequence[datetime]) -> DataFrame:
    """Return the rows of a silver table in some hours, possibly none."""
    return silver_tables(lake, [name], selected_hours)[name]


def silver_tables(lake: Lake, names: Collection[str], selected_hours: Sequence[datetime]) -> dict[str, DataFrame]:
    """Return the rows of several silver tables in some hours; a table may have none."""
    found = lake.read_tables("silver", names, selected_hours)
    return {name: found[name] if name in found else empty(lake, name) for name in names}


def read_manifests(lake: Lake, hours: Sequence[Hour]) -> Inputs:
    """Return the contents of these hours' snapshots. An unreadable manifest is listed in `broken`."""
    inputs = Inputs()
    for hour in hours:
        for snapshot, packed in sorted(hour.snapshots.items()):
            try:
                manifest = lake.manifest(hour.start, snapshot, packed)
                row = _snapshot(manifest)
                tables = [
                    (name, [(str(file["path"]), int(file["rows"])) for file in table["files"]], bool(table["failures"]))
                    for name, table in manifest["tables"].items()
                ]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                reason = f"unreadable manifest: {type(error).__name__}: {error}"
                inputs.broken.append((f"{_MANIFEST}{place(hour.start)}/{snapshot}.json", reason))
                continue
            inputs.snapshots.append(row)
            inputs.domains &= "domains" in manifest
            for name, files, failing in tables:
                source = inputs.sources.setdefault(name, BronzeSource())
                source.failing |= failing
                for path, rows in files:
                    source.files[path] += rows
                    source.snapshots[snapshot] += rows
    return inputs


def _torn() -> Column:
    return ~is_line(F.col("file"), F.col("value"))


def _snapshot(manifest: dict[str, Any]) -> tuple[Any, ...]:
    """Return a manifest's row of the table of snapshots. Its time is the one in its name, as everywhere."""
    clock = manifest["clock_offset"] or {}
    return (
        manifest["fleet"],
        manifest["snapshot"],
        datetime.strptime(manifest["snapshot"].rpartition("-")[0], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=timezone.utc),
        parse_time(manifest["ended"]),
        manifest["source"],
        int(manifest["servers"]),
        int(manifest["servers_known"]),
        [str(name) for name in manifest["missing"]],
        bool(manifest["complete"]),
        int(manifest["failures"]),
        *(clock.get(name) for name in ("min", "median", "max")),
        manifest["slowest_rtt"],
        # An archive does not list the endpoints that it was made from.
        sorted(manifest["seconds"]) if "seconds" in manifest else None,
        manifest.get("sequence"),
    )


def _read_again(lake: Lake, inputs: Inputs, arrived: Mapping[str, LineCounts]) -> Reread:
    """Count the lines of the files from which silver may lack some."""
    doubtful = suspects(inputs, arrived)
    return Reread(doubtful, _count_lines(lake, inputs.files(*doubtful)) if doubtful else {})


def _count_lines(lake: Lake, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the number of lines, and of torn lines, in each of these bronze files."""
    files = lake.bronze(paths, bronze_schema(NOTHING))
    kinds = ((files.lines, _torn()), (files.columns, F.lit(False)))
    each = [frame.select("file", bad.alias("bad")) for frame, bad in kinds if frame is not None]
    counted = (
        reduce(DataFrame.unionByName, each)
        .groupBy("file")
        .agg(F.count("*").alias("lines"), F.count_if("bad").alias("bad"))
    )
    return {relative(row["file"]): (row["lines"], row["bad"]) for row in counted.collect()}


def _quarantine(lake: Lake, run: str, inputs: Inputs, reread: Reread) -> tuple[dict[str, int], list[str]]:
    """Write the unreadable lines and files with the reason. Return the number of lines and files of each hour, by its
    directories, and the names of the incomplete files."""
    whole = list(inputs.broken)
    for source in reread.sources:
        for path, rows in inputs.sources[source].files.items():
            lines, _bad = reread.files.get(path, (0, 0))
            if lines != rows:
                whole.append((path, f"{lines} of {rows} lines are readable"))
    bad = [path for path, (_lines, wrong) in reread.files.items() if wrong]
    if not whole and not bad:
        return {}, []
    torn = (
        lake.lines(bad)
        .where(_torn())
        .select(
            "file", F.lit("not a line of this snapshot").alias("reason"), F.substring("value", 1, 4096).alias("value")
        )
    )
    rows_of_files = lake.spark.createDataFrame([(file, reason, None) for file, reason in whole], _QUARANTINE)
    lake.write(
        "silver", "quarantine", run, rows_of_files.unionByName(torn).withColumn("taken", file_hour(F.col("file")))
    )
    counts: Counter[str] = Counter()
    for path, many in (
        *((path, 1) for path, _reason in whole),
        *((path, reread.files[path][1]) for path in bad),
    ):
        counts["/".join(path.split("/")[1:3])] += many
    return dict(counts), [path for path, _reason in whole]


def _lines(written: Mapping[str, DataFrame]) -> dict[str, LineCounts]:
    """Return the lines in silver from the bronze tables for which silver has their number."""
    frames = []
    for name, table in silver.TABLES.items():
        if table.lines and name in written:
            unknown = F.count("extra") if "extra" in written[name].columns else F.lit(0)
            counted = written[name].groupBy("snapshot", F.lit(table.bronze[0]).alias("source"))
            frames.append(counted.agg(F.expr(table.lines).alias("lines"), unknown.alias("unknown")))
        for source, lines in table.joined.items() if name in written else ():
            counted = written[name].groupBy("snapshot", F.lit(source).alias("source"))
            frames.append(counted.agg(F.expr(lines).alias("lines"), F.lit(0).alias("unknown")))
    if "failures" in written:
        counted = written["failures"].groupBy("snapshot", F.col("endpoint").alias("source"))
        frames.append(counted.agg(F.count("*").alias("lines"), F.lit(0).alias("unknown")))
    found: dict[str, LineCounts] = {}
    for row in reduce(DataFrame.unionByName, frames).collect() if frames else ():
        total = found.setdefault(row["source"], LineCounts())
        total.of[row["snapshot"]] += row["lines"] or 0
        total.unknown += row["unknown"]
    return found


def suspects(inputs: Inputs, arrived: Mapping[str, LineCounts]) -> list[str]:
    """Return the bronze tables that may have unreadable lines: those with another number of lines in silver than in the
    manifests, and those for which silver has no number. So complete tables are read only once."""
    counted = silver.counted()

    def whole(name: str, source: BronzeSource) -> bool:
        lines = arrived.get(name, LineCounts()).of
        if name in silver.HOURLY:
            return _by_hours(lines) == _by_hours(source.snapshots)
        return lines == source.snapshots

    return [name for name, source in inputs.sources.items() if name not in counted or not whole(name, source)]


def _by_hours(snapshot_lines: Mapping[str, int]) -> Counter[str]:
    """Return the lines of each hour, by the beginning of its snapshots' names."""
    counts: Counter[str] = Counter()
    for snapshot, lines in snapshot_lines.items():
        counts[snapshot[: len("20261121T18")]] += lines
    return counts


def _count_unknown(
    written: Mapping[str, DataFrame], arrived: Mapping[str, LineCounts], unknown_keys: dict[str, int], say: Say
) -> None:
    """Count the lines with unknown keys, and report tables with so many that they slow down the job."""
    for name, table in silver.TABLES.items():
        lines = arrived.get(table.bronze[0]) if table.bronze else None
        if name not in written or not table.lines or lines is None or not lines.unknown:
            continue
        source, many = table.bronze[0], lines.of.total()
        unknown_keys[source] = unknown_keys.get(source, 0) + lines.unknown
        if table.complete and lines.unknown > many * _MANY:
            extra = written[name].where("extra IS NOT NULL").select(F.schema_of_variant("extra").alias("keys")).first()
            keys = extra["keys"] if extra else ""
            say(
                f"{lines.unknown} of {many} lines of {source} have keys without a column: {keys}. They are slow to read."
            )
