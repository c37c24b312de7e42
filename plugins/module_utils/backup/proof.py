# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requirements for proving a backup by a restore, and the comparison of the backup with one taken after the
restore. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..units import duration_seconds
from .archive import ENTRIES, TAR, ArchivedMessage
from .manifest import Manifest
from .restore_rules import position

#: Default maximum size of a message (server/const.go), and of a client's pending data.
_MAX_PAYLOAD, _MAX_PENDING = 1 << 20, 64 << 20
_TTL = re.compile(rb"\r\nNats-TTL:[ \t]*([^\r\n]*)", re.IGNORECASE)


def room_needed(manifest: Manifest, archive_size: int) -> int:
    """Return the bytes on disk that a drill needs: the size of the stream and a tenth more, the second archive, and,
    for an archive up to 2.14, the uploaded archive, which a server stores until the upload is complete."""
    held = (manifest.contents or manifest.state).get("bytes") or 0
    return int(held * 1.1) + archive_size * (2 if manifest.format == TAR else 1)


def message_limits(manifest: Manifest) -> dict[str, int]:
    """Return the limits with which a server accepts the largest message of a backup."""
    payload = max(_MAX_PAYLOAD, (manifest.contents or {}).get("largest") or 0)
    return {"max_payload": payload, "max_pending": max(_MAX_PENDING, 2 * payload)}


def unproven(saved: Manifest, restored: Manifest) -> list[str]:
    """Return the differences between a stream's backup and a backup taken after its restore; no client used the
    restored stream in between.

    The restored stream may have fewer messages if only the server can detect which messages were removed while the
    archive was written, or if some have expired since (`expired_since`). The digest then differs, too.
    """
    want, have = saved.contents or {}, restored.contents or {}
    tolerated = expired_since(saved, restored) or (_fewer(saved, restored) and not want.get("exact", True))
    found = []
    for key in ("last_seq", "messages", "first_seq"):
        before, after = _number(want, key), _number(have, key)
        if before != after and not (tolerated and key != "last_seq" and (after > before) == (key == "first_seq")):
            found.append(f"{key} is {after} instead of {before}")
    if not tolerated and want.get("digest") != have.get("digest"):
        found.append(f"the digest of its messages is {have.get('digest')} instead of {want.get('digest')}")
    return found + _moved(saved, restored, _number(have, "first_seq"))


def expired_since(saved: Manifest, restored: Manifest) -> bool:
    """Return whether missing messages may have expired since the backup: from 2.15, a restore omits expired messages.
    `lost` determines whether they really expired."""
    return saved.format == ENTRIES and bool(saved.config.get("allow_msg_ttl")) and _fewer(saved, restored)


def lost(saved: Iterable[ArchivedMessage], restored: Iterable[ArchivedMessage], now: float) -> str:
    """Return the first message that was not restored as saved and had not expired by `now`, or an empty text if there
    is none."""
    there = iter(restored)
    have = next(there, None)
    for want in saved:
        if have is not None and have.sequence == want.sequence:
            if have != want:
                return f"message {want.sequence} differs"
            have = next(there, None)
        elif not _expired(want, now):
            return f"message {want.sequence} is missing"
    return "" if have is None else f"message {have.sequence} is not in the backup"


def _expired(message: ArchivedMessage, now: float) -> bool:
    found = _TTL.search(message.headers)
    try:
        seconds = duration_seconds(found.group(1).decode().strip()) if found else 0
    except ValueError:  # such as `never`
        return False
    # Servers count in full seconds (server/stream.go parseMessageTTL).
    return int(seconds) > 0 and message.time / 1e9 + int(seconds) <= now


def _fewer(saved: Manifest, restored: Manifest) -> bool:
    return _number(restored.contents or {}, "messages") < _number(saved.contents or {}, "messages")


def _number(contents: Mapping[str, Any], key: str) -> int:
    """Return a number from an archive's contents. The first sequence of a stream without messages is 0 or 1."""
    value = int(contents.get(key) or 0)
    return max(value, 1) if key == "first_seq" else value


def _moved(saved: Manifest, restored: Manifest, first_seq: int) -> list[str]:
    there = {entry["name"]: entry for entry in restored.consumers}
    found = []
    for entry in saved.consumers:
        name = entry["name"]
        # Ephemeral consumers disappear with their clients.
        if not entry["config"].get("durable_name"):
            continue
        if name not in there:
            found.append(f"consumer {name} is missing")
            continue
        # All positions before the first message are equivalent.
        want, have = (max(position(one), first_seq - 1) for one in (entry, there[name]))
        if have != want:
            found.append(f"consumer {name} is at {have} instead of {want}")
    return found
