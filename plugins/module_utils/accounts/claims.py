# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims of operators, accounts, users and activations in normal form: read from a JWT and written to one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .claim_fields import from_claims, to_claims
from .fields import (
    ACCOUNT_FIELDS,
    ACTIVATION_FIELDS,
    FLAT,
    JETSTREAM,
    OPERATOR_FIELDS,
    USER_FIELDS,
    ClaimField,
    Malformed,
    Normal,
)
from .keys import ACCOUNT, OPERATOR, USER, Signer
from .token import ACTIVATION, InvalidToken, decode, encode

FIELDS: Mapping[str, tuple[ClaimField, ...]] = {
    OPERATOR: OPERATOR_FIELDS,
    ACCOUNT: ACCOUNT_FIELDS,
    USER: USER_FIELDS,
    ACTIVATION: ACTIVATION_FIELDS,
}
_JETSTREAM_KEYS = {one.wire for one in JETSTREAM}


@dataclass(frozen=True)
class Claims:
    """Claims of one JWT. Times are in seconds since 1970, 0 for none. `fields`: the normal form of the object `nats`.

    `activations`: the JWTs of imports by `import_key`. `unknown`: paths of claims that are in no table of `fields`.
    `flat_ignored`: whether an account has flat JetStream limits next to tiers, which servers ignore."""

    kind: str
    subject: str
    name: str
    fields: Normal
    issuer: str = ""
    issued_at: int = 0
    expires: int = 0
    not_before: int = 0
    audience: str = ""
    id: str = ""
    activations: Mapping[str, str] = field(default_factory=dict, repr=False)
    unknown: tuple[str, ...] = ()
    flat_ignored: bool = False


def import_key(item: Mapping[str, Any]) -> str:
    """Return the identity of an import: its type, exporting account and subject, and the local subject."""
    return f"{item['type']} {item['account']} {item['subject']} {item['local']}"


def decode_claims(token: str) -> Claims:
    """Return the claims of a JWT after verifying that its issuer signed it. Raises InvalidToken."""
    payload = decode(token)
    nats = dict(payload["nats"])
    kind = nats.pop("type")
    nats.pop("version")
    unknown = [key for key in payload if key not in ("aud", "exp", "jti", "iat", "iss", "name", "nbf", "sub", "nats")]
    activations: dict[str, str] = {}
    flat_ignored = False
    try:
        if kind == ACCOUNT:
            nats, flat, raw_imports = _without_irregular(nats)
        fields = from_claims(FIELDS[kind], nats, unknown)
        if kind == ACCOUNT:
            own = from_claims(JETSTREAM, flat, unknown, "limits.")
            flat_ignored = bool(fields["limits.jetstream"] and flat)
            if not fields["limits.jetstream"] and (own["disk"] or own["memory"]):
                fields["limits.jetstream"] = {FLAT: own}
            for item in raw_imports:
                if item.get("token"):
                    key = import_key(from_claims(_IMPORT, item, []))
                    activations[key] = str(item["token"])
    except Malformed as error:
        raise InvalidToken(str(error)) from error
    return Claims(
        kind,
        payload["sub"],
        payload.get("name") or "",
        fields,
        payload["iss"],
        payload.get("iat") or 0,
        payload.get("exp") or 0,
        payload.get("nbf") or 0,
        payload.get("aud") or "",
        payload.get("jti") or "",
        activations,
        tuple(sorted(unknown)),
        flat_ignored,
    )


_IMPORT = next(one.fields for one in ACCOUNT_FIELDS if one.name == "imports")


def encode_claims(claims: Claims, signer: Signer, issued_at: int) -> str:
    """Return the claims as a JWT of the signer. Raises InvalidToken, also if claims would be lost.

    `issued_at`: must be later than the issue time of the replaced JWT, because a server that was stopped in the
    meantime keeps the newer JWT.
    """
    if claims.unknown:
        raise InvalidToken(f"{', '.join(claims.unknown[:5])}: unknown claims would be lost")
    nats = to_claims(FIELDS[claims.kind], claims.fields)
    if claims.kind == ACCOUNT:
        _put_jetstream(nats, claims.fields["limits.jetstream"])
        nats["imports"] = [_wire_import(item, claims.activations) for item in claims.fields["imports"]]
        if not nats["imports"]:
            del nats["imports"]
        wanting = [name for name, key in claims.fields["signing_keys"].items() if not key["key"]]
        if wanting:
            raise InvalidToken(f"signing_keys: {', '.join(wanting)}: without a public key")
    payload = {
        "aud": claims.audience,
        "exp": claims.expires,
        "iat": issued_at,
        "name": claims.name,
        "nats": {**nats, "type": claims.kind},
        "nbf": claims.not_before,
        "sub": claims.subject,
    }
    return encode(payload, signer)


def _put_jetstream(nats: dict[str, Any], tiers: Mapping[str, Normal]) -> None:
    """Write flat limits where servers read them, next to the other limits."""
    if FLAT not in tiers:
        return
    if len(tiers) > 1:
        raise InvalidToken("limits.jetstream: tiers and limits of all replicas exclude each other")
    limits = nats["limits"]
    del limits["tiered_limits"]
    limits.update(to_claims(JETSTREAM, tiers[FLAT]))


def _wire_import(item: Mapping[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    wire = to_claims(_IMPORT, item)
    if item["activation"]:
        token = activations.get(import_key(item))
        if not token:
            raise InvalidToken(f"imports: {item['subject']} of {item['account']}: without an activation")
        wire["token"] = token
    return wire


def _without_irregular(nats: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Return three parts of an account's claims: the rest, the flat JetStream limits, and the imports with a local
    subject."""
    limits = nats.get("limits", {})
    imports = nats.get("imports", [])
    if not isinstance(limits, dict):
        raise Malformed("limits: not an object")
    if not isinstance(imports, list) or not all(isinstance(item, dict) for item in imports):
        raise Malformed("imports: not a list of objects")
    flat = {key: value for key, value in limits.items() if key in _JETSTREAM_KEYS and value}
    rest = {key: value for key, value in limits.items() if key not in _JETSTREAM_KEYS}
    renamed = [_with_local_subject(item) for item in imports]
    return {**nats, "limits": rest, "imports": renamed}, flat, renamed


def _with_local_subject(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an import without the deprecated `to` (imports.go): for a service, `to` is the exporter's subject; for a
    stream, it is a prefix of the local subject. A local subject equal to the subject is omitted."""
    found = dict(item)
    to, subject = found.pop("to", None), str(found.get("subject") or "")
    if to and item.get("type") == "service":
        found.update(subject=to, local_subject=subject)
    elif to:
        found["local_subject"] = f"{to}.{subject}"
    if found.get("local_subject") == found.get("subject"):
        found.pop("local_subject", None)
    return found
