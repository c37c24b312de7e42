# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role nats_insights with a lake in a directory, in object storage and elsewhere, with a real ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.clean_output import clean
from support.role_rendering import COLLECTIONS

ROLE = Path(COLLECTIONS) / "ansible_collections/natsops/jetstream/roles/nats_insights"
RENDER = """
- hosts: localhost
  gather_facts: false
  vars_files: ["{role}/defaults/main.yml", "{role}/vars/main.yml"]
  tasks:
    - ansible.builtin.copy:
        content: "{{{{ {{'program': scheduled, 'command': nats_insights__command}} | to_json }}}}"
        dest: "{output}"
        mode: "0600"
      no_log: true
"""
TIMER = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: natsops.jetstream.nats_insights, tasks_from: timer}
"""


def play(directory: Path, text: str, variables: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    (directory / "play.yml").write_text(text)
    given = {"ansible_python_interpreter": sys.executable, **variables}
    (directory / "variables.json").write_text(json.dumps(given))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local", "play.yml"]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "ANSIBLE_HOME": str(directory / "home")}
    command += ["-e", "@variables.json"]
    done = subprocess.run(command, check=False, cwd=directory, env=environment, capture_output=True, text=True)
    clean(done.stdout + done.stderr)
    return done


@pytest.mark.parametrize(
    ("lake", "libraries", "writable", "seconds", "job_lake"),
    [
        ("/srv/lake", ["msgspec"], ["/srv/lake"], 100, "/srv/lake"),
        ("s3://insights/production", ["msgspec", "boto3"], [], 140, "s3a://insights/production"),
    ],
)
def test_timer_and_jobs_use_the_lake(
    tmp_path: Path, lake: str, libraries: list[str], writable: list[str], seconds: float, job_lake: str
) -> None:
    (schedule,) = [task for task in yaml.safe_load((ROLE / "tasks/timer.yml").read_text()) if "vars" in task]
    names = ("libraries", "writable", "timeout", "settings")
    s3 = {"access_key": "collector", "secret_key": "hidden"}
    variables = {
        "scheduled": {name: schedule["vars"][f"nats_program_{name}"] for name in names},
        "nats_insights_lake": lake,
        "nats_insights_lake_s3": s3,
        "nats_insights_deadline": 40,
    }
    done = play(tmp_path, RENDER.format(role=ROLE, output=tmp_path / "output.json"), variables)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "output.json").read_text())
    program = found["program"]
    assert (program["libraries"], program["writable"], float(program["timeout"])) == (libraries, writable, seconds)
    assert (program["settings"]["lake"], program["settings"]["lake_s3"]) == (lake, s3)
    # The jobs' command line contains no secret.
    assert found["command"][found["command"].index("--lake") + 1] == job_lake
    assert "hidden" not in json.dumps(found["command"]) + done.stdout + done.stderr


def test_timer_refuses_other_lakes_before_it_changes_the_host(tmp_path: Path) -> None:
    variables = {"nats_insights_lake": "hdfs://name/insights", "nats_insights_collector_dir": str(tmp_path / "program")}
    done = play(tmp_path, TIMER, variables)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "Nothing was done: nats_insights_lake is hdfs://name/insights, but snapshots can be written to" in said
    assert "changed=0" in said and not (tmp_path / "program").exists()
