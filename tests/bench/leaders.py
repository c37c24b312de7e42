# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of planning the leaders of a fleet's groups: ``leaders.py --clusters 6 20 60``.

Each cluster has five servers, or a given number, in three zones. The groups have three replicas each, are led by the
first of their servers, and have different write rates. Each size is planned in a separate process, which also reports
its memory use.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import statistics
import time
from collections import Counter
from collections.abc import Iterator

from ansible_collections.natsops.jetstream.plugins.module_utils.module import gc_paused
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.even_leaders import LedGroup, even_leaders

RUNS = 5


def fleet(clusters: int, servers: int, groups: int) -> tuple[list[LedGroup], dict[str, str]]:
    """Return the groups of all clusters, and the zone of each server."""
    made: list[LedGroup] = []
    zones: dict[str, str] = {}
    for cluster in range(clusters):
        choice = random.Random(cluster)
        names = [f"n{number}-c{cluster}" for number in range(servers)]
        zones.update({name: f"{cluster}/{number % 3}" for number, name in enumerate(names)})
        for _number in range(groups):
            able = choice.sample(names, 3)
            made.append(LedGroup(min(able), frozenset(able), choice.paretovariate(1.2)))
    return made, zones


def measured(size: tuple[int, int, int]) -> tuple[float, int, int, int]:
    """Return the CPU seconds of a plan, the peak memory in bytes that it added, its step-downs, and the largest
    difference between the numbers of groups that two servers of a cluster lead."""
    groups, zones = fleet(*size)
    held, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _run in range(RUNS):
        started = time.process_time()
        with gc_paused():
            leaders = even_leaders(groups, zones)
        times.append(time.process_time() - started)
    seconds = statistics.median(times)
    added = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held)
    counts: dict[str, list[int]] = {}
    for name, number in Counter(leaders).items():
        counts.setdefault(name.partition("-")[2], []).append(number)
    moves = sum(group.leader != leader for group, leader in zip(groups, leaders))
    return seconds, added, moves, max(max(numbers) - min(numbers) for numbers in counts.values())


def table(options: argparse.Namespace) -> Iterator[str]:
    yield "| clusters | servers | groups | CPU s | of the smallest size, a group | memory MiB | step-downs | uneven by |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    first = 0.0
    for clusters in options.clusters:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, added, moves, uneven = pool.map(measured, [(clusters, options.servers, options.groups)])[0]
        number = clusters * options.groups
        first = first or seconds / number
        ratio = seconds / number / first
        yield (
            f"| {clusters} | {clusters * options.servers} | {number} | {seconds:.2f} | ×{ratio:.2f} | {added >> 20} "
            f"| {moves} | {uneven} |"
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
