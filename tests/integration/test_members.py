# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers join, leave and are replaced, and streams change their number of replicas, through the playbooks.

Each playbook has refusals here, and test_membership_plan.py and test_replica_count.py have all of them. Operations
under load lose no acknowledged message.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import peer_id
from support.module_runs import Runner
from support.recorded import write_report
from support.role_cluster import OPERATOR_PASSWORD, RoleCluster, create, meta_members, publish, under_load, words

pytestmark = pytest.mark.playbook

NAMES = ["n1", "n2", "n3"]
OPERATOR = [{"account": "APP", "user": "operator-APP", "password": OPERATOR_PASSWORD}]
FOREIGN = {"owner": "ops@elsewhere process 1", "purpose": "upgrade", "since": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """Three deployed servers, whose version cannot move a single replica without loss; one stream is on all of them,
    and n2 and n3 have one more stream each."""
    with RoleCluster(tmp_path_factory.mktemp("members"), NAMES, "2.10.27").deployed() as made:
        create(made, "ORDERS", 3)
        create(made, "ON2", 1, placement={"tags": ["node:n2"]})
        create(made, "ON3", 1, placement={"tags": ["node:n3"]})
        yield made


@pytest.fixture
def make_hosts(tmp_path: Path) -> Iterator[Any]:
    """Deploy a separate cluster of n1, n2 and n3 for a test."""
    with contextlib.ExitStack() as made:
        yield lambda version: made.enter_context(RoleCluster(tmp_path, NAMES, version).deployed())


def parse_hosts(run_module: Runner, cluster: RoleCluster, stream: str) -> list[str]:
    """Return the servers that have a replica of the stream."""
    found = run_module("nats_stream_info", cluster.system(), account="APP", account_users=OPERATOR, stream=stream)
    return sorted(found["streams"][0]["members"])


def delete(run_module: Runner, cluster: RoleCluster, *names: str) -> None:
    """Delete these streams with their messages."""
    for name in names:
        options = {"state": "absent", "allow": ["data_loss"], "account": "APP", "account_users": OPERATOR}
        gone = run_module("nats_stream", cluster.system(), stream=name, **options)
        assert gone.get("changed"), gone


def refused(cluster: RoleCluster, playbook: str, *arguments: str, **extra: Any) -> str:
    """Return the output of a playbook that refused, after checking that the playbook restarted no process and released
    its lock."""
    before = cluster.pids()
    output = words(cluster.playbook(playbook, *arguments, fails=True, **extra).output)
    assert cluster.pids() == before
    for host in cluster.hosts.values():
        lock = Path(host["nats_server_config_dir"]) / "operation.lock"
        assert not lock.exists() or lock.read_text() in ("", json.dumps(FOREIGN))
    return output


def changed(output: str) -> int:
    """Return the number of changes in the recap, over all hosts."""
    recap = output.partition("PLAY RECAP")[2]
    return sum(int(part.split("=")[1]) for part in recap.split() if part.startswith("changed="))


def die(cluster: RoleCluster, name: str) -> None:
    """Kill the server and remove its disk."""
    cluster.kill(name)
    shutil.rmtree(cluster.hosts[name]["nats_server_jetstream_store_dir"])


def copy_store(cluster: RoleCluster, source: str, target: str) -> None:
    """Give a new host a store that another server has used."""
    store = "nats_server_jetstream_store_dir"
    shutil.copytree(cluster.hosts[source][store], cluster.hosts[target][store])


def write_peers(cluster: RoleCluster, host: str, *members: str) -> None:
    """Change a host's store, where the meta group then lists these members."""
    ids = "".join(map(peer_id, members)).encode()
    path = Path(cluster.hosts[host]["nats_server_jetstream_store_dir"]) / "jetstream/$SYS/_js_/_meta_/peers.idx"
    path.write_bytes(struct.pack("<II", len(members), len(members)) + ids + bytes(2))


def unreachable(host: dict[str, Any]) -> None:
    """Make every connection to the host fail."""
    host.update(ansible_connection="ssh", ansible_port=1)


def streams(stream: str, replicas: int) -> list[dict[str, Any]]:
    """Return one entry of nats_cluster_streams."""
    return [{"account": "APP", "stream": stream, "num_replicas": replicas}]


# --- Refusals, and replacing a server by one of the same name ------------------------------------------------------------


def test_run_needs_all_hosts_of_the_cluster(cluster: RoleCluster) -> None:
    assert "the run excludes n2, n3: run it without --limit" in refused(cluster, "scale_out", "--limit", "n1")


def test_invalid_joins_are_refused(cluster: RoleCluster, run_module: Runner) -> None:
    cluster.add("n4")
    route = cluster.hosts["n1"]["nats_server_cluster_port"]
    try:
        shown = cluster.playbook("scale_out", "--check").output
        assert "New in the cluster C1: n4" in shown
        assert not (cluster.root / "n4").exists()
        cluster.hosts["n1"]["nats_server_cluster_port"] = cluster.hosts["n4"]["nats_server_cluster_port"]
        assert "n4 cannot reach the route of n1 at 127.0.0.1:" in refused(cluster, "scale_out")
        assert not (cluster.root / "n4").exists()
        cluster.hosts["n1"]["nats_server_cluster_port"] = route
        # Use a disk that belonged to n4 itself at an earlier time.
        copy_store(cluster, "n1", "n4")
        write_peers(cluster, "n4", "n1", "n4")
        reasons = refused(cluster, "scale_out")
        assert "n4 is not a member of the running one (n1, n2, n3), and has 1 stream in its store" in reasons
        assert "nothing was changed" in reasons and not (cluster.root / "n4/etc").exists()
    finally:
        shutil.rmtree(cluster.root / "n4", ignore_errors=True)
        cluster.hosts["n1"]["nats_server_cluster_port"] = route
        del cluster.hosts["n4"]
    assert meta_members(run_module, cluster) == NAMES


def test_leaders_are_spread(cluster: RoleCluster, run_module: Runner, tmp_path: Path) -> None:
    names = [f"SPREAD{number}" for number in range(6)]
    users = {"account": "APP", "account_users": OPERATOR}

    def led() -> list[int]:
        found = run_module("nats_stream_info", cluster.system(), **users)["streams"]
        leaders = [stream["leader"] for stream in found if stream["name"] in names]
        return sorted(leaders.count(name) for name in NAMES)

    for name in names:
        create(cluster, name, 3)
    run_module("nats_stream_stepdown", cluster.system(), streams=[*names, "ORDERS"], preferred="n1", **users)
    assert led() == [0, 0, 6]
    day = write_report(tmp_path / "report.json", {("lab", name): 1000.0 for name in names})
    recorded: dict[str, Any] = {"nats_cluster_rebalance_rates_file": str(tmp_path / "report.json")}
    shown = words(cluster.playbook("rebalance", "--check", nats_cluster_rebalance_moves=0, **recorded).output)
    assert shown.count(f"write rates: {len(names)} streams from the report of {day}") == 2
    # Each of n2 and n3 leads the stream whose only replica it has.
    assert "4 leaders step down (4 streams)" in shown
    assert "n1 leads 7 streams, 0 consumers, 5.9 KiB/s; afterwards 3 streams, 0 consumers" in shown
    assert led() == [0, 0, 6]
    cluster.playbook("rebalance")
    assert led() in ([2, 2, 2], [1, 2, 3])
    delete(run_module, cluster, *names)


def test_replicas_move_as_approved(cluster: RoleCluster, run_module: Runner, tmp_path: Path) -> None:
    """Two streams fill the same two servers. The plan is shown, refused after the end of the window, and carried out;
    then nothing remains to be done. test_member_plans.py refuses an outdated plan."""
    places: dict[str, list[str]] = {}
    while len(set(map(tuple, places.values()))) == len(places):
        name = f"PAIR{len(places)}"
        create(cluster, name, 2)
        places[name] = parse_hosts(run_module, cluster, name)
    full = f"PAIR{len(places) - 1}"
    both = [name for name, hosts in places.items() if hosts == places[full]]
    for name in both:
        publish(cluster, name, 4, 100_000)
    (empty,) = set(NAMES) - set(places[full])
    file, journal = tmp_path / "plan.json", tmp_path / "journal.jsonl"
    options: dict[str, Any] = {"nats_cluster_rebalance_plan_file": str(file), "nats_cluster_journal": str(journal)}

    shown = words(cluster.playbook("rebalance", "--check", **options).output)
    (move,) = json.loads(file.read_text())["moves"]
    assert move["stream"] in both and move["to"] == empty
    assert f"APP/{move['stream']} moves from {move['from']} to {empty}" in shown
    assert not journal.exists()
    late = refused(cluster, "rebalance", **options, nats_cluster_not_after="2026-01-01T00:00:00Z")
    assert f"Still to move: {move['stream']}. No move is in progress" in late
    assert parse_hosts(run_module, cluster, move["stream"]) == places[full]

    cluster.playbook("rebalance", **options)
    assert parse_hosts(run_module, cluster, move["stream"]) == sorted({*places[full], empty} - {move["from"]})
    again = cluster.playbook("rebalance", **options).output
    assert "All moves of the plan are done" in words(again)
    assert changed(again) == 0
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [event["event"] for event in events] == [
        "run_started",
        "run_failed",
        "run_started",
        "batch_done",
        "run_done",
    ]
    (done,) = events[3]["data"]["moves"]
    assert {key: done[key] for key in ("stream", "from", "to")} == {key: move[key] for key in ("stream", "from", "to")}
    delete(run_module, cluster, *places)


def test_invalid_departures_are_refused(cluster: RoleCluster) -> None:
    host = dict(cluster.hosts["n3"])
    unreachable(cluster.hosts["n3"])
    try:
        leave: dict[str, Any] = {"nats_server_cluster_leaving": ["n3", "n9"], "nats_server_cluster_size": 3}
        reasons = refused(cluster, "scale_in", "-v", **leave)
    finally:
        cluster.hosts["n3"] = host
    assert "more; use -v to see all of them" in reasons
    assert "n9 is unknown to the inventory and the cluster" in reasons
    assert "n3 runs on a host that is unreachable" in reasons
    assert "nats_server_cluster_size is 3, but 2 servers stay" in reasons
    assert "without n3 the meta group has 2 member(s) (n1, n2), fewer than the required 3" in reasons
    assert "no other server can take the replica of stream APP/ORDERS on n3 (R3 on n1, n2, n3)" in reasons
    assert "stream APP/ON3 has its only replica on n3, and nats-server before 2.15 may lose messages" in reasons


def test_running_server_is_not_replaced(cluster: RoleCluster) -> None:
    lives: dict[str, Any] = {"nats_cluster_replace": "n3", "nats_cluster_replacement": "n2"}
    assert "n3 answers, so it is not dead" in refused(cluster, "replace", **lives)


def test_which_numbers_of_replicas_cannot_be(cluster: RoleCluster, run_module: Runner) -> None:
    wish = [*streams("NONE", 3), *streams("ORDERS", 4), *streams("ON2", 2)]
    reasons = refused(cluster, "replica_count", nats_cluster_streams=wish, nats_server_account_operator_password="")
    assert "No stream matches APP/NONE" in reasons
    assert "APP/ORDERS cannot have 4 replica(s): 1 more server(s) must take a replica, but 0 can (none)" in reasons
    assert "n1 does not have the tag node:n2" in reasons
    assert "No user may change streams in account APP" in reasons

    locks = [Path(cluster.hosts[name]["nats_server_config_dir"]) / "operation.lock" for name in NAMES[:2]]
    FOREIGN["expires"] = int(time.time()) + 600
    for lock in locks:
        lock.write_text(json.dumps(FOREIGN))
    one: dict[str, Any] = {"nats_cluster_streams": streams("ORDERS", 1)}
    assert "Locked by ops@elsewhere process 1 for upgrade on " in refused(cluster, "replica_count", **one)
    for lock in locks:
        lock.write_text("")
    assert "APP/ORDERS: R3 to R1" in cluster.playbook("replica_count", "--check", **one).output
    assert parse_hosts(run_module, cluster, "ORDERS") == NAMES


def test_a_dead_server_comes_back_with_an_empty_disk(cluster: RoleCluster, run_module: Runner) -> None:
    die(cluster, "n2")
    absent = "n2 belongs to the cluster but does not answer"
    assert absent in refused(cluster, "scale_in", nats_server_cluster_leaving=["n3"])

    replace: dict[str, Any] = {"nats_cluster_replace": "n2"}
    lost = refused(cluster, "replace", **replace)
    assert "APP/ON2 has no leader" in lost
    assert '{"nats_cluster_accept_loss": ["APP/ON2"]}' in lost
    replace["nats_cluster_accept_loss"] = ["APP/ON2"]
    assert (
        "n2 comes back with the data of the other servers" in cluster.playbook("replace", "--check", **replace).output
    )
    assert cluster.pid("n2") == 0
    cluster.add("n4")
    try:
        copy_store(cluster, "n1", "n4")
        write_peers(cluster, "n4", "n1", "n4")
        other = {"nats_cluster_replacement": "n4", "nats_server_cluster_members": ["n1", "n3", "n4"]}
        assert "n4 is not a member of the running one" in refused(cluster, "replace", **replace, **other)
        assert not (cluster.root / "n4/etc").exists()
    finally:
        del cluster.hosts["n4"]
    # Use the disk of a server of the same name from a different cluster.
    copy_store(cluster, "n1", "n2")
    store = Path(cluster.hosts["n2"]["nats_server_jetstream_store_dir"])
    for number, group in enumerate((store / "jetstream/$SYS/_js_").glob("[SC]-*")):
        group.rename(group.with_name(f"S-R3F-other{number}"))
    assert "the store of n2 belongs to a different cluster" in refused(cluster, "replace", **replace)
    shutil.rmtree(store)
    cluster.playbook("replace", **replace)
    assert cluster.pid("n2") != 0
    assert meta_members(run_module, cluster) == NAMES == parse_hosts(run_module, cluster, "ORDERS")


def test_cluster_without_a_meta_leader(cluster: RoleCluster, run_module: Runner) -> None:
    """This test must be the last one, because it leaves the cluster without a quorum."""
    cluster.kill("n1", "n2")
    # A remaining leader notices only after some seconds that it has lost its quorum.
    end = time.monotonic() + 60
    while (run_module("nats_cluster_info", cluster.system(), detail="servers")["meta"] or {}).get("leader"):
        assert time.monotonic() < end, "the meta group is led without a quorum"
        time.sleep(0.5)
    assert "The meta group of the cluster C1 has no leader" in refused(
        cluster, "scale_in", nats_server_cluster_leaving=["n2"]
    )


# --- Complete operations under load ---------------------------------------------------------------------------------


@pytest.mark.chaos
def test_from_three_to_five_and_back(make_hosts: Any, run_module: Runner) -> None:
    """Servers join, take over replicas, cannot leave while they are needed, and then leave, with an interruption in
    between."""
    cluster: RoleCluster = make_hosts("2.10.27")
    leave: dict[str, Any] = {"nats_server_cluster_leaving": ["n4", "n5"]}
    load = streams("LOAD3", 5)

    def join() -> None:
        cluster.add("n4")
        cluster.add("n5")
        # Zones alone need only a reload; with unique_tag they would need a restart.
        cluster.variables.update(nats_server_jetstream_unique_tag=None)
        for name, host in cluster.hosts.items():
            host["nats_server_zone"] = f"zone-{name}"
        before = cluster.pids()
        cluster.playbook("scale_out", nats_cluster_rebalance=True, nats_cluster_rebalance_moves=2)
        assert all(cluster.pid(name) == pid for name, pid in before.items() if pid), "a server was restarted"
        assert meta_members(run_module, cluster) == ["n1", "n2", "n3", "n4", "n5"]
        # Which stream moves depends on which one has all its replicas in step at that moment.
        assert {"n4", "n5"} & {
            host for stream in ("LOAD3", "KV_LOAD_KV") for host in parse_hosts(run_module, cluster, stream)
        }

    def change() -> None:
        create(cluster, "SINGLE", 1, placement={"tags": ["az:zone-n2"]})
        assert parse_hosts(run_module, cluster, "SINGLE") == ["n2"]
        reasons = refused(cluster, "replica_count", nats_cluster_streams=streams("*", 5))
        assert "n4 does not have the tag az:zone-n2, which the stream's placement requires" in reasons
        cluster.playbook("replica_count", nats_cluster_streams=load)
        assert parse_hosts(run_module, cluster, "LOAD3") == ["n1", "n2", "n3", "n4", "n5"]
        needed = refused(cluster, "scale_in", "--check", **leave)
        assert "the replica of stream APP/LOAD3 on n4 (R5 on n1, n2, n3, n4, n5)" in needed
        for replicas in (1, 3):
            cluster.playbook("replica_count", nats_cluster_streams=streams("LOAD3", replicas))
            assert len(parse_hosts(run_module, cluster, "LOAD3")) == replicas

    def scale_in() -> None:
        restart: dict[str, Any] = {"nats_server_jetstream_sync_interval": "1m"}
        assert "n4 cannot get the tag !jetstream by a reload" in refused(cluster, "scale_in", **leave, **restart)
        planned = cluster.playbook("scale_in", "--check", **leave).output
        assert "Leave: n4, n5" in planned
        process = cluster.start_playbook("scale_in", **leave)
        end = time.monotonic() + 300
        while cluster.pid("n4"):
            assert process.poll() is None and time.monotonic() < end, "n4 was not stopped"
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        cluster.playbook("scale_in", **leave)
        assert meta_members(run_module, cluster) == NAMES == parse_hosts(run_module, cluster, "LOAD3")
        assert cluster.pid("n4") == cluster.pid("n5") == 0
        config = (cluster.root / "n1/etc/nats-server.conf").read_text()
        assert f":{cluster.hosts['n4']['nats_server_cluster_port']}" not in config
        assert changed(cluster.playbook("scale_in", **leave).output) == 0

    def work() -> None:
        join()
        change()
        scale_in()

    under_load(cluster, work)


@pytest.mark.chaos
@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"])
def test_replace_under_load(make_hosts: Any, run_module: Runner, version: str, tmp_path: Path) -> None:
    """A server returns under its name without its data, while the others need a restart; then its machine is replaced
    by a different machine."""
    cluster: RoleCluster = make_hosts(version)
    create(cluster, "SINGLE", 1)
    (single,) = parse_hosts(run_module, cluster, "SINGLE")
    replace: dict[str, Any] = {"nats_cluster_replace": single, "nats_cluster_accept_loss": ["APP/SINGLE"]}
    journal = tmp_path / "journal"
    lock = Path(cluster.hosts[single]["nats_server_config_dir"]) / "operation.lock"

    def same_name() -> None:
        die(cluster, single)
        cluster.variables["nats_server_jetstream_sync_interval"] = "1m"
        process = cluster.start_playbook("replace", nats_cluster_journal=str(journal), **replace)
        end = time.monotonic() + 600
        while not (journal.exists() and "run_done" in journal.read_text()):
            assert process.poll() is None and time.monotonic() < end, process.communicate()[0]
            time.sleep(0.05)
        assert lock.read_text(), "the roll of the other servers released the lock of the operation"
        output = process.communicate()[0]
        assert process.returncode == 0, output
        assert f"{single} is back in service." in words(output)
        assert lock.read_text() == ""
        assert cluster.pid(single) != 0
        assert parse_hosts(run_module, cluster, "LOAD3") == NAMES
        again = cluster.playbook("replace", **replace).output
        assert f"{single} is running: it is only brought up to date" in again
        assert changed(again) == 0

    def new_name() -> None:
        die(cluster, single)
        cluster.add("n4")
        unreachable(cluster.hosts[single])
        rename: dict[str, Any] = {"nats_cluster_replacement": "n4", **replace}
        kept = words(cluster.playbook("replace", fails=True, nats_cluster_min_servers=4, **rename).output)
        assert f"n4 has joined, but {single} cannot be removed" in kept
        assert "fewer than the required 4" in kept
        replaced = cluster.playbook("replace", **rename).output
        assert f"n4 replaced {single}: remove {single} from the inventory." in words(replaced)
        # The dead host is expected to be unreachable, so no error is printed.
        assert "UNREACHABLE" not in replaced and "ERROR" not in replaced
        left = sorted({*NAMES, "n4"} - {single})
        assert meta_members(run_module, cluster) == left == parse_hosts(run_module, cluster, "LOAD3")

    def same_flags() -> None:
        """The dead server does not count as an older one, and a server that differs from the others follows them."""
        if version != "2.15.1":
            return
        path = Path(cluster.hosts["n4"]["nats_server_config_dir"]) / "nats-server.conf"
        assert "js_raft_delete_range" not in path.read_text()
        del cluster.hosts[single]
        cluster.hosts["n4"]["nats_server_config_host"] = {"feature_flags": {"js_raft_delete_range": False}}
        cluster.playbook("deploy")
        assert "js_raft_delete_range: false" in path.read_text()
        del cluster.hosts["n4"]["nats_server_config_host"]
        cluster.playbook("deploy")
        assert "js_raft_delete_range" not in path.read_text()
        cluster.deploy_changes_nothing()

    def work() -> None:
        same_name()
        new_name()
        same_flags()

    under_load(cluster, work)
