# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Durations as the nats CLI takes them."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils._units import human_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("5", 5), ("1.5", 1.5), ("500ms", 0.5), ("1h30m", 5400), ("2d", 172800), ("1w1s", 604801), ("1M", 2592000)],
)
def test_durations(text: str, seconds: float) -> None:
    assert human_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 s", "5x", "5s and more", "1e3s", "true"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        human_seconds(text)


def test_a_unit_may_be_required() -> None:
    assert human_seconds("0", bare=False) == 0
    with pytest.raises(ValueError, match="'5' is not a duration"):
        human_seconds("5", bare=False)
