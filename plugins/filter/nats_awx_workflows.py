# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_awx_workflows
short_description: Return AWX workflows that run operations after the approval of their plans
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns workflows with the nodes plan, approval and run, as options of modules of the collection C(awx.awx). The
    playbook C(awx.configure) uses it.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, prefix, organization, approval_hours, clusters
options:
  _input:
    description: The workflows. C(plan), C(run), C(success) and C(failure) are names of job templates without the prefix.
      With C(fleet), the workflow runs for all clusters.
    type: list
    elements: dict
    required: true
  prefix:
    description: Prefix of all names.
    type: str
    required: true
  organization:
    description: Organization of the job templates.
    type: str
    required: true
  approval_hours:
    description: Timeout of approvals.
    type: float
    default: 24
  clusters:
    description: Groups of the inventory. If there are any, each survey has a question for one of them.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the nodes
  ansible.builtin.debug:
    msg: "{{ (workflows | natsops.jetstream.nats_awx_workflows('NATS', 'Default')).nodes }}"
  vars:
    workflows: [{name: approved deploy, plan: plan deploy, run: deploy, failure: diagnose}]
"""

RETURN = r"""
_value:
  description: Options of C(workflow_job_template) (C(templates)) and C(workflow_job_template_node) (C(nodes)).
  type: dict
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.fleet.awx_workflows import workflow_nodes, workflow_templates
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_awx_workflows(
    rows: Sequence[Mapping[str, Any]],
    prefix: str,
    organization: str,
    approval_hours: float = 24,
    clusters: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the workflows and their nodes; see DOCUMENTATION."""
    nodes = workflow_nodes(rows, prefix, organization, float(approval_hours))
    return {"templates": workflow_templates(rows, prefix, clusters), "nodes": list(nodes)}


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_awx_workflows": nats_awx_workflows}
