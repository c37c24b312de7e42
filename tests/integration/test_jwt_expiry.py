# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers in operator mode with JWTs that expire: nats_check and the exporter report the expiry and its effect."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import nats
import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.diagnosis import diagnose
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.report import report_data
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.credentials import make_jwt, new_key, new_user, write_creds
from support.exporters import Exporter
from support.module_runs import Runner
from support.nats_processes import NatsProcesses
from support.operator_site import NAMES, Site
from support.snapshots import snapshot_lines

DAY = 86400


@pytest.fixture(params=["2.10.27", "2.15.1"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(request.param, tmp_path, "full")
    try:
        yield made
    finally:
        made.servers.kill()


def test_expiring_jwts_are_reported_before_they_expire(site: Site, run_module: Runner, tmp_path: Path) -> None:
    site.form(run_module)
    now, keys = int(time.time()), site.operator.keys
    role = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    scope = {
        "kind": "user_scope",
        "key": role.public,
        "role": "app",
        "template": {"subs": -1, "data": -1, "payload": -1},
    }
    activation = make_jwt(
        site.operator.user_signers["OTHER"],
        keys["APP"],
        "pay",
        {"type": "activation", "subject": "pay.api", "kind": "service"},
        top={"iat": now - 350 * DAY, "exp": now + 15 * DAY},
    )
    imports = [{"subject": "pay.api", "account": keys["OTHER"], "type": "service", "token": activation}]
    exports = [{"subject": "pay.api", "type": "service", "token_req": True}]
    site.push(site.account("OTHER", exports=exports))
    site.push(site.account("APP", signing_keys=[scope], imports=imports))
    connection = site.servers.sys_connection()

    def check() -> dict[str, Any]:
        found = run_module("nats_check", connection, checks=[{"expiry": {}}], fail_on="never")
        assert not found.get("failed"), found
        assert "eyJ" not in json.dumps(found)
        (result,) = found["results"]
        return dict(result)

    def snapshot() -> None:
        taken = run_module("nats_snapshot", connection, lake=str(tmp_path / "lake"), fleet="test")
        assert taken["complete"], taken
        rows = [{**row["data"], "account": row["account"]} for row in snapshot_lines(Path(taken["manifest"]))["jwts"]]
        user, imported = rows
        assert user["text"].startswith("account APP: 2 connections of role app will be closed")
        named = ("kind", "account", "account_name", "role", "connections", "urgency")
        assert [user[name] for name in named] == ["user", keys["APP"], "APP", "app", 2, "error"]
        assert user["expires"] == datetime.fromtimestamp(now + 600, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert [imported[name] for name in named] == ["activation", keys["APP"], "APP", "", 0, "warning"]
        # Neither JWTs nor seeds are in any file of the lake.
        for file in (tmp_path / "lake").rglob("*"):
            if file.is_file():
                text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
                assert not re.search(rb"eyJ|S[UAO][A-Z2-7]{56}", text), file

    async def work() -> None:
        clients: list[Any] = []
        # One user expires in minutes and another in days; the third is temporary.
        for name, issued, expires in (("shop1", -30 * DAY, 600), ("shop2", -28 * DAY, 2 * DAY), ("once", 0, 600)):
            user = new_user()
            claims = {"type": "user", "issuer_account": keys["APP"]}
            file = tmp_path / f"{name}.creds"
            token = make_jwt(role, user.public, name, claims, top={"iat": now + issued, "exp": now + expires})
            write_creds(file, token, user)
            clients.append(await nats.connect(site.servers.url(NAMES[len(clients)]), user_credentials=str(file)))
        try:
            await asyncio.to_thread(site.use, "OTHER")
            # A server reports a connection only some time after the login.
            due = "account APP: 2 connections of role app will be closed"
            seen = await asyncio.to_thread(wait_until, check, lambda one: due in json.dumps(one), 10)
            assert seen.done, seen.value
            reasons = seen.value["reasons"]
            assert seen.value["status"] == "CRITICAL"
            (critical,) = reasons["critical"]
            assert critical.startswith(due)
            (warning,) = reasons["warning"]
            assert warning.startswith("account APP: the import of pay.api may stop"), warning
            assert reasons["unknown"] == []
            info = await asyncio.to_thread(run_module, "nats_cluster_info", connection, jwts=True)
            assert "eyJ" not in json.dumps(info)
            (table,) = report_data(info, reports=["expiry"])["tables"]
            assert [(row["kind"], row["role"], row["connections"], row["severity"]) for row in table["rows"]] == [
                ("user", "app", 2, "error"),
                ("activation", "", 0, "warning"),
            ]
            (jwts,) = [one for one in diagnose(info, {"servers": []})["checks"] if one["check"] == "JWTs"]
            assert jwts["status"] == "found"
            await asyncio.to_thread(snapshot)
            exporter = Exporter(tmp_path / "exporter", connection, expected_servers=NAMES)
            try:
                key = ("natsops_jwt_expiring_connections", "APP", "user", "app", "error")
                found = await asyncio.to_thread(exporter.until, lambda found: key in found)
                assert found[key] == 2
                assert found["natsops_jwt_expiry_timestamp_seconds", "APP", "user", "app"] == now + 600
                assert found["natsops_jwt_expiring_connections", "APP", "activation", "", "warning"] == 0
                assert found["natsops_input_readable", "jwts"] == 1
            finally:
                exporter.stop()
        finally:
            for client in clients:
                await client.close()

    asyncio.run(work())


def test_an_account_that_expires_is_critical(site: Site, run_module: Runner) -> None:
    site.form(run_module)
    now = int(time.time())
    claims = {"type": "account", "limits": dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn"), -1)}
    times = {"iat": now - 100 * DAY, "exp": now + 2 * DAY}
    site.push(make_jwt(site.operator.key, site.operator.keys["APP"], "APP", claims, top=times))
    site.use("APP")
    found = run_module("nats_check", site.servers.sys_connection(), checks=[{"expiry": {}}], fail_on="never")
    (result,) = found["results"]
    (critical,) = result["reasons"]["critical"]
    assert critical.startswith("account APP: 0 open connections will be closed, all logins fail"), critical
    assert "eyJ" not in json.dumps(found)


def test_refused_replies_are_unknown_and_do_not_hide_the_cluster(
    site: Site, run_module: Runner, tmp_path: Path
) -> None:
    site.form(run_module)
    user, file = new_user(), tmp_path / "restricted.creds"
    denied = [f"$SYS.REQ.SERVER.*.{endpoint}" for endpoint in ("VARZ", "CONNZ")]
    claims = {"type": "user", "pub": {"deny": denied}, "subs": -1, "data": -1, "payload": -1}
    write_creds(file, make_jwt(site.operator.user_signers["SYS"], user.public, "restricted", claims), user)
    connection = {**site.servers.sys_connection(), "credentials": str(file), "timeout": 1}
    result = run_module("nats_check", connection, checks=[{"expiry": {}}], fail_on="never")["results"][0]
    assert result["status"] == "UNKNOWN", result
    unknown = result["reasons"]["unknown"]
    for name in NAMES:
        assert any(line.startswith(f"operator: {name} did not return VARZ: ") for line in unknown), unknown
        assert any(line.startswith(f"users: {name} did not return CONNZ: ") for line in unknown), unknown
    exporter = Exporter(tmp_path / "exporter", connection, expected_servers=NAMES)
    try:
        series = exporter.until(lambda found: ("natsops_input_readable", "jwts") in found)
        assert series["natsops_input_readable", "jwts"] == 0
        assert series["natsops_up",] == 1
        assert "did not return CONNZ" in exporter.log
    finally:
        exporter.stop()


@pytest.mark.parametrize("version", ["2.15.1"], indirect=True)
def test_static_accounts_have_no_jwts(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    connection = make_cluster(["n1"]).sys_connection()
    found = run_module("nats_check", connection, checks=[{"expiry": {}}])
    assert found["status"] == "OK", found
    assert found["results"][0]["reasons"]["ok"] == ["not in operator mode: there are no JWTs"]
