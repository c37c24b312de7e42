# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads archives of real servers, complete and damaged. `archives` contains one archive of each format, with deleted
messages and pending acks."""

from __future__ import annotations

import io
import json
import random
import tarfile
from array import array
from functools import lru_cache
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup import archive_contents
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive import (
    ENTRIES,
    MAGIC,
    TAR,
    TAR_END,
    ArchiveMember,
    detect_format,
    encode_entry,
    members,
    read_consumer_state,
    read_entry,
    read_index,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive_contents import (
    ArchiveContents,
    read_contents,
    read_head,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.host import s2
from ansible_collections.natsops.jetstream.plugins.module_utils.host.s2 import ArchiveError, PlainReader
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parent / "archives"
VERSIONS = ["2.10.27", "2.15.1"]


@lru_cache
def archive(version: str) -> bytes:
    return (FOLDER / f"backup-{version}" / "stream.tar.s2").read_bytes()


@lru_cache
def plain(version: str) -> bytes:
    return b"".join(s2.blocks(io.BytesIO(archive(version))))


def packed(data: bytes) -> bytes:
    """Return plain bytes as an uncompressed archive."""
    return s2.STREAM_ID + b"".join(s2.plain_chunks(data))


def contents(data: bytes, record_checksums: bool = False) -> ArchiveContents:
    return read_contents(lambda: io.BytesIO(data), record_checksums)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("record_checksums", [False, True])
def test_both_formats_hold_the_same(version: str, record_checksums: bool) -> None:
    path = FOLDER / f"backup-{version}" / "stream.tar.s2"
    found = contents(path.read_bytes(), record_checksums)
    assert found.format == (TAR if version == "2.10.27" else ENTRIES)
    assert (found.messages, found.first_seq, found.last_seq, found.exact) == (57, 2, 60, True)
    # Messages 1, 5 and 6 were deleted; the sizes are those that the servers report.
    state = json.loads((path.parent / "backup.json").read_text())["state"]
    assert found.bytes == state["bytes"]
    first, second = found.consumers
    assert (first.name, first.ack_floor["stream_seq"], first.delivered["stream_seq"], first.pending) == ("c1", 7, 13, 6)
    assert (second.name, second.config["filter_subject"], second.pending) == ("c2", "S.3", 1)
    assert (found.config or {}).get("name") == ("S" if found.format == TAR else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_found(version: str) -> None:
    whole = archive(version)
    for length in range(len(whole)):
        with pytest.raises(ArchiveError):
            contents(whole[:length])


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_flipped_bit_changes_nothing_unseen(version: str, data: st.DataObject) -> None:
    """Flipping a bit may leave the content unchanged, because data can be compressed in several ways; for example, a
    run of zeros can be copied from several places."""
    damaged = bytearray(archive(version))
    bits = data.draw(st.sets(st.integers(0, 8 * len(damaged) - 1), min_size=1, max_size=3))
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    assert _holds(bytes(damaged)) in (None, contents(archive(version)))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_flipped_bit_of_the_frame_is_found(version: str) -> None:
    """The type and the length of a chunk have no checksum; if a flipped bit turns a chunk into one that readers skip,
    its message is lost."""
    whole = archive(version)
    position = 0
    while position < len(whole):
        for bit in range(32):
            damaged = bytearray(whole)
            damaged[position + bit // 8] ^= 1 << bit % 8
            with pytest.raises(ArchiveError):
                contents(bytes(damaged))
        position += 4 + int.from_bytes(whole[position + 1 : position + 4], "little")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lost_chunk_is_found(version: str) -> None:
    """The loss of a complete message is an exception: a 2.15 archive does not contain the number of messages, so only
    its SHA-256 shows this loss."""
    whole = archive(version)
    starts = [0]
    while starts[-1] < len(whole):
        starts.append(starts[-1] + 4 + int.from_bytes(whole[starts[-1] + 1 : starts[-1] + 4], "little"))
    lost = [whole[:start] + whole[end:] for start, end in zip(starts, starts[1:])]
    seen = [_holds(data) for data in lost]
    before = contents(whole)
    assert all(found is None or found.digest != before.digest for found in seen)
    assert seen[0] is None and seen[-1] is None


def _holds(data: bytes) -> ArchiveContents | None:
    try:
        return contents(data)
    except ArchiveError:
        return None


@given(st.binary(max_size=300))
def test_anything_else_is_refused(data: bytes) -> None:
    for candidate in (data, s2.STREAM_ID + data, packed(data), packed(b"NATSARC1" + data)):
        with pytest.raises(ArchiveError):
            contents(candidate)


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_whatever_is_altered_within_the_plain_bytes_raises_nothing_else(data: bytes, at: int) -> None:
    """A program may have written altered bytes with correct checksums, which then reveal nothing to the reader."""
    for version in VERSIONS:
        altered = plain(version)[:at] + data + plain(version)[at + len(data) :]
        _holds(packed(altered))


@pytest.mark.parametrize(
    ("was", "other"),
    [
        (b'"messages"', b'"nessages"'),
        (b'"ack_floor":{', b'"ack_floor":7,"a":{'),
        (b'"stream_seq":', b'"stream_seq":-'),
        (b'"pending":{', b'"pending":true,"p":{'),
    ],
)
def test_head_with_unexpected_fields(was: bytes, other: bytes) -> None:
    whole = plain("2.15.1")
    reader = PlainReader(io.BytesIO(packed(whole)))
    detect_format(reader)
    entries = [read_entry(reader) for _entry in range(3)]
    changed = [encode_entry(entry.name, entry.time, entry.payload.replace(was, other)) for entry in entries]
    assert changed != [encode_entry(entry.name, entry.time, entry.payload) for entry in entries]
    with pytest.raises(ArchiveError):
        contents(packed(MAGIC + b"".join(changed) + whole[reader.position :]))


def test_the_error_that_an_older_server_hides_in_an_archive() -> None:
    """The server closes the archive normally after the part that it could read (server/filestore.go writeErr)."""
    data = plain("2.10.27")
    reason = b"Could not read message block [1]: bad"
    start = member_start(data, "msgs/1.blk")
    hidden = data[:start] + tar_member("errors.txt", reason) + TAR_END
    with pytest.raises(
        ArchiveError, match=r"could not read the complete stream: Could not read message block \[1\]: bad"
    ):
        contents(packed(hidden))


def member_start(data: bytes, wanted: str) -> int:
    reader = PlainReader(io.BytesIO(packed(data)))
    for member in members(reader, detect_format(reader)[1]):
        if member.name == wanted:
            return member.start
        member.content()
    raise AssertionError(wanted)


def tar_member(name: str, content: bytes) -> bytes:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return header.tobuf() + content + bytes(-len(content) % 512)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x17\x01", "unknown version 23/1"),
        (b"\x16\x01\x01", "is truncated"),
        (b"\x16\x01" + bytes(6) + b"\x01" + bytes(8), "is truncated"),
        (b"\x16\x01" + bytes(7) + bytes(8) + b"\x00", "does not match its content"),
        (b"\x16\x01" + bytes(7) + bytes(8), "its blocks do not match its indexes"),
    ],
)
def test_a_damaged_index_of_a_block_of_2_9(content: bytes, reason: str) -> None:
    data = plain("2.10.27")
    start = member_start(data, "msgs/1.blk")
    index = tar_member("msgs/9.idx", content)
    without_state = data[:start] + index + TAR_END
    with pytest.raises(ArchiveError, match=reason):
        contents(packed(without_state))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("msgs/0.blk", b"", "comes after"),
        ("foreign", b"", "does not belong"),
        ("meta.inf", b"{}", "does not belong"),
        ("obs/c1/meta.inf", b"{}", "consumer c1 is incomplete"),
        ("msgs/2.blk", b"\x05\0\0\0", "ends in the middle of a record"),
        ("msgs/2.blk", b"\x1e\0\0\x70" + bytes(40), "invalid length"),
        ("msgs/index.db", b"\x0b\x09" + bytes(40), "unknown version 11/9"),
    ],
)
def test_tar_with_unexpected_members(name: str, content: bytes, reason: str) -> None:
    data = plain("2.10.27")
    start = member_start(data, "msgs/index.db")
    with pytest.raises(ArchiveError, match=reason):
        contents(packed(data[:start] + tar_member(name, content) + TAR_END))


def test_configurations_without_an_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader keeps complete configurations in memory, but only a part of a consumer's state, which grows with the
    pending messages."""
    head, end = plain("2.10.27")[:-1024], plain("2.10.27")[-1024:]
    state = bytes([22, 2, 5, 5, 9, 9, 2]) + b"pending " * 100_000
    monkeypatch.setattr(archive_contents, "_LARGEST_CONFIGURATIONS", 100_000)
    with pytest.raises(ArchiveError, match="consumer late is incomplete"):
        contents(packed(head + tar_member("obs/late/o.dat", state) + end))
    with pytest.raises(ArchiveError, match="its configurations exceed 100000 bytes"):
        contents(packed(head + tar_member("obs/late/meta.inf", state) + end))


def test_an_extended_header_that_announces_gigabytes_is_refused_unread() -> None:
    """An S2 file of 13 kB can contain a header of 8 GiB."""
    data = plain("2.10.27")
    header = tarfile.TarInfo("PaxHeaders/meta.inf")
    header.type, header.size = tarfile.XHDTYPE, 8 * 1024**3 - 1
    with pytest.raises(ArchiveError, match="an extended tar header has 8589934591 bytes"):
        contents(packed(data[: member_start(data, "msgs/index.db")] + header.tobuf()))


def test_an_index_that_is_not_true_any_more_is_not_believed() -> None:
    """A server also ignores such an index. The server then finds the messages itself, and the tombstones list those
    that were removed."""
    data = plain("2.10.27")
    start = member_start(data, "msgs/index.db")
    found = contents(packed(data[:start] + TAR_END))
    whole = contents(archive("2.10.27"))
    assert (found.messages, found.digest, found.first_seq, found.last_seq) == (57, whole.digest, 2, 60)
    assert (found.exact, found.consumers) == (False, ())


def test_a_record_that_was_damaged_before_the_backup() -> None:
    """The server reads blocks as plain files: its checksum of the file is correct, but the message's own checksum is
    not."""
    data = bytearray(plain("2.10.27"))
    data[data.index(b"message 20 ")] ^= 1
    assert contents(packed(bytes(data))).messages == 57
    with pytest.raises(ArchiveError, match="the checksum of message 21 is wrong"):
        contents(packed(bytes(data)), record_checksums=True)


def test_a_configuration_that_was_altered() -> None:
    data = plain("2.10.27").replace(b'"filter_subject":"S.3"', b'"filter_subject":"S.4"')
    with pytest.raises(ArchiveError, match=r"obs/c2/meta\.inf: the checksum is wrong"):
        contents(packed(data))


def entries(*parts: bytes, consumers: int = 0, first: int = 1, last: int = 3, messages: int = 3) -> bytes:
    state = {"first_seq": first, "last_seq": last, "messages": messages, "consumer_count": consumers}
    return packed(b"NATSARC1" + encode_entry(b"state.json", 1, json.dumps(state).encode()) + b"".join(parts))


def message(sequence: int, subject: bytes = b"a") -> bytes:
    return bytes([len(subject), 2, sequence, 0, 1]) + subject + b"x"


END = bytes(5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (entries(message(1)), "truncated"),
        (entries(message(2), message(1), END), "message 1 comes after message 2"),
        (entries(message(4), END), "is outside the stream's range 1 to 3"),
        (entries(message(1), message(2), END, messages=1), "it has 2 messages but announces 1"),
        (entries(END, first=1 << 64, last=(1 << 64) - 1, messages=0), "state.json has no number in first_seq"),
        (entries(message(1), END, last=10**26), "state.json has no number in last_seq"),
        (entries(message(1), END, messages=10**26), "state.json has no number in messages"),
        (entries(END, END), "data after its end"),
        (entries(message(1), END, consumers=1), "a consumer is missing"),
        (entries(encode_entry(b"consumers/c", 1, b"{}"), END, consumers=1), "consumer c has no configuration"),
        (entries(encode_entry(b"consumers/c", 1, b"{}"), END), "instead of a message"),
        (packed(b"NATSARC1" + END), "does not begin with state.json"),
        (packed(b"NATSARC1" + b"\xff" * 12), "more than 64 bits"),
        (packed(b"NATSARC1" + b"\xff\xff\xff\x7f\0\0\0\0"), "is larger than any that a server writes"),
    ],
)
def test_an_archive_of_2_15_that_a_server_did_not_write(data: bytes, reason: str) -> None:
    with pytest.raises(ArchiveError, match=reason):
        contents(data)


def test_empty_stream_is_complete() -> None:
    found = contents(entries(END, first=4, last=3, messages=0))
    assert (found.messages, found.first_seq, found.last_seq, found.consumers) == (0, 4, 3, ())


# --- changes in an archive
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_can_be_left_out_without_touching_the_messages(version: str) -> None:
    whole = contents(archive(version))
    assert whole.consumers_at is not None
    start, end = whole.consumers_at
    if whole.format == TAR:
        replacement = TAR_END
    else:
        reader = PlainReader(io.BytesIO(archive(version)))
        detect_format(reader)
        state = {**read_head(reader)[0], "consumer_count": 0}
        replacement = encode_entry(b"state.json", 1, json.dumps(state).encode())
    parts = list(s2.splice(io.BytesIO(archive(version)), start, end, replacement))
    found = contents(b"".join(parts))
    assert (found.consumers, found.digest, found.messages) == ((), whole.digest, whole.messages)


@given(st.integers(0, 9000), st.integers(0, 9000), st.binary(max_size=100), st.sampled_from(VERSIONS))
def test_splice_replaces_exactly_its_range(one: int, two: int, replacement: bytes, version: str) -> None:
    data = plain(version)
    start, end = sorted((min(one, len(data)), min(two, len(data))))
    spliced = b"".join(s2.splice(io.BytesIO(archive(version)), start, end, replacement))
    assert b"".join(s2.blocks(io.BytesIO(spliced))) == data[:start] + replacement + data[end:]


def test_an_entry_is_read_as_it_was_encoded() -> None:
    reader = PlainReader(
        io.BytesIO(packed(encode_entry(b"consumers/c", -5, b"{}") + encode_entry(b"", 2**62, b"x" * 300)))
    )
    first, second = read_entry(reader), read_entry(reader)
    assert (first.name, first.time, first.payload, first.ends) == (b"consumers/c", -5, b"{}", False)
    assert (second.time, second.payload) == (2**62, b"x" * 300)


# --- parts --------------------------------------------------------------------------------------------------------------


def test_crc32c_is_castagnolis() -> None:
    assert s2.crc32c(b"123456789") == 0xE3069283
    assert s2.crc32c(b"") == 0
    assert s2.crc32c(bytes(32)) == 0x8A9136AA


@given(st.integers(0, 9000), st.integers(0, 2**32))
def test_crc32c_of_many_bytes_is_that_of_one_after_another(size: int, seed: int) -> None:
    data = random.Random(seed).randbytes(size)
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _bit in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert s2.crc32c(data) == crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x05\x10hello", b"hello"),
        (b"\x05\xf0\x04hello", b"hello"),  # the same length in a separate byte
        (b"\x08\x04ab\x16\x02\x00", b"abababab"),  # a copy that overlaps its own output
        (b"\x06\x04ab\x0f\x02\x00\x00\x00", b"ababab"),  # with an offset of 4 bytes
    ],
)
def test_a_block(block: bytes, text: bytes) -> None:
    assert s2.decode_block(block) == text


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"\x05\x10hell", "has 4 bytes instead of 5"),
        (b"\x06\x10hello", "has 5 bytes instead of 6"),
        (b"\x06\x04ab\x0e\x03\x00", "refers to data before its start"),
        (b"\x06\x04ab\x01\x00", "refers to data before its start"),  # repeats an offset before any is set
        (b"\x03\x04ab\x16\x02\x00", "refers to data before its start"),  # longer than announced
        (b"\x06\x04ab\x01", "is truncated"),
        (b"\xff\xff\xff\x7f\x00a", "has the invalid size 268435455"),
        (b"", "is truncated"),
    ],
)
def test_a_block_that_is_damaged(block: bytes, reason: str) -> None:
    with pytest.raises(ArchiveError, match=reason):
        s2.decode_block(block)


def test_a_block_that_repeats_an_offset() -> None:
    """The block has 4 literals, a copy of 4 bytes from 4 bytes back, and repeats of this offset for 4, 8 + 1 and 260 +
    2 bytes."""
    start = b"\x0cabcd" + b"\x01\x04"
    assert s2.decode_block(b"\x0c" + start + b"\x01\x00") == b"abcd" * 3
    assert s2.decode_block(bytes([17]) + start + b"\x15\x00\x01") == (b"abcd" * 5)[:17]
    assert s2.decode_block(b"\x8e\x02" + start + b"\x19\x00\x02\x00") == (b"abcd" * 80)[:270]


def test_the_state_of_a_consumer() -> None:
    nothing = {"consumer_seq": 0, "stream_seq": 0}
    assert read_consumer_state(b"") == {"delivered": nothing, "ack_floor": nothing, "pending": 0}
    with pytest.raises(ArchiveError, match="is truncated"):
        read_consumer_state(b"\x16\x02\x05")
    with pytest.raises(ArchiveError, match="cannot be parsed"):
        read_consumer_state(b"\x00\x02\x05")


def test_an_index_of_each_version() -> None:
    """The versions 2.10, 2.11, 2.12 and 2.14 store different fields for a subject and a block."""
    removed = bytes([22, 2, 1, 0, 0, 0, 1, 0, 0, 0]) + (4096).to_bytes(8, "little") + b"\x06" + bytes(255) + b"\x01\x00"
    for version, last_block, per_block in ((1, b"", b""), (2, b"", b"\0"), (3, b"", b"\0\0"), (4, b"\x01", b"\0\0")):
        head = bytes([11, version, 3, 90, 1, 2, 9, 4])
        subjects = b"\x01" + b"\x02ab" + b"\x01\x01" + last_block
        blocks = b"\x01" + bytes([7, 90, 3, 0, 9, 0, 2]) + per_block + removed
        content = head + subjects + blocks + b"\x07" + b"checksum" + bytes(8)
        found = read_index(ArchiveMember(0, "msgs/index.db", len(content), PlainReader(io.BytesIO(packed(content)))))
        assert (found.messages, found.first_seq, found.last_seq) == (3, 1, 9)
        assert (found.firsts, found.removed) == ({7: 3}, {7: array("Q", [4097, 4098])})
        assert (found.last_block, found.last_checksum) == (7, b"checksum")
