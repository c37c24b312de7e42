# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests when the gate opens, with a script of good and bad samples instead of a cluster."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import ClusterContext
from ansible_collections.natsops.jetstream.plugins.module_utils.health.problem_file import write_problem_file
from ansible_collections.natsops.jetstream.plugins.module_utils.health.sampling import Sample
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.progress import Progress
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import MAX_LINES, MAX_WIDTH
from ansible_collections.natsops.jetstream.plugins.modules import nats_cluster_health
from ansible_collections.natsops.jetstream.plugins.modules.nats_cluster_health import (
    HELD,
    GateDecision,
    coverage,
    covered_result,
    message,
    requested_gate,
    wait_for_health,
)
from support.clusters import cluster, stream

GOOD = Sample(None, (), (), ())
BAD = Sample(None, (Problem("server_missing", ERROR, "n3", "expected server n3 did not answer", ("n3",)),), (), ())


def gate(script: list[Sample], **options: Any) -> GateDecision:
    """Return the gate's outcome for a script whose last sample repeats forever."""
    left = list(script)
    params = {"wait": True, "wait_timeout": 5, "interval": 0.01, "samples": 3, "span": 0, **options}
    return wait_for_health(lambda: left.pop(0) if len(left) > 1 else left[0], params)


def test_good_samples_in_a_row() -> None:
    assert (gate([GOOD]).healthy, gate([GOOD]).samples) == (True, 3)
    assert gate([GOOD, GOOD, BAD, GOOD]).samples == 6


def test_good_samples_over_enough_time() -> None:
    outcome = gate([GOOD], span=0.1)
    assert outcome.healthy
    assert outcome.waited >= 0.1
    assert outcome.samples > 3
    assert gate([GOOD, GOOD, BAD, GOOD], span=0.1).waited >= 0.12


def test_time_is_over() -> None:
    outcome = gate([BAD], wait_timeout=0.1)
    assert not outcome.healthy
    assert 0.05 <= outcome.waited < 1
    lines = message(outcome).splitlines()
    assert lines[:3] == [
        f"the cluster is not healthy after 0 s and {outcome.samples} sample(s): 1 problem",
        "1. n3 does not answer",
        "   - expected server n3 did not answer",
    ]
    assert lines[3].startswith("   $ systemctl status nats-server")


def test_a_single_sample() -> None:
    for sample in (GOOD, BAD):
        outcome = gate([sample], wait=False, span=10)
        assert (outcome.healthy, outcome.samples) == (sample is GOOD, 1)


def many(count: int) -> Sample:
    """Return the effect of two dead servers out of five on this many streams."""
    lost = tuple(
        Problem(
            "stream_no_leader",
            ERROR,
            f"stream APP/S{number}",
            f"stream APP/S{number} (R3, S-R3F-{number:08}) has no leader: 2 of 3 members must be up, 1 answered (n1)",
            absent=("n4", "n5"),
        )
        for number in range(count)
    )
    dead = tuple(
        Problem("server_missing", ERROR, name, f"expected server {name} did not answer", (name,))
        for name in ("n4", "n5")
    )
    return Sample(None, (*dead, *lost), (), (), ClusterContext(frozenset(["n1", "n2", "n3"])))


def test_ten_thousand_problems_fit_a_screen() -> None:
    outcome = GateDecision(False, many(9998), 4, 20, stuck=15)
    lines = message(outcome, "All 10000 problems: /home/ops/.ansible/natsops/health-C1.json").splitlines()
    assert len(lines) <= 1 + MAX_LINES
    assert max(map(len, lines)) <= MAX_WIDTH
    assert lines[0] == "the cluster is not healthy after 20 s and 4 sample(s): 10000 problems"
    assert any("n4 and n5 do not answer: 9998 streams have no quorum" in line for line in lines)
    assert "waiting alone will not fix it" in lines[-2]
    assert lines[-1].endswith("health-C1.json")
    brief = outcome.as_dict(HELD)
    assert (len(brief["problems"]), brief["problem_count"]) == (5, 10000)
    assert brief["problem_codes"] == {"server_missing": 2, "stream_no_leader": 9998}
    assert len(json.dumps(brief)) < 10_000
    assert len(outcome.as_dict()["problems"]) == 10000


def test_all_problems_are_in_a_file_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "home"))
    path = write_problem_file(None, "health-C1/../x", {"problems": [1, 2]})
    assert path == str(tmp_path / "home" / "natsops" / "health-C1_.._x.json")
    assert json.loads(Path(path).read_text()) == {"schema": 1, "problems": [1, 2]}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert write_problem_file(str(tmp_path), "health-C1", {}) == str(tmp_path / "health-C1.json")
    with pytest.raises(TypeError):
        write_problem_file(str(tmp_path), "health-C1", {"x": object()})
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["health-C1.json"]
    (tmp_path / "no").touch()
    with pytest.raises(OSError):
        write_problem_file(str(tmp_path / "no"), "health-C1", {})


class Clock:
    """A clock that advances only while the module sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_cluster_health, "time", Clock())


def behind(lag: int, silent: int = 0) -> Sample:
    """Return a sample in which n3 is `lag` entries behind; `silent` is the growing time in the message."""
    problem = Problem(
        "stream_replica_behind",
        ERROR,
        "stream APP/A",
        f"n3 is {lag} behind, silent for {silent} s",
        ("n3",),
        ("behind", lag),
    )
    return Sample(None, (problem,), (), ())


@pytest.mark.usefixtures("clock")
def test_a_wait_ends_when_nothing_changes_any_more() -> None:
    outcome = gate([behind(9, silent) for silent in range(100)], interval=2, wait_timeout=1000, stall_timeout=30)
    assert (outcome.healthy, outcome.stalled, outcome.waited) == (False, 30, 30)
    lines = message(outcome).splitlines()
    assert "nothing has changed for 30 s" in lines[0]
    assert lines[2].startswith("   - n3 is 9 behind")
    assert "continue on the servers" in lines[-1]


@pytest.mark.usefixtures("clock")
def test_wait_continues_while_the_state_changes() -> None:
    outcome = gate([*(behind(lag) for lag in range(60, 0, -1)), GOOD], interval=2, wait_timeout=1000, stall_timeout=30)
    assert outcome.healthy
    assert outcome.waited > 120


@pytest.mark.usefixtures("clock")
def test_change_restarts_the_stall_timer() -> None:
    script = [*[behind(9)] * 10, *[behind(8)] * 10, *[BAD] * 10]
    outcome = gate(script, interval=2, wait_timeout=1000, stall_timeout=30)
    assert (outcome.stalled, outcome.waited) == (30, 70)


@pytest.mark.usefixtures("clock")
def test_a_wait_that_cannot_heal_its_cause_ends_early() -> None:
    outcome = gate([BAD], interval=2, wait_timeout=120, stuck_timeout=15)
    assert (outcome.code, outcome.stuck, outcome.waited) == ("stuck", 16, 16)
    assert message(outcome).splitlines()[-1] == "Nothing has changed for 16 s, and waiting alone will not fix it."
    # A replica that is behind may catch up at any time, and a missing server may appear.
    assert gate([behind(9)], interval=2, wait_timeout=120, stuck_timeout=15).code == "unhealthy"
    assert gate([*[BAD] * 7, GOOD], interval=2, wait_timeout=120, stuck_timeout=15).healthy
    assert gate([BAD], wait=False, stuck_timeout=0.001).code == "unhealthy"


def test_wait_reports_missing_conditions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock()
    monkeypatch.setattr(nats_cluster_health, "time", clock)
    monkeypatch.setattr(nats_cluster_health, "Progress", partial(Progress, clock=clock.monotonic))
    lines = tmp_path / "lines"
    script = [*[BAD] * 16, GOOD]
    assert gate(script, interval=2, wait_timeout=120, span=20, progress={"file": str(lines)}).healthy
    assert lines.read_text().splitlines() == [
        *(f"{seconds} of 120 s: 1 problem left: n3 does not answer" for seconds in (10, 20, 30)),
        *(f"{seconds} of 120 s: healthy for {seconds - 32} s, not yet long enough" for seconds in (40, 50)),
    ]


def catching_up(lag: int) -> Sample:
    """Return a sample in which the replica on n3 lacks this many messages of 1000 bytes."""
    live = cluster(["n1", "n2", "n3"], stream("ORDERS", ["n1", "n2", "n3"]))
    (orders,) = live.streams
    peers = tuple(replace(peer, lag=lag if peer.name == "n3" else 0) for peer in orders.group.peers)
    orders = replace(orders, group=replace(orders.group, peers=peers), messages=100_000, size=100_000_000)
    return replace(behind(lag), cluster=replace(live, streams=(orders,)))


def test_wait_for_a_replica_reports_its_lag_and_duration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock()
    monkeypatch.setattr(nats_cluster_health, "time", clock)
    monkeypatch.setattr(nats_cluster_health, "Progress", partial(Progress, clock=clock.monotonic))
    lines = tmp_path / "lines"
    script = [*(catching_up(50_000 - 1_000 * number) for number in range(21)), GOOD]
    assert gate(script, interval=2, wait_timeout=120, span=1, progress={"file": str(lines)}).healthy
    title = "replicas on n3 catch up or move: stream APP/A misses a replica"
    assert lines.read_text().splitlines()[:4] == [
        f"10 of 120 s: 1 problem left (45000 entries, about 42.9 MiB, to catch up; about 00:01:30 left): {title}",
        f"20 of 120 s: 1 problem left (40000 entries, about 38.1 MiB, to catch up; about 00:01:20 left): {title}",
        f"30 of 120 s: 1 problem left (35000 entries, about 33.4 MiB, to catch up; about 00:01:10 left): {title}",
        f"40 of 120 s: 1 problem left (30000 entries, about 28.6 MiB, to catch up; about 00:01:00 left): {title}",
    ]


@pytest.mark.usefixtures("clock")
def test_good_samples_are_not_a_stall() -> None:
    assert gate([GOOD], interval=2, wait_timeout=1000, span=60, stall_timeout=30).healthy


@pytest.mark.usefixtures("clock")
def test_without_a_stall_timeout_the_time_alone_ends_the_wait() -> None:
    outcome = gate([BAD], interval=2, wait_timeout=600)
    assert (outcome.stalled, outcome.waited) == (None, 600)
    assert "nothing has changed" not in message(outcome)
    assert gate([BAD], wait=False, stall_timeout=0.001).stalled is None


STEPS = {"drain": True, "move_single_replicas": False, "restore_leaders": False, "hooks": False}


def gate_options(**options: Any) -> dict[str, Any]:
    """Return the options of a gate before the stop of n2."""
    defaults = {
        "stop_servers": ["n2"],
        "expected_servers": ["n1", "n2"],
        "tolerate": [],
        "maintenance": [],
        "r1_policy": "accept",
        "max_lag": 200,
        "samples": 4,
        "span": 5.0,
        "previous": None,
        "previous_result": {},
    }
    return {**defaults, **options}


def test_passed_gate_covers_the_next_one_without_a_sample() -> None:
    passed = requested_gate(gate_options(), {"n1": "2.15.1", "n2": "2.15.1"}).as_dict()
    # Ansible passes results as JSON.
    options = gate_options(
        previous={"versions": {"n2": "2.15.1"}, "steps": STEPS}, previous_result=json.loads(json.dumps(passed))
    )
    found = coverage(options)
    assert found.covered
    result = covered_result(options, found.reason)
    assert (result["healthy"], result["covered"], result["waited"], result["servers"]) == (True, True, 0, ["n1", "n2"])
    assert result["gate"] == passed


@pytest.mark.parametrize(
    ("options", "previous", "reason"),
    [
        ({}, None, ""),
        ({"previous_result": {}}, {}, "no gate has passed since the last batch"),
        ({}, {"steps": {**STEPS, "hooks": True}}, "a hook runs between the gates"),
        ({}, {"versions": {}}, "on n2"),
        ({"r1_policy": "fail"}, {}, "accepted unavailable single replicas"),
        ({"maintenance": [{"server": "n1", "by": "ops", "since": 1, "until": 2, "reason": ""}]}, {}, "n1"),
    ],
)
def test_gate_is_read_unless_the_previous_one_covers_it(
    options: dict[str, Any], previous: dict[str, Any] | None, reason: str
) -> None:
    passed = requested_gate(gate_options(), {"n2": "2.15.1"}).as_dict()
    given = {"versions": {"n2": "2.15.1"}, "steps": STEPS}
    requested = {"previous_result": passed, "previous": None if previous is None else {**given, **previous}}
    found = coverage(gate_options(**{**requested, **options}))
    assert not found.covered and reason in found.reason


def test_unreadable_result_of_a_gate_is_refused() -> None:
    previous = {"versions": {}, "steps": STEPS}
    with pytest.raises(NatsFailure, match="previous_result is not the value of gate"):
        coverage(gate_options(previous=previous, previous_result={"stop_servers": ["n2"]}))
