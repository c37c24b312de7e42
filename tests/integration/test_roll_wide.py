# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling restarts of five servers: several at once where no quorum needs them, and single replicas that give way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Runner
from role_cluster import RoleCluster, under_load

pytestmark = pytest.mark.chaos

NAMES = ["n1", "n2", "n3", "n4", "n5"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """Five deployed servers; each test leaves them healthy."""
    made = RoleCluster(tmp_path_factory.mktemp("wide"), NAMES, "2.15.1")
    try:
        made.playbook("deploy")
        yield made
    finally:
        made.kill()


def test_servers_restart_together_where_no_quorum_needs_them(cluster: RoleCluster) -> None:
    """One stream of three replicas beside two servers without any: three batches instead of five."""
    before = cluster.pids()
    outputs: list[str] = []

    def restart() -> None:
        run = cluster.playbook("restart", nats_cluster_batch="quorum", nats_cluster_meta_spare=0)
        outputs.append(run.output)

    under_load(cluster, restart)
    after = cluster.pids()
    assert all(after[name] not in (0, before[name]) for name in NAMES)
    lines = [line for line in outputs[0].splitlines() if '"batch ' in line]
    batches = [line.split("batch ", 1)[1].split(" ", 1)[0] for line in lines]
    assert len(lines) == len(NAMES)
    assert set(batches) == {"1", "2", "3"}, lines


def test_single_replicas_give_way_and_come_back(cluster: RoleCluster, run_module: Runner) -> None:
    """The only replica of a stream is never away: its producers wait no longer than for an election."""

    def home() -> str:
        streams = run_module("nats_cluster_info", cluster.system())["streams"]
        return str(next(stream["leader"] for stream in streams if stream["name"] == "LOAD1"))

    homes: list[str] = []

    def restart() -> None:
        homes.append(home())
        before = cluster.pids()
        cluster.playbook("restart", "--limit", homes[0], nats_server_gate_r1_policy="move")
        assert [name for name, pid in cluster.pids().items() if pid != before[name]] == homes
        homes.append(home())

    report = under_load(cluster, restart, LOAD1=1, LOAD3=3)
    assert homes[0] == homes[1]
    assert report.longest_gap < 5
    refused = cluster.playbook("restart", "--limit", homes[0], fails=True, nats_server_gate_r1_policy="fail")
    assert "LOAD1" in refused.output
