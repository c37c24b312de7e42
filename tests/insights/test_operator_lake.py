# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs identify the accounts of a real cluster in operator mode by their public keys, even if two share a name.

The truth fleet has such accounts, too (test_judged_hours.py)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import nats
import pytest
from jetstream_insights.cli import DONE, main
from jetstream_insights.report.shape import dicts
from pyspark.sql import SparkSession
from support.credentials import make_operator
from support.lakes import published_rows
from support.nats_processes import VERSIONS, NatsProcesses
from support.real_faults import NAMES, Collector

#: The messages in each account's stream S1. The first two accounts have the same name in their JWTs.
STORED = {"FIRST": 30, "SECOND": 20, "BILLING": 5}
TAGS = {"FIRST": "ORDERS", "SECOND": "ORDERS"}
SNAPSHOTS = 3


def _fill(cluster: NatsProcesses) -> None:
    """Create the stream S1 with a consumer in each account, and publish its messages."""

    async def publish(account: str, count: int) -> None:
        assert cluster.operator
        login = str(cluster.operator.creds[account])
        async with await nats.connect(cluster.urls, user_credentials=login) as connection:
            for _message in range(count):
                await connection.jetstream(timeout=10).publish("s1.a", b"x" * 100)

    for account, count in STORED.items():
        cluster.add_stream("S1", 3, account, subjects=["s1.>"], max_age=3600 * 10**9)
        cluster.add_consumer("S1", "worker", account)
        asyncio.run(publish(account, count))
        cluster.app_request("$JS.API.STREAM.INFO.S1", account=account, members=3)


@pytest.mark.chaos
def test_accounts_of_a_real_operator_are_identified_by_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    operator = make_operator(tmp_path, *STORED, tags=TAGS)
    cluster, lake = NatsProcesses(VERSIONS[-1], tmp_path, NAMES, operator=operator), tmp_path / "lake"
    collector = Collector(cluster, lake)
    collector.fleet = "operated"
    cluster.start()
    try:
        _fill(cluster)
        begin = datetime.now(timezone.utc)
        collector.take(SNAPSHOTS)
        end = datetime.now(timezone.utc)
    finally:
        cluster.kill()
    span = ("--from", f"{begin:%Y-%m-%dT%H}", "--to", f"{end + timedelta(hours=1):%Y-%m-%dT%H}")
    jobs = ("silver", "gold", "findings", "report")
    assert main([*jobs, "--lake", str(lake), *span, "--output", str(tmp_path / "report")]) == DONE
    keys = {operator.keys[account]: count for account, count in STORED.items()}
    streams, groups = Counter[tuple[str, str, int]](), Counter[str]()
    for hour in {moment.replace(minute=0, second=0, microsecond=0) for moment in (begin, end)}:
        if (lake / "silver" / "_published" / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}.json").exists():
            silver = published_rows(lake, "silver", hour)
            streams.update((row["account"], row["stream"], row["messages"]) for row in silver["streams"])
            groups.update(row["account"] for row in silver["raft_groups"])
    assert streams == {(key, "S1", count): SNAPSHOTS for key, count in keys.items()}
    # Each account has a stream and a consumer with three members each; the meta group has three, too.
    assert {key: groups[key] for key in keys} == dict.fromkeys(keys, 6 * SNAPSHOTS)
    assert sum(groups.values()) == (6 * len(keys) + 3) * SNAPSHOTS
    gold = published_rows(lake, "gold", end.date())
    stored = {row["account"]: row["storage"] for row in gold["account_usage"] if row["account"] in keys}
    assert set(stored) == set(keys) and all(stored.values())
    assert {row["name"] for row in gold["usage"] if row["scope"] == "account"} >= set(keys)
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    (fleet,) = dicts(content, "fleets")
    assert (fleet["streams"], fleet["messages"]) == (len(keys), sum(keys.values()))
    assert [row["title"] for row in dicts(content, "causes") if row["severity"] == "critical"] == []
    # A name shared by two accounts identifies neither of them.
    assert content["account_names"] == {operator.keys["BILLING"]: "BILLING", operator.system_account: "SYS"}
