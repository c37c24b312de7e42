# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root causes of a cluster's problems: thousands of symptoms grouped under a few causes. Pure.

Two dead servers cause hundreds of streams without a quorum and hundreds of missing replicas. `root_causes` puts each
problem under exactly one cause, the most fundamental first, with its remedy; `cause_lines` writes them on one screen.
The health gate, the restart plan, the diagnosis, the report and the event sources use these functions, each with its
own `Scene`."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.health.raft_features import proposes_delete_ranges
from ansible_collections.natsops.jetstream.plugins.module_utils.health.raft_silence import raft_silent_servers
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import NEVER_HEARD, Cluster
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.server_versions import (
    RAFT_SILENT,
    RESTORED_UNHEALTHY,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import MAX_FAIL_LINES, MAX_LINES, cut, printable
from ansible_collections.natsops.jetstream.plugins.module_utils.units import counted, human_bytes

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

#: Number of messages shown for a cause if not all of them fit.
_EXAMPLES = 4
#: Maximum number of names in a line.
_NAMES_SHOWN = 4

#: HEALTHZ errors caused by the storage (filestore.go, jetstream_errors_generated.go).
_STORAGE_WORDS = ("no space left", "out of space", "insufficient storage", "insufficient resources", "write error")
#: HEALTHZ errors of servers that have no meta leader or lag behind it (monitor.go healthz).
_META_WORDS = ("meta leader", "meta layer")
#: HEALTHZ errors of a server that is reading its store after a start.
_RECOVERING_WORDS = ("still recovering",)


@dataclass(frozen=True)
class Scene:
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
    replicas off the servers."""

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
    in_steps: str = "ansible-playbook natsops.jetstream.restart  # restarts them batch by batch"
    moving_first: str = (
        "ansible-playbook natsops.jetstream.restart -e nats_cluster_gate_r1_policy=move  # moves them first"
    )


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
        """Return the messages of the cause's problems, starting with one of each kind."""
        first = {problem.code: problem for problem in reversed(self.problems)}
        others = [problem.message for problem in self.problems if first[problem.code] is not problem]
        return [first[code].message for code in dict.fromkeys(problem.code for problem in self.problems)] + others

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


def build_scene(
    cluster: Cluster | None,
    clusters: Mapping[str, str],
    stopping: Iterable[str] = (),
    maintenance: Mapping[str, str] | None = None,
) -> Scene:
    """Return the `Scene` of a cluster that was queried. `clusters`: the cluster to which each expected server should
    belong."""
    if cluster is None:
        return Scene(clusters=clusters, stopping=frozenset(stopping), maintenance=maintenance or {})
    peers = cluster.meta.group.peers if cluster.meta else ()
    limits = {}
    for server in cluster.servers:
        if server.summary:
            limits[server.name] = limit_reached(server.summary.__dict__)
    limits = {name: text for name, text in limits.items() if text}
    return Scene(
        answered=cluster.names,
        clusters={**clusters, **{server.name: server.cluster for server in cluster.servers}},
        versions={server.name: server.version for server in cluster.servers},
        silence={peer.name: peer.active for peer in peers},
        raft_silent=frozenset(raft_silent_servers(cluster)),
        stopping=frozenset(stopping),
        maintenance=maintenance or {},
        delete_ranges=proposes_delete_ranges(cluster),
        nameless=cluster.nameless,
        limits=limits,
        confined=_confined(((group.subject, group.members, group.quorum) for group in cluster.groups()), limits),
    )


def scene_of_info(info: Mapping[str, Any], **known: Any) -> Scene:
    """Return the `Scene` for a result of nats_cluster_info. `known`: further fields."""
    servers = info.get("servers") or ()
    limits = {server["name"]: limit_reached(server.get("js") or {}) for server in servers}
    limits = {name: text for name, text in limits.items() if text}
    groups = []
    for stream in (info.get("streams") or ()) if limits else ():
        path = f"{stream['account_name']}/{stream['name']}"
        groups.append((f"stream {path}", stream["members"], stream["quorum"]))
        for consumer in stream.get("consumers") or ():
            groups.append((f"consumer {path}/{consumer['name']}", consumer["members"], consumer["quorum"]))
    return Scene(
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


def parse_problem(data: Mapping[str, Any]) -> Problem:
    """Return the problem that a result contains as a dictionary."""
    return Problem(
        data["code"],
        data["severity"],
        data["subject"],
        data["message"],
        tuple(data.get("servers") or ()),
        absent=tuple(data.get("absent") or ()),
    )


def root_causes(problems: Sequence[Problem], scene: Scene) -> list[RootCause]:
    """Return the causes of the problems; each problem belongs to exactly one cause. Causes with errors come first, then
    the most fundamental."""
    left = _Unexplained(problems)
    causes = [cause for find in _FINDERS for cause in find(left, scene)]
    causes.sort(key=lambda cause: (cause.severity != ERROR, KINDS.index(cause.kind)))
    return causes


def cause_lines(causes: Sequence[RootCause], most: int = MAX_LINES) -> list[str]:
    """Return the causes for operators in at most this many lines: the title, the commands, and as much evidence as
    fits."""
    shown = list(causes)
    while len(shown) > 1 and sum(1 + len(_commands(cause)) for cause in shown) + (len(shown) < len(causes)) > most:
        shown.pop()
    rest = causes[len(shown) :]
    room = most - sum(1 + len(_commands(cause)) for cause in shown) - bool(rest)
    lines = []
    for number, cause in enumerate(shown, 1):
        lines.append(cut(f"{number}. {cause.title}"))
        # The title is not repeated as evidence.
        evidence = [message for message in cause.evidence if message != cause.title]
        fitting = evidence[: max(0, room if len(evidence) <= room else min(room, _EXAMPLES))]
        room -= len(fitting)
        lines += [cut(f"   - {message}") for message in fitting]
        lines += [cut(f"   $ {command}") for command in _commands(cause)]
    if rest:
        lines.append(cut(f"and {counted(len(rest), 'more cause')}: {'; '.join(cause.title for cause in rest)}"))
    return lines


def refusal(head: str, problems: Iterable[Problem], scene: Scene) -> str:
    """Return why an operation is refused: the root causes of the errors on one screen, or an empty text if there are no
    errors. `head`: the first line."""
    errors = [problem for problem in problems if problem.severity == ERROR]
    if not errors:
        return ""
    lines = cause_lines(root_causes(errors, scene), MAX_FAIL_LINES - 1)
    return "\n".join([head, *lines])


def _commands(cause: RootCause) -> tuple[str, ...]:
    return cause.commands[:2]


# --- finding the causes -----------------------------------------------------------------------------------------------


class _Unexplained:
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


def _unreachable(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    taken = left.take(lambda problem: problem.code in ("unreachable", "cluster_missing"))
    if taken:
        commands = ("ansible-playbook natsops.jetstream.diagnose", "systemctl status nats-server  # on each host")
        yield RootCause(UNREACHABLE, f"the cluster cannot be queried: {taken[0].message}", taken, commands=commands)


def _servers_down(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Servers that do not respond: expected servers, and members of groups that the groups' leaders report as missing.
    If all servers of one cluster of a supercluster are missing, the cause is that site."""
    down = {name for problem in left if problem.code == "server_missing" for name in problem.servers}
    if scene.answered:
        named = {name for problem in left for name in (*problem.absent, *_missed(problem))}
        down |= named - scene.answered
    down -= scene.maintenance.keys()
    if not down:
        return
    members: dict[str, set[str]] = {}
    for name, cluster in scene.clusters.items():
        members.setdefault(cluster, set()).add(name)
    sites = {
        cluster: names for cluster, names in members.items() if len(members) > 1 and len(names) > 1 and names <= down
    }
    for cluster, names in sorted(sites.items()):
        taken = left.take(_explained_by(names, left))
        if taken:
            what = f"no server of {cluster} answers ({_named(names)}): the site is down or unreachable"
            yield _down(SITE_DOWN, what, names, taken, scene)
    single = down.difference(*sites.values(), scene.nameless)
    taken = left.take(_explained_by(single, left))
    if taken:
        what = f"{_named(single)} {'does' if len(single) == 1 else 'do'} not answer"
        yield _down(SERVERS_DOWN, what, single, taken, scene)
    unknown = down & scene.nameless
    taken = left.take(_explained_by(unknown, left))
    if taken:
        what = f"{counted(len(unknown), 'member')} without a known name (id {_named(unknown)}) are not answering"
        option = shlex.quote(f"peer_id={min(unknown)}")
        commands = (
            "ansible-inventory --graph  # was a server renamed, or is one missing? Bring it back under its old name",
            f"ansible localhost -m natsops.jetstream.nats_meta_peer -a {option}  # only if it never comes back",
        )
        yield RootCause(SERVERS_DOWN, _with_symptoms(what, taken), taken, (), commands)


def _renamed(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Servers that are not members of the meta group recorded in their own stores: they were started under different
    names."""
    outsiders = {name for problem in left if problem.code == "meta_outsider" for name in problem.servers}
    if not outsiders:
        return
    fits = _explained_by(scene.nameless | outsiders, left)
    taken = left.take(lambda problem: problem.code == "meta_outsider" or fits(problem))
    verb = "is not a member" if len(outsiders) == 1 else "are not members"
    what = f"{_named(outsiders)} {verb} of the meta group in their own store: its members have other names"
    commands = (
        "ansible-playbook natsops.jetstream.deploy  # with the old nats_server_name of each host: Raft ids derive "
        "from the names",
        "ansible-playbook natsops.jetstream.diagnose",
    )
    yield RootCause(META, _with_symptoms(what, taken), taken, tuple(sorted(outsiders)), commands, lasting=True)


def _duplicates(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Servers that share a name, and so the identity of one Raft peer: each acknowledges entries on behalf of the
    other."""
    taken = left.take(lambda problem: problem.code == "server_duplicate")
    if taken:
        names = tuple(sorted({problem.subject for problem in taken}))
        title = taken[0].message if len(taken) == 1 else f"several servers are named {_named(names)}"
        commands = (
            "systemctl stop nats-server  # at once, on the host that is not in the inventory: both act as the same "
            "Raft peer",
            "ansible-playbook natsops.jetstream.report -e report=servers  # compare with: ansible-inventory --graph",
        )
        yield RootCause(MEMBERSHIP, title, taken, names, commands, lasting=True)


def _joined(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Servers of a different cluster that a route connected: they have a separate meta group, or have joined this one,
    whose leader then deletes all streams unknown to it."""
    foreign_servers = {name for problem in left if problem.code == "meta_group_foreign" for name in problem.servers}
    joined = {problem.servers[0] for problem in left if problem.code == "meta_peer_unexpected"}
    joined &= {problem.subject for problem in left if problem.code == "server_unexpected"}
    if not foreign_servers and len(joined) < 2:
        return
    names = foreign_servers | joined
    fits = _explained_by(names, left)
    taken = left.take(
        lambda problem: (
            problem.code in ("meta_group_foreign", "meta_size")
            or problem.code.endswith("_leader_disputed")
            or (problem.code == "server_unexpected" and problem.subject in names)
            or fits(problem)
        )
    )
    what = f"{_named(names)} have joined but are not in the inventory"
    if foreign_servers or any(problem.code.endswith("_leader_disputed") for problem in taken):
        what = (
            f"two clusters were connected: {_named(names)} {'has' if len(names) == 1 else 'have'} a different meta "
            "group"
        )
    commands = (
        "ansible-playbook natsops.jetstream.deploy  # if a route connected them: at once, before streams are deleted "
        "as orphans",
        "ansible-inventory --graph  # add the hosts that are missing",
    )
    yield RootCause(META, _with_symptoms(what, taken), taken, tuple(sorted(names)), commands, lasting=True)


def _isolated(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Servers that respond only at their own address, with the reason if it is known."""
    found = [problem for problem in left if problem.code == "server_isolated"]
    if not found:
        return
    names = {problem.subject for problem in found}
    taken = left.take(_explained_by(names, left))
    title = found[0].message
    if len(found) > 1:
        title = f"{_named(names)} run, but are isolated from the other servers"
    commands = (f"journalctl -u nats-server -g 'route|TLS|cluster' -n 20  # on {_named(names)}", _ROUTE_COMMANDS[1])
    yield RootCause(ROUTES_CUT, _with_symptoms(title, taken), taken, tuple(sorted(names)), commands, lasting=True)


def _too_old(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Streams and consumers that require a newer version than one of their members runs."""
    taken = left.take(lambda problem: problem.code in ("stream_api_level", "consumer_api_level"))
    if not taken:
        return
    names = tuple(sorted({name for problem in taken for name in problem.servers}))
    assets = tuple(sorted({problem.subject for problem in taken}))
    title = taken[0].message
    if len(taken) > 1:
        verb = "is" if len(names) == 1 else "are"
        title = f"{_named(names)} {verb} too old for {_groups(assets)}"
    commands = (
        "ansible-playbook natsops.jetstream.upgrade  # all servers to the newest version among them",
        "ansible-playbook natsops.jetstream.report -e report=streams  # until then these servers should not lead any "
        "of them",
    )
    yield RootCause(VERSION_DEFECT, title, taken, names, commands, assets=assets)


def _maintenance(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Servers in maintenance, which is not a fault, and the effects of their absence."""
    taken = left.take(_explained_by(scene.maintenance.keys(), left))
    if not taken:
        return
    names = sorted(
        scene.maintenance.keys() & {name for problem in taken for name in (*problem.servers, *problem.absent)}
    )
    what = scene.maintenance[names[0]] if len(names) == 1 else f"{_named(names)} are in maintenance"
    commands = (
        f"ansible-playbook natsops.jetstream.maintenance_leave --limit {shlex.quote(','.join(names))}  # when the work is done",
        "ansible-playbook natsops.jetstream.maintenance_status",
    )
    yield RootCause(MAINTENANCE, _with_symptoms(what, taken), taken, tuple(names), commands)


_FINISH_THE_UPGRADE = (
    "ansible-playbook natsops.jetstream.upgrade  # if their log has 'Unknown group entry op type': a version before "
    "2.14 would panic at every start"
)


def _down(kind: str, what: str, names: Collection[str], taken: tuple[Problem, ...], scene: Scene) -> RootCause:
    states = sorted({scene.hosts[name] for name in names if name in scene.hosts})
    leaving = json.dumps({"nats_server_cluster_leaving": sorted(names)})
    commands = (
        f"systemctl status nats-server; journalctl -u nats-server -n 50  # on {_named(names)}",
        *([_FINISH_THE_UPGRADE] if scene.delete_ranges else []),
        "ansible-playbook natsops.jetstream.deploy  # starts stopped servers and corrects other differences",
        f"ansible-playbook natsops.jetstream.scale_in -e {shlex.quote(leaving)}  # only for servers that never come back",
    )
    title = f"{what}{f' ({states[0]})' if len(states) == 1 else ''}"
    return RootCause(kind, _with_symptoms(title, taken), taken, tuple(sorted(names)), commands, _silence(names, scene))


def _silence(names: Iterable[str], scene: Scene) -> float | None:
    """Return the seconds since the meta leader last received anything from these servers. None if that is unknown or
    never happened, or if the leader has just been elected, because a leader counts these seconds from its election."""
    known = [scene.silence[name] for name in names if name in scene.silence]
    return max((seconds for seconds in known if 1 <= seconds < NEVER_HEARD), default=None)


def _storage(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    refused = {problem.subject for problem in left if problem.code == "disk_full"}
    full = refused | {name for name, percent in scene.disks.items() if percent >= DISK_FULL}
    off = {problem.subject for problem in left if problem.code == "jetstream_disabled"}
    failing = {name for problem in left if _says(problem, _STORAGE_WORDS) for name in problem.servers}
    unwritten = {problem.subject for problem in left if _says(problem, _STORAGE_WORDS)}
    names = off | failing | {name for problem in left for name in problem.servers if name in full}
    if names:
        away = _explained_by(names & (off | full), left)
        failed = _explained_by(failing, left)
        taken = left.take(
            lambda problem: (
                problem.subject in off
                or _says(problem, _STORAGE_WORDS)
                or away(problem)
                or (problem.subject in unwritten and failed(problem))
            )
        )
        if taken:
            percents = [
                f"{name} {scene.disks[name]} %" if name in scene.disks else name for name in sorted(names & full)
            ]
            if percents:
                what = f"the disk is full ({_named(percents)})"
            elif failing:
                what = f"{_named(failing)} cannot write to the storage"
            else:
                what = f"JetStream is not running on {_named(off)} (out of storage, or disabled)"
            compare: tuple[str, ...] = ()
            if any(problem.code == "server_reconfigured" for problem in taken):
                what = f"JetStream is not running on {_named(off)} since its configuration changed"
                limit = shlex.quote(",".join(sorted(off)))
                compare = (
                    f"ansible-playbook natsops.jetstream.deploy --check --diff --limit {limit}  # is it enabled?",
                )
            commands = (
                *compare,
                f"df -h /var/lib/nats; journalctl -u nats-server -g 'space|storage|DISABLED' -n 20  # on {_named(names)}",
                "systemctl restart nats-server  # once there is space again: JetStream stays off until the restart",
            )
            yield RootCause(STORAGE, _with_symptoms(what, taken), taken, tuple(sorted(names)), commands)
    yield from _limit_reached(left, scene)


def _limit_reached(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Streams that cannot write because their servers have reached a JetStream limit, which stops their Raft groups."""
    taken = left.take(
        lambda problem: problem.subject in scene.confined and problem.code.startswith(("stream_", "consumer_"))
    )
    if not taken:
        return
    verb = "has" if len(scene.limits) == 1 else "have"
    what = f"{_named(scene.limits)} {verb} reached a limit of JetStream ({_named(scene.limits.values())})"
    commands = (
        "ansible-playbook natsops.jetstream.report -e report=jetstream,streams  # usage by stream: delete data, or "
        "lower limits",
        "ansible-playbook natsops.jetstream.deploy -e nats_server_jetstream_max_file_store=SIZE  # raise the limit, "
        "if the disk is large enough",
    )
    yield RootCause(STORAGE, _with_symptoms(what, taken), taken, tuple(sorted(scene.limits)), commands)


def _recovering(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Yield the cause for servers that are reading their streams after a start: leaders receive nothing from them yet,
    even if their routes and version are correct."""
    names = {problem.subject for problem in left if _says(problem, _RECOVERING_WORDS)}
    taken = left.take(_explained_by(names, left)) if names else ()
    if taken:
        verb, whose = ("recover", "their") if len(names) > 1 else ("recovers", "its")
        what = f"{_named(names)} {verb} {whose} streams after a start"
        commands = ("ansible-playbook natsops.jetstream.report -e report=servers  # repeat until it is healthy",)
        yield RootCause(CATCHING_UP, _with_symptoms(what, taken), taken, tuple(sorted(names)), commands)


def _raft_silent(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Servers that respond although their leaders receive nothing from them: the cause is a defect of their version if
    it has one, otherwise broken routes."""
    named = {name for problem in left for name in problem.absent}
    defective = {name for name in scene.raft_silent & named if RAFT_SILENT.affects(scene.versions.get(name, ""))}
    for kind, names in ((VERSION_DEFECT, defective), (ROUTES_CUT, set(scene.raft_silent & named) - defective)):
        taken = left.take(_explained_by(names, left)) if names else ()
        if not taken:
            continue
        many, commands = len(names) > 1, _ROUTE_COMMANDS
        if kind == VERSION_DEFECT:
            versions, fix = _named({scene.versions[name] for name in names}), RAFT_SILENT.fixed[0]
            what = (
                f"{_named(names)} {'are' if many else 'is'} raft-silent, a defect of nats-server {versions} (fixed in "
                f"{fix})"
            )
            commands = (
                f"systemctl restart nats-server  # on {_named(names)}, one after another",
                "ansible-playbook natsops.jetstream.upgrade",
            )
        else:
            verb, whom = ("answer", "them") if many else ("answers", "it")
            what = f"{_named(names)} {verb} requests, but leaders receive nothing from {whom}"
        title = _with_symptoms(what, taken)
        yield RootCause(kind, title, taken, tuple(sorted(names)), commands, _silence(names, scene))


_ROUTE_COMMANDS: tuple[str, ...] = (
    "ansible-playbook natsops.jetstream.diagnose  # lists every missing route and gateway connection",
    "ansible-playbook natsops.jetstream.deploy  # applies the routes and TLS of the inventory",
)


def _elections(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Groups that changed their leader between two samples, both with a leader."""
    taken = left.take(lambda problem: problem.code.endswith("_leader_changed"))
    if taken:
        title = taken[0].message
        if len(taken) > 1:
            title = f"{_groups(problem.subject for problem in taken)} have changed leaders since the last sample"
        commands = (
            "journalctl -u nats-server -g 'leader|Falling behind|WRN' -n 50  # on each host: unexpected elections",
            "ansible-playbook natsops.jetstream.report -e report=cpu  # a busy server misses heartbeats",
        )
        yield RootCause(ROUTES_CUT, title, taken, commands=commands)


def _routes_cut(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    gateways = left.take(lambda problem: problem.code == "gateway_missing")
    if gateways:
        names = sorted({problem.subject for problem in gateways})
        if len(gateways) == 1:
            title = gateways[0].message
        else:
            title = f"{counted(len(names), 'server')} ({_named(names)}) miss a gateway connection to another cluster"
        yield RootCause(ROUTES_CUT, title, gateways, tuple(names), _ROUTE_COMMANDS)
    disputed = left.take(lambda problem: problem.code.endswith("_leader_disputed"))
    if disputed:
        names = sorted({name for problem in disputed for name in problem.servers})
        what = "the servers disagree on the leader: routes between them are down, or an election is in progress"
        yield RootCause(ROUTES_CUT, _with_symptoms(what, disputed), disputed, tuple(names), _ROUTE_COMMANDS)


def _meta_group(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    leaderless = any(problem.code in ("meta_no_leader", "meta_no_quorum") for problem in left)
    taken = left.take(
        lambda problem: (
            problem.code in ("meta_no_leader", "meta_no_quorum")
            or (leaderless and problem.code == "server_unhealthy" and _says(problem, _META_WORDS))
        )
    )
    if taken:
        first = next((problem for problem in taken if problem.code.startswith("meta_")), taken[0])
        commands = ("ansible-playbook natsops.jetstream.diagnose", "nats server report jetstream")
        yield RootCause(META, first.message, taken, commands=commands)
    pending = left.take(lambda problem: problem.code == "meta_pending")
    if pending:
        look = ("ansible-playbook natsops.jetstream.report -e report=cpu",)
        yield RootCause(META, pending[0].message, pending, commands=look)


def _server_faults(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    taken = left.take(lambda problem: problem.code in ("server_unhealthy", "server_silent"))
    if not taken:
        return
    names = sorted({problem.subject for problem in taken})
    codes = {problem.code for problem in taken}
    if len(names) == 1:
        title = taken[0].message
    elif codes == {"server_silent"}:
        title = f"{_named(names)} answer only some requests: they have just started or are overloaded"
    else:
        title = f"{_named(names)} report themselves unhealthy"
    yield RootCause(SERVER_FAULT, title, taken, tuple(names), (_log_command(names),))


def _log_command(names: Iterable[str]) -> str:
    return f"journalctl -u nats-server -g 'WRN|ERR|FTL' -n 50  # on {_named(names)}"


def _ghosts(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    taken = left.take(lambda problem: problem.code.endswith("_ghost"))
    if taken:
        assets = sorted({problem.subject for problem in taken})
        verb = "is" if len(assets) == 1 else "are"
        what = f"{_named(assets)} {verb} in the meta group's log, but not on any server (this alone makes healthz fail)"
        servers = tuple(sorted({name for problem in taken for name in problem.servers}))
        yield RootCause(ASSET_FAULT, what, taken, servers, _remove(assets[0]), assets=tuple(assets))


def _asset(subject: str) -> tuple[str, str, str]:
    """Return the kind and the account of an asset, and its names as arguments of the nats CLI."""
    kind, _space, path = subject.partition(" ")
    account, *names = path.split("/")
    return kind, account, shlex.join(names)


def _remove(subject: str) -> tuple[str, ...]:
    kind, account, names = _asset(subject)
    return (
        f"nats {kind} info {names}  # as a user of account {account}: keep its configuration",
        f"nats {kind} rm {names}  # then recreate it from its configuration",
    )


def _restored(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Streams that healthz has reported as unhealthy since their restore, because of a defect in some versions."""

    taken = left.take(lambda problem: problem.code == "stream_restored")
    if taken:
        servers = tuple(sorted({name for problem in taken for name in problem.servers}))
        assets = sorted({problem.subject for problem in taken})
        fix = RESTORED_UNHEALTHY.fixed[0]
        what = f"healthz has reported {_named(assets)} unhealthy since the restore"
        title = f"{what}, a defect of their version (fixed in {fix})"
        commands = (
            f"ansible-playbook natsops.jetstream.restart  # of {_named(servers)}: the restart clears it",
            "ansible-playbook natsops.jetstream.upgrade",
        )
        yield RootCause(VERSION_DEFECT, title, taken, servers, commands, assets=tuple(assets))


def _unhealthy_assets(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Faults of streams and consumers whose members all respond and can be reached by their leaders."""
    taken = left.take(lambda problem: problem.code in ("stream_unhealthy", "consumer_unhealthy"))
    if taken:
        assets = sorted({problem.subject for problem in taken})
        servers = tuple(sorted({name for problem in taken for name in problem.servers}))
        title = f"{_named(assets)}: {_named(servers)} report unhealthy replicas"
        title = taken[0].message if len(taken) == 1 else title
        commands = (_log_command(servers), "ansible-playbook natsops.jetstream.diagnose")
        yield RootCause(ASSET_FAULT, title, taken, servers, commands, assets=tuple(assets))
    broken = {
        problem.subject
        for problem in left
        if problem.code in ("stream_no_leader", "consumer_no_leader") and not problem.absent
    }
    taken = left.take(
        lambda problem: problem.subject in broken and problem.code.endswith(("_no_leader", "stop_breaks_quorum"))
    )
    if taken:
        verb = "has" if len(broken) == 1 else "have"
        title = f"{_named(broken)} {verb} no leader although all members answer"
        kind, account, names = _asset(min(broken))
        commands = (
            f"nats {kind} info {names}  # as a user of account {account}",
            "ansible-playbook natsops.jetstream.diagnose",
        )
        yield RootCause(ASSET_FAULT, title, taken, commands=commands, assets=tuple(sorted(broken)))


def _different_replicas(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Yield the cause for replicas that have less data than their leader assumes; the leader will not send the missing
    data again."""
    taken = left.take(lambda problem: problem.code == "stream_replica_differs")
    if taken:
        names = tuple(sorted({name for problem in taken for name in problem.servers}))
        assets = tuple(sorted({problem.subject for problem in taken}))
        title = taken[0].message
        if len(taken) > 1:
            title = (
                f"replicas on {_named(names)} lack messages and make no progress, although their leaders count them as "
                "current"
            )
        commands = (
            f"journalctl -u nats-server -g 'failed|error|ERR' -n 50  # on {_named(names)}: a failed write or a lost "
            "store",
            "ansible-playbook natsops.jetstream.repair --check",
        )
        yield RootCause(ASSET_FAULT, title, taken, names, commands, assets=assets, lasting=True)


def _short_groups(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Yield the cause for groups that have fewer members than replicas and are not being moved: no server will be
    assigned the missing replica."""
    moving = {problem.subject for problem in left if problem.code.endswith("_moving")}
    taken = left.take(lambda problem: problem.code.endswith("_replica_count") and problem.subject not in moving)
    if taken:
        assets = tuple(sorted({problem.subject for problem in taken}))
        title = taken[0].message
        if len(assets) > 1:
            title = f"{_groups(assets)} have fewer members than replicas, and no replacement is under way"
        commands = (
            "ansible-playbook natsops.jetstream.repair --check  # the proposed repairs",
            "ansible-playbook natsops.jetstream.report -e report=streams",
        )
        yield RootCause(ASSET_FAULT, title, taken, commands=commands, assets=assets, lasting=True)


def _catching_up(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    behind = {name for problem in left if problem.code.endswith("_replica_behind") for name in problem.servers}
    codes = ("_replica_behind", "_replica_count", "_moving", "_no_quorum", "_no_leader")
    taken = left.take(
        lambda problem: (
            problem.code.endswith(codes)
            or (problem.code == "stop_breaks_quorum" and bool(behind.intersection(problem.absent)))
        )
    )
    if not taken:
        return
    where = f" on {_named(behind)}" if behind else ""
    title = _with_symptoms(f"replicas{where} catch up or move", taken)
    commands = ("ansible-playbook natsops.jetstream.report -e report=streams  # repeat: the lag must shrink",)
    yield RootCause(CATCHING_UP, title, taken, tuple(sorted(behind)), commands)


def _membership(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    taken = left.take(
        lambda problem: problem.code in _MISPLACED or problem.code.startswith(("meta_peer_", "meta_size"))
    )
    if taken:
        subjects = {name for problem in taken for name in problem.servers or (problem.subject,)}
        names = tuple(sorted(subjects - {"meta group"}))
        title = f"the inventory and the cluster differ: {_named(names) or 'in size'}"
        title = taken[0].message if len(taken) == 1 else title
        commands = ("ansible-playbook natsops.jetstream.report  # compare with: ansible-inventory --graph",)
        lasting = any(problem.code in _MISPLACED for problem in taken)
        yield RootCause(MEMBERSHIP, title, taken, names, commands, lasting=lasting)


#: Servers that are in a different place than in the inventory. Waiting does not correct a wrong cluster name.
_MISPLACED = ("server_unexpected", "server_duplicate", "server_wrong_cluster")


def _request(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    """Problems that concern only the requested stop or restart."""
    quorum = left.take(lambda problem: problem.code == "stop_breaks_quorum")
    if quorum:
        servers, groups = _named(scene.stopping) or "these servers", _groups(problem.subject for problem in quorum)
        what = f"stopping {servers} now would take the quorum of {groups}"
        commands = (scene.in_steps,)
        yield RootCause(REQUEST, what, quorum, tuple(sorted(scene.stopping)), commands)
    for codes, text in (
        (("stop_r1",), "have a single replica and are unavailable while {servers} is stopped"),
        (("roll_few_replicas",), "cannot keep a quorum while {servers} restarts"),
    ):
        single = left.take(lambda problem, codes=codes: problem.code in codes)  # type: ignore[misc]
        if single:
            held = sorted({name for problem in single for name in problem.servers})
            commands = (scene.moving_first,)
            what = f"{_groups(problem.subject for problem in single)} {text.format(servers=_named(held))}"
            yield RootCause(REQUEST, what, single, tuple(held), commands)
    others: dict[str, list[Problem]] = {}
    for problem in left.take(lambda problem: problem.code.startswith(("stop_", "roll_"))):
        others.setdefault(problem.code, []).append(problem)
    for found in others.values():
        more = f" (and {len(found) - 1} more of this kind)" if len(found) > 1 else ""
        named = sorted({name for problem in found for name in problem.servers})
        yield RootCause(REQUEST, f"{found[0].message}{more}", tuple(found), tuple(named))


def _unknown(left: _Unexplained, scene: Scene) -> Iterable[RootCause]:
    by_code: dict[str, list[Problem]] = {}
    for problem in left.take(lambda problem: True):
        by_code.setdefault(problem.code, []).append(problem)
    for found in by_code.values():
        more = f" (and {len(found) - 1} more of this kind)" if len(found) > 1 else ""
        servers = sorted({name for problem in found for name in problem.servers})
        commands = ("ansible-playbook natsops.jetstream.diagnose",)
        yield RootCause(UNKNOWN, f"{found[0].message}{more}", tuple(found), tuple(servers), commands)


_FINDERS: tuple[Callable[[_Unexplained, Scene], Iterable[RootCause]], ...] = (
    _unreachable,
    _renamed,
    _duplicates,
    _joined,
    _isolated,
    _servers_down,
    _maintenance,
    _storage,
    _recovering,
    _raft_silent,
    _elections,
    _routes_cut,
    _meta_group,
    _ghosts,
    _restored,
    _too_old,
    _unhealthy_assets,
    _server_faults,
    _different_replicas,
    _short_groups,
    _catching_up,
    _membership,
    _request,
    _unknown,
)


def _missed(problem: Problem) -> tuple[str, ...]:
    """Return the servers that a problem reports as missing."""
    return problem.servers if problem.code.endswith(("_replica_behind", "_peer_missing")) else ()


def _explained_by(names: Collection[str], left: Iterable[Problem]) -> Callable[[Problem], bool]:
    """Return whether the absence of these servers explains a problem: the problem concerns only them, or its group
    lacks them. A meta group that lacks these servers also explains why other servers have no meta leader."""
    leaderless = any(problem.code.startswith("meta_no_") and set(problem.absent) & set(names) for problem in left)

    def fits(problem: Problem) -> bool:
        if not names or problem.code in (*_MISPLACED, "gateway_missing") or problem.code.endswith("_ghost"):
            return False
        if leaderless and problem.code == "server_unhealthy" and _says(problem, _META_WORDS):
            return True
        return bool(problem.servers and set(problem.servers) <= set(names)) or bool(set(problem.absent) & set(names))

    return fits


def _says(problem: Problem, words: Iterable[str]) -> bool:
    return problem.code in ("server_unhealthy", "stream_unhealthy", "consumer_unhealthy") and any(
        word in problem.message for word in words
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def _with_symptoms(what: str, problems: Iterable[Problem]) -> str:
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
        if problem.code.endswith(("_no_leader", "_no_quorum", "_leader_disputed")):
            lost[problem.subject] = None
        elif problem.code.endswith(("_replica_behind", "_replica_count")):
            missed[problem.subject] = None
        elif problem.code == "stop_breaks_quorum":
            stop[problem.subject] = None
        elif problem.code.endswith(("_moving", "_unhealthy")) and not problem.code.startswith("server_"):
            unready[problem.subject] = None
    parts = []
    if lost:
        parts.append(f"{_groups(lost)} {'has' if len(lost) == 1 else 'have'} no quorum")
    missed = {subject: None for subject in missed if subject not in lost}
    if missed:
        what = str(len(missed)) if lost and len(missed) > 1 else _groups(missed)
        parts.append(f"{what} {'misses' if len(missed) == 1 else 'miss'} a replica")
    unready = {subject: None for subject in unready if subject not in lost and subject not in missed}
    if unready:
        parts.append(f"{_groups(unready)} not ready")
    stop = {subject: None for subject in stop if subject not in lost}
    if stop:
        parts.append(f"the stop would take the quorum of {_groups(stop)}")
    return ", ".join(parts)


def _groups(subjects: Iterable[str]) -> str:
    """Return the groups as text: by name if there are few, otherwise their number."""
    found = list(dict.fromkeys(subjects))
    if len(found) <= 2:
        return " and ".join("the meta group" if subject == "meta group" else subject for subject in found)
    counts = Counter(subject.partition(" ")[0] for subject in found)
    parts = ["the meta group"] if counts.pop("meta", 0) else []
    parts += [counted(counts.pop(kind), kind) for kind in ("stream", "consumer") if kind in counts]
    parts += [counted(sum(counts.values()), "other")] if counts else []
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _named(names: Iterable[str]) -> str:
    """Return the names as text; only the first few of a long list."""
    found = sorted(set(names))
    if len(found) > _NAMES_SHOWN:
        return f"{', '.join(found[: _NAMES_SHOWN - 1])} and {len(found) - _NAMES_SHOWN + 1} more"
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
