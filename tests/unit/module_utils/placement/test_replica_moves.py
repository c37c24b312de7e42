# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests moves that are refused, and moves that are watched while servers do not respond;
tests/integration/test_peers.py tests real moves."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.placement import replica_moves
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.replica_moves import (
    MoveJob,
    Mover,
    MoveRequest,
    MovesProgress,
    stalled_failure,
    wrong_target,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.stream_state import StreamState
from support.clusters import cluster, consumer, stream

NAMES = ["n1", "n2", "n3", "n4", "n5"]
ORDERS = stream("ORDERS", ["n1", "n2", "n3"])
SINGLE = stream("SINGLE", ["n2"])


class Connections:
    """Replaces the connections: only the state is read, which the tests provide."""

    own = None

    def account(self, _name: str) -> None:
        """Return nothing, because these tests must not change an account."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock is a second later than the previous one."""
    seconds = count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)


@pytest.mark.parametrize(
    ("options", "state", "names", "code", "reason"),
    [
        (
            MoveRequest("n1"),
            StreamState(stream("ORDERS", ["n1", "n2", "n3"], behind=("n2",))),
            NAMES,
            "replicas_not_current",
            "n2",
        ),
        (MoveRequest("n3"), StreamState(ORDERS), ["n1", "n3", "n4", "n5"], "replicas_not_current", "n2"),
        (
            MoveRequest("n2", method="evacuate"),
            StreamState(ORDERS),
            ["n1", "n3", "n4"],
            "server_missing",
            "n2 does not answer",
        ),
        (
            MoveRequest("n1"),
            StreamState(ORDERS),
            NAMES[:3],
            "no_spare_server",
            "there is no other server. Add a server",
        ),
        (MoveRequest("n1", "n3"), StreamState(ORDERS), NAMES, "no_spare_server", "n3 is already a member"),
        (MoveRequest("n1", "n9"), StreamState(ORDERS), NAMES, "no_spare_server", "n9 is unknown"),
        (
            MoveRequest("n1", "n4"),
            StreamState(ORDERS),
            NAMES,
            "unsupported",
            "n4 has no tag that distinguishes it from n5",
        ),
        (
            MoveRequest("n2", "n4"),
            StreamState(ORDERS),
            ["n1", "n3", "n4"],
            "unsupported",
            "only data that n2 itself transfers",
        ),
        (MoveRequest("n2"), StreamState(SINGLE), NAMES, "data_would_be_lost", "before 2.15 may lose messages"),
        (
            MoveRequest("n2", method="remove"),
            StreamState(SINGLE),
            NAMES,
            "data_would_be_lost",
            "all 0 messages of stream",
        ),
        (
            MoveRequest("n2", method="remove"),
            StreamState(replace(ORDERS, consumers=(consumer("ORDERS", "own", ["n2"]),))),
            NAMES,
            "data_would_be_lost",
            "n2 may have the only replica of: consumer APP/ORDERS/own",
        ),
        (
            MoveRequest("n2", method="remove"),
            StreamState(ORDERS, unknown=("lost",)),
            NAMES,
            "data_would_be_lost",
            "consumer APP/ORDERS/lost (it has no leader)",
        ),
    ],
)
def test_forbidden_moves_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: MoveRequest, state: StreamState, names: list[str], code: str, reason: str
) -> None:
    monkeypatch.setattr(Mover, "read", lambda *_arguments: state)

    def prepared(options: MoveRequest) -> MoveJob:
        (job,) = Mover(Connections(), options).prepare(cluster(names, state.stream), [("APP", state.stream.name)])  # type: ignore[arg-type]
        return job

    failure = prepared(options).failure
    assert failure is not None and (failure.code, failure.server) == (code, options.source)
    assert reason in failure.description and failure.description.endswith("Nothing was changed."), failure.description
    if code == "data_would_be_lost":
        assert prepared(replace(options, accept_loss=True)).failure is None


@pytest.mark.parametrize(("code", "ends_early"), [("unreachable", True), ("timeout", False)])
def test_a_move_is_given_up_when_no_server_is_left(
    monkeypatch: pytest.MonkeyPatch, code: str, ends_early: bool
) -> None:
    def read(_mover: Mover, _account: str, _stream: str) -> StreamState:
        raise NatsFailure(code, "no server answers")

    monkeypatch.setattr(Mover, "read", read)
    job = MoveJob(StreamState(stream("ORDERS", ["n1", "n2", "n3"])), started=True)
    outcome = Mover(Connections(), MoveRequest("n1"), ()).carry_out([job], timeout=1800, concurrency=1)  # type: ignore[arg-type]
    assert (outcome.waited < 10 * replica_moves.GRACE) == ends_early
    assert [failure.description for failure in outcome.failures] == (["no server answers"] if ends_early else [])


def test_stalled_move_reports_its_cause_and_the_next_step() -> None:
    behind = StreamState(stream("ORDERS", ["n1", "n2", "n3"], behind=("n2",)), status="catching up")
    done = MoveJob(StreamState(SINGLE), source="n2", settled=True)
    failure = stalled_failure(MovesProgress([done, MoveJob(behind, source="n3")], still=42.0), 60)
    assert (failure.code, failure.server) == ("move_not_done", "n3")
    assert failure.description.startswith("not done after 60 s, nothing changed in the last 42 s. APP/ORDERS: ")
    assert "n3 is still a member of stream APP/ORDERS (server: catching up)" in failure.description
    assert "SINGLE" not in failure.description
    assert "run this again to wait for them, or cancel a move" in failure.description


def test_move_to_the_wrong_server_fails() -> None:
    job = MoveJob(StreamState(ORDERS), source="n4")
    assert wrong_target(job, "n2") is None
    failure = wrong_target(job, "n5")
    assert failure is not None and (failure.code, failure.server) == ("wrong_target", "n5")
    assert failure.description == "stream APP/ORDERS is now on n1, n2, n3, not on n5"


@pytest.mark.parametrize(
    ("behind", "names", "code", "reason"),
    [
        (("n2",), NAMES, "replicas_not_current", "n2"),
        ((), NAMES[:2], "no_spare_server", "1 more server(s) must take a replica, but 0 can"),
    ],
)
def test_a_short_group_that_may_not_be_refilled(
    behind: tuple[str, ...], names: list[str], code: str, reason: str
) -> None:
    """Reducing num_replicas to the remaining members, without a majority of them in step, would leave the stream
    without a leader."""
    item = stream("ORDERS", ["n1", "n2"], behind=behind)
    state = StreamState(replace(item, group=replace(item.group, size=3)))
    with pytest.raises(NatsFailure) as raised:
        Mover(Connections(), MoveRequest("")).repair(state, cluster(names, state.stream), 1)  # type: ignore[arg-type]
    assert raised.value.code == code and reason in raised.value.description
