# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds raft-silent servers: they respond to requests and receive Raft messages, but none of their own Raft messages
reach the peers.

Some versions occasionally start in this state (`server_versions.RAFT_SILENT`), most likely on busy processors: all Raft
messages of such a server are dropped until its process ends. Such a server counts in no quorum and may report itself as
healthy; only the leaders of its groups miss it, and only a restart helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..nats.model import NEVER_HEARD, Cluster, Peer
from ..nats.server_versions import RAFT_SILENT

#: Seconds without contact with a leader after which a server that responds is raft-silent: ten missed heartbeats.
SILENT_AFTER = 10.0
#: Seconds that a server must have been up before its silence counts: it needs some time to find its routes and the
#: leader.
STARTED_FOR = 15.0
#: Seconds within which the meta leader has contact with every working member: heartbeats come every second.
HEARD_WITHIN = 2.5


@dataclass(frozen=True)
class MetaContact:
    """Whether a server has `joined` the meta group since its start; if not, whether it is `raft_silent`, with the
    evidence in `reason`."""

    joined: bool
    raft_silent: bool = False
    reason: str = ""


def raft_silent_servers(cluster: Cluster) -> list[str]:
    """Return the sorted names of the servers that respond but have had no contact with a leader for too long. The
    leader is the meta leader or, if streams and consumers were read, that of any of their groups: a single group may be
    silent. A server that was silent at its first start never became a member of the meta group; it counts if its
    version has the defect, because a server that was removed from the group reports the same state."""
    silent = set(_silent_for_leader(cluster))
    return sorted(server.name for server in cluster.servers if server.name in silent and server.uptime > STARTED_FOR)


def _silent_for_leader(cluster: Cluster) -> Iterator[str]:
    meta = cluster.meta
    if meta is not None:
        yield from (peer.name for peer in meta.group.peers if peer.active > SILENT_AFTER)
        never_added = {name for name, leader in meta.views.items() if leader == meta.group.leader} - meta.known
        yield from (
            server.name
            for server in cluster.servers
            if server.name in never_added and RAFT_SILENT.affects(server.version)
        )
    for stream in cluster.streams:
        for group in stream.groups:
            # A member that was just added has had no contact yet.
            yield from (peer.name for peer in group.peers if SILENT_AFTER < peer.active < NEVER_HEARD)


def meta_contact(cluster: Cluster, name: str, in_step: bool) -> MetaContact:
    """Return whether the meta leader has had contact with the server since its start.

    `in_step`: the server must also be current. Set it for a server that was down, because a leader counts members that
    it has just added as contacted; do not set it otherwise, because under load members are always a few entries behind.
    A server that does not respond or has no meta group has not joined, and whether it is raft-silent is unknown.
    """
    server = next((one for one in cluster.servers if one.name == name), None)
    if server is None:
        return MetaContact(False, reason=f"{name} does not answer")
    if cluster.meta is None:
        return MetaContact(False, reason=f"{name} has no meta group")
    group = cluster.meta.group
    if group.leader == name:
        seen = Peer(name, current=True)
    else:
        seen = next((peer for peer in group.peers if peer.name == name), Peer(name, active=float("inf")))
    if seen.active < min(server.uptime, HEARD_WITHIN) and (seen.current or not in_step):
        return MetaContact(True)
    leader = group.leader or "(there is none)"
    reason = f"{name} answers requests, but the meta leader {leader} has received nothing from it since its start"
    return MetaContact(False, True, reason)
