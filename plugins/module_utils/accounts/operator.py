# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JWTs with which a cluster begins in operator mode: those of the operator and of its system account. Pure: no I/O.

The system account has one signing key, the builtin role natsops, with which the collection issues its own logins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .builtin import NATSOPS
from .change import with_keys
from .claims import Claims, encode_claims
from .document import AccountsDocument, desired_claims, read_document
from .fields import OPERATOR_FIELDS
from .keys import OPERATOR, Signer


@dataclass(frozen=True)
class OperatorKeys:
    """Public keys, and the keys that sign. `identity`: signs the operator JWT. `signing`: signs accounts. `system`: the
    public key of the system account. `role`: the public key of its role natsops."""

    identity: Signer
    signing: Signer
    system: str
    role: str


def first_document(operator: str, system_account: str) -> dict[str, Any]:
    """Return the document that declares only the operator and its system account."""
    return {
        "operator": {"name": operator, "strict_signing_keys": True},
        "system_account": system_account,
        "accounts": {system_account: {"signing_keys": {NATSOPS: {"builtin": NATSOPS}}}},
    }


def operator_jwt(document: AccountsDocument, keys: OperatorKeys, now: int) -> str:
    """Return the operator JWT. `now`: seconds since 1970. Raises ValueError if the document has no operator."""
    if document.operator is None:
        raise ValueError("the document has no operator")
    fields = {one.name: document.operator.get(one.name, one.empty) for one in OPERATOR_FIELDS}
    fields.update({"id": "", "signing_keys": [keys.signing.public], "system_account": keys.system})
    return encode_claims(Claims(OPERATOR, keys.identity.public, document.operator["name"], fields), keys.identity, now)


def system_account_jwt(document: AccountsDocument, keys: OperatorKeys, now: int) -> str:
    """Return the JWT of the system account, as `accounts_plan` expects it for this document."""
    account = document.accounts[document.system_account]
    claims = desired_claims(account, document.accounts, {})
    return encode_claims(with_keys(claims, keys.system, {NATSOPS: keys.role}, {}), keys.signing, now)


def begin(operator: str, system_account: str, keys: OperatorKeys, now: int) -> tuple[str, str]:
    """Return the JWTs of the operator and of its system account. Raises InvalidDocument for a name that a document
    cannot have."""
    document = read_document(first_document(operator, system_account))
    return operator_jwt(document, keys, now), system_account_jwt(document, keys, now)
