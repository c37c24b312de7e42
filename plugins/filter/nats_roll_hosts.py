# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_roll_hosts
short_description: Return the hosts of a run that restart or need attention
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Evaluates the facts that the hosts of a run have recorded. Only the roles C(natsops.jetstream.nats_server) and
    C(natsops.jetstream.nats_cluster) need this filter; its input may change in any release.
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
"""

EXAMPLES = r"""
- name: Show the hosts that restart
  ansible.builtin.debug:
    msg: "{{ (ansible_play_batch | natsops.jetstream.nats_roll_hosts(hostvars)).restart }}"
"""

RETURN = r"""
_value:
  description:
    - The hosts that this run changed or whose state is unknown (C(touched)), whether the first reading found
      the cluster healthy and this run changed nothing (C(verified)), those that an earlier deployment changed
      without a smoke test that passed (C(smoke_test_due)), those that C(restart), those whose gateways need TLS first
      (C(gateway_tls_first)), and those without a record of the loaded configuration (C(unrecorded)). C(actions)
      contains the required action of each host, C(lines) these actions with their reasons and the findings about the
      tuning, and C(plan) the arguments of M(natsops.jetstream.nats_roll_plan).
  type: dict
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.roll.roll_hosts import roll_hosts
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_roll_hosts(hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the hosts; see DOCUMENTATION."""
    found = {host: hostvars[host] for host in hosts}
    states = {host: variables.get("nats_server_state") for host, variables in found.items()}
    names = {host: variables.get("nats_cluster__server_name") for host, variables in found.items()}
    return roll_hosts({host: state for host, state in states.items() if state}, names)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_roll_hosts": nats_roll_hosts}
