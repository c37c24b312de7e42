# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the document of accounts: each error names the path of its key, and a document is converted to claims."""

from __future__ import annotations

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import decode_claims, encode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import (
    desired_claims,
    json_schema,
    parse_document,
    placeholder_key,
    read_document,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.fields import ACCOUNT_FIELDS, words
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.keys import key_kind
from ansible_collections.natsops.jetstream.plugins.module_utils.documents import InvalidDocument
from support.credentials import new_key
from support.documents import CHECKOUT

EXAMPLE = (CHECKOUT / "docs" / "examples" / "accounts.yml").read_text()
OPERATOR = new_key(nkeys.PREFIX_BYTE_OPERATOR, 1)
ACCOUNT, OTHER = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number).public for number in range(2))
USER = new_key(nkeys.PREFIX_BYTE_USER, 1).public


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidDocument) as caught:
        parse_document(text)
    return caught.value.problems


def account(text: str) -> tuple[str, ...]:
    """Return the problems of a document with one account of this content."""
    return problems(f"accounts: {{APP: {text}}}")


def test_example_is_valid_and_its_limits_are_complete() -> None:
    document = parse_document(EXAMPLE)
    assert document.system_account == "SYS" and document.operator is not None
    orders = document.accounts["ORDERS"]
    assert (orders.fields["limits.connections"], orders.fields["limits.leaf"]) == (500, 0)
    assert document.accounts["BILLING"].fields["limits.connections"] == 1000
    assert document.accounts["SYS"].fields["limits.payload"] == -1
    assert orders.fields["limits.jetstream"]["R3"]["disk"] == 100 * 2**30
    assert not document.accounts["OLD"].is_present
    assert {(user.account, user.name, user.tags) for user in document.users} == {
        ("ORDERS", "shop", ("team:shop",)),
        ("BILLING", "reader", ()),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{limit: {}}", "accounts.APP.limit: unknown key; did you mean limits?"),
        ("{limits: {connection: 5}}", "accounts.APP.limits.connection: unknown key; did you mean connections?"),
        ("{limits: 5}", "accounts.APP.limits: 5 is not a mapping"),
        ("{limits: {connections: -1}}", "accounts.APP.limits.connections: -1 is not a limit; write unlimited"),
        ("{limits: {connections: many}}", "'many' is not a number, unlimited or none"),
        ("{limits: {connections: true}}", "True is not a number, unlimited or none"),
        ("{limits: {payload: 5x}}", "accounts.APP.limits.payload: '5x' is not a size"),
        ("{limits: {payload: 9EiB}}", "exceeds 8 EiB"),
        ("{limits: {jetstream: {}}}", "accounts.APP.limits.jetstream: {} is not none, limits, or tiers"),
        ("{limits: {jetstream: {R1: {disk: 1}, disk: 5}}}", "tiers (R1) and limits of all replicas (disk) exclude"),
        ("{limits: {jetstream: {R7: {disk: 1}}}}", "accounts.APP.limits.jetstream.R7: unknown key"),
        ("{limits: {jetstream: {disk: 1, streams: none}}}", "none is not possible: servers read 0 as unlimited"),
        ("{id: XYZ}", "accounts.APP.id: 'XYZ' is not the public key of an account"),
        ("{exports: [{subject: a}]}", "accounts.APP.exports[0].type: missing"),
        (
            "{exports: [{subject: a, type: queue}]}",
            "accounts.APP.exports[0].type: 'queue' is not one of stream, service",
        ),
        ("{exports: [{subject: 'a b', type: stream}]}", "accounts.APP.exports: a b: subject 'a b' has a space"),
        ("{exports: [{subject: a, type: stream, to: [X]}]}", "to: X is not an account of the document"),
        ("{imports: [{account: X, subject: a, type: stream}]}", "accounts.APP.imports[0].account: X is not an account"),
        ("{imports: [{account: APP, subject: a, type: stream}]}", "account APP does not export stream a"),
        ("{revoke: {abc: 2026-01-01T00:00:00Z}}", "not the public key of an account or user"),
        ("{revoke: {'*': soon}}", "accounts.APP.revoke.*: 'soon' is not a time"),
        ("{signing_keys: {app: {builtin: x}}}", "accounts.APP.signing_keys.app.builtin: 'x' is not one of natsops"),
        (
            "{signing_keys: {app: {builtin: natsops, allow: {pub: [a]}}}}",
            "accounts.APP.signing_keys.app.allow: with builtin, only key may be set",
        ),
        ("{signing_keys: {app: {allow: {pub: ['{{x()}}']}}}}", "{{x()}} is not an operation of templates"),
        ("{signing_keys: {app: {responses: {max: none}}}}", "none is not possible: servers read 0 as 1"),
        ("{signing_keys: {app: {responses: {ttl: 2}}}}", "2 is not a duration"),
        ("{signing_keys: {a: {role: x}, b: {role: x}}}", "2 keys with role x have no public key"),
        ("{signing_keys: {a: {}, b: {}}}", "2 keys without a role have no public key"),
        ("{state: absent, tags: [a]}", "accounts.APP.tags: with state: absent, only id may be set"),
        ("{state: absent, limits: {}}", "accounts.APP.limits: with state: absent, only id may be set"),
        ("{mappings: {a: [{subject: b, weight: 101}]}}", "sum to 101"),
        ("{tags: a}", "accounts.APP.tags: 'a' is not a list of texts"),
    ],
)
def test_error_in_an_account_is_named_with_its_path(text: str, problem: str) -> None:
    found = account(text)
    assert len([one for one in found if problem in one]) == 1, found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5", "the document is not a mapping"),
        ("", "the document is not a mapping"),
        ("accounts: [", "line 1: not YAML"),
        ("accounts: {A: {}, B: {},\n  A: {}}", "line 2: A is given twice"),
        ("accounts: {}", "accounts: missing"),
        ("account: {A: {}}", "account: unknown key; did you mean accounts?"),
        (f"accounts: {{{ACCOUNT}: {{}}}}", "the name of an account is a text that is not a public key"),
        ("{system_account: SYS, accounts: {A: {}}}", "system_account: 'SYS' is not an account"),
        ("{system_account: A, accounts: {A: {limits: {jetstream: {disk: 1}}}}}", "cannot have JetStream"),
        ("{operator: {}, accounts: {A: {}}}", "operator.name: missing"),
        ("{operator: {name: X, service_urls: [http://x]}, accounts: {A: {}}}", "operator.service_urls: "),
        ("{defaults: {limits: {conn: 5}}, accounts: {A: {}}}", "defaults.limits.conn: unknown key"),
        ("{defaults: {tags: []}, accounts: {A: {}}}", "defaults.tags: unknown key"),
        ("{accounts: {A: {}}, users: {A: {key: x}}}", "users.A: the name of a user is ACCOUNT/NAME"),
        ("{accounts: {A: {}}, users: {A/u: {key: x}}}", "account A has no signing key x (it has: none)"),
        ("{accounts: {A: {}}, users: {A/u: {}}}", "users.A/u.key: missing"),
        (
            "{accounts: {A: {signing_keys: {x: {allow: {pub: ['{{tag(Team)}}']}}}}}, users: {A/u: {key: x}}}",
            "users.A/u.tags: role x needs a tag team:VALUE of the user",
        ),
        (f"accounts: {{A: {{id: {ACCOUNT}}}, B: {{id: {ACCOUNT}}}}}", "accounts.B.id: also the id of account A"),
        (
            "{accounts: {A: {exports: [{subject: a, type: stream, to: [B]}]}, B: {}, "
            "C: {imports: [{account: A, subject: a, type: stream}]}}}",
            "account A exports a only to B",
        ),
        (
            "{accounts: {A: {state: absent}, C: {imports: [{account: A, subject: a, type: stream}]}}}",
            "account A does not export stream a",
        ),
    ],
)
def test_error_in_the_document_is_named_with_its_path(text: str, problem: str) -> None:
    found = problems(text)
    assert len([one for one in found if problem in one]) == 1, found


def test_all_errors_are_reported_at_once() -> None:
    assert len(account("{a: 1, b: 2, limits: {c: 3}}")) == 3


def test_document_becomes_claims_that_servers_accept() -> None:
    document = parse_document(EXAMPLE)
    ids = {"ORDERS": ACCOUNT, "BILLING": OTHER}
    claims = desired_claims(document.accounts["BILLING"], document.accounts, ids)
    (item,) = claims.fields["imports"]
    assert (claims.subject, item["account"], item["activation"]) == (OTHER, ACCOUNT, True)
    claims = desired_claims(document.accounts["ORDERS"], document.accounts, ids)
    assert claims.fields["exports"][0]["private"]
    assert [item["activation"] for item in claims.fields["imports"]] == [False]
    shown = words(ACCOUNT_FIELDS, {**claims.fields, "signing_keys": {}})
    again = read_document({"accounts": {"ORDERS": {**shown, "imports": []}}}).accounts["ORDERS"].fields
    assert {**again, "imports": []} == {
        **claims.fields,
        "signing_keys": {},
        "imports": [],
        "exports": [{**one, "to": []} for one in claims.fields["exports"]],
    }


def test_default_account_round_trips_through_a_jwt() -> None:
    """An account without any key is unlimited and has no JetStream, like an account that nsc has just created."""
    document = read_document({"accounts": {"A": {"id": ACCOUNT}}})
    claims = desired_claims(document.accounts["A"], document.accounts, {})
    assert decode_claims(encode_claims(claims, OPERATOR, 1)).fields == claims.fields


def test_builtin_role_depends_on_the_account() -> None:
    keys = {"natsops": {"builtin": "natsops"}}
    document = read_document(
        {"system_account": "SYS", "accounts": {name: {"signing_keys": keys} for name in ("SYS", "APP")}}
    )
    system, app = (document.accounts[name].fields["signing_keys"]["natsops"] for name in ("SYS", "APP"))
    assert (system["role"], app["role"]) == ("natsops", "natsops")
    assert "$SYS.REQ.SERVER.>" in system["allow.pub"] and "$JS.API.ACCOUNT.PURGE.>" in system["deny.pub"]
    assert "$JS.SNAPSHOT.>" in app["allow.pub"] and "$SYS.REQ.SERVER.>" not in app["allow.pub"]
    assert "_INBOX.natsops.{{subject()}}.>" in app["allow.sub"] and "builtin" not in app


def test_account_without_key_gets_a_placeholder_of_its_own() -> None:
    assert key_kind(placeholder_key("A")) == "account" and placeholder_key("A") != placeholder_key("B")


def test_times_may_be_unquoted_and_have_a_zone() -> None:
    document = parse_document(
        f"accounts: {{A: {{revoke: {{{USER}: 2026-01-01T01:00:00+01:00, '*': '2026-01-01T00:00:00Z'}}}}}}"
    )
    assert set(document.accounts["A"].fields["revoke"].values()) == {1767225600}


def test_schema_refuses_unknown_keys_everywhere() -> None:
    def closed(schema: object) -> bool:
        if isinstance(schema, list):
            return all(map(closed, schema))
        if not isinstance(schema, dict):
            return True
        return ("properties" not in schema or schema.get("additionalProperties") is not None) and all(
            map(closed, schema.values())
        )

    assert closed(json_schema())
