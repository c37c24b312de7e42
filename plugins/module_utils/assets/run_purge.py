# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes messages of a stream: all, a selection, or single ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..nats.client import NatsFailure
from ..problem import Danger
from ..screen import listed
from ..units import counted
from ..waiting import wait_until
from . import change_rules
from . import config as rules
from .state import COUNTED_SUBJECTS, Info, RunOptions, StreamAsset, asset_result, ownership, refuse

#: Maximum number of missing sequences that are read to count messages.
LISTED_GAPS = 100_000


def ensure_purged(
    asset: StreamAsset,
    selection: Mapping[str, Any],
    desired: rules.Config,
    run_options: RunOptions,
    expected: int | None = None,
) -> dict[str, Any]:
    """Remove messages of a stream and return the result: all messages, those of `filter`, those before `seq`, all except
    `keep`, or those with `sequences`, which must match `filter`. `expected`: the number of messages that the purge must
    remove. Raises NatsFailure: not_found, immutable, invalid_option, conflict, dangerous, not_seen."""
    started = time.monotonic()
    info = asset.find()
    if info is None:
        raise asset.failure("not_found", "there is nothing to purge: it does not exist")
    config = rules.clean(info["config"])
    denied = "deny_delete" if "sequences" in selection else "deny_purge"
    forbidden = [key for key in ("sealed", denied) if config.get(key)]
    if forbidden:
        raise asset.failure("immutable", f"it cannot be purged: {', '.join(forbidden)}")
    if not _to_remove(asset, selection, info):
        return {**asset_result(False, config, config, {}, {}, started, []), "purged": 0}
    number = _number(asset, selection, info)
    if expected not in (None, number):
        reason = f"{number} messages match" if number is not None else "the matching messages cannot be counted"
        raise asset.failure("conflict", f"purge.expected: {reason}, not {expected}; nothing was deleted")
    what = ", ".join(f"{key} {value}" for key, value in selection.items()) or "all messages"
    deleted = "messages are deleted" if number is None else f"it deletes {counted(number, 'message')}"
    dangers = [*ownership(asset, asset.normal(info), desired), Danger(change_rules.DATA_LOSS, f"{deleted} ({what})")]
    refuse(asset, dangers, run_options)
    predicted = {}
    if "filter" not in selection and "seq" not in selection:
        predicted = {"messages": selection.get("keep", 0)}
    stored = {key: info["state"][key] for key in predicted}
    if run_options.check_mode:
        return {**asset_result(True, config, config, stored, predicted, started, dangers), "purged": number}
    purged = _purge(asset, selection, info, expected)
    seen = _see_removed(asset, selection, info, purged, run_options)
    after = {key: seen["state"][key] for key in predicted}
    return {**asset_result(True, config, config, stored, after, started, dangers), "purged": purged}


def _purge(asset: StreamAsset, selection: Mapping[str, Any], info: Info, expected: int | None) -> int:
    if "sequences" not in selection:
        bounded = expected is not None and not {"seq", "keep"} & selection.keys()
        # Messages stored after the count are not part of it.
        bound = {"seq": int(info["state"]["last_seq"]) + 1} if bounded else {}
        return asset.api.purge_stream(asset.name, {**selection, **bound})
    found = _existing(asset, selection)
    for seq in found:
        asset.api.delete_message(asset.name, seq)
    return len(found)


def _see_removed(
    asset: StreamAsset, selection: Mapping[str, Any], info: Info, purged: int, run_options: RunOptions
) -> Info:
    def done(now: Info) -> bool:
        # Messages stored after the first reading may remain in the stream.
        return _to_remove(asset, selection, now) <= now["state"]["last_seq"] - info["state"]["last_seq"]

    seen = wait_until(lambda: asset.api.stream(asset.name), done, run_options.wait_timeout)
    if not seen.done:
        raise asset.failure("not_seen", f"{purged} messages were deleted, but some remain")
    return seen.value


def selected(purge: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the messages that a purge selects, {} for all.

    Raises NatsFailure invalid_option for an empty filter, which must not select everything."""
    given = {key: value for key, value in (purge or {}).items() if value is not None and key != "expected"}
    for key, value in given.items():
        numbers = value if isinstance(value, list) else [value] if isinstance(value, int) else []
        if value in ("", []) or any(number < 1 for number in numbers):
            raise NatsFailure("invalid_option", f"purge.{key}: {value!r} selects nothing; omit it to select everything")
    return given


def _existing(asset: StreamAsset, selection: Mapping[str, Any]) -> list[int]:
    """Return the existing sequences of a selection. Raises NatsFailure invalid_option for messages of other subjects."""
    found, wrong = [], []
    for seq in sorted(set(selection["sequences"])):
        message = asset.api.first_message(asset.name, seq=seq)
        if message is None or message["seq"] != seq:
            continue
        found.append(seq)
        matching = asset.api.first_message(asset.name, selection["filter"], seq)
        if matching is None or matching["seq"] != seq:
            wrong.append(f"message {seq} has the subject {message['subject']}")
    if wrong:
        raise asset.failure("invalid_option", f"purge.filter: {selection['filter']} does not match:\n{listed(wrong)}")
    return found


def _to_remove(asset: StreamAsset, selection: Mapping[str, Any], info: Info) -> int:
    """Return how many messages a purge would remove; with `seq`, or with `filter` alone, 1 stands for any number."""
    state = info["state"]
    if "sequences" in selection:
        return len(_existing(asset, selection))
    if "keep" in selection:
        counts = (
            asset.api.subject_counts(asset.name, selection["filter"])
            if "filter" in selection
            else {"": state["messages"]}
        )
        return max(0, sum(counts.values()) - selection["keep"])
    if "filter" in selection:
        first = asset.api.first_message(asset.name, selection["filter"])
        return int(first is not None and first["seq"] < selection.get("seq", first["seq"] + 1))
    if "seq" in selection:
        return int(state["messages"] > 0 and state["first_seq"] < selection["seq"])
    return int(state["messages"])


def _number(asset: StreamAsset, selection: Mapping[str, Any], info: Info) -> int | None:
    """Return how many messages a purge would remove, or None if counting them is too expensive."""
    state = info["state"]
    if "seq" not in selection and ("filter" not in selection or selection.keys() & {"keep", "sequences"}):
        return _to_remove(asset, selection, info)
    if "seq" not in selection:
        few = state.get("num_subjects", 0) <= COUNTED_SUBJECTS
        return sum(asset.api.subject_counts(asset.name, selection["filter"]).values()) if few else None
    gaps = int(state.get("num_deleted") or 0)
    if "filter" in selection or gaps > LISTED_GAPS:
        return None
    first, end = int(state["first_seq"]), min(int(selection["seq"]), int(state["last_seq"]) + 1)
    missing = asset.api.deleted_sequences(asset.name) if gaps else []
    return end - first - sum(first <= seq < end for seq in missing)
