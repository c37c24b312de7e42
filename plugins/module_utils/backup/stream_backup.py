# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backs up a stream: fetches its archive from the servers, verifies it, and records the data that an archive lacks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, BinaryIO, Callable, TypeVar, cast

from ..nats.client import Client, NatsFailure
from ..nats.jetstream_api import JetStreamApi, TransferPace
from ..units import human_bytes, human_seconds
from ..waiting import ELECTION_SECONDS, wait_until
from .archive_contents import ArchiveContents
from .encryption import METHOD, encrypted
from .files import Backup, format_of_backup, newest_backup
from .manifest import (
    ENCRYPTED_ARCHIVE,
    PLAIN_ARCHIVES,
    Manifest,
    ManifestError,
    changes,
    consumer_entries,
    outdated,
    read_manifest,
)
from .restore_rules import backup_caveats, backup_problem, largest_archive, longest_archive
from .selection import next_taken
from .store import BackupStore
from .verify import CHECKSUM, verify

T = TypeVar("T")

Info = dict[str, Any]


@dataclass
class RetryBudget:
    """The remaining seconds for waiting on elections, shared by all streams of a run, so many consumers without a
    leader take no longer than one."""

    left: float = ELECTION_SECONDS

    def wait(self, read: Callable[[], T], done: Callable[[T], bool]) -> T:
        """Wait within the remaining time and return the last reading. Raises NatsFailure as `wait_until` does."""
        started = time.monotonic()
        try:
            return wait_until(read, done, self.left).value
        finally:
            self.left = max(0.0, self.left - (time.monotonic() - started))


@dataclass(frozen=True)
class StreamBackupRequest:
    """The stream to back up, the store and the settings. `level`: how the finished archive is verified. `report` is
    called with the number of bytes received. `budget`: the time to wait for consumers that are electing a leader."""

    stream: str
    store: BackupStore
    level: str
    pace: TransferPace
    force: bool = False
    report: Callable[[int], None] = lambda _size: None
    budget: RetryBudget = field(default_factory=RetryBudget)
    crashed: bool = False


def back_up(client: Client, api: JetStreamApi, request: StreamBackupRequest, check_mode: bool) -> dict[str, Any]:
    """Ensure that there is a backup of the stream's current state, and return the result. Raises NatsFailure:
    leaderless, unsupported, interrupted, idle, damaged, write_failed."""
    info = api.stream(request.stream)
    consumers = _consumers(api, request, client.server_version, info)
    newest = newest_backup(request.store, request.stream, api.account)
    reason = _reason(newest, request, api.account, info, consumers)
    if not reason and newest is not None:
        return _result(False, newest, newest, "")
    if check_mode:
        return _predicted(newest, info, consumers, reason)
    taken = next_taken(newest.manifest.taken if newest else None, datetime.now(timezone.utc))
    backup = _take(client, api, request, info, consumers, taken)
    return _result(True, newest, backup, reason)


def _consumers(api: JetStreamApi, request: StreamBackupRequest, version: str, info: Info) -> Sequence[Info] | None:
    """Return the consumers as their leaders report them, or None if they are excluded. Raises NatsFailure."""
    rows: Sequence[Info] | None = None
    leaderless: set[str] = set()
    if request.pace.consumers:
        listing = api.consumers(request.stream)
        if listing.unknown and request.budget.left > 0:
            listing = request.budget.wait(lambda: api.consumers(request.stream), lambda read: not read.unknown)
        rows, leaderless = listing.rows, set(listing.unknown)
    problem = backup_problem(info["config"], leaderless, version)
    if problem is not None:
        code, reason = problem
        raise NatsFailure(code, f"stream {request.stream} was not saved: {reason}", account=api.account)
    return rows


def _reason(
    newest: Backup | None,
    request: StreamBackupRequest,
    account: str | None,
    info: Info,
    consumers: Sequence[Info] | None,
) -> str:
    """Return why a new backup is needed, or an empty text if the newest one is intact and up to date."""
    if newest is None:
        return "there is no backup yet"
    if request.force:
        return "requested by `force`"
    reason = outdated(newest.manifest, account, info, consumers) or _encrypted_otherwise(newest, request.store)
    if reason:
        return reason
    if request.level != CHECKSUM and newest.manifest.contents is None:
        return "the last backup has never been read back"
    try:
        verify(newest, CHECKSUM)
    except NatsFailure as failure:
        return f"the last backup is damaged: {failure.description}"
    return ""


def _encrypted_otherwise(newest: Backup, store: BackupStore) -> str:
    before = sorted((newest.manifest.encryption or {}).get("recipients") or ())
    if before == sorted(store.keys.recipients):
        return ""
    return "the last backup is encrypted to other recipients" if before else "the last backup is not encrypted"


class _Archive:
    """Writes an archive as it arrives, up to `most` bytes and for `longest` seconds, because any client of the account
    may send chunks."""

    def __init__(self, file: BinaryIO, report: Callable[[int], None], most: int, longest: float) -> None:
        self._file = file
        self._report = report
        self._size = 0
        self._most = most
        self._longest = longest
        self._deadline = time.monotonic() + longest
        self.reply: Info = {}

    def start(self, reply: Info) -> None:
        self.reply = reply

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._most:
            raise _endless(f"more than {human_bytes(self._most)} arrived")
        if time.monotonic() > self._deadline:
            raise _endless(f"it has not ended after {human_seconds(self._longest)}, {human_bytes(self._size)} arrived")
        self._file.write(chunk)
        self._report(self._size)


def _endless(excess: str) -> NatsFailure:
    return NatsFailure(
        "bad_reply",
        f"{excess}, and no archive of this stream can be that large or slow. Another client of the account may be "
        "sending to the subject of the request: deny applications the right to subscribe to `$JS.API.>`",
    )


class _Counted:
    """A file that counts and hashes (SHA-256) the bytes written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._sha256.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


def _take(
    client: Client,
    api: JetStreamApi,
    request: StreamBackupRequest,
    info: Info,
    consumers: Sequence[Info] | None,
    taken: datetime,
) -> Backup:
    started = time.monotonic()
    version = client.server_version
    keys = request.store.keys.with_passing()
    name = ENCRYPTED_ARCHIVE if keys.encrypt else PLAIN_ARCHIVES[0]
    with request.store.staged(request.stream, taken) as staging:
        with staging.create(name) as file:
            counted = _Counted(file)
            with encrypted(cast(BinaryIO, counted), keys) as plain:
                most = largest_archive(info["config"], info["state"], client.max_payload)
                longest = longest_archive(info["state"], request.pace.rate)
                archive = _Archive(plain, request.report, most, longest)
                try:
                    api.snapshot_stream(request.stream, archive.start, archive.add, request.pace)
                except NatsFailure as failure:
                    failure.account = api.account
                    failure.description = f"stream {request.stream} was not saved: {failure.description}"
                    raise
        after = api.stream(request.stream)
        manifest = Manifest(
            stream=request.stream,
            config=archive.reply["config"],
            state=info["state"],
            archive=name,
            account=api.account,
            account_name=api.label or None,
            created=info.get("created"),
            taken=taken.isoformat().replace("+00:00", "Z"),
            server_version=version,
            size=counted.size,
            sha256=counted.sha256,
            changed_meanwhile=changes(info["state"], after["state"]),
            # A standalone server has no followers that could differ.
            caveats=tuple(backup_caveats(info["config"], version)) if _followed(info) else (),
            crashed=request.crashed,
            encryption={"method": METHOD, "recipients": list(keys.recipients)} if keys.encrypt else None,
        )
        backup = Backup(request.store.with_keys(keys), staging.folder, manifest)
        manifest = replace(manifest, format=format_of_backup(backup))
        contents = _read_back(replace(backup, manifest=manifest), request)
        manifest = replace(
            manifest,
            contents=None if contents is None else contents.as_dict(),
            consumers=consumer_entries(consumers, contents) if consumers is not None else (),
            seconds=round(time.monotonic() - started, 3),
        )
        text = manifest.text()
        _require_readable(text, name, request.stream)
        return Backup(request.store, staging.publish(text), manifest)


def _require_readable(text: str, archive: str, stream: str) -> None:
    """Raise NatsFailure if no restore could read the manifest because the servers' replies are invalid."""
    try:
        read_manifest(text, [archive])
    except ManifestError as error:
        reason = f"stream {stream} was not saved: the data from the servers does not describe it: {error}"
        raise NatsFailure("bad_reply", reason) from error


def _followed(info: Info) -> bool:
    return bool((info.get("cluster") or {}).get("replicas"))


def _read_back(backup: Backup, request: StreamBackupRequest) -> ArchiveContents | None:
    try:
        return verify(backup, request.level)
    except NatsFailure as failure:
        failure.description = (
            f"stream {request.stream} was not saved: the data from the server is damaged: {failure.description}"
        )
        raise


def _predicted(newest: Backup | None, info: Info, consumers: Sequence[Info] | None, reason: str) -> dict[str, Any]:
    state = info["state"]
    after = {
        "messages": state.get("messages", 0),
        "first_seq": state.get("first_seq", 0),
        "last_seq": state.get("last_seq", 0),
        "consumers": len(consumers or ()),
    }
    return {
        "changed": True,
        "path": None,
        "backup": None,
        "reason": reason,
        "bytes": state.get("bytes", 0),
        "caveats": [],
        "diff": {"before": _shown(newest), "after": after},
    }


def _result(changed: bool, before: Backup | None, after: Backup, reason: str) -> dict[str, Any]:
    shown = _shown(after)
    return {
        "changed": changed,
        "path": after.path,
        "backup": after.manifest.as_dict(),
        "reason": reason,
        "bytes": after.manifest.size,
        "caveats": list(after.manifest.caveats) if changed else [],
        "diff": {"before": _shown(before), "after": shown} if changed else {"before": {}, "after": {}},
    }


def _shown(backup: Backup | None) -> dict[str, Any]:
    """Return a backup's fields for the diff."""
    if backup is None:
        return {}
    held = backup.manifest.contents or backup.manifest.state
    return {
        **{key: held.get(key, 0) for key in ("messages", "first_seq", "last_seq")},
        "consumers": len(backup.manifest.consumers),
    }
