# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An archive in the layout of `nats audit gather`, from real servers with deliberate faults, is judged like a
snapshot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.redaction import Redactor
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.bundle import BundleContents, bundle
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import (
    ENDPOINTS,
    CaptureOptions,
    collect,
    import_archive,
)
from jetstream_insights.findings.cluster_checks import SEEN
from jetstream_insights.findings.registry import CheckSettings
from jetstream_insights.findings_job import make_findings
from jetstream_insights.lake import Lake
from jetstream_insights.silver_job import make_silver
from pyspark.sql import Row, SparkSession
from support.load import fetch
from support.nats_processes import APP_PASSWORD, APP_USER, VERSIONS, NatsProcesses

DIRECT, ARCHIVE = "direct", "archive"
#: The faults, each with its expected findings.
FAULTS = {
    "n3 was killed": {("META_105", "n3"), ("STREAM_106", "ORDERS"), ("CONSUMER_103", "ORDERS")},
    "the servers store below /tmp": {("SERVER_102", "n1"), ("SERVER_102", "n2")},
    "the stream FULL has 96 % of its bytes": {("JETSTREAM_003", "FULL")},
    "the stream SINGLE has one replica": {("STREAM_103", "SINGLE")},
    "the stream TWO has two replicas": {("STREAM_109", "TWO")},
    "the consumer of TWO has an unacknowledged message, its limit": {("CONSUMER_105", "TWO")},
}
#: Streams and consumers that have a replica on n3.
REPLICATED = ("STREAM.ORDERS", "STREAM.FULL", "CONSUMER.ORDERS.worker")
SUBJECT = ("domain", "cluster", "server", "account", "stream", "consumer", "name", "peer")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcesses]:
    servers = NatsProcesses(VERSIONS[-1], tmp_path_factory.mktemp("cluster"), ["n1", "n2", "n3"])
    for name in ("n1", "n2"):
        servers.write_config(name, 'server_tags: ["stays"]')
    servers.start()
    stays = {"tags": ["stays"]}
    try:
        servers.add_stream("ORDERS", 3)
        servers.add_consumer("ORDERS", "worker")
        servers.add_stream("FULL", 3, max_bytes=100_000)
        servers.add_stream("SINGLE", 1, placement=stays)
        servers.add_stream("TWO", 2, placement=stays)
        servers.add_consumer("TWO", "slow", max_ack_pending=1)
        asyncio.run(_use(servers))
        for asset in REPLICATED:
            _lead_elsewhere(servers, asset, "n3")
        servers.kill("n3")
        for asset in REPLICATED:
            _wait_until_missed(servers, asset, "n3")
        yield servers
    finally:
        servers.kill()


def _group(servers: NatsProcesses, asset: str) -> dict[str, Any]:
    group: dict[str, Any] = servers.app_request(f"$JS.API.{asset.replace('.', '.INFO.', 1)}", members=3)["cluster"]
    return group


def _lead_elsewhere(servers: NatsProcesses, asset: str, name: str) -> None:
    """Make a different server lead a stream or consumer, because a leader that is elected after a server's death never
    had contact with that server."""
    while (leader := _group(servers, asset).get("leader")) in (None, "", name):
        if leader:
            servers.app_request(f"$JS.API.{asset.replace('.', '.LEADER.STEPDOWN.', 1)}")
        time.sleep(0.1)


def _wait_until_missed(servers: NatsProcesses, asset: str, name: str) -> None:
    """Return once the leader of a stream or consumer has been without contact to a server for longer than the checks
    allow."""
    deadline = time.monotonic() + 60
    while True:
        (peer,) = [peer for peer in _group(servers, asset)["replicas"] if peer["name"] == name]
        if not peer["current"] and peer["active"] > SEEN.default * 1e9:
            return
        assert time.monotonic() < deadline, peer
        time.sleep(0.1)


async def _use(servers: NatsProcesses) -> None:
    async with await nats.connect(servers.urls, user=APP_USER, password=APP_PASSWORD) as connection:
        context = connection.jetstream()
        for _number in range(12):
            await context.publish("FULL.a", b"x" * 7950)
        for stream in ("ORDERS", "TWO"):
            for _number in range(5):
                await context.publish(f"{stream}.a", b"x")
        (message,) = await fetch(await context.pull_subscribe_bind("slow", "TWO"), 1)
        assert message.data == b"x"


@pytest.fixture(scope="module")
def found(cluster: NatsProcesses, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Return the findings of two snapshots and of two archives, taken alternately."""
    folder = tmp_path_factory.mktemp("judged")
    connection = {**cluster.sys_connection(), "servers": tuple(cluster.url(name) for name in cluster.processes)}
    options = ConnectionOptions(**connection)
    path = folder / "lake"
    began = datetime.now(timezone.utc)
    for number in range(2):
        with Client(options) as client:
            collect(client, CaptureOptions(path, DIRECT, list(ENDPOINTS)))
        archive = folder / f"{number}.zip"
        bundle(options, archive, BundleContents(), Redactor([]), 1 << 30)
        import_archive(archive, path, ARCHIVE)
    lake = Lake(spark, str(path), little=True)

    def say(_text: str) -> None:
        """Discard the message."""

    hours = sorted(
        {moment.replace(minute=0, second=0, microsecond=0) for moment in (began, datetime.now(timezone.utc))}
    )
    assert make_silver(lake, hours, say).quarantined == 0
    day = hours[-1].date()
    assert make_findings(lake, [day], say, False, CheckSettings(), None).made == 1
    frame = lake.read_days("findings", "findings", [day])
    assert frame is not None
    return frame.where("state = 'open' OR result = 'unknown'").collect()


def subjects(rows: list[Row], fleet: str, result: str) -> set[tuple[Any, ...]]:
    return {
        (row["check"], *(row[name] for name in SUBJECT))
        for row in rows
        if (row["fleet"], row["result"]) == (fleet, result)
    }


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("fleet", [DIRECT, ARCHIVE])
def test_deliberate_fault_is_found(found: list[Row], fleet: str, fault: str) -> None:
    failing = {
        (row["check"], about)
        for row in found
        if (row["fleet"], row["result"]) == (fleet, "fail")
        for about in (row["server"], row["stream"], row["name"], row["peer"])
    }
    assert FAULTS[fault] - failing == set()


def test_archive_and_snapshot_have_the_same_findings(found: list[Row]) -> None:
    direct, archive = (subjects(found, fleet, "fail") for fleet in (DIRECT, ARCHIVE))
    assert direct == archive
    severities = [
        {(row["check"], *(row[name] for name in SUBJECT)): row["severity"] for row in found if row["fleet"] == fleet}
        for fleet in (DIRECT, ARCHIVE)
    ]
    assert {key: severities[0][key] for key in direct} == {key: severities[1][key] for key in archive}
