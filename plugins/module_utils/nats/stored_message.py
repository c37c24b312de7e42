# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the messages that STREAM.MSG.GET returns (`subject`, `seq`, `time`; `data` and `hdrs` in base64); no I/O."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

#: The header of a copied message: the name of its source stream and its sequence there.
SOURCE_HEADER = "Nats-Stream-Source"


def message_data(message: Mapping[str, Any]) -> bytes:
    """Return the content of a message."""
    return base64.b64decode(message.get("data") or "")


def message_headers(message: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values of each header of a message, in their order; bytes that are not UTF-8 as surrogates."""
    lines = base64.b64decode(message.get("hdrs") or "").decode(errors="surrogateescape").split("\r\n")
    found: dict[str, list[str]] = {}
    for line in lines[1:]:  # the first one is the version, such as NATS/1.0
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name, []).append(value.strip())
    return found


def header_values(message: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of one header; its name may have any case."""
    found = message_headers(message).items()
    return [value for key, values in found if key.lower() == name.lower() for value in values]


def text_or_base64(data: bytes) -> tuple[str | None, str | None]:
    """Return bytes as text, or in base64 if they are not UTF-8; the other value is None."""
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()
