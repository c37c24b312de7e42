# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the content of an archive and verifies that the archive is complete, without a server.

Both formats give the same digest for the same messages, so a stream can be compared with its copy on a different server
version."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Optional

from .. import shapes
from ..host.highway import highwayhash64
from ..host.s2 import ArchiveError, PlainReader
from .archive import (
    ENTRIES,
    MAGIC,
    STATE_HEAD,
    TAR,
    ArchivedMessage,
    ArchiveEntry,
    ArchiveMember,
    BlockIndex,
    Index,
    detect_format,
    includes,
    index_of_blocks,
    members,
    read_block_index,
    read_consumer_state,
    read_entry,
    read_index,
    records,
)

#: The last entry of an archive that a server before 2.15 could not read completely (server/filestore.go errFile).
ERRORS = "errors.txt"
#: The number of a block, 32 bits (server/filestore.go blkScan).
_BLOCK = re.compile(r"[0-9]{1,10}")
#: Maximum bytes of all configurations of an archive, because they are kept in memory.
_LARGEST_CONFIGURATIONS = 256 << 20
#: Number of bytes read at once.
_PIECE = 1 << 20

Config = dict[str, Any]


@dataclass(frozen=True)
class ArchivedConsumer:
    """A consumer as stored in the archive. `pending`: messages that were delivered, but neither acknowledged nor given
    up."""

    name: str
    config: Config
    delivered: dict[str, int]
    ack_floor: dict[str, int]
    pending: int


@dataclass(frozen=True)
class ArchiveContents:
    """The content of an archive.

    `messages`, `bytes` (as counted for a stream on disk) and `digest` (SHA-256 over sequence, time, subject, headers
    and body of each message) describe the messages read; `first_seq` and `last_seq` are the stream's. `exact`: False if
    a server must detect during the restore which messages were removed while the archive was written. `config` and
    `created`: None from 2.15 on, because those archives do not contain them. `largest`: bytes of the largest message
    with its headers. `consumers_at`: the range of the plain bytes that contains the consumers, None if there are none.
    """

    format: str
    messages: int
    bytes: int
    largest: int
    first_seq: int
    last_seq: int
    digest: str
    consumers: tuple[ArchivedConsumer, ...]
    consumers_at: Optional[tuple[int, Optional[int]]]
    exact: bool = True
    config: Optional[Config] = None
    created: Optional[str] = None

    def as_dict(self) -> dict[str, Any]:
        """Return the part for a manifest, in which consumers and configuration are stored separately."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "largest": self.largest,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "digest": self.digest,
            "exact": self.exact,
        }


def sha256_of(file: BinaryIO) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    while True:
        piece = file.read(_PIECE)
        if not piece:
            return digest.hexdigest()
        digest.update(piece)


def read_contents(
    opened: Callable[[], AbstractContextManager[BinaryIO]], record_checksums: bool = False
) -> ArchiveContents:
    """Return the content of an archive, which may be opened twice. Raises ArchiveError for an incomplete archive.

    The checksum of each chunk is always verified. `record_checksums`: also verify the checksum that a server before
    2.15 stored with each message, which reveals damage on its disk before the backup; this check processes 3 MB per
    second.
    """
    with opened() as file:
        reader = PlainReader(file)
        kind, start = detect_format(reader)
        if kind == ENTRIES:
            return _read_entries(reader)
        tar = _Tar(record_checksums)
        tar.read(reader, start)
    dead = tar.removed_later()
    if dead is not None:
        with opened() as file:
            again = PlainReader(file)
            tar.count(again, detect_format(again)[1], dead)
    return tar.contents()


class _Digest:
    """Counts and digests messages in the order of their sequences."""

    _numbers = struct.Struct("<QqIII")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.messages = self.bytes = self.largest = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, message: ArchivedMessage) -> None:
        if self.last is not None and message.sequence <= self.last:
            raise ArchiveError(f"message {message.sequence} comes after message {self.last}")
        if self.first is None:
            self.first = message.sequence
        self.last = message.sequence
        self.messages += 1
        self.bytes += message.size
        self.largest = max(self.largest, len(message.headers) + len(message.body))
        subject, headers, body = message.subject, message.headers, message.body
        numbers = self._numbers.pack(message.sequence, message.time, len(subject), len(headers), len(body))
        self._hash.update(b"".join((numbers, subject, headers, body)))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


# --- 2.15 ---------------------------------------------------------------------------------------------------------------


def read_head(reader: PlainReader) -> tuple[dict[str, Any], list[tuple[ArchiveEntry, ArchivedConsumer]]]:
    """Return the state and the consumers with which an archive of 2.15 begins, after its magic. Raises ArchiveError."""
    entry = read_entry(reader)
    state = _json(entry.payload, "state.json") if entry.name == b"state.json" else None
    if state is None:
        raise ArchiveError("it does not begin with state.json")
    found = []
    for _consumer in range(_number(state, "consumer_count")):
        entry = read_entry(reader)
        if not entry.name.startswith(b"consumers/"):
            raise ArchiveError(f"a consumer is missing: found {entry.name!r} instead")
        name = entry.name[len(b"consumers/") :].decode(errors="replace")
        document = _json(entry.payload, name)
        if not isinstance(document.get("config"), dict) or not isinstance(document.get("state"), dict):
            raise ArchiveError(f"consumer {name} has no configuration or no state")
        pairs = document["state"]
        delivered, ack_floor = (_pair(pairs, key, name) for key in ("delivered", "ack_floor"))
        pending = pairs.get("pending") or {}
        if not isinstance(pending, dict):
            raise ArchiveError(f"consumer {name} has no list of pending messages")
        found.append((entry, ArchivedConsumer(name, document["config"], delivered, ack_floor, len(pending))))
    return state, found


def entry_messages(file: BinaryIO) -> Iterator[ArchivedMessage]:
    """Yield the messages of an archive of 2.15, whose structure is verified elsewhere. Raises ArchiveError."""
    reader = PlainReader(file)
    detect_format(reader)
    read_head(reader)
    while True:
        entry = read_entry(reader)
        if entry.ends:
            return
        yield entry.message


def _read_entries(reader: PlainReader) -> ArchiveContents:
    state, consumers = read_head(reader)
    head_ends = reader.position
    first, last = _number(state, "first_seq"), _number(state, "last_seq")
    digest = _Digest()
    while True:
        entry = read_entry(reader)
        if entry.ends:
            break
        if not entry.sequence:
            raise ArchiveError(f"found {entry.name!r} instead of a message")
        if not first <= entry.sequence <= last:
            raise ArchiveError(f"message {entry.sequence} is outside the stream's range {first} to {last}")
        digest.add(entry.message)
    reader.end()
    # A lower number of messages is valid: messages removed while the archive was being written are missing.
    announced = _number(state, "messages")
    if digest.messages > announced:
        raise ArchiveError(f"it has {digest.messages} messages but announces {announced}")
    return ArchiveContents(
        ENTRIES,
        digest.messages,
        digest.bytes,
        digest.largest,
        first,
        last,
        digest.digest,
        tuple(consumer for _entry, consumer in consumers),
        (len(MAGIC), head_ends),
    )


def _pair(state: dict[str, Any], key: str, consumer: str) -> dict[str, int]:
    pair = state.get(key) or {}
    if not isinstance(pair, dict):
        raise ArchiveError(f"consumer {consumer} has no valid position in {key}")
    return {number: _number(pair, number, f"consumer {consumer}") for number in ("consumer_seq", "stream_seq")}


def _number(document: dict[str, Any], key: str, name: str = "state.json") -> int:
    value = document.get(key, 0)
    if not shapes.count(value):
        raise ArchiveError(f"{name} has no number in {key}")
    return int(value)


def _json(data: bytes, name: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ArchiveError(f"{name} is not a JSON object")
    return document


# --- up to 2.14 ---------------------------------------------------------------------------------------------------------


@dataclass
class _Dead:
    """The records that are no longer messages, according to the index or, if the index is not valid, to the tombstones."""

    index: Optional[Index]
    tombstones: array[int]

    def covers(self, block: int, sequence: int) -> bool:
        if self.index is not None:
            # A block that is not in the index was removed.
            first = self.index.firsts.get(block)
            removed = self.index.removed.get(block)
            return first is None or sequence < first or (removed is not None and includes(removed, sequence))
        return includes(self.tombstones, sequence)


@dataclass
class _Tar:
    """Reads one archive of a server up to 2.14."""

    record_checksums: bool
    meta: dict[str, bytes] = field(default_factory=dict)
    meta_bytes: int = 0
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    tombstones: array[int] = field(default_factory=lambda: array("Q"))
    block_indexes: dict[int, BlockIndex] = field(default_factory=dict)
    rebuilt: bool = False
    index: Optional[Index] = None
    last: int = 0
    checksum: bytes = b""
    consumers_at: int = 0
    digest: _Digest = field(default_factory=_Digest)

    def read(self, reader: PlainReader, start: bytes) -> None:
        """Read the complete archive, and count every message that was not removed within its block."""
        for member in members(reader, start):
            block = _block_number(member.name)
            if member.name == ERRORS:
                reason = member.content().decode(errors="replace")
                raise ArchiveError(f"the server could not read the complete stream: {reason}")
            if self.consumers_at and not member.name.startswith("obs/"):
                raise ArchiveError(f"{member.name} comes after the consumers")
            if block is not None:
                self._require_meta()
                if self.blocks and block <= self.blocks[-1][0]:
                    raise ArchiveError(f"{member.name} comes after {self.blocks[-1][0]}.blk")
                self._read_block(member, block)
            elif member.name == "msgs/index.db":
                self.index = read_index(member)
            elif (indexed := _block_number(member.name, ".idx")) is not None and indexed not in self.block_indexes:
                self.block_indexes[indexed] = read_block_index(member)
            elif _block_number(member.name, ".fss") is not None:
                # The subjects of a block, which can be derived from the block itself.
                member.content()
            elif member.name in self.meta or not _is_meta(member.name):
                raise ArchiveError(f"{member.name!r} does not belong in a stream archive")
            else:
                if member.name.startswith("obs/"):
                    self.consumers_at = self.consumers_at or member.start
                content = member.content()
                # The consumer's pending messages (there may be a million) are not read.
                self.meta[member.name] = content[:STATE_HEAD] if member.name.endswith("/o.dat") else content
                self.meta_bytes += len(self.meta[member.name])
                if self.meta_bytes > _LARGEST_CONFIGURATIONS:
                    raise ArchiveError(f"its configurations exceed {_LARGEST_CONFIGURATIONS} bytes")
        self._require_meta()
        if self.block_indexes and self.index is None:
            if list(self.block_indexes) != [number for number, _first, _last in self.blocks]:
                raise ArchiveError("its blocks do not match its indexes")
            self.index = index_of_blocks(self.block_indexes)

    def _require_meta(self) -> None:
        if not {"meta.inf", "meta.sum"} <= set(self.meta):
            raise ArchiveError("it does not begin with the stream's configuration (meta.inf, meta.sum)")

    def _read_block(self, member: ArchiveMember, block: int) -> None:
        first, before = None, self.digest.messages
        key = hashlib.sha256(f"{self.config['name']}-{block}".encode()).digest() if self.record_checksums else None
        for record in records(member):
            if key is not None and highwayhash64(key, b"".join(record.hashed)) != record.checksum:
                raise ArchiveError(f"{member.name}: the checksum of message {record.message.sequence} is wrong")
            self.last = max(self.last, record.message.sequence)
            self.checksum = record.checksum
            if record.tombstone:
                self.tombstones.append(record.message.sequence)
            elif not record.dead:
                first = record.message.sequence if first is None else first
                self.digest.add(record.message)
        self.blocks.append((block, first or 0, self.last))
        self._require_true_block_index(block, first, self.digest.messages - before)

    def _require_true_block_index(self, block: int, first: int | None, messages: int) -> None:
        """Replace the index of a block if a server would rebuild it, because the block does not end with the record
        that the index names (its last message was erased)."""
        index = self.block_indexes.get(block)
        if index is not None and messages and index.checksum != self.checksum:
            self.block_indexes[block] = BlockIndex(messages, first or 0, self.last, array("Q"), self.checksum)
            self.rebuilt = True

    @property
    def config(self) -> dict[str, Any]:
        config = _json(self.meta["meta.inf"], "meta.inf")
        if not isinstance(config.get("name"), str):
            raise ArchiveError("meta.inf has no stream name")
        return config

    def removed_later(self) -> Optional[_Dead]:
        """Return the messages to omit in a second reading, or None if the first reading was correct."""
        self._require_true_index()
        dead = _Dead(self.index, array("Q", sorted(self.tombstones)))
        if self.index is not None:
            # If both numbers are equal, nothing was removed: the remaining messages are a part of those counted.
            return None if self.digest.messages == self.index.messages else dead
        return dead if self.tombstones else None

    def _require_true_index(self) -> None:
        """Discard an index that a server would reject, because the last block ends after or before the record that the
        index names."""
        index = self.index
        known = bool(self.blocks) and index is not None and index.last_block == self.blocks[-1][0]
        if index is not None and self.blocks and not (known and index.last_checksum == self.checksum):
            self.index = None

    def count(self, reader: PlainReader, start: bytes, dead: _Dead) -> None:
        """Read the archive again and count the remaining messages."""
        self.digest = _Digest()
        for member in members(reader, start):
            block = _block_number(member.name)
            if block is None:
                member.reader.take(member.size)
                continue
            for record in records(member):
                if not record.dead and not dead.covers(block, record.message.sequence):
                    self.digest.add(record.message)

    def contents(self) -> ArchiveContents:
        stream = self._checked("meta.inf", "meta.sum", self.config["name"])
        if self.index is not None:
            first, last = self.index.first_seq, self.index.last_seq
            if self.digest.messages != self.index.messages:
                raise ArchiveError(f"it has {self.digest.messages} messages, but its index has {self.index.messages}")
        else:
            last = max(self.last, self.digest.last or 0)
            first = self.digest.first or last + 1
        created = stream.pop("Created", None)
        return ArchiveContents(
            TAR,
            self.digest.messages,
            self.digest.bytes,
            self.digest.largest,
            first,
            last,
            self.digest.digest,
            tuple(self._consumers(stream["name"])),
            (self.consumers_at, None) if self.consumers_at else None,
            self.index is not None and not self.rebuilt,
            stream,
            created,
        )

    def _consumers(self, stream: str) -> Iterator[ArchivedConsumer]:
        for name in sorted({name.split("/")[1] for name in self.meta if name.startswith("obs/")}):
            folder = f"obs/{name}"
            if not {f"{folder}/{file}" for file in ("meta.inf", "meta.sum", "o.dat")} <= set(self.meta):
                raise ArchiveError(f"consumer {name} is incomplete")
            config = self._checked(f"{folder}/meta.inf", f"{folder}/meta.sum", f"{stream}/{name}")
            # These keys belong to the file, not to the consumer's configuration.
            config = {key: value for key, value in config.items() if key not in ("Created", "Name")}
            state = read_consumer_state(self.meta[f"{folder}/o.dat"])
            yield ArchivedConsumer(name, config, state["delivered"], state["ack_floor"], state["pending"])

    def _checked(self, name: str, checksum: str, hashed_by: str) -> dict[str, Any]:
        """Return a configuration after verifying its checksum (server/filestore.go writeStreamMeta; consumers:
        writeConsumerMeta)."""
        wanted = highwayhash64(hashlib.sha256(hashed_by.encode()).digest(), self.meta[name]).hex().encode()
        if wanted != self.meta[checksum]:
            raise ArchiveError(f"{name}: the checksum is wrong")
        return _json(self.meta[name], name)


def _block_number(name: str, ending: str = ".blk") -> int | None:
    number = name[len("msgs/") : -len(ending)]
    return int(number) if name == f"msgs/{number}{ending}" and _BLOCK.fullmatch(number) else None


def _is_meta(name: str) -> bool:
    parts = name.split("/")
    return name in ("meta.inf", "meta.sum") or (
        len(parts) == 3 and parts[0] == "obs" and parts[2] in ("meta.inf", "meta.sum", "o.dat")
    )
