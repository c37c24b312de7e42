# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the events of a roll and their journal, with real files and several processes that write to the same
journal."""

from __future__ import annotations

import json
import multiprocessing
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.modules.nats_roll_event import append, check_subjects, make_event

NOW = datetime(2026, 11, 21, 16, 4, 5, 123456, tzinfo=timezone(timedelta(hours=1)))
WRITERS, LINES = 8, 40


def params(**given: Any) -> dict[str, Any]:
    optional = dict.fromkeys(("batch", "of", "hosts", "steps", "reason", "data"))
    return {"event": "batch_done", "run": "r1", "cluster": "C1", **optional, **given}


def write_lines(path: str, writer: int) -> None:
    for number in range(LINES):
        append(path, json.dumps({"writer": writer, "number": number, "filler": "x" * 5000}).encode())


def test_event_has_its_fields_and_its_time_in_utc() -> None:
    assert make_event(params(), NOW) == {
        "version": 1,
        "time": "2026-11-21T15:04:05.123Z",
        "run": "r1",
        "cluster": "C1",
        "event": "batch_done",
    }
    assert make_event(params(run=None), NOW)["run"] == "C1-20261121T150405Z"
    steps = {"stop": "1.23456", "start": 2}
    event = make_event(params(batch=0, of=5, hosts=["n1"], steps=steps, reason="", data={"a": [1]}), NOW)
    assert list(event)[5:] == ["batch", "of", "hosts", "steps", "reason", "data"]
    assert event["steps"] == {"stop": 1.235, "start": 2.0}


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"event": "Batch done"}, "event"),
        ({"event": ""}, "event"),
        ({"batch": -1}, "batch"),
        ({"of": -1}, "of"),
        ({"steps": {"stop": "soon"}}, "steps.stop"),
        ({"steps": {"stop": None}}, "steps.stop"),
        ({"steps": {"stop": -0.1}}, "steps.stop"),
        ({"steps": {"stop": "nan"}}, "steps.stop"),
        ({"steps": {"stop": "inf"}}, "steps.stop"),
    ],
)
def test_invalid_events_are_refused(given: dict[str, Any], option: str) -> None:
    with pytest.raises(NatsFailure, match=f"^{option}: ") as caught:
        make_event(params(**given), NOW)
    assert caught.value.code == "invalid_option"


@pytest.mark.parametrize(
    "subject", ["", "ops.*", "ops.>", ">", "ops..x", ".ops", "ops.", "ops x", "ops\n", "$JS.API.INFO"]
)
def test_subjects_that_cannot_be_published_to_are_refused(subject: str) -> None:
    with pytest.raises(NatsFailure, match=r"^subjects: "):
        check_subjects(["ops.rolls", subject])


def test_subjects_are_accepted() -> None:
    check_subjects(["ops", "ops.rolls.C1", "a$b.ü-1_2"])


def test_the_journal_is_created_with_its_directories_for_owner_and_group(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "C1.jsonl"
    append(str(path), b"one")
    append(str(path), b"two")
    assert path.read_text() == "one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750


def test_a_line_that_a_crash_cut_off_stays_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "C1.jsonl"
    path.write_text('{"a": 1}\n{"b":')
    append(str(path), b'{"c": 3}')
    assert path.read_text().splitlines() == ['{"a": 1}', '{"b":', '{"c": 3}']


def test_processes_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    path = str(tmp_path / "C1.jsonl")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_lines, args=(path, writer)) for writer in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(60)
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert len(found) == WRITERS * LINES
    for writer in range(WRITERS):
        assert [line["number"] for line in found if line["writer"] == writer] == list(range(LINES))
