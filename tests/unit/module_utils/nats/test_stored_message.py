# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers and contents of stored messages are read as publishers wrote them."""

from __future__ import annotations

import base64

from ansible_collections.natsops.jetstream.plugins.module_utils.assets.run_messages import shown
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.stored_message import (
    header_values,
    message_data,
    message_headers,
)

HEADERS = b"NATS/1.0 503\r\nColour: red\r\nColour:  blue \r\nNats-Msg-Id: a:b\r\nRaw: \xff\r\n\r\n"
MESSAGE = {
    "subject": "orders.1",
    "seq": 3,
    "time": "2026-11-20T10:00:02Z",
    "data": base64.b64encode(b"\xff").decode(),
    "hdrs": base64.b64encode(HEADERS).decode(),
}


def test_headers_keep_their_order_and_their_values() -> None:
    assert message_headers(MESSAGE) == {
        "Colour": ["red", "blue"],
        "Nats-Msg-Id": ["a:b"],
        "Raw": ["\udcff"],
    }
    assert header_values(MESSAGE, "nats-msg-id") == ["a:b"]
    assert header_values(MESSAGE, "Other") == []


def test_a_message_without_headers_and_content_is_empty() -> None:
    assert (message_headers({}), message_data({"data": None})) == ({}, b"")


def test_a_result_has_no_bytes_that_json_cannot_transport() -> None:
    result = shown(MESSAGE)
    assert (result["data"], result["data_base64"], result["headers"]["Raw"]) == (None, "/w==", ["�"])
