# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the rows read from a stream per second of CPU time by the data source in Spark, by its reader alone, and by
nats-py alone.

``make bench BENCH=insights/source ARGS='--messages 200000'``. One server on loopback; only the readers' own CPU time
counts (with Spark: of the JVM and its workers), because the server shares the machine. The figure is the ratio to
nats-py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.insights.processes import tree
from jetstream_insights.session import session
from jetstream_insights.source import JetStreamSource
from jetstream_insights.stream_client import Range, StreamSelection, read_range, stream_state
from jetstream_insights.stream_connection import StreamConnection
from nats.js.api import AckPolicy, ConsumerConfig
from pyspark.sql import SparkSession
from support.streams import Site, running_site


def cpu_of_tree(root: int, without: int) -> float:
    """Return the CPU seconds of a process and all its descendants, excluding the process `without` and its
    descendants."""
    return sum(cost.cpu for cost in tree(root).values()) - sum(cost.cpu for cost in tree(without).values())


def measure(what: str, server: int, repeat: int, work: Callable[[], int]) -> float:
    """Print and return the best rows per CPU second of several runs."""
    best = wall = 0.0
    for _run in range(repeat):
        cpu, started = cpu_of_tree(os.getpid(), server), time.perf_counter()
        rows = work()
        cpu, elapsed = cpu_of_tree(os.getpid(), server) - cpu, time.perf_counter() - started
        best, wall = max(best, rows / cpu), max(wall, rows / elapsed)
    print(f"{what:40} {best:10,.0f} rows/core s {wall:10,.0f} rows/s", flush=True)
    return best


async def nats_py(site: Site, stream: str, messages: int) -> int:
    """Read a stream with nats-py's own pull subscription, and access the fields of a row."""
    connection = await site.connect()
    # Like the reader, it does not acknowledge; with acknowledgements the server would stop at max_ack_pending.
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await connection.jetstream().pull_subscribe(f"{stream}.>", stream=stream, config=config)
    rows = 0
    while rows < messages:
        for message in await subscription.fetch(min(1000, messages - rows), timeout=30):
            metadata = message.metadata
            row = (message.subject, metadata.sequence.stream, metadata.timestamp, message.headers, message.data)
            rows += len(row) > 0
    await subscription.unsubscribe()
    await connection.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--version", default="2.15.1")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        with running_site(given.version, folder) as site:
            run(site, given.messages, given.repeat)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rows(site: Site, stream: str, whole: Range) -> int:
    """Read a stream with the package's reader alone."""
    return sum(len(some.sequences) for some in read_range(site.login, StreamSelection(stream), whole, True))


def table(spark: SparkSession, site: Site, stream: str, messages: int) -> int:
    """Read a stream with Spark, and discard the rows."""
    options = {
        "servers": site.servers.urls[0],
        "stream": stream,
        "user": site.login.user,
        "password": site.login.password,
    }
    spark.read.format("jetstream").options(**options).load().write.format("noop").mode("overwrite").save()
    return messages


def run(site: Site, messages: int, repeat: int) -> None:
    server = next(iter(site.servers.processes.values())).pid
    for stream, config in (("DIRECT", {"allow_direct": True}), ("PLAIN", {})):
        site.add_stream(stream, **config)
        for begin in range(1, messages, 20_000):
            site.publish(stream, min(20_000, messages - begin + 1), begin=begin)
    alone = measure("nats-py, pull subscription", server, repeat, lambda: asyncio.run(nats_py(site, "PLAIN", messages)))
    spark = session("local[1]", "1g")
    spark.dataSource.register(JetStreamSource)
    for stream in ("DIRECT", "PLAIN"):
        with StreamConnection(site.login) as connection:
            state = stream_state(connection, StreamSelection(stream))
        whole = Range(1, state.last, state.created, state.way)

        works = {
            f"{state.way}, without Spark": partial(rows, site, stream, whole),
            f"{state.way}, Spark local[1]": partial(table, spark, site, stream, messages),
        }
        for what, work in works.items():
            print(f"{'':20} {measure(what, server, repeat, work) / alone:.2f} × nats-py")
    spark.stop()


if __name__ == "__main__":
    main()
