# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leaders of Raft groups over time: intervals of equal snapshots, leader changes, flapping, and storms that move many groups.

A storm is a single event: at least 5 groups (a setting) leave a server between two snapshots, and further ones within 5
minutes. Elections in a storm or in a maintenance window count in `elections`, but not in `counted` and the columns derived
from it. A group with one replica has no elections. `flap` is sₙ = sₙ₋₁ · 2^(−Δt / 30 min) + 1.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import (
    BLOCK,
    SNAPSHOT_KEY,
    GoldSettings,
    another_life,
    behind,
    bit,
    group_state,
    in_blocks,
    in_maintenance,
    spans,
)
from jetstream_insights.gold.report import meta_groups, moments, with_absent
from jetstream_insights.gold.tables import GROUP_KEY, GoldTable
from jetstream_insights.keys import CONSUMER, DOMAIN, STREAM
from jetstream_insights.times import seconds

_STRINGS = "array<string>"
_HALF_LIFE = 1800.0
_TEN_MINUTES = 600.0

#: Maximum number of seconds between two snapshots of a storm: moving all groups may take several snapshots.
_STORM_GAP = 300.0


def groups(servers: DataFrame, meta_peers: DataFrame, streams: DataFrame, consumers: DataFrame) -> DataFrame:
    """Return a row for each Raft group in each snapshot: the meta group of each domain, streams, consumers."""
    nobody = F.lit("").alias
    common = ("leader", "members", "hosts", "peers", "quorum")
    meta = meta_groups(servers, meta_peers).select(
        *SNAPSHOT_KEY, "taken", F.lit("meta").alias("kind"), *DOMAIN, nobody("account"), nobody("stream"), nobody("consumer"),
        nobody("cluster"), F.lit("_meta_").alias("raft_group"), F.lit(None).cast("timestamp").alias("created"),
        F.lit(None).cast("timestamp").alias("leader_since"), F.col("size").cast("int").alias("num_replicas"), *common,
    )  # fmt: skip
    asset = ("cluster", "raft_group", "created", "leader_since", "num_replicas", *common)
    stream_groups = streams.select(
        *SNAPSHOT_KEY, "taken", F.lit("stream").alias("kind"), *STREAM, nobody("consumer"), *asset
    )
    consumer_groups = consumers.select(*SNAPSHOT_KEY, "taken", F.lit("consumer").alias("kind"), *CONSUMER, *asset)
    return meta.unionByName(stream_groups).unionByName(consumer_groups)


def runs(
    snapshots: DataFrame,
    servers: DataFrame,
    meta_peers: DataFrame,
    streams: DataFrame,
    consumers: DataFrame,
    settings: GoldSettings,
) -> DataFrame:
    """Return the intervals of each Raft group in an hour, with their first and last snapshot."""
    all_snapshots = in_blocks(moments(with_absent(snapshots, servers, meta_peers)), settings.longest_gap)
    states = (
        groups(servers, meta_peers, streams, consumers)
        .join(F.broadcast(all_snapshots.select(*SNAPSHOT_KEY, "absent", *BLOCK, "place")), on=SNAPSHOT_KEY)
        .withColumn("behind", behind(settings))
        .withColumns({"state": group_state(), "num_replicas": F.col("num_replicas").cast("int")})
    )
    reported = ("leader", "state", "behind", "members", "num_replicas", "created")
    shown = [name for name in _RUN if name not in ("fleet", *GROUP_KEY, "begin", "end", "snapshots")]
    # Most groups report the same state for the entire hour, so only one row and one bit for each snapshot are shuffled.
    alike = states.groupBy("fleet", *GROUP_KEY, *BLOCK, *shown).agg(F.bit_or(bit()).alias("bits"))
    blocks = all_snapshots.groupBy("fleet", *BLOCK).agg(
        F.map_from_entries(F.collect_list(F.struct("place", F.struct("number", "taken", "snapshot")))).alias("at")
    )
    spanned = alike.select("*", F.inline(spans(F.col("bits")))).join(F.broadcast(blocks), on=["fleet", *BLOCK])
    first, last = F.col("at")[F.col("first")], F.col("at")[F.col("last")]
    intervals = spanned.withColumns({
        "alike": F.xxhash64(*reported, F.unix_seconds("leader_since")),
        "begin": first["taken"],
        "end": last["taken"],
        "snapshots": F.col("last") - F.col("first") + 1,
        "from": first["number"],
        "to": last["number"],
        "first_snapshot": first["snapshot"],
        "last_snapshot": last["snapshot"],
    })  # fmt: skip
    return _joined(intervals, settings, "whole_hour").withColumn("taken", F.col("begin"))


def timeline(
    moment_rows: DataFrame, hourly_rows: DataFrame, past: DataFrame, day: Column, settings: GoldSettings
) -> DataFrame:
    """Return the intervals of each Raft group: consecutive snapshots with the same leader, state and members.

    A group without a report has no leader if all servers that reported it are unavailable or have JetStream disabled. Its state
    is unknown if they answer but return no complete JSZ. Otherwise it was deleted, unless a later snapshot shows it again.
    `past`: the timeline of the previous day, where this one begins.
    """
    numbered = hourly_rows
    for number, snapshot in (("from", "first_snapshot"), ("to", "last_snapshot")):
        numbers = moment_rows.select("fleet", F.col("snapshot").alias(snapshot), F.col("number").alias(number))
        numbered = numbered.join(F.broadcast(numbers), on=["fleet", snapshot])
    carried = last_runs(past).select(*_RUN, F.lit(0).alias("from"), F.lit(0).alias("to"))
    every = _joined(numbered, settings).select(*_RUN, "from", "to").unionByName(carried)
    group = Window.partitionBy("fleet", *GROUP_KEY).orderBy("begin")
    before = F.lag("end").over(group)
    near = seconds(before, F.col("begin")) <= F.lit(settings.longest_gap)
    everything = _with_unseen(every, moment_rows).withColumn("before", F.when(near, before)).where(F.col("from") > 0)
    return everything.withColumn("run", F.row_number().over(group)).withColumn("day", day)


#: Columns of an interval, apart from `from` and `to`: the numbers of its first and last snapshot in the day.
_RUN = (
    "fleet", *GROUP_KEY, "cluster", "raft_group", "created", "begin", "end", "snapshots", "leader", "leader_since", "state",
    "behind", "members", "hosts", "num_replicas",
)  # fmt: skip


def last_runs(timeline_rows: DataFrame) -> DataFrame:
    """Return the last interval of each group in a timeline."""
    names = [name for name in timeline_rows.columns if name not in ("fleet", *GROUP_KEY)]
    latest = timeline_rows.groupBy("fleet", *GROUP_KEY).agg(F.max_by(F.struct(*names), "begin").alias("of"))
    return latest.select("fleet", *GROUP_KEY, "of.*")


def _joined(interval_rows: DataFrame, settings: GoldSettings, *within: str) -> DataFrame:
    """Join consecutive intervals that are equal, within the same values of the columns `within`."""
    key = ["fleet", *GROUP_KEY, *within]
    group = Window.partitionBy(*key).orderBy("from", "first_snapshot")
    goes_on = (
        (F.lag("alike").over(group) == F.col("alike"))
        & (F.lag("to").over(group) == F.col("from") - 1)
        & (seconds(F.lag("end").over(group), F.col("begin")) <= F.lit(settings.longest_gap))
    )
    numbered = interval_rows.withColumn("begins", F.when(F.coalesce(goes_on, F.lit(False)), 0).otherwise(1)).withColumn(
        "run", F.sum("begins").over(group.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    )
    first = [name for name in (*_RUN, "alike", "first_snapshot") if name not in (*key, "begin", "end", "snapshots")]
    grouped = numbered.groupBy(*key, "run").agg(
        F.min("begin").alias("begin"),
        F.max("end").alias("end"),
        F.sum("snapshots").cast("int").alias("snapshots"),
        F.min("from").alias("from"),
        F.max("to").alias("to"),
        F.min_by(F.struct(*first), "from").alias("of"),
        F.max_by("last_snapshot", "to").alias("last_snapshot"),
    )
    return grouped.select(*(name for name in grouped.columns if name != "of"), "of.*")


def _with_unseen(runs: DataFrame, moment_rows: DataFrame) -> DataFrame:
    """Add intervals for snapshots without a report of a group that was not deleted. One pass, because intervals are expensive."""
    group = Window.partitionBy("fleet", *GROUP_KEY).orderBy("from")
    count = moment_rows.groupBy("fleet").agg(F.max("number").alias("count"))
    first = moment_rows.select(
        "fleet", F.col("number").alias("gap_from"), F.col("taken").alias("gap_begin"), "absent", "disabled", "silent"
    )
    last = moment_rows.select("fleet", F.col("number").alias("gap_to"), F.col("taken").alias("gap_end"))
    followed = (
        runs.withColumns({"next": F.lead("from").over(group), "next_created": F.lead("created").over(group)})
        .join(F.broadcast(count), on="fleet")
        .withColumns({"gap_from": F.col("to") + 1, "gap_to": F.coalesce(F.col("next") - 1, F.col("count"))})
        .join(F.broadcast(first), on=["fleet", "gap_from"], how="left")
        .join(F.broadcast(last), on=["fleet", "gap_to"], how="left")
    )
    unavailable = F.array_union("absent", F.coalesce("disabled", F.array().cast(_STRINGS)))
    away = F.size(F.array_except("hosts", unavailable)) == 0
    silent = F.size(F.array_except("hosts", "silent")) == 0
    same = F.col("next").isNotNull() & ~another_life(F.col("next_created"), F.col("created"))
    instead = {
        "begin": F.col("gap_begin"),
        "end": F.col("gap_end"),
        "snapshots": (F.col("gap_to") - F.col("gap_from") + 1).cast("int"),
        "leader": F.lit(None).cast("string"),
        "leader_since": F.lit(None).cast("timestamp"),
        "state": F.when(away, "no_leader").otherwise("unknown"),
        "behind": F.when(away, F.col("hosts")).otherwise(F.array().cast(_STRINGS)),
        "from": F.col("gap_from"),
        "to": F.col("gap_to"),
    }
    names = (*_RUN, "from", "to")
    seen = F.struct(*(F.col(name) for name in names))
    unseen = F.struct(*(instead.get(name, F.col(name)).alias(name) for name in names))
    gap = (F.col("gap_from") <= F.col("gap_to")) & (silent | same)
    return followed.select(F.explode(F.array_compact(F.array(seen, F.when(gap, unseen)))).alias("of")).select("of.*")


def departures(moment_rows: DataFrame, restarts: DataFrame) -> DataFrame:
    """Return for each server the snapshots in which it did not answer, or answered after a restart (`left`)."""
    away = moment_rows.select("fleet", F.explode("absent").alias("server"), "taken")
    return (
        away.unionByName(restarts.select("fleet", "server", "taken"))
        .groupBy("fleet", "server")
        .agg(F.collect_set("taken").alias("left"))
    )


def _with_storms(judged: DataFrame, settings: GoldSettings) -> DataFrame:
    """Add the storm to which each change of a leader belongs."""
    found = _storms(judged, settings).select(
        F.col("fleet").alias("of_fleet"), F.col("server").alias("of_server"), "storm", "begin", "end"
    )
    within = (
        (F.col("fleet") == F.col("of_fleet"))
        & (F.col("old_leader") == F.col("of_server"))
        & (F.col("taken") > F.col("begin"))
        & (F.col("taken") <= F.col("end"))
    )
    return judged.join(F.broadcast(found), on=within, how="left")


def leader_changes(
    timeline_rows: DataFrame,
    past: DataFrame,
    moment_rows: DataFrame,
    restarts: DataFrame,
    settings: GoldSettings,
) -> DataFrame:
    """Return the changes of leaders, each with its storm. A group with one replica has no elections, and a recreated asset has a
    new group."""
    shared = [name for name in timeline_rows.columns if name != "day"]
    runs = timeline_rows.select(*shared).unionByName(last_runs(past).select(*shared).withColumn("run", F.lit(0)))
    every = Window.partitionBy("fleet", *GROUP_KEY).orderBy("run")
    again = another_life(F.col("created"), F.lag("created").over(every))
    lives = F.sum("again").over(every.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    runs = runs.withColumn("again", again.cast("int")).withColumn("life", lives)
    group = Window.partitionBy("fleet", *GROUP_KEY, "life").orderBy("run")
    lost = F.max(F.col("state") == "no_leader").over(group.rowsBetween(-1, -1))
    led = runs.withColumn("lost", F.coalesce(lost, F.lit(False))).where(F.col("leader").isNotNull())
    old = {name: F.lag(name).over(group) for name in ("leader", "end", "leader_since", "begin")}
    since = F.col("leader_since") > F.col("old_leader_since") + F.expr("INTERVAL 1 SECOND")
    another = F.col("leader") != F.col("old_leader")
    elected = another | ((F.col("num_replicas") > 1) & (F.col("lost") | F.coalesce(since, F.lit(False))))
    stint = F.sum(F.when(F.col("elected"), 1).otherwise(0)).over(
        group.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    marked = (
        led.withColumns({f"old_{name}": value for name, value in old.items()})
        .withColumn("elected", F.coalesce(elected, F.lit(False)))
        .withColumn("stint", stint)
    )
    whole = Window.partitionBy("fleet", *GROUP_KEY, "life", "stint")
    began = marked.withColumn("stint_begin", F.min("begin").over(whole))
    changes = (
        began.withColumn("old_stint_begin", F.lag("stint_begin").over(group))
        .where(F.col("elected") & (F.col("run") > 0))
        .select(
            "fleet", F.to_date("begin").alias("day"), *GROUP_KEY, "raft_group", F.col("begin").alias("taken"),
            F.col("old_end").alias("before"), "old_leader", F.col("leader").alias("new_leader"),
            F.col("lost").alias("without_leader"),
            seconds(F.coalesce("old_leader_since", "old_stint_begin"), F.col("begin")).alias("dwell"),
        )
    )  # fmt: skip
    left = departures(moment_rows, restarts).withColumnRenamed("server", "old_leader")
    gone = F.exists("left", lambda taken: (taken > F.col("before")) & (taken <= F.col("taken")))
    judged = (
        changes.join(F.broadcast(left), on=["fleet", "old_leader"], how="left")
        .withColumn("old_leader_left", F.coalesce(gone, F.lit(False)))
        .drop("left")
        .withColumn(
            "maintenance",
            in_maintenance(settings, F.col("before"), F.col("taken"), F.array("old_leader", "new_leader")),
        )
    )
    return _with_storms(judged, settings)


def _storms(changes: DataFrame, settings: GoldSettings) -> DataFrame:
    """Return the periods in which at least `storm_groups` groups left a server between two snapshots."""
    left = (
        changes.where(F.col("old_leader") != F.col("new_leader"))
        .groupBy("fleet", F.col("old_leader").alias("server"), "taken")
        .agg(F.min("before").alias("before"), F.count_distinct(F.struct(*GROUP_KEY)).alias("many"))
    )
    server = Window.partitionBy("fleet", "server").orderBy("taken")
    apart = seconds(F.lag("taken").over(server), F.col("before")) > F.lit(_STORM_GAP)
    begins = F.when(F.coalesce(apart, F.lit(True)), 1).otherwise(0)
    numbered = (
        left.where(F.col("many") >= settings.storm_groups)
        .withColumn("begins", begins)
        .withColumn("number", F.sum("begins").over(server.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
    )
    merged = numbered.groupBy("fleet", "server", "number").agg(
        F.min("before").alias("begin"), F.max("taken").alias("end")
    )
    name = F.concat_ws("@", "server", F.date_format("begin", "yyyy-MM-dd'T'HH:mm:ss'Z'"))
    return merged.select("fleet", "server", name.alias("storm"), "begin", "end")


def storms(changes: DataFrame, restarts: DataFrame, settings: GoldSettings) -> DataFrame:
    """Return each storm as one event, with the server's own restart or upgrade as the cause."""
    grouped = (
        changes.where(F.col("storm").isNotNull())
        .groupBy("fleet", "day", "storm", F.col("old_leader").alias("server"))
        .agg(
            F.min("before").alias("begin"),
            F.max("taken").alias("end"),
            F.count_distinct(F.struct(*GROUP_KEY)).alias("groups"),
            *(
                F.count_distinct(F.when(F.col("kind") == kind, F.struct(*GROUP_KEY))).alias(name)
                for kind, name in (("stream", "streams"), ("consumer", "consumers"))
            ),
            F.max(F.col("kind") == "meta").alias("meta"),
            F.max("old_leader_left").alias("left"),
        )
    )
    starts = restarts.select(
        F.col("fleet").alias("of_fleet"),
        F.col("server").alias("of_server"),
        "before",
        "taken",
        F.when(F.col("upgraded"), F.col("version")).alias("newer"),
    )
    near = (
        (F.col("fleet") == F.col("of_fleet"))
        & (F.col("server") == F.col("of_server"))
        & (F.col("taken") > F.col("begin"))
        & (F.col("before") <= F.col("end"))
    )
    started = (
        grouped.join(F.broadcast(starts), on=near, how="left")
        .groupBy(*grouped.columns)
        .agg(F.max("newer").alias("version"), F.count("taken").alias("starts"))
    )
    cause = (
        F.when(F.col("version").isNotNull(), "upgrade")
        .when(F.col("starts") > 0, "restart")
        .when(F.col("left"), "missing")
        .otherwise("unknown")
    )
    return started.withColumns(
        {"cause": cause, "maintenance": in_maintenance(settings, F.col("begin"), F.col("end"), F.array("server"))}
    )


def leadership(timeline_rows: DataFrame, changes: DataFrame) -> DataFrame:
    """Return for each Raft group the number of leader changes and its flapping score."""
    key = ["fleet", "day", *GROUP_KEY]
    seen = timeline_rows.groupBy(*key).agg(
        F.max_by("cluster", "run").alias("cluster"),
        F.max_by("raft_group", "run").alias("raft_group"),
        F.max_by("leader", F.when(F.col("leader").isNotNull(), F.col("run"))).alias("leader"),
        F.sort_array(F.collect_set("leader")).alias("leaders"),
        F.sum("snapshots").alias("snapshots"),
    )
    counts = ~F.col("maintenance") & F.col("storm").isNull()
    at_second = F.unix_micros("taken") / F.lit(1e6)
    counted = changes.groupBy(*key).agg(
        F.count(F.lit(1)).alias("elections"),
        F.count_if(counts).alias("counted"),
        F.percentile(F.when(counts, F.col("dwell")), 0.1).alias("dwell_p10"),
        F.percentile(F.when(counts, F.col("dwell")), 0.5).alias("dwell_p50"),
        F.array_sort(F.collect_list(F.when(counts, at_second))).alias("times"),
    )
    peak = flap(F.col("times"))
    within = F.transform(
        "times",
        lambda last: F.size(F.filter("times", lambda time: (time > last - F.lit(_TEN_MINUTES)) & (time <= last))),
    )
    scored = counted.withColumn("flapping", F.when(F.size("times") > 0, peak)).withColumn(
        "most_in_10m", F.when(F.size("times") > 0, F.array_max(within))
    )
    zero = ("elections", "counted", "most_in_10m")
    return (
        seen.join(scored, on=key, how="left")
        .withColumns({name: F.coalesce(F.col(name), F.lit(0)) for name in zero})
        .withColumns(
            {
                "flap": F.coalesce("flapping.peak", F.lit(0.0)),
                "flap_at": F.timestamp_micros((F.col("flapping.at") * 1e6).cast("bigint")),
            }
        )
    )


def flap(times: Column) -> Column:
    """Return the highest score (`peak`) of sorted times in seconds, and its time: each adds 1, the sum halves in 30 minutes."""
    start = F.struct(
        F.lit(0.0).alias("score"), F.lit(0.0).alias("last"), F.lit(0.0).alias("peak"), F.lit(0.0).alias("at")
    )

    def step(state: Column, time: Column) -> Column:
        score = state["score"] * F.pow(F.lit(0.5), (time - state["last"]) / F.lit(_HALF_LIFE)) + F.lit(1.0)
        higher = score > state["peak"]
        return F.struct(
            score.alias("score"),
            time.alias("last"),
            F.when(higher, score).otherwise(state["peak"]).alias("peak"),
            F.when(higher, time).otherwise(state["at"]).alias("at"),
        )

    return F.aggregate(times, start, step)


FACTS = (
    GoldTable(
        "runs",
        "interval of a Raft group",
        columns.RUNS,
        (*(f"silver.{name}" for name in ("snapshots", "servers", "meta_peers", "streams", "consumers")), "settings"),
        runs,
    ),
)
TABLES = (
    GoldTable(
        "timeline",
        "interval of a Raft group: consecutive snapshots with the same report",
        columns.TIMELINE,
        ("gold.moments", "hours.runs", "past.timeline:1", "day", "settings"),
        timeline,
    ),
    GoldTable(
        "leader_changes",
        "change of a leader",
        columns.LEADER_CHANGES,
        ("gold.timeline", "past.timeline:1", "gold.moments", "gold.restarts", "settings"),
        leader_changes,
    ),
    GoldTable("leadership", "Raft group", columns.LEADERSHIP, ("gold.timeline", "gold.leader_changes"), leadership),
    GoldTable(
        "storms",
        "storm: many groups that leave a server at once",
        columns.STORMS,
        ("gold.leader_changes", "gold.restarts", "settings"),
        storms,
    ),
)
