# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how the account of a user in `account_users` is identified."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.account_names import with_identities
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections, account_users
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions, NatsFailure
from support.credentials import Operator, make_operator

OWN = ConnectionOptions(servers=("nats://127.0.0.1:1",))


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return make_operator(tmp_path_factory.mktemp("operator"), "APP", "OTHER")


def users(operator: Operator, **accounts: str) -> Connections:
    """Return connections of users with the .creds file of their account, by the account name of each entry."""
    entries = [{"account": text, "credentials": str(operator.creds[name])} for name, text in accounts.items()]
    return Connections(OWN, account_users(OWN, entries))


def test_the_account_of_a_creds_file_is_the_one_that_issued_it(operator: Operator) -> None:
    by_name = users(operator, APP="APP", OTHER=operator.keys["OTHER"])
    assert by_name.accounts == (operator.keys["APP"], operator.keys["OTHER"])
    assert [by_name.identity(text) for text in ("APP", operator.keys["APP"])] == [operator.keys["APP"]] * 2
    assert by_name.account("APP").account == operator.keys["APP"]
    assert by_name.account(operator.keys["APP"]).label == "APP"
    given = [f"{operator.keys['APP']}/S/C", "APP/S", "APP"]
    assert [by_name.displayed(name) for name in given] == ["APP/S/C", "APP/S", "APP"]


def test_two_users_may_have_accounts_of_one_name_that_is_not_used(operator: Operator) -> None:
    twins = users(operator, APP="TWIN", OTHER="TWIN")
    assert twins.account(operator.keys["OTHER"]).label == operator.keys["OTHER"]
    with pytest.raises(NatsFailure, match=r"2 accounts are named TWIN: A\w{55}, A\w{55}\. Specify") as ambiguous:
        twins.client("TWIN")
    assert ambiguous.value.code == "account_ambiguous"


def test_a_key_must_be_that_of_the_credentials(operator: Operator) -> None:
    with pytest.raises(NatsFailure, match=f"is in account {operator.keys['APP']}, not in {operator.keys['OTHER']}"):
        users(operator, APP=operator.keys["OTHER"])


def test_one_account_has_one_user(operator: Operator, tmp_path: Path) -> None:
    copy = tmp_path / "copy.creds"
    copy.write_text(operator.creds["APP"].read_text())
    entries = [
        {"account": "APP", "credentials": str(operator.creds["APP"])},
        {"account": "A", "credentials": str(copy)},
    ]
    with pytest.raises(NatsFailure, match="two users for account A"):
        account_users(OWN, entries)


@pytest.mark.parametrize(
    "content", ["", "no JWT", "-----BEGIN NATS USER JWT-----\ne30.e30\n------END NATS USER JWT------\n"]
)
def test_a_file_without_an_account_leaves_the_name_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "user.creds"
    path.write_text(content)
    for creds in (str(path), str(tmp_path / "absent.creds")):
        assert list(account_users(OWN, [{"account": "APP", "credentials": creds}])) == ["APP"]


def test_a_pattern_gets_the_identity_of_the_account_that_it_names() -> None:
    names = {"AKEY": "APP", "BKEY": "TWIN", "CKEY": "TWIN"}
    patterns = ["APP/ORDERS*", "APP", "AKEY/X", "*", "X/Y"]
    assert with_identities(patterns, names) == ["AKEY/ORDERS*", "AKEY", "AKEY/X", "*", "X/Y"]
    with pytest.raises(NatsFailure, match="2 accounts are named TWIN: BKEY, CKEY"):
        with_identities(["TWIN/ORDERS"], names)
