# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster as a planner needs it: with a meta leader, and with the limits by which that leader chooses servers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

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
