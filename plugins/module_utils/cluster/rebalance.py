# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Few moves of replicas that even out what the servers of a cluster carry. Pure: no I/O.

The load of a server is its share of the replicas plus its share of their bytes, each 1 for an average server. A move is
taken only when the meta leader would allow it (`judge`), and when it makes the loads more alike (a smaller sum of squares), the
one that helps most first. The sum falls with every move, so that it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.placement import (
    carriers,
    evaluate_candidates,
    own_tag,
    requirements_of,
    simulate_move,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, Stream

#: What a move must at least gain, as part of the square of an average server's load; smaller gains are not worth a move.
_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class ReplicaMove:
    """A replica that goes from one server to another. `size` is bytes."""

    account: str
    stream: str
    source: str
    target: str
    size: int


@dataclass(frozen=True)
class Balance:
    """The moves in their order, and the load of each server before and after all of them."""

    moves: tuple[ReplicaMove, ...]
    before: dict[str, float]
    after: dict[str, float]


@dataclass(frozen=True)
class _Weights:
    """What one replica and one byte add to a server's load."""

    replica: float
    byte: float

    def of(self, stream: Stream) -> float:
        return self.replica + self.byte * stream.size


def plan_rebalance(cluster: Cluster, name: str, max_moves: int, onto: Collection[str] = ()) -> Balance:
    """Return at most `max_moves` moves between the servers of the cluster with this name.

    `onto`: servers that alone may receive (such as new ones), all of them when it is empty. Streams that are moving, or not
    fully replicated, or have a single replica, stay where they are.
    """
    weights = _weights(cluster, name)
    before = loads(cluster, name)
    moves: list[ReplicaMove] = []
    now = cluster
    while len(moves) < max_moves:
        best = _best_move(now, name, weights, onto)
        if best is None:
            break
        stream, move = best
        moves.append(move)
        now = _after(now, stream, move)
    return Balance(tuple(moves), before, _loads(now, name, weights))


def rebalance_lines(balance: Balance) -> list[str]:
    """Return the moves, and the load that changes, for people."""
    moves = [
        f"{move.account}/{move.stream} moves from {move.source} to {move.target} ({move.size} bytes)"
        for move in balance.moves
    ]
    return [
        *(moves or ["No move would even out the load of the servers"]),
        *(f"load of {name}: {load:.2f}, afterwards {balance.after[name]:.2f}" for name, load in balance.before.items()),
    ]


def loads(cluster: Cluster, name: str) -> dict[str, float]:
    """Return the load of each server of the cluster that may hold replicas: 2 for an average one, 1 for its replicas and 1 for
    their bytes."""
    return _loads(cluster, name, _weights(cluster, name))


def _streams(cluster: Cluster, name: str) -> Iterable[Stream]:
    return (stream for stream in cluster.streams if stream.group.cluster == name)


def _weights(cluster: Cluster, name: str) -> _Weights:
    servers = max(1, len(carriers(cluster, name)))
    replicas = sum(len(stream.group.members) for stream in _streams(cluster, name))
    size = sum(len(stream.group.members) * stream.size for stream in _streams(cluster, name))
    return _Weights(servers / replicas if replicas else 0.0, servers / size if size else 0.0)


def _loads(cluster: Cluster, name: str, weights: _Weights) -> dict[str, float]:
    found = dict.fromkeys((server.name for server in carriers(cluster, name)), 0.0)
    for stream in _streams(cluster, name):
        for member in stream.group.members:
            if member in found:
                found[member] += weights.of(stream)
    return found


def _movable(stream: Stream, answered: Collection[str]) -> bool:
    """Return whether the stream is fully replicated and not moving, and has another replica that keeps what a move might lose."""
    group = stream.group
    whole = group.leader is not None and not group.moving and len(group.members) == group.size
    return whole and group.size > 1 and set(group.members) <= set(answered)


def _best_move(
    cluster: Cluster, name: str, weights: _Weights, onto: Collection[str]
) -> tuple[Stream, ReplicaMove] | None:
    """Return the move that helps most, from the most loaded server that can give one; None when none is worth it."""
    carried = _loads(cluster, name, weights)
    for source in sorted(carried, key=lambda item: (-carried[item], item)):
        best: tuple[float, Stream, ReplicaMove] | None = None
        mine = [
            item for item in _streams(cluster, name) if source in item.group.members and _movable(item, cluster.names)
        ]
        hopes = [(_hope(stream, source, carried, weights), stream) for stream in mine]
        for hope, stream in sorted(hopes, key=lambda item: (-item[0], item[1].account, item[1].name)):
            if hope <= max(_LEAST_GAIN, best[0] if best else 0.0):
                break
            for target in _targets(cluster, stream, source, onto):
                gain = _gain(weights.of(stream), carried[source], carried.get(target, carried[source]))
                if gain > _LEAST_GAIN and (best is None or gain > best[0] + 1e-9):
                    best = gain, stream, ReplicaMove(stream.account, stream.name, source, target, stream.size)
        if best is not None:
            return best[1], best[2]
    return None


def _gain(weight: float, source: float, target: float) -> float:
    """Return half of what the sum of squares falls by when this weight goes from one load to the other."""
    return weight * (source - target - weight)


def _hope(stream: Stream, source: str, carried: Mapping[str, float], weights: _Weights) -> float:
    """Return the most that a move of the stream's replica could gain, whoever may take it."""
    others = [load for server, load in carried.items() if server not in stream.group.members]
    return _gain(weights.of(stream), carried[source], min(others)) if others else 0.0


def _targets(cluster: Cluster, stream: Stream, source: str, onto: Collection[str]) -> list[str]:
    """Return who may take the replica and can be asked for by a tag, since the meta leader chooses by tags alone."""
    candidates = evaluate_candidates(cluster, requirements_of(stream), stream.group.members, [source]).candidates
    return [
        target
        for target in candidates
        if (not onto or target in onto) and (len(candidates) == 1 or own_tag(cluster, target, candidates) is not None)
    ]


def _after(cluster: Cluster, stream: Stream, move: ReplicaMove) -> Cluster:
    """Return the cluster after the move; another member leads what the source led."""
    now = simulate_move(cluster, stream, move.source, move.target)
    return replace(
        now,
        streams=tuple(
            replace(item, group=replace(item.group, leaders=(move.target,)))
            if item.group.leader == move.source and (item.account, item.name) == (stream.account, stream.name)
            else item
            for item in now.streams
        ),
    )
