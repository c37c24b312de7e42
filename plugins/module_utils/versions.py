# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of nats-server. Pure."""

from __future__ import annotations

import re

_STRICT = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_LENIENT = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")


def parse_version(text: str) -> tuple[int, int, int]:
    """Return the three numbers of a version such as `2.10.27` or `v2.11.0-preview.1`. Raises ValueError for anything else."""
    match = _STRICT.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a nats-server version such as 2.10.27")
    return int(match[1]), int(match[2]), int(match[3])


def reported_version(text: str | None) -> tuple[int, int, int]:
    """Return the three numbers of a version that a server reports; 0 for each that is missing."""
    match = _LENIENT.match(text or "")
    return (int(match[1]), int(match[2] or 0), int(match[3] or 0)) if match else (0, 0, 0)


def supports(since: tuple[str, ...], version: str) -> bool:
    """Return whether a server of that version has what first came with the releases in `since` (several: ported back)."""
    if not since:
        return True
    have = parse_version(version)
    wanted = sorted(parse_version(first) for first in since)
    older = [first for first in wanted if first[:2] <= have[:2]]
    if not older:
        return False
    return have >= older[-1] if older[-1][:2] == have[:2] else older[-1] == wanted[-1]
