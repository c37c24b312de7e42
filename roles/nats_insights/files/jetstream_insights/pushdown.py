# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a stream that the filters of a query can match. Spark applies the filters again, so the bounds may be too wide, but
never too narrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

T = TypeVar("T", int, datetime)


@dataclass(frozen=True)
class Bounds:
    """Sequences and times that can match, both ends included, None for no bound, and subject patterns, empty for all."""

    first: int | None = None
    last: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    subjects: tuple[str, ...] = ()


def filter_bounds(filters: Iterable[Filter]) -> Bounds:
    """Return the bounds of filters that are combined with AND. Filters of other columns and kinds are ignored."""
    first: list[int] = []
    last: list[int] = []
    since: list[datetime] = []
    until: list[datetime] = []
    subjects: tuple[str, ...] = ()
    for one in filters:
        attribute = getattr(one, "attribute", None)
        if attribute == ("seq",):
            low, high = _ends(one, int)
            # Sequences are integers: an exclusive bound is next to the first that matches.
            first += [low + isinstance(one, GreaterThan)] if low is not None else []
            last += [high - isinstance(one, LessThan)] if high is not None else []
        elif attribute == ("time",):
            earliest, latest = _ends(one, datetime)
            since += [earliest] if earliest is not None and earliest.tzinfo is not None else []
            until += [latest] if latest is not None and latest.tzinfo is not None else []
        elif attribute == ("subject",):
            subjects = subjects or _patterns(one)
    return Bounds(
        max(first, default=None), min(last, default=None), max(since, default=None), min(until, default=None), subjects
    )


def _ends(one: Filter, kind: type[T]) -> tuple[T | None, T | None]:
    """Return the lowest and the highest value of this type in a filter, None if it has no such bound."""
    value = getattr(one, "value", None)
    values = value if isinstance(one, In) else (value,)
    if not values or not all(isinstance(each, kind) for each in values):
        return None, None
    from_below = isinstance(one, (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual))
    from_above = isinstance(one, (EqualTo, EqualNullSafe, In, LessThan, LessThanOrEqual))
    return min(values) if from_below else None, max(values) if from_above else None


def _patterns(one: Filter) -> tuple[str, ...]:
    """Return the subjects, or the pattern below a prefix, that a filter can match; none if that is unknown."""
    if isinstance(one, StringStartsWith):
        whole = one.value.rpartition(".")[0]
        return (f"{whole}.>",) if _is_plain(whole) else ()
    found = one.value if isinstance(one, In) else (one.value,) if isinstance(one, (EqualTo, EqualNullSafe)) else ()
    return tuple(found) if all(map(_is_plain, found)) else ()


def _is_plain(subject: object) -> bool:
    """Return whether this is a single valid subject without wildcards."""
    tokens = subject.split(".") if isinstance(subject, str) else [""]
    return all(token and token not in ("*", ">") and not any(map(str.isspace, token)) for token in tokens)
