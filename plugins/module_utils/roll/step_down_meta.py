# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The meta group for `step_down.step_down`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..nats.client import Client, NatsFailure
from ..nats.meta_api import MetaApi
from ..nats.model import RaftGroup, Server
from ..nats.system_api import SystemApi
from .leadership import REFUSED, STEP_DOWN, LeaderConstraints, leader_by_majority, plan_group, supports_placement
from .step_down import Reading, StepDownJob, step_down


class MetaGroups:
    """The one meta group, for `step_down`."""

    def __init__(self, client: Client) -> None:
        self._system = SystemApi(client)
        self._meta = MetaApi(client)

    def state(self) -> tuple[tuple[Server, ...], RaftGroup]:
        """Return the servers that responded, and the meta group with the leader that a majority reports. Raises
        NatsFailure not_clustered if there is no meta group."""
        cluster = self._system.read_cluster(assets=False, health=False)
        if cluster.meta is None:
            names = ", ".join(sorted(cluster.names))
            raise NatsFailure("not_clustered", f"no server that answered ({names}) is in a JetStream meta group")
        return cluster.servers, leader_by_majority(cluster.meta)

    def read(self, keys: Sequence[str]) -> list[Reading]:
        return [self.state()[1] for _key in keys]

    def ask(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[NatsFailure | None]:
        answers: list[NatsFailure | None] = []
        for _key, body in requests:
            try:
                self._meta.step_down(body)
                answers.append(None)
            except NatsFailure as failure:
                answers.append(failure)
        return answers


def move_meta_leader(client: Client, constraints: LeaderConstraints, timeout: float) -> bool:
    """Make a suitable server lead the meta group; return whether a leader had to step down.

    Raises NatsFailure if no suitable server leads at the end.
    """
    groups = MetaGroups(client)
    there, group = groups.state()
    servers = {server.name: server for server in there}
    plan = plan_group(group, constraints, servers)
    job = StepDownJob("meta", plan)
    if plan.action == STEP_DOWN:
        step_down(groups, [job], servers, supports_placement(there), timeout)
    failed = plan.reason if plan.action == REFUSED else job.failed
    if failed:
        raise NatsFailure("step_down_failed", f"the meta group has no suitable leader: {failed}")
    return plan.action == STEP_DOWN
