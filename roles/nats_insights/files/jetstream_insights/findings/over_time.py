# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Aggregates of streams, consumers and Raft groups over a period: of their rows, or of the stored aggregates of its hours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import ORIGIN, Field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jetstream_insights.fields import with_fields
from jetstream_insights.keys import CLUSTER, CONSUMER, SAME, SNAPSHOT, STREAM
from jetstream_insights.times import seconds


class Over(NamedTuple):
    """An aggregate over a period: `from_rows`, or `from_hours` over the columns `kept` for each hour."""

    from_rows: Column
    kept: Mapping[str, Column]
    from_hours: Column


def _by(aggregate: Callable[[Column], Column], name: str, value: Column, merge: Callable[[str], Column]) -> Over:
    return Over(aggregate(value), {name: aggregate(value)}, merge(name))


def _count(name: str, value: Column) -> dict[str, Over]:
    """Return a counter; `value` is a counting aggregate."""
    return {name: Over(value, {name: value}, F.sum(name))}


def _most(name: str, value: str) -> dict[str, Over]:
    return _by_most(name, F.col(value))


def _by_most(name: str, value: Column) -> dict[str, Over]:
    return {name: _by(F.max, name, value, F.max)}


def _least(name: str, value: Column) -> dict[str, Over]:
    return {name: _by(F.min, name, value, F.min)}


def _any(name: str, value: Column) -> dict[str, Over]:
    return {name: _by(F.bool_or, name, value, F.bool_or)}


def _creations() -> dict[str, Over]:
    """Return the number of creations of an asset. Servers that recovered a consumer of 2.10 report times that differ by some
    milliseconds: times within a second count as the same."""

    def counted(times: Column) -> Column:
        moments = F.array_sort(F.array_distinct(F.transform(times, F.unix_micros)))
        return F.aggregate(
            moments,
            F.struct(F.lit(0).alias("many"), F.lit(None).cast("bigint").alias("last")),
            lambda sum_, time: F.struct(
                (sum_["many"] + F.coalesce((time - sum_["last"] > SAME).cast("int"), F.lit(1))).alias("many"),
                time.alias("last"),
            ),
            lambda sum_: sum_["many"],
        )

    every = F.collect_set("created")
    return {"creations": Over(counted(every), {"creations": every}, counted(F.flatten(F.collect_list("creations"))))}


#: Configurations whose messages leave a stream in other ways than through its limits, a purge or a delete.
_OTHER_REMOVALS = r"""'"max_msgs_per_subject": ?[1-9]|"allow_(?:msg_ttl|rollup_hdrs|msg_schedules)": ?true'"""
_BY_LIMITS = "coalesce(retention, 'limits') = 'limits'"
_NO_LIMIT = "coalesce(max_age, 0) <= 0 AND coalesce(max_msgs, 0) <= 0 AND coalesce(max_bytes, 0) <= 0"


#: How many messages a stream no longer has. A mirror skips the sequences of messages that it does not receive.
_REMOVED = r"""CASE WHEN NOT coalesce(config RLIKE '"mirror": ?[{]', false) THEN last_seq - messages END"""


def _read_unlimited(value: str) -> Column:
    """Return a value of a stream without limits, as its leader reported it."""
    others = f"coalesce(config RLIKE {_OTHER_REMOVALS}, false)"
    return F.expr(f"CASE WHEN leader IS NOT NULL AND {_NO_LIMIT} AND {_BY_LIMITS} AND NOT {others} THEN {value} END")


#: The state and the limits of a stream, with their types in stored hours.
_STATE = {
    **dict.fromkeys(("captured", "messages", "bytes", "first_seq", "last_seq", "max_msgs", "max_bytes"), "bigint"),
    **dict.fromkeys(("taken", "created", "first_ts", "last_ts"), "timestamp"),
    "max_age": "double",
    "discard": "string",
}
_STATES = f"array<struct<{', '.join(f'{name}: {type_}' for name, type_ in _STATE.items())}>>"
#: Seconds by which the clocks of the servers and the collector may differ, and the bytes of the largest message: servers warn
#: about a larger max_payload.
_CLOCKS, _LARGEST = 600, 8 << 20
#: Whether messages left a stream between the states `a` and `b` before a limit was reached. The newest of them is the message
#: before b.first_seq. Unless they were purged or deleted, all newer messages are still stored and show whether a limit was
#: reached, and the oldest that `a` stored, or its newest if all of them left, was older than max_age.
_LEFT_EARLY = f"""
    a.messages > 0 AND b.first_seq > a.first_seq AND abs(unix_micros(b.created) - unix_micros(a.created)) <= {SAME}
    AND struct(a.max_age, a.max_msgs, a.max_bytes, a.discard) <=> struct(b.max_age, b.max_msgs, b.max_bytes, b.discard)
    AND (coalesce(b.max_age, 0) <= 0 OR unix_seconds(b.taken) + {_CLOCKS} - b.max_age
        < unix_seconds(CASE WHEN b.first_seq > a.last_seq THEN a.last_ts ELSE a.first_ts END))
    AND (coalesce(b.discard = 'new', false)
        OR (coalesce(b.max_msgs, 0) <= 0 OR b.last_seq - b.first_seq + 1 < b.max_msgs)
        AND (coalesce(b.max_bytes, 0) <= 0 OR b.bytes + {_LARGEST} <= b.max_bytes))
"""
#: How many `states` are compared, and the largest share of a stream's messages that left it early between two of them.
_EARLY = f"""named_struct('states', size(states), 'most', array_max(zip_with(states, slice(states, 2, size(states)), (a, b) ->
    CASE WHEN {_LEFT_EARLY} THEN struct(
        (least(b.first_seq, a.last_seq + 1) - a.first_seq) / (a.last_seq - a.first_seq + 1) AS share,
        least(b.first_seq, a.last_seq + 1) - a.first_seq AS messages,
        a.taken AS begin,
        b.taken AS until) END)))"""


def _compared(states: str) -> Column:
    """Return `_EARLY` of some states, given as Spark SQL, in the order of their capture."""
    return F.expr(f"transform(array(sort_array(array_distinct({states}))), states -> {_EARLY})[0]")


def _early() -> dict[str, Over]:
    """Return the messages that left a stream `early`, between the first and last states of its hours that a leader reported."""
    limited = f"leader IS NOT NULL AND NOT ({_NO_LIMIT}) AND {_BY_LIMITS}"
    columns = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in {**_STATE, "config": "string"}.items())
    captured = f"CASE WHEN {limited} THEN captured END"
    ends = f"array(min_by(struct({columns}), {captured}), max_by(struct({columns}), {captured}))"
    # In rows, a state is the first or last one of its hour unless the hour has both an earlier and a later one.
    same_hour = "date_trunc('hour', other.taken) = date_trunc('hour', state.taken)"
    inner = " AND ".join(f"exists(every, other -> {same_hour} AND other.captured {way} state.captured)" for way in "<>")
    every = f"collect_list(CASE WHEN {limited} THEN struct({columns}) END)"
    hourly_ends = f"transform(array({every}), every -> filter(every, state -> NOT ({inner})))[0]"
    return {
        "early": Over(
            _compared(_only_by_limits(hourly_ends)),
            {"limited_states": F.expr(_only_by_limits(ends))},
            _compared("flatten(collect_list(limited_states))"),
        )
    }


def _only_by_limits(states: str) -> str:
    """Return the states of streams without other removals, without their configuration. Few states are compared: reading the
    configuration of each row would take longer."""
    kept = ", ".join(f"state.{name} AS {name}" for name in _STATE)
    only = f"filter({states}, state -> state IS NOT NULL AND NOT coalesce(state.config RLIKE {_OTHER_REMOVALS}, false))"
    return f"transform({only}, state -> struct({kept}))"


def _first(value: str) -> dict[str, Over]:
    name, first = f"{value}_first", F.min_by(value, "taken")
    return {name: Over(first, {name: first}, F.min_by(name, "begin"))}


def _last(value: str, name: str = "") -> dict[str, Over]:
    name, last = name or f"{value}_last", F.max_by(value, "taken")
    return {name: Over(last, {name: last}, F.max_by(name, "taken"))}


#: Number of snapshots that must show a decrease. The order of one may be wrong, and one server may report old state.
_TWICE = 2
_POINTS = "array<struct<captured: bigint, value: bigint>>"


def _led(name: str, value: str) -> dict[str, Over]:
    """Return the highest value of a column that a leader reported, and the higher one of its last two: without a leader, the
    value may come from any server. The snapshots are in the order of their capture, not of the collector's clock."""
    most, last, newest = f"{name}_most", f"{name}_last", f"{name}_newest"
    reported = F.when(F.col("leader").isNotNull() & F.col(value).isNotNull(), F.col(value))
    highest = F.max(reported)
    point = F.struct(F.col("captured").alias("captured"), reported.alias("value"))
    # F.max_by returns several rows only since PySpark 4.2.
    points = F.slice(F.sort_array(F.collect_list(F.when(reported.isNotNull(), point)), False), 1, _TWICE)
    all_points = F.slice(F.sort_array(F.flatten(F.collect_list(newest)), False), 1, _TWICE)

    def higher(values: Column) -> Column:
        return F.array_max(F.transform(values, lambda point: point["value"]))

    return {
        most: Over(highest, {most: highest}, F.max(most)),
        last: Over(higher(points), {newest: points}, higher(all_points)),
    }


#: The largest decrease of a value at the end of an hour, from the highest value so far to the higher one of the last two.
#: `hours`: for each hour its highest value and its last two points.
_FALL = f"""aggregate(array_sort(hours),
    named_struct('most', CAST(NULL AS BIGINT), 'newest', CAST(array() AS {{points}}),
        'fall', CAST(NULL AS STRUCT<messages: BIGINT, before: BIGINT, after: BIGINT>)),
    (sum, hour) -> transform(array(struct(
            greatest(sum.most, hour.most) AS most,
            slice(sort_array(concat(sum.newest, hour.newest), false), 1, {_TWICE}) AS newest)),
        now -> named_struct('most', now.most, 'newest', now.newest, 'fall', greatest(sum.fall,
            transform(array(array_max(now.newest.value)), after ->
                named_struct('messages', now.most - after, 'before', now.most, 'after', after))[0])))[0],
    sum -> sum.fall)"""


def _fall(name: str, value: str) -> dict[str, Over]:
    """Return the largest `fall` of a value that a leader reported, from the columns that `_led` stores. At the end of each hour
    the last two snapshots must show it, so the result does not depend on when the job runs: a stream that has lost messages
    soon exceeds its former sequence again."""
    reported = f"leader IS NOT NULL AND {value} IS NOT NULL"
    point = f"struct(captured, CAST({value} AS BIGINT) AS value, date_trunc('hour', taken) AS hour)"
    every = f"collect_list(CASE WHEN {reported} THEN {point} END)"
    newest = f"slice(sort_array(transform(own, point -> struct(point.captured, point.value)), false), 1, {_TWICE})"
    hour = f"struct(array_max(own.captured) AS until, array_max(own.value) AS most, {newest} AS newest)"
    own = "filter(every, point -> point.hour = hour)"
    hours = f"transform(array_distinct(every.hour), hour -> transform(array({own}), own -> {hour})[0])"
    fall = _FALL.format(points=_POINTS)
    stored = f"struct(array_max({name}_newest.captured) AS until, {name}_most AS most, {name}_newest AS newest)"
    all_hours = f"collect_list(CASE WHEN {name}_most IS NOT NULL THEN {stored} END)"
    return {
        f"{name}_fall": Over(
            F.expr(f"transform(array({every}), every -> transform(array({hours}), hours -> {fall})[0])[0]"),
            {},
            F.expr(f"transform(array({all_hours}), hours -> {fall})[0]"),
        )
    }


def _span() -> dict[str, Over]:
    """Return the columns that every view of a period has, see views._period."""
    kept = {"begin": F.min("taken"), "taken": F.max("taken")}
    span = Over(_seconds_since("taken"), kept, _seconds_since("begin"))
    return {**_count("samples", F.count(F.lit(1))), "seconds": span}


def _seconds_since(begin: str) -> Column:
    """Return the seconds from the first `begin` to the last snapshot."""
    return seconds(F.min(begin), F.max("taken"))


def _leaderless() -> dict[str, Over]:
    """Return the number of snapshots in which no answering server led or was named as leader. Servers are queried one after the
    other: during an election, one may no longer lead while the next one does not lead yet."""
    views = F.coalesce("views", F.array().cast("array<string>"))
    named = F.exists(views, lambda view: F.array_contains("hosts", view))
    return _count("leaderless", F.count_if((F.size("leaders") == 0) & ~named))


def _stored() -> dict[str, Over]:
    """Return the messages per second that a stream stored."""
    ends = {"seq_first": F.min_by("last_seq", "taken"), "seq_last": F.max_by("last_seq", "taken")}

    def rate(first: Column, last: Column, begin: str) -> Column:
        return F.try_divide(last - first, _seconds_since(begin))

    from_hours = rate(F.min_by("seq_first", "begin"), F.max_by("seq_last", "taken"), "begin")
    return {"stored": Over(rate(ends["seq_first"], ends["seq_last"], "taken"), ends, from_hours)}


def _aggregate_streams() -> dict[str, Over]:
    return {
        **_span(),
        **_stored(),
        **_leaderless(),
        **_last("metadata", "metadata"),
        **_led("last_seq", "last_seq"),
        **_fall("last_seq", "last_seq"),
        **_least("last_seq_least", F.when(F.col("leader").isNotNull(), F.col("last_seq"))),
        **_last("messages"),
        **_last("max_age"),
        **_last("retention"),
        **_most("consumers_most", "consumer_count"),
        **_creations(),
        **_least("kept_from_least", _read_unlimited("first_seq")),
        **_by_most("kept_from_most", _read_unlimited("first_seq")),
        **_least("removed_least", _read_unlimited(_REMOVED)),
        **_by_most("removed_most", _read_unlimited(_REMOVED)),
        **_early(),
        **_count("moving", F.count_if(F.expr("desired IS NOT NULL OR size(members) > num_replicas"))),
    }


def _aggregate_consumers() -> dict[str, Over]:
    asked = F.coalesce(F.col("num_waiting") > 0, F.lit(False)) | F.coalesce("push_bound", F.lit(False))
    return {
        **_span(),
        **_leaderless(),
        **_last("metadata", "metadata"),
        **_first("ack_floor_stream_seq"),
        **_last("ack_floor_stream_seq"),
        **_first("delivered_stream_seq"),
        **_last("delivered_stream_seq"),
        **_led("ack_floor_led", "ack_floor_stream_seq"),
        **_least("num_redelivered_least", F.col("num_redelivered")),
        **_most("num_waiting_most", "num_waiting"),
        **_most("num_pending_most", "num_pending"),
        **_any("bound", F.col("push_bound")),
        **_any("paused", F.col("paused")),
        **_most("ack_policy", "ack_policy"),
        **_creations(),
        **_any("durable", F.col("durable")),
        **_any("asked", asked),
    }


def _aggregate_raft_groups() -> dict[str, Over]:
    ends = {"least_term": F.min("term"), "most_term": F.max("term")}
    unapplied = F.col("committed") - F.col("applied")
    return {
        **_span(),
        **_first("wal_bytes"),
        **_last("wal_bytes"),
        "terms": Over(F.max("term") - F.min("term"), ends, F.max("most_term") - F.min("least_term")),
        **_least("unapplied_least", unapplied),
        **_count("unapplied_reported", F.count(unapplied)),
        **_least("wal_bytes_least", F.col("wal_bytes")),
        **_most("wal_bytes_most", "wal_bytes"),
        **_count("wal_reported", F.count("wal_bytes")),
    }


#: By silver table: the key of a row, and its aggregates.
_ABOUT = {
    "streams": (STREAM, _aggregate_streams),
    "consumers": (CONSUMER, _aggregate_consumers),
    "raft_groups": ((*CLUSTER, "server", "account", "raft_group"), _aggregate_raft_groups),
}
_COMMON_COLUMNS = "fleet string, domain string, account string, taken timestamp, begin timestamp, samples bigint"
#: The stored columns of an hour, as Spark SQL schemas.
KEPT = {
    "streams": f"{_COMMON_COLUMNS}, stream string, leaderless bigint, metadata map<string, string>, last_seq_most bigint, "
    f"last_seq_newest {_POINTS}, last_seq_least bigint, messages_last bigint, max_age_last double, "
    "retention_last string, consumers_most bigint, "
    "creations array<timestamp>, kept_from_least bigint, kept_from_most bigint, "
    "removed_least bigint, removed_most bigint, "
    f"limited_states {_STATES}, "
    "moving bigint, seq_first bigint, seq_last bigint",
    "consumers": f"{_COMMON_COLUMNS}, stream string, consumer string, leaderless bigint, metadata map<string, string>, "
    "ack_floor_stream_seq_first bigint, ack_floor_stream_seq_last bigint, delivered_stream_seq_first bigint, "
    f"delivered_stream_seq_last bigint, ack_floor_led_most bigint, ack_floor_led_newest {_POINTS}, "
    "num_redelivered_least bigint, num_waiting_most bigint, num_pending_most bigint, "
    "bound boolean, paused boolean, ack_policy string, creations array<timestamp>, durable boolean, asked boolean",
    "raft_groups": f"{_COMMON_COLUMNS}, cluster string, server string, raft_group string, wal_bytes_first bigint, "
    "wal_bytes_last bigint, least_term bigint, most_term bigint, unapplied_least bigint, unapplied_reported bigint, "
    "wal_bytes_least bigint, wal_bytes_most bigint, wal_reported bigint",
    "origins": "fleet string, snapshot string, domain string, account string, stream string, taken timestamp, "
    "metadata map<string, string>, last_seq bigint, last_ts timestamp, mirrored string, replicates int, "
    f"origins array<{ORIGIN}>",
}
#: By stored hourly table: its silver table.
STORED_TABLES = {**{table: table for table in _ABOUT}, "origins": "stream_replicas"}

_ORIGINS = (
    Field("mirrored", "string", "mirror.name"),
    Field("sourced", "array<struct<name:string>>", "sources"),
)


def with_origins(replicas: DataFrame) -> DataFrame:
    """Add `origins`: the mirrored or sourced streams with their lag. `replicates`: the configured number of origins."""
    none = F.array().cast(f"array<{ORIGIN}>")
    own = F.when(F.col("mirror").isNotNull(), F.array("mirror")).otherwise(none)
    wanted = F.coalesce(F.size("sourced"), F.lit(0)) + F.col("mirrored").isNotNull().cast("int")
    origins = {"replicates": wanted, "origins": F.concat(own, F.coalesce("sources", none))}
    return with_fields(replicas, "config", _ORIGINS).withColumns(origins)


def _replicating(replicas: DataFrame) -> DataFrame:
    """Return the rows of the leaders of streams that mirror or source others. Few do, and parsing a configuration takes longer
    than finding that it names no origin."""
    named = (F.col("config").contains(f'"{key}"') for key in ("mirror", "sources"))
    some = F.col("is_leader") & reduce(Column.__or__, named)
    columns = ("metadata", "last_seq", "last_ts", "mirrored", "replicates", "origins")
    return with_origins(replicas.where(some)).where("replicates > 0").select(*SNAPSHOT, *STREAM, *columns)


def origins(tables: Mapping[str, DataFrame]) -> DataFrame:
    """Return the reports about origins from the leaders of streams that have some: from stored hours if available."""
    from_hours = tables.get(name_of_hours("origins"))
    return _replicating(tables["stream_replicas"]) if from_hours is None else from_hours


def name_of_hours(table: str) -> str:
    """Return the name under which views find the stored hours of a table."""
    return f"{table} of hours"


def _in_order(rows: DataFrame, snapshots: DataFrame) -> DataFrame:
    """Add the place of a row's snapshot in the order of capture, as a growing number `captured` (nats_snapshot). Snapshots of
    older collectors and of archives have only their time."""
    captured = F.coalesce("sequence", F.unix_micros("taken")).alias("captured")
    return rows.join(F.broadcast(snapshots.select("fleet", "snapshot", captured)), ["fleet", "snapshot"])


def kept(table: str, rows: DataFrame, snapshots: DataFrame) -> DataFrame:
    """Return the stored rows of hours, from the rows of their silver table."""
    if table == "origins":
        return _replicating(rows)
    key, about = _ABOUT[table]
    rows = _in_order(rows, snapshots)
    columns = [column.alias(name) for over in about().values() for name, column in over.kept.items()]
    return rows.groupBy("fleet", *key, F.date_trunc("hour", "taken").alias("of")).agg(*columns).drop("of")


def over_time(tables: Mapping[str, DataFrame], table: str) -> DataFrame:
    """Return a row for each asset: from stored hours if available, otherwise from all rows."""
    key, about = _ABOUT[table]
    from_hours = tables.get(name_of_hours(table))
    if from_hours is None:
        columns = [over.from_rows.alias(name) for name, over in about().items()]
        return _in_order(tables[table], tables["snapshots"]).groupBy("fleet", *key).agg(*columns)
    return from_hours.groupBy("fleet", *key).agg(*(over.from_hours.alias(name) for name, over in about().items()))
