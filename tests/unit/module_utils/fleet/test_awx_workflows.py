# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workflows of AWX and the answers to its surveys."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_awx_workflows import nats_awx_workflows
from ansible_collections.natsops.jetstream.plugins.filter.nats_survey_problems import nats_survey_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.fleet.awx_workflows import workflow_templates

ROW = {"name": "approved deploy", "plan": "plan deploy", "run": "deploy", "failure": "diagnose", "limit": True}


def test_a_workflow_runs_the_operation_after_the_approval_of_its_plan() -> None:
    made = nats_awx_workflows([ROW], "N", "Default", 0.5)
    assert made["templates"] == [
        {
            "name": "N approved deploy",
            "description": "Plan deploy, approval, deploy; diagnose if it fails",
            "ask_limit_on_launch": True,
            "survey_enabled": False,
        }
    ]
    nodes = [(node["identifier"], node.get("success_nodes"), node.get("failure_nodes")) for node in made["nodes"]]
    assert nodes == [
        ("diagnose", None, None),
        ("deploy", None, ["diagnose"]),
        ("approve", None, None),
        ("approve", ["deploy"], None),
        ("plan", ["approve"], None),
    ]
    assert made["nodes"][2]["approval_node"]["timeout"] == 1800


def test_surveys_of_workflows_have_a_question_for_a_cluster_unless_they_run_for_all() -> None:
    one, every = workflow_templates([ROW, {**ROW, "name": "approved fleet", "fleet": True}], "N", ["eu", "us"])
    assert one["survey_enabled"] and one["survey_spec"]["spec"][0]["choices"] == ["eu", "us"]
    assert "survey_spec" not in every


def test_a_workflow_is_defined_once() -> None:
    with pytest.raises(ValueError, match=r"^approved deploy: defined twice$"):
        workflow_templates([ROW, ROW], "N")


def test_only_texts_of_the_wrong_form_are_problems() -> None:
    forms = {name: {"pattern": r"\d+", "example": "12"} for name in ("a", "b", "c", "d", "e")}
    assert nats_survey_problems({"a": "1x", "b": " 12 ", "c": "", "d": ["x"]}, forms) == ["a: '1x' is not like 12"]
