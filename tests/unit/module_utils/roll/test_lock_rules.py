# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests who holds a host's lock, when a lock is free, and when a cluster is locked."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_lock_share import nats_lock_share
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.lock_rules import (
    Holder,
    LockRequest,
    may_take_over,
    owner_label,
    resolve_holder,
    resolve_lock,
    seen_holder,
)
from hypothesis import given
from hypothesis import strategies as st

PROCESS = {"boot": "b", "pid_namespace": "pid:[1]", "pid": 7, "started": 3}
ONE: dict[str, Any] = {"name": "", "user": "ops", "controller": "ctl-1", **PROCESS}
TWO = {**ONE, "pid": 8}
TEXT = "ops@elsewhere process 1"
TIMES = "since 1970-01-01T00:00:10Z, until 1970-01-01T00:01:40Z at the latest"
THEIRS = f"Locked by ops@ctl-1 process 8 for upgrade on n3, {TIMES}"


def held_by(owner: Any, since: int = 10, expires: int = 100) -> dict[str, Any]:
    return {"owner": owner, "purpose": "upgrade", "since": since, "expires": expires}


@pytest.mark.parametrize(
    ("held", "request_", "after"),
    [
        (None, LockRequest(ONE, "restart", 60), {"owner": ONE, "purpose": "restart", "since": 50, "expires": 110}),
        (None, LockRequest(ONE, release=True), None),
        # The lock was renewed, so its start remains the same.
        (
            held_by(ONE),
            LockRequest(ONE, "restart", 60),
            {"owner": ONE, "purpose": "restart", "since": 10, "expires": 110},
        ),
        (held_by(ONE), LockRequest(ONE, release=True), None),
        # The lock of another run is kept.
        (held_by(TWO), LockRequest(ONE, ttl=60), held_by(TWO)),
        (held_by(TEXT), LockRequest(ONE, ttl=60), held_by(TEXT)),
        (held_by(TWO), LockRequest(ONE, release=True), held_by(TWO)),
        # A lock can be broken.
        (
            held_by(TWO),
            LockRequest(ONE, "restart", 60, break_foreign=True),
            {**held_by(ONE, 50, 110), "purpose": "restart"},
        ),
        (held_by(TWO), LockRequest(ONE, release=True, break_foreign=True), None),
        # A lock is taken over only if its own owner is known to have ended.
        (
            held_by(TWO),
            LockRequest(ONE, "restart", 60, take_over_from=TWO),
            {**held_by(ONE, 50, 110), "purpose": "restart"},
        ),
        (held_by(TEXT), LockRequest(ONE, ttl=60, take_over_from=TWO), held_by(TEXT)),
        (None, LockRequest(ONE, "upgrade", 60, take_over_from=TWO), held_by(ONE, 50, 110)),
    ],
)
def test_the_lock_of_one_host(held: Holder, request_: LockRequest, after: Holder) -> None:
    assert resolve_holder(held, request_, now=50.9) == after


@pytest.mark.parametrize(
    ("holder", "owner", "running", "expected"),
    [
        (TWO, ONE, False, True),
        (TWO, ONE, True, False),
        (TWO, ONE, None, False),
        (TEXT, ONE, None, False),
        ({**TWO, "name": "nightly"}, {**ONE, "name": "nightly"}, None, True),
        # The run was started twice at the same time, although its name must be unique.
        ({**TWO, "name": "nightly"}, {**ONE, "name": "nightly"}, True, False),
        ({**TWO, "name": "nightly"}, {**ONE, "name": "weekly"}, None, False),
        ({**TWO, "name": "nightly"}, ONE, None, False),
        (TWO, {**ONE, "name": "nightly"}, None, False),
    ],
)
def test_a_lock_is_free_when_its_run_has_ended(holder: Any, owner: Any, running: bool | None, expected: bool) -> None:
    assert may_take_over(holder, owner, running) is expected


def mine(host: str, until: float = 99) -> dict[str, Any]:
    return {"item": host, "acquired": True, "holder": held_by(ONE), "valid_until": until}


def theirs(host: str, owner: Any = None) -> dict[str, Any]:
    return {"item": host, "acquired": False, "holder": held_by(owner or TWO), "valid_until": 99}


def unreachable(host: str) -> dict[str, Any]:
    return {"item": host, "unreachable": True, "msg": "no route to host"}


HOSTS = ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("answers", "hosts"),
    [
        ([mine("n1"), mine("n2"), mine("n3"), mine("n4")], ("n1", "n2", "n3", "n4")),
        ([mine("n1"), mine("n2"), mine("n3"), theirs("n4")], ("n1", "n2", "n3")),
        # For a host that was queried again, the latest reply counts, and a host that has become unreachable keeps its
        # lock.
        ([mine("n1"), mine("n2"), theirs("n3"), mine("n3", 120)], ("n1", "n2", "n3")),
        ([mine("n1"), mine("n2"), mine("n3"), unreachable("n3")], ("n1", "n2", "n3")),
        ([mine("n1"), mine("n2"), mine("n3"), mine("n9")], ("n1", "n2", "n3")),
    ],
)
def test_more_than_half_of_the_hosts_are_enough(answers: list[dict[str, Any]], hosts: tuple[str, ...]) -> None:
    decision = resolve_lock(answers, HOSTS, now=50)
    assert (decision.acquired, decision.hosts, decision.refusal) == (True, hosts, "")


@pytest.mark.parametrize(
    ("answers", "reasons"),
    [
        ([], ["n1: no answer", "n2: no answer", "n3: no answer", "n4: no answer"]),
        (
            [mine("n1"), mine("n2"), theirs("n3"), unreachable("n4")],
            [f"{THEIRS}; whether its process is running can only be checked on ctl-1.", "n4: no route to host"],
        ),
        # The holder is reported once, no matter how many hosts it has locked.
        (
            [mine("n1"), theirs("n2", TEXT), theirs("n3", TEXT), theirs("n4", TEXT)],
            [
                f"Locked by {TEXT} for upgrade on n2, n3, n4, {TIMES}; whether its process is running can only be checked "
            ],
        ),
        # The refusal is later than the acquisition.
        (
            [mine("n1"), mine("n2"), mine("n3", 80), theirs("n3")],
            [THEIRS, "n4: no answer"],
        ),
        ([mine("n1"), mine("n2"), mine("n3", 50), mine("n9")], ["The lock on n3 has expired.", "n4: no answer"]),
    ],
)
def test_half_of_the_hosts_are_not(answers: list[dict[str, Any]], reasons: list[str]) -> None:
    decision = resolve_lock(answers, HOSTS, now=50)
    assert not decision.acquired
    first, *said = decision.refusal.splitlines()
    assert first.startswith(
        f"The cluster could not be locked; nothing was changed. Locked hosts: {len(decision.hosts)} of 4;"
    )
    # Breaking a lock does not help if no other operation holds it.
    if any(line.startswith("Locked by") for line in said):
        assert "Only if its process is not running any more, break the lock" in said.pop()
    assert len(said) == len(reasons)
    assert all(line.startswith(reason) for line, reason in zip(said, reasons))


@pytest.mark.parametrize(
    ("running", "state", "advice"),
    [
        (True, "its process is still running.", "Wait until that operation has ended, and run the command again."),
        (
            False,
            "its process has ended. To resume it, run its command again with -e before=5.",
            "Only if its process is not running any more",
        ),
    ],
)
def test_refusal_reports_whether_the_holder_is_running(running: bool, state: str, advice: str) -> None:
    answers = [theirs(host) for host in HOSTS]
    answers[3]["holder"] = {**answers[3]["holder"], "since": 5, "expires": 120, "resume": "before=5"}
    _first, holder, last = resolve_lock(answers, HOSTS, 50, lambda owner: running).refusal.splitlines()
    # A renewal reaches the hosts one after another.
    assert "on n1, n2, n3, n4, since 1970-01-01T00:00:05Z, until 1970-01-01T00:02:00Z at the latest" in holder
    assert holder.endswith(state) and advice in last


def test_holder_is_read_in_check_mode() -> None:
    assert seen_holder(theirs("n1")) == held_by(TWO)
    # Check mode predicts that this run gets the lock of an operation that has ended.
    assert seen_holder({**mine("n1"), "broken": held_by(TWO)}) == held_by(TWO)
    assert seen_holder({**mine("n1"), "broken": None}) is None
    assert seen_holder({"unreachable": True}) is None


def test_owners_for_people() -> None:
    assert owner_label({**ONE, "name": "nightly"}) == "nightly: ops@ctl-1 process 7"
    assert owner_label({}) == "?@? process ?"
    assert owner_label(TEXT) == TEXT


@given(st.data())
def test_two_controllers_never_both_lock_a_cluster(data: st.DataObject) -> None:
    """Each controller may reach any set of hosts, in any order, on the first run or on renewals, with locks of runs
    that have ended."""
    members = [f"n{number}" for number in range(data.draw(st.integers(1, 7)))]
    ended = {**ONE, "pid": 99}
    locks: dict[str, Holder] = {
        host: held_by(ended) for host in data.draw(st.lists(st.sampled_from(members), unique=True))
    }
    steps = data.draw(
        st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from(members), st.booleans()), max_size=60)
    )
    owners, answers = (ONE, TWO), ([], [])  # type: tuple[dict[str, Any], ...], tuple[list[Any], ...]
    for number, host, reached in steps:
        if not reached:
            answers[number].append(unreachable(host))
            continue
        before = locks.get(host)
        known = ended if before and may_take_over(before["owner"], owners[number], before["owner"] != ended) else None
        after = resolve_holder(before, LockRequest(owners[number], ttl=100, take_over_from=known), now=50)
        locks[host] = after
        assert after is not None
        result = {"item": host, "acquired": after["owner"] == owners[number], "holder": after}
        answers[number].append({**result, "valid_until": 150})
        assert not all(resolve_lock(one, members, now=50).acquired for one in answers)


@given(st.data())
def test_every_host_of_a_cluster_is_locked_once(data: st.DataObject) -> None:
    """Any hosts of the cluster, and others, are in the play; any of them have failed."""
    members = [f"n{number}" for number in range(data.draw(st.integers(1, 7)))]
    play = data.draw(st.lists(st.sampled_from([*members, "other"]), min_size=1, unique=True))
    failed = data.draw(st.sets(st.sampled_from(play)))
    active = [host for host in play if host not in failed]
    shares = {host: nats_lock_share(members, host, play, active) for host in play}
    assert all(share[0] == host for host, share in shares.items())
    outside = [name for share in shares.values() for name in share[1:]]
    assert sorted(outside) == sorted(set(members) - set(play))
    # A failed host takes no share while another host of the cluster is left; the shares are equal.
    takers = [host for host in active if host in members]
    if takers:
        assert {host for host, share in shares.items() if len(share) > 1} <= set(takers)
        lengths = {len(shares[host]) for host in takers}
        assert max(lengths) - min(lengths) <= 1
