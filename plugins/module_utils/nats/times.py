# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times as nats-server writes them (RFC 3339, up to nine fractional digits)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any


def certificate_ends(varz: Mapping[str, Any]) -> dict[str, str]:
    """Return when each of a server's listener certificates expires, as reported from 2.11.12 and 2.12.4 on."""
    parts = {"server": varz, "leafnode": varz.get("leaf") or {}}
    parts.update({part: varz.get(part) or {} for part in ("cluster", "gateway", "mqtt", "websocket")})
    return {part: str(data["tls_cert_not_after"]) for part, data in parts.items() if data.get("tls_cert_not_after")}


def parse_time(text: str) -> datetime:
    """Return a server's RFC 3339 timestamp (up to nanoseconds) in UTC, with microseconds. Raises ValueError."""
    moment = text
    offset = timezone.utc
    if moment.endswith("Z"):
        moment = moment[:-1]
    elif len(moment) > 6 and moment[-6] in "+-":
        east = datetime.fromisoformat(f"2000-01-01T00:00:00{moment[-6:]}").utcoffset()
        moment, offset = moment[:-6], timezone(east or timedelta())
    seconds, _dot, fraction = moment.partition(".")
    whole = datetime.fromisoformat(seconds)
    micro = int(fraction[:6].ljust(6, "0")) if fraction else 0
    try:
        return whole.replace(microsecond=micro, tzinfo=offset).astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(f"{text!r} is not a UTC time in the years 1 to 9999") from error
