# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leaders spread as evenly as their groups allow, with as few step-downs as possible. Pure: no I/O.

The assignment is exact: it minimizes the sum of squared numbers of leaders per server, then the same sum per zone, then
the number of changed leaders. This is a minimum-cost flow problem with convex costs (group → server → zone), and a flow
is optimal if its residual graph has no negative cycle (Klein 1967), so cycles are cancelled until none is left. Groups
never leave their cluster, and each cluster is solved separately.

Among equally good assignments, the groups whose leader changes are chosen by their write rates, to even out the
servers' write rates, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: The multiple of the average write rate that the busiest server must exceed before leaders change merely to relieve
#: it.
TOLERATED_RATE = 1.1
#: Minimum gain of exchanging two leaders: the decrease of the sum of squared rates, relative to the square of the
#: average.
_LEAST_GAIN = 1e-3

_SINK = ""


@dataclass(frozen=True)
class LedGroup:
    """A group and the servers that may lead it, including its leader. `rate`: bytes per second that are written to the
    group."""

    leader: str
    able: frozenset[str]
    rate: float = 0.0


def even_leaders(groups: Sequence[LedGroup], zones: Mapping[str, str]) -> list[str]:
    """Return the leader for each group. `zones`: server → zone ("" for none), for all servers that should lead a
    share."""
    leaders = [group.leader for group in groups]
    for indices in _components(groups, zones):
        part = _Assignment([groups[index] for index in indices], zones)
        part.even_numbers()
        part.even_rates()
        for index, leader in zip(indices, part.leaders):
            leaders[index] = leader
    return leaders


def _components(groups: Sequence[LedGroup], zones: Mapping[str, str]) -> list[list[int]]:
    """Return the groups' indices in sets that can be solved separately: two groups belong to one set if they share a
    server or, if there are several zones, a zone."""
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while above.setdefault(name, name) != name:
            above[name] = name = above[above[name]]
        return name

    for group in groups:
        for name in group.able:
            above[root(name)] = root(group.leader)
    if len(set(zones.values())) > 1:
        for name, zone in zones.items():
            above[root(name)] = root(f"/{zone}")
    found: dict[str, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        found[root(group.leader)].append(index)
    return list(found.values())


class _Assignment:
    """Leaders of groups that share servers, and the residual graph of the corresponding flow."""

    def __init__(self, groups: Sequence[LedGroup], zones: Mapping[str, str]) -> None:
        self._groups = groups
        self.leaders = [group.leader for group in groups]
        self._names = sorted({name for group in groups for name in group.able} & set(zones))
        self._zones = {name: zones[name] for name in self._names}
        self._count = Counter(self.leaders)
        self._zone_count: Counter[str] = Counter()
        for name in self._names:
            self._zone_count[self._zones[name]] += self._count[name]
        # Changing any number of leaders costs less than one step of the zones' sum, which costs less than one step of
        # the servers' sum.
        self._zone_step = len(groups) + 1
        self._server_step = self._zone_step * (len(groups) ** 2 + 1)
        #: (from, to) → cost in changed leaders → the groups that can move this way, in a fixed order.
        self._ways: dict[tuple[str, str], dict[int, dict[int, None]]] = {}
        for index in range(len(groups)):
            self._open(index)

    def even_numbers(self) -> None:
        """Optimize the numbers of leaders."""
        while cycle := _negative_cycle(self._arcs()):
            self._cancel(cycle)

    def even_rates(self) -> None:
        """Exchange leaders in pairs, which keeps the numbers, until no pair helps. Exchanges that cost further
        step-downs are made only while a server has more than TOLERATED_RATE times the average."""
        rates = dict.fromkeys(self._names, 0.0)
        for group, leader in zip(self._groups, self.leaders):
            if leader in rates:
                rates[leader] += group.rate
        average = sum(rates.values()) / max(1, len(rates))
        for dearest in (0, 2):
            while average and (dearest == 0 or max(rates.values()) > TOLERATED_RATE * average):
                pair = self._best_exchange(rates, dearest, _LEAST_GAIN * average * average)
                if pair is None:
                    break
                first, second = pair
                source, target = self.leaders[first], self.leaders[second]
                moved = self._groups[first].rate - self._groups[second].rate
                rates[source] -= moved
                rates[target] += moved
                self._lead(first, target)
                self._lead(second, source)

    def _best_exchange(self, rates: Mapping[str, float], dearest: int, least: float) -> tuple[int, int] | None:
        """Return the two groups whose exchange relieves the busiest server most, for at most `dearest` more step-downs."""
        for source in sorted(rates, key=lambda name: (-rates[name], name)):
            best: tuple[float, int, int] | None = None
            for target in rates:
                excess = rates[source] - rates[target]
                if target == source or excess <= 0:
                    continue
                for there, back in self._exchanges(source, target, excess / 2, dearest):
                    moved = self._groups[there].rate - self._groups[back].rate
                    gain = 2 * moved * (excess - moved)
                    if gain > least and (best is None or gain > best[0] * (1 + 1e-9)):
                        best = gain, there, back
            if best is not None:
                return best[1:]
        return None

    def _exchanges(self, source: str, target: str, difference: float, dearest: int) -> Iterable[tuple[int, int]]:
        """Yield, for each group of the source, the group of the target for which the difference of their rates is
        closest to `difference`."""
        for back_cost, backs in self._ways.get((target, source), {}).items():
            ordered = sorted((self._groups[index].rate, index) for index in backs)
            if not ordered:
                continue
            for there_cost, outward in self._ways.get((source, target), {}).items():
                if there_cost + back_cost > dearest:
                    continue
                for there in outward:
                    at = bisect_left(ordered, (self._groups[there].rate - difference, -1))
                    for _rate, back in ordered[max(0, at - 1) : at + 1]:
                        yield there, back

    def _arcs(self) -> dict[tuple[str, str], int]:
        """Return the residual graph: the cost of one unit of flow for each arc. Names with a slash are zones."""
        arcs = {
            way: min(cost for cost, groups in costs.items() if groups)
            for way, costs in self._ways.items()
            if any(costs.values())
        }
        for name in self._names:
            zone, count = self._zones[name], self._count[name]
            arcs[name, f"/{zone}"] = self._server_step * (2 * count + 1)
            arcs[f"/{zone}", name] = -self._server_step * (2 * count - 1)
        for zone, count in self._zone_count.items():
            arcs[f"/{zone}", _SINK] = self._zone_step * (2 * count + 1)
            arcs[_SINK, f"/{zone}"] = -self._zone_step * (2 * count - 1)
        return arcs

    def _cancel(self, cycle: Sequence[str]) -> None:
        """Move leaders along the cycle, as many at once as are certain to improve the result."""
        ways = [way for way in zip(cycle, [*cycle[1:], cycle[0]]) if way in self._ways]
        sources, targets = (Counter(end) for end in zip(*ways))
        losing, gaining = sources - targets, targets - sources
        cheapest = [next(groups for cost, groups in sorted(self._ways[way].items()) if groups) for way in ways]
        units = min(len(groups) for groups in cheapest)
        if losing:
            pair = len(losing) == len(gaining) == 1
            excess = self._count[next(iter(losing))] - self._count[next(iter(gaining))]
            units = max(1, min(units, excess // 2)) if pair else 1
        going = [(list(groups)[:units], target) for groups, (_source, target) in zip(cheapest, ways)]
        for indices, target in going:
            for index in indices:
                self._lead(index, target)

    def _lead(self, index: int, target: str) -> None:
        """Make the target the leader of the group."""
        for _way, _cost, groups in self._list_ways(index):
            del groups[index]
        for name, change in ((self.leaders[index], -1), (target, 1)):
            self._count[name] += change
            self._zone_count[self._zones[name]] += change
        self.leaders[index] = target
        self._open(index)

    def _open(self, index: int) -> None:
        for _way, _cost, groups in self._list_ways(index):
            groups[index] = None

    def _list_ways(self, index: int) -> Iterable[tuple[tuple[str, str], int, dict[int, None]]]:
        """Yield the other servers that may lead the group, each with the cost and the groups that can change to it at
        that cost."""
        group, leader = self._groups[index], self.leaders[index]
        if leader not in self._zones:
            return
        for target in sorted(group.able):
            if target != leader and target in self._zones:
                cost = (target != group.leader) - (leader != group.leader)
                yield (leader, target), cost, self._ways.setdefault((leader, target), {}).setdefault(cost, {})


def _negative_cycle(arcs: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the nodes of a cycle with negative total cost, in order; empty if there is none.

    Bellman-Ford labels from a source before all nodes; any cycle among the predecessors has a negative cost.
    """
    distance: dict[str, int] = defaultdict(int)
    before: dict[str, str] = {}
    while True:
        changed = False
        for (source, target), cost in arcs.items():
            if distance[source] + cost < distance[target]:
                distance[target] = distance[source] + cost
                before[target] = source
                changed = True
        if not changed:
            return []
        if cycle := _find_cycle(before):
            return cycle


def _find_cycle(before: Mapping[str, str]) -> list[str]:
    """Return a cycle in the graph of predecessors, in the direction of the arcs."""
    seen: dict[str, str] = {}
    for start in before:
        node: str | None = start
        while node is not None and node not in seen:
            seen[node] = start
            node = before.get(node)
        if node is not None and seen[node] == start:
            cycle = [node]
            while (node := before[node]) != cycle[0]:
                cycle.append(node)
            return cycle[::-1]
    return []
