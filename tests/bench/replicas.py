# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of planning the moves of a fleet's replicas: ``replicas.py --clusters 6 20 60``.

Each cluster has five servers, or a given number, in three zones. The groups have three replicas each, differ in their
bytes and write rates, and are all on the first four fifths of the servers, as if the other servers had just been added.
Each size is planned in a separate process, which also reports its memory use.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import time
from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.natsops.jetstream.plugins.module_utils.module import gc_paused
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    META,
    STREAM,
    Cluster,
    JetStreamSummary,
    MetaGroup,
    Peer,
    RaftGroup,
    Server,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rebalance import (
    RebalanceOptions,
    RebalancePlan,
    plan_rebalance,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rules import server_zones

MIB = 1 << 20
#: A stream that alone exceeds a server's share cannot be balanced.
LARGEST = 100


class Cost(NamedTuple):
    """CPU seconds of all plans, the memory in bytes that they added to the clusters, and the plans' figures."""

    seconds: float
    added: int
    moves: int
    moved: int
    least: int
    worst_before: float
    worst_after: float


def crowded(number: int, servers: int, groups: int) -> tuple[Cluster, dict[tuple[str, str], float]]:
    """Return a cluster in which the last fifth of the servers is empty, and the write rates of its streams."""
    choice = random.Random(number)
    names = [f"n{index}-c{number}" for index in range(servers)]
    crowd = names[: max(3, servers * 4 // 5)]
    made = []
    rates = {}
    for index in range(groups):
        members = choice.sample(crowd, 3)
        name, size = f"S{index}", int(min(choice.paretovariate(1.2), LARGEST) * MIB)
        group = RaftGroup(
            STREAM,
            f"stream APP/{name}",
            3,
            (members[0],),
            tuple(Peer(member, current=True) for member in members[1:]),
            tuple(sorted(members)),
            tuple(sorted(members)),
            cluster="C",
        )
        made.append(Stream("APP", name, group, storage="file", size=size))
        rates["APP", name] = choice.paretovariate(1.2)
    meta = RaftGroup(META, "meta group", servers, (names[0],), tuple(Peer(name, current=True) for name in names[1:]))
    summary = JetStreamSummary(max_storage=1 << 42)
    hosts = tuple(
        Server(name, name, "C", tags=(f"node:{name}", f"az:{index % 3}"), jetstream=True, summary=summary)
        for index, name in enumerate(names)
    )
    return Cluster(hosts, MetaGroup(meta, {}), tuple(made)), rates


def worst(plan: RebalancePlan, after: bool) -> float:
    """Return the bytes of the server that stores the most, divided by the average."""
    loads = [load.bytes for load in (plan.after if after else plan.before).values()]
    return max(loads) * len(loads) / sum(loads)


def measured(size: tuple[int, int, int]) -> Cost:
    clusters, servers, groups = size
    made = [crowded(number, servers, groups) for number in range(clusters)]
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plans = []
    started = time.process_time()
    with gc_paused():
        for cluster, rates in made:
            plans.append(
                plan_rebalance(cluster, "C", RebalanceOptions(zones=server_zones(cluster.servers, "az:")), rates)
            )
    seconds = time.process_time() - started
    return Cost(
        seconds,
        1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held),
        sum(len(plan.moves) for plan in plans),
        sum(plan.bytes_moved for plan in plans),
        sum(plan.least_bytes for plan in plans),
        max(worst(plan, False) for plan in plans),
        max(worst(plan, True) for plan in plans),
    )


def table(options: argparse.Namespace) -> Iterator[str]:
    yield (
        "| clusters | servers | groups | CPU s | of the smallest size, a group | memory MiB | moves | bytes, of the least "
        "| fullest server, of the average | afterwards |"
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    first = 0.0
    for clusters in options.clusters:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            cost = pool.map(measured, [(clusters, options.servers, options.groups)])[0]
        number = clusters * options.groups
        first = first or cost.seconds / number
        yield (
            f"| {clusters} | {clusters * options.servers} | {number} | {cost.seconds:.2f} "
            f"| ×{cost.seconds / number / first:.2f} | {cost.added >> 20} | {cost.moves} "
            f"| ×{cost.moved / max(1, cost.least):.2f} | ×{cost.worst_before:.2f} | ×{cost.worst_after:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, nargs="+", default=[6, 20, 60])
    parser.add_argument("--servers", type=int, default=5, help="servers of a cluster")
    parser.add_argument("--groups", type=int, default=1667, help="groups of a cluster")
    for line in table(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
