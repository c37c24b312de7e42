# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads files that a server leaves in its store after an accident; tests/integration/test_rescue.py reads the stores of
real servers."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.observation import fenced
from ansible_collections.natsops.jetstream.plugins.module_utils.host.store import (
    StoredStream,
    best_replica,
    store_owner,
    stored_streams,
    undeleted,
)

ERASED, TOMBSTONE = 1 << 63, 1 << 62


def record(sequence: int, body: bytes = b"x") -> bytes:
    subject = b"orders"
    size = 22 + len(subject) + len(body) + 8
    return struct.pack("<IQqH", size, sequence, 1, len(subject)) + subject + body + bytes(8)


def uvarint(number: int) -> bytes:
    head = b""
    while number > 0x7F:
        head, number = head + bytes([number & 0x7F | 0x80]), number >> 7
    return head + bytes([number])


def index(first: int, last: int) -> bytes:
    return bytes([11, 4]) + b"".join(map(uvarint, (5, 500, first, 2**62, last, 2**62))) + b"more"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "jetstream" / "APP" / "streams" / "ORDERS"
    (found / "msgs").mkdir(parents=True)
    (found / "meta.inf").write_text(json.dumps({"name": "ORDERS", "num_replicas": 3}))
    return found


def one(store: Path) -> StoredStream:
    (found,) = stored_streams(str(store))
    return found


def test_the_blocks_go_further_than_the_index(tmp_path: Path, folder: Path) -> None:
    (folder / "msgs" / "index.db").write_bytes(index(3, 300))
    assert one(tmp_path) == StoredStream("APP", "ORDERS", 3, 3, 300, 5)
    (folder / "msgs" / "9.blk").write_bytes(record(299))
    (folder / "msgs" / "10.blk").write_bytes(record(300) + record(301 | TOMBSTONE) + record(310 | ERASED))
    os.utime(folder / "msgs" / "10.blk", ns=(2**62, 2**62))
    assert (one(tmp_path).last_seq, one(tmp_path).messages) == (310, None)


def test_a_crash_leaves_no_index_and_half_a_record(tmp_path: Path, folder: Path) -> None:
    (folder / "msgs" / "1.blk").write_bytes(record(1) + record(2))
    (folder / "msgs" / "2.blk").write_bytes(record(3) + record(4) + record(5)[:-3])
    assert one(tmp_path) == StoredStream("APP", "ORDERS", 3, 1, 4)
    (folder / "msgs" / "3.blk").write_bytes(b"\xff" * 64)
    assert one(tmp_path).last_seq == 4
    (folder / "msgs" / "index.db").write_bytes(b"\x0b")
    assert one(tmp_path).last_seq == 4


def test_a_compressed_block_is_not_read(tmp_path: Path, folder: Path) -> None:
    (folder / "msgs" / "1.blk").write_bytes(b"cmp\x01" + bytes(100))
    assert one(tmp_path).last_seq is None


def test_unreadable_values_are_unknown(tmp_path: Path, folder: Path) -> None:
    (folder / "meta.key").touch()
    assert one(tmp_path) == StoredStream("APP", "ORDERS", encrypted=True)
    (folder / "meta.key").unlink()
    (folder / "meta.inf").write_bytes(b"\x00garbage")
    assert one(tmp_path) == StoredStream("APP", "ORDERS")


def test_streams_being_deleted_are_ignored(tmp_path: Path, folder: Path) -> None:
    folder.rename(folder.with_name(".ORDERS"))
    assert stored_streams(str(tmp_path)) == []
    assert stored_streams(str(tmp_path / "nowhere")) == []


def test_reasons_that_prevent_a_start() -> None:
    there = {"FragmentPath": "/etc/systemd/system/nats-server.service", "UnitFileState": "disabled"}
    assert fenced("nats-server", there, True, None) == ""
    assert fenced("nats-server", {**there, "UnitFileState": "masked"}, True, None) == "its unit nats-server is masked"
    assert fenced("nats-server", {}, True, None) == "it has no unit nats-server"
    assert fenced("", {}, False, None) == "it has no configuration file"
    assert fenced("", {}, True, {"held": True}) == "it is in maintenance and must not start"
    assert fenced("", {}, True, {"held": False}) == ""


@pytest.mark.parametrize(
    ("held", "best"),
    [
        ({"n1": (20, 20), "n2": (25, 10)}, "n2"),
        ({"n1": (20, 19), "n2": (20, 20)}, "n2"),
        ({"n2": (20, 20), "n1": (20, 20)}, "n1"),
        ({"n1": (None, None), "n2": (0, 0), "n3": (1, None)}, "n3"),
        ({"n1": (20, None), "n2": (20, 0)}, "n2"),
    ],
)
def test_the_best_replica_goes_furthest_and_then_has_the_most_messages(
    held: dict[str, tuple[int | None, int | None]], best: str
) -> None:
    stored = {server: StoredStream("APP", "ORDERS", 3, 1, last, messages) for server, (last, messages) in held.items()}
    assert best_replica(stored) == best


def stopped(first: int, last: int, messages: int | None) -> StoredStream:
    return StoredStream("APP", "ORDERS", 3, first, last, messages)


@pytest.mark.parametrize(
    ("deleted", "stores", "found"),
    [
        # The messages 1 to 25 are loaded, except for the deleted ones.
        ([], {"n2": stopped(16, 20, 5)}, (15, "n2")),
        ([], {"n2": stopped(1, 20, 20)}, (0, "")),
        ([3, 4], {"n2": stopped(1, 20, 18)}, (0, "")),
        ([3, 24], {"n2": stopped(1, 20, 18)}, (1, "n2")),
        # All messages of the copy were purged.
        ([], {"n2": stopped(21, 20, 0)}, (20, "n2")),
        # The copy's own index is old, but still newer than the loaded one.
        ([], {"n1": stopped(6, 25, None)}, (5, "n1")),
        # A store with a higher last sequence proves only the deletions below its first message; others may have
        # happened since.
        ([], {"n2": stopped(3, 30, 3)}, (2, "n2")),
        ([], {"n2": stopped(3, 20, 18), "n3": stopped(16, 18, 3)}, (15, "n3")),
        ([], {"n2": StoredStream("APP", "ORDERS", encrypted=True)}, (0, "")),
    ],
)
def test_reloaded_deleted_messages_are_counted(
    deleted: list[int], stores: dict[str, StoredStream], found: tuple[int, str]
) -> None:
    assert undeleted(1, 25, deleted, stores.items()) == found


def test_nothing_is_loaded_again_of_an_empty_stream() -> None:
    assert undeleted(21, 20, [], {"n2": stopped(16, 20, 5)}.items()) == (0, "")


def test_the_owner_of_a_store_is_its_meta_group(tmp_path: Path) -> None:
    """The bytes are those of a cluster of n1, n2 and n3; test_rescue reads the stores of real servers."""
    assert store_owner(str(tmp_path)).as_dict() == {
        "streams": 0,
        "accounts": {},
        "peers": None,
        "system_accounts": [],
        "index_format": 0,
        "clusters": [],
        "groups": [],
    }
    stream = tmp_path / "jetstream/APP/streams/ORDERS"
    stream.mkdir(parents=True)
    (stream / "meta.inf").write_text("{}")
    (tmp_path / "jetstream/APP/streams/.deleted").mkdir()
    owner = store_owner(str(tmp_path))
    assert (owner.streams, owner.accounts, owner.peers, owner.system_accounts) == (1, {"APP": 1}, None, [])
    meta = tmp_path / "jetstream/$SYS/_js_/_meta_"
    meta.mkdir(parents=True)
    owner = store_owner(str(tmp_path))
    assert (owner.peers, owner.system_accounts) == ([], ["$SYS"])
    ids = b"fjFyEjc1BXScrY9i44jzkV9D"
    (meta / "peers.idx").write_bytes(struct.pack("<II", 3, 3) + ids + bytes(2))
    assert store_owner(str(tmp_path)).peers == ["fjFyEjc1", "BXScrY9i", "44jzkV9D"]
    for broken in (b"", b"\x03", struct.pack("<II", 3, 2**31) + ids, struct.pack("<II", 3, 3) + b"\xff" * 24):
        (meta / "peers.idx").write_bytes(broken)
        assert store_owner(str(tmp_path)).peers == []


def test_the_newest_index_shows_the_version_that_wrote_a_store(tmp_path: Path, folder: Path) -> None:
    assert store_owner(str(tmp_path)).index_format == 0
    meta = tmp_path / "jetstream/$SYS/_js_/_meta_"
    (meta / "msgs").mkdir(parents=True)
    (meta / "msgs/index.db").write_bytes(bytes([11, 2]))
    assert store_owner(str(tmp_path)).index_format == 2
    (folder / "msgs/index.db").write_bytes(index(1, 9))
    assert store_owner(str(tmp_path)).index_format == 4
    # Two unreadable files: one is encrypted, one is being written.
    (folder / "meta.key").write_bytes(b"")
    assert store_owner(str(tmp_path)).index_format == 2
    (meta / "msgs/index.db").write_bytes(b"")
    assert store_owner(str(tmp_path)).index_format == 1


def test_assignments_name_the_cluster_of_a_store(tmp_path: Path) -> None:
    """The assignments are in the meta group's log and in its compressed snapshot; they cannot be read if these are
    encrypted."""
    meta = tmp_path / "jetstream/$SYS/_js_/_meta_"
    (meta / "msgs").mkdir(parents=True)
    (meta / "snapshots").mkdir()

    def assignment(cluster: str) -> bytes:
        group = {"name": "S-R3F-lBXd4rn6", "peers": ["fjFyEjc1"], "store": "file", "cluster": cluster}
        return json.dumps({"client": {"cluster": "C9"}, "group": group}, separators=(",", ":")).encode()

    (meta / "msgs/2.blk").write_bytes(b"\x00" + assignment("C1") + b"\xff")
    (meta / "snapshots/snap.1.1").write_bytes(b"encrypted")
    assert store_owner(str(tmp_path)).clusters == ["C1"]
    plain = assignment("C2") * 9
    block = uvarint(len(plain)) + bytes([61 << 2]) + struct.pack("<H", len(plain) - 1) + plain
    peers = bytes(32)
    head = struct.pack("<QQI", 1, 1, len(peers)) + peers
    (meta / "snapshots/snap.1.2").write_bytes(head + block + bytes(8))
    assert store_owner(str(tmp_path)).clusters == ["C1", "C2"]


def test_some_raft_groups_identify_a_store(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"jetstream/$SYS/_js_/S-R3F-{number:03}").mkdir(parents=True)
    (tmp_path / "jetstream/$SYS/_js_/_meta_").mkdir()
    groups = store_owner(str(tmp_path)).groups
    assert len(groups) == 40 and groups[:2] == ["S-R3F-000", "S-R3F-003"]
