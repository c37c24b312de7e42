# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times as nats-server, the files of the collection and people write them (RFC 3339, up to nine fractional digits). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d(?::\d\d(?::\d\d)?)?)(?:\.(\d*))?)?(Z|[+-]\d\d:\d\d)?")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def certificate_ends(varz: Mapping[str, Any]) -> dict[str, str]:
    """Return when each of a server's listener certificates expires, as reported from 2.11.12 and 2.12.4 on."""
    parts = {"server": varz, "leafnode": varz.get("leaf") or {}}
    parts.update({part: varz.get(part) or {} for part in ("cluster", "gateway", "mqtt", "websocket")})
    return {part: str(data["tls_cert_not_after"]) for part, data in parts.items() if data.get("tls_cert_not_after")}


def certificate_days(varz: Mapping[str, Any]) -> dict[str, float]:
    """Return the days until each of these certificates expires, by the server's own clock. Negative: it has expired."""
    now = parse_time(str(varz["now"]))
    return {part: (parse_time(end) - now) / timedelta(days=1) for part, end in certificate_ends(varz).items()}


def parse_time(text: str) -> datetime:
    """Return a time, such as 2026-11-21, 2026-11-21T18 or 2026-11-21T18:41:00.123456789+01:00, in UTC and truncated to
    microseconds. A time without an offset is in UTC. Raises ValueError."""
    moment, fraction = _parts(text)
    try:
        return moment.replace(microsecond=int(fraction[:6])).astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(f"{text!r} is not a UTC time in the years 1 to 9999") from error


def epoch_nanoseconds(text: str) -> int:
    """Return the nanoseconds since 1970 of such a time. Raises ValueError."""
    moment, fraction = _parts(text)
    return (moment - EPOCH) // timedelta(seconds=1) * 10**9 + int(fraction[:9])


def _parts(text: str) -> tuple[datetime, str]:
    """Return a time to the second, and at least nine digits of its fraction. Raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time such as 2026-11-21T18:41:00Z")
    day, clock, fraction, zone = found.groups()
    offset = "+00:00" if zone in (None, "Z") else zone
    return datetime.fromisoformat(f"{day}T{clock or '00:00'}{offset}"), (fraction or "").ljust(9, "0")
