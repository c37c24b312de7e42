# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the plan of a move between static accounts and operator mode, and between resolvers."""

from __future__ import annotations

from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_config_problems import nats_config_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.migration import (
    migration_problems,
    unequal_accounts,
)
from support.credentials import make_jwt, new_key

OPERATOR = new_key(nkeys.PREFIX_BYTE_OPERATOR, 1)
SYS, APP, PAY = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number).public for number in (1, 2, 3))
FREE = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
STORAGE = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
USERS = {"users": [{"user": "app", "password": "x"}]}


def token(account: str, **nats: Any) -> str:
    return make_jwt(OPERATOR, account, "a name", {"type": "account", "limits": FREE, **nats})


def operator(**accounts: str) -> dict[str, Any]:
    preload = {SYS: token(SYS), APP: token(APP, limits={**FREE, **STORAGE}), **accounts}
    return {"operator": "x", "system_account": SYS, "resolver": "MEMORY", "resolver_preload": preload}


def static(**changes: Any) -> dict[str, Any]:
    return {"system_account": SYS, "accounts": {SYS: {}, APP: {"jetstream": True, **USERS}}, **changes}


def errors(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = migration_problems(before, after)
    return [f"{one['option']}: {one['message']}" for one in found if one["severity"] == "error"]


def warnings(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = migration_problems(before, after)
    return [f"{one['option']}: {one['message']}" for one in found if one["severity"] == "warning"]


def test_equal_accounts_can_move_in_both_directions() -> None:
    assert errors(static(), operator()) == errors(operator(), static()) == []
    assert warnings(static(), operator()) == [f"accounts.{APP}.users: 1 user can no longer log in without a JWT: app"]
    (ended,) = warnings(operator(), static())
    assert "no user with a JWT can log in any longer" in ended


@pytest.mark.parametrize(("before", "after"), [({}, operator()), (static(), static()), (operator(), operator())])
def test_nothing_is_reported_without_a_move(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert migration_problems(before, after) == []


def test_account_with_a_human_name_is_refused() -> None:
    (refused,) = errors(static(accounts={SYS: {}, APP: {"jetstream": True}, "ORDERS": {}}), operator())
    assert refused.startswith("accounts.ORDERS: is not a public key")
    assert "by a backup and a restore" in refused


def test_system_account_must_keep_its_name() -> None:
    before = {"accounts": {"$SYS": USERS, APP: {"jetstream": True}}}
    (refused,) = errors(before, operator())
    assert refused.startswith(f"system_account: changes from $SYS to {SYS}: the meta group would start empty")


def test_account_that_one_side_lacks_is_refused() -> None:
    (refused,) = errors(static(accounts={SYS: {}, APP: {"jetstream": True}, PAY: {}}), operator())
    assert refused.startswith(f"resolver_preload.{PAY}: is missing")
    (refused,) = errors(operator(**{PAY: token(PAY)}), static())
    assert refused.startswith(f"accounts.{PAY}: is missing")
    assert errors(static(), operator(**{PAY: token(PAY)})) == []


@pytest.mark.parametrize(
    ("account", "nats", "path"),
    [
        ({"exports": [{"service": "a"}]}, {}, "exports"),
        ({"mappings": {"a": "b"}}, {}, "mappings.a"),
        ({"default_permissions": {"publish": ["a"]}}, {}, "default_permissions.allow.pub"),
        ({}, {"exports": [{"name": "a", "subject": "a", "type": "service"}]}, "exports"),
        ({"jetstream": False}, {}, "limits.jetstream"),
    ],
)
def test_parts_that_others_depend_on_must_be_equal(account: dict[str, Any], nats: dict[str, Any], path: str) -> None:
    before = static(accounts={SYS: {}, APP: {"jetstream": True, **account}})
    after = operator(**{APP: token(APP, limits={**FREE, **STORAGE}, **nats)})
    for one, other in ((before, after), (after, before)):
        (refused,) = errors(one, other)
        assert refused.startswith(f"accounts.{APP}: {path} differs")


def test_imports_are_compared_by_the_key_of_the_exporting_account() -> None:
    importing = {"jetstream": True, "imports": [{"service": {"account": PAY, "subject": "pay"}}]}
    before = static(accounts={SYS: {}, APP: importing, PAY: {"exports": [{"service": "pay"}]}})
    imports = [{"name": "pay", "subject": "pay", "account": PAY, "type": "service"}]
    exports = [{"name": "pay", "subject": "pay", "type": "service"}]
    equal = {APP: token(APP, limits={**FREE, **STORAGE}, imports=imports), PAY: token(PAY, exports=exports)}
    assert errors(before, operator(**equal)) == []
    (refused,) = errors(before, operator(**{PAY: equal[PAY]}))
    assert "imports differs" in refused


def test_different_limit_is_a_warning() -> None:
    before = static(accounts={SYS: {}, APP: {"jetstream": True, "limits": {"max_connections": 5}}})
    assert errors(before, operator()) == []
    assert warnings(before, operator()) == [
        f"accounts.{APP}: limits.connections differs between the static configuration and the claims: 5 becomes unlimited"
    ]


def test_logins_that_end_are_listed() -> None:
    before = static(
        no_auth_user="app",
        authorization={"token": "x"},
        leafnodes={"authorization": {"user": "a", "password": "b"}},
        websocket={"no_auth_user": "app"},
    )
    options = [one.partition(":")[0] for one in warnings(before, operator())]
    assert options[1:] == ["no_auth_user", "authorization", "leafnodes.authorization", "websocket.no_auth_user"]


def test_unreadable_claims_are_refused() -> None:
    (refused,) = errors(static(), operator(**{APP: "eyJ.x.y"}))
    assert refused.startswith(f"resolver_preload.{APP}: cannot be read")


FULL, CACHE = ({"type": kind, "dir": "/jwt"} for kind in ("full", "cache"))


@pytest.mark.parametrize(
    ("old", "new", "is_warned"),
    [
        (FULL, FULL, False),
        ("MEMORY", {"type": "mem"}, False),
        (FULL, CACHE, True),
        (CACHE, FULL, False),
        (FULL, "MEMORY", True),
        ("MEMORY", FULL, True),
        (FULL, {**FULL, "dir": "/other"}, True),
        (FULL, "URL(http://127.0.0.1/jwt/)", False),
    ],
)
def test_new_resolver_has_only_preloaded_accounts(old: Any, new: Any, is_warned: bool) -> None:
    before, after = ({**operator(), "resolver": kind} for kind in (old, new))
    assert errors(before, after) == []
    assert bool(warnings(before, after)) == is_warned


def test_new_resolver_without_an_account_is_refused() -> None:
    before = {**operator(**{PAY: token(PAY)}), "resolver": FULL}
    (refused,) = errors(before, operator())
    assert refused.startswith(f"resolver: changes from full to memory, which would not have {PAY}")
    assert errors(before, {**operator(), "resolver": CACHE}) == []


def test_deployment_checks_the_move() -> None:
    found = nats_config_problems(operator(), {"loaded": static(accounts={SYS: {}, "ORDERS": {}})})
    assert any(one["option"] == "accounts.ORDERS" and one["severity"] == "error" for one in found)


def detail(is_operator: bool, **parts: Any) -> dict[str, Any]:
    return {"jetstream_enabled": True, **({"decoded_jwt": {}} if is_operator else {}), **parts}


def test_accounts_in_force_are_compared_between_both_kinds_of_servers() -> None:
    exports = [{"type": "service", "subject": "pay", "approved_accounts": [APP]}]
    private = [{"type": "service", "subject": "pay", "token_req": True}]
    equal = {"n1": detail(True, exports=private), "n2": detail(False, exports=exports)}
    assert unequal_accounts({APP: equal}) == []
    assert unequal_accounts({APP: {"n1": detail(True), "n2": detail(True, jetstream_enabled=False)}}) == []
    (found,) = unequal_accounts({APP: {"n1": detail(True), "n2": detail(False, exports=exports)}})
    assert found == (
        f"account {APP}: exports differs between n2, which has static accounts, and n1, which is in operator mode: service "
        "pay (private) and none"
    )
    (found,) = unequal_accounts({APP: {"n1": detail(True, mappings={"a": []}), "n2": detail(False)}})
    assert "mappings differs" in found
    (found,) = unequal_accounts({APP: {"n1": detail(True, jetstream_enabled=False), "n2": detail(False)}})
    assert "JetStream differs" in found


def test_shares_of_mappings_are_compared_in_any_order() -> None:
    """ACCOUNTZ returns cumulative weights."""
    a_first = [{"subject": "a", "weight": 50}, {"subject": "b", "weight": 100}]
    b_first = [{"subject": "b", "weight": 50}, {"subject": "a", "weight": 100}]
    clusters = [{"subject": "c", "weight": 100, "cluster": name} for name in ("C1", "C2")]
    one = detail(True, mappings={"x": [*a_first, *clusters]})
    assert unequal_accounts({APP: {"n1": one, "n2": detail(False, mappings={"x": [*clusters[::-1], *b_first]})}}) == []
    b_first[0]["weight"] = 40
    (found,) = unequal_accounts({APP: {"n1": one, "n2": detail(False, mappings={"x": [*clusters, *b_first]})}})
    assert "x to a 60% and b 40% and c 100% in C1 and c 100% in C2" in found


def test_key_without_a_value_is_not_configured() -> None:
    """The role passes all keys; those without a value are null."""
    unset = dict.fromkeys(("operator", "resolver", "resolver_preload"))
    assert migration_problems(static(), {**static(), **unset}) == []
    assert migration_problems(operator(), {**operator(), "accounts": None, "no_auth_user": None}) == []
    assert errors(static(), {**operator(), "accounts": None}) == errors(operator(), {**static(), **unset}) == []
