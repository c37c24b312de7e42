# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source natsops.jetstream.nats_insights; see DOCUMENTATION."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_insights
short_description: Create events from the report of the fleet insights, such as forecasts
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads C(report.json), which the playbook C(natsops.jetstream.insights) writes, whenever there is a new report, and
    creates an event from each row of a table.
  - When the source starts, it reads the existing report, so a restart of ansible-rulebook creates the same events
    again, with the same RV(nats.id) and C(meta.uuid).
options:
  report:
    description:
      - Path of C(report.json), or of the directory that contains it.
    type: path
    required: true
  table:
    description:
      - Table of the report, such as V(findings), V(capacity), V(headroom), V(leadership) or V(consumer_lag).
    type: str
    default: findings
  interval:
    description:
      - Seconds between two checks of the file.
    type: float
    default: 60
  feedback:
    description:
      - Whether to wait until ansible-rulebook has confirmed each event. ansible-rulebook confirms events if it runs
        with a C(--persistence-id).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: forecasts of full disks
  natsops.jetstream.nats_insights:
    report: /var/lib/nats-insights/report
    table: capacity
"""

RETURN = r"""
id:
  description: Id of the event, which is always the same for the same row of the same report.
  type: str
type:
  description: V(insight).
  type: str
table:
  description: The table of the report.
  type: str
row:
  description: The row, by the names of its columns.
  type: dict
day:
  description: The day of the report.
  type: str
time:
  description: When the report was created.
  type: str
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# ansible-rulebook runs this file by its path and does not support collections. If the package `ansible` is installed,
# it contains a different ansible_collections.
_ROOT = os.path.abspath(__file__).rpartition(f"{os.sep}ansible_collections{os.sep}")[0]
sys.path.append(_ROOT)
import ansible_collections

ansible_collections.__path__ = [os.path.join(_ROOT, "ansible_collections"), *ansible_collections.__path__]

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.plugin_utils._event_source import (
    SOURCE_SPEC,
    ArgumentError,
    EventEmitter,
    checked,
)

LOGGER = logging.getLogger("natsops.jetstream.nats_insights")

SPEC: dict[str, dict[str, Any]] = {
    **SOURCE_SPEC,
    "report": {"type": "path", "required": True},
    "table": {"type": "str", "default": "findings"},
    "interval": {"type": "float", "default": 60},
}

#: The format of report.json; see docs/insights.md.
FORMAT = 1


async def main(queue: Any, args: dict[str, Any]) -> None:
    """Put an event on the queue for each row of a new report, until cancelled. Raises ArgumentError for invalid
    arguments."""
    params = checked(args, SPEC)
    given = Path(params["report"])
    emitter, reported, complaint = EventEmitter(queue, args), None, None
    while True:
        path = given / "report.json" if given.is_dir() else given
        try:
            report = await asyncio.to_thread(read_report, path, params["table"])
            if report["generated"] != reported:
                for content in table_rows(report, params["table"]):
                    await emitter.put(content.pop("id"), content)
                reported = report["generated"]
            trouble = None
        except (OSError, ValueError, NatsFailure) as error:
            trouble = f"{path}: {error}"
        if trouble and trouble != complaint:
            LOGGER.warning("%s; retrying every %g s", trouble, params["interval"])
        complaint = trouble
        await asyncio.sleep(params["interval"])


def read_report(path: Path, table: str) -> dict[str, Any]:
    """Return the report. Raises OSError, ValueError if the file is not a report or lacks the table, or ArgumentError
    for an unknown format."""
    report = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(report, dict) or "format" not in report:
        raise ValueError("no report of the insights")
    if report["format"] != FORMAT:
        raise ArgumentError(
            f"report: {path} has format {report['format']}; this version of the collection reads format {FORMAT}"
        )
    if table not in report["tables"]:
        raise ValueError(f"there is no table {table} in it; there are {', '.join(report['tables']) or 'none'}")
    return report


def table_rows(report: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Yield the event content of each row, without null values."""
    table = report["tables"][name]
    columns = [column[0] for column in table["columns"]]
    for number, values in enumerate(table["rows"]):
        yield {
            "id": f"{report['title']}/{report['day']}/{report['generated']}/{name}/{number}",
            "type": "insight",
            "table": name,
            "day": report["day"],
            "time": report["generated"],
            "row": {column: value for column, value in zip(columns, values) if value is not None},
        }
