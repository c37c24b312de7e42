# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a rotation, from what is loaded and what is wanted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils._bcrypt import hash_password, verify_password
from ansible_collections.natsops.jetstream.plugins.module_utils._rotation import (
    certificate_choice,
    certificate_state,
    certificate_steps,
    route_plan,
    route_steps,
    user_plan,
)

HASHES = {password: hash_password(password, 4) for password in ("old", "new", "sys")}
OLD = {"app": "old"}
RIGHTS = {"publish": {"allow": ["a.>"]}}


def config(users: dict[str, str], hashed: bool = True) -> dict[str, Any]:
    """A configuration whose account APP has these users."""
    entries = [
        {"user": name.replace("_", "-"), "password": HASHES[word] if hashed else word} for name, word in users.items()
    ]
    return {"port": 4222, "accounts": {"SYS": {"users": []}, "APP": {"jetstream": True, "users": entries}}}


def plan(before: dict[str, str], after: dict[str, str], *retire: str) -> dict[str, Any]:
    return user_plan(config(before), config(after), config(after, hashed=False), retire, verify_password)


def names(configuration: dict[str, Any]) -> dict[str, str]:
    return {entry["user"]: entry["password"] for entry in configuration["accounts"]["APP"]["users"]}


def app(*users: str) -> list[dict[str, str]]:
    return [{"account": "APP", "user": user} for user in users]


def test_a_new_user_is_added_beside_the_old_one() -> None:
    found = plan({"app": "old"}, {"app": "old", "app_2": "new"})
    assert (found["added"], found["removed"], found["changed"], found["other"]) == (app("app-2"), [], [], [])
    assert found["during"] == ["app", "app-2"]
    assert {entry["user"]: entry["password"] for entry in found["known"]} == {"app": "old", "app-2": "new"}


def test_a_user_that_the_inventory_has_no_more_stays_with_its_password_until_the_drop() -> None:
    found = plan({"app": "old"}, {"app_2": "new"})
    assert (found["added"], found["removed"]) == (app("app-2"), app("app"))
    assert names(found["add"]) == {"app-2": HASHES["new"], "app": HASHES["old"]}
    assert names(found["drop"]) == {"app-2": HASHES["new"]}
    assert (found["loaded"], sorted(found["during"]), found["after"]) == (["app"], ["app", "app-2"], ["app-2"])


def test_a_retired_user_goes_though_the_inventory_has_it_and_does_not_come_back() -> None:
    both = {"app": "old", "app_2": "new"}
    found = plan(both, both, "app")
    assert (found["added"], found["removed"]) == ([], app("app"))
    assert names(found["add"]) == {"app": HASHES["old"], "app-2": HASHES["new"]}
    again = plan({"app_2": "new"}, both, "app")
    assert (again["added"], again["removed"]) == ([], [])
    assert names(again["add"]) == names(again["drop"]) == {"app-2": HASHES["new"]}


def test_another_password_of_a_name_that_stays_is_a_change_and_another_hash_of_it_is_not() -> None:
    assert plan({"app": "old"}, {"app": "new"})["changed"] == app("app")
    rehashed = config(OLD)
    rehashed["accounts"]["APP"]["users"][0]["password"] = hash_password("old", 5)
    found = user_plan(config(OLD), rehashed, config(OLD, hashed=False), (), verify_password)
    assert found["changed"] == []


@pytest.mark.parametrize(
    ("key", "value", "path"), [("port", 4223, "port"), ("accounts", {"SYS": {}}, "accounts.APP"), ("debug", True, "debug")]
)
def test_everything_else_is_told(key: str, value: Any, path: str) -> None:
    wanted = {**config(OLD), key: value}
    assert path in user_plan(config(OLD), wanted, wanted, (), verify_password)["other"]


def test_rights_and_accounts_of_a_user_are_no_rotation() -> None:
    wanted = config(OLD)
    wanted["accounts"]["APP"]["users"][0]["permissions"] = RIGHTS
    assert user_plan(config(OLD), wanted, wanted, (), verify_password)["other"] == ["APP: app"]


def test_users_outside_accounts_are_rotated_too_and_others_transports_are_not_tried() -> None:
    before = {"authorization": {"users": [{"user": "a", "password": HASHES["old"]}]}}
    entry = {"user": "b", "password": "new", "allowed_connection_types": ["MQTT"]}
    plain = {"authorization": {"users": [entry]}}
    wanted = {"authorization": {"users": [{**entry, "password": HASHES["new"]}]}}
    found = user_plan(before, wanted, plain, (), verify_password)
    assert [user["user"] for user in found["add"]["authorization"]["users"]] == ["b", "a"]
    assert found["known"] == []


# --- Routes -----------------------------------------------------------------------------------------------------------


def routes(authorization: str | None, urls: str, host: str = "n2") -> dict[str, Any]:
    cluster: dict[str, Any] = {"name": "C1", "routes": [f"nats://r:{urls}@{host}:6222"]}
    return {"cluster": {**cluster, **({"authorization": {"user": "r", "password": authorization}} if authorization else {})}}


def test_routes_are_let_in_made_anew_and_bound_again() -> None:
    found = route_plan(routes("old", "old"), routes("new", "new"))
    assert (found["credentials"], found["urls"], found["unknown_routes"]) == ("other", "other", False)
    assert route_steps([found]) == ["open", "urls", "close"]
    assert found["open"] == routes(None, "old")
    assert found["urls_new"] == routes(None, "new")
    assert found["close"] == routes("new", "new")


@pytest.mark.parametrize(
    ("loaded", "left"),
    [
        ([("old", "old"), ("old", "old")], ["open", "urls", "close"]),
        ([(None, "old"), ("old", "old")], ["open", "urls", "close"]),
        ([(None, "old"), (None, "old")], ["urls", "close"]),
        ([(None, "new"), (None, "old")], ["urls", "close"]),
        ([(None, "new"), (None, "new")], ["close"]),
        ([("new", "new"), (None, "new")], ["close"]),
        ([("new", "new"), ("new", "new")], []),
    ],
)
def test_an_interrupted_change_of_routes_goes_on(loaded: list[tuple[str | None, str]], left: list[str]) -> None:
    assert route_steps([route_plan(routes(*state), routes("new", "new")) for state in loaded]) == left


def test_another_route_is_no_rotation() -> None:
    assert route_plan(routes("old", "old"), routes("new", "new", host="n3"))["unknown_routes"]


# --- Certificates -----------------------------------------------------------------------------------------------------


def host(bundle: str, leaf: str) -> dict[str, bool]:
    """`bundle` has a letter for each trusted authority: o, n, or a foreign x."""
    return certificate_state(list(bundle), leaf or None, ["o"], ["n"], "new")


@pytest.mark.parametrize(
    ("hosts", "left"),
    [
        ([("o", "old"), ("o", "old")], ["trust", "leaves", "drop"]),
        ([("on", "old"), ("o", "old")], ["trust", "leaves", "drop"]),
        ([("on", "old"), ("on", "old")], ["leaves", "drop"]),
        ([("on", "new"), ("on", "old")], ["leaves", "drop"]),
        ([("n", "new"), ("on", "old")], ["trust", "leaves", "drop"]),
        ([("on", "new"), ("on", "new")], ["drop"]),
        ([("n", "new"), ("on", "new")], ["drop"]),
        ([("n", "new"), ("n", "new")], []),
    ],
)
def test_the_steps_follow_from_the_files_of_the_hosts(hosts: list[tuple[str, str]], left: list[str]) -> None:
    assert certificate_steps([host(*state) for state in hosts]) == left


def test_deploying_leaves_each_host_where_it_is() -> None:
    states = [host("o", "old"), host("on", "old"), host("on", "new"), host("n", "new")]
    kept = [certificate_choice(state, states, "keep") for state in states]
    assert [(choice["bundle"], choice["leaf"]) for choice in kept] == [
        ("old", "old"),
        ("both", "old"),
        ("both", "new"),
        ("new", "new"),
    ]
    empty = host("", "")
    assert certificate_choice(empty, [empty, host("o", "old")], "keep") == {"bundle": "old", "leaf": "old"}
    assert certificate_choice(empty, [empty, host("on", "old"), host("o", "old")], "keep") == {"bundle": "both", "leaf": "old"}
    assert certificate_choice(empty, [empty, host("on", "new")], "keep") == {"bundle": "both", "leaf": "new"}
    assert host("x", "old")["foreign"] and not host("xo", "old")["foreign"]


def test_no_host_ever_presents_what_another_does_not_trust() -> None:
    """Interrupted anywhere, as often as one likes, and started again."""
    issuer = {"old": "o", "new": "n"}
    for seed in range(200):
        dice = random.Random(seed)
        hosts = [["o", "old"] for _host in range(dice.randint(1, 5))]
        for _run in range(50):
            states = [host(*state) for state in hosts]
            steps = certificate_steps(states)
            if not steps:
                break
            for index in range(dice.randint(0, len(hosts))):  # the run ends before it came to all hosts
                now = [host(*state) for state in hosts]
                choice = certificate_choice(now[index], now, steps[0])
                hosts[index] = [{"old": "o", "both": "on", "new": "n"}[choice["bundle"]], choice["leaf"]]
                assert all(issuer[leaf] in bundle for bundle, _leaf in hosts for _bundle, leaf in hosts), (seed, hosts)
        assert all(state == ["n", "new"] for state in hosts)
