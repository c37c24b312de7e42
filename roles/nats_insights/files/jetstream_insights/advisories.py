# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that fills the silver table `advisories` from the streams that capture them, continuing by their sequences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights.fields import converted, in_document, rest
from jetstream_insights.lake import ADVISORIES_FORMAT, Lake, new_run, place
from jetstream_insights.silver import ADVISORY
from jetstream_insights.source import JetStreamSource, SourceOptions
from jetstream_insights.stream_client import stream_state
from jetstream_insights.stream_connection import SourceError, StreamConnection

LAYER, TABLE = "silver", "advisories"
_TABLE = f"{LAYER}/{TABLE}"
#: Suffix of runs with rows that have been read but are not in the table yet.
_NEW = "-new"
#: A file for each stream, because another job may read other streams.
_POSITIONS = f"{_TABLE}/_positions"

#: The kind of a row whose message is not an advisory.
UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Capture:
    """A stream that captures advisories: its fleet, its account, and the options of the data source."""

    fleet: str
    account: str
    settings: SourceOptions
    options: Mapping[str, str]

    @property
    def key(self) -> str:
        return f"{self.fleet}/{self.account}/{self.settings.stream.name}"


@dataclass(frozen=True)
class Portion:
    """The sequences of a capture to read, both included."""

    capture: Capture
    created: str
    first: int
    last: int


@dataclass
class Read:
    """The result of the job: rows read, hours written, sequences removed before they were read, rows that are not
    advisories."""

    rows: int = 0
    hours: int = 0
    lost: int = 0
    unreadable: int = 0


def read_captures(path: str | None) -> list[Capture]:
    """Return the captures in a file: a list of objects with fleet, account and options. Raises SourceError."""
    if not path:
        raise SourceError("--streams is missing: the file with the streams that capture advisories")
    found = []
    try:
        with open(path, encoding="utf-8") as file:
            reported = json.load(file)
        for item in reported:
            options = {name: str(content) for name, content in item["options"].items()}
            found.append(Capture(str(item["fleet"]), str(item["account"]), SourceOptions.of(options), options))
    except OSError as error:
        raise SourceError(f"--streams: cannot read {path}: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceError(
            f"--streams: {path} is not a list of objects with fleet, account and options ({type(error).__name__}: {error})"
        ) from error
    return found


def make_advisories(lake: Lake, captures: Sequence[Capture], say: Callable[[str], None]) -> Read:
    """Add new messages of the streams to the table. Raises SourceError.

    New rows are first written to a separate run. Then each of their hours is rewritten with the rows that it has, and finally the
    positions are replaced. If the job is killed in between, the next one reads the same messages again, and recognizes a row by
    its advisory's id.
    """
    done = Read()
    portions = [_portion(capture, _position(lake, capture), done, say) for capture in captures]
    wanted = [portion for portion in portions if portion.first <= portion.last]
    if wanted:
        lake.spark.dataSource.register(JetStreamSource)
        frames = [
            advisory_rows(_messages(lake, portion), portion.capture.fleet, portion.capture.account)
            for portion in wanted
        ]
        new = lake.write(LAYER, TABLE, f"{new_run()}{_NEW}", reduce(DataFrame.unionByName, frames), marked=True)
        _publish(lake, new, done)
        say(f"{done.rows} advisories in {done.hours} hours")
    for portion in portions:
        position = {"stream": portion.capture.key, "created": portion.created, "sequence": portion.last}
        lake.files.replace_text(_file(portion.capture), json.dumps(position))
    return done


def _file(capture: Capture) -> str:
    """Return the file with a capture's position. A hash names it: names of accounts and fleets may have any characters."""
    return f"{_POSITIONS}/{hashlib.sha256(capture.key.encode()).hexdigest()[:32]}.json"


def _position(lake: Lake, capture: Capture) -> dict[str, Any]:
    """Return the position up to which a capture was read; empty for none."""
    name = _file(capture)
    return dict(json.loads(lake.files.read_text(name))) if lake.files.exists(name) else {}


def _portion(capture: Capture, known: Mapping[str, Any], done: Read, say: Callable[[str], None]) -> Portion:
    """Return the sequences to read from a capture, and report those already removed."""
    with StreamConnection(capture.settings.login) as connection:
        state = connection.with_retries(lambda: stream_state(connection, capture.settings.stream))
    after = int(known.get("sequence", 0))
    if known and (known["created"] != state.created or state.last < after):
        say(f"{capture.key} was recreated or lost its end: it is read from its first message")
        after = state.first - 1
    elif known and state.first > after + 1:
        say(
            f"{capture.key}: {state.first - after - 1} messages after sequence {after} were removed before they were read"
        )
        done.lost += state.first - after - 1
    return Portion(capture, state.created, max(after + 1, state.first), state.last)


def _messages(lake: Lake, portion: Portion) -> DataFrame:
    span = {"start": str(portion.first), "end": str(portion.last), "fail_on_data_loss": "false"}
    return lake.spark.read.format("jetstream").options(**{**portion.capture.options, **span}).load()


def advisory_rows(messages: DataFrame, fleet: str, account: str) -> DataFrame:
    """Return the rows of messages that a stream in an account captured. All fields that servers send in JSON have a type.

    `kind` is the type without the common prefix of all types. An advisory about a stream that names no account belongs to the
    account where it was captured. `taken` is the time at which the stream stored it, and determines its hour.
    """
    parsed = messages.withColumn("parsed", F.try_parse_json(F.col("data").cast("string")))
    other = F.parse_json(F.to_json(F.struct(F.base64("data").alias("base64"))))
    readable = F.coalesce(F.try_variant_get("parsed", "$.type", "string"), F.lit("")) != ""
    field_value = partial(in_document, F.col("document"))
    reported = parsed.withColumn("document", F.when(readable, F.col("parsed")).otherwise(other)).select(
        F.lit(fleet).alias("fleet"),
        F.col("time").alias("taken"),
        F.lit(account).alias("captured_account"),
        F.col("subject"),
        F.col("seq"),
        *(converted(field_value(field), field).alias(field.name) for field in ADVISORY),
        rest(F.col("document"), ADVISORY, field_value).alias("extra"),
    )
    kind = F.coalesce(F.regexp_extract("type", r"([^.]+)$", 1), F.lit(UNREADABLE))
    own = F.when(F.col("stream").isNotNull(), F.lit(account))
    return (
        reported.withColumn("account", F.coalesce("account", own))
        .withColumn("kind", kind)
        .withColumn("time", F.coalesce("time", "taken"))
    )


def unique(frame: DataFrame) -> DataFrame:
    """Return each advisory once: servers publish some in two accounts, with the same id."""
    id_ = F.coalesce("id", F.concat_ws("/", "captured_account", "subject", F.col("seq").cast("string")))
    first = F.struct("captured_account", "subject", "seq")
    every = F.struct(*frame.columns)
    return frame.groupBy("fleet", id_.alias("_id")).agg(F.min_by(every, first).alias("row")).select("row.*")


def _publish(lake: Lake, new: DataFrame, done: Read) -> None:
    """Merge the rows into their hours."""
    reported = new.groupBy(F.date_trunc("hour", "taken").cast("bigint").alias("hour")).agg(
        F.count("*").alias("rows"), F.count_if(F.col("kind") == UNREADABLE).alias("unreadable")
    )
    counts = {datetime.fromtimestamp(row["hour"], timezone.utc): row for row in reported.collect()}
    done.rows += sum(row["rows"] for row in counts.values())
    done.unreadable += sum(row["unreadable"] for row in counts.values())
    done.hours += len(counts)
    # Another job may replace a pointer at the same time. Both jobs write their rows first and check again afterwards, so the last
    # one merges the rows of both.
    while waiting := _waiting(lake, sorted(counts)):
        run, pointers = new_run(), {hour: lake.pointer(_TABLE, hour) for hour in waiting}
        before = lake.read(LAYER, TABLE, waiting)
        paths = [f"{lake.uri}/{_TABLE}/{name}/{place(hour)}" for hour, names in waiting.items() for name in names]
        rows = lake.spark.read.schema(new.schema).parquet(*paths)
        lake.write(LAYER, TABLE, run, unique(rows if before is None else before.unionByName(rows)))
        for hour, pointer in pointers.items():
            inputs = sorted({*pointer.get("inputs", ()), *waiting[hour]})
            lake.repoint(_TABLE, hour, {"format": ADVISORIES_FORMAT, "run": run, "inputs": inputs, "quarantined": 0})


def _waiting(lake: Lake, hours: Sequence[datetime]) -> dict[datetime, list[str]]:
    """Return for each incomplete hour the folders of runs that have not been merged yet."""
    written = [
        name
        for name in lake.files.names(_TABLE)
        if name.endswith(_NEW) and lake.files.exists(f"{_TABLE}/{name}/_SUCCESS")
    ]
    found = {}
    for hour in hours:
        known = lake.pointer(_TABLE, hour).get("inputs", ())
        lacks = [name for name in written if name not in known and lake.files.exists(f"{_TABLE}/{name}/{place(hour)}")]
        if lacks:
            found[hour] = lacks
    return found
