# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests .creds files: reading, writing, and each reason to renew one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import Claims, decode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.credentials import (
    DesiredCredentials,
    UserCredentials,
    read_credentials,
    renewal_reasons,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import desired_claims, read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.seeds import read_seed
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.users import role_user
from support.credentials import new_key

NOW = 1_800_000_000
ACCOUNT, ROLE, SECOND = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(3))
USER, OTHER = (read_seed(new_key(nkeys.PREFIX_BYTE_USER, number).seed, ["user"]) for number in range(2))
DESIRED = DesiredCredentials("shop", ROLE.public, ("Team:X",), 3600, 600)


def account(identity: str = ACCOUNT.public, **fields: Any) -> Claims:
    keys = {"app": {"key": ROLE.public, "role": "app"}, "b": {"key": SECOND.public, "role": "b"}}
    accounts = read_document({"accounts": {"APP": {"id": identity, "signing_keys": keys, **fields}}}).accounts
    claims = desired_claims(accounts["APP"], accounts, {})
    by_key = {entry["key"]: entry for entry in claims.fields["signing_keys"].values()}
    return replace(claims, fields={**claims.fields, "signing_keys": by_key})


def issued(expires: int = NOW + 3600, at: int = NOW) -> UserCredentials:
    token = role_user(account(), ROLE, USER.public, "shop", ["team:x"], at, expires, False)
    return UserCredentials(token, decode_claims(token), USER)


def test_credentials_are_read_back_as_they_were_written() -> None:
    found = read_credentials(issued().text)
    assert found is not None
    assert (found.claims, found.key.public, found.text) == (issued_claims(found), USER.public, found.text)
    assert USER.seed not in repr(found) and found.token not in repr(found)


def issued_claims(found: UserCredentials) -> Claims:
    return decode_claims(found.token)


@pytest.mark.parametrize("text", ["", "x", "seed of another key", "JWT of another kind"])
def test_defective_credentials_count_as_absent(text: str) -> None:
    good = issued().text
    defective = {
        "seed of another key": good.replace(USER.seed, OTHER.seed),
        "JWT of another kind": good.replace(issued().token[5:15], "AAAAAAAAAA"),
    }
    assert read_credentials(defective.get(text, text)) is None


def test_valid_credentials_are_kept() -> None:
    assert renewal_reasons(issued(), DESIRED, account(), False, NOW) == []
    forever = replace(DESIRED, expires=0)
    assert renewal_reasons(issued(expires=0), forever, account(), False, NOW + 10**9) == []


@pytest.mark.parametrize(
    ("changed", "fields", "now", "reason"),
    [
        ({"name": "till"}, {}, NOW, "the name is 'shop'"),
        ({"signer": SECOND.public}, {}, NOW, "they were signed with a different key"),
        ({"tags": ()}, {}, NOW, "the tags differ"),
        ({"expires": 0}, {}, NOW, "they expire"),
        ({}, {}, NOW + 3000, "they expire at 2027-01-15T09:00:00Z"),
        ({}, {}, NOW + 3601, "expired at 2027-01-15T09:00:00Z"),
        ({}, {"identity": SECOND.public}, NOW, "the credentials belong to a different account"),
        ({}, {"revoke": {"*": "2100-01-01T00:00:00Z"}}, NOW, "revoked: "),
    ],
)
def test_each_difference_is_a_reason_for_a_renewal(
    changed: dict[str, Any], fields: dict[str, Any], now: int, reason: str
) -> None:
    (found,) = renewal_reasons(issued(), replace(DESIRED, **changed), account(**fields), False, now)
    assert found.startswith(reason)


def test_missing_credentials_and_a_new_lifetime_are_reasons() -> None:
    assert renewal_reasons(None, DESIRED, account(), False, NOW) == ["there are no usable credentials"]
    assert renewal_reasons(issued(expires=0), DESIRED, account(), False, NOW) == ["they never expire"]
