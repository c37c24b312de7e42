# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The builtin role `natsops` of the document of accounts: the permissions that this collection needs in an account, and
the claims of its short-lived users. Pure.

In an account, its users manage, back up and restore streams, which includes reading every stored message. They can
neither publish to the account's own subjects nor read the replies that its other users receive. In the system account,
they can send the requests of this collection, but not delete the streams of an account."""

from __future__ import annotations

from collections.abc import Mapping

from ..nats.inboxes import private_inboxes
from .checks import user_problems
from .claim_fields import from_claims
from .claims import Claims
from .fields import ACCOUNT_FIELDS, SIGNING_KEY, USER_FIELDS, Normal
from .keys import ACCOUNT, USER
from .token import InvalidToken

#: The name of the role, which its users also have.
NATSOPS = "natsops"
DESCRIPTION = "short-lived users of the Ansible collection natsops.jetstream"

_SUBJECT = "{{subject()}}"
#: Subjects that servers answer for every account: the user itself, and the names of the servers.
_OWN = ("$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.STATZ")
#: The subjects of the smoke test and of a drill of the second site, which no program uses.
_SMOKE_TEST, _DRILL = "natsops.smoke_test.>", "nats_dr.drill.>"
_ACCOUNT = {
    # The second pattern has a JetStream domain.
    "allow.pub": ("$JS.API.>", "$JS.*.API.>", "$JS.SNAPSHOT.>", _SMOKE_TEST, _DRILL, *_OWN),
    "allow.sub": (_SMOKE_TEST,),
}
_SYSTEM = {
    "allow.pub": (
        "$JS.API.>",
        "$SYS.REQ.SERVER.>",
        "$SYS.REQ.CLAIMS.*",
        "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP",
        *_OWN,
    ),
    "deny.pub": ("$JS.API.ACCOUNT.PURGE.>",),
}


def permissions(is_system: bool, user: str = _SUBJECT) -> dict[str, list[str]]:
    """Return the subjects of the role in an account or in the system account. `user`: the public key of its user."""
    found = {name: list(subjects) for name, subjects in (_SYSTEM if is_system else _ACCOUNT).items()}
    return {**found, "allow.sub": sorted([*found.get("allow.sub", ()), f"{private_inboxes(user)}.>"])}


def builtin_scope(key: str, is_system: bool) -> Normal:
    """Return the normal form of a signing key with the role."""
    subjects = {name: sorted(found) for name, found in permissions(is_system).items()}
    empty = from_claims(SIGNING_KEY, {}, [])
    return {**empty, "key": key, "role": NATSOPS, "description": DESCRIPTION, **subjects}


def role_keys(account: Claims) -> list[str]:
    """Return the public keys of the role in an account; there are several while the key is rotated."""
    return [key for key, scope in account.fields["signing_keys"].items() if scope["role"] == NATSOPS]


def assumed_account(account: str, signer: str, is_system: bool) -> Claims:
    """Return the part of an account's claims that a login with this signing key presumes, for a login that has to
    precede the reading of the claims."""
    scopes: Mapping[str, Normal] = {} if signer == account else {signer: builtin_scope(signer, is_system)}
    return Claims(ACCOUNT, account, account, {**from_claims(ACCOUNT_FIELDS, {}, []), "signing_keys": scopes})


def short_lived_user(
    account: Claims, signer: str, public: str, is_system: bool, is_strict: bool, issued_at: int, expires: int
) -> Claims:
    """Return the claims of a user of the role. If the signing key has no role, the user itself has the permissions.

    `signer`, `public`: the public keys of the signing key and the user. Raises InvalidToken if a server would refuse
    the user."""
    fields = from_claims(USER_FIELDS, {}, [])
    scope = account.fields["signing_keys"].get(signer)
    if signer != account.subject:
        fields["issuer_account"] = account.subject
    if scope is None or not scope["role"]:
        unlimited = dict.fromkeys(("limits.subscriptions", "limits.data", "limits.payload"), -1)
        fields = {**fields, **unlimited, **permissions(is_system, public)}
    user = Claims(USER, public, NATSOPS, fields, signer, issued_at, expires)
    problems = user_problems(user, account, is_strict, issued_at)
    if problems:
        raise InvalidToken("; ".join(problems))
    return user
