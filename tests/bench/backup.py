# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the time and memory needed to save and restore a stream, compared with a raw loop over the same API.

    backup.py --megabytes 100 --versions 2.10.27,2.15.1

Three servers on loopback contain one R3 stream of incompressible messages, 8 KiB each. *Raw* is nats-py alone: it
writes the server's data to a file and acknowledges it; to restore, it sends the data back part by part, each part after
the reply to the previous one. It verifies nothing. The modules run in separate processes, as under Ansible; their time
does not include the startup of Python. Memory is the process's peak memory, for the stream and for a stream a tenth as
large.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.backup_site import Site
from support.module_runs import form, run_in_process
from support.nats_processes import NatsProcesses

MESSAGE = 8 << 10
CHUNK = 128 << 10

MODULE = """
import json, re, sys, time
from support.module_runs import run_in_process
name, connection, options = json.loads(sys.argv[1])
started = time.perf_counter()
result = run_in_process(name, connection, **options)
took = time.perf_counter() - started
assert not result.get("failed"), result["msg"]
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
(row,) = result["streams"]
print(json.dumps([took, peak, row["path"], row["bytes"]]))
"""


@dataclass(frozen=True)
class Figure:
    """The result of one way to save or restore: its seconds, their ratio to the raw loop's, and its peak memory, also
    for a tenth of the messages."""

    version: str
    what: str
    seconds: float
    ratio: float
    peak: int = 0
    small_peak: int = 0


async def raw_backup(site: Site, stream: str, path: Path) -> float:
    """Write a snapshot to a file as it arrives, and return how many seconds this took."""
    connection = await site.connect()
    inbox = connection.new_inbox()
    ended = asyncio.get_running_loop().create_future()
    with path.open("wb") as file:

        async def chunk(message: Any) -> None:
            if not message.data:
                ended.set_result(message.headers)
                return
            if message.reply:
                await connection.publish(message.reply)
            file.write(message.data)

        await connection.subscribe(inbox, cb=chunk)
        started = time.perf_counter()
        body = json.dumps({"deliver_subject": inbox, "chunk_size": CHUNK})
        await connection.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", body.encode(), timeout=10)
        await asyncio.wait_for(ended, 600)
        took = time.perf_counter() - started
    await connection.close()
    return took


async def raw_restore(site: Site, config: dict[str, Any], state: dict[str, Any], path: Path) -> float:
    """Send an archive part by part, and return how many seconds this took."""
    connection = await site.connect()
    started = time.perf_counter()
    body = json.dumps({"config": config, "state": state}).encode()
    reply = await connection.request(f"$JS.API.STREAM.RESTORE.{config['name']}", body, timeout=30)
    subject = json.loads(reply.data)["deliver_subject"]
    with path.open("rb") as file:
        while True:
            part = file.read(CHUNK)
            reply = await connection.request(subject, part, timeout=600)
            if not part:
                break
    assert "error" not in json.loads(reply.data), reply.data
    took = time.perf_counter() - started
    await connection.close()
    return took


def fill(site: Site, stream: str, megabytes: int) -> None:
    site.add(stream, 3)
    content = random.Random(7).randbytes(64 << 20)

    async def work() -> None:
        connection = await site.connect()
        jetstream = connection.jetstream(timeout=30, publish_async_max_pending=256)
        waiting = []
        for number in range(megabytes * (1 << 20) // MESSAGE):
            at = number * MESSAGE % (len(content) - MESSAGE)
            waiting.append(await jetstream.publish_async(f"{stream}.a", content[at : at + MESSAGE]))
            if len(waiting) == 256:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)
        await connection.close()

    asyncio.run(work())


def module(site: Site, name: str, **options: Any) -> tuple[float, int, str, int]:
    """Run a module in a separate process; return its seconds, its peak memory, and the path and size of the archive."""
    arguments = json.dumps([f"nats_{name}", site.cluster.app_connection(), options])
    done = subprocess.run(
        [sys.executable, "-c", MODULE, arguments], check=True, stdout=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    seconds, peak, path, size = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak, path, size


def measure(site: Site, version: str, megabytes: int, directory: Path) -> list[Figure]:
    """Save and restore a stream each way; the raw loop runs first and last, and its mean is used."""
    for stream, size in (("SMALL", max(megabytes // 10, 1)), ("LARGE", megabytes)):
        fill(site, stream, size)
    raw = directory / "raw"
    before = asyncio.run(raw_backup(site, "LARGE", raw))
    runs: dict[str, tuple[float, int, int]] = {}
    path = ""
    for verify in ("checksum", "contents"):
        folder = str(directory / verify)
        _seconds, small, _path, _size = module(site, "backup", streams=["SMALL"], path=folder, verify=verify)
        seconds, peak, path, _size = module(site, "backup", streams=["LARGE"], path=folder, verify=verify)
        runs[verify] = (seconds, peak, small)
    saving = (before + asyncio.run(raw_backup(site, "LARGE", raw))) / 2
    info = site.api.stream("LARGE")
    small_path = next((directory / "contents").glob("SMALL@*"))
    site.clear()
    _seconds, small, _path, _size = module(site, "restore", path=str(small_path), compare="state")
    seconds, peak, _path, _size = module(site, "restore", path=path, compare="state")
    site.api.delete_stream("LARGE")
    restoring = asyncio.run(raw_restore(site, info["config"], info["state"], raw))
    site.clear()
    return [
        Figure(version, "save, raw loop", saving, 1.0),
        *(
            Figure(version, f"nats_backup, verify={name}", took, took / saving, *peaks)
            for name, (took, *peaks) in runs.items()
        ),
        Figure(version, "restore, raw loop", restoring, 1.0),
        Figure(version, "nats_restore, compare=state", seconds, seconds / restoring, peak, small),
    ]


def markdown(figures: Sequence[Figure], megabytes: int) -> str:
    """Return the table that docs/internals/benchmarks.md publishes."""
    lines = [
        f"| nats-server | {megabytes} MiB, R3 | s | of the raw loop | peak MiB | with a tenth |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in figures:
        memory = f"{one.peak >> 20} | {one.small_peak >> 20}" if one.peak else "- | -"
        lines.append(f"| {one.version} | {one.what} | {one.seconds:.1f} | ×{one.ratio:.1f} | {memory} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=100, help="size of the stream")
    parser.add_argument("--versions", default="2.10.27,2.15.1", help="of nats-server, with commas")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    figures: list[Figure] = []
    for version in options.versions.split(","):
        directory = Path(tempfile.mkdtemp(prefix="natsops-bench-"))
        # This is the space for the stream, for the stream a tenth as large, and for a staged restore.
        room = f"max_file_store: {3 * options.megabytes + 256}MB"
        cluster = NatsProcesses(version, directory / "servers", ["n1", "n2", "n3"], jetstream_options=room)
        try:
            (directory / "servers").mkdir()
            cluster.start()
            site = Site(form(cluster), run_in_process)
            figures += measure(site, version, options.megabytes, directory)
            site.client.close()
        finally:
            cluster.kill()
            shutil.rmtree(directory)
    if options.json:
        print(json.dumps({"figures": [asdict(figure) for figure in figures]}))
    else:
        print(markdown(figures, options.megabytes))


if __name__ == "__main__":
    main()
