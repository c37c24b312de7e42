# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress lines of a waiting module.

A module cannot print. The module appends lines to a file, and the action plugin of the same name prints them
(`plugin_utils.waiting`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Callable

from .screen import printable

#: Seconds between two lines, and before the first line.
EVERY = 10.0

#: Maximum length of a line.
WIDTH = 200

#: The options in doc_fragments/progress.py.
PROGRESS_SPEC: dict[str, dict[str, Any]] = {
    "progress": {
        "type": "dict",
        "options": {
            "file": {"type": "path"},
            "title": {"type": "str"},
            "began": {"type": "float"},
            "step": {"type": "int"},
            "steps": {"type": "int"},
        },
    },
}


class Progress:
    """Writes a line every ten seconds of a wait. `params`: contains the option `progress`; if it has no file, nothing
    is written. `limit`: seconds that the wait may take, None if it ends by itself."""

    def __init__(
        self, params: Mapping[str, Any] | None, limit: float | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._params = params or {}
        self._limit = limit
        self._clock = clock
        self._started = self._last = clock()

    def report(self, missing: Callable[[], str]) -> None:
        """Write the outstanding conditions, unless a line was written recently. `missing` is called only if a line is
        written."""
        now = self._clock()
        path = self._params.get("file")
        if not path or now - self._last < EVERY:
            return
        self._last = now
        limit = "" if self._limit is None else f" of {self._limit:.0f}"
        line = f"{self._heading(now)}{now - self._started:.0f}{limit} s: {printable(' '.join(missing().split()))}"
        # A failed write of a progress line must not fail the operation.
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(f"{line if len(line) <= WIDTH else line[: WIDTH - 1] + '…'}\n")

    def _heading(self, now: float) -> str:
        parts = [self._params["title"]] if self._params.get("title") else []
        began, step, steps = (self._params.get(key) for key in ("began", "step", "steps"))
        if began:
            parts.append(clock_time(now - began))
            left = time_left(now - began, step or 0, steps or 0)
            parts += [] if left is None else [f"about {clock_time(left)} left"]
        return f"{', '.join(parts)}: " if parts else ""


def time_left(elapsed: float, step: int, steps: int) -> float | None:
    """Return the estimated seconds until the end while step `step` (from 1) of `steps` is running, based on the
    duration of the earlier steps; None during the first step."""
    if step < 2 or step > steps:
        return None
    each = elapsed / (step - 0.5)
    return each * (steps - step + 0.5)


def clock_time(seconds: float) -> str:
    """Return seconds in the format `00:04:10`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"
