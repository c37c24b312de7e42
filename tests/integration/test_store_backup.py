# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_store_copy, nats_store_backup and the playbook rescue: three of five servers are destroyed, and the data
of the other two is restored in a fresh cluster."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.restore_rules import position
from ansible_collections.natsops.jetstream.plugins.module_utils.host.store import stored_streams
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.load import acknowledge, fetch, patiently
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, binary, collections_path
from support.role_cluster import RoleCluster, words

FIVE = ["n1", "n2", "n3", "n4", "n5"]
LEFT, DEAD = FIVE[:2], FIVE[2:]
#: The members of each stream, and its configuration.
STREAMS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "ORDERS": (["n1", "n3", "n4"], {"max_msgs_per_subject": 1000, "metadata": {"team": "shop"}}),
    "EVENTS": (FIVE, {}),
    "COPY": (["n2", "n3", "n4"], {"subjects": [], "mirror": {"name": "EVENTS"}}),
    "JOBS": (["n2", "n4", "n5"], {"retention": "workqueue"}),
    "SINGLE": (["n2"], {}),
    "EMPTY": (["n1", "n4", "n5"], {}),
    "KV_conf": (["n1", "n3", "n5"], {"subjects": ["$KV.conf.>"], "max_msgs_per_subject": 64, "allow_direct": True}),
    "TOTAL": (["n2", "n4", "n5"], {"subjects": [], "sources": [{"name": "ORDERS"}]}),
    "CACHE": (["n1", "n4", "n5"], {"storage": "memory"}),
    "GONE": (DEAD, {}),
}
FILLED = ["ORDERS", "EVENTS", "JOBS", "SINGLE", "KV_conf", "CACHE", "GONE"]
SAVED = ["COPY", "EMPTY", "EVENTS", "JOBS", "KV_conf", "ORDERS", "SINGLE", "TOTAL"]
CONSUMERS = [("ORDERS", "worker"), ("EVENTS", "worker"), ("JOBS", "worker"), ("EVENTS", "single")]
MESSAGES, MORE, TAKEN = 20, 5, 12


class Stores(NamedTuple):
    """The remains of a cluster: the copies of its stores, the backup directory, and the nats-server binary that wrote
    the stores."""

    copies: dict[str, str]
    directory: Path
    binary: str


Save = Callable[..., dict[str, Any]]


async def publish(cluster: NatsProcesses, streams: list[str], first: int, count: int, taken: int = 0) -> None:
    client = await nats.connect([cluster.url(name) for name in cluster.processes], user=APP_USER, password=APP_PASSWORD)
    context = client.jetstream(timeout=10)
    for number in range(first, first + count):
        for name in streams:
            subject = f"$KV.conf.{number}" if name == "KV_conf" else f"{name}.new"
            await context.publish(subject, str(number).encode())
    for stream, consumer in CONSUMERS if taken else ():
        subscription = await context.pull_subscribe_bind(consumer, stream)
        for message in await fetch(subscription, taken):
            await acknowledge(message)
    await client.close()


async def bodies(cluster: NatsProcesses, stream: str, first: int, last: int) -> list[str]:
    client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
    context = client.jetstream(timeout=10)
    found = []
    for seq in range(first, last + 1):
        message = await patiently(partial(context.get_msg, stream, seq), nats.js.errors.NotFoundError)
        found.append((message.data or b"").decode())
    await client.close()
    return found


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "_js_" not in path.parts
    }


def host(cluster: NatsProcesses, name: str) -> dict[str, Any]:
    return {"config": str(cluster.config_file(name)), "store_dir": str(cluster.directory / name)}


def configure(cluster: NatsProcesses, anywhere: bool = False) -> None:
    """Write each server's configuration. The server's routes list all servers, and its tags list the streams that may
    be placed on this server."""
    for name in cluster.names:
        tags = [f"holds:{stream}" for stream, (members, _config) in STREAMS.items() if anywhere or name in members]
        cluster.write_config(name, f"server_tags: {json.dumps(tags)}")


def fill(cluster: NatsProcesses, stores: dict[str, str], stop: Callable[[str], None]) -> None:
    """Store messages in each stream, and make n2 fall behind n1, after which n2 is stopped. `stores`: server →
    directory."""
    for name, (members, config) in STREAMS.items():
        cluster.add_stream(name, len(members), placement={"tags": [f"holds:{name}"]}, **config)
    for stream in ("ORDERS", "EVENTS", "JOBS"):
        cluster.add_consumer(stream, "worker")
    # The consumer has one replica, which is not placed on n1.
    while cluster.add_consumer("EVENTS", "single", num_replicas=1)["cluster"]["leader"] != "n2":
        cluster.app_request("$JS.API.CONSUMER.DELETE.EVENTS.single")
    asyncio.run(publish(cluster, FILLED, 0, MESSAGES, TAKEN))
    for name in ("COPY", "TOTAL"):
        info = partial(cluster.app_request, f"$JS.API.STREAM.INFO.{name}")
        assert wait_until(info, lambda found: found["state"]["last_seq"] == MESSAGES, 30).done, name

    def held(name: str) -> dict[str, Any]:
        return {item.name: item.last_seq for item in stored_streams(stores[name])}

    # A follower stores a message a moment after its leader acknowledged it.
    whole = dict.fromkeys(("COPY", "EVENTS", "JOBS", "SINGLE", "TOTAL"), MESSAGES)
    assert wait_until(partial(held, "n2"), lambda last: last == whole, 30).done
    stop("n2")
    asyncio.run(publish(cluster, ["EVENTS"], MESSAGES, MORE))
    assert wait_until(partial(held, "n1"), lambda last: last["EVENTS"] == MESSAGES + MORE, 30).done


def survivors(cluster: NatsProcesses, run_module: Runner, directory: Path) -> dict[str, str]:
    """Destroy three of five servers after one of the other two fell behind; stop these two, and return the copies of
    their stores."""
    fill(cluster, {name: str(cluster.directory / name) for name in FIVE}, cluster.stop)
    cluster.kill(*DEAD)
    for name in DEAD:
        shutil.rmtree(cluster.directory / name)

    running = run_module("nats_store_copy", {}, copy=str(directory / "n1"), **host(cluster, "n1"))
    assert "nats-server runs on" in running["msg"] and "stop it" in running["msg"], running
    cluster.stop("n1")
    for name in LEFT:
        options = {"copy": str(directory / name), **host(cluster, name)}
        refused = run_module("nats_store_copy", {}, reserve="100000TB", **options)
        assert "no room for a copy" in refused["msg"], refused
        planned = run_module("nats_store_copy", {}, True, reserve="0", **options)
        assert planned["changed"] and not (directory / name).exists()
        done = run_module("nats_store_copy", {}, reserve="0", **options)
        assert done["changed"] and done["streams"] == planned["streams"], done
        assert not run_module("nats_store_copy", {}, **options)["changed"]
        assert digests(directory / name / "jetstream") == digests(cluster.directory / name / "jetstream")
    return {name: str(directory / name) for name in LEFT}


@pytest.fixture
def cluster(version: str, tmp_path: Path, run_module: Runner) -> Iterator[NatsProcesses]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    made = NatsProcesses(version, directory, list(FIVE))
    configure(made)
    made.start()
    try:
        yield form(made, run_module)
    finally:
        made.kill()


@pytest.fixture
def stores(cluster: NatsProcesses, version: str, tmp_path: Path, run_module: Runner) -> Stores:
    directory = tmp_path / "rescue"
    directory.mkdir()
    return Stores(survivors(cluster, run_module, directory), directory / "backup", binary(version))


def saving(stores: Stores, run_module: Runner) -> Save:
    options = {"copies": stores.copies, "directory": str(stores.directory), "binary": stores.binary}

    def run(check_mode: bool = False, **asked: Any) -> dict[str, Any]:
        return run_module("nats_store_backup", {}, check_mode, **{**options, **asked})

    return run


def fresh(cluster: NatsProcesses, run_module: Runner) -> NatsProcesses:
    """Start the remaining servers with empty stores and without routes to the destroyed servers."""
    for name in DEAD:
        cluster.names.remove(name)
        del cluster.route_ports[name]
    for name in LEFT:
        (cluster.directory / name).rename(cluster.directory / f"{name}.old")
    configure(cluster, anywhere=True)
    cluster.start()
    return form(cluster, run_module)


def progress(cluster: NatsProcesses, stream: str, consumer: str) -> tuple[int, int, int]:
    """Return the consumer's position, and its numbers of unacknowledged and of pending messages."""
    info = cluster.app_request(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")
    return position(info), info["num_ack_pending"], info["num_pending"]


def require_back(cluster: NatsProcesses) -> None:
    """Check that everything on n1 or n2 has been restored, with its previous configuration."""
    count = MESSAGES + MORE
    parts = dict.fromkeys(("ORDERS", "SINGLE", "KV_conf", "TOTAL"), (1, MESSAGES))
    for stream, (first, last) in {**parts, "EVENTS": (1, count), "JOBS": (TAKEN + 1, MESSAGES)}.items():
        found = asyncio.run(bodies(cluster, stream, first, last))
        assert found == [str(number) for number in range(first - 1, last)], stream
    # The mirror continues where its replica on n2 ended.
    copy = partial(cluster.app_request, "$JS.API.STREAM.INFO.COPY")
    assert wait_until(lambda: copy()["state"]["messages"], lambda messages: messages == count, 30).done
    for stream, name in CONSUMERS:
        wanted = (TAKEN, 0, (count if stream == "EVENTS" else MESSAGES) - TAKEN)
        # A newly elected leader counts the messages of its own replica, which may still be catching up.
        seen = wait_until(partial(progress, cluster, stream, name), wanted.__eq__, 30)
        assert seen.value == wanted, (stream, name)
    for name in SAVED:
        members, made = STREAMS[name]
        config = cluster.app_request(f"$JS.API.STREAM.INFO.{name}", members=min(len(members), 2))["config"]
        asked: dict[str, Any] = {"subjects": [f"{name}.>"], "num_replicas": min(len(members), 2), **made}
        has: dict[str, Any] = {key: config.get(key) or [] for key in asked}
        if name == "COPY":
            has["mirror"] = {"name": has["mirror"]["name"]}
        if name == "TOTAL":
            has["sources"] = [{"name": source["name"]} for source in has["sources"]]
        # From 2.12, servers add metadata to the configuration.
        has["metadata"] = {key: has.get("metadata", {})[key] for key in asked.setdefault("metadata", {})}
        assert has == asked, name


def require_sourced(cluster: NatsProcesses) -> None:
    """Check that TOTAL has continued after its messages from ORDERS, which has one more message."""
    info = partial(cluster.app_request, "$JS.API.STREAM.INFO.TOTAL")
    # A source whose stream had no leader is retried after up to two minutes.
    seen = wait_until(lambda: info()["state"]["messages"], lambda messages: messages > MESSAGES, 150)
    assert (seen.done, seen.value) == (True, MESSAGES + 1)


@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"], scope="session")
def test_data_of_two_of_five_servers_is_restored_in_a_fresh_cluster(
    cluster: NatsProcesses, stores: Stores, tmp_path: Path, run_module: Runner
) -> None:
    save = saving(stores, run_module)
    before = {name: digests(Path(copy)) for name, copy in stores.copies.items()}
    planned = save(check_mode=True)
    assert (planned["changed"], [row["stream"] for row in planned["streams"]]) == (True, SAVED), planned
    assert not stores.directory.exists()

    done = save()
    assert not done.get("failed"), done
    rows = {row["stream"]: row for row in done["streams"]}
    assert {
        name: (row["server"], row["num_replicas"], row["messages"], row["last_seq"]) for name, row in rows.items()
    } == {
        "COPY": ("n2", 3, 20, 20),
        "EMPTY": ("n1", 3, 0, 0),
        "EVENTS": ("n1", 5, 25, 25),
        "JOBS": ("n2", 3, 8, 20),
        "KV_conf": ("n1", 3, 20, 20),
        "ORDERS": ("n1", 3, 20, 20),
        "SINGLE": ("n2", 1, 20, 20),
        "TOTAL": ("n2", 3, 20, 20),
    }
    assert rows["EVENTS"]["others"] == {"n2": MESSAGES}
    # The servers of these stores were stopped gracefully.
    assert not any(row["caveats"] for row in rows.values()), rows
    assert rows["EVENTS"]["consumers"] == [
        {"name": "single", "ack_floor": TAKEN, "server": "n2"},
        {"name": "worker", "ack_floor": TAKEN, "server": "n1"},
    ]
    again = save()
    assert (again["changed"], [row["path"] for row in again["streams"]]) == (
        False,
        [row["path"] for row in done["streams"]],
    )
    assert {name: digests(Path(copy)) for name, copy in stores.copies.items()} == before
    assert sorted(path.name for path in stores.directory.parent.iterdir()) == ["backup", "n1", "n2"]

    fresh(cluster, run_module)
    connection = {**cluster.sys_connection(), "account_users": cluster.account_users()}
    options = {"directory": str(stores.directory), "streams": ["*"]}
    wrong = run_module("nats_restore", connection, max_replicas=0, **options)
    assert "max_replicas: at least 1, not 0" in wrong["msg"]
    wrong = run_module("nats_restore", connection, num_replicas=0, **options)
    assert "num_replicas: at least 1, not 0" in wrong["msg"]
    restored = run_module("nats_restore", connection, max_replicas=2, **options)
    assert not restored.get("failed"), restored
    reduced = {row["stream"]: [one[:32] for one in row["caveats"] if "replicas" in one] for row in restored["streams"]}
    assert (reduced["EVENTS"], reduced["SINGLE"]) == (["it gets 2 replicas instead of 5:"], []), reduced
    for row in restored["streams"]:
        compared = row["compared"]
        assert compared["digest"] == "same" or row["stream"] == "COPY", row
        assert all(was == now for was, now in compared["ack_floors"].values()), row
    require_back(cluster)
    assert not run_module("nats_restore", connection, max_replicas=2, **options).get("changed")

    # A server that restored a stream has the files of the archive, and reads them when it starts again.
    for name in LEFT:
        cluster.stop(name)
        cluster.start(name)
        form(cluster, run_module)
    require_back(cluster)
    assert cluster.app_request("ORDERS.new", {})["seq"] == MESSAGES + 1
    if cluster.version == "2.10.27":
        # From 2.15, a restored source counts as a different stream, see docs/backup.md.
        require_sourced(cluster)


@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"], scope="session")
def test_unsavable_copies_are_refused_and_killed_run_resumes(
    stores: Stores, version: str, tmp_path: Path, run_module: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = saving(stores, run_module)
    missing = save(copies={**stores.copies, "n3": str(tmp_path / "none")})
    assert "none/jetstream of n3 cannot be read: No such file" in missing["msg"]
    assert "no stream matches APP/OTHER" in save(streams=["APP/OTHER"])["msg"]
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 30, 1 << 30, 1 << 20))
        full = save()
    assert full["failure"]["code"] == "disk_full" and "are needed to load the largest stream" in full["msg"], full
    assert not stores.directory.exists()

    # The backup is killed after a server has loaded the first stream.
    mute = tmp_path / "nats-server"
    mute.write_text(f'#!/bin/sh\n[ "$1" = -c ] && sed -i /ports_file_dir/d server.conf\nexec {stores.binary} "$@"\n')
    mute.chmod(0o755)
    options = {"copies": stores.copies, "directory": str(stores.directory), "binary": str(mute)}
    code = "import json, sys; from support.module_runs import run_in_process as run; "
    code += 'run("nats_store_backup", {}, **json.loads(sys.argv[1]))'
    environment = {"PYTHONPATH": f"{Path(__file__).parents[1]}:{collections_path()}", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen([sys.executable, "-c", code, json.dumps(options)], env=environment) as module:
        logs = partial(stores.directory.parent.glob, ".natsops-backup-load@*/server.log")
        ready = wait_until(lambda: any("Server is ready" in path.read_text() for path in logs()), bool, 30, 0.02)
        module.send_signal(signal.SIGKILL)
        module.wait(20)
    assert ready.done

    spoilt = tmp_path / "spoilt"
    shutil.copytree(stores.copies["n1"], spoilt / "n1")
    shutil.copytree(stores.copies["n2"], spoilt / "n2")
    streams = spoilt / "n1/jetstream/APP/streams"
    block = streams / "ORDERS/msgs/1.blk"
    content, index = block.read_bytes(), (streams / "ORDERS/msgs/index.db").stat().st_mtime_ns
    if version == "2.10.27":
        # Archives of this version contain the blocks as they are on the disk.
        block.write_bytes(content[:-20] + b"?" + content[-19:])
        checked = save(copies={"n1": str(spoilt / "n1")}, verify="records", streams=["APP/ORDERS"])
        assert "1.blk: the checksum of message 20 is wrong" in checked["msg"], checked
    block.write_bytes(content)
    crashed = save(copies={"n1": str(spoilt / "n1")}, streams=["APP/ORDERS"])
    assert "its server did not stop cleanly" in crashed["streams"][0]["caveats"][0], crashed
    block.write_bytes(content[: len(content) // 2])
    os.utime(block, ns=(index - 1, index - 1))
    (spoilt / "n2/jetstream/APP/streams/SINGLE/meta.sum").write_text("00")
    damaged = {"copies": {name: str(spoilt / name) for name in LEFT}}
    said = save(**damaged)
    assert said["failure"]["code"] == "damaged" and "2 of 8 streams were not saved, 6 were" in said["msg"], said
    problems = {row["stream"]: row["problem"] for row in said["streams"] if row["problem"]}
    assert "was loaded only partly: " in problems["ORDERS"] and "List it in `damaged`" in problems["ORDERS"], problems
    assert f"{spoilt}/n2/jetstream/APP/streams/SINGLE/meta.inf is damaged" in problems["SINGLE"], problems
    taken = save(**damaged, damaged=["APP/ORDERS"], streams=["APP/ORDERS"])
    assert taken["changed"] and "it is incomplete: " in taken["streams"][0]["caveats"][0], taken
    state = spoilt / "n2/jetstream/APP/streams/EVENTS/obs/single/o.dat"
    state.write_bytes(state.read_bytes()[:2])
    half = save(**damaged, streams=["APP/EVENTS", "APP/JOBS"])
    assert "1 of 2 streams were not saved, 1 were" in half["msg"], half
    assert "obs/single cannot be read: the state of a consumer is truncated" in half["msg"], half
    (streams / "EVENTS/meta.key").touch()
    hidden = save(**damaged)
    assert hidden["failure"]["code"] == "unsupported" and "without their key: APP/EVENTS on n1" in hidden["msg"]
    # The killed run left nothing behind.
    assert sorted(path.name for path in stores.directory.parent.iterdir()) == ["backup", "n1", "n2"]


@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"], scope="session")
def test_messages_purged_before_a_crash_are_reported(
    version: str, make_cluster: Callable[..., NatsProcesses], tmp_path: Path, run_module: Runner
) -> None:
    """The copy with the highest sequence is from a server that was killed after a purge. Up to 2.14 no block on its
    disk shows the purge."""
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    cluster.add_stream("ORDERS", 3)
    asyncio.run(publish(cluster, ["ORDERS"], 0, MESSAGES))
    cluster.app_request("$JS.API.STREAM.PURGE.ORDERS", {"keep": 5})
    crashed = cluster.app_request("$JS.API.STREAM.INFO.ORDERS")["cluster"]["leader"]
    left, other = sorted({*cluster.names} - {crashed})

    def held(server: str) -> dict[str, Any]:
        found = run_module("nats_server_host_info", {}, gather_subset=["rescue"], **host(cluster, server))
        rescue: dict[str, Any] = found["rescue"]
        return rescue

    cluster.stop(left)
    (stopped,) = held(left)["streams"]
    assert (stopped["messages"], stopped["last_seq"]) == (5, MESSAGES)
    asyncio.run(publish(cluster, ["ORDERS"], MESSAGES, 2))
    # A server writes messages to disk a moment after it has stored them.
    on_disk = partial(held, crashed)
    assert wait_until(on_disk, lambda found: found["streams"][0]["last_seq"] == MESSAGES + 2, 30).done
    cluster.kill(crashed, other)
    copies = {name: str(cluster.directory / name) for name in (crashed, left)}
    save = saving(Stores(copies, tmp_path / "backup", binary(version)), run_module)

    (row,) = save(check_mode=True, undeleted=["APP/ORDERS"])["streams"]
    if version == "2.15.1":
        # The server has written its deletions to disk.
        assert (row["messages"], row["first_seq"], row["last_seq"]) == (7, MESSAGES - 4, MESSAGES + 2)
        assert not save().get("failed")
        return
    assert (row["messages"], row["first_seq"], row["last_seq"]) == (MESSAGES + 2, 1, MESSAGES + 2)
    refused = save()
    assert refused.get("failure", {}).get("code") == "undeleted", refused
    told = f"it has 15 deleted messages again, according to the store of {left}"
    assert told in refused["msg"] and "list it in `undeleted`" in refused["msg"]
    alone = {"copies": {crashed: copies[crashed]}}
    assert "according to the store of a server listed in `held`" in save(**alone, held=[stopped])["msg"]
    assert not (tmp_path / "backup" / "APP").exists()
    # No file shows the purge. The backup and the restore warn that messages may have been purged.
    (row,) = save(**alone)["streams"]
    assert row["caveats"] == [
        "its server did not stop cleanly: messages deleted just before may reappear, and floors may be lower"
    ]
    assert json.loads((Path(row["path"]) / "backup.json").read_text())["crashed"] is True
    (row,) = save(undeleted=["APP/ORDERS"])["streams"]
    assert row["caveats"] == [told]
    # The server that was stopped gracefully has all messages from that time.
    (row,) = save(copies={left: copies[left]})["streams"]
    assert (row["messages"], row["caveats"]) == (5, [])


@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"], scope="session")
def test_nothing_expires_in_the_server_that_loads(version: str, tmp_path: Path, run_module: Runner) -> None:
    directory = tmp_path / "server"
    directory.mkdir()
    server = NatsProcesses(version, directory, ["n1"], cluster="")
    server.start()
    try:
        server.add_stream("SHORT", 1, max_age=8 * 10**9)
        stored = [server.app_request("SHORT.new")["seq"] for _message in range(MESSAGES)]
        expired = time.monotonic() + 8
        server.stop("n1")
    finally:
        server.kill()
    copied = run_module("nats_store_copy", {}, copy=str(tmp_path / "n1"), reserve="0", **host(server, "n1"))
    assert copied["streams"][0]["messages"] == len(stored)
    assert wait_until(time.monotonic, lambda now: now > expired, 20).done
    stores = Stores({"n1": copied["copy"]}, tmp_path / "backup", binary(version))
    (row,) = saving(stores, run_module)()["streams"]
    assert (row["messages"], row["first_seq"], row["last_seq"]) == (MESSAGES, 1, MESSAGES)
    manifest = json.loads((Path(row["path"]) / "backup.json").read_text())
    assert manifest["config"]["max_age"] == 8 * 10**9


# --- the playbook -----------------------------------------------------------------------------------------------------------


def seen_by_clients(hosts: RoleCluster, directory: Path) -> NatsProcesses:
    """Return a client that is connected to the servers of a deployed cluster."""
    directory.mkdir()
    made = NatsProcesses("2.10.27", directory, list(hosts.hosts))
    made.ports = {name: host["nats_server_port"] for name, host in hosts.hosts.items()}
    made.processes = dict.fromkeys(hosts.hosts)  # type: ignore[assignment]
    return made


def tag(hosts: RoleCluster, anywhere: bool = False) -> None:
    for name, host in hosts.hosts.items():
        tags = [f"holds:{stream}" for stream, (members, _config) in STREAMS.items() if anywhere or name in members]
        host["nats_server_tags"] = tags


def start(hosts: RoleCluster, name: str, run_module: Runner) -> None:
    """Start a server as its host would start it."""
    host = hosts.hosts[name]
    config = f"{host['nats_server_config_dir']}/nats-server.conf"
    options = {"binary": host["nats_server_binary_link"], "log": f"{host['nats_server_run_dir']}/again.log"}
    started = run_module("nats_server_process", {}, state="started", config=config, **options)
    assert started["changed"], started


@pytest.mark.playbook
def test_playbook_restores_the_data_of_two_of_five_servers(tmp_path: Path, run_module: Runner) -> None:
    """The playbook refuses while a dead host could start, stops until the copies exist, and then continues.
    test_rescue_plan.py has the other refusals."""
    hosts = RoleCluster(tmp_path, FIVE, "2.10.27")
    copies, journal = tmp_path / "copies", tmp_path / "journal.jsonl"
    for name, host in hosts.hosts.items():
        host["nats_cluster_rescue_copy"] = str(tmp_path / name / "copy")
    tag(hosts)
    asked: dict[str, Any] = {
        "nats_cluster_rescue_dead": DEAD,
        "nats_cluster_rescue_lost": ["APP/CACHE"],
        "nats_cluster_rescue_copies": str(copies),
        "nats_cluster_rescue_observe": 1,
        "nats_cluster_backup_drill_binary": binary("2.10.27"),
        "nats_cluster_journal": str(journal),
    }

    def run(*arguments: str, fails: bool = False, **extra: Any) -> str:
        return words(hosts.playbook("rescue", *arguments, fails=fails, **{**asked, **extra}).output)

    with hosts.deployed():
        cluster = seen_by_clients(hosts, tmp_path / "clients")
        stores = {name: host["nats_server_jetstream_store_dir"] for name, host in hosts.hosts.items()}

        def stop(name: str) -> None:
            os.kill(hosts.pid(name), signal.SIGTERM)
            assert wait_until(lambda: hosts.pid(name), lambda pid: pid == 0, 60).done
            del cluster.processes[name]

        fill(cluster, stores, stop)
        hosts.kill(*DEAD)
        for name in DEAD:
            del cluster.processes[name]
        # A leader that has not noticed the loss of its majority would still send n2 the missing entries.
        look = partial(run_module, "nats_cluster_info", {**hosts.system(), "timeout": 2})

        def leaders(found: dict[str, Any]) -> set[str]:
            events = [item for item in found["streams"] if item["name"] == "EVENTS"]
            return {item["leader"] for item in (found["meta"], *events) if item["leader"]}

        assert wait_until(look, lambda found: not leaders(found), 60).done
        # After its start, a server reports its last leader for some seconds, for which the playbook waits.
        start(hosts, "n2", run_module)

        # The configuration of these hosts still exists.
        assert "n3 is listed as dead but answers over SSH, and its server could start" in run("--check", fails=True)
        for name in DEAD:
            shutil.rmtree(tmp_path / name)
        # One of the hosts does not even respond over SSH.
        hosts.hosts["n3"].update(ansible_connection="ssh", ansible_port=1)
        planned = run("--check")
        assert "but n1 2.10.27, n2 2.10.27 are running: their data moves to a fresh cluster" in planned
        assert "held by n1 up to 25, n2 up to 20: comes back up to 25 with 2 of 5 replicas" in planned
        assert [bool(hosts.pid(name)) for name in LEFT] == [True, True]

        stopped = run(fails=True)
        assert "The servers are stopped and their stores copied" in stopped
        assert f"rsync -a --mkpath n1:{tmp_path}/n1/copy/ {copies}/n1/" in stopped
        assert [bool(hosts.pid(name)) for name in LEFT] == [False, False]
        for name in LEFT:
            shutil.copytree(tmp_path / name / "copy", copies / name)
        shutil.rmtree(copies / "n1/jetstream/APP/streams/ORDERS")
        assert "the copies are incomplete, transfer them again: 1 streams of the stores are missing" in run(fails=True)
        assert not list(copies.glob("backup/APP/*"))
        shutil.rmtree(copies / "n1")
        shutil.copytree(tmp_path / "n1" / "copy", copies / "n1")

        # The placement of the streams needs tags that only the dead servers had.
        tag(hosts, anywhere=True)
        run()
        cluster.names = list(LEFT)
        cluster.processes.update(dict.fromkeys(LEFT))  # type: ignore[arg-type]
        require_back(cluster)
        noted = [json.loads(line) for line in journal.read_text().splitlines()]
        (restored,) = [one["data"]["done"] for one in noted if one["event"] == "rescued" and one["data"]["done"]]
        assert "APP/EVENTS" in restored[0]["seen"] and "contents same" in restored[0]["seen"], restored
        # The mirror has moved on, and existing streams are not overwritten.
        assert "stream COPY exists and differs from the backup" in run(fails=True)
        again = run(nats_cluster_restore_existing="skip")
        assert set(re.findall(r"changed=(\d+)", again)) == {"0"}
        # The cluster continues with two servers while the dead servers are still in the inventory.
        hosts.playbook("deploy", nats_server_cluster_leaving=DEAD)
        assert cluster.app_request("ORDERS.new", {})["seq"] == MESSAGES + 1
        require_sourced(cluster)
