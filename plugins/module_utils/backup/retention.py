# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects which backups of a stream are kept. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from .selection import CLOCK_SKEW


@dataclass(frozen=True)
class Retention:
    """The number of backups to keep: the `last` ones, and the newest of each of the last days, weeks and months that
    have a backup, in UTC. If all are zero, every backup is kept."""

    last: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0

    @property
    def everything(self) -> bool:
        return not (self.last or self.daily or self.weekly or self.monthly)


def expired(taken: Sequence[datetime], keep: Retention, now: datetime, own: Collection[int] = ()) -> list[int]:
    """Return the paths of the backups of one stream that should be removed.

    The newest backup always stays, and so do the backups that this run has taken (the paths `own`). A backup dated in
    the future was taken while the clock was wrong: it stays and does not count towards the limits.
    """
    if keep.everything:
        return []
    dated = [place for place in range(len(taken)) if taken[place] <= now + CLOCK_SKEW]
    newest_first = sorted(dated, key=lambda place: taken[place], reverse=True)
    kept = {*newest_first[: max(keep.last, 1)], *own}
    for count, period in ((keep.daily, _day), (keep.weekly, _week), (keep.monthly, _month)):
        seen: dict[tuple[int, ...], int] = {}
        for place in newest_first:
            seen.setdefault(period(taken[place]), place)
        kept |= set(list(seen.values())[:count])
    return sorted(set(newest_first) - kept)


def _day(time: datetime) -> tuple[int, ...]:
    return time.year, time.month, time.day


def _week(time: datetime) -> tuple[int, ...]:
    return tuple(time.isocalendar()[:2])


def _month(time: datetime) -> tuple[int, ...]:
    return time.year, time.month
