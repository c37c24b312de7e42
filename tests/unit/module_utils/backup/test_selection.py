# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.selection import (
    SelectionError,
    asked_for,
    choose,
    folder_name,
    matches,
    only_stream,
    parse_taken,
)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*"], True),
        (["APP"], True),
        (["APP/ORDERS"], True),
        (["APP/ORD*"], True),
        (["*/ORDERS"], True),
        (["A?P/ORDER?"], True),
        (["ORDERS"], False),
        (["APP/orders"], False),
        (["OTHER", "APP/KV_*"], False),
        ([], False),
    ],
)
def test_pattern_matches(patterns: list[str], expected: bool) -> None:
    assert matches("APP", "ORDERS", patterns) is expected


@pytest.mark.parametrize(
    ("text", "names_accounts", "expected"),
    [
        ("APP/ORDERS", True, ("APP", "ORDERS")),
        ("APP/ORDERS", False, ("APP", "ORDERS")),
        ("ORDERS", False, (None, "ORDERS")),
        # The name of a stream without account in results, see stream_key.
        ("/ORDERS", True, (None, "ORDERS")),
        ("APP/a[b]", True, ("APP", "a[b]")),
    ],
)
def test_only_stream_is_named(text: str, names_accounts: bool, expected: tuple[str | None, str]) -> None:
    assert only_stream([text], names_accounts) == expected


@pytest.mark.parametrize(
    ("selected", "names_accounts", "reason"),
    [
        (["*"], False, r"\* is a pattern"),
        (["APP/ORD*"], True, r"APP/ORD\* is a pattern"),
        (["A?P/ORDERS"], True, r"A\?P/ORDERS is a pattern"),
        ([], True, "not 0: select one as ACCOUNT/STREAM"),
        (["APP/A", "APP/B"], True, r"not 2 \(APP/A, APP/B\)"),
        (["APP/A", "APP/A"], True, "not 2"),
        # With users of accounts, a text without a slash is an account.
        (["APP"], True, "'APP' does not name one"),
        (["APP/"], False, "'APP/' does not name one"),
        ([""], False, "'' does not name one"),
        (["/"], False, "'/' does not name one"),
    ],
)
def test_only_stream_refuses_other_selections(selected: list[str], names_accounts: bool, reason: str) -> None:
    with pytest.raises(SelectionError, match=reason):
        only_stream(selected, names_accounts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-23T02:00:00Z", (2, 0, 0, 999_999)),
        ("2026-11-23T02:00:00.5Z", (2, 0, 0, 500_000)),
        ("2026-11-23T03:00:00.123456+01:00", (2, 0, 0, 123_456)),
        ("20261123T020000.123456Z", (2, 0, 0, 123_456)),
        ("20261123T020005Z", (2, 0, 5, 999_999)),
        ("20261123T0200Z", (2, 0, 59, 999_999)),
        ("2026-11-23", (23, 59, 59, 999_999)),
        ("20261123", (23, 59, 59, 999_999)),
        ("2026-11-23T02:00", (2, 0, 0, 999_999)),
    ],
)
def test_times(text: str, expected: tuple[int, int, int, int]) -> None:
    assert parse_taken(text) == datetime(2026, 11, 23, *expected, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01",
        "2026-11-23T25:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(SelectionError, match="is not a time such as"):
        parse_taken(text)


def row(account: str | None, stream: str, taken: str | None) -> dict[str, Any]:
    return {"account": account, "stream": stream, "taken": taken}


BACKUPS = [
    row("APP", "ORDERS", "2026-11-21T02:00:00.000000Z"),
    row("APP", "ORDERS", "2026-11-22T02:00:00.000000Z"),
    row("APP", "EVENTS", "2026-11-22T02:00:01.000000Z"),
    row("OTHER", "ORDERS", "2026-11-22T02:00:02.000000Z"),
    row(None, "OLD", None),
]


@pytest.mark.parametrize(
    ("patterns", "at", "expected"),
    [
        (["APP/ORDERS"], None, [1]),
        (["APP/ORDERS@2026-11-21"], None, [0]),
        (["APP/ORDERS@20261122T020000.000000Z"], None, [1]),
        (["APP"], None, [1, 2]),
        (["APP"], "2026-11-22T02:00:00Z", [1]),
        (["APP@2026-11-21"], "2026-11-22", [0]),
        (["*"], None, [1, 2, 3, 4]),
        (["*/ORDERS"], None, [1, 3]),
        (["APP/ORDERS", "APP/O*"], None, [1]),
    ],
)
def test_the_newest_backup_by_then(patterns: list[str], at: str | None, expected: list[int]) -> None:
    assert choose(BACKUPS, patterns, at) == expected


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        (
            ["APP/NONE"],
            "there is no backup of APP/NONE; there are backups of /OLD, APP/EVENTS, APP/ORDERS, OTHER/ORDERS",
        ),
        (["APP/ORDERS@2026-11-20"], "the oldest one of APP/ORDERS was taken at 2026-11-21T02:00:00.000000Z"),
        (["APP/ORDERS", "APP/ORDERS@2026-11-21"], "APP/ORDERS is requested at two different times"),
    ],
)
def test_missing_backups_are_reported(patterns: list[str], reason: str) -> None:
    with pytest.raises(SelectionError, match=reason):
        choose(BACKUPS, patterns)


def test_account_is_selected_by_name_or_identity() -> None:
    rows = [
        {"account": account, "account_name": name, "stream": "ORDERS", "taken": "2026-11-23T02:00:00Z"}
        for account, name in (("AKEY", "APP"), ("BKEY", "TWIN"), ("CKEY", "TWIN"), ("DKEY", None))
    ]
    assert [choose(rows, [text]) for text in ("APP", "APP/ORDERS@2026-11-24", "AKEY/*", "DKEY")] == [[0], [0], [0], [3]]
    with pytest.raises(SelectionError, match="2 accounts are named TWIN: BKEY, CKEY"):
        choose(rows, ["TWIN/ORDERS"])
    with pytest.raises(SelectionError, match="there are backups of APP/ORDERS, BKEY/ORDERS, CKEY/ORDERS, DKEY/ORDERS"):
        choose(rows, ["OTHER"])


def test_folder_name_is_parsed() -> None:
    name = folder_name("APP%2EX/ORDERS@x@20261123T020000.123456Z")
    assert name is not None and (name.account, name.stream) == ("APP.X", "ORDERS@x")
    assert (name.taken.hour, name.taken.microsecond) == (2, 123_456)
    alone = folder_name("_/S@20261123T020000Z")
    assert alone is not None and alone.account is None
    assert [folder_name(folder) for folder in ("", "S", "APP/S@then", "APP/S@99991231T235959Z@")] == [None] * 4


@pytest.mark.parametrize(
    ("patterns", "at", "expected"),
    [
        (["*"], None, {"APP/A": "APP/A@20261122T020000Z", "APP/B": "APP/B@20261121T020000Z"}),
        (["APP/A"], "2026-11-21", {"APP/A": "APP/A@20261121T020000Z"}),
        (["APP/A@2026-11-20"], None, {}),
        (["APP/B@20261121T020000Z", "OTHER"], None, {"APP/B": "APP/B@20261121T020000Z"}),
    ],
)
def test_the_newest_folder_by_then(patterns: list[str], at: str | None, expected: dict[str, str]) -> None:
    folders = [f"APP/A@202611{day}T020000Z" for day in (21, 22)]
    folders += ["APP/B@20261121T020000Z", "APP/B@20991121T020000Z", "x", "_/S@then"]
    assert asked_for(folders, patterns, at, datetime(2026, 11, 24, tzinfo=timezone.utc)) == expected


def test_streams_are_restored_by_names_with_marks_of_patterns_and_times() -> None:
    rows = [
        {"account": "APP", "account_name": None, "stream": name, "taken": taken}
        for name in ("A@B", "A", "[x]", "x")
        for taken in ("2026-11-21T02:00:00Z", "2026-11-22T02:00:00Z")
    ]
    texts = ["APP/A@B", "APP/A@B@2026-11-21", "APP/A@2026-11-21", "APP/[x]", "APP/x"]
    assert [choose(rows, [text]) for text in texts] == [[1], [0], [2], [5], [7]]
    assert not matches("APP", "x", ["APP/[x]"])
