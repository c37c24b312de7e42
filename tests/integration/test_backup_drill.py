# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs `nats_backup_drill` on backups of real streams whose cluster no longer exists."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue_file import load_catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.load import acknowledge, fetch
from support.manifests import change_manifest
from support.module_runs import form, run_in_process
from support.nats_processes import APP_PASSWORD, NatsProcesses, binary, collections_path

OLD, NEW = "2.10.27", "2.15.1"
ARCHIVE = "stream.tar.s2"
#: Seconds after which stored messages expire.
BRIEF = 6


async def fill(cluster: NatsProcesses) -> None:
    """Store messages, delete some of them, and have consumers acknowledge some."""
    connection = await nats.connect(cluster.urls, user="app", password=APP_PASSWORD)
    stream = connection.jetstream(timeout=10)
    try:
        for number in range(120):
            headers = {"Nats-Msg-Id": str(number)} if number % 3 == 0 else None
            await stream.publish(f"ORDERS.{number % 7}", f"order {number} ".encode() * (number % 40), headers=headers)
        for sequence in (1, 2, 50, 120):
            await stream.delete_msg("ORDERS", sequence)
        for number in range(30):
            await stream.publish("JOBS.a", f"job {number}".encode())
            await stream.publish("COUNTED.a", b"one")
        for name, consumer, count in (
            ("ORDERS", "billing", 20),
            ("ORDERS", "three", 5),
            ("JOBS", "worker", 12),
            ("COPY", "reader", 5),
        ):
            subscription = await stream.pull_subscribe_bind(consumer=consumer, stream=name)
            for message in await fetch(subscription, count):
                await acknowledge(message)
    finally:
        await connection.close()


async def fill_briefly(cluster: NatsProcesses, stream: str) -> None:
    """Store ten messages in an empty stream; all or half of them expire."""
    connection = await nats.connect(cluster.urls, user="app", password=APP_PASSWORD)
    context = connection.jetstream(timeout=10)
    try:
        await context.purge_stream(stream)
        for number in range(10):
            expires = stream == "LIVES" and number % 2
            headers = {"Nats-TTL": f"{BRIEF}s"} if expires else None
            await context.publish(f"{stream}.a", b"x" * number, headers=headers)
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def saved(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a backup of every kind of stream; the cluster is gone, and the short-lived messages have
    expired."""
    root = tmp_path_factory.mktemp("drilled")
    cluster = NatsProcesses(version, root, ["n1", "n2", "n3"])
    cluster.start()
    try:
        form(cluster)
        cluster.add_stream("ORDERS", 3, num_replicas=3, max_bytes=10_000_000)
        for name, options in (
            ("billing", {"num_replicas": 3}),
            ("three", {"filter_subject": "ORDERS.3"}),
            ("idle", {}),
        ):
            cluster.add_consumer("ORDERS", name, **options)
        cluster.add_stream("COPY", 1, subjects=[], mirror={"name": "ORDERS"}, mirror_direct=True, allow_direct=True)
        cluster.add_consumer("COPY", "reader")
        cluster.add_stream("JOBS", 3, retention="workqueue")
        cluster.add_consumer("JOBS", "worker")
        cluster.add_stream(
            "BRIEF", 1, max_age=BRIEF * 10**9, duplicate_window=10**9, republish={"src": ">", "dest": "copy.>"}
        )
        # The throw-away server also sends such messages.
        cluster.add_stream("AUDIT", 1, subjects=["$JS.EVENT.ADVISORY.>"])
        # nats-server 2.10.27 would restore none of this stream's messages (nats-server#6753).
        cluster.add_stream("COUNTED", 1, first_seq=1000)
        streams = ["BRIEF", "ORDERS", "COPY", "JOBS", "AUDIT", "COUNTED"]
        if version == NEW:
            cluster.add_stream("LIVES", 1, allow_msg_ttl=True)
            cluster.add_stream("FAST", 1, storage="memory", placement={"cluster": "C1"})
            streams = ["LIVES", *streams, "FAST"]
        asyncio.run(fill(cluster))
        for stream in streams:
            assert stream != "COPY" or wait_until(lambda: last_seq(cluster, "COPY"), lambda last: last == 120, 20).done
            if stream in ("LIVES", "BRIEF"):
                filled = save_in_time(cluster, stream, root / "backup" / "APP")
            else:
                save(cluster, stream, root / "backup" / "APP")
    finally:
        cluster.kill()
    assert wait_until(time.time, lambda now: now > filled + BRIEF, 2 * BRIEF).done
    return root / "backup"


def last_seq(cluster: NatsProcesses, stream: str) -> int:
    return int(cluster.app_request(f"$JS.API.STREAM.INFO.{stream}")["state"]["last_seq"])


def save(cluster: NatsProcesses, stream: str, directory: Path) -> dict[str, Any]:
    options: dict[str, Any] = {"streams": [f"APP/{stream}"], "path": str(directory)}
    users = cluster.account_users()
    result = run_in_process("nats_backup", cluster.app_connection(), account_users=users, **options)
    assert not result.get("failed"), result
    (row,) = result["streams"]
    return dict(row)


def save_in_time(cluster: NatsProcesses, stream: str, directory: Path) -> float:
    """Save messages before they expire, which may take more than one attempt; return the time at which they were
    stored."""
    for _attempt in range(10):
        asyncio.run(fill_briefly(cluster, stream))
        filled = time.time()
        result = save(cluster, stream, directory)
        if result["backup"]["contents"]["messages"] == 10:
            return filled
        shutil.rmtree(result["path"])
    raise AssertionError(f"{stream} was not saved with its messages within {BRIEF} s")


@pytest.fixture
def backups(saved: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the backup, which a test may change. The directory contains nothing else before and after the test."""
    copy = Path(shutil.copytree(saved, tmp_path / "here" / "backup"))
    yield copy
    assert list(copy.parent.iterdir()) == [copy]


def drill(directory: Path, version: str, check_mode: bool = False, **options: Any) -> dict[str, Any]:
    options = {"directory": str(directory), "binary": binary(version), **options}
    return run_in_process("nats_backup_drill", {}, check_mode=check_mode, **options)


def read_proof(directory: Path, stream: str) -> dict[str, Any]:
    return dict(load_catalogue(DirectoryStore(directory)).streams[stream].proof or {})


def backup_path(directory: Path, stream: str) -> Path:
    return next(directory.glob(f"APP/{stream}@*"))


def refused(result: dict[str, Any], code: str) -> str:
    assert result.get("failed"), result
    assert result["failure"]["code"] == code, result
    return str(result["msg"])


def test_every_kind_of_stream_is_proven_in_its_turn(backups: Path, version: str) -> None:
    names = {f"APP/{path.name.partition('@')[0]}" for path in backups.glob("APP/*@*")}
    assert len(names) == (6 if version == OLD else 8)
    seen = []
    for _stream in names:
        predicted = drill(backups, version, check_mode=True)
        result = drill(backups, version)
        assert not result.get("failed"), result
        assert (predicted["proof"], predicted["seconds"]) == (None, None)
        assert all(predicted[key] == result[key] for key in ("stream", "path", "bytes", "room", "changed"))
        told = json.loads((Path(result["path"]) / "backup.json").read_text())
        proof = result["proof"]
        assert proof == read_proof(backups, result["stream"])
        assert (proof["ok"], proof["reason"], proof["server_version"]) == (True, "", version)
        assert (proof["digest"], proof["messages"]) == (told["contents"]["digest"], told["contents"]["messages"])
        assert proof["path"] == f"APP/{Path(result['path']).name}"
        assert proof["seconds"] == result["seconds"] > 0
        seen.append(result["stream"])
    assert (set(seen), seen) == (names, sorted(names))
    assert drill(backups, version, check_mode=True)["stream"] == seen[0]


def test_a_newer_server_proves_an_older_archive_and_not_the_other_way_round(backups: Path, version: str) -> None:
    other = NEW if version == OLD else OLD
    result = drill(backups, other, stream="APP/ORDERS")
    if version == OLD:
        assert result["proof"]["ok"] and result["server_version"] == NEW
        return
    assert f"cannot be read by {OLD}" in refused(result, "unsupported")
    assert load_catalogue(DirectoryStore(backups)).streams == {}


def test_a_flipped_byte_is_found_and_the_next_run_continues(backups: Path, version: str) -> None:
    archive = backup_path(backups, "AUDIT") / ARCHIVE
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 4
    archive.write_bytes(data)
    assert str(archive) in refused(drill(backups, version, check_mode=True), "damaged")
    assert load_catalogue(DirectoryStore(backups)).streams == {}
    told = refused(drill(backups, version), "damaged")
    proof = read_proof(backups, "APP/AUDIT")
    assert (proof["ok"], proof["reason"], proof["seconds"]) == (False, told, None)
    assert drill(backups, version, check_mode=True)["stream"] == "APP/BRIEF"


def test_another_archive_under_the_same_checksums_is_not_proven(backups: Path, version: str) -> None:
    """The manifest's size and SHA-256 match an archive with the same messages and sequences but different content.
    Only the restored messages reveal the different content."""
    path = backup_path(backups, "BRIEF")
    data = (path / ARCHIVE).read_bytes()
    told = change_manifest(
        path, contents={**json.loads((path / "backup.json").read_text())["contents"], "digest": "0" * 64}
    )
    reason = refused(drill(backups, version, stream="APP/BRIEF"), "not_proven")
    assert reason.startswith("APP/BRIEF was restored differently")
    assert f"digest of its messages is {told['contents']['digest']} instead of {'0' * 64}" in reason
    assert read_proof(backups, "APP/BRIEF")["reason"] == reason
    assert hashlib.sha256(data).hexdigest() == told["sha256"]


def test_a_consumer_that_comes_back_elsewhere_is_not_proven(backups: Path, version: str) -> None:
    """The consumer's position in the archive differs from that in the manifest."""
    path = backup_path(backups, "COPY")
    (entry,) = json.loads((path / "backup.json").read_text())["consumers"]
    assert entry["in_archive"] and entry["ack_floor"]["stream_seq"] == 5
    entry["ack_floor"]["stream_seq"] = 4
    change_manifest(path, consumers=[entry])
    reason = refused(drill(backups, version, stream="APP/COPY"), "not_proven")
    assert "consumer reader is at 5 instead of 4" in reason
    assert read_proof(backups, "APP/COPY")["ok"] is False


def test_a_run_that_has_the_directory(backups: Path, version: str) -> None:
    with DirectoryStore(backups).locked():
        assert str(os.getpid()) in refused(drill(backups, version), "locked")


# --- the server ---------------------------------------------------------------------------------------------------------


def wrapped(path: Path, version: str, before: str) -> str:
    """Write a nats-server that first does something in its directory, and return its path."""
    real = binary(version)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\n{before}\nexec {real} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_server_that_does_not_start(backups: Path, version: str, tmp_path: Path) -> None:
    bad = wrapped(tmp_path / "nats-server", version, "cp server.conf .. && echo '{ no: [' > server.conf")
    told = refused(drill(backups, version, binary=bad), "not_started")
    assert "has ended with 1 after its start:\n" in told and len(told.splitlines()) <= 6
    conf = backups.parent / "server.conf"
    mode, text = conf.stat().st_mode & 0o777, json.loads(conf.read_text())
    conf.unlink()
    assert mode & 0o077 == 0
    assert text["host"] == "127.0.0.1" and text["accounts"]["DRILL"]["users"][0]["password"] not in told
    assert load_catalogue(DirectoryStore(backups)).streams == {}


ENDS = """#!{python}
import json, os, socket, sys
if "--version" in sys.argv:
    os.execv({real!r}, sys.argv)
listener = socket.create_server(("127.0.0.1", 0))
with open("new", "w") as file:
    json.dump({{"nats": [f"nats://127.0.0.1:{{listener.getsockname()[1]}}"]}}, file)
os.rename("new", "new.ports")
print("its last words", flush=True)
listener.accept()
os._exit(3)
"""


def test_a_server_that_ends_during_a_drill(backups: Path, version: str, tmp_path: Path) -> None:
    """The server exits as soon as a client connects."""
    bad = tmp_path / "nats-server"
    bad.write_text(ENDS.format(python=sys.executable, real=binary(version)))
    bad.chmod(0o755)
    told = refused(drill(backups, version, binary=str(bad)), "unreachable")
    assert told.endswith("the throw-away server has ended with 3:\n  its last words")
    assert read_proof(backups, "APP/AUDIT")["reason"] == told


RUN = """
import json, sys
from support.module_runs import run_in_process
print(run_in_process("nats_backup_drill", {}, **json.loads(sys.argv[1])))
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_no_server_outlives_the_module(backups: Path, version: str, tmp_path: Path, by: signal.Signals) -> None:
    """The module is killed while the server is running and the module is waiting for the file with the server's
    port."""
    noted = tmp_path / "pid"
    mute = wrapped(tmp_path / "nats-server", version, f"sed -i /ports_file_dir/d server.conf; echo $$ > {noted}")
    options = {"directory": str(backups), "binary": mute}
    environment = {"PYTHONPATH": f"{Path(__file__).parents[1]}:{collections_path()}", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen([sys.executable, "-c", RUN, json.dumps(options)], env=environment) as module:
        try:
            assert wait_until(lambda: "Server is ready" in log_below(backups.parent), bool, 30, 0.02).done
            server = int(noted.read_text())
            assert os.readlink(f"/proc/{server}/exe") == os.path.realpath(binary(version))
            module.send_signal(by)
            module.wait(20)
        finally:
            module.kill()
    assert wait_until(lambda: runs(server), lambda running: not running, 5, 0.02).done
    left = [path for path in backups.parent.iterdir() if path != backups]
    assert bool(left) == (by == signal.SIGKILL)
    assert load_catalogue(DirectoryStore(backups)).streams == {}
    assert drill(backups, version)["proof"]["ok"]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def log_below(directory: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in directory.glob(".natsops-*/server.log"))
