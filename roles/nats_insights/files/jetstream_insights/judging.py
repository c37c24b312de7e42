# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that makes the findings of a day: what it looks at, whether it is up to date, and when it counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights.days import hours_of, inputs_of, up_to_date
from jetstream_insights.files import LakeError
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.evaluate import judge, summary
from jetstream_insights.findings.lifetime import findings, reasons
from jetstream_insights.findings.registry import Settings, settings
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.jobs import Outcome, Say, empty
from jetstream_insights.lake import FINDINGS_FORMAT, Lake, new_run
from jetstream_insights.side_by_side import each
from jetstream_insights.silver import TABLES as SILVER

LAYER = "findings"
_WHOLE_STAGE = "spark.sql.codegen.wholeStage"
_HOSTS = {"server": str, "config_digest": str, "open_files": int, "plaintext_passwords": int, "disk_free": int}
_HOSTS_SCHEMA = "server string, config_digest string, open_files bigint, plaintext_passwords bigint, disk_free bigint"
_SILVER = (*SILVER, "snapshots", "failures")

#: Rows of hosts: what no server tells of itself.
Hosts = Sequence[tuple[Any, ...]]


def read_thresholds(path: Path | None) -> Settings:
    """Return what a JSON file sets: thresholds by name, and `skip`. Raises LakeError, naming what no check has."""
    if path is None:
        return Settings()
    try:
        return settings(REGISTRY, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise LakeError(f"{path}: {error}") from error


def read_hosts(path: Path | None) -> Hosts | None:
    """Return what a JSON file tells of the hosts: a list of objects with `server` and any of `config_digest` (of the file that
    is on disk), `open_files`, `plaintext_passwords` and `disk_free` (bytes, where the store is). Raises LakeError when it is
    another."""
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
        # A truth value is a number to Python.
        if not good or any(
            isinstance(value, bool) or not isinstance(value, _HOSTS[name])
            for name, value in host.items()
            if value is not None
        ):
            raise LakeError(f"{path}: not a list of objects with {', '.join(_HOSTS)}: {host!r}")
        rows.append(tuple(host.get(name) for name in _HOSTS))
    return rows


def make_findings(
    lake: Lake, of_days: Iterable[date], say: Say, force: bool, wanted: Settings, hosts: Hosts | None
) -> Outcome:
    """Make the findings of the days whose tables, thresholds or checks are not those that they were made with."""
    outcome = Outcome()
    for day in of_days:
        inputs = inputs_of(lake, day, "silver", "silver/advisories")
        gold = lake.pointer("gold", day)
        yesterday = lake.pointer(LAYER, day - timedelta(days=1))
        earlier = yesterday.get("run") if yesterday.get("format") == FINDINGS_FORMAT else None
        reported = (gold.get("run"), earlier, REGISTRY, sorted(wanted.thresholds.items()), sorted(wanted.skip), hosts)
        basis = hashlib.sha256(repr(reported).encode()).hexdigest()
        known = lake.pointer(LAYER, day)
        if not inputs:
            outcome.empty += 1
        elif up_to_date(known, FINDINGS_FORMAT, basis, inputs) and not force:
            outcome.fresh += 1
        else:
            say(f"{day}  findings")
            run = new_run()
            again = known.get("format") == FINDINGS_FORMAT
            _write(lake, day, run, _tables(lake, day, hosts), wanted, earlier is not None, again)
            lake.repoint(LAYER, day, {"format": FINDINGS_FORMAT, "run": run, "inputs": inputs, "basis": basis})
            outcome.made += 1
    return outcome


def _tables(lake: Lake, day: date, hosts: Hosts | None) -> dict[str, DataFrame]:
    """Return what there is to judge by: silver, also where it is empty, and of gold and of the hosts what there is. `hosts`: in
    place of what the snapshots hold of them."""
    tables: dict[str, DataFrame] = {}
    for name in sorted({"failures", *(name for view in VIEWS.values() for name in view.tables)}):
        if name in _SILVER or name == "advisories":
            silver = lake.read("silver", name, hours_of(day))
            if silver is not None or name not in ("advisories", "hosts"):
                tables[name] = empty(lake, name) if silver is None else silver
        elif (found := lake.read_days("gold", name, [day])) is not None:
            tables[name] = found
    if hosts is not None:
        given = lake.spark.createDataFrame(list(hosts), _HOSTS_SCHEMA)
        tables["hosts"] = tables["snapshots"].select("fleet", "snapshot").crossJoin(F.broadcast(given))
    return tables


def _write(
    lake: Lake, day: date, run: str, tables: dict[str, DataFrame], wanted: Settings, goes_on: bool, again: bool
) -> None:
    """Judge the last snapshot of each hour, and the day. `goes_on`: whether there are findings of the day before; `again`:
    whether a run before has made those of the day."""
    hourly = (
        tables["snapshots"]
        .groupBy("fleet", F.date_trunc("hour", "taken"))
        .agg(F.max_by("snapshot", "taken").alias("last"))
    )
    # Passes are only counted, and therefore not kept, but judging is most of the work: both tables are made of one judgement.
    judged = f"{LAYER}/_judged/run={run}"
    conf = lake.spark.conf
    as_set = str(conf.get(_WHOLE_STAGE))
    # Dozens of checks are too much for one method of Java: Spark would try, say so at length, and then go on without.
    conf.set(_WHOLE_STAGE, "false")
    try:
        parts = judge(tables, [row["last"] for row in hourly.collect()], REGISTRY, wanted)
        paths: list[str] = []

        def write(part: DataFrame) -> None:
            # A folder for each: writing to one at the same time, they would remove each other's drafts.
            paths.append(path := f"{lake.uri}/{judged}/{new_run()}")
            part.write.parquet(path)

        each(parts, write, lake.at_once)
        results = lake.spark.read.parquet(*paths)
        earlier = lake.read_days(LAYER, "findings", [day - timedelta(days=1)]) if goes_on else None
        before = lake.read_days(LAYER, "findings", [day]) if again else None
        found = lake.write_day(LAYER, "findings", run, day, findings(results, earlier, before).coalesce(1))
        lake.write_day(LAYER, "findings_unknown", run, day, reasons(found).coalesce(1))
        lake.write_day(LAYER, "findings_summary", run, day, summary(results, REGISTRY).coalesce(1))
    except Exception:
        lake.delete_run(LAYER, run)
        raise
    finally:
        conf.set(_WHOLE_STAGE, as_set)
        lake.files.delete(judged)
