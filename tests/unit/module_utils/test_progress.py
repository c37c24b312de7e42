# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests progress lines that name the missing condition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.progress import (
    EVERY,
    WIDTH,
    Progress,
    clock_time,
    time_left,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lines(path: Path, seconds: float, missing: str = "n4 does not answer", **params: Any) -> list[str]:
    """Return the lines that a wait of this many seconds prints if it takes a sample every two seconds."""
    clock = Clock()
    progress = Progress({"file": str(path), **params}, 120, clock)
    while clock.now <= 1000 + seconds:
        progress.report(lambda: missing)
        clock.now += 2
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_a_line_every_ten_seconds(tmp_path: Path) -> None:
    found = lines(tmp_path / "lines", 60)
    assert len(found) == 60 / EVERY
    assert found[0] == "10 of 120 s: n4 does not answer"
    assert found[-1] == "60 of 120 s: n4 does not answer"


def test_short_wait_prints_nothing(tmp_path: Path) -> None:
    assert lines(tmp_path / "lines", EVERY - 1) == []


def test_progress_is_not_computed_without_a_target() -> None:
    def missing() -> str:
        raise AssertionError

    clock = Clock()
    for params in (None, {}, {"title": "batch 1 of 2"}):
        progress = Progress(params, 120, clock)
        clock.now += 60
        progress.report(missing)


def test_complete_operation(tmp_path: Path) -> None:
    whole: dict[str, Any] = {"title": "batch 3 of 9 (n4)", "began": 750.0, "step": 3, "steps": 9}
    assert lines(tmp_path / "lines", 10, **whole) == [
        "batch 3 of 9 (n4), 00:04:20, about 00:11:16 left: 10 of 120 s: n4 does not answer"
    ]
    first: dict[str, Any] = {"title": "batch 1 of 9 (n4)", "began": 990.0, "step": 1, "steps": 9}
    assert lines(tmp_path / "first", 10, **first) == ["batch 1 of 9 (n4), 00:00:20: 10 of 120 s: n4 does not answer"]


def test_one_line_stays_one_line(tmp_path: Path) -> None:
    found = lines(tmp_path / "lines", 10, missing="a\nb " * 500)
    assert len(found) == 1
    assert len(found[0]) == WIDTH
    assert "a b a b" in found[0]


def test_a_line_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    found = lines(tmp_path / "lines", 10, missing="stream X\x1b[31mRED\x07 lags")
    assert found == ["10 of 120 s: stream X\ufffd[31mRED\ufffd lags"]


def test_unwritable_progress_file_is_not_a_failure(tmp_path: Path) -> None:
    assert lines(tmp_path / "missing" / "lines", 60) == []


@pytest.mark.parametrize(
    ("elapsed", "step", "steps", "left"),
    [(100, 1, 9, None), (150, 2, 2, 50), (250, 3, 9, 650), (100, 0, 0, None), (100, 4, 3, None)],
)
def test_remaining_work_is_shown(elapsed: float, step: int, steps: int, left: float | None) -> None:
    assert time_left(elapsed, step, steps) == left


def test_time_of_day() -> None:
    assert [clock_time(seconds) for seconds in (0, 59.9, 250, 3725, 360_000)] == [
        "00:00:00",
        "00:00:59",
        "00:04:10",
        "01:02:05",
        "100:00:00",
    ]
