# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New users and route credentials on three servers with clients that log in all the time. The tests build on one another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from rotation_site import NAMES, Site, Watch, changed, load, login

ROTATE = "rotate_credentials"
SECRETS = ("sys-old", "sys-new", "app-old", "app-new", "app-third", "route-old", "route-new")

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    routes = {"user": "route", "password": "route-old"}
    found = Site(tmp_path_factory.mktemp("site"), "2.10.27", nats_server_cluster_authorization=routes)
    try:
        found.play("deploy")
        yield found
    finally:
        found.stop()


def users(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.variables["nats_server_accounts"]["APP"]["users"]
    return found


def test_old_and_new_users_are_let_in_until_the_old_ones_are_dropped(site: Site) -> None:
    pids = site.pids()
    users(site).append({"user": "app-2", "password": "app-new"})
    site.variables.update(
        nats_server_system_user="sys-2",
        nats_server_system_password="sys-new",
        nats_server_system_previous_user="sys",
        nats_server_system_previous_password="sys-old",
    )
    before = site.contents()
    outputs = [site.play(ROTATE, "--check")]
    assert "add: let sys-2, app-2 in on every server" in outputs[-1]
    assert site.contents() == before
    drop = ("-e", "nats_server_rotate_phase=drop", "-e", '{"nats_server_rotate_retire": ["app", "sys"]}')
    with Watch(site, {"app": "app-old", "sys": "sys-old"}) as watch:
        with load(site, "app", "app-old") as reports:
            outputs.append(site.play(ROTATE))
            watch.logins.update({"app-2": "app-new", "sys-2": "sys-new"})
            outputs.append(site.play(ROTATE, *drop, fails=True))
            assert "connected as a user that goes" in outputs[-1]
        outputs.append(site.play(ROTATE))
        assert "There is nothing to do" in outputs[-1] and changed(outputs[-1]) == 0
    assert watch.refusals == []
    assert all(watch.seen[name].tries > 10 for name in ("app", "app-2", "sys", "sys-2"))
    assert reports[0].acknowledged > 100

    with Watch(site, {"app-2": "app-new", "sys-2": "sys-new"}) as watch:
        outputs.append(site.play(ROTATE, *drop))
    assert watch.refusals == []
    for name in NAMES:
        for user, password in (("app", "app-old"), ("sys", "sys-old")):
            assert "Authorization Violation" in login(site.ports[name], user, password)
    users(site).pop(0)
    for key in ("user", "password"):
        del site.variables[f"nats_server_system_previous_{key}"]
    outputs.append(site.play(ROTATE))
    assert "There is nothing to do" in outputs[-1] and changed(outputs[-1]) == 0
    assert site.pids() == pids
    assert [secret for secret in SECRETS if secret in "".join(outputs)] == []


def test_one_run_waits_for_the_window(site: Site) -> None:
    users(site)[:] = [{"user": "app", "password": "app-third"}]
    refused = site.play(ROTATE, fails=True)
    assert "app would come and app-2 go in the same moment" in refused
    with Watch(site, {"app-2": "app-new"}) as watch:
        watch.logins["app"] = "app-third"
        site.play(ROTATE, "-e", "nats_server_rotate_window=5s", "-e", "nats_server_rotate_cut_off=true")
    assert watch.seen["app-2"].refusals, "the old user was never dropped"
    assert watch.seen["app-2"].refusals[0][0] - watch.seen["app"].refusals[-1][0] > 5


def test_harm_is_refused_with_all_its_reasons(site: Site) -> None:
    before = site.contents()
    changes = {
        "nats_server_debug": True,
        "nats_server_accounts": {"APP": {"jetstream": True, "users": [{"user": "app", "password": "app-old"}]}},
        "nats_server_cluster_authorization": {"user": "route", "password": "route-new"},
    }
    kept = dict(site.variables)
    site.variables.update(changes)
    refused = site.play(ROTATE, fails=True)
    site.variables.clear()
    site.variables.update(kept)
    for words in ("changes more than users", "For app the inventory has another password", "cluster.tls", "Rotate one of them"):
        assert words in refused
    assert site.contents() == before


def test_routes_are_never_refused(site: Site) -> None:
    pids = site.pids()
    site.variables["nats_server_cluster_authorization"] = {"user": "route", "password": "route-new"}
    with Watch(site, {"app": "app-third"}) as watch, load(site, "app", "app-third") as reports:
        output = site.play(ROTATE, "-e", "nats_server_rotate_routes=open")
    for step in ("open: let routes in", "urls: make the routes anew", "close: ask routes"):
        assert step in output
    assert watch.refusals == []
    assert reports[0].longest_gap < 3
    for name in NAMES:
        assert b"route-new" in (site.root / name / "etc/secrets.conf").read_bytes()
        log = (site.root / name / "run/nats-server.out").read_text()
        assert "Router connection closed: Authentication" not in log
    assert site.pids() == pids
    assert changed(site.play(ROTATE)) == 0

    os.kill(pids["n3"], signal.SIGKILL)
    users(site).append({"user": "app-2", "password": "app-new"})
    refused = site.play(ROTATE, fails=True)
    assert "nats-server does not run on n3" in refused
