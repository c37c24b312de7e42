# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the rotation of a role's signing key with connected users: add, issue new credentials, drop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import Runner
from support.operator_site import NAMES, Issuer, Users, issuing


@pytest.fixture
def issuer(version: str, tmp_path: Path, run_module: Runner) -> Iterator[Issuer]:
    with issuing(version, tmp_path, run_module) as found:
        yield found


def rotate(issuer: Issuer, phase: str, **options: Any) -> dict[str, Any]:
    return issuer.run_module(
        "nats_signing_key_rotation",
        account="SHOP",
        role="app",
        phase=phase,
        signing_seed=issuer.site.operator.signing_key.seed,
        sync_interval=1.2,
        **options,
    )


def test_key_is_rotated_without_disconnecting_users(issuer: Issuer, tmp_path: Path) -> None:
    dest = tmp_path / "till.creds"
    user = issuer.ok(dest=str(dest))["public_key"]

    async def follow() -> None:
        users = Users(issuer.site, tmp_path)
        await users.use(str(dest))
        predicted = await asyncio.to_thread(rotate, issuer, "add", check_mode=True)
        added = await asyncio.to_thread(rotate, issuer, "add")
        assert (predicted["changed"], predicted["new_key"], predicted["diff"]) == (True, None, added["diff"])
        ((old, connected),) = [(one["key"], one["connections"]) for one in added["keys"]]
        new = added["new_key"]
        assert connected == 1 and new not in (None, old)
        again = await asyncio.to_thread(rotate, issuer, "add")
        assert not again["changed"] and {one["key"] for one in again["keys"]} == {old, new}
        # The document of the account still has one entry for the role, which stands for both keys.
        assert not (await asyncio.to_thread(issuer.change))["changed"]
        early = await asyncio.to_thread(rotate, issuer, "drop", key=old)
        assert early["failed"] and early["failure"]["code"] == "users_connected", early
        assert "signing key app is dropped: closes 1 connection" in early["msg"]
        assert await users.left() == 1
        issued = await asyncio.to_thread(issuer.ok, dest=str(dest), role=new)
        assert issued["reasons"] == ["they were signed with a different key"] and issued["public_key"] == user
        await users.close()
        renewed = Users(issuer.site, tmp_path)
        for _server in NAMES:
            await renewed.use(str(dest))
        dropped = await asyncio.to_thread(rotate, issuer, "drop", key=old)
        assert dropped.get("changed"), dropped
        assert {one["key"]: one["connections"] for one in dropped["keys"]} == {old: 0, new: 3}
        assert await renewed.left() == 3
        assert not (await asyncio.to_thread(rotate, issuer, "drop", key=old))["changed"]
        # A rotation that is finished is not started again.
        assert not (await asyncio.to_thread(rotate, issuer, "add", key=old))["changed"]
        only = await asyncio.to_thread(rotate, issuer, "drop", key=new)
        assert "is the only key of role app; add a second one first" in only["msg"]
        assert await renewed.left() == 3
        await renewed.close()

    asyncio.run(follow())
    assert issuer.ok(dest=str(dest))["reasons"] == []


def test_users_of_a_dropped_key_are_disconnected_on_request(issuer: Issuer, tmp_path: Path) -> None:
    dest = tmp_path / "till.creds"
    issuer.ok(dest=str(dest))
    (old,) = [one["key"] for one in rotate(issuer, "add")["keys"]]

    async def follow() -> None:
        users = Users(issuer.site, tmp_path)
        await users.use(str(dest))
        dropped = await asyncio.to_thread(rotate, issuer, "drop", key=old, disconnect_users=True)
        assert dropped.get("changed"), dropped
        assert await users.left() == 0

    asyncio.run(follow())
