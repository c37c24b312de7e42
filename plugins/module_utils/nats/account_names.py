# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts have an identity and a name, which differ if the accounts are JWTs of an operator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.failures import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    AmbiguousAccount,
    account_named,
    with_identity,
)

#: The account of users that are listed outside accounts (server/const.go, DEFAULT_GLOBAL_ACCOUNT).
GLOBAL_ACCOUNT = "$G"
#: The system account if the configuration names none (server/const.go, DEFAULT_SYSTEM_ACCOUNT).
SYSTEM_ACCOUNT = "$SYS"

_ACCOUNT_KEY = re.compile(r"A[A-Z2-7]{55}")


def is_account_key(text: str) -> bool:
    """Return whether a text is the public key of an account, its identity in operator mode."""
    return _ACCOUNT_KEY.fullmatch(text) is not None


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
