# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workflows of AWX that run an operation after the approval of its plan, as options of the collection awx.awx.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .awx_templates import with_cluster_question


def workflow_templates(
    rows: Sequence[Mapping[str, Any]], prefix: str, clusters: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the options of `workflow_job_template` for each workflow of the table. With several clusters, each survey
    has a question for one; the nodes receive the answer. Raises ValueError if a workflow is defined twice."""
    names = [row["name"] for row in rows]
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(doubles)}: defined twice")
    return [with_cluster_question(_workflow(row, prefix), () if row.get("fleet") else clusters) for row in rows]


def _workflow(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        "name": f"{prefix} {row['name']}",
        "description": _description(row),
        "ask_limit_on_launch": bool(row.get("limit")),
        "survey_enabled": bool(row.get("survey_spec")),
        **({"survey_spec": row["survey_spec"]} if row.get("survey_spec") else {}),
    }


def workflow_nodes(
    rows: Sequence[Mapping[str, Any]], prefix: str, organization: str, approval_hours: float
) -> Iterator[dict[str, Any]]:
    """Yield the options of `workflow_job_template_node`, each node after the nodes to which it leads. The module cannot
    create an approval and link it in one call."""
    for row in rows:
        own = {
            "workflow_job_template": f"{prefix} {row['name']}",
            "organization": organization,
            "lookup_organization": organization,
        }
        last = {kind: row[kind] for kind in ("success", "failure") if row.get(kind)}
        for template in last.values():
            yield {**own, "identifier": template, "unified_job_template": f"{prefix} {template}"}
        run = row.get("step", row["run"])
        links = {f"{kind}_nodes": [template] for kind, template in last.items()}
        yield {**own, "identifier": run, "unified_job_template": f"{prefix} {row['run']}", **links}
        approval = {
            "name": f"{prefix} {row['name']}: {row.get('approve', 'approve the plan')}",
            "description": "The plan is in the output of the job before",
            "timeout": int(approval_hours * 3600),
        }
        yield {**own, "identifier": "approve", "approval_node": approval}
        yield {**own, "identifier": "approve", "success_nodes": [run]}
        yield {
            **own,
            "identifier": row.get("first", "plan"),
            "unified_job_template": f"{prefix} {row['plan']}",
            "success_nodes": ["approve"],
        }


def _description(row: Mapping[str, Any]) -> str:
    steps = [row["plan"], "approval", row["run"], *([row["success"]] if row.get("success") else [])]
    text = ", ".join(steps).capitalize()
    return f"{text}; {row['failure']} if it fails" if row.get("failure") else text
