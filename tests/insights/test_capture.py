# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots with typed columns: silver is the same as from JSON lines, and nothing that servers report is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import CONFIG_FIELDS, TABLES
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import (
    FORMATS,
    PARQUET,
    Origin,
    SnapshotWriter,
)
from jetstream_insights.compaction import _write_pack
from jetstream_insights.fields import Bronze, bronze_schema
from jetstream_insights.lake import Lake, place
from jetstream_insights.silver import failures, server_names, table_rows
from jetstream_insights.silver_job import Hour, read_manifests
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType
from support.snapshots import HOUR, MORE, RECORDED, recorded, write_snapshot

# --- silver of both ---------------------------------------------------------------------------------------------------


def odd(replies: dict[str, Any]) -> dict[str, Any]:
    """Return replies with unexpected content: unknown keys, values of unexpected types, null, and times and durations
    in all formats."""
    jsz = next(iter(replies["jsz"].values()))
    stream, *_others = (item for account in jsz["account_details"] for item in account.get("stream_detail", ()))
    stream.update({"new": {"a": [1, "ü"], "b": 1.5}, "sources": None})
    stream["cluster"]["new"] = True
    stream["cluster"].setdefault("replicas", [{"name": "n9", "peer": "ZZZZZZZZ"}])[0]["new"] = "x"
    stream["state"].update({"messages": "many", "bytes": 1 << 63, "first_ts": "yesterday", "new": None})
    stream["config"].update({"subjects": ["a.>", 'b<&>\\\\u003e"ü'], "metadata": {"k": "<v>"}, "max_age": 10**18})
    consumer = stream["consumer_detail"][0]
    consumer["delivered"] = {"consumer_seq": 1, "last_active": "2026-11-21T19:00:00.1+01:00"}
    consumer["ack_floor"] = "none"
    consumer["paused"] = 1
    jsz["meta_cluster"]["snapshot"] = {"last_duration": 1234567891234567, "last_time": "9999-12-31T23:59:59Z"}
    more = copy.deepcopy(MORE)
    group = more["raftz"]["APP"]["S-R3F"]
    group.update({"new": 1, "wal": {"messages": 2, "new": 3}})
    group["peers"].update({"aaaaaaaa": {"name": "n7", "last_seen": "1h2m3.5s", "new": 1}, "b": {"last_seen": "0s"}})
    more["routez"]["routes"] += [{"rid": "x"}, {"rid": 8, "rtt": "1m2.25s", "start": "2026-11-21T18:00:00.123456789Z"}]
    more["accountz"]["account_detail"]["decoded_jwt"]["nats"]["limits"]["tiered_limits"] = {
        "R1": {"a": [1]},
        "R3": None,
    }
    replies["healthz"][next(iter(replies["healthz"]))] = {
        "status": 7,
        "status_code": 1 << 40,
        "errors": [{"type": "x"}],
    }
    return {**replies, "more": more}


#: Unexpected configurations of a stream, and of a consumer.
ODD: tuple[Any, ...] = (
    {
        "num_replicas": "3",
        "storage": 7,
        "max_bytes": 1 << 63,
        "max_age": 1.5,
        "placement": None,
        "metadata": {"a": "ü"},
    },
    {"max_msgs": True, "retention": {"a": [1, 2]}, "placement": {"cluster": "C", "tags": ["a", 'b"<']}, "metadata": []},
    {"max_age": 1 << 70, "placement": {"tags": "az:1", "new": 1}, "metadata": {}, "max_consumers": 1e3},
    {"placement": "C1", "num_replicas": 1 << 40, "discard": None, "metadata": {"a": 1, "b": [1]}, "max_msgs": -1},
)
ODD_OF_CONSUMERS: tuple[dict[str, Any], ...] = (
    {"num_replicas": "3", "ack_policy": 7, "max_deliver": 1 << 63, "ack_wait": 1.5, "metadata": {"a": "ü"}},
    {"num_replicas": 1.0, "max_waiting": None, "durable_name": None, "ack_wait": 10**18, "metadata": "x"},
)


def oddly_configured(replies: dict[str, Any]) -> dict[str, Any]:
    """Return replies with streams and consumers that have unexpected configurations."""
    jsz = next(iter(replies["jsz"].values()))
    streams = next(account["stream_detail"] for account in jsz["account_details"] if account.get("stream_detail"))
    stream = streams[0]
    (consumer, *_others) = stream["consumer_detail"]
    for number, odd_config in enumerate((*ODD, 7, [1], {})):
        config = {**stream["config"], **odd_config} if isinstance(odd_config, dict) else odd_config
        streams.append({**stream, "name": f"S{number}", "config": config, "consumer_detail": []})
    for number, odd_config in enumerate(ODD_OF_CONSUMERS):
        config = {**consumer["config"], **odd_config}
        stream["consumer_detail"].append({**consumer, "name": f"C{number}", "config": config})
    return {**replies, "more": MORE}


def fleets() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "oddly configured", oddly_configured(recorded(RECORDED[-1]))
    for version in RECORDED:
        yield version, {**recorded(version), "more": MORE}
        yield f"odd {version}", odd(recorded(version))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, list[str]]]]:
    """Return a lake with the same snapshots as lines and as columns, that is, the files of each table by format."""
    lake = tmp_path_factory.mktemp("lake")
    found: dict[str, dict[str, list[str]]] = {}
    for form in FORMATS:
        manifests = []
        for number, (fleet, replies) in enumerate(fleets()):
            moment = HOUR + timedelta(seconds=number)
            name = f"{moment:%Y%m%dT%H%M%S.%fZ}-{number:06}"
            manifests.append(write_snapshot(lake, copy.deepcopy(replies), moment, fleet, form, name))
        with SnapshotWriter(lake, "silent", HOUR, f"{HOUR:%Y%m%dT%H%M%S.%fZ}-999999", form) as writer:
            for table in TABLES:
                writer.fail(table, Origin("", "n9"), NatsFailure("timeout", "no reply", subject="S"))
            manifests.append(writer.publish()[1])
        for manifest in manifests:
            for table, told in manifest["tables"].items():
                paths = [file["path"] for file in told["files"]]
                found.setdefault(table, {}).setdefault(form, []).extend(paths)
    return lake, found


def comparable(frame: DataFrame) -> DataFrame:
    """Return the rows with incomparable values as text."""
    held = (ArrayType, MapType, StructType, VariantType)
    columns = [
        F.to_json(field.name) if isinstance(field.dataType, held) else F.col(field.name) for field in frame.schema
    ]
    return frame.select(*(column.alias(name) for column, name in zip(columns, frame.columns)))


def test_typed_columns_yield_the_same_rows_as_lines(
    spark: SparkSession, files: tuple[Path, dict[str, dict[str, list[str]]]]
) -> None:
    """The rows have the same identity, fields, extra fields, and missing replies."""
    root, found = files
    lake = Lake(spark, str(root))
    assert set(found) == set(TABLES)
    for name, declared in TABLES.items():
        lines, columns = (lake.bronze(found[name][form], bronze_schema(declared)) for form in FORMATS)
        assert (lines.columns, columns.lines) == (None, None)
        makes: list[Callable[[Bronze], DataFrame]] = [partial(table_rows, declared), failures]
        makes += [server_names] if name == "servers" else []
        for make in makes:
            one, other = make(lines), make(columns)
            assert one.schema == other.schema
            expected = sorted(map(str, comparable(one).collect()))
            assert sorted(map(str, comparable(other).collect())) == expected, name
            assert expected


def test_configurations_stored_only_as_text_are_parsed(
    spark: SparkSession, files: tuple[Path, dict[str, dict[str, list[str]]]]
) -> None:
    root, found = files
    lake = Lake(spark, str(root))
    for name, declared in TABLES.items():
        if declared.config:
            bronze = lake.bronze(found[name][PARQUET], bronze_schema(declared))
            assert bronze.columns is not None
            known, none = bronze.columns, F.lit(None).cast(bronze.columns.schema[CONFIG_FIELDS].dataType)
            older = Bronze(columns=known.withColumn(CONFIG_FIELDS, none))
            expected = sorted(map(str, comparable(table_rows(declared, bronze)).collect()))
            assert known.where(F.col(CONFIG_FIELDS).isNull() & F.col("config").isNotNull()).isEmpty()
            assert sorted(map(str, comparable(table_rows(declared, older)).collect())) == expected


def test_pack_of_columns_and_lines_has_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    for minute, form in enumerate((*FORMATS, *FORMATS)):
        write_snapshot(tmp_path, recorded(RECORDED[-1]), HOUR + timedelta(minutes=minute), form=form)

    def streams() -> tuple[int, list[str]]:
        inputs = read_manifests(lake, [Hour(HOUR, lake.manifests(HOUR))])
        assert not inputs.broken
        bronze = lake.bronze(inputs.files("jsz_streams"), bronze_schema(TABLES["jsz_streams"]))
        rows = comparable(table_rows(TABLES["jsz_streams"], bronze)).collect()
        return len(inputs.sources["jsz_streams"].files), sorted(map(str, rows))

    files, before = streams()
    manifests = [lake.manifest(HOUR, name) for name in lake.snapshots(HOUR)]
    _write_pack(lake, HOUR, place(HOUR), manifests)
    for name in lake.files.names(f"bronze/manifest/{place(HOUR)}"):
        if name.endswith(".json"):
            lake.files.delete(f"bronze/manifest/{place(HOUR)}/{name}")
    assert (files, streams()) == (4, (2, before))
    assert lake.files.names("bronze/_incoming") == []
