# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers that join or leave a cluster, and the obstacles, found by comparing the run, the inventory and the live
cluster. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..nats.model import Cluster
from ..problem import ERROR, WARNING, ConfigProblem, Problem
from ..screen import some_names
from ..units import counted
from .scale_in import ScaleInPlan, ScaleInRules, plan_scale_in

SCALE_OUT, SCALE_IN, REPLACE, KEEP = "scale_out", "scale_in", "replace", "keep"
OPERATIONS = (SCALE_OUT, SCALE_IN, REPLACE, KEEP)

#: Problems with data that may be lost with a dead server: only these prevent its replacement from joining.
_LOSSES = ("scale_in_loss", "scale_in_unread_account")


@dataclass(frozen=True)
class InventoryServer:
    """A server as described by the inventory. `host` is empty for a server that is no longer in the inventory."""

    host: str
    server_name: str
    cluster: str = ""
    jetstream: bool = True

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "server_name": self.server_name,
            "cluster": self.cluster,
            "jetstream": self.jetstream,
        }


@dataclass(frozen=True)
class MembershipOptions:
    """The options of an operation. `members`: the future servers of the cluster. `leaving`: the leaving servers.
    `replace`: the host that will not return; `replacement`: the host that takes its place, empty if it has the same
    name; `has_data`: whether the replacement still has the data. These fields are compared unless they are None:
    `reachable_hosts` (those of the leaving servers), `cluster_size` (according to the inventory), `cluster_hosts` and
    `run_hosts` (the required and the actual hosts of the run)."""

    operation: str
    label: str = "the cluster"
    members: tuple[InventoryServer, ...] = ()
    leaving: tuple[InventoryServer, ...] = ()
    replace: str = ""
    replacement: str = ""
    has_data: bool = False
    reachable_hosts: frozenset[str] | None = None
    cluster_size: int | None = None
    cluster_hosts: tuple[str, ...] | None = None
    run_hosts: tuple[str, ...] | None = None
    seeds: tuple[str, ...] = ()

    @property
    def returning(self) -> tuple[InventoryServer, ...]:
        """Return the server that is replaced under the same name: it remains a member and returns."""
        if self.operation != REPLACE or self.replacement:
            return ()
        return tuple(member for member in self.members if member.host == self.replace)

    @property
    def judged(self) -> tuple[InventoryServer, ...]:
        """Return the servers whose absence is evaluated: those that leave permanently, or lose their data."""
        if self.operation not in (SCALE_IN, REPLACE):
            return ()
        return self.leaving if self.operation == SCALE_IN or self.replacement else self.returning


@dataclass(frozen=True)
class Leaver:
    """A server that leaves. If it neither responds nor is a member of the meta group, it has already left."""

    member: InventoryServer
    answers: bool
    meta_member: bool
    reachable: bool


@dataclass(frozen=True)
class MembershipPlan:
    """The plan and its refusals. `joining`: hosts whose servers are started. `running`: members that respond.
    `leaving`: the leaving servers in order. `leaving_down`: the names of those that are down and still count.
    `returning`: names of servers that come back. `lines`: the plan for operators. If there are `refusals`, nothing may
    be changed."""

    refusals: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    joining: tuple[str, ...] = ()
    running: tuple[InventoryServer, ...] = ()
    leaving: tuple[Leaver, ...] = ()
    leaving_down: tuple[str, ...] = ()
    returning: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    scale_in: ScaleInPlan = field(default_factory=ScaleInPlan)


def plan_membership(
    cluster: Cluster,
    request: MembershipOptions,
    rules: ScaleInRules,
    lost: Iterable[str] = (),
    unread: Iterable[str] = (),
) -> MembershipPlan:
    """Return the steps of the operation, with all refusals. `lost`, `unread`: see `plan_scale_in`."""
    answering, members_of_meta = cluster.names, cluster.meta_members
    names = {member.server_name for member in request.members}
    made = plan_scale_in(cluster, [member.server_name for member in request.judged], rules, lost, unread)
    leaving = tuple(
        Leaver(
            member,
            member.server_name in answering,
            member.server_name in members_of_meta,
            request.reachable_hosts is None or member.host in request.reachable_hosts,
        )
        # Servers that are down come first in the plan.
        for member in sorted(request.leaving, key=lambda member: member.server_name in answering)
        if not request.returning
    )
    found = _Found(
        # A new server neither responds nor is a member. A server that is down is a member but does not respond.
        new=_hosts(member for member in request.members if member.server_name not in answering | members_of_meta),
        down=_hosts(member for member in request.members if member.server_name in members_of_meta - answering),
        running=tuple(member for member in request.members if member.server_name in answering),
        leaving=leaving,
        answering=answering,
        meta_members=members_of_meta,
        problems=_relevant(request, made.problems),
        leaderless=any(problem.code == "meta_no_leader" for problem in made.problems),
        alone=tuple(
            server.name
            for server in cluster.servers
            if server.jetstream and not server.cluster and server.name in names
        ),
    )
    joining = {SCALE_OUT: found.new, REPLACE: found.new if request.replacement else found.down}.get(
        request.operation, ()
    )
    warnings = tuple(problem.message for problem in found.problems if problem.severity == WARNING)
    return MembershipPlan(
        refusals=tuple(_refusals(request, found)),
        lines=tuple(_lines(request, joining, leaving, warnings, made)),
        warnings=warnings,
        joining=joining,
        running=found.running,
        leaving=leaving,
        leaving_down=tuple(item.member.server_name for item in leaving if item.meta_member and not item.answers),
        returning=tuple(member.server_name for member in request.returning),
        remaining=tuple(member.server_name for member in request.members),
        scale_in=made,
    )


@dataclass(frozen=True)
class _Found:
    """The request compared with the live cluster. `new`, `down`: hosts of members. `alone`: members that are running
    without a cluster."""

    new: tuple[str, ...]
    down: tuple[str, ...]
    running: tuple[InventoryServer, ...]
    leaving: tuple[Leaver, ...]
    answering: frozenset[str]
    meta_members: frozenset[str]
    problems: tuple[Problem, ...]
    leaderless: bool
    alone: tuple[str, ...]

    @property
    def unknown(self) -> list[str]:
        """Return leaving servers that are neither in the inventory nor in the cluster: the name may be mistyped."""
        return [
            item.member.server_name
            for item in self.leaving
            if not (item.member.host or item.answers or item.meta_member)
        ]


def _relevant(request: MembershipOptions, problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems that concern the operation. Whether the meta group and the streams can do without the dead
    server is checked after its replacement has joined; a server that returns with its data loses nothing."""
    if request.operation != REPLACE:
        return tuple(problems)
    return tuple(problem for problem in problems if problem.code in _LOSSES and not request.has_data)


def _refusals(request: MembershipOptions, found: _Found) -> Iterable[str]:
    """Yield the reasons against the operation. If the run has different hosts than the cluster, or the cluster has no
    leader, only that is reported, because all other comparisons would be wrong."""
    first = [*_run_refusals(request)]
    if not first and found.leaderless and found.alone:
        first = [
            f"{', '.join(found.alone)} {_verb(found.alone, 'runs', 'run')} without a cluster, and a cluster would delete the "
            "streams in that store 30 seconds after the start. Back them up, let the cluster start empty, and restore them: "
            'docs/operations.md, "One server becomes a cluster".'
        ]
    elif not first and found.leaderless:
        first = [
            f"The meta group of {request.label} has no leader, so its members are unknown and no plan can be made. "
            f"{', '.join(sorted(found.answering)) or 'No server'} answered: start the others with deploy."
        ]
    if first:
        yield from first
    else:
        yield from _OPERATION_REFUSALS[request.operation](request, found)


def _run_refusals(request: MembershipOptions) -> Iterable[str]:
    """Yield the reasons why the run has the wrong hosts."""
    leaving = [name for member in request.leaving for name in (member.host, member.server_name) if name]
    if request.cluster_hosts is not None and request.run_hosts is not None:
        missing = [host for host in request.cluster_hosts if host not in request.run_hosts]
        foreign = [host for host in request.run_hosts if host not in (*request.cluster_hosts, *leaving)]
        if missing:
            yield (
                f"This changes all of {request.label}, but the run excludes {', '.join(missing)}: run it without "
                "--limit and job slicing."
            )
        if foreign:
            yield (
                f"The run also includes {', '.join(foreign)}, which {_verb(foreign, 'does', 'do')} not belong to "
                f"{request.label}: select the hosts of one cluster with -e nats_server_hosts=<pattern>."
            )
    staying = {*(request.cluster_hosts or ()), *request.seeds, *(member.server_name for member in request.members)}
    both = [name for name in dict.fromkeys(leaving) if name in staying]
    if both:
        yield (
            f"{', '.join(both)} {_verb(both, 'is', 'are')} to leave (nats_server_cluster_leaving), but "
            f"{_verb(both, 'is', 'are')} still listed in nats_server_cluster_members, in nats_server_cluster_seeds, or "
            "as the server of a host that stays. Use the host name from the inventory."
        )


def _scale_out_refusals(request: MembershipOptions, found: _Found) -> Iterable[str]:
    yield from _down_refusals(found.down)
    waiting = [item.member.server_name for item in found.leaving if item.answers or item.meta_member]
    if waiting:
        yield f"{', '.join(waiting)} {_verb(waiting, 'is', 'are')} to leave (nats_server_cluster_leaving): run scale_in first."
    if len(found.new) > len(found.running):
        yield (
            f"{', '.join(found.new)} outnumber the {len(found.running)} running servers: cut off from those, they "
            f"could form a separate cluster. Add at most {len(found.running)} at once."
        )


def _scale_in_refusals(request: MembershipOptions, found: _Found) -> Iterable[str]:
    if not request.leaving:
        yield 'nats_server_cluster_leaving names no host: -e \'{"nats_server_cluster_leaving": ["n5"]}\'.'
    if found.unknown:
        yield (
            f"{', '.join(found.unknown)} {_verb(found.unknown, 'is', 'are')} unknown to the inventory and the cluster: "
            "remove servers that have already left from nats_server_cluster_leaving, or correct the name. Servers "
            f"that answer: {', '.join(sorted(found.answering))}."
        )
    unreachable = [item.member.server_name for item in found.leaving if item.answers and not item.reachable]
    if unreachable:
        yield (
            f"{', '.join(unreachable)} {_verb(unreachable, 'runs', 'run')} on a host that is unreachable, and "
            "therefore cannot be stopped: put the host back into the inventory, make it reachable, or stop the server "
            "by hand."
        )
    yield from _down_refusals(found.down)
    if found.new:
        yield (
            f"{', '.join(found.new)} {_verb(found.new, 'is', 'are')} not in the cluster yet: run scale_out first, or "
            "remove it from the inventory."
        )
    if request.cluster_size is not None and request.cluster_size != len(request.members):
        yield (
            f"nats_server_cluster_size is {request.cluster_size}, but {len(request.members)} servers stay: change it "
            "as well."
        )
    yield from _problem_refusals(found.problems)


def _replace_refusals(request: MembershipOptions, found: _Found) -> Iterable[str]:
    if not request.replace:
        yield "nats_cluster_replace names no host."
    elif request.replacement:
        yield from _renamed_refusals(request, found)
    elif not request.returning:
        yield (
            f"{request.replace} is not a host of the cluster in the inventory. If a host with a different name takes "
            "its place, set that name as well: -e nats_cluster_replacement=<host>."
        )
    down = [host for host in found.down if host != request.replace]
    if down:
        yield (
            f"{', '.join(down)} {_verb(down, 'belongs', 'belong')} to the cluster but {_verb(down, 'does', 'do')} not "
            "answer, either: start it with deploy first."
        )
    new = [host for host in found.new if host not in (request.replace, request.replacement)]
    if new:
        yield (
            f"{', '.join(new)} {_verb(new, 'is', 'are')} not in the cluster yet: run scale_out first, or remove it "
            "from the inventory."
        )
    yield from _problem_refusals(found.problems)


def _renamed_refusals(request: MembershipOptions, found: _Found) -> Iterable[str]:
    """Yield why a host with a different name cannot be the replacement."""
    if request.replacement not in _hosts(request.members):
        yield (
            f"{request.replacement}, which is to take its place, is not a host of the cluster in the inventory: add it."
        )
    names = [member.host or member.server_name for member in request.leaving]
    if names != [request.replace]:
        yield (
            f"nats_server_cluster_leaving lists {', '.join(names)}: first let them leave with scale_in, then remove "
            "them from the inventory and from the list."
        )
    elif any(item.answers for item in found.leaving):
        yield (
            f"{request.replace} answers, so it is not dead. Scale out by {request.replacement}, then let "
            f"{request.replace} leave with scale_in."
        )
    if found.unknown:
        yield (
            f"{', '.join(found.unknown)} {_verb(found.unknown, 'is', 'are')} unknown to the inventory and the cluster: "
            "it has already left, or the name is wrong. Members of the meta group: "
            f"{', '.join(sorted(found.meta_members))}."
        )


def _keep_refusals(request: MembershipOptions, found: _Found) -> Iterable[str]:
    return _down_refusals(found.down)


_OPERATION_REFUSALS = {
    SCALE_OUT: _scale_out_refusals,
    SCALE_IN: _scale_in_refusals,
    REPLACE: _replace_refusals,
    KEEP: _keep_refusals,
}


def _down_refusals(down: Sequence[str]) -> Iterable[str]:
    if down:
        yield (
            f"{', '.join(down)} {_verb(down, 'belongs', 'belong')} to the cluster but {_verb(down, 'does', 'do')} not "
            "answer: start it with deploy, or replace it, first."
        )


def _problem_refusals(problems: Sequence[Problem]) -> Iterable[str]:
    """Yield the command that accepts all losses, then the refusals."""
    errors = [problem for problem in problems if problem.severity == ERROR]
    if any(problem.code == "scale_in_loss" for problem in errors):
        lost = [problem.subject for problem in problems if problem.code == "scale_in_loss"]
        # printed before lines that may not fit on a screen
        yield f"To accept the loss: -e '{json.dumps({'nats_cluster_accept_loss': lost})}'"
    yield from (problem.message for problem in errors)


def _lines(
    request: MembershipOptions,
    joining: Sequence[str],
    leaving: Sequence[Leaver],
    warnings: Sequence[str],
    made: ScaleInPlan,
) -> Iterable[str]:
    if request.operation == SCALE_OUT:
        yield f"New in {request.label}: {', '.join(joining)}" if joining else f"No new host in {request.label}"
    elif request.operation == SCALE_IN:
        yield f"Leave: {', '.join(item.member.server_name for item in leaving)}"
        yield from warnings
        for move in made.moves:
            yield f"{move.stream} moves from {move.source} to {move.target} or another suitable server"
    elif request.operation == REPLACE:
        if request.replacement:
            yield f"{request.replacement} takes the place of {request.replace}"
        elif joining:
            yield f"{request.replace} comes back with the data of the other servers"
        else:
            yield f"{request.replace} is running: it is only brought up to date"
        yield from warnings


def _hosts(members: Iterable[InventoryServer]) -> tuple[str, ...]:
    return tuple(member.host for member in members)


def _verb(names: Collection[str], one: str, more: str) -> str:
    return one if len(names) == 1 else more


def _sorted(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def membership_problems(facts: dict[str, Any]) -> list[ConfigProblem]:
    """Return `[{severity, option, message}]`.

    Routes and quorum sizes are calculated from the members in the inventory. With a partial inventory (an AWX job slice
    contains only its own hosts), too few routes would be written; a new cluster that is started in parts never elects a
    meta leader (nats-server raft.go, `bootstrap`: the expected size comes from the routes).

    The keys of `facts` are as follows. `cluster`: its name. `hosts`: the hosts of this run. `members`: `[{host,
    server_name, jetstream}]`. `running`: whether a server of this run is running. `live`: the servers of the running
    cluster, `[{name, cluster}]`. `live_error`: why no server responded. `route_style`: all or seeds. `login`: whether
    modules can log in. `versions`: for each server of this run, `{name, version, target, running, jetstream, streams,
    in_meta_group}`. `version`: the running version or, for a stopped server with streams, the installed one; empty for
    a new server. `streams`: the number of streams in the store. `in_meta_group`: whether the store has a meta group.
    """
    members = {member["host"]: member["server_name"] for member in facts["members"]}
    outside = [name for host, name in members.items() if host not in facts["hosts"]]
    live = [server["name"] for server in facts.get("live") or [] if server.get("cluster") == facts["cluster"]]
    problems: list[ConfigProblem] = []

    problems += _unchecked_version(facts)
    if not facts["running"] and not live:
        problems += _empty_stores(facts)
    unknown = [name for name in live if name not in members.values()]
    if unknown:
        problems.append(
            {
                "severity": "error",
                "option": "nats_server_cluster_members",
                "message": f"the running cluster {facts['cluster']} has servers that are not in the inventory: "
                f"{_sorted(unknown)}. Run with the complete inventory (no job slicing), or remove these servers first.",
            }
        )
    if outside and not facts["running"] and not live:
        reason = f" ({facts['live_error']})" if facts.get("live_error") else ""
        problems.append(
            {
                "severity": "error",
                "option": "nats_server_cluster_members",
                "message": f"no server of the cluster {facts['cluster']} answers{reason} and this run leaves out "
                f"{_sorted(outside)}. A new or stopped cluster needs its servers started in one run: "
                "drop --limit, serial and job slicing.",
            }
        )
    if (
        facts.get("route_style") == "seeds"
        and not facts["running"]
        and not live
        and any(member.get("jetstream") for member in facts["members"])
    ):
        problems.append(
            {
                "severity": "error",
                "option": "nats_server_cluster_route_style",
                "message": f"the JetStream cluster {facts['cluster']} is not running yet: its servers derive the size of the "
                "meta group from the routes, and with seeds alone they can elect two leaders. Deploy it once with the route "
                "style all; changing to seeds afterwards needs only a reload.",
            }
        )
    return problems


def foreign_store_problems(cluster: Cluster, stored: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    """Yield the stopped servers whose store belongs to a server of the same name in a different cluster.

    `stored`: some of the Raft groups in the store of each server. The names of Raft groups are unique, and a member's
    store contains the groups of its replicas. On 2.10.27, a server with a foreign store became meta leader, and all
    streams of the cluster were deleted."""
    groups = [group for stream in cluster.streams for group in stream.groups if group.raft_name]
    names = {group.raft_name for group in groups}
    for server, found in sorted(stored.items()):
        has_replicas = any(server in group.members for group in groups if group.size > 1)
        if found and has_replicas and names.isdisjoint(found):
            message = (
                f"the store of {server} belongs to a different cluster: none of its Raft groups ({some_names(found)}) is one "
                "of the running cluster, whose streams the server could delete. Move the directory jetstream of the store away "
                "and replace the server (natsops.jetstream.replace)"
            )
            yield Problem("roll_foreign_store", ERROR, server, message, (server,))


def _empty_stores(facts: dict[str, Any]) -> list[ConfigProblem]:
    """Refuse to start a stopped cluster if one of its servers has lost its store, or if only some have kept theirs.

    Servers with empty stores have lost their votes: they can elect leaders that lack the messages of the other servers.
    """
    servers = [one for one in facts.get("versions") or [] if one.get("jetstream")]
    kept = [one["name"] for one in servers if one.get("in_meta_group")]
    empty = [one["name"] for one in servers if not one.get("in_meta_group") and not one.get("streams")]
    streams = max((int(one.get("streams") or 0) for one in servers if one.get("in_meta_group")), default=0)
    if not kept or not empty or not streams:
        return []
    majority = len(kept) > len(servers) // 2
    severity = "warning" if majority else "error"
    remedy = (
        "If they belonged to the cluster, start the others alone (deploy --limit), then replace each (natsops.jetstream.replace)"
        if majority
        else "Give them back their stores. If these are lost, rescue the streams (natsops.jetstream.rescue); for a new cluster, "
        "move the directory jetstream of the remaining stores away"
    )
    return [
        {
            "severity": severity,
            "option": "jetstream.store_dir",
            "message": f"the stores of {_sorted(empty)} are empty, but {_sorted(kept)} {_verb(kept, 'has', 'have')} up to "
            f"{counted(streams, 'stream')} of a stopped cluster: servers without their votes could elect leaders that do not "
            f"have the messages. {remedy}",
        }
    ]


def _unchecked_version(facts: dict[str, Any]) -> list[ConfigProblem]:
    """Refuse to change the version of JetStream servers if no running server could report its streams.

    Each running server must be among those that responded: it may be isolated, or a different cluster may have
    responded.
    """
    servers = facts.get("versions") or []
    answered = {server["name"] for server in facts.get("live") or []}
    changes = [
        one
        for one in servers
        if one["version"] != one["target"]
        and (one["name"] not in answered if one["running"] else one["version"] and not answered)
    ]
    jetstream = any(member.get("jetstream") for member in facts["members"])
    if not changes or not jetstream:
        return []
    before = sorted({one["version"] or "an unknown version" for one in changes})
    targets = sorted({str(one["target"]) for one in changes})
    silent = f"{_sorted(one['name'] for one in changes)} did not answer" if answered else "no server answered"
    why = facts.get("live_error") or (silent if facts["running"] else "the servers are stopped")
    remedy = (
        "Give the modules a login (nats_server_system_password, nats_server_api_credentials, nats_server_api_nkey, a context, or "
        "NATS_* in the environment) that the running servers accept."
    )
    if not facts.get("login"):
        why = "no login of a system user is configured"
    elif not facts["running"]:
        remedy = f"First start them as they were: deploy -e nats_server_version={before[0]}."
        if len(before) > 1:
            remedy = "First start each host with its previous nats_server_version: deploy."
    return [
        {
            "severity": "error",
            "option": "nats_server_version",
            "message": f"the change from {', '.join(before)} to {', '.join(targets)} could not be checked against the streams: "
            f"{why}. {remedy}",
        }
    ]
