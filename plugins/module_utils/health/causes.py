# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root causes of a cluster's problems: thousands of symptoms grouped under a few causes. Pure.

Two dead servers cause hundreds of streams without a quorum and hundreds of missing replicas. `root_causes` puts each
problem under exactly one cause, the most fundamental first, with its remedy; `cause_lines` writes them on one screen.
The health gate, the restart plan, the diagnosis, the report and the event sources use these functions, each with its
own `ClusterContext`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..problem import ERROR, Problem
from ..screen import MAX_FAIL_LINES, MAX_LINES, cut
from ..units import counted
from .asset_causes import (
    catching_up,
    different_replicas,
    ghosts,
    membership,
    request,
    restored,
    short_groups,
    unhealthy_assets,
    unknown,
)
from .cause import KINDS, ClusterContext, RootCause, Unexplained, with_inventory
from .server_causes import (
    duplicates,
    elections,
    isolated,
    joined,
    maintenance,
    meta_group,
    raft_silent,
    recovering,
    renamed,
    routes_cut,
    server_faults,
    servers_down,
    storage,
    too_old,
    unreachable,
)

#: Number of messages shown for a cause if not all of them fit.
_EXAMPLES = 4


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


def root_causes(problems: Sequence[Problem], context: ClusterContext) -> list[RootCause]:
    """Return the causes of the problems; each problem belongs to exactly one cause. Causes with errors come first, then
    the most fundamental."""
    left = Unexplained(problems)
    found = [cause for find in _FINDERS for cause in find(left, context)]
    causes = [
        replace(cause, commands=tuple(with_inventory(command, context.inventory) for command in cause.commands))
        for cause in found
    ]
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


def refusal(head: str, problems: Iterable[Problem], context: ClusterContext) -> str:
    """Return why an operation is refused: the root causes of the errors on one screen, or an empty text if there are no
    errors. `head`: the first line."""
    errors = [problem for problem in problems if problem.severity == ERROR]
    if not errors:
        return ""
    lines = cause_lines(root_causes(errors, context), MAX_FAIL_LINES - 1)
    return "\n".join([head, *lines])


def _commands(cause: RootCause) -> tuple[str, ...]:
    return cause.commands[:2]


_FINDERS: tuple[Callable[[Unexplained, ClusterContext], Iterable[RootCause]], ...] = (
    unreachable,
    renamed,
    duplicates,
    joined,
    isolated,
    servers_down,
    maintenance,
    storage,
    recovering,
    raft_silent,
    elections,
    routes_cut,
    meta_group,
    ghosts,
    restored,
    too_old,
    unhealthy_assets,
    server_faults,
    different_replicas,
    short_groups,
    catching_up,
    membership,
    request,
    unknown,
)
