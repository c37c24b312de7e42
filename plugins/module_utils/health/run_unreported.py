# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams that no responding server has.

JSZ lists only a server's own replicas, so the system account does not see a stream whose servers are all down. The meta
leader lists every stream of an account (STREAM.NAMES), but only to a user of this account."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Callable

from ..nats.account_names import account_labels
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.error_codes import STREAM_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi
from ..nats.model import STREAM, Cluster, RaftGroup, Stream
from ..problem import WARNING, Problem
from .cause import joined_names

#: Seconds to wait for the state of a stream. Without a leader, servers do not reply.
INFO_TIMEOUT = 2.0


def with_unreported_streams(
    cluster: Cluster, accounts: Callable[[], Connections], expected: Collection[str] = ()
) -> tuple[Cluster, list[Problem]]:
    """Return the cluster with the streams that no responding server has, as streams without a leader, and a warning for
    each account whose streams cannot be listed.

    Only an absent server can hold such streams, so without one no request is sent. `accounts`: returns the connections
    of the accounts' users. `expected`: servers that should respond."""
    absent = sorted(({*expected} | cluster.meta_members) - cluster.names)
    if not absent or cluster.meta is None or cluster.meta.group.leader is None:
        return cluster, []
    try:
        connections = accounts()
    except NatsFailure as failure:
        return cluster, [_unlisted("all accounts", absent, failure.description)]
    if not connections.accounts:
        return cluster, []
    labels = account_labels({**connections.names, **cluster.accounts})
    found, problems = list(cluster.streams), []
    for user in connections.accounts:
        key = cluster.find_account(user)
        reported = {stream.name for stream in cluster.streams if stream.account == key}
        try:
            names = _leaderless(connections.account(user), reported)
        except NatsFailure as failure:
            problems.append(_unlisted(f"account {labels.get(key, key)}", absent, failure.description))
            continue
        found += [_stream(cluster, key, labels.get(key, key), name, absent) for name in names]
    found.sort(key=lambda stream: (stream.account_name, stream.name))
    return replace(cluster, streams=tuple(found)), problems


def _leaderless(api: JetStreamApi, reported: Collection[str]) -> list[str]:
    """Return the streams of an account that are not reported and whose leader does not reply. A stream that was created
    or deleted since the servers reported theirs is not returned."""
    names = [name for name in api.stream_names() if name not in reported]
    answers = api.call_many([(f"STREAM.INFO.{name}", None) for name in names], INFO_TIMEOUT)
    return [
        name
        for name, answer in zip(names, answers)
        if isinstance(answer, NatsFailure) and answer.err_code != STREAM_NOT_FOUND
    ]


def _stream(cluster: Cluster, account: str, label: str, name: str, absent: Sequence[str]) -> Stream:
    places = {server.cluster for server in cluster.servers}
    group = RaftGroup(
        STREAM,
        f"stream {label}/{name}",
        size=1 if len(absent) == 1 else 0,
        members=tuple(absent),
        cluster=places.pop() if len(places) == 1 else "",
        unreported=True,
    )
    return Stream(account, name, group)


def _unlisted(what: str, absent: Sequence[str], reason: str) -> Problem:
    message = f"the streams of {what} cannot be listed, so those that are only on {joined_names(absent)} are missing: "
    return Problem("streams_unlisted", WARNING, what, f"{message}{reason}")
