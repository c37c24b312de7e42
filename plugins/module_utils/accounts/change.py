# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The change that one account needs: its new claims, its dangers, and the obstacles that prevent it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..problem import Danger
from ..screen import printable, some_names
from ..units import counted
from .builtin import builtin_scope
from .checks import activation_problems
from .claims import Claims, import_key
from .copies import Evaluation, Trust
from .document import AccountsDocument
from .fields import ACCOUNT_FIELDS, Normal, words
from .keys import ACCOUNT, key_kind
from .plan import (
    ABSENT,
    CHANGE,
    CREATE,
    DELETE,
    DROPPED_KEY,
    REVOKED,
    SAME,
    Closing,
    closed_connections,
    differences,
    exceeded_limits,
    lost_imports,
    matched_claims,
    matched_ids,
    stranded_streams,
)
from .use import AccountUse

#: The kinds of dangers that the option `allow` accepts.
DROP_KEY, CLOSE_CONNECTIONS, LIMITS_BELOW_USE, LOST_IMPORTS, SYSTEM_ACCOUNT, UNKNOWN_CLAIMS = DANGERS = (
    "drop_key",
    "close_connections",
    "limits_below_use",
    "lost_imports",
    "system_account",
    "unknown_claims",
)


@dataclass(frozen=True)
class AccountChange:
    """The change of one account. `account`: its public key, empty if the key has yet to be created.

    `state`: CREATE, CHANGE, SAME, DELETE or ABSENT. `before`: the servers' copies, None if there are none. `desired`:
    None for a deletion. `obstacles`: reasons that prevent the change."""

    name: str
    account: str
    state: str
    before: Evaluation | None
    desired: Claims | None
    changes: tuple[dict[str, Any], ...] = ()
    closes: tuple[Closing, ...] = ()
    dangers: tuple[Danger, ...] = ()
    obstacles: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        return self.state not in (SAME, ABSENT)

    def difference(self) -> dict[str, dict[str, Any]]:
        """Return the claims before and after the change in the words of the document, for Ansible's diff."""
        actual = self.before.claims if self.before is not None else None
        sides = {"before": actual, "after": self.desired if self.is_needed or self.desired is None else actual}
        return {
            side: {} if claims is None else {"name": claims.name, **words(ACCOUNT_FIELDS, claims.fields)}
            for side, claims in sides.items()
        }


def present_change(
    name: str, document: AccountsDocument, evaluations: Sequence[Evaluation], trust: Trust, live: AccountUse, now: float
) -> AccountChange:
    """Return the change that gives an account of the document its desired claims."""
    ids, ambiguous = matched_ids(document, evaluations)
    account = document.accounts[name]
    key = ids.get(name, "")
    before = next((one for one in evaluations if one.copies.account == key), None)
    actual = before.claims if before is not None else None
    desired = matched_claims(account, document, ids, actual)
    obstacles = [one for one in ambiguous if one.startswith(f"account {name}:")]
    if key in trust.system_accounts and desired.fields["limits.jetstream"]:
        obstacles.append("limits.jetstream: the system account cannot have JetStream")
    if key in trust.system_accounts and _has_builtin_of_account(desired):
        obstacles.append(
            "signing_keys: this account is the servers' system account, in which the builtin role natsops has other "
            "permissions; set system_account in the document"
        )
    if before is None:
        return AccountChange(name, key, CREATE, None, desired, obstacles=tuple(obstacles))
    change = compared_change(name, before, desired, evaluations, trust, live, now)
    return replace(change, obstacles=(*obstacles, *change.obstacles))


def compared_change(
    name: str,
    before: Evaluation,
    desired: Claims,
    evaluations: Sequence[Evaluation],
    trust: Trust,
    live: AccountUse,
    now: float,
) -> AccountChange:
    """Return the change that gives an existing account these claims."""
    key, actual = before.copies.account, before.claims
    if actual is None:
        return AccountChange(
            name, key, CHANGE, before, desired, obstacles=(f"unreadable: {'; '.join(before.problems)}",)
        )
    changes = differences(actual, desired)
    changes += [
        {"path": f"imports.{printable(item['subject'])}.activation", "from": "invalid", "to": "signed again"}
        for item in missing_activations(desired, actual, now)
        if item in actual.fields["imports"]
    ]
    if not changes and not before.signer_problem and not before.disagreements:
        return AccountChange(name, key, SAME, before, desired)
    closes = closed_connections(actual, desired, live)
    obstacles = _stream_obstacles(actual, desired, live)
    dangers = [
        *_closing_dangers(closes),
        *(Danger(LIMITS_BELOW_USE, one) for one in exceeded_limits(actual, desired, live)),
        *(Danger(LOST_IMPORTS, one) for one in lost_imports(name, actual, desired, evaluations)),
    ]
    if key in trust.system_accounts:
        dangers.append(Danger(SYSTEM_ACCOUNT, "it is the system account, to which this login belongs"))
    if actual.unknown:
        lost = f"claims unknown to this collection would be lost: {some_names(actual.unknown)}"
        dangers.append(Danger(UNKNOWN_CLAIMS, lost))
    return AccountChange(
        name, key, CHANGE, before, desired, tuple(changes), tuple(closes), tuple(dangers), tuple(obstacles)
    )


def missing_exporters(name: str, document: AccountsDocument, evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the accounts that do not exist yet although an account imports from them."""
    ids, _ambiguous = matched_ids(document, evaluations)
    exporters = {item["account"] for item in document.accounts[name].fields["imports"]}
    return sorted(one for one in exporters if one in document.accounts and one not in ids)


def absent_change(name: str, evaluations: Sequence[Evaluation], trust: Trust, live: AccountUse) -> AccountChange:
    """Return the change that deletes an account, given by name or public key."""
    found = [one for one in evaluations if name in (one.copies.account, one.name)]
    if not found:
        return AccountChange(name, name if key_kind(name) == ACCOUNT else "", ABSENT, None, None)
    if len(found) > 1:
        keys = ", ".join(one.copies.account for one in found)
        several = f"{len(found)} accounts have this name; give one of the public keys: {keys}"
        return AccountChange(name, "", DELETE, None, None, obstacles=(several,))
    (before,) = found
    key, actual = before.copies.account, before.claims
    if key in trust.system_accounts:
        return AccountChange(name, key, DELETE, before, None, obstacles=("it is the system account",))
    if actual is None:
        return AccountChange(name, key, DELETE, before, None, obstacles=(f"unreadable: {'; '.join(before.problems)}",))
    closes = closed_connections(actual, None, live)
    others = [one for one in evaluations if one is not before]
    lost = [Danger(LOST_IMPORTS, one) for one in lost_imports(before.label, actual, None, others)]
    dangers = (*_closing_dangers(closes), *lost)
    obstacles = tuple(_stream_obstacles(actual, None, live))
    return AccountChange(before.label, key, DELETE, before, None, (), tuple(closes), dangers, obstacles)


def _has_builtin_of_account(desired: Claims) -> bool:
    """Return whether the desired claims have the builtin role with its permissions in a plain account."""
    plain = builtin_scope("", is_system=False)
    return any({**scope, "key": ""} == plain for scope in desired.fields["signing_keys"].values())


def _stream_obstacles(actual: Claims, desired: Claims | None, live: AccountUse) -> list[str]:
    """Return the streams that the change would make inaccessible, or why they are unknown."""
    streams = sorted(one.name for one in stranded_streams(actual, desired, live))
    found = []
    if streams:
        verb = "has" if len(streams) == 1 else "have"
        names = some_names([printable(one) for one in streams])
        found.append(f"{counted(len(streams), 'stream')} still {verb} data ({names}); delete the streams first")
    if live.unknown:
        found.append(
            f"{', '.join(live.unknown)} did not report connections and streams; repeat when all servers answer"
        )
    return found


def _closing_dangers(closes: Iterable[Closing]) -> list[Danger]:
    """Return the closings that need permission. Closing the connections of a revoked user is the purpose of the
    revocation."""
    return [
        Danger(
            DROP_KEY if one.rule == DROPPED_KEY else CLOSE_CONNECTIONS,
            f"{one.reason}: closes {counted(one.count, 'connection')}",
        )
        for one in closes
        if one.rule != REVOKED
    ]


# --- Claims to sign ---------------------------------------------------------------------------------------------------


def missing_activations(desired: Claims, actual: Claims | None, now: float) -> list[Normal]:
    """Return the imports of private exports for which the servers have no valid activation."""
    existing = {} if actual is None else actual.activations
    return [
        item
        for item in desired.fields["imports"]
        if item["activation"]
        and (
            import_key(item) not in existing
            or activation_problems(existing[import_key(item)], item, desired.subject, now)
        )
    ]


def with_keys(desired: Claims, account: str, new_keys: Mapping[str, str], activations: Mapping[str, str]) -> Claims:
    """Return the desired claims with the public keys of new signing keys, by their names in the document, and with the
    activations of private imports."""
    signing_keys = {
        new_keys.get(name, name): {**entry, "key": entry["key"] or new_keys[name]}
        for name, entry in desired.fields["signing_keys"].items()
    }
    return replace(
        desired,
        subject=account,
        fields={**desired.fields, "signing_keys": signing_keys},
        activations=dict(activations),
    )


def keyless(desired: Claims) -> list[str]:
    """Return the names of the signing keys that have no public key yet."""
    return [name for name, entry in desired.fields["signing_keys"].items() if not entry["key"]]


def next_issue_time(newest: int, now: float) -> int:
    """Return the issue time for new claims, later than that of all copies. A server that was stopped while claims of
    the same second were pushed keeps its copy (dirstore.go saveIfNewer)."""
    return max(int(now), newest + 1)
