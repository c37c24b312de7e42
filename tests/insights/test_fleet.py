# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The synthetic fleet is deterministic, and its snapshots contain its truth."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import PARQUET
from jetstream_insights.lake import Lake
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.fleet import START, Fleet, Outage, recorded_stream
from support.lakes import few_silver_tables
from support.snapshots import HOUR


def content(lake: Path) -> dict[str, bytes]:
    return {str(path.relative_to(lake)): gzip.decompress(path.read_bytes()) for path in lake.rglob("*.gz")}


def test_fleet_is_reproducible_and_depends_on_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        Fleet(5, 8, seed).write(tmp_path / name, 3600)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert content(tmp_path / "a") != content(tmp_path / "c")


def test_complete_fleet_reports_the_fields_of_real_servers(tmp_path: Path) -> None:
    """The replies contain all recorded fields, no field without a column, and the members of all groups."""
    fleet = Fleet(3, 10, realistic=True)
    tables = fleet.write(tmp_path, 3600, form=PARQUET)["tables"]
    assert {table: reported["unknown"] for table, reported in tables.items() if reported["unknown"]} == {}
    assert tables["raftz"]["rows"] == tables["jsz_streams"]["rows"] + tables["jsz_consumers"]["rows"]
    known, stream = recorded_stream(), fleet.assets[0]
    detail = fleet.detail(stream, stream.replicas[0], 3600)
    for name in ("config", "state"):
        assert set(known[name]) <= set(detail[name])
    assert set(known["consumer_detail"][0]["config"]) <= set(detail["consumer_detail"][0]["config"])


def test_every_fault_occurs_and_is_reported() -> None:
    streams = Fleet(9, 300).assets
    for fault in ("purged", "flaps", "stuck", "diverged", "resized", "looping", "slow"):
        assert 3 < sum(1 for stream in streams if getattr(stream, fault)) < 40, fault


def test_silver_has_the_truth_of_the_fleet(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "streams")
    fleet = Fleet(5, 20, outages=(Outage(1, 60, 120),))
    moments = [0.0, 60.0, 120.0]
    for at in moments:
        fleet.write(tmp_path, at)
    lake = Lake(spark, str(tmp_path))
    assert START < HOUR
    assert make_silver(lake, [START], lambda _text: None).quarantined == 0
    frame = lake.read("silver", "streams", [START])
    assert frame is not None
    found = {(row["stream"], (row["taken"].timestamp() - START.timestamp())): row for row in frame.collect()}
    for stream in fleet.assets:
        for at in moments:
            leader = fleet.leader(stream, at)
            reported = [server for server in stream.replicas if not fleet.down(server, at)]
            if not reported:
                assert (stream.name, at) not in found
                continue
            row = found[stream.name, at]
            assert row["leader"] == (None if leader is None else fleet.name(leader)), (stream, at)
            assert row["last_seq"] == fleet.written(stream, at)
            assert row["hosts"] == sorted(fleet.name(server) for server in reported)
    failures = lake.read("silver", "failures", [START])
    assert failures is not None
    assert [(row["server"], row["code"], row["endpoint"]) for row in failures.collect()] == [
        ("n2", "server_missing", "servers")
    ]
