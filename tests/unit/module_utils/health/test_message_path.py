# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.message_path import (
    is_complete,
    lines,
    read_hops,
    summary,
)


def event(server: str, hop: str, *events: dict[str, Any], hops: int = 0) -> dict[str, Any]:
    header = {"Nats-Trace-Hop": [hop]} if hop else {}
    return {"server": {"name": server}, "request": {"header": header}, "hops": hops, "events": list(events)}


ENTRY = event(
    "n1",
    "",
    {"type": "in", "kind": 0, "cid": 9, "name": "app", "acc": "APP", "subj": "a"},
    {"type": "sm", "to": "b"},
    {"type": "si", "acc": "OTHER", "from": "b", "to": "c"},
    {"type": "se", "acc": "THIRD", "to": "d"},
    {"type": "js", "stream": "S", "subject": "b", "error": "store failed"},
    {"type": "eg", "kind": 1, "cid": 2, "name": "n2", "hop": "1"},
    {"type": "eg", "kind": 4, "cid": 3, "name": "leaf", "error": "Not delivered because of no echo"},
    hops=1,
)
OTHER = event(
    "n2",
    "1",
    {"type": "in", "kind": 1, "cid": 4, "name": "n1", "acc": "APP", "subj": "b"},
    {"type": "eg", "kind": 0, "cid": 7, "name": "worker\x1b[1m", "sub": "b", "queue": "q"},
)


def test_path_is_complete_once_all_announced_servers_have_reported() -> None:
    assert not is_complete([])
    assert not is_complete([ENTRY])
    assert is_complete([OTHER, ENTRY])


def test_path_lists_mappings_streams_receivers_and_errors() -> None:
    hops = read_hops([OTHER, ENTRY])
    assert [(hop["hop"], hop["server"], hop["mapped_to"]) for hop in hops] == [("", "n1", "b"), ("1", "n2", None)]
    assert hops[0]["imports"] == [{"account": "OTHER", "from": "b", "to": "c"}]
    assert lines(hops) == [
        "n1 from client app",
        "  mapped to b",
        "  service of account OTHER: c",
        "  stream import of account THIRD: d",
        "  stream S: store failed",
        "  leafnode leaf (None): Not delivered because of no echo",
        "  n2 from route n1",
        "    client worker\ufffd[1m (b)",
    ]
    assert summary(hops) == {
        "receivers": 1,
        "streams": [],
        "errors": ["stream S: store failed", "leafnode leaf: Not delivered because of no echo"],
    }


@pytest.mark.parametrize("broken", [{}, {"server": {"name": "n1"}, "events": [{"type": "in"}]}])
def test_events_that_no_server_sends_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_hops([broken])
