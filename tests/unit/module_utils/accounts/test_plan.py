# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the plan of accounts: each state, the exact connections that a change closes, and the other costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import Claims, encode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.copies import (
    Copies,
    Evaluation,
    Trust,
    evaluate,
    read_trust,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import (
    AccountsDocument,
    desired_claims,
    read_document,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.plan import (
    change_text,
    make_plan,
    plan_page,
    summary,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.use import (
    AccountStream,
    AccountUse,
    LiveConnection,
)
from support.credentials import Key, make_jwt, new_key

NOW = 1_800_000_000.0
OPERATOR, STRANGER = (new_key(nkeys.PREFIX_BYTE_OPERATOR, number) for number in range(2))
APP, PAY, ROLE, SECOND = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number).public for number in range(4))
ALICE, BOB = (new_key(nkeys.PREFIX_BYTE_USER, number).public for number in range(2))
NAMES = ("n1", "n2", "n3")
OPERATOR_JWT = make_jwt(OPERATOR, OPERATOR.public, "ACME", {"type": "operator", "system_account": PAY}, top={"iat": 1})
TRUST = read_trust({name: [OPERATOR_JWT] for name in NAMES}, NOW)
ROLE_KEY = {"key": ROLE, "allow": {"pub": ["a.>"]}}
IDLE = AccountUse((), ())


def document(accounts: dict[str, Any], **more: Any) -> AccountsDocument:
    return read_document({"accounts": accounts, **more})


def claims(item: dict[str, Any], name: str = "APP", key: str = APP) -> Claims:
    """Return the claims of an account as the document declares them."""
    desired = document({name: {"id": key, **item}}).accounts
    return desired_claims(desired[name], desired, {})


def evaluated(
    item: dict[str, Any] | Claims, name: str = "APP", key: str = APP, signer: Key = OPERATOR, **options: Any
) -> Evaluation:
    """Return an account as all servers have it."""
    token = encode_claims(item if isinstance(item, Claims) else claims(item, name, key), signer, 5)
    copies = Copies(key, (token,) * 3, dict.fromkeys(NAMES, True), {})
    return evaluate(replace(copies, **options), TRUST, NOW)


def plan(desired: dict[str, Any], *actual: Evaluation, live: AccountUse = IDLE, **more: Any) -> dict[str, Any]:
    return make_plan(document(desired, **more), actual, TRUST, live)


def row(desired: dict[str, Any] | None, actual: dict[str, Any], live: AccountUse = IDLE) -> dict[str, Any]:
    """Return the plan of the account APP; `desired`: None if the account must be absent."""
    wanted = {"state": "absent"} if desired is None else desired
    (found,) = plan({"APP": {"id": APP, **wanted}}, evaluated(actual), live=live)["accounts"]
    return found


# --- states -----------------------------------------------------------------------------------------------------------


def test_account_with_equal_claims_is_the_same() -> None:
    content = {
        "limits": {"connections": 5, "jetstream": {"R3": {"disk": "1GiB"}}},
        "signing_keys": {"app": ROLE_KEY},
        "tags": ["a:b"],
    }
    found = row(content, content)
    assert (found["state"], found["changes"], found["closes"], found["warnings"]) == ("same", [], [], [])


def test_each_account_has_its_state() -> None:
    found = plan(
        {
            "NEW": {},
            "APP": {"limits": {"connections": 5}},
            "OLD": {"state": "absent", "id": SECOND},
            "GONE": {"state": "absent"},
        },
        evaluated({}),
        evaluated({}, "OLD", SECOND),
        evaluated({}, "PAY", PAY),
    )
    assert {one["name"]: one["state"] for one in found["accounts"]} == {
        "NEW": "create",
        "APP": "change",
        "OLD": "delete",
        "GONE": "absent",
        "PAY": "not in document",
    }
    assert {one["name"]: one["account"] for one in found["accounts"]}["APP"] == APP
    assert summary(found) == "1 delete, 1 change, 1 create, 1 not in document, 1 absent; closes 0 connections"
    assert [one["warnings"] for one in found["accounts"] if one["name"] == "PAY"] == [["it is the system account"]]


def test_plan_lists_the_rights_of_a_new_account() -> None:
    owner = {"allow": {"pub": ["$JS.API.>"]}, "limits": {"subscriptions": 2}}
    new = {
        "limits": {"jetstream": {"disk": "1GiB"}},
        "signing_keys": {"owner": owner},
        "imports": [{"account": "OTHER", "subject": "a", "type": "stream"}],
    }
    other = {"exports": [{"subject": "a", "type": "stream"}]}
    rows = {one["name"]: one["changes"] for one in plan({"NEW": new, "OTHER": other, "BARE": {}})["accounts"]}
    assert rows["BARE"] == []
    lines = [change_text(one) for one in rows["NEW"]]
    assert lines[0].startswith('limits.jetstream: none → {"disk": "1GiB"')
    assert lines[1:4] == [
        "+ signing_keys.owner: owner",
        '+ signing_keys.owner.allow.pub: ["$JS.API.>"]',
        "+ signing_keys.owner.limits.subscriptions: 2",
    ]
    assert '"account": "OTHER"' in lines[4]


def test_unknown_signer_and_disagreement_win_over_the_comparison() -> None:
    (foreign,) = plan({"APP": {}}, evaluated({}, signer=STRANGER))["accounts"]
    assert foreign["state"] == "unknown signer" and foreign["problems"]
    (extra,) = (one for one in plan({"A": {}}, evaluated({}, signer=STRANGER))["accounts"] if one["name"] == "APP")
    assert extra["state"] == "unknown signer"
    (partial,) = plan({"APP": {}}, evaluated({}, listed={"n1": True, "n2": False, "n3": True}))["accounts"]
    assert partial["state"] == "servers disagree"
    (unread,) = plan({"APP": {"id": APP}}, evaluated({}, stored=("garbage",) * 3))["accounts"]
    assert unread["state"] == "unreadable"


def test_name_of_two_accounts_needs_the_id() -> None:
    found = plan({"APP": {}}, evaluated({}), evaluated({}, "APP", PAY))
    assert "2 accounts have this name" in found["problems"][0]


def test_missing_server_and_operator_problem_prevent_the_plan() -> None:
    found = make_plan(document({"APP": {}}), [evaluated({})], read_trust({"n1": []}, NOW), IDLE, ["n3"])
    assert "n3 did not answer" in found["problems"][0] and "no server has an operator" in found["problems"][1]


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({}, {"limits": {"connections": 5}}, ["limits.connections: unlimited → 5"]),
        ({"limits": {"connections": 5}}, {"limits": {"connections": "none"}}, ["limits.connections: 5 → none"]),
        ({}, {"limits": {"payload": "1MiB"}}, ["limits.payload: unlimited → 1MiB"]),
        ({"tags": ["a"]}, {"tags": ["b"]}, ["- tags: a", "+ tags: b"]),
        ({}, {"revoke": {ALICE: "2026-01-01T00:00:00Z"}}, [f"+ revoke.{ALICE}: 2026-01-01T00:00:00Z"]),
        ({"signing_keys": {"x": {"key": ROLE}}}, {}, [f"- signing_keys.{ROLE}: without a role"]),
        ({}, {"signing_keys": {"app": ROLE_KEY}}, ["+ signing_keys.app: app", '+ signing_keys.app.allow.pub: ["a.>"]']),
        (
            {"signing_keys": {"app": ROLE_KEY}},
            {"signing_keys": {"app": {"role": "app", "allow": {"pub": ["b"]}}}},
            ['signing_keys.app.allow.pub: ["a.>"] → ["b"]'],
        ),
        (
            {"limits": {"jetstream": {"R1": {"disk": "1GiB"}}}},
            {"limits": {"jetstream": "none"}},
            None,
        ),
    ],
)
def test_changes_are_in_words(before: dict[str, Any], after: dict[str, Any], lines: list[str] | None) -> None:
    found = [change_text(one) for one in row(after, before)["changes"]]
    assert found == lines if lines is not None else found[0].endswith("→ none")
    assert "-1" not in str(found)


def test_key_of_the_document_without_public_key_is_the_one_with_its_role() -> None:
    both = {"signing_keys": {"app": ROLE_KEY, "ops": {"key": SECOND, "role": "ops"}}}
    without = {"signing_keys": {"app": {"allow": {"pub": ["a.>"]}}, "ops": {"role": "ops"}}}
    assert row(without, both)["state"] == "same"
    added = {"signing_keys": {**without["signing_keys"], "more": {"role": "more"}}}
    assert [change_text(one) for one in row(added, both)["changes"]] == ["+ signing_keys.more: more"]


def test_renamed_account_is_a_change_of_its_name() -> None:
    (found,) = plan({"NEW": {"id": APP}}, evaluated({}))["accounts"]
    assert [change_text(one) for one in found["changes"]] == ["name: APP → NEW"]


# --- costs ------------------------------------------------------------------------------------------------------------


def connection(user: str = ALICE, issuer: str = ROLE, **more: Any) -> LiveConnection:
    values = {"account": APP, "is_leaf": False, "user": user, "issuer": issuer, "issued_at": 100, "is_bearer": False}
    return LiveConnection(**{**values, **more})


CONNECTIONS = (
    connection(),
    connection(BOB),
    connection(BOB, APP),
    connection(BOB, SECOND, issued_at=None, is_bearer=None),
    connection(is_leaf=True, issuer=APP),
    connection(account=PAY),
)
KEYS = {"signing_keys": {"app": ROLE_KEY, "x": {"key": SECOND}}}


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (KEYS, KEYS, {}),
        (KEYS, {"signing_keys": {"x": {"key": SECOND}}}, {"signing key app is dropped": 2}),
        (
            KEYS,
            {"signing_keys": {"app": {**ROLE_KEY, "allow": {"pub": ["a.>", "b"]}}, "x": {"key": SECOND}}},
            {"role app changes; its users reconnect": 2},
        ),
        ({"signing_keys": {"x": {"key": SECOND}}}, KEYS, {}),
        (KEYS, {**KEYS, "default_permissions": {"deny": {"pub": ["x"]}}}, {}),
        (KEYS, {**KEYS, "revoke": {ALICE: "1970-01-01T00:01:40Z"}}, {"the user is revoked": 2}),
        (KEYS, {**KEYS, "revoke": {ALICE: "1970-01-01T00:01:39Z"}}, {}),
        (KEYS, {**KEYS, "revoke": {"*": "1970-01-01T00:01:40Z"}}, {"the user is revoked": 5}),
        ({**KEYS, "revoke": {"*": "1970-01-01T00:01:40Z"}}, {**KEYS, "revoke": {"*": "1970-01-01T00:01:40Z"}}, {}),
        (KEYS, {**KEYS, "limits": {"disallow_bearer": True}}, {"bearer JWTs are no longer allowed": 1}),
        (KEYS, {**KEYS, "limits": {"connections": 3}}, {"more connections than the new limit of 3": 1}),
        (KEYS, {**KEYS, "limits": {"connections": 4}}, {}),
        (KEYS, {**KEYS, "limits": {"leaf": "none"}}, {"more leaf nodes than the new limit of 0": 1}),
        (KEYS, None, {"the account is deleted": 5}),
        (
            KEYS,
            {"signing_keys": {"x": {"key": SECOND}}, "revoke": {"*": "1970-01-01T00:01:40Z"}},
            {"signing key app is dropped": 2, "the user is revoked": 3},
        ),
    ],
)
def test_each_change_closes_exactly_these_connections(
    before: dict[str, Any], after: dict[str, Any] | None, reasons: dict[str, int]
) -> None:
    found = row(after, before, AccountUse(CONNECTIONS, ()))
    assert {one["reason"]: one["count"] for one in found["closes"]} == reasons


STREAMS = (
    AccountStream(APP, "ORDERS", 3, False, 1000, 4),
    AccountStream(APP, "LOG", 1, False, 500, 0),
    AccountStream(APP, "CACHE", 1, True, 50, 0),
    AccountStream(PAY, "OTHER", 1, False, 50, 0),
)
STORED = {"limits": {"jetstream": {"disk": "1GiB", "memory": "1GiB"}}}


def jetstream(limits: Any) -> dict[str, Any]:
    return {"limits": {"jetstream": limits}}


@pytest.mark.parametrize("after", [None, jetstream("none")])
def test_end_of_jetstream_strands_streams(after: dict[str, Any] | None) -> None:
    found = row(after, STORED, AccountUse((), STREAMS))
    assert found["streams"] == {"count": 3, "bytes": 3550, "names": ["CACHE", "LOG", "ORDERS"]}


@pytest.mark.parametrize(
    ("limits", "warnings"),
    [
        ({"disk": 3500, "memory": 50, "streams": 3, "consumers": 4}, []),
        ({"disk": 3499, "memory": 50}, ["limits.jetstream.disk: 3499, less than the 3.4 KiB in use"]),
        ({"disk": 3500}, ["limits.jetstream.memory: none, less than the 50 B in use"]),
        ({"disk": 3500, "memory": 50, "streams": 2}, ["limits.jetstream.streams: 2, less than the 3 that exist"]),
        (
            {"disk": 3500, "memory": 50, "consumers": 3},
            ["limits.jetstream.consumers: 3, less than the 4 of one stream"],
        ),
        ({"R1": {"disk": 500, "memory": 50}, "R3": {"disk": 1000}}, []),
        (
            {"R1": {"disk": 499, "memory": 50}, "R3": {"disk": 1000}},
            ["limits.jetstream.R1.disk: 499, less than the 500 B in use"],
        ),
        ({"R1": {"disk": 500, "memory": 50}}, ["limits.jetstream: streams with R3 exist, and no tier R3"]),
    ],
)
def test_limit_below_the_present_use_is_a_warning(limits: dict[str, Any], warnings: list[str]) -> None:
    assert row(jetstream(limits), STORED, AccountUse((), STREAMS))["warnings"] == warnings


def test_removed_export_names_its_importers() -> None:
    exporter = {"id": APP, "exports": [{"subject": "a", "type": "stream"}]}
    importer = {"id": PAY, "imports": [{"account": "APP", "subject": "a", "type": "stream"}]}
    both = document({"APP": exporter, "PAY": importer}).accounts
    servers = [evaluated(desired_claims(both[name], both, {}), name, both[name].id) for name in ("APP", "PAY")]
    (app, _pay) = plan({"APP": {"id": APP}, "PAY": {"id": PAY}}, *servers)["accounts"]
    assert app["warnings"] == ["account PAY imports stream a, which APP no longer exports"]


def test_claims_that_would_be_lost_are_a_warning() -> None:
    token = make_jwt(OPERATOR, APP, "APP", {"type": "account", "quorum": 5})
    (found,) = plan({"APP": {"id": APP}}, evaluated({}, stored=(token,) * 3))["accounts"]
    assert "claims unknown to this collection would be lost: quorum" in found["warnings"]


# --- operator, fingerprint and page -----------------------------------------------------------------------------------


def test_operator_of_the_document_is_compared() -> None:
    same: dict[str, Any] = {"operator": {"name": "ACME", "id": OPERATOR.public}, "system_account": PAY}
    assert plan({"APP": {}}, evaluated({}), **same)["operator"] == []
    other: dict[str, Any] = {"operator": {"name": "X", "strict_signing_keys": True}, "system_account": "APP"}
    found = plan({"APP": {}}, evaluated({}), **other)
    assert [change_text(one) for one in found["operator"]] == [
        f"system_account: {PAY} → {APP}",
        "operator.name: ACME → X",
        "operator.strict_signing_keys: false → true",
    ]
    assert "needs a restart" in "\n".join(plan_page(found).screen)


def test_fingerprint_follows_document_copies_and_operator_alone() -> None:
    def of(desired: dict[str, Any], actual: Evaluation, trust: Trust = TRUST, live: AccountUse = IDLE) -> str:
        return str(make_plan(document({"APP": desired}), [actual], trust, live)["fingerprint"])

    first = of({}, evaluated({}))
    # A new JWT with the same claims is a different copy, because the next JWT depends on the time of issue.
    again = evaluate(Copies(APP, evaluated({}).copies.stored, dict.fromkeys(NAMES, True), {}), TRUST, NOW)
    assert first != of({}, again)
    assert of({}, again) == of({}, again, live=AccountUse(CONNECTIONS, STREAMS))
    used = evaluate(replace(again.copies, loaded={"n1": again.copies.stored[0]}), TRUST, NOW)
    assert of({}, again) == of({}, used)
    assert of({}, again) != of({"limits": {"connections": 5}}, again)
    strict = make_jwt(OPERATOR, OPERATOR.public, "ACME", {"type": "operator", "signing_keys": [OPERATOR.public]})
    assert of({}, again) != of({}, again, read_trust({name: [strict] for name in NAMES}, NOW))


def test_accounts_of_one_name_are_shown_with_their_keys() -> None:
    shown = "\n".join(plan_page(plan({"A": {}}, evaluated({}), evaluated({}, "APP", PAY))).lines)
    assert f"APP ({APP})" in shown and f"APP ({PAY})" in shown


def test_plan_of_many_accounts_fits_on_a_screen() -> None:
    desired = {f"A{number:03}": {"limits": {"connections": number}} for number in range(300)}
    found = plan(desired, evaluated({}, signer=STRANGER))
    shown = plan_page(found)
    assert len(shown.screen) <= 50 and len(shown.lines) > 300
    assert "unknown signer" in "\n".join(shown.screen)
