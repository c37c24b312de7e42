# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the state of a roll: which batch may start, and the message of a batch that failed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_roll_state import nats_roll_state
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.roll_state import (
    BACK,
    DONE,
    HostState,
    roll_state,
)

BATCHES = [
    {"number": 1, "hosts": ["n1"], "remaining": ["n2", "n3", "n4"], "title": "batch 1 of 3 (n1)"},
    {"number": 2, "hosts": ["n2", "n3"], "remaining": ["n4"], "title": "batch 2 of 3 (n2, n3)"},
    {"number": 3, "hosts": ["n4"], "remaining": [], "title": "batch 3 of 3 (n4)"},
]
RESUME = "nats_cluster_restart_before=2026-12-01T10:00:00Z"
AT_TEN = 1796119200.0  # 2026-12-01T10:00:00Z


def state(number: int, not_after: str = "", now: float = 0, resume: str = "", **hosts: HostState) -> dict[str, Any]:
    known = {name: HostState() for name in ("n1", "n2", "n3", "n4")}
    return roll_state(BATCHES, {**known, **hosts}, number, not_after, now, resume)


def test_hosts_are_done_when_their_batch_is_complete() -> None:
    found = state(0, n1=HostState(DONE), n2=HostState(BACK))
    assert (found["done"], found["undone"]) == (["n1"], ["n2", "n3", "n4"])
    assert roll_state([], {})["undone"] == []


def test_batch_starts_after_the_earlier_ones() -> None:
    assert state(1)["refusal"] == ""
    assert state(0, n1=HostState(DONE))["result"] == "1 of 4 servers restarted"
    assert state(2, n1=HostState(DONE))["refusal"] == ""
    for earlier in (HostState(), HostState(BACK), HostState(failure="n1: it failed")):
        assert state(2, n1=earlier)["refusal"] == "batch 2 of 3 (n2, n3) was not started: an earlier batch failed."


@pytest.mark.parametrize("window_end", ["2026-12-01T10:00:00Z", "2026-12-01 12:00:00+02:00"])
def test_no_batch_starts_after_the_window(window_end: str) -> None:
    done = HostState(DONE)
    assert state(2, window_end, AT_TEN - 1, n1=done)["refusal"] == ""
    assert not state(2, window_end, AT_TEN - 1, n1=done)["window_over"]
    found = state(2, window_end, AT_TEN + 1, n1=done)
    assert found["window_over"] and state(0, window_end, AT_TEN + 1)["window_over"]
    assert found["refusal"] == (
        f"batch 2 of 3 (n2, n3) was not started: the maintenance window ended at {window_end}. Restarted: n1. "
        "Remaining: n2, n3, n4. The cluster was healthy when the last batch ended; run the same command in the next "
        "window."
    )
    assert "Restarted: none. Remaining: n1, n2, n3, n4." in state(1, window_end, AT_TEN + 1)["refusal"]
    resumed = state(2, window_end, AT_TEN + 1, RESUME, n1=done)["refusal"]
    assert resumed.endswith(f"run the same command with -e {RESUME} in the next window.")


def test_interrupted_run_resumes_with_the_same_command_or_a_variable() -> None:
    sentence = "If this run is interrupted, a stopped server stays down until you run the same command again"
    assert state(0)["resume"] == f"{sentence}."
    assert state(0, resume=RESUME)["resume"] == f"{sentence} with -e {RESUME}."


def test_failure_of_an_earlier_batch_comes_before_the_window() -> None:
    assert state(2, "2026-12-01T10:00:00Z", AT_TEN + 1)["refusal"].endswith("an earlier batch failed.")


def test_time_of_the_window_must_be_a_time() -> None:
    with pytest.raises(ValueError, match="tomorrow"):
        state(1, "tomorrow")


def test_message_of_a_failed_batch() -> None:
    found = state(
        2,
        resume=RESUME,
        n1=HostState(DONE),
        n2=HostState(failure="n2: Start the server: exited with 1", outcome="it was rolled back to 2.10.27"),
        n3=HostState(BACK, causes=("n2 does not answer", "1 stream misses a replica")),
    )
    assert (found["failed"], found["failures"]) == (["n2"], ["n2: Start the server: exited with 1"])
    assert found["roll_back"] == ["n2"]
    assert found["reason"] == "n2: Start the server: exited with 1"
    assert found["message"].splitlines() == [
        "batch 2 of 3 (n2, n3) failed, and the roll has stopped.",
        "n2: Start the server: exited with 1",
        "n2: it was rolled back to 2.10.27",
        "The cluster now: n2 does not answer (and 1 more)",
        "Restarted: n1. Not touched: n4.",
        "Once the cause is fixed, run the same command again with -e "
        "nats_cluster_restart_before=2026-12-01T10:00:00Z: it continues where this run stopped.",
    ]


def test_all_servers_of_a_batch_are_rolled_back_if_they_are_back_but_the_cluster_is_not() -> None:
    found = state(2, n1=HostState(DONE), n2=HostState(BACK, failure="the health gate failed"), n3=HostState(BACK))
    assert (found["failed"], found["roll_back"]) == ([], ["n2", "n3"])


def test_message_names_lost_and_held_hosts() -> None:
    found = state(3, n1=HostState(DONE), n2=HostState(DONE), n3=HostState(DONE), n4=HostState(held=True))
    assert (found["failed"], found["failures"], found["reason"]) == (["n4"], [], "unreachable")
    assert found["message"].splitlines() == [
        "batch 3 of 3 (n4) failed, and the roll has stopped.",
        "n4 is no longer reachable.",
        "n4 stays in maintenance, so its server is not started before the work on it is done.",
        "The cluster now: no problems found.",
        "Restarted: n1, n2, n3. Not touched: none.",
        "Once the cause is fixed, run the same command again: it continues where this run stopped.",
    ]


def test_modes_are_compared_while_a_later_batch_changes_its_mode() -> None:
    changing = HostState(keys=("operator", "resolver"))
    assert state(1, n4=changing)["changes_mode"]
    assert not state(3, n4=changing)["changes_mode"]


def test_filter_reads_the_facts_of_the_hosts() -> None:
    causes = [{"severity": "error", "title": "n1 is down"}, {"severity": "warning", "title": "n2 is slow"}]
    hostvars: dict[str, dict[str, Any]] = {
        "n1": {
            "nats_cluster__state": "planned",
            "nats_cluster__failure": "n1: it failed",
            "nats_cluster__outcome": "it was rolled back",
            "nats_cluster__state_after": {"causes": causes},
            "nats_server_state": {"maintenance": None, "required_action": {"keys": ["operator"]}},
        },
        **{name: {"nats_server_state": {"maintenance": {"held": True}}} for name in ("n2", "n3", "n4")},
    }
    found = nats_roll_state(BATCHES, hostvars, number=1, not_after=None, now=0, resume="")
    assert (found["failed"], found["changes_mode"]) == (["n1"], False)
    assert found["message"].splitlines()[1:4] == [
        "n1: it failed",
        "n1: it was rolled back",
        "The cluster now: n1 is down",
    ]
