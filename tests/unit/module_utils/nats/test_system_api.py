# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how replies are parsed; tests/integration uses real replies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure, Reply
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import (
    Discovery,
    _data,
    _with_more,
    mask_values,
)
from support.clusters import server


def read(document: object) -> object:
    return _data(Reply("S", json.dumps(document).encode(), 0.1))


def test_envelopes() -> None:
    assert read({"server": {"id": "N"}, "data": {"a": 1}}) == {"a": 1}
    assert read({"server": {"id": "N"}, "statsz": {"a": 1}}) == {"a": 1}
    assert read({"server": {"id": "N"}}) == {}
    assert read({"name": "n1", "id": "N", "host": "h"}) == {"name": "n1", "id": "N", "host": "h"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"server": {}, "error": {"code": 500, "description": "no"}}', "server_error"),
        (b'{"server": {}, "da', "bad_reply"),
        (b"[]", "bad_reply"),
        (b"", "bad_reply"),
    ],
)
def test_replies_that_are_failures(body: bytes, code: str) -> None:
    answer = _data(Reply("S", body, 0.1))
    assert isinstance(answer, NatsFailure)
    assert (answer.code, answer.subject) == (code, "S")


def test_values_in_refusals_are_masked() -> None:
    refused = "config reload not supported for JetStreamKey: old=a\nb, new=c"
    assert mask_values(refused) == "config reload not supported for JetStreamKey: old=(hidden)"
    assert mask_values("no such file") == "no such file"


def test_servers_by_name() -> None:
    found = Discovery((server("n1"), server("n10"), server("n2"), server("n2", id="NX")), ())
    assert found.named("n1").id == "Nn1"
    for name, code in (("n3", "server_missing"), ("n2", "server_ambiguous"), ("n", "server_missing")):
        with pytest.raises(NatsFailure) as refused:
            found.named(name)
        assert refused.value.code == code


def test_pages_without_an_end_are_a_bad_reply() -> None:
    """No more pages are read than the first one announces, and none if that number is impossible."""
    one, two = server("n1"), server("n2")

    def with_more(offset: int, totals: dict[str, int], **page: object) -> tuple[list[str], object]:
        pages: dict[str, Any] = {one.id: page, two.id: NatsFailure("timeout", "no reply")}
        found = _with_more([one, two], pages, ("connections", "total"), offset, 2, totals)
        return [item.name for item in found], getattr(pages[one.id], "code", None)

    totals: dict[str, int] = {}
    assert with_more(0, totals, connections=[1, 2], total=5) == (["n1"], None)
    assert with_more(2, totals, connections=[1, 2], total=500) == (["n1"], None)
    assert with_more(4, totals, connections=[1, 2], total=500) == ([], None)
    assert with_more(0, {}, connections=[1], total=5) == ([], None)
    for wrong in ({"total": 10**15}, {"total": "many"}, {"connections": 7}):
        assert with_more(0, {}, **{"connections": [1, 2], "total": 5, **wrong}) == ([], "bad_reply")
