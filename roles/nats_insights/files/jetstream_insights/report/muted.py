# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Muted findings (--checks) have a table of their own, with the reason and the end, and count nowhere else until that end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jetstream_insights.findings.checks_file import Mute
from jetstream_insights.report.shape import BY_NAME, dicts, filled


def with_muted(
    tables: Mapping[str, Any], mutes: Sequence[Mute], names: Mapping[str, str], now: datetime
) -> dict[str, Any]:
    """Return the tables with the findings that are muted at this time in the table `muted`. `names`: those of accounts by public
    key."""
    if not mutes or "findings" not in tables:
        return dict(tables)
    table, muted = tables["findings"], BY_NAME["muted"]
    shown, rows = [], []
    for row, known in zip(table["rows"], dicts({"tables": tables}, "findings")):
        mute = next((mute for mute in mutes if mute.covers(known, names, now)), None)
        if mute is None:
            shown.append(row)
            continue
        known |= {"reason": mute.reason, "until": f"{mute.until:%Y-%m-%dT%H:%M:%SZ}"}
        rows.append([known[column.name] for column in muted.columns])
    return {
        **tables,
        "findings": {**table, "rows": shown, "total": table["total"] - len(rows)},
        "muted": filled(muted, rows[: muted.most], len(rows)),
    }
