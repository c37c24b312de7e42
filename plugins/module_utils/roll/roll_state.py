# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a roll between its batches: which hosts are done, whether a batch may start, and why it failed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..times import parse_time
from ..units import counted

#: The states of a host: its server has not been restarted yet, is running again, or its batch is complete.
PLANNED, BACK, DONE = "planned", "back", "done"


@dataclass(frozen=True)
class HostState:
    """The facts that a host has recorded in this run."""

    #: PLANNED, BACK or DONE.
    state: str = PLANNED
    #: Why its step failed; empty if it did not.
    failure: str = ""
    #: The result of the rollback; empty if there was none.
    outcome: str = ""
    #: Whether the host stays in maintenance, so its server cannot be started.
    held: bool = False
    #: Titles of the root causes in the cluster after the failure.
    causes: tuple[str, ...] = ()
    #: Configuration keys whose change requires the restart.
    keys: tuple[str, ...] = ()


def roll_state(
    batches: Sequence[Mapping[str, Any]],
    hosts: Mapping[str, HostState],
    number: int = 0,
    not_after: str = "",
    now: float = 0,
    resume: str = "",
) -> dict[str, Any]:
    """Return the state of the roll and of its batch `number`.

    `batches`: the documents of the plan. `hosts`: host → its facts. `number`: the current batch, from 1; 0
    between the batches. `not_after`: no batch starts after this time. `resume`: the variable with which the same command
    resumes; empty if it needs none. Raises ValueError if `not_after` is not a time."""
    planned = [host for batch in batches for host in batch["hosts"]]
    done = [host for host in planned if hosts[host].state == DONE]
    # YAML may have converted the text into a time, which then has a space instead of the T.
    window_over = bool(not_after) and now > parse_time(not_after.replace(" ", "T")).timestamp()
    undone = [host for host in planned if host not in done]
    state: dict[str, Any] = {"done": done, "undone": undone, "window_over": window_over, "resume": _resume(resume)}
    state["result"] = f"{len(done)} of {counted(len(planned), 'server')} restarted"
    if not number:
        return state
    batch = batches[number - 1]
    failed = [host for host in batch["hosts"] if hosts[host].state != BACK]
    failures = [hosts[host].failure for host in batch["hosts"] if hosts[host].failure]
    return {
        **state,
        "refusal": _refusal(batch, done, undone, not_after if window_over else "", resume),
        "failed": failed,
        # A batch whose servers are back, but not the cluster, is rolled back completely.
        "roll_back": failed or list(batch["hosts"]),
        "failures": failures,
        "reason": "; ".join(failures) or "unreachable",
        "message": _failure(batch, hosts, done, resume),
        # Servers with and without an operator run next to each other until then.
        "changes_mode": any("operator" in hosts[host].keys for host in batch["remaining"]),
    }


def _resume(resume: str) -> str:
    """Return the instruction for a run that is killed, which prints nothing at its end."""
    return (
        f"If this run is interrupted, a stopped server stays down until you run the same command again{_with(resume)}."
    )


def _with(resume: str) -> str:
    return f" with -e {resume}" if resume else ""


def _refusal(batch: Mapping[str, Any], done: Sequence[str], undone: Sequence[str], window_end: str, resume: str) -> str:
    """Return why the batch must not start; empty if it may. `window_end`: the end of a maintenance window that is
    over."""
    still = [*batch["hosts"], *batch["remaining"]]
    if set(undone).difference(still):
        return f"{batch['title']} was not started: an earlier batch failed."
    if window_end:
        return (
            f"{batch['title']} was not started: the maintenance window ended at {window_end}. "
            f"Restarted: {_listed(done)}. Remaining: {', '.join(still)}. The cluster was healthy when the last batch "
            f"ended; run the same command{_with(resume)} in the next window."
        )
    return ""


def _failure(batch: Mapping[str, Any], hosts: Mapping[str, HostState], done: Sequence[str], resume: str) -> str:
    """Return the message of a batch that failed."""
    lines = [f"{batch['title']} failed, and the roll has stopped."]
    causes: list[str] = []
    for name in batch["hosts"]:
        host = hosts[name]
        causes += host.causes
        if host.failure:
            lines.append(host.failure)
        elif host.state != BACK:
            lines.append(f"{name} is no longer reachable.")
        if host.outcome:
            lines.append(f"{name}: {host.outcome}")
        elif host.held:
            lines.append(f"{name} stays in maintenance, so its server is not started before the work on it is done.")
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return "\n".join(
        [
            *lines,
            f"The cluster now: {causes[0] if causes else 'no problems found.'}{more}",
            f"Restarted: {_listed(done)}. Not touched: {_listed(batch['remaining'])}.",
            f"Once the cause is fixed, run the same command again{_with(resume)}: it continues where this run stopped.",
        ]
    )


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) or "none"
