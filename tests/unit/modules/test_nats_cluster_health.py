# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the gate opens: a script of good and bad samples in place of a cluster."""

from __future__ import annotations

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._quorum import ERROR, Problem
from ansible_collections.natsops.jetstream.plugins.modules.nats_cluster_health import (
    SHOWN,
    Outcome,
    Sample,
    message,
    wait_for_health,
)

GOOD = Sample(None, (), (), ())
BAD = Sample(None, (Problem("server_missing", ERROR, "n3", "expected server n3 did not answer"),), (), ())


def gate(script: list[Sample], **options: Any) -> Outcome:
    """Return the outcome over a script whose last sample goes on for ever."""
    left = list(script)
    params = {"wait": True, "wait_timeout": 5, "interval": 0.01, "samples": 3, "span": 0, **options}
    return wait_for_health(lambda: left.pop(0) if len(left) > 1 else left[0], params)


def test_good_samples_in_a_row() -> None:
    assert (gate([GOOD]).healthy, gate([GOOD]).samples) == (True, 3)
    assert gate([GOOD, GOOD, BAD, GOOD]).samples == 6


def test_good_samples_over_enough_time() -> None:
    outcome = gate([GOOD], span=0.1)
    assert outcome.healthy
    assert outcome.waited >= 0.1
    assert outcome.samples > 3
    assert gate([GOOD, GOOD, BAD, GOOD], span=0.1).waited >= 0.12


def test_time_is_over() -> None:
    outcome = gate([BAD], wait_timeout=0.1)
    assert not outcome.healthy
    assert 0.05 <= outcome.waited < 1
    assert message(outcome).splitlines()[1:] == ["- expected server n3 did not answer"]


def test_one_look() -> None:
    for sample in (GOOD, BAD):
        outcome = gate([sample], wait=False, span=10)
        assert (outcome.healthy, outcome.samples) == (sample is GOOD, 1)


def test_many_reasons_stay_readable() -> None:
    many = Sample(None, BAD.errors * (SHOWN + 5), (), ())
    lines = message(Outcome(False, many, 1, 0)).splitlines()
    assert len(lines) == SHOWN + 2
    assert "5 more" in lines[-1]
