# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The move of a server between static accounts and operator mode, or to a different resolver: the accounts that it would
lose, and the logins that end. Pure.

Accounts keep their streams in both modes if their names in the static configuration are their public keys: routes, the
meta group and the store identify an account only by this name. Neither move can be reloaded (server/reload.go)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..documents import InvalidDocument
from ..nats.account_names import SYSTEM_ACCOUNT
from ..problem import ConfigProblem
from ..screen import printable, some_names
from ..server_config.case import error, warning
from ..server_config.syntax import examine
from ..units import counted
from .claims import Claims, decode_claims
from .document import DesiredAccount, desired_claims, read_document
from .keys import ACCOUNT, key_kind
from .plan import differences
from .static import document_from_static
from .token import InvalidToken

#: Parts of an account that must be equal before and after, because clients and other accounts depend on them.
_SHARED = ("imports", "exports", "mappings", "default_permissions")
#: Parts of claims that a static configuration does not have.
_CLAIMS_ONLY = {"signing_keys": {}, "revoke": {}, "tags": [], "description": "", "info_url": ""}
#: The same of imports and exports, with their values if they are not set.
_LABELS: dict[str, Any] = {"name": "", "description": "", "info_url": "", "advertise": False, "revoked": {}}
_DIRECTORIES = ("full", "cache")


def migration_problems(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ConfigProblem]:
    """Return the problems of replacing the loaded configuration `before` by `after`: errors where accounts or parts of
    them would be lost, and a warning for each login that ends. Empty if `before` is unknown, or if neither the mode nor
    the resolver changes."""
    if not before:
        return []
    # Only configured keys are left, each with its main name.
    before, after = examine(before)[0], examine(after)[0]
    was_operator, is_operator = "operator" in before, "operator" in after
    if was_operator and is_operator:
        return list(_resolver_problems(before, after))
    if was_operator:
        return [*_account_problems(after, before, to_operator=False), *_ended_jwts(before)]
    if is_operator:
        return [*_account_problems(before, after, to_operator=True), *_ended_logins(before)]
    return []


def _account_problems(
    static: Mapping[str, Any], operator: Mapping[str, Any], *, to_operator: bool
) -> Iterator[ConfigProblem]:
    accounts: Mapping[str, Any] = static.get("accounts") or {}
    system = str(static.get("system_account") or SYSTEM_ACCOUNT)
    if system != operator.get("system_account"):
        yield error(
            "system_account",
            f"changes from {system if to_operator else operator.get('system_account')} to "
            f"{operator.get('system_account') if to_operator else system}: the meta group would start empty. Use the public "
            "key of the operator's system account as the name of the static system account",
        )
    tokens: Mapping[str, Any] = operator.get("resolver_preload") or {}
    for name in accounts:
        if key_kind(name) != ACCOUNT and name != SYSTEM_ACCOUNT:
            yield error(
                f"accounts.{name}",
                "is not a public key, and in operator mode an account is identified by its public key. Move its streams to "
                "an account with such a name first, by a backup and a restore",
            )
    desired, unreadable = _static_accounts(static) if accounts.keys() & tokens.keys() else ({}, [])
    yield from unreadable
    for name in sorted({*accounts, *tokens}):
        if key_kind(name) != ACCOUNT:
            continue
        if name not in tokens:
            yield error(
                f"resolver_preload.{name}", "is missing: servers in operator mode would not have this static account"
            )
        elif name not in accounts:
            if not to_operator:
                yield error(f"accounts.{name}", "is missing: servers with static accounts would not have this account")
        else:
            yield from _differences(name, desired, str(tokens[name]), to_operator=to_operator)


def _static_accounts(static: Mapping[str, Any]) -> tuple[Mapping[str, DesiredAccount], list[ConfigProblem]]:
    """Return the static accounts in the terms of the document; none, and the problem, if they cannot be expressed."""
    try:
        document, _notes = document_from_static(static["accounts"], str(static.get("system_account") or SYSTEM_ACCOUNT))
        return read_document(document).accounts, []
    except (InvalidDocument, ValueError) as refused:
        return {}, [error("accounts", f"cannot be compared with the accounts' claims: {refused}")]


def _differences(
    name: str, desired: Mapping[str, DesiredAccount], token: str, *, to_operator: bool
) -> Iterator[ConfigProblem]:
    """Return the differences between an account's static configuration and its claims; none if `desired` is empty."""
    try:
        claims = decode_claims(token)
    except InvalidToken as refused:
        yield error(f"resolver_preload.{name}", f"cannot be read: {refused}")
        return
    if not desired:
        return
    (own,) = (one for one in desired.values() if one.id == name)
    sides = [_comparable(desired_claims(own, desired, {}), claims.name), _comparable(claims, claims.name)]
    for change in differences(*(sides if to_operator else sides[::-1])):
        path = printable(str(change["path"]))
        lost = path.startswith(_SHARED) or (path == "limits.jetstream" and "none" in (change["from"], change["to"]))
        report = error if lost else warning
        yield report(
            f"accounts.{name}",
            f"{path} differs between the static configuration and the claims: {_shown(change['from'])} becomes "
            f"{_shown(change['to'])}",
        )


def _comparable(claims: Claims, name: str) -> Claims:
    """Return the claims without the parts that a static configuration does not have."""
    shared = {
        part: [{key: _LABELS.get(key, value) for key, value in item.items()} for item in claims.fields[part]]
        for part in ("imports", "exports")
    }
    return replace(claims, name=name, fields={**claims.fields, **_CLAIMS_ONLY, **shared})


def _shown(value: Any) -> str:
    return "nothing" if value is None else printable(str(value))[:120]


def _ended_logins(static: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Return the logins that servers accept only with static accounts."""
    for name, account in (static.get("accounts") or {}).items():
        users = [str(user.get("user") or user.get("nkey")) for user in (account or {}).get("users") or ()]
        if users:
            yield warning(
                f"accounts.{name}.users",
                f"{counted(len(users), 'user')} can no longer log in without a JWT: {some_names(users)}",
            )
    for key, text in (
        ("no_auth_user", "clients without credentials can no longer log in"),
        ("authorization", "its users and its token are no longer accepted"),
    ):
        if static.get(key):
            yield warning(key, f"ends with operator mode: {text}")
    for block in ("leafnodes", "websocket", "mqtt"):
        for key in ("authorization", "no_auth_user"):
            if isinstance(static.get(block), Mapping) and static[block].get(key):
                yield warning(f"{block}.{key}", f"ends with operator mode: {block} need credentials with a JWT")


def _ended_jwts(operator: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    names = sorted(operator.get("resolver_preload") or {})
    yield warning(
        "operator",
        f"is removed: no user with a JWT can log in any longer (accounts known to the configuration: {some_names(names)})",
    )


def _resolver_problems(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Return the problems of a different resolver, which starts with resolver_preload and the files in its directory."""
    old, new = _resolver(before), _resolver(after)
    if old == new:
        return
    kept = old[0] in _DIRECTORIES and new[0] in _DIRECTORIES and old[1] == new[1]
    preload = set(after.get("resolver_preload") or {})
    lost = sorted(set(before.get("resolver_preload") or {}) - preload)
    if lost and not kept and new[0] != "url":
        yield error(
            "resolver",
            f"changes from {old[0]} to {new[0]}, which would not have {some_names(lost)}: add the accounts to resolver_preload",
        )
    if not kept and new[0] != "url":
        yield warning(
            "resolver",
            f"changes from {old[0]} to {new[0]}: servers keep only accounts in resolver_preload; accounts that were pushed "
            "and are not listed there are lost",
        )
    elif new[0] == "cache":
        yield warning(
            "resolver", "changes to cache, which fetches accounts from servers with the resolver full: keep one of them"
        )


def _resolver(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the type of the resolver and its directory."""
    given = config.get("resolver") or ""
    if isinstance(given, Mapping):
        kind = str(given.get("type") or "").lower()
        return ("memory" if kind.startswith("mem") else kind, str(given.get("dir") or ""))
    text = str(given).strip().lower()
    return ("memory" if text.startswith("mem") else "url", "" if text.startswith("mem") else text)


# --- Proof during the move --------------------------------------------------------------------------------------------


def unequal_accounts(replies: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return the differences between the accounts in force on servers with static accounts and on servers in operator
    mode.

    `replies`: the `account_detail` of ACCOUNTZ by account and server. An account is compared with the first server of
    the other kind, in order of names, that has loaded it.
    """
    found = []
    for account, servers in sorted(replies.items()):
        first = first_of_each_kind(servers)
        if len(first) < 2:
            continue
        static, operator = (_in_force(servers[first[kind]]) for kind in (False, True))
        found += [
            f"account {account}: {part} differs between {first[False]}, which has static accounts, and {first[True]}, which "
            f"is in operator mode: {_only(static[part], operator[part])} and {_only(operator[part], static[part])}"
            for part in static
            if static[part] != operator[part]
        ]
    return found


def first_of_each_kind(servers: Mapping[str, Mapping[str, Any]]) -> dict[bool, str]:
    """Return the first server in operator mode (True) and the first one with static accounts (False), in order of names,
    of the servers that have loaded an account."""
    first: dict[bool, str] = {}
    for server, detail in sorted(servers.items()):
        first.setdefault("decoded_jwt" in detail, server)
    return first


def _in_force(detail: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the parts of an account that exist in both modes."""
    mappings = detail.get("mappings") or {}
    return {
        "JetStream": ["enabled" if detail.get("jetstream_enabled") else "disabled"],
        "exports": sorted(map(_export, detail.get("exports") or ())),
        "imports": sorted(map(_import, detail.get("imports") or ())),
        "mappings": sorted(f"{subject} to {_targets(found)}" for subject, found in mappings.items()),
    }


def _targets(found: Iterable[Mapping[str, Any]]) -> str:
    """Return a mapping's targets with their shares. ACCOUNTZ returns cumulative weights, and clusters in random order."""
    reached: dict[str, int] = {}
    targets = []
    for target in found:
        cluster, weight = str(target.get("cluster") or ""), int(target.get("weight") or 0)
        where = f" in {cluster}" if cluster else ""
        targets.append(f"{target.get('subject')} {weight - reached.get(cluster, 0)}%{where}")
        reached[cluster] = weight
    return " and ".join(sorted(targets)) or "nothing"


def _export(item: Mapping[str, Any]) -> str:
    is_private = item.get("token_req") or item.get("approved_accounts")
    return f"{item.get('type')} {item.get('subject')}{' (private)' if is_private else ''}"


def _import(item: Mapping[str, Any]) -> str:
    local = item.get("local_subject") or item.get("to") or item.get("subject")
    return f"{item.get('type')} {item.get('subject')} of {item.get('account')} as {local}"


def _only(items: list[str], others: list[str]) -> str:
    return some_names([printable(one) for one in items if one not in others]) or "none"
