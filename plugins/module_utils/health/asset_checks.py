# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of streams, consumers, messages and key-value buckets. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..nats.model import Peer, RaftGroup
from ..nats.replies import consumer_group, stream_group
from ..nats.stored_message import message_data, message_headers
from ..problem import ERROR, Problem
from ..times import parse_time
from ..units import human_seconds
from .check_result import (
    AT_LEAST,
    CRITICAL,
    OK,
    UNKNOWN,
    WARNING,
    Options,
    Result,
    judge,
    judge_single,
    measure_pair,
    result_name,
    with_metadata,
)
from .rules import Limits, group_problems

#: Temporary problems of groups; the gate still waits for them to end.
TRANSIENT_CODES = ("meta_pending", "stream_moving", "consumer_moving")
_NO_LIMIT = 2**63


def given_limits(lag: int | None, seen: float | None) -> Limits:
    return Limits(_NO_LIMIT if lag is None else lag, float(_NO_LIMIT) if seen is None else seen)


def add_problems(result: Result, problems: Sequence[Problem]) -> None:
    for problem in problems:
        transient = problem.code in TRANSIENT_CODES or problem.severity != ERROR
        result.add(WARNING if transient else CRITICAL, problem.message)


def measure_peers(result: Result, peers: Sequence[Peer], limits: Limits) -> None:
    result.measure("peer_offline", sum(peer.offline for peer in peers))
    result.measure("peer_not_current", sum(not peer.current for peer in peers))
    result.measure("peer_inactive", sum(peer.active > limits.max_active for peer in peers))
    result.measure("peer_lagged", sum(peer.lag > limits.max_lag for peer in peers))


def _judge_group(result: Result, group: RaftGroup, clustered: bool, options: Options) -> None:
    """Check the replicas of one stream or consumer.

    The nats CLI interprets a missing peer-expect as 0 and so reports every replicated stream as faulty. The nats CLI
    never checks the replicas of consumers, nor whether a stream with one replica has a leader. `offline` only becomes
    true some 150 s after a crash, so the options `peer_*_critical` have defaults."""
    if not clustered:
        if group.size > 1:
            result.add(CRITICAL, f"{group.subject} is not clustered, but {group.size} replicas are expected")
        return
    limits = given_limits(options.get("peer_lag_critical"), options.get("peer_seen_critical"))
    if not group.leaders:
        result.add(CRITICAL, f"No leader for {group.subject}: it cannot be written to or queried")
        return
    result.measure("peers", len(group.peers) + 1, "", group.size, group.size)
    measure_peers(result, group.peers, limits)
    problems = group_problems(group, None, limits)
    add_problems(result, problems)
    if not problems:
        result.add(OK, f"{len(group.peers) + 1} peers led by {group.leader}")


def check_stream(options: Options, info: Mapping[str, Any]) -> Result:
    """Check one stream by its STREAM.INFO: replicas, messages, subjects, sources and mirror (stream.go)."""
    result = Result("stream", result_name("stream", options))
    config, state = info.get("config") or {}, info.get("state") or {}
    options = with_metadata(result, options, config.get("metadata") or {})
    group = stream_group("", info)
    if options["peer_expect"] is not None:
        group = replace(group, size=options["peer_expect"])
    _judge_group(result, replace(group, subject=f"stream {options['stream']}"), bool(info.get("cluster")), options)
    for stem, name, value in (
        ("msgs", "messages", state.get("messages", 0)),
        ("subjects", "subjects", state.get("num_subjects", 0)),
    ):
        measure_pair(result, options, stem, name, value)
        judge(result, options, stem, value, f"{value} {name}")
    _judge_sources(result, options, info)
    _judge_mirror(result, options, info)
    result.ok_if_silent("the stream answers")
    return result


def _judge_sources(result: Result, options: Options, info: Mapping[str, Any]) -> None:
    sources = info.get("sources") or []
    count = len(sources)
    few, many = options["min_sources"], options["max_sources"]
    result.measure("sources", count, "", few, many)
    if few is not None or many is not None:
        bad = (few is not None and count < few) or (many is not None and count > many)
        result.add(CRITICAL if bad else OK, f"{count} sources")
    if not sources:
        return
    lagged = [item["name"] for item in sources if AT_LEAST.reached(item.get("lag", 0), options["lag_critical"])]
    inactive = [item["name"] for item in sources if _unseen(item, options["seen_critical"])]
    result.measure("sources_lagged", len(lagged))
    result.measure("sources_inactive", len(inactive))
    for names, what, limit in ((lagged, "lagged", "lag_critical"), (inactive, "inactive", "seen_critical")):
        if names:
            result.add(CRITICAL, f"{len(names)} of {count} sources are {what}: {', '.join(names)}")
        elif options[limit] is not None:
            result.add(OK, f"{count} sources, none {what}")
    for item in sources:
        _judge_origin_error(result, item, "source")


def _judge_mirror(result: Result, options: Options, info: Mapping[str, Any]) -> None:
    """Check a mirror. If the stream copies no other stream, the thresholds are set on the wrong stream, so the result
    is critical."""
    state = info.get("mirror")
    wanted = options["lag_critical"] is not None or options["seen_critical"] is not None
    if not (info.get("config") or {}).get("mirror"):
        if wanted and not info.get("sources"):
            result.add(CRITICAL, "the stream has neither a mirror nor sources, although thresholds for these are set")
        return
    if not state:
        result.add(CRITICAL if wanted else UNKNOWN, "the stream is a mirror, but the state of its origin is unknown")
        return
    lag, active = state.get("lag", 0), state.get("active", 0) / 1e9
    result.measure("lag", lag, "", None, options["lag_critical"])
    if active >= 0:
        result.measure("active", active, "s", None, options["seen_critical"])
    _judge_origin_error(result, state, "mirror")
    lagged = AT_LEAST.reached(lag, options["lag_critical"])
    if lagged:
        result.add(CRITICAL, f"Mirror Lag {lag}")
    unseen = _unseen(state, options["seen_critical"])
    if unseen:
        result.add(CRITICAL, "Mirror never seen" if active < 0 else f"Mirror Seen {human_seconds(active)} ago")
    if wanted and not lagged and not unseen:
        result.add(OK, f"Mirror {state.get('name', '')}")


def _unseen(origin: Mapping[str, Any], limit: float | None) -> bool:
    """Return whether a source or mirror was not seen within the limit. A source that was never seen reports -1
    (stream.go sourceInfo), which the nats CLI treats as very recent."""
    active = origin.get("active", 0)
    return limit is not None and (active < 0 or active / 1e9 >= limit)


def _judge_origin_error(result: Result, origin: Mapping[str, Any], kind: str) -> None:
    """Add the server's reason why a source or mirror does not work; the nats CLI ignores it."""
    error = origin.get("error")
    if error:
        result.add(CRITICAL, f"{kind} {origin.get('name', '')}: {error.get('description', 'unknown error')}")


def check_consumer(
    options: Options, info: Mapping[str, Any], stream_config: Mapping[str, Any], now: datetime
) -> Result:
    """Check one consumer by its CONSUMER.INFO (consumer.go). `now`: used if a server does not report its time (before
    2.10)."""
    result = Result("consumer", result_name("consumer", options))
    config = info.get("config") or {}
    options = with_metadata(result, options, config.get("metadata") or {})
    group = replace(consumer_group("", info, stream_config), subject=f"consumer {options['consumer']}")
    _judge_group(result, group, bool(info.get("cluster")), options)
    for option, name, key, text in (
        ("outstanding_ack_critical", "ack_pending", "num_ack_pending", "Ack Pending"),
        ("waiting_critical", "pull_waiting", "num_waiting", "Waiting Pulls"),
        ("unprocessed_critical", "pending", "num_pending", "Unprocessed Messages"),
        ("redelivery_critical", "redelivered", "num_redelivered", "Redelivered"),
    ):
        value = info.get(key, 0)
        result.measure(name, value, "", None, options[option])
        judge_single(result, options, option, value, f"{text}: {value}")
    moment = info_time(info, now)
    _judge_last(
        result, options, "last_delivery", info.get("delivered") or {}, moment, ("Last delivery", "No deliveries")
    )
    _judge_last(result, options, "last_ack", info.get("ack_floor") or {}, moment, ("Last ack", "No acks"))
    _judge_pinned(result, options, info)
    result.ok_if_silent("the consumer answers")
    return result


def _judge_last(
    result: Result, options: Options, name: str, sequence: Mapping[str, Any], now: datetime, texts: tuple[str, str]
) -> None:
    """Check the time since the last event.

    Each server keeps this time in memory only (consumer.go ldt, lat): if a consumer has been active before but its
    leader was restarted since, the result is UNKNOWN; the nats CLI reports CRITICAL.
    """
    option = f"{name}_critical"
    said, never = texts
    if sequence.get("last_active"):
        seconds = max(0.0, (now - parse_time(sequence["last_active"])).total_seconds())
        result.measure(name, seconds, "s", None, options[option])
        judge_single(result, options, option, seconds, f"{said} {human_seconds(seconds)} ago")
    elif options[option] is not None and sequence.get("consumer_seq", 0) > 0:
        result.add(UNKNOWN, f"{said}: its leader started later and has no record of the time")
    elif options[option] is not None:
        result.add(CRITICAL, never)


def _judge_pinned(result: Result, options: Options, info: Mapping[str, Any]) -> None:
    config = info.get("config") or {}
    groups = config.get("priority_groups") or []
    pinned = sum(bool(group.get("pinned_client_id")) for group in info.get("priority_groups") or ())
    by_pin = config.get("priority_policy") == "pinned_client"
    if by_pin:
        result.measure("pinned_groups", pinned)
        result.measure("groups", len(groups))
    if not options["pinned"]:
        return
    if not by_pin or not groups:
        result.add(CRITICAL, "Not pinned client priority mode")
    else:
        result.add(OK if pinned == len(groups) else CRITICAL, f"{pinned} / {len(groups)} pinned clients")


def check_message(options: Options, message: Mapping[str, Any] | None, now: datetime) -> Result:
    """Check the newest message of a subject (stream_msg.go). `now`: the time of the stream's leader, so the client's
    clock does not matter."""
    result = Result("last_message", result_name("last_message", options))
    if message is None:
        result.add(CRITICAL, f"no message found on {options['subject']}")
        return result
    body = message_data(message)
    result.measure("size", len(body), "B")
    age: float | None = None
    if not options["body_timestamp"]:
        age = max(0.0, (now - parse_time(message["time"])).total_seconds())
    elif re.fullmatch(rb"[+-]?\d{1,18}", body.strip()):
        age = now.timestamp() - int(body)
    else:
        result.add(CRITICAL, "invalid timestamp body: it is not a number of seconds since 1970")
    if age is not None:
        measure_pair(result, options, "age", "age", age, "s")
        judge(result, options, "age", age, f"{human_seconds(age)} old")
    if options["content"] is not None and not options["content"].search(body):
        result.add(CRITICAL, f"does not match regex: {options['content'].pattern.decode()}")
    result.ok_if_silent(f"Valid message on {options['stream']} > {message.get('subject', options['subject'])}")
    return result


def check_kv(options: Options, info: Mapping[str, Any], key_message: Mapping[str, Any] | None) -> Result:
    """Check a key-value bucket by the STREAM.INFO of its stream and the newest message of the key (kv.go).

    The number of `values` is that of the stream's messages, including old revisions and deletion markers.
    """
    result = Result("kv", result_name("kv", options))
    state = info.get("state") or {}
    result.add(OK, f"bucket {options['bucket']}")
    values = state.get("messages", 0)
    measure_pair(result, options, "values", "values", values)
    result.measure("bytes", state.get("bytes", 0), "B")
    result.measure("replicas", (info.get("config") or {}).get("num_replicas", 1))
    judge(result, options, "values", values, f"{values} values")
    if options["key"] is not None:
        key = options["key"]
        marker = None if key_message is None else _deletion(key_message)
        if key_message is None:
            result.add(CRITICAL, f"key {key} not found")
        elif marker:
            result.add(CRITICAL, f"key {key} is deleted ({marker})")
        else:
            result.add(OK, f"key {key} found")
    return result


def _deletion(message: Mapping[str, Any]) -> str | None:
    """Return the marker with which a message deletes its key (ADR-8, ADR-43), or None if the message is a value."""
    headers = message_headers(message)
    marks = ((name, value) for name in ("KV-Operation", "Nats-Marker-Reason") for value in headers.get(name, ()))
    return next((f"{name}: {value}" for name, value in marks if value != "PUT"), None)


def info_time(info: Mapping[str, Any], otherwise: datetime) -> datetime:
    """Return the time at which a leader reported an info (2.10+), or the value `otherwise` if it did not report one."""
    return parse_time(info["ts"]) if info.get("ts") else otherwise
