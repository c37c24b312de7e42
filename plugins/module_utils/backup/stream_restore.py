# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restores a stream from a backup, either completely or not at all."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, TypeVar

from ..host.s2 import ArchiveError, PlainReader, splice
from ..nats.client import Client, NatsFailure
from ..nats.error_codes import CONSUMER_EXISTS, RESTORED_NAME_EXISTS, STREAM_NOT_FOUND
from ..nats.jetstream_api import CHUNK, JetStreamApi, Listing, RestoreFailed, TransferPace
from ..nats.server_versions import FIRST_SEQ_PURGED
from ..waiting import ELECTION_SECONDS, wait_until
from .archive import ENTRIES, detect_format
from .archive_contents import ArchiveContents, read_head
from .consumer_places import place_consumers
from .files import Backup, require_opened
from .manifest import Manifest, consumer_entries
from .restore_rules import (
    RESTORE_AGAIN,
    RestoreChanges,
    RestorePlan,
    RestoreRefusal,
    Target,
    consumers_part,
    differences,
    idle_filters,
    plan_restore,
    recreated_config,
    require_restored,
    too_few_pending,
    wanted_config,
)
from .verify import CHECKSUM, CONTENTS, verify

T = TypeVar("T")

#: A server abandons an upload 5 s after the last chunk; until then it may create a stream from the data received so far
#: (server/jetstream_api.go activityInterval). A stream that has been absent for longer will not appear.
_GIVEN_UP = 7.0
#: Seconds within which the leader of a consumer must respond.
ELECTED = 0.5
_INTERVAL = 0.05
#: Nanoseconds without contact after which a replica counts as unavailable.
_SILENT = 5_000_000_000
#: Seconds within which all servers agree on whether a stream exists.
_LISTED_SECONDS = 2.0
_WITHOUT_DATA = f"is listed, but no server has it: a restore is running, or was interrupted: {RESTORE_AGAIN}"
_CREATED_MEANWHILE = "; a client or another run created a stream of this name in the meantime, and it was not deleted"


@dataclass(frozen=True)
class StreamRestoreRequest:
    """The options of a restore. `level`: how to verify the archive first; `wait_timeout`: seconds until all replicas
    and consumers exist, or until the remains of a failed restore are deleted. `report` is called with the number of
    bytes sent."""

    changes: RestoreChanges
    level: str
    pace: TransferPace
    wait_timeout: float
    report: Callable[[int], None] = lambda _size: None


def require_replicas(changes: RestoreChanges) -> None:
    """Raise NatsFailure invalid_option for fewer than one replica, because servers treat 0 as 1."""
    for option in ("num_replicas", "max_replicas"):
        number = getattr(changes, option)
        if number is not None and number < 1:
            raise NatsFailure("invalid_option", f"{option}: at least 1, not {number}")


@dataclass(frozen=True)
class _Prepared:
    backup: Backup
    plan: RestorePlan
    size: int
    contents: ArchiveContents | None
    existing: dict[str, Any] | None


def restore(
    client: Client, api: JetStreamApi, backup: Backup, request: StreamRestoreRequest, check_mode: bool
) -> dict[str, Any]:
    """Return the result of restoring a stream; an existing stream identical to the backup is left unchanged.

    Raises NatsFailure. Before anything is created, its code is damaged, exists, overlap or unsupported. Later, it is
    interrupted, idle, api_error or similar, after the partial stream has been removed; or incomplete if the stream is
    complete but differs from the backup."""
    started = time.monotonic()
    prepared = wait_until(lambda: _prepare(client, api, backup, request), lambda _found: True, ELECTION_SECONDS).value
    if prepared.existing is not None:
        nothing = {"changed": False, "recreated": [], "caveats": [], "diff": {"before": {}, "after": {}}}
        return {**_result(prepared, prepared.existing, started), **nothing}
    if check_mode:
        return _result(prepared, None, started)
    reply = _send(api, prepared, request)
    info = _settled(api, prepared.plan, request)
    if info.get("cluster") and api.release() >= (2, 15):
        new_stream(lambda: api.renew_assignment(info["config"]))
    recreated = _recreate(api, prepared.plan)
    state = reply.get("state") or info["state"]
    early = _placed(api, prepared.plan, recreated, state.get("last_seq") or 0, request)

    def compared() -> tuple[list[str], list[str]]:
        rows, few = _consumers_settled(api, prepared, request)
        return differences(prepared.backup.manifest, prepared.plan, state, rows), few

    # A consumer whose leader was just elected may not have loaded its position yet.
    other, few = wait_until(compared, lambda found: not found[0] or bool(found[1]), ELECTION_SECONDS).value
    wrong = [*other, *early, *few]
    result = {**_result(prepared, reply, started), "recreated": recreated}
    result["caveats"] += [f"{name} does not answer: its replica is copied when it returns" for name in _late(info)]
    if wrong:
        name = prepared.plan.config["name"]
        reason = f"stream {name} was restored, but differs from the backup: {'; '.join(wrong)}"
        raise NatsFailure("incomplete", reason, account=api.account)
    return result


def new_stream(read: Callable[[], T]) -> T:
    """Return the result of a read for a stream that was just created and may not exist on all servers yet."""
    end = time.monotonic() + ELECTION_SECONDS
    while True:
        try:
            return read()
        except NatsFailure as failure:
            if failure.err_code != STREAM_NOT_FOUND or time.monotonic() >= end:
                raise
        time.sleep(_INTERVAL)


def _prepare(client: Client, api: JetStreamApi, backup: Backup, request: StreamRestoreRequest) -> _Prepared:
    """Verify the archive and check for conflicts. Raises NatsFailure before anything is created."""
    # An archive that has never been read back is read now; a server would detect damage only halfway through the
    # restore.
    level = CONTENTS if request.level == CHECKSUM and backup.manifest.contents is None else request.level
    contents = verify(backup, level)
    require_opened(backup)
    manifest = known_manifest(backup.manifest, contents)
    config = wanted_config(manifest, request.changes)
    name = config["name"]

    def read() -> tuple[dict[str, Any] | None, set[str]]:
        found = api.find_stream(name)
        return found, {other for subject in config.get("subjects") or () for other in api.stream_names(subject)}

    # A stream that was just deleted may still be listed for a moment.
    found, others = wait_until(read, lambda seen: seen[0] is not None or name not in seen[1], _LISTED_SECONDS).value
    version = client.server_version
    overlapping = tuple(sorted(others - {name}))
    target = Target(version, client.max_payload, overlapping, not FIRST_SEQ_PURGED.affects(version))
    try:
        plan = plan_restore(manifest, request.changes, target)
        if found is not None:
            require_restored(manifest, plan, found, api.consumers(name).rows)
        elif name in others:
            raise RestoreRefusal("unfinished", f"stream {name} {_WITHOUT_DATA}")
    except RestoreRefusal as refusal:
        raise NatsFailure(refusal.code, f"nothing was restored: {refusal}", account=api.account) from refusal
    return _Prepared(replace(backup, manifest=manifest), plan, backup.size(), contents, found)


def known_manifest(manifest: Manifest, contents: ArchiveContents | None) -> Manifest:
    """Return the manifest, completed with data from the archive if it was read."""
    if contents is None or manifest.contents is not None:
        return manifest
    consumers = manifest.consumers or consumer_entries((), contents)
    return replace(manifest, format=contents.format, contents=contents.as_dict(), consumers=consumers)


def _send(api: JetStreamApi, prepared: _Prepared, request: StreamRestoreRequest) -> dict[str, Any]:
    config, state = prepared.plan.config, prepared.backup.manifest.state
    name = config["name"]
    try:
        return api.restore_stream(config, state, _counted(_parts(prepared), request.report), request.pace)
    except RestoreFailed as failure:
        left = _CREATED_MEANWHILE if failure.err_code == RESTORED_NAME_EXISTS else _left(api, name, request)
        failure.description = f"stream {name} was not restored: {failure.description}{left}"
        raise
    except (ArchiveError, OSError) as error:
        reason = f"stream {name} was not restored: {prepared.backup.archive}: {error}{_left(api, name, request)}"
        raise NatsFailure("damaged", reason, account=api.account) from error
    except NatsFailure as failure:
        if failure.code == "timeout":
            # No message was sent, so a stream that has messages was not created by this restore.
            left = _CREATED_MEANWHILE if _has_messages(api, name) else _left(api, name, request)
            failure.description += f" (or the intended leader of stream {name} is down){left}"
        elif failure.err_code == RESTORED_NAME_EXISTS:
            failure.description = f"stream {name} was not restored: {failure.description}: it {_WITHOUT_DATA}"
        elif failure.code == "connection_lost":
            failure.description += f"; check whether stream {name} exists, which it did not before"
        raise


def _has_messages(api: JetStreamApi, name: str) -> bool:
    """Return whether a stream is known to have messages."""
    try:
        return int(api.stream(name)["state"]["messages"]) > 0
    except NatsFailure:
        return False


def _counted(parts: Iterable[bytes], report: Callable[[int], None]) -> Iterator[bytes]:
    sent = 0
    for part in parts:
        yield part
        sent += len(part)
        report(sent)


def _left(api: JetStreamApi, name: str, request: StreamRestoreRequest) -> str:
    """Return the outcome for the remains of a failed restore. In isolation, they are removed together with their
    server."""
    return "" if request.changes.isolated else f"; {_remove(api, name, request)}"


def _remove(api: JetStreamApi, name: str, request: StreamRestoreRequest) -> str:
    """Delete the remains of a failed restore and return the outcome. The stream did not exist before the restore."""
    absent_since: float | None = None

    def gone() -> bool:
        nonlocal absent_since
        try:
            # The meta leader may list a stream that the stream's own leader does not have yet.
            there = name in api.stream_names()
            if there:
                api.delete_stream(name)
        except NatsFailure as failure:
            absent_since = None
            if failure.err_code != STREAM_NOT_FOUND:
                raise
            return False
        absent_since = None if there else absent_since or time.monotonic()
        return absent_since is not None and time.monotonic() - absent_since >= _GIVEN_UP

    try:
        if wait_until(gone, bool, request.wait_timeout, 0.5).value:
            return "the partial stream has been removed"
    except NatsFailure as failure:
        return (
            f"the partial stream could not be removed ({failure.description}): delete stream {name} before the next "
            "attempt"
        )
    return f"its removal could not be verified: delete stream {name} before the next attempt"


def _parts(prepared: _Prepared) -> Iterator[bytes]:
    """Yield the archive as it is sent: unchanged, unless consumers are changed."""
    plan, manifest = prepared.plan, prepared.backup.manifest
    with prepared.backup.open() as file:
        changed = plan.strip or (manifest.format == ENTRIES and bool(plan.lowered))
        position = _consumers_at(prepared) if changed else None
        if position is None:
            while True:
                chunk = file.read(CHUNK)
                if not chunk:
                    return
                yield chunk
        start, end, replacement = position
        yield from _gathered(splice(file, start, end, replacement))


def _consumers_at(prepared: _Prepared) -> tuple[int, int | None, bytes] | None:
    """Return the range of the plain archive to replace, and the replacement; None if there are no consumers."""
    plan, manifest = prepared.plan, prepared.backup.manifest
    if manifest.format == ENTRIES:
        with prepared.backup.open() as file:
            reader = PlainReader(file)
            start = len(detect_format(reader)[1])
            state, found = read_head(reader)
            return start, reader.position, consumers_part(ENTRIES, state, found, plan)
    # In the older format, the consumers are at the end.
    contents = prepared.contents or verify(prepared.backup, CONTENTS)
    if contents is None or contents.consumers_at is None:
        return None
    return (*contents.consumers_at, consumers_part(contents.format, {}, (), plan))


def _gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield small parts combined, because each part costs a round trip."""
    buffer = bytearray()
    for part in parts:
        buffer += part
        while len(buffer) >= CHUNK:
            yield bytes(buffer[:CHUNK])
            del buffer[:CHUNK]
    if buffer:
        yield bytes(buffer)


def _settled(api: JetStreamApi, plan: RestorePlan, request: StreamRestoreRequest) -> dict[str, Any]:
    """Wait until every replica whose server responds is in step, and return the stream's info. Raises NatsFailure
    not_seen."""
    name, replicas = plan.config["name"], plan.config.get("num_replicas") or 1
    started = time.monotonic()

    def settled(info: Mapping[str, Any] | None) -> bool:
        return info is not None and in_step(info, replicas, time.monotonic() - started)

    seen = wait_until(lambda: api.find_stream(name), settled, request.wait_timeout, _INTERVAL)
    if not seen.done or seen.value is None:
        late = ", ".join(_late(seen.value or {}))
        on = f" on {late}" if late else ""
        reason = (
            f"stream {name} has all its messages, but its replicas{on} are not in step after {request.wait_timeout:g} s"
        )
        raise NatsFailure("not_seen", reason, account=api.account)
    return seen.value


def in_step(info: Mapping[str, Any], replicas: int, waited: float) -> bool:
    """Return whether a stream has a leader and all of its replicas are in step. After the duration of an election,
    replicas without contact are ignored if the others form a majority, because they copy the stream once their servers
    return."""
    peers = _peers(info)
    led = replicas == 1 or bool((info.get("cluster") or {}).get("leader"))
    current = 1 + sum(bool(peer.get("current")) for peer in peers)
    silent = sum(_is_silent(peer) for peer in peers) if waited >= ELECTION_SECONDS else 0
    return led and len(peers) == replicas - 1 and current + silent == replicas and current >= replicas // 2 + 1


def _is_silent(peer: Mapping[str, Any]) -> bool:
    """Return whether the leader of a group receives nothing from a replica. A leader reports 0 nanoseconds for a
    replica that never replied."""
    active = peer.get("active") or 0
    return not peer.get("current") and (not active or active > _SILENT)


def _peers(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((info.get("cluster") or {}).get("replicas") or ())


def _late(info: Mapping[str, Any]) -> list[str]:
    """Return the servers whose replicas are not in step."""
    return sorted(peer["name"] for peer in _peers(info) if not peer.get("current"))


def _recreate(api: JetStreamApi, plan: RestorePlan) -> list[str]:
    """Create the durable consumers that the archive does not contain, and return their names."""
    stream, retention = plan.config["name"], plan.config.get("retention", "limits")
    created = []
    for entry in plan.recreate:
        # If the content of the archive is unknown, it may have contained the consumer.
        if entry["config"].get("durable_name") and api.find_consumer(stream, entry["name"]) is None:
            try:
                api.save_consumer(stream, recreated_config(entry, retention), "create")
            except NatsFailure as failure:
                # The archive contained the consumer; its position is compared later.
                if failure.err_code != CONSUMER_EXISTS:
                    raise
                continue
            created.append(entry["name"])
    return created


def _placed(
    api: JetStreamApi, plan: RestorePlan, names: Sequence[str], last_seq: int, request: StreamRestoreRequest
) -> list[str]:
    """Wait until the recreated consumers begin at their positions, and return those that do not."""
    retention = plan.config.get("retention", "limits")
    configs = {entry["name"]: recreated_config(entry, retention) for entry in plan.recreate if entry["name"] in names}
    return place_consumers(api, plan.config["name"], configs, last_seq, retention, request.wait_timeout)


def _consumers_settled(
    api: JetStreamApi, prepared: _Prepared, request: StreamRestoreRequest
) -> tuple[list[dict[str, Any]], list[str]]:
    """Wait until the consumers of the backup have leaders, which the meta leader assigns after the restore, and none
    reports fewer pending messages than it should. Return all consumers, and those that still report too few."""
    stream = prepared.plan.config["name"]
    entries = prepared.plan.recreate if prepared.plan.strip else prepared.backup.manifest.consumers
    expected = {entry["name"] for entry in entries if entry["config"].get("durable_name")}

    matched: dict[str, bool] = {}

    def read() -> tuple[Listing, list[str]]:
        # The state is read first: messages stored in between only raise the consumers' numbers.
        state = new_stream(lambda: api.stream(stream))["state"]
        found = new_stream(lambda: api.consumers_soon(stream, ELECTED))
        rows = list(found.rows)
        for subject in {subject for row in rows for subject in idle_filters(state, row)} - set(matched):
            matched[subject] = api.first_message(stream, subject) is not None
        return found, too_few_pending(state, rows, [subject for subject, stored in matched.items() if stored])

    def settled(seen: tuple[Listing, list[str]]) -> bool:
        found, few = seen
        return not few and not found.unknown and expected <= {row["name"] for row in found.rows}

    if not entries:
        return [], []
    found, few = wait_until(read, settled, request.wait_timeout, _INTERVAL).value
    return list(found.rows), few


def _result(prepared: _Prepared, reply: dict[str, Any] | None, started: float) -> dict[str, Any]:
    plan, manifest = prepared.plan, prepared.backup.manifest
    held = manifest.contents or manifest.state
    after = {
        "stream": plan.config["name"],
        "config": plan.config,
        **{key: held.get(key, 0) for key in ("messages", "first_seq", "last_seq")},
        "consumers": sorted(entry["name"] for entry in (plan.recreate if plan.strip else manifest.consumers)),
    }
    return {
        "changed": True,
        "stream": plan.config["name"],
        "bytes": prepared.size,
        "messages": after["messages"],
        "first_seq": after["first_seq"],
        "last_seq": after["last_seq"],
        "consumers": after["consumers"],
        "recreated": sorted(entry["name"] for entry in plan.recreate if entry["config"].get("durable_name")),
        "fewer_replicas": sorted(plan.lowered),
        "caveats": list(plan.caveats),
        "state": None if reply is None else reply.get("state"),
        "seconds": round(time.monotonic() - started, 3),
        "diff": {"before": {}, "after": after},
    }
