# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks, variables and versions that playbooks/awx names exist; playbooks run without prompts."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import yaml
from support.documents import CHECKOUT, role_options

PLAYBOOKS = CHECKOUT / "playbooks"
#: The demo is excluded, because it needs a machine with a shell.
OPERATIONS = sorted(path.stem for path in PLAYBOOKS.glob("*.yml") if not path.stem.startswith("demo"))


class _Loader(yaml.SafeLoader):
    """Reads strings that are marked as not being templates, as Ansible does."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


def load(name: str) -> dict[str, Any]:
    return dict(yaml.load((PLAYBOOKS / "awx/vars" / name).read_text(), Loader=_Loader))


OBJECTS = load("objects.yml")
QUESTIONS = {question["variable"]: question for question in OBJECTS["nats_awx__questions"]}
TEMPLATES = OBJECTS["nats_awx__job_templates"]
WORKFLOWS = OBJECTS["nats_awx__workflow_job_templates"]
#: AWX's types and the corresponding types of argument specs.
TYPES = {"integer": ("int",), "multiplechoice": ("str", "bool"), "text": ("str",)}


def asked(template: dict[str, Any]) -> list[str]:
    return [question["variable"] for question in template.get("survey_spec", {}).get("spec", [])]


@cache
def documented() -> set[str]:
    """Return the variables of roles, and the variables that a playbook documents in its first lines."""
    heads = [(PLAYBOOKS / f"{name}.yml").read_text().partition("\n- name:")[0] for name in OPERATIONS]
    return set(role_options()) | set(re.findall(r"\b\w+\b", "".join(heads)))


def test_every_operation_has_a_job_template_and_every_template_its_playbook() -> None:
    assert {template["playbook"] for template in TEMPLATES} == {
        f"{{{{ nats_awx_playbooks }}}}{name}.yml" for name in OPERATIONS
    }


@pytest.mark.parametrize("template", [*TEMPLATES, *WORKFLOWS], ids=lambda template: template["name"])
def test_answers_become_documented_variables(template: dict[str, Any]) -> None:
    extra, variables = template.get("extra_vars", {}), documented()
    used = set() if isinstance(extra, str) else set(re.findall(r"\w+", " ".join(extra.values())))
    names = set(re.findall(r"'(nats_\w+)':", extra)) if isinstance(extra, str) else set(extra)
    # Workflows pass their survey answers to their nodes.
    assert [name for name in asked(template) if name not in variables | used and template in TEMPLATES] == []
    assert names - variables == set()


def test_common_job_settings_are_documented() -> None:
    assert set(OBJECTS["nats_awx__job_template"]["extra_vars"]) <= documented()


def test_every_survey_question_is_used() -> None:
    assert set(QUESTIONS) == {variable for template in TEMPLATES for variable in asked(template)}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_have_the_types_of_their_variables(name: str) -> None:
    question, option = QUESTIONS[name], role_options().get(name)
    if option is None:
        return
    assert option.get("type", "str") in TYPES[question["type"]]
    if question["type"] == "multiplechoice":
        choices = ["false", "true"] if option["type"] == "bool" else option["choices"]
        assert question["choices"] == choices
        assert question["default"] in choices


def test_nodes_run_templates_and_lead_to_nodes_that_there_are() -> None:
    templates = {template["name"] for template in TEMPLATES}
    made: dict[str, set[str]] = {workflow["name"]: set() for workflow in WORKFLOWS}
    for node in OBJECTS["nats_awx__workflow_job_template_nodes"]:
        assert node.get("unified_job_template") in {*templates, None}
        before = made[node["workflow_job_template"]]
        assert {*node.get("success_nodes", []), *node.get("failure_nodes", [])} <= before
        before.add(node["identifier"])
    rolling = {"plan", "approve", "roll", "insights", "diagnose"}
    assert made == {
        "{{ nats_awx_prefix }} rolling restart": rolling,
        "{{ nats_awx_prefix }} rolling upgrade": rolling,
        "{{ nats_awx_prefix }} approved patch": {"plan", "approve", "patch", "diagnose"},
        "{{ nats_awx_prefix }} approved maintenance": {"plan", "approve", "enter"},
        "{{ nats_awx_prefix }} approved restore": {"plan", "approve", "restore"},
        "{{ nats_awx_prefix }} approved rebalance": {"plan", "approve", "rebalance"},
        "{{ nats_awx_prefix }} approved repair": {"plan", "approve", "repair"},
        "{{ nats_awx_prefix }} approved rescue": {"plan", "approve", "rescue"},
        "{{ nats_awx_prefix }} approved failover": {"plan", "approve", "failover"},
        "{{ nats_awx_prefix }} approved failback": {"plan", "approve", "failback"},
        "{{ nats_awx_prefix }} approved accounts": {"plan", "approve", "change"},
        "{{ nats_awx_prefix }} approved signing key": {"add", "approve", "drop"},
        "{{ nats_awx_prefix }} approved operator key": {"plan", "approve", "replace"},
    }


def test_credential_types_provide_the_inputs_of_modules_and_roles() -> None:
    from ansible_collections.natsops.jetstream.plugins.module_utils import module

    read = {variable for _option, variable, _key in module._SOURCES}
    for kind in OBJECTS["nats_awx__credential_types"]:
        assert set(kind["injectors"].get("env", {})) <= read
        assert set(kind["injectors"]["extra_vars"]) <= documented()


def test_playbooks_do_not_prompt_and_document_every_setting() -> None:
    for path in [*PLAYBOOKS.rglob("*.yml"), *(CHECKOUT / "roles").glob("*/tasks/*.yml")]:
        assert not re.search(r"vars_prompt|builtin\.pause:", path.read_text()), path
    guide = (CHECKOUT / "docs/awx.md").read_text()
    assert [name for name in load("settings.yml") if f"`{name}`" not in guide] == []


def test_the_execution_environment_takes_the_artifact_of_this_version() -> None:
    version = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"]
    environment = yaml.safe_load((CHECKOUT / "extensions/execution-environment/execution-environment.yml").read_text())
    assert (
        environment["dependencies"]["galaxy"]["collections"][0]["name"]
        == f"collections/natsops-jetstream-{version}.tar.gz"
    )
