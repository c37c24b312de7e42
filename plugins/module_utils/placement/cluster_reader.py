# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the cluster for planners: with a meta leader, and with the limits that this leader applies to placement."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ..nats.client import NatsFailure
from ..nats.model import Cluster
from ..nats.system_api import SystemApi
from ..waiting import ELECTION_SECONDS, POLL_SECONDS, wait_until
from .leader_rebalance import write_rates
from .recorded_rates import recorded_rates


def read_led_cluster(
    system: SystemApi, known_names: Collection[str] = (), assets: bool = True, account: str | None = None
) -> Cluster:
    """Return the cluster, with the meta leader's max_ha_assets, which only VARZ reports before 2.11.

    Waits until a meta leader is elected, because only the meta leader can place replicas. `known_names`: names of
    servers that may be down.
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


#: The options of `read_with_rates`, documented in the fragment write_rates.
RATE_OPTIONS: dict[str, dict[str, Any]] = {
    "sample": {"type": "float", "default": 10},
    "rates_file": {"type": "path"},
    "rates_fleet": {"type": "str"},
}


def read_with_rates(system: SystemApi, params: Mapping[str, Any]) -> tuple[Cluster, dict[tuple[str, str], float], str]:
    """Return the cluster, the write rates of its streams, (account, stream) → bytes per second, and their origin.

    `params`: the module's options, including RATE_OPTIONS and `cluster`. Rates that a report recorded over a day take
    precedence over those measured now. Raises NatsFailure if no server of this cluster responds, or if the report
    cannot be used.
    """
    recorded = _recorded(params)
    name, sample = params["cluster"], params["sample"]
    started = time.monotonic()
    cluster = read_led_cluster(system)
    there = {server.cluster for server in cluster.servers}
    if name not in there:
        names = ", ".join(sorted(there))
        raise NatsFailure("cluster_missing", f"cluster: no server of {name} answered, only servers of {names}")
    measured: dict[tuple[str, str], float] = {}
    if sample:
        time.sleep(max(0.0, sample - (time.monotonic() - started)))
        later = read_led_cluster(system)
        measured, cluster = write_rates(cluster, later, time.monotonic() - started), later
    if recorded is None:
        return cluster, measured, ""
    day, rates = recorded
    streams = {(stream.account, stream.name) for stream in cluster.streams if stream.group.cluster == name}
    known = {key: rate for key, rate in rates.items() if key in streams}
    others = f"measured in {sample:g} s" if sample else "unknown"
    source = f"write rates: {len(known)} streams from the report of {day}, {len(streams - known.keys())} {others}"
    return cluster, {**measured, **known}, source


def _recorded(params: Mapping[str, Any]) -> tuple[str, dict[tuple[str, str], float]] | None:
    path = params["rates_file"]
    if not path:
        if params["rates_fleet"]:
            raise NatsFailure("invalid_option", "rates_fleet: requires a report in rates_file, which is missing")
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return recorded_rates(json.load(file), params["rates_fleet"] or None, time.time())
    except (OSError, ValueError) as error:
        raise NatsFailure("invalid_option", f"rates_file: {path} cannot be used: {error}") from error
