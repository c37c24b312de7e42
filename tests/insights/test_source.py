# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data source `jetstream` in Spark, with real servers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights import stream_reader
from jetstream_insights.pushdown import Bounds, filter_bounds
from jetstream_insights.source import SCHEMA, JetStreamSource, SourceOptions
from jetstream_insights.stream_connection import SourceError
from jetstream_insights.stream_reader import StreamReader
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType
from support.streams import Site, read_messages, running_site

MANY = 900


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a self-signed certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
        " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def site(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that offers TLS without requiring it, so the tests' own client does not need it."""
    files = ", ".join(f"{name}_file: {str(certificates / f'{name}.pem')!r}" for name in ("cert", "key"))
    extra = f"tls {{ {files} }}\nallow_non_tls: true"
    with running_site("2.15.1", tmp_path_factory.mktemp("site"), extra=extra) as found:
        found.add_stream("DIRECT", allow_direct=True)
        found.publish("DIRECT", MANY, headers=True)
        found.remove("DIRECT", [5, 6, 500])
        yield found


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(JetStreamSource)
    return spark


def options(site: Site, stream: str = "DIRECT", **more: Any) -> dict[str, str]:
    given = {
        "servers": ",".join(site.servers.urls),
        "stream": stream,
        "user": site.login.user,
        "password": site.login.password,
    }
    return {name: str(value) for name, value in {**given, "patience": 2, **more}.items() if value is not None}


def read(source: SparkSession, site: Site, stream: str = "DIRECT", **more: Any) -> DataFrame:
    return source.read.format("jetstream").options(**options(site, stream, **more)).load()


def test_batch_equals_the_messages_of_nats_py_over_tls(source: SparkSession, site: Site, certificates: Path) -> None:
    frame = read(source, site, partitions=3, tls_ca_file=certificates / "cert.pem")
    assert frame.schema == _parse()
    micros, partition = F.unix_micros("time").alias("micros"), F.spark_partition_id().alias("partition")
    reported = frame.select("*", micros, partition).orderBy("seq").collect()
    wanted = asyncio.run(read_messages(site, "DIRECT"))
    assert [(row.subject, row.seq, row.micros, bytes(row.data)) for row in reported] == [
        (message.subject, message.sequence, message.time, message.data) for message in wanted
    ]
    some = next(row for row in reported if row.seq == 300)
    assert some.headers == {"Nats-Msg-Id": ["300"], "Greeting": ["to: you"]}
    assert reported[0].headers is None
    assert {row.partition for row in reported} == {0, 1, 2}
    plan = frame._jdf.queryExecution().toString()
    assert site.login.password is not None and site.login.password not in plan


def test_batch_reads_a_range_of_a_stream(source: SparkSession, site: Site) -> None:
    wanted = asyncio.run(read_messages(site, "DIRECT"))
    frames = {
        "sequences": read(source, site, start=5, end=20),
        "subject": read(source, site, filter_subjects="DIRECT.kept.a,DIRECT.*.b", start=880),
        "times": read(source, site, start=_iso(wanted[100].time), end=_iso(wanted[110].time)),
        "nothing": read(source, site, start=5, end=6),
        "beyond": read(source, site, start=5000),
    }
    found = {row.which: row.seqs for row in _sequences(frames)}
    assert found["sequences"] == list(range(7, 21))
    assert found["subject"] == [sequence for sequence in range(880, MANY + 1) if sequence % 4 < 2]
    within = [message.sequence for message in wanted if wanted[100].time <= message.time < wanted[110].time]  # type: ignore[operator]
    assert found["times"] == within
    assert within
    assert "nothing" not in found
    assert "beyond" not in found


def _iso(micros: Any) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(micros // 10**6))
    return f"{whole}.{micros % 10**6:06d}Z"


def _sequences(frames: dict[str, DataFrame]) -> list[Any]:
    every = None
    for name, frame in frames.items():
        named = frame.select(F.lit(name).alias("which"), "seq")
        every = named if every is None else every.unionAll(named)
    assert every is not None
    return every.groupBy("which").agg(F.sort_array(F.collect_list("seq")).alias("seqs")).collect()


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        pytest.param(
            {"severs": "x"}, "unknown option severs; the options are: api_prefix, credentials, domain, ", id="unknown"
        ),
        pytest.param({"stream": None}, "the option stream is missing", id="missing"),
        pytest.param({"stream": "A.B"}, "'A.B' is not the name of a stream", id="name"),
        pytest.param(
            {"start": "yesterday"}, "option start: 'yesterday' is not first, new, a sequence, or a time", id="start"
        ),
        pytest.param({"partitions": "0"}, "option partitions: '0' is not a number of 1 or more", id="count"),
        pytest.param({"timeout": "soon"}, "option timeout: 'soon' is not a number of seconds", id="seconds"),
        pytest.param({"fail_on_data_loss": "maybe"}, "'maybe' is neither true nor false", id="flag"),
        pytest.param({"servers": ","}, "option servers: the list is empty", id="servers"),
        pytest.param(
            {"tls_ca_file": "/none.pem"}, "option tls_ca_file: cannot read /none.pem: No such file", id="file"
        ),
        pytest.param({"tls_ca_file": "/dev/null"}, "option tls_ca_file: /dev/null is empty", id="empty file"),
        pytest.param({"nkey_seed": "/none.nk"}, "option nkey_seed: cannot read /none.nk", id="seed"),
        pytest.param({"domain": "d", "api_prefix": "x"}, "domain and api_prefix exclude each other", id="prefix"),
        pytest.param(
            {"max_messages_per_trigger": "5", "max_bytes_per_trigger": "5"},
            "max_messages_per_trigger and max_bytes_per_trigger exclude each other",
            id="limits",
        ),
        pytest.param({"tls_key_file": __file__}, "tls_key_file needs tls_cert_file", id="key"),
    ],
)
def test_invalid_options_are_refused(site: Site, change: dict[str, str | None], reported: str) -> None:
    with pytest.raises(SourceError) as caught:
        SourceOptions.of(options(site, **change))  # type: ignore[arg-type]
    assert reported in str(caught.value)


def test_spark_shows_the_reason_of_a_refusal(source: SparkSession, site: Site) -> None:
    with pytest.raises(Exception, match="unknown option severs; the options are: api_prefix, "):
        read(source, site, severs="x")
    with pytest.raises(Exception, match=r"there is no stream NONE in this account \(of nats://127"):
        read(source, site, "NONE").count()
    with pytest.raises(Exception, match=r"cannot connect: nats://127.*the server does not accept user 'app'"):
        read(source, site, password="wrong").count()
    with pytest.raises(Exception, match="start=new is for streaming queries"):
        read(source, site, start="new").count()
    with pytest.raises(Exception, match="the schema is always subject string, "):
        source.read.schema("a int").format("jetstream").options(**options(site)).load().count()


@pytest.fixture
def pushing(source: SparkSession) -> Iterator[SparkSession]:
    source.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield source
    source.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_narrow_the_read_messages(pushing: SparkSession, site: Site) -> None:
    """The rows are the same as those of a query that reads everything."""
    wanted = asyncio.run(read_messages(site, "DIRECT"))
    moment = F.lit(_iso(wanted[400].time)).cast("timestamp")
    conditions = {
        "sequences": (F.col("seq") > 100) & (F.col("seq") <= 110),
        "list": F.col("seq").isin(7, 9, 5000),
        "subject": (F.col("subject") == "DIRECT.kept.a") & (F.col("seq") < 50),
        "subjects": F.col("subject").isin("DIRECT.kept.a", "DIRECT.kept.b") & (F.col("seq") < 50),
        "prefix": F.col("subject").startswith("DIRECT.kept.c.de") & (F.col("seq") < 50),
        "time": (F.col("time") >= moment) & (F.col("seq") < 500),
        "nothing": F.col("seq") > 10_000,
        "wildcard": F.col("subject") == "DIRECT.*.a",
        "not": ~(F.col("seq") > 5),
    }
    pushed = {name: read(pushing, site, push_filters="true").where(condition) for name, condition in conditions.items()}
    plain = {name: read(pushing, site).where(condition) for name, condition in conditions.items()}
    found = {row.which: row.seqs for row in _sequences(pushed)}
    assert found == {row.which: row.seqs for row in _sequences(plain)}
    assert found["sequences"] == list(range(101, 111))
    assert found["list"] == [7, 9]
    assert set(found) == set(conditions) - {"nothing", "wildcard"}
    # A range whose rows Spark would discard is not even planned.
    assert pushed["sequences"].rdd.getNumPartitions() == 1
    assert read(pushing, site, push_filters="true", partitions=4).where("seq > 880").rdd.getNumPartitions() == 4
    assert read(pushing, site, push_filters="true", partitions=4).where("seq > 898").rdd.getNumPartitions() == 2


def test_filters_spark_does_not_push_down_are_applied(source: SparkSession, site: Site) -> None:
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        read(source, site, push_filters="true").count()


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        pytest.param([GreaterThan(("seq",), 5), LessThan(("seq",), 9)], Bounds(first=6, last=8), id="open ends"),
        pytest.param(
            [GreaterThanOrEqual(("seq",), 5), LessThanOrEqual(("seq",), 9), GreaterThan(("seq",), 6)],
            Bounds(first=7, last=9),
            id="the narrowest",
        ),
        pytest.param([In(("seq",), (4, 2))], Bounds(first=2, last=4), id="a list"),
        pytest.param([Not(EqualTo(("seq",), 4)), EqualTo(("data",), 4)], Bounds(), id="others"),
        pytest.param([EqualTo(("seq",), None), In(("seq",), (1, None))], Bounds(), id="null"),
        pytest.param([EqualTo(("time",), datetime(2026, 1, 1))], Bounds(), id="a time without a zone"),
        pytest.param(
            [EqualTo(("subject",), "a.b"), EqualTo(("subject",), "c")], Bounds(subjects=("a.b",)), id="subject"
        ),
        pytest.param([In(("subject",), ("a", "b.*"))], Bounds(), id="a subject that servers take for a pattern"),
        pytest.param([StringStartsWith(("subject",), "a.b.c")], Bounds(subjects=("a.b.>",)), id="prefix"),
        pytest.param([StringStartsWith(("subject",), "ab")], Bounds(), id="prefix of a token"),
    ],
)
def test_bounds(filters: list[Filter], bounds: Bounds) -> None:
    assert filter_bounds(filters) == bounds


# --- streaming ----------------------------------------------------------------------------------------------------------------


def run_query(source: SparkSession, folder: Path, reported: dict[str, str]) -> list[int]:
    """Run a query until it has read the stream; return the rows of each batch of the query."""
    frame = source.readStream.format("jetstream").options(**reported).load()
    sink = frame.writeStream.format("parquet").option("path", str(folder / "rows"))
    query = sink.option("checkpointLocation", str(folder / "check")).trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    finally:
        query.stop()


def test_available_now_admission_and_a_recreated_stream(source: SparkSession, site: Site, tmp_path: Path) -> None:
    site.add_stream("FLOW", allow_direct=True)
    site.publish("FLOW", 250)
    reported = options(site, "FLOW", max_messages_per_trigger=100)
    assert run_query(source, tmp_path, reported) == [100, 100, 50]
    assert run_query(source, tmp_path, reported) == []
    site.publish("FLOW", 30, begin=251)
    assert run_query(source, tmp_path, reported) == [30]
    rows = source.read.parquet(str(tmp_path / "rows")).select("seq").collect()
    assert sorted(row.seq for row in rows) == list(range(1, 281))
    # Batches are limited by bytes: each sequence has this many bytes on average.
    size = site.api("STREAM.INFO.FLOW")["state"]["bytes"]
    by_bytes = options(site, "FLOW", max_bytes_per_trigger=size // 4 + 1)
    assert run_query(source, tmp_path / "bytes", by_bytes) == [70, 70, 70, 70]
    site.api("STREAM.DELETE.FLOW")
    site.add_stream("FLOW", allow_direct=True)
    site.publish("FLOW", 10)
    with pytest.raises(Exception, match="FLOW was deleted and recreated"):
        run_query(source, tmp_path, reported)
    assert run_query(source, tmp_path, {**reported, "fail_on_data_loss": "false"}) == [10]
    with pytest.raises(
        Exception, match="the checkpoint belongs to stream FLOW; to read DIRECT, give the query its own checkpoint"
    ):
        run_query(source, tmp_path, {**reported, "stream": "DIRECT"})


def _parse() -> StructType:
    found = StructType.fromDDL(SCHEMA)
    assert isinstance(found, StructType)
    return found


@pytest.fixture
def plan(site: Site) -> Iterator[Any]:
    """Return a function that creates the planning reader, as Spark's driver does."""
    made: list[StreamReader] = []

    def new(stream: str, **more: Any) -> StreamReader:
        made.append(StreamReader(options(site, stream, **more), _parse()))
        return made[-1]

    yield new
    for reader in made:
        reader.stop()


def sequences(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        sequence
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for sequence in batch.column("seq").to_pylist()
    ]


def test_offsets(site: Site, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test plans with the reader itself from every state of the stream that a checkpoint can meet."""
    monkeypatch.setattr(stream_reader, "STATE_AGE", -1.0)  # each plan reads the current state of the stream
    site.add_stream("STEPS", allow_direct=True)
    site.publish("STEPS", 50)
    # The first batch is repeated: Spark requests the initial offset again, which would now be different.
    first = plan("STEPS", start="new")
    start = first.initialOffset()
    assert start["sequence"] == 50
    site.publish("STEPS", 50, begin=51)
    end = first.latestOffset(start, ReadMaxRows(30))
    assert end["sequence"] == 80
    again = plan("STEPS", start="new")
    assert again.initialOffset()["sequence"] == 100
    assert sequences(again, again.initialOffset(), end) == sequences(first, start, end) == list(range(51, 81))
    assert sequences(again, end, end) == []
    assert again.latestOffset(again.initialOffset(), ReadMaxRows(30)) == again.initialOffset()

    # Messages were removed before they were planned, or between planning and reading.
    site.api("STREAM.PURGE.STEPS", {"seq": 91})
    later = {**end, "sequence": 95}
    reported = "now begins at sequence 91, but 81 is the next to read: up to 10 messages"
    with pytest.raises(SourceError, match=reported):
        again.latestOffset(end, ReadMaxRows(30))
    with pytest.raises(SourceError, match=reported):
        again.partitions(end, later)
    careless = plan("STEPS", fail_on_data_loss="false")
    assert careless.latestOffset(end, ReadMaxRows(5))["sequence"] == 95
    assert sequences(careless, end, later) == list(range(91, 96))

    # The stream has lost its end, as a memory stream does when its server restarts.
    beyond = {**end, "sequence": 500}
    with pytest.raises(SourceError, match="ends at sequence 100, but 500 was already read"):
        again.latestOffset(beyond, ReadMaxRows(30))
    anew = careless.latestOffset(beyond, ReadMaxRows(4))
    assert (anew["sequence"], anew["initial"]) == (94, 90)
    assert sequences(careless, beyond, anew) == list(range(91, 95))

    # The stream has been replaced by another one of the same name.
    site.api("STREAM.DELETE.STEPS")
    site.add_stream("STEPS", allow_direct=True)
    site.publish("STEPS", 20)
    with pytest.raises(SourceError, match="STEPS was deleted and recreated"):
        again.latestOffset(end, ReadMaxRows(30))
    with pytest.raises(SourceError, match="STEPS was deleted and recreated"):
        again.partitions(end, later)
    other = careless.latestOffset(end, ReadMaxRows(7))
    assert sequences(careless, end, other) == list(range(1, 8))


DRIVER = """
    import sys
    from jetstream_insights.session import session
    from jetstream_insights.source import JetStreamSource

    folder, until, *reported = sys.argv[1:]
    spark = session("local[2]", "1g")
    spark.dataSource.register(JetStreamSource)
    frame = spark.readStream.format("jetstream").options(**dict(pair.split("=", 1) for pair in reported)).load()
    sink = frame.writeStream.format("parquet").option("path", folder + "/rows").option("checkpointLocation", folder + "/check")
    query = sink.trigger(availableNow=True).start() if until == "end" else sink.start()
    query.awaitTermination()
"""


@pytest.mark.chaos
def test_killed_driver_neither_loses_nor_repeats_messages(source: SparkSession, site: Site, tmp_path: Path) -> None:
    """Kill the driver with its workers at random moments of its batches, while more messages arrive, and restart it."""
    site.add_stream("RESTART", allow_direct=True)
    site.publish("RESTART", 700)
    total, chance = 700, random.Random(os.environ.get("PYTEST_SEED", "11"))
    reported = options(site, "RESTART", max_messages_per_trigger=70, partitions=2)
    (tmp_path / "driver.py").write_text(textwrap.dedent(DRIVER))
    batches = []

    def start(until: str) -> subprocess.Popen[bytes]:
        words = [
            str(tmp_path / "driver.py"),
            str(tmp_path),
            until,
            *(f"{name}={value}" for name, value in reported.items()),
        ]
        with open(tmp_path / "driver.log", "ab") as log:
            return subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, start_new_session=True)

    for _kill in range(2):
        before = len(list(tmp_path.glob("check/offsets/[0-9]*")))
        driver = start("killed")
        try:
            deadline = time.monotonic() + 120
            while len(list(tmp_path.glob("check/offsets/[0-9]*"))) <= before:
                assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
                assert time.monotonic() < deadline, "no batch was begun"
                time.sleep(0.02)
            site.publish("RESTART", 100, begin=total + 1)
            total += 100
            time.sleep(chance.uniform(0, 2))
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(30)
        planned = len(list(tmp_path.glob("check/offsets/[0-9]*")))
        batches.append((planned, len(list(tmp_path.glob("check/commits/[0-9]*")))))
    assert start("end").wait(300) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    rows = source.read.parquet(str(tmp_path / "rows")).select("seq", "data").collect()
    assert sorted(row.seq for row in rows) == list(range(1, total + 1)), batches
    assert site.consumers("RESTART") == 0
