# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times in the notations of servers, files and people."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.times import (
    certificate_days,
    epoch_nanoseconds,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T07:28:28.450925368Z", datetime(2026, 11, 21, 7, 28, 28, 450925, timezone.utc)),
        ("2026-11-21T07:28:28.5Z", datetime(2026, 11, 21, 7, 28, 28, 500000, timezone.utc)),
        ("2026-11-21T07:28:28Z", datetime(2026, 11, 21, 7, 28, 28, 0, timezone.utc)),
        ("2026-11-21T07:28:28.5+02:00", datetime(2026, 11, 21, 5, 28, 28, 500000, timezone.utc)),
        ("2026-11-21T07:28:28-01:30", datetime(2026, 11, 21, 8, 58, 28, 0, timezone.utc)),
        ("2026-11-21 07:28:28", datetime(2026, 11, 21, 7, 28, 28, 0, timezone.utc)),
        ("2026-11-21T07:28Z", datetime(2026, 11, 21, 7, 28, 0, 0, timezone.utc)),
        ("2026-11-21T07", datetime(2026, 11, 21, 7, 0, 0, 0, timezone.utc)),
        ("2026-11-21", datetime(2026, 11, 21, 0, 0, 0, 0, timezone.utc)),
    ],
)
def test_times(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected
    assert parse_time(text).utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_time_beyond_the_calendar_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UTC time in the years 1 to 9999"):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13-01", "2026-11-21T25:00:00Z", "2026-11-21T18:00:00+1", "20261121"]
)
def test_other_texts_are_value_errors(text: str) -> None:
    for parse in (parse_time, epoch_nanoseconds):
        with pytest.raises(ValueError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01.000001234Z", 1_000_001_234),
        ("1970-01-01T01:00:00.5+01:00", 500_000_000),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("9999-12-31T23:59:59.9999999999Z", 253402300799999999999),
    ],
)
def test_nanoseconds(text: str, nanoseconds: int) -> None:
    assert epoch_nanoseconds(text) == nanoseconds


def test_days_until_certificates_expire_by_the_servers_clock() -> None:
    varz = {
        "now": "2026-11-21T00:00:00Z",
        "tls_cert_not_after": "2026-11-22T12:00:00Z",
        "gateway": {"tls_cert_not_after": "2026-11-20T00:00:00Z"},
        "cluster": {},
    }
    assert certificate_days(varz) == {"server": 1.5, "gateway": -1.0}
    assert certificate_days({"now": "2026-11-21T00:00:00Z"}) == {}
