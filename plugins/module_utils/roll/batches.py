# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches of a plan as documents, with everything that the tasks of a batch need. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..batch import Batch, BatchGate, Drain, number_batches
from .gates import STUCK_TIMEOUT, Gate, Steps, gate_covers
from .restart_plan import BatchEffect

#: The option `rolling` of the planning modules (doc_fragments/rolling.py).
ROLLING_SPEC: dict[str, dict[str, Any]] = {
    "rolling": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "drain": {"type": "bool", "default": True},
            "drain_clients": {"type": "bool", "default": True},
            "restore_leaders": {"type": "bool", "default": False},
            "hooks": {"type": "bool", "default": False},
            "samples": {"type": "int", "default": 4},
            "span": {"type": "float", "default": 10},
            "span_between": {"type": "float", "default": 5},
            "tolerate": {"type": "list", "elements": "str", "default": []},
        },
    },
}


@dataclass(frozen=True)
class Rolling:
    """How the batches are carried out: the options `rolling`, and the findings of the plan."""

    #: The option `rolling`.
    options: Mapping[str, Any]
    #: How single replicas are treated: accept, fail or move.
    r1_policy: str
    #: When the plan was made, in seconds since 1970.
    began: int
    #: Whether a health gate watches the batches.
    gated: bool = True
    #: Whether the servers stay down, so no gate can evaluate the next stop in advance.
    stays_down: bool = False
    #: Server → the version that it runs; servers that did not answer are omitted.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Names of the raft-silent servers.
    silent: Sequence[str] = ()
    #: Streams and consumers with faults that no restart caused.
    asset_faults: Sequence[str] = ()

    @property
    def steps(self) -> Steps:
        """Return the steps between two batches."""
        return Steps(
            drain=self.options["drain"],
            move_single_replicas=self.r1_policy == "move",
            restore_leaders=self.options["restore_leaders"],
            hooks=self.options["hooks"],
        )


def batch_documents(
    batches: Sequence[Sequence[str]],
    hosts: Mapping[str, str],
    rolling: Rolling,
    reasons: Sequence[str] = (),
    effects: Sequence[BatchEffect] = (),
) -> list[dict[str, Any]]:
    """Return each batch with its hosts, gates, drain and progress header.

    `batches`: names of servers. `hosts`: server → host. `reasons`, `effects`: one for each batch, in order; empty if the
    cluster could not be read."""
    made = []
    for index, servers in enumerate(batches):
        names = [hosts[name] for name in servers]
        effect = effects[index].__dict__ if effects else {"leaders": None, "groups": None}
        moves_replicas = rolling.steps.move_single_replicas
        made.append(
            Batch(
                title=f"batch {index + 1} of {len(batches)} ({', '.join(names)})",
                hosts=names,
                servers=servers,
                gates=_gates(batches, index, hosts, rolling) if rolling.gated else {},
                drain=Drain(
                    leaders=rolling.gated and (rolling.steps.drain or moves_replicas),
                    clients=rolling.gated and rolling.options["drain_clients"],
                    r1_policy="move" if moves_replicas else "accept",
                    # Leaders that moved to these servers would have to move again.
                    avoid_servers=_later(batches, index),
                ),
                details={"reason": reasons[index] if reasons else "", **effect},
            )
        )
    return number_batches(made, rolling.began)


def _later(batches: Sequence[Sequence[str]], index: int) -> list[str]:
    return [name for batch in batches[index + 1 :] for name in batch]


def _gates(
    batches: Sequence[Sequence[str]], index: int, hosts: Mapping[str, str], rolling: Rolling
) -> dict[str, BatchGate]:
    """Return the gates of the batch."""
    options, steps, servers, later = rolling.options, rolling.steps, list(batches[index]), _later(batches, index)
    between = options["span_between"]
    before = BatchGate(
        stop_servers=servers,
        stuck_timeout=STUCK_TIMEOUT,
        samples=options["samples"],
        span=between if index else options["span"],
        r1_policy="accept" if steps.move_single_replicas else rolling.r1_policy,
        # The restart may fix the faults of the batch's own servers.
        tolerate=_tolerated(rolling, [*servers, *later], servers),
    )
    drained = replace(
        before,
        stuck_timeout=None,
        samples=1,
        span=0,
        # A single replica that could not be moved refuses the stop.
        r1_policy="fail" if steps.move_single_replicas else rolling.r1_policy,
    )
    shared = not rolling.stays_down and not steps.separation()
    after = replace(
        before,
        stop_servers=list(batches[index + 1]) if shared and later else [],
        # Problems that concern only the stop of the next batch are left to the next batch's gate.
        stop_policy="fail" if rolling.stays_down else "report",
        stuck_timeout=None,
        span=between if later or rolling.stays_down else options["span"],
        tolerate=_tolerated(rolling, later),
    )
    if index:
        before = replace(before, **_previous(batches, index, hosts, rolling))
    return {"before": before, "drained": drained, "after": after}


def _tolerated(rolling: Rolling, pending: Iterable[str], excused: Iterable[str] = ()) -> list[str]:
    """Return the option `tolerate` of a gate. `pending`: servers that restart later, so they may be raft-silent until
    then; `excused`: servers with tolerated faults of any kind."""
    silent = [name for name in rolling.silent if name in set(pending)]
    return [*rolling.options["tolerate"], *rolling.asset_faults, *excused, *silent]


def _previous(
    batches: Sequence[Sequence[str]], index: int, hosts: Mapping[str, str], rolling: Rolling
) -> dict[str, Any]:
    """Return the gate module's options for the decision whether the gate after the last batch covers the gate before
    this batch, and the decision for a gate that passes."""
    servers = frozenset(batches[index])
    versions = {name: rolling.versions[name] for name in batches[index] if name in rolling.versions}
    gate = Gate(stop_servers=servers, versions=versions)
    passed = None if rolling.stays_down else gate
    expected = gate_covers(passed, gate, rolling.steps)
    return {
        "previous": {"steps": dict(rolling.steps.__dict__), "versions": versions},
        "previous_host": hosts[batches[index - 1][0]],
        "shared": expected.covered,
        "reason": expected.reason,
    }
