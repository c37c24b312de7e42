# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests rolling restarts with the playbooks under load, on three servers that the role deployed; the tests show that
every guard takes effect."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.controller import run_identity
from nats.aio.client import Client
from support.module_runs import Runner
from support.role_cluster import APP_PASSWORD, APP_USER, RoleCluster, Run, create, under_load, words

pytestmark = pytest.mark.playbook

NAMES = ["n1", "n2", "n3"]
# Take only the lock, as every operation does.
LOCK = """
- hosts: nats
  gather_facts: false
  tasks:
    - import_role: {name: natsops.jetstream.nats_server, tasks_from: members}
    - include_role: {name: natsops.jetstream.nats_cluster, tasks_from: "{{ item }}"}
      loop: "{{ steps }}"
"""
SUBJECT = "ops.rolls.C1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """Three deployed servers; each test leaves them healthy."""
    with RoleCluster(tmp_path_factory.mktemp("roll"), NAMES).deployed() as made:
        yield made


def parse_plan(output: str) -> list[str]:
    """Return the hosts of the plan in the output, in plan order."""
    return re.findall(r'"batch \d+ of \d+: (\S+)', output)


def test_check_mode_prints_the_plan_and_changes_nothing(cluster: RoleCluster) -> None:
    before = cluster.pids()
    run = cluster.playbook("restart", "--check", nats_cluster_not_after="2099-01-01T00:00:00Z")
    assert sorted(parse_plan(run.output)) == NAMES
    assert "no batch starts after 2099-01-01T00:00:00Z" in run.output
    assert "nats-server 2.15.1: " not in run.output, "upstream maintains it"
    assert "batch 1 takes " in run.output
    assert "batch 3 has the meta leader, so it comes last" in run.output
    assert cluster.pids() == before


async def with_clients(cluster: RoleCluster, work: Callable[[], Run]) -> tuple[Run, set[int]]:
    """Run the work with thirty clients, each configured with a single server; also return those that received a lame
    duck notice."""
    told: set[int] = set()

    async def attached(number: int) -> Client:
        async def lame_duck() -> None:
            told.add(number)

        async def ignore(_error: Exception) -> None:
            """Ignore the disconnections that the test causes."""

        return await nats.connect(
            cluster.urls[number % 3], user=APP_USER, password=APP_PASSWORD, lame_duck_mode_cb=lame_duck, error_cb=ignore,
            max_reconnect_attempts=-1, reconnect_time_wait=0.2,
        )  # fmt: skip

    clients = [await attached(number) for number in range(30)]
    run = await asyncio.to_thread(work)
    for client in clients:
        assert client.is_connected
        await client.close()
    return run, told


def seconds_of_closing(log: str) -> float:
    """Return how long a server in lame duck mode closed connections before it ended: at least half a second for each
    connection but one."""
    last = log[log.rindex("Entering lame duck mode") :]
    times = dict.fromkeys(("Closing existing clients", "Initiating Shutdown"), 0.0)
    for clock, step in re.findall(r"(\S+) \[INF\] (Closing existing clients|Initiating Shutdown)", last):
        hours, minutes, seconds = clock.split(":")
        times[step] = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    assert times["Initiating Shutdown"], last
    return times["Initiating Shutdown"] - (times["Closing existing clients"] or times["Initiating Shutdown"])


def test_restart_under_load(cluster: RoleCluster, run_module: Runner, tmp_path: Path) -> None:
    journal = tmp_path / "journal" / "C1.jsonl"
    called = tmp_path / "called"
    tasks = tmp_path / "tasks.yml"
    tasks.write_text(
        "- name: Mark\n  ansible.builtin.lineinfile:\n    path: " + f"{tmp_path}/" + "{{ inventory_hostname }}\n"
        "    line: \"{{ nats_cluster_batch_hosts | join(',') }}\"\n    create: true\n    mode: '0600'\n"
    )
    before = cluster.pids()
    leader = run_module("nats_cluster_info", cluster.system(), detail="servers")["meta"]["leader"]
    runs: list[tuple[Run, set[int]]] = []

    def restart() -> Run:
        return cluster.playbook(
            "restart",
            nats_cluster_journal=str(journal),
            nats_cluster_event_subjects=[SUBJECT],
            nats_cluster_before_batch=str(tasks),
            nats_cluster_after_batch_command=["sh", "-c", f'echo "$NATS_BATCH_NUMBER $NATS_BATCH_HOSTS" >> {called}'],
            nats_cluster_restore_leaders=True,
        )

    report = under_load(cluster, lambda: runs.append(asyncio.run(with_clients(cluster, restart))))
    assert report.longest_gap < 5
    assert all(cluster.pid(name) not in (0, before[name]) for name in NAMES)
    restarted, told = runs[0]
    assert told == set(range(30))
    for name in NAMES:
        # Each server had at least ten connections, and in lame duck mode only those that had reconnected.
        log = (Path(cluster.hosts[name]["nats_server_run_dir"]) / "nats-server.out").read_text()
        assert seconds_of_closing(log) < 4.5, name
    order = parse_plan(restarted.output)
    assert order[-1] == leader
    assert called.read_text().splitlines() == [f"{number} {name}" for number, name in enumerate(order, 1)]
    assert [(tmp_path / name).read_text() for name in NAMES] == [f"{name}\n" for name in NAMES]
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [event["event"] for event in events] == ["run_started", *["batch_started", "batch_done"] * 3, "run_done"]
    assert [event["hosts"] for event in events if event["event"] == "batch_done"] == [[name] for name in order]
    assert [event["data"]["servers"] for event in events if event["event"] == "batch_started"] == [
        [name] for name in order
    ]
    steps = [event["steps"] for event in events if "steps" in event]
    assert all(set(step) == {"gate", "drain", "stop", "start", "catch_up"} and min(step.values()) > 0 for step in steps)

    # A killed run would resume with this variable; after a complete run, no server is left.
    printed = re.search(r"run the same command again with -e nats_cluster_restart_before=(\S+Z)", restarted.output)
    first_batch = re.search(r"TASK \[.*Mark\]", restarted.output)
    assert printed and first_batch and printed.start() < first_batch.start()
    after = cluster.pids()
    run = cluster.playbook("restart", nats_cluster_restart_before=printed[1])
    assert cluster.pids() == after, run.output
    assert "changed=0" in run.output


def test_a_second_operation_and_a_window_that_is_over_are_refused(cluster: RoleCluster) -> None:
    before = cluster.pids()
    locks = [Path(cluster.hosts[name]["nats_server_config_dir"]) / "operation.lock" for name in NAMES]
    held = {
        "owner": "ops@elsewhere process 1",
        "purpose": "upgrade",
        "since": 1,
        "expires": int(time.time()) + 600,
    }
    for lock in locks[:2]:
        lock.write_text(json.dumps(held))
    run = cluster.playbook("restart", fails=True)
    since = "since 1970-01-01T00:00:01Z, until"
    holder = f"Locked by ops@elsewhere process 1 for upgrade on n1, n2, {since}"
    # ansible-core prints the message of a failed task twice, the second time as its result.
    assert words(run.output.rpartition("fatal:")[2]).count(holder) == 1, run.output
    assert "Only if its process is not running any more, break the lock" in words(run.output)
    assert locks[2].read_text() == ""
    # Reading the locks changes none of them.
    content = [lock.read_text() for lock in locks]
    assert holder in words(cluster.playbook("maintenance_status").output)
    assert [lock.read_text() for lock in locks] == content
    run = cluster.playbook(
        "restart", fails=True, nats_cluster_lock_break=True, nats_cluster_not_after="2020-01-01T00:00:00Z"
    )
    assert "the maintenance window ended at 2020-01-01T00:00:00Z" in run.output
    assert [lock.read_text() for lock in locks] == [""] * 3
    assert cluster.pids() == before


def test_a_lock_is_taken_over_when_its_run_has_ended(cluster: RoleCluster, tmp_path: Path) -> None:
    """The lock was taken by a process on this controller that no longer exists, or by an earlier run of the same name;
    the lock is also taken over on hosts outside the play. test_host_lock_action.py has the other owners."""
    locks = [Path(cluster.hosts[name]["nats_server_config_dir"]) / "operation.lock" for name in NAMES]
    play = tmp_path / "lock.yml"
    play.write_text(LOCK)

    def lock(owner: dict[str, Any], fails: bool = False, **extra: Any) -> str:
        held = {"owner": owner, "purpose": "upgrade", "since": 1, "expires": int(time.time()) + 600}
        for path in locks[:2]:
            path.write_text(json.dumps(held))
        output = cluster.playbook(str(play), "--limit", "n3", fails=fails, steps=["lock"], **extra).output
        assert all(path.exists() and path.read_text() for path in locks), output
        owners = [json.loads(path.read_text())["owner"] for path in locks]
        assert owners[:2] == [owner] * 2 if fails else owners == [owners[2]] * 3
        assert owners[2]["user"] == getpass.getuser()
        for path in locks:
            path.write_text("")
        return " ".join(output.split())

    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            owner = run_identity(process.pid, "ops")
            refused = lock(owner, fails=True)
            assert "Locked hosts: 1 of 3; more than half are needed." in refused
            assert f"Locked by ops@{os.uname().nodename} process {process.pid} for upgrade on n1, n2, since" in refused
            assert "its process is still running. Wait until that operation has ended" in refused
            assert "nats_cluster_lock_break" not in refused
        finally:
            process.kill()
    lock(owner)
    elsewhere = {**owner, "boot": "another machine", "name": "nightly"}
    lock(elsewhere, nats_cluster_lock_owner="nightly")

    # A run may take its own lock again, and releases it on every host.
    output = cluster.playbook(str(play), "--limit", "n3", steps=["lock", "lock", "unlock"]).output
    assert "changed=0" in output
    assert [path.read_text() for path in locks] == [""] * 3


# In each `make test`, test_awx_jobs.py resumes a canceled restart.
@pytest.mark.chaos
def test_killed_restart_resumes_with_the_printed_variable(cluster: RoleCluster) -> None:
    """The run is killed after its first server has restarted; the command that it printed restarts only the others."""
    before = cluster.pids()
    process = cluster.start_playbook("restart")
    assert process.stdout
    printed = ""
    for line in process.stdout:
        found = re.search(r"run the same command again with -e nats_cluster_restart_before=(\S+Z)", line)
        if found:
            printed = found[1]
        restarted = [name for name, pid in cluster.pids().items() if pid not in (0, before[name])]
        if printed and restarted:
            break
        assert not restarted, "the run printed how to resume only after its first batch"
    else:
        pytest.fail("the run ended before it was killed")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    first = cluster.pids()
    cluster.playbook("restart", nats_cluster_restart_before=printed)
    after = cluster.pids()
    assert {name: after[name] for name in restarted} == {name: first[name] for name in restarted}
    assert all(after[name] not in (0, before[name]) for name in NAMES)


def test_a_server_that_comes_up_raft_silent_is_restarted(cluster: RoleCluster) -> None:
    """The configuration of a server forbids it to send Raft messages to its peers; the test restores the file once the
    server runs."""
    path = Path(cluster.hosts["n3"]["nats_server_config_dir"]) / "nats-server.conf"
    before, kept, pids = path.stat(), path.read_text(), [cluster.pid("n3")]
    path.write_text(kept.replace("cluster: {", 'cluster: {permissions: {export: {deny: ["$NRG.>"]}},', 1))
    assert path.read_text() != kept

    log = Path(cluster.hosts["n3"]["nats_server_run_dir"]) / "nats-server.out"
    written = len(log.read_text())

    def restore() -> None:
        while "Listening for client connections" not in log.read_text()[written:]:
            time.sleep(0.1)
        pids.append(cluster.pid("n3"))
        path.write_text(kept)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with ThreadPoolExecutor(1) as thread:
        restored = thread.submit(restore)
        run = cluster.playbook("restart", "--limit", "n3", nats_server__join_timeout=6)
        restored.result(timeout=10)
    assert "has received nothing from it since its start: it is raft-silent and is restarted (1 of 2)" in " ".join(
        run.output.split()
    )
    assert "(2 of 2)" not in run.output
    assert cluster.pid("n3") not in (0, *pids)


def test_a_server_goes_out_of_service_and_comes_back(cluster: RoleCluster, tmp_path: Path) -> None:
    """A second server is refused, a forgotten one is reported, nothing starts the server, and a return that was killed
    is completed by the next run."""
    create(cluster, "ALONE", 1, placement={"tags": ["node:n3"]})
    create(cluster, "THREE", 3)
    before = cluster.pids()
    journal = tmp_path / "C1.jsonl"
    path = Path(cluster.hosts["n3"]["nats_server_config_dir"]) / "maintenance.json"

    def enter() -> None:
        out = cluster.playbook(
            "maintenance_enter",
            "--limit",
            "n3",
            nats_cluster_maintenance_reason="new disk",
            nats_cluster_maintenance_by="ops",
            nats_cluster_journal=str(journal),
        ).output
        assert "unavailable during maintenance, because n3 has their only replica: stream APP/ALONE" in out
        assert cluster.pids() == {**before, "n3": 0}
        mark = json.loads(path.read_text())
        assert (mark["server"], mark["by"], mark["reason"]) == ("n3", "ops", "new disk")

        refused = words(cluster.playbook("maintenance_enter", "--limit", "n2", "--check", fails=True).output)
        assert "Maintenance is refused; no server was touched. 1. n3 is in maintenance since " in refused
        assert "stopping n2 would leave the meta group with 1 of 3 members in step (n1, n3 out of step)" in refused
        # The deployment neither starts the server nor treats it as a fault: its gate passes without the server.
        out = cluster.playbook("deploy").output
        assert re.search(r"n3 is in maintenance since \S+ by ops until \S+ \(new disk\)", words(out)), out
        assert cluster.pids() == {**before, "n3": 0}

        path.write_text(json.dumps({**mark, "until": time.time() - 1}))
        status = words(cluster.playbook("maintenance_status").output)
        assert "n3: in maintenance, overdue" in status
        diagnosis = words(cluster.playbook("diagnose").output)
        assert re.search(
            r"warning: n3 is in maintenance since \S+ by ops until \S+ \(new disk\), which has expired", diagnosis
        )

        process = cluster.start_playbook("maintenance_leave", "--limit", "n3")
        with ThreadPoolExecutor(1) as thread:
            printed = thread.submit(process.communicate)
            while not cluster.pid("n3"):
                assert process.poll() is None, printed.result()
                time.sleep(0.05)
            # The server listens, and the run waits for it; its maintenance mark is removed once its groups are back in
            # step.
            process.kill()
            printed.result()
        assert path.exists()
        left = cluster.playbook("maintenance_leave", "--limit", "n3", nats_cluster_journal=str(journal)).output
        assert "n3 is back in service." in words(left)

    under_load(cluster, enter)
    assert not path.exists()
    assert cluster.pids().keys() == before.keys()
    assert cluster.pid("n3") not in (0, before["n3"])
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [(event["event"], event["reason"]) for event in events] == [
        ("maintenance_entered", "new disk"),
        ("maintenance_left", "new disk"),
    ]


@pytest.mark.chaos
def test_a_server_that_dies_elsewhere_stops_the_roll(cluster: RoleCluster) -> None:
    before = cluster.pids()
    order = parse_plan(cluster.playbook("restart", "--check").output)
    victim = order[-1]
    kill = ["sh", "-c", f'if [ "$NATS_BATCH_NUMBER" = 2 ]; then kill -9 {before[victim]}; fi']
    run = cluster.playbook("restart", fails=True, nats_cluster_before_batch_command=kill, nats_cluster_gate_timeout=12)
    after = cluster.pids()
    assert after[order[1]] == before[order[1]]
    assert after[order[0]] not in (0, before[order[0]])
    assert f"{victim}" in run.output
    cluster.playbook("deploy")
    assert min(cluster.pids().values()) > 0


def test_a_server_that_does_not_come_back_is_put_back_and_the_roll_stops(cluster: RoleCluster) -> None:
    before = cluster.pids()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        change = {"nats_server_http": f"127.0.0.1:{taken.getsockname()[1]}", "nats_server_start_timeout": 10}
        run = cluster.playbook("deploy", fails=True, nats_cluster_on_failure="rollback", **change)
    after = cluster.pids()
    for said in ("address already in use", "was rolled back", "Not touched: ", "run the same command again"):
        assert said in run.output, run.output
    assert len([name for name in NAMES if after[name] != before[name]]) == 1
    assert min(after.values()) > 0


@pytest.mark.chaos
def test_runs_that_are_killed_are_finished_by_the_next(cluster: RoleCluster) -> None:
    """Runs are killed twenty times at random moments; each rolling restart is resumed by further runs until one
    completes."""
    seeds = random.Random(4)

    def work() -> None:
        kills = 0
        while kills < 20:
            before, began = cluster.pids(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            while True:
                process = cluster.start_playbook("restart", nats_cluster_restart_before=began)
                try:
                    output, _nothing = process.communicate(timeout=seeds.uniform(5, 60) if kills < 20 else 600)
                    break
                except subprocess.TimeoutExpired:
                    os.kill(process.pid, signal.SIGKILL)
                    process.communicate()
                    kills += 1
            assert process.returncode == 0, output
            assert all(cluster.pid(name) not in (0, before[name]) for name in NAMES)

    under_load(cluster, work)
    assert "changed=0" in cluster.playbook("deploy").output


@pytest.mark.chaos
def test_route_pool_and_pinned_accounts_are_reloaded_under_load(cluster: RoleCluster, run_module: Runner) -> None:
    before = cluster.pids()
    change: dict[str, Any] = {"nats_server_cluster_pool_size": 5, "nats_server_cluster_accounts": ["APP"]}
    under_load(cluster, lambda: cluster.playbook("deploy", **change))
    assert cluster.pids() == before
    told = run_module("nats_server_info", cluster.system(), endpoints=["routez"])["servers"]
    for server in told:
        routes = server["routez"]["routes"]
        # Routes to each of the other two servers: the pool, one for APP, and one for the system account.
        assert len(routes) == 2 * (5 + 2), server
        assert sorted(route["account"] for route in routes if route.get("account")) == ["$SYS", "$SYS", "APP", "APP"]
    assert "changed=0" in cluster.playbook("deploy", **change).output


@pytest.mark.chaos
def test_compression_of_routes_comes_host_by_host_under_load(cluster: RoleCluster, run_module: Runner) -> None:
    """A reload would close every route of every server at once."""
    before = cluster.pids()
    change: dict[str, Any] = {"nats_server_config": {"cluster": {"compression": "s2_fast"}}}
    runs: list[Run] = []
    under_load(cluster, lambda: runs.append(cluster.playbook("deploy", **change)))
    assert "the servers are restarted one after another" in words(runs[0].output), runs[0].output
    assert sorted(parse_plan(runs[0].output)) == NAMES
    assert all(pid not in (0, before[name]) for name, pid in cluster.pids().items())
    for server in run_module("nats_server_info", cluster.system(), endpoints=["routez"])["servers"]:
        assert {route["compression"] for route in server["routez"]["routes"]} == {"s2_fast"}
