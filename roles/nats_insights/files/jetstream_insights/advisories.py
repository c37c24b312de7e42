# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that makes the silver table `advisories` of the streams that capture them, going on where it was by their sequences."""

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
from jetstream_insights.messages import Connection, SourceError, state_of
from jetstream_insights.silver import ADVISORY
from jetstream_insights.source import JetStreamSource, Settings

LAYER, TABLE = "silver", "advisories"
_TABLE = f"{LAYER}/{TABLE}"
#: How the runs are called that hold what was read, until it is in the table.
_NEW = "-new"
#: A file for each stream: another job may read others.
_POSITIONS = f"{_TABLE}/_positions"

#: What a row's advisory is called when it is none.
UNREADABLE = "unreadable"


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

    What was read is written apart first. Then each hour that gets rows is rewritten with those that it has, and last of all the
    positions are replaced. Whoever is killed in between reads the same messages again, and a row is known by its advisory's id.
    """
    done = Read()
    portions = [_portion(capture, _position(lake, capture), done, say) for capture in captures]
    wanted = [portion for portion in portions if portion.first <= portion.last]
    if wanted:
        lake.spark.dataSource.register(JetStreamSource)
        frames = [
            rows_of(_messages(lake, portion), portion.capture.fleet, portion.capture.account) for portion in wanted
        ]
        new = lake.write(LAYER, TABLE, f"{new_run()}{_NEW}", reduce(DataFrame.unionByName, frames), marked=True)
        _publish(lake, new, done)
        say(f"{done.rows} advisories in {done.hours} hours")
    for portion in portions:
        position = {"stream": portion.capture.key, "created": portion.created, "sequence": portion.last}
        lake.files.replace_text(_file(portion.capture), json.dumps(position))
    return done


def _file(capture: Capture) -> str:
    """Return where a capture's position is; names of accounts and fleets may hold anything."""
    return f"{_POSITIONS}/{hashlib.sha256(capture.key.encode()).hexdigest()[:32]}.json"


def _position(lake: Lake, capture: Capture) -> dict[str, Any]:
    """Return up to where a capture was read; empty for not at all."""
    name = _file(capture)
    return dict(json.loads(lake.files.read_text(name))) if lake.files.exists(name) else {}


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
        *(converted(reported_of(field), field).alias(field.name) for field in ADVISORY),
        rest(F.col("document"), ADVISORY, reported_of).alias("extra"),
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
    """Take the rows into the hours that they are of."""
    reported = new.groupBy(F.date_trunc("hour", "taken").cast("bigint").alias("hour")).agg(
        F.count("*").alias("rows"), F.count_if(F.col("kind") == UNREADABLE).alias("unreadable")
    )
    counts = {datetime.fromtimestamp(row["hour"], timezone.utc): row for row in reported.collect()}
    done.rows += sum(row["rows"] for row in counts.values())
    done.unreadable += sum(row["unreadable"] for row in counts.values())
    done.hours += len(counts)
    # Another job may replace a pointer at the same time. Both have written their rows before and look again afterwards, so that
    # whoever comes last takes in those of both.
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
    """Return of the hours that have not all rows that were written for them what they lack: the folders of runs."""
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
