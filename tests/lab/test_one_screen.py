# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A restart that is refused fits a screen and names the one cause, for every fault of the servers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator

import pytest
from lab import LabUnavailableError
from support.controller import Controller, Run, file_install
from support.lab_cluster import HOSTS, Cluster

STORE = "/nats/storage"
#: The host with a separate disk, which can be filled up.
SMALL = "n3-c1"
SCREEN = 25
GATE = "Wait for the health gate"


@pytest.fixture(scope="module")
def cluster(shared_controller: Controller) -> Iterator[Cluster]:
    lab = shared_controller.lab
    lab.renew()
    try:
        lab.disk(SMALL, STORE, "400M")
    except LabUnavailableError as error:
        pytest.skip(str(error))
    made = Cluster(shared_controller)
    made.variables.update(file_install("2.15.1"), nats_server_account_operator_password="operator pass")
    run = made.deploy()
    assert run.status == 0, run.output
    yield made


@pytest.fixture(autouse=True)
def intact_cluster(cluster: Cluster) -> Iterator[None]:
    """Repair the cluster after each test."""
    yield
    for host in HOSTS:
        cluster.controller.ssh(host, f"rm -f {STORE}/fill; systemctl start nats-server")
    # A server must read a thousand streams when it starts.
    cluster.wait_until_healthy(300)


def fill(cluster: Cluster, streams: int) -> None:
    """Create this many streams with three replicas, which the meta leader spreads over all servers."""

    async def make() -> None:
        async with cluster.client() as client:
            for first in range(0, streams, 20):
                wanted = range(first, min(first + 20, streams))
                bodies = {
                    f"S{number}": json.dumps({"name": f"S{number}", "num_replicas": 3, "subjects": [f"s.{number}"]})
                    for number in wanted
                }
                replies = await asyncio.gather(
                    *(
                        client.request(f"$JS.API.STREAM.CREATE.{name}", body.encode(), timeout=30)
                        for name, body in bodies.items()
                    )
                )
                for reply in replies:
                    assert "error" not in json.loads(reply.data), reply.data

    cluster.controller.run(make(), timeout=600)


def refusal(run: Run) -> list[str]:
    """Return the output of the failed task, from its title to the next one."""
    assert run.status != 0
    parts = re.split(r"^(?=(?:TASK|PLAY RECAP) )", run.output, flags=re.MULTILINE)
    failing = [part for part in parts if re.search(r"^(?:\[ERROR\]|fatal: )", part, re.MULTILINE)]
    lines = [line for line in failing[0].splitlines() if line.strip()]
    assert len(lines) <= SCREEN and len(failing[0]) < 10_000, failing[0]
    return lines


def seconds_until(run: Run, task: str) -> int:
    """Return how long the command took until the end of its last task with this name."""
    last = max(number for number, step in enumerate(run.steps) if step.task.endswith(task))
    after = sum(step.seconds for step in run.steps[last + 1 :])
    return round(run.seconds - after)


@pytest.mark.parametrize("streams", [40, pytest.param(1000, marks=pytest.mark.chaos)])
def test_two_dead_servers(cluster: Cluster, streams: int, record_property: Callable[[str, object], None]) -> None:
    fill(cluster, streams)
    pids = cluster.pids()
    for host in ("n4-c1", "n5-c1"):
        cluster.controller.ssh(host, "systemctl stop nats-server")
    run = cluster.play("restart")
    lines = refusal(run)
    text = "\n".join(lines)
    assert re.search(r"1\. n4-c1 and n5-c1 do not answer: .*\d+ streams.* have no quorum", text), text
    assert not re.search(r"^ *2\. ", text, re.MULTILINE), text
    assert "systemctl status nats-server" in text
    waited = re.search(r"is not healthy after (\d+) s", text)
    assert waited and int(waited[1]) <= 30, text
    record_property(
        "refusal", {"seconds": seconds_until(run, GATE), "gate": int(waited[1]), "lines": len(lines), "text": text}
    )
    assert cluster.restarted(pids) == {"n4-c1", "n5-c1"}


def test_a_full_disk(cluster: Cluster) -> None:
    pids = cluster.pids()
    cluster.controller.ssh(SMALL, f"head -c 1G /dev/zero > {STORE}/fill || true")
    run = cluster.play("restart")
    text = "\n".join(refusal(run))
    assert re.search(rf"1\. .*{SMALL}", text) and re.search("disk|storage", text), text
    assert cluster.restarted(pids) == set()


def test_a_cut_host(cluster: Cluster) -> None:
    """Neither the other servers nor the controller can reach the host."""
    pids = cluster.pids()
    cluster.controller.lab.partition("n5-c1")
    run = cluster.play("restart")
    assert run.status != 0
    assert {result.host for result in run.results if result.status == "unreachable"} == {"n5-c1"}
    assert "n5-c1" in "\n".join(refusal(run))
    cluster.controller.lab.heal("n5-c1")
    assert cluster.restarted(pids) == set()
