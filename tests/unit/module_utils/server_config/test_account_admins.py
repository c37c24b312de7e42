# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the operator users in the JetStream accounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.account_admins import (
    PERMISSIONS,
    OperatorLogins,
    clients,
    has_jetstream,
    operation_logins,
    operators,
    with_operators,
)

HASH = "$2b$04$" + "a" * 53

ACCOUNTS: dict[str, dict[str, Any]] = {
    "$SYS": {"users": [{"user": "sys"}], "jetstream": True},
    "APP": {"jetstream": "enabled", "users": [{"user": "app"}]},
    "BARE": {"jetstream": {"max_mem": "1GB"}},
    "CORE": {"users": [{"user": "core"}]},
}


def test_users_with_known_credentials() -> None:
    accounts: dict[str, dict[str, Any]] = {
        "$SYS": {"users": [{"user": "sys", "password": "s"}]},
        "CORE": {"users": [{"username": "core", "pass": "c"}, {"nkey": "UA"}, {"user": "later"}]},
        "APP": {"jetstream": True, "users": [{"user": "app", "password": "a"}, {"user": "old", "password": HASH}]},
    }
    assert clients(accounts, without=["$SYS"]) == [
        {"account": "APP", "user": "app", "password": "a"},
        {"account": "CORE", "user": "core", "password": "c"},
    ]


def test_users_without_permission_for_the_usual_inboxes_get_a_prefix() -> None:
    denied = {"subscribe": {"deny": ["_INBOX.natsops.>"]}}
    users = [
        {"user": "app", "password": "a"},
        {"user": "own", "password": "o", "permission": {"sub": {"allow": ["_INBOX.natsops.>"]}}},
    ]
    assert clients({"APP": {"jetstream": True, "default_permissions": denied, "users": users}}) == [
        {"account": "APP", "user": "app", "password": "a", "inbox_prefix": "_INBOX"},
        {"account": "APP", "user": "own", "password": "o"},
    ]


def test_each_jetstream_account_gets_one() -> None:
    made = with_operators(ACCOUNTS, "secret", "ops-", without=["$SYS"])
    assert {name: [user["user"] for user in account.get("users", ())] for name, account in made.items()} == {
        "$SYS": ["sys"],
        "APP": ["app", "ops-APP"],
        "BARE": ["ops-BARE"],
        "CORE": ["core"],
    }
    assert made["BARE"]["users"][0]["permissions"] == PERMISSIONS
    assert ACCOUNTS["APP"]["users"] == [{"user": "app"}]
    assert operators(ACCOUNTS, "secret", "ops-", without=["$SYS"]) == [
        {"account": "APP", "user": "ops-APP", "password": "secret"},
        {"account": "BARE", "user": "ops-BARE", "password": "secret"},
    ]


def test_without_a_password_there_are_none() -> None:
    assert with_operators(ACCOUNTS, None, "ops-") == ACCOUNTS
    assert operators(ACCOUNTS, None, "ops-") == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        ("enabled", True),
        ("Enable", True),
        ({"max_mem": 1}, True),
        ({}, True),
        (False, False),
        ("disabled", False),
        (None, False),
    ],
)
def test_settings_that_enable_jetstream(value: object, expected: bool) -> None:
    assert has_jetstream({"jetstream": value}) is expected


# --- The users of an operation ----------------------------------------------------------------------------------------

OPS = {"account": "BARE", "user": "ops", "password": "p"}
KEY = {"account": "APP", "key_directory": "/keys"}
APPLICATION = {"account": "APP", "user": "app", "password": "a"}


def logins(purpose: str, *users: dict[str, Any], key_directory: str = "", runs_on: str = "localhost") -> list[Any]:
    accounts = {**ACCOUNTS, "APP": {"jetstream": True, "users": [{"user": "app", "password": "a"}]}}
    given = OperatorLogins(users, accounts, "secret", "operator-", "$SYS", key_directory, [runs_on, "localhost"])
    return operation_logins(given, purpose)


def admin(account: str) -> dict[str, str]:
    return {"account": account, "user": f"operator-{account}", "password": "secret"}


@pytest.mark.parametrize(
    ("purpose", "users", "options", "expected"),
    [
        ("all", [], {}, [admin("APP"), admin("BARE")]),
        ("all", [OPS], {}, [OPS, admin("APP")]),
        ("all", [OPS, KEY], {}, [OPS, KEY]),
        ("all", [KEY], {"key_directory": "/k"}, [KEY, {"account": "*", "key_directory": "/k"}, admin("BARE")]),
        ("smoke_test", [OPS], {}, [OPS, APPLICATION, admin("APP")]),
        ("each_account", [OPS], {}, [OPS, admin("APP")]),
        ("host", [OPS, KEY], {"key_directory": "/k"}, [OPS]),
        ("host", [KEY], {"runs_on": "n1"}, [admin("BARE")]),
        ("all", [OPS], {"runs_on": "n1"}, [OPS, admin("APP")]),
    ],
)
def test_each_purpose_has_its_users(
    purpose: str, users: list[dict[str, Any]], options: dict[str, str], expected: list[dict[str, Any]]
) -> None:
    assert logins(purpose, *users, **options) == expected


def test_the_least_limited_application_of_each_account_serves_its_assets() -> None:
    limited = {"user": "reader", "password": "r", "permissions": {"publish": "a"}}
    users = [limited, {"user": "hashed", "password": HASH}, {"user": "app", "password": "a"}]
    accounts = {"APP": {"jetstream": True, "users": users}, "BARE": {"jetstream": True, "users": [limited]}}
    given = OperatorLogins([], accounts, None, "operator-", "$SYS", "", [])
    reader = {"account": "BARE", "user": "reader", "password": "r"}
    assert operation_logins(given, "each_account") == [APPLICATION, reader]
    assert operation_logins(replace(given, users=[OPS]), "each_account") == [OPS, APPLICATION]
    assert operation_logins(replace(given, password="secret"), "each_account") == [admin("APP"), admin("BARE")]
    minted = {"account": "*", "key_directory": "/k"}
    assert operation_logins(replace(given, key_directory="/k"), "each_account") == [minted]


@pytest.mark.parametrize("purpose", ["all", "smoke_test", "each_account"])
@pytest.mark.parametrize(
    ("users", "key_directory"), [([], "/k"), ([KEY], ""), ([{"account": "APP", "account_seed": "SA"}], "")]
)
def test_no_signing_key_leaves_the_controller(purpose: str, users: list[dict[str, Any]], key_directory: str) -> None:
    assert logins(purpose, *users, key_directory=key_directory)
    with pytest.raises(ValueError, match="modules would run on n1, and no seed may leave the controller"):
        logins(purpose, *users, key_directory=key_directory, runs_on="n1")


def test_unknown_purpose_is_refused() -> None:
    with pytest.raises(ValueError, match="must be all, smoke_test, each_account or host, not 'some'"):
        logins("some")
