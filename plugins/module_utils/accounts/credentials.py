# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The .creds files of users: their format, and the reasons to issue a new one. Pure.

A .creds file has two blocks, the user's JWT and the seed of the user's key (jwt/v2 creds_utils.go)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..units import parse_duration
from .checks import user_problems
from .claims import Claims, decode_claims
from .fields import moment_words
from .keys import USER
from .seeds import InvalidSeed, SeedKey, read_seed
from .token import InvalidToken
from .users import role_user

#: The lifetime of credentials that do not expire.
NEVER = "never"

_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+([\w.=-]+?)\s+-+END NATS USER JWT-+")


@dataclass(frozen=True)
class UserCredentials:
    """A user's JWT, its claims, and the user's key."""

    token: str = field(repr=False)
    claims: Claims
    key: SeedKey

    @property
    def text(self) -> str:
        """Return the content of the .creds file."""
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.key.seed}\n------END USER NKEY SEED------\n"
        )


@dataclass(frozen=True)
class DesiredCredentials:
    """The desired user. `signer`: the public key of the role. `expires`: seconds until a new JWT expires, 0 for never.
    `renew_before`: seconds before its expiry at which a JWT is renewed."""

    name: str
    signer: str
    tags: tuple[str, ...]
    expires: float
    renew_before: float


def lifetime(text: str) -> float:
    """Return the seconds of a duration such as `30d`, 0 for `never`. Raises ValueError."""
    return 0 if text == NEVER else parse_duration(text, bare=False)


def issue_credentials(
    desired: DesiredCredentials, account: Claims, signer: SeedKey, key: SeedKey, is_strict: bool, now: float
) -> UserCredentials:
    """Return new credentials for this key of a user. Raises InvalidToken if servers would refuse the user."""
    expires = int(now + desired.expires) if desired.expires else 0
    token = role_user(account, signer, key.public, desired.name, desired.tags, int(now), expires, is_strict)
    return UserCredentials(token, decode_claims(token), key)


def read_credentials(text: str) -> UserCredentials | None:
    """Return the content of a .creds file, or None if it is not that of a user with a valid signature."""
    found = _JWT.search(text)
    try:
        if found is None:
            return None
        claims = decode_claims(found[1])
        key = read_seed(text[found.end() :], [USER])
    except (InvalidToken, InvalidSeed):
        return None
    return UserCredentials(found[1], claims, key) if claims.subject == key.public else None


def renewal_reasons(
    current: UserCredentials | None, desired: DesiredCredentials, account: Claims, is_strict: bool, now: float
) -> list[str]:
    """Return why the user needs a new JWT; empty if the current one remains valid."""
    if current is None:
        return ["there are no usable credentials"]
    claims = current.claims
    if claims.kind != USER or claims.fields["issuer_account"] != account.subject:
        return ["the credentials belong to a different account"]
    found = []
    if claims.name != desired.name:
        found.append(f"the name is {claims.name[:60]!r}")
    if claims.issuer != desired.signer:
        found.append("they were signed with a different key")
    if claims.fields["tags"] != _normal(desired.tags):
        found.append("the tags differ")
    found += user_problems(claims, account, is_strict, now)
    if bool(claims.expires) != bool(desired.expires):
        found.append("they expire" if claims.expires else "they never expire")
    elif claims.expires and now < claims.expires <= now + desired.renew_before:
        found.append(f"they expire at {moment_words(claims.expires)}")
    return found


def _normal(tags: Sequence[str]) -> list[str]:
    return sorted({tag.strip().lower() for tag in tags})
