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
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.role_cluster import RoleCluster

SERVERS = 3
MIB = 2**20


@dataclass(frozen=True)
class Measured:
    """Elapsed and CPU seconds, peak memory in bytes, and the number of processed clusters."""

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


def measure(cluster: RoleCluster, inventory: Path, case: Case) -> Measured:
    """Run the case to its end. Raises SystemExit with the output if it fails or changes anything."""
    command, environment = cluster.controller()
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*command, f"natsops.jetstream.{case.playbook}", "-i", str(inventory), "-e", json.dumps(case.extra)],
            stdout=output,
            stderr=output,
            env={**environment, "ANSIBLE_NOCOLOR": "true", **case.environment},
        )
        ended, peak = threading.Event(), [0]

        def sample() -> None:
            while not ended.wait(0.5):
                peak[0] = max(peak[0], memory(process.pid))

        sampler = threading.Thread(target=sample)
        sampler.start()
        _pid, status, usage = os.wait4(process.pid, 0)
        ended.set()
        sampler.join()
        output.seek(0)
        text = output.read()
    if status or "changed=1" in text:
        raise SystemExit(f"{case.title}: it failed or changed a host:\n{text[-6000:]}")
    return Measured(time.monotonic() - began, usage.ru_utime + usage.ru_stime, peak[0], case.clusters)


def cases(hosts: int, sampled: int, parallel: int) -> Iterator[Case]:
    """Yield the runs with an inventory of so many hosts, each for at most `sampled` of its clusters."""
    clusters = hosts // SERVERS
    names = [f"c{number:03}" for number in range(min(sampled, clusters))]
    chosen = {
        "nats_fleet_clusters": names,
        "nats_fleet_parallel": parallel,
    }
    for playbook in ("deploy", "report"):
        extra = {**chosen, "nats_fleet_playbook": playbook}
        yield Case(f"{playbook}, a run for each cluster", "fleet", len(names), extra)


def settings(hosts: int) -> Iterator[Case]:
    """Yield deployments in one run, with different settings of Ansible."""
    clusters = hosts // SERVERS
    for forks in ("5", "10", "20"):
        yield Case(
            f"forks {forks}, pipelining", "deploy", clusters, {"ansible_pipelining": True}, {"ANSIBLE_FORKS": forks}
        )
    yield Case("forks 10, no pipelining", "deploy", clusters, {"ansible_pipelining": False}, {"ANSIBLE_FORKS": "10"})
    cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": tempfile.mkdtemp(prefix="facts-")}
    yield Case(
        "forks 10, pipelining, fact cache", "deploy", clusters, {"ansible_pipelining": True},
        {"ANSIBLE_FORKS": "10", **cache},
    )  # fmt: skip


def row(title: str, hosts: int, found: Measured) -> str:
    return (
        f"| {title} | {hosts} | {found.clusters} | {found.elapsed:.0f} | {found.cpu:.0f} "
        f"| {found.cpu / found.clusters:.1f} | {found.memory / MIB:,.0f} |"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[30, 100, 300])
    parser.add_argument("--sampled", type=int, default=6, help="clusters that a run for each cluster processes")
    parser.add_argument("--parallel", type=int, default=2, help="clusters at the same time")
    parser.add_argument("--whole", type=int, default=100, help="largest inventory to deploy in one run")
    parser.add_argument("--settings", type=int, default=30, help="hosts for the comparison of settings; 0 for none")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_caught: sys.exit("terminated"))  # so the servers are stopped too
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
        cluster = RoleCluster(Path(folder), [f"n{number}" for number in range(1, SERVERS + 1)])
        with cluster.deployed():
            print("| run | hosts | clusters | elapsed s | CPU s | CPU s per cluster | memory MiB |")
            print("|---|---:|---:|---:|---:|---:|---:|")
            inventory = Path(folder, "fleet.json")
            runs = [
                (hosts, case) for hosts in options.hosts for case in cases(hosts, options.sampled, options.parallel)
            ]
            runs += [(options.settings, case) for case in settings(options.settings)] if options.settings else []
            runs += [
                (hosts, Case("deploy, one run for all", "deploy", hosts // SERVERS, {}, {"ANSIBLE_FORKS": "10"}))
                for hosts in options.hosts
                if hosts <= options.whole
            ]
            for hosts, case in runs:
                inventory.write_text(json.dumps(aliases(cluster, hosts)))
                print(row(case.title, hosts, measure(cluster, inventory, case)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
