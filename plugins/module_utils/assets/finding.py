# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects streams by their state, and describes the gaps between their messages. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ..times import parse_time

Row = Mapping[str, Any]

#: The options that select streams; see the module nats_stream_info.
SELECTION_SPEC: dict[str, dict[str, Any]] = {
    "idle": {"type": "str"},
    "empty": {"type": "bool"},
    "unused": {"type": "bool"},
    "leaderless": {"type": "bool"},
    "replicas": {"type": "int"},
}


def idle_seconds(row: Row, now: datetime) -> float:
    """Return the seconds since the stream stored its last message or, if it never stored one, since its creation."""
    state = row["state"]
    last = state["last_ts"] if state.get("last_seq") and state.get("last_ts") else row["created"]
    return max(0.0, (now - parse_time(last)).total_seconds())


def is_selected(row: Row, options: Mapping[str, Any], idle: float | None, leaderless: bool, now: datetime) -> bool:
    """Return whether a stream matches every given option of SELECTION_SPEC. `idle`: the option in
    seconds; `leaderless`: whether the stream has no leader."""
    state = row["state"]
    actual = {
        "empty": not state["messages"],
        "unused": not state.get("consumer_count"),
        "leaderless": leaderless,
        "replicas": row["config"].get("num_replicas") or 1,
    }
    if any(options[name] not in (None, value) for name, value in actual.items()):
        return False
    return idle is None or idle_seconds(row, now) >= idle


def ranges(sequences: Iterable[int]) -> list[list[int]]:
    """Return the first and the last sequence of each uninterrupted range."""
    found: list[list[int]] = []
    for seq in sorted(sequences):
        if found and seq == found[-1][1] + 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    return found
