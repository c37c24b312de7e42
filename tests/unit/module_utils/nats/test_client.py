# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the client's own rules; tests/integration tests the client with real servers."""

from __future__ import annotations

import gzip
from typing import Callable, ClassVar

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats import client
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Call, NatsFailure


@pytest.mark.parametrize(
    "damage", [lambda body: body[:-9], lambda body: body[:12] + b"\xff" * 8 + body[20:], lambda body: b"x"]
)
def test_a_compressed_reply_that_is_damaged(damage: Callable[[bytes], bytes]) -> None:
    class Message:
        headers: ClassVar = {"Content-Encoding": "gzip"}
        data = damage(gzip.compress(b"reply" * 100))

    with pytest.raises(NatsFailure) as damaged:
        client._body(Message(), Call("S"))
    assert (damaged.value.code, damaged.value.subject) == ("bad_reply", "S")


def test_a_compressed_reply_that_grows_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few megabytes can expand to gigabytes, and any client of the account may send the first reply, the one that
    counts."""
    monkeypatch.setattr(client, "LARGEST_REPLY", 1 << 20)

    class Message:
        headers: ClassVar = {"Content-Encoding": "gzip"}
        data = gzip.compress(bytes(64 << 20))

    with pytest.raises(NatsFailure, match=r"the reply is larger than 1\.0 MiB") as refused:
        client._body(Message(), Call("S"))
    assert refused.value.code == "bad_reply"
    Message.data = gzip.compress(bytes(1 << 20))
    assert client._body(Message(), Call("S")) == bytes(1 << 20)
