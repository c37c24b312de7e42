# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the lines of a server's log with their times in UTC: from the journal, or from the server's own log file, whose
times are in its host's time zone."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from ..nats.failures import NatsFailure
from .snapshot import timestamp

#: Maximum number of lines, counted from the end.
_MOST = 10_000

#: The time at the beginning of nats-server's log lines (nats-server/logger/log.go), which is in UTC only with
#: logtime_utc.
_TIME = re.compile(r"\[\d+\] (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{1,6}) ")


def log_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the last lines of a log: `text`, and `time` if it is known.

    Lines of `journalctl --output=json` have the journal's time. A server's log file begins with a line of JSON about
    its host's clock: `localtime`, the target of /etc/localtime, and `offset`, the current difference from UTC
    (`+0100`), which is used if the time zone is unknown on this machine. Without that line, the time zone is unknown,
    and the lines have no `time`. Raises NatsFailure invalid_option if the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
            zone = _zone(_document(first))
            lines = deque([] if zone or not first else [first], _MOST)
            lines.extend(file)
    except OSError as error:
        raise NatsFailure("invalid_option", f"logs: {path} cannot be read: {error.strerror}") from error
    texts = (line.rstrip("\n") for line in lines)
    return _parse_file_lines(texts, zone) if zone else map(_parse_journal_line, texts)


def _document(line: str) -> dict[str, Any]:
    """Return the object in a line of JSON, or an empty object for any other line."""
    try:
        found = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _zone(clock: dict[str, Any]) -> tzinfo | None:
    """Return the time zone of a host, or None if the object does not describe a clock."""
    try:
        name, offset = str(clock["localtime"]), datetime.strptime(str(clock["offset"]), "%z").tzinfo
    except (KeyError, ValueError):
        return None
    try:
        return ZoneInfo(name.rpartition("/zoneinfo/")[2])
    except (KeyError, ValueError, OSError):  # not known on this machine, or a file without a name
        return offset


def _parse_journal_line(text: str) -> dict[str, Any]:
    entry = _document(text)
    try:
        moment = datetime.fromtimestamp(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, timezone.utc)
    except (KeyError, TypeError, ValueError):
        return {"text": text}
    message = entry.get("MESSAGE") or ""
    text = message if isinstance(message, str) else bytes(message).decode(errors="replace")
    return {"time": timestamp(moment), "text": text}


def _parse_file_lines(texts: Iterable[str], zone: tzinfo) -> Iterator[dict[str, Any]]:
    """Yield lines with their own times. In autumn, one hour occurs twice: a time in that hour belongs to its first
    occurrence until the times of the lines go backwards."""
    latest = ""
    for text in texts:
        found = _TIME.match(text)
        if not found:
            yield {"text": text}
            continue
        local = datetime.strptime(found[1], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=zone)
        before, after = (timestamp(local.replace(fold=fold).astimezone(timezone.utc)) for fold in (0, 1))
        latest = before if before >= latest else after
        yield {"time": latest, "text": text}
