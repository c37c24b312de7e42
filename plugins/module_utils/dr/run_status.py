# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of streams that have a copy at a second site, and the checkpoints of their consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..nats.client import NatsFailure
from .failback import has_source
from .reader import Pair, Records, read_pair
from .record import Checkpoint, Failover, is_fenced, same_consumers, saved_consumer
from .status import ANY, PROMOTED, Protected, RecoveryLimits, SideReading, StreamStatus, judge, serves, serves_promoted


@dataclass(frozen=True)
class StatusRow:
    """The readings, records and state of one stream. `returned`: whether a failback was interrupted after the origin
    resumed accepting messages."""

    origin: SideReading
    site: SideReading
    records: Optional[Records]
    checkpoint: Optional[Checkpoint]
    failover: Optional[Failover]
    status: StreamStatus
    returned: bool = False


def read_status(pair: Pair, streams: Sequence[Protected], limits: RecoveryLimits = ANY) -> list[StatusRow]:
    """Return the state of each stream, in the same order."""
    found: dict[Protected, StatusRow] = {}
    for account in dict.fromkeys(one.account for one in streams):
        account_streams = [one for one in streams if one.account == account]
        readings = read_pair(pair, account, account_streams)
        records = None
        if not all(site.problem for _origin, site in readings):
            records = Records(pair.site, account)
        for one, (origin, site) in zip(account_streams, readings):
            checkpoint = records.checkpoint(one.stream) if records else None
            failover = records.failover(one.stream) if records else None
            drill = records.drill(one.stream) if records else None
            target = _target_config(pair, one, failover)
            fenced = bool(records and records.failback(one.stream)) and is_fenced(target, one.stream)
            serving = failover is not None and serves_promoted(target, failover)
            status = judge(one, origin, site, checkpoint, failover, limits, drill, fenced, serving)
            returned = fenced and serves(one, origin) and not _returns(origin, failover)
            found[one] = StatusRow(origin, site, records, checkpoint, failover, status, returned)
    return [found[one] for one in streams]


def _target_config(pair: Pair, protected: Protected, failover: Optional[Failover]) -> dict[str, Any]:
    """Return the configuration of the stream that a failover promotes; empty if there is no failover, or while the
    configuration is unknown."""
    if failover is None:
        return {}
    try:
        promoted = pair.site.api(protected.account).find_stream(failover.target)
    except NatsFailure:
        return {}
    return dict(promoted["config"]) if promoted else {}


def _returns(origin: SideReading, failover: Optional[Failover]) -> bool:
    """Return whether the origin still has the source that copies from the site."""
    config = (origin.info or {}).get("config") or {}
    return failover is not None and has_source(config, failover.target)


def make_checkpoint(origin: SideReading) -> Checkpoint:
    """Return the checkpoint of an origin that responded."""
    info = origin.info or {}
    consumers = [saved_consumer(row) for _name, row in sorted(origin.consumers.items())]
    return Checkpoint(info["ts"], origin.last_seq, info["state"]["messages"], dict(info["config"]), tuple(consumers))


def save_checkpoint(row: StatusRow, fresh: float, check_mode: bool) -> dict[str, Any]:
    """Save the positions of a stream's consumers, and return a row of the module's result."""
    old = row.checkpoint
    result = {
        "name": row.status.protected.name,
        "changed": False,
        "consumers": len(old.consumers) if old else 0,
        "last_seq": old.last_seq if old else 0,
        "taken": old.taken if old else None,
        "before": old.taken if old else None,
        "problem": _why_not(row),
    }
    if result["problem"] or row.records is None or row.site.info is None:
        return result
    new = make_checkpoint(row.origin)
    same = old is not None and same_consumers(old.consumers, new.consumers) and old.config == new.config
    if same and old is not None and old.last_seq == new.last_seq and abs(row.status.checkpoint_age or 0.0) < fresh:
        return result
    if not check_mode:
        try:
            row.records.keep(row.status.protected.stream, row.site.info["config"], new)
        except NatsFailure as failure:
            return {**result, "problem": failure.description}
    return {**result, "changed": True, "consumers": len(new.consumers), "last_seq": new.last_seq, "taken": new.taken}


def _why_not(row: StatusRow) -> str:
    """Return why no checkpoint is taken, or an empty text if one is."""
    if row.status.state == PROMOTED:
        return "the site has replaced the origin"
    if row.failover is not None:
        return "a failover to the site has begun"
    if row.origin.problem or row.origin.info is None:
        return row.origin.problem or "the origin has no such stream"
    if row.site.problem or row.site.info is None:
        return row.site.problem or "the site has no copy of it"
    if row.origin.unknown:
        return f"consumers whose leader does not answer: {', '.join(sorted(row.origin.unknown))}"
    return ""
