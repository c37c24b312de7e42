# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a NATS cluster as plain data.

The module defines frozen dataclasses and parses them from the STATSZ, JSZ and HEALTHZ replies of nats-server 2.9 to
2.15; no I/O. Fields that an older server does not send keep their default."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from .account_names import account_labels

#: The kinds of Raft groups, as they appear in problem codes.
META, STREAM, CONSUMER = "meta", "stream", "consumer"
#: The subjects of replies to the collection. A user who may subscribe to `_INBOX.>` may subscribe to these subjects,
#: and operators of accounts may subscribe to no others.
INBOX_PREFIX = "_INBOX.natsops"
#: The name of the collection's own connections.
CLIENT_NAME = "natsops.jetstream"
#: The JetStream API level by release (JSApiLevel in jetstream_versioning.go of their tags; ADR-44). Servers before 2.11
#: report no level, which counts as 0.
LEVEL_2_15 = 5
API_LEVELS = (((2, 11, 0), 1), ((2, 12, 0), 2), ((2, 12, 5), 3), ((2, 14, 0), 4), ((2, 15, 0), LEVEL_2_15))
#: The format of HEALTHZ errors about one stream or consumer, which is the same in all versions (monitor.go healthz).
ASSET_ERROR = re.compile(r"JetStream (?P<kind>stream|consumer) '(?P<asset>.+)' (?:is not current: )?(?P<reason>.+)")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: Seconds without contact (`Peer.active`) from which a leader has never had contact with a peer.
NEVER_HEARD = 1e8


@dataclass(frozen=True)
class Peer:
    """A replica as its leader reports it. `active`: seconds since the leader's last contact with it; `lag`: the number
    of Raft entries by which it is behind. `offline` stays false for about 150 s after a crash (server.go orphMax)."""

    name: str
    id: str = ""
    current: bool = False
    offline: bool = False
    active: float = 0.0
    lag: int = 0


@dataclass(frozen=True)
class RaftGroup:
    """The replicas of the meta layer, of one stream, or of one consumer.

    `leaders`: the responding servers that claim to lead the group (healthy: exactly one). `peers`: the other members as
    reported by the sole leader, empty if there is none. `members`: every server that any member lists in the group.
    `hosts`: the responding servers that have a replica. `size`: the configured number of members. `ephemeral`: a
    consumer that is not durable, which its client recreates. `nameless`: the IDs of members whose names are unknown.
    `leader_since`: when the sole leader was elected, as reported from 2.12 on, otherwise empty. `unreported`: no
    responding server has a replica; `members` are then the absent servers, and a `size` of 0 is unknown."""

    kind: str
    subject: str
    size: int
    leaders: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = ()
    members: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    raft_name: str = ""
    cluster: str = ""
    moving: bool = False
    ephemeral: bool = False
    nameless: frozenset[str] = frozenset()
    leader_since: str = ""
    unreported: bool = False

    @property
    def leader(self) -> str | None:
        """Return the name of the leader, or None if no server or more than one server claims to lead."""
        return self.leaders[0] if len(self.leaders) == 1 else None

    @property
    def quorum(self) -> int:
        """Return how many members must agree (raft.go: size / 2 + 1)."""
        return self.size // 2 + 1

    def as_dict(self) -> dict[str, Any]:
        """Return the group for a module's result; the leader is one of the `replicas`, as in `nats server report`."""
        leader = self.leader
        peers = ([Peer(leader, peer_id(leader), current=True)] if leader else []) + list(self.peers)
        return {
            "raft_group": self.raft_name,
            "cluster": self.cluster,
            "leader": leader,
            "leaders": list(self.leaders),
            "size": self.size,
            "quorum": self.quorum,
            "members": list(self.members),
            "replicas": [
                {
                    "name": peer.name,
                    "id": peer.id,
                    "leader": peer.name == leader,
                    "current": peer.current,
                    "online": not peer.offline,
                    "active": peer.active,
                    "lag": peer.lag,
                }
                for peer in sorted(peers, key=lambda peer: peer.name)
            ],
        }


@dataclass(frozen=True)
class MetaGroup:
    """The group of all JetStream servers of the supercluster. `views`: server → the leader that it reports ("" for
    none). `sizes`: server → how many members it counts. `outsiders`: servers that responded but do not list themselves
    as members. `foreign`: the members of other meta groups, whose servers respond as well."""

    group: RaftGroup
    views: Mapping[str, str]
    pending: int = 0
    quorum_needed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    outsiders: frozenset[str] = frozenset()
    foreign: tuple[frozenset[str], ...] = ()

    @property
    def quorum(self) -> int:
        """Return the quorum: computed from the size, or the server's own figure (2.15) if that is higher."""
        return max(self.group.quorum, self.quorum_needed)

    @property
    def known(self) -> frozenset[str]:
        """The members that the leader lists, including itself."""
        return frozenset([*self.group.leaders, *(peer.name for peer in self.group.peers)])

    @property
    def size(self) -> int:
        """Return the number of members: the leader may count fewer than it lists.

        Before 2.15, the count stays too low permanently if a server had not enabled JetStream yet when the first leader
        counted (jetstream_cluster.go `checkClusterSize`)."""
        return max(self.group.size, len(self.known))

    @property
    def miscounted(self) -> bool:
        """Whether the leader counts too few members, and would need too few of them for a quorum."""
        return self.group.quorum < replace(self.group, size=self.size).quorum


@dataclass(frozen=True)
class Consumer:
    """A consumer and its group. `ack_wait` is in seconds. `ack_floor` is a sequence of the stream. `api_level` is the
    level that a server needs to serve the consumer. `info` is its CONSUMER.INFO, from the leader if the leader
    responded, otherwise from any replica. `num_waiting` counts the pull requests that wait for messages."""

    account: str
    stream: str
    name: str
    group: RaftGroup
    durable: bool = True
    num_pending: int = 0
    num_ack_pending: int = 0
    info: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    num_redelivered: int = 0
    ack_floor: int = 0
    pull: bool = True
    ack_policy: str = ""
    ack_wait: float = 0.0
    api_level: int = 0
    max_ack_pending: int = 0
    num_waiting: int = 0
    paused: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "durable": self.durable,
            "pull": self.pull,
            "ack_policy": self.ack_policy,
            "ack_wait": self.ack_wait,
            "num_pending": self.num_pending,
            "num_ack_pending": self.num_ack_pending,
            "max_ack_pending": self.max_ack_pending,
            "num_waiting": self.num_waiting,
            "paused": self.paused,
            "num_redelivered": self.num_redelivered,
            "ack_floor": self.ack_floor,
            "api_level": self.api_level,
            **self.group.as_dict(),
        }


@dataclass(frozen=True)
class ReplicaState:
    """The data of a stream on one server."""

    messages: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True)
class Stream:
    """A stream, its group, and its consumers. Sizes are in bytes, as reported by the leader. `info`: as in Consumer.
    `stored`: server → the data of its replica, for the servers that responded. `account`: the account's identity
    (`account_id`)."""

    account: str
    name: str
    group: RaftGroup
    consumers: tuple[Consumer, ...] = ()
    storage: str = ""
    retention: str = ""
    messages: int = 0
    size: int = 0
    first_seq: int = 0
    last_seq: int = 0
    info: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    max_bytes: int = 0
    placement_tags: tuple[str, ...] = ()
    num_deleted: int = 0
    lost_messages: int = 0
    lost_bytes: int = 0
    placement: Mapping[str, Any] = field(default_factory=dict)
    api_level: int = 0
    stored: Mapping[str, ReplicaState] = field(default_factory=dict, repr=False, compare=False)

    @property
    def label(self) -> str:
        """Return the display name of the stream, such as APP/ORDERS."""
        return self.group.subject.partition(" ")[2]

    @property
    def groups(self) -> tuple[RaftGroup, ...]:
        """Return the group of the stream and those of its consumers."""
        return (self.group, *(consumer.group for consumer in self.consumers))

    @property
    def account_name(self) -> str:
        """Return the display name of the account (`account_labels`)."""
        return self.label.rpartition("/")[0]

    @property
    def names(self) -> frozenset[str]:
        """Return the names that select the stream: ACCOUNT/STREAM, with the account's name or identity."""
        return frozenset((self.label, f"{self.account}/{self.name}"))

    def as_dict(self) -> dict[str, Any]:
        return {
            "account": self.account,
            "account_name": self.account_name,
            "name": self.name,
            "storage": self.storage,
            "retention": self.retention,
            "num_replicas": self.group.size,
            "messages": self.messages,
            "bytes": self.size,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "num_deleted": self.num_deleted,
            "lost_messages": self.lost_messages,
            "lost_bytes": self.lost_bytes,
            "placement": dict(self.placement),
            "api_level": self.api_level,
            **self.group.as_dict(),
            "consumers": [consumer.as_dict() for consumer in self.consumers],
        }


@dataclass(frozen=True)
class JetStreamSummary:
    """The JetStream state of one server. Sizes are in bytes; streams and messages count this server's replicas.

    `max_ha_assets`: 0 for no limit; JSZ reports it from 2.11 on. `pending`: entries that its meta layer has yet to
    apply."""

    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0
    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    max_memory: int = 0
    max_storage: int = 0
    api_total: int = 0
    api_errors: int = 0
    api_level: int = 0
    ha_assets: int = 0
    max_ha_assets: int = 0
    unique_tag: str = ""
    pending: int = 0


@dataclass(frozen=True)
class AssetError:
    """A fault of one stream or consumer in a server's HEALTHZ, such as "consumer not found"."""

    kind: str
    subject: str
    reason: str


@dataclass(frozen=True)
class Health:
    """A server's HEALTHZ: the status as the server reports it, and every error in it."""

    status: str
    status_code: int = 0
    errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def asset_errors(self) -> tuple[AssetError, ...]:
        """Return the errors that are about one stream or consumer."""
        return tuple(asset for asset in map(_asset_error, self.errors) if asset is not None)

    @property
    def server_errors(self) -> tuple[str, ...]:
        """Return the errors that are about the server."""
        return tuple(error for error in self.errors if _asset_error(error) is None)

    @property
    def ok_but_for_assets(self) -> bool:
        """Return whether nothing is wrong except with individual streams and consumers."""
        return self.ok or bool(self.asset_errors and not self.server_errors)


@dataclass(frozen=True)
class Server:
    """A server that responded. `rtt` and `uptime` are seconds, `mem` is bytes, `cpu` is percent of one core.
    `gateways`: the number of outbound gateway connections; `reaches`: the clusters at their other ends. `clock_offset`:
    how many seconds its clock is ahead of this machine's, plus or minus half of `rtt`.

    `jetstream`: whether JetStream is running. `summary` and `health` are None if the server did not reply to that
    request. `feature_flags`: the flags that it reports (2.14 and later); `enabled_flags`: those that are enabled.
    `unreadable`: the part of its replies that cannot be parsed, otherwise empty. `denied`: the endpoints that the user
    of this connection may not request."""

    name: str
    id: str
    cluster: str = ""
    host: str = ""
    version: str = ""
    domain: str = ""
    tags: tuple[str, ...] = ()
    jetstream: bool = False
    connections: int = 0
    subscriptions: int = 0
    routes: int = 0
    gateways: int = 0
    inbound_gateways: int = 0
    reaches: tuple[str, ...] = ()
    leafnodes: int = 0
    mem: int = 0
    cpu: float = 0.0
    cores: int = 0
    slow_consumers: int = 0
    uptime: float = 0.0
    rtt: float = 0.0
    clock_offset: float = 0.0
    known_servers: int = 0
    feature_flags: frozenset[str] = frozenset()
    enabled_flags: frozenset[str] = frozenset()
    unreadable: str = ""
    denied: tuple[str, ...] = ()
    summary: JetStreamSummary | None = None
    health: Health | None = None

    def as_dict(self) -> dict[str, Any]:
        result = dict(self.__dict__)
        for name in ("summary", "health", "known_servers", "feature_flags", "enabled_flags", "unreadable", "denied"):
            del result[name]
        result.update(tags=list(self.tags), reaches=list(self.reaches))
        result["js"] = dict(self.summary.__dict__) if self.summary else None
        result["health"] = (
            {"status": self.health.status, "status_code": self.health.status_code, "errors": list(self.health.errors)}
            if self.health
            else None
        )
        return result


@dataclass(frozen=True)
class Cluster:
    """Everything that was read at one moment: servers by name, meta group, streams. `meta` is None if the servers are
    not clustered. `apart`: server that responds only at its own address → why the other servers do not reach it.
    `accounts`: identity → name of the accounts with JetStream that were read."""

    servers: tuple[Server, ...] = ()
    meta: MetaGroup | None = None
    streams: tuple[Stream, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)
    accounts: Mapping[str, str] = field(default_factory=dict)

    def displayed(self, subject: str) -> str:
        """Return the display form of the subject of a stream or consumer that contains the identity of its account,
        such as "stream APP/ORDERS"."""
        kind, space, name = subject.partition(" ")
        account, slash, rest = name.partition("/")
        return f"{kind}{space}{account_labels(self.accounts).get(account, account)}{slash}{rest}"

    def find_account(self, label: str) -> str:
        """Return the identity of the account with this display name, or `label` itself if no account has this name."""
        return next((key for key, shown in account_labels(self.accounts).items() if shown == label), label)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the servers that responded."""
        return frozenset(server.name for server in self.servers)

    @property
    def meta_members(self) -> frozenset[str]:
        """Return the names of the members of the meta group as its leader reports them; empty if there is no leader."""
        group = self.meta.group if self.meta else None
        return frozenset([*group.leaders, *(peer.name for peer in group.peers)]) if group else frozenset()

    @property
    def api_level(self) -> int:
        """Return the JetStream API level of the meta leader, which replies to API requests; 0 if it is unknown or the
        leader is older than 2.11."""
        leader = self.meta.group.leader if self.meta else None
        return next(
            (server.summary.api_level for server in self.servers if server.name == leader and server.summary), 0
        )

    @property
    def nameless(self) -> frozenset[str]:
        """Return the members of groups that are known only by their Raft ID, because no server and no option names
        them."""
        groups = [*self.groups(), *([self.meta.group] if self.meta else [])]
        return frozenset(name for group in groups for name in group.nameless)

    def groups(self) -> Iterable[RaftGroup]:
        """Yield the groups of all streams and consumers."""
        for stream in self.streams:
            yield stream.group
            for consumer in stream.consumers:
                yield consumer.group

    def only(self, cluster: str | None = None, account: str | None = None, stream: str | None = None) -> Cluster:
        """Return the part that matches these exact names; the meta group stays complete, because it spans all clusters."""
        return replace(
            self,
            servers=tuple(server for server in self.servers if cluster in (None, server.cluster)),
            streams=tuple(
                item
                for item in self.streams
                if cluster in (None, item.group.cluster)
                and account in (None, item.account)
                and stream in (None, item.name)
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the cluster for a module's result: servers, meta, clusters, streams."""
        meta = None
        if self.meta is not None:
            meta = {**self.meta.group.as_dict(), "quorum": self.meta.quorum, "pending": self.meta.pending}
            del meta["cluster"]
        by_cluster: dict[str, list[str]] = {}
        for server in self.servers:
            by_cluster.setdefault(server.cluster, []).append(server.name)
        return {
            "servers": [server.as_dict() for server in self.servers],
            "meta": meta,
            "clusters": [{"name": name, "servers": servers} for name, servers in sorted(by_cluster.items())],
            "streams": [stream.as_dict() for stream in self.streams],
        }


def for_domain(servers: Sequence[Server], domain: str | None) -> tuple[Server, ...]:
    """Return the servers, except those of clusters whose JetStream belongs to a different domain.

    If a leafnode connection binds the system account, the servers of both sides respond on either side, although each
    domain has its own meta group. A cluster belongs to the domain of its servers with JetStream. `domain`: None for all
    domains.
    """
    if domain is None:
        return tuple(servers)
    homes = _homes(servers)
    return tuple(server for server in servers if domain in homes.get(server.cluster or server.id, {domain}))


def domains(servers: Sequence[Server]) -> dict[str, str]:
    """Return each server's JetStream domain by the server's ID, empty if it has none. A server without JetStream has
    the domain of its cluster, or else that of the clusters at the other ends of its gateways, which share one
    JetStream; the domain is empty if these clusters have several."""
    homes = _homes(servers)
    found = {}
    for server in servers:
        reached: set[str] = set().union(*(homes.get(name, ()) for name in server.reaches))
        cluster_domains = {server.domain} if server.jetstream else homes.get(server.cluster or server.id, reached)
        found[server.id] = min(cluster_domains) if len(cluster_domains) == 1 else ""
    return found


def _homes(servers: Sequence[Server]) -> dict[str, set[str]]:
    """Return the domains of each cluster's servers with JetStream; a server without a cluster counts as a cluster named
    by its ID."""
    homes: dict[str, set[str]] = {}
    for server in servers:
        if server.jetstream:
            homes.setdefault(server.cluster or server.id, set()).add(server.domain)
    return homes


def _asset_error(error: str) -> AssetError | None:
    """Return the stream or consumer that an error concerns, with its fault, or None if the error concerns the server
    (monitor.go healthz)."""
    found = ASSET_ERROR.match(error)
    if found is None:
        return None
    return AssetError(found["kind"], f"{found['kind']} {'/'.join(found['asset'].split(' > '))}", found["reason"])


@lru_cache(maxsize=4096)
def peer_id(server_name: str) -> str:
    """Return the ID of a server in its Raft groups: 8 characters from the SHA-256 of its name (server/sublist.go
    getHash)."""
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in hashlib.sha256(server_name.encode()).digest()[:8])


#: Errors from parsing a reply with wrong types or without an end.
UNREADABLE = (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError, RecursionError)


def answered_by_leader(info: Mapping[str, Any]) -> bool:
    """Return whether a STREAM.INFO or CONSUMER.INFO comes from its leader, or from a standalone server.

    The reply of a follower names no leader, or also lists the leader among the other replicas (jetstream_cluster.go
    clusterInfo)."""
    view = info.get("cluster")
    if not view:
        return True
    leader = view.get("leader")
    return bool(leader) and leader not in {peer.get("name") for peer in view.get("replicas") or ()}


def api_level(config: Mapping[str, Any]) -> int:
    """Return the API level that an asset needs, 0 before 2.11 (jetstream_versioning.go)."""
    return int((config.get("metadata") or {}).get("_nats.req.level") or 0)
