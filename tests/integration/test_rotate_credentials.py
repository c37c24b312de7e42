# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rotates users and route credentials on three servers while clients log in continuously.

Each test leaves servers and inventory in agreement, with the route user `route`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.role_cluster import load
from support.rotation_site import NAMES, Site, Watch, changed, login

# test_rotate_certificates.py refuses harmful changes in each `make test`.
pytestmark = [pytest.mark.playbook, pytest.mark.chaos]

ROTATE = "rotate_credentials"
NOTHING = "There is nothing to do: the servers have the credentials of the inventory."


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    routes = {"user": "route", "password": "route-old"}
    made = Site(tmp_path_factory.mktemp("site"), "2.10.27", nats_server_cluster_authorization=routes)
    with made.deployed() as found:
        yield found


def current(site: Site) -> dict[str, str]:
    """Return the name and password of the account's first user."""
    return {site.users[0]["user"]: site.users[0]["password"]}


def refused(site: Site, user: str, password: str) -> bool:
    """Return whether every server refuses the user."""
    return all("Authorization Violation" in login(site.port(name), user, password) for name in NAMES)


def test_harm_is_refused_with_all_its_reasons(site: Site) -> None:
    before = site.contents()
    changes: dict[str, Any] = {
        "nats_server_config": {"debug": True},
        "nats_server_accounts": {"APP": {"jetstream": True, "users": [{"user": "app", "password": "app-typo"}]}},
        "nats_server_cluster_authorization": {"user": "route", "password": "route-new"},
    }
    output = site.playbook(ROTATE, fails=True, **changes).output
    for words in (
        "changes more than users",
        "The inventory and the servers have different passwords for app",
        "cluster.tls",
        "Rotate one of them",
    ):
        assert words in output
    assert "app-typo" not in output and "route-new" not in output
    assert "run without --limit" in site.playbook(ROTATE, "--limit", "n1", fails=True).output
    assert site.contents() == before


def test_old_and_new_users_are_let_in_until_the_old_ones_are_dropped(site: Site) -> None:
    pids = site.pids()
    old = site.variables["nats_server_account_operator_password"]
    site.users.append({"user": "app-2", "password": "app-new"})
    site.variables.update(
        nats_server_system_user="sys-2",
        nats_server_system_password="sys-new",
        nats_server_system_previous_user="sys",
        nats_server_system_previous_password="sys-old",
        nats_server_account_operator_prefix="ops-",
        nats_server_account_operator_password="operator-new",
        nats_server_account_operator_previous_prefix="operator-",
        nats_server_account_operator_previous_password=old,
    )
    before = site.contents()
    outputs = [site.playbook(ROTATE, "--check").output]
    assert "add_users: accept sys-2, app-2, ops-APP" in outputs[0] and site.contents() == before
    drop: dict[str, Any] = {"nats_cluster_rotate_phase": "remove", "nats_cluster_rotate_remove_users": ["app"]}
    with Watch(site, {"app": "app-old", "sys": "sys-old"}) as watch, load(site, "app", "app-old"):
        outputs.append(site.playbook(ROTATE).output)
        watch.logins.update({"app-2": "app-new", "sys-2": "sys-new"})
        for key in ("system_previous_user", "account_operator_previous_password"):
            del site.variables[f"nats_server_{key}"]
        outputs.append(site.playbook(ROTATE, fails=True, **drop).output)
        assert "connected as a user to be removed" in outputs[-1]
    assert watch.refusals == []
    assert all(watch.seen[name].tries > 10 for name in ("app", "app-2", "sys", "sys-2"))

    with Watch(site, {"app-2": "app-new", "sys-2": "sys-new"}) as watch:
        outputs.append(site.playbook(ROTATE, **drop).output)
    assert watch.refusals == []
    assert refused(site, "app", "app-old") and refused(site, "sys", "sys-old")
    site.users.pop(0)
    outputs.append(site.playbook(ROTATE).output)
    assert NOTHING in outputs[-1] and changed(outputs[-1]) == 0
    assert site.pids() == pids
    secrets = ("sys-old", "sys-new", "app-old", "app-new", "operator-new", old, "route-old")
    assert [secret for secret in secrets if secret in "".join(outputs)] == []


def test_one_run_waits_for_the_window(site: Site) -> None:
    [(old, word)] = current(site).items()
    site.users[:] = [{"user": f"{old}-w", "password": "app-window"}]
    assert f"{old}-w would be added and {old} removed at the same moment" in site.playbook(ROTATE, fails=True).output
    with Watch(site, {old: word}) as watch:
        watch.logins[f"{old}-w"] = "app-window"
        site.playbook(ROTATE, nats_cluster_rotate_window="5s", nats_cluster_rotate_disconnect_clients=True)
    assert watch.seen[old].refusals, "the old user was never dropped"
    assert watch.seen[old].refusals[0][0] - watch.seen[f"{old}-w"].refusals[-1][0] > 5


def test_password_of_the_same_user_is_replaced_at_once_on_request(site: Site) -> None:
    [(name, word)] = current(site).items()
    site.users[0]["password"] = "app-same-name"
    with Watch(site, {name: "app-same-name"}):
        output = site.playbook(ROTATE, nats_cluster_rotate_disconnect_clients=True).output
    assert f"add_users: replace the password of {name}" in output
    assert refused(site, name, word)
    assert NOTHING in site.playbook(ROTATE).output


@pytest.mark.parametrize("how", ["open", "at_once"])
def test_routes_change_under_load(site: Site, how: str) -> None:
    pids = site.pids()
    word = f"route-{how}"
    site.variables["nats_server_cluster_authorization"] = {"user": "route", "password": word}
    logs = {name: (site.root / name / "run/nats-server.out").stat().st_size for name in NAMES}
    with Watch(site, current(site)) as watch, load(site, *next(iter(current(site).items()))) as reports:
        output = site.playbook(ROTATE, nats_cluster_rotate_routes=how).output
    for step in ("open_routes: accept routes", "renew_routes: reconnect the routes"):
        assert (step in output) == (how == "open")
    assert "close_routes: require the new credentials" in output
    assert watch.refusals == []
    assert reports[0].longest_gap < 5
    for name in NAMES:
        assert word.encode() in site.file(name, "secrets.conf")
        new = (site.root / name / "run/nats-server.out").read_bytes()[logs[name] :]
        assert how == "at_once" or b"Router connection closed: Authentication" not in new
    assert site.pids() == pids
    assert changed(site.playbook(ROTATE).output) == 0


def test_users_whose_run_was_cut_short_are_finished_by_the_next(site: Site) -> None:
    """The runs are interrupted after files have been written but not loaded, and while the record lags behind the
    server."""
    pids = site.pids()
    [(old, word)] = current(site).items()
    new = {f"{old}-c": "app-cut"}
    site.users.append({"user": f"{old}-c", "password": "app-cut"})
    with Watch(site, {old: word}) as watch:
        site.cut_short(ROTATE, "Request a reload of the configuration")
        site.playbook(ROTATE)
        watch.logins.update(new)
    assert watch.refusals == []
    drop: dict[str, Any] = {"nats_cluster_rotate_phase": "remove", "nats_cluster_rotate_remove_users": [old]}
    with Watch(site, new) as watch:
        site.cut_short(ROTATE, "Record the loaded configuration", **drop)
        site.playbook(ROTATE, **drop)
        site.users.pop(0)
        assert refused(site, old, word)
        assert NOTHING in site.playbook(ROTATE).output
    assert watch.refusals == []
    assert site.pids() == pids


def test_routes_whose_run_was_cut_short_are_finished_by_the_next(site: Site) -> None:
    """Runs are interrupted before the last host of the step renew_routes, and before close_routes."""
    pids = site.pids()
    site.variables["nats_server_cluster_authorization"] = {"user": "route", "password": "route-cut"}
    with Watch(site, current(site)) as watch, load(site, *next(iter(current(site).items()))):
        # In the first run, open_routes precedes three batches of renew_routes; in the second, close_routes follows them.
        for _step in ("renew_routes", "close_routes"):
            site.cut_short(ROTATE, "Write the configuration", 4, nats_cluster_rotate_routes="open")
        output = site.playbook(ROTATE, nats_cluster_rotate_routes="open").output
    assert "close_routes: require the new credentials" in output and "open_routes: accept routes" not in output
    assert watch.refusals == []
    assert NOTHING in site.playbook(ROTATE).output
    assert site.pids() == pids


def test_invalid_new_system_password_keeps_the_old_user(site: Site) -> None:
    user, word = (str(site.variables[f"nats_server_system_{key}"]) for key in ("user", "password"))
    previous: dict[str, Any] = {"nats_server_system_previous_user": user, "nats_server_system_previous_password": word}
    hashed: dict[str, Any] = {
        "nats_server_system_user": f"{user}-h",
        "nats_server_system_password": "$2a$04$" + "N" * 53,
    }
    site.playbook(ROTATE, **previous, **hashed)
    output = site.playbook(ROTATE, fails=True, **hashed).output
    assert f"{user}-h" in output
    assert login(site.port("n1"), user, word) == "PONG"
    site.playbook(ROTATE, nats_cluster_rotate_disconnect_clients=True)


def test_a_host_that_is_dead_or_out_of_reach_stops_it_before_the_first_change(site: Site) -> None:
    site.users.append({"user": "app-dead", "password": "app-new"})
    before = site.contents()
    try:
        site.hosts["n3"].update(ansible_connection="ssh", ansible_port=1)
        assert "n3" in site.playbook(ROTATE, fails=True).output
        del site.hosts["n3"]["ansible_connection"]
        site.kill("n3")
        assert "nats-server is not running on n3" in site.playbook(ROTATE, fails=True).output
        assert site.contents() == before
    finally:
        site.hosts["n3"].pop("ansible_connection", None)
        site.users.pop()
        site.playbook("deploy")
