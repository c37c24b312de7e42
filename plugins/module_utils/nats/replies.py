# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the STATSZ, JSZ, HEALTHZ and info replies of nats-server 2.9 to 2.15 into the model; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import isfinite
from typing import Any

from ..times import parse_time
from .account_names import account_id, account_labels
from .model import (
    ASSET_ERROR,
    CONSUMER,
    META,
    STREAM,
    UNREADABLE,
    Cluster,
    Consumer,
    Health,
    JetStreamSummary,
    MetaGroup,
    Peer,
    RaftGroup,
    ReplicaState,
    Server,
    Stream,
    api_level,
    peer_id,
)


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


def parse_health(data: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Health:
    """Parse a HEALTHZ reply: `errors` if `details` were requested (2.10), otherwise a single `error`. `labels`: display
    names of accounts, by the identity in HEALTHZ."""
    errors = tuple(str(item.get("error", "")) for item in data.get("errors") or ())
    if not errors and data.get("error"):
        errors = (str(data["error"]),)
    errors = tuple(_with_account_label(error, labels or {}) for error in errors)
    return Health(str(data.get("status", "")), int(data.get("status_code") or 0), errors)


def _with_account_label(error: str, labels: Mapping[str, str]) -> str:
    found = ASSET_ERROR.match(error)
    if found is None:
        return error
    account, separator, names = found["asset"].partition(" > ")
    start, end = found.span("asset")
    return f"{error[:start]}{labels.get(account, account)}{separator}{names}{error[end:]}"


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
                max_ack_pending=_number(config, "max_ack_pending"),
                num_waiting=_number(item, "num_waiting"),
                paused=bool(item.get("paused")),
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
