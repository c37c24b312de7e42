# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gold report of a moment equals the live report of that moment, and a day is written as safely as an hour of
silver."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import Expectations, health_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.report import report_data
from jetstream_insights import document
from jetstream_insights.cli import DONE, main
from jetstream_insights.gold import TABLES
from jetstream_insights.gold_job import make_gold
from jetstream_insights.lake import Lake
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.lakes import published_rows
from support.snapshots import HOUR, RECORDED, live_cluster, recorded, write_snapshot
from support.two_days import BOTH

DAY = HOUR.date()
REPORTS = ("servers", "jetstream", "streams", "consumers")


Rows = list[dict[str, Any]]


def rows(lake: Lake, name: str, fleet: str) -> Rows:
    return [row for row in published_rows(Path(lake.uri), "gold", DAY)[name] if row["fleet"] == fleet]


def quiet(_text: str) -> None:
    """Discard the message."""


def same(found: Mapping[str, Any], live: Mapping[str, Any], *names: str, **renamed: str) -> None:
    """Compare columns of a gold row with those of the live report; `renamed`: gold=live."""
    for gold, reported in {**{name: name for name in names}, **renamed}.items():
        assert found[gold] == live[reported], (gold, found, live)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with the day of one fleet for each version, to write to."""
    path = tmp_path_factory.mktemp("lake")
    for version in RECORDED:
        write_snapshot(path, recorded(version), fleet=version)
    arguments = ["--lake", str(path), "--from", "2026-11-21", "--to", "2026-11-22", "--master", "local[1]"]
    assert main(["silver", "gold", *arguments]) == DONE
    return Lake(spark, str(path))


@pytest.fixture(scope="module")
def published(two_days: Lake) -> dict[str, Rows]:
    return published_rows(Path(two_days.uri), "gold", BOTH[0])


@pytest.mark.parametrize("version", RECORDED)
def test_gold_report_equals_the_live_report(published: dict[str, Rows], version: str) -> None:
    def table(name: str) -> Rows:
        return [row for row in published[name] if row["fleet"] == version]

    cluster = live_cluster(recorded(version))
    live = {one["name"]: one for one in report_data(cluster.as_dict(), {}, REPORTS)["tables"]}
    info = cluster.as_dict()

    servers = {row["server"]: row for row in table("report_servers")}
    assert set(servers) == {row["name"] for row in live["servers"]["rows"]}
    for row in live["servers"]["rows"]:
        found = servers[row["name"]]
        same(
            found,
            row,
            "cluster",
            "host",
            "version",
            "connections",
            "subscriptions",
            "routes",
            "gateways",
            "mem",
            "cpu",
            "cores",
        )
        same(found, row, "slow_consumers", "uptime", "rtt")
        assert bool(found["jetstream"]) == bool(row["jetstream"])
    for row in live["jetstream"]["rows"]:
        same(servers[row["server"]], row, "streams", "consumers", "messages", "bytes", "memory", "storage", "api_total")
        same(servers[row["server"]], row, "api_errors", "pending", is_meta_leader="meta_leader")
    for row in live["leaders"]["rows"]:
        same(servers[row["server"]], row, stream_leaders="streams", consumer_leaders="consumers")
    for one in info["servers"]:
        same(servers[one["name"]], one["health"], health="status", health_code="status_code", health_errors="errors")
        same(
            servers[one["name"]],
            one["js"],
            "max_storage",
            "max_memory",
            "reserved_storage",
            "ha_assets",
            "max_ha_assets",
            "api_level",
        )

    (meta,) = table("report_meta")
    same(meta, info["meta"], "leader", "leaders", "size", "quorum", "pending", "members")
    assert meta["replicas"] == info["meta"]["replicas"]

    streams = {(row["account"], row["stream"]): row for row in table("report_streams")}
    shown = {(row["account"], row["stream"]): row for row in live["streams"]["rows"]}
    assert set(streams) == set(shown)
    consumers = {(row["account"], row["stream"], row["consumer"]): row for row in table("report_consumers")}
    assert set(consumers) == {(row["account"], row["stream"], row["consumer"]) for row in live["consumers"]["rows"]}
    for stream in info["streams"]:
        key = (stream["account"], stream["name"])
        same(
            streams[key],
            shown[key],
            "storage",
            "consumers",
            "messages",
            "bytes",
            "num_deleted",
            "api_level",
            lost_messages="lost",
        )
        same(
            streams[key],
            stream,
            "num_replicas",
            "quorum",
            "leader",
            "leaders",
            "members",
            "first_seq",
            "last_seq",
            "cluster",
        )
        assert streams[key]["replicas"] == stream["replicas"]
        for consumer in stream["consumers"]:
            found = consumers[(*key, consumer["name"])]
            same(found, consumer, "durable", "leader", "leaders", "members", "quorum", num_replicas="size")
            assert found["replicas"] == consumer["replicas"]
    for row in live["consumers"]["rows"]:
        found = consumers[row["account"], row["stream"], row["consumer"]]
        same(
            found,
            row,
            "mode",
            "ack_policy",
            "ack_wait",
            "num_ack_pending",
            "num_redelivered",
            "num_pending",
            "unprocessed",
        )
        same(found, row, "ack_floor", "api_level")

    once = live["jetstream"]["totals"][1]
    (fleet,) = table("report_fleet")
    same(fleet, once, "streams", "consumers", "messages", "bytes")
    assert (fleet["servers"], fleet["missing"], fleet["meta_leader"]) == (len(servers), [], info["meta"]["leader"])
    assert fleet["connections"] == live["servers"]["totals"][0]["connections"]
    # The live gate and the timeline report the same groups.
    problems = {
        problem.subject
        for problem in health_problems(cluster, Expectations())
        if problem.code.partition("_")[0] != "server"
    }
    unwell = {
        " ".join(filter(None, [row["kind"], "/".join(filter(None, [row["account"], row["stream"], row["consumer"]]))]))
        for row in table("timeline")
        if row["state"] != "ok"
    }
    assert {subject if subject != "meta group" else "meta" for subject in problems} == unwell


@pytest.mark.chaos
def test_unchanged_day_is_not_recomputed(lake: Lake) -> None:
    first = lake.pointer("gold", DAY)
    # A run is killed before its end: the published run remains. Expired silver hours do not change the published run
    # either.
    root = Path(lake.uri)
    (root / "gold" / "report_servers" / "run=killed").mkdir()
    pointer = root / "silver" / "_published" / "date=2026-11-21" / "hour=18.json"
    kept = pointer.read_text()
    for without in (False, True):
        if without:
            pointer.unlink()
        outcome = make_gold(lake, [DAY], quiet)
        assert (outcome.made, outcome.fresh, lake.pointer("gold", DAY)) == (0, 1, first)
    pointer.write_text(kept)
    version = RECORDED[-1]
    write_snapshot(root, recorded(version), HOUR + timedelta(minutes=1), version)
    make_silver(lake, [HOUR], quiet)
    assert make_gold(lake, [DAY], quiet).made == 1
    assert lake.pointer("gold", DAY)["run"] != first["run"]
    assert {row["taken"].minute for row in rows(lake, "report_servers", version)} == {1}


def test_every_table_and_column_has_a_description() -> None:
    """The reference page, which was generated without Spark, matches."""
    written = (Path(__file__).parents[2] / "docs/reference/insights_tables.md").read_text()
    assert written.endswith(f"\n\n{document.page()}")
    assert [name for name in TABLES if f"#### `{name}`" not in written] == []
