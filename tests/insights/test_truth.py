# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how findings are scored on a fleet whose true state is completely known. test_judged_hours.py scores the
findings of the jobs."""

from __future__ import annotations

from jetstream_insights.findings import REGISTRY
from support.truth import SERVER_FAULTS, STREAM_FAULTS, Score, judged, planted


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
