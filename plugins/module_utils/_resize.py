# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How streams get another number of replicas, and why they cannot. PRIVATE to the collection. Pure: no I/O.

The meta leader gives a stream that gets more replicas the servers that it prefers, and one that gets fewer keeps its leader
(jetstream_cluster.go jsClusteredStreamUpdateRequest). A consumer without a number of its own follows its stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ansible_collections.natsops.jetstream.plugins.module_utils._model import Cluster, Consumer, Stream
from ansible_collections.natsops.jetstream.plugins.module_utils._placement import judge, moved, need_of
from ansible_collections.natsops.jetstream.plugins.module_utils._quorum import group_problems

KEEP, FOLLOW = "keep", "follow"


@dataclass(frozen=True)
class Wanted:
    """Streams of an account by their names, with the wildcards * and ? (fnmatch), and how many replicas they shall have.

    `consumers`: what becomes of consumers with a number of their own: `keep` it as far as the stream allows, or `follow`.
    """

    account: str
    stream: str
    num_replicas: int
    consumers: str = KEEP

    def matches(self, stream: Stream) -> bool:
        """Return whether this stream is meant."""
        return stream.account == self.account and fnmatchcase(stream.name, self.stream)


@dataclass(frozen=True)
class Resize:
    """One stream's change. `gains`: the servers that the meta leader would add. `consumers`: the new number of each consumer
    that has one of its own and changes, 0 to follow. `refused`: why it cannot be done, empty when it can."""

    account: str
    stream: str
    before: int
    after: int
    size: int
    gains: tuple[str, ...] = ()
    consumers: tuple[tuple[str, int], ...] = ()
    refused: str = ""


def plan_resize(cluster: Cluster, wanted: Sequence[Wanted]) -> list[Resize]:
    """Return the changes that are needed, those that free room first, and each taking its room from the next.

    A stream that more than one entry matches is the business of the first of them.
    """
    chosen: dict[tuple[str, str], tuple[Stream, Wanted]] = {}
    for entry in wanted:
        for stream in cluster.streams:
            if entry.matches(stream):
                chosen.setdefault((stream.account, stream.name), (stream, entry))
    order = sorted(chosen.values(), key=lambda item: (item[1].num_replicas > item[0].group.size, item[0].account, item[0].name))
    found = []
    for stream, entry in order:
        consumers = tuple(_consumers(stream, entry))
        if stream.group.size == entry.num_replicas and not consumers:
            continue
        change, cluster = _resize(cluster, stream, entry, consumers)
        found.append(change)
    return found


def unmatched(cluster: Cluster, wanted: Iterable[Wanted]) -> list[str]:
    """Return the entries that no stream matches, as ACCOUNT/STREAM."""
    return [
        f"{entry.account}/{entry.stream}" for entry in wanted if not any(entry.matches(stream) for stream in cluster.streams)
    ]


def _resize(
    cluster: Cluster, stream: Stream, wanted: Wanted, consumers: tuple[tuple[str, int], ...]
) -> tuple[Resize, Cluster]:
    """Return the change and the cluster as it will be afterwards, to judge the next one."""
    change = Resize(
        stream.account, stream.name, stream.group.size, wanted.num_replicas, stream.size, consumers=consumers
    )
    behind = _unsettled(cluster, stream)
    if behind:
        return replace(change, refused="; ".join(behind)), cluster
    members = list(stream.group.members)
    need = replace(need_of(stream), replicas=wanted.num_replicas)
    gains: list[str] = []
    while len(members) < wanted.num_replicas:
        judgement = judge(cluster, need, members)
        if not judgement.candidates:
            reason = (
                f"{wanted.num_replicas - stream.group.size} more server(s) must take a replica, {len(gains)} can "
                f"({', '.join(gains) or 'none'}): {judgement.reasons()}"
            )
            return replace(change, refused=reason), cluster
        target = judgement.candidates[0]
        cluster = moved(cluster, replace(stream, group=replace(stream.group, members=tuple(members))), "", target)
        gains.append(target)
        members.append(target)
    return replace(change, gains=tuple(gains)), cluster


def _unsettled(cluster: Cluster, stream: Stream) -> list[str]:
    """Return what is wrong with the groups of the stream: fewer replicas must not take away the only one that is in step."""
    groups = [stream.group, *(consumer.group for consumer in stream.consumers)]
    return [problem.message for group in groups for problem in group_problems(group, cluster.names)]


def _consumers(stream: Stream, wanted: Wanted) -> Iterable[tuple[str, int]]:
    """Yield the new number of each durable consumer that has one of its own and changes."""
    for consumer in stream.consumers:
        own = _own_number(consumer)
        if own and wanted.consumers == FOLLOW:
            yield consumer.name, 0
        elif own > wanted.num_replicas:
            yield consumer.name, wanted.num_replicas


def _own_number(consumer: Consumer) -> int:
    """Return the number of replicas that the consumer asks for itself, 0 when it follows its stream."""
    return int((consumer.info.get("config") or {}).get("num_replicas") or 0)
