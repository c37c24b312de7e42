# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of the views that checks test: pure functions from silver tables to frames.

Every frame has fleet, the keys of its view, and the columns in the expressions of its checks; a frame about single snapshots also
has snapshot, taken and since, which equals taken. Large tables (streams, consumers, their replicas) are shuffled at most once for
a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import HOSTS, NANOSECONDS, Field
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from jetstream_insights.fields import with_fields
from jetstream_insights.findings.over_time import origins, over_time, with_origins
from jetstream_insights.keys import ACCOUNT, CLUSTER, CONSUMER, DOMAIN, SNAPSHOT, STREAM
from jetstream_insights.times import seconds

Tables = Mapping[str, DataFrame]

_MOMENT = ("fleet", "snapshot")

_CERTIFICATES = ("cluster", "gateway", "leaf", "mqtt", "websocket")
_NAMES = "array<string>"


def _now(frame: DataFrame) -> DataFrame:
    """Return the rows of single snapshots with the column that all views have."""
    return frame.withColumn("since", F.col("taken"))


def _period(*more: Column) -> tuple[Column, ...]:
    """Return the aggregates that every view of a period has. `seconds`: between its first and its last snapshot."""
    return (
        F.count(F.lit(1)).alias("samples"),
        seconds(F.min("taken"), F.max("taken")).alias("seconds"),
        *more,
    )


def _first(name: str) -> Column:
    return F.min_by(name, "taken").alias(f"{name}_first")


def _last(name: str) -> Column:
    return F.max_by(name, "taken").alias(f"{name}_last")


def _hours() -> Column:
    return F.unix_micros("taken") / F.lit(3.6e9)


def snapshots(tables: Tables) -> DataFrame:
    return _now(tables["snapshots"])


#: The sequences that show how much a stream stored and a consumer delivered between two snapshots, by the name of the rates.
_SEQUENCES = {"streams": (STREAM, "last_seq"), "consumers": (CONSUMER, "delivered_stream_seq")}


def rates(tables: Tables, pairs: DataFrame, name: str) -> dict[str, DataFrame]:
    """Return the messages that each stream stored, and each consumer delivered, from `before` to `snapshot` in the rows of
    `pairs`, as a number (`rise`) and per second (`now_rate`), for the snapshot in the column `name`. A burst is far above the
    mean rate of a stream."""
    # The time between two snapshots by the servers' clocks, because the collector's may have been set in between.
    offset = F.coalesce("clock_offset_median", F.lit(0.0)) * F.lit(1e6)
    clock = tables["snapshots"].select(*_MOMENT, (F.unix_micros("taken") + offset).alias("moment"))
    both_sides = pairs.select(
        "fleet", F.col(name).alias("judged"), F.explode(F.array("before", "snapshot")).alias("snapshot")
    ).join(clock, [*_MOMENT])
    found = {}
    for table, (key, sequence) in _SEQUENCES.items():
        both = tables[table].join(F.broadcast(both_sides), [*_MOMENT])
        rise = F.max(sequence) - F.min(sequence)
        rate = F.try_divide(rise * F.lit(1e6), F.max("moment") - F.min("moment")).alias("now_rate")
        found[f"rates of {table}"] = both.groupBy("fleet", F.col("judged").alias("snapshot"), *key).agg(
            rate, rise.cast("double").alias("rise")
        )
    return found


def _with_rate(frame: DataFrame, tables: Tables, table: str, rate: str) -> DataFrame:
    """Raise the column `rate` to at least the rate between this snapshot and the one that it is compared with, and add the
    messages between them as `{rate}_rise`."""
    key, _sequence = _SEQUENCES[table]
    between = tables.get(f"rates of {table}")
    none = F.lit(0.0)
    if between is None:
        return frame.withColumns({rate: F.coalesce(rate, none), f"{rate}_rise": none})
    known = frame.join(between, [*_MOMENT, *key], "left")
    raised = {rate: F.coalesce(F.greatest(rate, "now_rate"), none), f"{rate}_rise": F.coalesce("rise", none)}
    return known.withColumns(raised).drop("now_rate", "rise")


def _tolerated(*rates_: str) -> Column:
    """Return the messages by which two replicas may differ because they did not reply at once: those of the highest rate in
    that time, or all since the previous snapshot. The second bound holds for any burst: each replica must have the messages
    that another one had a snapshot earlier."""
    bounds = [bound for rate in rates_ for bound in (F.col(rate) * F.col("apart"), F.col(f"{rate}_rise"))]
    return F.coalesce(F.greatest(*bounds), F.lit(0.0))


# --- servers and their groups -------------------------------------------------------------------------------------------


#: Figures from VARZ that silver has no columns for.
_OF_VARZ = {
    "http_host": ("http_host", "string"),
    "http_port": ("http_port", "bigint"),
    "cluster_port": ("cluster.cluster_port", "bigint"),
    "cluster_tls": ("cluster.tls_required", "boolean"),
    "gateway_port": ("gateway.port", "bigint"),
    "gateway_tls": ("gateway.tls_required", "boolean"),
    "leaf_port": ("leaf.port", "bigint"),
    "leaf_tls": ("leaf.tls_required", "boolean"),
    "leaf_remotes": ("leaf.remotes", "array<variant>"),
}
#: The listeners for other servers that accept connections without TLS.
_OPEN_TO = (
    "filter(array("
    + ", ".join(
        f"CASE WHEN {name}_port > 0 AND NOT coalesce({name}_tls, false) THEN '{listener}' END"
        for name, listener in (("cluster", "routes"), ("gateway", "gateways"), ("leaf", "leafnodes"))
    )
    + "), listener -> listener IS NOT NULL)"
)


def _named_servers(servers: DataFrame) -> DataFrame:
    """Return the servers with their zone tag, whether JetStream is running, and their version as a number."""
    zone = F.expr(
        "CASE WHEN js_unique_tag <> '' THEN "
        "try_element_at(filter(tags, tag -> startswith(lower(tag), lower(js_unique_tag))), 1) END"
    )
    number = F.expr("regexp_extract_all(version, '(\\\\d+)', 1)")
    return (
        servers.withColumn(
            "js_on", F.expr("CASE WHEN jsz_reported THEN NOT coalesce(js_disabled, false) ELSE jetstream END")
        )
        .withColumn("zone", zone)
        .withColumn(
            "version_number",
            F.aggregate(
                F.transform(F.slice(number, 1, 3), lambda part: part.cast("bigint")),
                F.lit(0).cast("bigint"),
                lambda total, part: total * 1000 + part,
            ),
        )
    )


def _tags_reported() -> Column:
    """Return whether all servers with JetStream reported VARZ, the only source of the unique_tag."""
    return F.bool_and(F.col("varz_reported").isNotNull() | ~F.col("js_on")).alias("tags_reported")


def _leaders(streams: DataFrame, consumers: DataFrame) -> DataFrame:
    """Return the number of replicated streams and consumers that each server leads."""
    led = [
        frame.where("leader IS NOT NULL AND num_replicas > 1").select(
            *_MOMENT, *DOMAIN, F.col("leader").alias("server")
        )
        for frame in (streams, consumers)
    ]
    return led[0].unionByName(led[1]).groupBy(*_MOMENT, *DOMAIN, "server").agg(F.count(F.lit(1)).alias("leaders"))


def servers(tables: Tables) -> DataFrame:
    fleet_window, cluster_window = Window.partitionBy(*_MOMENT), Window.partitionBy(*_MOMENT, *CLUSTER)
    more = [
        F.try_variant_get("varz_extra", f"$.{name}.tls_cert_not_after", "timestamp").alias(f"tls_{name}")
        for name in _CERTIFICATES
    ]
    known = _named_servers(tables["servers"]).select("*", *more)
    varz_figures = {
        name: F.try_variant_get("varz_extra", f"$.{path}", type_) for name, (path, type_) in _OF_VARZ.items()
    }
    known = known.withColumns(varz_figures).withColumn("open_to", F.expr(_OPEN_TO))
    joined = known.join(
        F.broadcast(_leaders(tables["streams"], tables["consumers"])), [*_MOMENT, *DOMAIN, "server"], "left"
    )
    carriers = F.when(F.col("js_on") & F.col("jsz_reported"), F.coalesce("leaders", F.lit(0)))
    whole = joined.withColumn("leaders", carriers).select(
        "*",
        F.least("tls_cert_not_after", *(f"tls_{name}" for name in _CERTIFICATES)).alias("tls_ends"),
        F.mode("version").over(fleet_window).alias("fleet_version"),
        F.median("clock_offset").over(fleet_window).alias("fleet_clock_offset"),
        F.count("clock_offset").over(fleet_window).alias("fleet_clocks"),
        F.mode("system_account").over(Window.partitionBy(*_MOMENT, *DOMAIN)).alias("fleet_system_account"),
        F.count(F.lit(1)).over(Window.partitionBy(*_MOMENT, "server")).alias("namesakes"),
        F.count(F.lit(1)).over(cluster_window).alias("cluster_servers"),
        F.count_if("js_on").over(cluster_window).alias("cluster_js_servers"),
        F.avg("mem").over(cluster_window).alias("cluster_mem"),
        F.avg("connections").over(cluster_window).alias("cluster_connections"),
        F.avg("leaders").over(cluster_window).alias("cluster_leaders"),
        *(
            F.avg(F.when(F.col("js_on"), F.col(name))).over(cluster_window).alias(f"cluster_{name}")
            for name in ("js_streams", "js_storage")
        ),
    )
    return _now(whole)


def hosts(tables: Tables) -> DataFrame:
    """Return the servers with the data about their hosts, which servers do not report."""
    facts = (F.col(field.name).alias(f"host_{field.name}") for field in HOSTS.fields)
    reported = tables["hosts"].select(*_MOMENT, "server", *facts)
    return _now(tables["servers"].join(F.broadcast(reported), [*_MOMENT, "server"], "left"))


def clusters(tables: Tables) -> DataFrame:
    known = _named_servers(tables["servers"])
    failed = tables["failures"].where("endpoint = 'gatewayz'").select(*_MOMENT, "server").distinct()
    asked = tables["snapshots"].select(*_MOMENT, "asked")
    gateways = (
        tables["gateways"]
        .groupBy(*_MOMENT, "server")
        .agg(
            F.array_sort(F.collect_set(F.when(F.col("configured"), F.concat_ws(" ", "direction", "gateway")))).alias(
                "configured"
            ),
            F.collect_set(F.when(F.col("direction") == "outbound", F.col("gateway"))).alias("outbound"),
        )
    )
    # A cluster that is connected by a leafnode has another domain, and no gateway.
    supercluster_window = Window.partitionBy(*_MOMENT, *DOMAIN)
    reported = (
        known.join(F.broadcast(failed.withColumn("failed", F.lit(True))), [*_MOMENT, "server"], "left")
        .join(F.broadcast(asked), list(_MOMENT))
        .withColumn("failed", F.expr("coalesce(failed, NOT array_contains(asked, 'gatewayz'), false)"))
        .join(F.broadcast(gateways), [*_MOMENT, "server"], "left")
        .withColumn("clusters", F.collect_set("cluster").over(supercluster_window))
        .withColumn("configured", F.when(~F.col("failed"), F.coalesce("configured", F.array().cast(_NAMES))))
        .withColumn(
            "lacking",
            F.expr(
                "CASE WHEN NOT failed THEN array_except(clusters, "
                "array_append(coalesce(outbound, CAST(array() AS array<string>)), cluster)) END"
            ),
        )
    )
    zone_window = Window.partitionBy(*_MOMENT, *CLUSTER, "zone")
    zoned = F.col("js_on") & F.col("zone").isNotNull()
    reported = reported.withColumns(
        {
            "zone_storage": F.when(zoned, F.sum(F.when(F.col("js_on"), F.col("js_storage"))).over(zone_window)),
            "zone_servers": F.when(zoned, F.count_if("js_on").over(zone_window)),
        }
    )
    largest = tables["streams"].groupBy(*_MOMENT, *CLUSTER).agg(F.max("num_replicas").alias("most_replicas"))
    zones = F.collect_set(F.when(F.col("js_on"), F.col("zone")))
    tagged = F.col("js_on") & F.col("varz_reported")
    grouped = reported.groupBy(*SNAPSHOT, *CLUSTER).agg(
        F.count(F.lit(1)).alias("servers"),
        F.count_if("js_on").alias("js_servers"),
        F.count_if((F.col("meta_size").isNotNull()) & F.col("js_on")).alias("meta_members"),
        F.max("meta_size").alias("meta_size"),
        F.array_sort(F.collect_set(F.when(tagged, F.coalesce("js_unique_tag", F.lit(""))))).alias("unique_tags"),
        _tags_reported(),
        F.array_sort(zones).alias("zones"),
        F.max(F.when(F.col("js_on"), F.col("js_max_storage"))).alias("most_storage"),
        F.min(F.when(F.col("js_on"), F.col("js_max_storage"))).alias("least_storage"),
        F.sum(F.when(zoned, F.col("js_storage"))).alias("zoned_storage"),
        F.max("zone_storage").alias("most_zone_storage"),
        F.max_by("zone", "zone_storage").alias("fullest_zone"),
        F.max("zone_servers").alias("most_zone_servers"),
        F.min("zone_servers").alias("least_zone_servers"),
        F.array_sort(F.collect_set("max_payload")).alias("payloads"),
        F.array_sort(F.collect_set("configured")).alias("gateway_sets"),
        F.count("configured").alias("gateways_reported"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("lacking")))).alias("lacking"),
        F.size(F.flatten(F.collect_set("outbound"))).alias("outbounds"),
        F.size(F.first("clusters")).alias("clusters"),
    )
    return _now(grouped.join(F.broadcast(largest), [*_MOMENT, *CLUSTER], "left"))


def meta(tables: Tables) -> DataFrame:
    """Return a row for each meta group: every JetStream domain has one."""
    known = _named_servers(tables["servers"]).where(
        "meta_size IS NOT NULL OR (js_on AND NOT coalesce(jsz_reported, false))"
    )
    leads = F.col("meta_leader") == F.col("server")
    leader_figures = ("meta_size", "meta_pending", "meta_quorum_needed", "meta_replicas", "meta_snapshot_duration")
    groups = known.groupBy(*SNAPSHOT, *DOMAIN).agg(
        F.array_sort(F.collect_set(F.when(F.col("meta_leader") != "", F.col("meta_leader")))).alias("named"),
        F.array_sort(
            F.collect_set(F.when(F.col("jsz_reported") & (F.coalesce("meta_leader", F.lit("")) == ""), F.col("server")))
        ).alias("leaderless"),
        F.array_sort(F.collect_set(F.when(leads, F.col("server")))).alias("leaders"),
        F.array_sort(F.collect_set(F.when(F.col("js_on"), F.col("server")))).alias("answered"),
        F.array_sort(F.collect_set("meta_size")).alias("sizes"),
        F.max("meta_size").alias("size"),
        _tags_reported(),
        *(F.max_by(name, F.when(leads, 1)).alias(name) for name in leader_figures),
    )
    parts = known.where("js_on").withColumn("part", F.explode(F.array("cluster", "zone"))).where("part IS NOT NULL")
    counted = parts.groupBy(*_MOMENT, *DOMAIN, "part").agg(F.count(F.lit(1)).alias("members"))
    together = counted.groupBy(*_MOMENT, *DOMAIN).agg(F.collect_list(F.struct("members", "part")).alias("parts"))
    peers = F.expr(
        "transform(meta_replicas, p -> CASE WHEN p.name IS NULL OR p.name = '' OR p.name LIKE '% %' THEN p.peer "
        "ELSE p.name END)"
    )
    return _now(
        groups.join(F.broadcast(together), [*_MOMENT, *DOMAIN], "left")
        .withColumn("together", F.expr("array_max(filter(parts, part -> part.members < size(answered)))"))
        .withColumn("members", F.array_union(F.coalesce(peers, F.array().cast(_NAMES)), F.col("leaders")))
        .withColumn(
            "quorum", F.greatest(F.floor(F.col("meta_size") / 2) + 1, F.coalesce("meta_quorum_needed", F.lit(0)))
        )
    )


def meta_members(tables: Tables) -> DataFrame:
    """Return the members of each meta group as its leader reports them, and whether they answered themselves."""
    answered = (
        tables["servers"].select(*_MOMENT, F.col("server").alias("peer"), F.lit(True).alias("answered")).distinct()
    )
    reported = (
        tables["meta_peers"].where("by_leader").drop("server").join(F.broadcast(answered), [*_MOMENT, "peer"], "left")
    )
    return _now(reported.withColumn("server", F.col("peer")))


def raft_groups(tables: Tables) -> DataFrame:
    queues = F.greatest("ipq_proposal_len", "ipq_entry_len", "ipq_resp_len", "ipq_apply_len")
    replicas = tables["stream_replicas"], tables["consumer_replicas"]
    return _now(_with_assets(tables["raft_groups"], *replicas, _MOMENT).withColumn("queue", queues))


def _with_assets(groups: DataFrame, streams: DataFrame, consumers: DataFrame, of: Sequence[str]) -> DataFrame:
    """Add the `name` of each Raft group: the stream or consumer in these rows, otherwise its id. `of`: the columns that
    the rows share besides account and group."""
    key = [*of, *ACCOUNT, "raft_group"]
    assets = (
        rows.select(*key, F.concat(F.lit(f"{kind} "), F.concat_ws("/", *names)).alias("asset"))
        for rows, kind, *names in ((streams, "stream", "stream"), (consumers, "consumer", "stream", "consumer"))
    )
    named = reduce(DataFrame.unionByName, assets).groupBy(*key).agg(F.min("asset").alias("asset"))
    return groups.join(named, key, "left").withColumn("name", F.coalesce("asset", "raft_group"))


# --- streams and consumers ------------------------------------------------------------------------------------------------


def streams(tables: Tables) -> DataFrame:
    fields = (
        _PER_SUBJECT,
        Field("duplicate_window", "double", reported=NANOSECONDS),
        Field("sealed", "boolean"),
        Field("allow_msg_ttl", "boolean"),
    )
    return _now(with_fields(tables["streams"], "config", fields).withColumn("rate", _mean_rate()))


_PER_SUBJECT = Field("max_msgs_per_subject", "bigint")


def _mean_rate() -> Column:
    """Return the mean rate of a stream since its first message, in messages per second."""
    return F.try_divide(F.col("last_seq") - F.col("first_seq"), seconds(F.col("first_ts"), F.col("last_ts")))


def stream_leaders(tables: Tables) -> DataFrame:
    """Return the rows of leading replicas, the only ones that report mirror and sources."""
    led = tables["stream_replicas"].where("is_leader")
    return _now(with_origins(led)).withColumnRenamed("cluster", "of_cluster").withColumnRenamed("server", "of_server")


def stream_copies(tables: Tables) -> DataFrame:
    """Return a row for each stream with the common and the differing figures of its replicas."""
    places = _named_servers(tables["servers"]).select(
        *_MOMENT, "server_id", "zone", "tags", "js_unique_tag", "js_api_level", "varz_reported"
    )
    placed = tables["stream_replicas"].join(F.broadcast(places), [*_MOMENT, "server_id"], "left")
    suits = F.expr(
        "forall(placement_tags, required -> CASE WHEN startswith(required, '!') "
        "THEN NOT array_contains(transform(tags, tag -> lower(tag)), lower(substring(required, 2))) "
        "ELSE array_contains(transform(tags, tag -> lower(tag)), lower(required)) END)"
    )
    copies = (
        placed.withColumn("suits", F.when(F.col("placement_tags").isNull(), True).otherwise(suits))
        .groupBy(*SNAPSHOT, *STREAM)
        .agg(
            F.max("num_replicas").alias("num_replicas"),
            F.first("metadata", ignorenulls=True).alias("metadata"),
            *_copies("messages", "first_seq", "last_seq"),
            F.collect_set("zone").alias("zones"),
            F.max("js_unique_tag").alias("unique_tag"),
            F.bool_or("varz_reported").alias("varz_reported"),
            F.count("zone").alias("zoned"),
            F.array_sort(F.collect_set(F.when(~F.col("suits"), F.col("server")))).alias("misplaced"),
            F.count("suits").alias("tagged"),
            *_levels(),
            F.first("placement_tags", ignorenulls=True).alias("placement_tags"),
            _apart(),
            _rate().alias("rate"),
        )
    )
    rated = _with_rate(copies, tables, "streams", "rate")
    return _now(rated.withColumn("tolerated", _tolerated("rate")).drop("rate_rise"))


def _levels() -> tuple[Column, ...]:
    """Return the API level that an asset requires, and the lowest one of its servers."""
    needed = F.try_element_at("metadata", F.lit("_nats.req.level")).try_cast("int")
    return (
        F.max(needed).alias("needed_level"),
        F.min("js_api_level").alias("least_level"),
        F.min_by("server", "js_api_level").alias("oldest"),
        F.count("js_api_level").alias("levels"),
    )


def _apart() -> Column:
    """Return the seconds between the answers of servers, in which messages may have arrived."""
    return (seconds(F.min("received"), F.max("received")) + 1).alias("apart")


def _rate() -> Column:
    """Return the mean rate of a stream, from all its replicas."""
    return F.try_divide(F.max("last_seq") - F.min("first_seq"), seconds(F.min("first_ts"), F.max("last_ts")))


def _copies(*names: str) -> tuple[Column, ...]:
    """Return the number of replicas that reported, the maximum and minimum of some figures, and the server with the minimum."""
    return (
        F.size(F.collect_set("server")).alias("copies"),
        *(F.max(name).alias(f"most_{name}") for name in names),
        *(F.min(name).alias(f"least_{name}") for name in names),
        *(F.min_by("server", name).alias(f"behind_{name}") for name in names),
    )


_FILTERS = (Field("filter_subject", "string"), Field("filter_subjects", "array<string>"))


def consumers(tables: Tables) -> DataFrame:
    key = (*_MOMENT, *STREAM)
    figures = {
        "first_seq": "stream_first",
        "last_seq": "stream_last",
        "messages": "stream_messages",
        "retention": "retention",
    }
    stream_rows = with_fields(tables["streams"], "config", (_PER_SUBJECT,)).select(
        *key,
        *(F.col(name).alias(alias) for name, alias in figures.items()),
        (F.coalesce("max_msgs_per_subject", F.lit(0)) > 0).alias("overwrites"),
        _mean_rate().alias("stream_rate"),
    )
    stream_rows = _with_rate(stream_rows, tables, "streams", "stream_rate")
    known = with_fields(tables["consumers"], "config", _FILTERS)
    filtered = (F.coalesce("filter_subject", F.lit("")) != "") | (F.size(F.coalesce("filter_subjects", F.array())) > 0)
    return _now(known.withColumn("filtered", filtered).join(stream_rows, list(key), "left"))


def consumer_copies(tables: Tables) -> DataFrame:
    levels = tables["servers"].select(*_MOMENT, "server_id", "js_api_level")
    stream_rows = tables["streams"].select(*_MOMENT, *STREAM, _mean_rate().alias("stream_rate"))
    grouped = (
        tables["consumer_replicas"]
        .join(F.broadcast(levels), [*_MOMENT, "server_id"], "left")
        .groupBy(*SNAPSHOT, *CONSUMER)
        .agg(
            F.max("num_replicas").alias("num_replicas"),
            F.first("metadata", ignorenulls=True).alias("metadata"),
            *_copies("ack_floor_stream_seq", "delivered_stream_seq"),
            *_levels(),
            _apart(),
        )
    )
    rated = _with_rate(grouped.withColumn("rate", F.lit(None).cast("double")), tables, "consumers", "rate")
    written = _with_rate(stream_rows, tables, "streams", "stream_rate")
    known = rated.join(written, [*_MOMENT, *STREAM], "left")
    return _now(known.withColumn("tolerated", _tolerated("rate", "stream_rate")).drop("rate_rise", "stream_rate_rise"))


def backups(tables: Tables) -> DataFrame:
    """Return the streams with backups enabled, with the seconds since they were saved and proven to restore."""
    key = [*_MOMENT, *STREAM]
    metadata = tables["streams"].select(*key, "metadata")
    ages = {f"{name}_age": seconds(F.col(name), F.col("taken")) for name in ("saved", "drilled", "proven")}
    return _now(tables["backups"].where("NOT excluded").join(metadata, key, "left").withColumns(ages))


def documents(tables: Tables) -> DataFrame:
    """Return the documents of assets, with the seconds since they were compared with the assets."""
    age = seconds(F.col("checked"), F.col("taken"))
    return _now(tables["drift"].withColumns({"name": F.col("document"), "checked_age": age}))


# --- accounts and connections ---------------------------------------------------------------------------------------------


_IMPORTS = "array<struct<subject:string,account:string,invalid:boolean>>"


def accounts(tables: Tables) -> DataFrame:
    """Return the accounts over all servers of a domain, as their limits count them, with the limits: -1 and null mean none."""
    system = (
        tables["servers"]
        .groupBy(*_MOMENT, *DOMAIN)
        .agg(
            F.mode("system_account").alias("system_account"),
            F.bool_and("auth_required").alias("auth_required"),
            F.bool_or("jsz_reported").alias("jsz_reported"),
        )
    )
    limits = tables["account_limits"].select(
        *_MOMENT,
        *ACCOUNT,
        "max_conn",
        "max_leaf",
        "max_subs",
        "expired",
        "expires",
        F.try_variant_get("extra", "$.imports", _IMPORTS).alias("imports"),
        F.lit(True).alias("limits_reported"),
    )
    grouped = (
        tables["accounts"]
        .groupBy(*SNAPSHOT, *ACCOUNT)
        .agg(
            *(F.sum(name).alias(name) for name in ("connections", "leafnodes", "slow_consumers")),
            F.max("num_subscriptions").alias("num_subscriptions"),
            *(
                F.max(name).alias(name)
                for name in ("js_memory", "js_storage", "js_reserved_memory", "js_reserved_storage")
            ),
        )
    )
    sharing = F.count_if(F.col("js_storage") > 0).over(Window.partitionBy(*_MOMENT, *DOMAIN))
    grouped = grouped.withColumn("sharing", sharing)
    return _now(
        grouped.join(F.broadcast(system), [*_MOMENT, *DOMAIN], "left").join(limits, [*_MOMENT, *ACCOUNT], "left")
    )


def jwts(tables: Tables) -> DataFrame:
    """Return the JWTs that expire. The name of a row does not change when a user gets a new JWT."""
    own = F.when(F.col("role") != "", F.col("role")).when(F.col("kind") != "user", F.col("subject"))
    return _now(tables["jwts"].withColumn("name", F.concat_ws(" ", "kind", own)))


def connections(tables: Tables) -> DataFrame:
    name = F.concat_ws(" ", "kind", F.coalesce("lang", F.lit("unknown client")), "lang_version")
    return _now(tables["connections"].withColumn("name", name))


def routes(tables: Tables) -> DataFrame:
    answered = tables["servers"].select(*_MOMENT, F.col("server_id").alias("remote_id"), F.lit(True).alias("answered"))
    known = tables["routes"].join(F.broadcast(answered.distinct()), [*_MOMENT, "remote_id"], "left")
    name = F.concat_ws(" ", "remote_name", F.concat(F.lit("#"), F.col("cid")))
    return _now(known.withColumns({"name": name, "remote_answered": F.coalesce("answered", F.lit(False))}))


def gateways(tables: Tables) -> DataFrame:
    name = F.concat_ws(" ", "direction", "gateway", F.concat(F.lit("#"), F.col("cid")))
    return _now(tables["gateways"].withColumn("name", name))


def leafnodes(tables: Tables) -> DataFrame:
    name = F.concat_ws(" ", "account", "leaf", F.concat(F.lit("#"), F.col("cid")))
    return _now(tables["leafnodes"].withColumn("leaf", F.col("name")).withColumn("name", name))


# --- over a period ----------------------------------------------------------------------------------------------------------


def _rise(counter: str, one_start: WindowSpec) -> Column:
    """Return the increase of a counter since the previous snapshot: 0 in the first one, and after a decrease, because the
    increase in between is unknown."""
    before = F.last(counter, ignorenulls=True).over(one_start.rowsBetween(Window.unboundedPreceding, -1))
    return F.greatest(F.col(counter) - F.coalesce(before, F.col(counter)), F.lit(0) * F.col(counter))


def server_periods(tables: Tables) -> DataFrame:
    """Return a row for each server by its name. Its id changes at each start, so counters are compared within one id."""
    known = _named_servers(tables["servers"])
    begin, end = F.min("taken").alias("begin"), F.max("taken").alias("end")
    load = F.expr("try_divide(cpu, cores)")
    counters = (
        *("slow_consumers", "stalled_clients", "stale_connections"),
        *("js_api_total", "js_api_errors", "total_connections"),
    )
    one_start = Window.partitionBy("fleet", "server", "server_id").orderBy("taken")
    rises = {f"{name}_rise": _rise(name, one_start) for name in counters}
    known = known.withColumns({"connections_before": F.lag("connections").over(one_start), **rises})
    increase = {name: F.sum(f"{name}_rise").alias(f"{name}_more") for name in counters}
    fell = F.struct(F.col("connections_before").alias("before"), F.col("connections").alias("after"), "taken")
    starts = known.groupBy("fleet", "server", "server_id").agg(
        *_period(begin, end, *increase.values()),
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
        F.regr_slope("mem", _hours()).alias("mem_slope"),
        F.regr_r2("mem", _hours()).alias("mem_r2"),
        F.min_by("js_on", "taken").alias("js_first"),
        F.max_by("js_on", "taken").alias("js_last"),
        F.count("js_api_total").alias("api_reported"),
        F.count("slow_consumers").alias("slow_reported"),
    )
    snapshots = tables["snapshots"].groupBy("fleet").agg(F.collect_list("taken").alias("moments"))
    grouped = starts.groupBy("fleet", "server").agg(
        F.min("begin").alias("begin"),
        F.max("end").alias("last_answer"),
        F.max_by("cluster", "end").alias("cluster"),
        F.sum("samples").alias("samples"),
        (F.count(F.lit(1)) - 1).alias("restarts"),
        F.array_sort(F.collect_list(F.unix_seconds("begin"))).alias("starts"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("digests")))).alias("digests"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("limits")))).alias("limits"),
        *(F.sum(f"{name}_more").alias(f"{name}_more") for name in increase),
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
    known = _named_servers(tables["servers"])
    starts = known.groupBy("fleet", "server", "server_id").agg(
        *_period(F.min("taken").alias("begin")),
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
    the day follows the newest one in the table `earlier_snapshots` (fleet, taken), which may be missing."""
    snapshots, earlier = tables["snapshots"], tables.get("earlier_snapshots")
    before = F.lag("taken").over(Window.partitionBy("fleet").orderBy("taken"))
    if earlier is not None:
        snapshots = snapshots.join(F.broadcast(earlier.withColumnRenamed("taken", "earlier")), "fleet", "left")
        before = F.coalesce(before, "earlier")
    gaps = snapshots.withColumn("gap", seconds(before, F.col("taken")))
    return gaps.groupBy("fleet").agg(
        *_period(),
        F.max("gap").alias("longest"),
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
        servers.agg(*_period(F.max_by("cluster", "taken").alias("cluster"), F.bool_or("captured").alias("captured")))
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
        *_period(F.sum("dropped").alias("dropped"), F.max("stream_seq").alias("stream_seq")), *kinds
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
            *_period(*(F.sum(f"{name}_rise").alias(f"{name}_more") for name in counters)),
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
        *_period(F.max("connections").alias("at_once")),
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
            *_period(),
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
        *_period(_first("lag"), _last("lag"), _last("metadata").alias("metadata")),
        _first("last_seq"),
        _last("last_seq"),
        F.min("lag").alias("lag_least"),
        F.count("lag").alias("lag_reported"),
        _last("behind"),
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
    streams, consumers = _last_rows(tables, "streams", "consumers")
    return _with_assets(over_time(tables, "raft_groups"), streams, consumers, ["fleet"])


# --- from gold: tables of a day, with information from previous days -------------------------------------------------------


def leadership(tables: Tables) -> DataFrame:
    reported = tables["leadership"].withColumn("samples", F.col("snapshots"))
    brief = over_time(tables, "consumers").where(~F.col("durable") & (F.col("samples") < F.lit(_LIVED)))
    lasting = reported.join(brief.select("fleet", *CONSUMER), ["fleet", *CONSUMER], "left_anti")
    return lasting.withColumn("consumer", F.nullif("consumer", F.lit("")))


def _last_rows(tables: Tables, *names: str) -> list[DataFrame]:
    """Return the rows of some tables in the last snapshot of each fleet."""
    last = F.broadcast(tables["snapshots"].groupBy("fleet").agg(F.max("snapshot").alias("snapshot")))
    return [tables[name].join(last, [*_MOMENT], "left_semi") for name in names]


def outages(tables: Tables) -> DataFrame:
    """Return the streams that had no leader at some time of the day, with whether the last snapshot still shows them."""
    (rows,) = _last_rows(tables, "streams")
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


MAKE: dict[str, Callable[[Tables], DataFrame]] = {
    made.__name__: made
    for made in (
        snapshots,
        servers,
        hosts,
        clusters,
        meta,
        meta_members,
        raft_groups,
        streams,
        stream_leaders,
        stream_copies,
        consumers,
        consumer_copies,
        backups,
        documents,
        accounts,
        jwts,
        connections,
        routes,
        gateways,
        leafnodes,
        server_periods,
        server_restarts,
        server_logs,
        advised,
        advised_servers,
        account_periods,
        client_periods,
        route_periods,
        gateway_periods,
        leafnode_periods,
        snapshot_periods,
        meta_periods,
        stream_periods,
        stream_edits,
        origin_periods,
        consumer_periods,
        raft_periods,
        leadership,
        outages,
        storms,
        divergence,
        consumer_lag,
        capacity,
        headroom,
    )
}
