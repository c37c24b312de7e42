# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests a backup: restores it into a throw-away server, backs up the stream from there, and compares both backups."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from ..nats.client import Client, NatsFailure
from ..nats.jetstream_api import JetStreamApi, TransferPace
from ..units import human_bytes, human_seconds
from .archive_contents import entry_messages
from .catalogue import Catalogue, stream_key
from .catalogue_file import choice_rows, load_catalogue, store_catalogue
from .files import Backup, find_backups, read_backup, require_opened
from .proof import expired_since, lost, message_limits, room_needed, unproven
from .protection import least_proven
from .restore_rules import RestoreChanges, RestoreRefusal, Target, plan_restore
from .selection import SelectionError, choose
from .store import BackupStore, DirectoryStore, staged_directory, utc_now
from .stream_backup import StreamBackupRequest, back_up
from .stream_restore import StreamRestoreRequest, known_manifest, restore
from .throwaway_server import SLACK, ended_by_signals, find_binary, require_room, throwaway_server
from .verify import CHECKSUM, CONTENTS, verify

#: Failures caused by this host rather than by the backup.
_HOST_FAILURES = ("disk_full", "invalid_option", "no_identity", "not_started", "unsupported", "write_failed")
_IDLE = 30.0
_ISOLATED = RestoreChanges(num_replicas=1, isolated=True)


@dataclass(frozen=True)
class BackupDrillOptions:
    """The backup to test, the nats-server binary, and the working directory. `stream`: as in `selection.choose`, None
    for the next stream to test. `finish_timeout` and `wait_timeout`: seconds, as for a restore."""

    store: BackupStore
    stream: Optional[str]
    binary: Optional[str]
    work_directory: Optional[Path]
    finish_timeout: float
    wait_timeout: float


@dataclass(frozen=True)
class _Server:
    """The nats-server binary to run, and its directory."""

    binary: str
    version: str
    directory: Path


def drill(wanted: BackupDrillOptions, check_mode: bool) -> dict[str, Any]:
    """Test one backup and return the result, which is recorded in the catalogue even if the test failed.

    Raises NatsFailure. Before anything is started, its code is locked, invalid_option, damaged, unsupported or
    disk_full; later, it is not_started, not_proven, or a code of a restore or a backup.
    """
    store = wanted.store
    store.require()
    server = _Server(*find_binary(wanted.binary), _work_directory(wanted))
    with contextlib.ExitStack() as stack:
        if not check_mode:
            stack.enter_context(store.locked())
            stack.enter_context(ended_by_signals())
        catalogue = load_catalogue(store)
        backups, unreadable = find_backups(store)
        backup = _chosen(wanted, catalogue, backups, unreadable)
        name = stream_key(backup.manifest.account, backup.manifest.stream)
        result: dict[str, Any] = {
            "changed": True,
            "stream": name,
            "path": backup.path,
            "server_version": server.version,
            "unreadable": [failure.description for failure in unreadable],
        }
        try:
            backup = _verified(backup)
            room = _required_room(backup, server)
            result.update(bytes=(backup.manifest.contents or {}).get("bytes") or 0, room=room)
            if check_mode:
                where = f"{human_bytes(room)} in {server.directory}"
                line = f"the backup of {name} as of {backup.manifest.taken} would be tested, which takes {where}"
                return {**result, "proof": None, "seconds": None, "bytes_per_second": None, "lines": [line]}
            seconds = _prove(backup, server, wanted, room, name)
        except NatsFailure as failure:
            if not check_mode and failure.code not in _HOST_FAILURES:
                proof = _proof(backup, server, None, failure.description)
                store_catalogue(store, catalogue.proven(name, proof), backups)
            raise
        catalogue = catalogue.proven(name, _proof(backup, server, seconds, ""))
        store_catalogue(store, catalogue, backups)
        proof = dict(catalogue.streams[name].proof or {})
    rate = int(result["bytes"] / max(seconds, 0.001))
    took = f"restored in {human_seconds(seconds)} ({human_bytes(rate)}/s)"
    line = (
        f"{name} as of {backup.manifest.taken} is proven: {proof['messages']} messages, {took}, nats-server "
        f"{server.version}"
    )
    return {**result, "proof": proof, "seconds": seconds, "bytes_per_second": rate, "lines": [line]}


def _work_directory(wanted: BackupDrillOptions) -> Path:
    """Return the server's store directory. Raises NatsFailure invalid_option if the directory is among the backups."""
    local = wanted.store.local
    if local is None:
        return Path(os.path.abspath(wanted.work_directory or tempfile.gettempdir()))
    directory = Path(os.path.abspath(local))
    work = Path(os.path.abspath(wanted.work_directory or directory.parent))
    if work.resolve().is_relative_to(directory.resolve()):
        raise NatsFailure("invalid_option", f"work_directory: {work} is inside {directory}, which is for backups only")
    return work


def _chosen(
    wanted: BackupDrillOptions, catalogue: Catalogue, backups: Sequence[Backup], unreadable: Sequence[NatsFailure]
) -> Backup:
    """Return the backup that this drill restores. Raises NatsFailure invalid_option."""
    by_stream: dict[str, Backup] = {}
    for backup in backups:  # the last entry is the newest
        by_stream[stream_key(backup.manifest.account, backup.manifest.stream)] = backup
    if wanted.stream is None and by_stream:
        return by_stream[least_proven(list(by_stream), catalogue, datetime.now(timezone.utc))]
    more = f" ({len(unreadable)} backups cannot be read: {unreadable[0].description})" if unreadable else ""
    if wanted.stream is None:
        raise NatsFailure("invalid_option", f"there is no backup in {wanted.store.place()}{more}")
    try:
        chosen = [backups[place] for place in choose(choice_rows(backups), [wanted.stream])]
    except SelectionError as error:
        raise NatsFailure("invalid_option", f"stream: {error}{more}") from error
    if len(chosen) > 1:
        raise NatsFailure(
            "invalid_option", f"stream: {wanted.stream} matches {len(chosen)} streams; one is tested at a time"
        )
    return chosen[0]


def _verified(backup: Backup) -> Backup:
    """Return the backup with the contents of its archive, after verifying the archive. Raises NatsFailure damaged."""
    contents = verify(backup, CHECKSUM if backup.manifest.contents is not None else CONTENTS)
    require_opened(backup)
    return replace(backup, manifest=known_manifest(backup.manifest, contents))


def _required_room(backup: Backup, server: _Server) -> int:
    """Return the bytes that the server's directory needs. Raises NatsFailure unsupported or disk_full if a restore is
    impossible."""
    manifest = backup.manifest
    try:
        plan_restore(manifest, _ISOLATED, Target(server.version, message_limits(manifest)["max_payload"]))
    except RestoreRefusal as refusal:
        reason = f"{refusal} ({server.binary}): set `binary` to a newer one ({backup.path})"
        raise NatsFailure(refusal.code, reason) from refusal
    needed = room_needed(manifest, backup.size())
    require_room(server.directory, needed, f"restore {backup.path}")
    return needed


def _prove(backup: Backup, server: _Server, wanted: BackupDrillOptions, room: int, name: str) -> float:
    """Restore the backup, back up the stream again, compare both backups, and return how many seconds the restore took.
    Raises NatsFailure; its code is not_proven if the contents differ."""
    limits, store_bytes = message_limits(backup.manifest), 2 * room + SLACK
    started, began = time.monotonic(), time.time()
    # The directory is locked, and the leftovers of killed runs are removed, as for a backup that is being written.
    with staged_directory(server.directory, "drill") as work:
        with throwaway_server(server.binary, work, limits, store_bytes) as connection, Client(connection) as client:
            restored, again = _there_and_back(client, backup, wanted, work / "again")
        # The server dropped messages that had expired by its clock, even if the clock has been set back since.
        wrong = _differences(backup, again, max(time.time(), began + time.monotonic() - started))
    if wrong:
        reason = (
            f"{name} was restored differently from {backup.path}: {'; '.join(wrong)}. Take another backup and test it"
        )
        raise NatsFailure("not_proven", reason)
    return float(restored["seconds"])


def _there_and_back(
    client: Client, backup: Backup, wanted: BackupDrillOptions, directory: Path
) -> tuple[dict[str, Any], Backup]:
    """Restore a backup and back up the stream again; return the result of the restore and the new backup. Raises
    NatsFailure."""
    api, pace = JetStreamApi(client), TransferPace(_IDLE, wanted.finish_timeout)
    how = StreamRestoreRequest(_ISOLATED, CHECKSUM, pace, wanted.wait_timeout)
    try:
        restored = restore(client, api, backup, how, False)
        saved = back_up(
            client, api, StreamBackupRequest(backup.manifest.stream, DirectoryStore(directory), CONTENTS, pace), False
        )
    except NatsFailure as failure:
        if failure.code == "incomplete":
            failure.code = "not_proven"
        failure.description += f" ({backup.path})"
        raise
    return restored, read_backup(DirectoryStore(Path(saved["path"])))


def _differences(backup: Backup, again: Backup, now: float) -> list[str]:
    """Return the differences between the original backup and the one taken after its restore."""
    wrong = unproven(backup.manifest, again.manifest)
    if not wrong and expired_since(backup.manifest, again.manifest):
        with backup.open() as before, again.open() as after:
            missing = lost(entry_messages(before), entry_messages(after), now)
        return [missing] if missing else []
    return wrong


def _proof(backup: Backup, server: _Server, seconds: Optional[float], reason: str) -> dict[str, Any]:
    """Return the record of a drill for the catalogue."""
    held = backup.manifest.contents or {}
    return {
        "time": utc_now(),
        "ok": not reason,
        "reason": reason,
        "path": backup.folder,
        "taken": backup.manifest.taken,
        "seconds": seconds,
        "bytes": held.get("bytes") or 0,
        "messages": held.get("messages") or 0,
        "digest": held.get("digest"),
        "server_version": server.version,
    }
