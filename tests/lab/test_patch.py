# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating system updates on three hosts: reboots, a failed update, and a power loss during an update."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.controller import Controller
from support.lab_cluster import Cluster
from support.updates import have_package, offer_update, versions

#: One host of each zone.
HOSTS = ["n1-c1", "n3-c1", "n5-c1"]

pytestmark = pytest.mark.usefixtures("intact_cluster")


@pytest.fixture(scope="module")
def cluster(shared_controller: Controller) -> Iterator[Cluster]:
    """The deployed cluster, whose hosts have version 1 of the package."""
    shared_controller.lab.renew_only(*HOSTS)
    made = Cluster(shared_controller)
    made.host_variables = {host: made.host_variables[host] for host in HOSTS}
    run = made.deploy()
    assert run.status == 0, run.output
    have_package(shared_controller, HOSTS)
    yield made


def marks(cluster: Cluster) -> dict[str, str]:
    """Return the reasons for which hosts are in maintenance."""
    read = {
        host: cluster.controller.ssh(host, "cat /etc/nats-server/maintenance.json", check=False).stdout
        for host in HOSTS
    }
    return {host: json.loads(text)["reason"] for host, text in read.items() if text}


def check_out_of_service(cluster: Cluster, broken: str) -> None:
    """Check the state after a run that ended while it was patching a host: the host is marked, and no other host can be
    stopped."""
    ssh = cluster.controller.ssh
    assert marks(cluster) == {broken: "maintenance_patch"}
    assert ssh(broken, "systemctl start nats-server", check=False).returncode
    shown = cluster.play("maintenance_status")
    assert shown.status == 0
    assert any(broken in line and "in maintenance" in line for line in shown.output.splitlines()), shown.output
    # Two of three servers are the majority.
    refused = cluster.play("restart", limit=next(host for host in HOSTS if host != broken))
    assert refused.status != 0 and f"{broken} is in maintenance since" in refused.output, refused.output


def test_failed_update_leaves_its_host_out_of_service_and_the_next_run_resumes(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A rollback has nothing to restore, because the binary and the configuration of the server have not changed."""
    ssh = cluster.controller.ssh
    offer_update(cluster.controller, HOSTS, tmp_path, 2, script="test ! -e /root/broken")
    for host in HOSTS:
        ssh(host, "touch /root/broken")
    before, pids = cluster.boots(), cluster.pids()
    with cluster.load() as load:
        failed = cluster.play("maintenance_patch", nats_cluster_on_failure="rollback")
        have = versions(cluster.controller, HOSTS)
        (broken,) = (host for host, version in have.items() if version != "ii 1")
        said = "\n".join(failed.errors)
        assert failed.status != 0 and have[broken] == "iF 2", failed.output
        for words in (
            f"{broken}: Update the packages: ",
            f"{broken} stays in maintenance",
            "Restarted: none. Not touched: n",
        ):
            assert words in said, failed.output
        assert "could not be restored" not in said
        assert cluster.restarted(pids) == {broken}
        check_out_of_service(cluster, broken)
        for host in HOSTS:
            ssh(host, "rm /root/broken")
        run = cluster.play("maintenance_patch", limit=broken)
        assert run.status == 0, run.output
    assert load.report().longest_gap < 5
    assert versions(cluster.controller, [broken]) == {broken: "ii 2"}
    assert marks(cluster) == {}
    # The update requested no reboot.
    assert cluster.boots() == before


@pytest.mark.chaos
def test_never_defers_the_reboot_and_always_needs_no_request(cluster: Cluster, tmp_path: Path) -> None:
    offer_update(cluster.controller, HOSTS, tmp_path, 3)
    before, pids = cluster.boots(), cluster.pids()
    with cluster.load():
        never = cluster.play("maintenance_patch", nats_cluster_patch_reboot="never")
        assert never.status == 0, never.output
        assert set(versions(cluster.controller, HOSTS).values()) == {"ii 3"}
        assert (cluster.boots(), cluster.restarted(pids), marks(cluster)) == (before, set(HOSTS), {})
        again = cluster.play("maintenance_patch", nats_cluster_patch_reboot="never")
        assert (again.status, again.changed) == (0, []), again.output
        # The reboot is still due.
        plan = cluster.play("maintenance_patch", check=True)
        assert plan.output.count("(has to reboot)") == len(HOSTS), plan.output

        began = cluster.controller.ssh(HOSTS[0], "date -u +%Y-%m-%dT%H:%M:%SZ").stdout.strip()
        always: dict[str, Any] = {"nats_cluster_patch_reboot": "always", "nats_cluster_patch_packages": False}
        plan = cluster.play("maintenance_patch", check=True, **always)
        assert plan.output.count("reboot requested") == len(HOSTS), plan.output
        run = cluster.play("maintenance_patch", **always)
        assert run.status == 0, run.output
        after = cluster.boots()
        assert all(after[host] != before[host] for host in HOSTS)
        # The hosts that have been rebooted since then have nothing to do.
        again = cluster.play("maintenance_patch", nats_cluster_restart_before=began, **always)
        assert (again.status, again.changed, cluster.boots()) == (0, [], after), again.output
    assert marks(cluster) == {}


@pytest.mark.chaos
def test_a_host_that_loses_its_power_in_the_middle_of_an_update_is_finished_by_the_next_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    lab, ssh, broken = cluster.controller.lab, cluster.controller.ssh, "n3-c1"
    script = "if test -e /root/wait; then touch /root/waits; sleep 60; fi"
    offer_update(cluster.controller, HOSTS, tmp_path, 4, script)
    ssh(broken, "touch /root/wait")

    over = threading.Event()

    def cut() -> None:
        while not over.wait(0.5):
            if lab.exec(broken, "test -e /root/waits", check=False).returncode == 0:
                lab.kill(broken)
                return

    with cluster.load():
        power = threading.Thread(target=cut)
        power.start()
        try:
            failed = cluster.play("maintenance_patch", limit=broken)
        finally:
            over.set()
            power.join()
        (lost,) = (result.task for result in failed.results if result.status == "unreachable")
        assert lost.endswith("Update the packages"), failed.output
        lab.start(broken)
        # The boot did not start the server, and apt alone would not continue.
        check_out_of_service(cluster, broken)
        assert ssh(broken, "apt-get dist-upgrade -y", check=False).returncode
        ssh(broken, "rm /root/wait")
        run = cluster.play("maintenance_patch")
        assert run.status == 0, run.output
    assert set(versions(cluster.controller, HOSTS).values()) == {"ii 4"}
    assert marks(cluster) == {}
