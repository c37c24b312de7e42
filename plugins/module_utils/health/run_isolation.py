# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds servers that the others do not reach, by querying the servers' own addresses."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Callable

from ..nats.client import Client, LoginReply, NatsFailure
from ..nats.model import Cluster
from ..nats.system_api import SystemApi
from .isolation import isolation_reason

#: Seconds between two probes of the same servers' addresses, and the timeout of each probe.
LOOK_INTERVAL = 10.0
LOOK_TIMEOUT = 2.0


class Isolation:
    """Finds servers that are running but not reached by the cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._missing: frozenset[str] = frozenset()
        self._found: dict[str, str] = {}
        self._looked = 0.0
        #: The address of a server through which more of the expected servers can be reached, or None.
        self.better: str | None = None

    def read(self, read: Callable[[], Cluster], expected: Collection[str]) -> Cluster:
        """Return the cluster that was read, completed with the servers that run apart from it; if more of the expected
        servers are in a different cluster, return that cluster."""
        cluster = self.completed(read(), expected)
        if self.better is not None:
            self._client.prefer(self.better)
            self.better = None
            cluster = self.completed(read(), expected)
        return cluster

    def completed(self, cluster: Cluster, expected: Collection[str]) -> Cluster:
        """Return the cluster, completed with the expected servers that run apart from it."""
        missing = frozenset(expected) - cluster.names
        if not missing or len(self._client.options.servers) < 2:
            return cluster
        if missing != self._missing or time.monotonic() - self._looked > LOOK_INTERVAL:
            self._missing, self._looked = missing, time.monotonic()
            self._found, self.better = self._look(cluster, missing, len(cluster.names & frozenset(expected)))
        return replace(cluster, apart=self._found)

    def _look(self, cluster: Cluster, missing: frozenset[str], present: int) -> tuple[dict[str, str], str | None]:
        found: dict[str, str] = {}
        better, most = None, present
        reference: Mapping[str, Any] | None = None
        for item in self._client.announcements(min(LOOK_TIMEOUT, self._client.options.timeout)):
            if item.server_name not in missing:
                continue
            if item.failure is not None:
                found[item.server_name] = f"{item.failure.description} ({item.address})"
                continue
            if reference is None:
                reference = _varz(SystemApi(self._client), cluster)
            found[item.server_name], reached = self._ask(item, reference, missing)
            if reached > most:
                better, most = item.address, reached
        return found, better

    def _ask(self, item: LoginReply, reference: Mapping[str, Any], missing: frozenset[str]) -> tuple[str, int]:
        """Return why a server is isolated, and how many of the missing servers it reaches, including itself."""
        options = replace(self._client.options, servers=(item.address,), timeout=LOOK_TIMEOUT)
        try:
            with Client(options) as client:
                api = SystemApi(client)
                servers = api.discover().servers
                server = next(one for one in servers if one.id == client.identity[0])
                varz = api.ask_one(server, "VARZ")
                routes = api.ask_one(server, "ROUTEZ").get("routes") or ()
        except (NatsFailure, StopIteration) as failure:
            return f"it answers at {item.address}, but not to system requests ({failure})", 0
        reached = len(missing.intersection(one.name for one in servers))
        return isolation_reason(varz, reference, [str(route.get("remote_name", "")) for route in routes]), reached


def _varz(api: SystemApi, cluster: Cluster) -> Mapping[str, Any]:
    for server in cluster.servers:
        try:
            return api.ask_one(server, "VARZ")
        except NatsFailure:
            continue
    return {}
