# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The views of single snapshots: pure functions from silver tables to frames, with the columns snapshot, taken and since, which
equals taken."""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import (
    HOSTS,
    NANOSECONDS,
    Field,
)
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.fields import with_fields
from jetstream_insights.findings.over_time import with_origins
from jetstream_insights.findings.view_rows import MOMENT, Tables, named_servers, now, with_assets
from jetstream_insights.keys import ACCOUNT, CLUSTER, CONSUMER, DOMAIN, SNAPSHOT, STREAM
from jetstream_insights.times import seconds

_CERTIFICATES = ("cluster", "gateway", "leaf", "mqtt", "websocket")
_NAMES = "array<string>"


def snapshots(tables: Tables) -> DataFrame:
    return now(tables["snapshots"])


#: The sequences that show how much a stream stored and a consumer delivered between two snapshots, by the name of the rates.
_SEQUENCES = {"streams": (STREAM, "last_seq"), "consumers": (CONSUMER, "delivered_stream_seq")}


def rates(tables: Tables, pairs: DataFrame, name: str) -> dict[str, DataFrame]:
    """Return the messages that each stream stored, and each consumer delivered, from `before` to `snapshot` in the rows of
    `pairs`, as a number (`rise`) and per second (`now_rate`), for the snapshot in the column `name`. A burst is far above the
    mean rate of a stream."""
    # The time between two snapshots by the servers' clocks, because the collector's may have been set in between.
    offset = F.coalesce("clock_offset_median", F.lit(0.0)) * F.lit(1e6)
    clock = tables["snapshots"].select(*MOMENT, (F.unix_micros("taken") + offset).alias("moment"))
    both_sides = pairs.select(
        "fleet", F.col(name).alias("judged"), F.explode(F.array("before", "snapshot")).alias("snapshot")
    ).join(clock, [*MOMENT])
    found = {}
    for table, (key, sequence) in _SEQUENCES.items():
        if table not in tables:
            continue  # no enabled check reads it
        both = tables[table].join(F.broadcast(both_sides), [*MOMENT])
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
    known = frame.join(between, [*MOMENT, *key], "left")
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
_VARZ_FIGURES = {
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


def _tags_reported() -> Column:
    """Return whether all servers with JetStream reported VARZ, the only source of the unique_tag."""
    return F.bool_and(F.col("varz_reported").isNotNull() | ~F.col("js_on")).alias("tags_reported")


def _leaders(streams: DataFrame, consumers: DataFrame) -> DataFrame:
    """Return the number of replicated streams and consumers that each server leads."""
    led = [
        frame.where("leader IS NOT NULL AND num_replicas > 1").select(*MOMENT, *DOMAIN, F.col("leader").alias("server"))
        for frame in (streams, consumers)
    ]
    return led[0].unionByName(led[1]).groupBy(*MOMENT, *DOMAIN, "server").agg(F.count(F.lit(1)).alias("leaders"))


def servers(tables: Tables) -> DataFrame:
    fleet_window, cluster_window = Window.partitionBy(*MOMENT), Window.partitionBy(*MOMENT, *CLUSTER)
    more = [
        F.try_variant_get("varz_extra", f"$.{name}.tls_cert_not_after", "timestamp").alias(f"tls_{name}")
        for name in _CERTIFICATES
    ]
    known = named_servers(tables["servers"]).select("*", *more)
    varz_figures = {
        name: F.try_variant_get("varz_extra", f"$.{path}", type_) for name, (path, type_) in _VARZ_FIGURES.items()
    }
    known = known.withColumns(varz_figures).withColumn("open_to", F.expr(_OPEN_TO))
    joined = known.join(
        F.broadcast(_leaders(tables["streams"], tables["consumers"])), [*MOMENT, *DOMAIN, "server"], "left"
    )
    carriers = F.when(F.col("js_on") & F.col("jsz_reported"), F.coalesce("leaders", F.lit(0)))
    whole = joined.withColumn("leaders", carriers).select(
        "*",
        F.least("tls_cert_not_after", *(f"tls_{name}" for name in _CERTIFICATES)).alias("tls_ends"),
        F.mode("version").over(fleet_window).alias("fleet_version"),
        F.median("clock_offset").over(fleet_window).alias("fleet_clock_offset"),
        F.count("clock_offset").over(fleet_window).alias("fleet_clocks"),
        F.mode("system_account").over(Window.partitionBy(*MOMENT, *DOMAIN)).alias("fleet_system_account"),
        F.count(F.lit(1)).over(Window.partitionBy(*MOMENT, "server")).alias("namesakes"),
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
    return now(whole)


def hosts(tables: Tables) -> DataFrame:
    """Return the servers with the data about their hosts, which servers do not report."""
    facts = (F.col(field.name).alias(f"host_{field.name}") for field in HOSTS.fields)
    reported = tables["hosts"].select(*MOMENT, "server", *facts)
    return now(tables["servers"].join(F.broadcast(reported), [*MOMENT, "server"], "left"))


def _with_gateways(known: DataFrame, tables: Tables) -> DataFrame:
    """Add the gateways of each server and the clusters to which it lacks one; null if the server did not report them."""
    failed = tables["failures"].where("endpoint = 'gatewayz'").select(*MOMENT, "server").distinct()
    asked = tables["snapshots"].select(*MOMENT, "asked")
    gateways = (
        tables["gateways"]
        .groupBy(*MOMENT, "server")
        .agg(
            F.array_sort(F.collect_set(F.when(F.col("configured"), F.concat_ws(" ", "direction", "gateway")))).alias(
                "configured"
            ),
            F.collect_set(F.when(F.col("direction") == "outbound", F.col("gateway"))).alias("outbound"),
        )
    )
    # A cluster that is connected by a leafnode has another domain, and no gateway.
    supercluster_window = Window.partitionBy(*MOMENT, *DOMAIN)
    return (
        known.join(F.broadcast(failed.withColumn("failed", F.lit(True))), [*MOMENT, "server"], "left")
        .join(F.broadcast(asked), list(MOMENT))
        .withColumn("failed", F.expr("coalesce(failed, NOT array_contains(asked, 'gatewayz'), false)"))
        .join(F.broadcast(gateways), [*MOMENT, "server"], "left")
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


def clusters(tables: Tables) -> DataFrame:
    known = named_servers(tables["servers"])
    reported = _with_gateways(known, tables)
    zone_window = Window.partitionBy(*MOMENT, *CLUSTER, "zone")
    zoned = F.col("js_on") & F.col("zone").isNotNull()
    reported = reported.withColumns(
        {
            "zone_storage": F.when(zoned, F.sum(F.when(F.col("js_on"), F.col("js_storage"))).over(zone_window)),
            "zone_servers": F.when(zoned, F.count_if("js_on").over(zone_window)),
        }
    )
    largest = tables["streams"].groupBy(*MOMENT, *CLUSTER).agg(F.max("num_replicas").alias("most_replicas"))
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
    return now(grouped.join(F.broadcast(largest), [*MOMENT, *CLUSTER], "left"))


def meta(tables: Tables) -> DataFrame:
    """Return a row for each meta group: every JetStream domain has one."""
    known = named_servers(tables["servers"]).where(
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
    counted = parts.groupBy(*MOMENT, *DOMAIN, "part").agg(F.count(F.lit(1)).alias("members"))
    together = counted.groupBy(*MOMENT, *DOMAIN).agg(F.collect_list(F.struct("members", "part")).alias("parts"))
    peers = F.expr(
        "transform(meta_replicas, p -> CASE WHEN p.name IS NULL OR p.name = '' OR p.name LIKE '% %' THEN p.peer "
        "ELSE p.name END)"
    )
    return now(
        groups.join(F.broadcast(together), [*MOMENT, *DOMAIN], "left")
        .withColumn("together", F.expr("array_max(filter(parts, part -> part.members < size(answered)))"))
        .withColumn("members", F.array_union(F.coalesce(peers, F.array().cast(_NAMES)), F.col("leaders")))
        .withColumn(
            "quorum", F.greatest(F.floor(F.col("meta_size") / 2) + 1, F.coalesce("meta_quorum_needed", F.lit(0)))
        )
    )


def meta_members(tables: Tables) -> DataFrame:
    """Return the members of each meta group as its leader reports them, and whether they answered themselves."""
    answered = (
        tables["servers"].select(*MOMENT, F.col("server").alias("peer"), F.lit(True).alias("answered")).distinct()
    )
    reported = (
        tables["meta_peers"].where("by_leader").drop("server").join(F.broadcast(answered), [*MOMENT, "peer"], "left")
    )
    return now(reported.withColumn("server", F.col("peer")))


def raft_groups(tables: Tables) -> DataFrame:
    queues = F.greatest("ipq_proposal_len", "ipq_entry_len", "ipq_resp_len", "ipq_apply_len")
    replicas = tables["stream_replicas"], tables["consumer_replicas"]
    return now(with_assets(tables["raft_groups"], *replicas, MOMENT).withColumn("queue", queues))


# --- streams and consumers ------------------------------------------------------------------------------------------------


def streams(tables: Tables) -> DataFrame:
    fields = (
        _PER_SUBJECT,
        Field("duplicate_window", "double", reported=NANOSECONDS),
        Field("sealed", "boolean"),
        Field("allow_msg_ttl", "boolean"),
    )
    return now(with_fields(tables["streams"], "config", fields).withColumn("rate", _mean_rate()))


_PER_SUBJECT = Field("max_msgs_per_subject", "bigint")


def _mean_rate() -> Column:
    """Return the mean rate of a stream since its first message, in messages per second."""
    return F.try_divide(F.col("last_seq") - F.col("first_seq"), seconds(F.col("first_ts"), F.col("last_ts")))


def stream_leaders(tables: Tables) -> DataFrame:
    """Return the rows of leading replicas, the only ones that report mirror and sources."""
    led = tables["stream_replicas"].where("is_leader")
    return now(with_origins(led)).withColumnRenamed("cluster", "of_cluster").withColumnRenamed("server", "of_server")


def stream_copies(tables: Tables) -> DataFrame:
    """Return a row for each stream with the common and the differing figures of its replicas."""
    places = named_servers(tables["servers"]).select(
        *MOMENT, "server_id", "zone", "tags", "js_unique_tag", "js_api_level", "varz_reported"
    )
    placed = tables["stream_replicas"].join(F.broadcast(places), [*MOMENT, "server_id"], "left")
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
    return now(rated.withColumn("tolerated", _tolerated("rate")).drop("rate_rise"))


def _levels() -> tuple[Column, ...]:
    """Return the API level that an asset requires, and the lowest one of its servers."""
    needed = F.try_element_at("metadata", F.lit("_nats.req.level")).try_cast("int")
    return (
        F.max(needed).alias("needed_level"),
        F.min("js_api_level").alias("least_level"),
        _server_with_least("js_api_level").alias("oldest"),
        F.count("js_api_level").alias("levels"),
    )


def _server_with_least(name: str) -> Column:
    """Return the server with the least value; of several, the first by name. The result must be the same in each run."""
    return F.min(F.when(F.col(name).isNotNull(), F.struct(name, "server")))["server"]


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
        *(_server_with_least(name).alias(f"behind_{name}") for name in names),
    )


_FILTERS = (Field("filter_subject", "string"), Field("filter_subjects", "array<string>"))


def consumers(tables: Tables) -> DataFrame:
    key = (*MOMENT, *STREAM)
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
    return now(known.withColumn("filtered", filtered).join(stream_rows, list(key), "left"))


def consumer_copies(tables: Tables) -> DataFrame:
    levels = tables["servers"].select(*MOMENT, "server_id", "js_api_level")
    stream_rows = tables["streams"].select(*MOMENT, *STREAM, _mean_rate().alias("stream_rate"))
    grouped = (
        tables["consumer_replicas"]
        .join(F.broadcast(levels), [*MOMENT, "server_id"], "left")
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
    known = rated.join(written, [*MOMENT, *STREAM], "left")
    return now(known.withColumn("tolerated", _tolerated("rate", "stream_rate")).drop("rate_rise", "stream_rate_rise"))


def backups(tables: Tables) -> DataFrame:
    """Return the streams with backups enabled, with the seconds since they were saved and proven to restore."""
    key = [*MOMENT, *STREAM]
    metadata = tables["streams"].select(*key, "metadata")
    ages = {f"{name}_age": seconds(F.col(name), F.col("taken")) for name in ("saved", "drilled", "proven")}
    return now(tables["backups"].where("NOT excluded").join(metadata, key, "left").withColumns(ages))


def documents(tables: Tables) -> DataFrame:
    """Return the documents of assets, with the seconds since they were compared with the assets."""
    age = seconds(F.col("checked"), F.col("taken"))
    return now(tables["drift"].withColumns({"name": F.col("document"), "checked_age": age}))


# --- accounts and connections ---------------------------------------------------------------------------------------------


_IMPORTS = "array<struct<subject:string,account:string,invalid:boolean>>"


def accounts(tables: Tables) -> DataFrame:
    """Return the accounts over all servers of a domain, as their limits count them, with the limits: -1 and null mean none."""
    system = (
        tables["servers"]
        .groupBy(*MOMENT, *DOMAIN)
        .agg(
            F.mode("system_account").alias("system_account"),
            F.bool_and("auth_required").alias("auth_required"),
            F.bool_or("jsz_reported").alias("jsz_reported"),
        )
    )
    limits = tables["account_limits"].select(
        *MOMENT,
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
    sharing = F.count_if(F.col("js_storage") > 0).over(Window.partitionBy(*MOMENT, *DOMAIN))
    grouped = grouped.withColumn("sharing", sharing)
    return now(grouped.join(F.broadcast(system), [*MOMENT, *DOMAIN], "left").join(limits, [*MOMENT, *ACCOUNT], "left"))


def jwts(tables: Tables) -> DataFrame:
    """Return the JWTs that expire. The name of a row does not change when a user gets a new JWT."""
    own = F.when(F.col("role") != "", F.col("role")).when(F.col("kind") != "user", F.col("subject"))
    return now(tables["jwts"].withColumn("name", F.concat_ws(" ", "kind", own)))


def connections(tables: Tables) -> DataFrame:
    name = F.concat_ws(" ", "kind", F.coalesce("lang", F.lit("unknown client")), "lang_version")
    return now(tables["connections"].withColumn("name", name))


def routes(tables: Tables) -> DataFrame:
    answered = tables["servers"].select(*MOMENT, F.col("server_id").alias("remote_id"), F.lit(True).alias("answered"))
    known = tables["routes"].join(F.broadcast(answered.distinct()), [*MOMENT, "remote_id"], "left")
    name = F.concat_ws(" ", "remote_name", F.concat(F.lit("#"), F.col("cid")))
    return now(known.withColumns({"name": name, "remote_answered": F.coalesce("answered", F.lit(False))}))


def gateways(tables: Tables) -> DataFrame:
    name = F.concat_ws(" ", "direction", "gateway", F.concat(F.lit("#"), F.col("cid")))
    return now(tables["gateways"].withColumn("name", name))


def leafnodes(tables: Tables) -> DataFrame:
    name = F.concat_ws(" ", "account", "leaf", F.concat(F.lit("#"), F.col("cid")))
    return now(tables["leafnodes"].withColumn("leaf", F.col("name")).withColumn("name", name))
