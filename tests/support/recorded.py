# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes insights reports in the format that the modules read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path


def write_report(path: Path, rates: Mapping[tuple[str, str], float]) -> str:
    """Write a report.json of today with the write rates of account APP's streams: (fleet, stream) → bytes per second.
    Return the day."""
    rows = [[fleet, "APP", stream, rate] for (fleet, stream), rate in rates.items()]
    columns = [[name, name, "text"] for name in ("fleet", "account", "stream", "write_bytes")]
    day = str(datetime.now(timezone.utc).date())
    path.write_text(json.dumps({"format": 1, "day": day, "tables": {"streams": {"columns": columns, "rows": rows}}}))
    return day
