# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the live assets of an account and returns them as a document. Sends only requests that change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..documents import InvalidDocument
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.jetstream_api import JetStreamApi
from ..screen import listed
from .buckets import kv_subject
from .document import is_key
from .export import Export, ExportRequest, Omission, buckets_with_entries, entry_key, entry_problem, export_document
from .listing import visible_servers
from .order import ENTRY
from .plan import LiveEntry
from .run_read import account_api, read_entries, read_live

#: Entries read at a time, which limits the memory for large values.
_AT_ONCE = 100


def run_export(connections: Connections, request: ExportRequest, max_entries: int, max_entry_size: int) -> Export:
    """Return the document of an account. `max_entries`: the largest number of keys of a bucket; `max_entry_size`: in
    bytes. Raises NatsFailure, also if there is nothing to export."""
    servers = visible_servers(connections.own)
    api = account_api(connections, servers, request.account)
    live = read_live(api, connections.own.cluster, servers, [])
    buckets, omitted = buckets_with_entries(request, live, max_entries)
    entries = {}
    for stream, bucket in buckets.items():
        for key, entry, problem in _entries(api, stream, bucket, max_entry_size):
            if problem:
                omitted.append(Omission(ENTRY, f"{bucket}/{key}", problem))
            else:
                entries[stream, key] = entry
    try:
        return export_document(request, replace(live, entries=entries), omitted)
    except InvalidDocument as error:
        raise NatsFailure("not_exported", f"nothing was exported\n{listed(error.problems)}") from error


def _entries(api: JetStreamApi, stream: str, bucket: str, most: int) -> Iterator[tuple[str, LiveEntry, str]]:
    """Yield the keys that have a value, with the reason if a document cannot contain it."""
    keys = sorted(entry_key(bucket, subject) for subject in api.subject_counts(stream, kv_subject(bucket)))
    for start in range(0, len(keys), _AT_ONCE):
        part: Sequence[str] = keys[start : start + _AT_ONCE]
        found = read_entries(api, [(stream, bucket, key) for key in part])
        for (_stream, key), entry in found.items():
            if entry.value is not None:
                problem = entry_problem(entry.value, most) if is_key(key) else "its key is not valid"
                yield key, replace(entry, value=None) if problem else entry, problem
