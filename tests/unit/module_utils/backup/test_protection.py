# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.protection import (
    Protection,
    least_proven,
    protections,
)

NOW = datetime(2026, 11, 24, tzinfo=timezone.utc)
FUTURE = "2026-11-25T02:00:00Z"
FIRST, LATER, LAST = "2026-11-21T02:00:00Z", "2026-11-22T02:00:00.5Z", "2026-11-23T02:00:00Z"


def only(catalogue: Catalogue, account: str = "APP", stream: str = "S") -> Protection:
    (found,) = protections(catalogue, [(account, stream)], NOW)
    return found


def test_it_is_of_the_streams_of_the_last_runs_or_of_those_that_are_there() -> None:
    catalogue = Catalogue().saved("APP/B", FIRST).saved("APP/A", FIRST)
    assert [one.name for one in protections(catalogue)] == ["APP/A", "APP/B"]
    assert protections(catalogue, []) == []
    assert protections(catalogue, [("OTHER", "A"), ("APP", "A")]) == [
        Protection("APP", "A", "APP", saved=FIRST),
        Protection("OTHER", "A", "OTHER"),
    ]


def test_a_stream_is_as_safe_as_its_newest_backup_or_when_it_was_last_seen_to_be_the_same() -> None:
    row = {"account": "APP", "stream": "S", "path": "APP/S@1"}
    catalogue = Catalogue(backups=({**row, "taken": LATER}, {**row, "taken": FIRST}, {**row, "taken": None}))
    assert only(catalogue).saved == LATER
    assert only(catalogue.saved("APP/S", LAST)).saved == LAST
    assert only(catalogue.failed("APP/S", "it has no leader")) == Protection(
        "APP", "S", "APP", saved=LATER, problem="it has no leader"
    )
    assert only(catalogue, "OTHER").saved is None


def test_the_last_restore_that_was_proven_outlives_a_drill_that_failed() -> None:
    proven = (
        Catalogue().saved("APP/S", FIRST).proven("APP/S", {"time": FIRST, "ok": True, "reason": "", "seconds": 2.5})
    )
    assert (only(proven).proven, only(proven).drill_problem, only(proven).restore_seconds) == (FIRST, "", 2.5)
    failed = proven.proven("APP/S", {"time": LAST, "ok": False, "reason": "3 messages are missing", "seconds": None})
    found = only(failed)
    assert (found.drilled, found.proven) == (LAST, FIRST)
    assert (found.drill_problem, found.restore_seconds) == ("3 messages are missing", None)
    assert only(Catalogue().proven("APP/S", {"time": LAST, "ok": False, "reason": "no"})).proven is None


def test_streams_excluded_by_the_last_run_are_marked() -> None:
    catalogue = replace(Catalogue(), exclude=("APP/KV_*", "TEST"))
    found = protections(catalogue, [("APP", "KV_a"), ("APP", "S"), ("TEST", "S")])
    assert [one.excluded for one in found] == [True, False, True]


def test_times_of_a_clock_that_was_ahead_do_not_count() -> None:
    row = {"account": "APP", "stream": "S", "path": "APP/S@1"}
    ahead = Catalogue(backups=({**row, "taken": FUTURE}, {**row, "taken": FIRST})).saved("APP/S", FUTURE)
    assert (only(ahead).saved, only(ahead).future_backup) == (FIRST, "APP/S@1")
    proven = ahead.proven("APP/S", {"time": FUTURE, "ok": True, "reason": ""})
    assert (only(proven).drilled, only(proven).proven) == (None, None)
    failed = proven.proven("APP/S", {"time": LAST, "ok": False, "reason": "3 messages are missing"})
    assert (only(failed).proven, only(failed).drill_problem) == (None, "3 messages are missing")


def test_the_stream_whose_proof_is_the_oldest_is_proven_next() -> None:
    streams = ["A/1", "A/2", "A/3"]
    catalogue = Catalogue().proven("A/1", {"time": LATER}).proven("A/2", {"time": FIRST})
    assert least_proven(streams, catalogue, NOW) == "A/3"
    catalogue = catalogue.proven("A/3", {"time": LAST})
    assert least_proven(streams, catalogue, NOW) == "A/2"
    assert least_proven(streams, catalogue.proven("A/3", {"time": FUTURE}), NOW) == "A/3"
