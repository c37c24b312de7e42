# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The columns of the gold tables: a public contract. docs/reference/insights_tables.md lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jetstream_insights.gold.counters import Counters
from jetstream_insights.gold.tables import DAY, DOMAIN, GROUP, MOMENT, Col
from jetstream_insights.keys import ACCOUNT, CONSUMER, STREAM

REPLICAS = "array<struct<name:string,id:string,leader:boolean,current:boolean,online:boolean,active:double,lag:bigint>>"
_MEMBERS = Col("members", "array<string>", "every server that any member lists in the group")
_REPLICAS = Col(
    "replicas",
    REPLICAS,
    "the members as reported by the sole leader, the leader included; empty without a sole leader. `active` in seconds",
)
_VOTES = (
    Col("num_replicas", "int", "configured number of members"),
    Col("quorum", "int", "members needed for a majority: num_replicas / 2 + 1"),
    Col("leader", "string", "leader; null if no server or more than one server claims to lead"),
    Col("leaders", "array<string>", "servers that claim to lead"),
    _MEMBERS,
    Col("hosts", "array<string>", "servers that reported it"),
    _REPLICAS,
)

# --- report -------------------------------------------------------------------------------------------------------------

MOMENTS = (
    *DAY,
    Col("snapshot", "string", "a snapshot of the day"),
    Col("taken", "timestamp", "start of the snapshot"),
    Col("number", "int", "position among the fleet's snapshots of the day, from 1"),
    Col("complete", "boolean", "whether every known server answered every request"),
    Col("absent", "array<string>", "servers that did not answer: expected ones, and members of the meta group"),
    Col("disabled", "array<string>", "servers that answered but have JetStream disabled"),
    Col(
        "silent", "array<string>", "absent and disabled servers, and servers that returned no JSZ or an incomplete one"
    ),
)
REPORT_FLEET = (
    *MOMENT,
    Col("servers", "int", "servers that answered"),
    Col("missing", "array<string>", "servers that did not answer: expected ones, and members of the meta group"),
    Col("complete", "boolean", "whether every known server answered every request"),
    Col("versions", "array<string>", "distinct versions of the servers"),
    Col(
        "meta_leader",
        "string",
        "leader of the meta group; with several domains one for each in their order, `?` for none",
    ),
    Col("connections", "bigint", "client connections"),
    Col("streams", "bigint", "streams, each counted once"),
    Col("consumers", "bigint", "consumers, each counted once"),
    Col("messages", "bigint", "messages, each stream counted once, as reported by its leader"),
    Col("bytes", "bigint", "bytes of these messages"),
    Col("replica_bytes", "bigint", "bytes of all replicas"),
    Col("leaderless_streams", "bigint", "streams without a sole leader"),
    Col("leaderless_consumers", "bigint", "consumers without a sole leader"),
)
REPORT_SERVERS = (
    *MOMENT,
    Col("server", "string", "name"),
    Col("server_id", "string", "id, which changes at each start"),
    Col("cluster", "string", "cluster"),
    Col(
        "zone",
        "string",
        "the rest of its first tag with the prefix `unique_tag` of its configuration (else `az:` or `zone:`)",
    ),
    Col("host", "string", "host"),
    Col("version", "string", "version"),
    Col("domain", "string", "JetStream domain: its own, or without JetStream that of its cluster; empty for none"),
    Col("tags", "array<string>", "tags"),
    Col(
        "answered",
        "boolean",
        "false for an expected server or a member of the meta group that did not answer; all other columns are null then",
    ),
    Col("jetstream", "boolean", "whether JetStream is running"),
    *(
        Col(name, "bigint", f"{name.replace('_', ' ')}, from STATSZ")
        for name in ("connections", "subscriptions", "routes", "gateways", "inbound_gateways", "leafnodes")
    ),
    Col("mem", "bigint", "resident memory in bytes"),
    Col("cpu", "double", "percent of one core"),
    Col("cores", "bigint", "cores"),
    Col("slow_consumers", "bigint", "connections closed because the client was too slow, since the start"),
    Col("start", "timestamp", "start of the server, by its own clock"),
    Col("uptime", "double", "seconds since the start"),
    Col("rtt", "double", "round trip to the collector in seconds"),
    Col("clock_offset", "double", "seconds by which its clock is ahead of the collector's, within rtt / 2"),
    Col("health", "string", "status from HEALTHZ; null if it was not reported"),
    Col("health_code", "int", "status code from HEALTHZ"),
    Col("health_errors", "array<string>", "all errors from HEALTHZ"),
    *(
        Col(name, "bigint", meaning)
        for name, meaning in (
            ("streams", "replicas of streams; null, like the next columns, without JetStream or a report of it"),
            ("consumers", "replicas of consumers"),
            ("messages", "messages of its replicas"),
            ("bytes", "bytes of these messages"),
            ("memory", "bytes in memory"),
            ("storage", "bytes in files"),
            ("reserved_memory", "bytes reserved by max_bytes of memory streams"),
            ("reserved_storage", "bytes reserved by max_bytes of file streams"),
            ("max_memory", "memory limit in bytes"),
            ("max_storage", "file storage limit in bytes"),
            ("api_total", "API requests since the start"),
            ("api_errors", "API requests since the start that ended in an error"),
            ("api_level", "API level (0 before 2.11)"),
            ("ha_assets", "replicated Raft groups"),
            ("max_ha_assets", "limit of ha_assets, 0 for none"),
            ("pending", "meta entries not yet applied"),
            ("stream_leaders", "streams that it leads"),
            ("consumer_leaders", "consumers that it leads"),
        )
    ),
    Col("is_meta_leader", "boolean", "whether it leads the meta group"),
)
REPORT_META = (
    *MOMENT,
    DOMAIN,
    Col("leader", "string", "leader; null if no server or more than one server claims to lead"),
    Col("leaders", "array<string>", "servers that claim to lead"),
    Col("size", "int", "members reported by the leader, otherwise the highest number that any server reports"),
    Col("quorum", "int", "members that must be up: size / 2 + 1, or the server's own figure if that is higher"),
    Col("pending", "bigint", "entries that the leader has not yet applied"),
    _MEMBERS,
    _REPLICAS,
    Col("views", "array<struct<server:string,leader:string>>", "the leader that each server reports, empty for none"),
)
REPORT_STREAMS = (
    *MOMENT,
    DOMAIN,
    Col("account", "string", "account"),
    Col("stream", "string", "stream"),
    Col("cluster", "string", "cluster"),
    Col("raft_group", "string", "Raft group"),
    Col("storage", "string", "`file` or `memory`"),
    Col("retention", "string", "retention policy"),
    Col("placement_cluster", "string", "cluster of its placement"),
    Col("placement_tags", "array<string>", "tags of its placement"),
    Col("consumers", "bigint", "consumers that any server reports"),
    *(
        Col(name, "bigint", f"{name.replace('_', ' ')}, as reported by the leader")
        for name in ("messages", "bytes", "first_seq", "last_seq", "num_deleted", "lost_messages", "lost_bytes")
    ),
    Col("api_level", "int", "API level that a server needs to serve it"),
    *_VOTES,
    Col("moving", "boolean", "whether it is being moved or reconfigured (2.15)"),
    Col(
        "write_bytes",
        "double",
        "bytes per second over the day: rise of last_seq × mean size of the stored messages; null with a single snapshot",
    ),
)
REPORT_BACKUPS = (
    *MOMENT,
    DOMAIN,
    Col("account", "string", "account"),
    Col("stream", "string", "stream that the backup catalogue was queried for"),
    Col("excluded", "boolean", "whether the last run was configured to skip it"),
    Col("last_backup", "timestamp", "last time its state was found equal to its newest backup; null for never"),
    Col("problem", "string", "why the last run did not save it; empty if it did"),
    Col("last_proven", "timestamp", "the last drill that restored it; null for never"),
    Col("restore_seconds", "double", "seconds that the restore of the last drill took; null if it failed"),
    Col("drill_problem", "string", "why the last drill failed; empty if it succeeded"),
)
REPORT_CONSUMERS = (
    *MOMENT,
    DOMAIN,
    Col("account", "string", "account"),
    Col("stream", "string", "stream"),
    Col("consumer", "string", "consumer"),
    Col("mode", "string", "`Pull` or `Push`"),
    Col("durable", "boolean", "whether it is durable"),
    Col("ack_policy", "string", "ack policy"),
    Col("ack_wait", "double", "seconds"),
    Col("num_ack_pending", "bigint", "messages delivered but not acknowledged"),
    Col("num_redelivered", "bigint", "messages in num_ack_pending that were delivered more than once"),
    Col("num_pending", "bigint", "messages not yet delivered"),
    Col("unprocessed", "int", "num_pending in percent of the stream's messages, at most 100"),
    Col("ack_floor", "bigint", "stream sequence up to which all messages are acknowledged"),
    Col("api_level", "int", "API level that a server needs to serve it"),
    *_VOTES,
)

# --- balance ------------------------------------------------------------------------------------------------------------

LOAD = (
    *MOMENT,
    Col("server", "string", "a JetStream server that answered"),
    DOMAIN,
    Col("cluster", "string", "cluster"),
    Col("zone", "string", "zone, as in report_servers"),
    Col("stream_leaders", "bigint", "streams that it leads"),
    Col("consumer_leaders", "bigint", "consumers that it leads"),
    Col("replicas", "bigint", "replicas of streams that it holds"),
    Col("consumer_replicas", "bigint", "replicas of consumers that it holds"),
    Col("bytes", "bigint", "bytes of those stream replicas"),
    Col("led_bytes", "bigint", "bytes of the streams that it leads"),
    Col(
        "write_msgs",
        "double",
        "messages per second written to the streams that it leads: rise of last_seq over the day's snapshots",
    ),
    Col(
        "write_bytes",
        "double",
        "bytes per second written to the replicas that it holds: their messages per second × mean message size",
    ),
)
BALANCE = (
    *MOMENT,
    DOMAIN,
    Col("cluster", "string", "cluster"),
    Col("scope", "string", "`server` or `zone`: the units that are compared"),
    Col(
        "measure",
        "string",
        "stream_leaders, consumer_leaders, replicas, consumer_replicas, bytes, led_bytes, write_msgs or write_bytes of "
        "`load`",
    ),
    Col("members", "int", "n: compared servers or zones, including those with a value of 0"),
    Col("total", "double", "sum"),
    Col("mean", "double", "total / n"),
    Col("max", "double", "the largest"),
    Col("max_name", "string", "server or zone with the maximum (the first by name)"),
    Col("min", "double", "the smallest"),
    Col("min_name", "string", "server or zone with the minimum"),
    Col("max_to_mean", "double", "max / mean; 1 is even, n means that one member has everything"),
    Col("cov", "double", "coefficient of variation: population standard deviation / mean"),
    Col(
        "gini",
        "double",
        "Σ(2i − n − 1)·xᵢ / (n·Σx) over the sorted values; 0 is even, (n − 1)/n: one member has everything",
    ),
    Col("optimum", "double", "the lowest possible maximum: ⌈total / n⌉ for counts, total / n for bytes and rates"),
    Col("excess", "double", "max − optimum"),
    Col("distance", "double", "excess / optimum; 0: no improvement is possible"),
)

# --- leadership ---------------------------------------------------------------------------------------------------------

TIMELINE = (
    *DAY,
    *GROUP,
    Col("cluster", "string", "cluster"),
    Col("raft_group", "string", "Raft group"),
    Col("created", "timestamp", "when the stream or consumer was created"),
    Col("run", "int", "number of the interval within the day: consecutive snapshots with an equal report of the group"),
    Col("begin", "timestamp", "first snapshot of the interval"),
    Col("end", "timestamp", "last snapshot of the interval"),
    Col(
        "before",
        "timestamp",
        "the group's previous snapshot; null if there is none within the longest gap",
    ),
    Col("snapshots", "int", "snapshots in the interval"),
    Col("leader", "string", "sole leader"),
    Col("leader_since", "timestamp", "election of the leader, as it reports at the start of the interval"),
    Col(
        "state",
        "string",
        "`ok`, `not_redundant` (quorum, but a replica out of step or missing), `no_quorum`, `no_leader`, `unknown` "
        "(no server reported it, and at least one of its servers was available)",
    ),
    Col(
        "behind",
        "array<string>",
        "members that are out of step (rule of `nats_cluster_health`: offline, inactive for 5 s, 200 entries behind, or not "
        "answering)",
    ),
    _MEMBERS,
    Col("hosts", "array<string>", "servers that reported it at the start of the interval"),
    Col("num_replicas", "int", "configured number of members"),
)
LEADER_CHANGES = (
    *DAY,
    *GROUP,
    Col("raft_group", "string", "Raft group"),
    Col("taken", "timestamp", "the snapshot that shows the change"),
    Col("before", "timestamp", "the previous snapshot: the change happened between the two"),
    Col("old_leader", "string", "previous leader"),
    Col("new_leader", "string", "new leader; equal to old_leader if the same server was elected again"),
    Col("without_leader", "boolean", "whether a snapshot in between showed no leader"),
    Col(
        "dwell",
        "double",
        "seconds that the old leader led: since its leader_since, otherwise since its first snapshot of the day",
    ),
    Col(
        "old_leader_left",
        "boolean",
        "whether the old leader restarted or did not answer between `before` and `taken`",
    ),
    Col("storm", "string", "the storm that the change belongs to"),
    Col("maintenance", "boolean", "whether it falls into a maintenance window"),
)
LEADERSHIP = (
    *DAY,
    *GROUP,
    Col("cluster", "string", "cluster"),
    Col("raft_group", "string", "Raft group"),
    Col("leader", "string", "last leader of the day"),
    Col("leaders", "array<string>", "all leaders of the day"),
    Col("snapshots", "int", "snapshots that show the group"),
    Col("elections", "int", "observed changes of the leader"),
    Col("counted", "int", "elections outside storms and maintenance windows; the next columns cover only these"),
    Col("dwell_p10", "double", "seconds that a leader led before a change, 10th percentile"),
    Col("dwell_p50", "double", "median of the same"),
    Col("most_in_10m", "int", "most elections within ten minutes"),
    Col("flap", "double", "highest score of the day: each election adds 1, and the sum halves every 30 minutes"),
    Col("flap_at", "timestamp", "time of the highest score"),
)
STORMS = (
    *DAY,
    Col("storm", "string", "its name, SERVER@BEGIN"),
    Col("server", "string", "the server that lost the groups"),
    Col("begin", "timestamp", "the snapshot before the first change"),
    Col("end", "timestamp", "the snapshot of the last change"),
    Col("groups", "int", "groups that left the server"),
    Col("streams", "int", "streams among these groups"),
    Col("consumers", "int", "consumers among these groups"),
    Col("meta", "boolean", "whether the meta group is among them"),
    Col("cause", "string", "`upgrade`, `restart`, `missing` or `unknown`"),
    Col("version", "string", "version after an upgrade"),
    Col("maintenance", "boolean", "whether it falls into a maintenance window"),
)

# --- health -------------------------------------------------------------------------------------------------------------

RESTARTS = (
    *DAY,
    Col("server", "string", "server, by name, because its id changes at each start"),
    Col("cluster", "string", "cluster"),
    Col("taken", "timestamp", "first snapshot after the start"),
    Col("before", "timestamp", "last snapshot before the start in which it answered"),
    Col("start", "timestamp", "start of the server, by its own clock"),
    Col("old_start", "timestamp", "previous start"),
    Col("down", "double", "seconds from `before` to the start: the upper bound of its downtime"),
    Col("old_version", "string", "version before"),
    Col("version", "string", "version after"),
    Col("upgraded", "boolean", "whether the version changed"),
    Col("maintenance", "boolean", "whether it falls into a maintenance window"),
)
AVAILABILITY = (
    *DAY,
    *GROUP,
    Col("cluster", "string", "cluster"),
    Col("num_replicas", "int", "configured number of members"),
    Col(
        "seconds",
        "double",
        "observed time; each of two consecutive snapshots determines the state of half the time between",
    ),
    Col("unknown", "double", "seconds without a report, and gaps between snapshots: not part of any other figure"),
    Col("with_leader", "double", "seconds with a sole leader"),
    Col("with_quorum", "double", "seconds with a leader and a quorum in step"),
    Col("redundant", "double", "seconds with every replica in step"),
    Col("leader_ratio", "double", "with_leader / seconds"),
    Col("quorum_ratio", "double", "with_quorum / seconds"),
    Col("redundant_ratio", "double", "redundant / seconds"),
    Col("slo", "double", "the objective for quorum_ratio (a setting)"),
    Col("met", "boolean", "quorum_ratio ≥ slo; null if no time was observed"),
    Col("budget_used", "double", "(1 − quorum_ratio) / (1 − slo): above 1 the day's error budget is exhausted"),
)
SERVER_AVAILABILITY = (
    *DAY,
    Col("server", "string", "server that answered during the day, was expected, or is a member of the meta group"),
    Col("cluster", "string", "cluster"),
    Col("snapshots", "int", "snapshots of the day since the server was first known"),
    Col("answered", "int", "snapshots in which it answered"),
    Col("healthy", "int", "snapshots in which HEALTHZ was ok"),
    Col("judged", "int", "snapshots in which it answered HEALTHZ"),
    Col("answered_ratio", "double", "answered / snapshots"),
    Col("healthy_ratio", "double", "healthy / judged"),
    Col("restarts", "int", "observed starts"),
    Col("seen", "timestamp", "last snapshot in which it answered, the source of the next columns"),
    Col("server_id", "string", "id"),
    Col("version", "string", "version"),
    Col("start", "timestamp", "start of the server, by its own clock"),
)
CAUSES = "array<struct<cause:string,server:string,at:timestamp,detail:string>>"
INCIDENTS = (
    *DAY,
    Col(
        "incident",
        "string",
        "`no_leader`, `no_quorum`, `not_redundant` of a group; `server_missing`, `server_unhealthy` of a server",
    ),
    Col("kind", "string", "`meta`, `stream`, `consumer` or `server`"),
    Col("domain", "string", "JetStream domain; empty for none, and for a server"),
    Col("account", "string", "account; like stream, consumer and server empty if it does not apply"),
    Col("stream", "string", "stream"),
    Col("consumer", "string", "consumer"),
    Col("server", "string", "server"),
    Col("before", "timestamp", "last good snapshot; null if the incident was present at the start of the day"),
    Col("begin", "timestamp", "first snapshot that shows it"),
    Col("last", "timestamp", "last snapshot that shows it"),
    Col("end", "timestamp", "first snapshot after it; null if it was present at the end of the day"),
    Col("seconds", "double", "from begin to end, or to last: the lower bound of its duration"),
    Col("snapshots", "int", "snapshots that show it"),
    Col("began_before", "boolean", "whether it was present at the end of the previous day"),
    Col("continues", "boolean", "whether the day's last snapshot shows it"),
    Col("maintenance", "boolean", "whether it began in a maintenance window"),
    Col(
        "causes",
        CAUSES,
        "candidates, the likeliest first: `restart`, `upgrade`, `server_missing`, `advisory`, `log` (of a member), `no_answer`, "
        "`behind` of a member between `before` and `last`",
    ),
)

# --- consumers ----------------------------------------------------------------------------------------------------------

CONSUMER_LAG = (
    *DAY,
    DOMAIN,
    Col("account", "string", "account"),
    Col("stream", "string", "stream"),
    Col("consumer", "string", "consumer"),
    Col("created", "timestamp", "creation of the consumer; a recreated one has its own row"),
    Col("durable", "boolean", "whether it is durable"),
    Col("leader", "string", "leader at the end"),
    Col(
        "state",
        "string",
        "`unknown` (fewer than 3 snapshots in the day), `paused`, `redelivering`, `stuck`, `growing`, `catching_up`, "
        "`behind` (none of these, with messages pending) or `current`; the first that applies",
    ),
    Col("snapshots", "int", "snapshots of the day with a leader"),
    Col("begin", "timestamp", "first of these snapshots"),
    Col("end", "timestamp", "last of these snapshots; the source of all figures without another time"),
    Col("num_pending", "bigint", "messages not yet delivered"),
    Col("num_ack_pending", "bigint", "messages delivered but not acknowledged"),
    Col("num_redelivered", "bigint", "messages in num_ack_pending that were delivered more than once"),
    Col("ack_floor", "bigint", "stream sequence up to which all messages are acknowledged"),
    Col("max_ack_pending", "bigint", "limit of num_ack_pending, -1 for none"),
    Col("pending_min", "bigint", "smallest num_pending of the day"),
    Col("pending_max", "bigint", "largest num_pending of the day"),
    Col(
        "deliver_rate", "double", "deliveries per second in the last hours (a setting): rise of delivered.consumer_seq"
    ),
    Col("ack_rate", "double", "rise of ack_floor.consumer_seq per second in the last hours: messages of the consumer"),
    Col(
        "ingest_rate",
        "double",
        "messages per second that arrived for it in the last hours: deliveries (redeliveries included) and rise of num_pending",
    ),
    Col(
        "pending_slope",
        "double",
        "messages per second by which num_pending grows: Theil–Sen over at most 24 points of the last hours",
    ),
    Col("trend", "double", "Kendall's τ of those points, −1 … 1: how monotonically num_pending grows"),
    Col("points", "int", "number of those points"),
    Col(
        "catch_up",
        "double",
        "seconds until num_pending is 0 at −pending_slope; null if it does not fall, 0 if it is 0",
    ),
    Col(
        "stuck_since",
        "timestamp",
        "start of the time in which neither the ack floor nor delivered.stream_seq moved although num_pending or "
        "num_ack_pending was above 0; null otherwise",
    ),
    Col("stuck_seconds", "double", "from stuck_since to the end"),
    Col("redeliveries", "bigint", "deliveries since stuck_since"),
)

# --- divergence ---------------------------------------------------------------------------------------------------------

#: The compared figures of a replica.
HELD = ("messages", "bytes", "first_seq", "last_seq")
DIVERGENCE = (
    *DAY,
    DOMAIN,
    Col("account", "string", "account"),
    Col("stream", "string", "stream"),
    Col("server", "string", "a server with a replica that does not lead the stream"),
    Col(
        "created",
        "timestamp",
        "creation of the stream, as the replica reported; a recreated stream has its own rows",
    ),
    Col("leader", "string", "the leader in the last comparison"),
    Col("compared", "int", "snapshots in which both reported; 0: unknown"),
    Col("differing", "int", "compared snapshots with the same last_seq but other messages, bytes or first_seq"),
    Col("lagging", "int", "compared snapshots with last_seq further apart than the tolerance"),
    Col(
        "begin",
        "timestamp",
        "start of the current difference or lag, possibly on an earlier day: the first of the consecutive snapshots, up to the "
        "last compared one, that differ or lag; null if the last one does neither",
    ),
    Col("end", "timestamp", "last compared snapshot, the source of the figures below"),
    Col("in_a_row", "int", "snapshots since begin that differ or lag"),
    Col("differs_in_a_row", "int", "those of in_a_row that differ; the others lag"),
    Col("diverged", "boolean", "whether it differs in at least 3 consecutive compared snapshots, up to the last"),
    Col("behind", "boolean", "whether it lags in at least 3 consecutive compared snapshots, up to the last"),
    *(
        Col(f"{who}{name}", "bigint", f"{name} {of}")
        for name in HELD
        for who, of in (("", "of the replica"), ("leader_", "of the leader"))
    ),
    Col("share", "double", "messages of difference / messages of the leader"),
    Col("tolerance", "double", "messages: write rate × (time between both answers + 1 s) + 10"),
)

# --- changes ------------------------------------------------------------------------------------------------------------

_THING = (
    Col("object", "string", "`server`, `meta`, `account`, `stream` or `consumer`"),
    Col("server", "string", "server; like domain, account, stream and consumer empty if it does not apply"),
    Col("domain", "string", "JetStream domain; empty for none, and for a server"),
    Col("account", "string", "account"),
    Col("stream", "string", "stream"),
    Col("consumer", "string", "consumer (durable ones)"),
)
STATES = (
    *DAY,
    Col("snapshot", "string", "the snapshot: one of the day, or of the last hour before it"),
    Col("taken", "timestamp", "start of the snapshot"),
    *_THING,
    Col("number", "int", "position in the order of the fleet's snapshots"),
    Col("hosts", "array<string>", "servers that reported it"),
    Col("created", "timestamp", "creation time"),
    Col("state", "map<string,string>", "the compared state; null if no server could report it"),
    Col("previous", "timestamp", "start of the previous snapshot"),
    Col("previous_silent", "array<string>", "silent servers in the previous snapshot"),
    Col("following", "timestamp", "start of the next snapshot"),
    Col("following_silent", "array<string>", "silent servers in the next snapshot"),
)
CHANGES = (
    *DAY,
    Col("taken", "timestamp", "the snapshot that shows the change"),
    Col("before", "timestamp", "the previous snapshot that reported the object; null for an addition"),
    *_THING,
    Col(
        "what",
        "string",
        "`added`, `removed`, `recreated`, `config`, `version`, `domain`, `members`, `limits` or `reload`",
    ),
    Col("field", "string", "the changed top-level configuration field, limit or other property"),
    Col("old", "string", "value before, as JSON if it is an object or a list"),
    Col("new", "string", "value after"),
)

# --- accounts -----------------------------------------------------------------------------------------------------------

ACCOUNT_USAGE = (
    *DAY,
    DOMAIN,
    Col("account", "string", "account"),
    Col("snapshots", "int", "snapshots that report the account"),
    Col("connections", "double", "connections over all servers, mean over the snapshots"),
    Col("connections_max", "bigint", "most connections"),
    Col("leafnodes_max", "bigint", "most leaf node connections"),
    Col("subscriptions_max", "bigint", "most subscriptions"),
    *(
        Col(f"{way}_{what}", "bigint", f"{what} {meaning} in the observed time")
        for way, meaning in (("sent", "that servers sent to its clients"), ("received", "that its clients sent"))
        for what in ("msgs", "bytes")
    ),
    Col("slow_consumers", "bigint", "connections closed for being slow in the observed time"),
    Col("storage", "double", "bytes in files of all replicas, mean over the snapshots"),
    Col("storage_max", "bigint", "most bytes in files"),
    Col("memory", "double", "bytes in memory of all replicas, mean"),
    Col("memory_max", "bigint", "most bytes in memory"),
    Col("reserved_storage", "bigint", "limit of the account for files at the end; null for none"),
    Col("reserved_memory", "bigint", "limit of the account for memory at the end; null for none"),
    Col("ha_assets", "bigint", "members of replicated groups at the end"),
    Col("byte_hours", "double", "storage × observed hours, for chargeback"),
    Col("observed", "double", "server-seconds between snapshots with comparable counters"),
    Col(
        "gaps",
        "int",
        "pairs of snapshots of a server without comparable counters: after a restart or a decrease, or too far apart",
    ),
    Col("coverage", "double", "observed / server-seconds between the snapshots; counts are not extrapolated"),
)

ACTIVITY = (
    *DAY,
    Col("hour", "int", "hour of the day in UTC"),
    Col("measured", "int", "servers with comparable counters"),
    Col("connections", "bigint", "client connections in the hour's last snapshot"),
    Col("in_msgs", "double", "messages per second that servers received"),
    Col("in_bytes", "double", "bytes per second that servers received"),
    Col("api_requests", "double", "JetStream API requests per second"),
    Col("api_errors", "bigint", "API requests of the hour that ended in an error"),
    Col("num_pending", "bigint", "messages not delivered to consumers, in the hour's last snapshot"),
    Col("num_ack_pending", "bigint", "messages delivered but not acknowledged, in the hour's last snapshot"),
    Col("elections", "int", "observed leader changes of all groups"),
)

# --- capacity -----------------------------------------------------------------------------------------------------------

ASSET = (
    Col("scope", "string", "`server`, `zone`, `cluster`, `account` or `stream`"),
    Col(
        "resource",
        "string",
        "`file` and `memory` in bytes; `ha_assets` of servers (the Raft budget), `messages` of streams with max_msgs",
    ),
    Col("name", "string", "the server, zone, cluster, account, or ACCOUNT/STREAM"),
    DOMAIN,
    Col("cluster", "string", "cluster; empty for accounts"),
)
USAGE = (
    *DAY,
    Col("hour", "int", "hour of the day in UTC"),
    *ASSET,
    Col(
        "used",
        "double",
        "value in the hour's last snapshot; for zones and clusters the sum over their servers if all of them reported; for "
        "accounts the total over all servers",
    ),
    Col("reserved", "double", "reserved by max_bytes; null for accounts"),
    Col(
        "limit",
        "double",
        "the limit: max_storage, max_memory, max_ha_assets, max_bytes, max_msgs, or the account's limit (tiers excluded); null "
        "for none",
    ),
    Col("first_seq", "bigint", "first sequence of a stream; it shows whether old messages are removed"),
)
GROWTH = (
    *DAY,
    *ASSET,
    Col("used", "double", "at the end of the day"),
    Col("least", "double", "lowest hourly value of the day"),
    Col("most", "double", "highest hourly value of the day"),
    Col("reserved", "double", "at the end of the day"),
    Col("limit", "double", "at the end of the day"),
    Col("trimmed", "boolean", "whether a stream's first sequence rose during the day: old messages are being removed"),
    Col("last_hour", "int", "the day's last hour with a report"),
    Col("hours", "int", "hours that can be compared with the same hour of the previous day"),
    Col(
        "slope",
        "double",
        "change per day: median over those hours of used(h) − used(h − 24 h); null with fewer than 3 hours",
    ),
)
#: Horizons in days for which forecasts have a band (gold/forecast.py).
_AHEAD = (1, 7, 30)

_CHANGES = tuple(
    Col(f"change_{days}_{name}", "double", f"{number}th percentile of the change in {days} days")
    for days in _AHEAD
    for name, number in (("p10", 10), ("p90", 90))
)
FORECASTS = (
    *DAY,
    *ASSET,
    Col("last_hour", "int", "the day's last hour with a report, where the forecast starts"),
    Col("used", "double", "at the end of the day"),
    Col("reserved", "double", "at the end of the day"),
    Col("limit", "double", "at the end of the day"),
    Col("days_long", "int", "days with a slope in four weeks"),
    Col("days_short", "int", "days with a slope in the last week"),
    Col("slope_long", "double", "slope of four weeks, per day"),
    Col("slope_short", "double", "slope of the last week; null unless all its days have one"),
    Col("slope_before", "double", "slope of the three weeks before the last; null unless all weekdays have one"),
    Col(
        "basis",
        "string",
        "`short` if the last week differs from the weeks before by more than their noise, else `long`",
    ),
    Col(
        "slope",
        "double",
        "slope of the basis, or 0 if it is below its standard error: the forecast is used + days × slope",
    ),
    *(
        Col(
            f"spread_{days}",
            "double",
            f"forecast error over {days} days, from the asset's own history",
        )
        for days in _AHEAD
    ),
    *_CHANGES,
    *(
        Col(
            f"errors_{days}",
            "int",
            f"number of errors over {days} days from which the band is computed; 0: it uses the normal distribution",
        )
        for days in _AHEAD
    ),
    Col("trimmed", "boolean", "whether old messages were removed on every day of the last week"),
)
BACKTESTS = (
    *DAY,
    *ASSET,
    Col("horizon", "int", "days ahead: 1, 7 or 30"),
    Col("origin", "date", "the day of the forecast"),
    Col("forecast_p10", "double", "10th percentile of the forecast of that day for this day"),
    Col("forecast_p50", "double", "expected value of that forecast"),
    Col("forecast_p90", "double", "90th percentile of that forecast"),
    Col("actual", "double", "actual value"),
    Col("error", "double", "(forecast_p50 − actual) / actual"),
    Col("naive_error", "double", "error of a forecast of no change"),
    Col("covered", "boolean", "whether the actual value is between p10 and p90"),
    Col(
        "spreads",
        "double",
        "(actual − forecast_p50) / spread, the input of the bands; null with less than two weeks",
    ),
)
_STREAM_LIMITS = (
    Col(
        "stream_limits",
        "double",
        "sum of max_bytes over all replicas of its streams in the day's last snapshot; null for streams, if one has no "
        "max_bytes, and except for servers if a server did not report",
    ),
    Col(
        "at_limit",
        "string",
        "behavior of a stream at its limit: `removes` (discard old: the oldest messages), `loses` (discard old with retention "
        "interest or workqueue: messages that no consumer has processed) or `rejects` (discard new: publishing); null for others",
    ),
)
CAPACITY = (
    *DAY,
    *ASSET,
    Col(
        "state",
        "string",
        "`unlimited`, `full` (≥ 99 %), `limited` (stream_limits ≤ limit: these streams cannot fill it), `unknown` (fewer than 3 "
        "days with a slope), `plateau` (the slope is 0, or old messages are removed and it is below 0.1 % a day), `shrinking`, "
        "`growing`",
    ),
    Col("used", "double", "at the end of the day"),
    Col("reserved", "double", "at the end of the day"),
    Col("limit", "double", "at the end of the day"),
    Col("free", "double", "limit − the larger of used and reserved, the meta leader's calculation"),
    Col("used_ratio", "double", "used / limit"),
    Col("reserved_ratio", "double", "reserved / limit"),
    Col("basis", "string", "window of the slope"),
    Col("days", "int", "days with a slope in that window"),
    Col(
        "changed",
        "boolean",
        "whether the last week also differs from the weeks before by more than a third of the larger; null with fewer than "
        "14 days with a slope in four weeks",
    ),
    Col("slope", "double", "expected change per day"),
    *_CHANGES,
    Col(
        "full_p10",
        "double",
        "days until used reaches the limit at the upper edge of the band (beyond 30 days on the line through it): a 10 % chance "
        "of an earlier time; null for never",
    ),
    Col("full_p50", "double", "the same with the slope"),
    Col("full_p90", "double", "the same at the lower edge of the band"),
    Col(
        "confidence",
        "string",
        "`tested` (7 or more backtests) or `untested`: the band may be too narrow, however close its edges are; null without a "
        "forecast",
    ),
    Col(
        "backtests",
        "int",
        "forecasts over 7 days (over 1 day until 7 of them are due) for a day within the last 28 days",
    ),
    Col("horizon", "int", "days ahead of those forecasts"),
    Col("error_p50", "double", "median of their absolute errors"),
    Col("error_p90", "double", "90th percentile of their absolute errors"),
    Col("naive_p50", "double", "median absolute error of a forecast of no change"),
    Col("coverage", "double", "share of actual values between p10 and p90; the nominal value is 0.8"),
    *_STREAM_LIMITS,
)
HEADROOM = (
    *MOMENT,
    DOMAIN,
    Col("cluster", "string", "cluster"),
    Col("scope", "string", "`server` or `zone`: the unit that fails"),
    Col("name", "string", "server or zone"),
    Col("servers_left", "int", "remaining JetStream servers of the cluster"),
    Col(
        "need",
        "double",
        "file bytes of its replicas that can be rebuilt on the remaining servers: the larger of their size and their max_bytes",
    ),
    Col("replicas", "int", "number of its replicas whose stream has another replica elsewhere"),
    Col(
        "unplaced",
        "int",
        "number of those that no remaining server can take, because their stream has more replicas than servers remain: with its "
        "quorum it stays available, but is not fully redundant until a server returns",
    ),
    Col("lost", "double", "file bytes of streams with no replica elsewhere"),
    Col(
        "free",
        "double",
        "free bytes on the remaining servers: limit × target (a setting) − the larger of the used bytes, the reserved bytes and "
        "the sum over the replicas as in need, at least 0; null if a limit is unknown",
    ),
    Col("after", "double", "free − need"),
    Col("largest", "double", "bytes of the largest replica to rebuild"),
    Col("largest_free", "double", "free bytes on the remaining server that has the most"),
    Col("has_space", "boolean", "after ≥ 0 and largest ≤ largest_free"),
    Col("fits", "boolean", "has_space and unplaced = 0: full redundancy can be restored"),
    Col(
        "slope",
        "double",
        "growth of the replicas of streams without max_bytes that remain or are rebuilt, in bytes per day; null if the slope of "
        "more than 10 % of their bytes is unknown",
    ),
    Col(
        "days",
        "double",
        "after / slope: days until the space no longer suffices; 0 if it does not now, null for never (slope ≤ 0) or unknown",
    ),
)

# --- facts: hourly aggregates, the input of the day's tables -----------------------------------------------------------------

_TAKEN = (
    Col("fleet", "string", "the fleet"),
    Col("taken", "timestamp", "a snapshot of the hour: the last one of the row, or the first one of an interval"),
)


def _named(columns: Sequence[Col], *names: str) -> Iterator[Col]:
    return (column for column in columns if column.name in names)


SAMPLES = (*_TAKEN, *_named(MOMENTS, "snapshot", "complete", "absent", "disabled", "silent"))
ANSWERS = (
    *_TAKEN,
    Col("snapshot", "string", "the snapshot"),
    Col("server", "string", "the server"),
    Col("cluster", "string", "its cluster"),
    Col("healthy", "boolean", "whether it was healthy; null if it did not report"),
    Col("ahead", "double", "seconds by which its clock was ahead; null if unknown"),
    Col("namesakes", "boolean", "whether another server answered under this name"),
    Col("identity", "struct<start:timestamp,server_id:string,version:string>", "the start of the server that answered"),
)
HOURLY_USAGE = (
    *_TAKEN,
    *ASSET,
    *_named(USAGE, "used", "reserved", "limit", "first_seq"),
    Col("zone", "string", "a server's zone"),
)
EXPECTED = (*_TAKEN, Col("server", "string", "the server"))
WRITES = (
    *_TAKEN,
    *_named(GROUP, *STREAM),
    Col("created", "timestamp", "when the stream was created"),
    Col("begin", "timestamp", "first snapshot"),
    Col("first", "bigint", "last sequence in the first snapshot"),
    Col("last", "bigint", "last sequence in the last snapshot"),
)
WAITING = (*_TAKEN, *_named(ACTIVITY, "num_pending", "num_ack_pending"))
RUNS = (
    *_TAKEN,
    *(column for column in TIMELINE if column.name not in ("fleet", "day", "run", "before")),
    Col("alike", "bigint", "a hash: equal for intervals that are joined if no snapshot lies between them"),
    Col("first_snapshot", "string", "first snapshot"),
    Col("last_snapshot", "string", "last snapshot"),
)

#: The state of a consumer in a snapshot, and the part of it that rates and trends use.
CONSUMER_NOW = {
    "leader": "string", "durable": "boolean", "paused": "boolean", "ack_wait": "double", "num_pending": "bigint",
    "num_ack_pending": "bigint", "num_redelivered": "bigint", "max_ack_pending": "bigint", "ack_floor_stream_seq": "bigint",
    "ack_floor_consumer_seq": "bigint", "delivered_stream_seq": "bigint", "delivered_consumer_seq": "bigint", "work": "boolean",
}  # fmt: skip
CONSUMER_POINT = {
    "taken": "timestamp",
    **dict.fromkeys(("delivered_consumer_seq", "ack_floor_consumer_seq", "num_pending"), "bigint"),
}


def _struct(fields: dict[str, str]) -> str:
    return f"struct<{','.join(f'{name}:{type_}' for name, type_ in fields.items())}>"


#: A replica next to its leader in a snapshot.
PAIR = {
    "taken": "timestamp",
    "leader": "string",
    "apart": "double",
    **{f"{who}{name}": "bigint" for name in HELD for who in ("", "leader_")},
}
SHOWN = {**PAIR, "tolerance": "double"}
_RATE = "struct<sum:double,count:bigint,max:double>"
FOLLOWERS = (
    *_TAKEN,
    *_named(DIVERGENCE, *STREAM, "server", "created"),
    Col("first", _struct(PAIR), "the pair in the first snapshot"),
    Col("last", _struct(PAIR), "the pair in the last snapshot"),
    Col("write", _RATE, "messages per second that the leader wrote between two snapshots"),
    Col("trim", _RATE, "messages per second that were removed from the leader"),
    Col("compared", "bigint", "snapshots after the first in which both reported; the next columns count only these"),
    *_named(DIVERGENCE, "differing", "lagging"),
    Col("alike_at", "timestamp", "last snapshot in which it neither differed nor lagged"),
    Col("near_at", "timestamp", "last snapshot in which it did not lag"),
    Col("still_differs", "bigint", "snapshots after alike_at that differ"),
    Col("still_lags", "bigint", "snapshots after near_at that lag"),
    Col("differs_since", "timestamp", "first snapshot after alike_at that differs"),
    Col("lags_since", "timestamp", "first snapshot after near_at that lags"),
    Col("shown", _struct(SHOWN), "the pair in the last compared snapshot"),
)

LAGS = (
    *_TAKEN,
    *_named(CONSUMER_LAG, *CONSUMER, "created"),
    Col("begin", "timestamp", "first snapshot with a leader"),
    Col("snapshots", "int", "number of snapshots with a leader"),
    Col("pending_min", "bigint", "smallest num_pending"),
    Col("pending_max", "bigint", "largest num_pending"),
    Col("first", _struct(CONSUMER_NOW), "state in the first snapshot"),
    Col("now", _struct(CONSUMER_NOW), "state in the last snapshot"),
    Col("moved_at", "timestamp", "last snapshot with progress since the previous one, or without work"),
    Col("moved_delivered", "bigint", "delivered.consumer_seq in that snapshot"),
    Col("points", f"array<{_struct(CONSUMER_POINT)}>", "the points of all snapshots"),
)
#: Two servers with the same name have two series.
SERVER_COUNTERS = Counters(
    ("in_msgs", "in_bytes", "js_api_total", "js_api_errors"),
    ("fleet", "server", "server_id", "start"),
    shown=("connections",),
)
COUNTERS = (
    *_TAKEN,
    Col("server", "string", "the server"),
    Col("server_id", "string", "its id"),
    Col("start", "timestamp", "when it started"),
    *SERVER_COUNTERS.columns,
)
ACCOUNT_COUNTERS = Counters(
    ("sent_msgs", "sent_bytes", "received_msgs", "received_bytes", "slow_consumers"),
    ("fleet", *ACCOUNT, "server"),
    start=("server_id", "start"),
)
FLOWS = (
    *_TAKEN,
    *_named(ACCOUNT_USAGE, *ACCOUNT),
    Col("server", "string", "the server"),
    *ACCOUNT_COUNTERS.columns,
)
STOCKS = (
    *_TAKEN,
    *_named(ACCOUNT_USAGE, *ACCOUNT),
    Col("begin", "timestamp", "first snapshot"),
    Col("snapshots", "int", "number of snapshots"),
    *(
        column
        for name in ("connections", "js_storage", "js_memory")
        for column in (
            Col(name, "struct<sum:double,count:bigint>", "over all snapshots that reported it"),
            Col(f"{name}_max", "bigint", "maximum"),
        )
    ),
    *(Col(f"{name}_max", "bigint", "maximum") for name in ("leafnodes", "num_subscriptions")),
    *(
        Col(name, "bigint", "in the last snapshot")
        for name in ("js_reserved_storage", "js_reserved_memory", "js_ha_assets")
    ),
)
THINGS = (
    *_TAKEN,
    *_THING,
    *_named(STATES, "hosts", "created", "state"),
    Col("alike", "bigint", "a hash: equal for equal states"),
    Col("block", "int", "the block of 63 snapshots of the hour, in order, that `bits` covers"),
    Col("bits", "bigint", "a bit for each snapshot of the block that reported this state, from the lowest on"),
)
