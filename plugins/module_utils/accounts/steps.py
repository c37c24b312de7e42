# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which the accounts of a document are changed. Pure.

All accounts pass each phase before the next phase begins, so an export exists before an account imports it, and is
removed only after its last import. Permissions are widened before anything is taken away. A change of a role makes all
its users reconnect, so the roles change one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..screen import Page, fitting, listing, page, paragraphs, printable
from ..table import table_page
from ..units import counted
from .checks import content_problems
from .claims import Claims
from .copies import Evaluation
from .document import AccountsDocument, DesiredAccount
from .fields import FLAT, LIMITS, Normal, ordered
from .plan import CREATE, DELETE, differences, empty_account, matched_claims, matched_ids

WIDEN, IMPORT, ROLES, UNIMPORT, NARROW = PHASES = (
    "exports, keys and higher limits",
    "imports",
    "roles",
    "removed imports",
    "the remaining changes",
)
#: The step that replaces a copy with equal claims, because servers do not trust it or have different copies.
SIGN = "signature"


@dataclass(frozen=True)
class ClaimsStep:
    """One push of an account's claims, or its deletion (`claims` is None). `phase`: one of PHASES, CREATE, SIGN or
    DELETE."""

    name: str
    phase: str
    claims: Claims | None
    changes: tuple[dict[str, Any], ...]

    def row(self) -> dict[str, Any]:
        """Return the step as the module returns it."""
        changes = [{**one, "path": printable(one["path"])} for one in self.changes]
        return {"name": printable(self.name), "step": self.phase, "changes": changes}


def phase_claims(phase: str, actual: Claims | None, desired: Claims) -> Claims | None:
    """Return the claims of an account after the next step of a phase; None if the phase has no further step.

    `actual`: None for an account that does not exist yet. Claims that a server would refuse, such as more exports than
    a limit allows, are left to the last phase."""
    target = _target(phase, actual, desired)
    if target is None or (actual is not None and not differences(actual, target)):
        return None
    return None if phase != NARROW and content_problems(target) else target


def _target(phase: str, actual: Claims | None, desired: Claims) -> Claims | None:
    if actual is None:
        return replace(desired, fields={**desired.fields, "imports": []}) if phase == WIDEN else None
    old, new = actual.fields, desired.fields
    if phase == WIDEN:
        changed: Normal = {
            **_wider_limits(old, new),
            "exports": _with_additions(old["exports"], new["exports"]),
            "signing_keys": {**new["signing_keys"], **old["signing_keys"]},
        }
    elif phase == IMPORT:
        changed = {"imports": _with_additions(old["imports"], new["imports"])}
    elif phase == ROLES:
        roles = [key for key, scope in old["signing_keys"].items() if scope != new["signing_keys"].get(key, scope)]
        if not roles:
            return None
        changed = {"signing_keys": {**old["signing_keys"], roles[0]: new["signing_keys"][roles[0]]}}
    elif phase == UNIMPORT:
        changed = {"imports": new["imports"]}
    else:
        return desired
    return replace(actual, fields={**old, **changed})


def _with_additions(old: Sequence[Normal], new: Sequence[Normal]) -> list[Normal]:
    """Return the old exports or imports with the new ones that replace none of them."""
    existing = {(one["type"], one["subject"], one.get("account")) for one in old}
    added = [one for one in new if (one["type"], one["subject"], one.get("account")) not in existing]
    return ordered([*old, *added])


def _wider_limits(old: Normal, new: Normal) -> Normal:
    """Return for each limit the wider one of the old and the new value; -1 is unlimited."""
    found: Normal = {}
    for one in LIMITS:
        name = f"limits.{one.name}"
        before, after = old[name], new[name]
        if one.kind in ("limit", "size_limit"):
            found[name] = _wider(before, after)
        elif one.name == "jetstream":
            # Tiers cannot be added to limits of all replicas.
            if not before or (FLAT in before) == (FLAT in after):
                found[name] = {tier: _wider_tier(before.get(tier), after.get(tier)) for tier in {**before, **after}}
        elif before != after:
            found[name] = one.name == "wildcard_exports"
    return found


def _wider(before: int, after: int) -> int:
    return -1 if -1 in (before, after) else max(before, after)


def _wider_tier(before: Normal | None, after: Normal | None) -> Normal:
    if before is None or after is None:
        return dict(before or after or {})
    return {
        name: (before[name] and after[name]) if isinstance(value, bool) else _wider(before[name], value)
        for name, value in after.items()
    }


def next_step(phase: str, name: str, actual: Claims | None, desired: Claims) -> ClaimsStep | None:
    """Return the next step of an account in a phase, None if there is none."""
    target = phase_claims(phase, actual, desired)
    if target is None:
        return None
    changes = tuple(differences(actual or empty_account(name), target))
    return ClaimsStep(name, CREATE if actual is None else phase, target, changes)


def planned_steps(document: AccountsDocument, evaluations: Sequence[Evaluation]) -> list[ClaimsStep]:
    """Return all steps that change the servers' copies into the accounts of the document, in their order. Keys that have
    yet to be created are placeholders."""
    ids, _ambiguous = matched_ids(document, evaluations)
    by_id = {one.copies.account: one for one in evaluations}
    current = {name: by_id[ids[name]].claims if ids.get(name) in by_id else None for name in document.accounts}
    desired = {one.name: matched_claims(one, document, ids, current[one.name]) for one in present_accounts(document)}
    found: list[ClaimsStep] = []
    for phase in PHASES:
        for name, target_claims in desired.items():
            while (step := next_step(phase, name, current[name], target_claims)) is not None:
                found.append(step)
                current[name] = step.claims
    untrusted = {one.copies.account for one in evaluations if one.signer_problem or one.disagreements}
    pushed = {step.name for step in found}
    found += [
        ClaimsStep(name, SIGN, current[name], ())
        for name in desired
        if name not in pushed and ids.get(name) in untrusted
    ]
    gone = [one.name for one in document.accounts.values() if not one.is_present and ids.get(one.name) in by_id]
    return found + [ClaimsStep(name, DELETE, None, ()) for name in gone]


def present_accounts(document: AccountsDocument) -> Iterator[DesiredAccount]:
    """Yield the accounts of the document that must exist."""
    return (one for one in document.accounts.values() if one.is_present)


def stale_reasons(plan: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return why an approved plan no longer applies: its version, the fingerprint, or consequences that it does not
    list."""
    if plan.get("version") != current["version"]:
        return [f"the plan has version {str(plan.get('version'))[:20]}, and this collection needs {current['version']}"]
    if plan.get("fingerprint") != current["fingerprint"]:
        return ["the document, an account or the operator has changed since the plan was made"]
    approved = {row["name"]: row for row in plan.get("accounts", [])}
    found = []
    for row in current["accounts"]:
        reasons = {one["reason"] for one in approved.get(row["name"], {}).get("closes", [])}
        warnings = approved.get(row["name"], {}).get("warnings", [])
        found += [
            f"account {row['name']}: {one['reason']}: closes {counted(one['count'], 'connection')}"
            for one in row["closes"]
            if one["reason"] not in reasons
        ]
        found += [f"account {row['name']}: {one}" for one in row["warnings"] if one not in warnings]
    return found


def steps_page(steps: Sequence[Mapping[str, Any]], roles: Sequence[Mapping[str, Any]]) -> Page:
    """Return the steps, and the roles that were not tested, for operators."""
    if not steps:
        return page("The servers have the accounts of the document.")
    table = [(row["name"], row["step"], len(row["changes"])) for row in steps]
    skipped = [
        f"role {row['role']} of account {row['account']} was not tested: {row['skipped']}"
        for row in roles
        if row["skipped"]
    ]
    tested = len(roles) - len(skipped)
    lines = [*([f"{counted(tested, 'role')} tested with a user"] if tested else []), *skipped]
    return fitting(
        lambda most: paragraphs(
            [table_page("Steps", ("account", "step", "changes"), table, most=most), listing(lines, most=most)]
        )
    )
