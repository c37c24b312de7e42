# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for servers, which may not respond for a moment during a leader election."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, Generic, TypeVar

from .nats.failures import NatsFailure

T = TypeVar("T")

#: Seconds to wait for temporary states: an election after a crash or a step-down, a replica a few entries behind.
ELECTION_SECONDS = 15.0

POLL_SECONDS = 0.5

#: Failures that resolve themselves when a group elects a leader or a server shuts down; 10008: temporarily unavailable.
_TRANSIENT = ("timeout", "no_responders", "connection_lost", "unreachable")
_TRANSIENT_ERR_CODES = (10008,)


@dataclass(frozen=True)
class Seen(Generic[T]):
    """The last reading of a wait, whether the condition was met, and the seconds that the wait took."""

    value: T
    done: bool
    waited: float


def wait_until(read: Callable[[], T], done: Callable[[T], bool], timeout: float, interval: float = 0.2) -> Seen[T]:
    """Read until `done` returns true or `timeout` seconds have passed; there is always at least one reading.

    If a reading fails because there is no leader or the connection broke, it is repeated, because servers do not
    respond for a moment while they change leaders. Raises the NatsFailure if readings still fail at the deadline.
    """
    started = time.monotonic()
    while True:
        failure: NatsFailure | None = None
        try:
            value = read()
            if done(value):
                return Seen(value, True, round(time.monotonic() - started, 3))
        except NatsFailure as caught:
            if not is_transient(caught):
                raise
            failure = caught
        if time.monotonic() - started >= timeout:
            if failure is not None:
                raise failure
            return Seen(value, False, round(time.monotonic() - started, 3))
        time.sleep(interval)


def is_transient(failure: NatsFailure) -> bool:
    """Return whether a failure resolves itself once a leader is elected or a different server is connected."""
    return failure.code in _TRANSIENT or failure.err_code in _TRANSIENT_ERR_CODES


def positive(value: float, option: str) -> float:
    """Return a number of seconds. Raises NatsFailure invalid_option if it is not greater than 0."""
    if value <= 0:
        raise NatsFailure("invalid_option", f"{option}: must be more than 0 seconds, not {value:g}")
    return value
