# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests keys, JWTs and claims: JWTs of other tools are decoded, and encoded claims decode to the same claims."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claim_fields import from_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import (
    FIELDS,
    Claims,
    decode_claims,
    encode_claims,
    import_key,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.fields import (
    ACCOUNT_FIELDS,
    JETSTREAM,
    LIMITS,
    SIGNING_KEY,
    ClaimField,
    Normal,
    ordered,
    words,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.keys import is_valid_signature, key_kind
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.token import InvalidToken, decode
from hypothesis import given, settings
from hypothesis import strategies as st
from support.credentials import Key, make_jwt, new_key

OPERATOR = new_key(nkeys.PREFIX_BYTE_OPERATOR, 1)
ACCOUNT, OTHER, SIGNING = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(3))
USER = new_key(nkeys.PREFIX_BYTE_USER, 1)
SIGNERS = {"operator": OPERATOR, "account": OPERATOR, "user": ACCOUNT, "activation": OTHER}
SUBJECTS = {"operator": OPERATOR, "account": ACCOUNT, "user": USER, "activation": ACCOUNT}


def account(**nats: Any) -> Claims:
    """Return decoded claims of an account that have these fields under `nats`."""
    return decode_claims(make_jwt(OPERATOR, ACCOUNT.public, "APP", {"type": "account", **nats}))


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [
        (nkeys.PREFIX_BYTE_OPERATOR, "operator"),
        (nkeys.PREFIX_BYTE_ACCOUNT, "account"),
        (nkeys.PREFIX_BYTE_USER, "user"),
        (nkeys.PREFIX_BYTE_SERVER, "server"),
    ],
)
def test_public_key_has_a_kind_and_a_seed_has_none(prefix: int, kind: str) -> None:
    key = new_key(prefix)
    assert key_kind(key.public) == kind
    assert key_kind(key.seed) is None


@pytest.mark.parametrize(
    "change", [lambda key: key[:-1], lambda key: key.lower(), lambda key: key[:-1] + "7A"[key[-1] == "7"]]
)
def test_altered_key_is_not_a_key(change: Any) -> None:
    assert key_kind(change(ACCOUNT.public)) is None


def test_signature_is_valid_for_its_key_and_data_only() -> None:
    signature = ACCOUNT.sign(b"data")
    assert is_valid_signature(ACCOUNT.public, b"data", signature)
    assert not is_valid_signature(ACCOUNT.public, b"date", signature)
    assert not is_valid_signature(OTHER.public, b"data", signature)
    assert not is_valid_signature(ACCOUNT.public, b"data", b"")


# --- JWTs -------------------------------------------------------------------------------------------------------------


def altered(token: str, **payload: Any) -> str:
    """Return the JWT with changed values in its payload and its original signature."""
    header, body, signature = token.split(".")
    content = {**json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))), **payload}
    changed = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    return f"{header}.{changed}.{signature}"


TOKEN = make_jwt(OPERATOR, ACCOUNT.public, "APP", {"type": "account"}, top={"iat": 1})


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "header, payload and signature"),
        ("YWJj.b.c", "header is not JSON"),
        ("é.é.é", "not base64url"),
        (altered(TOKEN, name="OTHER"), "signature is not that of its issuer"),
        (altered(TOKEN, iss=OTHER.public), "signature is not that of its issuer"),
        (altered(TOKEN, iss=USER.public), "not the public key of an operator or an account"),
        (altered(TOKEN, sub=USER.public), "not the public key of an account"),
        (altered(TOKEN, exp="soon"), "exp: missing, or not of the expected type"),
        (altered(TOKEN, iss=None), "iss: missing"),
        (altered(TOKEN, nats={"type": "account", "version": 1}), "version 1"),
        (altered(TOKEN, nats={"type": "account", "version": 3}), "version 3"),
        (altered(TOKEN, nats={"type": "cluster", "version": 2}), "'cluster'"),
        (altered(TOKEN, nats=[]), "version 1"),
        ("a" * 2_000_000, "2,000,000 characters"),
    ],
)
def test_invalid_jwt_is_refused_with_its_reason(token: str, reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        decode(token)


@pytest.mark.parametrize(
    ("nats", "reason"),
    [
        ({"limits": {"conn": "many"}}, "limits.conn: 'many' is not a number"),
        ({"limits": []}, "limits: not an object"),
        ({"imports": {}}, "imports: not a list"),
        ({"exports": [3]}, "exports: "),
        ({"signing_keys": [{"kind": "group_scope", "key": SIGNING.public}]}, "is not user_scope"),
        ({"signing_keys": [{"kind": "user_scope"}]}, "key: missing"),
        ({"default_permissions": {"pub": 5}}, "default_permissions.pub: not an object"),
        ({"revocations": {"*": "now"}}, "revocations: "),
        ({"trace": 7}, "trace: 7 is not of the expected type"),
    ],
)
def test_claims_of_unexpected_types_are_refused_with_their_path(nats: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        account(**nats)


# --- claims of other tools --------------------------------------------------------------------------------------------


def test_account_of_nsc_is_decoded() -> None:
    """The claims are those that nsc 2.10 writes for an account with a scoped key, imports and exports."""
    claims = account(
        limits={
            "subs": -1,
            "data": -1,
            "payload": 1048576,
            "imports": -1,
            "exports": -1,
            "wildcards": True,
            "conn": 500,
        }
        | {
            "tiered_limits": {
                "R3": {"disk_storage": 107374182400, "streams": 20, "consumer": -1, "max_bytes_required": True}
            }
        },
        signing_keys=[
            SIGNING.public,
            {
                "kind": "user_scope",
                "key": OTHER.public,
                "role": "app",
                "template": {
                    "pub": {"allow": ["orders.{{name()}}.>"]},
                    "sub": {},
                    "subs": -1,
                    "resp": {"max": 0, "ttl": 0},
                },
                "description": "",
            },
        ],
        exports=[{"name": "events", "subject": "orders.>", "type": "stream", "token_req": True}],
        default_permissions={"pub": {}, "sub": {}},
        authorization={},
        description="orders",
    )
    shown = words(ACCOUNT_FIELDS, claims.fields)
    assert shown == {
        "description": "orders",
        "limits": {
            "connections": 500,
            "leaf": "none",
            "subscriptions": "unlimited",
            "payload": "1MiB",
            "data": "unlimited",
            "imports": "unlimited",
            "exports": "unlimited",
            "jetstream": {
                "R3": {
                    "disk": "100GiB",
                    "memory": "none",
                    "streams": 20,
                    "consumers": "unlimited",
                    "max_ack_pending": "unlimited",
                    "disk_max_stream_bytes": "unlimited",
                    "memory_max_stream_bytes": "unlimited",
                    "require_max_bytes": True,
                }
            },
        },
        "signing_keys": {
            SIGNING.public: {"key": SIGNING.public},
            OTHER.public: {
                "key": OTHER.public,
                "role": "app",
                "allow": {"pub": ["orders.{{name()}}.>"]},
                "responses": {"max": 1},
                "limits": {"subscriptions": "unlimited", "data": "unlimited", "payload": "unlimited"},
            },
        },
        "exports": [{"subject": "orders.>", "type": "stream", "name": "events", "private": True}],
    }
    assert "-1" not in json.dumps(shown)


def test_absent_limits_of_an_account_are_none() -> None:
    shown = words(LIMITS, from_claims(LIMITS, {}, []))
    assert shown.pop("wildcard_exports") is False
    assert set(shown.values()) == {"none"}


def test_storage_of_zero_turns_jetstream_off() -> None:
    assert account(limits={"streams": -1}).fields["limits.jetstream"] == {}
    assert account(limits={"mem_storage": -1}).fields["limits.jetstream"][""]["disk"] == 0


def test_tiers_win_over_flat_limits_and_the_mix_is_recorded() -> None:
    claims = account(limits={"disk_storage": 5, "tiered_limits": {"R1": {"disk_storage": 7}}})
    assert list(claims.fields["limits.jetstream"]) == ["R1"]
    assert claims.flat_ignored and not account(limits={"disk_storage": 5}).flat_ignored


@pytest.mark.parametrize(
    ("item", "subject", "local"),
    [
        ({"type": "service", "subject": "pay", "to": "pay.api"}, "pay.api", "pay"),
        ({"type": "stream", "subject": "ev.>", "to": "in"}, "ev.>", "in.ev.>"),
        ({"type": "service", "subject": "pay.api", "local_subject": "pay.api"}, "pay.api", ""),
        ({"type": "stream", "subject": "ev.*", "local_subject": "in.$1"}, "ev.*", "in.$1"),
    ],
)
def test_import_has_one_form_however_it_is_written(item: dict[str, str], subject: str, local: str) -> None:
    (found,) = account(imports=[{"account": OTHER.public, **item}]).fields["imports"]
    assert (found["subject"], found["local"]) == (subject, local)


def test_unknown_claims_are_named_and_never_dropped() -> None:
    claims = account(
        limits={"conn": 5, "rate": 3}, quorum={"x": 1}, exports=[{"subject": "a", "type": "stream", "new": 1}]
    )
    assert claims.unknown == ("exports[0].new", "limits.rate", "quorum")
    with pytest.raises(InvalidToken, match=r"limits\.rate"):
        encode_claims(claims, OPERATOR, 1)


# --- encoding ---------------------------------------------------------------------------------------------------------


def test_two_jwts_of_one_second_differ() -> None:
    first, second = (decode_claims(encode_claims(account(), OPERATOR, 7)) for _number in range(2))
    assert first.id != second.id and replace(first, id="") == replace(second, id="")


def test_foreign_kind_of_key_signs_nothing() -> None:
    with pytest.raises(InvalidToken, match="not the public key of an operator or an account"):
        encode_claims(account(), USER, 1)


def test_private_import_needs_its_activation() -> None:
    activation = make_jwt(OTHER, ACCOUNT.public, "", {"type": "activation", "subject": "pay", "kind": "service"})
    item = {"account": OTHER.public, "subject": "pay", "type": "service", "token": activation}
    claims = account(imports=[item])
    (key,) = map(import_key, claims.fields["imports"])
    assert claims.activations == {key: activation} and activation not in repr(claims)
    assert decode_claims(encode_claims(claims, OPERATOR, 1)).activations == claims.activations
    with pytest.raises(InvalidToken, match="without an activation"):
        encode_claims(replace(claims, activations={}), OPERATOR, 1)


def test_signing_key_without_public_key_is_not_encoded() -> None:
    claims = account()
    new = {one.name: one.empty for one in SIGNING_KEY}
    with pytest.raises(InvalidToken, match="signing_keys: app: without a public key"):
        encode_claims(replace(claims, fields={**claims.fields, "signing_keys": {"app": new}}), OPERATOR, 1)


TEXTS = st.text("abc.>*$ é{}", min_size=1, max_size=8)
KEYS: dict[str, list[Key]] = {
    "key_operator": [OPERATOR],
    "key_account": [ACCOUNT, OTHER, SIGNING],
    "key_curve": [],
}


def values(one: ClaimField) -> st.SearchStrategy[Any]:
    """Return values of a field in normal form."""
    numbers = st.integers(1, 2**40)
    if one.kind in ("limit", "size_limit"):
        return st.one_of(st.just(-1), numbers, *([st.just(0)] if one.zero == 0 else []))
    if one.kind in ("number", "duration"):
        return st.one_of(st.just(one.zero), numbers) if one.zero else st.one_of(st.just(0), numbers)
    if one.kind == "flag":
        return st.booleans()
    if one.kind == "choice":
        return st.sampled_from(one.choices)
    if one.kind in ("names", "tags", "keys"):
        return st.lists(TEXTS, max_size=3).map(lambda found: sorted({item.lower() for item in found}))
    if one.kind == "moments":
        return st.dictionaries(TEXTS, st.integers(1, 2**40), max_size=2)
    if one.kind == "sampling":
        return st.sampled_from(["headers", "1", "100"])
    if one.kind == "object":
        return st.one_of(st.none(), normal_forms(one.fields))
    if one.kind == "objects":
        return st.lists(normal_forms(one.fields), max_size=2).map(ordered)
    if one.kind == "maps":
        return st.dictionaries(
            TEXTS, st.lists(normal_forms(one.fields), min_size=1, max_size=2).map(ordered), max_size=2
        )
    if one.kind == "tiers":
        stored = normal_forms(JETSTREAM).map(lambda tier: {**tier, "disk": tier["disk"] or 1})
        tiers = st.dictionaries(st.sampled_from(["R1", "R3"]), stored, min_size=1)
        return st.one_of(st.just({}), stored.map(lambda tier: {"": tier}), tiers)
    if one.kind == "signing_keys":
        plain = {one.name: one.empty for one in SIGNING_KEY if one.wire}
        scoped = normal_forms(SIGNING_KEY).map(lambda key: {**key, "role": key["role"] or "app"})
        return st.lists(st.one_of(st.just(plain), scoped), max_size=3).map(
            lambda found: {key.public: {**item, "key": key.public} for key, item in zip(KEYS["key_account"], found)}
        )
    if KEYS.get(one.kind):
        return st.sampled_from(KEYS[one.kind]).map(lambda key: key.public)
    return st.one_of(st.just(""), TEXTS)


def normal_forms(fields: tuple[ClaimField, ...]) -> st.SearchStrategy[Normal]:
    def normalized(found: Normal) -> Normal:
        """Complete an import: its activation is a JWT, and a local subject equal to the subject is omitted."""
        if all(one.name != "activation" for one in fields):
            return found
        return {**found, "activation": False, "local": "" if found["local"] == found["subject"] else found["local"]}

    drawn = {one.name: values(one) for one in fields if one.wire and one.name != "activation"}
    return st.fixed_dictionaries(drawn).map(normalized)


@pytest.mark.parametrize("kind", list(FIELDS))
@settings(max_examples=60)
@given(data=st.data())
def test_encoded_claims_decode_to_the_same_claims(kind: str, data: st.DataObject) -> None:
    claims = Claims(
        kind,
        SUBJECTS[kind].public,
        data.draw(TEXTS),
        data.draw(normal_forms(FIELDS[kind])),
        expires=data.draw(st.integers(0, 2**40)),
        not_before=data.draw(st.integers(0, 2**40)),
    )
    signer = SIGNERS[kind]
    found = decode_claims(encode_claims(claims, signer, 1234))
    assert found == replace(claims, issuer=signer.public, issued_at=1234, id=found.id)
    assert len(found.id) == 32


def test_default_choices_are_omitted() -> None:
    """Servers refuse a response type of a stream (exports.go Validate), even the default one, and nsc before its support
    of `cluster_traffic` would lose the claim."""
    exports = [{"subject": "a", "type": "stream"}, {"subject": "b", "type": "service"}]
    claims = account(exports=exports)
    written = decode(encode_claims(claims, OPERATOR, 5))["nats"]
    assert "cluster_traffic" not in written
    assert [one for one in written["exports"] if "response_type" in one] == []
    assert decode_claims(encode_claims(claims, OPERATOR, 5)).fields == claims.fields
