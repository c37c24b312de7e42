# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of nats-server. Pure."""

from __future__ import annotations

import re

#: The format in which nats-server reports its version: without the `v` of the releases' names, and without build
#: metadata.
_STRICT = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-[0-9A-Za-z.-]+)?", re.ASCII)
_LENIENT = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", re.ASCII)


def parse_version(text: object) -> tuple[int, int, int]:
    """Return the three numbers of a version such as `2.10.27` or `2.11.0-preview.1`. Raises ValueError for anything else."""
    match = _STRICT.fullmatch(text) if isinstance(text, str) else None
    if match:
        return int(match[1]), int(match[2]), int(match[3])
    if isinstance(text, float):
        raise ValueError(f"{text!r} is a number, not a nats-server version: quote all three numbers, such as '2.10.27'")
    raise ValueError(
        f"{text!r} is not a nats-server version: write it as the server reports it, such as 2.10.27 or 2.11.0-preview.1"
    )


def reported_version(text: object) -> tuple[int, int, int]:
    """Return the three numbers of a version that a server reports; each missing number is 0."""
    match = _LENIENT.match(text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2] or 0), int(match[3] or 0)) if match else (0, 0, 0)


def supports(since: tuple[str, ...], version: str) -> bool:
    """Return whether a server of that version has a feature that was introduced by the releases in `since` (several
    releases if the feature was backported).

    The version may come from a server's report, so an unknown version is accepted and has none of these features.
    """
    if not since:
        return True
    have = reported_version(version)
    wanted = sorted(parse_version(first) for first in since)
    older = [first for first in wanted if first[:2] <= have[:2]]
    if not older:
        return False
    return have >= older[-1] if older[-1][:2] == have[:2] else older[-1] == wanted[-1]
