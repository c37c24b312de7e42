# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the operations on real systemd hosts over SSH, as ratios: ``operations.py --streams 100 --rate 5``.

Hosts of the lab (tests/lab/lab.py, root only) are deployed three times: for the first time, without a change, and with
one changed line that a reload applies. Each figure is a multiple of a play that only gathers facts. Then all servers
are restarted twice under load: once by a naive loop (lame duck mode, start, then the next server once /healthz returns
200), and once by the playbook ``restart``. The streams have three replicas on disk and a durable consumer each, and
every stream has a publisher that waits for each acknowledgement and retries after 250 ms. Afterwards the streams must
contain all acknowledged messages.

The role and Ansible use their default settings, with 5 forks. Everything that the lab uses to speed up tests, such as
its cache of compiled modules, is removed. The lab is removed at the end, even if the run is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import lab as labs
from binaries import SUITES
from support.controller import Controller, Run, file_install
from support.lab_cluster import Cluster
from support.publishers import Waits, publishers

FORKS = 5
USER, PASSWORD = "app", "app-pass"

#: The module of the health gate. The time of this module counts as waiting, all other time as the playbook's work.
GATE = "nats_cluster_health"

PARTS = ("deploy", "restart")

#: Returns once the server reports that it is healthy; fails after two minutes.
HEALTHZ = """
import time, urllib.request
end = time.monotonic() + 120
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:8222/healthz", timeout=2)
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(0.1)
"""


@dataclass(frozen=True)
class Play:
    """The cost of one playbook. `module_runs` and `tasks` are the maxima over the hosts."""

    what: str
    seconds: float
    module_runs: int
    tasks: int
    lines: int


@dataclass(frozen=True)
class Restart:
    """The result of one way of restarting all servers. `gates`: their number and seconds; `lost`: acknowledged messages
    that are missing from the stream; `wrong`: all discrepancies; `healed`: servers that had to be restarted afterwards.
    """

    way: str
    seconds: float
    gates: int
    gate_seconds: float
    waits: Waits
    lost: int
    wrong: list[str]
    healed: list[str]


@dataclass(frozen=True)
class Report:
    """All figures of a run."""

    title: str
    plays: list[Play]
    restarts: list[Restart]


class Bench:
    """A cluster on hosts of a lab, and its measurements."""

    def __init__(self, controller: Controller, version: str, slowest: int = 0) -> None:
        self.controller = controller
        self.slowest = slowest
        self.cluster = Cluster(controller)
        self.cluster.host_variables = {host: {} for host in controller.lab.hosts}
        self.cluster.variables = {
            **file_install(version),
            "nats_server_cluster_name": "C1",
            "nats_server_jetstream_store_dir": "/nats/storage",
            "nats_server_jetstream_max_file_store": "1GB",
            "nats_server_system_password": "sys-pass",
            # A hundred publishers log in at once, on servers that share the cores of one machine: with the default
            # bcrypt cost, no login would complete within the server's limit of two seconds, and all publishers would
            # retry.
            "nats_server_bcrypt_cost": 4,
            "nats_server_accounts": {"APP": {"jetstream": True, "users": [{"user": USER, "password": PASSWORD}]}},
        }

    def done(self, what: str, run: Run) -> Run:
        """Print the duration of a run and return it. The run must not have failed."""
        if run.status:
            raise SystemExit(f"{what} failed:\n{run.output}")
        tell(f"{what}: {run.seconds:.1f} s")
        for step in sorted(run.steps, key=lambda step: -step.seconds)[: self.slowest]:
            tell(f"  {step.seconds:6.1f} s  {step.task}")
        return run

    # --- plays ----------------------------------------------------------------------------------------------------------

    def facts(self, times: int) -> list[Run]:
        """Gather the facts of all hosts, and do nothing else."""
        with tempfile.TemporaryDirectory() as folder:
            play = Path(folder, "facts.yml")
            play.write_text(json.dumps([{"hosts": "nats", "gather_facts": True}]))
            return [self.done("facts", self.controller.playbook(play)) for _time in range(times)]

    def deploys(self, times: int) -> list[Play]:
        """Return the figures of each kind of deployment, after those of the play that only gathers facts."""
        facts = self.facts(times)
        plays = [figures("first `deploy`", [self.deploy(changes=True)])]
        plays += [figures("`deploy`, nothing changed", [self.deploy(changes=False) for _time in range(times)])]
        pids = self.cluster.pids()
        self.cluster.variables["nats_server_max_payload"] = "2MB"
        plays += [figures("`deploy`, one line changed (reload)", [self.deploy(changes=True)])]
        for host in self.cluster.hosts:
            if self.cluster.varz(host)["max_payload"] != 2 * 1024 * 1024:
                raise SystemExit(f"{host} does not have the new max_payload")
        if restarted := self.cluster.restarted(pids):
            raise SystemExit(f"a changed max_payload restarted {', '.join(sorted(restarted))} instead of a reload")
        facts += self.facts(times)
        return [figures("facts only", facts), *plays]

    def deploy(self, changes: bool) -> Run:
        run = self.done("deploy", self.cluster.deploy())
        if bool(run.changed) != changes:
            raise SystemExit(f"this deployment had to change {'something' if changes else 'nothing'}: {run.changed}")
        return run

    # --- restarts -------------------------------------------------------------------------------------------------------

    def restart(self, way: str, work: Callable[[], tuple[int, float]], streams: int, rate: float) -> Restart:
        """Restart all servers this way under load; `work` returns the number of gates that ran, and their seconds."""
        load = publishers(self.cluster.urls(), USER, PASSWORD, way[0].upper(), streams, rate)
        self.controller.run(load.prepare(), timeout=60 + 5 * streams)
        self.heal()
        pids = self.cluster.pids()
        with self.cluster.running(load):
            (gates, gate_seconds), seconds, waits = load.during(work)
        if missed := set(self.cluster.hosts) - self.cluster.restarted(pids):
            raise SystemExit(f"{way}: {', '.join(sorted(missed))} not restarted")
        healed = self.heal()
        lost, wrong = self.controller.run(load.check(), timeout=3600)
        self.controller.run(load.remove(), timeout=60 + 5 * streams)
        made = Restart(way, round(seconds, 1), gates, round(gate_seconds, 1), waits, lost, wrong, healed)
        tell(f"{way}: {json.dumps(asdict(made))}")
        return made

    def naive(self) -> tuple[int, float]:
        for host in self.cluster.hosts:
            # `stop` puts the server into lame duck mode, with the signal that the unit defines.
            self.controller.ssh(
                host, f"systemctl stop nats-server && systemctl start nats-server && python3 -c '{HEALTHZ}'"
            )
        return 0, 0.0

    def playbook(self) -> tuple[int, float]:
        return count_gates(self.done("restart", self.cluster.play("restart")))

    def heal(self) -> list[str]:
        """Return once the gate finds the cluster healthy; servers that remain faulty are restarted, and returned.

        A 2.10.27 server is sometimes raft-silent after its start, see docs/health-gate.md.
        """
        healed: list[str] = []
        for _attempt in range(5):
            run = self.cluster.health("wait=true", "wait_timeout=60")
            if not run.status:
                return healed
            said = "\n".join(run.errors)
            suspects = [host for host in self.cluster.hosts if host in said] or self.cluster.hosts
            tell(said)
            for host in suspects:
                self.controller.ssh(host, "systemctl restart nats-server")
            healed += suspects
        raise SystemExit(f"the cluster does not become healthy: {said}")


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def figures(what: str, runs: Sequence[Run]) -> Play:
    """Return the figures of a play: the median of the seconds, and the maximum of the counts."""
    costs = [cost for run in runs for cost in run.costs.values()]
    return Play(
        what=what,
        seconds=round(statistics.median(run.seconds for run in runs), 2),
        module_runs=max(cost.module_runs for cost in costs),
        tasks=max(cost.tasks for cost in costs),
        lines=max(len(run.output.splitlines()) for run in runs),
    )


def count_gates(run: Run) -> tuple[int, float]:
    """Return how many gates the run had, and how many seconds they took."""
    gates = [step.seconds for step in run.steps if step.action.rpartition(".")[2] == GATE]
    return len(gates), sum(gates)


def as_for_users(lab: labs.Lab, forks: int, pipelining: bool) -> None:
    """Remove everything that the lab uses to speed up tests."""
    for host in lab.hosts:
        lab.ssh(host, "rm /usr/lib/python3/dist-packages/lab_compiled.*")
    os.environ.pop("PYTHONPATH", None)
    os.environ["ANSIBLE_FORKS"] = str(forks)
    inventory = json.loads(lab.inventory.read_text())
    del inventory["nats"]["vars"]["ansible_pipelining"]
    if pipelining:
        inventory["nats"]["vars"]["ansible_pipelining"] = True
    lab.inventory.write_text(json.dumps(inventory))


@contextlib.contextmanager
def hosts_up(count: int) -> Iterator[Controller]:
    """Yield the controller of a new lab, which is removed afterwards."""
    labs.clear_dead("bench")
    name = f"bench-{os.getpid()}"
    lab = labs.up(name, [f"n{number}-c1" for number in range(1, count + 1)])
    try:
        controller = Controller(lab)
        yield controller
        controller.close()
    finally:
        labs.down(name)


def run(arguments: argparse.Namespace) -> Report:
    """Return the figures of a run."""
    with hosts_up(arguments.hosts) as controller:
        tell(f"{arguments.hosts} hosts are up")
        as_for_users(controller.lab, arguments.forks, arguments.pipelining)
        bench = Bench(controller, arguments.version, arguments.slowest)
        plays, restarts = [], []
        began, load = time.monotonic(), os.getloadavg()[0]
        if "deploy" in arguments.parts:
            plays = bench.deploys(arguments.repeat)
        else:
            bench.deploy(changes=True)
        if "restart" in arguments.parts:
            ways = {"naive": bench.naive, "playbook": bench.playbook}
            restarts = [bench.restart(way, work, arguments.streams, arguments.rate) for way, work in ways.items()]
        facts = [
            f"{arguments.hosts} hosts",
            f"nats-server {arguments.version}",
            f"ansible-core {installed('ansible-core')}",
            f"{arguments.forks} forks",
            *(["pipelining"] if arguments.pipelining else []),
            f"{os.cpu_count()} cores with a load average of {load:.1f} before",
            f"{time.monotonic() - began:.0f} s in all",
        ]
        return Report(", ".join(facts), plays, restarts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table: text in the first column, numbers in the others."""
    return [
        "",
        f"| {' | '.join(heads)} |",
        f"|---|{'---:|' * (len(heads) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def markdown(report: Report, streams: int, rate: float) -> str:
    """Return the figures as tables."""
    lines = [report.title]
    if report.plays:
        unit = report.plays[0].seconds
        lines += table(
            ("play", "s", "of facts only", "module runs a host", "tasks a host", "lines of output"),
            [
                (
                    one.what,
                    f"{one.seconds:.1f}",
                    f"×{one.seconds / unit:.1f}",
                    *map(str, (one.module_runs, one.tasks, one.lines)),
                )
                for one in report.plays
            ],
        )
    if report.restarts:
        unit = report.restarts[0].seconds
        rows = [
            (
                one.way, f"{one.seconds:.0f}", f"×{one.seconds / unit:.1f}",
                f"{one.gate_seconds:.0f} ({one.gates})" if one.gates else "-",
                f"{one.waits.gap:.2f}", f"×{one.waits.gap / one.waits.quiet:.1f}",
                *map(str, (one.waits.retries, one.waits.acknowledged, one.lost)),
            )
            for one in report.restarts
        ]  # fmt: skip
        heads = (
            f"restart of all, {streams} streams × {rate:g}/s", "s", "of naive", "gates s (how many)", "longest gap s",
            "of the quiet gap", "retries", "acknowledged", "lost",
        )  # fmt: skip
        lines += table(heads, rows)
        for one in report.restarts:
            lines += [f"\n{one.way}: {problem}" for problem in one.wrong]
            if one.healed:
                lines += ["", f"{one.way}: had to be started again afterwards: {', '.join(one.healed)}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="2.15.1", choices=SUITES, help="version of nats-server")
    parser.add_argument("--hosts", type=int, default=5)
    parser.add_argument("--streams", type=int, default=100, help="number of streams, each with a publisher")
    parser.add_argument("--rate", type=float, default=5, help="messages a second of each publisher")
    parser.add_argument(
        "--repeat", type=int, default=3, help="number of runs of the plays that change nothing; the median is reported"
    )
    parser.add_argument("--forks", type=int, default=FORKS)
    parser.add_argument("--pipelining", action="store_true", help="with an inventory that sets ansible_pipelining")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="parts to measure")
    parser.add_argument(
        "--slowest",
        type=int,
        default=0,
        metavar="COUNT",
        help="number of slowest tasks of each play to print on stderr",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_caught: sys.exit("terminated"))  # so the lab is removed too
    signal.signal(signal.SIGHUP, lambda *_caught: sys.exit("hung up"))
    try:
        report = run(arguments)
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except (labs.LabError, AssertionError) as error:
        sys.exit(f"operations.py: {error}")
    fields: dict[str, Any] = asdict(report)
    print(json.dumps(fields) if arguments.json else markdown(report, arguments.streams, arguments.rate))
    if any(one.wrong for one in report.restarts):
        sys.exit("not all that was acknowledged is in its stream, once and in order")


if __name__ == "__main__":
    main()
