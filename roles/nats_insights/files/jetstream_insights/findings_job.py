# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings job: it evaluates the checks of a day, decides whether its findings are up to date, and publishes them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import HOSTS
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jetstream_insights.files import LakeError
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.checks_file import ChecksFile
from jetstream_insights.findings.evaluate import (
    Part,
    enabled_checks,
    is_grave,
    judge,
    judge_moments,
    judge_time,
    single_results,
    summary,
)
from jetstream_insights.findings.lifetime import (
    DRAFT_COLUMNS,
    HOURLY_COLUMNS,
    findings,
    hourly_findings,
    open_digest,
    open_failures,
    reasons,
    with_hours,
)
from jetstream_insights.findings.over_time import KEPT, STORED_TABLES, name_of_hours
from jetstream_insights.findings.over_time import kept as stored_rows
from jetstream_insights.findings.registry import FAIL, Check, CheckSettings, Registry, ThresholdError, settings
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.gold_job import newest_snapshots, silver_inputs, up_to_date
from jetstream_insights.lake import FINDINGS_FORMAT, JUDGED, JUDGED_FORMAT, Lake, day_hours, new_run
from jetstream_insights.parallel import each
from jetstream_insights.silver import TABLES as SILVER
from jetstream_insights.silver_job import JobResult, Say, silver_rows, silver_tables

LAYER = "findings"
_WHOLE_STAGE, _ANSI = "spark.sql.codegen.wholeStage", "spark.sql.ansi.enabled"
_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
#: The columns about a host, with Spark's types.
_HOSTS = {"server": "string", **{field.name: field.type for field in HOSTS.fields}}
_JSON_TYPES = {"string": str, "bigint": int}
_SILVER = (*SILVER, "snapshots", "failures")

#: Rows about hosts: figures that servers do not report.
Hosts = Sequence[tuple[Any, ...]]


def read_thresholds(path: Path | None, checks: ChecksFile | None = None) -> CheckSettings:
    """Return the settings of a JSON file (thresholds by name, and `skip`) together with those of the file of checks. Raises
    LakeError, which names the thresholds that no check has."""
    checks = checks or ChecksFile()
    if path is None:
        return checks.settings
    try:
        text = path.read_text(encoding="utf-8")
        found = settings(checks.registry, json.loads(text, object_pairs_hook=_without_duplicates))
    except ThresholdError as error:
        lines = [number for number, line in enumerate(text.splitlines(), 1) if error.name and f'"{error.name}"' in line]
        raise LakeError(f"{path}{''.join(f':{line}' for line in lines[:1])}: {error}") from error
    except (OSError, ValueError) as error:
        raise LakeError(f"{path}: {error}") from error
    twice = sorted(found.thresholds.keys() & checks.settings.thresholds.keys())
    if twice:
        raise LakeError(f"{path}: the file of --checks sets these, too: {', '.join(twice)}. Remove them from one file")
    return CheckSettings({**checks.settings.thresholds, **found.thresholds}, checks.settings.skip | found.skip)


def _without_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON file. Raises ValueError for a key that is given twice: JSON itself would use the last value."""
    found = dict(items)
    if len(found) < len(items):
        twice = sorted(name for name, times in Counter(name for name, _value in items).items() if times > 1)
        raise ValueError(f"given twice: {', '.join(twice)}. Remove one of them")
    return found


def read_hosts(path: Path | None) -> Hosts | None:
    """Return the rows in a JSON file about hosts: a list of objects with `server` and any of `config_digest` (of the file on
    disk), `open_files`, `plaintext_passwords` and `disk_free` (bytes, in the file system of the store). Raises LakeError for any
    other content."""
    if path is None:
        return None
    try:
        reported = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LakeError(f"{path}: {error}") from error
    rows = []
    hosts: list[Any] = reported if isinstance(reported, list) else [None]
    for host in hosts:
        good = isinstance(host, dict) and isinstance(host.get("server"), str) and set(host) <= set(_HOSTS)
        # In Python, a boolean is an int as well.
        if not good or any(
            isinstance(value, bool)
            or not isinstance(value, _JSON_TYPES[_HOSTS[name]])
            or (isinstance(value, int) and value < 0)
            for name, value in host.items()
            if value is not None
        ):
            raise LakeError(f"{path}: not a list of objects with {', '.join(_HOSTS)}: {host!r}")
        rows.append(tuple(host.get(name) for name in _HOSTS))
    return rows


def make_findings(
    lake: Lake,
    wanted_days: Iterable[date],
    say: Say,
    force: bool,
    wanted: CheckSettings,
    hosts: Hosts | None,
    retired: Sequence[str] = (),
    registry: Registry = REGISTRY,
) -> JobResult:
    """Make the findings of the days with other tables, thresholds or checks than those that they were made with. `retired`:
    fleets whose open findings end, because no more snapshots are expected from them. `registry`: all checks, with
    an operator's own."""
    outcome = JobResult()
    published = lake.published_days(LAYER)
    for day in wanted_days:
        inputs = silver_inputs(lake, day, "silver", "silver/advisories")
        gold = lake.pointer("gold", day)
        # The collector may have been down for days; its last findings stay open.
        last = max((other for other in published if other < day), default=None)
        earlier = lake.pointer(LAYER, last).get("run") if last else None
        fingerprint = _hash(
            gold.get("run"),
            earlier,
            registry,
            sorted(wanted.thresholds.items()),
            sorted(wanted.skip),
            hosts,
            sorted(retired),
        )
        known = lake.pointer(LAYER, day)
        if not inputs:
            outcome.empty += 1
        elif up_to_date(known, FINDINGS_FORMAT, fingerprint, inputs) and not force:
            outcome.fresh += 1
        else:
            say(f"{day}  findings")
            run = new_run()
            again = known.get("format") == FINDINGS_FORMAT
            judged_day = _FindingsDay(lake, day, wanted, hosts, registry, last, again)
            # In a small lake, writing the results takes longer than evaluating the checks again.
            kept = not lake.little or any(lake.pointer(JUDGED, hour) for hour in day_hours(day))
            if kept:
                judged_day.judge_hours(say, force)
            judged_day.write(run, kept, retired)
            lake.repoint(
                LAYER, day, {"format": FINDINGS_FORMAT, "run": run, "inputs": inputs, "fingerprint": fingerprint}
            )
            published.append(day)
            outcome.made += 1
    return outcome


def _hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@contextmanager
def _settings_of_judging(lake: Lake, own: bool) -> Iterator[None]:
    """Turn off code generation for stages: dozens of checks exceed one Java method, and Spark would log each failed attempt. Also
    turn off the search for constraints that hold for all rows, which takes a seventh of the time of planning and finds none in
    the checks. With an operator's `own` checks a division by zero is null and its result unknown; otherwise one row would stop
    the job."""
    conf = lake.spark.conf
    wanted = {_WHOLE_STAGE: "false", _CONSTRAINTS: "false", **({_ANSI: "false"} if own else {})}
    as_set = {name: str(conf.get(name)) for name in wanted}
    try:
        for name, value in wanted.items():
            conf.set(name, value)
        yield
    finally:
        for name, value in as_set.items():
            conf.set(name, value)


def _grave_failures(results: DataFrame, registry: Registry) -> set[str]:
    """Return the checks with failures that depend on the previous snapshot."""
    return {
        row["check"] for row in results.where(is_grave(registry.checks.values())).select("check").distinct().collect()
    }


def _is_failure(checks: Iterable[Check]) -> Column:
    """Return whether a row is a failure of one of the checks; never null."""
    failed = (F.col("result") == FAIL) & F.col("check").isin([check.code for check in checks])
    return F.coalesce(failed, F.lit(False))


#: Views whose results a small lake writes at once. A write takes longer than the evaluation of the few rows, and a plan of more
#: views takes longer to optimize than their own plans.
WRITTEN_AT_ONCE = 8


def united(frames: Iterable[DataFrame], little: bool) -> Iterator[DataFrame]:
    """Yield the rows to write at once: in a small lake (`little`) those of several frames with the same columns, in a
    single file. In other lakes each task of a joint plan would spend its time on reading that plan."""
    remaining = iter(frames)
    while batch := [*islice(remaining, WRITTEN_AT_ONCE if little else 1)]:
        yield reduce(DataFrame.unionByName, batch).coalesce(1) if little else batch[0]


@dataclass
class Samples:
    """The samples of an hour: the last snapshot of each fleet. `before`: the hours of the snapshots before those."""

    snapshots: list[str] = field(default_factory=list)
    before: set[int] = field(default_factory=set)


def hourly_samples(snapshots: Iterable[tuple[str, int, str, int]]) -> dict[int, Samples]:
    """Return the samples of each hour of a day; each snapshot is fleet, time, name and hour."""
    found: dict[int, Samples] = {}
    in_order = [None, *sorted(snapshots), None]
    for before, (fleet, _moment, name, hour), after in zip(in_order, filter(None, in_order), in_order[2:]):
        if after is None or (after[0], after[3]) != (fleet, hour):
            samples = found.setdefault(hour, Samples())
            samples.snapshots.append(name)
            if before is not None and before[0] == fleet:
                samples.before.add(before[3])
    return found


class _FindingsDay:
    """A day whose findings are made. `hosts`: replaces the rows about hosts in the snapshots. `last`: the last previous day with
    findings. `again`: whether an earlier run has made those of the day."""

    def __init__(
        self,
        lake: Lake,
        day: date,
        wanted: CheckSettings,
        hosts: Hosts | None,
        registry: Registry,
        last: date | None,
        again: bool,
    ) -> None:
        self._lake, self._day, self._wanted, self._hosts = lake, day, wanted, hosts
        self._registry = registry
        self._earlier = lake.find_days(LAYER, "findings", [last]) if last else None
        self._before = lake.find_days(LAYER, "findings", [day]) if again else None
        self._hours = day_hours(day)
        snapshots = silver_rows(lake, "snapshots", self._hours)
        known = snapshots.select("fleet", F.unix_micros("taken"), "snapshot", F.hour("taken"))
        self._samples = hourly_samples(tuple(row) for row in known.collect())

    def judge_hours(self, say: Say, force: bool) -> None:
        """Evaluate the checks on the last snapshots of the hours with other silver rows, thresholds or checks than before, and
        of all later hours, because an hour stores the passes that may close a finding of an earlier hour. Hours without silver
        rows keep their results."""
        lake, wanted = self._lake, self._wanted
        checks = enabled_checks(self._registry, wanted, period=False)
        thresholds = [
            wanted.thresholds.get(check.name(threshold.key)) for check in checks for threshold in check.thresholds
        ]
        # An hour without host rows gets another result if other hours of the day have some.
        any_hosts = self._hosts is None and lake.read("silver", "hosts", self._hours) is not None
        fingerprint = _hash(checks, thresholds, self._hosts, any_hosts, open_digest(self._earlier))
        runs = {hour.hour: lake.pointer("silver", hour).get("run") for hour in self._hours}
        inputs = {
            hour: [f"{of:02}:{runs[of]}" for of in sorted({hour.hour, *self._samples.get(hour.hour, Samples()).before})]
            for hour in self._hours
            if runs[hour.hour]
        }
        first_stale = next(
            (
                hour
                for hour, input_runs in inputs.items()
                if force or not up_to_date(lake.pointer(JUDGED, hour), JUDGED_FORMAT, fingerprint, input_runs)
            ),
            None,
        )
        if first_stale is None:
            return
        stale = [hour for hour in inputs if hour >= first_stale]
        say(f"{self._day}  {len(stale)} hours")
        samples = [self._samples[hour.hour] for hour in stale if hour.hour in self._samples]
        read = {*(hour.hour for hour in stale), *(hour for sample in samples for hour in sample.before)}
        tables = self._tables([hour for hour in self._hours if hour.hour in read], periods=[False])
        snapshots = [name for sample in samples for name in sample.snapshots]
        run = new_run()
        with self._results(run, judge_moments(tables, snapshots, self._registry, wanted)) as results:
            try:
                silver = silver_tables(lake, sorted({"snapshots", *STORED_TABLES.values()}), stale)
                rows = {
                    name: stored_rows(name, silver[table], silver["snapshots"]) for name, table in STORED_TABLES.items()
                }
                counted = summary(results, self._registry)
                rows |= hourly_findings(results, counted, self._closable(stale))
                for name, frame in rows.items():
                    lake.write(JUDGED, name, run, frame.repartition("taken"))
            except Exception:
                lake.delete_run(JUDGED, run)
                raise
        # The first hour comes last: until then, the next job evaluates all of these hours again.
        for hour in reversed(stale):
            lake.repoint(
                JUDGED, hour, {"format": JUDGED_FORMAT, "run": run, "inputs": inputs[hour], "fingerprint": fingerprint}
            )

    def _closable(self, evaluated: Sequence[datetime]) -> list[DataFrame]:
        """Return the rows that passes of the evaluated hours may close: open findings, and the stored results of other hours."""
        known = self._lake.kept_hours(JUDGED, [hour for hour in self._hours if hour not in evaluated])
        found = [open_failures(rows) for rows in (self._earlier, self._before) if rows is not None]
        results = self._lake.read(JUDGED, "results", known)
        return found if results is None else [*found, results]

    def write(self, run: str, kept: bool, retired: Sequence[str]) -> None:
        """Write the tables of the day. `kept`: whether the results of its hours are stored; `retired`: fleets whose open findings
        end."""
        lake, day = self._lake, self._day
        if kept:
            period_tables = {name_of_hours(name): rows for name, rows in self._kept(KEPT).items()}
            parts = judge_time(
                {**self._tables(self._hours, periods=[True]), **period_tables}, self._registry, self._wanted
            )
        else:
            tables = self._tables(self._hours, periods=[False, True])
            snapshots = [name for samples in self._samples.values() for name in samples.snapshots]
            parts = judge(tables, snapshots, self._registry, self._wanted)
        # Passes are only counted, and so not stored. Evaluation is most of the work, so all tables use the same results.
        with self._results(run, parts) as results:
            try:
                counted = summary(results, self._registry)
                every, counted = with_hours(results, counted, self._judged() if kept else {})
                earlier = self._earlier
                if earlier is not None and retired:
                    earlier = earlier.where(~F.col("fleet").isin(*retired))
                codes = set(self._registry.checks) - self._wanted.skip
                made = findings(every, counted, codes, earlier, self._before)
                found = lake.write_day(LAYER, "findings", run, day, made.coalesce(1))
                lake.write_day(LAYER, "findings_unknown", run, day, reasons(found).coalesce(1))
                lake.write_day(LAYER, "findings_summary", run, day, counted.coalesce(1))
            except Exception:
                lake.delete_run(LAYER, run)
                raise

    @contextmanager
    def _results(self, run: str, parts: Iterable[Part]) -> Iterator[DataFrame]:
        """Provide the results of all parts, confirmed where necessary, until the context ends."""
        lake, judged = self._lake, f"{LAYER}/_judged/run={run}"

        def stored(frames: Iterable[DataFrame]) -> DataFrame:
            paths: list[str] = []
            # One folder for each write: concurrent writes to the same folder would remove each other's temporary files.
            each(united(frames, lake.little), lambda rows: paths.append(lake.write_draft(judged, rows)), lake.at_once)
            return lake.spark.read.schema(DRAFT_COLUMNS).parquet(*paths) if paths else lake.nothing(DRAFT_COLUMNS)

        doubtful: list[Part] = []

        def part_rows(some: Iterable[Part]) -> Iterator[DataFrame]:
            for part in some:
                if part.grave:
                    doubtful.append(part)
                yield part.rows

        try:
            with _settings_of_judging(lake, bool(self._registry.checks.keys() - REGISTRY.checks.keys())):
                rows = stored(part_rows(parts))
                failing = _grave_failures(rows, self._registry)
                confirmed, judged_again = [], []
                for part in doubtful:
                    if unsure := [check for check in part.grave if check.code in failing]:
                        confirmed.append(part.confirm(rows.where(_is_failure(unsure)), unsure))
                        judged_again += unsure
                if confirmed:
                    rows = rows.where(~_is_failure(judged_again)).unionByName(stored(confirmed))
            yield single_results(rows)
        finally:
            lake.files.delete(judged)

    def _kept(self, names: Iterable[str]) -> dict[str, DataFrame]:
        """Return the stored tables of the hours."""
        lake = self._lake
        return lake.read_tables(JUDGED, names, lake.kept_hours(JUDGED, self._hours))

    def _judged(self) -> dict[str, DataFrame]:
        """Return the stored results of the hours, of the current checks."""
        made = F.col("check").isin([check.code for check in enabled_checks(self._registry, self._wanted, period=False)])
        return {name: frame.where(made) for name, frame in self._kept(HOURLY_COLUMNS).items()}

    def _tables(self, selected_hours: Sequence[datetime], periods: Sequence[bool]) -> dict[str, DataFrame]:
        """Return the available tables that the enabled checks of moments (False), of the entire period (True) or of both read:
        silver even if empty, gold and hosts only if present."""
        lake, silver = self._lake, {*_SILVER, "advisories"}
        checks = (check for period in periods for check in enabled_checks(self._registry, self._wanted, period))
        names = {"failures", "servers", "snapshots", *(name for check in checks for name in VIEWS[check.view].tables)}
        optional = names & {"advisories", "hosts"}
        missing = optional - lake.read_tables("silver", sorted(optional), self._hours).keys()
        tables = silver_tables(lake, sorted(names & silver - missing), selected_hours)
        for name in sorted(names - silver):
            if (found := lake.find_days("gold", name, [self._day])) is not None:
                tables[name] = found
        if True in periods and (earlier := newest_snapshots(lake, self._day)) is not None:
            tables["earlier_snapshots"] = earlier
        if self._hosts is not None and "hosts" in names:
            given = lake.spark.createDataFrame(
                list(self._hosts), ", ".join(f"{name} {type_}" for name, type_ in _HOSTS.items())
            )
            tables["hosts"] = tables["snapshots"].select("fleet", "snapshot").crossJoin(F.broadcast(given))
        return tables
