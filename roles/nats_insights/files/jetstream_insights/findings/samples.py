# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of snapshots that checks of a period need for a result."""

from __future__ import annotations

from jetstream_insights.findings.registry import Threshold


def samples(default: float, what: str = "snapshots") -> Threshold:
    """Return the threshold below which a check is unknown: too little data is not a pass."""
    return Threshold("samples", default, "", f"fewest {what} for a result")


FEW = "only {samples} snapshots"
ENOUGH = "samples >= :samples"
