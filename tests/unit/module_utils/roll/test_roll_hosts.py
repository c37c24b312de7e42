# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which hosts of a run restart, and which marks of maintenance excuse faults."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_maintenance_marks import nats_maintenance_marks
from ansible_collections.natsops.jetstream.plugins.filter.nats_roll_hosts import nats_roll_hosts
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.roll_hosts import maintenance_marks, roll_hosts


def state(action: str = "none", runs: bool = True, **changes: Any) -> dict[str, Any]:
    return {
        "required_action": {"action": action, "keys": [], "reasons": ["new version"]},
        "running": {"running": runs},
        "recorded": True,
        "disk_free": 5,
        "desired": {"version": "2.15.1"},
        "maintenance": None,
        "gateway_tls_first": False,
        **changes,
    }


MARK = {"server": "s2", "reason": "disk"}


@pytest.mark.parametrize("action", ["none", "start", "reload", "restart"])
def test_only_a_required_restart_restarts(action: str) -> None:
    found = roll_hosts({"n1": state(action)}, {"n1": "s1"})
    assert found["restart"] == (["n1"] if action == "restart" else [])
    assert found["plan"]["hosts"] == ({"n1": "s1"} if action == "restart" else {})
    assert found["actions"]["n1"]["action"] == action


def test_plan_has_the_arguments_of_each_host_that_restarts() -> None:
    found = roll_hosts({"n1": state("restart"), "n2": state(), "n3": {}}, {"n1": "s1", "n2": "s2"})
    assert found["plan"] == {
        "hosts": {"n1": "s1"},
        "reasons": {"n1": ["new version"]},
        "disk_free": {"n1": 5},
        "starts": {"n1": "2.15.1"},
    }
    assert list(found["actions"]) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("second", "verified"),
    [
        ({"untouched": True, "cluster_verified": True}, True),
        ({"untouched": False, "cluster_verified": True}, False),
        ({"untouched": True, "cluster_verified": False}, False),
        ({"untouched": True}, False),
    ],
)
def test_cluster_is_verified_only_while_no_host_has_changed(second: dict[str, Any], verified: bool) -> None:
    states = {"n1": state(untouched=True, cluster_verified=True), "n2": state(**second)}
    assert roll_hosts(states)["verified"] is verified
    # The state of n3 is unknown.
    assert roll_hosts(states, {"n1": "s1", "n2": "s2", "n3": "s3"})["verified"] is False


def test_lines_have_the_action_of_each_host_its_reasons_and_its_tuning() -> None:
    start = {"required_action": {"action": "start", "reasons": ["no nats-server process is running"]}}
    reload = {"required_action": {"action": "reload", "reasons": ["accounts differs", "cluster.routes differs"]}}
    held = {"required_action": {"action": "none", "reasons": ["n3 is in maintenance since noon"]}}
    tuned = {"required_action": {"action": "none", "reasons": []}, "tuning_findings": ["vm.swappiness is 60"]}
    plain = {"required_action": {"action": "restart", "reasons": []}}
    states: dict[str, dict[str, Any]] = {"n1": start, "n2": reload, "n3": held, "n4": tuned, "n5": plain, "n6": {}}
    assert roll_hosts(states)["lines"] == [
        "n1: start: no nats-server process is running",
        "n2: reload: accounts differs; cluster.routes differs",
        "n3: n3 is in maintenance since noon",
        "n4: vm.swappiness is 60",
        "n5: restart",
    ]


@pytest.mark.parametrize(
    ("one", "key"),
    [
        (state(recorded=False), "unrecorded"),
        (state(gateway_tls_first=True), "gateway_tls_first"),
        (state(smoke_test_due=True), "smoke_test_due"),
    ],
)
def test_each_list_has_the_hosts_with_its_state(one: dict[str, Any], key: str) -> None:
    found = roll_hosts({"n1": state(), "n2": one})
    names = ("unrecorded", "gateway_tls_first", "smoke_test_due")
    assert {name: found[name] for name in names} == {name: ["n2"] if name == key else [] for name in names}


def test_host_without_a_known_state_counts_as_touched() -> None:
    states = {"n1": state(untouched=True), "n2": state(untouched=False), "n4": state()}
    assert roll_hosts(states, dict.fromkeys(["n1", "n2", "n3", "n4"]))["touched"] == ["n2", "n3", "n4"]
    assert roll_hosts({"n1": state(untouched=True)})["touched"] == []


def test_stopped_server_needs_no_record() -> None:
    assert roll_hosts({"n1": state(runs=False, recorded=False)})["unrecorded"] == []


def test_marks_come_from_hosts_of_the_play_and_from_the_locks_of_the_others() -> None:
    states = {"n1": state(), "n2": state(maintenance=MARK)}
    outside: dict[str, Any] = {"item": "n3", "maintenance": {"server": "s3"}}
    # The lock of a host in the play may be older than its state.
    locks = [outside, {"item": "n1", "maintenance": {"server": "s1"}}, {"item": "n4", "failed": True}]
    assert [mark["server"] for mark in maintenance_marks(states, locks)] == ["s2", "s3"]
    assert [mark["server"] for mark in maintenance_marks(states, locks, ["s2"])] == ["s3"]


def test_filters_read_the_facts_of_the_hosts() -> None:
    hostvars: dict[str, dict[str, Any]] = {
        "n1": {"nats_server_state": state("restart"), "nats_cluster__server_name": "s1"},
        "n2": {"nats_server_state": state(maintenance=MARK)},
        "n3": {},
    }
    found = nats_roll_hosts(["n1", "n2", "n3"], hostvars)
    assert (found["restart"], found["plan"]["hosts"]) == (["n1"], {"n1": "s1"})
    assert nats_maintenance_marks(["n1", "n2", "n3"], hostvars) == [MARK]
