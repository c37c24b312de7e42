# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_diagnosis
short_description: Diagnose a cluster from the results of info modules and hosts
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Checks servers, round trips, health, meta group, streams, routes, gateways, logs, configurations, versions,
    clocks, slow consumers, storage and certificates, and reports problems and the next steps.
  - Anything that could not be checked is listed, and does not count as healthy. The playbook
    C(natsops.jetstream.diagnose) collects the data and prints the diagnosis.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, server_info
options:
  _input:
    description: The registered result of M(natsops.jetstream.nats_cluster_info), even if it failed.
    type: dict
    required: true
  server_info:
    description:
      - The registered result of M(natsops.jetstream.nats_server_info) with the endpoints C(varz), C(routez),
        C(gatewayz) and C(statsz), even if it failed.
    type: dict
    required: true
  hosts:
    description:
      - Names of the servers on managed hosts, each with the registered result of
        M(natsops.jetstream.nats_server_host_info) with the subsets C(process) and C(diagnosis), even if it failed.
    type: dict
    default: {}
  pinned_accounts:
    description: Accounts with a dedicated route (C(cluster.accounts)).
    type: list
    elements: str
    default: []
  inventory:
    description: The inventory sources that the commands of the diagnosis name. The default of Ansible is left out.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the cluster
  natsops.jetstream.nats_cluster_info:
  register: info

- name: Read the servers
  natsops.jetstream.nats_server_info:
    endpoints: [varz, routez, gatewayz, statsz]
  register: servers

- name: Stop when something is broken
  ansible.builtin.assert:
    that: diagnosis.verdict.status != 'critical'
    fail_msg: "{{ diagnosis.next_steps }}"
  vars:
    diagnosis: "{{ info | natsops.jetstream.nats_diagnosis(servers) }}"
"""

RETURN = r"""
_value:
  description: The diagnosis.
  type: dict
  sample:
    schema: 1
    verdict: {status: warning, text: "WORKING, with 1 warnings. Not checked: logs."}
    checks:
      - {check: versions, status: found, summary: "2.10.27, 2.15.1"}
    findings:
      - code: versions_differ
        severity: warning
        message: "versions differ: 2.10.27 on n1-c1; 2.15.1 on n2-c1, n3-c1"
        next: "Finish the upgrade: natsops.jetstream.deploy with one nats_server_version."
    next_steps: ["Finish the upgrade: natsops.jetstream.deploy with one nats_server_version."]
    servers: []
    logs: {}
"""

from typing import Any

from ..module_utils.health.diagnosis import diagnose, host_evidence


def nats_diagnosis(
    info: dict[str, Any],
    server_info: dict[str, Any],
    hosts: dict[str, dict[str, Any]] | None = None,
    pinned_accounts: list[str] | None = None,
    inventory: list[str] | None = None,
) -> dict[str, Any]:
    """Return the diagnosis as data; see DOCUMENTATION."""
    evidence = [host_evidence(name, found) for name, found in (hosts or {}).items()]
    return diagnose(info, server_info, evidence, pinned_accounts or (), inventory or ())


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_diagnosis": nats_diagnosis}
