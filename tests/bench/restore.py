# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how long it takes to save and restore many small streams: ``restore.py --streams 1000 --replicas 3``.

Three servers on loopback hold streams of ten messages, each with a durable consumer, which are restored into three new
servers. The modules run in this process, so their time does not include the startup of Python. CPU is the collection's
own part of this time."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from support.backup_site import Site
from support.module_runs import form, run_in_process
from support.nats_processes import NatsProcesses

MESSAGES = 10


def fill(site: Site, names: list[str], replicas: int) -> None:
    """Create the streams, their consumers and their messages."""
    stream = {"num_replicas": replicas, "storage": "file", "retention": "limits", "discard": "old"}
    created(site, [(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **stream}) for name in names])
    consumer = {"durable_name": "worker", "ack_policy": "explicit"}
    created(
        site,
        [(f"CONSUMER.DURABLE.CREATE.{name}.worker", {"stream_name": name, "config": consumer}) for name in names],
    )

    async def work() -> None:
        connection = await site.connect()
        jetstream = connection.jetstream(timeout=30, publish_async_max_pending=256)
        for name in names:
            for number in range(MESSAGES):
                await jetstream.publish(f"{name}.a", f"{number}".encode() * 50)
        await connection.close()

    asyncio.run(work())


def created(site: Site, requests: list[tuple[str, Any]]) -> None:
    """Repeat requests until all have succeeded: busy servers respond late."""
    deadline = time.monotonic() + 600
    while requests:
        answers = site.api.call_many(requests, timeout=30)
        requests = [request for request, answer in zip(requests, answers) if isinstance(answer, NatsFailure)]
        assert time.monotonic() < deadline, f"{len(requests)} requests failed"


def timed(site: Site, name: str, **options: Any) -> tuple[float, float]:
    """Run a module and return its elapsed seconds and its CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run_in_process(name, site.cluster.app_connection(), **options)
    assert not result.get("failed"), result["msg"]
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1000, help="how many")
    parser.add_argument("--replicas", type=int, default=3, help="of each stream")
    parser.add_argument("--versions", default="2.15.1", help="of nats-server, with commas")
    options = parser.parse_args()
    print(f"| nats-server | {options.streams} streams, R{options.replicas} | s | ms a stream | CPU s |")
    print("|---|---|---:|---:|---:|")
    names = [f"BENCH{number:05}" for number in range(options.streams)]
    for version in options.versions.split(","):
        directory = Path(tempfile.mkdtemp(prefix="natsops-bench-"))
        try:
            for module, before in (("nats_backup", True), ("nats_restore", False)):
                cluster = NatsProcesses(version, directory / module, ["n1", "n2", "n3"])
                try:
                    (directory / module).mkdir()
                    cluster.start()
                    site = Site(form(cluster), run_in_process)
                    if before:
                        fill(site, names, options.replicas)
                    seconds, cpu = timed(site, module, directory=str(directory / "backup"), streams=["*"])
                    each = 1000 * seconds / options.streams
                    print(f"| {version} | {module} | {seconds:.1f} | {each:.0f} | {cpu:.1f} |", flush=True)
                    site.client.close()
                finally:
                    cluster.kill()
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
