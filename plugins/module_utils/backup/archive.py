# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two formats of a stream's archive, each read from start to end with bounded memory. Pure.

`tar` (up to 2.14): meta.inf, meta.sum, msgs/N.blk, msgs/index.db, obs/<consumer>/{meta.inf,meta.sum,o.dat}; the blocks
are the same as on disk, but never encrypted or compressed (server/filestore.go streamSnapshot). Before 2.10, each block
has msgs/N.idx and msgs/N.fss, and there is no msgs/index.db. `entries` (2.15): state.json, consumers/<consumer>, one
entry for each message, and a last entry without a name or numbers (server/stream_backup.go, server/archive/archive.go).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..host.s2 import ArchiveError, PlainReader, read_uvarint

TAR, ENTRIES = "tar", "entries"
MAGIC = b"NATSARC1"

#: The longest name of an entry that servers accept (server/archive/archive.go).
_LONGEST_NAME = 1 << 20
#: The largest configurable payload of a server (server/const.go MAX_PAYLOAD_MAX_SIZE), with room for headers.
LARGEST_MESSAGE = 72 << 20
_LARGEST_META = 64 << 20
#: Bytes of an extended tar header, which contains the name and size of one member.
_LARGEST_PAX = 1 << 20
_WINDOW = 64 << 10
_TAR_BLOCK = 512
#: The end of a tar archive.
TAR_END = bytes(2 * _TAR_BLOCK)

#: A record of a block: length, sequence, time and length of the subject, with a hash at the end (server/filestore.go
#: msgHdrSize).
_RECORD = struct.Struct("<IQqH")
_RECORD_HASH = 8
_HAS_HEADERS, ERASED, TOMBSTONE = 1 << 31, 1 << 63, 1 << 62
_LARGEST_RECORD = LARGEST_MESSAGE + (1 << 16)


@dataclass(frozen=True)
class ArchivedMessage:
    """One message: sequence, time in nanoseconds, subject, headers as they are on the wire, body."""

    sequence: int
    time: int
    subject: bytes
    headers: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Return the number of bytes by which the message counts in a stream (fileStoreMsgSize)."""
        headers = 4 + len(self.headers) if self.headers else 0
        return _RECORD.size + len(self.subject) + headers + len(self.body) + _RECORD_HASH


def detect_format(reader: PlainReader) -> tuple[str, bytes]:
    """Return the format of an archive and the bytes read to detect it. Raises ArchiveError for an unknown format."""
    start = reader.take(len(MAGIC))
    return (ENTRIES if start == MAGIC else TAR), start


# --- the format of 2.15 -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArchiveEntry:
    """One entry. `split`: how many bytes of the payload are headers."""

    name: bytes
    time: int
    sequence: int
    split: int
    payload: bytes

    @property
    def ends(self) -> bool:
        """Return whether this entry ends the archive."""
        return not (self.name or self.time or self.sequence or self.payload)

    @property
    def message(self) -> ArchivedMessage:
        return ArchivedMessage(
            self.sequence, self.time, self.name, self.payload[: self.split], self.payload[self.split :]
        )


def read_entry(reader: PlainReader) -> ArchiveEntry:
    """Return the next entry. Raises ArchiveError."""
    length, zigzag, sequence = reader.uvarint(), reader.uvarint(), reader.uvarint()
    split, body = reader.uvarint(), reader.uvarint()
    if length > _LONGEST_NAME or split + body > LARGEST_MESSAGE:
        raise ArchiveError("an entry is larger than any that a server writes")
    name = reader.take(length)
    return ArchiveEntry(name, (zigzag >> 1) ^ -(zigzag & 1), sequence, split, reader.take(split + body))


def encode_entry(name: bytes, time: int, payload: bytes) -> bytes:
    """Return an entry other than a message, encoded for an archive."""
    zigzag = (time << 1) ^ (time >> 63)
    numbers = (len(name), zigzag & 0xFFFFFFFFFFFFFFFF, 0, 0, len(payload))
    return b"".join(map(_uvarint, numbers)) + name + payload


def _uvarint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append((value & 0x7F) | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


# --- the format up to 2.14 ----------------------------------------------------------------------------------------------


@dataclass
class ArchiveMember:
    """A file of the tar, which must be read before the next file. `start`: the position in the tar at which its headers
    begin."""

    start: int
    name: str
    size: int
    reader: PlainReader

    def content(self) -> bytes:
        if self.size > _LARGEST_META:
            raise ArchiveError(f"{self.name} has {self.size} bytes")
        return self.reader.take(self.size)


def members(reader: PlainReader, start: bytes) -> Iterator[ArchiveMember]:
    """Yield the files of a tar whose first bytes have already been read. Raises ArchiveError, also if data follows the
    end of the archive."""
    extended: dict[str, str] = {}
    began = 0
    while True:
        began = began if extended else reader.position - len(start)
        header = start + reader.take(_TAR_BLOCK - len(start))
        start = b""
        if not any(header):
            if any(reader.take(_TAR_BLOCK)):
                raise ArchiveError("the tar has data after its end marker")
            reader.end()
            return
        size, kind = _tar_number(header[124:136]), header[156:157]
        if sum(header[:148]) + 8 * 0x20 + sum(header[156:]) != _tar_number(header[148:156]):
            raise ArchiveError("the checksum of a tar header is wrong")
        if kind == b"x":
            if size > _LARGEST_PAX:
                raise ArchiveError(f"an extended tar header has {size} bytes")
            extended = _pax(reader.take(size))
        elif kind in (b"0", b"\0"):
            name = extended.get("path") or header[:100].rstrip(b"\0").decode(errors="replace")
            size = int(extended.get("size", size))
            extended = {}
            expected = reader.position + size
            yield ArchiveMember(began, name, size, reader)
            if reader.position != expected:
                raise ArchiveError(f"{name} does not have {size} bytes")
        else:
            raise ArchiveError(f"the tar has a member of the unsupported type {kind!r}")
        if any(reader.take(-size % _TAR_BLOCK)):
            raise ArchiveError("the tar has data between its members")


def _tar_number(field: bytes) -> int:
    digits = field.rstrip(b"\0 ") or b"0"
    if digits.strip(b"01234567"):
        raise ArchiveError("a tar header cannot be parsed")
    return int(digits, 8)


def _pax(data: bytes) -> dict[str, str]:
    """Return the records `<length> <key>=<value>\\n` of an extended header."""
    found, at = {}, 0
    try:
        while at < len(data):
            length = int(data[at : data.index(b" ", at)])
            key, _equals, value = data[data.index(b" ", at) + 1 : at + length - 1].decode().partition("=")
            found[key] = value
            if length <= 0:
                raise ValueError
            at += length
        if int(found.get("size", 0)) < 0:
            raise ValueError
    except ValueError:
        raise ArchiveError("an extended tar header cannot be parsed") from None
    return found


@dataclass(frozen=True)
class Record:
    """A record of a block. `dead`: the record was erased, or only marks its sequence as removed (`tombstone`).
    `hashed`: the input of its `checksum`."""

    message: ArchivedMessage
    dead: bool
    tombstone: bool
    hashed: tuple[bytes, ...]
    checksum: bytes


def records(member: ArchiveMember) -> Iterator[Record]:
    """Yield the records of a block. Raises ArchiveError."""
    left = member.size
    while left:
        if left < _RECORD.size + _RECORD_HASH:
            raise ArchiveError(f"{member.name} ends in the middle of a record")
        head = member.reader.take(_RECORD.size)
        length, sequence, time, subject_length = _RECORD.unpack(head)
        with_headers = bool(length & _HAS_HEADERS)
        length &= ~_HAS_HEADERS
        fixed = _RECORD.size + subject_length + (4 if with_headers else 0) + _RECORD_HASH
        if not fixed <= length <= min(left, _LARGEST_RECORD):
            raise ArchiveError(f"{member.name} has a record with the invalid length {length}")
        rest = member.reader.take(length - _RECORD.size)
        left -= length
        subject, at, headers = rest[:subject_length], subject_length, b""
        if with_headers:
            size = int.from_bytes(rest[at : at + 4], "little")
            if fixed + size > length:
                raise ArchiveError(f"{member.name} has a record with headers longer than the record")
            headers = rest[at + 4 : at + 4 + size]
            at += 4 + size
        body = rest[at:-_RECORD_HASH]
        number = sequence & ~(ERASED | TOMBSTONE)
        yield Record(
            ArchivedMessage(number, time, subject, headers, body),
            dead=number == 0 or bool(sequence & (ERASED | TOMBSTONE)),
            tombstone=bool(sequence & TOMBSTONE),
            hashed=(head[4:20], subject, headers, body),
            checksum=rest[-_RECORD_HASH:],
        )


@dataclass(frozen=True)
class Index:
    """The content of index.db: the stream's range, each block's first sequence and removed sequences, and the checksum
    of the last record of the last block, which a server uses to check that the index is current."""

    messages: int
    first_seq: int
    last_seq: int
    firsts: Mapping[int, int]
    removed: Mapping[int, array[int]]
    last_block: int
    last_checksum: bytes


def read_index(member: ArchiveMember) -> Index:
    """Return the content of index.db (server/filestore.go _writeFullState, versions 1 to 4). Raises ArchiveError."""
    try:
        return _read_index(_Window(member))
    except (IndexError, struct.error):
        raise ArchiveError("msgs/index.db is truncated") from None


@dataclass(frozen=True)
class BlockIndex:
    """The index of one block (N.idx): number of messages, range, removed sequences, and checksum of the last record."""

    messages: int
    first_seq: int
    last_seq: int
    removed: array[int]
    checksum: bytes


def read_block_index(member: ArchiveMember) -> BlockIndex:
    """Return the content of N.idx, which servers before 2.10 write for each block (writeIndexInfo and genDeleteMap of
    their server/filestore.go). Raises ArchiveError."""
    window = _Window(member)
    try:
        magic, version = window.take(2)
        if (magic, version) != (22, 1):
            raise ArchiveError(f"{member.name} has the unknown version {magic}/{version}")
        messages, _bytes, first, _first_time, last, _last_time, deleted = (window.number() for _field in range(7))
        checksum = window.take(_RECORD_HASH)
        removed = array("Q", sorted(first + window.number() for _sequence in range(deleted)))
    except (IndexError, OverflowError, struct.error):
        raise ArchiveError(f"{member.name} is truncated or has numbers of more than 64 bits") from None
    if not window.ended():
        raise ArchiveError(f"{member.name} has a length that does not match its content")
    return BlockIndex(messages, first, last, removed, checksum)


def index_of_blocks(blocks: Mapping[int, BlockIndex]) -> Index:
    """Return the stream's index from the indexes of all its blocks, in order."""
    last_block, last = list(blocks.items())[-1]
    held = [block for block in blocks.values() if block.messages]
    return Index(
        messages=sum(block.messages for block in held),
        first_seq=held[0].first_seq if held else last.last_seq + 1,
        last_seq=last.last_seq,
        firsts={number: block.first_seq for number, block in blocks.items()},
        removed={number: block.removed for number, block in blocks.items() if block.removed},
        last_block=last_block,
        last_checksum=last.checksum,
    )


class _Window:
    """Reads a file in pieces, because the index of a stream with millions of subjects is large."""

    def __init__(self, member: ArchiveMember) -> None:
        self._reader, self._left = member.reader, member.size
        self._data, self._at = b"", 0

    def _ask(self, size: int) -> None:
        """Fill the buffer to this size, or with everything that is left."""
        if len(self._data) - self._at < size:
            more = min(self._left, max(size, _WINDOW))
            self._data, self._at = self._data[self._at :] + self._reader.take(more), 0
            self._left -= more

    def number(self) -> int:
        self._ask(10)
        value, self._at = read_uvarint(self._data, self._at)
        return value

    def take(self, size: int) -> bytes:
        if size > _LARGEST_META:
            raise ArchiveError("msgs/index.db has an entry that is larger than any that a server writes")
        self._ask(size)
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise IndexError
        self._at += size
        return part

    def ended(self) -> bool:
        return not self._left and self._at == len(self._data)


def _read_index(window: _Window) -> Index:
    magic, version = window.take(2)
    if magic != 11 or not 1 <= version <= 4:
        raise ArchiveError(f"msgs/index.db has the unknown version {magic}/{version}")
    number = window.number
    messages, _bytes, first_seq, _first_time, last_seq, _last_time = (number() for _field in range(6))
    for _subject in range(number()):
        window.take(number())
        total, _first = number(), number()
        if total > 1 or version >= 4:
            number()
    firsts: dict[int, int] = {}
    removed: dict[int, array[int]] = {}
    for _block in range(number()):
        block, _size, firsts_at, _time, _last, _time2, deleted = (number() for _field in range(7))
        for _field in range(min(version - 1, 2)):
            number()
        firsts[block] = firsts_at
        if deleted:
            removed[block] = _sequence_set(window)
    last_block, checksum = number(), window.take(_RECORD_HASH)
    window.take(_RECORD_HASH)
    if not window.ended():
        raise ArchiveError("msgs/index.db has a length that does not match its content")
    return Index(messages, first_seq, last_seq, firsts, removed, last_block, checksum)


def _sequence_set(window: _Window) -> array[int]:
    """Return the members of an encoded sequence set, in ascending order (server/avl/seqset.go)."""
    magic, version, nodes, _size = struct.unpack("<BBII", window.take(10))
    if magic != 22 or version not in (1, 2):
        raise ArchiveError("msgs/index.db has a sequence set that cannot be parsed")
    words = 64 if version == 1 else 32
    found: list[int] = []
    for _node in range(nodes):
        base, *bits, _height = struct.unpack(f"<{1 + words}QH", window.take(8 * (1 + words) + 2))
        for word, value in enumerate(bits):
            found += [base + 64 * word + bit for bit in range(64) if value >> bit & 1]
    if found and max(found) >> 64:
        raise ArchiveError("msgs/index.db has a sequence of more than 64 bits")
    return array("Q", sorted(found))


def includes(sequences: array[int], sequence: int) -> bool:
    """Return whether a sequence is one of these sorted sequences."""
    at = bisect_left(sequences, sequence)
    return at < len(sequences) and sequences[at] == sequence


#: Number of bytes at the start of o.dat that `read_consumer_state` needs: two bytes, and five numbers.
STATE_HEAD = 2 + 5 * 10


def read_consumer_state(data: bytes) -> dict[str, Any]:
    """Return `delivered`, `ack_floor` (consumer_seq, stream_seq) and the `pending` count of o.dat (server/store.go
    encodeConsumerState). Raises ArchiveError."""
    nothing = {"consumer_seq": 0, "stream_seq": 0}
    if not data:
        return {"delivered": nothing, "ack_floor": dict(nothing), "pending": 0}
    try:
        if data[0] != 22 or data[1] != 2:
            raise ArchiveError("the state of a consumer cannot be parsed")
        at, numbers = 2, []
        for _field in range(5):
            value, at = read_uvarint(data, at)
            numbers.append(value)
    except IndexError:
        raise ArchiveError("the state of a consumer is truncated") from None
    floor, floor_stream, delivered, delivered_stream, pending = numbers
    return {
        "delivered": {"consumer_seq": delivered, "stream_seq": delivered_stream},
        "ack_floor": {"consumer_seq": floor, "stream_seq": floor_stream},
        "pending": pending,
    }
