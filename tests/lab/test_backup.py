# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose disks are wiped is restored from its backups by the playbooks, and compared with its producers'
records."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nats.js.errors
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.table import table
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from nats.aio.client import Client
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ObjectStoreConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamSource,
    StreamState,
)
from support.controller import Controller, Run, download_wheels, file_install
from support.documents import Document
from support.lab_cluster import AWKWARD, Cluster
from support.load import Ledger, acknowledge, fetch, patiently, publish_stored
from support.nats_processes import binary

#: One host of each zone.
HOSTS = ["n1-c1", "n3-c1", "n5-c1"]
#: The sequence, subject and body of a message.
Stored = dict[int, tuple[str, bytes]]


class Books:
    """The records of a cluster's producers and consumers: the messages of each stream and the ack floor of its
    consumer."""

    def __init__(self, count: int, version: str) -> None:
        self.count = count
        self.version = version
        self.messages: dict[str, Stored] = {}
        self.floors: dict[str, int] = {}

    async def fill(self, client: Client) -> None:
        """Create streams of all kinds with messages, and consumers that have acknowledged some of them."""
        jetstream = client.jetstream(timeout=10)
        for number in range(self.count):
            await self._stream(jetstream, number, f"S{number}" if number else "ORDERS")
        bucket = await patiently(partial(jetstream.create_key_value, bucket="SETTINGS", history=2, replicas=3))
        for number in range(20):
            await patiently(partial(bucket.put, f"key{number % 7}", str(number).encode()))
        files = ObjectStoreConfig(replicas=1)
        objects = await patiently(partial(jetstream.create_object_store, bucket="FILES", config=files))
        await patiently(partial(objects.put, "blob", bytes(range(256)) * 1000))
        copy = StreamConfig(name="COPY", mirror=StreamSource(name="ORDERS"), num_replicas=1)
        await patiently(partial(jetstream.add_stream, copy))
        async with asyncio.timeout(30):
            while (await info(client, "COPY")).messages < len(self.messages["ORDERS"]):
                await asyncio.sleep(0.1)
        for name in ("KV_SETTINGS", "OBJ_FILES", "COPY"):
            self.messages[name] = await read(client, name)

    async def _stream(self, jetstream: Any, number: int, name: str) -> None:
        queue = number % 5 == 4
        memory = number % 7 == 6 and self.version != "2.10.27"
        config = StreamConfig(
            name=name,
            subjects=[f"s{number}.>"],
            num_replicas=1 if number % 3 == 1 else 3,
            retention=RetentionPolicy.WORK_QUEUE if queue else RetentionPolicy.LIMITS,
            storage=StorageType.MEMORY if memory else StorageType.FILE,
        )
        await patiently(partial(jetstream.add_stream, config))
        worker = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)
        await patiently(partial(jetstream.add_consumer, name, worker))
        stored: Stored = {}
        for message in range(15):
            subject, body = f"s{number}.{message % 3}", f"{name} {message} ".encode() * (message + 1)
            # Because of its id, the message is stored only once, however often it is sent.
            ack = await patiently(partial(publish_stored, jetstream, subject, body, f"{name}-{message}"))
            stored[ack.seq] = (subject, body)
        pull = await jetstream.pull_subscribe_bind(consumer="worker", stream=name)
        for taken in await fetch(pull, 5):
            await acknowledge(taken)
        await pull.unsubscribe()
        if not queue:
            await patiently(partial(jetstream.delete_msg, name, 8))
        for sequence in range(1, 6) if queue else (8,):
            del stored[sequence]
        self.messages[name], self.floors[name] = stored, 5

    async def differences(self, client: Client) -> list[str]:
        """Print the records next to the cluster's content, and return the differences."""
        jetstream = client.jetstream(timeout=10)
        wrong, cells = [], []
        for name, wanted in self.messages.items():
            found = await read(client, name)
            if found != wanted:
                wrong.append(f"{name}: other messages")
            row = [name, str(len(wanted)), str(sum(found.get(seq) == one for seq, one in wanted.items())), "", ""]
            if name in self.floors:
                have = (await patiently(partial(jetstream.consumer_info, name, "worker"))).ack_floor.stream_seq
                row[3:] = [str(self.floors[name]), str(have)]
                if have != self.floors[name]:
                    wrong.append(f"{name}: ack floor {have} instead of {self.floors[name]}")
            cells.append(row)
        columns = ["stream", "messages written down", "the same there", "ack floor written down", "there"]
        print(table("books and cluster", columns, cells))
        return wrong


async def load_differences(client: Client, ledgers: Sequence[Ledger], before: Sequence[int]) -> list[str]:
    """Return the differences for a stream to which a load was writing during the backup. The restored stream may end at
    any message after those that were recorded `before`, and must equal the beginning of each producer's record."""
    wrong = []
    for ledger, count in zip(ledgers, before):
        stored = await read(client, ledger.stream)
        found = [body.decode() for _seq, (subject, body) in sorted(stored.items()) if subject == ledger.subject]
        print(
            f"{ledger.subject}: {count} written down before the backup, {len(found)} there, {len(ledger.acknowledged)} in all"
        )
        if found != ledger.acknowledged[: len(found)] or len(found) < count:
            wrong.append(f"{ledger.subject}: not the acknowledged messages")
    return wrong


def whole_list(run: Run) -> str:
    """Return every line of a result, from the file that its last line points to."""
    found = re.search(r"All [\d,]+ lines: ([^\s\"]+)", run.output)
    assert found, run.output
    return Path(found[1]).read_text()


async def info(client: Client, stream: str) -> StreamState:
    return (await patiently(partial(client.jetstream(timeout=10).stream_info, stream))).state


async def read(client: Client, stream: str) -> Stored:
    """Return every message of a stream, read one by one."""
    jetstream = client.jetstream(timeout=10)
    state = await info(client, stream)
    found: Stored = {}
    for sequence in range(state.first_seq, state.last_seq + 1):
        try:
            message = await patiently(partial(jetstream.get_msg, stream, sequence), nats.js.errors.NotFoundError)
        except nats.js.errors.NotFoundError:
            continue
        found[sequence] = (message.subject or "", message.data or b"")
    return found


def assert_encrypted(cluster: Cluster) -> None:
    """Check that the hosts' files of ORDERS, which is on all hosts, do not contain readable messages."""
    message = "ORDERS 14 ORDERS 14"
    for host in HOSTS:
        block = "/nats/storage/jetstream/APP/streams/ORDERS/msgs/*.blk"
        cluster.controller.lab.exec(host, f"cat {block} | grep -q .")
        found = cluster.controller.lab.exec(host, f"grep -rlF '{message}' /nats/storage", check=False)
        assert (found.returncode, found.stdout) == (1, ""), found


@pytest.fixture
def cluster(request: pytest.FixtureRequest, shared_controller: Controller) -> Iterator[Cluster]:
    """A cluster of three of the lab's hosts, with the nats-server version that the test selects, and with encrypted
    stores."""
    shared_controller.lab.renew_only(*HOSTS)
    made = Cluster(shared_controller)
    made.host_variables = {host: made.host_variables[host] for host in HOSTS}
    made.variables.update(file_install(request.param))
    made.variables["nats_server_jetstream_encryption_key"] = "of the lab"
    made.variables["nats_cluster_account_users"] = [
        {"account": "APP", "user": "number", "password": AWKWARD["number"]},
    ]
    run = made.deploy()
    assert run.status == 0, run.output
    yield made


class Handbook:
    """The commands of the handbook, run in order; the times in them are replaced by times from the catalogue."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.commands = [
            shlex.split(command.text, comments=True)
            for block in Document("docs/backup.md").of("shell")
            if block.heading != "Every night"  # below
            for command in block.commands
        ]

    def catalogue(self) -> dict[str, Any]:
        return json.loads((self.directory / "catalogue.json").read_text())

    def follow(self, *expected: str) -> list[Run]:
        """Run the next commands, which must be these playbooks, and return their runs."""
        runs = []
        for playbook in expected:
            words = self.commands.pop(0)
            assert words[:2] == ["ansible-playbook", f"natsops.jetstream.{playbook}"], words
            given = words[words.index("-e") + 1] if "-e" in words else "{}"
            if "@" in given:
                taken = next(row["taken"] for row in self.catalogue()["backups"] if row["stream"] == "ORDERS")
                given = re.sub(r"@[^\"]+", f"@{taken.partition('.')[0]}Z", given)
            run = self.cluster.play(playbook, check="--check" in words, extra_vars=json.loads(given))
            assert run.status == 0, run.output
            runs.append(run)
        return runs


@pytest.mark.parametrize(
    "cluster, restored_by, streams",
    [
        ("2.10.27", "2.15.1", 10),
        *(
            pytest.param(version, restored_by, 50, marks=pytest.mark.chaos)
            for version, restored_by in (("2.10.27", "2.10.27"), ("2.10.27", "2.15.1"), ("2.15.1", "2.15.1"))
        ),
    ],
    indirect=["cluster"],
)
def test_wiped_disks(
    cluster: Cluster, restored_by: str, streams: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    version = request.node.callspec.params["cluster"]
    books = Books(streams, version)
    cluster.variables["nats_cluster_backup_directory"] = str(tmp_path / "backups")
    cluster.variables["nats_cluster_backup_drill_binary"] = binary(version)
    handbook = Handbook(cluster, tmp_path / "backups")

    async def fill() -> None:
        async with cluster.client(reconnect=True) as client:
            await books.fill(client)

    async def delete_orders() -> None:
        async with cluster.client(reconnect=True) as client:
            await client.jetstream(timeout=10).delete_stream("ORDERS")

    async def differences() -> list[str]:
        async with cluster.client(reconnect=True) as client:
            return await books.differences(client)

    async def differences_of_load() -> list[str]:
        async with cluster.client(reconnect=True) as client:
            return await load_differences(client, load.ledgers, before)

    cluster.controller.run(fill(), timeout=120)
    assert_encrypted(cluster)
    with cluster.load(streams=["LOAD3"]) as load:
        assert wait_until(lambda: load.report().acknowledged, lambda count: count > 60, 60).done
        before = [len(ledger.acknowledged) for ledger in load.ledgers]
        handbook.follow("backup", "backup")
    told = {row["stream"] for row in handbook.catalogue()["backups"]}
    assert told == {*books.messages, "LOAD3", "KV_LOAD_KV"}
    unchanged = cluster.play("backup", nats_cluster_backup_exclude=["*/*LOAD*"])
    assert unchanged.status == 0 and unchanged.changed == [], unchanged.output

    (drilled,) = handbook.follow("backup_drill")
    proofs = [record["proof"] for record in handbook.catalogue()["streams"].values() if record["proof"]]
    assert [proof["ok"] for proof in proofs] == [True]
    assert "is proven" in drilled.output

    cluster.controller.run(delete_orders())
    planned, restored = handbook.follow("restore", "restore")
    assert planned.output.count("will be created") == restored.output.count("contents same") == 1
    assert cluster.controller.run(differences(), timeout=300) == []

    # Only the hosts' addresses and the SSH login key are left.
    cluster.controller.lab.renew(*HOSTS)
    cluster.variables.update(file_install(restored_by))
    _deployed, restored = handbook.follow("deploy", "restore")
    assert handbook.commands == []
    # The count appears in the plan and in the result.
    count = len(told)
    assert restored.output.count(f"{count} of {count}") == 2, restored.output
    lines = whole_list(restored)
    assert lines.count("contents same") >= len(books.messages)
    print(lines)
    assert cluster.controller.run(differences(), timeout=300) == []
    assert cluster.controller.run(differences_of_load(), timeout=300) == []
    assert_encrypted(cluster)
    cluster.wait_until_healthy()
    again = cluster.play("restore", nats_cluster_restore_streams=["APP"])
    assert again.status == 0 and again.changed == [], again.output


WHEELS = """
- hosts: n1-c1
  gather_facts: false
  tasks:
    - ansible.builtin.copy: {src: "{{ wheels }}/", dest: /root/wheels/, mode: "0644"}
      become: true
"""


@pytest.mark.parametrize("cluster", ["2.15.1"], indirect=True)
def test_a_timer_saves_the_streams(cluster: Cluster, tmp_path: Path) -> None:
    """The timer runs as a separate user, who may write only to the backup directory."""
    ssh = cluster.controller.ssh
    books = Books(3, "2.15.1")

    async def fill() -> None:
        async with cluster.client(reconnect=True) as client:
            await books.fill(client)

    cluster.controller.run(fill(), timeout=120)
    copy = tmp_path / "wheels.yml"
    copy.write_text(WHEELS)
    run = cluster.controller.playbook(copy, extra_vars={"wheels": str(download_wheels(tmp_path / "wheels"))})
    assert run.status == 0, run.output
    timer = {
        "nats_cluster_backup_host": "n1-c1",
        "nats_cluster_backup_directory": "/srv/backup",
        "nats_cluster_backup_timer_calendar": "*:*:0/10",
        "nats_cluster_backup_timer_pip_arguments": ["--no-index", "--find-links=/root/wheels"],
    }
    run = cluster.play("backup_timer", check=True, extra_vars=timer)
    assert run.status == 0, run.output
    assert ssh("n1-c1", "test -e /opt/nats-backup", check=False).returncode == 1
    run = cluster.play("backup_timer", extra_vars=timer)
    assert run.status == 0, run.output
    assert AWKWARD["number"] not in re.findall(r'"password": "([^"]*)"', run.output)
    read = "cat /srv/backup/catalogue.json"
    assert wait_until(lambda: ssh("n1-c1", read, check=False).stdout, bool, 60).done, ssh(
        "n1-c1", "journalctl --no-pager -u nats-backup"
    ).stdout
    catalogue = json.loads(ssh("n1-c1", read).stdout)
    assert {row["stream"] for row in catalogue["backups"]} == set(books.messages)
    assert ssh("n1-c1", "stat -c '%U %a' /srv/backup/catalogue.json").stdout.split() == ["nats-backup", "600"]
    assert ssh("n1-c1", "stat -c '%U %a' /opt/nats-backup/settings.json").stdout.split() == ["root", "640"]
    ssh("n1-c1", "systemd-analyze security --no-pager --threshold=20 nats-backup")
    again = cluster.play("backup_timer", extra_vars=timer)
    assert (again.status, again.changed) == (0, []), again.output
    # Only one run at a time can write to the directory.
    ssh("n1-c1", "systemctl stop nats-backup.timer")

    def writer() -> str:
        return ssh("n1-c1", "systemctl is-active nats-backup", check=False).stdout.strip()

    assert wait_until(writer, "inactive".__eq__, 60).done
    run = cluster.play(
        "backup",
        host_vars={
            "n1-c1": {"ansible_python_interpreter": "/opt/nats-backup/venv/bin/python", "ansible_pipelining": False}
        },
        extra_vars={**timer, "nats_cluster_backup_user": "nats-backup"},
    )
    assert run.status == 0, run.output
    assert ssh("n1-c1", "find /srv/backup ! -user nats-backup").stdout == ""
    run = cluster.play("backup_timer", extra_vars={**timer, "nats_cluster_backup_timer_state": "absent"})
    assert run.status == 0, run.output
    assert ssh("n1-c1", "systemctl cat nats-backup.timer", check=False).returncode
    assert ssh("n1-c1", "test -e /opt/nats-backup", check=False).returncode == 1
    assert ssh("n1-c1", read).stdout
