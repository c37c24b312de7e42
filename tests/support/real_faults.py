# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates real faults in real clusters and captures them with the collector that the timer runs.

Each `Capture` is a fleet of the lake: a cluster of three servers on loopback, and the `Fault` objects that exist when
its last snapshot is taken. Faults that do not disturb each other share a fleet.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jetstream_insights
import nats
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import reported_version
from nats.aio.client import Client
from support.nats_processes import APP_PASSWORD, APP_USER, VERSIONS, NatsProcesses, binary

NAMES = ["n1", "n2", "n3"]
#: Seconds between two snapshots. A leader counts a member as absent after 5 s without a reply.
PAUSE = 4.0
#: Seconds until a mirror without an origin is reported as cut off (STREAM_120).
SILENT = 62.0
#: With these settings, slow readers are disconnected early, and Raft leaders soon regard a stopped peer as lost.
EXTRA = 'max_pending: 1MB\nwrite_deadline: "500ms"'
SMALL_USER = "small"


@dataclass(frozen=True)
class Fault:
    """A fault and the expected report. `subjects`: regular expressions; the cause must name a match for each. `cause`
    and `action`: regular expressions of the cause's title and its first command. `checks`: at least one of them must
    fail. `changes`: the event in the table of changes, for an event that is not a fault. `since`: the first version
    that reports it."""

    name: str
    subjects: tuple[str, ...]
    checks: tuple[str, ...] = ()
    cause: str = ""
    action: str = ""
    severity: str = "warning"
    changes: str = ""
    since: str = ""


HEALTHY, UPGRADED = "healthy", "upgraded"
#: The faults of each fleet, by the name of its capture.
FAULTS: dict[str, tuple[Fault, ...]] = {
    HEALTHY: (),
    "assets": (
        Fault("stream purged", ("PURGED",), ("STREAM_212",), "PURGED: its first sequence", "api_audit"),
        Fault("stream with limits purged", ("LIMITED",), ("STREAM_216",), "LIMITED: 200 messages", "api_audit"),
        Fault("stream full, discard new", ("FULL",), ("JETSTREAM_003",), "FULL", "nats_stream", "critical"),
        Fault("account at its storage limit", ("SMALL",), ("ACCOUNTS_101",), "SMALL", "nats_account_info", "critical"),
        Fault(
            "consumer never acknowledges", ("JOBS/stuck",), ("CONSUMER_105", "CONSUMER_202"), "JOBS/stuck.*acknowledge",
            "^the client", "critical",
        ),
        Fault(
            "mirror whose origin is gone", ("COPY", "ORIGIN"), ("STREAM_120", "STREAM_206"), "COPY.*ORIGIN",
            "ORIGIN", "critical",
        ),
        Fault("source with a wrong filter", ("PICKED",), ("STREAM_213",), "PICKED", "filter_subject"),
        Fault("leader changes every few seconds", ("FLAPS",), ("STREAM_201",), "FLAPS", "journal|diagnose"),
        Fault("consumer recreated", ("again",), changes="recreated"),
        Fault("stream edited", ("EDITED",), ("STREAM_205",), changes="config", severity="info"),
    ),
    "clients": (
        Fault("slow reader", ("APP",), ("SERVER_004", "ACCOUNTS_202"), "closed|slow", "nats_connection_info"),
        Fault("reconnect storm", ("APP", "storm"), ("ACCOUNTS_201",), "new connections", "clients"),
    ),
    "paused": (
        Fault(
            "server paused (SIGSTOP)", ("n2", "SOLO-n2"), ("FLEET_101",), "n2 does not answer", "systemctl status",
            "critical",
        ),
    ),
    "killed": (
        Fault(
            "server killed", ("n3", "SOLO-n3"), ("FLEET_101",), "n3 does not answer", "systemctl status", "critical"
        ),
    ),
    "restarted": (Fault("server crashed and is back", ("n3",), ("SERVER_201",), "n3.*restart", "journal"),),
    "disabled": (
        Fault(
            "JetStream disabled", ("n3", "SOLO-n3"), ("SERVER_210",), "JetStream is not running on n3",
            "journal|deploy", "critical",
        ),
    ),
    "shrunk": (
        Fault("max_file reduced", ("C1",), ("CLUSTER_104",), "max_file_store", "max_file_store", "info"),
        Fault("configuration changed", ("n2",), changes="config", since="2.11"),
    ),
    UPGRADED: (Fault("server upgraded", ("n[123]",), changes="version"),),
}  # fmt: skip


@dataclass(frozen=True)
class Capture:
    """A fleet of the lake."""

    kind: str
    version: str

    @property
    def fleet(self) -> str:
        return f"{self.kind}-{self.version}"

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(
            fault for fault in FAULTS[self.kind] if reported_version(self.version) >= reported_version(fault.since)
        )


# --- clients ----------------------------------------------------------------------------------------------------------


class Clients:
    """Clients of an account that run between the snapshots, in a separate thread."""

    def __init__(self, cluster: NatsProcesses) -> None:
        self._url = cluster.url("n1")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = False

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _end(self) -> None:
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def run(self, work: Callable[[Client], Awaitable[None]], user: str = APP_USER, url: str = "") -> None:
        """Repeat a client's work until `Clients` is stopped."""

        async def start() -> None:
            self._tasks.append(asyncio.create_task(self._repeat(work, user, url or self._url)))

        asyncio.run_coroutine_threadsafe(start(), self._loop).result(10)

    async def _repeat(self, work: Callable[[Client], Awaitable[None]], user: str, url: str) -> None:
        async def ignore(_error: Exception) -> None:
            """Errors are expected, because the servers have faults."""

        login: dict[str, Any] = {"user": user, "password": APP_PASSWORD}
        connection = await nats.connect(url, **login, error_cb=ignore, max_reconnect_attempts=-1)
        try:
            # A cancellation may be lost: see Load.run.
            while not self._ended:
                with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError):
                    await work(connection)
                # A client that fails at once must not keep the others from running.
                await asyncio.sleep(0.01)
        finally:
            await connection.close()


def publishing(
    *subjects: str, size: int = 100, pause: float = 0.05, burst: int = 1
) -> Callable[[Client], Awaitable[None]]:
    async def work(connection: Client) -> None:
        for subject in subjects * burst:
            await connection.publish(subject, bytes(size))
        await asyncio.sleep(pause)

    return work


def consuming(stream: str, name: str, acknowledge: bool = True) -> Callable[[Client], Awaitable[None]]:
    async def work(connection: Client) -> None:
        inbox = connection.new_inbox()
        messages = await connection.subscribe(inbox)
        try:
            body = json.dumps({"batch": 100, "expires": 2_000_000_000}).encode()
            await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", body, inbox)
            end = time.monotonic() + 2
            while (left := end - time.monotonic()) > 0:
                message = await messages.next_msg(left)
                if acknowledge and message.reply:
                    await connection.publish(message.reply, b"+ACK")
        finally:
            await messages.unsubscribe()

    return work


def _log_in(port: int, language: str) -> socket.socket:
    """Return a connection whose server has accepted the login."""
    client = socket.create_connection(("127.0.0.1", port), timeout=5)
    options = {"verbose": False, "pedantic": False, "lang": language, "version": "1.0.0", "protocol": 1}
    client.sendall(
        f"CONNECT {json.dumps({**options, 'user': APP_USER, 'pass': APP_PASSWORD, 'name': language})}\r\n"
        "PING\r\n".encode()
    )
    received = b""
    while b"PONG" not in received:
        part = client.recv(4096)
        if not part:
            raise OSError("the server closed the connection")
        received += part
    return client


@contextmanager
def _thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)


def _storm(port: int, ended: threading.Event) -> None:
    """Reconnect again and again, with ten connections at a time."""
    kept: list[socket.socket] = []
    while not ended.wait(0.01):
        with contextlib.suppress(OSError):
            kept.append(_log_in(port, "storm"))
        if len(kept) > 10:
            kept.pop(0).close()
    for client in kept:
        client.close()


def _slow_reader(port: int, ended: threading.Event) -> None:
    """Subscribe but never read; the server closes the connection, and the client reconnects."""
    while not ended.is_set():
        with contextlib.suppress(OSError), _log_in(port, "slow-reader") as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"SUB flood 1\r\n")
            ended.wait(3)


# --- captures ---------------------------------------------------------------------------------------------------------


def _collector() -> Callable[[dict[str, Any]], Any]:
    """Return the timer's function that takes a snapshot. Its program is not an importable package."""
    path = Path(jetstream_insights.__file__).parents[1] / "collector" / "collect.py"
    spec = importlib.util.spec_from_file_location("collect", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[dict[str, Any]], Any] = module.take
    return found


class Collector:
    """Takes snapshots of a cluster for one fleet after another."""

    def __init__(self, cluster: NatsProcesses, lake: Path) -> None:
        self._cluster = cluster
        self._lake = lake
        self._take = _collector()
        self.fleet = ""

    def take(self, count: int = 1) -> None:
        for _number_of_snapshot in range(count):
            began = time.monotonic()
            self._take(
                {
                    "connection": {**self._cluster.sys_connection(), "timeout": 2.0},
                    "lake": str(self._lake),
                    "fleet": self.fleet,
                    "endpoints": [],
                    "expected_servers": NAMES,
                    "deadline": 20.0,
                }
            )
            time.sleep(max(0.0, began + PAUSE - time.monotonic()))


def _started(stack: ExitStack, version: str, folder: Path) -> NatsProcesses:
    folder.mkdir(parents=True)
    accounts = {"APP": APP_USER, "SMALL": SMALL_USER}
    limits = {"SMALL": "{ max_file: 2MB }"}
    cluster = NatsProcesses(version, folder, NAMES, extra=EXTRA, accounts=accounts, account_limits=limits)
    for name in NAMES:
        cluster.write_config(name, _tags(name))
    cluster.start()
    stack.callback(lambda: cluster.kill(*cluster.processes))
    return cluster


def _tags(name: str) -> str:
    """Return the configuration that gives a server its own tag, for streams that are only on this server."""
    return f'server_tags: ["host:{name}"]'


def _publish(cluster: NatsProcesses, subject: str, count: int, account: str = "APP", size: int = 100) -> int:
    """Publish messages one after another until one is rejected, and return how many were stored."""

    async def publish() -> int:
        user = cluster.accounts[account]
        async with await nats.connect(cluster.url("n1"), user=user, password=APP_PASSWORD) as connection:
            for number in range(count):
                reply = await connection.request(subject, bytes(size), timeout=10)
                if "error" in json.loads(reply.data):
                    return number
        return count

    return asyncio.run(publish())


def _with_assets(cluster: NatsProcesses) -> None:
    """Create the initial streams and consumers, which have no fault."""
    cluster.add_stream("EVENTS", 3, max_age=3600 * 10**9)
    cluster.add_consumer("EVENTS", "worker")
    for name in ("n2", "n3"):
        cluster.add_stream(f"SOLO-{name}", 1, max_age=3600 * 10**9, placement={"tags": [f"host:{name}"]})


def _traffic(clients: Clients) -> None:
    clients.run(publishing("EVENTS.a", "SOLO-n2.a", "SOLO-n3.a"))
    clients.run(consuming("EVENTS", "worker"))


def capture_clients(version: str, lake: Path, folder: Path) -> None:
    """Capture a healthy fleet, and a fleet with client faults."""
    with ExitStack() as stack:
        cluster = _started(stack, version, folder)
        collector = Collector(cluster, lake)
        _with_assets(cluster)
        clients = stack.enter_context(Clients(cluster))
        _traffic(clients)
        collector.fleet = f"{HEALTHY}-{version}"
        time.sleep(PAUSE)
        collector.take(5)

        collector.fleet = f"clients-{version}"
        flood = publishing("flood", size=60_000, burst=100, pause=0.5)
        with ExitStack() as storms:
            storms.enter_context(_thread(lambda ended: _storm(cluster.ports["n2"], ended)))
            storms.enter_context(_thread(lambda ended: _slow_reader(cluster.ports["n3"], ended)))
            clients.run(flood, url=cluster.url("n3"))
            collector.take(8)


def capture_assets(version: str, lake: Path, folder: Path) -> None:
    """Capture a fleet with faults of streams and consumers."""
    with ExitStack() as stack:
        cluster = _started(stack, version, folder)
        collector = Collector(cluster, lake)
        collector.fleet = f"assets-{version}"
        _with_assets(cluster)
        long: dict[str, Any] = {"max_age": 3600 * 10**9}
        cluster.add_stream("PURGED", 3)
        cluster.add_stream("LIMITED", 3, max_msgs=100_000, max_bytes=64 << 20, **long)
        cluster.add_stream("FULL", 3, max_msgs=50, discard="new")
        cluster.add_stream("HOARD", 1, account="SMALL", **long)
        cluster.add_stream("JOBS", 3, **long)
        cluster.add_consumer("JOBS", "stuck", max_ack_pending=50)
        cluster.add_stream("ORIGIN", 3, **long)
        cluster.add_stream("COPY", 3, subjects=[], mirror={"name": "ORIGIN"}, **long)
        cluster.add_stream("FEED", 3, **long)
        cluster.add_stream("PICKED", 3, subjects=[], sources=[{"name": "FEED", "filter_subject": "FEED.wrong"}], **long)
        cluster.add_stream("FLAPS", 3, **long)
        edited = cluster.add_stream("EDITED", 3, **long)["config"]
        cluster.add_consumer("EDITED", "again")
        for purged in ("PURGED", "LIMITED"):
            _publish(cluster, f"{purged}.a", 200)
        clients = stack.enter_context(Clients(cluster))
        _traffic(clients)
        clients.run(publishing("FULL.a", "JOBS.a", "FEED.a", "FLAPS.a", "ORIGIN.a"))
        clients.run(consuming("JOBS", "stuck", acknowledge=False))
        time.sleep(PAUSE)
        collector.take(2)
        _publish(cluster, "HOARD.a", 1000, account="SMALL", size=8000)
        cluster.app_request("$JS.API.STREAM.DELETE.ORIGIN")
        removed = time.monotonic()
        cluster.app_request("$JS.API.CONSUMER.DELETE.EDITED.again")
        cluster.add_consumer("EDITED", "again")
        for purged in ("PURGED", "LIMITED"):
            cluster.app_request(f"$JS.API.STREAM.PURGE.{purged}")
        cluster.app_request("$JS.API.STREAM.UPDATE.EDITED", {**edited, "max_age": 1800 * 10**9})
        for _election in range(7):
            cluster.app_request("$JS.API.STREAM.LEADER.STEPDOWN.FLAPS")
            # Once a new leader responds, it reports all members.
            cluster.app_request("$JS.API.STREAM.INFO.FLAPS", members=3)
            collector.take()
        time.sleep(max(0.0, removed + SILENT - time.monotonic()))
        collector.take(2)


def capture_servers(version: str, lake: Path, folder: Path) -> None:
    """Capture fleets that each have one server fault, one after another in the same cluster."""
    with ExitStack() as stack:
        cluster = _started(stack, version, folder)
        collector = Collector(cluster, lake)
        _with_assets(cluster)
        _traffic(stack.enter_context(Clients(cluster)))

        def restart(name: str, seconds: float = 12) -> None:
            cluster.start(name)
            time.sleep(seconds)

        collector.fleet = f"paused-{version}"
        collector.take(3)
        cluster.processes["n2"].send_signal(signal.SIGSTOP)
        collector.take(5)
        cluster.processes["n2"].send_signal(signal.SIGCONT)
        time.sleep(12)

        collector.fleet = f"killed-{version}"
        collector.take(2)
        cluster.kill("n3")
        collector.take(5)
        restart("n3")

        collector.fleet = f"restarted-{version}"
        collector.take(2)
        cluster.kill("n3")
        restart("n3")
        collector.take(4)

        collector.fleet = f"shrunk-{version}"
        collector.take(2)
        cluster.stop("n2")
        text = cluster.config_file("n2").read_text()
        cluster.config_file("n2").write_text(text.replace("max_file_store: 256MB", "max_file_store: 50MB"))
        restart("n2")
        collector.take(4)
        cluster.stop("n2")
        cluster.config_file("n2").write_text(text)
        restart("n2")

        collector.fleet = f"disabled-{version}"
        collector.take(2)
        cluster.stop("n3")
        cluster.jetstream = ["n1", "n2"]
        cluster.write_config("n3", _tags("n3"))
        restart("n3")
        collector.take(5)


def capture_upgrade(versions: Sequence[str], lake: Path, folder: Path) -> None:
    """Capture a fleet whose servers are upgraded one after another."""
    before, after = versions[0], versions[-1]
    with ExitStack() as stack:
        cluster = _started(stack, before, folder)
        collector = Collector(cluster, lake)
        _with_assets(cluster)
        _traffic(stack.enter_context(Clients(cluster)))
        collector.fleet = f"{UPGRADED}-{after}"
        collector.take(3)
        cluster._binary = binary(after)
        for name in reversed(NAMES):
            cluster.stop(name)
            cluster.start(name)
            time.sleep(12)
            collector.take(2)
        collector.take(3)


def captures(versions: Sequence[str] = tuple(VERSIONS)) -> list[Capture]:
    """Return the fleets that capture_all writes. An upgrade needs two versions."""
    found = [Capture(kind, version) for version in versions for kind in FAULTS if kind != UPGRADED]
    return [*found, Capture(UPGRADED, versions[-1])] if len(versions) > 1 else found


def capture_all(lake: Path, folder: Path, versions: Sequence[str] = tuple(VERSIONS)) -> None:
    """Capture all fleets, two clusters at the same time."""
    work: list[Callable[[], None]] = []
    for version in versions:
        work.append(partial(capture_clients, version, lake, folder / f"clients-{version}"))
        work.append(partial(capture_assets, version, lake, folder / f"assets-{version}"))
        work.append(partial(capture_servers, version, lake, folder / f"servers-{version}"))
    if len(versions) > 1:
        work.append(partial(capture_upgrade, versions, lake, folder / UPGRADED))
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(one) for one in work]:
            done.result()
