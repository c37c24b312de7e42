# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils._report import (
    human_bytes,
    human_seconds,
    jetstream_table,
    meta_table,
    report,
    table,
)


@pytest.mark.parametrize("size, text", [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_human_bytes(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize("seconds, text", [(0.0004, "0ms"), (0.35, "350ms"), (59.9, "59s"), (3725, "1h2m"), (90000, "1d1h")])
def test_human_seconds(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


def test_every_line_of_a_table_is_equally_wide_and_numbers_stand_on_the_right() -> None:
    text = table("A title that is wider than the table", ("Name", "Count"), [("n1", 5), ("n10", 12345)], ("", 12350))
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[5].rstrip(" │").endswith(" 5")
    assert lines[5].startswith("│ n1 ")


def server(name: str, jetstream: bool = True) -> dict[str, Any]:
    js = dict.fromkeys(("streams", "consumers", "messages", "bytes", "memory", "storage", "api_total", "api_errors"), 2)
    return {"name": name, "cluster": "C1", "host": "10.0.0.1", "version": "2.10.27", "jetstream": jetstream, "connections": 1,
            "subscriptions": 60, "routes": 8, "gateways": 0, "mem": 1 << 24, "cpu": 1.5, "cores": 2, "slow_consumers": 0,
            "uptime": 12.5, "rtt": 0.002, "js": js if jetstream else None}


def info(**changes: Any) -> dict[str, Any]:
    peers = [{"name": name, "id": "abc", "leader": name == "n2", "current": True, "online": True, "active": 0.4, "lag": 0}
             for name in ("n1", "n2")]
    meta = {"leader": "n2", "size": 2, "quorum": 2, "replicas": peers}
    return {"servers": [server("n1"), server("n2"), server("n3", jetstream=False)], "meta": meta, "problems": [], **changes}


def test_the_meta_leader_is_marked_and_core_servers_are_left_out() -> None:
    text = jetstream_table(info())
    assert "n2*" in text
    assert "n3" not in text
    assert text.splitlines()[-2].split("│")[3].strip() == "4"


def test_the_report_names_what_is_wrong() -> None:
    assert report(info()).endswith("No problems found.")
    text = report(info(problems=[{"severity": "error", "message": "n9 did not answer"}]))
    assert "error: n9 did not answer" in text


def test_a_cluster_without_jetstream_says_so() -> None:
    assert "No JetStream meta group" in meta_table(info(meta=None))
