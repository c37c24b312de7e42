# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the steps and refusals of a rotation of users and route credentials, which are derived from the loaded and the
desired configuration."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.credential_rotation import (
    CredentialOptions,
    HostCredentials,
    configured_users,
    credential_rotation,
    login_refusal,
    removal_refusal,
    route_plan,
    route_steps,
    user_plan,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import (
    hash_password,
    verify_password,
)

HASHES = {password: hash_password(password, 4) for password in ("old", "new", "sys")}
OLD = {"app": "old"}
BOTH = {"app": "old", "app_2": "new"}
RIGHTS = {"publish": {"allow": ["a.>"]}}
OPTIONS = CredentialOptions(cluster="C1")


def config(users: dict[str, str], hashed: bool = True) -> dict[str, Any]:
    """Return a configuration whose account APP has these users."""
    entries = [
        {"user": name.replace("_", "-"), "password": HASHES[word] if hashed else word} for name, word in users.items()
    ]
    return {"port": 4222, "accounts": {"SYS": {"users": []}, "APP": {"jetstream": True, "users": entries}}}


def plan(before: dict[str, str], after: dict[str, str], *remove: str) -> dict[str, Any]:
    return user_plan(config(before), config(after), config(after, hashed=False), remove, verify_password)


def names(configuration: dict[str, Any]) -> dict[str, str]:
    return {entry["user"]: entry["password"] for entry in configuration["accounts"]["APP"]["users"]}


def app(*users: str) -> list[dict[str, str]]:
    return [{"account": "APP", "user": user} for user in users]


# --- The users of one server ------------------------------------------------------------------------------------------


def test_new_user_is_added_next_to_the_old_one() -> None:
    found = plan(OLD, BOTH)
    assert (found["added"], found["removed"], found["changed"], found["other"]) == (app("app-2"), [], [], [])
    assert found["during"] == ["app", "app-2"]
    assert {entry["user"]: entry["password"] for entry in found["known"]} == {"app": "old", "app-2": "new"}


def test_a_user_that_the_inventory_has_no_more_stays_with_its_password_until_it_is_removed() -> None:
    found = plan(OLD, {"app_2": "new"})
    assert (found["added"], found["removed"]) == (app("app-2"), app("app"))
    assert names(found["add_users"]) == {"app-2": HASHES["new"], "app": HASHES["old"]}
    assert names(found["remove_users"]) == {"app-2": HASHES["new"]}
    assert (found["loaded"], sorted(found["during"]), found["after"]) == (["app"], ["app", "app-2"], ["app-2"])


def test_a_named_user_is_removed_though_the_inventory_has_it_and_does_not_come_back() -> None:
    found = plan(BOTH, BOTH, "app")
    assert (found["added"], found["removed"]) == ([], app("app"))
    assert names(found["add_users"]) == {"app": HASHES["old"], "app-2": HASHES["new"]}
    again = plan({"app_2": "new"}, BOTH, "app")
    assert (again["added"], again["removed"]) == ([], [])
    assert names(again["add_users"]) == names(again["remove_users"]) == {"app-2": HASHES["new"]}


def test_the_run_can_log_in_with_any_password_but_not_with_a_hash() -> None:
    users = [{"user": "app", "password": "$2p"}, {"user": "hashed", "password": HASHES["old"]}]
    given = {"authorization": {"users": users}}
    assert [entry["user"] for entry in user_plan(given, given, given, (), verify_password)["known"]] == ["app"]


def test_another_password_of_a_name_that_stays_is_a_change_and_another_hash_of_it_is_not() -> None:
    assert plan(OLD, {"app": "new"})["changed"] == app("app")
    rehashed = config(OLD)
    rehashed["accounts"]["APP"]["users"][0]["password"] = hash_password("old", 5)
    found = user_plan(config(OLD), rehashed, config(OLD, hashed=False), (), verify_password)
    assert found["changed"] == []


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [("port", 4223, "port"), ("accounts", {"SYS": {}}, "accounts.APP"), ("debug", True, "debug")],
)
def test_everything_else_that_changes_is_listed(key: str, value: Any, path: str) -> None:
    desired = {**config(OLD), key: value}
    assert path in user_plan(config(OLD), desired, desired, (), verify_password)["other"]


def test_changed_permissions_or_accounts_are_not_a_rotation() -> None:
    desired = config(OLD)
    desired["accounts"]["APP"]["users"][0]["permissions"] = RIGHTS
    assert user_plan(config(OLD), desired, desired, (), verify_password)["other"] == ["APP: app"]


def test_users_outside_accounts_are_rotated_too_and_those_of_other_transports_are_not_tried() -> None:
    before = {"authorization": {"users": [{"user": "a", "password": HASHES["old"]}]}}
    entry = {"user": "b", "password": "new", "allowed_connection_types": ["MQTT"]}
    plain = {"authorization": {"users": [entry]}}
    desired = {"authorization": {"users": [{**entry, "password": HASHES["new"]}]}}
    found = user_plan(before, desired, plain, (), verify_password)
    assert [user["user"] for user in found["add_users"]["authorization"]["users"]] == ["b", "a"]
    assert found["known"] == []


# --- The routes of one server -----------------------------------------------------------------------------------------


def routes(authorization: str | None, urls: str, host: str = "n2", tls: bool = False) -> dict[str, Any]:
    cluster: dict[str, Any] = {
        "name": "C1",
        "routes": [f"nats://r:{urls}@{host}:6222"],
        **({"tls": {"ca_file": "ca"}} if tls else {}),
    }
    return {
        "cluster": {**cluster, **({"authorization": {"user": "r", "password": authorization}} if authorization else {})}
    }


def test_routes_are_accepted_reconnected_and_bound_again() -> None:
    found = route_plan(routes("old", "old"), routes("new", "new"))
    assert (found["credentials"], found["urls"], found["unknown_routes"]) == ("other", "other", False)
    assert route_steps([found]) == ["open_routes", "renew_routes", "close_routes"]
    assert found["open_routes"] == routes(None, "old")
    assert found["renew_routes"] == routes(None, "new")
    assert found["close_routes"] == routes("new", "new")


@pytest.mark.parametrize(
    ("loaded", "left"),
    [
        ([("old", "old"), ("old", "old")], ["open_routes", "renew_routes", "close_routes"]),
        ([(None, "old"), ("old", "old")], ["open_routes", "renew_routes", "close_routes"]),
        ([(None, "old"), (None, "old")], ["renew_routes", "close_routes"]),
        ([(None, "new"), (None, "old")], ["renew_routes", "close_routes"]),
        ([(None, "new"), (None, "new")], ["close_routes"]),
        ([("new", "new"), (None, "new")], ["close_routes"]),
        ([("new", "new"), ("new", "new")], []),
    ],
)
def test_an_interrupted_change_of_routes_resumes(loaded: list[tuple[str | None, str]], left: list[str]) -> None:
    assert route_steps([route_plan(routes(*state), routes("new", "new")) for state in loaded]) == left


def test_changed_route_is_not_a_rotation() -> None:
    assert route_plan(routes("old", "old"), routes("new", "new", host="n3"))["unknown_routes"]


# --- The cluster ------------------------------------------------------------------------------------------------------


def host(before: dict[str, str], after: dict[str, str]) -> HostCredentials:
    return HostCredentials(True, config(before), config(after), config(after, hashed=False))


def route_host(before: tuple[str | None, str], after: tuple[str | None, str], tls: bool = True) -> HostCredentials:
    desired = routes(*after, tls=tls)
    return HostCredentials(True, routes(*before, tls=tls), desired, desired)


def rotation(hosts: dict[str, HostCredentials], **options: Any) -> dict[str, Any]:
    return credential_rotation(hosts, replace(OPTIONS, **options), verify_password)


ADD = {"n1": host(OLD, BOTH), "n2": host(OLD, BOTH)}
REMOVE = {"n1": host(BOTH, {"app_2": "new"}), "n2": host(BOTH, {"app_2": "new"})}
REPLACE = {"n1": host(OLD, {"app_2": "new"}), "n2": host(OLD, {"app_2": "new"})}
CHANGE = {"n1": host(OLD, {"app": "new"})}
ROUTES = {"n1": route_host(("old", "old"), ("new", "new")), "n2": route_host(("old", "old"), ("new", "new"))}
OPEN_ROUTES = {"n1": route_host(("old", "old"), ("new", "new"), tls=False)}


@pytest.mark.parametrize(
    ("hosts", "options", "steps"),
    [
        (ADD, {}, ["add_users"]),
        (ADD, {"phase": "remove"}, []),
        (REMOVE, {}, ["remove_users"]),
        (REMOVE, {"phase": "add"}, []),
        (REPLACE, {"phase": "add"}, ["add_users"]),
        (REPLACE, {"window": "1.5s"}, ["add_users", "wait", "remove_users"]),
        (CHANGE, {"disconnect_clients": True}, ["add_users"]),
        (ADD, {"phase": "remove", "remove_users": ["app"]}, ["remove_users"]),
        ({"n1": ADD["n1"], "n2": host(BOTH, BOTH)}, {}, ["add_users"]),
        ({"n1": host(BOTH, BOTH)}, {}, []),
        (ROUTES, {}, ["open_routes", "renew_routes", "close_routes"]),
        (ROUTES, {"routes": "at_once"}, ["close_routes"]),
        (OPEN_ROUTES, {"routes": "open"}, ["open_routes", "renew_routes", "close_routes"]),
    ],
)
def test_steps_follow_from_the_loaded_users_and_the_options(
    hosts: dict[str, HostCredentials], options: dict[str, Any], steps: list[str]
) -> None:
    found = rotation(hosts, **options)
    assert found["steps"] == steps
    assert len(found["lines"]) == max(len(steps), 1)
    for step, line in zip(steps, found["lines"], strict=False):
        assert line.startswith(f"{step}: ")
    for planned in found["hosts"].values():
        assert set(planned["configurations"]) == set(steps) - {"wait"}


def test_plan_lists_accepted_and_refused_users_without_passwords() -> None:
    found = rotation(REPLACE, window="1.5s")
    assert found["refusals"] == []
    assert [batch["wait_seconds"] for batch in found["batches"]] == [0, 2]
    assert found["lines"] == [
        "add_users: accept app-2 on every server, alongside app",
        "wait: accept both for 1.5s",
        "remove_users: refuse app",
    ]
    assert found["remaining"] == ["The servers have the credentials of the inventory."]
    assert found["removed"] == app("app")
    logins = found["hosts"]["n1"]["logins"]
    # The old user's password is not in the inventory, and an interrupted run may have removed it already.
    assert {key: logins["start"][key] for key in ("accepted", "refused", "attempt")} == {
        "accepted": [],
        "refused": [],
        "attempt": [],
    }
    assert "Nothing was changed." in logins["start"]["remedy"]
    assert sorted(logins["add_users"]["accepted"]) == ["app", "app-2"]
    assert logins["add_users"]["attempt"] == [{"user": "app-2", "password": "new"}]
    assert logins["remove_users"]["refused"] == ["app"]
    public = str([found[key] for key in ("refusals", "steps", "lines", "remaining", "removed", "batches")])
    assert "new" not in public and "$2" not in public


def test_a_removed_user_that_the_inventory_still_has_is_tried_and_must_be_refused() -> None:
    found = rotation({"n1": host(BOTH, BOTH)}, phase="remove", remove_users=["app"])
    expected = found["hosts"]["n1"]["logins"]["remove_users"]
    assert (expected["accepted"], expected["refused"]) == (["app-2"], ["app"])
    assert {login["user"] for login in expected["attempt"]} == {"app", "app-2"}


def test_all_hosts_change_at_once_except_for_reconnected_routes() -> None:
    hosts = {"n1": ROUTES["n1"], "n2": ROUTES["n1"]}
    assert [(batch["step"], batch["hosts"], batch["title"]) for batch in rotation(hosts)["batches"]] == [
        ("open_routes", ["n1", "n2"], "step 1 of 3: open_routes on n1, n2"),
        ("renew_routes", ["n1"], "step 2 of 3: renew_routes on n1"),
        ("renew_routes", ["n2"], "step 2 of 3: renew_routes on n2"),
        ("close_routes", ["n1", "n2"], "step 3 of 3: close_routes on n1, n2"),
    ]
    last = rotation(hosts)["batches"][-1]
    # Two batches belong to the second step.
    assert (last["number"], last["progress"]["step"], last["progress"]["steps"]) == (4, 4, 4)


def test_only_the_removal_of_users_checks_connections_and_every_change_of_users_checks_logins() -> None:
    add, remove = rotation(REPLACE, window="1m")["batches"]
    assert (add["removed"], add["checks_logins"], add["wait_seconds"]) == ([], True, 0)
    assert (remove["checks_logins"], remove["wait_seconds"]) == (True, 60)
    assert remove["removed"] == [
        {"kind": "client", "user": "app", "account": ""},
        {"kind": "leafnode", "user": "app", "account": "APP"},
    ]
    assert not any(batch["checks_logins"] or batch["removed"] for batch in rotation(ROUTES)["batches"])


def test_only_check_mode_predicts_a_change_and_only_if_a_step_is_due() -> None:
    assert rotation(ADD, check_mode=True)["predicts_change"]
    assert not rotation(ADD)["predicts_change"]
    assert not rotation({"n1": host(OLD, OLD)}, check_mode=True)["predicts_change"]


ACCEPTED = {"user": "app", "accepted": True, "code": None, "reason": None}
REJECTED = {"user": "app", "accepted": False, "code": "authorization", "reason": "Authorization Violation"}
UNREACHABLE = {"user": "app", "accepted": False, "code": "unreachable", "reason": "timed out"}


@pytest.mark.parametrize(
    ("key", "attempt", "words"),
    [
        ("accepted", ACCEPTED, ""),
        ("accepted", REJECTED, "n1 does not accept app: Authorization Violation. Run this again"),
        ("accepted", UNREACHABLE, "n1 does not accept app: timed out. Run this again"),
        ("refused", REJECTED, ""),
        ("refused", ACCEPTED, "n1 did not reject app. Run this again"),
        ("refused", UNREACHABLE, "n1 did not reject app: timed out. Run this again"),
    ],
)
def test_server_must_accept_and_reject_the_users_of_the_step(key: str, attempt: dict[str, Any], words: str) -> None:
    expected = {"accepted": [], "refused": [], "remedy": "Run this again", key: ["app"]}
    assert login_refusal([attempt], expected, "n1") == words
    assert login_refusal([{**attempt, "user": "other"}], expected, "n1") == ""


CONNECTED = {"user": "app", "name": None, "lang": "go", "version": "1.31.0", "ip": "10.0.1.7", "server": "n1"}


@pytest.mark.parametrize(
    ("lists", "disconnect", "words"),
    [
        ([{}], False, ""),
        ([{}, {"missing": ["n2"]}], True, "n2 did not list all connections"),
        ([{"incomplete": ["n3"]}], True, "n3 did not list all connections"),
        ([{"connections": [CONNECTED]}], True, ""),
        ([{"connections": [CONNECTED]}], False, "app: without a name (go 1.31.0) from 10.0.1.7 at n1"),
        ([{"connections": [{**CONNECTED, "name": "natsops.jetstream"}]}], False, ""),
        ([{"connections": [CONNECTED] * 21}], False, "21 client(s) are still connected"),
    ],
)
def test_users_with_clients_or_unknown_connections_are_not_removed(
    lists: list[dict[str, Any]], disconnect: bool, words: str
) -> None:
    found = removal_refusal(
        [{"connections": [], "missing": [], "incomplete": [], **each} for each in lists], disconnect
    )
    assert bool(found) == bool(words) and words in found
    assert len(found.splitlines()) <= 24


def test_removal_remains_after_adding() -> None:
    assert "nats_cluster_rotate_phase=remove" in rotation(REPLACE, phase="add")["remaining"][0]
    assert rotation(REPLACE, phase="add")["removed"] == []


def test_unnecessary_rotation_is_reported() -> None:
    assert rotation({"n1": host(OLD, OLD)})["lines"] == [
        "There is nothing to do: the servers have the credentials of the inventory."
    ]
    assert rotation(REMOVE, phase="add")["lines"] == ["There is nothing to do for the phase add."]


def with_debug(found: HostCredentials) -> HostCredentials:
    return replace(found, desired={**found.desired, "debug": True})


def with_another_route() -> HostCredentials:
    desired = routes("new", "new", host="n3", tls=True)
    return HostCredentials(True, routes("old", "old", tls=True), desired, desired)


def with_users_and_routes() -> HostCredentials:
    loaded, desired = (
        {**config(users), **routes(word, word, tls=True)} for users, word in ((OLD, "old"), (BOTH, "new"))
    )
    return HostCredentials(True, loaded, desired, {**desired, **config(BOTH, hashed=False)})


#: For each refusal: a case in which it fires, its wording, and the most similar case in which it does not.
REFUSALS: dict[
    str, tuple[dict[str, HostCredentials], dict[str, Any], str, dict[str, HostCredentials], dict[str, Any]]
] = {
    "part of the cluster": (
        ADD,
        {"missing_hosts": ["n3"]},
        "run without --limit and job slicing. Missing: n3",
        ADD,
        {},
    ),
    "stopped": (
        {**ADD, "n3": replace(ADD["n1"], running=False, loaded=None)},
        {},
        "nats-server is not running on n3.",
        ADD,
        {},
    ),
    "unknown": (
        {**ADD, "n3": replace(ADD["n1"], loaded=None)},
        {},
        "nats-server has loaded on n3. Run the playbook deploy first",
        ADD,
        {},
    ),
    "other changes": (
        {**ADD, "n3": with_debug(ADD["n1"])},
        {},
        "On n3 the inventory changes more than users and route credentials: debug.",
        ADD,
        {},
    ),
    "another route": ({"n1": with_another_route()}, {}, "cluster.routes. Deploy that first", ROUTES, {}),
    "restart pending": (
        {**ADD, "n3": replace(ADD["n1"], restart_pending=True)},
        {},
        "nats-server needs a restart on n3:",
        ADD,
        {},
    ),
    "users and routes": ({"n1": with_users_and_routes()}, {}, "both users and route credentials", ROUTES, {}),
    "another password": (
        CHANGE,
        {},
        "The inventory and the servers have different passwords for app",
        CHANGE,
        {"disconnect_clients": True},
    ),
    "at the same moment": (
        REPLACE,
        {},
        "app-2 would be added and app removed at the same moment",
        REPLACE,
        {"window": "5s"},
    ),
    "not added yet": (
        REPLACE,
        {"phase": "remove"},
        "app-2 is not accepted on every server yet",
        REMOVE,
        {"phase": "remove"},
    ),
    "routes without TLS": (
        OPEN_ROUTES,
        {},
        "even without a certificate on n1 (no cluster.tls)",
        OPEN_ROUTES,
        {"routes": "open"},
    ),
    "routes by gossip": (ROUTES, {"explicit_routes": False}, "discovered by gossip", ADD, {"explicit_routes": False}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_fires_and_does_not(case: str) -> None:
    hosts, options, words, good_hosts, good_options = REFUSALS[case]
    refusals = rotation(hosts, **options)["refusals"]
    assert len(refusals) == 1 and words in refusals[0], refusals
    assert refusals[0].endswith("."), refusals
    assert rotation(good_hosts, **good_options)["refusals"] == []


def test_all_reasons_come_at_once_and_equal_ones_once() -> None:
    hosts = {name: with_debug(replace(CHANGE["n1"], restart_pending=True)) for name in ("n1", "n2", "n3")}
    refusals = rotation(hosts, missing_hosts=["n4"])["refusals"]
    assert len(refusals) == 4 and sum("n1, n2, n3" in refusal for refusal in refusals) == 2


def test_routes_are_changed_at_once_without_tls() -> None:
    assert rotation(OPEN_ROUTES, routes="at_once")["refusals"] == []


# --- Properties -------------------------------------------------------------------------------------------------------


def accepted(configuration: dict[str, Any]) -> dict[str, str]:
    return {name: entry["password"] for name, (_account, entry) in configured_users(configuration).items()}


def test_users_are_never_refused_before_their_successors_are_accepted_everywhere() -> None:
    """The run may be interrupted anywhere, any number of times, and restarted; users are removed only in the phase for
    removal."""
    desired = {"keep": "sys", "app_2": "new"}
    for seed in range(100):
        dice = random.Random(seed)
        loaded = [config({"keep": "sys", "app": "old"}) for _host in range(dice.randint(1, 4))]
        for phase in ("add", "remove"):
            while True:
                hosts = {
                    f"n{index}": HostCredentials(True, each, config(desired), config(desired, hashed=False))
                    for index, each in enumerate(loaded)
                }
                found = rotation(hosts, phase=phase)
                assert found["refusals"] == [], seed
                if not found["steps"]:
                    break
                reached = found["batches"][0]["hosts"][: dice.randint(0, len(loaded))]  # the run ends before all hosts
                for index in (int(name[1:]) for name in reached):
                    loaded[index] = found["hosts"][f"n{index}"]["configurations"][found["batches"][0]["step"]]
                    assert all("keep" in accepted(each) for each in loaded), seed
                    everywhere = all("app-2" in accepted(each) for each in loaded)
                    assert everywhere or all("app" in accepted(each) for each in loaded), seed
            assert all("app-2" in accepted(each) for each in loaded), seed
        assert all(set(accepted(each)) == {"keep", "app-2"} for each in loaded), seed


def test_no_route_is_ever_refused() -> None:
    """A server accepts routes without `authorization`, or those that present its password."""
    for seed in range(200):
        dice = random.Random(seed)
        loaded = [routes("old", "old", tls=True) for _host in range(dice.randint(2, 5))]
        while True:
            desired = routes("new", "new", tls=True)
            found = rotation(
                {f"n{index}": HostCredentials(True, each, desired, desired) for index, each in enumerate(loaded)}
            )
            assert found["refusals"] == []
            if not found["steps"]:
                break
            for index in range(dice.randint(0, len(loaded))):
                loaded[index] = found["hosts"][f"n{index}"]["configurations"][found["steps"][0]]
                asked = [each["cluster"].get("authorization", {}).get("password") for each in loaded]
                presented = [each["cluster"]["routes"][0].split(":")[2].partition("@")[0] for each in loaded]
                assert all(ask in (None, word) for ask in asked for word in presented), (seed, asked, presented)
        assert all(each == routes("new", "new", tls=True) for each in loaded), seed
