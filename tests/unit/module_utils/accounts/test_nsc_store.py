# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the import of an nsc store: everything is declared in the document or noted, and no broken file is skipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts import nsc_store
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import decode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import (
    desired_claims,
    parse_document,
    read_document,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.modules import nats_nsc_store_info
from support.credentials import Key, make_jwt, new_key
from support.nsc_stores import write_store

OPERATOR, SIGNER = (new_key(nkeys.PREFIX_BYTE_OPERATOR, number) for number in (1, 2))
SYS, PAY, SHOP, APP_KEY, PLAIN_KEY, AWAY = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(1, 7))
TILL, BEARER = (new_key(nkeys.PREFIX_BYTE_USER, number) for number in (1, 2))
FREE = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
NOW = 1_800_000_000.0
ROLE: dict[str, Any] = {
    "kind": "user_scope",
    "key": APP_KEY.public,
    "role": "app",
    "template": {
        "pub": {"allow": ["orders.{{tag(team)}}.>"]},
        "sub": {"deny": ["_R_.>"]},
        "subs": 5,
        "data": -1,
        "payload": -1,
    },
    "description": "shops",
}


def operator_jwt(**nats: Any) -> str:
    claims = {"type": "operator", "signing_keys": [SIGNER.public], "system_account": SYS.public, **nats}
    return make_jwt(OPERATOR, OPERATOR.public, "ACME", claims)


def account_jwt(key: Key, name: str, top: dict[str, Any] | None = None, signer: Key = SIGNER, **nats: Any) -> str:
    return make_jwt(signer, key.public, name, {"type": "account", "limits": FREE, **nats}, top=top)


def user_jwt(name: str, signer: Key = APP_KEY, key: Key = TILL, top: dict[str, Any] | None = None, **nats: Any) -> str:
    return make_jwt(signer, key.public, name, {"type": "user", "issuer_account": SHOP.public, **nats}, top=top)


PRIVATE = {"name": "pay", "subject": "pay.>", "type": "stream", "token_req": True}
ACTIVATION = make_jwt(PAY, SHOP.public, "pay", {"type": "activation", "subject": "pay.>", "kind": "stream"})
IMPORT = {"name": "pay", "subject": "pay.eu.>", "account": PAY.public, "type": "stream"}


def rich(**nats: Any) -> dict[str, tuple[str, dict[str, str]]]:
    """Return three accounts that use most claims. `nats`: more claims of the account SHOP."""
    shop: dict[str, Any] = {
        "limits": {**FREE, "conn": 50, "tiered_limits": {"R3": {"disk_storage": 1 << 40, "streams": 20}}},
        "signing_keys": [ROLE, PLAIN_KEY.public],
        "revocations": {BEARER.public: 1_700_000_000, "*": 1_600_000_000},
        "imports": [{**IMPORT, "token": ACTIVATION, "local_subject": "bills.>"}],
        "default_permissions": {"pub": {"deny": ["$SYS.>"]}, "resp": {"max": 3, "ttl": 10**9}},
        "mappings": {"a.*": [{"subject": "b.$1", "weight": 40}, {"subject": "c.$1", "weight": 60, "cluster": "C1"}]},
        "trace": {"dest": "trace", "sampling": 20},
        "tags": ["region:eu"],
        "description": "{{ lookup('pipe', 'id') }}",
        **nats,
    }
    pay: dict[str, Any] = {
        "exports": [PRIVATE, {"subject": "api", "type": "service", "response_type": "Stream", "advertise": True}]
    }
    users = {"till": user_jwt("till", tags=["team:berlin"])}
    return {
        "SYS": (account_jwt(SYS, "SYS"), {}),
        "PAY": (account_jwt(PAY, "PAY", **pay), {}),
        "SHOP": (account_jwt(SHOP, "SHOP", **shop), users),
    }


def imported(directory: Path, accounts: dict[str, tuple[str, dict[str, str]]], **info: Any) -> dict[str, Any]:
    return nats_nsc_store_info.read(str(write_store(directory, operator_jwt(), accounts, **info)), NOW)


def failure(path: Path) -> str:
    with pytest.raises(NatsFailure) as caught:
        nats_nsc_store_info.read(str(path), NOW)
    return caught.value.description


def test_imported_document_declares_the_same_claims(tmp_path: Path) -> None:
    accounts = rich()
    found = imported(tmp_path, accounts)
    assert found["notes"] == []
    document = read_document(found["document"])
    assert document.operator is not None and document.operator["signing_keys"] == [SIGNER.public]
    assert document.system_account == "SYS"
    for name, (token, _users) in accounts.items():
        actual = decode_claims(token)
        desired = desired_claims(document.accounts[name], document.accounts, {})
        keys = {scope["key"]: scope for scope in desired.fields["signing_keys"].values()}
        assert (desired.subject, desired.name) == (actual.subject, actual.name)
        assert {**desired.fields, "signing_keys": keys} == actual.fields
    assert found["document"]["users"] == {"SHOP/till": {"key": "app", "tags": ["team:berlin"], "expires": "never"}}
    assert set(found["document"]["accounts"]["SHOP"]["signing_keys"]) == {"app", f"key-{PLAIN_KEY.public[:10]}"}
    exports = {export["subject"]: export for export in found["document"]["accounts"]["PAY"]["exports"]}
    assert exports["pay.>"]["to"] == ["SHOP"] and "to" not in exports["api"]


def test_document_of_a_store_survives_yaml(tmp_path: Path) -> None:
    import yaml

    found = imported(tmp_path, rich())
    assert parse_document(yaml.safe_dump(found["document"])) == read_document(found["document"])


@pytest.mark.parametrize(
    ("nats", "top", "note"),
    [
        ({"new_feature": {"a": 1}}, {}, "account SHOP: new_feature is unknown to this collection"),
        ({}, {"exp": 1_900_000_000}, "account SHOP: the document does not declare the expiry at 2030-03-17T17:46:40Z"),
        ({}, {"nbf": 1_700_000_000}, "account SHOP: the document does not declare the start of validity at "),
        ({}, {"aud": "x"}, "account SHOP: the document does not declare the audience x"),
        (
            {"limits": {**FREE, "disk_storage": 5, "tiered_limits": {"R1": {"disk_storage": 1}}}},
            {},
            "account SHOP: the limits of all replicas are left out",
        ),
        ({"imports": [{**IMPORT, "subject": "x", "account": PAY.public}]}, {}, "account PAY does not export it"),
        ({"imports": [IMPORT]}, {}, "it has no activation, although the export is private"),
        (
            {"imports": [{**IMPORT, "account": AWAY.public, "token": ACTIVATION}]},
            {},
            "import pay.eu.>: the store does not have the exporting account",
        ),
    ],
)
def test_claims_that_the_document_cannot_declare_are_noted(
    tmp_path: Path, nats: dict[str, Any], top: dict[str, Any], note: str
) -> None:
    accounts = rich()
    accounts["SHOP"] = (account_jwt(SHOP, "SHOP", top=top, **nats), {})
    found = imported(tmp_path, accounts)
    assert any(note in one for one in found["notes"]), found["notes"]
    read_document(found["document"])


@pytest.mark.parametrize(
    ("token", "note", "is_declared"),
    [
        (user_jwt("u"), "user SHOP/u: left out: role app needs a tag team:VALUE of the user", False),
        (user_jwt("u", SHOP), "user SHOP/u: left out: signed with the identity key of the account", False),
        (user_jwt("u", AWAY), f"user SHOP/u: left out: signed with {AWAY.public}, not with a signing key", False),
        (user_jwt("u", tags=["team:x"], top={"iat": 1_500_000_000}), "user SHOP/u: left out: revoked: ", False),
        (user_jwt("", PLAIN_KEY), f"left out: user {TILL.public} has no name", False),
        (
            user_jwt("u", tags=["team:x"], top={"exp": 1_900_000_000, "iat": 1_900_000_000}),
            "user SHOP/u: the document does not declare the expiry at 2030-03-17T17:46:40Z",
            True,
        ),
        (
            user_jwt("u", PLAIN_KEY, subs=-1, data=-1, payload=9, pub={"allow": ["a"]}, bearer_token=True),
            "user SHOP/u: the document does not declare the user's own allow.pub, limits.payload, bearer",
            True,
        ),
    ],
)
def test_users_that_the_document_cannot_declare_are_noted(
    tmp_path: Path, token: str, note: str, is_declared: bool
) -> None:
    accounts = rich()
    accounts["SHOP"] = (accounts["SHOP"][0], {"u": token})
    found = imported(tmp_path, accounts)
    (text,) = found["notes"]
    assert note in text
    assert ("users" in found["document"]) == is_declared
    assert [user["public_key"] for user in found["users"]] == [TILL.public]


def test_new_credentials_keep_the_lifetime_of_the_imported_ones(tmp_path: Path) -> None:
    accounts = rich()
    times = {"iat": 1_900_000_000 - 90 * 86400, "exp": 1_900_000_000}
    accounts["SHOP"] = (accounts["SHOP"][0], {"u": user_jwt("u", tags=["team:x"], top=times)})
    found = imported(tmp_path, accounts)
    assert (found["notes"], found["document"]["users"]["SHOP/u"]["expires"]) == ([], "90d")
    (user,) = read_document(found["document"]).users
    assert user.expires == 90 * 86400


def test_store_with_foreign_signer_or_managed_operator_is_noted(tmp_path: Path) -> None:
    accounts = rich()
    accounts["SYS"] = (account_jwt(SYS, "SYS", signer=SYS), {})
    del accounts["PAY"]
    found = imported(tmp_path, accounts, managed=True)
    assert found["notes"] == [
        "operator ACME: managed: the key of the operator is not in this store",
        "account SHOP: import pay.eu.>: the store does not have the exporting account",
        "account SHOP: import pay.eu.>: its activation is left out",
        f"account SYS: signed by {SYS.public}, which is not a key of the servers' operator",
    ]


def broken(root: Path, path: str, content: str | None) -> None:
    target = root / path
    if content is None:
        target.unlink()
    else:
        target.write_text(content)


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        (".nsc", "{", "not the description of an operator's store: JSON"),
        (".nsc", "[]", "not the description of an operator's store: JSON"),
        (".nsc", '{"name": "../../x", "kind": "operator", "version": "1"}', "operator's store: name"),
        (".nsc", '{"name": "ACME", "kind": "operator", "version": "2"}', "operator's store: version"),
        ("ACME.jwt", None, "No such file or directory"),
        ("accounts/PAY/PAY.jwt", None, "No such file or directory"),
        ("accounts/PAY/PAY.jwt", "a.b.c", "not a valid JWT: the header is not base64url"),
        ("accounts/PAY/PAY.jwt", user_jwt("x"), "it is the JWT of user x, not of an account"),
        ("accounts/PAY/PAY.jwt", "x" * (1 << 21), "larger than the 1,048,576 bytes of a JWT"),
        ("accounts/SHOP/users/till.jwt", "", "not a valid JWT"),
        ("accounts/SHOP/users/till.txt", "", "not a JWT of a user"),
        ("accounts/README", "", "not a directory of an account"),
    ],
)
def test_broken_file_is_an_error_with_its_path(tmp_path: Path, path: str, content: str | None, reason: str) -> None:
    root = write_store(tmp_path, operator_jwt(), rich())
    broken(root, path, content)
    message = failure(root)
    assert f"{root / path}: " in message and reason in message


def test_all_broken_files_are_reported_at_once(tmp_path: Path) -> None:
    root = write_store(tmp_path, operator_jwt(), rich())
    for name in ("PAY", "SHOP"):
        broken(root, f"accounts/{name}/{name}.jwt", "x")
    assert len(failure(root).splitlines()) == 3


@pytest.mark.parametrize("is_pipe", [False, True])
def test_links_and_pipes_are_not_read(tmp_path: Path, is_pipe: bool) -> None:
    root = write_store(tmp_path, operator_jwt(), rich())
    target = root / "accounts/PAY/PAY.jwt"
    target.unlink()
    if is_pipe:
        os.mkfifo(target)
    else:
        target.symlink_to("/dev/zero")
    expected = "not a regular file" if is_pipe else "a symbolic link, which is not followed"
    assert f"{target}: {expected}" in failure(root)


def test_directory_of_several_operators_is_refused_with_their_names(tmp_path: Path) -> None:
    root = write_store(tmp_path, operator_jwt(), rich())
    assert failure(root.parent) == (
        "The nsc store cannot be read:\n"
        f"{root.parent}: not the store of an operator: .nsc is missing; give the directory of one operator: ACME"
    )


def test_number_of_files_and_bytes_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_store(tmp_path, operator_jwt(), rich())
    with monkeypatch.context() as patch:
        patch.setattr(nsc_store, "MAX_ENTRIES", 3)
        assert "more than 3 files and directories" in failure(root)
    monkeypatch.setattr(nsc_store, "MAX_BYTES", 2000)
    assert "the JWTs have more than 2,000 bytes" in failure(root)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("PAY", "have the same name PAY"), ("", "cannot be used in a document"), (SYS.public, "cannot be used")],
)
def test_accounts_without_a_usable_name_are_refused(tmp_path: Path, name: str, reason: str) -> None:
    accounts = rich()
    accounts["ZZZ"] = (account_jwt(AWAY, name), {})
    assert reason in failure(write_store(tmp_path, operator_jwt(), accounts))


def test_template_with_an_unknown_operation_is_refused(tmp_path: Path) -> None:
    role = {**ROLE, "template": {**ROLE["template"], "pub": {"allow": ["{{ lookup('pipe', 'id') }}"]}}}
    message = failure(write_store(tmp_path, operator_jwt(), rich(signing_keys=[role])))
    assert "signing_keys: app: {{lookup('pipe', 'id')}} is not an operation of templates" in message


def test_claims_that_servers_refuse_are_refused_with_their_path(tmp_path: Path) -> None:
    root = write_store(tmp_path, operator_jwt(), rich(mappings={"a": [{"subject": "b", "weight": 500}]}))
    message = failure(root)
    assert message.startswith(f"{root}: the accounts of this store are not a valid document:\n")
    assert "accounts.SHOP.mappings" in message
