# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of consumers."""

from __future__ import annotations

from jetstream_insights.findings.cluster_checks import LAG, SEEN, behind, margin
from jetstream_insights.findings.registry import CRITICAL, INFO, WARNING, Check, Threshold
from jetstream_insights.findings.stream_checks import LEADER_IS_KNOWN, WATCHED, monitored

_MARGIN = margin("peers")
_BEHIND = f"array_join({behind('peers')}, ', ')"
_IDLE = "unix_seconds(taken) - unix_seconds(greatest(last_delivered, last_acked, created))"

CHECKS = (
    Check(
        code="JETSTREAM_005",
        severity=CRITICAL,
        title="A consumer exceeds the limits in its metadata",
        view="consumers",
        applies=WATCHED,
        thresholds=(
            monitored("outstanding-ack-critical", "", "unacknowledged messages"),
            monitored("waiting-critical", "", "waiting pulls"),
            monitored("unprocessed-critical", "", "undelivered messages"),
            monitored("redelivery-critical", "", "messages being redelivered"),
            monitored("last-delivery-critical", "s", "since the last delivery"),
            monitored("last-ack-critical", "s", "since the last acknowledgement"),
        ),
        fails=":outstanding_ack_critical > 0 AND num_ack_pending >= :outstanding_ack_critical "
        "OR :waiting_critical > 0 AND num_waiting >= :waiting_critical "
        "OR :unprocessed_critical > 0 AND num_pending >= :unprocessed_critical "
        "OR :redelivery_critical > 0 AND num_redelivered >= :redelivery_critical "
        "OR :last_delivery_critical > 0 AND unix_seconds(taken) - unix_seconds(last_delivered) >= "
        ":last_delivery_critical "
        "OR :last_ack_critical > 0 AND unix_seconds(taken) - unix_seconds(last_acked) >= :last_ack_critical",
        unknown="servers keep the times of deliveries and acknowledgements in memory: there was none since the "
        "leader's last "
        "start",
        against="CAST(NULL AS DOUBLE)",
        text="{num_ack_pending|count} unacknowledged, {num_waiting} waiting pulls, {num_pending|count} undelivered, "
        "{num_redelivered|count} redelivered, last delivery {last_delivered}, last acknowledgement {last_acked}",
        rationale="The owner of the consumer defined these limits.",
        remedy="module `nats_check` with the check `consumer` lists the exceeded limits; `nats_consumer` for the "
        "metadata",
        source="nats audit; jsm.go monitor/consumer.go",
    ),
    Check(
        code="CONSUMER_101",
        severity=CRITICAL,
        title="A consumer has no leader",
        view="consumers",
        knows=LEADER_IS_KNOWN,
        unknown="{views|list} may lead it, but did not report it",
        fails="size(leaders) = 0",
        # How many of its members answered.
        value="size(hosts)",
        against="quorum",
        text="no server leads it; it is on {hosts|list}, {quorum} of {num_replicas} must be up",
        rationale="It delivers nothing, although its stream may accept messages.",
        remedy="playbook `diagnose`; start the stopped servers",
        source="docs/health-gate.md; gap of nats audit",
        twice=True,
    ),
    Check(
        code="CONSUMER_102",
        severity=CRITICAL,
        title="A consumer has several leaders",
        view="consumers",
        fails="size(leaders) > 1",
        value="size(leaders)",
        against="1",
        text="{leaders|list} claim to lead it",
        rationale="Messages may be delivered twice.",
        remedy="`nats_consumer_stepdown`",
        source="natscli consumer-check",
        twice=True,
    ),
    Check(
        code="CONSUMER_103",
        severity=CRITICAL,
        title="A consumer has no replica to spare",
        view="consumers",
        applies="num_replicas > 2",
        thresholds=(SEEN, LAG),
        knows="size(leaders) = 1 AND peers IS NOT NULL",
        unknown="no sole leader reported its replicas",
        fails=f"{_MARGIN} < 1",
        value=_MARGIN,
        against="1",
        text=f"{{quorum}} of {{num_replicas}} must be in step; behind: {{{behind('peers')}|list}}",
        rationale="If one more server stops, the consumer loses its quorum.",
        remedy="no `restart` until this is fixed: the gate refuses it",
        source="docs/health-gate.md",
        peer=_BEHIND,
    ),
    Check(
        code="CONSUMER_104",
        severity=WARNING,
        title="A consumer has fewer replicas than it should",
        view="consumers",
        applies="num_replicas > 1",
        knows="size(leaders) = 1",
        unknown="no sole leader reported its replicas",
        fails="1 + coalesce(size(peers), 0) < num_replicas",
        value="1 + coalesce(size(peers), 0)",
        against="num_replicas",
        text="{1 + coalesce(size(peers), 0)} of {num_replicas} replicas",
        rationale="A peer was removed and no server could take its place.",
        remedy="playbook `replica_count`, or `scale_out`",
        source="docs/internals/quorum-planner.md",
    ),
    Check(
        code="CONSUMER_105",
        severity=WARNING,
        title="Delivery is waiting for acknowledgements",
        view="consumers",
        applies="max_ack_pending > 0",
        thresholds=(Threshold("outstanding", 90, "%", "of max_ack_pending"),),
        needs=("num_ack_pending",),
        fails="num_ack_pending * 100 >= :outstanding * max_ack_pending",
        value="100 * try_divide(num_ack_pending, max_ack_pending)",
        text="{num_ack_pending|count} messages are unacknowledged, the limit is {max_ack_pending|count}",
        rationale="At max_ack_pending the consumer stops delivering.",
        remedy="the client if it acknowledges nothing, otherwise more or faster clients; `nats_consumer` with a larger "
        "`max_ack_pending`",
        source="jsm.go monitor/consumer.go",
    ),
    Check(
        code="CONSUMER_106",
        severity=WARNING,
        title="Many messages are redelivered",
        view="consumers",
        thresholds=(
            Threshold("redelivered", 100, "", "messages being redelivered", "redelivery-critical"),
            Threshold("share", 10, "%", "of the unacknowledged messages"),
        ),
        needs=("num_redelivered",),
        fails="num_redelivered >= :redelivered AND num_redelivered * 100 >= :share * num_ack_pending",
        value="num_redelivered",
        text="{num_redelivered|count} of {num_ack_pending|count} unacknowledged messages were delivered more than once",
        rationale="Clients fail to process them, or need longer than ack_wait.",
        remedy="`nats_consumer` with `ack_wait`, `backoff`, `max_deliver`; advisories MAX_DELIVERIES",
        source="jsm.go monitor/consumer.go",
    ),
    Check(
        code="CONSUMER_107",
        severity=WARNING,
        title="A consumer is far behind",
        view="consumers",
        thresholds=(Threshold("unprocessed", 1_000_000, "", "undelivered messages", "unprocessed-critical"),),
        needs=("num_pending",),
        fails="num_pending >= :unprocessed",
        value="num_pending",
        text="{num_pending|count} messages have not been delivered yet",
        rationale="CONSUMER_203 reports it if the backlog grows, CONSUMER_204 if catching up takes long.",
        remedy="more clients; `nats_consumer` with a larger `max_ack_pending`",
        source="jsm.go monitor/consumer.go",
    ),
    Check(
        code="CONSUMER_108",
        severity=WARNING,
        title="Messages are waiting and no client requests them",
        view="consumers",
        applies="num_pending > 0 AND NOT coalesce(paused, false)",
        thresholds=(Threshold("silence", 3600, "s", "since the last delivery or acknowledgement"),),
        fails=f"CASE WHEN pull THEN coalesce(num_waiting, 0) = 0 ELSE NOT coalesce(push_bound, false) END AND {_IDLE} "
        f"> :silence",
        value=_IDLE,
        text="{num_pending|count} messages are waiting, no client requests them, no activity for {"
        + _IDLE
        + "|seconds}",
        rationale="A client was removed without its consumer, or does not come back.",
        remedy="the client; or `nats_consumer` with `state: absent`, or `inactive_threshold`",
        source="nats-server#4736",
    ),
    Check(
        code="CONSUMER_109",
        severity=INFO,
        title="A consumer is paused",
        view="consumers",
        fails="coalesce(paused, false)",
        text="it is paused, {num_pending|count} messages are waiting",
        rationale="It was paused on request, and resumes automatically at pause_until.",
        remedy="`nats_consumer` with `pause_until`",
        source="nats-server 2.11",
    ),
    Check(
        code="CONSUMER_110",
        severity=WARNING,
        title="A consumer is near its limit of waiting pulls",
        view="consumers",
        applies="pull AND max_waiting > 0",
        thresholds=(Threshold("waiting", 90, "%", "of max_waiting"),),
        needs=("num_waiting",),
        fails="num_waiting * 100 >= :waiting * max_waiting",
        value="100 * try_divide(num_waiting, max_waiting)",
        text="{num_waiting|count} of {max_waiting|count} pulls are waiting",
        rationale="At the limit further pulls are rejected.",
        remedy="fewer concurrent pulls in the clients; `nats_consumer` with a larger `max_waiting`",
        source="jsm.go monitor/consumer.go",
    ),
    Check(
        code="CONSUMER_111",
        severity=CRITICAL,
        title="A consumer is ahead of its stream",
        view="consumers",
        thresholds=(
            Threshold("ahead", 1000, "", "messages"),
            Threshold("apart", 60, "s", "between two answers, in which messages may be written"),
        ),
        needs=("delivered_stream_seq", "stream_last"),
        fails="delivered_stream_seq > stream_last + :ahead + greatest(:apart * stream_rate, stream_rate_rise)",
        value="delivered_stream_seq - stream_last",
        text="it has delivered up to {delivered_stream_seq|count}, the stream ends at {stream_last|count}",
        rationale="The stream was reset or restored, or lost its end: the consumer skips new messages with sequences "
        "it has delivered.",
        remedy="recreate it by `nats_consumer` with `opt_start_seq`; STREAM_202",
        source="natscli consumer-check (AHEAD_OF_STREAM_SEQ)",
        twice=True,
    ),
    Check(
        code="CONSUMER_112",
        severity=WARNING,
        title="Messages were removed before a consumer read them",
        view="consumers",
        applies="num_pending > 0 AND stream_messages > 0 AND retention = 'limits' AND NOT filtered AND NOT overwrites",
        thresholds=(Threshold("removed", 0, "", "messages between the last delivered and the first stored"),),
        needs=("delivered_stream_seq", "stream_first"),
        knows="delivered_stream_seq > 0",
        unknown="nothing has been delivered yet: its start is unknown",
        fails="stream_first - 1 - delivered_stream_seq > :removed",
        value="stream_first - 1 - delivered_stream_seq",
        text="it has delivered up to {delivered_stream_seq|count}, the stream begins at {stream_first|count}",
        rationale="Limits removed messages before it delivered them: it is slower than the stream's retention. "
        "Consumers with a "
        "filter are not checked, nor are streams that overwrite their subjects, such as buckets.",
        remedy="larger limits in `nats_stream`; more clients",
        source="ConsumerInfo.Delivered and StreamState.FirstSeq",
    ),
    Check(
        code="CONSUMER_113",
        severity=WARNING,
        title="Replicas of a consumer differ",
        view="consumer_copies",
        applies="num_replicas > 1",
        thresholds=(
            Threshold("share", 5, "%", "of the highest sequence"),
            Threshold("messages", 1000, "", "sequences"),
        ),
        knows="copies >= num_replicas",
        unknown="{copies} of {num_replicas} replicas reported",
        fails="most_ack_floor_stream_seq - least_ack_floor_stream_seq > greatest(:share / 100 * "
        "most_ack_floor_stream_seq, "
        ":messages) + tolerated "
        "OR most_delivered_stream_seq - least_delivered_stream_seq > greatest(:share / 100 * most_delivered_stream_seq, "
        ":messages) + tolerated",
        value="greatest(most_ack_floor_stream_seq - least_ack_floor_stream_seq, most_delivered_stream_seq - "
        "least_delivered_stream_seq)",
        against="greatest(:share / 100 * most_ack_floor_stream_seq, :messages) + tolerated",
        text="acknowledged from {least_ack_floor_stream_seq|count} ({behind_ack_floor_stream_seq}) to "
        "{most_ack_floor_stream_seq|count}, "
        "delivered from {least_delivered_stream_seq|count} to {most_delivered_stream_seq|count}",
        rationale="After the next election messages may be delivered again, or not at all.",
        remedy="`nats_consumer_stepdown`; recreate the consumer",
        source="natscli consumer-check (UNSYNCED)",
        peer="behind_ack_floor_stream_seq",
        twice=True,
    ),
    Check(
        code="CONSUMER_114",
        severity=INFO,
        title="Messages may be redelivered forever",
        view="consumers",
        applies="ack_policy = 'explicit' AND durable",
        fails="coalesce(max_deliver, -1) <= 0 AND num_redelivered > 0",
        value="num_redelivered",
        text="{num_redelivered|count} messages are being redelivered, and max_deliver is unlimited",
        rationale="A message that no client can process is redelivered without end.",
        remedy="`nats_consumer` with `max_deliver` and `backoff`; a client for the advisories MAX_DELIVERIES",
        source="ConsumerConfig.MaxDeliver",
    ),
    Check(
        code="CONSUMER_115",
        severity=CRITICAL,
        title="A server with a replica of a consumer is too old for it",
        view="consumer_copies",
        applies="needed_level > 0",
        knows="levels >= copies",
        unknown="not every server with a replica reported its API level",
        fails="needed_level > least_level",
        value="least_level",
        against="needed_level",
        text="it needs API level {needed_level}, {oldest} has {least_level}",
        rationale="It is offline on that server from 2.12 on: if that server leads, nothing is delivered.",
        remedy="playbook `upgrade` for {oldest}; until then `nats_consumer_stepdown`",
        source="ADR-44, ADR-66; jetstream_versioning.go",
        peer="oldest",
    ),
    Check(
        code="CONSUMER_116",
        severity=INFO,
        title="A durable consumer has fewer replicas than its stream",
        view="consumers",
        applies="durable AND stream_replicas > 1",
        fails="num_replicas < stream_replicas",
        value="num_replicas",
        against="stream_replicas",
        text="{num_replicas} replicas on a stream with {stream_replicas}",
        rationale="While its server is down nothing is delivered, and if its disk fails the acknowledgements are lost.",
        remedy="`nats_consumer` with `num_replicas: 0`, which inherits the stream's number",
        source="consumer.go ConsumerConfig.replicas",
    ),
)
