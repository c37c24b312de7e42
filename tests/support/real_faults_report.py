# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scores a report about real faults: was each fault found and named, with the right cause and first action?"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from jetstream_insights import cli
from jetstream_insights.report.shape import dicts
from support.nats_processes import ROOT
from support.real_faults import Capture, Fault, capture_all, captures

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Score:
    """The result for a fault of a fleet. `fault` is None for the fleet itself; `false` then lists the critical causes
    that no fault explains. `title`, `command` and `severity` are those of the cause that names the fault."""

    capture: Capture
    fault: Fault | None
    found: bool = True
    named: bool = True
    cause: bool = True
    action: bool = True
    severity: bool = True
    title: str = ""
    command: str = ""
    false: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.found and self.named and self.cause and self.action and self.severity and not self.false


def capture_and_judge(versions: Sequence[str], kept: Path | None = None) -> list[Score]:
    """Capture all fleets and return the scores of their report. `kept`: keep the lake and the report in this folder; an
    existing lake is not captured again, only judged."""
    # Do not use /tmp: a store there is reported as a finding.
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache") as folder:
        place = kept or Path(folder)
        if not (place / "lake").is_dir():
            capture_all(place / "lake", Path(folder) / "servers", versions)
        return judge(place, captures(versions))


def judge(folder: Path, fleets: Sequence[Capture]) -> list[Score]:
    """Run the jobs on the lake of a folder and return the scores of their report."""
    lake = folder / "lake"
    hours = sorted(path.parent.name + path.name for path in (lake / "bronze" / "manifest").glob("date=*/hour=*"))
    first, last = (
        datetime.strptime(hour, "date=%Y-%m-%dhour=%H").replace(tzinfo=timezone.utc) for hour in (hours[0], hours[-1])
    )
    span = ("--from", f"{first:%Y-%m-%dT%H}", "--to", f"{last + timedelta(hours=1):%Y-%m-%dT%H}")
    jobs = ("silver", "gold", "findings", "report")
    status = cli.main([*jobs, "--lake", str(lake), *span, "--output", str(folder / "report"), "--force"])
    if status != cli.DONE:
        raise RuntimeError(f"the jobs ended with status {status}")
    content = json.loads((folder / "report" / "report.json").read_text())
    return [score for capture in fleets for score in _fleet_scores(content, capture)]


def _fleet_scores(content: Mapping[str, Any], capture: Capture) -> Iterator[Score]:
    causes, findings, changes = (
        [row for row in dicts(content, name) if row["fleet"] == capture.fleet]
        for name in ("causes", "findings", "changes")
    )
    explained: set[str] = set()
    for fault in capture.faults:
        score = _change_score(capture, fault, changes) if fault.changes else _score(capture, fault, causes, findings)
        explained.add(score.title)
        yield score
    false = tuple(row["title"] for row in causes if row["severity"] == "critical" and row["title"] not in explained)
    yield Score(capture, None, false=false)


def _change_score(capture: Capture, fault: Fault, changes: Sequence[Row]) -> Score:
    rows = [row for row in changes if row["what"] == fault.changes and _names(fault, json.dumps(row))]
    return Score(capture, fault, bool(rows), bool(rows))


def _names(fault: Fault, text: str) -> bool:
    return all(re.search(rf"(?<![\w-])(?:{subject})(?![\w-])", text) for subject in fault.subjects)


def _score(capture: Capture, fault: Fault, causes: Sequence[Row], findings: Sequence[Row]) -> Score:
    found = any(row["check"] in fault.checks for row in findings)
    naming = [row for row in causes if _names(fault, " ".join([row["title"], *row["servers"], *row["evidence"]]))]
    if not naming:
        return Score(capture, fault, found, False, False, False, False)
    # Another cause, such as advice about the configuration, may name the same subject.
    first = next((row for row in naming if re.search(fault.cause, row["title"])), naming[0])
    command = (first["commands"] or [""])[0]
    return Score(
        capture,
        fault,
        found,
        True,
        bool(re.search(fault.cause, first["title"])),
        bool(re.search(fault.action, command)),
        first["severity"] == fault.severity,
        first["title"],
        command,
    )


def problems(scores: Sequence[Score]) -> Iterator[str]:
    """Yield a line for each wrong score."""
    for score in scores:
        name = f"{score.capture.fleet}: {score.fault.name if score.fault else 'the fleet'}"
        aspects = ("found", "named", "cause", "action", "severity")
        wrong = [aspect for aspect in aspects if not getattr(score, aspect)]
        if wrong:
            yield f"{name}: {', '.join(wrong)} wrong: {score.title!r}, {score.command!r}"
        yield from (f"{name}: false critical cause: {title}" for title in score.false)


def table(scores: Sequence[Score]) -> Iterator[str]:
    """Yield the Markdown table: a line for each fault with its scores in all versions."""
    versions = sorted({score.capture.version for score in scores}, key=lambda version: version.split("."))
    yield f"| fault | {' | '.join(f'{name}' for name in versions)} |"
    yield f"|---|{'---|' * len(versions)}"
    faults = dict.fromkeys(score.fault for score in scores if score.fault)
    for fault in faults:
        cells = []
        for version in versions:
            of = [score for score in scores if score.fault == fault and score.capture.version == version]
            cells.append(_cell(of[0]) if of else "–")
        yield f"| {fault.name} | {' | '.join(cells)} |"
    fleets = [score for score in scores if score.fault is None]
    critical = [
        score for score in scores if score.fault and score.fault.severity == "critical" and not score.fault.changes
    ]
    recall = sum(score.found and score.severity for score in critical)
    yield ""
    yield f"False critical causes: {sum(len(score.false) for score in fleets)} in {len(fleets)} fleets."
    yield f"Critical faults found: {recall} of {len(critical)}."


def _cell(score: Score) -> str:
    if score.fault and score.fault.changes:
        return "in the changes" if score.found else "**missing**"
    aspects = {"found": score.found, "named": score.named, "cause": score.cause, "action": score.action}
    wrong = [name for name, right in aspects.items() if not right]
    return f"not {', '.join(wrong)}" if wrong else "found, named, cause, action"
