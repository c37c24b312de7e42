# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_report
short_description: Create the reports of the nats command, as tables or as data
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Creates the tables of C(nats server list), C(nats server report), C(nats stream report) and C(nats consumer
    report) from the results of M(natsops.jetstream.nats_cluster_info) and M(natsops.jetstream.nats_server_info).
  - The labelled totals count each stream once and, separately, every replica. Servers that did not respond and groups
    without a leader are included as marked rows.
  - The playbook C(natsops.jetstream.report) collects the data and prints the reports.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, server_info, reports
options:
  _input:
    description:
      - The registered result of M(natsops.jetstream.nats_cluster_info), or that of
        M(natsops.jetstream.nats_stream_info) for the reports V(streams), V(consumers) and V(backups).
      - For O(output=text) and O(output=page), the input may also be the data returned by this filter or by
        P(natsops.jetstream.nats_diagnosis#filter).
    type: dict
    required: true
  server_info:
    description:
      - The registered result of M(natsops.jetstream.nats_server_info), which must contain the endpoints of the
        requested reports. The reports V(accounts) and V(connections) need C(connz) with its option C(auth), V(routes)
        needs C(routez), V(gateways) needs C(gatewayz), V(leafnodes) needs C(leafz), and V(health) needs C(healthz).
        With O(account), the report V(jetstream) needs C(jsz) with its options C(account) and C(consumers).
    type: dict
  reports:
    description: The reports to create, in the listed order.
    type: list
    elements: str
    choices:
      - servers
      - jetstream
      - streams
      - consumers
      - accounts
      - backups
      - connections
      - routes
      - gateways
      - leafnodes
      - cpu
      - mem
      - health
      - expiry
    default: [servers, jetstream]
  cluster:
    description: Include only the servers and streams of the cluster with exactly this name.
    type: str
  account:
    description: Include only this account. Both inputs must have been read for this account.
    type: str
  server_names:
    description: Include only these servers and the streams with a replica on one of them.
    type: list
    elements: str
  output:
    description:
      - V(text) returns human-readable text, V(data) returns machine-readable data.
      - V(page) returns a dictionary for M(natsops.jetstream.nats_show), with the complete text in C(lines), and as much
        of it as fits on a screen in C(screen).
    type: str
    choices: [text, page, data]
    default: text
  catalogue:
    description: The C(catalogue) that M(natsops.jetstream.nats_backup_info) returned, for the report V(backups).
    type: dict
  consumer_info:
    description: The registered result of M(natsops.jetstream.nats_consumer_info), if the input is a result of
      M(natsops.jetstream.nats_stream_info).
    type: dict
  route_compression:
    description: The configured C(cluster.compression) of all servers, which is a mode or a dictionary with a mode. The
      report V(routes) marks routes with a different compression.
    type: raw
  journal:
    description: Lines of the journal of operations, in which the report finds the servers in maintenance.
    type: list
    elements: str
  inventory:
    description: The inventory sources that the commands of the report name. The default of Ansible is left out.
    type: list
    elements: str
seealso:
  - plugin: natsops.jetstream.nats_diagnosis
    plugin_type: filter
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
  natsops.jetstream.nats_show:
    name: report
    lines: "{{ report.lines }}"
    screen: "{{ report.screen }}"
  vars:
    report: "{{ info | natsops.jetstream.nats_report(servers, ['streams', 'routes'], output='page') }}"
"""

RETURN = r"""
_value:
  description:
    - With O(output=text), the report as several lines of text.
    - With O(output=data), the reports. Each table has C(name), C(title), C(columns), C(rows), C(totals) and C(notes).
      Sizes are in bytes, times in seconds.
    - With O(output=page), the report as C(lines) and C(screen).
  type: raw
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
    problems:
      - {code: server_missing, severity: error, subject: n3-c1, message: expected server n3-c1 did not answer, servers: [n3-c1]}
"""

from typing import Any

from ..module_utils.health.diagnosis_page import diagnosis_page
from ..module_utils.reporting.report import DEFAULT_REPORTS, report_data
from ..module_utils.reporting.report_page import report_page
from ..module_utils.roll.journal import read_journal
from ..module_utils.screen import Page
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_report(
    value: dict[str, Any],
    server_info: dict[str, Any] | None = None,
    reports: list[str] | None = None,
    cluster: str | None = None,
    account: str | None = None,
    server_names: list[str] | None = None,
    output: str = "text",
    catalogue: dict[str, Any] | None = None,
    route_compression: str | dict[str, Any] | None = None,
    consumer_info: dict[str, Any] | None = None,
    journal: list[str] | None = None,
    inventory: list[str] | None = None,
) -> str | dict[str, Any]:
    """Return the report; see DOCUMENTATION."""
    if output not in ("text", "page", "data"):
        raise ValueError(f"output: must be text, page or data, not {output!r}")
    if output != "data" and "verdict" in value:
        return _written(diagnosis_page(value), output)
    if output != "data" and "tables" in value:
        return _written(report_page(value), output)
    chosen = list(DEFAULT_REPORTS) if reports is None else reports
    data = report_data(
        value,
        server_info,
        chosen,
        cluster or None,
        account or None,
        server_names or None,
        catalogue or None,
        route_compression,
        consumer_info,
        read_journal(journal or ()).marks,
        inventory or (),
    )
    return data if output == "data" else _written(report_page(data), output)


def _written(page: Page, output: str) -> str | dict[str, Any]:
    return page.text if output == "text" else page.as_dict()


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_report": nats_report}
