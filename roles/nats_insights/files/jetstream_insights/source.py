# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Spark data source ``jetstream``: the messages of a stream as rows, in a batch or as a streaming query.

::

    spark.dataSource.register(JetStreamSource)
    spark.read.format("jetstream").option("servers", "nats://n1:4222").option("stream", "ORDERS").load()

docs/spark-source.md describes the options, delivery and data loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyspark
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import FileContent
from ansible_collections.natsops.jetstream.plugins.module_utils.times import parse_time
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jetstream_insights.pushdown import Bounds, filter_bounds
from jetstream_insights.stream_client import (
    LeaderState,
    Range,
    Rows,
    StreamSelection,
    read_range,
    sequence_at,
    stream_state,
)
from jetstream_insights.stream_connection import Login, SourceError, StreamConnection

SCHEMA = "subject string, seq bigint, time timestamp, headers map<string,array<string>>, data binary"

FIRST, NEW, LAST = "first", "new", "last"

#: Without the option `partitions`: sequences of one partition, and how many partitions there are at most.
SEQUENCES_PER_PARTITION, MOST_PARTITIONS = 100_000, 200

#: Seconds by which the clocks of successive leaders of a stream may differ, for queries with a filter on time.
CLOCKS_APART = timedelta(seconds=60)

#: A sequence, or nanoseconds since 1970.
Place = str | int | datetime


# --- options ----------------------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return value


def _file(value: str) -> FileContent:
    try:
        with open(value, encoding="utf-8") as file:
            content = FileContent(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"cannot read {value}: {getattr(error, 'strerror', None) or 'it is not a text file'}"
        ) from error
    if not content.strip():
        raise ValueError(f"{value} is empty")
    return content


def _seed(value: str) -> str:
    return value if value.startswith("SU") else _file(value).strip()


def _names(value: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in value.split(",") if name.strip())
    if not found:
        raise ValueError("the list is empty")
    return found


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.lower() == "true"


def _count(value: str) -> int:
    found = int(value) if value.strip().isdigit() else 0
    if found < 1:
        raise ValueError(f"{value!r} is not a number of 1 or more")
    return found


def _seconds(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0 < found < 86400:
        raise ValueError(f"{value!r} is not a number of seconds")
    return found


def _place(*words: str) -> Callable[[str], Place]:
    def place(value: str) -> Place:
        if value in words or value.isdigit():
            return value if value in words else int(value)
        try:
            return parse_time(value)
        except ValueError:
            known = ", ".join(words)
            raise ValueError(f"{value!r} is not {known}, a sequence, or a time such as 2026-11-21T18:00:00Z") from None

    return place


#: Every option with the function that parses it.
_OPTIONS: dict[str, Callable[[str], Any]] = {
    "servers": _names,
    "stream": _text,
    "user": _text,
    "password": _text,
    "token": _text,
    "credentials": _file,
    "nkey_seed": _seed,
    "tls_ca_file": _file,
    "tls_cert_file": _file,
    "tls_key_file": _file,
    "tls_server_name": _text,
    "tls_first": _flag,
    "domain": _text,
    "api_prefix": _text,
    "inbox_prefix": _text,
    "filter_subjects": _names,
    "start": _place(FIRST, NEW),
    "end": _place(LAST),
    "partitions": _count,
    "max_messages_per_trigger": _count,
    "max_bytes_per_trigger": _count,
    "push_filters": _flag,
    "fail_on_data_loss": _flag,
    "timeout": _seconds,
    "patience": _seconds,
}

#: Those of the login.
_LOGIN = (
    "servers", "user", "password", "token", "credentials", "nkey_seed", "tls_ca_file", "tls_cert_file", "tls_key_file",
    "tls_server_name", "tls_first", "inbox_prefix", "timeout", "patience",
)  # fmt: skip


@dataclass(frozen=True)
class SourceOptions:
    """The parsed options."""

    login: Login
    stream: StreamSelection
    start: Place = FIRST
    end: Place = LAST
    partitions: int | None = None
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    push_filters: bool = False
    fail_on_data_loss: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the parsed options. Raises SourceError for an option that is unknown, missing or invalid."""
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise SourceError(f"unknown option {', '.join(unknown)}; the options are: {', '.join(sorted(_OPTIONS))}")
        missing = [name for name in ("servers", "stream") if not options.get(name)]
        if missing:
            raise SourceError(f"the option {' and '.join(missing)} is missing")
        reported: dict[str, Any] = {}
        for name, value in options.items():
            try:
                reported[name] = _OPTIONS[name](value)
            except ValueError as error:
                raise SourceError(f"option {name}: {error}") from error
        if any(character in reported["stream"] for character in ".*> \t/\\"):
            raise SourceError(f"option stream: {reported['stream']!r} is not the name of a stream")
        for one, other in (("domain", "api_prefix"), ("max_messages_per_trigger", "max_bytes_per_trigger")):
            if one in reported and other in reported:
                raise SourceError(f"{one} and {other} exclude each other")
        if "tls_key_file" in reported and "tls_cert_file" not in reported:
            raise SourceError("tls_key_file needs tls_cert_file")
        prefix = f"$JS.{reported['domain']}.API" if "domain" in reported else reported.get("api_prefix", "$JS.API")
        login = {name: reported[name] for name in _LOGIN if name in reported}
        rest = (
            "start",
            "end",
            "partitions",
            "max_messages_per_trigger",
            "max_bytes_per_trigger",
            "push_filters",
            "fail_on_data_loss",
        )
        return cls(
            login=Login(api_prefix=prefix, **login),
            stream=StreamSelection(reported["stream"], reported.get("filter_subjects", ())),
            **{name: reported[name] for name in rest if name in reported},
        )


def place_sequence(connection: StreamConnection, settings: SourceOptions, state: LeaderState, place: Place) -> int:
    """Return the sequence of a start or an end; for a time, that of the first message at or after it."""
    if isinstance(place, datetime):
        whole = int(place.replace(microsecond=0).timestamp())
        nanoseconds = whole * 1_000_000_000 + place.microsecond * 1000
        return sequence_at(connection, settings.stream, state, nanoseconds)
    return int(place)


def first_sequence(connection: StreamConnection, settings: SourceOptions, state: LeaderState) -> int:
    """Return the first sequence for the option `start`: in the stream, or the next one to be written."""
    if settings.start in (FIRST, NEW):
        return state.first if settings.start == FIRST else state.last + 1
    return max(state.first, min(state.last + 1, place_sequence(connection, settings, state, settings.start)))


def ranges(settings: SourceOptions, state: LeaderState, first: int, last: int) -> list[InputPartition]:
    """Return the sequences from `first` to `last` in partitions of nearly equal size."""
    total = last - first + 1
    if total < 1:
        return []
    wanted = settings.partitions or min(MOST_PARTITIONS, -(-total // SEQUENCES_PER_PARTITION))
    count = min(wanted, total)
    cuts = [first + total * index // count for index in range(count + 1)]
    return [InputPartition(Range(cuts[index], cuts[index + 1] - 1, state.created, state.way)) for index in range(count)]


# --- rows -------------------------------------------------------------------------------------------------------------------


def parsed_headers(stored: bytes | None) -> list[tuple[str, list[str]]] | None:
    """Return the headers of a message in their order, each with all its values; None for a message without headers."""
    if stored is None:
        return None
    found: dict[str, list[str]] = {}
    for line in stored.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name.decode("utf-8", "replace"), []).append(value.strip().decode("utf-8", "replace"))
    return list(found.items())


def record_batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows as a record batch for Spark."""
    if rows.times and isinstance(rows.times[0], bytes):
        nanoseconds = pa.array(rows.times, pa.string()).cast(pa.timestamp("ns", "UTC"))
        times = nanoseconds.cast(schema.field("time").type, safe=False)
    else:
        times = pa.array([moment // 1000 for moment in rows.times], schema.field("time").type)  # type: ignore[operator]
    some = any(stored is not None for stored in rows.headers)
    headers = [parsed_headers(stored) for stored in rows.headers] if some else [None] * len(rows.headers)
    columns = [
        pa.array([subject.decode("utf-8", "replace") for subject in rows.subjects], schema.field("subject").type),
        pa.array(rows.sequences, schema.field("seq").type),
        times,
        pa.array(headers, schema.field("headers").type),
        pa.array(rows.data, schema.field("data").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class PartitionReader:
    """The reading of a partition, common to both readers; runs on the executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.settings = SourceOptions.of(options)
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settings, wanted = self.settings, partition.value
        if wanted is None:  # Spark's own partition when there are none
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for rows in read_range(settings.login, settings.stream, wanted, settings.fail_on_data_loss):
            if rows.sequences:
                yield record_batch(rows, schema)


class _BatchReader(PartitionReader, DataSourceReader):
    """Reads the present messages of the stream, within the bounds."""

    bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        settings = self.settings
        for name in ("start", "max_messages_per_trigger", "max_bytes_per_trigger"):
            value = getattr(settings, name)
            if value == NEW or (name != "start" and value is not None):
                raise SourceError(f"option {name}={value} is for streaming queries (readStream)")
        with StreamConnection(settings.login) as connection:
            state = connection.with_retries(lambda: stream_state(connection, settings.stream))
            first, last = first_sequence(connection, settings, state), state.last
            if settings.end != LAST:
                before = isinstance(settings.end, datetime)
                last = min(last, place_sequence(connection, settings, state, settings.end) - int(before))
            bounds = self.bounds
            if bounds.since is not None:
                first = max(first, place_sequence(connection, settings, state, bounds.since - CLOCKS_APART))
            if bounds.until is not None:
                last = min(last, place_sequence(connection, settings, state, bounds.until + CLOCKS_APART) - 1)
        first = first if bounds.first is None else max(first, bounds.first)
        last = last if bounds.last is None else min(last, bounds.last)
        return ranges(settings, state, first, last)


class _FilteredReader(_BatchReader):
    """Reads only the messages that a query's filters can match. Spark refuses such a reader unless it pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.bounds = filter_bounds(filters)
        stream = self.settings.stream
        if self.bounds.subjects and not stream.subjects:
            self.settings = replace(self.settings, stream=replace(stream, subjects=self.bounds.subjects))
        return filters


class JetStreamSource(DataSource):
    """The data source ``jetstream``."""

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> str:
        SourceOptions.of(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        filtered = SourceOptions.of(self.options).push_filters
        return (_FilteredReader if filtered else _BatchReader)(self.options, _known(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from jetstream_insights.stream_reader import StreamReader
        except ImportError as error:
            raise SourceError(f"streaming queries need PySpark 4.2 or later; this is {pyspark.__version__}") from error
        return StreamReader(self.options, _known(schema))


def _known(schema: StructType) -> StructType:
    """Return the schema. Raises SourceError for a schema that the user specified differently."""
    if schema.simpleString() != f"struct<{SCHEMA.replace(', ', ',').replace(' ', ':')}>":
        raise SourceError(f"the schema is always {SCHEMA}; select columns from it")
    return schema
