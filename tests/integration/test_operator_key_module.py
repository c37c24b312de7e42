# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the first half of a replacement of the operator's signing key, before a restart, and its refusals."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import decode_claims
from support.credentials import new_key
from support.module_runs import Runner
from support.operator_site import NAMES, Site

pytestmark = pytest.mark.parametrize("strict", [False, True], indirect=True, ids=["plain", "strict"])


class Replacement:
    """Replaces the key that signs the site's accounts. `jwt`: the file with the operator JWT; `seed`: the file for the new
    seed."""

    def __init__(self, site: Site, directory: Path, run_module: Runner) -> None:
        self.site = site
        self.jwt = directory / "operator.jwt"
        self.jwt.write_text(site.operator.jwt)
        self.seed = directory / "new.nk"
        self._run_module = run_module

    def run(self, **options: Any) -> dict[str, Any]:
        given = {
            "jwt_file": str(self.jwt),
            "replaced_key": self.site.operator.signing_key.public,
            "new_seed_file": str(self.seed),
            "identity_seed": self.site.operator.key.seed,
            "expected_servers": NAMES,
            "sync_interval": 0,
            **options,
        }
        connection = {**self.site.servers.sys_connection(), "timeout": 2}
        return self._run_module("nats_operator_key", connection, **given)

    def restart(self) -> None:
        """Restart the servers, one after the other, with the operator JWT in the file."""
        servers = self.site.servers
        assert servers.operator is not None
        servers.operator = replace(servers.operator, jwt=self.jwt.read_text().strip(), accounts={})
        for name in NAMES:
            servers.stop(name)
            servers.write_config(name)
            servers.start(name)
        self.site.form(self._run_module)

    def issuers(self) -> set[str]:
        return {str(row["issuer"]) for row in self.site.read(self._run_module)["accounts"]}

    def refused(self, **options: Any) -> tuple[str, str]:
        """Return the code and the message of a refusal, which has changed nothing."""
        found = self.run(**options)
        assert found.get("failed"), found
        assert self.jwt.read_text() == self.site.operator.jwt and not self.seed.exists()
        return found["failure"]["code"], found["msg"]


@pytest.fixture
def strict(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def replacement(version: str, strict: bool, tmp_path: Path, run_module: Runner) -> Iterator[Replacement]:
    site = Site(version, tmp_path, "full", strict=strict)
    try:
        site.form(run_module)
        yield Replacement(site, tmp_path, run_module)
    finally:
        site.servers.kill()


def test_key_is_added_to_the_jwt_and_waits_for_a_restart(replacement: Replacement) -> None:
    before = replacement.jwt.read_text()
    predicted = replacement.run(check_mode=True)
    assert (predicted["changed"], predicted["step"], predicted["new_key"]) == (True, "add the key", None)
    assert replacement.jwt.read_text() == before and not replacement.seed.exists()
    added = replacement.run()
    assert (added["changed"], added["step"], added["done"]) == (True, "restart", ["add the key"]), added
    assert replacement.jwt.read_text() != before
    assert stat.S_IMODE(replacement.seed.stat().st_mode) == 0o600 and added["new_key"]
    # The servers still have the previous JWT, so neither accounts nor the JWT change until they restart.
    again = replacement.run()
    assert (again["changed"], again["step"], again["new_key"]) == (False, "restart", added["new_key"])


def test_accounts_are_signed_before_the_old_key_is_removed(replacement: Replacement, strict: bool) -> None:
    new = replacement.run()["new_key"]
    # A restart that was interrupted leaves a server stopped; the next run continues with the restart.
    replacement.site.servers.stop("n3")
    stopped = replacement.run()
    assert (stopped["changed"], stopped["step"]) == (False, "restart"), stopped
    replacement.site.servers.start("n3")
    replacement.restart()
    signed = replacement.run()
    # The operator JWT keeps the identity key, which is its subject.
    steps = ["sign the accounts", *(["drop the key"] if strict else [])]
    assert (signed["done"], signed["step"]) == (steps, "restart" if strict else "done"), signed
    assert replacement.issuers() == {new}
    assert decode_claims(replacement.jwt.read_text().strip()).fields["signing_keys"] == [new]
    if strict:
        replacement.restart()
        assert replacement.issuers() == {new}
    again = replacement.run()
    assert (again["changed"], again["step"], again["done"]) == (False, "done", [])


def test_refusals_change_nothing(replacement: Replacement, tmp_path: Path) -> None:
    stranger = new_key(nkeys.PREFIX_BYTE_OPERATOR)
    code, message = replacement.refused(identity_seed=stranger.seed)
    assert code == "invalid_option" and f"it is the seed of {stranger.public}, not of" in message
    assert stranger.seed not in message
    code, message = replacement.refused(jwt_file=str(tmp_path / "missing.jwt"))
    assert (code, "jwt_file" in message) == ("invalid_option", True)
    replacement.site.servers.stop("n3")
    code, message = replacement.refused()
    assert code == "incomplete" and "n3: no complete answer" in message
