# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import OptionError
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.entries import (
    described,
    fingerprint,
    read_entry,
    require_key,
    subject_prefix,
)


def message(data: bytes = b"", headers: str = "") -> dict[str, Any]:
    encoded = {"data": base64.b64encode(data).decode(), "hdrs": base64.b64encode(headers.encode()).decode()}
    return {"subject": "$KV.b.a.key", "seq": 4, "time": "2026-11-29T12:00:00Z", **encoded}


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        ("NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", "put"),
        ("NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", "delete"),
        ("NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n", "purge"),
        ("NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n", "expired"),
    ],
)
def test_operation_is_read_from_the_headers(headers: str, operation: str) -> None:
    entry = read_entry(message(b"1", headers))
    assert (entry.operation, entry.value) == (operation, b"1" if operation == "put" else None)


def test_values_that_are_not_text_are_encoded() -> None:
    assert described(read_entry(message(b"\xff")), "$KV.b.")["value_base64"] == "/w=="
    text = described(read_entry(message("ä".encode())), "$KV.b.")
    assert (text["key"], text["value"], text["value_base64"]) == ("a.key", "ä", None)


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a.*", ">", "a b", "ä"])
def test_keys_that_clients_do_not_accept_are_refused(key: str) -> None:
    with pytest.raises(OptionError, match="is not the key of one entry"):
        require_key(key)


def test_mirror_stores_the_keys_of_its_origin() -> None:
    assert subject_prefix("copy", {}) == "$KV.copy."
    assert subject_prefix("copy", {"mirror": {"name": "KV_origin"}}) == "$KV.origin."


def test_fingerprint_depends_on_the_value_only() -> None:
    assert fingerprint(b"10") == fingerprint(b"10") != fingerprint(b"20")
    assert fingerprint(None) is None
