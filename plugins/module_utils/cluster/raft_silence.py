# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which servers are raft-silent: they answer requests and hear their Raft peers, and nothing that they send reaches those.

Some versions now and then start so (`server_versions.RAFT_SILENT`): what such a server says to its Raft peers is dropped until
its process ends; busy processors make that likely. It counts in no quorum and may call itself healthy; only the leaders of its
groups miss it, and nothing but a restart helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import NEVER_HEARD, Cluster, Peer

#: Seconds without a word to a leader after which a server that answers is raft-silent: ten missed heartbeats.
SILENT_AFTER = 10.0
#: Seconds that a server must have been up before its silence counts: it needs some to find its routes and the leader.
STARTED_FOR = 15.0
#: Seconds within which the meta leader has heard of every working member: heartbeats come every second.
HEARD_WITHIN = 2.5


@dataclass(frozen=True)
class MetaContact:
    """Whether a server has `joined` the meta group since it was started; if not, whether it is `raft_silent`, and why that is
    thought in `reason`."""

    joined: bool
    raft_silent: bool = False
    reason: str = ""


def raft_silent_servers(cluster: Cluster) -> list[str]:
    """Return the names of the servers that answer while a leader has not heard of them for too long, sorted: the meta leader, or
    where streams and consumers were read, that of any of their groups. One of these may be silent alone."""
    silent = set(_not_heard(cluster))
    return sorted(server.name for server in cluster.servers if server.name in silent and server.uptime > STARTED_FOR)


def _not_heard(cluster: Cluster) -> Iterator[str]:
    if cluster.meta is not None:
        yield from (peer.name for peer in cluster.meta.group.peers if peer.active > SILENT_AFTER)
    for stream in cluster.streams:
        for group in (stream.group, *(consumer.group for consumer in stream.consumers)):
            # A member that was just added has not been heard of yet.
            yield from (peer.name for peer in group.peers if SILENT_AFTER < peer.active < NEVER_HEARD)


def meta_contact(cluster: Cluster, name: str, in_step: bool) -> MetaContact:
    """Return whether the meta leader has heard of the server since that was started.

    `in_step`: it must be current, too. Ask that of a server that was down, since a leader counts members that it has just added
    as heard of; under load the others are a few entries behind at any moment. A server that does not answer, or that has no
    meta group, has not joined, and nothing is known of its silence.
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
