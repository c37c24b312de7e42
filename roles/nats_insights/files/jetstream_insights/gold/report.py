# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of the playbook report for the day's last snapshot of each fleet, by the same rules as for a live cluster.

`moments` has the snapshots that all tables use.
"""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import PEERS
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.balance import write_rates
from jetstream_insights.gold.common import SNAPSHOT_KEY, at, last_of_day, with_day, zone
from jetstream_insights.gold.tables import GoldTable, ratio
from jetstream_insights.keys import DOMAIN, STREAM
from jetstream_insights.silver import peer_id

_STRINGS = "array<string>"

#: Columns from STATSZ, as in the live report; archives have them in VARZ.
_STATSZ = {
    "connections": "bigint",
    "subscriptions": "bigint",
    "routes": "bigint",
    "leafnodes": "bigint",
    "mem": "bigint",
    "cpu": "double",
    "cores": "bigint",
    "slow_consumers": "bigint",
}
_GATEWAYS = ("gateways", "inbound_gateways")

#: Columns of the report → those of silver's servers; 0 if JetStream reported without them (nats/replies parse_summary).
_JETSTREAM = {
    **{name: f"js_{name}" for name in (
        "streams", "consumers", "messages", "bytes", "memory", "storage", "reserved_memory", "reserved_storage",
        "max_memory", "max_storage", "api_total", "api_errors", "ha_assets", "max_ha_assets")},
    "api_level": "js_api_level",
    "pending": "meta_pending",
}  # fmt: skip


def replicas() -> Column:
    """Return a group's members as its sole leader reports them, including the leader, by name (nats/model RaftGroup.as_dict)."""
    others = F.transform(
        F.coalesce("peers", F.array().cast(PEERS)),
        lambda peer: F.struct(
            peer["name"].alias("name"),
            F.coalesce(peer["peer"], F.lit("")).alias("id"),
            F.lit(False).alias("leader"),
            F.coalesce(peer["current"], F.lit(False)).alias("current"),
            (~F.coalesce(peer["offline"], F.lit(False))).alias("online"),
            (F.coalesce(peer["active"], F.lit(0)) / F.lit(1e9)).alias("active"),
            F.coalesce(peer["lag"], F.lit(0)).cast("bigint").alias("lag"),
        ),
    )  # fmt: skip
    leader = F.struct(
        F.col("leader").alias("name"),
        peer_id(F.col("leader")).alias("id"),
        F.lit(True).alias("leader"),
        F.lit(True).alias("current"),
        F.lit(True).alias("online"),
        F.lit(0.0).alias("active"),
        F.lit(0).cast("bigint").alias("lag"),
    )
    return F.when(F.col("leader").isNotNull(), F.array_sort(F.array_append(others, leader))).otherwise(
        F.array().cast(columns.REPLICAS)
    )


def api_level() -> Column:
    """Return the API level that an asset requires, 0 before 2.11 (nats/model api_level)."""
    return F.coalesce(F.col("metadata")["_nats.req.level"].try_cast("int"), F.lit(0))


def with_absent(snapshots: DataFrame, servers: DataFrame, meta_peers: DataFrame) -> DataFrame:
    """Add the servers of each snapshot that did not answer, answered without JSZ, or have JetStream disabled."""
    reported = F.coalesce(F.col("jsz_reported"), F.lit(False))
    answered = servers.groupBy(*SNAPSHOT_KEY).agg(
        F.collect_set("server").alias("answered"),
        F.collect_set(F.when(~reported, F.col("server"))).alias("unreported"),
        F.collect_set(F.when(F.col("js_disabled"), F.col("server"))).alias("disabled"),
    )
    members = meta_peers.groupBy(*SNAPSHOT_KEY).agg(F.collect_set("peer").alias("meta_members"))
    nobody = F.array().cast(_STRINGS)
    known = F.array_union(F.coalesce("missing", nobody), F.coalesce("meta_members", nobody))
    absent = F.array_except(known, F.coalesce("answered", nobody))
    joined = snapshots.join(answered, on=SNAPSHOT_KEY, how="left").join(members, on=SNAPSHOT_KEY, how="left")
    return joined.withColumns(
        {
            "absent": F.array_sort(absent),
            "unreported": F.coalesce("unreported", nobody),
            "disabled": F.array_sort(F.coalesce("disabled", nobody)),
        }
    )


def looks(snapshots: DataFrame, servers: DataFrame, meta_peers: DataFrame, failures: DataFrame) -> DataFrame:
    """Return the snapshots with the servers that did not answer, have JetStream disabled, or returned an incomplete JSZ."""
    failed = failures.where("endpoint = 'jsz'").groupBy(*SNAPSHOT_KEY).agg(F.collect_set("server").alias("incomplete"))
    incomplete = F.coalesce("incomplete", F.array().cast(_STRINGS))
    silent = F.array_distinct(F.flatten(F.array("absent", "unreported", "disabled", incomplete)))
    joined = with_absent(snapshots, servers, meta_peers).join(failed, on=SNAPSHOT_KEY, how="left")
    return joined.withColumn("silent", silent)


def moments(snapshot_rows: DataFrame) -> DataFrame:
    """Return the snapshots in order, numbered."""
    fleet_window = Window.partitionBy("fleet").orderBy("taken", "snapshot")
    return with_day(snapshot_rows).withColumn("number", F.row_number().over(fleet_window))


def report_servers(
    moment_rows: DataFrame, servers: DataFrame, meta: DataFrame, streams: DataFrame, consumers: DataFrame
) -> DataFrame:
    """Return the servers of each fleet's last snapshot, with those that did not answer."""
    moment = last_of_day(moment_rows)
    there = at(servers, moment)
    reported = F.coalesce(F.col("jsz_reported"), F.lit(False)) & ~F.coalesce(F.col("js_disabled"), F.lit(False))
    by_statsz = {
        **{
            name: F.coalesce(F.try_variant_get("extra", f"$.{name}", type_), F.col(name))
            for name, type_ in _STATSZ.items()
        },
        **{name: F.try_variant_get("extra", f"$.{name}", "bigint") for name in _GATEWAYS},
    }
    errors = F.transform("health_errors", lambda error: error["error"])
    rows = there.select(
        *SNAPSHOT_KEY, "taken", "server", "server_id", "cluster", zone().alias("zone"), "host", "version", "domain", "tags",
        F.lit(True).alias("answered"),
        F.when(F.coalesce("jsz_reported", F.lit(False)), reported).otherwise(F.col("jetstream")).alias("jetstream"),
        *(value.alias(name) for name, value in by_statsz.items()),
        "start", "uptime", "rtt", "clock_offset", "health",
        # Servers before 2.10 do not report a status code.
        F.when(F.col("health").isNotNull(), F.coalesce("health_code", F.lit(0))).alias("health_code"),
        F.when(F.size("health_errors") > 0, errors).when(F.col("health_error") != "", F.array("health_error"))
        .when(F.col("health").isNotNull(), F.array().cast(_STRINGS)).alias("health_errors"),
        *(F.when(reported, F.coalesce(source, F.lit(0))).alias(name) for name, source in _JETSTREAM.items()),
        reported.alias("reported"),
    )  # fmt: skip
    led = [
        at(frame, moment).where("leader IS NOT NULL").groupBy(*SNAPSHOT_KEY, *DOMAIN, F.col("leader").alias("server"))
        .agg(F.count(F.lit(1)).alias(f"{name}_leaders"))
        for name, frame in (("stream", streams), ("consumer", consumers))
    ]  # fmt: skip
    for frame in led:
        rows = rows.join(frame, on=[*SNAPSHOT_KEY, *DOMAIN, "server"], how="left")
    meta_leaders = meta.select(*SNAPSHOT_KEY, *DOMAIN, F.col("leader").alias("meta_leader"))
    absent = moment.select(*SNAPSHOT_KEY, "taken", F.explode("absent").alias("server"), F.lit(False).alias("answered"))
    known = (
        rows.join(F.broadcast(meta_leaders), on=[*SNAPSHOT_KEY, *DOMAIN], how="left")
        .withColumn("is_meta_leader", F.coalesce(F.col("meta_leader") == F.col("server"), F.lit(False)))
        .withColumn("stream_leaders", F.when(F.col("reported"), F.coalesce("stream_leaders", F.lit(0))))
        .withColumn("consumer_leaders", F.when(F.col("reported"), F.coalesce("consumer_leaders", F.lit(0))))
        .drop("reported", "meta_leader")
    )
    return with_day(known.unionByName(absent, allowMissingColumns=True))


def meta_groups(servers: DataFrame, meta_peers: DataFrame) -> DataFrame:
    """Return the meta group of each domain in each snapshot, by the rules of nats/replies _meta_group. It may have servers from
    several clusters."""
    peer = F.struct(
        F.col("peer").alias("name"), F.col("peer_id").alias("peer"), "current", "offline",
        F.round(F.col("active") * 1e9).cast("bigint").alias("active"), "lag", F.lit(None).cast("bigint").alias("pending"),
    )  # fmt: skip
    others = (
        meta_peers.where(F.col("peer") != F.col("server"))
        .groupBy(*SNAPSHOT_KEY, "server_id")
        .agg(F.collect_list(peer).alias("peers"))
    )
    view = servers.where(F.col("meta_size").isNotNull()).join(others, on=[*SNAPSHOT_KEY, "server_id"], how="left")
    claims = F.col("meta_leader") == F.col("server")
    backed = claims & (F.coalesce(F.size("peers"), F.lit(0)) > 0)
    nobody = F.array().cast(_STRINGS)
    names = F.coalesce(F.transform("peers", lambda peer: peer["name"]), nobody)
    everybody = F.array_append(F.array_append(names, F.col("server")), F.col("meta_leader"))
    own = F.struct("meta_size", "meta_pending", "meta_quorum_needed", "peers")
    grouped = view.groupBy(*SNAPSHOT_KEY, "taken", *DOMAIN).agg(
        F.sort_array(F.collect_set(F.when(backed, F.col("server")))).alias("backed"),
        F.sort_array(F.collect_set(F.when(claims, F.col("server")))).alias("claimed"),
        F.min_by(own, F.when(backed, 0).when(claims, 1).otherwise(2)).alias("own"),
        F.max("meta_size").alias("most"),
        F.flatten(F.collect_list(everybody)).alias("known"),
        F.array_sort(F.collect_list(F.struct("server", F.coalesce("meta_leader", F.lit("")).alias("leader")))).alias(
            "views"
        ),
        F.sort_array(F.collect_set("server")).alias("hosts"),
    )
    leaders = F.when(F.size("backed") > 0, F.col("backed")).otherwise(F.col("claimed"))
    sole = F.size("leaders") == 1
    size = F.when(sole & (F.col("own.meta_size") > 0), F.col("own.meta_size")).otherwise(F.col("most"))
    own_quorum = F.when(sole, F.coalesce("own.meta_quorum_needed", F.lit(0))).otherwise(F.lit(0))
    return (
        grouped.withColumn("leaders", leaders)
        .withColumn("size", size)
        .select(
            *SNAPSHOT_KEY,
            "taken",
            *DOMAIN,
            F.when(sole, F.col("leaders")[0]).alias("leader"),
            "leaders",
            "size",
            F.greatest(F.floor(F.col("size") / 2) + 1, own_quorum).alias("quorum"),
            F.when(sole, F.coalesce("own.meta_pending", F.lit(0))).otherwise(F.lit(0)).alias("pending"),
            F.array_sort(F.array_distinct(F.filter("known", lambda name: name.isNotNull() & (name != "")))).alias(
                "members"
            ),
            "hosts",
            "views",
            F.when(sole, F.col("own.peers")).alias("peers"),
        )
    )


def report_meta(moment_rows: DataFrame, servers: DataFrame, meta_peers: DataFrame) -> DataFrame:
    """Return the meta groups of each fleet's last snapshot."""
    moment = last_of_day(moment_rows)
    return with_day(meta_groups(at(servers, moment), at(meta_peers, moment)).withColumn("replicas", replicas()))


def report_streams(
    moment_rows: DataFrame, streams: DataFrame, consumers: DataFrame, write_rows: DataFrame
) -> DataFrame:
    """Return the streams of each fleet's last snapshot, and their write rates over the day."""
    moment = last_of_day(moment_rows)
    key = [*SNAPSHOT_KEY, *STREAM]
    many = at(consumers, moment).groupBy(*key).agg(F.count(F.lit(1)).alias("consumers"))
    zero = ("messages", "bytes", "first_seq", "last_seq", "num_deleted")
    rated = write_rates(write_rows).withColumnRenamed("write_msgs", "rate")
    rows = at(streams, moment).join(many, on=key, how="left").join(rated, on=["fleet", *STREAM], how="left")
    return with_day(
        rows.withColumns(
            {
                "replicas": replicas(),
                "api_level": api_level(),
                "consumers": F.coalesce("consumers", F.lit(0)),
                "retention": F.coalesce("retention", F.lit("limits")),
                "moving": F.col("leader").isNotNull() & F.col("desired").isNotNull(),
                "write_bytes": F.col("rate") * F.coalesce(ratio(F.col("bytes"), F.col("messages")), F.lit(0.0)),
                **{name: F.coalesce(F.col(name), F.lit(0)) for name in zero},
            }
        )
    )


def report_backups(moment_rows: DataFrame, backups: DataFrame) -> DataFrame:
    """Return the backup catalogue's entries for the streams in each fleet's last snapshot."""
    named = {"saved": "last_backup", "proven": "last_proven"}
    return with_day(at(backups, last_of_day(moment_rows)).withColumnsRenamed(named))


def report_consumers(moment_rows: DataFrame, streams: DataFrame, consumers: DataFrame) -> DataFrame:
    """Return the consumers of each fleet's last snapshot."""
    moment = last_of_day(moment_rows)
    key = [*SNAPSHOT_KEY, *STREAM]
    stream_sizes = at(streams, moment).select(*key, F.coalesce("messages", F.lit(0)).alias("messages"))
    percent = F.least(F.lit(100), F.floor(F.col("num_pending") * 100 / F.col("messages")))
    zero = ("num_ack_pending", "num_redelivered", "num_pending")
    rows = at(consumers, moment).join(stream_sizes, on=key, how="left")
    return with_day(
        rows.withColumns({name: F.coalesce(F.col(name), F.lit(0)) for name in zero}).withColumns(
            {
                "replicas": replicas(),
                "api_level": api_level(),
                "mode": F.when(F.col("pull"), "Pull").otherwise("Push"),
                "ack_wait": F.coalesce("ack_wait", F.lit(0.0)),
                "ack_floor": F.coalesce("ack_floor_stream_seq", F.lit(0)),
                "unprocessed": F.when(F.col("messages") > 0, percent).otherwise(F.lit(0)),
            }
        )
    )


def report_fleet(
    moment_rows: DataFrame, servers: DataFrame, meta: DataFrame, streams: DataFrame, consumers: DataFrame
) -> DataFrame:
    """Return the totals of each fleet, from the other reports and from the snapshots."""
    key = [*SNAPSHOT_KEY, "taken", "day"]
    sums = servers.groupBy(*key).agg(
        F.count_if("answered").alias("servers"),
        F.sort_array(F.collect_list(F.when(~F.col("answered"), F.col("server")))).alias("missing"),
        F.sort_array(F.collect_set("version")).alias("versions"),
        F.sum("connections").alias("connections"),
        F.sum("bytes").alias("replica_bytes"),
    )
    stream_totals = streams.groupBy(*SNAPSHOT_KEY).agg(
        F.count(F.lit(1)).alias("streams"),
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.count_if(F.col("leader").isNull()).alias("leaderless_streams"),
    )
    consumer_totals = consumers.groupBy(*SNAPSHOT_KEY).agg(
        F.count(F.lit(1)).alias("consumers"), F.count_if(F.col("leader").isNull()).alias("leaderless_consumers")
    )
    leaders = F.array_sort(F.collect_list(F.struct(*DOMAIN, F.coalesce("leader", F.lit("?")).alias("leader"))))
    meta_leaders = meta.groupBy(*SNAPSHOT_KEY).agg(
        F.when(F.count("leader") > 0, F.array_join(leaders["leader"], ", ")).alias("meta_leader")
    )
    parts = (
        moment_rows.select(*SNAPSHOT_KEY, "complete"),
        meta_leaders,
        stream_totals,
        consumer_totals,
    )
    for part in parts:
        sums = sums.join(part, on=SNAPSHOT_KEY, how="left")
    counts = ("streams", "messages", "bytes", "leaderless_streams", "consumers", "leaderless_consumers")
    return sums.withColumns({name: F.coalesce(F.col(name), F.lit(0)) for name in counts})


_ASSETS = ("last.streams", "last.consumers")
FACTS = (
    GoldTable(
        "looks",
        "snapshot",
        columns.SAMPLES,
        tuple(f"silver.{name}" for name in ("snapshots", "servers", "meta_peers", "failures")),
        looks,
    ),
)
TABLES = (
    GoldTable("moments", "snapshot of the day", columns.MOMENTS, ("hours.looks",), moments),
    GoldTable(
        "report_servers",
        "server that answered or should have answered",
        columns.REPORT_SERVERS,
        ("gold.moments", "last.servers", "gold.report_meta", *_ASSETS),
        report_servers,
    ),
    GoldTable(
        "report_meta",
        "meta group: one for each domain of a fleet",
        columns.REPORT_META,
        ("gold.moments", "last.servers", "last.meta_peers"),
        report_meta,
    ),
    GoldTable(
        "report_streams", "stream", columns.REPORT_STREAMS, ("gold.moments", *_ASSETS, "hours.writes"), report_streams
    ),
    GoldTable(
        "report_backups",
        "stream, if snapshots contain the backup catalogue",
        columns.REPORT_BACKUPS,
        ("gold.moments", "last.backups"),
        report_backups,
    ),
    GoldTable("report_consumers", "consumer", columns.REPORT_CONSUMERS, ("gold.moments", *_ASSETS), report_consumers),
    GoldTable(
        "report_fleet",
        "fleet",
        columns.REPORT_FLEET,
        ("gold.moments", *(f"gold.report_{name}" for name in ("servers", "meta", "streams", "consumers"))),
        report_fleet,
    ),
)
