# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user in each JetStream account that manages the account's streams. Pure: no I/O.

A server accepts requests for an account's streams and consumers only from users of that account, not from those of the
system account.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from ..nats.inboxes import permitted_inboxes
from ..nats.model import INBOX_PREFIX
from .passwords import is_hash
from .syntax import examine

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
    """Return the accounts' own users with a known plaintext password, each with `inbox_prefix` if it may not use the
    modules' inboxes. Those of accounts with JetStream are first, and in an account those without permissions, who may
    do everything."""
    found = []
    normal = (examine({"accounts": accounts})[0].get("accounts") or {}).items()
    for name, account in sorted(normal, key=lambda item: not has_jetstream(item[1])):
        users = account.get("users") or () if name not in without else ()
        permissions = account.get("default_permissions") or {}
        for user in sorted(users, key=lambda one: bool(one.get("permissions") or permissions)):
            login, password = user.get("user"), user.get("password")
            if login and password and not is_hash(str(password)):
                prefix = permitted_inboxes(user.get("permissions") or permissions)
                own = {} if prefix == INBOX_PREFIX else {"inbox_prefix": prefix}
                found.append({"account": name, "user": str(login), "password": str(password), **own})
    return found


def _operated(accounts: Mapping[str, Mapping[str, Any]], password: str | None, without: Collection[str]) -> list[str]:
    if not password:
        return []
    return [name for name, account in accounts.items() if name not in without and has_jetstream(account)]


# --- The users of an operation ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OperatorLogins:
    """The options with which an operation logs in to the accounts."""

    #: The operator's own users, each with its `account` and credentials.
    users: Sequence[Mapping[str, Any]]
    #: The accounts by name.
    accounts: Mapping[str, Mapping[str, Any]]
    #: Password and prefix of the account operators; there are none without a password.
    password: str | None
    prefix: str
    system_account: str
    #: The directory with signing keys from which modules mint users; empty without one.
    key_directory: str
    #: The hosts on which modules run.
    runs_on: Sequence[str]


def operation_logins(given: OperatorLogins, purpose: str) -> list[dict[str, Any]]:
    """Return the users with which an operation logs in. `purpose`: `all`; `smoke_test`, which adds the applications'
    users with a known password; `each_account`, which adds one of them to each account that has no other user; or `host`,
    without users of signing keys, for programs that run without the controller.

    Raises ValueError for an unknown purpose, and if a signing key would leave the controller."""
    own_accounts = [given.system_account, *(user["account"] for user in given.users)]
    admins = operators(given.accounts, given.password, given.prefix, own_accounts)
    with_keys = [user for user in given.users if "key_directory" in user or "account_seed" in user]
    if purpose == "host":
        return [*(dict(user) for user in given.users if user not in with_keys), *admins]
    if purpose not in ("all", "smoke_test", "each_account"):
        raise ValueError(f"purpose: must be all, smoke_test, each_account or host, not {purpose!r}")
    away = dict.fromkeys(host for host in given.runs_on if host not in ("localhost", "127.0.0.1"))
    if away and (with_keys or given.key_directory):
        raise ValueError(
            f"nats_cluster_key_directory, or a key in nats_cluster_account_users: modules would run on {', '.join(away)},"
            " and no seed may leave the controller. Set nats_server_api_delegate_to and nats_cluster_backup_host to"
            " localhost, or use .creds files (nats_cluster_account_users)."
        )
    minted = [{"account": "*", "key_directory": given.key_directory}] if given.key_directory else []
    applications: list[dict[str, str]] = []
    if purpose == "smoke_test":
        applications = clients(given.accounts, [given.system_account])
    elif purpose == "each_account" and not minted:
        served = [*own_accounts, *(one["account"] for one in admins)]
        applications = [
            next(users) for _account, users in groupby(clients(given.accounts, served), itemgetter("account"))
        ]
    return [*map(dict, given.users), *minted, *applications, *admins]
