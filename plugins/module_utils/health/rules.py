# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules for a healthy cluster and for stopping servers.

Pure functions of a Cluster: the same code evaluates a live cluster, a snapshot and a simulation. The rules follow
the behaviour of nats-server, not its /healthz, which returns 200 for a stream that has lost its quorum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..nats.model import (
    CONSUMER,
    META,
    NEVER_HEARD,
    STREAM,
    AssetError,
    Cluster,
    Consumer,
    MetaGroup,
    Peer,
    RaftGroup,
    Server,
    Stream,
)
from ..nats.server_versions import RESTORED_UNHEALTHY
from ..problem import ERROR, WARNING, Problem
from ..thresholds import MAX_ACTIVE, MAX_LAG, MAX_META_PENDING
from ..units import human_seconds

#: Begins the reason for a missing reply that the server denied to this user; the subject follows.
DENIED = "permission denied for "
#: Seconds after its start in which a server may still be creating assets that the meta group's log assigns to it.
SETTLED_AFTER = 30.0
#: HEALTHZ errors for a replica that is catching up (jetstream_cluster.go isStreamHealthy, isConsumerHealthy); 2.9
#: reports no reason. HEALTHZ also reports these errors for a restored stream (in versions with that defect) and for a
#: stream whose goroutine has ended.
_NOT_MONITORED = "monitor goroutine not running"
_PASSING_FAULTS = frozenset({"stream catching up", "group node unhealthy", "stream missing", "is not current"})


@dataclass(frozen=True)
class Limits:
    """When a replica counts as in step: at most `max_lag` Raft entries behind, last contact within `max_active`
    seconds."""

    max_lag: int = MAX_LAG
    max_active: float = MAX_ACTIVE

    def in_step(self, peer: Peer) -> bool:
        """Return whether the replica counts as in step.

        Under load, a healthy replica is always a few entries behind and therefore reported as not current (raft.go
        Peers compares with the leader's applied index), so a replica with a bounded lag and recent contact counts as in
        step. If a leader has had no contact with a replica since its election, it reports the replica as active 0 s
        ago, and not current.
        """
        if peer.offline or peer.active > self.max_active or peer.lag > self.max_lag:
            return False
        return peer.current or (peer.lag > 0 and peer.active > 0)


@dataclass(frozen=True)
class Expectations:
    """The expected cluster. `servers`, `jetstream_servers`: their names, None for all servers that respond. `cluster`:
    evaluate only the servers and assets of this cluster. `clusters`: the cluster of each server, by its name. `assets`:
    whether all streams and consumers of the servers were read."""

    servers: frozenset[str] | None = None
    jetstream_servers: frozenset[str] | None = None
    cluster: str | None = None
    limits: Limits = Limits()
    assets: bool = True
    clusters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StopPolicy:
    """The rules for a stop. `r1`: whether it is an error or accepted that assets with a single replica become
    unavailable during the stop."""

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
        *_asset_faults(cluster, mine, expected.assets),
        *_restored_streams(mine),
        *_too_old_servers(mine),
        *(problem for group in mine.groups() for problem in _group_problems(group, cluster.names, expected.limits)),
    ]


def group_problems(
    group: RaftGroup, answered: frozenset[str] | None = None, limits: Limits = Limits()
) -> list[Problem]:
    """Return the problems of one group. `answered`: the servers that responded; None to trust the leader's report on
    them."""
    return list(_group_problems(group, frozenset(group.members) if answered is None else answered, limits))


def members_in_step(group: RaftGroup, answered: frozenset[str], limits: Limits) -> frozenset[str]:
    """Return the reliable members: the leaders, and members that responded and that the only leader reports as in step."""
    return frozenset(group.leaders) | (answered & {peer.name for peer in group.peers if limits.in_step(peer)})


def stop_problems(cluster: Cluster, server_names: Iterable[str], policy: StopPolicy) -> list[Problem]:
    """Return every group that would lose its quorum if these servers stopped now.

    A replica counts if its leader reports it as in step, its server responded, and that server reports no fault of the
    replica. The report of the leader is not enough, because the leader still counts the replica for some seconds after
    a crash. A group whose state is unknown is returned, too. Groups without a member on these servers are not
    evaluated."""
    stopping = frozenset(server_names)
    problems = [
        _error(
            "stop_unknown_server",
            name,
            f"{name} did not answer and is not a member of any group: the effect of stopping it is unknown",
            name,
        )
        for name in sorted(stopping - cluster.names - _all_members(cluster))
    ]
    if cluster.meta is not None:
        problems += _stop_group(cluster.meta.group, cluster.meta.quorum, stopping, cluster.names, policy)
    faults = _reported_faults(cluster)
    in_memory = {stream.group.subject: stream.messages for stream in cluster.streams if stream.storage == "memory"}
    for group in cluster.groups():
        sound = cluster.names - faults[group.subject].keys() if group.subject in faults else cluster.names
        problems += _stop_group(group, group.quorum, stopping, sound, policy, in_memory.get(group.subject, 0))
    return problems


def stoppable_servers(cluster: Cluster, policy: StopPolicy) -> dict[str, bool]:
    """Return, for each server that responded, whether it could stop now without a group losing its quorum, according to
    `stop_problems`.

    Each server is evaluated only with the streams that have a member on it, so evaluating all servers reads each
    replica once."""
    there: dict[str, list[Stream]] = {}
    for stream in cluster.streams:
        for name in {name for group in stream.groups for name in group.members}:
            there.setdefault(name, []).append(stream)
    return {
        name: not any(
            problem.severity == ERROR
            for problem in stop_problems(replace(cluster, streams=tuple(there.get(name, ()))), [name], policy)
        )
        for name in sorted(cluster.names)
    }


def entries_behind(cluster: Cluster) -> tuple[int, int]:
    """Return the total backlog of the replicas on responding servers, in Raft entries and approximately in bytes.

    An entry of a stream is counted as a message of its mean size, and a replica's backlog as no larger than the stream.
    """
    entries = sum(peer.lag for group in cluster.groups() for peer in group.peers if peer.name in cluster.names)
    size = sum(
        min(peer.lag * stream.size // stream.messages, stream.size)
        for stream in cluster.streams
        for peer in stream.group.peers
        if stream.messages and peer.name in cluster.names
    )
    return entries, size


def lasting_asset_faults(cluster: Cluster) -> list[str]:
    """Return the streams and consumers ("consumer APP/ORDERS/worker") with a fault that a restart neither causes nor
    fixes.

    A server has reported such a fault for long without catching up, or the asset needs a newer version than a member
    runs."""
    settled = {server.name for server in cluster.servers if server.uptime >= SETTLED_AFTER}
    faults = {
        subject
        for subject, reports in _reported_faults(cluster).items()
        if reports.keys() <= settled and not any(reason in _PASSING_FAULTS for reason in reports.values())
    }
    return sorted(faults.union(problem.subject for problem in _too_old_servers(cluster)))


def duplicate_problems(cluster: Cluster) -> list[Problem]:
    """Return each name that several servers share, with these servers, the last started one first."""
    by_name: dict[str, list[Server]] = {}
    for server in sorted(cluster.servers, key=lambda server: (server.uptime, server.id)):
        by_name.setdefault(server.name, []).append(server)
    found = []
    for name, servers in sorted(by_name.items()):
        if len(servers) > 1:
            each = [f"{one.host} up for {human_seconds(one.uptime)} (id {one.id[:8]}…)" for one in servers]
            found.append(
                _error("server_duplicate", name, f"{len(servers)} servers are named {name}: {', '.join(each)}")
            )
    return found


def split_tolerated(problems: Sequence[Problem], tolerate: Iterable[str]) -> tuple[list[Problem], list[Problem]]:
    """Return (remaining, tolerated). A problem is tolerated if its code is tolerated, if all its faulty servers are, or
    if it is the state of a tolerated stream or consumer ("stream APP/ORDERS"). A stop that would break a group is
    tolerated only by its code."""
    accepted = frozenset(tolerate)
    remaining: list[Problem] = []
    tolerated: list[Problem] = []
    for problem in problems:
        harmless = (
            problem.code in accepted
            or (problem.servers and accepted.issuperset(problem.servers))
            or (problem.subject in accepted and problem.code.startswith((f"{STREAM}_", f"{CONSUMER}_")))
        )
        (tolerated if harmless else remaining).append(problem)
    return remaining, tolerated


def election_problems(before: Cluster, after: Cluster) -> list[Problem]:
    """Return the groups that have elected a leader since an earlier sample and were therefore leaderless for some time.
    From 2.12 on, leaders report the time of their election, so groups that re-elected the same server are included."""
    led = {group.subject: group for group in _all_groups(before)}
    found = []
    for group in _all_groups(after):
        old = led.get(group.subject)
        if not old or not old.leader or not group.leader:
            continue
        if group.leader != old.leader:
            message = (
                f"{_label(group)} has changed its leader since the last sample: {group.leader}, previously {old.leader}"
            )
        elif old.leader_since and group.leader_since and group.leader_since != old.leader_since:
            message = f"{_label(group)} has elected {group.leader} again since the last sample"
        else:
            continue
        progress = [group.leader, group.leader_since]
        found.append(_error(f"{group.kind}_leader_changed", group.subject, message, progress=progress))
    return found


def difference_problems(before: Cluster, after: Cluster, limits: Limits) -> list[Problem]:
    """Return the replicas that lack messages which their leader had some seconds ago, and that have received no
    messages since, although the leader reports them as in step. Servers of 2.10 continue like this after a failed
    write."""
    return [
        _error("stream_replica_differs", late.group.subject, message, name, progress=[late.stored[name]])
        for early, late in _in_both(before, after)
        for name, message in different_replicas(early, late, limits)
    ]


def different_replicas(early: Stream, late: Stream, limits: Limits) -> list[tuple[str, str]]:
    """Return the servers whose replica of a stream lacks messages, each with the reason. Such a replica has made no
    progress between two samples some seconds apart, although the stream's leader reports it as in step."""
    group, leader = late.group, late.group.leader
    if leader is None or early.group.leader != leader or leader not in early.stored or leader not in late.stored:
        return []
    counted = {peer.name for peer in early.group.peers if limits.in_step(peer)}
    found = []
    for peer in group.peers:
        old, now = early.stored.get(peer.name), late.stored.get(peer.name)
        if peer.name not in counted or not limits.in_step(peer) or now is None or old != now:
            continue
        if now.last_seq < early.stored[leader].last_seq:
            message = (
                f"{_label(group)}: {peer.name} is stuck at message {now.last_seq} while {leader} is at "
                f"{late.stored[leader].last_seq}, and {leader} counts it as current"
            )
            found.append((peer.name, message))
    return found


def _in_both(before: Cluster, after: Cluster) -> Iterable[tuple[Stream, Stream]]:
    known = {(stream.account, stream.name): stream for stream in before.streams}
    for late in after.streams:
        early = known.get((late.account, late.name))
        if early is not None:
            yield early, late


def _error(
    code: str, subject: str, message: str, *servers: str, progress: Iterable[object] = (), absent: Iterable[str] = ()
) -> Problem:
    return Problem(code, ERROR, subject, message, tuple(sorted(servers)), tuple(progress), tuple(sorted(absent)))


def _all_members(cluster: Cluster) -> frozenset[str]:
    return frozenset(name for group in _all_groups(cluster) for name in group.members)


def _all_groups(cluster: Cluster) -> list[RaftGroup]:
    return [*([cluster.meta.group] if cluster.meta else []), *cluster.groups()]


def _inventory_problems(everything: Cluster, mine: Cluster, expected: Expectations) -> Iterable[Problem]:
    yield from duplicate_problems(everything)
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
        elif name in everything.apart:
            message = f"{name} runs, but is isolated from the other servers: {everything.apart[name]}"
            yield _error("server_isolated", name, message, name)
        else:
            yield _error("server_missing", name, f"expected server {name} did not answer", name)
    for name in sorted(mine.names - expected.servers):
        yield _error("server_unexpected", name, f"{name} answered, but is not one of the expected servers", name)


def _gateway_problems(everything: Cluster, mine: Cluster, expected: Expectations) -> Iterable[Problem]:
    """Yield the gateway problems. Each server keeps an outbound gateway connection to every other cluster that has a
    responding server (docs: gateways), but lists only existing connections (events.go sendStatsz). Servers behind
    leafnodes also respond and have no gateways, so only the expected servers are evaluated or, if none are specified,
    those that have a gateway connection."""
    linked = [
        server
        for server in everything.servers
        if server.name in expected.clusters
        or (
            (server.reaches or server.inbound_gateways)
            and (expected.servers is None or server.name in expected.servers)
        )
    ]
    clusters = {server.cluster for server in linked}
    for server in linked:
        if server.name not in mine.names:
            continue
        for cluster in sorted(clusters - {server.cluster, *server.reaches}):
            message = (
                f"{server.name} of {server.cluster} has no gateway connection to {cluster}, which receives nothing "
                "from it"
            )
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
    for members in meta.foreign:
        foreign_servers = sorted(members & mine.names)
        if foreign_servers:
            message = (
                f"servers of another meta group answer: {_names(foreign_servers)} (its members: {_names(members)})"
            )
            yield _error("meta_group_foreign", "meta group", message, *foreign_servers)
    outsiders = sorted(meta.outsiders & mine.names)
    if outsiders:
        message = (
            f"servers that answer are not members of the meta group in their own stores: {_names(outsiders)}; its "
            f"members are {_members(meta.group)}"
        )
        yield _error("meta_outsider", "meta group", message, *outsiders)
    if not claims:
        answered = sorted(meta.views.keys() - meta.outsiders)
        yield _error(
            "meta_no_leader",
            "meta group",
            f"no meta leader: {meta.quorum} of {meta.group.size} members must be up, "
            f"{len(answered)} answered ({_names(answered)})",
            progress=answered,
            absent=frozenset(meta.group.members) - everything.names,
        )
        return
    if leaderless:
        message = f"no meta leader on {_names(leaderless)}; the other servers name {_names(claims)}"
        yield _error("meta_leader_disputed", "meta group", message, *leaderless, progress=claims)
    if len(claims) > 1:
        message = f"the servers name different meta leaders: {_names(claims)}"
        yield _error("meta_leader_disputed", "meta group", message, progress=claims)
    elif meta.group.leader is None:
        message = f"{claims[0]} is named as the meta leader, but does not lead (or did not answer)"
        yield _error("meta_no_leader", "meta group", message)
    if meta.group.leader is None:
        return
    yield from _meta_membership(meta, expected)
    yield from _peer_problems(meta.group, meta.quorum, everything.names, expected.limits)
    if meta.pending > MAX_META_PENDING:
        message = f"the meta leader {meta.group.leader} has {meta.pending} pending API requests"
        yield _error("meta_pending", "meta group", message, progress=[meta.pending])


def _meta_membership(meta: MetaGroup, expected: Expectations) -> Iterable[Problem]:
    wanted = expected.jetstream_servers
    if wanted is None:
        return
    absent = sorted(wanted - meta.known)
    for name in absent:
        yield _error(
            "meta_peer_missing",
            "meta group",
            f"{name} is not a member of the meta group according to its leader",
            name,
            absent=frozenset([name]),
        )
    if expected.cluster is not None:
        return
    extra = sorted(meta.known - wanted)
    for name in extra:
        message = f"{name} is a member of the meta group, but not one of the expected JetStream servers"
        yield _error("meta_peer_unexpected", "meta group", message, name)
    if meta.miscounted or meta.size != len(wanted) + len(extra) - len(absent):
        message = f"the meta group has {meta.group.size} members, {len(wanted)} are expected"
        yield _error("meta_size", "meta group", message, progress=[meta.group.size])


def _server_problems(mine: Cluster, expected: Expectations) -> Iterable[Problem]:
    wanted = expected.jetstream_servers or frozenset()
    for server in mine.servers:
        if server.name in wanted and not server.jetstream:
            yield _error("jetstream_disabled", server.name, f"JetStream is not running on {server.name}", server.name)
        if server.unreadable.startswith("STATSZ"):
            message = f"{server.name} {_silence(server, 'STATSZ')}"
            yield _error("server_silent", server.name, message, server.name)
        if server.health is None:
            yield _error("server_silent", server.name, f"{server.name} {_silence(server, 'HEALTHZ')}", server.name)
        elif not server.health.ok_but_for_assets:
            reasons = "; ".join(server.health.server_errors) or "no reason given"
            message = f"{server.name} reports {server.health.status}: {reasons}"
            yield _error(
                "server_unhealthy", server.name, message, server.name, progress=[server.health.status, reasons]
            )
        if server.jetstream and server.summary is None:
            message = f"{server.name} {_silence(server, 'JSZ')}: its streams and consumers are unknown"
            yield _error("server_silent", server.name, message, server.name)


def _silence(server: Server, endpoint: str) -> str:
    if endpoint in server.denied:
        return f"did not answer {endpoint}: {DENIED}$SYS.REQ.SERVER.*.{endpoint}"
    if endpoint not in server.unreadable:
        return f"did not answer {endpoint}"
    return f"sent a reply to {endpoint} that cannot be parsed ({server.unreadable})"


def _reported_faults(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return stream or consumer → server → the fault of its replica in that server's HEALTHZ, except known defects."""
    faults: dict[str, dict[str, str]] = {}
    for server in cluster.servers:
        for error in server.health.asset_errors if server.health else ():
            if not _only_restored(server, error):
                faults.setdefault(error.subject, {})[server.name] = error.reason
    return faults


def _only_restored(server: Server, error: AssetError) -> bool:
    """Return whether this is the error that a server with that defect reports for every restored stream; the report of
    the stream's leader on the group still counts."""
    return error.reason == _NOT_MONITORED and RESTORED_UNHEALTHY.affects(server.version)


def _restored_streams(mine: Cluster) -> Iterable[Problem]:
    """Yield the streams that a server reports as unhealthy only because they were restored (see `_only_restored`)."""
    for server in mine.servers:
        for error in server.health.asset_errors if server.health else ():
            if _only_restored(server, error):
                message = (
                    f"{error.subject}: {server.name} has reported it unhealthy since its restore, and will until the "
                    "server restarts"
                )
                yield Problem("stream_restored", WARNING, error.subject, message, (server.name,))


def _too_old_servers(mine: Cluster) -> Iterable[Problem]:
    """Yield the streams and consumers with a member whose version lacks their API level (ADR-44): a server before
    2.11.9 serves them without the unsupported parts, such as the values of counters; later versions put them offline.
    """
    levels = {server.name: (server.summary.api_level, server.version) for server in mine.servers if server.summary}
    assets: list[Stream | Consumer] = []
    for stream in mine.streams:
        assets += [stream, *stream.consumers]
    for asset in assets:
        for name in asset.group.hosts if asset.api_level else ():
            level, version = levels.get(name, (asset.api_level, ""))
            if level < asset.api_level:
                kind, subject = asset.group.kind, asset.group.subject
                message = f"{subject} needs API level {asset.api_level}, but {name} ({version}) has level {level}"
                yield _error(f"{kind}_api_level", subject, message, name, progress=[level])


def _asset_faults(everything: Cluster, mine: Cluster, assets: bool) -> Iterable[Problem]:
    """Yield the faults that servers report for individual streams and consumers.

    HEALTHZ compares the server's assignments in the meta group's log with its assets. A consumer that is in the log but
    on no server (nats-server#8123) makes HEALTHZ fail on every member forever, although no member lacks data: the fault
    is the consumer's. A stop cannot harm such a consumer, so the problem is a warning once every server has had time to
    create its assignments."""
    servers = {server.name: server for server in mine.servers}
    held = {group.subject for group in everything.groups()}
    for subject, reports in sorted(_reported_faults(mine).items()):
        kind, names = subject.split(" ", 1)[0], sorted(reports)
        reasons = "; ".join(sorted(set(reports.values())))
        settled = all(servers[name].uptime >= SETTLED_AFTER and servers[name].summary for name in names)
        if assets and settled and subject not in held and not _PASSING_FAULTS.intersection(reports.values()):
            message = f"{subject} is in the meta group's log, but not on any server: {_names(names)} report {reasons!r}"
            yield Problem(f"{kind}_ghost", WARNING, subject, message, tuple(names))
        else:
            message = f"{subject}: {_names(names)} report(s) an unhealthy replica: {reasons}"
            yield _error(f"{kind}_unhealthy", subject, message, *names, progress=[reasons], absent=names)


def _group_problems(group: RaftGroup, answered: frozenset[str], limits: Limits) -> Iterable[Problem]:
    if group.unreported:
        message = f"{group.subject} has no leader: its replicas are only on {_names(group.members)}"
        yield _error(
            f"{group.kind}_no_leader",
            group.subject,
            message,
            *group.members,
            absent=frozenset(group.members) - answered,
        )
        return
    if not group.leaders:
        yield _error(
            f"{group.kind}_no_leader",
            group.subject,
            f"{_label(group)} has no leader: {group.quorum} of {group.size} members must be up, "
            f"{len(group.hosts)} answered ({_names(group.hosts)}); members: {_members(group)}",
            progress=sorted(group.hosts),
            absent=frozenset(group.members) - answered,
        )
        return
    if group.leader is None:
        message = f"{_label(group)} is led by more than one server: {_names(group.leaders)}"
        yield _error(f"{group.kind}_leader_disputed", group.subject, message, progress=sorted(group.leaders))
        return
    if len(group.peers) != group.size - 1:
        message = f"{_label(group)} has {len(group.peers) + 1} of {group.size} replicas (leader {group.leader})"
        yield _error(f"{group.kind}_replica_count", group.subject, message, progress=[len(group.peers)])
    yield from _peer_problems(group, group.quorum, answered, limits)
    if group.moving:
        message = f"{_label(group)} is being moved or reconfigured (leader {group.leader})"
        yield _error(f"{group.kind}_moving", group.subject, message)


def _peer_problems(group: RaftGroup, quorum: int, answered: frozenset[str], limits: Limits) -> Iterable[Problem]:
    in_step = members_in_step(group, answered, limits)
    if len(in_step) < quorum:
        message = f"{_label(group)} has {len(in_step)} of {group.size} members in step ({_names(in_step)}), {quorum} are needed"
        absent = frozenset(group.members) - in_step
        yield _error(f"{group.kind}_no_quorum", group.subject, message, progress=sorted(in_step), absent=absent)
    for peer in group.peers:
        if peer.name not in in_step:
            state, progress = _state(peer, answered, limits)
            replica = f"an unknown server (id {peer.id})" if peer.name in group.nameless else peer.name
            message = f"{_label(group)}: replica {replica} {state} (leader {group.leader})"
            code = f"{group.kind}_replica_behind"
            yield _error(code, group.subject, message, peer.name, progress=progress, absent=[peer.name])


def _stop_group(
    group: RaftGroup,
    quorum: int,
    stopping: frozenset[str],
    answered: frozenset[str],
    policy: StopPolicy,
    in_memory: int = 0,
) -> Iterable[Problem]:
    """Yield the effects of the stop on a group. `in_memory`: messages that exist only in servers' memory."""
    leaving = sorted(stopping.intersection(group.members))
    if not leaving or group.unreported:
        return
    if group.size == 1:
        severity = ERROR if policy.r1 == "fail" and not group.ephemeral else WARNING
        message = f"{_label(group)} has a single replica and is unavailable while {_names(leaving)} is stopped"
        if in_memory:
            message = (
                f"{_label(group)} exists only in the memory of {_names(leaving)}: its {in_memory} message(s) are lost "
                "when it stops"
            )
        yield Problem("stop_r1", severity, group.subject, message, tuple(leaving))
        return
    if group.leader is None:
        message = f"{_label(group)} has no single leader, so it is unknown whether {_names(leaving)} can be stopped"
        absent = frozenset(group.members) - answered
        yield _error("stop_breaks_quorum", group.subject, message, absent=absent)
        return
    in_step = members_in_step(group, answered, policy.limits)
    left = in_step - stopping
    if len(left) < quorum:
        away = sorted(frozenset(group.members) - in_step)
        also = f", {_names(away)} out of step" if away else ""
        yield _error(
            "stop_breaks_quorum",
            group.subject,
            f"stopping {_names(leaving)} would leave {_label(group)} with {len(left)} of {group.size} members in step "
            f"({_names(left)}{also}), {quorum} are needed",
            absent=away,
        )


def _label(group: RaftGroup) -> str:
    if group.kind == META:
        return "the meta group"
    raft = f", {group.raft_name}" if group.raft_name else ""
    return f"{group.subject} (R{group.size}{raft})"


def _state(peer: Peer, answered: frozenset[str], limits: Limits) -> tuple[str, tuple[str, int]]:
    """Return why the replica is not in step, as text and as progress: the kind of reason, and the remaining entries.
    Entries count as progress only if the replica responds: those of an absent replica grow with new messages."""
    if peer.offline:
        return "is offline", ("offline", 0)
    if peer.active > limits.max_active:
        silence = f"has been silent for {peer.active:.0f} s" if peer.active < NEVER_HEARD else "has not been seen yet"
        answers = peer.name in answered
        return f"{silence}, although it answers requests" if answers else silence, ("silent", int(answers))
    if peer.name not in answered:
        return "did not answer", ("unanswered", 0)
    return f"is {peer.lag} entries behind" if peer.lag > limits.max_lag else "is not current", ("behind", peer.lag)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _members(group: RaftGroup) -> str:
    """Return the group's members; a member with only a known ID is shown as an unknown server."""
    return _names(f"an unknown server (id {name})" if name in group.nameless else name for name in group.members)
