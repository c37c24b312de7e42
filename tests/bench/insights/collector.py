# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the collector's cost of a snapshot, by the number of servers: ``make bench BENCH=insights/collector``.

The clusters have five servers each, with 250 streams of three replicas and a consumer each. The servers' replies were
recorded from nats-server 2.15.1, with different names and figures, and are compressed as the server does. The collector
reads them from disk instead of a connection; everything else is as in a real snapshot: it decompresses, parses, trims,
writes and publishes them. CPU is the CPU time of the process, without the simulation. Each snapshot is taken by a
separate process, whose memory is reported.
"""

from __future__ import annotations

import argparse
import copy
import gc
import gzip
import json
import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Call, Reply
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import _body as reply_body
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry import json_text
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import CaptureOptions, collect
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import FORMATS, JSON
from support.snapshots import raft_member, recorded

VERSION = "2.15.1"
#: Number of servers in a cluster, of streams in a cluster, and of replicas of each stream.
SERVERS, STREAMS, REPLICAS = 5, 250, 3
HEADERS = {"Content-Encoding": "gzip"}
#: JSON lines, written with the standard library alone.
PLAIN = "plain"
ENDPOINTS = ("jsz", "raftz", "varz", "healthz")


# --- replies ------------------------------------------------------------------------------------------------------------


def _renamed(stream: dict[str, Any], name: str, dice: random.Random) -> dict[str, Any]:
    """Return a recorded stream and its consumer under another name, with the figures of a stream in use."""
    made: dict[str, Any] = json.loads(json.dumps(stream).replace("ORDERS", name))
    last = dice.randrange(10**8)
    moment = f"2026-11-21T07:{dice.randrange(60):02}:35.{dice.randrange(10**9):09}Z"
    made["state"].update(
        messages=last // 2, bytes=last * 300, first_seq=last // 2, last_seq=last, first_ts=moment, last_ts=moment
    )
    for consumer in made["consumer_detail"]:
        for figures in ("delivered", "ack_floor"):
            consumer[figures] = {"consumer_seq": last - 9, "stream_seq": last, "last_active": moment}
    return made


def _compact(document: Any) -> bytes:
    """Return JSON as Go writes it."""
    return json.dumps(document, separators=(",", ":")).encode().replace(b">", rb"\u003e")


def write_replies(folder: Path, cluster: int) -> int:
    """Write the replies of a cluster's servers; return how many rows of streams, consumers and Raft groups they
    contain."""
    replies = recorded(VERSION)
    dice = random.Random(cluster)
    (statsz, *_others) = replies["statsz"]
    (jsz, *_others) = replies["jsz"].values()
    (healthz, *_others) = replies["healthz"].values()
    streams = [
        stream
        for account in jsz["account_details"]
        for stream in account.get("stream_detail", ())
        if stream["config"]["num_replicas"] == REPLICAS
    ]
    names = [f"n{number}-c{cluster}" for number in range(SERVERS)]
    rows = 0
    held: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    groups: dict[str, dict[str, Any]] = {name: {} for name in names}
    for number in range(STREAMS):
        hosts = [names[(number + step) % SERVERS] for step in range(REPLICAS)]
        stream = _renamed(streams[number % len(streams)], f"ORDERS-{cluster:03}-{number:03}", dice)
        for host in hosts:
            held[host].append(copy.copy(stream))
            for group in (f"S-R3F-{cluster:03}{number:05}", f"C-R3F-{cluster:03}{number:05}"):
                others = [one for one in hosts if one != host]
                groups[host][group] = raft_member(hosts[0], others, dice.randrange(10**7))
            rows += 4
    for name in names:
        server = {**statsz["server"], "name": name, "id": f"N{name}", "cluster": f"c{cluster}"}
        account = {**jsz["account_details"][0], "name": "APP", "stream_detail": held[name]}
        data: dict[str, Any] = {
            "JSZ": {**jsz, "accounts": 1, "account_details": [account]},
            "RAFTZ": {"APP": groups[name]},
            "VARZ": {"mem": 10**8, "cores": 4, "start": "2026-11-21T07:47:35.447895516Z"},
            "HEALTHZ": healthz,
        }
        for endpoint, content in data.items():
            reply = gzip.compress(_compact({"server": server, "data": content}), 1)
            (folder / f"N{name}.{endpoint}").write_bytes(reply)
        found = {"server": server, "statsz": {**statsz["statsz"], "active_servers": 0}}
        (folder / f"N{name}.STATSZ").write_bytes(gzip.compress(_compact(found), 1))
    return rows


class Simulated:
    """Returns the replies that are stored in a folder, as a Client would. `spent`: CPU seconds that reading them
    took."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.options = SimpleNamespace(timeout=5.0, jetstream_domain="")
        self.identity = ("", 0)
        self.spent = 0.0

    def _reply(self, name: str, call: Call) -> Reply:
        started = time.process_time()
        path = self._folder / name
        content = path.read_bytes() if path.exists() else gzip.compress(b'{"data":{}}')
        self.spent += time.process_time() - started
        return Reply(call.subject, reply_body(SimpleNamespace(data=content, headers=HEADERS), call), 0.001)

    def request_many(self, calls: Sequence[Call], timeout: float | None = None) -> list[Reply]:
        return [self._reply(call.subject.removeprefix("$SYS.REQ.SERVER."), call) for call in calls]

    def gather(self, call: Call, on_reply: Callable[[Reply], Any], timeout: float | None = None, **_how: Any) -> None:
        for path in sorted(self._folder.glob("*.STATSZ")):
            on_reply(self._reply(path.name, call))


# --- measuring ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """The cost of a snapshot: lines, seconds of CPU and elapsed time, bytes on disk, and peak memory in bytes."""

    lines: int
    cpu: float
    wall: float
    disk: int
    memory: int


def measured(folder: Path, form: str) -> Cost:
    """Take a snapshot of the servers of a folder and return its cost."""
    gc.set_threshold(200_000, 20, 100)  # as collect.py and the modules do
    if form == PLAIN:
        vars(json_text)["msgspec"] = None
    with tempfile.TemporaryDirectory(dir=folder.parent) as lake:
        client = Simulated(folder)
        wall, cpu = time.perf_counter(), time.process_time()
        wanted = CaptureOptions(Path(lake), "bench", ENDPOINTS, deadline=3600.0, form=JSON if form == PLAIN else form)
        _path, manifest = collect(client, wanted)  # type: ignore[arg-type]
        cpu, wall = time.process_time() - cpu - client.spent, time.perf_counter() - wall
        size = sum(path.stat().st_size for path in Path(lake).rglob("*") if path.is_file())
    if not manifest["complete"]:
        sys.exit(f"the snapshot is incomplete: {manifest['quoted_failures'][:3]}")
    lines = sum(table["rows"] for table in manifest["tables"].values())
    return Cost(lines, cpu, wall, size, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def table(sizes: Sequence[int], formats: Sequence[str], work: Path) -> Iterator[str]:
    yield "| servers | format | lines | CPU s | CPU µs a line | of the first row | wall s | bytes a line | MiB at most |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|---:|"
    first = 0.0
    for size in sizes:
        folder = work / f"replies-{size}"
        folder.mkdir()
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.starmap(write_replies, [(folder, cluster) for cluster in range(size // SERVERS)], chunksize=4)
        for form in formats:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                cost = pool.apply(measured, (folder, form))
            each = cost.cpu / cost.lines * 1e6
            first = first or each
            yield (
                f"| {size} | {form} | {cost.lines} | {cost.cpu:.1f} | {each:.1f} | ×{each / first:.2f} | {cost.wall:.1f} "
                f"| {cost.disk / cost.lines:.0f} | {cost.memory >> 20} |"
            )
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--servers", type=int, nargs="+", default=[50, 200, 1000], help="multiples of five")
    parser.add_argument("--formats", nargs="+", default=[PLAIN, *FORMATS], choices=[PLAIN, *FORMATS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for line in table(given.servers, given.formats, Path(work)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
