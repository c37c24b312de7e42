# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots that are written with msgspec and pyarrow, as text and as typed columns, also by a process that is killed
and to a full disk."""

from __future__ import annotations

import copy
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry import json_text
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import (
    FORMATS,
    LAKE,
    PARQUET,
    Origin,
    SnapshotLine,
    SnapshotWriter,
    endpoint_rows,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.typed_columns import (
    epoch_microseconds,
    go_seconds,
)
from support.snapshots import RECORDED, recorded

ORIGIN = Origin("NA", "n1", "C1", "2.15.1", "2026-11-21T18:41:00.200000Z")
STARTED = datetime(2026, 11, 21, 18, 41, 0, 123456, timezone.utc)
#: A stream's subjects with every character that JSON and Go escape.
SUBJECTS = ["a.>", 'b<&>\\u003e"ü\n\t']


def reply(data: dict[str, Any]) -> bytes:
    """Return a reply as a server writes it."""
    text = json.dumps({"server": {"name": "n1"}, "data": data}, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode()


def answers() -> Iterator[tuple[str, dict[str, Any]]]:
    for version in RECORDED:
        for jsz in recorded(version)["jsz"].values():
            for account in jsz["account_details"]:
                for stream in account.get("stream_detail", ()):
                    stream["config"]["subjects"] = SUBJECTS
            yield "jsz", jsz
    yield "raftz", {"$SYS": {"_meta_": {"id": "a", "new": SUBJECTS, "peers": {"b": {"name": "n2"}}}}, "NONE": {}}


@pytest.mark.parametrize(("endpoint", "data"), [*answers()])
def test_long_texts_are_truncated_like_documents(endpoint: str, data: dict[str, Any]) -> None:
    def read(value: Any) -> Any:
        return json.loads(bytes(value)) if json_text.is_text(value) else value

    text_rows = [*endpoint_rows(endpoint, json_text.document(reply(data), endpoint.upper())["data"])]
    assert any(json_text.is_text(row.data) for row in text_rows)
    assert [(table, dict(keys), read(found)) for table, keys, found in text_rows] == [
        (table, dict(keys), found) for table, keys, found in endpoint_rows(endpoint, copy.deepcopy(data))
    ]


@pytest.mark.parametrize("body", [b"{", b'{"data":[', b'"x', b'{"data":{"account_details":[{]}}'])
def test_invalid_json_is_an_error(body: bytes) -> None:
    for endpoint in ("JSZ", "RAFTZ", "VARZ"):
        with pytest.raises(ValueError, match=r"."):
            json_text.document(body, endpoint)


def test_reply_with_unexpected_types_is_read_unchanged() -> None:
    documents: list[dict[str, Any]] = [
        {"data": []},
        {"data": {"account_details": 7}},
        {"error": {"code": 400}},
        {"data": {"a": [1]}},
    ]
    for endpoint in ("JSZ", "RAFTZ"):
        for document in documents:
            assert json_text.document(json_text.encoded(document), endpoint) == document
    spaced = json.dumps({"data": {"account_details": [{"name": "A", "stream_detail": []}]}}, indent=2).encode()
    assert json_text.document(spaced, "JSZ") == json.loads(spaced)


# --- columns --------------------------------------------------------------------------------------------------------------


def columns(lake: Path, table: str, *rows: tuple[dict[str, Any], Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows that were written to a table, and the table's entry in the manifest."""
    with SnapshotWriter(lake, "test", STARTED, form=PARQUET) as writer:
        for keys, data in rows:
            writer.add(ORIGIN, SnapshotLine(table, keys, data))
        _path, manifest = writer.publish()
    assert manifest["format"] == FORMATS[PARQUET]
    told = manifest["tables"][table]
    (file,) = told["files"]
    path = lake / "bronze" / file["path"]
    assert path.stat().st_size == file["bytes"]
    found = pq.read_table(path).to_pylist()
    assert len(found) == file["rows"] == told["rows"] == len(rows)
    return found, told


def test_row_has_its_typed_columns(tmp_path: Path) -> None:
    stream = recorded("2.15.1")["jsz"]
    (detail, *_others) = (
        item
        for jsz in stream.values()
        for account in jsz["account_details"]
        for item in account.get("stream_detail", ())
    )
    detail.pop("consumer_detail"), detail.pop("consumer_raft_groups")
    detail["config"]["subjects"] = SUBJECTS
    (row, again), told = columns(tmp_path, "jsz_streams", ({"account": "APP"}, detail), ({"account": "B"}, detail))
    assert (row["snapshot"][:15], row["fleet"], row["server"], row["account"]) == (
        "20261121T184100",
        "test",
        "n1",
        "APP",
    )
    assert (row["taken"], row["received"].microsecond) == (STARTED, 200000)
    assert (row["stream"], row["messages"], row["raft_group"]) == ("ORDERS", 0, detail["cluster"]["raft_group"])
    assert [peer["name"] for peer in row["peers"]] == [peer["name"] for peer in detail["cluster"]["replicas"]]
    assert (row["first_ts"], row["created"].microsecond) == (None, 299691)
    assert json.loads(row["config"]) == detail["config"]
    assert row["config"] == json.dumps(detail["config"], separators=(",", ":"), ensure_ascii=False)
    assert (row["extra"], row["failure"], told["unknown"]) == (None, None, 0)
    assert {**again, "account": "APP"} == row


#: The content of `extra` for these groups of RAFTZ.
LEFT: list[tuple[Any, Any]] = [
    ({"id": "a", "wal": {"messages": 1}, "peers": {"b": {"name": "n"}}}, None),
    ({"id": "a", "new": [1, {"b": "ü"}]}, {"new": [1, {"b": "ü"}]}),
    ({"id": "a", "wal": {"messages": 1, "new": 2}}, {"wal": {"new": 2}}),
    ({"id": "a", "new": 1, "wal": {"messages": 1}}, {"new": 1, "wal": {}}),
    ({"peers": {"b": {"name": "n", "new": 1}}}, {"peers": {"b": {"name": "n", "new": 1}}}),
    ({"size": "many", "wal": 7}, {"size": "many", "wal": 7}),
    ({"size": 1 << 63, "term": True, "id": None}, {"size": 1 << 63, "term": True, "id": None}),
    ({"leader_since": "yesterday", "new": 2}, {"leader_since": "yesterday", "new": 2}),
    ([1], [1]),
]


@pytest.mark.parametrize("as_text", [True, False])
def test_data_without_a_column_is_in_extra_and_counted(tmp_path: Path, as_text: bool) -> None:
    def given(value: Any) -> Any:
        return next(iter(json_text.items(json_text.encoded([value])))) if as_text else value

    found, told = columns(tmp_path, "raftz", *(({}, given(data)) for data, _extra in LEFT))
    for row, (data, extra) in zip(found, LEFT):
        assert (row["extra"] and json.loads(row["extra"])) == extra, data
    assert told["unknown"] == len(LEFT) - 1
    assert [row["peer_id"] for row in found[:4]] == ["a"] * 4
    assert [dict(row["reported_peers"] or ()) for row in found[4:5]] == [
        {"b": {"name": "n", "known": None, "last_replicated_index": None, "last_seen": None}}
    ]


def test_missing_answer_becomes_a_failure_row(tmp_path: Path) -> None:
    with SnapshotWriter(tmp_path, "test", STARTED, form=PARQUET) as writer:
        writer.add(ORIGIN, SnapshotLine("varz", {}, {"mem": 1, "jwt": "eyJ0"}))
        writer.fail("varz", Origin("", "n2"), NatsFailure("timeout", "no reply", subject="S"))
        _path, manifest = writer.publish()
    told = manifest["tables"]["varz"]
    assert (told["rows"], told["failures"], told["files"][0]["rows"], manifest["failures"]) == (1, 1, 2, 1)
    first, second = pq.read_table(tmp_path / "bronze" / told["files"][0]["path"]).to_pylist()
    assert (first["mem"], first["failure"], first["extra"]) == (1, None, None)
    assert (second["server"], second["received"], second["mem"]) == ("n2", None, None)
    assert second["failure"] == {"code": "timeout", "description": "no reply", "subject": "S"}


def test_unlearned_keys_are_written(tmp_path: Path) -> None:
    data = [{"id": "a", f"new_{number}": number} for number in range(100)]
    found, told = columns(tmp_path, "raftz", *(({}, item) for item in data))
    assert [json.loads(row["extra"]) for row in found] == [{f"new_{n}": n} for n in range(100)]
    assert ({row["peer_id"] for row in found}, told["unknown"]) == ({"a"}, 100)


def test_rows_beyond_the_buffer_are_written(tmp_path: Path) -> None:
    """Rows beyond the buffer are written even if one of them has an invalid time."""
    times = ["2026-11-21T18:00:00Z"] * 10_000
    times[7] = "soon"
    found, _told = columns(tmp_path, "server_log", *(({}, {"time": time, "text": "x"}) for time in times))
    assert [row["extra"] for row in found if row["extra"]] == ['{"time":"soon"}']
    assert [number for number, row in enumerate(found) if row["time"] is None] == [7]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("350µs", 350e-6), ("1.5ms", 0.0015), ("1h2m3.5s", 3723.5), ("2d3h", 183600.0), ("0s", 0.0), ("soon", 0.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert go_seconds(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:01.0000019Z", 1_000_001),
        ("1970-01-01T01:00:00+01:00", 0),
        ("9999-12-31T23:59:59Z", 253402300799000000),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_times(text: str, micros: int | None) -> None:
    assert epoch_microseconds(text) == micros


# --- failures -------------------------------------------------------------------------------------------------------


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Make writes beyond this file size fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def noise(number: int) -> dict[str, Any]:
    """Return a RAFTZ group that is hard to compress."""
    return {"id": f"{hash((number, 1)):x}{hash((number, 2)):x}", "term": hash((number, 3)) & 0xFFFFFFFF}


@pytest.mark.parametrize("form", FORMATS)
def test_full_disk_removes_the_unfinished_snapshot_and_is_reported(tmp_path: Path, form: str) -> None:
    with SnapshotWriter(tmp_path, "test", STARTED, form=form) as writer:
        writer.add(ORIGIN, SnapshotLine("raftz", {}, noise(0)))
        before, _manifest = writer.publish()
    there = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    def fill() -> None:
        with largest_file(100_000), SnapshotWriter(tmp_path, "test", STARTED, form=form) as writer:
            for number in range(70_000):
                writer.add(ORIGIN, SnapshotLine("raftz", {"account": "APP", "raft_group": f"{number}"}, noise(number)))
            writer.publish()

    with pytest.raises(NatsFailure, match=r"File too large\. No part of it was published") as refused:
        fill()
    assert refused.value.code == LAKE
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == there
    assert Path(before) in there


KILLED = """
import sys
from datetime import datetime, timezone
from pathlib import Path
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import Origin, SnapshotLine, SnapshotWriter

with SnapshotWriter(Path(sys.argv[1]), "test", datetime.now(timezone.utc), form=sys.argv[2]) as writer:
    for number in range(10_000_000):
        writer.add(Origin("NA", "n1"), SnapshotLine("raftz", {}, {"id": f"{number}"}))
        if number == 70_000:
            print("under way", flush=True)
"""


@pytest.mark.parametrize("form", FORMATS)
def test_kill_loses_only_the_unfinished_snapshot(tmp_path: Path, form: str) -> None:
    with SnapshotWriter(tmp_path, "test", STARTED, form=form) as writer:
        writer.add(ORIGIN, SnapshotLine("raftz", {}, noise(0)))
        path, manifest = writer.publish()
    command = [sys.executable, "-c", KILLED, str(tmp_path), form]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "under way\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    left = [path for path in (tmp_path / "bronze").rglob("*") if path.is_file() and "_incoming" not in path.parts]
    named = {file["path"] for table in manifest["tables"].values() for file in table["files"]}
    assert {str(path.relative_to(tmp_path / "bronze")) for path in left if path.suffix != ".json"} == named
    assert [item for item in left if item.suffix == ".json"] == [Path(path)]
    assert [*(tmp_path / "bronze" / "_incoming").rglob("raftz-0")]  # until `maintain` removes it


def test_lines_are_readable_one_by_one(tmp_path: Path) -> None:
    """Quotes, newlines and HTML in a server's reply do not break the lines."""
    with SnapshotWriter(tmp_path, "test", STARTED) as writer:
        for row in endpoint_rows("raftz", json_text.document(reply({"A": {"g": {"id": 'x"\n<>'}}}), "RAFTZ")["data"]):
            writer.add(ORIGIN, row)
        writer.fail("raftz", Origin("", "n2"), NatsFailure("timeout", "no\nreply"))
        _path, manifest = writer.publish()
    (file,) = manifest["tables"]["raftz"]["files"]
    first, second = gzip.decompress((tmp_path / "bronze" / file["path"]).read_bytes()).splitlines()
    assert json.loads(first)["data"] == {"id": 'x"\n<>'}
    assert json.loads(second)["failure"]["description"] == "no\nreply"
    assert file["rows"] == 2
