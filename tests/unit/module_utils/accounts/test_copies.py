# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests whether servers' copies of claims agree, and which copy is shown."""

from __future__ import annotations

from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.copies import (
    Copies,
    account_row,
    digest,
    evaluate,
    read_trust,
)
from support.credentials import Key, make_jwt, new_key

NOW = 1_800_000_000.0
OPERATOR, STRANGER = (new_key(nkeys.PREFIX_BYTE_OPERATOR, number) for number in range(2))
ACCOUNT, PAY = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(2))
NAMES = ("n1", "n2", "n3")


def operator(**nats: Any) -> str:
    return make_jwt(OPERATOR, OPERATOR.public, "ACME", {"type": "operator", **nats}, top={"iat": 1})


def account(signer: Key = OPERATOR, issued: int = 5, top: dict[str, int] | None = None, **nats: Any) -> str:
    limits = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
    claims = {"type": "account", "limits": limits, **nats}
    return make_jwt(signer, ACCOUNT.public, "APP", claims, top={"iat": issued, **(top or {})})


TRUST = read_trust({name: [operator()] for name in NAMES}, NOW)


def row(stored: list[str], loaded: dict[str, str] | None = None, absent: tuple[str, ...] = ()) -> dict[str, Any]:
    listed = {name: name not in absent for name in NAMES}
    return account_row(evaluate(Copies(ACCOUNT.public, tuple(stored), listed, loaded or {}), TRUST, NOW))


def test_equal_copies_agree() -> None:
    found = row([account()] * 3, {"n1": account()})
    assert (found["agree"], found["trusted"], found["problems"]) == (True, True, [])


OLD, NEW, FOREIGN = account(), account(issued=9), account(STRANGER, issued=99)


@pytest.mark.parametrize(
    ("stored", "loaded", "absent", "shown", "problem"),
    [
        ([OLD, OLD, NEW], {}, (), OLD, "they store 2 different copies"),
        ([OLD, NEW], {}, (), NEW, "2 of 3 servers returned"),
        ([OLD, OLD, ""], {}, ("n3",), OLD, "the account is not stored on n3"),
        ([NEW] * 3, {"n1": OLD, "n2": NEW}, (), NEW, "different copies are in force"),
        ([FOREIGN] * 3, {"n1": OLD}, (), OLD, "a different one is stored for the next start"),
        ([FOREIGN, FOREIGN, OLD], {}, (), OLD, "they store 2 different copies"),
    ],
)
def test_different_copies_disagree_and_a_trusted_one_is_shown(
    stored: list[str], loaded: dict[str, str], absent: tuple[str, ...], shown: str, problem: str
) -> None:
    found = row(stored, loaded, absent)
    assert not found["agree"] and found["trusted"]
    assert any(problem in one for one in found["problems"]), found["problems"]
    assert {"n": found["issued"]} == {"n": row([shown] * 3)["issued"]}
    named = [one for one in found["problems"] if FOREIGN in (*stored, *loaded.values()) and digest(FOREIGN) in one]
    assert bool(named) == (FOREIGN in (*stored, *loaded.values()))


@pytest.mark.parametrize(
    "text", ["garbage", make_jwt(OPERATOR, PAY.public, "PAY", {"type": "account"}, top={"iat": 1}), operator()]
)
def test_copy_that_cannot_be_read_is_a_problem(text: str) -> None:
    found = row([text] * 3)
    assert (found["name"], found["claims"], found["trusted"]) == (None, None, False)
    assert "cannot be read" in found["problems"][0]


def test_expiry_is_a_problem_before_and_after() -> None:
    later, over = account(top={"exp": int(NOW) + 60}), account(top={"exp": int(NOW) - 60})
    assert "full resolvers delete it" in row([later] * 3)["problems"][0]
    assert row([over] * 3)["problems"][0].startswith("expired at ")
    assert row([later] * 3)["expires"] == "2027-01-15T08:01:00Z"


def test_expired_activation_is_a_problem_and_its_jwt_is_not_returned() -> None:
    token = make_jwt(
        PAY,
        ACCOUNT.public,
        "",
        {"type": "activation", "subject": "pay", "kind": "service"},
        top={"exp": int(NOW) - 60},
    )
    imports = [{"account": PAY.public, "subject": "pay", "type": "service", "token": token}]
    found = row([account(imports=imports)] * 3)
    assert found["problems"] == ["imports: pay: expired at 2027-01-15T07:59:00Z"]
    assert found["activations"] == [
        {"account": PAY.public, "subject": "pay", "issuer": PAY.public, "expires": "2027-01-15T07:59:00Z"}
    ]
    assert "eyJ" not in str(found)


def test_operators_of_the_servers_must_be_the_same() -> None:
    strict = operator(strict_signing_key_usage=True)
    different = read_trust({"n1": [operator()], "n2": [strict], "n3": []}, NOW)
    assert [one for one in different.problems if "different operator JWTs: n1; n2" in one]
    assert [one for one in different.problems if one.startswith("n3: no operator")]
    assert read_trust({"n1": [], "n2": []}, NOW).problems[0].startswith("no server has an operator")
    assert "cannot be read" in read_trust({"n1": ["x"]}, NOW).problems[0]
    assert TRUST.problems == ()
