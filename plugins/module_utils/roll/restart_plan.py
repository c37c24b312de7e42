# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches of servers that may be restarted together.

Pure functions of a Cluster. These invariants hold for every batch, while all of its servers are down and all others are
up:

1. Each stream and consumer group has at most `max_unavailable_replicas` members down and keeps its quorum; of two members, one
   stays up.
2. The meta group has its quorum, and `meta_headroom` further members if the batch has more than one of its members.
3. Each cluster has less than half of its servers down (one server if it has only one or two).
4. Within a cluster, all servers of the batch are in the same zone.

Groups of one or two replicas cannot keep a quorum while a member restarts: they are reported, or refused on request.
Finding the smallest number of batches is a graph colouring problem, which is solved greedily from a lower bound
upwards.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from ..health.raft_silence import raft_silent_servers
from ..health.rules import duplicate_problems
from ..nats.model import Cluster, RaftGroup
from ..nats.server_versions import FIRST_SEQ_PURGED
from ..problem import ERROR, WARNING, Problem
from ..units import human_bytes

#: Colourings to try for each number of batches, because a different order may find a solution.
ATTEMPTS = 24

#: Bytes that a server needs to start: it creates directories and writes the state of each of its groups before it
#: serves clients.
LEAST_FREE = 64 * 1024**2


@dataclass(frozen=True)
class RollRules:
    """How many servers may be down together, and which losses are accepted. `max_parallel`: 0 for as many as the
    invariants allow. `canary`: number of servers that go first, one by one. `r1_policy`: whether unavailable groups of
    one or two replicas are an error (fail), are accepted during the restart (accept), or single replicas are first
    moved to another server (move). `accept_loss`: streams (ACCOUNT/STREAM) whose messages may be lost in the restart.
    `starts`: server → the version that it will start, if it differs from the running one."""

    max_parallel: int = 1
    max_unavailable_replicas: int = 1
    meta_headroom: int = 1
    canary: int = 0
    r1_policy: str = "accept"
    accept_loss: frozenset[str] = frozenset()
    starts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RollPlan:
    """The batches in order. `lower_bound`: no plan under these rules has fewer batches. `problems`: refusals (errors)
    and effects (warnings). `reasons`: the reason for each batch's position."""

    batches: tuple[tuple[str, ...], ...]
    lower_bound: int
    problems: tuple[Problem, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class BatchEffect:
    """The effect of a batch on the streams and consumers: `leaders` of them have their leader on one of its servers and
    need a new one; `groups` of them have one member fewer."""

    leaders: int
    groups: int


@dataclass(frozen=True)
class _Limit:
    """At most `most` of `members` (indices of servers) may be in one batch."""

    members: frozenset[int]
    most: int


def plan_roll(cluster: Cluster, chosen: Iterable[str], zones: Mapping[str, str], rules: RollRules) -> RollPlan:
    """Return the batches in which the `chosen` servers are restarted; the same input gives the same plan.

    `zones`: server → zone, for servers that have a zone. Raft-silent servers come first, one by one: no quorum depends
    on them. Servers that are already down follow, all in one batch, because starting them reduces no redundancy. The
    meta leader is in the last batch."""
    names = sorted(set(chosen), key=lambda name: (zones.get(name, ""), name))
    silent = [name for name in raft_silent_servers(cluster) if name in names]
    down = [name for name in names if name not in cluster.names]
    running = [name for name in names if name in cluster.names and name not in silent]
    problems = [
        *duplicate_problems(cluster),
        *_few_replicas(cluster, running, rules),
        *_missing_members(cluster, running),
        *lost_messages(cluster, [*silent, *running], rules),
        *_meta_refusal(cluster, running),
    ]
    leader = cluster.meta.group.leader if cluster.meta else None
    canaries = _canaries(cluster, [name for name in running if name != leader], rules.canary)
    rest = [name for name in running if name not in canaries]
    colouring = _Colouring(rest, cluster, zones, rules)
    classes = colouring.solve()
    classes.sort(key=lambda batch: (leader in batch, [(zones.get(name, ""), name) for name in batch]))
    first = [*((name,) for name in silent), *([tuple(down)] if down else ())]
    batches = [*first, *((name,) for name in canaries), *(tuple(batch) for batch in classes)]
    reasons = [
        *("is raft-silent: no quorum depends on it" for _name in silent),
        *("is down and starts first: this reduces no redundancy" for _batch in first[len(silent) :]),
        *("is a canary: it leads the fewest streams and consumers" for _name in canaries),
        *("has the meta leader, so it comes last" if leader in batch else "" for batch in classes),
    ]
    return RollPlan(tuple(batches), len(first) + len(canaries) + colouring.lower_bound, tuple(problems), tuple(reasons))


def plan_ungated(cluster: Cluster | None, names: Sequence[str], rules: RollRules, unread: str = "") -> RollPlan:
    """Return the plan of a restart without a health gate: one server after another, in this order. Only lost messages
    are errors. `cluster`: None if it could not be read; `unread`: the reason."""
    problems = unchecked_losses(unread) if cluster is None else ungated_losses(cluster, names, rules)
    return RollPlan(tuple((name,) for name in names), len(names), tuple(problems))


def ungated_losses(cluster: Cluster, names: Iterable[str], rules: RollRules) -> list[Problem]:
    """Return the streams whose messages are lost if these servers restart without a gate, because no replica is moved
    first."""
    policy = "accept" if rules.r1_policy == "move" else rules.r1_policy
    running = [name for name in names if name in cluster.names]
    return lost_messages(cluster, running, replace(rules, r1_policy=policy))


def unchecked_losses(reason: str) -> list[Problem]:
    """Return the warning for a cluster that could not be read before its servers stop."""
    message = f"could not check whether streams in memory would lose their messages: {reason}"
    return [Problem("roll_unchecked", WARNING, "cluster", message)]


def batch_effects(cluster: Cluster, batches: Sequence[Sequence[str]]) -> list[BatchEffect]:
    """Return the effect of each batch on the streams and consumers, based on the current leaders. Servers that are
    already down take nothing to reduced redundancy."""
    batch_numbers = {name: number for number, batch in enumerate(batches) for name in batch if name in cluster.names}
    leaders, groups = [0] * len(batches), [0] * len(batches)
    for group in cluster.groups():
        if group.leader in batch_numbers:
            leaders[batch_numbers[group.leader]] += 1
        for number in {batch_numbers[name] for name in group.members if name in batch_numbers}:
            groups[number] += 1
    return [BatchEffect(*counts) for counts in zip(leaders, groups)]


def plan_lines(
    batches: Sequence[Sequence[str]],
    why: Mapping[str, Sequence[str]],
    reasons: Sequence[str] = (),
    effects: Sequence[BatchEffect] = (),
) -> list[str]:
    """Return the plan for operators: each host of each batch with the reason for its restart (`why`), and the effect of
    the batch.

    `batches`: names of hosts. `reasons`, `effects`: one for each batch, in order; empty if the cluster could not be
    read."""
    lines = []
    for number, hosts in enumerate(batches, 1):
        lines += [f"batch {number} of {len(batches)}: {_host_with_reasons(host, why)}" for host in hosts]
        if effects:
            effect, reason = effects[number - 1], reasons[number - 1]
            if not effect.groups and reason:
                lines.append(f"batch {number} {reason}")
                continue
            lines.append(
                f"batch {number} takes {effect.groups} streams and consumers to reduced redundancy; {effect.leaders} "
                f"need a new leader{'; it ' if reason else ''}{reason}"
            )
    return lines


def free_bytes(value: object) -> int | None:
    """Return a number of free bytes, None if it is unknown. ansible-core 2.16 turns numbers of templates into text."""
    return int(str(value)) if str(value).isdecimal() else None


def disk_problems(free: Mapping[str, int | None]) -> list[Problem]:
    """Return the servers whose disk is too full for a start. `free`: server → free bytes, None if unknown."""
    return [
        Problem(
            "disk_full",
            ERROR,
            name,
            f"{name} would not start again: its store has {human_bytes(left)} free but needs {human_bytes(LEAST_FREE)}",
            (name,),
        )
        for name, left in sorted(free.items())
        if left is not None and left < LEAST_FREE
    ]


def unreadable_refusal(hosts: Iterable[str], why: Mapping[str, Sequence[str]], cause: str, code: str = "") -> str:
    """Return the refusal of a restart that no gate can monitor, because the cluster cannot be read. `cause`, `code`:
    why it cannot."""
    remedy = (
        "The configuration turns on TLS for clients, and the gate is a client. Turn it on in steps, which cost no client "
        "its connection: docs/security.md, TLS for the clients of a running cluster."
        if code == "tls"
        else "The gate needs the nats_server_system_user and nats_server_system_password of the running servers. If "
        "this run rotates the password, rotate it separately first, which is a reload; then make the other change."
    )
    return (
        f"The health gate cannot read the cluster: {cause}\n"
        f"No server was touched. To be restarted: {', '.join(_host_with_reasons(host, why) for host in hosts)}.\n"
        f"{remedy}"
    )


def _host_with_reasons(host: str, why: Mapping[str, Sequence[str]]) -> str:
    return f"{host} ({'; '.join(why[host])})" if why.get(host) else host


def _few_replicas(cluster: Cluster, running: Sequence[str], rules: RollRules) -> Iterable[Problem]:
    severity = ERROR if rules.r1_policy == "fail" else WARNING
    for group in cluster.groups():
        touched = sorted(set(group.members).intersection(running))
        if group.size - group.quorum < 1 and touched and not group.ephemeral:
            message = (
                f"{group.subject} (R{group.size}) is unavailable while {', '.join(touched)} restart(s): its quorum is "
                f"{group.size} of {group.size} replicas"
            )
            yield Problem("roll_few_replicas", severity, group.subject, message, tuple(touched))


def _missing_members(cluster: Cluster, running: Sequence[str]) -> Iterable[Problem]:
    """Yield the groups that have permanently lost a member and have none to spare. The leader of such a group reports
    every other member, including those that are down."""
    for group in cluster.groups():
        touched = sorted(set(group.members).intersection(running))
        has_lost_one, has_spare = len(group.members) < group.size, len(group.members) > group.quorum
        if not touched or not group.leader or not has_lost_one or has_spare:
            continue
        message = (
            f"{group.subject} (R{group.size}) has {len(group.members)} of {group.size} members and would lose its "
            f"quorum while {touched[0]} restarts: run repair first"
        )
        yield Problem("roll_missing_member", ERROR, group.subject, message, tuple(touched))


def lost_messages(cluster: Cluster, running: Sequence[str], rules: RollRules) -> list[Problem]:
    """Return the streams that lose messages, and the consumers that lose their positions, when these servers restart.
    The problems are errors unless the operator accepted the loss by name."""
    return [
        *_lost_with_memory(cluster, running, rules),
        *_lost_positions(cluster, running, rules),
        *_lost_by_first_seq(cluster, running, rules),
    ]


def _lost_with_memory(cluster: Cluster, running: Sequence[str], rules: RollRules) -> Iterable[Problem]:
    """Yield the streams whose only copy is in the memory of a server that restarts."""
    if rules.r1_policy == "move":
        return
    for stream in cluster.streams:
        touched = sorted(set(stream.group.members).intersection(running))
        if stream.storage != "memory" or stream.group.size != 1 or not touched or not stream.messages:
            continue
        name, accepted = stream.label, bool(stream.names.intersection(rules.accept_loss))
        lost = (
            f"stream {name} exists only in the memory of {touched[0]}: its {stream.messages} message(s) are lost in "
            "the restart"
        )
        if cluster.meta is None:
            lost += ", and so is the stream"
        yield _memory_lost(stream.group.subject, lost, accepted, touched)


def _lost_positions(cluster: Cluster, running: Sequence[str], rules: RollRules) -> Iterable[Problem]:
    """Yield the consumers whose position exists only in the memory of a server that restarts."""
    if rules.r1_policy == "move":
        return
    for stream in cluster.streams:
        for consumer in stream.consumers:
            group, config = consumer.group, consumer.info.get("config") or {}
            touched = sorted(set(group.members).intersection(running))
            delivered = (consumer.info.get("delivered") or {}).get("consumer_seq") or 0
            if group.size != 1 or group.ephemeral or not touched or not delivered:
                continue
            if stream.storage == "memory" and stream.group.size == 1:
                # A stream in memory is lost together with its messages.
                continue
            if not config.get("mem_storage") and stream.storage != "memory":
                continue
            names = {f"{name}/{consumer.name}" for name in stream.names}
            lost = (
                f"{group.subject} exists only in the memory of {touched[0]}: its position (ack floor "
                f"{consumer.ack_floor}) is lost in the restart, and messages are delivered again"
            )
            yield _memory_lost(group.subject, lost, bool(names.intersection(rules.accept_loss)), touched)


def _memory_lost(subject: str, lost: str, accepted: bool, servers: Sequence[str]) -> Problem:
    remedy = (
        "accepted by accept_loss"
        if accepted
        else "give it more replicas, or accept the loss (accept_loss, nats_cluster_accept_loss)"
    )
    severity = WARNING if accepted else ERROR
    return Problem("roll_memory_lost", severity, subject, f"{lost}; {remedy}", tuple(servers))


def _lost_by_first_seq(cluster: Cluster, running: Sequence[str], rules: RollRules) -> Iterable[Problem]:
    """Yield the streams that a server with the first_seq defect would empty during its start."""
    versions = {server.name: rules.starts.get(server.name) or server.version for server in cluster.servers}
    for stream in cluster.streams:
        first = (stream.info.get("config") or {}).get("first_seq")
        if not first or first != stream.first_seq or stream.storage != "file" or not stream.messages:
            continue
        members = [name for name in running if name in stream.group.members]
        touched = sorted(name for name in members if FIRST_SEQ_PURGED.affects(versions.get(name, "")))
        if not touched:
            continue
        name, accepted = stream.label, bool(stream.names.intersection(rules.accept_loss))
        remedy = "accepted by accept_loss" if accepted else f"upgrade the servers, or delete message {first} first"
        message = (
            f"stream {name} would lose its {stream.messages} message(s) as {', '.join(touched)} start(s), because its "
            f"first message has exactly the sequence set as first_seq ({first}; nats-server#6753): {remedy}"
        )
        severity = WARNING if accepted else ERROR
        yield Problem("roll_first_seq", severity, stream.group.subject, message, tuple(touched))


def _meta_refusal(cluster: Cluster, running: Sequence[str]) -> Iterable[Problem]:
    if cluster.meta is None or cluster.meta.size < 2:
        return
    group, quorum = cluster.meta.group, cluster.meta.quorum
    touched = sorted(set(group.members).intersection(running))
    if touched and group.size - 1 < quorum:
        message = (
            f"the meta group has {group.size} members and needs {quorum}: while one of them restarts, no stream or consumer can "
            "be created, changed or given another leader"
        )
        yield Problem("roll_meta_quorum", WARNING, group.subject, message, tuple(touched))


def _canaries(cluster: Cluster, names: Sequence[str], count: int) -> list[str]:
    """Return the servers on which a fault would do the least harm: those that lead the fewest groups."""
    leading = dict.fromkeys(names, 0)
    for group in cluster.groups():
        if group.leader in leading:
            leading[group.leader] += 1
    return sorted(names, key=lambda name: (leading[name], names.index(name)))[:count]


class _Colouring:
    """The graph: the servers to restart are its vertices, the batches are its colours."""

    def __init__(self, names: Sequence[str], cluster: Cluster, zones: Mapping[str, str], rules: RollRules) -> None:
        self.names = list(names)
        self._index = {name: number for number, name in enumerate(self.names)}
        self._parallel = rules.max_parallel or len(self.names) or 1
        limits = {limit for limit in self._limits(cluster, rules) if len(limit.members) > limit.most}
        self._neighbours: list[set[int]] = [set() for _name in self.names]
        for limit in limits:
            if limit.most == 1:
                self._connect(limit.members)
        place = {server.name: (server.cluster, zones.get(server.name)) for server in cluster.servers}
        self._places = [place[name] for name in self.names]
        self._connect_zones()
        self._wide = sorted((limit for limit in limits if limit.most > 1), key=lambda limit: sorted(limit.members))
        self._wide_limits: list[list[int]] = [[] for _name in self.names]
        for number, limit in enumerate(self._wide):
            for member in limit.members:
                self._wide_limits[member].append(number)
        self.lower_bound = self._lower_bound()

    def solve(self) -> list[list[str]]:
        """Return the batches, each sorted by name."""
        if not self.names:
            return []
        chance = random.Random(0)
        order = list(range(len(self.names)))
        for count in range(self.lower_bound, len(self.names) + 1):
            for attempt in range(ATTEMPTS if count < len(self.names) else 1):
                if attempt:
                    chance.shuffle(order)
                found = self._colour(count, order)
                if found is not None:
                    return [[self.names[member] for member in sorted(batch)] for batch in found if batch]
        return [[name] for name in self.names]

    def _limits(self, cluster: Cluster, rules: RollRules) -> Iterable[_Limit]:
        for members, most in {(group.members, _spare(group, rules)) for group in cluster.groups() if group.size > 1}:
            yield self._limit(members, most)
        if cluster.meta is not None:
            spare = cluster.meta.size - cluster.meta.quorum - rules.meta_headroom
            yield self._limit(cluster.meta.group.members, max(1, spare))
        by_cluster: dict[str, list[str]] = {}
        for server in cluster.servers:
            by_cluster.setdefault(server.cluster, []).append(server.name)
        for servers in by_cluster.values():
            yield self._limit(servers, max(1, (len(servers) - 1) // 2))

    def _limit(self, names: Iterable[str], most: int) -> _Limit:
        return _Limit(frozenset(self._index[name] for name in names if name in self._index), most)

    def _connect(self, members: Iterable[int]) -> None:
        together = set(members)
        for member in together:
            self._neighbours[member] |= together - {member}

    def _connect_zones(self) -> None:
        for one, mine in enumerate(self._places):
            for other, theirs in enumerate(self._places[:one]):
                if mine[0] == theirs[0] and mine[1] != theirs[1]:
                    self._connect((one, other))

    def _lower_bound(self) -> int:
        """Return the highest lower bound of the number of batches: from `max_parallel`, from the limits on servers that
        are down together, and from the zones of each cluster, because a batch contains servers of only one zone."""
        by_place: dict[tuple[str, str | None], set[int]] = {}
        for member, place in enumerate(self._places):
            by_place.setdefault(place, set()).add(member)
        by_cluster: dict[str, int] = {}
        for (cluster, _zone), members in by_place.items():
            by_cluster[cluster] = by_cluster.get(cluster, 0) + self._bound(members)
        whole = ceil(len(self.names) / self._parallel)
        return max(whole, self._bound(set(range(len(self.names)))), *by_cluster.values(), 0)

    def _bound(self, members: set[int]) -> int:
        """Return the minimum number of batches for these servers: the size of the largest clique found, or the number
        that a limit requires."""
        bounds = [0, *(ceil(len(members & limit.members) / limit.most) for limit in self._wide)]
        by_degree = sorted(members, key=lambda member: (-len(self._neighbours[member]), member))
        for start in by_degree:
            clique = {start}
            for member in by_degree:
                if clique <= self._neighbours[member]:
                    clique.add(member)
            bounds.append(len(clique))
        return max(bounds)

    def _colour(self, count: int, order: Sequence[int]) -> list[set[int]] | None:
        """Return at most `count` batches, or None if this order needs more (DSATUR: the most constrained server comes
        next)."""
        batches: list[set[int]] = [set() for _number in range(count)]
        closed: list[set[int]] = [set() for _name in self.names]
        used = [[0] * count for _limit in self._wide]
        waiting = list(order)
        while waiting:
            member = max(
                waiting, key=lambda one: (len(closed[one]), len(self._neighbours[one]) + len(self._wide_limits[one]))
            )
            waiting.remove(member)
            fitting = [
                number
                for number in range(count)
                if number not in closed[member] and len(batches[number]) < self._parallel
            ]
            if not fitting:
                return None
            chosen = min(fitting, key=lambda number: (len(batches[number]), number))
            batches[chosen].add(member)
            for other in self._neighbours[member]:
                closed[other].add(chosen)
            for number in self._wide_limits[member]:
                used[number][chosen] += 1
                if used[number][chosen] == self._wide[number].most:
                    for other in self._wide[number].members:
                        closed[other].add(chosen)
        return batches


def _spare(group: RaftGroup, rules: RollRules) -> int:
    """Return how many members of a group may be down. The minimum is one, because a group of two is unavailable in any
    case."""
    return max(1, min(rules.max_unavailable_replicas, min(group.size, len(group.members)) - group.quorum))
