# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the requirements of a drill, and the results with which a drill proves a backup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive import ENTRIES, TAR, ArchivedMessage
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive_contents import (
    entry_messages,
    read_contents,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.manifest import Manifest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.proof import (
    expired_since,
    lost,
    message_limits,
    room_needed,
    unproven,
)

CONTENTS = {"messages": 5, "bytes": 1000, "largest": 100, "first_seq": 3, "last_seq": 9, "digest": "d", "exact": True}
ARCHIVES = Path(__file__).parent / "archives"


def consumer(name: str, floor: int, **config: Any) -> dict[str, Any]:
    return {"name": name, "config": {"durable_name": name, **config}, "ack_floor": {"stream_seq": floor}}


def manifest(*consumers: dict[str, Any], config: dict[str, Any] | None = None, **contents: Any) -> Manifest:
    return Manifest(
        "S", config or {}, {}, "stream.tar.s2", format=ENTRIES, contents={**CONTENTS, **contents}, consumers=consumers
    )


def test_the_room_of_a_drill() -> None:
    assert room_needed(manifest(), 300) == 1100 + 300
    # Before 2.15, a server keeps the uploaded file until it has received all of it.
    assert room_needed(replace(manifest(), format=TAR), 300) == 1100 + 600
    unread = replace(manifest(), contents=None, state={"bytes": 2000})
    assert room_needed(unread, 300) == 2200 + 300


def test_the_limits_fit_the_largest_message() -> None:
    assert message_limits(manifest()) == {"max_payload": 1 << 20, "max_pending": 64 << 20}
    # A server does not start if its max_payload exceeds its max_pending.
    assert message_limits(manifest(largest=70 << 20)) == {"max_payload": 70 << 20, "max_pending": 140 << 20}


@pytest.mark.parametrize(
    ("saved", "restored", "found"),
    [
        ({}, {}, []),
        (
            {},
            {"messages": 4, "digest": "e"},
            ["messages is 4 instead of 5", "the digest of its messages is e instead of d"],
        ),
        ({}, {"digest": "e"}, ["the digest of its messages is e instead of d"]),
        ({}, {"last_seq": 8}, ["last_seq is 8 instead of 9"]),
        ({"messages": 0, "first_seq": 0}, {"messages": 0, "first_seq": 1}, []),
        # Messages may be removed while the archive is written, but none may be added.
        ({"exact": False}, {"messages": 4, "first_seq": 4, "digest": "e"}, []),
        ({"exact": False}, {"digest": "e"}, ["the digest of its messages is e instead of d"]),
        ({"exact": False}, {"messages": 4, "first_seq": 2, "digest": "e"}, ["first_seq is 2 instead of 3"]),
        ({"exact": False}, {"messages": 4, "last_seq": 8, "digest": "e"}, ["last_seq is 8 instead of 9"]),
    ],
)
def test_contents_are_compared(saved: dict[str, Any], restored: dict[str, Any], found: list[str]) -> None:
    assert unproven(manifest(**saved), manifest(**restored)) == found


def test_expired_messages_may_be_missing() -> None:
    lives = manifest(config={"allow_msg_ttl": True})
    fewer = manifest(messages=4, digest="e")
    assert expired_since(lives, fewer)
    assert unproven(lives, fewer) == []
    assert not expired_since(lives, manifest())
    assert not expired_since(manifest(), fewer)
    # The archive is restored completely, and nothing expires in the isolated server.
    assert not expired_since(replace(lives, format=TAR), fewer)


def message(sequence: int, ttl: str = "", body: bytes = b"x") -> ArchivedMessage:
    headers = f"NATS/1.0\r\nNats-TTL: {ttl}\r\n\r\n".encode() if ttl else b""
    return ArchivedMessage(sequence, 100 * 10**9, b"S.a", headers, body)


@pytest.mark.parametrize(
    ("saved", "restored", "found"),
    [
        ([message(1), message(2)], [message(1), message(2)], ""),
        ([], [], ""),
        ([message(1, "10s"), message(2), message(3, "1m")], [message(2)], ""),
        ([message(1, "60")], [], ""),
        ([message(1, "61s"), message(2)], [message(2)], "message 1 is missing"),
        ([message(1, "never"), message(2)], [message(2)], "message 1 is missing"),
        ([message(1), message(2)], [message(2)], "message 1 is missing"),
        ([message(1), message(2)], [message(1)], "message 2 is missing"),
        ([message(1), message(2)], [message(1), message(2, body=b"y")], "message 2 differs"),
        ([message(1)], [message(1), message(2)], "message 2 is not in the backup"),
    ],
)
def test_messages_are_compared_where_some_may_have_expired(
    saved: list[ArchivedMessage], restored: list[ArchivedMessage], found: str
) -> None:
    assert lost(saved, restored, 160.0) == found


def test_the_messages_of_an_archive() -> None:
    path = ARCHIVES / "backup-2.15.1" / "stream.tar.s2"
    with path.open("rb") as one, path.open("rb") as other:
        assert lost(entry_messages(one), entry_messages(other), 0.0) == ""
    with path.open("rb") as file:
        assert len(list(entry_messages(file))) == read_contents(lambda: path.open("rb")).messages > 50


def test_positions_are_compared() -> None:
    saved = manifest(
        consumer("a", 5), consumer("b", 0), consumer("c", 4), {**consumer("e", 1), "config": {"name": "e"}}
    )
    # The consumer was recreated behind its ack floor; all positions below the first message are equivalent.
    began = {"deliver_policy": "by_start_sequence", "opt_start_seq": 6}
    assert unproven(saved, manifest(consumer("a", 0, **began), consumer("b", 2), consumer("c", 4))) == []
    assert unproven(saved, manifest(consumer("a", 4), consumer("b", 3))) == [
        "consumer a is at 4 instead of 5",
        "consumer b is at 3 instead of 2",
        "consumer c is missing",
    ]
