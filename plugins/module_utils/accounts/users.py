# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of a role: their JWTs, and subjects on which a role can be tested without side effects. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..subjects import subject_matches
from .checks import user_problems
from .claim_fields import from_claims
from .claims import Claims, encode_claims
from .fields import EVERYBODY, USER_FIELDS
from .keys import USER, Signer
from .token import InvalidToken

#: The token that replaces wildcards, in subjects that no program uses.
PROBE = "natsops-probe"
_TEMPLATE = re.compile(r"\{\{\s*([^}]+?)\s*\}\}")


def role_user(
    account: Claims,
    signer: Signer,
    public: str,
    name: str,
    tags: Sequence[str],
    issued_at: int,
    expires: int,
    is_strict: bool,
) -> str:
    """Return the JWT of a user with the role of a scoped signing key, after the checks that a server would make. The
    user has the permissions of the role. Raises InvalidToken."""
    user = role_claims(account, signer.public, public, name, tags, issued_at, expires)
    problems = user_problems(user, account, is_strict, issued_at)
    if problems:
        raise InvalidToken("; ".join(problems))
    return encode_claims(user, signer, issued_at)


def role_claims(
    account: Claims, signer: str, public: str, name: str, tags: Sequence[str], issued_at: int, expires: int
) -> Claims:
    """Return the claims of a user with the role of a scoped signing key. `signer`: the public key of the role."""
    fields = {**from_claims(USER_FIELDS, {}, []), "issuer_account": account.subject, "tags": sorted(tags)}
    return Claims(USER, public, name, fields, signer, issued_at, expires)


def probe_tags(required: Sequence[str]) -> list[str]:
    """Return a value for each tag that a role needs."""
    return [f"{tag}:{PROBE}" for tag in required]


def probe_obstacle(scope: Mapping[str, Any], account: Claims, connections: int, now: float) -> str:
    """Return why a user of this role cannot be tested from here, or an empty text. `connections`: their present number
    in the account."""
    limited = [name for name in ("source_addresses", "times", "connection_types", "proxy_required") if scope[name]]
    if limited:
        return f"the role limits {', '.join(limited)}"
    if account.fields["revoke"].get(EVERYBODY, 0) >= int(now):
        return "the account revokes all users"
    most = account.fields["limits.connections"]
    return f"the account allows {most or 'no'} connections" if -1 < most <= connections else ""


def allowed_subscription(scope: Mapping[str, Any], values: Mapping[str, str]) -> str | None:
    """Return a subject that the role may subscribe to, or None if it is unknown. `values`: the value of each template
    operation for this user."""
    for pattern in scope["allow.sub"] or [">"]:
        subject = concrete(pattern.split(" ")[0], values)
        denied = (resolved(one.split(" ")[0], values) for one in scope["deny.sub"])
        if not any(subject_matches(one, subject) for one in denied):
            return subject
    return None


def denied_publication(scope: Mapping[str, Any], values: Mapping[str, str]) -> str | None:
    """Return a subject that the role must not publish to, or None if it may publish to all subjects."""
    if scope["deny.pub"]:
        return concrete(scope["deny.pub"][0], values)
    patterns = [resolved(one, values) for one in scope["allow.pub"]]
    candidates = (PROBE, f"{PROBE}.denied", f"{PROBE}.denied.deep")
    denied = (one for one in candidates if not any(subject_matches(pattern, one) for pattern in patterns))
    return next(denied, None) if patterns else None


def resolved(pattern: str, values: Mapping[str, str]) -> str:
    """Return a subject of a role with the values of its template operations."""
    return _TEMPLATE.sub(lambda match: values.get(match[1].lower(), PROBE), pattern)


def concrete(pattern: str, values: Mapping[str, str]) -> str:
    """Return a subject without wildcards that matches the pattern."""
    return ".".join(PROBE if token in ("*", ">") else token for token in resolved(pattern, values).split("."))


def template_values(account: Claims, public: str, name: str, tags: Sequence[str]) -> dict[str, str]:
    """Return the value of each template operation for a user (auth.go processUserPermissionsTemplate)."""
    found = {
        "name()": name,
        "subject()": public,
        "account-name()": account.name,
        "account-subject()": account.subject,
    }
    for kind, owned in (("account-tag", account.fields["tags"]), ("tag", tags)):
        for tag in reversed(owned):
            key, _colon, value = tag.partition(":")
            found[f"{kind}({key})"] = value
    return found
