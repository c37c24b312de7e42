# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the contexts of the nats command."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_client_contexts import nats_client_contexts

SEED = "SU" + "A" * 56
TOPOLOGY = {"servers": [{}, {}], "client_urls": ["tls://n1:4222", "tls://n2:4222", "tls://far:4222"]}
NO_TLS = {"uses_tls": False, "tls_first": False}
OPTIONS: dict[str, Any] = {
    "contexts": [],
    "cluster_name": "C1",
    "accounts": {},
    "system_account": "$SYS",
    "system_user": "sys",
    "system_password": "s",
    "api_delegate_to": "localhost",
    "api_servers": None,
    "api_credentials": None,
    "api_nkey": None,
    "tls_dir": "/tls",
    "tls_ca_file": "/tls/ca.crt",
    "tls_verify_clients": False,
}


def made(client_tls: dict[str, Any] | None = None, connection: dict[str, Any] | None = None, **options: Any) -> Any:
    return nats_client_contexts({**OPTIONS, **options}, "/ctx", TOPOLOGY, client_tls or NO_TLS, connection)


def names(**options: Any) -> list[str]:
    return [one["name"] for one in made(**options)["contexts"]]


def test_context_of_the_system_user_connects_to_its_own_cluster() -> None:
    (found,) = made()["contexts"]
    assert found == {
        "name": "C1-sys",
        "settings": {
            "description": "NATS cluster C1",
            "user": "sys",
            "password": "s",
            "url": "tls://n1:4222,tls://n2:4222",
        },
    }
    assert made(api_servers=["nats://lb"])["contexts"][0]["settings"]["url"] == "nats://lb"


@pytest.mark.parametrize(
    ("options", "key", "settings"),
    [
        ({"api_nkey": SEED}, ("/ctx/C1-sys.nkey", SEED, ""), {"nkey": "/ctx/C1-sys.nkey"}),
        ({"api_nkey": "/k.nk"}, ("/ctx/C1-sys.nkey", "", "/k.nk"), {"nkey": "/ctx/C1-sys.nkey"}),
        ({"api_credentials": "/c", "api_nkey": SEED}, ("/ctx/C1-sys.creds", "", "/c"), {"creds": "/ctx/C1-sys.creds"}),
        # The files are on a different host, which the seed itself does not need.
        ({"api_credentials": "/c", "api_delegate_to": "jump"}, ("", "", ""), {"user": "sys", "password": "s"}),
        ({"api_nkey": SEED, "api_delegate_to": "jump"}, ("/ctx/C1-sys.nkey", SEED, ""), {"nkey": "/ctx/C1-sys.nkey"}),
    ],
)
def test_system_user_with_a_key(options: dict[str, Any], key: tuple[str, ...], settings: dict[str, Any]) -> None:
    found = made(**options)
    assert tuple(found["key"][name] for name in ("path", "text", "source")) == key
    assert {name: value for name, value in found["contexts"][0]["settings"].items() if name in settings} == settings


def test_users_of_accounts_have_contexts_unless_only_a_hash_is_known() -> None:
    hashed = {"user": "h", "password": "$2b$11$" + 53 * "x"}
    accounts = {
        "APP": {"users": [{"user": "app", "password": "$2p", "permissions": {}}, hashed]},
        "NKEY": {"users": [{"nkey": "U"}]},
        "$SYS": {"users": [{"user": "other", "password": "p"}]},
        "EMPTY": None,
    }
    assert names(accounts=accounts) == ["C1-sys", "C1-app"]
    assert names(accounts=accounts, contexts=[{"name": "own", "user": "x"}, {"user": "y"}]) == ["C1-sys", "own", "C1-y"]
    assert names(system_password=None) == []
    assert "permissions" not in made(accounts=accounts)["contexts"][1]["settings"]


def test_configured_context_overrides_the_common_settings() -> None:
    own = {"name": "own", "servers": "nats://lb:4222", "description": "mine"}
    assert made(contexts=[own])["contexts"][1] == {
        "name": "own",
        "settings": {"description": "mine", "url": "nats://lb:4222"},
    }


def test_tls_files_are_those_of_the_place_of_the_contexts() -> None:
    tls = {"uses_tls": True, "tls_first": "True"}
    host = made(tls, tls_verify_clients=True)["contexts"][0]["settings"]
    assert [host[name] for name in ("ca", "cert", "key", "tls_first")] == [
        "/tls/ca.crt",
        "/tls/server.crt",
        "/tls/server.key",
        True,
    ]
    assert "cert" not in made(tls)["contexts"][0]["settings"]
    controller = made(tls, connection={"tls_ca_file": "/ca"})["contexts"][0]["settings"]
    assert (controller["ca"], controller["cert"]) == ("/ca", None)
