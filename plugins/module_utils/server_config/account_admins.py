# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user in each JetStream account that manages the account's streams. Pure: no I/O.

A server accepts requests for an account's streams and consumers only from users of that account, not from those of the
system account.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import INBOX_PREFIX
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import is_hash

#: Permissions to manage, back up and restore streams and consumers, which include reading every stored message. The
#: user can neither publish to the account's own subjects nor read the replies that its other users receive.
PERMISSIONS = {"publish": {"allow": ["$JS.API.>", "$JS.SNAPSHOT.>"]}, "subscribe": {"allow": [f"{INBOX_PREFIX}.>"]}}

#: Default prefix of the user's name; the account's name follows.
PREFIX = "operator-"


def operator_name(account: str, prefix: str) -> str:
    """Return the name of the operator's user in an account; user names must be unique over all accounts of a server."""
    return f"{prefix}{account}"


def has_jetstream(account: Mapping[str, Any]) -> bool:
    """Return whether an account's configuration turns JetStream on (opts.go parseJetStreamForAccount)."""
    value = account.get("jetstream")
    if isinstance(value, str):
        return value.lower() in ("enable", "enabled")
    return value is True or isinstance(value, Mapping)


def with_operators(
    accounts: Mapping[str, Mapping[str, Any]], password: str | None, prefix: str = PREFIX, without: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the accounts with an operator user added to each that has JetStream, except to those in `without`. If
    there is no password, the accounts are returned unchanged."""
    result = {name: dict(account) for name, account in accounts.items()}
    for name in _operated(accounts, password, without):
        user = {"user": operator_name(name, prefix), "password": password, "permissions": PERMISSIONS}
        result[name]["users"] = [*(accounts[name].get("users") or ()), user]
    return result


def operators(
    accounts: Mapping[str, Mapping[str, Any]], password: str | None, prefix: str = PREFIX, without: Collection[str] = ()
) -> list[dict[str, str]]:
    """Return the operator users for the modules' option `account_users`: account, user, password."""
    return [
        {"account": name, "user": operator_name(name, prefix), "password": str(password)}
        for name in _operated(accounts, password, without)
    ]


def clients(accounts: Mapping[str, Mapping[str, Any]], without: Collection[str] = ()) -> list[dict[str, str]]:
    """Return the accounts' own users with a known plaintext password; those of accounts with JetStream first."""
    found = []
    for name, account in sorted(accounts.items(), key=lambda item: not has_jetstream(item[1])):
        for user in account.get("users") or () if name not in without else ():
            login = user.get("user") or user.get("username")
            password = user.get("password") or user.get("pass")
            if login and password and not is_hash(str(password)):
                found.append({"account": name, "user": str(login), "password": str(password)})
    return found


def _operated(accounts: Mapping[str, Mapping[str, Any]], password: str | None, without: Collection[str]) -> list[str]:
    if not password:
        return []
    return [name for name, account in accounts.items() if name not in without and has_jetstream(account)]
