# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how a connection is made, and the names of its failures; tests/integration tests connections to real
servers."""

from __future__ import annotations

import asyncio
import ssl
import stat
import sys
from pathlib import Path

import nats.errors
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats import connection
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.connection import ConnectionOptions, Session
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.credentials_file import FileContent
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.failures import MissingLibrary, NatsFailure


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("h", ("nats://h", None, None)),
        ("h:4223", ("nats://h:4223", None, None)),
        ("tls://h:4222", ("tls://h:4222", None, None)),
        ("nats://u:p%40%23%2F@h:1", ("nats://h:1", "u", "p@#/")),
        ("nats://token@h", ("nats://h", "token", None)),
        ("nats://[::1]:4222", ("nats://[::1]:4222", None, None)),
    ],
)
def test_addresses(server: str, expected: tuple[str, str | None, str | None]) -> None:
    assert connection._split_url(server) == expected


@pytest.mark.parametrize("server", ["nats://", "nats://h:port", "nats://u:secret@:4222"])
def test_bad_addresses(server: str) -> None:
    with pytest.raises(NatsFailure) as refused:
        connection._split_url(server)
    assert refused.value.code == "invalid_option"
    assert "secret" not in refused.value.description


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"tls_ca_file": "ca"}, True),
        ({"tls_cert_file": "cert"}, True),
        ({"tls_first": True}, True),
        ({"servers": ("nats://a", "tls://b")}, True),
    ],
)
def test_when_tls_is_demanded(options: dict[str, object], expected: bool) -> None:
    assert ConnectionOptions(**{"servers": ("nats://a",), **options}).wants_tls is expected  # type: ignore[arg-type]


def test_the_most_telling_reason_comes_first() -> None:
    reasons = [
        NatsFailure("unreachable", "connection refused", server="nats://a"),
        NatsFailure("authorization", "not accepted", server="nats://b"),
    ]
    failure = connection._joint_connect_failure(reasons)
    assert (failure.code, failure.server) == ("authorization", "nats://b")
    assert "nats://a: connection refused" in failure.description
    assert failure.reasons == tuple(reasons)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nkeys", None)
    with pytest.raises(MissingLibrary) as missing:
        Session(ConnectionOptions(servers=("nats://a",), credentials="x.creds"))
    assert missing.value.library == "nkeys" and "nkeys" in missing.value.trace
    monkeypatch.setattr(connection, "NATS_IMPORT_ERROR", "trace")
    with pytest.raises(MissingLibrary) as missing:
        Session(ConnectionOptions(servers=("nats://a",)))
    assert missing.value.library == "nats-py"


def test_the_authorities_are_read_only_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[None] = []

    def make(cafile: str | None) -> ssl.SSLContext:
        made.append(None)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(ssl, "create_default_context", make)
    Session(ConnectionOptions(servers=("nats://a",)))._context_maker()
    assert not made
    make_context = Session(ConnectionOptions(servers=("tls://a",), validate_certs=False))._context_maker()
    assert len(made) == 1
    assert make_context() is make_context() and make_context().verify_mode == ssl.CERT_NONE
    assert len(made) == 1


@pytest.mark.parametrize("option", ["tls_ca_file", "tls_cert_file"])
@pytest.mark.parametrize("content", ["nonsense", "-----BEGIN CERTIFICATE-----\né"])
def test_unusable_content_of_a_file_is_not_shown(option: str, content: str) -> None:
    options = ConnectionOptions(("tls://a",), **{option: FileContent(content)})  # type: ignore[arg-type]
    with pytest.raises(NatsFailure, match="the TLS files cannot be used") as refused:
        Session(options)._context_maker()
    assert refused.value.code == "tls"
    assert "nonsense" not in f"{refused.value}{options}"


def test_files_and_contents_of_a_certificate_are_loaded_from_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, str | None]] = []
    folders: set[Path] = set()

    def load(_context: ssl.SSLContext, certificate: str, key: str | None = None) -> None:
        assert key is not None
        folders.add(Path(key).parent)
        assert stat.S_IMODE(Path(key).parent.stat().st_mode) == 0o700
        loaded.append((certificate, Path(key).read_text()))

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    options = ConnectionOptions(("tls://a",), tls_cert_file="/cert.pem", tls_key_file=FileContent("the key"))
    connection._ssl_context(options)
    assert loaded == [("/cert.pem", "the key")]
    assert not any(folder.exists() for folder in folders)


EOF = nats.errors.UnexpectedEOF()


@pytest.mark.parametrize(
    ("error", "connection_error", "code", "reason"),
    [
        (nats.errors.ConnectionClosedError(), EOF, "connection_lost", "unexpected EOF"),
        (nats.errors.ConnectionClosedError(), None, "connection_lost", "connection closed"),
        (asyncio.CancelledError(), EOF, "connection_lost", "unexpected EOF"),
        (ConnectionResetError(104, "Connection reset by peer"), None, "connection_lost", "reset by peer"),
        (TimeoutError(110, "Connection timed out"), None, "connection_lost", "timed out"),
        (ssl.SSLError("bad record"), None, "connection_lost", "bad record"),
        (AttributeError("'NoneType' object"), None, "connection_lost", "NoneType"),
        (nats.errors.OutboundBufferLimitError(), None, "connection_lost", "buffer limit"),
        (nats.errors.TimeoutError(), None, "timeout", "no reply"),
        (nats.errors.FlushTimeoutError(), None, "timeout", "no reply"),
        (asyncio.TimeoutError(), None, "timeout", "no reply"),
        (nats.errors.NoRespondersError(), None, "no_responders", "no responders"),
        (nats.errors.BadSubjectError(), None, "invalid_option", "invalid subject"),
        (nats.errors.BadHeaderError("a:b"), None, "invalid_option", "a:b"),
        (nats.errors.MaxPayloadError(), None, "invalid_option", "maximum payload"),
    ],
)
def test_library_errors_become_failures(
    error: BaseException, connection_error: Exception | None, code: str, reason: str
) -> None:
    failure = connection._call_failure(error, "S", "nats://h:4222", connection_error)
    assert (failure.code, failure.subject) == (code, "S")
    assert reason in failure.description
    if code == "connection_lost":
        assert failure.server == "nats://h:4222"
        assert failure.description.startswith("lost the connection to nats://h:4222 during S: ")


@pytest.mark.parametrize(
    "greeting",
    [b"INFO " + b"x" * 300_000, b"INFO []\r\n", b'INFO {"connect_urls": 5}\r\n', b"INFO " + b"[" * 60_000 + b"\r\n"],
    ids=["endless", "list", "types", "nested"],
)
def test_a_greeting_that_no_server_sends_is_not_blamed_on_the_credentials(greeting: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    async def connect() -> str:
        listener = await asyncio.start_server(greet, "127.0.0.1", 0)
        address = f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with listener:
            with pytest.raises(NatsFailure) as refused:
                await Session(ConnectionOptions(servers=(address,), user="u", password="p"))._connect()
        assert refused.value.code == "unreachable"
        return refused.value.description

    assert "the peer is not a NATS server" in asyncio.run(connect())


def test_why_a_connection_was_lost_when_a_write_learns_of_it_first() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "X", "version": "2.10.27", "max_payload": 1000}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")

    async def lose() -> Exception | None:
        listener = await asyncio.start_server(greet, "127.0.0.1", 0)
        library = connection._NatsPy(False, ssl.create_default_context)
        address = f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        await library.connect(address, allow_reconnect=False)
        # asyncio does this if a write fails; the reader gets the error one iteration of the loop later.
        transport = library._transport._io_writer.transport  # type: ignore[union-attr]
        transport._fatal_error(ConnectionResetError(104, "Connection reset by peer"))
        await library.publish("a", b"")
        await asyncio.wait_for(library.lost, 5)
        listener.close()
        return library.cause

    assert str(asyncio.run(lose())) == "[Errno 104] Connection reset by peer"
