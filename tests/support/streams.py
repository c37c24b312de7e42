# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams of real servers, and their messages as nats-py reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import nats
import nkeys
from jetstream_insights.stream_connection import Login
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses

#: The subjects of the messages, below the stream's name, used in turn.
SUBJECTS = ("kept.a", "kept.b", "kept.c.deep", "kept.d")


@dataclass(frozen=True)
class Message:
    """A message; `headers` as they are stored, `time` in microseconds since 1970, regardless of the format in which it
    was reported."""

    subject: str
    sequence: int
    time: int | bytes
    headers: bytes | None
    data: bytes

    def __post_init__(self) -> None:
        moment = self.time
        nanoseconds = _nanoseconds(moment.decode()) if isinstance(moment, bytes) else moment
        object.__setattr__(self, "time", nanoseconds // 1000)
        if self.headers is not None:
            object.__setattr__(self, "headers", self.headers.rstrip(b"\r\n"))


def _nanoseconds(text: str) -> int:
    whole, _dot, fraction = text.rstrip("Z").partition(".")
    return int(datetime.fromisoformat(f"{whole}+00:00").timestamp()) * 10**9 + int(fraction.ljust(9, "0"))


SEED = bytes(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER))


class _WithKey(NatsProcesses):
    """Servers whose account APP also has a user with an nkey."""

    def write_config(self, name: str, extra: str = "") -> None:
        super().write_config(name, extra)
        public = nkeys.from_seed(bytearray(SEED)).public_key.decode()
        file = self.config_file(name)
        user = f"users: [{{user: {APP_USER},"
        file.write_text(file.read_text().replace(user, user.replace("[", f"[{{nkey: {public}}}, ")))


class Site:
    """Servers with one user who may do everything and one who may do nothing."""

    def __init__(self, version: str, servers: NatsProcesses) -> None:
        self.version = version
        self.servers = servers
        self.login = Login(tuple(servers.urls), user=APP_USER, password=APP_PASSWORD)

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.servers.app_request(f"$JS.API.{subject}", body)

    def wait(self) -> None:
        self.api("INFO")

    def add_stream(self, name: str, num_replicas: int = 1, **config: Any) -> None:
        self.servers.add_stream(name, num_replicas, **config)

    def consumers(self, stream: str) -> int:
        return int(self.api(f"STREAM.INFO.{stream}")["state"]["consumer_count"])

    def remove(self, stream: str, sequences: Sequence[int], purge: str = "") -> None:
        """Delete these messages, and all messages of a subject."""
        for sequence in sequences:
            self.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        if purge:
            self.api(f"STREAM.PURGE.{stream}", {"filter": purge})

    def publish(self, stream: str, many: int, begin: int = 1, headers: bool = False) -> None:
        """Publish messages numbered from `begin`, and wait until the stream has them."""
        asyncio.run(self._publish(stream, many, begin, headers))

    def publish_sizes(self, stream: str, sizes: Sequence[int]) -> None:
        """Publish messages of these sizes in bytes, one after another."""

        async def publish() -> None:
            connection = await self.connect()
            context = connection.jetstream()
            for size in sizes:
                await context.publish(f"{stream}.{SUBJECTS[0]}", b"x" * size)
            await connection.close()

        asyncio.run(publish())

    def only(self, server: str) -> None:
        """Connect only to this server from now on."""
        self.servers.processes = {
            server: self.servers.processes.pop(server),
            **self.servers.processes,
        }

    async def connect(self) -> Client:
        return await nats.connect(self.servers.urls, user=APP_USER, password=APP_PASSWORD)

    async def _publish(self, stream: str, many: int, begin: int, headers: bool) -> None:
        connection = await self.connect()
        context = connection.jetstream(publish_async_max_pending=2000)
        waiting = []
        for number in range(begin, begin + many):
            reported = {"Nats-Msg-Id": f"{number}", "Greeting": "to: you"} if headers and number % 3 == 0 else None
            subject = f"{stream}.{SUBJECTS[number % len(SUBJECTS)]}"
            waiting.append(await context.publish_async(subject, f"{number}".encode() * (number % 7), headers=reported))
        await asyncio.gather(*waiting)
        await connection.close()


async def read_messages(site: Site, stream: str) -> list[Message]:
    """Return a stream's messages, read one by one with nats-py."""
    connection = await site.connect()
    context = connection.jetstream()
    last = (await context.stream_info(stream)).state.last_seq

    async def get(sequence: int) -> Message | None:
        try:
            found = await context.get_msg(stream, sequence)
        except NotFoundError:
            return None
        assert found.subject is not None and found.seq is not None and found.time is not None
        stored = b"NATS/1.0" + b"".join(
            f"\r\n{name}: {value}".encode() for name, value in (found.headers or {}).items()
        )
        return Message(
            found.subject, found.seq, _when(found.time), stored if found.headers else None, found.data or b""
        )

    found: list[Message] = []
    for first in range(1, last + 1, 200):
        some = await asyncio.gather(*(get(sequence) for sequence in range(first, min(first + 200, last + 1))))
        found += [message for message in some if message is not None]
    await connection.close()
    return found


def _when(moment: Any) -> int:
    return round(moment.timestamp() * 10**6) * 1000


@contextmanager
def running_site(version: str, directory: Path, servers: int = 1, extra: str = "") -> Iterator[Site]:
    """Start servers, and stop them at the end."""
    processes = _WithKey(
        version,
        directory,
        [f"n{number}" for number in range(1, servers + 1)],
        cluster="C1" if servers > 1 else "",
        extra=extra,
        # The text is copied unchanged into the configuration.
        plain_accounts={"PLAIN": "plain", "POOR": 'poor, permissions: {publish: {deny: ["$JS.API.>"]}}'},
    )
    processes.start()
    try:
        found = Site(version, processes)
        found.wait()
        yield found
    finally:
        processes.kill()
