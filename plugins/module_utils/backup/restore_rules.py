# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for backups and restores: refusals, changes to the configuration, and the comparison with the backup. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Optional

from ..documents import unmarked
from ..screen import some_names
from ..times import parse_time
from ..units import counted, human_seconds
from ..versions import reported_version
from .archive import ENTRIES, TAR, TAR_END, ArchiveEntry, encode_entry
from .archive_contents import ArchivedConsumer
from .manifest import Manifest, without_server_metadata

Config = Mapping[str, Any]

GIB = 1 << 30
#: The first version that writes archives with all consumers, which can be restored under a different name.
ALL_CONSUMERS = (2, 15, 0)

#: First releases with a fix, by series: in earlier releases, the leader rejected a delete during a snapshot while the
#: followers applied it (nats-server#7655).
_NO_DRIFT = ((2, 11, 12), (2, 12, 3))


def may_drift(version: str) -> bool:
    """Return whether replicas may differ after messages were removed while a server of this version wrote a snapshot."""
    have = reported_version(version)
    return have < _NO_DRIFT[0] or (2, 12, 0) <= have < _NO_DRIFT[1]


def backup_problem(config: Config, leaderless: Collection[str], version: str) -> tuple[str, str] | None:
    """Return the code and the reason if a stream cannot be backed up, otherwise None."""
    if config.get("storage") == "memory" and reported_version(version) < ALL_CONSUMERS:
        return "unsupported", f"nats-server {version} cannot back up a stream in memory; 2.15 can"
    if leaderless:
        names = ", ".join(sorted(leaderless))
        return (
            "leaderless",
            f"consumers without a leader: {names}. Their positions are unknown, and from 2.15 any such consumer fails "
            "the entire snapshot. Restore the leaders, delete these consumers, or save the stream with `consumers: false`",
        )
    return None


def largest_archive(config: Config, state: Mapping[str, Any], max_payload: int) -> int:
    """Return an upper bound, in bytes, for an archive of this stream.

    Up to 2.14, an archive contains entire blocks, including removed messages and a mark for each of these
    (server/filestore.go streamSnapshot, loadBlock). Each sequence was stored at most once, which gives one bound. For a
    long-lived stream, which has used many sequences, a generous multiple of its bytes gives a smaller bound.
    """
    first = max(1, int(config.get("first_seq") or 1))
    stored = max(0, int(state.get("last_seq") or 0) - first + 1)
    held = int(state.get("bytes") or 0)
    return min(GIB + 2 * (stored * (max_payload + 8192) + held), 64 * GIB + 64 * held)


def longest_archive(state: Mapping[str, Any], rate: float | None) -> float:
    """Return the seconds within which a server must have sent the archive of a stream: 6 hours, plus 16 times the
    duration of transferring its bytes at 1 MiB/s, or at the given rate if that is lower."""
    return 6 * 3600 + 16 * int(state.get("bytes") or 0) / min(rate or 1 << 20, 1 << 20)


def backup_caveats(config: Config, version: str) -> list[str]:
    """Return the possible defects of a snapshot from this version."""
    fixed = config.get("deny_delete") and config.get("deny_purge")
    if may_drift(version) and (config.get("num_replicas") or 1) > 1 and not fixed:
        return [
            f"nats-server {version}: a message deleted or purged during the snapshot is removed from the followers "
            "only; fixed in 2.11.12, 2.12.3 and 2.14"
        ]
    return []


# --- restore ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The target of a restore. `overlapping`: other streams that already store messages of its subjects.
    `keeps_first_seq`: whether a restored stream with `first_seq` survives on these servers (nats-server#6753)."""

    version: str
    max_payload: int
    overlapping: tuple[str, ...] = ()
    keeps_first_seq: bool = True


#: Settings that connect a stream with others and would disturb a comparison: its subjects, which may match advisories
#: about the comparison itself; its origins, which would receive requests; `mirror_direct`, which requires a mirror;
#: republishing; and placement on servers that do not exist.
_CONNECTIONS = ("subjects", "subject_transform", "mirror", "mirror_direct", "sources", "republish", "placement")
#: Settings that remove or add messages on their own. `max_bytes` would also reserve space on the disk; the last two
#: settings of the list depend on a limit that has been removed, so servers would refuse these settings or enable the
#: limit again.
_CHANGES_BY_ITSELF = (
    *("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject", "retention", "allow_msg_schedules", "allow_msg_ttl"),
    *("subject_delete_marker_ttl", "discard", "discard_new_per_subject"),
)


@dataclass(frozen=True)
class RestoreChanges:
    """Changes to the saved configuration; None keeps the saved value. `isolated`: for a comparison on a separate
    server, without connections to other streams, without settings that change messages, and on disk, because the host
    may not have enough memory. `max_replicas`: the upper limit of replicas."""

    stream: Optional[str] = None
    subjects: Optional[Sequence[str]] = None
    num_replicas: Optional[int] = None
    placement: Optional[Mapping[str, Any]] = None
    consumers: bool = True
    isolated: bool = False
    max_replicas: Optional[int] = None


@dataclass(frozen=True)
class RestorePlan:
    """The content of a restore. `lowered`: consumers whose replicas are reduced to the number of the stream. `strip`:
    whether the archive is sent without its consumers; `recreate` then contains all of them."""

    config: dict[str, Any]
    recreate: tuple[dict[str, Any], ...]
    lowered: tuple[str, ...]
    strip: bool
    caveats: tuple[str, ...] = field(default=())


#: The remedy after an interrupted restore. When a server abandons an upload 5 s after the last chunk, the meta leader
#: of 2.10 deletes the stream of that name if it was created less than 5 s ago (server/jetstream_cluster.go
#: processStreamAssignmentResults; observed on 2.10.27: it deleted a completely restored stream).
RESTORE_AGAIN = "wait until no restore has run for 10 seconds, delete the stream, and restore it again"


class RestoreRefusal(Exception):
    """The reason why nothing is restored. `code` is for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def wanted_config(manifest: Manifest, wanted: RestoreChanges) -> dict[str, Any]:
    """Return the configuration that the restored stream gets. Under another name, it loses the marks of its document,
    which would otherwise delete the copy."""
    config = without_server_metadata(manifest.config)
    if wanted.stream and wanted.stream != config["name"]:
        metadata = unmarked(config.pop("metadata", {}))
        config.update({"name": wanted.stream, **({"metadata": metadata} if metadata else {})})
    if wanted.subjects is not None:
        config["subjects"] = list(wanted.subjects)
    if wanted.num_replicas is not None:
        config["num_replicas"] = wanted.num_replicas
    if wanted.max_replicas is not None and (config.get("num_replicas") or 1) > wanted.max_replicas:
        config["num_replicas"] = wanted.max_replicas
    if wanted.placement is not None:
        config["placement"] = {key: value for key, value in wanted.placement.items() if value}
        if not config["placement"]:
            del config["placement"]
    return isolated(config) if wanted.isolated else config


def isolated(config: Config) -> dict[str, Any]:
    """Return the configuration for a stream that is isolated, see `RestoreChanges`."""
    kept = {key: value for key, value in config.items() if key not in (*_CONNECTIONS, *_CHANGES_BY_ITSELF)}
    return {**kept, "storage": "file"}


def plan_restore(manifest: Manifest, wanted: RestoreChanges, target: Target) -> RestorePlan:
    """Return the plan of a restore. Raises RestoreRefusal, before anything is created, if a server would reject the restore at
    the end or leave it incomplete."""
    config = wanted_config(manifest, wanted)
    name = config["name"]
    first_seq = 0 if target.keeps_first_seq else config.pop("first_seq", 0)
    if target.overlapping:
        others = ", ".join(target.overlapping)
        raise RestoreRefusal(
            "overlap", f"subjects of stream {name} belong to {others}; set different ones with `subjects`"
        )
    if manifest.format == ENTRIES and reported_version(target.version) < ALL_CONSUMERS:
        raise RestoreRefusal(
            "unsupported", f"an archive of nats-server 2.15 or later cannot be read by {target.version}"
        )
    if manifest.format == TAR and name != manifest.stream:
        raise RestoreRefusal(
            "unsupported",
            f"an archive of a server before 2.15 can only be restored under its own name {manifest.stream}",
        )
    largest = (manifest.contents or {}).get("largest", 0)
    if manifest.format == ENTRIES and largest > target.max_payload:
        raise RestoreRefusal(
            "unsupported",
            f"it has a message of {largest} bytes, but the servers accept at most {target.max_payload} (max_payload)",
        )
    consumers = manifest.consumers if wanted.consumers else ()
    replicas = config.get("num_replicas") or 1
    lowered = tuple(entry["name"] for entry in consumers if (entry["config"].get("num_replicas") or 0) > replicas)
    # The content of an archive up to 2.14 cannot be changed, but the archive can be sent without its consumers.
    strip = not wanted.consumers or (manifest.format == TAR and (bool(lowered) or any(map(skips_pending, consumers))))
    recreate = tuple(_fitted(entry, replicas) for entry in consumers if strip or not entry["in_archive"])
    caveats = [*_fewer_replicas(manifest, wanted, replicas), *_caveats(manifest, consumers, target, recreate)]
    if first_seq:
        caveats.append(
            f"it is restored without first_seq ({first_seq}), because nats-server {target.version} would delete its "
            "messages otherwise; the messages keep their sequences"
        )
    return RestorePlan(config, recreate, lowered, strip, tuple(caveats))


def _fewer_replicas(manifest: Manifest, wanted: RestoreChanges, replicas: int) -> list[str]:
    saved = manifest.config.get("num_replicas") or 1
    if wanted.max_replicas is None or replicas == saved:
        return []
    return [f"it gets {replicas} replicas instead of {saved}: raise `num_replicas` once there are enough servers"]


def _fitted(entry: Config, replicas: int) -> dict[str, Any]:
    number = entry["config"].get("num_replicas") or 0
    return {**entry, "config": {**entry["config"], "num_replicas": number if number <= replicas else 0}}


def _caveats(manifest: Manifest, consumers: Sequence[Config], target: Target, recreate: Sequence[Config]) -> list[str]:
    found = []
    if manifest.crashed:
        found.append(
            "it comes from the store of a server that did not stop cleanly: messages deleted just before may reappear"
        )
    window = manifest.config.get("duplicate_window") or 0
    # A stream that never stored a message has no message IDs that a restore could lose.
    used = (manifest.contents or manifest.state).get("last_seq") != 0
    if window and used and manifest.format == ENTRIES:
        found.append(
            "the restored stream has no record of message ids: within the duplicate window of "
            f"{human_seconds(window / 1e9)} a message stored before the backup is stored again if it is resent"
        )
    found += redeliveries(consumers, [entry["name"] for entry in recreate])
    ephemeral = [entry["name"] for entry in recreate if not entry["config"].get("durable_name")]
    if ephemeral:
        found.append(
            "ephemeral consumers that are not in the archive must be recreated by their clients: "
            f"{', '.join(ephemeral)}"
        )
    retention = manifest.config.get("retention", "limits")
    if retention != "limits" and recreate:
        found.append(
            f"until its missing consumers are recreated, a stream with retention {retention} may drop messages"
        )
    return found


def redeliveries(consumers: Sequence[Config], recreated: Collection[str]) -> list[str]:
    """Return the consumers whose messages are delivered again, with the maximum number of messages. A recreated
    consumer only has its ack floor."""
    exact, above = [], []
    for entry in consumers:
        pending, again = entry["num_ack_pending"], entry["redelivered"]
        if pending and entry["name"] in recreated:
            again = max(again, entry["delivered"]["consumer_seq"] - entry["ack_floor"]["consumer_seq"])
        if again > pending:
            above.append(f"{entry['name']} (up to {again})")
        elif again:
            exact.append(f"{entry['name']} ({again})")
    found = []
    if exact:
        found.append(f"messages delivered but not acknowledged are delivered again: {', '.join(exact)}")
    if above:
        found.append(
            f"messages above the ack floor are delivered again, including acknowledged messages: {', '.join(above)}"
        )
    return found


def repeats_sources(version: str) -> bool:
    """Return whether a stream copies everything again from a restored source: servers identify a source by its creation
    time, and a restored stream counts as a new one (observed on 2.15.1)."""
    return reported_version(version) >= ALL_CONSUMERS


def is_later(created: str, taken: Optional[str]) -> bool:
    """Return whether a stream was created after a backup was taken."""
    return taken is None or parse_time(created) > parse_time(taken)


def sources_caveat(again: Mapping[str, int]) -> list[str]:
    """Return the caveat for a stream that will receive the messages of these sources again."""
    if not again:
        return []
    names = ", ".join(f"{name} ({count})" for name, count in again.items())
    return [
        f"up to {counted(sum(again.values()), 'message')} arrive twice, from sources that are also restored: {names}"
    ]


def recreated_config(entry: Config, retention: str) -> dict[str, Any]:
    """Return the configuration that resets a consumer to its ack floor by means of a different delivery policy. An ack
    floor of 0 also needs a different policy if the consumer's own policy starts at the end of the stream. A work queue
    has no messages below the floor, and allows no other policy."""
    config = dict(entry["config"])
    config.setdefault("name", entry["name"])
    floor, delivered = entry["ack_floor"]["stream_seq"], entry.get("delivered") or {}
    if delivered.get("consumer_seq") == 0:
        # A consumer without deliveries reports the message before its first one as delivered; in 2.10 with an ack floor
        # of 0 (consumer.go selectStartingSeqNo).
        floor = max(floor, delivered["stream_seq"])
    if (floor or _starts_at_the_end(config)) and retention != "workqueue":
        config.pop("opt_start_time", None)
        config.update(deliver_policy="by_start_sequence", opt_start_seq=floor + 1)
    return config


def skips_pending(entry: Config) -> bool:
    """Return whether a server before 2.15 would restore a consumer behind its pending messages.

    An archive has no position for a consumer that was created on an empty stream and has not delivered a message. After
    a restore, its leader applies the delivery policy again, so it starts at the end of the restored stream
    (server/consumer.go readStoredState; observed on 2.10.27)."""
    delivered = entry.get("delivered") or {}
    return _starts_at_the_end(entry["config"]) and not any(delivered.get(key) for key in ("consumer_seq", "stream_seq"))


def _starts_at_the_end(config: Config) -> bool:
    return config.get("deliver_policy") in ("new", "last", "last_per_subject")


def begins_early(info: Config, last_seq: int) -> bool:
    """Return whether a consumer that is configured to start at a sequence starts before it, because the stream ended at
    `last_seq`.

    The consumer's leader permanently clips this start to the current end of its own replica, and a replica counts as
    current while it is still copying a restored stream (server/consumer.go selectStartingSeqNo, jetstream_cluster.go
    processSnapshot; observed on 2.10.27: started at 10 instead of 61). The configuration still shows the requested
    sequence."""
    config = info["config"]
    begin = (config.get("opt_start_seq") or 1) if config.get("deliver_policy") == "by_start_sequence" else 1
    return bool(_delivered(info)["stream_seq"] < min(begin - 1, last_seq))


def has_delivered(info: Config) -> bool:
    """Return whether a consumer has already delivered a message to a client."""
    return bool(_delivered(info)["consumer_seq"])


def _delivered(info: Config) -> dict[str, int]:
    return {"stream_seq": 0, "consumer_seq": 0, **(info.get("delivered") or {})}


def idle_filters(state: Config, info: Config) -> tuple[str, ...]:
    """Return the filters of a consumer that begins before the first message of its stream and reports no pending
    messages, otherwise ()."""
    if info.get("num_pending") or _delivered(info)["stream_seq"] >= max(state.get("first_seq") or 0, 1):
        return ()
    return _filters(info["config"])


def _filters(config: Config) -> tuple[str, ...]:
    one = config.get("filter_subject")
    return tuple(config.get("filter_subjects") or ([one] if one else ()))


def too_few_pending(state: Config, consumers: Sequence[Config], stored: Collection[str]) -> list[str]:
    """Return a line for each consumer that reports fewer pending messages than the stream has after its position.

    A consumer's leader counts the messages of its own replica, and counts again when that replica has been copied
    completely. Until then, a client that does not wait receives the reply that there are no messages. The state does
    not show how many messages match a filter. `stored`: the idle filters that at least one message matches."""
    found = []
    for info in consumers:
        config, counted = info["config"], info.get("num_pending") or 0
        # Deleted messages can only lower the reported number below this one.
        delivered = max(_delivered(info)["stream_seq"] - max(state.get("first_seq") or 0, 1) + 1, 0)
        least = max((state.get("messages") or 0) - delivered, 0)
        if _filters(config):
            least = int(any(subject in stored for subject in idle_filters(state, info)))
        elif config.get("deliver_policy", "all") not in ("all", "by_start_sequence"):
            continue
        if counted < least:
            found.append(f"consumer {info['name']} has {counted} pending messages; at least {least} were expected")
    return found


def consumers_part(
    format_name: str, state: Config, found: Sequence[tuple[ArchiveEntry, ArchivedConsumer]], plan: RestorePlan
) -> bytes:
    """Return the bytes that replace an archive's consumers: none, or the consumers in the format of 2.15 with a
    suitable number of replicas."""
    if format_name == TAR:
        return TAR_END
    kept = [] if plan.strip else found
    parts = [encode_entry(b"state.json", 0, json.dumps({**state, "consumer_count": len(kept)}).encode())]
    for entry, consumer in kept:
        payload = entry.payload
        if consumer.name in plan.lowered:
            document = json.loads(payload)
            document["config"]["num_replicas"] = 0
            payload = json.dumps(document).encode()
        parts.append(encode_entry(entry.name, entry.time, payload))
    return b"".join(parts)


def differences(manifest: Manifest, plan: RestorePlan, state: Config, consumers: Sequence[Config]) -> list[str]:
    """Return the differences between a restored stream and its backup, except for messages that the stream's own limits
    have removed since."""
    contents = manifest.contents
    found = []
    if contents is not None:
        # From 2.15 on, a restore omits messages that have expired since, even if the restored stream has no age limit.
        expires = bool(plan.config.get("max_age") or manifest.config.get("allow_msg_ttl"))
        limited = expires or any(
            (plan.config.get(key) or -1) > 0 for key in ("max_msgs", "max_bytes", "max_msgs_per_subject")
        )
        limited = limited or plan.config.get("retention", "limits") != "limits" or not contents.get("exact", True)
        for key in ("last_seq", "messages", "first_seq"):
            have, want = state.get(key) or 0, contents[key]
            if key == "first_seq":
                # The first sequence is 0 for a stream that never had a message, and 1 after the stream was restored.
                have, want = max(have, 1), max(want, 1)
            fewer = (key == "messages" and have < want) or (key == "first_seq" and have > want)
            if have != want and not (limited and fewer):
                found.append(f"{key} is {have} instead of {want}")
    there = {entry["name"]: entry for entry in consumers}
    for entry in manifest.consumers if not plan.strip else plan.recreate:
        name = entry["name"]
        if name not in there:
            if entry["config"].get("durable_name"):
                found.append(f"consumer {name} is missing")
            continue
        # The consumer's clients may already have resumed, but the position must not be lower.
        have, want = position(there[name]), entry["ack_floor"]["stream_seq"]
        if have < want:
            found.append(f"consumer {name} has the ack floor {have} instead of {want}")
    return found


def require_restored(manifest: Manifest, plan: RestorePlan, info: Config, consumers: Sequence[Config]) -> None:
    """Raise RestoreRefusal unless the existing stream is the result of this restore. The code of the refusal is `unfinished`
    if the stream does not contain its backup, as after an interrupted restore; otherwise the code is `exists`."""
    config = without_server_metadata(info["config"])
    ends, saved = info["state"].get("last_seq") or 0, (manifest.contents or manifest.state).get("last_seq") or 0
    if ends < saved:
        raise RestoreRefusal(
            "unfinished",
            f"stream {plan.config['name']} exists and ends at sequence {ends}, before the end of its backup "
            f"({saved}), as after an interrupted restore: {RESTORE_AGAIN}, or restore under another name",
        )
    if _is_another_stream(manifest, saved, info["state"]):
        raise RestoreRefusal(
            "unfinished",
            f"stream {plan.config['name']} exists, but its message {info['state']['first_seq']} was stored after the "
            "backup, which also has that sequence: an interrupted restore left it empty, or it is an unrelated "
            "stream. Restore under another name",
        )
    other = [f"{key} differs" for key, value in plan.config.items() if value and config.get(key) != value]
    there = {entry["name"] for entry in consumers}
    saved_names = [one["name"] for one in (plan.recreate if plan.strip else manifest.consumers) if _is_durable(one)]
    missing = [name for name in saved_names if name not in there]
    if missing:
        raise RestoreRefusal(
            "unfinished",
            f"stream {plan.config['name']} exists without {counted(len(missing), 'consumer')} of its backup "
            f"({some_names(missing)}), as after an interrupted restore. Create them, or {RESTORE_AGAIN}",
        )
    wrong = other + differences(manifest, plan, info["state"], consumers)
    if wrong:
        raise RestoreRefusal(
            "exists",
            f"stream {plan.config['name']} exists and differs from the backup ({'; '.join(wrong)}). Nothing is "
            "overwritten: delete it, or restore under another name",
        )


def _is_another_stream(manifest: Manifest, last: int, state: Config) -> bool:
    """Return whether this is a different stream: after the backup, it stored a message under a sequence that the backup
    already contains (up to `last`). A backup also contains messages that were stored while it was taken."""
    first = state.get("first_seq") or 0
    known = [parse_time(manifest.state["last_ts"])] if manifest.state.get("last_ts") else []
    if manifest.taken:
        known.append(parse_time(manifest.taken) + timedelta(seconds=manifest.seconds or 0))
    if not (state.get("messages") and 0 < first <= last and known and state.get("first_ts")):
        return False
    return parse_time(state["first_ts"]) > max(known)


def _is_durable(entry: Config) -> bool:
    return bool(entry["config"].get("durable_name"))


def position(info: Config) -> int:
    """Return the stream sequence after which a consumer resumes. A consumer that starts at a sequence has no ack floor
    until a message is acknowledged."""
    config = info["config"]
    begin = config.get("opt_start_seq") or 1 if config.get("deliver_policy") == "by_start_sequence" else 1
    return max((info.get("ack_floor") or {}).get("stream_seq") or 0, begin - 1)
