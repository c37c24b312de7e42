# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conditions under which the quorum watch counts a member as unavailable."""

from __future__ import annotations

from support.quorum_watch import BEHIND, META, View, away, view

SERVERS = frozenset({"n1", "n2", "n3"})
GROUPS = {META: SERVERS, "APP/ORDERS": SERVERS}


def whole(last: int = 100) -> View:
    return View(True, {"APP/ORDERS": last}, {"APP/ORDERS": SERVERS})


def test_all_servers_are_available() -> None:
    views = {"n1": whole(), "n2": whole(), "n3": whole(100 + BEHIND)}
    assert away(GROUPS, views) == {META: [], "APP/ORDERS": []}


def test_silent_server_is_missing_from_all_groups() -> None:
    assert away(GROUPS, {"n1": whole()}) == {META: ["n2", "n3"], "APP/ORDERS": ["n2", "n3"]}


def test_returned_server_counts_after_catching_up() -> None:
    views = {"n1": whole(), "n2": View(False), "n3": whole(99 - BEHIND)}
    assert away(GROUPS, views) == {META: ["n2"], "APP/ORDERS": ["n2", "n3"]}


def test_an_answer_is_read() -> None:
    group = {"leader": "n1", "replicas": [{"name": "n2"}, {"name": "n3"}]}
    stream = {"name": "ORDERS", "state": {"last_seq": 7}, "cluster": group}
    answer = {"meta_cluster": {"leader": "n1"}, "account_details": [{"name": "APP", "stream_detail": [stream]}]}
    assert view(answer) == whole(7)
    assert view({"disabled": True}) == View(False)
