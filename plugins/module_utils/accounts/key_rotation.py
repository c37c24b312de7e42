# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotation of a role's signing key: a second key is added, users get new JWTs, the old key is dropped. Pure.

Servers accept the users of all signing keys. Dropping a key closes the connections of its users at once
(server/accounts.go updateAccountClaimsWithRefresh)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .claims import Claims
from .use import AccountUse

#: The name of a key that has yet to be created, which no public key equals.
NEW = "new"


class NoRotation(ValueError):
    """A rotation that is impossible; the message contains the reason."""


def role_keys(account: Claims, role: str) -> list[str]:
    """Return the public keys of a role. Raises NoRotation if the account does not have the role."""
    scopes = account.fields["signing_keys"]
    keys = sorted(key for key, scope in scopes.items() if scope["role"] and scope["role"] == role)
    if not keys:
        names = ", ".join(sorted({scope["role"] for scope in scopes.values() if scope["role"]})) or "none"
        raise NoRotation(f"account {account.name} does not have role {role} (it has: {names})")
    return keys


def with_second_key(account: Claims, role: str) -> Claims:
    """Return the account with a new key of the role, or unchanged if the role already has a second one."""
    keys = role_keys(account, role)
    if len(keys) > 1:
        return account
    scopes = account.fields["signing_keys"]
    return _with_keys(account, {**scopes, NEW: {**scopes[keys[0]], "key": ""}})


def without_key(account: Claims, role: str, dropped: str) -> Claims:
    """Return the account without a key of the role, or unchanged if it does not have the key."""
    keys = role_keys(account, role)
    scopes = account.fields["signing_keys"]
    if dropped not in scopes:
        return account
    if dropped not in keys:
        raise NoRotation(f"{dropped} is not a key of role {role}")
    if len(keys) == 1:
        raise NoRotation(f"{dropped} is the only key of role {role}; add a second one first")
    return _with_keys(account, {key: scope for key, scope in scopes.items() if key != dropped})


def _with_keys(account: Claims, scopes: object) -> Claims:
    return replace(account, fields={**account.fields, "signing_keys": scopes})


def key_users(keys: Sequence[str], account: Claims, live: AccountUse) -> dict[str, int]:
    """Return the number of connections of each key's users."""
    mine = [one for one in live.connections if one.account == account.subject]
    return {key: sum(one.issuer == key for one in mine) for key in keys}
