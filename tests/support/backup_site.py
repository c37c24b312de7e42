# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose streams are backed up and restored, and a record of the messages that the producer sent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import itertools
import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import nats
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.restore_rules import position
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.error_codes import STREAM_NOT_FOUND
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import is_transient, wait_until
from nats.aio.client import Client as NatsPy
from support import load
from support.documents import CHECKOUT
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses

Run = Callable[..., dict[str, Any]]
Message = tuple[str, dict[str, str], bytes]


@dataclass
class Record:
    """The messages that a producer stored, by sequence, and for each consumer the last message that it acknowledged
    and the first one that it did not."""

    messages: dict[int, Message] = field(default_factory=dict)
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)

    def remove(self, *sequences: int) -> None:
        for sequence in sequences:
            del self.messages[sequence]

    def assert_positions(self, consumers: list[dict[str, Any]]) -> None:
        """Check that each consumer's ack floor lies between these two messages: acknowledged messages are not
        redelivered, all others are."""
        floors = {row["name"]: position(row) for row in consumers}
        assert set(floors) == set(self.positions)
        for name, (last, following) in self.positions.items():
            assert last <= floors[name] < following, (name, floors[name], last, following)


def timer_program() -> Any:
    """Return the program of the backup timer."""
    spec = importlib.util.spec_from_file_location("backup_program", CHECKOUT / "roles/nats_cluster/files/backup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["backup_program"] = module
    spec.loader.exec_module(module)
    return module


class Site:
    """A cluster with one user, and the modules that tests run on it.

    A restored stream's name is never reused. Some seconds after a restore, the stream's leader checks whether the
    consumers were assigned, and proposes them until they are. The leader also proposes these consumers to the next
    stream of that name (server/jetstream_cluster.go, processClusterCreateStream): at their old positions, or without a
    leader.
    """

    def __init__(self, cluster: NatsProcesses, run_module: Run, user: str = APP_USER) -> None:
        self.cluster = cluster
        self.user = user
        self.account = next(name for name, account_user in cluster.accounts.items() if account_user == user)
        self._run_module = run_module
        options = ConnectionOptions(tuple(cluster.urls), user, APP_PASSWORD, timeout=5)
        self.client = Client(options)
        self.api = JetStreamApi(self.client, self.account)

    def run(self, name: str, /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        """Save or restore one stream, and return the result together with the row of this stream."""
        return only_row(self._run_module(f"nats_{name}", self.cluster.app_connection(), check_mode, **options))

    def done(self, name: str, /, **options: Any) -> dict[str, Any]:
        result = self.run(name, **options)
        assert not result.get("failed"), result
        if name == "restore" and result["changed"]:
            self.cluster.restored.add((self.account, result["stream"]))
        return result

    def refused(self, name: str, code: str, /, **options: Any) -> str:
        """Run a module in check mode and for real, check that both runs refuse, and return the message."""
        results = [self.run(name, check_mode=check_mode, **options) for check_mode in (True, False)]
        for result in results:
            assert result.get("failed"), result
            assert result["failure"]["code"] == code, result
        assert results[0]["msg"] == results[1]["msg"]
        return results[1]["msg"]

    def clear(self) -> None:
        def left() -> list[str]:
            names = self.api.stream_names()
            for name in names:
                with contextlib.suppress(NatsFailure):
                    self.api.delete_stream(name)
            return names

        seen = wait_until(left, lambda names: not names, 20)
        assert seen.done, seen.value

    def produce(self, messages: list[Message], record: Record | None = None) -> Record:
        """Store messages and return the acknowledged ones."""
        found = record or Record()

        async def work() -> None:
            connection = await self.connect()
            try:
                stream = connection.jetstream(timeout=10)
                for subject, headers, body in messages:
                    ack = await stream.publish(subject, body, headers=headers or None)
                    found.messages[ack.seq] = (subject, headers, body)
            finally:
                await connection.close()

        asyncio.run(work())
        return found

    def produce_until(self, stop: threading.Event, subject: str, record: Record) -> threading.Thread:
        """Store messages one after another until `stop` is set, and record their acknowledgements."""

        async def work() -> None:
            connection = await self.connect()
            try:
                stream = connection.jetstream(timeout=10)
                for number in itertools.count():
                    if stop.is_set():
                        return
                    message: Message = (subject, {}, f"{number} ".encode() * 300)
                    record.messages[(await stream.publish(subject, message[2])).seq] = message
            finally:
                await connection.close()

        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        return thread

    def consume(
        self, stream: str, consumer: str, record: Record, subject: str = "", fetch: int = 0, ack: int = 0, skip: int = 0
    ) -> None:
        """Fetch messages of a consumer with this filter and acknowledge the first ones, except the skipped messages."""
        wanted = sorted(seq for seq, message in record.messages.items() if subject in ("", message[0]))

        async def work() -> list[int]:
            connection = await self.connect()
            try:
                subscription = await connection.jetstream(timeout=10).pull_subscribe_bind(
                    consumer=consumer, stream=stream
                )
                fetched = await load.fetch(subscription, fetch)
                for message in fetched[skip:ack]:
                    await load.acknowledge(message)
                return [message.metadata.sequence.stream for message in fetched]
            finally:
                await connection.close()

        if fetch:
            assert asyncio.run(work()) == wanted[:fetch]
        record.positions[consumer] = (wanted[ack - 1] if ack else 0, wanted[ack])

    async def connect(self) -> NatsPy:
        living = [self.cluster.url(name) for name in self.cluster.processes]
        return await nats.connect(living, user=self.user, password=APP_PASSWORD)

    def add(self, stream: str, replicas: int = 1, **config: Any) -> None:
        assert (self.account, stream) not in self.cluster.restored, f"{stream} was restored: take another name"
        self.cluster.add_stream(stream, replicas, self.account, **config)

    def stored(self, stream: str) -> dict[int, Message]:
        """Return every message of a stream, read one by one."""
        state = self.api.stream(stream)["state"]
        sequences = range(state["first_seq"], state["last_seq"] + 1)
        requests = [(f"STREAM.MSG.GET.{stream}", {"seq": sequence}) for sequence in sequences]

        def unready(answer: Any) -> bool:
            """Return whether a group is electing a leader, or a server has not yet received a stream's assignment."""
            return isinstance(answer, NatsFailure) and (is_transient(answer) or answer.err_code == STREAM_NOT_FOUND)

        answers = wait_until(
            lambda: self.api.call_many(requests), lambda read: not any(unready(one) for one in read), 60
        ).value
        found = {}
        for sequence, answer in zip(sequences, answers):
            if isinstance(answer, NatsFailure):
                assert answer.err_code == 10037, answer.description
                continue
            message = answer["message"]
            found[sequence] = (
                message["subject"],
                parse_headers(base64.b64decode(message.get("hdrs", ""))),
                base64.b64decode(message.get("data", "")),
            )
        assert len(found) == state["messages"]
        return found

    def assert_restored(self, stream: str, record: Record) -> None:
        """Check that a stream has every recorded message and consumer position, and nothing else."""
        assert self.stored(stream) == record.messages
        record.assert_positions(list(self.api.consumers(stream).rows))


def only_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of saving or restoring one stream together with its row. The diff is that of the result."""
    if result.get("failed"):
        return result
    (row,) = result["streams"]
    assert (row["problem"], row["code"]) == ("", ""), row
    return {**row, **result}


class Accounts:
    """Two accounts, and the modules that back them up and restore them."""

    def __init__(self, cluster: NatsProcesses, run_module: Run, directory: Path) -> None:
        self.cluster = cluster
        self.sites = {name: Site(cluster, run_module, user) for name, user in cluster.accounts.items()}
        self.directory = directory
        self._run_module = run_module

    def run(self, name: str, /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        users = [
            {"account": account, "user": user, "password": APP_PASSWORD}
            for account, user in self.cluster.accounts.items()
        ]
        given = {"directory": str(self.directory), "account_users": users, **options}
        return self._run_module(f"nats_{name}", self.cluster.sys_connection(), check_mode, **given)

    def done(self, name: str, /, **options: Any) -> dict[str, Any]:
        result = self.run(name, **options)
        assert not result.get("failed"), result["msg"]
        if name == "restore":
            self.cluster.restored |= {(row["account"], row["stream"]) for row in result["streams"] if row["changed"]}
        return result

    def refused(self, name: str, code: str, /, **options: Any) -> str:
        results = [self.run(name, check_mode=check_mode, **options) for check_mode in (True, False)]
        for result in results:
            assert result.get("failed"), result
            assert result["failure"]["code"] == code, result
        return results[1]["msg"]

    def catalogue(self) -> dict[str, Any]:
        return json.loads((self.directory / "catalogue.json").read_text())

    def clear(self) -> None:
        for site in self.sites.values():
            site.clear()


def parse_headers(block: bytes) -> dict[str, str]:
    lines = block.decode().split("\r\n")[1:]
    return {line.partition(":")[0]: line.partition(":")[2].strip() for line in lines if line}


def some_messages(prefix: str, count: int = 120) -> list[Message]:
    """Return messages of different sizes, with and without headers, one of them empty."""
    found: list[Message] = []
    for number in range(count):
        headers = {"Nats-Msg-Id": f"{prefix}-{number}", "trace": "äöü"[: number % 3] or "-"} if number % 3 == 0 else {}
        body = b"" if number == 7 else f"message {number} ".encode() * (number % 40 + 1)
        found.append((f"{prefix}.{number % 11}", headers, body))
    return found
