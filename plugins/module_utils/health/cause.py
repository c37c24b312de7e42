# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root cause, the kinds of root causes, and the context from which they are derived. Pure: no I/O."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..nats.model import Cluster
from ..problem import ERROR, Problem
from ..screen import printable
from ..units import counted, human_bytes
from .raft_features import proposes_delete_ranges
from .raft_silence import raft_silent_servers

#: The kinds of causes, most fundamental first.
UNREACHABLE = "cluster_unreachable"
SITE_DOWN = "site_down"
SERVERS_DOWN = "servers_down"
MAINTENANCE = "maintenance"
STORAGE = "storage"
VERSION_DEFECT = "version_defect"
ROUTES_CUT = "routes_cut"
META = "meta_group"
SERVER_FAULT = "server_fault"
ASSET_FAULT = "asset_fault"
CATCHING_UP = "catching_up"
MEMBERSHIP = "membership"
REQUEST = "request"
UNKNOWN = "unknown"
KINDS = (
    UNREACHABLE,
    SITE_DOWN,
    SERVERS_DOWN,
    MAINTENANCE,
    STORAGE,
    VERSION_DEFECT,
    ROUTES_CUT,
    META,
    SERVER_FAULT,
    ASSET_FAULT,
    CATCHING_UP,
    MEMBERSHIP,
    REQUEST,
    UNKNOWN,
)
#: Causes that an operator must remove, because waiting does not fix them.
STUCK = frozenset({SITE_DOWN, SERVERS_DOWN, MAINTENANCE, STORAGE, VERSION_DEFECT})
#: Percentage of a store's file system in use from which the disk counts as the cause of a stopped JetStream.
DISK_FULL = 95
#: Percentage from which a JetStream limit counts as reached: a message of 1 MiB no longer fits.
LIMIT_REACHED = 95
#: Maximum number of names in a line.
_NAMES_SHOWN = 4
#: HEALTHZ errors of servers that have no meta leader or lag behind it (monitor.go healthz).
META_WORDS = ("meta leader", "meta layer")


@dataclass(frozen=True)
class ClusterContext:
    """The state of the cluster apart from its problems. The keys of each map are server names, and each map contains
    only known values.

    `answered`: the servers that responded. `clusters`: the cluster of each server, including servers that do not
    respond. `silence`: seconds since each server's last contact with the meta leader. `raft_silent`: servers that
    answer requests while a leader receives nothing from them. `hosts`: a description of the state of each server's
    host, such as "its host cannot be reached". `disks`: percentage of the file system of each server's store that is in
    use. `stopping`: the servers to be stopped. `maintenance`: the servers in maintenance, each with a description.
    `delete_ranges`: whether servers may write Raft entries that make members before 2.14 panic. `nameless`: the Raft
    IDs of members with unknown names. `limits`: a description of the usage of each server that has reached a JetStream
    limit; `confined`: the streams and consumers that cannot write, because too many members are on such servers.
    `in_steps`: the command that stops fewer servers at a time; `moving_first`: the command that first moves single
    replicas off the servers. `inventory`: the sources that the printed commands name."""

    answered: frozenset[str] = frozenset()
    clusters: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    silence: Mapping[str, float] = field(default_factory=dict)
    raft_silent: frozenset[str] = frozenset()
    hosts: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, int] = field(default_factory=dict)
    stopping: frozenset[str] = frozenset()
    maintenance: Mapping[str, str] = field(default_factory=dict)
    delete_ranges: bool = False
    nameless: frozenset[str] = frozenset()
    limits: Mapping[str, str] = field(default_factory=dict)
    confined: frozenset[str] = frozenset()
    inventory: tuple[str, ...] = ()
    in_steps: str = "ansible-playbook natsops.jetstream.restart  # restarts them batch by batch"
    moving_first: str = (
        "ansible-playbook natsops.jetstream.restart -e nats_cluster_gate_r1_policy=move  # moves them first"
    )


#: The ends of the codes of problems of groups without a quorum.
_NO_QUORUM = ("_no_leader", "_no_quorum", "_leader_disputed")


@dataclass(frozen=True)
class RootCause:
    """One cause with its symptoms. `age`: seconds since the cause was first seen, None if unknown. `commands`: commands
    to run, in this order. `assets`: the faulty streams and consumers, if the fault is their own. `lasting`: waiting
    does not fix this cause, although it would fix others of its kind."""

    kind: str
    title: str
    problems: tuple[Problem, ...]
    servers: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    age: float | None = None
    assets: tuple[str, ...] = ()
    lasting: bool = False

    @property
    def severity(self) -> str:
        """Return the severity of the worst problem of this cause."""
        return ERROR if any(problem.severity == ERROR for problem in self.problems) else self.problems[0].severity

    @property
    def stuck(self) -> bool:
        """Return whether an operator must act."""
        return (self.lasting or self.kind in STUCK) and self.severity == ERROR

    @property
    def evidence(self) -> list[str]:
        """Return the messages of the cause's problems, starting with one of each kind: the first, those without a quorum,
        the others."""
        first = {problem.code: problem for problem in reversed(self.problems)}
        others = [problem.message for problem in self.problems if first[problem.code] is not problem]
        kinds = list(dict.fromkeys(problem.code for problem in self.problems))
        kinds[1:] = sorted(kinds[1:], key=lambda code: not code.endswith(_NO_QUORUM))
        return [first[code].message for code in kinds] + others

    def as_dict(self, evidence: int = 3) -> dict[str, Any]:
        """Return the cause for a module's result, with at most this many messages of its problems."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "title": printable(self.title),
            "servers": list(self.servers),
            "assets": list(self.assets[:evidence]),
            "counts": dict(Counter(problem.code for problem in self.problems)),
            "age": self.age,
            "evidence": self.evidence[:evidence],
            "commands": list(self.commands),
        }


def build_context(
    cluster: Cluster | None,
    clusters: Mapping[str, str],
    stopping: Iterable[str] = (),
    maintenance: Mapping[str, str] | None = None,
    inventory: Iterable[str] = (),
) -> ClusterContext:
    """Return the `ClusterContext` of a cluster that was queried. `clusters`: the cluster to which each expected server should
    belong. `inventory`: the sources of Ansible's inventory."""
    sources = inventory_sources(inventory)
    if cluster is None:
        return ClusterContext(
            clusters=clusters, stopping=frozenset(stopping), maintenance=maintenance or {}, inventory=sources
        )
    peers = cluster.meta.group.peers if cluster.meta else ()
    limits = {}
    for server in cluster.servers:
        if server.summary:
            limits[server.name] = limit_reached(server.summary.__dict__)
    limits = {name: text for name, text in limits.items() if text}
    return ClusterContext(
        answered=cluster.names,
        clusters={**clusters, **{server.name: server.cluster for server in cluster.servers}},
        versions={server.name: server.version for server in cluster.servers},
        silence={peer.name: peer.active for peer in peers},
        raft_silent=frozenset(raft_silent_servers(cluster)),
        stopping=frozenset(stopping),
        maintenance=maintenance or {},
        delete_ranges=proposes_delete_ranges(cluster),
        nameless=cluster.nameless,
        inventory=sources,
        limits=limits,
        confined=_confined(((group.subject, group.members, group.quorum) for group in cluster.groups()), limits),
    )


def scene_of_info(info: Mapping[str, Any], **known: Any) -> ClusterContext:
    """Return the `ClusterContext` for a result of nats_cluster_info. `known`: further fields."""
    servers = info.get("servers") or ()
    limits = {server["name"]: limit_reached(server.get("js") or {}) for server in servers}
    limits = {name: text for name, text in limits.items() if text}
    groups = []
    for stream in (info.get("streams") or ()) if limits else ():
        path = f"{stream['account_name']}/{stream['name']}"
        groups.append((f"stream {path}", stream["members"], stream["quorum"]))
        for consumer in stream.get("consumers") or ():
            groups.append((f"consumer {path}/{consumer['name']}", consumer["members"], consumer["quorum"]))
    return ClusterContext(
        answered=frozenset(server["name"] for server in servers),
        clusters={server["name"]: server.get("cluster", "") for server in servers},
        versions={server["name"]: server.get("version", "") for server in servers},
        silence={peer["name"]: peer["active"] for peer in (info.get("meta") or {}).get("replicas") or ()},
        raft_silent=frozenset(info.get("raft_silent") or ()),
        nameless=frozenset(info.get("nameless") or ()),
        limits=limits,
        confined=_confined(groups, limits),
        **known,
    )


def inventory_sources(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the sources of the inventory that a command must name: all but Ansible's default."""
    return tuple(source for source in sources if source != "/etc/ansible/hosts")


def with_inventory(command: str, sources: Iterable[str]) -> str:
    """Return a command that can be copied: with `-i` if it runs a playbook."""
    program, _space, rest = command.partition(" ")
    named = " ".join(f"-i {shlex.quote(source)}" for source in sources)
    if program != "ansible-playbook" or not named:
        return command
    playbook, space, options = rest.partition(" ")
    return f"{program} {playbook} {named}{space}{options}"


def limit_reached(js: Mapping[str, Any]) -> str:
    """Return the JetStream limit that a server has reached, such as "13 MB of 12 MB file storage", or an empty text.
    `js`: as in the result of nats_cluster_info."""
    for used, limit, what in (
        ("storage", "max_storage", "file storage"),
        ("memory", "max_memory", "memory storage"),
    ):
        most = js.get(limit) or 0
        if most > 0 and js.get(used, 0) >= most * LIMIT_REACHED / 100:
            return f"{human_bytes(js[used])} of {human_bytes(most)} {what}"
    return ""


def _confined(groups: Iterable[tuple[str, Collection[str], int]], limits: Mapping[str, str]) -> frozenset[str]:
    """Return the groups (subject, members, quorum) that lose their quorum because members are on servers at their
    limit."""
    if not limits:
        return frozenset()
    return frozenset(
        subject for subject, members, quorum in groups if len(limits.keys() & set(members)) > len(members) - quorum
    )


class Unexplained:
    """The problems that have not been assigned to a cause yet."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._left = list(problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._left)

    def take(self, fits: Callable[[Problem], bool]) -> tuple[Problem, ...]:
        """Remove and return the matching problems in order, so later causes do not get them."""
        taken: list[Problem] = []
        left: list[Problem] = []
        for problem in self._left:
            (taken if fits(problem) else left).append(problem)
        self._left = left
        return tuple(taken)


#: Servers that are in a different place than in the inventory. Waiting does not correct a wrong cluster name.
MISPLACED = ("server_unexpected", "server_duplicate", "server_wrong_cluster")


def explained_by(names: Collection[str], left: Iterable[Problem]) -> Callable[[Problem], bool]:
    """Return whether the absence of these servers explains a problem: the problem concerns only them, or its group
    lacks them. A meta group that lacks these servers also explains why other servers have no meta leader."""
    leaderless = any(problem.code.startswith("meta_no_") and set(problem.absent) & set(names) for problem in left)

    def fits(problem: Problem) -> bool:
        if not names or problem.code in (*MISPLACED, "gateway_missing") or problem.code.endswith("_ghost"):
            return False
        if leaderless and problem.code == "server_unhealthy" and says(problem, META_WORDS):
            return True
        return bool(problem.servers and set(problem.servers) <= set(names)) or bool(set(problem.absent) & set(names))

    return fits


def says(problem: Problem, words: Iterable[str]) -> bool:
    return problem.code in ("server_unhealthy", "stream_unhealthy", "consumer_unhealthy") and any(
        word in problem.message for word in words
    )


def with_symptoms(what: str, problems: Iterable[Problem]) -> str:
    text = symptoms(problems)
    return f"{what}: {text}" if text else what


def symptoms(problems: Iterable[Problem]) -> str:
    """Return a summary of the problems' effects on the groups, such as "411 streams and 402 consumers have no quorum,
    590 miss a replica", or an empty text if there are none."""
    lost: dict[str, None] = {}
    missed: dict[str, None] = {}
    stop: dict[str, None] = {}
    unready: dict[str, None] = {}
    for problem in problems:
        if problem.code.endswith(_NO_QUORUM):
            lost[problem.subject] = None
        elif problem.code.endswith(("_replica_behind", "_replica_count")):
            missed[problem.subject] = None
        elif problem.code == "stop_breaks_quorum":
            stop[problem.subject] = None
        elif problem.code.endswith(("_moving", "_unhealthy")) and not problem.code.startswith("server_"):
            unready[problem.subject] = None
    parts = []
    if lost:
        parts.append(f"{unexplained_groups(lost)} {'has' if len(lost) == 1 else 'have'} no quorum")
    missed = {subject: None for subject in missed if subject not in lost}
    if missed:
        what = str(len(missed)) if lost and len(missed) > 1 else unexplained_groups(missed)
        parts.append(f"{what} {'misses' if len(missed) == 1 else 'miss'} a replica")
    unready = {subject: None for subject in unready if subject not in lost and subject not in missed}
    if unready:
        parts.append(f"{unexplained_groups(unready)} not ready")
    stop = {subject: None for subject in stop if subject not in lost}
    if stop:
        parts.append(f"the stop would take the quorum of {unexplained_groups(stop)}")
    return ", ".join(parts)


def unexplained_groups(subjects: Iterable[str]) -> str:
    """Return the groups as text: by name if there are few, otherwise their number."""
    found = list(dict.fromkeys(subjects))
    if len(found) <= 2:
        return " and ".join("the meta group" if subject == "meta group" else subject for subject in found)
    counts = Counter(subject.partition(" ")[0] for subject in found)
    parts = ["the meta group"] if counts.pop("meta", 0) else []
    parts += [counted(counts.pop(kind), kind) for kind in ("stream", "consumer") if kind in counts]
    parts += [counted(sum(counts.values()), "other")] if counts else []
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def joined_names(names: Iterable[str]) -> str:
    """Return the names as text; only the first few of a long list."""
    found = sorted(set(names))
    if len(found) > _NAMES_SHOWN:
        return f"{', '.join(found[: _NAMES_SHOWN - 1])} and {len(found) - _NAMES_SHOWN + 1} more"
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
