# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the classes of traffic, and the rates between two readings of a server."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure, Observed
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Server
from ansible_collections.natsops.jetstream.plugins.modules.nats_traffic_info import Counter, compare, subject_kind


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        ("$NRG.AE.abc", "raft_append"),
        ("$NRG.R.abc", "raft_reply"),
        ("$NRG.RP.abc", "raft_remove_peer"),
        ("$NRG.CR.abc", "raft_catchup"),
        ("$JSC.SYNC.abc", "stream_sync"),
        ("$JSC.ACK.abc.1", "cluster_reply"),
        ("$JS.API.STREAM.INFO.S", "jetstream_api"),
        ("$SYS.REQ.SERVER.PING.STATSZ", "system_request"),
        ("$SYS._INBOX.x.y", "system_reply"),
        ("$SYS.ACCOUNT.APP.SERVER.CONNS", "gossip"),
        ("$SYS.DEBUG.SUBSCRIBERS", "system_other"),
        ("orders.new", "client"),
    ],
)
def test_kinds(subject: str, kind: str) -> None:
    assert subject_kind(subject) == kind


def test_counting_stops_at_the_limit() -> None:
    counter = Counter(3)
    assert [counter(Observed("$NRG.AE.x", True, size)) for size in (10, 20, 30)] == [False, False, True]
    rows = {row["kind"]: row for row in counter.kinds(2.0)}
    assert rows["raft_append"] == {
        "kind": "raft_append",
        "group": "raft",
        "msgs": 3,
        "bytes": 60,
        "msgs_per_second": 1.5,
        "bytes_per_second": 30.0,
    }
    assert rows["client"]["msgs"] == 0


def test_rates_of_servers_and_those_that_were_silent() -> None:
    servers = [Server("n1", "N1", cluster="C1"), Server("n2", "N2", cluster="C1")]
    figures = {"in_msgs": 10, "out_msgs": 20, "in_bytes": 100, "out_bytes": 200}
    silent = NatsFailure("timeout", "no reply within 5 s", server="n2")
    rates, incomplete = compare(
        servers,
        {"N1": {"now": "2026-11-20T10:00:00Z", **figures}, "N2": {"now": "2026-11-20T10:00:00Z", **figures}},
        {"N1": {"now": "2026-11-20T10:00:04Z", **figures, "in_msgs": 30}, "N2": silent},
    )
    assert [(row["name"], row["seconds"], row["in_msgs_per_second"], row["out_msgs_per_second"]) for row in rates] == [
        ("n1", 4.0, 5.0, 0.0)
    ]
    assert rates[0]["in_client_msgs_per_second"] is None
    assert [(item["server"], item["failure"]["code"]) for item in incomplete] == [("n2", "timeout")]
