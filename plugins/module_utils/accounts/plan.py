# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The difference between a document of accounts and the servers' copies, with the cost of each change. Pure.

Which connections a server closes after a change is defined by updateAccountClaimsWithRefresh in server/accounts.go. A
change to a role closes the connections of all its users, who then reconnect; a new signing key or new default
permissions close no connection."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..screen import Page, fitting, listing, page, paragraphs, printable, some_names
from ..table import table_page
from ..units import counted, human_bytes
from .checks import trusted_keys
from .claims import Claims
from .copies import Evaluation, Trust
from .document import AccountsDocument, DesiredAccount, desired_claims
from .fields import (
    ACCOUNT_FIELDS,
    EVERYBODY,
    FLAT,
    JETSTREAM,
    OPERATOR_FIELDS,
    SIGNING_KEY,
    ClaimField,
    Normal,
    in_words,
)
from .keys import ACCOUNT
from .use import AccountStream, AccountUse, LiveConnection

#: The format version of the plan.
VERSION = 1

CREATE, CHANGE, SAME, DELETE, ABSENT, EXTRA, UNREADABLE = (
    "create",
    "change",
    "same",
    "delete",
    "absent",
    "not in document",
    "unreadable",
)
DISAGREE, UNKNOWN_SIGNER = "servers disagree", "unknown signer"
#: The order of accounts on the screen: accounts that need attention come first.
_ORDER = (UNKNOWN_SIGNER, DISAGREE, UNREADABLE, DELETE, CHANGE, CREATE, EXTRA, SAME, ABSENT)
_QUIET = (SAME, ABSENT)
#: The rules by which servers close connections: the users' signing key is dropped, their JWTs are revoked, and all
#: others.
DROPPED_KEY, REVOKED, CLOSED = "dropped key", "revoked", "closed"
_STORAGE = next(one for one in JETSTREAM if one.name == "disk")


# --- Differences ------------------------------------------------------------------------------------------------------


def match_signing_keys(desired: Mapping[str, Normal], actual: Mapping[str, Normal]) -> dict[str, Normal]:
    """Return the desired signing keys by public key, or by their name in the document if the key has not been created
    yet.

    An entry without a public key stands for all the servers' keys of the same role, or for all keys without a role. A
    role has several keys while they are rotated.
    """
    named = {entry["key"] for entry in desired.values() if entry["key"]}
    found: dict[str, Normal] = {}
    for name, entry in desired.items():
        same = [one for one, scope in actual.items() if scope["role"] == entry["role"] and one not in (*named, *found)]
        keys = [entry["key"]] if entry["key"] else same
        found.update({key: {**entry, "key": key} for key in keys} if keys else {name: dict(entry)})
    return found


def rotated_roles(account: Claims) -> list[str]:
    """Return a sentence for each role that has several signing keys."""
    roles = Counter(scope["role"] for scope in account.fields["signing_keys"].values() if scope["role"])
    return [
        f"role {role} has {count} signing keys; drop the old one when all its users have new credentials"
        for role, count in sorted(roles.items())
        if count > 1
    ]


def matched_claims(
    account: DesiredAccount, document: AccountsDocument, ids: Mapping[str, str], actual: Claims | None
) -> Claims:
    """Return the desired claims of an account, with the servers' signing keys for those without a public key.
    `actual`: None for an account that does not exist yet."""
    desired = desired_claims(account, document.accounts, ids)
    existing = {} if actual is None else actual.fields["signing_keys"]
    keys = match_signing_keys(desired.fields["signing_keys"], existing)
    return replace(desired, fields={**desired.fields, "signing_keys": keys})


def empty_account(name: str) -> Claims:
    """Return the claims of an account that the document declares without fields; a new account is compared with them."""
    return Claims(ACCOUNT, "", name, {one.name: one.empty for one in ACCOUNT_FIELDS})


def differences(actual: Claims, desired: Claims) -> list[dict[str, Any]]:
    """Return the changes from the actual claims to the desired ones in the document's words: path, from and to. `from`
    is None for an addition, `to` for a removal."""
    found = [] if actual.name == desired.name else [_change("name", actual.name, desired.name)]
    for one in ACCOUNT_FIELDS:
        old, new = actual.fields[one.name], desired.fields[one.name]
        if old == new:
            continue
        if one.kind in ("names", "tags", "keys", "objects"):
            found += [_change(one.name, item, None) for item in _describe_items(one, _without(old, new))]
            found += [_change(one.name, None, item) for item in _describe_items(one, _without(new, old))]
        elif one.kind in ("moments", "maps"):
            found += _mapping_changes(one, old, new)
        elif one.kind == "signing_keys":
            found += _key_changes(old, new)
        else:
            found.append(_change(one.name, in_words(one, old), in_words(one, new)))
    return found


def _change(path: str, old: Any, new: Any) -> dict[str, Any]:
    return {"path": path, "from": old, "to": new}


def _without(items: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    return [item for item in items if item not in others]


def _describe_items(one: ClaimField, items: list[Any]) -> list[Any]:
    return list(in_words(one, items))


def _mapping_changes(one: ClaimField, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    before, after = in_words(one, old), in_words(one, new)
    return [
        _change(f"{one.name}.{key}", before.get(key), after.get(key))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


#: The fields of a signing key except its name.
_ROLE_FIELDS = tuple(one for one in SIGNING_KEY if one.wire and one.name not in ("key", "role"))


def _key_changes(old: Mapping[str, Normal], new: Mapping[str, Normal]) -> list[dict[str, Any]]:
    """Return the changes of signing keys: a key added or dropped, and fields of its role; those of an added key have no
    previous value."""
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        where = f"signing_keys.{_key_label(key, before or after or {})}"
        if before is None or after is None:
            found.append(
                _change(where, *(None if one is None else one["role"] or "without a role" for one in (before, after)))
            )
        for one in _ROLE_FIELDS:
            if after is None:
                break
            earlier = one.empty if before is None else before[one.name]
            if after[one.name] != earlier:
                words = None if before is None else in_words(one, earlier)
                found.append(_change(f"{where}.{one.name}", words, in_words(one, after[one.name])))
    return found


def _key_label(key: str, scope: Mapping[str, Any]) -> str:
    return str(scope.get("role") or key)


# --- Costs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Closing:
    """Connections that servers close for one reason. `rule`: DROPPED_KEY, REVOKED or CLOSED."""

    rule: str
    reason: str
    count: int


def closed_connections(actual: Claims, desired: Claims | None, live: AccountUse) -> list[Closing]:
    """Return the connections that a change closes, grouped by reason; each connection is counted once. `desired`: None
    for a deletion."""
    left = [one for one in live.connections if one.account == actual.subject]
    if desired is None:
        return [Closing(CLOSED, "the account is deleted", len(left))] if left else []
    found: list[Closing] = []

    def close(rule: str, reason: str, closed: Iterable[LiveConnection]) -> None:
        gone = list(closed)
        if gone:
            found.append(Closing(rule, reason, len(gone)))
            for one in gone:
                left.remove(one)

    old_keys, new_keys = actual.fields["signing_keys"], desired.fields["signing_keys"]
    for key, scope in old_keys.items():
        label = _key_label(key, scope)
        if key not in new_keys:
            close(DROPPED_KEY, f"signing key {label} is dropped", [one for one in left if one.issuer == key])
        elif _template(scope) != _template(new_keys[key]):
            close(CLOSED, f"role {label} changes; its users reconnect", [one for one in left if one.issuer == key])
    revoked = desired.fields["revoke"]
    newly = {key: moment for key, moment in revoked.items() if actual.fields["revoke"].get(key, 0) < moment}
    close(REVOKED, "the user is revoked", [one for one in left if _is_revoked(one, newly)])
    if desired.fields["limits.disallow_bearer"] and not actual.fields["limits.disallow_bearer"]:
        close(CLOSED, "bearer JWTs are no longer allowed", [one for one in left if one.is_bearer is not False])
    for name, is_leaf, kind in (("limits.connections", False, "connections"), ("limits.leaf", True, "leaf nodes")):
        most, before = desired.fields[name], actual.fields[name]
        mine = [one for one in left if one.is_leaf == is_leaf]
        if most != -1 and (before == -1 or most < before) and len(mine) > most:
            close(CLOSED, f"more {kind} than the new limit of {most}", mine[most:])
    return found


def closing_rows(closings: Iterable[Closing]) -> list[dict[str, Any]]:
    """Return closed connections as the modules return them."""
    return [{"reason": one.reason, "count": one.count} for one in closings]


def _template(scope: Normal) -> Normal:
    """Return the part of a signing key that, if changed, closes the connections of its users."""
    return {name: value for name, value in scope.items() if name != "key"}


def _is_revoked(one: LiveConnection, revoked: Mapping[str, int]) -> bool:
    moment = max(revoked.get(one.user, 0), revoked.get(EVERYBODY, 0))
    return bool(moment) and (one.issued_at is None or one.issued_at <= moment)


def stranded_streams(actual: Claims, desired: Claims | None, live: AccountUse) -> list[AccountStream]:
    """Return the streams that become inaccessible if the account is deleted or loses JetStream."""
    if desired is not None and desired.fields["limits.jetstream"]:
        return []
    return [one for one in live.streams if one.account == actual.subject]


def exceeded_limits(actual: Claims, desired: Claims, live: AccountUse) -> list[str]:
    """Return the JetStream limits that are lower than the current use. Servers accept such limits, and then refuse to
    create assets and store messages."""
    streams = [one for one in live.streams if one.account == actual.subject]
    found = []
    tiers = desired.fields["limits.jetstream"]
    for tier, limits in tiers.items():
        mine = [one for one in streams if tier in (FLAT, f"R{one.replicas}")]
        label = f"limits.jetstream.{tier}".rstrip(".")
        for name, is_memory in (("disk", False), ("memory", True)):
            # A tier counts the bytes of a stream once; limits without a tier count those of every replica.
            used = sum(one.size * (one.replicas if tier == FLAT else 1) for one in mine if one.is_memory == is_memory)
            if limits[name] != -1 and used > limits[name]:
                allowed = in_words(_STORAGE, limits[name])
                found.append(f"{label}.{name}: {allowed}, less than the {human_bytes(used)} in use")
        if limits["streams"] not in (-1, 0) and len(mine) > limits["streams"]:
            found.append(f"{label}.streams: {limits['streams']}, less than the {len(mine)} that exist")
        most = max((one.consumers for one in mine), default=0)
        if limits["consumers"] not in (-1, 0) and most > limits["consumers"]:
            found.append(f"{label}.consumers: {limits['consumers']}, less than the {most} of one stream")
    lost = sorted({f"R{one.replicas}" for one in streams} - tiers.keys()) if tiers and FLAT not in tiers else []
    return found + [f"limits.jetstream: streams with {one} exist, and no tier {one}" for one in lost]


def lost_imports(name: str, actual: Claims, desired: Claims | None, others: Iterable[Evaluation]) -> list[str]:
    """Return the accounts whose imports use an export that the change removes."""
    kept = [] if desired is None else desired.fields["exports"]
    removed = [
        (one["type"], one["subject"])
        for one in actual.fields["exports"]
        if (one["type"], one["subject"]) not in [(other["type"], other["subject"]) for other in kept]
    ]
    return [
        f"account {other.label} imports {item['type']} {item['subject']}, which {name} no longer exports"
        for other in others
        if other.claims is not None
        for item in other.claims.fields["imports"]
        if item["account"] == actual.subject and (item["type"], item["subject"]) in removed
    ]


# --- The plan ---------------------------------------------------------------------------------------------------------


def make_plan(
    document: AccountsDocument,
    evaluations: Sequence[Evaluation],
    trust: Trust,
    live: AccountUse,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the plan: the problems that prevent its execution, the changes of the operator, and the accounts.

    `missing`: servers whose copies are unknown.
    """
    problems = [f"server {name} did not answer, so its copies are unknown" for name in missing]
    problems += trust.problems
    ids, ambiguous = matched_ids(document, evaluations)
    problems += ambiguous
    by_id = {one.copies.account: one for one in evaluations}
    rows = []
    for account in document.accounts.values():
        key = ids.get(account.name, "")
        rows.append(_account_plan(account, by_id.get(key), document, ids, live, evaluations))
    rows += [_extra(one, trust) for one in evaluations if one.copies.account not in ids.values()]
    rows.sort(key=lambda row: (_ORDER.index(row["state"]), row["name"]))
    operator = operator_changes(document, trust, ids)
    plan = {
        "version": VERSION,
        "operator": operator,
        "accounts": rows,
        "problems": [printable(one) for one in problems],
        "incomplete": [
            f"{name} did not report its connections and streams: the costs are lower bounds" for name in live.unknown
        ],
    }
    return {**plan, "fingerprint": fingerprint(document, evaluations, trust)}


def matched_ids(document: AccountsDocument, evaluations: Sequence[Evaluation]) -> tuple[dict[str, str], list[str]]:
    """Return the public key of each account of the document that exists on the servers, by name, and a problem for each
    name that several accounts on the servers share."""
    ids, problems = {}, []
    for account in document.accounts.values():
        if account.id:
            ids[account.name] = account.id
            continue
        found = [
            one.copies.account for one in evaluations if one.claims is not None and one.claims.name == account.name
        ]
        if len(found) == 1:
            ids[account.name] = found[0]
        elif found:
            problems.append(
                f"account {account.name}: {len(found)} accounts have this name; give its id: {', '.join(found)}"
            )
    return ids, problems


def _row(name: str, key: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "name": printable(name),
        "account": key or None,
        "state": state,
        "changes": [],
        "closes": [],
        "streams": {"count": 0, "bytes": 0, "names": []},
        "warnings": [],
        "problems": [],
        **more,
    }


def _account_plan(
    account: DesiredAccount,
    evaluation: Evaluation | None,
    document: AccountsDocument,
    ids: Mapping[str, str],
    live: AccountUse,
    evaluations: Sequence[Evaluation],
) -> dict[str, Any]:
    key = ids.get(account.name, "")
    if evaluation is None:
        return _new_account(account, key, document, ids) if account.is_present else _row(account.name, key, ABSENT)
    actual = evaluation.claims
    if actual is None:
        return _row(account.name, key, UNREADABLE, problems=list(evaluation.problems))
    desired = None
    if account.is_present:
        desired = matched_claims(account, document, ids, actual)
    changes = [] if desired is None else differences(actual, desired)
    state = _state(evaluation, DELETE if desired is None else CHANGE if changes else SAME)
    streams = stranded_streams(actual, desired, live)
    warnings = lost_imports(account.name, actual, desired, evaluations)
    if desired is not None:
        warnings = [*exceeded_limits(actual, desired, live), *warnings]
    warnings += rotated_roles(actual)
    if actual.unknown:
        warnings.append(f"claims unknown to this collection would be lost: {some_names(actual.unknown)}")
    return _row(
        account.name,
        key,
        state,
        changes=[{**one, "path": printable(one["path"])} for one in changes],
        closes=closing_rows(closed_connections(actual, desired, live)),
        streams=_stranded(streams),
        warnings=[printable(one) for one in warnings],
        problems=list(evaluation.problems),
    )


def _new_account(
    account: DesiredAccount, key: str, document: AccountsDocument, ids: Mapping[str, str]
) -> dict[str, Any]:
    # Imports name an account without a public key by its name.
    labels = {name: ids.get(name) or name for name in document.accounts}
    changes = differences(empty_account(account.name), matched_claims(account, document, labels, None))
    return _row(account.name, key, CREATE, changes=[{**one, "path": printable(one["path"])} for one in changes])


def _stranded(streams: Sequence[AccountStream]) -> dict[str, Any]:
    return {
        "count": len(streams),
        "bytes": sum(one.size * one.replicas for one in streams),
        "names": sorted(printable(one.name) for one in streams),
    }


def _state(evaluation: Evaluation, otherwise: str) -> str:
    """Return the state of an account whose copies need attention, or the given one."""
    if evaluation.claims is None:
        return UNREADABLE
    if evaluation.signer_problem:
        return UNKNOWN_SIGNER
    return DISAGREE if evaluation.disagreements else otherwise


def _extra(evaluation: Evaluation, trust: Trust) -> dict[str, Any]:
    """Return the row of an account that exists on the servers but not in the document. It stays unchanged."""
    key = evaluation.copies.account
    return _row(
        evaluation.label,
        key,
        _state(evaluation, EXTRA),
        warnings=["it is the system account"] if key in trust.system_accounts else [],
        problems=list(evaluation.problems),
    )


def operator_changes(document: AccountsDocument, trust: Trust, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the differences between the operator of the document and that of the servers; changing the servers'
    operator needs a restart of every server."""
    if not trust.claims:
        return []
    actual = trust.claims[0]
    found = []
    system = document.system_account
    system = ids.get(system, "") if system in document.accounts else system
    if document.system_account and system != actual.fields["system_account"]:
        found.append(
            _change("system_account", actual.fields["system_account"] or None, system or document.system_account)
        )
    if document.operator is None:
        return found
    if document.operator["name"] != actual.name:
        found.append(_change("operator.name", actual.name, document.operator["name"]))
    if document.operator["id"] and document.operator["id"] != actual.subject:
        found.append(_change("operator.id", actual.subject, document.operator["id"]))
    for one in OPERATOR_FIELDS:
        if not one.shown or not one.wire:
            continue
        old, new = actual.fields[one.name], document.operator[one.name]
        # Keys that the document does not list are outside its scope.
        if old != new and (new or one.name != "signing_keys"):
            found.append(_change(f"operator.{one.name}", in_words(one, old), in_words(one, new)))
    return found


def fingerprint(document: AccountsDocument, evaluations: Sequence[Evaluation], trust: Trust) -> str:
    """Return a digest of everything that the plan depends on, except the costs: the document, the servers' copies and
    their operators."""
    content = {
        "accounts": {
            name: [account.id, account.is_present, account.fields] for name, account in document.accounts.items()
        },
        "operator": document.operator,
        "system_account": document.system_account,
        "copies": {
            # The names of servers that use a copy are left out: each login to another server may add one.
            one.copies.account: sorted((row["digest"], row["stored"]) for row in one.rows)
            for one in evaluations
        },
        "operators": sorted(trust.digests),
        "trusted": sorted(trusted_keys(trust.claims)),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# --- For people -------------------------------------------------------------------------------------------------------


def change_text(change: Mapping[str, Any]) -> str:
    """Return a change as a line, such as `limits.connections: 500 → 300`."""
    old, new = (_value_text(change[side]) for side in ("from", "to"))
    if change["from"] is None:
        return f"+ {change['path']}: {new}"
    if change["to"] is None:
        return f"- {change['path']}: {old}"
    return f"{change['path']}: {old} → {new}"


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return printable(value) or '""'
    return printable(json.dumps(value, ensure_ascii=False))


def plan_page(plan: Mapping[str, Any]) -> Page:
    """Return the plan for operators: a table of the accounts, then the details of those that differ."""
    return fitting(lambda most: _page(plan, most))


def _page(plan: Mapping[str, Any], most: int) -> Page:
    names = [row["name"] for row in plan["accounts"]]
    rows = [
        {**row, "name": f"{row['name']} ({row['account']})"} if names.count(row["name"]) > 1 and row["account"] else row
        for row in plan["accounts"]
    ]
    overview = table_page(
        "Accounts",
        ("account", "state", "changes", "closes", "streams stranded", "notes"),
        [
            (
                row["name"],
                row["state"],
                len(row["changes"]),
                sum(one["count"] for one in row["closes"]),
                row["streams"]["count"],
                len(row["warnings"]) + len(row["problems"]),
            )
            for row in rows
        ],
        worst=[place for place, row in enumerate(rows) if row["state"] not in _QUIET],
        most=most,
    )
    details = [_details(row) for row in rows]
    lines = [line for one in details for line in one]
    found = [overview, listing(lines, what="line", most=3 * most)]
    operator = [change_text(one) for one in plan["operator"]]
    if operator:
        found.insert(
            0,
            Page()
            + page("The operator changes, which needs a restart of every server:")
            + listing(operator, most=most),
        )
    if plan["problems"]:
        found.insert(0, page("The plan cannot be carried out:") + listing(plan["problems"], most=most))
    if plan["incomplete"]:
        found.append(listing(plan["incomplete"], most=most))
    return paragraphs(found)


def _details(row: Mapping[str, Any]) -> list[str]:
    """Return the lines about an account that the table does not contain."""
    lines = [f"  {change_text(one)}" for one in row["changes"]]
    lines += [f"  closes {counted(one['count'], 'connection')}: {one['reason']}" for one in row["closes"]]
    streams = row["streams"]
    if streams["count"]:
        size = f"{counted(streams['count'], 'stream')} with {human_bytes(streams['bytes'])}"
        lines.append(f"  strands {size}: {some_names(streams['names'])}")
    lines += [f"  {one}" for one in (*row["warnings"], *row["problems"])]
    return [f"{row['name']}: {row['state']}", *lines] if lines else []


def summary(plan: Mapping[str, Any]) -> str:
    """Return the plan as one line."""
    states = [row["state"] for row in plan["accounts"]]
    counts = [f"{states.count(state)} {state}" for state in _ORDER if state in states]
    closed = sum(one["count"] for row in plan["accounts"] for one in row["closes"])
    return f"{', '.join(counts) or 'no accounts'}; closes {counted(closed, 'connection')}"
