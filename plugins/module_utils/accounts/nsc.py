# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JWTs of an nsc store as a document of accounts. Pure.

Everything in the JWTs that the document cannot declare is returned as a note, so nothing is lost without a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..subjects import subject_matches
from ..units import exact_duration
from .checks import missing_tags, operator_problems, signer_problem, user_problems
from .claim_fields import from_claims
from .claims import Claims
from .credentials import NEVER
from .document import OPERATOR_DOCUMENT, read_document
from .fields import ACCOUNT_FIELDS, TEMPLATE, USER_FIELDS, Normal, moment_words, words
from .keys import USER, key_kind

#: Number of characters of a public key that identify it in the name of a signing key without a role.
_SHORT = 10
_NO_USER = from_claims(USER_FIELDS, {}, [])


@dataclass(frozen=True)
class NscStore:
    """The decoded JWTs of a store. `accounts`: each account with its users."""

    operator: Claims
    accounts: Sequence[tuple[Claims, Sequence[Claims]]]


@dataclass(frozen=True)
class Imported:
    """The document of a store. `notes`: the parts that the document does not declare. `users`: all users, including
    those that the document does not declare."""

    document: dict[str, Any]
    notes: list[str]
    users: list[dict[str, Any]]


def document_from_store(store: NscStore, now: float) -> Imported:
    """Return the document of a store. Raises ValueError if the accounts are not a valid document; the message has one
    line for each reason."""
    notes = [f"operator {store.operator.name}: {note}" for note in _operator_notes(store.operator, now)]
    names: dict[str, str] = {}
    for account, _users in store.accounts:
        _require_name(account, names)
        names[account.name] = account.subject
    owners = {account.subject: account for account, _users in store.accounts}
    importers = _importers(owners)
    document: dict[str, Any] = {"operator": _operator(store.operator), "accounts": {}}
    users: list[dict[str, Any]] = []
    declared: dict[str, dict[str, Any]] = {}
    for account, members in store.accounts:
        key_names = _key_names(account)
        document["accounts"][account.name] = _account(account, key_names, owners, importers)
        found = [*_account_notes(account, store.operator), *_import_notes(account, owners)]
        notes += [f"account {account.name}: {note}" for note in found]
        for user in members:
            label = f"{account.name}/{user.name}"
            problems = _obstacles(user, account, now)
            if "/" in account.name:
                problems.append("the name of its account contains a slash")
            if label in declared:
                problems.append("another user has the same name")
            notes += [f"user {label}: left out: {problem}" for problem in problems]
            if not problems:
                # Without `expires`, new credentials would get the document's default lifetime.
                expires = _lifetime(user)
                declared[label] = {"key": key_names[user.issuer], "tags": user.fields["tags"], "expires": expires}
                notes += [f"user {label}: {note}" for note in _user_notes(user, account)]
            users.append(_user_row(user, account, key_names))
    system = store.operator.fields["system_account"]
    if system:
        document["system_account"] = owners[system].name if system in owners else system
        if system not in owners:
            notes.append(f"operator {store.operator.name}: the store does not have the system account {system}")
    if declared:
        document["users"] = {label: {k: v for k, v in one.items() if v} for label, one in declared.items()}
    read_document(document)
    return Imported(document, notes, users)


def _operator(operator: Claims) -> dict[str, Any]:
    fields = {**operator.fields, "id": operator.subject, "name": operator.name, "system_account": ""}
    return words(OPERATOR_DOCUMENT, fields)


def _operator_notes(operator: Claims, now: float) -> list[str]:
    return [*operator_problems(operator, now), *_common_notes(operator)]


def _common_notes(claims: Claims) -> list[str]:
    """Return the claims of any kind that the document cannot declare."""
    found = [f"{path} is unknown to this collection" for path in claims.unknown]
    if claims.expires and (claims.kind != USER or not _lifetime(claims)):
        found.append(f"the document does not declare the expiry at {moment_words(claims.expires)}")
    if claims.not_before:
        found.append(f"the document does not declare the start of validity at {moment_words(claims.not_before)}")
    if claims.audience:
        found.append(f"the document does not declare the audience {claims.audience}")
    return found


def _require_name(account: Claims, names: Mapping[str, str]) -> None:
    if not account.name or key_kind(account.name):
        raise ValueError(f"account {account.subject}: its name {account.name!r} cannot be used in a document")
    if account.name in names:
        raise ValueError(f"accounts {names[account.name]} and {account.subject} have the same name {account.name}")


def _key_names(account: Claims) -> dict[str, str]:
    """Return the names of the signing keys in the document by public key: the role if it is unique, otherwise the
    beginning of the key."""
    scopes = account.fields["signing_keys"]
    roles = [scope["role"] for scope in scopes.values()]
    names = {
        key: scope["role"] if scope["role"] and roles.count(scope["role"]) == 1 else f"key-{key[:_SHORT]}"
        for key, scope in scopes.items()
    }
    if len(set(names.values())) < len(names):
        return {key: key for key in scopes}
    return names


def _account(
    account: Claims,
    key_names: Mapping[str, str],
    owners: Mapping[str, Claims],
    importers: Mapping[tuple[str, str, str], Sequence[str]],
) -> dict[str, Any]:
    found = {"id": account.subject, **words(ACCOUNT_FIELDS, account.fields)}
    if "signing_keys" in found:
        found["signing_keys"] = {key_names[key]: scope for key, scope in found["signing_keys"].items()}
    for export in found.get("exports", ()):
        allowed = importers.get((account.subject, export["type"], export["subject"]))
        if export.get("private") and allowed:
            export["to"] = sorted(allowed)
    for declared, item in zip(found.get("imports", ()), account.fields["imports"]):
        declared.pop("activation", None)
        if _is_declared(item, owners):
            declared["account"] = owners[item["account"]].name
    return found


def _export(item: Mapping[str, Any], owners: Mapping[str, Claims]) -> Normal | None:
    """Return the export of an account in the store that an import uses."""
    exporter = owners.get(item["account"])
    exports = exporter.fields["exports"] if exporter is not None else ()
    matches = (
        one for one in exports if one["type"] == item["type"] and subject_matches(one["subject"], item["subject"])
    )
    return next(matches, None)


def _is_declared(item: Mapping[str, Any], owners: Mapping[str, Claims]) -> bool:
    """Return whether the document can name the exporting account: it then gives the import an activation if, and only
    if, the export is private."""
    export = _export(item, owners)
    return export is not None and export["private"] == item["activation"]


def _importers(owners: Mapping[str, Claims]) -> dict[tuple[str, str, str], list[str]]:
    """Return the names of the accounts with an activation for each private export."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for account in owners.values():
        for item in account.fields["imports"]:
            export = _export(item, owners)
            if export is not None and export["private"] and item["activation"]:
                names = found.setdefault((item["account"], export["type"], export["subject"]), [])
                if account.name not in names:
                    names.append(account.name)
    return found


def _account_notes(account: Claims, operator: Claims) -> list[str]:
    found = _common_notes(account)
    problem = signer_problem(account, [operator])
    if problem:
        found.append(problem)
    if account.flat_ignored:
        found.append("the limits of all replicas are left out, because servers ignore them if there are tiers")
    return found


def _import_notes(account: Claims, owners: Mapping[str, Claims]) -> list[str]:
    found = []
    for item in account.fields["imports"]:
        if _is_declared(item, owners):
            continue
        where = f"import {item['subject']}"
        if item["account"] not in owners:
            reason = "the store does not have the exporting account" if item["activation"] else ""
        elif _export(item, owners) is None:
            reason = f"account {owners[item['account']].name} does not export it"
        elif not item["activation"]:
            reason = "it has no activation, although the export is private"
        else:
            reason = "it has an activation, although the export is not private"
        if reason:
            found.append(f"{where}: {reason}")
        if item["activation"]:
            found.append(f"{where}: its activation is left out")
    return found


def _obstacles(user: Claims, account: Claims, now: float) -> list[str]:
    """Return why the document cannot declare a user."""
    if not user.name:
        return [f"user {user.subject} has no name"]
    scope = account.fields["signing_keys"].get(user.issuer)
    if scope is None:
        own = user.issuer == account.subject
        return [f"signed with {'the identity key of the account' if own else user.issuer}, not with a signing key"]
    revoked = [one for one in user_problems(user, account, False, now) if one.startswith("revoked")]
    return revoked + (missing_tags(scope, user.fields["tags"], account.fields["tags"]) if scope["role"] else [])


def _lifetime(user: Claims) -> str:
    """Return the lifetime of a user's JWT as the document declares it, empty if its times contradict each other."""
    seconds = user.expires - user.issued_at
    if not user.expires:
        return NEVER
    return exact_duration(seconds * 10**9) if seconds > 0 else ""


def _user_notes(user: Claims, account: Claims) -> list[str]:
    scope = account.fields["signing_keys"][user.issuer]
    found = _common_notes(user)
    # Without a role, -1 is the same as no limit, and a document has no place for a user's own permissions.
    own = [
        one.name
        for one in TEMPLATE
        if user.fields[one.name] != _NO_USER[one.name] and (scope["role"] or user.fields[one.name] != -1)
    ]
    if own:
        found.append(f"the document does not declare the user's own {', '.join(own)}")
    return found


def _user_row(user: Claims, account: Claims, key_names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "account": account.name,
        "name": user.name,
        "public_key": user.subject,
        "key": key_names.get(user.issuer),
        "tags": user.fields["tags"],
        "issued": moment_words(user.issued_at),
        "expires": moment_words(user.expires) if user.expires else None,
    }
