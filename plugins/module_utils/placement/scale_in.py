# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether servers can leave a cluster permanently, and where their replicas will go. Pure: no I/O.

The departure of all servers is planned together, before the first one is changed: replicas of the first server must not
move to the next one that leaves, and those of the last server must still find room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ..health.rules import Limits
from ..nats.model import LEVEL_2_15, Cluster, Stream
from ..problem import ERROR, WARNING, Problem
from .rules import evaluate_candidates, replica_requirements, simulate_move


@dataclass(frozen=True)
class ScaleInRules:
    """`min_servers`: members that the meta group must keep. `r1_policy`: `fail` or `move` for streams with a single
    replica on a running server. `accept_loss`: streams and consumers that may be lost with a server that is down, as
    ACCOUNT/STREAM or ACCOUNT/STREAM/CONSUMER."""

    min_servers: int = 3
    r1_policy: str = "fail"
    accept_loss: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Relocation:
    """A stream whose replica leaves `source`, and the server that the meta leader would choose for it."""

    stream: str
    source: str
    target: str


@dataclass(frozen=True)
class ScaleInPlan:
    """`order`: the servers in the order in which they leave. `moves`: the replicas that move off them, in order.
    `problems`: the obstacles. `meta_after`: number of members of the meta group afterwards."""

    order: tuple[str, ...] = ()
    moves: tuple[Relocation, ...] = ()
    problems: tuple[Problem, ...] = ()
    meta_after: int = 0


def plan_scale_in(
    cluster: Cluster, leaving: Sequence[str], rules: ScaleInRules, lost: Iterable[str] = (), unread: Iterable[str] = ()
) -> ScaleInPlan:
    """Return the order in which the servers can leave, and every reason against their leaving.

    Servers that are down leave first: while they are members, they count for the size of the quorum but not as members
    that are up. `lost`: assets without a leader (a server that is down may have the only replica of each); `unread`:
    accounts for which no list of such assets could be read. A server that is no longer a member and has no replicas has
    already left.
    """
    order = tuple(sorted(leaving, key=lambda name: name in cluster.names))
    moves, problems = _relocate(cluster, order, rules)
    return ScaleInPlan(
        order=order,
        moves=tuple(moves),
        problems=(*_meta(cluster, order, rules), *problems, *_losses(cluster, order, rules, lost, unread)),
        meta_after=len(cluster.meta_members - set(order)),
    )


def _meta(cluster: Cluster, leaving: Collection[str], rules: ScaleInRules) -> Iterable[Problem]:
    """Yield why the meta group cannot do without these servers: too few members remain, or none can be spared beyond
    the quorum."""
    meta = cluster.meta
    if meta is None or meta.group.leader is None:
        yield Problem("meta_no_leader", ERROR, "meta group", "the meta group has no leader, so no server can leave it")
        return
    going = cluster.meta_members & set(leaving)
    if not going:
        return
    left = sorted(cluster.meta_members - going)
    quorum = len(left) // 2 + 1
    limits = Limits()
    behind = {peer.name for peer in meta.group.peers if peer.name not in cluster.names or not limits.in_step(peer)}
    in_step = [name for name in left if name not in behind]
    names = ", ".join(sorted(going))
    if len(left) < rules.min_servers:
        yield Problem(
            "scale_in_too_few",
            ERROR,
            "meta group",
            f"without {names} the meta group has {len(left)} member(s) ({', '.join(left) or 'none'}), fewer than the "
            f"required {rules.min_servers}. Add servers first",
        )
    elif len(in_step) <= quorum:
        yield Problem(
            "scale_in_no_spare",
            ERROR,
            "meta group",
            f"without {names} the meta group needs {quorum} of {len(left)} members, but {len(in_step)} are in step "
            f"({', '.join(in_step)}): the next failure would stop it. Repair or add servers first",
        )
    if len(left) % 2 == 0 and len(left) >= rules.min_servers:
        yield Problem(
            "scale_in_even",
            WARNING,
            "meta group",
            f"without {names} the meta group has {len(left)} members, which survive no more failures than "
            f"{len(left) - 1} would",
        )


def _relocate(cluster: Cluster, leaving: Sequence[str], rules: ScaleInRules) -> tuple[list[Relocation], list[Problem]]:
    moves: list[Relocation] = []
    problems: list[Problem] = []
    now = cluster
    for source in leaving:
        for stream in _hosted(now, source):
            if stream.group.size == 1 and source in cluster.names and not _single_may_move(cluster, rules):
                problems.append(_single(stream, source))
            judgement = evaluate_candidates(now, replica_requirements(stream), stream.group.members, leaving)
            if not judgement.candidates:
                problems.append(
                    Problem(
                        "scale_in_no_room",
                        ERROR,
                        stream.group.subject,
                        f"no other server can take the replica of {stream.group.subject} on {source} "
                        f"(R{stream.group.size} on {', '.join(stream.group.members)}): {judgement.reasons()}. Add a "
                        "server, free space, or reduce the replicas of the stream first",
                        (source,),
                    )
                )
                continue
            target = judgement.candidates[0]
            moves.append(Relocation(stream.label, source, target))
            now = simulate_move(now, stream, source, target)
    return moves, problems


def _hosted(cluster: Cluster, source: str) -> list[Stream]:
    """Return the streams with a replica on the server, the largest first."""
    hosted = [stream for stream in cluster.streams if source in stream.group.members]
    return sorted(hosted, key=lambda item: (-replica_requirements(item).bytes, item.account_name, item.name))


def _single_may_move(cluster: Cluster, rules: ScaleInRules) -> bool:
    """Return whether single replicas may move: before 2.15, messages published during the move may be lost."""
    return rules.r1_policy == "move" or cluster.api_level >= LEVEL_2_15


def _single(stream: Stream, source: str) -> Problem:
    return Problem(
        "scale_in_single_replica",
        ERROR,
        stream.group.subject,
        f"{stream.group.subject} has its only replica on {source}, and nats-server before 2.15 may lose messages "
        "published during the move. Give it more replicas first, or stop its producers and let it move",
        (source,),
    )


def _losses(
    cluster: Cluster, leaving: Sequence[str], rules: ScaleInRules, lost: Iterable[str], unread: Iterable[str]
) -> Iterable[Problem]:
    dead = [server for server in leaving if server not in cluster.names and server in cluster.meta_members]
    if not dead:
        return
    names = tuple(dead)
    where = ", ".join(dead)
    for label in lost:
        accepted = label in rules.accept_loss
        yield Problem(
            "scale_in_loss",
            WARNING if accepted else ERROR,
            label,
            f"{label} has no leader: {where}, which does not answer, may have its only replica. "
            + ("It is lost, as was accepted" if accepted else "Start that server once more, or accept that it is lost"),
            names,
        )
    for account in unread:
        yield Problem(
            "scale_in_unread_account",
            ERROR,
            account,
            f"there is no user for account {account}, so it is unknown whether {where} has the only replica of one of "
            "its streams",
            names,
        )
