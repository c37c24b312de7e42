# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The columns of the gold tables: the contract with those who read them. docs/reference/insights_tables.md shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jetstream_insights.gold.counters import Counters
from jetstream_insights.gold.tables import DAY, DOMAIN, GROUP, MOMENT, Col
from jetstream_insights.keys import ACCOUNT, CONSUMER, STREAM

REPLICAS = "array<struct<name:string,id:string,leader:boolean,current:boolean,online:boolean,active:double,lag:bigint>>"
_MEMBERS = Col("members", "array<string>", "every server that any member knows in the group")
_REPLICAS = Col(
    "replicas",
    REPLICAS,
    "the members as the sole leader sees them, itself among them; empty without one. `active` in seconds",
)
_VOTES = (
    Col("num_replicas", "int", "how many members the group should have"),
    Col("quorum", "int", "how many must agree: num_replicas / 2 + 1"),
    Col("leader", "string", "who leads; null when nobody or more than one server claims to"),
    Col("leaders", "array<string>", "who claims to lead"),
    _MEMBERS,
    Col("hosts", "array<string>", "the servers that reported of it"),
    _REPLICAS,
)

# --- report -------------------------------------------------------------------------------------------------------------

MOMENTS = (
    *DAY,
    Col("snapshot", "string", "a snapshot of the day"),
    Col("taken", "timestamp", "when it began"),
    Col("number", "int", "its number in the day of the fleet, from 1"),
    Col("complete", "boolean", "whether every known server answered everything"),
    Col("absent", "array<string>", "servers that did not answer: expected ones, and members of the meta group"),
    Col("disabled", "array<string>", "servers that answered and have JetStream disabled"),
    Col("silent", "array<string>", "all of these, and servers that returned no JSZ or only a part of it"),
)
REPORT_FLEET = (
    *MOMENT,
    Col("servers", "int", "servers that answered"),
    Col("missing", "array<string>", "servers that did not: expected ones, and members of the meta group"),
    Col("complete", "boolean", "whether every known server answered everything"),
    Col("versions", "array<string>", "versions of the servers, each once"),
    Col("meta_leader", "string", "leader of the meta group; of several domains in their order, `?` for none"),
    Col("connections", "bigint", "client connections"),
    Col("streams", "bigint", "streams, each once"),
    Col("consumers", "bigint", "consumers, each once"),
    Col("messages", "bigint", "messages, each stream once, as its leader tells"),
    Col("bytes", "bigint", "their bytes"),
    Col("replica_bytes", "bigint", "bytes of every replica"),
    Col("leaderless_streams", "bigint", "streams without a sole leader"),
    Col("leaderless_consumers", "bigint", "consumers without a sole leader"),
)
REPORT_SERVERS = (
    *MOMENT,
    Col("server", "string", "name"),
    Col("server_id", "string", "id, which is new at each start"),
    Col("cluster", "string", "cluster"),
    Col(
        "zone",
        "string",
        "what follows the prefix `unique_tag` of its configuration (else `az:` or `zone:`) in its first such tag",
    ),
    Col("host", "string", "host"),
    Col("version", "string", "version"),
    Col("domain", "string", "JetStream domain: its own, without JetStream that of its cluster; empty for none"),
    Col("tags", "array<string>", "tags"),
    Col(
        "answered",
        "boolean",
        "false: it was expected or is a member of the meta group, and did not answer; all else is null",
    ),
    Col("jetstream", "boolean", "whether JetStream runs"),
    *(
        Col(name, "bigint", f"{name.replace('_', ' ')}, by STATSZ")
        for name in ("connections", "subscriptions", "routes", "gateways", "inbound_gateways", "leafnodes")
    ),
    Col("mem", "bigint", "resident memory in bytes"),
    Col("cpu", "double", "percent of one core"),
    Col("cores", "bigint", "cores"),
    Col("slow_consumers", "bigint", "connections that were closed for being slow, since the start"),
    Col("start", "timestamp", "when it started, by its clock"),
    Col("uptime", "double", "seconds since then"),
    Col("rtt", "double", "round trip to the collector in seconds"),
    Col("clock_offset", "double", "seconds by which its clock is ahead of the collector's, give or take rtt / 2"),
    Col("health", "string", "status by HEALTHZ; null: it did not tell"),
    Col("health_code", "int", "its status code"),
    Col("health_errors", "array<string>", "every error that it names"),
    *(
        Col(name, "bigint", meaning)
        for name, meaning in (
            ("streams", "replicas of streams; null, like what follows, when it runs without JetStream or did not tell"),
            ("consumers", "replicas of consumers"),
            ("messages", "messages of its replicas"),
            ("bytes", "their bytes"),
            ("memory", "bytes in memory"),
            ("storage", "bytes in files"),
            ("reserved_memory", "bytes reserved by max_bytes of memory streams"),
            ("reserved_storage", "bytes reserved by max_bytes of file streams"),
            ("max_memory", "limit of memory in bytes"),
            ("max_storage", "limit of files in bytes"),
            ("api_total", "API requests since the start"),
            ("api_errors", "of which ended in errors"),
            ("api_level", "API level (0 before 2.11)"),
            ("ha_assets", "replicated Raft groups"),
            ("max_ha_assets", "limit of them, 0 for none"),
            ("pending", "what its meta layer has yet to apply"),
            ("stream_leaders", "streams that it leads"),
            ("consumer_leaders", "consumers that it leads"),
        )
    ),
    Col("is_meta_leader", "boolean", "whether it leads the meta group"),
)
REPORT_META = (
    *MOMENT,
    DOMAIN,
    Col("leader", "string", "who leads; null when nobody or more than one server claims to"),
    Col("leaders", "array<string>", "who claims to lead"),
    Col("size", "int", "members, as the leader counts them, otherwise the most that any server counts"),
    Col("quorum", "int", "how many must be up: size / 2 + 1, or the server's own figure when that is higher"),
    Col("pending", "bigint", "what the leader has yet to apply"),
    _MEMBERS,
    _REPLICAS,
    Col("views", "array<struct<server:string,leader:string>>", "whom each server names as leader, empty for nobody"),
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
    Col("consumers", "bigint", "consumers that any server tells of"),
    *(
        Col(name, "bigint", f"{name.replace('_', ' ')}, as the leader tells")
        for name in ("messages", "bytes", "first_seq", "last_seq", "num_deleted", "lost_messages", "lost_bytes")
    ),
    Col("api_level", "int", "API level that a server must have to serve it"),
    *_VOTES,
    Col("moving", "boolean", "whether it is being moved or reconfigured (2.15)"),
    Col(
        "write_bytes",
        "double",
        "bytes per second over the day, by the rise of last_seq and the mean size of what is stored; null with one snapshot",
    ),
)
REPORT_BACKUPS = (
    *MOMENT,
    DOMAIN,
    Col("account", "string", "account"),
    Col("stream", "string", "stream of which the catalogue of backups was asked"),
    Col("excluded", "boolean", "whether the last run was to leave it out"),
    Col("last_backup", "timestamp", "when it was last seen to be as its newest backup has it; null for never"),
    Col("problem", "string", "why the last run did not save it; empty where it did"),
    Col("last_proven", "timestamp", "the last drill that restored it; null for never"),
    Col("restore_seconds", "double", "seconds that the restore of the last drill took; null where that failed"),
    Col("drill_problem", "string", "why the last drill failed; empty where it did not"),
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
    Col("num_ack_pending", "bigint", "delivered, not acknowledged"),
    Col("num_redelivered", "bigint", "of which delivered more than once"),
    Col("num_pending", "bigint", "not delivered yet"),
    Col("unprocessed", "int", "num_pending in percent of the stream's messages, at most 100"),
    Col("ack_floor", "bigint", "stream sequence up to which all is acknowledged"),
    Col("api_level", "int", "API level that a server must have to serve it"),
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
    Col("scope", "string", "`server` or `zone`: what is compared"),
    Col(
        "measure",
        "string",
        "stream_leaders, consumer_leaders, replicas, consumer_replicas, bytes, led_bytes, write_msgs or write_bytes of "
        "`load`",
    ),
    Col("members", "int", "n: servers or zones that are compared, those with nothing included"),
    Col("total", "double", "sum"),
    Col("mean", "double", "total / n"),
    Col("max", "double", "the largest"),
    Col("max_name", "string", "who has it (the first by name)"),
    Col("min", "double", "the smallest"),
    Col("min_name", "string", "who has it"),
    Col("max_to_mean", "double", "max / mean; 1 is even, n is all on one"),
    Col("cov", "double", "coefficient of variation: population standard deviation / mean"),
    Col("gini", "double", "Σ(2i − n − 1)·xᵢ / (n·Σx) over the sorted values; 0 is even, (n − 1)/n all on one"),
    Col(
        "optimum", "double", "the least maximum that can be had: ⌈total / n⌉ for counts, total / n for bytes and rates"
    ),
    Col("excess", "double", "max − optimum"),
    Col("distance", "double", "excess / optimum; 0: nothing can be won"),
)

# --- leadership ---------------------------------------------------------------------------------------------------------

TIMELINE = (
    *DAY,
    *GROUP,
    Col("cluster", "string", "cluster"),
    Col("raft_group", "string", "Raft group"),
    Col("created", "timestamp", "when the stream or consumer was created"),
    Col("run", "int", "number of the run within the day: snapshots in a row that reported the same of the group"),
    Col("begin", "timestamp", "first snapshot of the run"),
    Col("end", "timestamp", "last snapshot of the run"),
    Col(
        "before",
        "timestamp",
        "the group's snapshot before; null when it is more than the longest gap away, or there is none",
    ),
    Col("snapshots", "int", "snapshots in the run"),
    Col("leader", "string", "sole leader"),
    Col("leader_since", "timestamp", "since when, as the leader tells at the begin of the run"),
    Col(
        "state",
        "string",
        "`ok`, `not_redundant` (quorum, but a replica out of step or missing), `no_quorum`, `no_leader`, `unknown` "
        "(no server reported, and not all its servers were away)",
    ),
    Col(
        "behind",
        "array<string>",
        "members that are out of step (rule of `nats_cluster_health`: offline, silent for 5 s, 200 entries behind, did "
        "not answer)",
    ),
    _MEMBERS,
    Col("hosts", "array<string>", "the servers that reported of it at the begin of the run"),
    Col("num_replicas", "int", "how many members the group should have"),
)
LEADER_CHANGES = (
    *DAY,
    *GROUP,
    Col("raft_group", "string", "Raft group"),
    Col("taken", "timestamp", "the snapshot that shows it"),
    Col("before", "timestamp", "the one before: it happened in between"),
    Col("old_leader", "string", "who led last"),
    Col("new_leader", "string", "who leads now; the same where a leader was elected again"),
    Col("without_leader", "boolean", "whether a snapshot in between saw no leader"),
    Col(
        "dwell",
        "double",
        "seconds for which the old one had led: since leader_since, otherwise as far as was seen in the day",
    ),
    Col(
        "old_leader_left",
        "boolean",
        "whether the old leader started again, or did not answer, between `before` and `taken`",
    ),
    Col("storm", "string", "the storm that it is part of"),
    Col("maintenance", "boolean", "whether it falls into a maintenance window"),
)
LEADERSHIP = (
    *DAY,
    *GROUP,
    Col("cluster", "string", "cluster"),
    Col("raft_group", "string", "Raft group"),
    Col("leader", "string", "last leader of the day"),
    Col("leaders", "array<string>", "all leaders of the day"),
    Col("snapshots", "int", "snapshots that saw the group"),
    Col("elections", "int", "changes of the leader that were seen"),
    Col("counted", "int", "of which neither in a storm nor in a maintenance window; what follows is of these"),
    Col("dwell_p10", "double", "seconds that a leader led before a change, 10th percentile"),
    Col("dwell_p50", "double", "median of the same"),
    Col("most_in_10m", "int", "most elections within ten minutes"),
    Col("flap", "double", "highest score of the day: each election adds 1, and the sum halves every 30 minutes"),
    Col("flap_at", "timestamp", "when"),
)
STORMS = (
    *DAY,
    Col("storm", "string", "its name, SERVER@BEGIN"),
    Col("server", "string", "the server that lost the groups"),
    Col("begin", "timestamp", "the snapshot before the first change"),
    Col("end", "timestamp", "the snapshot of the last change"),
    Col("groups", "int", "groups that left the server"),
    Col("streams", "int", "of which streams"),
    Col("consumers", "int", "of which consumers"),
    Col("meta", "boolean", "whether the meta group's leader was among them"),
    Col("cause", "string", "`upgrade`, `restart`, `missing` or `unknown`"),
    Col("version", "string", "version after an upgrade"),
    Col("maintenance", "boolean", "whether it falls into a maintenance window"),
)

# --- health -------------------------------------------------------------------------------------------------------------

RESTARTS = (
    *DAY,
    Col("server", "string", "server, by name: its id is new at each start"),
    Col("cluster", "string", "cluster"),
    Col("taken", "timestamp", "first snapshot after the start"),
    Col("before", "timestamp", "last snapshot in which it answered before"),
    Col("start", "timestamp", "when it started, by its clock"),
    Col("old_start", "timestamp", "start before that"),
    Col("down", "double", "seconds from `before` to the start: at most so long was it down"),
    Col("old_version", "string", "version before"),
    Col("version", "string", "version after"),
    Col("upgraded", "boolean", "whether the version changed"),
    Col("maintenance", "boolean", "whether it falls into a maintenance window"),
)
AVAILABILITY = (
    *DAY,
    *GROUP,
    Col("cluster", "string", "cluster"),
    Col("num_replicas", "int", "how many members the group should have"),
    Col("seconds", "double", "time that was observed; between two snapshots the state is half that of each"),
    Col("unknown", "double", "seconds of which no server reported, and gaps between snapshots: in no other figure"),
    Col("with_leader", "double", "seconds with a sole leader"),
    Col("with_quorum", "double", "seconds with a leader and a quorum in step"),
    Col("redundant", "double", "seconds with every replica in step"),
    Col("leader_ratio", "double", "with_leader / seconds"),
    Col("quorum_ratio", "double", "with_quorum / seconds"),
    Col("redundant_ratio", "double", "redundant / seconds"),
    Col("slo", "double", "the objective for quorum_ratio (a setting)"),
    Col("met", "boolean", "quorum_ratio ≥ slo; null when nothing was observed"),
    Col("budget_used", "double", "(1 − quorum_ratio) / (1 − slo): above 1 the day's error budget is spent"),
)
SERVER_AVAILABILITY = (
    *DAY,
    Col("server", "string", "server that answered in the day, was expected, or is a member of the meta group"),
    Col("cluster", "string", "cluster"),
    Col("snapshots", "int", "snapshots of the day since the server was first known in it"),
    Col("answered", "int", "in which it answered"),
    Col("healthy", "int", "in which its HEALTHZ was ok"),
    Col("judged", "int", "in which it answered HEALTHZ"),
    Col("answered_ratio", "double", "answered / snapshots"),
    Col("healthy_ratio", "double", "healthy / judged"),
    Col("restarts", "int", "starts that were seen"),
    Col("seen", "timestamp", "last snapshot in which it answered; what follows is of it"),
    Col("server_id", "string", "id"),
    Col("version", "string", "version"),
    Col("start", "timestamp", "when it started, by its clock"),
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
    Col("domain", "string", "JetStream domain; empty for none, and of a server"),
    Col("account", "string", "account; empty where it does not apply, like stream, consumer and server"),
    Col("stream", "string", "stream"),
    Col("consumer", "string", "consumer"),
    Col("server", "string", "server"),
    Col("before", "timestamp", "last snapshot that saw it well; null when the day began with it"),
    Col("begin", "timestamp", "first snapshot that saw it"),
    Col("last", "timestamp", "last snapshot that saw it"),
    Col("end", "timestamp", "first snapshot after it; null when the day ended with it"),
    Col("seconds", "double", "from begin to end, or to last: at least so long did it last"),
    Col("snapshots", "int", "snapshots that saw it"),
    Col("began_before", "boolean", "whether the day before ended with it"),
    Col("continues", "boolean", "whether the day's last snapshot still saw it"),
    Col("maintenance", "boolean", "whether it began in a maintenance window"),
    Col(
        "causes",
        CAUSES,
        "candidates, the likeliest first: `restart`, `upgrade`, `server_missing`, `advisory`, `log` (a member's), `no_answer`, "
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
    Col("created", "timestamp", "when it was created; one that was made again is another"),
    Col("durable", "boolean", "whether it is durable"),
    Col("leader", "string", "leader at the end"),
    Col(
        "state",
        "string",
        "`unknown` (less than 3 snapshots of the day), `paused`, `redelivering`, `stuck`, `growing`, `catching_up`, "
        "`behind` (none of these, with messages pending) or `current`; the first that holds",
    ),
    Col("snapshots", "int", "snapshots of the day with a leader"),
    Col("begin", "timestamp", "first of them"),
    Col("end", "timestamp", "last of them; figures without another word are of it"),
    Col("num_pending", "bigint", "not delivered yet"),
    Col("num_ack_pending", "bigint", "delivered, not acknowledged"),
    Col("num_redelivered", "bigint", "of which delivered more than once"),
    Col("ack_floor", "bigint", "stream sequence up to which all is acknowledged"),
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
        "messages per second that came for it in the last hours: deliveries (again included) and rise of num_pending",
    ),
    Col(
        "pending_slope",
        "double",
        "messages per second by which num_pending grows: Theil–Sen over at most 24 points of the last hours",
    ),
    Col("trend", "double", "Kendall's τ of those points, −1 … 1: how monotone it grows"),
    Col("points", "int", "how many points"),
    Col(
        "catch_up",
        "double",
        "seconds until num_pending is 0 at −pending_slope; null when it does not fall, 0 when it is 0",
    ),
    Col(
        "stuck_since",
        "timestamp",
        "since when neither ack floor nor delivered.stream_seq moved, with work (num_pending or num_ack_pending); null "
        "otherwise",
    ),
    Col("stuck_seconds", "double", "from then to the end"),
    Col("redeliveries", "bigint", "deliveries since then"),
)

# --- divergence ---------------------------------------------------------------------------------------------------------

#: What a replica holds.
HELD = ("messages", "bytes", "first_seq", "last_seq")
DIVERGENCE = (
    *DAY,
    DOMAIN,
    Col("account", "string", "account"),
    Col("stream", "string", "stream"),
    Col("server", "string", "a server with a replica that is not its leader"),
    Col(
        "created",
        "timestamp",
        "when the stream was created, as the replica reported; one that was made again is another",
    ),
    Col("leader", "string", "the leader that it was last compared with"),
    Col("compared", "int", "snapshots in which both reported; 0: nothing is known"),
    Col("differing", "int", "of which with the same last_seq, but other messages, bytes or first_seq"),
    Col("lagging", "int", "of which with a last_seq further away than the tolerance"),
    Col(
        "begin",
        "timestamp",
        "begin of what is not over, also on days before: the first snapshot in a row, up to the last compared, that differs "
        "or lags; null when all is well",
    ),
    Col("end", "timestamp", "last snapshot that was compared; the figures below are of it"),
    Col("in_a_row", "int", "snapshots since begin that differ or lag"),
    Col("differs_in_a_row", "int", "of which differ; the others lag"),
    Col("diverged", "boolean", "whether it differs in at least 3 compared snapshots in a row, up to the last"),
    Col("behind", "boolean", "whether it lags in at least 3 compared snapshots in a row, up to the last"),
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
    Col("server", "string", "server; empty where it does not apply, like domain, account, stream and consumer"),
    Col("domain", "string", "JetStream domain; empty for none, and of a server"),
    Col("account", "string", "account"),
    Col("stream", "string", "stream"),
    Col("consumer", "string", "consumer (durable ones)"),
)
STATES = (
    *DAY,
    Col("snapshot", "string", "the snapshot: one of the day, or of the last hour before it"),
    Col("taken", "timestamp", "when it began"),
    *_THING,
    Col("number", "int", "which one it is in the order of the fleet's snapshots"),
    Col("hosts", "array<string>", "who tells of it"),
    Col("created", "timestamp", "when it was created"),
    Col("state", "map<string,string>", "what is compared; null where nobody could tell"),
    Col("previous", "timestamp", "when the snapshot before this one began"),
    Col("previous_silent", "array<string>", "who reported nothing in that one"),
    Col("following", "timestamp", "when the next snapshot began"),
    Col("following_silent", "array<string>", "who reported nothing in that one"),
)
CHANGES = (
    *DAY,
    Col("taken", "timestamp", "the snapshot that shows it"),
    Col("before", "timestamp", "the one before that reported of the same thing; null for what was added"),
    *_THING,
    Col(
        "what",
        "string",
        "`added`, `removed`, `recreated`, `config`, `version`, `domain`, `members`, `limits` or `reload`",
    ),
    Col("field", "string", "the top-level field of the configuration, the limit, or what else changed"),
    Col("old", "string", "value before, as JSON where it is no plain value"),
    Col("new", "string", "value after"),
)

# --- accounts -----------------------------------------------------------------------------------------------------------

ACCOUNT_USAGE = (
    *DAY,
    DOMAIN,
    Col("account", "string", "account"),
    Col("snapshots", "int", "snapshots that reported of it"),
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
    Col("observed", "double", "server-seconds between snapshots whose counters could be compared"),
    Col(
        "gaps",
        "int",
        "pairs of snapshots of a server whose counters could not: a restart, a step down, or too long apart",
    ),
    Col("coverage", "double", "observed / server-seconds between the snapshots; counts are not extrapolated"),
)

ACTIVITY = (
    *DAY,
    Col("hour", "int", "hour of the day in UTC"),
    Col("measured", "int", "servers whose counters could be compared"),
    Col("connections", "bigint", "client connections in the hour's last snapshot"),
    Col("in_msgs", "double", "messages per second that servers received"),
    Col("in_bytes", "double", "bytes per second that servers received"),
    Col("api_requests", "double", "JetStream API requests per second"),
    Col("api_errors", "bigint", "of the API requests of the hour, how many ended in errors"),
    Col("num_pending", "bigint", "messages that consumers have not delivered, in the hour's last snapshot"),
    Col("num_ack_pending", "bigint", "messages that are delivered and not acknowledged, likewise"),
    Col("elections", "int", "changes of the leader of any group that were seen"),
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
        "in the hour's last snapshot; of zones and clusters the sum over servers, only when all of them reported; of "
        "accounts what they hold on all servers",
    ),
    Col("reserved", "double", "reserved by max_bytes; null for accounts"),
    Col(
        "limit",
        "double",
        "what may be used: max_storage, max_memory, max_ha_assets, max_bytes, max_msgs, the account's limits (not those of "
        "tiers); null for none",
    ),
    Col("first_seq", "bigint", "first sequence of a stream, to see whether old messages go"),
)
GROWTH = (
    *DAY,
    *ASSET,
    Col("used", "double", "at the end of the day"),
    Col("least", "double", "smallest of the day's hours"),
    Col("most", "double", "largest of the day's hours"),
    Col("reserved", "double", "at the end of the day"),
    Col("limit", "double", "at the end of the day"),
    Col("trimmed", "boolean", "whether a stream's first sequence rose in the day: old messages go"),
    Col("last_hour", "int", "the day's last hour that reported"),
    Col("hours", "int", "hours that can be compared with the same hour of the day before"),
    Col(
        "slope",
        "double",
        "change per day: median over those hours of used(h) − used(h − 24 h); null with less than 3 hours",
    ),
)
#: Days ahead of the forecasts whose bands are known (gold/forecast.py).
_AHEAD = (1, 7, 30)

_CHANGES = tuple(
    Col(f"change_{days}_{name}", "double", f"{number}th percentile of the change in {days} days")
    for days in _AHEAD
    for name, number in (("p10", 10), ("p90", 90))
)
FORECASTS = (
    *DAY,
    *ASSET,
    Col("last_hour", "int", "the day's last hour that reported, from which the forecast counts"),
    Col("used", "double", "at the end of the day"),
    Col("reserved", "double", "at the end of the day"),
    Col("limit", "double", "at the end of the day"),
    Col("days_long", "int", "days with a slope in four weeks"),
    Col("days_short", "int", "days with a slope in the last week"),
    Col("slope_long", "double", "of four weeks, per day"),
    Col("slope_short", "double", "of the last week; null unless it is known on all its days"),
    Col("slope_before", "double", "of the three weeks before the last; null unless all weekdays are known"),
    Col(
        "basis", "string", "`short` when the last week is unlike the weeks before, beyond their noise; otherwise `long`"
    ),
    Col(
        "slope",
        "double",
        "that of the basis, or 0 where it is below its standard error: the forecast is used + days × slope",
    ),
    *(
        Col(
            f"spread_{days}",
            "double",
            f"how far truths are from forecasts over {days} days, as the asset's own days tell",
        )
        for days in _AHEAD
    ),
    *_CHANGES,
    *(
        Col(
            f"errors_{days}",
            "int",
            f"errors over {days} days that the band is from; 0 where the normal distribution is",
        )
        for days in _AHEAD
    ),
    Col("trimmed", "boolean", "whether old messages went on every day of the last week"),
)
BACKTESTS = (
    *DAY,
    *ASSET,
    Col("horizon", "int", "days ahead: 1, 7 or 30"),
    Col("origin", "date", "the day of the forecast"),
    Col("forecast_p10", "double", "10th percentile of what the forecast of that day said for this day"),
    Col("forecast_p50", "double", "what it expected"),
    Col("forecast_p90", "double", "90th percentile"),
    Col("actual", "double", "what was used"),
    Col("error", "double", "(forecast_p50 − actual) / actual"),
    Col("naive_error", "double", "error of the forecast that nothing changes"),
    Col("covered", "boolean", "whether the truth is between p10 and p90"),
    Col(
        "spreads",
        "double",
        "(actual − forecast_p50) / spread, of which bands are made; null with less than two weeks",
    ),
)
CAPACITY = (
    *DAY,
    *ASSET,
    Col(
        "state",
        "string",
        "`unknown` (less than 3 days with a slope), `unlimited`, `full` (≥ 99 %), `plateau` (the slope is 0, or old messages go "
        "and it is below 0.1 % a day), `shrinking`, `growing`",
    ),
    Col("used", "double", "at the end of the day"),
    Col("reserved", "double", "at the end of the day"),
    Col("limit", "double", "at the end of the day"),
    Col("free", "double", "limit − the larger of used and reserved, as the meta leader reckons"),
    Col("used_ratio", "double", "used / limit"),
    Col("reserved_ratio", "double", "reserved / limit"),
    Col("basis", "string", "window that the slope is of"),
    Col("days", "int", "days with a slope in it"),
    Col(
        "changed", "boolean", "whether the last week differs from those before by more than a third of the larger, too"
    ),
    Col("slope", "double", "expected change per day"),
    *_CHANGES,
    Col(
        "full_p10",
        "double",
        "days until used reaches the limit at the band's upper edge, beyond 30 days on the line through it: one chance in ten to "
        "be full earlier; null for never",
    ),
    Col("full_p50", "double", "with the slope"),
    Col("full_p90", "double", "at the band's lower edge"),
    Col("backtests", "int", "forecasts over 7 days (else 1 day) that came due in the last 28 days"),
    Col("horizon", "int", "days ahead of those"),
    Col("error_p50", "double", "median of their absolute errors"),
    Col("error_p90", "double", "90th percentile of the same"),
    Col("naive_p50", "double", "median absolute error of the forecast that nothing changes"),
    Col("coverage", "double", "share of truths between p10 and p90; 0.8 is what the band promises"),
)
HEADROOM = (
    *MOMENT,
    DOMAIN,
    Col("cluster", "string", "cluster"),
    Col("scope", "string", "`server` or `zone`: what fails"),
    Col("name", "string", "which one"),
    Col("servers_left", "int", "JetStream servers of the cluster that are left"),
    Col(
        "need",
        "double",
        "bytes in files of its replicas that have others to be made from again: the larger of what they hold and their "
        "max_bytes",
    ),
    Col("replicas", "int", "how many replicas"),
    Col("lost", "double", "bytes in files whose only replicas are there"),
    Col(
        "free",
        "double",
        "bytes free on the servers left: limit × target (a setting) − the larger of used and reserved, not below 0; null "
        "when a limit is unknown",
    ),
    Col("after", "double", "free − need"),
    Col("largest", "double", "bytes of the largest such replica"),
    Col("largest_free", "double", "bytes free on the server left that has most"),
    Col("fits", "boolean", "after ≥ 0 and largest ≤ largest_free"),
    Col("slope", "double", "bytes per day by which files grow on all servers of the cluster; null when unknown"),
    Col(
        "days",
        "double",
        "after / slope: days until it no longer fits; 0 when it does not now, null for never or unknown",
    ),
)

# --- facts: what is made of each hour, and kept for those who make the day of them ---------------------------------------------

_TAKEN = (
    Col("fleet", "string", "the fleet"),
    Col("taken", "timestamp", "a snapshot of the hour: the last one that the row is of, of a run the first one"),
)


def _named(columns: Sequence[Col], *names: str) -> Iterator[Col]:
    return (column for column in columns if column.name in names)


LOOKS = (*_TAKEN, *_named(MOMENTS, "snapshot", "complete", "absent", "disabled", "silent"))
ANSWERS = (
    *_TAKEN,
    Col("snapshot", "string", "the snapshot"),
    Col("server", "string", "the server"),
    Col("cluster", "string", "its cluster"),
    Col("healthy", "boolean", "whether it was healthy; null when it did not tell"),
    Col("ahead", "double", "seconds that its clock was ahead; null when it did not tell"),
    Col("namesakes", "boolean", "whether another server answered by this name"),
    Col("identity", "struct<start:timestamp,server_id:string,version:string>", "which start of it answered"),
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
    Col("first", "bigint", "last sequence then"),
    Col("last", "bigint", "last sequence in the last snapshot"),
)
WAITING = (*_TAKEN, *_named(ACTIVITY, "num_pending", "num_ack_pending"))
RUNS = (
    *_TAKEN,
    *(column for column in TIMELINE if column.name not in ("fleet", "day", "run", "before")),
    Col("alike", "bigint", "the same for runs that are one when nothing is between them"),
    Col("first_snapshot", "string", "first snapshot"),
    Col("last_snapshot", "string", "last snapshot"),
)

#: What a consumer is at a moment, and of which of it rates and trends are made.
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


#: A replica beside its leader in a snapshot.
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
    Col("first", _struct(PAIR), "as it was in the first snapshot"),
    Col("last", _struct(PAIR), "as it was in the last snapshot"),
    Col("write", _RATE, "messages a second that the leader wrote between two snapshots"),
    Col("trim", _RATE, "messages a second that went from it"),
    Col("compared", "bigint", "snapshots after the first in which both reported, of which the others are, too"),
    *_named(DIVERGENCE, "differing", "lagging"),
    Col("alike_at", "timestamp", "last one in which it neither differed nor lagged"),
    Col("near_at", "timestamp", "last one in which it did not lag"),
    Col("still_differs", "bigint", "snapshots after alike_at that differ"),
    Col("still_lags", "bigint", "snapshots after near_at that lag"),
    Col("differs_since", "timestamp", "first one after alike_at that differs"),
    Col("lags_since", "timestamp", "first one after near_at that lags"),
    Col("shown", _struct(SHOWN), "as it was in the last one"),
)

LAGS = (
    *_TAKEN,
    *_named(CONSUMER_LAG, *CONSUMER, "created"),
    Col("begin", "timestamp", "first snapshot with a leader"),
    Col("snapshots", "int", "how many"),
    Col("pending_min", "bigint", "smallest num_pending"),
    Col("pending_max", "bigint", "largest num_pending"),
    Col("first", _struct(CONSUMER_NOW), "as it was in the first snapshot"),
    Col("now", _struct(CONSUMER_NOW), "as it was in the last snapshot"),
    Col("moved_at", "timestamp", "last snapshot with progress since the one before, or with nothing to do"),
    Col("moved_delivered", "bigint", "delivered.consumer_seq then"),
    Col("points", f"array<{_struct(CONSUMER_POINT)}>", "all snapshots"),
)
#: A name that two servers have has two series.
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
    Col("snapshots", "int", "how many"),
    *(
        column
        for name in ("connections", "js_storage", "js_memory")
        for column in (
            Col(name, "struct<sum:double,count:bigint>", "of all snapshots that reported it"),
            Col(f"{name}_max", "bigint", "most"),
        )
    ),
    *(Col(f"{name}_max", "bigint", "most") for name in ("leafnodes", "num_subscriptions")),
    *(
        Col(name, "bigint", "in the last snapshot")
        for name in ("js_reserved_storage", "js_reserved_memory", "js_ha_assets")
    ),
)
THINGS = (
    *_TAKEN,
    *_THING,
    *_named(STATES, "hosts", "created", "state"),
    Col("alike", "bigint", "the same for the same state"),
    Col("block", "int", "which 63 snapshots of the hour, in their order, `bits` are of"),
    Col("bits", "bigint", "those of them that reported this of it: a bit for each, from the lowest on"),
)
