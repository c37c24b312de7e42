# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JWTs of version 2 as nats-server reads them (jwt/v2 decoder.go, claims.go). Pure.

The header and the payload are signed together. Version 1 signed the payload alone and is refused here."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ..shapes import Shape, count, misshapen, optional, text
from .keys import ACCOUNT, OPERATOR, USER, Signer, is_valid_signature, key_kind

ACTIVATION = "activation"

#: Kind of claims → the kind of key that is their subject, and the kinds of keys that may sign them.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    OPERATOR: (OPERATOR, (OPERATOR,)),
    ACCOUNT: (ACCOUNT, (OPERATOR, ACCOUNT)),
    USER: (USER, (ACCOUNT,)),
    ACTIVATION: (ACCOUNT, (ACCOUNT, OPERATOR)),
}
#: A request to delete accounts; servers accept it only if the operator key signed a JWT about itself.
GENERIC = "generic"
_SIGNED = {**KINDS, GENERIC: (OPERATOR, (OPERATOR,))}
VERSION = 2
#: Number of characters of the longest JWT that servers accept (decoder.go MaxTokenSize).
LONGEST = 1024 * 1024

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_TOP: Mapping[str, Shape] = {
    **dict.fromkeys(("aud", "jti", "name"), optional(text)),
    **dict.fromkeys(("exp", "iat", "nbf"), optional(count)),
    "iss": text,
    "sub": text,
}


class InvalidToken(ValueError):
    """A text that is not a JWT of version 2 with a valid signature; the message contains the reason."""


def decode(token: str) -> dict[str, Any]:
    """Return the payload of a JWT after verifying its form, kind, keys and signature. Raises InvalidToken."""
    if len(token) > LONGEST:
        raise InvalidToken(f"it has {len(token):,} characters, and servers accept {LONGEST:,}")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("it does not consist of header, payload and signature")
    header, payload = (_json(part, what) for part, what in zip(parts, ("header", "payload")))
    if str(header.get("typ")).upper() != "JWT" or str(header.get("alg")).lower() not in ("ed25519-nkey", "ed25519"):
        raise InvalidToken("the header does not name the algorithm ed25519-nkey")
    nats = payload.get("nats")
    if payload.get("type") or not isinstance(nats, dict) or nats.get("version") in (None, 0, 1):
        raise InvalidToken("it has version 1; sign the claims again with a current tool")
    if nats["version"] != VERSION:
        raise InvalidToken(f"it has version {str(nats['version'])[:20]}, which this collection does not support")
    wrong = misshapen(payload, _TOP)
    if wrong:
        raise InvalidToken(f"{', '.join(wrong)}: missing, or not of the expected type")
    kind = nats.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidToken(f"its type is {str(kind)[:40]!r}; supported: {', '.join(KINDS)}")
    _require_keys(kind, payload["sub"], payload["iss"])
    signed = f"{parts[0]}.{parts[1]}".encode()
    if not is_valid_signature(payload["iss"], signed, _bytes(parts[2], "signature")):
        raise InvalidToken(f"the signature is not that of its issuer {payload['iss']}")
    return payload


def read_payload(token: str) -> dict[str, Any]:
    """Return the payload of a JWT that a server has verified, without verifying it again. Raises InvalidToken."""
    parts = token.split(".")
    if len(token) > LONGEST or len(parts) != 3:
        raise InvalidToken("it does not consist of header, payload and signature")
    return _json(parts[1], "payload")


def encode(payload: Mapping[str, Any], signer: Signer) -> str:
    """Return the payload as a JWT; `iss` is set to the signer and `jti` to a random value.

    Servers consider two JWTs with the same `jti` equal (dirstore.go saveIfNewer), so `jti` must be unique; the hash
    that other tools use for it does not cover the claims under `nats`. Raises InvalidToken.
    """
    nats = {**payload["nats"], "version": VERSION}
    _require_keys(nats["type"], payload["sub"], signer.public)
    whole = {**payload, "iss": signer.public, "jti": secrets.token_hex(16).upper(), "nats": nats}
    signed = f"{_base64(_HEADER)}.{_base64({key: value for key, value in whole.items() if value})}"
    token = f"{signed}.{_plain_base64(signer.sign(signed.encode()))}"
    if len(token) > LONGEST:
        raise InvalidToken(f"it has {len(token):,} characters, and servers accept {LONGEST:,}")
    return token


def sign_again(token: str, signer: Signer, issued_at: int) -> str:
    """Return the content of a JWT, including claims that this collection does not support, as a new JWT of the signer.
    Raises InvalidToken."""
    return encode({**decode(token), "iat": issued_at}, signer)


def deletion_request(accounts: Sequence[str], signer: Signer, issued_at: int) -> str:
    """Return the JWT that requests the deletion of these accounts (accounts.go handleDeleteRequest)."""
    nats = {"type": GENERIC, "accounts": list(accounts)}
    return encode({"iat": issued_at, "name": "delete", "sub": signer.public, "nats": nats}, signer)


def _require_keys(kind: str, subject: str, issuer: str) -> None:
    wanted, signers = _SIGNED[kind]
    if key_kind(subject) != wanted:
        raise InvalidToken(f"sub: {subject[:60]!r} is not the public key of an {wanted}".replace("an user", "a user"))
    if key_kind(issuer) not in signers:
        raise InvalidToken(f"iss: {issuer[:60]!r} is not the public key of an {' or an '.join(signers)}")


def _json(part: str, what: str) -> dict[str, Any]:
    data = _bytes(part, what)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidToken(f"the {what} is not JSON") from error
    if not isinstance(found, dict):
        raise InvalidToken(f"the {what} is not a JSON object")
    return found


def _bytes(part: str, what: str) -> bytes:
    """Decode base64url without padding."""
    try:
        return base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidToken(f"the {what} is not base64url") from error


def _base64(value: Mapping[str, Any]) -> str:
    return _plain_base64(json.dumps(value, separators=(",", ":")).encode())


def _plain_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
