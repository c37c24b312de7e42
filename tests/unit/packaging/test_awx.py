# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbooks/awx defines names playbooks, variables and versions that there are; playbooks run without prompts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
PLAYBOOKS = CHECKOUT / "playbooks"
#: The demo is for a machine with a shell.
OPERATIONS = sorted(path.stem for path in PLAYBOOKS.glob("*.yml") if not path.stem.startswith("demo"))


class _Loader(yaml.SafeLoader):
    """Takes texts that are no templates, as Ansible does."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


def load(name: str) -> dict[str, Any]:
    return dict(yaml.load((PLAYBOOKS / "awx/vars" / name).read_text(), Loader=_Loader))


DEFINITIONS = load("definitions.yml")
QUESTIONS = load("surveys.yml")["nats_awx__questions"]
TEMPLATES = DEFINITIONS["nats_awx__templates"]


def flat(survey: list[Any]) -> list[str]:
    return [name for item in survey for name in (flat(item) if isinstance(item, list) else [item])]


def documented() -> set[str]:
    """Return the variables of roles, and those that a playbook tells in its head."""
    found = set()
    for path in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values():
            found |= set(spec.get("options", {}))
    for name in OPERATIONS:
        head = (PLAYBOOKS / f"{name}.yml").read_text().partition("\n- name:")[0]
        found |= set(re.findall(r"\b\w+\b", head))
    return found


def playbook(template: dict[str, Any]) -> str:
    return str(template.get("playbook", template["name"].replace(" ", "_")))


def test_every_operation_has_a_job_template_and_every_template_its_playbook() -> None:
    assert sorted({playbook(template) for template in TEMPLATES}) == OPERATIONS


@pytest.mark.parametrize(
    "template", [*TEMPLATES, *DEFINITIONS["nats_awx__workflows"]], ids=lambda template: template["name"]
)
def test_answers_become_documented_variables(template: dict[str, Any]) -> None:
    survey = flat(template.get("survey", []))
    gives = {name: text for variable in survey for name, text in QUESTIONS[variable].get("gives", {}).items()}
    used = {word for text in gives.values() for word in re.findall(r"\w+", text)}
    variables = documented()
    assert [variable for variable in survey if variable not in variables and variable not in used] == []
    extra = template.get("extra_vars", {})
    names = set(re.findall(r"'(nats_\w+)':", extra)) if isinstance(extra, str) else set(extra)
    assert {*gives, *names} - variables == set()


def test_every_question_is_asked() -> None:
    assert set(QUESTIONS) == {variable for template in TEMPLATES for variable in flat(template.get("survey", []))}


def test_nodes_run_templates_that_there_are() -> None:
    names = {template["name"] for template in TEMPLATES}
    nodes = {node["name"]: node for node in DEFINITIONS["nats_awx__nodes"]}
    for workflow in DEFINITIONS["nats_awx__workflows"]:
        for node in nodes.values():
            template = node.get("template", workflow["rolls"]).replace(
                "{{ nats_awx__workflow.rolls }}", workflow["rolls"]
            )
            assert template in names
            assert set(node.get("success_nodes", []) + node.get("failure_nodes", [])) <= set(nodes)


def test_credential_types_give_what_the_modules_and_roles_read() -> None:
    from ansible_collections.natsops.jetstream.plugins.module_utils import _module

    read = {variable for _option, variable, _key in _module._SOURCES}
    for kind in DEFINITIONS["nats_awx__credential_types"]:
        assert set(kind["injectors"].get("env", {})) <= read
        assert set(kind["injectors"]["extra_vars"]) <= documented()


def test_nothing_asks_and_every_setting_is_told() -> None:
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
