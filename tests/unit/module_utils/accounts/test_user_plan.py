# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the plan for the credentials of a document's users, and the files that the document names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import nkeys
import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.natsops.jetstream.plugins.filter.nats_credential_files import nats_credential_files
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import (
    Claims,
    decode_claims,
    encode_claims,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.copies import (
    Copies,
    Evaluation,
    evaluate,
    read_trust,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.credentials import UserCredentials
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import (
    desired_claims,
    read_document,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.seeds import read_seed
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.user_plan import (
    UserPlan,
    UserState,
    plan_users,
    users_page,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.users import role_user
from ansible_collections.natsops.jetstream.plugins.module_utils.documents import InvalidDocument
from support.credentials import Key, make_jwt, new_key

NOW = 1_800_000_000
DAY = 86400
SIGNER = new_key(nkeys.PREFIX_BYTE_OPERATOR, 9)
STRANGER = new_key(nkeys.PREFIX_BYTE_OPERATOR, 8)
ACCOUNT, OLD, FRESH, PLAIN = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(4))
USER = read_seed(new_key(nkeys.PREFIX_BYTE_USER, 5).seed, ["user"])
TRUST = read_trust(
    {"n1": [make_jwt(SIGNER, SIGNER.public, "ACME", {"type": "operator"}, top={"iat": 1})]},
    NOW,
)
ROLE: dict[str, Any] = {"role": "app", "allow": {"pub": ["orders.{{tag(team)}}"]}}
SHOP: dict[str, Any] = {"key": "app", "tags": ["team:x"], "deliver": {"file": "shop.creds"}}


def document(keys: dict[str, Any] | None = None, **users: Any) -> Any:
    account = {"id": ACCOUNT.public, "signing_keys": {"app": ROLE, "plain": {}} if keys is None else keys}
    return {"accounts": {"APP": account}, "users": {f"APP/{name}": one for name, one in users.items()}}


def in_force(*role_keys: Key, **fields: Any) -> Claims:
    """Return the account with these keys of its role, as servers return it."""
    keys = {f"k{number}": {**ROLE, "key": key.public} for number, key in enumerate(role_keys)}
    keys["plain"] = {"key": PLAIN.public}
    accounts = read_document({"accounts": {"APP": {"id": ACCOUNT.public, "signing_keys": keys, **fields}}}).accounts
    claims = desired_claims(accounts["APP"], accounts, {})
    by_key = {entry["key"]: entry for entry in claims.fields["signing_keys"].values()}
    return replace(claims, fields={**claims.fields, "signing_keys": by_key})


def evaluated(claims: Claims, signer: Key = SIGNER) -> Evaluation:
    token = encode_claims(claims, signer, NOW - DAY)
    return evaluate(Copies(ACCOUNT.public, (token,), {"n1": True}, {"n1": token}), TRUST, NOW)


def creds(signer: Key = OLD, expires: int = NOW + 20 * DAY) -> dict[str, str]:
    token = role_user(in_force(OLD, FRESH), signer, USER.public, "shop", ["team:x"], NOW - DAY, expires, False)
    return {"APP/shop": UserCredentials(token, decode_claims(token), USER).text}


def plan(
    account: Claims | None = None,
    current: dict[str, str] | None = None,
    user: dict[str, Any] | None = None,
    keys: dict[str, Any] | None = None,
    signer: Key = SIGNER,
    seeds: tuple[Key, ...] = (OLD, FRESH),
    replaced: tuple[Key, ...] = (),
) -> UserPlan:
    reading = UserState(
        [evaluated(in_force(OLD) if account is None else account, signer)],
        False,
        {} if current is None else current,
        lambda public: public in [key.public for key in seeds],
        [key.public for key in replaced],
    )
    (found,) = plan_users(read_document(document(keys, shop=SHOP if user is None else user)), reading, NOW)
    return found


def test_credentials_are_issued_kept_and_renewed_for_the_same_key() -> None:
    new = plan()
    assert (new.state, new.signer, new.reasons) == ("issue", OLD.public, ("there are no usable credentials",))
    assert new.row()["public_key"] is None
    kept = plan(current=creds())
    assert (kept.state, kept.reasons, kept.row()["public_key"]) == ("same", (), USER.public)
    due = plan(current=creds(expires=NOW + 6 * DAY))
    assert due.state == "renew" and due.reasons[0].startswith("they expire at ") and due.current is not None
    shorter = {**SHOP, "renew_before": "1d"}
    assert plan(current=creds(expires=NOW + 6 * DAY), user=shorter).state == "same"
    forever = plan(current=creds(), user={**SHOP, "expires": "never"})
    assert (forever.state, forever.user.expires) == ("renew", 0)


def test_revoked_user_is_not_issued_again() -> None:
    found = plan(in_force(OLD, revoke={USER.public: "2020-01-01T00:00:00Z"}), creds())
    assert found.state == "revoked" and USER.public in found.reasons[0]


def test_user_without_a_file_is_left_alone() -> None:
    assert plan(user={"key": "app", "tags": ["team:x"]}).state == "elsewhere"


def test_replaced_key_signs_no_users() -> None:
    both = in_force(OLD, FRESH)
    moved = plan(both, creds(OLD), replaced=(OLD,))
    assert (moved.state, moved.signer) == ("renew", FRESH.public)
    assert plan(both, creds(FRESH), replaced=(OLD,)).state == "same"
    assert plan(both, creds(OLD)).state == "same"
    named = {"app": {**ROLE, "key": OLD.public}}
    assert plan(both, creds(OLD), keys=named, replaced=(OLD,)).signer == FRESH.public
    assert plan(both, creds(FRESH), keys=named).signer == OLD.public


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"account": in_force()}, "the servers have no usable key of role app"),
        ({"account": in_force(OLD, FRESH)}, "role app has 2 keys; finish the rotation"),
        ({"user": {"key": "plain", "deliver": {"file": "a"}}}, "signing key plain has no role"),
        ({"seeds": ()}, f"there is no seed of {OLD.public}"),
        ({"current": {"APP/shop": "root:x:0:0"}}, "shop.creds exists and is not a .creds file"),
        ({"signer": STRANGER}, "account APP: "),
        ({"replaced": (OLD,)}, "the servers have no usable key of role app"),
    ],
)
def test_credentials_that_cannot_be_issued_have_a_reason(given: dict[str, Any], reason: str) -> None:
    found = plan(**given)
    assert found.state == "cannot" and reason in found.reasons[0], found
    assert not found.is_due


def test_account_that_does_not_exist_is_a_reason() -> None:
    (found,) = plan_users(read_document(document(shop=SHOP)), UserState([], False, {}, lambda _public: True), NOW)
    assert found.state == "cannot" and "apply the document first" in found.reasons[0]


def test_page_counts_valid_credentials_and_names_the_others() -> None:
    lines = "\n".join(users_page([plan(current=creds()), plan()]).lines)
    assert "1 issue, 1 same" in lines and lines.count("APP/shop") == 1
    assert users_page([plan(current=creds())]).lines == ("Credentials: 1 same",)


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ({"deliver": "vault:kv/shop"}, "users.APP/shop.deliver: 'vault:kv/shop' is not a mapping"),
        ({"deliver": {"vault": "kv"}}, "users.APP/shop.deliver.vault: unknown key"),
        ({"deliver": {"host": "web1"}}, "users.APP/shop.deliver.file: missing"),
        ({"deliver": {"host": "web1", "file": "a.creds"}}, "the path of a file on web1 must be absolute"),
        ({"deliver": {"file": "a", "mode": "0644"}}, "users.APP/shop.deliver.mode: "),
        ({"expires": "30"}, "users.APP/shop.expires: "),
        ({"expires": "1d", "renew_before": "2d"}, "users.APP/shop.renew_before: must be shorter than expires"),
    ],
)
def test_invalid_lifetimes_and_deliveries_are_refused(user: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read_document(document(shop={"key": "app", "tags": ["team:x"], **user}))
    assert problem in str(refused.value)


def test_two_users_do_not_share_a_file() -> None:
    with pytest.raises(InvalidDocument, match=r"users\.APP/till\.deliver: also the file of user APP/shop"):
        read_document(document(shop=SHOP, till=SHOP))


def test_files_are_listed_by_host() -> None:
    web = {**SHOP, "deliver": {"host": "web1", "file": "/etc/till.creds", "owner": "till", "mode": "0400"}}
    text = json.dumps(document(shop=SHOP, till=web, none={"key": "app", "tags": ["team:x"]}))
    assert nats_credential_files(text, "/srv") == [
        {"host": "localhost", "files": [{"user": "APP/shop", "path": "/srv/shop.creds", "mode": "0600"}]},
        {
            "host": "web1",
            "files": [{"user": "APP/till", "path": "/etc/till.creds", "mode": "0400", "owner": "till"}],
        },
    ]
    with pytest.raises(AnsibleFilterError, match="nats_credential_files: accounts: missing"):
        nats_credential_files("{}", "/srv")
