# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling restarts of five systemd hosts under load, each interrupted by a different fault. No acknowledged message is
ever lost."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import binaries
import pytest
from lab import LabUnavailableError
from nats.js.api import StreamConfig
from support.controller import Controller, Run
from support.lab_cluster import HOSTS, Cluster
from support.updates import have_package, offer_update

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("intact_cluster")]

STORE = "/nats/storage"
#: The environment that `make test-chaos` creates.
SPARK = Path(__file__).parents[2] / ".cache" / "venv-insights"
#: The host with a separate disk, which can be filled up.
SMALL = "n3-c1"


@pytest.fixture(scope="module")
def cluster(shared_controller: Controller) -> Iterator[Cluster]:
    """The deployed cluster."""
    lab = shared_controller.lab
    lab.renew()
    try:
        lab.disk(SMALL, STORE, "400M")
    except LabUnavailableError as error:
        pytest.skip(str(error))
    made = Cluster(shared_controller)
    made.variables.update(nats_server_account_operator_password="operator pass", nats_cluster_gate_timeout=60)
    run = made.deploy()
    assert run.status == 0, run.output
    yield made


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def lab_command(cluster: Cluster, verb: str, host: str, *arguments: str) -> str:
    """Return the shell command that carries out a lab operation on a host."""
    lab = str(Path(__file__).with_name("lab.py"))
    return shlex.join([sys.executable, lab, verb, "--name", cluster.controller.lab.name, host, "--", *arguments])


def before_batch(condition: str, command: str) -> dict[str, Any]:
    """Return the variable that runs a command before each batch if the condition holds in the shell."""
    return {"nats_cluster_before_batch_command": ["sh", "-c", f"if {condition}; then {command}; fi"]}


def said(run: Run) -> str:
    return "\n".join(run.errors)


def test_five_servers_restart(cluster: Cluster) -> None:
    before = cluster.pids()
    with cluster.load() as load:
        run = cluster.play("restart")
    assert run.status == 0, run.output
    assert cluster.restarted(before) == set(HOSTS)
    assert load.report().longest_gap < 5


def test_cut_off_host_stops_the_roll_and_the_next_run_resumes(cluster: Cluster) -> None:
    before, began = cluster.pids(), now()
    cut = " || ".join(
        f'(case " $NATS_BATCH_HOSTS " in *" {host} "*) false;; *) {lab_command(cluster, "partition", host)};; esac)'
        for host in HOSTS[:2]
    )
    fault = before_batch('[ "$NATS_BATCH_NUMBER" = 2 ]', cut)
    with cluster.load():
        run = cluster.play("restart", extra_vars={**fault, "nats_cluster_gate_timeout": 15})
        cluster.controller.lab.heal(*HOSTS)
        cluster.wait_until_healthy()
        first = cluster.restarted(before)
        halfway = cluster.pids()
        rest = cluster.play("restart", extra_vars={"nats_cluster_restart_before": began})
    assert run.status != 0
    assert any(host in said(run) for host in HOSTS[:2]), run.output
    assert len(first) == 1
    assert rest.status == 0, rest.output
    assert cluster.restarted(halfway) == set(HOSTS) - first


def test_a_server_that_comes_up_mute_is_started_again(cluster: Cluster) -> None:
    """During a roll, the server is restarted at once, but only a limited number of times; otherwise the gate names the
    server, and the next deployment restarts it."""
    with cluster.mute(SMALL) as starts:
        # The drop-in is newer than the process, so this host is restarted.
        starts(1)
        run = cluster.deploy(limit=SMALL)
        assert run.status == 0, run.output
        again = [result.msg for result in run.results if result.task.endswith(": Report why the server is restarted")]
        assert again and "(1 of 2)" in again[0], run.output

        starts(1)
        cluster.controller.ssh(SMALL, "systemctl restart nats-server")
        cluster.wait_for_mute(SMALL)
        assert cluster.mended(SMALL) == {SMALL}

        starts(3)
        cluster.controller.ssh(
            SMALL, "touch /etc/systemd/system/nats-server.service.d/mute.conf && systemctl daemon-reload"
        )
        run = cluster.deploy(limit=SMALL, extra_vars={"nats_server__join_timeout": 6})
        assert run.status != 0
        assert any("has received nothing from it" in error for error in run.errors), run.output
        starts(0)
        cluster.controller.ssh(SMALL, "systemctl restart nats-server")
    cluster.wait_after_start(SMALL)


# This command ends the calling run after the first batch, but only once.
KILL = """
import os, pathlib, signal, sys
journal, flag = map(pathlib.Path, sys.argv[1:])
if journal.read_text().count('"batch_done"') == 1 and not flag.exists():
    flag.touch()
    pid, run = os.getpid(), 0
    while pid > 1:
        if b"natsops.jetstream.maintenance_patch" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            run = pid
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(run, signal.SIGKILL)
"""


def test_five_hosts_are_patched_with_a_reboot_each_and_a_killed_run_resumes(cluster: Cluster, tmp_path: Path) -> None:
    """The run is killed while the second host is out of service, and the same command completes it; no host reboots
    twice."""
    ssh = cluster.controller.ssh
    have_package(cluster.controller, HOSTS)
    offer_update(cluster.controller, HOSTS, tmp_path, 2)
    before = cluster.boots()
    # A host without apt is refused, and so is an update that would upgrade the server's package without its checks.
    ssh(SMALL, "mv /usr/bin/apt-get /root/")
    refused = cluster.play("maintenance_patch", check=True)
    assert f"{SMALL} has neither apt-get nor dnf. No host was touched." in said(refused), refused.output
    ssh(SMALL, "mv /root/apt-get /usr/bin/")
    refused = cluster.play("maintenance_patch", check=True, nats_server_package_name="lab-update")
    assert f"apt would also upgrade lab-update on {SMALL}, without the checks" in said(refused), refused.output
    plan = cluster.play("maintenance_patch", check=True)
    assert plan.status == 0, plan.output
    assert plan.output.count("(has updates)") == len(HOSTS), plan.output
    assert cluster.boots() == before

    journal, script, tasks = tmp_path / "C1.jsonl", tmp_path / "kill.py", tmp_path / "tasks.yml"
    script.write_text(KILL)
    kill = {"argv": [sys.executable, str(script), str(journal), str(tmp_path / "killed")]}
    task = {"name": "Kill the run", "ansible.builtin.command": kill, "delegate_to": "localhost", "become": False}
    tasks.write_text(json.dumps([task]))
    options = {"nats_cluster_journal": str(journal), "nats_cluster_patch_tasks": str(tasks)}
    with cluster.load() as load:
        killed = cluster.play("maintenance_patch", extra_vars=options)
        assert killed.status != 0
        halfway = cluster.boots()
        held = [host for host in HOSTS if not ssh(host, "test -e /etc/nats-server/maintenance.hold", False).returncode]
        assert len(held) == 1, killed.output
        # Neither a boot nor a mistaken command starts the server.
        assert ssh(held[0], "systemctl start nats-server", check=False).returncode
        run = cluster.play("maintenance_patch", extra_vars=options)
        assert run.status == 0, run.output
    after = cluster.boots()
    first = {host for host in HOSTS if halfway[host] != before[host]}
    assert len(first) == 1
    assert {host for host in HOSTS if after[host] != halfway[host]} == set(HOSTS) - first
    assert load.report().longest_gap < 5
    for host in HOSTS:
        assert ssh(host, "dpkg-query --show lab-update; ls /etc/nats-server").stdout.split().count("2") == 1
        assert ssh(host, "ls /etc/nats-server/maintenance.*", check=False).returncode
    events = [json.loads(line)["event"] for line in journal.read_text().splitlines()]
    assert events.count("batch_done") == len(HOSTS)
    again = cluster.play("maintenance_patch", extra_vars=options)
    assert (again.status, again.changed) == (0, []), again.output


def test_full_disk_stops_the_roll_and_the_next_run_resumes(cluster: Cluster) -> None:
    before, began = cluster.pids(), now()
    fill = lab_command(cluster, "exec", SMALL, "sh", "-c", f"head -c 1G /dev/zero > {STORE}/fill || true")
    fault = before_batch(f'[ "$NATS_BATCH_HOSTS" = {SMALL} ]', fill)
    with cluster.load():
        run = cluster.play(
            "restart", extra_vars={**fault, "nats_cluster_gate_timeout": 15, "nats_server_start_timeout": 20}
        )
        first = cluster.restarted(before)
        cluster.controller.ssh(SMALL, f"rm -f {STORE}/fill")
        # A server whose disk was full runs without JetStream until it is restarted.
        cluster.controller.ssh(SMALL, "systemctl restart nats-server")
        cluster.wait_until_healthy()
        rest = cluster.play("restart", extra_vars={"nats_cluster_restart_before": began})
    assert run.status != 0
    assert SMALL in said(run)
    assert len(first) < len(HOSTS)
    assert rest.status == 0, rest.output
    assert cluster.restarted(before) == set(HOSTS)


def broken_binary(folder: Path, good: str) -> Path:
    """Return an executable that reports version 2.10.28 and checks configurations with the real binary, but does not
    start a server."""
    source, binary = folder / "nats-server.c", folder / "nats-server"
    source.write_text(
        "#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n"
        "int main(int count, char **words) {\n"
        "  for (int number = 1; number < count; number++) {\n"
        '    if (!strcmp(words[number], "--version")) return puts("nats-server: v2.10.28") < 0;\n'
        f'    if (!strcmp(words[number], "-t")) return execv("{good}", words);\n'
        "  }\n"
        '  fputs("no luck today\\n", stderr);\n'
        "  return 1;\n"
        "}\n"
    )
    subprocess.run(["cc", "-o", str(binary), str(source)], check=True)
    return binary


def test_a_binary_that_does_not_run_is_put_back(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.pids()
    binary = broken_binary(tmp_path, f"/opt/nats-server/2.10.27/bin/{Path(binaries.nats_server('2.10.27')).name}")
    with cluster.load():
        run = cluster.deploy(
            nats_server_version="2.10.28", nats_server_file_src=str(binary), nats_cluster_on_failure="rollback"
        )
    assert run.status != 0
    for words in ("no luck today", "was rolled back", "the same command again"):
        assert words in said(run), run.output
    assert len(cluster.restarted(before)) == 1
    assert {cluster.varz(host)["version"] for host in HOSTS} == {"2.10.27"}


def test_a_meta_leader_that_dies_is_waited_for(cluster: Cluster) -> None:
    before = cluster.pids()
    leader = next(host for host in HOSTS if cluster.varz(host)["jetstream"]["meta"]["leader"] == host)
    kill = lab_command(cluster, "exec", leader, "pkill", "-KILL", "-x", "nats-server")
    with cluster.load():
        run = cluster.play("restart", extra_vars=before_batch('[ "$NATS_BATCH_NUMBER" = 2 ]', kill))
    assert run.status == 0, run.output
    assert cluster.restarted(before) == set(HOSTS)


def test_a_slow_replica_holds_the_roll_or_stops_it(cluster: Cluster) -> None:
    """The replica is suspended for four fifths of the time; the next run, without suspensions, completes."""
    before, began = cluster.pids(), now()
    slow = HOSTS[-1]
    halt = "while :; do pkill -STOP -x nats-server; sleep 0.4; pkill -CONT -x nats-server; sleep 0.1; done"
    cluster.controller.ssh(slow, f"systemd-run --unit=slow sh -c {shlex.quote(halt)}")
    try:
        with cluster.load():
            run = cluster.play("restart")
            cluster.controller.ssh(slow, "systemctl stop slow; pkill -CONT -x nats-server")
            cluster.wait_until_healthy()
            first = cluster.restarted(before)
            rest = cluster.play("restart", extra_vars={"nats_cluster_restart_before": began})
    finally:
        cluster.controller.ssh(slow, "systemctl stop slow; pkill -CONT -x nats-server", check=False)
    if run.status == 0:
        assert first == set(HOSTS)
    else:
        assert slow in said(run), run.output
    assert rest.status == 0, rest.output
    assert cluster.restarted(before) == set(HOSTS)


def test_a_stream_without_quorum_is_named_before_the_start(cluster: Cluster) -> None:
    async def members() -> list[str]:
        async with cluster.client() as client:
            made = await client.jetstream(timeout=5).add_stream(StreamConfig(name="LONELY", num_replicas=3))
            assert made.cluster and made.cluster.leader
            return [made.cluster.leader, *(str(peer.name) for peer in made.cluster.replicas or ())]

    hosts = cluster.controller.run(members())
    before = cluster.pids()
    for host in hosts[1:]:
        cluster.controller.ssh(host, "systemctl stop nats-server")
    run = cluster.play("restart", limit=hosts[0], nats_cluster_gate_timeout=15)
    assert run.status != 0
    assert "LONELY" in said(run), run.output
    assert cluster.pids()[hosts[0]] == before[hosts[0]]
    back = cluster.deploy()
    assert back.status == 0, back.output


def test_the_insights_of_five_servers(cluster: Cluster, tmp_path: Path) -> None:
    """One snapshot is taken before and one after a restart under load; the playbook insights takes the last one
    itself."""
    variables = {
        "nats_insights_lake": str(tmp_path / "lake"),
        "nats_insights_fleet": "lab",
        "nats_insights_dir": str(tmp_path / "pipeline"),
        "nats_insights_venv": str(SPARK),
        "nats_insights_report_fetch": str(tmp_path / "report"),
    }
    with cluster.load():
        assert cluster.play("snapshot", extra_vars=variables).status == 0
        assert cluster.play("restart", limit="n4-c1").status == 0
        run = cluster.play("insights", extra_vars=variables)
    assert run.status == 0, run.output
    report = json.loads((tmp_path / "report" / "report.json").read_text())

    def rows(table: str) -> list[dict[str, Any]]:
        found = report["tables"][table]
        return [dict(zip((name for name, *_more in found["columns"]), row)) for row in found["rows"]]

    assert [row["server"] for row in rows("servers")] == HOSTS
    assert [(row["fleet"], row["servers"], row["missing"]) for row in rows("fleets")] == [("lab", 5, [])]
    assert [row["server"] for row in rows("restarts")] == ["n4-c1"]
    assert {row["stream"] for row in rows("streams")} >= {"LOAD3", "MORE3"}
