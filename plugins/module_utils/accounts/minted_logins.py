# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short-lived users of this collection in operator mode, minted with a signing key of their account.

A user's key and JWTs exist only in memory. Each login gets a new JWT, and the user receives replies only on its own
subjects. No server stores users, so nothing has to be removed afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..nats.account_names import account_labels, is_account_key, one_account
from ..nats.accounts import ALL_ACCOUNTS, MINTING_OPTIONS, AccountUser, UnusableAccount, account_users, as_user
from ..nats.client import Client, ConnectionOptions, MintedLogin, NatsFailure
from ..nats.credentials_file import is_seed
from ..nats.inboxes import private_inboxes
from ..nats.system_api import SystemApi
from ..screen import printable
from .builtin import NATSOPS, assumed_account, role_keys, short_lived_user
from .claims import Claims, encode_claims
from .key_directory import KeyDirectory, given_seed, seed_in_file
from .keys import ACCOUNT, USER
from .run_copies import read_copies
from .seeds import SeedKey, new_key
from .token import InvalidToken

_ROLE = f"signing_keys: {{{NATSOPS}: {{builtin: {NATSOPS}}}}}"


@dataclass(frozen=True)
class AccountLogins:
    """The users of accounts by the account's identity, and the accounts for which no user could be minted."""

    users: Mapping[str, AccountUser]
    unusable: Mapping[str, UnusableAccount]


def system_login(own: ConnectionOptions, seed: str, account: str | None) -> ConnectionOptions:
    """Return the connection options with the login of a new user of the system account. `seed`: of the account's key
    with the role natsops, or of the account itself; or the path of a file with the seed. `account`: the account's
    public key. Raises NatsFailure invalid_option, and MissingLibrary."""
    if not account or not is_account_key(account):
        raise NatsFailure(
            "invalid_option", "account_key: must be the public key (A...) of the system account if account_seed is set"
        )
    signer = _read_seed(seed)
    return _minted(own, assumed_account(account, signer.public, is_system=True), signer, True, False)


def account_logins(own: ConnectionOptions, entries: Sequence[Mapping[str, Any]]) -> AccountLogins:
    """Return the users of the entries of `account_users`. Users are minted for entries with a signing key or a directory
    of keys; the servers are then queried for the claims of accounts, as the task's own user.

    Raises NatsFailure: invalid_option, no_account, no_role, or those of a request to the servers."""
    minting = [entry for entry in entries if any(entry.get(option) for option in MINTING_OPTIONS)]
    users = account_users(own, [entry for entry in entries if entry not in minting])
    unusable: dict[str, UnusableAccount] = {}
    if not minting:
        return AccountLogins(users, unusable)
    found = _read_accounts(own)
    for entry in sorted(minting, key=lambda entry: bool(entry["account"] == ALL_ACCOUNTS)):
        is_all = entry["account"] == ALL_ACCOUNTS
        for account in found.operated() if is_all else [found.named(entry["account"])]:
            known = {account.subject, found.labels[account.subject]}
            if is_all and known & {*users, *(user.account_name for user in users.values())}:
                continue
            if account.subject in users:
                raise NatsFailure("invalid_option", f"account_users: two users for account {entry['account']}")
            name = found.labels[account.subject]
            try:
                options = _minted(
                    own, account, _signer(entry, account, name), account.subject in found.system, found.is_strict
                )
                users[account.subject] = AccountUser(name, options)
            except NatsFailure as failure:
                if not is_all:
                    raise
                unusable[account.subject] = UnusableAccount(name, failure.description)
    if not users and unusable:
        raise NatsFailure("no_role", "\n".join(one.reason for one in unusable.values()))
    return AccountLogins(users, unusable)


@dataclass(frozen=True)
class _Accounts:
    """The accounts in force. `labels`: their display names by public key. `system`: the public keys of system accounts."""

    claims: Mapping[str, Claims]
    labels: Mapping[str, str]
    system: frozenset[str]
    is_strict: bool

    def operated(self) -> Iterable[Claims]:
        """Return the accounts with JetStream."""
        return [one for key, one in self.claims.items() if one.fields["limits.jetstream"] and key not in self.system]

    def named(self, account: str) -> Claims:
        """Return the claims of an account, given by name or public key. Raises NatsFailure."""
        names = {key: printable(one.name) for key, one in self.claims.items()}
        found = self.claims.get(one_account(names, account))
        if found is None:
            raise NatsFailure(
                "no_account", f"account_users: no server returned the claims of account {account}", account=account
            )
        return found


def _read_accounts(own: ConnectionOptions) -> _Accounts:
    """Return the accounts of the servers that answer. If copies differ, the newest trusted one counts.
    Raises NatsFailure."""
    with Client(own) as client:
        reading = read_copies(SystemApi(client))
    trust, evaluations = reading.evaluated(time.time())
    claims = {
        one.copies.account: one.claims for one in evaluations if one.claims is not None and not one.signer_problem
    }
    return _Accounts(
        claims,
        account_labels({key: printable(one.name) for key, one in claims.items()}),
        trust.system_accounts,
        trust.is_strict,
    )


def _signer(entry: Mapping[str, Any], account: Claims, name: str) -> SeedKey:
    """Return the signing key of an entry. Raises NatsFailure invalid_option or no_role, which names the remedy."""
    if entry.get("account_seed"):
        return _read_seed(entry["account_seed"])
    keys = role_keys(account)
    directory = KeyDirectory(entry["key_directory"])
    found = next((key for key in map(directory.find, keys) if key is not None), None)
    if found is not None:
        return found
    if not keys:
        raise NatsFailure(
            "no_role",
            f"account {name} has no role {NATSOPS}, so no user can be minted. Add {_ROLE} to the account in the document "
            "of accounts, and apply the document; or set credentials",
            account=account.subject,
        )
    raise NatsFailure(
        "no_role",
        f"account {name}: {directory.path} does not have the seed of {', '.join(keys)}, the key of the role {NATSOPS}. "
        "Use the key_directory with which the role was applied, or set credentials",
        account=account.subject,
    )


def _minted(
    own: ConnectionOptions, account: Claims, signer: SeedKey, is_system: bool, is_strict: bool
) -> ConnectionOptions:
    key = new_key(USER)

    def token(seconds: float) -> str:
        now = int(time.time())
        user = short_lived_user(account, signer.public, key.public, is_system, is_strict, now, int(now + seconds))
        return encode_claims(user, signer, now)

    try:
        token(1)
    except InvalidToken as error:
        raise NatsFailure(
            "invalid_option",
            f"account {printable(account.name)}: servers would refuse a user of this key: {error}",
            account=account.subject,
        ) from error
    label = f"a short-lived user of account {printable(account.name)}, signed with {signer.public}"
    login = MintedLogin(label, token, key.sign)
    return replace(as_user(own, {}), minted=login, inbox_prefix=private_inboxes(key.public))


def _read_seed(given: str) -> SeedKey:
    """Return the key of a seed, or of the file with this path. Raises NatsFailure invalid_option."""
    if is_seed(given):
        return given_seed(given, None, [ACCOUNT], "account_seed")
    return seed_in_file(given, [ACCOUNT], "account_seed")
