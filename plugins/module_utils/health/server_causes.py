# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root causes that lie with servers, their storage, their routes or the meta group. Pure: no I/O."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator

from ..nats.model import NEVER_HEARD
from ..nats.server_versions import RAFT_SILENT
from ..problem import Problem
from ..units import counted
from .cause import (
    CATCHING_UP,
    DISK_FULL,
    MAINTENANCE,
    MEMBERSHIP,
    META,
    META_WORDS,
    ROUTES_CUT,
    SERVER_FAULT,
    SERVERS_DOWN,
    SITE_DOWN,
    STORAGE,
    UNREACHABLE,
    VERSION_DEFECT,
    ClusterContext,
    RootCause,
    Unexplained,
    explained_by,
    joined_names,
    says,
    unexplained_groups,
    with_symptoms,
)
from .rules import DENIED

_START = "ansible-playbook natsops.jetstream.deploy  # starts stopped servers and corrects other differences"
#: Problems of a meta group without a majority.
_META_LOST = ("meta_no_leader", "meta_no_quorum")
#: Members that scale_in leaves (nats_cluster_min_servers).
_LEAST_MEMBERS = 3
#: HEALTHZ errors caused by the storage (filestore.go, jetstream_errors_generated.go).
_STORAGE_WORDS = ("no space left", "out of space", "insufficient storage", "insufficient resources", "write error")
#: HEALTHZ errors of a server that is reading its store after a start.
_RECOVERING_WORDS = ("still recovering",)


def unreachable(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    taken = left.take(lambda problem: problem.code in ("unreachable", "cluster_missing"))
    if taken:
        # Only diagnose reads the state of the hosts.
        first = _START if context.hosts else "ansible-playbook natsops.jetstream.diagnose"
        commands = (first, "systemctl status nats-server  # on each host")
        yield RootCause(UNREACHABLE, f"the cluster cannot be queried: {taken[0].message}", taken, commands=commands)


def servers_down(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Servers that do not respond: expected servers, and members of groups that the groups' leaders report as missing.
    If all servers of one cluster of a supercluster are missing, the cause is that site."""
    down = {name for problem in left if problem.code == "server_missing" for name in problem.servers}
    if context.answered:
        named = {name for problem in left for name in (*problem.absent, *_missed(problem))}
        down |= named - context.answered
    down -= context.maintenance.keys()
    if not down:
        return
    members: dict[str, set[str]] = {}
    for name, cluster in context.clusters.items():
        members.setdefault(cluster, set()).add(name)
    sites = {
        cluster: names for cluster, names in members.items() if len(members) > 1 and len(names) > 1 and names <= down
    }
    for cluster, names in sorted(sites.items()):
        taken = left.take(explained_by(names, left))
        if taken:
            what = f"no server of {cluster} answers ({joined_names(names)}): the site is down or unreachable"
            yield _down(SITE_DOWN, what, names, taken, context)
    single = down.difference(*sites.values(), context.nameless)
    taken = left.take(explained_by(single, left))
    if taken:
        what = f"{joined_names(single)} {'does' if len(single) == 1 else 'do'} not answer"
        yield _down(SERVERS_DOWN, what, single, taken, context)
    unknown = down & context.nameless
    taken = left.take(explained_by(unknown, left))
    if taken:
        what = f"{counted(len(unknown), 'member')} without a known name (id {joined_names(unknown)}) are not answering"
        option = shlex.quote(f"peer_id={min(unknown)}")
        commands = (
            "ansible-inventory --graph  # was a server renamed, or is one missing? Bring it back under its old name",
            f"ansible localhost -m natsops.jetstream.nats_meta_peer -a {option}  # only if it never comes back",
        )
        yield RootCause(SERVERS_DOWN, with_symptoms(what, taken), taken, (), commands)


def renamed(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Servers that are not members of the meta group recorded in their own stores: they were started under different
    names."""
    outsiders = {name for problem in left if problem.code == "meta_outsider" for name in problem.servers}
    if not outsiders:
        return
    fits = explained_by(context.nameless | outsiders, left)
    taken = left.take(lambda problem: problem.code == "meta_outsider" or fits(problem))
    verb = "is not a member" if len(outsiders) == 1 else "are not members"
    what = f"{joined_names(outsiders)} {verb} of the meta group in their own store: its members have other names"
    commands = (
        "ansible-playbook natsops.jetstream.deploy  # with the old nats_server_name of each host: Raft ids derive "
        "from the names",
        "ansible-playbook natsops.jetstream.diagnose",
    )
    yield RootCause(META, with_symptoms(what, taken), taken, tuple(sorted(outsiders)), commands, lasting=True)


def duplicates(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Servers that share a name, and so the identity of one Raft peer: each acknowledges entries on behalf of the
    other."""
    taken = left.take(lambda problem: problem.code == "server_duplicate")
    if taken:
        names = tuple(sorted({problem.subject for problem in taken}))
        title = taken[0].message if len(taken) == 1 else f"several servers are named {joined_names(names)}"
        commands = (
            "systemctl stop nats-server  # at once, on the host that is not in the inventory: both act as the same "
            "Raft peer",
            "ansible-playbook natsops.jetstream.report -e report=servers  # compare with: ansible-inventory --graph",
        )
        yield RootCause(MEMBERSHIP, title, taken, names, commands, lasting=True)


def joined(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Servers of a different cluster that a route connected: they have a separate meta group, or have joined this one,
    whose leader then deletes all streams unknown to it."""
    foreign_servers = {name for problem in left if problem.code == "meta_group_foreign" for name in problem.servers}
    joined = {problem.servers[0] for problem in left if problem.code == "meta_peer_unexpected"}
    joined &= {problem.subject for problem in left if problem.code == "server_unexpected"}
    if not foreign_servers and len(joined) < 2:
        return
    names = foreign_servers | joined
    fits = explained_by(names, left)
    taken = left.take(
        lambda problem: (
            problem.code in ("meta_group_foreign", "meta_size")
            or problem.code.endswith("_leader_disputed")
            or (problem.code == "server_unexpected" and problem.subject in names)
            or fits(problem)
        )
    )
    what = f"{joined_names(names)} have joined but are not in the inventory"
    if foreign_servers or any(problem.code.endswith("_leader_disputed") for problem in taken):
        what = (
            f"two clusters were connected: {joined_names(names)} {'has' if len(names) == 1 else 'have'} a different meta "
            "group"
        )
    commands = (
        "ansible-playbook natsops.jetstream.deploy  # if a route connected them: at once, before streams are deleted "
        "as orphans",
        "ansible-inventory --graph  # add the hosts that are missing",
    )
    yield RootCause(META, with_symptoms(what, taken), taken, tuple(sorted(names)), commands, lasting=True)


def isolated(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Servers that respond only at their own address, with the reason if it is known."""
    found = [problem for problem in left if problem.code == "server_isolated"]
    if not found:
        return
    names = {problem.subject for problem in found}
    taken = left.take(explained_by(names, left))
    title = found[0].message
    if len(found) > 1:
        title = f"{joined_names(names)} run, but are isolated from the other servers"
    commands = (
        f"journalctl -u nats-server -g 'route|TLS|cluster' -n 20  # on {joined_names(names)}",
        _ROUTE_COMMANDS[1],
    )
    yield RootCause(ROUTES_CUT, with_symptoms(title, taken), taken, tuple(sorted(names)), commands, lasting=True)


def too_old(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Streams and consumers that require a newer version than one of their members runs."""
    taken = left.take(lambda problem: problem.code in ("stream_api_level", "consumer_api_level"))
    if not taken:
        return
    names = tuple(sorted({name for problem in taken for name in problem.servers}))
    assets = tuple(sorted({problem.subject for problem in taken}))
    title = taken[0].message
    if len(taken) > 1:
        verb = "is" if len(names) == 1 else "are"
        title = f"{joined_names(names)} {verb} too old for {unexplained_groups(assets)}"
    commands = (
        "ansible-playbook natsops.jetstream.upgrade  # all servers to the newest version among them",
        "ansible-playbook natsops.jetstream.report -e report=streams  # until then these servers should not lead any "
        "of them",
    )
    yield RootCause(VERSION_DEFECT, title, taken, names, commands, assets=assets)


def maintenance(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Servers in maintenance, which is not a fault, and the effects of their absence."""
    taken = left.take(explained_by(context.maintenance.keys(), left))
    if not taken:
        return
    names = sorted(
        context.maintenance.keys() & {name for problem in taken for name in (*problem.servers, *problem.absent)}
    )
    what = context.maintenance[names[0]] if len(names) == 1 else f"{joined_names(names)} are in maintenance"
    commands = (
        f"ansible-playbook natsops.jetstream.maintenance_leave --limit {shlex.quote(','.join(names))}  # when the work is done",
        "ansible-playbook natsops.jetstream.maintenance_status",
    )
    yield RootCause(MAINTENANCE, with_symptoms(what, taken), taken, tuple(names), commands)


_FINISH_THE_UPGRADE = (
    "ansible-playbook natsops.jetstream.upgrade  # if their log has 'Unknown group entry op type': a version before "
    "2.14 would panic at every start"
)


def _down(
    kind: str, what: str, names: Collection[str], taken: tuple[Problem, ...], context: ClusterContext
) -> RootCause:
    states = sorted({context.hosts[name] for name in names if name in context.hosts})
    commands = (
        f"systemctl status nats-server; journalctl -u nats-server -n 50  # on {joined_names(names)}",
        *([_FINISH_THE_UPGRADE] if context.delete_ranges else []),
        _START,
        *_for_good(names, taken, context),
    )
    state = states[0] if len(states) == 1 else ""
    if len(names) > 1:
        state = state.replace("its host is", "their hosts are").replace("its host", "their hosts")
    title = f"{what}{f' ({state})' if state else ''}"
    return RootCause(kind, with_symptoms(title, taken), taken, tuple(sorted(names)), commands, _silence(names, context))


def _for_good(names: Collection[str], taken: Iterable[Problem], context: ClusterContext) -> Iterator[str]:
    """Yield the commands for servers that will never return: a rescue without a majority of the meta group, otherwise
    a replacement, or removal if enough servers remain."""
    if any(problem.code in _META_LOST for problem in taken):
        dead = json.dumps({"nats_cluster_rescue_dead": sorted(names)})
        yield (
            f"ansible-playbook natsops.jetstream.rescue -e {shlex.quote(dead)} --check  # only if the majority never "
            "returns"
        )
        return
    one = f"ansible-playbook natsops.jetstream.replace -e nats_cluster_replace={shlex.quote(min(names))}"
    more = "" if len(names) == 1 else ", then the next"
    yield f"{one}  # only for a machine that never returns{more}"
    leaving = json.dumps({"nats_server_cluster_leaving": sorted(names)})
    clusters = {context.clusters[name] for name in names if name in context.clusters}
    remaining = [name for name in context.answered if not clusters or context.clusters.get(name) in clusters]
    if len(remaining) >= _LEAST_MEMBERS:
        yield f"ansible-playbook natsops.jetstream.scale_in -e {shlex.quote(leaving)}  # without a replacement"


def _silence(names: Iterable[str], context: ClusterContext) -> float | None:
    """Return the seconds since the meta leader last received anything from these servers. None if that is unknown or
    never happened, or if the leader has just been elected, because a leader counts these seconds from its election."""
    known = [context.silence[name] for name in names if name in context.silence]
    return max((seconds for seconds in known if 1 <= seconds < NEVER_HEARD), default=None)


def storage(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    refused = {problem.subject for problem in left if problem.code == "disk_full"}
    full = refused | {name for name, percent in context.disks.items() if percent >= DISK_FULL}
    off = {problem.subject for problem in left if problem.code == "jetstream_disabled"}
    failing = {name for problem in left if says(problem, _STORAGE_WORDS) for name in problem.servers}
    unwritten = {problem.subject for problem in left if says(problem, _STORAGE_WORDS)}
    names = off | failing | {name for problem in left for name in problem.servers if name in full}
    if names:
        away = explained_by(names & (off | full), left)
        failed = explained_by(failing, left)
        taken = left.take(
            lambda problem: (
                problem.subject in off
                or says(problem, _STORAGE_WORDS)
                or away(problem)
                or (problem.subject in unwritten and failed(problem))
            )
        )
        if taken:
            percents = [
                f"{name} {context.disks[name]} %" if name in context.disks else name for name in sorted(names & full)
            ]
            if percents:
                what = f"the disk is full ({joined_names(percents)})"
            elif failing:
                what = f"{joined_names(failing)} cannot write to the storage"
            else:
                what = f"JetStream is not running on {joined_names(off)} (out of storage, or disabled)"
            compare: tuple[str, ...] = ()
            if any(problem.code == "server_reconfigured" for problem in taken):
                what = f"JetStream is not running on {joined_names(off)} since its configuration changed"
                limit = shlex.quote(",".join(sorted(off)))
                compare = (
                    f"ansible-playbook natsops.jetstream.deploy --check --diff --limit {limit}  # is it enabled?",
                )
            commands = (
                *compare,
                f"df -h /var/lib/nats; journalctl -u nats-server -g 'space|storage|DISABLED' -n 20  # on {joined_names(names)}",
                "systemctl restart nats-server  # once there is space again: JetStream stays off until the restart",
            )
            yield RootCause(STORAGE, with_symptoms(what, taken), taken, tuple(sorted(names)), commands)
    yield from _limit_reached(left, context)


def _limit_reached(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Streams that cannot write because their servers have reached a JetStream limit, which stops their Raft groups."""
    taken = left.take(
        lambda problem: problem.subject in context.confined and problem.code.startswith(("stream_", "consumer_"))
    )
    if not taken:
        return
    verb = "has" if len(context.limits) == 1 else "have"
    what = (
        f"{joined_names(context.limits)} {verb} reached a limit of JetStream ({joined_names(context.limits.values())})"
    )
    commands = (
        "ansible-playbook natsops.jetstream.report -e report=jetstream,streams  # usage by stream: delete data, or "
        "lower limits",
        "ansible-playbook natsops.jetstream.deploy -e nats_server_jetstream_max_file_store=SIZE  # raise the limit, "
        "if the disk is large enough",
    )
    yield RootCause(STORAGE, with_symptoms(what, taken), taken, tuple(sorted(context.limits)), commands)


def recovering(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Yield the cause for servers that are reading their streams after a start: leaders receive nothing from them yet,
    even if their routes and version are correct."""
    names = {problem.subject for problem in left if says(problem, _RECOVERING_WORDS)}
    taken = left.take(explained_by(names, left)) if names else ()
    if taken:
        verb, whose = ("recover", "their") if len(names) > 1 else ("recovers", "its")
        what = f"{joined_names(names)} {verb} {whose} streams after a start"
        commands = ("ansible-playbook natsops.jetstream.report -e report=servers  # repeat until it is healthy",)
        yield RootCause(CATCHING_UP, with_symptoms(what, taken), taken, tuple(sorted(names)), commands)


def raft_silent(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Servers that respond although their leaders receive nothing from them: the cause is a defect of their version if
    it has one, otherwise broken routes."""
    named = {name for problem in left for name in problem.absent}
    defective = {name for name in context.raft_silent & named if RAFT_SILENT.affects(context.versions.get(name, ""))}
    for kind, names in ((VERSION_DEFECT, defective), (ROUTES_CUT, set(context.raft_silent & named) - defective)):
        taken = left.take(explained_by(names, left)) if names else ()
        if not taken:
            continue
        many, commands = len(names) > 1, _ROUTE_COMMANDS
        if kind == VERSION_DEFECT:
            versions, fix = joined_names({context.versions[name] for name in names}), RAFT_SILENT.fixed[0]
            what = (
                f"{joined_names(names)} {'are' if many else 'is'} raft-silent, a defect of nats-server {versions} (fixed in "
                f"{fix})"
            )
            commands = (
                f"systemctl restart nats-server  # on {joined_names(names)}{', one after another' if many else ''}",
                "ansible-playbook natsops.jetstream.upgrade",
            )
        else:
            verb, whom = ("answer", "them") if many else ("answers", "it")
            what = f"{joined_names(names)} {verb} requests, but leaders receive nothing from {whom}"
        title = with_symptoms(what, taken)
        yield RootCause(kind, title, taken, tuple(sorted(names)), commands, _silence(names, context))


_ROUTE_COMMANDS: tuple[str, ...] = (
    "ansible-playbook natsops.jetstream.diagnose  # lists every missing route and gateway connection",
    "ansible-playbook natsops.jetstream.deploy  # applies the routes and TLS of the inventory",
)


def elections(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Groups that changed their leader between two samples, both with a leader."""
    taken = left.take(lambda problem: problem.code.endswith("_leader_changed"))
    if taken:
        title = taken[0].message
        if len(taken) > 1:
            title = (
                f"{unexplained_groups(problem.subject for problem in taken)} have changed leaders since the last sample"
            )
        commands = (
            "journalctl -u nats-server -g 'leader|Falling behind|WRN' -n 50  # on each host: unexpected elections",
            "ansible-playbook natsops.jetstream.report -e report=cpu  # a busy server misses heartbeats",
        )
        yield RootCause(ROUTES_CUT, title, taken, commands=commands)


def routes_cut(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    gateways = left.take(lambda problem: problem.code == "gateway_missing")
    if gateways:
        names = sorted({problem.subject for problem in gateways})
        if len(gateways) == 1:
            title = gateways[0].message
        else:
            title = (
                f"{counted(len(names), 'server')} ({joined_names(names)}) miss a gateway connection to another cluster"
            )
        yield RootCause(ROUTES_CUT, title, gateways, tuple(names), _ROUTE_COMMANDS)
    disputed = left.take(lambda problem: problem.code.endswith("_leader_disputed"))
    if disputed:
        names = sorted({name for problem in disputed for name in problem.servers})
        what = "the servers disagree on the leader: routes between them are down, or an election is in progress"
        yield RootCause(ROUTES_CUT, with_symptoms(what, disputed), disputed, tuple(names), _ROUTE_COMMANDS)


def meta_group(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    leaderless = any(problem.code in _META_LOST for problem in left)
    taken = left.take(
        lambda problem: (
            problem.code in _META_LOST
            or (leaderless and problem.code == "server_unhealthy" and says(problem, META_WORDS))
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


def server_faults(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    taken = left.take(lambda problem: problem.code in ("server_unhealthy", "server_silent"))
    if not taken:
        return
    names = sorted({problem.subject for problem in taken})
    codes = {problem.code for problem in taken}
    if all(DENIED in problem.message for problem in taken):
        subjects = {problem.message.partition(DENIED)[2].partition(":")[0] for problem in taken}
        title = f"{DENIED}{joined_names(sorted(subjects))}: the servers do not accept these requests from this user"
        yield RootCause(SERVER_FAULT, title, taken, tuple(names))
        return
    if len(names) == 1:
        title = taken[0].message
    elif codes == {"server_silent"}:
        title = f"{joined_names(names)} answer only some requests: they have just started or are overloaded"
    else:
        title = f"{joined_names(names)} report themselves unhealthy"
    yield RootCause(SERVER_FAULT, title, taken, tuple(names), (log_command(names),))


def log_command(names: Iterable[str]) -> str:
    return f"journalctl -u nats-server -g 'WRN|ERR|FTL' -n 50  # on {joined_names(names)}"


def _missed(problem: Problem) -> tuple[str, ...]:
    """Return the servers that a problem reports as missing."""
    return problem.servers if problem.code.endswith(("_replica_behind", "_peer_missing")) else ()
