# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves that are watched while servers do not answer; tests/integration/test_peers.py has real ones."""

from __future__ import annotations

import time
from itertools import count

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.operations import replica_moves
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.replica_moves import (
    Job,
    Mover,
    MoveRequest,
    State,
)
from support.clusters import stream


class Connections:
    """Nobody is asked for anything but the state, which the tests say."""

    own = None


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a second later than the one before."""
    seconds = count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)


@pytest.mark.parametrize(("code", "ends_early"), [("unreachable", True), ("timeout", False)])
def test_a_move_is_given_up_when_no_server_is_left(
    monkeypatch: pytest.MonkeyPatch, code: str, ends_early: bool
) -> None:
    def read(_mover: Mover, _account: str, _stream: str) -> State:
        raise NatsFailure(code, "no server answers")

    monkeypatch.setattr(Mover, "read", read)
    job = Job(State(stream("ORDERS", ["n1", "n2", "n3"])), started=True)
    outcome = Mover(Connections(), MoveRequest("n1"), ()).carry_out([job], timeout=1800, concurrency=1)  # type: ignore[arg-type]
    assert (outcome.waited < 10 * replica_moves.GRACE) == ends_early
    assert [failure.description for failure in outcome.failures] == (["no server answers"] if ends_early else [])
