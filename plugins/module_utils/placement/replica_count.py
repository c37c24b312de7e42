# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes to the number of replicas of streams, and the obstacles to them. Pure: no I/O.

The meta leader chooses the additional servers of a stream that gets more replicas; a stream that gets fewer keeps its
leader (jetstream_cluster.go jsClusteredStreamUpdateRequest). A consumer without a configured number of replicas follows
its stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ..health.rules import group_problems
from ..nats.accounts import ALL_ACCOUNTS
from ..nats.model import Cluster, Consumer, Stream
from .rules import evaluate_candidates, replica_requirements, simulate_move

KEEP, FOLLOW = "keep", "follow"


@dataclass(frozen=True)
class ReplicaCount:
    """Streams by their names, with the wildcards * and ? (fnmatch), and their desired number of replicas. `account`:
    the identity of the account.

    `consumers`: whether consumers with a configured number `keep` it, as far as the stream permits, or `follow` the
    stream.
    """

    account: str
    stream: str
    num_replicas: int
    consumers: str = KEEP

    def matches(self, stream: Stream) -> bool:
        """Return whether this entry selects the stream."""
        return stream.account == self.account and fnmatchcase(stream.name, self.stream)


@dataclass(frozen=True)
class ReplicaCountChange:
    """One stream's change. `gains`: the servers that the meta leader would add. `consumers`: the new number of each
    consumer whose configured number changes, 0 to follow the stream. `refused`: the obstacle, empty if there is none.
    """

    account: str
    stream: str
    before: int
    after: int
    size: int
    gains: tuple[str, ...] = ()
    consumers: tuple[tuple[str, int], ...] = ()
    refused: str = ""
    account_name: str = ""

    @property
    def label(self) -> str:
        """Return the stream's display name, such as APP/ORDERS."""
        return f"{self.account_name or self.account}/{self.stream}"


def plan_replica_count(cluster: Cluster, wanted: Sequence[ReplicaCount]) -> list[ReplicaCountChange]:
    """Return the required changes. Changes that free room come first; the room that a change takes is not available to
    later changes.

    If several entries match a stream, the first one applies.
    """
    chosen: dict[tuple[str, str], tuple[Stream, ReplicaCount]] = {}
    for entry in wanted:
        for stream in cluster.streams:
            if entry.matches(stream):
                chosen.setdefault((stream.account, stream.name), (stream, entry))
    order = sorted(
        chosen.values(),
        key=lambda item: (item[1].num_replicas > item[0].group.size, item[0].account_name, item[0].name),
    )
    found = []
    for stream, entry in order:
        consumers = tuple(_consumers(stream, entry))
        if stream.group.size == entry.num_replicas and not consumers:
            continue
        change, cluster = _change(cluster, stream, entry, consumers)
        found.append(change)
    return found


def replica_count_refusals(
    cluster: Cluster,
    wanted: Sequence[ReplicaCount],
    changes: Iterable[ReplicaCountChange],
    accounts: Collection[str] | None = None,
) -> list[str]:
    """Return every reason against the changes. `accounts`: the accounts whose streams can be changed, None for all."""
    if not wanted:
        return ["nats_cluster_streams names no stream."]
    changes = list(changes)
    changed = {change.account: change.account_name or change.account for change in changes}
    return [
        *(f"No stream matches {entry}." for entry in unmatched(cluster, wanted)),
        *(
            f"{change.label} cannot have {change.after} replica(s): {change.refused}."
            for change in changes
            if change.refused
        ),
        *(
            f"No user may change streams in account {account}: set nats_server_account_operator_password and deploy."
            for identity, account in changed.items()
            if accounts is not None and not {identity, account, ALL_ACCOUNTS} & set(accounts)
        ),
    ]


def replica_count_lines(changes: Iterable[ReplicaCountChange]) -> list[str]:
    """Return the changes for operators."""
    return [
        f"{change.label}: R{change.before} to R{change.after}"
        + (f" on {', '.join(change.gains)} or other suitable servers" if change.gains else "")
        + (f", consumers with a different number: {dict(change.consumers)}" if change.consumers else "")
        for change in changes
    ] or ["Every stream has the desired number of replicas"]


def unmatched(cluster: Cluster, wanted: Iterable[ReplicaCount]) -> list[str]:
    """Return the entries that match no stream, as ACCOUNT/STREAM."""
    return [
        f"{entry.account}/{entry.stream}"
        for entry in wanted
        if not any(entry.matches(stream) for stream in cluster.streams)
    ]


def _change(
    cluster: Cluster, stream: Stream, wanted: ReplicaCount, consumers: tuple[tuple[str, int], ...]
) -> tuple[ReplicaCountChange, Cluster]:
    """Return the change and the resulting cluster, for planning the next change."""
    change = ReplicaCountChange(
        stream.account,
        stream.name,
        stream.group.size,
        wanted.num_replicas,
        stream.size,
        consumers=consumers,
        account_name=stream.account_name,
    )
    behind = _unsettled(cluster, stream)
    if behind:
        return replace(change, refused="; ".join(behind)), cluster
    members = list(stream.group.members)
    need = replace(replica_requirements(stream), replicas=wanted.num_replicas)
    gains: list[str] = []
    while len(members) < wanted.num_replicas:
        judgement = evaluate_candidates(cluster, need, members)
        if not judgement.candidates:
            reason = (
                f"{wanted.num_replicas - stream.group.size} more server(s) must take a replica, but {len(gains)} "
                f"can ({', '.join(gains) or 'none'}): {judgement.reasons()}"
            )
            return replace(change, refused=reason), cluster
        target = judgement.candidates[0]
        cluster = simulate_move(
            cluster, replace(stream, group=replace(stream.group, members=tuple(members))), "", target
        )
        gains.append(target)
        members.append(target)
    return replace(change, gains=tuple(gains)), cluster


def _unsettled(cluster: Cluster, stream: Stream) -> list[str]:
    """Return the problems of the stream's groups: reducing the replicas must not remove the only one that is in step."""
    return [problem.message for group in stream.groups for problem in group_problems(group, cluster.names)]


def _consumers(stream: Stream, wanted: ReplicaCount) -> Iterable[tuple[str, int]]:
    """Yield the new number for each durable consumer whose configured number changes."""
    for consumer in stream.consumers:
        own = _own_number(consumer)
        if own and wanted.consumers == FOLLOW:
            yield consumer.name, 0
        elif own > wanted.num_replicas:
            yield consumer.name, wanted.num_replicas


def _own_number(consumer: Consumer) -> int:
    """Return the number of replicas in the consumer's own configuration, 0 if it follows its stream."""
    return int((consumer.info.get("config") or {}).get("num_replicas") or 0)
