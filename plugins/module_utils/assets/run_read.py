# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the live assets of an account for a plan. Sends only requests that change nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from ..documents import InvalidDocument
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.error_codes import MESSAGE_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi
from ..nats.model import Server
from ..screen import listed
from ..times import parse_time
from ..units import counted
from ..versions import reported_version
from .buckets import kv_subject
from .costs import Counts
from .document import AssetsDocument, collisions, parse_document, read_document
from .entries import read_entry
from .listing import own_account_api
from .plan import LiveAssets, LiveEntry, questions
from .run_purge import LISTED_GAPS
from .state import COUNTED_SUBJECTS

Info = Mapping[str, Any]


def desired_documents(given: Sequence[Any]) -> list[AssetsDocument]:
    """Return the documents of an option. Raises NatsFailure invalid_option with the errors of all documents."""
    documents, problems = [], []
    for number, one in enumerate(given, 1):
        try:
            documents.append(parse_document(one) if isinstance(one, str) else read_document(one))
        except InvalidDocument as error:
            problems += [f"document {number}: {problem}" for problem in error.problems]
    problems = problems or collisions(documents)
    if problems:
        raise NatsFailure("invalid_option", f"documents: {counted(len(problems), 'error')}\n{listed(problems)}")
    return documents


def read_live(
    api: JetStreamApi, cluster: str, servers: Sequence[Server] | None, documents: Sequence[AssetsDocument]
) -> LiveAssets:
    """Return the assets of an account. `servers`: all servers, None if only the account is visible. Raises NatsFailure."""
    streams = api.streams()
    infos = {str(row["config"]["name"]): row for row in streams.rows}
    consumers: dict[str, dict[str, Info]] = {}
    unknown: dict[str, str] = {}
    used = [name for name, info in infos.items() if (info.get("state") or {}).get("consumer_count")]
    for name, listing in zip(used, api.list_consumers(used)):
        if isinstance(listing, NatsFailure):
            raise listing
        consumers[name] = {str(row["name"]): row for row in listing.rows}
        unknown.update({f"{name}/{one}": reason for one, reason in listing.unknown.items()})
    live = LiveAssets(
        cluster=cluster,
        release=_oldest_release(api, servers),
        streams=infos,
        consumers=consumers,
        unknown=streams.unknown,
        unknown_consumers=unknown,
        usage=api.info(),
        entries=read_entries(api, _declared_entries(documents, infos)),
        servers=None
        if servers is None
        else [(one.name, one.cluster, frozenset(one.tags)) for one in servers if one.jetstream],
    )
    counts = {
        name: _count(api, infos[name], subjects, age) for name, (subjects, age) in questions(documents, live).items()
    }
    return replace(live, counts=counts)


def _oldest_release(api: JetStreamApi, servers: Sequence[Server] | None) -> tuple[int, int]:
    releases = [reported_version(one.version)[:2] for one in servers or () if one.jetstream]
    return min([api.release(), *releases])


def _declared_entries(documents: Sequence[AssetsDocument], infos: Mapping[str, Info]) -> list[tuple[str, str, str]]:
    return [
        (stream.name, stream.label, key)
        for document in documents
        for stream in document.streams.values()
        if stream.name in infos
        for key in stream.entries
    ]


def read_entries(api: JetStreamApi, wanted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str], LiveEntry]:
    """Return the last messages of keys that have one, by stream and key. `wanted`: stream, bucket and key. Raises
    NatsFailure."""
    requests = [(f"STREAM.MSG.GET.{name}", {"last_by_subj": kv_subject(bucket, key)}) for name, bucket, key in wanted]
    found = {}
    for (name, _bucket, key), answer in zip(wanted, api.call_many(requests)):
        if isinstance(answer, NatsFailure):
            if answer.err_code == MESSAGE_NOT_FOUND:
                continue
            raise answer
        entry = read_entry(answer["message"])
        found[name, key] = LiveEntry(entry.revision, entry.value)
    return found


def _count(api: JetStreamApi, info: Info, subjects: bool, age: int) -> Counts:
    name, state = info["config"]["name"], info["state"]
    few = state.get("num_subjects", 0) <= COUNTED_SUBJECTS
    return Counts(
        subjects=api.subject_counts(name) if subjects and few else None,
        expired=_older(api, info, age) if age else None,
    )


def _older(api: JetStreamApi, info: Info, age: int) -> int:
    """Return the number of messages older than `age` nanoseconds, found by bisection."""
    name, state = info["config"]["name"], info["state"]
    now = parse_time(info["ts"]) if info.get("ts") else datetime.fromtimestamp(time.time(), timezone.utc)
    cutoff = now - timedelta(microseconds=age / 1000)
    first, last = int(state["first_seq"]), int(state["last_seq"])
    found = first_at_or_after(cutoff, first, last, lambda seq: _message_after(api, name, seq))
    count = found - first
    if 0 < int(state.get("num_deleted", 0)) <= LISTED_GAPS:
        count -= sum(first <= one < found for one in api.deleted_sequences(name))
    return count


def first_at_or_after(
    cutoff: datetime, first: int, last: int, read: Callable[[int], tuple[int, datetime] | None]
) -> int:
    """Return the sequence of the first message that is not older than `cutoff`, or `last` + 1. `read`: returns the
    sequence and the time of the first message at or after a sequence."""
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        message = read(middle)
        if message is None or message[1] >= cutoff:
            high = middle
        else:
            low = message[0] + 1
    return low


def _message_after(api: JetStreamApi, name: str, seq: int) -> tuple[int, datetime] | None:
    message = api.first_message(name, seq=seq)
    return None if message is None else (int(message["seq"]), parse_time(message["time"]))


def account_api(connections: Connections, servers: Sequence[Server] | None, account: str) -> JetStreamApi:
    """Return the JetStream API of an account: through its user, or the task's own user. `servers`: the result of
    `visible_servers`. Raises NatsFailure."""
    if servers is None and not connections.accounts:
        return own_account_api(connections, account)
    return connections.account(account)


def account_apis(
    connections: Connections, servers: Sequence[Server] | None, documents: Sequence[AssetsDocument]
) -> dict[str, JetStreamApi]:
    """Return the JetStream API of each of the documents' accounts. Raises NatsFailure."""
    return {name: account_api(connections, servers, name) for name in sorted({one.account for one in documents})}


def read_lives(
    connections: Connections,
    servers: Sequence[Server] | None,
    documents: Sequence[AssetsDocument],
    apis: Mapping[str, JetStreamApi],
) -> dict[str, LiveAssets]:
    """Return the assets of the documents' accounts, by account. Raises NatsFailure."""
    return {
        account: read_live(api, connections.own.cluster, servers, [one for one in documents if one.account == account])
        for account, api in apis.items()
    }
