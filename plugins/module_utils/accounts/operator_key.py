# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The replacement of an operator's signing key. Each step follows from the operator JWT in the inventory, the operators
of the servers and the issuers of the accounts, so an interrupted run can be repeated. Pure.

A changed operator JWT needs a restart, and blocks reloads until then (server/reload.go TrustedOperators)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .claims import Claims, decode_claims
from .copies import Evaluation
from .keys import Signer
from .token import InvalidToken, decode, encode

ADD, RESTART, SIGN, DROP, DONE = "add the key", "restart", "sign the accounts", "drop the key", "done"


def operator_step(jwt: Claims, servers: Sequence[Claims], new: str, replaced: str, signed: Collection[str]) -> str:
    """Return the next step. `jwt`: the operator JWT in the inventory. `servers`: the distinct operators of the servers.
    `new`: the new public key, empty if it does not exist yet. `signed`: the accounts that `replaced` has signed."""
    keys = jwt.fields["signing_keys"]
    if not new or new not in keys:
        return ADD
    if any(new not in one.fields["signing_keys"] for one in servers):
        return RESTART
    if signed:
        return SIGN
    if replaced in keys:
        return DROP
    if any(replaced in one.fields["signing_keys"] for one in servers):
        return RESTART
    return DONE


def signed_accounts(evaluations: Sequence[Evaluation], signer: str) -> list[str]:
    """Return the public keys of the accounts with a copy, on any server, that this key signed."""
    return [one.copies.account for one in evaluations if signer in issuers(one)]


def issuers(evaluation: Evaluation) -> set[str]:
    """Return the keys that signed the copies of an account, on all servers."""
    found = set()
    for token in (*evaluation.copies.stored, *evaluation.copies.loaded.values()):
        try:
            found.add(decode_claims(token).issuer if token else "")
        except InvalidToken:
            found.add("")
    return found - {""}


def with_signing_keys(token: str, identity: Signer, added: str, dropped: str, issued_at: int) -> str:
    """Return an operator JWT with one more signing key, or without one, signed by the operator's identity key."""
    payload = decode(token)
    keys = [key for key in payload["nats"].get("signing_keys") or () if key not in (added, dropped)]
    nats = {**payload["nats"], "signing_keys": [*keys, *([added] if added else [])]}
    return encode({**payload, "nats": nats, "iat": issued_at}, identity)
