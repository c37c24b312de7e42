# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures an unchanged ``deploy`` and a ``report`` with inventories of 30 to 300 hosts: ``fleet.py --hosts 30 300``.

One real cluster of three servers runs on loopback, and each cluster of the inventory is an alias of it: every host uses
the local connection and the files and ports of one of the three servers. All modules therefore do all of their work,
and Ansible has as many hosts as it would have in production; only the network and the hosts' own CPUs are missing.

CPU seconds are those of the controller's processes, with the modules, which run on the controller here. Memory is the
largest sum of the proportional set sizes of all these processes, sampled twice a second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.role_cluster import RoleCluster

SERVERS = 3
MIB = 2**20


@dataclass(frozen=True)
class Measured:
    """Elapsed and CPU seconds, peak memory in bytes, and the number of processed clusters. `complete`: whether the run
    ended within the time limit."""

    complete: bool
    elapsed: float
    cpu: float
    memory: int
    clusters: int


@dataclass(frozen=True)
class Case:
    """A run of Ansible. `clusters`: how many clusters it processes."""

    title: str
    playbook: str
    clusters: int
    extra: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def aliases(cluster: RoleCluster, hosts: int) -> dict[str, Any]:
    """Return an inventory with so many hosts; each is an alias of one of the cluster's hosts."""
    children: dict[str, Any] = {}
    for number in range(hosts // SERVERS):
        group = f"c{number:03}"
        found = {
            f"{group}-{name}": {**own, "nats_server_name": name, "nats_server_cluster_group": group}
            for name, own in cluster.hosts.items()
        }
        children[group] = {"hosts": found}
    return {"all": {"children": {"nats": {"vars": cluster.variables, "children": children}}}}


def family(root: int) -> Iterator[int]:
    """Yield a process and all of its descendants."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except OSError:
            continue
    waiting = [root]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += parents.get(process, [])


def memory(root: int) -> int:
    """Return the proportional set size of a process and its descendants in bytes."""
    total = 0
    for process in family(root):
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def end(root: int) -> None:
    """Kill a process and its descendants."""
    for process in list(family(root)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def measure(cluster: RoleCluster, inventory: Path, case: Case, limit: float) -> Measured:
    """Run the case for at most `limit` seconds. Raises SystemExit with the output if it fails or changes anything."""
    command, environment = cluster.controller()
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*command, f"natsops.jetstream.{case.playbook}", "-i", str(inventory), "-e", json.dumps(case.extra)],
            stdout=output,
            stderr=output,
            env={**environment, "ANSIBLE_NOCOLOR": "true", **case.environment},
        )
        ended, late, peak = threading.Event(), threading.Event(), [0]

        def sample() -> None:
            while not ended.wait(0.5):
                peak[0] = max(peak[0], memory(process.pid))
                if time.monotonic() - began > limit and not late.is_set():
                    late.set()
                    end(process.pid)

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            _pid, status, usage = os.wait4(process.pid, 0)
        except SystemExit:
            end(process.pid)
            raise
        finally:
            ended.set()
            sampler.join()
        output.seek(0)
        text = output.read()
    if not late.is_set() and (status or re.search(r"changed=[1-9]", text)):
        raise SystemExit(f"{case.title}: it failed or changed a host:\n{text[-6000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(not late.is_set(), time.monotonic() - began, cpu, peak[0], case.clusters)


def per_cluster(hosts: int, sampled: int, parallel: int) -> Iterator[Case]:
    """Yield the runs of `fleet` with an inventory of so many hosts, each for at most `sampled` of its clusters."""
    names = [f"c{number:03}" for number in range(min(sampled, hosts // SERVERS))]
    for playbook in ("deploy", "report"):
        extra = {"nats_fleet_clusters": names, "nats_fleet_parallel": parallel, "nats_fleet_playbook": playbook}
        yield Case(f"{playbook}, a run for each cluster", "fleet", len(names), extra)


def in_one_run(
    hosts: int, forks: int, title: str = "", pipelining: bool = True, cache: Mapping[str, str] | None = None
) -> Case:
    """Return the deployment of all hosts in one run of Ansible."""
    # The role's default would override ANSIBLE_PIPELINING.
    extra = {"ansible_pipelining": pipelining}
    title = f"deploy, one run, forks {forks}{title}"
    return Case(title, "deploy", hosts // SERVERS, extra, {"ANSIBLE_FORKS": str(forks), **(cache or {})})


def settings(hosts: int, forks: int) -> Iterator[Case]:
    """Yield deployments in one run, with different settings of Ansible."""
    yield in_one_run(hosts, forks, ", no pipelining", pipelining=False)
    cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": tempfile.mkdtemp(prefix="facts-")}
    yield in_one_run(hosts, forks, ", fact cache", cache=cache)


def row(title: str, hosts: int, found: Measured) -> str:
    memory_and_end = f"{found.memory / MIB:,.0f} |"
    if not found.complete:
        return f"| {title} | {hosts} | {found.clusters} | > {found.elapsed:.0f} | - | - | {memory_and_end}"
    return (
        f"| {title} | {hosts} | {found.clusters} | {found.elapsed:.0f} | {found.cpu:.0f} "
        f"| {found.cpu / found.clusters:.1f} | {memory_and_end}"
    )


def cases(options: argparse.Namespace) -> Iterator[tuple[int, Case]]:
    """Yield all runs, each with the number of hosts in its inventory. The longest come last."""
    for hosts in options.hosts:
        yield from ((hosts, case) for case in per_cluster(hosts, options.sampled, options.parallel))
    if options.settings:
        yield from ((options.settings, case) for case in settings(options.settings, options.forks[0]))
    for hosts in sorted(options.whole):
        yield from ((hosts, in_one_run(hosts, forks)) for forks in options.forks)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="*", default=[30, 100, 300], help="inventories for `fleet`")
    parser.add_argument("--sampled", type=int, default=2, help="clusters that a run for each cluster processes")
    parser.add_argument("--parallel", type=int, default=2, help="clusters at the same time")
    parser.add_argument("--forks", type=int, nargs="+", default=[5, 25, 50], help="forks of deployments in one run")
    parser.add_argument("--whole", type=int, nargs="*", default=[30, 100], help="inventories to deploy in one run")
    parser.add_argument("--settings", type=int, default=30, help="hosts for the comparison of settings; 0 for none")
    parser.add_argument("--limit", type=float, default=400, help="seconds after which a run is ended")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_caught: sys.exit("terminated"))  # so the servers are stopped too
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
        cluster = RoleCluster(Path(folder), [f"n{number}" for number in range(1, SERVERS + 1)])
        with cluster.deployed():
            print("| run | hosts | clusters | elapsed s | CPU s | CPU s per cluster | memory MiB |")
            print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
            inventory = Path(folder, "fleet.json")
            for hosts, case in cases(options):
                inventory.write_text(json.dumps(aliases(cluster, hosts)))
                print(row(case.title, hosts, measure(cluster, inventory, case, options.limit)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
