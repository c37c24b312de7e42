# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selection of the streams to back up, and of backups by `ACCOUNT/STREAM@time`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import Any, Optional
from urllib.parse import unquote

from ..nats.account_names import AmbiguousAccount, account_labels, with_identity
from ..screen import some_names
from ..times import parse_time
from .catalogue import account_names, stream_key

#: The options of the modules that back up streams.
SELECTION_SPEC: dict[str, dict[str, Any]] = {
    "streams": {"type": "list", "elements": "str", "default": ["*"]},
    "exclude": {"type": "list", "elements": "str", "default": []},
}

_DAY = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})")
#: The time in the name of a backup's directory, with minutes or finer precision.
_STAMP = re.compile(r"(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})?(\.\d{1,6})?Z")


#: Permitted difference between the clocks of two machines that take backups. A backup dated later than this is in the
#: future: the clock was wrong when it was taken, so its date proves nothing about its age.
CLOCK_SKEW = timedelta(hours=1)


class SelectionError(ValueError):
    """The selection is invalid, or matches nothing."""


def matches(account: str | None, stream: str, patterns: Sequence[str]) -> bool:
    """Return whether a stream matches one of the patterns `ACCOUNT` and `ACCOUNT/STREAM`, in which `*` stands for any
    characters and `?` for any single one."""
    name = stream_key(account, stream)
    # `[` is taken literally: a stream's name may contain it.
    return any(
        fnmatchcase(name, (pattern if "/" in pattern else f"{pattern}/*").replace("[", "[[]")) for pattern in patterns
    )


def only_stream(selected: Sequence[str], names_accounts: bool) -> tuple[Optional[str], str]:
    """Return the account, None for that of the task's own user, and the name of the only selected stream. The servers
    are not queried: a user may be allowed to read this stream without being allowed to list streams.

    `names_accounts`: whether there are users of several accounts. Raises SelectionError unless the selection is one
    `ACCOUNT/STREAM` or, with only the task's own user, one `STREAM`.
    """
    remedy = "select one as ACCOUNT/STREAM, or set `directory` instead of `path`"
    if len(selected) != 1:
        some = f" ({some_names(selected)})" if selected else ""
        raise SelectionError(f"`path` saves exactly one stream, not {len(selected)}{some}: {remedy}")
    (text,) = selected
    if "*" in text or "?" in text:
        raise SelectionError(f"`path` saves exactly one stream, and {text} is a pattern: {remedy}")
    account, slash, stream = text.partition("/")
    if slash and stream:
        return account or None, stream
    if slash or not text or names_accounts:
        raise SelectionError(f"`path` saves exactly one stream, and {text!r} does not name one: {remedy}")
    return None, text


def parse_taken(text: str) -> datetime:
    """Parse `2026-11-23T02:00:00Z`, the time in the name of a backup's directory, or a day; return the time in UTC. A
    day or a second stands for its last moment.

    Raises SelectionError.
    """
    stamp, day = _STAMP.fullmatch(text), _DAY.fullmatch(text)
    if stamp:
        year, month, month_day, hour, minute, second, fraction = stamp.groups()
        text = (
            f"{year}-{month}-{month_day}T{hour}:{minute}:{second or '59'}{(fraction or '.999999').ljust(7, '0')}+00:00"
        )
    elif day:
        text = "-".join(day.groups()) + "T23:59:59.999999+00:00"
    try:
        time = parse_time(text)
        return time if "." in text else time.replace(microsecond=999_999)
    except ValueError:
        raise SelectionError(f"{text!r} is not a time such as 2026-11-23T02:00:00Z") from None


def is_future(taken: str | None, now: datetime) -> bool:
    """Return whether a backup is dated in the future."""
    return bool(taken) and _moment(taken) > now + CLOCK_SKEW


def by_age(taken: str | None, now: datetime) -> tuple[bool, datetime]:
    """Return the key that sorts backups from the oldest to the newest. Backups that are dated in the future or have an
    unreadable date come first: every other backup is preferred to them."""
    moment = _moment(taken)
    return not is_future(taken, now) and moment > _NEVER, moment


def next_taken(newest: str | None, now: datetime) -> datetime:
    """Return the time of a new backup: now, or just after the newest one if the clock has been set back since. With an
    older time, a restore would choose the older backup."""
    return now if is_future(newest, now) else max(now, _moment(newest) + timedelta(milliseconds=1))


_NEVER = datetime.min.replace(tzinfo=timezone.utc)


def _moment(taken: str | None) -> datetime:
    try:
        return parse_taken(taken) if taken else _NEVER
    except (SelectionError, OverflowError, TypeError):
        return _NEVER


def choose(
    backups: Sequence[Mapping[str, Any]], wanted: Sequence[str], at: str | None = None, now: datetime | None = None
) -> list[int]:
    """Return the paths of the selected backups: the newest of each stream that matches; for `ACCOUNT/STREAM@time` or
    with `at`, the newest one up to that time. A backup dated in the future is chosen only if there is no other.

    `backups`: rows with account, account_name, stream, taken. Raises SelectionError if the selection matches nothing or
    an account name is ambiguous.
    """
    names = account_names(backups)
    present = now or datetime.now(timezone.utc)
    chosen: dict[str, int] = {}
    for text in wanted:
        given, time = _split(text, (row["stream"] for row in backups))
        try:
            pattern = with_identity(given, names)
        except AmbiguousAccount as error:
            raise SelectionError(str(error)) from error
        latest = time or at
        until = parse_taken(latest) if latest else None
        found: dict[str, int] = {}
        for place, row in enumerate(backups):
            if matches(row["account"], row["stream"], [pattern]) and (until is None or _moment(row["taken"]) <= until):
                name = stream_key(row["account"], row["stream"])
                age = by_age(row["taken"], present)
                if name not in found or age > by_age(backups[found[name]]["taken"], present):
                    found[name] = place
        if not found:
            raise SelectionError(_nothing(backups, text, pattern))
        for name, place in found.items():
            if chosen.setdefault(name, place) != place:
                raise SelectionError(f"{name} is requested at two different times")
    return sorted(chosen.values())


@dataclass(frozen=True)
class FolderName:
    """The parts of the name of a backup's folder, in which long names of streams and accounts are shortened."""

    account: Optional[str]
    stream: str
    taken: datetime


def folder_name(folder: str) -> FolderName | None:
    """Return the parts of `<account>/<stream>@<time>`, or None for any other name."""
    above, _slash, name = folder.rpartition("/")
    stream, at, stamp = name.rpartition("@")
    try:
        taken = parse_taken(stamp)
    except SelectionError:
        return None
    account = unquote(above.rpartition("/")[2])
    return FolderName(None if account in ("", "_") else account, stream, taken) if at else None


def asked_for(
    folders: Sequence[str], wanted: Sequence[str], at: str | None = None, now: datetime | None = None
) -> dict[str, str]:
    """Return, by stream name, the newest of these folders for each stream that is selected as in `choose`. Folders
    dated in the future are omitted. Raises SelectionError."""
    latest = (now or datetime.now(timezone.utc)) + CLOCK_SKEW
    found: dict[str, tuple[datetime, str]] = {}
    for text in wanted:
        pattern, time = _split(text, (name.stream for name in map(folder_name, folders) if name))
        until = parse_taken(time or at or "") if time or at else latest
        for folder in folders:
            name = folder_name(folder)
            if name is None or name.taken > min(until, latest) or not matches(name.account, name.stream, [pattern]):
                continue
            key = stream_key(name.account, name.stream)
            found[key] = max(found.get(key, (name.taken, folder)), (name.taken, folder))
    return {key: folder for key, (_taken, folder) in found.items()}


def _split(text: str, streams: Iterable[str]) -> tuple[str, str]:
    """Return the pattern and the time of `ACCOUNT/STREAM@time`; the time is empty if none is given. A stream's name may
    itself be `A@B`."""
    given, at, time = text.rpartition("@")
    names = [f"/{stream}" for stream in streams if "@" in stream]
    return (text, "") if not at or any(text.endswith(name) for name in names) else (given, time)


def _nothing(backups: Sequence[Mapping[str, Any]], text: str, pattern: str) -> str:
    backup_times = sorted(row["taken"] or "" for row in backups if matches(row["account"], row["stream"], [pattern]))
    if backup_times:
        return f"there is no backup {text}: the oldest one of {pattern} was taken at {backup_times[0]}"
    labels = account_labels(account_names(backups))
    there = sorted({stream_key(labels.get(row["account"]), row["stream"]) for row in backups})
    return f"there is no backup of {pattern}; there are backups of {some_names(there) or 'nothing'}"
