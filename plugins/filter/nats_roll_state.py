# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_roll_state
short_description: Return the state of a roll and decide whether its next batch may start
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Evaluates the facts that the hosts of a roll have recorded so far. Only the role C(natsops.jetstream.nats_cluster) needs this
    filter; its input may change in any release.
positional: _input, hostvars
options:
  _input:
    description: The batches, as returned by M(natsops.jetstream.nats_roll_plan).
    type: list
    elements: dict
    required: true
  hostvars:
    description: The variables of all hosts, C(hostvars) in templates. The role's facts of the batches' hosts are read.
    type: dict
    required: true
  number:
    description: Number of the current batch, from 1. V(0) between the batches.
    type: int
    default: 0
  not_after:
    description: Time after which no batch starts, such as V(2026-12-01T04:00:00Z).
    type: str
    default: ""
  now:
    description: The current time, in seconds since 1970.
    type: float
    default: 0
  resume:
    description: The variable with which the same command resumes the run, for the messages.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Stop because the batch may not start
  ansible.builtin.fail:
    msg: "{{ state.refusal }}"
  when: state.refusal | length > 0
  vars:
    state: "{{ plan.batches | natsops.jetstream.nats_roll_state(hostvars, number=2) }}"
"""

RETURN = r"""
_value:
  description:
    - The hosts that are C(done) and C(undone), whether O(not_after) has passed (C(window_over)), and the sentence that
      describes how to resume the run (C(resume)).
    - For the batch O(number), C(refusal) is why it must not start (empty if it may), C(failed) are its hosts that have
      not come back, C(roll_back) are those to roll back if the batch has failed, C(failures)
      are their reasons, C(reason) is the same as one line, and C(message) is the complete
      message. C(changes_mode) is whether a later batch enters or leaves operator mode.
  type: dict
  sample:
    done: [n2]
    undone: [n3, n1]
    window_over: false
    resume: If this run is interrupted, a stopped server stays down until you run the same command again.
    refusal: ""
    failed: [n3]
    roll_back: [n3]
    failures: []
    reason: unreachable
    message: "batch 2 of 3 (n3) failed, and the roll has stopped."
    changes_mode: false
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.problem import ERROR
from ..module_utils.roll.roll_state import PLANNED, HostState, roll_state
from ..plugin_utils._filters import reports_problems


def host_state(variables: Mapping[str, Any]) -> HostState:
    """Return the state that a host has recorded in its variables."""
    state = variables.get("nats_server_state") or {}
    causes = (variables.get("nats_cluster__state_after") or {}).get("causes") or []
    return HostState(
        state=variables.get("nats_cluster__state") or PLANNED,
        failure=str(variables.get("nats_cluster__failure") or ""),
        outcome=str(variables.get("nats_cluster__outcome") or ""),
        held=bool((state.get("maintenance") or {}).get("held")),
        causes=tuple(cause["title"] for cause in causes if cause["severity"] == ERROR),
        keys=tuple((state.get("required_action") or {}).get("keys") or ()),
    )


@reports_problems
def nats_roll_state(
    batches: Sequence[Mapping[str, Any]],
    hostvars: Mapping[str, Mapping[str, Any]],
    number: int = 0,
    not_after: Any = "",
    now: float = 0,
    resume: str = "",
) -> dict[str, Any]:
    """Return the state of the roll; see DOCUMENTATION."""
    hosts = {host: host_state(hostvars[host]) for batch in batches for host in batch["hosts"]}
    return roll_state(batches, hosts, int(number), str(not_after or ""), float(now), resume)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_roll_state": nats_roll_state}
