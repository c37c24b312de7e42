# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_accounts_apply: a plan is carried out step by step, roles are tested, and stale plans are refused."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats
import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts import apply as accounts_apply
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts import role_probe
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.credentials import new_key
from support.module_runs import Runner
from support.operator_site import NAMES, Site, Users

SHOP: dict[str, Any] = {
    "signing_keys": {"app": {"allow": {"pub": ["orders.{{tag(team)}}.>"], "sub": ["_INBOX.>"]}}},
    "imports": [{"account": "PAY", "subject": "pay.>", "type": "stream"}],
}
PAY: dict[str, Any] = {"exports": [{"subject": "pay.>", "type": "stream", "to": ["SHOP"]}]}


class Documents:
    """A site, and plans of documents that are applied to it. `keys`: the directory for seeds."""

    def __init__(self, site: Site, run_module: Runner, keys: Path) -> None:
        self.site = site
        self.keys = keys
        self._run_module = run_module

    def plan(self, accounts: dict[str, Any]) -> dict[str, Any]:
        found = self._run("nats_accounts_plan", document={"accounts": accounts})
        assert not found.get("failed"), found
        return dict(found["plan"])

    def apply(self, accounts: dict[str, Any], plan: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Apply a plan of these accounts, by default a new one."""
        given = {
            "document": {"accounts": accounts},
            "plan": self.plan(accounts) if plan is None else plan,
            "signing_seed": self.site.operator.signing_key.seed,
            "key_directory": str(self.keys),
            "sync_interval": 1.2,
            **options,
        }
        return self._run("nats_accounts_apply", **given)

    def ok(self, accounts: dict[str, Any], **options: Any) -> dict[str, Any]:
        found = self.apply(accounts, **options)
        assert not found.get("failed"), found
        return found

    def refused(self, code: str, accounts: dict[str, Any], **options: Any) -> str:
        """Return the message of a run that must not have changed any copy."""
        before = self.copies()
        found = self.apply(accounts, **options)
        assert found.get("failed") and found["failure"]["code"] == code, found
        assert self.copies() == before
        return str(found["msg"])

    def copies(self) -> dict[str, Any]:
        return {row["account"]: row["copies"] for row in self.site.read(self._run_module)["accounts"]}

    def row(self, account: str) -> dict[str, Any]:
        return self.site.row(self._run_module, account)

    def _run(self, module: str, **options: Any) -> dict[str, Any]:
        connection = {**self.site.servers.sys_connection(), "timeout": 2}
        found = self._run_module(module, connection, expected_servers=NAMES, **options)
        assert not re.search(r"eyJ|S[UAO][A-Z2-7]{56}", json.dumps(found)), found
        return found


@pytest.fixture
def documents(version: str, tmp_path: Path, run_module: Runner) -> Iterator[Documents]:
    site = Site(version, tmp_path, "full", 'interval: "1s", allow_delete: true')
    try:
        site.form(run_module)
        yield Documents(site, run_module, tmp_path / "keys")
    finally:
        site.servers.kill()


def names(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["name"], row["step"]) for row in result["steps"]]


def test_plan_is_carried_out_in_order_and_each_role_is_tested(documents: Documents) -> None:
    accounts = {"SHOP": SHOP, "PAY": PAY}
    predicted = documents.ok(accounts, check_mode=True)
    assert not documents.keys.exists() and len(documents.copies()) == 3
    done = documents.ok(accounts)
    assert names(done) == names(predicted) == [("SHOP", "create"), ("PAY", "create"), ("SHOP", "imports")]
    assert done["roles"] == [
        {
            "account": "SHOP",
            "role": "app",
            "skipped": "",
            "allowed": "_INBOX.natsops-probe",
            "denied": "natsops-probe",
        }
    ]
    assert len(done["new_keys"]) == 3
    assert documents.row("SHOP")["problems"] == [] and len(documents.row("SHOP")["activations"]) == 1
    before = documents.copies()
    again = documents.ok(accounts)
    assert (again["changed"], again["steps"], documents.copies()) == (False, [], before)


def test_stale_plan_and_unconfirmed_deletion_are_refused(documents: Documents) -> None:
    accounts: dict[str, Any] = {"OTHER": {"limits": {"connections": 5}}}
    plan = documents.plan(accounts)
    wider = {"OTHER": {"limits": {"connections": 50}}}
    message = documents.refused("stale", wider, plan=plan)
    assert "the document, an account or the operator has changed since the plan was made" in message
    documents.site.push(documents.site.account("OTHER", description="changed"))
    assert "has changed since the plan was made" in documents.refused("stale", accounts, plan=plan)
    gone: dict[str, Any] = {"OTHER": {"state": "absent"}}
    unconfirmed = documents.refused("unconfirmed_deletion", gone)
    assert unconfirmed == "the plan deletes OTHER; confirm each account by its name in confirm_delete"
    assert names(documents.ok(gone, confirm_delete=["OTHER"])) == [("OTHER", "delete")]
    assert documents.site.operator.keys["OTHER"] not in documents.copies()
    assert not documents.ok(gone)["changed"]


def test_plan_without_the_closed_connections_is_stale(documents: Documents, tmp_path: Path) -> None:
    role = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    key = {"key": role.public, "role": "app", "allow": {"pub": ["a"]}}
    own = {"id": documents.site.operator.keys["APP"], "limits": {"jetstream": {"disk": "unlimited"}}}
    documents.ok({"APP": {**own, "signing_keys": {"app": key}}})
    wider = {"APP": {**own, "signing_keys": {"app": {**key, "allow": {"pub": ["a", "b"]}}}}}

    async def follow() -> None:
        plan = await asyncio.to_thread(documents.plan, wider)
        users = Users(documents.site, tmp_path)
        await users.log_in(role)
        message = await asyncio.to_thread(documents.refused, "stale", wider, plan=plan)
        assert "account APP: role app changes; its users reconnect: closes 1 connection" in message
        assert await users.left() == 1
        done = await asyncio.to_thread(documents.ok, wider)
        assert names(done) == [("APP", "roles")]
        assert done["roles"][0]["skipped"] == "key_directory does not have the seed of its key"
        assert await users.left() == 0
        await users.close()

    asyncio.run(follow())


def test_role_that_does_not_work_is_restored(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe expects the server to reject a subject that the role in fact allows."""
    accounts = {"PAY": PAY, "SHOP": SHOP}
    documents.ok(accounts)
    before = documents.row("SHOP")["claims"]
    key = {"app": {"allow": {"pub": ["orders.{{tag(team)}}.new"], "sub": ["_INBOX.>"]}}}
    changed = {"PAY": PAY, "SHOP": {**SHOP, "signing_keys": key}}
    with monkeypatch.context() as patch:
        patch.setattr(role_probe, "denied_publication", lambda _scope, _values: "orders.natsops-probe.new")
        failed = documents.apply(changed)
    assert failed["failed"] and failed["failure"]["code"] == "not_applied", failed
    assert "the server accepted a message to orders.natsops-probe.new, which the role denies" in failed["msg"]
    assert "The previous claims were signed again and restored on n1, n2, n3" in failed["msg"]
    assert "Steps done before: none. Plan again to continue" in failed["msg"]
    row = wait_until(lambda: documents.row("SHOP"), lambda row: bool(row["agree"]), 15).value
    assert row["claims"] == before
    assert names(documents.ok(changed)) == [("SHOP", "roles")]


def test_streams_prevent_a_plan_before_its_first_step(documents: Documents) -> None:
    async def add() -> None:
        connection = await nats.connect(
            documents.site.servers.urls, user_credentials=str(documents.site.operator.creds["APP"])
        )
        try:
            await connection.jetstream(timeout=10).add_stream(name="ONE", subjects=["one"])
        finally:
            await connection.close()

    def added() -> bool:
        try:
            asyncio.run(add())
        except nats.errors.Error:
            return False
        return True

    assert wait_until(added, bool, 60).done
    accounts: dict[str, Any] = {"NEW": {}, "APP": {"limits": {"jetstream": "none"}}}
    message = documents.refused("obstacle", accounts)
    assert "account APP: 1 stream still has data (ONE); delete the streams first" in message


def test_missing_seed_of_an_exporter_stops_the_run(documents: Documents) -> None:
    documents.ok({"PAY": PAY, "SHOP": {}})
    shutil.rmtree(documents.keys)
    failed = documents.apply({"PAY": PAY, "SHOP": {"imports": SHOP["imports"]}})
    assert failed["failed"] and "needs an activation" in failed["msg"], failed
    assert "Steps done before: none" in failed["msg"]


def test_change_that_is_reverted_after_the_last_step_fails_the_run(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    def push_different_claims(_seconds: float) -> None:
        documents.site.push(documents.site.account("OTHER", description="from a different tool"))

    clock = SimpleNamespace(sleep=push_different_claims, time=time.time)
    with monkeypatch.context() as patch:
        patch.setattr(accounts_apply, "time", clock)
        failed = documents.apply({"OTHER": {"limits": {"jetstream": {"disk": "unlimited"}, "connections": 5}}})
    assert failed["failed"] and failed["failure"]["code"] == "not_applied", failed
    assert "1.2 s after the last step, 2 changes reverted: OTHER" in failed["msg"]
    assert "Steps done before: OTHER: the remaining changes" in failed["msg"]
