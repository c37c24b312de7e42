# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The silver tables: pure functions that turn lines of bronze, or other silver tables, into rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import (
    ACCOUNT_JETSTREAM,
    ACCOUNT_LIMITS,
    ACCOUNT_STATISTICS,
    BACKUPS,
    CONFIG_HASH,
    CONNECTIONS,
    CONSUMER_REPLICAS,
    DRIFT,
    ENVELOPE,
    FAILURE,
    FAILURE_TYPE,
    GATEWAYS,
    HEALTH,
    HOSTS,
    IPQUEUES,
    JSZ,
    JWTS,
    LEAFNODES,
    PEERS,
    RAFT_GROUPS,
    ROUTES,
    SERVER_LOG,
    SERVERS,
    STREAM_REPLICAS,
    STRINGS,
    TRAFFIC,
    VARZ,
    Field,
    Reported,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jetstream_insights.fields import Bronze, rows
from jetstream_insights.keys import CONSUMER, SNAPSHOT, STREAM
from jetstream_insights.replica_groups import groups

#: The relevant log lines of a server: the kind of event and a regular expression, in the order in which they are tried.
EVENTS = {
    "started": r"^Server is ready",
    "stopped": r"^Initiating Shutdown|^Server Exiting|^Trapped .* signal",
    "lame_duck": r"^Entering lame duck mode|^Initiating JetStream Shutdown",
    "reloaded": r"^Reloaded",
    "leader": r"^JetStream cluster new (metadata|stream|consumer) leader|^Self is new JetStream cluster metadata leader",
    "no_leader": r"(?i)no (metadata )?leader|has NO quorum|lost quorum",
    "no_space": r"(?i)no space left|out of (file )?resources|insufficient (storage )?resources|disk is full",
    "slow_consumer": r"(?i)slow consumer",
    "authentication": r"(?i)authentication (error|timeout)|authorization violation",
    "route": r"^(Route connection|Error trying to connect to route|Detected route|.*Router connection closed)",
    "storage": r"(?i)corrupt|checksum|bad message|error (recovering|loading|writing)|write error",
    "catch_up": r"(?i)catchup|resetting (stream|consumer|wal|cluster)",
    "slow": r"(?i)took too long|high (processing|api)|readloop processing time|internal subscription .* took",
}


def columns(*parts: str | Sequence[Field], without: Sequence[str] = ()) -> str:
    """Return fields, and parts that already are SQL, as a Spark SQL schema."""
    found = (
        part if isinstance(part, str) else ", ".join(f"{of.name} {of.type}" for of in part if of.name not in without)
        for part in parts
    )
    return ", ".join(part for part in found if part)


def reported_columns(table: Reported, *without: str) -> str:
    """Return the columns of a table that has all fields of one bronze table except some, as a Spark SQL schema."""
    return columns(ENVELOPE, table.keys, "taken timestamp", table.fields, "extra variant", without=without)


def table_rows(table: Reported, bronze: Bronze) -> DataFrame:
    """Return a row for each line of a bronze table."""
    return rows(bronze, table.keys, table.fields, config=table.config)


#: The fields that all advisories have (server/jetstream_events.go); other fields are in `extra`.
ADVISORY = (
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


# --- tables that combine or interpret lines -----------------------------------------------------------------------------

_SERVER_KEY = ("fleet", "snapshot", "server_id")


def with_domains(frame: DataFrame, server_rows: DataFrame) -> DataFrame:
    """Return rows with a domain, including those of older collectors, whose lines have none: they get the domain of the server
    that reported them, and rows without a server get the fleet's only one. `server_rows`: the table servers."""
    by_id = server_rows.groupBy("fleet", "server_id").agg(F.max("domain").alias("of_server"))
    only = F.when(F.min("domain") == F.max("domain"), F.max("domain")).alias("of_fleet")
    joined = frame.join(F.broadcast(by_id), on=["fleet", "server_id"], how="left").join(
        F.broadcast(server_rows.groupBy("fleet").agg(only)), on="fleet", how="left"
    )
    domain = F.coalesce("domain", "of_server", "of_fleet", F.lit(""))
    return joined.withColumn("domain", domain).select(*frame.columns)


def servers(reported: Bronze, varz: Bronze, jsz: Bronze, healthz: Bronze) -> DataFrame:
    """Return a row for each server that answered, with null for each missing answer."""
    joined = table_rows(SERVERS, reported)
    for spec, lines, name in ((VARZ, varz, "varz"), (JSZ, jsz, "jsz"), (HEALTH, healthz, "healthz")):
        side = table_rows(spec, lines).select(
            *_SERVER_KEY,
            *(field.name for field in spec.fields),
            F.col("extra").alias(f"{name}_extra"),
            F.lit(True).alias(f"{name}_reported"),
        )
        joined = joined.join(side, on=list(_SERVER_KEY), how="left")
    return joined.withColumn("domain", F.coalesce("domain", "js_domain", F.lit("")))


def meta_peers(server_rows: DataFrame, names: DataFrame) -> DataFrame:
    """Return a row for each member of the meta group in the view of each server. The leader's own row is added, because it is not
    among its replicas. Only the leader's report about the others is reliable (from 2.12.5 and 2.14 on)."""
    view = _with_peer_names(server_rows.where(F.col("meta_size").isNotNull()), "meta_replicas", names).select(
        *SNAPSHOT,
        "domain",
        "server_id",
        "server",
        "cluster",
        F.col("meta_leader").alias("leader"),
        F.col("meta_size").alias("cluster_size"),
        (F.col("meta_leader") == F.col("server")).alias("by_leader"),
        F.col("meta_replicas").alias("replicas"),
    )
    others = view.withColumn("reported", F.explode("replicas")).select(
        *(name for name in view.columns if name != "replicas"), *_peer_columns(F.col("reported"))
    )
    own = view.where("by_leader").select(
        *(name for name in view.columns if name != "replicas"),
        F.col("server").alias("peer"),
        peer_id(F.col("server")).alias("peer_id"),
        F.lit(True).alias("current"),
        F.lit(False).alias("offline"),
        F.lit(0.0).alias("active"),
        F.lit(0).cast("bigint").alias("lag"),
    )
    return others.unionByName(own)


def _is_unknown(name: Column) -> Column:
    """Return whether a server has no name for a peer because they never met ("Server name unknown at this time")."""
    return name.isNull() | (name == "") | name.contains(" ")


def peer_name(name: Column, peer_id: Column) -> Column:
    """Return a peer's name, or its id if the reporting server has no name for it."""
    return F.when(_is_unknown(name), peer_id).otherwise(name)


#: The digits of a server's id in its Raft groups (server/sublist.go getHash).
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def peer_id(name: Column) -> Column:
    """Return the id of a server in its Raft groups: 8 characters from the SHA-256 of its name."""
    digest = F.sha2(name.cast("binary"), 256)
    bytes_ = (F.conv(F.substring(digest, 2 * byte + 1, 2), 16, 10).cast("int") for byte in range(8))
    return F.concat(*(F.substring(F.lit(_DIGITS), byte % F.lit(len(_DIGITS)) + F.lit(1), F.lit(1)) for byte in bytes_))


def server_names(lines: Bronze) -> DataFrame:
    """Return a row for each name of a server in an hour, including expected ones that did not answer: its ids (a new one after
    each start; several at the same time mean several servers with one name), and the number of snapshots in which it answered."""
    reported = rows(lines, (FAILURE,), ())
    answered = F.col("failure").isNull()
    return (
        reported.withColumn("taken", F.date_trunc("hour", "taken"))
        .groupBy("fleet", "taken", "server")
        .agg(
            F.sort_array(F.collect_set(F.when(answered, F.col("server_id")))).alias("server_ids"),
            F.sort_array(F.collect_set(F.when(answered, F.col("cluster")))).alias("clusters"),
            F.count_distinct(F.when(answered, F.col("snapshot"))).alias("snapshots"),
            F.max(F.when(answered, F.col("received"))).alias("received"),
        )
        .withColumn("peer_id", peer_id(F.col("server")))
    )


def _by_id(names: DataFrame) -> DataFrame:
    """Return the names of each fleet's servers by their peer ids as `names`."""
    by_id = F.map_from_entries(F.collect_set(F.struct("peer_id", "server")))
    return F.broadcast(names.where(F.col("server") != "").groupBy("fleet").agg(by_id.alias("names")))


def _with_names(frame: DataFrame, lacks: Column, names: DataFrame) -> DataFrame:
    """Add `lacks`, and the `names` of all servers only if it is true: they make a row as large as the fleet."""
    fleet_names = _by_id(names).withColumn("lacks", F.lit(True))
    reported = frame.withColumn("lacks", F.coalesce(lacks, F.lit(False)))
    return reported.join(fleet_names, on=["fleet", "lacks"], how="left")


def _with_peer_names(frame: DataFrame, peers: str, names: DataFrame) -> DataFrame:
    """Return rows with names for all `peers`: a leader that never met a peer reports only its id. Few rows have such a peer."""
    named = F.transform(
        peers,
        lambda peer: peer.withField(
            "name", peer_name(peer["name"], F.coalesce(F.try_element_at("names", peer["peer"]), peer["peer"]))
        ),
    )
    reported = _with_names(frame, F.exists(peers, lambda peer: _is_unknown(peer["name"])), names)
    return reported.withColumn(peers, F.when(F.col("lacks"), named).otherwise(F.col(peers))).drop("lacks", "names")


def _peer_columns(peer: Column) -> tuple[Column, ...]:
    return (
        peer["name"].alias("peer"),
        peer["peer"].alias("peer_id"),
        F.coalesce(peer["current"], F.lit(False)).alias("current"),
        F.coalesce(peer["offline"], F.lit(False)).alias("offline"),
        (F.coalesce(peer["active"], F.lit(0)) / F.lit(1e9)).alias("active"),
        F.coalesce(peer["lag"], F.lit(0)).cast("bigint").alias("lag"),
    )


def _led(replicas: DataFrame) -> DataFrame:
    """Add whether a replica names itself leader, and whether it lists replicas. A claim without replicas is weaker: a member
    without a running Raft node makes it, too (jetstream_cluster.go clusterInfo). Without a cluster the replica is the leader."""
    leader = F.coalesce(F.col("leader"), F.lit(""))
    claims = (leader == F.col("server")) | (
        F.col("leader").isNull() & F.col("peers").isNull() & F.col("raft_group").isNull()
    )
    return replicas.withColumn("is_leader", claims).withColumn(
        "is_backed", F.col("is_leader") & (F.coalesce(F.size("peers"), F.lit(0)) > 0)
    )


def stream_replicas(lines: Bronze, names: DataFrame) -> DataFrame:
    """Return a row for each replica of a stream, as reported by its server."""
    reported = _with_peer_names(table_rows(STREAM_REPLICAS, lines), "peers", names)
    grouped = reported.withColumn("raft_group", F.coalesce("raft_group", "stream_raft_group")).drop("stream_raft_group")
    lost = {
        "lost_messages": F.coalesce(F.size("lost.msgs"), F.lit(0)),
        "lost_bytes": F.coalesce("lost.bytes", F.lit(0)),
    }
    return _led(grouped).withColumns(lost).drop("lost")


def consumer_replicas(lines: Bronze, names: DataFrame) -> DataFrame:
    """Return a row for each replica of a consumer, as reported by its server. `num_replicas` follows from its configuration and
    that of its stream (consumer.go ConsumerConfig.replicas)."""
    reported = _with_peer_names(table_rows(CONSUMER_REPLICAS, lines), "peers", names)
    grouped = reported.withColumn("raft_group", F.coalesce("raft_group", "line_raft_group")).drop("line_raft_group")
    wanted, durable = F.coalesce("wanted_replicas", F.lit(0)), F.col("durable_name").isNotNull()
    configured = F.coalesce(F.col("stream_replicas"), F.lit(1))
    size = (
        F.when(wanted.between(F.lit(1), configured), wanted)
        .when((wanted == 0) & ~durable & (F.coalesce(F.col("stream_retention"), F.lit("limits")) == "limits"), F.lit(1))
        .otherwise(configured)
    )
    return (
        _led(grouped)
        .withColumns({"num_replicas": size, "durable": durable, "pull": F.col("deliver_subject").isNull()})
        .drop("wanted_replicas", "durable_name", "deliver_subject")
    )


def streams(replicas: DataFrame) -> DataFrame:
    """Return one row for each stream, from its replicas."""
    return groups(replicas, STREAM)


def consumers(replicas: DataFrame) -> DataFrame:
    """Return one row for each consumer, from its replicas."""
    return groups(replicas, CONSUMER)


def raft_groups(lines: Bronze, names: DataFrame) -> DataFrame:
    """Return a row for each member of a Raft group, as it reports itself, with names for the ids of other members."""

    def member_name(name: str) -> Column:
        itself = F.when(F.col(name) == F.col("peer_id"), F.col("server"))
        return F.coalesce(itself, peer_name(F.try_element_at("reported_peers", F.col(name))["name"], F.lit(None)))

    someone = ("leader", "voted_for")
    lacks = F.exists(F.map_values("reported_peers"), lambda reported: _is_unknown(reported["name"]))
    for name in someone:
        lacks |= (F.col(name) != "") & member_name(name).isNull()
    reported = _with_names(table_rows(RAFT_GROUPS, lines), lacks, names)
    peers = F.transform(
        F.map_entries("reported_peers"),
        lambda entry: F.struct(
            entry["key"].alias("peer_id"),
            peer_name(entry["value"]["name"], F.try_element_at("names", entry["key"])).alias("name"),
            entry["value"]["known"].alias("known"),
            entry["value"]["last_replicated_index"].alias("last_replicated_index"),
            entry["value"]["last_seen"].alias("last_seen"),
        ),
    )
    return reported.select(
        *(name for name in reported.columns if name not in ("lacks", "names", "reported_peers")),
        *(
            F.coalesce(member_name(name), F.try_element_at("names", F.col(name))).alias(f"{name}_name")
            for name in someone
        ),
        peers.alias("peers"),
    )


def accounts(statistics: Bronze, jetstream: Bronze) -> DataFrame:
    """Return a row for each account of a server: its connections, traffic and JetStream usage."""
    key = [*_SERVER_KEY, "account"]
    held = table_rows(ACCOUNT_JETSTREAM, jetstream).select(*key, *(field.name for field in ACCOUNT_JETSTREAM.fields))
    return table_rows(ACCOUNT_STATISTICS, statistics).join(held, on=key, how="left")


def account_limits(lines: Bronze) -> DataFrame:
    """Return a row for each account, from the first server that reports it. Limits come from its JWT, -1 for none; for an account
    from a configuration file they are only in its reservations (js_reserved_storage of the table accounts)."""
    reported = table_rows(ACCOUNT_LIMITS, lines)
    return reported.withColumn("expires", F.timestamp_seconds("expires_at")).drop("expires_at")


def server_events(lines: Bronze) -> DataFrame:
    """Return a row for each line of a server's log, once an hour even if several snapshots have it, with its `kind` if it is a
    known one. In older snapshots the time is only in the line itself, and is interpreted as UTC."""
    reported = table_rows(SERVER_LOG, lines)
    form = r"^\[\d+\] (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.?\d*) \[(\w{3})\] (.*)$"
    part = tuple(F.nullif(F.regexp_extract("text", form, group), F.lit("")) for group in (1, 2, 3))
    cut = reported.select(
        "fleet",
        "server",
        "cluster",
        "snapshot",
        "taken",
        F.coalesce("time", F.try_to_timestamp(part[0], F.lit("yyyy/MM/dd HH:mm:ss[.SSSSSS]"))).alias("time"),
        part[1].alias("level"),
        F.coalesce(part[2], F.col("text")).alias("text"),
    )
    known = [F.when(F.col("text").rlike(pattern), F.lit(kind)) for kind, pattern in EVENTS.items()]
    once = ("fleet", "server", "cluster", "time", "level", "text")
    first = F.min_by(F.struct("snapshot", "taken"), "snapshot").alias("first")
    return (
        cut.groupBy(*once, F.date_trunc("hour", "taken").alias("hour"))
        .agg(first, F.count("*").alias("lines"))
        .select("first.*", *once, F.coalesce(*known).alias("kind"), "lines")
    )


#: Seconds since its start in which a connection counts as new.
_YOUNG = 60


def connections(lines: Bronze) -> DataFrame:
    """Return the number of each server's clients by kind, and their sums. A connection that moved between pages counts once;
    `lines` is the number of times it was reported."""
    reported = table_rows(CONNECTIONS, lines)
    traffic = [field.name for field in TRAFFIC]
    server = ("server_id", "server", "cluster", "version", "domain")
    kind = [*SNAPSHOT, *server, "account", "kind", "lang", "lang_version"]
    most = (F.max(name).alias(name) for name in ("rtt", "pending_bytes", "stalls", "start", *traffic))
    once = reported.groupBy(*kind, "cid").agg(F.count("*").alias("lines"), *most)
    young = F.col("start") > F.col("taken") - F.expr(f"INTERVAL {_YOUNG} SECONDS")
    return once.groupBy(*kind).agg(
        F.count("*").alias("connections"),
        F.sum(young.cast("int")).alias("young"),
        F.sum("lines").alias("lines"),
        F.max("rtt").alias("rtt_max"),
        F.max("pending_bytes").alias("pending_bytes_max"),
        *(F.sum(name).alias(name) for name in ("pending_bytes", "stalls", *traffic)),
    )


def failures(lines: Bronze) -> DataFrame:
    """Return a row for each missing answer; `endpoint` is the bronze table, taken from `file`."""
    text = lines.lines
    some = lines if text is None else Bronze(text.where(F.contains("value", F.lit('"failure":'))), lines.columns)
    reported = rows(some, (Field("failure", FAILURE_TYPE),), (), also=("file",))
    return reported.where(F.col("failure").isNotNull()).select(
        *(name for name in reported.columns if name not in ("failure", "file", "extra")),
        F.regexp_extract("file", r"/bronze/([a-z_]+)/", 1).alias("endpoint"),
        "failure.*",
    )


# --- the tables, in the order in which they are computed ----------------------------------------------------------------


@dataclass(frozen=True)
class SilverTable:
    """A silver table: the meaning of a row, its key next to fleet and snapshot, its bronze and silver inputs, its function, and
    its columns as a Spark SQL schema. `lines`: the number of lines of its only bronze table in these rows, as an SQL aggregate;
    empty if the rows do not show it. `joined`: the same for each of several bronze tables. `complete`: whether the columns have
    everything that servers of known versions report."""

    row: str
    key: str
    bronze: tuple[str, ...]
    silver: tuple[str, ...]
    make: Callable[..., DataFrame]
    columns: str
    lines: str = ""
    joined: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False


_SNAPSHOT_KEY = "fleet string, snapshot string, taken timestamp"
#: Columns of a group apart from its figures, which are those of a replica.
_GROUP_COLUMNS = (
    f"cluster string, leader string, leaders {STRINGS}, hosts {STRINGS}, members {STRINGS}, views {STRINGS}"
)
_LED = "is_leader boolean, is_backed boolean"
_STREAM_FIGURES = columns(
    STREAM_REPLICAS.keys,
    STREAM_REPLICAS.fields,
    STREAM_REPLICAS.config,
    f"lost_messages int, lost_bytes bigint, {CONFIG_HASH} string",
    without=("leader", "stream_raft_group", "lost"),
)
_CONSUMER_FIGURES = columns(
    CONSUMER_REPLICAS.keys,
    CONSUMER_REPLICAS.fields,
    CONSUMER_REPLICAS.config,
    f"num_replicas int, durable boolean, pull boolean, {CONFIG_HASH} string",
    without=("leader", "line_raft_group", "wanted_replicas", "durable_name", "deliver_subject"),
)
_REPLICA_COLUMNS = columns(ENVELOPE, "taken timestamp, leader string", _LED, "extra variant")
_STREAM, _CONSUMER = ", ".join(STREAM), ", ".join(CONSUMER)
_NAMES = ("server_names",)
TABLES: dict[str, SilverTable] = {
    "server_names": SilverTable(
        "name of a server in an hour, including one that was only expected",
        "server",
        ("servers",),
        (),
        server_names,
        f"fleet string, taken timestamp, server string, server_ids {STRINGS}, clusters {STRINGS}, snapshots bigint, "
        "received timestamp, peer_id string",
    ),
    "servers": SilverTable(
        "server that answered",
        "server_id",
        ("servers", "varz", "jsz", "healthz"),
        (),
        servers,
        columns(
            reported_columns(SERVERS),
            *(
                columns(spec.fields, f"{name}_extra variant, {name}_reported boolean")
                for name, spec in (("varz", VARZ), ("jsz", JSZ), ("healthz", HEALTH))
            ),
        ),
        joined={"servers": "count(*)", **{name: f"count({name}_reported)" for name in ("varz", "jsz", "healthz")}},
    ),
    "meta_peers": SilverTable(
        "member of the meta group in the view of one server",
        "server_id, peer",
        (),
        ("servers", *_NAMES),
        meta_peers,
        f"{_SNAPSHOT_KEY}, domain string, server_id string, server string, cluster string, leader string, cluster_size bigint, "
        "by_leader boolean, peer string, peer_id string, current boolean, offline boolean, active double, lag bigint",
    ),
    "stream_replicas": SilverTable(
        "replica of a stream",
        f"server_id, {_STREAM}",
        ("jsz_streams",),
        _NAMES,
        stream_replicas,
        columns(_REPLICA_COLUMNS, _STREAM_FIGURES),
        "count(*)",
        complete=True,
    ),
    "streams": SilverTable(
        "stream, as reported by its leader",
        _STREAM,
        (),
        ("stream_replicas",),
        streams,
        columns(_SNAPSHOT_KEY, _GROUP_COLUMNS, "domain string, quorum bigint", _STREAM_FIGURES),
    ),
    "consumer_replicas": SilverTable(
        "replica of a consumer",
        f"server_id, {_CONSUMER}",
        ("jsz_consumers",),
        _NAMES,
        consumer_replicas,
        columns(_REPLICA_COLUMNS, _CONSUMER_FIGURES),
        "count(*)",
        complete=True,
    ),
    "consumers": SilverTable(
        "consumer, as reported by its leader",
        _CONSUMER,
        (),
        ("consumer_replicas",),
        consumers,
        columns(_SNAPSHOT_KEY, _GROUP_COLUMNS, "domain string, quorum bigint", _CONSUMER_FIGURES),
    ),
    "raft_groups": SilverTable(
        "member of a Raft group",
        "server_id, account, raft_group",
        ("raftz",),
        _NAMES,
        raft_groups,
        columns(
            reported_columns(RAFT_GROUPS, "reported_peers"),
            "leader_name string, voted_for_name string, peers array<struct<peer_id:string,name:string,known:boolean,"
            "last_replicated_index:bigint,last_seen:double>>",
        ),
        "count(*)",
        complete=True,
    ),
    "ipqueues": SilverTable(
        "internal queue that is not empty",
        "server_id, queue",
        ("ipqueuesz",),
        (),
        partial(table_rows, IPQUEUES),
        reported_columns(IPQUEUES),
        "count(*)",
    ),
    "routes": SilverTable(
        "route", "server_id, cid", ("routez",), (), partial(table_rows, ROUTES), reported_columns(ROUTES), "count(*)"
    ),
    "gateways": SilverTable(
        "gateway connection",
        "server_id, cid",
        ("gatewayz",),
        (),
        partial(table_rows, GATEWAYS),
        reported_columns(GATEWAYS),
        "count(*)",
    ),
    "leafnodes": SilverTable(
        "leafnode connection",
        "server_id, cid",
        ("leafz",),
        (),
        partial(table_rows, LEAFNODES),
        reported_columns(LEAFNODES),
        "count(*)",
    ),
    "accounts": SilverTable(
        "account of a server",
        "server_id, account",
        ("accstatz", "jsz_accounts"),
        (),
        accounts,
        columns(reported_columns(ACCOUNT_STATISTICS), ACCOUNT_JETSTREAM.fields),
    ),
    "account_limits": SilverTable(
        "account",
        "account",
        ("accountz",),
        (),
        account_limits,
        columns(reported_columns(ACCOUNT_LIMITS, "expires_at"), "expires timestamp"),
        "count(*)",
    ),
    "server_events": SilverTable(
        "line of a server's log, once in an hour",
        "server, time, text",
        ("server_log",),
        (),
        server_events,
        f"{_SNAPSHOT_KEY}, server string, cluster string, time timestamp, level string, text string, kind string, lines bigint",
        "sum(lines)",
    ),
    "backups": SilverTable(
        "stream in the query of the backup catalogue",
        _STREAM,
        ("backups",),
        (),
        partial(table_rows, BACKUPS),
        reported_columns(BACKUPS),
        "count(*)",
    ),
    "drift": SilverTable(
        "document of assets in the last comparison",
        "account, document",
        ("drift",),
        (),
        partial(table_rows, DRIFT),
        reported_columns(DRIFT),
        "count(*)",
    ),
    "jwts": SilverTable(
        "JWT that expires; the users of a role have one row",
        "account, kind, role, subject",
        ("jwts",),
        (),
        partial(table_rows, JWTS),
        reported_columns(JWTS),
        "count(*)",
    ),
    "hosts": SilverTable(
        "host, with figures that were read on the host itself",
        "server",
        ("hosts",),
        (),
        partial(table_rows, HOSTS),
        reported_columns(HOSTS),
        "count(*)",
    ),
    "connections": SilverTable(
        "kind of clients",
        "server_id, account, kind, lang, lang_version",
        ("connz",),
        (),
        connections,
        columns(
            f"{_SNAPSHOT_KEY}, server_id string, server string, cluster string, version string, domain string, account string, "
            "kind string, lang string, lang_version string, connections bigint, young bigint, lines bigint, rtt_max double, "
            "pending_bytes bigint, pending_bytes_max bigint, stalls bigint",
            TRAFFIC,
        ),
        "sum(lines)",
    ),
}


def counted() -> set[str]:
    """Return the bronze tables whose lines the rows of silver count."""
    tables = TABLES.values()
    return {table.bronze[0] for table in tables if table.lines} | {name for table in tables for name in table.joined}


#: The bronze tables for which silver has the number of lines by hour, not by snapshot.
HOURLY = ("server_log",)

#: The columns of all silver tables, as Spark SQL schemas for reading: a new column is null in older files.
COLUMNS: dict[str, str] = {
    **{name: table.columns for name, table in TABLES.items()},
    "snapshots": f"{_SNAPSHOT_KEY}, ended timestamp, source string, servers int, servers_known int, missing {STRINGS}, "
    "complete boolean, failures int, clock_offset_min double, clock_offset_median double, clock_offset_max double, "
    f"slowest_rtt double, asked {STRINGS}, sequence bigint",
    "failures": columns(ENVELOPE, "taken timestamp, endpoint string, code string, description string, subject string"),
    "quarantine": "file string, reason string, value string, taken timestamp",
    "advisories": columns(
        "fleet string, taken timestamp, captured_account string, subject string, seq bigint",
        ADVISORY,
        "extra variant, kind string",
    ),
}
