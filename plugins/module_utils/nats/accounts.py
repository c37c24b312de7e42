# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One connection for each account that an operation works on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .account_names import account_labels, is_account_key, one_account
from .client import Client, ConnectionOptions, NatsFailure
from .credentials_file import is_seed, read_user_claims
from .jetstream_api import JetStreamApi
from .system_api import SystemApi

#: The kinds of credentials, each with its options, in the order of preference within a source.
CREDENTIAL_KINDS = (("credentials",), ("nkey_seed",), ("user", "password"), ("token",))


#: The account of an entry of `account_users` that stands for all accounts with JetStream.
ALL_ACCOUNTS = "*"
#: The options of an entry of `account_users` with which users are minted.
MINTING_OPTIONS = ("account_seed", "key_directory")


@dataclass(frozen=True)
class AccountUser:
    """A user of an account: the account's name as specified, and the user's connection options."""

    account_name: str
    options: ConnectionOptions


@dataclass(frozen=True)
class UnusableAccount:
    """An account for which no user could be minted: the account's name, and the reason with its remedy."""

    account_name: str
    reason: str


class Connections:
    """The connections of one run: one for the task's own user, and one for a user of each account in `account_users`.
    Each connection is established on first use. `users`: by the account's identity. `unusable`: the accounts for which
    no user could be minted, by identity."""

    def __init__(
        self,
        options: ConnectionOptions,
        users: Mapping[str, AccountUser],
        unusable: Mapping[str, UnusableAccount] | None = None,
    ) -> None:
        self._options = options
        self._users = users
        self._unusable = unusable or {}
        self._clients: dict[str | None, Client] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for client in self._clients.values():
            client.close()

    def another(self) -> Connections:
        """Return new connections of the same users, for a different thread."""
        return Connections(self._options, self._users, self._unusable)

    @property
    def own(self) -> Client:
        """Return the connection of the task's own user."""
        return self._client(None, self._options)

    @property
    def accounts(self) -> tuple[str, ...]:
        """Return the identities of the accounts that have a user."""
        return tuple(self._users)

    @property
    def names(self) -> dict[str, str]:
        """Return the names of the accounts that have a user, as they were specified, by identity."""
        return {key: user.account_name for key, user in self._users.items()}

    @property
    def credential_files(self) -> list[str]:
        """Return the .creds files of the task's own user and of the users of accounts."""
        options = [self._options, *(user.options for user in self._users.values())]
        return [one.credentials for one in options if one.credentials]

    def identity(self, account: str) -> str:
        """Return the identity of an account that is specified by identity or name, or `account` itself if no account
        matches. In operator mode, the servers are queried if no entry of `account_users` has this name. Raises
        NatsFailure account_ambiguous.
        """
        names = {**{key: one.account_name for key, one in self._unusable.items()}, **self.names}
        known = account in (*names, *names.values())
        if known or is_account_key(account) or not any(map(is_account_key, names)):
            return one_account(names, account)
        system = SystemApi(self.own)
        try:
            return system.account_id(system.discover().servers, account)
        except NatsFailure as failure:
            if failure.code in ("wrong_account", "permission"):
                return account
            raise

    def label(self, account: str | None) -> str | None:
        """Return the display name of an account: the name in its entry of `account_users`, unless two entries have
        it."""
        return account_labels(self.names).get(account, account) if account else account

    def displayed(self, name: str) -> str:
        """Return the display name, such as APP/ORDERS, of a stream or consumer given with the identity of its
        account."""
        account, slash, rest = name.partition("/")
        return f"{self.label(account) or ''}{slash}{rest}"

    def account(self, account: str | None) -> JetStreamApi:
        """Return the JetStream API of an account, over the connection that `client` returns. Raises NatsFailure as
        `client` does."""
        identity = self.identity(account) if account else account
        return JetStreamApi(self.client(identity), identity, self.label(identity))

    def client(self, account: str | None) -> Client:
        """Return the connection of an account's user, or that of the task's own user if the account is None.

        Raises NatsFailure account_ambiguous, and invalid_option if `account_users` names no user for the account.
        """
        if account is None:
            return self.own
        identity = self.identity(account)
        if identity not in self._users:
            if identity in self._unusable:
                raise NatsFailure("invalid_option", self._unusable[identity].reason, account=account)
            there = ", ".join(user.account_name for user in self._users.values()) or "none"
            raise NatsFailure(
                "invalid_option",
                f"account_users: no user for account {account} (accounts with users: {there}), and only a user of the "
                "account can manage its streams and consumers; add one, in playbooks to nats_cluster_account_users",
                account=account,
            )
        return self._client(identity, self._users[identity].options)

    def _client(self, key: str | None, options: ConnectionOptions) -> Client:
        if key not in self._clients:
            self._clients[key] = Client(options)
        return self._clients[key]


def account_users(own: ConnectionOptions, entries: Sequence[Mapping[str, Any]]) -> dict[str, AccountUser]:
    """Return the connection options of each account's user, by the account's identity: the options of the task's own
    user, with different credentials.

    An entry may specify its account by name or public key; if it has a .creds file, the issuer of the file's JWT is the
    account. Raises NatsFailure invalid_option for a public key of a different account, and for two users of one
    account.
    """
    users: dict[str, AccountUser] = {}
    for entry in entries:
        account = entry["account"]
        issuer = _issuing_account(entry.get("credentials"))
        if issuer and is_account_key(account) and account != issuer:
            raise NatsFailure(
                "invalid_option",
                f"account_users: the user in {entry['credentials']} is in account {issuer}, not in {account}",
            )
        identity = issuer or account
        if identity in users:
            raise NatsFailure("invalid_option", f"account_users: two users for account {account}")
        users[identity] = AccountUser(account, as_user(own, entry))
    return users


def _issuing_account(creds: str | None) -> str | None:
    """Return the public key of the account that issued the JWT in a .creds file; the JWT may be signed by one of the
    account's signing keys (`issuer_account`)."""
    claims = read_user_claims(creds)
    nats = claims.get("nats")
    issuer = (nats.get("issuer_account") if isinstance(nats, Mapping) else None) or claims.get("iss")
    return issuer if isinstance(issuer, str) and is_account_key(issuer) else None


def as_user(own: ConnectionOptions, credentials: Mapping[str, Any]) -> ConnectionOptions:
    """Return the connection options with these credentials instead of the original ones, and with their `inbox_prefix`
    if it is set. Raises NatsFailure invalid_option for a signing key, which is not a login itself."""
    for option in MINTING_OPTIONS:
        if credentials.get(option):
            raise NatsFailure(
                "invalid_option",
                f"account_users: {option} mints users, which is only possible on the controller; use a .creds file "
                "(credentials) here",
            )
    given: dict[str, Any] = {option: credentials.get(option) for kind in CREDENTIAL_KINDS for option in kind}
    # The prefix of a minted user is its own.
    prefix = credentials.get("inbox_prefix") or (None if own.minted else own.inbox_prefix)
    return replace(own, minted=None, inbox_prefix=prefix, **{**given, "nkey_seed": read_nkey(given["nkey_seed"])})


def read_nkey(value: str | None) -> str | None:
    """Return the nkey seed itself; the nats CLI passes the path of a file that contains it."""
    if value is None or is_seed(value, "U"):
        return value
    path = Path(os.path.expanduser(value))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NatsFailure(
            "invalid_option", "nkey_seed: neither a user seed (SU...) nor the path of a readable file with a seed"
        ) from error
    seeds = [line.strip() for line in text.splitlines() if line.strip().startswith("SU")]
    if not seeds:
        raise NatsFailure("invalid_option", f"nkey_seed: {path} does not contain a user seed (SU...)")
    return seeds[0]
