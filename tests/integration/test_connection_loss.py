# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection is lost, or becomes silent, while a call waits: each kind of call continues or ends with a NatsFailure.

A proxy between the client and a real server acts once the client has sent certain bytes, and returns nothing from then
on, so the client is guaranteed to be waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    NatsFailure,
    Observed,
    Reply,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.listener import Listener, ReceivedMessage
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from support.module_runs import Runner
from support.nats_processes import APP_PASSWORD, APP_USER, SYS_PASSWORD, SYS_USER, NatsProcesses

#: The connection's fate: closed properly, reset as by a host that lost its state, or silent.
CLOSED, RESET, SILENT = "closed", "reset", "silent"


class Proxy:
    """Forwards connections to one server until the client has sent `trigger`; then the connection meets its `fate`.

    A `gone` server then accepts no more connections; otherwise, new connections are still forwarded to the server.
    """

    def __init__(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._port = port
        self._sockets: list[socket.socket] = []
        self._trigger: bytes | None = None
        self._fate, self._gone, self._armed = CLOSED, False, 0
        self.triggered = threading.Event()
        self.url = f"nats://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, trigger: bytes, fate: str, gone: bool = False) -> None:
        """Wait for these bytes in the data that is sent from now on."""
        self._fate, self._gone, self._armed = fate, gone, self._armed + 1
        self._trigger = trigger

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, server]
                silent = threading.Event()
                threading.Thread(target=self._to_server, args=(client, server, silent), daemon=True).start()
                threading.Thread(target=self._to_client, args=(server, client, silent), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        sent, armed = b"", self._armed
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                sent = data if armed != self._armed else sent + data
                armed = self._armed
                if self._trigger is not None and self._trigger in sent and not silent.is_set():
                    silent.set()
                    self._trigger = None
                    self._meet_fate(client)
                if not silent.is_set():
                    server.sendall(data)

    def _meet_fate(self, client: socket.socket) -> None:
        self.triggered.set()
        if self._gone:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
        if self._fate == RESET:
            # Closing with SO_LINGER of 0 s sends a reset; the shutdown before it ends the other thread's recv.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        elif self._fate == CLOSED:
            client.shutdown(socket.SHUT_RDWR)

    def _to_client(self, server: socket.socket, client: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if silent.is_set():
                    return
                client.sendall(data)


@pytest.fixture
def proxy(healthy: NatsProcesses) -> Iterator[Proxy]:
    made = Proxy(healthy.ports["n1"])
    yield made
    made.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    """A client of the system account that is connected through the proxy."""
    with Client(ConnectionOptions((proxy.url,), SYS_USER, SYS_PASSWORD, timeout=2)) as made:
        made.connect()
        yield made


#: Seconds: the timeout of a patient client, and the limit for reporting a lost connection, also on a busy machine.
LONG, AT_ONCE = 20, 4


@pytest.fixture
def patient(proxy: Proxy) -> Iterator[Client]:
    """A client with a long timeout, so an early failure is not a timeout."""
    with Client(ConnectionOptions((proxy.url,), SYS_USER, SYS_PASSWORD, timeout=LONG)) as made:
        made.connect()
        yield made


STATSZ = Call("$SYS.REQ.SERVER.PING.STATSZ", idempotent=True)
#: All servers respond to this request.
ASKED = Call("$SYS.REQ.SERVER.PING.IDZ")


def gather(client: Client, call: Call) -> list[Reply]:
    replies: list[Reply] = []
    client.gather(call, lambda reply: replies.append(reply) or len(replies) == 3, on_repeat=replies.clear)  # type: ignore[func-returns-value]
    return replies


def request(client: Client, **how: Any) -> Reply:
    return client.request(Call(ASKED.subject, **how))


def publish(client: Client) -> None:
    (failure,) = client.publish([Call("natsops.lost", b"x")])
    assert failure is not None
    raise failure


def observe(client: Client) -> float:
    return client.observe(["natsops.seen"], 5, lambda _message: False)


#: Each kind of call: the bytes that the client has sent when it waits, the subject of the call, and the call.
CALLS: dict[str, tuple[bytes, str | None, Callable[[Client], Any]]] = {
    "request": (b"PUB $SYS.REQ.SERVER.PING.IDZ", ASKED.subject, request),
    "request with headers": (b"HPUB $SYS.REQ", ASKED.subject, lambda client: request(client, headers={"A": "b"})),
    "request_many": (
        b"PUB $SYS.REQ.SERVER.PING.IDZ",
        ASKED.subject,
        lambda client: [raised(outcome) for outcome in client.request_many([ASKED, ASKED])],
    ),
    "gather": (b"PUB $SYS.REQ.SERVER.PING.IDZ", ASKED.subject, lambda client: gather(client, ASKED)),
    "gather before its request": (b"\r\nSUB _INBOX", ASKED.subject, lambda client: gather(client, ASKED)),
    "tap": (
        b"PUB $SYS.REQ.SERVER.PING.IDZ",
        ASKED.subject,
        lambda client: client.tap(ASKED, lambda _subject, _reply, _data, _headers: False),
    ),
    "publish": (b"PUB natsops.lost", "natsops.lost", publish),
    "observe": (b"SUB natsops.seen", "natsops.seen", observe),
    "latency, its ping": (b"PING\r\nPING", None, Client.latency),
    "latency, its message": (b"PUB _INBOX", None, Client.latency),
}

#: The calls that the client may repeat.
READS: dict[str, tuple[bytes, Callable[[Client], Any]]] = {
    "request": (b"PUB $SYS.REQ.SERVER.PING.IDZ", lambda client: request(client, idempotent=True)),
    "gather": (b"PUB $SYS.REQ.SERVER.PING.STATSZ", lambda client: gather(client, STATSZ)),
    "discover": (b"PUB $SYS.REQ.SERVER.PING.STATSZ", lambda client: SystemApi(client).discover(["n1", "n2", "n10"])),
    "query": (b"VARZ", lambda client: SystemApi(client).ask(SystemApi(client).discover().servers, "VARZ")),
    "account statistics": (
        b"ACCOUNT.PING.STATZ",
        lambda client: SystemApi(client).account_statistics(SystemApi(client).discover().servers),
    ),
}


def raised(outcome: Reply | NatsFailure) -> Reply:
    if isinstance(outcome, NatsFailure):
        raise outcome
    return outcome


def caught_failure(call: Callable[[], Any]) -> tuple[NatsFailure, float]:
    """Return the failure of a call, and how many seconds the call took."""
    began = time.monotonic()
    with pytest.raises(NatsFailure) as failed:
        call()
    return failed.value, time.monotonic() - began


@pytest.mark.parametrize("fate", [CLOSED, RESET])
@pytest.mark.parametrize("kind", CALLS)
def test_a_call_that_loses_its_connection(proxy: Proxy, patient: Client, kind: str, fate: str) -> None:
    trigger, subject, call = CALLS[kind]
    proxy.arm(trigger, fate)
    failure, seconds = caught_failure(lambda: call(patient))
    assert proxy.triggered.is_set()
    assert (failure.code, failure.server) == ("connection_lost", proxy.url)
    assert subject is None or subject in (failure.subject or ""), failure.subject
    assert f"lost the connection to {proxy.url}" in failure.description
    assert ("reset" if fate == RESET else "EOF") in failure.description
    assert seconds < AT_ONCE, "it waited for its timeout"
    assert len(gather(patient, ASKED)) == 3, "the client does not connect again"


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_whose_connection_falls_silent(proxy: Proxy, client: Client, kind: str) -> None:
    trigger, subject, call = CALLS[kind]
    proxy.arm(trigger, SILENT)
    failure, _seconds = caught_failure(lambda: call(client))
    assert failure.code == "timeout"
    assert subject is None or subject in (failure.subject or "")


@pytest.mark.parametrize("fate", [CLOSED, RESET])
@pytest.mark.parametrize("kind", READS)
def test_read_requests_are_repeated(proxy: Proxy, client: Client, kind: str, fate: str) -> None:
    trigger, call = READS[kind]
    whole = call(client)
    proxy.arm(trigger, fate)
    again = call(client)
    assert proxy.triggered.is_set()
    if isinstance(whole, dict):
        assert not [answer for answer in again.values() if isinstance(answer, NatsFailure)]
        assert again.keys() == whole.keys()
    elif isinstance(whole, list):
        assert len(again) == len(whole) == 3
    else:
        assert isinstance(again, type(whole))


@pytest.mark.parametrize("kind", ["request", "gather"])
def test_failure_after_the_deadline_names_the_lost_connection_and_its_cause(
    proxy: Proxy, client: Client, kind: str
) -> None:
    trigger, call = READS[kind]
    proxy.arm(trigger, CLOSED, gone=True)
    failure, seconds = caught_failure(lambda: call(client))
    assert (failure.code, failure.server) == ("connection_lost", proxy.url)
    assert failure.subject is not None and failure.subject in failure.description
    assert "EOF" in failure.description
    assert f"cannot connect: {proxy.url}: connection refused" in failure.description
    assert seconds == pytest.approx(2, abs=1)


def test_a_request_that_acts_is_not_sent_twice(proxy: Proxy, patient: Client) -> None:
    proxy.arm(b"PUB $SYS.REQ", CLOSED, gone=True)
    failure, seconds = caught_failure(lambda: request(patient))
    assert "may have been carried out" in failure.description
    assert seconds < AT_ONCE
    failure, _seconds = caught_failure(lambda: request(patient))
    assert (failure.code, failure.server) == ("unreachable", proxy.url)


def test_server_whose_connection_was_lost_is_queried_last(proxy: Proxy, healthy: NatsProcesses) -> None:
    with Client(ConnectionOptions((proxy.url, healthy.url("n2")), SYS_USER, SYS_PASSWORD, timeout=2)) as client:
        client.connect()
        assert client.url == proxy.url
        proxy.arm(b"PUB $SYS.REQ", CLOSED)
        assert len(gather(client, STATSZ)) == 3
        assert client.url == healthy.url("n2")


@pytest.mark.parametrize("fate", [CLOSED, RESET, SILENT])
@pytest.mark.parametrize("trigger", [b"CONNECT", b"PING"])
def test_a_login_that_loses_its_connection(proxy: Proxy, trigger: bytes, fate: str) -> None:
    proxy.arm(trigger, fate)
    with Client(ConnectionOptions((proxy.url,), SYS_USER, SYS_PASSWORD, timeout=1)) as client:
        failure, _seconds = caught_failure(client.connect)
        assert (failure.code, failure.server) == ("unreachable", proxy.url)
        client.connect()


@pytest.mark.parametrize("fate", [CLOSED, RESET, SILENT])
def test_a_lost_connection_can_be_closed(proxy: Proxy, client: Client, fate: str) -> None:
    proxy.arm(b"PUB natsops.lost", fate)
    caught_failure(lambda: publish(client))
    client.close()
    client.close()


def test_unsendable_message_is_not_a_lost_connection(client: Client) -> None:
    for call in (Call("with space"), Call("natsops.big", b"x" * (1024 * 1024 + 1))):
        failure, _seconds = caught_failure(lambda call=call: client.request(call))  # type: ignore[misc]
        assert (failure.code, failure.subject) == ("invalid_option", call.subject)
        (refused,) = client.publish([call])
        assert refused is not None and refused.code == "invalid_option"
    assert len(gather(client, ASKED)) == 3


def test_observing_ends_with_the_connection(proxy: Proxy, client: Client) -> None:
    seen: list[Observed] = []

    def on_message(message: Observed) -> bool:
        seen.append(message)
        proxy.close()
        return False

    with ThreadPoolExecutor(1) as pool, Client(client.options) as other:
        other.connect()
        watching = pool.submit(client.observe, ["$SYS.REQ.SERVER.PING.IDZ"], 20, on_message)
        while not seen:
            with contextlib.suppress(NatsFailure):
                gather(other, ASKED)
        failure, _seconds = caught_failure(lambda: watching.result(10))
    assert failure.code == "connection_lost"


@pytest.mark.parametrize("fate", [CLOSED, RESET])
@pytest.mark.parametrize("trigger", [b"PING.STATSZ", b".JSZ", b".HEALTHZ"])
def test_gate_continues_after_a_lost_connection(
    proxy: Proxy, healthy: NatsProcesses, run_module: Runner, trigger: bytes, fate: str
) -> None:
    """The gate also continues if it takes only a single sample, because a lost connection does not count as a failed
    sample."""
    proxy.arm(trigger, fate)
    options = {"expected_servers": healthy.names, "samples": 1, "span": 0, "wait": False}
    result = run_module("nats_cluster_health", {**healthy.sys_connection(), "servers": [proxy.url]}, **options)
    assert proxy.triggered.is_set()
    assert result["healthy"], result["msg"]


# --- the listener -----------------------------------------------------------------------------------------------------


def listen(proxy: Proxy, work: Callable[[Listener], Any], timeout: float = 2) -> tuple[NatsFailure, float]:
    """Return the failure with which a listener's work ends, and the seconds until the failure."""

    async def run() -> None:
        async with Listener(ConnectionOptions((proxy.url,), APP_USER, APP_PASSWORD, timeout=timeout)) as listener:
            await asyncio.wait_for(work(listener), 20)

    return caught_failure(lambda: asyncio.run(run()))


@pytest.mark.parametrize(
    ("fate", "code"), [(CLOSED, "connection_lost"), (RESET, "connection_lost"), (SILENT, "timeout")]
)
def test_subscribing(proxy: Proxy, fate: str, code: str) -> None:
    proxy.arm(b"SUB natsops.sent", fate)
    failure, _seconds = listen(proxy, lambda listener: listener.subscribe(["natsops.sent"]))
    assert (failure.code, failure.subject) == (code, "natsops.sent")


@pytest.mark.parametrize("fate", [CLOSED, RESET])
def test_delivery_passes_on_received_messages_and_ends(proxy: Proxy, healthy: NatsProcesses, fate: str) -> None:
    bodies: list[bytes] = []

    async def on_message(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    def send() -> list[NatsFailure | None]:
        with Client(ConnectionOptions(tuple(healthy.urls[:1]), APP_USER, APP_PASSWORD)) as sender:
            return sender.publish([Call("natsops.sent", b"%d" % number) for number in range(3)])

    async def work(listener: Listener) -> None:
        await listener.subscribe(["natsops.sent"])
        assert await asyncio.to_thread(send) == [None] * 3
        await listener.subscribe(["natsops.after"])  # everything that the server sent before it has arrived
        proxy.arm(b"SUB natsops.last", fate)
        with contextlib.suppress(NatsFailure):
            await listener.subscribe(["natsops.last"])
        await listener.deliver(on_message)

    failure, _seconds = listen(proxy, work)
    assert (failure.code, failure.server) == ("connection_lost", proxy.url)
    assert bodies == [b"0", b"1", b"2"]


@pytest.fixture
def consumer(healthy: NatsProcesses) -> Iterator[tuple[str, str]]:
    """A stream with a message that a consumer has yet to deliver."""
    stream = f"LOSS{time.monotonic_ns()}"
    healthy.add_stream(stream, 1)
    healthy.add_consumer(stream, "worker", ack_wait=int(30e9))
    healthy.app_request(f"{stream}.a")
    yield stream, "worker"
    healthy.app_request(f"$JS.API.STREAM.DELETE.{stream}")


@pytest.mark.parametrize("fate", [CLOSED, RESET])
@pytest.mark.parametrize("trigger", [b"MSG.NEXT", b"+WPI", b"$JS.ACK"])
def test_pulling(proxy: Proxy, consumer: tuple[str, str], trigger: bytes, fate: str) -> None:
    """The connection is lost while the listener waits for a message, processes a message, or waits until its
    acknowledgement is confirmed."""
    proxy.arm(trigger, fate)

    async def on_message(_message: ReceivedMessage) -> None:
        await asyncio.sleep(0 if trigger == b"$JS.ACK" else LONG)

    failure, seconds = listen(proxy, lambda listener: listener.pull(*consumer, 0.6, on_message))
    assert proxy.triggered.is_set()
    assert (failure.code, failure.server) == ("connection_lost", proxy.url)
    assert failure.subject is not None and (consumer[0] in failure.subject)
    assert seconds < LONG / 2


def test_unconfirmed_acknowledgement(proxy: Proxy, consumer: tuple[str, str]) -> None:
    proxy.arm(b"$JS.ACK", SILENT)

    async def on_message(_message: ReceivedMessage) -> None:
        """Ignore the message."""

    failure, _seconds = listen(proxy, lambda listener: listener.pull(*consumer, 30, on_message), timeout=1)
    assert (failure.code, (failure.subject or "").startswith("$JS.ACK.")) == ("timeout", True)


@pytest.mark.parametrize("error", [asyncio.TimeoutError("of the work"), ConnectionResetError("of the work")])
def test_exception_of_the_work_is_raised_unchanged(proxy: Proxy, consumer: tuple[str, str], error: Exception) -> None:
    async def on_message(_message: ReceivedMessage) -> None:
        raise error

    async def run() -> None:
        async with Listener(ConnectionOptions((proxy.url,), APP_USER, APP_PASSWORD)) as listener:
            await listener.pull(*consumer, 30, on_message)

    with pytest.raises(type(error), match="of the work"):
        asyncio.run(run())


def test_a_reply_that_no_consumer_sent(proxy: Proxy, healthy: NatsProcesses) -> None:
    """Another client replies to the request for a message with its own message."""

    async def run() -> NatsFailure:
        import nats

        async def answer(message: Any) -> None:
            await message.respond(b"{}")

        liar = await nats.connect(healthy.url("n1"), user="extra0", password=APP_PASSWORD)
        options = ConnectionOptions((proxy.url,), "extra0", APP_PASSWORD, jetstream_domain="nowhere")
        try:
            await liar.subscribe("$JS.nowhere.API.CONSUMER.MSG.NEXT.S.C", cb=answer)
            await liar.flush()
            async with Listener(options) as listener:
                with pytest.raises(NatsFailure) as failed:
                    await listener.pull("S", "C", 30, lambda _message: asyncio.sleep(0))
                return failed.value
        finally:
            await liar.close()

    assert asyncio.run(run()).code == "bad_reply"
