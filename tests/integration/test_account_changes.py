# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_account_claims: accounts are created, changed, restored after a failure, and deleted; each guard fires."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts import run_claims as account_claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.run_copies import (
    CopiesReading,
    read_copies,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Server
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import Answer, SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.credentials import make_jwt, make_operator, new_key
from support.module_runs import Runner, form
from support.operator_site import NAMES, Site, Users

MODULE = "nats_account_claims"
#: The JetStream limits of the accounts of the site, which have no limit.
STORAGE = {"jetstream": {"disk": "unlimited", "memory": "unlimited"}}


class Changes:
    """A site, and runs of the module on it. `keys`: the directory for seeds."""

    def __init__(self, site: Site, run_module: Runner, keys: Path) -> None:
        self.site = site
        self.keys = keys
        self._run_module = run_module

    def run(self, account: str, declared: dict[str, Any] | None = None, /, **options: Any) -> dict[str, Any]:
        """Run the module for an account with these fields in the document; without fields, delete it."""
        if declared is None:
            content: dict[str, Any] = {"state": "absent"}
        else:
            content = {"document": {"accounts": {account: declared}}}
        given = {
            "account": account,
            "signing_seed": self.site.operator.signing_key.seed,
            "key_directory": str(self.keys),
            "expected_servers": NAMES,
            "sync_interval": 1.2,
            **content,
            **options,
        }
        connection = {**self.site.servers.sys_connection(), "timeout": 2}
        found = self._run_module(MODULE, connection, **given)
        assert not re.search(r"eyJ|S[UAO][A-Z2-7]{56}", json.dumps(found)), found
        return found

    def ok(self, account: str, declared: dict[str, Any] | None = None, /, **options: Any) -> dict[str, Any]:
        found = self.run(account, declared, **options)
        assert not found.get("failed"), found
        return found

    def refused(self, code: str, account: str, declared: dict[str, Any] | None = None, /, **options: Any) -> str:
        """Return the message of a refused run, which must not have changed any copy."""
        before = self.copies()
        found = self.run(account, declared, **options)
        assert found.get("failed") and found["failure"]["code"] == code, found
        assert self.copies() == before
        return str(found["msg"])

    def copies(self) -> dict[str, Any]:
        """Return the digests of the stored copies of each account."""
        return {
            row["account"]: sorted((copy["digest"], copy["stored"]) for copy in row["copies"] if copy["stored"])
            for row in self.info()["accounts"]
        }

    def info(self) -> dict[str, Any]:
        return self.site.read(self._run_module)

    def row(self, account: str) -> dict[str, Any]:
        return self.site.row(self._run_module, account)


@pytest.fixture
def make_changes(version: str, tmp_path: Path, run_module: Runner) -> Iterator[Callable[..., Changes]]:
    made: list[Site] = []

    def make(resolver: str = "full", strict: bool = False, options: str = "") -> Changes:
        timing = 'interval: "1s"' if resolver == "full" else ""
        made.append(Site(version, tmp_path, resolver, ", ".join(filter(None, (timing, options))), strict))
        made[-1].form(run_module)
        return Changes(made[-1], run_module, tmp_path / "keys")

    yield make
    for site in made:
        site.servers.kill()


def test_account_is_created_changed_and_kept(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    declared: dict[str, Any] = {
        "limits": {"connections": 5, "jetstream": {"R1": {"disk": "1GiB"}, "R3": {"disk": "2GiB", "streams": 3}}},
        "signing_keys": {"app": {"allow": {"pub": ["a.{{name()}}", "_INBOX.>"]}}},
    }
    predicted = changes.ok("NEW", declared, check_mode=True)
    assert (predicted["changed"], predicted["account"], predicted["new_keys"]) == (True, None, [])
    assert not changes.keys.exists() and len(changes.copies()) == 3
    made = changes.ok("NEW", declared)
    assert made["diff"] == predicted["diff"] and made["servers"] == NAMES
    account, role = made["new_keys"]
    assert account == made["account"]
    for key in (account, role):
        assert (changes.keys / "keys" / "A" / key[1:3] / f"{key}.nk").stat().st_mode & 0o777 == 0o600
    row = changes.row("NEW")
    assert (row["agree"], row["trusted"], row["problems"]) == (True, True, [])
    assert row["copies"][0]["stored"] == 3
    assert row["claims"]["limits"]["jetstream"]["R3"]["streams"] == 3
    assert row["claims"]["signing_keys"][role]["allow"]["pub"] == ["_INBOX.>", "a.{{name()}}"]
    before = changes.copies()
    again = changes.ok("NEW", declared)
    assert (again["changed"], again["changes"], again["new_keys"]) == (False, [], [])
    assert again["diff"]["before"] == again["diff"]["after"] and changes.copies() == before
    wider = {**declared, "limits": {**declared["limits"], "connections": 50}}
    expected = changes.ok("NEW", wider, check_mode=True)
    assert changes.copies() == before
    changed = changes.ok("NEW", wider)
    assert changed["changes"] == expected["changes"] == [{"path": "limits.connections", "from": 5, "to": 50}]
    assert (changed["diff"], changed["new_keys"]) == (expected["diff"], [])
    assert changes.row("NEW")["claims"]["limits"]["connections"] == 50


def test_users_of_a_new_role_log_in_with_its_permissions(make_changes: Callable[..., Changes], tmp_path: Path) -> None:
    changes = make_changes()
    role = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    app = {"key": role.public, "allow": {"pub": ["a.>"]}}
    declared = {"id": changes.site.operator.keys["APP"], "limits": STORAGE, "signing_keys": {"app": app}}

    async def follow() -> None:
        users = Users(changes.site, tmp_path)
        await users.use(str(changes.site.operator.creds["APP"]))
        await asyncio.to_thread(changes.ok, "APP", declared)
        await users.log_in(role)
        assert await users.left() == 2
        wider = {**declared, "signing_keys": {"app": {**app, "allow": {"pub": ["a.>", "b"]}}}}
        message = await asyncio.to_thread(changes.refused, "dangerous", "APP", wider)
        assert "role app changes; its users reconnect: closes 1 connection (close_connections)" in message
        assert await users.left() == 2
        done = await asyncio.to_thread(changes.ok, "APP", wider, allow=["close_connections"])
        assert [one["count"] for one in done["closes"]] == [1]
        deadline = time.monotonic() + 10
        while await users.left() > 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await users.close()

    asyncio.run(follow())


def test_key_with_connected_users_is_not_dropped(make_changes: Callable[..., Changes], tmp_path: Path) -> None:
    changes = make_changes()
    role = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    plain = {"id": changes.site.operator.keys["APP"], "limits": STORAGE}
    changes.ok("APP", {**plain, "signing_keys": {"app": {"key": role.public, "allow": {"pub": ["a"]}}}})

    async def follow() -> None:
        users = Users(changes.site, tmp_path)
        await users.log_in(role)
        message = await asyncio.to_thread(changes.refused, "dangerous", "APP", plain)
        assert "signing key app is dropped: closes 1 connection (drop_key)" in message
        assert await users.left() == 1
        await users.close()

    asyncio.run(follow())
    assert changes.ok("APP", plain)["changed"]


def test_revoked_user_is_disconnected_without_permission(make_changes: Callable[..., Changes], tmp_path: Path) -> None:
    changes = make_changes()

    async def follow() -> None:
        users = Users(changes.site, tmp_path)
        signer = changes.site.operator.user_signers["APP"]
        user = await users.log_in(signer, subs=-1, data=-1, payload=-1)
        await users.use(str(changes.site.operator.creds["APP"]))
        declared = {
            "id": changes.site.operator.keys["APP"],
            "limits": STORAGE,
            "revoke": {user: "2100-01-01T00:00:00Z"},
        }
        done = await asyncio.to_thread(changes.ok, "APP", declared)
        assert [(one["reason"], one["count"]) for one in done["closes"]] == [("the user is revoked", 1)]
        assert await users.left() == 1
        await users.close()

    asyncio.run(follow())


# --- guards -----------------------------------------------------------------------------------------------------------


def test_foreign_operator_is_refused(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    stranger = new_key(nkeys.PREFIX_BYTE_OPERATOR)
    message = changes.refused("untrusted_signer", "APP", {"limits": STORAGE}, signing_seed=stranger.seed)
    assert f"signed by {stranger.public}, which is not a key of the servers' operator" in message
    account = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    wrong = changes.refused("invalid_option", "APP", {"limits": STORAGE}, signing_seed=account.seed)
    assert wrong == "signing_seed: it is the seed of an account, not of an operator"


def test_strict_operator_needs_its_signing_key(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes(strict=True)
    declared = {
        "limits": {**STORAGE, "connections": 7},
        "signing_keys": {"x": {"key": changes.site.operator.user_signers["APP"].public}},
    }
    message = changes.refused("untrusted_signer", "APP", declared, signing_seed=changes.site.operator.key.seed)
    assert "signed with the operator's identity key, which servers refuse under strict_signing_keys" in message
    assert changes.ok("APP", declared)["changed"]
    changes.site.use("APP")


@pytest.mark.parametrize("resolver", ["MEMORY", "cache"])
def test_resolver_that_cannot_store_or_return_claims_is_refused(
    make_changes: Callable[..., Changes], resolver: str
) -> None:
    changes = make_changes(resolver)
    changes.site.use("APP")
    reason = changes.refused("unsupported_resolver", "APP", {"limits": {**STORAGE, "connections": 7}})
    expected = {"MEMORY": "n1, n2, n3: the resolver is MEMORY or URL and stores no claims", "cache": "0 of 3 servers"}
    assert expected[resolver] in reason


def test_stopped_server_prevents_every_change(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    changes.site.servers.stop("n3")
    message = changes.refused("incomplete", "APP", {"limits": {**STORAGE, "connections": 7}})
    assert message.startswith("n3: no complete answer")


def test_system_account_is_protected(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes(options="allow_delete: true")
    assert "it is the system account" in changes.refused("obstacle", "SYS")
    assert "cannot have JetStream" in changes.refused("obstacle", "SYS", {"limits": STORAGE})
    message = changes.refused("dangerous", "SYS", {"limits": {"payload": "1MiB"}})
    assert message.endswith("To proceed anyway: allow: [system_account]")
    assert changes.ok("SYS", {"limits": {"payload": "1MiB"}}, allow=["system_account"])["changed"]


def test_limits_below_use_and_lost_streams_are_refused(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    form(changes.site.servers)
    for name in ("ONE", "TWO"):
        changes.site.servers.add_stream(name, 3)
    message = changes.refused("dangerous", "APP", {"limits": {"jetstream": {"R3": {"disk": "1GiB", "streams": 1}}}})
    assert "limits.jetstream.R3.streams: 1, less than the 2 that exist (limits_below_use)" in message
    assert "no tier R3" in changes.refused("dangerous", "APP", {"limits": {"jetstream": {"R1": {"disk": "1GiB"}}}})
    none = changes.refused("obstacle", "APP", {"limits": {"jetstream": "none"}}, allow=["limits_below_use"])
    assert "2 streams still have data (ONE, TWO); delete the streams first" in none


def test_tiers_with_flat_limits_and_missing_tags_are_refused(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    mixed = {"limits": {"jetstream": {"R1": {"disk": "1GiB"}, "disk": "1GiB"}}}
    assert "exclude each other" in changes.refused("invalid_option", "APP", mixed)
    role = {"signing_keys": {"app": {"allow": {"pub": ["a.{{account-tag(team)}}"]}}}}
    assert "needs a tag team:VALUE of the account" in changes.refused("invalid_option", "APP", role)
    role = {"signing_keys": {"app": {"allow": {"pub": ["a.{{tag(team)}}"]}}}}
    document = {"accounts": {"APP": role}, "users": {"APP/shop": {"key": "app"}}}
    untagged = changes.refused("invalid_option", "APP", role, document=document)
    assert "users.APP/shop.tags: role app needs a tag team:VALUE of the user" in untagged


def test_claims_are_issued_after_every_copy(make_changes: Callable[..., Changes]) -> None:
    """Neither two changes in one second nor a copy from a computer with a fast clock makes the servers keep an old
    copy."""
    changes = make_changes()
    operator = changes.site.operator
    content = {"type": "account", "limits": {"subs": -1, "conn": 3, "payload": -1, "disk_storage": -1}}
    ahead = int(time.time()) + 3600
    changes.site.push(make_jwt(operator.key, operator.keys["OTHER"], "OTHER", content, top={"iat": ahead}))
    for connections in (5, 6):
        changes.ok("OTHER", {"limits": {**STORAGE, "connections": connections}}, sync_interval=0)
    row = changes.row("OTHER")
    assert (row["agree"], row["claims"]["limits"]["connections"], row["copies"][0]["stored"]) == (True, 6, 3)
    issued = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ahead + later)) for later in (1, 2)]
    assert row["issued"] == issued[1]


def test_unknown_signer_is_replaced_by_the_operator(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    changes.site.push(changes.site.account("OTHER", new_key(nkeys.PREFIX_BYTE_OPERATOR)))
    assert not changes.row("OTHER")["trusted"]
    assert changes.ok("OTHER", {})["changed"]
    row = changes.row("OTHER")
    assert (row["trusted"], row["agree"], row["problems"]) == (True, True, [])


# --- failures ---------------------------------------------------------------------------------------------------------


def test_failed_push_restores_the_previous_claims(
    make_changes: Callable[..., Changes], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = make_changes()
    changes.site.use("APP")
    changes.ok("APP", {"limits": {**STORAGE, "connections": 70}})
    push = SystemApi.push_claims

    def stop_first(api: SystemApi, servers: Sequence[Server], token: str) -> dict[str, Answer]:
        if "n3" in changes.site.servers.processes:
            changes.site.servers.kill("n3")
        return push(api, servers, token)

    with monkeypatch.context() as patch:
        patch.setattr(SystemApi, "push_claims", stop_first)
        failed = changes.run("APP", {"limits": {**STORAGE, "connections": 80}})
    assert failed["failed"] and failed["failure"]["code"] == "not_applied", failed
    assert "1 of 3 servers refused: n3: no reply" in failed["msg"]
    assert (
        "The previous claims were signed again and restored on n1, n2; n3 will copy them when it is back"
        in failed["msg"]
    )
    changes.site.servers.start("n3")
    changes.site.use("APP")

    def restored() -> dict[str, Any]:
        return changes.row("APP")

    row = wait_until(restored, lambda row: bool(row["agree"]) and row["copies"][0]["stored"] == 3, 30).value
    assert row["claims"]["limits"]["connections"] == 70
    again = changes.ok("APP", {"limits": {**STORAGE, "connections": 80}})
    assert again["changed"] and changes.row("APP")["claims"]["limits"]["connections"] == 80


def test_claims_that_are_replaced_before_the_next_synchronization_are_restored(
    make_changes: Callable[..., Changes], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = make_changes()
    changes.ok("OTHER", {"limits": {**STORAGE, "connections": 70}})

    def push_different_claims(_seconds: float) -> None:
        changes.site.push(changes.site.account("OTHER", description="from a different tool"))

    clock = SimpleNamespace(sleep=push_different_claims, time=time.time)
    with monkeypatch.context() as patch:
        patch.setattr(account_claims, "time", clock)
        failed = changes.run("OTHER", {"limits": {**STORAGE, "connections": 80}}, wait_timeout=1)
    assert failed["failed"] and failed["failure"]["code"] == "not_applied", failed
    assert "not in force on all servers 1.2 s after the change: 0 of 3 servers store the new copy" in failed["msg"]
    assert "The previous claims were signed again and restored on n1, n2, n3" in failed["msg"]
    row = changes.row("OTHER")
    assert (row["agree"], row["claims"]["limits"]["connections"]) == (True, 70)


def test_operator_is_compared_again_after_the_push(
    make_changes: Callable[..., Changes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes = make_changes()
    (tmp_path / "stranger").mkdir()
    stranger = make_operator(tmp_path / "stranger")
    readings = iter(range(100))

    def with_a_different_operator(*arguments: Any) -> CopiesReading:
        """Return the reading, with a different operator in all but the first one."""
        reading = read_copies(*arguments)
        if next(readings) == 0:
            return reading
        return replace(reading, operators=dict.fromkeys(reading.operators, (stranger.jwt,)))

    with monkeypatch.context() as patch:
        patch.setattr(account_claims, "read_copies", with_a_different_operator)
        failed = changes.run("OTHER", {"limits": {**STORAGE, "connections": 80}}, wait_timeout=0.5)
    assert failed["failed"] and failed["failure"]["code"] == "not_applied", failed
    assert f"signed by {changes.site.operator.key.public}, which is not a key of the servers' operator" in failed["msg"]


# --- imports and deletion ---------------------------------------------------------------------------------------------


def test_private_import_gets_an_activation(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    accounts: dict[str, Any] = {
        "PAY": {"exports": [{"subject": "pay.>", "type": "stream", "to": ["SHOP"]}]},
        "SHOP": {"imports": [{"account": "PAY", "subject": "pay.>", "type": "stream"}]},
    }
    document = {"accounts": accounts}
    early = changes.refused("obstacle", "SHOP", {}, document=document)
    assert "accounts that do not exist yet: PAY; create them first" in early
    pay = changes.ok("PAY", {}, document=document)["account"]
    shop = changes.ok("SHOP", {}, document=document)["account"]
    row = changes.row("SHOP")
    assert row["problems"] == []
    assert [(one["account"], one["issuer"]) for one in row["activations"]] == [(pay, pay)]
    assert not changes.ok("SHOP", {}, document=document)["changed"]
    lost = changes.refused("dangerous", "PAY", {}, document={"accounts": {"PAY": {}}})
    assert "account SHOP imports stream pay.>, which PAY no longer exports (lost_imports)" in lost
    other = changes.keys.parent / "empty"
    document["accounts"]["LATE"] = accounts["SHOP"]
    accounts["PAY"]["exports"][0]["to"].append("LATE")
    unsigned = changes.refused("invalid_option", "LATE", {}, document=document, key_directory=str(other))
    assert "needs an activation, and key_directory has neither the seed of that account" in unsigned
    assert shop in changes.copies()


def test_account_is_deleted_by_name_after_its_streams(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes(options="allow_delete: true")
    form(changes.site.servers)
    changes.site.servers.add_stream("ORDERS", 3)
    key = changes.site.operator.keys["APP"]
    assert "1 stream still has data (ORDERS); delete the streams first" in changes.refused("obstacle", "APP")
    changes.site.servers.app_request("$JS.API.STREAM.DELETE.ORDERS")
    before = changes.copies()
    predicted = wait_until(lambda: changes.run("APP", check_mode=True), lambda found: not found.get("failed"), 15).value
    assert predicted["changed"] and changes.copies() == before
    done = changes.ok("APP")
    assert (done["changed"], done["account"], done["diff"]) == (True, key, predicted["diff"])
    assert key not in changes.copies()
    again = changes.ok("APP")
    assert (again["changed"], again["account"]) == (False, None)


def test_deletion_that_servers_do_not_permit_fails(make_changes: Callable[..., Changes]) -> None:
    changes = make_changes()
    message = changes.refused("not_applied", "OTHER")
    assert "3 of 3 servers refused" in message and "delete must be enabled in server config" in message
