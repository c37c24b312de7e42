# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules for resetting the position of a consumer and for unpinning its clients. Pure: no I/O.

Sources: server/consumer.go resetStartingSeqLocked (2.14, ADR-60), server/jetstream_api.go jsConsumerUnpinRequest (2.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..problem import Danger
from .change_rules import DATA_LOSS, IN_USE, activity
from .config import OptionError

Info = Mapping[str, Any]

#: The releases that introduced the requests.
RESET_SINCE, UNPIN_SINCE = (2, 14), (2, 11)

#: The policies with which the servers accept a reset to a sequence; with all others, only to the ack floor.
_MOVABLE = ("all", "by_start_sequence", "by_start_time")


def position(info: Info) -> dict[str, int]:
    """Return the position of a consumer: the last delivered sequence, the ack floor, and the number of messages that
    were delivered but not acknowledged."""
    return {
        "delivered": int(info["delivered"]["stream_seq"]),
        "ack_floor": int(info["ack_floor"]["stream_seq"]),
        "ack_pending": int(info.get("num_ack_pending") or 0),
    }


def position_before(seq: int) -> dict[str, int]:
    """Return the position of a consumer that has been reset to a sequence."""
    return {"delivered": seq - 1, "ack_floor": seq - 1, "ack_pending": 0}


def reset_target(info: Info, last_seq: int, requested: int | None, expected: int | None) -> int:
    """Return the sequence from which a consumer delivers after a reset. `requested`: the given sequence, None for the
    ack floor; `expected`: the last delivered sequence that the task assumes. Raises OptionError."""
    now = position(info)
    if expected is not None and expected != now["delivered"]:
        raise OptionError(
            f"reset.expected_delivered: the last delivered sequence is {now['delivered']}, not {expected}; read the "
            "consumer again before you reset it"
        )
    if requested is None:
        return now["ack_floor"] + 1
    policy = info["config"].get("deliver_policy", "all")
    if policy not in _MOVABLE:
        raise OptionError(
            f"reset.seq: deliver_policy {policy} allows only a reset to the ack floor; omit reset.seq, or create a "
            "consumer with deliver_policy by_start_sequence"
        )
    start = int(info["config"].get("opt_start_seq") or 1)
    if not start <= requested <= last_seq + 1:
        raise OptionError(
            f"reset.seq: {requested} is outside of {start} to {last_seq + 1}, the range from the consumer's start to "
            "the next message"
        )
    return requested


def is_reset(info: Info, target: int, requested: int | None) -> bool:
    """Return whether a reset would change nothing. A consumer without unacknowledged messages is at its ack floor, even
    if the floor is below the first message of the stream."""
    now = position(info)
    return now == position_before(target) or (requested is None and not now["ack_pending"])


def reset_dangers(info: Info, target: int) -> list[Danger]:
    """Return the dangers of a reset to a sequence."""
    used, floor = activity(info), position(info)["ack_floor"]
    found = [Danger(IN_USE, used)] if used else []
    if target > floor + 1:
        found.append(Danger(DATA_LOSS, f"it never delivers the unacknowledged messages of {floor + 1} to {target - 1}"))
    return found


def pinned_clients(info: Info, group: str | None, client: str | None) -> dict[str, str]:
    """Return group → pinned client, for the groups to unpin: all of them, or `group`; with `client`, only if that client
    is pinned. Raises OptionError."""
    config = info["config"]
    if config.get("priority_policy") != "pinned_client":
        policy = config.get("priority_policy") or "none"
        raise OptionError(f"state: unpinned needs priority_policy pinned_client; the policy is {policy}")
    groups = config.get("priority_groups") or []
    if group is not None and group not in groups:
        raise OptionError(f"unpin.group: {group} is not a priority group of the consumer: {', '.join(groups)}")
    found = {}
    for state in info.get("priority_groups") or ():
        pinned = state.get("pinned_client_id")
        if pinned and group in (None, state["group"]) and client in (None, pinned):
            found[str(state["group"])] = str(pinned)
    return found
