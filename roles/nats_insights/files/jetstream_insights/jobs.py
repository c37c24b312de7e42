# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs: what is to be done, in which order, and when it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights import silver
from jetstream_insights.fields import taken
from jetstream_insights.lake import SILVER_FORMAT, Lake, new_run

#: Hours that one run takes: enough to make the tables' own cost small, few enough to lose little when it is killed.
HOURS_AT_ONCE = 24

Say = Callable[[str], None]

_SNAPSHOTS = """
    fleet string, snapshot string, taken timestamp, ended timestamp, source string, servers int, servers_known int,
    missing array<string>, complete boolean, failures int, clock_offset_min double, clock_offset_median double,
    clock_offset_max double, slowest_rtt double
"""


@dataclass
class Outcome:
    """What a job did: hours that were made, hours that were up to date, lines and files in quarantine."""

    made: int = 0
    fresh: int = 0
    quarantined: int = 0


@dataclass(frozen=True)
class Hour:
    """An hour that is to be made from these snapshots."""

    start: datetime
    snapshots: tuple[str, ...]


@dataclass
class Inputs:
    """What a run reads: the manifests, the files of each bronze table with their rows, and what is wrong already."""

    manifests: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    broken: list[tuple[str, str]] = field(default_factory=list)


def make_silver(lake: Lake, hours: Iterable[datetime], say: Say, force: bool = False) -> Outcome:
    """Make the silver tables of the hours whose snapshots are not those that they were made from."""
    outcome = Outcome()
    stale = list(_stale(lake, hours, outcome, force))
    for start in range(0, len(stale), HOURS_AT_ONCE):
        some = stale[start : start + HOURS_AT_ONCE]
        quarantined = _run(lake, some, say)
        outcome.made += len(some)
        outcome.quarantined += quarantined
        say(f"{outcome.made} of {len(stale)} hours made, {outcome.quarantined} lines or files in quarantine")
    return outcome


def _stale(lake: Lake, hours: Iterable[datetime], outcome: Outcome, force: bool) -> Iterator[Hour]:
    for hour in hours:
        snapshots = lake.snapshots(hour)
        pointer = lake.pointer("silver", hour)
        known = pointer.get("inputs", []) if pointer.get("format") == SILVER_FORMAT else None
        if snapshots and (force or known != snapshots):
            yield Hour(hour, tuple(snapshots))
        elif snapshots:
            outcome.fresh += 1
            outcome.quarantined += int(pointer.get("quarantined", 0))


def _run(lake: Lake, hours: Sequence[Hour], say: Say) -> int:
    """Make and publish the tables of some hours; return how much of what was read is in quarantine."""
    run = new_run()
    inputs = read_manifests(lake, hours)
    written: dict[str, DataFrame] = {}
    for name, table in silver.TABLES.items():
        say(f"{hours[0].start:%Y-%m-%d %H}:00 … {hours[-1].start:%Y-%m-%d %H}:00  {name}")
        told = [_good(lake.lines(inputs.files.get(source, []))) for source in table.bronze]
        made = [written[source] for source in table.silver]
        written[name] = lake.write("silver", name, run, table.make(*told, *made))
    lake.write("silver", "snapshots", run, _snapshots(lake, inputs.manifests))
    failing = [path for source in sorted(inputs.failing) for path in inputs.files.get(source, ())]
    lake.write("silver", "failures", run, silver.failures(_good(lake.lines(failing))))
    quarantined = _quarantine(lake, run, hours, inputs)
    for hour in hours:
        lake.publish("silver", hour.start, run, hour.snapshots, quarantined.get(hour.start, 0))
    return sum(quarantined.values())


def read_manifests(lake: Lake, hours: Sequence[Hour]) -> Inputs:
    """Return what the snapshots of these hours hold. A manifest that cannot be read is named in `broken`; of a file that is not
    there only the rows are known."""
    inputs = Inputs()
    there: dict[str, set[str]] = {}
    for hour in hours:
        for snapshot in hour.snapshots:
            try:
                manifest = lake.manifest(hour.start, snapshot)
                tables = manifest["tables"].items()
                files = [(name, file["path"], file["rows"]) for name, table in tables for file in table["files"]]
                failing = {name for name, table in tables if table["failures"]}
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                inputs.broken.append((snapshot, f"manifest: {error}"))
                continue
            inputs.manifests.append(manifest)
            inputs.failing |= failing
            for name, path, rows in files:
                inputs.rows[path] = rows
                folder, _slash, file = path.rpartition("/")
                if folder not in there:
                    there[folder] = set(lake.names(f"bronze/{folder}"))
                if file in there[folder]:
                    inputs.files.setdefault(name, []).append(path)
    return inputs


def _good(lines: DataFrame) -> DataFrame:
    return lines.where(F.col("line").isNotNull())


def _snapshots(lake: Lake, manifests: Sequence[dict[str, Any]]) -> DataFrame:
    rows = []
    for manifest in manifests:
        clock = manifest.get("clock_offset") or {}
        rows.append(
            (
                manifest["fleet"],
                manifest["snapshot"],
                _moment(manifest["started"]),
                _moment(manifest["ended"]),
                manifest["source"],
                manifest["servers"],
                manifest["servers_known"],
                manifest["missing"],
                manifest["complete"],
                manifest["failures"],
                *(clock.get(name) for name in ("min", "median", "max")),
                manifest["slowest_rtt"],
            )
        )
    return lake.spark.createDataFrame(rows, _SNAPSHOTS)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _quarantine(lake: Lake, run: str, hours: Sequence[Hour], inputs: Inputs) -> dict[datetime, int]:
    """Write what could not be read, with the reason, and return how much of it there is in each hour.

    Lines are counted against the manifests: a file that ends early is named too.
    """
    lines = lake.lines([path for paths in inputs.files.values() for path in paths])
    counted = lines.groupBy("file").agg(
        F.count(F.lit(1)).alias("lines"), F.count_if(F.col("line").isNull()).alias("bad")
    )
    found = {_relative(row["file"]): (row["lines"], row["bad"]) for row in counted.collect()}
    short = [
        (path, f"{found.get(path, (0, 0))[0]} of {rows} lines are there")
        for path, rows in inputs.rows.items()
        if found.get(path, (0, 0))[0] < rows
    ]
    bad = [path for path, (_lines, wrong) in found.items() if wrong]
    schema = "file string, reason string, value string"
    whole = lake.spark.createDataFrame([(file, reason, None) for file, reason in (*short, *inputs.broken)], schema)
    torn = (
        lake.lines(bad)
        .where(F.col("line").isNull())
        .select("file", F.lit("not an object of a snapshot").alias("reason"), F.substring("value", 1, 4096).alias("value"))
    )
    snapshot = F.regexp_extract("file", r"(\d{8}T\d{6}\.\d{6}Z-[0-9a-f]+)", 1)
    lake.write("silver", "quarantine", run, whole.unionByName(torn).withColumn("taken", taken(snapshot)))
    counts: dict[datetime, int] = {}
    for file, many in (*((path, found[path][1]) for path in bad), *((path, 1) for path, _why in (*short, *inputs.broken))):
        hour = next(hour.start for hour in hours if any(name in file for name in hour.snapshots))
        counts[hour] = counts.get(hour, 0) + many
    return counts


def _relative(path: str) -> str:
    """Return a bronze file's path as its manifest tells it; Spark encodes the URI."""
    return path.replace("%3D", "=").rpartition("/bronze/")[2]
