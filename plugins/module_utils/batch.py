# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches of a plan as documents. All plans have batches of this form, and the tasks of a role carry them out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class BatchGate:
    """The arguments of a health gate, for the task file `health/gate` of nats_cluster. None: the default of the role."""

    #: Names of the servers about to be stopped.
    stop_servers: Sequence[str] = ()
    #: Accepted problem codes, servers and assets.
    tolerate: Sequence[str] | None = None
    #: The servers that the cluster must have, as in the inventory.
    expected: Sequence[Mapping[str, Any]] | None = None
    #: Whether problems of the stop alone fail the gate (fail) or are returned (report).
    stop_policy: str = "fail"
    #: Whether single replicas on the stopped servers are accepted (accept) or a problem (fail).
    r1_policy: str | None = None
    samples: int | None = None
    #: Seconds that the samples span.
    span: float | None = None
    #: Seconds after which the gate fails.
    wait_timeout: float | None = None
    #: Seconds without progress after which the gate fails.
    stall_timeout: float | None = None
    #: Seconds without a change after which the gate fails if waiting cannot help.
    stuck_timeout: float | None = None
    #: Whether the gate is required even if the role's gate is disabled.
    required: bool = False
    #: The option `previous` of the module nats_cluster_health.
    previous: Mapping[str, Any] | None = None
    #: The host that ran the previous gate.
    previous_host: str = ""
    #: Whether the previous gate will cover this one if it passes.
    shared: bool = False
    #: Why the previous gate covers this one or does not.
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the gate for the result of a module, without the defaults of the role."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None
        }


@dataclass(frozen=True)
class Drain:
    """The leaders, clients and replicas that the tasks move off the servers of a batch before their stop."""

    leaders: bool = False
    clients: bool = False
    #: Whether all replicas are moved as well.
    replicas: bool = False
    #: Whether single replicas may be lost (only with `replicas`).
    accept_loss: bool = False
    #: Whether single replicas are moved (move) or stay (accept).
    r1_policy: str = "accept"
    #: Names of servers to which no leader is moved, because they restart later.
    avoid_servers: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the drain for the result of a module."""
        return {**self.__dict__, "avoid_servers": list(self.avoid_servers)}


@dataclass(frozen=True)
class Batch:
    """A batch of a plan, before it is numbered."""

    title: str
    #: The task file that carries out the batch; empty if all batches of the plan have the same one.
    action: str = ""
    #: Inventory names of the hosts that act.
    hosts: Sequence[str] = ()
    #: Names of the servers that are changed.
    servers: Sequence[str] = ()
    gates: Mapping[str, BatchGate] = field(default_factory=dict)
    drain: Drain = Drain()
    #: Further keys of this kind of plan.
    details: Mapping[str, Any] = field(default_factory=dict)


def number_batches(batches: Sequence[Batch], began: int = 0, counted: str = "") -> list[dict[str, Any]]:
    """Return the document of each batch, with the hosts of the later batches and the header of progress lines.

    `began`: when the plan was made, in seconds since 1970; 0 shows no elapsed time. `counted`: the noun with which the
    titles count the batches, such as step; empty for titles as they are."""
    documents = []
    for index, batch in enumerate(batches):
        title = f"{counted} {index + 1} of {len(batches)}: {batch.title}" if counted else batch.title
        progress = {"title": title, "step": index + 1, "steps": len(batches), "began": began}
        later = [host for following in batches[index + 1 :] for host in following.hosts]
        documents.append(
            {
                "number": index + 1,
                "action": batch.action,
                "hosts": list(batch.hosts),
                "servers": list(batch.servers),
                "title": title,
                "remaining": list(dict.fromkeys(later)),
                "gates": {name: {**gate.as_dict(), "progress": progress} for name, gate in batch.gates.items()},
                "drain": batch.drain.as_dict(),
                "progress": progress,
                **batch.details,
            }
        )
    return documents
