# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step-downs that spread the leaders of a cluster's streams and consumers. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..nats.model import Cluster, RaftGroup, Server, Stream
from ..roll.leadership import REFUSED, STEP_DOWN, LeaderConstraints, plan_group
from ..screen import Page, listing, page
from ..units import counted, human_bytes
from .even_leaders import LedGroup, even_leaders
from .rules import carriers

#: The kinds of groups, each spread separately, and their names in a plan.
STREAMS, CONSUMERS = "streams", "consumers"

#: Maximum number of reasons for unchanged groups in a plan for operators.
_MOST_REASONS = 5

_ANY_OTHER = LeaderConstraints(force=True)


@dataclass(frozen=True)
class LeaderMove:
    """A group whose leader should change. `consumer` is None for a stream; `rate`: bytes per second written to it."""

    account: str
    stream: str
    consumer: str | None
    source: str
    target: str
    group: RaftGroup
    rate: float = 0.0
    account_name: str = ""


@dataclass(frozen=True)
class ServerLeads:
    """The leaders on one server; `rate`: bytes per second written to the streams that it leads."""

    streams: int = 0
    consumers: int = 0
    rate: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {"streams": self.streams, "consumers": self.consumers, "bytes_per_second": round(self.rate)}


@dataclass(frozen=True)
class LeaderPlan:
    """The moves in order; each move makes the leaders more even. The plan also contains each server's leaders before
    and after, and the reasons why groups with other members keep their leader: reason → subjects."""

    moves: tuple[LeaderMove, ...]
    before: dict[str, ServerLeads]
    after: dict[str, ServerLeads]
    left: dict[str, list[str]]


def plan_leaders(
    cluster: Cluster,
    name: str,
    kinds: Sequence[str],
    zones: Mapping[str, str],
    rates: Mapping[tuple[str, str], float],
    accounts: Collection[str],
    most: int = 0,
) -> LeaderPlan:
    """Return at most `most` moves (0 for any number) between the servers of the cluster with this name.

    `kinds`: STREAMS, CONSUMERS or both. `rates`: (account, stream) → bytes per second. `accounts`: accounts whose
    leaders can be requested to step down. Groups without a leader or without another member in step stay unchanged, and
    servers that are being drained are left out.
    """
    zone_of = {server.name: zones.get(server.name, "") for server in carriers(cluster, name)}
    servers = {server.name: server for server in cluster.servers}
    left: dict[str, list[str]] = {}
    moves: list[LeaderMove] = []
    led: list[tuple[str, str, float]] = []
    for kind in (STREAMS, CONSUMERS):
        items = list(_items(cluster, name, kind, rates))
        if kind in kinds:
            items = [_with_able(item, servers, accounts, left) for item in items]
        led += [(kind, item.led.leader, item.led.rate) for item in items]
        targets = even_leaders([item.led for item in items], zone_of)
        moves += [_move(item, target) for item, target in zip(items, targets) if target != item.led.leader]
    before = _leads(led, zone_of)
    chosen = _in_order(moves, Counter(leader for _kind, leader, _rate in led))[: most or None]
    changed = [
        change
        for move in chosen
        for change in ((_kind(move), move.source, -move.rate, -1), (_kind(move), move.target, move.rate, 1))
    ]
    return LeaderPlan(tuple(chosen), before, _changed(before, changed), left)


def write_rates(earlier: Cluster, later: Cluster, seconds: float) -> dict[tuple[str, str], float]:
    """Return (account, stream) → bytes per second: the number of messages between two samples, times the average stored
    size."""
    first = {(stream.account, stream.name): stream.last_seq for stream in earlier.streams}
    return {
        key: max(0, stream.last_seq - first[key]) * stream.size / stream.messages / seconds
        for stream in later.streams
        if (key := (stream.account, stream.name)) in first and stream.messages
    }


def leader_page(plan: LeaderPlan) -> Page:
    """Return the plan for operators: the leaders on each server before and after, and the groups that keep their
    leader."""
    if plan.moves:
        kinds = Counter(_kind(move) for move in plan.moves)
        counts = " and ".join(f"{kinds[kind]} {kind}" for kind in (STREAMS, CONSUMERS) if kinds[kind])
        lines = [f"{len(plan.moves)} leaders step down ({counts})"]
    else:
        lines = ["The leaders are distributed as evenly as their groups allow"]
    servers = []
    for name, before in plan.before.items():
        now, then = _figures(before), _figures(plan.after[name])
        servers.append(f"{name} leads {now}" + (f"; afterwards {then}" if then != now else ""))
    found = page(*lines) + listing(servers, what="server")
    lines = []
    by_number = sorted(plan.left.items(), key=lambda item: (-len(item[1]), item[0]))
    for reason, subjects in by_number[:_MOST_REASONS]:
        more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
        lines.append(f"unchanged: {subjects[0]}{more}: {reason}")
    if others := by_number[_MOST_REASONS:]:
        lines.append(f"unchanged: {sum(len(subjects) for _reason, subjects in others)} more, for other reasons")
    return found + page(*lines)


def _figures(leads: ServerLeads) -> str:
    rate = f", {human_bytes(leads.rate)}/s" if leads.rate else ""
    return f"{counted(leads.streams, 'stream')}, {counted(leads.consumers, 'consumer')}{rate}"


@dataclass(frozen=True)
class _LedGroup:
    """A group with a leader: that of a stream, or that of the stream's consumer with this name."""

    stream: Stream
    consumer: str | None
    group: RaftGroup
    led: LedGroup


def _items(cluster: Cluster, name: str, kind: str, rates: Mapping[tuple[str, str], float]) -> Iterable[_LedGroup]:
    """Yield the groups of the kind that have a leader in the cluster with this name, with that leader as the only
    choice."""
    for stream in cluster.streams:
        groups: list[tuple[str | None, RaftGroup]] = [(None, stream.group)]
        if kind == CONSUMERS:
            groups = [(consumer.name, consumer.group) for consumer in stream.consumers]
        rate = rates.get((stream.account, stream.name), 0.0) if kind == STREAMS else 0.0
        for consumer_name, group in groups:
            if group.cluster == name and group.leader is not None:
                led = LedGroup(group.leader, frozenset({group.leader}), rate)
                yield _LedGroup(stream, consumer_name, group, led)


def _with_able(
    item: _LedGroup, servers: Mapping[str, Server], accounts: Collection[str], left: dict[str, list[str]]
) -> _LedGroup:
    """Return the group with the members that may lead it; if it has other members but none of them may lead, the reason
    is added to `left`."""
    plan = plan_group(item.group, _ANY_OTHER, servers)
    reason = ""
    if plan.action == REFUSED:
        reason = plan.reason
    elif item.group.moving:
        reason = "it is being moved"
    elif plan.action == STEP_DOWN and item.stream.account not in accounts:
        reason = f"no user of account {item.stream.account_name} is configured"
    elif plan.action == STEP_DOWN:
        return replace(item, led=replace(item.led, able=item.led.able | {*plan.candidates}))
    if reason:
        left.setdefault(reason, []).append(item.group.subject)
    return item


def _move(item: _LedGroup, target: str) -> LeaderMove:
    stream = item.stream
    where = stream.account, stream.name, item.consumer
    return LeaderMove(*where, item.led.leader, target, item.group, item.led.rate, stream.account_name)


def _kind(move: LeaderMove) -> str:
    return STREAMS if move.consumer is None else CONSUMERS


def _leads(led: Iterable[tuple[str, str, float]], servers: Iterable[str]) -> dict[str, ServerLeads]:
    """Return the leaders of each server. `led`: kind, leader and rate of each group."""
    nothing = dict.fromkeys(sorted(servers), ServerLeads())
    return _changed(nothing, ((kind, leader, rate, 1) for kind, leader, rate in led))


def _changed(
    before: Mapping[str, ServerLeads], changes: Iterable[tuple[str, str, float, int]]
) -> dict[str, ServerLeads]:
    """Return the leaders of each server after changes given as kind, server, rate and number."""
    figures = {
        name: {STREAMS: leads.streams, CONSUMERS: leads.consumers, "": leads.rate} for name, leads in before.items()
    }
    for kind, name, rate, number in changes:
        if name in figures:
            figures[name][kind] += number
            figures[name][""] += rate
    return {
        name: ServerLeads(int(found[STREAMS]), int(found[CONSUMERS]), max(0.0, found[""]))
        for name, found in figures.items()
    }


def _in_order(moves: Sequence[LeaderMove], count: Counter[str]) -> list[LeaderMove]:
    """Return the moves in an order in which each move relieves the server with the most leaders relative to the
    receiving server."""
    ways: dict[tuple[str, str], list[LeaderMove]] = {}
    for move in reversed(moves):
        ways.setdefault((move.source, move.target), []).append(move)
    ordered = []
    while ways:
        way = max(ways, key=lambda item: (count[item[0]] - count[item[1]], item))
        ordered.append(ways[way].pop())
        count.subtract([way[0]])
        count.update([way[1]])
        if not ways[way]:
            del ways[way]
    return ordered
