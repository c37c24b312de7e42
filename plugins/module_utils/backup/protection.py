# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each stream is protected: when it was last saved and last restored successfully in a drill, according to the
catalogue. Pure.

nats_check, the report, the metrics and the snapshots for insights all use these rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, Optional

from ..nats.account_names import account_labels
from .catalogue import Catalogue, StreamRecord, account_names, stream_key
from .selection import is_future, matches, parse_taken


@dataclass(frozen=True)
class Protection:
    """The state of a stream's backups. Times are in UTC, None for never.

    `excluded`: the last run omitted the stream on request. `saved`: when its newest backup was last seen to be up to
    date. `problem`: why the last run did not save it. `drilled`: the last drill, `drill_problem`: why it failed,
    `proven`: the last drill that succeeded, `restore_seconds`: how long its restore took. `future_backup`: the path of
    a backup that is dated in the future. All texts are empty if there is nothing to report.
    """

    account: str
    stream: str
    account_name: str = ""
    excluded: bool = False
    saved: Optional[str] = None
    problem: str = ""
    drilled: Optional[str] = None
    drill_problem: str = ""
    proven: Optional[str] = None
    restore_seconds: Optional[float] = None
    future_backup: str = ""

    @property
    def name(self) -> str:
        return stream_key(self.account, self.stream)

    @property
    def label(self) -> str:
        """Return the stream's display name, such as APP/ORDERS."""
        return stream_key(self.account_name, self.stream)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def protections(
    catalogue: Catalogue, streams: Iterable[tuple[str, str]] | None = None, now: datetime | None = None
) -> list[Protection]:
    """Return the protection of streams, by account and name: of exactly the given streams or, if none are given, of
    those that the last runs found. Backups, runs and drills dated in the future, because a clock was ahead, do not
    count: otherwise no age threshold would ever be exceeded."""
    present = now or datetime.now(timezone.utc)
    if streams is None:
        streams = [(name.partition("/")[0], name.partition("/")[2]) for name in catalogue.streams]
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in catalogue.backups:
        rows.setdefault(stream_key(row.get("account"), str(row.get("stream"))), []).append(row)
    labels = account_labels(account_names(catalogue.backups))
    return [
        _protection(catalogue, rows.get(stream_key(*pair), []), labels.get(pair[0], pair[0]), *pair, now=present)
        for pair in sorted(streams)
    ]


def least_proven(streams: Sequence[str], catalogue: Catalogue, now: datetime) -> str:
    """Return the stream to test next: one that has never been tested, otherwise the one with the oldest successful
    test. A test dated in the future does not count."""

    def proof(name: str) -> str:
        time = (catalogue.streams.get(name, StreamRecord()).proof or {}).get("time")
        return "" if is_future(time, now) else time or ""

    return min(streams, key=lambda name: (proof(name), name))


def _protection(
    catalogue: Catalogue, rows: Sequence[Mapping[str, Any]], account_name: str, account: str, stream: str, now: datetime
) -> Protection:
    record = catalogue.streams.get(stream_key(account, stream), StreamRecord())
    proof = record.proof or {}
    ok = bool(proof.get("ok"))
    reason = str(proof.get("reason") or "no reason was recorded")
    return Protection(
        account,
        stream,
        account_name,
        excluded=matches(account, stream, catalogue.exclude),
        saved=_latest_past([record.current, *(row.get("taken") for row in rows)], now),
        problem=record.problem,
        drilled=_latest_past([proof.get("time")], now),
        drill_problem=reason if proof and not ok else "",
        proven=_latest_past([proof.get("time") if ok else proof.get("proven")], now),
        restore_seconds=proof.get("seconds") if ok else None,
        future_backup=next((str(row.get("path")) for row in rows if is_future(row.get("taken"), now)), ""),
    )


def _latest_past(times: Iterable[Optional[str]], now: datetime) -> Optional[str]:
    return max((time for time in times if time and not is_future(time, now)), key=parse_taken, default=None)
