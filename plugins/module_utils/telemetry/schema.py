# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of snapshots: the columns of each bronze table, their types, and their places in the servers' reports.
Pure.

Snapshots with typed columns are written from these definitions, and the pipeline uses the same definitions to read both
these snapshots and JSON lines (jetstream_insights.fields). The columns have the same names in the silver tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

#: How a value is converted: unchanged; from nanoseconds; from text such as 1h2m3.5s; or kept as its JSON text.
AS_REPORTED, NANOSECONDS, DURATION, JSON = "as reported", "nanoseconds", "duration", "JSON"


@dataclass(frozen=True)
class Field:
    """A column: its name, its Spark SQL type, its path in the document (by default its name), and how the value is
    converted to seconds. Inside a type, `duration` is a double in seconds that is reported as text such as 1h2m3.5s."""

    name: str
    type: str
    path: str = ""
    reported: str = AS_REPORTED

    @property
    def keys(self) -> list[str]:
        """Return the keys on the path."""
        return (self.path or self.name).split(".")

    @property
    def json_path(self) -> str:
        """Return the path in the notation of VARIANT functions."""
        return f"$.{self.path or self.name}"

    @property
    def stored(self) -> str:
        """Return the Spark SQL type of the column in snapshots with typed columns."""
        if self.is_text:
            return "string"
        return "double" if self.reported in (NANOSECONDS, DURATION) else self.type.replace(":duration", ":double")

    @property
    def is_text(self) -> bool:
        """Return whether the column is read as its JSON text."""
        return self.reported == JSON or "variant" in self.type


@dataclass(frozen=True)
class Reported:
    """A table with a row for each item of a list that servers report: its keys in addition to the server, and its
    columns. `config`: fields that are read from the column `config`, which contains the text of a configuration."""

    keys: tuple[Field, ...]
    fields: tuple[Field, ...]
    config: tuple[Field, ...] = ()


#: The fields, by the keys on their paths.
Tree = dict[str, Union[Field, "Tree"]]


def field_tree(fields: Sequence[Field]) -> Tree:
    root: Tree = {}
    for field in fields:
        *above, name = field.keys
        node = root
        for key in above:
            below = node.setdefault(key, {})
            if not isinstance(below, dict):
                raise AssertionError(field)
            node = below
        node[name] = field
    return root


@dataclass(frozen=True)
class Type:
    """A Spark SQL type. `kind` is `array` or `map` (with `item`), `struct` (with `members`), or the name of another
    type."""

    kind: str
    item: Type | None = None
    members: tuple[tuple[str, Type], ...] = ()


def parse_type(text: str) -> Type:
    """Return the type described by `array<T>`, `map<string,T>`, `struct<NAME:T,…>` or a name."""
    return _type(iter(re.findall(r"\w+|[<>:,]", text)))


def _type(words: Iterator[str]) -> Type:
    kind = next(words)
    if kind == "struct":
        members, mark = [], next(words)
        while mark != ">":
            name, _colon = next(words), next(words)
            members.append((name, _type(words)))
            mark = next(words)
        return Type(kind, members=tuple(members))
    if kind in ("array", "map"):
        next(words)
        if kind == "map" and (next(words), next(words)) != ("string", ","):
            raise AssertionError("the keys of a map are strings")
        item = _type(words)
        next(words)
        return Type(kind, item)
    return Type(kind)


#: The SHA-256 of the effective text of a configuration, and the column of typed snapshots that contains this hash and
#: the fields of the configuration. Older snapshots have only the text, or a `config_hash` of the complete text.
CONFIG_HASH, EFFECTIVE_HASH, CONFIG_FIELDS = "config_hash", "effective_hash", "config_fields"

#: A field that has no effect: its value is Go's zero or "none", or it is a key in which the server notes its own API
#: level.
_IDLE = r'"(?:[a-z_]+":(?:false|0|""|null|\[\]|\{\}|"none")|_nats\.[a-z.]+":"[^"\\]*")'
#: Patterns that remove fields without effect. All servers write the fields in the same order, but newer ones write more
#: fields without effect, and the name of a durable twice. The patterns are applied twice, because an outer field may
#: have no effect once its inner fields are removed. Quotation marks in a text are escaped with a backslash.
IDLE_FIELDS = (
    (r'("durable_name":"[^"\\]*"),"name":"[^"\\]*"', 1),
    *((rf"(?<=[{{,]){_IDLE},", 0), (rf"(?:,|(?<=\{{)){_IDLE}(?=\}})", 0)) * 2,
)


def effective(config: str) -> str:
    """Return the text of a configuration without the fields that have no effect."""
    for pattern, kept in IDLE_FIELDS:
        config = re.sub(pattern, r"\1" if kept else "", config)
    return config


def config_type(config: Sequence[Field]) -> str:
    """Return the Spark SQL type of the column with the fields read from a configuration."""
    members = (
        f"{name}:{type_}" for name, type_ in ((EFFECTIVE_HASH, "string"), *((of.name, of.stored) for of in config))
    )
    return f"struct<{','.join(members)}>"


#: Columns that describe the line itself; `taken` is in the name of the snapshot.
ENVELOPE = (
    Field("fleet", "string"),
    Field("snapshot", "string"),
    Field("server_id", "string"),
    Field("server", "string"),
    Field("cluster", "string"),
    Field("version", "string"),
    Field("received", "timestamp"),
    Field("domain", "string"),
)
#: Why a line has no data, if it reports a failure.
FAILURE = Field("failure", "string", reported=JSON)
#: The members of a failure.
FAILURE_TYPE = "struct<code:string,description:string,subject:string>"

PEERS = "array<struct<name:string,peer:string,current:boolean,offline:boolean,active:bigint,lag:bigint,pending:bigint>>"
#: A stream's report on its mirror or source.
ORIGIN = (
    "struct<name:string,lag:bigint,active:bigint,filter_subject:string,subject_transforms:array<struct<src:string,dest:string>>,"
    "external:struct<api:string,deliver:string>,error:struct<code:int,err_code:int,description:string>>"
)
STRINGS = "array<string>"
_HEALTH_ERRORS = "array<struct<type:string,account:string,stream:string,consumer:string,error:string>>"


def same(type_: str, *names: str, under: str = "", prefix: str = "") -> tuple[Field, ...]:
    """Return fields of one type whose names are the same as the server's."""
    return tuple(Field(f"{prefix}{name}", type_, f"{under}.{name}" if under else name) for name in names)


SERVERS = Reported(
    (),
    (
        *same("string", "host"),
        Field("js_domain", "string", "domain"),
        *same(STRINGS, "tags"),
        *same("boolean", "jetstream"),
        *same("double", "uptime", "rtt", "clock_offset"),
        *same("bigint", "known_servers"),
    ),
)

VARZ = Reported(
    (),
    (
        *same("timestamp", "start", "now", "config_load_time", "tls_cert_not_after"),
        *same("string", "config_digest", "system_account", "git_commit"),
        *same("double", "cpu"),
        *same("bigint", "mem", "cores", "gomaxprocs", "gomemlimit", "max_payload", "max_connections", "connections"),
        *same("bigint", "total_connections", "routes", "remotes", "leafnodes", "subscriptions", "slow_consumers"),
        *same("bigint", "stale_connections", "stalled_clients", "in_msgs", "out_msgs", "in_bytes", "out_bytes"),
        *same("boolean", "auth_required", "tls_required", "tls_verify"),
        *same("string", "store_dir", "unique_tag", under="jetstream.config", prefix="js_"),
        Field("js_sync_interval", "double", "jetstream.config.sync_interval", NANOSECONDS),
        Field("js_sync_always", "boolean", "jetstream.config.sync_always"),
        Field("route_pool_size", "bigint", "cluster.pool_size"),
    ),
)

JSZ = Reported(
    (),
    (
        Field("js_disabled", "boolean", "disabled"),
        *same(
            "bigint", "memory", "storage", "reserved_memory", "reserved_storage", "accounts", "ha_assets", prefix="js_"
        ),
        *same(
            "bigint", "streams", "consumers", "messages", "bytes", "streams_leader", "consumers_leader", prefix="js_"
        ),
        *same("bigint", "total", "errors", "inflight", "level", under="api", prefix="js_api_"),
        *same("bigint", "max_memory", "max_storage", under="config", prefix="js_"),
        Field("js_max_ha_assets", "bigint", "limits.max_ha_assets"),
        Field("meta_leader", "string", "meta_cluster.leader"),
        Field("meta_peer", "string", "meta_cluster.peer"),
        Field("meta_size", "bigint", "meta_cluster.cluster_size"),
        Field("meta_pending", "bigint", "meta_cluster.pending"),
        Field("meta_quorum_needed", "bigint", "meta_cluster.quorum_needed"),
        Field("meta_replicas", PEERS, "meta_cluster.replicas"),
        *same("bigint", "pending_entries", "pending_size", under="meta_cluster.snapshot", prefix="meta_snapshot_"),
        Field("meta_snapshot_duration", "double", "meta_cluster.snapshot.last_duration", NANOSECONDS),
        Field("meta_snapshot_time", "timestamp", "meta_cluster.snapshot.last_time"),
    ),
)

HEALTH = Reported(
    (),
    (
        Field("health", "string", "status"),
        Field("health_code", "int", "status_code"),
        Field("health_error", "string", "error"),
        Field("health_errors", _HEALTH_ERRORS, "errors"),
    ),
)

#: A stream's or consumer's report on its Raft group.
_GROUP = (
    *same("string", "leader", "raft_group", "traffic_account", under="cluster"),
    Field("system_account", "boolean", "cluster.system_account"),
    Field("group_cluster", "string", "cluster.name"),
    Field("leader_since", "timestamp", "cluster.leader_since"),
    Field("peers", PEERS, "cluster.replicas"),
)

STREAM_REPLICAS = Reported(
    (Field("account", "string"),),
    (
        Field("stream", "string", "name"),
        *same("timestamp", "created"),
        *same("bigint", "messages", "bytes", "first_seq", "last_seq", under="state"),
        *same("bigint", "num_subjects", "num_deleted", "consumer_count", under="state"),
        *same("timestamp", "first_ts", "last_ts", under="state"),
        Field("lost", "struct<msgs:array<bigint>,bytes:bigint>", "state.lost"),
        *_GROUP,
        Field("desired", "variant", "cluster.desired"),
        Field("mirror", ORIGIN),
        Field("sources", f"array<{ORIGIN}>"),
        Field("stream_raft_group", "string"),
        Field("config", "string", reported=JSON),
    ),
    (
        *same("int", "num_replicas"),
        *same("string", "storage", "retention", "discard", "compression"),
        *same("bigint", "max_bytes", "max_msgs", "max_consumers"),
        Field("max_age", "double", reported=NANOSECONDS),
        Field("placement_cluster", "string", "placement.cluster"),
        Field("placement_tags", STRINGS, "placement.tags"),
        Field("metadata", "map<string,string>"),
    ),
)

_CONSUMER_KEYS = (
    Field("account", "string"),
    Field("line_raft_group", "string", "raft_group"),
    Field("stream_replicas", "int"),
    Field("stream_retention", "string"),
)
CONSUMER_REPLICAS = Reported(
    _CONSUMER_KEYS,
    (
        Field("stream", "string", "stream_name"),
        Field("consumer", "string", "name"),
        *same("timestamp", "created"),
        *same("bigint", "num_ack_pending", "num_redelivered", "num_waiting", "num_pending"),
        *same("boolean", "push_bound", "paused"),
        *same("bigint", "consumer_seq", "stream_seq", under="delivered", prefix="delivered_"),
        *same("bigint", "consumer_seq", "stream_seq", under="ack_floor", prefix="ack_floor_"),
        Field("last_delivered", "timestamp", "delivered.last_active"),
        Field("last_acked", "timestamp", "ack_floor.last_active"),
        *_GROUP,
        Field("reported_at", "timestamp", "ts"),
        Field("config", "string", reported=JSON),
    ),
    (
        Field("wanted_replicas", "int", "num_replicas"),
        *same("string", "durable_name", "deliver_subject", "ack_policy"),
        *same("bigint", "max_deliver", "max_ack_pending", "max_waiting"),
        Field("ack_wait", "double", reported=NANOSECONDS),
        Field("metadata", "map<string,string>"),
    ),
)

_RAFT_PEERS = "map<string,struct<name:string,known:boolean,last_replicated_index:bigint,last_seen:duration>>"
RAFT_GROUPS = Reported(
    (Field("account", "string"), Field("raft_group", "string")),
    (
        *same("string", "state", "leader", "voted_for", "wal_error", "traffic_account"),
        Field("peer_id", "string", "id"),
        *same("bigint", "size", "quorum_needed", "committed", "applied", "term", "pterm", "pindex", "overrun_count"),
        *same("bigint", "ipq_proposal_len", "ipq_entry_len", "ipq_resp_len", "ipq_apply_len"),
        *same("boolean", "observer", "paused", "overrun", "catching_up", "ever_had_leader", "system_account"),
        *same("timestamp", "leader_since"),
        *same("bigint", "messages", "bytes", "first_seq", "last_seq", "consumer_count", under="wal", prefix="wal_"),
        *same("timestamp", "first_ts", "last_ts", under="wal", prefix="wal_"),
        Field("reported_peers", _RAFT_PEERS, "peers"),
    ),
)
IPQUEUES = Reported((Field("queue", "string"),), same("bigint", "pending", "in_progress"))

TRAFFIC = same("bigint", "in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
ROUTES = Reported(
    (),
    (
        Field("cid", "bigint", "rid"),
        *same("string", "remote_id", "remote_name", "ip", "account", "compression"),
        *same("boolean", "did_solicit", "is_configured"),
        *same("bigint", "port", "pending_size"),
        *same("timestamp", "start", "last_activity"),
        Field("rtt", "double", reported=DURATION),
        *TRAFFIC,
    ),
)
GATEWAYS = Reported(
    (Field("gateway", "string"), Field("direction", "string"), Field("configured", "boolean")),
    (
        *same("bigint", "cid", "port", "pending_bytes"),
        *same("string", "name", "ip"),
        *same("timestamp", "start", "last_activity"),
        Field("rtt", "double", reported=DURATION),
        *TRAFFIC,
    ),
)
LEAFNODES = Reported(
    (),
    (
        Field("cid", "bigint", "id"),
        *same("string", "name", "account", "ip", "compression"),
        *same("bigint", "port"),
        *same("boolean", "is_spoke", "is_isolated"),
        Field("rtt", "double", reported=DURATION),
        *TRAFFIC,
    ),
)

_ACCOUNT_KEY = (Field("account", "string"),)
ACCOUNT_STATISTICS = Reported(
    _ACCOUNT_KEY,
    (
        Field("connections", "bigint", "conns"),
        *same("bigint", "leafnodes", "total_conns", "num_subscriptions", "slow_consumers"),
        *same("bigint", "msgs", "bytes", under="sent", prefix="sent_"),
        *same("bigint", "msgs", "bytes", under="received", prefix="received_"),
    ),
)
ACCOUNT_JETSTREAM = Reported(
    _ACCOUNT_KEY,
    (
        # An account is identified by its public key if it has one.
        Field("account_name", "string", "name"),
        *same("bigint", "memory", "storage", "reserved_memory", "reserved_storage", "ha_assets", prefix="js_"),
    ),
)

ACCOUNT_LIMITS = Reported(
    _ACCOUNT_KEY,
    (
        *same("string", "name_tag"),
        *same("boolean", "is_system", "expired", "complete"),
        Field("jetstream", "boolean", "jetstream_enabled"),
        Field("expires_at", "bigint", "expires"),
        *same("bigint", "conn", "leaf", "subs", "payload", "data", "imports", "exports", under="limits", prefix="max_"),
        *same("bigint", "mem_storage", "disk_storage", "streams", "consumer", under="limits", prefix="js_max_"),
        *same(
            "bigint", "mem_max_stream_bytes", "disk_max_stream_bytes", "max_ack_pending", under="limits", prefix="js_"
        ),
        Field("js_max_bytes_required", "boolean", "limits.max_bytes_required"),
        Field("js_tiers", "map<string,variant>", "limits.tiered_limits"),
    ),
)

SERVER_LOG = Reported((), (Field("time", "timestamp"), Field("text", "string")))
BACKUPS = Reported(
    same("string", "account", "stream"),
    (
        *same("boolean", "excluded"),
        *same("timestamp", "saved", "drilled", "proven"),
        *same("string", "account_name", "problem", "drill_problem", "future_backup"),
        *same("double", "restore_seconds"),
    ),
)
DRIFT = Reported(
    same("string", "account", "document"),
    (*same("timestamp", "checked"), *same("bigint", "assets", "drifting"), *same("string", "reason")),
)

#: The urgency is the severity by accounts/expiry.py, as of the snapshot; it is empty while the expiry is far away.
JWTS = Reported(
    _ACCOUNT_KEY,
    (
        *same("string", "kind", "account_name", "role", "subject", "name", "urgency", "text"),
        *same("timestamp", "expires"),
        *same("bigint", "connections"),
    ),
)

HOSTS = Reported(
    (), (*same("string", "config_digest"), *same("bigint", "open_files", "plaintext_passwords", "disk_free"))
)

CONNECTIONS = Reported(
    (),
    (
        *same("bigint", "cid", "pending_bytes", "stalls"),
        *same("string", "kind", "account", "name", "lang", "tls_version"),
        *same("timestamp", "start"),
        Field("lang_version", "string", "version"),
        Field("rtt", "double", reported=DURATION),
        *TRAFFIC,
    ),
)


#: The tables of bronze.
TABLES: Mapping[str, Reported] = {
    "servers": SERVERS,
    "varz": VARZ,
    "jsz": JSZ,
    "healthz": HEALTH,
    "jsz_accounts": ACCOUNT_JETSTREAM,
    "jsz_streams": STREAM_REPLICAS,
    "jsz_consumers": CONSUMER_REPLICAS,
    "raftz": RAFT_GROUPS,
    "ipqueuesz": IPQUEUES,
    "routez": ROUTES,
    "gatewayz": GATEWAYS,
    "leafz": LEAFNODES,
    "accstatz": ACCOUNT_STATISTICS,
    "accountz": ACCOUNT_LIMITS,
    "connz": CONNECTIONS,
    "server_log": SERVER_LOG,
    "backups": BACKUPS,
    "drift": DRIFT,
    "jwts": JWTS,
    "hosts": HOSTS,
}
