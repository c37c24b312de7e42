# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_maintenance_return
short_description: Plan how hosts in maintenance come back
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the batch of the hosts in maintenance, with the gate that waits until their servers have their replicas. Only
    the role C(natsops.jetstream.nats_cluster) needs this filter; its input may change in any release.
positional: _input, hostvars
options:
  _input:
    description: The hosts of the run.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, C(hostvars) in templates.
    type: dict
    required: true
  gate:
    description: Whether the servers belong to a cluster with a health gate.
    type: bool
    default: true
  tolerate:
    description: Accepted problem codes, servers and assets of the gate.
    type: list
    elements: str
    default: []
  wait_timeout:
    description: Seconds after which the gate fails.
    type: float
    default: 3600
  stall_timeout:
    description: Seconds without progress after which the gate fails.
    type: float
    default: 300
"""

EXAMPLES = r"""
- name: Show the hosts that come back
  ansible.builtin.debug:
    msg: "{{ (ansible_play_batch | natsops.jetstream.nats_maintenance_return(hostvars))[0].hosts }}"
"""

RETURN = r"""
_value:
  description: One batch, as in C(batches) of M(natsops.jetstream.nats_roll_plan). It has no hosts if no host is in
    maintenance.
  type: list
  elements: dict
  sample: [{number: 1, hosts: [n3], servers: [n3-c1], title: the return of n3, remaining: []}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.batch import BatchGate
from ..module_utils.roll.maintenance import plan_return
from ..module_utils.server_config.topology import boolean
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_maintenance_return(
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    gate: bool = True,
    tolerate: Sequence[str] = (),
    wait_timeout: float = 3600,
    stall_timeout: float = 300,
) -> list[dict[str, Any]]:
    """Return the batch; see DOCUMENTATION."""
    states = {host: hostvars[host].get("nats_server_state") or {} for host in hosts}
    servers = {host: state["maintenance"]["server"] for host, state in states.items() if state.get("maintenance")}
    waits = BatchGate(tolerate=list(tolerate), wait_timeout=float(wait_timeout), stall_timeout=float(stall_timeout))
    return plan_return(servers, waits if boolean(gate) else None)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_maintenance_return": nats_maintenance_return}
