# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that makes the findings of a day: what it looks at, whether it is up to date, and when it counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.evaluate import findings, judge, summary
from jetstream_insights.findings.registry import Settings, settings
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.jobs import Outcome, Say, empty
from jetstream_insights.lake import Lake, LakeError, hours, new_run
from jetstream_insights.silver import TABLES as SILVER

FORMAT = 1
LAYER = "findings"
_HOSTS = {"server": str, "config_digest": str, "open_files": int, "plaintext_passwords": int}
_HOSTS_SCHEMA = "server string, config_digest string, open_files bigint, plaintext_passwords bigint"
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
    is on disk), `open_files` and `plaintext_passwords`. Raises LakeError when it is another."""
    if path is None:
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LakeError(f"{path}: {error}") from error
    rows = []
    hosts: list[Any] = told if isinstance(told, list) else [None]
    for host in hosts:
        good = isinstance(host, dict) and isinstance(host.get("server"), str) and set(host) <= set(_HOSTS)
        if not good or any(type(host[name]) is not _HOSTS[name] for name in host if host[name] is not None):
            raise LakeError(f"{path}: not a list of objects with {', '.join(_HOSTS)}: {host!r}")
        rows.append(tuple(host.get(name) for name in _HOSTS))
    return rows


def make_findings(
    lake: Lake, of_days: Iterable[date], say: Say, force: bool, wanted: Settings, hosts: Hosts | None
) -> Outcome:
    """Make the findings of the days whose tables, thresholds or checks are not those that they were made with."""
    outcome = Outcome()
    for day in of_days:
        inputs = [f"{hour:%H}:{run}" for hour in hours_of(day) if (run := lake.pointer("silver", hour).get("run"))]
        gold = published(lake, "gold", day)
        told = (gold.get("run"), REGISTRY, sorted(wanted.thresholds.items()), sorted(wanted.skip), hosts)
        basis = hashlib.sha256(repr(told).encode()).hexdigest()
        known = published(lake, LAYER, day)
        same = known.get("format") == FORMAT and known["basis"] == basis and set(inputs) <= set(known["inputs"])
        if not inputs:
            outcome.empty += 1
        elif same and not force:
            outcome.fresh += 1
        else:
            say(f"{day}  findings")
            run = new_run()
            _write(lake, day, run, _tables(lake, day, gold, hosts), wanted)
            pointer = {"format": FORMAT, "run": run, "inputs": inputs, "basis": basis}
            lake.replace_text(f"{LAYER}/_published/date={day}.json", json.dumps(pointer))
            outcome.made += 1
    return outcome


def hours_of(day: date) -> list[datetime]:
    """Return the hours of a day."""
    start = datetime.combine(day, time(), timezone.utc)
    return list(hours(start, start + timedelta(days=1)))


def published(lake: Lake, layer: str, day: date) -> dict[str, Any]:
    """Return what is published of a day of a layer; empty for nothing."""
    name = f"{layer}/_published/date={day}.json"
    return dict(json.loads(lake.read_text(name))) if lake.exists(name) else {}


def of_day(lake: Lake, layer: str, table: str, day: date) -> DataFrame | None:
    """Return a published table of a day of a layer, None when there is none."""
    name = f"{layer}/{table}/run={published(lake, layer, day).get('run')}/date={day}"
    return lake.spark.read.parquet(f"{lake.uri}/{name}") if lake.exists(name) else None


def _tables(lake: Lake, day: date, gold: dict[str, Any], hosts: Hosts | None) -> dict[str, DataFrame]:
    """Return what there is to judge by: silver, also where it is empty, and of gold and of the hosts what there is."""
    tables: dict[str, DataFrame] = {}
    for name in sorted({"failures", *(name for view in VIEWS.values() for name in view.tables)}):
        if name in _SILVER:
            silver = lake.read("silver", name, hours_of(day))
            tables[name] = empty(lake, name) if silver is None else silver
        elif (found := of_day(lake, "gold", name, day) if gold else None) is not None:
            tables[name] = found
    if hosts is not None:
        tables["hosts"] = lake.spark.createDataFrame(list(hosts), _HOSTS_SCHEMA)
    return tables


def _write(lake: Lake, day: date, run: str, tables: dict[str, DataFrame], wanted: Settings) -> None:
    hourly = tables["snapshots"].groupBy("fleet", F.date_trunc("hour", "taken")).agg(F.max_by("snapshot", "taken").alias("last"))
    results = judge(tables, [row["last"] for row in hourly.collect()], REGISTRY, wanted)
    try:
        # Passes are counted, and kept nowhere: the rows are made twice rather than stored.
        for name, frame in (("findings", findings(results)), ("findings_summary", summary(results, REGISTRY))):
            frame.repartition(1).write.mode("errorifexists").parquet(f"{lake.uri}/{LAYER}/{name}/run={run}/date={day}")
    except Exception:
        for name in ("findings", "findings_summary"):
            lake.delete(f"{LAYER}/{name}/run={run}")
        raise
