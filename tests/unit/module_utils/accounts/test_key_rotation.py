# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the rotation of a role's signing key, and documents while a role has two keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.change import keyless, with_keys
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import Claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import desired_claims, read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.key_rotation import (
    NEW,
    NoRotation,
    key_users,
    role_keys,
    with_second_key,
    without_key,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.plan import (
    differences,
    matched_claims,
    rotated_roles,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.use import AccountUse, LiveConnection
from support.credentials import new_key

ACCOUNT, OLD, FRESH, PLAIN = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number).public for number in range(4))
ROLE: dict[str, Any] = {"allow": {"pub": ["a"]}}


def account(**keys: dict[str, Any]) -> Claims:
    """Return an account with these signing keys, as servers return it."""
    accounts = read_document({"accounts": {"APP": {"id": ACCOUNT, "signing_keys": keys}}}).accounts
    claims = desired_claims(accounts["APP"], accounts, {})
    by_key = {entry["key"]: entry for entry in claims.fields["signing_keys"].values()}
    return replace(claims, fields={**claims.fields, "signing_keys": by_key})


ONE = account(app={**ROLE, "key": OLD}, plain={"key": PLAIN})


def test_second_key_has_the_permissions_of_the_first() -> None:
    added = with_second_key(ONE, "app")
    assert keyless(added) == [NEW]
    both = with_keys(added, ACCOUNT, {NEW: FRESH}, {})
    assert role_keys(both, "app") == sorted([OLD, FRESH])
    scopes = both.fields["signing_keys"]
    assert scopes[FRESH] == {**scopes[OLD], "key": FRESH} and PLAIN in scopes
    assert with_second_key(both, "app") == both
    assert without_key(both, "app", OLD).fields["signing_keys"].keys() == {FRESH, PLAIN}
    assert without_key(without_key(both, "app", OLD), "app", OLD) == without_key(both, "app", OLD)


@pytest.mark.parametrize(
    ("role", "dropped", "reason"),
    [
        ("app", OLD, "is the only key of role app; add a second one first"),
        ("app", PLAIN, "is not a key of role app"),
        ("none", OLD, "does not have role none \\(it has: app\\)"),
    ],
)
def test_key_that_users_still_need_is_not_dropped(role: str, dropped: str, reason: str) -> None:
    with pytest.raises(NoRotation, match=reason):
        without_key(ONE, role, dropped)


def test_users_are_counted_by_the_key_that_signed_them() -> None:
    def connection(issuer: str, owner: str = ACCOUNT) -> LiveConnection:
        return LiveConnection(owner, False, "U", issuer, 1, False)

    live = AccountUse((connection(OLD), connection(OLD), connection(FRESH, PLAIN), connection(PLAIN)), ())
    assert key_users([OLD, FRESH], ONE, live) == {OLD: 2, FRESH: 0}


def test_entry_without_a_key_stands_for_both_keys_of_its_role() -> None:
    both = account(a={**ROLE, "key": OLD, "role": "app"}, b={**ROLE, "key": FRESH, "role": "app"})
    document = read_document({"accounts": {"APP": {"id": ACCOUNT, "signing_keys": {"app": ROLE}}}})
    desired = matched_claims(document.accounts["APP"], document, {"APP": ACCOUNT}, both)
    assert differences(both, desired) == []
    wider = read_document({"accounts": {"APP": {"id": ACCOUNT, "signing_keys": {"app": {"allow": {"pub": ["b"]}}}}}})
    changed = matched_claims(wider.accounts["APP"], wider, {"APP": ACCOUNT}, both)
    assert len(differences(both, changed)) == 2
    assert rotated_roles(both) == [
        "role app has 2 signing keys; drop the old one when all its users have new credentials"
    ]
    assert rotated_roles(ONE) == []
