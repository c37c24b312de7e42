# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests rolling restarts of five servers: several servers restart at once if no quorum needs them, single replicas are
moved away first, and while two servers are dead, a restart is refused on one screen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.module_runs import Runner
from support.role_cluster import RoleCluster, create, under_load

pytestmark = pytest.mark.playbook

NAMES = ["n1", "n2", "n3", "n4", "n5"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """Five deployed servers; all tests except the last leave them healthy."""
    with RoleCluster(tmp_path_factory.mktemp("wide"), NAMES, "2.15.1").deployed() as made:
        yield made


@pytest.mark.chaos
def test_servers_restart_together_where_no_quorum_needs_them(cluster: RoleCluster, tmp_path: Path) -> None:
    """There is only one stream, with three replicas, so two of the five servers have none: five servers need only three
    batches, with four gates instead of six."""
    before = cluster.pids()
    journal = tmp_path / "C1.jsonl"
    outputs: list[str] = []

    def restart() -> None:
        run = cluster.playbook(
            "restart", nats_cluster_batch="quorum", nats_cluster_meta_headroom=0, nats_cluster_journal=str(journal)
        )
        outputs.append(run.output)

    under_load(cluster, restart)
    after = cluster.pids()
    assert all(after[name] not in (0, before[name]) for name in NAMES)
    lines = [line for line in outputs[0].splitlines() if '"batch ' in line]
    batches = [line.split("batch ", 1)[1].split(" ", 1)[0] for line in lines]
    assert len(lines) == len(NAMES)
    assert set(batches) == {"1", "2", "3"}, lines
    # The gate after a batch is also the gate before the next one, because nothing happens in between.
    steps = [json.loads(line)["steps"] for line in journal.read_text().splitlines() if '"batch_done"' in line]
    assert [step["gate"] > 0 for step in steps] == [True, False, False]
    assert all(step["catch_up"] > 0 for step in steps)


@pytest.mark.chaos
def test_single_replicas_give_way_and_come_back(cluster: RoleCluster, run_module: Runner) -> None:
    """The only replica of a stream is always available: its producers wait no longer than for an election."""

    def home() -> str:
        streams = run_module("nats_cluster_info", cluster.system())["streams"]
        return str(next(stream["leader"] for stream in streams if stream["name"] == "LOAD1"))

    homes: list[str] = []

    def restart() -> None:
        homes.append(home())
        before = cluster.pids()
        cluster.playbook("restart", "--limit", homes[0], nats_cluster_gate_r1_policy="move")
        assert [name for name, pid in cluster.pids().items() if pid != before[name]] == homes
        homes.append(home())

    report = under_load(cluster, restart, LOAD1=1, LOAD3=3)
    assert homes[0] == homes[1]
    assert report.longest_gap < 5
    refused = cluster.playbook("restart", "--limit", homes[0], fails=True, nats_cluster_gate_r1_policy="fail")
    assert "LOAD1" in refused.output


# tests/lab/test_one_screen.py tests the same on hosts.
@pytest.mark.chaos
def test_two_dead_servers_are_the_one_cause_on_one_screen(cluster: RoleCluster) -> None:
    for number in range(60):
        create(cluster, f"S{number}", 3)
    cluster.kill("n4", "n5")
    refused = cluster.playbook("restart", "--limit", "n1", fails=True)
    assert cluster.pid("n1") != 0
    task = refused.output.rindex("TASK [natsops.jetstream.nats_cluster : Wait for the health gate]")
    # Take the output from the task's title to the next title.
    printed = [line for line in refused.output[task : refused.output.index("TASK [", task + 1)].splitlines() if line]
    text = "\n".join(printed)
    assert len(printed) <= 25, text
    assert len(text) < 8_000
    assert re.search(r"1\. n4 and n5 do not answer: .*\d+ streams? .*have no quorum.* miss a replica", text), text
    assert "systemctl status nats-server" in text
    assert "waiting alone will not fix it" in text
    waited = re.search(r"is not healthy after (\d+) s", text)
    assert waited, text
    assert int(waited[1]) < 60, "the timeout is 120 s"
    # This was printed during the wait.
    assert re.search(
        r"^batch 1 of 1 \(n1\), 00:00:\d\d: 1\d of 120 s: \d+ (?:of \d+ )?problems left: n4 and n5 do not answer",
        text,
        re.M,
    ), text
