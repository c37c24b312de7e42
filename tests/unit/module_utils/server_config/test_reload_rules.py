# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests whether a change needs a reload or a restart. tests/integration/test_config_real.py tests the same with real
servers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reload_rules import (
    config_change,
    gateway_tls_first,
)

USERS = [{"user": "a", "password": "1"}, {"user": "b", "password": "2"}]


@pytest.mark.parametrize(
    ("old", "new", "version", "action", "keys"),
    [
        ({"port": 4222}, {"port": "4222"}, "2.10.27", "none", []),
        ({"max_payload": "1MB"}, {"max_payload": 1048576}, "2.10.27", "none", []),
        ({"ping_interval": "60s"}, {"ping_interval": "1m"}, "2.10.27", "none", []),
        ({"pid_file": "/a"}, {"pidfile": "/a"}, "2.10.27", "none", []),
        ({"authorization": {"users": USERS}}, {"authorization": {"users": USERS[::-1]}}, "2.10.27", "none", []),
        ({"debug": None}, {"debug": True}, "2.10.27", "reload", ["debug"]),
        ({"debug": False}, {"debug": True}, "2.9.10", "restart", ["debug"]),
        ({"port": 4222}, {"port": 4223}, "2.10.27", "restart", ["port"]),
        ({}, {"unheard_of": 1}, "2.15.1", "restart", ["unheard_of"]),
        ({"authorization": {"users": USERS}}, {"authorization": {"users": USERS[:1]}}, "2.10.27", "reload",
         ["authorization.users[b]"]),
        ({"jetstream": {}}, {}, "2.15.1", "restart", ["jetstream"]),
        ({"jetstream": {"max_file": "1GB"}}, {"jetstream": {"max_file": "2GB"}}, "2.10.27", "restart",
         ["jetstream.max_file_store"]),
        ({"jetstream": {"max_file": "1GB"}}, {"jetstream": {"max_file": "2GB"}}, "2.12.7", "reload",
         ["jetstream.max_file_store"]),
        ({"jetstream": {"max_file": "2GB"}}, {"jetstream": {"max_file": "1GB"}}, "2.15.1", "restart",
         ["jetstream.max_file_store"]),
        ({"jetstream": {}}, {"jetstream": {"max_file": "1GB"}}, "2.15.1", "restart", ["jetstream.max_file_store"]),
        ({"leafnodes": {"remotes": [{"url": "nats://a"}]}}, {"leafnodes": {"remotes": []}}, "2.12.0", "restart",
         ["leafnodes.remotes[0]"]),
        ({"leafnodes": {"remotes": [{"url": "nats://a"}]}}, {"leafnodes": {"remotes": []}}, "2.14.0", "reload",
         ["leafnodes.remotes[0]"]),
        ({"cluster": {"name": "a"}}, {"cluster": {"name": "b"}}, "2.15.1", "restart", ["cluster.name"]),
        ({"tls": {"cert_file": "/a"}}, {"tls": {"cert_file": "/b"}}, "2.10.27", "reload", ["tls.cert_file"]),
        ({}, {"tls": {"cert_file": "/b"}}, "2.10.27", "restart", ["tls"]),
        ({"cluster": {}}, {"cluster": {"tls": {"cert_file": "/b"}}}, "2.10.27", "reload", ["cluster.tls"]),
        ({"cluster": {}}, {"cluster": {"compression": "s2_fast"}}, "2.15.1", "restart", ["cluster.compression"]),
        ({"cluster": {"compression": "s2_fast"}}, {"cluster": {"compression": False}}, "2.15.1", "restart",
         ["cluster.compression"]),
        ({"cluster": {"compression": {"mode": "s2_fast"}}}, {"cluster": {"compression": {"mode": "accept"}}}, "2.10.27",
         "restart", ["cluster.compression.mode"]),
        ({"cluster": {"compression": "s2_fast"}}, {"cluster": {"compression": {"mode": "s2_auto"}}}, "2.15.1", "reload",
         ["cluster.compression"]),
        ({"cluster": {}}, {"cluster": {"compression": "accept"}}, "2.15.1", "reload", ["cluster.compression"]),
        ({"gateway": {"name": "a"}}, {"gateway": {"name": "a", "connect_retries": 1}}, "2.15.1", "restart",
         ["gateway.connect_retries"]),
        ({"authorization": {}}, {"authorization": {"auth_callout": {"issuer": "A"}}}, "2.15.1", "restart",
         ["authorization.auth_callout"]),
    ],
)  # fmt: skip
def test_the_action(old: dict[str, Any], new: dict[str, Any], version: str, action: str, keys: list[str]) -> None:
    change = config_change(old, new, version)
    assert (change["action"], change["keys"]) == (action, keys)
    assert len(change["reasons"]) >= len(keys)


def test_one_key_that_needs_a_restart_makes_it_a_restart() -> None:
    change = config_change({"port": 1}, {"port": 2, "debug": True}, "2.15.1")
    assert change["action"] == "restart"
    assert change["keys"] == ["debug", "port"]


@pytest.mark.parametrize(
    "path", ["jetstream.encryption_key", "jetstream.prev_encryption_key", "gateway.authorization.password"]
)
@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"])
def test_a_secret_that_a_reload_would_print_is_never_reloaded(path: str, version: str) -> None:
    def config(value: str) -> dict[str, Any]:
        nested: Any = value
        for part in reversed(path.split(".")):
            nested = {part: nested}
        return dict(nested)

    for old, new in ((config("first"), config("second")), (config("first"), {}), ({}, config("second"))):
        change = config_change(old, new, version)
        assert change["action"] == "restart"
        assert "first" not in str(change)
        assert "second" not in str(change)
    assert "log" in str(config_change(config("first"), config("second"), version)["reasons"])


def test_different_version_needs_a_restart() -> None:
    assert config_change({}, {}, "2.10.27", "2.15.1")["action"] == "restart"
    assert config_change({}, {}, "2.10.27", "2.10.27")["action"] == "none"


def test_all_servers_are_to_be_reloaded_together_for_pinned_accounts() -> None:
    change = config_change({"cluster": {}}, {"cluster": {"accounts": ["A"]}}, "2.15.1")
    assert change["action"] == "reload"
    assert "in quick succession" in str(change["reasons"])


@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"])
def test_a_block_is_reloaded_only_if_all_its_keys_are(version: str) -> None:
    callout = {
        "authorization": {"timeout": 3, "auth_callout": {"issuer": "A", "account": "AUTH", "auth_users": ["sys"]}}
    }
    for old, new in (({}, callout), (callout, {})):
        change = config_change(old, new, version)
        assert (change["action"], change["keys"]) == ("restart", ["authorization"])
        assert "auth_callout: needs a restart" in str(change["reasons"])
    assert config_change({}, {"authorization": {"timeout": 3}}, version)["action"] == "reload"


@pytest.mark.parametrize(
    ("reported", "action"), [("v2.15.1", "reload"), ("2.15.1+fork", "reload"), ("devel", "restart"), ("", "restart")]
)
def test_every_version_that_a_server_reports_is_compared(reported: str, action: str) -> None:
    assert config_change({}, {"max_connections": 5}, reported)["action"] == action
    assert config_change({}, {}, reported)["action"] == "none"


TLS = {"cert_file": "/c", "key_file": "/k", "ca_file": "/ca", "verify": True}


def test_the_tls_of_gateways_and_routes_comes_first_and_alone() -> None:
    old = {"port": 4222, "cluster": {"name": "east"}, "gateway": {"name": "east", "authorization": {"user": "g"}}}
    new = {
        "port": 4333,
        "cluster": {"name": "east", "tls": TLS},
        "gateway": {"name": "east", "tls": {**TLS, "timeout": 5}},
    }
    first = gateway_tls_first(old, new)
    assert first == {
        "port": 4222,
        "cluster": {"name": "east", "tls": TLS},
        "gateway": {"name": "east", "authorization": {"timeout": 2, "user": "g"}, "tls": TLS},
    }
    assert config_change(first, new, "2.15.1")["action"] == "restart"


def test_a_time_to_log_in_that_was_chosen_is_kept_in_the_reload() -> None:
    old = {"gateway": {"name": "east", "authorization": {"timeout": 4}}}
    first = gateway_tls_first(old, {"gateway": {"name": "east", "tls": TLS}})
    assert first["gateway"]["authorization"] == {"timeout": 4}


@pytest.mark.parametrize(("old", "new"), [
    ({"gateway": {"name": "east", "tls": TLS}}, {"gateway": {"name": "east", "tls": {**TLS, "ca_file": "/b"}}}),
    ({"gateway": {"name": "east", "tls": TLS}}, {"gateway": {"name": "east"}}),
    ({"cluster": {"name": "east"}}, {"cluster": {"name": "east", "tls": TLS}, "gateway": {"name": "east", "tls": TLS}}),
    ({"cluster": {"name": "east"}}, {"cluster": {"name": "east", "tls": TLS}}),
])  # fmt: skip
def test_nothing_comes_first_where_no_running_gateway_gets_tls(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert gateway_tls_first(old, new) == {}
