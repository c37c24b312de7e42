# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.retention import Retention, expired
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.selection import by_age, next_taken
from hypothesis import given
from hypothesis import strategies as st

START = datetime(2026, 1, 1, 2, tzinfo=timezone.utc)
#: Two backups a day, at 02:00 and 14:00, from Thursday, 1 January on.
TWICE_A_DAY = [START + timedelta(hours=12 * number) for number in range(2 * 60)]


def kept(keep: Retention) -> list[str]:
    gone = set(expired(TWICE_A_DAY, keep, TWICE_A_DAY[-1]))
    return [f"{time:%m-%d %H}" for place, time in enumerate(TWICE_A_DAY) if place not in gone]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (Retention(last=3), ["02-28 14", "03-01 02", "03-01 14"]),
        (Retention(daily=3), ["02-27 14", "02-28 14", "03-01 14"]),
        (Retention(weekly=2), ["02-22 14", "03-01 14"]),
        (Retention(monthly=12), ["01-31 14", "02-28 14", "03-01 14"]),
        (Retention(last=2, monthly=2), ["02-28 14", "03-01 02", "03-01 14"]),
    ],
)
def test_the_newest_of_each_period_stays(keep: Retention, expected: list[str]) -> None:
    assert kept(keep) == expected


@pytest.mark.parametrize(
    ("newest", "later"),
    [
        (timedelta(minutes=-5), timedelta()),
        (timedelta(minutes=30), timedelta(minutes=30, milliseconds=1)),
        (timedelta(hours=1), timedelta(hours=1, milliseconds=1)),
        # This backup is dated in the future, so any other backup is preferred to it.
        (timedelta(days=1), timedelta()),
    ],
)
def test_a_backup_taken_after_the_clock_was_set_back_is_the_newest(newest: timedelta, later: timedelta) -> None:
    """If the new backup had an older time, the next restore would use the previous backup."""
    before = f"{START + newest:%Y-%m-%dT%H:%M:%S.%fZ}"
    taken = next_taken(before, START)
    assert taken == START + later
    assert by_age(f"{taken:%Y-%m-%dT%H:%M:%S.%fZ}", START + timedelta(seconds=1)) > by_age(before, START)
    assert next_taken(None, START) == START


def test_without_a_number_everything_stays() -> None:
    assert expired(TWICE_A_DAY, Retention(), START) == []


@given(
    st.lists(st.datetimes(datetime(2020, 1, 1), datetime(2026, 1, 1)), unique=True, max_size=60),
    st.builds(Retention, *[st.integers(0, 5)] * 4),
)
def test_kept_backups_stay_kept_in_the_next_run(taken: list[datetime], keep: Retention) -> None:
    gone = set(expired(taken, keep, datetime(2026, 1, 1)))
    rest = [time for place, time in enumerate(taken) if place not in gone]
    assert not taken or max(taken) in rest
    assert expired(rest, keep, datetime(2026, 1, 1)) == []
    if not keep.everything:
        assert len(rest) <= max(keep.last, 1) + keep.daily + keep.weekly + keep.monthly
    assert set(sorted(taken)[-keep.last :] if keep.last else []) <= set(rest)


@pytest.mark.parametrize(
    "keep", [Retention(last=1), Retention(daily=1), Retention(weekly=1), Retention(monthly=1), Retention(1, 1, 1, 1)]
)
def test_a_backup_from_the_future_stays_and_replaces_no_other(keep: Retention) -> None:
    ahead = datetime(2099, 12, 31, tzinfo=timezone.utc)
    taken = [ahead, START, START + timedelta(days=1)]
    assert expired(taken, keep, taken[2]) == [1]
    # The clocks of two machines may differ by minutes.
    assert expired([*taken[1:], taken[2] + timedelta(minutes=5)], Retention(last=1), taken[2]) == [0, 1]


def test_backups_of_this_run_are_kept() -> None:
    """Backups of the current run are kept even if the clock is behind, which makes all other backups newer."""
    taken = [START, START + timedelta(days=1), START - timedelta(days=300)]
    assert expired(taken, Retention(last=1), taken[1]) == [0, 2]
    assert expired(taken, Retention(last=1), taken[1], own=[2]) == [0]
    behind = START - timedelta(days=300)
    assert expired(taken, Retention(last=1), behind, own=[2]) == []
