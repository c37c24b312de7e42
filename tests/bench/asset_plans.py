# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans and applies a repository of 6 accounts with 300 streams, 900 consumers, and 20 buckets with 200 entries.

Three real servers on loopback contain the assets as R1. The program creates the repository, makes 50 mixed changes, and
takes them back in a run that is killed in the middle and resumed. It fails if a plan takes more than 5 s, or if a
further run changes anything. It counts the requests of each run; the playbook's startup is not included.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import run_apply
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client
from support.module_runs import form, run_in_process
from support.nats_processes import NatsProcesses

ACCOUNTS, STREAMS, CONSUMERS, BUCKETS, ENTRIES = 6, 50, 3, 20, 10
CHANGES, KILLED_AFTER, MOST_SECONDS = 50, 20, 5.0

Documents = list[dict[str, Any]]


@dataclass
class Figures:
    """One run: the number of steps, the elapsed seconds, and the requests."""

    run: str
    steps: int
    seconds: float
    requests: int


def repository() -> Documents:
    """Return a document for each account."""
    documents = []
    for account in range(ACCOUNTS):
        streams = {
            f"S{number}": {
                "subjects": [f"s{number}.>"],
                "max_age": "30d",
                "max_bytes": "1MiB",
                "consumers": {
                    f"c{consumer}": {"ack_wait": "30s", "filter_subjects": [f"s{number}.{consumer}"]}
                    for consumer in range(CONSUMERS)
                },
            }
            for number in range(STREAMS)
        }
        entries = {f"key{number}": {"value": str(number), "mode": "own"} for number in range(ENTRIES)}
        buckets = {
            f"b{number}": {"history": 5, "entries": copy.deepcopy(entries)}
            for number in range(account, BUCKETS, ACCOUNTS)
        }
        head = {"document": f"team{account}", "cluster": "C1", "account": f"T{account}", "prune": "owned"}
        documents.append({**head, "streams": streams, "kv": buckets})
    return documents


def changed() -> Documents:
    """Return the repository with 50 mixed changes."""
    documents = repository()

    def streams(start: int, count: int) -> Iterator[tuple[dict[str, Any], str]]:
        for number in range(start, start + count):
            yield documents[number % ACCOUNTS]["streams"], f"S{number}"

    for all_streams, name in streams(0, 10):
        all_streams[name]["max_bytes"] = "2MiB"
    for all_streams, name in streams(10, 5):
        all_streams[name]["subjects"].append(f"more.{name}")
    for all_streams, name in streams(15, 10):
        all_streams[name]["consumers"]["c0"]["ack_wait"] = "60s"
    for all_streams, name in streams(25, 5):
        all_streams[name]["consumers"]["new"] = {"filter_subjects": [f"s{name[1:]}.new"]}
    for all_streams, name in streams(30, 5):
        del all_streams[name]["consumers"]["c1"]
    for number in range(6):
        documents[number]["kv"][f"b{number}"]["entries"]["key1"]["value"] = "changed"
    for number in range(3):
        documents[number]["kv"][f"b{number}"]["description"] = "changed"
    for number in range(6):
        documents[number]["streams"][f"NEW{number}"] = {"subjects": [f"new{number}.>"]}
    return documents


class Site:
    """Plans and applies documents on running servers, and counts the requests."""

    def __init__(self, servers: NatsProcesses) -> None:
        self.connection = {**servers.sys_connection(), "account_users": servers.account_users(), "timeout": 30}
        self.figures: list[Figures] = []

    def plan(self, name: str, documents: Documents) -> dict[str, Any]:
        found = self._measured(name, "nats_assets_plan", documents, confirm=names(documents))
        if self.figures[-1].seconds > MOST_SECONDS:
            raise SystemExit(f"{name} took {self.figures[-1].seconds:.1f} s, more than {MOST_SECONDS} s")
        plan = dict(found["plan"])
        if plan["problems"]:
            raise SystemExit(f"{name}: {plan['problems']}")
        self.figures[-1].steps = len(plan["steps"])
        return plan

    def apply(self, name: str, plan: dict[str, Any], documents: Documents) -> dict[str, Any]:
        found = self._measured(name, "nats_assets_apply", documents, plan=plan)
        self.figures[-1].steps = len(found["steps"])
        return found

    def _measured(self, name: str, module: str, documents: Documents, **options: Any) -> dict[str, Any]:
        requests = 0
        send, gather = Client.request_many, Client.gather

        def counted_requests(client: Client, calls: Any, *arguments: Any, **more: Any) -> Any:
            nonlocal requests
            requests += len(calls)
            return send(client, calls, *arguments, **more)

        def counted_gather(client: Client, *arguments: Any, **more: Any) -> Any:
            nonlocal requests
            requests += 1
            return gather(client, *arguments, **more)

        texts = [yaml.safe_dump(one) for one in documents]
        with (
            mock.patch.object(Client, "request_many", counted_requests),
            mock.patch.object(Client, "gather", counted_gather),
        ):
            started = time.perf_counter()
            found = run_in_process(module, self.connection, documents=texts, **options)
            elapsed = time.perf_counter() - started
        if found.get("failed"):
            raise SystemExit(f"{name}: {found['msg']}")
        self.figures.append(Figures(name, 0, elapsed, requests))
        return found

    def kill(self, plan: dict[str, Any], documents: Documents) -> None:
        """Apply in a different process, and kill it after some steps."""
        texts = [yaml.safe_dump(one) for one in documents]
        request = json.dumps({"connection": self.connection, "documents": texts, "plan": plan})
        command = [sys.executable, __file__, "--apply"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(request)
            process.stdin.close()
            for _step in range(KILLED_AFTER):
                if not process.stdout.readline():
                    raise SystemExit("the run to be killed ended before")
            process.kill()


def names(documents: Documents) -> list[str]:
    """Return the names of all assets, to confirm every cost."""
    found = []
    for document in documents:
        for stream, content in document["streams"].items():
            found += [stream, *(f"{stream}/{consumer}" for consumer in content.get("consumers", {}))]
        found += list(document["kv"])
    return found


def apply_and_report() -> None:
    """Apply the plan from the standard input, and write a line before each step."""
    given = json.load(sys.stdin)
    report = os.fdopen(os.dup(1), "w", buffering=1)
    take = run_apply._AssetsRun.take

    def reported(run: Any, step: Any) -> None:
        report.write(f"{step['name']}\n")
        take(run, step)

    with mock.patch.object(run_apply._AssetsRun, "take", reported):
        run_in_process("nats_assets_apply", given["connection"], documents=given["documents"], plan=given["plan"])


def measure(version: str) -> list[Figures]:
    """Return the figures of one version of nats-server."""
    with tempfile.TemporaryDirectory(prefix="nats-bench-") as directory, contextlib.ExitStack() as stack:
        accounts = {f"T{number}": f"t{number}" for number in range(ACCOUNTS)}
        servers = NatsProcesses(version, Path(directory), ["n1", "n2", "n3"], accounts=accounts)
        stack.callback(servers.kill)
        servers.start()
        form(servers)
        site = Site(servers)
        before, after = repository(), changed()
        site.apply("create all", site.plan("plan of all", before), before)
        plan = site.plan("plan of the changes", after)
        if len(plan["steps"]) != CHANGES:
            raise SystemExit(f"{len(plan['steps'])} changes, not {CHANGES}")
        site.apply("changes", plan, after)
        back = site.plan("plan of the way back", before)
        site.kill(back, before)
        resumed = site.apply("resumed after kill -9", back, before)
        if not 0 < len(resumed["steps"]) < len(back["steps"]):
            raise SystemExit("the killed run left no step, or made none")
        if site.apply("second run", back, before)["changed"] or site.plan("last plan", before)["steps"]:
            raise SystemExit("the second run or the last plan changes assets")
        return site.figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", default="2.10.27,2.15.1", help="versions of nats-server")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--apply", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.apply:
        apply_and_report()
        return
    signal.signal(signal.SIGTERM, lambda *_caught: sys.exit("terminated"))  # so the servers are stopped too
    for version in arguments.versions.split(","):
        figures = measure(version)
        if arguments.json:
            print(json.dumps({"version": version, "figures": [asdict(one) for one in figures]}), flush=True)
            continue
        print(f"### nats-server {version}\n\n| run | steps | seconds | requests |\n|---|---:|---:|---:|")
        for one in figures:
            print(f"| {one.run} | {one.steps} | {one.seconds:.1f} | {one.requests} |", flush=True)


if __name__ == "__main__":
    main()
