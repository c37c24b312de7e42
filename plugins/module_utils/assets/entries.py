# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of key-value buckets in terms of messages. Pure: no I/O.

Source: ADR-8 (key-value), and its implementation in nats.go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..nats.stored_message import message_data, message_headers, text_or_base64
from .config import Config, OptionError

PUT, DELETE, PURGE, EXPIRED = "put", "delete", "purge", "expired"

#: The headers of the markers that delete a key, and a key with its history.
DELETION = {"KV-Operation": "DEL"}
PURGING = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}

#: The operations of messages that are not values.
_MARKS = {"DEL": DELETE, "PURGE": PURGE}
_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


@dataclass(frozen=True)
class KeyEntry:
    """One message of a key. `revision`: its sequence. `value`: None after a deletion."""

    subject: str
    revision: int
    value: bytes | None
    operation: str
    time: str


def read_entry(message: Mapping[str, Any]) -> KeyEntry:
    """Return the entry in a message of STREAM.MSG.GET."""
    headers = message_headers(message)
    marks = [_MARKS[value] for value in headers.get("KV-Operation", ()) if value in _MARKS]
    operation = marks[0] if marks else EXPIRED if "Nats-Marker-Reason" in headers else PUT
    value = message_data(message) if operation == PUT else None
    return KeyEntry(str(message["subject"]), int(message["seq"]), value, operation, str(message["time"]))


def require_key(key: str) -> str:
    """Return the key of one entry. Raises OptionError for a key that clients do not accept."""
    if not _KEY.fullmatch(key) or key.startswith(".") or key.endswith(".") or ".." in key:
        raise OptionError(
            f"key: {key!r} is not the key of one entry: letters, digits, '-', '/', '_', '=', and single dots between them"
        )
    return key


def subject_prefix(bucket: str, config: Config) -> str:
    """Return the beginning of the subjects of a bucket's keys; a mirror stores those of its origin. `config`: as the
    server returns it."""
    origin = str((config.get("mirror") or {}).get("name") or "")
    return f"$KV.{origin[len('KV_') :] if origin.startswith('KV_') else bucket}."


def fingerprint(value: bytes | None) -> str | None:
    """Return a text that shows in a diff whether two values, which may be secret, are equal."""
    return None if value is None else f"sha256:{hashlib.sha256(value).hexdigest()[:16]}"


def shown(entry: KeyEntry | None) -> dict[str, Any] | None:
    """Return an entry for a result, with a fingerprint instead of its value."""
    if entry is None:
        return None
    return {"revision": entry.revision, "operation": entry.operation, "value": fingerprint(entry.value)}


def described(entry: KeyEntry, prefix: str) -> dict[str, Any]:
    """Return an entry with its value: `value` if the value is text, otherwise `value_base64`."""
    text, encoded = (None, None) if entry.value is None else text_or_base64(entry.value)
    return {
        "key": entry.subject[len(prefix) :],
        "revision": entry.revision,
        "operation": entry.operation,
        "created": entry.time,
        "value": text,
        "value_base64": encoded,
    }
