# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds streams by their state, and reads their gaps and subjects."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.jetstream_api import JetStreamApi
from ..nats.model import STREAM
from ..units import parse_duration
from .finding import is_selected, ranges
from .listing import SYSTEM_VIEW, AssetListing, own_account_api, read_assets
from .run_purge import LISTED_GAPS
from .state import COUNTED_SUBJECTS

GAPS, SUBJECTS = "gaps", "subjects"


def find_streams(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the module nats_stream_info. Raises NatsFailure."""
    try:
        idle = None if params["idle"] is None else parse_duration(params["idle"])
    except ValueError as error:
        raise NatsFailure("invalid_option", f"idle: {error}") from error
    found = read_assets(connections, params, STREAM)
    if params["details"] and found.view == SYSTEM_VIEW:
        raise NatsFailure(
            "invalid_option",
            "details: servers report them only to a user of the owning account; set account_users, or log in as such "
            "a user",
        )
    _select(found, params, idle)
    for row in found.streams if params["details"] else ():
        own = own_account_api if not connections.accounts else Connections.account
        _add_details(own(connections, row["account"]), row, params)
    return found.result(STREAM)


def _select(found: AssetListing, params: Mapping[str, Any], idle: float | None) -> None:
    now = datetime.now(timezone.utc)
    leaderless = {(item.account, item.stream) for item in found.unknown}
    rows = found.streams
    found.streams = [
        row for row in rows if is_selected(row, params, idle, (row["account"], row["name"]) in leaderless, now)
    ]
    kept = {id(row) for row in found.streams}
    hidden = [problem for row in rows if id(row) not in kept for problem in row["problems"]]
    found.problems = [problem for problem in found.problems if problem.as_dict() not in hidden]


def _add_details(api: JetStreamApi, row: dict[str, Any], params: Mapping[str, Any]) -> None:
    state = row["state"]
    if GAPS in params["details"]:
        number = int(state.get("num_deleted") or 0)
        sequences = api.deleted_sequences(row["name"]) if 0 < number <= LISTED_GAPS else []
        row[GAPS] = None if number > LISTED_GAPS else ranges(sequences)
    if SUBJECTS in params["details"]:
        few = int(state.get("num_subjects") or 0) <= COUNTED_SUBJECTS
        row["subject_counts"] = api.subject_counts(row["name"], params["subject"] or ">") if few else None
