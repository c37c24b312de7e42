# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the life of one cluster of five hosts in zones 2-2-1, which is deployed once; every test leaves it healthy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from lab import LabUnavailableError
from nats.aio.client import Client
from nats.js.api import StreamConfig
from support.controller import Controller, Cost, Run, TaskResult, download_wheels, file_install
from support.lab_cluster import AWKWARD, HOSTS, SYSTEM_PASSWORD, TUNINGS, Cluster, refusal
from support.load import publish_stored

pytestmark = pytest.mark.usefixtures("intact_cluster")

TUNE = """
- hosts: all
  tasks:
    - ansible.builtin.include_role:
        name: natsops.jetstream.nats_server
        tasks_from: tuning
"""
STORE = "/nats/storage"
#: The host with a separate disk, which can be filled up.
SMALL = "n3-c1"
#: The maximum cost, on any host, of a deployment that changes nothing.
BUDGET = Cost(module_runs=2, tasks=18)


@pytest.fixture(scope="module")
def cluster(shared_controller: Controller) -> Iterator[Cluster]:
    """The deployed cluster."""
    lab = shared_controller.lab
    lab.renew()
    with contextlib.suppress(LabUnavailableError):
        lab.disk(SMALL, STORE, "400M")
    made = Cluster(shared_controller)
    made.variables.update(file_install("2.15.1"))
    run = made.deploy()
    assert run.status == 0, run.output
    yield made


async def publish(client: Client, count: int = 20) -> list[int]:
    """Store messages in the R3 stream; return the acknowledged sequences."""
    jetstream = client.jetstream(timeout=5)
    return [(await jetstream.publish("orders.new", str(number).encode())).seq for number in range(count)]


def names(run: Run) -> set[str]:
    """Return the names of the tasks that changed something, without the name of the role."""
    return {task.rpartition(" : ")[2] for host, task in run.changed}


def test_the_unit_is_enabled_and_hardened(cluster: Cluster) -> None:
    for host in HOSTS:
        ssh = partial(cluster.controller.ssh, host)
        state = ssh("systemctl show -P ActiveState -P UnitFileState -P NRestarts nats-server").stdout
        assert sorted(state.split()) == ["0", "active", "enabled"]
        assert ssh("stat -c '%U %G %a' /etc/nats-server/secrets.conf").stdout.split() == ["root", "nats", "640"]
        assert "v2.15.1" in ssh("nats-server --version").stdout
    show = "systemctl show -P KillSignal -P LimitNOFILE -P TimeoutStopUSec nats-server"
    assert cluster.controller.ssh("n1-c1", show).stdout.split() == ["1min", "30s", "800000", "12"]
    cluster.controller.ssh("n1-c1", "systemd-analyze security --no-pager --threshold=20 nats-server")


def test_every_awkward_password_logs_in(cluster: Cluster) -> None:
    async def log_in() -> None:
        for user, password in {**AWKWARD, "sys": SYSTEM_PASSWORD}.items():
            async with cluster.client("n1-c1", user=user, password=password):
                pass
        with pytest.raises(nats.errors.Error):
            async with cluster.client("n1-c1", user="quotes", password="'\"` "):
                pass

    cluster.controller.run(log_in())
    for host in HOSTS:
        assert "secrets.conf" in cluster.controller.ssh(host, "ls /etc/nats-server").stdout
        assert (
            cluster.controller.ssh(host, "grep -rF 's3cr3t!' /etc/nats-server /etc/systemd", check=False).stdout == ""
        )


def gates(run: Run) -> list[TaskResult]:
    """Return the results of the health gate."""
    return [result for result in run.results if result.task.endswith(": Wait for the health gate")]


def check_secrets(cluster: Cluster, run: Run) -> None:
    """Check that neither a run with -vvv, where the SSH connection prints the results of modules, nor the hosts' logs of
    the options of modules contain secrets."""
    assert "max_pending" in run.output and "<10.77.0.11>" in run.output, run.output
    for host in HOSTS:
        stored = cluster.controller.ssh(host, "cat /etc/nats-server/secrets.conf").stdout
        secrets = {SYSTEM_PASSWORD, *re.findall(r'"(.{8,})"', stored)}
        assert len(secrets) > len(AWKWARD), stored
        journal = cluster.controller.ssh(host, "journalctl --no-pager").stdout
        assert "ansible-natsops.jetstream.nats_server_files" in journal
        for text in (run.output, journal):
            assert [secret for secret in secrets if secret in text] == []


def test_a_wrong_option_on_one_host_leaves_every_host_as_it_is(cluster: Cluster) -> None:
    files, pids = cluster.files(), cluster.pids()
    run = cluster.deploy(
        host_vars={"n3-c1": {"nats_server_config_host": {"no_such_option": 1}}}, nats_server_max_connections=77
    )
    assert run.status != 0
    assert any("no_such_option" in error for error in run.errors), run.errors
    assert cluster.files() == files
    assert cluster.pids() == pids


def test_all_problems_are_listed_at_once(cluster: Cluster) -> None:
    files = cluster.files()
    run = cluster.deploy(
        host_vars={"n2-c1": {"nats_server_name": "n1-c1"}},
        nats_server_jetstream_max_file_store="900TB",
        nats_server_lame_duck_grace_period="2m",
    )
    text = "\n".join(run.errors)
    for word in ("n1-c1", "900.0 TiB", "grace"):
        assert word in text, run.output
    assert cluster.files() == files


def test_a_reload_is_chosen_where_it_is_enough(cluster: Cluster) -> None:
    """The second run changes only the requested setting, not for example a password's hash."""
    pids = cluster.pids()
    cluster.variables["nats_server_max_connections"] = 500
    run = cluster.deploy()
    assert run.status == 0, run.output
    assert names(run) == {"Write the files", "Request a reload of the configuration"}
    assert cluster.pids() == pids
    assert {cluster.varz(host)["max_connections"] for host in HOSTS} == {500}


def test_a_restart_goes_host_by_host_and_loses_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that retries with the message's id continues to publish while every server is restarted. A check run,
    whose verbose output has no secret, predicted the changes of each host."""
    pids = cluster.pids()

    async def prepare() -> None:
        async with cluster.client() as client:
            await client.jetstream().add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], num_replicas=3))

    cluster.controller.run(prepare())
    sent: list[str] = []
    stop = False

    async def produce() -> None:
        async with cluster.client(reconnect=True) as client:
            jetstream = client.jetstream(timeout=1)
            while not stop:
                name = f"m{len(sent)}"
                try:
                    await publish_stored(jetstream, "orders.roll", name.encode(), name)
                except nats.errors.Error:
                    continue
                sent.append(name)
                await asyncio.sleep(0.01)

    cluster.variables["nats_server_config"] = {"max_pending": 32 * 1024 * 1024}
    with monkeypatch.context() as verbose:
        verbose.setenv("ANSIBLE_VERBOSITY", "3")
        verbose.setenv("ANSIBLE_DIFF_ALWAYS", "1")
        foretold = cluster.deploy(check=True)
    assert foretold.status == 0, foretold.output
    check_secrets(cluster, foretold)
    producer = cluster.controller.start(produce())
    try:
        run = cluster.deploy()
    finally:
        stop = True
    producer.result(timeout=30)
    assert run.status == 0, run.output
    assert foretold.changed == run.changed
    new = cluster.pids()
    assert all(new[host] != pids[host] for host in HOSTS)
    # For each host, there are the gates before it, after draining and after the restart. The last one also covers the
    # gate before the next host.
    assert [gate.covered for gate in gates(run)] == [False] * 3 + [True, False, False] * (len(HOSTS) - 1)

    async def stored() -> list[str]:
        async with cluster.client() as client:
            jetstream = client.jetstream()
            reader = await jetstream.subscribe("orders.roll", ordered_consumer=True)
            found: list[str] = []
            while len(found) < len(sent):
                found.append((await reader.next_msg(timeout=5)).data.decode())
            return found

    assert len(sent) > 100
    assert cluster.controller.run(stored()) == sent


def test_an_interrupted_run_is_finished_by_the_next(cluster: Cluster) -> None:
    """One host already has its new configuration file, but its process has not loaded the file."""
    if "nats_server_config" not in cluster.variables:  # if this test runs alone
        cluster.variables["nats_server_config"] = {"max_pending": 32 * 1024 * 1024}
        run = cluster.deploy()
        assert run.status == 0, run.output
    pids = cluster.pids()
    cluster.controller.ssh(
        "n4-c1", "sed -i 's/^max_pending:.*/max_pending: 16777216/' /etc/nats-server/nats-server.conf"
    )
    cluster.host_variables["n4-c1"]["nats_server_config_host"] = {"max_pending": 16 * 1024 * 1024}
    run = cluster.deploy(limit="n4-c1")
    assert run.status == 0, run.output
    assert "Write the files" not in names(run)
    new = cluster.pids()
    assert {host for host in HOSTS if new[host] != pids[host]} == {"n4-c1"}
    assert cluster.varz("n4-c1")["max_pending"] == 16 * 1024 * 1024


def test_a_host_comes_back_from_a_reboot(cluster: Cluster) -> None:
    """After everything that was deployed before, a run without a change still changes nothing."""
    cluster.controller.lab.reboot("n2-c1")
    cluster.wait_after_start("n2-c1")
    # The configuration that a server loaded at its boot is recorded first.
    cluster.deploy_unchanged()
    # Deploy with the role's defaults, as `make bench BENCH=operations` does.
    run = cluster.deploy_unchanged(**dict.fromkeys(TUNINGS, "check"))
    assert gates(run) == []
    costs = run.costs
    assert set(costs) == {"localhost", *HOSTS}
    too_much = {
        host: cost for host, cost in costs.items() if cost.module_runs > BUDGET.module_runs or cost.tasks > BUDGET.tasks
    }
    assert too_much == {}, f"a deployment that changes nothing may take {BUDGET} of each host"


def test_a_host_is_tuned_and_as_it_was_after_an_undo(cluster: Cluster, tmp_path: Path) -> None:
    """The test uses a network parameter, because a lab host shares the other kernel settings with this machine."""
    (tmp_path / "tune.yml").write_text(TUNE)
    switch, file = "/proc/sys/net/core/somaxconn", "/etc/sysctl.d/60-nats-server.conf"

    def value() -> int:
        return int(cluster.controller.ssh("n1-c1", f"cat {switch}").stdout)

    def tune(mode: str, check: bool = False) -> list[str]:
        values = {"net.core.somaxconn": before + 1}
        changes: dict[str, Any] = {"nats_server_tuning_sysctl": mode, "nats_server_tuning_sysctl_values": values}
        run = cluster.play(tmp_path / "tune.yml", hosts=["n1-c1"], check=check, **changes)
        assert run.status == 0, run.output
        return sorted(names(run))

    before = value()
    assert (tune("apply", check=True), value()) == (["Tune the host"], before)
    assert (tune("apply"), value()) == (["Tune the host"], before + 1)
    assert tune("apply") == []
    assert (tune("undo"), value()) == (["Tune the host"], before)
    assert cluster.controller.ssh("n1-c1", f"ls {file} /etc/nats-server/tuning.json", check=False).stdout == ""
    assert tune("undo") == []


def test_a_host_in_maintenance_stays_out_of_service_over_a_boot(cluster: Cluster) -> None:
    """Neither a boot nor an operator can start the host's server before the host leaves maintenance."""
    host, pids = "n5-c1", cluster.pids()
    run = cluster.play("maintenance_enter", limit=host, nats_cluster_maintenance_reason="new disk")
    assert run.status == 0, run.output
    cluster.controller.lab.reboot(host)
    assert cluster.controller.ssh(host, "systemctl start nats-server", check=False).returncode
    assert cluster.pids() == {**pids, host: "0"}
    run = cluster.play("maintenance_leave", limit=host)
    assert run.status == 0, run.output
    assert cluster.restarted({**pids, host: "0"}) == {host}
    assert cluster.controller.ssh(host, "ls /etc/nats-server/maintenance.*", check=False).returncode
    cluster.wait_until_healthy()


def test_an_unchanged_but_unhealthy_cluster_is_not_reported_as_deployed(cluster: Cluster) -> None:
    """The first reading replaces the gate only if it finds no errors. A stopped process is still running, so the
    deployment has nothing to do."""
    cluster.controller.ssh("n4-c1", "pkill -STOP nats-server")
    try:
        run = cluster.deploy(nats_cluster_gate_timeout=20, **dict.fromkeys(TUNINGS, "check"))
    finally:
        cluster.controller.ssh("n4-c1", "pkill -CONT nats-server")
    assert run.status != 0
    assert len(gates(run)) == 1, run.output
    assert "n4-c1" in "\n".join(run.errors)
    run = cluster.health("wait=true", "wait_timeout=60")
    assert run.status == 0, run.output


def test_a_lost_zone_is_survived_and_a_lost_quorum_is_named(cluster: Cluster) -> None:
    lab = cluster.controller.lab
    for host in ("n1-c1", "n2-c1"):
        lab.kill(host)

    async def go_on() -> None:
        async with cluster.client("n3-c1", "n5-c1") as client:
            end = time.monotonic() + 30
            while True:
                try:
                    assert len(await publish(client)) == 20
                    return
                except nats.errors.Error:
                    assert time.monotonic() < end, "the stream did not take messages within 30 s of the zone's loss"

    cluster.controller.run(go_on(), timeout=60)
    text = "\n".join(cluster.health().errors)
    assert "n1-c1" in text and "n2-c1" in text

    lab.kill("n5-c1")
    # The remaining leaders notice only after some seconds that they have lost their quorum.
    missing = {r"no meta leader|the meta group has \d of 5 .* are needed", r"ORDERS \(R3.*(has no leader|are needed)"}
    end = time.monotonic() + 60
    while missing:
        run = cluster.health("problems=all")
        missing = {pattern for pattern in missing if not re.search(pattern, run.output)}
        assert time.monotonic() < end, run.output


def test_a_dead_host_stops_the_run_before_anything_changes(cluster: Cluster) -> None:
    """Neither the other servers nor the controller can reach the host."""
    files, pids = cluster.files(), cluster.pids()
    cluster.controller.lab.partition("n5-c1")
    run = cluster.deploy(nats_server_max_connections=501)
    cluster.controller.lab.heal("n5-c1")
    assert {result.host for result in run.results if result.status == "unreachable"} == {"n5-c1"}
    assert "n5-c1" in "\n".join(refusal(run))
    assert cluster.files() == files
    assert cluster.pids() == pids


def test_restart_is_refused_because_of_a_full_disk(cluster: Cluster) -> None:
    ssh, pids = cluster.controller.ssh, cluster.pids()
    if ssh(SMALL, f"mountpoint -q {STORE}", check=False).returncode:
        pytest.skip("this machine has no loop devices")
    ssh(SMALL, f"head -c 1G /dev/zero > {STORE}/fill || true")
    try:
        run = cluster.play("restart")
    finally:
        ssh(SMALL, f"rm {STORE}/fill")
    text = "\n".join(refusal(run))
    assert re.search(rf"1\. .*{SMALL}", text) and re.search("disk|storage", text), text
    assert cluster.restarted(pids) == set()


def test_a_cut_inventory_is_refused(cluster: Cluster) -> None:
    """The group contains only some of the hosts, as in an AWX job slice."""
    files = cluster.files()
    run = cluster.deploy(hosts=["n1-c1", "n2-c1"])
    assert run.status != 0
    assert any("n3-c1" in error and "slic" in error for error in run.errors), run.errors
    assert cluster.files() == files


def test_a_wrong_system_password_stops_a_restart_and_is_rotated_by_a_reload(cluster: Cluster) -> None:
    pids = cluster.pids()
    run = cluster.deploy(
        nats_server_system_password="the next one", nats_server_config={"max_pending": 8 * 1024 * 1024}
    )
    assert run.status != 0
    assert "No server was touched" in "\n".join(run.errors)
    assert "the next one" not in run.output
    assert cluster.pids() == pids

    cluster.variables["nats_server_system_password"] = "the next one"
    run = cluster.deploy()
    assert run.status == 0, run.output
    assert cluster.pids() == pids
    assert cluster.health().status == 0


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the packages of the collection's programs for a host without a package index."""
    return download_wheels(tmp_path_factory.mktemp("wheels"))


OFFLINE = ["--no-index", "--find-links=/root/wheels"]

COLLECTOR = """
- hosts: n1-c1
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {src: "{{ wheels }}/", dest: /root/wheels/, mode: "0644"}
      become: true
      check_mode: false
    - ansible.builtin.import_role: {name: natsops.jetstream.nats_insights, tasks_from: timer}
"""


def test_a_timer_takes_snapshots(cluster: Cluster, wheels: Path, tmp_path: Path) -> None:
    """The timer also works if the host cannot reach a package index, and with a password that JSON must escape."""
    ssh = cluster.controller.ssh
    play = tmp_path / "collector.yml"
    play.write_text(COLLECTOR)
    system_password = cluster.variables["nats_server_system_password"]
    variables = {
        "wheels": str(wheels),
        "nats_insights_pip_arguments": OFFLINE,
        "nats_insights_lake": "/var/lib/nats-insights/lake",
        "nats_insights_fleet": "lab",
        "nats_insights_timer_calendar": "*:*:0/10",
        "nats_insights_connection": {
            "servers": [f"nats://{cluster.controller.address(host)}:4222" for host in HOSTS],
            "user": "sys",
            "password": system_password,
        },
    }
    run = cluster.controller.playbook(play, extra_vars=variables, check=True)
    assert run.status == 0, run.output
    assert ssh("n1-c1", "test -e /opt/nats-insights", check=False).returncode == 1
    run = cluster.controller.playbook(play, extra_vars=variables)
    assert run.status == 0, run.output
    assert system_password not in run.output
    manifests = "find /var/lib/nats-insights/lake/bronze/manifest -name '*.json'"
    end = time.monotonic() + 60
    while not (found := ssh("n1-c1", manifests, check=False).stdout.split()):
        assert time.monotonic() < end, ssh("n1-c1", "journalctl --no-pager -u nats-insights-snapshot").stdout
        time.sleep(1)
    manifest = json.loads(ssh("n1-c1", f"cat {found[0]}").stdout)
    assert (manifest["fleet"], manifest["servers"], manifest["missing"], manifest["complete"]) == ("lab", 5, [], True)
    assert ssh("n1-c1", f"stat -c '%U %a' {found[0]}").stdout.split() == ["nats-insights", "640"]
    again = cluster.controller.playbook(play, extra_vars=variables)
    assert (again.status, again.changed) == (0, []), again.output

    run = cluster.controller.playbook(play, extra_vars={**variables, "nats_insights_timer_state": "absent"})
    assert run.status == 0, run.output
    assert ssh("n1-c1", "systemctl cat nats-insights-snapshot.timer", check=False).returncode
    assert ssh("n1-c1", "test -e /opt/nats-insights", check=False).returncode == 1
    assert found[0] in ssh("n1-c1", manifests).stdout


#: Replaces Spark, which takes minutes to install: records the command of the jobs, and exits with a given status.
STAND_IN = """#!/bin/sh
case "$1" in
-c) exit 0;;
-m) touch "$HOME"/refused 2>/dev/null && exit 99
    shift; shift
    if [ "$1" = session ]; then echo "$@" >/opt/nats-insights-jobs/socket/command; exec sleep infinity; fi
    echo "$@" >/var/lib/nats-insights/report/command; exit "$(cat /srv/status)";;
*) exec python3 "$@";;
esac
"""
JOBS_TIMER = """
- hosts: n1-c1
  gather_facts: false
  become: true
  tasks:
    - ansible.builtin.file: {path: /srv/spark/bin, state: directory, mode: "0755"}
      check_mode: false
    - ansible.builtin.copy: {content: "{{ stand_in }}", dest: /srv/spark/bin/python, mode: "0755"}
      check_mode: false
    - ansible.builtin.copy: {content: "0", dest: /srv/status, mode: "0644", force: false}
      check_mode: false
    - ansible.builtin.import_role: {name: natsops.jetstream.nats_insights, tasks_from: jobs_timer}
"""


def test_a_timer_runs_the_jobs(cluster: Cluster, tmp_path: Path) -> None:
    """The unit has the exit status of the jobs. Data in quarantine fails it only with nats_insights_fail_on_quarantine."""
    ssh = cluster.controller.ssh
    play = tmp_path / "jobs_timer.yml"
    play.write_text(JOBS_TIMER)
    variables: dict[str, Any] = {
        "stand_in": STAND_IN,
        "nats_insights_venv": "/srv/spark",
        "nats_insights_java_package": "",
        "nats_insights_lake": "/var/lib/nats-insights/lake",
        "nats_insights_report_dir": "/var/lib/nats-insights/report",
        "nats_insights_title": "The lab's 100% fleet",
        "nats_insights_thresholds": {"server_003_cpu": 80},
        "nats_insights_fail_on": "critical",
    }
    run = cluster.controller.playbook(play, extra_vars=variables, check=True)
    assert run.status == 0, run.output
    assert ssh("n1-c1", "test -e /opt/nats-insights-jobs", check=False).returncode == 1
    run = cluster.controller.playbook(play, extra_vars=variables)
    assert run.status == 0, run.output
    for status, result in (0, "success"), (3, "success"), (4, "exit-code"):
        ssh("n1-c1", f"echo {status} >/srv/status; systemctl start nats-insights-jobs", check=False)
        shown = ssh("n1-c1", "systemctl show -P Result -P ExecMainStatus nats-insights-jobs").stdout
        assert sorted(shown.split()) == [str(status), result], ssh("n1-c1", "journalctl -u nats-insights-jobs").stdout
    report = "/var/lib/nats-insights/report/command"
    command = ssh("n1-c1", f"cat {report}").stdout
    assert "silver gold findings report --lake /var/lib/nats-insights/lake --master local[*]" in command
    assert "--thresholds=/opt/nats-insights-jobs/pipeline/thresholds.json" in command
    assert "--title=The lab's 100% fleet --fail-on=critical" in command
    assert ssh("n1-c1", f"stat -c '%U %a' {report}").stdout.split() == ["nats-insights", "640"]
    ssh("n1-c1", "systemctl is-active nats-insights-jobs.timer && systemctl reset-failed nats-insights-jobs")
    again = cluster.controller.playbook(play, extra_vars=variables)
    assert (again.status, again.changed) == (0, []), again.output
    assert ssh("n1-c1", "systemctl cat nats-insights-session", check=False).returncode
    kept = {**variables, "nats_insights_jobs_resident": True, "nats_insights_memory": "2g"}
    run = cluster.controller.playbook(play, extra_vars=kept)
    assert run.status == 0, run.output
    socket = "--session=/opt/nats-insights-jobs/socket/session"
    session = ssh("n1-c1", "cat /opt/nats-insights-jobs/socket/command").stdout
    assert session.split() == ["session", socket, "--master=local[*]", "--memory=2g"]
    assert ssh("n1-c1", "stat -c '%U %a' /opt/nats-insights-jobs/socket").stdout.split() == ["nats-insights", "750"]
    ssh("n1-c1", "systemctl is-enabled nats-insights-session; echo 0 >/srv/status; systemctl start nats-insights-jobs")
    assert socket in ssh("n1-c1", f"cat {report}").stdout.split()
    again = cluster.controller.playbook(play, extra_vars=kept)
    assert (again.status, again.changed) == (0, []), again.output
    strict = cluster.controller.playbook(play, extra_vars={**variables, "nats_insights_fail_on_quarantine": True})
    assert strict.status == 0, strict.output
    assert ssh("n1-c1", "echo 3 >/srv/status; systemctl start nats-insights-jobs", check=False).returncode
    # The session is removed without nats_insights_jobs_resident.
    assert ssh("n1-c1", "systemctl cat nats-insights-session", check=False).returncode
    command = ssh("n1-c1", f"cat {report}").stdout

    run = cluster.controller.playbook(play, extra_vars={**variables, "nats_insights_jobs_timer_state": "absent"})
    assert run.status == 0, run.output
    assert ssh("n1-c1", "systemctl cat nats-insights-jobs.timer", check=False).returncode
    assert ssh("n1-c1", f"test -e /opt/nats-insights-jobs || cat {report}").stdout == command


EXPORTER = """
- hosts: n1-c1
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {src: "{{ wheels }}/", dest: /root/wheels/, mode: "0644"}
      become: true
      check_mode: false
- ansible.builtin.import_playbook: natsops.jetstream.exporter
"""
SCRAPE = """python3 -c '
import urllib.request as r
q = r.Request("http://127.0.0.1:7777/metrics", headers={"Authorization": "Basic %s"})
print(r.urlopen(q, timeout=10).read().decode())'"""


def test_an_exporter_serves_metrics(cluster: Cluster, wheels: Path, tmp_path: Path) -> None:
    """The exporter runs on a host that the operator chooses, and serves the metrics of the inventory's servers to
    clients with the password."""
    ssh = cluster.controller.ssh
    play = tmp_path / "exporter.yml"
    play.write_text(EXPORTER)
    variables: dict[str, Any] = {
        "wheels": str(wheels),
        "nats_insights_pip_arguments": OFFLINE,
        "nats_insights_exporter_host": "n1-c1",
        "nats_insights_fleet": "lab",
        "nats_insights_exporter_interval": 1,
        "nats_insights_exporter_users": {"prometheus": "pass: #word"},
    }
    run = cluster.play(play, **variables)
    assert run.status == 0, run.output
    assert "pass: #word" not in run.output
    scrape = SCRAPE % base64.b64encode(b"prometheus:pass: #word").decode()
    end = time.monotonic() + 60
    while 'natsops_up{fleet="lab"} 1.0' not in (text := ssh("n1-c1", scrape, check=False).stdout):
        assert time.monotonic() < end, text + ssh("n1-c1", "journalctl --no-pager -u nats-exporter").stdout
        time.sleep(0.5)
    for host in HOSTS:
        assert f'natsops_server_up{{cluster="C1",fleet="lab",server="{host}"}} 1.0' in text
        assert f'natsops_server_can_stop{{cluster="C1",fleet="lab",server="{host}"}} 1.0' in text
    assert ssh("n1-c1", SCRAPE % "wrong", check=False).returncode
    assert ssh("n1-c1", "stat -c '%U %G %a' /opt/nats-exporter/settings.json").stdout.split() == [
        "root",
        "nats-exporter",
        "640",
    ]
    show = ssh("n1-c1", "systemctl show -P User -P ActiveState -P UnitFileState -P NRestarts nats-exporter").stdout
    assert sorted(show.split()) == ["0", "active", "enabled", "nats-exporter"]
    ssh("n1-c1", "systemd-analyze security --no-pager --threshold=35 nats-exporter")

    pid = ssh("n1-c1", "systemctl show -P MainPID nats-exporter").stdout
    again = cluster.play(play, **variables)
    assert (again.status, again.changed) == (0, []), again.output
    assert ssh("n1-c1", "systemctl show -P MainPID nats-exporter").stdout == pid
    run = cluster.play(play, **{**variables, "nats_insights_exporter_interval": 2})
    assert run.status == 0, run.output
    assert ssh("n1-c1", "systemctl show -P MainPID nats-exporter").stdout != pid

    run = cluster.play(play, **variables, nats_insights_exporter_state="absent")
    assert run.status == 0, run.output
    assert ssh("n1-c1", "systemctl cat nats-exporter", check=False).returncode
    assert ssh("n1-c1", "test -e /opt/nats-exporter", check=False).returncode == 1


# The streams stay, so this test is the last one.
def test_restart_names_two_dead_servers_as_the_one_cause(cluster: Cluster) -> None:
    cluster.fill(40)
    pids, dead = cluster.pids(), ("n4-c1", "n5-c1")
    for host in dead:
        cluster.controller.ssh(host, "systemctl stop nats-server")
    run = cluster.play("restart")
    text = "\n".join(refusal(run))
    assert re.search(r"1\. n4-c1 and n5-c1 do not answer: .*\d+ streams.* have no quorum", text), text
    assert not re.search(r"^ *2\. ", text, re.MULTILINE), text
    assert "systemctl status nats-server" in text
    waited = re.search(r"is not healthy after (\d+) s", text)
    assert waited and int(waited[1]) <= 30, text
    assert cluster.restarted(pids) == set(dead)
    for host in dead:
        cluster.controller.ssh(host, "systemctl start nats-server")
