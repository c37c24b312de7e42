# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the JWTs that are in use in operator mode: those of operators, accounts, activations and connected users."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ..nats.account_names import is_account_key
from ..nats.client import NatsFailure
from ..nats.credentials_file import jwt_of_credentials
from ..nats.model import Server
from ..nats.system_api import SystemApi
from .expiry import Logins

#: Maximum number of connections to read, which limits the duration of a report.
MAX_CONNECTIONS = 50_000


def read_logins(api: SystemApi, servers: Sequence[Server], files: Collection[str] = ()) -> Logins | None:
    """Return the JWTs in use, None unless the servers are in operator mode. `files`: .creds files to read as well.

    In operator mode, the connections of all servers are read, and each account once. A missing reply is a line of
    `unknown`, so servers that did not reply are never taken for servers without JWTs.
    """
    found = Logins()
    if not _add_operators(found, api, servers) and not found.unknown and not is_account_key(api.own_account() or ""):
        return None
    # A server may load an account when its first user logs in, so the accounts of all connections are known afterwards.
    _add_connections(found, api, servers)
    _add_accounts(found, api, servers)
    _add_files(found, files)
    return found


def _add_operators(found: Logins, api: SystemApi, servers: Sequence[Server]) -> bool:
    """Add the operators of all servers; return whether there are any."""
    tokens: set[str] = set()
    answers = api.ask(servers, "VARZ")
    for server in servers:
        answer = answers[server.id]
        if isinstance(answer, NatsFailure):
            found.unknown.append(f"operator: {server.name} did not return VARZ: {answer.description}")
        else:
            tokens.update(map(str, answer.get("trusted_operators_jwt") or ()))
    for token in sorted(tokens):
        found.add_operator(token)
    return bool(tokens)


def _add_accounts(found: Logins, api: SystemApi, servers: Sequence[Server]) -> None:
    """Add each account as reported by one server that has loaded it."""
    holders: dict[str, list[str]] = {}
    names = {server.id: server.name for server in servers}
    placed: set[str] = set()
    for key, answer in api.ask(servers, "ACCOUNTZ").items():
        if isinstance(answer, NatsFailure):
            found.unknown.append(f"accounts: {names[key]} did not return ACCOUNTZ: {answer.description}")
            continue
        new = {one for one in map(str, answer.get("accounts") or ()) if is_account_key(one)} - placed
        placed |= new
        holders[key] = sorted(new)
    for server in servers:
        for account in holders.get(server.id, ()):
            claims = api.loaded_claims([server], account)[server.id]
            if isinstance(claims, str):
                # A static account may be named after a public key; it has no JWT.
                if claims:
                    found.add_account(account, claims)
            else:
                reason = claims.description if isinstance(claims, NatsFailure) else "invalid reply"
                found.unknown.append(f"account {account}: {server.name} did not return it: {reason}")


def _add_connections(found: Logins, api: SystemApi, servers: Sequence[Server]) -> None:
    count = 0
    for server, page in api.pages(servers, "CONNZ", {"auth": True}):
        if isinstance(page, NatsFailure):
            found.unknown.append(f"users: {server.name} did not return CONNZ: {page.description}")
            continue
        for item in page.get("connections") or ():
            found.add_connection(item)
            count += 1
        if count >= MAX_CONNECTIONS:
            found.unknown.append(f"users: only the first {count:,} connections were read")
            return


def _add_files(found: Logins, files: Iterable[str]) -> None:
    for file in dict.fromkeys(files):
        try:
            text = Path(os.path.expanduser(file)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            found.unknown.append(f"credentials: {file} cannot be read: {error}")
            continue
        token = jwt_of_credentials(text)
        if token:
            found.add_credentials(token)
        else:
            found.unknown.append(f"credentials: {file} contains no JWT of a user")
