# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publishers that record their messages while servers restart, and how long each of them had to wait."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from support.load import Load, LoadPlan, compare, patiently

#: Seconds of load before and after the measurement, and the limit for each publisher's first acknowledgement.
LEAD, FIRST = 5.0, 60.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class Waits:
    """The publishers' waits in seconds: `gap` is the longest time without an acknowledgement for any of them,
    `quiet` the same before the work. `retries` counts the messages that were not acknowledged in time."""

    gap: float
    quiet: float
    retries: int
    acknowledged: int


class Publishers(Load):
    """One publisher for each stream, with no other load."""

    async def run(self) -> None:
        await asyncio.gather(*(self._produce(ledger) for ledger in self.ledgers))

    async def check(self) -> tuple[int, list[str]]:
        """Return how many acknowledged messages are missing, and all discrepancies: missing, duplicate and out-of-order
        messages."""
        lost, problems = 0, []
        async with self._client() as client:
            for ledger in self.ledgers:
                stored = (await patiently(partial(self._stored, client, ledger.stream))).get(ledger.subject, [])
                lost += len(set(ledger.acknowledged).difference(stored))
                problems += compare(ledger, stored)
        return lost, problems

    async def remove(self) -> None:
        """Delete the streams."""
        async with self._client() as client:
            for stream in self.plan.streams:
                await patiently(partial(client.jetstream(timeout=5).delete_stream, stream))

    def _wait_for_all(self) -> None:
        """Return once each publisher has had an acknowledgement."""
        end = time.monotonic() + FIRST
        while silent := [ledger.subject for ledger in self.ledgers if not ledger.times]:
            if time.monotonic() > end:
                raise SystemExit(f"no acknowledgement after {FIRST:.0f} s for {', '.join(silent)}")
            time.sleep(0.1)

    def during(
        self, work: Callable[[], Result], context: contextlib.AbstractContextManager[object] | None = None
    ) -> tuple[Result, float, Waits]:
        """Run the work while the publishers run; return its result, its seconds and the publishers' waits.

        `context` is entered before the work and left LEAD seconds after it.
        """
        self._wait_for_all()
        begun = time.monotonic()
        time.sleep(LEAD)
        started = time.monotonic()
        with context or contextlib.nullcontext():
            result = work()
            seconds = time.monotonic() - started
            time.sleep(LEAD)
        ended = time.monotonic()
        waits = Waits(
            gap=round(max(longest_gap(ledger.times, started, ended) for ledger in self.ledgers), 3),
            quiet=round(max(longest_gap(ledger.times, begun, started) for ledger in self.ledgers), 3),
            retries=sum(ledger.retries for ledger in self.ledgers),
            acknowledged=sum(len(ledger.acknowledged) for ledger in self.ledgers),
        )
        return result, seconds, waits


def publishers(urls: Sequence[str], user: str, password: str, letters: str, streams: int, rate: float) -> Publishers:
    """Return publishers of `rate` messages a second each, to streams with three replicas whose names begin with
    `letters`."""
    plan = LoadPlan(streams={f"{letters}{number:03}": 3 for number in range(streams)}, producers=1, rate=rate)
    # Servers check a bcrypt hash for each connection: many simultaneous connections have to wait, and retries make the
    # wait longer.
    return Publishers(urls, user, password, plan, connect_timeout=10)


def longest_gap(times: Sequence[float], start: float, end: float) -> float:
    """Return the longest time between two acknowledgements, or between one of them and the start or the end."""
    within = [start, *(moment for moment in times if start < moment < end), end]
    return max(after - before for before, after in zip(within, within[1:], strict=False))
