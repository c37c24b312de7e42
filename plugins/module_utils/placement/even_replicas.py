# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas moved one by one until the load of the servers is even, as far as the hard goals permit. Pure: no I/O.

The optimum is a partition of sizes, which is NP-hard. So the result is not always the optimum. But unless a limit of
the run ended it early, no move remains that the hard goals permit, that brings a server nearer to its share, and that
gains more than the tolerance. So if two servers have equal shares and at least one is outside the tolerance, they
differ by at most the tolerance plus the smallest replica that may move between them. If neither zones, tags nor room
forbid a move, such a replica always exists; without a tolerance, the sum of squared loads is then at most n · (largest
replica)² / 4 above the optimum, and for replicas of equal size it is the optimum, reached with the fewest moves.

Each move goes from the server that is most above its share to the one that is most below its share, and takes the
largest replica that makes neither server cross its share, if such a replica exists. Any other plan with the same result
has to move these bytes, too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import le

#: The soft goals in order: a later goal may not take a server out of the tolerance of an earlier one.
BYTES, WRITE_BYTES, HA_ASSETS = range(3)
GOALS = (BYTES, WRITE_BYTES, HA_ASSETS)

#: Minimum gain of a move, relative to the square of the average load; smaller gains are rounding errors.
_LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class ReplicaHost:
    """A server that carries replicas. `share`: its part of the bytes relative to the others', more than 0. `room`: free
    bytes by storage. `asset_room`: the number of replicated assets that still fit. `connections`: of clients; among
    equal servers, the one with the fewest connections takes a replica. `receives`: whether it may take replicas."""

    name: str
    zone: str = ""
    share: float = 1.0
    room: Mapping[str, int] = field(default_factory=dict)
    asset_room: float = float("inf")
    connections: int = 0
    receives: bool = True


@dataclass(frozen=True)
class PlacedGroup:
    """A group and the places of its replicas. `weights`: a replica's load on its server, for each of GOALS. `able`:
    servers that may have a replica. `unique`: server → tag; no two of the replicas may share a tag. `need`: free bytes
    of `storage` that a replica requires. `size`: bytes that a move copies. `tagged`: the servers of `able` that a
    request can select; any other server can take a replica only if it is the only choice. A group that is not `movable`
    counts towards the load but stays."""

    members: frozenset[str]
    weights: tuple[float, float, float]
    able: frozenset[str] = frozenset()
    unique: Mapping[str, str] | None = None
    storage: str = "file"
    need: int = 0
    size: int = 0
    movable: bool = True
    tagged: Collection[str] = ()


@dataclass(frozen=True)
class BalanceLimits:
    """`tolerance`: how far from its share a server may be, as a fraction of the share. `moves`, `size`: maximum number
    of moves and bytes; None for no limit."""

    tolerance: float = 0.0
    moves: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class BalanceStep:
    """A move: the index of the group, the source, the target, and the goal."""

    group: int
    source: str
    target: str
    goal: int


def even_replicas(
    groups: Sequence[PlacedGroup], hosts: Sequence[ReplicaHost], limits: BalanceLimits = BalanceLimits()
) -> list[BalanceStep]:
    """Return the moves in order. Each makes the servers more even for its goal, so any prefix of the plan is a valid
    plan."""
    return list(_Placement(groups, hosts, limits).steps())


class _Placement:
    def __init__(self, groups: Sequence[PlacedGroup], hosts: Sequence[ReplicaHost], limits: BalanceLimits) -> None:
        self._groups = groups
        self._hosts = {host.name: host for host in hosts}
        self._zone = {host.name: host.zone for host in hosts}
        self._limits = limits
        self._members = [set(group.members) for group in groups]
        self._room = {host.name: dict(host.room) for host in hosts}
        self._asset_room = {host.name: host.asset_room for host in hosts}
        self._moves_left = float("inf") if limits.moves is None else limits.moves
        self._size_left = float("inf") if limits.size is None else limits.size
        self._load = [dict.fromkeys(self._hosts, 0.0) for _goal in GOALS]
        for group in groups:
            for name in group.members:
                for goal in GOALS:
                    if name in self._hosts:
                        self._load[goal][name] += group.weights[goal]
        whole = sum(host.share for host in hosts)
        shares = {host.name: host.share / whole for host in hosts}
        even = dict.fromkeys(self._hosts, 1 / max(1, len(hosts)))
        #: goal → server → its fraction of the load, and the load that this fraction is.
        self._part = [shares, even, even]
        self._fair = [
            {name: sum(self._load[goal].values()) * self._part[goal][name] for name in self._hosts} for goal in GOALS
        ]
        #: server → (weight, index) of the movable groups on it, in ascending order, for the goal being pursued.
        self._held: dict[str, list[tuple[float, int]]] = {}
        #: source → target → the movable groups that tags, zones and the other replicas permit there; computed on
        #: demand.
        self._ways: dict[str, dict[str, list[tuple[float, int]]]] = {}
        #: Pairs (source, target) that currently have no useful move.
        self._tried: set[tuple[str, str]] = set()

    def steps(self) -> Iterator[BalanceStep]:
        for goal in GOALS:
            self._tried.clear()
            self._held = {name: [] for name in self._hosts}
            for index, group in enumerate(self._groups):
                if group.movable and group.weights[goal] > 0:
                    for name in self._members[index] & self._held.keys():
                        self._held[name].append((group.weights[goal], index))
            for held in self._held.values():
                held.sort()
            self._ways = {name: {} for name in self._hosts}
            while self._moves_left > 0 and (step := self._next(goal)) is not None:
                self._take(step)
                yield step

    # --- choosing -----------------------------------------------------------------------------------------------------

    def _next(self, goal: int) -> BalanceStep | None:
        """Return the move from the server most above its share to the one most below, among the pairs of servers for
        which a move helps."""
        load, part, fair = self._load[goal], self._part[goal], self._fair[goal]
        average = sum(load.values()) / max(1, len(load))
        if not average:
            return None
        over = {name: load[name] / part[name] for name in load}
        sources = sorted(over, key=lambda name: (-over[name], name))
        targets = sorted(
            (name for name in over if self._hosts[name].receives),
            key=lambda name: (over[name], self._hosts[name].connections, name),
        )
        tolerance = self._limits.tolerance
        for source in sources:
            above = load[source] > fair[source] * (1 + tolerance)
            for target in targets:
                if over[target] >= over[source]:
                    break
                if not above and load[target] >= fair[target] * (1 - tolerance):
                    break
                if (source, target) in self._tried:
                    continue
                index = self._choose(goal, source, target, _LEAST_GAIN * average * average)
                if index is not None:
                    return BalanceStep(index, source, target, goal)
                self._tried.add((source, target))
        return None

    def _choose(self, goal: int, source: str, target: str, least: float) -> int | None:
        """Return the group whose move gains more, of two candidates: the largest group that makes neither server cross
        its share, and the smallest group above that size. The latter must gain more than the tolerance and, unless it
        is the only candidate, must not be much larger."""
        movable, load, fair = self._way(source, target), self._load[goal], self._fair[goal]
        wanted = min(load[source] - fair[source], fair[target] - load[target])
        limit = self._most(goal, source, target)
        start = bisect_right(movable, (wanted, len(self._groups)))
        most = [self._most_kept(earlier, source, target) for earlier in range(goal)]
        below = next((item for item in _down(movable, start) if self._fits(item[1], most, source, target)), None)
        if below is not None:
            limit = min(limit, 2 * wanted)
        limit -= self._limits.tolerance * fair[target]
        above = next((item for item in _up(movable, start, limit) if self._fits(item[1], most, source, target)), None)
        found = [below, above]
        gains = [(self._gain(goal, source, target, item[0]), item[1]) for item in found if item is not None]
        gain, index = max(gains, default=(0.0, -1), key=lambda item: (item[0], -item[1]))
        return index if gain > least else None

    def _way(self, source: str, target: str) -> list[tuple[float, int]]:
        """Return the groups that may go from the source to the target, in ascending order."""
        ways = self._ways[source]
        if target not in ways:
            ways[target] = [item for item in self._held[source] if self._may(item[1], source, target)]
        return ways[target]

    def _most(self, goal: int, source: str, target: str) -> float:
        """Return the weight above which a move no longer lowers the sum of squared loads, each relative to its server's
        share."""
        load, part, size = self._load[goal], self._part[goal], len(self._hosts)
        here, there = 1 / (part[source] * size), 1 / (part[target] * size)
        return 2 * (load[source] * here - load[target] * there) / (here + there)

    def _gain(self, goal: int, source: str, target: str, weight: float) -> float:
        """Return the decrease of the sum of squared loads, each relative to its server's share; negative for an
        increase."""
        part, size = self._part[goal], len(self._hosts)
        return weight * (self._most(goal, source, target) - weight) * (1 / part[source] + 1 / part[target]) / size

    # --- the goals that a move must keep ------------------------------------------------------------------------------

    def _fits(self, index: int, most: Sequence[float], source: str, target: str) -> bool:
        """Return whether the replica may move, considering the free room, the goals before this one, and the limits of
        this run. `most`: the maximum weight of the replica for each goal."""
        group = self._groups[index]
        return (
            all(map(le, group.weights, most))
            and group.size <= self._size_left
            and group.need <= self._room[target].get(group.storage, 0)
            and group.weights[HA_ASSETS] <= self._asset_room[target]
            and self._can_be_asked(index, source, target)
        )

    def _may(self, index: int, source: str, target: str) -> bool:
        """Return whether tags, zones and the other replicas permit moving the replica to the target."""
        group, members = self._groups[index], self._members[index]
        if target in members or target not in group.able:
            return False
        zone = self._zone
        if zone[target] != zone[source]:
            others = [zone.get(name) for name in members if name != source]
            if zone[target] in others and zone[source] not in others:
                return False
        if group.unique is None:
            return True
        return group.unique[target] not in [group.unique.get(name) for name in members if name != source]

    def _can_be_asked(self, index: int, source: str, target: str) -> bool:
        """Return whether the target is the only server that the meta leader, which chooses by tags alone, can choose."""
        group, members = self._groups[index], self._members[index]
        if target in group.tagged:
            return True
        taken = [] if group.unique is None else [group.unique.get(name) for name in members if name != source]
        return not any(
            group.unique is None or group.unique[name] not in taken for name in group.able - members - {source, target}
        )

    def _most_kept(self, goal: int, source: str, target: str) -> float:
        """Return the maximum weight of a move that keeps both servers within the tolerance of this goal or brings them
        nearer to it."""
        load, fair, tolerance = self._load[goal], self._fair[goal], self._limits.tolerance
        within = min(load[source] - fair[source] * (1 - tolerance), fair[target] * (1 + tolerance) - load[target])
        return max(within, self._most(goal, source, target), 0.0)

    # --- effects of a move
    # ----------------------------------------------------------------------------------------------

    def _take(self, step: BalanceStep) -> None:
        """Apply the move. Room freed on the source is not counted, because moves that run at the same time must all
        fit."""
        group, members = self._groups[step.group], self._members[step.group]
        for goal in GOALS:
            self._load[goal][step.source] -= group.weights[goal]
            self._load[goal][step.target] += group.weights[goal]
        members.remove(step.source)
        members.add(step.target)
        self._room[step.target][group.storage] -= group.need
        self._asset_room[step.target] -= group.weights[HA_ASSETS]
        self._moves_left -= 1
        self._size_left -= group.size
        item = group.weights[step.goal], step.group
        _remove(self._held[step.source], item)
        insort(self._held[step.target], item)
        for source in {step.source, *members} & self._ways.keys():
            for target, movable in self._ways[source].items():
                _remove(movable, item)
                if source in members and self._may(step.group, source, target):
                    insort(movable, item)
        ends = {step.source, step.target}
        self._tried = {pair for pair in self._tried if ends.isdisjoint(pair) and pair[0] not in members}


def _remove(items: list[tuple[float, int]], item: tuple[float, int]) -> None:
    """Remove the item from the sorted list, if present."""
    position = bisect_left(items, item)
    if position < len(items) and items[position] == item:
        del items[position]


def _down(items: Sequence[tuple[float, int]], end: int) -> Iterator[tuple[float, int]]:
    """Yield the items before the index, largest first."""
    for position in range(end - 1, -1, -1):
        yield items[position]


def _up(items: Sequence[tuple[float, int]], start: int, limit: float) -> Iterator[tuple[float, int]]:
    """Yield the items from the index on that weigh less than the limit, smallest first."""
    for position in range(start, len(items)):
        if items[position][0] >= limit:
            return
        yield items[position]
