# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the cost of a lake's tables from the event logs of Spark's jobs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Matches the target of a plan that writes a table: the table's layer and name.
_WRITTEN = re.compile(r"Arguments: \S+?/(silver|gold/_hours|gold|findings|findings/_hours)/(\w+)/run=")
_ID = "spark.sql.execution.id"


@dataclass
class Work:
    """The work of the tasks for one table: seconds of CPU time, bytes shuffled and spilled to disk. The bytes read are
    not included, because Spark counts only some of the bytes read from a local disk."""

    cpu: float = 0.0
    shuffled: int = 0
    spilled: int = 0


def settings(folder: Path) -> list[str]:
    """Return the options with which a job writes its event log to this folder."""
    values = {"enabled": "true", "dir": folder.as_uri(), "rolling.enabled": "false", "compress": "false"}
    return [part for key, value in values.items() for part in ("--conf", f"spark.eventLog.{key}={value}")]


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.iterdir()):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def by_table(folder: Path) -> dict[str, Work]:
    """Return the tasks' work by the table that they wrote, the most expensive table first; `other` is for tasks that
    wrote none."""
    tables: dict[str, str] = {}
    stages: dict[int, str] = {}
    found: dict[str, Work] = defaultdict(Work)
    for event in _events(folder):
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerSQLExecutionStart":
            written = _WRITTEN.search(event["physicalPlanDescription"])
            tables[str(event["executionId"])] = ".".join(written.groups()) if written else "other"
        elif kind == "SparkListenerJobStart":
            table = tables.get(str(event["Properties"].get(_ID)), "other")
            stages.update(dict.fromkeys(event["Stage IDs"], table))
        elif kind == "SparkListenerTaskEnd" and "Task Metrics" in event:
            spent, work = event["Task Metrics"], found[stages[event["Stage ID"]]]
            work.cpu += spent["Executor CPU Time"] / 1e9
            work.shuffled += spent["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            work.spilled += spent["Disk Bytes Spilled"]
    return dict(sorted(found.items(), key=lambda item: -item[1].cpu))
