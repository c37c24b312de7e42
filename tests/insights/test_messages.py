# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads ranges of real streams, and compares the messages with those that nats-py reads."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Call, Client, FileContent, RawReply
from jetstream_insights import stream_client
from jetstream_insights.stream_client import (
    BATCHES,
    CONSUMER,
    SINGLE,
    LeaderState,
    Range,
    StreamSelection,
    matches,
    read_range,
    sequence_at,
    stream_state,
)
from jetstream_insights.stream_connection import Login, SourceError, StreamConnection, TransientError
from support.streams import SEED, Message, Site, read_messages, running_site

MANY = 4300
DELETED = (1, 2, 3, 17, 4096, 4097, MANY)
PURGED = "kept.d"


@pytest.fixture(scope="module", params=["2.10.27", "2.15.1"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(request.param, tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture(scope="module")
def streams(site: Site) -> dict[str, list[Message]]:
    """Create a stream for each way to read, each with gaps, and return its messages as nats-py reads them."""
    configs: dict[str, dict[str, Any]] = {
        "DIRECT": {"allow_direct": True},
        "PLAIN": {},
        "QUEUE": {"retention": "workqueue"},
        "OPEN": {"retention": "workqueue", "allow_direct": True},
    }
    found: dict[str, list[Message]] = {}
    for name, config in configs.items():
        site.add_stream(name, **config)
        many = MANY if name in ("DIRECT", "PLAIN") else 400
        site.publish(name, many, headers=True)
        site.remove(name, [sequence for sequence in DELETED if sequence < many] + [many], purge=f"{name}.{PURGED}")
        found[name] = asyncio.run(read_messages(site, name))
        assert found[name][-1].sequence < many
        assert not any(message.subject == f"{name}.{PURGED}" for message in found[name])
    return found


def state(site: Site, name: str, *subjects: str) -> tuple[StreamSelection, LeaderState]:
    stream = StreamSelection(name, subjects)
    with StreamConnection(site.login) as connection:
        return stream, stream_state(connection, stream)


def read(
    site: Site,
    stream: StreamSelection,
    found: LeaderState,
    first: int,
    last: int,
    fail: bool = True,
    login: Login | None = None,
) -> list[Message]:
    wanted = Range(first, last, found.created, found.way)
    return [
        Message(rows.subjects[index].decode(), sequence, rows.times[index], rows.headers[index], rows.data[index])
        for rows in read_range(login or site.login, stream, wanted, fail)
        for index, sequence in enumerate(rows.sequences)
    ]


def ways(version: str) -> dict[str, str]:
    return {
        "DIRECT": BATCHES if version == "2.15.1" else CONSUMER,
        "PLAIN": CONSUMER,
        "QUEUE": SINGLE,
        "OPEN": BATCHES if version == "2.15.1" else SINGLE,
    }


@pytest.mark.parametrize("name", ["DIRECT", "PLAIN", "QUEUE", "OPEN"])
def test_messages_equal_those_of_nats_py(site: Site, streams: dict[str, list[Message]], name: str) -> None:
    stream, found = state(site, name)
    assert found.way == ways(site.version)[name]
    wanted = streams[name]
    chance = random.Random(7)
    cuts = sorted(chance.sample(range(found.first, found.last + 1), 3))
    got: list[Message] = []
    for first, last in zip([found.first, *cuts], [*(cut - 1 for cut in cuts), found.last], strict=True):
        got += read(site, stream, found, first, last)
    assert got == wanted
    assert [message for message in wanted if message.headers], "no message with headers was compared"
    # One range is entirely a gap, and one is beyond the end.
    assert read(site, stream, found, 17, 17) == []
    assert read(site, stream, found, found.last, found.last) == []
    assert site.consumers(name) == 0


@pytest.mark.parametrize("name", ["DIRECT", "PLAIN", "QUEUE"])
def test_a_batch_has_bounded_bytes(site: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large messages follow many small ones: the size of a request depends on the bytes received last, not on an
    average."""
    stream_name = f"MIXED_{name}"
    retention = "workqueue" if name == "QUEUE" else "limits"
    site.add_stream(stream_name, allow_direct=name == "DIRECT", retention=retention)
    sizes = [10] * 300 + [700_000] * 5 + [10] * 20 + [30_000] * 40
    site.publish_sizes(stream_name, sizes)
    monkeypatch.setattr(stream_client, "BATCH_BYTES", 100_000)
    stream, found = state(site, stream_name)
    wanted = Range(1, found.last, found.created, found.way)
    batches = [rows.data for rows in read_range(site.login, stream, wanted, True)]
    assert [len(data) for batch in batches for data in batch] == sizes
    # A direct get ends with the message that reaches the limit, a pull ends before the message that would exceed it.
    assert all(sum(map(len, batch)) <= 100_000 + len(batch[-1]) for batch in batches)
    assert max(len(batch) for batch in batches) > 200


def test_message_that_fills_a_pull_exactly_ends_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends such a pull without a status message; a reader that waits for one loses the pull's time, and then
    repeats the pull forever."""
    site.add_stream("EXACT")
    site.publish_sizes("EXACT", [1000] * 9)
    stream, found = state(site, "EXACT")
    one: list[int] = []
    tap = Client.tap

    def measured(self: Client, call: Call, on_reply: RawReply, quiet: float | None = None) -> None:
        def measure(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
            if reply.startswith(b"$JS.ACK."):
                one.append(len(subject) + len(reply) + len(data) + len(headers or b""))
            return on_reply(subject, reply, data, headers)

        tap(self, call, measure, quiet)

    monkeypatch.setattr(Client, "tap", measured)
    assert len(read(site, stream, found, 1, 9)) == 9
    assert len(set(one)) == 1, "the messages differ in size"
    monkeypatch.setattr(stream_client, "BATCH_BYTES", 3 * one[0])
    login = replace(site.login, patience=0.0)
    assert len(read(site, stream, found, 1, 9, login=login)) == 9


def test_server_without_batch_requests(site: Site, streams: dict[str, list[Message]]) -> None:
    """During an upgrade, some servers may return only one message for each request."""
    stream, found = state(site, "DIRECT")
    wanted = [message for message in streams["DIRECT"] if message.sequence <= 30]
    assert read(site, stream, replace(found, way=BATCHES), found.first, 30) == wanted


@pytest.mark.parametrize("name", ["DIRECT", "PLAIN", "QUEUE", "OPEN"])
@pytest.mark.parametrize("patterns", [["*.kept.a"], ["*.kept.a", "*.kept.*.deep"]])
def test_filters(site: Site, streams: dict[str, list[Message]], name: str, patterns: list[str]) -> None:
    patterns = [pattern.replace("*", name, 1) for pattern in patterns]
    stream, found = state(site, name, *patterns)
    wanted = [message for message in streams[name] if any(matches(message.subject, pattern) for pattern in patterns)]
    middle = found.last // 2
    assert read(site, stream, found, found.first, middle) + read(site, stream, found, middle + 1, found.last) == wanted
    assert wanted
    assert site.consumers(name) == 0


def test_matches() -> None:
    assert matches("a.b.c", "a.>")
    assert matches("a.b.c", "a.*.c")
    assert matches("a", "a")
    assert not matches("a", "a.>")
    assert not matches("a.b", "a.b.c")
    assert not matches("a.b.c", "a.*")
    assert not matches("x.b", "a.>")


def test_a_time_is_the_sequence_of_the_first_message_from_then_on(
    site: Site, streams: dict[str, list[Message]]
) -> None:
    stream, found = state(site, "PLAIN")
    moment = int(streams["PLAIN"][2345].time) * 1000
    since = [message.sequence for message in streams["PLAIN"] if int(message.time) * 1000 >= moment]
    with StreamConnection(site.login) as connection:
        first = sequence_at(connection, stream, found, moment)
        assert [message.sequence for message in streams["PLAIN"] if message.sequence >= first] == since
        assert sequence_at(connection, stream, found, 0) == found.first
        assert sequence_at(connection, stream, found, moment + 10**15) > streams["PLAIN"][-1].sequence


@pytest.mark.parametrize("name", ["GONE", "WENT"])
def test_messages_removed_before_reading_are_reported(site: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add_stream(name, allow_direct=name == "GONE")
    site.publish(name, 500)
    stream, found = state(site, name)
    site.remove(name, [100, 300])
    assert len(read(site, stream, found, 1, 500)) == 498
    site.api(f"STREAM.PURGE.{name}", {"seq": 201})
    with pytest.raises(SourceError, match="now begins at sequence 201, but 151 is the next to read: up to 50 messages"):
        read(site, stream, found, 151, 250)
    assert [message.sequence for message in read(site, stream, found, 151, 250, fail=False)] == list(range(201, 251))
    with pytest.raises(SourceError, match="up to 100 messages were removed"):
        read(site, stream, found, 1, 100)
    # A message that is removed after it has been read does not count as a loss.
    monkeypatch.setattr(stream_client, "BATCH_MESSAGES", 83)
    reading = read_range(site.login, stream, Range(201, 500, found.created, found.way), fail_on_data_loss=True)
    got = next(reading).sequences
    site.api(f"STREAM.PURGE.{name}", {"seq": got[-1] + 1})
    for rows in reading:
        got += rows.sequences
    assert got == [sequence for sequence in range(201, 501) if sequence != 300]
    site.api(f"STREAM.DELETE.{name}")
    site.add_stream(name, allow_direct=name == "GONE")
    site.publish(name, 600)
    with pytest.raises(SourceError, match=f"{name} was deleted and recreated: it was created at "):
        read(site, stream, found, 201, 500)


def test_reader_survives_a_server_restart(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add_stream("PATIENT", allow_direct=True)
    site.publish("PATIENT", 3000)
    stream, found = state(site, "PATIENT")
    monkeypatch.setattr(stream_client, "BATCH_MESSAGES", 400)
    got: list[int] = []
    for number, rows in enumerate(read_range(site.login, stream, Range(1, 3000, found.created, found.way), True)):
        got += rows.sequences
        if number == 1:
            site.servers.kill()
            threading.Timer(1.0, site.servers.start).start()
    assert got == list(range(1, 3001))
    site.wait()


def refusals() -> list[tuple[str, Callable[[Login], Login], str]]:
    return [
        (
            "password",
            lambda login: replace(login, password="wrong"),
            "127.0.0.1:.* the server does not accept user 'app'",
        ),
        (
            "address",
            lambda login: replace(login, servers=("nats://other:secret@127.0.0.1:1", "127.0.0.1:2"), patience=0.5),
            "cannot connect to any server: nats://127.0.0.1:1: connection refused.*; "
            "nats://127.0.0.1:2: connection refused.*0.5 s",
        ),
        (
            "tls",
            lambda login: replace(login, tls_server_name="localhost"),
            "TLS was requested, but this server does not",
        ),
        (
            "domain",
            lambda login: replace(login, api_prefix="$JS.none.API", patience=0.5),
            r"no responders on \$JS.none.API",
        ),
        ("rights", lambda login: replace(login, user="poor"), r"the user may not publish to \$JS.API.STREAM.INFO.ANY$"),
        ("no JetStream", lambda login: replace(login, user="plain"), "JetStream not enabled for account"),
        ("nkey", lambda login: replace(login, nkey_seed="SUNONSENSE"), "the credentials cannot be used"),
        (
            "credentials",
            lambda login: replace(
                login,
                user=None,
                credentials=FileContent(
                    f"-----BEGIN NATS USER JWT-----\nx.y.z\n------END NATS USER JWT------\n\n"
                    f"-----BEGIN USER NKEY SEED-----\n{SEED.decode()}\n------END USER NKEY SEED------\n"
                ),
            ),
            r"the server does not accept these credentials \(Authorization",
        ),
        (
            "TLS files",
            lambda login: replace(login, tls_ca_file=FileContent("nonsense")),
            "the TLS files cannot be used",
        ),
    ]


@pytest.mark.parametrize(("change", "reported"), [pytest.param(*row[1:], id=row[0]) for row in refusals()])
def test_refusals(site: Site, change: Callable[[Login], Login], reported: str) -> None:
    with StreamConnection(change(site.login)) as connection, pytest.raises(SourceError, match=reported) as caught:
        connection.with_retries(lambda: stream_state(connection, StreamSelection("ANY")))
    assert "secret" not in str(caught.value)


def test_login_is_retried_while_any_server_may_accept_it(site: Site) -> None:
    refused = replace(site.login, password="wrong", servers=(*site.servers.urls, "127.0.0.1:1"))
    with StreamConnection(refused) as connection, pytest.raises(TransientError, match="does not accept user 'app'"):
        stream_state(connection, StreamSelection("ANY"))
    refused = replace(refused, servers=("nats://", *site.servers.urls))
    with StreamConnection(refused) as connection, pytest.raises(SourceError, match="an address without a host name"):
        stream_state(connection, StreamSelection("ANY"))


def test_only_reading_a_stream_needs_nats_py() -> None:
    program = """if True:
        import sys
        sys.modules["nats"] = None
        import jetstream_insights.cli
        from jetstream_insights.stream_connection import Login, SourceError, StreamConnection
        try:
            StreamConnection(Login(("nats://a",)))
        except SourceError as error:
            print(error)
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "the Python library nats-py is not installed on this host\n"


def test_missing_library_is_reported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nkeys", None)
    with pytest.raises(SourceError, match="the Python library nkeys is not installed"):
        StreamConnection(replace(site.login, nkey_seed=SEED.decode()))


def test_login_with_an_nkey(site: Site) -> None:
    site.add_stream("KEYED")
    login = replace(site.login, user=None, password=None, nkey_seed=SEED.decode())
    with StreamConnection(login) as connection:
        assert stream_state(connection, StreamSelection("KEYED")).last == 0


def test_missing_stream_is_reported(site: Site) -> None:
    with (
        StreamConnection(site.login) as connection,
        pytest.raises(SourceError, match=r"no stream NONE in this account \(of nats://127"),
    ):
        stream_state(connection, StreamSelection("NONE"))


def test_reader_survives_stopped_and_lagging_replicas(tmp_path: Path) -> None:
    """Any replica may reply to a direct get: the reader does not wait for a replica that hangs, and does not trust one
    that is behind."""
    with running_site("2.15.1", tmp_path, servers=3) as cluster:
        cluster.add_stream("WIDE", num_replicas=3, allow_direct=True)
        cluster.publish("WIDE", 100)
        info = cluster.api("STREAM.INFO.WIDE")
        leader = info["cluster"]["leader"]
        slow = next(name for name in cluster.servers.names if name != leader)
        login = replace(cluster.login, servers=(cluster.servers.url(leader),), timeout=1.0)
        cluster.only(leader)
        cluster.servers.processes[slow].send_signal(signal.SIGSTOP)
        try:
            cluster.publish("WIDE", 9000, begin=101)
            stream = StreamSelection("WIDE")
            with StreamConnection(login) as connection:
                found = stream_state(connection, stream)
            assert found.way == BATCHES
            assert len(read(cluster, stream, found, 1, found.last, login=login)) == found.last
        finally:
            cluster.servers.processes[slow].send_signal(signal.SIGCONT)
        behind = 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            got = read(cluster, stream, found, found.last - 50, found.last, login=login)
            assert len(got) == 51
            behind += 1
        assert behind > 3


def test_nats_module_is_the_client_library(site: Site) -> None:
    """The header of a stored message is as its publisher wrote it, even if nats-py keeps only one of several values of
    a name."""

    async def publish() -> None:
        connection = await nats.connect(site.servers.urls, user=site.login.user, password=site.login.password)
        raw = b"NATS/1.0 204 EOB\r\nA: 1\r\nA: 2\r\nNats-Sequence: 5\r\nb:\xc3\xa4:d\r\n\r\n"
        await connection._send_publish("HEADS.x", "", b"body", 4, None)
        command = f"HPUB HEADS.x {len(raw)} {len(raw) + 4}\r\n".encode() + raw + b"body\r\n"
        await connection._send_command(command)
        await connection.flush()
        await connection.close()

    site.add_stream("HEADS", allow_direct=True)
    asyncio.run(publish())
    stream, found = state(site, "HEADS")
    first, second = read(site, stream, found, 1, 2)
    assert first.headers is None
    assert second.headers is not None
    assert second.headers.split(b"\r\n")[1:] == [b"A: 1", b"A: 2", b"Nats-Sequence: 5", b"b:\xc3\xa4:d"]
    assert (second.sequence, second.data) == (2, b"body")
