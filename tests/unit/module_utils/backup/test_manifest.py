# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the manifest next to an archive, and whether it still describes the stream."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive_contents import (
    ArchiveContents,
    ArchivedConsumer,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.manifest import (
    Manifest,
    ManifestError,
    archive_differences,
    changes,
    consumer_entries,
    outdated,
    read_manifest,
    sealed_text,
)

STATE = {"messages": 3, "bytes": 90, "first_seq": 1, "last_seq": 4, "num_deleted": 1}
CONFIG = {"name": "S", "subjects": ["S.>"], "metadata": {"team": "shop", "_nats.ver": "2.12.0"}}
NAME = "stream.tar.s2"


def pair(sequence: int) -> dict[str, int]:
    return {"consumer_seq": sequence, "stream_seq": sequence}


def info(name: str = "c", floor: int = 2, pending: int = 1, **config: Any) -> dict[str, Any]:
    return {
        "name": name,
        "config": {"durable_name": name, **config},
        "delivered": pair(floor + pending),
        "ack_floor": {**pair(floor), "last_active": "2026-11-23T21:50:05Z"},
        "num_ack_pending": pending,
    }


def contents(*consumers: ArchivedConsumer) -> ArchiveContents:
    return ArchiveContents("tar", 3, 90, 10, 1, 4, "0", consumers, None)


def manifest(**more: Any) -> Manifest:
    found = {
        "account": "APP",
        "created": "then",
        "taken": "2026-11-23T02:00:00Z",
        "size": 9,
        "sha256": "ab",
        "consumers": consumer_entries([info()], None),
        **more,
    }
    return Manifest("S", CONFIG, STATE, NAME, **found)


def stream(**more: Any) -> dict[str, Any]:
    return {"created": "then", "config": CONFIG, "state": STATE, **more}


def test_it_is_read_as_it_was_written() -> None:
    written = manifest(
        caveats=("one",), contents=contents().as_dict(), changed_meanwhile={"messages": -1}, seconds=0.25
    )
    assert read_manifest(written.text(), [NAME]) == written


def test_manifest_of_the_nats_cli() -> None:
    found = read_manifest(json.dumps({"config": CONFIG, "state": STATE}), [NAME])
    assert (found.stream, found.archive, found.sha256, found.contents) == ("S", NAME, None, None)
    with pytest.raises(ManifestError, match="exactly one archive next to it: none"):
        read_manifest(json.dumps({"config": CONFIG, "state": STATE}), [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON: it is nested too deeply"),
        ("[]", "not a JSON object"),
        ('{"config": {}}', "its schema is None None"),
        ('{"config": {}, "state": {"messages": "x"}}', "it has no valid config, state"),
        ('{"config": {"name": "S", "metadata": [1]}, "state": {}}', "it has no valid config"),
    ],
)
def test_a_file_that_describes_no_backup(text: str, reason: str) -> None:
    with pytest.raises(ManifestError, match=reason):
        read_manifest(text, [NAME])


def document(**changed: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(manifest(contents=contents().as_dict()).as_dict())), **changed}


def wrong(key: str, *values: Any) -> list[tuple[dict[str, Any], str]]:
    return [({key: value}, f"it has no valid {key}") for value in values]


def entry(**changed: Any) -> dict[str, Any]:
    return {**document()["consumers"][0], **changed}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"version": 2}, "its schema is 'natsops.stream_backup' 2"),
        ({"stream": 1, "consumers": {}}, "it has no valid stream, consumers"),
        ({"stream": "T"}, "it names stream T, but contains the configuration of S"),
        ({"archive": "../x"}, "its archive '../x' does not exist"),
        ({"sha256": None, "size": None}, "it has no valid size, sha256"),
        *wrong("caveats", None, 3, [1]),
        *wrong("taken", 5, [1], None, "yesterday", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"),
        *wrong("contents", [1], "x", {}, {"messages": -1}),
        *wrong("consumers", [None], [{}], [entry(ack_floor={})], [entry(in_archive="yes")], [entry(config=[1])]),
        *wrong("config", {}, {**CONFIG, "metadata": [1]}, {**CONFIG, "subjects": "S.>"}, {**CONFIG, "max_age": "1h"}),
        ({"state": {"last_seq": "9"}}, "it has no valid state"),
        ({"encryption": {"recipients": [1]}}, "it has no valid encryption"),
    ],
)
def test_sealed_file_with_unexpected_fields(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ManifestError, match=reason):
        read_manifest(sealed_text(document(**changed)), [NAME])


@pytest.mark.parametrize(
    "changed",
    [
        {"config": {**CONFIG, "max_msgs": 10}},
        {"config": {**CONFIG, "subjects": ["other.>"]}},
        {"taken": "2026-11-24T02:00:00Z"},
        {"account": "OTHER"},
        {"consumers": []},
        {"sha256": None, "size": None},
        {"seal": None},
    ],
)
def test_an_edit_breaks_the_seal(changed: dict[str, Any]) -> None:
    written = json.loads(sealed_text(document()))
    assert read_manifest(json.dumps(written), [NAME]).stream == "S"
    with pytest.raises(ManifestError, match="its seal does not match: it was modified or damaged"):
        read_manifest(json.dumps({**written, **changed}), [NAME])


def test_consumers_that_were_edited_with_a_new_seal() -> None:
    archived = ArchivedConsumer("c", {}, pair(9), pair(8), 1)
    held = contents(archived)
    saved = manifest(contents=held.as_dict(), consumers=consumer_entries([info(), info("left")], held))
    assert archive_differences(saved, held) == []
    moved = tuple({**entry, "ack_floor": pair(7)} for entry in saved.consumers)
    for edited in (replace(saved, consumers=()), replace(saved, consumers=moved)):
        assert archive_differences(edited, held) == ["its consumers c differ from the backup"]


def test_consumers_of_the_archive_and_of_their_leaders() -> None:
    """The position comes from the archive if it has one, because the leaders' positions were read earlier."""
    archived = ArchivedConsumer("both", {"durable_name": "both"}, pair(9), pair(8), 1)
    only = ArchivedConsumer("only", {"durable_name": "only"}, pair(2), pair(1), 1)
    found = consumer_entries([info("both", 5), info("left", 3, metadata={"_nats.ver": "1"})], contents(archived, only))
    assert [(entry["name"], entry["ack_floor"]["stream_seq"], entry["in_archive"]) for entry in found] == [
        ("both", 8, True),
        ("left", 3, False),
        ("only", 1, True),
    ]
    assert found[1]["config"] == {"durable_name": "left"}
    assert consumer_entries([info()], None)[0]["in_archive"] is None


@pytest.mark.parametrize(
    ("delivered", "pending", "archived", "expected"),
    [
        (80, 1, ArchivedConsumer("c", {}, pair(80), pair(0), 1), 1),
        # These messages were acknowledged and delivered while the archive was being written.
        (80, 3, ArchivedConsumer("c", {}, pair(85), pair(0), 1), 1),
        # An archive from a 2.15 cluster has only the ack floor; an archive from 2.14 or earlier may lack the consumer.
        (80, 1, ArchivedConsumer("c", {}, pair(0), pair(0), 0), 80),
        (80, 1, None, 80),
        (80, 0, None, 0),
    ],
)
def test_redelivered_messages(delivered: int, pending: int, archived: ArchivedConsumer | None, expected: int) -> None:
    seen = {**info("c", 0), "delivered": pair(delivered), "num_ack_pending": pending}
    (entry,) = consumer_entries([seen], contents(*([archived] if archived else [])))
    assert entry["redelivered"] == expected


def test_a_backup_that_is_still_right() -> None:
    assert outdated(manifest(), "APP", stream(), [info()]) == ""
    assert outdated(manifest(consumers=()), "APP", stream(), None) == ""
    # The servers' own metadata is not part of the configuration.
    restarted = {**CONFIG, "metadata": {"team": "shop", "_nats.ver": "2.15.1"}}
    assert outdated(manifest(), "APP", stream(config=restarted), [info()]) == ""


@pytest.mark.parametrize(
    ("saved", "now", "consumers", "reason"),
    [
        ({"account": "OTHER"}, {}, [info()], "recreated under the same name"),
        ({}, {"created": "later"}, [info()], "recreated under the same name"),
        ({}, {"config": {**CONFIG, "max_age": 1}}, [info()], "its configuration"),
        ({}, {"state": {**STATE, "last_seq": 5, "num_deleted": 2}}, [info()], "messages have been stored"),
        ({"changed_meanwhile": {"messages": 1}}, {}, [info()], "messages have been stored"),
        ({}, {}, [info(floor=3)], "consumers have changed"),
        ({}, {}, [info(pending=2)], "consumers have changed"),
        ({}, {}, [info(max_deliver=3)], "consumers have changed"),
        ({}, {}, [], "consumers have changed"),
        ({}, {}, None, "the backup has consumers"),
    ],
)
def test_a_backup_that_is_not(saved: dict[str, Any], now: dict[str, Any], consumers: Any, reason: str) -> None:
    assert reason in outdated(replace(manifest(), **saved), "APP", stream(**now), consumers)


def test_changes_during_a_backup() -> None:
    after = {"messages": 5, "first_seq": 2, "last_seq": 7}
    assert changes(STATE, after) == {"messages": 2, "first_seq": 1, "last_seq": 3, "num_deleted": -1}
