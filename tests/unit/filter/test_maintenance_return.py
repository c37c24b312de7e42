# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the batch of the hosts that come back from maintenance, and its gate."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_maintenance_return import nats_maintenance_return

IN_SERVICE = {"nats_server_state": {"maintenance": None, "running": {"running": True}}}


def facts(server: str, runs: bool = False) -> dict[str, Any]:
    """Return the facts of a host in maintenance."""
    return {"nats_server_state": {"maintenance": {"server": server}, "running": {"running": runs}}}


@pytest.mark.parametrize("runs", [False, True])
def test_hosts_in_maintenance_return_in_one_batch(runs: bool) -> None:
    hostvars: dict[str, dict[str, Any]] = {"n1": IN_SERVICE, "n2": facts("s2", runs), "n3": facts("s3", runs), "n4": {}}
    (batch,) = nats_maintenance_return([*hostvars], hostvars)
    assert (batch["number"], batch["hosts"], batch["servers"]) == (1, ["n2", "n3"], ["s2", "s3"])
    assert (batch["title"], batch["remaining"]) == ("the return of n2, n3", [])
    (empty,) = nats_maintenance_return(["n1", "n4"], hostvars)
    assert empty["hosts"] == []


def test_gate_waits_for_the_replicas_with_the_limits_of_the_role() -> None:
    hostvars = {"n2": facts("s2")}
    # Ansible 2.16 passes templated numbers and truth values as text.
    limits: dict[str, Any] = {"tolerate": ["stream_lag"], "wait_timeout": "600", "stall_timeout": "60"}
    (batch,) = nats_maintenance_return(["n2"], hostvars, **limits)
    gate = batch["gates"]["after"]
    assert (gate["tolerate"], gate["wait_timeout"], gate["stall_timeout"]) == (["stream_lag"], 600, 60)
    # Nothing is stopped, all servers of the inventory must be healthy, and a disabled gate stays disabled.
    assert (gate["stop_servers"], "expected" in gate, gate["required"]) == ([], False, False)
    assert gate["progress"] == batch["progress"]
    assert not any(batch["drain"][name] for name in ("leaders", "clients", "replicas"))


@pytest.mark.parametrize("gate", [False, "False"])
def test_disabled_gate_is_not_planned(gate: Any) -> None:
    (batch,) = nats_maintenance_return(["n2"], {"n2": facts("s2")}, gate=gate)
    assert (batch["hosts"], batch["gates"]) == (["n2"], {})
