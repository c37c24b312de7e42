# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is healthy, and what may be stopped. PRIVATE to the collection.

Pure judgement over a Cluster: the same code judges a live cluster, a snapshot and a simulation. The rules come from
how nats-server behaves, not from its /healthz, which stays at 200 for a stream that lost its quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._model import (
    META,
    Cluster,
    MetaGroup,
    Peer,
    RaftGroup,
    Server,
)

ERROR, WARNING = "error", "warning"

#: JetStream API requests that the meta leader may have waiting before it counts as overloaded.
MAX_META_PENDING = 100


@dataclass(frozen=True)
class Problem:
    """One reason. `servers`: those at fault, empty when no single server explains it (and none can be tolerated)."""

    code: str
    severity: str
    subject: str
    message: str
    servers: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "subject": self.subject,
            "message": self.message,
            "servers": list(self.servers),
        }


@dataclass(frozen=True)
class Limits:
    """When a replica counts as in step: at most `max_lag` Raft entries behind, heard of within `max_active` seconds."""

    max_lag: int = 200
    max_active: float = 5.0

    def in_step(self, peer: Peer) -> bool:
        """Return whether the replica can be counted on.

        Under load a healthy replica is a few entries behind at any moment and then reported as not current
        (raft.go Peers compares with what the leader has applied); a bounded lag with a fresh contact is in step.
        """
        if peer.offline or peer.active > self.max_active or peer.lag > self.max_lag:
            return False
        return peer.current or peer.lag > 0


@dataclass(frozen=True)
class Expectations:
    """What the cluster should look like. `servers`, `jetstream_servers`: names, None for whatever answers.
    `cluster`: judge the servers and assets of this cluster only. `clusters`: the cluster of each server, by its name."""

    servers: frozenset[str] | None = None
    jetstream_servers: frozenset[str] | None = None
    cluster: str | None = None
    limits: Limits = Limits()
    clusters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StopPolicy:
    """How to judge a stop. `r1`: fail or accept that assets with a single replica are away for the time."""

    r1: str = "accept"
    limits: Limits = Limits()


def health_problems(cluster: Cluster, expected: Expectations) -> list[Problem]:
    """Return everything that is wrong with the cluster, most fundamental first; empty means healthy."""
    mine = cluster.only(cluster=expected.cluster)
    if expected.cluster is not None and not mine.servers:
        there = _names({server.cluster for server in cluster.servers})
        message = f"no server of a cluster named {expected.cluster} answered; there are: {there}"
        return [_error("cluster_missing", expected.cluster, message)]
    return [
        *_inventory_problems(cluster, mine, expected),
        *_gateway_problems(cluster, mine, expected),
        *_meta_problems(cluster, mine, expected),
        *_server_problems(mine, expected),
        *(problem for group in mine.groups() for problem in _group_problems(group, cluster.names, expected.limits)),
    ]


def group_problems(
    group: RaftGroup, answered: frozenset[str] | None = None, limits: Limits = Limits()
) -> list[Problem]:
    """Return what is wrong with one group. `answered`: the servers that did; None believes what the leader says of them."""
    return list(_group_problems(group, frozenset(group.members) if answered is None else answered, limits))


def stop_problems(cluster: Cluster, server_names: Iterable[str], policy: StopPolicy) -> list[Problem]:
    """Return every group that would lose its quorum if these servers stopped now.

    A replica counts when its leader sees it in step and it answered: for some seconds after a crash the leader still
    believes in it. A group of which nobody knows the state is a reason too. Groups without a member on these servers are
    not judged.
    """
    stopping = frozenset(server_names)
    problems = [
        _error(
            "stop_unknown_server",
            name,
            f"{name} did not answer and no group knows it: it cannot be judged what stopping it would break",
            name,
        )
        for name in sorted(stopping - cluster.names - _all_members(cluster))
    ]
    if cluster.meta is not None:
        problems += _stop_group(cluster.meta.group, cluster.meta.quorum, stopping, cluster.names, policy)
    for group in cluster.groups():
        problems += _stop_group(group, group.quorum, stopping, cluster.names, policy)
    return problems


def split_tolerated(problems: Sequence[Problem], tolerate: Iterable[str]) -> tuple[list[Problem], list[Problem]]:
    """Return (remaining, tolerated): tolerated is what has a tolerated code, or only tolerated servers at fault."""
    accepted = frozenset(tolerate)
    remaining: list[Problem] = []
    tolerated: list[Problem] = []
    for problem in problems:
        harmless = problem.code in accepted or (problem.servers and accepted.issuperset(problem.servers))
        (tolerated if harmless else remaining).append(problem)
    return remaining, tolerated


def _error(code: str, subject: str, message: str, *servers: str) -> Problem:
    return Problem(code, ERROR, subject, message, tuple(sorted(servers)))


def _all_members(cluster: Cluster) -> frozenset[str]:
    groups = list(cluster.groups()) + ([cluster.meta.group] if cluster.meta else [])
    return frozenset(name for group in groups for name in group.members)


def _inventory_problems(everything: Cluster, mine: Cluster, expected: Expectations) -> Iterable[Problem]:
    ids: dict[str, list[Server]] = {}
    for server in everything.servers:
        ids.setdefault(server.name, []).append(server)
    for name, servers in ids.items():
        if len(servers) > 1:
            hosts = ", ".join(f"{server.host} ({server.id})" for server in servers)
            yield _error("server_duplicate", name, f"{len(servers)} servers are named {name}: {hosts}")
    for server in mine.servers:
        wanted = expected.clusters.get(server.name, server.cluster)
        if wanted != server.cluster:
            message = f"{server.name} is in cluster {server.cluster!r}, expected in {wanted!r}"
            yield _error("server_wrong_cluster", server.name, message, server.name)
    if expected.servers is None:
        return
    for name in sorted(expected.servers - mine.names):
        elsewhere = [server for server in everything.servers if server.name == name]
        if elsewhere:
            message = f"{name} is in cluster {elsewhere[0].cluster!r}, expected in {expected.cluster!r}"
            yield _error("server_wrong_cluster", name, message, name)
        else:
            yield _error("server_missing", name, f"expected server {name} did not answer", name)
    for name in sorted(mine.names - expected.servers):
        yield _error("server_unexpected", name, f"{name} answered, but is not one of the expected servers", name)


def _gateway_problems(everything: Cluster, mine: Cluster, expected: Expectations) -> Iterable[Problem]:
    """Each server keeps an outbound gateway connection to each other cluster of which a server answered (docs: gateways); it
    names only those that are there (events.go sendStatsz). Servers behind leafnodes answer too and have none: judged are the
    expected ones, and without an expectation those that have a gateway connection."""
    linked = [
        server
        for server in everything.servers
        if server.name in expected.clusters
        or ((server.reaches or server.inbound_gateways) and (expected.servers is None or server.name in expected.servers))
    ]
    clusters = {server.cluster for server in linked}
    for server in linked:
        if server.name not in mine.names:
            continue
        for cluster in sorted(clusters - {server.cluster, *server.reaches}):
            message = f"{server.name} of {server.cluster} has no gateway connection to {cluster}, which does not hear it"
            yield _error("gateway_missing", server.name, message, server.name)


def _meta_problems(everything: Cluster, mine: Cluster, expected: Expectations) -> Iterable[Problem]:
    wanted = expected.jetstream_servers
    meta = everything.meta
    if meta is None:
        if wanted is not None and len(wanted) > 1:
            yield _error("meta_no_leader", "meta group", "no server is in a JetStream meta group")
        return
    views = {server.name: meta.views[server.name] for server in mine.servers if server.name in meta.views}
    claims = sorted({leader for leader in views.values() if leader})
    leaderless = sorted(name for name, leader in views.items() if not leader)
    if not claims:
        yield _error(
            "meta_no_leader",
            "meta group",
            f"no meta leader: {meta.quorum} of {meta.group.size} members must be up, "
            f"{len(meta.views)} answered ({_names(meta.views)})",
        )
        return
    if leaderless:
        message = f"{_names(leaderless)} know(s) no meta leader, the others name {_names(claims)}"
        yield _error("meta_leader_disputed", "meta group", message, *leaderless)
    if len(claims) > 1:
        yield _error("meta_leader_disputed", "meta group", f"the servers name different meta leaders: {_names(claims)}")
    elif meta.group.leader is None:
        message = f"{claims[0]} is named as the meta leader, but does not lead (or did not answer)"
        yield _error("meta_no_leader", "meta group", message)
    if meta.group.leader is None:
        return
    yield from _meta_membership(meta, expected)
    yield from _peer_problems(meta.group, meta.quorum, everything.names, expected.limits)
    if meta.pending > MAX_META_PENDING:
        message = f"the meta leader {meta.group.leader} has {meta.pending} API requests waiting"
        yield _error("meta_pending", "meta group", message)


def _meta_membership(meta: MetaGroup, expected: Expectations) -> Iterable[Problem]:
    wanted = expected.jetstream_servers
    if wanted is None:
        return
    members = frozenset([*meta.group.leaders, *(peer.name for peer in meta.group.peers)])
    absent = sorted(wanted - members)
    for name in absent:
        yield _error(
            "meta_peer_missing",
            "meta group",
            f"{name} is not a member of the meta group in the view of its leader",
            name,
        )
    if expected.cluster is not None:
        return
    extra = sorted(members - wanted)
    for name in extra:
        message = f"{name} is a member of the meta group, but not one of the expected JetStream servers"
        yield _error("meta_peer_unexpected", "meta group", message, name)
    if meta.group.size != len(wanted) + len(extra) - len(absent):
        message = f"the meta group counts {meta.group.size} members, {len(wanted)} are expected"
        yield _error("meta_size", "meta group", message)


def _server_problems(mine: Cluster, expected: Expectations) -> Iterable[Problem]:
    wanted = expected.jetstream_servers or frozenset()
    for server in mine.servers:
        if server.name in wanted and not server.jetstream:
            yield _error("jetstream_disabled", server.name, f"JetStream does not run on {server.name}", server.name)
        if server.health is None:
            yield _error("server_silent", server.name, f"{server.name} did not answer HEALTHZ", server.name)
        elif not server.health.ok:
            reasons = "; ".join(server.health.errors) or "no reason given"
            message = f"{server.name} reports {server.health.status}: {reasons}"
            yield _error("server_unhealthy", server.name, message, server.name)
        if server.jetstream and server.summary is None:
            message = f"{server.name} did not answer JSZ: its streams and consumers are unknown"
            yield _error("server_silent", server.name, message, server.name)


def _group_problems(group: RaftGroup, answered: frozenset[str], limits: Limits) -> Iterable[Problem]:
    if not group.leaders:
        yield _error(
            f"{group.kind}_no_leader",
            group.subject,
            f"{_label(group)} has no leader: {group.quorum} of {group.size} members must be up, "
            f"{len(group.hosts)} answered ({_names(group.hosts)}); members: {_names(group.members)}",
        )
        return
    if group.leader is None:
        message = f"{_label(group)} is led by more than one server: {_names(group.leaders)}"
        yield _error(f"{group.kind}_leader_disputed", group.subject, message)
        return
    if len(group.peers) != group.size - 1:
        message = f"{_label(group)} has {len(group.peers) + 1} of {group.size} replicas (leader {group.leader})"
        yield _error(f"{group.kind}_replica_count", group.subject, message)
    yield from _peer_problems(group, group.quorum, answered, limits)
    if group.moving:
        message = f"{_label(group)} is being moved or reconfigured (leader {group.leader})"
        yield _error(f"{group.kind}_moving", group.subject, message)


def _in_step(group: RaftGroup, answered: frozenset[str], limits: Limits) -> frozenset[str]:
    """Return the members that can be counted on: the leaders, and who answered and is in step by the sole leader's view."""
    return frozenset(group.leaders) | (answered & {peer.name for peer in group.peers if limits.in_step(peer)})


def _peer_problems(group: RaftGroup, quorum: int, answered: frozenset[str], limits: Limits) -> Iterable[Problem]:
    in_step = _in_step(group, answered, limits)
    if len(in_step) < quorum:
        message = f"{_label(group)} has {len(in_step)} of {group.size} members in step ({_names(in_step)}), {quorum} are needed"
        yield _error(f"{group.kind}_no_quorum", group.subject, message)
    for peer in group.peers:
        if peer.name not in in_step:
            state = _state(peer, answered, limits)
            message = f"{_label(group)}: replica {peer.name} {state} (leader {group.leader})"
            yield _error(f"{group.kind}_replica_behind", group.subject, message, peer.name)


def _stop_group(
    group: RaftGroup, quorum: int, stopping: frozenset[str], answered: frozenset[str], policy: StopPolicy
) -> Iterable[Problem]:
    leaving = sorted(stopping.intersection(group.members))
    if not leaving:
        return
    if group.size == 1:
        severity = ERROR if policy.r1 == "fail" and not group.ephemeral else WARNING
        message = f"{_label(group)} has a single replica and is away while {_names(leaving)} is stopped"
        yield Problem("stop_r1", severity, group.subject, message, tuple(leaving))
        return
    if group.leader is None:
        message = f"{_label(group)} has no single leader, so nobody knows whether {_names(leaving)} can be spared"
        yield _error("stop_breaks_quorum", group.subject, message)
        return
    in_step = _in_step(group, answered, policy.limits)
    left = in_step - stopping
    if len(left) < quorum:
        away = sorted(frozenset(group.members) - in_step)
        also = f", {_names(away)} out of step" if away else ""
        yield _error(
            "stop_breaks_quorum",
            group.subject,
            f"stopping {_names(leaving)} would leave {_label(group)} with {len(left)} of {group.size} members in step "
            f"({_names(left)}{also}), {quorum} are needed",
        )


def _label(group: RaftGroup) -> str:
    if group.kind == META:
        return "the meta group"
    raft = f", {group.raft_name}" if group.raft_name else ""
    return f"{group.subject} (R{group.size}{raft})"


def _state(peer: Peer, answered: frozenset[str], limits: Limits) -> str:
    if peer.offline:
        return "is offline"
    if peer.active > limits.max_active:
        silence = f"is silent for {peer.active:.0f} s" if peer.active < 1e8 else "was not heard of yet"
        return f"{silence}, although it answers requests" if peer.name in answered else silence
    if peer.name not in answered:
        return "did not answer"
    return f"is {peer.lag} entries behind" if peer.lag > limits.max_lag else "is not current"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
