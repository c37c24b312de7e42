# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts have an identity and a name, which differ if the accounts are JWTs of an operator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..screen import printable
from .failures import NatsFailure

#: The account of users that are listed outside accounts (server/const.go, DEFAULT_GLOBAL_ACCOUNT).
GLOBAL_ACCOUNT = "$G"
#: The system account if the configuration names none (server/const.go, DEFAULT_SYSTEM_ACCOUNT).
SYSTEM_ACCOUNT = "$SYS"

_ACCOUNT_KEY = re.compile(r"A[A-Z2-7]{55}")


def is_account_key(text: str) -> bool:
    """Return whether a text is the public key of an account, its identity in operator mode."""
    return _ACCOUNT_KEY.fullmatch(text) is not None


def account_id(detail: Mapping[str, Any]) -> str:
    """Return the identity of an account from its details in JSZ: in operator mode its public key, otherwise its name.

    In JSZ, `name` is the name in the account's JWT, which several accounts may share; all other endpoints report only
    the identity (HEALTHZ, ACCOUNTZ, ACCSTATZ and CONNZ of 2.9.10, 2.10.27 and 2.15.1).
    """
    return str(detail.get("id") or detail.get("name") or "")


def account_labels(names: Mapping[str, str]) -> dict[str, str]:
    """Return the display names of accounts by identity: the name, or the identity if another account has the same name.
    `names`: identity → name."""
    shown = {key: " ".join(printable(name).split()) for key, name in names.items()}
    count = Counter(shown.values())
    return {
        key: name if name and count[name] == 1 and (name == key or name not in names) else key
        for key, name in shown.items()
    }


class AmbiguousAccount(ValueError):
    """A name that several accounts share."""


def account_named(names: Mapping[str, str], selected: str) -> str:
    """Return the identity of the account that a user selects by identity or name, or `selected` itself if no account
    matches. `names`: identity → name. Raises AmbiguousAccount."""
    found = [selected] if selected in names else sorted(key for key, name in names.items() if name == selected)
    if len(found) > 1:
        raise AmbiguousAccount(
            f"{len(found)} accounts are named {selected}: {', '.join(found)}. Specify the account by its public key."
        )
    return found[0] if found else selected


def with_identity(pattern: str, names: Mapping[str, str]) -> str:
    """Return a pattern of ACCOUNT/STREAM with the identity of the account that it names; wildcards match identities.
    `names`: identity → name. Raises AmbiguousAccount."""
    account, slash, stream = pattern.partition("/")
    return f"{account_named(names, account)}{slash}{stream}"


def one_account(names: Mapping[str, str], wanted: str) -> str:
    """Return the identity of an account as `account_named` does. Raises NatsFailure account_ambiguous."""
    try:
        return account_named(names, wanted)
    except AmbiguousAccount as error:
        raise NatsFailure("account_ambiguous", str(error), account=wanted) from error


def with_identities(patterns: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return patterns of ACCOUNT/STREAM as `with_identity` does. Raises NatsFailure account_ambiguous."""
    try:
        return [with_identity(pattern, names) for pattern in patterns]
    except AmbiguousAccount as error:
        raise NatsFailure("account_ambiguous", str(error)) from error
