# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the entry point jobs_timer runs the jobs with the command and environment that the role writes. On systemd:
tests/lab/test_deploy.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml
from jetstream_insights.findings import REGISTRY
from support.clean_output import clean
from support.fleet import START, Fleet

ROLE = Path(__file__).resolve().parents[2] / "roles/nats_insights"
ANSIBLE = shutil.which("ansible-playbook")
#: The check that finds something; evaluating all checks would take most of the time of the jobs.
FOUND = "SERVER_116"
PLAY = """
- hosts: localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml]
  tasks:
    - ansible.builtin.command:
        argv: [{python}, {pack}, {folder}/pipeline/jetstream_insights.zip, {role}/files/jetstream_insights=jetstream_insights,
               {role}/../../plugins/module_utils=ansible_collections/natsops/jetstream/plugins/module_utils]
    - ansible.builtin.copy:
        content: "{{{{ settings | to_json }}}}"
        dest: {folder}/settings.json
        mode: "0600"
"""


@pytest.mark.skipif(ANSIBLE is None, reason="ansible-playbook is not on the PATH")
def test_the_program_of_the_timer_runs_the_jobs_of_the_last_day(tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir()
    Fleet(3, 3).write(tmp_path / "lake", int((datetime.now(timezone.utc) - START).total_seconds()) - 300)
    play = tmp_path / "play.yml"
    pack = ROLE.parent / "nats_program/files/pack.py"
    play.write_text(PLAY.format(role=ROLE, python=sys.executable, pack=pack, folder=tmp_path))
    tasks = {task["name"]: task for task in yaml.safe_load((ROLE / "tasks/jobs_timer.yml").read_text())}
    scheduled = tasks["Schedule the jobs"]["vars"]
    timer = tasks["Schedule the jobs"]["block"][0]["vars"]
    variables = {
        "settings": timer["nats_program_settings"],
        **{name: scheduled[name] for name in ("fail_on", "program_environment", "socket")},
        "nats_insights_dir": str(tmp_path / "pipeline"),
        "nats_insights_lake": str(tmp_path / "lake"),
        "nats_insights_venv": sys.prefix,
        "nats_insights_jobs": ["silver", "findings", "report"],
        "nats_insights_master": "local[1]",
        "nats_insights_memory": "512m",
        "nats_insights_title": "The fleet's report",
        "nats_insights_thresholds": {"skip": sorted(REGISTRY.checks.keys() - {FOUND})},
        "nats_insights_fail_on": "info",
    }
    (tmp_path / "pipeline/thresholds.json").write_text(json.dumps(variables["nats_insights_thresholds"]))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    written = subprocess.run(
        [str(ANSIBLE), str(play), "-e", json.dumps(variables)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert written.returncode == 0, written.stdout
    done = subprocess.run(
        [sys.executable, str(ROLE / "files/jobs/launch.py"), str(tmp_path / "settings.json")],
        capture_output=True, text=True, check=False, env=environment, cwd="/",
    )  # fmt: skip
    clean(done.stdout + done.stderr)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "FOUND: " in done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["job"] for result in results] == ["silver", "findings", "report"]
    report = json.loads((tmp_path / "pipeline/report/report.json").read_text())
    assert report["title"] == "The fleet's report"
