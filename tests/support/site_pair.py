# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two sites: the domain `east`, whose streams receive the messages, and the domain `west`, which connects to it as a
leafnode and mirrors the streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.load import acknowledge, fetch, publish_stored
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, free_ports

Run = Callable[..., dict[str, Any]]
STREAM, SUBJECT = "ORDERS", "orders"


@dataclass
class Producer:
    """A producer's record: the sequence of each acknowledged message, by message id."""

    url: str
    acknowledged: dict[str, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self, prefix: str = "m") -> None:
        """Publish one message after another, 16 at once, until the producer is stopped or the server is down."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work(prefix)))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(30)
        self._stop.clear()

    def wait_for(self, count: int) -> None:
        assert wait_until(lambda: len(self.acknowledged), lambda seen: seen >= count, 30).done

    async def _work(self, prefix: str) -> None:
        async def ignore(_error: Exception) -> None:
            """The origin is killed while messages are being published."""

        connection = await nats.connect(
            self.url, user=APP_USER, password=APP_PASSWORD, error_cb=ignore, allow_reconnect=False
        )
        stream = connection.jetstream(timeout=10)

        async def one(number: int) -> None:
            ident = f"{prefix}-{number}"
            try:
                ack = await publish_stored(stream, f"{SUBJECT}.{number % 5}", ident.encode(), ident)
            except Exception:  # not acknowledged, so not recorded
                self._stop.set()
                return
            self.acknowledged[ident] = ack.seq

        number = 0
        while not self._stop.is_set():
            await asyncio.gather(*(one(number + offset) for offset in range(16)))
            number += 16
        if connection.is_connected:
            await connection.close()


class Link:
    """The network between the sites: connections to `port` are forwarded to the other site unless the link is cut."""

    def __init__(self, port: int, other: int) -> None:
        self._other = other
        self._sockets: list[socket.socket] = []
        self._whole = True
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole = False
        while self._sockets:
            _close(self._sockets.pop())

    def mend(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        _close(self._server)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _address = self._server.accept()
                try:
                    if not self._whole:
                        raise ConnectionRefusedError
                    far = socket.create_connection(("127.0.0.1", self._other))
                except OSError:
                    near.close()
                    continue
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_forward, args=pair, daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _close(source)
    _close(target)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class SitePair:
    """The origin and the second site, and the modules that tests run on them."""

    def __init__(self, version: str, directory: Path, run_module: Run) -> None:
        port, link = free_ports(2)
        self.link = Link(link, port)
        self.version = version
        self._run_module = run_module
        for name in ("east", "west"):
            (directory / name).mkdir(parents=True)
        login = "authorization { users: [{user: leaf, password: pw, account: APP}] }"
        listener = f'leafnodes {{ listen: "127.0.0.1:{port}", advertise: "127.0.0.1:{link}", {login} }}'
        remote = (
            f'leafnodes {{ reconnect: 1, remotes: [{{ url: "nats-leaf://leaf:pw@127.0.0.1:{link}", account: APP }}] }}'
        )
        options: dict[str, Any] = {"cluster": ""}
        self.east = NatsProcesses(
            version, directory / "east", ["e1"], extra=listener, jetstream_options="domain: east", **options
        )
        self.west = NatsProcesses(
            version, directory / "west", ["w1"], extra=remote, jetstream_options="domain: west", **options
        )
        self.clients: list[Client] = []

    def start(self) -> None:
        self.east.start()
        self.west.start()
        self.east_api, self.west_api = self._api(self.east), self._api(self.west)
        for api in (self.east_api, self.west_api):
            wait_until(api.info, bool, 20)
        through = JetStreamApi(self._client(self.west, "east"), "APP")
        wait_until(through.info, bool, 20)

    def kill(self) -> None:
        for client in self.clients:
            client.close()
        self.east.kill()
        self.west.kill()
        self.link.close()

    def _client(self, side: NatsProcesses, domain: str | None = None) -> Client:
        options = ConnectionOptions(tuple(side.urls), APP_USER, APP_PASSWORD, timeout=5, jetstream_domain=domain)
        self.clients.append(Client(options))
        return self.clients[-1]

    def _api(self, side: NatsProcesses) -> JetStreamApi:
        return JetStreamApi(self._client(side), "APP")

    def add_stream(self, **config: Any) -> None:
        """Create the stream, and a mirror of the same name at the second site."""
        base = {"name": STREAM, "storage": "file", "retention": "limits", "discard": "old", "num_replicas": 1}
        wanted = {**base, "subjects": [f"{SUBJECT}.>"], **config}
        wait_until(lambda: self.east_api.create_stream(wanted), bool, 20)
        mirror = {"name": STREAM, "external": {"api": "$JS.east.API", "deliver": ""}}
        wait_until(lambda: self.west_api.create_stream({**base, "mirror": mirror}), bool, 20)

    def add_consumer(self, name: str, **config: Any) -> None:
        self.east_api.save_consumer(
            STREAM, {"name": name, "durable_name": name, "ack_policy": "explicit", **config}, ""
        )

    def consume(
        self,
        name: str,
        count: int,
        ack: Callable[[int], bool] = lambda _seq: True,
        site: NatsProcesses | None = None,
        stream: str = STREAM,
    ) -> None:
        """Fetch messages of a consumer, at the origin by default, and acknowledge each message whose sequence `ack`
        accepts."""

        async def work() -> None:
            connection = await nats.connect((site or self.east).urls, user=APP_USER, password=APP_PASSWORD)
            subscription = await connection.jetstream().pull_subscribe_bind(consumer=name, stream=stream)
            for message in await fetch(subscription, count):
                if ack(message.metadata.sequence.stream):
                    await acknowledge(message)
            await connection.close()

        asyncio.run(work())

    def publish(self, side: NatsProcesses, subject: str, body: bytes = b"x", ident: str = "") -> dict[str, Any]:
        async def work() -> dict[str, Any]:
            connection = await nats.connect(side.urls, user=APP_USER, password=APP_PASSWORD)
            try:
                headers = {"Nats-Msg-Id": ident} if ident else None
                ack = await connection.jetstream(timeout=3).publish(subject, body, headers=headers)
                return {"stream": ack.stream, "seq": ack.seq, "duplicate": bool(ack.duplicate)}
            finally:
                await connection.close()

        return asyncio.run(work())

    @contextlib.contextmanager
    def listening(self, side: NatsProcesses, *subjects: str) -> Iterator[list[str]]:
        """Yield a list of the subjects of all messages that an application at this site receives inside the context."""
        received: list[str] = []
        ready, stop = threading.Event(), threading.Event()

        async def work() -> None:
            connection = await nats.connect(side.urls, user=APP_USER, password=APP_PASSWORD)

            async def note(message: Any) -> None:
                received.append(message.subject)

            for subject in subjects:
                await connection.subscribe(subject, cb=note)
            await connection.flush()
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)
            await connection.flush()
            await connection.close()

        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        assert ready.wait(20)
        try:
            yield received
        finally:
            stop.set()
            thread.join(20)

    def in_step(self) -> None:
        """Wait until the mirror has all messages of its origin."""

        def lacking() -> int:
            last = self.east_api.stream(STREAM)["state"]["last_seq"]
            return int(last - self.west_api.stream(STREAM)["state"]["last_seq"])

        assert wait_until(lacking, lambda count: count == 0, 20).done

    def run(self, name: str, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        sides = {
            "origin": {"name": "east", "servers": self.east.urls, "jetstream_domain": "east"},
            "site": {"name": "west", "servers": self.west.urls, "jetstream_domain": "west"},
            "streams": [{"stream": STREAM}],
        }
        connection = {"user": APP_USER, "password": APP_PASSWORD, "timeout": 2}
        return self._run_module(name, connection, check_mode, **{**sides, **options})

    def done(self, name: str, **options: Any) -> dict[str, Any]:
        result = self.run(name, **options)
        assert not result.get("failed"), result
        return result

    def refused(self, name: str, code: str, **options: Any) -> str:
        """Run a module in check mode and for real, check that both runs refuse, and return the message."""
        results = [self.run(name, check_mode=check_mode, **options) for check_mode in (True, False)]
        for result in results:
            assert result.get("failed"), result
            assert result["failure"]["code"] == code, result
        return str(results[1]["msg"])

    def status(self, **options: Any) -> dict[str, Any]:
        (row,) = self.done("nats_dr_info", **options)["streams"]
        return dict(row)

    def stored(self, api: JetStreamApi, stream: str) -> dict[int, str]:
        """Return the body of each message by its sequence."""
        import base64

        state = api.stream(stream)["state"]
        sequences = range(max(state["first_seq"], 1), state["last_seq"] + 1)
        answers = api.call_many([(f"STREAM.MSG.GET.{stream}", {"seq": sequence}) for sequence in sequences])
        found = {}
        for sequence, answer in zip(sequences, answers):
            if isinstance(answer, NatsFailure):
                assert answer.err_code == 10037, answer.description
                continue
            found[sequence] = base64.b64decode(answer["message"].get("data", "")).decode()
        return found
