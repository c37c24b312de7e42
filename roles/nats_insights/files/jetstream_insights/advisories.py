# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that makes the silver table `advisories` of the streams that capture them, going on where it was by their sequences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial, reduce
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry import PEERS, Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetstream_insights.fields import converted, in_document, rest
from jetstream_insights.lake import SILVER_FORMAT, Lake, new_run
from jetstream_insights.messages import Connection, SourceError, state_of
from jetstream_insights.source import JetStreamSource, Settings

LAYER, TABLE = "silver", "advisories"
_POSITION = f"{LAYER}/{TABLE}/_position.json"
_STAGED = f"{LAYER}/_incoming"

#: What a row's advisory is called when it is none.
UNREADABLE = "unreadable"

#: What the advisories of all kinds tell (server/jetstream_events.go); the rest is in `extra`.
FIELDS = (
    Field("id", "string"),
    Field("type", "string"),
    Field("time", "timestamp", "timestamp"),
    Field("account", "string"),
    Field("stream", "string"),
    Field("consumer", "string"),
    Field("server", "string"),
    Field("server_id", "string"),
    Field("cluster", "string"),
    Field("domain", "string"),
    Field("leader", "string"),
    Field("replicas", PEERS),
    Field("action", "string"),
    Field("reason", "string"),
    Field("stream_seq", "bigint"),
    Field("consumer_seq", "bigint"),
    Field("deliveries", "bigint"),
    Field("dropped", "bigint"),
)


@dataclass(frozen=True)
class Capture:
    """A stream that captures advisories: of which fleet, in which account, and the data source's options."""

    fleet: str
    account: str
    settings: Settings
    options: Mapping[str, str]

    @property
    def key(self) -> str:
        return f"{self.fleet}/{self.account}/{self.settings.stream.name}"


@dataclass(frozen=True)
class Portion:
    """Sequences of a capture that are to be read, both included."""

    capture: Capture
    created: str
    first: int
    last: int


@dataclass
class Read:
    """What the job did: rows that it read, hours that it wrote, sequences that were gone before it came, rows that are no
    advisories."""

    rows: int = 0
    hours: int = 0
    lost: int = 0
    unreadable: int = 0


def captures_of(path: str | None) -> list[Capture]:
    """Return the captures that a file names: a list of objects with fleet, account and options. Raises SourceError."""
    if not path:
        raise SourceError("--streams is missing, a file with the streams that capture advisories")
    found = []
    try:
        with open(path, encoding="utf-8") as file:
            reported = json.load(file)
        for item in reported:
            options = {name: str(content) for name, content in item["options"].items()}
            found.append(Capture(str(item["fleet"]), str(item["account"]), Settings.of(options), options))
    except OSError as error:
        raise SourceError(f"--streams: cannot read {path}: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceError(
            f"--streams: {path} is no list of objects with fleet, account and options ({type(error).__name__}: {error})"
        ) from error
    return found


def make_advisories(lake: Lake, captures: Sequence[Capture], say: Callable[[str], None]) -> Read:
    """Add to the table what the streams have and it has not. Raises SourceError.

    Hours that get rows are rewritten with those that they have, and point to the new run; last of all the position is
    replaced. Whoever is killed in between reads the same messages again, and a row is known by its advisory's id.
    """
    done = Read()
    known: dict[str, Any] = {"format": SILVER_FORMAT, "streams": {}}
    if lake.exists(_POSITION):
        known = json.loads(lake.read_text(_POSITION))
    portions = [_portion(capture, known["streams"].get(capture.key, {}), done, say) for capture in captures]
    wanted = [portion for portion in portions if portion.first <= portion.last]
    if wanted:
        run = new_run()
        staged = f"{_STAGED}/run={run}"
        lake.spark.dataSource.register(JetStreamSource)
        frames = [
            rows_of(_messages(lake, portion), portion.capture.fleet, portion.capture.account) for portion in wanted
        ]
        frame = reduce(DataFrame.unionByName, frames)
        frame.write.parquet(f"{lake.uri}/{staged}")
        new = lake.spark.read.schema(frame.schema).parquet(f"{lake.uri}/{staged}")
        _publish(lake, run, new, done)
        lake.delete(staged)
        say(f"{done.rows} advisories in {done.hours} hours")
    for portion in portions:
        known["streams"][portion.capture.key] = {"created": portion.created, "sequence": portion.last}
    lake.replace_text(_POSITION, json.dumps(known))
    return done


def _portion(capture: Capture, known: Mapping[str, Any], done: Read, say: Callable[[str], None]) -> Portion:
    """Return what is to be read of a capture. What is gone already is reported."""
    with Connection(capture.settings.login) as connection:
        state = connection.patiently(lambda: state_of(connection, capture.settings.stream))
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


def rows_of(messages: DataFrame, fleet: str, account: str) -> DataFrame:
    """Return the rows of messages that a stream in an account captured. All that servers tell in JSON has a type.

    `kind` is the type without what all types begin with. An advisory that names no account is of the account where it was
    captured, if it is of a stream. `taken` is when the stream stored it, which decides on its hour.
    """
    parsed = messages.withColumn("parsed", F.try_parse_json(F.col("data").cast("string")))
    other = F.parse_json(F.to_json(F.struct(F.base64("data").alias("base64"))))
    readable = F.coalesce(F.try_variant_get("parsed", "$.type", "string"), F.lit("")) != ""
    reported_of = partial(in_document, F.col("document"))
    reported = parsed.withColumn("document", F.when(readable, F.col("parsed")).otherwise(other)).select(
        F.lit(fleet).alias("fleet"),
        F.col("time").alias("taken"),
        F.lit(account).alias("captured_account"),
        F.col("subject"),
        F.col("seq"),
        *(converted(reported_of(field), field).alias(field.name) for field in FIELDS),
        rest(F.col("document"), FIELDS, reported_of).alias("extra"),
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


def _publish(lake: Lake, run: str, new: DataFrame, done: Read) -> None:
    """Write the hours of the rows with those that they have, and let them point to the run."""
    reported = new.groupBy(F.date_trunc("hour", "taken").cast("bigint").alias("hour")).agg(
        F.count("*").alias("rows"), F.count_if(F.col("kind") == UNREADABLE).alias("unreadable")
    )
    counts = {datetime.fromtimestamp(row["hour"], timezone.utc): row for row in reported.collect()}
    done.rows += sum(row["rows"] for row in counts.values())
    done.unreadable += sum(row["unreadable"] for row in counts.values())
    if not counts:
        return
    before = lake.read(LAYER, TABLE, sorted(counts))
    lake.write(LAYER, TABLE, run, unique(new if before is None else before.unionByName(new)))
    for hour in sorted(counts):
        lake.publish(f"{LAYER}/{TABLE}", hour, run, [], 0)
    done.hours += len(counts)
