# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A restart of many streams that is refused fits a screen and names the one cause; see also test_deploy.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from support.controller import Controller, Run, file_install
from support.lab_cluster import HOSTS, Cluster, refusal

GATE = "Wait for the health gate"


@pytest.fixture(scope="module")
def cluster(shared_controller: Controller) -> Iterator[Cluster]:
    shared_controller.lab.renew()
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
        cluster.controller.ssh(host, "systemctl start nats-server")
    # A server must read a thousand streams when it starts.
    cluster.wait_until_healthy(300)


def seconds_until(run: Run, task: str) -> int:
    """Return how long the command took until the end of its last task with this name."""
    last = max(number for number, step in enumerate(run.steps) if step.task.endswith(task))
    after = sum(step.seconds for step in run.steps[last + 1 :])
    return round(run.seconds - after)


@pytest.mark.chaos
def test_two_dead_servers_of_a_thousand_streams(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    cluster.fill(1000)
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
