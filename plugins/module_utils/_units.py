# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Durations as people write them for streams, consumers and checks. PRIVATE to the collection. Pure.

They are those of the nats CLI (jsm.go ParseDuration): Go's, and days, weeks, months and years on top. nats-server's own
configuration knows only Go's; see `_conf.duration_seconds`. Sizes are the same in both: `_conf.size_bytes`.
"""

from __future__ import annotations

import re

_PART = r"(\d+(?:\.\d*)?|\.\d+)([a-zA-Zµμ]+)"
_DURATION = re.compile(rf"(?:{_PART})+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DAY = 86400.0
_GO = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGER = {"d": _DAY, "D": _DAY, "w": 7 * _DAY, "W": 7 * _DAY, "M": 30 * _DAY, "y": 365 * _DAY, "Y": 365 * _DAY}
_SECONDS = {**_GO, **_LONGER}


def human_seconds(text: str, bare: bool = True) -> float:
    """Return the seconds of a duration such as 500ms, 1h30m or 2w; `bare`: a number without unit means seconds.

    Raises ValueError for anything else, negative durations among it. `m` is a minute, `M` a month of 30 days.
    """
    written = text.strip()
    if _NUMBER.fullmatch(written) and (bare or float(written) == 0):
        return float(written)
    parts = re.findall(_PART, written) if _DURATION.fullmatch(written) else []
    if not parts or any(unit not in _SECONDS for _number, unit in parts):
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s, 1h30m or 2d")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
