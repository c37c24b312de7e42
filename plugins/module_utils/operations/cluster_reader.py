# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster as a planner needs it: with a meta leader, and with the limits by which that leader chooses servers."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.leader_rebalance import write_rates
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until

#: Seconds for the things that pass by themselves: an election after a crash or a step-down, a replica a few entries behind.
ELECTION_SECONDS = 15.0

POLL_SECONDS = 0.5


def read_led_cluster(
    system: SystemApi, known_names: Collection[str] = (), assets: bool = True, account: str | None = None
) -> Cluster:
    """Return the cluster, with the meta leader's max_ha_assets, which only VARZ tells before 2.11.

    An election of the meta leader is waited for, since nobody else can choose servers. `known_names`: names of servers that may
    be down.
    """
    cluster = wait_until(
        lambda: system.read_cluster(known_names=known_names, assets=assets, account=account, health=False),
        lambda read: read.meta is None or read.meta.group.leader is not None,
        ELECTION_SECONDS,
        POLL_SECONDS,
    ).value
    leader = cluster.meta.group.leader if cluster.meta else None
    for server in cluster.servers:
        if server.name == leader and server.summary and not server.summary.api_level:
            limits = (system.ask_one(server, "VARZ").get("jetstream") or {}).get("limits") or {}
            summary = replace(server.summary, max_ha_assets=limits.get("max_ha_assets", 0))
            completed = replace(server, summary=summary)
            return replace(cluster, servers=tuple(completed if item is server else item for item in cluster.servers))
    return cluster


def read_with_rates(system: SystemApi, name: str, sample: float) -> tuple[Cluster, dict[tuple[str, str], float]]:
    """Return the cluster, and what is written to its streams: (account, stream) → bytes a second.

    `sample`: seconds between the two looks, 0 for a single one and no rates. Raises NatsFailure where no server of the cluster
    with this name answers.
    """
    started = time.monotonic()
    cluster = read_led_cluster(system)
    there = {server.cluster for server in cluster.servers}
    if name not in there:
        names = ", ".join(sorted(there))
        raise NatsFailure("cluster_missing", f"cluster: no server of {name} answered; there are: {names}")
    if not sample:
        return cluster, {}
    time.sleep(max(0.0, sample - (time.monotonic() - started)))
    later = read_led_cluster(system)
    return later, write_rates(cluster, later, time.monotonic() - started)
