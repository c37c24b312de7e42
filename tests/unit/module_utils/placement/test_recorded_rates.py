# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which write rates an insights report provides, and which reports are refused."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.recorded_rates import (
    ReportRefused,
    recorded_rates,
)

NOW = datetime(2026, 11, 25, 1, tzinfo=timezone.utc).timestamp()


def report(*rows: list[Any], names: str = "fleet account stream write_bytes", **changes: Any) -> dict[str, Any]:
    columns = [[name, name, "text"] for name in names.split()]
    return {
        "format": 1,
        "day": "2026-11-24",
        "tables": {"streams": {"columns": columns, "rows": list(rows)}},
        **changes,
    }


TWO = (["a", "APP", "ORDERS", 12.5], ["a", "APP", "NEW", None], ["b", "APP", "ORDERS", 7.0])


def test_the_rates_of_one_fleet() -> None:
    assert recorded_rates(report(*TWO), "a", NOW) == ("2026-11-24", {("APP", "ORDERS"): 12.5})
    assert recorded_rates(report(*TWO[:2]), None, NOW) == ("2026-11-24", {("APP", "ORDERS"): 12.5})
    assert recorded_rates(report(), None, NOW) == ("2026-11-24", {})


@pytest.mark.parametrize(
    ("given", "fleet", "reason"),
    [
        (report(*TWO), None, "it has 2 fleets, but none was selected: a, b"),
        (report(*TWO), "c", "it has no streams of fleet c; its fleets are: a, b"),
        (report(), "c", "its fleets are: none"),
        (report(*TWO, day="2026-11-17"), "a", "it dates from 2026-11-17, 8 days ago"),
        (report(*TWO, format=2), "a", "its format is 2, but only 1 is supported"),
        (report(names="fleet account stream"), None, "it was created by an older release"),
        (report(tables={}), None, "not a report.json with a table of streams: KeyError"),
        (report(day=7), None, "not a report.json"),
        ([], None, "not a report.json"),
    ],
)
def test_a_report_that_cannot_be_used(given: Any, fleet: str | None, reason: str) -> None:
    with pytest.raises(ReportRefused, match=reason):
        recorded_rates(given, fleet, NOW)
