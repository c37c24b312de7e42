# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how findings are scored on a fleet whose true state is completely known. test_judged_hours.py scores the
findings of the jobs."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Any

import pytest
from jetstream_insights.findings import REGISTRY
from support.truth import SERVER_CONDITIONS, SERVER_FAULTS, STREAM_FAULTS, Score, hide, judged, planted


def test_a_false_finding_and_a_missed_one_are_counted() -> None:
    truth = planted(servers=20)
    must = [*truth.must()]
    names = dict.fromkeys(("fleet", "state", "server", "account", "stream", "consumer", "name"), "")
    rows = [{"check": check, **names, **subject, "severity": "warning"} for check, subject in must]
    assert not judged(truth, rows).missed
    assert not judged(truth, rows).false
    invented = {"check": "SERVER_102", **names, "server": "x", "severity": "critical"}
    found = judged(truth, [*rows[1:], invented])
    assert found.missed == [must[0]]
    assert found.false == [invented]
    assert found.scores["SERVER_102"] == Score(planted=2, hit=2, false=1) or must[0][0] == "SERVER_102"


def test_faults_name_existing_checks() -> None:
    for fault in (*SERVER_FAULTS, *STREAM_FAULTS):
        assert {*fault.checks, *fault.also} <= set(REGISTRY.checks), fault.name


@pytest.mark.parametrize("servers", [20, 40, 100, 300, 1000])
def test_no_server_has_faults_that_hide_each_other(servers: int) -> None:
    for part in planted(servers).parts:
        faults = defaultdict(list)
        for server, fault in part.wrong_servers:
            faults[server].append(fault)
        hidden = [
            (part.name(server), one.name, other.name)
            for server, there in faults.items()
            for one, other in combinations(there, 2)
            if hide(one, other)
        ]
        assert not hidden


def test_faults_that_change_the_same_value_are_known_to_hide_each_other() -> None:
    """`Fault.hides` also lists faults whose values only a check combines, which this test does not find."""

    def reply(table: str, *faults: Any) -> dict[str, Any]:
        data: dict[str, Any] = {"api": {"inflight": 0}, "jetstream": {"config": {}}, "config": {}, "remotes": 9}
        for fault in faults:
            fault.tables[table](data, 1000.0)
        return {**data, **{f"api.{name}": value for name, value in data["api"].items()}, "api": None, "lines": None}

    wrong = []
    for one, other in combinations((*SERVER_FAULTS, *SERVER_CONDITIONS), 2):
        for table in set(one.tables) & set(other.tables):
            both, healthy = reply(table, one, other), reply(table)
            for fault in (one, other):
                alone = reply(table, fault)
                changed = {name for name, value in alone.items() if value != healthy.get(name)}
                if any(both[name] != alone[name] for name in changed - {"jetstream", "config"}) and not hide(
                    one, other
                ):
                    wrong.append((one.name, other.name))
    assert not wrong
    names = {fault.name: fault for fault in SERVER_FAULTS}
    assert hide(names["API queue"], names["API errors"])
    assert hide(names["no memory limit"], names["memory"])
