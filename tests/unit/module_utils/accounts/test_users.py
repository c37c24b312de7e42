# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests users of a role: JWTs that servers accept, and the subjects that test the role's permissions."""

from __future__ import annotations

from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import Claims, decode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import desired_claims, read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.fields import Normal
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.token import InvalidToken
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.users import (
    allowed_subscription,
    denied_publication,
    probe_obstacle,
    role_user,
    template_values,
)
from support.credentials import new_key

NOW = 1_800_000_000
ACCOUNT, ROLE, OTHER = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(3))
USER = new_key(nkeys.PREFIX_BYTE_USER, 1).public


def account(role: dict[str, Any], **fields: Any) -> Claims:
    """Return an account with one role, as servers return it."""
    item = {"id": ACCOUNT.public, "signing_keys": {"app": {"key": ROLE.public, "role": "app", **role}}, **fields}
    accounts = read_document({"accounts": {"APP": item}}).accounts
    claims = desired_claims(accounts["APP"], accounts, {})
    keys: dict[str, Normal] = {entry["key"]: entry for entry in claims.fields["signing_keys"].values()}
    claims.fields["signing_keys"] = keys
    return claims


def test_user_of_a_role_has_no_own_permissions() -> None:
    token = role_user(account({"allow": {"pub": ["a"]}}), ROLE, USER, "shop", ["team:x"], NOW, NOW + 60, True)
    user = decode_claims(token)
    assert (user.name, user.issuer, user.subject, user.expires) == ("shop", ROLE.public, USER, NOW + 60)
    assert (user.fields["issuer_account"], user.fields["tags"]) == (ACCOUNT.public, ["team:x"])
    assert user.fields["allow.pub"] == [] and user.fields["limits.subscriptions"] == 0


@pytest.mark.parametrize(
    ("role", "fields", "signer", "reason"),
    [
        ({"allow": {"pub": ["a.{{tag(team)}}"]}}, {}, ROLE, "needs a tag team:VALUE of the user"),
        ({}, {}, OTHER, "not a signing key of the account"),
        ({}, {}, ACCOUNT, "servers refuse under strict_signing_keys"),
        ({}, {"revoke": {"*": "2100-01-01T00:00:00Z"}}, ROLE, "revoked"),
    ],
)
def test_user_that_servers_would_refuse_is_not_signed(
    role: dict[str, Any], fields: dict[str, Any], signer: Any, reason: str
) -> None:
    with pytest.raises(InvalidToken, match=reason):
        role_user(account(role, **fields), signer, USER, "shop", [], NOW, NOW + 60, True)


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [
        ({}, "natsops-probe", None),
        ({"allow": {"pub": ["a.>"], "sub": ["b.*.c"]}}, "b.natsops-probe.c", "natsops-probe"),
        ({"allow": {"pub": [">"]}}, "natsops-probe", None),
        ({"allow": {"pub": ["*"]}}, "natsops-probe", "natsops-probe.denied"),
        ({"deny": {"pub": ["secret.>"], "sub": [">"]}}, None, "secret.natsops-probe"),
        ({"allow": {"sub": ["a.> queue"]}}, "a.natsops-probe", None),
        ({"allow": {"sub": ["a", "b"]}, "deny": {"sub": ["a"]}}, "b", None),
        ({"allow": {"sub": ["{{name()}}.{{tag(team)}}.{{account-tag(site)}}"]}}, "shop.x.berlin", None),
    ],
)
def test_role_is_tested_with_one_allowed_and_one_denied_subject(
    role: dict[str, Any], allowed: str | None, denied: str | None
) -> None:
    claims = account(role, tags=["site:berlin"])
    values = template_values(claims, USER, "shop", ["team:x"])
    found = claims.fields["signing_keys"][ROLE.public]
    assert (allowed_subscription(found, values), denied_publication(found, values)) == (allowed, denied)


@pytest.mark.parametrize(
    ("role", "fields", "reason"),
    [
        ({}, {}, ""),
        ({"source_addresses": ["10.0.0.0/8"], "bearer": True}, {}, "the role limits source_addresses"),
        ({}, {"limits": {"connections": 3}}, "the account allows 3 connections"),
        ({}, {"limits": {"connections": 4}}, ""),
        ({}, {"limits": {"connections": "none"}}, "the account allows no connections"),
        ({}, {"revoke": {"*": "2100-01-01T00:00:00Z"}}, "the account revokes all users"),
    ],
)
def test_role_that_cannot_be_tested_has_a_reason(role: dict[str, Any], fields: dict[str, Any], reason: str) -> None:
    claims = account(role, **fields)
    assert probe_obstacle(claims.fields["signing_keys"][ROLE.public], claims, 3, NOW) == reason
