# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the storage that remains, from the gold tables that cover earlier days."""

from __future__ import annotations

from jetstream_insights.findings.registry import INFO, WARNING, Check, Threshold

#: The name of the limit.
_LIMIT = (
    "CASE WHEN resource = 'messages' THEN 'max_msgs' WHEN scope = 'stream' THEN 'max_bytes' "
    "WHEN resource = 'ha_assets' THEN 'the limit of replicated assets' ELSE concat('the ', resource, ' storage') END"
)
#: When it will be full, and whether the band has been tested.
_WHEN = (
    "CASE WHEN state = 'full' THEN 'it is full' ELSE concat('full in ', format_string('%.1f', full_p50), ' days (p10 ', "
    "coalesce(format_string('%.1f', full_p10), 'never'), ', p90 ', coalesce(format_string('%.1f', full_p90), 'never'), "
    "CASE WHEN confidence = 'tested' THEN ')' ELSE concat('; the band is untested: ', backtests, ' backtests)') END) END"
)
_FILLED = f"{{scope}} {{asset}} uses {{used_ratio|percent}} of {{{_LIMIT}}}; {{{_WHEN}}}"
_SOON = Threshold("days", 14, "days", "until it is full, with a 10 % chance of an earlier time")
#: Whether a stream may reach its limit in normal operation: it then removes its oldest messages.
_RING = "coalesce(at_limit = 'removes', false)"
#: Whether another server could take some of the failed replicas, or there are none: otherwise space does not matter.
_PLACEABLE = "replicas = 0 OR unplaced < replicas"

CHECKS = (
    Check(
        code="CAPACITY_201",
        severity=WARNING,
        title="Storage or a limit will soon be full",
        view="capacity",
        thresholds=(_SOON, Threshold("critical", 3, "days", "at which it is critical")),
        applies=f"`limit` IS NOT NULL AND NOT {_RING}",
        knows="state <> 'unknown'",
        unknown="fewer than three days with a slope",
        fails="state = 'full' OR state = 'growing' AND full_p10 < :days",
        worse="state = 'full' OR full_p50 < :critical",
        value="full_p10",
        text=f"{_FILLED}{{CASE at_limit WHEN 'rejects' THEN '; publishing is then rejected (discard: new)' "
        "WHEN 'loses' THEN '; messages that no consumer has processed are then removed (discard: old)' ELSE '' END}",
        rationale="Servers and accounts reject messages when they are full, and so do streams with `discard: new`. Streams that "
        "remove their oldest messages are in CAPACITY_205. The gold table `backtests` has the errors of earlier forecasts.",
        remedy="a larger limit or a shorter `max_age` with `nats_stream`; for a server or cluster playbook `scale_out`",
        source="gold table `capacity`, with its backtests",
    ),
    Check(
        code="CAPACITY_205",
        severity=INFO,
        title="A stream will soon remove its oldest messages",
        view="capacity",
        thresholds=(_SOON,),
        applies=f"`limit` IS NOT NULL AND {_RING}",
        knows="state <> 'unknown'",
        unknown="fewer than three days with a slope",
        fails="state = 'growing' AND full_p10 < :days",
        value="full_p10",
        text=f"{_FILLED}; the oldest messages are then removed (discard: old)",
        rationale="This is normal for a stream that is used as a ring. If its messages must last longer, the limit is too small.",
        remedy="none if the oldest messages may go; otherwise `nats_stream` with a larger `max_bytes` or `max_msgs`",
        source="gold table `capacity`; nats-server stream.go (discard)",
    ),
    Check(
        code="CAPACITY_202",
        severity=INFO,
        title="Growth has changed",
        view="capacity",
        applies="scope IN ('server', 'cluster', 'account')",
        needs=("changed",),
        unknown="fewer than 14 days with a slope: the last week cannot be compared with those before",
        fails="changed AND slope > 0",
        value="slope",
        against="0",
        unit="per day",
        text="the {resource} of {scope} {asset} grows by "
        "{CASE WHEN resource = 'ha_assets' THEN concat(format_number(slope, 0), ' assets') "
        "ELSE format_string('%.1f MiB', slope / 1048576) END} a day, unlike the weeks before",
        rationale="Possible causes are a new application, a stopped consumer or a removed limit.",
        remedy="the gold table `changes`; the streams of the account in `capacity`; `nats_stream` with `max_bytes`",
        source="gold table `capacity` (the last week differs from the weeks before)",
    ),
    Check(
        code="CAPACITY_203",
        severity=WARNING,
        title="The remaining servers lack space for the replicas of a failed one",
        view="headroom",
        applies=_PLACEABLE,
        needs=("has_space",),
        unknown="the limit of a server is unknown",
        fails="NOT has_space",
        value="need",
        against="free",
        unit="bytes",
        text="if {scope} {asset} fails, {need|bytes} go to {servers_left|count servers} with {free|bytes} free (the largest "
        "replica has {largest|bytes})",
        rationale="Other servers can take over the replicas of a lost machine only if they have the space.",
        remedy="playbook `scale_out`",
        source="gold table `headroom` (N-1)",
    ),
    Check(
        code="CAPACITY_204",
        severity=INFO,
        title="The remaining servers will soon lack space for the replicas of a failed one",
        view="headroom",
        thresholds=(Threshold("days", 14, "days", "until the space no longer suffices"),),
        applies=f"has_space AND ({_PLACEABLE})",
        needs=("slope",),
        unknown="the growth of streams without max_bytes is unknown: fewer than three days with a slope",
        fails="slope > 0 AND days < :days",
        value="days",
        text="if {scope} {asset} fails in {days|number} days, its replicas will no longer fit on the other servers",
        rationale="There is still time to order machines. Growth within max_bytes does not count: its space is reserved.",
        remedy="playbook `scale_out`; `nats_stream` with `max_bytes`",
        source="gold table `headroom` (N-1)",
    ),
    Check(
        code="CAPACITY_206",
        severity=INFO,
        title="Too few servers remain after a failure to restore redundancy",
        view="headroom",
        needs=("unplaced",),
        fails="unplaced > 0",
        value="servers_left",
        against="servers_left + 1",
        unit="servers",
        text="if {scope} {asset} fails, {unplaced|count} of its {replicas|count replicas} cannot be rebuilt: {servers_left|count "
        "servers} remain, fewer than the replicas of their streams",
        rationale="The streams stay available while most of their replicas remain, but the next failure may end that. This is "
        "always so in a cluster of three servers (CLUSTER_101).",
        remedy="playbook `replace` returns the failed server soon; playbook `scale_out` adds one that takes over by itself",
        source="gold table `headroom` (N-1)",
    ),
)
