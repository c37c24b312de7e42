# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replica moves that even out the load of a cluster's servers. Pure: no I/O.

Every move is one that the meta leader would permit at that moment (`placement`), and meets the stricter rules of this
collection: the replicas stay in as many zones, the target keeps spare room, and the group is fully replicated.
`even_replicas` chooses the moves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..batch import Batch, number_batches
from ..health.rules import group_problems
from ..nats.model import Cluster, RaftGroup, Server, Stream
from ..problem import Problem
from ..screen import Page, listing, page
from ..units import human_bytes, human_seconds
from .even_replicas import GOALS, BalanceLimits, PlacedGroup, ReplicaHost, even_replicas
from .rules import LastingRules, asset_limit, carriers, free_bytes, lasting_rules, own_tag, replica_requirements

#: The names of the soft goals in a plan, in order.
GOAL_NAMES = ("bytes", "write bytes", "HA assets")

#: Seconds that a move takes in addition to copying: elections, and the wait until all replicas are in step.
MOVE_SECONDS = 3.0

#: Maximum number of reasons for unchanged streams in a plan for operators.
_MOST_REASONS = 5


@dataclass(frozen=True)
class RebalanceOptions:
    """`onto`: the only servers that may receive replicas, empty for all. `tolerance`: how far from its share a server
    may be, as a fraction of the share. `spare`: the fraction of a server's storage that has to stay free. `max_moves`,
    `max_bytes`: maximum number of moves and bytes, None for no limit. `throughput`: bytes per second that a move
    copies. `zones`: server → zone."""

    onto: Collection[str] = ()
    tolerance: float = 0.05
    spare: float = 0.1
    max_moves: int | None = None
    max_bytes: int | None = None
    throughput: float = 50 * 1024 * 1024
    zones: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplicaMove:
    """A replica's move from one server to another. `size` is bytes, `seconds` the expected duration, `goal` the reason,
    `account_name` the account's display name."""

    account: str
    stream: str
    source: str
    target: str
    size: int
    seconds: float = 0.0
    goal: str = GOAL_NAMES[0]
    account_name: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """Return the stream's display name, such as APP/ORDERS."""
        return f"{self.account_name or self.account}/{self.stream}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "account": self.account,
            "account_name": self.account_name or self.account,
            "stream": self.stream,
            "from": self.source,
            "to": self.target,
            "bytes": self.size,
            "seconds": round(self.seconds, 1),
            "goal": self.goal,
        }


@dataclass(frozen=True)
class ServerLoad:
    """The load of one server. `rate`: bytes per second written to its replicas."""

    bytes: int = 0
    rate: float = 0.0
    ha_assets: int = 0
    connections: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes,
            "bytes_per_second": round(self.rate),
            "ha_assets": self.ha_assets,
            "connections": self.connections,
        }


#: Why a plan has no moves.
_EVEN = "No move would balance the servers further"
_LIMITED = "The limits of the plan (moves, bytes) allow no replica to move"
_DONE = "All moves of the plan are done"


@dataclass(frozen=True)
class RebalancePlan:
    """The moves in order; each move makes the servers more even. The plan also contains each server's load before and
    after, and the reasons why streams stay: reason → subjects. `idle`: why a plan has no moves."""

    moves: tuple[ReplicaMove, ...]
    before: dict[str, ServerLoad]
    after: dict[str, ServerLoad]
    left: dict[str, list[str]]
    idle: str = field(default=_EVEN, compare=False)

    @property
    def bytes_moved(self) -> int:
        return sum(move.size for move in self.moves)

    @property
    def least_bytes(self) -> int:
        """Return the bytes that any plan has to move to give each server the same final number of bytes."""
        return sum(max(0, load.bytes - self.after[name].bytes) for name, load in self.before.items())


def plan_rebalance(
    cluster: Cluster, name: str, options: RebalanceOptions, rates: Mapping[tuple[str, str], float] | None = None
) -> RebalancePlan:
    """Return the moves between the servers of the cluster with this name. `rates`: (account, stream) → bytes per
    second."""
    streams = [stream for stream in cluster.streams if stream.group.cluster == name]
    left: dict[str, list[str]] = {}
    groups = _groups(cluster, streams, rates or {}, left)
    limits = BalanceLimits(options.tolerance, options.max_moves, options.max_bytes)
    hosts = _hosts(cluster, carriers(cluster, name), options)
    steps = even_replicas(groups, hosts, limits)
    restricted = limits.moves == 0 or limits.size is not None
    limited = restricted and not steps and bool(even_replicas(groups, hosts, BalanceLimits(options.tolerance, 1)))
    moves = [
        ReplicaMove(
            streams[step.group].account,
            streams[step.group].name,
            step.source,
            step.target,
            streams[step.group].size,
            MOVE_SECONDS + streams[step.group].size / options.throughput,
            GOAL_NAMES[step.goal],
            streams[step.group].account_name,
        )
        for step in steps
    ]
    return replace(_plan(cluster, name, groups, streams, moves, left), idle=_LIMITED if limited else _EVEN)


def plan_of_moves(
    cluster: Cluster, name: str, moves: Sequence[ReplicaMove], rates: Mapping[tuple[str, str], float] | None = None
) -> RebalancePlan:
    """Return the plan that consists of previously planned moves, applied to the current cluster."""
    streams = [stream for stream in cluster.streams if stream.group.cluster == name]
    left: dict[str, list[str]] = {}
    return replace(_plan(cluster, name, _groups(cluster, streams, rates or {}, left), streams, moves, left), idle=_DONE)


def _plan(
    cluster: Cluster,
    name: str,
    groups: Sequence[PlacedGroup],
    streams: Sequence[Stream],
    moves: Sequence[ReplicaMove],
    left: dict[str, list[str]],
) -> RebalancePlan:
    before = _loads(carriers(cluster, name), groups)
    weights = {(stream.account, stream.name): group.weights for stream, group in zip(streams, groups)}
    changes = [(weights[move.account, move.stream], move.source, move.target) for move in moves]
    return RebalancePlan(tuple(moves), before, _changed(before, changes), left)


def waves(moves: Sequence[ReplicaMove], concurrent: int) -> list[list[ReplicaMove]]:
    """Return the moves in order, grouped into waves that may run at the same time: at most `concurrent` moves, each of
    a different stream."""
    found: list[list[ReplicaMove]] = []
    for move in moves:
        last = found[-1] if found else []
        if (
            not last
            or len(last) >= concurrent
            or any((m.account, m.stream) == (move.account, move.stream) for m in last)
        ):
            found.append([])
        found[-1].append(move)
    return found


def move_batches(
    moves: Sequence[ReplicaMove], concurrent: int, together: bool = False, began: int = 0
) -> list[dict[str, Any]]:
    """Return the waves as documents, each with its `moves` and with the `moves_left` from its beginning on. `together`:
    whether all moves are in one wave. `began`: when the plan was made, in seconds since 1970."""
    groups = [list(moves)] if together and moves else waves(moves, concurrent)
    batches = []
    left = [move.as_dict() for wave in groups for move in wave]
    for wave in groups:
        batches.append(
            Batch(
                title=", ".join(move.label for move in wave),
                servers=list(dict.fromkeys(name for move in wave for name in (move.source, move.target))),
                details={"moves": left[: len(wave)], "moves_left": left},
            )
        )
        left = left[len(wave) :]
    return number_batches(batches, began, "wave")


def total_seconds(moves: Sequence[ReplicaMove], concurrent: int) -> float:
    """Return the expected duration of all moves: the sum of the longest move of each wave."""
    return sum(max(move.seconds for move in wave) for wave in waves(moves, concurrent))


def rebalance_page(plan: RebalancePlan, concurrent: int = 1) -> Page:
    """Return the plan for operators: its cost, each move, each server's load before and after, and the streams that
    stay."""
    if plan.moves:
        found = page(
            f"{len(plan.moves)} replicas move, {human_bytes(plan.bytes_moved)} in about "
            f"{human_seconds(total_seconds(plan.moves, concurrent))}; this result needs at least {human_bytes(plan.least_bytes)}"
        )
    else:
        found = page(plan.idle)
    moves = [
        f"{move.label} moves from {move.source} to {move.target} "
        f"({human_bytes(move.size)}, about {human_seconds(move.seconds)}, goal: {move.goal})"
        for move in plan.moves
    ]
    loads = []
    for name, load in plan.before.items():
        after = "" if not plan.moves else f"; afterwards {_load_text(plan.after[name])}"
        loads.append(f"{name} carries {_load_text(load)}{after}, {load.connections} connections")
    found += listing(moves, what="move") + listing(loads, what="server")
    reasons = sorted(plan.left.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [
        f"{len(subjects)} are not moved, such as {subjects[0]}: {reason}"
        for reason, subjects in reasons[:_MOST_REASONS]
    ]
    if len(reasons) > _MOST_REASONS:
        lines.append(f"{len(reasons) - _MOST_REASONS} more reasons: see `left`")
    return found + page(*lines)


def _load_text(load: ServerLoad) -> str:
    rate = f", {human_bytes(load.rate)}/s" if load.rate else ""
    return f"{human_bytes(load.bytes)}{rate}, {load.ha_assets} HA assets"


def _groups(
    cluster: Cluster, streams: Iterable[Stream], rates: Mapping[tuple[str, str], float], left: dict[str, list[str]]
) -> list[PlacedGroup]:
    """Return the groups of the streams; the reason for each stream that stays is added to `left`."""
    rules: dict[tuple[str, tuple[str, ...]], tuple[LastingRules, frozenset[str]]] = {}
    answered = cluster.names
    groups = []
    for stream in streams:
        need = replica_requirements(stream)
        key = need.cluster, need.tags
        if key not in rules:
            lasting = lasting_rules(cluster, need)
            rules[key] = (
                lasting,
                frozenset(name for name in lasting.able if own_tag(cluster, name, lasting.able) is not None),
            )
        lasting, tagged = rules[key]
        reason = _stays(stream, answered)
        if reason:
            left.setdefault(reason, []).append(stream.group.subject)
        groups.append(
            PlacedGroup(
                members=frozenset(stream.group.members),
                weights=(float(stream.size), rates.get((stream.account, stream.name), 0.0), float(need.ha_assets)),
                able=lasting.able,
                unique=lasting.unique,
                storage=need.storage,
                need=need.bytes,
                size=stream.size,
                movable=not reason,
                tagged=tagged,
            )
        )
    return groups


def _stays(stream: Stream, answered: frozenset[str]) -> str:
    """Return why no replica of the stream may move, or "" if one may."""
    group = stream.group
    if group.size < 2:
        return "single replica"
    if group.moving or len(group.members) > group.size:
        return "it is being moved"
    if any(consumer.group.moving for consumer in stream.consumers):
        return "a consumer is being moved"
    if any(_matters(one, problem) for one in stream.groups for problem in group_problems(one, answered)):
        return "not fully replicated"
    return ""


def _matters(group: RaftGroup, problem: Problem) -> bool:
    """Return whether the problem prevents a move; up to 2.14, a consumer keeps an additional member after PEER.REMOVE."""
    return problem.code != "consumer_replica_count" or len(group.members) < group.size


def _hosts(cluster: Cluster, servers: Sequence[Server], options: RebalanceOptions) -> list[ReplicaHost]:
    """Return the servers as hosts. The servers' shares of the bytes are proportional to their storage."""
    most = asset_limit(cluster)
    storages = [server.summary.max_storage if server.summary else 0 for server in servers]
    known = all(storage > 0 for storage in storages)
    hosts = []
    for server, storage in zip(servers, storages):
        summary = server.summary
        room: dict[str, int] = {}
        asset_room = math.inf
        if summary is not None:
            room = {
                "file": free_bytes(summary, "file") - math.ceil(summary.max_storage * options.spare),
                "memory": free_bytes(summary, "memory") - math.ceil(summary.max_memory * options.spare),
            }
            # The server's own count includes the meta group; the limit does not.
            asset_room = max(0, most - max(0, summary.ha_assets - 1)) if most else math.inf
        hosts.append(
            ReplicaHost(
                name=server.name,
                zone=options.zones.get(server.name, ""),
                share=storage if known else 1.0,
                room=room,
                asset_room=asset_room,
                connections=server.connections,
                receives=not options.onto or server.name in options.onto,
            )
        )
    return hosts


def _loads(servers: Iterable[Server], groups: Iterable[PlacedGroup]) -> dict[str, ServerLoad]:
    sums = {server.name: [0.0] * len(GOALS) for server in servers}
    for group in groups:
        for name in group.members & sums.keys():
            sums[name] = [carried + weight for carried, weight in zip(sums[name], group.weights)]
    connections = {server.name: server.connections for server in servers}
    return {name: _load(found, connections[name]) for name, found in sorted(sums.items())}


def _changed(
    before: Mapping[str, ServerLoad], changes: Iterable[tuple[tuple[float, ...], str, str]]
) -> dict[str, ServerLoad]:
    """Return the loads after changes, each given as weights, source and target."""
    sums = {name: [float(load.bytes), load.rate, float(load.ha_assets)] for name, load in before.items()}
    for weights, source, target in changes:
        for server, sign in ((source, -1), (target, 1)):
            if server in sums:
                sums[server] = [carried + sign * weight for carried, weight in zip(sums[server], weights)]
    return {name: _load(found, before[name].connections) for name, found in sums.items()}


def _load(sums: Sequence[float], connections: int) -> ServerLoad:
    return ServerLoad(round(sums[0]), max(0.0, sums[1]), round(sums[2]), connections)
