# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S2, the compression format of every stream archive. Pure.

Implemented here because no package on PyPI can read S2, which extends Snappy by larger blocks and by copies that repeat
the last offset; cramjam and python-snappy reject both. Format: github.com/klauspost/compress/tree/master/s2. Backups
and archives cannot be verified without it; a restore sends an archive unchanged, except for the parts that it modifies.

This implementation reads about 15 MB per second; the checksums (CRC-32C) take a sixth of the time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import BinaryIO

COMPRESSED, PLAIN, IDENTIFIER = 0x00, 0x01, 0xFF
STREAM_ID = b"\xff\x06\x00\x00S2sTwO"

#: The largest block of the format; servers write 1 MiB.
_LARGEST_BLOCK = 4 << 20
#: Bytes of a lane of `crc32c`, and the number of lanes above which lanes are faster.
_LANE, _WORTH_IT = 128, 32
#: Maximum size of a plain chunk written here, as in the Snappy frame format.
_PLAIN_BLOCK = 64 << 10


class ArchiveError(Exception):
    """The archive is incomplete, or not in a server's format. The message names the place and the reason."""


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes.

    Long input is cut into lanes of equal length, and one byte of every lane is processed at a time: the four bytes of
    the lanes' sums form four rows of bytes, each processed as a unit by `translate` and `^`. Processing the lanes
    together is ten times as fast as processing one byte after another.
    """
    crc, lanes = 0xFFFFFFFF, len(data) // _LANE
    if lanes >= _WORTH_IT:
        crc = _lanes_crc(data[: lanes * _LANE], lanes)
        data = data[lanes * _LANE :]
    table = _byte_table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _lanes_crc(data: bytes, lanes: int) -> int:
    """Return the CRC, before the final inversion, of input in this many lanes."""
    rows, row, mask = 0, 8 * lanes, (1 << 8 * lanes) - 1
    for column in range(_LANE):
        taken = data[column::_LANE]
        if column < 4:  # the first lane begins with all bits set
            taken = bytes([taken[0] ^ 0xFF]) + taken[1:]
        index = ((rows & mask) ^ int.from_bytes(taken, "little")).to_bytes(lanes, "little")
        rows = (rows >> row) ^ int.from_bytes(b"".join(map(index.translate, _byte_rows())), "little")
    whole = rows.to_bytes(4 * lanes, "little")
    first, second, third, fourth = _shifts()
    crc = 0
    for lane in range(lanes):
        shifted = first[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ fourth[crc >> 24]
        crc = shifted ^ int.from_bytes(whole[lane::lanes], "little")
    return crc


@lru_cache
def _byte_table() -> tuple[int, ...]:
    """Return the CRC of each byte."""
    table = []
    for byte in range(256):
        crc = byte
        for _bit in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


@lru_cache
def _byte_rows() -> tuple[bytes, ...]:
    """Return the first, second, third and fourth byte of the CRC of each byte."""
    return tuple(bytes(crc >> shift & 0xFF for crc in _byte_table()) for shift in (0, 8, 16, 24))


@lru_cache
def _shifts() -> tuple[tuple[int, ...], ...]:
    """Return the table that advances each byte of a CRC over a lane of zeros."""
    table, found = _byte_table(), []
    for place in range(4):
        becomes = [0] * 256
        for bit in range(8):
            crc = 1 << 8 * place + bit
            for _zero in range(_LANE):
                crc = table[crc & 0xFF] ^ (crc >> 8)
            becomes[1 << bit] = crc
        found.append(tuple(_xor(becomes[1 << bit] for bit in range(8) if byte >> bit & 1) for byte in range(256)))
    return tuple(found)


def _xor(values: Iterable[int]) -> int:
    result = 0
    for value in values:
        result ^= value
    return result


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def decode_block(data: bytes) -> bytes:
    """Return the plain bytes of one compressed block. Raises ArchiveError for a damaged block."""
    try:
        return _decode_block(data)
    except IndexError:
        raise ArchiveError("a compressed block is truncated") from None


def _decode_block(data: bytes) -> bytes:
    # Reading an archive spends nearly all its time here, so this loop makes no calls, and no checks that can be made at
    # the end.
    size, at = read_uvarint(data, 0)
    if size > _LARGEST_BLOCK:
        raise ArchiveError(f"a compressed block has the invalid size {size}")
    out = bytearray()
    end, done, offset = len(data), 0, 0
    while at < end:
        tag = data[at]
        kind = tag & 3
        if kind == 2:
            length = (tag >> 2) + 1
            offset = data[at + 1] | data[at + 2] << 8
            at += 3
        elif kind == 1:
            length = ((tag >> 2) & 7) + 4
            near = (tag & 0xE0) << 3 | data[at + 1]
            at += 2
            if near:
                offset = near
            elif length >= 9:  # repeats the last offset with a longer length
                extra = length - 8
                length = int.from_bytes(data[at : at + extra], "little") + (8, 260, 65540)[extra - 1]
                at += extra
        elif kind == 0:
            length = tag >> 2
            at += 1
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[at : at + extra], "little")
                at += extra
            length += 1
            out += data[at : at + length]
            at += length
            done += length
            continue
        else:
            length = (tag >> 2) + 1
            offset = int.from_bytes(data[at + 1 : at + 5], "little")
            at += 5
        start = done - offset
        done += length
        if start < 0 or not offset or done > size:
            raise ArchiveError("a compressed block refers to data before its start")
        if offset >= length:
            out += out[start : start + length]
        else:
            out += (out[start:] * (length // offset + 1))[:length]
    if len(out) != size or done != size:
        raise ArchiveError(f"a compressed block has {len(out)} bytes instead of {size}")
    return bytes(out)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number of variable length and the position after it. Raises IndexError, ArchiveError for more
    than 64 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise ArchiveError("a number has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            raise ArchiveError("a number has more than 64 bits")


def chunks(file: BinaryIO) -> Iterator[tuple[str, int, bytes]]:
    """Yield the position, kind and content of each chunk of a compressed file, except the stream identifier. Raises
    ArchiveError.

    Only the kinds that servers write are accepted: a reader that skips others, as servers do, would not detect a
    flipped bit that turns a chunk of messages into a chunk of a skipped kind.
    """
    position = 0
    while True:
        head = file.read(4)
        if not head and position:
            return
        where = f"at byte {position}"
        kind, length = (head or b"\0")[0], int.from_bytes(head[1:], "little")
        if (position == 0) != (kind == IDENTIFIER):
            raise ArchiveError(f"{where}: a second stream header" if position else "it is not S2-compressed")
        body = file.read(length)
        if len(head) < 4 or len(body) < length:
            raise ArchiveError(f"{where}: it is truncated")
        if kind == IDENTIFIER:
            if head + body != STREAM_ID:
                raise ArchiveError("it is not S2-compressed")
        elif kind not in (COMPRESSED, PLAIN) or length < 4:
            raise ArchiveError(f"{where}: a chunk of the unknown type {kind:#04x}")
        else:
            yield where, kind, body
        position += 4 + length


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the plain blocks of a compressed file, each after its checksum has been verified. Raises ArchiveError."""
    for where, kind, body in chunks(file):
        yield _plain(where, kind, body)


def _plain(where: str, kind: int, body: bytes) -> bytes:
    try:
        plain = body[4:] if kind == PLAIN else decode_block(body[4:])
    except ArchiveError as error:
        raise ArchiveError(f"{where}: {error}") from error
    if _masked(crc32c(plain)) != int.from_bytes(body[:4], "little"):
        raise ArchiveError(f"{where}: the checksum of a chunk is wrong")
    return plain


def splice(file: BinaryIO, start: int, end: int | None, replacement: bytes) -> Iterator[bytes]:
    """Yield a compressed file in which the plain bytes from `start` to `end` (None for the end of the file) are
    replaced.

    Only the chunks at the edges are decompressed. Raises ArchiveError.
    """
    yield STREAM_ID
    position, replaced = 0, False
    for where, kind, body in chunks(file):
        size = len(body) - 4 if kind == PLAIN else read_uvarint(body, 4)[0]
        behind = end is not None and position >= end
        if behind and not replaced:
            yield from plain_chunks(replacement)
            replaced = True
        if behind or position + size <= start:
            yield struct.pack("<I", kind | len(body) << 8) + body
        else:
            plain = _plain(where, kind, body)
            yield from plain_chunks(plain[: max(start - position, 0)])
            if end is not None and end < position + size:
                yield from plain_chunks(replacement + plain[end - position :])
                replaced = True
        position += size
    if not replaced:
        yield from plain_chunks(replacement)


def plain_chunks(data: bytes) -> Iterable[bytes]:
    """Yield bytes as uncompressed chunks, for modified parts of an archive."""
    for start in range(0, len(data), _PLAIN_BLOCK):
        part = data[start : start + _PLAIN_BLOCK]
        yield struct.pack("<II", PLAIN | (len(part) + 4) << 8, _masked(crc32c(part))) + part


class PlainReader:
    """The plain bytes of an archive, read in order. `position`: how many bytes have been read."""

    def __init__(self, file: BinaryIO) -> None:
        self._blocks = blocks(file)
        self._rest = b""
        self._at = 0
        self.position = 0

    def take(self, size: int) -> bytes:
        """Return exactly this many bytes. Raises ArchiveError at the end of the archive."""
        data = self.take_some(size)
        if len(data) != size:
            raise ArchiveError("it is truncated")
        return data

    def take_some(self, size: int) -> bytes:
        """Return this many bytes, or fewer at the end of the archive."""
        at, rest = self._at, self._rest
        if at + size <= len(rest):
            self._at = at + size
            self.position += size
            return rest[at : at + size]
        parts, missing = [rest[at:]], size - (len(rest) - at)
        self._rest, self._at = b"", 0
        while missing > 0:
            block = next(self._blocks, None)
            if block is None:
                break
            if len(block) > missing:
                self._rest, self._at = block, missing
            parts.append(block[:missing])
            missing -= len(parts[-1])
        data = b"".join(parts)
        self.position += len(data)
        return data

    def uvarint(self) -> int:
        """Return an unsigned number of variable length."""
        data = bytearray()
        while True:
            data += self.take(1)
            if data[-1] < 0x80 or len(data) > 10:
                return read_uvarint(bytes(data), 0)[0]

    def end(self) -> None:
        """Raise ArchiveError if anything follows."""
        if self.take_some(1):
            raise ArchiveError("it has data after its end")
