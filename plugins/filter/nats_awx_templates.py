# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_awx_templates
short_description: Return AWX job templates with the credentials of their playbooks, and their schedules
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Adds to each job template the credentials that its playbook needs and, if the inventory has several clusters, a
    question for one of them. Returns the schedules with answers to all required questions. The playbook
    C(awx.configure) uses it.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The job templates, as options of C(job_template) of the collection C(awx.awx).
    type: list
    elements: dict
    required: true
  prefix:
    description: Prefix of all names.
    type: str
    required: true
  credential_playbooks:
    description: For each credential type the playbooks that receive a credential of this type, or V(all).
    type: dict
    required: true
  credentials:
    description: The name of the credential of each type.
    type: dict
    default: {}
  playbook_credentials:
    description: For each playbook, credentials by type that replace those of O(credentials).
    type: dict
    default: {}
  clusters:
    description: Groups of the inventory. If there are any, surveys have a question for one of them.
    type: list
    elements: str
    default: []
  fleet_playbooks:
    description: Playbooks that run for all clusters, so their surveys do not have this question.
    type: list
    elements: str
    default: []
  schedule_rows:
    description: The schedules, each with C(name), C(template) (without the prefix), C(rule), C(enabled) and C(answers).
    type: list
    elements: dict
    default: []
  schedule_settings:
    description: For each schedule a rule, which enables it, or whether it is enabled with the rule of its row.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show the credentials of each job template
  ansible.builtin.debug:
    msg: "{{ (templates | natsops.jetstream.nats_awx_templates(prefix='NATS', **settings)).templates }}"
  vars:
    templates:
      - {name: NATS deploy, playbook: playbooks/deploy.yml}
      - {name: NATS report, playbook: playbooks/report.yml}
    settings:
      credential_playbooks: {system: all, private CA: [deploy]}
      credentials: {system: orders sys, private CA: orders CA}
"""

RETURN = r"""
_value:
  description: The job templates (C(templates)) and the schedules (C(schedules)).
  type: dict
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.fleet.awx_templates import Credentials, job_templates, schedules
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_awx_templates(
    templates: Sequence[Mapping[str, Any]],
    *,
    prefix: str,
    credential_playbooks: Mapping[str, Any],
    credentials: Mapping[str, Any] | None = None,
    playbook_credentials: Mapping[str, Mapping[str, Any]] | None = None,
    clusters: Sequence[str] = (),
    fleet_playbooks: Sequence[str] = (),
    schedule_rows: Sequence[Mapping[str, Any]] = (),
    schedule_settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the job templates and schedules; see DOCUMENTATION."""
    names = Credentials(credential_playbooks, credentials or {}, playbook_credentials or {})
    found = job_templates(templates, names, clusters, fleet_playbooks)
    return {"templates": found, "schedules": schedules(schedule_rows, schedule_settings or {}, found, prefix)}


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_awx_templates": nats_awx_templates}
