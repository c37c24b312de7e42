# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of a nats-server's store, read from its files without a server.

Only the files needed for each stream's last sequence are read: its configuration (`meta.inf`), the head of its index
(`index.db`), and the record headers of its last blocks. Sources: server/filestore.go (readIndexInfo, writeFullState,
msgHeader). An encrypted store reveals only the names.
"""

from __future__ import annotations

import json
import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .s2 import ArchiveError, decode_block

#: A rescue renames a store's `jetstream` directory to this, to make room for a new one.
ASIDE = "jetstream.rescued"
#: The first byte of index.db.
_MAGIC = 11
#: Total length, sequence, timestamp, length of the subject.
_RECORD = struct.Struct("<IQqH")
_HAS_HEADERS = 1 << 31
#: Bits of a sequence number that mark the record as erased, or the sequence as deleted.
_FLAGS = (1 << 63) | (1 << 62)
_SMALLEST, _LARGEST = 30, 32 << 20
#: Maximum number of Raft groups of a store that are compared with those of the cluster.
_SAMPLES = 50
#: Number of bytes of index.db to read: the part before the map of subjects.
_INDEX_HEAD = 80
#: The cluster of a stream's group in an assignment in the meta group's log (jetstream_cluster.go raftGroup).
_ASSIGNED = re.compile(rb'"group":\{"name":"[^"]*","peers":\[[^]]*\],"store":[^,]+,"cluster":"([^"\\]+)"')
#: The first bytes of a compressed block; only full blocks may be compressed.
_COMPRESSED = b"cmp"


@dataclass(frozen=True)
class StoredStream:
    """A stream on a disk. If the files cannot be read, for example because they are encrypted, `num_replicas` is 0 and
    the other values are None. `messages` is also None if the index is not up to date, as after a crash."""

    account: str
    name: str
    num_replicas: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    messages: int | None = None
    encrypted: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the stream as the module returns it."""
        return asdict(self)


@dataclass(frozen=True)
class StoreOwner:
    """The server to which a store belongs: how many streams it has of each account (`accounts`), the members of its
    meta group (`peers`: their Raft IDs, None for the store of a standalone server, empty if the list cannot be read),
    and the `system_accounts` that contain a meta group. `index_format`: the newest format of the index.db files, 0 if
    there are none, as before 2.10. `clusters`: the clusters to which the meta group has assigned streams, empty if
    unknown. `groups`: some of its Raft groups of streams and consumers, whose names are unique."""

    accounts: Mapping[str, int] = field(default_factory=dict)
    peers: Sequence[str] | None = None
    system_accounts: Sequence[str] = ()
    index_format: int = 0
    clusters: Sequence[str] = ()
    groups: Sequence[str] = ()

    @property
    def streams(self) -> int:
        """Return the number of streams in the store."""
        return sum(self.accounts.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the owner as the module returns it."""
        peers = None if self.peers is None else list(self.peers)
        return {
            "streams": self.streams,
            "accounts": dict(self.accounts),
            "peers": peers,
            "system_accounts": list(self.system_accounts),
            "index_format": self.index_format,
            "clusters": list(self.clusters),
            "groups": list(self.groups),
        }


def store_owner(store_dir: str) -> StoreOwner:
    """Return the owner of the store below `store_dir`. Raises OSError if the store cannot be read."""
    root = Path(store_dir) / "jetstream"
    streams, logs = list(_stream_folders(root)), _raft_logs(root)
    accounts = Counter(account for account, _folder in streams)
    groups = [log.name for log in logs if log.name != "_meta_"]
    meta = [log for log in logs if log.name == "_meta_"]
    owners = [group.parent.parent.name for group in meta]
    clusters = sorted({name for group in meta for name in _clusters(group)})
    peers = _peers(meta[0] / "peers.idx") if meta else None
    newest = _newest_format([*logs, *(folder for _account, folder in streams)])
    return StoreOwner(accounts, peers, owners, newest, clusters, groups[:: len(groups) // _SAMPLES + 1])


def _clusters(group: Path) -> Iterator[str]:
    """Yield the clusters in the stream assignments of a meta group, from its log and its snapshot (raft.go
    encodeSnapshot)."""
    for _number, block in _blocks(group / "msgs"):
        yield from map(_name, _ASSIGNED.findall(block.read_bytes()))
    for path in (group / "snapshots").glob("snap.*"):
        data = path.read_bytes()
        begin = 20 + int.from_bytes(data[16:20], "little")
        # The snapshot may be encrypted.
        with suppress(ArchiveError):
            yield from map(_name, _ASSIGNED.findall(decode_block(data[begin:-8])))


def _name(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def index_format(store_dir: str) -> int:
    """Return the newest format of the index.db files of streams and Raft logs below `store_dir`, 0 if there are none.
    The format of an encrypted file is unknown and counts as 1."""
    root = Path(store_dir) / "jetstream"
    return _newest_format([*_raft_logs(root), *(folder for _account, folder in _stream_folders(root))])


def _raft_logs(root: Path) -> list[Path]:
    """Return the directory of each Raft group, including the meta group."""
    return [folder for account in _folders(root) for folder in _folders(account / "_js_")]


def _newest_format(folders: Iterable[Path]) -> int:
    return max(map(_format, folders), default=0)


def _format(folder: Path) -> int:
    try:
        with (folder / "msgs" / "index.db").open("rb") as file:
            head = file.read(2)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    plain = len(head) == 2 and head[0] == _MAGIC and not (folder / "meta.key").exists()
    return head[1] if plain else 1


def _peers(path: Path) -> list[str]:
    """Return the Raft IDs of a group's members (server/raft.go encodePeerState); empty if the file cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    count = int.from_bytes(data[4:8], "little")
    ids = [data[8 + 8 * number : 16 + 8 * number] for number in range(min(count, len(data) // 8))]
    return [one.decode("ascii") for one in ids if len(one) == 8 and one.isalnum()] if count == len(ids) else []


def stored_streams(store_dir: str) -> list[StoredStream]:
    """Return the streams below `store_dir`, as configured for nats-server. Raises OSError if the store cannot be read;
    returns an empty list if the directory does not exist."""
    return [_stream(account, folder) for account, folder in _stream_folders(Path(store_dir) / "jetstream")]


def _stream_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the account and the directory of each stream."""
    for account in _folders(root):
        for folder in _folders(account / "streams"):
            # A name with a dot marks a stream that is being deleted; a stream without a configuration was never
            # created.
            if not folder.name.startswith(".") and (folder / "meta.inf").exists():
                yield account.name, folder


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(item for item in path.iterdir() if item.is_dir())
    except FileNotFoundError:
        return []


def _stream(account: str, folder: Path) -> StoredStream:
    if (folder / "meta.key").exists():
        return StoredStream(account, folder.name, encrypted=True)
    try:
        config = json.loads((folder / "meta.inf").read_bytes())
    except ValueError:
        return StoredStream(account, folder.name)
    messages, first, last = _index(folder / "msgs" / "index.db")
    blocks = sorted(_blocks(folder / "msgs"), reverse=True)
    for _number, path in blocks:
        sequences = list(_sequences(path))
        if sequences:
            # The index is written every two minutes and when the server stops, so after a crash it is older than the
            # blocks.
            last = max(last or 0, *sequences)
            break
    if messages is not None and any(
        _changed(path) > _changed(folder / "msgs" / "index.db") for _number, path in blocks
    ):
        messages = None
    if first is None and blocks:
        first = next(_sequences(blocks[-1][1]), None)
    return StoredStream(account, folder.name, int(config.get("num_replicas") or 1), first, last, messages)


def best_replica(held: Mapping[str, StoredStream]) -> str:
    """Return the server whose disk has the highest sequence; among equals, one that stopped cleanly, then the one with
    the most messages."""

    def holds(server: str) -> tuple[int, int]:
        stored = held[server]
        return stored.last_seq or 0, -1 if stored.messages is None else stored.messages

    return max(sorted(held), key=holds)


def undeleted(
    first_seq: int, last_seq: int, deleted: Iterable[int], stores: Iterable[tuple[str, StoredStream]]
) -> tuple[int, str]:
    """Return how many deleted messages a server has loaded again, and the store that proves it; 0 if there are none.

    A crash loses deletions that have not been written to disk: up to 2.14 a purge that keeps messages changes no block,
    and the index follows within two minutes (observed on 2.10.27: after a purge of 500 messages to 100 and a kill -9,
    500 were loaded). The first sequence of a stream never decreases, so every index, however old, proves which messages
    were deleted. `deleted`: sequences that are loaded as deleted.
    """
    gaps = sorted(deleted)

    def loaded_to(seq: int) -> int:
        return max(0, min(seq, last_seq) - first_seq + 1 - bisect_right(gaps, seq))

    most = (0, "")
    for server, stored in stores:
        if stored.first_seq is None:
            continue
        surplus = loaded_to(stored.first_seq - 1)
        if stored.messages is not None and (stored.last_seq or 0) <= last_seq:
            surplus = max(surplus, loaded_to(stored.last_seq or 0) - stored.messages)
        if surplus > most[0]:
            most = surplus, server
    return most


def _blocks(folder: Path) -> Iterator[tuple[int, Path]]:
    if folder.is_dir():
        for path in folder.glob("*.blk"):
            if path.stem.isdigit():
                yield int(path.stem), path


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


def _index(path: Path) -> tuple[int | None, int | None, int | None]:
    """Return the number of messages, the first and the last sequence in index.db, or None if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_INDEX_HEAD)
    except FileNotFoundError:
        return None, None, None
    try:
        if head[0] != _MAGIC or not head[1]:
            return None, None, None
        # number of messages, bytes, first sequence, first timestamp (signed, not used), last sequence
        at = 2
        values = []
        for _value in range(5):
            value, at = _uvarint(head, at)
            values.append(value)
    except IndexError:
        return None, None, None
    return values[0], values[2], values[4]


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at this position, and the position after it. Raises IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _sequences(path: Path) -> Iterator[int]:
    """Yield the sequence of each record of a block, up to the first incomplete record."""
    size = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        if file.read(len(_COMPRESSED)) == _COMPRESSED:
            return
        while at + _RECORD.size <= size:
            file.seek(at)
            length, sequence, _time, _subject = _RECORD.unpack(file.read(_RECORD.size))
            length &= ~_HAS_HEADERS
            if not _SMALLEST <= length <= _LARGEST or at + length > size:
                return
            if sequence & ~_FLAGS:
                yield sequence & ~_FLAGS
            at += length
