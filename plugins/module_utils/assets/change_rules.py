# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about changes to a stream or consumer: which are refused, and which delete data, interrupt readers, cannot be
undone, or affect another owner. Pure: no I/O.

Sources: server/stream.go (configUpdateCheck), server/consumer.go (checkNewConsumerConfig)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..documents import owning_document
from ..health.rules import Limits, group_problems
from ..nats.model import CONSUMER, RaftGroup
from ..problem import Danger
from ..subjects import subject_matches
from ..units import counted
from .config import SECOND, Config, Release

#: The values of `allow`.
DATA_LOSS, FEWER_REPLICAS, IN_USE, IRREVERSIBLE, FOREIGN = (
    "data_loss",
    "fewer_replicas",
    "in_use",
    "irreversible",
    "foreign",
)
DANGERS = (DATA_LOSS, FEWER_REPLICAS, IN_USE, IRREVERSIBLE, FOREIGN)
#: Metadata keys that tools commonly use to mark their assets. (The Kubernetes controller NACK leaves no mark.)
MANAGER_KEYS = ("managed-by", "managed_by", "app.kubernetes.io/managed-by")


_NEVER_CHANGES = {
    "storage": "the storage",
    "first_seq": "the first sequence (set at creation)",
    "allow_msg_counter": "counter support",
    "persist_mode": "the persist mode",
}
_NEVER_TAKEN_BACK = ("sealed", "deny_delete", "deny_purge", "allow_msg_ttl", "allow_msg_schedules")
_CONSUMER_NEVER_CHANGES = (
    "deliver_policy",
    "opt_start_seq",
    "opt_start_time",
    "ack_policy",
    "replay_policy",
    "idle_heartbeat",
    "flow_control",
    "max_waiting",
    "mem_storage",
)


def fixed_in_stream(old: Config, new: Config, release: Release) -> list[str]:
    """Return the desired changes of a stream that no server of `release` can make: `field: old → new (reason)`."""
    refused = {key: f"{what} cannot be changed" for key, what in _NEVER_CHANGES.items() if old[key] != new[key]}
    refused.update({key: "cannot be disabled again" for key in _NEVER_TAKEN_BACK if old[key] and not new[key]})
    if old["retention"] != new["retention"] and "workqueue" in (old["retention"], new["retention"]):
        refused["retention"] = "cannot be changed to or from workqueue"
    if old["max_consumers"] != new["max_consumers"] and release < (2, 12):
        refused["max_consumers"] = "can only be changed on 2.12.15, 2.14 and later"
    if old["mirror"] != new["mirror"] and (new["mirror"] or release < (2, 12)):
        refused["mirror"] = "can only be removed, and only on 2.12 and later; it cannot be changed"
    return _changes(old, new, refused)


def fixed_in_consumer(old: Config, new: Config) -> list[str]:
    """Return the desired changes of a consumer that no server can make, in the format of `fixed_in_stream`."""
    refused = {key: "cannot be changed" for key in _CONSUMER_NEVER_CHANGES if old[key] != new[key]}
    if bool(old["deliver_subject"]) != bool(new["deliver_subject"]):
        refused["deliver_subject"] = "a pull consumer cannot become a push consumer, nor the reverse"
    return _changes(old, new, refused)


def _changes(old: Config, new: Config, reasons: Mapping[str, str]) -> list[str]:
    return [f"{key}: {old[key]} → {new[key]} ({reason})" for key, reason in reasons.items()]


def asks_for_subjects(old: Config, new: Config) -> bool:
    """Return whether `stream_dangers` needs the number of messages per subject."""
    return _lower(old["max_msgs_per_subject"], new["max_msgs_per_subject"]) or bool(_uncovered(old, new))


def _lower(old: int, new: int) -> bool:
    return new > 0 and (old <= 0 or new < old)


def _uncovered(old: Config, new: Config) -> list[str]:
    return [item for item in old["subjects"] if not any(subject_matches(wide, item) for wide in new["subjects"])]


def stream_dangers(
    old: Config, new: Config, state: Mapping[str, Any], age: float, subjects: Mapping[str, int] | None
) -> list[Danger]:
    """Return the dangers of changing a stream. `state`: from STREAM.INFO; `age`: seconds since the oldest message was
    stored; `subjects`: the number of messages of each subject, None if unknown (see `asks_for_subjects`)."""
    messages, size = state.get("messages", 0), state.get("bytes", 0)
    found: list[Danger] = []
    if messages:
        found += [Danger(DATA_LOSS, text) for text in _removed_by_limits(old, new, messages, size, age, subjects)]
        if new["retention"] == "interest" != old["retention"]:
            found.append(Danger(DATA_LOSS, "retention interest removes messages that no consumer waits for"))
        lost = _uncovered(old, new)
        if lost and (subjects is None or any(not _within(new["subjects"], one) for one in subjects)):
            message = f"it contains messages on subjects that it would no longer accept: {', '.join(lost)}"
            found.append(Danger(IN_USE, message))
    if new["num_replicas"] < old["num_replicas"]:
        found.append(Danger(FEWER_REPLICAS, f"num_replicas: {old['num_replicas']} → {new['num_replicas']}"))
    if new["sealed"] and not old["sealed"]:
        found.append(Danger(IRREVERSIBLE, "a sealed stream neither accepts nor loses messages, and stays sealed"))
    if old["mirror"] and not new["mirror"]:
        found.append(Danger(IRREVERSIBLE, "a promoted mirror cannot become a mirror again"))
    return found


def _within(patterns: Iterable[str], subject: str) -> bool:
    return any(subject_matches(pattern, subject) for pattern in patterns)


def _removed_by_limits(
    old: Config, new: Config, messages: int, size: int, age: float, subjects: Mapping[str, int] | None
) -> Iterable[str]:
    """Yield the limits that would remove stored messages at once (filestore.go UpdateConfig: with discard=new, only the
    age and the limit per subject remove messages)."""
    turns_old = new["discard"] == "old" != old["discard"]
    if new["discard"] == "old":
        if 0 < new["max_msgs"] < messages and (turns_old or _lower(old["max_msgs"], new["max_msgs"])):
            yield f"max_msgs: {new['max_msgs']} deletes {messages - new['max_msgs']} of {messages} messages"
        if 0 < new["max_bytes"] < size and (turns_old or _lower(old["max_bytes"], new["max_bytes"])):
            yield f"max_bytes: {new['max_bytes']} deletes messages: {size} bytes are stored"
    if _lower(old["max_age"], new["max_age"]) and age * SECOND > new["max_age"]:
        yield f"max_age: {new['max_age'] / SECOND:g} s deletes older messages"
    per_subject = new["max_msgs_per_subject"]
    if _lower(old["max_msgs_per_subject"], per_subject):
        most = max(subjects.values(), default=0) if subjects is not None else None
        if most is None:
            yield f"max_msgs_per_subject: {per_subject} may delete messages: there are too many subjects to check"
        elif most > per_subject:
            yield f"max_msgs_per_subject: {per_subject} deletes messages: a subject has {most}"


def deletion_dangers(
    config: Config, messages: int, consumers: Sequence[Mapping[str, Any]], dependents: Sequence[str]
) -> list[Danger]:
    """Return the dangers of deleting a stream. `consumers`: the CONSUMER.INFO of each of its consumers; `dependents`:
    the streams of the account that mirror or source it."""
    found = [Danger(DATA_LOSS, f"it holds {counted(messages, 'message')}")] if messages else []
    active = [str(info["name"]) for info in consumers if activity(info)]
    if active:
        found.append(Danger(IN_USE, f"it has active consumers: {', '.join(sorted(active))}"))
    if dependents:
        found.append(Danger(IN_USE, f"streams that mirror or source it: {', '.join(sorted(dependents))}"))
    return found


def activity(info: Mapping[str, Any]) -> str:
    """Return the observed activity of a consumer, or "" if it is not in use."""
    if info.get("push_bound"):
        return "a subscriber is bound to it"
    if info.get("num_waiting"):
        return counted(info["num_waiting"], "waiting pull request")
    if info.get("num_ack_pending"):
        return f"{counted(info['num_ack_pending'], 'message')} delivered but not acknowledged"
    return ""


def consumer_deletion_dangers(info: Mapping[str, Any], stream: Config) -> list[Danger]:
    """Return the dangers of deleting a consumer of a stream."""
    used = activity(info)
    found = [Danger(IN_USE, used)] if used else []
    left = info.get("num_pending", 0) + info.get("num_ack_pending", 0)
    if stream["retention"] == "interest" and left:
        message = (
            f"it still has {left} messages to deliver, and those that no other consumer needs are deleted (retention "
            "interest)"
        )
        found.append(Danger(DATA_LOSS, message))
    return found


def replica_dangers(old: Config, new: Config, stream_replicas: int) -> list[Danger]:
    """Return a danger if a consumer would get fewer replicas; 0 means as many replicas as its stream has."""
    before, after = old["num_replicas"] or stream_replicas, new["num_replicas"] or stream_replicas
    return [Danger(FEWER_REPLICAS, f"num_replicas: {before} → {after}")] if after < before else []


def dependents(name: str, configs: Iterable[Config]) -> list[str]:
    """Return the streams of the same account that mirror or source the stream. (Streams of other accounts and domains
    refer to it by an external API and are not visible from here.)"""
    found = []
    for config in configs:
        origins = [config.get("mirror") or {}, *(config.get("sources") or ())]
        if any(origin.get("name") == name and not origin.get("external") for origin in origins):
            found.append(str(config.get("name")))
    return found


def owner(name: str, old: Config | None, desired: Config) -> str:
    """Return the document or tool that owns a stream or consumer, or "" if it has no mark of another one.

    `old`, `desired`: configurations in normal form (`desired` may lack any of the keys). A mark that is also in the
    task's own metadata does not count as that of another tool."""
    for prefix, what in (("KV_", "a key-value bucket"), ("OBJ_", "an object bucket"), ("$MQTT_", "the servers' MQTT")):
        if name.startswith(prefix):
            return what
    metadata = (old or {}).get("metadata") or {}
    given = desired.get("metadata") or {}
    document = owning_document(metadata)
    if document:
        return "" if document == owning_document(given) else f"document {document}"
    for key in MANAGER_KEYS:
        if metadata.get(key) and metadata[key] != given.get(key):
            return f"{metadata[key]} (metadata {key})"
    return ""


def unsettled(group: RaftGroup, short: bool = False) -> str:
    """Return why a group must not be changed now, or "" if nothing prevents it. `short`: whether missing replicas are
    permitted, because scaling restores them. Consumers may always have one replica too many (up to 2.14 they keep it
    after a peer was removed)."""
    surplus = group.kind == CONSUMER and len(group.peers) + 1 > group.size
    problems = group_problems(group)
    return "; ".join(
        item.message for item in problems if not (short or surplus) or not item.code.endswith("_replica_count")
    )


def in_progress(group: RaftGroup) -> bool:
    """Return whether a group is still being changed to match its configuration; a group that only misses a server that
    is down is not."""
    limits = Limits()
    if group.moving or len(group.peers) + 1 < group.size:
        return True
    return any(
        not limits.in_step(peer) and not peer.offline and peer.active <= limits.max_active for peer in group.peers
    )
