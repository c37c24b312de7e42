# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the steps of replacing the operator's signing key, from each state in which a run may have been interrupted."""

from __future__ import annotations

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import Claims, decode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.copies import Copies, evaluate, read_trust
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.operator_key import (
    issuers,
    operator_step,
    signed_accounts,
    with_signing_keys,
)
from support.credentials import make_jwt, new_key

IDENTITY, OLD, NEW = (new_key(nkeys.PREFIX_BYTE_OPERATOR, number) for number in range(3))
ACCOUNT = new_key(nkeys.PREFIX_BYTE_ACCOUNT, 3).public


def token(*keys: str) -> str:
    claims = {"type": "operator", "signing_keys": list(keys), "strict_signing_key_usage": True}
    return make_jwt(IDENTITY, IDENTITY.public, "ACME", claims, top={"iat": 1})


def operator(keys: str) -> Claims:
    public = {"o": OLD.public, "n": NEW.public}
    return decode_claims(token(*(public[key] for key in keys)))


@pytest.mark.parametrize(
    ("jwt", "servers", "has_new", "signed", "step"),
    [
        ("o", ["o"], False, True, "add the key"),
        ("o", ["o"], True, True, "add the key"),
        ("on", ["o"], True, True, "restart"),
        ("on", ["o", "on"], True, True, "restart"),
        ("on", ["on"], True, True, "sign the accounts"),
        ("on", ["on"], True, False, "drop the key"),
        ("n", ["on"], True, True, "sign the accounts"),
        ("n", ["on"], True, False, "restart"),
        ("n", ["on", "n"], True, False, "restart"),
        ("n", ["n"], True, False, "done"),
    ],
)
def test_step_follows_from_the_state(jwt: str, servers: list[str], has_new: bool, signed: bool, step: str) -> None:
    new = NEW.public if has_new else ""
    found = operator_step(operator(jwt), [operator(one) for one in servers], new, OLD.public, ["A"] if signed else [])
    assert found == step


def test_a_single_copy_of_the_old_key_counts() -> None:
    old, new = (make_jwt(key, ACCOUNT, "APP", {"type": "account"}) for key in (OLD, NEW))
    trust = read_trust({"n1": [token(OLD.public, NEW.public)]}, 2.0)
    one = evaluate(Copies(ACCOUNT, (new, new, ""), {"n1": True}, {"n3": old}), trust, 2.0)
    assert issuers(one) == {OLD.public, NEW.public}
    assert signed_accounts([one], OLD.public) == [ACCOUNT] and signed_accounts([one], IDENTITY.public) == []


def test_jwt_changes_only_its_keys_and_its_time() -> None:
    both = with_signing_keys(token(OLD.public), IDENTITY, NEW.public, "", 5)
    claims = decode_claims(both)
    assert claims.fields["signing_keys"] == sorted([OLD.public, NEW.public])
    assert (claims.issued_at, claims.issuer, claims.fields["strict_signing_keys"]) == (5, IDENTITY.public, True)
    assert decode_claims(with_signing_keys(both, IDENTITY, "", OLD.public, 6)).fields["signing_keys"] == [NEW.public]
