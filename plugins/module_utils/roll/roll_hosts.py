# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a run by their recorded state: which ones restart, and the marks of those in maintenance. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

State = Mapping[str, Any]


def roll_hosts(states: Mapping[str, State], names: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Return the hosts of a run by their state. `states`: host → the fact nats_server_state; a leaving host may have
    none. `names`: host → the name of its server, as far as known.

    `touched`: the hosts that this run changed, or whose state is unknown. `verified`: whether the first reading found
    the cluster healthy, and no host was changed since. `smoke_test_due`: the hosts that an earlier deployment changed
    without a smoke test that passed. `restart`: the hosts whose process must be restarted. `gateway_tls_first`: those
    whose gateways need TLS first. `unrecorded`: those without a record of the loaded configuration. `actions`: host →
    required action. `lines`: these actions with their reasons, and the findings about the tuning of the hosts. `plan`:
    arguments of the module nats_roll_plan."""
    actions = {host: state["required_action"] for host, state in states.items() if state.get("required_action")}
    restart = [host for host, action in actions.items() if action["action"] == "restart"]
    touched = [host for host in names or states if not states.get(host, {}).get("untouched")]
    return {
        "touched": touched,
        "verified": not touched and all(state.get("cluster_verified") for state in states.values()),
        "smoke_test_due": [host for host, state in states.items() if state.get("smoke_test_due")],
        "restart": restart,
        "gateway_tls_first": [host for host, state in states.items() if state.get("gateway_tls_first")],
        "unrecorded": [
            host for host, state in states.items() if not state.get("recorded", True) and state["running"]["running"]
        ],
        "actions": actions,
        "lines": [f"{host}: {line}" for host, state in states.items() for line in _lines(state)],
        "plan": {
            "hosts": {host: (names or {}).get(host) for host in restart},
            "reasons": {host: actions[host]["reasons"] for host in restart},
            "disk_free": {host: states[host].get("disk_free") for host in restart},
            "starts": {host: (states[host].get("desired") or {}).get("version") for host in restart},
        },
    }


def _lines(state: State) -> list[str]:
    """Return the required action of a host with its reasons, if any, and the findings about its tuning."""
    required = state.get("required_action") or {"action": "none", "reasons": []}
    action = "" if required["action"] == "none" else required["action"]
    line = ": ".join(filter(None, (action, "; ".join(required["reasons"]))))
    return [*filter(None, [line]), *state.get("tuning_findings", [])]


def maintenance_marks(
    states: Mapping[str, State], locks: Sequence[Mapping[str, Any]], returning: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the marks of all hosts in maintenance: those in the play from `states` (host → the fact
    nats_server_state), and those outside it from the results of the lock. `returning`: names of servers that come back
    in this run, so their marks excuse no fault."""
    marks = [
        *(state.get("maintenance") for state in states.values()),
        *(lock.get("maintenance") for lock in locks if lock["item"] not in states),
    ]
    return [dict(mark) for mark in marks if mark and mark["server"] not in returning]
