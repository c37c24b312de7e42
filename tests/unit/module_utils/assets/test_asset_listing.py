# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the pure functions for reading assets: durations, rows, and account figures."""

from __future__ import annotations

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.assets.listing import (
    ACCOUNT_VIEW,
    AssetListing,
    in_seconds,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import STREAM
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.replies import stream_group
from ansible_collections.natsops.jetstream.plugins.modules.nats_account_info import reported_jetstream

SECOND = 1_000_000_000


def test_durations_become_seconds_and_nothing_else_does() -> None:
    config: dict[str, Any] = {
        "max_age": 90 * SECOND,
        "max_bytes": 5 * SECOND,
        "backoff": [SECOND, 1_500_000_000],
        "consumer_limits": {"inactive_threshold": 2 * SECOND, "max_ack_pending": 7},
        "metadata": {"max_age": "5", "active": 1},
        "sources": [{"name": "A", "active": -1, "lag": 3}, {"name": "B", "active": SECOND // 2}],
    }
    assert in_seconds(config) == {
        "max_age": 90.0,
        "max_bytes": 5 * SECOND,
        "backoff": [1.0, 1.5],
        "consumer_limits": {"inactive_threshold": 2.0, "max_ack_pending": 7},
        "metadata": {"max_age": "5", "active": 1},
        "sources": [{"name": "A", "active": None, "lag": 3}, {"name": "B", "active": 0.5}],
    }
    assert in_seconds(3 * SECOND, "pause_remaining") == 3.0


def test_an_asset_without_a_leader_is_in_its_row_and_among_the_unknown() -> None:
    info = {
        "config": {"name": "HALF", "num_replicas": 3},
        "cluster": {"name": "C1", "raft_group": "S-R3F-x", "replicas": [{"name": "n2", "current": False}]},
    }
    found = AssetListing(ACCOUNT_VIEW)
    found.add(STREAM, "APP", info, stream_group("APP", info), None)
    result = found.result(STREAM)
    assert [problem["code"] for problem in result["problems"]] == ["stream_no_leader"]
    assert result["streams"][0]["problems"] == result["problems"]
    assert result["unknown"][0]["stream"] == "HALF"
    assert "has no leader" in result["unknown"][0]["reason"]


def test_a_missing_replica_and_one_behind_are_problems_of_the_row() -> None:
    info = {
        "config": {"name": "SHORT", "num_replicas": 3},
        "cluster": {"leader": "n1", "replicas": [{"name": "n2", "current": True, "active": 9 * SECOND}]},
    }
    found = AssetListing(ACCOUNT_VIEW)
    found.add(STREAM, "APP", info, stream_group("APP", info), None)
    codes = {problem["code"] for problem in found.result(STREAM)["streams"][0]["problems"]}
    assert codes == {"stream_replica_count", "stream_no_quorum", "stream_replica_behind"}
    assert found.unknown == []


def test_tiers_of_an_account_are_kept() -> None:
    tier = {"memory": 0, "storage": 30, "limits": {"max_storage": 100}}
    told = reported_jetstream({"storage": 30, "tiers": {"R3": tier}, "limits": {}})
    assert (told["tiers"], told["limits"]["max_storage"]) == ({"R3": tier}, None)
    assert told["usage"] == {"once": None, "replicas": {"memory": 0, "storage": 30}}
