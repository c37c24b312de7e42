# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which backups of a stream are kept. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Keep:
    """How many are kept: the `last` ones, and the newest one of each of the last days, weeks and months that have one, by UTC.
    All zero keeps every backup."""

    last: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0

    @property
    def everything(self) -> bool:
        return not (self.last or self.daily or self.weekly or self.monthly)


def expired(taken: Sequence[datetime], keep: Keep) -> list[int]:
    """Return the places of those backups of one stream that are to be removed. The newest one always stays."""
    if keep.everything:
        return []
    newest_first = sorted(range(len(taken)), key=lambda place: taken[place], reverse=True)
    kept = set(newest_first[: max(keep.last, 1)])
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
