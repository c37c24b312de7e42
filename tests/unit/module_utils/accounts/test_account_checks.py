# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each check of claims fires for a claim that a server refuses, and none fires for claims that a server accepts."""

from __future__ import annotations

from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.checks import (
    account_problems,
    content_problems,
    operator_problems,
    user_problems,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import Claims, decode_claims
from support.credentials import Key, make_jwt, new_key

NOW = 1_800_000_000.0
OPERATOR, OPERATOR_SIGNING, STRANGER = (new_key(nkeys.PREFIX_BYTE_OPERATOR, number) for number in range(3))
ACCOUNT, PAY, SIGNING, PLAIN = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(4))
USER = new_key(nkeys.PREFIX_BYTE_USER, 1)
FREE = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
TEMPLATE = {"pub": {"allow": ["{{tag(team)}}.>"]}, "sub": {"allow": ["{{account-tag(region)}}.>"]}}
SCOPE = {"kind": "user_scope", "key": SIGNING.public, "role": "app", "template": TEMPLATE, "description": ""}


def operator(strict: bool = False, signer: Key = OPERATOR, **nats: Any) -> Claims:
    claims = {"type": "operator", "signing_keys": [OPERATOR_SIGNING.public], "strict_signing_key_usage": strict, **nats}
    return decode_claims(make_jwt(signer, OPERATOR.public, "ACME", claims))


def account(signer: Key = OPERATOR, times: dict[str, int] | None = None, **nats: Any) -> Claims:
    return decode_claims(
        make_jwt(signer, ACCOUNT.public, "APP", {"type": "account", "limits": FREE, **nats}, top=times or {})
    )


def user(signer: Key, times: dict[str, int] | None = None, **nats: Any) -> Claims:
    return decode_claims(make_jwt(signer, USER.public, "app", {"type": "user", **nats}, top=times or {}))


def test_accepted_claims_have_no_problem() -> None:
    claims = account(
        OPERATOR_SIGNING,
        signing_keys=[PLAIN.public, SCOPE],
        tags=["region:eu"],
        exports=[
            {"subject": "ev.>", "type": "stream"},
            {"subject": "api.*", "type": "service", "account_token_position": 2},
        ],
        imports=[{"account": PAY.public, "subject": "pay.*", "local_subject": "p.$1", "type": "service"}],
        mappings={"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 40}]},
        revocations={"*": 5},
    )
    assert account_problems(claims, [operator(strict=True)], NOW) == []
    assert operator_problems(operator(operator_service_urls=["tls://n1:4222"]), NOW) == []


@pytest.mark.parametrize(
    ("signer", "strict", "reason"),
    [
        (OPERATOR, False, ""),
        (OPERATOR_SIGNING, True, ""),
        (OPERATOR, True, "strict_signing_keys"),
        (STRANGER, False, "not a key of the servers' operator"),
        (ACCOUNT, False, "not a key of the servers' operator"),
    ],
)
def test_signer_must_be_a_key_of_the_operator(signer: Key, strict: bool, reason: str) -> None:
    found = account_problems(account(signer), [operator(strict)], NOW)
    assert (found == []) if not reason else (len(found) == 1 and reason in found[0])


@pytest.mark.parametrize(
    ("nats", "reason"),
    [
        ({"limits": {**FREE, "conn": -5}}, "limits.connections: -5"),
        ({"limits": {**FREE, "tiered_limits": {"R9": {"disk_storage": 1}}}}, "R9: not a tier"),
        ({"limits": {**FREE, "exports": 0}, "exports": [{"subject": "a", "type": "stream"}]}, "allows none"),
        (
            {"limits": {**FREE, "exports": 5, "wildcards": False}, "exports": [{"subject": "a.*", "type": "stream"}]},
            "wildcard_exports is false",
        ),
        ({"exports": [{"subject": "a..b", "type": "stream"}]}, "empty token"),
        ({"exports": [{"subject": "a b", "type": "stream"}]}, "has a space"),
        ({"exports": [{"subject": "a"}]}, "not stream or service"),
        ({"exports": [{"subject": "a.>", "type": "stream"}, {"subject": "a.b", "type": "stream"}]}, "overlaps"),
        ({"exports": [{"subject": "a", "type": "stream", "response_type": "Stream"}]}, "only for services"),
        ({"exports": [{"subject": "a.b", "type": "service", "account_token_position": 2}]}, "not the place of a *"),
        ({"imports": [{"account": "PAY", "subject": "a", "type": "service"}]}, "not the public key of an account"),
        ({"imports": [{"account": PAY.public, "subject": "a.>", "local_subject": "b", "type": "stream"}]}, "end in >"),
        (
            {"imports": [{"account": PAY.public, "subject": "a.*", "local_subject": "b.$2", "type": "stream"}]},
            "refers to",
        ),
        (
            {
                "imports": [
                    {"account": PAY.public, "subject": name, "local_subject": "x", "type": "service"} for name in "ab"
                ]
            },
            "overlaps the import",
        ),
        ({"signing_keys": [USER.public]}, "not the public key of an account"),
        ({"signing_keys": [{**SCOPE, "template": {"pub": {"allow": ["{{host()}}"]}}}]}, "host()"),
        ({"signing_keys": [SCOPE]}, "needs a tag region:VALUE of the account"),
        ({"signing_keys": [{**SCOPE, "template": {"src": ["10.0.0"]}}]}, "not a network"),
        ({"default_permissions": {"pub": {"allow": ["a q"]}}}, "too many spaces"),
        ({"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}}, "sum to 120"),
        ({"authorization": {"allowed_accounts": ["*"]}}, "needs users"),
        ({"authorization": {"auth_users": [ACCOUNT.public]}}, "not the public key of a user"),
        ({"trace": {"dest": "t.*"}}, "wildcards"),
        ({"cluster_traffic": "other"}, "cluster_traffic"),
        ({"revocations": {ACCOUNT.public: 1}}, "not the public key of a user"),
        ({"info_url": "example"}, "info_url"),
    ],
)
def test_account_with_a_refused_claim_has_that_problem(nats: dict[str, Any], reason: str) -> None:
    found = content_problems(account(**nats))
    assert len([one for one in found if reason in one]) == 1, found


def test_expired_and_future_claims_are_problems() -> None:
    assert "expired at 2001-09-09" in account_problems(account(times={"exp": 10**9}), [operator()], NOW)[0]
    assert "not valid before" in account_problems(account(times={"nbf": 2 * 10**9}), [operator()], NOW)[0]


def test_operator_with_a_refused_claim_has_that_problem() -> None:
    assert "not a key of this operator" in operator_problems(operator(signer=STRANGER), NOW)[0]
    assert operator_problems(operator(signer=OPERATOR_SIGNING), NOW) == []
    bad = operator(system_account="SYS", assert_server_version="2.x", operator_service_urls=["http://[n1"])
    assert [one.partition(":")[0] for one in operator_problems(bad, NOW)] == [
        "system_account",
        "assert_server_version",
        "service_urls",
    ]


# --- activations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signer", "importer", "nats", "reason"),
    [
        (PAY, ACCOUNT, {}, ""),
        (SIGNING, ACCOUNT, {"issuer_account": PAY.public}, ""),
        (SIGNING, ACCOUNT, {}, "not from the exporting account"),
        (PAY, SIGNING, {}, "for a different account"),
        (PAY, ACCOUNT, {"subject": "other"}, "permits service other"),
        (PAY, ACCOUNT, {"kind": "stream"}, "permits stream pay.>"),
    ],
)
def test_activation_must_permit_the_import(signer: Key, importer: Key, nats: dict[str, Any], reason: str) -> None:
    token = make_jwt(signer, importer.public, "", {"type": "activation", "subject": "pay.>", "kind": "service", **nats})
    item = {"account": PAY.public, "subject": "pay.api", "type": "service", "token": token}
    found = content_problems(account(imports=[item]))
    assert (found == []) if not reason else (len(found) == 1 and reason in found[0])


def test_altered_activation_is_invalid() -> None:
    item = {"account": PAY.public, "subject": "pay.api", "type": "service", "token": "a.b.c"}
    assert "the activation is invalid" in content_problems(account(imports=[item]))[0]


# --- users ------------------------------------------------------------------------------------------------------------

HOME = {"signing_keys": [SCOPE, PLAIN.public], "tags": ["region:eu"]}
PLAIN_USER = {"subs": -1, "data": -1, "payload": -1, "issuer_account": ACCOUNT.public}
SCOPED_USER = {"issuer_account": ACCOUNT.public, "tags": ["team:x"]}


@pytest.mark.parametrize(
    ("signer", "own", "home", "strict", "reason"),
    [
        (PLAIN, PLAIN_USER, {}, True, ""),
        (ACCOUNT, PLAIN_USER, {}, False, ""),
        (ACCOUNT, PLAIN_USER, {}, True, "strict_signing_keys"),
        (PAY, PLAIN_USER, {}, False, "not a signing key of the account"),
        (PLAIN, {**PLAIN_USER, "issuer_account": PAY.public}, {}, False, "issuer_account"),
        (PLAIN, {"issuer_account": ACCOUNT.public}, {}, False, "limits.subscriptions: 0"),
        (PLAIN, {**PLAIN_USER, "bearer_token": True}, {"limits": {**FREE, "disallow_bearer": True}}, False, "bearer"),
        (SIGNING, SCOPED_USER, {}, True, ""),
        (SIGNING, {**SCOPED_USER, "subs": -1}, {}, False, "must have no permissions"),
        (SIGNING, {**SCOPED_USER, "tags": ["squad:x"]}, {}, False, "needs a tag team:VALUE of the user"),
        (SIGNING, SCOPED_USER, {"tags": []}, False, "needs a tag region:VALUE of the account"),
        (SIGNING, SCOPED_USER, {"revocations": {USER.public: 2 * 10**9}}, False, "revoked"),
        (SIGNING, SCOPED_USER, {"revocations": {"*": 2 * 10**9}}, False, "revoked"),
        (SIGNING, SCOPED_USER, {"revocations": {"*": 5}}, False, ""),
    ],
)
def test_user_logs_in_only_with_claims_that_its_account_allows(
    signer: Key, own: dict[str, Any], home: dict[str, Any], strict: bool, reason: str
) -> None:
    found = user_problems(user(signer, **own), account(**{**HOME, **home}), strict, NOW)
    assert (found == []) if not reason else any(reason in one for one in found), found
    assert reason or not found
