# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_report_data
short_description: Make the reports of the nats command as data
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Makes the tables of C(nats server list), C(nats server report), C(nats stream report) and C(nats consumer report) from what
    M(natsops.jetstream.nats_cluster_info) and M(natsops.jetstream.nats_server_info) return.
  - Totals count each stream once as well as every replica, and say which is which. Servers that did not answer and groups
    without a leader are rows like the others, and marked.
  - P(natsops.jetstream.nats_report#filter) writes the result as text. The playbook C(natsops.jetstream.report) does it all.
positional: _input
options:
  _input:
    description: The registered result of M(natsops.jetstream.nats_cluster_info).
    type: dict
    required: true
  server_info:
    description:
      - The registered result of M(natsops.jetstream.nats_server_info), with the endpoint C(connz) for the reports V(accounts) and
        V(connections) (with its option C(auth)), C(routez), C(gatewayz), C(leafz) and C(healthz) for those of like names, and
        C(jsz) with the options C(account) and C(consumers) for V(jetstream) with O(account).
    type: dict
  reports:
    description: Which reports, in this order.
    type: list
    elements: str
    choices: [servers, jetstream, streams, consumers, accounts, connections, routes, gateways, leafnodes, cpu, mem, health]
    default: [servers, jetstream]
  cluster:
    description: Only the servers and streams of the cluster with exactly this name.
    type: str
  account:
    description: Only this account. Both inputs must have been read for it.
    type: str
  server_names:
    description: Only these servers, and the streams with a replica on one of them.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Read the cluster
  natsops.jetstream.nats_cluster_info:
  register: info

- name: Read the routes
  natsops.jetstream.nats_server_info:
    endpoints: [routez]
  register: servers

- name: Show streams and routes
  ansible.builtin.debug:
    msg: "{{ (data | natsops.jetstream.nats_report).splitlines() }}"
  vars:
    data: "{{ info | natsops.jetstream.nats_report_data(servers, ['streams', 'routes']) }}"
"""

RETURN = r"""
_value:
  description:
    - The reports. Each table has C(name), C(title), C(columns), C(rows), C(totals) and C(notes); sizes are bytes, times seconds.
  type: dict
  sample:
    schema: 1
    cluster: null
    account: null
    servers: [n1-c1, n2-c1]
    not_answering: [n3-c1]
    tables:
      - name: clusters
        title: Cluster Overview
        columns: [{key: cluster, title: Cluster, unit: text, grouped: false}]
        rows: [{cluster: C1, servers: 2, gateways: 0, inbound_gateways: 0, connections: 4}]
        totals: [{cluster: "", servers: 2, gateways: 0, inbound_gateways: 0, connections: 4}]
        notes: []
        shown: 0
    problems:
      - {code: server_missing, severity: error, subject: n3-c1, message: expected server n3-c1 did not answer, servers: [n3-c1]}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._report import DEFAULT_REPORTS, report_data
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_report_data(
    info: dict[str, Any],
    server_info: dict[str, Any] | None = None,
    reports: list[str] | None = None,
    cluster: str | None = None,
    account: str | None = None,
    server_names: list[str] | None = None,
) -> dict[str, Any]:
    """The reports as data; see DOCUMENTATION."""
    return report_data(
        info,
        server_info,
        list(DEFAULT_REPORTS) if reports is None else reports,
        cluster or None,
        account or None,
        server_names or None,
    )


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_report_data": nats_report_data}
