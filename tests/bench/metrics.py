# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of a sweep and of a scrape of the exporter: ``metrics.py --streams 1000 10000 100000``.

The streams have three replicas and a consumer each, on twenty servers. One server is dead: three in twenty groups miss
a replica, so the list of faulty groups is full from a few thousand streams on. Queries to the servers, and the parsing
of their replies, are not included: bench assets measures them. Each size is evaluated in a separate process, which also
reports its memory use.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import Limits
from ansible_collections.natsops.jetstream.plugins.module_utils.health.sampling import evaluate
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.metrics import (
    Exposition,
    FaultList,
    Sweep,
    cause_metrics,
    cluster_metrics,
)
from exporter.export import application
from support.clusters import cluster, consumer, stream

SERVERS = [f"n{number}" for number in range(20)]
LIMIT = 200
RUNS = 5


class _Known:
    """A replacement for the sweeper that returns a given sweep."""

    def __init__(self, found: Exposition) -> None:
        self.current = lambda: found


def fleet(streams: int) -> Cluster:
    """Return the servers that respond, with all groups."""
    made = []
    for number in range(streams):
        places = [SERVERS[(number + step * 7) % len(SERVERS)] for step in range(3)]
        made.append(replace(stream(f"S{number}", places), consumers=(consumer(f"S{number}", "worker", places),)))
    whole = cluster(SERVERS, *made)
    return replace(whole, servers=whole.servers[:-1])


def judged(live: Cluster, faults: FaultList, now: float) -> Exposition:
    """Return the result of a sweep over these servers."""
    params: dict[str, Any] = {
        "expected_servers": SERVERS,
        "expected_jetstream_servers": None,
        "expected_clusters": {},
        "cluster": None,
        "assets": True,
        "max_lag": Limits().max_lag,
        "max_active": Limits().max_active,
        "tolerate": [],
        "stop_servers": [],
        "r1_policy": "accept",
        "maintenance": [],
    }
    sample = evaluate(live, params)
    out = Exposition("bench")
    places = dict.fromkeys(SERVERS, "C1")
    cluster_metrics(out, Sweep(live, (*sample.errors, *sample.warnings), sample.tolerated, places), faults, now)
    cause_metrics(out, sample.causes)
    return out


def scraped(out: Exposition) -> bytes:
    """Return the response to a scrape."""
    answer = application(_Known(out), {})  # type: ignore[arg-type]
    environ = {"PATH_INFO": "/metrics", "REQUEST_METHOD": "GET", "HTTP_ACCEPT": "application/openmetrics-text"}
    return b"".join(answer(environ, lambda *_: None))


def measured(streams: int) -> tuple[float, float, int, int, int]:
    """Return the CPU seconds of evaluating the fleet and of a scrape, the number of series, the bytes of a scrape, and
    the peak memory in bytes that evaluating it added."""
    live, faults = fleet(streams), FaultList(LIMIT)
    held, judging, scraping = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, [], []
    for run in range(RUNS):
        started = time.process_time()
        out = judged(live, faults, run)
        judging.append(time.process_time() - started)
        started = time.process_time()
        answer = scraped(out)
        scraping.append(time.process_time() - started)
    added = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held)
    return statistics.median(judging), statistics.median(scraping), out.series, len(answer), added


def table(sizes: list[int]) -> Iterator[str]:
    yield "| streams | groups | judging, CPU s | of the smallest size, a group | a scrape, CPU ms | KiB | series | memory MiB |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    first = 0.0
    for size in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            judging, scraping, series, answer, added = pool.map(measured, [size])[0]
        first = first or judging / size
        yield (
            f"| {size} | {2 * size} | {judging:.2f} | ×{judging / size / first:.2f} | {1000 * scraping:.0f} "
            f"| {answer >> 10} | {series} | {added >> 20} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    for line in table(parser.parse_args().streams):
        print(line, flush=True)


if __name__ == "__main__":
    main()
