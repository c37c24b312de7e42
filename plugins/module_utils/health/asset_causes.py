# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root causes that lie with streams, consumers and the membership. Pure: no I/O."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from ..nats.server_versions import RESTORED_UNHEALTHY
from ..problem import Problem
from .cause import (
    ASSET_FAULT,
    CATCHING_UP,
    MEMBERSHIP,
    MISPLACED,
    REQUEST,
    UNKNOWN,
    VERSION_DEFECT,
    ClusterContext,
    RootCause,
    Unexplained,
    joined_names,
    unexplained_groups,
    with_symptoms,
)
from .server_causes import log_command


def ghosts(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    taken = left.take(lambda problem: problem.code.endswith("_ghost"))
    if taken:
        assets = sorted({problem.subject for problem in taken})
        verb = "is" if len(assets) == 1 else "are"
        what = f"{joined_names(assets)} {verb} in the meta group's log, but not on any server (this alone makes healthz fail)"
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


def restored(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Streams that healthz has reported as unhealthy since their restore, because of a defect in some versions."""

    taken = left.take(lambda problem: problem.code == "stream_restored")
    if taken:
        servers = tuple(sorted({name for problem in taken for name in problem.servers}))
        assets = sorted({problem.subject for problem in taken})
        fix = RESTORED_UNHEALTHY.fixed[0]
        what = f"healthz has reported {joined_names(assets)} unhealthy since the restore"
        title = f"{what}, a defect of their version (fixed in {fix})"
        commands = (
            f"ansible-playbook natsops.jetstream.restart  # of {joined_names(servers)}: the restart clears it",
            "ansible-playbook natsops.jetstream.upgrade",
        )
        yield RootCause(VERSION_DEFECT, title, taken, servers, commands, assets=tuple(assets))


def unhealthy_assets(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Faults of streams and consumers whose members all respond and can be reached by their leaders."""
    taken = left.take(lambda problem: problem.code in ("stream_unhealthy", "consumer_unhealthy"))
    if taken:
        assets = sorted({problem.subject for problem in taken})
        servers = tuple(sorted({name for problem in taken for name in problem.servers}))
        title = f"{joined_names(assets)}: {joined_names(servers)} report unhealthy replicas"
        title = taken[0].message if len(taken) == 1 else title
        commands = (log_command(servers), "ansible-playbook natsops.jetstream.diagnose")
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
        title = f"{joined_names(broken)} {verb} no leader although all members answer"
        kind, account, names = _asset(min(broken))
        commands = (
            f"nats {kind} info {names}  # as a user of account {account}",
            "ansible-playbook natsops.jetstream.diagnose",
        )
        yield RootCause(ASSET_FAULT, title, taken, commands=commands, assets=tuple(sorted(broken)))


def different_replicas(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Yield the cause for replicas that have less data than their leader assumes; the leader will not send the missing
    data again."""
    taken = left.take(lambda problem: problem.code == "stream_replica_differs")
    if taken:
        names = tuple(sorted({name for problem in taken for name in problem.servers}))
        assets = tuple(sorted({problem.subject for problem in taken}))
        title = taken[0].message
        if len(taken) > 1:
            title = (
                f"replicas on {joined_names(names)} lack messages and make no progress, although their leaders count them as "
                "current"
            )
        commands = (
            f"journalctl -u nats-server -g 'failed|error|ERR' -n 50  # on {joined_names(names)}: a failed write or a lost "
            "store",
            "ansible-playbook natsops.jetstream.repair --check",
        )
        yield RootCause(ASSET_FAULT, title, taken, names, commands, assets=assets, lasting=True)


def short_groups(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Yield the cause for groups that have fewer members than replicas and are not being moved: no server will be
    assigned the missing replica."""
    moving = {problem.subject for problem in left if problem.code.endswith("_moving")}
    taken = left.take(lambda problem: problem.code.endswith("_replica_count") and problem.subject not in moving)
    if taken:
        assets = tuple(sorted({problem.subject for problem in taken}))
        title = taken[0].message
        if len(assets) > 1:
            title = f"{unexplained_groups(assets)} have fewer members than replicas, and no replacement is under way"
        commands = (
            "ansible-playbook natsops.jetstream.repair --check  # the proposed repairs",
            "ansible-playbook natsops.jetstream.report -e report=streams",
        )
        yield RootCause(ASSET_FAULT, title, taken, commands=commands, assets=assets, lasting=True)


def catching_up(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
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
    where = f" on {joined_names(behind)}" if behind else ""
    title = with_symptoms(f"replicas{where} catch up or move", taken)
    commands = ("ansible-playbook natsops.jetstream.report -e report=streams  # repeat: the lag must shrink",)
    yield RootCause(CATCHING_UP, title, taken, tuple(sorted(behind)), commands)


def membership(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    taken = left.take(lambda problem: problem.code in MISPLACED or problem.code.startswith(("meta_peer_", "meta_size")))
    if taken:
        subjects = {name for problem in taken for name in problem.servers or (problem.subject,)}
        names = tuple(sorted(subjects - {"meta group"}))
        title = f"the inventory and the cluster differ: {joined_names(names) or 'in size'}"
        title = taken[0].message if len(taken) == 1 else title
        commands = ("ansible-playbook natsops.jetstream.report  # compare with: ansible-inventory --graph",)
        lasting = any(problem.code in MISPLACED for problem in taken)
        yield RootCause(MEMBERSHIP, title, taken, names, commands, lasting=lasting)


def request(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    """Problems that concern only the requested stop or restart."""
    quorum = left.take(lambda problem: problem.code == "stop_breaks_quorum")
    if quorum:
        servers, groups = (
            joined_names(context.stopping) or "these servers",
            unexplained_groups(problem.subject for problem in quorum),
        )
        what = f"stopping {servers} now would take the quorum of {groups}"
        commands = (context.in_steps,)
        yield RootCause(REQUEST, what, quorum, tuple(sorted(context.stopping)), commands)
    for codes, text in (
        (("stop_r1",), "have a single replica and are unavailable while {servers} is stopped"),
        (("roll_few_replicas",), "cannot keep a quorum while {servers} restarts"),
    ):
        single = left.take(lambda problem, codes=codes: problem.code in codes)  # type: ignore[misc]
        if single:
            held = sorted({name for problem in single for name in problem.servers})
            commands = (context.moving_first,)
            what = (
                f"{unexplained_groups(problem.subject for problem in single)} {text.format(servers=joined_names(held))}"
            )
            yield RootCause(REQUEST, what, single, tuple(held), commands)
    others: dict[str, list[Problem]] = {}
    for problem in left.take(lambda problem: problem.code.startswith(("stop_", "roll_"))):
        others.setdefault(problem.code, []).append(problem)
    for found in others.values():
        more = f" (and {len(found) - 1} more of this kind)" if len(found) > 1 else ""
        named = sorted({name for problem in found for name in problem.servers})
        yield RootCause(REQUEST, f"{found[0].message}{more}", tuple(found), tuple(named))


def unknown(left: Unexplained, context: ClusterContext) -> Iterable[RootCause]:
    by_code: dict[str, list[Problem]] = {}
    for problem in left.take(lambda problem: True):
        by_code.setdefault(problem.code, []).append(problem)
    for found in by_code.values():
        more = f" (and {len(found) - 1} more of this kind)" if len(found) > 1 else ""
        servers = sorted({name for problem in found for name in problem.servers})
        commands = ("ansible-playbook natsops.jetstream.diagnose",)
        yield RootCause(UNKNOWN, f"{found[0].message}{more}", tuple(found), tuple(servers), commands)
