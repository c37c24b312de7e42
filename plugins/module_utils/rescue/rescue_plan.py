# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue of a cluster that has lost its majority: the remaining data, the loss, and the steps. Pure.

After a rescue, the remaining servers form a majority without the others. Such a rescue is safe only if none of the
other servers is running or can return, which NATS cannot verify: the operator lists the dead servers, and the state of
the hosts, their disks and their ports must not contradict the list. Sources: nats-server 2.15, server/raft.go (rescue)
and server/jetstream_api.go (META.RESCUE, SERVER.REMOVE)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable

from ..host.store import ASIDE
from ..nats.model import Cluster, MetaGroup, Stream
from ..screen import Page, blocks, first_items, listing, names_line, page, some_names
from ..units import counted
from ..versions import reported_version
from .rescue_state import (
    BRING,
    COPY,
    RESTORE,
    SAVE,
    START,
    STOP,
    Fate,
    RescueHost,
    RescueOptions,
    RescuePlan,
    RescueStep,
    Sight,
)

#: The first release whose servers support a rescue.
SINCE = (2, 15, 0)
#: The minimum number of servers that elect a meta leader in a fresh cluster.
_SMALLEST = 2
#: The steps.
RESCUE, REMOVE, WAIT = "rescue", "remove", "wait"


def plan(sight: Sight, request: RescueOptions) -> RescuePlan:
    """Return the steps of a rescue, or the refusals."""
    meta = sight.cluster.meta
    if meta is None:
        refusal = "no answering server runs JetStream in a cluster: there is nothing to rescue"
        return RescuePlan(refusals=(refusal,), page=page(f"Refused: {refusal}."))
    members = _members(sight.cluster, meta, request)
    survivors = tuple(sorted(members & _answering(sight.cluster)))
    quorum = meta.group.quorum
    fates = tuple(_fate(stream, sight) for stream in sight.cluster.streams)
    removals = tuple(sorted(members & request.dead))
    fresh = not _old(sight.cluster).keys().isdisjoint(survivors)
    lost = _lost(sight, fates)
    refusals = [
        *_check_dead(sight, request, members),
        *_check_members(sight, request, meta, members),
        *_check_majority(meta, survivors, quorum, removals, fates, request),
        *(_check_fresh(sight, request, members, survivors, fates) if fresh else ()),
        *_check_losses(sight, request, fates, lost, fresh),
    ]
    if _whole(meta, members, survivors, fates) and not request.begun:
        # An earlier run may already have removed servers that were named dead.
        refusals = [f"{name} is listed as dead but answers" for name in removals]
        removals, fresh = (), False
    steps = (
        _fresh_steps([sight.hosts.get(name, RescueHost(name)) for name in survivors], sight.hosts, request)
        if fresh
        else _steps(meta, survivors, quorum, removals, fates, request)
    )
    made = RescuePlan(survivors, removals, quorum, meta.group.size, fates, lost, tuple(refusals), steps, fresh=fresh)
    return replace(made, page=_page(made, sight, members))


def is_settled(sight: Sight, request: RescueOptions) -> bool:
    """Return whether the answering servers have noticed that the meta leader or the quorum is lost, if it is."""
    meta = sight.cluster.meta
    return meta is None or not any(_unnoticed(sight, meta, _members(sight.cluster, meta, request)))


def unsteady(early: Sight, late: Sight) -> str:
    """Return why two samples are too different for a rescue, such as an election of the meta group between them;
    otherwise an empty text."""
    before, now = (sight.cluster.meta.group.leaders if sight.cluster.meta else () for sight in (early, late))
    if before == now:
        return ""
    return f"the meta leader has just changed from {', '.join(before) or 'none'} to {', '.join(now) or 'none'}"


def removal_refusals(sight: Sight, request: RescueOptions, approved: RescuePlan) -> list[str]:
    """Return the refusals of the approved removals, now that a leader reports which streams and consumers existed."""
    now = plan(sight, request)
    found = [*now.refusals]
    if sight.assigned is None:
        found.append("the meta leader does not report the former streams")
    if now.survivors != approved.survivors:
        found.append(f"{', '.join(now.survivors)} answer now; {', '.join(approved.survivors)} answered before")
    return found


def _whole(meta: MetaGroup, members: frozenset[str], survivors: Collection[str], fates: Sequence[Fate]) -> bool:
    """Return whether every member of the meta group responds and no group has lost its majority."""
    return (
        len(members) == meta.group.size
        and members <= frozenset(survivors)
        and meta.group.leader is not None
        and not any(fate.stalled for fate in fates)
    )


def _members(cluster: Cluster, meta: MetaGroup, request: RescueOptions) -> frozenset[str]:
    """Return the members that count. Without a leader, servers before 2.15 report only the number of members; in that
    case, the servers listed as dead count as well.

    Servers may report fewer members than exist (`MetaGroup.size`), which is harmless if the quorum is the same."""
    members = frozenset(meta.group.members)
    if len(members) > meta.group.size == len(meta.known):
        # A removed server that has returned still considers itself a member.
        members = meta.known
    named = request.dead - members
    enough = 0 < meta.group.size - len(members) <= len(named)
    same_quorum = replace(meta.group, size=len(members | named)).quorum == meta.group.quorum
    return members | named if _old(cluster) and enough and same_quorum else members


def _answering(cluster: Cluster) -> frozenset[str]:
    return frozenset(server.name for server in cluster.servers if server.jetstream)


def _check_dead(sight: Sight, request: RescueOptions, members: frozenset[str]) -> Iterable[str]:
    """Yield reasons why a server that is listed as dead may not be dead."""
    for name in sorted(request.dead):
        host = sight.hosts.get(name, RescueHost(name))
        if name in sight.cluster.names:
            yield f"{name} is listed as dead but answers"
        elif host.running:
            yield (
                f"{name} is listed as dead, but its server is running, cut off from those that answer: it may form a "
                "majority with others. Repair the network instead"
            )
        elif host.listening:
            yield (
                f"{name} is listed as dead, but {', '.join(host.listening)} accepts connections: it is running and may "
                "form a majority with others"
            )
        elif host.failure:
            yield f"{name} is listed as dead and answers over SSH, but its host cannot be read: {host.failure}"
        elif host.reached and not host.fenced:
            yield (
                f"{name} is listed as dead but answers over SSH, and its server could start: start it, which may solve "
                "everything; or, if it must never run again, fence it there (systemctl mask --now nats-server)"
            )
        elif name not in members and name not in request.begun:
            yield f"{name} is listed as dead but is not a member of the meta group ({_names(members)})"


def _check_members(sight: Sight, request: RescueOptions, meta: MetaGroup, members: frozenset[str]) -> Iterable[str]:
    """Yield the members that are neither available nor listed as dead, and the reasons why the responding servers may
    belong to different groups."""
    for name in sorted(members - sight.cluster.names - request.dead):
        host = sight.hosts.get(name, RescueHost(name))
        how = "its host answers over SSH: start it" if host.reached and not host.fenced else "bring it back"
        yield (
            f"{name} counts for the meta group and does not answer, but is not listed as dead: {how}, or list it if it "
            "never returns"
        )
    unknown = meta.group.size - len(members)
    if unknown > 0:
        what = f"{counted(unknown, 'member')} of the meta group {'is' if unknown == 1 else 'are'}"
        yield f"{what} unknown to all answering servers: start servers that list their names"
    for name in sight.silent:
        yield f"{name} answers but does not report its streams"
    counts = {name: size for name, size in meta.sizes.items() if name in members}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{name} {size}" for name, size in sorted(counts.items()))
        yield f"the answering servers count different members ({each}): restore the connections between them first"
    if len(meta.group.leaders) > 1:
        yield f"{_names(meta.group.leaders)} both lead the meta group: they cannot reach each other"
    yield from _unnoticed(sight, meta, members)


def _unnoticed(sight: Sight, meta: MetaGroup, members: frozenset[str]) -> Iterable[str]:
    """Yield the losses that the answering servers have not noticed yet. A leader notices the loss of its quorum after up
    to 20 seconds (raft.go lostQuorumInterval and lostQuorumCheck), a follower that of its leader after 9
    (maxElectionTimeout)."""
    answering = members & _answering(sight.cluster)
    if meta.group.leader and meta.quorum_needed > len(answering):
        yield (
            f"{meta.group.leader} still leads the meta group, which needs {meta.quorum_needed} members, but only "
            f"{len(answering)} answer: check again in ten seconds"
        )
    foreign = {view for view in meta.views.values() if view} - sight.cluster.names
    if foreign:
        yield (
            f"{_names(foreign)} leads the meta group according to some servers, but does not answer: check again in "
            "ten seconds"
        )


def _check_majority(
    meta: MetaGroup,
    survivors: Sequence[str],
    quorum: int,
    removals: Sequence[str],
    fates: Sequence[Fate],
    request: RescueOptions,
) -> Iterable[str]:
    """Yield the reasons why removing the dead servers would not restore a majority."""
    stalled = [fate.label for fate in fates if fate.stalled]
    if request.begun or len(survivors) < quorum:
        return
    if stalled and not removals:
        yield (
            f"{some_names(stalled, 10)} is stalled, but no dead server counts for the meta group: use the playbook "
            "repair"
        )
    if stalled:
        return
    yield (
        f"no majority is lost: {len(survivors)} of {meta.group.size} members of the meta group answer, and every "
        "stream has a majority of its replicas. Replace the dead servers with the playbook replace, or remove them "
        "with scale_in"
    )


def _check_fresh(
    sight: Sight, request: RescueOptions, members: frozenset[str], survivors: Sequence[str], fates: Sequence[Fate]
) -> Iterable[str]:
    """Yield the reasons why the data cannot be restored in a fresh cluster of the remaining servers."""
    if len(survivors) > len(members) // 2 and any(fate.stalled for fate in fates):
        yield (
            "the meta group has its majority, and before nats-server 2.15 a stream that has lost its majority is not "
            "rescued separately: bring one of its servers back, or delete it and restore a backup"
        )
    if len(survivors) < _SMALLEST:
        yield (
            f"{_names(survivors)} alone cannot elect a meta leader of a fresh cluster: do the steps by hand, with "
            "another server in the inventory (docs/rescue.md)"
        )
    if len({server.cluster for server in sight.cluster.servers if server.name in survivors}) > 1:
        yield "servers of several clusters are left: do the steps by hand for all of them (docs/rescue.md)"
    others = sight.hosts.keys() - members - request.dead
    if others:
        yield (
            f"{_names(others)} is not known as a member of the meta group: if it was a member, bring it back or list "
            "it as dead; otherwise remove it from the inventory until the rescue is complete"
        )
    ending = [fate.label for fate in fates if fate.in_memory and not sight.is_lost(fate.name, request.lost)]
    if ending:
        yield f"{some_names(ending, 10)} is in memory and is lost when its servers stop: list it as lost"
    for name in survivors:
        host = sight.hosts.get(name, RescueHost(name))
        if not host.reached or host.failure:
            yield f"{name} answers over NATS, but its host cannot be read over SSH: {host.failure or 'it is unreachable'}"
        elif host.copied or host.aside:
            yield _stale(host)
        hidden = sorted(sight.shown("/".join(key)) for key, stored in host.streams.items() if stored.encrypted)
        if hidden:
            yield (
                f"{name} has {some_names(hidden, 10)} encrypted, which cannot be saved without the key: do the steps "
                "by hand, exclude these streams, and restore backups of them (docs/rescue.md)"
            )


def _stale(host: RescueHost) -> str:
    return (
        f"{host.server} is running, but its store has already been copied, by an earlier rescue or before the server "
        f"was started again: delete the copy {host.copy}, and {host.store_dir}/{ASIDE} if it exists, unless they "
        "contain data that is not back yet"
    )


def _old(cluster: Cluster) -> dict[str, str]:
    """Return the servers that cannot be rescued, with their versions."""
    return {
        server.name: f"{server.name} {server.version}"
        for server in cluster.servers
        if server.jetstream and reported_version(server.version) < SINCE
    }


def _check_losses(
    sight: Sight, request: RescueOptions, fates: Sequence[Fate], lost: Sequence[str], fresh: bool
) -> Iterable[str]:
    """Yield the losses that were not accepted."""
    left = [sight.shown(name) for name in lost if not sight.is_lost(name, request.lost)]
    if left:
        without = (
            "a fresh cluster does not have it"
            if fresh
            else "removing the dead servers recreates it empty, or leaves it without a member"
        )
        yield (
            f"only dead servers had {some_names(left)}: {without}. Copy it from a disk that is still readable or find "
            "its backup, then list it as lost"
        )
    for account in sorted(sight.unasked):
        shown = sight.shown(account)
        if not sight.is_lost(f"{account}/*", request.lost):
            yield (
                f"account {shown} has no user here, so it is unknown which of its streams only dead servers had: set a "
                f"user, or list {shown}/* as lost"
            )
    here = {(fate.account, fate.stream): fate for fate in fates if fate.holders}
    for name in sorted(request.dead):
        for (account, stream), stored in sorted(sight.hosts.get(name, RescueHost(name)).streams.items()):
            fate = here.get((account, stream))
            if fate is None or stored.last_seq is None or stored.last_seq <= fate.last_seq:
                continue
            if not sight.is_lost(fate.name, request.lost):
                crashed = "; its server crashed, so messages deleted just before may reappear"
                yield (
                    f"the disk of {name} has {fate.label} up to {stored.last_seq}, the answering servers up to "
                    f"{fate.last_seq}: copy it first, then list the stream as "
                    f"lost{crashed if stored.messages is None else ''}"
                )


def _lost(sight: Sight, fates: Sequence[Fate]) -> tuple[str, ...]:
    """Return the known names of streams and consumers that only dead servers have."""
    streams = {fate.name for fate in fates if fate.holders}
    consumers = {
        f"{item.account}/{item.name}/{consumer.name}" for item in sight.cluster.streams for consumer in item.consumers
    }
    known = set(sight.assigned or ())
    if sight.assigned is None:
        # Disks may also contain assets that were deleted while their servers were down, so the assets on disks count
        # only until a leader can list all assets.
        known |= {
            "/".join(name)
            for host in sight.hosts.values()
            if host.server not in sight.cluster.names
            for name in host.streams
        }
    gone = known - streams - consumers
    # A consumer is lost with its stream.
    return tuple(sorted(name for name in gone if name.rpartition("/")[0] not in gone))


def _fate(stream: Stream, sight: Sight) -> Fate:
    held = sight.held.get((stream.account, stream.name), {})
    group = stream.group
    known = {name: stored for name, stored in held.items() if stored.last_seq is not None}
    last = max((stored.last_seq or 0 for stored in known.values()), default=0)
    return Fate(
        account=stream.account,
        stream=stream.name,
        num_replicas=group.size,
        holders={name: stored.last_seq or 0 for name, stored in sorted(known.items())},
        counts={name: stored.messages or 0 for name, stored in sorted(known.items()) if stored.last_seq == last},
        dead=tuple(sorted(frozenset(group.members) - sight.cluster.names)),
        # The majority of the stream's members counts: after a rescue, a stream may have fewer members than replicas.
        stalled=len(group.hosts) < len(group.members) // 2 + 1,
        in_memory=stream.storage == "memory",
        account_name=stream.account_name,
    )


def _steps(
    meta: MetaGroup,
    survivors: Sequence[str],
    quorum: int,
    removals: Sequence[str],
    fates: Sequence[Fate],
    request: RescueOptions,
) -> tuple[RescueStep, ...]:
    if not removals and not request.begun:
        return ()
    steps = []
    if len(survivors) < quorum:
        does = (
            f"let {_names(survivors)} elect a meta leader with {len(survivors)} of {meta.group.size} votes instead of "
            f"{quorum}, for at most five minutes"
        )
        steps.append(RescueStep(RESCUE, does, tuple(survivors)))
    steps += [
        RescueStep(REMOVE, f"remove {name} from the meta group and from every stream", (name,)) for name in removals
    ]
    stalled = [fate.label for fate in fates if fate.stalled]
    what = f" of {len(stalled)} stalled streams" if stalled else ""
    does = f"wait until the meta group and the groups{what} have leaders with all data, and compare"
    steps.append(RescueStep(WAIT, does, tuple(survivors)))
    return tuple(steps)


def _fresh_steps(
    left: Sequence[RescueHost], hosts: Mapping[str, RescueHost], request: RescueOptions
) -> tuple[RescueStep, ...]:
    """Return the steps that restore the data in a fresh cluster of these servers. Each step can be repeated. Servers
    with renamed stores have already been stopped and copied."""
    used = [host for host in left if not host.aside]
    names = _names(host.server for host in left)
    backups = f"{request.copies}/backup"
    leaving = sorted(hosts.get(name, RescueHost(name)).address for name in request.dead)
    restored = {
        "nats_cluster_backup_directory": backups,
        "nats_cluster_restore_streams": ["*"],
        "nats_cluster_restore_max_replicas": len(left),
    }
    steps = (
        _host_step(STOP, f"stop {names} cleanly and keep them stopped", used, _by_hand(used, _stopping)),
        _host_step(COPY, "copy their stores", used, _by_hand(used, _copying)),
        _host_step(BRING, f"bring the copies to {request.copies}", left, bring_commands(left, request)),
        _host_step(
            SAVE,
            "save each stream from its most complete copy and compare it with the files",
            left,
            [
                _ansible(
                    ["localhost"],
                    "natsops.jetstream.nats_store_backup",
                    {"copies": copy_paths((host.server for host in left), request), "directory": backups},
                )
            ],
        ),
        _host_step(
            START,
            f"rename their stores to {ASIDE}, and deploy a fresh cluster of {names}",
            left,
            [*_by_hand(left, _renaming), _playbook("deploy", {"nats_server_cluster_leaving": leaving})],
        ),
        _host_step(
            RESTORE,
            f"restore each stream with at most {len(left)} replicas and compare it with its backup",
            left,
            [_playbook("restore", {"nats_server_cluster_leaving": leaving, **restored})],
        ),
    )
    return tuple(step for step in steps if step.hosts)


def _host_step(kind: str, does: str, hosts: Iterable[RescueHost], commands: Iterable[str]) -> RescueStep:
    acting = list(hosts)
    return RescueStep(
        kind,
        does,
        tuple(host.server for host in acting),
        tuple(host.address for host in acting),
        tuple(commands),
    )


def copy_paths(servers: Iterable[str], request: RescueOptions) -> dict[str, str]:
    """Return server → directory of the copy of its store, on the machine to which the copies are transferred."""
    return {name: f"{request.copies}/{name}" for name in servers}


def bring_commands(left: Iterable[RescueHost], request: RescueOptions) -> list[str]:
    """Return the commands that transfer the copies to one machine. No module transfers them, because a store may be
    larger than Ansible can fetch."""
    hosts = list(left)
    directories = copy_paths((host.server for host in hosts), request)
    return [
        f"rsync -a --mkpath {shlex.quote(f'{host.address}:{host.copy}/')} {shlex.quote(f'{directories[host.server]}/')}"
        for host in hosts
    ]


def _stopping(host: RescueHost) -> tuple[str, dict[str, Any]]:
    if host.unit:
        return "ansible.builtin.systemd_service", {"name": host.unit, "state": "stopped", "enabled": False}
    return "natsops.jetstream.nats_server_process", {"config": host.config, "state": "stopped"}


def _copying(host: RescueHost) -> tuple[str, dict[str, Any]]:
    options = {"config": host.config, "store_dir": host.store_dir, "copy": host.copy}
    return "natsops.jetstream.nats_store_copy", options


def _renaming(host: RescueHost) -> tuple[str, dict[str, Any]]:
    old, new = f"{host.store_dir}/jetstream", f"{host.store_dir}/{ASIDE}"
    return "ansible.builtin.command", {"argv": ["mv", "-T", old, new], "creates": new}


def _by_hand(hosts: Iterable[RescueHost], task: Callable[[RescueHost], tuple[str, dict[str, Any]]]) -> tuple[str, ...]:
    """Return one command for all hosts that need the same command."""
    needed: dict[str, tuple[list[str], str, dict[str, Any]]] = {}
    for host in hosts:
        module, options = task(host)
        needed.setdefault(json.dumps([module, options]), ([], module, options))[0].append(host.address)
    return tuple(_ansible(names, module, options, "-b ") for names, module, options in needed.values())


def _ansible(names: Sequence[str], module: str, options: Mapping[str, Any], how: str = "") -> str:
    return f"ansible {','.join(names)} {how}-m {module} -a {shlex.quote(json.dumps(options))}"


def _playbook(name: str, extra: Mapping[str, Any]) -> str:
    return f"ansible-playbook natsops.jetstream.{name} -e {shlex.quote(json.dumps(extra))}"


def going_on(hosts: Mapping[str, RescueHost], expected: frozenset[str], request: RescueOptions) -> RescuePlan | None:
    """Return the plan that continues a rescue into a fresh cluster, based only on the state of the hosts, because
    servers may not respond; None if no such rescue has begun and the servers can be queried instead."""
    left = [hosts.get(name, RescueHost(name)) for name in sorted(expected - request.dead)]
    begun = any(host.copied or host.aside for host in left)
    unclear = any(host.running or not host.reached or host.failure for host in left)
    if not request.dead or not left or (unclear and not begun):
        return None
    refusals = [*_check_dead(Sight(Cluster(), {}, hosts), request, request.dead)]
    if not begun:
        names = _names(host.server for host in left)
        refusals.append(f"no server runs on the hosts of {names}: start them, so their streams can be read")
    for host in left if begun else ():
        if not host.reached or host.failure:
            refusals.append(f"the host of {host.server} cannot be read over SSH: {host.failure or 'it is unreachable'}")
        elif host.running and not host.aside:
            refusals.append(
                _stale(host) if host.copied else f"{host.server} runs while others are stopped and copied: stop it"
            )
        elif not host.copied and any(other.aside for other in left):
            refusals.append(
                f"the store of {host.server} has not been copied, but an earlier rescue has renamed those of others"
            )
    made = RescuePlan(
        tuple(host.server for host in left),
        tuple(sorted(request.dead)),
        refusals=tuple(refusals),
        steps=_fresh_steps(left, hosts, request),
        fresh=True,
    )
    return replace(
        made, page=listing([f"{host.server}: {_progress(host)}" for host in left], what="server") + _step_page(made)
    )


def _progress(host: RescueHost) -> str:
    runs = "runs" if host.running else "is stopped"
    copied = "its store is copied" if host.copied else "its store is not copied"
    return f"{runs}; {copied}{' and renamed' if host.aside else ''}"


def applied_problems(answers: Sequence[Mapping[str, Any]], survivors: Collection[str], quorum: int) -> list[str]:
    """Return the problems in the replies to META.RESCUE. META.RESCUE has no single recipient: every server that
    receives the request executes it.

    `answers`: for each server, its name as `server`, and `new_quorum` or `error`."""
    took = {
        str(answer.get("server")): int(answer.get("new_quorum") or 0) for answer in answers if not answer.get("error")
    }
    found = [
        f"{answer.get('server') or 'a server'} refused: {(answer.get('error') or {}).get('description', 'no reason')}"
        for answer in answers
        if answer.get("error")
    ]
    others = sorted(set(took) - set(survivors))
    if others:
        found.append(f"{_names(others)} also carried out the request, but did not answer before")
    missing = sorted(set(survivors) - set(took))
    if missing:
        found.append(f"{_names(missing)} did not carry it out")
    lower = sorted(name for name, new in took.items() if new < quorum)
    if lower:
        found.append(f"{_names(lower)} decides with fewer than {quorum} votes")
    return found


def _page(made: RescuePlan, sight: Sight, members: frozenset[str]) -> Page:
    absent = sorted(members - frozenset(made.survivors))
    found = page(
        f"Meta group: {made.size} members, {made.quorum} of them must be up; {len(made.survivors)} answer "
        f"({_names(made.survivors)})"
    )
    found += names_line("Not a member of the meta group: ", sorted(_answering(sight.cluster) - members))
    found += first_items(
        [_state_page(f"  {name}: ", sight.hosts.get(name, RescueHost(name))) for name in absent], "server"
    )
    found += _stream_page(made) + names_line("Lost, only dead servers had a replica: ", made.lost)
    if not made.lost and made.fresh and sight.assigned is None:
        found += page("The data of dead servers without other replicas is lost; its extent is unknown")
    elif not made.lost and sight.assigned is None and made.steps:
        found += page(
            "Losses are known once there is a meta leader; the rescue stops there for any loss that is not listed"
        )
    if not made.steps and not made.refusals:
        found += page("Nothing to rescue.")
    if made.fresh:
        old = _names(text for name, text in _old(sight.cluster).items() if name in made.survivors)
        found += page(
            f"Only nats-server 2.15 and newer can be rescued in place, but {old} are running: their data moves to a "
            "fresh cluster"
        )
    return found + _step_page(made)


def _step_page(made: RescuePlan) -> Page:
    steps = [
        [f"{number}. {step.does}", *(f"   $ {command}" for command in step.commands)]
        for number, step in enumerate(made.steps, 1)
    ]
    return blocks(steps, what="step") + listing([f"Refused: {refusal}." for refusal in made.refusals], what="refusal")


def _stream_page(made: RescuePlan) -> Page:
    stalled = []
    for fate in [fate for fate in made.fates if fate.stalled]:
        held = ", ".join(f"{name} up to {seq}" for name, seq in fate.holders.items()) or "no server"
        back = min(fate.num_replicas, len(made.survivors)) if made.fresh else len(fate.holders)
        stalled.append(
            f"  stream {fate.label} (R{fate.num_replicas}) has lost its majority ({_names(fate.dead)}); held by {held}: "
            + (
                "is lost with them, because it is in memory"
                if made.fresh and fate.in_memory
                else f"comes back up to {fate.last_seq} with {back} of {fate.num_replicas} replicas{_undeleted(fate)}"
            )
        )
    others = len(made.fates) - len(stalled)
    found = listing(stalled, what="stalled stream")
    return found + page(*[f"  {counted(others, 'stream')} with a majority"] if others else [])


def _undeleted(fate: Fate) -> str:
    """Return a note if the servers that have the stream differ in deleted messages: a server that crashed and restarted
    may have lost its last deletions."""
    if len(set(fate.counts.values())) < 2:
        return ""
    each = ", ".join(f"{name} {count}" for name, count in fate.counts.items())
    return f"; up to there they have different numbers of messages ({each}), so deleted messages may reappear"


def _state_page(head: str, host: RescueHost) -> Page:
    if not host.reached:
        return page(f"{head}answers neither over NATS nor over SSH")
    if host.failure:
        return page(f"{head}answers over SSH only, but cannot be read: {host.failure}")
    state = "runs, cut off" if host.running else f"cannot start ({host.fenced})" if host.fenced else "could start"
    held = [
        f"{'/'.join(name)} {'of unknown length' if stored.last_seq is None else f'up to {stored.last_seq}'}"
        for name, stored in sorted(host.streams.items())
    ]
    return names_line(f"{head}answers over SSH only, {state}; its disk holds ", held or ["no streams"])


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
