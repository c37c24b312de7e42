# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads every server's copy of the claims of accounts, and the connections and streams that changes would affect."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..nats.account_names import is_account_key
from ..nats.client import NatsFailure
from ..nats.model import Server
from ..nats.system_api import SystemApi
from .claims import decode_claims
from .copies import Copies, Evaluation, Trust, evaluate, read_trust
from .token import InvalidToken
from .use import AccountStream, AccountUse, LiveConnection

#: Part of the error of ACCOUNTZ for an account that the server has not loaded yet (monitor.go accountInfo).
_NOT_LOADED = "does not exist"


@dataclass(frozen=True)
class CopiesReading:
    """The copies of claims. `operators`: the JWTs of each server's operators, by the server's name. `stores`: the names
    of the servers that store claims in a directory. `incomplete`: the missing replies, in the form in which the modules
    return them.
    """

    servers: tuple[Server, ...]
    missing: tuple[str, ...]
    operators: Mapping[str, tuple[str, ...]]
    stores: tuple[str, ...]
    accounts: tuple[Copies, ...]
    incomplete: tuple[dict[str, Any], ...]

    def evaluated(self, now: float) -> tuple[Trust, tuple[Evaluation, ...]]:
        """Return the operators, and each account with its copies compared."""
        trust = read_trust(self.operators, now)
        return trust, tuple(evaluate(copies, trust, now) for copies in self.accounts)


def read_copies(api: SystemApi, expected: Collection[str] = (), account: str | None = None) -> CopiesReading:
    """Return the copies of all accounts, or only of the account with this public key. Raises NatsFailure.

    A server whose resolver is a directory lists the accounts that it stores. A server with the resolver MEMORY or URL
    reports only the accounts that it has loaded.
    """
    discovery = api.discover(expected)
    servers = discovery.servers
    names = {server.id: server.name for server in servers}
    incomplete: list[dict[str, Any]] = []

    def note(key: str, endpoint: str, failure: NatsFailure) -> None:
        incomplete.append({"server": names[key], "endpoint": endpoint, "failure": failure.as_dict()})

    operators: dict[str, tuple[str, ...]] = {}
    for key, answer in api.ask(servers, "VARZ").items():
        if isinstance(answer, NatsFailure):
            note(key, "varz", answer)
        else:
            operators[names[key]] = tuple(map(str, answer.get("trusted_operators_jwt") or ()))
    listed: dict[str, tuple[str, ...]] = {}
    for key, stored in api.stored_accounts(servers).items():
        if isinstance(stored, tuple):
            listed[key] = stored
        elif isinstance(stored, NatsFailure):
            note(key, "claims.list", stored)
    in_use: dict[str, set[str]] = {}
    for key, answer in api.ask(servers, "ACCOUNTZ").items():
        if isinstance(answer, NatsFailure):
            note(key, "accountz", answer)
        else:
            in_use[key] = {one for one in map(str, answer.get("accounts") or ()) if is_account_key(one)}
    accounts = []
    existing = set().union(*listed.values())
    if len(listed) < len(servers):
        # If every server stores accounts, an account that is only in memory has been deleted.
        existing |= set().union(*in_use.values())
    for one in sorted(existing & {account} if account else existing):
        loaded: dict[str, str] = {}
        users = [server for server in servers if one in in_use.get(server.id, ())]
        for key, token in api.loaded_claims(users, one).items():
            if isinstance(token, str):
                loaded[names[key]] = token
            elif isinstance(token, NatsFailure) and _NOT_LOADED not in token.description:
                note(key, f"accountz {one}", token)
        accounts.append(
            Copies(
                one,
                tuple(api.stored_claims(one, len(listed)) if listed else ()),
                {names[key]: one in keys for key, keys in listed.items()},
                {name: token for name, token in loaded.items() if token},
            )
        )
    return CopiesReading(
        servers,
        discovery.missing,
        operators,
        tuple(sorted(names[key] for key in listed)),
        tuple(accounts),
        tuple(incomplete),
    )


def read_live(api: SystemApi, servers: Sequence[Server]) -> AccountUse:
    """Return the connections and streams of all accounts. Raises NatsFailure."""
    connections = []
    unknown = []
    names = {server.id: server.name for server in servers}
    for key, answer in api.ask(servers, "CONNZ", {"auth": True}).items():
        if isinstance(answer, NatsFailure):
            unknown.append(names[key])
            continue
        connections += [
            _connection(item)
            for item in answer.get("connections") or ()
            if str(item.get("kind") or "Client") in ("Client", "Leafnode")
        ]
    streams = tuple(
        AccountStream(
            stream.account,
            stream.name,
            stream.group.size,
            stream.storage == "memory",
            stream.size,
            len(stream.consumers),
        )
        for stream in api.read_cluster(health=False).streams
    )
    return AccountUse(tuple(connections), streams, tuple(sorted(unknown)))


def _connection(item: Mapping[str, Any]) -> LiveConnection:
    """Return a connection from CONNZ. Since 2.14, servers replace the signature of a bearer JWT, so it cannot be
    decoded."""
    try:
        claims = decode_claims(str(item.get("jwt") or ""))
    except InvalidToken:
        claims = None
    return LiveConnection(
        str(item.get("account") or ""),
        item.get("kind") == "Leafnode",
        claims.subject if claims else str(item.get("authorized_user") or ""),
        claims.issuer if claims else str(item.get("issuer_key") or ""),
        claims.issued_at if claims else None,
        bool(claims.fields["bearer"]) if claims else None,
    )
