# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_maintenance_status
short_description: List the hosts in maintenance and the hosts that need attention
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the state of each host, a table of the states, and the hosts that need attention. A host needs attention
    if its maintenance is past its end time, if it is marked although its server is running, if its server is stopped
    but the host is not marked, or if its state could not be read.
  - Evaluates data that the hosts have already reported, in the facts of the role. The playbook
    C(natsops.jetstream.maintenance_status) shows the result. Only the role C(natsops.jetstream.nats_cluster) needs this
    filter; its input may change in any release.
positional: _input, hostvars
options:
  _input:
    description: The hosts to list.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts, C(hostvars) in templates. C(nats_cluster__process) of a host is its result of
        M(natsops.jetstream.nats_server_host_info). The state is unknown without C(process), as for an unreachable host.
      - C(nats_cluster__seen_lock) is its result of M(natsops.jetstream.nats_host_lock) in check mode.
    type: dict
    required: true
  servers:
    description: The servers of the inventory, each with C(host) and C(server_name).
    type: list
    elements: dict
    default: []
  lock_hosts:
    description: The hosts whose locks are listed.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_host_lock
  - module: natsops.jetstream.nats_maintenance_plan
"""

EXAMPLES = r"""
- name: Show the state of the hosts
  ansible.builtin.debug:
    msg: "{{ (ansible_play_hosts_all | natsops.jetstream.nats_maintenance_status(hostvars)).lines }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - The C(hosts) with their states, which are V(in_service), V(in_maintenance), V(overdue), V(running), V(stopped) and
      V(unknown).
    - C(findings) are the hosts that need attention, and C(locks) the operations that hold the lock, each with its
      hosts, start, end, and whether its process is running, as readable text.
    - C(lines) is a table of the hosts, followed by the findings and the locks; C(screen) has as many of these lines as
      fit on a screen, for M(natsops.jetstream.nats_show).
  type: dict
  sample:
    hosts: [{host: n3, server_name: n3-c1, state: overdue, maintenance: {server: n3-c1, by: ops@ctl-1}}]
    findings: ["n3: in maintenance, overdue"]
    locks: []
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.host.controller import run_is_alive
from ..module_utils.roll.lock_rules import lock_holders, seen_holder
from ..module_utils.roll.maintenance import status
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_maintenance_status(
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    servers: Sequence[Mapping[str, Any]] = (),
    lock_hosts: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the states of the hosts; see DOCUMENTATION."""
    found = {host: hostvars[host].get("nats_cluster__process") or {} for host in hosts}
    seen = {host: seen_holder(hostvars[host].get("nats_cluster__seen_lock") or {}) for host in lock_hosts}
    holders = lock_holders({host: holder for host, holder in seen.items() if holder})
    locks = [holder.line(run_is_alive(holder.owner)) for holder in holders]
    return status(found, {one["host"]: one["server_name"] for one in servers}, time.time(), locks)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_maintenance_status": nats_maintenance_status}
