# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of streams and of their replicas."""

from __future__ import annotations

from jetstream_insights.findings.cluster_checks import LAG, SEEN, behind, margin
from jetstream_insights.findings.registry import CRITICAL, INFO, MONITOR_METADATA, WARNING, Check, Threshold, text_sql

_MARGIN = margin("peers")
_BEHIND = f"array_join({behind('peers')}, ', ')"
#: How much of each limit of a stream is used; null without a limit.
_BYTES_USED, _MESSAGES_USED, _CONSUMERS_USED = (
    f"CASE WHEN {limit} > 0 THEN {text_sql(text)} END"
    for limit, text in (
        ("max_bytes", "{bytes|bytes} of {max_bytes|bytes}"),
        ("max_msgs", "{messages|count} of {max_msgs|count} messages"),
        ("max_consumers", "{consumer_count} of {max_consumers} consumers"),
    )
)
#: Each server that is named as leader reported that it does not lead; one that did not answer may well lead.
LEADER_IS_KNOWN = (
    "size(leaders) > 0 OR forall(coalesce(views, CAST(array() AS array<string>)), v -> array_contains(hosts, v))"
)
WATCHED = f"lower(coalesce(try_element_at(metadata, '{MONITOR_METADATA}enabled'), '')) IN ('true', '1', 't')"
_FEW = "origin -> origin.lag"


def monitored(key: str, unit: str, meaning: str) -> Threshold:
    """Return a threshold that only metadata sets: 0 disables it, as in `nats server check`."""
    return Threshold(key.replace("-", "_"), 0, unit, meaning, key)


_UNLIMITED = "coalesce(max_bytes, 0) <= 0 AND coalesce(max_msgs, 0) <= 0 AND coalesce(max_age, 0) <= 0"

CHECKS = (
    Check(
        code="JETSTREAM_001",
        severity=CRITICAL,
        title="A replica is far behind",
        view="stream_copies",
        applies="most_last_seq > 0",
        thresholds=(
            Threshold("last_seq", 10, "%", "of the highest last sequence"),
            Threshold("messages", 10000, "", "messages, regardless of their share"),
            Threshold("fewest", 100, "", "messages that are always tolerated"),
        ),
        knows="copies >= num_replicas",
        unknown="{copies} of {num_replicas} replicas reported",
        fails="most_last_seq - least_last_seq > greatest(:fewest, least(:last_seq / 100 * most_last_seq, :messages)) + "
        "tolerated",
        value="most_last_seq - least_last_seq",
        against="greatest(:fewest, least(:last_seq / 100 * most_last_seq, :messages)) + tolerated",
        unit="messages",
        text="{behind_last_seq} is {most_last_seq - least_last_seq|count messages} behind, at {least_last_seq|count}",
        rationale="A share alone, as in nats audit, tolerates a lag of a million messages in ten million, but not of "
        "one message in five. Messages that arrive between two servers' answers are tolerated, and all since the previous "
        "snapshot, because a burst may lie between the answers (`tolerated`).",
        remedy="`nats_stream_stepdown`; then `nats_stream_peer` for the replica",
        source="nats audit, with bounds on its share",
        peer="behind_last_seq",
        twice=True,
    ),
    Check(
        code="JETSTREAM_002",
        severity=WARNING,
        title="A stream has too many subjects",
        view="streams",
        thresholds=(Threshold("subjects", 1_000_000, "", "subjects", "subjects-warn"),),
        needs=("num_subjects",),
        fails="num_subjects > :subjects",
        value="num_subjects",
        unit="subjects",
        text="{num_subjects|count subjects}",
        rationale="The index of subjects is in memory on every replica, and is rebuilt at a start.",
        remedy="put identifiers into the message instead of the subject; `nats_stream` with `max_age`",
        source="nats audit",
    ),
    Check(
        code="JETSTREAM_003",
        severity=WARNING,
        title="A stream is near its limits",
        view="streams",
        thresholds=(
            Threshold("bytes", 90, "%", "of max_bytes"),
            Threshold("messages", 90, "%", "of max_msgs"),
            Threshold("consumers", 90, "%", "of max_consumers"),
        ),
        applies="max_bytes > 0 OR max_msgs > 0 OR max_consumers > 0",
        needs=("bytes", "messages"),
        fails="max_bytes > 0 AND bytes * 100 > :bytes * max_bytes OR max_msgs > 0 AND messages * 100 > :messages * "
        "max_msgs "
        "OR max_consumers > 0 AND consumer_count * 100 > :consumers * max_consumers",
        worse="discard = 'new' AND (max_bytes > 0 AND bytes * 100 > :bytes * max_bytes OR "
        "max_msgs > 0 AND messages * 100 > :messages * max_msgs)",
        value="100 * greatest(CASE WHEN max_bytes > 0 THEN bytes / max_bytes END, CASE WHEN max_msgs > 0 THEN messages / "
        "max_msgs END, "
        "CASE WHEN max_consumers > 0 THEN consumer_count / max_consumers END)",
        text=f"{{concat_ws(', ', {_BYTES_USED}, {_MESSAGES_USED}, {_CONSUMERS_USED})}}, discard {{discard}}",
        rationale="With discard: new, publishers are rejected at the limit. Otherwise the oldest messages are removed, "
        "read or not.",
        remedy="`nats_stream` with larger limits or a shorter `max_age`",
        source="nats audit",
    ),
    Check(
        code="JETSTREAM_004",
        severity=CRITICAL,
        title="A stream exceeds the limits in its metadata",
        view="stream_leaders",
        applies=WATCHED,
        thresholds=(
            monitored("msgs-critical", "", "most messages"),
            monitored("msgs-warn", "", "messages at which it is a warning"),
            monitored("subjects-critical", "", "most subjects, or the fewest if it is below subjects-warn"),
            monitored("subjects-warn", "", "subjects at which it is a warning"),
            monitored("peer-expect", "", "replicas that it must have"),
            monitored("peer-lag-critical", "", "Raft entries that a replica may be behind"),
            monitored("peer-seen-critical", "s", "since the leader's last contact with a replica"),
            monitored("min-sources", "", "fewest sources"),
            monitored("max-sources", "", "most sources"),
            monitored("lag-critical", "", "messages that a source or mirror may be behind"),
            monitored("seen-critical", "s", "since the last contact with a source or mirror"),
        ),
        fails=":msgs_critical > 0 AND messages >= :msgs_critical OR :msgs_warn > 0 AND messages >= :msgs_warn "
        "OR CASE WHEN :subjects_critical > 0 AND :subjects_warn > :subjects_critical THEN num_subjects <= :subjects_warn "
        "ELSE :subjects_critical > 0 AND num_subjects >= :subjects_critical OR :subjects_warn > 0 AND num_subjects >= "
        ":subjects_warn END "
        "OR :peer_expect > 0 AND 1 + coalesce(size(peers), 0) <> :peer_expect "
        "OR :peer_lag_critical > 0 AND exists(peers, p -> p.lag >= :peer_lag_critical) "
        "OR :peer_seen_critical > 0 AND exists(peers, p -> p.active >= 1e9 * :peer_seen_critical) "
        "OR :min_sources > 0 AND size(origins) < :min_sources OR :max_sources > 0 AND size(origins) > :max_sources "
        "OR :lag_critical > 0 AND exists(origins, o -> o.lag >= :lag_critical) "
        "OR :seen_critical > 0 AND (replicates = 0 OR exists(origins, o -> o.active < 0 OR o.active >= 1e9 * "
        ":seen_critical))",
        against="CAST(NULL AS DOUBLE)",
        text="{messages|count} messages, {num_subjects|count} subjects, {1 + coalesce(size(peers), 0)} replicas (most "
        "behind: "
        "{array_max(transform(peers, p -> p.lag))}), {size(origins)} sources (most behind: "
        "{array_max(transform(origins, o -> "
        "o.lag))})",
        rationale="The owner of the stream defined these limits.",
        remedy="module `nats_check` with the check `stream` lists the exceeded limits; `nats_stream` for the metadata",
        source="nats audit; jsm.go monitor/stream.go",
    ),
    Check(
        code="STREAM_101",
        severity=CRITICAL,
        title="A stream has no leader",
        view="streams",
        knows=LEADER_IS_KNOWN,
        unknown="{views|list} may lead it, but did not report it",
        fails="size(leaders) = 0",
        # How many of its members answered.
        value="size(hosts)",
        against="quorum",
        unit="servers",
        text="no server leads it; it is on {hosts|list}, {quorum} of {num_replicas} must be up",
        rationale="It neither accepts nor delivers messages. healthz may be 200 on every server.",
        remedy="playbook `diagnose`; start the stopped servers",
        source="docs/health-gate.md; gap of nats audit",
        twice=True,
    ),
    Check(
        code="STREAM_102",
        severity=CRITICAL,
        title="A stream has several leaders",
        view="streams",
        fails="size(leaders) > 1",
        value="size(leaders)",
        against="1",
        unit="leaders",
        text="{leaders|list} claim to lead it",
        rationale="Just after an election, answers from different moments may show two leaders; if it persists, "
        "replicas diverge.",
        remedy="`nats_stream_stepdown`; playbook `diagnose`",
        source="natscli stream-check MULTILEADER",
        twice=True,
    ),
    Check(
        code="STREAM_103",
        severity=INFO,
        title="A stream has a single replica",
        view="streams",
        thresholds=(Threshold("replicas", 2, "", "fewest replicas", "peer-expect"),),
        needs=("num_replicas",),
        fails="num_replicas < :replicas",
        value="num_replicas",
        unit="replicas",
        text="{num_replicas} replica, on {hosts|list}",
        rationale="It is unavailable while its server restarts, and lost with its disk.",
        remedy="playbook `replica_count`; metadata `natsops.insights.stream_103_replicas: 1` if it is intended",
        source="gap of nats audit (R1 count)",
    ),
    Check(
        code="STREAM_104",
        severity=CRITICAL,
        title="A stream has no replica to spare",
        view="streams",
        applies="num_replicas > 2",
        thresholds=(SEEN, LAG),
        knows="size(leaders) = 1 AND peers IS NOT NULL",
        unknown="no sole leader reported its replicas",
        fails=f"{_MARGIN} < 1",
        value=_MARGIN,
        against="1",
        unit="replicas",
        text=f"{{quorum}} of {{num_replicas}} must be in step; behind: {{{behind('peers')}|list}}",
        rationale="If one more server stops, the stream loses its quorum.",
        remedy="no `restart` until this is fixed: the gate refuses it; `nats_stream_peer` for a replica that never "
        "catches up",
        source="docs/internals/quorum-planner.md; gap of nats audit (quorum margin)",
        peer=_BEHIND,
    ),
    Check(
        code="STREAM_105",
        severity=CRITICAL,
        title="A stream has fewer replicas than it should",
        view="streams",
        applies="num_replicas > 1",
        knows="size(leaders) = 1",
        unknown="no sole leader reported its replicas",
        fails="1 + coalesce(size(peers), 0) < num_replicas",
        value="1 + coalesce(size(peers), 0)",
        against="num_replicas",
        unit="replicas",
        text="{1 + coalesce(size(peers), 0)} of {num_replicas} replicas",
        rationale="A peer was removed and no server could take its place. Neither a restart nor reapplying the "
        "configuration fixes it.",
        remedy="playbook `replica_count` to 1 and back, or `scale_out`",
        source="docs/internals/quorum-planner.md; nats-server 2.10 to 2.14 peer-remove",
    ),
    Check(
        code="STREAM_106",
        severity=WARNING,
        title="A replica of a stream is behind",
        view="streams",
        applies="num_replicas > 1",
        thresholds=(SEEN, LAG),
        knows="size(leaders) = 1 AND peers IS NOT NULL",
        unknown="no sole leader reported its replicas",
        fails=f"size({behind('peers')}) > 0",
        value=f"size({behind('peers')})",
        against="0",
        unit="replicas",
        text=f"behind: {{{behind('peers')}|list}}",
        rationale="It does not count for the quorum until it has caught up.",
        remedy="module `nats_cluster_health`; playbook `diagnose`",
        source="health/rules Limits",
        peer=_BEHIND,
    ),
    Check(
        code="STREAM_107",
        severity=CRITICAL,
        title="A stream lost messages",
        view="streams",
        needs=("lost_messages",),
        fails="lost_messages > 0 OR lost_bytes > 0",
        value="lost_messages",
        against="0",
        unit="messages",
        text="{lost_messages|count} messages ({lost_bytes|bytes}) are lost",
        rationale="Blocks on disk were corrupt or missing when the server read them.",
        remedy="`nats_stream_stepdown` to a replica that has them; playbook `replace` for the disk",
        source="StreamState.Lost",
    ),
    Check(
        code="STREAM_108",
        severity=INFO,
        title="A stream has too many interior deletes",
        view="streams",
        thresholds=(Threshold("deleted", 1_000_000, "", "deleted messages between the first and the last"),),
        needs=("num_deleted",),
        fails="num_deleted > :deleted",
        value="num_deleted",
        unit="messages",
        text="{num_deleted|count} deleted messages between its first and its last; {messages|count} remain",
        rationale="They are kept in memory and copied in each snapshot; a block is not freed while it has a single "
        "live message.",
        remedy="`nats_stream` with `max_msgs_per_subject` and `max_age`, or another stream for keys with few updates",
        source="StreamState.NumDeleted",
    ),
    Check(
        code="STREAM_109",
        severity=WARNING,
        title="A stream has an even number of replicas",
        view="streams",
        applies="num_replicas > 1",
        fails="num_replicas % 2 = 0",
        value="num_replicas",
        unit="replicas",
        text="{num_replicas} replicas tolerate no more losses than {num_replicas - 1}",
        rationale="An even number raises the quorum without tolerating another failure.",
        remedy="playbook `replica_count` to an odd number",
        source="raft.go quorum",
    ),
    Check(
        code="STREAM_110",
        severity=WARNING,
        title="A stream grows without limit",
        view="streams",
        applies="coalesce(retention, 'limits') = 'limits' AND NOT coalesce(sealed, false)",
        fails=f"{_UNLIMITED} AND coalesce(max_msgs_per_subject, 0) <= 0",
        value="bytes",
        unit="bytes",
        text="no max_bytes, max_msgs, max_age or max_msgs_per_subject; it has {bytes|bytes}",
        rationale="It may fill the disk that all streams share.",
        remedy="`nats_stream` with `max_age` and `max_bytes`",
        source="StreamConfig limits",
    ),
    Check(
        code="STREAM_111",
        severity=WARNING,
        title="A stream's only replica is in memory",
        view="streams",
        fails="storage = 'memory' AND num_replicas = 1",
        text="storage memory, one replica on {hosts|list}",
        rationale="A restart of its server loses all messages.",
        remedy="playbook `replica_count`; `nats_stream` with file storage",
        source="server.go lameDuckMode; memstore.go",
    ),
    Check(
        code="STREAM_112",
        severity=WARNING,
        title="Messages are older than max_age",
        view="streams",
        # With allow_msg_ttl, a message may be kept for ever (Nats-TTL: never, ADR-43).
        applies="max_age > 0 AND messages > 0 AND NOT coalesce(allow_msg_ttl, false)",
        thresholds=(Threshold("late", 600, "s", "seconds beyond max_age"),),
        needs=("first_ts",),
        fails="unix_seconds(taken) - unix_seconds(first_ts) > max_age + :late",
        value="unix_seconds(taken) - unix_seconds(first_ts) - max_age",
        text="the oldest message is from {first_ts}, max_age is {max_age|seconds}",
        rationale="Messages do not expire: the leader's clock is wrong, or its timers are not running.",
        remedy="SERVER_109; `nats_stream_stepdown`",
        source="StreamState.FirstTime; PR #4133",
    ),
    Check(
        code="STREAM_113",
        severity=WARNING,
        title="A stream is in the wrong cluster",
        view="streams",
        applies="placement_cluster <> ''",
        needs=("cluster",),
        fails="cluster <> placement_cluster",
        text="it is in {cluster}, its placement requires {placement_cluster}",
        rationale="A move has not ended, or could not begin.",
        remedy="run `nats_stream` again; `nats_cluster_info` shows the progress",
        source="StreamConfig.Placement",
    ),
    Check(
        code="STREAM_114",
        severity=INFO,
        title="A stream has too many consumers",
        view="streams",
        thresholds=(Threshold("consumers", 1000, "", "consumers"),),
        needs=("consumer_count",),
        fails="consumer_count > :consumers",
        value="consumer_count",
        unit="consumers",
        text="{consumer_count|count consumers}",
        rationale="Each message is matched against each of them, and each is an asset of the meta group.",
        remedy="`nats_consumer` with several `filter_subjects` for few consumers, and with `inactive_threshold`; "
        "ordered consumers",
        source="nats-server#8350, #7827",
    ),
    Check(
        code="STREAM_116",
        severity=WARNING,
        title="Replicas of a stream share a zone",
        view="stream_copies",
        applies="num_replicas > 1 AND (unique_tag <> '' OR varz_reported IS NULL)",
        knows="copies >= num_replicas AND zoned >= copies",
        unknown="{zoned} of {copies} replicas reported their zone",
        fails="size(zones) < copies",
        value="size(zones)",
        against="copies",
        unit="zones",
        text="{copies} replicas in the zones {zones|list}",
        rationale="unique_tag applies only at placement: an older stream, or one moved by tags, may have all replicas "
        "in one zone.",
        remedy="`nats_stream_peer` for one of the replicas",
        source="jetstream_cluster.go selectPeerGroup",
    ),
    Check(
        code="STREAM_117",
        severity=CRITICAL,
        title="Replicas of a stream have different messages",
        view="stream_copies",
        applies="num_replicas > 1",
        thresholds=(
            Threshold("share", 5, "%", "of the most messages"),
            Threshold("messages", 1000, "", "messages"),
        ),
        knows="copies >= num_replicas",
        unknown="{copies} of {num_replicas} replicas reported",
        fails="most_messages - least_messages > greatest(:share / 100 * most_messages, :messages) + tolerated",
        value="most_messages - least_messages",
        against="greatest(:share / 100 * most_messages, :messages) + tolerated",
        unit="messages",
        text="from {least_messages|count} messages ({behind_messages}) to {most_messages|count}",
        rationale="The messages that a consumer gets depend on the leader. No health check detects it.",
        remedy="`nats_stream_stepdown` to a good replica; `replica_count` 3 → 1 → 3 from there",
        source="threshold as in Synadia Insights; nats-server#5576, #7791; gap of nats audit",
        peer="behind_messages",
        twice=True,
    ),
    Check(
        code="STREAM_118",
        severity=WARNING,
        title="A replica is on a server without the stream's tags",
        view="stream_copies",
        applies="size(placement_tags) > 0",
        knows="tagged >= copies",
        unknown="not every server with a replica reported its tags",
        fails="size(misplaced) > 0",
        value="size(misplaced)",
        against="0",
        unit="replicas",
        text="{misplaced|list} do not have the tags {placement_tags|list}",
        rationale="The tags of a server or of the stream changed: replicas stay on the servers where they were placed.",
        remedy="`nats_stream_peer` for these servers",
        source="StreamConfig.Placement",
        peer="try_element_at(misplaced, 1)",
    ),
    Check(
        code="STREAM_119",
        severity=WARNING,
        title="A mirror or source is behind",
        view="stream_leaders",
        applies="replicates > 0",
        thresholds=(Threshold("lag", 10000, "", "messages behind", "lag-critical"),),
        knows="size(origins) > 0",
        unknown="its leader does not report its sources",
        fails=f"array_max(transform(origins, {_FEW})) > :lag",
        value=f"array_max(transform(origins, {_FEW}))",
        unit="messages",
        text=f"{{array_max(transform(origins, {_FEW}))|count}} messages behind "
        f"{{transform(filter(origins, o -> o.lag > :lag), o -> o.name)|list}}",
        rationale="The copy at the other stream or site is incomplete.",
        remedy="`nats_stream_stepdown` of this stream restarts the copy; STREAM_206 reports it if it stalls",
        source="jsm.go monitor/stream.go; nats-server#8323",
    ),
    Check(
        code="STREAM_120",
        severity=CRITICAL,
        title="A mirror or source is cut off",
        view="stream_leaders",
        applies="replicates > 0",
        thresholds=(Threshold("seen", 60, "s", "since the last contact", "seen-critical"),),
        fails="size(origins) < replicates OR exists(origins, o -> o.active < 0 OR o.active > 1e9 * :seen OR o.error IS "
        "NOT NULL)",
        value="array_max(transform(origins, o -> o.active)) / 1e9",
        text="{size(origins)} of {replicates} reported; silent or broken: "
        "{transform(filter(origins, o -> o.active < 0 OR "
        "o.active > 1e9 * "
        ":seen OR o.error IS NOT NULL), o -> concat(o.name, coalesce(concat(' (', o.error.description, ')'), '')))|list}",
        rationale="`nats server check stream` treats an origin without any contact as active.",
        remedy="playbook `diagnose`; permissions and imports of the account; `nats_stream_stepdown`",
        source="docs/checks.md; stream.go StreamSourceInfo.Active",
        peer="array_join(transform(filter(origins, o -> o.active < 0 OR o.active > 1e9 * :seen OR o.error IS NOT NULL), "
        "o -> o.name), ', ')",
    ),
    Check(
        code="STREAM_121",
        severity=INFO,
        title="A stream is being moved or reconfigured",
        view="streams",
        fails="desired IS NOT NULL OR size(leaders) = 1 AND 1 + coalesce(size(peers), 0) > num_replicas",
        value="1 + coalesce(size(peers), 0)",
        against="num_replicas",
        unit="replicas",
        text="{1 + coalesce(size(peers), 0)} members for {num_replicas} replicas",
        rationale="Until it ends, other changes are rejected (10123, 10124). STREAM_204 reports it if it does not end.",
        remedy="wait, as the gate does; `nats_stream_info` shows the progress of the new replicas",
        source="errors 10123 and 10124; ADR-62",
    ),
    Check(
        code="STREAM_122",
        severity=CRITICAL,
        title="A server with a replica of a stream is too old for it",
        view="stream_copies",
        applies="needed_level > 0",
        knows="levels >= copies",
        unknown="not every server with a replica reported its API level",
        fails="needed_level > least_level",
        value="least_level",
        against="needed_level",
        unit="API level",
        text="it needs API level {needed_level}, {oldest} has {least_level}",
        rationale="After a downgrade or an incomplete upgrade, it is offline on the old server from 2.12 on: that "
        "replica accepts no "
        "messages.",
        remedy="playbook `upgrade` for {oldest}; until then `nats_stream_peer` to a newer server",
        source="ADR-44, ADR-66; jetstream_versioning.go",
        peer="oldest",
    ),
    Check(
        code="STREAM_123",
        # No server reports how many of the messages have an id.
        severity=INFO,
        title="A duplicate window may hold too many message ids",
        view="streams",
        thresholds=(Threshold("ids", 5_000_000, "", "messages within the duplicate window"),),
        applies="duplicate_window > 0",
        unknown="the rate at which messages arrive is unknown",
        fails="messages > 1 AND duplicate_window * rate > :ids",
        value="duplicate_window * rate",
        unit="messages",
        text="about {duplicate_window * rate|count} messages arrive within its duplicate window of "
        "{duplicate_window|seconds}",
        rationale="Every replica keeps the message ids (Nats-Msg-Id) in memory, and reads all of these messages again "
        "after a "
        "start.",
        remedy="`nats_stream` with a shorter `duplicate_window`: the time for which publishers retry",
        source="nats-server stream.go storeMsgIdLocked, rebuildDedupe; a window longer than max_age is refused",
    ),
    Check(
        code="STREAM_124",
        severity=WARNING,
        title="A stream with interest or work queue retention has no consumers",
        view="streams",
        applies="retention IN ('interest', 'workqueue')",
        needs=("consumer_count",),
        fails="consumer_count = 0",
        value="messages",
        unit="messages",
        text="retention is {retention} and there is no consumer: {CASE retention WHEN 'interest' THEN 'published "
        "messages are discarded' ELSE concat(messages, ' messages are waiting for one') END}",
        rationale="A consumer was deleted, or reached inactive_threshold: an interest stream discards new messages, a "
        "work queue "
        "grows up to its limits.",
        remedy="`nats_consumer` for the application; or `nats_stream` with `state: absent`",
        source="stream.go: interest and work queue retention",
    ),
)
