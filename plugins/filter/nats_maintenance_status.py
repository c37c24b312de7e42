# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_maintenance_status
short_description: Tell which hosts are in maintenance, and which were forgotten there
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the state of each host, the same as a table, and what somebody has to look at. That is a host whose time is over, one
    that is marked while its server runs, one whose server does not run without a mark, and one that could not be read.
  - The playbook C(natsops.jetstream.maintenance_status) shows it.
positional: _input, servers
options:
  _input:
    description:
      - Each host with what M(natsops.jetstream.nats_server_process_info) said of it, C(running) and C(maintenance). A result
        without C(running), as when the host cannot be reached, says nothing.
    type: dict
    required: true
  servers:
    description: The servers of the inventory, each with C(host) and C(server_name).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Read the host
  natsops.jetstream.nats_server_process_info:
    config: /etc/nats-server/nats-server.conf
    maintenance: /etc/nats-server/maintenance.json
  become: true
  register: process

- name: Show in which state it is
  ansible.builtin.debug:
    msg: "{{ ({'n3': process} | natsops.jetstream.nats_maintenance_status(servers)).lines }}"
  vars:
    servers: [{host: n3, server_name: n3-c1}]
"""

RETURN = r"""
_value:
  description:
    - C(hosts), each with C(host), C(server_name), C(state) and C(maintenance), C(findings) as phrases, and C(lines) for people.
    - States are C(in_service), C(in_maintenance), C(overdue), C(running), C(stopped) and C(unknown).
  type: dict
  sample:
    hosts: [{host: n3, server_name: n3-c1, state: in_service, maintenance: null}]
    findings: []
    lines: []
"""

import time
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.maintenance import status


def nats_maintenance_status(processes: dict[str, dict[str, Any]], servers: list[dict[str, Any]]) -> dict[str, Any]:
    """The state of each host; see DOCUMENTATION."""
    names = {server["host"]: server["server_name"] for server in servers}
    return status(processes, names, time.time())


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_maintenance_status": nats_maintenance_status}
