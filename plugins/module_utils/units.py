# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Durations and sizes, parsed from text and formatted for operators. Pure.

Durations of streams, consumers and checks have the format of the nats CLI (jsm.go ParseDuration): Go's format, plus
days, weeks, months and years (`parse_duration`). nats-server's own configuration accepts only Go's format
(`duration_seconds`). Sizes have the same format in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = r"(\d+(?:\.\d*)?|\.\d+)([a-zA-Zµμ]+)"
_DURATION = re.compile(rf"(?:{_PART})+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DAY = 86400.0
_GO = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGER = {"d": _DAY, "D": _DAY, "w": 7 * _DAY, "W": 7 * _DAY, "M": 30 * _DAY, "y": 365 * _DAY, "Y": 365 * _DAY}
_CLI = {**_GO, **_LONGER}
_SIZE = re.compile(r"(-?\d+)\s*(?:([KMGTPE])(I?B|I)?)?", re.IGNORECASE)
_SIZES = (("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DURATIONS = (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def parse_duration(text: str, bare: bool = True) -> float:
    """Return the seconds of a duration such as 500ms, 1h30m or 2w; `bare`: whether a number without a unit is accepted
    as seconds.

    Raises ValueError for anything else, including negative durations. `m` is a minute, `M` a month of 30 days.
    """
    written = text.strip()
    if _NUMBER.fullmatch(written) and (bare or float(written) == 0):
        return float(written)
    seconds = _total(written, _CLI)
    if seconds is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s, 1h30m or 2d")
    return seconds


def duration_seconds(text: str | int | float) -> float:
    """Return the seconds of a duration of nats-server's configuration, such as 1m30s; a number without a unit is in
    seconds.

    Durations and plain numbers may be negative. Raises ValueError for anything else.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    written = str(text)
    positive = written[1:] if written[:1] in ("+", "-") else written
    seconds = float(positive) if _NUMBER.fullmatch(positive) else _total(positive, _GO)
    if seconds is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s or 1h30m")
    return -seconds if written.startswith("-") else seconds


def size_bytes(text: str | int) -> int:
    """Return a size in bytes by nats-server's rules (conf/parse.go): K is 1000, KB, Ki and KiB are 1024. Raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = _SIZE.fullmatch(str(text).strip())
    if not match:
        raise ValueError(f"{text!r} is not a size such as 1048576, 64MB or 10GB")
    return int(match[1]) * (1024 if match[3] else 1000) ** " KMGTPE".index((match[2] or " ").upper())


def human_bytes(size: float) -> str:
    """Return bytes in the largest binary unit in which the value is at least one, such as `1.5 GiB`."""
    value, unit = float(size), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def exact_size(size: int) -> str | int:
    """Return bytes in the largest unit that divides them without a remainder, such as `64MiB`."""
    return next((f"{size // one}{unit}" for unit, one in _SIZES if size and size % one == 0), size)


def exact_duration(nanoseconds: int) -> str:
    """Return nanoseconds in the largest unit that divides them without a remainder, such as `90s`; 0 is `0s`."""
    if not nanoseconds:
        return "0s"
    found = (f"{nanoseconds // one}{unit}" for unit, one in _DURATIONS if nanoseconds % one == 0)
    return next(found, f"{nanoseconds}ns")


def counted(number: int, what: str) -> str:
    """Return a number with its noun, such as `1 stream` or `2 streams`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def human_seconds(seconds: float) -> str:
    """Return seconds in the two largest units, such as `3d4h`, `12m5s`, `1.5s`, `35ms` or `-2h`."""
    if seconds < 0:
        return f"-{human_seconds(-seconds)}"
    if 0 < seconds < 1:
        return f"{seconds * 1e6:.0f}µs" if seconds < 0.001 else f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    rest, parts = int(seconds), []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def _total(text: str, units: Mapping[str, float]) -> float | None:
    """Return the seconds of one or more numbers with units; None for anything else."""
    parts = re.findall(_PART, text) if _DURATION.fullmatch(text) else []
    if not parts or any(unit not in units for _number, unit in parts):
        return None
    return sum(float(number) * units[unit] for number, unit in parts)
