# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_account_claims_info and nats_accounts_plan on servers with the resolvers full, cache and MEMORY."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import encode_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import desired_claims, read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.credentials import make_jwt, new_key
from support.module_runs import Runner
from support.nats_processes import NatsProcesses
from support.operator_site import NAMES, Site, Users


@pytest.fixture
def make_site(version: str, tmp_path: Path, run_module: Runner) -> Iterator[Callable[[str], Site]]:
    made: list[Site] = []

    def make(resolver: str) -> Site:
        made.append(Site(version, tmp_path, resolver))
        made[-1].form(run_module)
        return made[-1]

    yield make
    for site in made:
        site.servers.kill()


def test_full_resolvers_that_agree_have_no_problem(make_site: Callable[[str], Site], run_module: Runner) -> None:
    site = make_site("full")
    site.use("APP")
    found = site.read(run_module)
    assert (found["problems"], found["missing"], found["incomplete"], found["stores"]) == ([], [], [], NAMES)
    (operator,) = found["operators"]
    assert operator == {
        "name": "test",
        "id": site.operator.key.public,
        "system_account": site.operator.system_account,
        "servers": NAMES,
    }
    rows = {row["name"]: row for row in found["accounts"]}
    assert set(rows) == {"SYS", "APP", "OTHER"}
    for name, row in rows.items():
        assert (row["account"], row["agree"], row["trusted"]) == (site.operator.keys[name], True, True)
        (copy,) = row["copies"]
        assert (copy["stored"], copy["issuer"]) == (3, site.operator.key.public)
        assert copy["in_force"] == ([] if name == "OTHER" else NAMES)
    assert rows["SYS"]["claims"]["limits"]["jetstream"] == "none"
    assert rows["APP"]["claims"]["limits"]["jetstream"]["streams"] == "unlimited"
    assert site.read(run_module, account="APP")["accounts"] == [rows["APP"]]
    assert site.read(run_module, account=site.operator.keys["APP"], check_mode=True)["accounts"] == [rows["APP"]]
    assert site.read(run_module, account="NONE")["accounts"] == []


def test_returning_server_copies_the_newer_claims(make_site: Callable[[str], Site], run_module: Runner) -> None:
    site = make_site("full")
    site.use("APP")
    site.servers.stop("n3")
    site.push(site.account("APP", description="second", limits={"conn": 5, "subs": -1}))
    away = site.read(run_module, account="APP")
    assert away["missing"] == ["n3"]
    (row,) = away["accounts"]
    assert (row["agree"], row["claims"]["limits"]["connections"], row["claims"]["limits"]["leaf"]) == (True, 5, "none")
    site.servers.start("n3")
    site.use("APP")
    newer = wait_until(lambda: site.row(run_module, "APP"), lambda row: row["agree"], 30, 0.2).value
    assert newer["claims"]["description"] == "second"


def test_copies_of_the_same_second_disagree(make_site: Callable[[str], Site], run_module: Runner) -> None:
    """A server that was stopped keeps its copy if the other servers received a copy with the same jti (dirstore.go
    saveIfNewer)."""
    site = make_site("full")
    file = site.servers.directory / "n3-jwt" / f"{site.operator.keys['OTHER']}.jwt"
    site.servers.stop("n3")
    old = file.read_text()
    content = json.loads(base64.urlsafe_b64decode(old.split(".")[1] + "=="))
    claims = {**content["nats"], "description": "same second"}
    same = make_jwt(
        site.operator.key,
        content["sub"],
        content["name"],
        claims,
        top={"iat": content["iat"], "jti": content["jti"]},
    )
    site.push(same)
    site.servers.start("n3")
    row = wait_until(lambda: site.row(run_module, "OTHER"), lambda row: len(row["copies"]) == 2, 30, 0.2).value
    assert not row["agree"]
    assert sorted(copy["stored"] for copy in row["copies"]) == [1, 2]
    assert any("servers disagree: they store 2 different copies" in problem for problem in row["problems"])


def test_jwt_of_a_foreign_operator_is_stored_and_not_in_force(
    make_site: Callable[[str], Site], run_module: Runner
) -> None:
    site = make_site("full")
    site.use("APP")
    before = site.row(run_module, "APP")["copies"][0]["digest"]
    site.push(site.account("APP", new_key(nkeys.PREFIX_BYTE_OPERATOR)))
    row = site.row(run_module, "APP")
    assert (row["agree"], row["trusted"]) == (False, True)
    assert {copy["digest"]: (copy["stored"], copy["in_force"]) for copy in row["copies"]}[before] == (0, NAMES)
    text = " ".join(row["problems"])
    assert "a different one is stored for the next start" in text
    assert "which is not a key of the servers' operator" in text
    unused = site.account("OTHER", new_key(nkeys.PREFIX_BYTE_OPERATOR))
    site.push(unused)
    other = site.row(run_module, "OTHER")
    assert (other["agree"], other["trusted"]) == (True, False)
    site.push(site.account("OTHER"))
    assert site.row(run_module, "OTHER")["trusted"]


@pytest.mark.parametrize("resolver", ["MEMORY", "cache"])
def test_other_resolvers_return_the_copies_in_force(
    make_site: Callable[[str], Site], run_module: Runner, resolver: str
) -> None:
    site = make_site(resolver)
    site.use("APP")
    found = site.read(run_module)
    rows = {row["account"]: row for row in found["accounts"]}
    app = rows[site.operator.keys["APP"]]
    assert (app["name"], app["agree"], app["trusted"], app["problems"]) == ("APP", True, True, [])
    assert [(copy["stored"], copy["in_force"]) for copy in app["copies"]] == [(0, NAMES)]
    unused = rows.get(site.operator.keys["OTHER"])
    if resolver == "MEMORY":
        assert unused is None and found["stores"] == []
    else:
        assert unused is not None and unused["claims"] is None and found["stores"] == NAMES
        assert unused["problems"] == [
            "no server returned the claims: the account has not been used since the servers started"
        ]


def test_servers_without_an_operator_have_no_accounts(healthy: NatsProcesses, run_module: Runner) -> None:
    found = run_module("nats_account_claims_info", healthy.sys_connection())
    assert (found["operators"], found["accounts"], found["stores"]) == ([], [], [])
    assert found["problems"] == ["no server has an operator: accounts are in the servers' configuration"]


# --- nats_accounts_plan -----------------------------------------------------------------------------------------------


FREE = {"subs": -1, "data": -1, "payload": -1}


def test_plan_predicts_the_connections_that_each_change_closes(
    make_site: Callable[[str], Site], run_module: Runner, tmp_path: Path
) -> None:
    site = make_site("full")
    role, plain = (new_key(nkeys.PREFIX_BYTE_ACCOUNT) for _number in range(2))
    keys: dict[str, dict[str, Any]] = {
        "app": {"key": role.public, "allow": {"pub": ["a.>", "_INBOX.>"]}},
        "plain": {"key": plain.public},
    }
    own: dict[str, Any] = {
        "id": site.operator.keys["APP"],
        "limits": {"jetstream": {"disk": "unlimited", "memory": "unlimited"}},
    }
    second = iter(range(1, 100))

    def change(**declared: Any) -> tuple[int, dict[str, Any]]:
        """Plan these accounts, carry out the plan, and return the predicted number and the account from the plan."""
        given = {"accounts": {"APP": {**own, **declared}}}
        found = run_module("nats_accounts_plan", site.servers.sys_connection(), expected_servers=NAMES, document=given)
        assert not found.get("failed") and found["plan"]["problems"] == [], found
        assert not re.search(r"eyJ|S[UAO][A-Z2-7]{56}", json.dumps(found))
        account = next(one for one in found["plan"]["accounts"] if one["name"] == "APP")
        desired = read_document(given).accounts
        claims = desired_claims(desired["APP"], desired, {})
        by_key = {entry["key"]: entry for entry in claims.fields["signing_keys"].values()}
        claims.fields["signing_keys"] = by_key
        site.push(encode_claims(claims, site.operator.key, int(time.time()) + next(second)))
        return sum(one["count"] for one in account["closes"]), account

    async def follow() -> None:
        users = Users(site, tmp_path)
        await asyncio.to_thread(change, signing_keys=keys)
        await users.log_in(role)
        await users.log_in(role)
        await users.log_in(plain, **FREE)
        await users.use(str(site.operator.creds["APP"]))
        more = new_key(nkeys.PREFIX_BYTE_ACCOUNT).public
        added = {**keys, "more": {"key": more}}
        widened = {**added, "app": {**keys["app"], "allow": {"pub": ["a.>", "b", "_INBOX.>"]}}}
        dropped = {name: key for name, key in widened.items() if name != "plain"}
        revoke = {"*": "2100-01-01T00:00:00Z"}
        steps: list[tuple[dict[str, Any], int]] = [
            ({"signing_keys": keys}, 0),
            ({"signing_keys": added, "default_permissions": {"deny": {"pub": ["x"]}}}, 0),
            ({"signing_keys": widened}, 2),
            ({"signing_keys": dropped}, 1),
            ({"signing_keys": dropped, "revoke": revoke}, 1),
        ]
        expected = 4
        for declared, closed in steps:
            predicted, account = await asyncio.to_thread(change, **declared)
            assert predicted == closed, (declared, account)
            expected -= closed
            deadline = time.monotonic() + 10
            while await users.left() > expected:
                assert time.monotonic() < deadline, account
                await asyncio.sleep(0.05)
            assert await users.left() == expected, account
        await users.close()

    asyncio.run(follow())


def test_plan_counts_the_streams_of_a_deleted_account(make_site: Callable[[str], Site], run_module: Runner) -> None:
    site = make_site("full")
    site.servers.add_stream("ORDERS", 3)
    document = "accounts: {APP: {state: absent}, OTHER: {limits: {jetstream: {R1: {disk: 1GiB}}}}, NEW: {}}"
    arguments = {"expected_servers": NAMES, "document": document}
    found = run_module("nats_accounts_plan", site.servers.sys_connection(), **arguments)
    rows = {row["name"]: row for row in found["plan"]["accounts"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "APP": "delete",
        "OTHER": "change",
        "NEW": "create",
        "SYS": "not in document",
    }
    assert rows["APP"]["streams"]["names"] == ["ORDERS"]
    assert "  strands 1 stream with 0 B: ORDERS" in found["lines"] and found["screen"]
    again = run_module("nats_accounts_plan", site.servers.sys_connection(), True, **arguments)
    assert again["plan"] == found["plan"] and not again["changed"]


def test_plan_without_all_servers_has_a_problem(make_site: Callable[[str], Site], run_module: Runner) -> None:
    site = make_site("full")
    site.servers.stop("n3")
    connection = {**site.servers.sys_connection(), "timeout": 2}
    found = run_module("nats_accounts_plan", connection, expected_servers=NAMES, document={"accounts": {"APP": {}}})
    assert found["plan"]["problems"] == ["server n3 did not answer, so its copies are unknown"]
    assert found["screen"][0] == "The plan cannot be carried out:"


def test_errors_of_the_document_are_named(healthy: NatsProcesses, run_module: Runner) -> None:
    document = "accounts: {APP: {limits: {connection: 5, payload: -1}}}"
    refused = run_module("nats_accounts_plan", healthy.sys_connection(), document=document)
    assert refused["failed"] and refused["msg"].startswith("document: 2 errors\naccounts.APP.limits.")
