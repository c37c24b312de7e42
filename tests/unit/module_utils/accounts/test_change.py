# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the change of one account: its dangers and obstacles, its issue time, and the keys and activations it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.change import (
    DANGERS,
    AccountChange,
    absent_change,
    keyless,
    missing_activations,
    missing_exporters,
    next_issue_time,
    present_change,
    with_keys,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import (
    Claims,
    encode_claims,
    import_key,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.copies import (
    Copies,
    Evaluation,
    evaluate,
    read_trust,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import desired_claims, read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.use import (
    AccountStream,
    AccountUse,
    LiveConnection,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import Danger, refused_dangers
from support.credentials import Key, make_jwt, new_key

NOW = 1_800_000_000.0
NAMES = ("n1", "n2", "n3")
OPERATOR, STRANGER = (new_key(nkeys.PREFIX_BYTE_OPERATOR, number) for number in range(2))
APP, PAY, ROLE, SYSTEM = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in range(4))
USER = new_key(nkeys.PREFIX_BYTE_USER, 1).public
OPERATOR_JWT = make_jwt(
    OPERATOR, OPERATOR.public, "ACME", {"type": "operator", "system_account": SYSTEM.public}, top={"iat": 1}
)
TRUST = read_trust({name: [OPERATOR_JWT] for name in NAMES}, NOW)
IDLE = AccountUse((), ())
CONNECTED = AccountUse((LiveConnection(APP.public, False, USER, ROLE.public, 100, False),), ())
STORED = AccountUse((), (AccountStream(APP.public, "ORDERS", 3, False, 100, 1),))
ROLES: dict[str, Any] = {"signing_keys": {"app": {"key": ROLE.public, "allow": {"pub": ["a"]}}}}


def evaluated(declared: dict[str, Any], name: str = "APP", key: Key = APP, signer: Key = OPERATOR) -> Evaluation:
    """Return an account as all servers have it."""
    accounts = read_document({"accounts": {name: {"id": key.public, **declared}}}).accounts
    token = encode_claims(desired_claims(accounts[name], accounts, {}), signer, 5)
    return evaluate(Copies(key.public, (token,) * 3, dict.fromkeys(NAMES, True), {}), TRUST, NOW)


def changed(
    actual: dict[str, Any] | None, declared: dict[str, Any], live: AccountUse = IDLE, *others: Evaluation
) -> AccountChange:
    """Return the change of the account APP from these fields of the document to others."""
    existing = [] if actual is None else [evaluated(actual)]
    document = read_document({"accounts": {"APP": declared}})
    return present_change("APP", document, [*existing, *others], TRUST, live, NOW)


def test_equal_account_needs_no_change() -> None:
    change = changed({"limits": {"connections": 5}}, {"limits": {"connections": 5}})
    assert (change.state, change.is_needed, change.account) == ("same", False, APP.public)
    difference = change.difference()
    assert difference["before"] == difference["after"]


def test_new_account_needs_keys() -> None:
    change = changed(None, {"signing_keys": {"app": {"allow": {"pub": ["a"]}}, "plain": {}}})
    assert (change.state, change.account, change.dangers, change.obstacles) == ("create", "", (), ())
    assert change.desired is not None and keyless(change.desired) == ["app", "plain"]
    keys = {"app": ROLE.public, "plain": PAY.public}
    signed = with_keys(change.desired, APP.public, keys, {})
    assert signed.subject == APP.public and keyless(signed) == []
    assert {key: entry["key"] for key, entry in signed.fields["signing_keys"].items()} == {
        one: one for one in keys.values()
    }
    assert change.difference()["before"] == {} and set(change.difference()["after"]["signing_keys"]) == {"app", "plain"}


@pytest.mark.parametrize(
    ("actual", "declared", "live", "kind", "message"),
    [
        (ROLES, {}, CONNECTED, "drop_key", "signing key app is dropped: closes 1 connection"),
        (
            ROLES,
            {"signing_keys": {"app": {"allow": {"pub": ["a", "b"]}}}},
            CONNECTED,
            "close_connections",
            "role app changes; its users reconnect: closes 1 connection",
        ),
        (
            {"limits": {"jetstream": {"disk": "1GiB"}}},
            {"limits": {"jetstream": {"disk": 10}}},
            STORED,
            "limits_below_use",
            "less than the",
        ),
    ],
)
def test_danger_is_refused_unless_it_is_allowed(
    actual: dict[str, Any], declared: dict[str, Any], live: AccountUse, kind: str, message: str
) -> None:
    change = changed(actual, declared, live)
    assert [one.kind for one in change.dangers] == [kind]
    refused = refused_dangers(change.dangers, [one for one in DANGERS if one != kind])
    assert message in refused and refused.endswith(f"To proceed anyway: allow: [{kind}]")
    assert refused_dangers(change.dangers, [kind]) == ""
    more = [*change.dangers, Danger("z", "more")]
    assert refused_dangers(more, [kind]) == refused_dangers(more, [])
    assert refused_dangers(more, [kind]).endswith(f"; more (z). To proceed anyway: allow: [{kind}, z]")


def test_revoked_connection_is_not_a_danger() -> None:
    change = changed(ROLES, {**ROLES, "revoke": {USER: "2100-01-01T00:00:00Z"}}, CONNECTED)
    assert [one.count for one in change.closes] == [1] and change.dangers == ()


def test_change_of_the_system_account_is_a_danger_and_jetstream_an_obstacle() -> None:
    document = read_document({"accounts": {"SYS": {"limits": {"jetstream": {"disk": 5}, "payload": 5}}}})
    change = present_change("SYS", document, [evaluated({}, "SYS", SYSTEM)], TRUST, IDLE, NOW)
    assert [one.kind for one in change.dangers] == ["system_account"]
    assert "cannot have JetStream" in change.obstacles[0]
    assert absent_change("SYS", [evaluated({}, "SYS", SYSTEM)], TRUST, IDLE).obstacles == ("it is the system account",)


@pytest.mark.parametrize(("declared", "refusals"), [({}, 1), ({"system_account": "SYS"}, 0)])
def test_builtin_role_is_refused_in_a_system_account_that_the_document_does_not_name(
    declared: dict[str, str], refusals: int
) -> None:
    keys = {"natsops": {"builtin": "natsops", "key": ROLE.public}}
    document = read_document({**declared, "accounts": {"SYS": {"signing_keys": keys}}})
    change = present_change("SYS", document, [evaluated({}, "SYS", SYSTEM)], TRUST, IDLE, NOW)
    assert len(change.obstacles) == refusals
    assert all("set system_account in the document" in one for one in change.obstacles)


def test_lost_import_and_unknown_claims_are_dangers() -> None:
    exported = {"exports": [{"subject": "a", "type": "stream"}]}
    imports = {"imports": [{"account": APP.public, "subject": "a", "type": "stream"}]}
    change = changed(exported, {}, IDLE, evaluated(imports, "PAY", PAY))
    assert [one.kind for one in change.dangers] == ["lost_imports"]
    before = evaluated(exported)
    assert before.claims is not None
    strange = replace(before, claims=replace(before.claims, unknown=("nats.later",)))
    document = read_document({"accounts": {"APP": {}}})
    unknown = present_change("APP", document, [strange], TRUST, IDLE, NOW)
    assert [one.kind for one in unknown.dangers] == ["unknown_claims"]


@pytest.mark.parametrize("live", [STORED, AccountUse((), (), ("n2",))])
def test_streams_and_silent_servers_prevent_a_deletion(live: AccountUse) -> None:
    jetstream = {"limits": {"jetstream": {"disk": "1GiB"}}}
    (reason,) = absent_change("APP", [evaluated(jetstream)], TRUST, live).obstacles
    assert reason.endswith(("(ORDERS); delete the streams first", "repeat when all servers answer"))
    assert changed(jetstream, {}, live).obstacles == (reason,)


def test_deletion_finds_an_account_by_name_or_key() -> None:
    existing = evaluated({})
    for name in ("APP", APP.public):
        change = absent_change(name, [existing], TRUST, CONNECTED)
        assert (change.state, change.account, change.obstacles) == ("delete", APP.public, ())
        assert [one.kind for one in change.dangers] == ["close_connections"]
    assert absent_change("NONE", [existing], TRUST, IDLE).state == "absent"
    both = absent_change("APP", [existing, evaluated({}, "APP", PAY)], TRUST, IDLE)
    assert "2 accounts have this name" in both.obstacles[0]


def test_unreadable_account_is_not_changed() -> None:
    copies = Copies(APP.public, ("garbage",) * 3, dict.fromkeys(NAMES, True), {})
    document = read_document({"accounts": {"APP": {"id": APP.public}}})
    change = present_change("APP", document, [evaluate(copies, TRUST, NOW)], TRUST, IDLE, NOW)
    assert change.is_needed and change.obstacles[0].startswith("unreadable: ")


def test_untrusted_copy_is_signed_again() -> None:
    document = read_document({"accounts": {"APP": {}}})
    change = present_change("APP", document, [evaluated({}, signer=STRANGER)], TRUST, IDLE, NOW)
    assert (change.state, change.changes) == ("change", ())


def test_import_of_a_private_export_needs_a_valid_activation() -> None:
    accounts = {
        "PAY": {"id": PAY.public, "exports": [{"subject": "a", "type": "stream", "to": ["APP"]}]},
        "APP": {"id": APP.public, "imports": [{"account": "PAY", "subject": "a", "type": "stream"}]},
    }
    parsed = read_document({"accounts": accounts}).accounts
    desired = desired_claims(parsed["APP"], parsed, {})
    (item,) = missing_activations(desired, None, NOW)

    def activated(**top: Any) -> Claims:
        content = {"type": "activation", "kind": "stream", "subject": "a"}
        token = make_jwt(PAY, APP.public, "a", content, top=top)
        return replace(desired, activations={import_key(item): token})

    assert missing_activations(desired, activated(), NOW) == []
    assert missing_activations(desired, activated(exp=int(NOW) - 1), NOW) == [item]
    without_account = {**accounts, "PAY": {key: value for key, value in accounts["PAY"].items() if key != "id"}}
    assert missing_exporters("APP", read_document({"accounts": without_account}), []) == ["PAY"]
    assert missing_exporters("APP", read_document({"accounts": accounts}), []) == []


@pytest.mark.parametrize(("newest", "issued"), [(0, NOW), (NOW, NOW + 1), (NOW + 500, NOW + 501)])
def test_issue_time_is_later_than_all_copies(newest: float, issued: float) -> None:
    assert next_issue_time(int(newest), NOW + 0.9) == issued
