# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the table that the job makes from advisories of real servers, captured by streams in two accounts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights import advisories, cli
from jetstream_insights.advisories import Capture, Portion, make_advisories, read_captures
from jetstream_insights.compaction import RetentionTimes, maintain
from jetstream_insights.files import HadoopFiles
from jetstream_insights.lake import Lake, hours
from jetstream_insights.source import SourceOptions
from jetstream_insights.stream_connection import SourceError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.nats_processes import APP_PASSWORD, NatsProcesses
from support.streams import Site

OWN = ("$JS.EVENT.ADVISORY.STREAM.>", "$JS.EVENT.ADVISORY.CONSUMER.>")
SYSTEM_SUBJECTS = ("$JS.EVENT.ADVISORY.DOMAIN.>", "$JS.EVENT.ADVISORY.SERVER.>")


class Exporting(NatsProcesses):
    """Servers whose system account exports its advisories, which the account OPS imports."""

    def write_config(self, name: str, extra: str = "") -> None:
        super().write_config(name, extra)
        file = self.config_file(name)
        subject = "$JS.EVENT.ADVISORY.>"
        imports = f'imports: [{{stream: {{account: "$SYS", subject: "{subject}"}}}}], users: [{{user: ops'
        text = file.read_text().replace('"$SYS" {', f'"$SYS" {{ exports: [{{stream: "{subject}"}}],')
        file.write_text(text.replace("users: [{user: ops", imports))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    servers = Exporting(
        "2.15.1", tmp_path_factory.mktemp("site"), ["n1", "n2", "n3"], accounts={"APP": "app", "OPS": "ops"}
    )
    servers.start()
    try:
        found = Site("2.15.1", servers)
        servers.add_stream("ADVISORIES", 1, "APP", subjects=list(OWN), allow_direct=True)
        servers.add_stream("ADVISORIES", 1, "OPS", subjects=[*OWN, *SYSTEM_SUBJECTS], allow_direct=True)
        yield found
    finally:
        servers.kill()


@pytest.fixture
def captures(site: Site, tmp_path: Path) -> list[Capture]:
    options = {"servers": ",".join(site.servers.urls), "stream": "ADVISORIES", "password": APP_PASSWORD}
    users = site.servers.accounts.items()
    reported = [{"fleet": "F", "account": account, "options": {**options, "user": user}} for account, user in users]
    (tmp_path / "streams.json").write_text(json.dumps(reported))
    return read_captures(str(tmp_path / "streams.json"))


def say(_text: str) -> None:
    """Discard the message."""


def table(lake: Lake) -> list[dict[str, Any]]:
    """Return the published rows of yesterday, today and tomorrow."""
    now, day = datetime.now(timezone.utc), timedelta(days=1)
    frame = lake.read("silver", "advisories", hours(now - day, now + day))
    assert frame is not None
    rows = frame.withColumn("extra", F.to_json("extra")).orderBy("time", "id").collect()
    return [row.asDict(recursive=True) for row in rows]


@pytest.mark.chaos
def test_advisories_job_continues_after_the_last_sequence(
    spark: SparkSession,
    site: Site,
    captures: list[Capture],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    lake = Lake(spark, str(tmp_path / "lake"))
    site.add_stream("ORDERS", 3)
    site.servers.add_consumer("ORDERS", "WORKER")
    site.api("STREAM.LEADER.STEPDOWN.ORDERS")
    _publish(site, b"no advisory")

    # A run is killed before it writes its position: its rows are read again, but not stored twice.
    with monkeypatch.context() as patched:
        patched.setattr(HadoopFiles, "replace_text", _killed_at_the_end(HadoopFiles.replace_text))
        with pytest.raises(KeyboardInterrupt):
            make_advisories(lake, captures, say)
    between = len(table(lake))
    assert between > 5
    first = make_advisories(lake, captures, say)
    rows = table(lake)
    assert len(rows) >= between
    assert first.unreadable == 1
    assert first.rows > len(rows)  # a message that two accounts captured is one row
    ids = [row["id"] for row in rows if row["id"]]
    assert len(ids) == len(set(ids)) == len(rows) - 1

    elected = [row for row in rows if row["kind"] == "stream_leader_elected" and row["stream"] == "ORDERS"]
    assert len(elected) >= 2
    assert {row["leader"] for row in elected} <= set(site.servers.names)
    assert {len(row["replicas"]) for row in elected} <= {2, 3}
    assert {peer["name"] for row in elected for peer in row["replicas"]} <= set(site.servers.names)
    assert {row["account"] for row in elected} == {"APP"}
    assert {row["type"] for row in elected} == {"io.nats.jetstream.advisory.v1.stream_leader_elected"}
    made = next(row for row in rows if row["kind"] == "consumer_action")
    assert (made["account"], made["stream"], made["consumer"], made["action"]) == ("APP", "ORDERS", "WORKER", "create")
    assert abs((made["time"] - made["taken"]).total_seconds()) < 5
    wrong = next(row for row in rows if row["kind"] == advisories.UNREADABLE)
    assert json.loads(wrong["extra"]) == {"base64": "bm8gYWR2aXNvcnk="}

    # The command adds later messages in another process.
    site.api("STREAM.DELETE.ORDERS")
    arguments = ["advisories", "--lake", lake.uri, "--streams", str(tmp_path / "streams.json")]
    monkeypatch.setattr(cli, "session", lambda *_arguments: spark)
    assert cli.main(arguments) == cli.DONE
    reported = json.loads(capsys.readouterr().out)
    assert (reported["job"], reported["lost"], reported["unreadable"]) == ("advisories", 0, 0)
    later = table(lake)
    assert [row for row in later if row in rows] == rows
    assert "stream_action" in {row["kind"] for row in later if row not in rows}
    assert ("ORDERS", "delete") in {(row["stream"], row["action"]) for row in later}
    assert make_advisories(lake, captures, say).rows == 0
    assert table(lake) == later

    # Messages that no longer exist, and a stream that was replaced by another one, are reported.
    _publish(site, b'{"type": "io.nats.jetstream.advisory.v1.x", "id": "gone"}')
    site.api("STREAM.PURGE.ADVISORIES")
    heard: list[str] = []
    assert make_advisories(lake, captures, heard.append).lost >= 1
    site.api("STREAM.DELETE.ADVISORIES")
    site.servers.add_stream("ADVISORIES", 1, "APP", subjects=list(OWN), allow_direct=True)
    make_advisories(lake, captures, heard.append)
    assert any("were removed before they were read" in text for text in heard)
    assert any("F/APP/ADVISORIES was recreated" in text for text in heard)
    assert {row["id"] for row in later} <= {row["id"] for row in table(lake)}

    # Maintenance keeps the runs to which the table's pointers refer, and removes replaced runs.
    rows = table(lake)
    runs = lake.files.names("silver/advisories")
    # A run counts as unused from the first maintenance that finds it unused.
    for days in (3, 4):
        maintain(
            lake, datetime.now(timezone.utc) + timedelta(days=days), RetentionTimes(unused=timedelta(hours=1)), say
        )
    assert table(lake) == rows
    assert len(lake.files.names("silver/advisories")) < len(runs)


@pytest.mark.parametrize("step", ["read", "repoint"])
def test_concurrent_jobs_keep_the_rows_and_positions_of_both(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """One job reads a different stream and finishes just before a step of the other job, which has already read the
    table."""
    lake, taken = Lake(spark, str(tmp_path)), datetime(2026, 11, 21, 18, 41, tzinfo=timezone.utc)
    options = {"servers": "nats://nowhere:4222", "stream": "ADVISORIES"}
    old, one, other = (Capture("F", name, SourceOptions.of(options), options) for name in ("OLD", "A", "B"))

    def portion(capture: Capture, known: Mapping[str, Any], *_more: Any) -> Portion:
        return Portion(capture, "created", int(known.get("sequence", 0)) + 1, 1)

    def messages(_lake: Lake, portion: Portion) -> DataFrame:
        data = json.dumps({"type": "io.nats.jetstream.advisory.v1.x", "id": portion.capture.account}).encode()
        return spark.createDataFrame(
            [("$JS", 1, taken, data)], "subject string, seq bigint, time timestamp, data binary"
        )

    monkeypatch.setattr(advisories, "_portion", portion)
    monkeypatch.setattr(advisories, "_messages", messages)
    assert make_advisories(lake, [old], say).rows == 1
    method, began = getattr(Lake, step), False

    def overtaken(self: Lake, *arguments: Any) -> Any:
        nonlocal began
        found = method(self, *arguments) if step == "read" else None
        if not began and "advisories" in str(arguments[:2]):
            began = True
            assert make_advisories(lake, [other], say).rows == 1
        return found if step == "read" else method(self, *arguments)

    monkeypatch.setattr(Lake, step, overtaken)
    assert make_advisories(lake, [one], say).rows == 1
    assert began
    rows = lake.read("silver", "advisories", [taken.replace(minute=0)])
    assert rows is not None
    assert {row["id"] for row in rows.collect()} == {"OLD", "A", "B"}
    assert make_advisories(lake, [old, one, other], say).rows == 0


def _killed_at_the_end(replace_text: Any) -> Any:
    def replacing(self: HadoopFiles, name: str, text: str) -> None:
        if "/_positions/" in name:
            raise KeyboardInterrupt
        replace_text(self, name, text)

    return replacing


def _publish(site: Site, data: bytes) -> None:
    async def publish() -> None:
        connection = await site.connect()
        await connection.jetstream().publish("$JS.EVENT.ADVISORY.STREAM.TEST", data, stream="ADVISORIES")
        await connection.close()

    asyncio.run(publish())


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('[{"fleet": "F"}]', "not a list of objects with fleet, account and options"),
        ("{", "not a list of objects with fleet, account and options"),
        ('[{"fleet": "F", "account": "A", "options": {"stream": "S"}}]', "the option servers is missing"),
    ],
)
def test_streams_file_without_streams_is_rejected(text: str, reported: str, tmp_path: Path) -> None:
    file = tmp_path / "streams.json"
    file.write_text(text)
    with pytest.raises(SourceError, match=reported):
        read_captures(str(file))


def test_command_refuses_invalid_options(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "session", lambda *_arguments: None)
    monkeypatch.setattr(cli, "Lake", lambda *_arguments: None)
    assert cli.main(["advisories", "--lake", str(tmp_path)]) == cli.FAILED
    assert "--streams is missing" in capsys.readouterr().err
    assert cli.main(["advisories", "--lake", str(tmp_path), "--streams", str(tmp_path / "none")]) == cli.FAILED
    assert "No such file" in capsys.readouterr().err
