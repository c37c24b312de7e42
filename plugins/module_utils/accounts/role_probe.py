# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs in as a short-lived user of each role of an account, and tests one allowed and one denied subject.

The allowed subject is subscribed to for a moment, and the denied one is published to, so no program receives a message
of the test. The user's key exists only in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..nats.accounts import as_user
from ..nats.client import Call, Client, ConnectionOptions, MintedLogin, NatsFailure
from ..screen import printable
from .checks import template_tags
from .claims import Claims
from .key_directory import KeyDirectory
from .keys import USER
from .seeds import SeedKey, new_key
from .token import InvalidToken
from .users import (
    PROBE,
    allowed_subscription,
    denied_publication,
    probe_obstacle,
    probe_tags,
    role_user,
    template_values,
)

#: Seconds until the user of a test expires, in case the test is interrupted.
LIFETIME = 60
#: Seconds during which the allowed subject is subscribed to.
_MOMENT = 0.05


@dataclass(frozen=True)
class RoleProbe:
    """The result for one role. `skipped`: why the role was not tested, empty if it was. `denied`: the subject that was
    rejected, None if the role may publish to all subjects."""

    role: str
    skipped: str = ""
    allowed: str | None = None
    denied: str | None = None

    def row(self, account: str) -> dict[str, Any]:
        """Return the result as the module returns it."""
        return {
            "account": account,
            "role": printable(self.role),
            "skipped": self.skipped,
            "allowed": self.allowed,
            "denied": self.denied,
        }


def probe_roles(
    options: ConnectionOptions, account: Claims, directory: KeyDirectory | None, is_strict: bool, connections: int
) -> list[RoleProbe]:
    """Return the result of each role of an account. `connections`: their number in the account.

    Raises NatsFailure probe_failed if a user cannot log in or a permission is not in force."""
    found = []
    for scope in account.fields["signing_keys"].values():
        if not scope["role"]:
            continue
        obstacle = probe_obstacle(scope, account, connections, time.time())
        signer = directory.find(scope["key"]) if directory is not None else None
        if obstacle or signer is None:
            found.append(RoleProbe(scope["role"], obstacle or "key_directory does not have the seed of its key"))
        else:
            found.append(_probe(options, account, scope, signer, is_strict))
    return found


def _probe(
    options: ConnectionOptions, account: Claims, scope: Mapping[str, Any], signer: SeedKey, is_strict: bool
) -> RoleProbe:
    key, now = new_key(USER), int(time.time())
    tags = probe_tags([tag for kind, tag in sorted(template_tags(scope)) if kind == USER])
    label = f"role {printable(scope['role'])}"
    try:
        token = role_user(account, signer, key.public, PROBE, tags, now, now + LIFETIME, is_strict)
    except InvalidToken as error:
        raise NatsFailure("probe_failed", f"{label}: servers would refuse a user: {error}") from error
    values = template_values(account, key.public, PROBE, tags)
    allowed, denied = allowed_subscription(scope, values), denied_publication(scope, values)
    # A role without permission for the usual inbox cannot use this connection for requests, but these need no reply.
    with Client(as_minted_user(options, token, key)) as client:
        try:
            client.connect()
            if allowed is not None:
                client.observe([allowed], _MOMENT, lambda _message: False)
            refusals = client.publish([Call(denied)]) if denied is not None else []
        except NatsFailure as failure:
            raise NatsFailure("probe_failed", f"{label}: {failure.description}") from failure
    _require_denied(label, denied, refusals)
    return RoleProbe(scope["role"], "", allowed, denied)


def _require_denied(label: str, denied: str | None, refusals: Sequence[NatsFailure | None]) -> None:
    if denied is None:
        return
    (refusal,) = refusals
    if refusal is None:
        raise NatsFailure("probe_failed", f"{label}: the server accepted a message to {denied}, which the role denies")
    if refusal.code != "permission":
        raise NatsFailure("probe_failed", f"{label}: {refusal.description}")


def as_minted_user(options: ConnectionOptions, token: str, key: SeedKey) -> ConnectionOptions:
    """Return the connection options with the login of a user whose JWT and key exist only in memory."""
    return replace(as_user(options, {}), minted=MintedLogin("the user of the test", lambda _seconds: token, key.sign))
