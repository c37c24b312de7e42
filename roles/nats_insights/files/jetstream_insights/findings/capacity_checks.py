# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the storage that remains, from the gold tables that cover earlier days."""

from __future__ import annotations

from jetstream_insights.findings.registry import INFO, WARNING, Check, Threshold

CHECKS = (
    Check(
        code="CAPACITY_201",
        severity=WARNING,
        title="Storage or a limit will soon be full",
        view="capacity",
        thresholds=(
            Threshold("days", 14, "days", "until it is full, with a 10 % chance of an earlier time"),
            Threshold("critical", 3, "days", "at which it is critical"),
        ),
        applies="`limit` IS NOT NULL",
        knows="state <> 'unknown'",
        unknown="fewer than three days with a slope",
        fails="state = 'full' OR state = 'growing' AND full_p10 < :days",
        worse="state = 'full' OR full_p50 < :critical",
        value="full_p10",
        text="{used_ratio|percent} of the {resource} of {scope} {asset} is used; full in {full_p10|number}, "
        "{full_p50|number} or "
        "{full_p90|number} days (p10, p50, p90)",
        rationale="The gold tables `capacity` and `backtests` have the forecast and its error.",
        remedy="playbook `scale_out`; `nats_stream` with `max_age` or larger limits",
        source="gold table `capacity`, with its backtests",
    ),
    Check(
        code="CAPACITY_202",
        severity=INFO,
        title="Growth has changed",
        view="capacity",
        applies="scope IN ('server', 'cluster', 'account')",
        knows="state <> 'unknown'",
        unknown="fewer than three days with a slope",
        fails="coalesce(changed, false) AND state = 'growing'",
        value="slope",
        against="0",
        text="the {resource} of {scope} {asset} grows by {slope|bytes} a day, unlike the weeks before",
        rationale="Possible causes are a new application, a stopped consumer or a removed limit.",
        remedy="the gold table `changes`; the streams of the account in `capacity`; `nats_stream` with `max_bytes`",
        source="gold table `capacity` (the last week differs from the weeks before)",
    ),
    Check(
        code="CAPACITY_203",
        severity=WARNING,
        title="The remaining servers cannot take over a failure",
        view="headroom",
        needs=("fits",),
        unknown="the limit of a server is unknown",
        fails="NOT fits",
        value="need",
        against="free",
        text="if {scope} {asset} fails, {need|bytes} go to {servers_left} servers with {free|bytes} free (the largest "
        "replica "
        "has {largest|bytes})",
        rationale="Other servers can replace a lost machine only if its replicas fit.",
        remedy="playbook `scale_out`",
        source="gold table `headroom` (N-1)",
    ),
    Check(
        code="CAPACITY_204",
        severity=INFO,
        title="The remaining servers will soon be unable to take over a failure",
        view="headroom",
        thresholds=(Threshold("days", 14, "days", "until it no longer fits"),),
        applies="fits",
        fails="coalesce(days < :days, false)",
        value="days",
        text="if {scope} {asset} fails in {days|number} days, its replicas will no longer fit on the other servers",
        rationale="There is still time to order machines.",
        remedy="playbook `scale_out`",
        source="gold table `headroom` (N-1)",
    ),
)
