# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's own rules; what it does with servers is in tests/integration."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils import _client
from ansible_collections.natsops.jetstream.plugins.module_utils._client import ConnectionOptions, NatsFailure


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
    assert _client._split_url(server) == expected


@pytest.mark.parametrize("server", ["nats://", "nats://h:port", "nats://u:secret@:4222"])
def test_bad_addresses(server: str) -> None:
    with pytest.raises(NatsFailure) as refused:
        _client._split_url(server)
    assert refused.value.code == "invalid_option"
    assert "secret" not in refused.value.description


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, False),
        ({"tls_ca_file": "ca"}, True),
        ({"tls_cert_file": "cert"}, True),
        ({"tls_first": True}, True),
        ({"servers": ("nats://a", "tls://b")}, True),
    ],
)
def test_when_tls_is_demanded(options: dict[str, object], wanted: bool) -> None:
    assert ConnectionOptions(**{"servers": ("nats://a",), **options}).wants_tls is wanted  # type: ignore[arg-type]


def test_the_most_telling_reason_comes_first() -> None:
    reasons = [
        NatsFailure("unreachable", "connection refused", server="nats://a"),
        NatsFailure("authorization", "not accepted", server="nats://b"),
    ]
    failure = _client._nobody_let_us_in(reasons)
    assert (failure.code, failure.server) == ("authorization", "nats://b")
    assert "nats://a: connection refused" in failure.description


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_client, "NKEYS_IMPORT_ERROR", "trace")
    with pytest.raises(_client.MissingLibrary) as missing:
        _client.Client(ConnectionOptions(servers=("nats://a",), credentials="x.creds"))
    assert missing.value.library == "nkeys"
    monkeypatch.setattr(_client, "NATS_IMPORT_ERROR", "trace")
    with pytest.raises(_client.MissingLibrary) as missing:
        _client.Client(ConnectionOptions(servers=("nats://a",)))
    assert missing.value.library == "nats-py"
