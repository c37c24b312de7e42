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
from ansible_collections.natsops.jetstream.plugins.filter.nats_awx_templates import nats_awx_templates
from ansible_collections.natsops.jetstream.plugins.module_utils.fleet.awx_workflows import (
    workflow_nodes,
    workflow_templates,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.fleet.survey_answers import survey_problems
from support.documents import CHECKOUT, role_options
from support.playbook_reads import playbook_files, reads
from support.programs import tool

PLAYBOOKS = CHECKOUT / "playbooks"
GENERATOR = tool("reference")
#: The demo is excluded, because it needs a machine with a shell.
OPERATIONS = sorted(path.stem for path in PLAYBOOKS.glob("*.yml") if not path.stem.startswith("demo"))


def load(name: str) -> dict[str, Any]:
    return dict(yaml.load((PLAYBOOKS / "awx/vars" / name).read_text(), Loader=GENERATOR.AwxLoader))


OBJECTS = load("objects.yml")
QUESTIONS = {question["variable"]: question for question in OBJECTS["nats_awx__questions"]}
TEMPLATES = OBJECTS["nats_awx__job_templates"]
ROWS = OBJECTS["nats_awx__workflows"]
PREFIX = "{{ nats_awx_prefix }}"
WORKFLOWS = workflow_templates(ROWS, PREFIX)
FORMS = yaml.safe_load((PLAYBOOKS / "vars/answers.yml").read_text())["nats_survey_answers"]
#: AWX's types and the corresponding types of argument specs.
TYPES = {"integer": ("int",), "multiplechoice": ("str", "bool"), "text": ("str",)}


#: The variables that a credential type provides; the file that reads a key, for a type whose variable has a default.
KINDS = {kind["name"].removeprefix(f"{PREFIX} "): kind for kind in OBJECTS["nats_awx__credential_types"]}
ISSUES = CHECKOUT / "roles/nats_server/tasks/tls/issue.yml"
#: Playbooks that read a variable of a type but do not receive a credential, with the reason.
WITHOUT = {
    "account": {
        "diagnose": "only lists the streams of servers that are down; a site adds a credential for that",
        "exporter": "only a message names the variable; the host of the exporter has its own .creds files",
    },
    "account operators": {"diagnose": "as for the type account"},
    "object storage": {
        "report": "only the table of backups reads S3; a site adds a credential that can only read",
        "snapshot": "as report",
        "insights": "as report",
    },
    "private CA": {"rotate_credentials": "no step of credentials issues certificates"},
}


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
    passed = OBJECTS["nats_awx__insights_vars"] if isinstance(extra, str) else extra
    used = set(re.findall(r"\w+", " ".join(passed.values())))
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


def test_nodes_run_templates_and_lead_to_nodes_that_exist() -> None:
    templates = {template["name"] for template in TEMPLATES}
    made: dict[str, list[str]] = {workflow["name"]: [] for workflow in WORKFLOWS}
    for node in workflow_nodes(ROWS, PREFIX, "Default", 24):
        assert node.get("unified_job_template") in {*templates, None}
        before = made[node["workflow_job_template"]]
        assert {*node.get("success_nodes", []), *node.get("failure_nodes", [])} <= {*before}
        before.append(node["identifier"])
    rolling = ["insights", "diagnose", "roll", "approve", "approve", "plan"]
    assert made[f"{PREFIX} rolling restart"] == made[f"{PREFIX} rolling upgrade"] == rolling
    assert made[f"{PREFIX} approved signing key"] == ["drop", "approve", "approve", "add"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_plan_and_operation_of_a_workflow_have_the_same_questions(row: dict[str, Any]) -> None:
    parts = {f"{PREFIX} {row[part]}": part for part in ("plan", "run")}
    found = {parts[template["name"]]: template for template in TEMPLATES if template["name"] in parts}
    assert {*asked(found["run"])} <= {*asked(row), *asked(found["plan"])}
    # Plans of accounts and assets have their own playbooks; the first step of a signing key changes servers.
    if row["name"] not in ("approved accounts", "approved assets"):
        assert found["plan"]["playbook"] == found["run"]["playbook"]
        assert found["plan"].get("job_type") == "check" or row["name"] == "approved signing key"


def test_roles_and_schedules_name_templates() -> None:
    names = {template["name"].removeprefix(f"{PREFIX} ") for template in TEMPLATES}
    assert {*OBJECTS["nats_awx__reads"], *OBJECTS["nats_awx__routine"]} <= names
    assert {schedule["template"] for schedule in OBJECTS["nats_awx__schedules"]} <= names


def test_each_credential_type_has_its_playbooks() -> None:
    mapping = OBJECTS["nats_awx__credential_playbooks"]
    assert {*mapping} == {*KINDS, "machine", "vault", "other"}
    assert [kind for kind in mapping if mapping[kind] == "all"] == ["machine", "vault", "other", "system"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "system"])
def test_a_playbook_receives_a_credential_exactly_if_it_reads_its_variables(kind: str) -> None:
    variables = {*KINDS[kind]["injectors"]["extra_vars"]}
    if kind == "private CA":
        found = {name for name in OPERATIONS if ISSUES in playbook_files(PLAYBOOKS / f"{name}.yml")}
    else:
        found = {name for name in OPERATIONS if reads(PLAYBOOKS / f"{name}.yml") & variables}
    assert {*WITHOUT.get(kind, {})} <= found
    # The job templates run fleet.yml for deploy.
    expected = found - {*WITHOUT.get(kind, {})}
    expected |= {"fleet"} if "deploy" in expected else set()
    assert {*OBJECTS["nats_awx__credential_playbooks"][kind]} == expected


def reference(header: str) -> list[list[str]]:
    """Return the rows of the table of the reference page under this header."""
    section = GENERATOR.awx_page().partition(f"\n## {header}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_reference_lists_the_credentials_and_questions_of_each_template() -> None:
    mapping = OBJECTS["nats_awx__credential_playbooks"]
    templates = [{**one, "playbook": one["playbook"].rpartition(" }}")[2]} for one in TEMPLATES]
    made = nats_awx_templates(
        templates, prefix=PREFIX, credential_playbooks=mapping, credentials={kind: kind for kind in mapping}
    )["templates"]
    everywhere = {kind for kind in mapping if mapping[kind] == "all"}
    rows = reference("Job templates")
    assert [(f"{PREFIX} {row[0]}", {*quoted(row[2])} | everywhere, quoted(row[5])) for row in rows] == [
        (template["name"], {*template["credentials"]}, asked(template)) for template in made
    ]
    (upgrade,) = [row for row in rows if row[0] == "upgrade"]
    assert upgrade[1] == "`upgrade`" and upgrade[4] == "yes" and upgrade[5].startswith("**`nats_server_version`**")


def test_the_reference_lists_the_teams_of_each_template() -> None:
    teams = {row[0]: row[3] for row in reference("Job templates")}
    assert teams["report"] == "readers, operators"
    assert teams["plan deploy"] == "readers, operators, approvers"
    assert (teams["bundle"], teams["add signing key"], teams["restart"]) == ("operators", "approvers", "")
    assert {name for name, found in teams.items() if found == "operators"} == {*OBJECTS["nats_awx__routine"]}


def test_the_reference_lists_the_steps_of_each_workflow() -> None:
    rows = {row[0]: row for row in reference("Workflows")}
    nodes: dict[str, set[str]] = {row["name"]: set() for row in ROWS}
    for node in workflow_nodes(ROWS, "", "Default", 24):
        nodes[node["workflow_job_template"].strip()].add(node.get("unified_job_template", "**approval**").strip())
    assert {name: {*row[1].split(" → "), row[2]} - {""} for name, row in rows.items()} == nodes


def test_the_reference_lists_the_inputs_of_each_credential_type() -> None:
    rows = reference("Credential types")
    fields = [field for kind in KINDS.values() for field in kind["inputs"]["fields"]]
    assert [(*quoted(row[1]), "secret" in row[3]) for row in rows] == [
        (field["id"], bool(field.get("secret"))) for field in fields
    ]
    assert [quoted(row[0])[0] for row in rows if row[0]] == [*KINDS]


def test_the_reference_lists_the_schedules_and_their_defaults() -> None:
    rows = {row[0].strip("`"): row for row in reference("Schedules")}
    assert [(name, row[1], *quoted(row[2])) for name, row in rows.items()] == [
        (row["name"], row["template"], row["rule"]) for row in OBJECTS["nats_awx__schedules"]
    ]
    assert rows["certificates"][3:] == ["`nats_cluster_rotate_stop_after: renew`", "no"]
    assert rows["snapshot"][4] == "with `nats_awx_lake`"


def test_the_reference_lists_the_results_that_later_jobs_read() -> None:
    results = GENERATOR.awx_results()
    passed = set(re.findall(r"nats_(?:accounts|assets)_plan\b", str([one.get("extra_vars") for one in TEMPLATES])))
    assert passed and {*passed, "nats_plan", "nats_reload", "nats_deployment"} <= results


def test_the_fleet_templates_deploy() -> None:
    assert {
        template["extra_vars"]["nats_fleet_playbook"] for template in TEMPLATES if template["name"].endswith("fleet")
    } == {"deploy"}


def all_plays(name: str) -> str:
    """Return the text of a playbook and of those that it imports."""
    return "".join(path.read_text() for path in playbook_files(PLAYBOOKS / f"{name}.yml") if path.parent == PLAYBOOKS)


def test_every_playbook_limits_itself_to_a_cluster_or_runs_for_all() -> None:
    every = OBJECTS["nats_awx__fleet_playbooks"]
    assert [
        name
        for name in OPERATIONS
        if name not in every and not re.search(r"hosts: (\"|>-\n +)\{\{ nats_server_hosts ", all_plays(name))
    ] == []


def test_schedules_answer_every_required_question_and_never_change_an_authority() -> None:
    made = nats_awx_templates(
        TEMPLATES,
        prefix=PREFIX,
        credential_playbooks=OBJECTS["nats_awx__credential_playbooks"],
        schedule_rows=[{**row, "enabled": True} for row in OBJECTS["nats_awx__schedules"]],
    )
    templates = {template["name"]: template for template in made["templates"]}
    assert len(made["schedules"]) == len(OBJECTS["nats_awx__schedules"])
    for schedule in made["schedules"]:
        template = templates[schedule["unified_job_template"]]
        questions = template.get("survey_spec", {}).get("spec", [])
        answers = schedule["answers"]
        assert {question["variable"] for question in questions if question["required"]} == {*answers}
        if "rotate_certificates" in template["playbook"]:
            assert answers["nats_cluster_rotate_stop_after"] == "renew"


def test_teams_cannot_change_servers_without_an_approval() -> None:
    approved = {row["run"] for row in ROWS}
    assert approved.isdisjoint([*OBJECTS["nats_awx__reads"], *OBJECTS["nats_awx__routine"]])
    assert {row["role"] for row in OBJECTS["nats_awx__roles"]} == {"execute", "approval", "read"}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_each_form_accepts_its_example_and_the_question_s_default(name: str) -> None:
    form = FORMS[name]
    answers = [str(form["example"]), str(QUESTIONS[name].get("default", ""))]
    assert [list(survey_problems({name: answer}, {name: form})) for answer in answers] == [[], []]
    assert list(survey_problems({name: "a\nb {{ c }}\x00"}, {name: form}))


def test_each_text_has_a_form() -> None:
    assert {name for name, question in QUESTIONS.items() if question["type"] == "text"} == {*FORMS}


@pytest.mark.parametrize("rulebook", ["controller", "controller_insights"])
def test_rulebooks_answer_every_required_question(rulebook: str) -> None:
    """AWX refuses a launch over its API if the answer to a required question is missing, even one with a default."""
    sets = yaml.safe_load((CHECKOUT / f"extensions/eda/rulebooks/{rulebook}.yml").read_text())
    objects = {item["name"].removeprefix(f"{PREFIX} "): item for item in [*TEMPLATES, *WORKFLOWS]}
    for rule in [rule for one in sets for rule in one["rules"]]:
        ((kind, action),) = rule["action"].items()
        name = action["name"].rpartition("}} ")[2]
        assert (objects[name] in WORKFLOWS) == (kind == "run_workflow_template")
        assert kind == "run_workflow_template" or name in OBJECTS["nats_awx__reads"]
        answers, questions = action["job_args"]["extra_vars"], objects[name]["survey_spec"]["spec"]
        assert {question["variable"] for question in questions if question["required"]} <= {*answers}
        assert {*answers} <= {question["variable"] for question in questions}


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
