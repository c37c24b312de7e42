# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests durations in the notation of the nats CLI, and durations and sizes in readable form."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.units import human_bytes, human_seconds, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("5", 5),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1w1s", 604801),
        ("1M", 2592000),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 s", "5x", "5s and more", "1e3s", "true"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


def test_a_unit_may_be_required() -> None:
    assert parse_duration("0", bare=False) == 0
    with pytest.raises(ValueError, match="'5' is not a duration"):
        parse_duration("5", bare=False)


@pytest.mark.parametrize("size, text", [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_human_bytes(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0s"),
        (0.0004, "400µs"),
        (0.35, "350ms"),
        (1.5, "1.5s"),
        (59.9, "59.9s"),
        (60, "1m"),
        (3725, "1h2m"),
        (-7200, "-2h"),
        (90000, "1d1h"),
    ],
)
def test_human_seconds(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text
