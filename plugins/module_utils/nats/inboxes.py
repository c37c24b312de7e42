# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subjects on which a user receives replies, chosen by its permissions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..subjects import subject_matches
from .model import INBOX_PREFIX


def private_inboxes(user: str) -> str:
    """Return the prefix of the subjects on which only the user with this public key receives replies."""
    return f"{INBOX_PREFIX}.{user}"


def permitted_inboxes(permissions: Mapping[str, Any]) -> str:
    """Return a prefix of inboxes to which a user with these (normalised) permissions may subscribe: that of the modules,
    unless it is denied and the prefix of clients or a prefix of the user's own is allowed."""
    subscribe = permissions.get("subscribe") or {}
    rules = subscribe if isinstance(subscribe, Mapping) else {"allow": subscribe}
    allow, deny = (_listed(rules.get(name)) for name in ("allow", "deny"))
    own = [subject[:-2] for subject in allow if subject.startswith("_INBOX") and subject.endswith(".>")]
    for prefix in (INBOX_PREFIX, "_INBOX", *own):
        # One inbox is for one request, the other for the replies of many servers.
        inboxes = (f"{prefix}.id", f"{prefix}.id.*")
        if all(
            (not allow or any(subject_matches(rule, inbox) for rule in allow))
            and not any(subject_matches(rule, inbox) for rule in deny)
            for inbox in inboxes
        ):
            return prefix
    return INBOX_PREFIX


def inboxes_of_claims(claims: Mapping[str, Any]) -> str:
    """Return a prefix of inboxes for the user with this payload of a JWT. If the payload has no permissions, those of
    the signing key or of the account apply, which a .creds file does not contain: this prefix is then the user's own,
    which is the only one that the role natsops allows, and allowed if the modules' inboxes are."""
    nats = claims.get("nats")
    subscribe = nats.get("sub") if isinstance(nats, Mapping) else None
    if isinstance(subscribe, Mapping) and any(subscribe.values()):
        return permitted_inboxes({"subscribe": subscribe})
    user = claims.get("sub")
    return private_inboxes(user) if isinstance(user, str) and user else INBOX_PREFIX


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value or ()]
