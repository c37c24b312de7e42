# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept beside an archive, and when it is what the stream still is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.manifest import (
    Manifest,
    ManifestError,
    changes,
    consumer_entries,
    outdated,
    read_manifest,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.verify import Consumer, Contents

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


def contents(*consumers: Consumer) -> Contents:
    return Contents("tar", 3, 90, 10, 1, 4, "0", consumers, None)


def manifest(**more: Any) -> Manifest:
    found = {"account": "APP", "created": "then", "consumers": consumer_entries([info()], None), **more}
    return Manifest("S", CONFIG, STATE, NAME, **found)


def stream(**more: Any) -> dict[str, Any]:
    return {"created": "then", "config": CONFIG, "state": STATE, **more}


def test_it_is_read_as_it_was_written() -> None:
    written = manifest(caveats=("one",), contents={"messages": 3}, changed_meanwhile={"messages": 0}, size=9)
    assert read_manifest(written.text(), [NAME]) == written


def test_what_the_nats_cli_writes() -> None:
    found = read_manifest(json.dumps({"config": CONFIG, "state": STATE}), [NAME])
    assert (found.stream, found.archive, found.sha256, found.contents) == ("S", NAME, None, None)
    with pytest.raises(ManifestError, match="not one archive beside it: none"):
        read_manifest(json.dumps({"config": CONFIG, "state": STATE}), [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", "not a JSON object"),
        ('{"config": {}}', "its schema is None None"),
        (json.dumps({**json.loads(manifest().text()), "version": 2}), "its schema is 'natsops.stream_backup' 2"),
        (json.dumps({**json.loads(manifest().text()), "stream": 1, "consumers": {}}), "it has no stream, consumers"),
        (json.dumps({**json.loads(manifest().text()), "archive": "../x"}), "its archive '../x' is not there"),
    ],
)
def test_a_file_that_describes_no_backup(text: str, reason: str) -> None:
    with pytest.raises(ManifestError, match=reason):
        read_manifest(text, [NAME])


def test_consumers_of_the_archive_and_of_their_leaders() -> None:
    """The position is the archive's, where it has one: the leaders' was read before."""
    archived = Consumer("both", {"durable_name": "both"}, pair(9), pair(8), 1)
    only = Consumer("only", {"durable_name": "only"}, pair(2), pair(1), 1)
    found = consumer_entries([info("both", 5), info("left", 3, metadata={"_nats.ver": "1"})], contents(archived, only))
    assert [(entry["name"], entry["ack_floor"]["stream_seq"], entry["in_archive"]) for entry in found] == [
        ("both", 8, True),
        ("left", 3, False),
        ("only", 1, True),
    ]
    assert found[1]["config"] == {"durable_name": "left"}
    assert consumer_entries([info()], None)[0]["in_archive"] is None


def test_a_backup_that_is_still_right() -> None:
    assert outdated(manifest(), "APP", stream(), [info()]) == ""
    assert outdated(manifest(consumers=()), "APP", stream(), None) == ""
    # What servers say of themselves is no configuration.
    restarted = {**CONFIG, "metadata": {"team": "shop", "_nats.ver": "2.15.1"}}
    assert outdated(manifest(), "APP", stream(config=restarted), [info()]) == ""


@pytest.mark.parametrize(
    ("saved", "now", "consumers", "reason"),
    [
        ({"account": "OTHER"}, {}, [info()], "another one of the same name"),
        ({}, {"created": "later"}, [info()], "another one of the same name"),
        ({}, {"config": {**CONFIG, "max_age": 1}}, [info()], "its configuration"),
        ({}, {"state": {**STATE, "last_seq": 5, "num_deleted": 2}}, [info()], "messages were stored"),
        ({"changed_meanwhile": {"messages": 1}}, {}, [info()], "messages were stored"),
        ({}, {}, [info(floor=3)], "consumers were changed"),
        ({}, {}, [info(pending=2)], "consumers were changed"),
        ({}, {}, [info(max_deliver=3)], "consumers were changed"),
        ({}, {}, [], "consumers were changed"),
        ({}, {}, None, "the backup has consumers"),
    ],
)
def test_a_backup_that_is_not(saved: dict[str, Any], now: dict[str, Any], consumers: Any, reason: str) -> None:
    assert reason in outdated(replace(manifest(), **saved), "APP", stream(**now), consumers)


def test_what_changed_meanwhile() -> None:
    after = {"messages": 5, "first_seq": 2, "last_seq": 7}
    assert changes(STATE, after) == {"messages": 2, "first_seq": 1, "last_seq": 3, "num_deleted": -1}
