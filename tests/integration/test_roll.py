# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling restarts by the playbooks, on five servers under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from role_cluster import RoleCluster


@pytest.fixture(scope="module")
def five_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    cluster = RoleCluster(tmp_path_factory.mktemp("roll"), [f"n{number}" for number in range(1, 6)])
    try:
        cluster.playbook("deploy")
        yield cluster
    finally:
        cluster.kill()


def test_restart(five_hosts: RoleCluster) -> None:
    before = five_hosts.pids()
    run = five_hosts.playbook("restart")
    print(run.output)
    assert all(five_hosts.pids()[name] not in (0, before[name]) for name in before)
    run = five_hosts.playbook("restart", "--check", nats_cluster_batch="quorum")
    print(run.output)
