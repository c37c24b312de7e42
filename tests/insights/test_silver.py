# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bronze to silver: the same values as the live modules, safe to repeat, and unreadable data is never dropped
silently."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import (
    DURATION,
    JSON,
    NANOSECONDS,
    PEERS,
    Field,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import JSON as JSON_LINES
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import PARQUET
from jetstream_insights import replica_groups, silver, silver_job
from jetstream_insights.cli import DONE, QUARANTINED, main
from jetstream_insights.fields import Bronze, go_seconds, is_line, rows
from jetstream_insights.keys import CONSUMER, SNAPSHOT, STREAM
from jetstream_insights.lake import GOLD_FORMAT, Lake, hours
from jetstream_insights.silver_job import BronzeSource, Inputs, LineCounts, Silver, make_silver, suspects
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from support.fleet import START, Fleet, Outage, write
from support.lakes import few_silver_tables, published_rows
from support.snapshots import HOUR, MORE, RECORDED, live_cluster, recorded, write_snapshot


def table(lake: Lake, name: str) -> list[Row]:
    frame = lake.read("silver", name, [HOUR])
    assert frame is not None, name
    return frame.collect()


def without_domains(lake: Path) -> None:
    """Convert the captured files to those of collectors without support for domains."""
    for path in lake.rglob("*.jsonl.gz"):
        known = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        older = [{name: told for name, told in line.items() if name != "domain"} for line in known]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in older)
        path.write_bytes(gzip.compress(text.encode()))
    for path in lake.rglob("bronze/manifest/**/*.json"):
        manifest = json.loads(path.read_text())
        del manifest["domains"]
        path.write_text(json.dumps(manifest))


def quiet(_text: str) -> None:
    """Discard the message."""


@pytest.fixture(scope="module")
def making(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Silver, list[str]]:
    """Return a lake with one hour of silver, made from a fleet for each version, as lines and as columns; also the
    job's result and its messages."""
    path = tmp_path_factory.mktemp("lake")
    for version, form in zip(RECORDED, itertools.cycle((PARQUET, JSON_LINES))):
        write_snapshot(path, {**recorded(version), "more": MORE}, fleet=version, form=form)
    for minute, replies in enumerate(odd_moments()):
        write_snapshot(path, replies, HOUR + timedelta(minutes=minute), "odd", PARQUET)
    newer = recorded("2.15.1")
    for server in newer["jsz"].values():
        for stream in (stream for account in server["account_details"] for stream in account.get("stream_detail", ())):
            stream["of_a_newer_server"] = {"a": 1}
    write_snapshot(path, newer, fleet="newer")
    lake, said = Lake(spark, str(path)), list[str]()
    outcome = make_silver(lake, [HOUR], said.append)
    assert (outcome.made, outcome.fresh, outcome.quarantined) == (1, 0, 0)
    return lake, outcome, said


@pytest.fixture(scope="module")
def made(making: tuple[Lake, Silver, list[str]]) -> Lake:
    return making[0]


def odd_moments() -> Iterator[dict[str, Any]]:
    """Yield the replies of a fleet with faults. First, only one of three servers responds, and its stream lists peers
    that it never met; then all respond; then n2 is named n9 after a restart; then n2 is named n1, which already exists.
    """
    for moment, name in enumerate(("n2", "n2", "n9", "n1")):
        replies = recorded("2.15.1")
        (renamed,) = [item["server"] for item in replies["statsz"] if item["server"]["name"] == "n2"]
        was, renamed["name"] = renamed["id"], name
        if name != "n2":
            renamed["id"] = f"{was[:-1]}{moment}"
        for endpoint in ("jsz", "healthz"):
            replies[endpoint][renamed["id"]] = replies[endpoint].pop(was)
        if not moment:
            (alone,) = replies["statsz"] = [item for item in replies["statsz"] if item["server"]["name"] == "n1"]
            for account in replies["jsz"][alone["server"]["id"]]["account_details"]:
                for stream in account.get("stream_detail", ()):
                    for peer in stream["cluster"].get("replicas", ()):
                        peer["name"] = f"Server name unknown at this time (peerID: {peer['peer']})"
        yield replies


@pytest.fixture(scope="module")
def tables(made: Lake) -> dict[str, list[Row]]:
    return {name: table(made, name) for name in (*silver.TABLES, "snapshots")}


@pytest.mark.parametrize("version", RECORDED)
def test_silver_equals_the_live_modules(tables: dict[str, list[Row]], version: str) -> None:
    cluster = live_cluster(recorded(version))

    def read_rows(name: str) -> list[Row]:
        return [row for row in tables[name] if row["fleet"] == version]

    def group(item: Any) -> tuple[Any, ...]:
        return (
            item.group.leader,
            sorted(item.group.leaders),
            sorted(item.group.members),
            item.group.size,
            item.group.quorum,
        )

    def peers(row: Row) -> list[tuple[str, bool]]:
        return sorted((peer["name"], bool(peer["current"])) for peer in row["peers"] or ())

    streams = {(row["account"], row["stream"]): row for row in read_rows("streams")}
    assert set(streams) == {(stream.account, stream.name) for stream in cluster.streams}
    for stream in cluster.streams:
        row = streams[stream.account, stream.name]
        assert group(stream) == (row["leader"], row["leaders"], row["members"], row["num_replicas"], row["quorum"])
        assert [(peer.name, peer.current) for peer in sorted(stream.group.peers, key=lambda peer: peer.name)] == peers(
            row
        )
        assert (stream.messages, stream.size, stream.first_seq, stream.last_seq) == (
            row["messages"],
            row["bytes"],
            row["first_seq"],
            row["last_seq"],
        )
        assert (stream.storage, stream.group.raft_name) == (row["storage"], row["raft_group"] or "")
        assert stream.retention == row["retention"]

    consumers = {(row["account"], row["stream"], row["consumer"]): row for row in read_rows("consumers")}
    wanted = [consumer for stream in cluster.streams for consumer in stream.consumers]
    assert set(consumers) == {(item.account, item.stream, item.name) for item in wanted}
    for item in wanted:
        row = consumers[item.account, item.stream, item.name]
        assert group(item) == (row["leader"], row["leaders"], row["members"], row["num_replicas"], row["quorum"])
        assert (item.num_pending, item.ack_floor, item.durable, item.ack_wait, item.pull) == (
            row["num_pending"],
            row["ack_floor_stream_seq"],
            row["durable"],
            row["ack_wait"],
            row["pull"],
        )

    servers = {row["server"]: row for row in read_rows("servers")}
    for server in cluster.servers:
        row, summary = servers[server.name], server.summary
        assert summary is not None and server.health is not None
        assert (server.version, server.cluster, server.health.status) == (row["version"], row["cluster"], row["health"])
        assert (summary.streams, summary.storage) == (row["js_streams"], row["js_storage"])
        assert summary.max_storage == row["js_max_storage"]
        assert (row["js_sync_interval"], row["mem"], row["clock_offset"]) == (120.0, 1000, 0.25)
        # A field that is not known yet.
        assert json.loads(str(row["varz_extra"]))["new"] == {"a": 1}
    assert cluster.meta is not None
    assert {row["peer"] for row in read_rows("meta_peers") if row["by_leader"]} == set(cluster.meta.group.members)

    assert {(row["cid"], round(row["rtt"], 9)) for row in read_rows("routes")} == {(7, 350e-6)}
    assert {(row["connections"], row["in_msgs"]) for row in read_rows("connections")} == {(2, 5)}
    (saved,) = {row["saved"] for row in read_rows("backups")}
    assert saved.astimezone(timezone.utc).isoformat() == "2026-11-21T02:00:00.500000+00:00"
    assert {(row["excluded"], row["proven"], row["extra"]) for row in read_rows("backups")} == {(False, None, None)}
    jwts = {(row["role"], row["connections"], row["urgency"], row["extra"]) for row in read_rows("jwts")}
    assert jwts == {("app", 2, "error", None)}
    assert {(row["account"], row["sent_bytes"]) for row in read_rows("accounts")} == {("APP", 90)}
    groups = read_rows("raft_groups")
    assert {row["server"] for row in groups} == {server.name for server in cluster.servers}
    for row in groups:
        names = (row["leader_name"], row["voted_for_name"], sorted(peer["name"] for peer in row["peers"]))
        if row["raft_group"] == "_meta_":
            assert row["committed"] - row["applied"] == 1
            assert {peer["name"]: peer["last_seen"] for peer in row["peers"]} == {"n1": 1.5, "n8": None}
            assert names == ("n2", None, ["n1", "n8"])
        else:
            assert names == {"S-R3F": ("n8", row["server"], ["n8"]), "S-R1F": (None, "n2", ["n1"])}[row["raft_group"]]
    assert {(row["queue"], row["pending"]) for row in read_rows("ipqueues")} == {("sendq", 3)}
    for row in read_rows("account_limits"):
        assert (row["account"], row["jetstream"], row["max_conn"], row["js_max_disk_storage"]) == ("APP", True, 10, -1)
        assert (set(row["js_tiers"]), row["expires"].minute) == ({"R3"}, 41)
    events = read_rows("server_events")
    assert {row["server"] for row in events} == {server.name for server in cluster.servers}
    for row in events:
        assert (row["kind"], row["level"], row["text"]) == ("slow_consumer", "WRN", "Slow Consumer Detected")
        assert (row["time"].second, row["time"].microsecond) == (0, 500000)
    assert {(row["gateway"], row["direction"]) for row in read_rows("gateways")} == {("C2", "outbound")}
    assert {(row["name"], row["rtt"]) for row in read_rows("leafnodes")} == {("l1", 2.0)}
    (snapshot,) = read_rows("snapshots")
    assert (snapshot["servers"], snapshot["complete"], snapshot["taken"].minute) == (3, True, 0)


def test_renamed_servers_and_a_shared_name_are_resolved(tables: dict[str, list[Row]]) -> None:
    def read_rows(name: str, minute: int | None = None) -> list[Row]:
        odd = [row for row in tables[name] if row["fleet"] == "odd"]
        return [row for row in odd if minute is None or row["taken"].minute == minute]

    snapshots = sorted(read_rows("snapshots"), key=lambda row: row["taken"])
    assert [(row["servers"], row["complete"]) for row in snapshots] == [(1, False), *[(3, True)] * 3]
    assert [len(read_rows("servers", minute)) for minute in range(4)] == [1, 3, 3, 3]
    names = {row["server"]: (len(row["server_ids"]), row["snapshots"]) for row in read_rows("server_names")}
    assert names == {"n1": (2, 4), "n2": (1, 1), "n3": (1, 3), "n9": (1, 1)}
    orders = {row["taken"].minute: row for row in read_rows("streams") if row["stream"] == "ORDERS"}
    assert (orders[0]["members"], orders[0]["hosts"]) == (["n1", "n2", "n3"], ["n1"])
    assert orders[3]["hosts"] == ["n1", "n3"]


def test_lines_with_unknown_keys_are_counted(
    making: tuple[Lake, Silver, list[str]], tables: dict[str, list[Row]]
) -> None:
    """All lines of a newer server have an unknown key. No line of a known version may have an unknown key, because
    reading would take many times as long."""
    _lake, outcome, said = making
    odd = [row for row in tables["stream_replicas"] if row["extra"] is not None]
    assert {row["fleet"] for row in odd} == {"newer"}
    assert outcome.unknown_keys["jsz_streams"] == len(odd) > 0
    assert {"jsz_consumers", "raftz"}.isdisjoint(outcome.unknown_keys)
    (warning,) = [text for text in said if "keys without a column" in text]
    assert warning.startswith(f"{len(odd)} of {len(tables['stream_replicas'])} lines of jsz_streams")
    assert "of_a_newer_server" in warning


def test_written_tables_have_the_declared_columns(spark: SparkSession, made: Lake) -> None:
    runs = {name: f"{made.uri}/silver/{name}/run=*/*/*" for name in made.silver_tables()}
    assert {*silver.TABLES, "snapshots"} <= set(runs)
    for name, files in runs.items():
        written = {field.name: field.dataType.simpleString() for field in spark.read.parquet(files).schema}
        declared = made.spark.createDataFrame([], silver.COLUMNS[name]).schema
        assert written == {field.name: field.dataType.simpleString() for field in declared}, name


def test_new_column_is_null_in_older_files(spark: SparkSession, tmp_path: Path) -> None:
    """Older and newer files are read together in any order, in silver and in gold."""
    lake, later = Lake(spark, str(tmp_path)), HOUR + timedelta(hours=1)
    new = spark.createDataFrame(
        [("F", HOUR, "n1", 7), ("F", later, "n2", 8)], "fleet string, taken timestamp, server string, cid bigint"
    )
    for hour, frame in ((HOUR, new.drop("cid")), (later, new)):
        lake.write("silver", "routes", f"{hour:%H}", frame.where(F.col("taken") == F.lit(hour)))
        lake.publish("silver", hour, f"{hour:%H}", [], 0)
    found = lake.read("silver", "routes", [HOUR, later])
    assert found is not None
    assert sorted((row["server"], row["cid"], row["rtt"]) for row in found.collect()) == [
        ("n1", None, None),
        ("n2", 8, None),
    ]
    # Columns of a newer program are kept when this version rewrites the rows.
    newer = lake.read("silver", "routes", [HOUR, later], as_written=True)
    assert newer is not None
    assert newer.columns == new.columns
    days = [HOUR.date(), HOUR.date() + timedelta(days=1)]
    for day, names in zip(days, (["fleet"], ["fleet", "zone"]), strict=True):
        frame = spark.createDataFrame([("F", "z1")[: len(names)]], names)
        lake.write_day("gold", "report_servers", f"{day}", day, frame)
        lake.repoint("gold", day, {"format": GOLD_FORMAT, "run": f"{day}", "inputs": [], "fingerprint": ""})
    read_back = lake.read_days("gold", "report_servers", days)
    assert read_back is not None
    assert {(row["fleet"], row["zone"]) for row in read_back.collect()} == {("F", None), ("F", "z1")}


def test_hour_is_recomputed_only_when_its_snapshots_changed(made: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    few_silver_tables(monkeypatch, "streams")
    first = made.pointer("silver", HOUR)
    again = make_silver(made, [HOUR], quiet)
    assert (again.made, again.fresh, made.pointer("silver", HOUR)) == (0, 1, first)
    before = Counter(row["fleet"] for row in table(made, "streams"))
    # A run is killed before its end: the published run remains.
    (Path(made.uri) / "silver" / "streams" / "run=killed").mkdir()
    write_snapshot(Path(made.uri), recorded("2.15.1"), HOUR + timedelta(minutes=1), "2.15.1")
    assert Counter(row["fleet"] for row in table(made, "streams")) == before
    late = make_silver(made, [HOUR, HOUR + timedelta(hours=1)], quiet)
    assert (late.made, late.fresh) == (1, 0)
    assert Counter(row["fleet"] for row in table(made, "streams")) == {**before, "2.15.1": 2 * before["2.15.1"]}
    assert made.pointer("silver", HOUR)["run"] != first["run"]


def test_unreadable_lines_are_quarantined_and_set_the_exit_status(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "streams")
    manifest = write_snapshot(tmp_path, {**recorded("2.15.1"), "more": MORE})
    place = {name: tmp_path / "bronze" / found["files"][0]["path"] for name, found in manifest["tables"].items()}
    lines = gzip.decompress(place["jsz_streams"].read_bytes()).splitlines()
    place["jsz_streams"].write_bytes(gzip.compress(b"\n".join([lines[0][:50], b"{}", *lines[2:]]) + b"\n"))
    whole = place["varz"].read_bytes()
    place["varz"].write_bytes(whole[: len(whole) // 2])
    place["healthz"].unlink()
    broken = tmp_path / "bronze" / "manifest" / "date=2026-11-21" / "hour=18" / "20261121T180500.000000Z-abcdef.json"
    broken.write_text('{"format": 99}')
    arguments = [
        "silver",
        "--lake",
        str(tmp_path),
        "--from",
        "2026-11-21T18",
        "--to",
        "2026-11-21T19",
        "--master",
        "local[1]",
    ]
    assert main(arguments) == QUARANTINED
    lake = Lake(spark, str(tmp_path))
    found = {(row["reason"], row["value"]) for row in table(lake, "quarantine")}
    assert ("not a line of this snapshot", "{}") in found
    assert ("not a line of this snapshot", lines[0][:50].decode()) in found
    assert ("0 of 3 lines are readable", None) in found
    assert any("it does not have format 1" in reason for reason, _value in found)
    assert len(table(lake, "stream_replicas")) == len(lines) - 2
    assert all(row["health"] is None for row in table(lake, "servers"))
    # The quarantine is reported even if there is nothing to do.
    assert main(arguments) == QUARANTINED
    assert main([*arguments[:3], "--from", "2026-11-22", "--to", "2026-11-23", "--master", "local[1]"]) == DONE
    # A file that has become readable again contributes its rows; the rest stays in quarantine.
    place["varz"].write_bytes(whole)
    assert make_silver(lake, [HOUR], quiet).made == 1
    assert all(row["varz_reported"] for row in table(lake, "servers"))
    assert make_silver(lake, [HOUR], quiet).made == 0
    assert "varz" not in {row["file"].partition("/")[0] for row in table(lake, "quarantine")}
    assert len(table(lake, "quarantine")) == 4


def test_rows_lost_by_a_read_error_are_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark skips the rest of a file after an error, although the error may not recur."""
    few_silver_tables(monkeypatch, "servers", "stream_replicas")
    manifest = write_snapshot(tmp_path, {**recorded("2.15.1"), "more": MORE})
    files = [tmp_path / "bronze" / manifest["tables"][name]["files"][0]["path"] for name in ("jsz_streams", "varz")]
    content, write, parts = [file.read_bytes() for file in files], silver_job._write, [0.0, 0.5]

    def interrupted(*arguments: Any) -> Any:
        part = parts.pop() if parts else 1.0
        for file, whole in zip(files, content, strict=True):
            file.write_bytes(whole[: int(len(whole) * part)])
        written = write(*arguments)
        for file, whole in zip(files, content, strict=True):
            file.write_bytes(whole)
        return written

    monkeypatch.setattr(silver_job, "_write", interrupted)
    lake = Lake(spark, str(tmp_path))
    outcome = make_silver(lake, [HOUR], quiet)
    assert (outcome.made, outcome.quarantined, parts) == (1, 0, [])
    assert len(table(lake, "stream_replicas")) == manifest["tables"]["jsz_streams"]["rows"]
    assert all(row["varz_reported"] for row in table(lake, "servers"))


FIRST, SECOND, LATER = "20261121T180000.000000Z-a", "20261121T180100.000000Z-b", "20261121T190000.000000Z-c"


@pytest.mark.parametrize(
    ("table", "other", "found"),
    [
        ("jsz_streams", SECOND, ["jsz_streams"]),
        ("server_log", LATER, ["server_log"]),
        # These are the rows of an hour, because the snapshot of a line cannot be determined.
        ("server_log", SECOND, []),
    ],
)
def test_duplicate_line_does_not_hide_a_lost_one(table: str, other: str, found: list[str]) -> None:
    inputs = Inputs(sources={table: BronzeSource(snapshots=Counter({FIRST: 3, other: 3}))})
    assert suspects(inputs, {table: LineCounts(Counter({FIRST: 2, other: 4}))}) == found
    assert suspects(inputs, {table: LineCounts(Counter({FIRST: 3, other: 3}))}) == []


def bronze_lines(spark: SparkSession, *texts: str) -> Bronze:
    file = "lake/bronze/varz/date=2026-11-21/hour=18/1.jsonl.gz"
    return Bronze(spark.createDataFrame([(file, text) for text in texts], "file string, value string"))


#: The content of `extra` for each of these documents, instead of the document's data.
UNKNOWN = {
    '{"a":1,"peers":[{"lag":2}],"config":{"new":{"x":1}},"of":{"s":{"lag":3}}}': None,
    '{"a":1,"config":{"text":"no \\"key\\":1"}}': None,
    '{"a":1,"text":"no \\"key\\":1"}': {"text": 'no "key":1'},
    '{"a":1,"new":2}': {"new": 2},
    '{"a":"many"}': {"a": "many"},
    '{"a":1,"peers":"none"}': {"peers": "none"},
    '{"a":1,"new":null}': {"new": None},
    '{"new":{"a":1}}': {"new": {"a": 1}},
    '{"a":1,"peers":[{"lag":2},{"lag":3,"new":true}]}': {"peers": [{"lag": 2}, {"lag": 3, "new": True}]},
    '{"a":1,"of":{"s":{"lag":3,"new":{}}},"new":2}': {"of": {"s": {"lag": 3, "new": {}}}, "new": 2},
    '{"a":1,"peers":[{"lag":2}],"new":2}': {"new": 2},
}


def test_data_without_a_field_is_in_extra(spark: SparkSession) -> None:
    fields = (
        Field("a", "bigint"),
        Field("peers", "array<struct<lag:bigint>>"),
        Field("of", "map<string,struct<lag:bigint>>"),
        Field("config", "string", reported=JSON),
    )
    # Each case is a fleet.
    lines = [
        f'{{"fleet":"{number}","snapshot":"20261121T184100.123456Z-3f2a9c","data":{data}}}'
        for number, data in enumerate(UNKNOWN)
    ]
    found = {int(row["fleet"]): row for row in rows(bronze_lines(spark, *lines), (), fields).collect()}
    assert len(found) == len(UNKNOWN)
    for number, (data, extra) in enumerate(UNKNOWN.items()):
        row, reported = found[number], json.loads(data)
        config = json.dumps(reported["config"], separators=(",", ":")) if "config" in reported else None
        assert row["a"] == (reported["a"] if reported.get("a") == 1 else None), data
        assert row["config"] == config, data
        assert (row["extra"] and json.loads(str(row["extra"]))) == extra, data


TORN = (
    '{"snapshot":"20261121T184100.123456Z-3f2a9c","data":{"a":1',
    '{"snapshot":"20261121T174100.123456Z-3f2a9c","data":{}}',
    '{"snapshot":7,"data":{}}',
    '{"data":{"a":1}}',
    "[]",
    "null",
    "",
)


def test_torn_lines_yield_no_rows(spark: SparkSession) -> None:
    lines = bronze_lines(spark, *TORN)
    assert rows(lines, (), (Field("a", "bigint"),)).collect() == []
    assert lines.lines is not None
    assert lines.lines.where(is_line(F.col("file"), F.col("value"))).collect() == []


def test_fields_are_typed_and_the_rest_is_kept(spark: SparkSession) -> None:
    document = {
        "snapshot": "20261121T184100.123456Z-3f2a9c",
        "data": {
            "a": 1,
            "b": {"c": "text", "new": True},
            "wait": 2500000000,
            "rtt": "1h2m3.5s",
            "odd": "not a number",
            "never": "0001-01-01T00:00:00Z",
        },
    }
    fields = (
        Field("a", "bigint"),
        Field("c", "string", "b.c"),
        Field("wait", "double", reported=NANOSECONDS),
        Field("rtt", "double", reported=DURATION),
        Field("odd", "bigint"),
        Field("absent", "bigint"),
        Field("never", "timestamp"),
    )
    (row,) = rows(bronze_lines(spark, json.dumps(document)), (), fields).collect()
    assert (row["a"], row["c"], row["wait"], row["rtt"], row["odd"], row["absent"]) == (
        1,
        "text",
        2.5,
        3723.5,
        None,
        None,
    )
    assert (row["never"], row["taken"].microsecond) == (None, 123456)
    assert json.loads(str(row["extra"])) == {"b": {"new": True}, "odd": "not a number"}
    written = ["350µs", "1.5ms", "2d3h4m5s", "0s", "12ns", None]
    frame = spark.createDataFrame([(text,) for text in written], "text string").select(
        go_seconds(F.col("text")).alias("seconds")
    )
    seconds = [row["seconds"] for row in frame.collect()]
    assert seconds[:5] == pytest.approx([350e-6, 1.5e-3, 2 * 86400 + 3 * 3600 + 245, 0, 12e-9])
    assert seconds[5] is None


#: The reports of a stream's servers: server, cluster, leader, names of peers, whether the server is the leader and is
#: backed, messages. Then the stream's row: leader, leaders, hosts, members, views, cluster, messages, whether it has
#: peers.
GROUPS: dict[str, tuple[list[tuple[Any, ...]], tuple[Any, ...]]] = {
    "led, reported twice": (
        [
            ("n1", "C1", "n1", ["n2"], True, True, 7),
            ("n1", "C1", "n1", ["n2"], True, True, 7),
            ("n2", "C1", "n1", None, False, False, 6),
        ],
        ("n1", ["n1"], ["n1", "n2"], ["n1", "n2"], ["n1"], "C1", 7, True),
    ),
    "led by a later name": (
        [("n1", "C1", "n2", None, False, False, 6), ("n2", "C2", "n2", ["n3", ""], True, True, 7)],
        ("n2", ["n2"], ["n1", "n2"], ["n1", "n2", "n3"], ["n2"], "C1", 7, True),
    ),
    "no server leads, reported twice": (
        [
            ("n3", "C2", "", None, False, False, 4),
            ("n2", "C1", None, None, False, False, 5),
            ("n2", "C1", None, None, False, False, 5),
        ],
        (None, [], ["n2", "n3"], ["n2", "n3"], [], "C1", 5, False),
    ),
    "the leader did not answer": (
        [("n3", "C1", "n1", None, False, False, 4), ("n2", "C1", "n1", None, False, False, 5)],
        (None, [], ["n2", "n3"], ["n1", "n2", "n3"], ["n1"], "C1", 5, False),
    ),
    "one claims without backing": (
        [("n1", "C1", "n1", None, True, False, 3), ("n2", "C1", "n3", None, False, False, 5)],
        ("n1", ["n1"], ["n1", "n2"], ["n1", "n2", "n3"], ["n1", "n3"], "C1", 3, False),
    ),
    "backing counts more": (
        [("n1", "C1", "n1", None, True, False, 3), ("n2", "C1", "n2", ["n3"], True, True, 5)],
        ("n2", ["n2"], ["n1", "n2"], ["n1", "n2", "n3"], ["n1", "n2"], "C1", 5, True),
    ),
    "two lead": (
        [
            ("n3", "C3", "n3", ["n2"], True, True, 3),
            ("n2", "C2", "n2", ["n3"], True, True, 2),
            ("n1", "C1", "n2", None, False, False, 1),
        ],
        (None, ["n2", "n3"], ["n1", "n2", "n3"], ["n1", "n2", "n3"], ["n2", "n3"], "C1", 1, False),
    ),
}


def test_a_stream_has_its_leaders_figures_or_those_of_the_first_server_by_name(spark: SparkSession) -> None:
    replica = (
        "fleet string, snapshot string, taken timestamp, domain string, account string, stream string, server string, "
        f"server_id string, cluster string, leader string, peers {PEERS}, is_leader boolean, is_backed boolean, "
        "num_replicas int, messages bigint"
    )
    moment = ("f", "s", HOUR, "")
    reported = [
        (*moment, "A", stream, server, server.upper(), cluster, leader, peers, is_leader, is_backed, 2, messages)
        for stream, (views, _row) in GROUPS.items()
        for server, cluster, leader, names, is_leader, is_backed, messages in views
        for peers in [[(name, "b", True, False, 0, 0, 0) for name in names] if names is not None else None]
    ]
    found = silver.streams(spark.createDataFrame(reported, replica)).collect()
    found_rows = {
        row["stream"]: (
            row["leader"], row["leaders"], row["hosts"], row["members"], sorted(row["views"]), row["cluster"], row["messages"],
            row["peers"] is not None,
        )
        for row in found
    }  # fmt: skip
    assert found_rows == {stream: row for stream, (_views, row) in GROUPS.items()}
    assert len(found) == len(GROUPS)


def test_hours_of_a_period() -> None:
    found = list(hours(HOUR + timedelta(minutes=30), HOUR + timedelta(hours=2)))
    assert found == [HOUR, HOUR + timedelta(hours=1)]


def test_tables_are_computed_after_their_inputs() -> None:
    made: set[str] = set()
    for name, found in silver.TABLES.items():
        assert set(found.silver) <= made, name
        made.add(name)


def test_domains_are_kept_apart(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each domain has streams of the same names. Lines of an older collector do not contain the domain."""
    few_silver_tables(monkeypatch, "meta_peers", "streams", "consumers", "accounts")
    parts = [
        Fleet(3, 2, 1, domain="hub", prefix="hub-", cluster="HUB"),
        Fleet(3, 2, 2, domain="edge", prefix="edge-", cluster="EDGE"),
        Fleet(1, 2, 3, prefix="alone-", cluster="ALONE"),
    ]
    captured = {"older": 60.0, "present": 61.0}
    write(parts, tmp_path, captured["older"], "older")
    without_domains(tmp_path)
    write(parts, tmp_path, captured["present"], "present")
    lake = Lake(spark, str(tmp_path))
    assert make_silver(lake, [START], quiet).quarantined == 0
    read = published_rows(tmp_path, "silver", START)
    for fleet, at in captured.items():
        rows = {name: [row for row in found if row["fleet"] == fleet] for name, found in read.items()}
        for name, part in (("hub", parts[0]), ("edge", parts[1]), ("", parts[2])):
            for stream in part.assets:
                (row,) = [row for row in rows["streams"] if (row["domain"], row["stream"]) == (name, stream.name)]
                leader = part.leader(stream, at)
                assert leader is not None
                assert (row["leaders"], row["last_seq"]) == ([part.name(leader)], part.written(stream, at)), fleet
            assert {row["peer"] for row in rows["meta_peers"] if row["domain"] == name} == {
                part.name(server) for server in range(part.servers)
            }, fleet
        for table_ in ("servers", "stream_replicas", "consumers", "consumer_replicas", "accounts"):
            assert {row["domain"] for row in rows[table_]} == {"hub", "edge", ""}, (fleet, table_)


def test_lines_without_server_belong_to_the_only_domain(spark: SparkSession, tmp_path: Path) -> None:
    """Lines of older collectors, such as those about backups, belong to the only domain; if there are several domains,
    the domain is unknown."""
    fleets = {"one": [Fleet(1, 1, 1, domain="hub")], "two": [Fleet(1, 1, 2, domain="hub"), Fleet(1, 1, 3, prefix="e")]}
    servers = spark.createDataFrame(
        [(name, part.name(0), part.domain) for name, parts in fleets.items() for part in parts],
        "fleet string, server_id string, domain string",
    )
    lines = [("one", "", None), ("two", "", None), ("two", "n1", None), ("two", "n1", "known"), ("none", "", None)]
    found = silver.with_domains(spark.createDataFrame(lines, servers.schema), servers).collect()
    assert sorted(map(tuple, found)) == [
        ("none", "", ""),
        ("one", "", "hub"),
        ("two", "", ""),
        ("two", "n1", "hub"),
        ("two", "n1", "known"),
    ]


def test_groups_equal_the_comparison_of_all_members(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's row equals the comparison of all members if the members agree, and is ignored otherwise."""
    few_silver_tables(monkeypatch, "streams", "consumers")
    fleet = Fleet(5, 60, outages=(Outage(1, 90, 400),), apart=40)
    for minute in range(6):
        fleet.write(tmp_path, minute * 60.0, form=PARQUET)
    lake = Lake(spark, str(tmp_path))
    make_silver(lake, [START], quiet)
    for name, of, key in (("streams", "stream_replicas", STREAM), ("consumers", "consumer_replicas", CONSUMER)):
        replicas, made = (lake.read("silver", each, [START]) for each in (of, name))
        assert replicas is not None and made is not None
        group_key = (*SNAPSHOT, *key)
        figures = [column for column in made.columns if column in replicas.columns and column not in group_key]
        figures = [column for column in figures if column not in ("cluster", "leader", "peers")]
        compared = replica_groups._as_members_tell(replicas, group_key, figures)
        expected, found = ([str(row) for row in frame.collect()] for frame in (compared, made.select(compared.columns)))
        assert sorted(found) == sorted(expected)
        slotted = replicas.withColumn("_slot", F.xxhash64(*group_key))
        disputed = replica_groups._disputed(slotted, group_key).count()
        assert 0 < disputed < len(expected) / 2, (disputed, len(expected))
