# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads messages of a stream by sequence or subject, without a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.jetstream_api import require_name
from ..nats.stored_message import message_data, message_headers, text_or_base64

#: Maximum number of messages in a result, and number of bytes after which no further message is read.
MOST_MESSAGES, MOST_BYTES = 1000, 8 * 1024 * 1024


def read_messages(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the module nats_stream_message_info. Raises NatsFailure."""
    stream, subject, limit = require_name("stream", params["stream"]), params["subject"], params["limit"]
    first, last = params["first_sequence"], params["last_sequence"]
    if not 1 <= limit <= MOST_MESSAGES:
        raise NatsFailure("invalid_option", f"limit: must be from 1 to {MOST_MESSAGES}, not {limit}")
    if first < 1 or (last is not None and last < first):
        raise NatsFailure("invalid_option", "first_sequence, last_sequence: must be at least 1, the first one first")
    if params["newest"] and (first > 1 or last is not None):
        raise NatsFailure("invalid_option", "newest: selects one message; remove first_sequence and last_sequence")
    api = connections.account(params["account"])
    if params["newest"]:
        message = api.last_message(stream, subject)
        return {"changed": False, "messages": [] if message is None else [shown(message)], "next_sequence": None}
    found: list[dict[str, Any]] = []
    size, sequence = 0, first
    while True:
        message = api.first_message(stream, subject, sequence)
        if message is None or (last is not None and message["seq"] > last):
            return {"changed": False, "messages": found, "next_sequence": None}
        if len(found) == limit or size >= MOST_BYTES:
            return {"changed": False, "messages": found, "next_sequence": message["seq"]}
        found.append(shown(message))
        size += len(message.get("data") or "")
        sequence = message["seq"] + 1


def shown(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of STREAM.MSG.GET for a result."""
    data, encoded = text_or_base64(message_data(message))
    return {
        "sequence": message["seq"],
        "subject": message["subject"],
        "time": message["time"],
        "headers": {
            _printable(name): [_printable(value) for value in values]
            for name, values in message_headers(message).items()
        },
        "data": data,
        "data_base64": encoded,
    }


def _printable(text: str) -> str:
    """Return a text without the surrogates of bytes that are not UTF-8, which JSON cannot transport."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
