# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The views of a period: pure functions from silver and gold tables to frames."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from jetstream_insights.findings.over_time import origins, over_time
from jetstream_insights.findings.view_rows import (
    Tables,
    first,
    last,
    last_rows,
    named_servers,
    period_aggregates,
    unix_hours,
    with_assets,
)
from jetstream_insights.keys import ACCOUNT, CONSUMER, DOMAIN, SNAPSHOT, STREAM
from jetstream_insights.times import seconds


def _rise(counter: str, one_start: WindowSpec) -> Column:
    """Return the increase of a counter since the previous snapshot: 0 in the first one, and after a decrease, because the
    increase in between is unknown."""
    before = F.last(counter, ignorenulls=True).over(one_start.rowsBetween(Window.unboundedPreceding, -1))
    return F.greatest(F.col(counter) - F.coalesce(before, F.col(counter)), F.lit(0) * F.col(counter))


#: The counters of servers; each start resets them.
_COUNTERS = (
    *("slow_consumers", "stalled_clients", "stale_connections"),
    *("js_api_total", "js_api_errors", "total_connections"),
)


def _server_starts(servers: DataFrame) -> DataFrame:
    """Return a row for each start of each server."""
    known = named_servers(servers)
    begin, end = F.min("taken").alias("begin"), F.max("taken").alias("end")
    load = F.expr("try_divide(cpu, cores)")
    one_start = Window.partitionBy("fleet", "server", "server_id").orderBy("taken")
    rises = {f"{name}_rise": _rise(name, one_start) for name in _COUNTERS}
    known = known.withColumns({"connections_before": F.lag("connections").over(one_start), **rises})
    increase = (F.sum(f"{name}_rise").alias(f"{name}_more") for name in _COUNTERS)
    fell = F.struct(F.col("connections_before").alias("before"), F.col("connections").alias("after"), "taken")
    return known.groupBy("fleet", "server", "server_id").agg(
        *period_aggregates(begin, end, *increase),
        F.max_by("cluster", "taken").alias("cluster"),
        F.max("version").alias("version"),
        F.collect_set("config_digest").alias("digests"),
        F.max_by("config_digest", "taken").alias("digest"),
        F.collect_set("js_max_storage").alias("limits"),
        F.count("health").alias("health_reported"),
        F.count_if(F.col("health") != "ok").alias("unhealthy"),
        F.sum(load).alias("load"),
        F.count(load).alias("load_reported"),
        F.avg("connections").alias("connections"),
        F.max_by(fell, F.col("connections_before") - F.col("connections")).alias("fell"),
        F.avg("mem").alias("mem"),
        F.regr_slope("mem", unix_hours()).alias("mem_slope"),
        F.regr_r2("mem", unix_hours()).alias("mem_r2"),
        F.min_by("js_on", "taken").alias("js_first"),
        F.max_by("js_on", "taken").alias("js_last"),
        F.count("js_api_total").alias("api_reported"),
        F.count("slow_consumers").alias("slow_reported"),
    )


def server_periods(tables: Tables) -> DataFrame:
    """Return a row for each server by its name. Its id changes at each start, so counters are compared within one id."""
    snapshots = tables["snapshots"].groupBy("fleet").agg(F.collect_list("taken").alias("moments"))
    starts = _server_starts(tables["servers"])
    grouped = starts.groupBy("fleet", "server").agg(
        F.min("begin").alias("begin"),
        F.max("end").alias("last_answer"),
        F.max_by("cluster", "end").alias("cluster"),
        F.sum("samples").alias("samples"),
        (F.count(F.lit(1)) - 1).alias("restarts"),
        F.array_sort(F.collect_list(F.unix_seconds("begin"))).alias("starts"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("digests")))).alias("digests"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("limits")))).alias("limits"),
        *(F.sum(f"{name}_more").alias(f"{name}_more") for name in _COUNTERS),
        *(
            F.sum(name).alias(name)
            for name in ("health_reported", "unhealthy", "load", "load_reported", "api_reported", "slow_reported")
        ),
        F.max_by("fell", F.col("fell.before") - F.col("fell.after")).alias("fell"),
        F.max("connections").alias("connections"),
        *(F.max_by(name, "end").alias(name) for name in ("mem", "mem_slope", "mem_r2", "js_last")),
        F.max_by("samples", "end").alias("samples_since_start"),
        F.max_by("seconds", "end").alias("seconds_since_start"),
        F.min_by("js_first", "begin").alias("js_first"),
    )
    return (
        grouped.join(F.broadcast(snapshots), "fleet", "left")
        .join(F.broadcast(_expected(tables)), ["fleet", "server"], "left")
        .withColumn("until", F.greatest("last_answer", "last_expected"))
        .withColumn("snapshots", F.expr("size(filter(moments, moment -> moment BETWEEN begin AND until))"))
        .drop("moments")
    )


def _expected(tables: Tables) -> DataFrame:
    """Return when each server was last expected: by the collector, or by a meta leader. A server that was removed on purpose is
    not missing."""
    waited = tables["snapshots"].select("fleet", "taken", F.explode("missing").alias("server"))
    members = tables["meta_peers"].where("by_leader").select("fleet", "taken", F.col("peer").alias("server"))
    return waited.unionByName(members).groupBy("fleet", "server").agg(F.max("taken").alias("last_expected"))


def server_restarts(tables: Tables) -> DataFrame:
    """Return a row for each server with its restarts, and the unplanned ones without a new version or configuration."""
    known = named_servers(tables["servers"])
    starts = known.groupBy("fleet", "server", "server_id").agg(
        *period_aggregates(F.min("taken").alias("begin")),
        F.max_by("cluster", "taken").alias("cluster"),
        F.struct(F.max("version"), F.max_by("config_digest", "taken")).alias("brought"),
    )
    meant = (
        tables["restarts"]
        .where("maintenance")
        .select("fleet", "server", F.col("taken").alias("begin"), F.lit(1).alias("meant"))
    )
    server_window = Window.partitionBy("fleet", "server").orderBy("begin")
    again = starts.withColumn("before", F.lag("brought").over(server_window)).join(
        meant, ["fleet", "server", "begin"], "left"
    )
    return again.groupBy("fleet", "server").agg(
        F.max_by("cluster", "begin").alias("cluster"),
        F.sum("samples").alias("samples"),
        F.count("before").alias("restarts"),
        F.count_if((F.col("before") == F.col("brought")) & F.col("meant").isNull()).alias("unplanned"),
    )


def snapshot_periods(tables: Tables) -> DataFrame:
    """Return a row for each fleet with the longest and the usual time between two snapshots, in seconds. The first snapshot of
    the day follows the newest one in the table `earlier_snapshots` (fleet, taken), which may be missing. `observed`: the time
    between all of them."""
    snapshots, earlier = tables["snapshots"], tables.get("earlier_snapshots")
    before = F.lag("taken").over(Window.partitionBy("fleet").orderBy("taken"))
    if earlier is not None:
        snapshots = snapshots.join(F.broadcast(earlier.withColumnRenamed("taken", "earlier")), "fleet", "left")
        before = F.coalesce(before, "earlier")
    gaps = snapshots.withColumn("gap", seconds(before, F.col("taken")))
    return gaps.groupBy("fleet").agg(
        *period_aggregates(),
        F.max("gap").alias("longest"),
        F.sum("gap").alias("observed"),
        F.max_by("taken", "gap").alias("until"),
        F.percentile("gap", F.lit(0.5)).alias("usual"),
    )


def server_logs(tables: Tables) -> DataFrame:
    """Return a row for each server with the number of log lines of each kind, and the last line of each (`KIND_text`). If no
    server's log was captured, one row for the fleet."""
    lines = tables["server_events"].select("fleet", "server", "time", "kind", "text").distinct()
    counts = (
        count
        for kind in LOGGED
        for count in (
            F.count_if(F.col("kind") == kind).alias(kind),
            F.max_by("text", F.when(F.col("kind") == kind, F.col("time"))).alias(f"{kind}_text"),
        )
    )
    captured = lines.select("fleet").distinct().withColumn("captured", F.lit(True))
    known = tables["servers"].join(F.broadcast(captured), "fleet", "left")
    named = (F.when(F.col("captured"), F.col(name)).alias(name) for name in ("server", "cluster"))
    servers = known.select("fleet", "taken", "captured", *named).groupBy("fleet", "server")
    return (
        servers.agg(
            *period_aggregates(F.max_by("cluster", "taken").alias("cluster"), F.bool_or("captured").alias("captured"))
        )
        .join(lines.groupBy("fleet", "server").agg(*counts), ["fleet", "server"], "left")
        .fillna(0, list(LOGGED))
    )


#: The kinds of log lines that checks count.
LOGGED = ("no_space", "storage", "authentication", "slow", "route", "no_leader")
#: The kinds of advisories that checks count.
ADVISED = (
    *("max_deliver", "terminated", "stream_quorum_lost", "consumer_quorum_lost", "api_limit_reached"),
    *("server_out_of_space", "meta_rescue", "stream_batch_abandoned", "consumer_group_unpinned"),
)


def advised(tables: Tables) -> DataFrame:
    """Return a row for each stream and consumer with advisories, with their number by kind."""
    return _advised(tables, *CONSUMER).where("stream IS NOT NULL")


def advised_servers(tables: Tables) -> DataFrame:
    """Return a row for each server that published advisories, with their number by kind, and the number of `dropped` requests."""
    return _advised(tables, "cluster", "server").where("server IS NOT NULL")


def _advised(tables: Tables, *key: str) -> DataFrame:
    named = tables["advisories"].withColumn("domain", F.coalesce("domain", F.lit("")))
    once = named.dropDuplicates(["fleet", *key, "kind", "time", "stream_seq"])
    kinds = (F.count_if(F.col("kind") == kind).alias(kind) for kind in ADVISED)
    return once.groupBy("fleet", *key).agg(
        *period_aggregates(F.sum("dropped").alias("dropped"), F.max("stream_seq").alias("stream_seq")), *kinds
    )


def account_periods(tables: Tables) -> DataFrame:
    """Return a row for each account with the increase of its counters on all servers, and its mean connections."""
    counters = ("slow_consumers",)
    one_start = Window.partitionBy("fleet", *ACCOUNT, "server_id").orderBy("taken")
    starts = (
        tables["accounts"]
        .withColumns({f"{name}_rise": _rise(name, one_start) for name in counters})
        .groupBy("fleet", *ACCOUNT, "server_id")
        .agg(
            *period_aggregates(*(F.sum(f"{name}_rise").alias(f"{name}_more") for name in counters)),
            F.avg("connections").alias("connections"),
        )
    )
    return starts.groupBy("fleet", *ACCOUNT).agg(
        F.max("samples").alias("samples"),
        *(F.sum(f"{name}_more").alias(f"{name}_more") for name in counters),
        F.sum("connections").alias("connections"),
    )


def client_periods(tables: Tables) -> DataFrame:
    """Return a row for each kind of clients of an account with the number of connections they made. Servers report only the
    total: each kind's share is its share of the connections that were new when a snapshot was taken."""
    one_start = Window.partitionBy("fleet", "server_id").orderBy("taken")
    made = (
        tables["servers"]
        .withColumn("rise", _rise("total_connections", one_start))
        .groupBy("fleet", "server_id")
        .agg(F.sum("rise").alias("made"))
    )
    kind = ("fleet", *ACCOUNT, "kind", "lang", "lang_version")
    by_server = (
        tables["connections"]
        .groupBy(*kind, "server_id")
        .agg(
            F.count(F.lit(1)).alias("samples"), F.sum("young").alias("young"), F.avg("connections").alias("connections")
        )
    )
    every = F.sum("young").over(Window.partitionBy("fleet", "server_id"))
    share = F.when(F.col("young") > 0, F.col("young") / every).when(F.col("young").isNotNull(), 0.0)
    shared = by_server.withColumn("share", share).join(F.broadcast(made), ["fleet", "server_id"], "left")
    grouped = shared.groupBy(*kind).agg(
        F.max("samples").alias("samples"),
        F.sum(F.col("share") * F.col("made")).alias("made"),
        F.sum("connections").alias("connections"),
    )
    return grouped.withColumn(
        "name", F.concat_ws(" ", "kind", F.coalesce("lang", F.lit("unknown client")), "lang_version")
    )


def _reconnects(frame: DataFrame, ends: tuple[str, ...], *key: str) -> DataFrame:
    """Return the number of reconnects between the same two processes (`ends`), and of simultaneous connections."""
    at_once = frame.groupBy("fleet", *key, *ends, "taken").agg(
        F.count(F.lit(1)).alias("connections"), F.collect_set("cid").alias("ids")
    )
    end_pairs = at_once.groupBy("fleet", *key, *ends).agg(
        *period_aggregates(F.max("connections").alias("at_once")),
        F.size(F.array_distinct(F.flatten(F.collect_list("ids")))).alias("ids"),
    )
    return end_pairs.groupBy("fleet", *key).agg(
        F.max("samples").alias("samples"),
        F.sum(F.col("ids") - F.col("at_once")).alias("reconnects"),
        F.max("at_once").alias("at_once"),
    )


def route_periods(tables: Tables) -> DataFrame:
    ends = ("server_id", "remote_id")
    made = _reconnects(tables["routes"], ends, "cluster", "server", "remote_name")
    return made.withColumn("name", F.col("remote_name"))


def gateway_periods(tables: Tables) -> DataFrame:
    outbound = tables["gateways"].where("direction = 'outbound'")
    return _reconnects(outbound, ("server_id", "name"), "cluster", "server", "gateway").withColumn(
        "name", F.col("gateway")
    )


def leafnode_periods(tables: Tables) -> DataFrame:
    """Return a row for each leafnode of an account, by its name, regardless of the servers it is connected to. `missed`: the
    number of last snapshots without it."""
    named = tables["leafnodes"].where("name IS NOT NULL")
    leaf_key = (*ACCOUNT, F.col("name").alias("leaf"))
    made = _reconnects(named.select("fleet", *leaf_key, "server_id", "cid", "taken"), ("server_id",), *ACCOUNT, "leaf")
    seen = named.groupBy("fleet", *leaf_key).agg(
        F.max("taken").alias("seen"), F.count_distinct("taken").alias("snapshots")
    )
    moments = tables["snapshots"].groupBy("fleet").agg(F.collect_list("taken").alias("moments"))
    return (
        made.join(seen, ["fleet", *ACCOUNT, "leaf"])
        .join(F.broadcast(moments), "fleet")
        .withColumn("missed", F.expr("size(filter(moments, moment -> moment > seen))"))
        .withColumn("name", F.concat_ws(" ", "account", "leaf"))
        .drop("moments")
    )


#: Seconds before a snapshot within which a server started recently, and after a change of the leader within which its restart may
#: end: a roll steps it down first.
_RECENT, _RESTARTING = 3600, 600


def meta_periods(tables: Tables) -> DataFrame:
    """Return a row for each meta group with the times of its leader changes, in seconds since 1970, without those from a server
    that restarted."""
    known = tables["servers"].where("meta_size IS NOT NULL")
    leader = F.mode(F.when(F.col("meta_leader") != "", F.col("meta_leader"))).alias("leader")
    start = F.struct("server", F.unix_seconds("start").alias("at"))
    recent = F.collect_set(F.when(seconds(F.col("start"), F.col("taken")) < _RECENT, start)).alias("recent")
    moments = known.groupBy(*SNAPSHOT, *DOMAIN).agg(leader, recent, F.max("meta_size").alias("size"))
    seen = F.struct(F.unix_seconds("taken").alias("at"), F.col("leader").alias("leader"))
    return (
        moments.groupBy("fleet", *DOMAIN)
        .agg(
            *period_aggregates(),
            F.array_sort(F.collect_list(F.when(F.col("leader").isNotNull(), seen))).alias("led"),
            F.array_distinct(F.flatten(F.collect_list("recent"))).alias("starts"),
            F.count_if(F.col("leader").isNull()).alias("leaderless"),
            F.array_sort(F.collect_set("size")).alias("sizes"),
        )
        .withColumn(
            "changes",
            F.expr(
                f"""transform(filter(zip_with(led, slice(led, 2, size(led)), (old, new) -> struct(old, new)), change ->
                    change.old.leader <> change.new.leader AND NOT exists(starts, start -> start.server = change.old.leader
                    AND start.at BETWEEN change.old.at AND change.new.at + {_RESTARTING})), change -> change.new.at)"""
            ),
        )
        .drop("led", "starts")
    )


def stream_periods(tables: Tables) -> DataFrame:
    return over_time(tables, "streams")


def stream_edits(tables: Tables) -> DataFrame:
    """Return the streams with the fields of their configurations that were changed, and `created` if they were recreated."""
    edited = F.col("what").isin("config", "recreated")
    changed = tables["changes"].where((F.col("object") == "stream") & edited)
    by_stream = changed.groupBy("fleet", *STREAM).agg(
        F.count(F.lit(1)).alias("edits"), F.array_sort(F.collect_set("field")).alias("fields")
    )
    known = stream_periods(tables).join(by_stream, ["fleet", *STREAM], "left")
    return known.withColumn("edits", F.coalesce("edits", F.lit(0)))


def origin_periods(tables: Tables) -> DataFrame:
    """Return the lag of streams that mirror or source others over the period, also in seconds (`seconds_behind`).
    `origin_last_seq`: the last sequence of a mirror's origin in the same account, `mirrored`."""
    reported = origins(tables).withColumn("lag", F.expr("array_max(transform(origins, origin -> origin.lag))"))
    streams = stream_periods(tables)
    lag = reported.join(seconds_behind(reported, streams), [*SNAPSHOT, *STREAM], "left")
    here = "CASE WHEN size(origins) > 0 AND get(origins, 0).external IS NULL THEN mirrored END"
    found = lag.groupBy("fleet", *STREAM).agg(
        F.max("origin_stored").alias("origin_stored"),
        *period_aggregates(first("lag"), last("lag"), last("metadata").alias("metadata")),
        first("last_seq"),
        last("last_seq"),
        F.min("lag").alias("lag_least"),
        F.count("lag").alias("lag_reported"),
        last("behind"),
        F.max("behind").alias("behind_most"),
        F.count("behind").alias("behind_reported"),
        F.max_by(F.expr(here), "taken").alias("mirrored"),
    )
    name, last_seq = F.col("stream").alias("mirrored"), F.col("last_seq_last").alias("origin_last_seq")
    return found.join(streams.select("fleet", *ACCOUNT, name, last_seq), ["fleet", *ACCOUNT, "mirrored"], "left")


def seconds_behind(reported: DataFrame, streams: DataFrame) -> DataFrame:
    """Return for each snapshot of a stream `behind`: the upper bound, in seconds, of the data that would be lost with an origin,
    and `origin_stored`: the messages per second stored by the busiest origin of the same account, before any filter.
    `streams`: the messages per second that each `stored`.

    `behind` is the lag divided by the rate at which the origin stores messages, and at least the time since the last contact
    with the origin: the lag stays 0 when the origin dies. The rate is the origin's own if the origin is an unfiltered stream of
    the same account, otherwise the growth of the stream plus its lag. A mirror lacks nothing older than its last message, which
    is also the only information if the origin stored nothing. Null if an origin was not reported.
    """
    fleet_window = ["fleet", *STREAM]
    whole = Window.partitionBy(*fleet_window)
    every = {"written": F.expr("last_seq + aggregate(origins, 0L, (sum, origin) -> sum + coalesce(origin.lag, 0L))")}
    grown = F.try_divide(
        F.max_by("written", "taken").over(whole) - F.min_by("written", "taken").over(whole),
        seconds(F.min("taken").over(whole), F.max("taken").over(whole)),
    )
    here = F.expr("CASE WHEN origin.external IS NULL THEN origin.name END")
    whole_origin = F.expr("coalesce(origin.filter_subject, '') = '' AND origin.subject_transforms IS NULL")
    each = (
        reported.withColumns(every)
        .withColumn("grown", grown)
        .withColumn("complete", F.size("origins") >= F.col("replicates"))
        .select(
            *SNAPSHOT,
            *fleet_window[1:],
            "last_ts",
            "mirrored",
            "grown",
            "complete",
            F.explode("origins").alias("origin"),
        )
        .withColumns({"origin_stream": here, "whole_origin": whole_origin})
    )
    origin_rates = streams.select("fleet", *ACCOUNT, F.col("stream").alias("origin_stream"), "stored")
    known = (
        each.join(origin_rates, ["fleet", *ACCOUNT, "origin_stream"], "left")
        .withColumn("origin_stored", F.col("stored"))
        .withColumn("stored", F.expr("CASE WHEN whole_origin THEN stored END"))
        .withColumn("rate", F.expr("CASE WHEN coalesce(stored, grown) > 0 THEN coalesce(stored, grown) END"))
        .withColumn("since_last", F.greatest(seconds(F.col("last_ts"), F.col("taken")), F.lit(0.0)))
        .withColumn(
            "lacks",
            F.expr(
                "CASE WHEN origin.lag = 0 THEN 0D WHEN rate IS NULL THEN since_last "
                "WHEN mirrored IS NOT NULL THEN least(origin.lag / rate, since_last) ELSE origin.lag / rate END"
            ),
        )
        .withColumn(
            "of_origin",
            F.expr("CASE WHEN origin.active >= 0 AND lacks IS NOT NULL THEN greatest(lacks, origin.active / 1e9) END"),
        )
    )
    return known.groupBy(*SNAPSHOT, *STREAM).agg(
        F.expr("CASE WHEN bool_and(complete AND of_origin IS NOT NULL) THEN max(of_origin) END").alias("behind"),
        F.max("origin_stored").alias("origin_stored"),
    )


#: Snapshots that must show a non-durable consumer before it is evaluated over a period. Fewer are inconclusive, and clients
#: create thousands of consumers that exist for a moment.
_LIVED = 6


def _lasting(consumers: DataFrame) -> DataFrame:
    """Return the consumers that are durable, or existed for some time."""
    return consumers.where(F.coalesce("durable", F.lit(True)) | (F.col("samples") >= F.lit(_LIVED)))


def consumer_periods(tables: Tables) -> DataFrame:
    return _lasting(over_time(tables, "consumers"))


def raft_periods(tables: Tables) -> DataFrame:
    streams, consumers = last_rows(tables, "streams", "consumers")
    return with_assets(over_time(tables, "raft_groups"), streams, consumers, ["fleet"])


# --- from gold: tables of a day, with information from previous days -------------------------------------------------------


def leadership(tables: Tables) -> DataFrame:
    reported = tables["leadership"].withColumn("samples", F.col("snapshots"))
    brief = over_time(tables, "consumers").where(~F.col("durable") & (F.col("samples") < F.lit(_LIVED)))
    lasting = reported.join(brief.select("fleet", *CONSUMER), ["fleet", *CONSUMER], "left_anti")
    return lasting.withColumn("consumer", F.nullif("consumer", F.lit("")))


def outages(tables: Tables) -> DataFrame:
    """Return the streams that had no leader at some time of the day, with whether the last snapshot still shows them."""
    (rows,) = last_rows(tables, "streams")
    reported = rows.select("fleet", *STREAM, F.lit(True).alias("reported"))
    lost = tables["incidents"].where("kind = 'stream' AND incident = 'no_leader'").drop("server", "consumer")
    latest = lost.groupBy("fleet", *STREAM).agg(F.max_by(F.struct("begin", "continues", "causes"), "begin").alias("of"))
    known = latest.select("fleet", *STREAM, "of.*").join(reported, ["fleet", *STREAM], "left")
    return known.withColumn("reported", F.coalesce("reported", F.lit(False)))


def storms(tables: Tables) -> DataFrame:
    return tables["storms"].withColumn("name", F.col("storm"))


def divergence(tables: Tables) -> DataFrame:
    return tables["divergence"]


def consumer_lag(tables: Tables) -> DataFrame:
    """Return the lag of consumers, whether a client requested messages (`asked`), and how long the stream keeps messages."""
    key = ["fleet", *STREAM]
    clients = over_time(tables, "consumers").select(*key, "consumer", "asked")
    kept = over_time(tables, "streams").select(*key, "max_age_last", "retention_last")
    reported = tables["consumer_lag"].withColumn("samples", F.col("snapshots"))
    joined = _lasting(reported.join(clients, [*key, "consumer"], "left")).join(kept, key, "left")
    # The pending messages arrived within `age` seconds; at these rates it grows by `slower` seconds each second.
    age = F.try_divide(F.col("num_pending").cast("double"), F.col("ingest_rate"))
    slower = F.lit(1.0) - F.try_divide(F.col("ack_rate"), F.col("ingest_rate"))
    left = F.when(age >= F.col("max_age_last"), 0.0).when(slower > 0, (F.col("max_age_last") - age) / slower)
    return joined.withColumn("until_lost", left)


def capacity(tables: Tables) -> DataFrame:
    return _named_asset(tables["capacity"], "resource")


def headroom(tables: Tables) -> DataFrame:
    return _named_asset(tables["headroom"].drop("snapshot", "taken"))


def _named_asset(frame: DataFrame, *also: str) -> DataFrame:
    return frame.withColumn("asset", F.col("name")).withColumn("name", F.concat_ws(" ", "scope", "asset", *also))
