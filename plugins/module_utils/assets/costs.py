# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The costs of changing or deleting live assets, counted on their state. Pure.

Sources: server/stream.go configUpdateCheck and updateWithAdvisory, server/filestore.go UpdateConfig, server/consumer.go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..subjects import subject_matches
from ..units import counted, exact_duration, exact_size
from .change_rules import DATA_LOSS, IN_USE, activity, consumer_deletion_dangers, replica_dangers, stream_dangers
from .config import Config

Info = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """A cost of a change. `kind`: one of config.DANGERS. `count`: the messages or acknowledgements that are lost, None
    if the cost is not a number."""

    kind: str
    message: str
    count: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "message": self.message, "count": self.count}


@dataclass(frozen=True)
class Counts:
    """Counts on a stream for its costs. `subjects`: messages of each subject; `expired`: messages older than
    the new max_age. None: not counted."""

    subjects: Mapping[str, int] | None = None
    expired: int | None = None


def lowered(old: Config, new: Config, key: str) -> bool:
    """Return whether a limit becomes lower; 0 and -1 are unlimited."""
    return bool(new[key] > 0 and (old[key] <= 0 or new[key] < old[key]))


def stream_costs(old: Config, new: Config, info: Info, consumers: Sequence[Info], counts: Counts) -> list[Cost]:
    """Return the costs of changing a stream. `old`, `new`: in normal form; `consumers`: the CONSUMER.INFO of each."""
    state = info.get("state") or {}
    found = list(_removed(old, new, state, counts)) if state.get("messages") else []
    found += [
        Cost(danger.kind, danger.message)
        for danger in stream_dangers(old, new, state, 0, counts.subjects)
        if danger.kind != DATA_LOSS
    ]
    if state.get("messages") and new["retention"] == "interest" != old["retention"]:
        found.append(_unwanted(state, consumers))
    found += _clients(old, new, state)
    return found


def _removed(old: Config, new: Config, state: Mapping[str, Any], counts: Counts) -> Iterator[Cost]:
    """Yield the messages that lower limits delete at once. With discard=new, only the age and the limit per subject
    delete messages (filestore.go UpdateConfig). 2.10 enforces a first limit per subject only on the next message of the
    subject."""
    messages, size = state["messages"], state.get("bytes", 0)
    turns_old = new["discard"] == "old" != old["discard"]
    if new["discard"] == "old" and (turns_old or lowered(old, new, "max_msgs")) and 0 < new["max_msgs"] < messages:
        count = messages - new["max_msgs"]
        yield _deletes(f"max_msgs: {new['max_msgs']}", count, messages, where=_oldest(state, count))
    if new["discard"] == "old" and (turns_old or lowered(old, new, "max_bytes")) and 0 < new["max_bytes"] < size:
        count = min(messages, math.ceil((size - new["max_bytes"]) / (size / messages)))
        yield _deletes(f"max_bytes: {exact_size(new['max_bytes'])}", count, messages, "about ", _oldest(state, count))
    if lowered(old, new, "max_age") and counts.expired != 0:
        name = f"max_age: {exact_duration(new['max_age'])}"
        if counts.expired is None:
            yield Cost(DATA_LOSS, f"{name} deletes all older messages; they could not be counted")
        else:
            yield _deletes(name, counts.expired, messages, where=_oldest(state, counts.expired))
    if lowered(old, new, "max_msgs_per_subject"):
        most, subjects = new["max_msgs_per_subject"], counts.subjects
        if subjects is None:
            yield Cost(DATA_LOSS, f"max_msgs_per_subject: {most} may delete messages: too many subjects to count")
        elif any(one > most for one in subjects.values()):
            lost = sum(max(0, one - most) for one in subjects.values())
            yield _deletes(f"max_msgs_per_subject: {most}", lost, messages, where=": the oldest of each subject")


def _deletes(name: str, count: int, messages: int, about: str = "", where: str = "") -> Cost:
    return Cost(DATA_LOSS, f"{name} deletes {about}{count} of {counted(messages, 'message')}{where}", count)


def _oldest(state: Mapping[str, Any], count: int) -> str:
    """Return the place of the oldest messages in a stream, as the end of a sentence. Only a stream without deleted
    messages in between has consecutive sequences."""
    first, last = state.get("first_seq", 0), state.get("last_seq", 0)
    if not first or not last:
        return ""
    times = [str(state[key])[:19] + "Z" for key in ("first_ts", "last_ts") if state.get(key)]
    stored = f", stored from {times[0]} to {times[1]}" if len(times) == 2 else ""
    is_consecutive = last - first + 1 == state["messages"]
    removed = f"sequences {first} to {first + count - 1}" if is_consecutive else f"from sequence {first} on"
    return f": the oldest, {removed} (the stream has {first} to {last}{stored})"


def _unwanted(state: Mapping[str, Any], consumers: Sequence[Info]) -> Cost:
    """Return the messages that no consumer waits for, which retention interest deletes."""
    messages = state["messages"]
    if not consumers:
        return _deletes("retention: interest without consumers", messages, messages)
    floor = min((info.get("ack_floor") or {}).get("stream_seq", 0) for info in consumers)
    count = min(messages, max(0, floor - state.get("first_seq", 1) + 1))
    return _deletes("retention: interest", count, messages, "at least ")


def _clients(old: Config, new: Config, state: Mapping[str, Any]) -> Iterator[Cost]:
    """Yield the changes that make servers refuse or alter the messages of clients."""
    if new["discard"] == "new" != old["discard"]:
        yield Cost(IN_USE, f"discard: new rejects publishes while a limit is reached: {_fill(new, state)}")
    if lowered(old, new, "max_msg_size"):
        yield Cost(IN_USE, f"max_msg_size: publishes of more than {exact_size(new['max_msg_size'])} are rejected")
    removed = [one for one in old["subjects"] if not any(subject_matches(wide, one) for wide in new["subjects"])]
    if removed and not new["mirror"]:
        yield Cost(IN_USE, f"publishes to {', '.join(removed)} are no longer stored")
    if new["duplicate_window"] < old["duplicate_window"]:
        window = exact_duration(new["duplicate_window"])
        yield Cost(IN_USE, f"duplicate_window: {window}: messages sent again later are stored twice")
    if new["allow_rollup_hdrs"] and not old["allow_rollup_hdrs"]:
        yield Cost(IN_USE, "allow_rollup_hdrs: publishers may then replace all older messages")
    kept = {one["name"] for one in new["sources"]}
    gone = sorted({str(one["name"]) for one in old["sources"]} - kept)
    if gone:
        yield Cost(IN_USE, f"sources: the positions in {', '.join(gone)} are lost; adding them again starts over")


def _fill(new: Config, state: Mapping[str, Any]) -> str:
    parts = []
    for key, stored in (("max_msgs", state.get("messages", 0)), ("max_bytes", state.get("bytes", 0))):
        if new[key] > 0:
            parts.append(f"{key} is {stored * 100 // new[key]}% full")
    return ", ".join(parts) or "no limit on messages or bytes is set"


# --- Consumers --------------------------------------------------------------------------------------------------------


def forgotten(info: Info) -> int:
    """Return the number of acknowledged deliveries that a consumer recreated under its name would forget."""
    delivered = (info.get("delivered") or {}).get("consumer_seq", 0)
    return max(0, delivered - info.get("num_ack_pending", 0))


def consumer_costs(old: Config, new: Config, info: Info, stream: Config) -> list[Cost]:
    """Return the costs of changing a consumer. `stream`: the configuration of its stream in normal form."""
    found = [Cost(one.kind, one.message) for one in replica_dangers(old, new, stream["num_replicas"])]
    if old["filter_subjects"] != new["filter_subjects"] and stream["retention"] != "limits":
        message = "messages that no consumer selects any more are "
        message += "deleted (retention interest)" if stream["retention"] == "interest" else "left in the work queue"
        found.append(Cost(DATA_LOSS, f"filter_subjects: {message}"))
    if new["inactive_threshold"] and not old["inactive_threshold"]:
        limit = exact_duration(new["inactive_threshold"])
        found.append(Cost(IN_USE, f"inactive_threshold: {limit}: servers delete the consumer if it is unused"))
    return found


def consumer_deletion_costs(info: Info, stream: Config, remaining: int, messages: int) -> list[Cost]:
    """Return the costs of deleting a consumer. `remaining`: the consumers of the stream that are left; `messages`: those
    of the stream."""
    left = info.get("num_pending", 0) + info.get("num_ack_pending", 0)
    if stream["retention"] == "interest" and not remaining:
        message = f"it is the last consumer (retention interest): deletes {counted(messages, 'message')}"
        return [*_used(info), Cost(DATA_LOSS, f"{message}, and new messages are not stored", messages)]
    if stream["retention"] == "workqueue" and left:
        return [*_used(info), Cost(DATA_LOSS, f"{counted(left, 'message')} of the work queue stay unprocessed", left)]
    found = consumer_deletion_dangers(info, stream)
    return [Cost(one.kind, one.message, left if one.kind == DATA_LOSS else None) for one in found]


def _used(info: Info) -> Iterable[Cost]:
    used = activity(info)
    return [Cost(IN_USE, used)] if used else []
