# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how long publishers wait during each kind of cluster restart: ``roll.py --streams 50 --rate 250``.

The playbook ``deploy`` starts real servers on loopback. Each way then restarts all of them while every one of the
streams, with three replicas on disk and a durable consumer, has a publisher that waits for its acknowledgement and
retries after 250 ms:

  naive      TERM, start, then the next server, like ``systemctl restart`` on one server after another
  lame_duck  lame duck mode, start, then the next server once /healthz returns 200
  playbook   the playbook ``restart`` of this collection

With ``--dead``, all ways are also measured with one server killed beforehand. Afterwards the streams must contain all
acknowledged messages.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.health.sampling import make_sampler
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import find_server, launch, wait_exit
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.modules.nats_cluster_health import message, wait_for_health
from support.nats_processes import APP_PASSWORD, APP_USER
from support.publishers import Publishers, publishers
from support.role_cluster import RoleCluster

#: How many seconds a server has been dead when the load begins, and the seconds between two checks of the servers.
DEAD, LOOK = 5.0, 0.2

#: Seconds that the playbook's gate watches a healthy cluster before and after each batch.
SPAN = 10

#: The ways, in the order in which they are measured.
WAYS = ("naive", "lame_duck", "playbook")


@dataclass(frozen=True)
class Figures:
    """The result of one way. All times are in seconds: `gap` is the longest time without an acknowledgement for any
    publisher, `quiet` the same before the restarts began, `wall` the duration of all restarts, `away` the total time
    during which servers did not return 200 on /healthz. `healed`: servers that had to be restarted afterwards. `steps`:
    the duration of each step in the playbook's journal, `batches`: the number of batches in the journal."""

    way: str
    dead: bool
    restarted: int
    gap: float
    quiet: float
    retries: int
    acknowledged: int
    wrong: list[str]
    wall: float
    away: float
    healed: list[str]
    refusal: str
    batches: int
    steps: dict[str, float]

    def against_processes(self) -> str:
        """Return the playbook's duration without its settle windows, in seconds and as a multiple of the time that the
        processes needed to stop, start and catch up. The drain and Ansible account for the difference."""
        settling = 2 * SPAN * self.batches
        needed = self.steps["stop"] + self.steps["start"] + max(0.0, self.steps["catch_up"] - SPAN * self.batches)
        took = self.wall - settling
        duration = f"{took:.0f} s plus {settling} s of settle windows"
        return f"{duration}, ×{took / needed:.2f} of stop, start and catch-up ({needed:.0f} s)"


class Watch:
    """Polls /healthz of the servers; `away` is how many seconds each server did not return 200."""

    def __init__(self, cluster: RoleCluster, names: Sequence[str]) -> None:
        self.away = dict.fromkeys(names, 0.0)
        self._urls = {name: f"http://{cluster.hosts[name]['nats_server_http']}/healthz" for name in names}
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(name,), daemon=True) for name in names]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _look(self, name: str) -> None:
        before = time.monotonic()
        while not self._ended.wait(LOOK):
            well = healthy(self._urls[name])
            now = time.monotonic()
            if not well:
                self.away[name] += now - before
            before = now


def healthy(url: str) -> bool:
    """Return whether the server reports that it is healthy."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def stored_config(cluster: RoleCluster, name: str) -> str:
    return f"{cluster.hosts[name]['nats_server_config_dir']}/nats-server.conf"


def start(cluster: RoleCluster, name: str) -> None:
    command = [cluster.hosts[name]["nats_server_binary_link"], "-c", stored_config(cluster, name)]
    with open(os.devnull, "ab") as output:
        launch(command, output, dict(os.environ))


def restart(cluster: RoleCluster, name: str, sent: signal.Signals) -> None:
    """Send the signal, wait until the process has ended, and start the server again."""
    server = find_server(stored_config(cluster, name))
    if server is not None:
        os.kill(server.pid, sent)
        if not wait_exit(server, 120):
            raise SystemExit(f"{name} does not end")
    start(cluster, name)


def naive(cluster: RoleCluster, names: Sequence[str]) -> str:
    for name in names:
        restart(cluster, name, signal.SIGTERM)
    return ""


def lame_duck(cluster: RoleCluster, names: Sequence[str]) -> str:
    for name in names:
        restart(cluster, name, signal.SIGUSR2)
        deadline = time.monotonic() + 120
        while not healthy(f"http://{cluster.hosts[name]['nats_server_http']}/healthz"):
            if time.monotonic() > deadline:
                return f"{name} was not at 200 after 120 s"
            time.sleep(0.1)
    return ""


def playbook(cluster: RoleCluster, names: Sequence[str]) -> str:
    """Run the playbook; return the reason if it refused, otherwise an empty string."""
    process = cluster.start_playbook("restart", "--limit", ",".join(names))
    output, _nothing = process.communicate(timeout=1800)
    return parse_refusal(output) if process.returncode else ""


def parse_refusal(output: str) -> str:
    """Return the first error in a playbook's output, or the end of the output if it contains none."""
    told = re.search(r'^fatal: .*?"msg": ("(?:[^"\\]|\\.)*")', output, re.MULTILINE)
    return str(json.loads(told.group(1))) if told else output[-500:]


ROLLS: dict[str, Callable[[RoleCluster, Sequence[str]], str]] = {
    "naive": naive,
    "lame_duck": lame_duck,
    "playbook": playbook,
}


@contextlib.contextmanager
def publishing(load: Publishers) -> Iterator[None]:
    """Publish in another thread inside the context."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(load.run(),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(load.stop)
        thread.join(30)
        loop.close()


def settle(cluster: RoleCluster) -> list[str]:
    """Return once the gate finds the cluster healthy; servers that remain faulty are restarted, and returned."""
    options = ConnectionOptions(tuple(cluster.urls), cluster.system()["user"], cluster.system()["password"], timeout=2)
    names = list(cluster.hosts)
    params: dict[str, Any] = {
        "expected_servers": names, "expected_jetstream_servers": names, "cluster": "C1", "assets": True, "wait": True,
        "wait_timeout": 45, "interval": 0.5, "samples": 4, "span": 2, "max_lag": 200, "max_active": 5, "stop_servers": [],
        "r1_policy": "accept", "tolerate": [],
    }  # fmt: skip
    healed: list[str] = []
    for name in names:
        if find_server(stored_config(cluster, name)) is None:
            start(cluster, name)
    for _attempt in range(5):
        with Client(options) as client:
            outcome = wait_for_health(make_sampler(SystemApi(client), params), params)
        if outcome.healthy:
            return healed
        print(message(outcome), file=sys.stderr, flush=True)
        suspects = sorted({name for problem in outcome.last.errors for name in problem.servers}) or names
        for name in suspects:
            restart(cluster, name, signal.SIGTERM)
        healed += suspects
    raise SystemExit(f"the cluster does not become healthy: {message(outcome)}")


def read_journal(path: Path) -> tuple[int, dict[str, float]]:
    """Return the number of batches in the playbook's journal, and the total seconds of each step."""
    done = []
    if path.exists():
        events = [json.loads(line) for line in path.read_text().splitlines()]
        done = [event["steps"] for event in events if event["event"] == "batch_done"]
        path.unlink()
    return len(done), {step: round(sum(steps[step] for steps in done), 3) for step in (done[0] if done else ())}


def measure(cluster: RoleCluster, way: str, dead: str, streams: int, rate: float) -> Figures:
    """Restart all servers this way under load; `dead` is killed beforehand."""
    letters = f"{'D' if dead else 'A'}{way[0].upper()}"
    load = publishers(cluster.urls, APP_USER, APP_PASSWORD, letters, streams, rate / streams)
    asyncio.run(load.prepare())
    settle(cluster)
    names = [name for name in cluster.hosts if name != dead]
    pids = cluster.pids()
    if dead:
        cluster.kill(dead)
        time.sleep(DEAD)
    watch = Watch(cluster, names)
    with publishing(load):
        refusal, wall, waits = load.during(lambda: ROLLS[way](cluster, names), watch)
    restarted = sum(cluster.pid(name) not in (0, pids[name]) for name in names)
    healed = [name for name in settle(cluster) if name != dead]
    _lost, wrong = asyncio.run(load.check())
    asyncio.run(load.remove())
    batches, steps = read_journal(cluster.root / "journal.jsonl")
    return Figures(
        way=way,
        dead=bool(dead),
        restarted=restarted,
        **asdict(waits),
        wrong=wrong,
        wall=round(wall, 1),
        away=round(sum(watch.away.values()), 1),
        healed=healed,
        refusal=refusal,
        batches=batches,
        steps=steps,
    )


def run(version: str, servers: int, streams: int, rate: float, ways: Sequence[str], dead: bool) -> list[Figures]:
    """Return the figures of each way, then of each way with a dead server."""
    with tempfile.TemporaryDirectory(prefix="nats-bench-") as directory, contextlib.ExitStack() as stack:
        names = [f"n{number}" for number in range(1, servers + 1)]
        cluster = RoleCluster(Path(directory), names, version)
        cluster.variables |= {
            "nats_cluster_gate_span": SPAN,
            "nats_cluster_journal": str(cluster.root / "journal.jsonl"),
        }
        stack.callback(cluster.kill)
        cluster.playbook("deploy")
        print(f"{version}: {servers} servers run", file=sys.stderr, flush=True)
        figures = []
        for victim in ["", names[-1]] if dead else [""]:
            for way in ways:
                figures.append(measure(cluster, way, victim, streams, rate))
                print(json.dumps(asdict(figures[-1])), file=sys.stderr, flush=True)
        return figures


def markdown(figures: Sequence[Figures]) -> str:
    """Return the figures as a table. The gaps are also shown as multiples of the gap before the restarts began."""
    heads = (
        "way", "dead before", "restarted", "longest gap s", "of the quiet gap", "retries", "acknowledged", "wrong", "took s",
        "servers away s", "took / away",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|---|---|{'---:|' * (len(heads) - 2)}"]
    for one in figures:
        ratio = f"×{one.wall / one.away:.2f}" if one.away and one.restarted else "-"
        lines.append(
            f"| {one.way} | {'one' if one.dead else '-'} | {one.restarted} | {one.gap:.2f} | ×{one.gap / one.quiet:.1f} "
            f"| {one.retries} | {one.acknowledged} | {len(one.wrong)} | {one.wall:.0f} | {one.away:.0f} | {ratio} |"
        )
    for one in figures:
        who = f"{one.way}{' with a dead server' if one.dead else ''}"
        if one.refusal:
            lines += ["", f"{who}: {one.refusal}"]
        if one.healed:
            lines += ["", f"{who}: had to be started again afterwards: {', '.join(one.healed)}"]
        if one.steps:
            told = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in one.steps.items())
            lines += ["", f"{who}: {told}; {one.against_processes()}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="2.15.1", help="version of nats-server")
    parser.add_argument("--servers", type=int, default=5)
    parser.add_argument("--streams", type=int, default=50, help="number of streams, each with a publisher")
    parser.add_argument("--rate", type=float, default=250, help="messages a second of all publishers together")
    parser.add_argument("--ways", default=",".join(WAYS), help="which ways, such as naive,playbook")
    parser.add_argument("--dead", action="store_true", help="also with one server killed before")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_caught: sys.exit("terminated"))  # so the servers are stopped too
    figures = run(
        arguments.version,
        arguments.servers,
        arguments.streams,
        arguments.rate,
        arguments.ways.split(","),
        arguments.dead,
    )
    print(json.dumps([asdict(one) for one in figures]) if arguments.json else markdown(figures))


if __name__ == "__main__":
    main()
