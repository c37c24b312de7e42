# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which servers may take a replica of a stream, and why the others may not.

Pure rules for a Cluster, equivalent to those of the meta leader (jetstream_cluster.go selectPeerGroup), so moves that
the server would refuse or leave half done are never started. The rules are stricter than the server's in three points:
a server must respond now (the meta leader counts a crashed one for about 150 s), the replica's data must fit even if
the stream has no max_bytes, and a stream never leaves its cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..nats.model import Cluster, JetStreamSummary, Server, Stream

#: A server with this tag takes no new replicas (jetstream_cluster.go jsExcludePlacement).
DRAIN_TAG = "!jetstream"

#: From this API level (2.12) on, a placement tag `!x` excludes the servers tagged x; earlier versions require a tag
#: with exactly that name.
_LEVEL_OF_EXCLUDING_TAGS = 2


@dataclass(frozen=True)
class ReplicaRequirements:
    """The requirements of a stream's replica on its server. `size` and `max_bytes` are bytes, `ha_assets` is the number
    of replicated Raft groups that the server gets: that of the stream and those of its consumers."""

    subject: str
    cluster: str
    replicas: int
    tags: tuple[str, ...] = ()
    storage: str = "file"
    size: int = 0
    max_bytes: int = 0
    ha_assets: int = 0

    @property
    def bytes(self) -> int:
        """Return the bytes that must be free."""
        return max(self.size, self.max_bytes)


@dataclass(frozen=True)
class PlacementResult:
    """`candidates`: servers that may take a replica, in the meta leader's order of preference. `refused`: server →
    reason, for every other server that is not a member yet."""

    candidates: tuple[str, ...]
    refused: Mapping[str, str]

    def reasons(self) -> str:
        """Return the refusals as text, one clause for each server."""
        return (
            "; ".join(f"{name} {reason}" for name, reason in sorted(self.refused.items())) or "there is no other server"
        )


def server_zones(servers: Iterable[Server], prefix: str) -> dict[str, str]:
    """Return server → zone from the servers' tags; nats-server may convert tags to lower case."""
    found = {}
    for server in servers:
        zones = sorted(tag[len(prefix) :] for tag in server.tags if tag.lower().startswith(prefix.lower()))
        if zones:
            found[server.name] = zones[0]
    return found


def carriers(cluster: Cluster, name: str) -> list[Server]:
    """Return the servers that may have assets of the cluster with this name, except servers that are being drained."""
    return [
        server
        for server in cluster.servers
        if server.cluster == name and server.jetstream and DRAIN_TAG not in {tag.lower() for tag in server.tags}
    ]


def replica_requirements(stream: Stream) -> ReplicaRequirements:
    """Return the requirements of a replica of the stream."""
    return ReplicaRequirements(
        subject=stream.group.subject,
        cluster=stream.group.cluster,
        replicas=stream.group.size,
        tags=stream.placement_tags,
        storage=stream.storage or "file",
        size=stream.size,
        max_bytes=stream.max_bytes,
        ha_assets=sum(1 for group in stream.groups if group.size > 1),
    )


def evaluate_candidates(
    cluster: Cluster, need: ReplicaRequirements, members: Collection[str], leaving: Collection[str] = ()
) -> PlacementResult:
    """Return the servers that may take over the replicas of `leaving`. `members`: the current group, including
    `leaving`."""
    staying = [name for name in members if name not in leaving]
    policy = _policy(cluster)
    refused: dict[str, str] = {}
    fit: list[Server] = []
    if policy is None:
        return PlacementResult(
            (), dict.fromkeys(cluster.names - set(members), "cannot be chosen: no meta leader answered")
        )
    unique = _unique_prefix(policy, need)
    taken = {
        tag: server.name
        for server in cluster.servers
        if server.name in staying and (tag := _tag_with(server, unique)) is not None
    }
    for server in cluster.servers:
        if server.name in staying:
            continue
        reason = _refusal(cluster, server, need, policy, leaving) or _not_unique(server, unique, taken)
        if reason is None:
            fit.append(server)
        elif server.name not in members:
            refused[server.name] = reason
    for name in cluster.meta_members - cluster.names - set(members):
        refused[name] = "did not answer"
    return PlacementResult(tuple(server.name for server in _preferred(cluster, need, fit)), refused)


@dataclass(frozen=True)
class LastingRules:
    """The rules that do not change while replicas move. `able`: servers that meet the requirements, apart from room.
    `unique`: server → the tag that no two replicas may share, None if nothing must be unique."""

    able: frozenset[str]
    unique: Mapping[str, str] | None


def lasting_rules(cluster: Cluster, need: ReplicaRequirements) -> LastingRules:
    """Return the rules that no move affects, for planners that check the room and the other replicas themselves."""
    policy = _policy(cluster)
    if policy is None:
        return LastingRules(frozenset(), None)
    able = frozenset(item.name for item in cluster.servers if _lasting_refusal(cluster, item, need, policy, ()) is None)
    prefix = _unique_prefix(policy, need)
    if not prefix:
        return LastingRules(able, None)
    tags = {server.name: tag for server in cluster.servers if (tag := _tag_with(server, prefix)) is not None}
    return LastingRules(able & tags.keys(), tags)


def asset_limit(cluster: Cluster) -> int:
    """Return how many replicated assets a server may have according to the meta leader's max_ha_assets, 0 for no limit."""
    policy = _policy(cluster)
    return policy.max_ha_assets if policy else 0


def unique_tag(cluster: Cluster) -> str:
    """Return the meta leader's unique_tag, or "" if it has none."""
    policy = _policy(cluster)
    return policy.unique_tag if policy else ""


def simulate_move(cluster: Cluster, stream: Stream, source: str, target: str) -> Cluster:
    """Return the cluster as it will be after the target has taken over the source's replica of the stream, for planning
    the next move."""
    need = replica_requirements(stream)
    members = tuple(sorted({*stream.group.members, target} - {source}))
    return replace(
        cluster,
        servers=tuple(
            replace(server, summary=_loaded(server.summary, need))
            if server.name == target and server.summary
            else server
            for server in cluster.servers
        ),
        streams=tuple(
            replace(item, group=replace(item.group, members=members))
            if (item.account, item.name) == (stream.account, stream.name)
            else item
            for item in cluster.streams
        ),
    )


def own_tag(cluster: Cluster, target: str, candidates: Collection[str]) -> str | None:
    """Return a tag of the target that no other candidate has, or None. With this tag in the request, the meta leader
    can choose only the target. A tag that no other server has at all is preferred, then the first by name."""
    tags = {server.name: {tag.lower() for tag in server.tags} for server in cluster.servers}
    others = set().union(*(tags.get(name, set()) for name in candidates if name != target))
    everyone_else = set().union(*(found for name, found in tags.items() if name != target))
    own = sorted(tag for tag in tags.get(target, set()) - others if not tag.startswith("!"))
    return min(own, key=lambda tag: (tag in everyone_else, tag)) if own else None


def _policy(cluster: Cluster) -> JetStreamSummary | None:
    """Return the JetStream summary of the meta leader, which uses its own unique_tag and max_ha_assets (selectPeerGroup
    getOpts)."""
    leader = cluster.meta.group.leader if cluster.meta else None
    return next((server.summary for server in cluster.servers if server.name == leader), None)


def _refusal(
    cluster: Cluster, server: Server, need: ReplicaRequirements, policy: JetStreamSummary, leaving: Collection[str]
) -> str | None:
    """Return why this server may not take the replica, apart from unique_tag, or None if it may."""
    lasting = _lasting_refusal(cluster, server, need, policy, leaving)
    if lasting is not None or server.summary is None:
        return lasting
    free = free_bytes(server.summary, need.storage)
    if need.bytes > free:
        what = "max_bytes" if need.max_bytes >= need.size else "the stream's size"
        return f"has {free} bytes of {need.storage} storage free, but {what} is {need.bytes}"
    # The meta group counts as an asset of the server but not of the limit, so the comparison is > and not >=
    # (selectPeerGroup).
    if 0 < policy.max_ha_assets < server.summary.ha_assets:
        return f"has {server.summary.ha_assets} replicated assets, the limit is {policy.max_ha_assets} (max_ha_assets)"
    return None


def _lasting_refusal(
    cluster: Cluster, server: Server, need: ReplicaRequirements, policy: JetStreamSummary, leaving: Collection[str]
) -> str | None:
    """Return the reason why this server may not take the replica, apart from free space."""
    if server.name in leaving:
        return "is the server to be emptied"
    if server.cluster != need.cluster:
        return f"is in cluster {server.cluster}, not in {need.cluster}"
    if not server.jetstream:
        return "runs without JetStream"
    if server.name not in cluster.meta_members:
        return "is not a member of the meta group"
    if server.summary is None:
        return "did not report its free storage"
    tags = {tag.lower() for tag in server.tags}
    if DRAIN_TAG in tags:
        return f"accepts no new replicas (tag {DRAIN_TAG})"
    for tag in need.tags:
        if tag.startswith("!") and policy.api_level >= _LEVEL_OF_EXCLUDING_TAGS:
            if tag[1:].lower() in tags:
                return f"has the tag {tag[1:]}, which the stream's placement excludes"
        elif tag.lower() not in tags:
            return f"does not have the tag {tag}, which the stream's placement requires"
    return None


def free_bytes(summary: JetStreamSummary, storage: str) -> int:
    """Return the bytes of this storage that are neither used nor promised to streams."""
    if storage == "memory":
        return max(0, summary.max_memory - max(summary.reserved_memory, summary.memory))
    return max(0, summary.max_storage - max(summary.reserved_storage, summary.storage))


def _loaded(summary: JetStreamSummary, need: ReplicaRequirements) -> JetStreamSummary:
    more = replace(summary, ha_assets=summary.ha_assets + need.ha_assets)
    if need.storage == "memory":
        return replace(more, memory=more.memory + need.size, reserved_memory=more.reserved_memory + need.max_bytes)
    return replace(more, storage=more.storage + need.size, reserved_storage=more.reserved_storage + need.max_bytes)


def _unique_prefix(policy: JetStreamSummary, need: ReplicaRequirements) -> str:
    """Return the prefix of the tags that must be unique among replicas, or "" if nothing must be unique.

    A stream's placement disables this rule if it names a tag with that prefix, even as an excluded tag.
    """
    prefix = policy.unique_tag
    excluding = policy.api_level >= _LEVEL_OF_EXCLUDING_TAGS
    named = [tag[1:] if excluding and tag.startswith("!") else tag for tag in need.tags]
    return "" if prefix and any(tag.startswith(prefix) for tag in named) else prefix


def _tag_with(server: Server, prefix: str) -> str | None:
    """Return the server's first tag with the prefix; nats-server ignores further tags with it."""
    if not prefix:
        return None
    return next((tag.lower() for tag in server.tags if tag.lower().startswith(prefix.lower())), None)


def _not_unique(server: Server, prefix: str, taken: Mapping[str, str]) -> str | None:
    if not prefix:
        return None
    tag = _tag_with(server, prefix)
    if tag is None:
        return f"has no tag that starts with {prefix} (unique_tag)"
    if tag in taken:
        return f"has the tag {tag}, as has {taken[tag]} (unique_tag)"
    return None


def _preferred(cluster: Cluster, need: ReplicaRequirements, servers: Sequence[Server]) -> list[Server]:
    """Return the servers in the meta leader's order of preference: most room, then fewest streams; for replicated
    streams, first the fewest replicated streams."""
    streams: dict[str, int] = {}
    replicated: dict[str, int] = {}
    for stream in cluster.streams:
        for name in stream.group.members:
            streams[name] = streams.get(name, 0) + 1
            replicated[name] = replicated.get(name, 0) + (len(stream.group.members) > 1)

    def rank(server: Server) -> tuple[int, int, int, str]:
        free = free_bytes(server.summary, need.storage) if server.summary else 0
        few = replicated.get(server.name, 0) if need.replicas > 1 else 0
        return few, -free, streams.get(server.name, 0), server.name

    return sorted(servers, key=rank)
