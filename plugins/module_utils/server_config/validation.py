# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds all problems of a desired configuration at once. Pure: no I/O.

Most rules are those of nats-server's validateOptions (server/server.go), which `nats-server -t` does not run, so the
server would refuse to start only after its files had been changed. The other rules follow from the behaviour of
clusters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..problem import ConfigProblem
from ..versions import supports
from .case import Case, error, make_case, warning
from .host_rules import (
    drop_ins_of_others,
    extra_files,
    foreign_store,
    identity_of_running_server,
    left_store,
    left_to_its_own_unit,
    lost_encryption_key,
    renamed_system_account,
    selinux_type,
    storage,
    store_of_newer_version,
    unreachable_streams,
)
from .login_rules import (
    auth_callout,
    first_accounts,
    no_auth_user,
    own_users_behind_proxy,
    passwords,
    system_account,
    users,
)
from .network_rules import (
    advertised,
    certificates,
    certificates_of_clients,
    cluster_on_loopback,
    compression,
    hub,
    lame_duck,
    leafnodes,
    listeners,
    monitoring,
    mqtt_and_websocket,
    payload,
    port_collisions,
    remotes,
    route_credentials,
    route_pool,
    routes,
)
from .schema import SCHEMA, Key, similar_key
from .syntax import Path, identity, show


def config_problems(config: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> list[ConfigProblem]:
    """Return `[{severity, option, message}]`, errors first; severity is error or warning, option a path of the configuration."""
    case, notes = make_case(config, context or {})
    found = [(error if note.is_error else warning)(show(note.path), note.text) for note in notes]
    for rule in RULES:
        found += rule(case)
    return sorted(found, key=lambda problem: problem["severity"] != "error")


def unknown_keys(case: Case) -> Iterator[ConfigProblem]:
    """Keys must be in the schema and supported by this version."""
    for path, parent, name in _keys(case.config, SCHEMA, ()):
        key = parent.child(name)
        option = show((*path, name))
        if key is None:
            near = similar_key(name, parent.names)
            hint = f"; the nearest known key is {near}" if near else ""
            yield warning(option, f"is not a known key here{hint}. nats-server rejects unknown keys")
        elif case.version and not supports(key.since, case.version):
            first = " or ".join(key.since)
            yield error(option, f"needs nats-server {first} or newer, the version is {case.version}")
    if "consumer_replicas" in (case.block("mqtt") or {}):
        yield error("mqtt.consumer_replicas", "is deprecated, and nats-server -t rejects it: remove it")


def _keys(value: Any, key: Key | None, path: Path) -> Iterator[tuple[Path, Key, str]]:
    if key is None or not key.children:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _keys(item, key, (*path, identity(item, index, key)))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield path, key, name
            yield from _keys(item, key.child(name), (*path, name))


def names(case: Case) -> Iterator[ConfigProblem]:
    """Names must be set, must agree with each other, and must not contain spaces."""
    cluster, gateway = case.block("cluster"), case.block("gateway")
    for option, name in (
        ("server_name", case.config.get("server_name")),
        ("cluster.name", (cluster or {}).get("name")),
        ("gateway.name", (gateway or {}).get("name")),
    ):
        if name and re.search(r"\s", name):
            yield error(option, f"{name!r} contains white space, which nats-server rejects")
    if cluster is not None and case.jetstream is not None:
        if not case.config.get("server_name"):
            yield error(
                "server_name", "is required for JetStream in a cluster: it determines the identity of the Raft peer"
            )
        if not case.cluster_name:
            yield error("cluster.name", "is required for JetStream in a cluster")
    if cluster and gateway and cluster.get("name") and gateway.get("name") and cluster["name"] != gateway["name"]:
        yield error(
            "gateway.name", f"{gateway['name']!r} differs from cluster.name {cluster['name']!r}; they must be equal"
        )
    if gateway is not None:
        if not gateway.get("name"):
            yield error("gateway.name", "is required")
        if not gateway.get("port") and not gateway.get("listen"):
            yield error("gateway.port", "is required (7222 by convention)")
        for index, remote in enumerate(gateway.get("gateways") or []):
            if isinstance(remote, dict) and not (remote.get("url") or remote.get("urls")):
                yield error(f"gateway.gateways[{remote.get('name', index)}]", "has no url")


def domain(case: Case) -> Iterator[ConfigProblem]:
    """A domain is one token of a subject, and is required if leafnodes extend the cluster."""
    name = (case.jetstream or {}).get("domain")
    if name and re.search(r"[.*>\s]", name):
        yield error("jetstream.domain", f"{name!r} may not contain '.', '*', '>' or white space")
    if case.jetstream is not None and case.block("leafnodes") is not None and not name:
        yield warning(
            "jetstream.domain",
            "set a domain when leafnodes are used, or both sides may treat each other as one cluster",
        )


def jetstream_options(case: Case) -> Iterator[ConfigProblem]:
    """Check values that nats-server checks only when it starts."""
    block = case.jetstream or {}
    hint = block.get("extension_hint")
    if hint and hint.lower() not in ("will_extend", "no_extend"):
        yield error("jetstream.extension_hint", f"{hint!r} is neither will_extend nor no_extend")
    if block.get("prev_encryption_key") and not block.get("encryption_key"):
        yield error("jetstream.prev_encryption_key", "has no effect without jetstream.encryption_key")
    if block.get("store_dir") and case.config.get("store_dir"):
        yield error("store_dir", "is set at the top level and in jetstream; nats-server accepts only one")


def unique_tag(case: Case) -> Iterator[ConfigProblem]:
    """unique_tag must be the same on all JetStream servers and match a tag of each of them."""
    if case.jetstream is None:
        return
    wanted = {str(member["unique_tag"]) for member in case.meta_members if member.get("unique_tag")}
    without = [m["server_name"] for m in case.meta_members if wanted and not m.get("unique_tag")]
    if len(wanted) > 1 or without:
        said = ", ".join(f"{m['server_name']} {m.get('unique_tag') or 'none'}" for m in case.meta_members)
        yield error("jetstream.unique_tag", f"must be the same on all JetStream servers, but is: {said}")
    prefix = case.jetstream.get("unique_tag")
    tags = [str(tag).lower() for tag in case.config.get("server_tags") or []]
    if prefix and not any(tag.startswith(str(prefix).strip().lower()) for tag in tags):
        yield error(
            "jetstream.unique_tag", f"no tag of this server begins with {prefix!r}, so no stream could be placed on it"
        )


def membership(case: Case) -> Iterator[ConfigProblem]:
    """Check the members' names, their number, and that the number of JetStream servers is odd."""
    for name, count in Counter(member["server_name"] for member in case.members).items():
        if count > 1:
            hosts = ", ".join(member["host"] for member in case.members if member["server_name"] == name)
            yield error("server_name", f"{name!r} is the name of several servers: {hosts}")
        if re.search(r"\s", name):
            yield error("server_name", f"{name!r} contains white space")
    if case.cluster_size is not None and case.members and len(case.members) != case.cluster_size:
        yield error(
            "nats_server_cluster_size",
            f"is {case.cluster_size}, but the inventory has {len(case.members)} members: it may be incomplete, or a "
            "host may be missing",
        )
    if case.block("cluster") is not None and (not case.has_gateway or case.supercluster):
        option = "nats_server_supercluster_groups" if case.supercluster else "nats_server_cluster_members"
        yield from _quorum(option, len(case.meta_members))


def _quorum(option: str, servers: int) -> Iterator[ConfigProblem]:
    if not servers:
        return
    quorum = servers // 2 + 1
    if servers < 3:
        yield warning(
            option, f"{servers} JetStream servers do not survive the loss of one (quorum {quorum}): use at least 3"
        )
    elif servers % 2 == 0:
        yield warning(
            option,
            f"{servers} JetStream servers need {quorum} for a quorum and survive the loss of only {servers - quorum}, as "
            f"{servers - 1} servers would; if a network partition splits them in half, neither half has a quorum. Add one "
            "(a small arbiter that holds no streams is enough: nats_server_arbiter) or leave one out",
        )


def loss_of_a_site(case: Case) -> Iterator[ConfigProblem]:
    """Check whether the meta group survives the loss of each cluster of a supercluster, and of each zone of a cluster."""
    servers = case.meta_members
    quorum = len(servers) // 2 + 1
    sites = [("cluster", str(member.get("cluster"))) for member in case.supercluster if member.get("jetstream")]
    if len(servers) >= 3:
        zones = [member for member in servers if member.get("zone")]
        sites += [("zone", f"{member['zone']} of {member.get('cluster')}") for member in zones]
    for (kind, name), count in Counter(sites).items():
        left = len(servers) - count
        if left < quorum and (kind == "cluster" or count > 1):
            option = "nats_server_supercluster_groups" if kind == "cluster" else "nats_server_zone"
            yield warning(
                option,
                f"the loss of the {kind} {name} ({count} of {len(servers)} JetStream servers) leaves {left}, fewer than the "
                f"quorum of {quorum}: until it returns nothing can be created, changed or moved, in any cluster. "
                "Spread the "
                f"servers over at least three {kind}s; one with only an arbiter (nats_server_arbiter) is enough",
            )


def small_clusters(case: Case) -> Iterator[ConfigProblem]:
    """All replicas of a stream are in one cluster, even in a supercluster, so each cluster needs enough servers."""
    servers = Counter(
        str(one.get("cluster")) for one in case.supercluster if one.get("jetstream") and not one.get("arbiter")
    )
    for name, count in servers.items():
        if count < 3:
            yield warning(
                "nats_server_supercluster_groups",
                f"the cluster {name} has {count} JetStream server{'s' if count > 1 else ''}: a stream there has at most as many "
                "replicas, which do not survive the loss of a server. Use three",
            )


def zones(case: Case) -> Iterator[ConfigProblem]:
    """With unique_tag, a stream has at most one replica in each zone, and none on a server without a zone."""
    members = [member for member in case.jetstream_members if not member.get("arbiter")]
    written = {str(member["zone"]) for member in members if member.get("zone")}
    named = {zone.strip().lower() for zone in written}
    if case.jetstream is None or not case.jetstream.get("unique_tag") or not named:
        return
    if len(named) < len(written):
        yield error(
            "nats_server_zone",
            f"{', '.join(sorted(written))}: nats-server reads tags in lower case, so some of these zones are the same. Write "
            "each zone consistently",
        )
    without = sorted(member["server_name"] for member in members if not member.get("zone"))
    if without:
        yield error("nats_server_zone", f"is not set for {', '.join(without)}: no stream could be placed there")
    if len(named) < min(3, len(members)):
        yield warning(
            "nats_server_zone",
            f"the {len(members)} servers are in {len(named)} zones ({', '.join(sorted(named))}): with jetstream.unique_tag a "
            f"stream has at most one replica in a zone, so more than {len(named)} replicas are refused",
        )


RULES: tuple[Callable[[Case], Iterator[ConfigProblem]], ...] = (
    unknown_keys,
    extra_files,
    names,
    selinux_type,
    left_to_its_own_unit,
    drop_ins_of_others,
    identity_of_running_server,
    foreign_store,
    store_of_newer_version,
    left_store,
    renamed_system_account,
    unreachable_streams,
    lost_encryption_key,
    membership,
    loss_of_a_site,
    small_clusters,
    zones,
    port_collisions,
    cluster_on_loopback,
    advertised,
    route_pool,
    routes,
    route_credentials,
    certificates,
    certificates_of_clients,
    listeners,
    monitoring,
    lame_duck,
    payload,
    compression,
    storage,
    domain,
    jetstream_options,
    unique_tag,
    system_account,
    users,
    auth_callout,
    own_users_behind_proxy,
    first_accounts,
    passwords,
    no_auth_user,
    mqtt_and_websocket,
    leafnodes,
    remotes,
    hub,
)
