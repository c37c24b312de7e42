# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a membership plan in their order, with their gates, as documents. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..batch import Batch, BatchGate, Drain, number_batches
from .membership_plan import REPLACE, SCALE_IN, SCALE_OUT, InventoryServer, MembershipOptions, MembershipPlan
from .scale_in import ScaleInRules

#: The steps; each is a task file of the role nats_cluster, in the folder membership.
JOIN, DECOMMISSION, DEPLOY, REBALANCE = "join", "decommission", "deploy", "rebalance"


@dataclass(frozen=True)
class StepOptions:
    """How the steps are carried out."""

    #: Problems that every gate tolerates.
    tolerate: Sequence[str] = ()
    #: Whether replicas are rebalanced after servers have joined.
    rebalance: bool = False
    #: Seconds within which the servers that join must have their replicas.
    wait_timeout: float = 3600
    #: Seconds without progress after which that wait ends.
    stall_timeout: float = 300
    #: When the plan was made, in seconds since 1970.
    began: int = 0


def first_gate(made: MembershipPlan, request: MembershipOptions, options: StepOptions) -> BatchGate:
    """Return the gate before the first change."""
    if request.operation == SCALE_IN:
        leaving = tuple(item.member for item in made.leaving if item.answers)
        return _gate((*request.members, *leaving), options, made.leaving_down)
    known_down = (*made.leaving_down, *made.returning) if request.operation == REPLACE else ()
    return _gate(made.running, options, known_down)


def step_documents(
    made: MembershipPlan, request: MembershipOptions, rules: ScaleInRules, options: StepOptions
) -> list[dict[str, Any]]:
    """Return the steps of the operation in order; none if it is refused or changes no members.

    A machine that is replaced under a different name is removed by a second plan, see `next_operation`."""
    if made.refusals:
        return []
    steps: list[Batch] = []
    if made.joining:
        steps.append(_join(made, request, options))
    if request.operation == SCALE_IN:
        steps += [_decommission(made, request, rules, options, index) for index in range(len(made.leaving))]
    if request.operation in (SCALE_OUT, SCALE_IN) or made.returning:
        steps.append(_for_all(DEPLOY, "deploy the inventory", request.members))
    if request.operation == SCALE_OUT and options.rebalance:
        steps.append(_for_all(REBALANCE, "rebalance replicas and leaders", request.members))
    return number_batches(steps, options.began, "step")


def next_operation(request: MembershipOptions) -> str:
    """Return the operation to plan after the steps, because its preconditions depend on them; empty if there is none.

    Whether the meta group and the streams can do without the dead machine is known only once its replacement has
    joined."""
    return SCALE_IN if request.operation == REPLACE and request.replacement else ""


def result_lines(request: MembershipOptions, accept_loss: Sequence[str]) -> list[str]:
    """Return the result of a completed replacement as readable text; empty for other operations. `accept_loss`: the
    option of this name."""
    if not request.replace:
        return []
    listed = any(member.host == request.replace for member in request.leaving)
    removal = f": remove {request.replace} from the inventory" if listed else ""
    lines = [
        f"{request.replacement} replaced {request.replace}{removal}."
        if request.replacement
        else f"{request.replace} is back in service."
    ]
    if accept_loss:
        lines.append(f"Restore or delete, because their only replica is lost: {', '.join(accept_loss)}.")
    return lines


def _join(made: MembershipPlan, request: MembershipOptions, options: StepOptions) -> Batch:
    """Return the step that starts the new servers and waits for their replicas, even without a health gate."""
    absent = made.leaving_down if request.operation == REPLACE else ()
    arrived = replace(
        _gate(request.members, options, absent),
        required=True,
        wait_timeout=options.wait_timeout,
        stall_timeout=options.stall_timeout,
    )
    return Batch(
        title=f"join {', '.join(made.joining)}",
        action=JOIN,
        hosts=made.joining,
        servers=[member.server_name for member in request.members if member.host in made.joining],
        gates={"after": arrived},
    )


def _decommission(
    made: MembershipPlan, request: MembershipOptions, rules: ScaleInRules, options: StepOptions, index: int
) -> Batch:
    """Return the step that removes a server. A server that does not answer has no gate before its stop, and a server
    that has already left has none after its removal."""
    leaver = made.leaving[index]
    name, known = leaver.member.server_name, leaver.answers or leaver.meta_member
    # Servers that leave later keep running until then.
    remaining = (*request.members, *(item.member for item in made.leaving[index + 1 :] if item.answers))
    gates = {}
    if leaver.answers:
        before = _gate((*remaining, leaver.member), options, (*made.leaving_down, name))
        gates["before"] = replace(before, stop_servers=(name,), reason="replicas move off the server before its stop")
    if known:
        gates["after"] = _gate(remaining, options, [down for down in made.leaving_down if down != name])
    return Batch(
        title=f"decommission {name}",
        action=DECOMMISSION,
        # A host that cannot be reached has no server to stop: the plan refuses if its server answers.
        hosts=[leaver.member.host] if leaver.member.host and leaver.reachable else [],
        servers=[name],
        gates=gates,
        drain=Drain(
            leaders=known,
            replicas=known,
            # The plan listed the losses, which were refused or accepted.
            accept_loss=rules.r1_policy == "move" if leaver.answers else bool(rules.accept_loss),
        ),
        details={"exclude_first": leaver.answers},
    )


def _for_all(action: str, title: str, members: Sequence[InventoryServer]) -> Batch:
    return Batch(
        title=title,
        action=action,
        hosts=[member.host for member in members],
        servers=[member.server_name for member in members],
    )


def _gate(expected: Iterable[InventoryServer], options: StepOptions, absent: Iterable[str] = ()) -> BatchGate:
    """Return a gate for these servers. `absent`: names of servers that are known to be down or are about to be stopped,
    so their faults are tolerated."""
    return BatchGate(
        expected=[member.as_dict() for member in expected],
        tolerate=[*options.tolerate, *absent],
    )
