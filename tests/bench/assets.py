# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how long the modules take to read many streams and consumers, by part: ``assets.py --sizes 250,500,1000``.

Five real servers on loopback contain R3 memory streams with two R1 consumers each; streams are added for each size. (R3
consumers would mean three Raft groups for each stream, and their heartbeats alone would keep a small machine busy.)
This process then does the work of the modules, without the startup of Ansible, and reports its CPU time by part. CPU
time is the cost of the collection itself; the rest of the elapsed time is waiting for servers, which share the
machine's cores here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable
from unittest import mock

from ansible_collections.natsops.jetstream.plugins.module_utils.assets import listing as asset_listing
from ansible_collections.natsops.jetstream.plugins.module_utils.module import gc_paused
from ansible_collections.natsops.jetstream.plugins.module_utils.nats import system_api
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import CONSUMER, STREAM
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.cluster_info import (
    CLUSTER_INFO_SPEC,
    read_cluster_info,
)
from support.nats_processes import APP_PASSWORD, APP_USER, SYS_PASSWORD, SYS_USER, NatsProcesses

SERVERS = 5
CONSUMERS_PER_STREAM = 2

PARTS = ("client", "json", "model", "rest")

#: A measured function; it returns the number of assets that it read, and its result as a module's JSON.
Work = Callable[[], tuple[int, str]]


@dataclass(frozen=True)
class Figures:
    """The medians of several runs, in seconds; `parts` is CPU time. `rows`: how many assets the result contains."""

    operation: str
    streams: int
    rows: int
    elapsed: float
    cpu: float
    parts: dict[str, float]


class Clock:
    """CPU time by part; the time of a nested part does not count towards the outer part."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            self._inside.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took = time.process_time() - started
                self.spent[part] += took - self._inside.pop()
                if self._inside:
                    self._inside[-1] += took

        return timed

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Measure the CPU time of three parts: the client including decompression, JSON parsing, and the model."""
        parts = (
            (Client, "request_many", "client"),
            (Client, "gather", "client"),
            (json, "loads", "json"),
            (system_api, "build_cluster", "model"),
            (asset_listing, "stream_group", "model"),
            (asset_listing, "consumer_group", "model"),
        )
        with contextlib.ExitStack() as stack:
            for owner, name, part in parts:
                stack.enter_context(mock.patch.object(owner, name, self.wrap(part, getattr(owner, name))))
            yield


def measure(operation: str, streams: int, repeat: int, work: Work) -> Figures:
    """Return the medians of several runs of the work, after a first run that does not count."""
    rows, _text = work()
    runs: list[tuple[float, float, dict[str, float]]] = []
    for _run in range(repeat):
        clock = Clock()
        with clock.watching(), gc_paused():
            elapsed, cpu = time.perf_counter(), time.process_time()
            work()
            elapsed, cpu = time.perf_counter() - elapsed, time.process_time() - cpu
        parts = {part: clock.spent[part] for part in PARTS}
        parts["rest"] = cpu - sum(parts.values())
        runs.append((elapsed, cpu, parts))
    return Figures(
        operation,
        streams,
        rows,
        statistics.median(run[0] for run in runs),
        statistics.median(run[1] for run in runs),
        {part: statistics.median(run[2][part] for run in runs) for part in PARTS},
    )


def wait_until_served(api: JetStreamApi, seconds: float = 60) -> None:
    """Return once the servers have an API leader. If there is still an error after this many seconds, raise its
    NatsFailure."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            api.info()
            return
        except NatsFailure:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def create(api: JetStreamApi, numbers: Sequence[int], consumer_replicas: int) -> None:
    """Create the streams with these numbers and their consumers, CONCURRENT_CALLS at once. Failed calls are repeated,
    because busy servers respond late."""
    stream = {"num_replicas": 3, "storage": "memory", "retention": "limits", "discard": "old"}
    names = [f"BENCH{number:05}" for number in numbers]
    calls: list[tuple[str, Any]] = [
        (f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **stream}) for name in names
    ]
    consumers: list[tuple[str, Any]] = [
        (
            f"CONSUMER.DURABLE.CREATE.{name}.worker{number}",
            {
                "stream_name": name,
                "config": {
                    "durable_name": f"worker{number}",
                    "ack_policy": "explicit",
                    "num_replicas": consumer_replicas,
                },
            },
        )
        for name in names
        for number in range(CONSUMERS_PER_STREAM)
    ]
    for wanted in (calls, consumers):
        left = wanted
        for _attempt in range(20):
            answers = api.call_many(left)
            left = [call for call, answer in zip(left, answers) if isinstance(answer, NatsFailure)]
            if not left:
                break
        else:
            raise SystemExit(f"{len(left)} assets could not be created, such as {left[0][0]}")


def works(cluster: NatsProcesses) -> tuple[contextlib.ExitStack, dict[str, Work]]:
    """Return the measured functions by name, and the connections to close afterwards."""
    system = ConnectionOptions(tuple(cluster.urls), SYS_USER, SYS_PASSWORD, timeout=60)
    own = ConnectionOptions(tuple(cluster.urls), APP_USER, APP_PASSWORD, timeout=60)
    stack = contextlib.ExitStack()
    client = stack.enter_context(Client(system))
    by_system = stack.enter_context(Connections(system, {}))
    by_account = stack.enter_context(Connections(own, {}))
    everything = {**{name: option.get("default") for name, option in CLUSTER_INFO_SPEC.items()}, "detail": "assets"}
    assets = {"account": None, "stream": None, "consumer": None, "subject": None}

    def cluster_info() -> tuple[int, str]:
        result = read_cluster_info(client, everything)
        return len(result["streams"]), json.dumps(result)

    def info(connections: Connections, kind: str) -> Work:
        def read() -> tuple[int, str]:
            result = asset_listing.read_assets(connections, assets, kind).result(kind)
            return len(result[f"{kind}s"]), json.dumps(result)

        return read

    return stack, {
        "nats_cluster_info": cluster_info,
        "nats_stream_info (system)": info(by_system, STREAM),
        "nats_stream_info (account)": info(by_account, STREAM),
        "nats_consumer_info (account)": info(by_account, CONSUMER),
    }


def nats_report(cluster: NatsProcesses) -> float | None:
    """Return how many seconds `nats stream report` takes, or None if `nats` is not on the PATH."""
    binary = shutil.which("nats")
    if binary is None:
        return None
    started = time.perf_counter()
    command = [binary, "--server", cluster.urls[0], "--user", APP_USER, "--password", APP_PASSWORD, "stream", "report"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def run(version: str, sizes: Sequence[int], repeat: int, consumer_replicas: int) -> dict[str, Any]:
    """Return the figures of one version of nats-server."""
    with tempfile.TemporaryDirectory(prefix="nats-bench-") as directory, contextlib.ExitStack() as stack:
        names = [f"n{number}" for number in range(1, SERVERS + 1)]
        cluster = NatsProcesses(version, Path(directory), names)
        stack.callback(cluster.kill)
        cluster.start()
        options = ConnectionOptions(tuple(cluster.urls), APP_USER, APP_PASSWORD, timeout=10)
        figures: list[Figures] = []
        report = None
        before = 0
        for size in sorted(sizes):
            with Client(options) as client:
                api = JetStreamApi(client)
                wait_until_served(api)
                started = time.perf_counter()
                create(api, range(before, size), consumer_replicas)
                print(
                    f"{version}: {size} streams after {time.perf_counter() - started:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
            before = size
            connections, measured = works(cluster)
            with connections:
                figures += [measure(operation, size, repeat, work) for operation, work in measured.items()]
            report = nats_report(cluster)
        return {"version": version, "figures": [figure.__dict__ for figure in figures], "nats_stream_report": report}


def markdown(result: dict[str, Any]) -> str:
    """Return the figures of one version as a table, with the ratio to the first size and the share of each part."""
    lines = [
        f"### nats-server {result['version']}",
        "",
        "| operation | streams | elapsed s | CPU s | CPU s per 1000 | of the smallest size | client | JSON | model | rest |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    first: dict[str, float] = {}
    for figure in result["figures"]:
        each = figure["cpu"] / figure["streams"] * 1000
        ratio = each / first.setdefault(figure["operation"], each)
        shares = " | ".join(f"{figure['parts'][part] / figure['cpu']:.0%}" for part in PARTS)
        lines.append(
            f"| {figure['operation']} | {figure['streams']} | {figure['elapsed']:.2f} | {figure['cpu']:.3f} | {each:.3f} "
            f"| ×{ratio:.2f} | {shares} |"
        )
    if result["nats_stream_report"] is not None:
        last = next(item for item in reversed(result["figures"]) if item["operation"] == "nats_stream_info (account)")
        ratio = last["elapsed"] / result["nats_stream_report"]
        lines += ["", f"nats_stream_info (account) takes ×{ratio:.2f} of the time of `nats stream report`."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="250,500,1000", help="numbers of streams, such as 1000,10000")
    parser.add_argument("--versions", default="2.10.27,2.15.1", help="versions of nats-server")
    parser.add_argument("--consumer-replicas", type=int, default=1, help="replicas of each consumer: 1 or 3")
    parser.add_argument("--repeat", type=int, default=5, help="number of runs; the median is reported")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_caught: sys.exit("terminated"))  # so the servers are stopped too
    sizes = [int(size) for size in arguments.sizes.split(",")]
    for version in arguments.versions.split(","):
        result = run(version, sizes, arguments.repeat, arguments.consumer_replicas)
        print(json.dumps(result) if arguments.json else markdown(result) + "\n", flush=True)


if __name__ == "__main__":
    main()
