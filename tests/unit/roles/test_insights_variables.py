# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook insights lists every variable that only the jobs use, and refuses it if it is set only for servers."""

from __future__ import annotations

from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
#: The entry points that run on the host of the jobs.
JOBS = {"setup", "run", "fetch", "verdict"}


def test_the_playbook_lists_every_variable_that_only_the_jobs_use() -> None:
    specs = yaml.safe_load((CHECKOUT / "roles/nats_insights/meta/argument_specs.yml").read_text())["argument_specs"]
    used = {name: set(specs[name].get("options", {})) for name in specs}
    job_variables = set().union(*(used[name] for name in JOBS))
    elsewhere = set().union(*(used[name] for name in used.keys() - JOBS - {"jobs_timer"}))
    (first, *_plays) = yaml.safe_load((CHECKOUT / "playbooks/insights.yml").read_text())
    (listed,) = [
        task["vars"]["insights_of_jobs"] for task in first["tasks"] if "insights_of_jobs" in task.get("vars", {})
    ]
    assert [f"nats_insights_{name}" for name in listed] == sorted(job_variables - elsewhere)
