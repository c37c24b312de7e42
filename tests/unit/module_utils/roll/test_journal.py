# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how the state of a roll is read from the journal of operations, including a journal whose last line was cut off
by a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.journal import (
    Journal,
    Window,
    read_journal,
    windows,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.times import parse_time
from hypothesis import given
from hypothesis import strategies as st

MARK = {"server": "n3-c1", "by": "ops", "since": 1.0, "until": 2.0, "reason": "new disk", "held": True}


def line(event: str, seconds: int, run: str = "r1", cluster: str = "C1", **more: Any) -> str:
    time = f"2026-11-24T10:{seconds // 60:02d}:{seconds % 60:02d}.000Z"
    return json.dumps({"version": 1, "time": time, "run": run, "cluster": cluster, "event": event, **more})


ROLL = [
    line("run_started", 0, of=3),
    line("batch_started", 1, batch=1, of=3),
    line("waiting", 5, batch=1, of=3),
    line("batch_done", 21, batch=1, of=3),
    line("batch_started", 22, batch=2, of=3),
]


def test_a_roll_in_progress() -> None:
    run = read_journal(ROLL).runs["C1"]
    assert (run.running, run.batch, run.batches, run.took) == (True, 2, 3, (20.0,))
    assert run.seconds_left(run.last + 5) == 2 * 20 - 5


@pytest.mark.parametrize(("event", "state"), [("run_done", "done"), ("run_failed", "failed")])
def test_the_end_of_a_roll(event: str, state: str) -> None:
    run = read_journal([*ROLL, line(event, 60)]).runs["C1"]
    assert (run.running, run.state, run.seconds_left(run.last)) == (False, state, None)


def test_unrelated_events_start_no_roll() -> None:
    """A repair, which is a single event, does not start a roll."""
    assert read_journal([line("repaired", 1), line("batch_done", 2, batch=1)]) == Journal()
    assert read_journal([*ROLL, line("repaired", 30, run="r2")]).runs["C1"].name == "r1"
    assert read_journal([*ROLL, line("run_started", 30, run="r2", cluster="C2")]).runs.keys() == {"C1", "C2"}


def test_servers_in_maintenance() -> None:
    entered = line("maintenance_entered", 1, data=MARK)
    journal = read_journal([entered, line("maintenance_entered", 2, data={**MARK, "server": "n1-c1"})])
    assert (sorted(journal.marks), journal.marks["n3-c1"].reason) == (["n1-c1", "n3-c1"], "new disk")
    assert read_journal([entered, line("maintenance_left", 9, data=MARK)]).marks == {}


START = parse_time("2026-11-24T10:00:00Z").timestamp()


def spans(*lines: str) -> list[tuple[tuple[str, ...], float, float]]:
    return [(window.servers, window.begin - START, window.end - START) for window in windows(lines)]


def test_batches_and_maintenance_were_meant() -> None:
    roll = [
        line("batch_started", 1, batch=1, of=3, hosts=["h1"], data={"servers": ["n1-c1"]}),
        line("batch_started", 3, run="r2", cluster="C2", hosts=["n9-c2"]),
        line("batch_done", 21, batch=1, of=3),
        line("batch_started", 30, batch=2, of=3, hosts=["h2"], data={"servers": ["n2-c1"]}),
        line("waiting", 44, batch=2, of=3),
    ]
    # The second run was killed immediately, and the first while it waited.
    assert spans(*roll) == [(("n1-c1",), 1, 21), (("n9-c2",), 3, 3), (("n2-c1",), 30, 44)]
    assert spans(*roll, line("run_failed", 60)) == [(("n1-c1",), 1, 21), (("n2-c1",), 30, 60), (("n9-c2",), 3, 3)]
    assert windows(roll)[0].why == "in batch 1 of run r1"


@pytest.mark.parametrize(
    ("until", "left", "end"),
    [
        (300, None, 300),
        (300, 100, 100),
        # The maintenance mark was not removed, so the outage is unplanned from the mark's end on.
        (300, 500, 300),
        (5, None, None),
    ],
)
def test_maintenance_was_meant_as_long_as_was_promised(until: int, left: int | None, end: int | None) -> None:
    mark = {**MARK, "until": START + until}
    lines = [line("maintenance_entered", 10, data=mark)]
    lines += [line("maintenance_left", left, data=mark)] if left is not None else []
    found = [Window(("n3-c1",), START + 10, START + end, "in maintenance by ops (new disk)")] if end else []
    assert list(windows(lines)) == found


@given(st.lists(st.sampled_from(ROLL), max_size=8), st.integers(0, 400), st.text(max_size=20))
def test_any_bytes_are_read(lines: list[str], cut: int, rubbish: str) -> None:
    told = [*("\n".join(lines)[cut:]).splitlines(), rubbish, "[]", '{"version": 1}', '{"version": 1, "time": 3}']
    read_journal(told)
    windows(told)
