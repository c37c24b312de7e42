# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a NATS cluster as plain data.

The module defines frozen dataclasses and parses them from the STATSZ, JSZ and HEALTHZ replies of nats-server 2.9 to
2.15; no I/O. Fields that an older server does not send keep their default."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from math import isfinite
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.screen import printable

#: The kinds of Raft groups, as they appear in problem codes.
META, STREAM, CONSUMER = "meta", "stream", "consumer"

#: The subjects of replies to the collection. A user who may subscribe to `_INBOX.>` may subscribe to these subjects,
#: and operators of accounts may subscribe to no others.
INBOX_PREFIX = "_INBOX.natsops"

#: The JetStream API level by release (JSApiLevel in jetstream_versioning.go of their tags; ADR-44). Servers before 2.11
#: report no level, which counts as 0.
LEVEL_2_15 = 5
API_LEVELS = (((2, 11, 0), 1), ((2, 12, 0), 2), ((2, 12, 5), 3), ((2, 14, 0), 4), ((2, 15, 0), LEVEL_2_15))

#: The format of HEALTHZ errors about one stream or consumer, which is the same in all versions (monitor.go healthz).
_ASSET_ERROR = re.compile(r"JetStream (?P<kind>stream|consumer) '(?P<asset>.+)' (?:is not current: )?(?P<reason>.+)")

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
    `leader_since`: when the sole leader was elected, as reported from 2.12 on, otherwise empty."""

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
    responded, otherwise from any replica."""

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

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "durable": self.durable,
            "pull": self.pull,
            "ack_policy": self.ack_policy,
            "ack_wait": self.ack_wait,
            "num_pending": self.num_pending,
            "num_ack_pending": self.num_ack_pending,
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
    `unreadable`: the part of its replies that cannot be parsed, otherwise empty."""

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
    summary: JetStreamSummary | None = None
    health: Health | None = None

    def as_dict(self) -> dict[str, Any]:
        result = dict(self.__dict__)
        for name in ("summary", "health", "known_servers", "feature_flags", "enabled_flags", "unreadable"):
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


# --- parsing ----------------------------------------------------------------------------------------------------------


def parse_server(
    info: Mapping[str, Any], statsz: Mapping[str, Any], rtt: float, received: datetime | None = None
) -> Server:
    """Return the server that sent a STATSZ reply (events.go ServerInfo, ServerStats); `rtt` in seconds.

    `received`: when the reply arrived, by this machine's clock; if it is None, the clocks are not compared.
    """
    offset = 0.0
    if received is not None and info.get("time"):
        offset = (parse_time(str(info["time"])) - received).total_seconds() + rtt / 2
    flags = info.get("feature_flags")
    flags = flags if isinstance(flags, Mapping) else {}
    return Server(
        name=str(info.get("name", "")),
        id=str(info.get("id", "")),
        cluster=str(info.get("cluster", "")),
        host=str(info.get("host", "")),
        version=str(info.get("ver", "")),
        domain=str(info.get("domain", "")),
        tags=tuple(map(str, info.get("tags") or ())),
        jetstream=bool(info.get("jetstream")),
        connections=_number(statsz, "connections"),
        subscriptions=_number(statsz, "subscriptions"),
        routes=len(statsz.get("routes") or ()),
        gateways=len(statsz.get("gateways") or ()),
        inbound_gateways=sum(_number(gateway, "inbound_connections") for gateway in statsz.get("gateways") or ()),
        reaches=tuple(sorted(str(gateway.get("name", "")) for gateway in statsz.get("gateways") or ())),
        leafnodes=_number(statsz, "leafnodes"),
        mem=_number(statsz, "mem"),
        cpu=_number(statsz, "cpu"),
        cores=_number(statsz, "cores"),
        slow_consumers=_number(statsz, "slow_consumers"),
        uptime=_seconds_between(statsz.get("start"), info.get("time")),
        rtt=rtt,
        clock_offset=round(offset, 6),
        known_servers=_number(statsz, "active_servers"),
        feature_flags=frozenset(map(str, flags)),
        enabled_flags=frozenset(str(name) for name, is_on in flags.items() if is_on is True),
    )


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


def account_id(detail: Mapping[str, Any]) -> str:
    """Return the identity of an account from its details in JSZ: in operator mode its public key, otherwise its name.

    In JSZ, `name` is the name in the account's JWT, which several accounts may share; all other endpoints report only
    the identity (HEALTHZ, ACCOUNTZ, ACCSTATZ and CONNZ of 2.9.10, 2.10.27 and 2.15.1).
    """
    return str(detail.get("id") or detail.get("name") or "")


def account_labels(names: Mapping[str, str]) -> dict[str, str]:
    """Return the display names of accounts by identity: the name, or the identity if another account has the same name.
    `names`: identity → name."""
    shown = {key: " ".join(printable(name).split()) for key, name in names.items()}
    count = Counter(shown.values())
    return {
        key: name if name and count[name] == 1 and (name == key or name not in names) else key
        for key, name in shown.items()
    }


class AmbiguousAccount(ValueError):
    """A name that several accounts share."""


def account_named(names: Mapping[str, str], selected: str) -> str:
    """Return the identity of the account that a user selects by identity or name, or `selected` itself if no account
    matches. `names`: identity → name. Raises AmbiguousAccount."""
    found = [selected] if selected in names else sorted(key for key, name in names.items() if name == selected)
    if len(found) > 1:
        raise AmbiguousAccount(
            f"{len(found)} accounts are named {selected}: {', '.join(found)}. Specify the account by its public key."
        )
    return found[0] if found else selected


def with_identity(pattern: str, names: Mapping[str, str]) -> str:
    """Return a pattern of ACCOUNT/STREAM with the identity of the account that it names; wildcards match identities.
    `names`: identity → name. Raises AmbiguousAccount."""
    account, slash, stream = pattern.partition("/")
    return f"{account_named(names, account)}{slash}{stream}"


def parse_health(data: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Health:
    """Parse a HEALTHZ reply: `errors` if `details` were requested (2.10), otherwise a single `error`. `labels`: display
    names of accounts, by the identity in HEALTHZ."""
    errors = tuple(str(item.get("error", "")) for item in data.get("errors") or ())
    if not errors and data.get("error"):
        errors = (str(data["error"]),)
    errors = tuple(_with_account_label(error, labels or {}) for error in errors)
    return Health(str(data.get("status", "")), int(data.get("status_code") or 0), errors)


def _with_account_label(error: str, labels: Mapping[str, str]) -> str:
    found = _ASSET_ERROR.match(error)
    if found is None:
        return error
    account, separator, names = found["asset"].partition(" > ")
    start, end = found.span("asset")
    return f"{error[:start]}{labels.get(account, account)}{separator}{names}{error[end:]}"


def _asset_error(error: str) -> AssetError | None:
    """Return the stream or consumer that an error concerns, with its fault, or None if the error concerns the server
    (monitor.go healthz)."""
    found = _ASSET_ERROR.match(error)
    if found is None:
        return None
    return AssetError(found["kind"], f"{found['kind']} {'/'.join(found['asset'].split(' > '))}", found["reason"])


def parse_summary(jsz: Mapping[str, Any]) -> JetStreamSummary | None:
    """Return the JetStream summary of a JSZ reply, or None if JetStream is not running on that server."""
    if jsz.get("disabled"):
        return None
    api = jsz.get("api") or {}
    config = jsz.get("config") or {}
    return JetStreamSummary(
        streams=_number(jsz, "streams"),
        consumers=_number(jsz, "consumers"),
        messages=_number(jsz, "messages"),
        bytes=_number(jsz, "bytes"),
        memory=_number(jsz, "memory"),
        storage=_number(jsz, "storage"),
        reserved_memory=_number(jsz, "reserved_memory"),
        reserved_storage=_number(jsz, "reserved_storage"),
        max_memory=_number(config, "max_memory"),
        max_storage=_number(config, "max_storage"),
        api_total=_number(api, "total"),
        api_errors=_number(api, "errors"),
        api_level=_number(api, "level"),
        ha_assets=_number(jsz, "ha_assets"),
        max_ha_assets=_number(jsz.get("limits") or {}, "max_ha_assets"),
        unique_tag=str(config.get("unique_tag", "")),
        pending=_number(jsz.get("meta_cluster") or {}, "pending"),
    )


@lru_cache(maxsize=4096)
def peer_id(server_name: str) -> str:
    """Return the ID of a server in its Raft groups: 8 characters from the SHA-256 of its name (server/sublist.go
    getHash)."""
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in hashlib.sha256(server_name.encode()).digest()[:8])


def build_cluster(
    servers: Sequence[Server],
    jsz: Mapping[str, Mapping[str, Any]],
    healthz: Mapping[str, Mapping[str, Any]],
    expected: Iterable[str] = (),
) -> Cluster:
    """Build the cluster from its servers and their JSZ and HEALTHZ replies by server ID.

    If a server did not reply, or its reply cannot be parsed (see `unreadable`), the value is None: unknown, which is
    not the same as healthy. `expected`: names of servers that may not have responded; a leader that never had contact
    with a peer reports only the peer's ID, which these names resolve. Raises ValueError if the replies contradict each
    other: each can be parsed, but not all of them together."""
    expected = frozenset(expected)
    try:
        return _cluster(servers, jsz, healthz, expected)
    except UNREADABLE:
        pass
    reasons = {
        server.id: [*_why_unreadable(server, jsz, {}), *_why_unreadable(server, {}, healthz)] for server in servers
    }
    marked = [
        replace(server, unreadable="; ".join([server.unreadable, *reasons[server.id]]).strip("; "))
        for server in servers
    ]
    jsz = {key: reply for key, reply in jsz.items() if not any(why.startswith("JSZ") for why in reasons.get(key, ()))}
    healthz = {
        key: one for key, one in healthz.items() if not any(why.startswith("HEALTHZ") for why in reasons.get(key, ()))
    }
    try:
        return _cluster(marked, jsz, healthz, expected)
    except UNREADABLE as error:
        raise ValueError(f"the replies of the servers contradict each other: {error}") from error


#: Errors from parsing a reply with wrong types or without an end.
UNREADABLE = (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError, RecursionError)


def _why_unreadable(
    server: Server, jsz: Mapping[str, Mapping[str, Any]], healthz: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    """Yield the reasons why individual replies of a server cannot be parsed."""
    endpoint, replies = ("JSZ", jsz) if jsz else ("HEALTHZ", healthz)
    if server.id not in replies:
        return
    only = {server.id: replies[server.id]}
    try:
        _cluster([server], only if jsz else {}, {} if jsz else only, frozenset())
    except UNREADABLE as error:
        yield f"{endpoint}: {type(error).__name__}: {str(error)[:200]}"


def _cluster(
    servers: Sequence[Server],
    jsz: Mapping[str, Mapping[str, Any]],
    healthz: Mapping[str, Mapping[str, Any]],
    expected: frozenset[str],
) -> Cluster:
    accounts = {
        account_id(detail): str(detail.get("name", ""))
        for reply in jsz.values()
        for detail in reply.get("account_details") or ()
    }
    labels = account_labels(accounts)
    known = []
    for server in sorted(servers, key=lambda item: (item.name, item.id)):
        summary = parse_summary(jsz[server.id]) if server.id in jsz else None
        jetstream = summary is not None if server.id in jsz else server.jetstream
        health = parse_health(healthz[server.id], labels) if server.id in healthz else None
        known.append(replace(server, jetstream=jetstream, summary=summary, health=health))
    replies = [(server, jsz[server.id]) for server in known if server.id in jsz]
    names = dict(_named_peers(jsz.values()))
    names.update({peer_id(name): name for name in (*expected, *(server.name for server in known))})
    return Cluster(
        tuple(known), _meta_group(replies, names, expected), _streams(replies, names, labels), accounts=accounts
    )


def _named_peers(replies: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    """Yield the ID and the name of each peer that any server names in its view of a group; other servers may report
    only the ID."""
    for jsz in replies:
        views = [jsz.get("meta_cluster") or {}]
        views += [
            detail.get("cluster") or {}
            for account in jsz.get("account_details") or ()
            for detail in account.get("stream_detail") or ()
        ]
        for view in views:
            for peer in view.get("replicas") or ():
                name = peer.get("name", "")
                if isinstance(name, str) and name and " " not in name and peer.get("peer"):
                    yield str(peer["peer"]), name


def answered_by_leader(info: Mapping[str, Any]) -> bool:
    """Return whether a STREAM.INFO or CONSUMER.INFO comes from its leader, or from a standalone server.

    The reply of a follower names no leader, or also lists the leader among the other replicas (jetstream_cluster.go
    clusterInfo)."""
    view = info.get("cluster")
    if not view:
        return True
    leader = view.get("leader")
    return bool(leader) and leader not in {peer.get("name") for peer in view.get("replicas") or ()}


def stream_group(account: str, info: Mapping[str, Any], names: Mapping[str, str] | None = None) -> RaftGroup:
    """Return a stream's group from its STREAM.INFO as reported by the leader. `names`: server names by peer ID.
    `account`: as it is displayed."""
    config = info.get("config") or {}
    subject = f"stream {account}/{config.get('name', '')}"
    return _group_of_info(STREAM, subject, int(config.get("num_replicas") or 1), info, names)


def consumer_group(
    account: str, info: Mapping[str, Any], stream_config: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> RaftGroup:
    """Return a consumer's group from its CONSUMER.INFO; its size also depends on the configuration of its stream.
    `account`: as it is displayed."""
    config = info.get("config") or {}
    size = _consumer_replicas(
        config, int(stream_config.get("num_replicas") or 1), stream_config.get("retention", "limits")
    )
    subject = f"consumer {account}/{info.get('stream_name', '')}/{info.get('name', '')}"
    group = _group_of_info(CONSUMER, subject, size, info, names)
    return replace(group, ephemeral=not config.get("durable_name"))


def _group_of_info(
    kind: str, subject: str, size: int, info: Mapping[str, Any], names: Mapping[str, str] | None
) -> RaftGroup:
    view = info.get("cluster") or {}
    leader = view.get("leader", "")
    group = _group(kind, subject, size, [(leader, view.get("name", ""), view)], names or {})
    return group if leader else replace(group, leaders=(), hosts=())


def _meta_group(
    replies: Sequence[tuple[Server, Mapping[str, Any]]], names: Mapping[str, str], expected: frozenset[str]
) -> MetaGroup | None:
    seen = [(server, jsz["meta_cluster"]) for server, jsz in replies if jsz.get("meta_cluster")]
    if not seen:
        return None
    outsiders = _outsiders([(server.name, view) for server, view in seen], names)
    own, foreign = _own_meta_group(seen, names, expected, outsiders)
    views = [(server.name, view) for server, view in seen if server.name in own]
    group = _group(META, "meta group", 0, [(name, "", view) for name, view in views], names)
    leading: Mapping[str, Any] = next((view for name, view in views if name == group.leader), {})
    size = _number(leading, "cluster_size") or max(_number(view, "cluster_size") for _name, view in views)
    members = tuple(name for name in group.members if name not in outsiders)
    return MetaGroup(
        group=replace(group, size=size, members=members),
        views={name: str(view.get("leader") or "") for name, view in views},
        pending=_number(leading, "pending"),
        quorum_needed=_number(leading, "quorum_needed"),
        sizes={name: _number(view, "cluster_size") for name, view in views},
        outsiders=outsiders,
        foreign=foreign,
    )


def _outsiders(views: Sequence[tuple[str, Mapping[str, Any]]], names: Mapping[str, str]) -> frozenset[str]:
    """Return the servers that are not members of the meta group that their own store describes, as after a change of
    the server's name: the group is complete without them, no other server counts them, and the group contains IDs that
    belong to no known server."""
    found = set()
    for name, view in views:
        peers = [_peer_name(peer, names) for peer in view.get("replicas") or ()]
        counted = any(
            name in (_peer_name(peer, names), other.get("leader"))
            for _name, other in views
            for peer in other.get("replicas") or ()
        )
        nameless = any(peer not in names.values() for peer in peers)
        if nameless and not counted and view.get("leader") != name and len(peers) >= _number(view, "cluster_size"):
            found.add(name)
    return frozenset(found)


def _own_meta_group(
    seen: Sequence[tuple[Server, Mapping[str, Any]]],
    names: Mapping[str, str],
    expected: frozenset[str],
    outsiders: frozenset[str],
) -> tuple[frozenset[str], tuple[frozenset[str], ...]]:
    """Return the servers that report on the chosen meta group, and the members of other meta groups.

    If routes connect two clusters, all their servers respond, while each server keeps the members recorded in its
    store; a server may even follow a leader that is not among these members. The meta group with the most `expected`
    servers is chosen or, if several have equally many, the one from which most servers responded. Each domain has a
    separate meta group.
    """
    groups: list[tuple[tuple[str, bool], set[str]]] = []
    for server, view in seen:
        joint = {server.name, *(_peer_name(peer, names) for peer in view.get("replicas") or ())}
        kind = (server.domain, len(joint) > 1 and view.get("leader", server.name) not in joint)
        for known in [known for known in groups if known[0] == kind and known[1] & joint]:
            joint |= known[1]
            groups.remove(known)
        groups.append((kind, joint))
    answered = {server.name for server, _view in seen}
    groups.sort(key=lambda item: (-len(item[1] & expected), -len(item[1] & answered), item[0], min(item[1])))
    (domain, _follows), own = groups[0]
    others = [members for (other, _kind), members in groups[1:] if other == domain and len(members - outsiders) > 1]
    foreign = [members - own if len(members) > len(own) else members for members in others]
    apart = {name for members in foreign for name in members}
    return frozenset(answered - apart), tuple(frozenset(members) for members in foreign)


def _streams(
    replies: Sequence[tuple[Server, Mapping[str, Any]]], names: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Stream, ...]:
    seen: dict[tuple[str, str], list[tuple[Server, Mapping[str, Any]]]] = {}
    for server, jsz in replies:
        for account in jsz.get("account_details") or ():
            key = account_id(account)
            for detail in account.get("stream_detail") or ():
                stream = (key, str(detail.get("name", "")))
                seen.setdefault(stream, []).append((server, detail))
    found = [_stream(key, labels[key], name, views, names) for (key, name), views in seen.items()]
    return tuple(sorted(found, key=lambda stream: (stream.account_name, stream.name)))


def _stream(
    account: str, label: str, name: str, views: Sequence[tuple[Server, Mapping[str, Any]]], names: Mapping[str, str]
) -> Stream:
    first = views[0][1].get("config") or {}
    size = int(first.get("num_replicas") or 1)
    group = _group(
        STREAM,
        f"stream {label}/{name}",
        size,
        [(server.name, server.cluster, detail.get("cluster") or {"leader": server.name}) for server, detail in views],
        names,
        raft_name=next(
            (str(detail["stream_raft_group"]) for _server, detail in views if detail.get("stream_raft_group")), ""
        ),
    )
    detail = next((item for server, item in views if server.name == group.leader), views[0][1])
    config, state = detail.get("config") or {}, detail.get("state") or {}
    retention, placement = str(config.get("retention", "limits")), config.get("placement") or {}
    return Stream(
        account=account,
        name=name,
        group=group,
        consumers=_consumers(account, label, name, size, retention, views, names),
        storage=str(config.get("storage", "")),
        retention=retention,
        messages=_number(state, "messages"),
        size=_number(state, "bytes"),
        first_seq=_number(state, "first_seq"),
        last_seq=_number(state, "last_seq"),
        info=detail,
        max_bytes=max(0, _number(config, "max_bytes")),
        placement_tags=tuple(map(str, placement.get("tags") or ())),
        num_deleted=_number(state, "num_deleted"),
        lost_messages=len((state.get("lost") or {}).get("msgs") or ()),
        lost_bytes=_number(state.get("lost") or {}, "bytes"),
        placement={key: placement[key] for key in placement if isinstance(placement[key], (str, list, bool))},
        api_level=api_level(config),
        stored={server.name: _replica_state(detail.get("state") or {}) for server, detail in views},
    )


def _replica_state(state: Mapping[str, Any]) -> ReplicaState:
    return ReplicaState(_number(state, "messages"), _number(state, "first_seq"), _number(state, "last_seq"))


def api_level(config: Mapping[str, Any]) -> int:
    """Return the API level that an asset needs, 0 before 2.11 (jetstream_versioning.go)."""
    return int((config.get("metadata") or {}).get("_nats.req.level") or 0)


def _consumers(
    account: str,
    label: str,
    stream: str,
    stream_size: int,
    retention: str,
    views: Sequence[tuple[Server, Mapping[str, Any]]],
    names: Mapping[str, str],
) -> tuple[Consumer, ...]:
    seen: dict[str, list[tuple[Server, Mapping[str, Any]]]] = {}
    raft_names: dict[str, str] = {}
    for server, detail in views:
        for raft in detail.get("consumer_raft_groups") or ():
            raft_names[str(raft.get("name", ""))] = str(raft.get("raft_group", ""))
        for item in detail.get("consumer_detail") or ():
            seen.setdefault(str(item.get("name", "")), []).append((server, item))
    consumers = []
    for name, found in sorted(seen.items()):
        group = _group(
            CONSUMER,
            f"consumer {label}/{stream}/{name}",
            _consumer_replicas(found[0][1].get("config") or {}, stream_size, retention),
            [(server.name, server.cluster, item.get("cluster") or {"leader": server.name}) for server, item in found],
            names,
            raft_name=raft_names.get(name, ""),
            ephemeral=not (found[0][1].get("config") or {}).get("durable_name"),
        )
        item = next((item for server, item in found if server.name == group.leader), found[0][1])
        config = item.get("config") or {}
        consumers.append(
            Consumer(
                account=account,
                stream=stream,
                name=name,
                group=group,
                durable=not group.ephemeral,
                num_pending=_number(item, "num_pending"),
                num_ack_pending=_number(item, "num_ack_pending"),
                info=item,
                num_redelivered=_number(item, "num_redelivered"),
                ack_floor=_number(item.get("ack_floor") or {}, "stream_seq"),
                pull=not config.get("deliver_subject"),
                ack_policy=str(config.get("ack_policy", "")),
                ack_wait=_number(config, "ack_wait") / 1e9,
                api_level=api_level(config),
            )
        )
    return tuple(consumers)


def _consumer_replicas(config: Mapping[str, Any], stream_size: int, retention: str) -> int:
    """Return the number of replicas that a consumer has according to its configuration (consumer.go
    ConsumerConfig.replicas)."""
    wanted = int(config.get("num_replicas") or 0)
    if 0 < wanted <= stream_size:
        return wanted
    if wanted == 0 and not config.get("durable_name") and retention == "limits":
        return 1
    return stream_size


def _group(
    kind: str,
    subject: str,
    size: int,
    views: Sequence[tuple[str, str, Mapping[str, Any]]],
    names: Mapping[str, str],
    raft_name: str = "",
    ephemeral: bool = False,
) -> RaftGroup:
    """Build the group from its members' views: (server, its cluster, ClusterInfo or MetaClusterInfo). `names`: server
    names by peer ID. `raft_name`: the group's name if the views lack it.

    A member whose Raft node is not running claims to lead a group without replicas (jetstream_cluster.go clusterInfo);
    such a claim counts only if no other server has a better one."""
    claims = [(name, view) for name, _cluster, view in views if view.get("leader") == name]
    backed = [(name, view) for name, view in claims if view.get("replicas")]
    leaders = backed or claims
    members = {name for name, _cluster, _view in views}
    nameless = set()
    for _name, _cluster, view in views:
        for peer in view.get("replicas") or ():
            name = _peer_name(peer, names)
            members.add(name)
            if name == peer.get("peer") and name not in names.values():
                nameless.add(name)
        members.add(view.get("leader") or "")
    members.discard("")
    nameless.discard("")
    leading: Mapping[str, Any] = leaders[0][1] if len(leaders) == 1 else {}
    return RaftGroup(
        kind=kind,
        subject=subject,
        size=size,
        leaders=tuple(sorted(name for name, _view in leaders)),
        peers=tuple(_peer(peer, names) for peer in leading.get("replicas") or ()),
        members=tuple(sorted(members)),
        hosts=tuple(sorted(name for name, _cluster, _view in views)),
        raft_name=next((str(view["raft_group"]) for _n, _c, view in views if view.get("raft_group")), raft_name),
        cluster=next((cluster for _name, cluster, _view in views if cluster), ""),
        moving=bool(leading.get("desired")),
        ephemeral=ephemeral,
        nameless=frozenset(nameless),
        leader_since=str(leading.get("leader_since") or ""),
    )


def _peer_name(peer: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the peer's name; a server that has had no contact with the peer since its own start reports "Server name
    unknown at this time"."""
    name = str(peer.get("name", ""))
    if name and " " not in name:
        return name
    identity = str(peer.get("peer", ""))
    return names.get(identity, identity)


def _peer(peer: Mapping[str, Any], names: Mapping[str, str]) -> Peer:
    return Peer(
        name=_peer_name(peer, names),
        id=str(peer.get("peer", "")),
        current=peer.get("current") is True,
        offline=bool(peer.get("offline")),
        active=_number(peer, "active") / 1e9,
        lag=_number(peer, "lag"),
    )


def _number(data: Mapping[str, Any], key: str) -> Any:
    """Return a number from a reply, or 0 if it is absent. Raises ValueError unless it is a finite number."""
    value = data.get(key, 0)
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and isfinite(value)):
        return value
    if value is None:
        return 0
    raise ValueError(f"{key}: {str(value)[:40]!r} is not a number")


def _seconds_between(start: Any, end: Any) -> float:
    """Return the seconds between two server timestamps, or 0 if one is absent."""
    if not start or not end:
        return 0.0
    return max(0.0, (parse_time(str(end)) - parse_time(str(start))).total_seconds())


def certificate_ends(varz: Mapping[str, Any]) -> dict[str, str]:
    """Return when each of a server's listener certificates expires, as reported from 2.11.12 and 2.12.4 on."""
    parts = {"server": varz, "leafnode": varz.get("leaf") or {}}
    parts.update({part: varz.get(part) or {} for part in ("cluster", "gateway", "mqtt", "websocket")})
    return {part: str(data["tls_cert_not_after"]) for part, data in parts.items() if data.get("tls_cert_not_after")}


def parse_time(text: str) -> datetime:
    """Return a server's RFC 3339 timestamp (up to nanoseconds) in UTC, with microseconds. Raises ValueError."""
    moment = text
    offset = timezone.utc
    if moment.endswith("Z"):
        moment = moment[:-1]
    elif len(moment) > 6 and moment[-6] in "+-":
        east = datetime.fromisoformat(f"2000-01-01T00:00:00{moment[-6:]}").utcoffset()
        moment, offset = moment[:-6], timezone(east or timedelta())
    seconds, _dot, fraction = moment.partition(".")
    whole = datetime.fromisoformat(seconds)
    micro = int(fraction[:6].ljust(6, "0")) if fraction else 0
    try:
        return whole.replace(microsecond=micro, tzinfo=offset).astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(f"{text!r} is not a UTC time in the years 1 to 9999") from error
