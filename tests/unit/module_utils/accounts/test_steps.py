# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the order of steps: exports before imports, wider before narrower, one role at a time; and stale plans."""

from __future__ import annotations

from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import encode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.copies import (
    Copies,
    Evaluation,
    evaluate,
    read_trust,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import desired_claims, read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.plan import VERSION, change_text
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.steps import (
    planned_steps,
    stale_reasons,
    steps_page,
)
from support.credentials import Key, make_jwt, new_key

NOW = 1_800_000_000.0
NAMES = ("n1", "n2", "n3")
OPERATOR, STRANGER = (new_key(nkeys.PREFIX_BYTE_OPERATOR, number) for number in range(2))
KEYS = {name: new_key(nkeys.PREFIX_BYTE_ACCOUNT, number).public for number, name in enumerate(("PAY", "SHOP", "OLD"))}
FIRST, SECOND = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number).public for number in (10, 11))
OPERATOR_JWT = make_jwt(OPERATOR, OPERATOR.public, "ACME", {"type": "operator"}, top={"iat": 1})
TRUST = read_trust({name: [OPERATOR_JWT] for name in NAMES}, NOW)
EXPORTS = {"exports": [{"subject": "pay", "type": "stream"}]}
IMPORTS = {"imports": [{"account": "PAY", "subject": "pay", "type": "stream"}]}


def evaluated(accounts: dict[str, Any], signer: Key = OPERATOR) -> list[Evaluation]:
    """Return accounts as all servers have them."""
    with_keys = {name: {"id": KEYS[name], **item} for name, item in accounts.items()}
    desired = read_document({"accounts": with_keys}).accounts
    tokens = {KEYS[name]: encode_claims(desired_claims(one, desired, {}), signer, 5) for name, one in desired.items()}
    copies = [Copies(key, (token,) * 3, dict.fromkeys(NAMES, True), {}) for key, token in tokens.items()]
    return [evaluate(one, TRUST, NOW) for one in copies]


def steps(actual: dict[str, Any], declared: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Return each step as account, phase and changes in words."""
    existing = evaluated(actual) if actual else []
    found = planned_steps(read_document({"accounts": declared}), existing)
    return [(one.name, one.phase, [change_text(change) for change in one.changes]) for one in found]


def test_equal_accounts_have_no_step() -> None:
    assert steps({"PAY": EXPORTS, "SHOP": IMPORTS}, {"PAY": EXPORTS, "SHOP": IMPORTS}) == []


def test_new_accounts_import_after_all_accounts_exist() -> None:
    found = steps({}, {"SHOP": IMPORTS, "PAY": EXPORTS})
    assert [one[:2] for one in found] == [("SHOP", "create"), ("PAY", "create"), ("SHOP", "imports")]


def test_export_is_added_before_and_removed_after_its_import() -> None:
    added = steps({"SHOP": {}, "PAY": {}}, {"SHOP": IMPORTS, "PAY": EXPORTS})
    assert [one[:2] for one in added] == [("PAY", "exports, keys and higher limits"), ("SHOP", "imports")]
    removed = steps({"PAY": EXPORTS, "SHOP": IMPORTS}, {"PAY": {}, "SHOP": {}})
    assert [one[:2] for one in removed] == [("SHOP", "removed imports"), ("PAY", "the remaining changes")]


@pytest.mark.parametrize(
    ("before", "after", "wider", "narrower"),
    [
        (
            {"connections": 5, "leaf": 9},
            {"connections": 9, "leaf": 5},
            "limits.connections: 5 → 9",
            "limits.leaf: 9 → 5",
        ),
        ({"payload": 5, "leaf": 9}, {"leaf": 5}, "limits.payload: 5 → unlimited", "limits.leaf: 9 → 5"),
        (
            {"disallow_bearer": True, "leaf": 9},
            {"disallow_bearer": False, "leaf": 5},
            "limits.disallow_bearer: true → false",
            "limits.leaf: 9 → 5",
        ),
        (
            {"jetstream": {"R1": {"disk": 1024}}, "leaf": 9},
            {"jetstream": {"R1": {"disk": 2048}}, "leaf": 5},
            'limits.jetstream: {"R1": {"disk": "1KiB"',
            "limits.leaf: 9 → 5",
        ),
    ],
)
def test_limits_are_raised_before_others_are_lowered(
    before: dict[str, Any], after: dict[str, Any], wider: str, narrower: str
) -> None:
    first, second = steps({"PAY": {"limits": before}}, {"PAY": {"limits": after}})
    assert first[2][0].startswith(wider) and len(first[2]) == 1
    assert second[2] == [narrower]


def test_roles_change_one_after_another_between_added_and_dropped_keys() -> None:
    def roles(subject: str) -> dict[str, Any]:
        return {
            "a": {"key": FIRST, "role": "a", "allow": {"pub": [subject]}},
            "b": {"key": SECOND, "role": "b", "allow": {"pub": [subject]}},
        }

    gone = {"gone": {"key": KEYS["OLD"], "role": "gone", "allow": {"pub": ["x"]}}}
    new = {"new": {"allow": {"pub": ["x"]}}}
    found = steps({"PAY": {"signing_keys": {**roles("x"), **gone}}}, {"PAY": {"signing_keys": {**roles("y"), **new}}})
    assert [one[1] for one in found] == ["exports, keys and higher limits", "roles", "roles", "the remaining changes"]
    assert [len(one[2]) for one in found] == [2, 1, 1, 1]
    assert found[0][2] == ["+ signing_keys.new: new", '+ signing_keys.new.allow.pub: ["x"]']
    assert found[3][2] == ["- signing_keys.gone: gone"]


def test_step_that_servers_would_refuse_is_left_to_the_last_one() -> None:
    """Both exports together would exceed the limit of one."""
    limits = {"limits": {"exports": 1}}
    other = {"exports": [{"subject": "new", "type": "stream"}]}
    found = steps({"PAY": {**limits, **EXPORTS}}, {"PAY": {**limits, **other}})
    assert [one[1] for one in found] == ["the remaining changes"]


def test_deletion_is_the_last_step() -> None:
    found = steps({"OLD": {}, "PAY": {}}, {"OLD": {"state": "absent"}, "PAY": EXPORTS})
    assert [one[:2] for one in found] == [("PAY", "exports, keys and higher limits"), ("OLD", "delete")]
    assert steps({"PAY": {}}, {"OLD": {"state": "absent"}, "PAY": {}}) == []


def test_untrusted_copy_is_signed_again() -> None:
    document = read_document({"accounts": {"PAY": {}}})
    (step,) = planned_steps(document, evaluated({"PAY": {}}, STRANGER))
    assert (step.phase, step.changes) == ("signature", ())


# --- stale plans ------------------------------------------------------------------------------------------------------


def plan(fingerprint: str = "a", closes: tuple[str, ...] = (), warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    row = {"name": "PAY", "closes": [{"reason": one, "count": 2} for one in closes], "warnings": list(warnings)}
    return {"version": VERSION, "fingerprint": fingerprint, "accounts": [row]}


def test_plan_is_stale_after_any_change_and_for_new_costs() -> None:
    assert stale_reasons(plan(), plan()) == []
    assert stale_reasons(plan(closes=("x", "y"), warnings=("w",)), plan(closes=("x",))) == []
    assert stale_reasons(plan("b"), plan("a")) == [
        "the document, an account or the operator has changed since the plan was made"
    ]
    assert "has version 0" in stale_reasons({**plan(), "version": 0}, plan())[0]
    assert "has version None" in stale_reasons({}, plan())[0]
    assert stale_reasons(plan(), plan(closes=("x",))) == ["account PAY: x: closes 2 connections"]
    assert stale_reasons(plan(), plan(warnings=("w",))) == ["account PAY: w"]


def test_page_names_roles_that_were_not_tested() -> None:
    rows = [{"name": "PAY", "step": "create", "changes": []}]
    roles = [
        {"account": "PAY", "role": "a", "skipped": ""},
        {"account": "PAY", "role": "b", "skipped": "no seed"},
    ]
    lines = steps_page(rows, roles).lines
    assert "1 role tested with a user" in lines and "role b of account PAY was not tested: no seed" in lines
    assert steps_page([], []).lines == ("The servers have the accounts of the document.",)
