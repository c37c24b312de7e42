# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests upgrades by the playbook under load: supported upgrades, refused upgrades, and the real effect of skipping
versions."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import Runner
from support.role_cluster import RoleCluster, create, publish, under_load, words

pytestmark = pytest.mark.playbook

NAMES = ["n1", "n2", "n3"]
STEPS = """
- name: Run steps of the role
  hosts: nats
  gather_facts: false
  tasks:
    - name: Run the steps
      ansible.builtin.include_role:
        name: natsops.jetstream.nats_server
        tasks_from: "{{ item }}"
      loop: "{{ steps }}"
"""


def running(cluster: RoleCluster, run_module: Runner) -> set[str]:
    """Return the versions of the running servers."""
    facts = run_module("nats_cluster_info", cluster.system(), detail="servers")
    return {server["version"] for server in facts["servers"]}


@pytest.mark.chaos
def test_from_2_9_to_2_15(tmp_path: Path, run_module: Runner) -> None:
    with RoleCluster(tmp_path, NAMES, "2.9.10").deployed() as cluster:

        def upgrades() -> None:
            run = cluster.playbook("upgrade", **cluster.running("2.10.27"))
            assert "changed=0" not in run.output.split("PLAY RECAP")[1].split("n1 ", 1)[1].splitlines()[0]
            before = cluster.pids()
            run = cluster.playbook("upgrade", fails=True, **cluster.running("2.15.1"))
            assert "nothing was changed" in run.output
            assert "nats_server_version: " in run.output
            assert "2.11" in run.output
            assert cluster.pids() == before
            cluster.playbook("upgrade", nats_server_allow_skipped_minors=True, **cluster.running("2.15.1"))

        report = under_load(cluster, upgrades)
        assert report.longest_gap < 10
        assert running(cluster, run_module) == {"2.15.1"}
        before = cluster.pids()
        run = cluster.playbook("upgrade", fails=True, **cluster.running("2.10.27"))
        assert "nothing was changed" in run.output
        assert cluster.pids() == before


def test_an_upgrade_to_nowhere_is_refused(tmp_path: Path) -> None:
    cluster = RoleCluster(tmp_path, NAMES)
    del cluster.variables["nats_server_version"]
    try:
        assert "No version is set." in cluster.playbook("upgrade", fails=True).output
    finally:
        cluster.kill()


# test_server_versions.py and test_version_rules.py have the rules.
@pytest.mark.chaos
def test_defects_of_the_versions_are_one_line_each(tmp_path: Path) -> None:
    """The lines about defects are not repeated for each host. These lines appear for the target version, for the
    running version, and before a restart; an upgrade ends them."""
    cluster = RoleCluster(tmp_path, NAMES, "2.10.27")
    silent = "nats-server 2.10.27: a server occasionally starts raft-silent"
    try:
        for run in (
            cluster.playbook("deploy"),
            cluster.playbook("upgrade", "--check", nats_server_allow_skipped_minors=True, **cluster.running("2.15.1")),
            cluster.playbook("restart", "--check"),
        ):
            assert run.output.count("nats-server 2.10.27: end-of-life since 2025-09") == 1, run.output
            assert run.output.count(silent) == 1, run.output
            assert "without logging in" not in run.output, "no server has leafnodes"
        create(cluster, "MEMORY", 1, subjects=["MEMORY.>"], storage="memory")
        publish(cluster, "MEMORY.new", 1, 10)
        wanted = {**cluster.running("2.15.1"), "nats_server_allow_skipped_minors": True}
        refused = words(cluster.playbook("upgrade", "--check", fails=True, **wanted).output)
        assert "stream APP/MEMORY exists only in the memory of" in refused and "nothing was changed" in refused
        cluster.playbook(
            "upgrade",
            nats_cluster_accept_loss=["APP/MEMORY"],
            nats_server_allow_skipped_minors=True,
            **cluster.running("2.15.1"),
        )
        run = cluster.playbook("deploy", **cluster.running("2.15.1"))
        assert "end-of-life" not in run.output
    finally:
        cluster.kill()


# In each `make test`, test_process_modules.py and test_validation.py refuse to start the older version,
# test_membership_plan.py the empty stores, and test_operator_mode.py upgrades a cluster.
@pytest.mark.chaos
def test_older_versions_are_kept_from_files_that_they_damage(tmp_path: Path, run_module: Runner) -> None:
    """2.9.10 loads tombstones of 2.10 as messages: acknowledged messages return, and the last sequence becomes 2**62."""
    cluster = RoleCluster(tmp_path, NAMES, "2.9.10")
    newer = cluster.running("2.10.27")
    with cluster.deployed(), socket.create_server(("127.0.0.1", 0)) as taken:
        create(cluster, "ORDERS", 3, subjects=["ORDERS.>"])
        publish(cluster, "ORDERS.new", 5, 10)
        before = cluster.pids()
        # The new version opens its store before this port.
        change = {"nats_server_config": {"websocket": {"port": taken.getsockname()[1], "no_tls": True}}}
        run = cluster.playbook("upgrade", fails=True, nats_cluster_on_failure="rollback", **newer, **change)
        assert "Unable to listen for websocket connections" in run.output
        refused = "2.9.10 is not started with the newer files in"
        assert f"previous version and configuration could not be restored: nats-server with {tmp_path}" in words(
            run.output
        ) and refused in words(run.output)
        (failed,) = [name for name, pid in cluster.pids().items() if not pid]
        assert "2.10.27" in (tmp_path / failed / "nats-server").resolve().parts
        assert all(pid in (0, before[name]) for name, pid in cluster.pids().items())
        cluster.playbook("upgrade", **newer)
        assert running(cluster, run_module) == {"2.10.27"}

        # Without the binary, the files alone show which version wrote them.
        cluster.variables.update(newer)
        play = tmp_path / "remove.yml"
        play.write_text(STEPS)
        cluster.playbook(str(play), steps=["members", "remove"])
        refused = words(cluster.playbook("deploy", fails=True, **cluster.running("2.9.10")).output)
        assert "has files of nats-server 2.10 or later, but 2.9.10 would start with them" in refused
        assert "nothing was changed" in refused
        # The empty stores of the other servers show that the messages are elsewhere. test_growth.py refuses a different
        # name of the cluster.
        for name in NAMES[:2]:
            (tmp_path / name / "store").rename(tmp_path / name / "kept")
        refused = words(cluster.playbook("deploy", fails=True).output)
        assert "the stores of n1, n2 are empty, but n3 has up to 1 stream of a stopped cluster" in refused
        for name in NAMES[:2]:
            (tmp_path / name / "kept").rename(tmp_path / name / "store")
        cluster.playbook("deploy")
        publish(cluster, "ORDERS.new", 1, 10)


# test_version_rules.py has the rules.
@pytest.mark.chaos
def test_servers_next_to_older_ones_spare_them(tmp_path: Path, run_module: Runner) -> None:
    """Servers before 2.14 panic at each start on entries of 2.15 for a replicated mirror, see test_version_rules.py. The
    versions of stopped, new and single hosts are checked as well."""
    cluster = RoleCluster(tmp_path, NAMES, "2.10.27")
    newer = cluster.running("2.15.1")
    skips = {"nats_server_allow_skipped_minors": True}
    on = {"nats_server_config": {"feature_flags": {"js_raft_delete_range": True}}}
    with cluster.deployed():
        create(cluster, "ORIGIN", 1, subjects=["ORIGIN.>"], max_msgs_per_subject=1)
        create(cluster, "COPY", 3, mirror={"name": "ORIGIN"})
        cluster.add("n4")
        cluster.hosts["n4"].update(newer)
        refused = words(cluster.playbook("scale_out", fails=True, **on).output)
        assert "replicated mirrors make servers before 2.14.0 panic at every start" in refused
        assert "nothing was changed" in refused
        del cluster.hosts["n4"]
        host = dict(cluster.hosts["n3"])
        cluster.hosts["n3"].update(newer)
        assert "n3: 2.10.27 to 2.15.1 skips" in words(cluster.playbook("deploy", fails=True).output)
        cluster.hosts["n3"] = host

        cluster.kill("n3")
        refused = words(cluster.playbook("upgrade", "--limit", "n3", fails=True, **newer).output)
        assert "n3: 2.10.27 to 2.15.1 skips" in refused and "nothing was changed" in refused
        assert cluster.pid("n3") == 0
        # Once the new version is installed, a reboot would start it.
        play = tmp_path / "provision.yml"
        play.write_text(STEPS)
        cluster.playbook(str(play), "--limit", "n3", steps=["members", "preflight", "provision"], **newer, **skips)
        assert "js_raft_delete_range: false" in (tmp_path / "n3/etc/nats-server.conf").read_text()
        assert cluster.pid("n3") == 0
        cluster.playbook("upgrade", "--limit", "n3", **newer, **skips)
        # A server keeps its files until its turn, because its old version would reject the new keys after a crash.
        files = [tmp_path / name / "etc/nats-server.conf" for name in ("n1", "n2")]
        before = [path.read_bytes() for path in files]
        known: dict[str, Any] = {"nats_server_config": {"max_payload": 65536, "write_timeout": "close"}}
        late: dict[str, Any] = {"nats_cluster_before_batch_command": ["false"]}
        assert "false" in cluster.playbook("upgrade", fails=True, **newer, **skips, **known, **late).output
        assert [path.read_bytes() for path in files] == before
        cluster.playbook("upgrade", **newer, **skips, **known)
        cluster.variables.update(known)
        assert all(b"write_timeout" in path.read_bytes() for path in files)
        publish(cluster, "ORIGIN.new", 20, 10)
        assert running(cluster, run_module) == {"2.15.1"}
        for name in NAMES:
            assert "js_raft_delete_range: false" in (tmp_path / name / "etc/nats-server.conf").read_text()
            assert "panic" not in (tmp_path / name / "run/nats-server.out").read_text()
        cluster.variables.update(newer)
        cluster.deploy_changes_nothing()
        # If the files changed before a start, no configuration is recorded.
        record = tmp_path / "n1/etc/running.json"
        known_before = json.loads(record.read_text())
        record.write_text(json.dumps({key: known_before[key] for key in known_before if key != "config"}))
        cluster.playbook("deploy", "--limit", "n1")
        assert "js_raft_delete_range: false" in (tmp_path / "n1/etc/nats-server.conf").read_text()
