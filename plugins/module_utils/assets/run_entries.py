# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and changes the entries of key-value buckets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ..nats.client import NatsFailure
from ..nats.error_codes import MESSAGE_NOT_FOUND, WRONG_LAST_SEQUENCE
from ..nats.jetstream_api import JetStreamApi
from ..problem import Danger
from ..times import parse_time
from ..units import counted, parse_duration
from ..waiting import wait_until
from . import change_rules
from . import config as rules
from .buckets import is_kv, kv_stream, kv_subject, require_bucket
from .config import OptionError
from .entries import (
    DELETION,
    PURGING,
    PUT,
    KeyEntry,
    described,
    fingerprint,
    read_entry,
    require_key,
    shown,
    subject_prefix,
)
from .state import Info, RunOptions, StreamAsset, asset_result, ownership, refuse

#: The largest number of keys that are read at once.
READ_KEYS = 10_000


@dataclass(frozen=True)
class EntryRequest:
    """The desired state of an entry: its `value`, or None to delete it (`purge`: with its history). `overwrite`: whether
    an existing value may be replaced. `expected`: the revision that the task assumes. `ttl`: in seconds, 0 for none."""

    key: str
    value: bytes | None
    purge: bool = False
    overwrite: bool = True
    expected: int | None = None
    ttl: int = 0


class Bucket:
    """A key-value bucket that exists. Raises NatsFailure: invalid_option, not_found, not_a_bucket."""

    def __init__(self, api: JetStreamApi, name: str) -> None:
        try:
            require_bucket(name)
        except OptionError as problem:
            raise NatsFailure("invalid_option", str(problem)) from problem
        self.name = name
        self.asset = StreamAsset(
            api, kv_stream(name), f"key-value bucket {name}", fits=lambda found: is_kv(name, found)
        )
        info = self.asset.find()
        if info is None:
            raise self.asset.failure("not_found", "it does not exist")
        self.info: Info = info
        self.prefix = subject_prefix(name, info["config"])

    def entry(self, key: str) -> KeyEntry | None:
        """Return the last entry of a key, or None if the key never existed."""
        message = self.asset.api.last_message(self.asset.name, f"{self.prefix}{key}")
        return None if message is None else read_entry(message)

    def counts(self, keys: str) -> dict[str, int]:
        """Return subject → number of messages for the keys that match. Raises NatsFailure too_many."""
        counts = self.asset.api.subject_counts(self.asset.name, f"{self.prefix}{keys}")
        if len(counts) > READ_KEYS:
            number = counted(len(counts), "key")
            raise self.asset.failure("too_many", f"{number} match {keys}; select at most {READ_KEYS} with a wildcard")
        return counts

    def last_entries(self, subjects: Sequence[str]) -> list[KeyEntry]:
        """Return the last entry of each subject; a subject that has disappeared is missing."""
        requests = [(f"STREAM.MSG.GET.{self.asset.name}", {"last_by_subj": subject}) for subject in subjects]
        found = []
        for answer in self.asset.api.call_many(requests):
            if not isinstance(answer, NatsFailure):
                found.append(read_entry(answer["message"]))
            elif answer.err_code != MESSAGE_NOT_FOUND:
                raise answer
        return found

    def history(self, subject: str) -> list[KeyEntry]:
        """Return the entries of a subject, oldest first."""
        found: list[KeyEntry] = []
        seq = 1
        while len(found) < kept_values(self.info):
            message = self.asset.api.first_message(self.asset.name, subject, seq)
            if message is None:
                break
            found.append(read_entry(message))
            seq = found[-1].revision + 1
        return found


def kept_values(info: Info) -> int:
    """Return the number of values that a bucket keeps for each key."""
    return int(info["config"].get("max_msgs_per_subject") or 1)


def read_entries(bucket: Bucket, keys: str, history: bool) -> list[dict[str, Any]]:
    """Return the entries that match `keys`, sorted by key: the last of each key, or all with `history`."""
    subjects = sorted(bucket.counts(keys))
    entries = (
        [entry for subject in subjects for entry in bucket.history(subject)]
        if history
        else bucket.last_entries(subjects)
    )
    return [described(entry, bucket.prefix) for entry in entries]


def ensure_entry(bucket: Bucket, request: EntryRequest, run_options: RunOptions) -> dict[str, Any]:
    """Write or delete an entry, and return the result. Raises NatsFailure: invalid_option, immutable, unsupported,
    conflict, dangerous."""
    started = time.monotonic()
    asset = bucket.asset
    _require_writable(bucket, request)
    old = bucket.entry(request.key)
    revision = old.revision if old else 0
    same = (
        old is not None and old.value == request.value if request.value is not None else _is_gone(bucket, old, request)
    )
    kept = request.value is not None and not request.overwrite and old is not None and old.value is not None
    if same or kept:
        return {**asset_result(False, shown(old), shown(old), {}, {}, started, []), "revision": revision}
    if request.expected not in (None, revision):
        raise asset.failure(
            "conflict", f"expected_revision: {request.key} has revision {revision}, not {request.expected}"
        )
    dangers = []
    if request.value is None and (request.purge or kept_values(bucket.info) == 1):
        dangers.append(Danger(change_rules.DATA_LOSS, f"the value of {request.key} is deleted and no history is kept"))
    refuse(asset, dangers, run_options)
    operation = PUT if request.value is not None else "purge" if request.purge else "delete"
    before = {request.key: fingerprint(old.value)} if old else {request.key: None}
    after: dict[str, Any] = {"revision": None, "operation": operation, "value": fingerprint(request.value)}
    if not run_options.check_mode:
        after["revision"] = written = _write(bucket, request, revision)
        _see(bucket, request.key, written, run_options)
    result = asset_result(True, shown(old), after, before, {request.key: fingerprint(request.value)}, started, dangers)
    return {**result, "revision": after["revision"]}


def _is_gone(bucket: Bucket, old: KeyEntry | None, request: EntryRequest) -> bool:
    if old is None:
        return True
    if not request.purge:
        return old.value is None
    subject = f"{bucket.prefix}{request.key}"
    return old.value is None and bucket.asset.api.subject_counts(bucket.asset.name, subject).get(subject, 0) <= 1


def _require_writable(bucket: Bucket, request: EntryRequest) -> None:
    asset, config = bucket.asset, bucket.info["config"]
    try:
        require_key(request.key)
    except OptionError as problem:
        raise asset.failure("invalid_option", str(problem)) from problem
    if config.get("mirror"):
        raise asset.failure("immutable", "it is a mirror, which is read-only; write to its origin")
    if request.ttl and not config.get("allow_msg_ttl"):
        raise asset.failure(
            "unsupported", "ttl: the bucket does not allow it; set limit_marker_ttl of the bucket (nats-server 2.11)"
        )


def _write(bucket: Bucket, request: EntryRequest, revision: int) -> int:
    headers: dict[str, str] = {}
    if request.value is None:
        headers.update(PURGING if request.purge else DELETION)
    if request.ttl:
        headers["Nats-TTL"] = f"{request.ttl}s"
    try:
        return bucket.asset.api.store(kv_subject(bucket.name, request.key), request.value or b"", headers, revision)
    except NatsFailure as failure:
        if failure.err_code == WRONG_LAST_SEQUENCE:
            raise bucket.asset.failure(
                "conflict", f"another client has changed {request.key} since; nothing was changed"
            ) from failure
        raise


def _see(bucket: Bucket, key: str, revision: int, run_options: RunOptions) -> None:
    """Return once the bucket contains this revision or a later one. Raises NatsFailure not_seen."""
    seen = wait_until(
        lambda: bucket.entry(key),
        lambda entry: entry is not None and entry.revision >= revision,
        run_options.wait_timeout,
    )
    if not seen.done:
        raise bucket.asset.failure("not_seen", f"{key} was written as revision {revision}, which cannot be read")


def ensure_compacted(bucket: Bucket, older_than: str, desired: rules.Config, run_options: RunOptions) -> dict[str, Any]:
    """Remove the history of deleted keys, and delete markers older than the duration `older_than`; return the result.
    Raises NatsFailure: invalid_option, too_many, immutable, dangerous."""
    started = time.monotonic()
    try:
        oldest = parse_duration(older_than)
    except ValueError as problem:
        raise NatsFailure("invalid_option", f"compact_older_than: {problem}") from problem
    asset, config = bucket.asset, rules.clean(bucket.info["config"])
    forbidden = [key for key in ("sealed", "deny_purge") if config.get(key)]
    if forbidden:
        raise asset.failure("immutable", f"it cannot be compacted: {', '.join(forbidden)}")
    counts = bucket.counts(">")
    now = datetime.now(timezone.utc)
    selections, number = [], 0
    for entry in bucket.last_entries(sorted(counts)):
        is_old = (now - parse_time(entry.time)).total_seconds() >= oldest
        removed = counts[entry.subject] - (0 if is_old else 1)
        if entry.operation != PUT and removed:
            # Entries stored since, such as a new value of the key, have a higher sequence.
            selections.append({"filter": entry.subject, "seq": entry.revision + (1 if is_old else 0)})
            number += removed
    if not selections:
        return {**asset_result(False, config, config, {}, {}, started, []), "purged": 0}
    keys = counted(len(selections), "deleted key")
    dangers = [
        *ownership(asset, asset.normal(bucket.info), desired),
        Danger(change_rules.DATA_LOSS, f"it removes {counted(number, 'message')} of {keys}"),
    ]
    refuse(asset, dangers, run_options)
    if not run_options.check_mode:
        number = sum(asset.api.purge_stream(asset.name, selection) for selection in selections)
    diff = {"deleted_keys": len(selections)}, {"deleted_keys": 0}
    return {**asset_result(True, config, config, *diff, started, dangers), "purged": number}
