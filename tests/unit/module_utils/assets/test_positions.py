# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import OptionError
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.positions import (
    is_reset,
    pinned_clients,
    reset_dangers,
    reset_target,
)


def consumer(delivered: int = 7, floor: int = 5, pending: int = 2, **config: Any) -> dict[str, Any]:
    return {
        "config": {"deliver_policy": "all", **config},
        "delivered": {"stream_seq": delivered},
        "ack_floor": {"stream_seq": floor},
        "num_ack_pending": pending,
    }


def test_reset_without_a_sequence_returns_to_the_ack_floor() -> None:
    assert reset_target(consumer(), 10, None, None) == 6
    assert reset_target(consumer(deliver_policy="new"), 10, None, 7) == 6


@pytest.mark.parametrize("seq", [1, 6, 11])
def test_reset_accepts_sequences_up_to_the_next_message(seq: int) -> None:
    assert reset_target(consumer(), 10, seq, None) == seq


@pytest.mark.parametrize(
    ("config", "seq", "expected", "reason"),
    [
        ({}, 0, None, "0 is outside of 1 to 11"),
        ({}, 12, None, "12 is outside of 1 to 11"),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4}, 3, None, "3 is outside of 4 to 11"),
        ({"deliver_policy": "last"}, 3, None, "deliver_policy last allows only a reset to the ack floor"),
        ({}, 3, 6, "the last delivered sequence is 7, not 6"),
    ],
)
def test_reset_refuses_impossible_positions(
    config: dict[str, Any], seq: int, expected: int | None, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        reset_target(consumer(**config), 10, seq, expected)


def test_consumer_without_unacknowledged_messages_is_at_its_ack_floor() -> None:
    # A new consumer of a stream whose first messages are deleted.
    new = consumer(delivered=1, floor=0, pending=0)
    assert is_reset(new, 1, None)
    assert not is_reset(new, 1, 1)
    assert not is_reset(consumer(), 6, None)
    assert is_reset(consumer(5, 5, 0), 6, 6)


def test_reset_beyond_unacknowledged_messages_is_a_data_loss() -> None:
    found = [(danger.kind, danger.message) for danger in reset_dangers(consumer(), 9)]
    assert found == [
        ("in_use", "2 messages delivered but not acknowledged"),
        ("data_loss", "it never delivers the unacknowledged messages of 6 to 8"),
    ]
    assert reset_dangers(consumer(5, 5, 0), 1) == []


def test_only_the_named_group_and_client_are_unpinned() -> None:
    info = {
        "config": {"priority_policy": "pinned_client", "priority_groups": ["a", "b", "c"]},
        "priority_groups": [
            {"group": "a", "pinned_client_id": "X"},
            {"group": "b", "pinned_client_id": "Y"},
            {"group": "c"},
        ],
    }
    assert pinned_clients(info, None, None) == {"a": "X", "b": "Y"}
    assert pinned_clients(info, "b", None) == {"b": "Y"}
    assert pinned_clients(info, "b", "X") == {}
    with pytest.raises(OptionError, match=r"unpin.group: d is not a priority group of the consumer: a, b, c"):
        pinned_clients(info, "d", None)
    with pytest.raises(OptionError, match="the policy is none"):
        pinned_clients({"config": {}}, None, None)
