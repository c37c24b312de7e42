# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_user_credentials: users log in with issued credentials, which are kept, renewed or refused."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from support.module_runs import Runner
from support.operator_site import NAMES, Issuer, issuing


@pytest.fixture
def issuer(version: str, tmp_path: Path, run_module: Runner) -> Iterator[Issuer]:
    with issuing(version, tmp_path, run_module) as found:
        yield found


def test_issued_credentials_have_the_role_and_are_kept(issuer: Issuer, tmp_path: Path) -> None:
    dest = tmp_path / "till.creds"
    predicted = issuer.ok(dest=str(dest), check_mode=True)
    assert predicted["changed"] and predicted["public_key"] is None and not dest.exists()
    made = issuer.ok(dest=str(dest))
    assert (made["changed"], made["diff"]) == (True, predicted["diff"])
    assert made["diff"]["after"] == {"name": "till", "role": "app", "tags": ["team:berlin"], "expires": True}
    assert stat.S_IMODE(dest.stat().st_mode) == 0o600 and "credentials" not in made
    for server in NAMES:
        assert issuer.denied(str(dest), server, "orders.berlin", "orders.paris") == ["orders.paris"]
    before = dest.read_bytes()
    again = issuer.ok(dest=str(dest))
    assert (again["changed"], again["reasons"], again["public_key"]) == (False, [], made["public_key"])
    assert dest.read_bytes() == before
    dest.chmod(0o644)
    assert issuer.ok(dest=str(dest))["changed"] and stat.S_IMODE(dest.stat().st_mode) == 0o600
    assert dest.read_bytes() == before


def test_credentials_are_renewed_for_the_same_key(issuer: Issuer, tmp_path: Path) -> None:
    dest = tmp_path / "till.creds"
    made = issuer.ok(dest=str(dest), expires="1m", renew_before="10s")
    renewed = issuer.ok(dest=str(dest), expires="2h", renew_before="1h")
    assert renewed["changed"] and renewed["reasons"] == [f"they expire at {made['expires']}"]
    assert renewed["public_key"] == made["public_key"] and renewed["expires"] > made["expires"]
    assert issuer.denied(str(dest), "n1", "orders.berlin") == []
    moved = issuer.ok(dest=str(dest), tags=["team:paris"], expires="never")
    assert moved["reasons"] == ["the tags differ", "they expire"] and moved["expires"] is None
    assert issuer.denied(str(dest), "n2", "orders.berlin", "orders.paris") == ["orders.berlin"]


def test_credentials_are_returned_for_a_different_host(issuer: Issuer, tmp_path: Path) -> None:
    made = issuer.ok()
    (tmp_path / "copied.creds").write_text(made["credentials"])
    assert issuer.denied(str(tmp_path / "copied.creds"), "n3", "orders.berlin") == []
    again = issuer.ok(current=made["credentials"])
    assert (again["changed"], again["credentials"]) == (False, None)
    assert issuer.ok(check_mode=True)["credentials"] is None


def test_user_that_servers_would_not_accept_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    dest = str(tmp_path / "till.creds")
    missing = issuer.refused("refused_claims", dest=dest, tags=[])
    assert "role app needs a tag team:VALUE of the user" in missing
    assert "does not have this role (it has: app)" in issuer.refused("invalid_option", dest=dest, role="none")
    assert "no server returned its claims" in issuer.refused("no_account", dest=dest, account="NONE")
    empty = issuer.refused("invalid_option", dest=dest, key_directory=str(tmp_path / "empty"))
    assert empty.startswith("key_directory: there is no seed of ")
    wrong = issuer.refused("invalid_option", dest=dest, renew_before="30d")
    assert wrong == "renew_before: must be shorter than expires"
    assert "expires: '5x' is not a duration" in issuer.refused("invalid_option", dest=dest, expires="5x")
    assert not Path(dest).exists()


def test_revoked_user_is_not_let_in_again(issuer: Issuer, tmp_path: Path) -> None:
    dest = tmp_path / "till.creds"
    made = issuer.ok(dest=str(dest))
    issuer.change(revoke={made["public_key"]: "2100-01-01T00:00:00Z"})
    with pytest.raises(nats.errors.Error):
        issuer.denied(str(dest), "n1", "orders.berlin")
    before = dest.read_bytes()
    message = issuer.refused("revoked", dest=str(dest))
    assert f"account SHOP has revoked the key {made['public_key']} of user till" in message
    assert dest.read_bytes() == before
    dest.unlink()
    assert issuer.ok(dest=str(dest))["public_key"] != made["public_key"]
    assert issuer.denied(str(dest), "n1", "orders.berlin") == []
