# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers in operator mode whose accounts SYS and APP have the role natsops; tests log in with minted users only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.key_directory import KeyDirectory
from support.credentials import Operator
from support.module_runs import Runner

UNLIMITED = {"disk": "unlimited", "memory": "unlimited"}
NATSOPS: dict[str, Any] = {"natsops": {"builtin": "natsops"}}


class Minted:
    """The role natsops on running servers. `keys`: the key directory; `seeds`: the file with the seed of the role's key,
    by account."""

    def __init__(self, operator: Operator, urls: list[str], keys: Path, run_module: Runner) -> None:
        self.operator = operator
        self.urls = urls
        self.keys = keys
        self.seeds: dict[str, Path] = {}
        self._run_module = run_module

    def declare(self, account: str, signing_keys: dict[str, Any], *allowed: str, **fields: Any) -> None:
        """Give an account these signing keys, next to the key that signs the users of the tests."""
        own = self.operator.user_signers[account].public
        plain = {} if own == self.operator.keys[account] else {"users": {"key": own}}
        limits = {} if account == "SYS" else {"limits": {"jetstream": UNLIMITED}}
        declared = {**limits, **fields, "id": self.operator.keys[account], "signing_keys": {**plain, **signing_keys}}
        found = self._run_module(
            "nats_account_claims",
            {"servers": self.urls, "credentials": str(self.operator.creds["SYS"])},
            account=account,
            document={"system_account": "SYS" if account == "SYS" else "", "accounts": {account: declared}},
            signing_seed=self.operator.signing_key.seed,
            key_directory=str(self.keys),
            sync_interval=0,
            allow=["system_account", *allowed],
        )
        assert not found.get("failed"), found
        for key in found["new_keys"]:
            self.seeds[account] = KeyDirectory(str(self.keys)).seed_path(key)

    def system(self) -> dict[str, Any]:
        """Return the connection options of a minted user of the system account."""
        return {
            "servers": self.urls,
            "account_seed": str(self.seeds["SYS"]),
            "account_key": self.operator.keys["SYS"],
            "timeout": 3,
        }

    def connection(self) -> dict[str, Any]:
        """Return the connection options of minted users of the system account and of all accounts."""
        return {**self.system(), "account_users": [{"account": "*", "key_directory": str(self.keys)}]}
