# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each stream is protected: when it was last saved and last proven to restore, from the catalogue. Pure.

nats_check, the report and the snapshots of the insights all go by this; each only compares the ages with its thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, Optional

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import (
    Catalogue,
    StreamRecord,
    account_names,
    stream_key,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.selection import is_future, matches, parse_time
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import account_labels


@dataclass(frozen=True)
class Protection:
    """What is known of a stream's backups. Times are in UTC, None for never.

    `excluded`: the last run was to leave it out. `saved`: when it was last seen to be as its newest backup has it.
    `problem`: why the last run did not save it. `drilled`: the last drill, `drill_problem`: why it failed, `proven`: the last
    one that succeeded, `restore_seconds`: how long its restore took. A text is empty where there is nothing to say.
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

    @property
    def name(self) -> str:
        return stream_key(self.account, self.stream)

    @property
    def label(self) -> str:
        """Return how the stream is displayed, such as APP/ORDERS."""
        return stream_key(self.account_name, self.stream)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def protections(
    catalogue: Catalogue, streams: Iterable[tuple[str, str]] | None = None, now: datetime | None = None
) -> list[Protection]:
    """Return how streams are protected, by account and name: those that the last runs saw, or exactly these. A backup that is
    dated in the future protects nothing."""
    present = now or datetime.now(timezone.utc)
    if streams is None:
        streams = [(name.partition("/")[0], name.partition("/")[2]) for name in catalogue.streams]
    taken: dict[str, str] = {}
    for row in catalogue.backups:
        if row.get("taken") and not is_future(row["taken"], present):
            name = stream_key(row.get("account"), str(row.get("stream")))
            taken[name] = _latest(taken.get(name), row["taken"]) or ""
    labels = account_labels(account_names(catalogue.backups))
    return [_protection(catalogue, taken, labels.get(pair[0], pair[0]), *pair) for pair in sorted(streams)]


def _protection(
    catalogue: Catalogue, taken: dict[str, str], account_name: str, account: str, stream: str
) -> Protection:
    name = stream_key(account, stream)
    record = catalogue.streams.get(name, StreamRecord())
    proof = record.proof or {}
    ok = bool(proof.get("ok"))
    reason = str(proof.get("reason") or "no reason was recorded")
    return Protection(
        account,
        stream,
        account_name,
        excluded=matches(account, stream, catalogue.exclude),
        saved=_latest(record.current, taken.get(name)),
        problem=record.problem,
        drilled=proof.get("time"),
        drill_problem=reason if proof and not ok else "",
        proven=proof.get("time") if ok else proof.get("proven"),
        restore_seconds=proof.get("seconds") if ok else None,
    )


def _latest(*times: Optional[str]) -> Optional[str]:
    known: Sequence[str] = [time for time in times if time]
    return max(known, key=parse_time) if known else None
