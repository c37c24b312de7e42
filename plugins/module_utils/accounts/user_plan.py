# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the credentials of all users of a document: which remain valid, and which have to be issued or renewed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..screen import Page, fitting, page
from ..table import table_page
from .checks import user_problems
from .claims import Claims
from .copies import Evaluation
from .credentials import DesiredCredentials, UserCredentials, read_credentials, renewal_reasons
from .document import AccountsDocument, DesiredUser
from .fields import moment_words
from .plan import matched_ids
from .users import role_claims

SAME, ISSUE, RENEW, REVOKED, CANNOT, ELSEWHERE = "same", "issue", "renew", "revoked", "cannot", "elsewhere"


@dataclass(frozen=True)
class UserPlan:
    """The plan for one user. `state`: one of the constants above; ELSEWHERE if the document does not name a file.

    `reasons`: why new credentials are needed or cannot be issued. `signer`: the public key of the role, and `account`
    the claims in force, for credentials that are issued or renewed."""

    user: DesiredUser
    state: str
    reasons: tuple[str, ...] = ()
    signer: str = ""
    account: Claims | None = None
    current: UserCredentials | None = None

    @property
    def desired(self) -> DesiredCredentials:
        """Return the credentials that are issued or renewed."""
        return _desired(self.user, self.signer)

    @property
    def is_due(self) -> bool:
        return self.state in (ISSUE, RENEW)

    def row(self) -> dict[str, Any]:
        """Return the plan for the result of a module, without secrets."""
        claims = self.current.claims if self.current is not None else None
        deliver = self.user.deliver
        return {
            "user": self.user.label,
            "state": self.state,
            "reasons": list(self.reasons),
            "public_key": claims.subject if claims is not None else None,
            "expires": moment_words(claims.expires) if claims is not None and claims.expires else None,
            "host": deliver.host if deliver is not None else None,
            "file": deliver.path if deliver is not None else None,
        }


@dataclass(frozen=True)
class UserState:
    """The state that a plan compares with the document. `evaluations`: the accounts of the servers. `is_strict`: whether
    the operator requires signing keys. `current`: the content of each user's file, by ACCOUNT/NAME, if it exists.
    `has_seed`: whether the seed of a public key is available. `replaced`: public keys that sign no more users."""

    evaluations: Sequence[Evaluation]
    is_strict: bool
    current: Mapping[str, str]
    has_seed: Callable[[str], bool]
    replaced: Collection[str] = ()


class _Impossible(ValueError):
    """Credentials cannot be issued; the message contains the reason."""


def plan_users(document: AccountsDocument, reading: UserState, now: float) -> list[UserPlan]:
    """Return the plan for each user of the document, in the order of the document."""
    ids, _ambiguous = matched_ids(document, reading.evaluations)
    found = []
    for user in document.users:
        if user.deliver is None:
            found.append(UserPlan(user, ELSEWHERE, ("the document does not name a file (deliver)",)))
            continue
        try:
            account = _account(ids.get(user.account), reading.evaluations, user.account)
            found.append(_plan_user(user, document, account, reading, now))
        except _Impossible as error:
            found.append(UserPlan(user, CANNOT, (str(error),)))
    return found


def _account(key: str | None, evaluations: Sequence[Evaluation], name: str) -> Claims:
    """Return the claims in force of an account."""
    found = next((one for one in evaluations if one.copies.account == key), None)
    if found is None or found.claims is None:
        raise _Impossible(f"no server returned exactly one account {name}; apply the document first")
    if found.doubts:
        raise _Impossible(f"account {name}: {'; '.join(found.doubts)}")
    return found.claims


def _plan_user(
    user: DesiredUser, document: AccountsDocument, account: Claims, reading: UserState, now: float
) -> UserPlan:
    text = reading.current.get(user.label, "")
    current = read_credentials(text)
    if current is None and text.strip():
        path = user.deliver.path if user.deliver is not None else ""
        raise _Impossible(f"{path} exists and is not a .creds file; move it, or change deliver in the document")
    if current is not None and current.claims.subject in account.fields["revoke"]:
        reason = f"the account has revoked the key {current.claims.subject}; to let the user in again, delete the file"
        return UserPlan(user, REVOKED, (reason,), current=current)
    signer = _signer(user, document, account, current, reading.replaced)
    reasons = tuple(renewal_reasons(current, _desired(user, signer), account, reading.is_strict, now))
    if not reasons:
        return UserPlan(user, SAME, current=current)
    public = current.claims.subject if current is not None else ""
    future = role_claims(account, signer, public, user.name, user.tags, int(now), 0)
    refusals = user_problems(future, account, reading.is_strict, now)
    if refusals:
        raise _Impossible(f"servers would refuse the user: {'; '.join(refusals)}")
    if not reading.has_seed(signer):
        raise _Impossible(f"key_directory: there is no seed of {signer}, the key of role {user.key}")
    return UserPlan(user, RENEW if current is not None else ISSUE, reasons, signer, account, current)


def _desired(user: DesiredUser, signer: str) -> DesiredCredentials:
    return DesiredCredentials(user.name, signer, user.tags, user.expires, user.renew_before)


def _signer(
    user: DesiredUser,
    document: AccountsDocument,
    account: Claims,
    current: UserCredentials | None,
    replaced: Collection[str],
) -> str:
    """Return the public key that signs the user: the one in the document, the only key of the role on the servers, or
    the present one while a rotation is unfinished."""
    entry = document.accounts[user.account].fields["signing_keys"][user.key]
    if not entry["role"]:
        raise _Impossible(f"signing key {user.key} has no role, which would give the user permissions")
    scopes = account.fields["signing_keys"]
    usable = sorted(key for key, scope in scopes.items() if scope["role"] == entry["role"] and key not in replaced)
    if entry["key"] in usable:
        return str(entry["key"])
    if not usable:
        raise _Impossible(f"the servers have no usable key of role {entry['role']}; apply the document first")
    if len(usable) == 1:
        return usable[0]
    if current is not None and current.claims.issuer in usable:
        return current.claims.issuer
    raise _Impossible(
        f"role {entry['role']} has {len(usable)} keys; finish the rotation, or give its key in the document"
    )


def users_page(plans: Sequence[UserPlan]) -> Page:
    """Return the plan for operators; users whose credentials remain valid are only counted."""
    states = Counter(one.state for one in plans)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "the document has no users"
    rows = [(one.user.label, one.state, "; ".join(one.reasons)) for one in plans if one.state != SAME]
    if not rows:
        return page(f"Credentials: {counts}")
    title = f"Credentials: {counts}"
    return fitting(lambda most: table_page(title, ("user", "state", "reason"), rows, most=most))
