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
    description: Data from the managed hosts.
    type: list
    elements: dict
    default: []
    suboptions:
      server_name:
        description: Name of the server on the host.
        type: str
        required: true
      unreachable:
        description: Whether the host could not be reached.
        type: bool
      running:
        description: Whether nats-server is running on the host.
        type: bool
      log_lines:
        description: Warnings and errors in the server's log. Null if the log could not be read.
        type: list
        elements: str
      digest:
        description: Digest of the host's configuration file from C(nats-server -t) (C(sha256:...), 2.11 and later).
        type: str
      disk_percent:
        description: Used space of the file system of the store directory, in percent.
        type: int
      disk_mount:
        description: Where that file system is mounted.
        type: str
      closed_ports:
        description: The value of RV(natsops.jetstream.nats_server_process_info#module:closed_ports). Null if the ports
          could not be checked.
        type: list
        elements: dict
      maintenance:
        description: The C(maintenance) returned by M(natsops.jetstream.nats_server_process_info). Null if the host is
          not in maintenance.
        type: dict
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

from ..module_utils.health.diagnosis import diagnose


def nats_diagnosis(
    info: dict[str, Any],
    server_info: dict[str, Any],
    hosts: list[dict[str, Any]] | None = None,
    pinned_accounts: list[str] | None = None,
    inventory: list[str] | None = None,
) -> dict[str, Any]:
    """Return the diagnosis as data; see DOCUMENTATION."""
    return diagnose(info, server_info, hosts or (), pinned_accounts or (), inventory or ())


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_diagnosis": nats_diagnosis}
