# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which servers should lead a Raft group, and which servers can.

Pure functions of a RaftGroup, as in `health`; no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..health.rules import Limits
from ..nats.model import NEVER_HEARD, MetaGroup, Peer, RaftGroup, Server
from ..versions import reported_version

#: A leader hands over only to a member with which it had contact within three heartbeats of one second (raft.go
#: StepDown).
HANDOVER = Limits(max_active=3.0)

#: From this version a step-down request may name the next leader (jetstream_api.go).
PREFERRED_SINCE = (2, 11)

#: The possible actions for a group.
FITS, SINGLE, REFUSED, STEP_DOWN = "fits", "single", "refused", "step_down"


@dataclass(frozen=True)
class LeaderConstraints:
    """Which servers may lead. Names are exact; tags are compared in lower case, as servers do, and all must match.
    `avoid`: servers to choose only if there is no other. `force`: the current leader must change."""

    preferred: str | None = None
    away_from: frozenset[str] = frozenset()
    cluster: str | None = None
    tags: tuple[str, ...] = ()
    force: bool = False
    avoid: frozenset[str] = frozenset()

    def against(self, leader: str | None) -> LeaderConstraints:
        """Return the constraints for a group with this leader: `force` excludes it."""
        if not self.force or leader is None:
            return self
        return replace(self, away_from=self.away_from | {leader}, force=False)

    def misfit(self, name: str, servers: Mapping[str, Server]) -> str | None:
        """Return why this server may not lead, or None if it may. `servers`: the servers that responded, by name."""
        if name in self.away_from:
            return "is excluded"
        if self.preferred not in (None, name):
            return f"is not {self.preferred}"
        if self.cluster is None and not self.tags:
            return None
        server = servers.get(name)
        if server is None:
            return "did not answer, so its cluster and tags are unknown"
        if self.cluster not in (None, server.cluster):
            return f"is in cluster {server.cluster}"
        absent = sorted(set(_lower(self.tags)) - set(_lower(server.tags)))
        return f"has no tag {', '.join(absent)}" if absent else None


@dataclass(frozen=True)
class LeadershipPlan:
    """The plan for one group. `before`: its leader at planning time. `candidates`: the members that may and can lead
    next. `target`: the requested successor, None if the server chooses. `reason`: why the step-down is refused or
    skipped; `transient`: whether this may change within moments."""

    action: str
    constraints: LeaderConstraints
    group: RaftGroup
    candidates: tuple[str, ...] = ()
    target: str | None = None
    reason: str = ""
    transient: bool = False

    @property
    def before(self) -> str | None:
        return self.group.leader

    @property
    def expected(self) -> str | None:
        """Return the next leader, or None if the server chooses it."""
        if self.action != STEP_DOWN:
            return self.before
        return self.target or (self.candidates[0] if len(self.candidates) == 1 else None)


def unknown_names(constraints: LeaderConstraints, servers: Iterable[Server], members: Iterable[str]) -> list[str]:
    """Return a sentence for each name, cluster and tag of the constraints that matches nothing.

    `members`: names of servers that did not respond but are members of some group.
    """
    there = list(servers)
    names = {server.name for server in there} | set(members)
    clusters = {server.cluster for server in there if server.cluster}
    tags = {tag for server in there for tag in _lower(server.tags)}
    named = [("away_from", name) for name in sorted(constraints.away_from)]
    if constraints.preferred is not None:
        named.insert(0, ("preferred", constraints.preferred))
    problems = [
        f"{option}: there is no server named {name} (there are: {_names(names)})"
        for option, name in named
        if name not in names
    ]
    if constraints.cluster is not None and constraints.cluster not in clusters:
        problems.append(f"placement: there is no cluster named {constraints.cluster} (there are: {_names(clusters)})")
    for tag in sorted(set(_lower(constraints.tags)) - tags):
        problems.append(f"placement: no server has the tag {tag} (there are: {_names(tags)})")
    return problems


def plan_group(group: RaftGroup, constraints: LeaderConstraints, servers: Mapping[str, Server]) -> LeadershipPlan:
    """Return the plan for making a suitable server lead. `servers`: the servers that responded, by name.

    A group whose leader is unknown is refused. A group without a member that may and can lead is refused, too: a
    step-down would leave the group leaderless or with an unsuitable leader. A member that did not respond cannot lead,
    although the leader still counts it as available for some seconds after a crash.
    """
    leader = group.leader
    constraints = constraints.against(leader)
    if leader is None:
        return _refused(group, constraints, _no_leader(group), transient=True)
    misfit = constraints.misfit(leader, servers)
    if misfit is None:
        return LeadershipPlan(FITS, constraints, group)
    if group.size == 1 and not group.peers:
        return LeadershipPlan(SINGLE, constraints, group, reason=f"a single replica, on {leader}, which {misfit}")
    if constraints.preferred is not None and constraints.preferred not in group.members:
        text = f"{constraints.preferred} is not one of its members ({_names(group.members)})"
        return _refused(group, constraints, text)
    allowed = [peer for peer in group.peers if constraints.misfit(peer.name, servers) is None]
    if not allowed:
        reasons = [(leader, misfit), *((peer.name, constraints.misfit(peer.name, servers)) for peer in group.peers)]
        text = "none of its members may lead: " + "; ".join(f"{name} {why}" for name, why in sorted(reasons))
        return _refused(group, constraints, text)
    in_step = {peer.name for peer in group.peers if peer.name in servers and HANDOVER.in_step(peer)}
    ready = tuple(sorted(peer.name for peer in allowed if peer.name in in_step))
    if not ready:
        states = "; ".join(_state(peer, servers) for peer in allowed)
        return _refused(
            group, constraints, f"no suitable member is in step with the leader {leader}: {states}", transient=True
        )
    if len(in_step) + 1 < group.quorum:
        text = f"only {len(in_step) + 1} of its {group.size} members are in step, but an election needs {group.quorum}"
        return _refused(group, constraints, text, transient=True)
    return LeadershipPlan(STEP_DOWN, constraints, group, candidates=ready)


def supports_placement(servers: Iterable[Server]) -> frozenset[str]:
    """Return the names of the servers that, as leaders, can transfer leadership to a server named in the request (2.11
    and later)."""
    return frozenset(server.name for server in servers if reported_version(server.version) >= PREFERRED_SINCE)


def with_targets(
    plans: Sequence[LeadershipPlan], supporting: Container[str | None], leaders: Iterable[str | None]
) -> list[LeadershipPlan]:
    """Return the plans, with a target if the leader is one of `supporting`. To spread the leadership, each target is
    the candidate that leads the fewest groups, preferably one outside `avoid`. `leaders`: the leaders of all known
    groups."""
    leading = Counter(leaders)
    result = []
    for plan in plans:
        target = None
        if plan.action == STEP_DOWN and plan.before in supporting:
            avoid = plan.constraints.avoid
            target = min(plan.candidates, key=lambda name: (name in avoid, leading[name], name))
            leading.update([target])
            leading.subtract([plan.before])
        result.append(replace(plan, target=target))
    return result


def leader_by_majority(meta: MetaGroup) -> RaftGroup:
    """Return the meta group; it has a leader only if a majority of the members report the same leader."""
    group = meta.group
    if group.leader is None:
        return group
    names = sum(1 for view in meta.views.values() if view == group.leader)
    return group if names >= meta.quorum else replace(group, leaders=(), peers=())


def _refused(group: RaftGroup, constraints: LeaderConstraints, reason: str, transient: bool = False) -> LeadershipPlan:
    return LeadershipPlan(REFUSED, constraints, group, reason=reason, transient=transient)


def _no_leader(group: RaftGroup) -> str:
    if len(group.leaders) > 1:
        return f"more than one server claims to lead: {_names(group.leaders)}"
    return (
        f"no leader; {group.quorum} of its {group.size} members must be up and agree (known: {_names(group.members)})"
    )


def _state(peer: Peer, servers: Mapping[str, Server]) -> str:
    if peer.offline or peer.name not in servers:
        return f"{peer.name} is offline" if peer.offline else f"{peer.name} did not answer"
    seen = f"last seen {peer.active:.1f} s ago" if peer.active < NEVER_HEARD else "not seen yet"
    return f"{peer.name} is not current ({peer.lag} entries behind, {seen})"


def _lower(tags: Iterable[str]) -> list[str]:
    return [tag.strip().lower() for tag in tags]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
