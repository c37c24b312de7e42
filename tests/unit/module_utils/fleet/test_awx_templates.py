# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The credentials, the question for a cluster and the schedules of AWX's job templates."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.natsops.jetstream.plugins.filter.nats_awx_templates import nats_awx_templates
from ansible_collections.natsops.jetstream.plugins.module_utils.fleet.awx_templates import CLUSTER

BATCH = {"variable": "batch", "type": "text", "required": True, "default": "one", "question_name": "Batch"}
WINDOW = {"variable": "window", "type": "text", "required": False, "question_name": "Window"}
DEPLOY = {"name": "N deploy", "playbook": "playbooks/deploy.yml", "survey_spec": {"spec": [BATCH, WINDOW]}}
REPORT = {"name": "N report", "playbook": "playbooks/report.yml", "survey_enabled": False}
FLEET = {"name": "N fleet", "playbook": "playbooks/fleet.yml"}
TYPES = {"machine": "all", "CA": ["deploy", "fleet"]}
NIGHTLY = {"name": "nightly", "template": "deploy", "rule": "FREQ=DAILY;INTERVAL=1", "enabled": False}


def made(*templates: dict[str, Any], **options: Any) -> dict[str, Any]:
    return nats_awx_templates(templates, **{"prefix": "N", "credential_playbooks": TYPES, **options})


def credentials(**options: Any) -> list[list[str] | None]:
    return [template.get("credentials") for template in made(DEPLOY, REPORT, **options)["templates"]]


def test_a_template_receives_the_credentials_that_its_playbook_needs() -> None:
    both = {"machine": "ssh", "CA": "root"}
    assert credentials(credentials=both) == [["ssh", "root"], ["ssh"]]
    assert credentials(credentials={"machine": ["ssh", "jump"]}) == [["ssh", "jump"], ["ssh", "jump"]]
    assert credentials(credentials=both, playbook_credentials={"report": {"machine": "read", "S3": "keys"}}) == [
        ["ssh", "root"],
        ["read", "keys"],
    ]
    assert credentials(credentials=both, playbook_credentials={"deploy": {"CA": ""}}) == [["ssh"], ["ssh"]]


def test_credentials_that_were_attached_in_awx_stay_only_without_any_setting() -> None:
    assert credentials() == [None, None]
    assert credentials(credentials={"CA": "root"}) == [["root"], []]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"credentials": {"ssh": "key"}}, "nats_awx_credentials: ssh: unknown type. The types are machine, CA."),
        ({"playbook_credentials": {"absent": {}}}, "nats_awx_playbook_credentials: absent: no job template"),
        ({"schedule_settings": {"hourly": True}}, "hourly: unknown schedule. The schedules are nightly."),
        ({"schedule_settings": {"nightly": "02:00"}}, "'02:00' is neither true, false nor a rule like FREQ=DAILY"),
        ({"schedule_rows": [{**NIGHTLY, "enabled": True, "answers": {"batch": ""}}]}, "no answer for batch"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(AnsibleFilterError, match=r"^natsops\.jetstream\.nats_awx_templates: ") as refused:
        made(DEPLOY, **{"schedule_rows": [NIGHTLY], **options})
    assert why in str(refused.value)


def test_surveys_have_a_question_for_one_of_several_clusters() -> None:
    templates = made(DEPLOY, REPORT, FLEET, clusters=["eu", "us"], fleet_playbooks=["fleet"])["templates"]
    assert [[question["variable"] for question in template["survey_spec"]["spec"]] for template in templates[:2]] == [
        [CLUSTER, "batch", "window"],
        [CLUSTER],
    ]
    question = templates[0]["survey_spec"]["spec"][0]
    assert (question["choices"], question["required"]) == (["eu", "us"], True)
    assert templates[1]["survey_enabled"] and templates[2] == FLEET
    assert made(DEPLOY)["templates"] == [DEPLOY]


@pytest.mark.parametrize(
    ("settings", "rule", "enabled"),
    [
        ({}, NIGHTLY["rule"], False),
        ({"nightly": True}, NIGHTLY["rule"], True),
        ({"nightly": "FREQ=WEEKLY;INTERVAL=1"}, "FREQ=WEEKLY;INTERVAL=1", True),
    ],
)
def test_a_setting_changes_the_rule_or_only_enables_a_schedule(
    settings: dict[str, Any], rule: str, enabled: bool
) -> None:
    [schedule] = made(DEPLOY, schedule_rows=[NIGHTLY], schedule_settings=settings)["schedules"]
    assert schedule == {
        "name": "N nightly",
        "unified_job_template": "N deploy",
        "rule": rule,
        "enabled": enabled,
        "answers": {"batch": "one"},
    }


def test_other_schedules_keep_their_defaults() -> None:
    rows = [{**NIGHTLY, "enabled": True}, {**NIGHTLY, "name": "weekly"}, {**NIGHTLY, "answers": {"batch": ""}}]
    found = made(DEPLOY, schedule_rows=rows[:2], schedule_settings={"weekly": True})["schedules"]
    assert [schedule["enabled"] for schedule in found] == [True, True]
    assert made(DEPLOY, schedule_rows=rows[2:])["schedules"] == []


def test_each_cluster_has_its_schedule() -> None:
    rows = [NIGHTLY, {**NIGHTLY, "name": "all", "template": "fleet"}]
    found = made(DEPLOY, FLEET, clusters=["eu", "us"], fleet_playbooks=["fleet"], schedule_rows=rows)["schedules"]
    assert [(schedule["name"], schedule["answers"].get(CLUSTER)) for schedule in found] == [
        ("N nightly eu", "eu"),
        ("N nightly us", "us"),
        ("N all", None),
    ]
