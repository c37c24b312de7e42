# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the documents of a plan's batches: the arguments of the gates and the drain, and the progress header."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.batches import Rolling, batch_documents
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.restart_plan import BatchEffect

HOSTS = {"n1": "h1", "n2": "h2", "n3": "h3", "n4": "h4"}
BATCHES = [["n1"], ["n2", "n3"], ["n4"]]
OPTIONS: dict[str, Any] = {
    "drain": True,
    "drain_clients": True,
    "restore_leaders": False,
    "hooks": False,
    "samples": 4,
    "span": 10.0,
    "span_between": 5.0,
    "tolerate": ["server_unexpected"],
}
ROLLING = Rolling(OPTIONS, "accept", began=1795254003, versions=dict.fromkeys(HOSTS, "2.15.1"))


def gates(rolling: Rolling, name: str, key: str) -> list[Any]:
    """Return one argument of the gate `name` of each batch, None if the batch leaves it to the role."""
    return [batch["gates"][name].get(key) for batch in batch_documents(BATCHES, HOSTS, rolling)]


def test_document_names_hosts_servers_and_later_hosts() -> None:
    effects = [BatchEffect(1, 2), BatchEffect(3, 4), BatchEffect(5, 6)]
    documents = batch_documents(BATCHES, HOSTS, ROLLING, ["", "", "has the meta leader"], effects)
    second, last = documents[1:]
    assert {key: second[key] for key in ("number", "hosts", "servers", "title", "remaining", "leaders", "groups")} == {
        "number": 2,
        "hosts": ["h2", "h3"],
        "servers": ["n2", "n3"],
        "title": "batch 2 of 3 (h2, h3)",
        "remaining": ["h4"],
        "leaders": 3,
        "groups": 4,
    }
    assert second["progress"] == {"title": "batch 2 of 3 (h2, h3)", "step": 2, "steps": 3, "began": 1795254003}
    assert second["drain"] == {
        "leaders": True,
        "clients": True,
        "replicas": False,
        "accept_loss": False,
        "r1_policy": "accept",
        "avoid_servers": ["n4"],
    }
    assert all(gate["progress"] == second["progress"] for gate in second["gates"].values())
    assert (last["reason"], last["remaining"]) == ("has the meta leader", [])
    assert batch_documents([], {}, ROLLING) == []


def test_gates_evaluate_the_stop_of_their_batch_and_the_gate_after_it_that_of_the_next() -> None:
    for name in ("before", "drained"):
        assert gates(ROLLING, name, "stop_servers") == BATCHES
        assert gates(ROLLING, name, "stop_policy") == ["fail"] * 3
    assert gates(ROLLING, "after", "stop_servers") == [["n2", "n3"], ["n4"], []]
    assert gates(ROLLING, "after", "stop_policy") == ["report"] * 3


def test_spans_between_batches_are_shorter() -> None:
    assert gates(ROLLING, "before", "span") == [10.0, 5.0, 5.0]
    assert gates(ROLLING, "after", "span") == [5.0, 5.0, 10.0]
    assert gates(ROLLING, "drained", "span") == [0] * 3
    assert gates(ROLLING, "drained", "samples") == [1] * 3
    assert gates(ROLLING, "before", "stuck_timeout") == [15] * 3
    assert gates(ROLLING, "after", "stuck_timeout") == gates(ROLLING, "drained", "stuck_timeout") == [None] * 3


def test_gates_tolerate_faults_that_the_restart_may_fix() -> None:
    rolling = replace(ROLLING, silent=["n1", "n4", "n9"], asset_faults=["stream APP/OLD"])
    common = ["server_unexpected", "stream APP/OLD"]
    assert gates(rolling, "before", "tolerate") == [
        [*common, "n1", "n1", "n4"],
        [*common, "n2", "n3", "n4"],
        [*common, "n4", "n4"],
    ]
    assert gates(rolling, "drained", "tolerate") == gates(rolling, "before", "tolerate")
    # A server that has been restarted must not be raft-silent any more.
    assert gates(rolling, "after", "tolerate") == [[*common, "n4"], [*common, "n4"], common]


@pytest.mark.parametrize(
    ("policy", "before", "drained", "evacuated"),
    [("accept", "accept", "accept", "accept"), ("fail", "fail", "fail", "accept"), ("move", "accept", "fail", "move")],
)
def test_single_replicas_must_be_gone_once_they_were_moved(
    policy: str, before: str, drained: str, evacuated: str
) -> None:
    rolling = replace(ROLLING, r1_policy=policy)
    assert set(gates(rolling, "before", "r1_policy")) == {before}
    assert set(gates(rolling, "drained", "r1_policy")) == {drained}
    assert batch_documents(BATCHES, HOSTS, rolling)[0]["drain"]["r1_policy"] == evacuated


def test_single_replicas_are_moved_even_if_leaders_are_not() -> None:
    kept = replace(ROLLING, options={**OPTIONS, "drain": False})
    assert not batch_documents(BATCHES, HOSTS, kept)[0]["drain"]["leaders"]
    assert batch_documents(BATCHES, HOSTS, replace(kept, r1_policy="move"))[0]["drain"]["leaders"]


def test_plan_announces_which_gates_are_shared() -> None:
    # The first host of a batch runs its gates.
    assert gates(ROLLING, "before", "previous_host") == ["", "h1", "h2"]
    assert gates(ROLLING, "before", "shared") == [False, True, True]
    first, second, _last = gates(ROLLING, "before", "previous")
    assert (first, second["versions"]) == (None, {"n2": "2.15.1", "n3": "2.15.1"})
    hooked = replace(ROLLING, options={**OPTIONS, "hooks": True})
    assert gates(hooked, "before", "shared") == [False] * 3
    assert gates(hooked, "before", "reason") == ["", *["a hook runs between the gates"] * 2]
    assert gates(hooked, "after", "stop_servers") == [[], [], []]
    stopped = replace(ROLLING, versions={"n2": "2.15.1", "n4": "2.15.1"})
    assert gates(stopped, "before", "shared") == [False, False, True], "n3 does not run"


def test_servers_that_stay_down_share_no_gate() -> None:
    rolling = replace(ROLLING, stays_down=True)
    assert gates(rolling, "after", "stop_servers") == [[], [], []]
    assert gates(rolling, "after", "stop_policy") == ["fail"] * 3
    assert gates(rolling, "after", "span") == [5.0] * 3
    assert gates(rolling, "before", "shared") == [False] * 3


def test_plan_without_a_gate_drains_nothing() -> None:
    (alone,) = batch_documents([["n1"]], HOSTS, replace(ROLLING, gated=False))
    assert alone["gates"] == {}
    assert (alone["drain"]["leaders"], alone["drain"]["clients"]) == (False, False)
    assert (alone["reason"], alone["leaders"], alone["groups"]) == ("", None, None)
