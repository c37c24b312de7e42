# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the playbook natsops.jetstream.insights with a lake that already contains snapshots, in an environment that
already exists."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jetstream_insights.findings import REGISTRY
from support.clean_output import clean
from support.fleet import START, Fleet

CHECKOUT = Path(__file__).resolve().parents[2]
ANSIBLE = shutil.which("ansible-playbook")


@pytest.mark.chaos
@pytest.mark.skipif(ANSIBLE is None, reason="ansible-playbook is not on the PATH")
def test_the_playbook_runs_the_jobs(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    Fleet(3, 3).write(lake, 0)
    (tmp_path / "lake" / "bronze" / "manifest" / "date=2026-11-01" / "hour=00" / "broken.json").write_text("{")
    variables = {
        "nats_insights_collect": False,
        "nats_insights_lake": str(lake),
        "nats_insights_dir": str(tmp_path / "pipeline"),
        "nats_insights_venv": sys.prefix,
        "nats_insights_become": False,
        "nats_insights_jobs": ["silver", "maintain"],
        "nats_insights_from": f"{START:%Y-%m-%d}",
        "nats_insights_to": f"{START:%Y-%m-%d}T02",
        "nats_insights_master": "local[1]",
        "nats_insights_memory": "512m",
    }
    command = [str(ANSIBLE), "natsops.jetstream.insights", "-e", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_SHOW_CUSTOM_STATS": "true"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    clean(done.stdout + done.stderr)
    stats = done.stdout.rpartition("CUSTOM STATS: ")[2]
    assert '"quarantined": 1' in stats
    assert '"packed": 0' in stats
    assert list(lake.glob("silver/streams/run=*/date=2026-11-01/hour=00/*.parquet"))
    refused = subprocess.run(
        [*command, "-e", json.dumps({"nats_insights_jobs": ["silver"], "nats_insights_fail_on_quarantine": True})],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert refused.returncode == 2
    assert "something could not be read, see the table quarantine" in refused.stdout + refused.stderr
    # The operator's own checks, thresholds and severity for failure.
    thresholds = {"skip": sorted(set(REGISTRY.checks) - {"SERVER_104", "STREAM_103"})}
    wanted = {
        "nats_insights_jobs": ["silver", "gold", "findings", "report"],
        "nats_insights_checks": str(CHECKOUT / "docs/examples/insights_checks.yml"),
        "nats_insights_thresholds": thresholds,
        "nats_insights_slo": 0.99,
        "nats_insights_maintenance": [f"{START:%Y-%m-%d}/{START:%Y-%m-%d}T01/n1"],
        "nats_insights_title": "My fleet",
        "nats_insights_fail_on": "info",
        "nats_insights_report_fetch": str(tmp_path / "fetched"),
    }
    failed = subprocess.run(
        [*command, "-e", json.dumps(wanted)],
        capture_output=True, text=True, check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert failed.returncode == 2, failed.stdout[-5000:] + failed.stderr
    assert "and nats_insights_fail_on is info" in " ".join(failed.stdout.split())
    report = json.loads((tmp_path / "fetched/report.json").read_text())
    assert report["title"] == "My fleet"
    checks = report["tables"]["checks"]
    assert "PAY_001" in {row[1] for row in checks["rows"]}
