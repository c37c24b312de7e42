# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_document_credentials and nats_credential_files: all users of a document get credentials in one run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import Runner
from support.operator_site import Issuer, issuing

ROLE = {"app": {"allow": {"pub": ["orders.{{tag(team)}}"], "sub": ["_INBOX.>"]}}}


@pytest.fixture
def issuer(version: str, tmp_path: Path, run_module: Runner) -> Iterator[Issuer]:
    with issuing(version, tmp_path, run_module) as found:
        yield found


def document(*names: str, **user: Any) -> dict[str, Any]:
    users = {
        f"SHOP/{name}": {"key": "app", "tags": ["team:berlin"], "deliver": {"file": f"{name}.creds"}, **user}
        for name in names
    }
    return {"accounts": {"SHOP": {"signing_keys": ROLE}}, "users": users}


def issue(issuer: Issuer, given: dict[str, Any], **options: Any) -> dict[str, Any]:
    found = issuer.run_module("nats_document_credentials", document=given, **options)
    assert not found.get("failed"), found
    return found


def states(found: dict[str, Any]) -> dict[str, str]:
    return {row["user"]: row["state"] for row in found["users"]}


def test_due_credentials_of_all_users_are_issued_and_kept(issuer: Issuer, tmp_path: Path) -> None:
    given = document("till", "door")
    predicted = issue(issuer, given, check_mode=True)
    assert predicted["changed"] and predicted["credentials"] == {}
    made = issue(issuer, given)
    assert states(made) == states(predicted) == {"SHOP/till": "issue", "SHOP/door": "issue"}
    for user, content in made["credentials"].items():
        path = tmp_path / f"{user.replace('/', '-')}.creds"
        path.write_text(content)
        assert issuer.denied(str(path), "n2", "orders.berlin", "orders.paris") == ["orders.paris"]
    current = made["credentials"]
    again = issue(issuer, given, current=current)
    assert (again["changed"], again["credentials"], set(states(again).values())) == (False, {}, {"same"})
    more = issue(issuer, document("till", "door", "van"), current=current)
    assert list(more["credentials"]) == ["SHOP/van"]
    longer = issue(issuer, document("till", expires="60d", renew_before="45d"), current=current)
    assert states(longer) == {"SHOP/till": "renew"} and longer["users"][0]["public_key"] is not None


def test_revoked_and_impossible_users_do_not_stop_the_others(issuer: Issuer) -> None:
    current = issue(issuer, document("till"))["credentials"]
    key = issue(issuer, document("till"), current=current)["users"][0]["public_key"]
    issuer.change(revoke={key: "2020-01-01T00:00:00Z"})
    given = document("till", "door")
    given["users"]["SHOP/none"] = {"key": "app", "tags": ["team:paris"]}
    found = issue(issuer, given, current={**current, "SHOP/door": "root:x:0:0"})
    assert states(found) == {"SHOP/till": "revoked", "SHOP/door": "cannot", "SHOP/none": "elsewhere"}
    assert found["credentials"] == {} and len(found["problems"]) == 1
    assert "door.creds exists and is not a .creds file" in found["problems"][0]


def files(run_module: Runner, path: Path, **options: Any) -> dict[str, Any]:
    given = {"files": [{"user": "A/b", "path": str(path), "mode": options.pop("mode", "0600")}], **options}
    return run_module("nats_credential_files", {}, **given)


def test_credential_files_are_read_and_replaced(run_module: Runner, tmp_path: Path) -> None:
    path = tmp_path / "b.creds"
    assert files(run_module, path, read_only=True)["current"] == {}
    assert not files(run_module, path)["changed"] and not path.exists()
    assert files(run_module, path, contents={"A/b": "one"}, check_mode=True)["changed"] and not path.exists()
    made = files(run_module, path, contents={"A/b": "secret-one"})
    assert made["changed"] and "secret-one" not in str(made)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("secret-one", 0o600)
    assert not files(run_module, path, contents={"A/b": "secret-one"})["changed"]
    os.chmod(path, 0o644)
    assert files(run_module, path)["changed"] and stat.S_IMODE(path.stat().st_mode) == 0o600
    read = files(run_module, path, read_only=True, mode="0400")
    assert (read["changed"], read["current"]) == (False, {"A/b": "secret-one"})


def test_credential_file_that_cannot_be_written_is_an_error(run_module: Runner, tmp_path: Path) -> None:
    missing = files(run_module, tmp_path / "none" / "b.creds", contents={"A/b": "x"})
    assert missing["failed"] and "nothing was changed" in missing["msg"]
    assert "exists and is not a file" in files(run_module, tmp_path, read_only=True)["msg"]
