# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backs up streams from copies of the stores of stopped servers, each stream from the most advanced copy.

A throw-away server loads one stream at a time, in isolation and from a second copy, so the original copy is not
changed. The snapshot from this server becomes the archive of a backup, with the original configuration of the
stream."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

from ..backup.archive import read_consumer_state
from ..backup.catalogue import stream_key
from ..backup.restore_rules import position
from ..backup.run_backup import BackupOutcome, Stream, chosen_streams, folder, not_saved
from ..backup.selection import matches
from ..backup.store import BackupStore, staged_directory, written
from ..backup.stream_backup import StreamBackupRequest, back_up
from ..backup.throwaway_server import (
    ACCOUNT,
    SLACK,
    ended_by_signals,
    find_binary,
    nearest,
    require_room,
    throwaway_server,
)
from ..host.s2 import ArchiveError
from ..host.store import StoredStream, best_replica, index_format, stored_streams, undeleted
from ..nats.client import Client, NatsFailure
from ..nats.jetstream_api import JetStreamApi, Listing, TransferPace
from ..nats.server_versions import unreadable_files
from ..progress import Progress
from ..screen import Page, some_names
from ..table import table_page
from ..units import human_bytes
from .store_copy import StoreError, folder_bytes, load_alone

_LOG_LINES = 3
#: The data about a stream that is read from a copy before the stream is loaded.
_REPORTED = ("messages", "first_seq", "last_seq")


@dataclass(frozen=True)
class StoreBackupRequest:
    """The streams to back up, with destination and options. `copies`: server → directory of the copy of its store.
    `damaged`: patterns of streams that are backed up although they load only partly. `undeleted`: patterns of streams
    that are backed up although they load deleted messages. `held`: the required content of the copies, as returned by
    nats_store_copy."""

    copies: Mapping[str, str]
    store: BackupStore
    streams: Sequence[str]
    exclude: Sequence[str]
    damaged: Sequence[str]
    undeleted: Sequence[str]
    held: Sequence[Mapping[str, Any]]
    binary: Optional[str]
    work_directory: Optional[Path]
    level: str
    pace: TransferPace


@dataclass(frozen=True)
class _Replica:
    """The replica from which a stream is backed up. `others`: server → its other replicas. `folders`: server → the
    folder of each replica."""

    server: str
    stored: StoredStream
    others: Mapping[str, StoredStream]
    folders: Mapping[str, Path]
    size: int

    @property
    def folder(self) -> Path:
        return self.folders[self.server]

    @property
    def label(self) -> str:
        return stream_key(self.stored.account, self.stored.name)


@dataclass(frozen=True)
class _Place:
    """The server that loads the stream, and its directory."""

    binary: str
    directory: Path


def save_copied_streams(request: StoreBackupRequest, progress: Progress, check_mode: bool) -> BackupOutcome:
    """Back up every requested stream. A failed stream does not stop the others. In check mode, the streams are also
    loaded, but nothing permanent is written.

    Raises NatsFailure (invalid_option, unsupported, disk_full, locked) before anything is saved."""
    binary, version = find_binary(request.binary)
    replicas = _replicas(request)
    _require_readable(request, version)
    # By default, the server's directory is next to the backups, because their disk has enough room. The server's
    # directory is not inside the directory of the backups, which must contain only backups.
    beside = request.store.local.parent if request.store.local else tempfile.gettempdir()
    place = _Place(binary, Path(os.path.abspath(request.work_directory or beside)))
    _require_room(request, place, replicas)
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        if not check_mode:
            stack.enter_context(request.store.locked())
        stack.enter_context(ended_by_signals())
        for replica in replicas:
            report = partial(_report, progress, len(rows), len(replicas), replica.label)
            report(0)
            rows.append(_row(request, place, replica, report, check_mode))
    changed = [row for row in rows if row["changed"]]
    result = {
        "changed": bool(changed),
        "streams": rows,
        **_page(request, rows, check_mode).as_dict(),
        "diff": {side: {row["name"]: row["diff"][side] for row in changed} for side in ("before", "after")},
    }
    return BackupOutcome(result, not_saved(rows))


def _report(progress: Progress, done: int, count: int, name: str, size: int) -> None:
    progress.report(lambda: f"{done} of {count} streams saved; {name}: {human_bytes(size)} so far")


# --- Copies
# --------------------------------------------------------------------------------------------------------------


def _replicas(request: StoreBackupRequest) -> list[_Replica]:
    """Return the best replica of each requested stream. Raises NatsFailure invalid_option, unsupported, incomplete."""
    held: dict[Stream, dict[str, StoredStream]] = {}
    for server, copy in request.copies.items():
        for stored in _stored(server, copy):
            held.setdefault((stored.account, stored.name), {})[server] = stored
    _require_held(request, held)
    found = sorted(held, key=lambda key: stream_key(*key))
    chosen = chosen_streams(found, request.streams, request.exclude)
    hidden = [
        f"{stream_key(*key)} on {server}" for key in chosen for server, stored in held[key].items() if stored.encrypted
    ]
    if hidden:
        raise NatsFailure("unsupported", f"encrypted streams cannot be loaded without their key: {some_names(hidden)}")
    return [_replica(request, held[key]) for key in chosen]


def _require_readable(request: StoreBackupRequest, version: str) -> None:
    """Raise NatsFailure unsupported if a server of this version would load the copies incorrectly."""
    for server, copy in request.copies.items():
        damage = unreadable_files(index_format(copy), version)
        if damage:
            raise NatsFailure(
                "unsupported", f"nats-server {version} cannot load the copy of {server}: {damage}; set `binary`"
            )


def _require_held(request: StoreBackupRequest, held: Mapping[Stream, Mapping[str, StoredStream]]) -> None:
    """Raise NatsFailure incomplete unless some copy contains each stream up to the last sequence that any store had."""
    missing = {}
    for item in request.held:
        key, last_seq = (item["account"], item["name"]), item["last_seq"] or 0
        if key not in held:
            missing[stream_key(*key)] = "is in none"
        elif max(stored.last_seq or 0 for stored in held[key].values()) < last_seq:
            missing[stream_key(*key)] = f"ends before {last_seq}"
    if missing:
        first = some_names([f"{name} {what}" for name, what in sorted(missing.items())], 10)
        reason = (
            f"the copies are incomplete, transfer them again: {len(missing)} streams of the stores are missing, {first}"
        )
        raise NatsFailure("incomplete", reason)


def _stored(server: str, copy: str) -> list[StoredStream]:
    root = Path(copy) / "jetstream"
    try:
        os.listdir(root)
        return stored_streams(copy)
    except OSError as error:
        raise NatsFailure("invalid_option", f"copies: {root} of {server} cannot be read: {error.strerror}") from error


def _replica(request: StoreBackupRequest, held: Mapping[str, StoredStream]) -> _Replica:
    server = best_replica(held)
    best = held[server]
    folders = {
        name: Path(request.copies[name]) / "jetstream" / best.account / "streams" / best.name for name in sorted(held)
    }
    others = {name: held[name] for name in folders if name != server}
    return _Replica(server, best, others, folders, folder_bytes(folders[server]))


def _elsewhere(replica: _Replica) -> tuple[Mapping[str, Any], ...]:
    """Return the consumers that exist only on other replicas, in the format of the API, each from the replica with the
    highest floor: a consumer may have fewer replicas than its stream. Raises NatsFailure damaged."""
    there = {path.parent.name for path in replica.folder.glob("obs/*/meta.inf")}
    found: dict[str, Mapping[str, Any]] = {}
    for name, stream in replica.folders.items():
        for path in sorted(stream.glob("obs/*/meta.inf")):
            consumer = path.parent.name
            if consumer in there or consumer.startswith("."):
                continue  # the consumer is being deleted
            info = {**_consumer(path.parent), "server": name}
            if consumer not in found or _floor(info) > _floor(found[consumer]):
                found[consumer] = info
    return tuple(found[consumer] for consumer in sorted(found))


def _floor(consumer: Mapping[str, Any]) -> int:
    return int(consumer["ack_floor"]["stream_seq"])


def _consumer(directory: Path) -> dict[str, Any]:
    """Parse the files of a consumer. Raises NatsFailure damaged."""
    state = directory / "o.dat"
    try:
        config = json.loads((directory / "meta.inf").read_bytes())
        positions = read_consumer_state(state.read_bytes() if state.exists() else b"")
    except (ArchiveError, OSError, ValueError) as error:
        raise NatsFailure("damaged", f"consumer {directory} cannot be read: {error}") from error
    return {
        "name": directory.name,
        "config": {key: value for key, value in config.items() if key not in ("Created", "Name")},
        "num_ack_pending": positions.pop("pending"),
        **positions,
    }


def _require_room(request: StoreBackupRequest, place: _Place, replicas: Sequence[_Replica]) -> None:
    """Raise NatsFailure disk_full unless there is room for all archives and, for one at a time, for each stream."""
    loaded = max((replica.size for replica in replicas), default=0) + SLACK
    saved = sum(replica.size for replica in replicas)
    local = request.store.local
    if local is None or nearest(local).stat().st_dev != nearest(place.directory).stat().st_dev:
        require_room(place.directory, loaded, "load the largest stream")
        loaded = 0
    if local is not None:
        require_room(local, loaded + saved, "load the largest stream and save all" if loaded else "save all streams")


# --- one stream ---------------------------------------------------------------------------------------------------------


def _row(
    request: StoreBackupRequest, place: _Place, replica: _Replica, report: Callable[[int], None], check_mode: bool
) -> dict[str, Any]:
    """Return the result for one stream."""
    stored = replica.stored
    row: dict[str, Any] = {
        "name": replica.label,
        "label": replica.label,
        "account": stored.account,
        "stream": stored.name,
        "server": replica.server,
        "others": {server: other.last_seq or 0 for server, other in replica.others.items()},
        "num_replicas": stored.num_replicas,
        "problem": "",
        "code": "",
    }
    try:
        return {**row, **_save(request, place, replica, report, check_mode)}
    except NatsFailure as failure:
        reported = {key: getattr(stored, key) for key in _REPORTED}
        nothing: dict[str, Any] = {
            "changed": False,
            "path": None,
            "reason": "",
            "digest": None,
            "consumers": [],
            "caveats": [],
        }
        return {**row, **reported, **nothing, "diff": {}, "problem": failure.description, "code": failure.code}


def _save(
    request: StoreBackupRequest, place: _Place, replica: _Replica, report: Callable[[int], None], check_mode: bool
) -> dict[str, Any]:
    """Return the row of a stream that was backed up, or would be. Raises NatsFailure."""
    stored = replica.stored
    with _loaded(place, replica) as (client, work):
        api = _LoadedApi(client, replica)
        info = api.find_stream(stored.name)
        if info is None:
            raise NatsFailure("damaged", f"{replica.folder} is not loaded:{_complaints(work)}")
        missing = _missing(stored, info["state"])
        if missing and not matches(stored.account, stored.name, request.damaged):
            reason = f"{replica.folder} was loaded only partly: {missing}.{_complaints(work)}"
            raise NatsFailure("damaged", f"{reason}\nList it in `damaged` to save the loaded part")
        crashed = stored.messages is None
        count, witness = _undeleted(request, replica, api, info["state"]) if crashed else (0, "")
        back = f"it has {count} deleted messages again, according to the store of {witness}" if count else ""
        if back and not matches(stored.account, stored.name, request.undeleted):
            reason = f"{replica.folder} belongs to a server that did not stop cleanly: {back}"
            raise NatsFailure("undeleted", f"{reason}.\nUse the copy of another server, or list it in `undeleted`")
        consumers = [
            {"name": row["name"], "ack_floor": position(row), "server": row.get("server", replica.server)}
            for row in api.consumers(stored.name).rows
        ]
        target = request.store.below(folder(stored.account))
        one = StreamBackupRequest(stored.name, target, request.level, request.pace, report=report, crashed=crashed)
        result = back_up(client, api, one, check_mode)
    contents = (result["backup"] or {}).get("contents") or {}
    return {
        **{key: info["state"][key] for key in _REPORTED},
        "consumers": sorted(consumers, key=lambda row: str(row["name"])),
        "digest": contents.get("digest"),
        "caveats": [*result["caveats"], *_caveats(stored, missing, back)],
        **{key: result[key] for key in ("changed", "path", "reason", "diff")},
    }


def _missing(stored: StoredStream, state: Mapping[str, Any]) -> str:
    """Return the differences between the loaded stream and its files; empty if the stream is complete."""
    keys = _REPORTED if stored.messages else ("messages", "last_seq")  # an empty stream has no first message
    reported = {key: getattr(stored, key) for key in keys}
    return ", ".join(
        f"{key} is {state[key]} instead of {value}"
        for key, value in reported.items()
        if value is not None and value != state[key]
    )


def _undeleted(
    request: StoreBackupRequest, replica: _Replica, api: JetStreamApi, state: Mapping[str, Any]
) -> tuple[int, str]:
    """Return the number of loaded messages that another store shows as deleted, and the server of that store."""
    stored = replica.stored
    stores = [(replica.server, stored), *replica.others.items()]
    stores += [
        ("a server listed in `held`", StoredStream(**item))
        for item in request.held
        if (item["account"], item["name"]) == (stored.account, stored.name)
    ]
    deleted = api.deleted_sequences(stored.name) if state.get("num_deleted") else []
    return undeleted(state["first_seq"], state["last_seq"], deleted, stores)


def _caveats(stored: StoredStream, missing: str, back: str) -> list[str]:
    found = [f"it is incomplete: {missing}"] if missing else []
    if back:
        found.append(back)
    elif stored.messages is None:
        found.append(
            "its server did not stop cleanly: messages deleted just before may reappear, and floors may be lower"
        )
    return found


@contextlib.contextmanager
def _loaded(place: _Place, replica: _Replica) -> Iterator[tuple[Client, Path]]:
    """Yield a server that has loaded one stream, and the directory, which is removed with the server. Raises
    NatsFailure."""
    with staged_directory(place.directory, "load") as work:
        target = work / "store" / "jetstream" / ACCOUNT / "streams" / replica.stored.name
        try:
            with written(work):
                _copy(replica.folder, target)
            load_alone(str(work / "store"))
        except StoreError as error:
            reason = str(error).replace(str(target), str(replica.folder))
            raise NatsFailure("damaged", reason) from error
        store_bytes = 2 * replica.size + SLACK
        with throwaway_server(place.binary, work, {}, store_bytes) as connection, Client(connection) as client:
            yield client, work


def _copy(folder: Path, target: Path) -> None:
    try:
        shutil.copytree(folder, target)
    except shutil.Error as error:  # an OSError without a reason
        why = "; ".join(reason for _source, _target, reason in error.args[0])
        raise NatsFailure("write_failed", f"{folder} cannot be copied to {target}: {why}") from error


def _complaints(work: Path) -> str:
    """Return the last warnings and errors in the server's log."""
    lines = (work / "server.log").read_text(encoding="utf-8", errors="replace").splitlines()
    found = [line[:300] for line in lines if "[ERR]" in line or "[WRN]" in line][-_LOG_LINES:]
    return "".join(f"\n  {line}" for line in found or ["(the server's log has no errors)"])


class _LoadedApi(JetStreamApi):
    """The API of a server that has loaded a stream in isolation; it shows the stream as it was."""

    def __init__(self, client: Client, replica: _Replica) -> None:
        super().__init__(client, replica.stored.account)
        self._elsewhere = _elsewhere(replica)
        document = json.loads((replica.folder / "meta.inf").read_bytes())
        self._config = {key: value for key, value in document.items() if key != "Created"}

    def stream(self, name: str) -> dict[str, Any]:
        return {**super().stream(name), "config": self._config}

    def consumers(self, stream: str) -> Listing:
        listing = super().consumers(stream)
        return Listing((*listing.rows, *self._elsewhere), listing.unknown)

    def _snapshot_started(self, reply: dict[str, Any]) -> dict[str, Any]:
        # A restore sends the configuration of the manifest, which replaces the one in the archive.
        return {**super()._snapshot_started(reply), "config": self._config}


# --- Output
# --------------------------------------------------------------------------------------------------------------


def _page(request: StoreBackupRequest, rows: Sequence[Mapping[str, Any]], planned: bool) -> Page:
    shown = [
        (
            row["name"],
            row["server"],
            ", ".join(f"{server} {last}" for server, last in row["others"].items()),
            row["messages"] if row["messages"] is not None else "",
            row["last_seq"] if row["last_seq"] is not None else "",
            len(row["consumers"]),
            _what(row, planned),
        )
        for row in rows
    ]
    title = f"{'To be saved' if planned else 'Saved'} from {len(request.copies)} copies to {request.store.place()}"
    columns = ("Stream", "From", "Others to", "Messages", "Last", "Consumers", "Result")
    total = (f"{len(rows):,} streams", "", "", sum(row["messages"] or 0 for row in rows), "", "", "")
    worst = {place for place, row in enumerate(rows) if row["problem"] or row["caveats"]}
    return table_page(title, columns, shown, [total] if len(rows) > 1 else (), worst)


def _what(row: Mapping[str, Any], planned: bool) -> str:
    if row["problem"]:
        return str(row["problem"]).partition("\n")[0]
    if not row["changed"]:
        return "has already been saved"
    return str(row["caveats"][0]) if row["caveats"] else "would be saved" if planned else "saved"
