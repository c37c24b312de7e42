# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the text of a configuration, its types and its secrets. tests/integration/test_config_real.py tests the same
with real servers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.schema import SCHEMA
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import (
    ConfigError,
    normalise,
    read_secrets,
    secrets,
    write,
    write_key,
    write_secrets,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.units import duration_seconds, size_bytes
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import supports
from hypothesis import given
from hypothesis import strategies as st

ROUTES = [f"nats-route://r:{n}@host-number-{n}:6222" for n in range(3)]
EXAMPLE = {
    "accounts": {
        "APP": {
            "jetstream": True,
            "users": [{"user": "app", "pass": 'p$"x', "permissions": {"publish": ["a.>", "b"]}}],
        },
        "$SYS": {"users": [{"user": "sys", "password": "s"}, {"user": "second", "password": "t"}]},
    },
    "port": "4222",
    "debug": "True",
    "client_advertise": None,
    "cluster": {"port": 6222, "routes": ROUTES, "name": "C1"},
    "server_name": "n1",
    "jetstream": {"max_file": "10GB", "store_dir": "/nats"},
    "write_deadline": 5,
}


def test_the_text_is_ordered_typed_and_pleasant() -> None:
    assert (
        write(EXAMPLE)
        == """\
server_name: "n1"
port: 4222
debug: true
write_deadline: "5s"
jetstream: {
  store_dir: "/nats"
  max_file_store: 10GB
}
cluster: {
  name: "C1"
  port: 6222
  routes: [
    "nats-route://r:0@host-number-0:6222"
    "nats-route://r:1@host-number-1:6222"
    "nats-route://r:2@host-number-2:6222"
  ]
}
accounts: {
  APP: {
    jetstream: true
    users: [
      {
        user: "app"
        password: "p$\\"x"
        permissions: {
          publish: ["a.>", "b"]
        }
      }
    ]
  }
  $SYS: {
    users: [
      { user: "sys", password: "s" }
      { user: "second", password: "t" }
    ]
  }
}"""
    )


def test_a_block_alone_is_written_by_its_path() -> None:
    assert write({"max_file": "1GB", "key": "k"}, ("jetstream",), reference=True, indent=2) == (
        "  max_file_store: 1GB\n  encryption_key: $SECRET_jetstream_encryption_key"
    )


def test_references_and_definitions_are_the_same_ones() -> None:
    text = write(EXAMPLE, reference=True)
    defined = secrets(EXAMPLE)
    assert sorted(defined.values()) == sorted(["s", "t", 'p$"x', *ROUTES])
    assert all(f"${name}" in text for name in defined)
    assert not any(value in text for value in ('p$"x', "r:0@"))
    assert read_secrets(write_secrets(EXAMPLE)) == defined
    assert write_secrets({"port": 1}) == ""


@pytest.mark.parametrize("name", ["api_token", "some_password", "SECRET", "nkey_seed", "db_credentials"])
def test_an_unknown_key_that_sounds_like_a_secret_is_one(name: str) -> None:
    assert list(secrets({"unknown": {name: "x"}}).values()) == ["x"]
    assert secrets({"unknown": {"colour": "x"}}) == {}


def test_names_of_secrets_never_meet() -> None:
    accounts = ["SYS", "$SYS", "$sys", "a b", "a_b", "a-b", "é", "è"]
    config = {"accounts": {name: {"users": [{"user": "u", "password": name}]} for name in accounts}}
    assert sorted(secrets(config).values()) == sorted(accounts)


def test_the_name_of_a_secret_does_not_depend_on_the_order_of_users() -> None:
    two = [{"user": "a", "password": "1"}, {"user": "b", "password": "2"}]
    assert secrets({"authorization": {"users": two}}) == secrets({"authorization": {"users": two[::-1]}})


def test_two_users_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"authorization.users\[a\].password: is set twice"):
        secrets({"authorization": {"users": [{"user": "a", "password": "1"}, {"user": "a", "password": "2"}]}})


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_secrets_survive_being_written(passwords: dict[str, str]) -> None:
    config = {
        "accounts": {"A": {"users": [{"user": user, "password": word or "x"} for user, word in passwords.items()]}}
    }
    assert read_secrets(write_secrets(config)) == secrets(config)
    assert sorted(secrets(config).values()) == sorted(word or "x" for word in passwords.values())


@pytest.mark.parametrize(
    ("path", "value", "normal"),
    [
        ("port", "4222", 4222),
        ("port", "", None),
        ("debug", "yes", True),
        ("debug", "False", False),
        ("listen", "4222", 4222),
        ("listen", "0.0.0.0:4222", "0.0.0.0:4222"),
        ("server_name", 123, "123"),
        ("server_name", "", None),
        ("max_payload", "1 MB", "1MB"),
        ("max_payload", "1048576", 1048576),
        ("ping_interval", 20, "20s"),
        ("ping_interval", "20", "20s"),
        ("server_tags", "one", ["one"]),
        ("cluster.compression", False, "off"),
        ("cluster.compression", {"mode": True, "rtts": ["1ms"]}, {"mode": "on", "rtt_thresholds": ["1ms"]}),
        ("tls.timeout", "2.5", 2.5),
        ("tls.timeout", "500ms", 0.5),
        ("tls.timeout", 2, 2),
        ("jetstream", "True", "True"),
        ("jetstream.sync_interval", "always", "always"),
        ("jetstream.sync_interval", "5", "5s"),
        ("unknown", {"a": None, "b": [1, None, "x"]}, {"b": [1, "x"]}),
    ],
)
def test_values_get_the_type_of_their_key(path: str, value: Any, normal: Any) -> None:
    config: Any = value
    for part in reversed(path.split(".")):
        config = {part: config}
    found: Any = normalise(config)
    for part in path.split("."):
        found = found.get(part)
    assert (found, type(found)) == (normal, type(normal))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"port": "x"}, "port: 'x' is not an integer"),
        ({"port": True}, "port: True is not an integer"),
        ({"debug": 3}, "debug: 3 is neither true nor false"),
        ({"max_payload": "1.5GB"}, "max_payload: '1.5GB' is not a size"),
        ({"ping_interval": "1d"}, "ping_interval: '1d' is not a duration"),
        ({"server_name": True}, "server_name: true is a boolean"),
        ({"authorization": {"token": 1.5}}, "authorization.token: a number with a fraction"),
        ({"authorization": {"users": {"a": 1}}}, None),
        ({"port": {"a": 1}}, "port: expected a value of type int, not a mapping"),
        ({"port": [1]}, "port: expected a value of type int, not a list"),
        ({"cluster": {"routes": [["a"]]}}, r"cluster.routes\[0\]: a list"),
        (
            {"accounts": {"A": {"users": [{"user": "u", "pass": "x", "Password": "y"}]}}},
            r"accounts.A.users\[u\].password: .*twice",
        ),
        ({"gateway": "x"}, "gateway: a block of keys is expected"),
        ({"a\0'\"": 1}, "no way to write this key"),
        ({"a '\"": 1}, "no way to write this key"),
        ({"server_name": "\ud800"}, "server_name: is not valid Unicode"),
        ({"x": 2**63}, "x: .* is beyond 64 bits"),
        ({"x": float("nan")}, "x: nan is not a number"),
    ],
)
def test_invalid_values_are_refused_with_their_path(config: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert write(config)
        return
    with pytest.raises(ConfigError, match=message):
        write(config)


def test_numbers_are_written_in_the_servers_way() -> None:
    assert write({"a": 1e-7, "b": 1e22, "c": -1.5, "d": -3, "e": [1, 2.5]}) == (
        "a: 0.0000001\nb: 10000000000000000000000\nc: -1.5\nd: -3\ne: [\n  1\n  2.5\n]"
    )


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("$SYS", "$SYS"),
        ("a.b", "a.b"),
        ("foo.>", '"foo.>"'),
        ('a"b', "'a\"b'"),
        ("a\"'b", "a\"'b"),
        ("", '""'),
        ("a b", '"a b"'),
    ],
)
def test_keys_are_quoted_where_they_must_be(name: str, written: str) -> None:
    assert write_key(name) == written


def test_durations_and_sizes() -> None:
    assert [duration_seconds(text) for text in ("1h30m", "1.5s", "250ms", "-2m", 3, "4")] == [
        5400,
        1.5,
        0.25,
        -120,
        3,
        4,
    ]
    assert [size_bytes(text) for text in (5, "5", "5k", "5KB", "5Ki", "5MiB", "-1")] == [
        5,
        5,
        5000,
        5120,
        5120,
        5 * 1024**2,
        -1,
    ]
    for bad in ("", "5B", "x", "1.5K", "5 KBs"):
        with pytest.raises(ValueError):
            size_bytes(bad)


def test_the_schema_is_sound() -> None:
    for path, key in SCHEMA.walk():
        assert key.reload in ("Y", "N", "never", "grow") or key.reload.startswith(">="), path
        assert bool(key.children) <= bool({"block", "map"} & set(key.types)), path
        assert not key.bcrypt or key.secret, path


@pytest.mark.parametrize(
    ("since", "version", "has"),
    [
        ((), "2.2.0", True),
        (("2.10.0",), "2.9.10", False),
        (("2.10.0",), "2.10.0", True),
        (("2.11.11", "2.12.2"), "2.11.10", False),
        (("2.11.11", "2.12.2"), "2.11.11", True),
        (("2.11.11", "2.12.2"), "2.12.1", False),
        (("2.11.11", "2.12.2"), "2.14.0", True),
        (("2.12.7", "2.14.0"), "2.15.1-preview.2", True),
    ],
)
def test_keys_of_a_version(since: tuple[str, ...], version: str, has: bool) -> None:
    assert supports(since, version) is has
