# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions that docs/insights.md answers with the package have an answer in a lake, and the generated lake has the
days that the document states."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jetstream_insights.catalogue import declared_tables
from jetstream_insights.notebook import QUESTIONS, notebook
from pyspark.sql import SparkSession
from support.lakes import DAY, Golden

CHECKOUT = Path(__file__).resolve().parents[2]
GUIDE = (CHECKOUT / "docs/insights.md").read_text()
#: The lake in the examples of the document.
DOCUMENTED = "/var/lib/nats-insights/lake"


def test_the_questions_of_the_guide_are_answered(
    spark: SparkSession, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "read_days(" in block)
    assert DOCUMENTED in code
    exec(compile(code.replace(DOCUMENTED, str(golden.path)), "docs/insights.md", "exec"), {})
    shown = capsys.readouterr().out
    assert str(DAY) in shown and "STREAM-000000" in shown


def test_every_cell_of_the_notebook_runs(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    tables = declared_tables()
    cells = json.loads(json.dumps(notebook(str(golden.path), tables)))["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    names: dict[str, object] = {}
    answers = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            text = "".join(cell["source"])
            exec(compile(text, cell["id"], "exec"), names)
            answers[text] = capsys.readouterr().out
    for question, columns in zip(
        QUESTIONS,
        ("severity", "2026-", "full_p50", "days_until_full", "old_leader", "old_start", "pending_max", "field"),
        strict=True,
    ):
        assert columns in answers[question.code], question.text
    shown = [table for table in tables if table.layer != "silver"]
    assert len(answers) == 1 + len(QUESTIONS) + len(shown)
    for table in shown:
        (answer,) = (
            answers[text] for text in answers if f'("{table.layer}", "{table.name}", days[-1:]).show()' in text
        )
        assert table.columns[0].name in answer
    empty = [text for text, answer in answers.items() if "|" in answer and answer.count("\n") < 6]
    assert len(empty) < 10, empty


def test_the_sample_lake_has_the_documented_days(tmp_path: Path) -> None:
    recipe = (CHECKOUT / "Makefile").read_text().partition("\nsample-lake:")[2].partition("\n\n")[0]
    options = re.findall(r"--\S+ \d+", recipe)
    arguments = [part for option in options for part in option.split()]
    subprocess.run(
        [sys.executable, str(CHECKOUT / "tests/support/fleet.py"), str(tmp_path), *arguments],
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    days = sorted(path.name.removeprefix("date=") for path in (tmp_path / "bronze/manifest").iterdir())
    span = re.search(r"`--from (\S+) --to (\S+)`", GUIDE)
    assert span is not None
    assert (days[0], len(days)) == (span[1], 28) and days[-1] < span[2]
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "bronze/manifest").rglob("*.json")]
    assert len(manifests) == 28 * 24
    (restarting,) = [manifest for manifest in manifests if not manifest["complete"]]
    server, day = re.findall(r"`(n\d)` restarts on (\S+) at noon", GUIDE)[0]
    assert (restarting["missing"], restarting["started"][:13]) == ([server], f"{day}T12")
