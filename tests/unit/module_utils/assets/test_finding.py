# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.finding import (
    SELECTION_SPEC,
    idle_seconds,
    is_selected,
    ranges,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=timezone.utc)


def row(messages: int = 3, consumers: int = 0, last_seq: int = 3) -> dict[str, Any]:
    last = "2026-11-29T11:00:00Z" if last_seq else "0001-01-01T00:00:00Z"
    state = {"messages": messages, "last_seq": last_seq, "last_ts": last, "consumer_count": consumers}
    return {"state": state, "created": "2026-11-28T12:00:00Z", "config": {"num_replicas": 3}}


def matches(stream: dict[str, Any], idle: float | None = None, leaderless: bool = False, **options: Any) -> bool:
    return is_selected(stream, {**dict.fromkeys(SELECTION_SPEC), **options}, idle, leaderless, NOW)


def test_a_stream_is_idle_since_its_last_message_or_its_creation() -> None:
    assert idle_seconds(row(), NOW) == 3600
    assert idle_seconds(row(0, last_seq=0), NOW) == 86400
    assert matches(row(), idle=3600)
    assert not matches(row(), idle=3601)


@pytest.mark.parametrize(
    ("option", "stream", "other"),
    [
        ("empty", row(0), row(1)),
        ("unused", row(), row(consumers=1)),
    ],
)
def test_each_option_selects_a_state_and_its_opposite(
    option: str, stream: dict[str, Any], other: dict[str, Any]
) -> None:
    assert matches(stream, **{option: True}) and not matches(other, **{option: True})
    assert matches(other, **{option: False}) and not matches(stream, **{option: False})


def test_all_options_must_match() -> None:
    assert matches(row(), leaderless=True) and matches(row())
    assert is_selected(row(), {**dict.fromkeys(SELECTION_SPEC), "leaderless": True}, None, True, NOW)
    assert not is_selected(row(), {**dict.fromkeys(SELECTION_SPEC), "leaderless": True}, None, False, NOW)
    assert matches(row(), replicas=3, empty=False)
    assert not matches(row(), replicas=1, empty=False)


@given(st.sets(st.integers(1, 60)))
def test_ranges_contain_exactly_the_sequences(sequences: set[int]) -> None:
    found = ranges(sequences)
    assert {seq for first, last in found for seq in range(first, last + 1)} == sequences
    assert all(one[1] + 1 < following[0] for one, following in zip(found, found[1:]))
