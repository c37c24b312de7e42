# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the adoption of clusters that the collection did not set up, on real servers: clusters are adopted under load
without a restart, then taken over one server at a time. The playbook adopt also runs nats_server_host_info and
nats_adoption."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.foreign_cluster import NAMES, Foreign
from support.nats_processes import VERSIONS
from support.role_cluster import SYSTEM_PASSWORD, load, words

pytestmark = pytest.mark.playbook


# In each `make test`, a cluster is adopted and taken over on the hosts of the lab (tests/lab/test_adopt.py). Check mode
# is in test_adopt_linked.py.
@pytest.mark.chaos
@pytest.mark.parametrize("version", ["2.9.10", *VERSIONS])
def test_adopted_without_a_restart_and_taken_over_without_a_loss(tmp_path: Path, version: str) -> None:
    cluster = Foreign(tmp_path, version)
    with cluster.by_hand(), load(cluster, streams={"LOAD3": 3}):
        pids = cluster.pids()
        shown = cluster.adopt()
        assert "The first deploy: 0 restarts, 3 reloads, 0 units, 0 binaries." in shown
        assert "made@" not in shown and SYSTEM_PASSWORD not in shown
        originals = {name: (tmp_path / name / "conf/nats.conf").read_text() for name in NAMES}

        cluster.playbook("deploy")
        assert cluster.pids() == pids
        cluster.deploy_changes_nothing()
        for name in NAMES:
            assert (tmp_path / name / "conf/nats.conf.before_adoption").read_text() == originals[name]

        cluster.playbook("deploy", nats_server_take_over=True)
        taken = cluster.pids()
        assert all(taken.values()) and not set(taken.values()) & set(pids.values())
        for name in NAMES:
            program = os.readlink(f"/proc/{taken[name]}/exe")
            assert program == str(tmp_path / name / "opt" / version / "bin/nats-server")
        cluster.deploy_changes_nothing(nats_server_take_over=True)


def test_second_adoption_changes_nothing_and_keeps_edits(tmp_path: Path) -> None:
    cluster = Foreign(tmp_path, "2.15.1")
    with cluster.by_hand():
        cluster.adopt()
        cluster.adopted = []
        refused = words(
            cluster.playbook("adopt", fails=True, nats_cluster_adopt_directory=str(tmp_path / "adopted")).output
        )
        assert "vault.yml would be overwritten: nothing was written" in refused
        cluster.playbook("adopt", nats_cluster_adopt_directory=str(tmp_path / "adopted"), nats_cluster_adopt_force=True)
        again = cluster.playbook("adopt", nats_cluster_adopt_directory=str(tmp_path / "adopted")).output
        assert set(re.findall(r"changed=(\d+)", again)) == {"0"}


def test_refused_adoption_gives_reasons_and_writes_nothing(tmp_path: Path) -> None:
    cluster = Foreign(tmp_path, "2.15.1")
    with cluster.by_hand():
        (tmp_path / "f1/conf/parts/accounts.conf").write_text("max_connections: 7\n")
        cluster.kill("f2")
        cluster.processes["f2"].wait()
        cluster.start("f2", "--connect_retries", "3")
        cluster.healthy("f2")
        del cluster.hosts["f3"]
        said = words(
            cluster.playbook("adopt", fails=True, nats_cluster_adopt_directory=str(tmp_path / "adopted")).output
        )
        assert "f1: " in said and "differ from the configuration that the process has loaded" in said
        assert "f2: it runs with -connect_retries, which a configuration file must set instead" in said
        assert "the cluster has servers that are not in the inventory: hand-f3" in said
        assert not (tmp_path / "adopted").exists()
