# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job templates and schedules of AWX for the settings of a site: the credentials of each template, the
survey question for a cluster, and the enabled schedules. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

#: The extra variable of the question for a cluster, which is the host pattern of the playbooks.
CLUSTER = "nats_server_hosts"
#: A credential type of this table that all playbooks receive.
ALL = "all"


@dataclass(frozen=True)
class Credentials:
    """The names of a site's credentials.

    `playbooks`: the playbooks that receive each type, or `all`. `names`: the credential of each type, or several.
    `by_playbook`: for each playbook, the credentials that replace those of their types; other keys are additional types.
    """

    playbooks: Mapping[str, Any]
    names: Mapping[str, Any]
    by_playbook: Mapping[str, Mapping[str, Any]]

    def names_for(self, playbook: str) -> list[str]:
        """Return the names of the credentials of a playbook."""
        own = {
            kind: names
            for kind, names in self.names.items()
            if self.playbooks[kind] == ALL or playbook in self.playbooks[kind]
        }
        found = {**own, **self.by_playbook.get(playbook, {})}
        return [name for names in found.values() for name in ([names] if isinstance(names, str) else names) if name]

    def check(self, playbooks: Sequence[str]) -> None:
        """Raise ValueError for an unknown credential type or playbook."""
        if unknown := sorted({*self.names} - {*self.playbooks}):
            raise ValueError(
                f"nats_awx_credentials: {', '.join(unknown)}: unknown type. The types are {', '.join(self.playbooks)}."
            )
        if unknown := sorted({*self.by_playbook} - {*playbooks}):
            raise ValueError(f"nats_awx_playbook_credentials: {', '.join(unknown)}: no job template runs this playbook")


def job_templates(
    templates: Sequence[Mapping[str, Any]],
    credentials: Credentials,
    clusters: Sequence[str],
    fleet_playbooks: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the job templates with their credentials, and with the question for a cluster if there are several.

    `fleet_playbooks`: those that run for all clusters. Without any credential, the option is absent, so the
    credentials that were attached in AWX stay attached. Raises ValueError for unknown names.
    """
    credentials.check([playbook_name(template) for template in templates])
    manages = bool(credentials.names or credentials.by_playbook)
    return [
        {
            **(template if playbook_name(template) in fleet_playbooks else with_cluster_question(template, clusters)),
            **({"credentials": credentials.names_for(playbook_name(template))} if manages else {}),
        }
        for template in templates
    ]


def playbook_name(template: Mapping[str, Any]) -> str:
    """Return the name of the playbook of a job template."""
    return PurePosixPath(template["playbook"]).stem


def with_cluster_question(template: Mapping[str, Any], clusters: Sequence[str]) -> dict[str, Any]:
    """Return a template or workflow whose survey begins with a question for one of these clusters; unchanged without
    clusters."""
    if not clusters:
        return dict(template)
    survey = template.get("survey_spec") or {"name": "", "description": "", "spec": []}
    question = {
        "variable": CLUSTER,
        "type": "multiplechoice",
        "choices": list(clusters),
        "required": True,
        "question_name": "Cluster",
        "question_description": "Its group in the inventory",
    }
    return {**template, "survey_enabled": True, "survey_spec": {**survey, "spec": [question, *survey["spec"]]}}


def schedules(
    rows: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    templates: Sequence[Mapping[str, Any]],
    prefix: str,
) -> list[dict[str, Any]]:
    """Return the schedules: one for each row, or for each row and cluster if the survey of its template has a
    question for a cluster.

    `settings`: by the name of a schedule a rule, which enables it, or whether it is enabled with the rule of its row.
    A schedule answers every required question, because AWX refuses a launch without these answers. A disabled row
    without an answer is omitted. Raises ValueError for unknown names, wrong values and missing answers.
    """
    names = [row["name"] for row in rows]
    if unknown := sorted({*settings} - {*names}):
        raise ValueError(
            f"nats_awx_schedules: {', '.join(unknown)}: unknown schedule. The schedules are {', '.join(names)}."
        )
    by_name = {template["name"]: template for template in templates}
    return [
        schedule
        for row in rows
        for schedule in _make_schedules(row, settings.get(row["name"], row["enabled"]), by_name, prefix)
    ]


def _make_schedules(
    row: Mapping[str, Any], setting: Any, templates: Mapping[str, Mapping[str, Any]], prefix: str
) -> Iterator[dict[str, Any]]:
    if not isinstance(setting, (bool, str)) or (isinstance(setting, str) and "FREQ=" not in setting):
        raise ValueError(
            f"nats_awx_schedules: {row['name']}: {setting!r} is neither true, false nor a rule like {row['rule']}"
        )
    template = f"{prefix} {row['template']}"
    answers, clusters = _answers(row, templates[template])
    if missing := [variable for variable, answer in answers.items() if answer in (None, "")]:
        if setting:
            raise ValueError(f"nats_awx_schedules: {row['name']}: there is no answer for {', '.join(missing)}")
        return
    for cluster in clusters:
        yield {
            "name": f"{prefix} {row['name']} {cluster}".strip(),
            "unified_job_template": template,
            "rule": setting if isinstance(setting, str) else row["rule"],
            "enabled": bool(setting),
            "answers": {**answers, CLUSTER: cluster} if cluster else answers,
        }


def _answers(row: Mapping[str, Any], template: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the answers of a schedule to the required questions, and the clusters of the survey: an empty name if it
    has no such question."""
    answers: dict[str, Any] = {}
    clusters = [""]
    for question in template.get("survey_spec", {}).get("spec", ()):
        if question["variable"] == CLUSTER:
            clusters = list(question["choices"])
        elif question["required"]:
            answers[question["variable"]] = question.get("default")
    return {**answers, **row.get("answers", {})}, clusters
