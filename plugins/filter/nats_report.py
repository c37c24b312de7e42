# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_report
short_description: Write the cluster report as tables
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Turns what M(natsops.jetstream.nats_cluster_info) returns into framed tables of servers, JetStream and the meta group, what
    P(natsops.jetstream.nats_report_data#filter) returns into its tables, and what P(natsops.jetstream.nats_diagnosis#filter)
    returns into one page.
positional: _input
options:
  _input:
    description:
      - The registered result of M(natsops.jetstream.nats_cluster_info), or the data of one of the two filters.
    type: dict
    required: true
seealso:
  - plugin: natsops.jetstream.nats_report_data
    plugin_type: filter
  - plugin: natsops.jetstream.nats_diagnosis
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the cluster
  natsops.jetstream.nats_cluster_info:
  register: info

- name: Show the report
  ansible.builtin.debug:
    msg: "{{ (info | natsops.jetstream.nats_report).splitlines() }}"
"""

RETURN = r"""
_value:
  description: The report, several lines of text.
  type: str
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._diagnosis import diagnosis_text
from ansible_collections.natsops.jetstream.plugins.module_utils._report import report_data, report_text
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_report(value: dict[str, Any]) -> str:
    """The report as text; see DOCUMENTATION."""
    if "verdict" in value:
        return diagnosis_text(value)
    return report_text(value if "tables" in value else report_data(value))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_report": nats_report}
