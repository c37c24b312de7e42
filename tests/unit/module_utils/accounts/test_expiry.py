# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the rule for JWTs that expire soon, and the effects of the expiry."""

from __future__ import annotations

import json
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.expiry import (
    DAY,
    Expiry,
    Logins,
    due,
    evaluate,
)
from support.credentials import Key, make_jwt, new_key

NOW = 1_800_000_000
OPERATOR = new_key(nkeys.PREFIX_BYTE_OPERATOR, 1)
ACCOUNT, APP = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in (2, 3))


def times(left: float, lifetime: float) -> dict[str, Any]:
    return {"exp": int(NOW + left), "iat": int(NOW + left - lifetime)}


def user(number: int, left: float, lifetime: float = 30 * DAY, signer: Key = APP) -> str:
    key = new_key(nkeys.PREFIX_BYTE_USER, number).public
    claims = {"type": "user", "issuer_account": ACCOUNT.public}
    return make_jwt(signer, key, f"shop{number}", claims, top=times(left, lifetime))


def orders(left: float = 0.0, **nats: Any) -> Logins:
    """Return the account ORDERS with the role `app`; `left`: seconds until the account expires, 0 for never."""
    claims = {"type": "account", "signing_keys": [{"kind": "user_scope", "key": APP.public, "role": "app"}], **nats}
    found = Logins()
    found.add_account(
        ACCOUNT.public,
        make_jwt(OPERATOR, ACCOUNT.public, "ORDERS", claims, top=times(left, 365 * DAY) if left else None),
    )
    return found


def connect(found: Logins, *tokens: str) -> None:
    for token in tokens:
        found.add_connection({"account": ACCOUNT.public, "jwt": token})


def only(found: Logins) -> Expiry:
    (row,) = evaluate(found, NOW)
    return row


def test_users_of_a_role_are_one_row_with_the_number_of_connections() -> None:
    found = orders()
    connect(found, *[user(number, 1 * DAY) for number in range(11)], user(10, 1 * DAY), user(20, 25 * DAY))
    row = only(found)
    assert (row.kind, row.account_name, row.role, row.connections, row.severity) == (
        "user",
        "ORDERS",
        "app",
        12,
        "error",
    )
    assert row.text == (
        "account ORDERS: 12 connections of role app will be closed; logins with the same credentials fail "
        "(expires in 1d, 2027-01-16T08:00:00Z)"
    )


@pytest.mark.parametrize(
    ("left", "lifetime", "severity"),
    [
        (31, 365, ""),
        (29, 365, "warning"),
        (7, 365, "error"),
        # Credentials of 30 days are renewed 7 days before their expiry.
        (7, 30, ""),
        (5.9, 30, "warning"),
        (1.4, 30, "error"),
    ],
)
def test_a_short_lifetime_is_reported_later(left: float, lifetime: float, severity: str) -> None:
    found = orders()
    connect(found, user(1, left * DAY, lifetime * DAY))
    row = only(found)
    assert row.severity == severity
    assert due([row]) == ([row] if severity else [])


def test_temporary_logins_are_disregarded() -> None:
    found = orders()
    connect(found, user(1, 60, 900))
    assert evaluate(found, NOW) == []


def test_a_user_without_an_expiry_is_omitted() -> None:
    found = orders()
    connect(found, make_jwt(APP, new_key(nkeys.PREFIX_BYTE_USER, 1).public, "shop", {"type": "user"}))
    assert (evaluate(found, NOW), found.unknown) == ([], [])


def test_an_account_closes_all_of_its_connections() -> None:
    found = orders(left=3 * DAY)
    connect(found, "", user(1, 100 * DAY, 300 * DAY))
    first, second = evaluate(found, NOW)
    assert (first.kind, first.connections, first.severity) == ("account", 2, "error")
    assert "2 open connections will be closed, all logins fail" in first.text
    assert (second.kind, second.severity) == ("user", "")


def test_an_activation_ends_an_import() -> None:
    exporter = new_key(nkeys.PREFIX_BYTE_ACCOUNT, 4)
    activation = make_jwt(
        exporter, ACCOUNT.public, "pay", {"type": "activation", "subject": "pay.api"}, top=times(10 * DAY, 365 * DAY)
    )
    imports = [{"subject": "pay.api", "account": exporter.public, "type": "service", "token": activation}]
    row = only(orders(imports=imports))
    assert (row.kind, row.severity, row.connections) == ("activation", "warning", 0)
    assert row.text.startswith("account ORDERS: the import of pay.api may stop working (expires in 10d")


def test_an_operator_and_a_file_that_has_expired() -> None:
    found = orders()
    found.add_operator(make_jwt(OPERATOR, OPERATOR.public, "ACME", {"type": "operator"}, top=times(-DAY, 365 * DAY)))
    found.add_credentials(user(1, -2 * DAY))
    file, operator = evaluate(found, NOW)
    assert (file.kind, file.account_name, file.role, file.severity) == ("credentials", "ORDERS", "app", "error")
    assert "(expired 2d ago" in file.text
    assert operator.text.startswith("operator ACME: servers may reject its JWT at their next start")


def test_a_connection_that_has_not_logged_in_is_ignored() -> None:
    found = orders()
    found.add_connection({"jwt": user(1, DAY)})
    assert (evaluate(found, NOW), dict(found.connections)) == ([], {})


def test_a_bearer_jwt_without_its_signature_can_be_read() -> None:
    found = orders()
    connect(found, ".".join([*user(1, DAY).split(".")[:2], "[REDACTED]"]))
    assert (only(found).severity, found.unknown) == ("error", [])


@pytest.mark.parametrize("token", ["x", "a.b.c", "e30.W10.x", "e30.!!.x"])
def test_an_unreadable_jwt_is_unknown(token: str) -> None:
    found = orders()
    connect(found, token, token)
    assert len(found.unknown) == 1
    assert found.unknown[0].startswith(f"user {ACCOUNT.public}: a JWT cannot be read: ")


@pytest.mark.parametrize("wrong", [{"exp": "soon"}, {"exp": True}, {"exp": -1}, {"exp": 1e300}])
def test_an_expiry_that_is_not_a_time_is_disregarded(wrong: dict[str, Any]) -> None:
    found = orders()
    connect(found, make_jwt(APP, new_key(nkeys.PREFIX_BYTE_USER, 1).public, "shop", {"type": "user"}, top=wrong))
    assert evaluate(found, NOW) == []


def test_no_row_contains_a_jwt() -> None:
    found = orders(left=3 * DAY)
    connect(found, user(1, DAY))
    rows = [row.as_dict() for row in evaluate(found, NOW)]
    assert len(rows) == 2
    assert "eyJ" not in json.dumps(rows)
